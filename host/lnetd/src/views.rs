//! From the node's views to the snapshots that every outer view is made of: the control protocol, the
//! status page, `/metrics`, and by way of the protocol `lnetctl` with `top` and `doctor`.

use lnet::{
    InterfaceStats, KindCounts, Latency, NetView, NiView, Node, NodeStats, PeerNiState, PeerNiView,
    PeerView, RailView, RouteView, RoutingState, RoutingView, Rule, SuspicionView, TimerView,
    Times, Transitions, Usage,
};
use lnet_admin as admin;
use lnet_config::UdspRule;
use lnet_rt::Stack;
use lnet_types::{Instant, NiId};

use core::time::Duration;

use crate::nets::Settings;

/// The peers that the TCP driver refused, and at which interface.
fn refused(stack: &Stack, now: Instant) -> Vec<(NiId, admin::RefusedSnapshot)> {
    let lines = stack.tcp().map(lnd_sock::SockDriver::refused).unwrap_or_default();
    let line = |r: lnd_sock::Refused| {
        let shown = admin::RefusedSnapshot {
            addr: r.addr,
            nid: r.nid,
            why: r.why.name().to_owned(),
            count: r.count,
            ago_s: now.saturating_since(r.last).as_secs(),
        };
        (r.ni, shown)
    };
    lines.into_iter().map(line).collect()
}

/// The local nets at the time `now`.
pub(crate) fn nets(
    stack: &Stack,
    settings: &Settings,
    detail: bool,
    now: Instant,
) -> Vec<admin::NetSnapshot> {
    let refused = if detail { refused(stack, now) } else { Vec::new() };
    let views = stack.node().net_views();
    let mut nets: Vec<_> =
        views.iter().map(|view| net(view, settings, detail, &refused, now)).collect();
    // What an RDMA device says of itself now.
    let ids = views.iter().flat_map(|view| &view.nis).map(|ni| ni.id);
    for (id, ni) in ids.zip(nets.iter_mut().flat_map(|net| &mut net.nis)) {
        if let Some(detail) = &mut ni.detail
            && let Some(admin::LndSnapshot::O2ib { port, .. }) = &mut detail.lnd
        {
            *port = crate::rdma::port(stack, id).unwrap_or_default();
        }
    }
    nets
}

/// A local net. `refused`: the peers that the driver refused, on any net.
fn net(
    view: &NetView,
    settings: &Settings,
    detail: bool,
    refused: &[(NiId, admin::RefusedSnapshot)],
    now: Instant,
) -> admin::NetSnapshot {
    let nis = view
        .nis
        .iter()
        .map(|ni| admin::NiSnapshot {
            nid: ni.nid,
            up: ni.up,
            interface: ni.interface.clone(),
            detail: detail.then(|| Box::new(ni_detail(view, ni, settings, now))),
        })
        .collect();
    let sum = detail.then(|| Box::new(traffic(&view.sum())));
    let ours = |ni: &NiId| view.nis.iter().any(|n| n.id == *ni);
    let refused = refused.iter().filter(|(ni, _)| ours(ni)).map(|(_, r)| r.clone()).collect();
    admin::NetSnapshot {
        net: view.net,
        nis,
        sum,
        accept_from: settings.accept_from(view.net),
        refused,
    }
}

fn ni_detail(net: &NetView, ni: &NiView, settings: &Settings, now: Instant) -> admin::NiDetail {
    let (t, f) = (&net.tunables, &ni.failures);
    admin::NiDetail {
        traffic: traffic(&ni.stats),
        udsp: admin::UdspInfo { net_priority: net.priority, nid_priority: ni.priority },
        health: admin::NiHealth {
            fatal_error: ni.fatal,
            value: ni.health as i32,
            interrupts: f.interrupt,
            dropped: f.dropped,
            aborted: f.aborted,
            no_route: f.no_route,
            timeouts: f.timeout,
            error: f.error,
            ping_count: ni.ping_count,
            next_ping_s: seconds(ni.next_ping),
        },
        tunables: admin::NetTunablesSnapshot {
            peer_timeout_s: t.peer_timeout,
            peer_credits: t.peer_credits as i32,
            peer_buffer_credits: t.peer_buffer_credits as i32,
            credits: t.credits as i32,
        },
        lnd: settings.lnd(ni.id),
        dev_cpt: ni.device_cpt.and_then(|cpt| i32::try_from(cpt).ok()).unwrap_or(-1),
        cpts: ni.cpts.iter().copied().collect(),
        more: admin::NiMore {
            state: ni.state.name().to_owned(),
            tx_max: t.credits as i32,
            tx_available: ni.credits,
            tx_min: ni.credits_min,
            network_timeouts: f.network_timeout,
            bytes: (ni.stats.sent_bytes, ni.stats.received_bytes),
            usage: usage(ni.transitions, ni.flapping, &ni.usage),
            last_received_ms: ni.last_received.map(|at| millis(now.saturating_since(at))),
            by_address: settings.is_by_address(ni.id),
        },
    }
}

fn usage(transitions: Transitions, flapping: bool, usage: &Usage) -> admin::UsageSnapshot {
    let r = &usage.rates;
    admin::UsageSnapshot {
        downs: transitions.downs,
        ups: transitions.ups,
        flapping,
        heat_milli: usage.heat_milli,
        rate_seconds: r.over_s,
        sent_per_s: r.per_second(r.sent),
        received_per_s: r.per_second(r.received),
        sent_bytes_per_s: r.per_second(r.sent_bytes),
        received_bytes_per_s: r.per_second(r.received_bytes),
        send: times(&usage.send),
        complete: times(&usage.complete),
    }
}

fn times(t: &Times) -> admin::TimesSnapshot {
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    admin::TimesSnapshot {
        samples: t.samples,
        min_nsec: ns(t.min),
        avg_nsec: ns(t.avg),
        p50_nsec: ns(t.p50),
        p90_nsec: ns(t.p90),
        p99_nsec: ns(t.p99),
        max_nsec: ns(t.max),
    }
}

/// The rails that are not above doubt.
pub(crate) fn rails(seen: &SuspicionView) -> Vec<admin::RailSnapshot> {
    let rail = |rail: &RailView| admin::RailSnapshot {
        local: rail.local,
        peer: rail.peer,
        doubt: rail.doubt.name().to_owned(),
        for_ms: u64::try_from(seen.at.saturating_since(rail.since).as_millis()).unwrap_or(u64::MAX),
    };
    seen.rails.iter().map(rail).collect()
}

/// The timers of a node, the first ones where there are many.
pub(crate) fn timers(node: &Node, now: Instant) -> admin::Reply {
    let all = node.timers();
    let total = all.len() as u64;
    let timer = |view: &TimerView| admin::TimerSnapshot {
        kind: view.timer.name().to_owned(),
        nid: view.nid,
        message: view.message.map(|kind| kind.name().to_owned()),
        due_in_ms: u64::try_from(view.at.saturating_since(now).as_millis()).unwrap_or(u64::MAX),
    };
    let timers = all.iter().take(admin::TIMERS_MAX).map(timer).collect();
    admin::Reply::Timers { timers, total }
}

/// A peer at the time `now`.
pub(crate) fn peer(view: &PeerView, detail: bool, now: Instant) -> admin::PeerSnapshot {
    let nis = view
        .nis
        .iter()
        .map(|ni| admin::PeerNiSnapshot {
            nid: ni.nid,
            state: peer_ni_state(ni.state),
            detail: detail.then(|| Box::new(peer_ni_detail(ni, now))),
        })
        .collect();
    admin::PeerSnapshot {
        primary: view.primary,
        multi_rail: view.multi_rail,
        state: view.state,
        own: view.own,
        nis,
        sum: detail.then(|| Box::new(traffic(&view.sum()))),
    }
}

fn peer_ni_state(state: PeerNiState) -> admin::PeerNiState {
    match state {
        PeerNiState::NotTracked => admin::PeerNiState::NotWatched,
        PeerNiState::Up => admin::PeerNiState::Up,
        PeerNiState::Down => admin::PeerNiState::Down,
    }
}

fn peer_ni_detail(ni: &PeerNiView, now: Instant) -> admin::PeerNiDetail {
    let f = &ni.failures;
    admin::PeerNiDetail {
        udsp: admin::UdspInfo { net_priority: ni.net_priority, nid_priority: ni.priority },
        credits: admin::PeerNiCredits {
            tx_max: ni.credits_max as i32,
            tx_available: ni.credits,
            tx_min: ni.credits_min,
            tx_queue_bytes: ni.queued_bytes,
            rtr_available: ni.router_credits,
            rtr_min: ni.router_credits_min,
        },
        refcount: ni.refs,
        traffic: traffic(&ni.stats),
        health: admin::PeerNiHealth {
            value: ni.health as i32,
            dropped: f.dropped,
            timeout: f.timeout,
            error: f.error,
            network_timeout: f.network_timeout,
            ping_count: ni.ping_count,
            next_ping_s: seconds(ni.next_ping),
        },
        bytes: (ni.stats.sent_bytes, ni.stats.received_bytes),
        local: ni.local,
        reported_down: !ni.up,
        usage: usage(ni.transitions, ni.flapping, &ni.usage),
        last_received_ms: ni.last_received.map(|at| millis(now.saturating_since(at))),
    }
}

/// A route.
pub(crate) fn route(view: &RouteView) -> admin::RouteSnapshot {
    admin::RouteSnapshot {
        net: view.net,
        gateway: view.gateway,
        hops: view.hops.map(u32::from),
        priority: view.priority,
        up: view.up,
        single_hop: view.single_hop,
    }
}

/// Where forwarding stands.
pub(crate) fn routing(view: &RoutingView) -> admin::RoutingSnapshot {
    admin::RoutingSnapshot {
        state: match view.state {
            RoutingState::Disabled => admin::RoutingState::Disabled,
            RoutingState::Enabled => admin::RoutingState::Enabled,
            RoutingState::Stopping => admin::RoutingState::Stopping,
            RoutingState::Starting => admin::RoutingState::Starting,
        },
        pools: view.pools.map(|p| admin::PoolSnapshot {
            npages: p.npages,
            nbuffers: p.nbuffers,
            credits: p.credits,
            mincredits: p.mincredits,
        }),
        wanted: view.wanted,
        was_on: view.was_on,
    }
}

/// The counters of the node.
///
/// # Errors
/// The name of a counter that the protocol does not have.
pub(crate) fn stats(stats: &NodeStats) -> Result<admin::StatsSnapshot, &'static str> {
    admin::StatsSnapshot::from_rows(stats.rows())
}

/// A rule of the selection policy.
pub(crate) fn udsp_rule(rule: &Rule) -> UdspRule {
    UdspRule {
        src: rule.src().map(ToString::to_string),
        dst: rule.dst().map(ToString::to_string),
        rte: rule.rte().map(ToString::to_string),
        priority: rule.priority(),
        messages: rule.messages(),
    }
}

fn traffic(stats: &InterfaceStats) -> admin::Traffic {
    admin::Traffic {
        sent: kinds(&stats.sent),
        received: kinds(&stats.received),
        dropped: kinds(&stats.dropped),
        put_egress: latency(&stats.put_egress),
        get_rtt: latency(&stats.get_rtt),
        put_ack: latency(&stats.put_ack),
    }
}

fn kinds(k: &KindCounts) -> admin::KindCounts {
    admin::KindCounts { put: k.put, get: k.get, reply: k.reply, ack: k.ack, hello: 0 }
}

fn latency(l: &Latency) -> admin::Latency {
    admin::Latency {
        samples: l.samples,
        min_nsec: l.min_nsec,
        max_nsec: l.max_nsec,
        avg_nsec: l.avg_nsec(),
        sum_nsec: l.sum_nsec,
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(at: Option<Instant>) -> u64 {
    at.map_or(0, Instant::as_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_views_read_are_those_of_the_node() {
        use lnet::PeerFlags as Ours;
        assert_eq!(admin::PeerFlags::ROUTER, Ours::ROUTER_ENABLED.bits());
        assert_eq!(admin::PeerFlags::CONFIGURED, Ours::CONFIGURED.bits());
        assert_eq!(admin::PeerFlags::PRIMARY_LOCKED, Ours::LOCK_PRIMARY.bits());
        assert_eq!(admin::PeerFlags::ANSWERED, (Ours::DISCOVERED | Ours::NIDS_UPTODATE).bits());
        assert_eq!(admin::HEALTH_MAX, i64::from(lnet::HEALTH_MAX));
    }
}
