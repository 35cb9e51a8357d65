//! What a daemon accepts it exports, and what it exports is imported: by `import`, by `lnetd --config`
//! and by `sim import`, with the same configuration in the end. Configurations are random, made by the
//! commands that a person types; seeds are printed.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lnet::Tunables;
use lnet_admin::{Ask as _, Client, Reply, Request};
use lnet_types::Prng;
use lnetctl::{Link, Session, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
/// Configurations tried. More with `ULNET_BACKUP_CASES`, from the seed `ULNET_BACKUP_SEED` on.
const CASES: u64 = 12;

/// A directory of a test, removed when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = fresh::path(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A daemon in the background, ended when dropped.
struct Daemon {
    socket: PathBuf,
    pid: u32,
}

impl Daemon {
    /// Starts one, with a configuration file if there is one.
    fn start(dir: &Dir, name: &str, profile: &str, config: Option<&Path>) -> Result<Self, String> {
        Self::start_on(fresh::port(), dir, name, profile, config)
    }

    /// The same on a port that others may have at other addresses.
    fn start_on(
        port: u16,
        dir: &Dir,
        name: &str,
        profile: &str,
        config: Option<&Path>,
    ) -> Result<Self, String> {
        let socket = dir.file(name);
        let mut command = Command::new(PROGRAM);
        command.args(["daemon", "--background", "--quiet"]);
        // "": the file says it.
        command.args(Some(profile).filter(|p| !p.is_empty()).map(|p| format!("--profile={p}")));
        command.arg("--socket");
        command.arg(&socket).args(["--port", &port.to_string(), "--log"]).arg(dir.file("log"));
        if let Some(file) = config {
            command.arg("--config").arg(file);
        }
        let output = command.output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut client = Client::connect(&socket).unwrap();
        let Ok(Reply::Status(status)) = client.ask(&Request::Status) else { panic!("no status") };
        Ok(Self { socket, pid: status.pid })
    }

    /// Runs a command of `lnetctl`: its exit code, and what it printed on both streams.
    fn ctl(&self, words: &[&str]) -> (i32, String, String) {
        let mut link = Link::new(Some(self.socket.clone()));
        let mut session = Session::new(&mut link);
        session.explain = true;
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let code = run(&mut session, &words);
        (code, session.out, session.err)
    }

    /// The same, which must succeed.
    fn says(&self, words: &[&str]) -> String {
        let (code, out, err) = self.ctl(words);
        assert_eq!(code, 0, "{words:?}: {out}{err}");
        out
    }

    fn backup(&self) -> String {
        self.says(&["export", "--backup"])
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
        // The next one may listen at the same socket.
        while Client::connect(&self.socket).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// A value of a tunable that may be one too many.
fn value(random: &mut Prng) -> (&'static str, String) {
    let row = &Tunables::TABLE[random.below(Tunables::TABLE.len() as u64) as usize];
    let near = random.below(5) as i64;
    let value = match random.below(5) {
        0 => row.min + near - 1,
        // Router buffers are memory, taken at once.
        1 if !row.name.ends_with("_buffers") => row.max - near + 1,
        2 => row.defaults[0] + near - 2,
        _ => near,
    };
    (row.name, value.to_string())
}

/// A command of a person who configures a node. It may be refused: then nothing has changed.
fn command(random: &mut Prng) -> Vec<String> {
    let mut n = |bound| random.below(bound);
    let net = ["tcp", "tcp1", "tcp2"][n(3) as usize];
    let own = format!("127.0.{}.{}@{net}", n(2), 1 + n(4));
    let peer = format!("127.1.{}.{}@{net}", n(2), 1 + n(6));
    let other = format!("127.1.2.{}@{}", 1 + n(6), ["tcp", "tcp1"][n(2) as usize]);
    let text = match n(12) {
        0..=3 => {
            let (name, value) = value(random);
            format!("set {name} {value}")
        }
        4 | 5 => {
            let credits = ["0", "1", "8", "2147483647", "2147483648", "4294967295"][n(6) as usize];
            let option =
                ["", "--peer-credits", "--credits", "--peer-buffer-credits"][n(4) as usize];
            let option =
                if option.is_empty() { String::new() } else { format!("{option} {credits}") };
            let lnd = ["", "--conns-per-peer 3", "--conns-per-peer 0", "--tos 46", "--tos -1"]
                [n(5) as usize];
            format!("net add --nid {own} {option} {lnd}")
        }
        6 => format!("net del --net {net}"),
        7 => {
            let more = ["", "--non_mr", "--lock_prim"][n(3) as usize];
            let nids = if n(2) == 0 { String::new() } else { format!("--nid {other}") };
            format!("peer add --prim_nid {peer} {nids} {more}")
        }
        8 => {
            let numbers = ["", "--hop 1", "--hop 255", "--priority 4294967295"][n(4) as usize];
            format!(
                "route add --net {} --gateway {peer} {numbers}",
                ["o2ib", "tcp7"][n(2) as usize]
            )
        }
        9 => {
            let rule = [
                "--src tcp --priority 0",
                "--dst 127.1.0.[1-3]@tcp --priority 4294967295",
                "--src tcp --dst tcp1 --priority 1",
                "--dst tcp2 --rte 127.1.0.1@tcp",
                "--src 127.0.*.1@tcp1 --dst tcp1",
                "--dst *@tcp --priority 2",
                "--src [10-20].0.0.*@tcp",
                "--dst *@o2ib --priority 3",
                "--dst [1-4]@gni1",
            ][n(9) as usize];
            let index = if n(2) == 0 { "--idx 0" } else { "" };
            format!("udsp add {rule} {index}")
        }
        10 => {
            let list = ["any", "127.[0-1].*.*@tcp", "tcp", "default", "127.0.0.0/8@tcp"];
            format!("net set --net {net} --accept-from {}", list[n(5) as usize])
        }
        _ => "set routing 1".to_owned(),
    };
    text.split_whitespace().map(str::to_owned).collect()
}

/// Lets a person configure a node.
fn configure(daemon: &Daemon, random: &mut Prng) -> Vec<String> {
    daemon.says(&["lnet", "configure"]);
    let mut accepted = Vec::new();
    for _ in 0..3 + random.below(25) {
        let words = command(random);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if daemon.ctl(&words).0 == 0 {
            accepted.push(words.join(" "));
        }
    }
    accepted
}

/// Whether two nodes have the same NIs and the same backup. Routes stand in no order of their own. An
/// import of a whole export may make more of a peer: what was only tried is configured by it.
fn assert_same(one: &Daemon, other: &Daemon, whole: bool, what: &str) {
    let parts = |node: &Daemon| {
        let backup = node.backup();
        // Below their keys, items begin in the first column.
        let (mut items, mut rest, mut key) = (std::collections::BTreeSet::new(), String::new(), "");
        let mut item = String::new();
        for line in backup.lines() {
            if line.starts_with('-') || !line.starts_with(' ') {
                items.insert(std::mem::take(&mut item));
            }
            if !line.starts_with(['-', ' ']) {
                key = line;
            }
            match key {
                "route:" | "peer:" if line != key => item = item + line + "\n",
                _ => rest = rest + line + "\n",
            }
        }
        items.insert(item);
        (rest + &node.says(&["net", "show"]), items)
    };
    let ((has, items), (had, before)) = (parts(one), parts(other));
    assert_eq!(has, had, "{what}");
    match whole {
        true => assert!(items.is_superset(&before), "{what}: {before:?} is not in {items:?}"),
        false => assert_eq!(items, before, "{what}"),
    }
}

#[test]
fn random_live_configurations_come_back_whole_from_their_exports() {
    let number = |name: &str, or| std::env::var(name).map_or(or, |n| n.parse().unwrap());
    let first = number("ULNET_BACKUP_SEED", 1);
    for seed in first..first + number("ULNET_BACKUP_CASES", CASES) {
        let dir = Dir::new(&format!("backup-{seed}"));
        let mut random = Prng::new(seed);
        let profile = ["default", "kernel", "documents", "off"][random.below(4) as usize];
        let node = Daemon::start(&dir, "a", profile, None).unwrap();
        let accepted = configure(&node, &mut random).join("\n");
        let what = format!("ULNET_BACKUP_SEED={seed} profile {profile}\n{accepted}\n");
        let backup = node.backup();
        let file = dir.file("backup.yaml");
        fs::write(&file, &backup).unwrap();
        // What a person reads, with all its counters, is as good.
        let whole = dir.file("whole.yaml");
        fs::write(&whole, node.says(&["export"])).unwrap();

        for export in [&file, &whole] {
            let other = Daemon::start(&dir, "b", profile, None).unwrap();
            other.says(&["lnet", "configure"]);
            let (code, out, err) = other.ctl(&["import", export.to_str().unwrap()]);
            assert_eq!(code, 0, "{what}import: {out}{err}\n{backup}");
            let what = format!("{what}import of {}", export.display());
            assert_same(&other, &node, export == &whole, &what);
        }

        let started = Daemon::start(&dir, "c", profile, Some(&file));
        let started = started.unwrap_or_else(|e| panic!("{what}--config: {e}\n{backup}"));
        assert_same(&started, &node, false, &format!("{what}--config"));

        let site = dir.file("site");
        fs::create_dir_all(&site).unwrap();
        fs::copy(&whole, site.join("node.yaml")).unwrap();
        let mut simulator = Command::new(PROGRAM);
        let simulator = simulator.args(["sim", "import"]).arg(&site).output().unwrap();
        // A node without an interface is no site.
        if backup.contains("net type") {
            let err = String::from_utf8_lossy(&simulator.stderr);
            assert!(simulator.status.success(), "{what}sim import: {err}\n{backup}");
        }
    }
}

/// The values of the report: accepted one by one, refused by every importer.
#[test]
fn a_retry_count_that_equals_the_transaction_timeout_is_imported_again() {
    let dir = Dir::new("backup-equal");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    for words in [["set", "transaction_timeout", "3"], ["set", "retry_count", "3"]] {
        node.says(&words);
    }
    let file = dir.file("backup.yaml");
    fs::write(&file, node.backup()).unwrap();
    let other = Daemon::start(&dir, "b", "default", Some(&file)).unwrap();
    assert_eq!(other.backup(), node.backup());
    node.says(&["import", file.to_str().unwrap()]);
}

#[test]
fn a_node_becomes_equal_to_a_file_by_the_smallest_change_or_stays_as_it_is() {
    let dir = Dir::new("sync");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    let file = dir.file("want.yaml");
    let path = file.to_str().unwrap();
    let sync = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut words = vec!["import", "--sync"];
        words.extend(more);
        words.push(path);
        node.ctl(&words)
    };
    let net = |nid: &str| format!("net:\n- net type: tcp\n  local NI(s):\n  - nid: {nid}\n");
    let peer = "peer:\n- primary nid: 127.0.9.9@tcp\n  peer ni:\n  - nid: 127.0.9.8@tcp\n";
    let global = "global:\n  retry_count: 3\n";
    let first = format!("{}{peer}{global}", net("127.0.0.3@tcp"));
    let change = "lnet configure\nset retry_count 3\nnet add tcp --nid 127.0.0.3@tcp\n\
                  peer add 127.0.9.9@tcp --nid 127.0.9.8@tcp\n";
    let (code, out, err) = sync(&first, &["--dry-run"]);
    assert_eq!((code, out.as_str()), (0, change), "{err}");
    assert!(node.ctl(&["net", "show"]).0 != 0, "a dry run changes nothing");
    assert_eq!(sync(&first, &[]).1, change);
    assert_eq!(sync(&first, &[]), (0, "no change\n".to_owned(), String::new()));
    // What another hand has added goes, what it has changed is as it was; the rest is not touched.
    node.says(&["peer", "add", "--prim_nid", "127.0.9.7@tcp"]);
    node.says(&["set", "retry_count", "1"]);
    let (code, out, err) = sync(&first, &[]);
    assert_eq!((code, out.as_str()), (0, "peer del 127.0.9.7@tcp\nset retry_count 3\n"), "{err}");
    // A file of which one thing cannot be changes nothing.
    let before = node.backup();
    let bad = format!("{}global:\n  retry_count: 2\n", net("127.0.0.4@tcp"))
        + "route:\n- net: o2ib\n  gateway: 10.0.0.1@tcp7\n";
    let (code, _, err) = sync(&bad, &[]);
    assert!(code != 0 && err.contains("nothing has changed"), "{code} {err}");
    assert_eq!(node.backup(), before);
    // Its own backup is no change.
    assert_eq!(sync(&before, &[]).1, "no change\n");
    let (code, _, err) = sync("global: {retry_counts: 1}\n", &[]);
    assert!(code != 0 && err.contains("invalid key 'retry_counts'"), "{err}");
    assert!(err.contains("did you mean 'retry_count'?"), "{err}");
}

/// Values that the node bounds, chooses by itself or writes in another form are equal to what it made
/// of them: a second run has nothing to do.
#[test]
fn a_second_sync_with_the_same_file_changes_nothing() {
    let dir = Dir::new("sync-twice");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    let file = dir.file("want.yaml");
    let ni = |more: &str| {
        format!("net:\n- net type: tcp\n  local NI(s):\n  - interfaces: {{0: lo}}\n{more}")
    };
    for text in [
        ni("    tunables: {peer_credits: 300, credits: 256}\n"),
        ni("    tunables: {peer_credits: 0, credits: 0, peer_buffer_credits: 0}\n"),
        ni("    tunables: {peer_credits: 999}\n    lnd tunables: {conns_per_peer: 0}\n"),
        ni("    nid: 127.0.0.9@tcp\n"),
        ni("  accept from: ['127.0.0.*@tcp0', tcp]\n"),
        ni("global: {recovery_interval: 5, max_interfaces: 5, discovery: 2, drop_asym_route: 7}\n"),
        ni("buffers: {tiny: 0, small: 3}\n"),
        ni("udsp:\n- dst: tcp0\n- src: 10.0.0.*@tcp\n  dst: '*@tcp1'\n"),
    ] {
        fs::write(&file, &text).unwrap();
        let sync = || node.says(&["import", "--sync", file.to_str().unwrap()]);
        let first = sync();
        assert_eq!(sync(), "no change\n", "after {first} of {text}");
        if text.contains("127.0.0.9") {
            assert!(node.says(&["net", "show"]).contains("127.0.0.9@tcp"), "{text}");
        }
    }
}

#[test]
fn buffers_that_are_set_while_routing_is_off_are_in_the_export() {
    let dir = Dir::new("buffers");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    let without = node.backup();
    assert!(!without.contains("buffers:"), "{without}");
    node.says(&["set", "tiny_buffers", "700"]);
    let backup = node.backup();
    assert!(backup.contains("tiny: 700"), "{backup}");
    let file = dir.file("backup.yaml");
    for export in [backup.clone(), node.says(&["export"])] {
        fs::write(&file, &export).unwrap();
        let other = Daemon::start(&dir, "b", "default", Some(&file)).unwrap();
        assert_eq!(other.backup(), backup, "{export}");
    }
    assert_eq!(node.says(&["import", "--sync", file.to_str().unwrap()]), "no change\n");
}

#[test]
fn an_interface_that_is_named_twice_is_deleted_once() {
    let dir = Dir::new("twice");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    node.says(&["net", "add", "--net", "tcp", "--if", "lo"]);
    node.says(&["net", "del", "--net", "tcp", "--if", "lo,lo"]);
    assert!(!node.says(&["net", "show"]).contains("@tcp"));
}

/// C-lnet-2.
#[test]
fn a_node_that_serves_a_target_is_not_unconfigured() {
    let dir = Dir::new("busy");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    node.says(&["net", "add", "--nid", "127.0.0.3@tcp"]);
    node.says(&["target", "add", &format!("t1=kv:{}", dir.file("store").display())]);
    let (code, _, err) = node.ctl(&["lnet", "unconfigure"]);
    assert_eq!(code & 0xff, 240, "{err}");
    assert!(err.contains("LNet configure error: LNET busy") && err.contains("t1"), "{err}");
    assert!(node.says(&["target", "show"]).contains("t1"));
    node.says(&["target", "del", "t1"]);
    node.says(&["lnet", "unconfigure"]);
    assert!(node.ctl(&["net", "show"]).0 != 0);
}

#[test]
fn a_locked_peer_that_the_file_does_not_name_goes() {
    let dir = Dir::new("sync-locked");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    node.says(&["net", "add", "--nid", "127.0.0.3@tcp"]);
    let file = dir.file("want.yaml");
    fs::write(&file, node.backup()).unwrap();
    let words = ["peer", "add", "--prim_nid", "127.0.9.9@tcp", "--nid", "127.0.9.8@tcp"];
    node.says(&[&words[..], &["--lock_prim"]].concat());
    let sync = || node.says(&["import", "--sync", file.to_str().unwrap()]);
    assert_eq!(sync(), "peer del 127.0.9.9@tcp\n");
    assert_eq!(sync(), "no change\n");
    assert!(!node.says(&["peer", "show"]).contains("127.0.9.9@tcp"));
}

/// What each of the files names cannot be: the same words and the same status, whether or not a change
/// was to be made, and nothing has changed.
#[test]
fn a_dry_run_refuses_what_the_real_run_refuses_in_the_same_words_and_with_the_same_status() {
    let dir = Dir::new("sync-dry");
    let port = fresh::port();
    let bare = Daemon::start_on(port, &dir, "b", "default", None).unwrap();
    let node = Daemon::start_on(port, &dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    node.says(&["net", "add", "--nid", "127.0.0.5@tcp"]);
    let file = dir.file("want.yaml");
    let has = "net:\n- net type: tcp\n  local NI(s):\n  - nid: 127.0.0.5@tcp\n";
    // One device is used once in a network.
    let also = format!("{has}- net type: tcp1\n  local NI(s):\n  - nid: 127.0.0.6@tcp1\n");
    let peer = "peer:\n- primary nid: 127.0.9.9@tcp\n  peer ni:\n  - nid: 127.0.9.8@tcp\n";
    let values = "global:\n  retry_count: 1\n  health_sensitivity: 5000\n";
    for (text, why) in [
        (format!("{also}{values}"), "health_sensitivity 5000: expected 0 to 1000"),
        (format!("{also}    CPT: \"[999]\"\n"), "CPT 999: expected 0 to"),
        (also.replace("nid: 127.0.0.6@tcp1", "interfaces:\n      0: nosuch0"), "'nosuch0'"),
        (
            format!("{also}  - nid: 127.0.0.6@tcp1\n"),
            "127.0.0.6@tcp1: is a NID of this node already",
        ),
        (format!("{also}    lnd tunables:\n      tos: 256\n"), "tos"),
        (also.replace("tcp1", "gni"), "gni"),
        (format!("{also}{peer}route:\n- net: o2ib\n  gateway: 10.0.0.1@tcp7\n"), "10.0.0.1@tcp7"),
        (format!("{has}{peer}route:\n- net: tcp\n  gateway: 127.0.9.9@tcp\n"), "is on tcp itself"),
        (
            format!(
                "{has}{peer}- primary nid: 127.0.9.7@tcp\n  peer ni:\n  - nid: 127.0.9.8@tcp\n"
            ),
            "127.0.9",
        ),
        (format!("{has}udsp:\n- src: nonsense\n  action:\n    priority: 1\n"), "src"),
    ] {
        fs::write(&file, &text).unwrap();
        for node in [&node, &bare] {
            let before = (node.ctl(&["export", "--backup"]), node.ctl(&["lnet", "show"]));
            let sync = |more: &[&str]| {
                let words = ["import", "--sync"].iter().chain(more);
                node.ctl(&words.copied().chain([file.to_str().unwrap()]).collect::<Vec<_>>())
            };
            let (dry, real) = (sync(&["--dry-run"]), sync(&[]));
            assert_eq!(dry, real, "{text}");
            let (code, out, err) = dry;
            assert!(code != 0 && out.is_empty() && err.contains(why), "{text}{code} {out}{err}");
            let after = (node.ctl(&["export", "--backup"]), node.ctl(&["lnet", "show"]));
            assert_eq!(after, before, "{text}");
        }
    }
    // More steps than one request may have.
    let peers: String = (0..1500)
        .map(|n| format!("- primary nid: 10.7.{}.{}@tcp\n", n / 200, n % 200 + 1))
        .collect();
    fs::write(&file, format!("{has}peer:\n{peers}")).unwrap();
    let (code, out, err) = node.ctl(&["import", "--sync", "--dry-run", file.to_str().unwrap()]);
    assert_eq!((code, out.lines().count()), (0, 1500), "{err}");
    fs::write(
        &file,
        format!(
            "{has}peer:\n{peers}- primary nid: 10.7.9.9@tcp\n  peer ni:\n  - nid: 10.7.0.1@tcp\n"
        ),
    )
    .unwrap();
    let (code, out, err) = node.ctl(&["import", "--sync", "--dry-run", file.to_str().unwrap()]);
    assert!(code != 0 && out.is_empty() && err.contains("10.7.9.9@tcp"), "{code} {out}{err}");
}

/// Of a gateway the peer can only be configured while no route leads over it, and the last interface of a
/// net takes its peers and the routes over it along.
#[test]
fn a_backup_with_a_route_is_no_change_and_makes_each_state_equal_to_it() {
    let dir = Dir::new("sync-route");
    let port = fresh::port();
    let daemon = |name| Daemon::start_on(port, &dir, name, "default", None).unwrap();
    let (node, router) = (daemon("a"), daemon("r"));
    router.says(&["lnet", "configure"]);
    router.says(&["net", "add", "--nid", "127.0.7.2@tcp"]);
    router.says(&["net", "add", "--nid", "127.0.7.2@tcp1"]);
    router.says(&["set", "routing", "1"]);
    node.says(&["lnet", "configure"]);
    node.says(&["net", "add", "--nid", "127.0.7.1@tcp"]);
    node.says(&["route", "add", "--net", "tcp1", "--gateway", "127.0.7.2@tcp"]);
    node.says(&["discover", "127.0.7.2@tcp"]);
    let backup = node.backup();
    for part in ["route:", "peer:", "127.0.7.2@tcp1"] {
        assert!(backup.contains(part), "{part}: {backup}");
    }
    let file = dir.file("want.yaml");
    let sync = |text: &str| {
        fs::write(&file, text).unwrap();
        node.ctl(&["import", "--sync", file.to_str().unwrap()])
    };
    let no_change = (0, "no change\n".to_owned(), String::new());
    assert_eq!(sync(&backup), no_change);
    let other = backup.replace("credits: 256", "credits: 64");
    assert_ne!(other, backup);
    for text in [&other, &backup, &other] {
        let (code, out, err) = sync(text);
        assert!(code == 0 && out.contains("route add tcp1 127.0.7.2@tcp"), "{out}{err}");
        assert_eq!(node.backup(), *text);
        assert_eq!(sync(text), no_change);
    }
    node.says(&["lnet", "unconfigure"]);
    assert_eq!(sync(&backup).0, 0);
    assert_eq!(node.backup(), backup);
    assert_eq!(sync(&backup), no_change);
    // The classic import says what to do about what is there.
    let (code, _, err) = node.ctl(&["import", file.to_str().unwrap()]);
    assert!(code != 0 && err.contains("import --sync"), "{err}");
}

#[test]
fn a_file_for_another_profile_is_refused_at_the_start() {
    let dir = Dir::new("profile");
    let file = dir.file("want.yaml");
    for (name, starts) in [("default", true), ("kernel", false), ("kernl", false)] {
        fs::write(&file, format!("global:\n  profile: {name}\n  retry_count: 1\n")).unwrap();
        let outcome = Daemon::start(&dir, "a", "default", Some(&file)).map(drop);
        let expected = if name == "kernl" { "expected one of default," } else { "must be default" };
        let why = format!("profile {name} at line 2, column 12: {expected}");
        match outcome {
            Ok(()) => assert!(starts, "{name}"),
            Err(said) => assert!(!starts && said.contains(&why), "{name}: {said}"),
        }
    }
    // Without one on the command line it is that of the file.
    fs::write(&file, "global:\n  profile: kernel\n  retry_count: 1\n").unwrap();
    let node = Daemon::start(&dir, "b", "", Some(&file)).unwrap();
    let (code, _, err) = node.ctl(&["import", "--sync", file.to_str().unwrap()]);
    assert_eq!(code, 0, "it is in force: {err}");
}

#[test]
fn an_export_of_what_is_configured_leaves_out_a_nid_that_was_only_pinged() {
    let dir = Dir::new("mistake");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    node.says(&["net", "add", "--nid", "127.0.0.3@tcp"]);
    node.says(&["peer", "add", "--prim_nid", "127.0.0.8@tcp"]);
    node.ctl(&["ping", "--timeout", "200", "127.0.0.9@tcp"]);
    node.says(&["ping", "127.0.0.3@tcp"]);
    assert!(node.says(&["peer", "show"]).contains("127.0.0.9@tcp"), "it is a peer all the same");
    let backup = node.says(&["export", "--configured-only"]);
    assert!(!backup.contains("127.0.0.9@tcp"), "{backup}");
    assert!(backup.contains("127.0.0.8@tcp"), "{backup}");
}

/// UG-067. `recovery_interval` is taken and has no effect, as with kernel nodes, which do not show it.
#[test]
fn the_shipped_base_configuration_is_what_global_show_prints_afterwards() {
    let dir = Dir::new("base");
    let daemon = Daemon::start(&dir, "base.sock", "default", None).unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/health-base.yaml");
    daemon.says(&["lnet", "configure"]);
    daemon.says(&["import", file]);
    let shown = daemon.says(&["global", "show"]);
    let text = fs::read_to_string(file).unwrap();
    let values: Vec<_> = text.lines().filter(|l| l.starts_with("    ")).map(str::trim).collect();
    assert_eq!(values.len(), 7);
    for value in values.iter().filter(|v| !v.starts_with("recovery_interval")) {
        assert!(shown.lines().any(|l| l.trim() == *value), "{value} is not in\n{shown}");
    }
}

#[test]
fn an_import_passes_on_what_the_daemon_says() {
    let dir = Dir::new("words");
    let node = Daemon::start(&dir, "a", "default", None).unwrap();
    node.says(&["lnet", "configure"]);
    let file = dir.file("bad.yaml");
    let import = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["ctl", "--socket"]).arg(&node.socket).arg("import").arg(&file);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{text}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (text, says) in [
        ("global:\n  health_sensitivity: 5000\n", "health_sensitivity 5000"),
        ("global:\n  retry_count: 2\n  creditz: 2\n", "line 3, column 3"),
        ("net:\n- net type: o2ib\n  local NI(s):\n  - interfaces: {0: lo}\n", "o2ib"),
        ("net:\n- net type: tcp\n  tunables: {creditz: 1}\n", "did you mean 'credits'?"),
    ] {
        let err = import(text);
        assert!(err.starts_with("---\nadd:\n-     "), "the document comes first: {err}");
        assert!(err.contains(says), "{says} is not in {err}");
    }
}

#[test]
fn a_hundred_thousand_peers_are_exported_and_imported() {
    const PEERS: u32 = 100_000;
    let dir = Dir::new("backup-many");
    let mut text = "peer:\n".to_owned();
    for n in 0..PEERS {
        use std::fmt::Write as _;
        let [_, a, b, c] = n.to_be_bytes();
        let _ = write!(text, "- primary nid: 10.{a}.{b}.{c}@tcp\n  peer ni:\n");
        let nids = if n % 4 == 0 { &["tcp", "tcp1"][..] } else { &["tcp"] };
        for net in nids {
            let _ = writeln!(text, "  - nid: 10.{a}.{b}.{c}@{net}");
        }
    }
    let file = dir.file("many.yaml");
    fs::write(&file, text).unwrap();
    let node = Daemon::start(&dir, "a", "default", Some(&file)).unwrap();
    let backup = node.backup();
    assert!(backup.len() > 8 << 20, "{} bytes", backup.len());
    assert_eq!(backup.matches("primary nid").count(), PEERS as usize);
    fs::write(&file, &backup).unwrap();
    drop(node);
    let other = Daemon::start(&dir, "b", "default", None).unwrap();
    other.says(&["lnet", "configure"]);
    other.says(&["import", file.to_str().unwrap()]);
    assert!(other.backup() == backup, "the backup of what was imported is another one");
}
