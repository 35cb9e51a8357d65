//! What befalls a scenario, as things to be done at times: cables are pulled, packets dropped where
//! they arrive, processes killed.

use std::time::Duration;

use anyhow::bail;
use lnet_scenario::{Direction, Fault, FaultKind, Links, NodeId, Place, Scenario, Share};
use lnet_types::Nid;

use crate::stage::{Nic, Stage};

/// Something to be done at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Since the beginning.
    pub(crate) at: Duration,
    /// Index of the fault.
    pub(crate) fault: usize,
    /// Whether it begins, or a carrier goes; otherwise it ends.
    pub(crate) on: bool,
}

/// All steps, in order.
pub(crate) fn steps(scenario: &Scenario) -> Vec<Step> {
    let mut all = Vec::new();
    for (index, fault) in scenario.faults.iter().enumerate() {
        let step = |at, on| Step { at, fault: index, on };
        if let FaultKind::Flap { down, up, .. } = fault.kind {
            let until = fault.until.unwrap_or(scenario.duration);
            let mut at = fault.at;
            while at < until {
                all.push(step(at, true));
                all.push(step((at + down).min(until), false));
                at += down + up;
            }
            continue;
        }
        all.push(step(fault.at, true));
        if let Some(until) = fault.until {
            all.push(step(until, false));
        }
    }
    all.sort_by_key(|step| step.at);
    all
}

/// What a step asks of processes; what it asks of hosts is done by [`apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Nothing more.
    Nothing,
    /// Kill these nodes.
    Kill(Vec<NodeId>),
    /// Start them again.
    Restart(Vec<NodeId>),
    /// Stop them where they stand, or let them go on.
    Pause(Vec<NodeId>, bool),
    /// Interfaces come.
    Add(Vec<(NodeId, Nid)>),
    /// Interfaces go.
    Del(Vec<(NodeId, Nid)>),
}

/// Carries out a step as far as it is about hosts and links.
pub(crate) fn apply(stage: &Stage, scenario: &Scenario, step: Step) -> anyhow::Result<Deed> {
    let Some(fault) = scenario.faults.get(step.fault) else { return Ok(Deed::Nothing) };
    let table = format!("ulnet_fault_{}", step.fault);
    match &fault.kind {
        FaultKind::Carrier { on, .. } | FaultKind::Flap { on, .. } => {
            for nic in nics(stage, scenario, on)? {
                stage.carrier(nic, !step.on)?;
            }
        }
        FaultKind::Cut(links) => filter(stage, scenario, links, &table, step.on, "drop")?,
        FaultKind::Loss { links, share } => {
            let Share(millionths) = *share;
            let drop = format!("numgen random mod 1000000 < {millionths} drop");
            filter(stage, scenario, links, &table, step.on, &drop)?;
        }
        FaultKind::Refuse(links) => {
            let reset = "meta l4proto tcp reject with tcp reset";
            filter(stage, scenario, links, &table, step.on, reset)?;
        }
        FaultKind::Reset(links) => {
            for nic in nics(stage, scenario, &links.on)? {
                let host = stage.host(nic.node)?;
                for far in far_ends(stage, scenario, links, nic)? {
                    host.kill_connections(&format!("src {} dst {}", nic.address, far.address))?;
                }
            }
        }
        FaultKind::Slow { links, bandwidth } => {
            if links.peer.is_some() {
                bail!(
                    "slow: links between two places can't be slowed alone here, leave out 'peer'"
                );
            }
            for nic in nics(stage, scenario, &links.on)? {
                if !step.on {
                    stage.restore_rate(nic)?;
                    continue;
                }
                if links.direction != Direction::In {
                    stage.slow(nic, true, *bandwidth)?;
                }
                if links.direction != Direction::Out {
                    stage.slow(nic, false, *bandwidth)?;
                }
            }
        }
        FaultKind::Kill { nodes, process: true, nids: None } => {
            let nodes = nodes.nodes();
            return Ok(if step.on { Deed::Kill(nodes) } else { Deed::Restart(nodes) });
        }
        FaultKind::Kill { process: false, .. } => {
            bail!("line {}: a machine can't be killed here: expected process = true", fault.line)
        }
        FaultKind::Pause(nodes) => return Ok(Deed::Pause(nodes.nodes(), step.on)),
        FaultKind::NiAdd { nodes, nids, .. } => {
            let all = nodes.nodes().into_iter().zip(nids.iter().copied()).collect();
            return Ok(if step.on { Deed::Add(all) } else { Deed::Del(all) });
        }
        FaultKind::NiDel(on) => {
            let all = on.rails(&scenario.world);
            let all = all
                .into_iter()
                .filter_map(|at| Some((at.node, scenario.world.rail(at)?.nid)))
                .collect();
            return Ok(if step.on { Deed::Del(all) } else { Deed::Add(all) });
        }
        other => bail!("line {}: '{}' can't be done to real sockets", fault.line, other.name()),
    }
    Ok(Deed::Nothing)
}

fn nics<'s>(stage: &'s Stage, scenario: &Scenario, on: &Place) -> anyhow::Result<Vec<&'s Nic>> {
    let rails = on.rails(&scenario.world);
    rails.into_iter().filter_map(|at| scenario.world.rail(at)).map(|r| stage.nic(r.nid)).collect()
}

/// The other ends of links of `near`.
fn far_ends<'s>(
    stage: &'s Stage,
    scenario: &Scenario,
    links: &Links,
    near: &Nic,
) -> anyhow::Result<Vec<&'s Nic>> {
    let all = match &links.peer {
        Some(peer) => nics(stage, scenario, peer)?,
        None => stage.nics().collect(),
    };
    Ok(all.into_iter().filter(|far| far.net == near.net && far.node != near.node).collect())
}

/// Puts a verdict on packets of links where they arrive, so that the sender gets no report; or
/// takes it away.
fn filter(
    stage: &Stage,
    scenario: &Scenario,
    links: &Links,
    table: &str,
    on: bool,
    verdict: &str,
) -> anyhow::Result<()> {
    let mut rules: Vec<(NodeId, String)> = Vec::new();
    for nic in nics(stage, scenario, &links.on)? {
        for far in far_ends(stage, scenario, links, nic)? {
            let rule = |at: &Nic, from: &Nic| {
                let (from, to) = (from.address, at.address);
                (at.node, format!("ip saddr {from} ip daddr {to} {verdict}"))
            };
            if links.direction != Direction::Out {
                rules.push(rule(nic, far));
            }
            if links.direction != Direction::In {
                rules.push(rule(far, nic));
            }
        }
    }
    rules.sort();
    rules.dedup();
    for of_host in rules.chunk_by(|a, b| a.0 == b.0) {
        let Some((node, _)) = of_host.first() else { continue };
        let script = if on {
            let lines: Vec<&str> = of_host.iter().map(|(_, rule)| rule.as_str()).collect();
            let lines = lines.join("\n  ");
            format!(
                "table inet {table} {{\n chain arrive {{\n  \
                 type filter hook input priority -300;\n  {lines}\n }}\n}}\n"
            )
        } else {
            format!("delete table inet {table}\n")
        };
        stage.host(*node)?.nft(&script)?;
    }
    Ok(())
}

/// A stretch of time, since the beginning, in which `a` and `b` can't reach each other whatever they
/// do: all rails of one are cut or have no carrier, it is dead or stands still, or all routers are.
pub(crate) fn dark(scenario: &Scenario, a: NodeId, b: NodeId) -> Vec<(Duration, Duration)> {
    let world = &scenario.world;
    let routers: Vec<NodeId> = (0..world.nodes.len() as u32)
        .map(NodeId)
        .filter(|n| world.group_of(*n).is_some_and(|g| g.router))
        .collect();
    let covers_rails = |on: &Place, node: NodeId| {
        let all = world.node(node).map_or(0, |n| n.rails.len());
        on.rails(world).iter().filter(|r| r.node == node).count() == all
    };
    let is_dark = |fault: &Fault| match &fault.kind {
        FaultKind::Cut(links) => {
            let by = |one, other| {
                let whole = links.peer.as_ref().is_none_or(|p| covers_rails(p, other));
                covers_rails(&links.on, one) && whole
            };
            by(a, b) || by(b, a)
        }
        FaultKind::Carrier { on, .. } => covers_rails(on, a) || covers_rails(on, b),
        FaultKind::Kill { nodes, .. } | FaultKind::Pause(nodes) => {
            let gone = nodes.nodes();
            let all_routers = !routers.is_empty() && routers.iter().all(|r| gone.contains(r));
            gone.contains(&a) || gone.contains(&b) || all_routers
        }
        _ => false,
    };
    let ends = |f: &Fault| (f.at, f.until.unwrap_or(scenario.duration));
    scenario.faults.iter().filter(|f| is_dark(f)).map(ends).collect()
}
