//! A daemon that answers with the state that a recorded output shows: the way back from text to
//! snapshots. What the output does not show is 0.

use std::time::Duration;

use lnet_admin::{
    AdminError, Ask, ClientError, Contact, Contacted, GlobalSnapshot, KindCounts, Latency,
    LndSnapshot, NetSnapshot, NetTunablesSnapshot, NiDetail, NiHealth, NiSnapshot, PeerNiCredits,
    PeerNiDetail, PeerNiHealth, PeerNiSnapshot, PeerNiState, PeerPage, PeerSnapshot, PoolSnapshot,
    RdmaPortSnapshot, Reply, Request, RoutePage, RouteSnapshot, RoutingSnapshot, RoutingState,
    StatsSnapshot, Traffic, UdspInfo,
};
use lnet_config::yaml::{self, Node, Value};
use lnet_config::{Setting, UdspRule, parse_cpts};
use lnet_types::{Errno, Nid};

use super::vector::Vector;

/// The stand-in.
pub(crate) struct Recorded {
    state: Option<Node>,
    /// The error of the recording, if it is one of the node's.
    refusal: Option<AdminError>,
    /// What it was asked.
    pub(crate) asked: Vec<Request>,
}

impl Recorded {
    /// The node that a recording was made on, as far as it shows.
    pub(crate) fn from(vector: &Vector) -> Self {
        let parse = |text: &str| yaml::parse(text).ok().and_then(|docs| docs.into_iter().next());
        // Tags are not read; the recordings have them only in front of texts.
        let state = parse(&vector.out.replace("! '", "'"));
        let refusal = parse(&vector.err.replace("! \"", "\"")).as_ref().and_then(refusal);
        Self { state, refusal, asked: Vec::new() }
    }
}

impl Ask for Recorded {
    fn ask_within(&mut self, request: &Request, _: Duration) -> Result<Reply, ClientError> {
        self.asked.push(request.clone());
        if let Some(refusal) = &self.refusal {
            // A node that is not configured tells its tunables all the same.
            if *request == Request::GlobalShow {
                return Ok(Reply::Global(GlobalSnapshot::default()));
            }
            return Err(refusal.clone().into());
        }
        let state = self.state.as_ref();
        let at = |key| state.and_then(|s| get(s, key));
        Ok(match request {
            Request::NetShow { .. } => Reply::Nets(at("net").map(nets).unwrap_or_default()),
            Request::PeerShow { .. } => {
                let peers = at("peer").map(peers).unwrap_or_default();
                Reply::Peers(PeerPage { peers, next: None })
            }
            Request::RouteShow { .. } => {
                let routes = at("route").map(routes).unwrap_or_default();
                Reply::Routes(RoutePage { routes, next: None })
            }
            Request::RoutingShow => Reply::Routing(routing(at("routing"), at("buffers"))),
            Request::GlobalShow => Reply::Global(global(at("global"))),
            Request::StatsShow => Reply::Stats(stats(at("statistics"))),
            Request::UdspShow => Reply::Udsp(at("udsp").map(rules).unwrap_or_default()),
            Request::FaultShow(_) => Reply::Faults(Vec::new()),
            Request::RecoveryShow { peers } => {
                let key = if *peers { "Peer NI recovery" } else { "Local NI recovery" };
                Reply::Nids(at(key).map(values).unwrap_or_default())
            }
            Request::Ping(ping) => Reply::Contacted(contacted(state, "ping", &ping.nids)),
            Request::Discover(d) => Reply::Contacted(contacted(state, "discover", &d.nids)),
            _ => Reply::Done,
        })
    }
}

/// The node's error that a document shows: its own words are inside those of the tool.
fn refusal(document: &Node) -> Option<AdminError> {
    let Value::Map(entries) = &document.value else { return None };
    let item = items(&entries.first()?.1).first()?;
    let inner = match &item.value {
        Value::Map(entries) if entries.len() == 1 => &entries[0].1,
        _ => item,
    };
    let descr = text(get(inner, "descr")?).trim_matches('"').to_owned();
    let own = descr.rsplit_once(": ").map_or_else(|| descr.clone(), |(_, own)| own.to_owned());
    // Parameter files report that they were refused; the node said why.
    let errno = match number(get(inner, "errno")?) {
        -61 => Errno::EINVAL,
        n => Errno(i32::try_from(n.abs()).ok()?),
    };
    // Text that the kernel lost; ours is there.
    if own == "Unspecific failure" {
        return Some(AdminError::errno(errno));
    }
    Some(AdminError::new(errno, own))
}

fn get<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, v)| v),
        _ => None,
    }
}

fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        _ => &[],
    }
}

fn text(node: &Node) -> &str {
    match &node.value {
        Value::Text(text) => text,
        _ => "",
    }
}

fn number(node: &Node) -> i64 {
    text(node).parse().unwrap_or_else(|_| panic!("{node:?} is no number"))
}

/// A number below a node, 0 if it is not shown.
fn n<T: TryFrom<i64>>(node: Option<&Node>, key: &str) -> T {
    let value = node.and_then(|node| get(node, key)).map_or(0, number);
    T::try_from(value).unwrap_or_else(|_| panic!("{key}: {value}"))
}

fn nid(node: &Node, key: &str) -> Nid {
    text(get(node, key).expect("recorded")).parse().expect("recorded")
}

fn nets(node: &Node) -> Vec<NetSnapshot> {
    let net = |item: &Node| NetSnapshot {
        sum: None,
        accept_from: Vec::new(),
        refused: Vec::new(),
        net: text(get(item, "net type").expect("recorded")).parse().expect("recorded"),
        nis: get(item, "local NI(s)")
            .map(|nis| items(nis).iter().map(ni).collect())
            .expect("recorded"),
    };
    items(node).iter().map(net).collect()
}

fn ni(item: &Node) -> NiSnapshot {
    let interface = get(item, "interfaces").and_then(|i| get(i, "0")).map(|i| text(i).to_owned());
    let detail = get(item, "tunables").map(|tunables| {
        let t = Some(tunables);
        let health = get(item, "health stats");
        let cpts = get(item, "CPT")
            .map(|cpts| parse_cpts(text(cpts)).expect("recorded").expect("recorded"));
        Box::new(NiDetail {
            more: Default::default(),
            traffic: traffic(item),
            udsp: udsp(item),
            health: NiHealth {
                fatal_error: n::<i64>(health, "fatal_error") == 1,
                value: n(health, "health value"),
                interrupts: n(health, "interrupts"),
                dropped: n(health, "dropped"),
                aborted: n(health, "aborted"),
                no_route: n(health, "no route"),
                timeouts: n(health, "timeouts"),
                error: n(health, "error"),
                ping_count: n(health, "ping_count"),
                next_ping_s: n(health, "next_ping"),
            },
            tunables: NetTunablesSnapshot {
                peer_timeout_s: n(t, "peer_timeout"),
                peer_credits: n(t, "peer_credits"),
                peer_buffer_credits: n(t, "peer_buffer_credits"),
                credits: n(t, "credits"),
            },
            lnd: get(item, "lnd tunables").filter(|lnd| lnd.value != Value::Null).map(|lnd| {
                let conns_per_peer = n(Some(lnd), "conns_per_peer");
                let (timeout_s, tos) = (n(Some(lnd), "timeout"), n(Some(lnd), "tos"));
                match get(lnd, "peercredits_hiw") {
                    Some(_) => LndSnapshot::O2ib {
                        peercredits_hiw: n(Some(lnd), "peercredits_hiw"),
                        concurrent_sends: n(Some(lnd), "concurrent_sends"),
                        conns_per_peer,
                        timeout_s,
                        tos,
                        port: RdmaPortSnapshot::default(),
                    },
                    None => LndSnapshot::Sock { conns_per_peer, timeout_s, tos },
                }
            }),
            dev_cpt: n(Some(item), "dev cpt"),
            cpts: cpts.unwrap_or_default(),
        })
    });
    // A backup does not show NIDs; any short one will do.
    let nid = get(item, "nid").map_or("10.77.0.2@tcp", text).parse().expect("recorded");
    NiSnapshot { nid, up: get(item, "status").is_none_or(|s| text(s) == "up"), interface, detail }
}

fn traffic(item: &Node) -> Traffic {
    let statistics = get(item, "statistics");
    let kinds = |key: &str, sum: &str| match get(item, key) {
        Some(kinds) => {
            let k = Some(kinds);
            KindCounts {
                put: n(k, "put"),
                get: n(k, "get"),
                reply: n(k, "reply"),
                ack: n(k, "ack"),
                hello: n(k, "hello"),
            }
        }
        // Below level 2 only the sum is shown.
        None => KindCounts { get: n(statistics, sum), ..KindCounts::default() },
    };
    let latency = |key: &str| Latency {
        samples: n(statistics, &format!("{key}_samples")),
        min_nsec: n(statistics, &format!("{key}_min_nsec")),
        max_nsec: n(statistics, &format!("{key}_max_nsec")),
        avg_nsec: n(statistics, &format!("{key}_avg_nsec")),
        sum_nsec: 0,
    };
    Traffic {
        sent: kinds("sent_stats", "send_count"),
        received: kinds("received_stats", "recv_count"),
        dropped: kinds("dropped_stats", "drop_count"),
        put_egress: latency("put_egress"),
        get_rtt: latency("get_rtt"),
        put_ack: latency("put_ack"),
    }
}

fn udsp(item: &Node) -> UdspInfo {
    let info = get(item, "udsp info");
    let priority = |key| info.map(|_| n::<i64>(info, key)).and_then(|p| u32::try_from(p).ok());
    UdspInfo { net_priority: priority("net priority"), nid_priority: priority("nid priority") }
}

fn peers(node: &Node) -> Vec<PeerSnapshot> {
    let peer = |item: &Node| PeerSnapshot {
        own: false,
        sum: None,
        primary: nid(item, "primary nid"),
        multi_rail: text(get(item, "Multi-Rail").expect("recorded")).eq_ignore_ascii_case("true"),
        state: n(Some(item), "peer state"),
        nis: items(get(item, "peer ni").expect("recorded")).iter().map(peer_ni).collect(),
    };
    items(node).iter().map(peer).collect()
}

fn peer_ni(item: &Node) -> PeerNiSnapshot {
    let all = Some(item);
    let detail = get(item, "statistics").map(|_| {
        let health = get(item, "health stats");
        Box::new(PeerNiDetail {
            bytes: (0, 0),
            local: true,
            reported_down: false,
            usage: Default::default(),
            last_received_ms: None,
            udsp: udsp(item),
            credits: PeerNiCredits {
                tx_max: n(all, "max_ni_tx_credits"),
                tx_available: n(all, "available_tx_credits"),
                tx_min: n(all, "min_tx_credits"),
                tx_queue_bytes: n(all, "tx_q_num_of_buf"),
                rtr_available: n(all, "available_rtr_credits"),
                rtr_min: n(all, "min_rtr_credits"),
            },
            refcount: n(all, "refcount"),
            traffic: traffic(item),
            health: PeerNiHealth {
                value: n(health, "health value"),
                dropped: n(health, "dropped"),
                timeout: n(health, "timeout"),
                error: n(health, "error"),
                network_timeout: n(health, "network timeout"),
                ping_count: n(health, "ping_count"),
                next_ping_s: n(health, "next_ping"),
            },
        })
    });
    let state = match get(item, "state").map_or("NA", text) {
        "up" => PeerNiState::Up,
        "down" => PeerNiState::Down,
        _ => PeerNiState::NotWatched,
    };
    PeerNiSnapshot { nid: nid(item, "nid"), state, detail }
}

/// The NIDs behind the keys of a map.
fn values(node: &Node) -> Vec<Nid> {
    let Value::Map(entries) = &node.value else { return Vec::new() };
    entries.iter().map(|(_, nid)| text(nid).parse().expect("recorded")).collect()
}

fn rules(node: &Node) -> Vec<UdspRule> {
    let pattern = |item: &Node, key| get(item, key).map(|p| text(p).to_owned());
    let rule = |item: &Node| UdspRule {
        src: pattern(item, "src"),
        dst: pattern(item, "dst"),
        rte: pattern(item, "rte"),
        priority: get(item, "action").map(|action| n(Some(action), "priority")),
        messages: None,
    };
    items(node).iter().map(rule).collect()
}

fn routes(node: &Node) -> Vec<RouteSnapshot> {
    let word = |item: &Node, key: &str, word: &str| get(item, key).is_some_and(|v| text(v) == word);
    let route = |item: &Node| RouteSnapshot {
        net: text(get(item, "net").expect("recorded")).parse().expect("recorded"),
        gateway: nid(item, "gateway"),
        hops: get(item, "hop").and_then(|hop| u32::try_from(number(hop)).ok()),
        priority: n(Some(item), "priority"),
        up: word(item, "state", "up"),
        single_hop: word(item, "type", "single-hop"),
    };
    items(node).iter().map(route).collect()
}

fn routing(routing: Option<&Node>, buffers: Option<&Node>) -> RoutingSnapshot {
    let Some(routing) = routing else { return RoutingSnapshot::default() };
    let items = items(routing);
    let enable = items.iter().find_map(|item| get(item, "enable")).map(number);
    let cpt = items.iter().find_map(|item| get(item, "cpt[0]"));
    let names = ["tiny", "small", "large"];
    RoutingSnapshot {
        state: match enable.expect("recorded") {
            1 => RoutingState::Enabled,
            2 => RoutingState::Stopping,
            3 => RoutingState::Starting,
            other => panic!("state {other}"),
        },
        pools: names.map(|name| {
            let pool = cpt.and_then(|cpt| get(cpt, name));
            PoolSnapshot {
                npages: n(pool, "npages"),
                nbuffers: n(pool, "nbuffers"),
                credits: n(pool, "credits"),
                mincredits: n(pool, "mincredits"),
            }
        }),
        wanted: names.map(|name| n(buffers, name)),
        was_on: true,
    }
}

fn global(node: Option<&Node>) -> GlobalSnapshot {
    let Some(Node { value: Value::Map(entries), .. }) = node else {
        return GlobalSnapshot::default();
    };
    let tunables = entries.iter().filter(|(key, _)| key.text != "lnd_timeout");
    GlobalSnapshot {
        configured: true,
        tunables: tunables.map(|(key, v)| Setting::new(key.text.as_str(), number(v))).collect(),
        changed: Vec::new(),
        lnd_timeout_ms: n::<u64>(node, "lnd_timeout") * 1000,
        profile: "kernel".to_owned(),
    }
}

fn stats(node: Option<&Node>) -> StatsSnapshot {
    let Some(Node { value: Value::Map(entries), .. }) = node else {
        return StatsSnapshot::default();
    };
    let rows = entries.iter().map(|(key, v)| (key.text.as_str(), number(v).unsigned_abs()));
    StatsSnapshot::from_rows(rows).expect("recorded")
}

/// Answers come in the order of the NIDs; failures name theirs.
fn contacted(state: Option<&Node>, verb: &str, nids: &[Nid]) -> Vec<Contacted> {
    let list = |key| state.and_then(|s| get(s, key)).map_or(&[] as &[Node], items);
    let mut answers = list(verb).iter();
    let failure = |wanted: &Nid| {
        list("manage").iter().find_map(|item| {
            let (_, rest) = text(get(item, "descr")?).split_once(&format!("failed to {verb} "))?;
            let (nid, why) = rest.split_once(": ")?;
            let errno = Errno(i32::try_from(-number(get(item, "errno")?)).ok()?);
            (nid == wanted.to_string()).then(|| AdminError::new(errno, why))
        })
    };
    let outcome = |nid: &Nid| match failure(nid) {
        Some(error) => Err(error),
        None => answers.next().map_or_else(
            || Err(AdminError::errno(Errno::EIO)),
            |item| {
                let nids =
                    items(get(item, "peer_ni").or_else(|| get(item, "peer ni")).expect("recorded"));
                Ok(Contact {
                    primary: self::nid(item, "primary nid"),
                    multi_rail: text(get(item, "Multi-Rail").expect("recorded"))
                        .eq_ignore_ascii_case("true"),
                    pid: 12345,
                    nids: nids.iter().map(|n| self::nid(n, "nid")).collect(),
                })
            },
        ),
    };
    let mut outcome = outcome;
    nids.iter().map(|nid| Contacted { nid: *nid, outcome: outcome(nid) }).collect()
}
