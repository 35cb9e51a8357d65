//! The metrics of the request layer, taken from its two records of counts.

use lnet_admin::{ServiceSnapshot, TargetSnapshot};
use lustre_rt::{ClientStats, NamespaceRow, ServerStats};

use super::text::Family;
use crate::picture::RpcPicture;
use crate::rpc_views::LOCK_COUNTERS;

/// A counter: its name, its help, and where it is.
type Counter<S> = (&'static str, &'static str, fn(&S) -> u64);

const CLIENT: [Counter<ClientStats>; 13] = [
    ("calls", "Calls of programs.", |s| s.calls),
    ("sent", "Requests sent, copies among them.", |s| s.sent),
    ("resent", "Copies of requests sent.", |s| s.resent),
    ("replayed", "Requests repeated after a server had lost them.", |s| s.replayed),
    ("replies", "Replies received.", |s| s.replies),
    ("early_replies", "Early replies received.", |s| s.early),
    ("network_failures", "Requests that LNet could not deliver.", |s| s.net_failed),
    ("expired", "Requests without a reply in time.", |s| s.expired),
    ("connects", "Connects sent.", |s| s.connects),
    ("connects_failed", "Connects that failed.", |s| s.connects_failed),
    ("connections_lost", "Connections that failed in use.", |s| s.lost),
    ("evictions", "Evictions by servers.", |s| s.evictions),
    ("idle_disconnects", "Disconnects for want of use.", |s| s.idle),
];

const SERVER: [Counter<ServerStats>; 19] = [
    ("served", "Requests served.", |s| s.served),
    ("copies_folded", "Copies of requests under way.", |s| s.folded),
    ("replies_repeated", "Copies of requests that had a reply.", |s| s.answered_again),
    ("copies_unmarked", "Copies of requests without the mark of a copy.", |s| s.unmarked),
    ("early_replies", "Early replies sent.", |s| s.early),
    ("evictions", "Clients evicted.", |s| s.evictions),
    ("connects_refused", "Connects refused.", |s| s.connects_refused),
    ("malformed", "Messages that were no requests.", |s| s.malformed),
    ("stale", "Requests of an earlier connection.", |s| s.stale),
    ("bad_xid", "Requests with a number that was used before.", |s| s.bad_xid),
    ("too_many", "Requests beyond the limit of one client.", |s| s.too_many),
    ("replies_not_taken", "Requests of nodes that leave replies untaken.", |s| s.not_taken),
    ("late", "Requests whose time was over before their turn.", |s| s.late),
    ("bulk_failed", "Transfers of bulk data that failed.", |s| s.bulk_failed),
    ("too_long", "Replies not sent for their length.", |s| s.too_long),
    ("stuck", "Requests that were served for too long.", |s| s.stuck),
    ("no_memory", "Replies not sent for want of memory.", |s| s.no_memory),
    ("callbacks", "Requests of servers to this node.", |s| s.callbacks),
    ("no_buffer", "Times that no request buffer could be posted.", |s| s.no_buffer),
];

/// The families of the request layer.
pub(super) fn families(rpc: &RpcPicture) -> Vec<Family> {
    let count = |name: &str, help: &str, n: usize| {
        Family::gauge(format!("rpc_{name}"), help.to_owned()).value(n as f64)
    };
    let imports = rpc.import_states.iter().map(|(_, count)| count).sum();
    let mut all = vec![
        count("targets", "Targets that this node serves.", rpc.targets.len()),
        count("imports", "Connections of this node to targets.", imports),
        count("exports", "Clients of the targets of this node.", rpc.export_count),
        count("fault_rules", "Rules that lose messages of requests.", rpc.rules),
    ];
    all.extend(CLIENT.iter().map(|(name, help, of)| {
        let family = Family::counter(format!("rpc_client_{name}"), (*help).to_owned());
        family.value(of(&rpc.client) as f64)
    }));
    all.extend(SERVER.iter().map(|(name, help, of)| {
        let family = Family::counter(format!("rpc_server_{name}"), (*help).to_owned());
        family.value(of(&rpc.server) as f64)
    }));
    let mut states = Family::gauge("rpc_imports_by_state", "Connections to targets, by state.");
    for (state, count) in &rpc.import_states {
        states.add(&[("state", state)], *count as f64);
    }
    all.push(states);
    all.extend(of_targets(&rpc.targets));
    all.extend(of_services(&rpc.services));
    all.extend(locks(&rpc.namespaces));
    all
}

fn of_targets(targets: &[TargetSnapshot]) -> [Family; 4] {
    let mut up = Family::gauge("rpc_target_serving", "Whether a target serves its clients.");
    let mut recovers = Family::gauge(
        "rpc_target_recovering",
        "Whether a target waits for clients of its last life.",
    );
    let mut clients = Family::gauge("rpc_target_clients", "Clients of a target.");
    let help = "Transactions of a target that are not committed.";
    let mut open = Family::gauge("rpc_target_uncommitted", help);
    for target in targets {
        let labels = [("target", target.name.as_str())];
        up.add(&labels, u32::from(target.state == "serving"));
        recovers.add(&labels, u32::from(target.state == "recovering"));
        clients.add(&labels, target.clients as f64);
        open.add(&labels, target.uncommitted as f64);
    }
    [up, recovers, clients, open]
}

fn of_services(services: &[ServiceSnapshot]) -> Vec<Family> {
    let mut queued = Family::gauge("rpc_service_queued", "Requests that wait.");
    let mut busy = Family::gauge("rpc_service_in_flight", "Requests that are being served.");
    let help = "How long a request takes, as clients hear it.";
    let mut estimate = Family::gauge("rpc_service_estimate", help).unit("seconds");
    let mut worst =
        Family::gauge("rpc_service_worst", "The longest that a request took.").unit("seconds");
    let mut posted =
        Family::gauge("rpc_service_request_buffers", "Request buffers that are posted.");
    let help = "Whether requests wait and none is taken.";
    let mut unhealthy = Family::gauge("rpc_service_unhealthy", help);
    let help = "How long requests have waited before they were taken.";
    let mut waited = Family::histogram("rpc_service_queue_wait", help).unit("seconds");
    let help = "How long requests were served.";
    let mut served = Family::histogram("rpc_service_time", help).unit("seconds");
    for service in services {
        let labels = [("service", service.name.as_str())];
        queued.add(&labels, service.delayed as f64);
        busy.add(&labels, service.in_flight as f64);
        estimate.add(&labels, seconds(service.estimate_ms));
        worst.add(&labels, seconds(service.worst_ms));
        posted.add(&labels, service.posted);
        unhealthy.add(&labels, u32::from(service.unhealthy_in_ms == Some(0)));
        for (family, h) in [(&mut waited, &service.waited), (&mut served, &service.served)] {
            let classes = h.classes.iter().map(|(bound, n)| (bound.map(seconds), *n));
            family.add_histogram(&labels, classes, seconds(h.sum_ms));
        }
    }
    vec![queued, busy, estimate, worst, posted, unhealthy, waited, served]
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// The families of locks, by target.
fn locks(namespaces: &[NamespaceRow]) -> Vec<Family> {
    let mut all = Vec::new();
    for (name, help, of) in LOCKS {
        let mut family = Family::gauge(format!("ldlm_{name}"), (*help).to_owned());
        for row in namespaces {
            family.add(&[("target", row.target.as_str())], of(row) as f64);
        }
        all.push(family);
    }
    for (name, help, of) in &LOCK_COUNTERS {
        let mut family = Family::counter(format!("ldlm_{name}"), (*help).to_owned());
        for row in namespaces {
            family.add(&[("target", row.target.as_str())], of(&row.stats) as f64);
        }
        all.push(family);
    }
    all
}

const LOCKS: &[Counter<NamespaceRow>] = &[
    ("locks", "Locks that clients have or wait for.", |row| row.space.locks as u64),
    ("waiting", "Locks that wait.", |row| row.space.waiting as u64),
    ("called_back", "Locks whose client is called back.", |row| row.space.called_back as u64),
    ("resources", "Resources that have locks.", |row| row.space.resources as u64),
    ("holders", "Clients that have locks.", |row| row.space.holders as u64),
    ("lock_volume", "What a lock is worth to the caches of clients.", |row| row.volume.0),
];
