//! `/status.json`: what the page shows, as one document. The page is its only reader that is
//! promised anything; scripts have the control socket and `/metrics`.

use std::collections::BTreeSet;

use lnet::{NetView, NiView, PeerNiState, PeerNiView, PeerView, PoolView, RoutingState};
use lnet_admin::{FaultAction, FaultSnapshot, InterfaceState, RailSnapshot};
use lnet_types::Nid;
use serde::Serialize;

use super::history::{History, SLOT_SECONDS, Traffic};
use crate::picture::{NodePicture, Picture, Side};

/// Peer interfaces in one document; those in the worst health come first.
const PEER_NIS_SHOWN: usize = 256;

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    /// The name of the host.
    host: String,
    pid: u32,
    profile: &'static str,
    configured: bool,
    slot_seconds: u64,
    refused: u64,
    /// Requests of the control socket, and clients, that had not the right.
    control_refused: u64,
    lnd_timeout_s: f64,
    node: Option<Node<'a>>,
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
    turned_away: Vec<TurnedAway>,
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
    health: Option<u32>,
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
    health: u32,
    history: Vec<Option<u16>>,
    sent: u32,
    received: u32,
    dropped: u32,
    sent_bytes: u64,
    received_bytes: u64,
    credits: i32,
    credits_least: i32,
    credits_max: u32,
    queued_bytes: u64,
    failures: u32,
    next_ping_s: Option<f64>,
}

#[derive(Serialize)]
struct Route {
    net: String,
    gateway: String,
    hops: Option<u8>,
    priority: u32,
    up: bool,
    kind: &'static str,
}

#[derive(Serialize)]
struct Pool {
    name: String,
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
struct TurnedAway {
    addr: String,
    nid: Option<String>,
    why: &'static str,
    count: u64,
    ago_s: f64,
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
        profile: picture.profile.name(),
        configured: picture.node.is_some(),
        slot_seconds: SLOT_SECONDS,
        refused,
        control_refused: picture.control_refused,
        lnd_timeout_s: picture.lnd_timeout_s,
        node: picture.node.as_ref().map(|node| of_node(node, history, filter)),
    };
    // Infallible: texts and numbers under texts.
    serde_json::to_vec(&document).unwrap_or_default()
}

fn of_node<'a>(node: &'a NodePicture, history: &History, filter: &str) -> Node<'a> {
    let seconds = |at: lnet_types::Instant| at.saturating_since(node.at).as_secs_f64();
    let peers = peers(node, history, filter, &seconds);
    let (peer_count, peer_ni_count) = node.peer_count;
    let map = |rows: Vec<(&str, u64)>| {
        rows.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    };
    let refusals = node.sock.iter().flat_map(lnd_sock::Stats::refusals);
    let (ours, theirs) = &node.recovering;
    Node {
        now: node.at.saturating_since(lnet_types::Instant::ZERO).as_secs_f64(),
        nets: node.nets.iter().map(|net| of_net(net, history, &seconds)).collect(),
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
        pools: node.routing.pools.iter().map(of_pool).collect(),
        stats: map(node.stats.rows()),
        drops: map(node.drops.iter().map(|(why, n)| (why.name(), *n)).collect()),
        refusals: map(refusals.filter(|(_, n)| *n > 0).map(|(why, n)| (why.name(), n)).collect()),
        invariant_violations: node.invariant_violations,
        suspected: &node.rails,
        turned_away: node
            .turned_away
            .iter()
            .rev()
            .map(|r| TurnedAway {
                addr: r.addr.to_string(),
                nid: r.nid.map(|nid| nid.to_string()),
                why: r.why.name(),
                count: r.count,
                ago_s: node.at.saturating_since(r.last).as_secs_f64(),
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

fn of_net(net: &NetView, history: &History, seconds: &impl Fn(lnet_types::Instant) -> f64) -> Net {
    let ni = |ni: &NiView| {
        let (s, f) = (&ni.stats, &ni.failures);
        let health = (!ni.nid.is_loopback()).then_some(ni.health);
        Ni {
            nid: ni.nid.to_string(),
            interface: ni.interface.clone(),
            state: InterfaceState::local(ni.up, health.map(i64::from)).name(),
            health,
            history: (!ni.nid.is_loopback()).then(|| history.health(Side::Local, ni.nid)),
            sent: s.sent.sum(),
            received: s.received.sum(),
            dropped: s.dropped.sum(),
            sent_bytes: s.sent_bytes,
            received_bytes: s.received_bytes,
            credits: ni.credits,
            credits_least: ni.credits_min,
            failures: sum([f.interrupt, f.dropped, f.aborted, f.no_route, f.timeout, f.error]),
            next_ping_s: ni.next_ping.map(seconds),
        }
    };
    Net { net: net.net.to_string(), nis: net.nis.iter().map(ni).collect() }
}

/// The peers that are shown: worst first, and among equals the oldest.
fn peers(
    node: &NodePicture,
    history: &History,
    filter: &str,
    seconds: &impl Fn(lnet_types::Instant) -> f64,
) -> Vec<Peer> {
    let meant = |peer: &&PeerView| {
        filter.is_empty()
            || peer.primary.to_string().contains(filter)
            || peer.nis.iter().any(|ni| ni.nid.to_string().contains(filter))
    };
    let mut meant: Vec<&PeerView> = node.peers.iter().filter(meant).collect();
    meant.sort_by_key(|peer| peer.nis.iter().map(|ni| ni.health).min());
    let suspects: BTreeSet<Nid> = node.rails.iter().map(|rail| rail.peer).collect();
    let mut room = PEER_NIS_SHOWN;
    let mut shown = Vec::new();
    for peer in meant {
        if room == 0 {
            break;
        }
        let reached = was_reached(peer);
        let ni =
            |ni: &PeerNiView| of_peer_ni(ni, reached, suspects.contains(&ni.nid), history, seconds);
        let nis = peer.nis.iter().take(room).map(ni).collect();
        room = room.saturating_sub(peer.nis.len());
        shown.push(Peer { primary: peer.primary.to_string(), multi_rail: peer.multi_rail, nis });
    }
    shown
}

/// Whether anything was ever heard from a peer: the bits "discovered" and "NIDs up to date" of its flag
/// word (S-peer-3), or messages.
pub(super) fn was_reached(peer: &PeerView) -> bool {
    peer.state & (1 << 4 | 1 << 8) != 0 || peer.nis.iter().any(|ni| ni.stats.received.sum() > 0)
}

fn of_peer_ni(
    ni: &PeerNiView,
    reached: bool,
    suspect: bool,
    history: &History,
    seconds: &impl Fn(lnet_types::Instant) -> f64,
) -> PeerNi {
    let (s, f) = (&ni.stats, &ni.failures);
    PeerNi {
        nid: ni.nid.to_string(),
        state: InterfaceState::remote(
            ni.state == PeerNiState::Down,
            reached,
            suspect,
            i64::from(ni.health),
        )
        .name(),
        health: ni.health,
        history: history.health(Side::Peer, ni.nid),
        sent: s.sent.sum(),
        received: s.received.sum(),
        dropped: s.dropped.sum(),
        sent_bytes: s.sent_bytes,
        received_bytes: s.received_bytes,
        credits: ni.credits,
        credits_least: ni.credits_min,
        credits_max: ni.credits_max,
        queued_bytes: ni.queued_bytes,
        failures: sum([f.dropped, f.timeout, f.error, f.network_timeout]),
        next_ping_s: ni.next_ping.map(seconds),
    }
}

fn of_pool(pool: &PoolView) -> Pool {
    Pool {
        name: format!("{:?}", pool.kind).to_lowercase(),
        buffers: pool.nbuffers,
        free: pool.credits,
        least: pool.mincredits,
    }
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

fn sum<const N: usize>(counts: [u32; N]) -> u32 {
    counts.into_iter().fold(0, u32::wrapping_add)
}
