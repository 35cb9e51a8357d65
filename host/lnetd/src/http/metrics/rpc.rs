//! The metrics of the request layer, taken from its two records of counts.

use lustre_rt::{ClientStats, ServerStats};

use super::text::Family;
use crate::picture::RpcPicture;

/// A counter: its name, its help, and where it is.
type Counter<S> = (&'static str, &'static str, fn(&S) -> u64);

const CLIENT: [Counter<ClientStats>; 12] = [
    ("calls", "Calls of programs.", |s| s.calls),
    ("sent", "Requests sent, copies among them.", |s| s.sent),
    ("resent", "Copies of requests sent.", |s| s.resent),
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

const SERVER: [Counter<ServerStats>; 16] = [
    ("served", "Requests served.", |s| s.served),
    ("copies_folded", "Copies of requests under way.", |s| s.folded),
    ("replies_repeated", "Copies of requests that had a reply.", |s| s.answered_again),
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
    ("no_memory", "Replies not sent for want of memory.", |s| s.no_memory),
    ("callbacks", "Requests of servers to this node.", |s| s.callbacks),
    ("no_buffer", "Times that no request buffer could be posted.", |s| s.no_buffer),
];

/// The families of the request layer.
pub(super) fn families(rpc: &RpcPicture) -> Vec<Family> {
    let count = |name: &str, help: &str, n: usize| {
        Family::gauge(format!("rpc_{name}"), help.to_owned()).value(n as f64)
    };
    let mut all = vec![
        count("targets", "Targets that this node serves.", rpc.targets),
        count("imports", "Connections of this node to targets.", rpc.imports),
        count("exports", "Clients of the targets of this node.", rpc.exports),
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
    let mut queued = Family::gauge("rpc_service_queued", "Requests that wait.");
    let mut busy = Family::gauge("rpc_service_in_flight", "Requests that are being served.");
    let help = "How long a request takes, as clients hear it.";
    let mut estimate = Family::gauge("rpc_service_estimate", help).unit("seconds");
    for service in &rpc.services {
        let labels = [("service", service.name.as_str())];
        queued.add(&labels, service.delayed as f64);
        busy.add(&labels, service.in_flight as f64);
        estimate.add(&labels, service.estimate_ms as f64 / 1000.0);
    }
    all.extend([queued, busy, estimate]);
    all
}
