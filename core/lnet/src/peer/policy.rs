//! What the selection policy says of peers, kept at their networks and interfaces. The rules and
//! their meaning are in `crate::policy`.

use lnet_types::{Nid, PeerId, PeerNiId};

use crate::peer::Peers;
use crate::policy::turn::Turn;

impl Peers {
    /// The rules are applied to an interface that is new or has another peer (U-21).
    pub(crate) fn grade(&mut self, peer: PeerId, id: PeerNiId) {
        let Some(n) = self.nis.get_mut(id) else { return };
        n.port.grade = self.policy.peer_ni(n.nid);
        n.mapping = self.policy.mapping(n.nid, n.mapping.as_deref());
        if !self.policy.counts() {
            n.port.turn = Turn::default();
        }
        let net = n.nid.net();
        if let Some(pn) =
            self.peers.get_mut(peer).and_then(|p| p.nets.iter_mut().find(|pn| pn.net == net))
        {
            pn.grade = self.policy.peer_net(net);
            if !self.policy.counts() {
                (pn.turn, pn.floor, pn.path_floor) = (Turn::default(), 0, 0);
            }
        }
    }

    /// The rules are applied to everything (U-20).
    pub(crate) fn apply_policy(&mut self) {
        for (peer, id) in self.nis.iter().map(|(id, n)| (n.peer, id)).collect::<Vec<_>>() {
            self.grade(peer, id);
        }
        if !self.policy.counts() {
            self.peers.values_mut().for_each(|p| p.net_floor = 0);
        }
    }

    /// See `Node::take_turns`.
    pub(crate) fn take_turns(&mut self, own: Nid, to: Nid, seq: u64) {
        let Some(n) = self.find(to).and_then(|id| self.nis.get_mut(id)) else { return };
        let Some(p) = self.peers.get_mut(n.peer) else { return };
        let Some(pn) = p.nets.iter_mut().find(|pn| pn.net == to.net()) else { return };
        pn.turn.take(pn.grade.messages, &mut p.net_floor, seq);
        n.port.turn.take(n.port.grade.messages, &mut pn.floor, seq);
        let paths = n.mapping.as_mut().map(|m| m.preferred.iter_mut());
        if let Some(path) = paths.and_then(|mut paths| paths.find(|path| path.nid == own)) {
            path.turn.take(path.messages, &mut pn.path_floor, seq);
        }
    }
}
