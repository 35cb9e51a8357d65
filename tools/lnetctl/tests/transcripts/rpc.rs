//! The commands for the request layer: what they ask of the daemon, and what they print.

use std::time::Duration;

use lnet_admin::{
    Ask, ClientError, EvictionSnapshot, ExportPage, ExportSnapshot, HistogramSnapshot,
    ImportExplanation, ImportPage, ImportSnapshot, LockPage, LockSnapshot, NamespaceSnapshot,
    NodeChoice, NodeExplanation, Reply, Request, RpcDelay, RpcFaults, RpcLose, RpcPart,
    ServiceSnapshot, TargetSnapshot,
};
use lnetctl::Session;

/// Answers with what it has, and records what is asked.
struct Node {
    replies: Vec<Reply>,
    asked: Vec<String>,
}

impl Ask for Node {
    fn ask_within(&mut self, request: &Request, _: Duration) -> Result<Reply, ClientError> {
        self.asked.push(format!("{request:?}"));
        if self.replies.is_empty() { Ok(Reply::Done) } else { Ok(self.replies.remove(0)) }
    }
}

/// Standard output, standard error, exit code, and what was asked.
fn run(line: &str, replies: Vec<Reply>) -> (String, String, i32, Vec<String>) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut node = Node { replies, asked: Vec::new() };
    let mut session = Session::new(&mut node);
    session.explain = true;
    let code = lnetctl::run(&mut session, &words) & 0xff;
    let (out, err) = (session.out, session.err);
    (out, err, code, node.asked)
}

#[test]
fn each_command_for_the_request_layer_becomes_one_request() {
    for (line, request) in [
        ("target add kv-1=kv:/srv/a", "TargetAdd { target: \"kv-1=kv:/srv/a\" }"),
        ("target del kv-1", "TargetDel { name: \"kv-1\" }"),
        ("lock break 0x1f", "LockBreak { lock: 31 }"),
        ("export evict 10.0.0.2@tcp", "ExportEvict { uuid: None, nid: Some(10.0.0.2@tcp) }"),
        ("export evict c-1", "ExportEvict { uuid: Some(\"c-1\"), nid: None }"),
        (
            "fault rpc lose --opcode OST_WRITE --part reply --count 3",
            "RpcLose(RpcLose { opcode: Some(\"OST_WRITE\"), part: Reply, count: 3 })",
        ),
        ("fault rpc lose --part early", "RpcLose(RpcLose { opcode: None, part: Early, count: 1 })"),
        (
            "fault rpc delay --service ost_io --min 5 --max 300 --share 100%",
            "RpcDelay(RpcDelay { service: \"ost_io\", min_s: 5, max_s: 300, percent: 100 })",
        ),
        (
            "fault rpc delay --service ost_io --max 9 --share 7",
            "RpcDelay(RpcDelay { service: \"ost_io\", min_s: 0, max_s: 9, percent: 7 })",
        ),
        ("fault rpc del --rule 2", "RpcFaultDel(Rule(2))"),
        ("fault rpc del --service ost_io", "RpcFaultDel(Service(\"ost_io\"))"),
        ("fault rpc del --all", "RpcFaultDel(All)"),
    ] {
        let (out, err, code, asked) = run(line, Vec::new());
        assert_eq!((out.as_str(), err.as_str(), code), ("", "", 0), "{line}");
        assert_eq!(asked, [request], "{line}");
    }
}

#[test]
fn wrong_words_for_the_request_layer_are_named_and_nothing_is_asked() {
    for (line, expected) in [
        ("target add", "NAME=KIND:DIR"),
        ("explain import", "the uuid of its target or client"),
        ("export evict", "UUID, or the NID"),
        ("export evict 10.0.0@tcp", "10.0.0@tcp"),
        ("fault rpc lose", "--part"),
        ("fault rpc lose --part rply", "invalid part value 'rply'"),
        ("fault rpc lose --part reply --count 0", "invalid count value '0': expected 1 to"),
        ("fault rpc delay --min 1 --max 2", "--service NAME"),
        ("fault rpc delay --service a", "--max SECONDS"),
        ("fault rpc delay --service a --max 2 --share 101%", "'101%': expected 0 to 100"),
        ("fault rpc delay --service a --max 65536", "'65536': expected 0 to 65535"),
        ("fault rpc del", "--rule NUMBER"),
        ("fault rpc del --all --rule 1", "exclude each other"),
    ] {
        let (out, err, code, asked) = run(line, Vec::new());
        assert!(format!("{out}{err}").contains(expected), "{line}: {out}{err}");
        assert!(code != 0 && asked.is_empty(), "{line}: {code} {asked:?}");
    }
}

#[test]
fn import_and_export_take_files_but_for_words_of_their_own() {
    let (out, err, code, asked) = run("import show", vec![Reply::Imports(page(Vec::new()))]);
    // A daemon is a server: nothing to show is said to be so, not left to be guessed.
    assert!(out.is_empty() && err.contains("no imports: no target of this daemon"), "{out}{err}");
    assert_eq!((code, asked.as_slice()), (0, &["ImportShow { from: None }".to_owned()][..]));
    // A file of that name is still within reach.
    let (_, err, code, asked) = run("import ./show", Vec::new());
    assert!(code != 0 && asked.is_empty() && err.contains("show"), "{err}");
    let (out, ..) = run("export --help", Vec::new());
    assert!(out.starts_with("export [FILE]: "), "{out}");
}

#[test]
fn an_import_is_explained_as_a_text_or_as_json() {
    let why = || ImportExplanation {
        target: "kv-1".to_owned(),
        client: "c-1".to_owned(),
        state: "DISCONN".to_owned(),
        never: None,
        due_in_ms: Some(3200),
        all_tried: true,
        sent: true,
        server_ms: 5000,
        net_ms: 10_000,
        nodes: vec![NodeExplanation {
            nid: "10.0.0.1@tcp".parse().unwrap(),
            next: true,
            reason: "next: all were tried, this one longest ago".to_owned(),
            lnet: "unreachable".to_owned(),
            tried_ms_ago: Some(12_000),
            attempts: 4,
            replies: 2,
        }],
        text: "import kv-1 of client c-1: DISCONN\n".to_owned(),
    };
    let reply = || vec![Reply::ImportExplanations(vec![why(), why()])];
    let (out, err, code, asked) = run("explain import kv-1", reply());
    assert_eq!((err.as_str(), code), ("", 0));
    assert_eq!(asked, ["ImportExplain { name: \"kv-1\" }"]);
    assert_eq!(out, why().text.repeat(2));
    let (out, ..) = run("explain import kv-1 --json", reply());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let import = &json["import"][1];
    assert_eq!(
        (&import["state"], &import["due_in"]),
        (&"DISCONN".into(), &"3.200".into()),
        "{out}"
    );
    assert_eq!(import["nodes"][0]["next"], true, "{out}");
    assert_eq!(import["nodes"][0]["lnet"], "unreachable", "{out}");
    // A NID is explained as before.
    let (_, _, _, asked) = run("explain 10.0.0.2@tcp", vec![Reply::Texts(Vec::new())]);
    assert!(asked[0].starts_with("Explain {"), "{asked:?}");
}

fn page(imports: Vec<ImportSnapshot>) -> ImportPage {
    ImportPage { imports, next: None }
}

#[test]
fn imports_are_shown_with_their_history_and_the_choice_of_the_next_node() {
    let import = ImportSnapshot {
        target: "kv-1".to_owned(),
        client: "c-1".to_owned(),
        state: "FULL".to_owned(),
        history: vec![(2500, "CONNECTING".to_owned()), (1000, "FULL".to_owned())],
        nid: "10.0.0.1@tcp".parse().unwrap(),
        connections: 1,
        refusal: None,
        nodes: vec![NodeChoice {
            nid: "10.0.0.1@tcp".parse().unwrap(),
            attempts: 1,
            replies: 1,
            reason: "next".to_owned(),
        }],
        in_flight: 2,
        delayed: 1,
        retained: 7,
        committed: 40,
        truncated: 0,
        net_ms: 5000,
        services_ms: vec![(28, 10_250)],
    };
    let (out, ..) = run("import show", vec![Reply::Imports(page(vec![import]))]);
    let expected = "\
import:
-     target: kv-1
      client: c-1
      state: FULL
      nid: 10.0.0.1@tcp
      connections: 1
      in_flight: 2
      delayed: 1
      retained: 7
      last_committed: 40
      truncated: 0
      network_estimate: 5.000
      services:
      -     portal: 28
            estimate: 10.250
      nodes:
      -     nid: 10.0.0.1@tcp
            attempts: 1
            replies: 1
            choice: next
      history:
      -     ago: 2.500
            state: CONNECTING
      -     ago: 1.000
            state: FULL
";
    assert_eq!(out, expected);
}

#[test]
fn exports_of_several_pages_are_one_list_with_the_evictions_behind_it() {
    let export = |client: &str| ExportSnapshot {
        target: "kv-1".to_owned(),
        client: client.to_owned(),
        nid: "10.0.0.2@tcp".parse().ok(),
        connections: 1,
        heard_ms_ago: 1500,
        evicted_in_ms: Some(148_500),
        in_work: 0,
        retained: 1,
        committed: 9,
    };
    let evicted = EvictionSnapshot {
        target: "kv-1".to_owned(),
        client: "c-9".to_owned(),
        reason: "silent for too long".to_owned(),
        ms_ago: 60_000,
    };
    let pages = || {
        let (first, second) = (vec![export("c-1")], vec![export("c-2")]);
        vec![
            Reply::Exports(ExportPage {
                exports: first,
                evicted: vec![evicted.clone()],
                next: Some(1),
            }),
            Reply::Exports(ExportPage { exports: second, evicted: Vec::new(), next: None }),
        ]
    };
    let (out, _, code, asked) = run("export show", pages());
    assert_eq!((code, asked.len()), (0, 2));
    let item = |client: &str| {
        format!(
            "-     target: kv-1\n      client: {client}\n      nid: 10.0.0.2@tcp\n      \
             connections: 1\n      heard_ago: 1.500\n      evicted_in: 148.500\n      \
             in_flight: 0\n      retained: 1\n      last_committed: 9\n"
        )
    };
    let tail = "evicted:\n-     target: kv-1\n      client: c-9\n      \
                reason: silent for too long\n      ago: 60.000\n";
    assert_eq!(out, format!("export:\n{}{}{tail}", item("c-1"), item("c-2")));
    let (json, ..) = run("export show --json", pages());
    assert!(json.starts_with("{\"export\": [{\"target\": \"kv-1\", \"client\": \"c-1\""), "{json}");
    assert!(json.contains("\"c-2\"") && json.contains("\"evicted\": [{"), "{json}");
}

#[test]
fn targets_services_and_faults_are_shown_and_nothing_is_shown_of_none() {
    let target = TargetSnapshot {
        name: "kv-1".to_owned(),
        kind: "kv".to_owned(),
        dir: "/srv/a".to_owned(),
        state: "failed".to_owned(),
        failure: Some("no space".to_owned()),
        instance: 2,
        clients: 1,
        last_transno: 5,
        committed: 4,
        uncommitted: 1,
        recovery: None,
    };
    let (out, ..) = run("target show", vec![Reply::Targets(vec![target])]);
    assert!(out.contains("state: failed\n      failure: no space\n      instance: 2\n"), "{out}");
    let service = ServiceSnapshot {
        name: "target".to_owned(),
        portal: 28,
        policy: "delay".to_owned(),
        policy_high: None,
        delayed: 3,
        delayed_high: 0,
        in_flight: 1,
        posted: 64,
        estimate_ms: 5000,
        worst_ms: 7001,
        worst_ms_ago: None,
        bins_ms: vec![7001, 0],
        unhealthy_in_ms: None,
        buffers: 64,
        behind_ms_ago: Some(9000),
        waited: HistogramSnapshot {
            classes: vec![(Some(10), 3), (Some(100), 0), (None, 1)],
            sum_ms: 5000,
        },
        served: HistogramSnapshot::default(),
    };
    let (out, ..) = run("service show", vec![Reply::Services(vec![service])]);
    let histogram = "      behind_ago: 9.000
      queue_wait:
            count: 4
            mean: 1.250
            classes:
            -     within: 0.010
                  count: 3
            -     within: more
                  count: 1
";
    assert!(out.ends_with(histogram), "what has no counts is left out: {out}");
    assert!(out.contains("worst: 7.001\n      bins:\n      -     7.001\n"), "{out}");
    let rule = RpcLose { opcode: None, part: RpcPart::Bulk, count: 2 };
    let service = "target".to_owned();
    let faults = RpcFaults {
        lose: vec![(1, rule, 1)],
        delay: vec![RpcDelay { service, min_s: 5, max_s: 300, percent: 100 }],
    };
    let (out, ..) = run("fault rpc show", vec![Reply::RpcFaults(faults)]);
    assert!(out.contains("opcode: any\n            part: bulk\n            count: 2\n"), "{out}");
    assert!(out.contains("max: 300\n            share: 100\n"), "{out}");
    for (line, none) in [
        ("target show", Reply::Targets(Vec::new())),
        ("service show", Reply::Services(Vec::new())),
        ("fault rpc show", Reply::RpcFaults(RpcFaults { lose: Vec::new(), delay: Vec::new() })),
    ] {
        assert_eq!(run(line, vec![none]).0, "", "{line}");
    }
}

#[test]
fn locks_are_shown_with_those_that_they_wait_for() {
    let holder = LockSnapshot {
        target: "locks".to_owned(),
        resource: "jobs/42".to_owned(),
        lock: 31,
        kind: "EXTENT".to_owned(),
        mode: "EX".to_owned(),
        part: Some("0 to end".to_owned()),
        state: "called back".to_owned(),
        since_ms_ago: 2000,
        client: "c-1".to_owned(),
        nid: "10.0.0.2@tcp".parse().ok(),
        fence: Some(7),
        evicted_in_ms: Some(148_000),
        waits_for: Vec::new(),
    };
    let waiter = LockSnapshot {
        lock: 32,
        state: "waiting".to_owned(),
        client: "c-2".to_owned(),
        nid: None,
        fence: None,
        evicted_in_ms: None,
        waits_for: vec![holder.clone()],
        ..holder.clone()
    };
    let pages = || {
        let page =
            |lock: &LockSnapshot, next| Reply::Locks(LockPage { locks: vec![lock.clone()], next });
        vec![page(&holder, Some(1)), page(&waiter, None)]
    };
    let (out, _, code, asked) = run("lock show", pages());
    assert_eq!(
        (code, asked),
        (
            0,
            vec![
                "LockShow { which: Contended, from: None }".to_owned(),
                "LockShow { which: Contended, from: Some(1) }".to_owned()
            ]
        )
    );
    let expected = "lock:
-     target: locks
      resource: jobs/42
      lock: 0x1f
      kind: EXTENT
      mode: EX
      part: 0 to end
      state: called back
      since: 2.000
      client: c-1
      nid: 10.0.0.2@tcp
      fence: 7
      evicted_in: 148.000
-     target: locks
      resource: jobs/42
      lock: 0x20
      kind: EXTENT
      mode: EX
      part: 0 to end
      state: waiting
      since: 2.000
      client: c-2
      waits_for:
      -     lock: 0x1f
            kind: EXTENT
            mode: EX
            part: 0 to end
            state: called back
            since: 2.000
            client: c-1
            nid: 10.0.0.2@tcp
            fence: 7
            evicted_in: 148.000
";
    assert_eq!(out, expected);
    for (line, which) in [("lock show jobs/42", "Named(\"jobs/42\")"), ("lock dump", "All")] {
        let (.., asked) = run(line, vec![Reply::Locks(LockPage { locks: vec![], next: None })]);
        assert_eq!(asked, [format!("LockShow {{ which: {which}, from: None }}")], "{line}");
    }
    // Explained are the locks of all pages together.
    let (out, err, code, asked) = run("explain lock jobs/42", pages());
    assert_eq!((err.as_str(), code, asked.len()), ("", 0, 2));
    assert_eq!(
        out,
        "locks: EX 0 to end of client c-2 waits for 2 s, behind:\n  EX 0 to end of client c-1 at \
         10.0.0.2@tcp: called back, given back or its client evicted within 148 s\n"
    );
    let (out, _, code, _) = run("explain lock jobs/42 --json", pages());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["lock"][1]["waits_for"][0]["client"]), (0, &"c-1".into()));
    let (out, err, code, asked) = run("explain lock", Vec::new());
    assert!(format!("{out}{err}").contains("please name what is locked"), "{out}{err}");
    assert!(code != 0 && asked.is_empty());
    let (out, _, code, asked) = run("lock break jobs/42", Vec::new());
    assert!(code != 0 && asked.is_empty() && out.contains("expected a number"), "{out}");
}

#[test]
fn namespaces_are_shown_with_what_happened_to_their_locks() {
    let space = NamespaceSnapshot {
        target: "locks".to_owned(),
        resources: 1,
        clients: 2,
        locks: 3,
        waiting: 1,
        called_back: 1,
        slv: 36_000,
        limit: 10,
        counters: vec![("enqueues".to_owned(), 5), ("cancels".to_owned(), 2)],
    };
    let (out, _, code, _) = run("namespace show", vec![Reply::Namespaces(vec![space])]);
    let expected = "namespace:
-     target: locks
      resources: 1
      clients: 2
      locks: 3
      waiting: 1
      called_back: 1
      slv: 36000
      limit: 10
      counters:
            enqueues: 5
            cancels: 2
";
    assert_eq!((code, out.as_str()), (0, expected));
}
