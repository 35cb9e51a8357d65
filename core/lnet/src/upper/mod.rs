//! The border to what stands on a node: a protocol is a value, an [`Upper`], that gets the events of
//! its descriptors and calls down through [`Below`]. Hosts (the runtime, the simulator) keep the
//! uppers of a node in one [`Uppers`], lend it their memory as an [`Arena`], and need to know nothing
//! about protocols. Nothing here decides anything about LNet. Memory for small messages is in
//! `slabs.rs`, the descriptors of all uppers in `held.rs`.
//!
//! ```text
//!   host      Uppers::event, report, handle_timeout        Uppers::with (commands of programs)
//!                     │                                            │
//!   upper     Upper::event, spent ──► Below::attach, bind, put, get, unlink, …, discover, alloc, free
//!                                      │
//!   node                       Node::attach, …            its events carry the name of the descriptor here
//! ```

mod held;
mod slabs;

use core::any::Any;
use core::cell::Cell;
use std::collections::BTreeMap;

use lnet_types::{
    Errno, Instant, IoVec, MdId, Memory, Nid, RegionId, Span, iovec_copy, iovec_slice,
};

use crate::{
    AttachError, Event, Get, MatchEntry, MdOptions, MdSpec, Node, OpId, Put, Report, SendError,
    UnlinkError,
};

use held::{Descriptor, Held, Name};
use slabs::Slabs;

pub use held::{MARK, UpperId};

/// The most uppers that one node has in its life.
pub const UPPERS_MAX: usize = 256;

/// A protocol on a node, as a value. It keeps no clock: [`Below::now`] is the time.
pub trait Upper: Any + Send {
    /// What happened to one of its descriptors. [`Event::user`] is the word that the upper gave.
    fn event(&mut self, event: &Event, below: &mut Below<'_>);
    /// The descriptor that it gave this word is gone: one without [`MdSpec::events`], for which nothing has
    /// failed. Comes before the next call of any upper.
    fn spent(&mut self, user: u64);
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

#[derive(Default)]
struct Shared {
    slabs: Slabs,
    held: Held,
    asked: BTreeMap<OpId, UpperId>,
    /// The host stops.
    closed: bool,
}

/// What an upper may do, for the length of one call.
pub struct Below<'a> {
    now: Instant,
    id: UpperId,
    node: &'a mut Node,
    arena: &'a mut dyn Arena,
    shared: &'a mut Shared,
    /// The descriptor whose event is being delivered.
    event_of: Option<Name>,
}

/// Why a descriptor of an upper was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BelowError {
    /// The node refused it.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The node did not start the PUT.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A span lies outside of the host's memory.
    #[error("a span lies outside of its region")]
    Span,
    /// The host stops: what there is ends, and nothing begins.
    #[error("the host is stopping")]
    Closed,
}

impl BelowError {
    /// The error number that stands for it.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Attach(e) => e.errno(),
            Self::Send(e) => e.errno(),
            Self::Span => Errno::EFAULT,
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
        self.hold(spec, false, |node, now, spec| node.attach(now, portal, me, spec))
    }

    /// [`Below::attach`] for memory of [`Below::alloc`], which is given back with the descriptor, or at once
    /// if there is none.
    ///
    /// # Errors
    /// [`BelowError`].
    pub fn attach_block(
        &mut self,
        portal: u32,
        me: MatchEntry,
        spec: MdSpec,
    ) -> Result<MdId, BelowError> {
        self.hold(spec, true, |node, now, spec| node.attach(now, portal, me, spec))
    }

    /// Makes a free-floating descriptor.
    ///
    /// # Errors
    /// [`BelowError`], without any effect.
    pub fn bind(&mut self, spec: MdSpec) -> Result<MdId, BelowError> {
        self.hold(spec, false, |node, _, spec| node.bind(spec))
    }

    /// Starts a PUT of memory of [`Below::alloc`], which is given back when nothing uses it any more, or at
    /// once if the PUT does not start. Without [`MdSpec::events`] its upper has an event only if it fails,
    /// and [`Upper::spent`] otherwise.
    ///
    /// # Errors
    /// [`BelowError`].
    pub fn send_block(
        &mut self,
        spec: MdSpec,
        put: impl FnOnce(MdId) -> Put,
    ) -> Result<(), BelowError> {
        let md = self.hold(spec, true, |node, _, spec| node.bind(spec))?;
        self.node.put(self.now, put(md)).map_err(|e| {
            // Nothing uses it: it is gone at once.
            let _ = self.unlink_at_once(md);
            e.into()
        })
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

    /// Unlinks a descriptor. `true` if nothing used it: its memory is free, and no event of it comes any
    /// more. Otherwise its last event comes with the operation that still uses it.
    ///
    /// # Errors
    /// There is no such descriptor.
    pub fn unlink_at_once(&mut self, md: MdId) -> Result<bool, UnlinkError> {
        let gone = self.node.unlink_at_once(self.now, md)?;
        if let Some(name) = gone.and_then(Name::of) {
            if let Some(held) = self.shared.held.get(name) {
                let_go(held, self.arena);
            }
            self.shared.end(name);
        }
        Ok(gone.is_some())
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

    /// Where the bytes of the message lie whose event is being delivered: the part of its descriptor that
    /// it used. Nothing for any other event.
    pub fn payload(&self, event: &Event) -> IoVec {
        let held = self.event_of.and_then(|name| self.shared.held.get(name));
        held.filter(|held| held.md == event.md)
            .map(|held| iovec_slice(&held.iov, event.offset, event.mlength.into()))
            .unwrap_or_default()
    }

    /// Exchanges the bytes of a span ([`Memory::exchange`]).
    ///
    /// # Errors
    /// They can't be exchanged; `bytes` come back.
    pub fn exchange(&mut self, span: Span, bytes: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
        self.arena.exchange(span, bytes)
    }

    /// Makes a descriptor of this upper, on `blocks` or on memory that stays.
    fn hold(
        &mut self,
        mut spec: MdSpec,
        blocks: bool,
        make: impl FnOnce(&mut Node, Instant, MdSpec) -> Result<MdId, AttachError>,
    ) -> Result<MdId, BelowError> {
        let iov = iovec_copy(&spec.buf);
        let made = if self.shared.closed {
            Err(BelowError::Closed)
        } else if !self.arena.contains(&iov) {
            Err(BelowError::Span)
        } else {
            // The end must be seen in any case: with it the memory is free.
            if !core::mem::replace(&mut spec.events, true) {
                spec.options |= MdOptions::QUIET;
            }
            let user = core::mem::replace(&mut spec.user, self.shared.held.next().word());
            make(self.node, self.now, spec).map_err(BelowError::from).map(|md| (md, user))
        };
        match made {
            Ok((md, user)) => {
                // Blocks are the slabs' own: no region of theirs goes while one of them is given out.
                if !blocks {
                    self.arena.hold(&iov);
                }
                let owner = self.id;
                self.shared.held.enter(Descriptor { owner, md, user, iov, blocks });
                Ok(md)
            }
            Err(e) => {
                if blocks {
                    iov.iter().for_each(|block| self.shared.slabs.free(*block));
                }
                Err(e)
            }
        }
    }
}

/// A descriptor is gone: its memory is its owner's alone. Blocks were never counted.
fn let_go(held: &Descriptor, arena: &mut dyn Arena) {
    if !held.blocks {
        arena.release(&held.iov);
    }
}

impl Shared {
    /// A descriptor is gone.
    fn end(&mut self, name: Name) {
        let Self { held, slabs, .. } = self;
        held.end(name, |block| slabs.free(block));
    }

    fn unlink(&self, now: Instant, node: &mut Node, whose: impl Fn(UpperId) -> bool) {
        for md in self.held.of(whose) {
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

    /// Lets go of quiet descriptors that are gone, and notifies their uppers. Each call of an upper begins
    /// with it.
    pub fn reap(&mut self, node: &mut Node, arena: &mut dyn Arena) {
        while let Some(word) = node.poll_spent() {
            let Some(name) = Name::of(word) else { continue };
            let Some(held) = self.shared.held.get(name) else { continue };
            let_go(held, arena);
            if let Some(Some(slot)) = self.slots.get_mut(usize::from(held.owner.0)) {
                slot.upper.spent(held.user);
            }
            self.shared.end(name);
        }
    }

    /// Descriptors whose last event has not come, and those that are to be [reaped](Self::reap).
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
        self.reap(node, arena);
        let slot = self.slots.get_mut(usize::from(id.0))?.as_mut()?;
        let upper: &mut dyn Any = &mut *slot.upper;
        let upper = upper.downcast_mut::<T>()?;
        let shared = &mut self.shared;
        let result = f(upper, &mut Below { now, id, node, arena, shared, event_of: None });
        slot.due.set(None);
        Some(result)
    }

    /// Takes an event to the upper that it belongs to, with the upper's own word in it; `false` if it
    /// belongs to none. One of a descriptor that is gone at once goes nowhere.
    pub fn event(
        &mut self,
        now: Instant,
        event: &mut Event,
        node: &mut Node,
        arena: &mut dyn Arena,
    ) -> bool {
        let Some(name) = Name::of(event.user) else { return false };
        let Some(held) = self.shared.held.get(name) else { return true };
        event.user = held.user;
        let owner = held.owner;
        // No descriptor stands on the memory any more: its upper may give it back at once. Where it is
        // stays known until then, for the payload of this event.
        if event.unlinked {
            let_go(held, arena);
        }
        self.call(owner, now, node, arena, Some(name), |upper, below| upper.event(event, below));
        if event.unlinked {
            self.shared.end(name);
        }
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
        event_of: Option<Name>,
        f: impl FnOnce(&mut dyn Upper, &mut Below<'_>),
    ) {
        self.reap(node, arena);
        let Some(slot) = self.slots.get_mut(usize::from(id.0)).and_then(Option::as_mut) else {
            return;
        };
        let shared = &mut self.shared;
        f(&mut *slot.upper, &mut Below { now, id, node, arena, shared, event_of });
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
