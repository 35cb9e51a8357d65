//! A visit to a file system over a node. What is asked for, in which order and of which target, is decided by
//! `lustre_client::visitor`; this file makes its calls.
//!
//! The methods of [`Visitor`] are asynchronous; [`wait`](crate::wait) runs one on a thread that has nothing
//! else to do.

use core::future::{Future as _, poll_fn};
use core::ops::Deref;
use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lnet_rt::{Buffer, Nid};
use lustre_client::visitor::{
    Access, End, Identity, LEAVE_MAX, Moved, SiteTimes, Tried, VisitConfig, VisitError, Visitor,
    Wire,
};
use lustre_wire::{ConnectData, ImportKind, Opcode};
use ptlrpc::{Call, CallError, CallId, Connection, Direction, ImportConfig, Reply};

use crate::host::SharedStanding;
use crate::interrupt::Interrupt;
use crate::node::{Done, Import, RpcError, RpcNode};
use crate::pace::{Pace, Turn, Waits};
use crate::spare::Spare;

/// Where a mount goes.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// NIDs of the management server, the likeliest first.
    pub mgs: Vec<Nid>,
    /// Name of the file system.
    pub fsname: String,
    /// Uuid of this client, at most 38 bytes; no other client has it.
    pub client: String,
    /// In whose name.
    pub who: Identity,
    /// What it may do.
    pub access: Access,
    /// A target that does not answer within so long is given up.
    pub limit: Duration,
    /// Ends it before its time.
    pub interrupt: Interrupt,
    /// How hard it works its targets.
    pub pace: Pace,
}

/// A file system that is visited.
#[derive(Debug)]
pub struct Mount(Visitor<NodeWire>);

impl Mount {
    /// Reads the configuration of a file system, and finds its root.
    ///
    /// # Errors
    /// No management server, no such file system, no metadata target, or a refusal.
    pub async fn begin(rpc: &RpcNode, config: MountConfig) -> Result<Self, VisitError> {
        let MountConfig { mgs, fsname, client, who, access, limit, interrupt, pace } = config;
        // Cookies of locks must differ from those of other visits: the uuid does.
        let seed = client.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let wire = NodeWire { rpc: rpc.clone(), limit, interrupt, pace, spare: Arc::default() };
        let config = VisitConfig { mgs, fsname, client, who, access, seed };
        Ok(Self(Visitor::begin(wire, config).await?))
    }

    /// Waits until all that was changed is committed, and ends all connections in any case.
    ///
    /// # Errors
    /// What was changed last may be lost: a server has evicted this client, or does not answer.
    pub async fn end(self) -> Result<(), VisitError> {
        self.0.end().await
    }
}

impl Deref for Mount {
    type Target = Visitor<NodeWire>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The calls of a visit, over a node.
#[derive(Clone, Debug)]
pub struct NodeWire {
    rpc: RpcNode,
    limit: Duration,
    interrupt: Interrupt,
    pace: Pace,
    spare: Arc<Spare>,
}

/// A connection of a visit.
#[derive(Debug)]
pub struct NodeLink {
    import: Import,
    standing: SharedStanding,
    /// Of a visit that is gentle.
    turn: Option<Turn>,
}

impl NodeWire {
    pub(crate) const fn rpc(&self) -> &RpcNode {
        &self.rpc
    }

    /// A call that is not answered within so long is given up.
    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) const fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The end of a call, which the interrupt brings about if it comes first.
    async fn ended(&self, done: Done) -> (Result<Reply, RpcError>, Option<Buffer>) {
        // Calls that begin after it are those by which the visit lets go of what it has.
        let mut waits = !self.interrupt.is_raised();
        let cancel = done.canceller();
        let (mut ended, mut raised) = (pin!(done.wait()), pin!(self.interrupt.raised()));
        poll_fn(|cx| {
            if waits && raised.as_mut().poll(cx).is_ready() {
                waits = false;
                cancel();
            }
            ended.as_mut().poll(cx)
        })
        .await
    }
}

pub(crate) fn of_call(e: RpcError) -> CallError {
    match e {
        RpcError::Call(e) => e,
        // The node has stopped, or has no memory left.
        _ => CallError::Closed,
    }
}

impl Wire for NodeWire {
    type Link = NodeLink;

    fn follow(&self, times: &SiteTimes) {
        let times = times.clone();
        // A node that has stopped says so to the call that follows.
        let _ran = self.rpc.start_run(move |host, _| {
            let tunables = times.of(host.ptlrpc.tunables());
            host.ptlrpc.set_tunables(tunables);
        });
    }

    fn link(&self, config: ImportConfig) -> Result<NodeLink, CallError> {
        let takes_callbacks = config.kind == ImportKind::Mdc;
        let import = self.rpc.import(config).map_err(of_call)?;
        let (id, standing) = (import.id(), SharedStanding::default());
        let shared = standing.clone();
        let opened = self.rpc.run(move |host, below| {
            host.standings.insert(id, shared);
            // A lock that came with an open may be called back before it has been given back: the
            // lock client answers that it is gone (C-67).
            match takes_callbacks {
                true => host.locks.open(id, &mut host.ptlrpc.rpc(below)),
                false => Ok(()),
            }
        });
        opened.map_err(|_| CallError::Closed)?.map_err(CallError::NoDescriptor)?;
        let turn = (self.pace == Pace::Gentle).then(|| Turn::new(Instant::now()));
        Ok(NodeLink { import, standing, turn })
    }

    fn connect(&self, link: &NodeLink) {
        let id = link.import.id();
        // A node that has stopped says so to the call that follows.
        let _ran = self.rpc.start_run(move |host, below| host.ptlrpc.rpc(below).connect(id));
    }

    async fn call(&self, link: &NodeLink, call: Call, moved: Moved) -> End {
        // A lock is given back at once: another client may wait for it, and a call of this one.
        let turn = link.turn.as_ref().filter(|_| call.opcode != Opcode::LDLM_CANCEL);
        let _going = match turn {
            Some(turn) => Some(turn.take(self).await),
            None => None,
        };
        let link = &link.import;
        let call = Call { limit: Some(self.interrupt.limit(self.limit)), ..call };
        let begun = match moved {
            Moved::Nothing => link.call(call),
            Moved::Read(room) => {
                // Bytes that do not come are not those of another file.
                let buffer = self.spare.zeros(room as usize);
                link.call_with(call, Direction::Read, buffer)
            }
            Moved::Write(bytes) => link.call_with(call, Direction::Write, bytes),
        };
        let done = match begun {
            Ok(done) => done,
            Err(e) => return of_call(e).into(),
        };
        let name = done.name();
        let (end, buffer) = self.ended(done).await;
        End {
            result: end.map_err(of_call),
            bytes: buffer.map(Buffer::into_vec).unwrap_or_default(),
            call: name.get().copied(),
        }
    }

    fn buffer(&self, len: usize) -> Vec<u8> {
        self.spare.take(len)
    }

    fn recycle(&self, bytes: Vec<u8>) {
        self.spare.give(bytes);
    }

    async fn handle(&self, _: &NodeLink, _: CallId) -> Option<u64> {
        // The node's thread names it when the call begins.
        None
    }

    async fn tried(&self, link: &NodeLink) -> Vec<Tried> {
        let id = link.import.id();
        let view = self.rpc.ask(move |host| host.ptlrpc.import_view(id)).await.flatten();
        let connections = view.map(|view| view.connections).unwrap_or_default();
        let one = |c: Connection| {
            let failure = c.failure.map(|why| *why);
            Tried { nid: c.nid, attempts: c.attempts, failure }
        };
        connections.into_iter().map(one).collect()
    }

    async fn pause(&self, seconds: u32) {
        sleep(Duration::from_secs(seconds.into())).await;
    }

    fn now(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }

    async fn terms(&self, link: &NodeLink) -> ConnectData {
        link.standing.get().granted
    }

    fn connections(&self, link: &NodeLink) -> u32 {
        link.standing.get().connections
    }

    fn is_connected(&self, link: &NodeLink) -> bool {
        link.standing.get().connected
    }

    async fn uncommitted(&self, link: &NodeLink) -> bool {
        let id = link.import.id();
        let view = self.rpc.ask(move |host| host.ptlrpc.import_view(id)).await.flatten();
        view.is_some_and(|view| view.uncommitted > 0)
    }

    fn losses(&self, link: &NodeLink) -> u64 {
        link.standing.get().losses
    }

    fn evictions(&self, link: &NodeLink) -> u64 {
        link.standing.get().evictions
    }

    async fn close(&self, link: &NodeLink) {
        // A node that has stopped has no connection left.
        let _ = link.import.end(self.interrupt.limit(self.limit).min(LEAVE_MAX)).await;
    }
}

impl Waits for NodeWire {
    fn now(&self) -> Instant {
        Instant::now()
    }

    async fn until(&self, time: Instant) {
        sleep(time.saturating_duration_since(Instant::now())).await;
    }
}

/// Ends after so long. A thread waits for it: pauses are rare, come after errors, or are long beside it.
async fn sleep(time: Duration) {
    let (tx, rx) = async_channel::bounded::<()>(1);
    let waiter = thread::Builder::new().spawn(move || {
        thread::sleep(time);
        drop(tx);
    });
    // Without a thread there is no pause.
    if waiter.is_ok() {
        let _ = rx.recv().await;
    }
}
