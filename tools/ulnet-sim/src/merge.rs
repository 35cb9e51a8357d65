//! `ulnet sim merge`: joins the results of the parts of swarms and sweeps: counts, findings with their
//! replay commands, percentiles over seeds and rounds, one page with plots.

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
use super::sweep::{Plan, PlayResult, shown};

/// Joins the results of all parts of swarms and sweeps in a folder.
#[derive(Clone, Debug, Args)]
pub(super) struct Merge {
    /// The folder: --out of the parts.
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
    /// Real time of a round, milliseconds.
    round_ms: Spread,
    /// Messages of a round.
    round_messages: Spread,
    /// Number of each part, its rounds and its seconds of real time.
    by_part: Vec<(u64, u64, u64)>,
    findings: Vec<Finding>,
}

/// A violation or a missed bar, and its replay command.
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

/// A figure over seeds or rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Spread {
    p50: u64,
    p90: u64,
    max: u64,
}

/// The bars of a [`Spread`].
const PARTS: [&str; 3] = ["p50", "p90", "max"];

impl Spread {
    fn bars(self, unit: f64) -> [f64; 3] {
        [self.p50, self.p90, self.max].map(|figure| figure as f64 / unit)
    }

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
        let (mut swarms, mut sweeps) = (Vec::new(), Vec::<(Plan, Vec<PlayResult>)>::new());
        for path in &paths {
            let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
            if !name.ends_with(".jsonl") {
                continue;
            }
            if name.starts_with("swarm-") {
                swarms.extend(read::<Hunt, Progress>(path)?);
            } else if name.starts_with("sweep-") {
                let Some((plan, results)) = read::<Plan, PlayResult>(path)? else { continue };
                plan.check().with_context(|| path.display().to_string())?;
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

/// Settings and results of a file; none if the part was killed before it wrote its settings.
fn read<H: serde::de::DeserializeOwned, R: serde::de::DeserializeOwned>(
    path: &Path,
) -> anyhow::Result<Option<(H, Vec<R>)>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    if !text.contains('\n') {
        return Ok(None);
    }
    super::shard::parse(&text).map(Some).with_context(|| path.display().to_string())
}

fn sum_swarms(parts: Vec<(Hunt, Vec<Progress>)>) -> Vec<SwarmSum> {
    let mut joined = BTreeMap::<(String, u64, u64), Vec<(Hunt, Vec<Progress>)>>::new();
    for (hunt, rounds) in parts {
        joined
            .entry((hunt.floor.clone(), hunt.swarm, hunt.shard.n))
            .or_default()
            .push((hunt, rounds));
    }
    joined.into_iter().map(|((_, seed, of), parts)| sum_swarm(seed, of, parts)).collect()
}

fn sum_swarm(seed: u64, of: u64, mut parts: Vec<(Hunt, Vec<Progress>)>) -> SwarmSum {
    parts.sort_by_key(|(hunt, _)| hunt.shard.i);
    let mut sum = SwarmSum { seed, of, parts: parts.len() as u64, ..SwarmSum::default() };
    let (mut took, mut messages) = (Vec::new(), Vec::new());
    for (hunt, rounds) in parts {
        let mut part_ms = 0u64;
        let number = rounds.len() as u64;
        for round in rounds {
            sum.rounds += 1;
            sum.messages = sum.messages.saturating_add(round.messages);
            sum.exchanges = sum.exchanges.saturating_add(round.exchanges);
            sum.virtual_seconds = sum.virtual_seconds.saturating_add(round.virtual_seconds);
            part_ms = part_ms.saturating_add(round.took_ms);
            took.push(round.took_ms);
            messages.push(round.messages);
            sum.findings.extend(round.violation.map(|what| Finding {
                what,
                replay: format!("ulnet sim swarm{} --seed {} --one", hunt.option(), round.seed),
            }));
        }
        sum.by_part.push((hunt.shard.i, number, part_ms / 1000));
    }
    (sum.round_ms, sum.round_messages) = (Spread::of(took), Spread::of(messages));
    sum
}

fn sum_sweep(plan: &Plan, results: Vec<PlayResult>) -> SweepSum {
    // A play with two results counts once; a number that the sweep does not have counts as none.
    let results = results.into_iter().filter(|r| r.at < plan.plays());
    let plays: BTreeMap<u64, PlayResult> = results.map(|r| (r.at, r)).collect();
    let (mut settings, mut findings) = (Vec::new(), Vec::new());
    for n in 0..plan.settings() {
        let chosen = plan.setting(n);
        let own: Vec<&PlayResult> =
            plays.range(n * plan.seeds..(n + 1) * plan.seeds).map(|(_, r)| r).collect();
        for result in own.iter().filter(|r| !r.holds) {
            let set: String = chosen
                .iter()
                .map(|(p, v)| format!(" --set {}", word(&format!("{p}={v}"))))
                .collect();
            let seed = plan.seed.saturating_add(result.at % plan.seeds);
            findings.push(Finding {
                what: format!("{}: {}", shown(&chosen), result.missed.join(", ")),
                replay: format!("ulnet sim run {} --seed {seed}{set}", word(&plan.sweep)),
            });
        }
        let spread = |f: fn(&PlayResult) -> Option<u64>| {
            Spread::of(own.iter().filter_map(|r| f(r)).collect())
        };
        settings.push(SettingSum {
            setting: shown(&chosen),
            plays: own.len() as u64,
            held: own.iter().filter(|r| r.holds).count() as u64,
            errors: total(&own, |r| r.errors),
            retries: total(&own, |r| r.retries),
            resends: total(&own, |r| r.resends),
            gap: spread(|r| Some(r.gap_max)),
            stall_p99: spread(|r| Some(r.stall_p99)),
            recovery: spread(|r| r.recovery),
        });
    }
    let played = plays.len() as u64;
    SweepSum { scenario: plan.sweep.clone(), plays: plan.plays(), played, settings, findings }
}

/// A text as one word of a shell.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=%:,+@".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn total(results: &[&PlayResult], pick: fn(&PlayResult) -> u64) -> u64 {
    results.iter().fold(0, |sum: u64, r| sum.saturating_add(pick(r)))
}

/// The table of a sweep of which these are the results so far.
pub(super) fn table(plan: &Plan, results: Vec<PlayResult>) -> String {
    report(&Joined { swarms: Vec::new(), sweeps: vec![sum_sweep(plan, results)] })
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
        let (ms, messages) = (swarm.round_ms, swarm.round_messages);
        let _ = writeln!(
            text,
            "rounds       p50, p90, max: {}, {}, {} ms; {}, {}, {} messages",
            ms.p50, ms.p90, ms.max, messages.p50, messages.p90, messages.max
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
            "recov. max"
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
                if s.recovery.max == 0 { "-".to_owned() } else { span(s.recovery.max) }
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
        let name = |i: u64| format!("part {i}/{}", swarm.of);
        let parts = &swarm.by_part;
        let rounds: Vec<_> = parts.iter().map(|(i, n, _)| (name(*i), [*n as f64])).collect();
        page.bars(&Bars { title: "Rounds of each part", parts: &["rounds"], rows: &rounds });
        let time: Vec<_> = parts.iter().map(|(i, _, s)| (name(*i), [*s as f64])).collect();
        page.bars(&Bars { title: "Time of each part, s", parts: &["seconds"], rows: &time });
        let rows = [
            ("time, ms".to_owned(), swarm.round_ms.bars(1.0)),
            ("messages, thousands".to_owned(), swarm.round_messages.bars(1e3)),
        ];
        page.bars(&Bars { title: "Rounds", parts: &PARTS, rows: &rows });
        found(&mut page, &swarm.findings);
    }
    for sweep in &joined.sweeps {
        let plays = format!("{} of {}", sweep.played, sweep.plays);
        page.facts([("sweep", sweep.scenario.as_str()), ("plays", plays.as_str())]);
        let rows = |pick: fn(&SettingSum) -> Spread| {
            let rows = sweep.settings.iter().map(|s| (s.setting.clone(), pick(s).bars(1e6)));
            rows.collect::<Vec<_>>()
        };
        for (title, pick) in [
            ("Longest gap, ms", (|s| s.gap) as fn(&SettingSum) -> Spread),
            ("99th percentile of exchanges, ms", |s| s.stall_p99),
            ("Recovery after the last fault, ms", |s| s.recovery),
        ] {
            page.bars(&Bars { title, parts: &PARTS, rows: &rows(pick) });
        }
        found(&mut page, &sweep.findings);
    }
    page.finish()
}

fn found(page: &mut Page, findings: &[Finding]) {
    if !findings.is_empty() {
        page.facts(findings.iter().map(|f| (f.what.as_str(), f.replay.as_str())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_replay_command_are_quoted_where_a_shell_needs_it() {
        assert_eq!(word("tunables.retry_count=3"), "tunables.retry_count=3");
        assert_eq!(word("description=it's a test"), r"'description=it'\''s a test'");
    }

    #[test]
    fn percentiles_of_few_figures_are_the_figures_themselves() {
        assert_eq!(Spread::of(vec![]), Spread::default());
        assert_eq!(Spread::of(vec![7]), Spread { p50: 7, p90: 7, max: 7 });
        assert_eq!(Spread::of((1..=11).collect()), Spread { p50: 6, p90: 10, max: 11 });
    }
}
