//! Clients: attempts, what becomes of them, and another one if need be.

use core::time::Duration;

use lnet::{Event, EventKind, Get, MatchEntry, MdOptions, Put};
use lnet_scenario::{Exchange, Pace};
use lnet_types::{Errno, Instant, ProcessId};

use super::server::LOOKED_AT;
use super::{
    ANSWERS, Buffer, Note, Programs, REQUESTS, Role, SINK, SLOT_BITS, SOURCE, Wish, limits, once,
    pattern,
};
use crate::directory::HostId;
use crate::host::Host;
use crate::observe::AttemptId;

/// How long a program waits after an error before it tries again.
const AFTER_ERROR: Duration = Duration::from_secs(1);

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
            Exchange::Request { reply } => {
                // The place for the answer is there before the request is on its way.
                let bytes = verify.then(|| vec![0; reply as usize]);
                let (iov, region, owned) = self.memory(host, at, reply, bytes);
                let (user, _) = self.post(host, Role::Answer { attempt: number }, region, owned);
                let mut md = once(iov, user, 1);
                md.options = MdOptions::OP_PUT | MdOptions::TRUNCATE;
                let entry = MatchEntry::bits(number);
                match at.node.attach(local, ANSWERS, entry, md) {
                    Ok(md) => {
                        self.slots[slot as usize].answer = Some(md);
                        let bytes = verify.then(|| pattern(number, size));
                        let (iov, region, owned) = self.memory(host, at, size, bytes);
                        let (user, _) = self.post(host, role, region, owned);
                        match at.node.bind(once(iov, user, 1)) {
                            Ok(md) => {
                                self.slots[slot as usize].own = Some(md);
                                let bits = bits | u64::from(reply);
                                let put = out(md, REQUESTS, false, bits);
                                at.node.put(local, put).map_err(|e| e.errno())
                            }
                            Err(e) => Err(e.errno()),
                        }
                    }
                    Err(e) => Err(e.errno()),
                }
            }
        };
        if let Err(errno) = begun {
            self.failed(now, host, at, slot, Some(errno));
        }
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
            (Exchange::Put { ack: false }, EventKind::Send)
            | (Exchange::Put { ack: true }, EventKind::Ack) => {
                self.ended(now, host, at, slot, true);
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
            (Exchange::Put { ack: true } | Exchange::Get, EventKind::Unlink) => {
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
        let intact = looked_at.map(|bytes| bytes == pattern(!attempt, event.mlength));
        if self.watched {
            let attempt = AttemptId(attempt);
            self.notes.push(Note::Delivered { host, attempt, answer: true, intact });
        }
        if let Some(slot) = slot {
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
        for md in [s.own.take(), s.answer.take()].into_iter().flatten() {
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
