//! What came of a recording, in numbers; and the differences that are known, each with its reason.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lnet_types::Nid;
use ptlrpc::Tunables;

use crate::exchange::Index;
use crate::player::{Played, Player, Setup, Side, Verdict};
use crate::recording::{Message, messages};
use crate::stage::{PING, PING_OF_CLIENTS, Sockets, VirtualTime};

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
    /// The same, message by message: for who looks at one recording.
    pub known: Vec<String>,
    /// Different without a known reason.
    pub unknown: Vec<String>,
    /// What could not be handed to our node, by reason.
    pub kept_back: BTreeMap<String, usize>,
}

/// The tunables of recorded nodes: those of profile `kernel`.
fn tunables(path: &Path) -> Tunables {
    let clients = path.iter().any(|part| part == "lustre-client");
    let ping_interval = if clients { PING_OF_CLIENTS } else { PING };
    let kernel = Tunables { ping_interval, ..Tunables::of(lnet::Profile::Kernel) };
    match stem(path).as_str() {
        // Release 2.15 has no lower bound of its estimates.
        "both-2.15.8" => Tunables { at_min: Duration::from_secs(1), ..kernel },
        _ => kernel,
    }
}

/// The known differences, and which of them occurred.
#[derive(Debug)]
pub struct Allowed<'a> {
    /// The rows; the first that fits counts.
    pub known: &'a [Known],
    /// Places of those that occurred.
    pub used: BTreeSet<usize>,
}

/// Plays a recording with each of its nodes as ours, in virtual time; counts both roles.
pub fn play(path: &Path, allowed: &mut Allowed<'_>) -> [Count; 2] {
    let name = stem(path);
    let recorded = messages(path);
    let mut counts = [Count::default(), Count::default()];
    for node in nodes(&recorded) {
        let setup = Setup { tunables: tunables(path), dies: dies(&name), locks: false };
        let stage = VirtualTime::new(node, setup.tunables.clone());
        let played = Player::play(&recorded, &Index::new(&recorded), node, &setup, stage);
        for (side, what) in &played.extra {
            let ends = (name.as_str(), node.to_string());
            let said = format!("{node} sent beside: {what}");
            let count = &mut counts[*side as usize];
            match allowed.reason(&ends, *side, what, "extra") {
                Some(reason) => count.known.push(format!("{said} ({reason})")),
                None => count.unknown.push(said),
            }
        }
        judge(&name, node, &played, allowed, &mut counts);
    }
    counts
}

/// Plays a recording with each of its servers as ours, where `ldlm` serves the locks of objects; counts
/// the messages of these locks.
pub fn play_locks(path: &Path, tunables: &Tunables, allowed: &mut Allowed<'_>) -> Count {
    let name = stem(path);
    let recorded = messages(path);
    let mut counts = [Count::default(), Count::default()];
    for node in nodes(&recorded) {
        let tunables = Tunables { ping_interval: PING, ..tunables.clone() };
        let setup = Setup { tunables, dies: dies(&name), locks: true };
        let stage = VirtualTime::new(node, setup.tunables.clone());
        let mut played = Player::play(&recorded, &Index::new(&recorded), node, &setup, stage);
        played.outcomes.retain(|outcome| outcome.of_locks);
        if played.outcomes.is_empty() {
            // A client.
            continue;
        }
        for (side, what) in &played.extra {
            let ends = (name.as_str(), node.to_string());
            let of_locks = what.contains("LDLM_") && *side == Side::Server;
            if of_locks && allowed.reason(&ends, *side, what, "extra").is_none() {
                let said = format!("{node} sent beside: {what}");
                counts[Side::Server as usize].unknown.push(said);
            }
        }
        judge(&name, node, &played, allowed, &mut counts);
    }
    let [server, _] = counts;
    server
}

/// What each node of ours sends when a recording is played to it in virtual time.
pub fn sent(path: &Path) -> Vec<(Nid, Vec<Message>)> {
    let name = stem(path);
    let recorded = messages(path);
    let index = Index::new(&recorded);
    let play = |node: Nid| {
        let setup = Setup { tunables: tunables(path), dies: dies(&name), locks: false };
        let stage = VirtualTime::new(node, setup.tunables.clone());
        (node, Player::play(&recorded, &index, node, &setup, stage).sent)
    };
    nodes(&recorded).into_iter().map(play).collect()
}

/// Plays a recording with each of its nodes as ours on TCP, or with the one of this NID, at addresses
/// `127.net.0.x`; counts both roles. What is a matter of time does not count, and no message that is
/// not in the recording.
pub fn play_on_sockets(
    path: &Path,
    net: u8,
    only: Option<Nid>,
    allowed: &mut Allowed<'_>,
) -> [Count; 2] {
    let name = stem(path);
    let mut recorded = messages(path);
    let mut names = BTreeMap::new();
    for nid in nodes(&recorded) {
        let text = nid.to_string();
        let host = text.split(['.', '@']).nth(3).expect("a NID with an address");
        let moved: Nid = format!("127.{net}.0.{host}@tcp").parse().expect("a NID");
        names.insert(nid, moved);
    }
    for message in &mut recorded {
        (message.hdr.src, message.hdr.dst) = (names[&message.hdr.src], names[&message.hdr.dst]);
    }
    let peers: BTreeSet<Nid> = names.values().copied().collect();
    let mut counts = [Count::default(), Count::default()];
    for (node, moved) in names.iter().filter(|(node, _)| only.is_none_or(|only| only == **node)) {
        let setup = Setup { tunables: tunables(path), dies: dies(&name), locks: false };
        let stage = Sockets::new(*moved, &peers, PORT, setup.tunables.clone());
        let played = Player::play(&recorded, &Index::new(&recorded), *moved, &setup, stage);
        judge(&name, *node, &played, allowed, &mut counts);
    }
    counts
}

/// Where nodes on TCP listen.
const PORT: u16 = 7988;

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn nodes(recorded: &[Message]) -> BTreeSet<Nid> {
    recorded.iter().flat_map(|m| [m.from(), m.to()]).collect()
}

/// Whether the whole server dies in a recording.
fn dies(name: &str) -> bool {
    name.starts_with("ldiskfs-recovery") || name.starts_with("server-crash")
}

impl Allowed<'_> {
    fn reason(
        &mut self,
        (name, node): &(&str, String),
        side: Side,
        what: &str,
        difference: &str,
    ) -> Option<&'static str> {
        let fits = |row: &Known| {
            name.starts_with(row.capture)
                && row.side.is_none_or(|s| s == side)
                && node.starts_with(row.node)
                && what.starts_with(row.what)
                && difference.starts_with(row.difference)
        };
        let row = self.known.iter().position(fits)?;
        self.used.insert(row);
        Some(self.known[row].why)
    }
}

fn judge(
    name: &str,
    node: Nid,
    played: &Played,
    allowed: &mut Allowed<'_>,
    counts: &mut [Count; 2],
) {
    let ends = (name, node.to_string());
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
            let said = format!("{node} frame {}, {}: {difference}", outcome.frame, outcome.what);
            match allowed.reason(&ends, outcome.side, &outcome.what, difference) {
                Some(reason) => {
                    why.push(reason);
                    count.known.push(format!("{said} ({reason})"));
                }
                None => count.unknown.push(said),
            }
        }
        if let Some(first) = why.first().filter(|_| why.len() == differences.len()) {
            *count.open.entry(first).or_default() += 1;
        }
    }
    for (side, why) in &played.kept_back {
        *counts[*side as usize].kept_back.entry(why.clone()).or_default() += 1;
    }
}
