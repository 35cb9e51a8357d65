//! `ulnet serve` with object targets and `ulnet obj` as processes over the loopback: objects survive
//! SIGKILL in the middle of puts, limits hold, an echo target needs no directory.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ulnet-obj-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn target(&self) -> String {
        format!("ost-0=ost:{}", self.0.join("store").display())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server; dropping it is SIGKILL.
struct Server(Child, Lines<BufReader<ChildStdout>>);

impl Server {
    fn start(words: &[&str]) -> Self {
        let mut child =
            Command::new(PROGRAM).arg("serve").args(words).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut server = Self(child, lines);
        server.wait_for("serving");
        server
    }

    fn wait_for(&mut self, what: &str) {
        let line = self.1.by_ref().map_while(Result::ok).find(|line| line.contains(what));
        assert!(line.is_some(), "the server never said '{what}'");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ulnet obj`, ready to run: a verb and its words, with the way to a target.
fn command(to: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("obj").args(&words[..1]).args(to).args(&words[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn obj(to: &[&str], words: &[&str], input: &[u8]) -> (Vec<u8>, String, Option<i32>) {
    let mut child = command(to, words).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let o = child.wait_with_output().unwrap();
    (o.stdout, String::from_utf8(o.stderr).unwrap(), o.status.code())
}

fn ok(to: &[&str], words: &[&str], input: &[u8]) -> Vec<u8> {
    let (out, err, code) = obj(to, words, input);
    assert_eq!(code, Some(0), "{words:?}: {}{err}", String::from_utf8_lossy(&out));
    out
}

fn json(to: &[&str], words: &[&str]) -> serde_json::Value {
    let out = ok(to, &[words, &["--json"]].concat(), b"");
    serde_json::from_slice(&out).unwrap()
}

fn failed(to: &[&str], words: &[&str]) -> String {
    let (_, err, code) = obj(to, words, b"");
    assert_eq!(code, Some(1), "{words:?}");
    err
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 7 + seed) % 251) as u8).collect()
}

#[test]
fn objects_are_made_written_read_cut_listed_and_removed() {
    let scratch = Scratch::new("verbs");
    let (nid, port) = ("127.93.0.1@tcp", "7993");
    let target = scratch.target();
    let _server = Server::start(&[&target, "--listen", nid, "--port", port]);
    let to = ["--target", "ost-0@127.93.0.1@tcp", "--port", port, "--source", "127.93.0.2"];
    assert_eq!(ok(&to, &["create", "--count", "3"], b""), b"1\n2\n3\n");
    let bytes = pattern(9_000_001, 5);
    let file = scratch.file("in", &bytes);
    assert_eq!(ok(&to, &["put", "2", &file], b""), b"2: 9000001 bytes\n");
    let out = scratch.0.join("out");
    ok(&to, &["get", "2", "--output", out.to_str().unwrap()], b"");
    assert!(std::fs::read(&out).unwrap() == bytes);
    // A range in the middle; the rest stays as it is.
    ok(&to, &["put", "2", "-", "--offset", "4194300"], b"in the middle");
    let part = ok(&to, &["get", "2", "--offset", "4194298", "--length", "17"], b"");
    assert_eq!(&part[2..15], b"in the middle");
    assert_eq!(
        (&part[..2], &part[15..]),
        (&bytes[4_194_298..4_194_300], &bytes[4_194_313..4_194_315])
    );
    let stat = json(&to, &["stat", "2"]);
    assert_eq!((&stat["size"], &stat["mode"]), (&9_000_001.into(), &"100666".into()));
    // A shorter file makes a shorter object, and a hole reads as zeros.
    ok(&to, &["put", "2", "-"], b"short");
    assert_eq!(ok(&to, &["get", "2"], b""), b"short");
    ok(&to, &["punch", "2", "8"], b"");
    assert_eq!(ok(&to, &["get", "2"], b""), b"short\0\0\0");
    ok(&to, &["sync", "2"], b"");
    ok(&to, &["rm", "1"], b"");
    let listed = json(&to, &["ls"]);
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|row| row["object"].clone()).collect();
    assert_eq!(names, ["2", "3"]);
    assert!(json(&to, &["stat"])["available"].as_u64().unwrap() > 0);
    for words in [["get", "1"], ["stat", "9"], ["rm", "1"]] {
        assert!(failed(&to, &words).contains("No such file or directory"), "{words:?}");
    }
    let (_, err, code) = obj(&to, &["stat", "none"], b"");
    assert!(code == Some(2) && err.contains("object 'none': expected a number"), "{err}");
}

#[test]
fn server_that_is_killed_during_puts_has_what_was_put() {
    let scratch = Scratch::new("killed");
    let (nid, port) = ("127.94.0.1@tcp", "7994");
    let target = scratch.target();
    let words = [target.as_str(), "--listen", nid, "--port", port, "--obd-timeout", "10"];
    let mut server = Server::start(&words);
    // A server that comes back on a busy machine is waited for.
    let to = ["--target", "ost-0@127.94.0.1@tcp", "--port", port, "--timeout", "600"];
    let way = |n: usize| format!("127.94.0.{}", n + 10);
    let clients = 4;
    ok(&[&to[..], &["--source", &way(0)]].concat(), &["create", "--count", "8"], b"");
    let files: Vec<_> =
        (0..clients).map(|n| scratch.file(&format!("in{n}"), &pattern(12_000_000, n))).collect();
    for round in 0..2 {
        let puts: Vec<_> = (0..clients)
            .map(|n| {
                let (source, object) = (way(n), (1 + n + round * clients).to_string());
                let to = [&to[..], &["--source", &source]].concat();
                command(&to, &["put", &object, &files[n]]).spawn().unwrap()
            })
            .collect();
        // In the middle of them, whatever each one has done by then.
        let store = scratch.0.join("store/blocks");
        let before = std::fs::metadata(&store).unwrap().len();
        while std::fs::metadata(&store).unwrap().len() < before + 5_000_000 {
            std::thread::yield_now();
        }
        drop(server);
        server = Server::start(&words);
        for put in puts {
            let o = put.wait_with_output().unwrap();
            assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        }
    }
    // Killed once more: what has an answer is there.
    drop(server);
    let _server = Server::start(&words);
    let source = way(9);
    let to = [&to[..], &["--source", &source]].concat();
    for n in 0..2 * clients {
        let out = scratch.0.join("out");
        ok(&to, &["get", &(n + 1).to_string(), "--output", out.to_str().unwrap()], b"");
        assert!(
            std::fs::read(&out).unwrap() == pattern(12_000_000, n % clients),
            "object {}",
            n + 1
        );
    }
}

#[test]
fn owner_beyond_the_limit_and_echo_target_in_memory() {
    let scratch = Scratch::new("limit");
    let (nid, port) = ("127.95.0.1@tcp", "7995");
    let target = scratch.target();
    let words = [&target, "e=echo:", "--listen", nid, "--port", port, "--uid-limit", "100000"];
    let mut server = Server::start(&words);
    server.wait_for("e: serving memory");
    let at = |name: &'static str| {
        let target = format!("{name}@127.95.0.1@tcp");
        move |words: &[&str], input: &[u8]| {
            let to = ["--target", &target, "--port", port, "--source", "127.95.0.2"];
            obj(&to, words, input)
        }
    };
    let (ost, echo) = (at("ost-0"), at("e"));
    assert_eq!(ost(&["create"], b"").2, Some(0));
    assert_eq!(ost(&["put", "1", "-"], &[1; 90_000]).2, Some(0));
    let (_, err, code) = ost(&["put", "1", "-"], &[1; 110_000]);
    assert!(code == Some(1) && err.contains("Disk quota exceeded"), "{err}");
    assert_eq!(echo(&["create"], b"").0, b"1\n");
    assert_eq!(echo(&["put", "1", "-"], &pattern(200_000, 1)).2, Some(0));
    assert!(echo(&["get", "1"], b"").0 == pattern(200_000, 1));
}
