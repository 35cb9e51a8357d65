//! Interfaces: from a name or NID to an NI that a driver serves, and back. What RDMA interfaces have of
//! their own is in `rdma.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use lnd_sock::{ANY, AcceptFrom, Limits, parse_patterns};
use lnet::{NetTunables, NiSpec, Node};
use lnet_admin::{AdminError, LndSnapshot};
use lnet_config::{
    AcceptFrom as AcceptMode, LocalAddress, ModuleParameters, NetAdd, NetCpts, NetDel, NetRules,
    SockParameters, nearest,
};
use lnet_rt::{Interfaces, Namespace, NiError, NodeHandle, TcpNi};
use lnet_types::{CptTable, Errno, Instant, Net, NetType, NiId, Nid};

use crate::control::{Running, stopped};
use crate::options::{Accept, Options};
use crate::rdma;

/// Settings of socklnd for nets to come.
#[derive(Clone, Debug)]
pub(crate) struct SockDefaults {
    port: u16,
    accept: lnd_sock::AcceptMode,
    /// Seconds; 0 follows the node's derived time-out.
    pub(crate) timeout_s: u32,
    legacy_close_status: bool,
    /// Those of the RDMA driver.
    pub(crate) ib: rdma::IbDefaults,
    /// Which peers may connect.
    accept_from: AcceptFrom,
    limits: Limits,
    /// What module parameters say besides.
    parameters: SockParameters,
}

impl SockDefaults {
    pub(crate) fn new(options: &Options, parameters: &ModuleParameters) -> Self {
        let ModuleParameters { sock: parameters, ib, .. } = parameters;
        let accept = match parameters.accept {
            Some(AcceptMode::Secure) => Accept::Secure,
            Some(AcceptMode::All) => Accept::All,
            Some(AcceptMode::None) => Accept::None,
            None => options.accept,
        };
        let conduct = lnet::Conduct::new(options.profile());
        Self {
            port: parameters.accept_port.unwrap_or(options.port),
            accept: match accept {
                Accept::Secure => lnd_sock::AcceptMode::Secure,
                Accept::All => lnd_sock::AcceptMode::All,
                Accept::None => lnd_sock::AcceptMode::None,
            },
            // K-1, V-13: the kernel's driver has its own 50 s.
            timeout_s: parameters.sock_timeout.unwrap_or(match conduct.keeps_driver_timeout {
                true => 50,
                false => 0,
            }),
            legacy_close_status: conduct.closes_with_legacy_status,
            ib: rdma::IbDefaults::new(&conduct, ib),
            accept_from: options.accept_from.clone(),
            limits: Limits {
                connections_per_address: options.connections_per_address,
                pending_accepts_per_address: options.pending_per_address,
                memory_per_address: options.memory_per_address,
                ..Limits::DEFAULT
            },
            parameters: parameters.clone(),
        }
    }

    /// What module parameters say.
    pub(crate) const fn parameters(&self) -> &SockParameters {
        &self.parameters
    }

    /// What the driver starts with.
    pub(crate) fn config(&self) -> lnd_sock::SockConfig {
        let p = &self.parameters;
        let default = lnd_sock::SockConfig::on_port(self.port);
        let seconds =
            |n: Option<u32>, or: Duration| n.map_or(or, |n| Duration::from_secs(n.into()));
        let millis =
            |n: Option<u32>, or: Duration| n.map_or(or, |n| Duration::from_millis(n.into()));
        // An idle time of 0 turns it off.
        let tcp_keepalive = default.tcp_keepalive.filter(|_| p.keepalive_idle != Some(0)).map(
            |(idle, interval, count)| {
                let idle = seconds(p.keepalive_idle, idle);
                let interval = seconds(p.keepalive_intvl.filter(|n| *n > 0), interval);
                (idle, interval, p.keepalive_count.filter(|n| *n > 0).unwrap_or(count))
            },
        );
        lnd_sock::SockConfig {
            accept: self.accept,
            accept_from: self.accept_from.clone(),
            limits: self.limits.clone(),
            legacy_close_status: self.legacy_close_status,
            bulk_port: p.accept_port_bulk.unwrap_or(default.bulk_port),
            accept_timeout: seconds(p.accept_timeout, default.accept_timeout),
            min_reconnect: millis(p.min_reconnectms, default.min_reconnect),
            max_reconnect: millis(p.max_reconnectms, default.max_reconnect),
            min_bulk: p.min_bulk.unwrap_or(default.min_bulk),
            keepalive: seconds(p.keepalive, default.keepalive),
            tcp_keepalive,
            nagle: p.nagle.unwrap_or(default.nagle),
            checksum: p.enable_csum.unwrap_or(default.checksum),
            send_buffer: p.tx_buffer_size.filter(|n| *n > 0),
            recv_buffer: p.rx_buffer_size.filter(|n| *n > 0),
            ..default
        }
    }

    fn timeout(&self) -> Option<Duration> {
        (self.timeout_s != 0).then(|| Duration::from_secs(u64::from(self.timeout_s)))
    }

    /// Gives a network its own list of the peers that may connect, `any` for every peer; without
    /// one what the daemon was started with holds again.
    pub(crate) fn set_accept_from(
        &mut self,
        net: Net,
        list: Option<&str>,
    ) -> Result<(), AdminError> {
        let refuse = |why: String| AdminError::new(Errno::EINVAL, why);
        if net.kind != NetType::TCP {
            return Err(refuse(format!("net {net}: no list of peers there, expected tcp")));
        }
        let Some(list) = list else {
            self.accept_from.unset(net);
            return Ok(());
        };
        if list == ANY {
            self.accept_from.set(net, Vec::new());
            return Ok(());
        }
        let patterns = parse_patterns(list);
        let patterns = patterns.map_err(|e| refuse(e.to_string()))?;
        if let Some(other) = patterns.iter().find(|p| !p.is_about(net)) {
            return Err(refuse(format!("pattern '{other}' is not about net {net}")));
        }
        // An empty list must not open the door by mistake.
        if patterns.is_empty() {
            return Err(refuse("expected networks or NIDs, any or default".to_owned()));
        }
        self.accept_from.set(net, patterns);
        Ok(())
    }

    pub(crate) fn set_timeout(&mut self, net: Net, seconds: u32) -> Result<(), AdminError> {
        match net.kind {
            NetType::TCP => self.timeout_s = seconds,
            NetType::O2IB => self.ib.timeout_s = seconds,
            _ => {
                return Err(AdminError::new(
                    Errno::ENOMSG,
                    format!("Failed to set LND timeout for net {net}"),
                )
                .because("no driver for that network: expected tcp or o2ib"));
            }
        }
        Ok(())
    }
}

/// What the daemon remembers of the interfaces that it has made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nets {
    made: BTreeMap<NiId, Made>,
    /// The tunables of each net, which its first interface brought (C-netadd-6).
    tunables: BTreeMap<Net, NetTunables>,
}

#[derive(Clone, Debug)]
struct Made {
    nid: Nid,
    interface: Option<String>,
    conns_per_peer: u8,
    tos: i16,
    speed_mbps: Option<u32>,
    /// Whether its address is not the one that its interface alone stands for.
    by_address: bool,
    namespace: Option<Namespace>,
    /// Of an RDMA interface.
    ib: Option<rdma::Made>,
}

impl Made {
    fn new(nid: Nid, add: &NetAdd, tunables: NetTunables, place: &Place) -> Self {
        let mut made = Self {
            nid,
            interface: place.device.clone(),
            conns_per_peer: 0,
            tos: add.lnd.tos.unwrap_or(-1),
            speed_mbps: place.speed_mbps,
            by_address: place.by_address,
            namespace: place.namespace.clone(),
            ib: rdma::is_rdma(nid).then(|| rdma::Made::new(add, tunables.peer_credits)),
        };
        made.conns_per_peer = made.conns(add.lnd.conns_per_peer);
        made
    }

    /// Connections per peer when `asked` are wanted: 0 and none let the link's speed decide (K-12).
    fn conns(&self, asked: Option<u8>) -> u8 {
        match asked {
            None | Some(0) if self.ib.is_some() => 1,
            None | Some(0) => lnd_sock::conns_per_peer_for(self.speed_mbps.map(|m| m / 1000)),
            Some(n) => n,
        }
    }
}

/// What `net show` prints of interfaces besides the node's records.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    timeout_s: u32,
    ib_timeout_s: u32,
    made: BTreeMap<NiId, Made>,
    accept_from: AcceptFrom,
}

impl Settings {
    pub(crate) fn lnd(&self, ni: NiId) -> Option<LndSnapshot> {
        self.made.get(&ni).map(|m| match m.ib {
            Some(ib) => rdma::snapshot(ib, m.conns_per_peer, m.tos, self.ib_timeout_s),
            None => LndSnapshot::Sock {
                conns_per_peer: u32::from(m.conns_per_peer),
                timeout_s: self.timeout_s,
                tos: i32::from(m.tos),
            },
        })
    }

    /// Whether only the NID names it, not its interface.
    pub(crate) fn is_by_address(&self, ni: NiId) -> bool {
        self.made.get(&ni).is_some_and(|m| m.by_address)
    }

    pub(crate) fn accept_from(&self, net: Net) -> Vec<String> {
        self.accept_from.texts_of(net)
    }
}

impl Nets {
    /// Puts the TCP driver under a node.
    pub(crate) fn start(handle: &NodeHandle, sock: &SockDefaults) -> Result<Self, AdminError> {
        let config = sock.config();
        handle
            .call(move |stack, _| stack.enable_tcp(config))
            .blocking()
            .map_err(|e| stopped(&e))?
            .map_err(|e| AdminError::errno(e.errno()).because(e))?;
        Ok(Self::default())
    }

    fn keep(&mut self, ni: NiId, made: Made, tunables: NetTunables) {
        self.tunables.entry(made.nid.net()).or_insert(tunables);
        self.made.insert(ni, made);
    }

    fn forget(&mut self, ni: NiId) {
        let Some(Made { nid, .. }) = self.made.remove(&ni) else { return };
        let net = nid.net();
        if !self.made.values().any(|m| m.nid.net() == net) {
            self.tunables.remove(&net);
        }
    }

    /// What `net show` says; `global` is the time limit that interfaces without one of the driver's own
    /// follow.
    pub(crate) fn settings(&self, sock: &SockDefaults, global: Duration) -> Settings {
        let seconds = |own: Option<Duration>| {
            u32::try_from(own.unwrap_or(global).as_secs()).unwrap_or(u32::MAX)
        };
        Settings {
            timeout_s: seconds(sock.timeout()),
            ib_timeout_s: seconds(sock.ib.timeout()),
            made: self.made.clone(),
            accept_from: sock.accept_from.clone(),
        }
    }

    /// Says which values of a request are not applied, because its net has others already (C-netadd-6).
    fn warn_of_other_tunables(&self, add: &NetAdd) {
        let Some(has) = self.tunables.get(&add.net) else { return };
        let t = &add.tunables;
        let rows = [
            ("peer_timeout", t.peer_timeout_s, i64::from(has.peer_timeout)),
            ("peer_credits", t.peer_credits, has.peer_credits.into()),
            ("peer_buffer_credits", t.peer_buffer_credits, has.peer_buffer_credits.into()),
            ("credits", t.credits, has.credits.into()),
        ];
        for (name, asked, has) in rows {
            if let Some(asked) = asked.filter(|n| i64::from(*n) != has) {
                tracing::warn!(
                    "net {}: {name} {asked} is not applied: must be the same for all interfaces of a net, \
                     which has {has}",
                    add.net
                );
            }
        }
    }

    /// Lets the driver know who may connect from now on.
    pub(crate) fn set_accept_from(
        handle: &NodeHandle,
        sock: &SockDefaults,
    ) -> Result<(), AdminError> {
        let list = sock.accept_from.clone();
        handle
            .call(move |stack, now| stack.set_tcp_accept_from(now, list))
            .blocking()
            .map_err(|e| stopped(&e))
    }

    /// Connections per peer of one interface or all; peers to come use them (C-netset-1).
    pub(crate) fn set_conns_per_peer(
        &mut self,
        handle: &NodeHandle,
        nid: Option<Nid>,
        conns: u8,
    ) -> Result<(), AdminError> {
        let meant: Vec<NiId> = self
            .made
            .iter()
            .filter(|(_, m)| nid.is_none_or(|n| n == m.nid))
            .map(|(ni, _)| *ni)
            .collect();
        for ni in meant {
            let Some(made) = self.made.get_mut(&ni) else { continue };
            let conns = made.conns(Some(conns));
            let is_rdma = made.ib.is_some();
            handle
                .call(move |stack, _| -> Result<(), AdminError> {
                    if is_rdma {
                        let port = stack.ib_mut().and_then(|ib| ib.port(ni));
                        let set = port.map(|port| port.ib.set_conns_per_peer(conns)).transpose();
                        set.map_err(|e| AdminError::errno(Errno::EINVAL).because(e))?;
                        return Ok(());
                    }
                    let set = stack.tcp_mut().map(|tcp| tcp.set_conns_per_peer(ni, conns));
                    let set = set.transpose();
                    set.map_err(|e| AdminError::errno(e.errno()).because(e)).map(drop)
                })
                .blocking()
                .map_err(|e| stopped(&e))??;
            made.conns_per_peer = conns;
        }
        Ok(())
    }

    /// The driver's time limit, after it or the tunables that it follows have changed.
    pub(crate) fn set_timeout(
        &self,
        handle: &NodeHandle,
        sock: &SockDefaults,
    ) -> Result<(), AdminError> {
        let (tcp, ib) = (sock.timeout(), sock.ib.timeout());
        let nis: Vec<(NiId, bool)> =
            self.made.iter().map(|(ni, made)| (*ni, made.ib.is_some())).collect();
        handle
            .call(move |stack, _| {
                nis.into_iter().try_for_each(|(ni, is_rdma)| match is_rdma {
                    true => stack.set_ib_timeout(ni, ib),
                    false => stack.set_tcp_timeout(ni, tcp),
                })
            })
            .blocking()
            .map_err(|e| stopped(&e))?
            .map_err(|errno| AdminError::errno(errno).because("LND time-out"))
    }
}

/// Where interfaces are added, and by which of their addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) prefer: Prefer,
    /// The caller's network namespace, if it is not the daemon's.
    pub(crate) namespace: Option<&'a Namespace>,
}

impl Scene<'_> {
    /// The daemon's own.
    pub(crate) const HERE: Self = Self { prefer: Prefer::Small, namespace: None };
}

/// Adds the interfaces of one request, all or none.
pub(crate) fn add(
    node: &mut Running,
    sock: &SockDefaults,
    add: &NetAdd,
    scene: Scene<'_>,
) -> Result<Vec<NiId>, AdminError> {
    let wanted = judge(&node.cpts, sock, add, scene)?;
    node.nets.warn_of_other_tunables(add);
    let mut made = Vec::new();
    for place in &wanted.places {
        let outcome = add_one(node, sock, &wanted.add, wanted.tunables, place);
        match outcome {
            Ok(ni) => made.push(ni),
            Err((errno, why)) => {
                // Nothing of the request stays.
                for ni in made {
                    remove(node, ni)?;
                }
                return Err(AdminError::new(errno, NOT_ADDED).because(why));
            }
        }
    }
    Ok(made)
}

/// The same in a copy of the node, without a driver: what only the system can refuse is not seen.
pub(crate) fn try_add(
    node: &mut Node,
    nets: &mut Nets,
    (cpts, sock): (&CptTable, &SockDefaults),
    add: &NetAdd,
    scene: Scene<'_>,
    now: Instant,
) -> Result<(), AdminError> {
    let Wanted { add, tunables, places } = judge(cpts, sock, add, scene)?;
    for place in &places {
        let nid = Nid::from_ip(add.net, place.ip);
        let interface = place.device.clone();
        let spec = NiSpec { nid, interface, tunables, lnd_timeout: None };
        let cpts = place.cpts.clone().or_else(|| add.cpts.clone()).map(BTreeSet::from_iter);
        let added = node.add_ni(now, spec);
        let added = added.and_then(|ni| node.set_ni_cpts(ni, cpts).map(|()| ni));
        let ni = added.map_err(|errno| {
            let why = not_added(&NiError::Refused { nid, errno }, nid, nets);
            AdminError::new(errno, NOT_ADDED).because(why)
        })?;
        nets.keep(ni, Made::new(nid, &add, tunables, place), tunables);
    }
    Ok(())
}

/// The text of a refusal.
const NOT_ADDED: &str = "cannot add LNet NI";

/// What a request asks for, with what is behind it, and where.
struct Wanted {
    add: NetAdd,
    tunables: NetTunables,
    places: Vec<Place>,
}

/// Whether a request can be, as far as that can be said without the node and its drivers.
fn judge(
    cpts: &CptTable,
    sock: &SockDefaults,
    add: &NetAdd,
    scene: Scene<'_>,
) -> Result<Wanted, AdminError> {
    let refuse = |errno, why: String| AdminError::new(errno, NOT_ADDED).because(why);
    match add.net.kind {
        NetType::TCP => {}
        NetType::O2IB => {
            rdma::check(scene.namespace).map_err(|(errno, why)| refuse(errno, why))?;
        }
        NetType::LO => return Err(AdminError::new(Errno::ENODEV, "setting @lo not allowed")),
        _ => {
            let why = format!("net {}: no driver for it here, expected tcp or o2ib", add.net);
            return Err(refuse(Errno::ENETDOWN, why));
        }
    }
    add.check().map_err(|e| refuse(Errno::EINVAL, e.to_string()))?;
    let named = add.interfaces.iter().filter_map(|i| i.cpts.as_ref());
    named.chain(&add.cpts).try_for_each(|wanted| there(cpts, wanted))?;
    let credits = |v: Option<u32>, default: u32| v.filter(|v| *v != 0).unwrap_or(default);
    let table = load(scene.namespace)?;
    let is_rdma = add.net.kind == NetType::O2IB;
    let mut add = if is_rdma { sock.ib.by_interface(add, &table) } else { add.clone() };
    // Module parameters are behind what the request says.
    let (of_net, of_driver) = match is_rdma {
        true => (sock.ib.parameters().tunables(), sock.ib.parameters().lnd()),
        false => (sock.parameters.tunables(), sock.parameters.lnd()),
    };
    add.lnd = add.lnd.or(of_driver);
    let t = add.tunables.or(of_net);
    let tunables = NetTunables {
        peer_timeout: t
            .peer_timeout_s
            .map_or(NetTunables::SOCK.peer_timeout, |s| i32::try_from(s).unwrap_or(i32::MAX)),
        peer_credits: credits(t.peer_credits, NetTunables::SOCK.peer_credits),
        peer_buffer_credits: t.peer_buffer_credits.unwrap_or(0),
        credits: credits(t.credits, NetTunables::SOCK.credits),
    };
    let tunables = if is_rdma { rdma::bounded(tunables) } else { tunables };
    let placed_in = |table: &Interfaces, scene| {
        places(table, &add, scene).map_err(|(errno, why)| {
            let unusable = add.interfaces.iter().find(|i| table.resolve(&i.name).is_none());
            let no_interface = unusable.filter(|i| table.named(&i.name).is_none());
            AdminError { no_interface: no_interface.map(|i| i.name.clone()), ..refuse(errno, why) }
        })
    };
    // An interface that the caller's namespace does not have may be one of the daemon's: daemons of
    // several namespaces are administered from one.
    let placed = placed_in(&table, scene).or_else(|e| {
        let Some(own) = scene.namespace.and_then(|_| load(None).ok()) else { return Err(e) };
        // The namespace that has more of the interfaces is the one that was meant.
        let known = |table: &Interfaces| {
            add.interfaces.iter().filter(|i| table.named(&i.name).is_some()).count()
        };
        placed_in(&own, Scene { namespace: None, ..scene })
            .map_err(|of_own| if known(&own) > known(&table) { of_own } else { e })
    });
    let places = placed?;
    Ok(Wanted { add, tunables, places })
}

/// The interfaces of a network namespace.
fn load(namespace: Option<&Namespace>) -> Result<Interfaces, AdminError> {
    Interfaces::load_in(namespace).map_err(|e| match (e.raw_os_error(), namespace) {
        (Some(libc::EPERM), Some(_)) => AdminError::errno(Errno::EPERM).because(
            "the caller's network namespace: the daemon needs CAP_SYS_ADMIN to use its interfaces",
        ),
        _ => AdminError::errno(Errno::EIO).because(format_args!("interfaces: {e}")),
    })
}

/// Whether the machine has these CPTs.
fn there(table: &CptTable, cpts: &[u32]) -> Result<(), AdminError> {
    let count = table.count();
    match cpts.iter().find(|cpt| **cpt >= count) {
        Some(bad) => Err(AdminError::new(Errno::ERANGE, "invalid CPT value")
            .because(format!("CPT {bad}: expected 0 to {}", count - 1))),
        None => Ok(()),
    }
}

/// Ties interfaces that are there to other CPTs (MR-cfg-030), all that are meant or none.
pub(crate) fn set_cpts(node: &Running, set: &NetCpts) -> Result<(), AdminError> {
    let (nis, cpts) = judge_cpts(&node.cpts, &node.nets, set)?;
    node.handle
        .call(move |stack, _| {
            nis.into_iter().try_for_each(|ni| stack.set_ni_cpts(ni, cpts.clone()))
        })
        .blocking()
        .map_err(|e| stopped(&e))?
        .map_err(|errno| AdminError::new(errno, NO_CPTS).because(errno))
}

/// The text of a refusal.
const NO_CPTS: &str = "cannot set CPT";

/// The same in a copy of the node.
pub(crate) fn try_set_cpts(
    node: &mut Node,
    nets: &Nets,
    cpts: &CptTable,
    set: &NetCpts,
) -> Result<(), AdminError> {
    let (nis, cpts) = judge_cpts(cpts, nets, set)?;
    let set = nis.into_iter().try_for_each(|ni| node.set_ni_cpts(ni, cpts.clone()));
    set.map_err(|errno| AdminError::new(errno, NO_CPTS).because(errno))
}

/// The interfaces that are meant, and their CPTs.
type TiedTo = (Vec<NiId>, Option<BTreeSet<u32>>);

fn judge_cpts(table: &CptTable, nets: &Nets, set: &NetCpts) -> Result<TiedTo, AdminError> {
    if let Some(cpts) = &set.cpts {
        there(table, cpts)?;
    }
    let NetCpts { net, interfaces, nid, cpts } = set.clone();
    let nis = meant(nets, &NetDel { net, interfaces, nid }, None, [NO_CPTS; 2])?;
    Ok((nis, cpts.map(BTreeSet::from_iter)))
}

/// Which address of an interface its NI is to have, where the request leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// The first IPv4 address.
    Small,
    /// An IPv6 address, if there is one (C-lnet-1, `--large`).
    Large,
}

impl Prefer {
    fn of(self, i: &lnet_rt::Interface, usual: IpAddr) -> IpAddr {
        let large = |ip: &IpAddr| match ip {
            // Neither link-local nor loopback: a peer could not answer.
            IpAddr::V6(ip) => !ip.is_unicast_link_local() && !ip.is_loopback(),
            IpAddr::V4(_) => false,
        };
        match self {
            Self::Small => usual,
            Self::Large => i.addresses.iter().map(|a| a.ip).find(large).unwrap_or(usual),
        }
    }
}

/// The addresses that rules are about, with the names that interfaces go by.
fn local_addresses(table: &Interfaces) -> Vec<LocalAddress> {
    let of = |i: &lnet_rt::Interface| {
        let usable = i.up && !i.loopback;
        let address = |a: &lnet_rt::Address| LocalAddress {
            interface: a.label.clone().unwrap_or_else(|| i.name.clone()),
            ip: a.ip,
            usable,
        };
        i.addresses.iter().map(address).collect::<Vec<_>>()
    };
    table.iter().flat_map(of).collect()
}

/// The nets that rules choose on this machine.
pub(crate) fn choose(
    rules: &NetRules,
    namespace: Option<&Namespace>,
) -> Result<Vec<NetAdd>, AdminError> {
    let choose = |table: &Interfaces| rules.choose(&local_addresses(table));
    let chosen = choose(&load(namespace)?).or_else(|e| match namespace {
        Some(_) => load(None).map_or(Err(e), |own| choose(&own)),
        None => Err(e),
    });
    chosen.map_err(|e| AdminError::new(e.errno(), e.to_string()))
}

/// Adds nets in their order, all or none.
pub(crate) fn add_all(
    node: &mut Running,
    sock: &SockDefaults,
    adds: &[NetAdd],
    scene: Scene<'_>,
) -> Result<(), AdminError> {
    let mut made = Vec::new();
    for add in adds {
        match self::add(node, sock, add, scene) {
            Ok(nis) => made.extend(nis),
            Err(e) => {
                for ni in made {
                    remove(node, ni)?;
                }
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Removes what [`add_all`] would add.
pub(crate) fn del_all(
    node: &mut Running,
    adds: &[NetAdd],
    namespace: Option<&Namespace>,
) -> Result<(), AdminError> {
    adds.iter().rev().try_for_each(|add| {
        let interfaces = add.interfaces.iter().map(|i| i.name.clone()).collect();
        del(node, &NetDel { net: add.net, interfaces, nid: add.nid }, namespace)
    })
}

/// A device and the address on it.
#[derive(Debug)]
struct Place {
    device: Option<String>,
    ip: IpAddr,
    speed_mbps: Option<u32>,
    /// Whether the address is another one than that which the interface alone stands for.
    by_address: bool,
    /// CPTs that were named for this one.
    cpts: Option<Vec<u32>>,
    namespace: Option<Namespace>,
}

impl Scene<'_> {
    fn place(&self, name: Option<&str>, i: &lnet_rt::Interface, ip: IpAddr) -> Place {
        Place {
            device: name.map(ToOwned::to_owned).or_else(|| Some(i.name.clone())),
            ip,
            // The system tells that of the devices in this namespace.
            speed_mbps: i.speed_mbps().filter(|_| self.namespace.is_none()),
            by_address: false,
            cpts: None,
            namespace: self.namespace.cloned(),
        }
    }
}

/// The devices that a request means.
fn places(
    table: &Interfaces,
    add: &NetAdd,
    scene: Scene<'_>,
) -> Result<Vec<Place>, (Errno, String)> {
    let mut found = Vec::new();
    // Beside an interface a NID says which of its addresses is meant, if it has that one still.
    let beside = match add.interfaces.as_slice() {
        [] => None,
        [one] => add
            .nid
            .and_then(|nid| nid.ip())
            .filter(|ip| table.named(&one.name).is_some_and(|i| i.has_address(*ip))),
        _ => None,
    };
    if let (Some(nid), true) = (add.nid, beside.is_some() || add.interfaces.is_empty()) {
        let no_ip = || (Errno::EINVAL, format!("NID {nid}: no IP address"));
        let ip = nid.ip().ok_or_else(no_ip)?;
        let absent = || {
            let why = format!("NID {nid}: no interface of this machine has the address {ip}");
            (Errno::ENETDOWN, why)
        };
        let i = table.with_address(ip).ok_or_else(absent)?;
        let by_address = table.resolve(&i.name).is_none_or(|(_, first)| first != ip);
        let cpts = add.interfaces.first().and_then(|i| i.cpts.clone());
        found.push(Place { by_address, cpts, ..scene.place(None, i, ip) });
    }
    for interface in add.interfaces.iter().filter(|_| beside.is_none()) {
        let name = interface.name.as_str();
        let (i, ip) = table.resolve(name).ok_or_else(|| {
            let why = match table.named(name) {
                None => {
                    let near = nearest(name, table.iter().map(|i| i.name.as_str()));
                    let hint = near.map(|near| format!(": did you mean '{near}'?"));
                    format!("interface {name}: no such interface{}", hint.unwrap_or_default())
                }
                Some(_) => format!("interface {name}: it has no usable address"),
            };
            (Errno::ENETDOWN, why)
        })?;
        let place = scene.place(Some(name), i, scene.prefer.of(i, ip));
        found.push(Place { cpts: interface.cpts.clone(), ..place });
    }
    if found.is_empty() {
        let first = table.iter().filter(|i| i.up && !i.loopback).find_map(|i| {
            let v4 = i.addresses.iter().map(|a| a.ip).find(IpAddr::is_ipv4);
            v4.map(|ip| scene.place(None, i, scene.prefer.of(i, ip)))
        });
        let none = || (Errno::ENETDOWN, "no interface is up with an IPv4 address".to_owned());
        found.push(first.ok_or_else(none)?);
    }
    Ok(found)
}

fn add_one(
    node: &mut Running,
    sock: &SockDefaults,
    add: &NetAdd,
    tunables: NetTunables,
    place: &Place,
) -> Result<NiId, (Errno, String)> {
    let nid = Nid::from_ip(add.net, place.ip);
    let made = Made::new(nid, add, tunables, place);
    // Those of the interface before those of the net (C-netadd-2).
    let cpts = place.cpts.clone().or_else(|| add.cpts.clone()).map(BTreeSet::from_iter);
    if let Some(ib) = made.ib {
        let ni = lnet_rt::IbNi {
            interface: place.device.clone(),
            tunables,
            tos: made.tos,
            cpts,
            ..rdma::ni(nid, ib, made.conns_per_peer, &sock.ib)
        };
        let ni = node
            .handle
            .call(move |stack, _| stack.add_ib_ni(ni))
            .blocking()
            .map_err(|e| (e.errno(), e.to_string()))?
            .map_err(|e| (e.errno(), not_added(&e, nid, &node.nets)))?;
        node.nets.keep(ni, made, tunables);
        return Ok(ni);
    }
    let ni = TcpNi {
        interface: place.device.clone(),
        tunables,
        conns_per_peer: Some(made.conns_per_peer),
        tos: made.tos,
        timeout: sock.timeout(),
        cpts,
        namespace: place.namespace.clone(),
        ..TcpNi::new(nid)
    };
    let ni = node
        .handle
        .call(move |stack, _| stack.add_tcp_ni(ni))
        .blocking()
        .map_err(|e| (e.errno(), e.to_string()))?
        .map_err(|e| (e.errno(), not_added(&e, nid, &node.nets)))?;
    node.nets.keep(ni, made, tunables);
    Ok(ni)
}

/// What is wrong, and what an ordinary user does about a port that it may not listen on.
fn not_added(e: &NiError, nid: Nid, nets: &Nets) -> String {
    match e.errno() {
        Errno::EACCES if !rdma::is_rdma(nid) => {
            let why = format!(
                "{e}: ports below 1024 need CAP_NET_BIND_SERVICE; or start the daemon with --port \
                 PORT, 1024 or above, on all nodes"
            );
            tracing::warn!("{why}");
            why
        }
        Errno::EEXIST if nets.made.values().any(|made| made.nid == nid) => {
            format!("{nid}: is a NID of this node already")
        }
        Errno::EEXIST => format!(
            "{nid}: its device must be used once in a network, and is used in {} already",
            nid.net()
        ),
        _ => e.to_string(),
    }
}

/// Removes the interfaces of one request (C-netdel-1, C-netdel-2).
pub(crate) fn del(
    node: &mut Running,
    del: &NetDel,
    namespace: Option<&Namespace>,
) -> Result<(), AdminError> {
    let gone = meant(&node.nets, del, namespace, NOT_DELETED)?;
    gone.into_iter().try_for_each(|ni| remove(node, ni))
}

/// The texts of refusals: there is no such interface; there is none at all.
const NOT_DELETED: [&str; 2] = ["cannot del LNet NI", "cannot del network"];

/// The same in a copy of the node.
pub(crate) fn try_del(
    node: &mut Node,
    nets: &mut Nets,
    del: &NetDel,
    namespace: Option<&Namespace>,
    now: Instant,
) -> Result<(), AdminError> {
    let gone = meant(nets, del, namespace, NOT_DELETED)?;
    gone.into_iter().try_for_each(|ni| {
        nets.forget(ni);
        let gone = node.del_ni(now, ni);
        gone.map_err(|errno| AdminError::new(errno, NOT_DELETED[0]).because(errno))
    })
}

/// The interfaces that a request means: of two of the same name the one in the caller's network
/// namespace. The texts: there is no such one; there is none at all.
fn meant(
    nets: &Nets,
    del: &NetDel,
    namespace: Option<&Namespace>,
    [text, of_all]: [&'static str; 2],
) -> Result<Vec<NiId>, AdminError> {
    if del.net.kind == NetType::LO {
        return Err(AdminError::new(Errno::ENODEV, "setting @lo not allowed"));
    }
    let of_net: Vec<(NiId, Made)> = nets
        .made
        .iter()
        .filter(|(_, m)| m.nid.net() == del.net)
        .map(|(ni, m)| (*ni, m.clone()))
        .collect();
    let mut meant = Vec::new();
    if let Some(nid) = del.nid {
        let found = of_net.iter().find(|(_, m)| m.nid == nid);
        let (ni, _) = found.ok_or_else(|| {
            AdminError::new(Errno::ENOENT, text)
                .because(format_args!("{nid}: not one of this node's NIDs"))
        })?;
        meant.push(*ni);
    }
    if of_net.is_empty() {
        return Err(if del.interfaces.is_empty() {
            AdminError::new(Errno::EINVAL, of_all)
        } else {
            AdminError::new(Errno::ENODEV, "LNet net doesn't exist")
        }
        .because(format_args!("net {}: not configured", del.net)));
    }
    for name in &del.interfaces {
        let named = || of_net.iter().filter(|(_, m)| m.interface.as_ref() == Some(name));
        let near = named().find(|(_, m)| m.namespace.as_ref() == namespace);
        let found = near.or_else(|| named().next());
        let (ni, _) = found.ok_or_else(|| {
            AdminError::new(Errno::ENODEV, text)
                .because(format_args!("interface {name}: net {} has no NI on it", del.net))
        })?;
        // One that is named twice goes once.
        if !meant.contains(ni) {
            meant.push(*ni);
        }
    }
    if del.nid.is_none() && del.interfaces.is_empty() {
        meant = of_net.iter().map(|(ni, _)| *ni).collect();
    }
    Ok(meant)
}

fn remove(node: &mut Running, ni: NiId) -> Result<(), AdminError> {
    node.nets.forget(ni);
    node.handle
        .call(move |stack, _| stack.del_ni(ni))
        .blocking()
        .map_err(|e| stopped(&e))?
        .map_err(|errno| AdminError::new(errno, "cannot del LNet NI").because(errno))
}
