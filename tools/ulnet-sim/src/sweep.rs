//! `ulnet sim sweep`: one scenario under every combination of settings, with several seeds each.
//! Every play is independent of the others, so that parts of a sweep may run anywhere (`shard.rs`);
//! `merge.rs` makes the table, of one part as of all.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use lnet_scenario::Change;
use lnet_sim::{Detail, play};
use serde::{Deserialize, Serialize};

use super::merge::table;
use super::shard::{Log, Shard, shard};

/// Most plays of one sweep.
const PLAYS_MAX: u64 = 10_000_000;

/// Plays one scenario with every combination of settings and several seeds each.
#[derive(Clone, Debug, Args)]
pub(super) struct Sweep {
    /// The scenario.
    file: PathBuf,

    /// Values to try at one place of the scenario: tunables.retry_count=0,2,5 or net.tcp.loss=0%,1%.
    /// Given several times, every combination is played.
    #[arg(long, value_name = "PLACE=V,V,…", value_parser = axis)]
    set: Vec<Axis>,

    /// How many seeds each combination is played with.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,

    /// The first of them; the others follow.
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64 / 2))]
    seed: u64,

    /// Play part i of n (1/8 to 8/8) of the same plays, so that n machines share them.
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = shard)]
    shard: Shard,

    /// Folder of the results: one file for each part, for 'ulnet sim merge'; it is made if there is
    /// none. Default: results are printed only.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Continue where an earlier run of this part ended or was killed.
    #[arg(long, requires = "out")]
    resume: bool,
}

/// The values that are tried at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Axis {
    pub(super) place: String,
    pub(super) values: Vec<String>,
}

fn axis(text: &str) -> Result<Axis, String> {
    let (place, values) =
        text.split_once('=').ok_or_else(|| format!("'{text}': expected PLACE=V,V,…"))?;
    let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
    for value in &values {
        Change::new(place, value)?;
        if value.is_empty() {
            return Err(format!("'{text}': expected a value between commas"));
        }
    }
    Ok(Axis { place: place.to_owned(), values })
}

/// Settings of a sweep; the first line of each of its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    version: String,
    /// The scenario's file.
    pub(super) sweep: String,
    /// Checksum of the scenario's text: parts of a sweep play the same.
    text: u64,
    pub(super) axes: Vec<Axis>,
    pub(super) seeds: u64,
    pub(super) seed: u64,
    pub(super) shard: Shard,
}

impl Plan {
    /// How many combinations of settings there are.
    pub(super) fn settings(&self) -> u64 {
        self.axes.iter().fold(1, |n, axis| n.saturating_mul(axis.values.len() as u64))
    }

    /// How many plays there are, over all parts.
    pub(super) fn plays(&self) -> u64 {
        self.settings().saturating_mul(self.seeds)
    }

    /// Combination number `n`: the last axis changes fastest.
    pub(super) fn setting(&self, mut n: u64) -> Vec<(&str, &str)> {
        let mut chosen = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            let count = axis.values.len().max(1) as u64;
            let value = axis.values.get((n % count) as usize).map_or("", String::as_str);
            chosen.push((axis.place.as_str(), value));
            n /= count;
        }
        chosen.reverse();
        chosen
    }

    /// Refuses what no sweep has: a plan may come from a file.
    ///
    /// # Errors
    /// The number of plays and its limit.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self.plays() {
            0 => bail!("0 plays: expected at least one seed, and a value for each --set"),
            PLAYS_MAX.. => bail!("{} plays: limit {PLAYS_MAX}", self.plays()),
            _ => Ok(()),
        }
    }

    /// Whether `other` is another part of the same sweep, wherever its file was.
    pub(super) fn is_part_of(&self, other: &Self) -> bool {
        let same = Self { shard: other.shard, sweep: other.sweep.clone(), ..self.clone() };
        same == *other && self.shard.n == other.shard.n
    }
}

/// One play.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PlayResult {
    /// Its number: combination times seeds, plus the number of the seed.
    pub(super) at: u64,
    pub(super) holds: bool,
    pub(super) missed: Vec<String>,
    pub(super) errors: u64,
    pub(super) retries: u64,
    pub(super) resends: u64,
    /// Nanoseconds.
    pub(super) stall_p99: u64,
    pub(super) stall_max: u64,
    pub(super) gap_max: u64,
    /// From the end of the last fault until all nodes were healthy.
    pub(super) recovery: Option<u64>,
}

impl Sweep {
    /// Whether all bars held in all plays of this part.
    pub(super) fn run(&self) -> anyhow::Result<bool> {
        let name = self.file.to_string_lossy().into_owned();
        let text = fs::read_to_string(&self.file).with_context(|| format!("can't read {name}"))?;
        let (axes, seeds, seed) = (self.set.clone(), self.seeds, self.seed);
        let checksum = lnet_sim::seed_of(text.len() as u64, fnv(text.as_bytes()));
        let plan = Plan {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sweep: name.clone(),
            text: checksum,
            axes,
            seeds,
            seed,
            shard: self.shard,
        };
        plan.check()?;
        let scenarios = self.scenarios(&plan, &name, &text)?;
        let Shard { i, n } = self.shard;
        let (mut log, mut results) = (None, Vec::new());
        if let Some(dir) = &self.out {
            let no_dir = || format!("--out {}: can't make this folder", dir.display());
            fs::create_dir_all(dir).with_context(no_dir)?;
            let path = dir.join(format!("sweep-{i}-of-{n}.jsonl"));
            let (opened, earlier) = Log::open::<Plan, PlayResult>(&path, &plan, self.resume)?;
            (log, results) = (Some(opened), earlier);
        }
        let done: BTreeSet<u64> = results.iter().map(|r| r.at).collect();
        let mut played = 0u64;
        for at in (0..plan.plays()).filter(|at| self.shard.plays(*at) && !done.contains(at)) {
            let Some(scenario) = scenarios.get((at / seeds) as usize) else { continue };
            let ran = play(scenario.clone(), Some(seed + at % seeds), Detail::Moments);
            let mut missed = ran.summary.missed.clone();
            missed.extend(ran.violation.iter().map(ToString::to_string));
            let s = &ran.summary;
            let result = PlayResult {
                at,
                holds: ran.holds(),
                missed,
                errors: s.errors,
                retries: s.retries,
                resends: s.resends,
                stall_p99: s.stall_p99,
                stall_max: s.stall_max,
                gap_max: s.gap_max,
                recovery: s.recovery,
            };
            if let Some(log) = &mut log {
                log.add(&result)?;
            }
            results.push(result);
            played += 1;
        }
        let holds = results.iter().all(|r| r.holds);
        let earlier = done.len();
        let _ = writeln!(
            std::io::stdout(),
            "played       {played} plays as part {i}/{n}, {earlier} earlier"
        );
        super::print(&table(&plan, results));
        Ok(holds)
    }

    /// The scenario of each combination: a setting that is refused is found before anything is
    /// played.
    fn scenarios(
        &self,
        plan: &Plan,
        name: &str,
        text: &str,
    ) -> anyhow::Result<Vec<Arc<lnet_scenario::Scenario>>> {
        let read = |n| {
            let changes = plan.setting(n).into_iter().map(|(place, v)| Change::new(place, v));
            let changes: Result<Vec<Change>, String> = changes.collect();
            let changes = changes.map_err(anyhow::Error::msg)?;
            let scenario = lnet_scenario::parse_changed(name, text, &[], &changes);
            let said = || format!("with {}", shown(&plan.setting(n)));
            Ok(Arc::new(scenario.with_context(said)?))
        };
        (0..plan.settings()).map(read).collect()
    }
}

/// A combination as it is shown and typed: `a=1 b=2`.
pub(super) fn shown(setting: &[(&str, &str)]) -> String {
    let words: Vec<String> = setting.iter().map(|(place, v)| format!("{place}={v}")).collect();
    if words.is_empty() { "as it stands".to_owned() } else { words.join(" ") }
}

/// A checksum that tells texts apart which differ by mistake (FNV-1a).
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_numbered_with_the_last_axis_fastest() {
        let axes = ["tunables.a=1,2", "net.tcp.loss=0%,1%,2%"].map(|t| axis(t).unwrap()).to_vec();
        let shard = Shard { i: 1, n: 1 };
        let (version, sweep) = (String::new(), "x".to_owned());
        let plan = Plan { version, sweep, text: 0, axes, seeds: 4, seed: 1, shard };
        plan.check().unwrap();
        assert!(Plan { seeds: 0, ..plan.clone() }.check().is_err());
        assert!(Plan { seeds: u64::MAX, ..plan.clone() }.check().is_err());
        assert_eq!((plan.settings(), plan.plays()), (6, 24));
        assert_eq!(plan.setting(4), [("tunables.a", "2"), ("net.tcp.loss", "1%")]);
        let all: BTreeSet<_> = (0..6).map(|n| shown(&plan.setting(n))).collect();
        assert_eq!(all.len(), 6, "{all:?}");
    }

    #[test]
    fn malformed_axes_are_refused() {
        for text in ["", "a", "=1", "a=", "a=1,,2", "a..b=1"] {
            assert!(axis(text).is_err(), "{text}");
        }
    }
}
