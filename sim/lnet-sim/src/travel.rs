//! How long things are on their way, and by which chance: the same for both fidelities.

use core::time::Duration;

use lnet_scenario::Share;
use lnet_types::{Instant, Prng};

use crate::directory::RailIx;
use crate::links::Way;

/// Whether what befalls `share` befalls this one.
pub(crate) fn chance(rng: &mut Prng, share: Share) -> bool {
    share.0 != 0 && rng.below(u64::from(Share::ALL.0)) < u64::from(share.0)
}

/// Something from nothing to `most`.
pub(crate) fn draw(rng: &mut Prng, most: Duration) -> Duration {
    match u64::try_from(most.as_nanos()).unwrap_or(u64::MAX) {
        0 => Duration::ZERO,
        most => Duration::from_nanos(rng.below(most.saturating_add(1))),
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Load of an interface: until when it is busy.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    out: Instant,
    inward: Instant,
}

/// All interfaces.
#[derive(Debug, Default)]
pub(crate) struct Cables(Vec<Busy>);

impl Cables {
    /// When `len` bytes that leave now are with the receiver, both interfaces being as busy as they
    /// are.
    pub(crate) fn pass(
        &mut self,
        now: Instant,
        rng: &mut Prng,
        ends: [RailIx; 2],
        len: u64,
        way: &Way,
    ) -> Instant {
        let mut at = now;
        if let Some(bandwidth) = way.bandwidth {
            let most = ends[0].max(ends[1]).0 as usize + 1;
            if self.0.len() < most {
                self.0.resize(most, Busy::default());
            }
            let time = |bytes: u64| {
                Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / bandwidth.max(1))
            };
            let (takes, ahead) = (time(len), time(way.burst.into()));
            // So far an interface may be behind what it would have passed without a pause.
            let pass = |busy: &mut Instant, from: Instant| {
                *busy = (*busy).max(Instant(from.0.saturating_sub(nanos(ahead)))) + takes;
                *busy
            };
            at = at.max(pass(&mut self.0[ends[0].0 as usize].out, at)) + way.latency;
            let first = Instant(at.0.saturating_sub(nanos(takes)));
            at = at.max(pass(&mut self.0[ends[1].0 as usize].inward, first));
        } else {
            at += way.latency;
        }
        at + draw(rng, way.jitter)
    }
}
