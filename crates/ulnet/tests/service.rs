//! The daemon as a service: what it tells systemd, its configuration read anew, its end, and the
//! package that brings it.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon and the socket that stands in for systemd.
struct Service {
    dir: PathBuf,
    child: Child,
    systemd: UnixDatagram,
}

impl Service {
    fn start(name: &str, config: &str, watchdog: bool) -> Self {
        let dir = std::env::temp_dir().join(format!("ulnet-service-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("node.yaml"), config).unwrap();
        let systemd = UnixDatagram::bind(dir.join("notify")).unwrap();
        systemd.set_read_timeout(Some(PATIENCE)).unwrap();
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        // The watchdog is for the process with this number, which the shell becomes.
        let mut command = Command::new("sh");
        command
            .args(["-c", "WATCHDOG_PID=$$ exec \"$0\" \"$@\"", PROGRAM])
            .args(["daemon", "-q", "--port", &port.to_string()])
            .arg("--config")
            .arg(dir.join("node.yaml"))
            .arg("--socket")
            .arg(dir.join("s"))
            .env("NOTIFY_SOCKET", dir.join("notify"))
            .stderr(Stdio::null());
        if watchdog {
            command.env("WATCHDOG_USEC", "400000");
        }
        let child = command.spawn().unwrap();
        Self { dir, child, systemd }
    }

    /// The next thing that systemd is told.
    fn told(&self) -> String {
        let mut buf = [0; 256];
        let n = self.systemd.recv(&mut buf).expect("systemd is told nothing");
        String::from_utf8_lossy(&buf[..n]).into_owned()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn reload(&self, config: &str) {
        fs::write(self.dir.join("node.yaml"), config).unwrap();
        self.signal("-HUP");
        assert!(self.told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(self.told().trim(), "READY=1");
    }

    fn ctl(&self, words: &str) -> String {
        let mut ctl = Command::new(PROGRAM);
        ctl.arg("ctl").args(words.split_whitespace()).env("ULNET_SOCKET", self.dir.join("s"));
        String::from_utf8(ctl.stdin(Stdio::null()).output().unwrap().stdout).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn config(retries: u32, nets: &[&str]) -> String {
    let mut text = format!("global:\n  retry_count: {retries}\n");
    for (i, net) in nets.iter().enumerate() {
        let key = if i == 0 { "net:\n" } else { "" };
        text += &format!("{key}- net type: {net}\n  local NI(s):\n  - interfaces:\n      0: lo\n");
    }
    text
}

#[test]
fn systemd_is_told_of_readiness_reloads_and_the_end() {
    let mut s = Service::start("life", &config(1, &["tcp"]), false);
    assert_eq!(s.told().trim(), "READY=1");
    s.reload(&config(1, &["tcp"]));
    s.signal("-TERM");
    assert_eq!(s.told().trim(), "STOPPING=1");
    assert!(s.child.wait().unwrap().success());
    assert!(!s.dir.join("s").exists());
}

#[test]
fn the_watchdog_hears_of_the_node_again_and_again() {
    let s = Service::start("dog", &config(1, &["tcp"]), true);
    let told: Vec<String> = (0..4).map(|_| s.told().trim().to_owned()).collect();
    assert!(told.iter().filter(|t| *t == "WATCHDOG=1").count() >= 3, "{told:?}");
}

#[test]
fn a_reload_applies_what_has_changed_or_nothing() {
    let s = Service::start("reload", &config(1, &["tcp"]), false);
    s.told();
    // By hand, and not in the file: stays.
    s.ctl("set transaction_timeout 17");
    s.reload(&config(3, &["tcp", "tcp5"]));
    assert!(s.ctl("net show").contains("127.0.0.1@tcp5"));
    let global = s.ctl("global show");
    assert!(global.contains("retry_count: 3") && global.contains("transaction_timeout: 17"));
    // A file that cannot be read, and one that cannot be applied, change nothing.
    let broken = config(2, &["tcp"]) + "frobnicate: 1\n";
    let impossible = config(2, &["tcp", "tcp6"]).replace("tcp6", "o2ib6");
    for bad in [broken, impossible] {
        s.reload(&bad);
        assert!(s.ctl("net show").contains("127.0.0.1@tcp5"), "after {bad}");
        assert!(s.ctl("global show").contains("retry_count: 3"), "after {bad}");
    }
    // What is not in it any more goes.
    s.reload(&config(3, &["tcp"]));
    let nets = s.ctl("net show");
    assert!(!nets.contains("tcp5") && nets.contains("127.0.0.1@tcp"), "{nets}");
    // What was taken down by hand comes back.
    s.ctl("lnet unconfigure");
    s.reload(&config(3, &["tcp"]));
    assert!(s.ctl("net show").contains("127.0.0.1@tcp"));
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/lnetd.service");
    let text = fs::read_to_string(unit).unwrap();
    for line in
        ["Type=notify\n", "ExecReload=", "WatchdogSec=", "CAP_NET_BIND_SERVICE", "DynamicUser=yes"]
    {
        assert!(text.contains(line), "{line}");
    }
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        eprintln!("\nSKIPPED: the unit under systemd-analyze: it is not installed");
        return;
    }
    let o = Command::new("systemd-analyze").args(["verify", "--man=no", unit]).output().unwrap();
    let said = String::from_utf8_lossy(&o.stderr);
    // The program is not installed where tests run; all else must be in order.
    let ours = said.lines().filter(|l| l.contains("lnetd.service") && !l.contains("ot executable"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn the_package_has_the_program_under_every_name_the_service_and_the_manual() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return netns::skipped("the Debian package", "there is no dpkg-deb");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/deb");
    let dir = std::env::temp_dir().join(format!("ulnet-deb-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let o = Command::new(script).arg(PROGRAM).arg(&dir).output().unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let deb = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let o = Command::new("dpkg-deb").arg("--contents").arg(&deb).output().unwrap();
    let list = String::from_utf8_lossy(&o.stdout).into_owned();
    for path in [
        "./usr/sbin/ulnet",
        "./usr/sbin/lnetd -> ulnet",
        "./usr/sbin/lnetctl -> ulnet",
        "./usr/sbin/lctl -> ulnet",
        "./usr/sbin/lst -> ulnet",
        "./usr/sbin/routerstat -> ulnet",
        "./lib/systemd/system/lnetd.service",
        "./usr/share/man/man8/lnetd.8.gz",
        "./usr/share/man/man8/lnetctl.8.gz",
        "./usr/share/bash-completion/completions/lnetctl",
    ] {
        assert!(list.lines().any(|line| line.ends_with(path)), "{path} is not in\n{list}");
    }
    assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");
    let _ = fs::remove_dir_all(&dir);
}
