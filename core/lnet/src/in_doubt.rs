//! Messages in doubt at the first hop: written to a transport, not acknowledged by it.
//!
//! A transport that has taken a message may never deliver it: its rail falls silent, its connection
//! is reset. A driver therefore retains what its peer's transport has not acknowledged, if the
//! receiver recognizes duplicates ([`Transmit::retention`](crate::Transmit)), and hands it back
//! ([`Node::tx_in_doubt`]) when the connection ends, or when the node asks for it
//! ([`Output::Reclaim`]) because the rail is silent and another one is not. Each message then leaves
//! as a further copy under its old number, which the receiver accepts once.
//!
//! ```text
//!   written ──► retained ── acknowledged by the transport ──► released
//!                  │
//!                  ╰── connection ended, or rail silent ──► further copy over another rail
//! ```
//!
//! The caller has had its SEND event, so a copy ends silently. It is repeated until its own deadline,
//! whatever `retry_count` says: an attempt over a rail that died is not the message's fault. Only with 0,
//! which means that nothing is sent again, nothing is retained (DEC-11).
//!
//! Requests that the node itself keeps until they are answered are not retained by drivers
//! (`dedup/retransmit.rs`).

use lnet_types::{Instant, MsgId, NiId, PeerId, PeerNiId, Pid, ProcessId};
use lnet_wire::mark::Mark;
use lnet_wire::{Hdr, Kind};

use crate::below::{Doubt, InDoubt, Retention};
use crate::msg::{Msg, Role};
use crate::output::Output;
use crate::portal::{Portals, RESERVED_PORTAL, is_internal};
use crate::router::choose;
use crate::send::Reason;
use crate::stats::InDoubtStats;
use crate::{Node, Retries};

/// Whether, and until when, the driver is to retain a message that leaves as `kind`: one of ours that
/// bears a mark, if it may be sent again.
#[inline]
pub(crate) fn retention(
    retries: Retries,
    portals: &Portals,
    msg: &Msg,
    kind: &Kind,
) -> Option<Retention> {
    Mark::of(kind).filter(|_| msg.role != Role::Forward)?;
    if retries == Retries::Count(0) || is_internal(kind) || is_kept_here(portals, msg) {
        return None;
    }
    let bound = msg.src.is_some() && !msg.may_move();
    Some(Retention { born: msg.born, until: msg.deadline, bound })
}

/// Whether the node keeps the message itself until it is answered.
fn is_kept_here(portals: &Portals, msg: &Msg) -> bool {
    let md = || msg.md.and_then(|md| portals.mds.get(md));
    match msg.role {
        Role::Copy => true,
        Role::Request => md().is_some_and(|md| {
            let answered_once = md.threshold == Some(1) && md.refs == 1 && !md.zombie;
            answered_once && md.owner.is_user() && md.tracker.is_some()
        }),
        _ => false,
    }
}

impl Node {
    /// What has become of messages in doubt at the first hop.
    pub const fn in_doubt(&self) -> InDoubtStats {
        self.counts.in_doubt()
    }

    pub(crate) fn repeat_in_doubt(&mut self, now: Instant, message: InDoubt) {
        let InDoubt { ni, to, hdr, payload, retention } = message;
        let Some(kind) = Mark::further_copy(hdr.kind) else { return };
        let hdr = Hdr { kind, ..hdr };
        // The tunable may have changed since the driver got the message.
        if now >= retention.until || self.tunables.retries() == Retries::Count(0) {
            self.counts.in_doubt_expired();
            return;
        }
        let rail = self.peers.find(to).map(|peer_ni| (ni, peer_ni));
        let response =
            matches!(hdr.kind.msg_type(), lnet_wire::MsgType::Ack | lnet_wire::MsgType::Reply);
        let mut msg = Msg {
            payload,
            src: (retention.bound || response).then_some(hdr.src),
            hint: response.then_some(hdr.dst),
            hop_pid: Pid::LUSTRE,
            deadline: retention.until,
            ..Msg::new(Role::Repeat, hdr, retention.born)
        };
        // Its caller's traffic was measured when it was written first.
        msg.ev.portal = RESERVED_PORTAL;
        let id = self.msgs.insert(msg);
        self.counts.in_doubt_repeated();
        self.again(now, id, Reason::InDoubt { rail });
    }

    /// Asks drivers for what is in doubt on the silent rails to a peer, if it can leave by another.
    pub(crate) fn reclaim_from(&mut self, peer: PeerId) {
        if self.rails.is_clean() {
            return;
        }
        let of_peer = |rail: &(NiId, PeerNiId)| {
            self.peers.nis.get(rail.1).is_some_and(|near| near.peer == peer)
        };
        let silent: Vec<(NiId, PeerNiId)> =
            self.rails.silent().filter(of_peer).filter(|rail| self.can_leave(*rail)).collect();
        for (ni, peer_ni) in silent {
            self.reclaim(ni, peer_ni);
        }
    }

    /// The same for all rails to a gateway that does not lead everywhere any more.
    pub(crate) fn reclaim_from_gateway(&mut self, gateway: PeerId) {
        let hops = |node: &Self| -> Vec<PeerNiId> {
            let peer = node.peers.peers.get(gateway);
            peer.map(|peer| peer.nis().collect()).unwrap_or_default()
        };
        for hop in hops(self) {
            self.reclaim_from_hop(hop);
        }
    }

    /// The same for all rails to an interface of a peer.
    pub(crate) fn reclaim_from_hop(&mut self, hop: PeerNiId) {
        for ni in self.nis_beside(hop) {
            if self.can_leave((ni, hop)) {
                self.reclaim(ni, hop);
            }
        }
    }

    /// The same for an interface that has lost its link: for all its rails.
    pub(crate) fn reclaim_interface(&mut self, ni: NiId) {
        let others = |(id, other): (NiId, &crate::local::Ni)| {
            id != ni && !other.is_loopback() && !other.fatal
        };
        if self.nis.iter().any(others) {
            self.outbox.order(Output::Reclaim { ni, to: None });
        }
    }

    fn reclaim(&mut self, ni: NiId, peer_ni: PeerNiId) {
        let Some(nid) = self.peers.nis.get(peer_ni).map(|near| near.nid) else { return };
        self.outbox.order(Output::Reclaim { ni, to: Some(ProcessId::lustre(nid)) });
    }

    /// Our interfaces on the network of a peer's interface.
    fn nis_beside(&self, peer_ni: PeerNiId) -> Vec<NiId> {
        let net = self.peers.nis.get(peer_ni).map(|near| near.nid.net());
        let net = self.nis.nets().iter().find(|n| Some(n.net) == net);
        net.map(|net| net.nis.to_vec()).unwrap_or_default()
    }

    /// Whether what is bound to a rail could go by one that is neither silent nor announced as down: to the same
    /// peer, or, if it is a gateway, to another gateway that leads to one of its networks.
    fn can_leave(&self, (ni, peer_ni): (NiId, PeerNiId)) -> bool {
        let Some(peer) = self.peers.nis.get(peer_ni).map(|near| near.peer) else { return false };
        let carries = |hop: PeerNiId| {
            let is_up = self.peers.nis.get(hop).is_some_and(|near| !near.announced_down);
            self.nis_beside(hop).into_iter().any(|from| {
                is_up
                    && (from, hop) != (ni, peer_ni)
                    && self.nis.get(from).is_some_and(|from| !from.fatal)
                    && self.rails.of(from, hop) < Doubt::Silent
            })
        };
        let own = self.peers.peers.get(peer);
        if own.into_iter().flat_map(|peer| peer.nis()).any(&carries) {
            return true;
        }
        let t = self.tables();
        let routes = self.router.routes.all().filter(|route| route.gateway == peer);
        routes.flat_map(|route| choose::hops_to(t, route.net)).any(carries)
    }

    /// A further copy has been written, or has failed for good.
    pub(crate) fn repeat_ended(&mut self, id: MsgId, written: bool) {
        if !written {
            self.counts.in_doubt_expired();
        }
        self.discard(id);
    }
}
