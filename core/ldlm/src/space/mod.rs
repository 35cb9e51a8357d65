//! The lock machine of a server: one namespace with its resources and locks (L-1). It decides who gets
//! which lock, which locks are called back, whose callback timer ran out. It has no type of the request
//! layer: holders are numbers, time and estimates come in as values, effects are polled.
//!
//! ```text
//!  enqueue ─► Enqueued ─► answer ─► Answer      the reply leaves; its callbacks were sent before
//!  glimpse, cancel, convert, touch, evict …     results at once
//!  poll_effect ─► Block, Complete, Evict
//! ```
//!
//! An enqueue and its answer are two calls, because the reply waits for the callbacks of its round
//! (L-23). A lock that is granted before its answer needs no completion: the answer says so.
//! [`answer`](Namespace::answer) must follow each enqueue, or [`abort`](Namespace::abort).
//!
//! `ask.rs` and `effect.rs` are the border.

mod ask;
mod config;
mod effect;
mod value;
mod view;

use core::time::Duration;

use lnet_types::Instant;
use lustre_wire::ldlm::{InodeBits, Lvb, ResourceName};

pub use ask::{
    Answer, Ask, CallbackEnd, Cancelled, ConvertRefusal, Enqueued, Glimpse, HolderId, HolderKind,
    Io, State, Touched,
};
pub use config::{Config, Limits};
pub use effect::{Callback, Effect, EvictReason};
pub use value::{VALUE_MAX, Value};
pub use view::{LockView, SpaceView};

use crate::{Cookie, Mode, Refusal};

/// The locks of one target.
#[derive(Debug)]
pub struct Namespace {
    config: Config,
}

impl Namespace {
    /// A namespace without locks.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// Adds a holder, with its callback estimate (L-47); a known one keeps its locks.
    pub fn connect(&mut self, _holder: HolderId, _kind: HolderKind, _estimate: Duration) {}

    /// Sets the callback estimate of a holder, for timers that are armed or refreshed from now on.
    pub fn set_estimate(&mut self, _holder: HolderId, _estimate: Duration) {}

    /// Time from a callback to the eviction of its holder: 1.5 times the estimate, at least
    /// `ldlm_enqueue_min` (L-47).
    pub fn callback_limit(&self, _holder: HolderId) -> Duration {
        self.config.enqueue_min
    }

    /// Asks for a lock (L-22, L-23). Callbacks of the round are effects with `because` the new lock.
    ///
    /// # Errors
    /// The request is malformed, or refused; no lock remains.
    pub fn enqueue(
        &mut self,
        _now: Instant,
        _holder: HolderId,
        _ask: &Ask,
    ) -> Result<Enqueued, Refusal> {
        Err(Refusal::NotConnected)
    }

    /// Asks for a lock to learn an object's size (L-35).
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn glimpse(
        &mut self,
        now: Instant,
        holder: HolderId,
        ask: &Ask,
    ) -> Result<Glimpse, Refusal> {
        self.enqueue(now, holder, ask).map(Glimpse::Granted)
    }

    /// What the reply says (L-22.10, L-22.12). From now on the client knows the lock, and callbacks are
    /// sent for it; if one was due already it is contained, and its timer runs. `None` if the lock is
    /// gone: its holder was evicted, or its callback found that the client does not have it.
    pub fn answer(&mut self, _now: Instant, _lock: Cookie) -> Option<Answer> {
        None
    }

    /// Drops a lock whose request ended with an error or ABORTED (L-22.14). Whether it was there.
    pub fn abort(&mut self, _now: Instant, _lock: Cookie) -> bool {
        false
    }

    /// Cancels locks of a holder; those that are unknown or of another holder are passed over (L-42).
    pub fn cancel(&mut self, _now: Instant, _holder: HolderId, _locks: &[Cookie]) -> Cancelled {
        Cancelled::default()
    }

    /// Drops inode bits of a lock (L-45); returns those that are left. With none left the lock is gone.
    ///
    /// # Errors
    /// The lock is unknown, or of another holder, kind or mode, or does not have the bits.
    pub fn convert(
        &mut self,
        _now: Instant,
        _holder: HolderId,
        _lock: Cookie,
        _mode: Mode,
        _keep: InodeBits,
    ) -> Result<InodeBits, ConvertRefusal> {
        Err(ConvertRefusal::Gone)
    }

    /// Removes a holder and all its locks, those that were called back first (L-52). Number of locks.
    pub fn evict(&mut self, _now: Instant, _holder: HolderId) -> usize {
        0
    }

    /// A blocking callback, or a completion with AST_SENT, ended (L-55).
    pub fn callback_ended(&mut self, _now: Instant, _lock: Cookie, _end: CallbackEnd) {}

    /// A callback is sent again: its timer is refreshed (L-51). When it ends; `None` if it does not run.
    pub fn callback_resent(&mut self, _now: Instant, _lock: Cookie) -> Option<Instant> {
        None
    }

    /// I/O of a client refreshes the timers of the locks under it, to `prolong` from now (L-49).
    pub fn touch(
        &mut self,
        _now: Instant,
        _holder: HolderId,
        _io: &Io,
        _prolong: Duration,
    ) -> Touched {
        Touched::NoLock
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    /// When the first callback timer ends.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Ends callback timers whose time has come: a lock for which `busy` says that a request of high
    /// priority lies in the queue gets half of its time again, the holder of any other is evicted
    /// (L-52).
    pub fn handle_timeout(&mut self, _now: Instant, _busy: &mut dyn FnMut(&LockView) -> bool) {}

    /// From now on locks are replayed: queues stand still (L-25).
    pub fn begin_replay(&mut self) {}

    /// The replay is over: each queue is examined whole, with callbacks (L-30).
    pub fn end_replay(&mut self, _now: Instant) {}

    /// The value block of a resource.
    pub fn value(&self, _resource: &ResourceName) -> Option<&Value> {
        None
    }

    /// Sets the value block of a resource that has locks. Whether it has.
    pub fn set_value(&mut self, _resource: &ResourceName, _value: Value) -> bool {
        false
    }

    /// Takes over what a client knows of an object: values increase, never decrease (L-34).
    pub fn grow_value(&mut self, _resource: &ResourceName, _seen: &Lvb) {}

    /// A lock.
    pub fn lock(&self, _lock: Cookie) -> Option<LockView> {
        None
    }

    /// The locks of a holder.
    pub fn locks_of(&self, _holder: HolderId) -> Vec<LockView> {
        Vec::new()
    }

    /// The locks of a resource, granted ones first, waiting ones in their order.
    pub fn locks_on(&self, _resource: &ResourceName) -> Vec<LockView> {
        Vec::new()
    }

    /// The names of all resources.
    pub fn resources(&self) -> Vec<ResourceName> {
        Vec::new()
    }

    /// Counts.
    pub fn view(&self) -> SpaceView {
        SpaceView::default()
    }

    /// The locks for which a lock waits, in the order in which they were met (at most `limit`); empty if
    /// it is granted or gone.
    pub fn blockers(&self, _lock: Cookie, _limit: usize) -> Vec<LockView> {
        Vec::new()
    }

    /// SLV and the limit of locks, for the fields of the same name in a reply's body (L-59).
    pub fn slv(&self) -> (u64, u32) {
        (0, 0)
    }

    /// Recalculates SLV (L-59); once a second is enough.
    pub fn recalculate_slv(&mut self, _now: Instant) {}
}
