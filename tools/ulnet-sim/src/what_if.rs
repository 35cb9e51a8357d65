//! `ulnet sim what-if`: plays a world twice, healthy and with one thing going wrong, and puts side by
//! side what its users would notice: who stalls for how long, who notices when, what is lost. All
//! checkers look on. `what_if/watch.rs` plays and looks; here are the question and the answer.

mod watch;

use core::fmt::Write as _;
use core::time::Duration;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use lnet_scenario::{NodeId, Scenario, World, quoted, usual_work};
use lnet_sim::Summary;
use lnet_types::{Instant, Nid};

use self::watch::{Side, Stall};
use super::page;

/// What goes wrong in which world.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit status: 0, or 1 if a checker objects to what nodes do, or 2 for a \
                        world or a fault that can't be.")]
pub(super) struct WhatIf {
    /// The world: a scenario. Of its faults and bars nothing is played or asked.
    world: PathBuf,

    #[command(flatten)]
    wrong: Wrong,

    /// When it happens.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    at: String,

    /// How long it lasts; otherwise to the end.
    #[arg(long = "for", value_name = "TIME", conflicts_with = "quiesce")]
    lasts: Option<String>,

    /// Another seed than the world's.
    #[arg(long)]
    seed: Option<u64>,

    /// Write a page with charts of the world with the fault to this file, stalls beside those of
    /// the healthy one. It needs nothing from outside.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
struct Wrong {
    /// This node, or all nodes of a table, die.
    #[arg(long, value_name = "NODE")]
    kill: Option<String>,

    /// A black hole: nothing passes this rail any more, without a report: a NID, or `NODE/0`.
    #[arg(long, value_name = "NID")]
    cut: Option<String>,

    /// The whole fabric stands still for so long.
    #[arg(long, value_name = "TIME")]
    quiesce: Option<String>,
}

/// Rows of each list that are printed; of the others only how many they are.
const ROWS_MAX: usize = 40;

impl WhatIf {
    /// Plays both and prints; whether no checker objected.
    ///
    /// # Errors
    /// The world is none, or the fault can't be in it.
    pub(super) fn run(&self) -> anyhow::Result<bool> {
        let (healthy, faulty) = (Arc::new(self.scenario(false)?), Arc::new(self.scenario(true)?));
        let begins = faulty.faults.first().map_or(Duration::ZERO, |f| f.at);
        let begins = Instant::ZERO + begins;
        // The two have nothing to do with each other.
        let (sound, faulted) = std::thread::scope(|s| {
            let sound = s.spawn(|| watch::play(healthy.clone(), self.seed, begins));
            let faulted = watch::play(faulty.clone(), self.seed, begins);
            // It ends as this thread would: by a panic that is a defect of the simulator.
            (sound.join().unwrap_or_else(|e| std::panic::resume_unwind(e)), faulted)
        });
        let report = self.report(&faulty.world, &sound, &faulted);
        if let Some(path) = &self.html {
            let html = page::Run {
                title: &format!("{}: what if {}", faulty.name, self.fault_line()),
                facts: &[],
                report: &report,
                scenario: &faulty,
                course: &faulted.course,
                healthy: Some(&sound.course),
                lines: &faulted.lines,
            };
            super::write(path, &html.page())?;
        }
        super::print(&report);
        Ok(sound.violation.is_none() && faulted.violation.is_none())
    }

    /// The world with work to do, and with the fault.
    fn scenario(&self, faulty: bool) -> anyhow::Result<Scenario> {
        let file = self.world.display().to_string();
        let mut text =
            fs::read_to_string(&self.world).with_context(|| format!("can't read {file}"))?;
        // As it stands first, so that what is wrong with the file itself has its line.
        let plain = lnet_scenario::parse(&file, &text)?;
        if plain.workload.is_empty() {
            text.push_str(&usual_work(&plain.world));
        }
        let what = self.fault();
        if faulty {
            text.push_str(&what);
        }
        let mut all =
            lnet_scenario::parse(&format!("{file}, with{}", what.replace('\n', " ")), &text)?;
        // The one that was asked for is the last of the text.
        let own = plain.faults.len();
        all.faults.drain(..own);
        all.bars = lnet_scenario::Bars::default();
        Ok(all)
    }

    /// The fault as a scenario has it.
    fn fault(&self) -> String {
        let (kind, key, value) = match (&self.wrong.kill, &self.wrong.cut, &self.wrong.quiesce) {
            (Some(node), ..) => ("kill", "on", node),
            (_, Some(nid), _) => ("cut", "on", nid),
            (_, _, Some(time)) => ("quiesce", "for", time),
            (None, None, None) => return String::new(),
        };
        let (at, value) = (quoted(&self.at), quoted(value));
        let lasts = self.lasts.as_deref().map(|time| format!("for = {}\n", quoted(time)));
        let lasts = lasts.unwrap_or_default();
        format!("\n[[fault]]\nkind = \"{kind}\"\nat = {at}\n{key} = {value}\n{lasts}")
    }

    fn fault_line(&self) -> String {
        self.fault().replace("\n[[fault]]\n", "").trim_end().replace('\n', ", ")
    }

    fn report(&self, world: &World, sound: &Side, faulted: &Side) -> String {
        let mut text = String::new();
        // Writing to a string does not fail, here and below.
        let _ = writeln!(text, "what if      {}", self.fault_line());
        stalls(&mut text, world, sound, faulted);
        notices(&mut text, world, faulted);
        lost(&mut text, &faulted.summary);
        figures(&mut text, &sound.summary, &faulted.summary);
        for (name, side) in [("healthy", sound), ("with the fault", faulted)] {
            if let Some(violation) = &side.violation {
                let _ = writeln!(text, "VIOLATION    {name}: {violation}");
            }
        }
        for complaint in &faulted.summary.complaints {
            let _ = writeln!(text, "note         {complaint}");
        }
        let _ =
            writeln!(text, "replayed by  the same command with --seed {}", faulted.summary.seed);
        text
    }
}

/// Who waits longer than in the healthy run, or loses something.
fn stalls(text: &mut String, world: &World, sound: &Side, faulted: &Side) {
    let _ =
        writeln!(text, "\nWHO STALLS   (longest exchange from then on; healthy → with the fault)");
    let stalls = watch::stalls(sound, faulted);
    for Stall { from, to, before, after, failed } in stalls.iter().take(ROWS_MAX) {
        let name = world.name(NodeId(from.0));
        let to = owner(world, *to);
        let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
        let _ = writeln!(text, "  {name:<16} → {to:<16} {before:>12.1?} → {after:.1?}{failed}");
    }
    rest(text, stalls.len(), "no program");
    let _ = writeln!(text, "  {} of {} pairs", stalls.len(), faulted.watched.flows.len());
}

/// Who notices what first, and when.
fn notices(text: &mut String, world: &World, faulted: &Side) {
    let _ = writeln!(text, "\nWHO NOTICES  (after which time)");
    let mut all: Vec<_> = faulted.watched.noticed.iter().collect();
    all.sort_by_key(|((host, kind), (after, _))| (*after, *host, *kind));
    for ((host, _), (after, what)) in all.iter().take(ROWS_MAX) {
        let name = world.name(NodeId(host.0));
        let _ = writeln!(text, "  {name:<16} {after:>12.1?}  {what}");
    }
    rest(text, all.len(), "no node's suspicion, health or routes");
}

/// What is lost, and when all interfaces are healthy again.
fn lost(text: &mut String, faulted: &Summary) {
    let _ = writeln!(text, "\nWHAT IS LOST");
    let drops: Vec<String> = faulted.drops.iter().map(|(why, n)| format!("{n} {why}")).collect();
    let drops = if drops.is_empty() { String::new() } else { format!(" ({})", drops.join(", ")) };
    let dropped = faulted.drops.iter().map(|(_, n)| n).sum::<u64>();
    let (errors, retries) = (faulted.errors, faulted.retries);
    let _ = writeln!(text, "  {errors} exchanges, and {retries} were asked for again");
    let _ = writeln!(text, "  {dropped} messages dropped by nodes{drops}");
    let _ = match faulted.recovery {
        Some(0) if faulted.faults.iter().any(|f| f.ended) => {
            writeln!(text, "  all interfaces are healthy when it ends")
        }
        Some(ns) if faulted.faults.iter().any(|f| f.ended) => {
            writeln!(
                text,
                "  all interfaces are healthy {:.1?} after its end",
                Duration::from_nanos(ns)
            )
        }
        Some(_) => writeln!(text, "  all interfaces are healthy at the end"),
        None => writeln!(text, "  an interface is degraded at the end"),
    };
}

fn figures(text: &mut String, sound: &Summary, faulted: &Summary) {
    let _ = writeln!(text, "\nFIGURES      {:>14} {:>14}", "healthy", "with the fault");
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let drops = |s: &Summary| s.drops.iter().map(|(_, n)| n).sum::<u64>().to_string();
    type Figure<'a> = (&'a str, &'a dyn Fn(&Summary) -> String);
    let rows: [Figure<'_>; 9] = [
        ("exchanges done", &|s| s.completed.to_string()),
        ("  failed (lost)", &|s| s.errors.to_string()),
        ("stall p50", &|s| ms(s.stall_p50)),
        ("stall p99", &|s| ms(s.stall_p99)),
        ("stall max", &|s| ms(s.stall_max)),
        ("longest gap", &|s| ms(s.gap_max)),
        ("sent again", &|s| s.resends.to_string()),
        ("dropped", &drops),
        ("twice", &|s| s.duplicates.to_string()),
    ];
    for (name, of) in rows {
        let _ = writeln!(text, "  {name:<16}{:>9} {:>14}", of(sound), of(faulted));
    }
}

fn rest(text: &mut String, count: usize, none: &str) {
    let _ = match count.checked_sub(ROWS_MAX) {
        _ if count == 0 => writeln!(text, "  {none}"),
        Some(more) if more > 0 => writeln!(text, "  and {more} more"),
        _ => Ok(()),
    };
}

fn owner(world: &World, nid: Nid) -> String {
    world.rail_of(nid).map_or_else(|| nid.to_string(), |at| world.name(at.node))
}
