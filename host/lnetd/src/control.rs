//! What each request of the control protocol does: one method per request, errors with the errno
//! and the kernel-side text that `lnetctl` prints.

use std::process;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use lnet::{Found, ParsePatternError, Pattern, Reset, Rule, RuleError, Tunables};
use lnet_admin::{
    AdminError, Contact, Contacted, Discover, GlobalSnapshot, NiTarget, PEER_NIS_PER_PAGE,
    PeerPage, Ping, Reply, Request, StatsSnapshot, Status, batches, peers_of,
};
use lnet_config::{
    Config, ModuleParameters, NetRules, PeerAdd, PeerDel, Setting, UdspAdd, UdspDel, UdspRule,
};
use lnet_rt::{Namespace, NodeBuilder, NodeHandle, OpError, Stack};
use lnet_selftest::{Command, Settings};
use lnet_types::{CptTable, Errno, Instant, Net, Nid, Pid, ProcessId};

use crate::cpus::Cpus;
use crate::nets::{Prefer, Scene};
use crate::options::Options;
use crate::recorder::Recordings;
use crate::selftest::Selftest;
use crate::{faults, legacy, nets, params, routing, views};

/// The daemon's state, behind one lock. Whoever waits for peers does so without it.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) options: Options,
    /// What `lnet configure --all` configures, without a YAML file.
    parameters: ModuleParameters,
    /// How the machine is parted.
    pub(crate) cpus: Cpus,
    state: Mutex<State>,
    recordings: Recordings,
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
    /// Settings of socklnd for interfaces to come.
    pub(crate) sock: nets::SockDefaults,
    node: Option<Running>,
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
}

/// How long `lnet unconfigure` lets messages finish.
const UNCONFIGURE_GRACE: Duration = Duration::from_millis(200);
/// How long `set routing 0` waits for the end of forwarding: more than a router is given.
const ROUTING_STOP_LIMIT: Duration = Duration::from_secs(20);
const ROUTING_GLANCE: Duration = Duration::from_millis(20);
/// How long the console may take over a command beside the time-out that the command names.
const SELFTEST_LIMIT: Duration = Duration::from_secs(90);
/// Limit on a ping without one of its own, in the kernel profile (D-82).
const KERNEL_PING_TIMEOUT: Duration = Duration::from_secs(180);

impl Control {
    /// With what module parameters say; a tunable that cannot be, and partitions that the machine
    /// cannot have, are refused.
    pub(crate) fn new(options: &Options, parameters: ModuleParameters) -> anyhow::Result<Self> {
        let mut tunables = Tunables::new(options.profile);
        let settings: Vec<(&str, i64)> =
            parameters.settings.iter().map(|s| (s.name.as_str(), s.value)).collect();
        tunables.set_all(&settings).context("module parameters")?;
        let cpus = Cpus::new(options, &parameters).context("CPU partitions")?;
        let sock = nets::SockDefaults::new(options, &parameters.sock);
        let state = Mutex::new(State { tunables, sock, node: None });
        let recordings = Recordings::default();
        let rotor = AtomicU8::new(params::rotor::DEFAULT);
        Ok(Self {
            options: options.clone(),
            parameters,
            cpus,
            state,
            recordings,
            refused: AtomicU64::new(0),
            rotor,
            incarnation: incarnation(),
        })
    }

    /// Somebody was told that it has not the right.
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
            Request::LnetUnconfigure => {
                self.unconfigure(UNCONFIGURE_GRACE);
                Ok(Reply::Done)
            }
            Request::NetAdd(add) => {
                self.with_node(down_text("cannot add LNet NI"), |node, sock| {
                    nets::add(node, sock, &add, Scene { prefer: Prefer::Small, namespace })
                        .map(|_| ())
                })
            }
            Request::NetRules { rules, add } => self.net_rules(&rules, add, namespace),
            Request::NetDel(del) => self.with_node(down_text("cannot del LNet NI"), |node, _| {
                nets::del(node, &del, namespace)
            }),
            Request::NetShow { net, detail } => self.net_show(net, detail),
            Request::NetSet { target, health, conns_per_peer } => {
                self.net_set(target, health, conns_per_peer)
            }
            Request::NetCptsSet(set) => {
                self.with_node(down_text("cannot set CPT"), |node, _| nets::set_cpts(node, &set))
            }
            Request::AcceptFromSet { net, list } => self.accept_from_set(net, list.as_deref()),
            Request::LndTimeoutSet { net, seconds } => self.lnd_timeout_set(net, seconds),
            Request::PeerAdd(add) => self.peers_add(vec![add]),
            Request::PeersAdd(adds) => self.peers_add(adds),
            Request::PeerDel(del) => self.peer_del(&del),
            Request::PeerShow { nid, detail, from } => self.peer_show(nid, detail, from),
            Request::PeerSet { target, health, state } => self.peer_set(target, health, state),
            Request::RouteAdd(route) => self.on_node(Errno::ESHUTDOWN, move |stack, now| {
                routing::add(stack, now, &route).map(|()| Reply::Done)
            }),
            Request::RouteDel(route) => self.on_node(Errno::ESHUTDOWN, move |stack, now| {
                routing::del(stack, now, &route).map(|()| Reply::Done)
            }),
            Request::RouteShow { from } => self.on_node(Errno::ENETDOWN, move |stack, _| {
                Ok(Reply::Routes(routing::page(stack, from)))
            }),
            Request::RoutingSet { on } => self.routing_set(on),
            Request::RoutingShow => {
                self.on_node(Errno::ENETDOWN, |stack, _| Ok(Reply::Routing(routing::show(stack))))
            }
            Request::Ping(ping) => self.ping(&ping),
            Request::Discover(discover) => self.discover(&discover),
            Request::GlobalShow => Ok(self.global_show()),
            Request::Set { settings } => self.set(&settings),
            Request::StatsShow => self.stats_show(),
            Request::StatsReset => self.on_node(Errno::ENETDOWN, |stack, _| {
                stack.node_mut().reset_stats();
                Ok(Reply::Done)
            }),
            Request::CountersReset { nid, failures } => {
                self.on_node(Errno::ENETDOWN, move |stack, _| {
                    let what = nid.map_or(Reset::Node, Reset::Interface);
                    let done = stack.node_mut().reset_counters(what, failures);
                    done.map(|()| Reply::Done).map_err(AdminError::errno)
                })
            }
            Request::UdspAdd(add) => self.udsp_add(&add),
            Request::UdspDel(del) => self.udsp_del(del),
            Request::UdspShow => self.udsp_show(),
            Request::FaultAdd(rule) => self.on_node(Errno::ENETDOWN, move |stack, now| {
                faults::add(stack.node_mut(), now, &rule).map(|()| Reply::Done)
            }),
            Request::FaultDel(del) => self.on_node(Errno::ENETDOWN, move |stack, now| {
                faults::del(stack.node_mut(), now, &del).map(|()| Reply::Done)
            }),
            Request::FaultShow(kind) => self.on_node(Errno::ENETDOWN, move |stack, _| {
                Ok(Reply::Faults(faults::show(stack.node(), kind)))
            }),
            Request::FaultReset(kind) => self.on_node(Errno::ENETDOWN, move |stack, now| {
                faults::reset(stack.node_mut(), now, kind);
                Ok(Reply::Done)
            }),
            Request::Explain { target, source, size } => {
                self.on_node(Errno::ENETDOWN, move |stack, _| {
                    let why = stack.node().explain(target, source, size);
                    Ok(Reply::Texts(vec![why.to_string()]))
                })
            }
            Request::ExplainResends { count } => self.on_node(Errno::ENETDOWN, move |stack, _| {
                let all = stack.node().resends();
                let most = usize::try_from(count).unwrap_or(usize::MAX);
                let before = all.len().saturating_sub(most);
                Ok(Reply::Texts(all.skip(before).map(ToString::to_string).collect()))
            }),
            Request::PeerFail { nid, times } => self.on_node(Errno::ENETDOWN, move |stack, now| {
                legacy::fail_peer(stack, now, nid, times)
            }),
            Request::DriverDisconnect { net, nid, forget } => self
                .on_node(Errno::ENETDOWN, move |stack, now| {
                    legacy::disconnect(stack, now, net, nid, forget)
                }),
            Request::PeerNotify { nid, up, ago_s } => self
                .on_node(Errno::ENETDOWN, move |stack, now| {
                    legacy::notify(stack, now, nid, up, ago_s)
                }),
            Request::LinkSimulate { nid, up } => self
                .on_node(Errno::ENETDOWN, move |stack, now| {
                    legacy::simulate_link(stack, now, nid, up)
                }),
            Request::PeerDump { nid } => self.on_node(Errno::ENETDOWN, move |stack, _| {
                let view = stack.node().peer_view_of(nid).ok_or_else(|| {
                    AdminError::errno(Errno::ENOENT)
                        .because(format_args!("no peer has the NID {nid}"))
                })?;
                tracing::info!("peer {nid}: {view:#?}");
                Ok(Reply::Done)
            }),
            Request::CptOfNid { nids } => self.on_node(Errno::ENETDOWN, move |stack, _| {
                let node = stack.node();
                Ok(Reply::Cpts(nids.into_iter().map(|nid| node.cpt_of_nid(nid)).collect()))
            }),
            Request::Distance { nids } => {
                self.on_node(Errno::ENETDOWN, move |stack, _| Ok(legacy::distances(stack, &nids)))
            }
            Request::DriverShow { list, from } => self
                .on_node(Errno::ENETDOWN, move |stack, _| Ok(legacy::listing(stack, list, from))),
            Request::Mark { text } => {
                let text: String =
                    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                tracing::info!("DEBUG MARKER: {text}");
                Ok(Reply::Done)
            }
            Request::ParamList => Ok(Reply::Params(params::list())),
            Request::ParamGet { name } => {
                params::get(self, &name).map(|text| Reply::Texts(vec![text]))
            }
            Request::ParamSet { name, value } => {
                params::set(self, &name, &value).map(|()| Reply::Done)
            }
            Request::ExplainLast { count } => self.explain_last(count),
            Request::Selftest { key, command } => self.selftest(key, command),
            Request::SuspicionShow => self.on_node(Errno::ENETDOWN, |stack, _| {
                Ok(Reply::Texts(vec![stack.node().suspicion().to_string()]))
            }),
            Request::RailsShow => self.on_node(Errno::ENETDOWN, |stack, _| {
                Ok(Reply::Rails(views::rails(&stack.node().suspicion())))
            }),
            Request::Recording { part, number } => {
                self.recordings.part(&self.handle(Errno::ENETDOWN)?, part, number)
            }
            Request::RecoveryShow { peers } => self.on_node(Errno::ENETDOWN, move |stack, _| {
                let (local, remote) = stack.node().recovery_queues();
                Ok(Reply::Nids(if peers { remote } else { local }))
            }),
            Request::TimersShow => {
                self.on_node(Errno::ENETDOWN, |stack, now| Ok(views::timers(stack.node(), now)))
            }
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

    /// The TCP driver's own time limit, seconds; 0 follows the node's.
    pub(crate) fn sock_timeout(&self) -> u32 {
        self.state().sock.timeout_s
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
        state.node.as_ref().map(|n| n.handle.clone()).ok_or_else(|| AdminError::errno(down))
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

    fn status(&self) -> Reply {
        let state = self.state();
        Reply::Status(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            configured: state.node.is_some(),
            profile: state.tunables.profile.name().to_owned(),
            incarnation: self.incarnation,
            host: lnet_admin::host_name().unwrap_or_default(),
        })
    }

    /// Starts the node if it does not run yet (C-lnet-1).
    fn start(&self, state: &mut State) -> Result<(), AdminError> {
        if state.node.is_some() {
            return Ok(());
        }
        let handle = NodeBuilder::new()
            .tunables(state.tunables.clone())
            .cpts(self.cpus.table().clone())
            .start()
            .map_err(|e| configure_error(Errno::ENOMEM).because(e))?;
        let calls = self.options.record;
        handle
            .call(move |stack, _| stack.node_mut().record(calls))
            .blocking()
            .map_err(|e| configure_error(Errno::ENOMEM).because(e))?;
        let nets = nets::Nets::start(&handle, &state.sock)?;
        let selftest = match self.options.selftest {
            true => Some(self.start_selftest(&handle)?),
            false => None,
        };
        state.node = Some(Running { handle, nets, cpts: self.cpus.table().clone(), selftest });
        Ok(())
    }

    fn lnet_configure(&self, all: bool, scene: Scene<'_>) -> Result<Reply, AdminError> {
        if self.state().node.is_some() {
            return Ok(Reply::Done);
        }
        match &self.options.config {
            _ if !all => self.start(&mut self.state())?,
            Some(file) => {
                let refuse = |e: &dyn core::fmt::Display| {
                    configure_error(Errno::EINVAL).because(format_args!("{}: {e}", file.display()))
                };
                let text = std::fs::read_to_string(file).map_err(|e| refuse(&e))?;
                let config = Config::from_yaml(&text).map_err(|e| refuse(&e))?;
                self.configure_in(&config, scene.namespace)?;
            }
            None => self.configure_by_parameters(scene)?,
        }
        Ok(Reply::Done)
    }

    /// Starts the node and does what its module parameters say (C-lnet-1); if a part is refused,
    /// nothing stays.
    pub(crate) fn configure_by_parameters(&self, scene: Scene<'_>) -> Result<(), AdminError> {
        self.start(&mut self.state())?;
        let outcome = self.apply_parameters(scene);
        if outcome.is_err() {
            self.unconfigure(Duration::ZERO);
        }
        outcome.map_err(|e| {
            let why = e.detail.unwrap_or_else(|| e.text.clone());
            configure_error(e.errno).because(why)
        })
    }

    fn apply_parameters(&self, scene: Scene<'_>) -> Result<(), AdminError> {
        let parameters = &self.parameters;
        let nets = match &parameters.ip2nets {
            Some(rules) => nets::choose(rules, scene.namespace)?,
            None => parameters.networks_or_default().iter().map(|spec| spec.to_add()).collect(),
        };
        self.with_node(AdminError::errno(Errno::ENETDOWN), |node, sock| {
            nets::add_all(node, sock, &nets, scene)
        })?;
        let routes = parameters.routes.clone();
        let is_gateway = self.on_node(Errno::ENETDOWN, move |stack, now| {
            routing::add_configured(stack, now, &routes)
        })?;
        if parameters.forwarding.unwrap_or(is_gateway) {
            self.on_node(Errno::ENETDOWN, |stack, _| routing::set(stack, true))?;
        }
        Ok(())
    }

    /// I-10, N-13.
    fn net_rules(
        &self,
        rules: &NetRules,
        add: bool,
        namespace: Option<&Namespace>,
    ) -> Result<Reply, AdminError> {
        let text = if add { "cannot add LNet NI" } else { "cannot del LNet NI" };
        let nets = nets::choose(rules, namespace)?;
        self.with_node(down_text(text), |node, sock| match add {
            true => {
                let scene = Scene { prefer: Prefer::Small, namespace };
                nets::add_all(node, sock, &nets, scene)
            }
            false => nets::del_all(node, &nets, namespace),
        })
    }

    /// Starts the node and applies a whole configuration; if a part is refused, nothing stays.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), AdminError> {
        self.configure_in(config, None)
    }

    fn configure_in(
        &self,
        config: &Config,
        namespace: Option<&Namespace>,
    ) -> Result<(), AdminError> {
        self.start(&mut self.state())?;
        let tunables = self.state().tunables.clone();
        for batch in batches(config.add_steps_placed()) {
            if peers_of(&batch).is_some_and(|all| self.answer(all).is_ok()) {
                continue;
            }
            for (_, step) in batch {
                let what = step.to_string();
                if let Err(e) = self.answer_in(Request::from(step), namespace) {
                    self.unconfigure(Duration::ZERO);
                    self.state().tunables = tunables;
                    let why = e.detail.clone().unwrap_or_else(|| e.text.clone());
                    return Err(e.because(format_args!("{what}: {why}")));
                }
            }
        }
        Ok(())
    }

    fn start_selftest(&self, handle: &NodeHandle) -> Result<Arc<Selftest>, AdminError> {
        let inject_errors = self.options.brw_inject_errors;
        let settings = Settings { inject_errors, ..Settings::default() };
        Selftest::start(handle, settings)
            .map(Arc::new)
            .map_err(|e| AdminError::errno(e.errno()).because(format_args!("selftest: {e}")))
    }

    /// Gives the console of selftest a command. A new session turns selftest on.
    fn selftest(&self, key: u32, command: Command) -> Result<Reply, AdminError> {
        let selftest = {
            let mut state = self.state();
            let node = state.node.as_mut().ok_or_else(|| {
                AdminError::errno(Errno::ENETDOWN).because("LNet is not configured")
            })?;
            match (&node.selftest, &command) {
                (Some(selftest), _) => Arc::clone(selftest),
                (None, Command::NewSession { .. }) => {
                    let selftest = self.start_selftest(&node.handle)?;
                    node.selftest = Some(Arc::clone(&selftest));
                    selftest
                }
                (None, _) => return Err(AdminError::errno(Errno::ESRCH)),
            }
        };
        let limit = SELFTEST_LIMIT + Duration::from_secs(command.timeout_s().into());
        let answer = selftest.command(key, command, limit);
        answer.map(Reply::Selftest).map_err(AdminError::errno)
    }

    /// C-lnet-2, C-lnet-4.
    fn unconfigure(&self, grace: Duration) {
        let node = self.state().node.take();
        if let Some(node) = node {
            if let Some(selftest) = &node.selftest {
                selftest.stop(grace);
            }
            node.handle.stop(grace).blocking();
        }
    }

    /// The end of the daemon.
    pub(crate) fn stop(&self, grace: Duration) {
        self.unconfigure(grace);
    }

    fn net_show(&self, net: Option<Net>, detail: bool) -> Result<Reply, AdminError> {
        let (handle, extra) = {
            let state = self.state();
            let node = state.node.as_ref().ok_or_else(|| AdminError::errno(Errno::ENETDOWN))?;
            (node.handle.clone(), node.nets.settings(&state.sock, state.tunables.lnd_timeout()))
        };
        let (views, refused, now) = handle
            .call(move |stack, now| {
                let refused = if detail { views::refused(stack, now) } else { Vec::new() };
                (stack.node().net_views(), refused, now)
            })
            .blocking()
            .map_err(|e| stopped(&e))?;
        let shown: Vec<_> = views
            .iter()
            .filter(|v| net.is_none_or(|n| n == v.net))
            .map(|v| views::net(v, &extra, detail, &refused, now))
            .collect();
        if shown.is_empty() {
            // C-netshow-2
            return Err(AdminError::new(Errno::ESRCH, "Network is down"));
        }
        Ok(Reply::Nets(shown))
    }

    fn net_set(
        &self,
        target: NiTarget,
        health: Option<u16>,
        conns_per_peer: Option<u8>,
    ) -> Result<Reply, AdminError> {
        let nid = nid_of(target);
        if let Some(n) = conns_per_peer {
            let mut state = self.state();
            let node = state.node.as_mut().ok_or_else(|| AdminError::errno(Errno::ENETDOWN))?;
            node.nets.set_conns_per_peer(&node.handle, nid, n)?;
        }
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let views = stack.node().net_views();
            if let Some(nid) = nid
                && !views.iter().flat_map(|net| &net.nis).any(|ni| ni.nid == nid)
            {
                return Err(AdminError::new(Errno::ENOENT, "cannot set LNet NI")
                    .because(format_args!("{nid}: must be one of this node's NIDs")));
            }
            if let Some(health) = health {
                stack.node_mut().set_ni_health(now, nid, u32::from(health));
            }
            Ok(Reply::Done)
        })
    }

    fn accept_from_set(&self, net: Net, list: Option<&str>) -> Result<Reply, AdminError> {
        let mut state = self.state();
        state.sock.set_accept_from(net, list)?;
        let State { node, sock, .. } = &*state;
        if let Some(node) = node {
            nets::Nets::set_accept_from(&node.handle, sock)?;
        }
        Ok(Reply::Done)
    }

    fn lnd_timeout_set(&self, net: Net, seconds: u32) -> Result<Reply, AdminError> {
        let mut state = self.state();
        state.sock.set_timeout(net, seconds)?;
        let State { node, sock, .. } = &*state;
        if let Some(node) = node {
            node.nets.set_timeout(&node.handle, sock)?;
        }
        Ok(Reply::Done)
    }

    /// C-set-6. Ends when forwarding has ended, unless peers have to find out by themselves: that takes
    /// minutes, and scripts expect not to wait.
    fn routing_set(&self, on: bool) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| routing::set(stack, on))?;
        let until = std::time::Instant::now() + ROUTING_STOP_LIMIT;
        while !on && self.state().tunables.conduct.announces_routing_stop {
            let state =
                self.on_node(Errno::ENETDOWN, |stack, _| Ok(stack.node().routing_state()))?;
            if state != lnet::RoutingState::Stopping || std::time::Instant::now() > until {
                break;
            }
            std::thread::sleep(ROUTING_GLANCE);
        }
        Ok(Reply::Done)
    }

    fn peers_add(&self, adds: Vec<PeerAdd>) -> Result<Reply, AdminError> {
        self.on_node(Errno::ESHUTDOWN, move |stack, now| {
            for add in adds {
                let PeerAdd { primary, nids, multi_rail, lock_primary } = add;
                let text = match nids.is_empty() {
                    true => "failed to add primary peer",
                    false => "failed to add peer",
                };
                stack
                    .node_mut()
                    .peer_add(now, primary, &nids, multi_rail, lock_primary)
                    .map_err(|errno| match errno {
                        Errno::EBUSY => AdminError::new(errno, text).because(format_args!(
                            "peer {primary} is the gateway of a route: must be added before the route"
                        )),
                        _ => AdminError::new(errno, text).because(errno),
                    })?;
            }
            Ok(Reply::Done)
        })
    }

    fn peer_del(&self, del: &PeerDel) -> Result<Reply, AdminError> {
        let del = del.clone();
        self.on_node(Errno::ESHUTDOWN, move |stack, now| {
            let PeerDel { primary, nids, force } = del;
            let text =
                if nids.is_empty() { "failed to del primary peer" } else { "failed to del peer" };
            stack
                .node_mut()
                .peer_del(now, primary, &nids, force)
                .map(|()| Reply::Done)
                .map_err(|errno| AdminError::new(errno, text).because(errno))
        })
    }

    fn peer_show(
        &self,
        nid: Option<Nid>,
        detail: bool,
        from: Option<u64>,
    ) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let node = stack.node();
            if let Some(nid) = nid {
                let view = node
                    .peer_view_of(nid)
                    .ok_or_else(|| AdminError::new(Errno::ENOENT, "cannot get peer information"))?;
                return Ok(Reply::Peers(PeerPage {
                    peers: vec![views::peer(&view, detail, now)],
                    next: None,
                }));
            }
            let (mut peers, mut nis, mut after) = (Vec::new(), 0, from);
            loop {
                let Some((age, view)) = node.peer_views_and_own(after, 1).pop() else {
                    return Ok(Reply::Peers(PeerPage { peers, next: None }));
                };
                nis += view.nis.len();
                peers.push(views::peer(&view, detail, now));
                after = Some(age);
                if nis >= PEER_NIS_PER_PAGE {
                    return Ok(Reply::Peers(PeerPage { peers, next: after }));
                }
            }
        })
    }

    fn peer_set(
        &self,
        target: NiTarget,
        health: Option<u16>,
        flags: Option<u32>,
    ) -> Result<Reply, AdminError> {
        let nid = nid_of(target);
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let node = stack.node_mut();
            if let Some(nid) = nid
                && node.peer_view_of(nid).is_none()
            {
                return Err(AdminError::new(Errno::ENOENT, "cannot set peer NI")
                    .because(format_args!("{nid}: must be a NID of a peer")));
            }
            if let Some(health) = health {
                node.set_peer_ni_health(now, nid, u32::from(health));
            }
            if let Some(flags) = flags {
                let nids: Vec<Nid> = match nid {
                    Some(nid) => vec![nid],
                    None => {
                        node.peer_views(None, usize::MAX).iter().map(|(_, v)| v.primary).collect()
                    }
                };
                for nid in nids {
                    // They have been found a moment ago.
                    let _ = node.set_peer_state(nid, flags);
                }
            }
            Ok(Reply::Done)
        })
    }

    fn ping(&self, ping: &Ping) -> Result<Reply, AdminError> {
        let handle = self.handle(Errno::ENETDOWN)?;
        let own_limit = {
            let tunables = &self.state().tunables;
            match tunables.conduct.patient_user_pings {
                true => KERNEL_PING_TIMEOUT,
                false => tunables.ping_limit(),
            }
        };
        let timeout = ping.timeout_ms.map_or(own_limit, Duration::from_millis);
        let asked: Vec<_> = ping
            .nids
            .iter()
            .map(|&nid| {
                let target = ProcessId { nid, pid: Pid::LUSTRE };
                match ping.source {
                    Some(source) => handle.ping_from(source, target, timeout),
                    None => handle.ping(target, timeout),
                }
            })
            .collect();
        let answers = asked.into_iter().map(|a| a.blocking());
        Ok(contacted(&ping.nids, answers))
    }

    fn discover(&self, discover: &Discover) -> Result<Reply, AdminError> {
        let handle = self.handle(Errno::ENETDOWN)?;
        let asked: Vec<_> = discover
            .nids
            .iter()
            .map(
                |&nid| {
                    if discover.force { handle.discover_again(nid) } else { handle.discover(nid) }
                },
            )
            .collect();
        let answers = asked.into_iter().map(|a| a.blocking());
        Ok(contacted(&discover.nids, answers))
    }

    fn global_show(&self) -> Reply {
        let state = self.state();
        let t = &state.tunables;
        let defaults = Tunables::new(t.profile);
        let tunables = Tunables::TABLE
            .iter()
            .filter_map(|row| Some(Setting::new(row.name, t.value(row.name)?)))
            .collect();
        Reply::Global(GlobalSnapshot {
            configured: state.node.is_some(),
            tunables,
            changed: Tunables::TABLE
                .iter()
                .filter(|row| t.value(row.name) != defaults.value(row.name))
                .map(|row| row.name.to_owned())
                .collect(),
            lnd_timeout_ms: t.lnd_timeout().as_millis() as u64,
            profile: t.profile.name().to_owned(),
        })
    }

    /// C-set-1. The node's copy follows; both take all of it or nothing.
    fn set(&self, settings: &[Setting]) -> Result<Reply, AdminError> {
        let mut state = self.state();
        if state.node.is_none() && settings.iter().any(|s| s.name == "numa_range") {
            return Err(AdminError::errno(Errno::ENETDOWN));
        }
        let mut next = state.tunables.clone();
        let changes: Vec<(String, i64)> =
            settings.iter().map(|s| (s.name.clone(), s.value)).collect();
        let borrowed: Vec<(&str, i64)> = changes.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        next.set_all(&borrowed).map_err(|e| AdminError::errno(e.errno()).because(e))?;
        if let Some(node) = &state.node {
            let buffers = routing::are_buffers(settings);
            node.handle
                .call(move |stack, _| {
                    let changes: Vec<(&str, i64)> =
                        changes.iter().map(|(n, v)| (n.as_str(), *v)).collect();
                    let before = buffers.then(|| stack.node().tunables().clone());
                    stack
                        .set_tunables(&changes)
                        .map_err(|e| AdminError::errno(e.errno()).because(e))?;
                    let fit = if buffers { stack.fit_router_buffers() } else { Ok(()) };
                    let Err(errno) = fit else { return Ok(()) };
                    // All of it or nothing.
                    if let Some(before) = before {
                        let names = changes.iter().map(|(name, _)| *name);
                        let back: Vec<_> =
                            names.filter_map(|n| Some((n, before.value(n)?))).collect();
                        // What was in force a moment ago is not refused.
                        let _ = stack.set_tunables(&back);
                        let _ = stack.fit_router_buffers();
                    }
                    Err(AdminError::errno(errno).because("no memory for router buffers"))
                })
                .blocking()
                .map_err(|e| stopped(&e))??;
        }
        state.tunables = next;
        Ok(Reply::Done)
    }

    fn stats_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            StatsSnapshot::from_rows(stack.node().stats().rows()).map(Reply::Stats).map_err(
                |name| AdminError::errno(Errno::ERANGE).because(format_args!("counter {name}")),
            )
        })
    }

    fn explain_last(&self, count: u32) -> Result<Reply, AdminError> {
        if self.state().tunables.explain_last == 0 {
            let text = "nothing is recorded: the tunable explain_last is 0";
            return Err(AdminError::new(Errno::ENODATA, text));
        }
        self.on_node(Errno::ENETDOWN, move |stack, _| {
            let all = stack.node().explained();
            let before = all.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
            Ok(Reply::Texts(all.skip(before).map(ToString::to_string).collect()))
        })
    }

    fn udsp_add(&self, add: &UdspAdd) -> Result<Reply, AdminError> {
        let rule = udsp_rule(&add.rule)?;
        let index = add.index.and_then(|i| usize::try_from(i).ok());
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let added = stack.node_mut().udsp_add(now, rule, index);
            added.map(|_| Reply::Done).map_err(|e| refused(&e))
        })
    }

    fn udsp_del(&self, del: UdspDel) -> Result<Reply, AdminError> {
        let about = match &del {
            UdspDel::About(rule) => Some(udsp_rule(rule)?),
            UdspDel::All | UdspDel::Index(_) => None,
        };
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let node = stack.node_mut();
            let index = match del {
                UdspDel::All => {
                    node.udsp_clear(now);
                    return Ok(Reply::Done);
                }
                UdspDel::Index(index) => usize::try_from(index).ok(),
                UdspDel::About(_) => node.udsp_rules().iter().position(|rule| {
                    about.as_ref().is_some_and(|about| {
                        (rule.src(), rule.dst(), rule.rte())
                            == (about.src(), about.dst(), about.rte())
                    })
                }),
            };
            let none = || AdminError::errno(Errno::ENOENT);
            node.udsp_del(now, index.ok_or_else(none)?)
                .map(|()| Reply::Done)
                .map_err(|e| refused(&e))
        })
    }

    fn udsp_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            Ok(Reply::Udsp(stack.node().udsp_rules().iter().map(views::udsp_rule).collect()))
        })
    }
}

/// The time of the start, nanoseconds, mixed with the process id: daemons that start together in
/// containers with the same process id still differ by the time.
fn incarnation() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |t| t.as_nanos() as u64);
    lnet_types::Prng::new(nanos ^ u64::from(process::id()).rotate_right(16)).next_u64().max(1)
}

/// A rule from its texts (C-udsp-1).
fn udsp_rule(rule: &UdspRule) -> Result<Rule, AdminError> {
    let pattern = |name: &str, text: &Option<String>| -> Result<Option<Pattern>, AdminError> {
        text.as_deref().map(str::parse).transpose().map_err(|e: ParsePatternError| {
            AdminError::new(Errno::EINVAL, format!("failed to parse {name} parameter")).because(e)
        })
    };
    let (src, dst) = (pattern("src", &rule.src)?, pattern("dst", &rule.dst)?);
    let rte = pattern("rte", &rule.rte)?;
    Rule::new(src, dst, rte, rule.priority, rule.messages).map_err(|e| refused(&e))
}

/// What is wrong with a rule is told in words, what the node cannot do with it as an errno.
fn refused(e: &RuleError) -> AdminError {
    match e.errno() {
        Errno::EINVAL => AdminError::new(Errno::EINVAL, e.to_string()),
        errno => AdminError::errno(errno).because(e),
    }
}

fn nid_of(target: NiTarget) -> Option<Nid> {
    match target {
        NiTarget::All => None,
        NiTarget::Nid(nid) => Some(nid),
    }
}

fn contacted(nids: &[Nid], answers: impl Iterator<Item = Result<Found, OpError>>) -> Reply {
    Reply::Contacted(
        nids.iter()
            .zip(answers)
            .map(|(&nid, answer)| Contacted {
                nid,
                outcome: answer
                    .map(|found| Contact {
                        primary: found.primary,
                        multi_rail: found.multi_rail,
                        pid: Pid::LUSTRE.0,
                        nids: found.nids,
                    })
                    .map_err(|e| AdminError::errno(e.errno())),
            })
            .collect(),
    )
}

/// LNet is not configured, for commands that change interfaces (C-netadd-4).
fn down_text(text: &str) -> AdminError {
    AdminError::new(Errno::ESHUTDOWN, text).because("LNet is not configured")
}

fn configure_error(errno: Errno) -> AdminError {
    AdminError::new(errno, format!("LNet configure error: {errno}"))
}

/// The node went away while we waited for it.
pub(crate) fn stopped(e: &OpError) -> AdminError {
    AdminError::errno(e.errno()).because(e)
}
