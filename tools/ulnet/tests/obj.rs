//! `ulnet serve` with object targets and `ulnet obj` as processes over the loopback: objects survive
//! SIGKILL in the middle of puts, limits hold, an echo target needs no directory, a file is spread over
//! objects, clients that share objects see each other's writes.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("obj-{name}"));
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
    // A command that refuses its words may end before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
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
    let (nid, port) = ("127.197.0.1@tcp", "7897");
    let target = scratch.target();
    let _server = Server::start(&[&target, "--listen", nid, "--port", port]);
    // A busy machine is waited for.
    let to = ["--target", "ost-0@127.197.0.1@tcp", "--port", port, "--source", "127.197.0.2"];
    let to = [&to[..], &["--timeout", "600"]].concat();
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
        let err = failed(&to, &words);
        assert!(err.contains(": object ") && err.contains("No such file or directory"), "{err}");
    }
    let (_, err, code) = obj(&to, &["stat", "none"], b"");
    assert!(code == Some(2) && err.contains("object 'none': expected a number"), "{err}");
    // A place that no byte can have is refused, not taken for an empty file.
    let last = u64::MAX.to_string();
    let (out, err, code) = obj(&to, &["put", "2", "-", "--offset", &last], b"lost");
    assert!(code == Some(2) && out.is_empty() && err.contains(&last), "{err}");
}

#[test]
fn server_that_is_killed_during_puts_has_what_was_put() {
    let scratch = Scratch::new("killed");
    let (nid, port) = ("127.193.0.1@tcp", "7893");
    let target = scratch.target();
    let words = [target.as_str(), "--listen", nid, "--port", port];
    let mut server = Server::start(&words);
    // A server that comes back on a busy machine is waited for.
    let to = ["--target", "ost-0@127.193.0.1@tcp", "--port", port, "--timeout", "600"];
    let way = |n: usize| format!("127.193.0.{}", n + 10);
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
    let (nid, port) = ("127.198.0.1@tcp", "7898");
    let target = scratch.target();
    let words = [&target, "e=echo:", "--listen", nid, "--port", port, "--uid-limit", "100000"];
    let mut server = Server::start(&words);
    server.wait_for("e: serving memory");
    let at = |name: &'static str| {
        let target = format!("{name}@127.198.0.1@tcp");
        move |words: &[&str], input: &[u8]| {
            let to = ["--target", &target, "--port", port, "--source", "127.198.0.2"];
            obj(&to, words, input)
        }
    };
    let (ost, echo) = (at("ost-0"), at("e"));
    assert_eq!(ost(&["create"], b"").2, Some(0));
    assert_eq!(ost(&["put", "1", "-"], &[1; 90_000]).2, Some(0));
    let (_, err, code) = ost(&["put", "1", "-"], &[1; 110_000]);
    assert!(code == Some(1) && err.contains("Disk quota exceeded"), "{err}");
    assert_eq!(echo(&["create"], b"").0, b"1\n");
    // It has no locks.
    let (_, err, code) = echo(&["put", "1", "-"], b"x");
    assert!(code == Some(1) && err.contains("--uncached"), "{err}");
    assert_eq!(echo(&["put", "1", "-", "--uncached"], &pattern(200_000, 1)).2, Some(0));
    assert!(echo(&["get", "1", "--uncached"], b"").0 == pattern(200_000, 1));
}

#[test]
fn file_is_spread_over_objects_of_two_targets_and_read_back_around_each_border() {
    let scratch = Scratch::new("spread");
    let (nid, port) = ("127.196.0.1@tcp", "7896");
    let targets =
        [0, 1].map(|n| format!("ost-{n}=ost:{}", scratch.0.join(format!("store-{n}")).display()));
    let mut server = Server::start(&[&targets[0], &targets[1], "--listen", nid, "--port", port]);
    server.wait_for("ost-1: serving");
    let at = |n: u32| format!("ost-{n}@127.196.0.1@tcp");
    let (first, second) = (at(0), at(1));
    let way = ["--port", port, "--source", "127.196.0.2", "--timeout", "600"];
    let only = |target| [&["--target", target][..], &way].concat();
    for target in [&first, &second] {
        ok(&only(target), &["create", "--count", "2"], b"");
    }
    // Three objects: 1 of the first target, 1 of the second, 2 of the first.
    let spread = ["--target", &second, "--stripe", "3", "--stripe-size", "65536"];
    let both = [&only(&first)[..], &spread].concat();
    for len in [0, 1, 65_535, 65_536, 65_537, 196_608, 300_000] {
        let bytes = pattern(len, len);
        ok(&both, &["put", "1", "-"], &bytes);
        assert!(ok(&both, &["get", "1"], b"") == bytes, "{len} bytes");
        let sizes: Vec<u64> = [(&first, "1"), (&second, "1"), (&first, "2")]
            .iter()
            .map(|(target, object)| {
                json(&only(target), &["stat", object])["size"].as_u64().unwrap()
            })
            .collect();
        let whole = len as u64 / 196_608 * 65_536;
        let rest = len as u64 % 196_608;
        let expected = [0, 65_536, 131_072].map(|at| whole + rest.saturating_sub(at).min(65_536));
        assert_eq!(sizes, expected, "{len} bytes");
    }
    let bytes = pattern(300_000, 300_000);
    let part = ok(&both, &["get", "1", "--offset", "65530", "--length", "131100"], b"");
    assert!(part == bytes[65_530..196_630]);
    ok(&both, &["put", "1", "-", "--offset", "131070"], b"across");
    let part = ok(&both, &["get", "1", "--offset", "131068", "--length", "10"], b"");
    assert_eq!(&part[2..8], b"across");
    let (_, err, code) = obj(&both, &["get", "1", "--stripe-size", "1000"], b"");
    assert!(code != Some(0), "{err}");
}

#[test]
fn clients_that_share_objects_lose_nothing_when_a_server_dies() {
    let words = ["--clients", "4", "--servers", "2", "--kill", "server", "--quiesce", "1s"];
    let run = Command::new(PROGRAM)
        .args(["obj", "bench", "--seconds", "4", "--port", "7991", "--timeout", "600", "--json"])
        .args(words)
        .output()
        .unwrap();
    let err = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.success(), "{err}");
    let found: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    for none in ["lost", "stale", "conflicting_grants", "failed", "evicted"] {
        assert_eq!(found[none], 0, "{none}: {found}");
    }
    assert!(found["writes"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(found["reads"], found["verified"]);
    assert!(found["callbacks"].as_u64().unwrap() > 0, "clients share objects: {found}");
}
