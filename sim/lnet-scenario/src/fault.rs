//! Reads `[[fault]]`: what goes wrong, and when.

use core::time::Duration;

use lnet_types::Nid;

use crate::SECTION_MAX;
use crate::error::ScenarioError;
use crate::model::{Direction, Fault, FaultKind, LinkEvent, Links, Transport, World};
use crate::place::{Index, Part, Place, Which, net_of};
use crate::read::Table;
use crate::rpc::{self, LoadKind, RpcLoss, RpcWorld, TargetSpec};
use crate::units::Share;
use crate::world::tunables;

/// Whether a kind has an end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It must have one.
    Must,
    /// It may.
    May,
    /// It is done at once.
    None,
}

type Read = fn(&mut Table<'_, '_>, &Index<'_>) -> Result<FaultKind, ScenarioError>;
type ReadRpc = fn(&mut Table<'_, '_>, &Index<'_>, &RpcWorld) -> Result<FaultKind, ScenarioError>;

/// What a kind is about.
#[derive(Clone, Copy)]
enum Of {
    /// Nodes and what is between them.
    World(Read),
    /// What stands on LNet.
    Rpc(ReadRpc),
}

/// The kinds: word, end, and what they need.
const KINDS: &[(&str, (End, Read))] = &[
    ("cut", (End::May, |t, w| Ok(FaultKind::Cut(links(t, w)?)))),
    ("partition", (End::May, partition)),
    ("quiesce", (End::Must, |t, w| Ok(FaultKind::Quiesce(suspended(t, w)?)))),
    ("link_event", (End::None, link_event)),
    (
        "carrier",
        (End::May, |t, w| Ok(FaultKind::Carrier { on: on(t, w)?, known_after: known_after(t)? })),
    ),
    ("flap", (End::Must, flap)),
    ("refuse", (End::May, |t, w| Ok(FaultKind::Refuse(links(t, w)?)))),
    ("reset", (End::None, |t, w| Ok(FaultKind::Reset(links(t, w)?)))),
    ("loss", (End::May, |t, w| Ok(FaultKind::Loss { links: links(t, w)?, share: share(t)? }))),
    (
        "corrupt",
        (End::May, |t, w| {
            let links = links(t, w)?;
            let unnoticed = t.take("unnoticed").map(|v| v.share()).transpose()?;
            let share = match unnoticed {
                Some(_) => t.take("share").map(|v| v.share()).transpose()?,
                None => Some(share(t)?),
            };
            let (share, unnoticed) =
                (share.unwrap_or(Share::NONE), unnoticed.unwrap_or(Share::NONE));
            Ok(FaultKind::Corrupt { links, share, unnoticed })
        }),
    ),
    (
        "duplicate",
        (End::May, |t, w| Ok(FaultKind::Duplicate { links: links(t, w)?, share: share(t)? })),
    ),
    (
        "reorder",
        (End::May, |t, w| {
            let (links, share) = (links(t, w)?, share(t)?);
            Ok(FaultKind::Reorder { links, share, by: by(t)? })
        }),
    ),
    (
        "drop",
        (End::May, |t, w| {
            let (links, share) = (links(t, w)?, share(t)?);
            let reported = t.take("reported").map(|v| v.flag()).transpose()?.unwrap_or(false);
            Ok(FaultKind::Drop { links, share, reported })
        }),
    ),
    (
        "delay",
        (End::May, |t, w| {
            let (links, by) = (links(t, w)?, by(t)?);
            let jitter = t.take("jitter").map(|v| v.duration()).transpose()?.unwrap_or_default();
            Ok(FaultKind::Delay { links, by, jitter })
        }),
    ),
    (
        "slow",
        (End::May, |t, w| {
            let links = links(t, w)?;
            let bandwidth = t.require("bandwidth", "a rate like \"1Mbit/s\"")?.rate()?;
            Ok(FaultKind::Slow { links, bandwidth })
        }),
    ),
    ("device", (End::May, |t, w| Ok(FaultKind::Device(adapters(t, w)?)))),
    (
        "degraded",
        (End::May, |t, w| {
            let on = adapters(t, w)?;
            let bandwidth = t.require("bandwidth", "a rate like \"10Gbit/s\"")?.rate()?;
            Ok(FaultKind::Degraded { on, bandwidth })
        }),
    ),
    (
        "completions",
        (End::May, |t, w| {
            let on = adapters(t, w)?;
            let shown = t.require("share", "how many, like \"5%\"")?;
            let share = shown.share()?;
            match share {
                Share::NONE => Err(shown.wrong("more than 0%")),
                share => Ok(FaultKind::Completions { on, share }),
            }
        }),
    ),
    ("credits", (End::May, |t, w| Ok(FaultKind::Credits(adapters(t, w)?)))),
    ("kill", (End::May, kill)),
    ("pause", (End::Must, |t, w| Ok(FaultKind::Pause(nodes(t, w)?)))),
    ("drift", (End::May, drift)),
    ("memory", (End::May, |t, w| Ok(FaultKind::Memory(nodes(t, w)?)))),
    ("ni_add", (End::May, ni_add)),
    ("ni_del", (End::May, |t, w| Ok(FaultKind::NiDel(on(t, w)?)))),
    ("peer_del", (End::None, peer_del)),
    ("tune", (End::None, tune)),
];

/// The same for what stands on LNet.
const RPC_KINDS: &[(&str, (End, ReadRpc))] = &[
    (
        "handler_delay",
        (End::May, |t, _, rpc| {
            let (targets, by) = (targets(t, rpc)?, by(t)?);
            let jitter = t.take("jitter").map(|v| v.duration()).transpose()?.unwrap_or_default();
            Ok(FaultKind::HandlerDelay { targets, by, jitter })
        }),
    ),
    ("commit_stall", (End::May, |t, _, rpc| Ok(FaultKind::CommitStall(targets(t, rpc)?)))),
    ("failover", (End::May, failover)),
    ("rpc_lose", (End::May, rpc_lose)),
    ("store_full", (End::May, |t, _, rpc| Ok(FaultKind::StoreFull(stores(t, rpc)?)))),
    (
        "store_error",
        (End::May, |t, _, rpc| {
            let targets = stores(t, rpc)?;
            let share = t.take("share").map(|v| v.share()).transpose()?.unwrap_or(Share::ALL);
            Ok(FaultKind::StoreError { targets, share })
        }),
    ),
    ("hang", (End::May, hang)),
    (
        "evict",
        (End::None, |t, w, rpc| {
            Ok(FaultKind::Evict { targets: targets(t, rpc)?, clients: nodes(t, w)? })
        }),
    ),
];

fn targets(t: &mut Table<'_, '_>, rpc: &RpcWorld) -> Result<Vec<usize>, ScenarioError> {
    rpc::targets(&t.require("target", "the name of a target")?, rpc)
}

/// Targets with a store.
fn stores(t: &mut Table<'_, '_>, rpc: &RpcWorld) -> Result<Vec<usize>, ScenarioError> {
    let shown = t.require("target", "the name of a target with a store")?;
    let targets = rpc::targets(&shown, rpc)?;
    let without = targets.iter().filter_map(|at| rpc.targets.get(*at));
    match without.into_iter().find(|t| !t.kind.has_store()) {
        Some(t) => {
            let what = format!("targets of kind \"kv\" or \"ost\": '{}' has no store", t.name);
            Err(shown.wrong(&what))
        }
        None => Ok(targets),
    }
}

/// Nodes whose programs take locks.
fn hang(
    t: &mut Table<'_, '_>,
    index: &Index<'_>,
    rpc: &RpcWorld,
) -> Result<FaultKind, ScenarioError> {
    let shown = t.require("on", "a node")?;
    let nodes = Place::read_nodes(index, &shown)?;
    let locks = |node| {
        let mut locks = rpc.loads.iter().filter(|l| matches!(l.kind, LoadKind::Lock(_)));
        locks.any(|l| l.from.nodes().contains(&node))
    };
    match nodes.nodes().into_iter().find(|node| !locks(*node)) {
        Some(node) => {
            let name = index.world.name(node);
            let what = format!("nodes that a workload of kind \"lock\" is from: '{name}' has none");
            Err(shown.wrong(&what))
        }
        None => Ok(FaultKind::Hang(nodes)),
    }
}

fn rpc_lose(
    t: &mut Table<'_, '_>,
    index: &Index<'_>,
    rpc: &RpcWorld,
) -> Result<FaultKind, ScenarioError> {
    let shown = t.require("on", "a node")?;
    let nodes = Place::read_nodes(index, &shown)?;
    for node in nodes.nodes() {
        let serves = rpc.targets.iter().any(|t| t.on == node || t.failover == Some(node));
        if !serves && rpc.targets_of(node).is_empty() {
            let name = index.world.name(node);
            return Err(shown.wrong(&format!("nodes with a target or client: '{name}' has none")));
        }
    }
    let operation = t.take("opcode").map(|v| v.word(&rpc::OPERATIONS)).transpose()?;
    let part = t.require("part", "request, reply, bulk or early")?.word(&rpc::PARTS)?;
    let count = t.take("count").map(|v| v.number(1, 1_000_000)).transpose()?;
    let loss = RpcLoss { operation, part, count: count.map(|n| n as u32) };
    Ok(FaultKind::RpcLose { nodes, loss })
}

fn failover(
    t: &mut Table<'_, '_>,
    index: &Index<'_>,
    rpc: &RpcWorld,
) -> Result<FaultKind, ScenarioError> {
    let shown = t.require("on", "a node")?;
    let nodes = Place::read_nodes(index, &shown)?;
    for node in nodes.nodes() {
        let serves = |t: &TargetSpec| t.failover.is_some_and(|other| t.on == node || other == node);
        if !rpc.targets.iter().any(serves) {
            let name = index.world.name(node);
            return Err(
                shown.wrong(&format!("nodes of a target with 'failover': '{name}' serves none"))
            );
        }
    }
    let after = t.require("after", "how long until the other node takes over")?;
    Ok(FaultKind::Failover { nodes, after: after.duration_above_zero()? })
}

pub(crate) fn read(
    top: &mut Table<'_, '_>,
    world: &World,
    rpc: &RpcWorld,
    duration: Duration,
) -> Result<Vec<Fault>, ScenarioError> {
    let tables = top.list("fault")?;
    if tables.len() > SECTION_MAX {
        return Err(top.wrong(&format!("has more than {SECTION_MAX} faults")));
    }
    let index = Index::new(world);
    tables.into_iter().map(|t| one(t, &index, rpc, duration)).collect()
}

fn one(
    mut t: Table<'_, '_>,
    index: &Index<'_>,
    rpc: &RpcWorld,
    duration: Duration,
) -> Result<Fault, ScenarioError> {
    let line = t.line();
    let at = t.require("at", "when it begins, like \"10s\"")?;
    let (at, shown) = (at.duration()?, at);
    if at >= duration {
        return Err(shown.wrong("before the end of the scenario"));
    }
    let word = t.require("kind", "what goes wrong")?;
    let of_world = KINDS.iter().map(|(word, (end, read))| (*word, (*end, Of::World(*read))));
    let of_rpc = RPC_KINDS.iter().map(|(word, (end, read))| (*word, (*end, Of::Rpc(*read))));
    let (end, read) = word.word(&of_world.chain(of_rpc).collect::<Vec<_>>())?;
    let until = match (t.take("for"), t.take("until")) {
        (Some(v), Some(_)) => return Err(v.wrong("either 'for' or 'until'")),
        (Some(v), None) | (None, Some(v)) if end == End::None => {
            return Err(v.wrong("no end: it is done at once"));
        }
        (Some(v), None) => {
            let until = at.saturating_add(v.duration_above_zero()?);
            match until <= duration {
                true => Some(until),
                false => return Err(v.wrong("an end not after that of the scenario")),
            }
        }
        (None, Some(v)) => match v.duration()? {
            d if d > at && d <= duration => Some(d),
            _ => return Err(v.wrong("after its beginning, and not after the end of the scenario")),
        },
        (None, None) if end == End::Must => {
            return Err(t.wrong("has no end: expected 'for' or 'until'"));
        }
        (None, None) => None,
    };
    let kind = match read {
        Of::World(read) => read(&mut t, index)?,
        Of::Rpc(read) => read(&mut t, index, rpc)?,
    };
    t.name = format!("fault '{}'", kind.name());
    if let FaultKind::Kill { nids: Some(_), .. } = kind
        && until.is_none()
    {
        return Err(t.wrong("has NIDs to come back with, and never comes back: expected 'for'"));
    }
    t.finish()?;
    let until = match &kind {
        FaultKind::LinkEvent(event) if at + event.lasts() > duration => {
            return Err(t.wrong("has an end after that of the scenario"));
        }
        FaultKind::LinkEvent(event) => Some(at + event.lasts()),
        _ => until,
    };
    Ok(Fault { at, until, kind, line })
}

fn on(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<Place, ScenarioError> {
    Place::read(index, &t.require("on", "a node, a rail, a NID or a network")?)
}

/// Interfaces of RDMA networks alone.
fn adapters(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<Place, ScenarioError> {
    let shown = t.require("on", "a rail, a NID or a network of transport \"rdma\"")?;
    let place = Place::read(index, &shown)?;
    for at in place.rails(index.world) {
        let rail = index.world.rail(at);
        let net = rail.and_then(|rail| index.world.nets.get(usize::from(rail.net)));
        if net.is_none_or(|net| net.transport != Transport::Rdma) {
            let nid = rail.map_or_else(String::new, |rail| rail.nid.to_string());
            let what = format!("interfaces of transport \"rdma\": {nid} is none");
            return Err(shown.wrong(&what));
        }
    }
    Ok(place)
}

fn nodes(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<Place, ScenarioError> {
    Place::read_nodes(index, &t.require("on", "a node")?)
}

fn links(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<Links, ScenarioError> {
    const WAYS: [(&str, Direction); 3] =
        [("both", Direction::Both), ("in", Direction::In), ("out", Direction::Out)];
    Ok(Links {
        on: on(t, index)?,
        peer: t.take("peer").map(|v| Place::read(index, &v)).transpose()?,
        direction: t.take("direction").map(|v| v.word(&WAYS)).transpose()?.unwrap_or_default(),
    })
}

/// Longest of each step of a link event.
const STEP_MAX: Duration = Duration::from_secs(24 * 3600);

fn link_event(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let shown = t.require("on", "the nodes that are out of reach")?;
    let on = Place::read(index, &shown)?;
    let mut net = None;
    for at in on.rails(index.world) {
        let of = index.world.rail(at).map(|rail| rail.net);
        let spec = of.and_then(|net| index.world.nets.get(usize::from(net)));
        let gni = spec.is_some_and(|spec| spec.transport == Transport::Gni);
        if gni && net.is_some_and(|net| of != Some(net)) {
            return Err(shown.wrong("nodes of one network of transport \"gni\""));
        }
        net = net.or_else(|| of.filter(|_| gni));
    }
    let Some(net) = net else {
        return Err(shown.wrong("nodes of a network of transport \"gni\""));
    };
    // Other rails of a router are not on this fabric.
    let of_net = |part: &Part| match part.which {
        Which::All => Part { which: Which::Net(net), ..part.clone() },
        _ => part.clone(),
    };
    let on = Place { parts: on.parts.iter().map(of_net).collect() };
    let mut step = |key, usual| -> Result<Duration, ScenarioError> {
        let Some(v) = t.take(key) else { return Ok(Duration::from_secs(usual)) };
        match v.duration()? {
            time if time <= STEP_MAX => Ok(time),
            _ => Err(v.wrong("a time of at most 24h")),
        }
    };
    let (detect, compute, install) = (step("detect", 2)?, step("compute", 1)?, step("install", 1)?);
    let shown = t.require("quiesce", "how long the fabric stands still, \"0s\" for not at all")?;
    let quiesce = shown.duration()?;
    if quiesce > STEP_MAX || (!quiesce.is_zero() && quiesce < install) {
        return Err(shown.wrong(&format!("0s, or a time from 'install' ({install:?}) to 24h")));
    }
    Ok(FaultKind::LinkEvent(LinkEvent { net, on, detect, compute, quiesce, install }))
}

/// Networks that stand still: those that are named, or all.
fn suspended(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<Vec<u16>, ScenarioError> {
    let Some(v) = t.take("nets") else { return Ok((0..index.world.nets.len() as u16).collect()) };
    let mut nets = Vec::new();
    for (name, v) in v.texts()? {
        let net = net_of(index.world, name).map_err(|expected| v.wrong(&expected))?;
        if nets.contains(&net) {
            return Err(v.wrong("each network once"));
        }
        nets.push(net);
    }
    if nets.is_empty() { Err(v.wrong("at least one network")) } else { Ok(nets) }
}

fn share(t: &mut Table<'_, '_>) -> Result<Share, ScenarioError> {
    t.require("share", "how many, like \"5%\"")?.share()
}

fn by(t: &mut Table<'_, '_>) -> Result<Duration, ScenarioError> {
    t.require("by", "how long, like \"10ms\"")?.duration_above_zero()
}

fn partition(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let v = t.require("sides", "two or more sides, like [[\"a\", \"b\"], [\"c\"]]")?;
    let sides = v.items("sides, each a name or a list of names")?;
    if sides.len() < 2 {
        return Err(v.wrong("at least two sides"));
    }
    let sides = sides.iter().map(|s| Place::read(index, s)).collect::<Result<Vec<_>, _>>()?;
    let mut all: Vec<_> = sides.iter().flat_map(|s| s.rails(index.world)).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    match all.len() == count {
        true => Ok(FaultKind::Partition(sides)),
        false => Err(v.wrong("sides without a node in common")),
    }
}

fn flap(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let on = on(t, index)?;
    let down = t.require("down", "how long the carrier is away")?.duration_above_zero()?;
    let up = t.require("up", "how long it is there")?.duration_above_zero()?;
    let known_after = known_after(t)?;
    Ok(FaultKind::Flap { on, down, up, known_after })
}

/// How long a node does not know that a carrier went.
fn known_after(t: &mut Table<'_, '_>) -> Result<Duration, ScenarioError> {
    Ok(t.take("known_after").map(|v| v.duration()).transpose()?.unwrap_or_default())
}

fn kill(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let nodes = nodes(t, index)?;
    let process = t.take("process").map(|v| v.flag()).transpose()?.unwrap_or(false);
    let Some(v) = t.take("nids") else { return Ok(FaultKind::Kill { nodes, process, nids: None }) };
    let [one] = nodes.nodes()[..] else {
        return Err(v.wrong("new NIDs for one node, not for several"));
    };
    let rails = index.world.node(one).map_or(&[][..], |n| &n.rails);
    let mut nids = Vec::new();
    for (text, v) in v.texts()? {
        let nid: Nid = text.parse().map_err(|e| v.wrong(&format!("a NID: {e}")))?;
        let rail = rails.get(nids.len());
        let net = rail.and_then(|r| index.world.nets.get(usize::from(r.net))).map(|n| n.net);
        if net != Some(nid.net()) {
            let nets: Vec<String> = rails.iter().map(|r| r.nid.net().to_string()).collect();
            return Err(v.wrong(&format!("one NID for each rail, on {}", nets.join(", "))));
        }
        if nids.contains(&nid) || index.owner(nid).is_some_and(|at| at.node != one) {
            return Err(v.wrong("a NID of no other node"));
        }
        nids.push(nid);
    }
    match nids.len() == rails.len() {
        true => Ok(FaultKind::Kill { nodes, process, nids: Some(nids) }),
        false => Err(v.wrong(&format!("{} NIDs, one for each rail", rails.len()))),
    }
}

fn drift(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let nodes = nodes(t, index)?;
    let ppm = t.require("ppm", "how many millionths fast, or slow if negative")?;
    Ok(FaultKind::Drift { nodes, ppm: ppm.number(-500_000, 1_000_000)? as i32 })
}

fn ni_add(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let nodes = nodes(t, index)?;
    let v = t.require("nids", "the new NID of each node")?;
    let mut nids = Vec::new();
    let mut net = None;
    for (text, v) in v.texts()? {
        let nid: Nid = text.parse().map_err(|e| v.wrong(&format!("a NID: {e}")))?;
        let at = net_of(index.world, &nid.net().to_string()).map_err(|e| v.wrong(&e))?;
        if *net.get_or_insert(at) != at {
            return Err(v.wrong("NIDs of one network"));
        }
        if nids.contains(&nid) || index.owner(nid).is_some() {
            return Err(v.wrong("a NID of no other node"));
        }
        nids.push(nid);
    }
    let count = nodes.nodes().len();
    match net {
        Some(net) if nids.len() == count => Ok(FaultKind::NiAdd { nodes, net, nids }),
        _ => Err(v.wrong(&format!("{count} NIDs, one for each node"))),
    }
}

fn peer_del(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let nodes = nodes(t, index)?;
    let peers = Place::read_nodes(index, &t.require("peer", "the nodes that they forget")?)?;
    Ok(FaultKind::PeerDel { nodes, peers })
}

fn tune(t: &mut Table<'_, '_>, index: &Index<'_>) -> Result<FaultKind, ScenarioError> {
    let nodes = nodes(t, index)?;
    let v = t.require("tunables", "a table like { retry_count = 3 }")?;
    let mut set = Vec::new();
    // Against what each of the nodes has: the same names and values come out.
    for part in &nodes.parts {
        let mut groups: Vec<u32> = part
            .nodes
            .clone()
            .filter_map(|n| Some(index.world.nodes.get(n as usize)?.group))
            .collect();
        groups.dedup();
        for g in groups.into_iter().filter_map(|g| index.world.groups.get(g as usize)) {
            let all = tunables(&v, g.profile, &g.tunables)?;
            let table = v.table()?;
            set = all.into_iter().filter(|(n, _)| table.all().any(|(k, _)| k == *n)).collect();
        }
    }
    match set.is_empty() {
        true => Err(v.wrong("at least one tunable")),
        false => Ok(FaultKind::Tune { nodes, tunables: set }),
    }
}
