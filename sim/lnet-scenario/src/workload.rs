//! Reads `[[workload]]`: what nodes do.

use core::time::Duration;

use crate::SECTION_MAX;
use crate::error::ScenarioError;
use crate::model::{Exchange, Pace, Pairing, Workload, World};
use crate::place::{Index, Place};
use crate::read::Table;
use crate::rpc::{self, LoadWord, RpcWorld};
use crate::selftest::{self, SelftestLoad};

/// How long an exchange may take where nothing is said: one transaction time-out of the defaults.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most exchanges that a pair has under way at a fixed pace where nothing is said.
const WINDOW: u32 = 1024;
/// Most exchanges under way that can be asked for.
const WINDOW_MAX: i64 = 65_536;
/// Most bytes of one message.
const PAYLOAD_MAX: u64 = lnet_wire::PAYLOAD_MAX as u64;

#[derive(Clone, Copy)]
enum Kind {
    Put,
    Get,
    Request,
    Rpc { write: bool },
    Ping,
}

/// A kind, by where the rest is read.
#[derive(Clone, Copy)]
enum Of {
    /// Here.
    Programs(Kind),
    /// Calls of the request layer: `rpc.rs`.
    Rpc(LoadWord),
    /// `selftest.rs`.
    Selftest,
}

const KINDS: [(&str, Of); 11] = [
    ("put", Of::Programs(Kind::Put)),
    ("get", Of::Programs(Kind::Get)),
    ("request", Of::Programs(Kind::Request)),
    ("read", Of::Programs(Kind::Rpc { write: false })),
    ("write", Of::Programs(Kind::Rpc { write: true })),
    ("ping", Of::Programs(Kind::Ping)),
    ("rpc", Of::Rpc(LoadWord::Rpc)),
    ("kv", Of::Rpc(LoadWord::Kv)),
    ("lock", Of::Rpc(LoadWord::Lock)),
    ("files", Of::Rpc(LoadWord::Files)),
    ("selftest", Of::Selftest),
];

const PAIRINGS: [(&str, Pairing); 3] =
    [("spread", Pairing::Spread), ("all", Pairing::All), ("random", Pairing::Random)];

/// Programs on LNet; calls of clients are put into `rpc`, selftest into `selftests`.
pub(crate) fn read(
    top: &mut Table<'_, '_>,
    world: &World,
    rpc: &mut RpcWorld,
    selftests: &mut Vec<SelftestLoad>,
    duration: Duration,
) -> Result<Vec<Workload>, ScenarioError> {
    let tables = top.list("workload")?;
    if tables.len() > SECTION_MAX {
        return Err(top.wrong(&format!("has more than {SECTION_MAX} workloads")));
    }
    let index = Index::new(world);
    let mut all = Vec::new();
    for mut t in tables {
        let word = t.require(
            "kind",
            "put, get, request, read, write, ping, rpc, kv, lock, files or selftest",
        )?;
        match word.word(&KINDS)? {
            Of::Programs(kind) => all.push(one(t, kind, &index, duration)?),
            Of::Selftest => selftests.push(selftest::load(t, &index, duration)?),
            Of::Rpc(word) => {
                let load = rpc::load(t, word, &index, rpc, duration)?;
                rpc.loads.push(load);
            }
        }
    }
    Ok(all)
}

fn one(
    mut t: Table<'_, '_>,
    kind: Kind,
    index: &Index<'_>,
    duration: Duration,
) -> Result<Workload, ScenarioError> {
    let line = t.line();
    let from = Place::read_nodes(index, &t.require("from", "the nodes that begin")?)?;
    let to = Place::read(index, &t.require("to", "the nodes that are asked")?)?;
    let pairing = t.take("pairing").map(|v| v.word(&PAIRINGS)).transpose()?;
    let size = t.take("size").map(|v| v.size(PAYLOAD_MAX)).transpose()?;
    if let (Kind::Ping, Some(_)) = (kind, size) {
        return Err(t.wrong("is of pings and has a size: expected none"));
    }
    let exchange = match kind {
        Kind::Put => {
            let ack = t.take("ack").map(|v| v.flag()).transpose()?.unwrap_or(true);
            Exchange::Put { ack }
        }
        Kind::Get => Exchange::Get,
        Kind::Request => {
            let reply = t.take("reply").map(|v| v.size(PAYLOAD_MAX)).transpose()?.unwrap_or(0);
            let ack = t.take("ack").map(|v| v.flag()).transpose()?.unwrap_or(false);
            Exchange::Request { reply, ack }
        }
        Kind::Rpc { write } => Exchange::Rpc { write },
        Kind::Ping => Exchange::Ping,
    };
    let size = size.unwrap_or(0);
    let (pace, window) = pace(&mut t, size, WINDOW)?;
    let verify = t.take("verify").map(|v| v.flag()).transpose()?.unwrap_or(true);
    let timeout = t.take("timeout").map(|v| v.duration_above_zero()).transpose()?;
    let retries = t.take("retries").map(|v| v.number(0, 1000)).transpose()?.unwrap_or(0);
    let (start, end) = span(&mut t, duration)?;
    t.finish()?;
    Ok(Workload {
        from,
        to,
        pairing: pairing.unwrap_or(Pairing::Spread),
        exchange,
        size,
        pace,
        window,
        verify,
        timeout: timeout.unwrap_or(TIMEOUT),
        retries: retries as u32,
        start,
        end,
        line,
    })
}

/// When the first one begins, and from when on none does.
pub(crate) fn span(
    t: &mut Table<'_, '_>,
    duration: Duration,
) -> Result<(Duration, Duration), ScenarioError> {
    let start = match t.take("start") {
        Some(v) => match v.duration()? {
            d if d < duration => d,
            _ => return Err(v.wrong("before the end of the scenario")),
        },
        None => Duration::ZERO,
    };
    let end = match t.take("until") {
        Some(v) => match v.duration()? {
            d if d > start && d <= duration => d,
            _ => return Err(v.wrong("after its start, and not after the end of the scenario")),
        },
        None => duration,
    };
    Ok((start, end))
}

/// When the next one begins, and how many may be under way: `most` at a fixed pace where nothing is
/// said.
pub(crate) fn pace(
    t: &mut Table<'_, '_>,
    size: u32,
    most: u32,
) -> Result<(Pace, u32), ScenarioError> {
    let (every, rate) = (t.take("every"), t.take("rate"));
    let window = t.take("window").map(|v| v.number(1, WINDOW_MAX)).transpose()?.map(|n| n as u32);
    let think = t.take("think");
    let pace = match (every, rate, window) {
        (Some(v), None, _) => Pace::Every(v.duration_above_zero()?),
        (None, Some(v), _) if size == 0 => {
            return Err(v.wrong("no rate where there is no size"));
        }
        (None, Some(v), _) => Pace::Rate(v.rate()?),
        (None, None, Some(window)) => {
            let think = think.as_ref().map(|v| v.duration()).transpose()?.unwrap_or_default();
            return Ok((Pace::Window { window, think }, window));
        }
        _ => {
            return Err(t.wrong("has no pace: expected every or rate, or a window alone"));
        }
    };
    match think {
        Some(v) => Err(v.wrong("no time to think but with a window alone")),
        None => Ok((pace, window.unwrap_or(most))),
    }
}
