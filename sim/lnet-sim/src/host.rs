//! A host: a node, its memory, its clock, and where it stands in the world.

use core::time::Duration;
use std::collections::BTreeMap;

use lnet::upper::{UpperId, Uppers};
use lnet::{Doubt, Loopback, Node};
use lnet_types::{Instant, NiId, Nid};

use crate::directory::RailIx;
use crate::memory::Mem;

/// A clock that may run fast or slow against the world's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    base: Instant,
    local: Instant,
    ppm: i32,
}

impl Clock {
    /// A true clock that shows `local` when the world begins.
    pub(crate) const fn beginning(local: Instant) -> Self {
        Self { base: Instant::ZERO, local, ppm: 0 }
    }

    /// What the clock shows at `now` of the world.
    pub fn local(&self, now: Instant) -> Instant {
        let passed = now.0.saturating_sub(self.base.0);
        if self.ppm == 0 {
            return Instant(self.local.0 + passed);
        }
        let rate = (1_000_000 + i64::from(self.ppm)) as u128;
        Instant(self.local.0 + (u128::from(passed) * rate / 1_000_000) as u64)
    }

    /// When it is in the world that the clock shows `local`, not earlier than that.
    pub fn global(&self, local: Instant) -> Instant {
        let passed = local.0.saturating_sub(self.local.0);
        if self.ppm == 0 {
            return Instant(self.base.0.saturating_add(passed));
        }
        let rate = (1_000_000 + i64::from(self.ppm)) as u128;
        let world = (u128::from(passed) * 1_000_000).div_ceil(rate);
        Instant(self.base.0.saturating_add(u64::try_from(world).unwrap_or(u64::MAX)))
    }

    /// From `now` on it runs `ppm` millionths fast.
    pub(crate) fn drift(&mut self, now: Instant, ppm: i32) {
        *self = Self { base: now, local: self.local(now), ppm };
    }
}

/// A rail as its host has it.
#[derive(Clone, Copy, Debug)]
pub struct HostRail {
    /// Its number in the directory.
    pub ix: RailIx,
    /// Its interface at the node.
    pub ni: NiId,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// The node. Observers only read it.
    pub node: Node,
    /// Its memory.
    pub mem: Mem,
    /// Its clock.
    pub clock: Clock,
    /// Its rails that are there now.
    pub rails: Vec<HostRail>,
    /// Whether it lives.
    pub alive: bool,
    /// Whether it stands still.
    pub paused: bool,
    /// Whether, while it is dead, what is sent to it is reset: its process has died, its kernel has not.
    pub resets: bool,
    /// Whether it has no memory left for messages.
    pub starved: bool,
    /// Which life this is, from 1.
    pub incarnation: u32,
    pub(crate) lo: Loopback,
    /// Protocols that stand on the node in this life.
    pub(crate) uppers: Uppers,
    /// The one among them that has the scenario's targets and clients.
    pub(crate) rpc: Option<UpperId>,
    /// Its rails that nothing passes because it is dead or stands still.
    pub(crate) muted: Vec<RailIx>,
    /// The earliest time for which the world has a timer of this host.
    pub(crate) armed: Instant,
    /// It is on the list of those to be looked after.
    pub(crate) dirty: bool,
    /// The node's count when its health was last looked at, and what was found: NIDs below 1000.
    pub(crate) health_seen: u64,
    pub(crate) ailing: BTreeMap<Nid, u32>,
    /// The node's count of changed doubts when they were last looked at.
    pub(crate) doubts_seen: u64,
    /// What it was found to think of rails: those above no doubt are not here.
    pub(crate) doubts: BTreeMap<(Nid, Nid), Doubt>,
}

impl Host {
    /// The rail with this interface.
    pub fn rail_of(&self, ni: NiId) -> Option<RailIx> {
        self.rails.iter().find(|r| r.ni == ni).map(|r| r.ix)
    }

    /// The interface of this rail.
    pub fn ni_of(&self, ix: RailIx) -> Option<NiId> {
        self.rails.iter().find(|r| r.ix == ix).map(|r| r.ni)
    }

    /// Whether it does anything now.
    pub fn is_running(&self) -> bool {
        self.alive && !self.paused
    }
}

/// The time limit of socklnd where it has its own (V-13).
pub(crate) const KERNEL_LND_TIMEOUT: Duration = Duration::from_secs(50);

/// How long a host's driver tries to connect to a peer; `clock` is that of its network.
pub(crate) fn connect_timeout(node: &Node, clock: Option<Duration>) -> Duration {
    let timeout = lnd_timeout(node, clock).unwrap_or_else(|| node.tunables().lnd_timeout());
    match node.tunables().connect_timeout {
        0 => timeout,
        ms => timeout.min(Duration::from_millis(ms as u64)),
    }
}

/// How long a host's node has for one transmission, by the driver's own rule: the clock of its network,
/// where there is one.
pub(crate) fn lnd_timeout(node: &Node, clock: Option<Duration>) -> Option<Duration> {
    let own = || node.tunables().conduct.keeps_driver_timeout.then_some(KERNEL_LND_TIMEOUT);
    clock.or_else(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_fast_shows_more_and_is_due_earlier() {
        let mut c = Clock::default();
        c.drift(Instant::from_secs(10), 100_000);
        assert_eq!(c.local(Instant::from_secs(20)), Instant::from_secs(21));
        assert_eq!(c.global(Instant::from_secs(21)), Instant::from_secs(20));
        let at = c.global(Instant(12_345_678_901));
        assert!(c.local(at) >= Instant(12_345_678_901));
        c.drift(Instant::from_secs(20), 0);
        assert_eq!(
            c.local(Instant::from_secs(21)),
            Instant::from_secs(22),
            "it does not jump back"
        );
    }
}
