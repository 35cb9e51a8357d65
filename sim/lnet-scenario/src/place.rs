//! How a scenario names parts of its world:
//!
//! | text | what it is |
//! | --- | --- |
//! | `server` | a node, or all nodes of a table with `count` |
//! | `client-7` | one of them |
//! | `server/0`, `client/1` | a rail by its number |
//! | `server/tcp1` | the rails on a network |
//! | `10.0.0.7@tcp` | the rail with this NID |
//! | `tcp1` | all rails on a network |
//!
//! A list means all of its parts. A [`Place`] stays as short as its text, however many nodes it
//! names.

use core::ops::Range;
use std::collections::BTreeMap;

use lnet_types::{Net, Nid};

use crate::error::ScenarioError;
use crate::model::{Group, NodeId, RailRef, World};
use crate::read::Value;

/// Nodes, or rails of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// What it consists of; parts may overlap.
    pub parts: Vec<Part>,
}

/// Nodes in a row, and some of their rails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Indices in [`World::nodes`].
    pub nodes: Range<u32>,
    /// Which rails of each.
    pub which: Which,
}

/// Some rails of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them: the node itself.
    All,
    /// The one with this number.
    Rail(u16),
    /// Those on the network with this index.
    Net(u16),
}

/// A world with its names and NIDs in order, to look many of them up.
pub(crate) struct Index<'w> {
    pub(crate) world: &'w World,
    nids: BTreeMap<Nid, RailRef>,
    groups: BTreeMap<&'w str, &'w Group>,
}

impl<'w> Index<'w> {
    pub(crate) fn new(world: &'w World) -> Self {
        let mut nids = BTreeMap::new();
        for (n, node) in world.nodes.iter().zip(0..) {
            for (r, rail) in n.rails.iter().zip(0..) {
                nids.insert(r.nid, RailRef { node: NodeId(node), rail });
            }
        }
        let groups = world.groups.iter().map(|g| (g.name.as_str(), g)).collect();
        Self { world, nids, groups }
    }

    /// Who has this NID.
    pub(crate) fn owner(&self, nid: Nid) -> Option<RailRef> {
        self.nids.get(&nid).copied()
    }

    /// The nodes that are called `name`, or what was expected instead.
    fn nodes(&self, name: &str) -> Result<Range<u32>, String> {
        if let Some(g) = self.groups.get(name) {
            return Ok(g.first..g.first + g.count);
        }
        let one = name.rsplit_once('-').and_then(|(group, number)| {
            let g = self.groups.get(group).filter(|g| g.numbered)?;
            let number: u32 = number.parse().ok().filter(|n| (1..=g.count).contains(n))?;
            Some(g.first + number - 1)
        });
        if let Some(n) = one {
            return Ok(n..n + 1);
        }
        const SHOWN_MAX: usize = 8;
        let groups = &self.world.groups;
        let mut names: Vec<&str> = groups.iter().take(SHOWN_MAX).map(|g| g.name.as_str()).collect();
        if groups.len() > SHOWN_MAX {
            names.push("…");
        }
        Err(format!("a node: no node is called '{name}' (there are {})", names.join(", ")))
    }
}

impl Place {
    /// All rails of one node.
    pub fn node(id: NodeId) -> Self {
        Self { parts: vec![Part { nodes: id.0..id.0.saturating_add(1), which: Which::All }] }
    }

    /// One rail.
    pub fn rail(at: RailRef) -> Self {
        let which = Which::Rail(at.rail);
        Self { parts: vec![Part { nodes: at.node.0..at.node.0.saturating_add(1), which }] }
    }

    /// All rails on the network with index `net`.
    pub fn net(world: &World, net: u16) -> Self {
        Self { parts: vec![Part { nodes: 0..world.nodes.len() as u32, which: Which::Net(net) }] }
    }

    /// Its nodes, each once, in order of the world.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut all: Vec<NodeId> =
            self.parts.iter().flat_map(|p| p.nodes.clone().map(NodeId)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Its rails, each once, in order of the world.
    pub fn rails(&self, world: &World) -> Vec<RailRef> {
        let mut all = Vec::new();
        for part in &self.parts {
            for node in part.nodes.clone().map(NodeId) {
                let Some(spec) = world.node(node) else { continue };
                for (rail, r) in (0u16..).zip(&spec.rails) {
                    let is_meant = match part.which {
                        Which::All => true,
                        Which::Rail(n) => n == rail,
                        Which::Net(n) => n == r.net,
                    };
                    if is_meant {
                        all.push(RailRef { node, rail });
                    }
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether it names whole nodes only.
    pub fn is_of_nodes(&self) -> bool {
        self.parts.iter().all(|p| p.which == Which::All)
    }

    /// What `text` names, or what was expected instead.
    pub(crate) fn parse(index: &Index<'_>, text: &str) -> Result<Part, String> {
        let world = index.world;
        if text.contains('@') {
            let nid: Nid = text.parse().map_err(|e| format!("a NID ({e})"))?;
            let at = index.owner(nid).ok_or("the NID of a rail: no node has this one")?;
            let node = at.node.0;
            return Ok(Part { nodes: node..node + 1, which: Which::Rail(at.rail) });
        }
        if let Some((node, rail)) = text.split_once('/') {
            let nodes = index.nodes(node)?;
            // All nodes of a table have the same rails.
            let rails = world.node(NodeId(nodes.start)).map_or(&[][..], |n| &n.rails);
            if let Ok(number) = rail.parse::<u16>() {
                return match usize::from(number) < rails.len() {
                    true => Ok(Part { nodes, which: Which::Rail(number) }),
                    false => Err(format!("a rail that is there: '{node}' has no rail {number}")),
                };
            }
            let net = net_of(world, rail)?;
            return match rails.iter().any(|r| r.net == net) {
                true => Ok(Part { nodes, which: Which::Net(net) }),
                false => Err(format!("a network that it is on: '{node}' has no rail on {rail}")),
            };
        }
        if text.parse::<Net>().is_ok() {
            let which = Which::Net(net_of(world, text)?);
            return Ok(Part { nodes: 0..world.nodes.len() as u32, which });
        }
        Ok(Part { nodes: index.nodes(text)?, which: Which::All })
    }

    /// One text or a list of them.
    pub(crate) fn read(index: &Index<'_>, value: &Value<'_, '_>) -> Result<Self, ScenarioError> {
        let texts = value.texts()?;
        if texts.is_empty() {
            return Err(value.wrong("at least one node, rail, NID or network"));
        }
        let part = |(text, v): &(&str, Value<'_, '_>)| {
            Self::parse(index, text).map_err(|expected| v.wrong(&expected))
        };
        Ok(Self { parts: texts.iter().map(part).collect::<Result<_, _>>()? })
    }

    /// The same, of whole nodes.
    pub(crate) fn read_nodes(
        index: &Index<'_>,
        value: &Value<'_, '_>,
    ) -> Result<Self, ScenarioError> {
        let place = Self::read(index, value)?;
        match place.is_of_nodes() {
            true => Ok(place),
            false => Err(value.wrong("nodes, not single rails or networks")),
        }
    }
}

/// The index of a network by its name.
pub(crate) fn net_of(world: &World, text: &str) -> Result<u16, String> {
    let net: Net = text.parse().map_err(|e| format!("a network ({e})"))?;
    let at = world.nets.iter().position(|n| n.net == net);
    at.map(|n| n as u16).ok_or_else(|| {
        let names: Vec<String> = world.nets.iter().map(|n| n.net.to_string()).collect();
        format!("a network of the scenario: there are {}", names.join(", "))
    })
}
