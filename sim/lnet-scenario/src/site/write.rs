//! The text of a site's world.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use lnet::{NetTunables, Rule, Tunables};
use lnet_config::setting_text;
use lnet_types::Net;

use super::node::SiteNode;
use crate::units::quoted;

/// How long a site is played at least.
const DURATION_MIN: Duration = Duration::from_secs(60);

/// For news to get around.
const MOMENT: Duration = Duration::from_secs(10);

/// The whole scenario, without work.
pub(super) fn text(name: &str, nodes: &[SiteNode]) -> String {
    let mut text = String::new();
    let profile = most_common(nodes.iter().map(|n| n.profile.name())).unwrap_or_default();
    // Time for an operation to fail and for what follows from it.
    let longest = nodes.iter().map(|n| limit(n) * 2).max().unwrap_or_default();
    let duration = longest.max(DURATION_MIN).as_secs();
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        text,
        "# The world of a site, from what 'lnetctl export' printed on its {} nodes.\n\
         # Exports do not say how long the way between two interfaces is, nor how wide, nor what\n\
         # programs do: latency and workload are assumed, and there for you to change.\n\
         name = {}\nduration = \"{duration}s\"\nprofile = {}",
        nodes.len(),
        quoted(name),
        quoted(profile),
    );
    let warm_up = nodes.iter().filter_map(warm_up).max();
    if let Some(warm_up) = warm_up {
        let _ = writeln!(
            text,
            "# Kernel routers take so long from their start until they forward.\nwarm_up = \"{}s\"",
            warm_up.as_secs()
        );
    }
    let mut common = BTreeMap::new();
    let nets: BTreeMap<Net, Vec<NetTunables>> =
        nodes.iter().flat_map(|n| n.nets.iter()).fold(BTreeMap::new(), |mut all, (net, t)| {
            all.entry(*net).or_insert_with(Vec::new).push(*t);
            all
        });
    for (net, all) in nets {
        let of =
            |t: NetTunables| (t.credits, t.peer_credits, t.peer_buffer_credits, t.peer_timeout);
        let Some((credits, peer_credits, peer_buffer_credits, peer_timeout)) =
            most_common(all.into_iter().map(of))
        else {
            continue;
        };
        let tunables = NetTunables { credits, peer_credits, peer_buffer_credits, peer_timeout };
        let _ = writeln!(
            text,
            "\n[[net]]\nname = \"{net}\"\nlatency = \"50us\"\n# bandwidth = \"10Gbit/s\""
        );
        for (key, value) in differences(tunables, NetTunables::SOCK) {
            let _ = writeln!(text, "{key} = {value}");
        }
        common.insert(net, tunables);
    }
    for n in nodes {
        node(&mut text, n, profile, &common);
    }
    text
}

fn tunables(node: &SiteNode) -> Tunables {
    let mut tunables = Tunables::new(node.profile);
    // They were checked together when the export was read.
    let _ = tunables.set_all(&node.tunables);
    tunables
}

fn limit(node: &SiteNode) -> Duration {
    tunables(node).transaction()
}

/// How long a kernel router announces after its start that it does not forward yet, and a
/// moment for all peers to receive the announcement that it does.
fn warm_up(node: &SiteNode) -> Option<Duration> {
    let t = tunables(node);
    let silence = t.alive_router_check_interval.max(0) + t.router_ping_timeout;
    let waits = node.forwards && !t.conduct.opens_routing_at_once;
    waits.then(|| Duration::from_secs(silence.unsigned_abs()) + MOMENT)
}

fn node(text: &mut String, n: &SiteNode, profile: &str, common: &BTreeMap<Net, NetTunables>) {
    let rails: Vec<String> = n.rails.iter().map(|(nid, _)| format!("\"{nid}\"")).collect();
    let _ = writeln!(text, "\n[[node]]\nname = {}", quoted(&n.name));
    let _ = writeln!(text, "rails = [{}]", rails.join(", "));
    if n.profile.name() != profile {
        let _ = writeln!(text, "profile = {}", quoted(n.profile.name()));
    }
    if n.forwards {
        text.push_str("router = true\n");
    }
    let tunables: Vec<String> = n.tunables.iter().map(|(name, value)| set(name, *value)).collect();
    if !tunables.is_empty() {
        let _ = writeln!(text, "tunables = {{ {} }}", tunables.join(", "));
    }
    let mut lines = Vec::new();
    for (net, tunables) in &n.nets {
        let common = common.get(net).copied().unwrap_or(NetTunables::SOCK);
        let own = differences(*tunables, common);
        if !own.is_empty() {
            let own: Vec<String> =
                own.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            lines.push(format!("{{ name = \"{net}\", {} }}", own.join(", ")));
        }
    }
    list(text, "nets", &lines);
    let route = |r: &lnet_config::RouteAdd| {
        let hops = r.hops.map(|n| format!(", hops = {n}")).unwrap_or_default();
        let priority = match r.priority {
            0 => String::new(),
            n => format!(", priority = {n}"),
        };
        format!("{{ net = \"{}\", gateway = \"{}\"{hops}{priority} }}", r.net, r.gateway)
    };
    list(text, "routes", &n.routes.iter().map(|(r, _)| route(r)).collect::<Vec<_>>());
    let peer = |p: &crate::model::PeerSpec| {
        let nids: Vec<String> = p.nids.iter().map(|nid| format!("\"{nid}\"")).collect();
        let multi_rail = if p.multi_rail { "" } else { ", multi_rail = false" };
        format!("{{ nids = [{}]{multi_rail} }}", nids.join(", "))
    };
    list(text, "peers", &n.peers.iter().map(peer).collect::<Vec<_>>());
    list(text, "udsp", &n.rules.iter().map(rule).collect::<Vec<_>>());
}

fn rule(rule: &Rule) -> String {
    let patterns = [("src", rule.src()), ("dst", rule.dst()), ("rte", rule.rte())];
    let mut parts: Vec<String> = patterns
        .into_iter()
        .filter_map(|(key, p)| Some(format!("{key} = {}", quoted(&p?.to_string()))))
        .collect();
    parts.extend(rule.priority().map(|n| format!("priority = {n}")));
    parts.extend(rule.messages().map(|n| format!("messages = {n}")));
    format!("{{ {} }}", parts.join(", "))
}

/// A tunable as scenarios have it: a number, or a word where it has words.
fn set(name: &str, value: i64) -> String {
    let text = setting_text(name, value);
    match text.parse::<i64>() {
        Ok(n) => format!("{name} = {n}"),
        Err(_) => format!("{name} = {}", quoted(&text)),
    }
}

fn list(text: &mut String, key: &str, items: &[String]) {
    match items {
        [] => {}
        [one] => {
            let _ = writeln!(text, "{key} = [{one}]");
        }
        many => {
            let _ = writeln!(text, "{key} = [\n    {},\n]", many.join(",\n    "));
        }
    }
}

fn differences(these: NetTunables, those: NetTunables) -> Vec<(&'static str, i64)> {
    let rows = |t: NetTunables| {
        [
            ("credits", i64::from(t.credits)),
            ("peer_credits", i64::from(t.peer_credits)),
            ("peer_buffer_credits", i64::from(t.peer_buffer_credits)),
            ("peer_timeout", i64::from(t.peer_timeout)),
        ]
    };
    rows(these).into_iter().zip(rows(those)).filter(|(a, b)| a != b).map(|(a, _)| a).collect()
}

/// What most have; of several, the least.
fn most_common<T: Ord + Copy>(all: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts.into_iter().find(|(_, n)| *n == most).map(|(one, _)| one)
}
