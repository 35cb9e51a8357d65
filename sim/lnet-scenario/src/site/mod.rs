//! Worlds of real sites: what `lnetctl export` printed on each node becomes the text of a scenario,
//! to be read, changed and played like any other.
//!
//! An export is read by `lnet-config`, which reads configuration for nodes too; `node.rs` takes
//! from it what a world has a place for; `write.rs` makes the text. In between, here, nodes are
//! held against each other: who has which NID, who forwards. What a world has no place for is left
//! out and listed ([`SiteWorld::left_out`]); what contradicts itself is an error with file and
//! line.

mod node;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use lnet::Profile;
use lnet_config::yaml::Pos;
use lnet_types::{Net, Nid};

use crate::error::ScenarioError;
use crate::{NODES_MAX, parse, usual_work};
use node::SiteNode;

/// Most exports of one site.
pub const EXPORTS_MAX: usize = NODES_MAX;

/// What one node printed.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// What the node is to be called.
    pub node: &'a str,
    /// The file, as errors are to name it.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
}

/// A world made of exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteWorld {
    /// The scenario, as a text that [`parse`] reads.
    pub text: String,
    /// What the exports say and the world does not, with places; each kind once.
    pub left_out: Vec<String>,
    /// The nodes of which nothing says whose they are, and that are taken for kernel nodes.
    pub guessed: Vec<String>,
}

/// The world of a site, called `name`. `profile`: of all nodes; if `None`, nodes whose exports have
/// settings of this project are of the default profile, others are taken for kernel nodes.
///
/// # Errors
/// The first export that is none, that has something impossible, or that contradicts another one.
pub fn world_of(
    name: &str,
    exports: &[Export<'_>],
    profile: Option<Profile>,
) -> Result<SiteWorld, ScenarioError> {
    let mut left_out = LeftOut::default();
    let mut nodes: Vec<SiteNode> = Vec::with_capacity(exports.len());
    let mut names = BTreeMap::new();
    let mut owners: BTreeMap<Nid, usize> = BTreeMap::new();
    for export in exports {
        if let Some(other) = names.insert(export.node, export.file) {
            let what = format!("'{}' is the node of {other}: expected another name", export.node);
            return Err(at(export.file, Pos { line: 1, column: 1 }, what));
        }
        let node = SiteNode::read(export, profile, &mut left_out)?;
        for (nid, pos) in &node.rails {
            if let Some(other) = owners.insert(*nid, nodes.len()) {
                let other = nodes.get(other).map_or(export.file, |n| n.file.as_str());
                let what = format!("{nid} is in {other} already: expected a NID of its own");
                return Err(at(export.file, *pos, what));
            }
        }
        nodes.push(node);
    }
    let nets: BTreeSet<Net> = owners.keys().map(|nid| nid.net()).collect();
    let kept: Vec<Vec<bool>> =
        nodes.iter().map(|n| routes_that_lead(n, &nodes, &owners, &nets, &mut left_out)).collect();
    for (node, kept) in nodes.iter_mut().zip(kept) {
        let mut kept = kept.into_iter();
        node.routes.retain(|_| kept.next().unwrap_or(false));
    }
    let mut text = write::text(name, &nodes);
    let check = |text: &str| {
        parse(name, text).map_err(|e| {
            let what = format!("the world of this site can't be: {}", e.what);
            at(name, Pos { line: e.line as usize, column: e.column as usize }, what)
        })
    };
    text.push_str(&usual_work(&check(&text)?.world));
    check(&text)?;
    let guessed = nodes.into_iter().filter(|n| n.guessed).map(|n| n.name).collect();
    Ok(SiteWorld { text, left_out: left_out.lines(), guessed })
}

/// Which routes of a node lead somewhere in this site.
fn routes_that_lead(
    node: &SiteNode,
    nodes: &[SiteNode],
    owners: &BTreeMap<Nid, usize>,
    nets: &BTreeSet<Net>,
    left_out: &mut LeftOut,
) -> Vec<bool> {
    let is_own = |net: Net| node.rails.iter().any(|(nid, _)| nid.net() == net);
    let mut known: Vec<(Net, Nid)> = Vec::new();
    let mut kept = Vec::with_capacity(node.routes.len());
    for (route, pos) in &node.routes {
        let gateway = owners.get(&route.gateway).and_then(|n| nodes.get(*n));
        let why = match gateway {
            _ if known.contains(&(route.net, route.gateway)) => "it is there twice".to_owned(),
            _ if !nets.contains(&route.net) => format!("no node of the site is on {}", route.net),
            _ if is_own(route.net) => format!("the node is on {} itself", route.net),
            None => "no node of the site has its gateway's NID".to_owned(),
            Some(_) if !is_own(route.gateway.net()) => {
                format!("the node is not on the gateway's network, {}", route.gateway.net())
            }
            Some(gateway) if !gateway.forwards => format!("'{}' does not forward", gateway.name),
            Some(_) => {
                known.push((route.net, route.gateway));
                kept.push(true);
                continue;
            }
        };
        let what = format!("route to {} by {}: {why}", route.net, route.gateway);
        left_out.once(&node.file, *pos, what);
        kept.push(false);
    }
    kept
}

/// An error at a place of an export.
fn at(file: &str, pos: Pos, what: String) -> ScenarioError {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    ScenarioError {
        file: file.to_owned(),
        line: number(pos.line),
        column: number(pos.column),
        what,
    }
}

/// What is left out: the first place of each kind, and how many more there are.
#[derive(Debug, Default)]
struct LeftOut {
    kinds: Vec<(String, String, usize)>,
    by_kind: BTreeMap<String, usize>,
}

impl LeftOut {
    /// Something that may be so in many places.
    fn once(&mut self, file: &str, pos: Pos, kind: String) {
        match self.by_kind.get(&kind).and_then(|n| self.kinds.get_mut(*n)) {
            Some((_, _, more)) => *more += 1,
            None => {
                self.by_kind.insert(kind.clone(), self.kinds.len());
                let place = format!("{file}:{}:{}", pos.line, pos.column);
                self.kinds.push((place, kind, 0));
            }
        }
    }

    fn lines(self) -> Vec<String> {
        let line = |(place, what, more): (String, String, usize)| match more {
            0 => format!("{place}: {what}"),
            more => format!("{place} and {more} more: {what}"),
        };
        self.kinds.into_iter().map(line).collect()
    }
}
