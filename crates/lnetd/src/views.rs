//! From the node's views to what the control protocol shows.

use lnet::{InterfaceStats, KindCounts, Latency, NetView, NiView, PeerNiView, PeerView, Rule};
use lnet_admin as admin;
use lnet_config::UdspRule;
use lnet_types::Instant;

use crate::nets::Settings;

/// A local net.
pub(crate) fn net(view: &NetView, settings: &Settings, detail: bool) -> admin::NetSnapshot {
    let nis = view
        .nis
        .iter()
        .map(|ni| admin::NiSnapshot {
            nid: ni.nid,
            up: ni.up,
            interface: ni.interface.clone(),
            detail: detail.then(|| Box::new(ni_detail(view, ni, settings))),
        })
        .collect();
    admin::NetSnapshot { net: view.net, nis }
}

fn ni_detail(net: &NetView, ni: &NiView, settings: &Settings) -> admin::NiDetail {
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
        dev_cpt: if ni.nid.is_loopback() { -1 } else { settings.dev_cpt(ni.id) },
        cpts: vec![0],
    }
}

/// A peer.
pub(crate) fn peer(view: &PeerView, detail: bool) -> admin::PeerSnapshot {
    let nis = view
        .nis
        .iter()
        .map(|ni| admin::PeerNiSnapshot {
            nid: ni.nid,
            state: admin::PeerNiState::NotWatched,
            detail: detail.then(|| Box::new(peer_ni_detail(ni))),
        })
        .collect();
    admin::PeerSnapshot {
        primary: view.primary,
        multi_rail: view.multi_rail,
        state: view.state,
        nis,
    }
}

fn peer_ni_detail(ni: &PeerNiView) -> admin::PeerNiDetail {
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
    }
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
    }
}

fn seconds(at: Option<Instant>) -> u64 {
    at.map_or(0, Instant::as_secs)
}
