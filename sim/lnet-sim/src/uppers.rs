//! Protocols on hosts' nodes, as values (`lnet::upper`): programs beside those of the scenario. A host
//! runs them as a real node's stack does: its events, reports and time-outs go to them in its turn
//! (`sim.rs`), with the host's memory and by its clock. They die with their host, and are made anew
//! for its next life.

use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event, Report};
use lnet_types::{Instant, Nid};

use crate::directory::HostId;
use crate::fabric::Fabric;
use crate::host::Host;
use crate::sim::Sim;

/// Makes a protocol for the life of a host that is named, from 1.
pub type MakeUpper = Box<dyn FnMut(u32) -> Box<dyn Upper>>;

impl Host {
    /// Takes an event to the protocol that it belongs to; `false` if it belongs to none.
    pub(crate) fn upper_event(&mut self, now: Instant, event: &mut Event) -> bool {
        let local = self.clock.local(now);
        self.uppers.event(local, event, &mut self.node, &mut self.mem)
    }

    /// Takes a report to the protocol that asked; `false` if none did.
    pub(crate) fn upper_report(&mut self, now: Instant, report: &Report) -> bool {
        let local = self.clock.local(now);
        self.uppers.report(local, report, &mut self.node, &mut self.mem)
    }

    /// Notifies the protocols of a lost connection to a peer.
    pub(crate) fn upper_lost_connection(&mut self, now: Instant, peer: Nid) {
        let local = self.clock.local(now);
        self.uppers.connection_lost(local, peer, &mut self.node, &mut self.mem);
    }
}

impl<F: Fabric> Sim<F> {
    /// From here on a protocol stands on the node of `host`, in this and each later life: the one that
    /// `make` makes then. Its name is the same in each; `None` if there is no such host, or it has too
    /// many.
    pub fn stand(&mut self, host: HostId, mut make: MakeUpper) -> Option<UpperId> {
        let at = self.hosts.get_mut(host.0 as usize)?;
        let id = at.uppers.add(make(at.incarnation))?;
        self.standing.entry(host).or_default().push(make);
        self.touch(host);
        Some(id)
    }

    /// Runs `f` on a protocol of a host; `None` if the host does nothing now, or there is no such
    /// protocol of this type on it.
    pub fn with_upper<T: Upper, R>(
        &mut self,
        host: HostId,
        id: UpperId,
        f: impl FnOnce(&mut T, &mut Below<'_>) -> R,
    ) -> Option<R> {
        let at = self.hosts.get_mut(host.0 as usize).filter(|h| h.is_running())?;
        let local = at.clock.local(self.now);
        let done = at.uppers.with(id, local, &mut at.node, &mut at.mem, f);
        self.touch(host);
        done
    }

    /// A host lives again: what stands on it is made anew, in the same order.
    pub(crate) fn raise_uppers(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        for make in self.standing.get_mut(&id).into_iter().flatten() {
            host.uppers.add(make(host.incarnation));
        }
    }
}
