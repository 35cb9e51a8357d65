//! Reads what stands on LNet: `[rpc]` with the tunables of the request layer, `[[target]]` and
//! `[[client]]`, and the workload of kind `rpc`. What of it there is, is in the types here; who plays
//! it, is no matter.

use core::time::Duration;

use ptlrpc::Tunables;

use crate::SECTION_MAX;
use crate::error::ScenarioError;
use crate::model::{NodeId, Pace, World};
use crate::place::{Index, Place};
use crate::read::{Table, Value};
use crate::units::Share;
use crate::workload;

/// What stands on LNet in a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcWorld {
    /// Tunables of the request layer, on all nodes.
    pub tunables: Tunables,
    /// Targets, in order of the text.
    pub targets: Vec<TargetSpec>,
    /// Nodes that connect to targets.
    pub clients: Vec<ClientSpec>,
    /// What clients call.
    pub loads: Vec<RpcLoad>,
}

/// Something that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// Its name, which is its uuid.
    pub name: String,
    /// What it serves.
    pub kind: TargetKind,
    /// The node that serves it at the beginning.
    pub on: NodeId,
    /// The node that serves it when the other one is dead.
    pub failover: Option<NodeId>,
    /// How long after a change the change survives a crash; zero: it does before it is answered.
    pub commit: Duration,
    /// Line of the text, from 1.
    pub line: u32,
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A list that clients append to, and whose length they read.
    List,
}

/// Nodes that connect to targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSpec {
    /// Which nodes.
    pub on: Place,
    /// Indices in [`RpcWorld::targets`], each once.
    pub targets: Vec<usize>,
    /// Line of the text, from 1.
    pub line: u32,
}

/// Calls that some clients make again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcLoad {
    /// Who calls.
    pub from: Place,
    /// Indices in [`RpcWorld::targets`]; each client calls each of them at the pace given.
    pub to: Vec<usize>,
    /// Part of the calls that change nothing.
    pub reads: Share,
    /// Bytes of bulk data of each call, 0 for none.
    pub bulk: u32,
    /// When the next one begins; never [`Pace::Rate`].
    pub pace: Pace,
    /// Most calls that a client has under way to a target.
    pub window: u32,
    /// A call that has no end after so long fails; `None`: it waits.
    pub timeout: Option<Duration>,
    /// When the first one begins.
    pub start: Duration,
    /// When none is begun any more.
    pub end: Duration,
    /// Line of the text, from 1.
    pub line: u32,
}

impl RpcWorld {
    /// The target that is called `name`.
    pub fn target(&self, name: &str) -> Option<usize> {
        self.targets.iter().position(|t| t.name == name)
    }

    /// Indices of the targets that a node connects to.
    pub fn targets_of(&self, node: NodeId) -> Vec<usize> {
        let mine = self.clients.iter().filter(|c| c.on.nodes().contains(&node));
        let mut all: Vec<usize> = mine.flat_map(|c| c.targets.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Longest name of a target (P-18).
const NAME_MAX: usize = ptlrpc::UUID_MAX;
/// Longest time that a tunable may say.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most bulk data of a call, bytes.
const BULK_MAX: u64 = 4 << 20;
/// Most calls of one client to one target under way.
const WINDOW: u32 = 1;

type Time = fn(&mut Tunables) -> &mut Duration;

/// Tunables that are times, and the least that each may be, seconds.
const TIMES: [(&str, u64, Time); 8] = [
    ("obd_timeout", 1, |t| &mut t.obd_timeout),
    ("ping_interval", 1, |t| &mut t.ping_interval),
    ("at_min", 0, |t| &mut t.at_min),
    ("at_max", 0, |t| &mut t.at_max),
    ("at_history", 1, |t| &mut t.at_history),
    ("at_early_margin", 1, |t| &mut t.at_early_margin),
    ("at_extra", 1, |t| &mut t.at_extra),
    ("bulk_timeout", 0, |t| &mut t.bulk_timeout),
];

pub(crate) fn read(top: &mut Table<'_, '_>, world: &World) -> Result<RpcWorld, ScenarioError> {
    let mut rpc = RpcWorld::default();
    if let Some(v) = top.take("rpc") {
        rpc.tunables = tunables(v.table()?)?;
    }
    let index = Index::new(world);
    for t in top.list("target")? {
        let new = target(t, &index, &rpc)?;
        rpc.targets.push(new);
    }
    for t in top.list("client")? {
        let new = client(t, &index, &rpc)?;
        rpc.clients.push(new);
    }
    if rpc.targets.len() > SECTION_MAX || rpc.clients.len() > SECTION_MAX {
        return Err(top.wrong(&format!("has more than {SECTION_MAX} targets or clients")));
    }
    if rpc.targets.is_empty() && rpc.tunables != Tunables::default() {
        return Err(top.wrong("has an [rpc] and nothing that uses it: expected a [[target]]"));
    }
    Ok(rpc)
}

fn tunables(mut t: Table<'_, '_>) -> Result<Tunables, ScenarioError> {
    let mut tunables = Tunables::default();
    for (name, least, field) in TIMES {
        let Some(v) = t.take(name) else { continue };
        let time = v.duration()?;
        if time < Duration::from_secs(least) || time > TIME_MAX {
            return Err(v.wrong(&format!("a time from {least}s to 24h")));
        }
        *field(&mut tunables) = time;
    }
    if let Some(v) = t.take("evict_factor") {
        tunables.evict_factor = v.number(5, 1000)? as u32;
    }
    t.finish()?;
    let (min, max) = (tunables.at_min, tunables.at_max);
    if !max.is_zero() && max < min {
        return Err(
            t.wrong(&format!("has at_max {max:?}: expected 0s, or at least at_min {min:?}"))
        );
    }
    Ok(tunables)
}

/// The one node that a key names.
fn node(value: &Value<'_, '_>, index: &Index<'_>) -> Result<NodeId, ScenarioError> {
    match Place::read_nodes(index, value)?.nodes()[..] {
        [one] => Ok(one),
        _ => Err(value.wrong("one node")),
    }
}

fn target(
    mut t: Table<'_, '_>,
    index: &Index<'_>,
    rpc: &RpcWorld,
) -> Result<TargetSpec, ScenarioError> {
    let line = t.line();
    let value = t.require("name", "the target's name")?;
    let name = value.text()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(value.wrong(&format!("1 to {NAME_MAX} letters, digits, - _ and .")));
    }
    if rpc.target(name).is_some() {
        return Err(value.wrong("each target once"));
    }
    t.name = format!("target '{name}'");
    let kind = t.require("kind", "\"list\"")?.word(&[("list", TargetKind::List)])?;
    let on = node(&t.require("on", "the node that serves it")?, index)?;
    let failover = match t.take("failover") {
        Some(v) => match node(&v, index)? {
            other if other != on => Some(other),
            _ => return Err(v.wrong("another node than 'on'")),
        },
        None => None,
    };
    let commit = t.take("commit").map(|v| v.duration()).transpose()?.unwrap_or(Duration::ZERO);
    t.finish()?;
    Ok(TargetSpec { name: name.to_owned(), kind, on, failover, commit, line })
}

fn client(
    mut t: Table<'_, '_>,
    index: &Index<'_>,
    rpc: &RpcWorld,
) -> Result<ClientSpec, ScenarioError> {
    let line = t.line();
    let on = Place::read_nodes(index, &t.require("on", "the nodes that connect")?)?;
    let targets = match t.take("targets") {
        Some(v) => targets(&v, rpc)?,
        None if rpc.targets.is_empty() => {
            return Err(t.wrong("has nothing to connect to: expected a [[target]]"));
        }
        None => (0..rpc.targets.len()).collect(),
    };
    t.finish()?;
    Ok(ClientSpec { on, targets, line })
}

/// Targets by their names, one or a list, each once.
pub(crate) fn targets(value: &Value<'_, '_>, rpc: &RpcWorld) -> Result<Vec<usize>, ScenarioError> {
    let mut all = Vec::new();
    for (name, v) in value.texts()? {
        let at = rpc.target(name).ok_or_else(|| {
            let names: Vec<&str> = rpc.targets.iter().map(|t| t.name.as_str()).collect();
            match names.is_empty() {
                true => v.wrong("the name of a [[target]]: there is none"),
                false => v.wrong(&format!("the name of a target: {}", names.join(", "))),
            }
        })?;
        if all.contains(&at) {
            return Err(v.wrong("each target once"));
        }
        all.push(at);
    }
    match all.is_empty() {
        true => Err(value.wrong("at least one target")),
        false => Ok(all),
    }
}

/// The rest of a workload of kind `rpc`.
pub(crate) fn load(
    mut t: Table<'_, '_>,
    index: &Index<'_>,
    rpc: &RpcWorld,
    duration: Duration,
) -> Result<RpcLoad, ScenarioError> {
    let line = t.line();
    let shown = t.require("from", "the clients that call")?;
    let from = Place::read_nodes(index, &shown)?;
    let to = targets(&t.require("to", "the targets that are called")?, rpc)?;
    for node in from.nodes() {
        let connected = rpc.targets_of(node);
        if let Some(at) = to.iter().find(|at| !connected.contains(at)) {
            let (name, node) = (&rpc.targets[*at].name, index.world.name(node));
            let expected = format!("a [[client]] of '{name}' at each node: '{node}' has none");
            return Err(shown.wrong(&expected));
        }
    }
    let reads = t.take("reads").map(|v| v.share()).transpose()?.unwrap_or(Share::NONE);
    let bulk = t.take("bulk").map(|v| v.size(BULK_MAX)).transpose()?.unwrap_or(0);
    let (pace, window) = workload::pace(&mut t, 0, WINDOW)?;
    let timeout = t.take("timeout").map(|v| v.duration_above_zero()).transpose()?;
    let (start, end) = workload::span(&mut t, duration)?;
    t.finish()?;
    Ok(RpcLoad { from, to, reads, bulk, pace, window, timeout, start, end, line })
}
