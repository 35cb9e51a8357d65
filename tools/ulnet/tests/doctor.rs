//! `lnetctl doctor` on a live site of two nodes and a router in network namespaces: first healthy,
//! then with six faults planted into it, then with what it says to do done, which clears them.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use netns::{Host, Port, Process, World};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PATIENCE: Duration = Duration::from_secs(30);

struct Node {
    name: &'static str,
    host: Host,
    dir: PathBuf,
    _daemon: Process,
}

impl Node {
    fn start(name: &'static str, host: Host, dir: PathBuf, config: &str) -> Self {
        let file = dir.join(format!("{name}-config.yaml"));
        fs::write(&file, config).unwrap();
        let mut command = host.command(PROGRAM);
        command.args(["daemon", "-q", "--config"]).arg(file);
        command.arg("--socket").arg(dir.join(name)).stderr(Stdio::null());
        let daemon = host.spawn(command).unwrap();
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(dir.join(name)).is_err() {
            assert!(Instant::now() < until, "no daemon on {name}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { name, host, dir, _daemon: daemon }
    }

    /// Exit status and what is printed.
    fn ctl(&self, words: &str) -> (i32, String) {
        let mut ctl = self.host.command(PROGRAM);
        ctl.arg("ctl").args(words.split_whitespace());
        ctl.env("ULNET_SOCKET", self.dir.join(self.name)).stdin(Stdio::null());
        let o = ctl.output().unwrap();
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        (o.status.code().unwrap(), text + &String::from_utf8_lossy(&o.stderr))
    }

    fn set(&self, setting: &str) {
        self.host.run(["sysctl", "-q", "-w", setting]).unwrap();
    }

    /// Writes itself down and says where; the hosts of a test share the name of the machine.
    fn saved(&self) -> String {
        let path = self.dir.join(format!("{}.yaml", self.name));
        let (code, said) = self.ctl(&format!("doctor --save {}", path.display()));
        assert_eq!(code, 0, "{said}");
        let text = fs::read_to_string(&path).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        fs::write(&path, format!("node: {}\n{rest}", self.name)).unwrap();
        path.display().to_string()
    }
}

fn nets(nets: &[(&str, &[&str])]) -> String {
    let mut text = "net:\n".to_owned();
    for (net, devices) in nets {
        text += &format!("- net type: {net}\n  local NI(s):\n");
        for device in *devices {
            text += &format!("  - interfaces:\n      0: {device}\n");
        }
    }
    text
}

fn findings(report: &str) -> Vec<serde_json::Value> {
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    report["findings"].as_array().unwrap().clone()
}

/// Runs each command of a report on the node that it is for; the first of `nodes` made the report, and
/// goes by the name of the machine in it.
fn put_right(nodes: &[&Node], report: &str) {
    for finding in findings(report) {
        let fixes = finding["fixes"].as_array().unwrap();
        assert!(!fixes.is_empty(), "{finding}");
        for fix in fixes {
            let on = nodes.iter().skip(1).find(|n| fix["node"] == n.name).unwrap_or(&nodes[0]);
            let command = fix["command"].as_str().unwrap();
            match command.strip_prefix("lnetctl ") {
                Some(words) => {
                    let (code, said) = on.ctl(words);
                    assert_eq!(code, 0, "{command}: {said}");
                }
                None => {
                    let done = on.host.run(command.split_whitespace());
                    assert!(done.is_ok(), "{command}: {done:?}");
                }
            }
        }
    }
}

#[test]
fn planted_faults_are_all_found_and_what_the_doctor_says_to_do_clears_them() {
    let world = match World::new("doctor") {
        Ok(world) => world,
        Err(why) => return netns::skipped("the doctor and a site of three nodes", why),
    };
    let [a, r, b] = ["a", "r", "b"].map(|name| world.host(name).unwrap());
    world
        .segment(&[
            Port::new(&a, "eth0", &["10.77.1.1/24"]),
            Port::new(&a, "eth1", &["10.77.1.2/24"]),
            Port::new(&r, "eth0", &["10.77.1.9/24"]),
        ])
        .unwrap();
    world
        .segment(&[
            Port::new(&r, "eth1", &["10.77.2.9/24"]),
            Port::new(&b, "eth0", &["10.77.2.1/24"]),
        ])
        .unwrap();
    let dir = fresh::path("doctor");
    fs::create_dir_all(&dir).unwrap();
    let route = |net: &str, gateway: &str| format!("route:\n- net: {net}\n  gateway: {gateway}\n");
    let a = Node::start(
        "a",
        a,
        dir.clone(),
        &(nets(&[("tcp1", &["eth0", "eth1"])]) + &route("tcp2", "10.77.1.9@tcp1")),
    );
    let forwards = nets(&[("tcp1", &["eth0"]), ("tcp2", &["eth1"])]) + "routing:\n- enable: 1\n";
    let r = Node::start("r", r, dir.clone(), &forwards);
    let b = Node::start(
        "b",
        b,
        dir.clone(),
        &(nets(&[("tcp2", &["eth0"])]) + &route("tcp1", "10.77.2.9@tcp2")),
    );
    // What two devices in one IP network need.
    for (device, ip, table) in [("eth0", "10.77.1.1", "100"), ("eth1", "10.77.1.2", "101")] {
        let add = ["ip", "route", "add", "10.77.1.0/24", "dev", device, "table", table];
        a.host.run(add).unwrap();
        a.host.run(["ip", "rule", "add", "from", ip, "table", table]).unwrap();
        for setting in ["arp_ignore=1", "arp_announce=2", "rp_filter=2"] {
            a.set(&format!("net.ipv4.conf.{device}.{setting}"));
        }
    }
    let doctor = |more: &str| {
        let (r, b) = (r.saved(), b.saved());
        a.ctl(&format!("doctor --export {r} --export {b} {more}"))
    };
    let (code, said) = doctor("");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("nothing found"), "{said}");
    // A route is used once its gateway has been heard from, which a site a second old may wait for.
    a.ctl("discover 10.77.1.9@tcp1");
    let (code, said) = a.ctl("doctor --peer 10.77.1.9@tcp1");
    assert_eq!(code, 0, "{said}");

    // 1: no way back; 2: a time-out that ends before what it waits for; 3: a tunable that differs;
    // 4: no source routing; 5: an MTU; 6: a strict filter.
    b.ctl("route del --net tcp1 --gateway 10.77.2.9@tcp2");
    a.ctl("net set --net tcp --lnd-timeout 60");
    b.ctl("set health_sensitivity 200");
    a.host.run(["ip", "rule", "del", "from", "10.77.1.2", "table", "101"]).unwrap();
    r.host.run(["ip", "link", "set", "dev", "eth1", "mtu", "1400"]).unwrap();
    a.set("net.ipv4.conf.eth0.rp_filter=1");
    let (code, said) = doctor("");
    assert_eq!(code, 1, "{said}");
    for (rule, remedy) in [
        ("asymmetric route", "on b: lnetctl route add --net tcp1 --gateway 10.77.2.9@tcp2"),
        ("time-outs", "lnetctl net set --net tcp1 --lnd-timeout 0"),
        ("tunables differ", "lnetctl set health_sensitivity 100"),
        ("no source routing", "ip rule add from 10.77.1.2 table 101"),
        ("MTU", "mtu 1"),
        ("rp_filter", "sysctl -w net.ipv4.conf.eth0.rp_filter=2"),
    ] {
        assert!(said.contains(&format!(": {rule}: ")), "{rule} is not in\n{said}");
        assert!(said.contains(remedy), "{remedy} is not in\n{said}");
    }
    let (_, said) = doctor("--json");
    assert!(findings(&said).len() >= 6, "{said}");
    // What it says to do puts all of it right. A node that waits longer for its routers wants them to
    // wait as long, which is seen when it does.
    let nodes = [&a, &r, &b];
    put_right(&nodes, &said);
    let (_, said) = doctor("--json");
    put_right(&nodes, &said);
    let (code, said) = doctor("");
    assert_eq!(code, 0, "{said}");

    // 7: NIDs of which neither can reach the other.
    for (node, net, gateway) in [(&a, "tcp2", "10.77.1.9@tcp1"), (&b, "tcp1", "10.77.2.9@tcp2")] {
        assert_eq!(node.ctl(&format!("route del --net {net} --gateway {gateway}")).0, 0);
    }
    let (code, said) = doctor("--json");
    assert_eq!(code, 1, "{said}");
    let rules: Vec<_> = findings(&said).iter().map(|f| f["rule"].clone()).collect();
    assert_eq!(rules, ["unreachable"], "{said}");
    put_right(&nodes, &said);
    let (code, said) = doctor("");
    assert_eq!(code, 0, "{said}");
    let _ = fs::remove_dir_all(&dir);
}
