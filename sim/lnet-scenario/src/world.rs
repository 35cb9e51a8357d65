//! Reads `[tunables]`, `[conduct]`, `[[net]]` and `[[node]]`: the world.
//!
//! NIDs that the text leaves open are given in order: network *n* of the text has the block of
//! 2¹⁸ addresses from `10.0.0.0 + n × 2¹⁸` on, and its rails take them from the second on.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lnet::{Conduct, NetTunables, Profile, RouteSpec, Tunables};
use lnet_types::{Net, Nid};

use crate::error::ScenarioError;
use crate::model::{Clocks, Group, NetSpec, NodeSpec, Rail, Transport, World};
use crate::own;
use crate::place::{Index, Part, Place, net_of};
use crate::read::{Table, Value};
use crate::units::Share;
use crate::{NODES_MAX, RAILS_MAX};

/// Addresses of each network's block.
const BLOCK: u32 = 1 << 18;
/// Networks of a scenario: so many blocks are in 10.0.0.0/8.
const NETS_MAX: usize = 64;
/// Largest burst of a network: what a switch may hold for one port.
const BURST_MAX: u64 = 64 << 20;
/// Latency where none is given.
const LATENCY: Duration = Duration::from_micros(50);

pub(crate) fn read(
    top: &mut Table<'_, '_>,
    profile: Profile,
    counts: &[(String, u32)],
) -> Result<World, ScenarioError> {
    let shared = match top.take("tunables") {
        Some(v) => tunables(&v, profile, &[])?,
        None => Vec::new(),
    };
    let conduct = match top.take("conduct") {
        Some(v) => conduct(&v, &[])?,
        None => Vec::new(),
    };
    let mut world = World { nets: nets(top)?, groups: Vec::new(), nodes: Vec::new() };
    let mut nids = Nids { taken: BTreeSet::new(), next: vec![0; world.nets.len()] };
    let mut names = Names::default();
    let mut routes = Vec::new();
    // NIDs that are written down first, so that none of them is given away before its turn.
    for table in &mut top.list("node")? {
        let shared = Shared { profile, tunables: &shared, conduct: &conduct, counts };
        let routed = node(table, &shared, &mut world, &mut names, &mut nids)?;
        routes.push(routed);
    }
    let sized = |name: &str| world.groups.iter().any(|g| g.numbered && g.name == name);
    if let Some((name, _)) = counts.iter().find(|(name, _)| !sized(name)) {
        return Err(top.wrong(&format!("has no [[node]] '{name}' with a count: expected one")));
    }
    if world.groups.is_empty() {
        return Err(top.wrong("has no nodes: expected at least one [[node]]"));
    }
    for n in 0..world.nodes.len() {
        for at in 0..world.nodes[n].rails.len() {
            let rail = world.nodes[n].rails[at];
            if rail.nid.is_any() {
                let net = &world.nets[usize::from(rail.net)];
                let nid = nids.give(net.net, rail.net).ok_or_else(|| {
                    top.wrong(&format!("has more rails on {} than addresses: {BLOCK}", net.net))
                })?;
                world.nodes[n].rails[at].nid = nid;
            }
        }
    }
    let index = Index::new(&world);
    let mut read = Vec::new();
    for (group, value) in world.groups.iter().zip(routes) {
        read.push(value.map(|v| read_routes(&v, &index, group)).transpose()?);
    }
    for (group, routes) in world.groups.iter_mut().zip(read) {
        group.routes = routes.unwrap_or_default();
    }
    Ok(world)
}

/// Names in use, with their lines.
#[derive(Default)]
struct Names {
    taken: BTreeMap<String, u32>,
    /// Names with a count: their nodes are `name-NUMBER`.
    numbered: BTreeMap<String, u32>,
    /// What stands before the `-NUMBER` of names that end so.
    stems: BTreeMap<String, u32>,
}

impl Names {
    /// Takes a name, or says which line has it: `a-1` and the first of `a` with a count would be
    /// the same.
    fn claim(&mut self, name: &str, numbered: bool, line: u32) -> Option<u32> {
        let digits = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
        let stem = name.rsplit_once('-').filter(|(_, n)| digits(n)).map(|(stem, _)| stem);
        let other = self.taken.get(name).or_else(|| {
            let as_stem = self.stems.get(name).filter(|_| numbered);
            as_stem.or_else(|| stem.and_then(|s| self.numbered.get(s)))
        });
        if let Some(line) = other {
            return Some(*line);
        }
        self.taken.insert(name.to_owned(), line);
        if numbered {
            self.numbered.insert(name.to_owned(), line);
        }
        if let Some(stem) = stem {
            self.stems.insert(stem.to_owned(), line);
        }
        None
    }
}

/// NIDs in use, and how far the automatic ones are.
struct Nids {
    taken: BTreeSet<Nid>,
    next: Vec<u32>,
}

impl Nids {
    fn give(&mut self, net: Net, index: u16) -> Option<Nid> {
        let next = self.next.get_mut(usize::from(index))?;
        loop {
            *next += 1;
            if *next >= BLOCK - 1 {
                return None;
            }
            let nid = Nid::new(net, (10 << 24) + u32::from(index) * BLOCK + *next);
            if self.taken.insert(nid) {
                return Some(nid);
            }
        }
    }
}

/// Tunables by name, on top of `before`: known, in bounds, and not against each other.
pub(crate) fn tunables(
    value: &Value<'_, '_>,
    profile: Profile,
    before: &[(&'static str, i64)],
) -> Result<Vec<(&'static str, i64)>, ScenarioError> {
    let table = value.table()?;
    let mut all = before.to_vec();
    for (name, v) in table.all() {
        let row = Tunables::row(name).ok_or_else(|| {
            let near: Vec<&str> = Tunables::TABLE.iter().map(|r| r.name).collect();
            table.wrong(&format!("sets '{name}': expected one of {}", near.join(", ")))
        })?;
        let word = v.text().ok();
        let number = match word {
            // As it is typed for `set`: some have words.
            Some(word) => lnet_config::parse_setting(row.name, word)
                .ok_or_else(|| v.wrong("a number, or a word of this tunable"))?,
            None => v.number(row.min, row.max)?,
        };
        all.retain(|(n, _)| *n != row.name);
        all.push((row.name, number));
    }
    let mut check = Tunables::new(profile);
    check.set_all(&all).map_err(|e| table.wrong(&format!("can't be: {e}")))?;
    Ok(all)
}

/// Rows of the conduct table by name, on top of `before`: yes and no as flags, other values by name.
fn conduct(
    value: &Value<'_, '_>,
    before: &[(&'static str, &'static str)],
) -> Result<Vec<(&'static str, &'static str)>, ScenarioError> {
    let table = value.table()?;
    let mut all = before.to_vec();
    for (name, v) in table.all() {
        let row = Conduct::TABLE.iter().find(|row| row.name == name).ok_or_else(|| {
            let known: Vec<&str> = Conduct::TABLE.iter().map(|r| r.name).collect();
            table.wrong(&format!("sets '{name}': expected one of {}", known.join(", ")))
        })?;
        let chosen = match row.choices {
            ["no", "yes"] => match v.flag()? {
                true => "yes",
                false => "no",
            },
            choices => {
                let words: Vec<_> = choices.iter().map(|c| (*c, *c)).collect();
                v.word(&words)?
            }
        };
        all.retain(|(n, _)| *n != row.name);
        all.push((row.name, chosen));
    }
    Ok(all)
}

fn nets(top: &mut Table<'_, '_>) -> Result<Vec<NetSpec>, ScenarioError> {
    let mut nets: Vec<NetSpec> = Vec::new();
    for mut t in top.list("net")? {
        let name = t.require("name", "a network like \"tcp\" or \"o2ib1\"")?;
        let net: Net = name
            .text()?
            .parse()
            .map_err(|e| name.wrong(&format!("a network like \"tcp\": {e}")))?;
        if net == Net::LO || net == Net::ANY {
            return Err(name.wrong("a network between nodes"));
        }
        if nets.iter().any(|n| n.net == net) {
            return Err(name.wrong("each network once"));
        }
        if nets.len() == NETS_MAX {
            return Err(t.wrong(&format!("is too many: expected at most {NETS_MAX} networks")));
        }
        let tunables = own::net_tunables(&mut t, NetTunables::SOCK)?;
        const TRANSPORTS: [(&str, Transport); 4] = [
            ("stream", Transport::Stream),
            ("datagram", Transport::Datagram),
            ("rdma", Transport::Rdma),
            ("gni", Transport::Gni),
        ];
        let transport = t.take("transport").map(|v| v.word(&TRANSPORTS)).transpose()?;
        let transport = transport.unwrap_or_default();
        let clocks = clocks(&mut t, transport)?;
        let bandwidth = t.take("bandwidth").map(|v| v.rate()).transpose()?;
        let burst = match (t.take("burst"), bandwidth) {
            (Some(v), None) => return Err(v.wrong("no burst where there is no bandwidth")),
            (v, _) => v.map(|v| v.size(BURST_MAX)).transpose()?,
        };
        nets.push(NetSpec {
            net,
            latency: t.take("latency").map(|v| v.duration()).transpose()?.unwrap_or(LATENCY),
            jitter: t.take("jitter").map(|v| v.duration()).transpose()?.unwrap_or_default(),
            bandwidth,
            burst: burst.unwrap_or(0),
            loss: t.take("loss").map(|v| v.share()).transpose()?.unwrap_or(Share::NONE),
            transport,
            clocks,
            tunables,
        });
        t.finish()?;
    }
    if nets.is_empty() {
        return Err(top.wrong("has no networks: expected at least one [[net]]"));
    }
    Ok(nets)
}

/// Clocks of a network's drivers: those that its transport has.
fn clocks(t: &mut Table<'_, '_>, transport: Transport) -> Result<Clocks, ScenarioError> {
    let mut time = |key, of: &[Transport]| -> Result<Option<Duration>, ScenarioError> {
        let Some(v) = t.take(key) else { return Ok(None) };
        if !of.contains(&transport) {
            return Err(v.wrong("no such clock: the transport of this network has none"));
        }
        Ok(Some(v.duration_above_zero()?))
    };
    let streams = [Transport::Stream, Transport::Gni];
    let (timeout, keepalive) = (time("timeout", &streams)?, time("keepalive", &streams)?);
    let node_events = time("node_events", &[Transport::Gni])?;
    let fast_reconnect = match t.take("fast_reconnect") {
        Some(v) if transport != Transport::Gni => {
            return Err(v.wrong("no such switch: only transport \"gni\" has it"));
        }
        Some(v) => v.flag()?,
        None => false,
    };
    Ok(Clocks { timeout, keepalive, fast_reconnect, node_events })
}

/// What tables of nodes share.
struct Shared<'s> {
    profile: Profile,
    tunables: &'s [(&'static str, i64)],
    conduct: &'s [(&'static str, &'static str)],
    /// Numbers of nodes that are asked for instead of the text's.
    counts: &'s [(String, u32)],
}

/// One table of nodes; returns its routes, to be read when all nodes are known.
fn node<'a, 't>(
    t: &mut Table<'a, 't>,
    shared: &Shared<'_>,
    world: &mut World,
    names: &mut Names,
    nids: &mut Nids,
) -> Result<Option<Value<'a, 't>>, ScenarioError> {
    let line = t.line();
    let value = t.require("name", "the node's name")?;
    let name = value.text()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(plain) || name.parse::<Net>().is_ok() {
        return Err(value.wrong("letters, digits, - _ and ., and not the name of a network"));
    }
    let count = t.take("count");
    let (first, numbered) = (world.nodes.len(), count.is_some());
    let room = NODES_MAX - first;
    let count = match count {
        Some(v) => {
            let asked = shared.counts.iter().find(|(n, _)| n == name).map(|(_, n)| *n as usize);
            let count = asked.map_or_else(|| v.number(1, room as i64).map(|n| n as usize), Ok)?;
            if !(1..=room).contains(&count) {
                return Err(v.wrong(&format!("1 to {room} nodes instead of {count}")));
            }
            count
        }
        None if room == 0 => return Err(t.wrong(&format!("is one too many: {NODES_MAX}"))),
        None => 1,
    };
    if let Some(other) = names.claim(name, numbered, line) {
        return Err(value.wrong(&format!("a name of its own: line {other} has it")));
    }
    t.name = format!("node '{name}'");
    let own_profile = t.take("profile").map(|v| v.profile()).transpose()?;
    let profile = own_profile.unwrap_or(shared.profile);
    let own = match t.take("tunables") {
        Some(v) => tunables(&v, profile, shared.tunables)?,
        None => {
            let mut check = Tunables::new(profile);
            check
                .set_all(shared.tunables)
                .map_err(|e| t.wrong(&format!("can't have that: {e}")))?;
            shared.tunables.to_vec()
        }
    };
    let conduct = match t.take("conduct") {
        Some(v) => conduct(&v, shared.conduct)?,
        None => shared.conduct.to_vec(),
    };
    let router = t.take("router").map(|v| v.flag()).transpose()?.unwrap_or(false);
    let rails = rails(t, world, nids, numbered)?;
    let routes = t.take("routes");
    let (nets, peers, rules) = own::read(t, world, &rails)?;
    let ping_seq = t.take("ping_seq").map(|v| v.number(0, i64::from(u32::MAX))).transpose()?;
    let group = world.groups.len() as u32;
    world.groups.push(Group {
        name: name.to_owned(),
        first: first as u32,
        count: count as u32,
        numbered,
        profile,
        own_profile: own_profile.is_some(),
        tunables: own,
        conduct,
        router,
        routes: Arc::from([]),
        nets,
        peers,
        rules,
        ping_seq: ping_seq.unwrap_or(0) as u32,
        line,
    });
    world.nodes.resize(first + count, NodeSpec { group, rails });
    t.finish()?;
    Ok(routes)
}

fn rails(
    t: &mut Table<'_, '_>,
    world: &World,
    nids: &mut Nids,
    numbered: bool,
) -> Result<Vec<Rail>, ScenarioError> {
    let list =
        t.require("rails", "a list of networks or NIDs, like [\"tcp\", \"10.0.0.1@o2ib\"]")?;
    let items = list.items("networks or NIDs")?;
    if items.is_empty() || items.len() > RAILS_MAX {
        return Err(list.wrong(&format!("1 to {RAILS_MAX} rails")));
    }
    let mut rails = Vec::with_capacity(items.len());
    for v in items {
        let text = v.text()?;
        if !text.contains('@') {
            let net = net_of(world, text).map_err(|expected| v.wrong(&expected))?;
            rails.push(Rail { nid: Nid::ANY, net });
            continue;
        }
        let nid: Nid = text.parse().map_err(|e| v.wrong(&format!("a NID: {e}")))?;
        if nid.is_any() || nid.is_loopback() {
            return Err(v.wrong("the NID of one interface"));
        }
        let net = net_of(world, &nid.net().to_string()).map_err(|expected| v.wrong(&expected))?;
        if numbered {
            return Err(v.wrong("a network: nodes with a count get their NIDs in order"));
        }
        if !nids.taken.insert(nid) {
            return Err(v.wrong("a NID of no other node"));
        }
        rails.push(Rail { nid, net });
    }
    Ok(rails)
}

fn read_routes(
    value: &Value<'_, '_>,
    index: &Index<'_>,
    group: &Group,
) -> Result<Arc<[RouteSpec]>, ScenarioError> {
    let world = index.world;
    let own: BTreeSet<u16> = world
        .nodes
        .get(group.first as usize)
        .map(|n| n.rails.iter().map(|r| r.net).collect())
        .unwrap_or_default();
    let mut all: Vec<RouteSpec> = Vec::new();
    let mut known = BTreeSet::new();
    for item in value.items("tables like { net = \"tcp1\", gateway = \"router\" }")? {
        let mut t = item.table()?;
        let v = t.require("net", "the network that it leads to")?;
        let at = net_of(world, v.text()?).map_err(|expected| v.wrong(&expected))?;
        let net = world.nets[usize::from(at)].net;
        if own.contains(&at) {
            return Err(v.wrong("a network that the node is not on"));
        }
        let gateway = t.require("gateway", "a router or one of its NIDs")?;
        let hops = t.take("hops").map(|v| v.number(1, 255)).transpose()?.map(|n| n as u32);
        let priority = t.take("priority").map(|v| v.number(0, i64::from(i32::MAX))).transpose()?;
        let priority = priority.unwrap_or(0) as u32;
        t.finish()?;
        let mut gateways = BTreeSet::new();
        for (text, v) in gateway.texts()? {
            let part: Part = Place::parse(index, text).map_err(|expected| v.wrong(&expected))?;
            let rails = Place { parts: vec![part] }.rails(world);
            let mut near: Vec<Nid> = Vec::new();
            for at in rails {
                let group = world.group_of(at.node).filter(|g| g.router);
                group.ok_or_else(|| {
                    let name = world.name(at.node);
                    v.wrong(&format!("a router: '{name}' is none (router = true)"))
                })?;
                near.extend(world.rail(at).filter(|r| own.contains(&r.net)).map(|r| r.nid));
            }
            if near.is_empty() {
                return Err(v.wrong(&format!("a gateway on a network of '{}'", group.name)));
            }
            gateways.extend(near);
        }
        for gateway in gateways {
            if !known.insert((net, gateway)) {
                return Err(
                    item.wrong(&format!("one route to {net} by {gateway}, this is another"))
                );
            }
            all.push(RouteSpec { net, gateway, hops, priority });
        }
    }
    Ok(all.into())
}
