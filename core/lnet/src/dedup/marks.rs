//! Marks on messages that leave: the session with the receiver, and the number in it. A copy that goes again
//! keeps both. Also the way back: the descriptor by which a marked answer was asked for.

use lnet_types::{Errno, Fault, HealthStatus, MdId, MsgId, PeerId};
use lnet_wire::mark::{Returned, SessionName};
use lnet_wire::{Handle, Kind};

use crate::dedup::numbering::Numbered;
use crate::handle::Scrambler;
use crate::msg::{Msg, Role};
use crate::peer::{Peer, Peers};
use crate::portal::{Portals, is_internal};
use crate::{Node, Tunables};

/// The name of our session with a peer. A record that is made anew has another one, so that no number is
/// used twice.
fn session_with(peer: &Peer, scrambler: Scrambler) -> SessionName {
    SessionName::new(scrambler.scramble(peer.born))
}

fn next_number(peer: &mut Peer, scrambler: Scrambler) -> Numbered {
    let born = peer.born;
    peer.numbering.take(|| SessionName::new(scrambler.scramble(born)))
}

/// The peer that a message is for, where marks may be read: it goes to another node, and is ours.
fn reader_of(peers: &Peers, msg: &Msg) -> Option<PeerId> {
    let tx = msg.tx.as_ref().filter(|_| msg.role != Role::Forward)?;
    let hop = peers.nis.get(tx.peer_ni?)?.peer;
    if tx.routed { peers.owner(msg.hdr.dst) } else { Some(hop) }
}

/// Whether the next hop of a message is a neighbour that deduplicates, so that the two of us repeat what
/// a connection between us loses. What a router passes on, no hop repeats.
#[inline]
pub(crate) fn next_hop_repeats(peers: &Peers, msg: &Msg) -> bool {
    let Some(tx) = msg.tx.as_ref().filter(|tx| !tx.routed && msg.role != Role::Forward) else {
        return false;
    };
    let hop = tx.peer_ni.and_then(|ni| peers.nis.get(ni)).map(|ni| ni.peer);
    let peer = hop.and_then(|hop| peers.peers.get(hop));
    peer.is_some_and(|peer| peer.numbering.is_able() && !peer.gateway.is_router())
}

/// Whether an ACK or REPLY is to come back to us.
pub(crate) fn expects_answer(kind: &Kind) -> bool {
    match kind {
        Kind::Put { ack, .. } => *ack != Handle::NONE,
        Kind::Get { .. } => true,
        Kind::Ack { .. } | Kind::Reply { .. } => false,
    }
}

/// What marks are made with.
pub(crate) struct Marking<'a> {
    pub(crate) peers: &'a mut Peers,
    pub(crate) portals: &'a mut Portals,
    pub(crate) tunables: &'a Tunables,
    pub(crate) scrambler: Scrambler,
}

impl Marking<'_> {
    /// Makes of the kind of a message what it is on the wire on this attempt: with its mark, if it bears
    /// one.
    ///
    /// # Errors
    /// A copy may have arrived, and this attempt could not be distinguished from it.
    #[inline]
    pub(crate) fn with_mark(&mut self, msg: &mut Msg, kind: &mut Kind) -> Result<(), Fault> {
        let deduplicates = self.tunables.deduplicates();
        // What a driver has handed back bears its mark already.
        if msg.role == Role::Repeat || msg.numbered.is_none() && !deduplicates {
            return Ok(());
        }
        let reader = reader_of(self.peers, msg).and_then(|id| self.peers.peers.get_mut(id));
        let able = reader.as_ref().map_or(Some(false), |peer| peer.numbering.able());
        let asks_by = msg.md.filter(|_| expects_answer(kind));
        if let Some(numbered) = msg.numbered {
            if able == Some(true) || numbered.is_unsure() && able.is_none() {
                numbered.mark().put_on(kind, asks_by.map_or(0, Portals::key_of));
                return Ok(());
            }
            if numbered.is_unsure() && !self.tunables.resends(HealthStatus::NetworkTimeout) {
                return Err(Fault::new(HealthStatus::Ok, Errno::ETIMEDOUT));
            }
        }
        let is_own = msg.role == Role::Request && is_internal(kind);
        let reader = reader.filter(|_| deduplicates && able == Some(true) && !is_own);
        msg.numbered = reader.map(|peer| next_number(peer, self.scrambler));
        let Some(numbered) = msg.numbered else { return Ok(()) };
        let mark = numbered.mark();
        let key = asks_by.map_or(0, |md| self.portals.ask_by(md, numbered.session, mark.number()));
        mark.put_on(kind, key);
        Ok(())
    }
}

impl Node {
    /// The descriptor of a handle that came back, if it is one of this incarnation's. That of an answer
    /// to a marked request is one by which that number of that session was asked for.
    pub(crate) fn md_of(&self, handle: Handle) -> Option<MdId> {
        match Returned::of(handle) {
            Some(Returned { session, number, key }) => self.portals.asked_by(key, session, number),
            None => self.scrambler.md_of(handle),
        }
    }

    /// Whether the receiver of a message can tell another copy of it from a new message.
    pub(crate) fn can_repeat(&self, msg: &Msg) -> bool {
        if msg.role == Role::Repeat {
            return true;
        }
        let Some(numbered) = msg.numbered else { return false };
        let owner = self.peers.owner(msg.hdr.dst);
        let owner = owner.or_else(|| self.peers.last_owner(msg.hdr.dst));
        let peer = owner.and_then(|p| self.peers.peers.get(p));
        peer.is_some_and(|peer| {
            let session = session_with(peer, self.scrambler);
            peer.numbering.able() != Some(false) && peer.numbering.is_recent(session, numbered)
        })
    }

    /// It ends without having arrived.
    pub(crate) fn copy_lost(&mut self, id: MsgId) {
        let rx = self.msgs.get_mut(id).and_then(|m| m.rx.as_mut());
        if let Some(copied) = rx.and_then(|rx| rx.copied.take()) {
            self.sessions.reopen(copied, id);
        }
    }
}
