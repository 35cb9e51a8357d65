//! PUT and GET through a handle: a request that the caller shapes, a future that ends with exactly
//! one outcome, and the record on the node's thread that turns events into it.
//!
//! ```text
//!  caller   PutRequest ─► OpFuture ─────────────────────────────────► outcome + buffer
//!              │ command                                                  ▲
//!  node     Stack::begin ─► bind, Node::put ─► Send, Ack/Reply, Unlink ─► settled by the last event
//! ```
//!
//! A future that is dropped cancels the operation: the descriptor is unlinked, the buffer freed
//! when the last event shows that it is not used any more.

use core::future::{Future, IntoFuture};
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use lnet::{Event, EventKind, Get, MdOptions, MdSpec, Put, Timeouts, Unlink};
use lnet_types::{Errno, MdId, Nid, ProcessId, RegionId};

use crate::mailbox::{COMMANDS_MAX, Command};
use crate::memory::{Regions, spans};
use crate::oneshot::{self, Receiver, Sender};
use crate::owners::Owner;
use crate::stack::Stack;
use crate::{Buffer, NodeHandle, OpError, OpFailed, OpStage};

/// What an operation came to.
#[derive(Debug)]
pub struct Moved {
    /// The buffer that was lent.
    pub buffer: Buffer,
    /// Bytes that the target took (PUT with ACK), that were sent (PUT without) or that came (GET).
    pub mlength: u32,
}

/// A PUT to be sent. Awaiting it, or calling [`PutRequest::blocking`], sends it.
#[must_use = "nothing is sent before the request is awaited or `blocking` is called"]
pub struct PutRequest(Request);

/// A GET to be sent. Awaiting it, or calling [`GetRequest::blocking`], sends it.
#[must_use = "nothing is sent before the request is awaited or `blocking` is called"]
pub struct GetRequest(Request);

struct Request {
    handle: NodeHandle,
    operation: Operation,
}

impl Request {
    fn new(
        handle: &NodeHandle,
        kind: Kind,
        target: ProcessId,
        portal: u32,
        match_bits: u64,
        buffer: Buffer,
    ) -> Self {
        let range = 0..buffer.len();
        let operation = Operation {
            kind,
            target,
            portal,
            match_bits,
            offset: 0,
            src: None,
            timeout: None,
            range,
            parts: None,
        };
        let mut this = Self { handle: handle.clone(), operation };
        // The sender is made when the request goes out; until then only the buffer is kept.
        this.operation.parts = Some((buffer, None));
        this
    }

    fn start(mut self) -> OpFuture {
        let (tx, rx) = oneshot::channel();
        if let Some((_, done)) = &mut self.operation.parts {
            *done = Some(tx);
        }
        let mailbox = self.handle.mailbox();
        if mailbox.has_room() {
            mailbox.push(Command::Begin(self.operation));
        } else {
            self.operation.fail(OpError::Busy(COMMANDS_MAX));
        }
        OpFuture { rx: Some(rx), handle: self.handle }
    }

    fn blocking(self) -> Result<Moved, OpFailed> {
        if self.handle.mailbox().is_here() {
            let buffer = self.operation.into_buffer();
            return Err(OpFailed { error: OpError::WouldDeadlock, buffer });
        }
        oneshot::block_on(self.start())
    }
}

impl PutRequest {
    pub(crate) fn new(
        handle: &NodeHandle,
        target: ProcessId,
        portal: u32,
        match_bits: u64,
        buffer: Buffer,
    ) -> Self {
        let kind = Kind::Put { ack: false, hdr_data: 0 };
        Self(Request::new(handle, kind, target, portal, match_bits, buffer))
    }

    /// Waits until the target has acknowledged it.
    pub fn ack(mut self) -> Self {
        if let Kind::Put { ack, .. } = &mut self.0.operation.kind {
            *ack = true;
        }
        self
    }

    /// 64 bits that the target's event shows.
    pub fn hdr_data(mut self, data: u64) -> Self {
        if let Kind::Put { hdr_data, .. } = &mut self.0.operation.kind {
            *hdr_data = data;
        }
        self
    }

    /// Sends only this part of the buffer.
    pub fn range(mut self, range: Range<usize>) -> Self {
        self.0.operation.range = range;
        self
    }

    /// Where the bytes go, for targets that let the initiator manage the offset.
    pub fn offset(mut self, offset: u32) -> Self {
        self.0.operation.offset = offset;
        self
    }
}

impl GetRequest {
    pub(crate) fn new(
        handle: &NodeHandle,
        target: ProcessId,
        portal: u32,
        match_bits: u64,
        buffer: Buffer,
    ) -> Self {
        Self(Request::new(handle, Kind::Get, target, portal, match_bits, buffer))
    }

    /// Fetches into this part of the buffer, as many bytes as it has at most.
    pub fn range(mut self, range: Range<usize>) -> Self {
        self.0.operation.range = range;
        self
    }

    /// Where the bytes are, for targets that let the initiator manage the offset.
    pub fn offset(mut self, offset: u32) -> Self {
        self.0.operation.offset = offset;
        self
    }
}

/// The options that PUTs and GETs share.
macro_rules! common_options {
    ($request:ident) => {
        impl $request {
            /// Sends from this NID.
            pub fn source(mut self, nid: Nid) -> Self {
                self.0.operation.src = Some(nid);
                self
            }

            /// Limit on sending and, counted from the moment that a driver has it, on the
            /// response; the node's `transaction_timeout` for both if not called.
            pub fn timeout(mut self, limit: Duration) -> Self {
                self.0.operation.timeout = Some(limit.into());
                self
            }

            /// Limit on sending alone: waiting and retries included, each attempt has its share
            /// of it.
            pub fn send_timeout(mut self, limit: Duration) -> Self {
                self.0.operation.timeout.get_or_insert_default().send = Some(limit);
                self
            }

            /// Limit on the response alone, counted from the moment that a driver has the
            /// request.
            pub fn response_timeout(mut self, limit: Duration) -> Self {
                self.0.operation.timeout.get_or_insert_default().response = Some(limit);
                self
            }

            /// Sends it and waits on this thread.
            ///
            /// # Errors
            /// [`OpFailed`], with the buffer.
            pub fn blocking(self) -> Result<Moved, OpFailed> {
                self.0.blocking()
            }
        }
    };
}

common_options!(PutRequest);
common_options!(GetRequest);

impl IntoFuture for PutRequest {
    type Output = Result<Moved, OpFailed>;
    type IntoFuture = OpFuture;
    fn into_future(self) -> OpFuture {
        self.0.start()
    }
}

impl IntoFuture for GetRequest {
    type Output = Result<Moved, OpFailed>;
    type IntoFuture = OpFuture;
    fn into_future(self) -> OpFuture {
        self.0.start()
    }
}

/// An operation under way. Ends with exactly one outcome; dropped, it is cancelled.
#[must_use = "an operation is cancelled when its future is dropped"]
pub struct OpFuture {
    rx: Option<Receiver<Outcome>>,
    /// A node lives as long as a caller waits for it.
    handle: NodeHandle,
}

impl Future for OpFuture {
    type Output = Result<Moved, OpFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(rx) = &mut self.rx else {
            return Poll::Ready(Err(OpFailed { error: OpError::Stopped, buffer: None }));
        };
        let Poll::Ready(outcome) = Pin::new(rx).poll(cx) else { return Poll::Pending };
        self.rx = None;
        Poll::Ready(match outcome {
            Some(Outcome { result: Ok(mlength), buffer: Some(buffer) }) => {
                Ok(Moved { buffer, mlength })
            }
            Some(Outcome { result, buffer }) => {
                Err(OpFailed { error: result.err().unwrap_or(OpError::Stopped), buffer })
            }
            None => Err(OpFailed { error: OpError::Stopped, buffer: None }),
        })
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        if let Some(key) = self.rx.take().and_then(Receiver::abandon) {
            self.handle.mailbox().push(Command::Release(key));
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Put { ack: bool, hdr_data: u64 },
    Get,
}

pub(crate) struct Outcome {
    result: Result<u32, OpError>,
    buffer: Option<Buffer>,
}

/// An operation on its way to the node's thread. Fails with `Stopped` when it is dropped there.
pub(crate) struct Operation {
    kind: Kind,
    target: ProcessId,
    portal: u32,
    match_bits: u64,
    offset: u32,
    src: Option<Nid>,
    timeout: Option<Timeouts>,
    range: Range<usize>,
    parts: Option<(Buffer, Option<Sender<Outcome>>)>,
}

impl Operation {
    fn fail(&mut self, error: OpError) {
        if let Some((buffer, Some(done))) = self.parts.take() {
            // A waiter that is gone has no use for the buffer either.
            let _ = done.send(Outcome { result: Err(error), buffer: Some(buffer) });
        }
    }

    fn into_buffer(mut self) -> Option<Buffer> {
        self.parts.take().map(|(buffer, _)| buffer)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.fail(OpError::Stopped);
    }
}

/// An operation that the node has in hand.
pub(crate) struct Pending {
    region: RegionId,
    md: MdId,
    /// An ACK or REPLY is to follow.
    response: bool,
    is_put: bool,
    target: Nid,
    portal: u32,
    result: Option<Result<u32, OpError>>,
    done: Option<Sender<Outcome>>,
}

impl Pending {
    pub(crate) fn md(&self) -> MdId {
        self.md
    }

    fn failed(&self, stage: OpStage, errno: Errno) -> OpError {
        let Self { is_put, target, portal, .. } = *self;
        OpError::Operation { is_put, target, portal, stage, errno }
    }

    fn settle(mut self, mem: &mut Regions, otherwise: OpError) {
        let buffer = mem.remove(self.region);
        let result = self.result.unwrap_or(Err(otherwise));
        if let Some(done) = self.done.take() {
            // A buffer without a waiter is freed here.
            let _ = done.send(Outcome { result, buffer });
        }
    }

    /// The stack goes away under it; so do the drivers and the node, and no code will touch the
    /// region any more.
    pub(crate) fn abort(self, mem: &mut Regions) {
        mem.drop_descriptor(self.region);
        self.settle(mem, OpError::Stopped);
    }
}

impl Stack {
    /// Starts an operation from a handle.
    pub(crate) fn begin(&mut self, mut op: Operation) {
        if self.is_stopping() {
            return op.fail(OpError::Stopped);
        }
        let Some((buffer, Some(done))) = op.parts.take() else { return };
        let len = buffer.len() as u64;
        let range = op.range.start as u64..op.range.end as u64;
        if range.start > range.end || range.end > len {
            let error = OpError::Range { start: range.start, end: range.end, len };
            op.parts = Some((buffer, Some(done)));
            return op.fail(error);
        }
        let region = match self.mem.lend(buffer) {
            Ok(region) => region,
            Err(buffer) => {
                op.parts = Some((buffer, Some(done)));
                return op.fail(OpError::NoRegion(Regions::MAX));
            }
        };
        let (response, options) = match op.kind {
            Kind::Put { ack, .. } => (ack, MdOptions::empty()),
            Kind::Get => (true, MdOptions::TRUNCATE),
        };
        let key = self.owners.insert(Owner::Operation(Pending {
            region,
            md: MdId::default(),
            response,
            is_put: matches!(op.kind, Kind::Put { .. }),
            target: op.target.nid,
            portal: op.portal,
            result: None,
            done: Some(done),
        }));
        let spec = MdSpec {
            threshold: Some(1 + u32::from(response)),
            options,
            unlink: Unlink::Auto,
            ..MdSpec::new(spans(region, range), key)
        };
        let bound = self.node.bind(spec);
        let Some(Owner::Operation(pending)) = self.owners.get_mut(key) else { return };
        let md = match bound {
            Ok(md) => md,
            Err(e) => {
                pending.result = Some(Err(e.into()));
                if let Some(Owner::Operation(pending)) = self.owners.remove(key) {
                    pending.settle(&mut self.mem, OpError::Stopped);
                }
                return;
            }
        };
        pending.md = md;
        self.mem.add_descriptor(region);
        if let Some(done) = &pending.done {
            done.set_key(key);
            if done.is_abandoned() {
                return self.unlink_md(md);
            }
        }
        let (now, Operation { target, portal, match_bits, offset, src, timeout, .. }) =
            (self.tick(), &op);
        let (target, portal, match_bits, offset, src, timeout) =
            (*target, *portal, *match_bits, *offset, *src, *timeout);
        let begun = match op.kind {
            Kind::Put { ack, hdr_data } => self.node.put(
                now,
                Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout },
            ),
            Kind::Get => {
                self.node.get(now, Get { md, src, target, portal, match_bits, offset, timeout })
            }
        };
        if let Err(e) = begun {
            if let Some(Owner::Operation(pending)) = self.owners.get_mut(key) {
                pending.result = Some(Err(e.into()));
            }
            self.unlink_md(md);
        }
    }

    /// An event of an operation's descriptor. The last one settles it.
    pub(crate) fn operation_event(&mut self, key: u64, event: &Event) {
        let Some(Owner::Operation(pending)) = self.owners.get_mut(key) else { return };
        let failed = event.status.err().map(|errno| {
            let stage = match (event.kind, errno) {
                (EventKind::Ack | EventKind::Reply, _) => OpStage::Answer,
                (_, Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::ENETDOWN) => OpStage::NoPath,
                (_, Errno::ECONNREFUSED) => OpStage::Refused,
                _ => OpStage::Transmission,
            };
            pending.failed(stage, errno)
        });
        match event.kind {
            EventKind::Send => match failed {
                // A response that is here already counts for more than how the request fared.
                Some(error) => _ = pending.result.get_or_insert(Err(error)),
                None if !pending.response => pending.result = Some(Ok(event.mlength)),
                None => {}
            },
            EventKind::Ack | EventKind::Reply => match failed {
                Some(error) => _ = pending.result.get_or_insert(Err(error)),
                None => pending.result = Some(Ok(event.mlength)),
            },
            // A free-floating descriptor is no target; an unlink by itself is no outcome.
            EventKind::Put | EventKind::Get | EventKind::Unlink => {}
        }
        let md = pending.md;
        if event.unlinked {
            if let Some(Owner::Operation(pending)) = self.owners.remove(key) {
                self.mem.drop_descriptor(pending.region);
                // No answer came and no error was reported: the response timer ran out (M-39).
                let otherwise = pending.failed(OpStage::NoAnswer, Errno::ETIMEDOUT);
                pending.settle(&mut self.mem, otherwise);
            }
        } else if pending.result.is_some() && failed.is_some() {
            // A failed transmission leaves the descriptor waiting for an answer (M-38).
            self.unlink_md(md);
        }
    }
}
