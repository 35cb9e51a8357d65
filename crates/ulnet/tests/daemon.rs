//! `ulnet daemon` as a process: its control socket, its clients good and bad, its life.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

/// A daemon in a directory of its own, killed when dropped.
struct Daemon {
    dir: PathBuf,
    child: Child,
}

impl Daemon {
    fn start(name: &str, args: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("ulnet-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut child = Command::new(PROGRAM)
            .arg("daemon")
            .args(["--socket", dir.join("s").to_str().unwrap()])
            .args(["--port", &free_port().to_string()])
            .args(args)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says so when it is ready.
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert_ne!(
                log.read_line(&mut line).unwrap(),
                0,
                "the daemon ended before it was ready"
            );
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { dir, child }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    fn ctl(&self, words: &str) -> Output {
        ctl(&self.socket(), words)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Tests run side by side: each daemon gets a port of its own.
fn free_port() -> u16 {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    probe.local_addr().unwrap().port()
}

fn ctl(socket: &Path, words: &str) -> Output {
    Command::new(PROGRAM)
        .arg("ctl")
        .args(words.split_whitespace())
        .env("ULNET_SOCKET", socket)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

#[test]
fn a_fresh_daemon_is_not_configured_until_it_is_told_and_forgets_when_told() {
    let d = Daemon::start("fresh", &[]);
    let o = d.ctl("net show");
    assert!(!o.status.success());
    assert!(String::from_utf8_lossy(&o.stderr).contains("errno: -100"), "{o:?}");
    assert!(d.ctl("lnet configure").status.success());
    assert!(d.ctl("lnet configure").status.success(), "a second time changes nothing");
    assert!(out(&d.ctl("net show")).contains("0@lo"));
    assert!(d.ctl("set retry_count 3").status.success());
    assert!(d.ctl("net add --net tcp --if lo").status.success());
    assert!(out(&d.ctl("ping 127.0.0.1@tcp")).contains("primary nid: 127.0.0.1@tcp"));
    assert!(d.ctl("lnet unconfigure").status.success());
    assert!(!d.ctl("net show").status.success());
    assert!(d.ctl("lnet configure").status.success());
    assert!(!out(&d.ctl("net show")).contains("127.0.0.1"), "interfaces are forgotten");
    assert!(out(&d.ctl("global show")).contains("retry_count: 3"), "tunables are not (C-lnet-4)");
}

#[test]
fn the_control_socket_is_the_owners_alone_and_goes_with_the_daemon() {
    let mut d = Daemon::start("perm", &[]);
    let mode = fs::metadata(d.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pid = d.child.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    assert!(d.child.wait().unwrap().success(), "SIGTERM is a graceful end");
    assert!(!d.socket().exists());
}

#[test]
fn a_group_may_be_let_in_and_an_unknown_one_is_named() {
    let own = fs::metadata("/proc/self").unwrap();
    let gid = std::os::unix::fs::MetadataExt::gid(&own).to_string();
    let d = Daemon::start("group", &["--group", &gid]);
    let meta = fs::metadata(d.socket()).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o660);
    assert_eq!(std::os::unix::fs::MetadataExt::gid(&meta).to_string(), gid);
    let o = Command::new(PROGRAM)
        .args(["daemon", "--group", "nosuchgroup", "--socket"])
        .arg(d.dir.join("other"))
        .output()
        .unwrap();
    assert!(!o.status.success());
    assert!(String::from_utf8_lossy(&o.stderr).contains("nosuchgroup"));
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused_and_a_stale_one_replaced() {
    let mut d = Daemon::start("twice", &[]);
    let second = Command::new(PROGRAM)
        .args(["daemon", "--socket", d.socket().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another daemon is listening"), "{said}");
    d.child.kill().unwrap();
    d.child.wait().unwrap();
    assert!(d.socket().exists(), "a killed daemon leaves its socket behind");
    drop(d);
    let again = Daemon::start("twice", &[]);
    assert!(again.ctl("lnet configure").status.success());
}

#[test]
fn clients_that_hang_or_send_garbage_harm_nobody() {
    let d = Daemon::start("hostile", &[]);
    assert!(d.ctl("lnet configure").status.success());
    // Ten that say nothing, ten that stop in the middle of a frame.
    let mut hanging: Vec<_> = (0..20).map(|_| UnixStream::connect(d.socket()).unwrap()).collect();
    for half in &mut hanging[10..] {
        half.write_all(&[40, 0, 0, 0, b'{']).unwrap();
    }
    // Garbage of every kind is answered with an error or a closed connection.
    let frames: [&[u8]; 5] = [
        b"\xff\xff\xff\xff all too long",
        b"\x04\x00\x00\x00null",
        b"\x02\x00\x00\x00{}",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x19\x00\x00\x00{\"version\":99,\"id\":7,\"b\":1}",
    ];
    for bytes in frames {
        let mut s = UnixStream::connect(d.socket()).unwrap();
        s.write_all(bytes).unwrap();
        s.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        s.read_to_end(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.contains("\"Err\""), "{text}");
    }
    let o = d.ctl("net show");
    assert!(o.status.success(), "{o:?}");
}

#[test]
fn more_clients_than_the_limit_are_told_so() {
    let d = Daemon::start("many", &[]);
    let held: Vec<_> = (0..64).map(|_| UnixStream::connect(d.socket()).unwrap()).collect();
    let o = d.ctl("lnet configure");
    assert!(!o.status.success());
    drop(held);
    // The places come free within a moment.
    let free = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        d.ctl("lnet configure").status.success()
    });
    assert!(free);
}

#[test]
fn a_configuration_file_is_applied_whole_or_the_daemon_says_what_is_wrong() {
    let dir = std::env::temp_dir().join(format!("ulnet-files-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let good = dir.join("good.yaml");
    let text = "net:\n- net type: tcp\n  local NI(s):\n  - interfaces:\n      0: lo\n\
                global:\n  retry_count: 1\n";
    fs::write(&good, text).unwrap();
    let d = Daemon::start("config", &["--config", good.to_str().unwrap()]);
    assert!(out(&d.ctl("net show")).contains("127.0.0.1@tcp"));
    assert!(out(&d.ctl("global show")).contains("retry_count: 1"));
    let exported = out(&d.ctl("export --backup"));
    drop(d);
    // What a node exports makes the same node again.
    fs::write(&good, &exported).unwrap();
    let d = Daemon::start("config", &["--config", good.to_str().unwrap()]);
    assert_eq!(out(&d.ctl("export --backup")), exported);
    drop(d);
    for (text, culprit) in [
        ("net:\n- net type: tcp\n  local NI(s):\n  - interfaces:\n      0: nosuch0\n", "nosuch0"),
        ("global:\n  retry_count: many\n", "many"),
        ("frobnicate: 1\n", "frobnicate"),
        ("net: [\n", "line"),
    ] {
        let bad = dir.join("bad.yaml");
        fs::write(&bad, text).unwrap();
        let o = Command::new(PROGRAM)
            .args(["daemon", "--port", "9981", "--socket", dir.join("x").to_str().unwrap()])
            .args(["--config", bad.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(!o.status.success());
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(said.contains("bad.yaml") && said.contains(culprit), "{said}");
    }
    let _ = fs::remove_dir_all(&dir);
}

#[test]
fn wrong_options_are_named() {
    for (args, culprit) in [
        (vec!["daemon", "--profile", "fast"], "fast"),
        (vec!["daemon", "--port", "70000"], "70000"),
        (vec!["daemon", "--accept", "some"], "some"),
        (vec!["daemon", "--frobnicate"], "--frobnicate"),
        (vec!["frobnicate"], "frobnicate"),
        (vec!["demo", "/nonexistent/file"], "/nonexistent/file"),
        (vec!["demo", "/"], "/"),
    ] {
        let o = Command::new(PROGRAM).args(&args).output().unwrap();
        assert!(!o.status.success(), "{args:?}");
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(said.contains(culprit), "{args:?}: {said}");
    }
}

#[test]
fn a_small_file_crosses_two_rails_while_one_is_cut() {
    let o = Command::new(PROGRAM)
        .args(["demo", "--seconds", "1", concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs")])
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let said = out(&o);
    assert!(said.contains("checksum              equal"), "{said}");
    assert!(said.contains("0 chunks twice"), "{said}");
}

#[test]
fn what_a_daemon_did_can_be_done_again_from_its_recording() {
    let daemon = Daemon::start("record", &["--record", "20"]);
    assert!(daemon.ctl("lnet configure").status.success());
    assert!(daemon.ctl("net add --nid 127.0.0.1@tcp").status.success());
    for _ in 0..30 {
        assert!(daemon.ctl("ping 127.0.0.1@tcp").status.success());
    }
    let file = daemon.dir.join("flight");
    let told = daemon.ctl(&format!("debug dump {}", file.display()));
    assert!(told.status.success() && out(&told).starts_with("recording:\n"), "{}", out(&told));
    let recording = lnet::Recording::from_bytes(&fs::read(&file).unwrap()).unwrap();
    let replayed = recording.replay().unwrap();
    assert!((20..=40).contains(&replayed.calls), "{} calls", replayed.calls);
    assert!(replayed.node.stats().send_count > 0);
    let nowhere = daemon.ctl("debug dump /no/such/directory/flight");
    assert!(!nowhere.status.success());
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(said.contains("/no/such/directory/flight"), "{said}");
    let silent = Daemon::start("silent", &["--record", "0"]);
    assert!(silent.ctl("lnet configure").status.success());
    assert!(!silent.ctl(&format!("debug dump {}", file.display())).status.success());
}

#[test]
fn an_import_names_the_interface_that_the_machine_does_not_have() {
    let d = Daemon::start("noif", &[]);
    assert!(d.ctl("lnet configure").status.success());
    let file = d.dir.join("net.yaml");
    let net = |device: &str| {
        let text = format!("net:\n- net type: tcp\n  interfaces:\n    0: {device}\n");
        fs::write(&file, text).unwrap();
        d.ctl(&format!("import {}", file.display()))
    };
    let o = net("eth77");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(214), "{said}");
    assert!(said.contains("No interface matching 'eth77'"), "{said}");
    assert_eq!(net("lo").status.code(), Some(0));
    // By hand it is what kernels say.
    let o = d.ctl("net add --net tcp1 --if eth77");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(234), "{said}");
    assert!(said.contains("errno: -100") && !said.contains("matching"), "{said}");
}
