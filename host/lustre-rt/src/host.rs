//! The protocol as it stands on the node: the request layer, the handler of its services, and the way
//! back to the callers of calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::Sender;
use ldlm::client::LockClient;
use lnet_rt::{Answer, Below, Errno, Event as LnetEvent, Instant, Nid, Report, Upper};
use lustre_client::visitor::Opens;
use lustre_target::Targets;
use lustre_wire::ConnectData;
use ptlrpc::{
    CallId, Event, EvictReason, ImportId, ImportState, LogLine, Ptlrpc, RecoveryChange, Reply, Rpc,
    Served, ServedId,
};

use crate::locks::Holders;
use crate::node::RpcError;
use crate::objects::Lent;
use crate::seats::Seats;

/// A program's services. It runs on the node's thread, and must not wait for anything.
pub trait Handler: Send + 'static {
    /// A request. It is answered with [`Rpc::reply`] or [`Rpc::refuse`], now or later, or given up
    /// with [`Rpc::decline`].
    fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>);

    /// Bulk data that [`Rpc::bulk`] has begun have moved, or not: the request is over then.
    fn bulk_done(&mut self, served: ServedId, result: Result<(), Errno>, rpc: &mut Rpc<'_, '_>) {
        let _ = (served, result, rpc);
    }
}

/// The end of a call, as its caller gets it.
pub(crate) struct End {
    pub(crate) result: Result<Reply, RpcError>,
    /// What the node has of the caller's memory.
    pub(crate) region: Option<Lent>,
}

/// The way back to the caller of a call under way.
pub(crate) struct Waiter {
    pub(crate) end: Answer<End>,
    pub(crate) region: Option<Lent>,
    /// The import of a call that opens a file.
    pub(crate) keeps: Option<ImportId>,
}

/// Most evictions that are remembered.
pub const EVICTIONS_KEPT: usize = 16;

/// An eviction, to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// When.
    pub at: Instant,
    /// Uuid of the target.
    pub target: String,
    /// Uuid of the client.
    pub client: String,
    /// Why.
    pub reason: EvictReason,
}

pub(crate) struct Host {
    pub(crate) ptlrpc: Ptlrpc,
    pub(crate) calls: BTreeMap<CallId, Waiter>,
    pub(crate) closing: BTreeMap<ImportId, Sender<()>>,
    pub(crate) handler: Option<Box<dyn Handler>>,
    pub(crate) targets: Targets,
    pub(crate) locks: LockClient,
    pub(crate) holders: Holders,
    pub(crate) seats: Seats,
    /// Files that visits have open.
    pub(crate) opens: Opens,
    /// How the imports of visits stand.
    pub(crate) standings: BTreeMap<ImportId, SharedStanding>,
    /// The last evictions, oldest first, at most [`EVICTIONS_KEPT`].
    pub(crate) evictions: VecDeque<Eviction>,
    /// Gets lines for the log.
    pub(crate) log: Log,
}

/// How an import of a visit stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// What the target has granted.
    pub(crate) granted: ConnectData,
    /// How often it was connected.
    pub(crate) connections: u32,
    /// Whether it is connected now, or was until it was of no use.
    pub(crate) connected: bool,
    /// How often the target has evicted this client.
    pub(crate) evictions: u64,
    /// Changes that evictions have made void.
    pub(crate) losses: u64,
}

/// The same for threads that must not wait for the node's.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStanding(Arc<Mutex<Standing>>);

impl SharedStanding {
    pub(crate) fn get(&self) -> Standing {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut Standing)) {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What stands before lines that name their subject themselves.
const LAYER: &str = "rpc";

/// Takes what an operator should know: the target, and a line.
pub(crate) type Log = Box<dyn FnMut(&str, &str) + Send>;

/// Where lines go that no program takes: to `tracing`, as those of the node below.
pub(crate) fn traced() -> Log {
    Box::new(|target, lines| lines.lines().for_each(|line| tracing::info!("{target}: {line}")))
}

impl Host {
    /// Takes what the request layer and the stores have to say to where it belongs.
    pub(crate) fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                self.seats.count(&event);
                if let Event::Import { import, state } = event {
                    self.stands(import, state);
                }
                // Callbacks to clients of this node first: they are for none of its targets.
                let event = self.locks.event(event, &mut self.ptlrpc.rpc(below));
                let Some(event) = event else { continue };
                let Self { ptlrpc, locks, seats, .. } = self;
                let event = seats.event(event, locks, &mut ptlrpc.rpc(below));
                let Some(event) = event else { continue };
                if let Some(event) = self.targets.event(event, &mut self.ptlrpc.rpc(below)) {
                    self.program(event, below);
                }
            }
            let Self { ptlrpc, locks, seats, holders, .. } = self;
            // What is written back lets locks go.
            while {
                holders.drain(locks, seats, ptlrpc, below);
                seats.drain(locks, ptlrpc, below)
            } {}
            match self.targets.poll(&mut self.ptlrpc.rpc(below)) {
                Some((target, trouble)) => self.log(&target, &trouble.to_string()),
                // Replies may have let further requests in.
                None if self.ptlrpc.has_event() => {}
                None => return,
            }
        }
    }

    /// An import is in another state. What the target has granted is there before a call is answered.
    fn stands(&self, import: ImportId, state: ImportState) {
        let Some(standing) = self.standings.get(&import) else { return };
        let full = state == ImportState::Full;
        let view = full.then(|| self.ptlrpc.import_view(import)).flatten();
        standing.change(|standing| {
            // One that is not in use connects with the next call.
            standing.connected = full || state == ImportState::Idle;
            if let Some(view) = view {
                standing.granted = view.granted;
                standing.connections = standing.connections.saturating_add(1);
            }
        });
    }

    fn log(&mut self, target: &str, line: &str) {
        (self.log)(target, line);
    }

    /// What is no target's.
    fn program(&mut self, event: Event, below: &mut Below<'_>) {
        match event {
            Event::Ended { call, result } => {
                if let Some(Waiter { end, region, keeps }) = self.calls.remove(&call) {
                    if let (Ok(reply), Some(import)) = (&result, keeps) {
                        self.opens.opened(import, call, reply, &mut self.ptlrpc.rpc(below));
                    }
                    end.give(End { result: result.map_err(RpcError::Call), region });
                }
            }
            Event::Replayed { import, call, result } => {
                self.opens.replayed(import, call, &result, &mut self.ptlrpc.rpc(below));
            }
            Event::Import { import, state: ImportState::Closed } => {
                self.opens.forget(import);
                self.standings.remove(&import);
                if let Some(waiter) = self.closing.remove(&import) {
                    let _ = waiter.try_send(());
                }
            }
            Event::Invalidated { import, lost } => {
                if let Some(standing) = self.standings.get(&import) {
                    standing.change(|standing| {
                        standing.evictions += 1;
                        standing.losses += u64::from(lost);
                    });
                }
            }
            // A handler keeps no records of clients: there is nothing to wait for.
            Event::Joining { export, .. } => self.ptlrpc.rpc(below).admit(export, Ok(())),
            Event::Disconnected { export, .. } => self.ptlrpc.rpc(below).left(export),
            Event::Served(served) => match &mut self.handler {
                Some(handler) => handler.serve(*served, &mut self.ptlrpc.rpc(below)),
                None => self.ptlrpc.rpc(below).refuse(served.id, Errno::EOPNOTSUPP),
            },
            Event::BulkDone { served, result } => {
                if let Some(handler) = &mut self.handler {
                    handler.bulk_done(served, result, &mut self.ptlrpc.rpc(below));
                }
            }
            Event::Recovery { target, change } => {
                let uuid = self.targets.uuid(target).unwrap_or("target").to_owned();
                self.log(&uuid, &change.to_string());
                if let RecoveryChange::Done { outcome } = change {
                    let (n, secs) = (outcome.replayed, outcome.after.as_secs_f64());
                    self.log(&uuid, &format!("{n} requests were replayed in {secs:.1} s"));
                }
            }
            Event::Log { import, line } => {
                // A change that was answered, and is refused when it is repeated, is lost.
                if matches!(line, LogLine::ReplayDiffers { status: ..0, .. })
                    && let Some(standing) = self.standings.get(&import)
                {
                    standing.change(|standing| standing.losses += 1);
                }
                self.log(LAYER, &line.to_string());
            }
            Event::Behind(behind) => self.log(LAYER, &behind.to_string()),
            Event::Stuck(stuck) => self.log(LAYER, &stuck.to_string()),
            Event::Evicted { target, client, reason, .. } => {
                let uuid = self.targets.uuid(target).unwrap_or("target").to_owned();
                self.log(&uuid, &format!("client {client} was evicted: {reason}"));
                if self.evictions.len() == EVICTIONS_KEPT {
                    self.evictions.pop_front();
                }
                let at = below.now();
                self.evictions.push_back(Eviction { at, target: uuid, client, reason });
            }
            _ => {}
        }
    }
}

impl Upper for Host {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.ptlrpc.report(report, below);
        self.drain(below);
    }

    fn connection_lost(&mut self, primary: Nid, below: &mut Below<'_>) {
        self.ptlrpc.connection_lost(primary, below);
        self.drain(below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.targets.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.locks.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.seats.handle_timeout(&mut self.locks, &mut self.ptlrpc.rpc(below));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let clients = [self.locks.poll_timeout(), self.seats.poll_timeout()];
        let due = [self.ptlrpc.poll_timeout(), self.targets.poll_timeout()];
        due.into_iter().chain(clients).flatten().min()
    }
}
