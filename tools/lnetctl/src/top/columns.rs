//! The columns of interfaces: what each shows, in which unit, how wide it is, and how it sorts. One
//! table for the picture, the choice of columns and the order of rows. Pure.

use core::cmp::{Ordering, Reverse};

use super::model::Line;

/// Something known of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    Device,
    State,
    Doubt,
    Health,
    OutBytes,
    InBytes,
    OutMessages,
    InMessages,
    Credits,
    Least,
    Queued,
    Latency,
    Last,
    Failed,
}

/// Cells of a health bar and the space behind it.
pub(crate) const BAR: u16 = 8;

impl Column {
    /// From left to right.
    pub(crate) const ALL: [Self; 14] = [
        Self::Device,
        Self::State,
        Self::Doubt,
        Self::Health,
        Self::OutBytes,
        Self::InBytes,
        Self::OutMessages,
        Self::InMessages,
        Self::Credits,
        Self::Least,
        Self::Queued,
        Self::Latency,
        Self::Last,
        Self::Failed,
    ];

    /// The one that gets room first comes first.
    pub(crate) const BY_IMPORTANCE: [Self; 14] = [
        Self::State,
        Self::Health,
        Self::OutBytes,
        Self::InBytes,
        Self::Latency,
        Self::Last,
        Self::Credits,
        Self::Failed,
        Self::Doubt,
        Self::Queued,
        Self::Device,
        Self::OutMessages,
        Self::InMessages,
        Self::Least,
    ];

    /// Its heading, and the unit below.
    pub(crate) const fn heading(self) -> (&'static str, &'static str) {
        match self {
            Self::Device => ("DEV", ""),
            Self::State => ("STATE", ""),
            Self::Doubt => ("DOUBT", ""),
            Self::Health => ("HEALTH", "of 1000"),
            Self::OutBytes => ("OUT", "MiB/s"),
            Self::InBytes => ("IN", "MiB/s"),
            Self::OutMessages => ("OUT", "msg/s"),
            Self::InMessages => ("IN", "msg/s"),
            Self::Credits => ("CREDITS", "of max"),
            Self::Least => ("LEAST", "credits"),
            Self::Queued => ("QUEUED", "KiB"),
            Self::Latency => ("LATENCY", "ms"),
            Self::Last => ("LAST", "s ago"),
            Self::Failed => ("FAILED", "msgs"),
        }
    }

    /// Its name in the choice of columns and beside the order.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::State => "state",
            Self::Doubt => "doubt",
            Self::Health => "health",
            Self::OutBytes => "bytes out",
            Self::InBytes => "bytes in",
            Self::OutMessages => "messages out",
            Self::InMessages => "messages in",
            Self::Credits => "credits",
            Self::Least => "least credits",
            Self::Queued => "queued",
            Self::Latency => "latency",
            Self::Last => "last message",
            Self::Failed => "failed",
        }
    }

    /// What it is, for the choice of columns.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Device => "the device; + is a further interface of a peer",
            Self::State => "up, degraded, suspect, unknown or down",
            Self::Doubt => "why a rail that ends here is suspect",
            Self::Health => "0 to 1000",
            Self::OutBytes => "payload sent, MiB/s",
            Self::InBytes => "payload received, MiB/s",
            Self::OutMessages => "messages sent per second",
            Self::InMessages => "messages received per second",
            Self::Credits => "free transmit credits; below 0: messages wait",
            Self::Least => "the fewest free credits so far",
            Self::Queued => "payload that waits for credits, KiB",
            Self::Latency => "median from PUT or GET to ACK or REPLY, ms",
            Self::Last => "age of the last message received, s",
            Self::Failed => "failures charged to the interface",
        }
    }

    /// Its width in characters; `device` is the longest name of a device.
    pub(crate) fn width(self, device: usize) -> u16 {
        match self {
            Self::Device => u16::try_from(device.clamp(3, 15)).unwrap_or(15),
            Self::State | Self::Doubt => 8,
            Self::Health | Self::Credits | Self::Least | Self::Latency => 7,
            Self::OutBytes | Self::InBytes | Self::OutMessages | Self::InMessages => 6,
            Self::Queued | Self::Failed => 6,
            Self::Last => 5,
        }
    }

    /// Whether it stands at the right of its column.
    pub(crate) const fn is_number(self) -> bool {
        !matches!(self, Self::Device | Self::State | Self::Doubt | Self::Health)
    }

    /// Whether it says anything of this interface.
    pub(crate) fn is_there(self, line: &Line) -> bool {
        match self {
            Self::Device => !line.device.is_empty(),
            Self::State => true,
            Self::Doubt => !line.doubt.is_empty(),
            Self::Health => line.health.is_some(),
            Self::OutBytes => line.out_bytes > 0.0,
            Self::InBytes => line.in_bytes > 0.0,
            Self::OutMessages => line.out > 0.0,
            Self::InMessages => line.inward > 0.0,
            Self::Credits => line.credits.is_some(),
            Self::Least => line.credits.is_some_and(|c| c.least < c.max),
            Self::Queued => line.queued > 0,
            Self::Latency => line.latency_ns.is_some(),
            Self::Last => line.last_ms.is_some(),
            Self::Failed => line.failures > 0,
        }
    }

    /// What stands in the cell; health is drawn elsewhere.
    pub(crate) fn cell(self, line: &Line) -> String {
        let known = |text: Option<String>| text.unwrap_or_default();
        match self {
            Self::Device => line.device.clone(),
            Self::State => line.state.name().to_owned(),
            Self::Doubt => line.doubt.to_owned(),
            Self::Health => known(line.health.map(|h| h.to_string())),
            Self::OutBytes => mib(line.out_bytes),
            Self::InBytes => mib(line.in_bytes),
            Self::OutMessages => short(line.out),
            Self::InMessages => short(line.inward),
            Self::Credits => known(line.credits.map(|c| format!("{}/{}", c.free, c.max))),
            Self::Least => known(line.credits.map(|c| c.least.to_string())),
            Self::Queued => short(line.queued as f64 / 1024.0),
            Self::Latency => known(line.latency_ns.map(|ns| millis(ns as f64 / 1e6))),
            Self::Last => known(line.last_ms.map(|ms| short(ms as f64 / 1e3))),
            Self::Failed => short(f64::from(line.failures)),
        }
    }

    /// The order of two rows: what needs attention comes first. Rows without a value come last.
    pub(crate) fn order(self, a: &Line, b: &Line) -> Ordering {
        // `None` is greater than any value here.
        fn least_first<T: Ord>(a: Option<T>, b: Option<T>) -> Ordering {
            a.is_none().cmp(&b.is_none()).then(a.cmp(&b))
        }
        fn most_first<T: Ord>(a: Option<T>, b: Option<T>) -> Ordering {
            least_first(a.map(Reverse), b.map(Reverse))
        }
        match self {
            Self::Device => a.device.cmp(&b.device),
            Self::State => b.state.cmp(&a.state),
            Self::Doubt => a.doubt.is_empty().cmp(&b.doubt.is_empty()).then(a.doubt.cmp(b.doubt)),
            Self::Health => least_first(a.health, b.health),
            Self::OutBytes => b.out_bytes.total_cmp(&a.out_bytes),
            Self::InBytes => b.in_bytes.total_cmp(&a.in_bytes),
            Self::OutMessages => b.out.total_cmp(&a.out),
            Self::InMessages => b.inward.total_cmp(&a.inward),
            Self::Credits => least_first(a.credits.map(|c| c.free), b.credits.map(|c| c.free)),
            Self::Least => least_first(a.credits.map(|c| c.least), b.credits.map(|c| c.least)),
            Self::Queued => b.queued.cmp(&a.queued),
            Self::Latency => most_first(a.latency_ns, b.latency_ns),
            Self::Last => most_first(a.last_ms, b.last_ms),
            Self::Failed => b.failures.cmp(&a.failures),
        }
    }
}

/// The columns that get a place in `room` characters, from left to right, of those that are `wanted`.
/// `first` is the column that rows are sorted by.
pub(crate) fn fitting(
    wanted: impl Fn(Column) -> bool,
    first: Option<Column>,
    device: usize,
    room: u16,
) -> (Vec<Column>, u16) {
    let mut left = room;
    let mut chosen = Vec::new();
    let by_importance = Column::BY_IMPORTANCE.into_iter().filter(|c| Some(*c) != first);
    for column in first.into_iter().chain(by_importance).filter(|c| wanted(*c)) {
        // With the space before it.
        let width = column.width(device) + 1;
        if width <= left {
            left -= width;
            chosen.push(column);
        }
    }
    chosen.sort_unstable();
    (chosen, left)
}

/// A number in at most five characters.
pub(crate) fn short(n: f64) -> String {
    match n {
        n if n >= 999.5e6 => format!("{:.1}G", n / 1e9),
        n if n >= 9.95e6 => format!("{:.0}M", n / 1e6),
        n if n >= 999.5e3 => format!("{:.1}M", n / 1e6),
        n if n >= 9_950.0 => format!("{:.0}k", n / 1e3),
        n if n >= 9.95 || n == n.round() => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// Bytes as MiB, in at most six characters.
pub(crate) fn mib(bytes: f64) -> String {
    match bytes / f64::from(1 << 20) {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n if n >= 0.005 => format!("{n:.2}"),
        n if n > 0.0 => "<0.01".to_owned(),
        _ => "0".to_owned(),
    }
}

/// Milliseconds, in at most seven characters.
fn millis(ms: f64) -> String {
    match ms {
        ms if ms >= 99.95 => format!("{ms:.0}"),
        ms if ms >= 9.995 => format!("{ms:.1}"),
        ms => format!("{ms:.3}"),
    }
}
