//! Each message once (DEC-6): nodes of this kind agree to number the messages between them, so that
//! the receiver can tell a repeated copy from a new message, and the sender may repeat what it does
//! not know the fate of. `docs/duplicates.md` has the whole; the mark's bits are in
//! `lnet_wire::mark`, what a receiver remembers in `window.rs`, what one that has just started can know
//! in `fresh.rs`, what outlives the record of a peer in `retired.rs`.
//!
//! ```text
//!   A   ping ──────────────────────► B     B's data say that it can
//!   A   push, with A's session ────► B     B opens a window for that session
//!   A   ◄───────────────────── ACK   B     from here on A marks what it sends to B
//! ```
//!
//! Towards anybody else nothing differs. Routers of this kind pass marks on; others would read them.

pub(crate) mod answer;
pub(crate) mod fresh;
pub(crate) mod retired;
pub(crate) mod window;

use std::collections::VecDeque;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, Net, Nid, PeerId, PeerNiId, Pid};
use lnet_wire::mark::Mark;
use lnet_wire::ping::{Features, PingInfo};
use lnet_wire::{Handle, Hdr, Kind};

use crate::internal::Internal;
use crate::msg::{Msg, Role, Stage};
use crate::output::{DropReason, Output, Verdict};
use crate::peer::Peer;
use crate::peer::sync::is_later;
use crate::portal::RESERVED_PORTAL;
use crate::portal::md::Owner;
use crate::send::is_internal;
use crate::{Event, MdOptions, Node, Rx};
use window::{Judgement, Window};

/// Sessions of one peer that are remembered: the present one, and the one before, of which copies may
/// still come.
const SESSIONS_MAX: usize = 2;

/// What a node keeps for each peer about copies.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Once {
    /// Its ping data say that it suppresses duplicates.
    able: bool,
    /// The push on its way tells it our session.
    telling: bool,
    /// It knows our session.
    told: bool,
    /// We have asked it for its session.
    asked: bool,
    /// What comes of it contradicts its windows: it is asked for its session as if there were none.
    doubted: bool,
    /// It gets no window for now, whatever it offers: not all its NIDs are its own here.
    split: bool,
    /// The number of our next message to it. Never goes back: a session has each number once.
    next: u64,
    /// Its sessions, newest first.
    windows: VecDeque<Window>,
    /// The session that a push has brought whose data are not merged yet.
    offered: Option<(u64, Mark)>,
}

impl Once {
    /// Whether this is one of the peer's sessions that are remembered.
    pub(crate) fn knows(&self, session: u64) -> bool {
        self.windows.iter().any(|w| w.session() == session)
    }

    /// What is known of its sessions.
    pub(crate) fn into_windows(self) -> VecDeque<Window> {
        self.windows
    }

    /// Makes `session` the present one. It may have been the one before the last, where a push is
    /// repeated or a node was known as two: what has arrived of it is known.
    /// Gives the window that has no room any more.
    fn open(&mut self, session: u64, new: impl FnOnce() -> Window) -> Option<Window> {
        let known = self.windows.iter().position(|w| w.session() == session);
        let window = known.and_then(|at| self.windows.remove(at)).unwrap_or_else(new);
        self.windows.push_front(window);
        if self.windows.len() > SESSIONS_MAX { self.windows.pop_back() } else { None }
    }
}

/// What a message of ours is to its receiver.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Numbered {
    session: u64,
    seq: u64,
    /// An earlier copy may have arrived.
    unsure: bool,
}

/// A message for us that is to be taken.
pub(crate) struct Sifted {
    /// The process that it is for, without any mark.
    pub(crate) dst_pid: Pid,
    pub(crate) copied: Option<Copied>,
}

/// What a message that has arrived is in the session of its sender.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Copied {
    place: Place,
    n: u64,
    again: bool,
}

/// Where it is accounted for.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
enum Place {
    /// In a session of its sender.
    Session(PeerId, u64),
    /// Where sessions are that this life knows nothing of.
    Fresh(fresh::Name),
}

impl Node {
    /// Whether this node offers to suppress duplicates.
    pub(crate) fn suppresses(&self) -> bool {
        self.tunables.suppress_duplicates != 0 && self.tunables.discovery != 0
    }

    /// The name of our session towards a peer.
    fn session_of(&self, peer: &Peer) -> u64 {
        session_of(self.cookie, peer.born)
    }

    // ---- agreeing ----

    /// A peer's data have come, by ping or push.
    pub(crate) fn note_ability(&mut self, id: PeerId, features: Features) {
        let able = self.suppresses() && features.contains(Features::SUPPRESSES);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.once.able = able;
        peer.once.told &= able;
    }

    /// Whether a peer is to be told our session.
    pub(crate) fn wants_to_tell(&self, peer: &Peer) -> bool {
        self.suppresses() && peer.once.able && !peer.once.told && self.marks_reach(peer)
    }

    /// Whether marks reach a peer: it is on a network of ours, or each gateway that leads to it is of
    /// our kind and the last one before it. Other routers read where a mark stands.
    fn marks_reach(&self, peer: &Peer) -> bool {
        let is_ours = |net| self.nets.iter().any(|ours| ours.net == net);
        let mut routes =
            peer.nets.iter().flat_map(|theirs| self.router.routes.to(theirs.net)).peekable();
        peer.nets.iter().any(|theirs| is_ours(theirs.net))
            || routes.peek().is_some() && routes.all(|r| self.passes_marks(r.gateway, r.net))
    }

    /// Whether a gateway hands marks on to nodes on `net`, its neighbours.
    fn passes_marks(&self, gateway: PeerId, net: Net) -> bool {
        let gateway = self.peers.peers.get(gateway);
        gateway.is_some_and(|peer| peer.once.able && peer.net(net).is_some())
    }

    /// Whether a message from `src` that was brought by `from` may be from there: it is from there, or
    /// `from` is a gateway by which we go there too.
    fn brings(&self, from: Nid, src: Nid) -> bool {
        from == src
            || self
                .peers
                .owner(from)
                .is_some_and(|id| self.router.routes.to(src.net()).iter().any(|r| r.gateway == id))
    }

    /// What the `hdr_data` of a push to `id` are: our session, or 0.
    pub(crate) fn session_for_push(&mut self, id: PeerId) -> u64 {
        let Some(peer) = self.peers.peers.get(id) else { return 0 };
        let session = self.session_of(peer);
        let telling = self.suppresses() && peer.once.able && self.marks_reach(peer);
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.once.telling = telling;
        }
        if telling { session } else { 0 }
    }

    /// A peer has acknowledged our push.
    pub(crate) fn push_acknowledged(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.once.told |= core::mem::take(&mut peer.once.telling);
        }
    }

    /// A push from a peer has come that says `info`, and may bring a session with it.
    pub(crate) fn note_offer(&mut self, id: PeerId, event: &Event, info: &PingInfo) {
        let (session, from, src) = (event.hdr_data, event.sender, event.source.nid);
        let believed = self.suppresses() && session != 0 && self.brings(from, src);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if !believed {
            return;
        }
        if let Some(mark) = Mark::of(event.target.pid) {
            if mark.again {
                // It has no session of ours.
                peer.once.told = false;
            }
            peer.once.offered = Some((session, mark));
        }
        // Also where a way without marks was taken: its sender marks messages from now on.
        if !peer.once.knows(session) {
            self.retired.offered(session, info.entries.iter().map(|e| e.nid));
        }
    }

    /// The data of a push have been merged into `id`, and `owned` tells whether all NIDs in them are
    /// now that peer's. A sender whose NIDs belong to several peers here, by configuration, gets no
    /// window: its copies could not be told apart.
    pub(crate) fn open_session(&mut self, from: PeerId, id: PeerId, owned: bool) {
        let offered = self.peers.peers.get_mut(from).and_then(|p| p.once.offered.take());
        let nids = self.nids_of(id);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if owned && core::mem::take(&mut peer.once.split) {
            // Its next message makes us ask.
            peer.once.asked = false;
        }
        let Some((session, mark)) = offered else { return };
        if !owned {
            peer.once.split = true;
            tracing::warn!(peer = %peer.primary, "not all its NIDs are its own here: copies of its messages are refused");
            self.retired.keep(&nids, peer.once.windows.drain(..));
            self.retired.renew(session);
            return;
        }
        self.retired.settled(&nids);
        let known = self.retired.take(session);
        let new = || Window::new(session, self.fresh.hand_over(id, session, mark));
        let oldest = peer.once.open(session, || known.unwrap_or_else(new));
        self.retired.keep(&nids, oldest);
        peer.once.asked = false;
        peer.once.doubted = false;
        if self.peers.peers.get(id).is_some_and(|p| self.wants_to_tell(p)) {
            self.begin_discovery(id);
        }
    }

    // ---- sending ----

    /// The mark that a message bears on this attempt, if any.
    ///
    /// # Errors
    /// A copy may have arrived, and this attempt could not be told from it.
    pub(crate) fn mark_for(&mut self, id: MsgId) -> Result<Option<Mark>, Fault> {
        let suppresses = self.suppresses();
        let Some(msg) = self.msgs.get(id) else { return Ok(None) };
        if msg.role == Role::Repeat {
            return Ok(Mark::of(msg.hdr.dst_pid));
        }
        let before = msg.once;
        if !suppresses && before.is_none() {
            return Ok(None);
        }
        let reader = self.reader_of(msg);
        if msg.role == Role::Request && is_internal(&msg.hdr.kind) {
            return Ok(reader.and_then(|_| self.mark_for_push(msg)));
        }
        let Some(msg) = self.msgs.get_mut(id) else { return Ok(None) };
        if let Some(peer) = reader.and_then(|peer| self.peers.peers.get_mut(peer)) {
            let session = session_of(self.cookie, peer.born);
            let once = &mut peer.once;
            if let Some(Numbered { seq, unsure, .. }) =
                before.filter(|n| once.able && n.session == session)
            {
                return Ok(Some(Mark::new(session, seq, unsure)));
            }
            // News of the state of our interfaces may be on its way; that they are ours it knows.
            let knows_us = once.told && !is_later(self.nids_seq, peer.disc.acked_seq);
            if once.able && knows_us && !is_unsure(before) {
                let seq = once.next;
                once.next += 1;
                msg.once = Some(Numbered { session, seq, unsure: false });
                return Ok(Some(Mark::new(session, seq, false)));
            }
        }
        if is_unsure(before) && !self.tunables.resends(HealthStatus::NetworkTimeout) {
            return Err(Fault::new(HealthStatus::Ok, Errno::ETIMEDOUT));
        }
        msg.once = None;
        Ok(None)
    }

    /// The mark of a push that tells a session. The interface that it goes to may count as another
    /// peer's still: the session is that of the peer which is told.
    fn mark_for_push(&self, msg: &Msg) -> Option<Mark> {
        let Owner::Internal(Internal::Push(to)) = self.portals.mds.get(msg.md?)?.owner else {
            return None;
        };
        let peer = self.peers.peers.get(to).filter(|peer| peer.once.telling)?;
        // Two that can't open windows for each other would ask each other for ever.
        let lacks = (peer.once.windows.is_empty() || peer.once.doubted) && !peer.once.split;
        Some(Mark::new(self.session_of(peer), peer.once.next, lacks))
    }

    /// The peer that would read a mark on this attempt, if nobody on the way would.
    fn reader_of(&self, msg: &Msg) -> Option<PeerId> {
        let tx = msg.tx.as_ref().filter(|_| msg.role != Role::Forward)?;
        let ours = msg.hop_pid == Pid::LUSTRE && msg.hdr.dst_pid == Pid::LUSTRE;
        let hop = self.peers.nis.get(tx.peer_ni.filter(|_| ours)?)?.peer;
        if !tx.routed {
            return Some(hop);
        }
        let passes = self.passes_marks(hop, msg.hdr.dst.net());
        self.peers.owner(msg.hdr.dst).filter(|_| passes)
    }

    /// Whether the receiver of a message can tell another copy of it from a new message.
    pub(crate) fn can_repeat(&self, msg: &Msg) -> bool {
        if msg.role == Role::Repeat {
            return true;
        }
        let Some(numbered) = msg.once else { return false };
        let peer = self.peers.owner(msg.hdr.dst).and_then(|p| self.peers.peers.get(p));
        peer.is_some_and(|peer| {
            peer.once.able
                && peer.once.told
                && self.session_of(peer) == numbered.session
                // Far from where numbers begin anew.
                && peer.once.next - numbered.seq < u64::from(Mark::SEQS / 4)
        })
    }

    /// Whether the next hop of a message is a neighbour that suppresses duplicates, so that the two of
    /// us repeat what a connection between us loses. What a router passes on, no hop repeats.
    pub(crate) fn next_hop_repeats(&self, msg: &Msg) -> bool {
        let Some(tx) = msg.tx.filter(|tx| !tx.routed && msg.role != Role::Forward) else {
            return false;
        };
        let hop = tx.peer_ni.and_then(|ni| self.peers.nis.get(ni)).map(|ni| ni.peer);
        let peer = hop.and_then(|hop| self.peers.peers.get(hop));
        peer.is_some_and(|peer| peer.once.able && peer.once.told && !peer.gateway.is_router())
    }

    /// The next copy of a message may not be the first to arrive.
    pub(crate) fn note_unsure(&mut self, id: MsgId) {
        if let Some(numbered) = self.msgs.get_mut(id).and_then(|m| m.once.as_mut()) {
            numbered.unsure = true;
        }
    }

    // ---- receiving ----

    /// Judges a message for us that may be a copy.
    ///
    /// # Errors
    /// It is a copy, or may be.
    pub(crate) fn sift(
        &mut self,
        now: Instant,
        rx: &Rx,
        peer_ni: Option<PeerNiId>,
        hdr: &Hdr,
    ) -> Result<Sifted, DropReason> {
        let Some(mark) = Mark::of(hdr.dst_pid) else {
            return Ok(Sifted { dst_pid: hdr.dst_pid, copied: None });
        };
        // A push bears the mark for its receiver to read, and may come as often as it likes.
        if matches!(hdr.kind, Kind::Put { portal: RESERVED_PORTAL, .. }) {
            return Ok(Sifted { dst_pid: hdr.dst_pid, copied: None });
        }
        let plain = Sifted { dst_pid: Pid::LUSTRE, copied: None };
        let owner = match peer_ni.filter(|_| hdr.src == rx.from) {
            Some(near) => self.peers.nis.get(near).map(|n| n.peer),
            None => self.peers.owner(hdr.src).filter(|_| self.brings(rx.from, hdr.src)),
        };
        let Some(id) = owner else { return self.sift_stray(mark, hdr) };
        let told = self.retired.offer_of(hdr.src, mark);
        let is_its = |w: &&Window| is_of(w.session(), mark, life_in(&hdr.kind), told);
        let windows = self.peers.peers.get(id).map(|peer| &peer.once.windows);
        let agreed = windows.and_then(|all| all.iter().find(is_its));
        let is_new = agreed.is_some_and(|w| !w.is_before(w.number(mark)));
        let session = agreed.map(|w| Place::Session(id, w.session()));
        let place = match life_in(&hdr.kind) {
            Some(life) if !is_new && self.fresh.keeps(life, mark) => {
                Some(Place::Fresh((life, mark.session())))
            }
            _ => session,
        };
        if session.is_none() {
            self.ask_for_session(id);
        }
        let Some((place, window)) = place.and_then(|place| Some((place, self.window_at(place)?)))
        else {
            return self.sift_stray(mark, hdr);
        };
        let (n, again) = (window.number(mark), mark.again);
        let (judgement, acked) = (window.judge(n, again), window.acked(n, hdr.payload_len));
        match judgement {
            Judgement::Deliver => {}
            Judgement::Replace(old) => self.give_up(now, old),
            Judgement::Duplicate => {
                let doubts = window.wonders(n, again);
                if let Some(mlength) = acked.filter(|_| again) {
                    self.acknowledge_again(now, rx, peer_ni, hdr, mlength);
                }
                if doubts {
                    self.doubt_session(id);
                }
                return Err(DropReason::Duplicate);
            }
            Judgement::Ancient => return Err(DropReason::AncientCopy),
        }
        Ok(Sifted { copied: Some(Copied { place, n, again }), ..plain })
    }

    /// Judges a message of no session of whoever has the NID that it came from. There is one first copy
    /// of each, so that this is no duplicate, but for two things: the NID may be a new one of a node that
    /// has told us so, which is being asked (`peer/claims.rs`), and further copies come from its other
    /// ones; or the record of its peer was made anew since.
    fn sift_stray(&mut self, mark: Mark, hdr: &Hdr) -> Result<Sifted, DropReason> {
        if mark.again {
            return Err(DropReason::AncientCopy);
        }
        let life = life_in(&hdr.kind);
        match self.window_of_stray(life, mark, hdr.src) {
            Ok(Some(window)) => {
                let n = window.number(mark);
                match window.judge(n, false) {
                    Judgement::Duplicate => return Err(DropReason::Duplicate),
                    Judgement::Ancient => return Err(DropReason::AncientCopy),
                    Judgement::Deliver | Judgement::Replace(_) => window.strayed(n),
                }
            }
            Ok(None) => {}
            Err(forgotten) => return Err(forgotten),
        }
        Ok(Sifted { dst_pid: Pid::LUSTRE, copied: None })
    }

    /// The window in which a stray may have been noted before. A PUT without ACK does not say which life
    /// of its node it is from, so it is the NID that tells. It may have changed hands: but who marks
    /// messages has told us so, in this life of ours, and the newest window is the right one.
    ///
    /// # Errors
    /// There was one, and it is forgotten.
    fn window_of_stray(
        &mut self,
        life: Option<u64>,
        mark: Mark,
        src: Nid,
    ) -> Result<Option<&mut Window>, DropReason> {
        let peer = match life {
            Some(life) => match self.fresh.agreed_with(life) {
                None => return Ok(None),
                agreed => agreed,
            },
            None => self.peers.owner(src).or_else(|| self.peers.who_had(src)),
        };
        let told = self.retired.offer_of(src, mark);
        let peer = peer.and_then(|id| self.peers.peers.get_mut(id));
        let mut windows = peer.into_iter().flat_map(|peer| &mut peer.once.windows);
        if let Some(window) = windows.find(|w| is_of(w.session(), mark, life, told)) {
            return Ok(Some(window));
        }
        let is_lost = self.retired.has_lost();
        match life {
            None => Ok(self.retired.from(src, mark)),
            Some(life) => match self.retired.of(life, mark) {
                None if is_lost => Err(DropReason::AncientCopy),
                window => Ok(window),
            },
        }
    }

    /// All NIDs of a peer, and the one by which it is called.
    pub(crate) fn nids_of(&self, id: PeerId) -> Vec<Nid> {
        let Some(peer) = self.peers.peers.get(id) else { return Vec::new() };
        let nis = peer.nis().filter_map(|ni| self.peers.nis.get(ni)).map(|ni| ni.nid);
        nis.chain([peer.primary]).collect()
    }

    /// A sender marks its messages, and we know nothing of it: we have restarted, or forgotten it.
    /// Asked once; what the peer makes of that is its affair.
    fn ask_for_session(&mut self, id: PeerId) {
        let suppresses = self.suppresses();
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if suppresses && !core::mem::replace(&mut peer.once.asked, true) {
            peer.disc.teach.want(crate::peer::sync::Wish::Fresh);
            self.begin_discovery(id);
        }
    }

    /// So many of its messages in a row can't be copies that they are taken for those of a session
    /// that we have not been told of, with the bits of one that we know.
    fn doubt_session(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.once.doubted = true;
            self.ask_for_session(id);
        }
    }

    fn window_at(&mut self, place: Place) -> Option<&mut Window> {
        match place {
            Place::Session(peer, session) => {
                let peer = self.peers.peers.get_mut(peer)?;
                peer.once.windows.iter_mut().find(|w| w.session() == session)
            }
            Place::Fresh(name) => self.fresh.window(name),
        }
    }

    /// A copy has been taken as `id`: its payload is to come.
    pub(crate) fn copy_taken(&mut self, id: MsgId, copied: Copied) {
        if let Some(window) = self.window_at(copied.place) {
            window.take(copied.n, copied.again, id);
        }
    }

    /// It is here, whole.
    pub(crate) fn copy_arrived(&mut self, id: MsgId) {
        let rx = self.msgs.get_mut(id).and_then(|m| m.rx.as_mut());
        let Some(copied) = rx.and_then(|rx| rx.copied.take()) else { return };
        let odd = self.odd_ack(id);
        if let Some(window) = self.window_at(copied.place) {
            window.arrived(copied.n, id);
            if let Some(told) = odd {
                window.acked_oddly(copied.n, told);
            }
        }
    }

    /// It ends without having arrived.
    pub(crate) fn copy_lost(&mut self, id: MsgId) {
        let rx = self.msgs.get_mut(id).and_then(|m| m.rx.as_mut());
        let Some(copied) = rx.and_then(|rx| rx.copied.take()) else { return };
        if let Some(window) = self.window_at(copied.place) {
            window.reopen(copied.n, id);
        }
    }

    /// Ends a message that is still arriving, because another copy of it has come.
    fn give_up(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = self.msgs.get(id) else { return };
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
        let Some(msg) = self.msgs.get(id) else { return false };
        if msg.rx.is_none_or(|rx| rx.copied.is_none()) {
            return false;
        }
        let (ev, stage) = (msg.ev, msg.stage);
        let Some(md) = msg.md.and_then(|md| self.portals.mds.get_mut(md)) else { return false };
        if md.zombie || md.aborted || stage == Stage::Deferred {
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
        self.discard(id);
        true
    }
}

/// The cookie of the life that a request comes from, if its answer is to find the way back there.
fn life_in(kind: &Kind) -> Option<u64> {
    let handle = match kind {
        Kind::Put { ack, .. } => *ack,
        Kind::Get { ret, .. } => *ret,
        Kind::Ack { .. } | Kind::Reply { .. } => return None,
    };
    (handle != Handle::NONE).then_some(handle.interface)
}

/// The header of a further copy of a message that was sent with a number; `None` if it had none.
pub(crate) fn as_further_copy(hdr: &Hdr) -> Option<Hdr> {
    let mut mark = Mark::of(hdr.dst_pid)?;
    mark.again = true;
    Some(Hdr { dst_pid: mark.pid(), ..*hdr })
}

/// Whether a mark is of this session: the life that the message names is its sender's, and no other
/// session with the same bits was told since.
fn is_of(session: u64, mark: Mark, life: Option<u64>, told: Option<u64>) -> bool {
    mark.is_of(session)
        && life.is_none_or(|life| fresh::life_of(life) == fresh::life_of(session))
        && told.is_none_or(|told| told == session)
}

/// The name of a session: another one after a restart, and for a record of the peer that was made
/// anew. Never 0.
fn session_of(cookie: u64, born: u64) -> u64 {
    cookie.wrapping_add(born << 30).max(1)
}

fn is_unsure(numbered: Option<Numbered>) -> bool {
    numbered.is_some_and(|n| n.unsure)
}

#[cfg(test)]
mod tests {
    use lnet_types::MsgId;

    use super::*;

    #[test]
    fn what_has_arrived_of_a_session_is_known_when_it_is_offered_again() {
        let mut once = Once::default();
        let new = |session| move || Window::new(session, Mark::new(session, 50, false));
        assert!(once.open(1, new(1)).is_none());
        let n = once.windows[0].end();
        once.windows[0].take(n, true, MsgId::default());
        once.windows[0].arrived(n, MsgId::default());
        assert!(once.open(2, new(2)).is_none() && once.open(1, new(1)).is_none());
        assert_eq!(once.windows.iter().map(Window::session).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(once.windows[0].judge(n, false), Judgement::Duplicate);
        let oldest = once.open(3, new(3));
        assert_eq!(oldest.map(|w| w.session()), Some(2), "two are remembered");
    }
}
