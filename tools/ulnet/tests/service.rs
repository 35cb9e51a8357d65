//! The daemon as a service: what it tells systemd, its configuration read anew, its end, and the
//! packages that bring it.

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
        let dir = fresh::path(&format!("service-{name}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("node.yaml"), config).unwrap();
        let systemd = UnixDatagram::bind(dir.join("notify")).unwrap();
        systemd.set_read_timeout(Some(PATIENCE)).unwrap();
        let port = fresh::port();
        // The watchdog is for the process with this number, which the shell becomes.
        let mut command = Command::new("sh");
        command
            .args(["-c", "WATCHDOG_PID=$$ exec \"$0\" \"$@\"", PROGRAM])
            .args(["daemon", "-q", "--port", &port.to_string()])
            .arg("--config")
            .arg(dir.join("node.yaml"))
            .arg("--socket")
            .arg(dir.join("s"))
            .arg("--log")
            .arg(dir.join("log"))
            .env("NOTIFY_SOCKET", dir.join("notify"))
            .stderr(Stdio::null());
        if watchdog {
            command.env("WATCHDOG_USEC", "400000");
        }
        let child = command.spawn().unwrap();
        Self { dir, child, systemd }
    }

    /// The next notification to systemd.
    fn notified(&self) -> String {
        let mut buf = [0; 256];
        let n = self.systemd.recv(&mut buf).expect("systemd gets no notification");
        String::from_utf8_lossy(&buf[..n]).into_owned()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn reload(&self, config: &str) {
        fs::write(self.dir.join("node.yaml"), config).unwrap();
        self.signal("-HUP");
        assert!(self.notified().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(self.notified().trim(), "READY=1");
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
fn systemd_gets_notifications_of_readiness_reloads_and_the_end() {
    let mut s = Service::start("life", &config(1, &["tcp"]), false);
    assert_eq!(s.notified().trim(), "READY=1");
    s.reload(&config(1, &["tcp"]));
    s.signal("-TERM");
    assert_eq!(s.notified().trim(), "STOPPING=1");
    assert!(s.child.wait().unwrap().success());
    assert!(!s.dir.join("s").exists());
}

/// Exports hold the default of what has no effect any more: read again, it is no news.
#[test]
fn the_log_of_a_daemon_in_the_foreground_warns_of_what_a_file_changes_in_vain() {
    let of = |interval| {
        config(1, &["tcp"])
            .replace("global:\n", &format!("global:\n  recovery_interval: {interval}\n"))
    };
    let s = Service::start("log", &of(1), false);
    assert_eq!(s.notified().trim(), "READY=1");
    let log = || fs::read_to_string(s.dir.join("log")).unwrap();
    assert!(!log().contains("recovery_interval"), "{}", log());
    s.reload(&of(3));
    assert!(log().contains("recovery_interval is deprecated"), "{}", log());
}

#[test]
fn the_watchdog_hears_of_the_node_again_and_again() {
    let s = Service::start("dog", &config(1, &["tcp"]), true);
    let notes: Vec<String> = (0..4).map(|_| s.notified().trim().to_owned()).collect();
    assert!(notes.iter().filter(|t| *t == "WATCHDOG=1").count() >= 3, "{notes:?}");
}

#[test]
fn a_reload_applies_what_has_changed_or_nothing() {
    let s = Service::start("reload", &config(1, &["tcp"]), false);
    s.notified();
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

/// What was made by hand is there after a reload that was refused, also what the file named newly.
#[test]
fn a_refused_reload_keeps_what_was_made_by_hand_and_all_tunables() {
    let s = Service::start("refused", &config(1, &["tcp"]), false);
    s.notified();
    for words in [
        "net add --nid 127.0.0.5@tcp5",
        "route add --net tcp9 --gateway 127.0.0.6@tcp5",
        "peer add --prim_nid 127.0.0.7@tcp5",
    ] {
        s.ctl(words);
    }
    let before = s.ctl("export --backup");
    for made in ["127.0.0.5@tcp5", "net: tcp9", "127.0.0.7@tcp5"] {
        assert!(before.contains(made), "{made} is not in\n{before}");
    }
    let by_nid = "- net type: tcp5\n  local NI(s):\n  - nid: 127.0.0.5@tcp5\n";
    let more = "  discovery: 0\nbuffers: {tiny: 700}\nnet:\n";
    let tcp5 = config(7, &["tcp"]).replace("net:\n", more) + by_nid;
    let bad = tcp5.clone() + "- net type: tcp6\n  interfaces: {0: nosuch0}\n";
    for refused in [&bad, &config(2, &["tcp", "tcp5", "tcp6"])] {
        s.reload(&refused.replace("tcp6", "o2ib6"));
        assert_eq!(s.ctl("export --backup"), before, "after {refused}");
    }
    // What is there already is no reason to refuse a file.
    s.reload(&tcp5);
    let after = s.ctl("export --backup");
    assert!(after.contains("retry_count: 7") && after.contains("127.0.0.7@tcp5"), "{after}");
    // From now on it is the file's.
    s.reload(&config(7, &["tcp"]));
    assert!(!s.ctl("net show").contains("tcp5"));
    // The base of the next reload is what the daemon has configured since.
    s.ctl("lnet unconfigure");
    s.ctl("lnet configure");
    s.reload(&config(7, &["tcp"]));
    assert!(s.ctl("net show").contains("127.0.0.1@tcp"));
}

#[test]
fn a_refused_configuration_leaves_the_lists_of_peers_that_may_connect() {
    let s = Service::start("doors", &config(1, &["tcp"]), false);
    s.notified();
    let before = s.ctl("export --backup");
    s.ctl("lnet unconfigure");
    let listed = "- net type: tcp\n  accept from: ['127.0.0.200@tcp']\n";
    let bad = config(1, &["tcp"]).replace("- net type: tcp\n", listed)
        + "- net type: tcp6\n  interfaces: {0: nosuch0}\n";
    fs::write(s.dir.join("node.yaml"), bad).unwrap();
    s.ctl("lnet configure --all");
    assert!(!s.ctl("net show").contains("127.0.0.1@tcp"), "the configuration is refused");
    fs::write(s.dir.join("node.yaml"), config(1, &["tcp"])).unwrap();
    s.ctl("lnet configure --all");
    assert_eq!(s.ctl("export --backup"), before);
}

#[test]
fn a_reload_of_a_shorter_file_ends_as_a_new_start_with_it() {
    let bare = config(5, &["tcp"]);
    let extra = "ulnet: {health_range: 50}\nrouting: {enable: 1}\nbuffers: {tiny: 700}\n\
                 peer:\n- primary nid: 127.0.0.7@tcp\n  lock_prim: true\n";
    let tuned = bare
        .replace("  - interfaces:", "  - tunables: {peer_credits: 16}\n    interfaces:")
        .replace("global:\n", "global:\n  transaction_timeout: 60\n  discovery: 0\n")
        + extra;
    let s = Service::start("shorter", &tuned, false);
    s.notified();
    let before = s.ctl("export --backup");
    for value in ["peer_credits: 16", "health_range: 50", "tiny: 700", "127.0.0.7@tcp"] {
        assert!(before.contains(value), "{value} is not in\n{before}");
    }
    s.reload(&bare);
    let fresh = Service::start("fresh", &bare, false);
    fresh.notified();
    let log = fs::read_to_string(s.dir.join("log")).unwrap();
    assert_eq!(s.ctl("export --backup"), fresh.ctl("export --backup"), "{log}");
    // Rules by addresses are not compared with the node: a change of them is refused by name.
    let rules = bare + "ip2nets:\n- net-spec: tcp7\n  ip-range:\n    0: 127.0.0.*\n";
    s.reload(&rules);
    let log = fs::read_to_string(s.dir.join("log")).unwrap();
    assert!(log.contains("a change of ip2nets needs a new start of the daemon"), "{log}");
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

/// Files of both packages.
const INSTALLED: [&str; 35] = [
    "/usr/sbin/ulnet",
    "/usr/sbin/lnetd -> ulnet",
    "/usr/lib/ulnet/bin/lnetd -> ../../../sbin/ulnet",
    "/usr/lib/ulnet/bin/lnetctl -> ../../../sbin/ulnet",
    "/usr/lib/ulnet/bin/lctl -> ../../../sbin/ulnet",
    "/usr/lib/ulnet/bin/lst -> ../../../sbin/ulnet",
    "/usr/lib/ulnet/bin/routerstat -> ../../../sbin/ulnet",
    "/usr/lib/ulnet/env",
    "/usr/lib/systemd/system/lnetd.service",
    "/usr/share/doc/ulnet/copyright",
    "/usr/share/doc/ulnet/changelog.gz",
    "/usr/share/doc/ulnet/examples/node.yaml",
    "/usr/share/doc/ulnet/examples/scenarios/dark.toml",
    "/usr/share/doc/ulnet/examples/slurm/sweep.sbatch",
    "/usr/share/doc/ulnet/examples/kubernetes/swarm.yaml",
    "/usr/share/doc/ulnet/examples/grafana/ulnet.json",
    "/usr/share/doc/ulnet/examples/prometheus/ulnet.rules.yml",
    "/usr/share/man/man1/ulnet.1.gz",
    "/usr/share/man/man8/lnetd.8.gz",
    "/usr/share/man/man8/ulnet-lnetctl.8.gz",
    "/usr/share/man/man8/ulnet-lst.8.gz",
    "/usr/lib/ulnet/share/man/man8/lnetctl.8.gz -> ../../../../../share/man/man8/ulnet-lnetctl.8.gz",
    "/usr/share/bash-completion/completions/ulnet",
    "/usr/share/bash-completion/completions/lnetd",
    "/usr/share/fish/vendor_completions.d/ulnet.fish",
    "/usr/share/fish/vendor_completions.d/lnetd.fish",
    "/usr/lib/ulnet/completions/lnetctl.bash",
    "/usr/lib/ulnet/completions/lctl.bash",
    "/usr/lib/ulnet/completions/lst.bash",
    "/usr/lib/ulnet/completions/routerstat.bash",
    "/usr/lib/ulnet/completions/_lnetctl",
    "/usr/lib/ulnet/completions/_lst",
    "/usr/lib/ulnet/completions/lnetctl.fish",
    "/usr/lib/ulnet/completions/lctl.fish",
    "/usr/lib/ulnet/completions/routerstat.fish",
];

/// A folder with a package that a script of `packaging/` built, gone with the test.
struct Package {
    dir: PathBuf,
    file: PathBuf,
}

impl Package {
    fn build(script: &str) -> Self {
        let dir = fresh::path(script);
        fs::create_dir_all(&dir).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(script);
        let o = Command::new(path).arg(PROGRAM).arg(&dir).output().unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        let file = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
        Self { dir, file }
    }

    /// What a tool prints about the package.
    fn by(&self, tool: &str, words: &[&str]) -> String {
        let o = Command::new(tool).args(words).arg(&self.file).output().unwrap();
        assert!(o.status.success(), "{tool} {words:?}: {}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8_lossy(&o.stdout).into_owned()
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// No file of a package has the place of one of the kernel's utilities.
fn assert_no_conflict(list: &str) {
    for name in ["lnetctl", "lctl", "lst", "routerstat"] {
        for path in [
            format!("/usr/sbin/{name}"),
            format!("/usr/bin/{name}"),
            format!("/usr/share/man/man8/{name}.8.gz"),
            format!("/usr/share/bash-completion/completions/{name}"),
        ] {
            assert!(!list.contains(&path), "{path} belongs to the kernel's utilities");
        }
    }
}

#[test]
fn the_debian_package_has_all_files_and_no_conflict_with_the_kernels_utilities() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return netns::skipped("the Debian package", "there is no dpkg-deb");
    }
    let deb = Package::build("deb");
    let list = deb.by("dpkg-deb", &["--contents"]);
    let zsh = "/usr/share/zsh/vendor-completions/_ulnet";
    let debian = "/usr/share/doc/ulnet/changelog.Debian.gz";
    for path in INSTALLED.iter().chain(&[zsh, debian]) {
        let end = format!(" .{path}");
        assert!(list.lines().any(|line| line.ends_with(&end)), "{path} is not in\n{list}");
    }
    assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");
    assert_no_conflict(&list);
    let control = deb.by("dpkg-deb", &["--field"]);
    assert!(!control.contains("Conflicts") && control.contains("Package: ulnet"), "{control}");
    let parts = deb.dir.join("parts");
    let o = Command::new("dpkg-deb").arg("--raw-extract").arg(&deb.file).arg(&parts).output();
    assert!(o.unwrap().status.success());
    let script = |name: &str| fs::read_to_string(parts.join("DEBIAN").join(name)).unwrap();
    assert!(script("postinst").contains("systemctl daemon-reload"));
    assert!(script("postinst").contains("systemctl try-restart lnetd.service"));
    assert!(
        script("prerm").contains("disable --now") && script("postrm").contains("daemon-reload")
    );
    for name in ["postinst", "prerm", "postrm"] {
        // Where systemd does not run, and for any word of dpkg, they do nothing and succeed.
        if !Path::new("/run/systemd/system").exists() {
            let path = parts.join("DEBIAN").join(name);
            assert!(Command::new(path).arg("configure").status().unwrap().success(), "{name}");
        }
    }
    let copyright = fs::read_to_string(parts.join("usr/share/doc/ulnet/copyright")).unwrap();
    assert!(copyright.contains("License: MIT or Apache-2.0"));
    assert_programs_of(&parts);
}

/// The links of an unpacked package are programs, and PATH decides which.
fn assert_programs_of(root: &Path) {
    let bin = root.join("usr/lib/ulnet/bin");
    for name in ["lnetctl", "lctl", "lst", "routerstat", "lnetd"] {
        let o = Command::new(bin.join(name)).arg("--help").stdin(Stdio::null()).output().unwrap();
        let said = [o.stdout, o.stderr].concat();
        assert!(String::from_utf8_lossy(&said).contains(name), "{name}");
    }
    assert!(fs::read(root.join("usr/lib/ulnet/share/man/man8/lnetctl.8.gz")).is_ok());
    let env = fs::read_to_string(root.join("usr/lib/ulnet/env")).unwrap();
    let env = env.replace("/usr/lib/ulnet", root.join("usr/lib/ulnet").to_str().unwrap());
    for (shell, look) in
        [("sh", "command -v lnetctl"), ("bash", "complete -p lst lctl lnetctl; command -v lnetctl")]
    {
        let o = Command::new(shell).args(["-c", &format!("{env}\n{look}")]).output().unwrap();
        let said = String::from_utf8_lossy(&o.stdout);
        let errors = String::from_utf8_lossy(&o.stderr);
        assert!(o.status.success(), "{shell}: {said} {errors}");
        assert!(said.ends_with("usr/lib/ulnet/bin/lnetctl\n"), "{shell}: {said}");
    }
}

#[test]
fn the_rpm_has_all_files_and_no_conflict_with_the_kernels_utilities() {
    if Command::new("rpmbuild").arg("--version").output().is_err() {
        return netns::skipped("the RPM", "there is no rpmbuild");
    }
    let rpm = Package::build("rpm");
    let of_links = "[%{FILENAMES}%|FILELINKTOS?{ -> %{FILELINKTOS}}|\n]";
    let list = rpm.by("rpm", &["--query", "--queryformat", of_links, "--package"]);
    let zsh = "/usr/share/zsh/site-functions/_ulnet";
    let licence = "/usr/share/licenses/ulnet/LICENSE-APACHE";
    for path in INSTALLED.iter().chain(&[zsh, licence]) {
        let there = |line: &str| line.trim_end_matches(" -> ") == *path;
        assert!(list.lines().any(there), "{path} is not in\n{list}");
    }
    assert_no_conflict(&list);
    let conflicts = rpm.by("rpm", &["--query", "--conflicts", "--obsoletes", "--package"]);
    assert_eq!(conflicts, "");
    let scripts = rpm.by("rpm", &["--query", "--scripts", "--package"]);
    assert!(scripts.contains("daemon-reload") && scripts.contains("try-restart lnetd.service"));
    let facts = rpm.by("rpm", &["--query", "--info", "--changelog", "--package"]);
    assert!(facts.contains("License     : MIT OR Apache-2.0"), "{facts}");
    assert!(facts.contains(concat!("- Version ", env!("CARGO_PKG_VERSION"), "; ")), "{facts}");
}
