//! From the accounts of a run to figures.

use serde::Serialize;

use crate::clock::Micros;
use crate::course::Course;
use crate::load::ledger::Seen;
use crate::load::talk::{ClientReport, Sample, ServerReport};

/// How long the beginning is left out: connections are made, peers discovered.
const SETTLE: Micros = 1_000_000;
/// How long before the first fault the healthy part ends: what was under way then is of the fault.
const BEFORE: Micros = 20_000;
/// How long after the first fault it should be as before.
const HEALED: Micros = 1_000_000;

/// Everything that a run left behind. Times are of the common clock.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    pub(crate) course: Course,
    /// When the server was killed.
    pub(crate) killed: Vec<Micros>,
    /// How long a caller waits.
    pub(crate) timeout: Micros,
    /// How long traffic may take to come back after light.
    pub(crate) dawn: Micros,
    pub(crate) load: crate::load::talk::Load,
    pub(crate) client: ClientReport,
    pub(crate) server: ServerReport,
    pub(crate) ledger: Vec<Seen>,
}

/// Median, 99th percentile and most, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: f64,
    /// What 99 of 100 do not exceed.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// The figures of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// From when a request was due to its reply, before the faults.
    pub healthy: Spread,
    /// From the first fault on.
    pub stall: Spread,
    /// From a second after the first fault to the end of the last.
    pub later: Spread,
    /// From the first fault until the first node at an end of the load held something more against a way
    /// that it has, milliseconds; `None` if none did before the last fault was over.
    pub noticed: Option<f64>,
    /// Time in which requests waited, in a minute of faults, from the third flap on where a carrier
    /// flaps, milliseconds.
    pub stall_per_minute: Option<f64>,
    /// The same in a minute before the faults: what the machine adds by itself.
    pub stall_per_healthy_minute: f64,
    /// From the end of the last fault to the first reply, milliseconds.
    pub back: Option<f64>,
    /// The same until replies come within twice the healthy 99th percentile again.
    pub healed: Option<f64>,
    /// Messages begun.
    pub messages: u64,
    /// Errors that callers got although there was a way within their time.
    pub errors: u64,
    /// Errors that callers got when there was none.
    pub excused: u64,
    /// Errors of callers whose time was over after light, but before traffic must be back.
    pub dawn: u64,
    /// Messages that one life of a receiver got twice.
    pub duplicates: u64,
    /// Messages that a receiver got again after it had been started anew.
    pub again: u64,
    /// Messages that the sender got reported as accepted, and that no receiver has; requests taken
    /// whose reply never came.
    pub lost: u64,
    /// Messages with wrong bytes.
    pub corrupt: u64,
    /// Acknowledged payload, MB/s, before the faults.
    pub goodput_healthy: f64,
    /// From the first fault to the end of the last.
    pub goodput: f64,
    /// Messages that the nodes sent again.
    pub resends: u64,
    /// By how much the load itself was late at most, milliseconds: the machine was busy.
    pub late: f64,
    /// Kinds of errors, and how many.
    pub errnos: Vec<(i32, u64)>,
}

/// Works them out.
pub(crate) fn figures(run: &Accounts) -> Figures {
    let (from, to) = run.course.faults;
    let healthy_end = from.saturating_sub(BEFORE);
    let requests: Vec<&Sample> = run.client.samples.iter().filter(|s| s.request).collect();
    let healthy = |s: &&Sample| s.due >= run.course.begin + SETTLE && s.due < healthy_end;
    let faulty = |s: &&Sample| s.due >= healthy_end;
    let later = |s: &&Sample| s.due >= from + HEALED && s.due < to;
    let of = |which: &dyn Fn(&&Sample) -> bool| {
        spread(requests.iter().copied().filter(|s| which(s)).filter_map(waited).collect())
    };
    let (calm, stall) = (of(&healthy), of(&faulty));
    let mut out = Figures {
        healthy: calm,
        stall,
        later: of(&later),
        messages: run.client.samples.len() as u64,
        corrupt: run.client.corrupt + run.server.corrupt,
        goodput_healthy: goodput(run, run.course.begin + SETTLE, healthy_end),
        goodput: goodput(run, from, to),
        resends: resends(&run.client.counters) + resends(&run.server.counters),
        late: run.client.samples.iter().map(|s| s.begun - s.due).max().map_or(0.0, ms),
        ..Figures::default()
    };
    errors(run, &mut out);
    accounts(run, &mut out);
    let threshold = 2.0 * calm.p99.max(1.0);
    if from < to {
        let begin = run.course.flaps.get(2 * 2).copied().unwrap_or(from);
        out.stall_per_minute = Some(stalled(&requests, begin, to, threshold));
        let settled = run.course.begin + SETTLE;
        out.stall_per_healthy_minute = stalled(&requests, settled, healthy_end, threshold);
    }
    let noticed = run.client.noticed.iter().chain(&run.server.noticed).copied();
    out.noticed = noticed_after(noticed, run.course.faults);
    if to < run.course.end {
        let first = requests.iter().filter_map(|s| s.replied).filter(|at| *at >= to).min();
        out.back = first.map(|at| ms(at - to));
        let slow = |s: &&&Sample| waited(s).is_none_or(|w| w > threshold);
        let last = requests.iter().filter(|s| s.due < run.course.end.saturating_sub(SETTLE));
        let last = last.filter(slow).filter(|s| s.replied.is_some_and(|at| at >= to));
        out.healed = Some(last.filter_map(|s| s.replied).max().map_or(0.0, |at| ms(at - to)));
    }
    out
}

/// How long after the beginning of the faults something was noticed first.
pub(crate) fn noticed_after(
    all: impl Iterator<Item = Micros>,
    (from, to): (Micros, Micros),
) -> Option<f64> {
    all.filter(|at| (from..to).contains(at)).min().map(|at| ms(at - from))
}

fn ms(micros: Micros) -> f64 {
    micros as f64 / 1000.0
}

/// From when a request was due to its reply; `None` if there was none.
fn waited(sample: &Sample) -> Option<f64> {
    Some(ms(sample.replied?.saturating_sub(sample.due)))
}

fn spread(mut all: Vec<f64>) -> Spread {
    all.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (all.len() as f64 * share).ceil() as usize;
        all.get(index.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    Spread { p50: at(0.5), p99: at(0.99), max: at(1.0) }
}

/// Acknowledged payload between two times, MB/s.
fn goodput(run: &Accounts, from: Micros, to: Micros) -> f64 {
    let seconds = to.saturating_sub(from) as f64 / 1e6;
    if seconds <= 0.0 {
        return 0.0;
    }
    let within = |at: Option<Micros>| at.is_some_and(|at| at >= from && at < to);
    let mut bytes = 0;
    for s in &run.client.samples {
        if s.error.is_none() && within(s.ended) {
            bytes += u64::from(if s.request { run.load.request } else { run.load.bulk });
        }
        if within(s.replied) {
            bytes += u64::from(run.load.reply);
        }
    }
    bytes as f64 / 1e6 / seconds
}

pub(crate) fn resends(counters: &[(String, u64)]) -> u64 {
    counters.iter().find(|(name, _)| name == "resend_count").map_or(0, |(_, n)| *n)
}

/// Errors, and whether there was a way within the caller's time.
fn errors(run: &Accounts, out: &mut Figures) {
    let mut count = |begun: Micros, errno: i32| {
        let end = begun + run.timeout;
        let dark_until = |late: Micros| {
            run.course.dark.iter().any(|(from, to)| begun + BEFORE >= *from && end <= *to + late)
        };
        if dark_until(0) {
            out.excused += 1;
        } else if dark_until(run.dawn) {
            out.dawn += 1;
        } else {
            out.errors += 1;
        }
        match out.errnos.iter_mut().find(|(known, _)| *known == errno) {
            Some((_, n)) => *n += 1,
            None => out.errnos.push((errno, 1)),
        }
    };
    for s in &run.client.samples {
        match (s.error, s.ended) {
            (Some(errno), _) => count(s.begun, errno),
            // The caller got no outcome: the worst of errors.
            (None, None) => count(s.begun, 0),
            (None, Some(_)) => {}
        }
    }
    for (at, errno) in &run.server.failed {
        count(*at, *errno);
    }
}

/// Whether the accounts agree.
fn accounts(run: &Accounts, out: &mut Figures) {
    let mut unanswered = 0;
    for s in &run.client.samples {
        let seen = run.ledger.get(s.number as usize).copied().unwrap_or(Seen::Never);
        match seen {
            Seen::Never | Seen::Once => {}
            Seen::Twice => out.duplicates += 1,
            Seen::Again => out.again += 1,
        }
        // A request that came twice was answered twice, which is no second fault.
        if s.replies > 1 && seen == Seen::Once {
            out.duplicates += 1;
        }
        if let (Some(ended), None) = (s.ended, s.error) {
            // Taken by a server that died before it could answer.
            let died = run.killed.iter().any(|at| (ended..ended + SETTLE).contains(&(at + BEFORE)));
            if seen == Seen::Never {
                out.lost += 1;
            } else if s.request && s.replied.is_none() && !died {
                unanswered += 1;
            }
        }
    }
    // Replies that failed were reported to their sender, and are counted as errors.
    out.lost += u64::saturating_sub(unanswered, run.server.failed.len() as u64);
}

/// Time in which a request had waited for longer than `threshold` milliseconds, in a minute.
fn stalled(requests: &[&Sample], from: Micros, to: Micros, threshold: f64) -> f64 {
    let patience = (threshold * 1000.0) as Micros;
    let mut total = 0;
    let mut done = from;
    for s in requests {
        let end = s.replied.unwrap_or(to).min(to);
        let begin = (s.due + patience).max(done);
        if end > begin {
            total += end - begin;
            done = end;
        }
    }
    let minutes = to.saturating_sub(from) as f64 / 60e6;
    if minutes > 0.0 { ms(total) / minutes } else { 0.0 }
}
