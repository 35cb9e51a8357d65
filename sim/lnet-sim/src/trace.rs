//! The trace: one line per noteworthy moment, in order, and a running hash over everything that was
//! seen, each message included. Two runs are the same if their hashes are.

use core::cell::RefCell;
use std::rc::Rc;

use lnet::Doubt;
use lnet_types::{Instant, Nid};

use crate::observe::{Observer, Seen, View};

/// What a trace holds. Shared, so that the world's owner can read it while the world has its
/// [`Tracer`].
#[derive(Debug, Default)]
pub struct Trace {
    /// Lines, oldest first: time, node, what, and the health behind it.
    pub lines: Vec<String>,
    /// Lines that there was no room for.
    pub left_out: u64,
    hash: u64,
}

impl Trace {
    /// The hash over everything seen so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.hash ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        self.hash = (wide as u64) ^ (wide >> 64) as u64 ^ word.rotate_left(32);
    }

    fn mix_nid(&mut self, nid: Nid) {
        for part in nid.as_wire().chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.mix(u64::from_le_bytes(word));
        }
    }
}

/// How much of a run becomes lines. The hash is over everything in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// No lines.
    Hash,
    /// Faults, lives, health, routes, failures.
    #[default]
    Moments,
    /// Every message too.
    Messages,
}

/// Writes a [`Trace`].
#[derive(Debug)]
pub struct Tracer {
    trace: Rc<RefCell<Trace>>,
    detail: Detail,
}

/// Most lines of a trace.
const LINES_MAX: usize = 1 << 20;

impl Tracer {
    /// A tracer, and its trace.
    pub fn new(detail: Detail) -> (Self, Rc<RefCell<Trace>>) {
        let trace = Rc::new(RefCell::new(Trace::default()));
        (Self { trace: trace.clone(), detail }, trace)
    }

    /// The highest rank of what becomes a line.
    const fn wanted(&self) -> u8 {
        match self.detail {
            Detail::Hash => 0,
            Detail::Moments => 1,
            Detail::Messages => 2,
        }
    }
}

/// `seconds.microseconds` since the scenario's beginning, as wide as the longest scenario of an hour;
/// negative while the world warms up.
fn clock(view: &View<'_>) -> String {
    let begin = Instant::ZERO + view.scenario.warm_up;
    let (sign, ns) = match view.now.0.checked_sub(begin.0) {
        Some(ns) => ("", ns),
        None => ("-", begin.0 - view.now.0),
    };
    let seconds = format!("{sign}{}", ns / 1_000_000_000);
    format!("{seconds:>5}.{:06}", ns % 1_000_000_000 / 1_000)
}

impl Observer for Tracer {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut trace = self.trace.borrow_mut();
        trace.mix(view.now.0);
        let (rank, host, what) = match *seen {
            Seen::Begun { host, attempt, to, .. } => {
                trace.mix(attempt.0 ^ 1 << 63);
                trace.mix_nid(to);
                (2, host, None)
            }
            Seen::Failed { host, attempt, why } => {
                trace.mix(attempt.0 ^ 2 << 60);
                let why = why.map_or_else(|| "nothing came in time".to_owned(), |e| e.to_string());
                (1, host, Some(format!("attempt {} failed: {why}", attempt.0 >> 24)))
            }
            Seen::Ended { host, attempt, took, well, .. } => {
                trace.mix(attempt.0 ^ 3 << 60 ^ u64::from(well));
                let line = format!("exchange ended in an error after {took:?}");
                (if well { 2 } else { 1 }, host, (!well).then_some(line))
            }
            Seen::Delivered { host, attempt, answer, intact } => {
                trace.mix(attempt.0 ^ 4 << 60 ^ u64::from(answer));
                let damaged = intact == Some(false);
                (1, host, damaged.then(|| format!("attempt {} arrived damaged", attempt.0 >> 24)))
            }
            Seen::Posted { host, buffer, .. } => {
                trace.mix(buffer.0 ^ 5 << 60);
                (2, host, None)
            }
            Seen::Event { host, buffer, event } => {
                trace.mix(buffer.0 ^ 6 << 60 ^ (event.kind as u64) << 32);
                trace.mix(u64::from(event.mlength) ^ u64::from(event.status.is_ok()) << 40);
                (2, host, None)
            }
            Seen::Sent { host, rail, transmit, refused } => {
                trace.mix(u64::from(host.0) << 32 | u64::from(rail.0));
                trace.mix(u64::from(transmit.hdr.payload_len));
                trace.mix_nid(transmit.to.nid);
                let line = (self.detail == Detail::Messages).then(|| {
                    let fate = refused.map_or_else(String::new, |f| format!(" refused: {f}"));
                    let from = view.directory.rail(rail).nid;
                    format!("{from} → {}: {}{fate}", transmit.to.nid, transmit.hdr)
                });
                (2, host, line)
            }
            Seen::Health { host, nid, from, to } => {
                trace.mix_nid(nid);
                trace.mix(u64::from(from) << 32 | u64::from(to));
                (1, host, Some(format!("health of {nid} {from} → {to}")))
            }
            Seen::Doubt { host, local, peer, doubt } => {
                trace.mix_nid(local);
                trace.mix_nid(peer);
                trace.mix(doubt as u64);
                let what = match doubt {
                    Doubt::None => "trusted again".to_owned(),
                    doubt => format!("suspected: {doubt}"),
                };
                (1, host, Some(format!("rail {local} → {peer} is {what}")))
            }
            Seen::Route { host, gateway, up } => {
                trace.mix_nid(gateway);
                let now = if up { "up" } else { "down" };
                (1, host, Some(format!("route by {gateway} is {now}")))
            }
            Seen::Fault { index, kind, begins } => {
                trace.mix((index as u64) << 1 | u64::from(begins));
                let now = if begins { "begins" } else { "ends" };
                let line = view.scenario.faults.get(index).map_or(0, |f| f.line);
                if self.detail != Detail::Hash {
                    let line = format!("{} *** {} (line {line}) {now}", clock(view), kind.name());
                    trace.lines.push(line);
                }
                return Ok(());
            }
            Seen::Timer { host, timer } => {
                trace.mix(timer.at.0 ^ 7 << 60);
                let line = (self.detail == Detail::Messages).then(|| format!("timer: {timer}"));
                (2, host, line)
            }
            Seen::Rpc { host, seen } => {
                seen.words().into_iter().for_each(|word| trace.mix(word));
                let rank = if seen.is_moment() { 1 } else { 2 };
                let line = || seen.line(&view.scenario.rpc.targets);
                (rank, host, (rank <= self.wanted()).then(line))
            }
            Seen::Console { host: Some(host), line } => (1, host, Some(line.to_owned())),
            Seen::Console { host: None, line } => {
                trace.mix(line.len() as u64);
                if self.detail != Detail::Hash {
                    trace.lines.push(format!("{} {line}", clock(view)));
                }
                return Ok(());
            }
            Seen::Died { host } => (1, host, Some("dies".to_owned())),
            Seen::Born { host } => (1, host, Some("is back".to_owned())),
            Seen::Sample => return Ok(()),
        };
        trace.mix(u64::from(host.0));
        let Some(what) = what.filter(|_| rank <= self.wanted()) else { return Ok(()) };
        if trace.lines.len() >= LINES_MAX {
            trace.left_out += 1;
            return Ok(());
        }
        trace.lines.push(format!("{} {:<14} {what}", clock(view), view.name(host)));
        Ok(())
    }
}
