//! `--html`: a run as one page that needs nothing from outside: the health of interfaces, what
//! rails carried, how long exchanges took, and what happened when.

use core::fmt::Write as _;
use core::time::Duration;
use std::cmp::Reverse;

use lnet_scenario::{NodeId, Scenario};
use lnet_sim::{Course, RailIx, Standing};
use plots::{Band, COLOURS, Cell, Line, Page, Plot, Row, Scale, Strips, escape};

/// Interfaces that have a row; the worst are shown.
const ROWS_MAX: usize = 40;
/// Moments that are listed.
const MOMENTS_MAX: usize = 5000;

const HEAD: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\
<link rel=\"icon\" href=\"data:,\"><style>\
body{max-width:1000px}#moments{font:12px/1.5 ui-monospace,monospace;width:100%}\
#moments td:first-child{text-align:right;white-space:nowrap}#moments td{vertical-align:top}\
input{font:inherit;width:100%;box-sizing:border-box;padding:.3em .5em;color:inherit;\
background:var(--bg);border:1px solid var(--grid);border-radius:6px}\
pre{overflow-x:auto}.cursor{stroke:var(--mut);stroke-dasharray:3 3}\
tr.fault td{font-weight:600}</style>";

/// Pointing at a picture shows that moment in all of them; the filter shortens the list.
const SCRIPT: &str = include_str!("page.js");

/// A run that is to be shown.
pub(super) struct Run<'a> {
    /// The heading.
    pub(super) title: &'a str,
    /// What is to be said before all else: names and texts.
    pub(super) facts: &'a [(String, String)],
    /// Text that stands as it is.
    pub(super) report: &'a str,
    pub(super) scenario: &'a Scenario,
    pub(super) course: &'a Course,
    /// The same world without the fault.
    pub(super) healthy: Option<&'a Course>,
    /// Moments, as traces have them.
    pub(super) lines: &'a [String],
}

impl Run<'_> {
    /// The page.
    pub(super) fn page(&self) -> String {
        let mut page = Page::new(self.title, HEAD);
        page.heading(self.title);
        page.facts(self.facts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        if !self.report.is_empty() {
            page.raw(&format!("<pre>{}</pre>\n", escape(self.report)));
        }
        let bands = self.bands();
        self.health(&mut page, &bands);
        self.traffic(&mut page, &bands);
        self.stalls(&mut page, &bands);
        self.moments(&mut page);
        page.raw(&format!("<script>{SCRIPT}</script>\n"));
        page.finish()
    }

    fn seconds(&self, slot: usize) -> f64 {
        slot as f64 * self.course.slot.as_secs_f64()
    }

    fn end(&self) -> f64 {
        self.seconds(lnet_sim::SLOTS)
    }

    fn bands(&self) -> Vec<Band> {
        let band = |(index, from, to): &(usize, Duration, Option<Duration>)| {
            let fault = self.scenario.faults.get(*index)?;
            let name = format!("{} (line {})", fault.kind.name(), fault.line);
            // What stays until the end, and what is over at once.
            let lasts = fault.until.is_none() && lasts(&fault.kind);
            let from = from.as_secs_f64();
            let to = to.map_or(if lasts { self.end() } else { from }, |t| t.as_secs_f64());
            Some(Band { name, from, to })
        };
        self.course.faults.iter().filter_map(band).collect()
    }

    fn name(&self, rail: RailIx) -> String {
        let Some(nid) = self.course.nids.get(&rail) else { return String::new() };
        let owner = self.scenario.world.rail_of(*nid);
        let name = owner.map(|at| self.scenario.world.name(NodeId(at.node.0)));
        name.map_or_else(|| nid.to_string(), |name| format!("{name} {nid}"))
    }

    /// Rows of interfaces that a node judged below full health.
    fn health(&self, page: &mut Page, bands: &[Band]) {
        let mut worse: Vec<(RailIx, &[Standing])> = self
            .course
            .rails
            .iter()
            .filter(|(_, r)| r.standing.iter().any(|s| *s != Standing::Healthy))
            .map(|(ix, r)| (*ix, r.standing.get(..self.course.reached).unwrap_or(&r.standing)))
            .collect();
        let badness = |s: &[Standing]| s.iter().map(|s| u64::from(severity(*s))).sum::<u64>();
        worse.sort_by_key(|(ix, s)| (Reverse(badness(s)), *ix));
        let others = self.scenario.world.nodes.iter().map(|n| n.rails.len()).sum::<usize>();
        let rows: Vec<Row> = worse
            .iter()
            .take(ROWS_MAX)
            .map(|(ix, s)| Row { name: self.name(*ix), cells: self.cells(s) })
            .collect();
        page.strips(&Strips {
            title: "Interfaces: the worst judgement of any node",
            legend: &[
                ("good", "healthy"),
                ("soft", "suspected"),
                ("fair", "health 500 to 999"),
                ("bad", "below 500"),
                ("gone", "dead"),
            ],
            rows: &rows,
            bands,
            end: self.end(),
        });
        let hidden = worse.len().saturating_sub(ROWS_MAX);
        let more = if hidden > 0 { format!("{hidden} more were not; ") } else { String::new() };
        let healthy = others.saturating_sub(worse.len());
        page.raw(&format!("<p>{more}{healthy} interfaces were healthy all the time.</p>\n"));
    }

    fn cells(&self, standing: &[Standing]) -> Vec<Cell> {
        let mut cells = Vec::new();
        let mut from = 0;
        for part in standing.chunk_by(|a, b| a == b) {
            let Some(first) = part.first() else { continue };
            let to = from + part.len();
            let (class, what) = match first {
                Standing::Healthy => ("good", "healthy".to_owned()),
                Standing::Suspected => ("soft", "suspected".to_owned()),
                Standing::Degraded { lacks } => {
                    let class = if *lacks > 500 { "bad" } else { "fair" };
                    (class, format!("health {}", 1000_u32.saturating_sub(*lacks)))
                }
                Standing::Dead => ("gone", "dead".to_owned()),
            };
            let (a, b) = (self.seconds(from), self.seconds(to));
            let what = format!("{what}, {a:.1} to {b:.1} s");
            cells.push(Cell { from: a, to: b, class, what });
            from = to;
        }
        cells
    }

    /// What rails carried: those with most of it by themselves, the others together.
    fn traffic(&self, page: &mut Page, bands: &[Band]) {
        let per_second = 1.0 / self.course.slot.as_secs_f64();
        let mut rails: Vec<(RailIx, u64)> = self
            .course
            .rails
            .iter()
            .map(|(ix, r)| (*ix, r.messages.iter().map(|n| u64::from(*n)).sum()))
            .filter(|(_, sent)| *sent > 0)
            .collect();
        rails.sort_by_key(|(ix, sent)| (Reverse(*sent), *ix));
        let alone = if rails.len() > COLOURS { COLOURS - 1 } else { rails.len() };
        let (own, rest) = rails.split_at(alone);
        let mut names: Vec<String> = own.iter().map(|(ix, _)| self.name(*ix)).collect();
        if !rest.is_empty() {
            names.push(format!("{} others", rest.len()));
        }
        type Of = fn(&lnet_sim::RailCourse, usize) -> f64;
        let kinds: [(&str, Of); 2] = [
            ("Messages sent, per second", |r, n| {
                f64::from(r.messages.get(n).copied().unwrap_or(0))
            }),
            ("Payload sent, bytes per second", |r, n| r.bytes.get(n).copied().unwrap_or(0) as f64),
        ];
        for (title, of) in kinds {
            let sum = |rails: &[(RailIx, u64)], n: usize| -> f64 {
                let all = rails.iter().filter_map(|(ix, _)| self.course.rails.get(ix));
                all.map(|r| of(r, n)).sum()
            };
            let line = |rails: &[(RailIx, u64)]| -> Vec<(f64, Option<f64>)> {
                (0..lnet_sim::SLOTS)
                    .map(|n| (self.seconds(n), Some(sum(rails, n) * per_second)))
                    .collect()
            };
            let mut points: Vec<_> = own.iter().map(|r| line(core::slice::from_ref(r))).collect();
            if !rest.is_empty() {
                points.push(line(rest));
            }
            let lines: Vec<Line<'_>> =
                names.iter().zip(points).map(|(name, points)| Line { name, points }).collect();
            let (lines, end, scale, show) = (&lines, self.end(), Scale::Linear, count);
            page.plot(&Plot { title, lines, bands, end, scale, show });
        }
    }

    /// How long exchanges took, and how many failed.
    fn stalls(&self, page: &mut Page, bands: &[Band]) {
        let times = |course: &Course, quantile: f64| -> Vec<(f64, Option<f64>)> {
            let at = |(n, ends): (usize, &lnet_sim::Ends)| {
                let times = ends.times.as_ref().filter(|t| !t.is_empty());
                let value = times.map(|t| t.value_at_quantile(quantile) as f64 / 1e9);
                (self.seconds(n), value)
            };
            course.ends.iter().enumerate().map(at).collect()
        };
        let mut lines = vec![
            Line { name: "half took at most", points: times(self.course, 0.5) },
            Line { name: "99 of 100", points: times(self.course, 0.99) },
            Line { name: "the longest", points: times(self.course, 1.0) },
        ];
        if let Some(healthy) = self.healthy {
            lines.push(Line { name: "the longest, healthy", points: times(healthy, 1.0) });
        }
        let title = "Stalls: how long exchanges took that ended then";
        let (end, show) = (self.end(), time as fn(f64) -> String);
        page.plot(&Plot { title, lines: &lines, bands, end, scale: Scale::Log, show });
        let per_second = 1.0 / self.course.slot.as_secs_f64();
        let rate = |of: &dyn Fn(&lnet_sim::Ends) -> u64| -> Vec<(f64, Option<f64>)> {
            let ends = self.course.ends.iter().enumerate();
            ends.map(|(n, e)| (self.seconds(n), Some(of(e) as f64 * per_second))).collect()
        };
        let lines = [
            Line { name: "succeeded", points: rate(&|e| e.times.as_ref().map_or(0, |t| t.len())) },
            Line { name: "failed", points: rate(&|e| e.failed) },
        ];
        let title = "Exchanges that ended, per second";
        let (lines, scale) = (&lines, Scale::Linear);
        page.plot(&Plot { title, lines, bands, end, scale, show: count });
    }

    fn moments(&self, page: &mut Page) {
        let mut html = String::from(
            "<h2>What happened</h2>\n<p><input id=\"filter\" type=\"search\" \
             placeholder=\"filter: a node, a NID, health, route, ***\" aria-label=\"Filter\"></p>\n\
             <p id=\"count\"></p>\n<table id=\"moments\">\n",
        );
        // Writing to a string does not fail, here and below.
        for line in self.lines.iter().take(MOMENTS_MAX) {
            let line = line.trim_start();
            let (at, what) = line.split_once(' ').unwrap_or((line, ""));
            let fault = if what.starts_with("***") { " class=\"fault\"" } else { "" };
            let (at, what) = (escape(at), escape(what));
            let _ = writeln!(html, "<tr{fault}><td>{at}</td><td>{what}</td></tr>");
        }
        html.push_str("</table>\n");
        let more = self.lines.len().saturating_sub(MOMENTS_MAX);
        if more > 0 {
            let _ = writeln!(html, "<p>and {more} more: <code>--trace FILE</code> writes all.</p>");
        }
        page.raw(&html);
    }
}

/// Whether a fault without an end stays.
fn lasts(kind: &lnet_scenario::FaultKind) -> bool {
    use lnet_scenario::FaultKind as K;
    !matches!(kind, K::Reset(_) | K::Tune { .. } | K::NiAdd { .. } | K::PeerDel { .. })
}

const fn severity(standing: Standing) -> u32 {
    match standing {
        Standing::Healthy => 0,
        Standing::Suspected => 10,
        Standing::Degraded { lacks } => 100 + lacks,
        Standing::Dead => 2000,
    }
}

fn count(value: f64) -> String {
    for (size, letter) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= size {
            return format!("{}{letter}", Plot::number(value / size));
        }
    }
    Plot::number(value)
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.0} s"),
        s if s >= 1e-3 => format!("{:.0} ms", s * 1e3),
        s if s >= 1e-6 => format!("{:.0} µs", s * 1e6),
        s => format!("{:.0} ns", s * 1e9),
    }
}

/// The lines of a summary, names and texts.
pub(super) fn facts(summary: &lnet_sim::Summary) -> Vec<(String, String)> {
    const NAMES: usize = 13;
    let text = summary.to_string();
    let line = |line: &str| {
        let at = line.char_indices().nth(NAMES).map_or(line.len(), |(at, _)| at);
        let (name, text) = line.split_at(at);
        (name.trim().to_owned(), text.to_owned())
    };
    text.lines().map(line).collect()
}
