//! The page of `ulnet sim paper --html`: the tables as they were printed, the course of the events behind
//! single figures, and that of the nineteen cabinets in each arm.

use lnet_sim::{ARMS, Moment, SiteSecond};
use plots::{Band, Cell, Line, Page, Plot, Row, Scale, Strips, escape};

use super::Table;
use super::cabinets::Runs;

const HEAD: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
style-src 'unsafe-inline'; img-src data:\"><link rel=\"icon\" href=\"data:,\">\
<style>body{max-width:1360px}pre{overflow-x:auto}</style>";

/// A moment is shown for so long, as a share of the whole.
const WIDTH: f64 = 0.006;

/// The colour of what has happened.
fn class(what: &str) -> &'static str {
    match what {
        _ if what.contains("evicted") => "bad",
        _ if what.contains("granted") => "good",
        _ => "fair",
    }
}

/// A figure's moments over the time of its table.
fn row(name: &str, moments: &[Moment], end: f64) -> Row {
    let cells = moments.iter().map(|moment| {
        let from = moment.at.as_secs_f64();
        let to = (from + end * WIDTH).min(end);
        let what = format!("{from:.1} s: {}", moment.what);
        Cell { from, to, class: class(moment.what), what }
    });
    Row { name: name.to_owned(), cells: cells.collect() }
}

fn moments(page: &mut Page, table: &Table) {
    let with = || table.rows.iter().filter(|row| !row.moments.is_empty());
    let last = with().flat_map(|row| &row.moments).map(|moment| moment.at.as_secs_f64());
    let end = last.fold(0.0, f64::max) * (1.0 + WIDTH);
    let rows: Vec<Row> = with().map(|one| row(one.what, &one.moments, end)).collect();
    if rows.is_empty() {
        return;
    }
    page.strips(&Strips {
        title: &format!("{}: what happened when, from the question on", table.name),
        legend: &[("fair", "asked, called back"), ("good", "granted"), ("bad", "evicted")],
        rows: &rows,
        bands: &[],
        end,
    });
}

/// What is drawn of a site over time.
type Figure = (&'static str, fn(&SiteSecond) -> usize);

const FIGURES: [Figure; 3] = [
    ("clients evicted that live", |second| second.evicted),
    ("connections that are lost", |second| second.lost),
    ("locks that are waited for", |second| second.waiting),
];

fn course(page: &mut Page, runs: &Runs) {
    let end =
        runs.arms.iter().flatten().map(|run| run.course.len().saturating_sub(1)).max().unwrap_or(0);
    let event = runs.arms.iter().flatten().find_map(|run| run.event);
    let bands: Vec<Band> = event
        .map(|at| Band { name: runs.event.name.to_owned(), from: at as f64, to: at as f64 })
        .into_iter()
        .collect();
    for (title, of) in FIGURES {
        let points = |run: &lnet_sim::SiteRun| {
            let seconds = run.course.iter().enumerate();
            seconds.map(|(at, second)| (at as f64, Some(of(second) as f64))).collect()
        };
        let played =
            ARMS.iter().zip(&runs.arms).filter_map(|(arm, run)| Some((arm, run.as_ref()?)));
        let lines: Vec<Line<'_>> =
            played.map(|(arm, run)| Line { name: arm.name, points: points(run) }).collect();
        page.plot(&Plot {
            title: &format!("{}, seed {}: {title}", runs.event.name, runs.seed),
            lines: &lines,
            bands: &bands,
            end: end as f64,
            scale: Scale::Linear,
            show: Plot::number,
        });
    }
}

/// The page. Of the cabinets the first seed of each event is drawn.
pub(super) fn page(text: &str, tables: &[Table], site: &[Runs]) -> String {
    let title = "Time-outs of Lustre: what the paper says, and what is played";
    let mut page = Page::new(title, HEAD);
    page.heading(title);
    page.raw(&format!("<pre>{}</pre>\n", escape(text)));
    for table in tables {
        moments(&mut page, table);
    }
    let first = site.iter().map(|runs| runs.seed).min();
    for runs in site.iter().filter(|runs| Some(runs.seed) == first) {
        course(&mut page, runs);
    }
    if !site.is_empty() {
        let arms = ARMS.iter().map(|arm| (arm.name, arm.what));
        page.facts(arms);
    }
    page.finish()
}
