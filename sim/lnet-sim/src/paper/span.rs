//! How long clients need to reconnect after a quiesce, by the numbers of which the paper says that it
//! depends on them (PA-130): clients, targets, file systems that each client has mounted. Each is raised
//! alone. `ulnet sim paper span` prints it.

use core::fmt;
use core::time::Duration;

use super::cabinets::{ARMS, CabinetSize, EVENTS, play_cabinets};
use super::watch::SiteRun;

/// The arm and the event: as the paper recommends, two quiesces.
const ARM: &str = "C";
const EVENT: &str = "two quiesces";

/// What the rows begin with.
const BASE: CabinetSize = CabinetSize { clients: 60, ..CabinetSize::TENTH };

/// A site, played with some seeds.
#[derive(Clone, Debug)]
pub struct SpanRow {
    /// The site.
    pub size: CabinetSize,
    /// One play for each seed.
    pub runs: Vec<SiteRun>,
}

impl SpanRow {
    /// What stands above the columns of its text.
    pub const HEAD: &'static str =
        "clients  file systems  targets of each  span: least  median    most  reconnects  evicted";

    /// The spans in which clients reconnected, in ascending order; a play in which none had to has none.
    pub fn spans(&self) -> Vec<Duration> {
        let mut spans: Vec<Duration> = self.runs.iter().filter_map(|run| run.span).collect();
        spans.sort_unstable();
        spans
    }

    /// The span in the middle.
    pub fn median(&self) -> Option<Duration> {
        let spans = self.spans();
        spans.get(spans.len() / 2).copied()
    }
}

impl fmt::Display for SpanRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CabinetSize { clients, targets, file_systems, .. } = self.size;
        let spans = self.spans();
        let show = |span: Option<&Duration>| {
            span.map_or_else(|| "-".to_owned(), |span| format!("{:.1} s", span.as_secs_f64()))
        };
        let (least, median, most) = (spans.first(), self.median(), spans.last());
        let reconnects: usize = self.runs.iter().map(|run| run.reconnects).sum();
        let evicted: usize = self.runs.iter().map(|run| run.evicted).sum();
        write!(
            f,
            "{clients:>7}  {file_systems:>12}  {targets:>15}  {:>11}  {:>6}  {:>6}  {:>10}  {evicted:>7}",
            show(least),
            show(median.as_ref()),
            show(most),
            reconnects / self.runs.len().max(1),
        )
    }
}

/// The sites: the first, and each number raised alone.
fn sites() -> Vec<CabinetSize> {
    let clients = [16, 150, 355].map(|clients| CabinetSize { clients, ..BASE });
    let targets = [2, 8, 16].map(|targets| CabinetSize { targets, ..BASE });
    let file_systems = [2, 4].map(|file_systems| CabinetSize { file_systems, ..BASE });
    [&[BASE][..], &clients, &targets, &file_systems].concat()
}

/// The sweep, each site with this many seeds.
///
/// # Errors
/// A scenario that does not fit; a test reads sites with several file systems.
pub fn span_sweep(seeds: u64, mut each: impl FnMut(&SpanRow)) -> Result<Vec<SpanRow>, String> {
    let event = EVENTS.iter().find(|event| event.name == EVENT).ok_or("no such event")?;
    let arm = ARMS.iter().find(|arm| arm.name == ARM).ok_or("no such arm")?;
    let row = |size| {
        let runs = (1..=seeds).map(|seed| play_cabinets(event, arm, size, seed));
        let row = SpanRow { size, runs: runs.collect::<Result<_, _>>()? };
        each(&row);
        Ok(row)
    };
    sites().into_iter().map(row).collect()
}
