//! `ulnet sim paper cabinets`: nineteen cabinets in three events, four arms and many seeds, what came of
//! each play, and whether it is what the paper's claims need.

use core::fmt;
use std::thread;

use clap::Args;
use lnet_sim::{ARMS, CabinetEvent, CabinetSize, EVENTS, SITE_HEAD, SiteRun, play_cabinets, unmet};

use super::Text;

#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// How many seeds each event of the nineteen cabinets is played with in each arm, and each site of `span`
    /// and row of `outages`, which have at least ten.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) seeds: u64,

    /// The first of the seeds of the nineteen cabinets; the others follow it.
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    seed: u64,

    /// How many clients the cabinets have; a tenth of the site without it.
    #[arg(long, value_name = "N", conflicts_with = "full", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Option<u32>,

    /// All 3,648 slots: 32 routers, the others clients; 32 targets on 8 servers.
    #[arg(long)]
    full: bool,

    /// One arm alone; may be given again.
    #[arg(long = "arm", value_name = "LETTER", value_parser = arm)]
    arms: Vec<usize>,

    /// One event alone: router-dies, router-far-side or link-event; may be given again.
    #[arg(long = "event", value_name = "NAME", value_parser = event)]
    events: Vec<CabinetEvent>,

    /// How many plays run beside each other.
    #[arg(long, value_name = "N", default_value = "1", value_parser = jobs)]
    jobs: usize,
}

/// The arms of an event with one seed.
pub(super) struct Runs {
    pub(super) event: CabinetEvent,
    pub(super) seed: u64,
    /// In the order of [`ARMS`]; `None`: not played.
    pub(super) arms: [Option<SiteRun>; 4],
}

/// An event in an arm with a seed.
#[derive(Clone, Copy)]
struct Play {
    event: CabinetEvent,
    seed: u64,
    /// Place in [`ARMS`].
    arm: usize,
}

/// A number of plays.
fn jobs(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=256).contains(n));
    number.ok_or_else(|| "expected 1 to 256".to_owned())
}

/// The place of an arm.
fn arm(text: &str) -> Result<usize, String> {
    let found = ARMS.iter().position(|arm| arm.name.eq_ignore_ascii_case(text));
    found.ok_or_else(|| "expected A, B, C or D".to_owned())
}

/// An event by the name of its file.
fn event(text: &str) -> Result<CabinetEvent, String> {
    let file = format!("scenarios/xc30-{text}.toml");
    let found = EVENTS.iter().find(|event| event.file == file);
    found.copied().ok_or_else(|| "expected router-dies, router-far-side or link-event".to_owned())
}

/// The least, the median and the most of some figures; a dash for none.
fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    let at = |n: usize| all.get(n).map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    [at(0), at(all.len() / 2), at(all.len().saturating_sub(1))].join(" ")
}

/// Plays beside each other.
fn beside(batch: &[Play], size: CabinetSize) -> Vec<Result<SiteRun, String>> {
    thread::scope(|scope| {
        let play = |play: &Play| {
            let play = *play;
            scope.spawn(move || play.run(size))
        };
        let threads: Vec<_> = batch.iter().map(play).collect();
        let joined = |thread: thread::ScopedJoinHandle<'_, Result<SiteRun, String>>| {
            thread.join().unwrap_or_else(|_| Err("a play has failed".to_owned()))
        };
        threads.into_iter().map(joined).collect()
    })
}

impl Options {
    fn size(&self) -> CabinetSize {
        match self.full {
            true => CabinetSize::FULL,
            false => {
                let tenth = CabinetSize::TENTH;
                CabinetSize { clients: self.clients.unwrap_or(tenth.clients), ..tenth }
            }
        }
    }

    /// Plays all; what came of them, and whether it is what must be.
    pub(super) fn play(&self, text: &mut Text) -> (Vec<Runs>, bool) {
        let size = self.size();
        text.line(&format!(
            "nineteen cabinets: {} clients and 5 that crash, {} routers, {} targets on {} servers; all but the \
             number of cabinets is assumed",
            size.clients, size.routers, size.targets, size.servers
        ));
        text.line(&format!("{:<32} {SITE_HEAD}", "event, arm, seed"));
        let plays = self.plays();
        let (mut all, mut holds) = (Vec::new(), true);
        let mut played = 0;
        for batch in plays.chunks(self.jobs) {
            for (play, run) in batch.iter().zip(beside(batch, size)) {
                match run {
                    Ok(run) => {
                        text.line(&format!("{:<32} {run}", play.to_string()));
                        play.keep(&mut all, run);
                    }
                    Err(why) => {
                        holds = false;
                        text.line(&format!("{play}: {why}"));
                    }
                }
                played += 1;
                let more = plays.get(played).is_some_and(|next| next.goes_with(play));
                let of_it = |runs: &&Runs| (runs.event, runs.seed) == (play.event, play.seed);
                if let Some(runs) = all.last().filter(of_it).filter(|_| !more) {
                    holds &= runs.judge(text);
                }
            }
        }
        for arm in &ARMS {
            text.line(&format!("{}  {}", arm.name, arm.what));
        }
        self.summary(text, &all);
        (all, holds)
    }

    /// What is played, in order.
    fn plays(&self) -> Vec<Play> {
        let arms = (0..ARMS.len()).filter(|n| self.arms.is_empty() || self.arms.contains(n));
        let arms: Vec<usize> = arms.collect();
        let wanted = |event: &CabinetEvent| self.events.is_empty() || self.events.contains(event);
        let mut plays = Vec::new();
        for event in EVENTS.into_iter().filter(wanted) {
            for seed in self.seed..self.seed + self.seeds {
                plays.extend(arms.iter().map(|&arm| Play { event, seed, arm }));
            }
        }
        plays
    }

    /// Each event and arm over all seeds.
    fn summary(&self, text: &mut Text, all: &[Runs]) {
        text.line("");
        text.line(&format!(
            "{:<32} {:>24} {:>26} {:>20}",
            format!("seeds: {}; least, median, most", self.seeds),
            "evicted",
            "longest I/O, s",
            "span, s"
        ));
        for event in &EVENTS {
            for (n, arm) in ARMS.iter().enumerate() {
                let runs = all.iter().filter(|runs| runs.event == *event);
                let runs = runs.filter_map(|runs| runs.arms.get(n)?.as_ref());
                let runs: Vec<&SiteRun> = runs.collect();
                if runs.is_empty() {
                    continue;
                }
                let of = |what: fn(&SiteRun) -> Option<f64>| {
                    spread(runs.iter().filter_map(|run| what(run)).collect())
                };
                text.line(&format!(
                    "{:<32} {:>24} {:>26} {:>20}",
                    format!("{}, {}", event.name, arm.name),
                    of(|run| Some(run.evicted as f64)),
                    of(|run| Some(run.stall.as_secs_f64())),
                    of(|run| run.span.map(|span| span.as_secs_f64())),
                ));
            }
        }
        text.line("span: from the event until the last client is back at its last target; the paper measured 140 s");
    }
}

impl fmt::Display for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arm = ARMS.get(self.arm).map_or("", |arm| arm.name);
        write!(f, "{}, {arm}, {}", self.event.name, self.seed)
    }
}

impl Play {
    fn run(self, size: CabinetSize) -> Result<SiteRun, String> {
        let arm = ARMS.get(self.arm).ok_or("no such arm")?;
        play_cabinets(&self.event, arm, size, self.seed)
    }

    /// Whether two are of the same event and seed.
    fn goes_with(&self, other: &Self) -> bool {
        (self.event, self.seed) == (other.event, other.seed)
    }

    /// Puts what came of it with the other arms.
    fn keep(&self, all: &mut Vec<Runs>, run: SiteRun) {
        let Self { event, seed, arm } = *self;
        if all.last().is_none_or(|last| (last.event, last.seed) != (event, seed)) {
            all.push(Runs { event, seed, arms: [const { None }; 4] });
        }
        if let Some(place) = all.last_mut().and_then(|last| last.arms.get_mut(arm)) {
            *place = Some(run);
        }
    }
}

impl Runs {
    /// Whether it is what must be; prints what is not.
    fn judge(&self, text: &mut Text) -> bool {
        let unmet = unmet(&self.event, &self.arms);
        for why in &unmet {
            text.line(&format!("{}, {}: MISSED  {why}", self.event.name, self.seed));
        }
        unmet.is_empty()
    }
}
