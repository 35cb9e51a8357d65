//! `ulnet daemon` as a process: its control socket, its clients good and bad, its life.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

/// A daemon in a directory of its own, killed when dropped.
struct Daemon {
    dir: PathBuf,
    child: Child,
}

impl Daemon {
    fn start(name: &str, args: &[&str]) -> Self {
        let dir = fresh::path(name);
        fs::create_dir_all(&dir).unwrap();
        let mut child = Command::new(PROGRAM)
            .arg("daemon")
            .args(["--socket", dir.join("s").to_str().unwrap()])
            .args(["--port", &fresh::port().to_string()])
            .args(args)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says so when it is ready.
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert_ne!(
                log.read_line(&mut line).unwrap(),
                0,
                "the daemon ended before it was ready"
            );
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { dir, child }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    fn ctl(&self, words: &str) -> Output {
        ctl(&self.socket(), words)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn ctl(socket: &Path, words: &str) -> Output {
    Command::new(PROGRAM)
        .arg("ctl")
        .args(words.split_whitespace())
        .env("ULNET_SOCKET", socket)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

#[test]
fn a_fresh_daemon_is_unconfigured_until_lnet_configure_and_again_after_unconfigure() {
    let d = Daemon::start("fresh", &[]);
    let o = d.ctl("net show");
    assert!(!o.status.success());
    assert!(String::from_utf8_lossy(&o.stderr).contains("errno: -100"), "{o:?}");
    assert!(d.ctl("lnet configure").status.success());
    assert!(d.ctl("lnet configure").status.success(), "a second time changes nothing");
    assert!(out(&d.ctl("net show")).contains("0@lo"));
    assert!(d.ctl("set retry_count 3").status.success());
    assert!(d.ctl("net add --net tcp --if lo").status.success());
    assert!(out(&d.ctl("ping 127.0.0.1@tcp")).contains("primary nid: 127.0.0.1@tcp"));
    assert!(d.ctl("lnet unconfigure").status.success());
    assert!(!d.ctl("net show").status.success());
    assert!(d.ctl("lnet configure").status.success());
    assert!(!out(&d.ctl("net show")).contains("127.0.0.1"), "interfaces are forgotten");
    assert!(out(&d.ctl("global show")).contains("retry_count: 3"), "tunables are not (C-lnet-4)");
}

#[test]
fn the_control_socket_is_the_owners_alone_and_goes_with_the_daemon() {
    let mut d = Daemon::start("perm", &[]);
    let mode = fs::metadata(d.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pid = d.child.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    assert!(d.child.wait().unwrap().success(), "SIGTERM is a graceful end");
    assert!(!d.socket().exists());
}

#[test]
fn a_group_may_be_let_in_and_an_unknown_one_is_named() {
    let own = fs::metadata("/proc/self").unwrap();
    let gid = std::os::unix::fs::MetadataExt::gid(&own).to_string();
    let d = Daemon::start("group", &["--group", &gid]);
    let meta = fs::metadata(d.socket()).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o660);
    assert_eq!(std::os::unix::fs::MetadataExt::gid(&meta).to_string(), gid);
    let o = Command::new(PROGRAM)
        .args(["daemon", "--group", "nosuchgroup", "--socket"])
        .arg(d.dir.join("other"))
        .output()
        .unwrap();
    assert!(!o.status.success());
    assert!(String::from_utf8_lossy(&o.stderr).contains("nosuchgroup"));
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused_and_a_stale_one_replaced() {
    let mut d = Daemon::start("twice", &[]);
    let second = Command::new(PROGRAM)
        .args(["daemon", "--socket", d.socket().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another daemon is listening"), "{said}");
    d.child.kill().unwrap();
    d.child.wait().unwrap();
    assert!(d.socket().exists(), "a killed daemon leaves its socket behind");
    drop(d);
    let again = Daemon::start("twice", &[]);
    assert!(again.ctl("lnet configure").status.success());
}

#[test]
fn clients_that_hang_or_send_garbage_harm_no_other_client() {
    let d = Daemon::start("hostile", &[]);
    assert!(d.ctl("lnet configure").status.success());
    // Ten that say nothing, ten that stop in the middle of a frame.
    let mut hanging: Vec<_> = (0..20).map(|_| UnixStream::connect(d.socket()).unwrap()).collect();
    for half in &mut hanging[10..] {
        half.write_all(&[40, 0, 0, 0, b'{']).unwrap();
    }
    // Garbage of every kind is answered with an error or a closed connection.
    let frames: [&[u8]; 5] = [
        b"\xff\xff\xff\xff all too long",
        b"\x04\x00\x00\x00null",
        b"\x02\x00\x00\x00{}",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x19\x00\x00\x00{\"version\":99,\"id\":7,\"b\":1}",
    ];
    for bytes in frames {
        let mut s = UnixStream::connect(d.socket()).unwrap();
        s.write_all(bytes).unwrap();
        s.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        s.read_to_end(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.contains("\"Err\""), "{text}");
    }
    let o = d.ctl("net show");
    assert!(o.status.success(), "{o:?}");
}

#[test]
fn a_configuration_file_is_applied_whole_or_the_daemon_says_what_is_wrong() {
    let dir = fresh::path("files");
    fs::create_dir_all(&dir).unwrap();
    let good = dir.join("good.yaml");
    let text = "net:\n- net type: tcp\n  local NI(s):\n  - interfaces:\n      0: lo\n\
                global:\n  retry_count: 1\n";
    fs::write(&good, text).unwrap();
    let d = Daemon::start("config", &["--config", good.to_str().unwrap()]);
    assert!(out(&d.ctl("net show")).contains("127.0.0.1@tcp"));
    assert!(out(&d.ctl("global show")).contains("retry_count: 1"));
    let exported = out(&d.ctl("export --backup"));
    drop(d);
    // What a node exports makes the same node again.
    fs::write(&good, &exported).unwrap();
    let d = Daemon::start("config", &["--config", good.to_str().unwrap()]);
    assert_eq!(out(&d.ctl("export --backup")), exported);
    drop(d);
    for (text, culprit) in [
        ("net:\n- net type: tcp\n  local NI(s):\n  - interfaces:\n      0: nosuch0\n", "nosuch0"),
        ("retry_count: 1\nglobal: {health_sensitivity: 5000}\n", "5000 at line 2"),
        ("global:\n  retry_count: many\n", "many"),
        ("frobnicate: 1\n", "frobnicate"),
        ("net: [\n", "line"),
    ] {
        let bad = dir.join("bad.yaml");
        fs::write(&bad, text).unwrap();
        let o = Command::new(PROGRAM)
            .args(["daemon", "--port", &fresh::port().to_string(), "--socket"])
            .arg(dir.join("x"))
            .args(["--config", bad.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(!o.status.success());
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(said.contains("bad.yaml") && said.contains(culprit), "{said}");
    }
    let _ = fs::remove_dir_all(&dir);
}

#[test]
fn a_program_refuses_a_wrong_option_by_its_name() {
    for (args, culprit) in [
        (vec!["daemon", "--profile", "fast"], "fast"),
        (vec!["daemon", "--port", "70000"], "70000"),
        (vec!["daemon", "--accept", "some"], "some"),
        (vec!["daemon", "--frobnicate"], "--frobnicate"),
        (vec!["frobnicate"], "frobnicate"),
        (vec!["demo", "/nonexistent/file"], "/nonexistent/file"),
        (vec!["demo", "/"], "/"),
    ] {
        let o = Command::new(PROGRAM).args(&args).output().unwrap();
        assert!(!o.status.success(), "{args:?}");
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(said.contains(culprit), "{args:?}: {said}");
    }
}

#[test]
fn a_small_file_crosses_two_rails_while_one_is_cut() {
    let o = Command::new(PROGRAM)
        .args(["demo", "--seconds", "1", concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs")])
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let said = out(&o);
    assert!(said.contains("checksum              equal"), "{said}");
    assert!(said.contains("0 chunks twice"), "{said}");
}

#[test]
fn the_calls_of_a_daemon_are_replayed_from_its_recording() {
    let daemon = Daemon::start("record", &["--record", "5"]);
    assert!(daemon.ctl("lnet configure").status.success());
    assert!(daemon.ctl("net add --nid 127.0.0.1@tcp").status.success());
    for _ in 0..30 {
        assert!(daemon.ctl("ping 127.0.0.1@tcp").status.success());
    }
    let file = daemon.dir.join("flight");
    let dumped = daemon.ctl(&format!("debug dump {}", file.display()));
    assert!(
        dumped.status.success() && out(&dumped).starts_with("recording:\n"),
        "{}",
        out(&dumped)
    );
    let recording = lnet::Recording::from_bytes(&fs::read(&file).unwrap()).unwrap();
    let replayed = recording.replay().unwrap();
    // Those of two or three pings at least, and not of all.
    assert!((5..=110).contains(&replayed.calls), "{} calls", replayed.calls);
    assert!(replayed.node.stats().send_count > 0);
    let nowhere = daemon.ctl("debug dump /no/such/directory/flight");
    assert!(!nowhere.status.success());
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(said.contains("/no/such/directory/flight"), "{said}");
    let silent = Daemon::start("silent", &["--record", "0"]);
    assert!(silent.ctl("lnet configure").status.success());
    assert!(!silent.ctl(&format!("debug dump {}", file.display())).status.success());
}

#[test]
fn an_import_names_the_interface_that_the_machine_does_not_have() {
    let d = Daemon::start("noif", &[]);
    assert!(d.ctl("lnet configure").status.success());
    let file = d.dir.join("net.yaml");
    let net = |device: &str| {
        let text = format!("net:\n- net type: tcp\n  interfaces:\n    0: {device}\n");
        fs::write(&file, text).unwrap();
        d.ctl(&format!("import {}", file.display()))
    };
    let o = net("eth77");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(214), "{said}");
    assert!(said.contains("No interface matching 'eth77'"), "{said}");
    assert_eq!(net("lo").status.code(), Some(0));
    // By hand it is what kernels say.
    let o = d.ctl("net add --net tcp1 --if eth77");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(234), "{said}");
    assert!(said.contains("errno: -100") && !said.contains("matching"), "{said}");
}

/// The CPUs that the daemon's threads of this name may run on.
fn cpus_of(d: &Daemon, thread: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{}/task", d.child.id())).unwrap();
    let read = |task: &Path, file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
    let tasks = tasks.map(|task| task.unwrap().path());
    let named = tasks.filter(|task| read(task, "comm").trim() == thread);
    let cpus = |status: String| {
        let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        line.unwrap_or_default().trim().to_owned()
    };
    named.map(|task| cpus(read(&task, "status"))).collect::<Vec<_>>().join(" and ")
}

/// What `net show -v` says of the interface with this NID.
fn shown(d: &Daemon, nid: &str, key: &str) -> String {
    let text = out(&d.ctl("net show -v"));
    let of_it = text.split("nid: ").find(|part| part.starts_with(nid)).unwrap_or_default();
    let line = of_it.lines().find_map(|l| l.trim().strip_prefix(key).map(str::trim));
    line.unwrap_or_default().to_owned()
}

/// Two partitions of one CPU each: their CPUs, and the pattern. Nothing on a machine of one CPU.
fn two_partitions() -> Option<([String; 2], String)> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let (Some(a), Some(b)) = (cpus.next(), cpus.next()) else {
        eprintln!("skipped: two partitions need two CPUs");
        return None;
    };
    Some(([a.to_string(), b.to_string()], format!("0[{a}] 1[{b}]")))
}

#[test]
fn an_interface_tied_to_a_partition_works_there_and_can_move_while_it_works() {
    let Some(([a, b], pattern)) = two_partitions() else { return };
    let d = Daemon::start("cpts", &["--cpu-pattern", &pattern]);
    let says = |words: &str| {
        let o = d.ctl(words);
        (o.status.code(), String::from_utf8_lossy(&o.stderr).into_owned())
    };
    assert_eq!(says("lnet configure").0, Some(0));
    assert_eq!(says("net add --nid 127.0.1.1@tcp --cpt 1").0, Some(0));
    let nid = "127.0.1.1@tcp";
    assert_eq!(
        (shown(&d, nid, "CPT:"), shown(&d, nid, "dev cpt:")),
        ("\"[1]\"".into(), "-1".into())
    );
    assert_eq!(cpus_of(&d, "lnet"), b, "its only thread");
    // Partitions that are not there.
    for words in ["net add --nid 127.0.1.2@tcp --cpt [0,2]", "net set --nid 127.0.1.1@tcp --cpt 2"]
    {
        let (code, said) = says(words);
        assert!(code == Some(234) && said.contains("errno: -34"), "{words}: {said}");
        assert!(said.contains("invalid CPT value"), "{said}");
    }
    assert_eq!(says("net set --nid 127.0.1.2@tcp --cpt 0").0, Some(234), "no such interface");
    assert_eq!(shown(&d, nid, "CPT:"), "\"[1]\"");
    // While it works.
    for (cpt, cpu) in [("0", &a), ("1", &b), ("0", &a)] {
        assert_eq!(says(&format!("net set --nid {nid} --cpt {cpt}")).0, Some(0));
        assert_eq!(cpus_of(&d, "lnet"), *cpu);
        assert_eq!(shown(&d, nid, "CPT:"), format!("\"[{cpt}]\""));
        assert!(d.ctl(&format!("ping {nid}")).status.success());
    }
    // An interface without a CPT has all, and takes the thread along; in brackets counts before
    // the option.
    assert_eq!(says("net add --nid 127.0.1.2@tcp2").0, Some(0));
    assert_eq!(shown(&d, "127.0.1.2@tcp2", "CPT:"), "\"[0,1]\"");
    let both = cpus_of(&d, "lnet");
    assert!(both != a && both != b, "{both}");
    assert_eq!(says("net add --net tcp1 --if lo[1] --cpt 0").0, Some(0));
    assert_eq!(shown(&d, "127.0.0.1@tcp1", "CPT:"), "\"[1]\"");
    assert_eq!(says("net set --nid 127.0.0.1@tcp1 --cpt *").0, Some(0));
    assert_eq!(shown(&d, "127.0.0.1@tcp1", "CPT:"), "\"[0,1]\"");
    assert!(out(&d.ctl("export --backup")).contains("CPT: \"[0]\""));
    let said = out(&d.ctl("cpt-of-nid 10.0.0.[1-9]@o2ib"));
    assert!(
        said.contains("cpt: 0") && said.contains("cpt: 1") && !said.contains("cpt: 2"),
        "{said}"
    );
}

#[test]
fn partitions_come_from_a_file_of_module_parameters_and_are_shown() {
    let Some(([a, b], pattern)) = two_partitions() else { return };
    let file = fresh::path("cpts.conf");
    let text = format!(
        "options libcfs cpu_pattern=\"{pattern}\"\n\
         options lnet networks=\"tcp(lo[1]),tcp1(lo)[0]\" config_on_load=1\n"
    );
    fs::write(&file, text).unwrap();
    // What the file says wins.
    let args = ["--modprobe", file.to_str().unwrap(), "--cpu-npartitions", "1"];
    let d = Daemon::start("cptparams", &args);
    assert_eq!(shown(&d, "127.0.0.1@tcp\n", "CPT:"), "\"[1]\"");
    assert_eq!(shown(&d, "127.0.0.1@tcp1", "CPT:"), "\"[0]\"");
    let param = |name: &str| {
        let mut lctl = Command::new(PROGRAM);
        lctl.args(["lctl", "get_param", "-n", name]).env("ULNET_SOCKET", d.socket());
        out(&lctl.output().unwrap())
    };
    assert_eq!(param("cpu_pattern").trim(), pattern);
    assert_eq!(param("cpu_npartitions").trim(), "0");
    assert_eq!(param("cpu_partition_table").trim(), format!("0\t: {a}\n1\t: {b}"));
    let distances = param("cpu_partition_distance");
    assert!(distances.contains("0\t: 0:10 1:") && distances.lines().count() == 2, "{distances}");
    // One row for each interface: its credits are not split.
    assert_eq!(param("nis").matches("127.0.0.1@tcp").count(), 2);
    fs::remove_file(file).unwrap();
}

#[test]
fn partitions_that_the_machine_can_not_have_are_named_at_the_start() {
    for (args, said) in [
        (&["--cpu-pattern", "0[4000]"][..], "partition 0: CPU 4000 does not exist"),
        (&["--cpu-pattern", "0[0-"], "cpu_pattern '0[0-': '0[0-': expected a number"),
        (&["--cpu-pattern", "N", "--cpu-npartitions", "2"], "cpu_pattern 'N' says how many"),
        (&["--cpu-npartitions", "300"], "300 is not in 0..=256"),
    ] {
        let o = Command::new(PROGRAM).arg("daemon").args(args).output().unwrap();
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert!(!o.status.success() && err.contains(said), "{args:?}: {err}");
    }
}

/// MR-cfg-030: another choice of partitions in the file is no reason to take an interface down.
#[test]
fn a_reload_ties_an_interface_to_other_partitions_and_it_keeps_what_it_counted() {
    let Some(([_, b], pattern)) = two_partitions() else { return };
    let file = fresh::path("cpts.yaml");
    let write = |cpt: u8| {
        let ni = format!("{{interfaces: {{0: lo}}, CPT: '[{cpt}]'}}");
        fs::write(&file, format!("net: [{{net type: tcp, local NI(s): [{ni}]}}]\n")).unwrap();
    };
    write(0);
    let d = Daemon::start(
        "cptreload",
        &["--config", file.to_str().unwrap(), "--cpu-pattern", &pattern],
    );
    let nid = "127.0.0.1@tcp";
    for _ in 0..5 {
        assert!(d.ctl(&format!("ping {nid}")).status.success());
    }
    let sent = || shown(&d, nid, "send_count:").parse::<u64>().unwrap();
    let before = sent();
    assert!(before > 0);
    write(1);
    let pid = d.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let moved = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        shown(&d, nid, "CPT:") == "\"[1]\""
    });
    assert!(moved && sent() >= before, "{} sent", sent());
    assert_eq!(cpus_of(&d, "lnet"), b);
    fs::remove_file(file).unwrap();
}
