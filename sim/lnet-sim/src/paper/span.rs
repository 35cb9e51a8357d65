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

/// What the rows begin with: so small that the span is far from what requests' deadlines allow at most.
const BASE: CabinetSize = CabinetSize { clients: 8, targets: 2, ..CabinetSize::TENTH };

/// A site, played with some seeds.
#[derive(Clone, Debug)]
pub struct SpanRow {
    /// The number that is raised; `None`: the site that all begin with.
    pub raised: Option<&'static str>,
    /// The site.
    pub size: CabinetSize,
    /// One play for each seed.
    pub runs: Vec<SiteRun>,
}

impl SpanRow {
    /// What stands above the columns of its text.
    pub const HEAD: &'static str = "clients  file systems  targets of each  span: least  median    most    mean  reconnects  evicted";

    /// The spans in which clients reconnected, in ascending order; a play in which none had to has none.
    pub fn spans(&self) -> Vec<Duration> {
        let mut spans: Vec<Duration> = self.runs.iter().filter_map(|run| run.span).collect();
        spans.sort_unstable();
        spans
    }

    /// The mean; nothing of no spans.
    pub fn mean(&self) -> Option<Duration> {
        let spans = self.spans();
        let count = u32::try_from(spans.len()).ok().filter(|n| *n > 0)?;
        Some(spans.iter().sum::<Duration>() / count)
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
        let mean = self.mean();
        let reconnects: usize = self.runs.iter().map(|run| run.reconnects).sum();
        let evicted: usize = self.runs.iter().map(|run| run.evicted).sum();
        write!(
            f,
            "{clients:>7}  {file_systems:>12}  {targets:>15}  {:>11}  {:>6}  {:>6}  {:>6}  {:>10}  {evicted:>7}",
            show(least),
            show(median.as_ref()),
            show(most),
            show(mean.as_ref()),
            reconnects / self.runs.len().max(1),
        )
    }
}

/// The sites: the first, and each number raised alone.
fn sites() -> Vec<(Option<&'static str>, CabinetSize)> {
    let clients = [16, 60, 150, 355].map(|clients| CabinetSize { clients, ..BASE });
    let targets = [4, 8, 16].map(|targets| CabinetSize { targets, ..BASE });
    let file_systems = [2, 4].map(|file_systems| CabinetSize { file_systems, ..BASE });
    let raised: [(_, &[CabinetSize]); 3] =
        [("clients", &clients), ("targets", &targets), ("file systems", &file_systems)];
    let raised = raised
        .into_iter()
        .flat_map(|(name, sizes)| sizes.iter().map(move |size| (Some(name), *size)));
    [(None, BASE)].into_iter().chain(raised).collect()
}

/// The numbers with which the span does not rise: raised furthest, its mean is not above that of the
/// first site.
pub fn not_rising(rows: &[SpanRow]) -> Vec<&'static str> {
    let first = rows.iter().find(|row| row.raised.is_none()).and_then(SpanRow::mean);
    let mut names: Vec<_> = rows.iter().filter_map(|row| row.raised).collect();
    names.dedup();
    let last = |name: &&str| rows.iter().rfind(|row| row.raised == Some(*name))?.mean();
    names.retain(|name| last(name) <= first);
    names
}

/// The sweep, each site with this many seeds.
///
/// # Errors
/// A scenario that does not fit; a test reads sites with several file systems.
pub fn span_sweep(seeds: u64, mut each: impl FnMut(&SpanRow)) -> Result<Vec<SpanRow>, String> {
    let row = |(raised, size)| {
        let row = span_row(raised, size, seeds)?;
        each(&row);
        Ok(row)
    };
    sites().into_iter().map(row).collect()
}

/// A site of it.
fn span_row(
    raised: Option<&'static str>,
    size: CabinetSize,
    seeds: u64,
) -> Result<SpanRow, String> {
    let event = EVENTS.iter().find(|event| event.name == EVENT).ok_or("no such event")?;
    let arm = ARMS.iter().find(|arm| arm.name == ARM).ok_or("no such arm")?;
    let runs = (1..=seeds).map(|seed| play_cabinets(event, arm, size, seed));
    Ok(SpanRow { raised, size, runs: runs.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_that_does_not_rise_with_a_number_is_named() {
        let row = |raised, seconds: &[u64]| {
            let run = |secs: &u64| SiteRun {
                span: Some(Duration::from_secs(*secs)),
                ..SiteRun::default()
            };
            SpanRow { raised, size: BASE, runs: seconds.iter().map(run).collect() }
        };
        let first = row(None, &[80, 100]);
        let clients = [row(Some("clients"), &[70]), row(Some("clients"), &[91])];
        let targets = [row(Some("targets"), &[120]), row(Some("targets"), &[90])];
        let rows: Vec<SpanRow> = [first].into_iter().chain(clients).chain(targets).collect();
        assert_eq!(not_rising(&rows), ["targets"]);
        let none = row(Some("file systems"), &[]);
        assert_eq!(not_rising(&[rows[0].clone(), none]), ["file systems"]);
    }

    #[test]
    fn pa130_span_rises_with_clients_targets_and_file_systems() {
        let sizes = [
            (None, BASE),
            (Some("clients"), CabinetSize { clients: 16, ..BASE }),
            (Some("targets"), CabinetSize { targets: 4, ..BASE }),
            (Some("file systems"), CabinetSize { file_systems: 2, ..BASE }),
        ];
        let rows = sizes.map(|(raised, size)| span_row(raised, size, 10).unwrap());
        rows.iter().for_each(|row| println!("{row}"));
        assert_eq!(not_rising(&rows), [""; 0]);
    }
}
