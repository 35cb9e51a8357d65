//! What a console log says of outages: quiesces, lost and restored connections, the span from the first
//! to the last of them, evictions. The longest span is what the lock callback timer must cover (PA-157
//! … PA-160). `stamp.rs` reads times, `line.rs` phrases; here they become a [`Report`].

mod line;
mod stamp;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::enqueue::EnqueueMin;
use crate::rule::Contradiction;
pub use line::Reason;
use line::{Said, said};
use stamp::{Clock, stamp};

/// After so long without a line of its kind an outage is over, microseconds.
const QUIET: i64 = 600_000_000;
/// Lines of one eviction are no further apart, microseconds.
const SAME: i64 = 5_000_000;
/// The most lines with a meaning.
pub const EVENTS_MAX: usize = 1_000_000;
/// The most bytes of a line that are looked at.
pub const LINE_MAX: usize = 4096;

/// A log that has more lines with a meaning than [`EVENTS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lines about outages: limit {EVENTS_MAX} reached, expected a part of the log")]
pub struct TooLong;

#[derive(Debug)]
struct Event {
    at: i64,
    host: String,
    said: Said,
}

/// Reads a log line by line.
#[derive(Debug, Default)]
pub struct Reader {
    clock: Option<Clock>,
    last: i64,
    /// What stamps that began anew are behind.
    behind: i64,
    events: Vec<Event>,
    unstamped: usize,
}

/// A time span of a log, seconds from its first line with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// Its start.
    pub from: f64,
    /// Its end; `None`: the log ends before.
    pub to: Option<f64>,
}

impl Span {
    /// How long it is, seconds.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.to? - self.from)
    }
}

/// An outage: quiesces, and connections that were lost and restored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outage {
    /// Quiesces of the network.
    pub quiesces: Vec<Span>,
    /// Connections that were lost.
    pub lost: usize,
    /// Targets to which a connection was restored.
    pub targets: BTreeSet<String>,
    /// From the first quiesce, or else from the first connection that was lost, to the last that was
    /// restored.
    pub span: Span,
}

/// An eviction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Eviction {
    /// Seconds from the first line with a meaning.
    pub at: f64,
    /// The target.
    pub target: String,
    /// The client; `None`: the client itself has written the line.
    pub client: Option<String>,
    /// Why.
    pub reason: Reason,
    /// Seconds until the client was connected again, where its own log says so.
    pub back_after: Option<f64>,
}

/// What a log says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Outages in their order.
    pub outages: Vec<Outage>,
    /// Evictions in their order.
    pub evictions: Vec<Eviction>,
    /// How often services did not keep up.
    pub behind: BTreeMap<String, usize>,
    /// Lines about outages without a stamp, or with one of another form than the first.
    pub unstamped: usize,
}

impl Reader {
    /// Takes the next line.
    ///
    /// # Errors
    /// There are too many.
    pub fn line(&mut self, line: &str) -> Result<(), TooLong> {
        let end = (0..=LINE_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        let line = line.get(..end).unwrap_or_default();
        let Some((stamp, rest)) = stamp(line) else {
            self.unstamped += usize::from(said(line).is_some());
            return Ok(());
        };
        let Some(said) = said(rest) else { return Ok(()) };
        if *self.clock.get_or_insert(stamp.clock) != stamp.clock {
            self.unstamped += 1;
            return Ok(());
        }
        if self.events.len() == EVENTS_MAX {
            return Err(TooLong);
        }
        let mut at = stamp.micros + self.behind;
        if let Some(period) = stamp.clock.period()
            && !self.events.is_empty()
            && at < self.last - period / 2
        {
            self.behind += period;
            at += period;
        }
        self.last = at;
        let host = rest.split_whitespace().next().filter(|word| !word.ends_with(':'));
        let host = host.unwrap_or_default().chars().take(64).collect();
        self.events.push(Event { at, host, said });
        Ok(())
    }

    /// What all lines say together.
    pub fn report(mut self) -> Report {
        // Logs of several nodes in one file are only nearly in order.
        self.events.sort_by_key(|event| event.at);
        let zero = self.events.first().map_or(0, |event| event.at);
        let seconds = |at: i64| (at - zero) as f64 / 1e6;
        let mut behind = BTreeMap::new();
        for event in &self.events {
            if let Said::Behind { service } = &event.said {
                *behind.entry(service.clone()).or_default() += 1;
            }
        }
        Report {
            outages: outages(&self.events, &seconds),
            evictions: evictions(&self.events, &seconds),
            behind,
            unstamped: self.unstamped,
        }
    }
}

fn outages(events: &[Event], seconds: &impl Fn(i64) -> f64) -> Vec<Outage> {
    let of_outage = |event: &&Event| {
        matches!(
            event.said,
            Said::QuiesceStart | Said::QuiesceEnd | Said::Lost { .. } | Said::Restored { .. }
        )
    };
    let events: Vec<&Event> = events.iter().filter(of_outage).collect();
    let runs = events.chunk_by(|a, b| b.at - a.at <= QUIET);
    runs.filter_map(|run| outage(run, seconds)).collect()
}

/// One outage; `None` for connections that were made without an outage before.
fn outage(events: &[&Event], seconds: &impl Fn(i64) -> f64) -> Option<Outage> {
    let mut quiesces: Vec<Span> = Vec::new();
    // Each node writes its own line of a quiesce.
    let mut still: BTreeSet<&str> = BTreeSet::new();
    let (mut lost, mut targets) = (0, BTreeSet::new());
    let (mut first_lost, mut last_restored) = (None, None);
    for event in events {
        match &event.said {
            Said::QuiesceStart => {
                if still.is_empty() {
                    quiesces.push(Span { from: seconds(event.at), to: None });
                }
                still.insert(&event.host);
            }
            Said::QuiesceEnd => {
                still.remove(event.host.as_str());
                if let Some(quiesce) = quiesces.last_mut() {
                    quiesce.to = Some(seconds(event.at));
                }
            }
            Said::Lost { .. } => {
                lost += 1;
                first_lost.get_or_insert(event.at);
            }
            Said::Restored { target } => {
                targets.insert(target.clone());
                last_restored = Some(event.at);
            }
            _ => {}
        }
    }
    let from = quiesces.first().map(|q| q.from).or_else(|| first_lost.map(seconds))?;
    let to = last_restored.map(seconds).filter(|to| *to >= from);
    Some(Outage { quiesces, lost, targets, span: Span { from, to } })
}

fn evictions(events: &[Event], seconds: &impl Fn(i64) -> f64) -> Vec<Eviction> {
    let mut all: Vec<Eviction> = Vec::new();
    // The last line of each client, since a server writes several of one eviction.
    let mut seen: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    // Evictions whose client is not back, by host and target.
    let mut out: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for event in events {
        let at = seconds(event.at);
        match &event.said {
            Said::Evicted { target, client, reason } => {
                let before = seen.insert((target, client), event.at);
                if before.is_none_or(|before| event.at - before > SAME) {
                    let (target, client) = (target.clone(), Some(client.clone()));
                    let reason = *reason;
                    all.push(Eviction { at, target, client, reason, back_after: None });
                }
            }
            Said::EvictedHere { target } => {
                out.insert((&event.host, target), all.len());
                let (target, reason) = (target.clone(), Reason::Other);
                all.push(Eviction { at, target, client: None, reason, back_after: None });
            }
            Said::Restored { target } => {
                let of = out.remove(&(event.host.as_str(), target.as_str()));
                if let Some(eviction) = of.and_then(|n| all.get_mut(n)) {
                    eviction.back_after = Some(at - eviction.at);
                }
            }
            _ => {}
        }
    }
    all
}

impl Report {
    /// The longest span of an outage, seconds.
    pub fn longest(&self) -> Option<f64> {
        self.outages.iter().filter_map(|outage| outage.span.seconds()).max_by(f64::total_cmp)
    }

    /// How many evictions there were. A log of both sides has each twice, by its server and by its client.
    pub fn evicted(&self) -> usize {
        let mut sides: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for eviction in &self.evictions {
            let (servers, clients) = sides.entry(&eviction.target).or_default();
            *if eviction.client.is_some() { servers } else { clients } += 1;
        }
        sides.values().map(|(servers, clients)| servers.max(clients)).sum()
    }

    /// The `ldlm_enqueue_min` that covers the longest span; `None` if there was no outage that ended.
    ///
    /// # Errors
    /// No tunable is that large (L-64).
    pub fn enqueue_min(
        &self,
        (at_min, at_max): (u32, u32),
    ) -> Option<Result<EnqueueMin, Contradiction>> {
        // Beyond what a tunable may be it is refused as such.
        let span = self.longest()?.ceil().min(f64::from(u32::MAX)) as u32;
        Some(EnqueueMin::of(at_min, at_min, span, (at_min, at_max)))
    }
}

fn span(span: Option<f64>) -> String {
    span.map_or_else(|| "not over".to_owned(), |s| format!("{s:.1} s"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outage in &self.outages {
            let Outage { quiesces, lost, targets, span: whole } = outage;
            let each: Vec<String> = quiesces.iter().map(|q| span(q.seconds())).collect();
            let each =
                if each.is_empty() { String::new() } else { format!("  {}", each.join(", ")) };
            writeln!(f, "quiesces          {}{each}", quiesces.len())?;
            writeln!(f, "lost connections  {lost}")?;
            writeln!(f, "restored targets  {}", targets.len())?;
            writeln!(f, "span              {}", span(whole.seconds()))?;
            writeln!(f)?;
        }
        if self.outages.is_empty() {
            writeln!(f, "no outage\n")?;
        }
        for eviction in &self.evictions {
            let Eviction { at, target, client, reason, back_after } = eviction;
            match client {
                Some(client) => {
                    writeln!(f, "at {at:.1} s  {target} evicted {client}: {}", reason.text())?;
                }
                None => {
                    let back = back_after.map(|s| format!(", back after {s:.1} s"));
                    let back = back.unwrap_or_default();
                    writeln!(f, "at {at:.1} s  evicted here by {target}{back}")?;
                }
            }
        }
        let n = self.evicted();
        let cost = if n == 0 { "" } else { ": locks are void, unwritten data are lost" };
        writeln!(f, "evictions         {n}{cost}")?;
        for (service, times) in &self.behind {
            writeln!(f, "service {service} did not keep up {times} times: a larger at_max helps")?;
        }
        if self.unstamped > 0 {
            writeln!(f, "{} lines without a stamp of the same form were left out", self.unstamped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        let mut reader = Reader::default();
        text.lines().for_each(|line| reader.line(line).unwrap());
        reader.report()
    }

    fn fixture(name: &str) -> String {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/console");
        std::fs::read_to_string(format!("{dir}/{name}.log")).unwrap()
    }

    #[test]
    fn pa159_the_seven_lines_are_two_quiesces_three_targets_and_133_9_s() {
        let text = fixture("quiesce");
        assert_eq!(text.lines().count(), 7);
        let report = report(&text);
        let [outage] = &report.outages[..] else { panic!("{report:?}") };
        assert_eq!((outage.quiesces.len(), outage.targets.len(), outage.lost), (2, 3, 0));
        assert!((report.longest().unwrap() - 133.9).abs() < 0.001, "{report:?}");
        let enqueue = report.enqueue_min((40, 400)).unwrap().unwrap();
        assert_eq!(enqueue.to_string(), "254 = max(2 x 40, 40 + 134) + 2 x 40");
        assert!(report.to_string().starts_with(
            "quiesces          2  15.0 s, 10.0 s\nlost connections  0\nrestored targets  3\n\
             span              133.9 s\n"
        ));
    }

    #[test]
    fn the_lines_of_each_node_about_one_quiesce_are_one_quiesce() {
        let report = report(
            "10:00:00 n1 LNet: Quiesce start\n10:00:00 n2 LNet: Quiesce start\n\
             10:00:09 n1 LNet: Quiesce complete\n10:00:10 n2 LNet: Quiesce complete\n\
             10:00:20 n1 LNet: Quiesce start\n",
        );
        let [outage] = &report.outages[..] else { panic!("{report:?}") };
        let spans: Vec<_> = outage.quiesces.iter().map(Span::seconds).collect();
        assert_eq!(spans, [Some(10.0), None]);
        assert_eq!(outage.span.to, None, "nothing was restored");
    }

    #[test]
    fn outages_far_apart_are_two_and_connects_without_one_are_none() {
        let report = report(
            "[10.0] Lustre: a: Connection restored to t (at 1@tcp)\n\
             [1000.0] Lustre: a: Connection to t (at 1@tcp) was lost; x\n\
             [1030.5] Lustre: a: Connection restored to t (at 1@tcp)\n\
             [9000.0] Lustre: a: Connection to t (at 1@tcp) was lost; x\n\
             [9010.0] Lustre: a: Connection to u (at 1@tcp) was lost; x\n\
             [9095.0] Lustre: a: Connection restored to t (at 1@tcp)\n",
        );
        let spans: Vec<_> = report.outages.iter().map(|o| (o.lost, o.span.seconds())).collect();
        assert_eq!(spans, [(1, Some(30.5)), (2, Some(95.0))]);
        assert_eq!(report.longest(), Some(95.0));
        assert_eq!(report.enqueue_min((5, 600)).unwrap().unwrap().seconds, 110);
    }

    #[test]
    fn lines_of_both_sides_about_one_eviction_are_one_and_the_client_comes_back() {
        let report = report(
            "Dec 31 23:59:58 s LustreError: x: ### lock callback timer expired after 100s: evicting \
             client at 9@tcp  ns: filter-fs-OST0000_UUID lock: y\n\
             Dec 31 23:59:59 s LustreError: 138-a: fs-OST0000: A client on nid 9@tcp was evicted due to \
             a lock blocking callback time out: rc -107\n\
             Jan  1 00:00:02 c Lustre: fs-OST0000-osc-f: This client was evicted by fs-OST0000; x\n\
             Jan  1 00:00:04 c Lustre: fs-OST0000-osc-f: Connection restored to fs-OST0000 (at 1@tcp)\n\
             Jan  1 00:01:00 s Lustre: fs-OST0000: haven't heard from client u (at 9@tcp) in 227 \
             seconds. x\n",
        );
        let all: Vec<_> = report
            .evictions
            .iter()
            .map(|e| (e.at, e.client.as_deref(), e.reason, e.back_after))
            .collect();
        assert_eq!(
            all,
            [
                (0.0, Some("9@tcp"), Reason::LockTimer, None),
                (4.0, None, Reason::Other, Some(2.0)),
                (62.0, Some("9@tcp"), Reason::Silent, None),
            ]
        );
        let text = report.to_string();
        assert!(
            text.contains("fs-OST0000 evicted 9@tcp: kept a lock until its timer ended"),
            "{text}"
        );
        assert!(text.contains("evicted here by fs-OST0000, back after 2.0 s"), "{text}");
        assert!(text.contains("evictions         2: locks are void"), "{text}");
    }

    #[test]
    fn lines_without_a_stamp_or_of_another_clock_are_counted() {
        let report = report(
            "LNet: Quiesce start\n[1.0] LNet: Quiesce start\n10:00:00 h LNet: Quiesce complete\n\
             [2.0] ost_io: This server is not able to keep up with request traffic (cpu-bound).\nnoise\n",
        );
        assert_eq!((report.unstamped, report.outages.len()), (2, 1));
        assert_eq!(report.behind.get("ost_io"), Some(&1));
        assert!(report.to_string().contains("2 lines without a stamp"));
    }

    #[test]
    fn any_bytes_are_read_and_long_lines_are_cut() {
        let mut reader = Reader::default();
        reader.line(&"é".repeat(LINE_MAX)).unwrap();
        reader.line(&format!("[1.0] {} Quiesce start", "x".repeat(LINE_MAX))).unwrap();
        reader.line("[0.0").unwrap();
        let report = reader.report();
        assert_eq!((report.outages.len(), report.longest()), (0, None));
        assert!(report.enqueue_min((40, 400)).is_none());
        assert!(report.to_string().starts_with("no outage\n"));
    }
}
