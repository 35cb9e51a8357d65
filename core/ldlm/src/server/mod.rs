//! Locks of a server: requests, replies and callbacks around the lock machine of `space`. On `ptlrpc`.
//! Owned by a target, which hands in the requests for locks and the facts of its callbacks.
//!
//! ```text
//!  serve, callback, left, handle_timeout ─► space ─► effects
//!                 │                                    │ Block, Complete     callback.rs
//!                 ▼                                    ▼
//!       round: an enqueue whose reply waits ◄── the callbacks of its round have ended
//! ```
//!
//! `request.rs` reads requests, `enqueue.rs` has the steps of an enqueue (L-22), `glimpse.rs` those of
//! a glimpse (L-35), `cancel.rs` cancels and conversions, `callback.rs` callbacks and what their ends
//! mean (L-55), `delay.rs` callbacks that can't go yet, `intent.rs` locks that go with the result of an
//! intent, `local.rs` locks of the server itself, `value.rs` what comes with locks, `view.rs` what can be seen.

mod callback;
mod cancel;
mod delay;
mod enqueue;
mod glimpse;
mod intent;
mod local;
mod request;
mod value;
mod view;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Errno, Instant};
use lustre_wire::Opcode;
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{CallId, Estimate, EvictReason, ExportId, Rpc, Served, ServedId, Tunables, Waiting};

use crate::Cookie;
use crate::lookup::Lookup;
use crate::space::{
    self, Config, Effect, HolderId, HolderKind, Io, LockView, Namespace, Touched, Value,
};

pub use intent::BitsAsk;
pub use local::LocalAsk;
pub use request::Request;
pub use value::Values;
pub use view::{LockLine, LockStats};

use callback::Calling;
use delay::Delayed;
use glimpse::Glimpsing;

/// Whether the data of a request that waits for a service move under a lock.
pub type Under = fn(&Waiting<'_>, &LockView) -> bool;

/// An enqueue whose reply waits for the callbacks of its round (L-23).
#[derive(Clone, Copy, Debug)]
struct Round {
    served: ServedId,
    /// Callbacks that have not ended.
    open: usize,
    /// A replayed lock: its reply has no value (L-62).
    replay: bool,
    /// A glimpse that is granted as a lock (L-35).
    glimpse: bool,
    /// The value is sent without its last part (L-18).
    short: bool,
}

/// The locks of one target, served over the request layer.
#[derive(Debug)]
pub struct LockServer {
    space: Namespace,
    values: Values,
    /// Callback estimates of the clients that have asked for locks (L-47).
    holders: BTreeMap<ExportId, Estimate>,
    rounds: Lookup<Cookie, Round>,
    glimpses: BTreeMap<ServedId, Glimpsing>,
    calls: BTreeMap<CallId, Calling>,
    /// The callback under way for a lock that is called back.
    called: BTreeMap<Cookie, CallId>,
    delayed: Delayed,
    under: Option<Under>,
    /// Rounds that are over.
    over: VecDeque<Cookie>,
    /// When the value of locks is calculated again (L-59).
    volume_at: Instant,
    /// Locks of the server itself that were asked for, in all, and those that have been granted after
    /// a wait.
    locals: u64,
    locals_granted: VecDeque<Cookie>,
    /// Locks are being replayed.
    replaying: bool,
    stats: LockStats,
}

fn holder(export: ExportId) -> HolderId {
    HolderId(export.into())
}

fn export(holder: HolderId) -> ExportId {
    ExportId::from(holder.0)
}

/// The callback estimate of a client, as the timer takes it (L-47).
fn callback_time(estimate: &Estimate, tunables: &Tunables) -> Duration {
    if tunables.at_max.is_zero() {
        return tunables.obd_timeout / 2;
    }
    let (min, max) = (tunables.at_min, tunables.at_max);
    estimate.get(&ptlrpc::Bounds { min, max, history: tunables.at_history }).min(max)
}

impl LockServer {
    /// The locks of a target that begins; `replays`: its clients are to replay theirs first (L-25).
    pub fn new(config: Config, values: Values, replays: bool) -> Self {
        let mut space = Namespace::new(config);
        if replays {
            space.begin_replay();
        }
        Self {
            space,
            values,
            holders: BTreeMap::new(),
            rounds: Lookup::default(),
            glimpses: BTreeMap::new(),
            calls: BTreeMap::new(),
            called: BTreeMap::new(),
            delayed: Delayed::default(),
            under: None,
            over: VecDeque::new(),
            volume_at: Instant::ZERO,
            locals: 0,
            locals_granted: VecDeque::new(),
            replaying: replays,
            stats: LockStats::default(),
        }
    }

    /// Requests that wait for a service go first when the lock is called back under which their data move
    /// (P-114).
    pub fn raise_what_is(&mut self, under: Under) {
        self.under = Some(under);
    }

    /// Breaks a rule from now on.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, rule: crate::Sabotage) {
        self.space.sabotage(rule);
    }

    /// The lock machine, to be looked at.
    pub const fn space(&self) -> &Namespace {
        &self.space
    }

    /// Whether a request is one for locks: enqueue, convert, cancel.
    pub const fn serves(opcode: Opcode) -> bool {
        matches!(opcode, Opcode::LDLM_ENQUEUE | Opcode::LDLM_CONVERT | Opcode::LDLM_CANCEL)
    }

    /// The resource that an enqueue is for, so that its target can read the attributes of the object
    /// first; `None` for other requests and for those that are not well formed.
    pub fn resource_of(served: &Served) -> Option<ResourceName> {
        let request = request::read(served).ok()?;
        (served.opcode == Opcode::LDLM_ENQUEUE).then_some(request.lock.desc.resource)
    }

    /// A request for locks; it is answered once, now or later. `value`: the attributes of the object of
    /// an enqueue, or why it has none (L-22.5).
    pub fn serve(
        &mut self,
        served: &Served,
        value: Result<Option<Value>, Errno>,
        rpc: &mut Rpc<'_, '_>,
    ) {
        match request::read(served) {
            Err(errno) => rpc.refuse(served.id, errno),
            Ok(request) => self.serve_read(served, &request, value, rpc),
        }
    }

    /// The request in a message, to be looked at and then served by [`Self::serve_read`].
    ///
    /// # Errors
    /// `EPROTO` if its buffers are not those of a lock request.
    pub fn read(served: &Served) -> Result<Request<'_>, Errno> {
        request::read(served)
    }

    /// As [`Self::serve`], with a request that was read from the same message.
    pub fn serve_read(
        &mut self,
        served: &Served,
        request: &Request<'_>,
        value: Result<Option<Value>, Errno>,
        rpc: &mut Rpc<'_, '_>,
    ) {
        self.announce_volume(served, rpc);
        match served.opcode {
            Opcode::LDLM_ENQUEUE => self.enqueue(served, request, value, rpc),
            Opcode::LDLM_CANCEL => self.cancel(served, &request.lock, rpc),
            Opcode::LDLM_CONVERT => self.convert(served, &request.lock, rpc),
            _ => rpc.refuse(served.id, Errno::EOPNOTSUPP),
        }
        self.work(rpc);
    }

    /// The attributes of an object have changed.
    pub fn set_value(&mut self, resource: &ResourceName, value: Value) {
        self.space.set_value(resource, value);
    }

    /// A client reads or writes, or waits for its turn to: timers of the locks under it that were
    /// called back are refreshed (L-49). `NoLock`: it has lost its lock, and the request is answered
    /// with `ESTALE`.
    pub fn touch(
        &mut self,
        served: ServedId,
        client: ExportId,
        io: &Io,
        rpc: &mut Rpc<'_, '_>,
    ) -> Touched {
        let prolong = rpc.prolongation(served);
        let touched = self.space.touch(rpc.now(), holder(client), io, prolong);
        self.stats.touches += u64::from(touched == Touched::CalledBack);
        touched
    }

    /// A client is gone, and so are its locks (L-52). The request layer does not know it any more.
    pub fn left(&mut self, export: ExportId, rpc: &mut Rpc<'_, '_>) {
        self.space.evict(rpc.now(), holder(export));
        self.holders.remove(&export);
        self.work(rpc);
    }

    /// The recovery of the target is over: queues are examined, with callbacks (L-30).
    pub fn recovered(&mut self, rpc: &mut Rpc<'_, '_>) {
        if core::mem::take(&mut self.replaying) {
            self.space.end_replay(rpc.now());
            self.work(rpc);
        }
    }

    /// When [`Self::handle_timeout`] is wanted, in whole seconds (L-48).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.space.poll_timeout().map(|at| {
            let whole = Instant::from_secs(at.as_secs());
            if whole == at { whole } else { whole + Duration::from_secs(1) }
        })
    }

    /// Ends the timers whose time has come. `busy` says whether a request of the client waits that
    /// needs the lock: it is given more time (L-52).
    pub fn handle_timeout(
        &mut self,
        rpc: &mut Rpc<'_, '_>,
        busy: impl Fn(&Rpc<'_, '_>, ExportId, &LockView) -> bool,
    ) {
        let now = rpc.now();
        let Self { space, delayed, .. } = self;
        space.handle_timeout(now, &mut |lock: &LockView| {
            // No holder is evicted that has not been asked.
            delayed.is_unasked(lock.lock) || busy(rpc, export(lock.holder), lock)
        });
        self.work(rpc);
    }

    /// Calculates what replies say about the caches of clients, once a second at most (L-59).
    fn announce_volume(&mut self, served: &Served, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        if now >= self.volume_at {
            self.volume_at = now + Duration::from_secs(1);
            self.space.recalculate_slv(now);
            let (slv, limit) = self.space.slv();
            rpc.set_lock_volume(served.target, slv, limit);
        }
    }

    /// The client of a request as a holder of locks.
    fn settle(&mut self, client: ExportId, rpc: &Rpc<'_, '_>) {
        let tunables = rpc.tunables();
        let estimate =
            self.holders.entry(client).or_insert_with(|| Estimate::new(tunables.obd_timeout));
        self.space.connect(holder(client), HolderKind::Client, callback_time(estimate, tunables));
    }

    /// Does what the lock machine orders, and answers the enqueues whose rounds are over.
    fn work(&mut self, rpc: &mut Rpc<'_, '_>) {
        loop {
            if let Some(effect) = self.space.poll_effect() {
                match effect {
                    // A lock of the server itself goes with the request that it is for.
                    Effect::Block { callback, .. } if local::is_local(callback.holder) => {}
                    Effect::Complete(callback) if local::is_local(callback.holder) => {
                        self.locals_granted.push_back(callback.lock);
                    }
                    Effect::Block { callback, because } => self.block(&callback, because, rpc),
                    Effect::Complete(callback) => self.complete(&callback, rpc),
                    Effect::Evict { holder, why, .. } => self.evict(export(holder), why, rpc),
                }
            } else if let Some(lock) = self.over.pop_front() {
                self.answer(lock, rpc);
            } else {
                return;
            }
        }
    }

    fn evict(&mut self, client: ExportId, why: space::EvictReason, rpc: &mut Rpc<'_, '_>) {
        if rpc.client(client).is_none() {
            // It is gone already; its locks go when its target has recorded that (`left`). Requests of
            // a client that is gone make no locks: see `enqueue`.
            return;
        }
        let reason = match why {
            space::EvictReason::Expired => {
                self.stats.expired += 1;
                EvictReason::LockTimeout
            }
            space::EvictReason::CallbackFailed => {
                self.stats.failed += 1;
                EvictReason::LockCallback
            }
            space::EvictReason::ReplayConflict => EvictReason::VersionMismatch,
        };
        rpc.evict_for(client, reason);
    }
}
