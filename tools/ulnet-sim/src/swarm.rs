//! `ulnet sim swarm`: rounds of random worlds under random faults, until something is found.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use lnet_sim::{Detail, Floor, Played, Round, Summary, seed_of};
use serde::{Deserialize, Serialize};

use super::print;
use super::shard::{Log, Shard, shard};

/// Plays random worlds under random faults, one after the other, until one violates what must hold
/// or the time is over.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
                        ulnet sim swarm --floor rpc --minutes 30\n  \
                        ulnet sim swarm --floor locks --minutes 5 --keep-going --json\n  \
                        ulnet sim swarm --floor rpc --seed 7 --one")]
pub(super) struct Swarm {
    /// How long, in minutes; 0.1 is six seconds. The round that is played then is finished.
    #[arg(long, value_name = "M", default_value = "1", value_parser = minutes)]
    minutes: Duration,

    /// What is played: lnet, rdma for the same on RDMA networks alone, rpc for targets and clients above
    /// LNet, locks for lock targets and programs that take locks, files for a file system and programs
    /// that visit it.
    #[arg(long, value_name = "FLOOR", default_value = "lnet", value_parser = floor)]
    floor: Floor,

    /// Seed of the first round. Default: the time of day, and 1 for a part of several (--shard). It is
    /// printed.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,

    /// Play part i of n (1/8 to 8/8) of the same rounds, so that n machines share them.
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = shard, conflicts_with = "one")]
    shard: Shard,

    /// Play one round, that of this very seed, and print all of it.
    #[arg(long, requires = "seed", conflicts_with = "minutes")]
    one: bool,

    /// Folder of the results: a file with a line for each round, for 'ulnet sim merge', and the
    /// scenarios of violations; it is made if there is none. Default: no file of results, and scenarios
    /// in the current folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Continue where an earlier run of the same part ended or was killed; its minutes count.
    #[arg(long, requires = "out", conflicts_with = "one")]
    resume: bool,

    /// Continue after a violation, until the time is over.
    #[arg(long, conflicts_with = "one")]
    keep_going: bool,

    /// Print one JSON document at the end.
    #[arg(long)]
    json: bool,
}

/// Settings of a part of a swarm; the first line of its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hunt {
    version: String,
    /// The word of [`Floor`].
    #[serde(default = "lowest")]
    pub(super) floor: String,
    pub(super) swarm: u64,
    pub(super) shard: Shard,
}

/// One round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) seed: u64,
    pub(super) messages: u64,
    pub(super) exchanges: u64,
    pub(super) virtual_seconds: u64,
    /// Real time, milliseconds.
    pub(super) took_ms: u64,
    pub(super) violation: Option<String>,
}

/// A round that violated what must hold.
#[derive(Clone, Debug, Serialize)]
struct Violated {
    seed: u64,
    violation: String,
    /// Its scenario's file.
    scenario: PathBuf,
    /// The line that plays it again.
    replay: String,
}

impl Violated {
    fn lines(&self) -> String {
        let Self { violation, scenario, replay, .. } = self;
        let scenario = scenario.display();
        format!("VIOLATION    {violation}\nscenario     {scenario}\nreplay       {replay}\n")
    }
}

/// What `--json` prints of many rounds.
#[derive(Debug, Serialize)]
struct Document {
    seed: u64,
    shard: Shard,
    floor: &'static str,
    /// Of an earlier run of the same part.
    resumed_rounds: u64,
    rounds: u64,
    seconds: f64,
    virtual_seconds: u64,
    exchanges: u64,
    messages: u64,
    /// Whether nothing was violated, in the resumed rounds too.
    holds: bool,
    violations: Vec<Violated>,
}

/// What `--json` prints of one round.
#[derive(Serialize)]
struct One<'a> {
    seed: u64,
    floor: &'static str,
    scenario: &'a str,
    moments: &'a [String],
    summary: &'a Summary,
    violation: Option<Violated>,
}

impl Hunt {
    /// The option that plays the same floor again.
    pub(super) fn option(&self) -> &'static str {
        option(floor(&self.floor).unwrap_or_default())
    }
}

fn option(floor: Floor) -> &'static str {
    match floor {
        Floor::Lnet => "",
        Floor::Rdma => " --floor rdma",
        Floor::Rpc => " --floor rpc",
        Floor::Locks => " --floor locks",
        Floor::Files => " --floor files",
    }
}

fn lowest() -> String {
    Floor::default().name().to_owned()
}

fn floor(text: &str) -> Result<Floor, String> {
    let found = Floor::ALL.iter().find(|(word, _)| *word == text).map(|(_, floor)| *floor);
    found.ok_or_else(|| format!("'{text}': expected lnet, rdma, rpc, locks or files"))
}

fn minutes(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}': expected a number of minutes above 0, like 30 or 0.1");
    let minutes: f64 = text.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| wrong())?;
    if time.is_zero() { Err(wrong()) } else { Ok(time) }
}

impl Swarm {
    /// Whether nothing was violated.
    pub(super) fn run(&self) -> anyhow::Result<bool> {
        if let Some(dir) = &self.out {
            // Found out now, not after hours.
            let no_dir = || format!("--out {}: can't make this folder", dir.display());
            fs::create_dir_all(dir).with_context(no_dir)?;
        }
        if let (true, Some(seed)) = (self.one, self.seed) {
            return self.one(seed);
        }
        let Shard { i, n } = self.shard;
        let seed = self.seed.or_else(|| (n > 1).then_some(1));
        if self.resume && seed.is_none() {
            bail!(
                "--resume: --seed is required, as rounds of the time of day are others each time"
            );
        }
        let first = seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.as_nanos() as u64 >> 1
        });
        self.say(&format!("swarm        seed {first}, shard {i}/{n}\n"));
        let (mut log, mut earlier) = (None, Vec::new());
        if let Some(dir) = &self.out {
            let path = dir.join(format!("swarm{}-{first}-{i}-of-{n}.jsonl", self.suffix()));
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let floor = self.floor.name().to_owned();
            let hunt = Hunt { version, floor, swarm: first, shard: self.shard };
            let (opened, rounds) = Log::open::<Hunt, Progress>(&path, &hunt, self.resume)?;
            (log, earlier) = (Some(opened), rounds);
        }
        let before = earlier.iter().fold(0u64, |all, r| all.saturating_add(r.took_ms));
        let before = Duration::from_millis(before);
        let mut holds = earlier.iter().all(|r| r.violation.is_none());
        let skipped = earlier.len() as u64;
        let begun = Instant::now();
        let (mut rounds, mut messages, mut exchanges, mut virtual_time) = (0u64, 0u64, 0u64, 0u64);
        let mut violations = Vec::new();
        while (holds || self.keep_going) && before + begun.elapsed() < self.minutes {
            let round_begun = Instant::now();
            let round = Round::draw_on(self.floor, seed_of(first, (skipped + rounds) * n + i - 1))?;
            let played = round.play(Detail::Moments);
            let progress = Progress {
                seed: round.seed,
                messages: played.summary.messages,
                exchanges: played.summary.completed + played.summary.errors,
                virtual_seconds: round.scenario.duration.as_secs(),
                took_ms: round_begun.elapsed().as_millis() as u64,
                violation: played.violation.as_ref().map(ToString::to_string),
            };
            rounds += 1;
            messages += progress.messages;
            exchanges += progress.exchanges;
            virtual_time += progress.virtual_seconds;
            if let Some(violated) = self.judge(&round, &played)? {
                self.say(&violated.lines());
                violations.push(violated);
                holds = false;
            }
            if let Some(log) = &mut log {
                log.add(&progress)?;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        if self.json {
            print_json(&Document {
                seed: first,
                shard: self.shard,
                floor: self.floor.name(),
                resumed_rounds: skipped,
                rounds,
                seconds,
                virtual_seconds: virtual_time,
                exchanges,
                messages,
                holds,
                violations,
            })?;
        }
        if skipped > 0 {
            let before = before.as_secs_f64();
            self.say(&format!("resumed      after {skipped} rounds in {before:.1} s\n"));
        }
        self.say(&format!(
            "played       {rounds} rounds in {seconds:.1} s: {virtual_time} virtual seconds, {exchanges} exchanges, {messages} messages\n"
        ));
        Ok(holds)
    }

    /// Plays one round, and prints all of it.
    fn one(&self, seed: u64) -> anyhow::Result<bool> {
        let round = Round::draw_on(self.floor, seed)?;
        let played = round.play(Detail::Moments);
        self.say(&format!("{}\n{}\n\n{}", round.text, played.lines.join("\n"), played.summary));
        let violation = self.judge(&round, &played)?;
        let holds = violation.is_none();
        self.say(&violation.as_ref().map(Violated::lines).unwrap_or_default());
        if self.json {
            print_json(&One {
                seed,
                floor: self.floor.name(),
                scenario: &round.text,
                moments: &played.lines,
                summary: &played.summary,
                violation,
            })?;
        }
        Ok(holds)
    }

    /// Prints text, unless a document is printed.
    fn say(&self, text: &str) {
        if !self.json {
            print(text);
        }
    }

    /// Of names of files.
    fn suffix(&self) -> &'static str {
        match self.floor {
            Floor::Lnet => "",
            Floor::Rdma => "-rdma",
            Floor::Rpc => "-rpc",
            Floor::Locks => "-locks",
            Floor::Files => "-files",
        }
    }

    /// What a round violated; its scenario is kept.
    fn judge(&self, round: &Round, played: &Played) -> anyhow::Result<Option<Violated>> {
        let Some(violation) = &played.violation else { return Ok(None) };
        let (seed, suffix) = (round.seed, self.suffix());
        let scenario =
            self.out.clone().unwrap_or_default().join(format!("swarm{suffix}-{seed}.toml"));
        fs::write(&scenario, &round.text)
            .with_context(|| format!("can't write {}", scenario.display()))?;
        let replay = format!("ulnet sim swarm{} --seed {seed} --one", option(self.floor));
        Ok(Some(Violated { seed, violation: violation.to_string(), scenario, replay }))
    }
}

fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(document)? + "\n"));
    Ok(())
}
