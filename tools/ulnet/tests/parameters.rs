//! Daemons that are configured the way kernel modules are, on hosts of their own: `--modprobe` files,
//! rules by address, `lnet configure --all` with and without `--large`. What the files mean is tested
//! in `lnet-config`; that a daemon does it, and talks to another one, is seen here.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use netns::{Host, Port, Process, World};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PATIENCE: Duration = Duration::from_secs(30);

/// Two hosts on two networks, the first of which has IPv6 as well.
struct Site {
    a: Host,
    b: Host,
    dir: PathBuf,
    _world: World,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Site {
    fn new(name: &str) -> Option<Self> {
        let world = World::new(name).map_err(|why| netns::skipped(name, why)).ok()?;
        let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
        world
            .segment(&[
                Port::new(&a, "eth0", &["10.77.0.2/24", "fd00:77::2/64"]),
                Port::new(&b, "eth0", &["10.77.0.3/24", "fd00:77::3/64"]),
            ])
            .unwrap();
        world
            .segment(&[
                Port::new(&a, "eth1", &["10.77.1.2/24"]),
                Port::new(&b, "eth1", &["10.77.1.3/24"]),
            ])
            .unwrap();
        let dir = fresh::path(name);
        fs::create_dir_all(&dir).unwrap();
        Some(Self { a, b, dir, _world: world })
    }

    /// A daemon that reads `options`, and answers.
    fn daemon<'a>(&'a self, host: &'a Host, options: &str) -> Daemon<'a> {
        let socket = self.dir.join(host.name());
        let file = self.dir.join(format!("{}.conf", host.name()));
        fs::write(&file, options).unwrap();
        let mut command = host.command(PROGRAM);
        command.args(["daemon", "-q", "--modprobe"]).arg(file);
        command.arg("--socket").arg(&socket).stderr(Stdio::null());
        let process = host.spawn(command).unwrap();
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < until, "no daemon on {}", host.name());
            std::thread::sleep(Duration::from_millis(20));
        }
        Daemon { host, socket, _process: process }
    }
}

struct Daemon<'a> {
    host: &'a Host,
    socket: PathBuf,
    _process: Process,
}

impl Daemon<'_> {
    /// Exit status and what is printed, by the program under another of its names.
    fn run(&self, program: &str, words: &str) -> (i32, String) {
        let mut command = self.host.command(PROGRAM);
        command.arg(program).args(words.split_whitespace());
        command.env("ULNET_SOCKET", &self.socket).stdin(Stdio::null());
        let o = command.output().unwrap();
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        (o.status.code().unwrap(), text + &String::from_utf8_lossy(&o.stderr))
    }

    /// What a command of `lnetctl` prints that must succeed.
    fn ctl(&self, words: &str) -> String {
        let (code, said) = self.run("ctl", words);
        assert_eq!(code, 0, "{words}: {said}");
        said
    }

    fn nids(&self) -> Vec<String> {
        let shown = self.ctl("net show");
        let nids = shown.lines().filter_map(|l| l.split_once("nid: "));
        nids.map(|(_, nid)| nid).filter(|n| *n != "0@lo").map(str::to_owned).collect()
    }

    /// The value of a key in what `net show -v 1` says of an interface.
    fn of_ni(&self, nid: &str, key: &str) -> String {
        let shown = self.ctl("net show -v 1");
        let mut lines = shown.lines().skip_while(|l| !l.ends_with(&format!("nid: {nid}")));
        let value = lines.find_map(|l| l.trim().strip_prefix(&format!("{key}: ")));
        value.unwrap_or_else(|| panic!("no {key} of {nid} in {shown}")).to_owned()
    }
}

#[test]
fn nets_and_socket_parameters_of_a_modprobe_file_are_in_force() {
    let Some(site) = Site::new("modprobe") else { return };
    let options = "options lnet networks=\"tcp(eth0),tcp1(eth1)\" accept_port=9988 accept=all\n\
                   options lnet lnet_transaction_timeout=20 lnet_retry_count=3\n\
                   options ksocklnd sock_timeout=7 credits=64 peer_credits=4 conns_per_peer=2\n\
                   options ksocklnd peer_timeout=90 tos=16\n";
    let (a, b) = (site.daemon(&site.a, options), site.daemon(&site.b, options));
    for daemon in [&a, &b] {
        daemon.ctl("lnet configure --all");
    }
    assert_eq!(a.nids(), ["10.77.0.2@tcp", "10.77.1.2@tcp1"]);
    for (key, value) in [
        ("credits", "64"),
        ("peer_credits", "4"),
        ("peer_timeout", "90"),
        ("conns_per_peer", "2"),
        ("timeout", "7"),
        ("tos", "16"),
    ] {
        assert_eq!(a.of_ni("10.77.1.2@tcp1", key), value, "{key}");
    }
    let global = a.ctl("global show");
    assert!(global.contains("transaction_timeout: 20") && global.contains("retry_count: 3"));
    for (name, value) in [("ksocklnd/sock_timeout", "7"), ("ksocklnd/accept_port", "9988")] {
        let (code, said) = a.run("lctl", &format!("get_param -n {name}"));
        assert_eq!((code, said.trim()), (0, value), "{name}");
    }
    // Both sides listen where the file says.
    a.ctl("ping 10.77.0.3@tcp 10.77.1.3@tcp1");
    let listening = site.b.run(["ss", "-Hltn"]).unwrap();
    let listening = String::from_utf8_lossy(&listening.stdout).into_owned();
    assert!(listening.contains("10.77.0.3:9988") && !listening.contains(":988 "), "{listening}");
}

#[test]
fn rdma_parameters_of_a_modprobe_file_are_shown_and_the_timeout_can_be_written() {
    let Some(site) = Site::new("ko2iblnd") else { return };
    let options = "options lnet networks=tcp(eth0) accept_port=9988\n\
                   options ko2iblnd timeout=10 peer_credits=32 ipif_name=ib7 service=1987\n";
    let a = site.daemon(&site.a, options);
    a.ctl("lnet configure --all");
    let read = |name: &str| {
        let (code, said) = a.run("lctl", &format!("get_param -n ko2iblnd/{name}"));
        assert_eq!(code, 0, "{name}: {said}");
        said.trim().to_owned()
    };
    let expected = [
        ("timeout", "10"),
        ("peer_credits", "32"),
        ("ipif_name", "ib7"),
        ("service", "1987"),
        ("credits", "256"),
        ("retry_count", "5"),
        ("use_privileged_port", "1"),
    ];
    for (name, value) in expected {
        assert_eq!(read(name), value, "{name}");
    }
    a.ctl("net set --net o2ib --lnd-timeout 7");
    assert_eq!(read("timeout"), "7");
    assert_eq!(a.run("lctl", "set_param ko2iblnd/timeout=8").0, 0);
    assert_eq!(read("timeout"), "8");
    assert_ne!(a.run("lctl", "set_param ko2iblnd/service=1").0, 0);
    // Those of TCP interfaces are others.
    assert_eq!(a.of_ni("10.77.0.2@tcp", "peer_credits"), "8");
}

#[test]
fn rules_by_address_in_a_modprobe_file_choose_each_hosts_nets() {
    let Some(site) = Site::new("ip2nets") else { return };
    let options = "options lnet ip2nets=\"tcp0(eth0) 10.77.0.[2-3]; tcp7(eth1) 10.77.1.2; \
                   tcp8(eth1) 10.77.1.3\" config_on_load=1\n";
    let (a, b) = (site.daemon(&site.a, options), site.daemon(&site.b, options));
    assert_eq!(a.nids(), ["10.77.0.2@tcp", "10.77.1.2@tcp7"]);
    assert_eq!(b.nids(), ["10.77.0.3@tcp", "10.77.1.3@tcp8"]);
    a.ctl("ping 10.77.0.3@tcp");
    // The same by hand, on a host that no rule of these means, changes nothing.
    let (code, said) = a.run("ctl", "net add --ip2net tcp9");
    assert_ne!(code, 0, "{said}");
    assert_eq!(a.nids().len(), 2);
}

#[test]
fn without_parameters_all_is_the_first_interface_and_large_its_ipv6_address() {
    let Some(site) = Site::new("large") else { return };
    let (a, b) = (site.daemon(&site.a, ""), site.daemon(&site.b, ""));
    a.ctl("lnet configure --all");
    assert_eq!(a.nids(), ["10.77.0.2@tcp"]);
    a.ctl("lnet unconfigure");
    for daemon in [&a, &b] {
        daemon.ctl("lnet configure --all --large");
    }
    assert_eq!(a.nids(), ["fd00:77::2@tcp"]);
    // A new address is tentative for a while.
    let until = Instant::now() + PATIENCE;
    while a.run("ctl", "ping fd00:77::3@tcp").0 != 0 {
        assert!(Instant::now() < until, "{}", a.run("ctl", "ping fd00:77::3@tcp").1);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(a.ctl("discover fd00:77::3@tcp").contains("fd00:77::3@tcp"));
}

#[test]
fn a_modprobe_file_that_can_not_be_is_named_with_its_line_and_no_daemon_starts() {
    let dir = fresh::path("badmodprobe");
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("lnet.conf");
    fs::write(&file, "options lnet networks=tcp\noptions ksocklnd conns_per_peer=200\n").unwrap();
    let o = std::process::Command::new(PROGRAM)
        .args(["daemon", "--modprobe"])
        .arg(&file)
        .arg("--socket")
        .arg(dir.join("s"))
        .output()
        .unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let said = String::from_utf8_lossy(&o.stderr);
    assert!(!o.status.success());
    assert!(said.contains("conns_per_peer") && said.contains("200"), "{said}");
    assert!(said.contains(":2") || said.contains("line 2"), "{said}");
}
