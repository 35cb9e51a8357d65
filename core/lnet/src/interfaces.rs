//! The local interfaces of a node: adding and removing them, and what follows from a change of their
//! links. Their data are in `local.rs`.

use core::time::Duration;

use lnet_types::{Errno, Instant, MsgId, Net, NiId, PeerNiId};

use crate::local::{LocalNet, NetTunables, Ni, NiSpec};
use crate::node::Node;
use crate::policy::turn::{Grade, Turn};
use crate::port::{HEALTH_MAX, Port};
use crate::record::Input;
use crate::send::Reason;
use crate::stats::NiFailures;
use crate::timers::Timer;
use crate::{DropReason, Link, NiState, Output};

impl Node {
    /// Adds a local interface (O-14 … O-16).
    ///
    /// # Errors
    /// `EUSERS` (a route leads to that network), `EEXIST` (NID, or device on that network, in use), `ENOSPC` (limit), `EINVAL` (loopback or
    /// wildcard, no credits), `ESHUTDOWN`.
    pub fn add_ni(&mut self, now: Instant, spec: NiSpec) -> Result<NiId, Errno> {
        self.note(|| Input::AddNi { now, spec: Box::new(spec.clone()) });
        let now = self.clock(now);
        let net = spec.nid.net();
        if !self.running {
            return Err(Errno::ESHUTDOWN);
        }
        if spec.nid.is_any() || net == Net::LO {
            return Err(Errno::EINVAL);
        }
        if self.router.routes.has_net(net) {
            return Err(Errno::EUSERS);
        }
        let same_net = |ni: &Ni| ni.nid.net() == net;
        let taken = |ni: &Ni| {
            ni.nid == spec.nid
                || (same_net(ni) && ni.interface.is_some() && ni.interface == spec.interface)
        };
        if self.nis.values().any(taken) {
            return Err(Errno::EEXIST);
        }
        if self.nis.len() as i64 >= self.tunables.max_interfaces - 1 {
            return Err(Errno::ENOSPC);
        }
        if spec.tunables.credits == 0 || spec.tunables.peer_credits == 0 {
            return Err(Errno::EINVAL);
        }
        let is_new = !self.nets.iter().any(|n| n.net == net);
        let id = self.insert_ni(spec);
        if is_new {
            self.adopt_peers(net);
            self.arm_checks(now);
        }
        self.arm_router();
        self.announce(now, false);
        self.settle(now);
        Ok(id)
    }

    pub(crate) fn insert_ni(&mut self, spec: NiSpec) -> NiId {
        let now = self.now();
        let net = spec.nid.net();
        let at = self.nets.iter().position(|n| n.net == net).unwrap_or_else(|| {
            let mut tunables = spec.tunables;
            // V-11
            tunables.peer_credits = tunables.peer_credits.min(tunables.credits);
            self.nets.push(LocalNet {
                net,
                nis: Vec::new(),
                tunables,
                seq: 0,
                grade: Grade::default(),
                turn: Turn::default(),
                floor: 0,
                last_alive: now,
            });
            self.nets.len() - 1
        });
        let mut port = Port::new(self.nets[at].tunables.credits);
        if spec.nid.is_loopback() {
            // S-net-6: loopback's health means nothing and begins at 0.
            port.health = 0;
        }
        let id = self.nis.insert(Ni {
            nid: spec.nid,
            interface: spec.interface,
            lnd_timeout: spec.lnd_timeout,
            fatal: false,
            link_down: false,
            plays_dead: false,
            port,
            announced_up: true,
            aged: false,
            numa_node: None,
            cpts: None,
            failures: NiFailures::default(),
            last_received: None,
            noted: NiState::Active,
        });
        self.nets[at].nis.push(id);
        self.policy_nis_changed();
        id
    }

    /// O-41: peers' interfaces on a network that has become local get their credits.
    fn adopt_peers(&mut self, net: Net) {
        let tunables = self.net_tunables(net);
        for pni in self.peers.nis.values_mut().filter(|n| n.nid.net() == net) {
            pni.local = tunables;
            pni.port.credits.refill(tunables.map_or(0, |t| t.peer_credits));
        }
    }

    /// A local interface is about to be removed: nothing more is bound to it while there is another,
    /// and what waits for its credits goes by another (MR-snd-085; kernel nodes leave it there).
    /// Then its driver stops it, then comes [`Node::del_ni`].
    pub fn leave_ni(&mut self, now: Instant, id: NiId) {
        self.note(|| Input::LeaveNi { now, id });
        let now = self.clock(now);
        let Some(ni) = self.nis.get_mut(id).filter(|ni| !ni.is_loopback()) else { return };
        ni.link_down = true;
        ni.fatal = true;
        let waiting = self.unbind_waiting(id, |_| true);
        waiting.into_iter().for_each(|msg| self.again(now, msg, Reason::Unbound));
        self.repeat_elsewhere(now, None);
        self.settle(now);
    }

    /// Removes a local interface (O-18). Stop it in its driver first, so that nothing is under way:
    /// messages that it still has fail with `ENETDOWN`, those that wait for its credits go another
    /// way if they may.
    ///
    /// # Errors
    /// `ENOENT` (unknown), `EINVAL` (loopback).
    pub fn del_ni(&mut self, now: Instant, id: NiId) -> Result<(), Errno> {
        self.note(|| Input::DelNi { now, id });
        let now = self.clock(now);
        let ni = self.nis.get(id).ok_or(Errno::ENOENT)?;
        if ni.is_loopback() {
            return Err(Errno::EINVAL);
        }
        let net = ni.nid.net();
        for portal in 0..lnet_wire::PORTALS {
            self.flush_delayed(portal, Some(id));
        }
        self.drop_held(Some(id));
        self.drop_transit(Some(id), DropReason::NotRouter);
        let waiting = self.unbind_waiting(id, |m| m.src.is_none());
        let bound: Vec<MsgId> = self
            .msgs
            .iter()
            .filter(|(_, m)| m.tx.is_some_and(|tx| tx.ni == id))
            .map(|(id, _)| id)
            .collect();
        for msg in bound {
            self.finish(now, msg, Err(crate::NI_STOPPED));
        }
        waiting.into_iter().for_each(|msg| self.again(now, msg, Reason::Unbound));
        // What was for the driver is decided: it will have another attempt, or none.
        self.outputs.retain(|out| !matches!(out, Output::Send(t) if t.ni == id));
        self.timers.stop(Timer::RecoverNi(id));
        if let Some(ln) = self.nets.iter_mut().find(|n| n.net == net) {
            ln.nis.retain(|x| *x != id);
        }
        self.nis.remove(id);
        if self.nets.iter().any(|n| n.net == net && n.nis.is_empty()) {
            self.nets.retain(|n| n.net != net);
            self.del_routes_over(net);
            self.abandon_peers(now, net);
        }
        self.policy_nis_changed();
        self.announce(now, false);
        self.settle(now);
        Ok(())
    }

    /// O-42: peers lose their interfaces on a network that is not local any more, unless they can
    /// still be reached on another one.
    fn abandon_peers(&mut self, now: Instant, net: Net) {
        let ids: Vec<PeerNiId> = self
            .peers
            .nis
            .iter()
            .filter(|(_, n)| n.nid.net() == net && !n.deleting)
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            let Some(pni) = self.peers.nis.get(id) else { continue };
            let (nid, peer_id) = (pni.nid, pni.peer);
            let Some(peer) = self.peers.peers.get(peer_id) else { continue };
            let other = peer
                .nis()
                .filter_map(|n| self.peers.nis.get(n))
                .find(|n| n.nid.net() != net && self.nets.iter().any(|l| l.net == n.nid.net()))
                .map(|n| n.nid);
            let locked = peer.facts.contains(crate::peer::Facts::LOCK_PRIMARY);
            match other {
                Some(survivor) => {
                    let was_primary = peer.primary == nid;
                    if let Some(pni) = self.peers.nis.get_mut(id) {
                        pni.local = None;
                        pni.port.credits.refill(0);
                    }
                    if was_primary && !locked {
                        if let Some(peer) = self.peers.peers.get_mut(peer_id) {
                            peer.primary = survivor;
                        }
                        self.peers.primary_first(peer_id);
                    }
                }
                None if peer.primary == nid || peer.ni_count() == 1 => {
                    self.delete_peer(now, peer_id);
                }
                None => {
                    self.remove_peer_ni(now, id);
                    self.lost_sight(now, peer_id, nid);
                }
            }
        }
    }

    /// The tunables of a local network.
    pub(crate) fn net_tunables(&self, net: Net) -> Option<NetTunables> {
        self.nets.iter().find(|n| n.net == net).map(|n| n.tunables)
    }

    /// The condition of an interface has changed (H-90 … H-92).
    pub fn link_changed(&mut self, now: Instant, ni: NiId, link: Link) {
        self.note(|| Input::LinkChanged { now, ni, link });
        let now = self.clock(now);
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.link_down = link == Link::Down;
        }
        self.link_judged(now, ni);
    }

    /// What the driver says of a link, or a simulated fault, has changed: what it is now, if that is
    /// news.
    pub(crate) fn link_noted(&mut self, now: Instant, id: NiId) -> Option<Link> {
        let ni = self.nis.get_mut(id)?;
        let fatal = ni.link_down || ni.plays_dead;
        if ni.fatal == fatal {
            return None;
        }
        ni.fatal = fatal;
        ni.port.transitions.count(!fatal);
        if !fatal && ni.port.health == HEALTH_MAX {
            ni.port.status_up = true;
        }
        let is_announced_now = self.announce_link(now);
        if fatal {
            self.penalize(now, id);
        } else if is_announced_now {
            // D-7, as recorded: announced at once with the status in place, and with the next
            // number afterwards.
            self.refresh_ping();
            self.push_to_peers(now, true);
        }
        self.note_ni(id);
        Some(if fatal { Link::Down } else { Link::Up })
    }

    /// Changes the driver's own time limit on an interface (H-84).
    pub fn set_lnd_timeout(&mut self, ni: NiId, timeout: Option<Duration>) {
        self.note(|| Input::SetLndTimeout { ni, timeout });
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.lnd_timeout = timeout;
        }
    }
}
