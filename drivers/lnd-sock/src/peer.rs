//! The driver's record of a peer: its connections, what waits for one, and when to try to make
//! another. A peer is one process at one NID, seen from one of our interfaces (K-10).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use lnet::{Doubt, Transmit};
use lnet_types::{Instant, NiId, ProcessId};
use lnet_wire::sock::Version;
use smallvec::SmallVec;

use crate::proto::load::{Burst, Pace};
use crate::proto::watch::Watch;
use crate::proto::zc::Owed;
use crate::stats::Traffic;

slotmap::new_key_type! {
    /// A connection in any phase.
    pub(crate) struct ConnKey;
    /// A peer.
    pub(crate) struct PeerKey;
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) ni: NiId,
    pub(crate) id: ProcessId,
    /// Where it is connected to.
    pub(crate) addr: IpAddr,
    /// Whether we connect to it; a peer that was only ever connected to is used as it is.
    pub(crate) active: bool,
    /// Bulk connections wanted each way; fixed when the record is made (K-12).
    pub(crate) conns_per_peer: u8,
    /// Usable connections.
    pub(crate) conns: SmallVec<[ConnKey; 3]>,
    /// How many of them are control connections.
    pub(crate) controls: u32,
    /// Version and incarnation of all of them.
    pub(crate) session: Option<(Version, u64)>,
    /// The incarnation of the last of them.
    pub(crate) life: Option<u64>,
    /// The version that a refusal has taught us.
    pub(crate) taught: Option<Version>,
    /// Messages that no connection can take yet.
    pub(crate) waiting: VecDeque<Waiting>,
    /// The making of connections.
    pub(crate) dialer: Dialer,
    /// Acknowledgements that we owe it.
    pub(crate) owed: Owed,
    /// It is in the driver's list of peers with acknowledgements to write.
    pub(crate) ack_listed: bool,
    /// When it was last heard.
    pub(crate) last_alive: Instant,
    /// No keepalive before.
    pub(crate) keepalive_after: Instant,
    /// When it is looked at next; `FAR_FUTURE` if it isn't in the driver's timers.
    pub(crate) timer: Instant,
    pub(crate) traffic: Traffic,
    /// What is thought of the rail to it.
    pub(crate) watch: Watch,
    /// When the rail is looked at next; `FAR_FUTURE` if it isn't in the driver's timers.
    pub(crate) look_at: Instant,
    /// Looks at the rail while it was to prove itself.
    pub(crate) looks: u32,
    /// When a message was last sent to it.
    pub(crate) wanted: Instant,
    /// The fastest that the rail was seen to be, and the load by which it proves that again.
    pub(crate) pace: Pace,
    pub(crate) burst: Option<Burst>,
    /// The shortest round trip that its connections have shown.
    pub(crate) rtt: Option<Duration>,
    /// It suppresses duplicates, as the node said with the last message to it.
    pub(crate) repeats: bool,
}

/// A message that waits for a connection.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) transmit: Transmit,
    /// When it has waited long enough (K-32).
    pub(crate) deadline: Instant,
    /// When the node stops waiting for it, wherever it is.
    pub(crate) until: Instant,
}

impl Peer {
    pub(crate) fn new(ni: NiId, id: ProcessId, addr: IpAddr, conns_per_peer: u8) -> Self {
        Self {
            ni,
            id,
            addr,
            active: false,
            conns_per_peer,
            conns: SmallVec::new(),
            controls: 0,
            session: None,
            life: None,
            taught: None,
            waiting: VecDeque::new(),
            dialer: Dialer::default(),
            owed: Owed::default(),
            ack_listed: false,
            last_alive: Instant::ZERO,
            keepalive_after: Instant::ZERO,
            timer: Instant::FAR_FUTURE,
            traffic: Traffic::default(),
            watch: Watch::default(),
            look_at: Instant::FAR_FUTURE,
            looks: 0,
            wanted: Instant::ZERO,
            pace: Pace::default(),
            burst: None,
            rtt: None,
            repeats: false,
        }
    }

    /// Whether nothing is lost by forgetting it.
    pub(crate) fn is_forgettable(&self, now: Instant) -> bool {
        self.conns.is_empty()
            && self.waiting.is_empty()
            && self.dialer.is_resting()
            && self.watch.doubt() == Doubt::None
            && (!self.active || now >= self.dialer.not_before)
    }
}

/// When to connect: one attempt at a time, again soon after a polite refusal, later and later after
/// failures (K-26 to K-28).
///
/// ```text
///  Resting ── wanted ─► Due ── begun ─► Trying ── up ─► Resting
///     ▲                  ▲                │
///     │                  ╰── refused ─────┤  at most 3 times in a row
///     ╰──────────────────── failed ───────╯  not again before the interval is over
/// ```
#[derive(Debug, Default)]
pub(crate) struct Dialer {
    state: State,
    /// The delay after the last failure; zero after a success.
    interval: Duration,
    /// No attempt before.
    pub(crate) not_before: Instant,
    /// Refusals in a row.
    refusals: u8,
    /// The peer has given us what it will; no more attempts until a connection is lost.
    settled: bool,
    /// Attempts without any answer, in a row.
    unanswered: u8,
    /// Since when the peer has refused every attempt.
    refused: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing to be done.
    #[default]
    Resting,
    /// An attempt is due at `at`; all attempts end at `until`.
    Due { at: Instant, until: Instant },
    /// An attempt is under way.
    Trying { conn: ConnKey, until: Instant },
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// A connection is up.
    Up,
    /// Refused: race or enough connections. Again after the shortest delay.
    Later,
    /// The same, where the waiting messages would rather wait for the peer's connection, or for
    /// another attempt, than fail: while suspicion is on.
    Patient,
    /// Refused: other version or incarnation. Again at once.
    Again,
    /// Failed.
    Failed,
}

/// Time that an attempt has for a first answer, while suspicion is on (DEC-31).
const PATIENCE: Duration = Duration::from_millis(150);
const PATIENCE_MAX: Duration = Duration::from_millis(1500);
/// The same in round trips: those of TCP and of the HELLOs, and some.
const PATIENCE_RTTS: u32 = 4;

/// Refusals in a row that are taken (K-26).
const REFUSALS_MAX: u8 = 3;

impl Dialer {
    /// A connection is wanted. Tells whether one is being made, or will be.
    pub(crate) fn want(&mut self, now: Instant, timeout: Duration) -> bool {
        if self.state == State::Resting && !self.settled && now >= self.not_before {
            self.refusals = 0;
            self.state = State::Due { at: now, until: now + timeout };
        }
        self.state != State::Resting
    }

    /// The same, where the caller would rather wait out the back-off than be refused.
    pub(crate) fn want_in_time(&mut self, now: Instant, timeout: Duration) -> bool {
        if self.state == State::Resting && !self.settled && now < self.not_before {
            self.refusals = 0;
            let at = self.not_before;
            self.state = State::Due { at, until: at + timeout };
        }
        self.want(now, timeout)
    }

    /// How long the attempt under way may go without any answer before a new one is begun beside
    /// the network's own, slower retries. `rtt` is how long round trips to the peer take; while that
    /// is not known, every fourth attempt has time for the longest of ways.
    pub(crate) fn patience(&self, rtt: Option<Duration>) -> Duration {
        match rtt {
            Some(rtt) => rtt.saturating_mul(PATIENCE_RTTS).clamp(PATIENCE, PATIENCE_MAX),
            None if self.unanswered % 4 == 3 => PATIENCE_MAX,
            None => PATIENCE,
        }
    }

    /// There is reason to believe that an attempt fares better now than the last ones: the next one
    /// need not wait. Tells whether one is due now.
    pub(crate) fn hasten(&mut self, now: Instant) -> bool {
        self.interval = Duration::ZERO;
        self.not_before = self.not_before.min(now);
        let State::Due { at, until } = self.state else { return false };
        self.state = State::Due { at: at.min(now), until };
        true
    }

    /// The attempt under way has not been answered: another one, at once, within the same time limit.
    pub(crate) const fn again(&mut self, now: Instant) {
        if let State::Trying { until, .. } = self.state {
            self.unanswered = self.unanswered.wrapping_add(1);
            self.state = State::Due { at: now, until };
        }
    }

    /// Since when the peer has refused every attempt, if it has.
    pub(crate) const fn refused_since(&self) -> Option<Instant> {
        self.refused
    }

    /// When the next attempt is due.
    pub(crate) const fn due(&self) -> Option<Instant> {
        match self.state {
            State::Due { at, .. } => Some(at),
            State::Resting | State::Trying { .. } => None,
        }
    }

    /// When the attempt under way must have ended.
    pub(crate) const fn until(&self) -> Option<Instant> {
        match self.state {
            State::Trying { until, .. } => Some(until),
            State::Resting | State::Due { .. } => None,
        }
    }

    /// The connection that is being made.
    pub(crate) const fn trying(&self) -> Option<ConnKey> {
        match self.state {
            State::Trying { conn, .. } => Some(conn),
            State::Resting | State::Due { .. } => None,
        }
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.state == State::Resting
    }

    /// An attempt has begun as `conn`.
    pub(crate) const fn begun(&mut self, conn: ConnKey) {
        if let State::Due { until, .. } = self.state {
            self.state = State::Trying { conn, until };
        }
    }

    /// The attempt has ended. `complete` says whether there is a connection of each type. Tells
    /// whether that was a failure, which those who wait must hear of.
    pub(crate) fn ended(
        &mut self,
        now: Instant,
        how: Attempt,
        complete: bool,
        min: Duration,
        max: Duration,
    ) -> bool {
        let until = match self.state {
            State::Resting => return false,
            State::Due { until, .. } | State::Trying { until, .. } => until,
        };
        let again = match how {
            Attempt::Up => {
                self.rest();
                return false;
            }
            Attempt::Later | Attempt::Patient => Some(now + min),
            Attempt::Again => Some(now),
            Attempt::Failed => None,
        };
        if let Some(at) = again {
            self.refusals = self.refusals.saturating_add(1);
            self.refused.get_or_insert(now);
            let taken = self.refusals < REFUSALS_MAX || (how == Attempt::Patient && !complete);
            if taken && at < until {
                self.state = State::Due { at, until };
                return false;
            }
            if complete {
                self.rest();
                self.settled = true;
                return false;
            }
        }
        self.state = State::Resting;
        self.refusals = 0;
        if how == Attempt::Failed {
            self.refused = None;
        }
        self.interval = (self.interval * 2).clamp(min, max.max(min));
        self.not_before = now + self.interval;
        true
    }

    /// A connection was lost, so the peer may take another one.
    pub(crate) const fn unsettle(&mut self) {
        self.settled = false;
    }

    /// Nothing more is wanted.
    pub(crate) fn rest(&mut self) {
        self.state = State::Resting;
        self.refusals = 0;
        self.unanswered = 0;
        self.refused = None;
        self.interval = Duration::ZERO;
        self.not_before = Instant::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use slotmap::KeyData;

    use super::*;

    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(60);
    const TIMEOUT: Duration = Duration::from_secs(50);

    fn conn() -> ConnKey {
        ConnKey::from(KeyData::from_ffi(1 << 32 | 1))
    }

    fn at(secs: u64) -> Instant {
        Instant::from_secs(secs)
    }

    fn end(d: &mut Dialer, now: Instant, how: Attempt, complete: bool) -> bool {
        d.ended(now, how, complete, MIN, MAX)
    }

    #[test]
    fn delays_double_from_one_second_to_sixty_and_a_success_resets_them() {
        let mut d = Dialer::default();
        let mut now = at(0);
        for delay in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(d.want(now, TIMEOUT), "an attempt is allowed at {now}");
            d.begun(conn());
            assert!(end(&mut d, now, Attempt::Failed, false));
            let next = now + Duration::from_secs(delay);
            assert!(!d.want(next - Duration::from_nanos(1), TIMEOUT), "too soon after {delay} s");
            now = next;
        }
        assert!(d.want(now, TIMEOUT));
        d.begun(conn());
        assert!(!end(&mut d, now, Attempt::Up, false));
        assert!(d.want(now, TIMEOUT));
        d.begun(conn());
        assert!(end(&mut d, now, Attempt::Failed, false));
        assert_eq!(d.not_before, now + MIN);
    }

    #[test]
    fn the_third_refusal_of_a_connection_is_a_failure() {
        let mut d = Dialer::default();
        assert!(d.want(at(0), TIMEOUT));
        for n in 0..2 {
            d.begun(conn());
            assert!(!end(&mut d, at(n), Attempt::Later, false));
            assert_eq!(d.due(), Some(at(n + 1)));
        }
        d.begun(conn());
        assert!(end(&mut d, at(2), Attempt::Later, false), "the third is a failure");
        assert_eq!(d.not_before, at(3));
    }

    #[test]
    fn with_one_connection_of_each_type_refusals_settle_the_matter() {
        let mut d = Dialer::default();
        assert!(d.want(at(0), TIMEOUT));
        for n in 0..3 {
            d.begun(conn());
            assert!(!end(&mut d, at(n), Attempt::Later, true));
        }
        assert!(!d.want(at(100), TIMEOUT));
        d.unsettle();
        assert!(d.want(at(100), TIMEOUT));
    }

    #[test]
    fn another_protocol_version_is_tried_without_delay() {
        let mut d = Dialer::default();
        assert!(d.want(at(5), TIMEOUT));
        d.begun(conn());
        assert!(!end(&mut d, at(6), Attempt::Again, false));
        assert_eq!(d.due(), Some(at(6)));
    }

    #[test]
    fn all_attempts_to_connect_share_one_time_limit() {
        let mut d = Dialer::default();
        assert!(d.want(at(0), TIMEOUT));
        d.begun(conn());
        assert_eq!(d.until(), Some(at(50)));
        assert!(!end(&mut d, at(40), Attempt::Later, false));
        d.begun(conn());
        assert_eq!(d.until(), Some(at(50)));
        assert!(end(&mut d, at(49), Attempt::Later, false), "one more would be too late");
    }

    #[test]
    fn a_message_that_can_wait_is_not_refused_during_the_back_off() {
        let mut d = Dialer::default();
        assert!(d.want(at(0), TIMEOUT));
        d.begun(conn());
        assert!(end(&mut d, at(0), Attempt::Failed, false));
        assert!(!d.want(at(0), TIMEOUT));
        assert!(d.want_in_time(at(0), TIMEOUT));
        assert_eq!(d.due(), Some(at(1)));
    }

    #[test]
    fn attempts_without_an_answer_are_begun_anew_within_one_limit_and_each_fourth_is_patient() {
        let mut d = Dialer::default();
        assert!(d.want(at(0), TIMEOUT));
        let mut patient = Vec::new();
        for n in 0..8 {
            assert_eq!(d.due(), Some(at(n)));
            d.begun(conn());
            assert_eq!(d.until(), Some(at(50)));
            patient.push(d.patience(None) > PATIENCE);
            assert_eq!(d.patience(Some(Duration::from_millis(1))), PATIENCE);
            assert_eq!(d.patience(Some(Duration::from_millis(100))), Duration::from_millis(400));
            d.again(at(n + 1));
        }
        assert_eq!(patient, [false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn a_reachable_peer_ends_the_back_off_which_begins_again_at_its_shortest() {
        let mut d = Dialer::default();
        for now in [0, 1, 3, 7] {
            assert!(d.want(at(now), TIMEOUT));
            d.begun(conn());
            assert!(end(&mut d, at(now), Attempt::Failed, false));
        }
        assert_eq!(d.not_before, at(15));
        assert!(!d.hasten(at(8)), "no message waits for a connection");
        assert!(d.want(at(8), TIMEOUT));
        d.begun(conn());
        assert!(end(&mut d, at(8), Attempt::Failed, false));
        assert_eq!(d.not_before, at(9), "the back-off begins at its shortest again");
        assert!(d.want_in_time(at(8), TIMEOUT));
        assert!(d.hasten(at(8)), "a message waits for the next attempt");
        assert_eq!(d.due(), Some(at(8)));
    }

    #[test]
    fn ends_of_attempts_that_were_not_begun_change_nothing() {
        for how in [Attempt::Up, Attempt::Later, Attempt::Again, Attempt::Failed] {
            let mut d = Dialer::default();
            assert!(!end(&mut d, at(0), how, false));
            assert!(d.is_resting());
            assert_eq!(d.not_before, Instant::ZERO);
        }
    }
}
