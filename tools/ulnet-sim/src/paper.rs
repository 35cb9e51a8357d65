//! `ulnet sim paper`: what the paper on time-outs of Lustre says, and what is played.

use std::io::Write as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lnet_sim::{
    ARMS, CABINET_HEAD, CabinetSize, EVENTS, LossRow, PaperRow, Unit, loss_sweep, paper_locks,
    paper_routers, paper_rpc, paper_sweeps, play_cabinets,
};
use lustre_tuning::EnqueueMin;
use lustre_tuning::log::Reader;

/// The seven lines of a console as the paper has them: their times, hosts and targets, in our words.
const CONSOLE: &str = include_str!("../../../fixtures/console/quiesce.log");

/// Phases of checks, and clients, that are played.
const PHASES: u32 = 1000;
const CLIENTS: u32 = 10_000;

/// Plays small worlds, each for one figure of the paper on time-outs of Lustre, and prints the table.
/// Exit status 1: a figure is not what it must be.
#[derive(Clone, Debug, Args)]
pub(super) struct Paper {
    /// One part of it alone.
    part: Option<Part>,

    /// How many seeds each event of the nineteen cabinets is played with in each arm.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,

    /// How many clients the cabinets have; a tenth of the site without it.
    #[arg(long, value_name = "N", default_value_t = CabinetSize::TENTH.clients, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formula and log lines.
    Tuning,
    /// LNet alone: pings of routers.
    Routers,
    /// The request layer.
    Rpc,
    /// Locks and evictions.
    Locks,
    /// Values that weigh one cost against another.
    Sweeps,
    /// Calls while 0 to 5 % of all messages are lost.
    Loss,
    /// Nineteen cabinets in three events and four arms; only if it is named.
    Cabinets,
}

/// Plays a table.
type Play = fn() -> Vec<PaperRow>;

impl Paper {
    /// Whether each figure is what it must be.
    pub(super) fn run(&self) -> bool {
        let wanted = |part| self.part.is_none_or(|one| one == part);
        let mut holds = true;
        let tables: [(Part, &str, Play); 5] = [
            (Part::Tuning, "tuning", tuning),
            (Part::Routers, "routers", || paper_routers(PHASES, CLIENTS)),
            (Part::Rpc, "requests", paper_rpc),
            (Part::Locks, "locks", paper_locks),
            (Part::Sweeps, "sweeps", paper_sweeps),
        ];
        let mut first = true;
        for (part, name, play) in tables {
            if !wanted(part) {
                continue;
            }
            let head = PaperRow::head();
            let gap = if core::mem::take(&mut first) { "" } else { "\n" };
            print(&format!("{gap}{name}{}\n", head.get(name.len()..).unwrap_or_default()));
            for row in play() {
                holds &= row.holds();
                print(&format!("{}\n", row.to_string().trim_end()));
            }
        }
        if wanted(Part::Loss) {
            print(&format!("{}{}\n", if first { "" } else { "\n" }, LossRow::HEAD));
            for row in loss_sweep() {
                print(&format!("{}\n", row.to_string().trim_end()));
            }
        }
        // Minutes of work: only if it is asked for.
        if self.part == Some(Part::Cabinets) {
            holds &= self.cabinets();
        }
        holds
    }

    /// The site in its events; whether no client that lives was evicted in arms C and D.
    fn cabinets(&self) -> bool {
        let names = (self.clients * 3 / 4).max(1);
        let size = CabinetSize { clients: self.clients, names };
        print(&format!(
            "nineteen cabinets: {} clients, 4 routers, 2 servers; all but the number of cabinets is \
             assumed\n{:<32} {CABINET_HEAD}\n",
            size.clients, "event, arm, seed"
        ));
        let mut holds = true;
        for event in &EVENTS {
            for arm in &ARMS {
                for seed in 1..=self.seeds {
                    match play_cabinets(event, arm, size, seed) {
                        Ok(run) => {
                            let must = matches!(arm.name, "C" | "D");
                            let missed = must && (run.evicted > 0 || run.dead_left > 0);
                            holds &= !missed;
                            let mark = if missed { "  MISSED" } else { "" };
                            let what = format!("{}, {}, {seed}", event.name, arm.name);
                            print(&format!("{what:<32} {run}{mark}\n"));
                        }
                        Err(why) => {
                            holds = false;
                            print(&format!("{}, {}, {seed}: {why}\n", event.name, arm.name));
                        }
                    }
                }
            }
        }
        for arm in &ARMS {
            print(&format!("{}  {}\n", arm.name, arm.what));
        }
        holds
    }
}

/// To standard output; a reader that has gone away is no error of ours.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
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
