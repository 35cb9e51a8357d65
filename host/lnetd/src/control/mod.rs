//! What each request of the control protocol does: one method per request, in the file of its noun,
//! errors with the errno and the kernel-side text that `lnetctl` prints. This file holds the state, and
//! which method answers which request.

mod current;
mod explain;
mod export;
pub(crate) mod fault;
mod legacy;
mod lnet;
mod lock;
mod net;
mod peer;
mod ping;
mod routing;
mod rpc_service;
mod selftest;
mod stats;
pub(crate) mod target;
mod trial;
mod tunables;
mod udsp;

use std::process;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::lnet::Tunables;
use anyhow::Context as _;
use lnet_admin::{AdminError, NiTarget, Reply, Request};
use lnet_config::{Config, ModuleParameters, Setting};
use lnet_rt::{Namespace, NodeHandle, OpError, Stack};
use lnet_types::{CptTable, Errno, Instant, Nid};

use crate::cpus::Cpus;
use crate::nets::{self, Prefer, Scene};
use crate::options::Options;
use crate::params;
use crate::recorder::Recordings;
use crate::selftest::Selftest;

/// The daemon's state, behind one lock, which is not held while a request waits for peers.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) options: Options,
    /// What `lnet configure --all` configures, without a YAML file.
    parameters: ModuleParameters,
    /// How the machine is parted.
    pub(crate) cpus: Cpus,
    state: Mutex<State>,
    recordings: Recordings,
    trials: trial::Trials,
    /// Requests, and clients, that had not the right.
    refused: AtomicU64,
    /// The way of `portal_rotor`.
    rotor: AtomicU8,
    /// Names this life of the daemon.
    incarnation: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Tunables outlive `lnet unconfigure` (C-lnet-4).
    tunables: Tunables,
    /// Tunables of the request layer, which outlive it too.
    rpc: lustre_rt::Tunables,
    /// Settings of socklnd for interfaces to come.
    pub(crate) sock: nets::SockDefaults,
    node: Option<Running>,
    /// What of the configuration file is in force, for the difference at a reload.
    applied: Config,
}

/// A configured node.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) handle: NodeHandle,
    pub(crate) nets: nets::Nets,
    /// The machine's partitions.
    pub(crate) cpts: CptTable,
    /// LNet selftest, if it is on.
    selftest: Option<Arc<Selftest>>,
    /// The request layer, once something has needed it.
    rpc: Option<Arc<target::RpcLayer>>,
}

impl Control {
    /// With what module parameters say; a tunable that cannot be, and partitions that the machine
    /// cannot have, are refused.
    pub(crate) fn new(options: &Options, parameters: ModuleParameters) -> anyhow::Result<Self> {
        let tunables =
            initial_tunables(options, &parameters).with_context(|| match &options.modprobe {
                Some(file) => format!("module parameters {}", file.display()),
                None => "module parameters".to_owned(),
            })?;
        let cpus = Cpus::new(options, &parameters).context("CPU partitions")?;
        let sock = nets::SockDefaults::new(options, &parameters);
        let rpc = request_tunables(options.profile(), &parameters.requests)?;
        let state =
            Mutex::new(State { tunables, rpc, sock, node: None, applied: Config::default() });
        let recordings = Recordings::default();
        let rotor = AtomicU8::new(params::rotor::DEFAULT);
        Ok(Self {
            options: options.clone(),
            parameters,
            cpus,
            state,
            recordings,
            trials: trial::Trials::default(),
            refused: AtomicU64::new(0),
            rotor,
            incarnation: incarnation(),
        })
    }

    /// Counts a request that was refused for want of a right.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The way of `portal_rotor`, by its number.
    pub(crate) fn rotor(&self) -> u8 {
        self.rotor.load(Ordering::Relaxed)
    }

    pub(crate) fn set_rotor(&self, way: u8) {
        self.rotor.store(way, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere doesn't make the state wrong: every change is made in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request of this process.
    pub(crate) fn answer(&self, request: Request) -> Result<Reply, AdminError> {
        self.answer_in(request, None)
    }

    /// Answers one request of a caller in the given network namespace: interfaces are added there.
    pub(crate) fn answer_in(
        &self,
        request: Request,
        namespace: Option<&Namespace>,
    ) -> Result<Reply, AdminError> {
        match request {
            Request::Status => Ok(self.status()),
            Request::LnetConfigure { all, large } => {
                let prefer = if large { Prefer::Large } else { Prefer::Small };
                self.lnet_configure(all, Scene { prefer, namespace })
            }
            Request::LnetUnconfigure => self.lnet_unconfigure(),
            Request::NetAdd(add) => self.net_add(&add, namespace),
            Request::NetRules { rules, add } => self.net_rules(&rules, add, namespace),
            Request::NetDel(del) => self.net_del(&del, namespace),
            Request::NetShow { net, detail } => self.net_show(net, detail),
            Request::NetSet { target, health, conns_per_peer } => {
                self.net_set(target, health, conns_per_peer)
            }
            Request::NetCptsSet(set) => self.net_cpts_set(&set),
            Request::AcceptFromSet { net, list } => self.accept_from_set(net, list.as_deref()),
            Request::LndTimeoutSet { net, seconds } => self.lnd_timeout_set(net, seconds),
            Request::PeerAdd(add) => self.peers_add(vec![add]),
            Request::PeersAdd(adds) => self.peers_add(adds),
            Request::PeerDel(del) => self.peer_del(&del),
            Request::PeerShow { nid, detail, from } => self.peer_show(nid, detail, from),
            Request::PeerSet { target, health, state } => self.peer_set(target, health, state),
            Request::PeerDump { nid } => self.peer_dump(nid),
            Request::RecoveryShow { peers } => self.recovery_show(peers),
            Request::RouteAdd(route) => self.route_add(route),
            Request::RouteDel(route) => self.route_del(route),
            Request::RouteShow { from } => self.route_show(from),
            Request::RoutingSet { on } => self.routing_set(on),
            Request::RoutingShow => self.routing_show(),
            Request::Ping(ping) => self.ping(&ping),
            Request::Discover(discover) => self.discover(&discover),
            Request::GlobalShow => Ok(self.global_show()),
            Request::Set { settings } => self.set(&settings),
            Request::Trial(part) => self.trial(part, namespace),
            Request::StatsShow => self.stats_show(),
            Request::StatsReset => self.stats_reset(),
            Request::CountersReset { nid, failures } => self.counters_reset(nid, failures),
            Request::UdspAdd(add) => self.udsp_add(&add),
            Request::UdspDel(del) => self.udsp_del(del),
            Request::UdspShow => self.udsp_show(),
            Request::FaultAdd(rule) => self.fault_add(rule),
            Request::FaultDel(del) => self.fault_del(del),
            Request::FaultShow(kind) => self.fault_show(kind),
            Request::FaultReset(kind) => self.fault_reset(kind),
            Request::Explain { target, source, size } => self.explain(target, source, size),
            Request::ExplainResends { count } => self.explain_resends(count),
            Request::ExplainLast { count } => self.explain_last(count),
            Request::SuspicionShow => self.suspicion_show(),
            Request::RailsShow => self.rails_show(),
            Request::TimersShow => self.timers_show(),
            Request::PeerFail { nid, times } => self.peer_fail(nid, times),
            Request::PeerNotify { nid, up, ago_s } => self.peer_notify(nid, up, ago_s),
            Request::LinkSimulate { nid, up } => self.link_simulate(nid, up),
            Request::DriverDisconnect { net, nid, forget } => {
                self.driver_disconnect(net, nid, forget)
            }
            Request::DriverShow { list, from } => self.driver_show(list, from),
            Request::CptOfNid { nids } => self.cpt_of_nid(nids),
            Request::Distance { nids } => self.distance(nids),
            Request::Mark { text } => Ok(Self::mark(&text)),
            Request::ParamList => Ok(Reply::Params(params::list_all(self))),
            Request::ParamGet { name } => {
                params::get(self, &name).map(|text| Reply::Texts(vec![text]))
            }
            Request::ParamSet { name, value } => {
                params::set(self, &name, &value).map(|()| Reply::Done)
            }
            Request::Selftest { key, command } => self.selftest(key, command),
            Request::Recording { part, number } => {
                self.recordings.part(&self.handle(Errno::ENETDOWN)?, part, number)
            }
            Request::TargetAdd { target } => self.target_add(&target),
            Request::TargetDel { name } => self.target_del(&name),
            Request::TargetShow => self.target_show(),
            Request::ImportShow { from } => self.import_show(from),
            Request::ImportExplain { name } => self.import_explain(name),
            Request::ExportShow { from } => self.export_show(from),
            Request::ExportEvict { uuid, nid } => self.export_evict(uuid, nid),
            Request::LockShow { which, from } => self.lock_show(which, from),
            Request::LockBreak { lock } => self.lock_break(lock),
            Request::NamespaceShow => self.namespace_show(),
            Request::ServiceShow => self.service_show(),
            Request::RpcLose(rule) => self.rpc_lose(&rule),
            Request::RpcDelay(delay) => self.rpc_delay(delay),
            Request::RpcFaultDel(del) => self.rpc_fault_del(del),
            Request::RpcFaultShow => self.rpc_fault_show(),
            // The protocol may grow before this daemon does.
            other => Err(AdminError::errno(Errno::EOPNOTSUPP)
                .because(format_args!("this daemon does not know the request {other:?}"))),
        }
    }

    /// Runs `f` on the node's thread and waits for its answer. `down`: the error if there is no
    /// node.
    pub(crate) fn on_node<R: Send + 'static>(
        &self,
        down: Errno,
        f: impl FnOnce(&mut Stack, Instant) -> Result<R, AdminError> + Send + 'static,
    ) -> Result<R, AdminError> {
        let handle = self.handle(down)?;
        handle.call(f).blocking().map_err(|e| stopped(&e))?
    }

    /// Returns when the node has answered, or at once if there is none.
    pub(crate) fn sign_of_life(&self) {
        if let (_, Some(node)) = self.tunables_and_node() {
            // A node that has stopped is as good as none.
            let _ = node.call(|_, _| ()).blocking();
        }
    }

    /// The tunables in force, and the node if LNet is configured.
    pub(crate) fn tunables_and_node(&self) -> (Tunables, Option<NodeHandle>) {
        let state = self.state();
        (state.tunables.clone(), state.node.as_ref().map(|n| n.handle.clone()))
    }

    /// The value that a tunable had when the daemon was started.
    pub(crate) fn initial(&self, name: &str) -> Option<i64> {
        // They were accepted at the start.
        initial_tunables(&self.options, &self.parameters).ok()?.value(name)
    }

    /// The TCP driver's own time limit, seconds; 0 follows the node's.
    pub(crate) fn sock_timeout(&self) -> u32 {
        self.state().sock.timeout_s
    }

    /// The RDMA driver's limit, seconds.
    pub(crate) fn ib_timeout(&self) -> u32 {
        self.state().sock.ib.timeout_s
    }

    /// The TCP driver's settings.
    pub(crate) fn sock_config(&self) -> lnd_sock::SockConfig {
        self.state().sock.config()
    }

    /// What module parameters say.
    pub(crate) const fn parameters(&self) -> &ModuleParameters {
        &self.parameters
    }

    /// What module parameters say of interfaces to come.
    pub(crate) fn sock_parameters(&self) -> lnet_config::SockParameters {
        self.state().sock.parameters().clone()
    }

    fn handle(&self, down: Errno) -> Result<NodeHandle, AdminError> {
        let state = self.state();
        state.node.as_ref().map(|n| n.handle.clone()).ok_or_else(|| off(down))
    }

    /// Changes interfaces, with the state locked: such changes happen one after the other.
    fn with_node(
        &self,
        down: AdminError,
        f: impl FnOnce(&mut Running, &nets::SockDefaults) -> Result<(), AdminError>,
    ) -> Result<Reply, AdminError> {
        let mut state = self.state();
        let State { node, sock, .. } = &mut *state;
        let node = node.as_mut().ok_or(down)?;
        f(node, sock).map(|()| Reply::Done)
    }
}

/// The time of the start, nanoseconds, mixed with the process id: daemons that start together in
/// containers with the same process id still differ by the time.
fn incarnation() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |t| t.as_nanos() as u64);
    lnet_types::Prng::new(nanos ^ u64::from(process::id()).rotate_right(16)).next_u64().max(1)
}

/// The tunables of a node for which no configuration and no command has said anything.
fn initial_tunables(
    options: &Options,
    parameters: &ModuleParameters,
) -> Result<Tunables, ::lnet::TunableError> {
    let mut tunables = Tunables::new(options.profile());
    let settings: Vec<(&str, i64)> =
        parameters.settings.iter().map(|s| (s.name.as_str(), s.value)).collect();
    tunables.set_all(&settings)?;
    Ok(tunables)
}

/// The request layer's tunables of a profile, with what module parameters say.
fn request_tunables(
    profile: ::lnet::Profile,
    settings: &[Setting],
) -> anyhow::Result<lustre_rt::Tunables> {
    let mut rows = Vec::new();
    for Setting { name, value } in settings {
        let row = lustre_rt::Tunables::setting(name);
        let row = row.with_context(|| format!("module parameters: no tunable '{name}'"))?;
        let value = u32::try_from(*value).map_err(|_| {
            anyhow::anyhow!(
                "module parameters: {name} {value}: expected {} to {}",
                row.min,
                row.max
            )
        })?;
        rows.push((row, value));
    }
    lustre_rt::Tunables::of(profile).with_all(&rows).context("module parameters")
}

/// There is no node.
fn off(errno: Errno) -> AdminError {
    AdminError::errno(errno).because(NOT_CONFIGURED)
}

/// Why nothing is there to be asked or changed.
const NOT_CONFIGURED: &str = AdminError::NOT_CONFIGURED;

fn nid_of(target: NiTarget) -> Option<Nid> {
    match target {
        NiTarget::All => None,
        NiTarget::Nid(nid) => Some(nid),
    }
}

/// The node went away while we waited for it.
pub(crate) fn stopped(e: &OpError) -> AdminError {
    AdminError::errno(e.errno()).because(e)
}

#[cfg(test)]
mod tests;
