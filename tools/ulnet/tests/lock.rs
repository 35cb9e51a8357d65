//! `ulnet lock` as a process over the loopback: a command runs under its lock, others wait, a holder
//! that is stopped loses the lock, locks of a daemon are shown and broken.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PORT: &str = "7919";

/// A server, and its directory; dropping it is SIGKILL.
struct Server(Child, PathBuf, String);

impl Server {
    fn start(net: u8, more: &[&str]) -> Self {
        let dir = fresh::path(&format!("lock-{net}"));
        let _ = std::fs::remove_dir_all(&dir);
        let nid = format!("127.118.{net}.1@tcp");
        let mut child = Command::new(PROGRAM)
            .args(["serve", &format!("locks=lock:{}", dir.display())])
            .args(["--listen", &nid, "--port", PORT])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("serving")));
        Self(child, dir, nid)
    }

    /// `ulnet lock run` with a client of its own.
    fn lock(&self, client: u8, words: &[&str]) -> Command {
        let source = self.2.replace(".1@tcp", &format!(".{client}"));
        let mut command = Command::new(PROGRAM);
        command
            .args(["lock", "run", "--server", &self.2, "--port", PORT, "--source", &source])
            .args(words);
        command
    }

    fn run(&self, client: u8, words: &[&str]) -> (String, String, Option<i32>) {
        let Output { status, stdout, stderr } = self.lock(client, words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(stdout), text(stderr), status.code())
    }

    /// A holder, whose command says that it runs and then reads a line.
    fn holder(&self, client: u8, words: &[&str]) -> (Child, BufReader<ChildStdout>) {
        let script = ["--", "sh", "-c", "echo runs; read line; echo $line"];
        let mut child = self
            .lock(client, &[words, &script].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "runs\n");
        (child, out)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn servers_that_do_not_answer_are_not_taken_for_a_lock_that_others_hold() {
    let server = Server::start(9, &[]);
    let words =
        |target| ["--target", target, "--resource", "jobs/1", "--timeout", "1", "--", "true"];
    let (_, said, status) = server.run(2, &words("other"));
    assert_eq!(status, Some(1));
    let why = "no server of 'other' has answered within 1 s (state ";
    assert!(said.contains(why) && said.contains("refused with -19"), "{said}");
    let (_, said, status) = server.run(3, &["--resource", "", "--", "true"]);
    assert_eq!(status, Some(2));
    assert!(said.contains("0 bytes: expected 1 to 255"), "{said}");
    // While another client has the lock the server answers.
    let (mut holder, _) = server.holder(4, &["--resource", "jobs/1"]);
    let (_, said, status) = server.run(5, &words("locks"));
    assert_eq!((status, said.trim()), (Some(1), "ulnet lock: jobs/1: not granted within 1 s"));
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn command_runs_under_its_lock_and_its_status_is_passed_on() {
    let server = Server::start(11, &[]);
    let say = "echo $ULNET_RESOURCE $ULNET_FENCE; exit 7";
    let mut fences = Vec::new();
    for _ in 0..3 {
        let (out, err, code) =
            server.run(2, &["--resource", "jobs/42", "--json", "--", "sh", "-c", say]);
        assert_eq!(code, Some(7), "{out}{err}");
        let (name, fence) = out.trim().split_once(' ').unwrap();
        assert_eq!(name, "jobs/42");
        fences.push(fence.parse::<u64>().unwrap());
        let said: serde_json::Value = serde_json::from_str(err.trim()).unwrap();
        assert_eq!((&said["exit"], &said["lost"]), (&7.into(), &false.into()));
        assert_eq!(said["fence"], *fences.last().unwrap());
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    // Readers have no number, signals are named as in a shell, what cannot run has a status.
    let run = |words: &[&str]| server.run(3, &[&["--resource", "a"], words].concat());
    let (out, ..) = run(&["--mode", "PR", "--", "sh", "-c", "echo ${ULNET_FENCE-none}"]);
    assert_eq!(out, "none\n");
    assert_eq!(run(&["--", "sh", "-c", "kill -KILL $$"]).2, Some(137));
    assert_eq!(run(&["--", "./no-such-command"]).2, Some(127));
    assert_eq!(run(&["--", "/"]).2, Some(126));
}

#[test]
fn lock_that_is_held_is_not_given_to_others() {
    let server = Server::start(12, &[]);
    let (mut holder, _out) = server.holder(2, &["--resource", "jobs/42"]);
    let (_, err, code) = server.run(3, &["--resource", "jobs/42", "--try", "--", "true"]);
    assert_eq!((code, err.contains("held by others")), (Some(1), true), "{err}");
    let words = ["--resource", "jobs/42", "--timeout", "1", "--conflict-exit-code", "9"];
    let (_, err, code) = server.run(4, &[&words[..], &["--", "true"]].concat());
    assert_eq!((code, err.contains("within 1 s")), (Some(9), true), "{err}");
    assert_eq!(server.run(3, &["--resource", "jobs/43", "--try", "--", "true"]).2, Some(0));
    // One that waits gets it when the command of the first has ended.
    let next = server.lock(5, &["--resource", "jobs/42", "--", "echo", "mine"]);
    let next = { next }.stdout(Stdio::piped()).spawn().unwrap();
    holder.stdin.take().unwrap().write_all(b"done\n").unwrap();
    assert!(holder.wait().unwrap().success());
    let next = next.wait_with_output().unwrap();
    assert_eq!((next.status.code(), &next.stdout[..]), (Some(0), &b"mine\n"[..]));
}

#[test]
fn signals_reach_the_command_and_a_wait_that_is_given_up_leaves_nothing() {
    let server = Server::start(13, &[]);
    let (mut holder, _out) = server.holder(2, &["--resource", "jobs/42"]);
    let mut waits = server.lock(3, &["--resource", "jobs/42", "--", "true"]).spawn().unwrap();
    // Whenever it comes, before or while it waits.
    signal(&waits, "-TERM");
    assert!(matches!(waits.wait().unwrap().code(), Some(143) | None));
    // A wait closes what is still here, and the command would end by that.
    let _open = holder.stdin.take();
    signal(&holder, "-TERM");
    assert_eq!(holder.wait().unwrap().code(), Some(143));
    assert_eq!(
        server.run(4, &["--resource", "jobs/42", "--timeout", "60", "--", "true"]).2,
        Some(0)
    );
}

#[test]
fn holder_that_is_stopped_loses_the_lock_and_its_command_is_ended() {
    let server = Server::start(14, &["--at-max", "2", "--ldlm-enqueue-min", "2"]);
    let (mut holder, _out) = server.holder(2, &["--resource", "jobs/42", "--json"]);
    signal(&holder, "-STOP");
    let (out, err, code) =
        server.run(3, &["--resource", "jobs/42", "--", "sh", "-c", "echo $ULNET_FENCE"]);
    assert_eq!(code, Some(0), "{err}");
    signal(&holder, "-CONT");
    let mut said = String::new();
    BufReader::new(holder.stderr.take().unwrap())
        .lines()
        .for_each(|l| said += &(l.unwrap() + "\n"));
    assert_eq!(holder.wait().unwrap().code(), Some(75), "{said}");
    assert!(said.contains("the lock is lost"), "{said}");
    let json: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(json["lost"], true);
    assert!(json["fence"].as_u64().unwrap() < out.trim().parse().unwrap());
}

/// A daemon with a lock target, and its directory; dropping it is SIGKILL.
struct Daemon(Child, PathBuf, String);

impl Daemon {
    fn start() -> Self {
        let dir = fresh::path("lock-daemon");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let config = "net:\n- net type: tcp\n  local NI(s):\n  - interfaces: {0: lo}\n";
        std::fs::write(dir.join("node.yaml"), config).unwrap();
        let port = fresh::port().to_string();
        let mut child = Command::new(PROGRAM)
            .args(["daemon", "--port", &port, "--config"])
            .arg(dir.join("node.yaml"))
            .arg("--socket")
            .arg(dir.join("s"))
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the daemon ended");
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let daemon = Self(child, dir, port);
        let store = daemon.1.join("locks");
        daemon.says(&["ctl", "target", "add", &format!("locks=lock:{}", store.display())]);
        daemon
    }

    fn run(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let mut command = Command::new(PROGRAM);
        let Output { status, stdout, stderr } =
            command.args(words).env("ULNET_SOCKET", self.1.join("s")).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(stdout), text(stderr), status.code())
    }

    fn says(&self, words: &[&str]) -> String {
        let (out, err, code) = self.run(words);
        assert_eq!(code, Some(0), "{words:?}: {out}{err}");
        out
    }

    fn shown(&self, words: &[&str]) -> Vec<serde_json::Value> {
        let out = self.says(&[&["lock", "show", "--json"], words].concat());
        serde_json::from_str(&out).unwrap()
    }

    /// A client that runs a command under the lock of jobs/42.
    fn holder(&self, client: u8, command: &[&str]) -> Child {
        let source = format!("127.0.0.{client}");
        Command::new(PROGRAM)
            .args(["lock", "run", "--server", "127.0.0.1@tcp", "--port", &self.2])
            .args(["--source", &source, "--resource", "jobs/42", "--"])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

#[test]
fn command_that_keeps_a_wanted_lock_is_warned_and_loses_it_when_the_time_ends() {
    let server = Server::start(15, &["--at-max", "2", "--ldlm-enqueue-min", "2"]);
    let (mut holder, _out) = server.holder(2, &["--resource", "jobs/42"]);
    let (out, err, code) = server.run(3, &["--resource", "jobs/42", "--", "echo", "mine"]);
    assert_eq!((code, out.as_str()), (Some(0), "mine\n"), "{err}");
    // A wait closes what is still here, and the command would end by that.
    let _open = holder.stdin.take();
    let said: Vec<String> =
        BufReader::new(holder.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
    assert_eq!(holder.wait().unwrap().code(), Some(75), "{said:?}");
    let [wanted, lost] = &said[..] else { panic!("{said:?}") };
    assert!(wanted.contains("another client waits"), "{wanted}");
    assert!(lost.contains("the lock is lost"), "{lost}");
}

#[test]
fn locks_of_a_daemon_are_shown_and_a_broken_one_goes_to_the_client_that_waits() {
    let daemon = Daemon::start();
    assert_eq!(daemon.says(&["lock", "show"]), "");
    let mut holder = daemon.holder(31, &["sh", "-c", "echo runs; read line"]);
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    assert!(daemon.shown(&[]).is_empty(), "no client waits");
    assert_eq!(daemon.shown(&["--all"]).len(), 1);
    let waiter = daemon.holder(32, &["echo", "mine"]);
    let locks = loop {
        let locks = daemon.shown(&["jobs/42", "--target", "locks"]);
        if let [_, waiting] = &locks[..]
            && waiting["state"] == "waiting"
        {
            break locks;
        }
        std::thread::yield_now();
    };
    let of = |n: usize, key: &str| &locks[n][key];
    assert_eq!((of(0, "state"), of(0, "mode")), (&"called back".into(), &"EX".into()));
    assert_eq!((of(0, "nid"), of(1, "nid")), (&"127.0.0.31@tcp".into(), &"127.0.0.32@tcp".into()));
    assert!(of(0, "evicted_in_ms").as_u64().is_some_and(|ms| ms > 0));
    assert_eq!(&locks[1]["waits_for"][0]["lock"], of(0, "lock"));
    assert_ne!(of(0, "client"), of(1, "client"));
    for (words, part) in [
        (&["jobs/43"][..], "lock 'jobs/43'"),
        (&["jobs/43", "--target", "locks"], "lock 'jobs/43'"),
        (
            &["--target", "other"],
            "target 'other': expected a target with locks of this daemon (locks)",
        ),
    ] {
        let (out, err, code) = daemon.run(&[&["lock", "show"], words].concat());
        assert_eq!(
            (out.as_str(), code, err.contains(part)),
            ("", Some(1), true),
            "{words:?}: {err}"
        );
    }
    for words in [["explain", "lock"], ["lock", "show"], ["explain", "import"]] {
        let (out, err, code) = daemon.run(&[&["ctl"], &words[..], &["jobs/43"]].concat());
        assert_eq!((out.as_str(), code), ("", Some(254)), "{words:?}: {err}");
        assert!(err.contains("errno: -2") && err.contains("'jobs/43'"), "{words:?}: {err}");
    }
    let number = format!("{:#x}", of(0, "lock").as_u64().unwrap());
    let text = daemon.says(&["ctl", "explain", "lock", "jobs/42"]);
    assert!(text.contains("waits for ") && text.contains("its client evicted within "), "{text}");
    let text = daemon.says(&["lock", "show", "jobs/42"]);
    assert!(text.starts_with(&format!("locks jobs/42\n  {number} EX")), "{text}");
    assert!(text.contains(&format!(", waits for {number}\n")), "{text}");
    let text = daemon.says(&["lock", "break", &number]);
    let client = of(0, "client").as_str().unwrap();
    assert!(text.starts_with("locks jobs/42\n"), "{text}");
    assert!(text.ends_with(&format!("evicted: client {client} of locks\n")), "{text}");
    let waiter = waiter.wait_with_output().unwrap();
    assert_eq!((waiter.status.code(), &waiter.stdout[..]), (Some(0), &b"mine\n"[..]));
    // A wait closes what is still here, and the command would end by that.
    let _open = holder.stdin.take();
    assert_eq!(holder.wait().unwrap().code(), Some(75));
    let (_, err, code) = daemon.run(&["lock", "break", &number]);
    assert_eq!((code, err.contains("not one of the targets")), (Some(1), true), "{err}");
    let nowhere = daemon.1.join("nowhere");
    let (_, err, code) = daemon.run(&["lock", "show", "--socket", nowhere.to_str().unwrap()]);
    assert_eq!((code, err.contains("cannot reach the daemon")), (Some(1), true), "{err}");
}

#[test]
fn what_is_not_well_formed_is_refused_by_its_option() {
    let run = |words: &[&str]| {
        let Output { status, stderr, .. } =
            Command::new(PROGRAM).args(["lock", "run"]).args(words).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let to = ["--resource", "a", "--server", "10.1.0.2@tcp"];
    for (words, part) in [
        (&["--resource", "a", "--", "true"][..], "--server"),
        (&[&to[..], &[]].concat()[..], "COMMAND"),
        (&[&to[..], &["--mode", "RW", "--", "true"]].concat()[..], "expected EX"),
        (&["--resource", "a", "--server", "x@tcp", "--", "true"][..], "'x@tcp'"),
    ] {
        let (code, err) = run(words);
        assert_eq!((code, err.contains(part)), (Some(2), true), "{words:?}: {err}");
    }
}
