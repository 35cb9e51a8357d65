//! Work requests: chains of writes with their message, gathered, posted, and completed.

#![allow(unsafe_code)]

use std::collections::VecDeque;

use lnet::Payload;
use lnet_types::{Errno, Memory};
use smallvec::SmallVec;

use super::endpoint::{Named, PLACES};
use super::sends::{self, BufferId, Ended, Message, Request, pieces};
use super::sys::{Sge, Wc};
use super::{Mapped, Verbs};
use crate::adapter::Fact;
use crate::value::{ConnId, Post, Write};

/// Completions of requests that came back because their queue pair had failed before.
const FLUSHED: u32 = 5;

impl Verbs {
    /// The places that a write reads.
    pub(super) fn places_of(&self, write: &Write) -> Option<SmallVec<[Sge; 1]>> {
        let Some(Mapped::Read { places, .. }) = self.maps.get(&write.from) else { return None };
        let (mut offset, mut len) = (write.offset, write.len);
        let mut found = SmallVec::new();
        for sge in places {
            let here = u64::from(sge.length);
            if offset >= here {
                offset -= here;
                continue;
            }
            // At most `sge.length`, so it fits.
            let length = len.min((here - offset) as u32);
            if length > 0 {
                found.push(Sge { addr: sge.addr + offset, length, lkey: sge.lkey });
            }
            (offset, len) = (0, len - length);
        }
        (len == 0).then_some(found)
    }

    pub(super) fn chain(
        &mut self,
        post: &Post,
        mem: &dyn Memory,
    ) -> Result<(VecDeque<sends::Piece>, Message), Errno> {
        let mut all = VecDeque::new();
        let most = (self.device.bounds.places as usize).min(PLACES);
        for write in &post.writes {
            let places = self.places_of(write).ok_or(Errno::EFAULT)?;
            all.extend(pieces(places, (write.addr, write.key), most, self.device.bounds.message));
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&post.head);
        match &post.payload {
            Some(Payload::Spans(spans)) => {
                spans.iter().for_each(|span| self.scratch.extend_from_slice(mem.bytes(*span)));
            }
            Some(Payload::Bytes(bytes)) => self.scratch.extend_from_slice(bytes),
            None => {}
        }
        let inline = self.endpoints.get(post.conn).map_or(0, |endpoint| endpoint.inline);
        let len = u32::try_from(self.scratch.len()).map_err(|_| Errno::EMSGSIZE)?;
        let message = if len <= inline {
            Message::Inline(self.scratch.clone())
        } else {
            Message::Buffer(self.buffers.take(&mut self.registrations, &self.scratch)?, len)
        };
        Ok((all, message))
    }

    /// Posts what there is room for.
    pub(super) fn pump(&mut self, conn: ConnId) {
        loop {
            let Some(endpoint) = self.endpoints.get_mut(conn) else { return };
            let batch: Vec<Request> = endpoint.sends.next();
            if batch.is_empty() {
                return;
            }
            let buffers = &self.buffers;
            // SAFETY: a chain reads mapped memory, which is unmapped behind its end or that of its
            // queue pair, and a send buffer, which is given back then.
            let posted = unsafe { endpoint.post(&batch, |id: BufferId| buffers.place(id)) };
            if let Err(errno) = posted {
                tracing::debug!("work requests are not posted: {errno}");
                let end = endpoint.sends.refused();
                if let Some(end) = end {
                    self.ended(conn, end, Err(()));
                }
                self.fail_waiting(conn);
                return;
            }
        }
    }

    /// Takes completions.
    pub(super) fn complete(&mut self) {
        let Self { completions, endpoints, places, buffers, facts, spins, .. } = self;
        let mut moved: SmallVec<[ConnId; 8]> = SmallVec::new();
        completions.take(!*spins, |wc: &Wc| {
            let Some(named) = Named::of(wc.wr_id) else { return };
            let (Named::Receive(seat, _) | Named::Signalled(seat) | Named::Silent(seat)) = named;
            // One of a connection that is gone.
            let Some(conn) = Self::conn_at(places, seat) else { return };
            let Some(endpoint) = endpoints.get_mut(conn) else { return };
            let done = wc.status == 0;
            match named {
                Named::Receive(_, slot) => {
                    endpoint.received(slot);
                    let outcome = if done { Ok(wc.byte_len as usize) } else { Err(()) };
                    facts.push_back(Fact::Received { conn, slot, outcome });
                }
                Named::Signalled(_) => {
                    if let Some(Ended { work, buffer }) = endpoint.sends.completed(done) {
                        if let Some(buffer) = buffer {
                            buffers.give(buffer);
                        }
                        let outcome = if done { Ok(()) } else { Err(()) };
                        facts.push_back(Fact::Done { conn, work, outcome });
                    }
                    if moved.last() != Some(&conn) {
                        moved.push(conn);
                    }
                }
                Named::Silent(_) => {}
            }
            if !done && wc.status != FLUSHED {
                tracing::debug!(?conn, status = wc.status, "a work request has failed");
            }
        });
        for conn in moved {
            if self.endpoints.get(conn).is_some_and(|e| e.sends.is_broken()) {
                self.fail_waiting(conn);
            } else {
                self.pump(conn);
            }
        }
    }
}
