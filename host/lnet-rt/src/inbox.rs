//! An inbox: buffers at a portal that are posted again by themselves. The usual way to receive PUTs;
//! `attachment.rs` is for those who post and match by hand.
//!
//! A ring of buffers of one size is posted under one entry, so that there is a next one when one is
//! full: a message that does not fit behind those before it goes into the next, and nothing is between
//! the two. Messages are read in place. When all messages of a full buffer have been dropped by the
//! program, the buffer is posted again, at the end of the ring.
//!
//! A program that is slower than its senders holds all buffers in the end. Messages then wait at the
//! portal, which is lazy as long as the inbox is there ([`InboxOptions::wait`]), and with them the
//! connections that they come by: senders are slowed down instead of failing. [`Inbox::state`] shows it.

use core::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lnet::{Event, EventKind, MatchEntry, MdOptions, MdSpec, Unlink};
use lnet_types::{MdId, RegionId};

use crate::mailbox::{Command, Mailbox};
use crate::memory::{Landing, Regions, spans};
use crate::oneshot::block_on;
use crate::owners::Owner;
use crate::stack::Stack;
use crate::{Buffer, NodeHandle, OpError};

/// The ring of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxOptions {
    /// How many buffers, at least 1. With one there is a gap while it is full.
    pub buffers: usize,
    /// The size of each, bytes. Longer messages are dropped; LNet has none of more than 1 MiB.
    pub buffer_bytes: usize,
    /// The most messages in one buffer, at least 1: short and empty messages, too, come to an end.
    pub messages_per_buffer: u32,
    /// Whether messages wait while no buffer is posted, at most `delayed_max` (tunable) of the portal;
    /// otherwise they are dropped. What matches nothing at this portal waits as well.
    pub wait: bool,
}

impl InboxOptions {
    /// 4 buffers of 1 MiB, 16,384 messages in each; messages wait.
    pub const DEFAULT: Self =
        Self { buffers: 4, buffer_bytes: 1 << 20, messages_per_buffer: 16_384, wait: true };
}

impl Default for InboxOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Where the buffers of an inbox are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxState {
    /// Buffers of the ring.
    pub buffers: usize,
    /// Of these, posted: messages can land. The others hold messages that the program has not dropped.
    pub posted: usize,
    /// Messages that have arrived and were not received yet.
    pub unread: usize,
    /// How often the last posted buffer became full: senders had to wait, or their messages were dropped.
    pub exhausted: u64,
}

/// Buffers at a portal that are posted again by themselves, from [`NodeHandle::inbox`]. Ends when
/// dropped; messages that were received stay readable.
pub struct Inbox {
    ring: Arc<Ring>,
    messages: async_channel::Receiver<Message>,
    handle: NodeHandle,
}

impl Inbox {
    /// The next message. `None` only when the node has stopped and everything has been received.
    pub async fn recv(&self) -> Option<Message> {
        self.messages.recv().await.ok()
    }

    /// The next message, waiting on this thread: [`Inbox::recv`] for threads. `None` also on the node's
    /// own thread if no message is there, where waiting would be for ever.
    pub fn recv_blocking(&self) -> Option<Message> {
        if self.ring.mailbox.is_here() {
            return self.try_recv();
        }
        block_on(self.recv())
    }

    /// A message that is there already.
    pub fn try_recv(&self) -> Option<Message> {
        self.messages.try_recv().ok()
    }

    /// Where the buffers are: how far the program is behind its senders.
    pub fn state(&self) -> InboxState {
        InboxState {
            buffers: self.ring.options.buffers,
            posted: self.ring.posted.load(Ordering::Relaxed),
            unread: self.messages.len(),
            exhausted: self.ring.exhausted.load(Ordering::Relaxed),
        }
    }

    /// The node of the inbox.
    pub fn node(&self) -> &NodeHandle {
        &self.handle
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.ring.closed.store(true, Ordering::SeqCst);
        let ring = Arc::clone(&self.ring);
        let close = move |stack: &mut Stack| stack.close_ring(&ring);
        self.ring.mailbox.push(Command::Call(Box::new(close)));
        // A message holds its ring, and the ring this queue.
        self.messages.close();
        while self.messages.try_recv().is_ok() {}
    }
}

/// A message in a buffer of an inbox. Dereferences to its bytes. The buffer is posted again when its
/// last message is dropped: keep copies of what has to stay.
pub struct Message {
    /// What happened: initiator, match bits, header data, length.
    pub event: Event,
    range: Range<usize>,
    slot: Arc<Slot>,
}

impl Deref for Message {
    type Target = [u8];
    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        let Some(landing) = &self.slot.landing else { return &[] };
        // SAFETY: `range` is that of a PUT event at this very landing, which `Stack::ring_event` froze
        // before it queued the message.
        unsafe { landing.frozen(self.range.clone()) }
    }
}

/// What the buffers of an inbox have in common.
pub(crate) struct Ring {
    portal: u32,
    entry: MatchEntry,
    options: InboxOptions,
    messages: async_channel::Sender<Message>,
    mailbox: Arc<Mailbox>,
    /// The owners of posted buffers; used on the node's thread.
    keys: Mutex<Vec<u64>>,
    posted: AtomicUsize,
    exhausted: AtomicU64,
    /// The portal is lazy for its sake.
    lazy: AtomicBool,
    closed: AtomicBool,
}

impl Ring {
    fn keys(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer of the ring on its way from being posted to being posted again.
struct Slot {
    landing: Option<Arc<Landing>>,
    ring: Arc<Ring>,
}

impl Drop for Slot {
    /// All its messages and the node are done with it.
    fn drop(&mut self) {
        let Some(buffer) = self.landing.take().and_then(Landing::into_buffer) else { return };
        if self.ring.closed.load(Ordering::SeqCst) {
            return;
        }
        let ring = Arc::clone(&self.ring);
        let post = move |stack: &mut Stack| {
            match stack.post_slot(&ring, buffer) {
                Ok(()) | Err(OpError::Stopped) => {}
                Err(e) => {
                    tracing::error!("inbox at portal {}: buffer not posted: {e}", ring.portal);
                    if ring.posted.load(Ordering::Relaxed) == 0 {
                        // The program is not to wait for messages that cannot come.
                        ring.messages.close();
                    }
                }
            }
        };
        self.ring.mailbox.push(Command::Call(Box::new(post)));
    }
}

/// The node's half of a posted buffer.
pub(crate) struct Posted {
    region: RegionId,
    md: MdId,
    slot: Arc<Slot>,
}

impl Posted {
    pub(crate) fn md(&self) -> MdId {
        self.md
    }

    /// Gives up the memory; with the last message of the buffer it is posted again.
    fn give_up(self, key: u64, mem: &mut Regions) {
        mem.drop_descriptor(self.region);
        mem.remove(self.region);
        let ring = &self.slot.ring;
        ring.keys().retain(|k| *k != key);
        if ring.posted.fetch_sub(1, Ordering::Relaxed) == 1 && !ring.closed.load(Ordering::SeqCst) {
            ring.exhausted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The stack goes away: nothing comes any more.
    pub(crate) fn abort(self, key: u64, mem: &mut Regions) {
        self.slot.ring.closed.store(true, Ordering::SeqCst);
        self.slot.ring.messages.close();
        self.give_up(key, mem);
    }
}

impl NodeHandle {
    /// Posts an inbox at `portal` for PUTs that match `entry`: the usual way to receive. Waits for the
    /// node's thread, not for the network.
    ///
    /// # Errors
    /// [`OpError::Inbox`]: an option is out of bounds. [`OpError::Attach`]: the node refuses. The node
    /// has stopped, or this is its own thread.
    pub fn inbox(
        &self,
        portal: u32,
        entry: MatchEntry,
        options: InboxOptions,
    ) -> Result<Inbox, OpError> {
        if self.mailbox().is_here() {
            return Err(OpError::WouldDeadlock);
        }
        block_on(self.inbox_async(portal, entry, options))
    }

    /// [`NodeHandle::inbox`] for async code.
    ///
    /// # Errors
    /// As there.
    pub async fn inbox_async(
        &self,
        portal: u32,
        entry: MatchEntry,
        options: InboxOptions,
    ) -> Result<Inbox, OpError> {
        let least = [
            ("buffers", options.buffers),
            ("buffer_bytes", options.buffer_bytes),
            ("messages_per_buffer", options.messages_per_buffer as usize),
        ];
        if let Some((field, _)) = least.into_iter().find(|(_, n)| *n == 0) {
            return Err(OpError::Inbox(field));
        }
        let (tx, rx) = async_channel::unbounded();
        let ring = Arc::new(Ring {
            portal,
            entry,
            options,
            messages: tx,
            mailbox: Arc::clone(self.mailbox()),
            keys: Mutex::default(),
            posted: AtomicUsize::new(0),
            exhausted: AtomicU64::new(0),
            lazy: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        // From here on dropping it takes back what was posted.
        let inbox = Inbox { ring: Arc::clone(&ring), messages: rx, handle: self.clone() };
        self.call(move |stack, _| stack.open_ring(&ring)).await??;
        Ok(inbox)
    }
}

impl Stack {
    fn open_ring(&mut self, ring: &Arc<Ring>) -> Result<(), OpError> {
        for _ in 0..ring.options.buffers {
            self.post_slot(ring, Buffer::zeroed(ring.options.buffer_bytes))?;
        }
        if ring.options.wait {
            self.lazy_for_inbox(ring.portal, true).map_err(OpError::from)?;
            ring.lazy.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn close_ring(&mut self, ring: &Arc<Ring>) {
        let keys = ring.keys().clone();
        keys.into_iter().for_each(|key| self.release(key));
        // One that could not be opened leaves the portal as others there have it.
        if ring.lazy.swap(false, Ordering::Relaxed) {
            // Fails only for a portal that there is not, at which no inbox is.
            let _ = self.lazy_for_inbox(ring.portal, false);
        }
    }

    /// Posts a buffer of a ring behind the others.
    fn post_slot(&mut self, ring: &Arc<Ring>, buffer: Buffer) -> Result<(), OpError> {
        if self.is_stopping() || ring.closed.load(Ordering::SeqCst) {
            return Err(OpError::Stopped);
        }
        let len = buffer.len() as u64;
        let (region, landing) =
            self.mem.land(buffer).map_err(|_| OpError::NoRegion(Regions::MAX))?;
        let slot = Arc::new(Slot { landing: Some(landing), ring: Arc::clone(ring) });
        let posted = Posted { region, md: MdId::default(), slot };
        let key = self.owners.insert(Owner::Ring(posted));
        let spec = MdSpec {
            threshold: Some(ring.options.messages_per_buffer),
            options: MdOptions::OP_PUT | MdOptions::SPENT_WHEN_FULL,
            unlink: Unlink::Auto,
            ..MdSpec::new(spans(region, 0..len), key)
        };
        let now = self.tick();
        let attached = self.node.attach(now, ring.portal, ring.entry, spec);
        self.unfinished = true;
        match (attached, self.owners.get_mut(key)) {
            (Ok(md), Some(Owner::Ring(posted))) => {
                posted.md = md;
                self.mem.add_descriptor(region);
                ring.keys().push(key);
                ring.posted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            (attached, _) => {
                self.mem.remove(region);
                if let Some(Owner::Ring(posted)) = self.owners.remove(key)
                    && let Some(mut slot) = Arc::into_inner(posted.slot)
                {
                    // Its end does not post it.
                    slot.landing = None;
                }
                Err(attached.err().unwrap_or(lnet::AttachError::NoOperation).into())
            }
        }
    }

    /// An event at a buffer of a ring.
    pub(crate) fn ring_event(&mut self, key: u64, event: &Event) {
        let Some(Owner::Ring(posted)) = self.owners.get_mut(key) else { return };
        if event.kind == EventKind::Put {
            // Also if the message failed half-way: the node's offset has moved past these bytes.
            let end = event.offset + u64::from(event.mlength);
            self.mem.freeze(posted.region, event.offset..end);
            let range = event.offset as usize..end as usize;
            let slot = Arc::clone(&posted.slot);
            let messages = slot.ring.messages.clone();
            // Fails only when the inbox is gone.
            let _ = messages.try_send(Message { event: *event, range, slot });
        }
        if event.unlinked
            && let Some(Owner::Ring(posted)) = self.owners.remove(key)
        {
            if self.is_stopping() && posted.slot.ring.posted.load(Ordering::Relaxed) == 1 {
                posted.slot.ring.messages.close();
            }
            posted.give_up(key, &mut self.mem);
        }
    }

    /// A portal is lazy as long as an inbox there requires it.
    fn lazy_for_inbox(&mut self, portal: u32, wanted: bool) -> Result<(), lnet::AttachError> {
        let now = self.tick();
        let inboxes = self.lazy_inboxes.entry(portal).or_default();
        let before = *inboxes;
        *inboxes = if wanted { before + 1 } else { before.saturating_sub(1) };
        if (before == 0) == wanted && (wanted || before == 1) {
            self.node.set_lazy(now, portal, wanted)?;
            self.unfinished = true;
        }
        Ok(())
    }
}
