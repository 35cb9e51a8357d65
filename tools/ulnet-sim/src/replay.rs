//! `ulnet sim replay`: does again what a real node did, from the recording that `lnetctl debug dump`
//! wrote, and says whether it came out the same. Only looks; `lnet::Recording` does the work.

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use lnet::{Difference, Input, Node, Recording, Replayed};

/// What is replayed.
#[derive(Clone, Debug, Args)]
pub(super) struct Replay {
    /// A recording, as `lnetctl debug dump` writes it.
    file: PathBuf,

    /// Print every call with its arguments.
    #[arg(long)]
    calls: bool,
}

/// Longest line of a call, characters: a payload is longer than is readable.
const CALL_MAX: usize = 200;
/// Peers that are shown; of the others only how many they are.
const PEERS_MAX: usize = 1000;

impl Replay {
    /// Whether everything came out the same.
    ///
    /// # Errors
    /// The file can't be read, or is not a recording of this version.
    pub(super) fn run(&self) -> anyhow::Result<bool> {
        let recording = load(&self.file)?;
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(text, "recording    {}: {}", self.file.display(), kinds(&recording));
        if self.calls {
            for (n, call) in recording.inputs().enumerate() {
                let _ = writeln!(text, "call {:>7} {}", n + 1, cut(call));
            }
        }
        let same = match recording.replay() {
            Ok(replayed) => {
                same(&mut text, &replayed);
                true
            }
            Err(Difference::Unreadable(e)) => {
                return Err(e).with_context(|| self.file.display().to_string());
            }
            Err(difference) => {
                let _ = writeln!(text, "DIFFERENT    {difference}");
                false
            }
        };
        super::print(&text);
        Ok(same)
    }
}

fn load(path: &Path) -> anyhow::Result<Recording> {
    let bytes = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
    Recording::from_bytes(&bytes).with_context(|| path.display().to_string())
}

/// How many calls there are, of which kinds, most frequent first.
fn kinds(recording: &Recording) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in recording.inputs() {
        *counts.entry(name_of(call)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, n)| core::cmp::Reverse(*n));
    let all: Vec<String> = counts.into_iter().map(|(name, n)| format!("{n} {name}")).collect();
    format!("{} calls ({})", recording.calls(), all.join(", "))
}

/// The beginning of what something prints, and nothing formatted beyond it.
struct Head {
    text: String,
    left: usize,
}

impl fmt::Write for Head {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(c);
        }
        Ok(())
    }
}

fn cut(call: &Input) -> String {
    let mut head = Head { text: String::new(), left: CALL_MAX };
    if write!(head, "{call:?}").is_err() {
        head.text.push('…');
    }
    head.text
}

/// The name of a call: the first word of what it prints.
fn name_of(call: &Input) -> String {
    let all = cut(call);
    all.split([' ', '{']).next().unwrap_or_default().to_owned()
}

fn same(text: &mut String, replayed: &Replayed) {
    let Replayed { node, calls, compared } = replayed;
    let _ = writeln!(
        text,
        "same         {calls} calls made again; {compared} outputs, events, verdicts, reports and \
         notices compared, and the state of the node after the last"
    );
    show(text, node);
}

/// The node as it was when the recording was taken.
fn show(text: &mut String, node: &Node) {
    for view in node.net_views() {
        for ni in view.nis.into_iter().filter(|ni| !ni.nid.is_loopback()) {
            let state = if ni.up { "up" } else { "down" };
            let _ = writeln!(
                text,
                "interface    {}: {state}, health {}, {} credits free (least {}), {} queued",
                ni.nid, ni.health, ni.credits, ni.credits_min, ni.queued
            );
        }
    }
    for (_, peer) in node.peer_views(None, PEERS_MAX) {
        for ni in peer.nis {
            let of = if ni.nid == peer.primary {
                String::new()
            } else {
                format!(" of {}", peer.primary)
            };
            let state = if ni.up { "up" } else { "down" };
            let _ = writeln!(
                text,
                "peer         {}{of}: {state}, health {}, {} credits free (least {})",
                ni.nid, ni.health, ni.credits, ni.credits_min
            );
        }
    }
    let (peers, _) = node.peer_count();
    if peers > PEERS_MAX {
        let _ = writeln!(text, "peer         and {} more", peers - PEERS_MAX);
    }
    for (name, value) in node.stats().rows() {
        if value > 0 {
            let _ = writeln!(text, "counter      {name} {value}");
        }
    }
    for (reason, count) in node.drops().filter(|(_, n)| *n > 0) {
        let _ = writeln!(text, "dropped      {reason:?} {count}");
    }
}
