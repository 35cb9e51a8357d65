//! `ulnet sim paper`: what the paper on time-outs of Lustre says, and what is played. `cabinets.rs` has its
//! site, `page.rs` the page with time lines.

mod cabinets;
mod page;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lnet_sim::{
    LossRow, OutageRow, PaperRow, SpanRow, Unit, loss_sweep, not_rising, outage_sweep,
    paper_drivers, paper_locks, paper_routers, paper_rpc, paper_sweeps, span_sweep,
};
use lustre_tuning::EnqueueMin;
use lustre_tuning::log::Reader;

/// The seven lines of a console as the paper has them: their times, hosts and targets, in our words.
const CONSOLE: &str = include_str!("../../../../fixtures/console/quiesce.log");

/// Phases of checks, and clients, that are played.
const PHASES: u32 = 1000;
const CLIENTS: u32 = 10_000;

/// Least seeds for each site of the sweep of spans: single plays differ by more than neighbours do.
const SPAN_SEEDS: u64 = 10;
/// Least worlds of random outages for each row.
const OUTAGE_SEEDS: u64 = 10;

/// Plays small worlds, each for one figure of the paper on time-outs of Lustre, and the site of the paper
/// at a tenth of its size, and prints the table. Exit status 1: a figure is not what it must be.
#[derive(Clone, Debug, Args)]
pub(super) struct Paper {
    /// One part of it alone.
    part: Option<Part>,

    #[command(flatten)]
    cabinets: cabinets::Options,

    /// Write a page with the tables and with time lines of what was played to this file. It needs
    /// nothing from outside.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formula and log lines.
    Tuning,
    /// LNet alone: pings of routers.
    Routers,
    /// Drivers below LNet: idle connections, quiesces.
    Drivers,
    /// The request layer.
    Rpc,
    /// Locks and evictions.
    Locks,
    /// Values that weigh one cost against another.
    Sweeps,
    /// Calls while 0 to 5 % of all messages are lost.
    Loss,
    /// How long clients need to reconnect after quiesces, by clients, targets and file systems.
    Span,
    /// Random outages, with what the paper recommends and with one value of that left out.
    Outages,
    /// Nineteen cabinets in three events and four arms.
    Cabinets,
}

/// Plays a table.
type Play = fn() -> Vec<PaperRow>;

/// A table that was played.
struct Table {
    name: &'static str,
    rows: Vec<PaperRow>,
}

/// What is printed, and kept for the page.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        print(&format!("{line}\n"));
        self.0 += line;
        self.0.push('\n');
    }

    /// A gap before a table that is not the first one.
    fn gap(&mut self) {
        if !self.0.is_empty() {
            self.line("");
        }
    }
}

impl Paper {
    /// Whether each figure is what it must be.
    ///
    /// # Errors
    /// The page can't be written.
    pub(super) fn run(&self) -> anyhow::Result<bool> {
        let wanted = |part| self.part.is_none_or(|one| one == part);
        let mut holds = true;
        let plays: [(Part, &str, Play); 6] = [
            (Part::Tuning, "tuning", tuning),
            (Part::Routers, "routers", || paper_routers(PHASES, CLIENTS)),
            (Part::Drivers, "drivers", paper_drivers),
            (Part::Rpc, "requests", paper_rpc),
            (Part::Locks, "locks", paper_locks),
            (Part::Sweeps, "sweeps", paper_sweeps),
        ];
        let mut text = Text::default();
        let mut tables = Vec::new();
        for (part, name, play) in plays {
            if !wanted(part) {
                continue;
            }
            let head = PaperRow::head();
            text.gap();
            text.line(&format!("{name}{}", head.get(name.len()..).unwrap_or_default()));
            let rows = play();
            for row in &rows {
                holds &= row.holds();
                text.line(&row.to_string());
            }
            tables.push(Table { name, rows });
        }
        if wanted(Part::Loss) {
            text.gap();
            text.line("loss: calls while a share of all messages is lost");
            text.line(LossRow::HEAD);
            for row in loss_sweep() {
                text.line(&row.to_string());
            }
        }
        if wanted(Part::Span) {
            text.gap();
            holds &= span(&mut text, self.cabinets.seeds.max(SPAN_SEEDS));
        }
        if wanted(Part::Outages) {
            text.gap();
            holds &= outages(&mut text, self.cabinets.seeds.max(OUTAGE_SEEDS));
        }
        let mut site = Vec::new();
        if wanted(Part::Cabinets) {
            text.gap();
            let (all, met) = self.cabinets.play(&mut text);
            holds &= met;
            site = all;
        }
        if let Some(file) = &self.html {
            std::fs::write(file, page::page(&text.0, &tables, &site))
                .map_err(|e| anyhow::anyhow!("can't write {}: {e}", file.display()))?;
        }
        Ok(holds)
    }
}

/// To standard output; a reader that has gone away is no error of ours.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The sweep of sites; whether the span rises with each number.
fn span(text: &mut Text, seeds: u64) -> bool {
    text.line("span: from two quiesces until the last client is back at its last target, arm C");
    text.line(SpanRow::HEAD);
    match span_sweep(seeds, |row| text.line(&row.to_string())) {
        Ok(rows) => {
            let flat = not_rising(&rows);
            for name in &flat {
                text.line(&format!("MISSED  with more {name} the span does not rise"));
            }
            flat.is_empty()
        }
        Err(why) => {
            text.line(&why);
            false
        }
    }
}

/// The sweep of random outages; whether what the paper recommends evicts no client.
fn outages(text: &mut Text, seeds: u64) -> bool {
    text.line(&format!(
        "outages: {seeds} worlds of random outages of 5 to 100 s, with what the paper recommends"
    ));
    text.line(OutageRow::HEAD);
    match outage_sweep(seeds, |row| text.line(&row.to_string())) {
        Ok(rows) => {
            let all = rows.first();
            let holds = all.is_some_and(|row| row.evicted() == 0 && row.failed() == 0);
            if !holds {
                text.line("MISSED  with nothing left out clients are evicted, or locks fail");
            }
            holds
        }
        Err(why) => {
            text.line(&why);
            false
        }
    }
}

/// Nothing is played: what the formula and the analyser say.
fn tuning() -> Vec<PaperRow> {
    let mut rows: Vec<PaperRow> = [
        ("ldlm_enqueue_min, at_min 40, quiesce 140", "260 s", 40, 140),
        ("ldlm_enqueue_min, at_min 40, no quiesce", "160 s", 40, 0),
        ("ldlm_enqueue_min, at_min 5, no quiesce", "20 s", 5, 0),
        ("ldlm_enqueue_min, at_min 5, quiesce 60", "75 s", 5, 60),
        ("ldlm_enqueue_min, at_min 5, quiesce 140", "155 s", 5, 140),
        ("ldlm_enqueue_min, at_min 40, quiesce 40", "160 s", 40, 40),
        ("ldlm_enqueue_min, at_min 100, quiesce 60", "400 s", 100, 60),
    ]
    .into_iter()
    .map(|(what, paper, at_min, quiesce)| {
        let played = EnqueueMin::of(at_min, at_min, quiesce, (at_min, 600)).ok();
        let played = played.map(|all| Duration::from_secs(all.seconds.into()));
        let said: f64 = paper.trim_end_matches(" s").parse().unwrap_or(f64::NAN);
        PaperRow::time(what, paper, played).near(said)
    })
    .collect();
    let mut reader = Reader::default();
    // Seven lines are far below the limit.
    let read = CONSOLE.lines().try_for_each(|line| reader.line(line));
    let report = reader.report();
    let quiesces = report.outages.iter().map(|outage| outage.quiesces.len()).sum::<usize>();
    let targets = report.outages.iter().map(|outage| outage.targets.len()).sum::<usize>();
    let count = |what, paper, n: usize, wanted: f64| PaperRow {
        played: read.ok().map(|()| n as f64),
        unit: Unit::Plain,
        wanted: Some((wanted, wanted)),
        ..PaperRow::time(what, paper, None)
    };
    let span = report.longest().map(Duration::from_secs_f64);
    rows.push(count("seven log lines: quiesces", "2", quiesces, 2.0));
    rows.push(count("seven log lines: restored targets", "3", targets, 3.0));
    rows.push(
        PaperRow::time("seven log lines: span", "125 s", span)
            .within(133.85, 133.95)
            .because("125 s does not follow from the lines: DEC-43"),
    );
    rows
}
