//! What came of a recording, in numbers; and the differences that are known, each with its reason.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ptlrpc::Tunables;

use crate::exchange::Index;
use crate::host::PING;
use crate::player::{Player, Setup, Side, Verdict};
use crate::recording::messages;

/// A difference that is known. There is no other way to allow one.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Recordings whose name begins so.
    pub capture: &'static str,
    /// Role of our node; both if `None`.
    pub side: Option<Side>,
    /// NID of our node begins so.
    pub node: &'static str,
    /// What the message is begins so.
    pub what: &'static str,
    /// The difference begins so. `extra`: a message that was not recorded.
    pub difference: &'static str,
    /// Why it differs.
    pub why: &'static str,
}

impl Known {
    /// A row for all recordings.
    pub const fn everywhere(
        what: &'static str,
        difference: &'static str,
        why: &'static str,
    ) -> Self {
        Self { capture: "", side: None, node: "", what, difference, why }
    }

    /// A row for some recordings.
    pub const fn at(capture: &'static str, why: &'static str) -> Self {
        Self { capture, side: None, node: "", what: "", difference: "", why }
    }
}

/// One role in one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Messages that the recorded nodes sent in this role.
    pub compared: usize,
    /// Equal, as the table of fields says.
    pub equal: usize,
    /// Different or not played for a known reason, by reason.
    pub open: BTreeMap<&'static str, usize>,
    /// Different without a known reason.
    pub unknown: Vec<String>,
    /// What could not be handed to our node, by reason.
    pub kept_back: BTreeMap<String, usize>,
}

/// The tunables of recorded nodes: those of profile `kernel`.
fn tunables(capture: &str) -> Tunables {
    let kernel = Tunables { ping_interval: PING, ..Tunables::of(lnet::Profile::Kernel) };
    match capture {
        // Release 2.15 has no lower bound of its estimates.
        "both-2.15.8" => Tunables { at_min: Duration::from_secs(1), ..kernel },
        _ => kernel,
    }
}

/// Plays a recording with each of its nodes as ours; counts both roles, and notes which of the known
/// differences occurred.
pub fn play(path: &Path, known: &[Known], used: &mut BTreeSet<usize>) -> [Count; 2] {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let recorded = messages(path);
    let index = Index::new(&recorded);
    let nodes: BTreeSet<_> = recorded.iter().flat_map(|m| [m.from(), m.to()]).collect();
    let dies = name.starts_with("ldiskfs-recovery") || name.starts_with("server-crash");
    let setup = Setup { tunables: tunables(&name), dies };
    let mut counts = [Count::default(), Count::default()];
    for node in nodes {
        let node_name = node.to_string();
        let mut reason = |side: Side, what: &str, difference: &str| {
            let fits = |row: &Known| {
                name.starts_with(row.capture)
                    && row.side.is_none_or(|s| s == side)
                    && node_name.starts_with(row.node)
                    && what.starts_with(row.what)
                    && difference.starts_with(row.difference)
            };
            let row = known.iter().position(fits)?;
            used.insert(row);
            Some(known[row].why)
        };
        let played = Player::play(&recorded, &index, node, &setup);
        for outcome in &played.outcomes {
            let count = &mut counts[outcome.side as usize];
            count.compared += 1;
            let differences: Vec<String> = match &outcome.verdict {
                Verdict::Equal => {
                    count.equal += 1;
                    continue;
                }
                Verdict::Open(why) => vec![format!("open: {why}")],
                Verdict::Differs(differences) => differences.clone(),
            };
            let mut why = Vec::new();
            for difference in &differences {
                match reason(outcome.side, &outcome.what, difference) {
                    Some(reason) => why.push(reason),
                    None => count.unknown.push(format!(
                        "{node} frame {}, {}: {difference}",
                        outcome.frame, outcome.what
                    )),
                }
            }
            if let Some(first) = why.first().filter(|_| why.len() == differences.len()) {
                *count.open.entry(first).or_default() += 1;
            }
        }
        for (side, what) in &played.extra {
            if reason(*side, what, "extra").is_none() {
                let said = format!("{node} sent beside: {what}");
                counts[*side as usize].unknown.push(said);
            }
        }
        for (side, why) in &played.kept_back {
            *counts[*side as usize].kept_back.entry(why.clone()).or_default() += 1;
        }
    }
    counts
}
