//! Commands for targets that get SIGINT or SIGTERM: they end soon, whatever their server does, and leave it as at
//! any other end, in good order: its log has no error then. A server waits for each client that it knows whenever it recovers. Visits of file systems are
//! in `interrupted.rs`, commands under a lock in `lock.rs`.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lnet_rt::{NodeBuilder, NodeHandle};
use lustre_rt::{
    ConnectData, ConnectFlags, ConnectFlags2, Handler, ImportKind, Past, Portal, Rpc, RpcNode,
    Served, ServiceConfig, TargetConfig, TargetSpec, Tunables,
};

const NID: &str = "127.98.0.1@tcp";

/// A service that answers no request but connects, and counts the others.
struct Silent(Arc<AtomicUsize>);

impl Handler for Silent {
    fn serve(&mut self, _: Served, _: &mut Rpc<'_, '_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn node(port: u16) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp("127.98.0.1".parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Tunables::default()).unwrap();
    (node, rpc)
}

fn start(port: &str, source: &str, words: &[&str], tmp: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ulnet"));
    command.args(words).args(["--port", port, "--source", source]).env("TMPDIR", tmp);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until something is so. A test that waits for good is one that fails.
fn until(what: &str, so: impl Fn() -> bool) {
    let seen = (0..6000).any(|_| {
        let seen = so();
        thread::sleep(Duration::from_millis(if seen { 0 } else { 10 }));
        seen
    });
    assert!(seen, "never: {what}");
}

/// Sends a signal; what the command says at its end, and its status.
fn end(child: Child, signal: &str) -> (String, String, Option<i32>) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let o = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(o.stdout), text(o.stderr), o.status.code())
}

#[test]
fn a_command_whose_server_is_silent_ends_by_a_signal_without_an_export() {
    let (_node, rpc) = node(7998);
    let (request, reply) = ImportKind::Osc.portals();
    let offer = ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::FULL20
            | ConnectFlags::AT
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    };
    let target =
        TargetConfig { uuid: "t".to_owned(), offer, replayable: false, past: Past::default() };
    let service = ServiceConfig::new("t", request.0, reply.0, Portal::OST_BULK.0);
    let asked = Arc::new(AtomicUsize::new(0));
    rpc.serve(vec![target], vec![service], Silent(Arc::clone(&asked))).unwrap();
    let to = format!("t@{NID}");
    let commands: [(&str, &[&str]); 4] = [
        ("-INT", &["rpc", "put", "--target", &to, "key", "value", "--timeout", "3600"]),
        ("-TERM", &["rpc", "list", "--target", &to, "--timeout", "3600"]),
        ("-INT", &["obj", "stat", "--target", &to, "7", "--timeout", "3600"]),
        ("-INT", &["obj", "get", "--target", &to, "--uncached", "7", "--timeout", "3600"]),
    ];
    for (signal, words) in commands {
        let before = asked.load(Ordering::SeqCst);
        let child = start("7998", "127.98.0.2", words, Path::new("/nowhere"));
        until("a request", || asked.load(Ordering::SeqCst) > before);
        let (out, err, code) = end(child, signal);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{words:?}: {err}");
        assert!(err.contains("interrupted"), "{words:?}: {err}");
        let left: Vec<_> = rpc.exports().unwrap().into_iter().map(|e| e.client).collect();
        assert_eq!(left, [""; 0], "{words:?}");
    }
}

#[test]
fn an_interrupted_rpc_bench_prints_its_account_and_leaves_no_export() {
    let (_node, rpc) = node(7997);
    let dir = fresh::path("ctrl-c-kv");
    let spec: TargetSpec = format!("kv-1=kv:{}", dir.display()).parse().unwrap();
    rpc.start_target(&spec, spec.lock().unwrap()).unwrap();
    for signal in ["-INT", "-TERM"] {
        let to = format!("kv-1@{NID}");
        let words = ["rpc", "bench", "--target", &to, "--clients", "4", "--seconds", "3600"];
        let child = start("7997", "127.98.0.3", &words, &dir);
        until("four clients", || rpc.exports().unwrap().len() == 4);
        let (out, err, code) = end(child, signal);
        assert_eq!(code, Some(1), "{err}");
        assert!(out.starts_with("calls ") && out.contains(" failed 0 "), "{out}{err}");
        assert!(err.contains("interrupted"), "{err}");
        assert_eq!(rpc.exports().unwrap().len(), 0);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_interrupted_obj_bench_ends_its_servers() {
    let tmp = fresh::path("ctrl-c-obj");
    std::fs::create_dir_all(&tmp).unwrap();
    let words = ["obj", "bench", "--clients", "2", "--seconds", "3600"];
    let child = start("7996", "127.98.0.4", &words, &tmp);
    let file = format!("/proc/{0}/task/{0}/children", child.id());
    let servers = || -> Vec<String> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let dir = tmp.join(format!("ulnet-obj-bench-{}", child.id()));
    until("two servers with clients", || {
        let files = |n: &str| dir.join(n).read_dir().is_ok_and(|all| all.count() > 0);
        servers().len() == 2 && files("bench-0") && files("bench-1")
    });
    // Until its servers have said that they serve, it looks for no signal.
    let tasks = format!("/proc/{}/task", child.id());
    until("clients", || {
        std::fs::read_dir(&tasks).is_ok_and(|all| {
            let name = |task: std::io::Result<std::fs::DirEntry>| {
                std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
            };
            all.filter_map(name).filter(|name| name.starts_with("client-")).count() == 2
        })
    });
    let servers = servers();
    let (out, err, code) = end(child, "-INT");
    assert_eq!(code, Some(1), "{err}");
    assert!(out.starts_with("writes ") && out.contains("lost 0  stale 0"), "{out}");
    assert!(err.contains("interrupted"), "{err}");
    std::fs::remove_dir(&tmp).expect("nothing is left there");
    for server in servers {
        assert!(!Path::new(&format!("/proc/{server}")).exists(), "server {server}");
    }
}

#[test]
fn commands_that_end_leave_no_error_in_the_log_of_their_server() {
    let dir = fresh::path("ctrl-c-log");
    std::fs::create_dir_all(&dir).unwrap();
    let config = "net:\n- net type: tcp\n  local NI(s):\n  - interfaces: {0: lo}\n";
    std::fs::write(dir.join("node.yaml"), config).unwrap();
    let (socket, port) = (dir.join("s"), fresh::port().to_string());
    let ulnet = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ulnet"));
        command.args(words).env("ULNET_SOCKET", &socket);
        command
    };
    let mut daemon = ulnet(&["daemon", "--port", &port, "--config"])
        .arg(dir.join("node.yaml"))
        .arg("--socket")
        .arg(&socket)
        .env("RUST_LOG", "info")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the daemon ended");
    }
    let rest = thread::spawn(move || std::io::read_to_string(log).unwrap());
    let ok = |command: &mut Command| assert!(command.output().unwrap().status.success());
    ok(&mut ulnet(&["ctl", "target", "add", &format!("kv-1=kv:{}", dir.join("kv").display())]));
    let to = "kv-1@127.0.0.1@tcp";
    for n in 40..43 {
        let source = format!("127.0.0.{n}");
        ok(ulnet(&["rpc", "put", "--target", to, "--port", &port, "--source", &source, "k", "v"])
            .env_remove("ULNET_SOCKET"));
    }
    let sent = Command::new("kill").args(["-TERM", &daemon.id().to_string()]).status();
    assert!(sent.unwrap().success() && daemon.wait().unwrap().success());
    let log = rest.join().unwrap();
    assert!(log.contains("kv-1: serving") && !log.contains("ERROR"), "{log}");
    std::fs::remove_dir_all(&dir).unwrap();
}
