//! Counters of nodes: rates and bandwidth (L-20), errors (L-21).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use core::time::Duration;

use lnet_selftest::{Command as Order, Counters, NodeResult, Nodes, Report, Target};
use lnet_types::Nid;
use lnetctl::args::Args;

use super::{TIMEOUT_S, number, target};
use crate::Lst;
use crate::errors::{LOCAL, REMOTE, id};
use crate::table::Command;

const MIB: f64 = 1_048_576.0;
const MB: f64 = 1_000_000.0;

/// What a report shows.
struct Shown {
    bandwidth: bool,
    rate: bool,
    read: bool,
    write: bool,
    avg: bool,
    min: bool,
    max: bool,
    mbs: bool,
    /// What is counted: everything in LNet, or what the tests ask and move.
    of: Counted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Lnet,
    Rpc,
}

impl Shown {
    fn new(args: &Args) -> Self {
        let any = |options: &[&str]| options.iter().any(|o| args.has(o));
        let kinds = any(&["bw", "rate"]);
        let ways = any(&["read", "write"]);
        let sums = any(&["avg", "min", "max"]);
        Self {
            bandwidth: args.has("bw") || !kinds,
            rate: args.has("rate") || !kinds,
            read: args.has("read") || !ways,
            write: args.has("write") || !ways,
            avg: args.has("avg") || !sums,
            min: args.has("min") || !sums,
            max: args.has("max") || !sums,
            mbs: args.has("mbs"),
            of: if args.has("rpc") { Counted::Rpc } else { Counted::Lnet },
        }
    }

    /// One line: the numbers of all nodes in one direction.
    fn line(&self, way: char, all: &[f64], decimals: usize, unit: &str) -> String {
        let avg = all.iter().sum::<f64>() / all.len().max(1) as f64;
        let min = all.iter().copied().fold(f64::INFINITY, f64::min);
        let max = all.iter().copied().fold(0.0, f64::max);
        let shown = [(self.avg, "Avg", avg), (self.min, "Min", min), (self.max, "Max", max)];
        let parts: Vec<String> = shown
            .into_iter()
            .filter(|(wanted, ..)| *wanted)
            .map(|(_, name, n)| format!("{name}: {n:<8.decimals$} {unit}"))
            .collect();
        // Units of bandwidth bring the blank between two columns along, also at the end of a line.
        format!("[{way}] {}", parts.join(if unit.ends_with(' ') { "" } else { " " }))
    }
}

/// What nodes of a target did between two samples, per second.
#[derive(Default)]
struct Rates {
    received: Vec<f64>,
    sent: Vec<f64>,
    received_bytes: Vec<f64>,
    sent_bytes: Vec<f64>,
}

impl Rates {
    fn between(
        of: Counted,
        before: &BTreeMap<Nid, Counters>,
        after: &BTreeMap<Nid, Counters>,
    ) -> Option<Self> {
        let mut rates = Self::default();
        for (nid, now) in after {
            let then = before.get(nid)?;
            let ms = now.running_ms.checked_sub(then.running_ms).filter(|ms| *ms > 0)?;
            let per_second = |n: u64| n as f64 * 1000.0 / f64::from(ms);
            let count = |now: u32, then: u32| per_second(u64::from(now.wrapping_sub(then)));
            let bytes = |now: u64, then: u64| per_second(now.wrapping_sub(then));
            let (received, sent, received_bytes, sent_bytes) = match of {
                Counted::Lnet => (
                    count(now.recv_count, then.recv_count),
                    count(now.send_count, then.send_count),
                    bytes(now.recv_length, then.recv_length),
                    bytes(now.send_length, then.send_length),
                ),
                // A bulk GET brings data in, a bulk PUT takes it out.
                Counted::Rpc => (
                    count(now.rpcs_rcvd, then.rpcs_rcvd),
                    count(now.rpcs_sent, then.rpcs_sent),
                    bytes(now.bulk_get, then.bulk_get),
                    bytes(now.bulk_put, then.bulk_put),
                ),
            };
            rates.received.push(received);
            rates.sent.push(sent);
            rates.received_bytes.push(received_bytes);
            rates.sent_bytes.push(sent_bytes);
        }
        Some(rates)
    }
}

fn counters(nodes: &Nodes) -> BTreeMap<Nid, Counters> {
    let counters_of = |n: &NodeResult| match &n.outcome {
        Ok(Report::Counters(c)) => Some((n.nid, **c)),
        _ => None,
    };
    nodes.iter().filter_map(counters_of).collect()
}

/// Set by Ctrl-C from here on.
pub(crate) fn interruption() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    // Without a handler Ctrl-C simply ends the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag));
    let _ = signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&flag));
    flag
}

/// Sleeps, but not beyond an interruption; gives whether there was none.
pub(crate) fn pause(interrupted: &AtomicBool, time: Duration) -> bool {
    let end = std::time::Instant::now() + time;
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return false;
        }
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

pub(crate) fn stat(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    let bad = "Invalid timeout or delay value";
    let times = |lst: &mut Lst<'_>| {
        let timeout_s = number(lst, args, "timeout", TIMEOUT_S, 1, bad)?;
        let delay = number(lst, args, "delay", 5, 1, bad)?;
        let count = number(lst, args, "count", 0, 1, "Invalid count value")?;
        Ok((timeout_s, Duration::from_secs(delay.into()), count))
    };
    let (timeout_s, delay, count) = match times(lst) {
        Ok(times) => times,
        Err(code) => return code,
    };
    if args.has("rpc") && args.has("lnet") {
        lst.complain("--lnet cannot be combined with --rpc");
        return LOCAL;
    }
    let shown = Shown::new(args);
    let mut targets: Vec<(Target, Option<BTreeMap<Nid, Counters>>)> = Vec::new();
    for operand in &args.operands {
        match target(lst, operand) {
            Some(target) => targets.push((target, None)),
            None => return LOCAL,
        }
    }
    let interrupted = interruption();
    // The first sample prints nothing.
    for round in 0.. {
        for (target, before) in &mut targets {
            let name = target.name();
            let order = Order::Stat { target: target.clone(), timeout_s };
            let nodes = match lst.nodes(order) {
                Ok(nodes) => nodes,
                Err(error) => return lst.failed(&error, &name, "stat"),
            };
            let failed = lst.node_failures(&nodes);
            if failed > 0 {
                lst.complain(format_args!("Failed to stat on {failed} nodes"));
                return REMOTE;
            }
            let now = counters(&nodes);
            if let Some(before) = before {
                match Rates::between(shown.of, before, &now) {
                    Some(rates) => report(lst, &shown, &name, &rates),
                    None => {
                        lst.complain("Group is changed, re-run stat");
                        return LOCAL;
                    }
                }
            }
            *before = Some(now);
        }
        if (count != 0 && round == count) || !pause(&interrupted, delay) {
            return 0;
        }
    }
    0
}

fn report(lst: &mut Lst<'_>, shown: &Shown, name: &str, rates: &Rates) {
    let of = match shown.of {
        Counted::Lnet => "LNet",
        Counted::Rpc => "RPC",
    };
    if shown.rate {
        lst.say(format_args!("[{of} Rates of {name}]"));
        if shown.read {
            lst.say(shown.line('R', &rates.received, 0, "RPC/s"));
        }
        if shown.write {
            lst.say(shown.line('W', &rates.sent, 0, "RPC/s"));
        }
    }
    if shown.bandwidth {
        lst.say(format_args!("[{of} Bandwidth of {name}]"));
        let (unit, text) = if shown.mbs { (MB, "MB/s  ") } else { (MIB, "MiB/s ") };
        let scaled = |all: &[f64]| all.iter().map(|n| n / unit).collect::<Vec<_>>();
        if shown.read {
            lst.say(shown.line('R', &scaled(&rates.received_bytes), 2, text));
        }
        if shown.write {
            lst.say(shown.line('W', &scaled(&rates.sent_bytes), 2, text));
        }
    }
}

pub(crate) fn show_error(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    for operand in &args.operands {
        let Some(target) = target(lst, operand) else { return LOCAL };
        let nodes = match lst.nodes(Order::Stat { target, timeout_s: TIMEOUT_S }) {
            Ok(nodes) => nodes,
            Err(error) => return lst.failed(&error, operand, "show error"),
        };
        lst.say(format_args!("{operand}:"));
        let mut bad = 0;
        for node in &nodes {
            let id = id(node);
            let Ok(Report::Counters(c)) = &node.outcome else {
                bad += 1;
                lst.complain(format_args!("RPC failure, can't show error on {id}"));
                continue;
            };
            let tests = c.brw_errors + c.ping_errors;
            let rpcs = c.rpc_errors + c.rpcs_dropped + c.rpcs_expired;
            let session = args.has("session");
            if tests == 0 && (session || rpcs == 0) {
                continue;
            }
            bad += 1;
            let mut line = format!(
                "{id}: [Session {} brw errors, {} ping errors]",
                c.brw_errors, c.ping_errors
            );
            if !session {
                line.push_str(&format!(
                    " [RPC: {} errors, {} dropped, {} expired]",
                    c.rpc_errors, c.rpcs_dropped, c.rpcs_expired
                ));
            }
            lst.complain(line);
        }
        lst.say(format_args!("Total {bad} error nodes in {operand}"));
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_original() {
        let shown = Shown::new(&Args::default());
        assert_eq!(
            shown.line('R', &[107.4], 0, "RPC/s"),
            "[R] Avg: 107      RPC/s Min: 107      RPC/s Max: 107      RPC/s"
        );
        assert_eq!(
            shown.line('W', &[22.09, 24.11], 2, "MiB/s "),
            "[W] Avg: 23.10    MiB/s Min: 22.09    MiB/s Max: 24.11    MiB/s "
        );
        assert_eq!(
            shown.line('R', &[0.02], 2, "MB/s  "),
            "[R] Avg: 0.02     MB/s  Min: 0.02     MB/s  Max: 0.02     MB/s  "
        );
    }

    #[test]
    fn a_node_that_came_or_began_again_changes_the_group() {
        let nid: Nid = "10.0.0.1@tcp".parse().unwrap();
        let at = |running_ms, send_count| {
            BTreeMap::from([(nid, Counters { running_ms, send_count, ..Counters::default() })])
        };
        assert_eq!(
            Rates::between(Counted::Lnet, &at(1000, 5), &at(3000, 25)).unwrap().sent,
            [10.0]
        );
        assert!(Rates::between(Counted::Lnet, &BTreeMap::new(), &at(3000, 25)).is_none());
        assert!(Rates::between(Counted::Lnet, &at(3000, 5), &at(1000, 25)).is_none());
        // Counters go round.
        let sent = Rates::between(Counted::Lnet, &at(0, u32::MAX), &at(1000, 9)).unwrap().sent;
        assert_eq!(sent, [10.0]);
    }
}
