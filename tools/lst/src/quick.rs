//! `lst run --quick`: a whole session for the impatient. This node is the client, the named nodes
//! are servers; bulk goes both ways while pings tell the latency under that load. A row each second,
//! a summary, and no session left behind, whatever happens. With a range of sizes a row for each size.
//!
//! It succeeds only if the tests moved data to the end: a call that failed, and a last second in which
//! no bulk transfer ended, are failures of the run.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use core::time::Duration;

use lnet_admin::{ClientError, Reply, Request};
use lnet_selftest::{
    Answer, Brw, Check, Command as Order, Histogram, Kind, LocalTest, NodeResult, Report, Target,
    TestSpec,
};
use lnet_types::{Errno, Nid};
use lnetctl::args::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command::stat::{interruption, pause};
use crate::command::test::{SIZE_MAX, bytes, size};
use crate::errors::{LOCAL, REMOTE};
use crate::frame::wrong_usage;
use crate::table::Command;
use crate::{Lst, html};

/// Names within the session.
const BATCH: &str = "quick";
const CLIENTS: &str = "here";
const SERVERS: &str = "there";
/// The session outlives a console that has been killed by so much, seconds.
const SESSION_S: u32 = 60;
/// A node has a session of another console, or one that its console could not end.
const BUSY: &str = "A node is in another session: 'lst end_session' on its console ends it, \
                    and it ends by itself within 100 s if its console is gone";
/// Return code after Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;
/// How long nodes may take over a question, seconds.
const TIMEOUT_S: u32 = 5;
/// Most seconds that a call may take; less in a run that is shorter than twice that.
const PATIENCE_MAX_S: u32 = 64;
/// How long a run lasts, and how long each size of several, seconds.
const SECONDS: (u32, u32) = (10, 2);
/// A row with less of a second behind it than this shows nothing.
const ROW_MIN_S: f64 = 0.2;
/// How long calls in flight may take when the tests are stopped, and the time between two looks.
const DRAIN: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(20);
/// How many times the size before each size of a range is.
const SIZE_STEP: u32 = 4;
const MIB: f64 = 1_048_576.0;

/// What is to be done.
#[derive(Clone, Debug)]
struct Plan {
    nids: Vec<Nid>,
    seconds: u32,
    /// The sizes of the bulk transfers, one after the other.
    sizes: Vec<u32>,
    /// More was asked for than there can be.
    cut: bool,
    concurrency: u32,
    check: Check,
    html: Option<PathBuf>,
    json: bool,
}

/// What came out of one size.
#[derive(Clone, Debug)]
struct Outcome {
    size: u32,
    samples: Vec<Sample>,
    tests: [LocalTest; 3],
    /// How long it took, seconds.
    took: f64,
    /// Errors that servers found.
    server_errors: u64,
    /// Its session could not be ended on every node.
    left: bool,
}

/// One second, or what there was of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sample {
    /// Since the start, seconds.
    pub(crate) at: f64,
    /// To the servers, MiB/s.
    pub(crate) write: f64,
    /// From the servers, MiB/s.
    pub(crate) read: f64,
    /// Pings per second.
    pub(crate) pings: f64,
    /// Median and 99th percentile of their round trips, microseconds.
    pub(crate) p50: f64,
    /// See `p50`.
    pub(crate) p99: f64,
    /// Calls of all tests that have failed so far.
    pub(crate) errors: u64,
    /// Calls in flight for longer than a second.
    pub(crate) stalled: u32,
    /// How long the oldest call in flight has been so, seconds.
    pub(crate) oldest: f64,
}

impl Sample {
    /// Whether a bulk transfer ended in it.
    fn moves(&self) -> bool {
        self.write > 0.0 || self.read > 0.0
    }
}

impl Outcome {
    fn errors(&self) -> u64 {
        self.server_errors + self.tests.iter().map(|t| t.errors).sum::<u64>()
    }

    /// Seconds in which no bulk transfer ended.
    fn still(&self) -> f64 {
        let mut before = 0.0;
        let mut still = 0.0;
        for sample in &self.samples {
            if !sample.moves() {
                still += sample.at - before;
            }
            before = sample.at;
        }
        still
    }

    /// The longest wait for a call, ended or in flight, seconds.
    fn longest(&self) -> f64 {
        let ended = self.tests.iter().map(|t| t.took.max().as_secs_f64());
        ended.chain(self.samples.iter().map(|s| s.oldest)).fold(0.0, f64::max)
    }

    /// Why the run is a failure.
    fn failure(&self) -> Option<&'static str> {
        match self.samples.last() {
            _ if self.errors() > 0 => Some("calls failed"),
            _ if self.left => Some("the session could not be ended on every node"),
            Some(last) if !last.moves() => Some("no bulk transfer ended in the last second"),
            Some(_) => None,
            None => Some("no second was measured"),
        }
    }
}

/// What the page of plots says about the run.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) title: String,
    /// Name, and what there is to say.
    pub(crate) rows: Vec<(String, String)>,
    pub(crate) samples: Vec<Sample>,
}

impl Plan {
    fn new(lst: &mut Lst<'_>, args: &Args) -> Result<Self, String> {
        let number = |option: &str, default: u32, max: u32| match args.value(option) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| (1..=max).contains(n))
                .ok_or_else(|| format!("Invalid {option} {text}, expected 1 to {max}")),
        };
        let mut nids = Vec::new();
        for list in &args.operands {
            let more = lst.nids(list).ok_or_else(|| format!("{list}: no nodes"))?;
            nids.extend(more.into_iter().filter(|nid| !nids.contains(nid)).collect::<Vec<_>>());
        }
        let check = match args.value("check").unwrap_or("simple") {
            "none" => Check::None,
            "simple" => Check::Simple,
            "full" => Check::Full,
            other => return Err(format!("Invalid check {other}, expected none, simple or full")),
        };
        let (sizes, cut) = sizes(args.value("size").unwrap_or("1M"))?;
        let default = if sizes.len() == 1 { SECONDS.0 } else { SECONDS.1 };
        let html = args.value("html").map(PathBuf::from);
        if html.is_some() && sizes.len() > 1 {
            return Err("--html: expected one size, not a range".to_owned());
        }
        Ok(Self {
            nids,
            seconds: number("seconds", default, 86_400)?,
            sizes,
            cut,
            concurrency: number("concurrency", 8, 1024)?,
            check,
            html,
            json: args.has("json"),
        })
    }

    /// How long a call may take, seconds: a call that never ends is an error within the run.
    fn patience_s(&self) -> u32 {
        (self.seconds / 2).clamp(1, PATIENCE_MAX_S)
    }
}

/// A size, or the sizes of a range `8..4M`, each four times the one before, and its end. A range ends at
/// the largest transfer that there is; whether that was necessary.
fn sizes(text: &str) -> Result<(Vec<u32>, bool), String> {
    let Some((from, to)) = text.split_once("..") else { return Ok((vec![size(text)?], false)) };
    let (from, wanted) = (size(from)?, bytes(to)?);
    let to = wanted.min(SIZE_MAX) as u32;
    if !to.is_multiple_of(8) {
        return Err(format!("Invalid size {text}, expected multiples of 8"));
    }
    if from > to {
        return Err(format!("Invalid size {text}, expected the smaller one first"));
    }
    let steps = core::iter::successors(Some(from), |n| n.checked_mul(SIZE_STEP));
    let mut all: Vec<u32> = steps.take_while(|n| *n < to).collect();
    all.push(to);
    Ok((all, wanted > SIZE_MAX))
}

pub(crate) fn run(lst: &mut Lst<'_>, command: &Command, args: &Args) -> i32 {
    if args.has("timeout") {
        lst.complain("lst run: --timeout: expected without --quick; --seconds says how long");
        return wrong_usage(lst, command);
    }
    if args.operands.is_empty() {
        lst.complain("lst run: --quick: expected the NIDs of the servers");
        return wrong_usage(lst, command);
    }
    let plan = match Plan::new(lst, args) {
        Ok(plan) => plan,
        Err(complaint) => {
            lst.complain(format_args!("lst run: {complaint}"));
            return LOCAL;
        }
    };
    // A file that cannot be written is found now, not after the run.
    if let Some(file) = &plan.html
        && let Err(e) = fs::write(file, "")
    {
        lst.complain(format_args!("lst run: {}: {e}", file.display()));
        return LOCAL;
    }
    if lst.key == 0 {
        lst.key = std::process::id().max(1);
    }
    let interrupted = interruption();
    let sweep = plan.sizes.len() > 1;
    if plan.cut {
        lst.complain(format_args!("lst run: sizes end at {SIZE_MAX}, the largest transfer"));
    }
    if sweep && !plan.json {
        lst.say("     bytes   write MiB/s    read MiB/s    calls/s   p50 us   p99 us  longest s   errors");
    }
    let mut outcomes = Vec::new();
    let mut code = 0;
    for &size in &plan.sizes {
        match one(lst, &plan, size, &interrupted) {
            Ok(outcome) => outcomes.push(outcome),
            Err(failed) => {
                code = failed;
                break;
            }
        }
        if let (Some(outcome), true, false) = (outcomes.last(), sweep, plan.json) {
            lst.say(row(outcome));
        }
        if interrupted.load(Ordering::Relaxed) {
            code = INTERRUPTED;
            break;
        }
    }
    if let Err(failed) = conclude(lst, &plan, &outcomes, code) {
        return failed;
    }
    if code != 0 {
        return code;
    }
    let failures: Vec<_> = outcomes.iter().filter_map(|o| Some((o.size, o.failure()?))).collect();
    for (size, why) in &failures {
        lst.complain(format_args!("lst run: transfers of {size} bytes: {why}"));
    }
    if failures.is_empty() { 0 } else { REMOTE }
}

/// A session for one size.
fn one(
    lst: &mut Lst<'_>,
    plan: &Plan,
    size: u32,
    interrupted: &AtomicBool,
) -> Result<Outcome, i32> {
    let name = format!("quick-{}", std::process::id());
    let new = Order::NewSession { name, timeout_s: SESSION_S, force: false, features: 1 };
    match lst.order(new) {
        Ok(_) => {}
        Err(ClientError::Refused(refusal)) if refusal.errno == Errno::EEXIST => {
            lst.complain("session already exists: 'lst show_session' shows it");
            return Err(LOCAL);
        }
        Err(error) => return Err(lst.failed(&error, "session", "create session")),
    }
    let result = session(lst, plan, size, interrupted);
    // From here on a second Ctrl-C has nothing left to hurry.
    let ended = lst.nodes(Order::EndSession);
    let outcome = result?;
    // What was measured is shown in any case.
    let left = match ended {
        Ok(nodes) => lst.node_failures(&nodes) > 0,
        Err(error) => lst.failed(&error, "session", "end session") != 0,
    };
    Ok(Outcome { left, ..outcome })
}

/// Everything between the beginning of the session and its end.
fn session(
    lst: &mut Lst<'_>,
    plan: &Plan,
    size: u32,
    interrupted: &AtomicBool,
) -> Result<Outcome, i32> {
    let own = own_nid(lst)?;
    for (group, nids) in [(CLIENTS, vec![own]), (SERVERS, plan.nids.clone())] {
        let add = Order::AddGroup { name: group.to_owned() };
        lst.order(add).map_err(|e| lst.failed(&e, "group", "add group"))?;
        let add = Order::AddNodes { group: group.to_owned(), nids };
        let nodes = lst.nodes(add).map_err(|e| lst.failed(&e, "group", "add nodes"))?;
        if lst.node_failures(&nodes) > 0 {
            let is_busy = |node: &NodeResult| {
                node.outcome.as_ref().is_err_and(|e| e.refused && e.errno() == Errno::EBUSY)
            };
            lst.complain(match nodes.iter().any(is_busy) {
                true => BUSY,
                false => "Every node needs LNet selftest: 'lnetd --selftest', or the module",
            });
            return Err(REMOTE);
        }
    }
    let add = Order::AddBatch { name: BATCH.to_owned() };
    lst.order(add).map_err(|e| lst.failed(&e, "batch", "add batch"))?;
    let Plan { check, concurrency, .. } = *plan;
    let bulk = |write| Kind::Brw(Brw { write, size, offset: 0, check });
    for (kind, concurrency) in
        [(bulk(true), concurrency), (bulk(false), concurrency), (Kind::Ping, 1)]
    {
        let spec = TestSpec {
            batch: BATCH.to_owned(),
            from: CLIENTS.to_owned(),
            to: SERVERS.to_owned(),
            repeat: None,
            concurrency,
            clients: 1,
            servers: plan.nids.len() as u32,
            kind,
        };
        let nodes =
            lst.nodes(Order::AddTest(spec)).map_err(|e| lst.failed(&e, "test", "add test"))?;
        if lst.node_failures(&nodes) > 0 {
            return Err(REMOTE);
        }
    }
    let patience = Order::Patience { seconds: plan.patience_s() };
    lst.order(patience).map_err(|e| lst.failed(&e, "session", "set the limit of calls"))?;
    let run = Order::Run { batch: BATCH.to_owned(), timeout_s: 0 };
    let nodes = lst.nodes(run).map_err(|e| lst.failed(&e, "batch", "run batch"))?;
    if lst.node_failures(&nodes) > 0 {
        return Err(REMOTE);
    }
    let (samples, tests, took) = watch(lst, plan, interrupted)?;
    halt(lst)?;
    let server_errors = server_errors(lst);
    Ok(Outcome { size, samples, tests, took, server_errors, left: false })
}

/// Stops the tests. Calls in flight may end: the bulk of one that is abandoned finds nothing at this
/// node, which counts and logs a drop. Those that do not end are abandoned.
fn halt(lst: &mut Lst<'_>) -> Result<(), i32> {
    let order = |lst: &mut Lst<'_>, force| {
        let stop = Order::Stop { batch: BATCH.to_owned(), force };
        lst.nodes(stop).map_err(|e| lst.failed(&e, "batch", "stop batch"))
    };
    order(lst, false)?;
    let end = Instant::now() + DRAIN;
    while Instant::now() < end {
        let batch = BATCH.to_owned();
        let query = Order::Query { batch, test: 0, server: false, timeout_s: TIMEOUT_S };
        let is_idle = |node: &NodeResult| matches!(node.outcome, Ok(Report::Active(0)));
        match lst.nodes(query) {
            Ok(nodes) if nodes.iter().all(is_idle) => return Ok(()),
            _ => std::thread::sleep(GLANCE),
        }
    }
    order(lst, true).map(drop)
}

/// The NID that servers see us by: the first that has a short form.
fn own_nid(lst: &mut Lst<'_>) -> Result<Nid, i32> {
    match lst
        .daemon
        .ask_within(&Request::NetShow { net: None, detail: false }, Duration::from_secs(30))
    {
        Ok(Reply::Nets(nets)) => {
            let mut nids = nets.iter().flat_map(|net| net.nis.iter().map(|ni| ni.nid));
            nids.find(|nid| !nid.is_loopback() && !nid.is_large()).ok_or_else(|| {
                lst.complain("lst run: this node has no interface with a short NID");
                LOCAL
            })
        }
        Ok(_) => Err(lst.failed(&ClientError::Unexpected, "node", "show nets")),
        Err(error) => Err(lst.failed(&error, "node", "show nets")),
    }
}

/// The three tests in their order: write, read, ping.
fn local(lst: &mut Lst<'_>) -> Result<[LocalTest; 3], i32> {
    match lst.order(Order::Local) {
        Ok(Answer::Local(tests)) => tests.try_into().map_err(|tests: Vec<LocalTest>| {
            let n = tests.len();
            lst.complain(format_args!("lst run: the session is gone ({n} tests instead of 3)"));
            LOCAL
        }),
        Ok(_) => Err(lst.failed(&ClientError::Unexpected, "test", "show tests")),
        Err(error) => Err(lst.failed(&error, "test", "show tests")),
    }
}

/// A row each second until the time is over, the tests have stopped, or the user interrupts.
fn watch(
    lst: &mut Lst<'_>,
    plan: &Plan,
    interrupted: &AtomicBool,
) -> Result<(Vec<Sample>, [LocalTest; 3], f64), i32> {
    let rows = plan.sizes.len() == 1 && !plan.json;
    if rows {
        lst.say(
            "     s   write MiB/s    read MiB/s    pings/s   p50 us   p99 us  stalled longest s   errors",
        );
    }
    let start = Instant::now();
    let mut before = local(lst)?;
    let mut last = 0.0;
    let mut samples = Vec::new();
    for second in 1..=plan.seconds {
        let due = Duration::from_secs(second.into()).saturating_sub(start.elapsed());
        let on = pause(interrupted, due);
        let now = local(lst)?;
        let at = start.elapsed().as_secs_f64();
        if at - last > ROW_MIN_S {
            let s = sample(&before, &now, last, at);
            if rows {
                lst.say(format_args!(
                    "{:6.0} {:13.1} {:13.1} {:10.0} {:8.0} {:8.0} {:8} {:9.2} {:8}",
                    s.at, s.write, s.read, s.pings, s.p50, s.p99, s.stalled, s.oldest, s.errors
                ));
            }
            samples.push(s);
            (before, last) = (now, at);
        }
        if !on || before.iter().all(|t| t.active == 0) {
            break;
        }
    }
    Ok((samples, local(lst)?, start.elapsed().as_secs_f64()))
}

fn sample(before: &[LocalTest; 3], now: &[LocalTest; 3], from: f64, to: f64) -> Sample {
    let between: Vec<Histogram> =
        now.iter().zip(before).map(|(now, then)| now.took.since(&then.took)).collect();
    let rate = |i: usize| between.get(i).map_or(0, Histogram::count) as f64 / (to - from);
    let bytes = |i: usize| now.get(i).map_or(0, |t| t.bytes) as f64 / MIB;
    let pings = between.last().cloned().unwrap_or_default();
    let us = |percent| pings.percentile(percent).as_secs_f64() * 1e6;
    let (write, read) = (rate(0) * bytes(0), rate(1) * bytes(1));
    Sample {
        at: to,
        write,
        read,
        pings: rate(2),
        p50: us(50),
        p99: us(99),
        errors: now.iter().map(|t| t.errors).sum(),
        stalled: now.iter().map(|t| t.stalled).sum(),
        oldest: now.iter().map(|t| t.oldest.as_secs_f64()).fold(0.0, f64::max),
    }
}

/// Errors that servers found.
fn server_errors(lst: &mut Lst<'_>) -> u64 {
    let target = Target::Group(SERVERS.to_owned());
    let Ok(nodes) = lst.nodes(Order::Stat { target, timeout_s: TIMEOUT_S }) else { return 1 };
    let unreached = lst.node_failures(&nodes) as u64;
    let errors_of = |outcome: &Result<Report, _>| match outcome {
        Ok(Report::Counters(c)) => u64::from(c.brw_errors) + u64::from(c.ping_errors),
        _ => 0,
    };
    unreached + nodes.iter().map(|n| errors_of(&n.outcome)).sum::<u64>()
}

/// One size of several.
fn row(o: &Outcome) -> String {
    let [write, read, ping] = &o.tests;
    let rate = |t: &LocalTest| t.took.count() as f64 / o.took;
    let bandwidth = |t: &LocalTest| rate(t) * t.bytes as f64 / MIB;
    let mut both = write.took.clone();
    both.merge(&read.took);
    let us = |percent| both.percentile(percent).as_secs_f64() * 1e6;
    let calls = rate(write) + rate(read) + rate(ping);
    format!(
        "{:10} {:13.1} {:13.1} {calls:10.0} {:8.0} {:8.0} {:10.2} {:8}",
        o.size,
        bandwidth(write),
        bandwidth(read),
        us(50),
        us(99),
        o.longest(),
        o.errors()
    )
}

/// The summary of one size: its title and rows.
fn summary(plan: &Plan, o: &Outcome) -> (String, Vec<(String, String)>) {
    let check = match plan.check {
        Check::None => "no check",
        Check::Simple => "check simple",
        Check::Full => "check full",
        Check::Discard => "data thrown away",
    };
    let nodes = plan.nids.len();
    let servers = if nodes == 1 { "server" } else { "servers" };
    let (concurrency, Outcome { size, took, .. }) = (plan.concurrency, o);
    let title = format!(
        "{took:.1} s, {nodes} {servers}, {concurrency} transfers of {size} bytes at a time each way, {check}"
    );
    let mut rows = Vec::new();
    for (name, test) in TESTS.into_iter().zip(&o.tests) {
        let calls = test.took.count();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let moved = match test.bytes {
            0 => String::new(),
            bytes => format!("{:.1} MiB/s, ", calls as f64 * bytes as f64 / MIB / took),
        };
        rows.push((
            name.to_owned(),
            format!(
                "{moved}{:.0} calls/s, mean {:.0} us, p50 {:.0}, p99 {:.0}, max {:.0}, {} errors",
                calls as f64 / took,
                us(test.took.mean()),
                us(test.took.percentile(50)),
                us(test.took.percentile(99)),
                us(test.took.max()),
                test.errors
            ),
        ));
    }
    if o.server_errors > 0 {
        rows.push(("servers".to_owned(), format!("{} errors", o.server_errors)));
    }
    let progress = format!(
        "{:.1} s without a bulk transfer ending, longest call {:.2} s, limit of a call {} s",
        o.still(),
        o.longest(),
        plan.patience_s()
    );
    rows.push(("progress".to_owned(), progress));
    (title, rows)
}

/// The tests, in their order.
const TESTS: [&str; 3] = ["write", "read", "ping"];

fn conclude(lst: &mut Lst<'_>, plan: &Plan, outcomes: &[Outcome], code: i32) -> Result<(), i32> {
    if plan.json {
        lst.say(document(plan, outcomes, code));
        return Ok(());
    }
    let [outcome] = outcomes else { return Ok(()) };
    if plan.sizes.len() > 1 {
        return Ok(());
    }
    let (title, rows) = summary(plan, outcome);
    lst.say(format_args!("\n{title}"));
    for (name, text) in &rows {
        lst.say(format_args!("{name:<8} {text}"));
    }
    if let Some(file) = &plan.html {
        let targets: Vec<String> = plan.nids.iter().map(ToString::to_string).collect();
        let title = format!("LNet selftest: {} ({title})", targets.join(", "));
        let page = html::page(&Summary { title, rows, samples: outcome.samples.clone() });
        if let Err(e) = fs::write(file, page) {
            lst.complain(format_args!("lst run: {}: {e}", file.display()));
            return Err(LOCAL);
        }
        lst.say(format_args!("plots in {}", file.display()));
    }
    Ok(())
}

/// All of it for programs.
fn document(plan: &Plan, outcomes: &[Outcome], code: i32) -> Value {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let test = |(name, t): (&str, &LocalTest), took: f64| {
        let calls = t.took.count();
        json!({
            "test": name,
            "calls": calls,
            "mib_per_s": calls as f64 * t.bytes as f64 / MIB / took,
            "mean_us": us(t.took.mean()),
            "p50_us": us(t.took.percentile(50)),
            "p99_us": us(t.took.percentile(99)),
            "max_us": us(t.took.max()),
            "errors": t.errors,
        })
    };
    let size = |o: &Outcome| {
        let tests: Vec<Value> = TESTS.into_iter().zip(&o.tests).map(|t| test(t, o.took)).collect();
        json!({
            "bytes": o.size,
            "seconds": o.took,
            "tests": tests,
            "server_errors": o.server_errors,
            "seconds_without_progress": o.still(),
            "longest_call_s": o.longest(),
            "failure": o.failure(),
            "rows": o.samples,
        })
    };
    let nids: Vec<String> = plan.nids.iter().map(ToString::to_string).collect();
    let good = code == 0 && outcomes.iter().all(|o| o.failure().is_none());
    json!({
        "servers": nids,
        "concurrency": plan.concurrency,
        "limit_of_a_call_s": plan.patience_s(),
        "sizes": outcomes.iter().map(size).collect::<Vec<_>>(),
        "success": good,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_sizes_grows_fourfold_to_its_end_or_the_largest_transfer() {
        let whole =
            |text| sizes(text).map(|(sizes, cut)| (!cut).then_some(sizes)).unwrap().unwrap();
        assert_eq!(whole("64k"), [65_536]);
        assert_eq!(whole("8..100k"), [8, 32, 128, 512, 2048, 8192, 32_768, 102_400]);
        assert_eq!(whole("8..8"), [8]);
        assert_eq!(whole("256k..1M"), [262_144, 1_048_576]);
        assert_eq!(sizes("256k..4M").unwrap(), (vec![262_144, 1_048_576], true));
        for bad in ["8..", "..8", "16..8", "8..12", "x..1k", "4M"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }

    fn outcome(rows: &[(f64, f64)], errors: u64) -> Outcome {
        let test = || LocalTest {
            batch: 1,
            test: 1,
            kind: "brw".to_owned(),
            bytes: 8,
            active: 1,
            errors: 0,
            took: Histogram::default(),
            stalled: 0,
            oldest: Duration::ZERO,
        };
        let sample = |(i, (write, oldest)): (usize, &(f64, f64))| Sample {
            at: i as f64 + 1.0,
            write: *write,
            oldest: *oldest,
            ..Sample::default()
        };
        let samples = rows.iter().enumerate().map(sample).collect();
        Outcome {
            size: 8,
            samples,
            tests: [test(), test(), test()],
            took: 1.0,
            server_errors: errors,
            left: false,
        }
    }

    #[test]
    fn a_run_that_stands_still_at_its_end_or_has_errors_is_a_failure() {
        let moving = outcome(&[(1.0, 0.0), (0.0, 0.9), (0.0, 1.9), (5.0, 0.1)], 0);
        assert_eq!((moving.failure(), moving.still(), moving.longest()), (None, 2.0, 1.9));
        let still = outcome(&[(1.0, 0.0), (0.0, 0.9)], 0);
        assert_eq!(still.failure(), Some("no bulk transfer ended in the last second"));
        assert_eq!(outcome(&[(1.0, 0.0)], 1).failure(), Some("calls failed"));
        assert_eq!(outcome(&[], 0).failure(), Some("no second was measured"));
    }
}
