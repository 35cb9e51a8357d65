//! The recorded command lines, played through a shell on a live node.
//!
//! Two nodes in network namespaces, A 10.77.0.2 and 10.77.1.2, B .3 on both rails, and a host
//! 10.77.0.1 that listens nowhere; daemons with the profile `kernel`. Each scene starts with fresh
//! daemons and brings A into the state that its recordings were made in.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lnet_admin::{Ask as _, Client, Request};
use netns::{Host, Port, Process, World};

// What reads the recordings and says how each compares lies beside the tool's own tests.
#[path = "../../lnetctl/tests/transcripts/vector.rs"]
mod vector;
#[expect(dead_code, reason = "the page of all verdicts is written by the tool's tests")]
#[path = "../../lnetctl/tests/transcripts/verdict.rs"]
mod verdict;

use vector::{FIXTURES, Vector, difference};
use verdict::{Verdict, list, needs_a_file};

/// What is done, on A unless it is about being a router.
enum Act {
    /// A recording is played and compared.
    Play(&'static str),
    /// The same, with every number masked: how often what was sent before is not recorded.
    Shape(&'static str),
    /// A preparation that must succeed.
    Do(&'static str),
    /// One on the router.
    OnRouter(&'static str),
}

use Act::{Do, OnRouter, Play, Shape};

/// Whose daemons run in a scene.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cast {
    /// No node.
    NoNode,
    /// A's and B's, on the same two rails.
    Two,
    /// Those of A on `tcp`, B on `tcp1`, and C between them.
    Routed,
}

/// A scene and who is in it.
struct Scene {
    name: &'static str,
    cast: Cast,
    acts: &'static [Act],
}

const SCENES: &[Scene] = &[
    Scene {
        name: "no daemon",
        cast: Cast::NoNode,
        acts: &[
            Play("noload-net-show"),
            Play("noload-lnet-configure-no-module"),
            Play("version"),
            Play("list-commands"),
            Play("bad-subcommand"),
            Play("bad-net-subcommand"),
            Play("err-set-unknown"),
        ],
    },
    Scene {
        name: "not configured, then configured, then pinging",
        cast: Cast::Two,
        acts: &[
            Play("unconf-net-show"),
            Play("unconf-net-add"),
            Play("unconf-peer-show"),
            Play("unconf-ping"),
            Play("unconf-stats-show"),
            Play("unconf-global-show"),
            Play("unconf-export"),
            Play("unconf-unconfigure"),
            Play("lnet-configure"),
            Play("lnet-configure-again"),
            Play("lo-only-net-show"),
            Play("lo-only-net-show-v"),
            Play("lo-only-ping-self"),
            Play("lo-only-ping-remote"),
            Play("net-add"),
            Play("net-show"),
            Play("net-show-v0"),
            Play("net-show-v1"),
            Play("net-show-v2"),
            Play("net-show-v3"),
            Play("net-show-v4"),
            Play("net-show-verbose-noarg"),
            Play("net-show-net-tcp"),
            Play("net-show-net-absent"),
            Play("global-show-default"),
            Play("stats-show-fresh"),
            Play("peer-show-empty"),
            Play("export-fresh"),
            Play("export-fresh-backup"),
            Play("ping"),
            Play("peer-show-after-ping"),
            Play("ping-second-nid"),
            Play("ping-two-nids"),
            Play("ping-two-args"),
            Play("ping-range"),
            Play("ping-self"),
            Play("ping-lo"),
            Play("ping-source"),
            Play("ping-timeout-opt"),
            Play("err-ping-no-arg"),
            Play("err-ping-bad-nid"),
            Play("err-ping-bad-nid2"),
            Play("err-ping-no-net"),
            Play("err-ping-unreachable-net"),
            Play("err-ping-unreachable-host"),
            Play("err-ping-timeout-unreachable"),
            Play("err-ping-connrefused"),
            Play("discover"),
            Play("discover-again"),
            Play("discover-force"),
            Play("discover-self"),
            Play("discover-lo"),
            Play("ping-after-discover"),
            Play("ping-delayed"),
            Play("ping-mixed-ok-bad"),
            Play("err-discover-bad-nid"),
            Play("err-discover-no-arg"),
            Play("err-discover-unreachable-net"),
            Play("err-discover-unreachable-host"),
            Play("peer-add"),
            Play("peer-show-added"),
            Play("err-peer-add-dup"),
            Play("err-peer-add-conflict"),
            Play("peer-set-health"),
            Play("peer-set-state"),
            Play("peer-del-nid"),
            Play("peer-del"),
            Play("err-peer-del-absent"),
            Play("err-peer-del-absent-nid"),
            Play("err-peer-del-bad-nid"),
            Play("err-peer-set-absent"),
            Play("err-peer-show-bad-nid"),
            Play("err-peer-add-bad-nid"),
            Play("err-peer-add-no-arg"),
            Play("peer-add-non-mr"),
            Play("peer-add-range"),
            Play("peer-show-final"),
            Shape("net-show-v4-traffic"),
            Shape("stats-show"),
            Play("stats-reset"),
            Play("stats-show-after-reset"),
            Play("lnet-unconfigure"),
        ],
    },
    Scene {
        name: "discovered, exported, imported",
        cast: Cast::Two,
        acts: &[
            Do("lnetctl lnet configure; lnetctl net add --net tcp --if eth0,eth1"),
            Do("lnetctl discover 10.77.0.3@tcp; sleep 1"),
            Play("peer-show"),
            Play("peer-show-v0"),
            Play("peer-show-v1"),
            Play("peer-show-v2"),
            Play("peer-show-v3"),
            Play("peer-show-v4"),
            Play("peer-show-nid"),
            Play("peer-show-nid-absent"),
            Play("export"),
            Play("export-backup"),
            Do(
                "lnetctl export --backup > b.yaml; lnetctl lnet unconfigure; lnetctl lnet configure",
            ),
            Play("import-backup"),
            Play("import-net-show-after"),
            Play("import-peer-show-after"),
            Play("import-again"),
            Play("import-del"),
            Play("import-net-show-after-del"),
            Play("import-stdin"),
            Do("lnetctl export --backup again.yaml; cmp b.yaml again.yaml"),
            Do("lnetctl export | true; test ${PIPESTATUS[0]} = 0"),
            Do("printf 'NET SH\\n\\nquit\\nfoo\\n' | lnetctl | grep -q 'net type: lo'"),
            Do(
                "printf 'p sh\\nfoo\\npeer list\\n' | lnetctl 2>&1 | grep -q \"'p' .*valid\\|Ambig\"",
            ),
            Do("printf 'foo\\nnet show\\n' | lnetctl 2>f; test $? = 255"),
            Do("printf 'foo\\nnet show\\n' | lnetctl --ignore_errors 2>f | grep -q 'net:'"),
            Play("import-absent-file"),
            Play("import-bad-key"),
            Play("import-bad-yaml"),
        ],
    },
    Scene {
        name: "tunables",
        cast: Cast::Two,
        acts: &[
            Do("lnetctl lnet configure"),
            Play("set-discovery"),
            Play("set-drop_asym_route"),
            Play("set-health_sensitivity"),
            Play("set-lnd_timeout"),
            Play("set-max_interfaces"),
            Play("set-max_recovery_ping_interval"),
            Play("set-numa_range"),
            Play("set-recovery_interval"),
            Play("set-recovery_limit"),
            Play("set-response_tracking"),
            Play("set-retry_count"),
            Play("set-router_sensitivity"),
            Play("set-transaction_timeout"),
            Play("err-set-discovery-2"),
            Play("err-set-discovery-foo"),
            Play("err-set-drop_asym_route-2"),
            Play("err-set-drop_asym_route-foo"),
            Play("err-set-health_sensitivity--1"),
            Play("err-set-health_sensitivity-1001"),
            Play("err-set-health_sensitivity-foo"),
            Play("err-set-max_interfaces-10"),
            Play("err-set-max_interfaces-foo"),
            Play("err-set-max_recovery_ping_interval-0"),
            Play("err-set-max_recovery_ping_interval-foo"),
            Play("err-set-noarg"),
            Play("err-set-numa_range--1"),
            Play("err-set-numa_range-foo"),
            Play("err-set-recovery_interval-0"),
            Play("err-set-recovery_interval-foo"),
            Play("err-set-recovery_limit--1"),
            Play("err-set-recovery_limit-foo"),
            Play("err-set-response_tracking-4"),
            Play("err-set-response_tracking-foo"),
            Play("err-set-retry_count--1"),
            Play("err-set-retry_count-6"),
            Play("err-set-retry_count-foo"),
            Play("err-set-retry_count-noarg"),
            Play("err-set-router_sensitivity-101"),
            Play("err-set-router_sensitivity-foo"),
            Play("err-set-transaction_timeout-0"),
            Play("err-set-transaction_timeout-2"),
            Play("err-set-transaction_timeout-foo"),
            Play("global-show-changed"),
            Do("lnetctl set health_sensitivity 100"),
            Play("lnd_timeout-for-tt10-rc0"),
            Play("lnd_timeout-for-tt10-rc1"),
            Play("lnd_timeout-for-tt10-rc2"),
            Play("lnd_timeout-for-tt50-rc2"),
            Play("lnd_timeout-for-tt50-rc3"),
            Play("lnd_timeout-for-tt100-rc5"),
            Play("lnd_timeout-for-tt150-rc2"),
        ],
    },
    Scene {
        name: "selection policy",
        cast: Cast::Two,
        acts: &[
            Do("lnetctl lnet configure; lnetctl net add --net tcp --if eth0,eth1"),
            Do("lnetctl discover 10.77.0.3@tcp; sleep 1"),
            Play("udsp-show-empty"),
            Play("udsp-add-src-net"),
            Play("udsp-add-src-nid"),
            Play("err-udsp-add-dup"),
            Play("udsp-add-dst"),
            Play("udsp-add-pair"),
            Play("udsp-add-rte"),
            Play("udsp-add-idx"),
            Play("udsp-show"),
            Play("udsp-show-idx"),
            Play("err-udsp-show-absent"),
            Play("err-udsp-add-bad-src"),
            Play("err-udsp-add-bad-prio"),
            Play("err-udsp-add-noarg"),
            Play("err-udsp-add-rte-only-prio"),
            Shape("udsp-net-show-v4"),
            Do("lnetctl net show -v 4 | grep -A1 'net priority: 0' | grep -q 'nid priority: 1'"),
            Do("lnetctl peer show -v 4 | grep -q 'nid priority: 2'"),
            Play("udsp-export"),
            Do("lnetctl export --backup > rules.yaml"),
            Play("udsp-del"),
            Play("udsp-show-after-del"),
            Play("err-udsp-del-absent"),
            Play("udsp-del-all"),
            Play("udsp-show-after-del-all"),
            Do("sed -n '/^udsp/,$p' rules.yaml > udsp.yaml; lnetctl import udsp.yaml"),
            Do("lnetctl udsp show | cmp - udsp.yaml"),
            Do("lnetctl import --del udsp.yaml; test -z \"$(lnetctl udsp show)\""),
            Do(
                "lnetctl udsp add --src tcp --messages 3; lnetctl udsp show | grep -q 'messages: 3'",
            ),
        ],
    },
    Scene {
        name: "faults on purpose, recovery, explanations",
        cast: Cast::Two,
        acts: &[
            Do("lnetctl lnet configure; lnetctl net add --net tcp --if eth0,eth1"),
            Do("lnetctl discover 10.77.0.3@tcp; sleep 1"),
            Play("debug-recovery-l"),
            Play("debug-recovery-p"),
            Play("fault-drop-show-empty"),
            Play("fault-drop-add"),
            Play("fault-drop-show"),
            Play("fault-drop-reset"),
            Play("fault-drop-del"),
            Do("lnetctl fault drop del -s '*@tcp' -d 10.77.0.3@tcp; test $? = 254"),
            Play("fault-delay-add"),
            Play("fault-delay-show"),
            Play("fault-delay-del"),
            Do("lnetctl explain 10.77.0.3@tcp | grep -q 'goes from 10.77'"),
            Do(
                "lnetctl explain --from 10.77.1.2@tcp --size 0 10.77.0.3@tcp | grep -q 'from 10.77.1.2'",
            ),
            Do("lnetctl explain --last 1; test $? = 195"),
            Do(
                "lnetctl set health_sensitivity 10%; lnetctl global show | grep -q 'sensitivity: 100'",
            ),
            // MRD-059: the driver's word is enough, no message has to fail.
            Do(
                "ip link set eth1 down; sleep 1; lnetctl net show | grep -A1 10.77.1.2 | grep -q down",
            ),
            Do(
                "ip link set eth1 up; sleep 2; lnetctl net show | grep -A1 10.77.1.2 | grep -q ': up'",
            ),
        ],
    },
    Scene {
        name: "nets come and go",
        cast: Cast::Two,
        acts: &[
            Do("lnetctl lnet configure --all; lnetctl net show | grep -q 'nid: 10.77.0.2@tcp'"),
            Do("lnetctl lnet unconfigure; lnetctl lnet configure"),
            Play("net-add"),
            Play("err-net-add-duplicate-if"),
            Play("err-net-add-bad-cpt"),
            Play("err-net-add-bad-net"),
            Play("err-net-add-missing-if"),
            Play("err-net-add-missing-net"),
            Play("err-net-add-no-lnd"),
            Play("err-net-add-no-such-if"),
            Play("err-net-add-bad-option"),
            Play("err-net-add-bad-credits"),
            Do("lnetctl net del --net tcp5"),
            Play("net-add-second-net"),
            Play("net-show-second-net"),
            Play("net-set-health"),
            Play("net-set-conns-per-peer"),
            Play("net-set-lnd-timeout"),
            Do("sleep 2"),
            Play("net-set-all-health"),
            Play("net-show-after-set"),
            Play("err-net-set-absent-nid"),
            Play("err-net-set-bad-nid"),
            Play("err-net-set-bad-health"),
            Play("net-del-if"),
            Play("net-add-ip2net"),
            Do("lnetctl net show --net tcp6 | grep -q 'nid: 10.77.1.2@tcp6'"),
            Do(
                "lnetctl net add --ip2net 'tcp6 10.99.*.*' 2>f; test $? = 234; grep -q 'No ip2nets' f",
            ),
            Play("net-del-tcp6"),
            Do(
                "printf 'ip2nets:\\n- net-spec: tcp6\\n  ip-range:\\n    0: 10.77.1.0/24\\n' > i.yaml",
            ),
            Do("lnetctl import i.yaml; lnetctl net show --net tcp6 | grep -q 10.77.1.2@tcp6"),
            Do("lnetctl import --del i.yaml; lnetctl net show --net tcp6 2>f; test $? = 234"),
            Play("err-net-del-absent"),
            Play("err-net-del-absent-if"),
            Play("err-net-del-bad-net"),
            Play("err-net-del-lo"),
        ],
    },
    Scene {
        name: "through a router",
        cast: Cast::Routed,
        acts: &[
            Play("routing-show-disabled"),
            // The phases of a router that starts and stops last as long as these two together.
            OnRouter(
                "lnetctl set alive_router_check_interval 2; lnetctl set router_ping_timeout 1",
            ),
            Play("set-routing-1"),
            Play("routing-show-starting"),
            OnRouter("sleep 4"),
            Play("routing-show-enabled"),
            OnRouter("lnetctl set alive_router_check_interval 60"),
            OnRouter("lnetctl set router_ping_timeout 50"),
            Shape("router-net-show-v2"),
            Do("lnetctl lnet configure; lnetctl net add --net tcp --if eth0"),
            Play("routing-show-client"),
            Play("route-show-empty"),
            Play("route-add"),
            Do("sleep 1"),
            Do("lnetctl --socket b.sock route add --net tcp --gateway 10.77.1.4@tcp1; sleep 1"),
            Play("route-show"),
            Play("route-show-v"),
            Play("route-show-v1"),
            Play("route-show-v2"),
            Play("route-show-v3"),
            Play("route-show-v4"),
            Play("route-show-net"),
            Play("route-show-net-absent"),
            Play("route-show-gateway"),
            Play("route-add-options"),
            Play("route-show-v-two"),
            Do("test \"$(lnetctl route show --hop-count 2 | grep -c net:)\" = 1"),
            Do("test \"$(lnetctl route show -p 0 | grep -c net:)\" = 1"),
            Play("err-route-add-bad-gw"),
            Play("err-route-add-bad-hop"),
            Play("err-route-add-bad-net"),
            Play("err-route-add-dup"),
            Play("err-route-add-gw-unreachable-net"),
            Play("err-route-add-local-net"),
            Play("err-route-add-missing-gw"),
            Play("route-del"),
            Play("err-route-del-absent"),
            Play("err-route-del-bad-gw"),
            Play("route-ping"),
            Play("route-discover"),
            Shape("router-peer-show"),
            Shape("router-stats-show"),
            Play("err-ping-via-router-absent-host"),
            Do("lnetctl peer del --prim_nid 10.77.1.99@tcp1"),
            Shape("route-peer-show-v1"),
            Play("route-export-backup"),
            Do(
                "lnetctl export --backup > r.yaml; lnetctl import --del r.yaml; lnetctl import r.yaml",
            ),
            Do("lnetctl export --backup | cmp - r.yaml"),
            Play("set-tiny_buffers"),
            OnRouter(
                "lnetctl routing show | grep -q '^    tiny: 1024'; lnetctl set tiny_buffers 0",
            ),
            Play("err-set-large_buffers-0"),
            Play("err-set-large_buffers-bad"),
            OnRouter("lnetctl set large_buffers -2 2>f; test $? = 222; grep -q 'must be >= 0' f"),
            Shape("routing-show-changed"),
            OnRouter("lnetctl export | lnetctl import --show | grep -q 'enable: 1'"),
            OnRouter("lnetctl export --backup | grep -A1 ^routing: | grep -q 'enable: 1'"),
            Play("set-routing-0"),
            Shape("routing-show-stopping"),
            Play("err-set-routing-1-while-stopping"),
        ],
    },
];

/// Recordings that were made on the router.
fn is_of_router(name: &str) -> bool {
    const OTHERS: [&str; 2] = ["routing-show-client", "err-route"];
    let begins = ["router-", "routing-show", "set-routing", "set-tiny", "err-set-routing"];
    !OTHERS.iter().any(|other| name.starts_with(other))
        && (begins.iter().any(|b| name.starts_with(b)) || name.contains("large_buffers"))
}

/// As a file.
fn to_text(vector: &Vector) -> String {
    let Vector { command, out, err, exit, .. } = vector;
    let mark = if err.is_empty() { "" } else { "# stderr:\n" };
    format!("$ {command}\n{out}{mark}{err}# exit {exit}\n")
}

/// Whether a recording is played.
fn plays(name: &str) -> bool {
    SCENES.iter().flat_map(|scene| scene.acts).any(|act| match act {
        Play(played) | Shape(played) => *played == name,
        Do(_) | OnRouter(_) => false,
    })
}

/// The nodes and a place for files.
struct Stage {
    a: Host,
    b: Host,
    c: Host,
    dir: PathBuf,
    program: PathBuf,
    _world: World,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Stage {
    fn new(world: World, program: PathBuf) -> Result<Self, netns::Error> {
        let (a, b, silent) = (world.host("a")?, world.host("b")?, world.host("silent")?);
        let c = world.host("c")?;
        world.segment(&[
            Port::new(&a, "eth0", &["10.77.0.2/24"]),
            Port::new(&b, "eth0", &["10.77.0.3/24"]),
            Port::new(&c, "eth0", &["10.77.0.4/24"]),
            Port::new(&silent, "eth0", &["10.77.0.1/24"]),
        ])?;
        world.segment(&[
            Port::new(&a, "eth1", &["10.77.1.2/24"]),
            Port::new(&b, "eth1", &["10.77.1.3/24"]),
            Port::new(&c, "eth1", &["10.77.1.4/24"]),
            // It refuses what comes from either rail, so it must find back to both.
            Port::new(&silent, "eth1", &["10.77.1.1/24"]),
        ])?;
        let dir = fresh::path("transcripts");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("bin")).expect("a directory for the sockets");
        symlink(&program, dir.join("bin/lnetctl")).expect("a link to the program");
        Ok(Self { a, b, c, dir, program, _world: world })
    }

    fn socket(&self, host: &Host) -> PathBuf {
        self.dir.join(format!("{}.sock", host.name()))
    }

    /// A daemon that answers.
    fn daemon(&self, host: &Host) -> Process {
        let socket = self.socket(host);
        let _ = fs::remove_file(&socket);
        let mut command = host.command(&self.program);
        command.arg("daemon").arg("--socket").arg(&socket).args(["--profile", "kernel", "--quiet"]);
        let mut process = host.spawn(command).expect("the daemon starts");
        let begin = Instant::now();
        loop {
            let answer = Client::connect(&socket).and_then(|mut c| c.ask(&Request::Status));
            match answer {
                Ok(_) => return process,
                Err(e) => {
                    let ended = process.child().try_wait().expect("a child");
                    assert!(ended.is_none(), "the daemon ended: {ended:?}");
                    let patience = Duration::from_secs(20);
                    assert!(begin.elapsed() < patience, "the daemon does not answer: {e}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    /// Runs a line of shell on a host, with `lnetctl` in the path.
    fn shell(&self, host: &Host, line: &str) -> (String, String, i32) {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = host
            .command("bash")
            .args(["-c", line])
            .current_dir(&self.dir)
            .env("PATH", format!("{}:{path}", self.dir.join("bin").display()))
            .env("ULNET_SOCKET", self.socket(host))
            .output()
            .expect("bash runs");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code().unwrap_or(-1))
    }

    fn play(&self, vector: &Vector, line: &str) -> Vector {
        let host = if is_of_router(&vector.name) { &self.c } else { &self.a };
        let (out, err, exit) = self.shell(host, line);
        // What follows a document as a comment is for people, and not recorded.
        let err = err.lines().filter(|l| !l.starts_with("# ")).map(|l| format!("{l}\n")).collect();
        Vector { out, err, exit, ..vector.clone() }
    }
}

/// The program, built if none is named.
fn program() -> PathBuf {
    match std::env::var_os("ULNET_BIN") {
        Some(path) => path.into(),
        None => env!("CARGO_BIN_EXE_ulnet").into(),
    }
}

const BY_NATURE: [&str; 2] = ["next_ping", "rst_alloc"];
/// The net that is recorded with options of its own, connections per peer among them.
const TUNED_NET: &str = "nid: 10.77.0.2@tcp7";

/// What differs by nature: durations, points in time, the number of connections where the speed of
/// the link decides it, and how many trackers of finished responses wait for the monitor's next
/// scan (H-63). With `all`, every number.
fn normalised(text: &str, all: bool) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let key = line.trim_start().split(':').next().unwrap_or_default();
        let by_nature = key.ends_with("_nsec")
            || BY_NATURE.contains(&key)
            || key == "conns_per_peer" && !text.contains(TUNED_NET);
        let number = line.rsplit_once(": ").filter(|(_, v)| v.parse::<i64>().is_ok());
        match number {
            Some((head, _)) if by_nature || all => {
                let _ = writeln!(out, "{head}: N");
            }
            // The clock of the shell.
            _ if ["real\t", "user\t", "sys\t"].iter().any(|w| line.starts_with(w)) => {
                let _ = writeln!(out, "TIME");
            }
            _ => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// Where two outputs differ, but for what differs by nature.
fn differences(recorded: &Vector, got: &Vector, all: bool) -> Option<String> {
    let mut wrong = Vec::new();
    if recorded.exit != got.exit {
        wrong.push(format!("exit code {}, recorded {}", got.exit, recorded.exit));
    }
    for (stream, a, b) in
        [("standard output", &recorded.out, &got.out), ("standard error", &recorded.err, &got.err)]
    {
        let (a, b) = (normalised(a, all), normalised(b, all));
        if a != b {
            wrong.push(format!("{stream}, {}", difference(&a, &b)));
        }
    }
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Plays one recording and says what is wrong.
fn judge(stage: &Stage, name: &'static str, all: bool) -> Result<String, String> {
    let (vector, verdict) = list()
        .into_iter()
        .find(|(vector, _)| vector.name == name)
        .ok_or_else(|| "not in the list of transcripts".to_owned())?;
    let got = stage.play(&vector, &vector.command);
    let difference = differences(&vector, &got, all);
    let matched = |difference: Option<String>, how: &str| match difference {
        None => Ok(how.to_owned()),
        Some(difference) => Err(difference),
    };
    match verdict {
        Verdict::Matched => matched(difference, "matched"),
        Verdict::Strict(_) => {
            if got.exit == 0 {
                return Err("a mistake without an error".to_owned());
            }
            let line = vector.command.replace("lnetctl ", "lnetctl --strict-compat ");
            let strict = stage.play(&vector, &line);
            matched(differences(&vector, &strict, all), "matched, strict")
        }
        Verdict::Different(_) if difference.is_none() => {
            Err("equal, though listed as different".to_owned())
        }
        Verdict::Different(_) => matched(own_difference(stage, got), "different, as known"),
    }
}

/// Where what is different on purpose differs from how it was when it was last reviewed.
fn own_difference(stage: &Stage, mut got: Vector) -> Option<String> {
    let dir = stage.dir.display().to_string();
    got.out = normalised(&got.out, false).replace(&dir, "DIR");
    got.err = normalised(&got.err, false).replace(&dir, "DIR");
    let path = format!("{FIXTURES}/ours/{}.txt", got.name);
    let text = to_text(&got);
    if std::env::var_os("ULNET_BLESS").is_some() {
        fs::write(&path, &text).expect("fixtures/lnetctl/ours");
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    (known != text).then(|| format!("not as in ours/: {}", difference(&known, &text)))
}

#[test]
fn recorded_commands_are_played_on_live_nodes() {
    let world = match World::new("transcripts") {
        Ok(world) => world,
        Err(why) => return netns::skipped("transcripts on live nodes", why),
    };
    let program = program();
    let help = Command::new(&program).args(["daemon", "--help"]).output().expect("ulnet runs");
    if !help.status.success() || !String::from_utf8_lossy(&help.stdout).contains("--socket") {
        return netns::skipped("transcripts on live nodes", "this ulnet has no daemon");
    }
    let stage = Stage::new(world, program).expect("two nodes and a silent host");
    let (mut table, mut wrong) = (String::new(), Vec::new());
    // To look at some scenes alone: a part of their names.
    let only = std::env::var("ULNET_SCENE").unwrap_or_default();
    for scene in SCENES.iter().filter(|scene| scene.name.contains(&only)) {
        let cast: &[(&Host, &str)] = match scene.cast {
            Cast::NoNode => &[],
            Cast::Two => &[(&stage.a, ""), (&stage.b, "lnetctl net add --net tcp --if eth0,eth1")],
            Cast::Routed => &[
                (&stage.a, ""),
                (&stage.b, "lnetctl net add --net tcp1 --if eth1"),
                (
                    &stage.c,
                    "lnetctl net add --net tcp --if eth0 && lnetctl net add --net tcp1 --if eth1",
                ),
            ],
        };
        let _daemons: Vec<Process> = cast.iter().map(|(host, _)| stage.daemon(host)).collect();
        for (host, line) in cast.iter().filter(|(_, line)| !line.is_empty()) {
            let (_, err, exit) = stage.shell(host, &format!("lnetctl lnet configure && {line}"));
            assert_eq!(exit, 0, "{}: {err}", host.name());
        }
        let _ = writeln!(table, "{}", scene.name);
        for act in scene.acts {
            let (name, all) = match act {
                Play(name) => (name, false),
                Shape(name) => (name, true),
                Do(line) | OnRouter(line) => {
                    let host = if matches!(act, Do(_)) { &stage.a } else { &stage.c };
                    let (out, err, exit) = stage.shell(host, line);
                    let _ = writeln!(table, "  {line}");
                    if exit != 0 {
                        wrong.push(format!("{line}: exit code {exit}\n{out}{err}"));
                    }
                    continue;
                }
            };
            let text = judge(&stage, name, all).unwrap_or_else(|why| {
                wrong.push(format!("{name}: {why}"));
                format!("NOT MATCHED: {why}")
            });
            let _ = writeln!(table, "  {name:<40} {text}");
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{} wrong, see {FIXTURES}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Recordings of several programs at once: only live daemons can play them.
fn needs_a_shell(vector: &Vector) -> bool {
    vector.words().is_none()
}

#[test]
fn every_recorded_command_is_compared_somewhere() {
    let shells: Vec<String> = list()
        .into_iter()
        .filter(|(vector, _)| needs_a_shell(vector) || needs_a_file(vector))
        .map(|(vector, _)| vector.name)
        .collect();
    for name in shells {
        assert!(plays(&name), "{name} is neither printed offline nor played live");
    }
}
