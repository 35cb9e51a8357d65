//! What the transport shows of a rail, judged (DEC-31): pure, values in, doubt out.
//!
//! [`Mark`] tells the age of the oldest byte on the way from stream positions alone, so that nothing
//! has to be noted per message. [`Loss`] keeps the recent share of segments that were sent twice.
//! [`Watch`] is the state of one rail:
//!
//! ```text
//!           lost or late               nothing acknowledged in time
//!   None ───────────────► Shaky ─────────────────────────────────────► Silent
//!    ▲                     │  ╰── far too late ───╮                    │   ▲
//!    │── sound for a time ─╯                      ▼                    │   │ nothing in time
//!    ╰── sound for a time ───────────────────── Unproven ◄─────────────╯   │
//!                                                 │  something acknowledged │
//!                                                 ╰─────────────────────────╯
//! ```
//!
//! A rail that is far too late crawls: one that is merely late, because it carries the load of all, is
//! better, so the two must not count as equal. A rail in doubt that moves too little of what callers
//! have for it is slow, which is worse than either, and stays so until it carries enough (`load.rs`):
//! when the machine holds up the other rail for a moment, its messages must not come here.
//!
//! A rail that has been doubted has to prove itself, with keepalives that the driver sends for it:
//! for a second at first, four times as long when it fails again soon after. So a flapping rail
//! stays doubted, and one that has healed is back in a second. While it proves itself a single
//! segment sent twice begins the proof anew: keepalives are so few that a rail which loses a tenth
//! of them loses none in most fifths of a second, and messages should not pay for finding that out.
//!
//! Keepalives show that a rail carries, not how much. It carries a load as well before it is trusted
//! (`load.rs`).
//!
//! When to look, and at what, is in `driver/watch.rs`.

use core::time::Duration;

use lnet::Doubt;
use lnet_types::Instant;

use crate::proto::load::Carries;
use crate::streams::Transport;
use crate::tunables::Suspicion;

/// How long a receiver holds an acknowledgement back that it could send at once, where the way is
/// short.
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// The first time of proof, and the longest.
const PROOF_MIN: Duration = Duration::from_secs(1);
const PROOF_MAX: Duration = Duration::from_secs(16);
/// So many times the limit are far too late, and so many are silence, however long the queue is that
/// the rail has: what is in it can go another way.
const CRAWL: u32 = 3;
const STUCK: u32 = 6;
/// How long a rail is on probation after it was trusted. Failing again meanwhile makes the next proof
/// longer.
const RELAPSE: Duration = Duration::from_secs(30);
/// Looks at which something was acknowledged, that a proof takes at least.
const PROOFS: u32 = 4;

/// Where the bytes on the way end that were there when it was set, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark(Option<(u64, Instant)>);

impl Mark {
    /// The stream has been written to, up to `written`.
    pub(crate) fn wrote(&mut self, now: Instant, written: u64) {
        self.0.get_or_insert((written, now));
    }

    /// All is acknowledged.
    pub(crate) const fn clear(&mut self) {
        self.0 = None;
    }

    /// How long the oldest byte has been on the way, at least: `acked` of `written` bytes are
    /// acknowledged. Too little by no more than the time between two looks.
    pub(crate) fn age(&mut self, now: Instant, acked: u64, written: u64) -> Duration {
        match self.0 {
            Some((end, since)) if acked < end => now.saturating_since(since),
            _ => {
                self.0 = (acked < written).then_some((written, now));
                Duration::ZERO
            }
        }
    }
}

/// The share of segments sent twice, of late: old ones fade.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    /// Totals at the last look.
    seen: Option<(u32, u32)>,
    /// Recent segments, sent at all and sent again, in 256ths.
    sent: u64,
    resent: u64,
}

impl Loss {
    /// Recent segments sent again that are no accident, and the share that they must have of all: 1
    /// in so many.
    const RESENT_MIN: u64 = 2;
    const SHARE: u64 = 50;

    /// Takes the totals of a stream; tells what it loses.
    pub(crate) fn look(&mut self, t: &Transport) -> Losing {
        let (sent, resent) = self.seen.replace((t.sent, t.resent)).unwrap_or((t.sent, t.resent));
        let fade = |old: u64, new: u32, before: u32| {
            old - old / 16 + u64::from(new.wrapping_sub(before)) * 256
        };
        let fresh = t.resent != resent;
        self.sent = fade(self.sent, t.sent, sent);
        self.resent = fade(self.resent, t.resent, resent);
        if !fresh {
            Losing::Nothing
        } else if self.resent >= Self::RESENT_MIN * 256 && self.resent * Self::SHARE >= self.sent {
            Losing::Much
        } else {
            Losing::Something
        }
    }
}

/// What has been lost since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Losing {
    #[default]
    Nothing,
    /// Accidents happen.
    Something,
    /// A share that no sound rail loses.
    Much,
}

/// What a look at a rail has shown: the worst that any of its connections did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    /// Nothing to judge by.
    #[default]
    Nothing,
    /// Something was acknowledged, and there is no evidence against the rail.
    Sound,
    /// Something was lost. That is nothing for a rail above doubt, and no proof for another.
    Marred,
    /// It loses or lags.
    Shaky,
    /// It lags by several times as much.
    Crawling,
    /// Something is overdue.
    Silent,
}

/// Whether a stream waits for its receiver: nothing is on the way, and the receiver has no room for a
/// segment. Bytes that are not sent in spite of such room are refused by this system (no route, a link
/// that is down, a filter): they count as on the way, since they get nowhere.
pub(crate) fn waits_for_receiver(t: &Transport) -> bool {
    t.unsent >= t.unacked && t.window < u64::from(t.segment).max(1)
}

impl Suspicion {
    /// How long a byte, or a connection attempt, may take where round trips take `rtt`.
    pub(crate) fn limit(&self, rtt: Duration) -> Duration {
        self.after.max(rtt.saturating_mul(self.rtts))
    }

    /// How long the receiver may hold an acknowledgement back: one that has got less than two segments,
    /// and has nothing to say. That is no property of the way, and no reason to wait several times as
    /// long for a sign of life: it counts once.
    fn held_back(t: &Transport) -> Duration {
        let few = t.unacked.saturating_sub(t.unsent) <= 2 * u64::from(t.segment);
        if few { t.rtt.saturating_sub(t.rtt_min).min(DELAYED_ACK) } else { Duration::ZERO }
    }

    /// The limit for the bytes of a stream.
    ///
    /// A rail on probation is measured by its shortest round trips: those of late may be those of a
    /// queue that it has just been given.
    fn limit_of(&self, t: &Transport, probation: bool) -> Duration {
        let delay = Self::held_back(t);
        let rtt = if probation { t.rtt_min } else { t.rtt.saturating_sub(delay) };
        self.limit(rtt).min(self.limit(t.rtt_min).saturating_mul(STUCK)) + delay
    }

    /// Judges a stream with bytes on the way, the oldest for `age`.
    pub(crate) fn judge(
        &self,
        t: &Transport,
        age: Duration,
        loses: Losing,
        progress: bool,
        probation: bool,
    ) -> Seen {
        let shortest = self.limit(t.rtt_min);
        let queue = shortest / if probation { 2 } else { 1 };
        // What waits for the receiver's window: the rail is sound, its end is slow.
        let age = if waits_for_receiver(t) { Duration::ZERO } else { age };
        if age > self.limit_of(t, probation) {
            Seen::Silent
        } else if t.rtt.max(age) > shortest.saturating_mul(CRAWL) {
            Seen::Crawling
        } else if loses == Losing::Much || t.rtt > queue || age > shortest + Self::held_back(t) {
            Seen::Shaky
        } else if loses == Losing::Something {
            Seen::Marred
        } else if progress {
            Seen::Sound
        } else {
            Seen::Nothing
        }
    }
}

/// The state of one rail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    doubt: Doubt,
    /// Since when it has been sound, and at how many looks, while it is doubted.
    proof: Option<(Instant, u32)>,
    /// How long it must be sound to be trusted again.
    needs: Duration,
    /// When it was trusted again last.
    trusted: Option<Instant>,
    /// Whether it is to carry a load before it is trusted (`load.rs`), and whether it has, since it was
    /// last in trouble.
    pub(crate) must_carry: bool,
    carried: bool,
    /// Whether it moved too little while callers had more for it, since it was last known to carry
    /// enough.
    slow: bool,
}

impl Watch {
    pub(crate) const fn doubt(&self) -> Doubt {
        self.doubt
    }

    /// Takes what a look has shown; the new doubt if it is another one than before.
    pub(crate) fn saw(&mut self, now: Instant, seen: Seen) -> Option<Doubt> {
        let before = self.doubt;
        match seen {
            Seen::Nothing => {}
            Seen::Silent | Seen::Crawling | Seen::Shaky => {
                if before == Doubt::None {
                    self.needs = if self.on_probation(now) {
                        (self.needs * 4).min(PROOF_MAX)
                    } else {
                        PROOF_MIN
                    };
                }
                self.proof = None;
                self.carried = false;
                self.doubt = match seen {
                    Seen::Silent => Doubt::Silent,
                    Seen::Crawling => self.not_silent().max(Doubt::Unproven),
                    _ => self.not_silent(),
                };
            }
            Seen::Marred => {
                self.proof = None;
                self.carried = false;
                if before == Doubt::Silent {
                    self.doubt = self.not_silent();
                }
            }
            Seen::Sound => {
                if before == Doubt::None {
                    self.slow = false;
                } else {
                    self.doubt = self.not_silent();
                    let (since, looks) = self.proof.unwrap_or((now, 0));
                    self.proof = Some((since, looks + 1));
                    let carries = self.carried || !self.must_carry;
                    if looks + 1 >= PROOFS && now >= since + self.needs && carries {
                        self.trust(now);
                    }
                }
            }
        }
        (self.doubt != before).then_some(self.doubt)
    }

    /// Whether it has been sound for half of its time of proof, and has yet to carry a load.
    pub(crate) fn wants_load(&self, now: Instant) -> bool {
        let half = |(since, _)| now >= since + self.needs / 2;
        self.must_carry && !self.carried && self.proof.is_some_and(half)
    }

    /// It has carried a load, at the pace that it should have.
    pub(crate) const fn carries(&mut self) {
        self.carried = true;
        self.slow = false;
    }

    /// What it was seen to carry while callers used it.
    pub(crate) fn in_use(&mut self, carries: Carries) {
        self.slow = carries == Carries::TooLittle;
    }

    /// It carried a load too slowly: the proof begins anew and takes twice as long.
    pub(crate) fn falls_short(&mut self) {
        self.proof = None;
        self.carried = false;
        self.needs = (self.needs * 2).min(PROOF_MAX);
    }

    /// Whether it was trusted again a short while ago. Keepalives prove that a rail carries, not how
    /// much: what it has is soon seen, if one looks closely. That it is doubted again meanwhile does
    /// not end it: what it was given must not wait as long as the queue of a slow rail takes.
    pub(crate) fn on_probation(&self, now: Instant) -> bool {
        self.trusted.is_some_and(|trusted| now < trusted + RELAPSE)
    }

    /// What is thought of a rail that is in trouble, or was, and is not silent now.
    fn not_silent(&self) -> Doubt {
        match self.doubt {
            _ if self.slow => Doubt::Slow,
            Doubt::None | Doubt::Shaky => Doubt::Shaky,
            Doubt::Unproven | Doubt::Slow | Doubt::Silent => Doubt::Unproven,
        }
    }

    /// Doubts it no more.
    pub(crate) const fn trust(&mut self, now: Instant) {
        self.doubt = Doubt::None;
        self.proof = None;
        self.carried = false;
        self.slow = false;
        self.trusted = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Suspicion = Suspicion { after: Duration::from_millis(50), rtts: 8 };

    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }

    /// A stream with 100 bytes on the way, all of them sent, over round trips of `rtt` ms.
    fn transport(rtt: u64) -> Transport {
        let rtt = Duration::from_millis(rtt);
        Transport { unacked: 100, rtt, rtt_min: rtt, segment: 1000, ..Transport::default() }
    }

    #[test]
    fn the_longer_of_both_times_is_the_limit() {
        for (rtt, limit) in [(0, 50), (1, 50), (6, 50), (7, 56), (100, 800)] {
            let got = LIMITS.limit(Duration::from_millis(rtt));
            assert_eq!(got, Duration::from_millis(limit), "round trips of {rtt} ms");
        }
        assert!(LIMITS.limit(Duration::MAX) == Duration::MAX);
    }

    #[test]
    fn a_byte_is_overdue_just_over_the_limit_and_not_at_it() {
        let tick = Duration::from_nanos(1);
        for rtt in [0, 1, 20] {
            let (t, limit) = (transport(rtt), LIMITS.limit(Duration::from_millis(rtt)));
            assert_eq!(LIMITS.judge(&t, limit, Losing::Nothing, false, false), Seen::Nothing);
            assert_eq!(LIMITS.judge(&t, limit, Losing::Nothing, true, false), Seen::Sound);
            assert_eq!(LIMITS.judge(&t, limit + tick, Losing::Nothing, true, false), Seen::Silent);
        }
    }

    #[test]
    fn acknowledgements_that_are_held_back_count_once_and_only_of_few_segments() {
        let ms = Duration::from_millis;
        for (unacked, rtt, rtt_min, limit) in [
            (2000, 40, 0, 90),
            (2000, 20, 0, 70),
            (2001, 30, 0, 240),
            (2000, 40, 40, 320),
            (2000, 60, 0, 200),
        ] {
            let t = Transport { unacked, rtt: ms(rtt), rtt_min: ms(rtt_min), ..transport(0) };
            assert_eq!(LIMITS.limit_of(&t, false), ms(limit), "{t:?}");
        }
    }

    #[test]
    fn a_receiver_that_does_not_read_is_not_the_rails_fault() {
        let t = Transport { unsent: 100, ..transport(1) };
        assert_eq!(
            LIMITS.judge(&t, Duration::from_secs(9), Losing::Nothing, false, false),
            Seen::Nothing
        );
        let t = Transport { unsent: 99, ..t };
        assert_eq!(
            LIMITS.judge(&t, Duration::from_secs(9), Losing::Nothing, false, false),
            Seen::Silent
        );
    }

    #[test]
    fn bytes_not_sent_though_the_receiver_has_room_are_overdue_as_any() {
        for (window, seen) in [(0, Seen::Nothing), (999, Seen::Nothing), (1000, Seen::Silent)] {
            let t = Transport { unsent: 100, window, ..transport(1) };
            let age = Duration::from_secs(1);
            assert_eq!(LIMITS.judge(&t, age, Losing::Nothing, false, false), seen, "{window}");
        }
    }

    #[test]
    fn round_trips_far_beyond_the_shortest_are_a_queue() {
        let ms = Duration::from_millis;
        for (min, rtt, seen) in [
            (0, 50, Seen::Sound),
            (0, 51, Seen::Shaky),
            (0, 150, Seen::Shaky),
            (0, 151, Seen::Crawling),
            (10, 80, Seen::Sound),
            (10, 81, Seen::Shaky),
            (10, 241, Seen::Crawling),
        ] {
            let t = Transport { rtt: ms(rtt), rtt_min: ms(min), ..transport(0) };
            assert_eq!(
                LIMITS.judge(&t, Duration::ZERO, Losing::Nothing, true, false),
                seen,
                "{rtt} of {min}"
            );
        }
    }

    #[test]
    fn a_byte_on_the_way_shows_a_queue_before_the_round_trips_do() {
        for (age, seen) in
            [(50, Seen::Sound), (51, Seen::Shaky), (150, Seen::Shaky), (151, Seen::Crawling)]
        {
            let t = Transport { unacked: 9000, rtt: Duration::from_millis(20), ..transport(1) };
            let age = Duration::from_millis(age);
            assert_eq!(LIMITS.judge(&t, age, Losing::Nothing, true, false), seen, "{age:?}");
            let t = Transport { unsent: 9000, ..t };
            let slow_reader = LIMITS.judge(&t, age, Losing::Nothing, true, false);
            assert_eq!(slow_reader, Seen::Sound, "it waits for its receiver");
        }
    }

    #[test]
    fn what_is_in_a_long_queue_waits_six_limits_and_not_eight_of_its_own_round_trips() {
        let ms = Duration::from_millis;
        for (rtt_min, rtt, limit) in [(0, 30, 240), (0, 40, 300), (0, 4000, 300), (100, 900, 4800)]
        {
            let t = Transport { unacked: 9000, rtt: ms(rtt), rtt_min: ms(rtt_min), ..transport(0) };
            assert_eq!(LIMITS.limit_of(&t, false), ms(limit), "{rtt} of {rtt_min}");
        }
    }

    #[test]
    fn a_rail_that_crawls_is_behind_one_that_is_late() {
        let mut w = Watch::default();
        assert_eq!(w.saw(ms(0), Seen::Shaky), Some(Doubt::Shaky));
        assert_eq!(w.saw(ms(10), Seen::Crawling), Some(Doubt::Unproven));
        assert_eq!(w.saw(ms(20), Seen::Shaky), None, "it has not proved itself");
        assert_eq!(w.saw(ms(30), Seen::Silent), Some(Doubt::Silent));
        assert_eq!(w.saw(ms(40), Seen::Crawling), Some(Doubt::Unproven));
        assert_eq!(proves(&mut w, 50), 50 + 1000);
    }

    #[test]
    fn on_probation_a_queue_counts_at_half_the_length_and_is_no_excuse_for_silence() {
        let ms = Duration::from_millis;
        let t = Transport { unacked: 9000, rtt: ms(25), rtt_min: ms(1), ..transport(1) };
        let judge = |t: &Transport, age, probation| {
            LIMITS.judge(t, ms(age), Losing::Nothing, true, probation)
        };
        for (rtt, age, sound, probation) in [
            (25, 0, Seen::Sound, Seen::Sound),
            (26, 0, Seen::Sound, Seen::Shaky),
            (40, 50, Seen::Sound, Seen::Shaky),
            (40, 51, Seen::Shaky, Seen::Silent),
        ] {
            let t = Transport { rtt: ms(rtt), ..t };
            assert_eq!((judge(&t, age, false), judge(&t, age, true)), (sound, probation), "{rtt}");
        }
    }

    #[test]
    fn the_mark_never_overstates_an_age_and_understates_it_by_one_look_at_most() {
        let mut mark = Mark::default();
        mark.wrote(ms(0), 100);
        mark.wrote(ms(5), 200);
        assert_eq!(mark.age(ms(10), 0, 200), Duration::from_millis(10));
        // The first hundred came through; the second was written at 5, and is certain from here on.
        assert_eq!(mark.age(ms(20), 100, 200), Duration::ZERO);
        assert_eq!(mark.age(ms(30), 199, 200), Duration::from_millis(10));
        assert_eq!(mark.age(ms(40), 200, 200), Duration::ZERO);
        assert!(mark.0.is_none(), "nothing is on the way");
    }

    fn lossy(sent_per_look: u32, resent_per_look: u32) -> bool {
        let (mut loss, mut t) = (Loss::default(), transport(1));
        (0..100).any(|_| {
            let loses = loss.look(&t) == Losing::Much;
            t.sent += sent_per_look;
            t.resent += resent_per_look;
            loses
        })
    }

    #[test]
    fn one_segment_in_fifty_is_a_loss_and_one_in_sixty_is_not() {
        assert!(lossy(100, 10));
        assert!(lossy(50, 1));
        assert!(!lossy(60, 1));
        assert!(!lossy(100, 0));
    }

    #[test]
    fn a_single_segment_sent_twice_is_an_accident() {
        let (mut loss, mut t) = (Loss::default(), transport(1));
        assert_eq!(loss.look(&t), Losing::Nothing);
        (t.sent, t.resent) = (3, 1);
        assert_eq!(loss.look(&t), Losing::Something);
        (t.sent, t.resent) = (6, 2);
        assert_eq!(loss.look(&t), Losing::Something, "the first has begun to fade");
        (t.sent, t.resent) = (9, 3);
        assert_eq!(loss.look(&t), Losing::Much);
        assert_eq!(loss.look(&t), Losing::Nothing, "nothing new was lost");
    }

    #[test]
    fn totals_that_wrap_are_differences_all_the_same() {
        let (mut loss, mut t) = (Loss::default(), transport(1));
        (t.sent, t.resent) = (u32::MAX - 5, u32::MAX);
        loss.look(&t);
        (t.sent, t.resent) = (94, 9);
        assert_eq!(loss.look(&t), Losing::Much);
    }

    /// Sound at every look, 10 ms apart, from `from` on: when it is trusted.
    fn proves(w: &mut Watch, from: u64) -> u64 {
        (0..)
            .map(|n| from + n * 10)
            .find(|at| w.saw(ms(*at), Seen::Sound) == Some(Doubt::None))
            .unwrap()
    }

    #[test]
    fn a_silent_rail_that_answers_is_unproven_until_it_has_proved_itself() {
        let mut w = Watch::default();
        assert_eq!(w.saw(ms(0), Seen::Sound), None);
        assert_eq!(w.saw(ms(60), Seen::Silent), Some(Doubt::Silent));
        assert_eq!(w.saw(ms(70), Seen::Silent), None);
        assert_eq!(w.saw(ms(80), Seen::Nothing), None, "no news is no good news");
        assert_eq!(w.saw(ms(100), Seen::Sound), Some(Doubt::Unproven));
        assert_eq!(w.saw(ms(105), Seen::Shaky), None, "it was silent all the same");
        assert_eq!(proves(&mut w, 110), 1110);
    }

    #[test]
    fn a_relapse_begins_the_proof_again() {
        let mut w = Watch::default();
        w.saw(ms(0), Seen::Shaky);
        w.saw(ms(100), Seen::Sound);
        assert_eq!(w.saw(ms(1000), Seen::Shaky), None);
        assert_eq!(proves(&mut w, 1010), 2010);
    }

    #[test]
    fn a_rail_that_moves_too_little_stays_slow_until_it_carries_enough() {
        let slow = || {
            let mut w = Watch::default();
            assert_eq!(w.saw(ms(0), Seen::Shaky), Some(Doubt::Shaky));
            w.in_use(Carries::TooLittle);
            assert_eq!(w.saw(ms(10), Seen::Shaky), Some(Doubt::Slow));
            w
        };
        let mut w = slow();
        assert_eq!(w.saw(ms(20), Seen::Crawling), None, "worse than late");
        assert_eq!(w.saw(ms(30), Seen::Silent), Some(Doubt::Silent), "silence is worse");
        assert_eq!(w.saw(ms(40), Seen::Marred), Some(Doubt::Slow));
        w.in_use(Carries::Enough);
        assert_eq!(w.saw(ms(50), Seen::Sound), Some(Doubt::Unproven));
        let mut w = slow();
        w.carries();
        assert_eq!(w.saw(ms(20), Seen::Sound), Some(Doubt::Unproven));
        let mut w = slow();
        assert_eq!(proves(&mut w, 20), 1020);
        assert_eq!(w.saw(ms(1030), Seen::Shaky), Some(Doubt::Shaky), "trust ends it");
    }

    #[test]
    fn a_rail_above_doubt_is_not_slow() {
        let mut w = Watch::default();
        w.in_use(Carries::TooLittle);
        assert_eq!(w.saw(ms(0), Seen::Sound), None);
        assert_eq!(w.saw(ms(10), Seen::Shaky), Some(Doubt::Shaky));
    }

    #[test]
    fn a_segment_sent_twice_begins_the_proof_anew_and_is_no_reason_to_doubt() {
        let mut w = Watch::default();
        assert_eq!(w.saw(ms(0), Seen::Marred), None, "accidents happen");
        w.saw(ms(10), Seen::Silent);
        assert_eq!(w.saw(ms(100), Seen::Marred), Some(Doubt::Unproven), "it carries");
        for n in 11..110 {
            assert_eq!(w.saw(ms(n * 10), Seen::Sound), None);
        }
        assert_eq!(w.saw(ms(1100), Seen::Marred), None);
        assert_eq!(proves(&mut w, 1110), 2110);
    }

    #[test]
    fn a_rail_that_loses_one_keepalive_in_ten_each_way_is_hardly_ever_trusted() {
        let mut trusted = 0;
        for seed in 0..20 {
            let (mut w, mut prng) = (Watch::default(), lnet_types::Prng::new(seed));
            w.saw(ms(0), Seen::Shaky);
            // A keepalive every 50 ms, for a minute.
            for n in 1..1200 {
                let lost = prng.below(100) < 19;
                let seen = if lost { Seen::Marred } else { Seen::Sound };
                if w.saw(ms(n * 50), seen) == Some(Doubt::None) {
                    trusted += 1;
                    w.saw(ms(n * 50 + 1), Seen::Shaky);
                }
            }
        }
        assert!(trusted < 40, "{trusted} times in 20 minutes");
    }

    #[test]
    fn two_looks_in_five_seconds_do_not_prove_a_rail() {
        let mut w = Watch::default();
        w.saw(ms(0), Seen::Shaky);
        w.saw(ms(10), Seen::Sound);
        assert_eq!(w.saw(ms(5000), Seen::Sound), None, "two looks in five seconds");
    }

    #[test]
    fn a_rail_that_must_carry_a_load_is_trusted_when_it_has_and_needs_longer_when_it_fell_short() {
        let mut w = Watch { must_carry: true, ..Watch::default() };
        w.saw(ms(0), Seen::Shaky);
        let sound = |w: &mut Watch, from: u64, to: u64| {
            (from..to).step_by(10).any(|at| w.saw(ms(at), Seen::Sound) == Some(Doubt::None))
        };
        assert!(!sound(&mut w, 10, 500) && !w.wants_load(ms(500)), "half a second is not over");
        assert!(!sound(&mut w, 500, 5000) && w.wants_load(ms(510)), "nothing was carried");
        w.falls_short();
        assert!(!sound(&mut w, 5000, 5990) && !w.wants_load(ms(5990)));
        assert!(!sound(&mut w, 5990, 6010) && w.wants_load(ms(6000)), "half of two seconds");
        w.carries();
        assert!(!sound(&mut w, 6010, 7000), "two seconds are not over");
        assert!(sound(&mut w, 7000, 7010));
        // Trouble takes the proof away.
        w.saw(ms(7100), Seen::Shaky);
        assert!(!sound(&mut w, 7110, 30_000));
    }

    #[test]
    fn a_rail_that_fails_again_soon_has_a_longer_probation_each_time() {
        let mut w = Watch::default();
        let mut now = 0;
        for needs in [1, 4, 16, 16] {
            w.saw(ms(now), Seen::Silent);
            let trusted = proves(&mut w, now + 10);
            assert_eq!(trusted, now + 10 + needs * 1000);
            now = trusted + 100;
        }
        // Steady for long enough, it is treated as new.
        now += 30_000;
        w.saw(ms(now), Seen::Silent);
        assert_eq!(proves(&mut w, now + 10), now + 1010);
    }

    #[test]
    fn probation_begins_with_trust_and_no_doubt_ends_it() {
        let mut w = Watch::default();
        w.saw(ms(0), Seen::Silent);
        assert!(!w.on_probation(ms(1)), "it has never been trusted again");
        let trusted = proves(&mut w, 10);
        assert!(w.on_probation(ms(trusted)));
        w.saw(ms(trusted + 10), Seen::Shaky);
        assert!(w.on_probation(ms(trusted + 20)), "what it was given is measured as closely");
        assert!(!w.on_probation(ms(trusted + 30_000)));
    }

    #[test]
    fn a_rail_that_flaps_faster_than_the_proof_is_never_trusted() {
        let mut w = Watch::default();
        w.saw(ms(0), Seen::Silent);
        for look in 1..10_000 {
            let at = look * 10;
            // 0.7 s down, 0.7 s up.
            let seen = if at / 700 % 2 == 0 { Seen::Silent } else { Seen::Sound };
            assert_ne!(w.saw(ms(at), seen), Some(Doubt::None));
        }
    }
}
