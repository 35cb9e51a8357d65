//! Being a router: on and off at run time (behaviour.md 7.2), the number of buffers, and what the
//! router says of its own interfaces (7.4).
//!
//! ```text
//!   Disabled ──enable──► (Starting ──►) Enabled ──disable──► Stopping ──quiet──► Disabled
//! ```
//!
//! `Starting` exists in the profile of the kernel only (DEC-36): there a router waits until it has
//! been pinged, because pings alone prove its interfaces to it, and refuses to be enabled while it
//! is `Stopping` (C-set-6); elsewhere a router that is stopping is `Enabled` again at once.
//! Messages are accepted in all states but `Disabled` (R-26); forwarding is announced in `Enabled`
//! only.

use core::time::Duration;

use lnet_types::{Errno, Instant, NiId, RegionId};
use lnet_wire::{Hdr, Kind};

use super::buffers::{PoolKind, RouterMemory};
use crate::Node;
use crate::output::{DropReason, Output};
use crate::portal::is_internal;
use crate::record::{Input, Lent, Remembering};
use crate::router::RoutingState;
use crate::timers::Timer;

/// A router that does not become quiet is stopped all the same after this many times as long
/// (R-25).
const STOP_PATIENCE: u32 = 3;

impl Node {
    /// Makes this node a router (R-22). Without effect if it is one.
    ///
    /// # Errors
    /// `EBUSY`: it is just being stopped, with the kernel's clocks. `ENOMEM` or what `memory` said: no
    /// buffers. `ESHUTDOWN`.
    pub fn enable_routing(
        &mut self,
        now: Instant,
        memory: &mut dyn RouterMemory,
    ) -> Result<(), Errno> {
        let mut memory = Remembering { memory, lent: Lent::default() };
        let outcome = self.start_routing(now, &mut memory);
        let lent = memory.lent;
        self.note_usual(|live| live.push(Input::EnableRouting { now, lent }));
        outcome
    }

    fn start_routing(&mut self, now: Instant, memory: &mut dyn RouterMemory) -> Result<(), Errno> {
        let now = self.clock(now);
        match self.router.state {
            _ if !self.running => return Err(Errno::ESHUTDOWN),
            RoutingState::Enabled | RoutingState::Starting => return Ok(()),
            RoutingState::Stopping if !self.tunables.conduct.reopens_routing => {
                return Err(Errno::EBUSY);
            }
            RoutingState::Stopping | RoutingState::Disabled => {}
        }
        if let Err((_, errno)) = self.resize_pools(memory) {
            if !self.router.is_on() {
                self.close_pools();
            }
            return Err(errno);
        }
        self.router.since = now;
        if !self.tunables.conduct.opens_routing_at_once {
            self.router.state = RoutingState::Starting;
            self.arm_router();
        } else {
            // The interfaces are known from their drivers; none has been silent yet.
            for net in &mut self.nets {
                net.last_alive = now;
            }
            self.opened(now);
        }
        self.settle(now);
        Ok(())
    }

    /// R-23.
    fn opened(&mut self, now: Instant) {
        self.router.state = RoutingState::Enabled;
        self.arm_router();
        self.refresh_ping();
        self.push_to_peers(now, true);
    }

    /// Ends being a router (R-24): it is announced, what is under way is forwarded, then it is
    /// over.
    ///
    /// # Errors
    /// `EBUSY`: it is just being started (C-set-6).
    pub fn disable_routing(&mut self, now: Instant) -> Result<(), Errno> {
        self.note(|| Input::DisableRouting { now });
        let now = self.clock(now);
        match self.router.state {
            RoutingState::Disabled | RoutingState::Stopping => return Ok(()),
            RoutingState::Starting => return Err(Errno::EBUSY),
            RoutingState::Enabled => {}
        }
        self.router.state = RoutingState::Stopping;
        self.router.since = now;
        self.arm_router();
        self.refresh_ping();
        if self.tunables.conduct.announces_routing_stop {
            // The kernel lets them find out.
            self.push_to_peers(now, true);
        }
        self.settle(now);
        Ok(())
    }

    /// Brings the pools of a router to the numbers that the tunables `tiny_buffers`,
    /// `small_buffers` and `large_buffers` ask for (R-28): more are there at once, fewer as they
    /// return. To be called when one of these was set; without effect while routing is off, where
    /// the numbers are used later.
    ///
    /// # Errors
    /// What `memory` said; the tunable of the pool that could not grow has its old value again.
    pub fn fit_router_buffers(
        &mut self,
        now: Instant,
        memory: &mut dyn RouterMemory,
    ) -> Result<(), Errno> {
        let mut memory = Remembering { memory, lent: Lent::default() };
        let outcome = self.fit_buffers(now, &mut memory);
        let lent = memory.lent;
        self.note_usual(|live| live.push(Input::FitRouterBuffers { now, lent }));
        outcome
    }

    fn fit_buffers(&mut self, now: Instant, memory: &mut dyn RouterMemory) -> Result<(), Errno> {
        let now = self.clock(now);
        if !self.router.is_on() {
            return Ok(());
        }
        let outcome = self.resize_pools(memory).map_err(|(kind, errno)| {
            let pool = self.router.pools.get(kind as usize);
            let old = pool.map_or(0, |p| i64::from(p.wanted()));
            match kind {
                PoolKind::Tiny => self.tunables.tiny_buffers = old,
                PoolKind::Small => self.tunables.small_buffers = old,
                PoolKind::Large => self.tunables.large_buffers = old,
            }
            errno
        });
        for kind in PoolKind::ALL {
            self.serve_pool(kind);
        }
        self.settle(now);
        outcome
    }

    fn resize_pools(&mut self, memory: &mut dyn RouterMemory) -> Result<(), (PoolKind, Errno)> {
        let mut released = Vec::new();
        let tunables = &self.tunables;
        let outcome = self.router.pools.iter_mut().try_for_each(|pool| {
            let kind = pool.kind;
            pool.resize(kind.wanted(tunables), memory, &mut released).map_err(|e| (kind, e))
        });
        self.release_slabs(released);
        outcome
    }

    fn release_slabs(&mut self, slabs: Vec<RegionId>) {
        self.outputs.extend(slabs.into_iter().map(Output::Release));
    }

    fn close_pools(&mut self) {
        let mut released = Vec::new();
        for pool in &mut self.router.pools {
            pool.close(&mut released);
        }
        self.release_slabs(released);
    }

    /// Routing is over (R-25): who still waits is dropped.
    fn closed(&mut self) {
        self.router.state = RoutingState::Disabled;
        self.arm_router();
        self.close_pools();
        self.drop_transit(None, DropReason::NotRouter);
        for ni in self.nis.values_mut() {
            ni.aged = false;
        }
        for id in self.nis.keys().collect::<Vec<_>>() {
            self.note_ni(id);
        }
        self.refresh_ping();
    }

    /// The node is going: nothing waits here any longer, and no buffer is kept.
    pub(crate) fn shut_router(&mut self) {
        if self.router.is_on() {
            self.closed();
        }
    }

    /// How long nothing may be heard on a network before its interfaces count as down (R-40, PA-069):
    /// the longest time between two pings of those who use us, and the time that one may take.
    fn silence_limit(&self) -> Option<Duration> {
        let t = &self.tunables;
        if t.alive_router_check_interval <= 0 {
            return None;
        }
        let interval = if !t.conduct.separates_check_intervals {
            t.alive_router_check_interval
        } else {
            t.alive_router_check_interval
                .max(t.live_router_check_interval)
                .max(t.dead_router_check_interval)
        };
        Some(Duration::from_secs((interval + t.router_ping_timeout) as u64))
    }

    /// How long peers have to turn to other routers (R-25).
    fn stop_grace(&self) -> Duration {
        match self.tunables.routing_stop_time {
            0 => self.silence_limit().unwrap_or_default(),
            secs => Duration::from_secs(secs as u64),
        }
    }

    /// Sets the router's timer: whenever it may be due earlier than it was. Where something heard, or a
    /// message that has come, makes it later, it finds nothing to do and is set again.
    pub(crate) fn arm_router(&mut self) {
        let at = self.next_router_change().unwrap_or(Instant::FAR_FUTURE);
        self.timers.set(Timer::Router, at);
    }

    /// When the state of the router, or of one of its interfaces, changes by itself.
    fn next_router_change(&self) -> Option<Instant> {
        let state = match self.router.state {
            RoutingState::Disabled => return None,
            RoutingState::Enabled => None,
            RoutingState::Starting => {
                Some(self.router.since + self.silence_limit().unwrap_or_default())
            }
            RoutingState::Stopping => {
                let grace = self.stop_grace();
                let idle = self.router.pools.iter().all(|p| p.is_idle());
                let after = if idle { grace } else { grace * STOP_PATIENCE };
                Some(self.router.since + after)
            }
        };
        state.into_iter().chain(self.next_ageing().map(|a| a.0)).min()
    }

    /// The network that has been silent longest, and when that is too long.
    fn next_ageing(&self) -> Option<(Instant, usize)> {
        let limit = self.silence_limit()?;
        self.nets
            .iter()
            .enumerate()
            .filter(|(_, n)| {
                let nis = n.nis.iter().filter_map(|id| self.nis.get(*id));
                nis.filter(|ni| !ni.is_loopback()).any(|ni| !ni.aged)
            })
            .map(|(at, n)| (n.last_alive + limit, at))
            .min()
    }

    /// Does what has become due, if anything has.
    pub(crate) fn router_due(&mut self, now: Instant) {
        if self.next_router_change().is_some_and(|at| at <= now) && !self.age(now) {
            match self.router.state {
                RoutingState::Starting => self.opened(now),
                RoutingState::Stopping => self.closed(),
                RoutingState::Disabled | RoutingState::Enabled => {}
            }
        }
        self.arm_router();
    }

    /// Takes the interfaces for down on whose networks nothing was heard for too long (R-40): whether
    /// there are any.
    fn age(&mut self, now: Instant) -> bool {
        let mut silent = false;
        while let Some((_, at)) = self.next_ageing().filter(|a| a.0 <= now) {
            let net = self.nets.get(at);
            for id in net.map(|n| n.nis.clone()).unwrap_or_default() {
                if let Some(ni) = self.nis.get_mut(id) {
                    ni.aged = true;
                }
                self.note_ni(id);
            }
            if let Some(net) = self.nets.get(at) {
                tracing::warn!(net = %net.net, "no message for too long: its interfaces count as down");
            }
            silent = true;
        }
        if silent {
            // D-7: the status in place, the sequence as it was.
            self.refresh_ping();
            self.push_to_peers(now, true);
        }
        silent
    }

    /// Something was received on an interface of a router: it works (R-41, PA-066). The kernel
    /// counts pings and discoveries alone.
    pub(crate) fn heard_on(&mut self, now: Instant, id: NiId, hdr: &Hdr) {
        if self.is_own(hdr.src) {
            return;
        }
        let is_ping = matches!(hdr.kind, Kind::Get { .. }) && is_internal(&hdr.kind);
        if !self.tunables.conduct.hears_any_message && !is_ping {
            return;
        }
        let Some(ni) = self.nis.get_mut(id) else { return };
        let revived = core::mem::replace(&mut ni.aged, false);
        let net = ni.nid.net();
        if let Some(net) = self.nets.iter_mut().find(|n| n.net == net) {
            net.last_alive = now;
        }
        if revived {
            self.arm_router();
            self.note_ni(id);
            self.refresh_ping();
            self.push_to_peers(now, true);
        }
    }

    /// Where forwarding stands.
    pub fn routing_state(&self) -> RoutingState {
        self.router.state
    }
}
