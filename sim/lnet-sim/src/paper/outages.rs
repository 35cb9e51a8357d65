//! Outages at random moments and places, none longer than 100 s and none before the last one is over for
//! good: a site with the values that the paper recommends (PA-004), and with one of them left out at a time
//! (PA-166). `ulnet sim paper outages` prints it.

use core::fmt::{self, Write as _};
use core::time::Duration;

use lnet_scenario::Scenario;
use lnet_types::Prng;

use super::cabinets::{CabinetSize, EVENTS, FOUND_LATE, sized};
use super::watch::{SiteRun, watch_site};

/// Clients of the site.
const CLIENTS: u32 = 12;
/// Nodes that crash in the scenarios of the site, and here do not.
const OTHERS: u32 = 5;
/// The longest outage, seconds.
const LONGEST: u64 = 100;
/// From the end of an outage to the beginning of the next one, seconds, and up to a hundred more: a request
/// that was lost at the end of one is answered by then.
const REST: u64 = 300;
/// The last outage begins before this, seconds.
const UNTIL: u64 = 1600;

/// What is left out of the recommendations.
type LeftOut = (&'static str, &'static [(&'static str, &'static str)]);

/// Nothing first.
const LEFT_OUT: [LeftOut; 5] = [
    ("nothing", &[]),
    ("callbacks sent again", &[("rpc.ast_resend", "false")]),
    ("ldlm_enqueue_min 260: 100", &[("rpc.ldlm_enqueue_min", "100s")]),
    ("fast_reconnect", &[("net.gni.fast_reconnect", "false")]),
    ("routers found dead soon", FOUND_LATE),
];

/// The site with something left out, in some worlds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageRow {
    /// What is left out.
    pub left_out: &'static str,
    /// Outages of all worlds together.
    pub outages: usize,
    /// One play for each seed.
    pub runs: Vec<SiteRun>,
}

impl OutageRow {
    /// What stands above the columns of its text.
    pub const HEAD: &'static str = "left out                    outages  evicted   failed  longest I/O   I/O of one lock  connections made again";

    /// Clients that were evicted.
    pub fn evicted(&self) -> usize {
        self.runs.iter().map(|run| run.evicted).sum()
    }

    /// Locks and I/O that failed.
    pub fn failed(&self) -> usize {
        self.runs.iter().map(|run| run.failed).sum()
    }

    /// The longest I/O.
    pub fn longest(&self) -> Duration {
        self.runs.iter().map(|run| run.stall).max().unwrap_or_default()
    }

    /// What the I/O of one lock has taken in the mean.
    pub fn mean(&self) -> Duration {
        let locks: u64 = self.runs.iter().map(|run| run.granted).sum();
        let all: Duration = self.runs.iter().map(|run| run.io).sum();
        all.checked_div(u32::try_from(locks).unwrap_or(u32::MAX)).unwrap_or_default()
    }
}

impl fmt::Display for OutageRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reconnects: usize = self.runs.iter().map(|run| run.reconnects).sum();
        write!(
            f,
            "{:<26}  {:>7}  {:>7}  {:>7}  {:>9.1} s  {:>13.1} ms  {reconnects:>22}",
            self.left_out,
            self.outages,
            self.evicted(),
            self.failed(),
            self.longest().as_secs_f64(),
            self.mean().as_secs_f64() * 1000.0,
        )
    }
}

/// Outages of a world, as a scenario has them, and how many.
fn outages(seed: u64) -> (String, usize) {
    let mut rng = Prng::new(seed);
    let (mut text, mut count, mut at) = (String::new(), 0, LONGEST);
    while at < UNTIL {
        let span = 5 + rng.below(LONGEST - 4);
        let one_of =
            |rng: &mut Prng, what: &str, n| format!("on = \"{what}-{}\"", rng.below(n) + 1);
        let what = match rng.below(7) {
            0 => "kind = \"cut\"\n".to_owned() + &one_of(&mut rng, "router", 4),
            1 => "kind = \"cut\"\n".to_owned() + &one_of(&mut rng, "client", CLIENTS.into()),
            2 => "kind = \"cut\"\n".to_owned() + &one_of(&mut rng, "server", 2),
            3 => "kind = \"kill\"\n".to_owned() + &one_of(&mut rng, "router", 4),
            4 => "kind = \"partition\"\nsides = [[\"client\"], [\"router\"]]".to_owned(),
            5 => "kind = \"quiesce\"".to_owned(),
            _ => "kind = \"loss\"\nshare = \"20%\"\n".to_owned() + &one_of(&mut rng, "router", 4),
        };
        let _ = write!(text, "[[fault]]\nat = \"{at}s\"\nfor = \"{span}s\"\n{what}\n\n");
        count += 1;
        at += span + REST + rng.below(LONGEST);
    }
    (text, count)
}

/// A world with something left out.
fn world(changes: &[(&str, &str)], faults: &str) -> Result<Scenario, String> {
    let size = CabinetSize { clients: CLIENTS, ..CabinetSize::TENTH };
    let [event, ..] = &EVENTS;
    let (site, _) = event.text.split_once("[[fault]]").ok_or("a text without faults")?;
    let mut changes = changes.to_vec();
    changes.extend([("duration", "\"2300s\""), ("workload.0.until", "\"2000s\"")]);
    sized(event.file, &format!("{site}{faults}"), &changes, size)
}

/// The sweep, each row with this many worlds, the same ones.
///
/// # Errors
/// A scenario that does not fit; a test reads each.
pub fn outage_sweep(
    seeds: u64,
    mut each: impl FnMut(&OutageRow),
) -> Result<Vec<OutageRow>, String> {
    LEFT_OUT
        .iter()
        .map(|(left_out, changes)| {
            let mut row = OutageRow { left_out, outages: 0, runs: Vec::new() };
            for seed in 1..=seeds {
                let (faults, count) = outages(seed);
                row.outages += count;
                row.runs.push(watch_site(world(changes, &faults)?, seed, CLIENTS + OTHERS)?);
            }
            each(&row);
            Ok(row)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pa004_outages_of_100_s_evict_no_client_with_what_the_paper_recommends() {
        let rows = outage_sweep(6, |row| println!("{row}")).unwrap();
        let [all, resent, timer, ..] = rows.as_slice() else { panic!("{rows:?}") };
        assert!(all.outages >= 20, "{all}");
        assert_eq!((all.evicted(), all.failed()), (0, 0), "{all}");
        // Nor would it be so without them.
        assert!(resent.evicted() > 0 && timer.evicted() > 0, "{resent}\n{timer}");
    }
}
