//! What a conversation with a node of version 0.1 may not leave behind: the two have marks that the
//! other does not read, so that a mark taken for something else would show as a message that is
//! dropped, refused, failed or sent again, and a mark of ours as one on the wire.

use interop::layout::{Item, Splitter};
use interop::player::Outcome;
use lnet_rt::{NodeHandle, Stack};

/// The upper twelve bits of the name of a session, as docs/duplicates.md has them.
const NAME: u64 = 0xd5e;
/// The process that nodes name in messages to each other.
const LUSTRE: u64 = 12345;

/// Gauges and counters of what goes well.
const GOOD: [&str; 7] = [
    "msgs_alloc",
    "msgs_max",
    "rst_alloc",
    "send_count",
    "recv_count",
    "send_length",
    "recv_length",
];

/// The value of a field of at most eight bytes; `None` if the message has no such field.
fn value(item: &Item, name: &str) -> Option<u64> {
    let field = item.fields().into_iter().find(|field| field.name == name)?;
    let bytes = item.bytes.get(field.range)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Marks of either version on a message.
fn marks(item: &Item) -> Vec<String> {
    let mut marks = Vec::new();
    let boot = value(item, "handle.interface");
    if boot.is_some_and(|word| word != u64::MAX && word >> 52 == NAME) {
        marks.push(format!("{}: a session in its handle", item.describe()));
    }
    if let Some(pid) = value(item, "dest_pid").filter(|pid| boot.is_some() && *pid != LUSTRE) {
        marks.push(format!("{}: for process {pid:#x}", item.describe()));
    }
    // Of an ACK or REPLY the bytes behind its body.
    let pad = item.fields().into_iter().find(|field| field.name == "unused");
    if pad.is_some_and(|pad| item.bytes[pad.range].iter().any(|byte| *byte != 0)) {
        marks.push(format!("{}: words in its padding", item.describe()));
    }
    marks
}

/// Marks on what the node sent, and how many messages were looked at.
pub(crate) fn sent(outcome: &Outcome) -> (Vec<String>, usize) {
    let (mut found, mut seen) = (Vec::new(), 0);
    for (conn, end) in outcome.node_ends.iter().enumerate() {
        let Some(end) = *end else { continue };
        let mut splitter = Splitter::new(end);
        for sent in outcome.traffic.iter().filter(|sent| sent.conn == conn && sent.from == end) {
            for item in splitter.push(&sent.bytes) {
                seen += usize::from(value(&item, "handle.interface").is_some());
                found.extend(marks(&item));
            }
        }
    }
    (found, seen)
}

/// Everything that the node counts of messages and peers that it did not take as they were meant.
pub(crate) fn trouble(handle: &NodeHandle) -> Vec<String> {
    let look = |stack: &mut Stack, _| {
        let line = |what: &str, why: String, n: u64| (n > 0).then(|| format!("{what} {why}: {n}"));
        let (node, tcp) = (stack.node(), stack.tcp().expect("it has TCP"));
        let failures = node.stats().rows().into_iter().filter(|(name, _)| !GOOD.contains(name));
        let mut found: Vec<String> = Vec::new();
        found.extend(node.drops().filter_map(|(why, n)| line("dropped", format!("{why:?}"), n)));
        found.extend(node.refusals().filter_map(|(why, n)| line("claim", format!("{why:?}"), n)));
        found.extend(
            tcp.stats().refusals().filter_map(|(why, n)| line("connection", format!("{why:?}"), n)),
        );
        found.extend(failures.filter_map(|(name, n)| line("counter", name.to_owned(), n)));
        found.extend(
            node.ni_healths()
                .chain(node.peer_ni_healths(None, 100).0)
                // Loopback has none.
                .filter(|(nid, health)| !nid.is_loopback() && *health < 1000)
                .map(|(nid, health)| format!("health of {nid}: {health}")),
        );
        found
    };
    handle.call(look).blocking().expect("the node runs")
}
