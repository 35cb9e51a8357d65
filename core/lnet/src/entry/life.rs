//! A node from its first moment to its last: [`Node::new`], tunables, [`Node::shutdown`].

use lnet_types::{Errno, Fault, Instant, Nid};

use crate::local::{NetTunables, NiSpec};
use crate::output::DropReason;
use crate::peer::cause::Cause;
use crate::record::Input;
use crate::{Node, NodeConfig, TunableError};

impl Node {
    /// A node with the loopback interface and nothing else.
    pub fn new(config: NodeConfig, now: Instant) -> Self {
        let mut node = Self::empty(config, now);
        node.own.post(&mut node.portals);
        node.insert_ni(NiSpec {
            nid: Nid::LOOPBACK,
            interface: None,
            tunables: NetTunables::default(),
            lnd_timeout: None,
        });
        node.rebuild_ping();
        node.plan_scan(now);
        node
    }

    /// Sets tunables, all or none (V-10). Discovery turned on or off is announced to peers (D-70,
    /// D-71).
    ///
    /// # Errors
    /// As [`Tunables::set_all`](crate::Tunables::set_all).
    pub fn set_tunables(
        &mut self,
        now: Instant,
        changes: &[(&str, i64)],
    ) -> Result<(), TunableError> {
        self.note(|| Input::SetTunables {
            now,
            changes: changes.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        });
        let now = self.clock(now);
        let before = self.tunables.discovery;
        let deduplicated = self.tunables.deduplicates();
        let mut next = self.tunables.clone();
        next.set_all(changes)?;
        match (before != 0, next.discovery != 0) {
            (true, false) => {
                // The last push still goes out while discovery is on.
                self.tunables.discovery = 0;
                self.refresh_ping();
                self.tunables.discovery = before;
                self.push_to_peers(now, true);
                self.settle(now);
                self.tunables = next;
            }
            (false, true) => {
                self.tunables = next;
                self.refresh_ping();
                self.query_all(now, Cause::SwitchedOn);
            }
            (true, true) | (false, false) => self.tunables = next,
        }
        if self.tunables.rail_suspicion == 0 {
            self.trust_all();
        }
        if self.tunables.deduplicates() != deduplicated {
            self.refresh_ping();
        }
        self.explanations.trim(self.tunables.explain_last);
        self.arm_checks(now);
        self.router.arm(&mut self.timers, &self.nis, &self.tunables);
        self.settle(now);
        Ok(())
    }

    /// Stops the node (H-72): every message ends with `ESHUTDOWN`, every descriptor is unlinked.
    /// Interfaces are to be stopped in their drivers before.
    pub fn shutdown(&mut self, now: Instant) {
        self.note(|| Input::Shutdown { now });
        let now = self.clock(now);
        self.running = false;
        self.drop_held(None);
        self.shut_router();
        let down = Fault::new(lnet_types::HealthStatus::Ok, Errno::ESHUTDOWN);
        // Those that wait for a discovery end here, not with it.
        for peer in self.peers.peers.values_mut() {
            peer.disc.parked.clear();
        }
        for portal in 0..lnet_wire::PORTALS {
            self.flush_delayed(portal, None, DropReason::Stopping);
        }
        for id in self.msgs.keys().collect::<Vec<_>>() {
            if self.msgs.contains_key(id) {
                self.finish(now, id, Err(down));
            }
        }
        self.settle(now);
        for md in self.portals.mds.keys().collect::<Vec<_>>() {
            self.unlink_md(now, md);
        }
        self.settle(now);
    }
}
