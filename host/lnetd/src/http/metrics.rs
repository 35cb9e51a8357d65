//! `/metrics`: the numbers of a picture and of the process under the names that Prometheus expects.
//!
//! Names: `lnet_` and what it is; counters end in `_total`, units are base units (`_seconds`,
//! `_bytes`). The counters of the node, of the driver and the tunables are taken from their tables:
//! a row there is a metric here, under a name that [`of_counter`] and [`of_tunable`] make from it.
//! `process_*` are the names of all programs. The formats are in `metrics/text.rs`, the
//! request layer in `metrics/rpc.rs`.

#[path = "metrics/rpc.rs"]
mod rpc;
#[path = "metrics/text.rs"]
mod text;

use lnet::{Doubt, DropReason, NodeStats, Refusal, Row, Tunables};
use lnet_admin::{
    InterfaceState, KindCounts, POOL_NAMES, PeerNiSnapshot, PeerNiState, PeerSnapshot,
};

use self::text::{Family, Kind};
use super::accept::Format;
use super::process::Process;
use crate::picture::{NodePicture, Picture};

/// The text for a picture.
pub(super) fn text(picture: &Picture, process: &Process, format: Format) -> String {
    let mut all = families(picture);
    all.extend(of_process(process));
    text::encode(&all, format)
}

/// Every family with its samples.
fn families(picture: &Picture) -> Vec<Family> {
    let mut build = Family::gauge("build_info", "Always 1; version and profile are its labels.");
    let version = env!("CARGO_PKG_VERSION");
    build.add(&[("version", version), ("profile", picture.global.profile.as_str())], 1);
    let mut all = vec![
        build,
        Family::gauge("configured", "Whether LNet is configured.")
            .value(u32::from(picture.node.is_some())),
        Family::gauge("lnd_timeout", "Time limit of one transmission.")
            .unit("seconds")
            .value(picture.global.lnd_timeout_ms as f64 / 1000.0),
    ];
    let help = "Clients of the control socket, and requests of theirs, that had not the right.";
    all.push(Family::counter("control_refused", help).value(picture.control_refused as f64));
    let tunables = picture.global.tunables.iter();
    all.extend(tunables.filter_map(|t| Some(of_tunable(Tunables::row(&t.name)?, t.value))));
    if let Some(node) = &picture.node {
        all.extend(of_node(node));
        all.extend(of_nis(node));
        all.extend(of_peers(node));
        all.extend(of_routes(node));
    }
    all.extend(picture.rpc.iter().flat_map(rpc::families));
    all
}

/// The metric of a tunable.
fn of_tunable(row: &Row, value: i64) -> Family {
    let family = Family::gauge(format!("tunable_{}", row.name), sentence(row.help));
    let family = match row.unit {
        "" => family,
        "s" => family.unit("seconds"),
        "ms" => family.unit("milliseconds"),
        "%" => family.unit("percent"),
        other => family.unit(other),
    };
    family.value(value as f64)
}

/// The metric of a counter of the node (S-stats-1): `send_count` is `lnet_send_total`, `send_length`
/// is `lnet_send_bytes_total`; what can fall is a gauge.
fn of_counter(name: &str, help: &str, value: u64) -> Family {
    let help = sentence(help);
    let family = if let Some(stem) = name.strip_suffix("_length") {
        Family::counter(stem, help).unit("bytes")
    } else if name.ends_with("_alloc") || name.ends_with("_max") {
        Family::gauge(name, help)
    } else {
        Family::counter(name.strip_suffix("_count").unwrap_or(name), help)
    };
    family.value(value as f64)
}

/// Texts of tables as sentences.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// What every program shows of itself; what the system does not say is left out.
fn of_process(process: &Process) -> Vec<Family> {
    let family = |kind, name, help, value: Option<f64>| {
        let family = Family::process(kind, name, help);
        Some(family.value(value?))
    };
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    let (counter, gauge) = (Kind::Counter, Kind::Gauge);
    let seconds = |family: Family| family.unit("seconds");
    let bytes = |family: Family| family.unit("bytes");
    [
        family(counter, "cpu", "Processor time of the process.", process.cpu_s).map(seconds),
        family(gauge, "open_fds", "File descriptors in use.", whole(process.open_fds)),
        family(gauge, "max_fds", "Limit of file descriptors.", whole(process.max_fds)),
        family(gauge, "resident_memory", "Memory resident.", whole(process.resident_bytes))
            .map(bytes),
        family(gauge, "virtual_memory", "Memory mapped.", whole(process.virtual_bytes)).map(bytes),
        family(gauge, "start_time", "Start of the process, Unix time.", process.start_s)
            .map(seconds),
        family(gauge, "threads", "Threads of the process.", whole(process.threads)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn of_node(node: &NodePicture) -> Vec<Family> {
    let rows = node.stats.rows();
    let value = |name: &str| rows.iter().find(|(row, _)| *row == name).map(|(_, value)| *value);
    let mut all: Vec<Family> = NodeStats::HELP
        .iter()
        .filter_map(|(name, help)| Some(of_counter(name, help, value(name)?)))
        .collect();
    let drops = Family::counter("message_drops", "Messages for us dropped, by reason.");
    all.push(by_reason(drops, &DropReason::ALL, &node.drops, DropReason::name));
    let help = "Rejected announcements of peers.";
    let refused = Family::counter("peer_data_refused", help);
    all.push(by_reason(refused, &Refusal::ALL, &node.disbelieved, Refusal::name));
    let help =
        "Entries of the node's tables that were missing and must exist: a defect of this program.";
    let violations = node.invariant_violations as f64;
    all.push(Family::counter("invariant_violations", help).value(violations));
    let mut suspected =
        Family::gauge("suspected_rails", "Rails that are avoided, by how grave it is.");
    let doubts = [Doubt::Shaky, Doubt::Unproven, Doubt::Slow, Doubt::Silent];
    for doubt in doubts.map(Doubt::name) {
        let count = node.rails.iter().filter(|rail| rail.doubt == doubt).count();
        suspected.add(&[("doubt", doubt)], count as f64);
    }
    all.push(suspected);
    let (ours, theirs) = &node.recovering;
    let mut recovering = Family::gauge("recovering_interfaces", "Interfaces that are recovering.");
    recovering.add(&[("side", "local")], ours.len() as f64);
    recovering.add(&[("side", "peer")], theirs.len() as f64);
    all.push(recovering);
    all.push(
        Family::gauge("fault_rules", "Rules that make faults.").value(node.faults.len() as f64),
    );
    if let Some(sock) = &node.sock {
        let rows = sock.rows();
        all.extend(lnd_sock::Stats::HELP.iter().zip(&rows).map(|((name, help), (_, value))| {
            Family::counter(format!("sock_{name}"), sentence(help)).value(*value as f64)
        }));
        let help = "Connections refused or closed by the TCP driver, by reason.";
        let mut refused = Family::counter("sock_refused", help);
        for (why, count) in sock.refusals() {
            refused.add(&[("reason", why.name())], count as f64);
        }
        all.push(refused);
    }
    all
}

/// Counts by reason. Reasons that have not occurred are there with 0, so that an increase from
/// nothing is one.
fn by_reason<R: Copy + PartialEq>(
    mut family: Family,
    all: &[R],
    counts: &[(R, u64)],
    name: impl Fn(R) -> &'static str,
) -> Family {
    let absent = |reason: &&R| counts.iter().all(|(r, _)| r != *reason);
    let zeros = all.iter().filter(absent).map(|reason| (*reason, 0));
    for (reason, count) in counts.iter().copied().chain(zeros) {
        family.add(&[("reason", name(reason))], count as f64);
    }
    family
}

/// What local and peer interfaces have in common.
struct Traffic {
    messages: Family,
    bytes: Family,
    latency: Family,
    samples: Family,
    longest: Family,
}

impl Traffic {
    fn new(what: &str, whose: &str) -> Self {
        let counter = |name: &str, help: &str| {
            Family::counter(format!("{what}_{name}"), format!("{help} {whose}."))
        };
        Self {
            messages: counter("messages", "Messages sent, received and dropped, by kind, of"),
            bytes: counter("payload", "Payload sent and received by").unit("bytes"),
            latency: counter("operation_time", "Time that operations took in all, of")
                .unit("seconds"),
            samples: counter("operations", "Operations that were timed, of"),
            longest: Family::gauge(
                format!("{what}_operation_longest"),
                format!("Longest that an operation took, of {whose}."),
            )
            .unit("seconds"),
        }
    }

    fn add(
        &mut self,
        labels: &[(&'static str, &str)],
        stats: &lnet_admin::Traffic,
        (sent, received): (u64, u64),
    ) {
        let with = |more: &[(&'static str, &'static str)]| {
            labels.iter().copied().chain(more.iter().copied()).collect::<Vec<_>>()
        };
        let directions =
            [("sent", &stats.sent), ("received", &stats.received), ("dropped", &stats.dropped)];
        for (direction, kinds) in directions {
            for (kind, count) in by_kind(kinds) {
                self.messages.add(&with(&[("direction", direction), ("kind", kind)]), count);
            }
        }
        self.bytes.add(&with(&[("direction", "sent")]), sent as f64);
        self.bytes.add(&with(&[("direction", "received")]), received as f64);
        let operations = [
            ("put_egress", &stats.put_egress),
            ("get_rtt", &stats.get_rtt),
            ("put_ack", &stats.put_ack),
        ];
        for (operation, latency) in operations {
            let labels = with(&[("operation", operation)]);
            self.latency.add(&labels, latency.sum_nsec as f64 / 1e9);
            self.samples.add(&labels, latency.samples);
            self.longest.add(&labels, latency.max_nsec as f64 / 1e9);
        }
    }

    fn families(self) -> [Family; 5] {
        [self.messages, self.bytes, self.latency, self.samples, self.longest]
    }
}

fn by_kind(kinds: &KindCounts) -> [(&'static str, u32); 4] {
    [("put", kinds.put), ("get", kinds.get), ("reply", kinds.reply), ("ack", kinds.ack)]
}

fn of_nis(node: &NodePicture) -> Vec<Family> {
    let mut traffic = Traffic::new("ni", "a local interface");
    let mut up = Family::gauge("ni_up", "Whether a local interface is up.");
    let mut health = Family::gauge("ni_health", "Health of a local interface, 0 to 1000.");
    let mut credits =
        Family::gauge("ni_credits", "Free credits of a local interface; below 0 messages wait.");
    let mut least = Family::gauge("ni_credits_least", "The least credits that were ever free.");
    let mut failures =
        Family::counter("ni_failures", "Failures charged to a local interface, by class.");
    let mut links = Family::counter("ni_link_downs", "Times that the link went down.");
    for net in &node.nets {
        for ni in &net.nis {
            let (name, nid) = (net.net.to_string(), ni.nid.to_string());
            let device = ni.interface.as_deref().unwrap_or_default();
            let labels = [("net", name.as_str()), ("nid", &nid), ("interface", device)];
            up.add(&labels, u32::from(ni.up));
            let Some(d) = ni.detail.as_deref() else { continue };
            health.add(&labels, d.health.value);
            credits.add(&labels, d.more.tx_available);
            least.add(&labels, d.more.tx_min);
            links.add(&labels, d.more.usage.downs);
            traffic.add(&labels, &d.traffic, d.more.bytes);
            for (class, count) in d.health.classes() {
                let [a, b, c] = labels;
                failures.add(&[a, b, c, ("class", class)], count);
            }
        }
    }
    let mut all = vec![up, health, credits, least, failures, links];
    all.extend(traffic.families());
    all
}

fn of_peers(node: &NodePicture) -> Vec<Family> {
    let (peers, peer_nis) = node.peer_count;
    let shown: usize = node.peers.iter().map(|p| p.nis.len()).sum();
    let mut traffic = Traffic::new("peer_ni", "an interface of a peer");
    let mut state = Family::gauge(
        "peer_ni_up",
        "Whether an interface of a gateway or of a router's peer is up.",
    );
    let mut health = Family::gauge("peer_ni_health", "Health of a peer's interface, 0 to 1000.");
    let mut credits = Family::gauge(
        "peer_ni_credits",
        "Free credits towards a peer's interface; below 0 messages wait.",
    );
    let mut queued =
        Family::gauge("peer_ni_queued", "Bytes that wait for a peer's interface.").unit("bytes");
    let mut failures =
        Family::counter("peer_ni_failures", "Failures charged to a peer's interface, by class.");
    let help = "Whether a peer has an interface that is up with health above 0; nothing for a peer \
                that was never reached.";
    let mut any = Family::gauge("peer_up", help);
    for peer in &node.peers {
        let primary = peer.primary.to_string();
        // One that was never reached is neither: `peer_nis_by_state` has it as unknown.
        if peer.was_reached() {
            any.add(&[("peer", &primary)], u32::from(peer.nis.iter().any(is_usable)));
        }
        for ni in &peer.nis {
            let nid = ni.nid.to_string();
            let labels = [("peer", primary.as_str()), ("nid", nid.as_str())];
            match ni.state {
                PeerNiState::NotWatched => {}
                PeerNiState::Up => state.add(&labels, 1),
                PeerNiState::Down => state.add(&labels, 0),
            }
            let Some(d) = ni.detail.as_deref() else { continue };
            health.add(&labels, d.health.value);
            credits.add(&labels, d.credits.tx_available);
            queued.add(&labels, d.credits.tx_queue_bytes as f64);
            traffic.add(&labels, &d.traffic, d.bytes);
            for (class, count) in d.health.classes() {
                let [a, b] = labels;
                failures.add(&[a, b, ("class", class)], count);
            }
        }
    }
    let mut all = vec![
        by_state(node),
        any,
        Family::gauge("peers", "Peers known.").value(peers as f64),
        Family::gauge("peer_nis", "Interfaces of peers known.").value(peer_nis as f64),
        Family::gauge(
            "peer_nis_left_out",
            "Interfaces of peers that have no metrics here: too many.",
        )
        .value(peer_nis.saturating_sub(shown) as f64),
        state,
        health,
        credits,
        queued,
        failures,
    ];
    all.extend(traffic.families());
    all
}

/// How many interfaces of peers are in which state.
fn by_state(node: &NodePicture) -> Family {
    let help = "Interfaces of peers by state, of those that have metrics here.";
    let mut family = Family::gauge("peer_nis_by_state", help);
    let suspects = node.suspects();
    let of_peer = |peer: &PeerSnapshot| {
        let reached = peer.was_reached();
        let state = |ni: &PeerNiSnapshot| ni.interface_state(reached, suspects.contains(&ni.nid));
        peer.nis.iter().map(state).collect::<Vec<_>>()
    };
    let states: Vec<InterfaceState> = node.peers.iter().flat_map(of_peer).collect();
    for state in InterfaceState::ALL {
        let count = states.iter().filter(|there| **there == state).count();
        family.add(&[("state", state.name())], count as f64);
    }
    family
}

/// Whether messages can be expected to arrive: not reported down, and health above 0.
fn is_usable(ni: &PeerNiSnapshot) -> bool {
    ni.detail.as_ref().is_some_and(|d| !d.reported_down && d.health.value > 0)
}

fn of_routes(node: &NodePicture) -> Vec<Family> {
    let mut up = Family::gauge("route_up", "Whether a route can be used.");
    for route in &node.routes {
        let (net, gateway) = (route.net.to_string(), route.gateway.to_string());
        up.add(&[("net", &net), ("gateway", &gateway)], u32::from(route.up));
    }
    let mut buffers = Family::gauge("router_buffers", "Router buffers in existence, by pool.");
    let mut free = Family::gauge(
        "router_buffers_free",
        "Router buffers that are free; below 0 messages wait.",
    );
    for (name, pool) in POOL_NAMES.into_iter().zip(&node.routing.pools) {
        buffers.add(&[("pool", name)], pool.nbuffers);
        free.add(&[("pool", name)], pool.credits);
    }
    vec![up, buffers, free]
}

#[cfg(test)]
#[path = "metrics/tests.rs"]
mod tests;
