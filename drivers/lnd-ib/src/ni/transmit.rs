//! Downwards: messages of the node, from the order to the posted chain of work requests, and the end
//! of each transmit.

use lnet::{NI_STOPPED, Payload, Transmit};
use lnet_types::{Errno, Fault, Instant, IoVec, MsgId, Nid, Pid, iovec_len, iovec_slice};
use lnet_wire::ib::{Body, Done, IMMEDIATE_MAX, MSG_MAX, Msg, RdmaDesc, Type, Version};
use lnet_wire::{Handle, Hdr, Kind};
use slotmap::{Key, KeyData};

use super::receive::Pending;
use super::{Back, IbNi, Timer};
use crate::conn::{ConnState, Served};
use crate::fault::{CloseReason, NO_DEVICE, NO_ROOM, UNSPEAKABLE, map_fault};
use crate::flags::Flags;
use crate::rdma::plan;
use crate::tx::{Landing, Place, Tx, TxKey, TxKind};
use crate::value::{Access, ConnId, Event, Landed, MapId, MapMemory, Output, Post, WorkId, Write};

/// NOOPs that may be outstanding (wire.md 7.5).
const NOOPS_MAX: u8 = 2;

impl IbNi {
    /// Takes a message of the node; its end is an [`Event::TxDone`].
    ///
    /// # Errors
    /// Refused at once, and not reported again: the interface stops, its device is gone, the message
    /// has a 16-byte address or is not for this network, too many messages wait for its peer.
    pub fn send(&mut self, now: Instant, transmit: Transmit) -> Result<(), Fault> {
        self.clock(now);
        let (to, hdr) = (transmit.to.nid, transmit.hdr);
        if self.stopped {
            return Err(NI_STOPPED);
        }
        if self.device_gone {
            return Err(NO_DEVICE);
        }
        if [to, hdr.src, hdr.dst].iter().any(|nid| nid.is_large()) || to.is_any() {
            return Err(UNSPEAKABLE);
        }
        let nob = transmit.payload.len();
        let answered = match hdr.kind {
            Kind::Reply { dst, .. } => self.take_served(to, dst),
            _ => None,
        };
        let base = self.new_tx(to, Some(transmit.msg), transmit.timeout);
        if let Some((conn, served)) = answered {
            self.answer(conn, served, base, transmit.payload);
            return Ok(());
        }
        if self.peers.get(&to).is_some_and(|p| p.queue.len() >= self.config.limits.waiting_per_peer)
        {
            return Err(NO_ROOM);
        }
        let fits = |nob: u64| nob <= IMMEDIATE_MAX as u64;
        let one_place = |sink: &IoVec| sink.len() == 1 || !self.config.one_span;
        let (kind, memory) = match hdr.kind {
            Kind::Get { sink_len, .. }
                if !fits(sink_len.into())
                    && hdr.dst == to
                    && iovec_len(&transmit.sink) >= u64::from(sink_len)
                    && one_place(&transmit.sink) =>
            {
                let sink = iovec_slice(&transmit.sink, 0, sink_len.into());
                let memory = (MapMemory::Spans(sink.clone()), Access::RemoteWrite);
                (TxKind::Get { hdr, sink, rd: None, landed: None }, Some(memory))
            }
            _ if fits(nob) => (TxKind::Immediate { hdr, payload: transmit.payload }, None),
            _ => {
                let memory = (MapMemory::Payload(transmit.payload), Access::LocalRead);
                (TxKind::Put { hdr, nob, done: None }, Some(memory))
            }
        };
        let tx = self.insert(Tx { kind, ..base });
        match memory {
            Some((memory, access)) => self.map(tx, memory, access),
            None => self.launch(tx),
        }
        Ok(())
    }

    /// Gives a message back of which nothing has been posted: true, and it is not reported.
    pub fn recall(&mut self, msg: MsgId) -> bool {
        let found = self.txs.iter().find(|(_, tx)| {
            let unposted = tx.flags.sending == 0 && !tx.flags.waiting;
            let first = !matches!(
                tx.kind,
                TxKind::PutAck { .. }
                    | TxKind::GetData { .. }
                    | TxKind::Refusal { .. }
                    | TxKind::Put { done: Some(_), .. }
            );
            tx.msg == Some(msg) && unposted && first
        });
        let Some((key, _)) = found else { return false };
        if let Some(tx) = self.txs.get_mut(key) {
            tx.msg = None;
        }
        self.finish(key);
        true
    }

    /// Forgets that the node's message `msg` is being received: it is not reported any more. The map
    /// that the peer may be writing through; behind this call it must be unreachable, which costs the
    /// connection if the peer does write. A message whose memory the peer does not know is dropped.
    pub fn abandon(&mut self, now: Instant, msg: MsgId) -> Option<MapId> {
        self.clock(now);
        let is_it = |tx: &Tx| tx.msg == Some(msg) && matches!(tx.kind, TxKind::PutAck { .. });
        let (key, _) = self.txs.iter().find(|(_, tx)| is_it(tx))?;
        let tx = self.txs.get_mut(key)?;
        tx.msg = None;
        let map = tx.map.take()?;
        self.maps.remove(&map);
        if !tx.announced {
            tx.map = Some(map);
            self.unmappable(key, Errno::OK);
            return None;
        }
        tx.announced = false;
        Some(map)
    }

    /// Ends the exchange of the node's GET `msg` ([`lnet::Driver::withdraw`]): it counts as sent. The map that
    /// the peer may be writing through, as with [`Self::abandon`]; its GET_DONE is awaited.
    pub fn withdraw(&mut self, now: Instant, msg: MsgId) -> Option<MapId> {
        self.clock(now);
        let is_it = |tx: &Tx| tx.msg == Some(msg) && matches!(tx.kind, TxKind::Get { .. });
        let (key, _) = self.txs.iter().find(|(_, tx)| is_it(tx))?;
        let tx = self.txs.get_mut(key)?;
        let unposted = tx.flags.sending == 0 && !tx.flags.waiting;
        if unposted {
            self.finish(key);
            return None;
        }
        (tx.msg, tx.announced) = (None, false);
        let map = tx.map.take();
        if let Some(map) = map {
            self.maps.remove(&map);
        }
        self.report(Event::TxDone { msg, outcome: Ok(()) });
        map
    }

    /// Memory has been mapped, or not. Memory to be read needs no descriptor: any will do.
    pub fn mapped(&mut self, now: Instant, map: MapId, outcome: Result<RdmaDesc, Errno>) {
        self.clock(now);
        let Some(&key) = self.maps.get(&map) else { return };
        let Some(tx) = self.txs.get_mut(key).filter(|tx| tx.place == Place::Mapping) else {
            return;
        };
        let error = match outcome {
            Ok(desc) => match &mut tx.kind {
                TxKind::Get { sink, rd, .. } => {
                    let short = desc.nob() < iovec_len(sink);
                    *rd = Some(desc);
                    short.then_some(Errno::EINVAL)
                }
                TxKind::PutAck { rd, nob, .. } => {
                    let short = desc.nob() < u64::from(*nob);
                    *rd = Some(desc);
                    short.then_some(Errno::EINVAL)
                }
                TxKind::GetData { done, to, writes } => {
                    // The status of a GET_DONE to be is its length.
                    match plan(map, done.status.unsigned_abs().into(), to) {
                        Ok(planned) => {
                            *writes = planned;
                            None
                        }
                        Err(_) => Some(Errno::EPROTO),
                    }
                }
                _ => None,
            },
            Err(errno) => {
                tx.map = None;
                self.maps.remove(&map);
                Some(errno)
            }
        };
        match error {
            Some(errno) => self.unmappable(key, errno),
            None => self.launch(key),
        }
    }

    /// A chain of work requests has completed.
    pub fn work_done(&mut self, now: Instant, work: WorkId, outcome: Result<(), ()>) {
        self.clock(now);
        let Some((id, key)) = self.works.remove(&work) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.posted_sends = conn.posted_sends.saturating_sub(1);
        let (up, peer) = (conn.state == ConnState::Up, conn.peer);
        let mut answered = false;
        if let Some(tx) = self.txs.get_mut(key) {
            answered = tx.is_answered();
            tx.flags.completed();
            if matches!(tx.kind, TxKind::Noop) {
                conn.noops = conn.noops.saturating_sub(1);
            }
        }
        match outcome {
            Ok(()) if up => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.last_alive = self.now;
                }
                self.watch_completed(id);
                self.finish_if_complete(key);
                self.pump(id);
            }
            Err(()) if up => {
                if answered {
                    self.finish_if_complete(key);
                } else if let Some(tx) = self.txs.get_mut(key) {
                    // Its own posting counts as under way: it may have arrived.
                    let flags = Flags { sending: 1, ..tx.flags };
                    let fault = CloseReason::Work.fault(flags, self.config.legacy_status);
                    tx.failed.get_or_insert(fault);
                }
                self.close(id, CloseReason::Work);
            }
            outcome => {
                let tx = self.txs.get_mut(key).filter(|tx| tx.flags.is_complete());
                if let (Some(tx), Ok(())) = (tx, outcome) {
                    // The peer's adapter has it: only the report of that is late.
                    tx.doom = None;
                }
                self.drained(id, Some(key));
            }
        }
    }

    /// A chain of work requests could not be posted at all.
    pub fn post_failed(&mut self, now: Instant, work: WorkId) {
        self.work_done(now, work, Err(()));
    }

    /// A transmit that nothing is known of yet.
    pub(super) fn new_tx(&self, peer: Nid, msg: Option<MsgId>, limit: core::time::Duration) -> Tx {
        Tx {
            peer,
            conn: None,
            place: Place::Mapping,
            kind: TxKind::Noop,
            flags: Flags::default(),
            msg,
            failed: None,
            doom: None,
            map: None,
            announced: false,
            since: self.now,
            deadline: self.now + limit,
            limit,
        }
    }

    /// Enters a transmit, with its timer.
    pub(super) fn insert(&mut self, tx: Tx) -> TxKey {
        let deadline = tx.deadline;
        let key = self.txs.insert(tx);
        self.timers.insert((deadline, Timer::Tx(key)));
        key
    }

    fn set_deadline(&mut self, key: TxKey, deadline: Instant) {
        let Some(tx) = self.txs.get_mut(key) else { return };
        self.timers.remove(&(tx.deadline, Timer::Tx(key)));
        tx.deadline = deadline;
        self.timers.insert((deadline, Timer::Tx(key)));
    }

    pub(super) fn map(&mut self, key: TxKey, memory: MapMemory, access: Access) {
        self.last_map += 1;
        let map = MapId(self.last_map);
        if let Some(tx) = self.txs.get_mut(key) {
            tx.map = Some(map);
        }
        self.maps.insert(map, key);
        self.outputs.push_back(Output::Map { map, memory, access });
    }

    /// Memory of a transmit cannot be reached by the adapter: the exchange ends here, and what a peer
    /// asked for is refused.
    pub(super) fn unmappable(&mut self, key: TxKey, errno: Errno) {
        let Some(tx) = self.txs.get_mut(key) else { return };
        tx.failed = Some(map_fault(errno));
        let (conn, status) = (tx.conn, errno.negative());
        if matches!(tx.kind, TxKind::PutAck { .. })
            && let Some(conn) = conn.and_then(|id| self.conns.get_mut(id))
        {
            // There will be no PUT_DONE to return it.
            conn.credits.owe();
        }
        let refusal = match &tx.kind {
            TxKind::PutAck { src_cookie, .. } => Some((Type::PutNak, *src_cookie)),
            TxKind::GetData { done, .. } => Some((Type::GetDone, done.cookie)),
            _ => None,
        };
        self.finish(key);
        if let (Some(conn), Some((kind, cookie))) = (conn, refusal) {
            self.refuse(conn, kind, Done { cookie, status });
        }
    }

    /// Answers a peer's request without data.
    pub(super) fn refuse(&mut self, conn: ConnId, kind: Type, done: Done) {
        let up = self.conns.get(conn).filter(|conn| conn.state == ConnState::Up);
        let Some(peer) = up.map(|conn| conn.peer) else { return };
        let base = self.new_tx(peer, None, self.config.timeout);
        let tx = self.insert(Tx { kind: TxKind::Refusal { kind, done }, ..base });
        self.enqueue(tx, conn);
    }

    /// The GET_REQ that a REPLY to `peer` with this handle answers.
    fn take_served(&mut self, peer: Nid, ret: Handle) -> Option<(ConnId, Served)> {
        for id in self.peers.get(&peer)?.conns.clone() {
            let Some(conn) = self.conns.get_mut(id) else { continue };
            if let Some(at) = conn.served.iter().position(|served| served.ret == ret) {
                return Some((id, conn.served.remove(at)));
            }
        }
        None
    }

    /// The REPLY to a GET_REQ: its payload goes by RDMA, and GET_DONE behind it.
    fn answer(&mut self, conn: ConnId, served: Served, base: Tx, payload: Payload) {
        self.backs.push((conn, served.slot, Back::Credit));
        let nob = payload.len();
        let Ok(status) = i32::try_from(nob) else { return };
        let done = Done { cookie: served.cookie, status };
        if nob == 0 {
            let kind = TxKind::Refusal { kind: Type::GetDone, done };
            let tx = self.insert(Tx { kind, ..base });
            self.enqueue(tx, conn);
            return;
        }
        let kind = TxKind::GetData { done, to: served.rd, writes: Vec::new() };
        let tx = self.insert(Tx { kind, conn: Some(conn), ..base });
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.txs.insert(tx);
        }
        self.map(tx, MapMemory::Payload(payload), Access::LocalRead);
    }

    /// A transmit is ready: it goes to its connection, or to one of its peer's, or waits for one.
    fn launch(&mut self, key: TxKey) {
        let Some(tx) = self.txs.get_mut(key) else { return };
        if let Some(conn) = tx.conn {
            self.enqueue(key, conn);
            return;
        }
        let nid = tx.peer;
        let peer = self.peer_mut(nid);
        peer.turn = peer.turn.wrapping_add(1);
        let (count, turn) = (peer.conns.len(), peer.turn);
        match peer.conns.get(turn % count.max(1)).copied() {
            Some(conn) => self.enqueue(key, conn),
            None => {
                peer.queue.push_back(key);
                let wait = self.config.wait_timeout();
                let Some(tx) = self.txs.get_mut(key) else { return };
                tx.place = Place::Peer;
                let deadline = tx.deadline.min(self.now + wait);
                self.set_deadline(key, deadline);
                self.watch(nid, true);
            }
        }
        self.dial_if_wanted(nid);
    }

    /// Queues a transmit on a connection, for its first message or its next one.
    pub(super) fn enqueue(&mut self, key: TxKey, id: ConnId) {
        let now = self.now;
        let (Some(tx), Some(conn)) = (self.txs.get_mut(key), self.conns.get_mut(id)) else {
            return;
        };
        if conn.state != ConnState::Up {
            // It ended while memory was being mapped, and what it held has ended with it.
            return;
        }
        let frags = match &tx.kind {
            TxKind::Get { rd: Some(rd), .. } | TxKind::PutAck { rd: Some(rd), .. } => {
                rd.frags.len()
            }
            _ => 0,
        };
        if frags > usize::from(conn.max_frags) {
            self.unmappable(key, Errno::EMSGSIZE);
            return;
        }
        (tx.conn, tx.place, tx.since) = (Some(id), Place::Conn, now);
        tx.flags.queue();
        let limit = tx.limit;
        conn.txs.insert(key);
        match tx.kind.next_type() {
            Type::PutReq | Type::GetReq => conn.requests.push_back(key),
            Type::Immediate => conn.normal.push_back(key),
            _ => conn.free.push_back(key),
        }
        self.set_deadline(key, now + limit);
        self.pump(id);
    }

    /// Posts what may go: first what takes no credit, then a NOOP if credits are owed and nothing else
    /// carries them, then the rest (B-12).
    pub(super) fn pump(&mut self, id: ConnId) {
        loop {
            let Some(conn) = self.conns.get_mut(id).filter(|c| c.state == ConnState::Up) else {
                return;
            };
            while !conn.requests.is_empty() && conn.credits.reserve() {
                conn.normal.extend(conn.requests.pop_front());
            }
            if !conn.requests.is_empty() || !conn.normal.is_empty() {
                conn.blocked_since.get_or_insert(self.now);
            }
            if conn.posted_sends >= conn.sends_max {
                return;
            }
            let first = conn.normal.front().and_then(|key| self.txs.get(*key));
            let kind = first.map_or(Type::Immediate, |tx| tx.kind.next_type());
            let goes = !conn.normal.is_empty() && conn.credits.allows(kind);
            let noop = (conn.credits.is_due() || conn.keepalive)
                && conn.noops < NOOPS_MAX
                && conn.credits.allows(Type::Noop);
            let next = if let Some(key) = conn.free.pop_front() {
                Some(key)
            } else if noop && !goes {
                None
            } else if goes {
                conn.normal.pop_front()
            } else {
                return;
            };
            let key = match next {
                Some(key) => key,
                None => self.noop(id),
            };
            self.post(key, id);
        }
    }

    fn noop(&mut self, id: ConnId) -> TxKey {
        self.stats.noops += 1;
        let peer = self.conns.get_mut(id).map_or(Nid::ANY, |conn| {
            conn.noops += 1;
            conn.peer
        });
        let base = self.new_tx(peer, None, self.config.timeout);
        let key = self.insert(Tx { conn: Some(id), place: Place::Conn, ..base });
        if let Some(conn) = self.conns.get_mut(id) {
            conn.txs.insert(key);
        }
        key
    }

    /// Posts the next message of a transmit, behind its writes.
    fn post(&mut self, key: TxKey, id: ConnId) {
        let (Some(tx), Some(conn)) = (self.txs.get_mut(key), self.conns.get_mut(id)) else {
            return;
        };
        let kind = tx.kind.next_type();
        let credits = conn.credits.spend(kind);
        let cookie = key.data().as_ffi();
        let (body, writes, payload) = body(&tx.kind, cookie);
        let (peer, stamp, version) = (conn.peer, conn.stamp, conn.version);
        let extra = payload.as_ref().map_or(0, Payload::len);
        conn.posted_sends += 1;
        if matches!(kind, Type::Immediate | Type::PutReq | Type::GetReq) {
            conn.blocked_since = None;
        }
        conn.last_sent = self.now;
        conn.keepalive = false;
        tx.flags.posted(kind);
        tx.announced |= matches!(kind, Type::GetReq | Type::PutAck);
        self.last_work += 1;
        let work = WorkId(self.last_work);
        self.works.insert(work, (id, key));
        self.watch_posted(id, kind != Type::Noop);
        let msg = Msg { head: self.head(peer, stamp, version, credits), body };
        let mut head = vec![0; msg.len().min(MSG_MAX)];
        // `send` refuses payloads and addresses that do not fit, `enqueue` fragments.
        let written = msg.emit(usize::try_from(extra).unwrap_or(MSG_MAX), &mut head);
        debug_assert!(written.is_ok(), "{msg}: {written:?}");
        let by_rdma: u64 = writes.iter().map(|write| u64::from(write.len)).sum();
        self.stats.bytes_out += head.len() as u64 + extra + by_rdma;
        self.outputs.push_back(Output::Post(Post { conn: id, work, writes, kind, head, payload }));
    }

    pub(super) fn finish_if_complete(&mut self, key: TxKey) {
        if self.txs.get(key).is_some_and(|tx| tx.flags.is_complete() && tx.place == Place::Conn) {
            self.finish(key);
        }
    }

    /// Ends a transmit with a fault.
    pub(super) fn fail(&mut self, key: TxKey, fault: Fault) {
        if let Some(tx) = self.txs.get_mut(key) {
            tx.failed.get_or_insert(fault);
            self.finish(key);
        }
    }

    /// Ends a transmit: its timer, its memory, its report. The adapter can't reach its memory behind
    /// [`Output::Unmap`], which comes first (RS-096).
    pub(super) fn finish(&mut self, key: TxKey) {
        let Some(tx) = self.txs.remove(key) else { return };
        self.timers.remove(&(tx.deadline, Timer::Tx(key)));
        let mut unreserved = None;
        if let Some((id, conn)) = tx.conn.and_then(|id| Some((id, self.conns.get_mut(id)?))) {
            conn.txs.remove(&key);
            if tx.flags.queued {
                // A request there has its reserved credit, and no answer will bring that back.
                if conn.normal.contains(&key)
                    && matches!(tx.kind.next_type(), Type::PutReq | Type::GetReq)
                {
                    conn.credits.unreserve();
                    unreserved = Some(id);
                }
                for queue in [&mut conn.requests, &mut conn.normal, &mut conn.free] {
                    queue.retain(|other| *other != key);
                }
            }
        }
        if tx.place == Place::Peer
            && let Some(peer) = self.peers.get_mut(&tx.peer)
        {
            peer.queue.retain(|other| *other != key);
        }
        if let Some(map) = tx.map {
            self.maps.remove(&map);
            self.outputs.push_back(Output::Unmap { map });
        }
        let outcome = tx.failed.or(tx.doom).map_or(Ok(()), Err);
        match (tx.msg, tx.kind) {
            (Some(msg), TxKind::PutAck { landing, .. }) => {
                let place = match (tx.map, landing) {
                    (Some(map), Landing::Node) => Landed::Buffer(map),
                    (Some(map), Landing::Through(to)) => {
                        if outcome.is_ok() {
                            self.outputs.push_back(Output::Scatter { map, to });
                        }
                        Landed::InPlace
                    }
                    _ => Landed::InPlace,
                };
                self.report(Event::RxDone { msg, outcome: outcome.map(|()| place) });
            }
            (Some(msg), kind) => {
                self.report(Event::TxDone { msg, outcome });
                if let (TxKind::Get { hdr, landed: Some(nob), .. }, Ok(())) = (kind, outcome) {
                    self.landed(tx.peer, &hdr, nob);
                }
            }
            (None, _) => {}
        }
        if let Some(id) = unreserved {
            self.pump(id);
        }
    }

    /// The data of a GET are in place: the node decides on the REPLY that would have carried them.
    fn landed(&mut self, peer: Nid, get: &Hdr, nob: u32) {
        let Kind::Get { ret, .. } = get.kind else { return };
        let hdr = Hdr {
            dst: get.src,
            src: get.dst,
            dst_pid: get.src_pid,
            src_pid: get.dst_pid,
            payload_len: nob,
            kind: Kind::Reply { dst: ret, pad: [0; 24] },
        };
        self.header(peer, Pid::LUSTRE, hdr, Pending::Landed);
    }
}

/// What a transmit posts next: message, writes before it, payload behind it.
fn body(kind: &TxKind, cookie: u64) -> (Body, Vec<Write>, Option<Payload>) {
    match kind {
        TxKind::Immediate { hdr, payload } => {
            (Body::Immediate(*hdr), Vec::new(), Some(payload.clone()))
        }
        TxKind::Put { done: Some((done, writes)), .. } => {
            (Body::PutDone(*done), writes.clone(), None)
        }
        TxKind::Put { hdr, done: None, .. } => {
            (Body::PutReq { hdr: *hdr, cookie }, Vec::new(), None)
        }
        TxKind::Get { hdr, rd: Some(rd), .. } => {
            (Body::GetReq { hdr: *hdr, cookie, rd: rd.clone() }, Vec::new(), None)
        }
        TxKind::PutAck { src_cookie, rd: Some(rd), .. } => {
            let (src_cookie, rd) = (*src_cookie, rd.clone());
            (Body::PutAck { src_cookie, dst_cookie: cookie, rd }, Vec::new(), None)
        }
        TxKind::GetData { done, writes, .. } => (Body::GetDone(*done), writes.clone(), None),
        TxKind::Refusal { kind: Type::PutNak, done } => (Body::PutNak(*done), Vec::new(), None),
        TxKind::Refusal { done, .. } => (Body::GetDone(*done), Vec::new(), None),
        // Memory is mapped before its transmit is queued.
        TxKind::Get { .. } | TxKind::PutAck { .. } | TxKind::Noop => (Body::Noop, Vec::new(), None),
    }
}

/// The transmit that a cookie names.
pub(super) fn of_cookie(cookie: u64) -> TxKey {
    TxKey::from(KeyData::from_ffi(cookie))
}

/// Whether NOOPs return a credit themselves.
pub(super) const fn noop_has_credit(version: Version) -> bool {
    Type::Noop.takes_credit(version)
}
