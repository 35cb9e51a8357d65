//! `ulnet sim sweep`, `swarm` and `merge` in parts, as batch systems run them: parts beside each
//! other, killed and started again, joined.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
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
        let dir = std::env::temp_dir().join(format!("ulnet-batch-{name}-{}", std::process::id()));
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
