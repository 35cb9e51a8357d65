//! Every line of the text is read back and held against the tables that it was made from.

use std::collections::BTreeMap;

use lnet::{Node, NodeConfig, Profile, Tunables};
use lnet_types::Instant;

use super::*;

/// What the lines of a text say.
#[derive(Default)]
struct Read {
    kinds: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
    units: BTreeMap<String, String>,
    /// By name: labels and value.
    samples: BTreeMap<String, Vec<(String, f64)>>,
}

/// Reads a text, strictly: any line that is not as the format has it ends the test.
fn read(text: &str) -> Read {
    let mut read = Read::default();
    let is_name = |name: &str| {
        let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.starts_with("lnet_") && name.chars().all(ok), "name: {name}");
        assert!(!name.contains("__"), "name: {name}");
    };
    let mut lines = text.lines().peekable();
    let mut family = String::new();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.peek().is_none(), "there are lines behind the end");
            return read;
        }
        if let Some(meta) = line.strip_prefix("# ") {
            let (what, rest) = meta.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            is_name(name);
            let map = match what {
                "HELP" => &mut read.helps,
                "TYPE" => &mut read.kinds,
                "UNIT" => &mut read.units,
                other => panic!("{other}: {line}"),
            };
            assert!(map.insert(name.to_owned(), value.to_owned()).is_none(), "twice: {line}");
            family = name.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (series, ""),
        };
        is_name(name);
        let base = name.strip_suffix("_total").unwrap_or(name);
        assert_eq!(base, family, "a sample outside of its family: {line}");
        let counts = read.kinds[base] == "counter";
        assert_eq!(counts, name.ends_with("_total"), "{line}");
        let value: f64 = value.parse().expect(line);
        assert!(!counts || value >= 0.0, "{line}");
        let samples = read.samples.entry(name.to_owned()).or_default();
        assert!(!samples.iter().any(|(l, _)| l == labels), "twice: {line}");
        samples.push((labels.to_owned(), value));
    }
    panic!("no end");
}

fn picture() -> Picture {
    let tunables = Tunables::new(Profile::Default);
    let config =
        NodeConfig { seed: 1, interface_cookie: 1, ping_seq: 0, tunables: tunables.clone() };
    let node = Node::new(config, Instant::ZERO);
    let mut stats = node.stats();
    stats.send_count = 7;
    stats.send_length = 4096;
    stats.msgs_alloc = 3;
    Picture {
        profile: Profile::Default,
        lnd_timeout_s: tunables.lnd_timeout().as_secs_f64(),
        tunables: Tunables::TABLE
            .iter()
            .map(|row| (row, tunables.value(row.name).unwrap()))
            .collect(),
        control_refused: 3,
        node: Some(NodePicture {
            at: Instant::ZERO,
            nets: node.net_views(),
            peers: Vec::new(),
            peer_count: (10, 12),
            routes: node.route_views(),
            routing: node.routing_view(),
            stats,
            drops: vec![(lnet::DropReason::NoMatch, 5)],
            disbelieved: vec![(lnet::Refusal::Claimed, 2)],
            invariant_violations: 1,
            sock: None,
            turned_away: Vec::new(),
            resends: Vec::new(),
            faults: Vec::new(),
            rails: Vec::new(),
            recovering: (Vec::new(), Vec::new()),
        }),
    }
}

#[test]
fn every_line_is_as_the_format_has_it_and_every_family_is_told_about() {
    let read = read(&text(&picture()));
    for name in read.kinds.keys() {
        assert!(read.helps[name].len() > 5 && read.helps[name].ends_with('.'), "{name}");
        assert!(!read.helps[name].ends_with(".."), "{name}: {}", read.helps[name]);
    }
    for (name, unit) in &read.units {
        assert!(name.ends_with(unit), "{name}: {unit}");
    }
    assert_eq!(read.samples["lnet_send_total"], [(String::new(), 7.0)]);
    assert_eq!(read.samples["lnet_send_bytes_total"], [(String::new(), 4096.0)]);
    assert_eq!(read.samples["lnet_msgs_alloc"], [(String::new(), 3.0)]);
    assert_eq!(read.samples["lnet_peer_nis_left_out"], [(String::new(), 12.0)]);
    let claimed = "reason=\"claimed\"".to_owned();
    assert_eq!(read.samples["lnet_peer_data_refused_total"], [(claimed, 2.0)]);
    assert_eq!(read.samples["lnet_invariant_violations_total"], [(String::new(), 1.0)]);
    let reason = "reason=\"no_match\"".to_owned();
    assert_eq!(read.samples["lnet_message_drops_total"], [(reason, 5.0)]);
    let lo = "net=\"lo\",nid=\"0@lo\",interface=\"\"".to_owned();
    assert_eq!(read.samples["lnet_ni_up"], [(lo, 1.0)]);
}

#[test]
fn each_row_of_the_tables_is_a_metric_and_nothing_is_there_twice() {
    let picture = picture();
    let read = read(&text(&picture));
    for (row, value) in &picture.tunables {
        let suffix = match row.unit {
            "" => "",
            "s" => "_seconds",
            "ms" => "_milliseconds",
            "%" => "_percent",
            other => panic!("{other}: a unit that Prometheus has no name for yet"),
        };
        let name = format!("lnet_tunable_{}{suffix}", row.name);
        assert_eq!(read.samples[&name], [(String::new(), *value as f64)], "{name}");
        assert_eq!(read.kinds[&name], "gauge");
    }
    let node = picture.node.as_ref().unwrap();
    assert_eq!(NodeStats::HELP.len(), node.stats.rows().len());
    for (name, value) in node.stats.rows() {
        let family = of_counter(name, "help", value);
        let total = if matches!(family.kind, MetricType::Counter) { "_total" } else { "" };
        let unit = family.unit.as_ref().map_or(String::new(), |u| format!("_{}", u.as_str()));
        let name = format!("lnet_{}{unit}{total}", family.name);
        assert_eq!(read.samples[&name], [(String::new(), value as f64)], "{name}");
    }
}

#[test]
fn a_daemon_that_is_not_configured_says_so() {
    let read = read(&text(&Picture { node: None, ..picture() }));
    assert_eq!(read.samples["lnet_configured"], [(String::new(), 0.0)]);
    assert!(!read.samples.contains_key("lnet_send_total"));
}
