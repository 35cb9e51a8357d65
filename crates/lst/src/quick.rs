//! `lst run --quick`: a whole session for the impatient. This node is the client, the named nodes
//! are servers; bulk goes both ways while pings tell the latency under that load. A row each second,
//! a summary, and no session left behind, whatever happens.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use core::time::Duration;

use lnet_admin::{ClientError, Reply, Request};
use lnet_selftest::{
    Answer, Brw, Check, Command as Order, Histogram, Kind, LocalTest, Target, TestSpec, Told,
};
use lnet_types::{Errno, Nid};
use lnetctl::args::Args;

use crate::command::stat::{interruption, pause};
use crate::command::test::size;
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
/// Return code after Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;
/// How long nodes may take over a question, seconds.
const TIMEOUT_S: u32 = 5;
const MIB: f64 = 1_048_576.0;

/// What is to be done.
#[derive(Clone, Debug)]
struct Plan {
    nids: Vec<Nid>,
    seconds: u32,
    size: u32,
    concurrency: u32,
    check: Check,
    html: Option<PathBuf>,
}

/// One second, or what there was of it.
#[derive(Clone, Debug, Default)]
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
        Ok(Self {
            nids,
            seconds: number("seconds", 10, 86_400)?,
            size: size(args.value("size").unwrap_or("1M"))?,
            concurrency: number("concurrency", 8, 1024)?,
            check,
            html: args.value("html").map(PathBuf::from),
        })
    }
}

pub(crate) fn run(lst: &mut Lst<'_>, command: &Command, args: &Args) -> i32 {
    if args.operands.is_empty() || args.has("timeout") {
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
    let name = format!("quick-{}", std::process::id());
    let new = Order::NewSession { name, timeout_s: SESSION_S, force: false, features: 1 };
    match lst.order(new) {
        Ok(_) => {}
        Err(ClientError::Refused(refusal)) if refusal.errno == Errno::EEXIST => {
            lst.complain("session already exists: 'lst show_session' shows it");
            return LOCAL;
        }
        Err(error) => return lst.failed(&error, "session", "create session"),
    }
    let result = session(lst, &plan, &interrupted);
    // From here on a second Ctrl-C has nothing left to hurry.
    let ended = lst.nodes(Order::EndSession);
    match (result, ended) {
        (Err(code), _) => code,
        (Ok(code), Ok(nodes)) if lst.node_failures(&nodes) == 0 => code,
        (Ok(_), Ok(_)) => REMOTE,
        (Ok(_), Err(error)) => lst.failed(&error, "session", "end session"),
    }
}

/// Everything between the beginning of the session and its end.
fn session(lst: &mut Lst<'_>, plan: &Plan, interrupted: &AtomicBool) -> Result<i32, i32> {
    let own = own_nid(lst)?;
    for (group, nids) in [(CLIENTS, vec![own]), (SERVERS, plan.nids.clone())] {
        let add = Order::AddGroup { name: group.to_owned() };
        lst.order(add).map_err(|e| lst.failed(&e, "group", "add group"))?;
        let add = Order::AddNodes { group: group.to_owned(), nids };
        let nodes = lst.nodes(add).map_err(|e| lst.failed(&e, "group", "add nodes"))?;
        if lst.node_failures(&nodes) > 0 {
            lst.complain("Every node needs LNet selftest: 'lnetd --selftest', or the module");
            return Err(REMOTE);
        }
    }
    let add = Order::AddBatch { name: BATCH.to_owned() };
    lst.order(add).map_err(|e| lst.failed(&e, "batch", "add batch"))?;
    let Plan { size, check, concurrency, .. } = *plan;
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
    let run = Order::Run { batch: BATCH.to_owned(), timeout_s: 0 };
    let nodes = lst.nodes(run).map_err(|e| lst.failed(&e, "batch", "run batch"))?;
    if lst.node_failures(&nodes) > 0 {
        return Err(REMOTE);
    }
    let (samples, tests, took) = watch(lst, plan, interrupted)?;
    let stop = Order::Stop { batch: BATCH.to_owned(), force: true };
    lst.nodes(stop).map_err(|e| lst.failed(&e, "batch", "stop batch"))?;
    let errors = server_errors(lst);
    conclude(lst, plan, samples, &tests, took, errors)?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    let failed = errors > 0 || tests.iter().any(|t| t.errors > 0);
    Ok(if failed { REMOTE } else { 0 })
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

/// A row each second until the time is over, the tests have stopped, or somebody wants no more.
fn watch(
    lst: &mut Lst<'_>,
    plan: &Plan,
    interrupted: &AtomicBool,
) -> Result<(Vec<Sample>, [LocalTest; 3], f64), i32> {
    lst.say("     s   write MiB/s    read MiB/s    pings/s   p50 us   p99 us   errors");
    let start = Instant::now();
    let mut before = local(lst)?;
    let mut last = 0.0;
    let mut samples = Vec::new();
    for second in 1..=plan.seconds {
        let due = Duration::from_secs(second.into()).saturating_sub(start.elapsed());
        let on = pause(interrupted, due);
        let now = local(lst)?;
        let at = start.elapsed().as_secs_f64();
        let errors: u64 = now.iter().map(|t| t.errors).sum();
        if at - last > 0.2 {
            let sample = sample(&before, &now, last, at);
            lst.say(format_args!(
                "{:6.0} {:13.1} {:13.1} {:10.0} {:8.0} {:8.0} {errors:8}",
                sample.at, sample.write, sample.read, sample.pings, sample.p50, sample.p99
            ));
            samples.push(sample);
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
    Sample { at: to, write, read, pings: rate(2), p50: us(50), p99: us(99) }
}

/// Errors that servers found.
fn server_errors(lst: &mut Lst<'_>) -> u64 {
    let target = Target::Group(SERVERS.to_owned());
    let Ok(nodes) = lst.nodes(Order::Stat { target, timeout_s: TIMEOUT_S }) else { return 1 };
    let unreached = lst.node_failures(&nodes) as u64;
    let told = |outcome: &Result<Told, _>| match outcome {
        Ok(Told::Counters(c)) => u64::from(c.brw_errors) + u64::from(c.ping_errors),
        _ => 0,
    };
    unreached + nodes.iter().map(|n| told(&n.outcome)).sum::<u64>()
}

fn conclude(
    lst: &mut Lst<'_>,
    plan: &Plan,
    samples: Vec<Sample>,
    tests: &[LocalTest; 3],
    took: f64,
    server_errors: u64,
) -> Result<(), i32> {
    let Plan { size, concurrency, .. } = *plan;
    let check = match plan.check {
        Check::None => "no check",
        Check::Simple => "check simple",
        Check::Full => "check full",
        Check::Discard => "data thrown away",
    };
    let nodes = plan.nids.len();
    let servers = if nodes == 1 { "server" } else { "servers" };
    let title = format!(
        "{took:.1} s, {nodes} {servers}, {concurrency} transfers of {size} bytes at a time each way, {check}"
    );
    let mut rows = Vec::new();
    for (name, test) in ["write", "read", "ping"].into_iter().zip(tests) {
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
    if server_errors > 0 {
        rows.push(("servers".to_owned(), format!("{server_errors} errors")));
    }
    lst.say(format_args!("\n{title}"));
    for (name, text) in &rows {
        lst.say(format_args!("{name:<8} {text}"));
    }
    if let Some(file) = &plan.html {
        let targets: Vec<String> = plan.nids.iter().map(ToString::to_string).collect();
        let title = format!("LNet selftest: {} ({title})", targets.join(", "));
        let page = html::page(&Summary { title, rows, samples });
        if let Err(e) = fs::write(file, page) {
            lst.complain(format_args!("lst run: {}: {e}", file.display()));
            return Err(LOCAL);
        }
        lst.say(format_args!("plots in {}", file.display()));
    }
    Ok(())
}
