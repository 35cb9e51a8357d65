//! The judgement of one rail by the age of its completions (DEC-31): pure, evidence in, doubt out.
//!
//! An adapter reports that a work request is done when the other adapter has acknowledged it, and
//! reports nothing of one that gets nowhere until it gives up, seconds later. Age is therefore the
//! evidence: of the oldest posted request since the connection made progress, of a connection attempt,
//! of a message that finds no connection. A peer that returns no credits is no evidence: its adapter
//! acknowledges.
//!
//! ```text
//!   None ──── nothing completed in time ───► Silent ◄── nothing in time ──╮
//!    ▲                                          │                         │
//!    │                                   something completed              │
//!    │                                          ▼                         │
//!    ╰── sound for a time ────────────────── Unproven ────────────────────╯
//! ```
//!
//! When to look, and what proves an idle rail, is in `ni/watch.rs`.

use core::time::Duration;

use lnet::Doubt;
use lnet_types::Instant;

/// The first time of proof, and the longest.
const PROOF_MIN: Duration = Duration::from_secs(1);
const PROOF_MAX: Duration = Duration::from_secs(16);
/// A rail that falls silent so soon after it was trusted proves itself four times as long.
const RELAPSE: Duration = Duration::from_secs(30);
/// Looks at which something was completed, that a proof takes at least.
const PROOFS: u32 = 4;

/// When a rail is suspected: after the longer of both times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Age of the oldest request without progress.
    pub after: Duration,
    /// The same in times that completions have taken of late.
    pub completions: u32,
}

impl Suspicion {
    /// How long a completion may take where completions have taken `usual`.
    pub(crate) fn limit(&self, usual: Duration) -> Duration {
        self.after.max(usual.saturating_mul(self.completions))
    }
}

/// What a look at a rail has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Evidence {
    /// Nothing to judge by.
    #[default]
    Nothing,
    /// Something was completed.
    Sound,
    /// Something is overdue.
    Overdue,
}

/// The state of one rail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    doubt: Doubt,
    /// Since when it has been sound, and at how many looks, while it is doubted.
    proof: Option<(Instant, u32)>,
    /// How long it must be sound to be trusted again.
    needs: Duration,
    trusted: Option<Instant>,
}

impl Watch {
    pub(crate) const fn doubt(&self) -> Doubt {
        self.doubt
    }

    /// Takes what a look has shown; whether the doubt is another one than before.
    pub(crate) fn saw(&mut self, now: Instant, seen: Evidence) -> bool {
        let before = self.doubt;
        match seen {
            Evidence::Nothing => {}
            Evidence::Overdue => {
                if before == Doubt::None {
                    let relapse = self.trusted.is_some_and(|trusted| now < trusted + RELAPSE);
                    self.needs = if relapse { (self.needs * 4).min(PROOF_MAX) } else { PROOF_MIN };
                }
                (self.doubt, self.proof) = (Doubt::Silent, None);
            }
            Evidence::Sound if before == Doubt::None => {}
            Evidence::Sound => {
                self.doubt = Doubt::Unproven;
                let (since, looks) = self.proof.unwrap_or((now, 0));
                self.proof = Some((since, looks + 1));
                if looks + 1 >= PROOFS && now >= since + self.needs {
                    self.trust(now);
                }
            }
        }
        self.doubt != before
    }

    /// Ends all doubt.
    pub(crate) const fn trust(&mut self, now: Instant) {
        (self.doubt, self.proof, self.trusted) = (Doubt::None, None, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }

    #[test]
    fn the_longer_of_both_times_is_the_limit() {
        let limits = Suspicion { after: Duration::from_millis(50), completions: 8 };
        for (usual, limit) in [(0, 50), (6, 50), (7, 56), (100, 800)] {
            let got = limits.limit(Duration::from_millis(usual));
            assert_eq!(got, Duration::from_millis(limit), "completions take {usual} ms");
        }
    }

    #[test]
    fn each_state_and_each_evidence_have_their_next_state() {
        use Doubt as D;
        use Evidence as E;
        let in_state = |doubt: Doubt| {
            let mut watch = Watch::default();
            if doubt != D::None {
                watch.saw(ms(0), E::Overdue);
            }
            if doubt == D::Unproven {
                watch.saw(ms(1), E::Sound);
            }
            assert_eq!(watch.doubt(), doubt);
            watch
        };
        let table = [
            (D::None, E::Nothing, D::None),
            (D::None, E::Sound, D::None),
            (D::None, E::Overdue, D::Silent),
            (D::Silent, E::Nothing, D::Silent),
            (D::Silent, E::Sound, D::Unproven),
            (D::Silent, E::Overdue, D::Silent),
            (D::Unproven, E::Nothing, D::Unproven),
            (D::Unproven, E::Sound, D::Unproven),
            (D::Unproven, E::Overdue, D::Silent),
        ];
        for (from, seen, to) in table {
            let mut watch = in_state(from);
            let changed = watch.saw(ms(2), seen);
            assert_eq!((watch.doubt(), changed), (to, from != to), "{from:?} {seen:?}");
        }
    }

    #[test]
    fn a_rail_is_trusted_after_a_second_and_after_four_if_it_relapses() {
        let mut watch = Watch::default();
        let mut now = 0;
        for needs in [1000, 4000, 16_000, 16_000] {
            watch.saw(ms(now), Evidence::Overdue);
            let begin = now;
            while watch.doubt() != Doubt::None {
                now += 10;
                watch.saw(ms(now), Evidence::Sound);
            }
            assert_eq!(now - begin, needs + 10);
            now += 1000;
        }
        // Long enough after it was trusted a failure is a new one.
        now += 30_000;
        watch.saw(ms(now), Evidence::Overdue);
        assert_eq!(watch.needs, PROOF_MIN);
    }

    #[test]
    fn few_completions_are_no_proof_however_long_they_take() {
        let mut watch = Watch::default();
        watch.saw(ms(0), Evidence::Overdue);
        for at in [1, 5000, 10_000] {
            watch.saw(ms(at), Evidence::Sound);
            assert_eq!(watch.doubt(), Doubt::Unproven);
        }
        watch.saw(ms(10_001), Evidence::Sound);
        assert_eq!(watch.doubt(), Doubt::None);
    }
}
