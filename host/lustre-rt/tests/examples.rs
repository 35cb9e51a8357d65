//! The examples as a user runs them: a server killed in the middle, a holder of a lock stopped.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use lnet_rt::{NodeBuilder, NodeHandle};
use lustre_rt::{MGS_UUID, Ost, OstLimits, RpcNode, Site};
use lustre_target::{Commit, Mdt, MemoryStore, Mgs};

/// Examples stand beside the tests; `cargo test -p lustre-rt` makes both.
fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.is_file(), "{}: cargo build -p lustre-rt --examples", path.display());
    path
}

/// A process that ends with the test.
struct Running(Child, Lines<BufReader<ChildStdout>>);

impl Running {
    fn start(name: &str, args: &[&str]) -> Self {
        let mut child = Command::new(example(name))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn go_on(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    }

    fn wait_for(&mut self, what: &str) {
        let line = self.1.by_ref().map_while(Result::ok).find(|line| line == what);
        assert!(line.is_some(), "it never said '{what}'");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_block_is_stored_once_although_the_server_is_killed() {
    let dir = fresh::path("shelf");
    let _ = std::fs::remove_dir_all(&dir);
    let args = ["127.87.0.1", "7987", dir.to_str().unwrap()];
    let mut server = Running::start("rpc_server", &args);
    server.wait_for("serving");
    let client = ["127.87.0.2", "7987", "127.87.0.1@tcp", "20"];
    let mut client = Running::start("rpc_client", &client);
    client.wait_for("block 5");
    // SIGKILL: nothing is written any more.
    drop(server);
    server = Running::start("rpc_server", &args);
    server.wait_for("serving");
    client.wait_for("block 19");
    assert!(client.0.wait().unwrap().success());
    drop(server);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn holder_that_was_stopped_does_not_overwrite_what_the_next_one_has_written() {
    let dir = fresh::path("shared");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let place = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (store, file) = (place("store"), place("file"));
    let mut server = Running::start("lock", &["serve", "127.119.0.1", "7920", &store]);
    server.wait_for("serving");
    let writer = |ip: &str, at: &str, text: &str| {
        let args = ["write", ip, "7920", "127.119.0.1@tcp", &file, at, text];
        let mut writer = Running::start("lock", &args);
        writer.wait_for("locked");
        writer
    };
    // Parts that do not meet are written side by side.
    let (mut first, mut other) =
        (writer("127.119.0.2", "0", "aaaa"), writer("127.119.0.3", "4", "bbbb"));
    other.go_on();
    other.wait_for("written");
    // The first is stopped: the lock goes to the next one when the time of callbacks ends.
    first.signal("-STOP");
    let mut next = writer("127.119.0.4", "2", "cccc");
    next.go_on();
    next.wait_for("written");
    first.signal("-CONT");
    first.go_on();
    first.wait_for("refused");
    assert_eq!(std::fs::read(&file).unwrap(), b"\0\0ccccbb");
    drop((first, other, next, server));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A file system on a node of the test, with two object targets in memory.
fn file_system(ip: &str, port: u16) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    rpc.serve_targets().unwrap();
    let site = Site::on_one_node("lfs", 2, &[format!("{ip}@tcp").parse().unwrap()]).unwrap();
    let store = || MemoryStore::new(Commit::AtOnce, 1 << 30);
    for uuid in ["lfs-OST0000_UUID", "lfs-OST0001_UUID"] {
        rpc.add_target_in_memory(uuid, Ost::new(OstLimits::default()), store()).unwrap();
    }
    rpc.add_target_in_memory(MGS_UUID, Mgs::new(std::slice::from_ref(&site)), store()).unwrap();
    let mut names = store();
    let mdt = Mdt::load(site, &mut names).unwrap();
    rpc.add_target_in_memory("lfs-MDT0000_UUID", mdt, names).unwrap();
    (node, rpc)
}

#[test]
fn what_one_example_has_put_into_a_file_the_other_one_shows() {
    let (_node, _rpc) = file_system("127.88.0.1", 7988);
    let bytes: Vec<u8> =
        (0..9_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let run = |name: &str, source: &str, place: &str, input: &[u8]| {
        let mut child = Command::new(example(name))
            .args([source, &format!("127.88.0.1@tcp:/lfs{place}"), "7988"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut to = child.stdin.take().unwrap();
        // An example that ends early reads no more.
        let _ = to.write_all(input);
        drop(to);
        child.wait_with_output().unwrap()
    };
    let put = run("lustre_put", "127.88.0.2", "/f", &bytes);
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    let cat = run("lustre_cat", "127.88.0.3", "/f", &[]);
    assert!(cat.status.success(), "{}", String::from_utf8_lossy(&cat.stderr));
    assert!(cat.stdout == bytes, "{} bytes", cat.stdout.len());
    // A new file is not one that is there.
    let again = run("lustre_put", "127.88.0.2", "/f", &bytes);
    assert!(!again.status.success());
    let none = run("lustre_cat", "127.88.0.3", "/none", &[]);
    assert!(!none.status.success() && none.stdout.is_empty());
}
