//! Which events of the node are worth a line in the log: changes of state, lost peers, messages that
//! go another way or are abandoned. The lines are in `notice.rs`.

use lnet_types::{Errno, Fault, Instant, MsgId, Nid};

use crate::Node;
use crate::msg::{Msg, Role};
use crate::notice::{Notice, Pair};
use crate::peer::PeerNi;
use crate::portal::RESERVED_PORTAL;

impl Node {
    /// The next line for the log.
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        let notice = self.outbox.next_notice();
        self.gave_notice(notice.as_ref());
        notice
    }

    /// Notes the state of an interface, if it is another than was noted last.
    pub(crate) fn note_ni(&mut self, id: lnet_types::NiId) {
        let Some(ni) = self.nis.get_mut(id) else { return };
        let to = ni.state();
        let from = core::mem::replace(&mut ni.noted, to);
        if from != to {
            self.outbox.notice(Notice::Interface { nid: ni.nid, from, to });
        }
    }

    /// Notes that an interface of a peer has become unusable, if it was the last one. One event is often seen
    /// in several ways, by status and by health, and several times: noted is the change of the peer from
    /// usable to lost (RS-038).
    pub(crate) fn note_peer(&mut self, id: lnet_types::PeerNiId) {
        let Some(peer) = self.peers.nis.get(id).and_then(|n| self.peers.peers.get(n.peer)) else {
            return;
        };
        let nis = || peer.nis().filter_map(|n| self.peers.nis.get(n));
        if nis().any(PeerNi::is_usable) || nis().all(|n| n.noted_lost) {
            return;
        }
        self.outbox.notice(Notice::PeerLost { primary: peer.primary });
        for id in peer.nis() {
            if let Some(pni) = self.peers.nis.get_mut(id) {
                pni.noted_lost = true;
            }
        }
    }

    /// Notes that a message goes another way now than the one that failed. One that goes the same way again
    /// has nothing to say yet: a program that ends leaves such messages behind, for as long as they are
    /// tried. Pings of an operator end in a report, which says how they failed.
    pub(crate) fn note_rerouted(&mut self, id: MsgId, to: Pair) {
        let Some(msg) = self.msgs.get(id).filter(|m| m.retries > 0) else { return };
        if is_own_request(msg) {
            return;
        }
        let (Some(&(ni, hop)), Some(status)) = (msg.tried.last(), msg.failed) else { return };
        let ni = self.nis.get(ni).map_or(Nid::ANY, |n| n.nid);
        let hop = self.peers.nis.get(hop).map_or(Nid::ANY, |n| n.nid);
        let (target, failed) = (msg.ev.target.nid, (ni, hop));
        if failed != to {
            self.outbox.notice(Notice::Rerouted { target, failed, status, to });
        }
    }

    /// Notes that a message of the user's is given up. Recovery pings and their like are expected to
    /// fail, and tell of it by what they are for.
    pub(crate) fn note_undelivered(&mut self, id: MsgId, fault: Fault) {
        let Some(msg) = self.msgs.get(id) else { return };
        let user = msg.role == Role::Request && !is_own_request(msg);
        if !user || !self.running || fault.errno == Errno::ECANCELED {
            return;
        }
        let pair = msg.tx.and_then(|tx| {
            tx.peer_ni?;
            Some((self.nis.get(tx.ni)?.nid, tx.hop))
        });
        let attempts = if pair.is_some() { msg.retries + 1 } else { msg.retries };
        self.outbox.notice(Notice::Undelivered {
            target: msg.ev.target.nid,
            pair,
            status: fault.status,
            errno: fault.errno,
            attempts,
        });
    }

    /// A penalty for an interface that went down.
    pub(crate) fn penalize(&mut self, now: Instant, id: lnet_types::NiId) {
        let hold_down = self.tunables.flap_hold_down;
        let Some(ni) = self.nis.get_mut(id) else { return };
        let before = ni.port.flaps.is_flapping(now, hold_down);
        ni.port.flaps.down(now, hold_down);
        if !before && ni.port.flaps.is_flapping(now, hold_down) {
            self.outbox.notice(Notice::Flapping { nid: ni.nid });
        }
    }
}

/// Is this a ping or a push of the node itself?
fn is_own_request(msg: &Msg) -> bool {
    msg.role == Role::Request && msg.ev.portal == RESERVED_PORTAL
}
