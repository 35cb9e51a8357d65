//! The caches behind which data of files are (`lustre_client::visitor::FileCache`): what `lustre_rt::Objects`
//! runs on a real node.

use std::collections::BTreeMap;

use ldlm::client::{LockClient, LockEvent};
use lnet::upper::Below;
use lnet_types::{Errno, Instant, IoVec, Span};
use lustre_client::osc::{Cx, OpId, Osc, OscConfig, OscEvent};
use lustre_client::visitor::{ObjectAsk, ObjectEnd};
use lustre_wire::Fid;
use lustre_wire::fid::ObjectId;
use ptlrpc::{CallError, Event, ImportId, Ptlrpc};

use super::super::host::Buffers;
use super::visits::VisitNo;

/// The least memory that is lent; more is lent in powers of two.
const PIECE: u32 = 4096;
fn refused(errno: Errno) -> ObjectEnd {
    CallError::Refused(errno).into()
}

/// An operation under way.
struct Waiting {
    visit: VisitNo,
    order: u64,
    /// Where bytes are read to.
    memory: Option<Span>,
}

/// The caching clients of a node.
#[derive(Default)]
pub(super) struct Caches {
    all: BTreeMap<ImportId, Osc>,
    waiting: BTreeMap<(ImportId, OpId), Waiting>,
    /// What has ended, and for which visit and order.
    ended: Vec<(VisitNo, u64, ObjectEnd)>,
}

impl Caches {
    pub(super) fn open(&mut self, import: ImportId) {
        self.all.insert(import, Osc::new(import, OscConfig::default()));
    }

    /// What a client has that may be lost.
    pub(super) fn unsettled(&self, import: ImportId) -> Vec<(ObjectId, Fid)> {
        self.all.get(&import).map(Osc::unsettled).unwrap_or_default()
    }

    /// Begins an operation.
    pub(super) fn begin(
        &mut self,
        (visit, order): (VisitNo, u64),
        import: ImportId,
        (id, ask): (ObjectId, ObjectAsk),
        parts: &mut Parts<'_, '_>,
    ) {
        let Some(osc) = self.all.get_mut(&import) else {
            return self.ended.push((visit, order, CallError::Closed.into()));
        };
        let mut memory = None;
        let len = match &ask {
            ObjectAsk::Write { bytes, .. } => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            ObjectAsk::Read { len, .. } => *len,
            _ => 0,
        };
        if len > 0 {
            let lent = parts.buffers.take(parts.below, len.max(PIECE).next_power_of_two());
            let Some(lent) = lent else {
                return self.ended.push((visit, order, refused(Errno::ENOMEM)));
            };
            let span = Span { len, ..lent };
            match &ask {
                ObjectAsk::Write { bytes, .. } => {
                    parts.below.bytes_mut(span).copy_from_slice(bytes);
                }
                _ => parts.below.bytes_mut(span).fill(0),
            }
            memory = Some(span);
        }
        let vector = || IoVec::from_iter(memory);
        let rpc = &mut parts.ptlrpc.rpc(parts.below);
        let cx = &mut Cx { locks: parts.locks, rpc };
        let writes = matches!(ask, ObjectAsk::Write { .. });
        let begun = match ask {
            ObjectAsk::Write { writer, part, offset, mtime, .. } => {
                osc.write_part(writer, (id, part), offset, vector(), mtime, cx)
            }
            ObjectAsk::Read { offset, .. } => osc.read(id, offset, vector(), cx),
            ObjectAsk::Size => osc.size(id, cx),
            ObjectAsk::Fsync(writer) => osc.fsync_by(writer, id, cx),
            ObjectAsk::Close(writer) => osc.close_by(writer, id, cx),
        };
        match begun {
            Ok(op) => {
                let memory = memory.filter(|_| !writes);
                self.waiting.insert((import, op), Waiting { visit, order, memory });
            }
            Err(_) => {
                memory.into_iter().for_each(|span| give(parts.buffers, span));
                self.ended.push((visit, order, refused(Errno::EIO)));
            }
        }
    }

    /// Takes an event of the request layer; it comes back if it is for others too.
    pub(super) fn event(&mut self, mut event: Event, parts: &mut Parts<'_, '_>) -> Option<Event> {
        let rpc = &mut parts.ptlrpc.rpc(parts.below);
        if let Event::Import { import, .. } = event {
            return match self.all.get_mut(&import) {
                Some(osc) => osc.event(event, &mut Cx { locks: parts.locks, rpc }),
                None => Some(event),
            };
        }
        for osc in self.all.values_mut() {
            event = osc.event(event, &mut Cx { locks: parts.locks, rpc })?;
        }
        Some(event)
    }

    /// Takes what the locks of the node have to say. Locks of visitors have none that concerns them.
    pub(super) fn lock_event(
        &mut self,
        import: ImportId,
        event: LockEvent,
        parts: &mut Parts<'_, '_>,
    ) {
        if let Some(osc) = self.all.get_mut(&import) {
            let rpc = &mut parts.ptlrpc.rpc(parts.below);
            osc.lock_event(event, &mut Cx { locks: parts.locks, rpc });
        }
    }

    /// Takes what the clients have to say to where it belongs. Whether there was something.
    pub(super) fn drain(&mut self, parts: &mut Parts<'_, '_>) -> bool {
        let mut any = false;
        for (import, osc) in &mut self.all {
            while let Some(event) = osc.poll_event() {
                any = true;
                match event {
                    OscEvent::Done { op, result } => {
                        let Some(waiting) = self.waiting.remove(&(*import, op)) else { continue };
                        let Waiting { visit, order, memory } = waiting;
                        let mut bytes = Vec::new();
                        if let Some(span) = memory {
                            let len = result.map_or(0, |len| usize::try_from(len).unwrap_or(0));
                            let read = parts.below.bytes(span);
                            bytes = read.get(..len).unwrap_or(read).to_vec();
                            give(parts.buffers, span);
                        }
                        let result = result.map_err(CallError::Refused);
                        self.ended.push((visit, order, ObjectEnd { result, bytes }));
                    }
                    OscEvent::Free(memory) => {
                        memory.iter().for_each(|span| give(parts.buffers, *span));
                    }
                    OscEvent::Sum { id, kind, memory } => {
                        let rpc = &mut parts.ptlrpc.rpc(parts.below);
                        let mut sum = kind.begin();
                        for span in &memory {
                            sum.update(rpc.below().bytes(*span));
                        }
                        osc.summed(id, sum.value(), &mut Cx { locks: parts.locks, rpc });
                    }
                }
            }
        }
        any
    }

    /// Takes the next operation that has ended.
    pub(super) fn take(&mut self) -> Option<(VisitNo, u64, ObjectEnd)> {
        self.ended.pop()
    }

    /// A connection is closed: what was under way over it has failed.
    pub(super) fn closed(&mut self, import: ImportId) {
        if self.all.remove(&import).is_none() {
            return;
        }
        let Self { waiting, ended, .. } = self;
        waiting.retain(|(of, _), waiting| {
            let stays = *of != import;
            if !stays {
                ended.push((waiting.visit, waiting.order, CallError::Closed.into()));
            }
            stays
        });
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.all.values().filter_map(Osc::poll_timeout).min()
    }

    pub(super) fn handle_timeout(&mut self, parts: &mut Parts<'_, '_>) {
        let rpc = &mut parts.ptlrpc.rpc(parts.below);
        let now = rpc.now();
        for osc in self.all.values_mut() {
            if osc.poll_timeout().is_some_and(|at| at <= now) {
                osc.handle_timeout(&mut Cx { locks: parts.locks, rpc });
            }
        }
    }
}

/// The other parts of the node, for the length of one call.
pub(super) struct Parts<'a, 'b> {
    pub(super) locks: &'a mut LockClient,
    pub(super) buffers: &'a mut Buffers,
    pub(super) ptlrpc: &'a mut Ptlrpc,
    pub(super) below: &'a mut Below<'b>,
}

/// Memory is free again, all of what was lent.
fn give(buffers: &mut Buffers, span: Span) {
    buffers.give(Span { len: span.len.max(PIECE).next_power_of_two(), ..span });
}
