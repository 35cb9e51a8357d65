//! Reads what stands on LNet: `[rpc]` with the tunables of the request layer, `[[target]]` and
//! `[[client]]`, and the workloads of kind `rpc`, `kv`, `lock` and `files`. What of it there is, is in the
//! types here; who plays it, is no matter.

use core::time::Duration;

use lnet::Profile;
use ptlrpc::{Part, Tunables};

use crate::SECTION_MAX;
use crate::error::ScenarioError;
use crate::files::{self, FileLoad};
use crate::lock::{self, LockLoad};
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
    /// Its store; a list has none that could be slow or full.
    pub store: StoreSpec,
    /// Line of the text, from 1.
    pub line: u32,
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A list that clients append to, and whose length they read.
    List,
    /// Values by keys, as `lustre-target` has them, on a store.
    Kv,
    /// Locks on names, as `lustre-target` has them.
    Lock,
    /// The configuration of a file system.
    Mgs,
    /// Names and attributes of a file system.
    Mdt,
    /// Data of a file system.
    Ost,
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// Time that each order takes.
    pub latency: Duration,
    /// Bytes per second of values; `None`: they take no time.
    pub bandwidth: Option<u64>,
    /// Most bytes.
    pub size: u32,
}

impl Default for StoreSpec {
    fn default() -> Self {
        Self { latency: Duration::ZERO, bandwidth: None, size: 1 << 30 }
    }
}

/// What calls of a load ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// Entries of a list, or its length.
    List {
        /// Bytes of bulk data of each call, 0 for none.
        bulk: u32,
    },
    /// Keys of the load's own, chosen at random.
    Kv {
        /// How many keys.
        keys: u32,
        /// Bytes of a value.
        size: u32,
        /// Part of the changes that happen only if the key is as its caller has seen it.
        cas: Share,
        /// Part of the changes that remove the key.
        dels: Share,
    },
    /// Locks on names.
    Lock(LockLoad),
    /// Files of a file system.
    Files(FileLoad),
}

impl LoadKind {
    /// The kind of target that it is for.
    pub const fn target(self) -> TargetKind {
        match self {
            Self::List { .. } => TargetKind::List,
            Self::Kv { .. } => TargetKind::Kv,
            Self::Lock(_) => TargetKind::Lock,
            Self::Files(_) => TargetKind::Mdt,
        }
    }
}

impl TargetKind {
    /// The word by which the text calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Kv => "kv",
            Self::Lock => "lock",
            Self::Mgs => "mgs",
            Self::Mdt => "mdt",
            Self::Ost => "ost",
        }
    }

    /// Whether it is part of a file system.
    pub const fn is_of_files(self) -> bool {
        matches!(self, Self::Mgs | Self::Mdt | Self::Ost)
    }

    /// Whether its store may be slow, full or broken.
    pub(crate) const fn has_store(self) -> bool {
        matches!(self, Self::Kv | Self::Ost)
    }
}

/// An operation by which a fault names requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcOperation {
    /// Appends to a list.
    Append,
    /// Reads how long a list is.
    Read,
    /// Stores a value.
    Put,
    /// Reads a value.
    Get,
    /// Stores a value if the key is as it was.
    Cas,
    /// Removes a key.
    Del,
    /// Pings a target.
    Ping,
    /// Connects to a target.
    Connect,
    /// Disconnects from a target.
    Disconnect,
    /// Asks for a lock.
    Enqueue,
    /// Gives locks back.
    Cancel,
    /// Gives bits of a lock back.
    Convert,
    /// Asks a holder for its lock.
    Blocking,
    /// Announces a grant.
    Completion,
    /// Reads or writes under a lock.
    Io,
    /// Changes names or attributes.
    Reint,
    /// Closes a file.
    Close,
    /// Writes to an object.
    Write,
    /// What metadata targets ask each other.
    Across,
}

/// Messages of requests that get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcLoss {
    /// Of requests of this operation; `None` is any.
    pub operation: Option<RpcOperation>,
    /// Which messages.
    pub part: Part,
    /// How many at each node in a life of it; `None`: all while the fault lasts.
    pub count: Option<u32>,
}

/// The operations by their words.
pub(crate) const OPERATIONS: [(&str, RpcOperation); 19] = [
    ("append", RpcOperation::Append),
    ("read", RpcOperation::Read),
    ("put", RpcOperation::Put),
    ("get", RpcOperation::Get),
    ("cas", RpcOperation::Cas),
    ("del", RpcOperation::Del),
    ("ping", RpcOperation::Ping),
    ("connect", RpcOperation::Connect),
    ("disconnect", RpcOperation::Disconnect),
    ("enqueue", RpcOperation::Enqueue),
    ("cancel", RpcOperation::Cancel),
    ("convert", RpcOperation::Convert),
    ("blocking", RpcOperation::Blocking),
    ("completion", RpcOperation::Completion),
    ("io", RpcOperation::Io),
    ("reint", RpcOperation::Reint),
    ("close", RpcOperation::Close),
    ("write", RpcOperation::Write),
    ("across", RpcOperation::Across),
];

/// The parts of a request by their words.
pub(crate) const PARTS: [(&str, Part); 4] = [
    ("request", Part::Request),
    ("reply", Part::Reply),
    ("bulk", Part::Bulk),
    ("early", Part::Early),
];

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
    /// What they ask for.
    pub kind: LoadKind,
    /// Part of the calls that change nothing.
    pub reads: Share,
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

/// What a target may serve.
const KINDS: [TargetKind; 6] = [
    TargetKind::List,
    TargetKind::Kv,
    TargetKind::Lock,
    TargetKind::Mgs,
    TargetKind::Mdt,
    TargetKind::Ost,
];
/// Longest name of a target (P-18).
const NAME_MAX: usize = ptlrpc::UUID_MAX;
/// Longest time that a tunable may say.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Most bulk data of a call, bytes.
const BULK_MAX: u64 = 4 << 20;
/// Most bytes of a value of a key.
const VALUE_MAX: u64 = 4 << 20;
/// The least that a value must hold: the number of the call that stored it.
const VALUE_MIN: u32 = 8;
/// Most keys of a load, and how many there are where nothing is said.
const KEYS_MAX: i64 = 65_536;
const KEYS: u32 = 16;
/// The least size of a store: records of clients need some.
const STORE_MIN: u32 = 64 << 10;
/// Most calls of one client to one target under way.
const WINDOW: u32 = 1;

type Time = fn(&mut Tunables) -> &mut Duration;

/// Tunables that are times, and the least that each may be, seconds.
const TIMES: [(&str, u64, Time); 9] = [
    ("obd_timeout", 1, |t| &mut t.obd_timeout),
    ("ping_interval", 1, |t| &mut t.ping_interval),
    ("at_min", 0, |t| &mut t.at_min),
    ("at_max", 0, |t| &mut t.at_max),
    ("at_history", 1, |t| &mut t.at_history),
    ("at_early_margin", 1, |t| &mut t.at_early_margin),
    ("at_extra", 1, |t| &mut t.at_extra),
    ("bulk_timeout", 0, |t| &mut t.bulk_timeout),
    ("ldlm_enqueue_min", 1, |t| &mut t.ldlm_enqueue_min),
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
    files::check(top, &rpc)?;
    if rpc.targets.is_empty() && rpc.tunables != Tunables::default() {
        return Err(top.wrong("has an [rpc] and nothing that uses it: expected a [[target]]"));
    }
    Ok(rpc)
}

fn tunables(mut t: Table<'_, '_>) -> Result<Tunables, ScenarioError> {
    let profile = t.take("profile").map(|v| v.profile()).transpose()?;
    let mut tunables = Tunables::of(profile.unwrap_or(Profile::Default));
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
    if let Some(v) = t.take("early_reply_defect") {
        tunables.early_reply_defect = v.flag()?;
    }
    if let Some(v) = t.take("ast_resend") {
        tunables.ast_resend = v.flag()?;
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
    let kinds = KINDS.map(|kind| (kind.name(), kind));
    let kind = t.require("kind", "list, kv, lock, mgs, mdt or ost")?.word(&kinds)?;
    files::check_name(&value, name, kind, rpc)?;
    let on = node(&t.require("on", "the node that serves it")?, index)?;
    let failover = match t.take("failover") {
        Some(v) => match node(&v, index)? {
            other if other != on => Some(other),
            _ => return Err(v.wrong("another node than 'on'")),
        },
        None => None,
    };
    let commit = t.take("commit").map(|v| v.duration()).transpose()?.unwrap_or(Duration::ZERO);
    let store = match t.take("store") {
        Some(v) if !kind.has_store() => {
            let what =
                format!("no store: a {} has none, kinds \"kv\" and \"ost\" have one", kind.name());
            return Err(v.wrong(&what));
        }
        Some(v) => store(v.table()?)?,
        None => StoreSpec::default(),
    };
    t.finish()?;
    Ok(TargetSpec { name: name.to_owned(), kind, on, failover, commit, store, line })
}

fn store(mut t: Table<'_, '_>) -> Result<StoreSpec, ScenarioError> {
    let mut store = StoreSpec::default();
    if let Some(v) = t.take("latency") {
        store.latency = v.duration()?;
        if store.latency > Duration::from_secs(10) {
            return Err(v.wrong("a time of at most 10s"));
        }
    }
    store.bandwidth = t.take("bandwidth").map(|v| v.rate()).transpose()?;
    if let Some(v) = t.take("size") {
        store.size = v.size(u64::from(u32::MAX))?;
        if store.size < STORE_MIN {
            return Err(v.wrong(&format!("at least {STORE_MIN} bytes")));
        }
    }
    t.finish()?;
    Ok(store)
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

/// The word of a workload of calls.
#[derive(Clone, Copy)]
pub(crate) enum LoadWord {
    /// `rpc`: calls to lists.
    Rpc,
    /// `kv`: calls to key-value targets.
    Kv,
    /// `lock`: locks of lock targets.
    Lock,
    /// `files`: files of a file system.
    Files,
}

/// The rest of a workload of calls.
pub(crate) fn load(
    mut t: Table<'_, '_>,
    word: LoadWord,
    index: &Index<'_>,
    rpc: &RpcWorld,
    duration: Duration,
) -> Result<RpcLoad, ScenarioError> {
    let line = t.line();
    let shown = t.require("from", "the clients that call")?;
    let from = Place::read_nodes(index, &shown)?;
    let called = t.require("to", "the targets that are called")?;
    let to = targets(&called, rpc)?;
    for node in from.nodes() {
        let connected = rpc.targets_of(node);
        if let Some(at) = to.iter().find(|at| !connected.contains(at)) {
            let (name, node) = (&rpc.targets[*at].name, index.world.name(node));
            let expected = format!("a [[client]] of '{name}' at each node: '{node}' has none");
            return Err(shown.wrong(&expected));
        }
    }
    let share = |t: &mut Table<'_, '_>, key| -> Result<Share, ScenarioError> {
        Ok(t.take(key).map(|v| v.share()).transpose()?.unwrap_or(Share::NONE))
    };
    let reads = match word {
        LoadWord::Rpc | LoadWord::Kv => share(&mut t, "reads")?,
        LoadWord::Lock | LoadWord::Files => Share::NONE,
    };
    let kind = match word {
        LoadWord::Lock => LoadKind::Lock(lock::read(&mut t)?),
        LoadWord::Files => LoadKind::Files(files::read(&mut t)?),
        LoadWord::Rpc => {
            let bulk = t.take("bulk").map(|v| v.size(BULK_MAX)).transpose()?.unwrap_or(0);
            LoadKind::List { bulk }
        }
        LoadWord::Kv => {
            let (cas, dels) = (share(&mut t, "cas")?, share(&mut t, "dels")?);
            if cas.0 + dels.0 > Share::ALL.0 {
                return Err(t.wrong("has cas and dels of more than 100% together"));
            }
            let keys = t.take("keys").map(|v| v.number(1, KEYS_MAX)).transpose()?;
            let size = match t.take("size") {
                Some(v) => match v.size(VALUE_MAX)? {
                    size if size >= VALUE_MIN => size,
                    _ => return Err(v.wrong(&format!("at least {VALUE_MIN} bytes"))),
                },
                None => VALUE_MIN,
            };
            LoadKind::Kv { keys: keys.map_or(KEYS, |n| n as u32), size, cas, dels }
        }
    };
    if let Some(other) = to.iter().find(|at| rpc.targets[**at].kind != kind.target()) {
        let (name, is) = (&rpc.targets[*other].name, rpc.targets[*other].kind.name());
        let wanted = kind.target().name();
        return Err(called.wrong(&format!("targets of kind \"{wanted}\": '{name}' is a {is}")));
    }
    let (pace, window) = workload::pace(&mut t, 0, WINDOW)?;
    let timeout = t.take("timeout").map(|v| v.duration_above_zero()).transpose()?;
    let (start, end) = workload::span(&mut t, duration)?;
    t.finish()?;
    Ok(RpcLoad { from, to, kind, reads, pace, window, timeout, start, end, line })
}
