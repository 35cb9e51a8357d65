//! `/status.json`: what the page shows, as one document. The page is its only reader that is
//! promised anything; scripts have the control socket and `/metrics`.

use std::collections::BTreeSet;

use lnet_admin::{
    EvictionSnapshot, ExportSnapshot, FaultAction, FaultSnapshot, ImportSnapshot, NetSnapshot,
    NiSnapshot, POOL_NAMES, PeerNiSnapshot, PeerSnapshot, RailSnapshot, RoutingState,
    ServiceSnapshot, TargetSnapshot,
};
use lnet_types::Nid;
use serde::Serialize;

use super::history::{History, SLOT_SECONDS, Traffic};
use crate::picture::{NodePicture, Picture, RpcPicture, Side};

/// Peer interfaces in one document; those in the worst health come first.
const PEER_NIS_SHOWN: usize = 256;

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    /// The name of the host.
    host: String,
    pid: u32,
    profile: &'a str,
    configured: bool,
    slot_seconds: u64,
    refused: u64,
    /// Requests of the control socket, and clients, that had not the right.
    control_refused: u64,
    lnd_timeout_s: f64,
    node: Option<Node<'a>>,
    /// The request layer, if it is in use: rows as the control protocol has them.
    rpc: Option<Rpc<'a>>,
}

/// Of imports and exports some: imports that are not in use, exports with requests in work first.
#[derive(Serialize)]
struct Rpc<'a> {
    targets: &'a [TargetSnapshot],
    imports: &'a [ImportSnapshot],
    import_count: usize,
    exports: &'a [ExportSnapshot],
    export_count: usize,
    services: &'a [ServiceSnapshot],
    /// The last ones first.
    evictions: Vec<&'a EvictionSnapshot>,
    resent: u64,
    served: u64,
    evicted: u64,
}

#[derive(Serialize)]
struct Node<'a> {
    /// Seconds on the node's clock.
    now: f64,
    nets: Vec<Net>,
    peers: Vec<Peer>,
    peer_count: usize,
    peer_ni_count: usize,
    peer_ni_shown: usize,
    routes: Vec<Route>,
    forwards: bool,
    pools: Vec<Pool>,
    stats: serde_json::Map<String, serde_json::Value>,
    drops: serde_json::Map<String, serde_json::Value>,
    refusals: serde_json::Map<String, serde_json::Value>,
    invariant_violations: u64,
    /// Who was turned away lately, the last one first.
    turned_away: Vec<TurnedAway<'a>>,
    /// Rails that are avoided before anything has failed.
    suspected: &'a [RailSnapshot],
    resends: Vec<Resend<'a>>,
    faults: Vec<Fault>,
    recovering: Vec<String>,
    traffic: Vec<Traffic>,
}

#[derive(Serialize)]
struct Net {
    net: String,
    nis: Vec<Ni>,
}

#[derive(Serialize)]
struct Ni {
    nid: String,
    interface: Option<String>,
    state: &'static str,
    /// `None` where it means nothing: loopback.
    health: Option<i32>,
    history: Option<Vec<Option<u16>>>,
    sent: u32,
    received: u32,
    dropped: u32,
    sent_bytes: u64,
    received_bytes: u64,
    credits: i32,
    credits_least: i32,
    failures: u32,
    /// When the next recovery ping is due, seconds from now.
    next_ping_s: Option<f64>,
}

#[derive(Serialize)]
struct Peer {
    primary: String,
    multi_rail: bool,
    nis: Vec<PeerNi>,
}

#[derive(Serialize)]
struct PeerNi {
    nid: String,
    state: &'static str,
    health: i32,
    history: Vec<Option<u16>>,
    sent: u32,
    received: u32,
    dropped: u32,
    sent_bytes: u64,
    received_bytes: u64,
    credits: i32,
    credits_least: i32,
    credits_max: i32,
    queued_bytes: u64,
    failures: u32,
    next_ping_s: Option<f64>,
}

#[derive(Serialize)]
struct Route {
    net: String,
    gateway: String,
    hops: Option<u32>,
    priority: u32,
    up: bool,
    kind: &'static str,
}

#[derive(Serialize)]
struct Pool {
    name: &'static str,
    buffers: u32,
    free: i32,
    least: i32,
}

#[derive(Serialize)]
struct Resend<'a> {
    /// Seconds before now.
    ago_s: f64,
    text: &'a str,
}

#[derive(Serialize)]
struct TurnedAway<'a> {
    addr: String,
    nid: Option<String>,
    why: &'a str,
    count: u64,
    ago_s: u64,
}

#[derive(Serialize)]
struct Fault {
    rule: String,
    matched: u32,
    acted: u32,
}

/// The document of a picture. Of peers only those with `filter` in one of their NIDs.
pub(super) fn of(picture: &Picture, history: &History, filter: &str, refused: u64) -> Vec<u8> {
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        host: super::host(),
        pid: std::process::id(),
        profile: &picture.global.profile,
        configured: picture.node.is_some(),
        slot_seconds: SLOT_SECONDS,
        refused,
        control_refused: picture.control_refused,
        lnd_timeout_s: picture.global.lnd_timeout_ms as f64 / 1000.0,
        node: picture.node.as_ref().map(|node| of_node(node, history, filter)),
        rpc: picture.rpc.as_ref().map(of_rpc),
    };
    // Infallible: texts and numbers under texts.
    serde_json::to_vec(&document).unwrap_or_default()
}

fn of_rpc(rpc: &RpcPicture) -> Rpc<'_> {
    Rpc {
        targets: &rpc.targets,
        imports: &rpc.imports,
        import_count: rpc.import_states.iter().map(|(_, count)| count).sum(),
        exports: &rpc.exports,
        export_count: rpc.export_count,
        services: &rpc.services,
        evictions: rpc.evictions.iter().rev().collect(),
        resent: rpc.client.resent,
        served: rpc.server.served,
        evicted: rpc.server.evictions,
    }
}

fn of_node<'a>(node: &'a NodePicture, history: &History, filter: &str) -> Node<'a> {
    let now = node.at.saturating_since(lnet_types::Instant::ZERO).as_secs_f64();
    let until = |at_s: u64| (at_s > 0).then(|| (at_s as f64 - now).max(0.0));
    let peers = peers(node, history, filter, &until);
    let (peer_count, peer_ni_count) = node.peer_count;
    let map = |rows: Vec<(&str, u64)>| {
        rows.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    };
    let refusals = node.sock.iter().flat_map(lnd_sock::Stats::refusals);
    let (ours, theirs) = &node.recovering;
    Node {
        now,
        nets: node.nets.iter().map(|net| of_net(net, history, &until)).collect(),
        peer_ni_shown: peers.iter().map(|p| p.nis.len()).sum(),
        peers,
        peer_count,
        peer_ni_count,
        routes: node
            .routes
            .iter()
            .map(|r| Route {
                net: r.net.to_string(),
                gateway: r.gateway.to_string(),
                hops: r.hops,
                priority: r.priority,
                up: r.up,
                kind: if r.single_hop { "single-hop" } else { "multi-hop" },
            })
            .collect(),
        forwards: node.routing.state != RoutingState::Disabled,
        pools: POOL_NAMES
            .into_iter()
            .zip(&node.routing.pools)
            .map(|(name, pool)| Pool {
                name,
                buffers: pool.nbuffers,
                free: pool.credits,
                least: pool.mincredits,
            })
            .collect(),
        stats: map(node.stats.rows()),
        drops: map(node.drops.iter().map(|(why, n)| (why.name(), *n)).collect()),
        refusals: map(refusals.filter(|(_, n)| *n > 0).map(|(why, n)| (why.name(), n)).collect()),
        invariant_violations: node.invariant_violations,
        suspected: &node.rails,
        turned_away: node
            .turned_away()
            .into_iter()
            .rev()
            .map(|r| TurnedAway {
                addr: r.addr.to_string(),
                nid: r.nid.map(|nid| nid.to_string()),
                why: &r.why,
                count: r.count,
                ago_s: r.ago_s,
            })
            .collect(),
        resends: node
            .resends
            .iter()
            .rev()
            .map(|(at, text)| Resend { ago_s: node.at.saturating_since(*at).as_secs_f64(), text })
            .collect(),
        faults: node.faults.iter().map(of_fault).collect(),
        recovering: ours.iter().chain(theirs).map(Nid::to_string).collect(),
        traffic: history.traffic().copied().collect(),
    }
}

fn of_net(net: &NetSnapshot, history: &History, until: &impl Fn(u64) -> Option<f64>) -> Net {
    let ni = |ni: &NiSnapshot| {
        let d = ni.detail.as_deref()?;
        let (t, h, more) = (&d.traffic, &d.health, &d.more);
        let is_real = !ni.nid.is_loopback();
        Some(Ni {
            nid: ni.nid.to_string(),
            interface: ni.interface.clone(),
            state: ni.interface_state().name(),
            health: is_real.then_some(h.value),
            history: is_real.then(|| history.health(Side::Local, ni.nid)),
            sent: t.sent.sum(),
            received: t.received.sum(),
            dropped: t.dropped.sum(),
            sent_bytes: more.bytes.0,
            received_bytes: more.bytes.1,
            credits: more.tx_available,
            credits_least: more.tx_min,
            failures: h.failures(),
            next_ping_s: until(h.next_ping_s),
        })
    };
    Net { net: net.net.to_string(), nis: net.nis.iter().filter_map(ni).collect() }
}

/// The peers that are shown: worst first, and among equals the oldest.
fn peers(
    node: &NodePicture,
    history: &History,
    filter: &str,
    until: &impl Fn(u64) -> Option<f64>,
) -> Vec<Peer> {
    let meant = |peer: &&PeerSnapshot| {
        filter.is_empty()
            || peer.primary.to_string().contains(filter)
            || peer.nis.iter().any(|ni| ni.nid.to_string().contains(filter))
    };
    let mut meant: Vec<&PeerSnapshot> = node.peers.iter().filter(meant).collect();
    let health = |ni: &PeerNiSnapshot| ni.detail.as_ref().map(|d| d.health.value);
    meant.sort_by_key(|peer| peer.nis.iter().filter_map(health).min());
    let suspects = node.suspects();
    let mut room = PEER_NIS_SHOWN;
    let mut shown = Vec::new();
    for peer in meant {
        if room == 0 {
            break;
        }
        let reached = peer.was_reached();
        let ni = |ni| of_peer_ni(ni, reached, &suspects, history, until);
        let nis = peer.nis.iter().take(room).filter_map(ni).collect();
        room = room.saturating_sub(peer.nis.len());
        shown.push(Peer { primary: peer.primary.to_string(), multi_rail: peer.multi_rail, nis });
    }
    shown
}

fn of_peer_ni(
    ni: &PeerNiSnapshot,
    reached: bool,
    suspects: &BTreeSet<Nid>,
    history: &History,
    until: &impl Fn(u64) -> Option<f64>,
) -> Option<PeerNi> {
    let d = ni.detail.as_deref()?;
    let (t, h, c) = (&d.traffic, &d.health, &d.credits);
    Some(PeerNi {
        nid: ni.nid.to_string(),
        state: ni.interface_state(reached, suspects.contains(&ni.nid)).name(),
        health: h.value,
        history: history.health(Side::Peer, ni.nid),
        sent: t.sent.sum(),
        received: t.received.sum(),
        dropped: t.dropped.sum(),
        sent_bytes: d.bytes.0,
        received_bytes: d.bytes.1,
        credits: c.tx_available,
        credits_least: c.tx_min,
        credits_max: c.tx_max,
        queued_bytes: c.tx_queue_bytes,
        failures: h.failures(),
        next_ping_s: until(h.next_ping_s),
    })
}

/// A rule in the words of the command that made it.
fn of_fault(fault: &FaultSnapshot) -> Fault {
    let r = &fault.rule;
    let any = |nid: Nid| match nid {
        nid if nid.is_any() => "*".to_owned(),
        // How a whole network is stored (F-13).
        nid if nid == Nid::new(nid.net(), u32::MAX) => format!("*@{}", nid.net()),
        nid => nid.to_string(),
    };
    let mut rule = match r.action {
        FaultAction::Drop { random: true, .. } => "drop at random".to_owned(),
        FaultAction::Drop { all: true, .. } => "drop all".to_owned(),
        FaultAction::Drop { .. } => "drop".to_owned(),
        FaultAction::Delay { latency_s } => format!("delay by {latency_s} s"),
    };
    rule += &format!(": {} to {}", any(r.src), any(r.dst));
    if r.rate > 0 {
        rule += &format!(", one of {}", r.rate);
    }
    if r.interval_s > 0 {
        rule += &format!(", one per {} s", r.interval_s);
    }
    Fault { rule, matched: fault.matched, acted: fault.acted }
}
