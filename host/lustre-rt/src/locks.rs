//! Locks by name, held by programs: asked for, waited for on any thread, given back when they are
//! dropped. What is decided about a lock stands in `ldlm::client`, its name and fencing number in
//! `lustre_target::lock::wire`.

use core::fmt;
use core::future::{Future, IntoFuture};
use core::ops::{Bound, RangeBounds};
use core::pin::Pin;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_channel::{Receiver, Sender, bounded};
use ldlm::Mode;
use ldlm::client::{Ask, GoneReason, HoldId, LockClient, LockError, LockEvent};
use lnet_rt::{Below, Nid, OpError};
use lnet_types::ByteOrder;
use lustre_target::lock::wire::{fence_of, resource_of};
use lustre_wire::connect::{ConnectData, ConnectFlags};
use lustre_wire::ldlm::{END_OF_FILE, LockFlags, Policy};
use lustre_wire::{Buffers, ImportKind};
use ptlrpc::{ImportConfig, ImportId, Ptlrpc};

use crate::host::Host;
use crate::kv;
use crate::node::{Import, RpcError, RpcNode};
use crate::seats::Seats;

/// What a client of a lock target wants.
fn wanted() -> ConnectData {
    let offer = kv::offer();
    let flags =
        offer.flags | ConnectFlags::LVB_TYPE | ConnectFlags::CANCELSET | ConnectFlags::LRU_RESIZE;
    ConnectData { flags, ..offer }
}

/// Why a program has no lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocksError {
    /// The node has stopped, or has too much to do.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The lock is not granted.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A name that no resource has.
    #[error("lock name of {0} bytes: expected 1 to 255")]
    Name(usize),
    /// A range without bytes.
    #[error("lock range: must not be empty")]
    Range,
}

impl From<OpError> for LocksError {
    fn from(e: OpError) -> Self {
        Self::Rpc(e.into())
    }
}

/// A client of a lock target. Clones are the same one.
///
/// Holds exclude each other wherever they are: in two processes, or in two tasks of one.
#[derive(Clone, Debug)]
pub struct Locks {
    node: RpcNode,
    import: Import,
}

impl Locks {
    /// A client of `target`, which one of `nids` serves. It connects with its first lock. No other
    /// client has the same `uuid`.
    ///
    /// # Errors
    /// A uuid that is empty or too long, no NID; another program of the node serves callbacks.
    pub fn new(rpc: &RpcNode, target: &str, uuid: &str, nids: Vec<Nid>) -> Result<Self, RpcError> {
        let import = rpc.import(ImportConfig {
            kind: ImportKind::Osc,
            target: target.to_owned(),
            client: uuid.to_owned(),
            nids,
            wanted: wanted(),
        })?;
        let id = import.id();
        let opened =
            rpc.run(move |host, below| host.locks.open(id, &mut host.ptlrpc.rpc(below)))?;
        let what = "service of callbacks".to_owned();
        opened.map_err(|errno| RpcError::Start { what, errno })?;
        Ok(Self { node: rpc.clone(), import })
    }

    /// Asks for a lock: wait for it with `.await` or [`Enqueue::blocking`]. Nothing is sent before.
    pub fn enqueue(&self, name: &str, mode: Mode) -> Enqueue {
        Enqueue {
            locks: self.clone(),
            name: name.to_owned(),
            mode,
            start: 0,
            end: END_OF_FILE,
            empty: false,
            limit: None,
            waits: true,
        }
    }

    /// The connection.
    pub const fn import(&self) -> &Import {
        &self.import
    }

    /// Ends the connection. Locks that are still held are lost.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn disconnect(self) -> Result<(), OpError> {
        self.import.disconnect()
    }
}

/// A lock that is asked for.
#[derive(Clone, Debug)]
#[must_use = "a lock is asked for when it is awaited or waited for"]
pub struct Enqueue {
    locks: Locks,
    name: String,
    mode: Mode,
    start: u64,
    end: u64,
    empty: bool,
    limit: Option<Duration>,
    waits: bool,
}

impl Enqueue {
    /// A part of what the name stands for, in bytes; all of it if this is not called.
    pub fn range(mut self, range: impl RangeBounds<u64>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(end) => Some(*end),
            Bound::Excluded(behind) => behind.checked_sub(1),
            Bound::Unbounded => Some(END_OF_FILE),
        };
        self.empty = !matches!((start, end), (Some(start), Some(end)) if start <= end);
        (self.start, self.end) = (start.unwrap_or_default(), end.unwrap_or_default());
        self
    }

    /// Waits at most so long: then [`LockError::LimitPassed`].
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Does not wait for other holders: [`LockError::Conflict`] if there are some. A server that does
    /// not answer is waited for all the same, up to the limit.
    pub fn nowait(mut self) -> Self {
        self.waits = false;
        self
    }

    fn ask(&self) -> Result<Ask, LocksError> {
        if self.empty {
            return Err(LocksError::Range);
        }
        let resource = resource_of(&self.name).ok_or(LocksError::Name(self.name.len()))?;
        let policy = Policy::Extent { start: self.start, end: self.end, gid: 0 };
        // What is asked for is what is needed: more would be called back more often.
        let mut flags = LockFlags::NO_EXPANSION;
        flags.set(LockFlags::SPECULATIVE, !self.waits);
        let beside = Buffers::from([self.name.as_bytes()]);
        let limit = self.limit;
        Ok(Ask { flags, limit, beside, ..Ask::new(resource, self.mode, policy) })
    }

    /// Sends the request.
    fn begin(&self) -> Result<Pending, LocksError> {
        let ask = self.ask()?;
        let (tx, end) = bounded(1);
        let name = Arc::new(OnceLock::new());
        let (named, import) = (Arc::clone(&name), self.locks.import.id());
        let node = self.locks.node.clone();
        let given = Given { node: node.clone(), import, hold: name };
        let began = node.start_run(move |host, below| {
            let Host { ptlrpc, locks, holders, .. } = host;
            match locks.enqueue(import, &ask, &mut ptlrpc.rpc(below)) {
                Ok(hold) => {
                    // Written once: this runs once.
                    let _ = named.set(hold);
                    holders.asked.insert(hold, tx);
                }
                Err(e) => {
                    // A caller that has gone away wants nothing any more.
                    let _ = tx.try_send(Err(e));
                }
            }
        });
        Ok(Pending { end, given, began })
    }

    /// Waits for the lock on this thread.
    ///
    /// # Errors
    /// Why it is not granted; [`OpError::WouldDeadlock`] on the node's own thread.
    pub fn blocking(self) -> Result<Lock, LocksError> {
        if self.locks.node.is_here() {
            return Err(OpError::WouldDeadlock.into());
        }
        let Pending { end, given, began } = self.begin()?;
        match end.recv_blocking() {
            Ok(granted) => Ok(Lock { granted: granted?, given }),
            Err(_) => Err(began.blocking().err().unwrap_or(OpError::Stopped).into()),
        }
    }
}

impl IntoFuture for Enqueue {
    type Output = Result<Lock, LocksError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            // A future that is dropped gives up what it has asked for.
            let Pending { end, given, began } = self.begin()?;
            match end.recv().await {
                Ok(granted) => Ok(Lock { granted: granted?, given }),
                Err(_) => Err(began.await.err().unwrap_or(OpError::Stopped).into()),
            }
        })
    }
}

/// A request under way.
struct Pending {
    end: Receiver<Result<Granted, LockError>>,
    given: Given,
    /// The way of the request to the node's thread.
    began: lnet_rt::Call<()>,
}

/// A hold, granted or not, which is given back when it is dropped.
struct Given {
    node: RpcNode,
    import: ImportId,
    hold: Arc<OnceLock<HoldId>>,
}

impl Drop for Given {
    fn drop(&mut self) {
        let given = (self.import, Arc::clone(&self.hold));
        let mut back = self.node.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.push(given);
        drop(back);
        // A node that has too much to do looks when it has less.
        let _begun = self.node.start_run(|_, _| {});
    }
}

/// Holds that were given back, and are still known on the node's thread: what is given back must
/// arrive there, however much there is to do.
pub(crate) type GivenBack = Arc<Mutex<Vec<(ImportId, Arc<OnceLock<HoldId>>)>>>;

/// What a grant brings.
struct Granted {
    mode: Mode,
    fence: Option<u64>,
    lost: Receiver<()>,
    wanted: Receiver<()>,
}

/// A lock. It is given back when it is dropped.
///
/// A lock can be lost: the server takes it away from a client that it does not hear of. The client
/// learns that from the server, so a client that is cut off, or was stopped, learns it late. What must
/// not be written by two at a time is protected by comparing [`Lock::fence`] where it is written.
#[must_use = "a lock is given back when it is dropped"]
pub struct Lock {
    granted: Granted,
    given: Given,
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Granted { mode, fence, .. } = &self.granted;
        let (hold, lost) = (&self.given.hold, self.is_lost());
        f.debug_struct("Lock")
            .field("hold", hold)
            .field("mode", mode)
            .field("fence", fence)
            .field("lost", &lost)
            .finish()
    }
}

impl Lock {
    /// The fencing number, greater than that of any lock which conflicted with this one before. Modes
    /// EX and PW have one.
    pub const fn fence(&self) -> Option<u64> {
        self.granted.fence
    }

    /// The mode.
    pub const fn mode(&self) -> Mode {
        self.granted.mode
    }

    /// Waits until the lock is lost: the server has evicted this client, or the node has stopped.
    pub async fn lost(&self) {
        // Nothing is ever sent: its end is what is waited for.
        let _ = self.granted.lost.recv().await;
    }

    /// Whether the lock is lost, as far as this client knows.
    pub fn is_lost(&self) -> bool {
        self.granted.lost.is_closed()
    }

    /// Waits until another client wants the lock. A holder that keeps it without a sign of life is
    /// evicted; one that answers, and keeps it, is evicted when the time of callbacks ends.
    pub async fn wanted(&self) {
        let _ = self.granted.wanted.recv().await;
    }

    /// Whether another client wants the lock.
    pub fn is_wanted(&self) -> bool {
        self.granted.wanted.is_closed()
    }

    /// What learns of the loss of the lock on another thread.
    pub fn watch(&self) -> LockWatch {
        LockWatch(self.granted.lost.clone())
    }

    /// What learns on another thread that another client wants the lock.
    pub fn watch_wanted(&self) -> LockWatch {
        LockWatch(self.granted.wanted.clone())
    }
}

/// Learns on another thread that a lock is lost, or wanted, or was given back.
#[derive(Clone, Debug)]
pub struct LockWatch(Receiver<()>);

impl LockWatch {
    /// Waits on this thread until that happens, or the lock is given back.
    pub fn blocking(&self) {
        let _ = self.0.recv_blocking();
    }
}

/// The holders of locks, on the node's thread.
#[derive(Default)]
pub(crate) struct Holders {
    asked: BTreeMap<HoldId, Sender<Result<Granted, LockError>>>,
    held: BTreeMap<HoldId, Held>,
    back: GivenBack,
}

/// The ends of what a holder waits for: dropped when it happens.
struct Held {
    _lost: Sender<()>,
    wanted: Option<Sender<()>>,
}

impl Holders {
    /// Those who give back through `back`.
    pub(crate) fn new(back: GivenBack) -> Self {
        Self { back, ..Self::default() }
    }

    fn forget(&mut self, hold: HoldId) {
        self.asked.remove(&hold);
        self.held.remove(&hold);
    }

    /// Takes what the locks have to say to those who hold them.
    pub(crate) fn drain(
        &mut self,
        locks: &mut LockClient,
        seats: &mut Seats,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) {
        self.take_back(locks, ptlrpc, below);
        while let Some((import, event)) = locks.poll_event() {
            let event = seats.lock_event(import, event, locks, &mut ptlrpc.rpc(below));
            let Some(event) = event else { continue };
            match event {
                LockEvent::Granted { hold, mode, lvb, .. } => {
                    let (lost_tx, lost) = bounded(1);
                    let (wanted_tx, wanted) = bounded(1);
                    let fence = fence_of(ByteOrder::Little, &lvb);
                    let held = Held { _lost: lost_tx, wanted: Some(wanted_tx) };
                    self.held.insert(hold, held);
                    let granted = Granted { mode, fence, lost, wanted };
                    // A caller that has gone away gives the hold back itself.
                    let _ = self.asked.remove(&hold).map(|end| end.try_send(Ok(granted)));
                }
                LockEvent::Refused { hold, error } => self.refuse(hold, error),
                LockEvent::Aborted { hold, .. } => {
                    self.refuse(hold, LockError::BadAnswer("no lock, and an intent was not sent"));
                }
                LockEvent::CalledBack { holds, .. } => {
                    for hold in holds {
                        if let Some(held) = self.held.get_mut(&hold) {
                            held.wanted = None;
                        }
                    }
                }
                LockEvent::Gone { holds, reason, .. } => {
                    debug_assert!(holds.is_empty() || reason == GoneReason::Lost);
                    holds.iter().for_each(|hold| self.forget(*hold));
                }
                // Nothing is kept under locks by name.
                LockEvent::Flush { lock, .. } => {
                    locks.flushed(import, lock, &mut ptlrpc.rpc(below));
                }
                LockEvent::Glimpse { glimpse, .. } => {
                    locks.glimpsed(glimpse, None, &mut ptlrpc.rpc(below));
                }
                LockEvent::Converted { .. } => {}
            }
        }
    }

    fn take_back(&mut self, locks: &mut LockClient, ptlrpc: &mut Ptlrpc, below: &mut Below<'_>) {
        let shared = Arc::clone(&self.back);
        let mut back = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let all = core::mem::take(&mut *back);
        for (import, hold) in all {
            match hold.get().copied() {
                Some(hold) => {
                    self.forget(hold);
                    locks.release(import, hold, false, &mut ptlrpc.rpc(below));
                }
                // Its request is still to be taken up.
                None if Arc::strong_count(&hold) > 1 => back.push((import, hold)),
                None => {}
            }
        }
    }

    fn refuse(&mut self, hold: HoldId, error: LockError) {
        let _ = self.asked.remove(&hold).map(|end| end.try_send(Err(error)));
    }
}
