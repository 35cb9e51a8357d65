//! The border to what stands on a node: a protocol is a value, an [`Upper`], that gets the events of
//! its descriptors and calls down through [`Below`]. Hosts (the runtime, the simulator) keep the
//! uppers of a node in one [`Uppers`], lend it their memory as an [`Arena`], and need to know nothing
//! about protocols. Nothing here decides anything about LNet. Memory for small messages is in
//! `slabs.rs`.
//!
//! ```text
//!   host      Uppers::event, report, handle_timeout        Uppers::with (commands of programs)
//!                     │                                            │
//!   upper     Upper::event ──► Below::attach, bind, put, get, unlink, unlink_at_once, discover, alloc, free
//!                                      │
//!   node                       Node::attach, …            its events carry the upper's tag
//! ```

mod slabs;

use core::any::Any;
use core::cell::Cell;
use std::collections::BTreeMap;

use lnet_types::{
    Errno, Instant, IoVec, MdId, Memory, Nid, RegionId, Span, iovec_copy, iovec_slice,
};

use crate::table::Lookup;
use crate::{
    AttachError, Event, Get, MatchEntry, MdSpec, Node, OpId, Put, Report, SendError, UnlinkError,
};

use slabs::Slabs;

/// Marks user words of descriptors that belong to an upper. Hosts give no other descriptor a user
/// word that has it.
pub const MARK: u64 = 1 << 61;
/// Where the tag of the upper stands in a user word.
const TAG_SHIFT: u32 = 53;
/// The bits of a user word that an upper has for itself.
const OWN: u64 = (1 << TAG_SHIFT) - 1;

/// The most uppers that one node has in its life.
pub const UPPERS_MAX: usize = 256;

/// A protocol on a node, as a value. It keeps no clock: [`Below::now`] is the time.
pub trait Upper: Any + Send {
    /// What happened to one of its descriptors. [`Event::user`] is the word that the upper gave.
    fn event(&mut self, event: &Event, below: &mut Below<'_>);
    /// How a discovery that it asked for ended.
    fn report(&mut self, report: &Report, below: &mut Below<'_>);
    /// A connection to the peer of this primary NID has ended out of order: what was written to it may be
    /// lost, and the process behind it may be another one.
    fn connection_lost(&mut self, _primary: Nid, _below: &mut Below<'_>) {}
    /// [`Upper::poll_timeout`] has come.
    fn handle_timeout(&mut self, below: &mut Below<'_>);
    /// When [`Upper::handle_timeout`] is next due.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// The host's memory, as uppers use it.
pub trait Arena: Memory {
    /// Registers `len` zeroed bytes, which stay until [`Arena::unregister`], or until the host ends.
    ///
    /// # Errors
    /// There is no more.
    fn register(&mut self, len: u32) -> Result<RegionId, Errno>;
    /// Gives a region back. No descriptor stands on it.
    fn unregister(&mut self, region: RegionId);
    /// Whether each span lies inside a region.
    fn contains(&self, spans: &[Span]) -> bool;
    /// A descriptor stands on these spans from now on.
    fn hold(&mut self, spans: &[Span]);
    /// It does no longer.
    fn release(&mut self, spans: &[Span]);
}

/// The name of an upper among those of its node. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpperId(u8);

struct Slot {
    upper: Box<dyn Upper>,
    /// What `poll_timeout` said last, if the upper was not called since: hosts ask often, and call often
    /// without asking.
    due: Cell<Option<Option<Instant>>>,
}

impl Slot {
    fn due(&self) -> Option<Instant> {
        self.due.get().unwrap_or_else(|| {
            let due = self.upper.poll_timeout();
            self.due.set(Some(due));
            due
        })
    }
}

/// The uppers of one node, with what they share: slabs, and who asked for what.
#[derive(Default)]
pub struct Uppers {
    slots: Vec<Option<Slot>>,
    shared: Shared,
}

struct Shared {
    slabs: Slabs,
    /// Whose each descriptor is, and what it stands on. Until its last event has been polled the node
    /// may have given its slot to another one, so a map by slots would lose it.
    held: Lookup<MdId, (UpperId, IoVec)>,
    asked: BTreeMap<OpId, UpperId>,
    /// The host stops.
    closed: bool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            slabs: Slabs::default(),
            // Names of descriptors are the node's own: no peer can aim at one place of the table.
            held: Lookup::new(0),
            asked: BTreeMap::new(),
            closed: false,
        }
    }
}

/// What an upper may do, for the length of one call.
pub struct Below<'a> {
    now: Instant,
    id: UpperId,
    node: &'a mut Node,
    arena: &'a mut dyn Arena,
    shared: &'a mut Shared,
    /// The descriptor whose last event is being delivered, and what it stood on.
    ended: Option<(MdId, &'a IoVec)>,
}

/// Why a descriptor of an upper was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BelowError {
    /// The node refused it.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A span lies outside of the host's memory.
    #[error("a span lies outside of its region")]
    Span,
    /// The user word has bits that name the upper.
    #[error("user word {0:#x}: expected less than 2^53")]
    UserWord(u64),
    /// The host stops: what there is ends, and nothing begins.
    #[error("the host is stopping")]
    Closed,
}

impl BelowError {
    /// The error number that stands for it.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Attach(e) => e.errno(),
            Self::Span => Errno::EFAULT,
            Self::UserWord(_) => Errno::EINVAL,
            Self::Closed => Errno::ESHUTDOWN,
        }
    }
}

impl Below<'_> {
    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The node, to be looked at.
    pub fn node(&self) -> &Node {
        self.node
    }

    /// Whether a portal keeps messages that match nothing yet.
    ///
    /// # Errors
    /// No such portal.
    pub fn set_lazy(&mut self, portal: u32, lazy: bool) -> Result<(), AttachError> {
        self.node.set_lazy(self.now, portal, lazy)
    }

    /// Attaches a buffer to a portal.
    ///
    /// # Errors
    /// [`BelowError`], without any effect.
    pub fn attach(
        &mut self,
        portal: u32,
        me: MatchEntry,
        spec: MdSpec,
    ) -> Result<MdId, BelowError> {
        let (iov, spec) = self.own(spec)?;
        let md = self.node.attach(self.now, portal, me, spec)?;
        self.keep(md, iov);
        Ok(md)
    }

    /// Makes a free-floating descriptor.
    ///
    /// # Errors
    /// [`BelowError`], without any effect.
    pub fn bind(&mut self, spec: MdSpec) -> Result<MdId, BelowError> {
        let (iov, spec) = self.own(spec)?;
        let md = self.node.bind(spec)?;
        self.keep(md, iov);
        Ok(md)
    }

    /// Starts a PUT of a bound descriptor.
    ///
    /// # Errors
    /// The node's.
    pub fn put(&mut self, put: Put) -> Result<(), SendError> {
        self.node.put(self.now, put)
    }

    /// Starts a GET into a bound descriptor.
    ///
    /// # Errors
    /// The node's.
    pub fn get(&mut self, get: Get) -> Result<(), SendError> {
        self.node.get(self.now, get)
    }

    /// Unlinks a descriptor: its last event comes now, or with the operation that still uses it.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub fn unlink(&mut self, md: MdId) -> Result<(), UnlinkError> {
        self.node.unlink(self.now, md)
    }

    /// Unlinks a descriptor. `true` if nothing used it: its memory is free, and no event says so. Otherwise
    /// its last event comes with the operation that still uses it. Events of operations that have ended
    /// may come in any case.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub fn unlink_at_once(&mut self, md: MdId) -> Result<bool, UnlinkError> {
        let gone = self.node.unlink_at_once(self.now, md)?;
        if gone && let Some((_, iov)) = self.shared.held.remove(&md) {
            self.arena.release(&iov);
        }
        Ok(gone)
    }

    /// Discovers the peer that has `nid`, again if it is known; [`Upper::report`] gets what comes of it.
    pub fn discover(&mut self, nid: Nid) -> OpId {
        let op = self.node.discover(self.now, nid, true);
        self.shared.asked.insert(op, self.id);
        op
    }

    /// Memory for a small message, of undefined contents; `None` when there is none, or `len` is more
    /// than 1 MiB.
    pub fn alloc(&mut self, len: u32) -> Option<Span> {
        self.shared.slabs.alloc(len, self.arena)
    }

    /// Gives back what [`Below::alloc`] gave, however much shorter it has been made. No descriptor
    /// stands on it.
    pub fn free(&mut self, span: Span) {
        self.shared.slabs.free(span);
    }

    /// Gives back to the host what was got for small messages and is not in use.
    pub fn trim(&mut self) {
        self.shared.slabs.trim(self.arena);
    }

    /// Registers `len` zeroed bytes for good: for what is sent again and again, or for bulk.
    ///
    /// # Errors
    /// There is no more.
    pub fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        self.arena.register(len)
    }

    /// The bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.arena.bytes(span)
    }

    /// The bytes of a span, to be written.
    pub fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        self.arena.bytes_mut(span)
    }

    /// Where the bytes of a message lie whose event has just come: the part of the descriptor that it
    /// used.
    pub fn payload(&self, event: &Event) -> IoVec {
        let iov = match self.ended {
            Some((md, iov)) if md == event.md => Some(iov),
            _ => self.shared.held.get(&event.md).map(|(_, iov)| iov),
        };
        iov.map(|iov| iovec_slice(iov, event.offset, event.mlength.into())).unwrap_or_default()
    }

    fn own(&self, mut spec: MdSpec) -> Result<(IoVec, MdSpec), BelowError> {
        if self.shared.closed {
            return Err(BelowError::Closed);
        }
        if spec.user & !OWN != 0 {
            return Err(BelowError::UserWord(spec.user));
        }
        if !self.arena.contains(&spec.buf) {
            return Err(BelowError::Span);
        }
        // The last event must be seen in any case: it says that the memory is free.
        spec.events = true;
        spec.user |= MARK | u64::from(self.id.0) << TAG_SHIFT;
        Ok((iovec_copy(&spec.buf), spec))
    }

    fn keep(&mut self, md: MdId, iov: IoVec) {
        self.arena.hold(&iov);
        self.shared.held.insert(md, (self.id, iov));
    }
}

impl Shared {
    fn unlink(&self, now: Instant, node: &mut Node, whose: impl Fn(UpperId) -> bool) {
        for md in self.held.sorted_keys(|(owner, _)| whose(*owner)) {
            // One whose last event waits to be polled is gone already.
            let _ = node.unlink(now, md);
        }
    }
}

impl Uppers {
    /// Adds an upper; `None` when there have been [`UPPERS_MAX`].
    pub fn add(&mut self, upper: Box<dyn Upper>) -> Option<UpperId> {
        let id = UpperId(u8::try_from(self.slots.len()).ok()?);
        self.slots.push(Some(Slot { upper, due: Cell::new(None) }));
        Some(id)
    }

    /// Takes an upper away, and its descriptors from the node.
    pub fn remove(&mut self, id: UpperId, now: Instant, node: &mut Node) -> Option<Box<dyn Upper>> {
        let slot = self.slots.get_mut(usize::from(id.0))?.take()?;
        self.shared.asked.retain(|_, asker| *asker != id);
        self.shared.unlink(now, node, |owner| owner == id);
        Some(slot.upper)
    }

    /// The host stops: all descriptors are unlinked, and there will be no more. Operations under way
    /// end, and uppers get the events of that. Over when [`Uppers::descriptors`] is zero.
    pub fn close(&mut self, now: Instant, node: &mut Node) {
        self.shared.closed = true;
        self.shared.unlink(now, node, |_| true);
    }

    /// Descriptors whose last event has not come.
    pub fn descriptors(&self) -> usize {
        self.shared.held.len()
    }

    /// Runs `f` on an upper, as what it holds; `None` if there is none of this name and type.
    pub fn with<T: Upper, R>(
        &mut self,
        id: UpperId,
        now: Instant,
        node: &mut Node,
        arena: &mut dyn Arena,
        f: impl FnOnce(&mut T, &mut Below<'_>) -> R,
    ) -> Option<R> {
        let slot = self.slots.get_mut(usize::from(id.0))?.as_mut()?;
        let upper: &mut dyn Any = &mut *slot.upper;
        let upper = upper.downcast_mut::<T>()?;
        let shared = &mut self.shared;
        let result = f(upper, &mut Below { now, id, node, arena, shared, ended: None });
        slot.due.set(None);
        Some(result)
    }

    /// Takes an event to the upper that it belongs to; `false` if it belongs to none.
    pub fn event(
        &mut self,
        now: Instant,
        event: &Event,
        node: &mut Node,
        arena: &mut dyn Arena,
    ) -> bool {
        if event.user & MARK == 0 {
            return false;
        }
        let id = UpperId((event.user >> TAG_SHIFT) as u8);
        let own = Event { user: event.user & OWN, ..*event };
        // No descriptor stands on the memory any more: its upper may give it back at once. Where it is
        // stays known until then, for the payload of this event.
        let ended = if event.unlinked { self.shared.held.remove(&event.md) } else { None };
        let ended = ended.as_ref().map(|(_, iov)| iov);
        if let Some(iov) = ended {
            arena.release(iov);
        }
        let ended = ended.map(|iov| (event.md, iov));
        self.call(id, now, node, &mut *arena, ended, |upper, below| upper.event(&own, below));
        true
    }

    /// Takes a report to the upper that asked; `false` if none did.
    pub fn report(
        &mut self,
        now: Instant,
        report: &Report,
        node: &mut Node,
        arena: &mut dyn Arena,
    ) -> bool {
        let Some(id) = self.shared.asked.remove(&report.op) else { return false };
        self.call(id, now, node, arena, None, |upper, below| upper.report(report, below));
        true
    }

    /// Notifies all uppers of a lost connection to a peer ([`Node::poll_lost_connection`]).
    pub fn connection_lost(
        &mut self,
        now: Instant,
        primary: Nid,
        node: &mut Node,
        arena: &mut dyn Arena,
    ) {
        for index in 0..self.slots.len() {
            // There are at most 256.
            let id = UpperId(index as u8);
            self.call(id, now, node, &mut *arena, None, |upper, below| {
                upper.connection_lost(primary, below);
            });
        }
    }

    /// Runs what is due. Returns whether anything was.
    pub fn handle_timeout(&mut self, now: Instant, node: &mut Node, arena: &mut dyn Arena) -> bool {
        let mut any = false;
        for index in 0..self.slots.len() {
            let slot = self.slots.get(index).and_then(Option::as_ref);
            if slot.and_then(Slot::due).is_some_and(|due| due <= now) {
                // There are at most 256.
                let id = UpperId(index as u8);
                self.call(id, now, node, &mut *arena, None, |upper, below| {
                    upper.handle_timeout(below)
                });
                any = true;
            }
        }
        any
    }

    /// When [`Uppers::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.slots.iter().flatten().filter_map(Slot::due).min()
    }

    fn call(
        &mut self,
        id: UpperId,
        now: Instant,
        node: &mut Node,
        arena: &mut dyn Arena,
        ended: Option<(MdId, &IoVec)>,
        f: impl FnOnce(&mut dyn Upper, &mut Below<'_>),
    ) {
        let Some(slot) = self.slots.get_mut(usize::from(id.0)).and_then(Option::as_mut) else {
            return;
        };
        let shared = &mut self.shared;
        f(&mut *slot.upper, &mut Below { now, id, node, arena, shared, ended });
        slot.due.set(None);
    }
}

impl core::fmt::Debug for Uppers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Uppers")
            .field("uppers", &self.slots.iter().flatten().count())
            .field("descriptors", &self.shared.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
