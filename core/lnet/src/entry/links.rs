//! Local interfaces that come and go, and what drivers report of links and rails. What follows is in
//! `interfaces.rs`, `suspicion.rs` and `health.rs`.

use core::time::Duration;

use lnet_types::{Errno, Instant, MsgId, Net, NiId, Nid};

use crate::below::Doubt;
use crate::local::{Ni, NiSpec};
use crate::outbox::Work;
use crate::port::PortId;
use crate::record::Input;
use crate::send::Reason;
use crate::send::rest::News;
use crate::timers::Timer;
use crate::{DropReason, Link, Node};

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
        let is_new = self.nis.tunables_of(net).is_none();
        let id = self.insert_ni(spec);
        if is_new {
            self.adopt_peers(net);
            self.arm_checks(now);
        }
        self.router.arm(&mut self.timers, &self.nis, &self.tunables);
        self.announce(now, false);
        self.settle(now);
        Ok(id)
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
            self.flush_delayed(portal, Some(id), DropReason::Stopping);
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
        self.outbox.take_back(id);
        self.timers.stop(Timer::RecoverNi(id));
        if self.nis.remove(id) {
            self.del_routes_over(net);
            self.abandon_peers(now, net);
        }
        self.policy_nis_changed();
        self.announce(now, false);
        self.settle(now);
        Ok(())
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

    /// Makes an interface play dead, or lets it be what its driver says (HL-dbg-020, HL-dbg-025).
    ///
    /// # Errors
    /// `ENOENT`: no such interface. `EINVAL`: loopback.
    pub fn simulate_link(&mut self, now: Instant, nid: Nid, link: Link) -> Result<(), Errno> {
        self.note(|| Input::SimulateLink { now, nid, link });
        let now = self.clock(now);
        let id = self.nis.iter().find(|(_, ni)| ni.nid == nid).map(|(id, _)| id);
        let id = id.ok_or(Errno::ENOENT)?;
        let ni = self.nis.get_mut(id).ok_or(Errno::ENOENT)?;
        if ni.is_loopback() {
            return Err(Errno::EINVAL);
        }
        ni.plays_dead = link == Link::Down;
        self.link_judged(now, id);
        Ok(())
    }

    /// A driver has a new judgement of the rail from `ni` to the peer's interface `nid` (DEC-31).
    /// New messages prefer other rails from now on; those that are bound to it, and of which
    /// nothing has been written, follow if another rail is better. Without effect while
    /// `rail_suspicion` is 0.
    pub fn rail_changed(&mut self, now: Instant, ni: NiId, nid: Nid, doubt: Doubt) {
        self.note(|| Input::RailChanged { now, ni, nid, doubt });
        let now = self.clock(now);
        if self.tunables.rail_suspicion == 0 || !self.nis.contains_key(ni) {
            return;
        }
        let Some(peer_ni) = self.peers.find(nid) else { return };
        let before = self.rails.of(ni, peer_ni);
        if !self.rails.set((ni, peer_ni), doubt, now) {
            return;
        }
        // What is gone is forgotten when there is news, which is seldom.
        let (nis, peer_nis) = (&self.nis, &self.peers.nis);
        self.rails.retain(|n, p| nis.contains_key(n) && peer_nis.contains_key(p));
        let own = self.nis.get(ni).map_or(Nid::ANY, |ni| ni.nid);
        tracing::debug!(from = %own, to = %nid, %doubt, "rail");
        self.plan_cut_off(now, doubt >= Doubt::Slow);
        // An improvement matters too: messages that had nowhere to go may have now.
        if let Some(peer) = self.peers.nis.get(peer_ni).map(|n| n.peer) {
            self.move_messages(now, |node, msg| node.hop_of(msg) == Some(peer));
            self.repeat_elsewhere(now, Some(peer));
            self.reclaim_from(peer);
            if doubt < before {
                self.notify_resting(now, News::Rail(peer));
            }
        }
        self.settle(now);
    }

    /// Changes the driver's own time limit on an interface (H-84).
    pub fn set_lnd_timeout(&mut self, ni: NiId, timeout: Option<Duration>) {
        self.note(|| Input::SetLndTimeout { ni, timeout });
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.lnd_timeout = timeout;
        }
    }

    /// Sets the health of local interfaces, one or all (H-80). Values above 1000 mean 1000.
    pub fn set_ni_health(&mut self, now: Instant, nid: Option<Nid>, health: u32) {
        self.note(|| Input::SetNiHealth { now, nid, health });
        let meant = |ni: &Ni| !ni.is_loopback() && nid.is_none_or(|nid| nid == ni.nid);
        let ids: Vec<NiId> =
            self.nis.iter().filter(|(_, ni)| meant(ni)).map(|(id, _)| id).collect();
        let now = self.set_healths(now, ids.iter().copied().map(PortId::Local), health);
        let is_news = |id: &NiId| self.nis.get(*id).is_some_and(|ni| ni.is_up() != ni.announced_up);
        if ids.iter().any(is_news) {
            self.announce(now, false);
        }
        self.settle(now);
    }

    /// The condition of an interface is news for those who wait for it.
    fn link_judged(&mut self, now: Instant, ni: NiId) {
        let changed = self.link_noted(now, ni);
        if changed == Some(Link::Down) {
            self.outbox.plan(Work::Leave(PortId::Local(ni)));
        }
        if changed == Some(Link::Up) {
            self.believe_neighbours(now, ni);
            self.hasten_recovery_over(now, ni);
            self.notify_resting(now, News::Link);
        }
        if changed.is_some() {
            self.settle(now);
        }
    }
}
