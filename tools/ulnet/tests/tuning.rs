//! `ulnet tuning`: what it prints, what it refuses, and that nodes take what it advises.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tuning(words: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("tuning").args(words.split_whitespace()).current_dir(ROOT);
    command.stdin(Stdio::null()).output().unwrap()
}

fn printed(words: &str) -> String {
    let o = tuning(words);
    assert!(o.status.success(), "{words}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout).unwrap()
}

fn refused(words: &str, status: i32, why: &str) {
    let o = tuning(words);
    let said = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(status), "{words}: {said}");
    assert!(said.contains(why) && o.stdout.is_empty(), "{words}: {said}");
}

#[test]
fn the_seven_rows_of_the_formula_are_printed() {
    for (words, seconds) in [
        ("40 40 140", "260"),
        ("40 40 0", "160"),
        ("5 5 0", "20"),
        ("5 5 60", "75"),
        ("5 5 140s --at-min 5", "155"),
        ("40 40 40", "160"),
        ("100 100 1m", "400"),
        ("0 0 140 --at-min 40", "260"),
    ] {
        assert_eq!(printed(&format!("enqueue-min {words}")), format!("{seconds}\n"), "{words}");
    }
    let json = printed("enqueue-min 40 40 140 --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let wanted = serde_json::json!({ "net": 40, "service": 40, "quiesce": 140, "seconds": 260 });
    assert_eq!(json, wanted);
}

#[test]
fn routers_get_the_longest_times_of_servers_and_clients() {
    let text = printed("roles --server 35/35/10 --client 60/60/50");
    assert!(text.starts_with("router 60/60/50\n"), "{text}");
    assert!(text.contains("a server finds a dead router within 45 s"), "{text}");
    assert!(text.contains("within 110 s, a dead far side within 170 s, 220 s if"), "{text}");
    let json = printed("roles --server 35/35/10 --client 60/60/50 --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["router"], serde_json::json!({ "live": 60, "dead": 60, "timeout": 50 }));
    assert_eq!(json["client"]["learns_with_slow_answers_within"], 220);
}

#[test]
fn values_that_contradict_each_other_are_refused_with_the_rule_that_they_break() {
    for (words, rule) in [
        ("enqueue-min 700 5 0", "net 700: at_max is 600: an estimate is never above at_max"),
        ("enqueue-min 5 5 0 --at-min 50 --at-max 40", "at_min must not be above at_max"),
        ("enqueue-min 1 1 1 --at-min 0", "must cover a lost message, a reconnect and a resend"),
        (
            "roles --server 35/35/10 --client 60/60/50 --router 60/60/10",
            "router 60/60/10: client 60/60/50 needs 60/60/50: intervals and ping timeout of a router",
        ),
        (
            "roles --server 35/35/10 --client 60/60/50 --lnd-timeout 49",
            "router_ping_timeout must not be below the LND timeout",
        ),
        ("advise --clients 0", "clients 0: expected 1 to 10000000"),
        ("advise --role router", "role router: expected --routed"),
        ("advise --quiesce 2592000", "ldlm_enqueue_min"),
        ("advise --quiesce 1801 --prove --json", "quiesce 1801: limit of a play is 1800 s"),
        ("log no-such-file", "can't read no-such-file"),
    ] {
        refused(words, 1, rule);
    }
    for words in [
        "enqueue-min 40 40",
        "enqueue-min a b c",
        "roles --server 35/35 --client 60/60/50",
        "advise --net ib",
        "advise --as modprobe",
        "advise --role client --as yaml --json",
        "advise --role client --prove",
        "advise --seed 2",
        "advise --prove --played 1",
        "frobnicate",
    ] {
        refused(words, 2, "error:");
    }
}

#[test]
fn the_seven_lines_of_the_paper_are_read_as_it_says_but_for_the_span() {
    let text = printed("log fixtures/console/quiesce.log");
    for line in [
        "quiesces          2  15.0 s, 10.0 s",
        "restored targets  3",
        "span              133.9 s",
        "evictions         0",
        "ldlm_enqueue_min  254 = max(2 x 40, 40 + 134) + 2 x 40, at_min 40",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let json = printed("log fixtures/console/quiesce.log --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["outages"][0]["quiesces"].as_array().unwrap().len(), 2);
    assert_eq!(json["ldlm_enqueue_min"]["seconds"], 254);
}

#[test]
fn each_value_of_an_advice_has_one_sentence_of_reason() {
    let json = printed("advise --routed --net gni --clients 3600 --targets 32 --json");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert!(rows.len() > 20);
    for row in &rows {
        assert!(row["why"].as_str().unwrap().len() > 20, "{row}");
    }
    let text = printed("advise --routed --net gni --clients 3600 --targets 32");
    assert!(text.contains("ptlrpc ldlm_enqueue_min=260 ") && text.contains("\nrouter\n"), "{text}");
    assert!(text.contains("115200 connects"), "{text}");
}

#[test]
fn advice_is_proven_by_a_play_with_and_without_it_whose_seed_repeats_it() {
    let words = "advise --clients 100 --targets 8 --quiesce 200 --prove --played 10";
    let text = printed(words);
    assert!(text.contains("ptlrpc ldlm_enqueue_min=320 "), "{text}");
    assert!(text.contains("set_param timeout=180 "), "{text}");
    let scale =
        "\nplayed: 10 of 100 clients, 3 more that crash, 4 of 8 targets on 2 servers; seed 1\n";
    assert!(text.contains(scale), "{text}");
    let line = |values: &str| {
        let of = |l: &&str| l.starts_with("the network stands still for 1") && l.contains(values);
        // That of the span, behind the one of 15 s.
        text.lines().rfind(of).unwrap().to_owned()
    };
    let evicted = |line: &str| {
        let rest = line.split(", ").nth(1).unwrap();
        rest.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    assert!(evicted(&line("defaults")) > 0, "{text}");
    assert_eq!(evicted(&line("advised")), 0, "{text}");
    let document =
        |words: &str| -> serde_json::Value { serde_json::from_str(&printed(words)).unwrap() };
    let json = document(&format!("{words} --json"));
    assert!(json["advice"].as_array().unwrap().len() > 8);
    let events = json["proof"]["events"].as_array().unwrap();
    let last = events.last().unwrap();
    assert_eq!(last["defaults"]["evicted"], evicted(&line("defaults")), "{json}");
    for event in events {
        assert_eq!(event["advised"]["evicted"], 0, "{json}");
        assert_eq!(event["advised"]["dead_left"], 0, "{json}");
    }
    assert_eq!(document(&format!("{words} --json --seed 1")), json);
    assert_ne!(document(&format!("{words} --json --seed 2"))["proof"], json["proof"]);
}

/// A daemon, killed when dropped.
struct Daemon {
    dir: PathBuf,
    child: Child,
    /// What it has written until it was ready.
    log: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Daemon {
    fn start(name: &str, modprobe: Option<&str>) -> Self {
        let dir = fresh::path(&format!("tuning-{name}"));
        fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["daemon", "--socket"]).arg(dir.join("s"));
        if let Some(text) = modprobe {
            fs::write(dir.join("options.conf"), text).unwrap();
            command.arg("--modprobe").arg(dir.join("options.conf"));
        }
        let mut child = command.env("RUST_LOG", "info").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut log = String::new();
        while !log.contains("ready") {
            assert_ne!(lines.read_line(&mut log).unwrap(), 0, "{log}");
        }
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { dir, child, log }
    }

    fn run(&self, program: &str, words: &[&str]) -> String {
        let mut command = Command::new(PROGRAM);
        command.arg(program).args(words).env("ULNET_SOCKET", self.dir.join("s"));
        let o = command.stdin(Stdio::null()).output().unwrap();
        assert!(o.status.success(), "{words:?}: {}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8(o.stdout).unwrap()
    }

    fn param(&self, name: &str) -> String {
        self.run("lctl", &["get_param", "-n", name]).trim().to_owned()
    }

    /// Warnings about options that have no effect.
    fn warnings(&self) -> Vec<&str> {
        self.log.lines().filter(|line| line.contains("WARN")).collect()
    }
}

#[test]
fn daemons_take_the_advice_for_each_role_as_module_parameters() {
    for role in ["client", "server", "router"] {
        let text = printed(&format!("advise --routed --net tcp --role {role} --as modprobe"));
        let d = Daemon::start(&format!("advice-{role}"), Some(&text));
        assert_eq!(d.warnings(), [] as [&str; 0], "{role}");
        assert_eq!(d.param("router_ping_timeout"), "50", "{role}");
        let interval = if role == "server" { "35" } else { "60" };
        assert_eq!(d.param("live_router_check_interval"), interval, "{role}");
        // Routers have no requests: theirs stay at the defaults.
        let requests = if role == "router" { ["5", "600", "100"] } else { ["40", "400", "230"] };
        let names = ["at_min", "at_max", "ldlm_enqueue_min"];
        assert_eq!(names.map(|name| d.param(name)), requests, "{role}");
    }
}

#[test]
fn lnetctl_imports_the_advice_for_each_role_as_yaml() {
    let d = Daemon::start("import", None);
    d.run("ctl", &["lnet", "configure"]);
    for (role, interval) in [("client", "60"), ("server", "35"), ("router", "60")] {
        let text = printed(&format!("advise --routed --net gni --role {role} --as yaml"));
        let file = d.dir.join(format!("{role}.yaml"));
        fs::write(&file, text).unwrap();
        d.run("ctl", &["import", file.to_str().unwrap()]);
        assert_eq!(d.param("dead_router_check_interval"), interval, "{role}");
    }
}

#[test]
fn the_files_of_the_paper_load_without_a_warning_about_requests() {
    for name in ["server", "aries-client", "ib-client", "router"] {
        let text = fs::read_to_string(format!("{ROOT}/fixtures/modprobe/{name}.conf")).unwrap();
        let d = Daemon::start(&format!("paper-{name}"), Some(&text));
        // There is no driver for that network here.
        let others = |line: &&str| !line.contains("kgnilnd");
        let warnings: Vec<&str> = d.warnings().into_iter().filter(others).collect();
        assert_eq!(warnings, [] as [&str; 0], "{name}");
        let requests = if name == "router" { ["5", "600", "100"] } else { ["40", "400", "260"] };
        let names = ["at_min", "at_max", "ldlm_enqueue_min"];
        assert_eq!(names.map(|name| d.param(name)), requests, "{name}");
    }
}

#[test]
fn bounds_that_cross_each_other_in_a_file_are_named_and_no_daemon_starts() {
    let dir = fresh::path("tuning-crossed");
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("x.conf");
    for (options, why) in [
        ("at_max=30 at_min=40", "at_min 40: at_max is 30, and at_min must not be above at_max"),
        ("ldlm_enqueue_min=0", "ldlm_enqueue_min 0: expected 1 to 2592000"),
        ("at_max=-1", "at_max -1: expected 0 to 2592000"),
    ] {
        fs::write(&file, format!("options ptlrpc {options}\n")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["daemon", "--socket"]).arg(dir.join("s")).arg("--modprobe").arg(&file);
        let o = command.output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(!o.status.success() && said.contains(why), "{options}: {said}");
    }
    fs::remove_dir_all(dir).unwrap();
}
