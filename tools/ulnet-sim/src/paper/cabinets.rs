//! `ulnet sim paper cabinets`: nineteen cabinets in three events, four arms and many seeds, what came of
//! each play, and whether it is what the paper's claims need.

use std::thread;

use clap::Args;
use lnet_sim::{ARMS, CabinetEvent, CabinetSize, EVENTS, SITE_HEAD, SiteRun, play_cabinets, unmet};

use super::Text;

#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// How many seeds each event of the nineteen cabinets is played with in each arm, and each site of
    /// `span`.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) seeds: u64,

    /// How many clients the cabinets have; a tenth of the site without it.
    #[arg(long, value_name = "N", conflicts_with = "full", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Option<u32>,

    /// All 3,648 slots: 32 routers, the others clients; 32 targets on 8 servers.
    #[arg(long)]
    full: bool,

    /// How many plays run beside each other.
    #[arg(long, value_name = "N", default_value = "1", value_parser = jobs)]
    jobs: usize,
}

/// The arms of an event with one seed.
pub(super) struct Runs {
    pub(super) event: CabinetEvent,
    pub(super) seed: u64,
    /// In the order of [`ARMS`].
    pub(super) arms: [SiteRun; 4],
}

/// A number of plays.
fn jobs(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=256).contains(n));
    number.ok_or_else(|| "expected 1 to 256".to_owned())
}

/// The least, the median and the most of some figures; a dash for none.
fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    let at = |n: usize| all.get(n).map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    [at(0), at(all.len() / 2), at(all.len().saturating_sub(1))].join(" ")
}

/// Plays beside each other.
fn beside(batch: &[(CabinetEvent, u64)], size: CabinetSize) -> Vec<Result<Runs, String>> {
    thread::scope(|scope| {
        let play = |(event, seed): &(CabinetEvent, u64)| {
            let (event, seed) = (*event, *seed);
            scope.spawn(move || Runs::play(event, seed, size))
        };
        let threads: Vec<_> = batch.iter().map(play).collect();
        let joined = |thread: thread::ScopedJoinHandle<'_, Result<Runs, String>>| {
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
        let plays =
            EVENTS.iter().flat_map(|event| (1..=self.seeds).map(move |seed| (*event, seed)));
        let plays: Vec<(CabinetEvent, u64)> = plays.collect();
        let (mut all, mut holds) = (Vec::new(), true);
        for batch in plays.chunks(self.jobs) {
            for played in beside(batch, size) {
                match played {
                    Ok(runs) => {
                        holds &= runs.print(text);
                        all.push(runs);
                    }
                    Err(why) => {
                        holds = false;
                        text.line(&why);
                    }
                }
            }
        }
        for arm in &ARMS {
            text.line(&format!("{}  {}", arm.name, arm.what));
        }
        self.summary(text, &all);
        (all, holds)
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
                let of = |what: fn(&SiteRun) -> Option<f64>| {
                    let runs = all.iter().filter(|runs| runs.event == *event);
                    spread(runs.filter_map(|runs| runs.arms.get(n).and_then(what)).collect())
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

impl Runs {
    fn play(event: CabinetEvent, seed: u64, size: CabinetSize) -> Result<Self, String> {
        let [a, b, c, d] = ARMS.each_ref().map(|arm| {
            play_cabinets(&event, arm, size, seed)
                .map_err(|why| format!("{}, {}, {seed}: {why}", event.name, arm.name))
        });
        Ok(Self { event, seed, arms: [a?, b?, c?, d?] })
    }

    /// Its lines; whether it is what must be.
    fn print(&self, text: &mut Text) -> bool {
        let Self { event, seed, arms } = self;
        for (arm, run) in ARMS.iter().zip(arms) {
            let what = format!("{}, {}, {seed}", event.name, arm.name);
            text.line(&format!("{what:<32} {run}"));
        }
        let unmet = unmet(event, arms);
        for why in &unmet {
            text.line(&format!("{}, {seed}: MISSED  {why}", event.name));
        }
        unmet.is_empty()
    }
}
