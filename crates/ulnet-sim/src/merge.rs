//! `ulnet sim merge`: joins what the parts of swarms and sweeps left behind: counts, findings with the
//! lines that play them again, percentiles over seeds, one page with plots.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use plots::{Bars, Page};
use serde::Serialize;

use super::swarm::{Hunt, Progress};
use super::sweep::{Plan, Result, shown};

/// Joins the results of all parts of swarms and sweeps in a folder.
#[derive(Clone, Debug, Args)]
pub(super) struct Merge {
    /// The folder that the parts were given as --out.
    dir: PathBuf,

    /// Print one JSON document.
    #[arg(long)]
    json: bool,

    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Everything that was found in the folder.
#[derive(Debug, Default, Serialize)]
struct Joined {
    swarms: Vec<SwarmSum>,
    sweeps: Vec<SweepSum>,
}

/// The parts of one swarm.
#[derive(Debug, Default, Serialize)]
struct SwarmSum {
    seed: u64,
    parts: u64,
    of: u64,
    rounds: u64,
    messages: u64,
    exchanges: u64,
    virtual_seconds: u64,
    findings: Vec<Finding>,
}

/// A play that was not as it must be, and the line that plays it again.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    replay: String,
}

/// The parts of one sweep.
#[derive(Debug, Serialize)]
struct SweepSum {
    scenario: String,
    plays: u64,
    played: u64,
    settings: Vec<SettingSum>,
    findings: Vec<Finding>,
}

/// All seeds of one combination. Times in nanoseconds.
#[derive(Debug, Serialize)]
struct SettingSum {
    setting: String,
    plays: u64,
    held: u64,
    errors: u64,
    retries: u64,
    resends: u64,
    gap: Spread,
    stall_p99: Spread,
    recovery: Spread,
}

/// A figure over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Spread {
    p50: u64,
    p90: u64,
    max: u64,
}

impl Spread {
    fn of(mut figures: Vec<u64>) -> Self {
        figures.sort_unstable();
        let last = figures.len().saturating_sub(1);
        let at = |percent: usize| figures.get((last * percent).div_ceil(100)).copied().unwrap_or(0);
        Self { p50: at(50), p90: at(90), max: at(100) }
    }
}

impl Merge {
    /// Whether everything held and nothing is missing.
    pub(super) fn run(&self) -> anyhow::Result<bool> {
        let joined = self.join()?;
        if let Some(path) = &self.html {
            super::write(path, &page(&joined))?;
        }
        let text = if self.json {
            let mut text = serde_json::to_string_pretty(&joined)?;
            text.push('\n');
            text
        } else {
            report(&joined)
        };
        super::print(&text);
        let whole = joined.swarms.iter().all(|s| s.findings.is_empty() && s.parts == s.of)
            && joined.sweeps.iter().all(|s| s.findings.is_empty() && s.played == s.plays);
        Ok(whole)
    }

    fn join(&self) -> anyhow::Result<Joined> {
        let dir = self.dir.display();
        let entries = fs::read_dir(&self.dir).with_context(|| format!("can't read {dir}"))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        paths.sort();
        let (mut swarms, mut sweeps) = (Vec::new(), Vec::<(Plan, Vec<Result>)>::new());
        for path in &paths {
            let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
            if !name.ends_with(".jsonl") {
                continue;
            }
            if name.starts_with("swarm-") {
                swarms.push(read::<Hunt, Progress>(path)?);
            } else if name.starts_with("sweep-") {
                let (plan, results) = read::<Plan, Result>(path)?;
                match sweeps.iter_mut().find(|(other, _)| plan.is_part_of(other)) {
                    Some((_, all)) => all.extend(results),
                    None => sweeps.push((plan, results)),
                }
            }
        }
        if swarms.is_empty() && sweeps.is_empty() {
            bail!("{dir} holds no results: expected swarm-*.jsonl or sweep-*.jsonl");
        }
        Ok(Joined {
            swarms: sum_swarms(swarms),
            sweeps: sweeps.into_iter().map(|(plan, results)| sum_sweep(&plan, results)).collect(),
        })
    }
}

fn read<H: serde::de::DeserializeOwned, R: serde::de::DeserializeOwned>(
    path: &Path,
) -> anyhow::Result<(H, Vec<R>)> {
    let text =
        fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    super::shard::parse(&text).with_context(|| path.display().to_string())
}

fn sum_swarms(parts: Vec<(Hunt, Vec<Progress>)>) -> Vec<SwarmSum> {
    let mut sums = BTreeMap::<(u64, u64), SwarmSum>::new();
    for (hunt, rounds) in parts {
        let sum = sums.entry((hunt.swarm, hunt.shard.n)).or_default();
        (sum.seed, sum.of) = (hunt.swarm, hunt.shard.n);
        sum.parts += 1;
        for round in rounds {
            sum.rounds += 1;
            sum.messages += round.messages;
            sum.exchanges += round.exchanges;
            sum.virtual_seconds += round.virtual_seconds;
            sum.findings.extend(round.violation.map(|what| Finding {
                what,
                replay: format!("ulnet sim swarm --seed {} --one", round.seed),
            }));
        }
    }
    sums.into_values().collect()
}

fn sum_sweep(plan: &Plan, results: Vec<Result>) -> SweepSum {
    // A play that is there twice, from a part that was started twice, counts once.
    let plays: BTreeMap<u64, Result> = results.into_iter().map(|r| (r.at, r)).collect();
    let (mut settings, mut findings) = (Vec::new(), Vec::new());
    for n in 0..plan.settings() {
        let chosen = plan.setting(n);
        let own: Vec<&Result> =
            plays.range(n * plan.seeds..(n + 1) * plan.seeds).map(|(_, r)| r).collect();
        for result in own.iter().filter(|r| !r.holds) {
            let set: String = chosen.iter().map(|(p, v)| format!(" --set {p}={v}")).collect();
            let seed = plan.seed + result.at % plan.seeds;
            findings.push(Finding {
                what: format!("{}: {}", shown(&chosen), result.missed.join(", ")),
                replay: format!("ulnet sim run {} --seed {seed}{set}", plan.sweep),
            });
        }
        let spread =
            |f: fn(&Result) -> Option<u64>| Spread::of(own.iter().filter_map(|r| f(r)).collect());
        settings.push(SettingSum {
            setting: shown(&chosen),
            plays: own.len() as u64,
            held: own.iter().filter(|r| r.holds).count() as u64,
            errors: own.iter().map(|r| r.errors).sum(),
            retries: own.iter().map(|r| r.retries).sum(),
            resends: own.iter().map(|r| r.resends).sum(),
            gap: spread(|r| Some(r.gap_max)),
            stall_p99: spread(|r| Some(r.stall_p99)),
            recovery: spread(|r| r.recovery),
        });
    }
    let played = plays.len() as u64;
    SweepSum { scenario: plan.sweep.clone(), plays: plan.plays(), played, settings, findings }
}

fn span(ns: u64) -> String {
    format!("{:.1?}", Duration::from_nanos(ns))
}

fn report(joined: &Joined) -> String {
    // Writing to a string does not fail, here and below.
    let mut text = String::new();
    for swarm in &joined.swarms {
        let _ = writeln!(
            text,
            "swarm        seed {}: {} of {} parts, {} rounds, {} virtual seconds, {} exchanges, {} messages",
            swarm.seed,
            swarm.parts,
            swarm.of,
            swarm.rounds,
            swarm.virtual_seconds,
            swarm.exchanges,
            swarm.messages
        );
        list(&mut text, &swarm.findings);
    }
    for sweep in &joined.sweeps {
        let _ = writeln!(
            text,
            "sweep        {}: {} of {} plays",
            sweep.scenario, sweep.played, sweep.plays
        );
        let width = sweep.settings.iter().map(|s| s.setting.len()).max().unwrap_or(0).max(7);
        let _ = writeln!(
            text,
            "{:width$}  {:>9}  {:>7}  {:>8}  {:>10} {:>10} {:>10}  {:>10}  {:>10}",
            "setting",
            "held",
            "errors",
            "resends",
            "gap p50",
            "gap p90",
            "gap max",
            "p99 max",
            "well max"
        );
        for s in &sweep.settings {
            let held = format!("{}/{}", s.held, s.plays);
            let _ = writeln!(
                text,
                "{:width$}  {held:>9}  {:>7}  {:>8}  {:>10} {:>10} {:>10}  {:>10}  {:>10}",
                s.setting,
                s.errors,
                s.resends,
                span(s.gap.p50),
                span(s.gap.p90),
                span(s.gap.max),
                span(s.stall_p99.max),
                span(s.recovery.max)
            );
        }
        list(&mut text, &sweep.findings);
    }
    text
}

fn list(text: &mut String, findings: &[Finding]) {
    for finding in findings {
        let _ = writeln!(text, "VIOLATION    {}\nreplay       {}", finding.what, finding.replay);
    }
}

fn page(joined: &Joined) -> String {
    let mut page = Page::new("ulnet sim merge", "");
    page.heading("Results of all parts");
    for swarm in &joined.swarms {
        let facts = [
            ("swarm", format!("seed {}, {} of {} parts", swarm.seed, swarm.parts, swarm.of)),
            ("rounds", swarm.rounds.to_string()),
            ("virtual seconds", swarm.virtual_seconds.to_string()),
            ("messages", swarm.messages.to_string()),
            ("findings", swarm.findings.len().to_string()),
        ];
        page.facts(facts.iter().map(|(name, value)| (*name, value.as_str())));
        found(&mut page, &swarm.findings);
    }
    for sweep in &joined.sweeps {
        let plays = format!("{} of {}", sweep.played, sweep.plays);
        page.facts([("sweep", sweep.scenario.as_str()), ("plays", plays.as_str())]);
        let ms = |ns: u64| ns as f64 / 1e6;
        let rows = |pick: fn(&SettingSum) -> Spread| {
            let rows = sweep.settings.iter().map(|s| {
                let spread = pick(s);
                (s.setting.clone(), [ms(spread.p50), ms(spread.p90), ms(spread.max)])
            });
            rows.collect::<Vec<_>>()
        };
        for (title, pick) in [
            ("Longest gap, ms", (|s| s.gap) as fn(&SettingSum) -> Spread),
            ("99th percentile of exchanges, ms", |s| s.stall_p99),
            ("Until all nodes were healthy again, ms", |s| s.recovery),
        ] {
            let parts = ["half of the seeds", "9 of 10", "worst"];
            page.bars(&Bars { title, parts: &parts, rows: &rows(pick) });
        }
        found(&mut page, &sweep.findings);
    }
    page.finish()
}

fn found(page: &mut Page, findings: &[Finding]) {
    page.facts(findings.iter().map(|f| (f.what.as_str(), f.replay.as_str())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_figures_are_the_figures_themselves() {
        assert_eq!(Spread::of(vec![]), Spread::default());
        assert_eq!(Spread::of(vec![7]), Spread { p50: 7, p90: 7, max: 7 });
        assert_eq!(Spread::of((1..=11).collect()), Spread { p50: 6, p90: 10, max: 11 });
    }
}
