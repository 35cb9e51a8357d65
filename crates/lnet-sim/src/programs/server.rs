//! Servers: buffers that take PUTs, give to GETs, and requests that are answered.

use lnet::{Event, EventKind, MatchEntry, MdOptions, MdSpec, Put};
use lnet_types::{Instant, ProcessId};

use super::Note;
use super::{ANSWERS, Buffer, MESSAGE_MAX, Programs, REQUESTS, Role, SINK, SOURCE, once, pattern};
use crate::directory::HostId;
use crate::host::Host;
use crate::observe::AttemptId;

/// Match bits of a request: bytes of the answer, and whether they are looked at.
pub(super) const LOOKED_AT: u64 = 1 << 63;

impl Programs {
    /// Posts what a server of this host needs.
    pub(super) fn serve_all(&mut self, now: Instant, host: HostId, at: &mut Host) {
        let Some(service) = self.desks[host.0 as usize].serves else { return };
        let give = MdOptions::OP_GET | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE;
        let take = MdOptions::OP_PUT | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE;
        let local = at.clock.local(now);
        for (role, portal, options) in [
            (Role::Sink, SINK, take),
            (Role::Source, SOURCE, give),
            (Role::Requests, REQUESTS, take),
        ] {
            let iov = match (service.real, role) {
                (true, Role::Source) => at.mem.add_bytes(pattern(u64::from(host.0), MESSAGE_MAX)),
                (real, _) => at.mem.add(MESSAGE_MAX, real),
            };
            let (user, _) = self.post(host, role, iov[0].region, true);
            let mut md = MdSpec::new(iov, user);
            md.options = options;
            let any = MatchEntry { ignore_bits: u64::MAX, ..MatchEntry::bits(0) };
            if at.node.attach(local, portal, any, md).is_err() {
                self.unpost(host, at, user);
            }
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
        let intact = match at.mem.look(buffer.region, event.mlength) {
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
                timeout: None,
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
