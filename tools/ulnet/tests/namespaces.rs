//! `lnetctl` in a network namespace (`ip netns exec`): interfaces are those of the caller's namespace,
//! also where the daemon is in another one; those that the caller's does not have are the daemon's.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use netns::{Host, Port, Process, World};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PATIENCE: Duration = Duration::from_secs(30);

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn daemon(host: &Host, socket: &Path) -> Process {
    let mut command = host.command(PROGRAM);
    command.args(["daemon", "-q", "--socket"]).arg(socket).stderr(Stdio::null());
    let process = host.spawn(command).unwrap();
    let until = Instant::now() + PATIENCE;
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < until, "no daemon on {}", host.name());
        std::thread::sleep(Duration::from_millis(20));
    }
    process
}

/// Exit status and what is printed by `lnetctl` on a host, of the daemon at a socket.
fn ctl(host: &Host, socket: &Path, words: &str) -> (i32, String) {
    let mut command = host.command(PROGRAM);
    command.arg("ctl").args(words.split_whitespace());
    command.env("ULNET_SOCKET", socket).stdin(Stdio::null());
    let o = command.output().unwrap();
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    (o.status.code().unwrap(), text + &String::from_utf8_lossy(&o.stderr))
}

fn done(host: &Host, socket: &Path, words: &str) -> String {
    let (code, said) = ctl(host, socket, words);
    assert_eq!(code, 0, "{words}: {said}");
    said
}

#[test]
fn interfaces_are_added_in_the_network_namespace_of_the_caller() {
    let world = match World::new("callers") {
        Ok(world) => world,
        Err(why) => return netns::skipped("interfaces of a caller's namespace", why),
    };
    // The daemon's host has no interface at all.
    let [home, a, b] = ["home", "a", "b"].map(|name| world.host(name).unwrap());
    world
        .segment(&[
            Port::new(&a, "eth0", &["10.77.0.2/24"]),
            Port::new(&b, "eth0", &["10.77.0.3/24"]),
        ])
        .unwrap();
    let dir = fresh::path("callers");
    fs::create_dir_all(&dir).unwrap();
    let dir = Dir(dir);
    let (one, two) = (dir.0.join("one"), dir.0.join("two"));
    let _daemons = [daemon(&home, &one), daemon(&home, &two)];
    for (host, socket) in [(&a, &one), (&b, &two)] {
        done(host, socket, "lnet configure");
        done(host, socket, "net add --net tcp --if eth0");
    }
    let (code, said) = ctl(&home, &one, "net add --net tcp1 --if eth0");
    assert_ne!(code, 0, "the daemon's own namespace has no eth0: {said}");
    // Any caller sees and uses them.
    assert!(done(&home, &one, "net show").contains("nid: 10.77.0.2@tcp"));
    let answer = done(&home, &one, "ping 10.77.0.3@tcp");
    assert!(answer.contains("nid: 10.77.0.3@tcp"), "{answer}");
    // Their links are watched there.
    let status = || {
        let shown = done(&home, &one, "net show --net tcp");
        shown.lines().find_map(|l| l.trim().strip_prefix("status: ").map(str::to_owned))
    };
    assert_eq!(status().as_deref(), Some("up"));
    a.run(["ip", "link", "set", "eth0", "down"]).unwrap();
    let until = Instant::now() + PATIENCE;
    while status().as_deref() != Some("down") {
        assert!(Instant::now() < until, "{:?}", status());
        std::thread::sleep(Duration::from_millis(20));
    }
    done(&a, &one, "net del --net tcp --if eth0");
}

#[test]
fn a_caller_elsewhere_names_interfaces_of_the_namespace_of_the_daemon() {
    let world = match World::new("elsewhere") {
        Ok(world) => world,
        Err(why) => return netns::skipped("interfaces of a daemon's namespace", why),
    };
    let [outside, a, b] = ["outside", "a", "b"].map(|name| world.host(name).unwrap());
    world
        .segment(&[
            Port::new(&a, "eth0", &["10.77.0.2/24"]),
            Port::new(&b, "eth0", &["10.77.0.3/24"]),
        ])
        .unwrap();
    let dir = fresh::path("elsewhere");
    fs::create_dir_all(&dir).unwrap();
    let dir = Dir(dir);
    let (one, two) = (dir.0.join("one"), dir.0.join("two"));
    let _daemons = [daemon(&a, &one), daemon(&b, &two)];
    for socket in [&one, &two] {
        done(&outside, socket, "lnet configure");
        done(&outside, socket, "net add --net tcp --if eth0");
    }
    let answer = done(&outside, &one, "ping 10.77.0.3@tcp");
    assert!(answer.contains("nid: 10.77.0.3@tcp"), "{answer}");
    let (code, said) = ctl(&outside, &one, "net add --net tcp1 --if eth7");
    assert_ne!(code, 0, "neither has eth7: {said}");
    let (code, said) = ctl(&outside, &one, "net add --net tcp1 --if eth0,eth7");
    assert_ne!(code, 0, "{said}");
    assert!(said.contains("interface eth7: no such interface"), "eth0 is the daemon's: {said}");
    done(&outside, &one, "net del --net tcp --if eth0");
}
