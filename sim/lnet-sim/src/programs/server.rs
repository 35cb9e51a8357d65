//! Servers: buffers that take PUTs, give to GETs, and requests that are answered.

use lnet::{Event, EventKind, MatchEntry, MdOptions, MdSpec, Put, Unlink};
use lnet_types::{Instant, IoVec, ProcessId};

use super::Note;
use super::{
    ANSWERS, Buffer, MESSAGE_MAX, Programs, REQUESTS, Role, SINK, SOURCE, limits, once, pattern,
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

/// Match bits of a request: bytes of the answer, and whether they are looked at.
pub(super) const LOOKED_AT: u64 = 1 << 63;

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
        if self.watched {
            let attempt = AttemptId(attempt);
            self.notes.push(Note::Delivered { host, attempt, answer: false, intact });
        }
        if buffer.role != Role::Requests {
            return;
        }
        let len = (event.match_bits as u32).min(MESSAGE_MAX);
        let bytes = looked_at.then(|| pattern(!attempt, len));
        let (iov, region, owned) = self.memory(host, at, len, bytes);
        let (user, _) = self.post(host, Role::Reply, region, owned);
        let local = at.clock.local(now);
        // As requests of real services do, this one says how long its sender waits.
        let timeout = self.patience_of(attempt).and_then(|timeout| limits(&at.node, timeout));
        let sent = at.node.bind(once(iov, user, 1)).is_ok_and(|md| {
            let put = Put {
                md,
                ack: false,
                src: None,
                target: ProcessId::lustre(event.initiator.nid),
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
}
