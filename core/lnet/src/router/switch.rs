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

use lnet_types::{Errno, Instant, NiId, RegionId};
use lnet_wire::{Hdr, Kind};

use super::buffers::{PoolKind, RouterMemory};
use super::schedule::next_ageing;
use crate::Node;
use crate::output::{DropReason, Output};
use crate::portal::is_internal;
use crate::router::RoutingState;

impl Node {
    /// Begins to be a router (R-22).
    ///
    /// # Errors
    /// As [`Node::enable_routing`].
    pub(crate) fn start_routing(
        &mut self,
        now: Instant,
        memory: &mut dyn RouterMemory,
    ) -> Result<(), Errno> {
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
            self.router.arm(&mut self.timers, &self.nis, &self.tunables);
        } else {
            // The interfaces are known from their drivers; none has been silent yet.
            self.nis.heard(now, None);
            self.opened(now);
        }
        Ok(())
    }

    /// Ends being a router (R-24): it is announced, what is under way is forwarded, then it is over.
    ///
    /// # Errors
    /// `EBUSY`: it is just being started (C-set-6).
    pub(crate) fn stop_routing(&mut self, now: Instant) -> Result<(), Errno> {
        match self.router.state {
            RoutingState::Disabled | RoutingState::Stopping => return Ok(()),
            RoutingState::Starting => return Err(Errno::EBUSY),
            RoutingState::Enabled => {}
        }
        self.router.state = RoutingState::Stopping;
        self.router.since = now;
        self.router.arm(&mut self.timers, &self.nis, &self.tunables);
        self.refresh_ping();
        if self.tunables.conduct.announces_routing_stop {
            // The kernel lets them find out.
            self.push_to_peers(now, true);
        }
        Ok(())
    }

    /// Brings the pools to the numbers that the tunables ask for (R-28).
    ///
    /// # Errors
    /// What `memory` said; the tunable of the pool that could not grow has its old value again.
    pub(crate) fn fit_buffers(&mut self, memory: &mut dyn RouterMemory) -> Result<(), Errno> {
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
        outcome
    }

    /// R-23.
    pub(crate) fn opened(&mut self, now: Instant) {
        self.router.state = RoutingState::Enabled;
        self.router.arm(&mut self.timers, &self.nis, &self.tunables);
        self.refresh_ping();
        self.push_to_peers(now, true);
    }

    pub(crate) fn resize_pools(
        &mut self,
        memory: &mut dyn RouterMemory,
    ) -> Result<(), (PoolKind, Errno)> {
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
        slabs.into_iter().for_each(|slab| self.outbox.order(Output::Release(slab)));
    }

    pub(crate) fn close_pools(&mut self) {
        let mut released = Vec::new();
        for pool in &mut self.router.pools {
            pool.close(&mut released);
        }
        self.release_slabs(released);
    }

    /// Routing is over (R-25): who still waits is dropped.
    fn closed(&mut self) {
        self.router.state = RoutingState::Disabled;
        self.router.arm(&mut self.timers, &self.nis, &self.tunables);
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

    /// Does what has become due, if anything has.
    pub(crate) fn router_due(&mut self, now: Instant) {
        if self.router.next_change(&self.nis, &self.tunables).is_some_and(|at| at <= now)
            && !self.age(now)
        {
            match self.router.state {
                RoutingState::Starting => self.opened(now),
                RoutingState::Stopping => self.closed(),
                RoutingState::Disabled | RoutingState::Enabled => {}
            }
        }
        self.router.arm(&mut self.timers, &self.nis, &self.tunables);
    }

    /// Takes the interfaces for down on whose networks nothing was heard for too long (R-40): whether
    /// there are any.
    fn age(&mut self, now: Instant) -> bool {
        let mut silent = false;
        while let Some((_, at)) = next_ageing(&self.nis, &self.tunables).filter(|a| a.0 <= now) {
            let net = self.nis.nets().get(at);
            for id in net.map(|n| n.nis.clone()).unwrap_or_default() {
                if let Some(ni) = self.nis.get_mut(id) {
                    ni.aged = true;
                }
                self.note_ni(id);
            }
            if let Some(net) = self.nis.nets().get(at) {
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
    /// counts pings and discoveries alone; where the end of a failure is not announced by itself
    /// (H-92), they are also what ends it for others.
    pub(crate) fn heard_on(&mut self, now: Instant, id: NiId, hdr: &Hdr) {
        if self.nis.owns(hdr.src) {
            return;
        }
        let conduct = self.tunables.conduct;
        let is_ping = matches!(hdr.kind, Kind::Get { .. }) && is_internal(&hdr.kind);
        if !conduct.hears_any_message && !is_ping {
            return;
        }
        let Some(ni) = self.nis.get_mut(id) else { return };
        let mut revived = core::mem::replace(&mut ni.aged, false);
        let is_known = ni.announced_up && ni.port.status_up;
        if is_ping && !conduct.announces_recovery && !is_known {
            ni.port.status_up = true;
            revived |= ni.is_up();
        }
        let net = ni.nid.net();
        self.nis.heard(now, Some(net));
        if revived {
            self.router.arm(&mut self.timers, &self.nis, &self.tunables);
            self.note_ni(id);
            self.refresh_ping();
            self.push_to_peers(now, true);
        }
    }
}
