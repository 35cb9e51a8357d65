//! One scenario in two worlds: figures of real sockets and of the simulator beside each other, and
//! where they differ by more than they may.

use std::fmt::Write as _;

use crate::measure::Figures;
use crate::table::{Row, median};

/// The two worlds may differ by this factor.
const FACTOR: f64 = 1.5;
/// Differences of times below that are those of a machine, milliseconds; so are those below the longest
/// wait that it shows without a fault.
const NOISE: f64 = 10.0;

/// Both worlds' figures of one scenario, one for each round.
#[derive(Clone, Copy, Debug)]
struct Beside<'a> {
    scenario: &'a str,
    real: &'a [Figures],
    simulated: &'a [Figures],
}

/// A time, as both worlds have it.
#[derive(Clone, Copy, Debug)]
struct Times {
    what: &'static str,
    real: Option<f64>,
    simulated: Option<f64>,
}

impl Times {
    /// Whether the worlds differ by more than they may.
    fn differ(&self, noise: f64) -> bool {
        match (self.real, self.simulated) {
            (Some(a), Some(b)) => (a - b).abs() > noise && a.max(b) > FACTOR * a.min(b),
            (None, None) => false,
            _ => true,
        }
    }

    /// `real / simulated`.
    fn show(&self) -> String {
        let one = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |t| format!("{t:.0}"));
        format!("{} / {}", one(self.real), one(self.simulated))
    }
}

impl Beside<'_> {
    fn times(&self) -> [Times; 3] {
        // Absent in half of the rounds and more: absent.
        let of = |rounds: &[Figures], time: &dyn Fn(&Figures) -> Option<f64>| {
            let worst = |f: &Figures| time(f).unwrap_or(f64::INFINITY);
            Some(median(rounds, worst)).filter(|t| t.is_finite() && !rounds.is_empty())
        };
        let both = |what, time: &dyn Fn(&Figures) -> Option<f64>| Times {
            what,
            real: of(self.real, time),
            simulated: of(self.simulated, time),
        };
        [
            both("noticing", &|f| f.noticed),
            both("longest stall", &|f| Some(f.stall.max)),
            both("stall per minute", &|f| f.stall_per_minute),
        ]
    }
}

/// The table, in Markdown: medians over rounds of times and resends, sums of errors. Times in
/// milliseconds, the real world's first.
pub(crate) fn beside(rows: &[Row]) -> String {
    let mut out = String::from(
        "| scenario | noticed ms | longest stall ms | stall ms/min | resends | errors | differ in |\n\
         |---|--:|--:|--:|--:|--:|---|\n",
    );
    for real in rows.iter().filter(|row| row.over == "lnet") {
        let other = |row: &&Row| row.over == "simulated" && row.scenario == real.scenario;
        let Some(simulated) = rows.iter().find(other) else { continue };
        let row =
            Beside { scenario: &real.scenario, real: &real.rounds, simulated: &simulated.rounds };
        let times = row.times();
        let [noticed, stall, per_minute] = &times;
        let noise = median(row.real, |f| f.healthy.max).max(NOISE);
        let differ: Vec<&str> = times.iter().filter(|t| t.differ(noise)).map(|t| t.what).collect();
        let resends = |rounds: &[Figures]| median(rounds, |f| f.resends as f64);
        let errors =
            |rounds: &[Figures]| rounds.iter().map(|f| f.errors + f.excused + f.dawn).sum::<u64>();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.0} / {:.0} | {} / {} | {} |",
            row.scenario,
            noticed.show(),
            stall.show(),
            per_minute.show(),
            resends(row.real),
            resends(row.simulated),
            errors(row.real),
            errors(row.simulated),
            if differ.is_empty() { "–".to_owned() } else { differ.join(", ") },
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Spread;

    fn figures(noticed: Option<f64>, stall: f64) -> Figures {
        let stall = Spread { max: stall, ..Spread::default() };
        Figures { noticed, stall, ..Figures::default() }
    }

    #[test]
    fn worlds_differ_beyond_the_factor_unless_the_difference_is_noise() {
        let row = |real, simulated| {
            let row = |over, figures| Row {
                scenario: "s".to_owned(),
                over,
                rounds: vec![figures],
                misses: Vec::new(),
            };
            beside(&[row("lnet", real), row("simulated", simulated)])
                .lines()
                .last()
                .unwrap()
                .to_owned()
        };
        let same = row(figures(Some(60.0), 70.0), figures(Some(50.0), 104.0));
        assert_eq!(same, "| s | 60 / 50 | 70 / 104 | – / – | 0 / 0 | 0 / 0 | – |");
        let noise = row(figures(Some(2.0), 9.0), figures(Some(11.0), 1.0));
        assert!(noise.ends_with("| – |"), "{noise}");
        let others = row(figures(Some(76.0), 70.0), figures(Some(50.0), 106.0));
        assert!(others.ends_with("| noticing, longest stall |"), "{others}");
        let mut restless = figures(Some(76.0), 70.0);
        restless.healthy.max = 40.0;
        let machine = row(restless, figures(Some(50.0), 106.0));
        assert!(machine.ends_with("| – |"), "{machine}");
        let absent = row(figures(None, 70.0), figures(Some(50.0), 70.0));
        assert!(absent.ends_with("| noticing |"), "{absent}");
    }
}
