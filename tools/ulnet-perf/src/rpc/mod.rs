//! `ulnet perf rpc`: what a request with its reply costs, beside the PUTs and GETs that it is made of.
//!
//! One server process answers both: `serve.rs` puts a request layer on the stack whose buffers the
//! other tests use. The client is either a stack that the measuring thread turns (`inline.rs`) or a
//! node on its own thread, as programs have it (`threaded.rs`). Round by round the two alternate.

mod inline;
mod serve;
mod threaded;

use core::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use lnet_types::{Net, Nid};
use lustre_rt::{ConnectData, ConnectFlags, ConnectFlags2, ImportConfig, ImportKind, Opcode};
use serde::Serialize;

use super::client;
use super::local::Served;
use super::options::{Common, Limit, RpcOptions, Size, Test, Work, addresses};
use super::report::{Row, medians};

pub(super) use serve::stand;

/// Name of the target.
const TARGET: &str = "perf";
/// Does nothing.
const CALL: Opcode = Opcode(20_000);
/// The server fetches the client's bulk data.
const WRITE: Opcode = Opcode(20_001);
/// The server fills the client's bulk memory.
const READ: Opcode = Opcode(20_002);
/// The most bulk data of a call here, bytes.
const BULK_MAX: u32 = 16 << 20;

/// What clients ask for and targets grant.
fn granted() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

fn import(server: Nid) -> ImportConfig {
    ImportConfig {
        kind: ImportKind::Osc,
        target: TARGET.to_owned(),
        client: "perf-client".to_owned(),
        nids: vec![server],
        wanted: granted(),
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// Calls one after the other: the time of a round trip.
    RoundTrip,
    /// Calls, a window of them under way.
    Rate,
    /// Bulk data from the client's memory.
    Write,
    /// Bulk data into the client's memory.
    Read,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round-trip",
            Self::Rate => "rate",
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    const fn opcode(self) -> Opcode {
        match self {
            Self::RoundTrip | Self::Rate => CALL,
            Self::Write => WRITE,
            Self::Read => READ,
        }
    }
}

/// One measurement to be made.
#[derive(Clone, Copy, Debug)]
struct Job {
    what: What,
    /// Bytes of bulk data, 0 for none.
    size: u32,
    window: u16,
    limit: Limit,
}

/// What came of it.
struct Outcome {
    calls: u64,
    elapsed: Duration,
    /// Nanoseconds, of jobs with a window of one.
    round_trips: Option<Histogram<u64>>,
}

trait Caller {
    fn run(&mut self, job: Job) -> anyhow::Result<Outcome>;
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
struct Line {
    what: What,
    /// Bytes of bulk data.
    size: u32,
    window: u16,
    per_second: f64,
    mib_per_second: f64,
    /// Median and 99th percentile of a round trip, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_us: Option<(f64, f64)>,
    /// What it is held against.
    beside: String,
    /// Time divided by time for round trips, rate by rate for all others.
    ratio: f64,
}

#[derive(Serialize)]
struct Table<'a> {
    driven: &'static str,
    rounds: u8,
    rows: &'a [Line],
}

pub(super) fn run(options: &RpcOptions) -> anyhow::Result<()> {
    let common = &options.common;
    let server = addresses(&[], 1, 1, 0).first().copied().context("no address")?;
    let limit = Limit { time: Duration::from_secs_f64(options.seconds), count: u64::MAX };
    let job = |what, size: u32, window| Job { what, size, window, limit };
    let mut jobs = vec![job(What::RoundTrip, 0, 1), job(What::Rate, 0, options.window)];
    for &size in &options.size {
        // As many bytes under way as the comparison has.
        let window = u16::try_from(BULK_WINDOW * Size::MAX / size.0).unwrap_or(u16::MAX);
        let window = window.clamp(1, options.window);
        jobs.extend([job(What::Write, size.0, window), job(What::Read, size.0, window)]);
    }
    let mut lnet = Vec::new();
    let mut found: Vec<Vec<Outcome>> = jobs.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        let served = Served::start(common, &["--rpc"])?;
        lnet.extend(beside(common, server, options)?);
        let nid = Nid::from_ip(Net::TCP, server);
        let mut caller: Box<dyn Caller> = if common.inline {
            Box::new(inline::Inline::new(common, nid)?)
        } else {
            Box::new(threaded::Threaded::new(common, nid)?)
        };
        for (job, outcomes) in jobs.iter().zip(&mut found) {
            let what = || format!("{} of {} bytes", job.what.name(), job.size);
            outcomes.push(caller.run(*job).with_context(what)?);
        }
        drop(served);
    }
    let lnet = medians(lnet);
    let lines: Vec<Line> = jobs
        .iter()
        .zip(found)
        .map(|(job, outcomes)| line(job, outcomes, &lnet))
        .collect::<anyhow::Result<_>>()?;
    print(options, &lines)
}

/// Bytes under way of bulk data, in units of 1 MiB.
const BULK_WINDOW: u32 = 4;

/// The messages of LNet that calls are held against.
fn beside(
    common: &Common,
    server: std::net::IpAddr,
    options: &RpcOptions,
) -> anyhow::Result<Vec<Row>> {
    let work = |test: &[Test], size, window| Work {
        test: test.to_vec(),
        size: vec![Size(size)],
        window,
        seconds: options.seconds,
        count: None,
        json: false,
    };
    let small = work(&[Test::Latency, Test::Put], 8, options.window);
    let bulk = work(&[Test::Put, Test::Get], Size::MAX, BULK_WINDOW as u16);
    let mut rows = client::measure(common, Net::TCP, &[], server, &small)?;
    rows.extend(client::measure(common, Net::TCP, &[], server, &bulk)?);
    Ok(rows)
}

fn line(job: &Job, mut outcomes: Vec<Outcome>, lnet: &[Row]) -> anyhow::Result<Line> {
    let rate = |o: &Outcome| o.calls as f64 / o.elapsed.as_secs_f64().max(1e-9);
    outcomes.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let median = outcomes.get(outcomes.len() / 2).context("nothing was measured")?;
    let per_second = rate(median);
    let mib_per_second = per_second * f64::from(job.size) / f64::from(1 << 20);
    let round_trip_us = median.round_trips.as_ref().map(|h| {
        let us = |q| h.value_at_quantile(q) as f64 / 1000.0;
        (us(0.5), us(0.99))
    });
    let of = |test, size| {
        let row = lnet.iter().find(|r| r.test == test && r.size == size);
        row.with_context(|| format!("{} of {size} bytes was not measured", test.name()))
    };
    let (beside, ratio) = match job.what {
        What::RoundTrip => {
            let there_and_back = 2.0 * of(Test::Latency, 8)?.figure() / 1000.0;
            let own = round_trip_us.map_or(f64::NAN, |(median, _)| median);
            (format!("two PUTs of 8 bytes, {there_and_back:.1} µs"), own / there_and_back)
        }
        What::Rate => {
            let puts = of(Test::Put, 8)?.per_second;
            (format!("PUTs of 8 bytes, {:.0} thousand/s", puts / 1000.0), per_second / puts)
        }
        What::Write => {
            let gets = of(Test::Get, Size::MAX)?.mib_per_second;
            (format!("GETs of 1M, {gets:.0} MiB/s"), mib_per_second / gets)
        }
        What::Read => {
            let puts = of(Test::Put, Size::MAX)?.mib_per_second;
            (format!("PUTs of 1M, {puts:.0} MiB/s"), mib_per_second / puts)
        }
    };
    let (what, size, window) = (job.what, job.size, job.window);
    Ok(Line { what, size, window, per_second, mib_per_second, round_trip_us, beside, ratio })
}

fn print(options: &RpcOptions, lines: &[Line]) -> anyhow::Result<()> {
    let driven = if options.common.inline { "inline" } else { "threads" };
    if options.json {
        let table = Table { driven, rounds: options.rounds, rows: lines };
        println!("{}", serde_json::to_string_pretty(&table)?);
        return Ok(());
    }
    println!("{driven}, {} round(s) of {} s for each line", options.rounds, options.seconds);
    println!(
        "{:10} {:>5} {:>6} {:>9} {:>9} {:>8} {:>8} {:>6}  beside",
        "call", "bulk", "window", "1000/s", "MiB/s", "p50 µs", "p99 µs", "ratio"
    );
    for l in lines {
        let us = |f: fn((f64, f64)) -> f64| {
            l.round_trip_us.map_or_else(String::new, |both| format!("{:.1}", f(both)))
        };
        println!(
            "{:10} {:>5} {:>6} {:>9.1} {:>9.1} {:>8} {:>8} {:>6.2}  {}",
            l.what.name(),
            if l.size == 0 { "-".to_owned() } else { Size(l.size).to_string() },
            l.window,
            l.per_second / 1000.0,
            l.mib_per_second,
            us(|both| both.0),
            us(|both| both.1),
            l.ratio,
            l.beside
        );
    }
    Ok(())
}
