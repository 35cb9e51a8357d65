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
//! `ask.rs` and `effect.rs` are the border; `decide.rs` is enqueue and answer, `settle.rs` grants to
//! waiting locks, `release.rs` the end of locks, `timer.rs` callbacks without a cancel. `record.rs` says
//! what a lock is and when two conflict, `tree.rs` finds those that do.

mod ask;
mod config;
mod contention;
mod cookies;
mod decide;
mod effect;
mod flock;
mod glimpse;
mod grow;
mod queue;
mod record;
mod release;
mod replay;
mod settle;
mod show;
mod slab;
mod slv;
mod table;
#[cfg(test)]
mod tests;
mod timer;
mod tree;
mod value;
mod view;

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashTable;
use lnet_types::{Instant, Prng};
use lustre_wire::ldlm::{Lvb, ResourceName};

pub use ask::{
    Answer, Ask, CallbackEnd, Cancelled, ConvertRefusal, Enqueued, Glimpse, HolderId, HolderKind,
    Io, State, Touched,
};
pub use config::{Config, Limits};
pub use contention::CONTENDED_LOCKS;
pub use effect::{Callback, Effect, EvictReason};
pub use value::{VALUE_MAX, Value};
pub use view::{LockView, SpaceView};

use crate::sabotage::Sabotage;
use cookies::Cookies;
use record::{Holder, Lock, Resource};
use slab::Slab;
use slv::Slv;

/// The locks of one target.
#[derive(Debug)]
pub struct Namespace {
    config: Config,
    cookies: Cookies,
    /// Key of the tables' hash.
    key: u64,
    locks: Slab<Lock>,
    resources: Slab<Resource>,
    holders: Slab<Holder>,
    by_client: HashTable<u32>,
    by_name: HashTable<u32>,
    by_holder: HashTable<u32>,
    /// Locks that wait, in all resources.
    waiting: usize,
    /// Waiting locks of files' users: holder, owner, lock.
    owners_waiting: BTreeSet<(u32, u64, u32)>,
    /// Callback timers: second in which they end, lock.
    timers: BTreeSet<(u32, u32)>,
    effects: VecDeque<Effect>,
    /// Resources to be examined before the call ends.
    dirty: Vec<u32>,
    /// Room for the conflicts of one request.
    met: Vec<u32>,
    replaying: bool,
    slv: Slv,
    #[cfg(feature = "sabotage")]
    sabotage: Option<Sabotage>,
}

impl Namespace {
    /// A namespace without locks.
    pub fn new(config: Config) -> Self {
        let mut seed = Prng::new(config.seed);
        Self {
            cookies: Cookies::new(seed.next_u64()),
            key: seed.next_u64(),
            slv: Slv::new(config.limits.locks_soft),
            config,
            locks: Slab::default(),
            resources: Slab::default(),
            holders: Slab::default(),
            by_client: HashTable::new(),
            by_name: HashTable::new(),
            by_holder: HashTable::new(),
            waiting: 0,
            owners_waiting: BTreeSet::new(),
            timers: BTreeSet::new(),
            effects: VecDeque::new(),
            dirty: Vec::new(),
            met: Vec::new(),
            replaying: false,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }

    /// From now on a rule is broken.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, rule: Sabotage) {
        self.sabotage = Some(rule);
    }

    /// Whether a test breaks the rule.
    #[cfg(feature = "sabotage")]
    fn breaks(&self, rule: Sabotage) -> bool {
        self.sabotage == Some(rule)
    }

    #[cfg(not(feature = "sabotage"))]
    const fn breaks(&self, _: Sabotage) -> bool {
        false
    }

    /// Adds a holder, with its callback estimate (L-47). A known one keeps its locks and gets the
    /// estimate.
    pub fn connect(&mut self, holder: HolderId, kind: HolderKind, estimate: Duration) {
        match self.find_holder(holder) {
            Some(at) => self.holders[at].estimate = estimate,
            None => self.add_holder(holder, kind, estimate),
        }
    }

    /// Sets the callback estimate of a holder, for timers that are armed or refreshed from now on.
    pub fn set_estimate(&mut self, holder: HolderId, estimate: Duration) {
        if let Some(at) = self.find_holder(holder) {
            self.holders[at].estimate = estimate;
        }
    }

    /// Sets the lower bound of callback timers, `ldlm_enqueue_min`, for those that are armed or refreshed
    /// from now on.
    pub fn set_enqueue_min(&mut self, enqueue_min: Duration) {
        self.config.enqueue_min = enqueue_min;
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The value block of a resource.
    pub fn value(&self, resource: &ResourceName) -> Option<&Value> {
        self.resources[self.find_resource(resource)?].value.as_deref()
    }

    /// Sets the value block of a resource that has locks. Whether it has.
    pub fn set_value(&mut self, resource: &ResourceName, value: Value) -> bool {
        let Some(at) = self.find_resource(resource) else { return false };
        self.resources[at].value = Some(Box::new(value));
        true
    }

    /// Keeps a resource until [`Self::unpin`], also without locks, so that its value block is there. Whether
    /// there is one.
    pub fn pin(&mut self, resource: &ResourceName) -> bool {
        let Some(at) = self.find_resource(resource) else { return false };
        self.resources[at].locks += 1;
        true
    }

    /// Ends [`Self::pin`].
    pub fn unpin(&mut self, resource: &ResourceName) {
        let Some(at) = self.find_resource(resource) else { return };
        let record = &mut self.resources[at];
        record.locks = record.locks.saturating_sub(1);
        if record.locks == 0 {
            self.drop_resource(at);
        }
    }

    /// The resources that locks wait for and that have no value block: after a replay, as replayed locks bring
    /// none (L-25).
    pub fn without_value(&self) -> impl Iterator<Item = ResourceName> + '_ {
        let lacks = |record: &&Resource| record.waiting > 0 && record.value.is_none();
        self.resources.iter().map(|(_, record)| record).filter(lacks).map(|record| record.name)
    }

    /// Takes over what a client knows of an object: values increase, never decrease (L-34).
    pub fn grow_value(&mut self, resource: &ResourceName, seen: &Lvb) {
        if let Some(at) = self.find_resource(resource)
            && let Some(value) = &mut self.resources[at].value
        {
            value.grow(seen);
        }
    }

    /// SLV and the limit of locks, for the fields of the same name in a reply's body (L-59).
    pub fn slv(&self) -> (u64, u32) {
        self.slv.fields()
    }

    /// Recalculates SLV (L-59); once a second is enough.
    pub fn recalculate_slv(&mut self, now: Instant) {
        self.slv.recalculate(now, self.locks.len() - self.waiting);
    }
}
