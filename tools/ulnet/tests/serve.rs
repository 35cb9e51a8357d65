//! `ulnet serve` and `ulnet rpc` as processes over the loopback: values survive SIGKILL, a standby takes
//! over, the bench finds nothing lost.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("serve-{name}"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn target(&self) -> String {
        format!("kv-1=kv:{}", self.0.join("store").display())
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
    fn start(scratch: &Scratch, nid: &str, port: &str) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["serve", &scratch.target(), "--listen", nid, "--port", port, "--standby"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
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

/// Runs `ulnet rpc`, with what it reads; what it prints on both streams, and its status.
fn rpc(words: &[&str], input: &[u8]) -> (String, String, Option<i32>) {
    let mut child = Command::new(PROGRAM)
        .arg("rpc")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let o = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(o.stdout), text(o.stderr), o.status.code())
}

fn ok(words: &[&str], input: &[u8]) -> String {
    let (out, err, code) = rpc(words, input);
    assert_eq!(code, Some(0), "{words:?}: {out}{err}");
    out
}

#[test]
fn serve_prints_an_object_for_each_line_when_json_is_asked_for() {
    let scratch = Scratch::new("json");
    let start = |nid| {
        let target = scratch.target();
        let words = ["serve", &target, "--listen", nid, "--standby", "--json"];
        let mut child = Command::new(PROGRAM)
            .args(words)
            .args(["--port", "7957"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Server(child, lines)
    };
    let next = |server: &mut Server| -> serde_json::Value {
        serde_json::from_str(&server.1.next().unwrap().unwrap()).unwrap()
    };
    let mut server = start("127.88.7.1@tcp");
    let serving = loop {
        let said = next(&mut server);
        match said["event"].as_str() {
            Some("serving") => break said,
            _ => assert_eq!(said["event"], "log", "{said}"),
        }
    };
    let directory = scratch.0.join("store").display().to_string();
    assert_eq!((&serving["target"], &serving["kind"]), (&"kv-1".into(), &"kv".into()));
    assert_eq!(serving["directory"], directory);
    assert_eq!(serving["nids"], serde_json::json!(["127.88.7.1@tcp"]));
    let standby = next(&mut start("127.88.7.2@tcp"));
    assert_eq!((&standby["event"], &standby["target"]), (&"standby".into(), &"kv-1".into()));
}

#[test]
fn values_survive_sigkill_and_restart() {
    let scratch = Scratch::new("restart");
    let mut server = Server::start(&scratch, "127.88.0.1@tcp", "7988");
    server.wait_for("serving");
    let to = ["--target", "kv-1@127.88.0.1@tcp", "--port", "7988", "--source", "127.88.0.2"];
    let large: Vec<u8> = (0..3_000_000u32).map(|i| b'a' + (i % 23) as u8).collect();
    ok(&[&["put"], &to[..], &["large", "-"]].concat(), &large);
    ok(&[&["put"], &to[..], &["greeting", "hello"]].concat(), b"");
    drop(server);
    let mut server = Server::start(&scratch, "127.88.0.1@tcp", "7988");
    server.wait_for("serving");
    assert_eq!(ok(&[&["get"], &to[..], &["greeting"]].concat(), b""), "hello\n");
    let file = scratch.0.join("large");
    ok(&[&["get"], &to[..], &["large", "--output", file.to_str().unwrap()]].concat(), b"");
    assert!(std::fs::read(&file).unwrap() == large);

    let out = ok(&[&["list", "--json"], &to[..]].concat(), b"");
    let keys: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&keys[0]["key"], &keys[1]["bytes"]), (&"greeting".into(), &3_000_000.into()));
    let version = format!("{}", keys[0]["version"]);
    ok(&[&["cas"], &to[..], &["greeting", "bye", &version]].concat(), b"");
    let (_, err, code) = rpc(&[&["cas"], &to[..], &["greeting", "again", &version]].concat(), b"");
    assert_eq!(code, Some(1));
    assert!(err.contains("key 'greeting' has version 0x"), "{err}");
    ok(&[&["del"], &to[..], &["greeting"]].concat(), b"");
    let (_, err, code) = rpc(&[&["get"], &to[..], &["greeting"]].concat(), b"");
    assert_eq!((code, err.as_str()), (Some(1), "ulnet rpc: kv-1: no key 'greeting'\n"));
    let (_, err, code) = rpc(&[&["del"], &to[..], &["greeting"]].concat(), b"");
    assert_eq!((code, err.as_str()), (Some(1), "ulnet rpc: kv-1: no key 'greeting'\n"));

    // The silent one is asked beside the others, and takes no time from them.
    let probe = ["--port", "7988", "--source", "127.88.0.2", "--timeout", "5"];
    let targets = ["--target", "kv-2", "--target", "kv-1"];
    let out = ok(&[&["probe", "127.88.0.1@tcp"], &probe[..], &targets[..]].concat(), b"");
    let lines =
        "MGS: no answer\nkv-2: -19: No such device\nkv-1: serving, version 2.17.57, instance 2\n";
    assert_eq!(out, lines, "no service of that kind; no target; one, in the order asked for");
    let out = ok(&[&["probe", "127.88.0.1@tcp", "--json"], &probe[..], &targets[..]].concat(), b"");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let state = |n: usize| found[n]["state"].as_str();
    assert_eq!([state(0), state(1), state(2)], ["silent", "refused", "serving"].map(Some));
    assert_eq!((found[1]["errno"].as_i64(), found[2]["instance"].as_u64()), (Some(-19), Some(2)));
    let (_, err, code) = rpc(&[&["probe", "127.88.0.1@tcp"], &probe[..]].concat(), b"");
    let why = "ulnet rpc: no target answers; 127.88.0.1@tcp answers LNet pings: it has no service for them\n";
    assert_eq!((code, err.as_str()), (Some(1), why));

    Command::new("kill").arg(server.0.id().to_string()).status().unwrap();
    assert!(server.0.wait().unwrap().success(), "SIGTERM ends it cleanly");
    let dead = [&["get", "--timeout", "2"], &to[..], &["large"]].concat();
    let (_, err, code) = rpc(&dead, b"");
    assert_eq!(code, Some(1));
    assert!(err.contains("kv-1: not answered within 2 s"), "{err}");
}

#[test]
fn standby_takes_over_when_the_first_server_is_killed() {
    let scratch = Scratch::new("standby");
    let mut first = Server::start(&scratch, "127.89.0.1@tcp", "7989");
    first.wait_for("serving");
    let mut second = Server::start(&scratch, "127.89.0.2@tcp", "7989");
    second.wait_for("standby");
    let target = "kv-1@127.89.0.1@tcp,127.89.0.2@tcp";
    let to = ["--target", target, "--port", "7989", "--source", "127.89.0.3"];
    ok(&[&["put"], &to[..], &["greeting", "hello"]].concat(), b"");
    drop(first);
    second.wait_for("serving");
    // The first node refuses connections: it is not waited for until its connect is over, after 5 s.
    let get = ["get", "--timeout", "4"];
    assert_eq!(ok(&[&get[..], &to[..], &["greeting"]].concat(), b""), "hello\n");
}

#[test]
fn help_of_target_add_names_each_kind_of_target() {
    let out = Command::new(PROGRAM).args(["ctl", "target", "add", "--help"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    for kind in lustre_rt::TargetKind::ALL {
        assert!(text.contains(&format!(" {}", kind.name())), "{}: {text}", kind.name());
    }
}

#[test]
fn bench_finds_nothing_lost_or_done_twice_when_the_server_is_killed() {
    let out = ok(
        &[
            "bench",
            "--clients",
            "4",
            "--seconds",
            "3",
            "--kill-at",
            "1",
            "--port",
            "7990",
            "--json",
        ],
        b"",
    );
    let sums: serde_json::Value = serde_json::from_str(&out).unwrap();
    for sum in ["failed", "executed_twice", "lost"] {
        assert_eq!(sums[sum], 0, "{out}");
    }
    assert!(sums["reconnects_tried"].as_u64() >= Some(4), "{out}");
    assert_eq!(sums["recovered"], "4 of 4", "{out}");
}

#[test]
fn connections_that_are_lost_and_restored_are_lines_in_the_log_that_ulnet_log_asks_for() {
    let bench = |level: Option<&str>| {
        let mut command = Command::new(PROGRAM);
        command.args(["rpc", "bench", "--clients", "1", "--seconds", "2", "--kill-at", "1"]);
        command.args(["--port", "7956"]).env_remove("ULNET_LOG");
        command.envs(level.map(|level| ("ULNET_LOG", level)));
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let lines = bench(Some("info"));
    assert!(lines.contains("bench: connection to 127."), "{lines}");
    assert!(lines.contains("Connection restored to bench (at 127."), "{lines}");
    assert!(!bench(None).contains("Connection"), "without the variable nothing is logged");
}

#[test]
fn directory_that_is_served_is_refused_with_its_holder() {
    let scratch = Scratch::new("locked");
    let mut first = Server::start(&scratch, "127.91.0.1@tcp", "7991");
    first.wait_for("serving");
    let second = Command::new(PROGRAM)
        .args(["serve", &scratch.target(), "--listen", "127.91.0.2@tcp", "--port", "7991"])
        .output()
        .unwrap();
    let err = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(err.contains(&format!("in use by process {}", first.0.id())), "{err}");
}

#[test]
fn target_that_recovers_is_named_as_such_to_new_clients() {
    let scratch = Scratch::new("recovers");
    let start = || {
        let mut server = Server::start(&scratch, "127.92.0.1@tcp", "7992");
        server.wait_for("serving");
        server
    };
    let server = start();
    let to = ["--target", "kv-1@127.92.0.1@tcp", "--port", "7992", "--source", "127.92.0.2"];
    let mut client = Command::new(PROGRAM)
        .args(["rpc", "bench", "--clients", "1", "--seconds", "60"])
        .args(to)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let me = ["--port", "7992", "--source", "127.92.0.3"];
    let list = ["list", "--target", "kv-1@127.92.0.1@tcp"];
    while ok(&[&list[..], &me].concat(), b"").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // Both die: the next life of the server waits for the client.
    client.kill().unwrap();
    client.wait().unwrap();
    drop(server);
    let _server = start();
    let busy = "-16: Device or resource busy (in recovery, or at its limit of clients: no new client for now)";
    let ping = ["ping", "127.92.0.1@tcp", "--target", "kv-1", "--timeout", "2"];
    let (_, err, code) = rpc(&[&ping[..], &me].concat(), b"");
    assert_eq!(code, Some(1));
    assert!(err.ends_with(&format!("; the last was refused with {busy}\n")), "{err}");
    let probe = ["probe", "127.92.0.1@tcp", "--target", "kv-1", "--timeout", "1"];
    let out = ok(&[&probe[..], &me].concat(), b"");
    assert_eq!(out, format!("MGS: no answer\nkv-1: {busy}\n"));
    let get = ["get", "--target", "kv-1@127.92.0.1@tcp", "--timeout", "2", "key"];
    let (_, err, code) = rpc(&[&get[..], &me].concat(), b"");
    assert_eq!(code, Some(1));
    assert!(err.contains(&format!("the last connect was refused with {busy}")), "{err}");
}

#[test]
fn probe_of_a_silent_target_ends_with_its_timeout() {
    let scratch = Scratch::new("silent");
    let mut server = Server::start(&scratch, "127.93.0.1@tcp", "7993");
    server.wait_for("serving");
    let ping = ["rpc", "ping", "127.93.0.1@tcp", "--source", "127.93.0.2", "--port", "7993"];
    let mut later = Command::new(PROGRAM)
        .args(ping)
        .args(["--timeout", "6"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let probe = ["probe", "127.93.0.1@tcp", "--target", "kv-1", "--timeout", "1"];
    let out = ok(&[&probe[..], &["--source", "127.93.0.3", "--port", "7993"]].concat(), b"");
    assert_eq!(out, "MGS: no answer\nkv-1: serving, version 2.17.57, instance 1\n");
    assert!(later.try_wait().unwrap().is_none(), "what takes six seconds was over before it");
    later.kill().unwrap();
    later.wait().unwrap();
}

#[test]
fn targets_that_share_a_name_or_a_directory_are_refused_before_any_is_served() {
    let scratch = Scratch::new("twice");
    let dir = |name: &str| scratch.0.join(name).display().to_string();
    let (one, two) = (format!("kv-1=kv:{}", dir("a")), format!("kv-1=kv:{}", dir("b")));
    let other = format!("kv-2=kv:{}", dir("a"));
    let named = "target 'kv-1': named twice, expected another name for each".to_owned();
    let shared = format!("directory '{}': named twice, expected another one for each", dir("a"));
    for (second, why) in [(&two, named), (&other, shared)] {
        let words = ["serve", &one, second, "--listen", "127.194.0.1@tcp", "--port", "7894"];
        let out = Command::new(PROGRAM).args(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = (out.status.code(), text(&out.stdout), text(&out.stderr));
        assert_eq!(said, (Some(1), String::new(), format!("ulnet serve: {why}\n")));
    }
}

#[test]
fn address_that_this_machine_has_not_is_not_taken_for_one_in_use() {
    let scratch = Scratch::new("address");
    let words = ["serve", &scratch.target(), "--listen", "192.0.2.1@tcp", "--port", "7995"];
    let out = Command::new(PROGRAM).args(words).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(err.starts_with("ulnet serve: cannot use 192.0.2.1 port 7995: "), "{err}");
    assert!(err.ends_with("Cannot assign requested address\n"), "{err}");
}
