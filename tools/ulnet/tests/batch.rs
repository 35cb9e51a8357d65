//! `ulnet sim sweep`, `swarm` and `merge` in parts, as batch systems run them: parts beside each
//! other, killed and started again, joined; and the recipes of `packaging/slurm` and
//! `packaging/kubernetes`.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const PATIENCE: Duration = Duration::from_secs(120);

/// A second of two nodes.
const SCENARIO: &str = r#"
name = "small"
duration = "1s"
[[net]]
name = "tcp"
latency = "50us"
jitter = "20us"
[[node]]
name = "a"
rails = ["tcp"]
[[node]]
name = "b"
rails = ["tcp"]
[[workload]]
kind = "put"
from = "a"
to = "b"
every = "10ms"
[bars]
errors = 0
"#;

/// A folder with a scenario, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("batch-{name}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("small.toml"), SCENARIO).unwrap();
        Self(dir)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.current_dir(&self.0).args(line.split_whitespace()).stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// What a command prints that succeeds.
    fn says(&self, line: &str) -> String {
        let o = self.run(line);
        let err = String::from_utf8_lossy(&o.stderr);
        assert!(o.status.success(), "{line}: {} {err}", text(&o));
        text(&o)
    }

    fn merged(&self, dir: &str) -> serde_json::Value {
        let o = self.run(&format!("sim merge {dir} --json"));
        serde_json::from_slice(&o.stdout).unwrap_or_else(|_| panic!("{o:?}"))
    }

    /// The results in a file of one part: its lines without the first.
    fn results(&self, file: &str) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Starts a command, and kills it when a file has so many results.
    fn killed_at(&self, line: &str, file: &str, results: usize) {
        let mut child = self.command(line).stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while self.results(file).len() < results {
            assert!(begun.elapsed() < PATIENCE, "{line}: no results");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// The program under its own name, for recipes that find it by PATH.
fn path_with_ulnet(dir: &Path) -> std::ffi::OsString {
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let _ = std::os::unix::fs::symlink(PROGRAM, bin.join("ulnet"));
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(bin).chain(std::env::split_paths(&old));
    std::env::join_paths(all).unwrap()
}

#[test]
fn parts_of_a_sweep_by_xargs_join_to_the_same_figures_as_one_run() {
    let f = Folder::new("xargs");
    let sweep =
        "sim sweep small.toml --set tunables.retry_count=1,2,3 --set net.tcp.loss=0%,1% --seeds 4";
    let printed = f.says(&format!("{sweep} --out one"));
    assert!(printed.contains("tunables.retry_count=3 net.tcp.loss=1%"), "{printed}");
    let o = Command::new("sh")
        .current_dir(&f.0)
        .env("PATH", path_with_ulnet(&f.0))
        .args(["-c", &format!("seq 5 | xargs -P 2 -I @ ulnet {sweep} --shard @/5 --out five")])
        .output()
        .unwrap();
    assert!(o.status.success(), "{o:?}");
    let (one, five) = (f.merged("one"), f.merged("five"));
    assert_eq!(one, five);
    assert_eq!(one["sweeps"][0]["played"], 24);
    let page = "sim merge five --html page.html";
    assert!(f.says(page).contains("sweep        small.toml: 24 of 24 plays"));
    let page = fs::read_to_string(f.0.join("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("net.tcp.loss=1%"));
}

#[test]
fn a_merge_with_a_part_missing_says_so_and_fails() {
    let f = Folder::new("missing");
    f.says("sim sweep small.toml --seeds 4 --shard 1/2 --out parts");
    let o = f.run("sim merge parts");
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o).contains("2 of 4 plays"), "{}", text(&o));
    fs::create_dir(f.0.join("empty")).unwrap();
    let o = f.run("sim merge empty");
    assert_eq!(o.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&o.stderr).contains("empty holds no results"));
}

#[test]
fn a_killed_part_of_a_sweep_continues_with_the_plays_that_are_missing() {
    let f = Folder::new("killed");
    let sweep = "sim sweep small.toml --set tunables.retry_count=1,2,3 --seeds 200 --shard 2/3";
    f.killed_at(&format!("{sweep} --out parts --resume"), "parts/sweep-2-of-3.jsonl", 3);
    let before = f.results("parts/sweep-2-of-3.jsonl");
    assert!(before.len() >= 3 && before.len() < 200, "{} results", before.len());
    // The last line is cut off, as by a kill within a write.
    let file = f.0.join("parts/sweep-2-of-3.jsonl");
    let torn = fs::read_to_string(&file).unwrap() + "{\"at\":";
    fs::write(&file, torn).unwrap();
    let refused = f.run(&format!("{sweep} --out parts"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--resume continues"));

    let printed = f.says(&format!("{sweep} --out parts --resume"));
    let line = format!("{} plays as part 2/3, {} earlier", 200 - before.len(), before.len());
    assert!(printed.contains(&line), "{printed}");
    let after = f.results("parts/sweep-2-of-3.jsonl");
    assert_eq!(after[..before.len()], before[..]);
    let at: BTreeSet<u64> = after.iter().map(|r| r["at"].as_u64().unwrap()).collect();
    assert_eq!(at, (0..200).map(|k| 3 * k + 1).collect());
    f.says(&format!("{sweep} --out whole"));
    assert_eq!(after, f.results("whole/sweep-2-of-3.jsonl"));
}

#[test]
fn a_missed_bar_is_a_finding_whose_replay_command_misses_it_again() {
    let f = Folder::new("finding");
    let o = f.run("sim sweep small.toml --set bars.completed=1,1000000 --seeds 2 --out parts");
    assert_eq!(o.status.code(), Some(1));
    let merged = f.merged("parts");
    let findings = merged["sweeps"][0]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 2, "{merged}");
    for finding in findings {
        let what = finding["what"].as_str().unwrap();
        assert!(what.contains("bars.completed=1000000: completed: "), "{what}");
        let replay = finding["replay"].as_str().unwrap();
        let o = f.run(replay.strip_prefix("ulnet ").unwrap());
        assert_eq!(o.status.code(), Some(1), "{replay}");
        assert!(text(&o).contains(replay), "{replay}: {}", text(&o));
    }
}

#[test]
fn a_sweep_refuses_a_setting_before_it_plays_anything() {
    let f = Folder::new("refused");
    for (set, says) in [
        ("tunables.retry_counts=1,2", "retry_counts"),
        ("nets.tcp.loss=1%", "the scenario has no 'nets'"),
        ("net.tcp.loss=1%,lots", "lots"),
    ] {
        let o = f.run(&format!("sim sweep small.toml --set {set} --out parts"));
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert_eq!((o.status.code(), err.contains(says)), (Some(2), true), "{set}: {err}");
        assert!(err.contains(&format!("with {}", set.split('=').next().unwrap())), "{err}");
    }
    assert!(!f.0.join("parts").exists());
}

#[test]
fn a_killed_part_of_a_swarm_continues_with_the_next_round() {
    let f = Folder::new("swarm");
    let file = "parts/swarm-1-2-of-2.jsonl";
    f.killed_at("sim swarm --minutes 60 --shard 2/2 --out parts --resume", file, 2);
    let before = f.results(file);
    f.killed_at("sim swarm --minutes 60 --shard 2/2 --out parts --resume", file, before.len() + 1);
    let after = f.results(file);
    let seed = |r: &serde_json::Value| r["seed"].as_u64().unwrap();
    let seeds: Vec<u64> = after.iter().map(seed).collect();
    // Rounds of part 2 of 2 are each second one, from the second on.
    let expected: Vec<u64> =
        (0..).map(|k| lnet_sim::seed_of(1, 2 * k + 1)).take(seeds.len()).collect();
    assert_eq!(seeds, expected);
    assert_eq!(after[..before.len()], before[..]);

    f.says("sim swarm --minutes 0.0001 --shard 1/2 --out parts");
    let printed = f.says("sim merge parts --html page.html");
    let line = format!("swarm        seed 1: 2 of 2 parts, {} rounds, ", seeds.len() + 1);
    assert!(printed.starts_with(&line), "{printed}");
    assert!(printed.contains("\nrounds       p50, p90, max: "), "{printed}");
    assert!(fs::read_to_string(f.0.join("page.html")).unwrap().contains("part 2/2"));
}

#[test]
fn a_swarm_resumes_only_with_a_seed_and_a_folder() {
    let f = Folder::new("seedless");
    for (line, says) in [
        ("sim swarm --resume --out parts", "--seed is required"),
        ("sim swarm --resume --seed 1", "--out"),
        ("sim sweep small.toml --resume", "--out"),
        ("sim sweep small.toml --set seed= --out parts", "expected a value"),
    ] {
        let o = f.run(line);
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert_eq!((o.status.code(), err.contains(says)), (Some(2), true), "{line}: {err}");
    }
}

#[test]
fn the_recipes_for_slurm_play_their_parts() {
    let f = Folder::new("slurm");
    let path = path_with_ulnet(&f.0);
    let tasks = |script: &str, words: &str| {
        let task = format!(
            "SLURM_ARRAY_TASK_ID=@ SLURM_ARRAY_TASK_MAX=2 bash {ROOT}/packaging/slurm/{script} {words}"
        );
        let o = Command::new("sh")
            .current_dir(&f.0)
            .env("PATH", &path)
            .args(["-c", &format!("seq 2 | xargs -P 2 -I @ env {task}")])
            .output()
            .unwrap();
        assert!(o.status.success(), "{script}: {o:?}");
    };
    tasks("sweep.sbatch", "sweep small.toml --set tunables.retry_count=0,2 --seeds 3");
    assert_eq!(f.merged("sweep")["sweeps"][0]["played"], 6);
    tasks("swarm.sbatch", "1 0.0001 swarm");
    assert_eq!(f.merged("swarm")["swarms"][0]["parts"], 2);
}

#[test]
fn the_recipes_for_kubernetes_play_their_parts() {
    let f = Folder::new("kubernetes");
    fs::create_dir(f.0.join("results")).unwrap();
    for (recipe, what) in [("sweep", "sweeps"), ("swarm", "swarms")] {
        let text =
            fs::read_to_string(format!("{ROOT}/packaging/kubernetes/{recipe}.yaml")).unwrap();
        assert!(text.contains("completionMode: Indexed") && text.contains("completions: 64"));
        let args = text.split(" args:\n").nth(1).unwrap().lines();
        let args = args.map_while(|line| line.trim().strip_prefix("- "));
        let args: Vec<&str> = args.map(|word| word.trim_matches('"')).collect();
        for index in 0..64u32 {
            // What a pod is given, in a folder in place of its volume, and for a moment.
            let words: Vec<String> = args
                .iter()
                .map(|w| w.replace("$(JOB_COMPLETION_INDEX)", &index.to_string()))
                .map(|w| w.replace("--minutes=60", "--minutes=0.0001").replace("=20", "=1"))
                .map(|w| w.replace("/scenarios/dark.toml", "small.toml"))
                .map(|w| w.replace("/results", "results"))
                .collect();
            assert_eq!(words.len(), 8, "{words:?}");
            // Some of the parts are enough: those with plays, and one without; one of a swarm, whose
            // rounds take longer.
            if (index > 3 && index < 63) || (recipe == "swarm" && index > 0) {
                continue;
            }
            let o = f.command("").args(&words).output().unwrap();
            assert!(o.status.success(), "{words:?}: {o:?}");
        }
        let merged = f.merged("results");
        let done = &merged[what][0];
        assert!(!done.is_null(), "{merged}");
    }
    let merged = f.merged("results");
    assert_eq!(
        (&merged["sweeps"][0]["played"], &merged["swarms"][0]["parts"]),
        (&3.into(), &1.into())
    );
}

/// A Slurm of one node: the daemons of its packages with a configuration of their own.
struct Slurm {
    dir: PathBuf,
    daemons: Vec<std::process::Child>,
}

impl Slurm {
    /// None where its packages are missing.
    fn start(dir: &Path) -> Option<Self> {
        for tool in ["munged", "slurmctld", "slurmd", "sbatch"] {
            Command::new(tool).arg("-V").output().ok()?;
        }
        let here = dir.display();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        let conf = format!(
            "ClusterName=one\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nAuthType=auth/munge\n\
             AuthInfo=socket={here}/munge\nCredType=cred/munge\n\
             SlurmctldPort={}\nSlurmdPort={}\nStateSaveLocation={here}\nSlurmdSpoolDir={here}/spool\n\
             SlurmctldPidFile={here}/ctld.pid\nSlurmdPidFile={here}/d.pid\nProctrackType=proctrack/pgid\n\
             TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nMpiDefault=none\n\
             ReturnToService=2\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=8192 State=UNKNOWN\n\
             PartitionName=all Nodes={host} Default=YES State=UP\n",
            fresh::port(),
            fresh::port()
        );
        fs::write(dir.join("slurm.conf"), conf).unwrap();
        fs::create_dir_all(dir.join("spool")).unwrap();
        let key: Vec<u8> = (0..=255).cycle().take(1024).collect();
        fs::write(dir.join("key"), key).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(dir.join("key"), private).unwrap();
        let mut slurm = Self { dir: dir.to_owned(), daemons: Vec::new() };
        let names = ["key-file", "socket", "pid-file", "log-file", "seed-file"];
        let files = ["key", "munge", "munge.pid", "munge.log", "munge.seed"];
        let words = names.iter().zip(files).map(|(n, f)| format!("--{n}={here}/{f}"));
        slurm.daemon("munged", &["--foreground".into(), "--force".into()], words.collect());
        slurm.until("munged", || dir.join("munge").exists());
        slurm.daemon("slurmctld", &["-D".into()], Vec::new());
        slurm.daemon("slurmd", &["-D".into(), "-N".into(), host.into()], Vec::new());
        let idle = || text(&slurm.tool("sinfo", &["-h", "-o", "%t"])).trim() == "idle";
        slurm.until("the node is idle", idle);
        Some(slurm)
    }

    fn daemon(&mut self, name: &str, first: &[String], more: Vec<String>) {
        let log = fs::File::create(self.dir.join(format!("{name}.out"))).unwrap();
        let mut command = Command::new(name);
        command.args(first).args(more).env("SLURM_CONF", self.dir.join("slurm.conf"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }

    fn tool(&self, name: &str, words: &[&str]) -> Output {
        let mut command = Command::new(name);
        command.args(words).env("SLURM_CONF", self.dir.join("slurm.conf"));
        command.current_dir(&self.dir).env("PATH", path_with_ulnet(&self.dir));
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            let log = |name| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
            assert!(
                begun.elapsed() < PATIENCE,
                "{what}: {}{}{}",
                log("munged.out"),
                log("slurmctld.out"),
                log("slurmd.out")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn an_array_job_of_a_slurm_of_one_node_plays_a_sweep() {
    let f = Folder::new("one-node");
    let Some(slurm) = Slurm::start(&f.0) else {
        return netns::skipped(
            "a Slurm of one node",
            "its packages (slurmctld, slurmd, munge) are missing",
        );
    };
    let script = format!("{ROOT}/packaging/slurm/sweep.sbatch");
    let words = ["--array=1-3", "--mem=1G", &script, "results", "small.toml"];
    let sweep = ["--set", "tunables.retry_count=0,2", "--seeds", "3"];
    let o = slurm.tool("sbatch", &[&words[..], &sweep].concat());
    assert!(o.status.success(), "{o:?}");
    slurm.until("the jobs end", || text(&slurm.tool("squeue", &["-h"])).trim().is_empty());
    let merged = f.merged("results");
    assert_eq!(
        (&merged["sweeps"][0]["played"], &merged["sweeps"][0]["plays"]),
        (&6.into(), &6.into())
    );
}
