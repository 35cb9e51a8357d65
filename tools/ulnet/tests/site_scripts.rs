//! What scripts that were written for kernel nodes expect of the tools and find in the daemon's log, on
//! live daemons on the loopback device. What is recorded of kernel nodes is compared in the tests of
//! `lnetctl`.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs::{self, File};
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
    /// A configured daemon with one interface.
    fn start(name: &str, address: &str, options: &[&str]) -> Self {
        Self::start_on(fresh::port(), name, address, options)
    }

    /// The same on a port that others may have at other addresses.
    fn start_on(port: u16, name: &str, address: &str, options: &[&str]) -> Self {
        let dir = fresh::path(&format!("scripts-{name}"));
        fs::create_dir_all(&dir).unwrap();
        let port = port.to_string();
        let mut command = Command::new(PROGRAM);
        command.args(["daemon", "--port", &port]).args(options);
        command.arg("--socket").arg(dir.join("s"));
        command.env_remove("RUST_LOG").stderr(File::create(dir.join("log")).unwrap());
        let child = command.spawn().unwrap();
        let daemon = Self { dir, child };
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(daemon.dir.join("s")).is_err() {
            assert!(Instant::now() < until, "no daemon {name}");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon.done("ctl lnet configure");
        daemon.done(&format!("ctl net add --nid {address}"));
        daemon
    }

    /// Exit status and what is printed, by the program under the name that is the first word.
    fn run(&self, words: &str) -> (i32, String) {
        let mut command = Command::new(PROGRAM);
        command.args(words.split_whitespace());
        command.env("ULNET_SOCKET", self.dir.join("s")).stdin(Stdio::null());
        let o = command.output().unwrap();
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        (o.status.code().unwrap(), text + &String::from_utf8_lossy(&o.stderr))
    }

    fn done(&self, words: &str) -> String {
        let (code, said) = self.run(words);
        assert_eq!(code, 0, "{words}: {said}");
        said
    }

    /// Imports a text.
    fn import(&self, options: &str, yaml: &str) -> (i32, String) {
        let file = self.dir.join("import.yaml");
        fs::write(&file, yaml).unwrap();
        self.run(&format!("ctl import {options} {}", file.display()))
    }

    /// Whether the log has a line, which may come a moment later.
    fn logs(&self, text: &str) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if fs::read_to_string(self.dir.join("log")).unwrap().contains(text) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

#[test]
fn net_set_takes_the_values_that_stand_for_none_and_help_names_options_with_a_colon() {
    let d = Daemon::start("net-set", "127.0.5.1@tcp", &["--profile", "kernel"]);
    let value = |key: &str| {
        let shown = d.done("ctl net show --net tcp -v 1");
        let found = shown.lines().find_map(|l| l.trim().strip_prefix(key).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no {key} in {shown}"))
    };
    assert_eq!(value("timeout: "), "50");
    d.done("ctl net set --net tcp --lnd-timeout 0");
    assert_eq!(value("timeout: "), "49", "the global value");
    d.done("ctl net set --all --conns-per-peer 3");
    d.done("ctl net set --all --conns-per-peer -1");
    assert_eq!(value("conns_per_peer: "), "3", "-1 changes nothing");
    assert_ne!(d.run("ctl net set --all --conns-per-peer -2").0, 0);
    let (_, help) = d.run("ctl net set --help");
    for option in ["--lnd-timeout:", "--health:", "--conns-per-peer:"] {
        assert!(help.lines().any(|l| l.trim_start().starts_with(option)), "{option} in {help}");
    }
}

#[test]
fn the_log_has_marks_and_says_which_tunables_of_a_net_are_not_applied() {
    let d = Daemon::start("log", "127.0.5.2@tcp", &["--quiet"]);
    d.done("lctl mark step two of nine");
    assert!(d.logs("DEBUG MARKER: step two of nine"));
    assert_ne!(d.run("lctl mark").0, 0);
    assert_eq!(d.done("lctl get_param -n lock_prim_nid"), "1\n");
    let yaml = "net:\n- net type: tcp\n  local NI(s):\n  - nid: 127.0.5.22@tcp\n    \
                tunables:\n      credits: 512\n";
    // The loopback device has an interface of this net already.
    assert!(d.import("", yaml).1.contains("errno: -17"));
    assert!(
        d.logs("net tcp: credits 512 is not applied: must be the same for all interfaces of a net")
    );
}

#[test]
fn routing_that_was_on_is_shown_as_off_and_can_be_switched_on_again_at_once() {
    let d = Daemon::start("routing", "127.0.5.3@tcp", &[]);
    assert_eq!(d.done("ctl routing show"), "", "it has never been on");
    d.done("ctl set routing 1");
    assert!(d.done("ctl routing show").contains("- enable: 1"));
    d.done("ctl set routing 0");
    assert_eq!(d.done("ctl routing show"), "routing:\n    - enable: 0\n");
    let whole = d.done("ctl export");
    assert!(whole.contains("- enable: 0"), "{whole}");
    d.done("ctl set routing 1");
    assert!(d.done("ctl routing show").contains("- enable: 1"));
}

#[test]
fn peers_lose_the_nids_that_are_named_and_gateways_are_not_made_anew() {
    let d = Daemon::start("peers", "127.0.5.4@tcp", &[]);
    let listed = |d: &Daemon| d.done("ctl peer show").matches("- ").count();
    d.done("ctl peer add --prim_nid 127.0.5.40@tcp --nid 127.0.5.41@tcp,127.0.5.42@tcp");
    let secondary = "peer:\n- primary nid: 127.0.5.40@tcp\n  peer ni:\n  - nid: 127.0.5.41@tcp\n";
    let (code, said) = d.import("--del", secondary);
    assert_eq!(code, 0, "{said}");
    let shown = d.done("ctl peer show");
    assert!(shown.contains("nid: 127.0.5.40@tcp") && shown.contains("nid: 127.0.5.42@tcp"));
    assert!(!shown.contains("127.0.5.41"), "{shown}");
    let whole = "peer:\n- primary nid: 127.0.5.40@tcp\n  peer ni:\n  - nid: 127.0.5.40@tcp\n";
    assert_eq!(d.import("--del", whole).0, 0);
    assert_eq!(listed(&d), 0);

    d.done("ctl route add --net tcp9 --gateway 127.0.5.49@tcp");
    let (code, said) = d.run("ctl peer add --prim_nid 127.0.5.49@tcp");
    assert_ne!(code, 0, "{said}");
    assert!(said.contains("errno: -16"), "{said}");
    assert!(d.done("ctl route show").contains("127.0.5.49@tcp"), "the route is still there");
}

#[test]
fn a_configured_peer_of_own_nids_is_shown_and_exported() {
    let d = Daemon::start("itself", "127.0.5.5@tcp", &[]);
    d.done("ctl ping 127.0.5.5@tcp");
    assert!(!d.done("ctl peer show").contains("127.0.5.5@tcp"));
    d.done("ctl peer add --prim_nid 127.0.5.5@tcp");
    for words in ["ctl peer show", "ctl export", "ctl export --backup"] {
        assert!(d.done(words).contains("primary nid: 127.0.5.5@tcp"), "{words}");
    }
}

#[test]
fn module_parameters_are_converted_from_the_forms_that_sites_keep_them_in() {
    let convert = |words: &[&str]| {
        let o = Command::new(PROGRAM).args(["ctl", "legacy2yaml"]).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&o.stdout).into_owned();
        (o.status.code().unwrap(), text + &String::from_utf8_lossy(&o.stderr))
    };
    for words in [
        ["tcp0(eth0),o2ib0(ib0)"],
        ["networks=\"tcp0(eth0),o2ib0(ib0)\""],
        ["options lnet networks=\"tcp0(eth0),o2ib0(ib0)\""],
    ] {
        let (code, said) = convert(&words);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("net type: tcp0\n") && said.contains("net type: o2ib0\n"), "{said}");
    }
    let (code, said) =
        convert(&["options lnet ip2nets=\"tcp0 10.*.*.*\"", "ip2nets=o2ib0 11.*.*.*"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("net-spec: tcp0\n") && said.contains("net-spec: o2ib0\n"), "{said}");
    let (code, said) = convert(&["networks=foo(eth0)"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("'foo' is not a network"), "{said}");
}

#[test]
fn a_backup_has_the_configured_peers_and_none_that_was_never_reached_otherwise() {
    let d = Daemon::start("backup", "127.0.5.30@tcp", &[]);
    d.done("ctl peer add --prim_nid 127.0.5.31@tcp");
    d.run("ctl ping 127.0.5.32@tcp");
    d.done("ctl discover 127.0.5.30@tcp");
    let shown = d.done("ctl peer show");
    let saved = d.done("ctl export --backup");
    assert!(shown.contains("127.0.5.31@tcp") && shown.contains("127.0.5.32@tcp"), "{shown}");
    assert!(saved.contains("127.0.5.31@tcp") && !saved.contains("127.0.5.32@tcp"), "{saved}");
}

#[test]
fn errors_name_the_device_in_use_and_the_state_of_the_node_that_they_come_from() {
    let d = Daemon::start("reasons", "127.0.5.40@tcp", &[]);
    let (code, said) = d.run("ctl net add --nid 127.0.5.41@tcp");
    assert!(code != 0 && said.contains("its device must be used once in a network"), "{said}");
    let (code, said) = d.run("ctl net add --nid 127.0.5.40@tcp");
    assert!(code != 0 && said.contains("is a NID of this node already"), "{said}");
    d.done("ctl lnet unconfigure");
    let (code, said) = d.run("ctl global show");
    assert!(code != 0 && said.contains("# LNet is not configured"), "{said}");
}

#[test]
fn an_option_or_nid_that_would_be_passed_over_is_an_error_with_its_reason() {
    let d = Daemon::start("passed-over", "127.0.5.50@tcp", &[]);
    let before = d.done("ctl export --backup");
    let is_for = "--nid or --all choose interfaces";
    let not_ours = "127.0.5.59@tcp: must be one of this node's NIDs";
    for (words, why) in [
        ("ctl net set --net tcp --health 500", is_for),
        ("ctl net set --net tcp --lnd-timeout 9 --health 500", is_for),
        ("ctl net set --net tcp", is_for),
        ("ctl net set --nid 127.0.5.59@tcp", not_ours),
        ("ctl peer set --nid 127.0.5.59@tcp", "127.0.5.59@tcp: must be a NID of a peer"),
        ("ctl route show --priority foo", "invalid priority value 'foo': expected a number"),
        ("ctl doctor --save never --peer 127.0.5.51@tcp", "expected no other node"),
        ("ctl doctor --peer 10.1.0.2", "did you mean '10.1.0.2@tcp'?"),
        ("ctl ping --source 127.0.5.59@tcp 127.0.5.51@tcp", not_ours),
        ("ctl explain 127.0.5.51@tcp --from 127.0.5.59@tcp", not_ours),
        ("ctl explain 127.0.5.51@tcp --size 9999999", "size 9999999: must be at most 1048576"),
        ("ctl ping 10.0.0.[1-200]@tcp", "'10.0.0.[1-200]@tcp': must name at most 128 NIDs"),
        ("ctl cpt-of-nid 10.1.0.2", "did you mean '10.1.0.2@tcp'?"),
        ("ctl udsp add --src 10.1.0.2", "did you mean '10.1.0.2@tcp'?"),
        ("ctl udsp add --src tcp --priority -1", "priority -1: expected 0 to 4294967295"),
        ("ctl set resend_on 4294967296", "resend_on 4294967296: expected 0 to 2047"),
        ("ctl net add --net tcp --if lo --tos 256", "tos 256: must be -1 to 255"),
        ("ctl fault drop add -s * -d * -r -1", "invalid rate value '-1': expected 0 to 4294967295"),
        ("ctl fault drop add -s * -d * -r 2 -e local_timout", "local_timeout"),
        ("ctl fault drop del --all", "# there is no rule"),
        ("ctl debug recovery", "see 'lnetctl help debug recovery'"),
        ("lctl get_param transaction_timeout", "did you mean 'lnet_transaction_timeout'?"),
        ("lctl ping 10.1.0.2", "did you mean '10.1.0.2@tcp'?"),
        ("lctl which_nid 10.1.0.2", "did you mean '10.1.0.2@tcp'?"),
        ("selftest run --quick 10.1.0.2", "did you mean '10.1.0.2@tcp'?"),
        ("selftest run --quick 127.0.5.51@tcp --timeout 1", "--seconds says how long"),
    ] {
        let (code, said) = d.run(words);
        assert!(code != 0 && said.contains(why), "{words}: {code} {said}");
    }
    let (code, said) = d.run("lctl get_param nosuch lnet_retry_count");
    assert!(
        code != 0 && said.starts_with("lnet_retry_count=2\n"),
        "what is there is shown: {said}"
    );
    assert_eq!(d.done("ctl export --backup"), before);
    assert!(!d.done("ctl net show --net tcp -v 2").contains("health value: 500"));
}

#[test]
fn import_changes_nothing_when_its_options_contradict_each_other_or_its_file_is_empty() {
    let d = Daemon::start("import", "127.0.5.52@tcp", &[]);
    let before = d.done("ctl export --backup");
    let peer = "peer:\n- primary nid: 127.0.5.53@tcp\n";
    for (options, yaml, why) in [
        ("--dry-run", peer, "--dry-run: expected --sync beside it"),
        ("--sync --del", peer, "--sync: must stand without --del"),
        ("--sync --show", peer, "--sync: must stand without --show"),
        ("--sync --old-api", peer, "--sync: must stand without --old-api"),
        ("--sync", "", "an empty file"),
        ("", "ping:\n  nids: [127.0.5.53@tcp]\n", "'lnetctl import --exec'"),
    ] {
        let (code, said) = d.import(options, yaml);
        assert!(code != 0 && said.contains(why), "{options}: {code} {said}");
        assert_eq!(d.done("ctl export --backup"), before, "{options}");
    }
}

#[test]
fn what_is_shown_is_json_wherever_the_option_stands() {
    let d = Daemon::start("json", "127.0.5.54@tcp", &[]);
    let backup = d.done("ctl export --backup");
    let recording = d.dir.join("recording");
    let dump = format!("debug dump {}", recording.display());
    for (words, key) in [
        ("cpt-of-nid 10.0.0.1@tcp", "\"cpt-of-nid\": [{\"nid\": \"10.0.0.1@tcp\""),
        ("explain 127.0.5.55@tcp", "{\"explain\": [\"message of 4096 bytes to 127.0.5.55@tcp"),
        ("debug suspicion", "{\"suspicion\": [\"rails suspected 0 times"),
        (dump.as_str(), "{\"recording\": {\"calls\": "),
    ] {
        for line in [format!("ctl --json {words}"), format!("ctl {words} --json")] {
            let said = d.done(&line);
            assert!(said.contains(key) && said.ends_with("}\n"), "{line}: {said}");
        }
    }
    assert_eq!(d.import("--sync --json", &backup), (0, "{\"change\": []}\n".to_owned()));
    let more = format!("{backup}peer:\n- primary nid: 127.0.5.56@tcp\n");
    let change = "{\"change\": [\"peer add 127.0.5.56@tcp\"]}\n";
    assert_eq!(d.import("--sync --dry-run --json", &more), (0, change.to_owned()));
    let (code, said) = d.run("ctl --json doctor");
    assert!(said.starts_with("{\n  \"nodes\": ["), "{code} {said}");
}

#[test]
fn what_a_change_on_trial_would_log_is_logged_by_the_change_alone() {
    let d = Daemon::start("trial", "127.0.5.45@tcp", &[]);
    let with = |route: &str| format!("{}route:\n{route}", d.done("ctl export --backup"));
    let route = with("- net: tcp9\n  gateway: 127.0.5.46@tcp\n");
    let logged = || {
        d.done("lctl mark here");
        assert!(d.logs("here"));
        let log = fs::read_to_string(d.dir.join("log")).unwrap();
        log.matches("hop count undefined").count()
    };
    let change = "route add tcp9 127.0.5.46@tcp\n".to_owned();
    assert_eq!(d.import("--sync --dry-run", &route), (0, change.clone()));
    assert_eq!(logged(), 0);
    assert_eq!(d.import("--sync", &route), (0, change));
    assert_eq!(logged(), 1);
}

#[test]
fn a_gateway_that_does_not_forward_is_a_warning_once_and_no_error_at_every_check() {
    let port = fresh::port();
    let gateway = Daemon::start_on(port, "gateway", "127.0.5.58@tcp", &[]);
    let d = Daemon::start_on(port, "behind", "127.0.5.57@tcp", &[]);
    d.done("ctl route add --net tcp9 --gateway 127.0.5.58@tcp");
    for _ in 0..3 {
        d.done("ctl discover --force 127.0.5.58@tcp");
    }
    assert!(d.logs("has routing disabled"));
    let log = fs::read_to_string(d.dir.join("log")).unwrap();
    assert_eq!(log.matches("has routing disabled").count(), 1, "{log}");
    assert!(!log.contains("ERROR"), "{log}");
    drop(gateway);
}

#[test]
fn lost_output_is_a_failure_and_a_reader_that_has_gone_is_none() {
    let convert = |stdout: Stdio| {
        let mut command = Command::new(PROGRAM);
        command.args(["ctl", "legacy2yaml", "networks=tcp(eth0)"]).stdout(stdout);
        command.output().unwrap()
    };
    let full = File::options().write(true).open("/dev/full").unwrap();
    let o = convert(Stdio::from(full));
    let said = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(228), "{said}");
    assert!(said.contains("standard output: No space left on device"), "{said}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(convert(Stdio::from(writer)).status.success());
}
