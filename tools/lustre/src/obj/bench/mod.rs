//! `ulnet obj bench`: clients write and read blocks of objects that they share, cached under locks, while
//! a server may die and the network may be quiet for a while. `client.rs` is one client, `history.rs`
//! compares what all of them have seen, `conflicts.rs` looks at their locks, `servers.rs` runs the
//! servers.

mod client;
mod conflicts;
pub mod history;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use lnet::{DelayRule, NidMatch, Traffic, When};
use lnet_rt::NodeHandle;
use lustre_rt::{Callbacks, Objects};
use serde_json::json;

use crate::client::{Way, node};
use crate::ping::client_uuid;
use crate::stop::Stop;

use client::{Account, BLOCKS, Client};
use conflicts::Watch;
use history::contradictions;
use servers::Servers;

/// Objects of each target.
const OBJECTS: usize = 4;
/// A run is at least so many times as long as its quiesce.
const QUIESCE_SHARE: u32 = 4;
/// Rules of a quiesce end by hand; one that is forgotten ends by itself.
const HELD_MAX: Duration = Duration::from_secs(3600);

/// What dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kill {
    /// The first server, after a quarter of the run
    Server,
}

/// What is measured, and for how long.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj bench --clients 16 --servers 2 --kill server\n  \
    ulnet obj bench --clients 16 --servers 2 --kill server --quiesce 20s --seconds 80\n\n\
    The servers run on this machine, and end with the run. Each has a target, and stands by for that of \
    the one before; a server that is alone is started again when it was killed. All clients write and \
    read the same objects. Lost: a write that is not there at the end although no fsync or close said so. \
    Stale: a read of something that was replaced before it began. Conflicting grants: pairs of clients \
    with locks that exclude each other at the same moment. Each of them is a failure of the command.")]
pub(crate) struct Options {
    /// Clients, each with one operation under way
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    servers: u32,
    /// What to kill
    #[arg(long, value_name = "WHAT")]
    kill: Option<Kill>,
    /// Hold all messages of the clients back for so long, from the middle of the run on
    #[arg(long, value_name = "SPAN", value_parser = crate::tuning::seconds)]
    quiesce: Option<u32>,
    /// Length of the run; 30, or four times the quiesce, if not given
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Bytes of each block
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    size: u32,
    #[command(flatten)]
    way: Way,
}

/// What came of a run.
struct Outcome {
    sum: Account,
    lost: u64,
    stale: u64,
    conflicts: usize,
    evicted: usize,
    callbacks: Callbacks,
    took: Duration,
    /// The user has ended it before its time.
    interrupted: bool,
}

/// Holds messages of a node back, in both directions, for so long.
fn quiesce(node: &NodeHandle, span: Duration, stop: &Stop) -> Result<()> {
    let rule =
        DelayRule { traffic: Traffic::ALL, when: When::ALWAYS, latency: HELD_MAX, times: None };
    node.call(move |stack, now| stack.node_mut().add_delay_rule(now, rule)).blocking()??;
    stop.sleep_until(Instant::now() + span);
    let free = |stack: &mut lnet_rt::Stack, now| {
        stack.node_mut().del_delay_rules(now, NidMatch::Any, NidMatch::Any)
    };
    node.call(free).blocking()?;
    Ok(())
}

/// Runs the command.
///
/// # Errors
/// A server does not start, or something was seen that can't be: lost, stale, torn, two holders.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { quiesce, size, .. } = options;
    let quiesce = quiesce.unwrap_or(0);
    let most = QUIESCE_SHARE.saturating_mul(quiesce);
    let seconds = options.seconds.unwrap_or_else(|| most.max(30));
    if most > seconds {
        bail!("--quiesce {quiesce}: limit is a quarter of --seconds {seconds}");
    }
    if !size.is_multiple_of(8) {
        bail!("--size {size}: must be a multiple of 8");
    }
    let outcome = play(options, Duration::from_secs(seconds.into()))?;
    print(options, &outcome);
    let Outcome { sum, lost, stale, conflicts, evicted, .. } = &outcome;
    let torn = sum.reads - sum.whole;
    if *lost + *stale + torn > 0 || *conflicts > 0 {
        bail!("{lost} lost, {stale} stale, {torn} torn, {conflicts} conflicting grants");
    }
    if outcome.interrupted {
        bail!("interrupted");
    }
    // An eviction costs operations; without one they succeed.
    if sum.failed > 0 && *evicted == 0 {
        bail!("{} operations failed, the first: {}", sum.failed, sum.first_failure);
    }
    Ok(())
}

/// Ends connections.
fn leave(all: impl IntoIterator<Item = Objects>) -> Result<()> {
    for objects in all {
        objects.disconnect()?;
    }
    Ok(())
}

fn play(options: &Options, length: Duration) -> Result<Outcome> {
    let Options { clients, kill, way, size, .. } = options;
    let mut servers = Servers::start(options.servers as usize, way.port)?;
    let targets = servers.targets()?;
    let first = targets.first().ok_or_else(|| anyhow!("no target"))?;
    let (node, rpc) = node(first, way)?;
    let stop = Stop::listen(|| ())?;
    let limit = Duration::from_secs(way.timeout);
    let connect = |client: u32| -> Result<Vec<Objects>> {
        let uuid = client_uuid();
        let one = |(n, target): (usize, &crate::client::Target)| {
            let uuid = format!("{uuid}-{client}-{n}");
            let objects = Objects::new(&rpc, &target.name, &uuid, target.nids.clone())?;
            Ok(objects.with_limit(limit))
        };
        targets.iter().enumerate().map(one).collect()
    };
    let all = (0..*clients).map(connect).collect::<Result<Vec<_>>>()?;
    let mut ids = Vec::new();
    let maker = connect(*clients)?;
    for _ in 0..OBJECTS {
        for (n, objects) in maker.iter().enumerate() {
            ids.push((n, objects.create()?));
        }
    }
    // A recovery waits for each client that there is.
    leave(maker)?;
    let mut connections = BTreeMap::new();
    for (client, objects) in (0..).zip(&all) {
        let of = |(n, objects): (usize, &Objects)| (objects.import().id(), (client, n));
        connections.extend(objects.iter().enumerate().map(of));
    }
    let since = Instant::now();
    let open = |(n, targets): (u32, &Vec<Objects>)| {
        let object = |(target, id): &(usize, lustre_rt::ObjectId)| {
            targets.get(*target).map(|objects| objects.open(*id))
        };
        let objects = ids.iter().filter_map(object).collect();
        Client { n, targets: targets.clone(), objects, size: *size as usize, since }
    };
    let workers: Vec<Client> = (0..).zip(&all).map(open).collect();
    let watch = Watch::start(&rpc, connections)?;
    let mut threads = Vec::new();
    for worker in workers {
        let named = thread::Builder::new().name(format!("client-{}", worker.n));
        let stop = stop.clone();
        threads.push(named.spawn(move || worker.run(length, &stop))?);
    }
    let quarters = |n: u32| {
        stop.sleep_until(since + length * n / 4);
        !stop.is_wanted()
    };
    if kill.is_some() && quarters(1) {
        servers.kill()?;
    }
    if let Some(span) = options.quiesce
        && quarters(2)
    {
        quiesce(&node, Duration::from_secs(span.into()), &stop)?;
    }
    let (mut sum, mut evicted) = (Account::default(), BTreeSet::new());
    for (n, thread) in (0..).zip(threads) {
        let account = thread.join().map_err(|_| anyhow!("client {n} has failed"))?;
        evicted.extend(account.evicted.then_some(n));
        sum.add(account);
    }
    let took = since.elapsed();
    // Compared afterwards: first what was seen during the run, then what is there.
    let stale = contradictions(&sum.ops);
    let reader = connect(*clients + 1)?;
    let keeper = open((*clients, &reader));
    let mut last = Account::default();
    (0..keeper.objects.len() as u32 * BLOCKS).for_each(|block| keeper.read(&mut last, block));
    let (failed, torn) = (last.failed, last.reads - last.whole);
    if failed > 0 {
        bail!("{failed} blocks not read at the end, the first: {}", last.first_failure);
    }
    sum.ops.extend(last.ops);
    let lost = contradictions(&sum.ops).saturating_sub(stale) + torn;
    let conflicts = watch.stop(&evicted)?;
    let callbacks = rpc.callbacks()?;
    leave(all.into_iter().flatten().chain(reader))?;
    node.stop(Duration::from_secs(1)).blocking();
    servers.stop()?;
    Ok(Outcome {
        sum,
        lost,
        stale,
        conflicts,
        evicted: evicted.len(),
        callbacks,
        took,
        interrupted: stop.is_wanted(),
    })
}

/// A number in groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let comma = |(i, digit): (usize, char)| {
        let left = digits.len() - i;
        (i > 0 && left.is_multiple_of(3)).then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(comma).collect()
}

/// A span as it is read best.
fn short(span: Duration) -> String {
    match span.as_millis() {
        0 => format!("{} µs", span.as_micros()),
        1..1000 => format!("{} ms", span.as_millis()),
        _ => format!("{:.1} s", span.as_secs_f64()),
    }
}

fn print(options: &Options, outcome: &Outcome) {
    let Outcome { sum, lost, stale, conflicts, evicted, callbacks, took, .. } = outcome;
    let Account { writes, reads, whole, failed, waits, retries, .. } = sum;
    let (p99, longest) = (waits.quantile(990), waits.longest());
    if options.way.json {
        println!(
            "{:#}",
            json!({
                "writes": writes, "reads": reads, "verified": whole, "lost": lost, "stale": stale,
                "conflicting_grants": conflicts, "failed": failed, "clients": options.clients,
                "evicted": evicted, "callbacks": callbacks.all, "callbacks_resent": callbacks.resent,
                "data_retries": retries, "lock_waits": waits.count(),
                "lock_wait_p99_s": p99.as_secs_f64(), "lock_wait_longest_s": longest.as_secs_f64(),
                "seconds": took.as_secs_f64(),
            })
        );
        return;
    }
    let verified = match reads == whole {
        true => "all".to_owned(),
        false => format!("{} of them", grouped(*whole)),
    };
    println!(
        "writes {}  reads {}  verified {verified}   lost {lost}  stale {stale}  conflicting grants {conflicts}",
        grouped(*writes),
        grouped(*reads)
    );
    println!(
        "evicted {evicted} of {}   callbacks {} (resent {})   lock waits p99 {}, longest {}",
        options.clients,
        grouped(callbacks.all),
        grouped(callbacks.resent),
        short(p99),
        short(longest)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_spans_are_printed_to_be_read() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        for (micros, text) in
            [(0, "0 µs"), (999, "999 µs"), (41_500, "41 ms"), (9_240_000, "9.2 s")]
        {
            assert_eq!(short(Duration::from_micros(micros)), text);
        }
    }
}
