//! A buffer attached to a portal through a handle: what peers PUT there arrives as [`Delivery`]s,
//! what they GET is read from it.
//!
//! The node chooses the offset of each message (unless `manage_remote` leaves it to the initiator),
//! one behind the other, so bytes that have been delivered are not touched again and can be read in
//! place while more arrive: see `memory.rs` for how that is kept. With `manage_remote` any byte may
//! change at any time: deliveries then give offset and length, and [`Attachment::read_at`] copies on
//! the node's thread.

use core::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lnet::{AttachError, Event, EventKind, MatchEntry, MdOptions, MdSpec, Unlink};
use lnet_types::{MdId, Memory, RegionId, Span};

use crate::mailbox::{Command, Mailbox};
use crate::memory::{Landing, Regions, spans};
use crate::oneshot::block_on;
use crate::owners::Owner;
use crate::stack::Stack;
use crate::{Buffer, NodeHandle, OpError, OpFailed};

/// How an attached buffer may be used. The default takes PUTs, one behind the other, until one does not
/// fit any more or the attachment is dropped; then the buffer is spent, and [`Attachment::recv`] ends
/// with `None`. To receive without end: [`NodeHandle::inbox`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// PUTs may match.
    pub put: bool,
    /// GETs may match.
    pub get: bool,
    /// The initiator chooses the offset.
    pub manage_remote: bool,
    /// Longer messages are cut to what fits; otherwise they are dropped.
    pub truncate: bool,
    /// Never acknowledge.
    pub no_ack: bool,
    /// Bounds each message, bytes; the buffer is spent when that much is not left.
    pub max_size: Option<u32>,
    /// Operations until it is spent; no limit if `None`.
    pub threshold: Option<u32>,
    /// Events that may wait to be received. When as many do, the buffer is detached: nothing that
    /// arrived is lost, and nothing more arrives ([`Attachment::overrun`]).
    pub events_max: usize,
}

impl AttachOptions {
    /// Takes PUTs.
    pub const PUT: Self = Self {
        put: true,
        get: false,
        manage_remote: false,
        truncate: false,
        no_ack: false,
        max_size: None,
        threshold: None,
        events_max: 65_536,
    };
    /// Serves GETs; each reads from the offset that the initiator names, as much as there is.
    pub const GET: Self =
        Self { put: false, get: true, manage_remote: true, truncate: true, ..Self::PUT };

    pub(crate) fn spec(&self, region: RegionId, len: usize, user: u64) -> MdSpec {
        let mut options = MdOptions::empty();
        options.set(MdOptions::OP_PUT, self.put);
        options.set(MdOptions::OP_GET, self.get);
        options.set(MdOptions::MANAGE_REMOTE, self.manage_remote);
        options.set(MdOptions::TRUNCATE, self.truncate);
        options.set(MdOptions::ACK_DISABLE, self.no_ack);
        options.set(MdOptions::MAX_SIZE, self.max_size.is_some());
        let fills = self.put && !self.get && self.max_size.is_none();
        options.set(MdOptions::SPENT_WHEN_FULL, fills);
        MdSpec {
            threshold: self.threshold,
            max_size: self.max_size.unwrap_or(0),
            options,
            unlink: Unlink::Auto,
            ..MdSpec::new(spans(region, 0..len as u64), user)
        }
    }
}

impl Default for AttachOptions {
    fn default() -> Self {
        Self::PUT
    }
}

/// A buffer at a portal, from [`NodeHandle::attach`]. Detached when dropped.
pub struct Attachment {
    key: u64,
    events: async_channel::Receiver<Event>,
    landing: Arc<Landing>,
    overrun: Arc<AtomicBool>,
    mailbox: Arc<Mailbox>,
    /// Set by the handle that made it. A node lives as long as something is attached through it.
    handle: Option<NodeHandle>,
    readable: bool,
    detached: bool,
}

impl Attachment {
    pub(crate) fn hold(&mut self, handle: NodeHandle) {
        self.handle = Some(handle);
    }

    /// The next event. `None` once the buffer is spent or detached and everything has been received; the
    /// last event before it is an UNLINK or has `unlinked` set.
    pub async fn recv(&self) -> Option<Delivery<'_>> {
        self.events.recv().await.ok().map(|event| self.delivery(event))
    }

    /// The next event, waiting on this thread: [`Attachment::recv`] for threads. `None` also on the
    /// node's own thread if nothing is there, where waiting would be for ever.
    pub fn recv_blocking(&self) -> Option<Delivery<'_>> {
        if self.mailbox.is_here() {
            return self.try_recv();
        }
        block_on(self.recv())
    }

    /// An event that is there already.
    pub fn try_recv(&self) -> Option<Delivery<'_>> {
        self.events.try_recv().ok().map(|event| self.delivery(event))
    }

    fn delivery(&self, event: Event) -> Delivery<'_> {
        // Offsets were checked against the region when it was frozen, so they fit `usize`.
        let start = event.offset as usize;
        let landed = self.readable && event.kind == EventKind::Put;
        let range = if landed { start..start + event.mlength as usize } else { 0..0 };
        Delivery { event, range, landing: &self.landing }
    }

    /// Whether the buffer was detached because `events_max` events waited.
    pub fn overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Copies bytes out, as they are when the node's thread gets to it.
    ///
    /// # Errors
    /// [`OpError::Range`] outside of the buffer, [`OpError::Stopped`] when it is detached.
    pub async fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), OpError> {
        let (key, len) = (self.key, to.len());
        let handle = self.handle.as_ref().ok_or(OpError::Stopped)?;
        let copy = handle.call(move |stack, _| stack.inbox_read(key, offset, len)).await??;
        to.copy_from_slice(&copy);
        Ok(())
    }

    /// [`Attachment::read_at`] for threads.
    ///
    /// # Errors
    /// As there, and [`OpError::WouldDeadlock`] on the node's own thread.
    pub fn read_at_blocking(&self, offset: u64, to: &mut [u8]) -> Result<(), OpError> {
        if self.mailbox.is_here() {
            return Err(OpError::WouldDeadlock);
        }
        block_on(self.read_at(offset, to))
    }

    /// Changes bytes that GETs will read.
    ///
    /// # Errors
    /// As [`Attachment::read_at`], and [`OpError::Delivered`] for bytes that have been delivered.
    pub async fn write_at(&self, offset: u64, bytes: impl Into<Vec<u8>>) -> Result<(), OpError> {
        let (key, bytes) = (self.key, bytes.into());
        let handle = self.handle.as_ref().ok_or(OpError::Stopped)?;
        handle.call(move |stack, _| stack.inbox_write(key, offset, &bytes)).await?
    }

    /// [`Attachment::write_at`] for threads.
    ///
    /// # Errors
    /// As there, and [`OpError::WouldDeadlock`] on the node's own thread.
    pub fn write_at_blocking(&self, offset: u64, bytes: impl Into<Vec<u8>>) -> Result<(), OpError> {
        if self.mailbox.is_here() {
            return Err(OpError::WouldDeadlock);
        }
        block_on(self.write_at(offset, bytes))
    }

    /// Detaches, waits until no message uses the buffer any more, and gives it back. Events that
    /// were not received are gone.
    pub async fn detach(mut self) -> Buffer {
        self.release();
        while self.events.recv().await.is_ok() {}
        let spare = Arc::new(Landing::empty());
        let landing = core::mem::replace(&mut self.landing, spare);
        // The node drops its reference before it closes the queue (`Inbox::close`), deliveries
        // borrow `self`, so this is the last one.
        Landing::into_buffer(landing).unwrap_or_else(|| Buffer::zeroed(0))
    }

    /// [`Attachment::detach`] for threads.
    ///
    /// # Errors
    /// [`OpError::WouldDeadlock`] on the node's own thread; the buffer is freed later.
    pub fn detach_blocking(self) -> Result<Buffer, OpError> {
        if self.mailbox.is_here() {
            return Err(OpError::WouldDeadlock);
        }
        Ok(block_on(self.detach()))
    }

    fn release(&mut self) {
        if !self.detached {
            self.detached = true;
            self.mailbox.push(Command::Release(self.key));
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.release();
    }
}

/// An event at an attached buffer, and the bytes that it brought.
///
/// Dereferences to the bytes: those of a PUT into a buffer without `manage_remote`, none otherwise.
pub struct Delivery<'a> {
    /// What happened.
    pub event: Event,
    range: Range<usize>,
    landing: &'a Landing,
}

impl Deref for Delivery<'_> {
    type Target = [u8];
    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        // SAFETY: `range` is that of a PUT event that came out of the queue of this very landing;
        // `Stack::inbox_event` freezes it before it queues the event.
        unsafe { self.landing.frozen(self.range.clone()) }
    }
}

/// The node's half of an attachment.
pub(crate) struct Inbox {
    region: RegionId,
    md: MdId,
    events: async_channel::Sender<Event>,
    events_max: usize,
    overrun: Arc<AtomicBool>,
    readable: bool,
}

impl Inbox {
    pub(crate) fn md(&self) -> MdId {
        self.md
    }

    /// Gives up the memory, then lets the owner know: the order that `Attachment::detach` needs.
    fn close(self, mem: &mut Regions) {
        mem.remove(self.region);
        self.events.close();
    }

    /// As for operations: the stack goes away.
    pub(crate) fn abort(self, mem: &mut Regions) {
        mem.drop_descriptor(self.region);
        self.close(mem);
    }
}

impl Stack {
    /// Attaches a buffer whose owner is on another thread.
    pub(crate) fn attach_inbox(
        &mut self,
        portal: u32,
        me: MatchEntry,
        buffer: Buffer,
        options: AttachOptions,
    ) -> Result<Attachment, OpFailed> {
        if self.is_stopping() {
            return Err(OpFailed { error: OpError::Stopped, buffer: Some(buffer) });
        }
        let len = buffer.len();
        let (region, landing) = self.mem.land(buffer).map_err(|buffer| OpFailed {
            error: OpError::NoRegion(Regions::MAX),
            buffer: Some(buffer),
        })?;
        let (tx, rx) = async_channel::unbounded();
        let overrun = Arc::new(AtomicBool::new(false));
        let readable = !options.manage_remote;
        let key = self.owners.insert(Owner::Inbox(Inbox {
            region,
            md: MdId::default(),
            events: tx,
            events_max: options.events_max,
            overrun: Arc::clone(&overrun),
            readable,
        }));
        let now = self.tick();
        let attached = self.node.attach(now, portal, me, options.spec(region, len, key));
        match (attached, self.owners.get_mut(key)) {
            (Ok(md), Some(Owner::Inbox(inbox))) => {
                inbox.md = md;
                self.mem.add_descriptor(region);
                Ok(Attachment {
                    key,
                    events: rx,
                    landing,
                    overrun,
                    mailbox: Arc::clone(self.mailbox()),
                    handle: None,
                    readable,
                    detached: false,
                })
            }
            (attached, _) => {
                self.owners.remove(key);
                self.mem.remove(region);
                let error = attached.err().unwrap_or(AttachError::NoOperation).into();
                Err(OpFailed { error, buffer: Landing::into_buffer(landing) })
            }
        }
    }

    /// An event at an attached buffer.
    pub(crate) fn inbox_event(&mut self, key: u64, event: &Event) {
        let Some(Owner::Inbox(inbox)) = self.owners.get_mut(key) else { return };
        let (md, region) = (inbox.md, inbox.region);
        if inbox.readable && event.kind == EventKind::Put {
            // Also if the message failed half-way: the node's offset has moved past these bytes.
            self.mem.freeze(region, event.offset..event.offset + u64::from(event.mlength));
        }
        // Fails only when the owner is gone and its release is on the way here.
        let _ = inbox.events.try_send(*event);
        if event.unlinked {
            self.mem.drop_descriptor(region);
            if let Some(Owner::Inbox(inbox)) = self.owners.remove(key) {
                inbox.close(&mut self.mem);
            }
        } else if inbox.events.len() >= inbox.events_max
            && !inbox.overrun.swap(true, Ordering::Relaxed)
        {
            self.unlink_md(md);
        }
    }

    fn inbox_span(&mut self, key: u64, offset: u64, len: usize) -> Result<Span, OpError> {
        let Some(Owner::Inbox(inbox)) = self.owners.get_mut(key) else {
            return Err(OpError::Stopped);
        };
        let region = inbox.region;
        let has = self.mem.len_of(region).unwrap_or(0) as u64;
        let end = offset.saturating_add(len as u64);
        match u32::try_from(len) {
            Ok(len) if end <= has => Ok(Span { region, len, offset }),
            _ => Err(OpError::Range { start: offset, end, len: has }),
        }
    }

    fn inbox_read(&mut self, key: u64, offset: u64, len: usize) -> Result<Vec<u8>, OpError> {
        let span = self.inbox_span(key, offset, len)?;
        Ok(self.mem.bytes(span).to_vec())
    }

    fn inbox_write(&mut self, key: u64, offset: u64, bytes: &[u8]) -> Result<(), OpError> {
        let span = self.inbox_span(key, offset, bytes.len())?;
        let range = offset..offset + bytes.len() as u64;
        if self.mem.is_frozen(span.region, &range) {
            return Err(OpError::Delivered { start: range.start, end: range.end });
        }
        self.mem.bytes_mut(span).copy_from_slice(bytes);
        Ok(())
    }
}
