//! Each message once (DEC-6): a message between two nodes of this kind bears the name of its session
//! and its number, so that the receiver can tell a repeated copy from a new message, and the sender may
//! repeat a message whose fate is unknown. `docs/duplicates.md` has the whole; where the mark stands in
//! a header is in `lnet_wire::mark`, the receiver's table in `sessions.rs`, one session's memory in
//! `window.rs`, messages that were written and are in doubt in `retransmit.rs`.
//!
//! The feature bit in the ping data is the whole negotiation: a sender marks what it sends to a peer
//! that has it, a receiver reads the marks that come. Towards other peers nothing differs.

pub(crate) mod numbering;
pub(crate) mod retransmit;
pub(crate) mod sessions;
pub(crate) mod window;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MdId, MsgId, PeerId, PeerNiId};
use lnet_wire::mark::{Mark, Returned, SessionName};
use lnet_wire::ping::Features;
use lnet_wire::{Handle, Hdr, Kind};

use crate::check::live;
use crate::handle::Scrambler;
use crate::msg::{Msg, Role, Stage};
use crate::output::{DropReason, Output, Verdict};
use crate::peer::{Peer, Peers};
use crate::portal::{Portals, is_internal};
use crate::{MdOptions, Node, Rx};
use numbering::Numbered;
use sessions::{Bringer, Copied};
use window::Judgement;

/// The name of our session with a peer. A record that is made anew has another one, so that no number is
/// used twice.
fn session_with(peer: &Peer, scrambler: Scrambler) -> SessionName {
    SessionName::new(scrambler.scramble(peer.born))
}

fn next_number(peer: &mut Peer, scrambler: Scrambler) -> Numbered {
    let session = session_with(peer, scrambler);
    peer.numbering.take(session)
}

/// The peer that a message is for, where marks may be read: it goes to another node, and is ours.
fn reader_of(peers: &Peers, msg: &Msg) -> Option<PeerId> {
    let tx = msg.tx.as_ref().filter(|_| msg.role != Role::Forward)?;
    let hop = peers.nis.get(tx.peer_ni?)?.peer;
    if tx.routed { peers.owner(msg.hdr.dst) } else { Some(hop) }
}

/// Whether the next hop of a message is a neighbour that deduplicates, so that the two of us repeat what
/// a connection between us loses. What a router passes on, no hop repeats.
pub(crate) fn next_hop_repeats(peers: &Peers, msg: &Msg) -> bool {
    let Some(tx) = msg.tx.filter(|tx| !tx.routed && msg.role != Role::Forward) else {
        return false;
    };
    let hop = tx.peer_ni.and_then(|ni| peers.nis.get(ni)).map(|ni| ni.peer);
    let peer = hop.and_then(|hop| peers.peers.get(hop));
    peer.is_some_and(|peer| peer.numbering.is_able() && !peer.gateway.is_router())
}

impl Node {
    /// A peer's data have come, by ping or push.
    pub(crate) fn note_ability(&mut self, id: PeerId, features: Features) {
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.numbering.announced(features.contains(Features::DEDUPLICATES));
        }
    }

    // ---- sending ----

    /// What a message is on the wire on this attempt: with its mark, if it bears one.
    ///
    /// # Errors
    /// A copy may have arrived, and this attempt could not be distinguished from it.
    pub(crate) fn with_mark(&mut self, id: MsgId) -> Result<Kind, Fault> {
        const NONE: Kind = Kind::Reply { dst: Handle::NONE, pad: [0; 24] };
        let deduplicates = self.tunables.deduplicates();
        let Some(msg) = self.msgs.get_mut(id) else { return Ok(NONE) };
        let kind = msg.hdr.kind;
        // What a driver has handed back bears its mark already.
        if msg.role == Role::Repeat || msg.numbered.is_none() && !deduplicates {
            return Ok(kind);
        }
        let reader = reader_of(&self.peers, msg).and_then(|id| self.peers.peers.get_mut(id));
        let able = reader.as_ref().map_or(Some(false), |peer| peer.numbering.able());
        let asks_by = msg.md.filter(|_| expects_answer(&kind));
        if let Some(numbered) = msg.numbered {
            if able == Some(true) || numbered.is_unsure() && able.is_none() {
                return Ok(numbered.mark().on(kind, asks_by.map_or(0, Portals::key_of)));
            }
            if numbered.is_unsure() && !self.tunables.resends(HealthStatus::NetworkTimeout) {
                return Err(Fault::new(HealthStatus::Ok, Errno::ETIMEDOUT));
            }
        }
        let is_own = msg.role == Role::Request && is_internal(&kind);
        let reader = reader.filter(|_| deduplicates && able == Some(true) && !is_own);
        msg.numbered = reader.map(|peer| next_number(peer, self.scrambler));
        let Some(numbered) = msg.numbered else { return Ok(kind) };
        let mark = numbered.mark();
        let key = asks_by.map_or(0, |md| self.portals.ask_by(md, numbered.session, mark.number()));
        Ok(mark.on(kind, key))
    }

    /// The descriptor of a handle that came back, if it is one of this incarnation's. That of an answer
    /// to a marked request is one by which that number of that session was asked for.
    pub(crate) fn md_of(&self, handle: Handle) -> Option<MdId> {
        match Returned::of(handle) {
            Some(Returned { session, number, key }) => self.portals.asked_by(key, session, number),
            None => self.scrambler.md_of(self.cookie, handle),
        }
    }

    /// Whether the receiver of a message can tell another copy of it from a new message.
    pub(crate) fn can_repeat(&self, msg: &Msg) -> bool {
        if msg.role == Role::Repeat {
            return true;
        }
        let Some(numbered) = msg.numbered else { return false };
        let peer = self.peers.owner(msg.hdr.dst).and_then(|p| self.peers.peers.get(p));
        peer.is_some_and(|peer| {
            let session = session_with(peer, self.scrambler);
            peer.numbering.able() != Some(false) && peer.numbering.is_recent(session, numbered)
        })
    }

    // ---- receiving ----

    /// Judges a message for us that may be a copy. Gives the message as it is to be treated, without
    /// what its mark has changed, and what it is in its session.
    ///
    /// # Errors
    /// It is a copy, or may be.
    pub(crate) fn deduplicate(
        &mut self,
        now: Instant,
        rx: &Rx,
        peer_ni: Option<PeerNiId>,
        hdr: &Hdr,
    ) -> Result<(Hdr, Option<Copied>), DropReason> {
        let Some(mark) = Mark::of(&hdr.kind).filter(|_| peer_ni.is_some()) else {
            return Ok((*hdr, None));
        };
        let hdr = Hdr { kind: Mark::off(hdr.kind), ..*hdr };
        let is_gateway = hdr.src != rx.from
            && self.peers.owner(rx.from).is_some_and(|id| {
                self.router.routes.to(hdr.src.net()).iter().any(|r| r.gateway == id)
            });
        let bringer = Bringer { nid: rx.from, is_gateway };
        let judged = self.sessions.judge(now, bringer, mark, hdr.payload_len);
        match judged.judgement {
            Judgement::Deliver => {}
            Judgement::Replace(old) => self.give_up(now, old),
            Judgement::Duplicate => {
                if let Some(mlength) = judged.acked.filter(|_| mark.further) {
                    self.acknowledge_again(now, rx, peer_ni, &hdr, mlength);
                }
                return Err(DropReason::Duplicate);
            }
            Judgement::Ancient => return Err(DropReason::AncientCopy),
        }
        Ok((hdr, Some(judged.copied)))
    }

    /// A marked message is here, whole.
    pub(crate) fn copy_arrived(&mut self, id: MsgId) {
        let rx = self.msgs.get_mut(id).and_then(|m| m.rx.as_mut());
        let Some(copied) = rx.and_then(|rx| rx.copied.take()) else { return };
        let atypical = self.atypical_ack(id);
        self.sessions.arrived(copied, id, atypical);
    }

    /// It ends without having arrived.
    pub(crate) fn copy_lost(&mut self, id: MsgId) {
        let rx = self.msgs.get_mut(id).and_then(|m| m.rx.as_mut());
        if let Some(copied) = rx.and_then(|rx| rx.copied.take()) {
            self.sessions.reopen(copied, id);
        }
    }

    /// Ends a message that is still arriving, because another copy of it has come.
    fn give_up(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = live!(self.msgs, id) else { return };
        let (Some(rx), stage) = (msg.rx, msg.stage) else { return };
        if stage == Stage::Deferred {
            for portal in 0..lnet_wire::PORTALS {
                self.portals.take_delayed(portal, |d| d.msg == id);
            }
            let verdict = Verdict::Drop(DropReason::Duplicate);
            self.outputs.push_back(Output::Resume { ni: rx.ni, rx: rx.id, verdict });
            return self.discard(id);
        }
        self.outputs.push_back(Output::Abandon { ni: rx.ni, rx: rx.id, msg: id });
        if !self.withdraw(id) {
            self.finish(now, id, Err(Fault::new(HealthStatus::Ok, Errno::EIO)));
        }
    }

    /// Takes back that a message was matched, as if it had never come: its sender numbers its
    /// messages, so another copy of it finds the descriptor as it was. False if that is not possible,
    /// or not to be expected.
    pub(crate) fn withdraw(&mut self, id: MsgId) -> bool {
        let Some(msg) = live!(self.msgs, id) else { return false };
        if msg.rx.is_none_or(|rx| rx.copied.is_none()) {
            return false;
        }
        let (ev, stage) = (msg.ev, msg.stage);
        let Some(md_id) = msg.md else { return false };
        let Some(md) = live!(mut self.portals.mds, md_id) else { return false };
        // One that this message has used up is as good as before.
        let used_up = md.zombie && md.auto_unlink && md.is_exhausted();
        if (md.zombie && !used_up) || md.aborted || stage == Stage::Deferred {
            return false;
        }
        if md.place.is_some() && !md.options.contains(MdOptions::MANAGE_REMOTE) {
            // Others may have been put behind it.
            if md.offset != ev.offset + u64::from(ev.mlength) {
                return false;
            }
            md.offset = ev.offset;
        }
        md.refs = md.refs.saturating_sub(1);
        md.threshold = md.threshold.map(|t| t.saturating_add(1));
        if used_up && !md.is_exhausted() {
            md.zombie = false;
            self.portals.unhide(md_id);
        }
        self.discard(id);
        true
    }
}

/// Whether an ACK or REPLY is to come back to us.
fn expects_answer(kind: &Kind) -> bool {
    match kind {
        Kind::Put { ack, .. } => *ack != Handle::NONE,
        Kind::Get { .. } => true,
        Kind::Ack { .. } | Kind::Reply { .. } => false,
    }
}
