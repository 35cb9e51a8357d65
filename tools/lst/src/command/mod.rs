//! What each command does: one file per noun, one function per row of `table.rs`.

pub(crate) mod batch;
pub(crate) mod group;
pub(crate) mod query;
pub(crate) mod session;
pub(crate) mod stat;
pub(crate) mod test;

use core::time::Duration;

use lnet_selftest::{NodeShown, NodeState, Target};
use lnet_types::{Pid, ProcessId};
use lnetctl::args::Args;

use crate::Lst;
use crate::errors::LOCAL;

/// The batch that is there from the start of a session (L-5).
pub(crate) const DEFAULT_BATCH: &str = "batch";
/// How long nodes may take unless something else is said, seconds.
const TIMEOUT_S: u32 = 5;
/// Columns of the tables of nodes.
const HEADER: &str = "\tACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL";

/// The number of an option, or `default`; one that is none, or below `least`, is reported as
/// `complaint`.
fn number(
    lst: &mut Lst<'_>,
    args: &Args,
    option: &str,
    default: u32,
    least: u32,
    complaint: &str,
) -> Result<u32, i32> {
    let Some(text) = args.value(option) else { return Ok(default) };
    match text.parse().ok().filter(|n| *n >= least) {
        Some(n) => Ok(n),
        None => {
            lst.complain(format_args!("{complaint}: {text}"));
            Err(LOCAL)
        }
    }
}

/// The state as it is printed (L-12).
pub(crate) const fn state(state: NodeState) -> &'static str {
    match state {
        NodeState::Active => "Active",
        NodeState::Busy => "Busy",
        NodeState::Down => "Down",
        NodeState::Unknown => "Unknown",
    }
}

/// How many nodes there are in each state, and in all, with tabs between.
fn counts(nodes: &[NodeShown]) -> String {
    let of = |state| nodes.iter().filter(|n| n.state == state).count();
    let [a, b, d, u] =
        [NodeState::Active, NodeState::Busy, NodeState::Down, NodeState::Unknown].map(of);
    format!("{a}\t{b}\t{d}\t{u}\t{}", nodes.len())
}

/// The nodes in the wanted states, a line each.
fn node_lines(lst: &mut Lst<'_>, nodes: &[NodeShown], wanted: &[NodeState]) -> usize {
    let shown: Vec<_> = nodes.iter().filter(|n| wanted.contains(&n.state)).collect();
    for node in &shown {
        let id = ProcessId { nid: node.nid, pid: Pid(node.pid) };
        lst.say(format_args!("\t{id}: {}", state(node.state)));
    }
    shown.len()
}

/// A group, or nodes where it is no name of one: all NIDs have an `@`.
fn target(lst: &mut Lst<'_>, operand: &str) -> Option<Target> {
    if operand.contains('@') {
        return lst.nids(operand).map(Target::Nodes);
    }
    Some(Target::Group(operand.to_owned()))
}

fn sleep(time: Duration) {
    std::thread::sleep(time);
}
