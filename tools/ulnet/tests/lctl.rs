//! What `lctl` changes, on live daemons on the loopback device: gateways reported up and down,
//! connections closed and peers of the driver forgotten. What it prints is compared with recordings in
//! the tests of `lnetctl`.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PATIENCE: Duration = Duration::from_secs(30);

struct Daemon {
    dir: PathBuf,
    child: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Daemon {
    /// A daemon on an address of the loopback device.
    fn start(name: &str, port: u16, address: &str) -> Self {
        let dir = fresh::path(&format!("lctl-{name}"));
        fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["daemon", "-q", "--port", &port.to_string(), "--socket"]).arg(dir.join("s"));
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let daemon = Self { dir, child };
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(daemon.dir.join("s")).is_err() {
            assert!(Instant::now() < until, "no daemon {name}");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon.ctl("lnet configure");
        daemon.ctl(&format!("net add --nid {address}@tcp"));
        daemon
    }

    /// Exit status and what is printed, by the program under another of its names.
    fn run(&self, program: &str, words: &str) -> (i32, String) {
        let mut command = Command::new(PROGRAM);
        command.arg(program).args(words.split_whitespace());
        command.env("ULNET_SOCKET", self.dir.join("s")).stdin(Stdio::null());
        let o = command.output().unwrap();
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        (o.status.code().unwrap(), text + &String::from_utf8_lossy(&o.stderr))
    }

    fn ctl(&self, words: &str) -> String {
        let (code, said) = self.run("ctl", words);
        assert_eq!(code, 0, "{words}: {said}");
        said
    }

    fn lctl(&self, words: &str) -> String {
        let (code, said) = self.run("lctl", words);
        assert_eq!(code, 0, "{words}: {said}");
        said
    }

    /// Lines of a list of the driver that are about a NID.
    fn lines(&self, list: &str, nid: &str) -> usize {
        let said = self.lctl(&format!("--net tcp {list}"));
        said.lines().filter(|l| l.starts_with(&format!("12345-{nid} "))).count()
    }
}

#[test]
fn a_gateway_is_what_it_was_last_reported_to_be() {
    let port = fresh::port();
    let (a, b) = (
        Daemon::start("route-a", port, "127.0.0.11"),
        Daemon::start("route-b", port, "127.0.0.12"),
    );
    // Without discovery and router checks, reports alone decide.
    a.ctl("set discovery 0");
    a.lctl("set_param alive_router_check_interval=0");
    a.lctl("--net tcp9 add_route 127.0.0.12@tcp");
    let state = || {
        let said = a.lctl("show_route");
        let up = said.contains(" up pri 0");
        assert!(up || said.contains(" down pri 0"), "{said}");
        up
    };
    assert!(state());
    a.lctl("set_route 127.0.0.12@tcp down");
    assert!(!state());
    assert!(a.ctl("route show -v").contains("state: down"));
    a.lctl("set_route 127.0.0.12@tcp up");
    assert!(state());
    a.lctl("set_route 127.0.0.12@tcp down");
    // It was seen up before it was seen down.
    a.lctl("set_route 127.0.0.12@tcp up 2000-01-01-00:00:00");
    assert!(!state());
    a.lctl("--net tcp9 set_route 127.0.0.12@tcp up");
    assert!(state());
    let (code, said) = a.run("lctl", "set_route 127.0.0.12@tcp up 9000-01-01-00:00:00");
    assert_eq!(code, 22, "{said}");
    // A NID without an owner is no concern of this node.
    a.lctl("set_route 127.0.0.99@tcp down");
    assert!(state());
    drop(b);
}

#[test]
fn connections_are_closed_and_made_anew_and_peers_are_forgotten() {
    let port = fresh::port();
    let (a, b, c) = (
        Daemon::start("conn-a", port, "127.0.0.21"),
        Daemon::start("conn-b", port, "127.0.0.22"),
        Daemon::start("conn-c", port, "127.0.0.23"),
    );
    // Who is in recovery is pinged, and so connected to, by itself; here nothing is.
    let (to_b, to_c) = ("127.0.0.22@tcp", "127.0.0.23@tcp");
    let reach = || a.ctl(&format!("ping {to_b} {to_c}"));
    reach();
    let before = a.lines("conn_list", to_b);
    assert!(before > 0 && a.lines("conn_list", to_c) > 0);
    // One peer, and no other.
    a.lctl(&format!("--net tcp disconnect {to_b}"));
    assert_eq!(a.lines("conn_list", to_b), 0);
    assert!(a.lines("conn_list", to_c) > 0);
    assert_eq!(a.lines("peer_list", to_b), 1, "it is still known");
    reach();
    assert!(a.lines("conn_list", to_b) > 0);
    // All of them.
    a.lctl("--net tcp disconnect");
    assert_eq!(a.lctl("--net tcp conn_list"), "<no connections>\n");
    reach();
    a.lctl(&format!("--net tcp del_peer {to_c}"));
    assert_eq!((a.lines("peer_list", to_c), a.lines("peer_list", to_b)), (0, 1));
    a.lctl("--net tcp del_peer");
    assert_eq!(a.lctl("--net tcp peer_list"), "<no peers>\n");
    assert!(a.ctl("peer list").contains(to_b), "the node still knows it");
    reach();
    // No peer there.
    for (words, code) in [
        ("--net tcp disconnect 127.0.0.99@tcp", 2),
        ("--net tcp del_peer 127.0.0.99@tcp", 2),
        ("--net tcp7 disconnect", 0),
    ] {
        let (got, said) = a.run("lctl", words);
        assert_eq!(got, code, "{words}: {said}");
    }
    drop((b, c));
}
