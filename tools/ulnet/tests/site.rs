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
        let dir = fresh::path(&format!("site-{name}"));
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

/// What a node did that pinged a NID without a node.
fn recording() -> Recording {
    let tunables = Tunables::new(Profile::Default);
    let mut node = Node::new(
        NodeConfig { seed: 7, interface_cookie: 11, ping_seq: 0, tunables },
        Instant::ZERO,
    );
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
fn a_recording_of_another_version_is_refused_with_the_name_of_the_file() {
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

/// Two clients and a server with two rails each.
const WORLD: &str = r#"
name = "two-clients"
duration = "10s"
[[net]]
name = "tcp"
[[node]]
name = "client"
count = 2
rails = ["tcp", "tcp"]
[[node]]
name = "server"
rails = ["10.9.0.1@tcp", "10.9.0.2@tcp"]
[[workload]]
kind = "request"
from = "client"
to = "server"
every = "50ms"
size = "4KiB"
reply = "4KiB"
timeout = "1s"
retries = 4
"#;

/// What a question is answered with: who stalls, who notices, what is lost.
fn what_if(world: &str, args: &[&str]) -> [String; 3] {
    let o = ulnet(&[&["sim", "what-if", world], args].concat());
    let said = out(&o);
    assert_eq!(o.status.code(), Some(0), "{said}{}", err(&o));
    assert!(!said.contains("VIOLATION"), "{said}");
    let (_, rest) = said.split_once("\nWHO STALLS").unwrap();
    let (stalls, rest) = rest.split_once("\nWHO NOTICES").unwrap();
    let (notices, rest) = rest.split_once("\nWHAT IS LOST").unwrap();
    let (lost, _) = rest.split_once("\nFIGURES").unwrap();
    [stalls.to_owned(), notices.to_owned(), lost.to_owned()]
}

#[test]
fn what_if_shows_stalls_notices_and_losses_when_a_server_dies() {
    let dir = Dir::new("kill");
    let world = dir.write("world.toml", WORLD.as_bytes());
    let [stalls, notices, lost] = what_if(&world, &["--kill", "server", "--at", "2s"]);
    for client in ["client-1", "client-2"] {
        let row = stalls.lines().find(|l| l.contains(client)).unwrap();
        assert!(row.contains("→ server") && row.contains(" failed"), "{stalls}");
        assert!(notices.contains(&format!("  {client} ")), "{notices}");
    }
    assert!(stalls.contains("  2 of 2 pairs"), "{stalls}");
    assert!(notices.contains("suspects the rail ") && notices.contains("health of "), "{notices}");
    assert!(!notices.contains("  server "), "the dead notice nothing: {notices}");
    assert!(lost.contains(" exchanges, ") && !lost.contains("\n  0 exchanges,"), "{lost}");
    assert!(lost.contains("an interface is degraded at the end"), "{lost}");
    // It may come back.
    let args = ["--kill", "server", "--at", "2s", "--for", "1s"];
    let [_, _, lost] = what_if(&world, &args);
    assert!(lost.contains("all interfaces are healthy "), "{lost}");
}

#[test]
fn what_if_shows_that_suspicion_saves_what_health_would_lose_when_a_rail_is_cut() {
    let dir = Dir::new("cut");
    let world = dir.write("world.toml", WORLD.as_bytes());
    let [_, notices, lost] = what_if(&world, &["--cut", "10.9.0.2@tcp", "--at", "2s"]);
    // Within the 50 ms that a rail may be silent, and a few exchanges of 50 ms.
    let first = notices.lines().find(|l| l.contains("suspects the rail")).unwrap();
    let after = first.split_whitespace().nth(1).unwrap();
    let ms: f64 = after.strip_suffix("ms").unwrap_or_else(|| panic!("{first}")).parse().unwrap();
    assert!(ms < 500.0 && first.contains("10.9.0.2@tcp"), "{notices}");
    assert!(lost.contains("\n  0 exchanges,"), "{lost}");
    // By its number.
    let [_, again, _] = what_if(&world, &["--cut", "server/1", "--at", "2s"]);
    assert_eq!(again, notices);
}

#[test]
fn what_if_shows_that_all_wait_and_nothing_is_lost_when_the_fabric_stands_still() {
    let dir = Dir::new("quiesce");
    let world = dir.write("world.toml", WORLD.as_bytes());
    let [stalls, _, lost] = what_if(&world, &["--quiesce", "2s", "--at", "2s"]);
    assert!(stalls.contains("  2 of 2 pairs"), "{stalls}");
    for row in stalls.lines().filter(|l| l.contains("client-")) {
        let after = row.rsplit("→ ").next().unwrap();
        let s: f64 = after.strip_suffix('s').unwrap_or_else(|| panic!("{row}")).parse().unwrap();
        assert!((1.9..6.0).contains(&s), "{row}");
    }
    assert!(
        lost.contains("\n  0 exchanges,") && lost.contains("all interfaces are healthy"),
        "{lost}"
    );
}

/// The exports of three nodes, in a directory of their own.
fn exports(dir: &Dir) -> String {
    for node in ["client", "router", "oss"] {
        let from = format!("{}/../../fixtures/sites/three/{node}.yaml", env!("CARGO_MANIFEST_DIR"));
        dir.write(&format!("{node}.yaml"), &fs::read(from).unwrap());
    }
    dir.0.to_str().unwrap().to_owned()
}

#[test]
fn a_site_is_imported_played_and_asked_what_if() {
    let dir = Dir::new("import");
    let site = exports(&dir);
    dir.write("notes.txt", b"not an export");
    let world = Dir::new("import-out").0.join("site.toml");
    fs::create_dir_all(world.parent().unwrap()).unwrap();
    let world = world.to_str().unwrap().to_owned();
    let o = ulnet(&["sim", "import", &site, "--out", &world]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let said = err(&o);
    assert!(said.contains("notes.txt: no .yaml file"), "{said}");
    assert!(said.contains("route to o2ib by 10.77.1.9@tcp1: no node of the site"), "{said}");
    assert!(said.contains("assumed: client and 2 more: kernel nodes"), "{said}");
    let asked = ulnet(&["sim", "import", &site, "--profile", "default"]);
    assert!(!err(&asked).contains("assumed"), "{}", err(&asked));
    assert_eq!(out(&ulnet(&["sim", "import", &site])), fs::read_to_string(&world).unwrap());
    let o = ulnet(&["sim", "run", &world]);
    assert_eq!(o.status.code(), Some(0), "{}{}", out(&o), err(&o));
    assert!(out(&o).contains(" 0 failed"), "{}", out(&o));
    let [stalls, notices, lost] = what_if(&world, &["--kill", "router"]);
    assert!(stalls.contains("client ") && stalls.contains("→ oss "), "{stalls}");
    assert!(notices.contains("  client "), "{notices}");
    assert!(!lost.contains("\n  0 exchanges,"), "without its router it loses all: {lost}");
    let _ = fs::remove_dir_all(PathBuf::from(world).parent().unwrap());
}

#[test]
fn an_invalid_site_is_refused_with_the_file() {
    let dir = Dir::new("bad-import");
    let o = ulnet(&["sim", "import", dir.0.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("no exports: expected NODE.yaml"), "{}", err(&o));
    let file = dir.write("a.yaml", b"net:\n- net type: tcp\n  local NI(s):\n  - nid: here\n");
    let o = ulnet(&["sim", "import", dir.0.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains(&format!("{file}:4:")), "{}", err(&o));
    let o = ulnet(&["sim", "import", &file]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("a.yaml: a file: expected a directory"), "{}", err(&o));
    let o = ulnet(&["sim", "import", "/no/such/directory"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("can't read /no/such/directory"), "{}", err(&o));
}

#[test]
fn what_if_refuses_what_is_not_in_the_world() {
    let world = "scenarios/router-death.toml";
    let o = ulnet(&["sim", "what-if", world, "--kill", "no-such-node"]);
    assert_eq!(o.status.code(), Some(2), "{}", out(&o));
    let said = err(&o);
    assert!(said.contains(world) && said.contains("no node is called 'no-such-node'"), "{said}");
    assert_eq!(ulnet(&["sim", "what-if", world]).status.code(), Some(2));
    let both = ["sim", "what-if", world, "--kill", "router-1", "--quiesce", "2s"];
    assert_eq!(ulnet(&both).status.code(), Some(2));
}
