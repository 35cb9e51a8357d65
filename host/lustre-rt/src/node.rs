//! How a program reaches the request layer of a node, from any thread.

use core::fmt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_channel::{Receiver, bounded};
use ldlm::client::LockClient;
use lnet_rt::{Buffer, Errno, Instant, NodeHandle, OpError, Stack, UpperId};
use lustre_client::visitor::Opens;
use lustre_target::{Kind, MemoryStore, Start, Store, Targets};
use ptlrpc::{
    Bulk, Call, CallError, CallId, ClientStats, Config, Direction, ExportView, ImportConfig,
    ImportId, ImportView, Past, Ptlrpc, Reply, Rpc, ServerStats, ServiceConfig, ServiceView,
    TargetConfig, TargetId, Tunables,
};

use crate::host::{End, Eviction, Handler, Host, Waiter, traced};
use crate::locks::{GivenBack, Holders};
use crate::objects::{Freed, Lent};
use crate::seats::Seats;
use crate::store::{Disk, FileStore, WakeUp};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The node has stopped, or has too much to do.
    #[error(transparent)]
    Node(#[from] OpError),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The service or target could not be started.
    #[error("{what}: {errno}")]
    Start {
        /// Which one.
        what: String,
        /// Why.
        errno: Errno,
    },
    /// The store of a target can't be used.
    #[error("{0}")]
    Store(String),
    /// The node holds as many protocols or regions of memory as it may.
    #[error("the node takes no more {0}")]
    Full(&'static str),
}

/// The request layer of a node. Clones are the same one.
#[derive(Clone, Debug)]
pub struct RpcNode {
    pub(crate) handle: NodeHandle,
    pub(crate) upper: UpperId,
    /// Holds of locks that were given back.
    pub(crate) back: GivenBack,
    /// Memory that operations on objects do not need any more.
    pub(crate) freed: Freed,
}

/// The client's end of a connection to a target.
#[derive(Clone, Debug)]
pub struct Import {
    node: RpcNode,
    id: ImportId,
}

/// A call under way: await it, or wait for it with [`Done::blocking`].
#[must_use = "the answer is only seen when it is awaited or waited for"]
pub struct Done {
    node: RpcNode,
    /// Its name on the node's thread, once it has begun.
    call: Arc<OnceLock<CallId>>,
    end: lnet_rt::Call<End>,
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").field("call", &self.call).finish_non_exhaustive()
    }
}

/// How often a thread that waits for requests to end looks again.
const GLANCE: Duration = Duration::from_millis(10);

impl RpcNode {
    /// Puts a request layer on a node.
    ///
    /// # Errors
    /// The node has stopped, or has as many protocols as it may.
    pub fn start(handle: &NodeHandle, tunables: Tunables) -> Result<Self, RpcError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Cookies must differ from those of the life before.
        let seed = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let locks = ldlm::client::Config {
            seed: seed.rotate_left(32),
            tunables: tunables.clone(),
            cache: Default::default(),
        };
        let config = Config { seed, wall: since, tunables };
        let (back, freed) = (GivenBack::default(), Freed::default());
        let host = Host {
            ptlrpc: Ptlrpc::new(config),
            calls: BTreeMap::new(),
            closing: BTreeMap::new(),
            handler: None,
            targets: Targets::default(),
            locks: LockClient::new(locks),
            holders: Holders::new(Arc::clone(&back)),
            seats: Seats::new(handle.clone(), freed.clone()),
            opens: Opens::default(),
            standings: BTreeMap::new(),
            evictions: VecDeque::new(),
            log: traced(),
        };
        let added = handle.call(move |stack, _| stack.add_upper(Box::new(host))).blocking()?;
        let upper = added.ok_or(RpcError::Full("protocols"))?;
        Ok(Self { handle: handle.clone(), upper, back, freed })
    }

    /// Runs `f` as the program of the request layer, on the node's thread.
    ///
    /// # Errors
    /// The node has stopped, or has too much to do.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Host, &mut lnet_rt::Below<'_>) -> R + Send + 'static,
    ) -> Result<R, OpError> {
        let upper = self.upper;
        let ran = self.handle.call(move |stack: &mut Stack, _| {
            stack.with_upper(upper, |host: &mut Host, below| {
                let result = f(host, below);
                host.drain(below);
                result
            })
        });
        ran.blocking()?.ok_or(OpError::Stopped)
    }

    /// What `f` says on the node's thread, for a future that is polled by a thread which must not wait.
    /// `None`: the node has stopped, or has too much to do.
    pub(crate) async fn ask<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Host) -> R + Send + 'static,
    ) -> Option<R> {
        let upper = self.upper;
        let asked = self.handle.call(move |stack: &mut Stack, _| {
            stack.with_upper(upper, |host: &mut Host, _| f(host))
        });
        asked.await.ok().flatten()
    }

    /// Lets `f` run on the node's thread, after what was sent there before. A node that has stopped
    /// runs nothing.
    pub(crate) fn start_run(
        &self,
        f: impl FnOnce(&mut Host, &mut lnet_rt::Below<'_>) + Send + 'static,
    ) -> lnet_rt::Call<()> {
        let upper = self.upper;
        self.handle.call(move |stack: &mut Stack, _| {
            stack.with_upper(upper, |host: &mut Host, below| {
                f(host, below);
                host.drain(below);
            });
        })
    }

    /// Whether this is the node's own thread, which must not wait.
    pub(crate) fn is_here(&self) -> bool {
        self.handle.is_here()
    }

    /// Calls of the program, on the node's thread.
    ///
    /// # Errors
    /// The node has stopped, or has too much to do.
    pub fn with<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Rpc<'_, '_>) -> R + Send + 'static,
    ) -> Result<R, OpError> {
        self.run(|host, below| f(&mut host.ptlrpc.rpc(below)))
    }

    /// A new import. It connects with its first call.
    ///
    /// # Errors
    /// A uuid that is empty or too long, no NID, a kind that has no connect.
    pub fn import(&self, config: ImportConfig) -> Result<Import, RpcError> {
        let id = self.with(|rpc| rpc.import(config))??;
        Ok(Import { node: self.clone(), id })
    }

    /// Ends all connections of this node to targets, as [`Import::disconnect_within`] ends one: calls under
    /// way end with [`CallError::Closed`]. For a program that ends before its time.
    ///
    /// # Errors
    /// The node has stopped.
    ///
    /// [`CallError::Closed`]: ptlrpc::CallError::Closed
    pub fn disconnect_all(&self, within: Duration) -> Result<(), OpError> {
        let views = self.with(|rpc| rpc.imports())?.into_iter();
        let own = views.filter(|view| view.callback.is_none());
        let leave =
            |view: ImportView| Import { node: self.clone(), id: view.id }.leave(Some(within));
        let closed = own.map(leave).collect::<Result<Vec<_>, _>>()?;
        for closed in closed.into_iter().flatten() {
            // A node that stops meanwhile has nothing left to be closed.
            let _ = closed.recv_blocking();
        }
        Ok(())
    }

    /// Starts services for targets, with the code that answers.
    ///
    /// # Errors
    /// There is a service on one of the portals or a target of one of the names, or no memory.
    pub fn serve(
        &self,
        targets: Vec<TargetConfig>,
        services: Vec<ServiceConfig>,
        handler: impl Handler,
    ) -> Result<Vec<TargetId>, RpcError> {
        self.run(move |host, below| {
            host.handler = Some(Box::new(handler));
            let mut rpc = host.ptlrpc.rpc(below);
            let mut ids = Vec::new();
            for target in targets {
                let what = format!("target {}", target.uuid);
                let id = rpc.add_target(target).map_err(|errno| RpcError::Start { what, errno })?;
                ids.push(id);
            }
            for service in services {
                let what = format!("service {} on portal {}", service.name, service.portal);
                rpc.serve(service).map_err(|errno| RpcError::Start { what, errno })?;
            }
            Ok(ids)
        })?
    }

    /// Starts a target whose store is on files. It recovers what clients of its life before had
    /// under way. Services for it are started with [`RpcNode::serve_targets`].
    ///
    /// # Errors
    /// There is a target of this name, what is stored can't be read, or the system has no thread.
    pub fn add_target(
        &self,
        uuid: &str,
        kind: impl Kind + 'static,
        mut disk: Disk,
    ) -> Result<TargetId, RpcError> {
        let store = |e: &dyn fmt::Display| RpcError::Store(format!("{uuid}: {e}"));
        let begun = lustre_target::start(&mut disk, kind.name());
        let begun = begun.map_err(|e| store(&e))?;
        let (handle, upper) = (self.handle.clone(), self.upper);
        let wake = move |wake_up: WakeUp| {
            let _ran = handle.call(move |stack: &mut Stack, _| {
                wake_up.arrived();
                stack.with_upper(upper, |host: &mut Host, below| host.drain(below));
            });
        };
        let files = FileStore::start(disk, Box::new(wake)).map_err(|e| store(&e))?;
        self.add(uuid, Box::new(kind), Box::new(files), begun)
    }

    /// Starts a target whose store is in memory: it is gone with the process.
    ///
    /// # Errors
    /// There is a target of this name.
    pub fn add_target_in_memory(
        &self,
        uuid: &str,
        kind: impl Kind + 'static,
        mut store: MemoryStore,
    ) -> Result<TargetId, RpcError> {
        let begun = lustre_target::start(&mut store, kind.name());
        let begun = begun.map_err(|e| RpcError::Store(format!("{uuid}: {e}")))?;
        self.add(uuid, Box::new(kind), Box::new(store), begun)
    }

    fn add(
        &self,
        uuid: &str,
        kind: Box<dyn Kind>,
        store: Box<dyn Store>,
        begun: Start,
    ) -> Result<TargetId, RpcError> {
        let (offer, replayable) = (kind.offer(), kind.keeps_records());
        let config =
            TargetConfig { uuid: uuid.to_owned(), offer, replayable, past: Past::default() };
        let what = format!("target {uuid}");
        let added = self.run(move |host, below| {
            let mut rpc = host.ptlrpc.rpc(below);
            host.targets.add(config, kind, store, begun, &mut rpc)
        })?;
        added.map_err(|errno| RpcError::Start { what, errno })
    }

    /// What the client's side of this node has counted.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn client_stats(&self) -> Result<ClientStats, OpError> {
        self.run(|host, _| host.ptlrpc.client_stats())
    }

    /// Takes all targets out of service, and waits until what was applied is committed. Clients wait
    /// for the next start.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn stop_targets(&self) -> Result<(), OpError> {
        let stopped = self.run(|host, below| {
            // What comes from now on is refused with `ENODEV`, and waits for the next start or goes to a partner.
            for target in host.targets.ids() {
                host.ptlrpc.rpc(below).remove_target(target);
            }
            core::mem::take(&mut host.targets)
        })?;
        // Stores end their threads when they are dropped: here, and not on the node's thread.
        drop(stopped);
        Ok(())
    }

    /// Takes a target out of service, and waits until what was applied is committed: another node, or
    /// the next start, can serve it from then on. New requests are refused with `ENODEV` at once;
    /// those under way have `grace` to end. `false`: there is no such target.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn remove_target(&self, uuid: &str, grace: Duration) -> Result<bool, OpError> {
        let name = uuid.to_owned();
        let found = self.run(move |host, below| {
            let id = host.targets.id(&name)?;
            host.ptlrpc.rpc(below).fail_over(id, true);
            Some(id)
        })?;
        let Some(id) = found else { return Ok(false) };
        let mut waited = Duration::ZERO;
        while waited < grace && self.exports()?.iter().any(|e| e.target == uuid && e.in_work > 0) {
            thread::sleep(GLANCE);
            waited += GLANCE;
        }
        // The kind hears of the end of its bulk data before it is dropped.
        self.run(move |host, below| host.ptlrpc.rpc(below).remove_target(id))?;
        // A store ends its thread when it is dropped: here, and not on the node's thread.
        drop(self.run(move |host, _| host.targets.remove(id))?);
        Ok(true)
    }

    /// Looks at the request layer, on the node's thread.
    ///
    /// # Errors
    /// The node has stopped, or has too much to do.
    pub fn inspect<R: Send + 'static>(
        &self,
        f: impl FnOnce(&Ptlrpc, Instant) -> R + Send + 'static,
    ) -> Result<R, OpError> {
        self.run(move |host, below| f(&host.ptlrpc, below.now()))
    }

    /// The last evictions, oldest first, at most [`EVICTIONS_KEPT`](crate::EVICTIONS_KEPT).
    ///
    /// # Errors
    /// The node has stopped.
    pub fn evictions(&self) -> Result<Vec<Eviction>, OpError> {
        self.run(|host, _| host.evictions.iter().cloned().collect())
    }

    /// Why the store of a target is out of service; `None` for a target that serves.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn target_failure(&self, uuid: &str) -> Result<Option<String>, OpError> {
        let name = uuid.to_owned();
        self.run(move |host, _| {
            let id = host.targets.id(&name)?;
            host.targets.failure(id).map(ToString::to_string)
        })
    }

    /// Sets tunables of the request layer; times that are set from now on follow them.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn set_tunables(&self, tunables: Tunables) -> Result<(), OpError> {
        self.run(move |host, _| host.ptlrpc.set_tunables(tunables))
    }

    /// Gives lines for the log to `log`, on the node's thread: the target, and what happened. Until then
    /// they go to `tracing`, as information.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn log(&self, log: impl FnMut(&str, &str) + Send + 'static) -> Result<(), OpError> {
        self.run(move |host, _| host.log = Box::new(log))
    }

    /// The exports of all targets.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn exports(&self) -> Result<Vec<ExportView>, OpError> {
        self.run(|host, _| host.ptlrpc.export_views())
    }

    /// The services, and what they have counted.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn services(&self) -> Result<(Vec<ServiceView>, ServerStats), OpError> {
        self.run(|host, _| (host.ptlrpc.service_views(), host.ptlrpc.server_stats()))
    }
}

impl Import {
    /// Its name on the node's thread.
    pub const fn id(&self) -> ImportId {
        self.id
    }

    /// Begins a call without bulk data. Why a call can't begin is said by its end.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn call(&self, call: Call) -> Result<Done, RpcError> {
        self.begin(call, None)
    }

    /// Begins a call with bulk data, from or into `buffer`, which comes back with the end.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn call_with(
        &self,
        call: Call,
        direction: Direction,
        buffer: impl Into<Buffer>,
    ) -> Result<Done, RpcError> {
        self.begin(call, Some((direction, buffer.into())))
    }

    /// The caller waits for nothing here: that a call could not begin is its end.
    fn begin(&self, mut call: Call, bulk: Option<(Direction, Buffer)>) -> Result<Done, RpcError> {
        if self.node.handle.is_stopped() {
            return Err(OpError::Stopped.into());
        }
        let (upper, id) = (self.node.upper, self.id);
        let name = Arc::new(OnceLock::new());
        let named = Arc::clone(&name);
        let freed = self.node.freed.clone();
        let end = self.node.handle.call_later(move |stack: &mut Stack, _, end| {
            let mut region = None;
            if let Some((direction, buffer)) = bulk {
                let Ok(lent) = stack.lend(buffer) else {
                    return end.give(End { result: Err(RpcError::Full("memory")), region });
                };
                call.bulk = Some(Bulk { direction, memory: stack.region(lent) });
                region = Some(Lent::new(lent, freed));
            }
            let keeps = call.keep.then_some(id);
            stack.with_upper(upper, |host: &mut Host, below| {
                let ends = call.ends;
                if let Some(open) = ends {
                    host.opens.end(id, open, &mut call.buffers);
                }
                match host.ptlrpc.rpc(below).call(id, call) {
                    Ok(call) => {
                        if let Some(open) = ends {
                            let mut rpc = host.ptlrpc.rpc(below);
                            host.opens.closing(id, open, call, &mut rpc);
                        }
                        // Written once: this runs once.
                        let _ = named.set(call);
                        host.calls.insert(call, Waiter { end, region, keeps });
                    }
                    Err(e) => end.give(End { result: Err(RpcError::Call(e)), region }),
                }
                host.drain(below);
            });
        });
        Ok(Done { node: self.node.clone(), call: name, end })
    }

    /// Connects now, if it is not connected.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn connect(&self) -> Result<(), OpError> {
        let id = self.id;
        self.node.with(move |rpc| rpc.connect(id))
    }

    /// What the import shows of itself; `None` when it is closed.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn view(&self) -> Result<Option<ImportView>, OpError> {
        let id = self.id;
        self.node.run(move |host, _| host.ptlrpc.import_view(id))
    }

    /// Ends the connection: calls under way end, the server lets go of this client. Waits for that as long
    /// as for the answer to a call, and five seconds more at most.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn disconnect(self) -> Result<(), OpError> {
        if let Some(closed) = self.leave(None)? {
            // A node that stops meanwhile has nothing left to be closed.
            let _ = closed.recv_blocking();
        }
        Ok(())
    }

    /// The same, within so long, and five seconds more at most.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn disconnect_within(self, within: Duration) -> Result<(), OpError> {
        if let Some(closed) = self.leave(Some(within))? {
            let _ = closed.recv_blocking();
        }
        Ok(())
    }

    /// The same, without a thread that waits. A server that is away lets go of this client when it is back,
    /// if that is within so long.
    ///
    /// # Errors
    /// The node has stopped.
    pub async fn end(&self, within: Duration) -> Result<(), OpError> {
        if let Some(closed) = self.leave(Some(within))? {
            let _ = closed.recv().await;
        }
        Ok(())
    }

    /// Begins to disconnect; what says when that is over, if it was not before.
    fn leave(&self, within: Option<Duration>) -> Result<Option<Receiver<()>>, OpError> {
        let id = self.id;
        let (tx, closed) = bounded(1);
        let there = self.node.run(move |host, below| {
            let there = host.ptlrpc.import_view(id).is_some();
            if there {
                host.closing.insert(id, tx);
                host.ptlrpc.rpc(below).disconnect_within(id, within);
            }
            there
        })?;
        Ok(there.then_some(closed))
    }
}

impl Done {
    /// Waits for the end on this thread.
    ///
    /// # Errors
    /// Why there is no answer: why it could not begin, [`OpError::WouldDeadlock`] on the node's own
    /// thread. The buffer of bulk data comes back if the node still runs and could lend it.
    pub fn blocking(self) -> (Result<Reply, RpcError>, Option<Buffer>) {
        let Self { node, end, .. } = self;
        let End { result, region } = match end.blocking() {
            Ok(end) => end,
            Err(never) => return (Err(never.into()), None),
        };
        let buffer = region.and_then(|lent| {
            let taken = node.handle.call(move |stack, _| lent.take_back(stack));
            taken.blocking().ok().flatten()
        });
        (result, buffer)
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// As [`Done::blocking`].
    pub async fn wait(self) -> (Result<Reply, RpcError>, Option<Buffer>) {
        let Self { node, end, .. } = self;
        let End { result, region } = match end.await {
            Ok(end) => end,
            Err(never) => return (Err(never.into()), None),
        };
        let mut buffer = None;
        if let Some(lent) = region {
            let taken = node.handle.call(move |stack, _| lent.take_back(stack));
            buffer = taken.await.ok().flatten();
        }
        (result, buffer)
    }

    /// Its name on the node's thread, which has one once the call has begun.
    pub(crate) fn name(&self) -> Arc<OnceLock<CallId>> {
        Arc::clone(&self.call)
    }

    /// Takes the call back while another future waits for its end. A node that has stopped says so there.
    pub(crate) fn canceller(&self) -> impl Fn() + Send + use<> {
        let (node, name) = (self.node.clone(), Arc::clone(&self.call));
        move || {
            let name = Arc::clone(&name);
            let _ran = node.start_run(move |host, below| {
                let mut rpc = host.ptlrpc.rpc(below);
                name.get().copied().into_iter().for_each(|call| rpc.cancel(call));
            });
        }
    }

    /// Takes the call back; its end then says so.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn cancel(&self) -> Result<(), OpError> {
        let name = Arc::clone(&self.call);
        // Commands reach the node's thread in their order: the call has begun by then, or never does.
        self.node.with(move |rpc| name.get().copied().into_iter().for_each(|call| rpc.cancel(call)))
    }
}
