//! Invariants of tables: timers are about entries that exist, interfaces, peers and routes agree, and
//! sessions count their entries.

use lnet_types::{MdId, PeerId};
use slotmap::SecondaryMap;

use super::{Violation, expect};
use crate::Node;
use crate::conduct::RecoveryPace;
use crate::msg::Stage;
use crate::peer::Peer;
use crate::port::{HEALTH_MAX, Port, PortId};
use crate::portal::owner::{Internal, Owner};
use crate::timers::Timer;

impl Node {
    pub(super) fn check_tables(&self) -> Result<(), Violation> {
        self.check_timers()?;
        self.check_nis()?;
        self.check_peers()?;
        let trackers = self.portals.mds.values().filter(|md| md.tracker.is_some()).count();
        expect(
            "rst_alloc counts trackers",
            "node",
            trackers as u32,
            self.counts.stats().rst_alloc,
        )?;
        self.check_sessions()
    }

    fn check_timers(&self) -> Result<(), Violation> {
        for timer in self.timers.all() {
            let is_meant = match timer {
                Timer::Announce
                | Timer::AnnounceUp
                | Timer::CutOff
                | Timer::Remind(_)
                | Timer::Router
                | Timer::Retransmit => true,
                Timer::Op(op) => self.ops.get(op).is_some(),
                Timer::Delay(token) => self.faults.held(token).is_some(),
                Timer::Check(id) => {
                    self.peers.peers.get(id).is_some_and(|peer| peer.gateway.is_router())
                }
                Timer::Merge(id) | Timer::Discover(id) => self.peers.peers.contains_key(id),
                Timer::Response(md) => {
                    self.portals.mds.get(md).is_some_and(|md| md.tracker.is_some())
                }
                // That a message waits is checked with the message.
                Timer::Waiting(id) => self.msgs.contains_key(id),
                Timer::Backoff(id) => {
                    self.msgs.get(id).is_some_and(|msg| matches!(msg.stage, Stage::Resting(_)))
                }
                Timer::RecoverNi(id) => {
                    self.nis.get(id).is_some_and(|ni| ni.port.health < HEALTH_MAX)
                }
                Timer::RecoverPeer(id) => {
                    let pni = self.peers.nis.get(id);
                    pni.is_some_and(|pni| pni.port.health < HEALTH_MAX && !pni.deleting)
                }
            };
            expect("a timer is about an entry that needs it", timer, true, is_meant)?;
        }
        for (token, _) in self.faults.all_held() {
            let is_set = self.timers.is_set(Timer::Delay(token));
            expect("a message that a rule holds has its timer", token, true, is_set)?;
        }
        Ok(())
    }

    fn check_nis(&self) -> Result<(), Violation> {
        for net in self.nis.nets() {
            for id in &net.nis {
                let of = self.nis.get(*id).map(|ni| ni.nid.net());
                expect("interfaces of a network", net.net, Some(net.net), of)?;
            }
        }
        let listed: usize = self.nis.nets().iter().map(|net| net.nis.len()).sum();
        expect("each interface is on one network", "node", self.nis.len(), listed)?;
        for (id, ni) in self.nis.iter() {
            self.check_recovery(ni.nid, PortId::Local(id), &ni.port)?;
            let recovers = ni.port.health < HEALTH_MAX
                && !ni.is_loopback()
                && self.running
                && self.tunables.conduct.recovery_pace != RecoveryPace::Off;
            let is_set = self.timers.is_set(Timer::RecoverNi(id));
            expect(
                "a recovering interface has its timer",
                ni.nid,
                recovers,
                is_set && self.running,
            )?;
        }
        Ok(())
    }

    /// The recovery ping of an interface is one.
    fn check_recovery(
        &self,
        nid: lnet_types::Nid,
        id: PortId,
        port: &Port,
    ) -> Result<(), Violation> {
        let Some(md) = port.recovery.ping else { return Ok(()) };
        self.expect_internal("the recovery ping of an interface is on its way", nid, md, |what| {
            what == Internal::Recover(id)
        })
    }

    /// A descriptor of the node's own exists, and is for what its user takes it for.
    fn expect_internal(
        &self,
        invariant: &'static str,
        subject: impl core::fmt::Debug,
        md: MdId,
        is_meant: impl Fn(Internal) -> bool,
    ) -> Result<(), Violation> {
        let owner = self.portals.mds.get(md).map(|md| md.owner);
        let is_right = matches!(owner, Some(Owner::Internal(what)) if is_meant(what));
        expect(invariant, (subject, md, owner), true, is_right)
    }

    fn check_peers(&self) -> Result<(), Violation> {
        let peers = &self.peers;
        expect("peers are listed by age", "node", peers.peers.len(), peers.by_age.len())?;
        let mut routes: SecondaryMap<PeerId, u32> = SecondaryMap::new();
        for route in self.router.routes.all() {
            let exists = peers.peers.contains_key(route.gateway);
            expect("the gateway of a route exists", (route.net, route.nid), true, exists)?;
            if let Some(count) = routes.entry(route.gateway) {
                *count.or_default() += 1;
            }
        }
        let mut listed = 0;
        for (id, peer) in &peers.peers {
            let by_age = peers.by_age.get(&peer.born);
            expect("a peer is listed by its age", peer.primary, Some(&id), by_age)?;
            let through = routes.get(id).copied().unwrap_or_default();
            expect("routes through a peer", peer.primary, through, peer.gateway.routes)?;
            self.check_interfaces_of(id, peer)?;
            listed += peer.ni_count();
            self.check_discovery(id, peer)?;
        }
        let present = peers.nis.values().filter(|pni| !pni.deleting).count();
        expect("interfaces of peers are listed once", "node", present, listed)?;
        expect("interfaces of peers are known by NID", "node", present, peers.nids())?;
        for (id, pni) in &peers.nis {
            let known = peers.find(pni.nid) == Some(id);
            expect("an interface of a peer is known by NID", pni.nid, !pni.deleting, known)?;
            self.check_recovery(pni.nid, PortId::Peer(id), &pni.port)?;
        }
        Ok(())
    }

    fn check_interfaces_of(&self, id: PeerId, peer: &Peer) -> Result<(), Violation> {
        expect("a peer has an interface", peer.primary, false, peer.nets.is_empty())?;
        for net in &peer.nets {
            let mut health = None;
            for ni in &net.nis {
                let pni = self.peers.nis.get(*ni);
                let found = pni.map(|pni| (pni.peer, pni.nid.net(), pni.deleting));
                let subject = (peer.primary, ni);
                expect("interfaces of a peer", subject, Some((id, net.net, false)), found)?;
                health = health.max(pni.map(|pni| pni.port.health));
            }
            let subject = (peer.primary, net.net);
            expect("health of a peer's network", subject, health, Some(net.health))?;
        }
        Ok(())
    }

    fn check_discovery(&self, id: PeerId, peer: &Peer) -> Result<(), Violation> {
        let disc = &peer.disc;
        let runs = disc.parked.is_empty() || disc.is_running;
        expect("messages wait for a discovery that runs", peer.primary, true, runs)?;
        if let Some(md) = disc.learn.in_flight() {
            let what = "the ping of a discovery is on its way";
            self.expect_internal(what, peer.primary, md, |w| w == Internal::DiscoveryPing(id))?;
        }
        if let Some(md) = disc.teach.in_flight() {
            let what = "the push of a discovery is on its way";
            self.expect_internal(what, peer.primary, md, |w| w == Internal::Push(id))?;
        }
        for op in &disc.waiters {
            let exists = self.ops.get(*op).is_some();
            expect("what waits for a discovery exists", (peer.primary, op), true, exists)?;
        }
        Ok(())
    }

    fn check_sessions(&self) -> Result<(), Violation> {
        let [counted, table, shares] = self.sessions.counted();
        expect("entries of all sessions", "sessions", counted, table)?;
        expect("entries of sessions by bringer", "sessions", counted, shares)?;
        let listed = self.sessions.listed();
        expect("each session is listed by its bringer", "sessions", self.sessions.len(), listed)?;
        for (copied, id) in self.sessions.arriving() {
            let found = self.msgs.get(id).and_then(|msg| msg.rx?.copied);
            let found = found.map(|copied| copied.place());
            expect("a message that arrives is its session's", id, Some(copied), found)?;
        }
        Ok(())
    }
}
