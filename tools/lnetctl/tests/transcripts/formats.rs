//! Other layouts: JSON, the documents' samples, and recordings of 2.15.8.

use lnetctl::{Format, Session};

use super::rebuild::Recorded;
use super::vector::{Vector, difference};

const OLD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/lnetctl-2.15.8");

fn shown(vector: &Vector, line: &str, format: Format) -> (String, String, i32) {
    let mut daemon = Recorded::from(vector);
    let mut session = Session::new(&mut daemon);
    session.format = format;
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = lnetctl::run(&mut session, &words) & 0xff;
    (session.out, session.err, code)
}

#[test]
fn outputs_of_2_15_are_shown_to_the_byte() {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for name in super::vector::names_in(OLD) {
        let vector = Vector::read_from(OLD, &name);
        let words = vector.words().expect("one call").join(" ");
        compared += 1;
        let (out, err, code) = shown(&vector, &words, Format::V2_15);
        if (out.as_str(), code) != (vector.out.as_str(), vector.exit) {
            wrong.push(format!("{name}: {code} {err} {}", difference(&vector.out, &out)));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= 20, "{compared}");
}

#[test]
fn ug048_the_sample_of_global_show_has_its_seven_keys_in_their_order() {
    let vector = Vector {
        out: "global:\n    numa_range: 0\n    max_interfaces: 200\n    discovery: 1\n    drop_asym_route: 0\n    retry_count: 0\n    transaction_timeout: 5\n    health_sensitivity: 0\n    recovery_interval: 1\n    router_sensitivity: 100\n    response_tracking: 3\n    recovery_limit: 0\n    max_recovery_ping_interval: 900\n".to_owned(),
        ..Vector::read("global-show-default")
    };
    let (out, _, code) = shown(&vector, "global show", Format::Documents);
    let expected = "global:\n    numa_range: 0\n    max_intf: 200\n    discovery: 1\n    retry_count: 0\n    transaction_timeout: 5\n    health_sensitivity: 0\n    recovery_interval: 1\n";
    assert_eq!((out.as_str(), code), (expected, 0));
}

#[test]
fn ug050_the_sample_of_net_show_has_health_at_level_3_and_the_keys_of_its_time() {
    let vector = Vector::read("net-show-v3");
    let (out, _, code) = shown(&vector, "net show -v 3", Format::Documents);
    assert_eq!(code, 0);
    let keys: Vec<&str> = out.lines().map(|line| line.trim_start_matches([' ', '-'])).collect();
    assert!(!keys.contains(&"net type: lo"), "{out}");
    for key in ["tcp bonding: 0", "health value: 1000", "peer_timeout: 180", "dev cpt: -1"] {
        assert!(keys.contains(&key), "{key}: {out}");
    }
    for key in ["put_egress_samples: 0", "fatal_error: 0", "lnd tunables:", "next_ping: 0"] {
        assert!(!keys.contains(&key), "{key}: {out}");
    }
    let (stats, ..) = shown(&Vector::read("stats-show"), "stats show", Format::Documents);
    assert!(stats.contains("resend_count") && !stats.contains("_resends"), "{stats}");
}

#[test]
fn json_is_one_line_for_each_command_with_the_same_keys() {
    let vector = Vector::read("net-show");
    let (out, _, code) = shown(&vector, "net show --json", Format::Today);
    assert_eq!(code, 0);
    assert_eq!(out.lines().count(), 1);
    assert!(
        out.starts_with("{\"net\": [{\"net type\": \"lo\", \"local NI(s)\": [{\"nid\": \"0@lo\""),
        "{out}"
    );
    // Sections of one export are keys of one value.
    let (out, ..) = shown(&Vector::read("export"), "export --json --backup", Format::Today);
    assert_eq!(out.lines().count(), 1);
    for key in ["\"net\": [", "\"peer\": [", "\"global\": {\"numa_range\": 0"] {
        assert!(out.contains(key), "{key}: {out}");
    }
    let (out, ..) = shown(&Vector::read("route-show-empty"), "route show --json", Format::Today);
    assert_eq!(out, "{}\n");
    let (out, err, code) =
        shown(&Vector::read("global-show-default"), "global show --format old", Format::Today);
    assert_eq!((out.as_str(), code), ("", 234));
    assert!(err.contains("--format 'old': expected default, 2.15 or documents"), "{err}");
}
