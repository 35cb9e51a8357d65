//! Reads the workload of kind `selftest`: LNet selftest between nodes, as its console runs it.

use core::time::Duration;

use crate::error::ScenarioError;
use crate::place::{Index, Place};
use crate::read::Table;
use crate::workload;

/// What nodes of LNet selftest do to others. The first node of the first one is the console of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelftestLoad {
    /// The clients.
    pub from: Place,
    /// The servers; each client has all of them.
    pub to: Place,
    /// What is done.
    pub test: SelftestKind,
    /// Units of each client and server, each with one RPC under way.
    pub window: u32,
    /// When it begins.
    pub start: Duration,
    /// When it is stopped.
    pub end: Duration,
    /// Line of the text, from 1.
    pub line: u32,
}

/// A test of LNet selftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelftestKind {
    /// Pings.
    Ping,
    /// Moves data, every byte of which is checked.
    Brw {
        /// Whether to the servers.
        write: bool,
        /// Bytes of each RPC.
        size: u32,
    },
}

/// Most bytes of an RPC of selftest.
const SIZE_MAX: u64 = 1 << 20;
/// Bytes where nothing is said: a page.
const SIZE: u32 = 4096;
/// Most units.
const WINDOW_MAX: i64 = 1024;
/// What a console needs until a test runs.
const LEAST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
enum Word {
    Ping,
    Read,
    Write,
}

const TESTS: [(&str, Word); 3] =
    [("ping", Word::Ping), ("read", Word::Read), ("write", Word::Write)];

/// The rest of the workload.
pub(crate) fn load(
    mut t: Table<'_, '_>,
    index: &Index<'_>,
    duration: Duration,
) -> Result<SelftestLoad, ScenarioError> {
    let line = t.line();
    let from = Place::read_nodes(index, &t.require("from", "the clients")?)?;
    let to = Place::read_nodes(index, &t.require("to", "the servers")?)?;
    let word = t.require("test", "ping, read or write")?.word(&TESTS)?;
    let size = t.take("size");
    let test = match (word, &size) {
        (Word::Ping, Some(v)) => return Err(v.wrong("no size: pings have none")),
        (Word::Ping, None) => SelftestKind::Ping,
        (Word::Read | Word::Write, _) => {
            let write = matches!(word, Word::Write);
            let size = match &size {
                Some(v) => match v.size(SIZE_MAX)? {
                    size if size > 0 && size % 8 == 0 => size,
                    _ => return Err(v.wrong("a multiple of 8 bytes, above 0")),
                },
                None => SIZE,
            };
            SelftestKind::Brw { write, size }
        }
    };
    let window = t.take("window").map(|v| v.number(1, WINDOW_MAX)).transpose()?.unwrap_or(1) as u32;
    let (start, end) = workload::span(&mut t, duration)?;
    t.finish()?;
    if end - start < LEAST {
        return Err(t.wrong(&format!("lasts {:?}: expected at least {LEAST:?}", end - start)));
    }
    Ok(SelftestLoad { from, to, test, window, start, end, line })
}
