//! How the figures of a run are shown, and held against the bars.

use std::time::Duration;

use lnet_scenario::Scenario;
use serde::Serialize;

use crate::measure::Figures;
use crate::play::Over;

/// In which world a scenario is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayedIn {
    /// Hosts with real sockets.
    Hosts(Over),
    /// The simulator: see [`crate::simulate`].
    Simulator,
}

/// The figures of a scenario, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub scenario: String,
    /// `lnet`, `mptcp` or `simulated`.
    pub over: &'static str,
    /// One for each round, in order.
    pub rounds: Vec<Figures>,
    /// What missed a bar, over all rounds.
    pub misses: Vec<Miss>,
}

/// A bar that was missed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Miss {
    /// Which one.
    pub bar: &'static str,
    /// What was measured, at worst.
    pub measured: f64,
    /// What was allowed.
    pub allowed: f64,
}

impl Row {
    /// A row of rounds, judged.
    pub fn new(scenario: &Scenario, world: PlayedIn, rounds: Vec<Figures>) -> Self {
        let (over, misses) = match world {
            PlayedIn::Hosts(Over::Lnet) => ("lnet", misses(scenario, &rounds)),
            PlayedIn::Hosts(Over::Mptcp) => ("mptcp", misses(scenario, &rounds)),
            // The bars are for real sockets.
            PlayedIn::Simulator => ("simulated", Vec::new()),
        };
        Self { scenario: scenario.name.clone(), over, rounds, misses }
    }
}

/// The median over rounds of a figure.
pub(crate) fn median(rounds: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// What the rounds miss. Times are judged by the median round, so that one in which the machine was
/// busy does not decide; accounts by the sum of all.
pub fn misses(scenario: &Scenario, rounds: &[Figures]) -> Vec<Miss> {
    let bars = &scenario.bars;
    let mut out = Vec::new();
    let mut hold = |bar, measured: f64, allowed: f64| {
        if measured > allowed {
            out.push(Miss { bar, measured, allowed });
        }
    };
    let sum = |of: &dyn Fn(&Figures) -> u64| rounds.iter().map(of).sum::<u64>() as f64;
    hold("errors", sum(&|f| f.errors), bars.errors.unwrap_or(0) as f64);
    hold("duplicates", sum(&|f| f.duplicates), bars.duplicates.unwrap_or(0) as f64);
    hold("lost", sum(&|f| f.lost), 0.0);
    hold("corrupt", sum(&|f| f.corrupt), 0.0);
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    if let Some(most) = bars.sockets.stall_max {
        hold("stall max ms", median(rounds, |f| f.stall.max), ms(most));
    }
    if let Some(most) = bars.sockets.stall_per_minute {
        hold("stall ms/min", median(rounds, |f| f.stall_per_minute.unwrap_or(0.0)), ms(most));
    }
    if let Some(most) = bars.sockets.back_max {
        hold("back ms", median(rounds, |f| f.back.unwrap_or(f64::INFINITY)), ms(most));
    }
    let times = |percent: u32| f64::from(percent) / 100.0;
    if let Some(most) = bars.sockets.p50_percent {
        hold("p50 after 1 s, times", median(rounds, |f| f.later.p50 / f.healthy.p50), times(most));
    }
    if let Some(most) = bars.sockets.p99_percent {
        hold("p99 after 1 s, times", median(rounds, |f| f.later.p99 / f.healthy.p99), times(most));
    }
    out
}

/// Which errors they were: `110×3`.
fn kinds(rounds: &[Figures]) -> String {
    let mut all = std::collections::BTreeMap::<i32, u64>::new();
    for (errno, count) in rounds.iter().flat_map(|f| &f.errnos) {
        *all.entry(*errno).or_default() += count;
    }
    let name = |(errno, count): (i32, u64)| format!(" {}×{count}", lnet_types::Errno(errno));
    all.into_iter().map(name).collect()
}

/// The table, in Markdown: medians over rounds of times, sums of accounts.
pub fn table(rows: &[Row]) -> String {
    use std::fmt::Write as _;
    let mut out = String::from(
        "| scenario | over | healthy p50/p99/max ms | stall p50/p99/max ms | after 1 s p50/p99 ms \
         | back ms | errors (no way, dawn) | dup | lost | MB/s healthy/fault | resends | late ms | bars |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for row in rows {
        let m = |of: &dyn Fn(&Figures) -> f64| median(&row.rounds, of);
        let sum = |of: &dyn Fn(&Figures) -> u64| row.rounds.iter().map(of).sum::<u64>();
        let back = match row.rounds.first().and_then(|f| f.back) {
            Some(_) => format!("{:.0}", m(&|f| f.back.unwrap_or(f64::INFINITY))),
            None => "–".to_owned(),
        };
        let mut verdict: Vec<String> = row
            .misses
            .iter()
            .map(|miss| format!("{} {:.1} > {:.1}", miss.bar, miss.measured, miss.allowed))
            .collect();
        if verdict.is_empty() {
            verdict.push("met".to_owned());
        }
        let per_minute = match row.rounds.first().and_then(|f| f.stall_per_minute) {
            Some(_) => format!(
                " ({:.0}/min, healthy {:.0})",
                m(&|f| f.stall_per_minute.unwrap_or(0.0)),
                m(&|f| f.stall_per_healthy_minute)
            ),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {:.2} / {:.1} / {:.1} | {:.2} / {:.1} / {:.1}{per_minute} | {:.2} / {:.1} | {back} \
             | {} ({}, {}){} | {}{} | {} | {:.1} / {:.1} | {} | {:.1} | {} |",
            row.scenario,
            row.over,
            m(&|f| f.healthy.p50),
            m(&|f| f.healthy.p99),
            m(&|f| f.healthy.max),
            m(&|f| f.stall.p50),
            m(&|f| f.stall.p99),
            m(&|f| f.stall.max),
            m(&|f| f.later.p50),
            m(&|f| f.later.p99),
            sum(&|f| f.errors),
            sum(&|f| f.excused),
            sum(&|f| f.dawn),
            kinds(&row.rounds),
            sum(&|f| f.duplicates),
            match sum(&|f| f.again) {
                0 => String::new(),
                n => format!(" (+{n} after restart)"),
            },
            sum(&|f| f.lost),
            m(&|f| f.goodput_healthy),
            m(&|f| f.goodput),
            sum(&|f| f.resends),
            m(&|f| f.late),
            verdict.join("; "),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(bars: &str) -> Scenario {
        let text = format!(
            "name = \"t\"\n[[net]]\nname = \"tcp\"\n[[node]]\nname = \"a\"\nrails = [\"tcp\"]\n{bars}"
        );
        lnet_scenario::parse("t", &text).unwrap()
    }

    #[test]
    fn accounts_are_summed_over_rounds_and_times_are_judged_by_the_median_round() {
        let of = scenario("[bars]\nerrors = 1\n[bars.sockets]\nstall_max = \"100ms\"\n");
        let mut rounds = vec![Figures::default(); 3];
        for (round, max) in rounds.iter_mut().zip([5000.0, 20.0, 90.0]) {
            round.stall.max = max;
        }
        assert_eq!(misses(&of, &rounds), []);
        rounds[1].stall.max = 101.0;
        rounds[0].errors = 1;
        rounds[2].errors = 1;
        rounds[2].lost = 1;
        // A request without more time than the bar allows has no promise.
        rounds[1].dawn = 100;
        let missed: Vec<&str> = misses(&of, &rounds).iter().map(|miss| miss.bar).collect();
        assert_eq!(missed, ["errors", "lost", "stall max ms"]);
    }

    #[test]
    fn a_reply_that_never_comes_back_misses_the_bar() {
        let of = scenario("[bars.sockets]\nback_max = \"300ms\"\n");
        assert_eq!(misses(&of, &[Figures::default()]).len(), 1);
        let back = Figures { back: Some(299.0), ..Figures::default() };
        assert_eq!(misses(&of, &[back]), []);
    }
}
