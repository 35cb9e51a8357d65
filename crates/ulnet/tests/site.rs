//! What `ulnet sim` tells of real nodes and real sites: replays, worlds from exports, what-if.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use core::time::Duration;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use lnet::{NetTunables, NiSpec, Node, NodeConfig, Profile, Recording, Tunables};
use lnet_types::{Instant, Pid, ProcessId};

fn ulnet(args: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_ulnet")).current_dir(root).args(args).output().unwrap()
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// A directory of its own for one test, gone with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ulnet-site-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a node did that pinged somebody who never answers.
fn recording() -> Recording {
    let tunables = Tunables::new(Profile::Default);
    let mut node = Node::new(NodeConfig { seed: 7, interface_cookie: 11, tunables }, Instant::ZERO);
    node.record(1000);
    let spec = NiSpec {
        nid: "10.0.0.1@tcp".parse().unwrap(),
        interface: Some("eth0".to_owned()),
        tunables: NetTunables::SOCK,
        lnd_timeout: None,
    };
    node.add_ni(Instant::ZERO, spec).unwrap();
    let target = ProcessId { nid: "10.0.0.2@tcp".parse().unwrap(), pid: Pid(12345) };
    node.ping(Instant::from_secs(1), target, None, Duration::from_secs(3));
    while node.poll_output().is_some() {}
    for s in 2..20 {
        node.handle_timeout(Instant::from_secs(s));
        while node.poll_output().is_some() {}
        while node.poll_report().is_some() {}
    }
    node.recording().unwrap()
}

#[test]
fn a_recording_is_replayed_and_the_node_is_shown_as_it_was() {
    let dir = Dir::new("replay");
    let file = dir.write("flight", &recording().to_bytes());
    let o = ulnet(&["sim", "replay", &file]);
    let said = out(&o);
    assert_eq!(o.status.code(), Some(0), "{said}{}", err(&o));
    assert!(said.contains("18 HandleTimeout") && said.contains("1 Ping"), "{said}");
    assert!(said.contains("interface    10.0.0.1@tcp: up, health 1000"), "{said}");
    assert!(said.contains("peer         10.0.0.2@tcp: "), "{said}");
    assert!(said.contains("counter      msgs_max 1"), "{said}");
    let o = ulnet(&["sim", "replay", &file, "--calls"]);
    assert!(out(&o).contains("call       1 AddNi { now: "), "{}", out(&o));
}

#[test]
fn a_replay_that_comes_out_differently_names_the_difference() {
    let dir = Dir::new("differs");
    // The second call, which is the ping, did not happen.
    let mut changed = serde_json::to_value(recording()).unwrap();
    changed["stretches"][0]["calls"].as_array_mut().unwrap().remove(1);
    let changed: Recording = serde_json::from_value(changed).unwrap();
    let file = dir.write("flight", &changed.to_bytes());
    let o = ulnet(&["sim", "replay", &file]);
    assert_eq!(o.status.code(), Some(1), "{}{}", out(&o), err(&o));
    let said = out(&o);
    assert!(said.contains("DIFFERENT    call 2 (HandleTimeout): output 1 was not"), "{said}");
}

#[test]
fn what_is_no_recording_of_this_version_is_refused_with_the_name_of_the_file() {
    let dir = Dir::new("foreign");
    let good = recording().to_bytes();
    let mut other = good.clone();
    other[8] += 1;
    for (name, bytes, what) in [
        ("foreign", &b"hello"[..], "not a recording of a ulnet node"),
        ("cut", &good[..good.len() - 1], "the recording is damaged"),
        ("other", &other[..], "which replays its own recordings only"),
    ] {
        let file = dir.write(name, bytes);
        let o = ulnet(&["sim", "replay", &file]);
        assert_eq!(o.status.code(), Some(2), "{name}: {}", out(&o));
        assert!(err(&o).contains(&file) && err(&o).contains(what), "{name}: {}", err(&o));
    }
    let o = ulnet(&["sim", "replay", "/no/such/flight"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("can't read /no/such/flight"), "{}", err(&o));
}

#[test]
fn what_if_says_who_stalls_and_who_notices_beside_the_healthy_run() {
    let world = "scenarios/router-death.toml";
    let o = ulnet(&["sim", "what-if", world, "--kill", "router-1", "--at", "5s"]);
    let said = out(&o);
    assert_eq!(o.status.code(), Some(0), "{said}{}", err(&o));
    assert!(
        said.contains("what if      kind = \"kill\", at = \"5s\", on = \"router-1\""),
        "{said}"
    );
    let stalls = said.split("WHO STALLS").nth(1).unwrap();
    let (stalls, noticed) = stalls.split_once("WHO NOTICES").unwrap();
    assert!(stalls.contains("client-1"), "{said}");
    assert!(noticed.contains("health of ") && !noticed.contains("  router-1 "), "{said}");
}

#[test]
fn what_if_refuses_what_is_not_in_the_world() {
    let world = "scenarios/router-death.toml";
    let o = ulnet(&["sim", "what-if", world, "--kill", "nobody"]);
    assert_eq!(o.status.code(), Some(2), "{}", out(&o));
    let said = err(&o);
    assert!(said.contains(world) && said.contains("no node is called 'nobody'"), "{said}");
    assert_eq!(ulnet(&["sim", "what-if", world]).status.code(), Some(2));
    let both = ["sim", "what-if", world, "--kill", "router-1", "--quiesce", "2s"];
    assert_eq!(ulnet(&both).status.code(), Some(2));
}
