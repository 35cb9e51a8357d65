//! The status files of the kernel: columns and widths as there (T-9 of the tools' reference), to the
//! byte.

use core::fmt::Write as _;

use lnet::{NetView, Node, PeerNiState, PeerView, RouteView, RoutingState, RoutingView};
use lnet_admin::{AdminError, Reply, Request};
use lnet_types::{Errno, Nid};

use crate::control::Control;

/// Makes the text of a file.
pub(super) type Show = fn(&Control) -> Result<String, AdminError>;
/// What writing to a file does.
pub(super) type Touch = fn(&Control) -> Result<(), AdminError>;

/// Name, text, and what writing does.
pub(super) const FILES: &[(&str, Show, Option<Touch>)] = &[
    ("stats", stats, Some(reset)),
    ("routes", |c| see(c, |n| routes(&n.routing_view(), &n.route_views())), None),
    ("routers", |c| see(c, routers), None),
    ("peers", peers, Some(|c| touch(c, Node::reset_peer_minima))),
    ("buffers", |c| see(c, |n| buffers(&n.routing_view())), None),
    ("nis", |c| see(c, |n| nis(&n.net_views())), Some(|c| touch(c, Node::reset_ni_minima))),
    ("lnet_lnd_timeout", lnd_timeout, None),
    ("cpu_partition_table", |c| Ok(c.cpus.shown()), None),
    ("cpu_partition_distance", |c| Ok(c.cpus.shown_distances()), None),
];

/// Peers that are asked for at a time, so that no other thread waits long.
const PEERS_AT_ONCE: usize = 512;

fn see(control: &Control, text: fn(&Node) -> String) -> Result<String, AdminError> {
    control.on_node(Errno::ENETDOWN, move |stack, _| Ok(text(stack.node())))
}

fn touch(control: &Control, change: fn(&mut Node)) -> Result<(), AdminError> {
    control.on_node(Errno::ENETDOWN, move |stack, _| {
        change(stack.node_mut());
        Ok(())
    })
}

fn reset(control: &Control) -> Result<(), AdminError> {
    control.answer(Request::StatsReset).map(|_| ())
}

/// The classic counters in one line.
fn stats(control: &Control) -> Result<String, AdminError> {
    let Reply::Stats(s) = control.answer(Request::StatsShow)? else {
        return Err(AdminError::errno(Errno::EPROTO));
    };
    let numbers = [
        s.msgs_alloc.into(),
        s.msgs_max.into(),
        s.errors.into(),
        s.send_count.into(),
        s.recv_count.into(),
        s.route_count.into(),
        s.drop_count.into(),
        s.send_length,
        s.recv_length,
        s.route_length,
        s.drop_length,
    ];
    Ok(numbers.map(|n: u64| n.to_string()).join(" ") + "\n")
}

fn lnd_timeout(control: &Control) -> Result<String, AdminError> {
    let Reply::Global(global) = control.answer(Request::GlobalShow)? else {
        return Err(AdminError::errno(Errno::EPROTO));
    };
    // Whole seconds, as kernels count them; a shorter one is not none.
    Ok(format!("{}\n", (global.lnd_timeout_ms / 1000).max(1)))
}

const fn up(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

fn routes(routing: &RoutingView, routes: &[RouteView]) -> String {
    let state = match routing.state {
        RoutingState::Disabled => "disabled",
        RoutingState::Enabled => "enabled",
        RoutingState::Starting => "starting",
        RoutingState::Stopping => "stopping",
    };
    let mut text = format!("Routing {state}\nnet      hops priority   state router\n");
    for r in routes {
        let hops = r.hops.map_or(-1, i32::from);
        // Infallible: writing to a String.
        let _ = writeln!(
            text,
            "{:<8} {hops:>4} {:>8} {:>7} {}",
            r.net,
            r.priority,
            up(r.up),
            r.gateway
        );
    }
    text
}

fn routers(node: &Node) -> String {
    let mut text = "ref  rtr_ref alive router\n".to_owned();
    let routes = node.route_views();
    let mut seen: Vec<Nid> = Vec::new();
    for route in &routes {
        let Some(peer) = node.peer_view_of(route.gateway) else { continue };
        if seen.contains(&peer.primary) {
            continue;
        }
        seen.push(peer.primary);
        let of = |r: &&RouteView| peer.nis.iter().any(|n| n.nid == r.gateway);
        let through = routes.iter().filter(of).count();
        let alive = routes.iter().filter(of).any(|r| r.up);
        let refs = through + peer.nis.len();
        let _ = writeln!(text, "{refs:<4} {through:>7} {:>5} {}", up(alive), peer.primary);
    }
    text
}

fn peers(control: &Control) -> Result<String, AdminError> {
    let mut text =
        "nid                      refs state  last   max   rtr   min    tx   min queue\n"
            .to_owned();
    let mut after = None;
    loop {
        let page = control.on_node(Errno::ENETDOWN, move |stack, _| {
            Ok(stack.node().peer_views_and_own(after, PEERS_AT_ONCE))
        })?;
        let Some((last, _)) = page.last() else { return Ok(text) };
        after = Some(*last);
        for (_, peer) in &page {
            peer_rows(&mut text, peer);
        }
    }
}

fn peer_rows(text: &mut String, peer: &PeerView) {
    for n in &peer.nis {
        let state = match n.state {
            PeerNiState::NotTracked => "NA",
            PeerNiState::Up => "up",
            PeerNiState::Down => "down",
        };
        let _ = writeln!(
            text,
            "{:<24} {:>4} {state:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {}",
            n.nid.to_string(),
            n.refs,
            -1,
            n.credits_max,
            n.router_credits,
            n.router_credits_min,
            n.credits,
            n.credits_min,
            n.queued_bytes
        );
    }
}

fn buffers(routing: &RoutingView) -> String {
    let mut text = "pages count credits     min\n".to_owned();
    if routing.state == RoutingState::Disabled {
        return text;
    }
    for p in &routing.pools {
        // Buffers of no page are for headers alone.
        let pages = if p.kind == lnet::PoolKind::Tiny { 0 } else { p.npages };
        let _ = writeln!(text, "{pages:>5} {:>5} {:>7} {:>7}", p.nbuffers, p.credits, p.mincredits);
    }
    text
}

fn nis(nets: &[NetView]) -> String {
    let mut text =
        "nid                      status alive refs peer  rtr   max    tx   min\n".to_owned();
    for net in nets {
        for ni in &net.nis {
            let lo = ni.nid.is_loopback();
            let silent = net.silent.map_or(-1, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
            let (alive, refs) = if lo { (0, 2) } else { (silent, ni.refs) };
            let t = &net.tunables;
            let _ = writeln!(
                text,
                "{:<24} {:>6} {alive:>5} {refs:>4} {:>4} {:>4} {:>5} {:>5} {:>5}",
                ni.nid.to_string(),
                up(ni.up),
                t.peer_credits,
                t.peer_buffer_credits,
                t.credits,
                ni.credits,
                ni.credits_min
            );
        }
    }
    text
}
