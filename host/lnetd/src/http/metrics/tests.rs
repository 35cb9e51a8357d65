//! Every line of the text is read back and held against the tables that it was made from.

use std::collections::BTreeMap;

use lnet::{Profile, Tunables};
use lnet_admin::{
    GlobalSnapshot, HistogramSnapshot, NetSnapshot, NiDetail, NiSnapshot, PeerFlags, PeerNiDetail,
    PeerNiSnapshot, PeerNiState, PeerSnapshot, RailSnapshot, RoutingSnapshot, ServiceSnapshot,
    StatsSnapshot, TargetSnapshot,
};
use lnet_config::Setting;
use lnet_types::{Instant, Net, Nid};
use lustre_rt::{ClientStats, LockStats, NamespaceRow, ServerStats, SpaceView};

use super::*;
use crate::picture::RpcPicture;

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
fn read(text: &str, format: Format) -> Read {
    let open = format == Format::OpenMetrics;
    assert_eq!(text.ends_with("\n# EOF\n"), open);
    let mut read = Read::default();
    let is_name = |name: &str| {
        let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let ours = name.starts_with("lnet_") || name.starts_with("process_");
        assert!(ours && name.chars().all(ok), "name: {name}");
        assert!(!name.contains("__"), "name: {name}");
    };
    let mut lines = text.lines().peekable();
    let mut family = String::new();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.peek().is_none(), "there are lines behind the end");
            break;
        }
        if let Some(meta) = line.strip_prefix("# ") {
            let (what, rest) = meta.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            is_name(name);
            let map = match what {
                "HELP" => &mut read.helps,
                "TYPE" => &mut read.kinds,
                "UNIT" if open => &mut read.units,
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
        let base = if open { name.strip_suffix("_total").unwrap_or(name) } else { name };
        let parts = ["_bucket", "_sum", "_count"];
        let stem = parts.iter().find_map(|part| base.strip_suffix(part));
        let of_histogram =
            |stem: &&str| read.kinds.get(*stem).is_some_and(|kind| kind == "histogram");
        let base = stem.filter(of_histogram).unwrap_or(base);
        assert_eq!(base, family, "a sample outside of its family: {line}");
        let counts = read.kinds[base] == "counter";
        assert_eq!(counts, name.ends_with("_total"), "{line}");
        let value: f64 = value.parse().expect(line);
        assert!(!counts || value >= 0.0, "{line}");
        let samples = read.samples.entry(name.to_owned()).or_default();
        assert!(!samples.iter().any(|(l, _)| l == labels), "twice: {line}");
        samples.push((labels.to_owned(), value));
    }
    assert!(read.kinds.keys().eq(read.helps.keys()), "each family has a type and a help");
    read
}

/// The text in one format, read back.
fn read_as(picture: &Picture, format: Format) -> Read {
    read(&text(picture, &PROCESS, format), format)
}

fn read_open(picture: &Picture) -> Read {
    read_as(picture, Format::OpenMetrics)
}

const PROCESS: Process = Process {
    cpu_s: Some(1.5),
    threads: Some(9),
    virtual_bytes: Some(1 << 20),
    resident_bytes: Some(4096),
    open_fds: Some(12),
    max_fds: Some(1024),
    start_s: Some(1_700_000_000.25),
};

fn rpc_picture() -> RpcPicture {
    let (mut client, mut server) = (ClientStats::default(), ServerStats::default());
    (client.resent, server.served, server.evictions) = (4, 11, 2);
    let service = ServiceSnapshot {
        name: "target".to_owned(),
        portal: 28,
        policy: "fifo".to_owned(),
        policy_high: None,
        delayed: 6,
        delayed_high: 0,
        in_flight: 1,
        posted: 64,
        estimate_ms: 5250,
        worst_ms: 0,
        worst_ms_ago: None,
        bins_ms: Vec::new(),
        unhealthy_in_ms: None,
        buffers: 64,
        behind_ms_ago: None,
        waited: HistogramSnapshot { classes: vec![(Some(10), 3), (None, 1)], sum_ms: 2500 },
        served: HistogramSnapshot::default(),
    };
    let services = vec![service];
    let target = TargetSnapshot {
        name: "kv-1".to_owned(),
        kind: "kv".to_owned(),
        dir: "/srv".to_owned(),
        state: "serving".to_owned(),
        failure: None,
        instance: 1,
        clients: 3,
        last_transno: 9,
        committed: 7,
        uncommitted: 2,
        recovery: None,
    };
    let (mut space, mut stats) = (SpaceView::default(), LockStats::default());
    (space.waiting, stats.blocking) = (2, 9);
    let locks = NamespaceRow { target: "locks".to_owned(), space, stats, volume: (36_000, 10) };
    RpcPicture {
        client,
        server,
        targets: vec![target],
        import_states: vec![("FULL", 2), ("DISCONN", 1)],
        imports: Vec::new(),
        export_count: 3,
        exports: Vec::new(),
        evictions: Vec::new(),
        rules: 5,
        namespaces: vec![locks],
        services,
    }
}

fn picture() -> Picture {
    let tunables = Tunables::new(Profile::Default);
    let stats = StatsSnapshot {
        send_count: 7,
        send_length: 4096,
        msgs_alloc: 3,
        ..StatsSnapshot::default()
    };
    let rows = Tunables::TABLE.iter();
    let setting = |row: &Row| Setting::new(row.name, tunables.value(row.name).unwrap());
    let detail = Some(Box::new(NiDetail::default()));
    let lo = NiSnapshot { nid: Nid::LOOPBACK, up: true, interface: None, detail };
    Picture {
        global: GlobalSnapshot {
            tunables: rows.map(setting).collect(),
            profile: "default".to_owned(),
            ..GlobalSnapshot::default()
        },
        control_refused: 3,
        rpc: Some(rpc_picture()),
        node: Some(NodePicture {
            at: Instant::ZERO,
            nets: vec![NetSnapshot {
                net: Net::LO,
                nis: vec![lo],
                sum: None,
                accept_from: Vec::new(),
                refused: Vec::new(),
            }],
            peers: Vec::new(),
            peer_count: (10, 12),
            routes: Vec::new(),
            routing: RoutingSnapshot::default(),
            stats,
            drops: vec![(DropReason::NoMatch, 5)],
            disbelieved: vec![(Refusal::Claimed, 2)],
            invariant_violations: 1,
            sock: None,
            resends: Vec::new(),
            faults: Vec::new(),
            rails: Vec::new(),
            recovering: (Vec::new(), Vec::new()),
        }),
    }
}

#[test]
fn every_line_has_the_format_and_every_family_has_help_and_type() {
    let read = read_open(&picture());
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
    let refused = &read.samples["lnet_peer_data_refused_total"];
    assert!(refused.contains(&("reason=\"claimed\"".to_owned(), 2.0)), "{refused:?}");
    assert!(refused.contains(&("reason=\"stale\"".to_owned(), 0.0)), "{refused:?}");
    assert_eq!(read.samples["lnet_invariant_violations_total"], [(String::new(), 1.0)]);
    let drops = &read.samples["lnet_message_drops_total"];
    assert!(drops.contains(&("reason=\"no_match\"".to_owned(), 5.0)), "{drops:?}");
    assert!(drops.contains(&("reason=\"stopping\"".to_owned(), 0.0)), "{drops:?}");
    let lo = "net=\"lo\",nid=\"0@lo\",interface=\"\"".to_owned();
    assert_eq!(read.samples["lnet_ni_up"], [(lo, 1.0)]);
}

#[test]
fn each_row_of_the_tables_is_a_metric_and_nothing_is_there_twice() {
    let picture = picture();
    let read = read_open(&picture);
    for setting in &picture.global.tunables {
        let (row, value) = (Tunables::row(&setting.name).unwrap(), &setting.value);
        let suffix = match row.unit {
            "" => "",
            "s" => "_seconds",
            "ms" => "_milliseconds",
            "%" => "_percent",
            "bytes" => "_bytes",
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
        let total = if family.kind == Kind::Counter { "_total" } else { "" };
        let unit = family.unit.map_or(String::new(), |u| format!("_{u}"));
        let name = format!("{}{unit}{total}", family.name);
        assert_eq!(read.samples[&name], [(String::new(), value as f64)], "{name}");
    }
}

#[test]
fn request_layer_in_use_has_its_counts_and_its_services_by_name() {
    let read = read_open(&picture());
    let service = "service=\"target\"";
    for (name, labels, value) in [
        ("lnet_rpc_targets", "", 1.0),
        ("lnet_rpc_imports", "", 3.0),
        ("lnet_rpc_exports", "", 3.0),
        ("lnet_rpc_target_serving", "target=\"kv-1\"", 1.0),
        ("lnet_rpc_target_uncommitted", "target=\"kv-1\"", 2.0),
        ("lnet_rpc_service_queue_wait_seconds_sum", service, 2.5),
        ("lnet_rpc_service_queue_wait_seconds_count", service, 4.0),
        ("lnet_rpc_service_request_buffers", service, 64.0),
        ("lnet_rpc_service_unhealthy", service, 0.0),
        ("lnet_rpc_fault_rules", "", 5.0),
        ("lnet_rpc_client_resent_total", "", 4.0),
        ("lnet_rpc_client_calls_total", "", 0.0),
        ("lnet_rpc_server_served_total", "", 11.0),
        ("lnet_ldlm_waiting", "target=\"locks\"", 2.0),
        ("lnet_ldlm_blocking_callbacks_total", "target=\"locks\"", 9.0),
        ("lnet_ldlm_lock_volume", "target=\"locks\"", 36_000.0),
        ("lnet_rpc_server_evictions_total", "", 2.0),
        ("lnet_rpc_service_queued", service, 6.0),
        ("lnet_rpc_service_in_flight", service, 1.0),
        ("lnet_rpc_service_estimate_seconds", service, 5.25),
    ] {
        assert_eq!(read.samples[name], [(labels.to_owned(), value)], "{name}");
    }
    let classes = &read.samples["lnet_rpc_service_queue_wait_seconds_bucket"];
    let class = |le: &str| format!("{service},le=\"{le}\"");
    let expected = [(class("0.01"), 3.0), (class("+Inf"), 4.0)];
    assert_eq!(classes, &expected, "each class counts those below it");
    let states = &read.samples["lnet_rpc_imports_by_state"];
    assert_eq!(states[1], ("state=\"DISCONN\"".to_owned(), 1.0));
    let read = read_open(&Picture { rpc: None, ..picture() });
    assert!(!read.samples.keys().any(|name| name.starts_with("lnet_rpc_")));
}

#[test]
fn a_daemon_that_is_not_configured_says_so() {
    let read = read_open(&Picture { node: None, ..picture() });
    assert_eq!(read.samples["lnet_configured"], [(String::new(), 0.0)]);
    assert!(!read.samples.contains_key("lnet_send_total"));
}

#[test]
fn both_formats_have_the_same_samples_and_families_differ_by_total_alone() {
    let (open, classic) = (read_open(&picture()), read_as(&picture(), Format::Classic));
    assert_eq!(open.samples, classic.samples);
    assert!(!open.units.is_empty() && classic.units.is_empty());
    let of_classic = |(name, kind): (&String, &String)| {
        let total = if kind == "counter" { "_total" } else { "" };
        (format!("{name}{total}"), kind.clone())
    };
    let renamed: BTreeMap<String, String> = open.kinds.iter().map(of_classic).collect();
    assert_eq!(renamed, classic.kinds);
    assert_eq!(classic.kinds["lnet_send_total"], "counter");
    assert_eq!(open.kinds["lnet_send"], "counter");
}

#[test]
fn the_process_has_the_names_that_all_programs_have_and_what_is_unknown_is_left_out() {
    let read = read_as(&picture(), Format::Classic);
    for (name, kind, value) in [
        ("process_cpu_seconds_total", "counter", 1.5),
        ("process_open_fds", "gauge", 12.0),
        ("process_max_fds", "gauge", 1024.0),
        ("process_resident_memory_bytes", "gauge", 4096.0),
        ("process_virtual_memory_bytes", "gauge", 1_048_576.0),
        ("process_start_time_seconds", "gauge", 1_700_000_000.25),
        ("process_threads", "gauge", 9.0),
    ] {
        assert_eq!(read.samples[name], [(String::new(), value)], "{name}");
        assert_eq!(read.kinds[name], kind, "{name}");
    }
    let without = text(&picture(), &Process::default(), Format::Classic);
    assert!(!without.contains("process_"), "{without}");
}

#[test]
fn backslashes_quotes_and_ends_of_lines_are_escaped_as_each_format_has_it() {
    let mut family = Family::gauge("x", "a\\b\"c\nd");
    family.add(&[("k", "a\\b\"c\nd"), ("l", "")], 1);
    let sample = "lnet_x{k=\"a\\\\b\\\"c\\nd\",l=\"\"} 1\n";
    let type_ = "# TYPE lnet_x gauge\n";
    let classic = text::encode(&[family], Format::Classic);
    assert_eq!(classic, format!("# HELP lnet_x a\\\\b\"c\\nd\n{type_}{sample}"));
    let help = Family::gauge("x", "a\"b");
    let open = text::encode(&[help], Format::OpenMetrics);
    assert_eq!(open, format!("# HELP lnet_x a\\\"b\n{type_}# EOF\n"));
}

#[test]
fn interfaces_of_peers_are_counted_under_the_words_of_the_other_views() {
    let peer = |host: u8, health: i32, reported_down: bool| {
        let mut detail = PeerNiDetail { reported_down, ..PeerNiDetail::default() };
        detail.health.value = health;
        let nid: Nid = format!("10.0.0.{host}@tcp").parse().unwrap();
        let state = PeerNiState::NotWatched;
        PeerSnapshot {
            primary: nid,
            multi_rail: true,
            state: PeerFlags::ANSWERED,
            own: false,
            nis: vec![PeerNiSnapshot { nid, state, detail: Some(Box::new(detail)) }],
            sum: None,
        }
    };
    let mut picture = picture();
    let node = picture.node.as_mut().unwrap();
    node.peers = vec![peer(1, 1000, false), peer(2, 0, false), peer(3, 1000, true)];
    node.peers.push(PeerSnapshot { state: 0, ..peer(4, 1000, false) });
    node.peers.push(peer(5, 1000, false));
    let (local, suspect) = (node.peers[0].primary, node.peers[4].primary);
    node.rails = vec![RailSnapshot { local, peer: suspect, doubt: "silent".to_owned(), for_ms: 1 }];
    let read = read_open(&picture);
    let of = |state: &str| (format!("state=\"{state}\""), 1.0);
    let all = ["up", "degraded", "suspect", "unknown", "down"].map(of);
    assert_eq!(read.samples["lnet_peer_nis_by_state"], all);
    let usable: Vec<f64> = read.samples["lnet_peer_up"].iter().map(|(_, up)| *up).collect();
    assert_eq!(usable, [1.0, 0.0, 0.0, 1.0], "the fourth was never reached: neither up nor down");
}
