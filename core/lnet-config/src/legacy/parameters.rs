//! What module parameters mean to a node of this kind (lnetctl.md 7): a table of the names that
//! kernel modules have, and the one value that a file of them adds up to.

use lnet_types::{CptTable, CpuPattern, Net, NetType};

use super::{
    Choice, LegacyError, ModuleOption, NetRule, NetRules, NetSpec, bad, parse_ip2nets,
    parse_modprobe, parse_networks, parse_routes,
};
use crate::config::{BUFFER_KEYS, Block, Config, GLOBAL_KEYS, NetBlock, NiBlock, OWN_KEYS};
use crate::suggest::nearest;
use crate::yaml::Pos;
use crate::{LndTunables, NetAdd, NetTunables, RouteAdd, Setting, parse_number};

/// What a set of module parameters asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleParameters {
    /// `networks`; not given, and empty: [`ModuleParameters::networks_or_default`].
    pub networks: Vec<NetSpec>,
    /// `ip2nets`, which excludes `networks`.
    pub ip2nets: Option<NetRules>,
    /// `routes`.
    pub routes: Vec<RouteAdd>,
    /// `forwarding`: enabled or disabled; `None` leaves it to the routes (N-14).
    pub forwarding: Option<bool>,
    /// `config_on_load`: whether the node configures itself when it starts.
    pub config_on_load: bool,
    /// `lock_prim_nid`, which is kept and has no effect.
    pub lock_prim_nid: Option<bool>,
    /// Tunables of the node.
    pub settings: Vec<Setting>,
    /// Tunables of the request layer, by the names of its parameters.
    pub requests: Vec<Setting>,
    /// `cpu_pattern` and `cpu_npartitions`: how the machine is parted.
    pub cpus: Option<CpuPattern>,
    /// What concerns TCP.
    pub sock: SockParameters,
    /// What concerns RDMA.
    pub ib: IbParameters,
    /// Everything that is known, in order, and what is not.
    pub notes: Vec<Note>,
}

/// Parameters of the TCP driver and its acceptor; `None` where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the parameters (T-7.2, T-7.3)")]
pub struct SockParameters {
    pub accept: Option<AcceptFrom>,
    pub accept_port: Option<u16>,
    pub accept_port_bulk: Option<u16>,
    pub accept_timeout: Option<u32>,
    pub sock_timeout: Option<u32>,
    pub credits: Option<u32>,
    pub peer_credits: Option<u32>,
    pub peer_buffer_credits: Option<u32>,
    pub peer_timeout: Option<u32>,
    pub conns_per_peer: Option<u8>,
    pub tos: Option<i16>,
    pub min_reconnectms: Option<u32>,
    pub max_reconnectms: Option<u32>,
    pub min_bulk: Option<u32>,
    pub keepalive: Option<u32>,
    pub keepalive_idle: Option<u32>,
    pub keepalive_intvl: Option<u32>,
    pub keepalive_count: Option<u32>,
    pub nagle: Option<bool>,
    pub enable_csum: Option<bool>,
    pub tx_buffer_size: Option<u32>,
    pub rx_buffer_size: Option<u32>,
}

/// Parameters of the RDMA driver; `None` where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the parameters (T-7.4)")]
pub struct IbParameters {
    pub service: Option<u16>,
    pub timeout: Option<u32>,
    pub conns_per_peer: Option<u8>,
    pub credits: Option<u32>,
    pub peer_credits: Option<u32>,
    pub peer_credits_hiw: Option<u32>,
    pub peer_buffer_credits: Option<u32>,
    pub peer_timeout: Option<u32>,
    pub ipif_name: Option<String>,
    pub retry_count: Option<u8>,
    pub rnr_retry_count: Option<u8>,
    pub keepalive: Option<u32>,
    pub concurrent_sends: Option<u32>,
    pub require_privileged_port: Option<bool>,
    pub use_privileged_port: Option<bool>,
    pub tos: Option<i16>,
}

impl SockParameters {
    /// Tunables of networks that name none of their own.
    pub const fn tunables(&self) -> NetTunables {
        NetTunables {
            peer_timeout_s: self.peer_timeout,
            peer_credits: self.peer_credits,
            peer_buffer_credits: self.peer_buffer_credits,
            credits: self.credits,
        }
    }

    /// The same of the driver.
    pub fn lnd(&self) -> LndTunables {
        LndTunables { conns_per_peer: self.conns_per_peer, tos: self.tos, ..LndTunables::default() }
    }
}

impl IbParameters {
    /// Tunables of networks that name none of their own.
    pub const fn tunables(&self) -> NetTunables {
        NetTunables {
            peer_timeout_s: self.peer_timeout,
            peer_credits: self.peer_credits,
            peer_buffer_credits: self.peer_buffer_credits,
            credits: self.credits,
        }
    }

    /// The same of the driver.
    pub const fn lnd(&self) -> LndTunables {
        LndTunables {
            conns_per_peer: self.conns_per_peer,
            tos: self.tos,
            peercredits_hiw: self.peer_credits_hiw,
            concurrent_sends: self.concurrent_sends,
        }
    }
}

/// `accept`: whose connections are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptFrom {
    /// Privileged source ports.
    Secure,
    /// Any source port.
    All,
    /// No source port.
    None,
}

/// One parameter of a file, or something else in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its line in the file, from 1.
    pub line: usize,
    /// `MODULE NAME=VALUE`, or the words that are not understood.
    pub text: String,
    /// Why it has no effect here; `None`: it has.
    pub ignored: Option<String>,
}

#[derive(Clone, Copy)]
enum Meaning {
    Networks,
    Ip2nets,
    Routes,
    Forwarding,
    ConfigOnLoad,
    /// Kept, to be shown: the file system's API that it is about is not here.
    LockPrimNid,
    /// A tunable of that name.
    Tunable(&'static str),
    /// A tunable of the request layer, of its own name.
    Requests,
    /// The opposite of one.
    Inverted(&'static str),
    Sock(fn(&mut SockParameters, &str) -> Put),
    Ib(fn(&mut IbParameters, &str) -> Put),
    /// `cpu_npartitions`, and `cpu_pattern`: taken together, see [`ModuleParameters::take_cpus`].
    Npartitions,
    CpuPattern,
    /// Known, and without effect on this kind of node, for this reason.
    None(&'static str),
}

use Meaning::{Ib, Inverted, Sock, Tunable};

const MAPPED: &str = "memory is mapped when a message needs it, without pools";
const NO_SUMS: &str = "messages are sent without checksums; those of peers are checked";
const BY_ROUTE: &str = "the connection manager decides by the route";
const NO_GNI: &str = "this node has no Aries or Gemini driver";
const NO_KFI: &str = "this node has no driver for kfabric";
const NO_EFA: &str = "this node has no driver for EFA";
const SELFTEST: &str = "selftest of this node has limits of its own";
const DIFFERENT: &str = "this node works differently inside";

/// The longest name of an interface.
const INTERFACE_BYTES_MAX: usize = 15;

/// Whether a value was taken; else what was expected.
type Put = Result<(), String>;

/// A number that fits, and that no tool prints as a negative one.
fn put<T: TryFrom<i64>>(slot: &mut Option<T>, text: &str) -> Put {
    let least = if T::try_from(-1).is_ok() { i32::MIN } else { 0 };
    put_within(slot, text, least, i32::MAX)
}

fn put_within<T: TryFrom<i64>>(slot: &mut Option<T>, text: &str, least: i32, most: i32) -> Put {
    let value = parse_number(text).filter(|n| (least.into()..=most.into()).contains(n));
    let value = value.and_then(|n| T::try_from(n).ok());
    *slot = Some(value.ok_or_else(|| format!("expected {least} to {most}"))?);
    Ok(())
}

fn flag(slot: &mut Option<bool>, text: &str) -> Put {
    let value = parse_number(text).ok_or("expected a number, 0 for no")?;
    *slot = Some(value != 0);
    Ok(())
}

/// Seconds, below 0 as good as none.
fn seconds(slot: &mut Option<u32>, text: &str) -> Put {
    let value = parse_number(text).map(|n| n.max(0)).and_then(|n| i32::try_from(n).ok());
    let value = value.ok_or_else(|| format!("expected seconds, at most {}", i32::MAX))?;
    *slot = Some(value.unsigned_abs());
    Ok(())
}

fn accept(sock: &mut SockParameters, text: &str) -> Put {
    sock.accept = Some(match text {
        "secure" => AcceptFrom::Secure,
        "all" => AcceptFrom::All,
        "none" => AcceptFrom::None,
        _ => return Err("expected secure, all or none".to_owned()),
    });
    Ok(())
}

fn port(slot: &mut Option<u16>, text: &str) -> Put {
    put_within(slot, text, 1, u16::MAX.into())
}

fn name(slot: &mut Option<String>, text: &str) -> Put {
    if text.is_empty() || text.len() > INTERFACE_BYTES_MAX {
        return Err(format!("expected an interface, of at most {INTERFACE_BYTES_MAX} characters"));
    }
    *slot = Some(text.to_owned());
    Ok(())
}

/// Module, parameter, what it means here.
const TABLE: &[(&str, &str, Meaning)] = &[
    ("lnet", "networks", Meaning::Networks),
    ("lnet", "ip2nets", Meaning::Ip2nets),
    ("lnet", "routes", Meaning::Routes),
    ("lnet", "forwarding", Meaning::Forwarding),
    ("lnet", "config_on_load", Meaning::ConfigOnLoad),
    ("lnet", "lnet_numa_range", Tunable("numa_range")),
    ("lnet", "lnet_health_sensitivity", Tunable("health_sensitivity")),
    ("lnet", "lnet_recovery_interval", Tunable("recovery_interval")),
    ("lnet", "lnet_recovery_limit", Tunable("recovery_limit")),
    ("lnet", "lnet_max_recovery_ping_interval", Tunable("max_recovery_ping_interval")),
    ("lnet", "lnet_interfaces_max", Tunable("max_interfaces")),
    ("lnet", "lnet_peer_discovery_disabled", Inverted("discovery")),
    ("lnet", "lnet_drop_asym_route", Tunable("drop_asym_route")),
    ("lnet", "lnet_transaction_timeout", Tunable("transaction_timeout")),
    ("lnet", "lnet_retry_count", Tunable("retry_count")),
    ("lnet", "lnet_response_tracking", Tunable("response_tracking")),
    ("lnet", "router_sensitivity_percentage", Tunable("router_sensitivity")),
    ("lnet", "tiny_router_buffers", Tunable("tiny_buffers")),
    ("lnet", "small_router_buffers", Tunable("small_buffers")),
    ("lnet", "large_router_buffers", Tunable("large_buffers")),
    ("lnet", "peer_buffer_credits", Tunable("peer_buffer_credits")),
    ("lnet", "auto_down", Tunable("auto_down")),
    ("lnet", "check_routers_before_use", Tunable("check_routers_before_use")),
    ("lnet", "avoid_asym_router_failure", Tunable("avoid_asym_router_failure")),
    ("lnet", "alive_router_check_interval", Tunable("alive_router_check_interval")),
    ("lnet", "live_router_check_interval", Tunable("live_router_check_interval")),
    ("lnet", "dead_router_check_interval", Tunable("dead_router_check_interval")),
    ("lnet", "router_ping_timeout", Tunable("router_ping_timeout")),
    ("lnet", "accept", Sock(accept)),
    ("lnet", "accept_port", Sock(|s, v| port(&mut s.accept_port, v))),
    ("lnet", "accept_port_bulk", Sock(|s, v| port(&mut s.accept_port_bulk, v))),
    ("lnet", "accept_timeout", Sock(|s, v| put(&mut s.accept_timeout, v))),
    ("lnet", "accept_backlog", Meaning::None(DIFFERENT)),
    ("lnet", "rnet_htable_size", Meaning::None(DIFFERENT)),
    ("lnet", "use_tcp_bonding", Meaning::None("Multi-Rail has replaced it")),
    ("lnet", "lock_prim_nid", Meaning::LockPrimNid),
    ("lnet", "local_nid_dist_zero", Meaning::None(DIFFERENT)),
    ("lnet", "portal_rotor", Meaning::None("one thread works for all CPU partitions")),
    ("lnet", "enable_sysctl_setup", Meaning::None("this node leaves the system's settings alone")),
    ("lnet", "cpu_npartitions", Meaning::Npartitions),
    ("lnet", "cpu_pattern", Meaning::CpuPattern),
    ("libcfs", "cpu_npartitions", Meaning::Npartitions),
    ("libcfs", "cpu_pattern", Meaning::CpuPattern),
    ("ptlrpc", "at_max", Meaning::Requests),
    ("ptlrpc", "at_min", Meaning::Requests),
    ("ptlrpc", "at_history", Meaning::Requests),
    ("ptlrpc", "at_extra", Meaning::Requests),
    ("ptlrpc", "at_early_margin", Meaning::Requests),
    ("ptlrpc", "ldlm_enqueue_min", Meaning::Requests),
    ("ksocklnd", "sock_timeout", Sock(|s, v| put(&mut s.sock_timeout, v))),
    ("ksocklnd", "credits", Sock(|s, v| put(&mut s.credits, v))),
    ("ksocklnd", "peer_credits", Sock(|s, v| put(&mut s.peer_credits, v))),
    ("ksocklnd", "peer_buffer_credits", Sock(|s, v| put(&mut s.peer_buffer_credits, v))),
    ("ksocklnd", "peer_timeout", Sock(|s, v| seconds(&mut s.peer_timeout, v))),
    ("ksocklnd", "conns_per_peer", Sock(|s, v| put_within(&mut s.conns_per_peer, v, 0, 127))),
    ("ksocklnd", "tos", Sock(|s, v| put_within(&mut s.tos, v, -1, 255))),
    ("ksocklnd", "min_reconnectms", Sock(|s, v| put(&mut s.min_reconnectms, v))),
    ("ksocklnd", "max_reconnectms", Sock(|s, v| put(&mut s.max_reconnectms, v))),
    ("ksocklnd", "min_bulk", Sock(|s, v| put(&mut s.min_bulk, v))),
    ("ksocklnd", "keepalive", Sock(|s, v| seconds(&mut s.keepalive, v))),
    ("ksocklnd", "keepalive_idle", Sock(|s, v| seconds(&mut s.keepalive_idle, v))),
    ("ksocklnd", "keepalive_intvl", Sock(|s, v| seconds(&mut s.keepalive_intvl, v))),
    ("ksocklnd", "keepalive_count", Sock(|s, v| put(&mut s.keepalive_count, v))),
    ("ksocklnd", "nagle", Sock(|s, v| flag(&mut s.nagle, v))),
    ("ksocklnd", "enable_csum", Sock(|s, v| flag(&mut s.enable_csum, v))),
    ("ksocklnd", "tx_buffer_size", Sock(|s, v| put(&mut s.tx_buffer_size, v))),
    ("ksocklnd", "rx_buffer_size", Sock(|s, v| put(&mut s.rx_buffer_size, v))),
    ("ko2iblnd", "service", Ib(|p, v| port(&mut p.service, v))),
    ("ko2iblnd", "timeout", Ib(|p, v| put(&mut p.timeout, v))),
    ("ko2iblnd", "conns_per_peer", Ib(|p, v| put_within(&mut p.conns_per_peer, v, 0, 127))),
    ("ko2iblnd", "credits", Ib(|p, v| put(&mut p.credits, v))),
    ("ko2iblnd", "peer_credits", Ib(|p, v| put(&mut p.peer_credits, v))),
    ("ko2iblnd", "peer_credits_hiw", Ib(|p, v| put(&mut p.peer_credits_hiw, v))),
    ("ko2iblnd", "peer_buffer_credits", Ib(|p, v| put(&mut p.peer_buffer_credits, v))),
    ("ko2iblnd", "peer_timeout", Ib(|p, v| seconds(&mut p.peer_timeout, v))),
    ("ko2iblnd", "ipif_name", Ib(|p, v| name(&mut p.ipif_name, v))),
    ("ko2iblnd", "retry_count", Ib(|p, v| put_within(&mut p.retry_count, v, 0, 7))),
    ("ko2iblnd", "rnr_retry_count", Ib(|p, v| put_within(&mut p.rnr_retry_count, v, 0, 7))),
    ("ko2iblnd", "keepalive", Ib(|p, v| seconds(&mut p.keepalive, v))),
    ("ko2iblnd", "concurrent_sends", Ib(|p, v| put(&mut p.concurrent_sends, v))),
    ("ko2iblnd", "require_privileged_port", Ib(|p, v| flag(&mut p.require_privileged_port, v))),
    ("ko2iblnd", "use_privileged_port", Ib(|p, v| flag(&mut p.use_privileged_port, v))),
    ("ko2iblnd", "tos", Ib(|p, v| put_within(&mut p.tos, v, -1, 255))),
];

/// Modules whose parameters are known and without effect here, and why.
const OTHERS: &[(&str, &str, &[&str])] = &[
    (
        "ksocklnd",
        DIFFERENT,
        &[
            "nscheds",
            "nconnds",
            "nconnds_max",
            "eager_ack",
            "typed_conns",
            "round_robin",
            "inject_csum_error",
            "enable_irq_affinity",
            "nonblk_zcack",
            "zc_min_payload",
            "zc_recv",
            "zc_recv_min_nfrags",
            "skip_mr_route_setup",
            "backoff_init",
            "backoff_max",
            "protocol",
        ],
    ),
    (
        "ko2iblnd",
        MAPPED,
        &[
            "map_on_demand",
            "ntx",
            "fmr_pool_size",
            "fmr_flush_trigger",
            "fmr_cache",
            "use_fastreg_gaps",
            "wrq_sge",
        ],
    ),
    ("ko2iblnd", NO_SUMS, &["cksum"]),
    ("ko2iblnd", BY_ROUTE, &["ib_mtu"]),
    ("ko2iblnd", DIFFERENT, &["nscheds", "dev_failover"]),
    (
        "kgnilnd",
        NO_GNI,
        &[
            "timeout",
            "peer_health",
            "credits",
            "eager_credits",
            "peer_credits",
            "peer_buffer_credits",
            "peer_timeout",
            "fma_cq_size",
            "max_immediate",
            "max_retransmits",
            "hash_size",
        ],
    ),
    (
        "kkfilnd",
        NO_KFI,
        &[
            "cksum",
            "kfi_timeout",
            "tx_scale_factor",
            "rx_cq_scale_factor",
            "tx_cq_scale_factor",
            "eq_size",
            "immediate_rx_buf_count",
            "prov_cpu_exclusive",
            "wq_high_priority",
            "wq_cpu_intensive",
            "wq_max_active",
            "credits",
            "peer_credits",
            "tn_reserve_min",
            "msg_reserve_min",
            "peer_buffer_credits",
            "peer_timeout",
            "prov_major_version",
            "prov_minor_version",
            "auth_key",
            "traffic_class",
        ],
    ),
    (
        "kefalnd",
        NO_EFA,
        &[
            "nscheds",
            "nqps",
            "credits",
            "peer_credits",
            "peer_buffer_credits",
            "peer_timeout",
            "rnr_retry_count",
            "ipif_name",
        ],
    ),
    (
        "lnet_selftest",
        SELFTEST,
        &[
            "brw_srv_workitems",
            "brw_inject_errors",
            "ping_srv_workitems",
            "rpc_timeout",
            "session_timeout",
        ],
    ),
];

/// What is wrong with a name that the module has not.
fn no_parameter(module: &str, name: &str) -> String {
    let own = TABLE.iter().filter(|(m, ..)| *m == module).map(|(_, n, _)| *n);
    let others = OTHERS.iter().filter(|(m, ..)| *m == module).flat_map(|(.., names)| *names);
    let why = format!("module {module} has no parameter '{name}'");
    match nearest(name, own.chain(others.copied())) {
        Some(meant) => format!("{why}: did you mean '{meant}'?"),
        None => why,
    }
}

impl ModuleParameters {
    /// What a modprobe file asks for. Lines and names that are not understood are noted, values
    /// that are wrong are errors.
    ///
    /// # Errors
    /// The first value that cannot be, with its line.
    pub fn from_modprobe(text: &str) -> Result<Self, LegacyError> {
        let (options, problems) = parse_modprobe(text);
        let mut all = Self::from_options(&options)?;
        for problem in problems {
            let why = Some("not understood".to_owned());
            all.notes.push(Note { line: problem.line, text: problem.what, ignored: why });
        }
        all.notes.sort_by_key(|note| note.line);
        Ok(all)
    }

    /// What these options ask for, the last one of each name.
    ///
    /// # Errors
    /// The first value that cannot be, with its line.
    pub fn from_options(options: &[ModuleOption]) -> Result<Self, LegacyError> {
        let mut all = Self::default();
        // The last one of each counts, as of every parameter.
        let (mut npartitions, mut pattern) = (None, None);
        for option in options {
            let ModuleOption { line, module, name, .. } = option;
            let text = format!("{module} {name}={}", option.value);
            let row = TABLE.iter().find(|(m, n, _)| m == module && n == name);
            match row {
                Some((_, _, Meaning::Npartitions)) => npartitions = Some(option),
                Some((_, _, Meaning::CpuPattern)) => pattern = Some(option),
                _ => {}
            }
            let ignored = match row {
                Some((_, _, meaning)) => all.take(option, *meaning)?.map(str::to_owned),
                None => {
                    let known = OTHERS
                        .iter()
                        .find(|(m, _, names)| m == module && names.contains(&name.as_str()));
                    Some(match known {
                        Some((_, why, _)) => (*why).to_owned(),
                        None if TABLE.iter().any(|(m, ..)| m == module)
                            || OTHERS.iter().any(|(m, ..)| m == module) =>
                        {
                            no_parameter(module, name)
                        }
                        None => format!("module {module} is not known"),
                    })
                }
            };
            all.notes.push(Note { line: *line, text, ignored });
        }
        all.take_cpus(npartitions, pattern)?;
        let rules = options.iter().rfind(|o| o.module == "lnet" && o.name == "ip2nets");
        if let Some(rules) = rules.filter(|_| all.ip2nets.is_some() && !all.networks.is_empty()) {
            let what = format!("must stand without networks, on line {}", rules.line);
            return Err(bad("ip2nets", &rules.value, what));
        }
        Ok(all)
    }

    /// Applies one option; the reason if it has no effect.
    fn take(
        &mut self,
        option: &ModuleOption,
        meaning: Meaning,
    ) -> Result<Option<&'static str>, LegacyError> {
        let value = option.value.as_str();
        let fail = |what: String| LegacyError {
            what: format!("{what}, on line {}", option.line),
            ..bad("option", &format!("{} {}={value}", option.module, option.name), "")
        };
        let in_line = |e: LegacyError| LegacyError {
            what: format!("{}, on line {}", e.what, option.line),
            ..e
        };
        let number = || parse_number(value).ok_or_else(|| fail("expected a number".to_owned()));
        match meaning {
            Meaning::Networks => self.networks = parse_networks(value).map_err(in_line)?,
            Meaning::Ip2nets => {
                let rules = parse_ip2nets(value).map_err(in_line)?;
                self.ip2nets = (!rules.rules.is_empty()).then_some(rules);
            }
            Meaning::Routes => self.routes = parse_routes(value).map_err(in_line)?,
            Meaning::Forwarding => {
                self.forwarding = match value {
                    "" => None,
                    "enabled" => Some(true),
                    "disabled" => Some(false),
                    _ => return Err(fail("expected enabled or disabled".to_owned())),
                };
            }
            Meaning::ConfigOnLoad => self.config_on_load = number()? != 0,
            Meaning::LockPrimNid => {
                self.lock_prim_nid = Some(number()? != 0);
                return Ok(Some("peers are locked one by one"));
            }
            Tunable(name) if BUFFER_KEYS.iter().any(|(_, n)| *n == name) => match number()? {
                n @ 0.. => self.setting(name, n),
                _ => return Err(fail("expected 0 or more".to_owned())),
            },
            Tunable(name) => self.setting(name, number()?),
            Meaning::Requests => {
                let value = number()?;
                self.requests.retain(|s| s.name != option.name);
                self.requests.push(Setting::new(option.name.as_str(), value));
            }
            Inverted(name) => self.setting(name, i64::from(number()? == 0)),
            Sock(put) => {
                put(&mut self.sock, value).map_err(fail)?;
            }
            Ib(put) => {
                put(&mut self.ib, value).map_err(fail)?;
            }
            Meaning::Npartitions => {
                let most = CptTable::MAX as i64;
                if !(0..=most).contains(&number()?) {
                    return Err(fail(format!("expected 0 to {most} CPU partitions")));
                }
            }
            Meaning::CpuPattern => {
                CpuPattern::parse(value, 0).map_err(|e| fail(e.what))?;
            }
            Meaning::None(why) => return Ok(Some(why)),
        }
        Ok(None)
    }

    /// The two parameters of partitions, each good by itself.
    fn take_cpus(
        &mut self,
        npartitions: Option<&ModuleOption>,
        pattern: Option<&ModuleOption>,
    ) -> Result<(), LegacyError> {
        if npartitions.is_none() && pattern.is_none() {
            return Ok(());
        }
        let text = pattern.map_or("", |option| option.value.as_str());
        let count = npartitions.and_then(|option| parse_number(&option.value));
        let count = count.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let cpus = CpuPattern::parse(text, count);
        let cpus = cpus.map_err(|e| bad("cpu_pattern", &e.pattern, e.what))?;
        if let Some(option) = npartitions.filter(|_| cpus.npartitions() != count) {
            let lost = self.notes.iter_mut().filter(|note| note.line == option.line);
            lost.filter(|note| note.text.contains("cpu_npartitions"))
                .for_each(|note| note.ignored = Some("cpu_pattern decides".to_owned()));
        }
        self.cpus = Some(cpus);
        Ok(())
    }

    fn setting(&mut self, name: &str, value: i64) {
        self.settings.retain(|s| s.name != name);
        self.settings.push(Setting::new(name, value));
    }

    /// The same as a configuration in YAML would ask for it: rules that choose by address become the
    /// `ip2nets` of YAML, where the first that matches counts for each net (I-10).
    pub fn to_config(&self) -> Config {
        let mut blocks = Vec::new();
        let of = |net: Net| match net.kind {
            NetType::TCP => (self.sock.tunables(), self.sock.lnd()),
            NetType::O2IB => (self.ib.tunables(), self.ib.lnd()),
            _ => (NetTunables::default(), LndTunables::default()),
        };
        if let Some(rules) = &self.ip2nets {
            let single = |rule: &NetRule| {
                let ranges = rule.ranges.clone();
                let one = move |net: &NetAdd| {
                    let (tunables, lnd) = of(net.net);
                    let net = NetAdd { tunables, lnd, ..net.clone() };
                    NetRule { nets: vec![net], ranges: ranges.clone() }
                };
                rule.nets.iter().map(one).collect::<Vec<_>>()
            };
            let rules = rules.rules.iter().flat_map(single).collect();
            blocks.push(Block::NetRules(NetRules { rules, choice: Choice::FirstPerNet }));
        }
        for spec in &self.networks {
            let NetSpec { net, interfaces, cpts } = spec.clone();
            let (tunables, lnd) = of(net);
            let ni = NiBlock { interfaces, nid: None, tunables, lnd, cpts };
            blocks.push(Block::Net(NetBlock { net, nis: vec![ni], accept_from: None }));
        }
        blocks.extend(self.routes.iter().map(|route| Block::Route(*route)));
        blocks.extend(self.forwarding.map(Block::Routing));
        let among = |keys: &[&str]| -> Vec<Setting> {
            self.settings.iter().filter(|s| keys.contains(&s.name.as_str())).cloned().collect()
        };
        let buffers = among(&BUFFER_KEYS.map(|(_, name)| name));
        let (global, own) = (among(&GLOBAL_KEYS), among(&OWN_KEYS));
        blocks.extend((!buffers.is_empty()).then_some(Block::Buffers(buffers)));
        blocks.extend((!global.is_empty()).then_some(Block::Settings(global)));
        blocks.extend((!own.is_empty()).then_some(Block::Own(own)));
        let blocks = blocks.into_iter().map(|block| (Pos::default(), block)).collect();
        Config { blocks, ..Config::default() }
    }

    /// The nets to be made where no `ip2nets` are given: those of `networks`, else `tcp` on the first
    /// usable interface (N-9).
    pub fn networks_or_default(&self) -> Vec<NetSpec> {
        if self.networks.is_empty() {
            return vec![NetSpec { net: Net::TCP, interfaces: Vec::new(), cpts: None }];
        }
        self.networks.clone()
    }
}

#[cfg(test)]
#[path = "parameters/tests.rs"]
mod tests;
