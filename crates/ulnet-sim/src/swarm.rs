//! `ulnet sim swarm`: rounds of random worlds under random faults, until something is found.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;
use lnet_sim::{Detail, Played, Round, seed_of};

/// Plays random worlds under random faults, one after the other, until one violates what must hold
/// or the time is over.
#[derive(Clone, Debug, Args)]
pub(super) struct Swarm {
    /// How long, in minutes; 0.1 is six seconds. The round that is played then is finished.
    #[arg(long, value_name = "M", default_value = "1", value_parser = minutes)]
    minutes: Duration,

    /// Where the rounds begin; the time of day otherwise. It is printed.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,

    /// Play part i of n (1/8 to 8/8) of the same rounds, so that n machines share them.
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = shard, conflicts_with = "one")]
    shard: (u64, u64),

    /// Play one round, that of this very seed, and print all of it.
    #[arg(long, requires = "seed", conflicts_with = "minutes")]
    one: bool,

    /// Where the scenario of a violation is written; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}': expected a number of minutes above 0, like 30 or 0.1");
    let minutes: f64 = text.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| wrong())?;
    if time.is_zero() { Err(wrong()) } else { Ok(time) }
}

fn shard(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    parts
        .filter(|(i, n)| *i >= 1 && i <= n)
        .ok_or_else(|| format!("'{text}': expected I/N with I from 1 to N, like 3/8"))
}

impl Swarm {
    /// Whether nothing was violated.
    pub(super) fn run(&self) -> anyhow::Result<bool> {
        // Found out now, not after hours.
        let no_dir = || format!("--out {}: can't make this folder", self.out.display());
        fs::create_dir_all(&self.out).with_context(no_dir)?;
        let mut out = std::io::stdout();
        if let (true, Some(seed)) = (self.one, self.seed) {
            let round = Round::draw(seed)?;
            let played = round.play(Detail::Moments);
            let lines = played.lines.join("\n");
            // A reader that has gone away is no error of ours.
            let _ = write!(out, "{}\n{lines}\n\n{}", round.text, played.summary);
            return self.judge(&round, &played);
        }
        let first = self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.as_nanos() as u64 >> 1
        });
        let (i, n) = self.shard;
        let _ = writeln!(out, "swarm        seed {first}, shard {i}/{n}");
        let begun = Instant::now();
        let (mut rounds, mut messages, mut exchanges, mut virtual_time) = (0u64, 0u64, 0u64, 0u64);
        let mut well = true;
        while well && begun.elapsed() < self.minutes {
            let round = Round::draw(seed_of(first, rounds * n + i - 1))?;
            let played = round.play(Detail::Moments);
            rounds += 1;
            messages += played.summary.messages;
            exchanges += played.summary.completed + played.summary.errors;
            virtual_time += round.scenario.duration.as_secs();
            well = self.judge(&round, &played)?;
        }
        let _ = writeln!(
            out,
            "played       {rounds} rounds in {:.1} s: {virtual_time} virtual seconds, {exchanges} exchanges, {messages} messages",
            begun.elapsed().as_secs_f64()
        );
        Ok(well)
    }

    /// Whether a round was as it must be; what to do about it if not.
    fn judge(&self, round: &Round, played: &Played) -> anyhow::Result<bool> {
        let Some(violation) = &played.violation else { return Ok(true) };
        let file = self.out.join(format!("swarm-{}.toml", round.seed));
        fs::write(&file, &round.text).with_context(|| format!("can't write {}", file.display()))?;
        let _ = write!(
            std::io::stdout(),
            "VIOLATION    {violation}\nscenario     {}\nreplay       ulnet sim swarm --seed {} --one\n",
            file.display(),
            round.seed
        );
        Ok(false)
    }
}
