//! What the paper on time-outs of Lustre says, played: small worlds in virtual time, each with the one
//! figure that it is there for. Held by tests; `ulnet sim paper` prints it.
//!
//! `cabinets.rs` has the whole site, `span.rs` how long clients of it need to reconnect, `outages.rs` what
//! outages at random moments cost it, `site.rs` any site before and after an advice (`watch.rs` counts what
//! events cost all of these), `rpc.rs` the request layer, `locks.rs` locks and evictions (its worlds stand in
//! `stage.rs`), `routers.rs` LNet alone, `drivers.rs` the drivers below it.

mod cabinets;
mod drivers;
mod locks;
mod outages;
mod routers;
mod rpc;
mod site;
mod span;
mod stage;
mod sweeps;
mod watch;

use core::fmt;
use core::time::Duration;

pub use cabinets::{ARMS, Arm, CabinetEvent, CabinetSize, EVENTS, cabinets, play_cabinets, unmet};
pub use drivers::paper_drivers;
pub use locks::paper_locks;
pub use outages::{OutageRow, outage_sweep};
pub use routers::paper_routers;
pub use rpc::paper_rpc;
pub use site::{Proof, ProofEvent, prove};
pub use span::{SpanRow, not_rising, span_sweep};
pub use sweeps::paper_sweeps;
pub use watch::{SITE_HEAD, SiteRun, SiteSecond};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing that has a name.
    Plain,
    /// Seconds.
    Seconds,
    /// Evictions of clients that live.
    Evictions,
    /// Pings a second.
    Pings,
    /// So many times as much.
    Times,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperRow {
    /// What is measured.
    pub what: &'static str,
    /// What the paper says.
    pub paper: &'static str,
    /// What was played; `None`: it did not happen.
    pub played: Option<f64>,
    /// What the figure counts.
    pub unit: Unit,
    /// From where to where the figure must be; `None`: it is there to be compared with others.
    pub wanted: Option<(f64, f64)>,
    /// Why it may differ.
    pub note: &'static str,
    /// What happened when, in order; empty for a figure that is no course of events.
    pub moments: Vec<Moment>,
}

/// Something that happened in the play of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// When, from the beginning of what is measured.
    pub at: Duration,
    /// What.
    pub what: &'static str,
}

impl PaperRow {
    /// A time.
    pub fn time(what: &'static str, paper: &'static str, played: Option<Duration>) -> Self {
        let played = played.map(|d| d.as_secs_f64());
        Self {
            what,
            paper,
            played,
            unit: Unit::Seconds,
            wanted: None,
            note: "",
            moments: Vec::new(),
        }
    }

    /// A number of evictions.
    fn evictions(what: &'static str, paper: &'static str, n: usize) -> Self {
        Self { played: Some(n as f64), unit: Unit::Evictions, ..Self::time(what, paper, None) }
    }

    /// With the reason why it may differ.
    pub const fn because(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    /// With what happened.
    fn along(mut self, moments: Vec<Moment>) -> Self {
        self.moments = moments;
        self
    }

    /// It must be within one second of this.
    pub const fn near(self, seconds: f64) -> Self {
        self.within(seconds - 1.0, seconds + 1.0)
    }

    /// It must not be less than one, nor more than the other.
    pub const fn within(mut self, least: f64, most: f64) -> Self {
        self.wanted = Some((least, most));
        self
    }

    /// Whether the figure is what it must be.
    pub fn holds(&self) -> bool {
        let Some((least, most)) = self.wanted else { return true };
        self.played.is_some_and(|played| (least..=most).contains(&played))
    }

    /// What stands above the columns of its text.
    pub fn head() -> String {
        format!("{:<62} {:>12} {:>12}", "", "paper", "played")
    }
}

impl fmt::Display for PaperRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let played = self.played.map_or_else(
            || "never".to_owned(),
            |n| match self.unit {
                Unit::Plain => n.to_string(),
                Unit::Seconds => format!("{n:.3} s"),
                Unit::Evictions => format!("{n} evicted"),
                Unit::Pings => format!("{n:.1}/s"),
                Unit::Times => format!("{n:.2} x"),
            },
        );
        let holds = if self.holds() { "" } else { "MISSED  " };
        write!(f, "{:<62} {:>12} {:>12}  {holds}{}", self.what, self.paper, played, self.note)
    }
}
