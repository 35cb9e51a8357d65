//! Reads what the operator of a node has set besides tunables and routes: tunables of its networks,
//! peers, and rules of the selection policy.

use core::num::NonZeroU32;
use std::sync::Arc;

use lnet::{NetTunables, Pattern, RULES_MAX, Rule};
use lnet_types::Nid;

use crate::error::ScenarioError;
use crate::model::{PeerSpec, Rail, World};
use crate::place::net_of;
use crate::read::{Table, Value};

/// Most peers that one table may configure.
const PEERS_MAX: usize = 100_000;

/// Tunables of networks, peers, rules.
type Own = (Vec<(u16, NetTunables)>, Arc<[PeerSpec]>, Arc<[Rule]>);

pub(crate) fn read(
    t: &mut Table<'_, '_>,
    world: &World,
    rails: &[Rail],
) -> Result<Own, ScenarioError> {
    let nets = t.take("nets").map(|v| nets(&v, world, rails)).transpose()?;
    let peers = t.take("peers").map(|v| peers(&v)).transpose()?;
    let rules = t.take("udsp").map(|v| rules(&v)).transpose()?;
    Ok((
        nets.unwrap_or_default(),
        peers.unwrap_or_default().into(),
        rules.unwrap_or_default().into(),
    ))
}

/// The tunables of a network in a table, on top of `before`.
pub(crate) fn net_tunables(
    t: &mut Table<'_, '_>,
    before: NetTunables,
) -> Result<NetTunables, ScenarioError> {
    let mut tunables = before;
    for (key, field, least) in [
        ("credits", &mut tunables.credits, 1),
        ("peer_credits", &mut tunables.peer_credits, 1),
        ("peer_buffer_credits", &mut tunables.peer_buffer_credits, 0),
    ] {
        if let Some(v) = t.take(key) {
            *field = v.number(least, i64::from(u16::MAX))? as u32;
        }
    }
    if let Some(v) = t.take("peer_timeout") {
        tunables.peer_timeout = v.number(0, i64::from(i32::MAX))? as i32;
    }
    Ok(tunables)
}

fn nets(
    value: &Value<'_, '_>,
    world: &World,
    rails: &[Rail],
) -> Result<Vec<(u16, NetTunables)>, ScenarioError> {
    let mut all: Vec<(u16, NetTunables)> = Vec::new();
    for item in value.items("tables like { name = \"tcp\", credits = 512 }")? {
        let mut t = item.table()?;
        let name = t.require("name", "one of the node's networks")?;
        let net = net_of(world, name.text()?).map_err(|expected| name.wrong(&expected))?;
        if !rails.iter().any(|r| r.net == net) {
            return Err(name.wrong("a network that the node is on"));
        }
        if all.iter().any(|(n, _)| *n == net) {
            return Err(name.wrong("each network once"));
        }
        let common = world.nets.get(usize::from(net)).map_or(NetTunables::SOCK, |n| n.tunables);
        all.push((net, net_tunables(&mut t, common)?));
        t.finish()?;
    }
    Ok(all)
}

fn peers(value: &Value<'_, '_>) -> Result<Vec<PeerSpec>, ScenarioError> {
    let items = value.items("tables like { nids = [\"10.0.0.2@tcp\", \"10.0.1.2@tcp\"] }")?;
    if items.len() > PEERS_MAX {
        return Err(value.wrong(&format!("at most {PEERS_MAX} peers")));
    }
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        let mut t = item.table()?;
        let list = t.require("nids", "its NIDs, the primary one first")?;
        let mut nids: Vec<Nid> = Vec::new();
        for (text, v) in list.texts()? {
            let nid: Nid = text.parse().map_err(|e| v.wrong(&format!("a NID: {e}")))?;
            if nid.is_any() || nid.is_loopback() || nids.contains(&nid) {
                return Err(v.wrong("the NID of one interface, each once"));
            }
            nids.push(nid);
        }
        if nids.is_empty() {
            return Err(list.wrong("at least the primary NID"));
        }
        let multi_rail = t.take("multi_rail").map(|v| v.flag()).transpose()?.unwrap_or(true);
        t.finish()?;
        all.push(PeerSpec { nids, multi_rail });
    }
    Ok(all)
}

fn rules(value: &Value<'_, '_>) -> Result<Vec<Rule>, ScenarioError> {
    let items = value.items("tables like { src = \"tcp1\", priority = 0 }")?;
    if items.len() > RULES_MAX {
        return Err(value.wrong(&format!("at most {RULES_MAX} rules")));
    }
    let mut all: Vec<Rule> = Vec::with_capacity(items.len());
    for item in items {
        let mut t = item.table()?;
        let mut pattern = |key| -> Result<Option<Pattern>, ScenarioError> {
            let Some(v) = t.take(key) else { return Ok(None) };
            let parsed = v.text()?.parse();
            parsed.map(Some).map_err(|e| v.wrong(&format!("a network or a range of NIDs: {e}")))
        };
        let (src, dst, rte) = (pattern("src")?, pattern("dst")?, pattern("rte")?);
        let mut number = |key, least| -> Result<Option<u32>, ScenarioError> {
            let n = t.take(key).map(|v| v.number(least, i64::from(u32::MAX))).transpose()?;
            Ok(n.map(|n| n as u32))
        };
        let (priority, messages) = (number("priority", 0)?, number("messages", 1)?);
        t.finish()?;
        let messages = messages.and_then(NonZeroU32::new);
        let rule = Rule::new(src, dst, rte, priority, messages)
            .map_err(|e| item.wrong(&format!("a rule of the selection policy: {e}")))?;
        let about = |r: &Rule| (r.src().cloned(), r.dst().cloned(), r.rte().cloned());
        if all.iter().any(|r| about(r) == about(&rule)) {
            return Err(item.wrong("one rule about the same, this is another"));
        }
        all.push(rule);
    }
    Ok(all)
}
