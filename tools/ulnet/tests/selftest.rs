//! LNet selftest between two `ulnet daemon`s, through the real programs: `lst` as recorded with the
//! original, quick runs, damaged data, Ctrl-C.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const KEY: &str = "4242";

/// Two nodes at loopback addresses, killed when dropped. The console is on the first.
struct Nodes {
    dir: PathBuf,
    children: Vec<Child>,
    client: String,
    server: String,
}

impl Nodes {
    /// `host`: the third part of the addresses, another for each test. `options`: of the first and
    /// of the second daemon.
    fn start(host: u8, options: [&[&str]; 2]) -> Self {
        let dir = fresh::path(&format!("lst-{host}"));
        fs::create_dir_all(&dir).unwrap();
        let port = fresh::port().to_string();
        let address = |n| format!("127.77.{host}.{n}@tcp");
        let (client, server) = (address(2), address(3));
        let mut nodes = Self { dir, children: Vec::new(), client, server };
        for (n, options) in options.iter().enumerate() {
            let socket = nodes.socket(n);
            let mut child = Command::new(PROGRAM)
                .arg("daemon")
                .args(["--socket", socket.to_str().unwrap(), "--port", &port])
                .args(*options)
                .env("RUST_LOG", "info")
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut log = BufReader::new(child.stderr.take().unwrap());
            nodes.children.push(child);
            let mut line = String::new();
            while !line.contains("ready") {
                line.clear();
                assert_ne!(log.read_line(&mut line).unwrap(), 0, "the daemon has ended");
            }
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            let nid = [&nodes.client, &nodes.server][n].clone();
            for words in [vec!["lnet", "configure"], vec!["net", "add", "--nid", &nid]] {
                let o = Command::new(PROGRAM)
                    .arg("ctl")
                    .args(words)
                    .env("ULNET_SOCKET", &socket)
                    .output()
                    .unwrap();
                assert!(o.status.success(), "{o:?}");
            }
        }
        nodes
    }

    fn socket(&self, n: usize) -> PathBuf {
        self.dir.join(format!("s{n}"))
    }

    fn lst(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("selftest").args(words).env("ULNET_SOCKET", self.socket(0));
        command.env("LST_SESSION", KEY).env_remove("LST_FEATURES").stdin(Stdio::null());
        command
    }

    /// Standard output and error, and the exit code.
    fn run(&self, line: &str) -> (String, String, i32) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let o: Output = self.lst(&words).output().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (text(&o.stdout), text(&o.stderr), o.status.code().unwrap())
    }

    fn good(&self, line: &str) -> String {
        let (out, err, code) = self.run(line);
        assert!(code == 0 && err.is_empty(), "{line}: {out}{err}{code}");
        out
    }

    /// A session with both groups and the batch b1.
    fn session(&self) {
        let (client, server) = (&self.client, &self.server);
        self.good("new_session --timeout 100 gold");
        self.good(&format!("add_group clients {client}"));
        self.good(&format!("add_group servers {server}"));
        self.good("add_batch b1");
    }

    /// Runs b1 until it has ended by itself.
    fn run_to_the_end(&self) {
        self.good("run b1");
        for _ in 0..500 {
            if self.good("query b1").contains("is stopped") {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("b1 does not end");
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

const ON: &[&str] = &["--selftest"];

/// A recorded `lst` command: standard output, standard error, exit code.
fn recorded(name: &str) -> (String, String, i32) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../fixtures/lnetctl/lst-{name}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (_, rest) = text.split_once('\n').unwrap();
    let (body, exit) = rest.trim_end().rsplit_once("# exit ").unwrap();
    let (out, err) = body.split_once("# stderr:\n").unwrap_or((body, ""));
    (out.to_owned(), err.to_owned(), exit.parse().unwrap())
}

/// Where ours differs from the recording, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("new_session-again", "the running session goes on, and says that it exists (DEC-33)"),
    ("show_session-none", "without the netlink reader's complaint"),
    ("add_group-absent", "the NID and the error are printed as they are (L-12, Q fix)"),
    ("list_group-all", "the group is not empty, the NID is printed as it is (L-12, Q fix)"),
    ("list_batch-all", "the NID is printed as it is (L-12, Q fix)"),
    ("query-all", "the NID is printed as it is (L-12, Q fix)"),
];

/// What numbers are, and which of the two nodes is meant, depends on the run.
fn normal(nodes: &Nodes, text: &str) -> String {
    let text = text
        .replace("10.77.0.2@tcp", "CLIENT")
        .replace("10.77.0.3@tcp", "SERVER")
        .replace(&nodes.client, "CLIENT")
        .replace(&nodes.server, "SERVER");
    let mut lines = String::new();
    for line in text.lines() {
        let rates = ["Avg: ", "Min: ", "Max: "].iter().any(|w| line.contains(w));
        let stamp = line.find(" ID: ").zip(line.find("@CLIENT"));
        lines.push_str(&match stamp {
            _ if rates => line.replace(|c: char| c.is_ascii_digit(), "").replace([' ', '.'], ""),
            Some((from, to)) => format!("{} ID: {}", &line[..from], &line[to..]),
            None => line.to_owned(),
        });
        lines.push('\n');
    }
    lines
}

#[test]
fn commands_print_what_the_original_printed() {
    let nodes = Nodes::start(1, [ON, ON]);
    let (client, server) = (nodes.client.clone(), nodes.server.clone());
    // In the order in which they were recorded.
    let script: Vec<(&str, String)> = vec![
        ("show_session-none", "show_session".to_owned()),
        ("new_session", "new_session --timeout 100 gold".to_owned()),
        ("show_session", "show_session".to_owned()),
        ("new_session-again", "new_session --timeout 100 gold2".to_owned()),
        ("add_group-c", format!("add_group clients {client}")),
        ("add_group-s", format!("add_group servers {server}")),
        ("add_group-bad", "add_group bad foo".to_owned()),
        ("list_group", "list_group".to_owned()),
        ("list_group-all", "list_group --all clients".to_owned()),
        ("show_session-late", "show_session".to_owned()),
        ("add_batch", "add_batch b1".to_owned()),
        ("add_batch-dup", "add_batch b1".to_owned()),
        ("list_batch", "list_batch".to_owned()),
        (
            "add_test-brw",
            "add_test --batch b1 --concurrency 2 --from clients --to servers \
             brw read check=simple size=1M"
                .to_owned(),
        ),
        (
            "add_test-ping",
            "add_test --batch b1 --concurrency 2 --from clients --to servers ping".to_owned(),
        ),
        ("add_test-bad-group", "add_test --batch b1 --from foo --to servers ping".to_owned()),
        (
            "add_test-bad-size",
            "add_test --batch b1 --from clients --to servers brw write size=9M".to_owned(),
        ),
        ("add_test-bad-type", "add_test --batch b1 --from clients --to servers frob".to_owned()),
        ("list_batch-b1", "list_batch b1".to_owned()),
        ("list_batch-all", "list_batch --all b1".to_owned()),
        ("run-absent", "run nope".to_owned()),
        ("run", "run b1".to_owned()),
        ("run-again", "run b1".to_owned()),
        ("query", "query b1".to_owned()),
        ("query-all", "query --all --loop 1 b1".to_owned()),
        ("stat", "stat --count 2 --delay 2 clients servers".to_owned()),
        ("stat-bw-rate", "stat --bw --rate --count 1 --delay 2 servers".to_owned()),
        ("stat-mbs", "stat --mbs --count 1 --delay 2 servers".to_owned()),
        ("show_error", "show_error clients servers".to_owned()),
        ("show_error-absent", "show_error nope".to_owned()),
        ("add_group-absent", "add_group dead 127.77.1.99@tcp".to_owned()),
        ("del_group-busy", "del_group clients".to_owned()),
        ("update_group", "update_group clients --refresh".to_owned()),
        ("stop-again", "stop --force b1".to_owned()),
        ("stop-again", "stop b1".to_owned()),
        ("new_session-force", "new_session --timeout 100 --force gold2".to_owned()),
        ("end_session", "end_session".to_owned()),
        ("end_session-again", "end_session".to_owned()),
        ("help", "help".to_owned()),
    ];
    let mut wrong = Vec::new();
    for (name, line) in &script {
        let (out, err, code) = nodes.run(line);
        let ours = (normal(&nodes, &out), normal(&nodes, &err), code);
        let (out, err, code) = recorded(name);
        let theirs = (normal(&nodes, &out), normal(&nodes, &err), code);
        let meant = DIFFERENT.iter().find(|(n, _)| n == name);
        if meant.is_some() == (ours == theirs) {
            wrong.push(format!("{name}: {ours:#?}\nrecorded {theirs:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let o = nodes.lst(&["list_group"]).env_remove("LST_SESSION").output().unwrap();
    let (_, err, code) = recorded("no-session-env");
    assert_eq!(
        (String::from_utf8_lossy(&o.stderr).into_owned(), o.status.code()),
        (err, Some(code))
    );
}

#[test]
fn data_are_checked_in_full_both_ways_and_damage_is_found() {
    // The servers' next bulk transfer carries damaged data.
    let nodes = Nodes::start(2, [ON, &["--selftest", "--brw-inject-errors", "1"]]);
    nodes.session();
    let add = |what: &str| {
        nodes.good(&format!(
            "add_test --batch b1 --loop 20 --concurrency 2 --from clients --to servers {what}"
        ));
    };
    add("brw write check=full size=64k");
    nodes.run_to_the_end();
    let errors = |line: &str| nodes.run(line);
    assert!(errors("show_error clients servers").1.is_empty(), "a write is not the servers' data");
    add("brw read check=full size=64k");
    nodes.run_to_the_end();
    let (out, err, _) = errors("show_error --session clients servers");
    assert!(out.contains("Total 1 error nodes in clients"), "{out}{err}");
    assert!(err.contains("[Session 1 brw errors, 0 ping errors]"), "{err}");
    nodes.good("end_session");
}

#[test]
fn a_quick_run_measures_plots_and_leaves_no_session() {
    let nodes = Nodes::start(3, [&[], ON]);
    let page = nodes.dir.join("plots.html");
    let line = format!(
        "run --quick {} --seconds 2 --size 64k --concurrency 2 --check full --html {}",
        nodes.server,
        page.display()
    );
    let out = nodes.good(&line);
    for name in ["write ", "read ", "ping "] {
        let row = out.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{out}"));
        assert!(row.ends_with(" 0 errors") && !row.contains(" 0 calls/s"), "{row}");
    }
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<polyline").count(), 5);
    assert!(!html.contains("http://") && !html.contains("https://"), "nothing from outside");
    let (_, err, code) = nodes.run("show_session");
    assert_eq!((err.as_str(), code), ("No session exists\n", 255));
    // Its last calls have ended: none of their bulk came to a node that had forgotten it.
    for n in 0..2 {
        let mut stats = Command::new(PROGRAM);
        stats.args(["ctl", "stats", "show"]).env("ULNET_SOCKET", nodes.socket(n));
        let shown = String::from_utf8(stats.output().unwrap().stdout).unwrap();
        assert!(shown.contains("drop_count: 0\n"), "node {n}: {shown}");
    }
}

#[test]
fn a_quick_run_that_ends_standing_still_is_a_failure_and_says_so() {
    let nodes = Nodes::start(8, [&[], ON]);
    let words = ["run", "--quick", &nodes.server, "--seconds", "4", "--size", "4k"];
    let mut child =
        nodes.lst(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    let mut read_to = |rows: usize| {
        while said.lines().count() < 1 + rows {
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said}");
        }
    };
    let server = nodes.children[1].id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &server]).status().unwrap();
    read_to(1);
    signal("-STOP");
    read_to(4);
    // It ends its session with a server that answers.
    signal("-CONT");
    let output = child.wait_with_output().unwrap();
    std::io::Read::read_to_string(&mut out, &mut said).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(254), "{said}{err}");
    assert!(err.contains("lst run: transfers of 4096 bytes: "), "{err}");
    let row = said.lines().find(|l| l.starts_with("progress")).unwrap_or_else(|| panic!("{said}"));
    assert!(row.ends_with("limit of a call 2 s"), "{row}");
    assert!(!row.contains("0.0 s without"), "{row}");
}

#[test]
fn a_range_of_sizes_has_a_row_each_and_programs_get_one_document() {
    let nodes = Nodes::start(9, [&[], ON]);
    let line = format!("run --quick {} --seconds 1 --size 8..100", nodes.server);
    let (_, err, code) = nodes.run(&line);
    assert_eq!(
        (err.as_str(), code),
        ("lst run: Invalid size 8..100, expected multiples of 8\n", 255)
    );
    let line = format!("run --quick {} --seconds 1 --size 512..2k", nodes.server);
    let out = nodes.good(&line);
    for size in ["512 ", "2048 "] {
        assert!(out.lines().any(|l| l.trim_start().starts_with(size)), "{out}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&nodes.good(&format!("{line} --json"))).unwrap();
    assert_eq!(json["success"], true, "{json}");
    assert_eq!(json["sizes"].as_array().unwrap().len(), 2);
    assert!(json["sizes"][1]["tests"][0]["calls"].as_u64().unwrap() > 0, "{json}");
}

#[test]
fn a_quick_run_without_peers_reports_it_and_does_not_touch_another_session() {
    let nodes = Nodes::start(4, [&[], ON]);
    let (_, err, code) = nodes.run("run --quick 127.77.4.99@tcp");
    assert_eq!(code, 254, "{err}");
    assert!(err.contains("create session RPC failed on 12345-127.77.4.99@tcp"), "{err}");
    assert_eq!(nodes.run("show_session").2, 255, "its session has ended");
    nodes.session();
    let (_, err, code) = nodes.run(&format!("run --quick {}", nodes.server));
    assert!(err.contains("session already exists") && code == 255, "{err}");
    assert!(nodes.good("show_session").starts_with("gold "), "it goes on");
}

#[test]
fn ctrl_c_ends_a_quick_run_with_its_summary_and_its_session() {
    let nodes = Nodes::start(5, [&[], ON]);
    let words = ["run", "--quick", &nodes.server, "--seconds", "600", "--size", "4k"];
    let mut child = nodes.lst(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    // The heading and the first row: it is under way.
    while said.lines().count() < 2 {
        assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    std::io::Read::read_to_string(&mut out, &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("calls/s"), "{said}");
    assert_eq!(nodes.run("show_session").1, "No session exists\n");
}

#[test]
fn a_node_without_selftest_is_named() {
    let nodes = Nodes::start(6, [ON, &[]]);
    nodes.good("new_session s");
    let (out, err, code) = nodes.run(&format!("add_group g {}", nodes.server));
    assert_eq!((out.as_str(), code), ("Group is deleted\n", 254));
    assert!(err.contains(&format!("create session RPC failed on 12345-{}", nodes.server)), "{err}");
}

#[test]
fn a_quick_run_whose_server_dies_shows_what_was_measured() {
    let mut nodes = Nodes::start(18, [&[], ON]);
    let words = ["run", "--quick", &nodes.server, "--seconds", "4", "--size", "4k"];
    let mut child = nodes.lst(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while said.lines().count() < 2 {
        assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said}");
    }
    nodes.children[1].kill().unwrap();
    std::io::Read::read_to_string(&mut out, &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(254), "{said}");
    assert!(said.contains("calls/s") && said.contains("progress"), "{said}");
}

#[test]
fn a_quick_run_names_a_server_that_is_in_another_session() {
    let nodes = Nodes::start(19, [&[], ON]);
    let console = |words: &[&str]| {
        let mut command = nodes.lst(words);
        assert!(command.env("ULNET_SOCKET", nodes.socket(1)).status().unwrap().success());
    };
    console(&["new_session", "theirs"]);
    console(&["add_group", "g", &nodes.server]);
    let (_, err, code) = nodes.run(&format!("run --quick {}", nodes.server));
    assert_eq!(code, 254, "{err}");
    assert!(err.contains("in another session"), "{err}");
    assert!(!err.contains("needs LNet selftest"), "{err}");
}
