//! Waiting: how long for an answer, how often, and signs of life where nothing is under way.

use core::time::Duration;

use lnet_types::{Errno, Instant};

use super::{End, Holder, News, State};

/// The shortest wait before something is sent again.
const RTO_MIN: Duration = Duration::from_millis(200);
/// How long beyond two round trips before the last of several segments is sent again.
const PROBE: Duration = Duration::from_millis(2);
/// The wait where no round trip is known yet.
const RTO_FIRST: Duration = Duration::from_secs(1);
/// The longest.
const RTO_MAX: Duration = Duration::from_secs(120);
/// Attempts to connect; the last one fails after 127 s.
const SYN_TRIES: u32 = 6;
/// Tries in a row without an answer after which a connection is given up.
const TRIES: u32 = 15;
/// The same for a connection without a holder.
const ORPHAN_TRIES: u32 = 8;
/// Tries at even intervals, where the owner requests them.
const EVEN_TRIES: u32 = 6;

/// What the round trips were like.
#[derive(Debug, Default)]
pub(super) struct Trips {
    pub(super) smooth: Duration,
    spread: Duration,
    pub(super) least: Duration,
    /// The sequence whose acknowledgement is timed, and since when.
    pub(super) timed: Option<(u64, Instant)>,
}

impl Trips {
    pub(super) fn acked(&mut self, now: Instant, ack: u64) {
        let Some((_, since)) = self.timed.take_if(|(seq, _)| *seq <= ack) else { return };
        let took = now.saturating_since(since);
        if self.smooth.is_zero() {
            (self.smooth, self.spread, self.least) = (took, took / 2, took);
        } else {
            self.spread = (self.spread * 3 + self.smooth.abs_diff(took)) / 4;
            self.smooth = (self.smooth * 7 + took) / 8;
            self.least = self.least.min(took);
        }
    }

    fn rto(&self) -> Duration {
        match self.smooth {
            Duration::ZERO => RTO_FIRST,
            smooth => (smooth + self.spread * 4).clamp(RTO_MIN, RTO_MAX),
        }
    }
}

impl End {
    pub(super) fn wait(&mut self, now: Instant) {
        self.awaiting = true;
        self.due = now + self.patience();
    }

    /// How long to wait for an answer.
    fn patience(&self) -> Duration {
        if self.state == State::SynSent || self.state == State::SynReceived {
            return RTO_FIRST * (1 << self.tries.min(SYN_TRIES));
        }
        if self.may_probe() {
            return (self.trips.smooth * 2 + PROBE).min(self.trips.rto());
        }
        let even = if self.wishes.even_retries { EVEN_TRIES } else { 0 };
        let doubled = self.tries.min(TRIES).saturating_sub(even);
        self.trips.rto().saturating_mul(1 << doubled).min(self.rto_max())
    }

    /// Whether the last of several segments goes again before anything counts as lost: what its
    /// acknowledgement shows missing needs no time-out.
    fn may_probe(&self) -> bool {
        let several = self.state == State::Open && self.flight.len() > 1;
        several && !self.probed && self.tries == 0 && !self.trips.smooth.is_zero()
    }

    fn rto_max(&self) -> Duration {
        if self.wishes.rto_max.is_zero() { RTO_MAX } else { self.wishes.rto_max }
    }

    /// The segment of this end that begins with `seq` is with the other one at `at`, or was to be:
    /// what waits for its answer begins to wait then. Queues before a slow link are no reason to
    /// send again; that more is sent behind it is no reason to wait longer.
    pub(in crate::bytes) fn departed(&mut self, seq: u64, at: Instant) -> News {
        self.through = self.through.max(at);
        if self.awaiting && seq == self.una {
            self.due = self.due.max(at + self.patience());
        }
        News::default()
    }

    /// The time that it waited for has come.
    pub(in crate::bytes) fn expire(&mut self, now: Instant) -> News {
        self.due = Instant::FAR_FUTURE;
        let most = match self.state {
            State::Closed => return News::default(),
            State::SynSent | State::SynReceived => SYN_TRIES,
            State::Open if self.holder == Holder::Orphan => ORPHAN_TRIES,
            // Linux with TCP_USER_TIMEOUT: by time alone, which is for the driver here.
            State::Open if !self.wishes.rto_max.is_zero() => u32::MAX,
            State::Open => TRIES,
        };
        let idle = !self.in_flight() && self.next >= self.data_end();
        if idle && self.state == State::Open {
            return self.keep_alive(now);
        }
        if self.may_probe() {
            self.probed = true;
            self.flight.lose_last();
            self.again_due = true;
            self.wait(now);
            return News::default();
        }
        if self.tries >= most {
            return self.fail(Errno::ETIMEDOUT);
        }
        self.tries += 1;
        match self.state {
            State::SynSent | State::SynReceived => self.syn_due = true,
            _ if self.in_flight() => {
                self.recover = self.next;
                self.flight.lose_first();
                self.again_due = true;
            }
            _ => self.probe_due = true,
        }
        self.wait(now);
        News::default()
    }

    fn keep_alive(&mut self, now: Instant) -> News {
        let Some((idle, interval, probes)) = self.wishes.keepalive else { return News::default() };
        let since = now.saturating_since(self.heard);
        if since < idle {
            self.due = self.heard + idle;
        } else if self.tries >= probes {
            return self.fail(Errno::ETIMEDOUT);
        } else {
            self.tries += 1;
            self.probe_due = true;
            self.due = now + interval;
        }
        News::default()
    }

    /// What was asked for by [`super::Wishes::keepalive`] begins when nothing else is waited for.
    pub(super) fn rest(&mut self) {
        self.awaiting = false;
        self.due = match self.wishes.keepalive {
            Some((idle, ..)) if self.holder == Holder::Driver => self.heard + idle,
            _ => Instant::FAR_FUTURE,
        };
    }
}
