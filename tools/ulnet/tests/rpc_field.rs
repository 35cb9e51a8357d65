//! `ulnet rpc bench` in network namespaces: eight clients, and a server with its standby, while servers
//! are killed, stand still or have a full disk, and lines fail. No call fails, nothing is executed twice
//! and nothing is lost; at the end the store has each key in the version that its client was answered.
//! Scenarios of `scenarios/sockets` are played by `testing/field`.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use netns::{Host, Port, World};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const CLIENTS: usize = 8;
const SERVERS: [&str; 2] = ["10.97.0.1", "10.97.0.2"];

/// A directory that goes with the test, perhaps a file system of its own.
struct Scratch {
    dir: PathBuf,
    mounted: bool,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("rpc-{name}"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir, mounted: false }
    }

    /// The same with a file system of so many bytes.
    fn small(name: &str, bytes: u64) -> Self {
        let mut scratch = Self::new(name);
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&scratch.dir);
        scratch.mounted = mount.status().is_ok_and(|status| status.success());
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A server; dropping it is SIGKILL.
struct Server {
    child: Child,
    // A pipe that is closed would end the server.
    _out: BufReader<ChildStdout>,
}

impl Server {
    fn start(host: &Host, nid: &str, store: &Path, says: &str) -> Self {
        let mut child = host
            .command(PROGRAM)
            .args(["serve", &format!("kv-1=kv:{}", store.display())])
            .args(["--listen", &format!("{nid}@tcp"), "--standby"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(says) {
            line.clear();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "the server never said '{says}'");
        }
        Self { child, _out: out }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What befalls the world while clients call.
struct Field<'a> {
    hosts: &'a [Host],
    store: &'a Path,
    /// The server at the beginning, and its standby.
    servers: Vec<Server>,
}

impl Field<'_> {
    fn wait(seconds: u64) {
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

/// The figures of all clients together.
#[derive(Debug, Default)]
struct Sums {
    failed: u64,
    twice: u64,
    lost: u64,
    calls: u64,
    reconnects: u64,
    /// Keys of which clients and servers have the same account, and those of which they do not.
    agreed: u64,
    disagreed: Vec<String>,
    errors: String,
}

/// Lets eight clients with two calls under way each call for so many seconds, while `befall` happens.
/// `None`: there are no namespaces here.
fn play(
    name: &str,
    seconds: u64,
    store: &Path,
    befall: impl FnOnce(&mut Field<'_>),
) -> Option<Sums> {
    let world = match World::new(name) {
        Ok(world) => world,
        Err(why) => {
            netns::skipped(name, why);
            return None;
        }
    };
    let names = ["s1", "s2", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
    let hosts: Vec<Host> = names.iter().map(|name| world.host(name).unwrap()).collect();
    let address = |n: usize| match SERVERS.get(n) {
        Some(server) => (*server).to_owned(),
        None => format!("10.97.0.{}", 9 + n),
    };
    let cidrs: Vec<String> = (0..hosts.len()).map(|n| format!("{}/24", address(n))).collect();
    let lists: Vec<[&str; 1]> = cidrs.iter().map(|cidr| [cidr.as_str()]).collect();
    let ports = hosts.iter().zip(&lists).map(|(host, list)| Port::new(host, "eth0", list));
    world.segment(&ports.collect::<Vec<_>>()).unwrap();
    let store = store.join("store");
    let first = Server::start(&hosts[0], SERVERS[0], &store, "serving");
    let second = Server::start(&hosts[1], SERVERS[1], &store, "standby");
    let target = format!("kv-1@{}@tcp,{}@tcp", SERVERS[0], SERVERS[1]);
    let clients: Vec<Child> = (0..CLIENTS)
        .map(|n| {
            let mut bench = hosts[2 + n].command(PROGRAM);
            bench.args(["rpc", "bench", "--target", &target, "--clients", "2", "--json"]);
            bench.args(["--seconds", &seconds.to_string(), "--timeout", "600"]);
            bench.args(["--source", &address(2 + n)]);
            bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut field = Field { hosts: &hosts, store: &store, servers: vec![first, second] };
    befall(&mut field);
    let mut sums = Sums::default();
    let mut versions = BTreeMap::new();
    for client in clients {
        let out = client.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        sums.errors += &String::from_utf8_lossy(&out.stderr);
        let Ok(found) = serde_json::from_str::<serde_json::Value>(&text) else {
            panic!("{name}: a client said {text}: {}", sums.errors)
        };
        let number = |key: &str| found[key].as_u64().unwrap();
        sums.failed += number("failed");
        sums.twice += number("executed_twice");
        sums.lost += number("lost");
        sums.calls += number("calls");
        sums.reconnects += number("reconnects_tried");
        versions.extend(found["versions"].as_object().unwrap().clone());
    }
    let mut list = hosts[2].command(PROGRAM);
    list.args(["rpc", "list", "--target", &target, "--json", "--source", &address(2)]);
    let list = list.output().unwrap();
    let stored: Vec<serde_json::Value> = serde_json::from_slice(&list.stdout)
        .unwrap_or_else(|_| panic!("{name}: {}", String::from_utf8_lossy(&list.stderr)));
    for (key, version) in versions {
        match stored.iter().find(|entry| entry["key"] == key.as_str()) {
            Some(entry) if entry["version"] == version => sums.agreed += 1,
            other => sums.disagreed.push(format!("{key}: {version}, the store has {other:?}")),
        }
    }
    println!("{name}: {sums:?}");
    Some(sums)
}

/// Rules by which packets vanish, both ways.
fn swallow(verdict: &str) -> String {
    let chain = |hook: &str| {
        format!(
            "add chain inet trouble {hook} {{ type filter hook {hook} priority 0 ; }}\n\
             add rule inet trouble {hook} {verdict}\n"
        )
    };
    format!("add table inet trouble\n{}{}", chain("input"), chain("output"))
}

fn accounts_agree(sums: &Sums) {
    assert!(sums.disagreed.is_empty() && sums.agreed > 0, "{sums:?}");
}

fn nothing_lost(sums: &Sums) {
    accounts_agree(sums);
    assert_eq!((sums.failed, sums.twice, sums.lost), (0, 0, 0), "{sums:?}");
    assert!(sums.calls > 100, "{sums:?}");
}

#[test]
fn standby_takes_over_from_a_server_that_is_killed_and_back_again() {
    let scratch = Scratch::new("kill");
    let sums = play("rpckill", 20, &scratch.dir, |field| {
        Field::wait(4);
        drop(field.servers.remove(0));
        let again = Server::start(&field.hosts[0], SERVERS[0], field.store, "standby");
        Field::wait(8);
        drop(field.servers.remove(0));
        field.servers.push(again);
    });
    let Some(sums) = sums else { return };
    nothing_lost(&sums);
    assert!(sums.reconnects >= 2 * CLIENTS as u64, "{sums:?}");
}

#[test]
fn server_that_stands_still_for_20_s_goes_on_where_it_was() {
    let scratch = Scratch::new("stop");
    let sums = play("rpcstop", 30, &scratch.dir, |field| {
        Field::wait(4);
        field.servers[0].signal("-STOP");
        Field::wait(20);
        field.servers[0].signal("-CONT");
    });
    if let Some(sums) = sums {
        nothing_lost(&sums);
    }
}

#[test]
fn full_disk_refuses_changes_by_name_and_loses_none() {
    let scratch = Scratch::small("full", 48 << 20);
    if !scratch.mounted {
        return netns::skipped("a full disk", "no file system can be mounted");
    }
    let sums = play("rpcfull", 20, &scratch.dir, |field| {
        Field::wait(4);
        let file = field.store.with_file_name("fill");
        // It fails where the disk is full.
        let _ = std::fs::write(&file, vec![1; 64 << 20]);
        Field::wait(6);
        std::fs::remove_file(&file).unwrap();
    });
    let Some(sums) = sums else { return };
    accounts_agree(&sums);
    assert_eq!((sums.twice, sums.lost), (0, 0), "{sums:?}");
    assert!(sums.calls > 100 && sums.failed > 0, "{sums:?}");
    for line in sums.errors.lines().filter(|line| line.contains("calls failed")) {
        assert!(line.contains("No space left on device"), "{line}");
    }
}

#[test]
fn lines_that_fail_cost_no_call() {
    let scratch = Scratch::new("lines");
    let sums = play("rpclines", 45, &scratch.dir, |field| {
        let server = &field.hosts[0];
        Field::wait(3);
        // black hole, loss, reset, carrier: as scenarios/sockets has them.
        for (verdict, seconds) in [("drop", 5), ("numgen random mod 100 < 3 drop", 8)] {
            server.nft(&swallow(verdict)).unwrap();
            Field::wait(seconds);
            server.nft("delete table inet trouble").unwrap();
        }
        server.kill_connections("sport = :988").unwrap();
        Field::wait(3);
        server.link_down("eth0").unwrap();
        Field::wait(5);
        server.link_up("eth0").unwrap();
    });
    if let Some(sums) = sums {
        nothing_lost(&sums);
    }
}
