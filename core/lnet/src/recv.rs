//! Receiving: from a header that a driver has read to the place of its payload, and from the last
//! byte of that to the event (behaviour.md 3.9; wire.md 8.3). The verdict is *returned*: no call
//! back, one stack.
//!
//! Matching is in `portal/`, what follows a complete reception in `send/finish.rs`.

use lnet_types::{Instant, IoVec, MsgId, NiId, Nid, PeerNiId, ProcessId};
use lnet_wire::{Handle, Hdr, Kind, MsgType, PAYLOAD_MAX};

use crate::check::live;
use crate::fault::Held;
use crate::msg::{Role, RxSide, Stage};
use crate::output::{DropReason, Output, PeerMisbehaved, Sink, Verdict};
use crate::peer::eviction::Purpose;
use crate::port::{HEALTH_MAX, PortId};
use crate::portal::md::MdBuf;
use crate::portal::owner::Owner;
use crate::portal::{Delayed, Matched, Search, Wanted};
use crate::router::buffers::{PoolKind, Transit};
use crate::send::rest::News;
use crate::timers::Timer;
use crate::{MdOptions, Node, Rx};

/// A neighbour may have so much of `messages_max` in hand, …
const SHARES: u32 = 16;
/// … and so much at least.
const SHARE_MIN: u32 = 64;

impl Node {
    pub(crate) fn classify(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        let kind = hdr.kind.msg_type();
        match kind {
            MsgType::Ack | MsgType::Get if hdr.payload_len > 0 => {
                return Verdict::Close(PeerMisbehaved::PayloadNotAllowed(kind));
            }
            MsgType::Put | MsgType::Reply if hdr.payload_len > PAYLOAD_MAX => {
                return Verdict::Close(PeerMisbehaved::PayloadTooLong(hdr.payload_len));
            }
            MsgType::Ack | MsgType::Get | MsgType::Put | MsgType::Reply => {}
        }
        let Some(ni) = self.nis.get(rx.ni).filter(|_| self.running) else {
            return Verdict::Drop(DropReason::Stopping);
        };
        let own = ni.nid;
        let for_us = hdr.dst == own;
        if !for_us {
            // S-81.3
            if hdr.dst.net() == own.net() {
                return Verdict::Close(PeerMisbehaved::WrongNid(hdr.dst));
            }
            if self.nis.values().any(|ni| ni.nid == hdr.dst) {
                // Who only passed it on is not to blame, and other messages share its connection.
                if hdr.src != rx.from && !self.tunables.conduct.closes_on_wrong_interface {
                    return Verdict::Drop(DropReason::OtherInterface);
                }
                return Verdict::Close(PeerMisbehaved::WrongInterface(hdr.dst));
            }
            if !self.router.is_on() || hdr.dst.is_any() || hdr.dst.is_loopback() {
                return Verdict::Drop(DropReason::NotRouter);
            }
            if self.nis.owns(hdr.src) {
                return Verdict::Drop(DropReason::RoutingLoop);
            }
        }
        if self.faults.loses(now, own, hdr) {
            return Verdict::Drop(DropReason::Injected);
        }
        let peer_ni = if own.is_loopback() {
            None
        } else {
            let Ok(id) = self.peer_ni_or_new(rx.peer_ni, rx.from, Some(own), Purpose::Traffic)
            else {
                return Verdict::Drop(DropReason::NoPeer);
            };
            if for_us && self.is_asymmetric(id, hdr) {
                return Verdict::Drop(DropReason::AsymmetricRoute);
            }
            self.heard_from(now, rx.ni, id);
            self.heard_gateway(now, id, hdr);
            if self.router.is_on() {
                self.heard_on(now, rx.ni, hdr);
            }
            if let Some(ni) = self.nis.get_mut(rx.ni) {
                ni.last_received = Some(now);
            }
            Some(id)
        };
        if self.faults.has_delays() && self.holds_arriving(now, own, rx, hdr) {
            return Verdict::Defer;
        }
        self.dispatch(now, rx, peer_ni, hdr)
    }

    /// Whether an arriving message is held back (S-81.12). If so it has been noted.
    fn holds_arriving(&mut self, now: Instant, own: Nid, rx: Rx, hdr: &Hdr) -> bool {
        if self.faults.holds() >= self.tunables.messages_max as usize {
            return false;
        }
        let own = Some(own).filter(|_| self.tunables.conduct.matches_faults_by_interface);
        let Some(rule) = self.faults.delay(now, hdr, own) else { return false };
        self.faults.hold(&mut self.timers, rule, Held::Arriving(rx, *hdr));
        true
    }

    /// Goes on with a message that a fault rule has held.
    pub(crate) fn go_on(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        let peer_ni = match self.nis.get(rx.ni).map(|ni| ni.nid) {
            None => Err(DropReason::Stopping),
            Some(own) if own.is_loopback() => Ok(None),
            Some(own) => self
                .peer_ni_or_new(rx.peer_ni, rx.from, Some(own), Purpose::Traffic)
                .map(Some)
                .map_err(|_| DropReason::NoPeer),
        };
        let verdict = match peer_ni {
            Ok(peer_ni) => self.dispatch(now, rx, peer_ni, hdr),
            Err(reason) => Verdict::Drop(reason),
        };
        if let Verdict::Drop(reason) = &verdict {
            self.count_drop(rx.ni, hdr, *reason);
        }
        verdict
    }

    /// A message that has passed all tests goes to what it is for (S-81.13).
    fn dispatch(&mut self, now: Instant, rx: Rx, peer_ni: Option<PeerNiId>, hdr: &Hdr) -> Verdict {
        if self.msgs.in_hand() >= self.tunables.messages_max as usize {
            return Verdict::Drop(DropReason::NoResources);
        }
        let kind = hdr.kind.msg_type();
        let (ni, from, id) = (rx.ni, rx.from, rx.id);
        let mut side = RxSide { ni, peer_ni, from, id, kind, committed: true, copied: None };
        if self.nis.get(rx.ni).is_some_and(|ni| ni.nid != hdr.dst) {
            return self.forward_in(now, side, hdr);
        }
        if matches!(kind, MsgType::Put | MsgType::Get) && self.has_its_share(peer_ni) {
            return Verdict::Drop(DropReason::NoResources);
        }
        match self.deduplicate(now, &rx, peer_ni, hdr) {
            Ok(copied) => side.copied = copied,
            Err(reason) => return Verdict::Drop(reason),
        }
        match hdr.kind {
            Kind::Put { portal, match_bits, offset, .. } => {
                let len = hdr.payload_len;
                self.request_in(now, side, hdr, portal, match_bits, offset, len)
            }
            Kind::Get { portal, match_bits, offset, sink_len, .. } => {
                self.request_in(now, side, hdr, portal, match_bits, offset, sink_len)
            }
            Kind::Ack { dst, match_bits, mlength, .. } => {
                self.response_in(now, side, hdr, dst, match_bits, mlength)
            }
            Kind::Reply { dst, .. } => self.response_in(now, side, hdr, dst, 0, hdr.payload_len),
        }
    }

    /// Whether a neighbour has as many of its messages in hand here as it may have. One that makes
    /// requests and reads no response would take the whole table otherwise, whatever source it names.
    fn has_its_share(&self, peer_ni: Option<PeerNiId>) -> bool {
        let share = (self.tunables.messages_max as u32 / SHARES).max(SHARE_MIN);
        let pni = peer_ni.and_then(|id| self.peers.nis.get(id));
        pni.is_some_and(|pni| pni.received >= share)
    }

    /// Whether a message for us has come by a way that we would not take (S-83).
    fn is_asymmetric(&self, from: PeerNiId, hdr: &Hdr) -> bool {
        let Some(pni) = self.peers.nis.get(from) else { return false };
        let net = hdr.src.net();
        self.tunables.drop_asym_route != 0
            && net != pni.nid.net()
            && !self.router.routes.to(net).iter().any(|r| r.gateway == pni.peer)
    }

    /// A sign of life: the interface is up, and pings that were waiting are due now (S-81.9, DEC-5).
    fn heard_from(&mut self, now: Instant, by: NiId, id: PeerNiId) {
        let Some(pni) = self.peers.nis.get_mut(id) else { return };
        pni.last_alive = Some(now);
        pni.heard_by = Some(by);
        if !pni.port.status_up {
            pni.set_up(now, self.tunables.flap_hold_down, true);
        }
        let (peer, is_healthy) = (pni.peer, pni.port.health >= HEALTH_MAX);
        if self.timers.is_set(Timer::RecoverPeer(id)) {
            self.hasten_recovery(now, PortId::Peer(id));
        } else if !is_healthy && self.tunables.conduct.recovers_unheard {
            // It may have failed before it was known as a peer.
            self.queue_recovery(now, PortId::Peer(id));
        }
        if self.rails.cut_off.contains(&(peer, by)) {
            self.announce_again(now, peer);
        }
        self.notify_resting(now, News::Life(peer));
    }

    /// A PUT or GET for us (2.4).
    #[expect(clippy::too_many_arguments, reason = "the fields that PUT and GET share")]
    fn request_in(
        &mut self,
        now: Instant,
        side: RxSide,
        hdr: &Hdr,
        portal: u32,
        match_bits: u64,
        offset: u32,
        len: u32,
    ) -> Verdict {
        let is_put = side.kind == MsgType::Put;
        let initiator = self.initiator(&side, hdr);
        let want = Wanted {
            portal,
            op: if is_put { MdOptions::OP_PUT } else { MdOptions::OP_GET },
            bits: match_bits,
            nid: initiator.nid,
            pid: initiator.pid,
            len,
            offset,
        };
        match self.find_buffer(now, &want) {
            Search::Found(m) => {
                let sink = self.portals.sink(&m);
                let id = self.new_rx(now, side, hdr, initiator, Some(m));
                let sink = if is_put { sink } else { Sink::Spans(IoVec::new()) };
                Verdict::Deliver { msg: id, sink }
            }
            Search::TooLong | Search::Full(_) => Verdict::Drop(DropReason::TooLong),
            Search::BadPortal => Verdict::Drop(DropReason::BadPortal),
            Search::Nothing { lazy: true } if is_put => {
                let id = self.new_rx(now, side, hdr, initiator, None);
                let delayed = Delayed { msg: id, ni: side.ni, rx: side.id };
                let max = self.tunables.delayed_max as usize;
                if self.portals.delay(portal, delayed, max) {
                    Verdict::Defer
                } else {
                    self.discard(id);
                    Verdict::Drop(DropReason::NoResources)
                }
            }
            Search::Nothing { .. } => Verdict::Drop(DropReason::NoMatch),
        }
    }

    /// The buffer for a message. Full ones on the way go.
    fn find_buffer(&mut self, now: Instant, want: &Wanted) -> Search {
        loop {
            let peers = &self.peers;
            match self.portals.find(want, |a, b| peers.same(a, b)) {
                // Each of them is found once: it goes.
                Search::Full(md) => self.retire_md(now, md),
                found => return found,
            }
        }
    }

    /// An ACK or REPLY for us (M-37).
    fn response_in(
        &mut self,
        now: Instant,
        side: RxSide,
        hdr: &Hdr,
        handle: Handle,
        match_bits: u64,
        length: u32,
    ) -> Verdict {
        let Some(md_id) = self.md_of(handle) else {
            return Verdict::Drop(DropReason::BadHandle);
        };
        let is_reply = side.kind == MsgType::Reply;
        let Some(md) = self
            .portals
            .mds
            .get_mut(md_id)
            .filter(|md| md.place.is_none() && !md.zombie && md.threshold != Some(0))
            .filter(|md| match md.owner {
                Owner::Internal(what) => what.response() == Some(side.kind),
                Owner::User(_) | Owner::Quiet(_) | Owner::Silent => true,
            })
        else {
            return Verdict::Drop(DropReason::BadHandle);
        };
        let mut mlength = length;
        if is_reply && u64::from(length) > md.len {
            if !md.options.contains(MdOptions::TRUNCATE) {
                return Verdict::Drop(DropReason::TooLong);
            }
            mlength = md.len as u32;
        }
        md.take();
        let written_by = md.written_by;
        let sink = match &md.buf {
            MdBuf::Spans(iov) if is_reply => {
                Sink::Spans(lnet_types::iovec_slice(iov, 0, u64::from(mlength)))
            }
            MdBuf::Collect(_) if is_reply => Sink::Bytes(mlength),
            MdBuf::Spans(_) | MdBuf::Collect(_) | MdBuf::Bytes(_) => Sink::Spans(IoVec::new()),
        };
        // It has come another way than the exchange of its GET: that ends here (RS-096).
        if let Some(get) = written_by
            && let Some(tx) = self.msgs.get(get).and_then(|get| get.tx.as_ref())
        {
            self.outbox.order(Output::Withdraw { ni: tx.ni, msg: get });
        }
        let initiator = self.initiator(&side, hdr);
        let matched = Matched { md: md_id, offset: 0, mlength };
        let id = self.new_rx(now, side, hdr, initiator, Some(matched));
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.ev.match_bits = match_bits;
            msg.ev.rlength = if is_reply { length } else { 0 };
        }
        Verdict::Deliver { msg: id, sink }
    }

    /// Who stands behind the source NID of a header (S-81.10).
    fn initiator(&self, side: &RxSide, hdr: &Hdr) -> ProcessId {
        // Nearly always the peer that the message came from, which has been looked up already.
        let came_from = side.peer_ni.filter(|_| hdr.src == side.from);
        let known = came_from.and_then(|id| self.peers.primary_behind(id));
        let nid = known.unwrap_or_else(|| self.peers.primary_of(hdr.src));
        ProcessId { nid, pid: hdr.src_pid }
    }

    /// A message that is to be received: into its buffer if it has `matched` one, else it waits.
    pub(crate) fn new_rx(
        &mut self,
        now: Instant,
        side: RxSide,
        hdr: &Hdr,
        initiator: ProcessId,
        matched: Option<Matched>,
    ) -> MsgId {
        let role = match side.kind {
            MsgType::Put => Role::PutIn,
            MsgType::Get => Role::GetIn,
            MsgType::Ack => Role::AckIn,
            MsgType::Reply => Role::ReplyIn,
        };
        self.counts.message_in();
        self.peers.count_received(side.peer_ni);
        let copied = side.copied;
        let deadline = self.tables().deadline_from(now, side.ni);
        let (id, msg) = self.msgs.begin(role, hdr, now);
        msg.stage = if matched.is_some() { Stage::Receiving } else { Stage::Deferred };
        if copied.is_some() {
            // It is treated as if it had never been marked.
            msg.hdr.kind.unmark();
        }
        msg.md = matched.map(|m| m.md);
        msg.rx = Some(side);
        msg.deadline = deadline;
        msg.counted = true;
        msg.ev.initiator = initiator;
        msg.ev.offset = matched.map_or(0, |m| m.offset);
        msg.ev.rlength = if side.kind == MsgType::Put { hdr.payload_len } else { 0 };
        msg.ev.mlength = matched.map_or(0, |m| m.mlength);
        if let Some(copied) = copied {
            self.sessions.take(now, copied, id);
        }
        id
    }

    /// Tries the messages that wait on a portal against what is posted now, oldest first (M-13).
    pub(crate) fn match_delayed(&mut self, now: Instant, portal: u32) {
        for delayed in self.portals.delayed_snapshot(portal) {
            let Some(msg) = live!(self.msgs, delayed.msg) else { continue };
            let Kind::Put { match_bits, offset, .. } = msg.hdr.kind else { continue };
            let want = Wanted {
                portal,
                op: MdOptions::OP_PUT,
                bits: match_bits,
                nid: msg.ev.initiator.nid,
                pid: msg.ev.initiator.pid,
                len: msg.hdr.payload_len,
                offset,
            };
            let verdict = match self.find_buffer(now, &want) {
                Search::Nothing { .. } => continue,
                Search::Found(m) => {
                    let sink = self.portals.sink(&m);
                    if let Some(msg) = self.msgs.get_mut(delayed.msg) {
                        msg.stage = Stage::Receiving;
                        msg.md = Some(m.md);
                        msg.ev.offset = m.offset;
                        msg.ev.mlength = m.mlength;
                    }
                    Verdict::Deliver { msg: delayed.msg, sink }
                }
                Search::TooLong | Search::Full(_) | Search::BadPortal => {
                    self.drop_delayed(delayed, DropReason::TooLong)
                }
            };
            self.portals.take_delayed(portal, |d| d.msg == delayed.msg);
            self.outbox.order(Output::Resume { ni: delayed.ni, rx: delayed.rx, verdict });
        }
    }

    /// Drops what waits on a portal: all of it, or what came in through one interface (M-40, M-41).
    pub(crate) fn flush_delayed(&mut self, portal: u32, through: Option<NiId>, why: DropReason) {
        for d in self.portals.take_delayed(portal, |d| through.is_none_or(|ni| ni == d.ni)) {
            let verdict = self.drop_delayed(d, why);
            self.outbox.order(Output::Resume { ni: d.ni, rx: d.rx, verdict });
        }
    }

    fn drop_delayed(&mut self, d: Delayed, reason: DropReason) -> Verdict {
        if let Some(hdr) = self.msgs.get(d.msg).map(|m| m.hdr) {
            self.count_drop(d.ni, &hdr, reason);
        }
        self.discard(d.msg);
        Verdict::Drop(reason)
    }

    /// Takes in a message for another node, or lets its driver wait.
    pub(crate) fn forward_in(&mut self, now: Instant, side: RxSide, hdr: &Hdr) -> Verdict {
        // Routing may have ended while the message was held by a rule.
        let Some(from) = side.peer_ni.filter(|_| self.router.is_on()) else {
            return Verdict::Drop(DropReason::NotRouter);
        };
        let initiator = ProcessId { nid: hdr.src, pid: hdr.src_pid };
        let id = self.new_rx(now, side, hdr, initiator, None);
        if let Some(pni) = live!(mut self.peers.nis, from) {
            pni.port.refs += 1;
        }
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.role = Role::Forward;
            msg.hop_pid = hdr.dst_pid;
            // How long it waits here is not the sender's affair (C-11).
            msg.deadline = Instant::FAR_FUTURE;
            let pool = PoolKind::for_payload(hdr.payload_len);
            msg.transit = Some(Transit::new(pool));
        }
        match self.admit_transit(id) {
            Some(verdict) => verdict,
            None => {
                self.router.deferred.insert((side.ni, side.id), id);
                Verdict::Defer
            }
        }
    }
}
