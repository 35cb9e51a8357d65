//! Servers: buffers that take PUTs, give to GETs, and requests that are answered.

use lnet::{Event, EventKind, Get, MatchEntry, MdOptions, MdSpec, Put, Unlink};
use lnet_types::{Instant, IoVec, Nid, ProcessId};

use super::Note;
use super::{
    ANSWERS, BULK, Buffer, MESSAGE_MAX, Programs, REQUESTS, RPC_LEN, Role, Rpc, SINK, SOURCE,
    limits, once, pattern,
};
use crate::directory::HostId;
use crate::host::Host;
use crate::observe::AttemptId;

/// Buffers that a server has posted at any time, where messages take time to come.
const BUFFERS: usize = 8;
/// The longest messages that fit into one of them.
const MESSAGES: u32 = 8;
/// Its length at least.
const BUFFER_MIN: u32 = 64 << 10;

/// Match bits of a request: bytes of the answer, whether they are looked at, and whether the answer
/// asks for an ACK.
pub(super) const LOOKED_AT: u64 = 1 << 63;
/// See [`LOOKED_AT`].
pub(super) const ACKED: u64 = 1 << 62;
/// Of an RPC that reads; the bytes are those of its bulk.
pub(super) const READS: u64 = 1 << 61;
/// Of one that writes.
pub(super) const WRITES: u64 = 1 << 60;

/// An answer that is to be sent.
#[derive(Clone, Copy, Debug)]
struct Reply {
    attempt: u64,
    len: u32,
    looked_at: bool,
    ack: bool,
    target: ProcessId,
    src: Option<Nid>,
}

impl Programs {
    /// Posts what a server of this host needs.
    pub(super) fn serve_all(&mut self, now: Instant, host: HostId, at: &mut Host) {
        let Some(service) = self.desks[host.0 as usize].serves else { return };
        let iov = match service.real {
            true => at.mem.add_bytes(pattern(u64::from(host.0), MESSAGE_MAX)),
            false => at.mem.add(MESSAGE_MAX, false),
        };
        let give = MdOptions::OP_GET | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE;
        self.offer(now, host, at, (Role::Source, SOURCE), iov, |md| md.options = give);
        let many = service.real && at.mem.moves_bytes();
        for _ in 0..if many { BUFFERS } else { 1 } {
            self.take_in(now, host, at, Role::Sink);
            self.take_in(now, host, at, Role::Requests);
        }
    }

    /// Posts a buffer that takes messages. Where these are there in the moment in which their header
    /// is judged, one place does for all; else each has its own, until the buffer is spent.
    pub(super) fn take_in(&mut self, now: Instant, host: HostId, at: &mut Host, role: Role) {
        let Some(service) = self.desks[host.0 as usize].serves else { return };
        let portal = if role == Role::Sink { SINK } else { REQUESTS };
        let take = MdOptions::OP_PUT | MdOptions::TRUNCATE;
        if service.real && at.mem.moves_bytes() {
            let largest = service.largest.max(1);
            let iov = at.mem.add((largest * MESSAGES).max(BUFFER_MIN), true);
            self.offer(now, host, at, (role, portal), iov, |md| {
                (md.options, md.max_size) = (take | MdOptions::MAX_SIZE, largest);
                md.unlink = Unlink::Auto;
            });
        } else {
            let iov = at.mem.add(MESSAGE_MAX, service.real);
            let options = take | MdOptions::MANAGE_REMOTE;
            self.offer(now, host, at, (role, portal), iov, |md| md.options = options);
        }
    }

    fn offer(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        (role, portal): (Role, u32),
        iov: IoVec,
        set: impl FnOnce(&mut MdSpec),
    ) {
        let (user, _) = self.post(host, role, iov[0].region, true);
        let mut md = MdSpec::new(iov, user);
        set(&mut md);
        let any = MatchEntry { ignore_bits: u64::MAX, ..MatchEntry::bits(0) };
        let local = at.clock.local(now);
        if at.node.attach(local, portal, any, md).is_err() {
            self.unpost(host, at, user);
        }
    }

    /// Something happened to a server's buffer.
    pub(super) fn serve(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        buffer: &Buffer,
        event: &Event,
    ) {
        if event.kind != EventKind::Put || event.status.is_err() {
            return;
        }
        let attempt = event.hdr_data;
        let looked_at = event.match_bits & LOOKED_AT != 0;
        let came = at.mem.look_at(buffer.region, event.offset, event.mlength);
        let intact = match came {
            Some(bytes) if looked_at => Some(bytes == pattern(attempt, event.mlength)),
            _ => None,
        };
        let len = (event.match_bits as u32).min(MESSAGE_MAX);
        let write = event.match_bits & WRITES != 0;
        // What an RPC writes has still to come.
        if self.watched && !write {
            let attempt = AttemptId(attempt);
            self.notes.push(Note::Delivered { host, attempt, answer: false, intact });
        }
        if buffer.role != Role::Requests {
            return;
        }
        if write || event.match_bits & READS != 0 {
            let (client, asked) = (event.source, event.target.nid);
            let rpc = Rpc { attempt, write, looked_at, client, asked };
            return self.move_bulk(now, host, at, rpc, len);
        }
        let reply = Reply {
            attempt,
            len,
            looked_at,
            ack: event.match_bits & ACKED != 0,
            target: ProcessId::lustre(event.initiator.nid),
            src: None,
        };
        self.reply(now, host, at, reply);
    }

    /// Answers a request.
    fn reply(&mut self, now: Instant, host: HostId, at: &mut Host, reply: Reply) {
        let Reply { attempt, len, looked_at, ack, target, src } = reply;
        let bytes = looked_at.then(|| pattern(!attempt, len));
        let (iov, region, owned) = self.memory(host, at, len, bytes);
        let (user, _) = self.post(host, Role::Reply, region, owned);
        let local = at.clock.local(now);
        // As requests of real services do, this one says how long its sender waits.
        let timeout = self.patience_of(attempt).and_then(|timeout| limits(&at.node, timeout));
        let sent = at.node.bind(answer(iov, user, 1 + u32::from(ack), src)).is_ok_and(|md| {
            let put = Put {
                md,
                ack,
                src,
                target,
                portal: ANSWERS,
                match_bits: attempt,
                offset: 0,
                hdr_data: attempt,
                timeout,
            };
            let sent = at.node.put(local, put).is_ok();
            if !sent {
                let _ = at.node.unlink(local, md);
            }
            sent
        });
        // A descriptor that was bound and unlinked says so itself.
        let _ = sent;
    }

    /// Brings or fetches the bulk of an RPC.
    fn move_bulk(&mut self, now: Instant, host: HostId, at: &mut Host, rpc: Rpc, len: u32) {
        let Rpc { attempt, write, looked_at, client, .. } = rpc;
        let bytes =
            looked_at.then(|| if write { vec![0; len as usize] } else { pattern(!attempt, len) });
        let (iov, region, owned) = self.memory(host, at, len, bytes);
        let (user, _) = self.post(host, Role::Moved(rpc), region, owned);
        let local = at.clock.local(now);
        let timeout = self.patience_of(attempt).and_then(|timeout| limits(&at.node, timeout));
        let src = source(at, &rpc);
        let spec = answer(iov, user, 1 + u32::from(write), src);
        let Ok(md) = at.node.bind(spec) else { return };
        let (target, portal, match_bits, offset) = (client, BULK, attempt, 0);
        let begun = if write {
            at.node.get(local, Get { md, src, target, portal, match_bits, offset, timeout })
        } else {
            let (ack, hdr_data) = (false, attempt);
            at.node.put(
                local,
                Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout },
            )
        };
        if begun.is_err() {
            let _ = at.node.unlink(local, md);
        }
    }

    /// The bulk of an RPC was moved, or not: a client that got none notices by its own limit.
    pub(super) fn moved(
        &mut self,
        now: Instant,
        host: HostId,
        at: &mut Host,
        buffer: &Buffer,
        rpc: Rpc,
        event: &Event,
    ) {
        let Rpc { attempt, write, looked_at, client, .. } = rpc;
        let last = if write { EventKind::Reply } else { EventKind::Send };
        if event.kind != last || event.status.is_err() {
            return;
        }
        if self.watched && write {
            let came = at.mem.look(buffer.region, event.mlength).filter(|_| looked_at);
            let intact = came.map(|bytes| bytes == pattern(attempt, event.mlength));
            let attempt = AttemptId(attempt);
            self.notes.push(Note::Delivered { host, attempt, answer: false, intact });
        }
        let src = source(at, &rpc);
        let (len, ack, target) = (RPC_LEN, false, client);
        self.reply(now, host, at, Reply { attempt, len, looked_at, ack, target, src });
    }
}

/// The interface that serves an RPC: the one that was asked.
fn source(at: &Host, rpc: &Rpc) -> Option<Nid> {
    Some(rpc.asked).filter(|_| !at.node.may_answer_by_any(rpc.client.nid))
}

/// A descriptor for what is sent once: with a source it answers a request.
fn answer(iov: IoVec, user: u64, threshold: u32, src: Option<Nid>) -> MdSpec {
    let options = if src.is_some() { MdOptions::ANSWERS } else { MdOptions::empty() };
    MdSpec { options, ..once(iov, user, threshold) }
}
