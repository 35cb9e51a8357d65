//! Clients: attempts, what becomes of them, and another one if need be.

use core::time::Duration;

use lnet::{Event, EventKind, Get, MatchEntry, MdOptions, Put};
use lnet_scenario::{Exchange, Pace};
use lnet_types::{Errno, Instant, MdId, ProcessId};

use super::server::{ACKED, LOOKED_AT, READS, WRITES};
use super::{
    ACK, ANSWER, ANSWERS, BULK, Buffer, MOVED, Note, Programs, REQUESTS, RPC_LEN, Role, SINK,
    SLOT_BITS, SOURCE, Wish, limits, once, pattern,
};
use crate::directory::HostId;
use crate::host::Host;
use crate::observe::AttemptId;

/// How long a program waits after an error before it tries again.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// A question of the attempt in a slot: its bytes, and those of the answer.
#[derive(Clone, Copy, Debug)]
struct Ask {
    slot: u32,
    size: u32,
    reply: u32,
    ack: bool,
    verify: bool,
}

impl Programs {
    /// Begins an attempt of the exchange in `slot`.
    pub(super) fn attempt(&mut self, now: Instant, host: HostId, at: &mut Host, slot: u32) {
        self.attempts += 1;
        let number = self.attempts << SLOT_BITS | u64::from(slot);
        let s = &mut self.slots[slot as usize];
        s.attempt = number;
        let (flow, to, again) = (s.flow, s.target, s.again);
        let f = &mut self.flows[flow as usize];
        let workload = f.workload;
        let w = &self.scenario.workload[workload];
        s.damaged = false;
        s.awaits = match w.exchange {
            Exchange::Put { ack: true } => ACK,
            Exchange::Request { ack, .. } => ANSWER | if ack { ACK } else { 0 },
            Exchange::Rpc { .. } => ANSWER | MOVED,
            Exchange::Put { ack: false } | Exchange::Get | Exchange::Ping => 0,
        };
        let (exchange, size, verify, timeout) = (w.exchange, w.size, w.verify, w.timeout);
        f.patience.push_back((now + timeout, number));
        if !f.patience_armed {
            f.patience_armed = true;
            self.wishes.push((host, now + timeout, Wish::Patience { flow }));
        }
        let nid = self.nids[to.node.0 as usize].get(usize::from(to.rail)).copied();
        let Some(nid) = nid else { return self.failed(now, host, at, slot, None) };
        if self.watched {
            let attempt = AttemptId(number);
            self.notes.push(Note::Begun { host, workload, attempt, to: nid, again });
        }
        let target = ProcessId::lustre(nid);
        let local = at.clock.local(now);
        let limits = limits(&at.node, timeout);
        let bits = if verify { LOOKED_AT } else { 0 };
        let out = |md, portal, ack, match_bits| Put {
            md,
            ack,
            src: None,
            target,
            portal,
            match_bits,
            offset: 0,
            hdr_data: number,
            timeout: limits,
        };
        let role = Role::Own { attempt: number };
        let begun = match exchange {
            Exchange::Ping => {
                let op = at.node.ping(local, target, None, timeout);
                self.desks[host.0 as usize].ops.insert(op, number);
                Ok(())
            }
            Exchange::Put { ack } => {
                let bytes = verify.then(|| pattern(number, size));
                let (iov, region, owned) = self.memory(host, at, size, bytes);
                let (user, _) = self.post(host, role, region, owned);
                match at.node.bind(once(iov, user, 1 + u32::from(ack))) {
                    Ok(md) => {
                        self.slots[slot as usize].own = Some(md);
                        at.node.put(local, out(md, SINK, ack, bits)).map_err(|e| e.errno())
                    }
                    Err(e) => Err(e.errno()),
                }
            }
            Exchange::Get => {
                let bytes = verify.then(|| vec![0; size as usize]);
                let (iov, region, owned) = self.memory(host, at, size, bytes);
                let (user, _) = self.post(host, role, region, owned);
                match at.node.bind(once(iov, user, 2)) {
                    Ok(md) => {
                        self.slots[slot as usize].own = Some(md);
                        let get = Get {
                            md,
                            src: None,
                            target,
                            portal: SOURCE,
                            match_bits: bits,
                            offset: 0,
                            timeout: limits,
                        };
                        at.node.get(local, get).map_err(|e| e.errno())
                    }
                    Err(e) => Err(e.errno()),
                }
            }
            Exchange::Request { reply, ack } => {
                let bits = bits | if ack { ACKED } else { 0 } | u64::from(reply);
                let ask = Ask { slot, size, reply, ack, verify };
                self.ask(local, host, at, ask, |md| out(md, REQUESTS, ack, bits))
            }
            Exchange::Rpc { write } => {
                let bits = bits | if write { WRITES } else { READS } | u64::from(size);
                let ask = Ask { slot, size: RPC_LEN, reply: RPC_LEN, ack: false, verify };
                let lent = self.lend(local, host, at, Ask { size, ..ask }, write);
                lent.and_then(|()| {
                    self.ask(local, host, at, ask, |md| out(md, REQUESTS, false, bits))
                })
            }
        };
        if let Err(errno) = begun {
            self.failed(now, host, at, slot, Some(errno));
        }
    }

    /// Asks for an answer. The place for it is there before the question is on its way.
    fn ask(
        &mut self,
        local: Instant,
        host: HostId,
        at: &mut Host,
        ask: Ask,
        put: impl FnOnce(MdId) -> Put,
    ) -> Result<(), Errno> {
        let Ask { slot, size, reply, ack, verify } = ask;
        let attempt = self.slots[slot as usize].attempt;
        let bytes = verify.then(|| vec![0; reply as usize]);
        let (iov, region, owned) = self.memory(host, at, reply, bytes);
        let (user, _) = self.post(host, Role::Answer { attempt }, region, owned);
        let mut md = once(iov, user, 1);
        md.options = MdOptions::OP_PUT | MdOptions::TRUNCATE;
        let md = at.node.attach(local, ANSWERS, MatchEntry::bits(attempt), md);
        self.slots[slot as usize].answer = Some(md.map_err(|e| e.errno())?);
        let bytes = verify.then(|| pattern(attempt, size));
        let (iov, region, owned) = self.memory(host, at, size, bytes);
        let (user, _) = self.post(host, Role::Own { attempt }, region, owned);
        let md = at.node.bind(once(iov, user, 1 + u32::from(ack))).map_err(|e| e.errno())?;
        self.slots[slot as usize].own = Some(md);
        at.node.put(local, put(md)).map_err(|e| e.errno())
    }

    /// Lends the server of an RPC the place of its bulk.
    fn lend(
        &mut self,
        local: Instant,
        host: HostId,
        at: &mut Host,
        ask: Ask,
        write: bool,
    ) -> Result<(), Errno> {
        let Ask { slot, size, verify, .. } = ask;
        let attempt = self.slots[slot as usize].attempt;
        let bytes =
            verify.then(|| if write { pattern(attempt, size) } else { vec![0; size as usize] });
        let (iov, region, owned) = self.memory(host, at, size, bytes);
        let (user, _) = self.post(host, Role::Bulk { attempt }, region, owned);
        let mut md = once(iov, user, 1);
        let op = if write { MdOptions::OP_GET } else { MdOptions::OP_PUT };
        md.options = op | MdOptions::TRUNCATE;
        let md = at.node.attach(local, BULK, MatchEntry::bits(attempt), md);
        self.slots[slot as usize].bulk = Some(md.map_err(|e| e.errno())?);
        Ok(())
    }

    /// An event on the place of an RPC's bulk.
    pub(super) fn bulk_event(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        buffer: &Buffer,
        attempt: u64,
        event: &Event,
    ) {
        let Some(slot) = self.slot_of(attempt) else { return };
        if event.unlinked {
            self.slots[slot as usize].bulk = None;
        }
        if !matches!(event.kind, EventKind::Put | EventKind::Get) || event.status.is_err() {
            return;
        }
        if event.kind == EventKind::Put
            && let Some(bytes) = at.mem.look(buffer.region, event.mlength)
        {
            self.slots[slot as usize].damaged = bytes != pattern(!attempt, event.mlength);
        }
        self.came(now, host, at, slot, MOVED);
    }

    /// An event on the buffer that a client sends or fetches into.
    pub(super) fn own_event(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        buffer: &Buffer,
        attempt: u64,
        event: &Event,
    ) {
        let Some(slot) = self.slot_of(attempt) else { return };
        if event.unlinked {
            self.slots[slot as usize].own = None;
        }
        if let Err(errno) = event.status {
            return self.failed(now, host, at, slot, Some(errno));
        }
        let flow = &self.flows[self.slots[slot as usize].flow as usize];
        let w = &self.scenario.workload[flow.workload];
        match (w.exchange, event.kind) {
            (Exchange::Put { ack: false }, EventKind::Send) => {
                self.ended(now, host, at, slot, true);
            }
            (Exchange::Put { .. } | Exchange::Request { .. }, EventKind::Ack) => {
                self.came(now, host, at, slot, ACK);
            }
            (Exchange::Get, EventKind::Reply) => {
                let source = u64::from(self.slots[slot as usize].target.node.0);
                let intact = match at.mem.look(buffer.region, event.mlength) {
                    Some(bytes) if w.verify => Some(bytes == pattern(source, event.mlength)),
                    _ => None,
                };
                if self.watched {
                    let attempt = AttemptId(attempt);
                    self.notes.push(Note::Delivered { host, attempt, answer: true, intact });
                }
                self.ended(now, host, at, slot, true);
            }
            // It is gone, and nothing more will come.
            (Exchange::Get, EventKind::Unlink) => self.failed(now, host, at, slot, None),
            (_, EventKind::Unlink) if self.slots[slot as usize].awaits & ACK != 0 => {
                self.failed(now, host, at, slot, None);
            }
            _ => {}
        }
    }

    /// An event on the buffer for the answer to a request.
    pub(super) fn answer_event(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        buffer: &Buffer,
        attempt: u64,
        event: &Event,
    ) {
        let slot = self.slot_of(attempt);
        if let (Some(slot), true) = (slot, event.unlinked) {
            self.slots[slot as usize].answer = None;
        }
        if event.kind != EventKind::Put || event.status.is_err() {
            return;
        }
        let looked_at = at.mem.look(buffer.region, event.mlength);
        let damaged = slot.is_some_and(|slot| self.slots[slot as usize].damaged);
        let intact = looked_at.map(|bytes| !damaged && bytes == pattern(!attempt, event.mlength));
        if self.watched {
            let attempt = AttemptId(attempt);
            self.notes.push(Note::Delivered { host, attempt, answer: true, intact });
        }
        if let Some(slot) = slot {
            self.came(now, host, at, slot, ANSWER);
        }
    }

    /// Something that the attempt in `slot` waits for has come.
    fn came(&mut self, now: Instant, host: HostId, at: &mut Host, slot: u32, what: u8) {
        let awaits = &mut self.slots[slot as usize].awaits;
        *awaits &= !what;
        if *awaits == 0 {
            self.ended(now, host, at, slot, true);
        }
    }

    /// The exchange in `slot` is over.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        slot: u32,
        well: bool,
    ) {
        self.clear(now, at, slot);
        let s = &mut self.slots[slot as usize];
        let (flow, took) = (s.flow, now.saturating_since(s.begun));
        let attempt = AttemptId(core::mem::take(&mut s.attempt));
        let f = &mut self.flows[flow as usize];
        f.free.push(slot);
        f.under_way = f.under_way.saturating_sub(1);
        if core::mem::take(&mut f.owed) {
            self.soon.push(flow);
        }
        // What is over at the front of the line needs no patience.
        while let Some(&(_, first)) = self.flows[flow as usize].patience.front()
            && self.slot_of(first).is_none()
        {
            self.flows[flow as usize].patience.pop_front();
        }
        let f = &mut self.flows[flow as usize];
        let (workload, length) = (f.workload, now.saturating_since(f.progress));
        if well {
            f.progress = now;
            self.notes.push(Note::Gap { length });
        }
        self.notes.push(Note::Ended { host, workload, attempt, took, well });
        if let Pace::Window { think, .. } = self.scenario.workload[workload].pace {
            // What fails at once must not be tried for ever in the same instant.
            if well && think.is_zero() {
                self.soon.push(flow);
            } else {
                self.wishes.push((host, now + think, Wish::Next { flow, life: at.incarnation }));
            }
        }
    }

    /// The attempt in `slot` has failed, or taken too long.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        slot: u32,
        why: Option<Errno>,
    ) {
        self.clear(now, at, slot);
        let s = &mut self.slots[slot as usize];
        let attempt = s.attempt;
        if self.watched {
            self.notes.push(Note::Failed { host, attempt: AttemptId(attempt), why });
        }
        let retries = {
            let flow = &self.flows[s.flow as usize];
            self.scenario.workload[flow.workload].retries
        };
        if s.again >= retries {
            return self.ended(now, host, at, slot, false);
        }
        s.again += 1;
        // Until then it has a number of its own, so that nothing late is taken for it.
        self.attempts += 1;
        s.attempt = self.attempts << SLOT_BITS | u64::from(slot);
        let wish = Wish::Again { slot, attempt: s.attempt };
        let wait = if why.is_some() { AFTER_ERROR } else { Duration::ZERO };
        self.wishes.push((host, now + wait, wish));
    }

    /// Takes back the descriptors of an attempt that is over.
    fn clear(&mut self, now: Instant, at: &mut Host, slot: u32) {
        let s = &mut self.slots[slot as usize];
        let local = at.clock.local(now);
        for md in [s.own.take(), s.answer.take(), s.bulk.take()].into_iter().flatten() {
            // It may be gone already, by itself.
            let _ = at.node.unlink(local, md);
        }
    }

    /// Whose attempts have taken too long?
    pub(super) fn patience(&mut self, now: Instant, host: HostId, at: &mut Host, flow: u32) {
        self.flows[flow as usize].patience_armed = false;
        while let Some(&(until, attempt)) = self.flows[flow as usize].patience.front() {
            let slot = self.slot_of(attempt);
            if slot.is_some() && until > now {
                self.flows[flow as usize].patience_armed = true;
                self.wishes.push((host, until, Wish::Patience { flow }));
                return;
            }
            self.flows[flow as usize].patience.pop_front();
            if let Some(slot) = slot {
                self.failed(now, host, at, slot, None);
            }
        }
    }
}
