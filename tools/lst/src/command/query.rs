//! How batches and tests are (L-19).

use core::time::Duration;

use lnet_selftest::{Command as Order, NodeResult, Nodes, Report};
use lnetctl::args::Args;

use super::{DEFAULT_BATCH, TIMEOUT_S, number, sleep, state};
use crate::Lst;
use crate::errors::id;
use crate::table::Command;

pub(crate) fn query(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    let numbers = [("test", 0, 1), ("timeout", TIMEOUT_S, 1), ("delay", 5, 0), ("loop", 1, 1)];
    let mut values = [0; 4];
    for (value, (option, default, least)) in values.iter_mut().zip(numbers) {
        let complaint = format!("Invalid {option} value");
        match number(lst, args, option, default, least, &complaint) {
            Ok(n) => *value = n,
            Err(code) => return code,
        }
    }
    let [test, timeout_s, delay, times] = values;
    let batch = args.operands.first().map_or(DEFAULT_BATCH, String::as_str).to_owned();
    for round in 0..times {
        if round > 0 {
            sleep(Duration::from_secs(delay.into()));
        }
        let server = args.has("server");
        let order = Order::Query { batch: batch.clone(), test, server, timeout_s };
        match lst.nodes(order) {
            Ok(nodes) => show(lst, args, &batch, test, &nodes),
            Err(error) => return lst.failed(&error, "batch", "query batch"),
        }
    }
    0
}

fn show(lst: &mut Lst<'_>, args: &Args, batch: &str, test: u32, nodes: &Nodes) {
    let running = |n: &NodeResult| matches!(n.outcome, Ok(Report::Active(1..)));
    let idle = |n: &NodeResult| matches!(n.outcome, Ok(Report::Active(0)));
    if ["active", "idle", "error", "all"].iter().any(|option| args.has(option)) {
        for node in nodes {
            let (wanted, text) = match &node.outcome {
                Err(failure) => ("error", failure.errno().to_string()),
                Ok(_) if running(node) => ("active", "Running".to_owned()),
                Ok(_) => ("idle", "Idle".to_owned()),
            };
            if args.has(wanted) || args.has("all") {
                lst.say(format_args!("{} [{}]: {text}", id(node), state(node.state)));
            }
        }
        return;
    }
    let (running, idle) =
        (nodes.iter().filter(|n| running(n)).count(), nodes.iter().filter(|n| idle(n)).count());
    let unknown = nodes.len() - running - idle;
    let mut line = format!("{batch} [{test}] ");
    if unknown > 0 {
        line.push_str(&format!("{unknown} of {} nodes are unknown, ", nodes.len()));
    }
    line.push_str(&match (running, idle) {
        (0, _) => "is stopped".to_owned(),
        (_, 0) => "is running".to_owned(),
        _ => format!("stopped: {idle} , running: {running}, failed: {unknown}"),
    });
    lst.say(line);
}
