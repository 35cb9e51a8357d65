//! What stands above LNet over each driver: the scenarios of requests and locks, which their files play by
//! messages, over streams of TCP and over adapters (PA-001).

use std::sync::Arc;

use lnet_scenario::Fidelity;

use super::scenarios::{load, must_hold};

/// The scenarios of requests and locks.
fn names() -> Vec<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let names = files.filter_map(|file| {
        let name = file.to_str()?.strip_suffix(".toml")?;
        (name.starts_with("rpc-") || name.starts_with("lock-")).then(|| name.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert!(names.len() >= 24, "{names:?}");
    names
}

#[test]
fn pa001_scenarios_of_requests_and_locks_hold_over_streams() {
    for name in names() {
        let mut scenario = (*load(&name)).clone();
        scenario.set_fidelity(Fidelity::Bytes).unwrap();
        must_hold(&Arc::new(scenario), None);
    }
}

#[test]
fn pa001_scenarios_of_requests_and_locks_hold_over_adapters() {
    for name in names() {
        let path = format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| match line {
            _ if line.starts_with("fidelity") => String::new(),
            _ if line.starts_with("duration") => format!("{line}\nfidelity = \"bytes\""),
            "name = \"tcp\"" => "name = \"o2ib\"\ntransport = \"rdma\"".to_owned(),
            "name = \"tcp1\"" => "name = \"o2ib1\"\ntransport = \"rdma\"".to_owned(),
            _ => line.replace("\"tcp", "\"o2ib"),
        });
        let text: String = lines.map(|line| line + "\n").collect();
        assert!(text.contains("rdma"), "{name}");
        must_hold(&Arc::new(lnet_scenario::parse(&path, &text).unwrap()), None);
    }
}
