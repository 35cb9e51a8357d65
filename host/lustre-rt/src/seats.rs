//! The caching clients of objects on the node's thread: the machine of each import
//! (`lustre_client::osc`), who waits for its operations, its checksums and its limits. `objects.rs` is
//! how programs reach them.

use core::mem;
use std::collections::{BTreeMap, BTreeSet};

use async_channel::Sender;
use ldlm::Mode;
use ldlm::client::{LockClient, LockEvent, Stage};
use lnet_rt::{Below, Instant, NodeHandle, OpError, RegionId};
use lnet_types::IoVec;
use lustre_client::osc::{Cx, OpId, Osc, OscError, OscEvent, Writer};
use lustre_wire::fid::ObjectId;
use lustre_wire::ldlm::{Policy, ResourceName};
use lustre_wire::{BodyFlags, Opcode};
use ptlrpc::{CallError, Event, ImportId, ImportState, Ptlrpc, Rpc};

use crate::node::{RpcError, RpcNode};
use crate::objects::{Freed, ObjectsError};

/// The end of an operation, as its program gets it.
pub(crate) struct Ended {
    pub(crate) result: Result<u64, ObjectsError>,
    /// The memory of a read, to be taken back.
    pub(crate) region: Option<RegionId>,
}

impl Ended {
    pub(crate) const fn refused(error: ObjectsError) -> Self {
        Self { result: Err(error), region: None }
    }
}

/// The program that waits for an operation.
pub(crate) struct Waiting {
    pub(crate) end: Sender<Ended>,
    /// The memory of a read.
    pub(crate) region: Option<RegionId>,
    /// It waits no longer.
    pub(crate) due: Option<Instant>,
    /// Of what it hears losses.
    pub(crate) hears: Option<(Writer, ObjectId)>,
}

struct Seat {
    osc: Osc,
    waiting: BTreeMap<OpId, Waiting>,
    /// The import is closed: what is left ends by itself.
    closed: bool,
}

/// Callbacks of servers to clients of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callbacks {
    /// All that were taken up.
    pub all: u64,
    /// Those of them that the server had sent before: the first copy, or the answer to it, was lost.
    pub resent: u64,
}

/// A lock that a client of this node caches data under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLock {
    /// The client's connection.
    pub import: ImportId,
    /// The object.
    pub resource: ResourceName,
    /// Mode.
    pub mode: Mode,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
}

pub(crate) struct Seats {
    all: BTreeMap<ImportId, Seat>,
    /// When programs wait no longer.
    due: BTreeSet<(Instant, ImportId, OpId)>,
    callbacks: Callbacks,
    handle: NodeHandle,
    freed: Freed,
}

impl Seats {
    pub(crate) fn new(handle: NodeHandle, freed: Freed) -> Self {
        let callbacks = Callbacks::default();
        Self { all: BTreeMap::new(), due: BTreeSet::new(), callbacks, handle, freed }
    }

    pub(crate) fn open(&mut self, osc: Osc) {
        let seat = Seat { osc, waiting: BTreeMap::new(), closed: false };
        self.all.insert(seat.osc.import(), seat);
    }

    pub(crate) fn osc(&self, import: ImportId) -> Option<&Osc> {
        self.all.get(&import).map(|seat| &seat.osc)
    }

    /// Begins an operation. `false`: it did not begin, and its memory is free.
    pub(crate) fn begin(
        &mut self,
        import: ImportId,
        waiting: Waiting,
        cx: &mut Cx<'_, '_, '_>,
        f: impl FnOnce(&mut Osc, &mut Cx<'_, '_, '_>) -> Result<OpId, OscError>,
    ) -> bool {
        let closed = || ObjectsError::from(RpcError::Call(CallError::Closed));
        let seat = self.all.get_mut(&import).filter(|seat| !seat.closed).ok_or_else(closed);
        let begun = seat.and_then(|seat| Ok((f(&mut seat.osc, cx)?, seat)));
        match begun {
            Ok((op, seat)) => {
                self.due.extend(waiting.due.map(|due| (due, import, op)));
                seat.waiting.insert(op, waiting);
                true
            }
            Err(e) => {
                // A program that has gone away wants nothing any more.
                let _ = waiting.end.try_send(Ended::refused(e));
                false
            }
        }
    }

    /// Looks at an event of the request layer before the locks do.
    pub(crate) fn count(&mut self, event: &Event) {
        let Event::Served(served) = event else { return };
        let kinds = [Opcode::LDLM_BL_CALLBACK, Opcode::LDLM_CP_CALLBACK, Opcode::LDLM_GL_CALLBACK];
        if served.import.is_some() && kinds.contains(&served.opcode) {
            self.callbacks.all += 1;
            self.callbacks.resent += u64::from(served.body.flags.contains(BodyFlags::RESENT));
        }
    }

    /// Takes an event of the request layer. Returns it if it is for others too.
    pub(crate) fn event(
        &mut self,
        mut event: Event,
        locks: &mut LockClient,
        rpc: &mut Rpc<'_, '_>,
    ) -> Option<Event> {
        if let Event::Import { import, state } = event {
            let Some(seat) = self.all.get_mut(&import) else { return Some(event) };
            seat.closed |= state == ImportState::Closed;
            return seat.osc.event(event, &mut Cx { locks, rpc });
        }
        for seat in self.all.values_mut() {
            event = seat.osc.event(event, &mut Cx { locks, rpc })?;
        }
        Some(event)
    }

    /// Takes an event of the locks of an import. Returns it if the import is none of these.
    pub(crate) fn lock_event(
        &mut self,
        import: ImportId,
        event: LockEvent,
        locks: &mut LockClient,
        rpc: &mut Rpc<'_, '_>,
    ) -> Option<LockEvent> {
        let Some(seat) = self.all.get_mut(&import) else { return Some(event) };
        seat.osc.lock_event(event, &mut Cx { locks, rpc });
        None
    }

    /// Takes what the machines have to say to where it belongs. Whether there was something.
    pub(crate) fn drain(
        &mut self,
        locks: &mut LockClient,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) -> bool {
        let mut any = false;
        let Self { all, due, freed, .. } = self;
        for (import, seat) in all.iter_mut() {
            while let Some(event) = seat.osc.poll_event() {
                any = true;
                match event {
                    OscEvent::Done { op, result } => {
                        let Some(waiting) = seat.waiting.remove(&op) else { continue };
                        if let Some(at) = waiting.due {
                            due.remove(&(at, *import, op));
                        }
                        let lost = result.err();
                        let result = result.map_err(ObjectsError::Failed);
                        let Waiting { end, region, hears, .. } = waiting;
                        if end.try_send(Ended { result, region }).is_err() {
                            // A program that has gone away takes nothing back, and has heard nothing.
                            freed.extend(region);
                            if let (Some((writer, id)), Some(errno)) = (hears, lost) {
                                seat.osc.unheard(writer, id, errno);
                            }
                        }
                    }
                    OscEvent::Free(memory) => freed.extend(regions(&memory)),
                    OscEvent::Sum { id, kind, memory } => {
                        let rpc = &mut ptlrpc.rpc(below);
                        let mut sum = kind.begin();
                        for span in &memory {
                            sum.update(rpc.below().bytes(*span));
                        }
                        seat.osc.summed(id, sum.value(), &mut Cx { locks, rpc });
                    }
                }
            }
        }
        all.retain(|_, seat| !seat.closed || !seat.waiting.is_empty() || seat.osc.dirty() > 0);
        if !freed.is_empty() {
            let freed = freed.clone();
            // A node that has too much to do looks when it has less.
            let _begun = self.handle.call(move |stack, _| freed.reclaim(stack));
        }
        any
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let limit = self.due.first().map(|(at, ..)| *at);
        self.all.values().filter_map(|seat| seat.osc.poll_timeout()).chain(limit).min()
    }

    pub(crate) fn handle_timeout(&mut self, locks: &mut LockClient, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        for seat in self.all.values_mut() {
            if seat.osc.poll_timeout().is_some_and(|at| at <= now) {
                seat.osc.handle_timeout(&mut Cx { locks, rpc });
            }
        }
        while let Some((_, import, op)) = self.due.first().copied().filter(|(at, ..)| *at <= now) {
            self.due.pop_first();
            let seat = self.all.get_mut(&import);
            let Some(waiting) = seat.and_then(|seat| seat.waiting.get_mut(&op)) else { continue };
            waiting.due = None;
            // The operation goes on, and its memory is in use: its end goes nowhere.
            let end = mem::replace(&mut waiting.end, async_channel::bounded(1).0);
            let _ = end.try_send(Ended::refused(ObjectsError::LimitPassed));
        }
    }
}

/// The regions of some memory.
fn regions(memory: &IoVec) -> BTreeSet<RegionId> {
    memory.iter().map(|span| span.region).collect()
}

impl RpcNode {
    /// Callbacks of servers to clients of this node.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn callbacks(&self) -> Result<Callbacks, OpError> {
        self.run(|host, _| host.seats.callbacks)
    }

    /// The locks that all clients of objects on this node have at this moment, beside those that are on
    /// their way back. A client that was evicted and has not learned it shows locks that it has lost.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn object_locks(&self) -> Result<Vec<ObjectLock>, OpError> {
        self.run(|host, _| {
            let locks = &host.locks;
            let of = |import: ImportId| {
                locks.views(import).into_iter().filter_map(move |view| match view.policy {
                    Policy::Extent { start, end, .. } if view.stage == Stage::Granted => {
                        let (resource, mode) = (view.resource, view.mode);
                        Some(ObjectLock { import, resource, mode, start, last: end })
                    }
                    _ => None,
                })
            };
            host.seats.all.keys().copied().flat_map(of).collect()
        })
    }
}
