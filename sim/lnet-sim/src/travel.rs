//! How long things are on their way, and by which chance: the same for both fidelities.

use core::time::Duration;

use lnet_scenario::Share;
use lnet_types::{Instant, Prng};

use crate::directory::RailIx;
use crate::links::{Pace, Way};

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

impl Pace {
    fn time(&self, bytes: u64) -> Duration {
        let nanos = |bandwidth: u64| bytes.saturating_mul(1_000_000_000) / bandwidth.max(1);
        Duration::from_nanos(self.bandwidth.map_or(0, nanos))
    }

    /// When an interface that is busy until `busy` has passed `len` bytes that come at `at`, and no sooner than
    /// what came before.
    fn pass(&self, busy: &mut Instant, at: Instant, len: u64) -> Instant {
        if self.bandwidth.is_none() {
            return at;
        }
        // So far an interface may be behind what it would have passed without a pause.
        let ahead = nanos(self.time(self.burst.into()));
        *busy = (*busy).max(Instant(at.0.saturating_sub(ahead))) + self.time(len);
        at.max(*busy)
    }
}

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
        let [out, inward] = ends.map(|rail| rail.0 as usize);
        let most = out.max(inward) + 1;
        if self.0.len() < most {
            self.0.resize(most, Busy::default());
        }
        // Each has its own queue: what waits at a slow one does not hold up what others send or receive.
        let [leaves, enters] = way.paces;
        let left = leaves.pass(&mut self.0[out].out, now, len) + way.latency;
        let at = left.max(enters.pass(&mut self.0[inward].inward, now + way.latency, len));
        at + draw(rng, way.jitter)
    }
}
