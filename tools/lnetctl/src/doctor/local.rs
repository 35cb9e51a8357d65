//! This node: what its daemon says, and what its system is set to. The system is asked through
//! `/proc`, `/sys` and `ip` in the namespace that the tool runs in, so run it where the daemon runs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

use lnet_admin::{
    ClientError, LndSnapshot, PeerFlags, PeerNiSnapshot, PeerSnapshot, Ping, RailSnapshot, Reply,
    Request, RouteSnapshot, RoutingState,
};
use lnet_config::{GLOBAL_KEYS, Tree, parse_number};
use lnet_types::Nid;
use serde_json::Value;

use super::site::{Device, Ni, Node, Peer, PeerNi, Route, Rpc, RpcEviction, RpcImport, RpcService};
use crate::Session;
use crate::show::net::rdma_port;

/// How long each NID of a peer may take to answer, milliseconds.
const PING_MS: u64 = 5_000;

/// What the daemon says.
pub(super) fn node(session: &mut Session<'_>) -> Result<Node, ClientError> {
    let mut node = Node { name: name(), is_named: true, ..Node::default() };
    let Reply::Status(status) = session.ask(&Request::Status)? else {
        return Err(ClientError::Unexpected);
    };
    node.incarnation = (status.incarnation != 0).then_some(status.incarnation);
    node.saved_s = now_s();
    let Reply::Nets(nets) = session.ask(&Request::NetShow { net: None, detail: true })? else {
        return Err(ClientError::Unexpected);
    };
    node.nis = nets
        .iter()
        .flat_map(|net| &net.nis)
        .map(|ni| {
            let detail = ni.detail.as_deref();
            let timeout_s = match detail.and_then(|d| d.lnd.as_ref()) {
                Some(LndSnapshot::Sock { timeout_s, .. } | LndSnapshot::O2ib { timeout_s, .. }) => {
                    *timeout_s
                }
                None => 0,
            };
            Ni {
                nid: ni.nid,
                device: ni.interface.clone(),
                up: ni.up,
                health: detail.map(|d| d.health.value.into()),
                pings: detail.map(|d| d.health.ping_count.into()),
                is_flapping: detail.is_some_and(|d| d.more.usage.flapping),
                peer_credits: detail.map(|d| d.tunables.peer_credits.into()),
                peer_timeout_s: detail.map(|d| d.tunables.peer_timeout_s.into()),
                timeout_s: Some(timeout_s.into()),
                rdma: match detail.and_then(|d| d.lnd.as_ref()) {
                    Some(LndSnapshot::O2ib { port, .. }) => Some(*port),
                    _ => None,
                },
            }
        })
        .collect();
    let Reply::Global(global) = session.ask(&Request::GlobalShow)? else {
        return Err(ClientError::Unexpected);
    };
    node.tunables = global.tunables.iter().map(|t| (t.name.clone(), t.value)).collect();
    // Whole seconds, as `global show` has it.
    let lnd_timeout = i64::try_from(global.lnd_timeout_ms.div_ceil(1000)).unwrap_or(i64::MAX);
    node.tunables.insert("lnd_timeout".to_owned(), lnd_timeout);
    let routes = session.daemon.routes()?;
    let route = |r: &RouteSnapshot| Route { net: r.net, gateway: r.gateway, up: Some(r.up) };
    node.routes = Some(routes.iter().map(route).collect());
    let Reply::Routing(routing) = session.ask(&Request::RoutingShow)? else {
        return Err(ClientError::Unexpected);
    };
    node.forwards = Some(routing.state != RoutingState::Disabled);
    node.peers = session.daemon.peers(None, true)?.iter().map(peer_of).collect();
    if let Reply::Rails(rails) = session.ask(&Request::RailsShow)? {
        node.suspects = rails;
    }
    let by_kernel_rules = matches!(&*global.profile, "kernel" | "pre-2.13");
    node.rpc = rpc(session, by_kernel_rules)?;
    Ok(node)
}

fn peer_of(peer: &PeerSnapshot) -> Peer {
    let ni = |ni: &PeerNiSnapshot| {
        let detail = ni.detail.as_deref().copied().unwrap_or_default();
        PeerNi {
            nid: ni.nid,
            is_down: ni.is_down(),
            sent: detail.traffic.sent.sum().into(),
            received: detail.traffic.received.sum().into(),
            health: ni.detail.as_ref().map(|d| d.health.value.into()),
            pings: detail.health.ping_count.into(),
            is_flapping: detail.usage.flapping,
        }
    };
    Peer {
        primary: peer.primary,
        flags: PeerFlags(peer.state),
        nis: peer.nis.iter().map(ni).collect(),
    }
}

/// The request layer; `None` from a daemon that has none.
fn rpc(session: &mut Session<'_>, by_kernel_rules: bool) -> Result<Option<Rpc>, ClientError> {
    let mut rpc = Rpc { by_kernel_rules, ..Rpc::default() };
    for name in Rpc::TUNABLES {
        match session.ask(&Request::ParamGet { name: name.to_owned() }) {
            Ok(Reply::Texts(texts)) => {
                let number = texts.first().and_then(|text| parse_number(text.trim()));
                rpc.tunables.extend(number.map(|number| (name.to_owned(), number)));
            }
            Ok(_) => return Err(ClientError::Unexpected),
            Err(ClientError::Refused(_)) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
    // The first page is of the oldest: more than that many broken ones say nothing new. Without LNet
    // there are none.
    let mut see = |request| match session.ask(&request) {
        Ok(reply) => Ok(Some(reply)),
        Err(ClientError::Refused(_)) => Ok(None),
        Err(e) => Err(e),
    };
    let seconds = |ms: u64| i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    if let Some(Reply::Imports(page)) = see(Request::ImportShow { from: None })? {
        rpc.imports.extend(page.imports.iter().map(|import| RpcImport {
            target: import.target.clone(),
            state: import.state.clone(),
            for_s: import.history.last().map_or(0, |(ago, _)| seconds(*ago)),
            truncated: import.truncated.try_into().unwrap_or(i64::MAX),
        }));
    }
    if let Some(Reply::Services(services)) = see(Request::ServiceShow)? {
        rpc.services.extend(services.iter().map(|service| RpcService {
            name: service.name.clone(),
            posted: service.posted.into(),
            buffers: service.buffers.into(),
            behind_ago_s: service.behind_ms_ago.map(seconds),
            unhealthy: service.unhealthy_in_ms == Some(0),
        }));
    }
    if let Some(Reply::Exports(page)) = see(Request::ExportShow { from: None })? {
        rpc.evictions.extend(page.evicted.iter().map(|eviction| RpcEviction {
            target: eviction.target.clone(),
            client: eviction.client.clone(),
            reason: eviction.reason.clone(),
            ago_s: seconds(eviction.ms_ago),
        }));
    }
    rpc.in_use = !rpc.imports.is_empty() || !rpc.services.is_empty();
    Ok(Some(rpc))
}

/// Counters of losses, by their names; those of connections refused by address.
pub(super) fn losses(session: &mut Session<'_>) -> Result<BTreeMap<String, u64>, ClientError> {
    let mut all = BTreeMap::new();
    if let Reply::Stats(stats) = session.ask(&Request::StatsShow)? {
        let lost = |name: &str| LOSSES.contains(&name);
        all.extend(
            stats.rows().into_iter().filter(|(n, _)| lost(n)).map(|(n, v)| (n.to_owned(), v)),
        );
    }
    if let Reply::Nets(nets) = session.ask(&Request::NetShow { net: None, detail: true })? {
        for refused in nets.iter().flat_map(|net| &net.refused) {
            *all.entry(format!("connections refused to {}: {}", refused.addr, refused.why))
                .or_default() += refused.count;
        }
    }
    Ok(all)
}

/// The counters of `stats show` that count losses.
const LOSSES: [&str; 9] = [
    "errors",
    "drop_count",
    "response_timeout_count",
    "local_dropped_count",
    "local_no_route_count",
    "local_timeout_count",
    "remote_dropped_count",
    "remote_timeout_count",
    "network_timeout_count",
];

/// The peers that were configured and never tried, pinged: those that do not answer.
pub(super) fn untried(session: &mut Session<'_>, node: &Node) -> Result<Vec<Nid>, ClientError> {
    /// Most peers that are pinged.
    const PINGS_MAX: usize = 32;
    let untried = |p: &&Peer| p.is_configured() && !p.has_answered() && !p.was_tried();
    let nids: Vec<Nid> =
        node.peers.iter().filter(untried).map(|p| p.primary).take(PINGS_MAX).collect();
    if nids.is_empty() {
        return Ok(nids);
    }
    let answers = ping(session, nids)?;
    Ok(answers.into_iter().filter(|(_, c)| c.is_none()).map(|(nid, _)| nid).collect())
}

/// Seconds since 1970.
pub(super) fn now_s() -> Option<i64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// A peer that is there, with what it says of itself; each of its NIDs is tried.
pub(super) fn peer(session: &mut Session<'_>, nid: Nid) -> Result<(Node, Vec<Nid>), ClientError> {
    let contacted = ping(session, vec![nid])?;
    let Some(contact) = contacted.into_iter().next().and_then(|(_, contact)| contact) else {
        let node = Node { name: nid.to_string(), ..Node::default() };
        return Ok((node, vec![nid]));
    };
    let nids = contact.nids;
    let mut node = Node { name: contact.primary.to_string(), ..Node::default() };
    node.nis = nids.iter().map(|nid| bare(*nid)).collect();
    let answers = ping(session, nids)?;
    let silent = answers.into_iter().filter(|(_, c)| c.is_none()).map(|(nid, _)| nid).collect();
    Ok((node, silent))
}

const fn bare(nid: Nid) -> Ni {
    Ni {
        nid,
        device: None,
        up: true,
        health: None,
        pings: None,
        is_flapping: false,
        peer_credits: None,
        peer_timeout_s: None,
        timeout_s: None,
        rdma: None,
    }
}

fn ping(
    session: &mut Session<'_>,
    nids: Vec<Nid>,
) -> Result<Vec<(Nid, Option<lnet_admin::Contact>)>, ClientError> {
    let request = Request::Ping(Ping { nids, timeout_ms: Some(PING_MS), source: None });
    match session.ask(&request)? {
        Reply::Contacted(all) => Ok(all.into_iter().map(|c| (c.nid, c.outcome.ok())).collect()),
        _ => Err(ClientError::Unexpected),
    }
}

/// The name of this host.
fn name() -> String {
    lnet_admin::host_name().unwrap_or_else(|| "this node".to_owned())
}

/// The settings of this system, and what could not be found out.
pub(super) fn devices() -> (BTreeMap<String, Device>, Vec<String>) {
    let (mut devices, mut missing) = (BTreeMap::new(), Vec::new());
    match ip(&["-j", "address", "show"]) {
        Ok(links) => {
            for link in links {
                if let Some((name, device)) = device(&link) {
                    devices.insert(name, device);
                }
            }
        }
        Err(why) => missing.push(format!("addresses, MTUs and subnets: {why}")),
    }
    let mut routed: Vec<IpAddr> = Vec::new();
    for family in ["-4", "-6"] {
        match ip(&["-j", family, "rule", "show"]) {
            Ok(rules) => {
                let sources =
                    rules.iter().filter_map(|rule| rule["src"].as_str()?.parse::<IpAddr>().ok());
                routed.extend(sources);
            }
            Err(why) => missing.push(format!("source routing ({family}): {why}")),
        }
    }
    for device in devices.values_mut() {
        let own = device.addresses.iter().map(|(ip, _)| *ip);
        device.source_routed = own.filter(|ip| routed.contains(ip)).collect();
    }
    (devices, missing)
}

fn ip(args: &[&str]) -> Result<Vec<Value>, String> {
    let output = Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("ip {}: {why}", args.join(" ")));
    }
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("ip {}: {e}", args.join(" ")))
}

fn device(link: &Value) -> Option<(String, Device)> {
    let name = link["ifname"].as_str()?.to_owned();
    let addresses = link["addr_info"].as_array().into_iter().flatten().filter_map(|a| {
        let prefix = u8::try_from(a["prefixlen"].as_u64()?).ok()?;
        Some((a["local"].as_str()?.parse().ok()?, prefix))
    });
    let device = Device {
        mtu: link["mtu"].as_i64(),
        addresses: addresses.collect(),
        rp_filter: conf(&name, "rp_filter"),
        arp_ignore: conf(&name, "arp_ignore"),
        arp_announce: conf(&name, "arp_announce"),
        source_routed: Vec::new(),
    };
    Some((name, device))
}

/// A setting of a device: the larger of its own and that of all, which is what is in force.
fn conf(device: &str, key: &str) -> Option<i64> {
    let read = |which: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{which}/{key}");
        std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok()
    };
    read(device).max(read("all"))
}

/// What `read.rs` reads back.
pub(super) fn document(node: &Node) -> Tree {
    let nis = node.nis.iter().map(|ni| {
        let mut rows = vec![
            ("nid", Tree::plain(ni.nid)),
            ("status", Tree::plain(if ni.up { "up" } else { "down" })),
        ];
        rows.extend(ni.device.as_ref().map(|d| ("interfaces", Tree::map([("0", Tree::plain(d))]))));
        let within = |key, value: Option<i64>| value.map(|v| Tree::map([(key, Tree::plain(v))]));
        let health = [("health value", ni.health), ("ping_count", ni.pings)];
        let health: Vec<_> =
            health.into_iter().filter_map(|(key, v)| Some((key, Tree::plain(v?)))).collect();
        rows.extend((!health.is_empty()).then(|| ("health stats", Tree::map(health))));
        rows.extend(ours(ni));
        let of_net = [("peer_timeout", ni.peer_timeout_s), ("peer_credits", ni.peer_credits)];
        let of_net: Vec<_> =
            of_net.into_iter().filter_map(|(key, v)| Some((key, Tree::plain(v?)))).collect();
        rows.extend((!of_net.is_empty()).then(|| ("tunables", Tree::map(of_net))));
        rows.extend(within("timeout", ni.timeout_s).map(|t| ("lnd tunables", t)));
        let nis = Tree::List(vec![Tree::map(rows)]);
        Tree::map([("net type", Tree::plain(ni.nid.net())), ("local NI(s)", nis)])
    });
    let routes = node.routes.iter().flatten().map(|r| {
        let state = r.up.map(|up| ("state", Tree::plain(if up { "up" } else { "down" })));
        let places = [("net", Tree::plain(r.net)), ("gateway", Tree::plain(r.gateway))];
        Tree::map(places.into_iter().chain(state))
    });
    let beside = [
        "lnd_timeout",
        "router_ping_timeout",
        "alive_router_check_interval",
        "live_router_check_interval",
        "dead_router_check_interval",
    ];
    let shared = GLOBAL_KEYS.into_iter().chain(beside);
    let tunables = shared.filter_map(|name| Some((name, Tree::plain(node.tunable(name)?))));
    let devices = node.devices.iter().map(|(name, d)| {
        let words = |all: Vec<String>| Tree::Quoted(all.join(" "));
        let mut rows = vec![("device", Tree::plain(name))];
        let numbers = [
            ("mtu", d.mtu),
            ("rp_filter", d.rp_filter),
            ("arp_ignore", d.arp_ignore),
            ("arp_announce", d.arp_announce),
        ];
        rows.extend(numbers.into_iter().filter_map(|(key, v)| Some((key, Tree::plain(v?)))));
        let addresses = d.addresses.iter().map(|(ip, n)| format!("{ip}/{n}")).collect();
        rows.push(("addresses", words(addresses)));
        let routed = d.source_routed.iter().map(IpAddr::to_string).collect();
        rows.push(("source routed", words(routed)));
        Tree::map(rows)
    });
    let mut blocks = vec![
        ("node", Tree::plain(&node.name)),
        ("saved", Tree::plain(node.saved_s.unwrap_or(0))),
        ("incarnation", Tree::plain(node.incarnation.unwrap_or(0))),
        ("net", Tree::List(nis.collect())),
        ("global", Tree::map(tunables)),
    ];
    let enable = i32::from(node.forwards == Some(true));
    let routing = vec![Tree::map([("enable", Tree::plain(enable))])];
    blocks.push(("routing", Tree::List(routing)));
    let routes: Vec<Tree> = routes.collect();
    if !routes.is_empty() {
        blocks.push(("route", Tree::List(routes)));
    }
    let peers: Vec<Tree> = node.peers.iter().map(peer_document).collect();
    if !peers.is_empty() {
        blocks.push(("peer", Tree::List(peers)));
    }
    blocks.extend(node.rpc.as_ref().map(|rpc| ("rpc", rpc_document(rpc))));
    let suspect = |s: &RailSnapshot| {
        Tree::map([
            ("local", Tree::plain(s.local)),
            ("peer", Tree::plain(s.peer)),
            ("doubt", Tree::plain(&s.doubt)),
            ("for_ms", Tree::plain(s.for_ms)),
        ])
    };
    let suspects: Vec<Tree> = node.suspects.iter().map(suspect).collect();
    if !suspects.is_empty() {
        blocks.push(("suspects", Tree::List(suspects)));
    }
    let rising = node.rising.iter().map(|(name, n)| {
        Tree::map([("counter", Tree::Quoted(name.clone())), ("by", Tree::plain(n))])
    });
    let rising: Vec<Tree> = rising.collect();
    if !rising.is_empty() {
        blocks.push(("rising", Tree::List(rising)));
    }
    let devices: Vec<Tree> = devices.collect();
    if !devices.is_empty() {
        blocks.push(("system", Tree::List(devices)));
    }
    Tree::map(blocks)
}

fn rpc_document(rpc: &Rpc) -> Tree {
    let flag = |set: bool| Tree::plain(i32::from(set));
    let imports = rpc.imports.iter().map(|import| {
        Tree::map([
            ("target", Tree::Quoted(import.target.clone())),
            ("state", Tree::plain(&import.state)),
            ("for", Tree::plain(import.for_s)),
            ("truncated", Tree::plain(import.truncated)),
        ])
    });
    let services = rpc.services.iter().map(|service| {
        let mut rows = vec![
            ("name", Tree::Quoted(service.name.clone())),
            ("posted", Tree::plain(service.posted)),
            ("buffers", Tree::plain(service.buffers)),
            ("unhealthy", flag(service.unhealthy)),
        ];
        rows.extend(service.behind_ago_s.map(|ago| ("behind_ago", Tree::plain(ago))));
        Tree::map(rows)
    });
    let evictions = rpc.evictions.iter().map(|eviction| {
        Tree::map([
            ("target", Tree::Quoted(eviction.target.clone())),
            ("client", Tree::Quoted(eviction.client.clone())),
            ("reason", Tree::Quoted(eviction.reason.clone())),
            ("ago", Tree::plain(eviction.ago_s)),
        ])
    });
    let tunables = rpc.tunables.iter().map(|(name, value)| (name.clone(), Tree::plain(value)));
    let mut rows = vec![
        ("in_use".to_owned(), flag(rpc.in_use)),
        ("by_kernel_rules".to_owned(), flag(rpc.by_kernel_rules)),
        ("tunables".to_owned(), Tree::Map(tunables.collect())),
    ];
    let lists: [(&str, Vec<Tree>); 3] = [
        ("imports", imports.collect()),
        ("services", services.collect()),
        ("evictions", evictions.collect()),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    rows.extend(lists.map(|(key, list)| (key.to_owned(), Tree::List(list))));
    Tree::Map(rows)
}

/// What a backup of kernel tools has no place for stands below `ulnet`, as in `net show -v 5`.
fn flapping() -> (&'static str, Tree) {
    ("ulnet", Tree::map([("flapping", Tree::plain(1))]))
}

/// The same of a local interface.
fn ours(ni: &Ni) -> Option<(&'static str, Tree)> {
    let mut rows = Vec::new();
    rows.extend(ni.is_flapping.then(|| ("flapping", Tree::plain(1))));
    rows.extend(ni.rdma.as_ref().map(|port| ("rdma", rdma_port(port))));
    (!rows.is_empty()).then(|| ("ulnet", Tree::map(rows)))
}

fn peer_document(peer: &Peer) -> Tree {
    let ni = |ni: &PeerNi| {
        let state = if ni.is_down { "down" } else { "NA" };
        let mut rows = vec![
            ("nid", Tree::plain(ni.nid)),
            ("state", Tree::plain(state)),
            (
                "statistics",
                Tree::map([
                    ("send_count", Tree::plain(ni.sent)),
                    ("recv_count", Tree::plain(ni.received)),
                ]),
            ),
        ];
        rows.extend(ni.is_flapping.then(flapping));
        rows.extend(ni.health.map(|health| {
            let pings = ("ping_count", Tree::plain(ni.pings));
            ("health stats", Tree::map([("health value", Tree::plain(health)), pings]))
        }));
        Tree::map(rows)
    };
    Tree::map([
        ("primary nid", Tree::plain(peer.primary)),
        ("peer state", Tree::plain(peer.flags.0)),
        ("peer ni", Tree::List(peer.nis.iter().map(ni).collect())),
    ])
}
