//! What a console's session holds: nodes, groups, batches, and how they hang together.

use std::collections::BTreeMap;

use core::time::Duration;

use lnet_types::{Errno, Instant, ProcessId};
use lnet_wire::selftest::{Name, SessionId};

use super::command::{BatchShown, NodeShown, NodeState, SessionShown, Target, TestShown, TestSpec};

#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) wire_name: Name,
    pub(super) key: u32,
    pub(super) sid: SessionId,
    pub(super) features: u32,
    pub(super) force: bool,
    pub(super) timeout_s: u32,
    /// When the last command came.
    pub(super) active: Instant,
    pub(super) next_ping: Instant,
    /// Nodes of all groups.
    pub(super) nodes: BTreeMap<ProcessId, Node>,
    pub(super) groups: Vec<Group>,
    pub(super) batches: Vec<Batch>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) state: NodeState,
    heard: Instant,
    /// When it leaves a silent console, seconds; 0 is never.
    pub(super) timeout_s: u32,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// In the order in which they were added.
    pub(super) members: Vec<ProcessId>,
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) name: String,
    pub(super) number: u64,
    pub(super) tests: Vec<Test>,
    /// By the last report of the nodes.
    pub(super) running: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) spec: TestSpec,
    pub(super) clients: Vec<ProcessId>,
    pub(super) servers: Vec<ProcessId>,
}

impl Session {
    /// When it ends for want of commands.
    pub(super) fn dies(&self) -> Instant {
        self.active + Duration::from_secs(self.timeout_s.into())
    }

    pub(super) fn group(&self, name: &str) -> Result<&Group, Errno> {
        self.groups.iter().find(|g| g.name == name).ok_or(Errno::ENOENT)
    }

    /// A group that no test uses.
    pub(super) fn free_group(&self, name: &str) -> Result<&Group, Errno> {
        let group = self.group(name)?;
        let mut tests = self.batches.iter().flat_map(|b| &b.tests);
        let used = tests.any(|t| t.spec.from == name || t.spec.to == name);
        if used { Err(Errno::EBUSY) } else { Ok(group) }
    }

    pub(super) fn batch(&self, name: &str) -> Result<&Batch, Errno> {
        self.batches.iter().find(|b| b.name == name).ok_or(Errno::ENOENT)
    }

    pub(super) fn batch_numbered(&mut self, number: u64) -> Option<&mut Batch> {
        self.batches.iter_mut().find(|b| b.number == number)
    }

    pub(super) fn state(&self, node: ProcessId) -> NodeState {
        self.nodes.get(&node).map_or(NodeState::Unknown, |n| n.state)
    }

    /// Nodes come into a group; those that are new are unknown.
    pub(super) fn join(&mut self, group: &str, nodes: &[ProcessId]) {
        let Some(group) = self.groups.iter_mut().find(|g| g.name == group) else { return };
        for node in nodes {
            if !group.members.contains(node) {
                group.members.push(*node);
            }
            let unknown = || Node { state: NodeState::Unknown, heard: Instant::ZERO, timeout_s: 0 };
            self.nodes.entry(*node).or_insert_with(unknown);
        }
    }

    pub(super) fn leave(&mut self, group: &str, nodes: &[ProcessId]) {
        if let Some(group) = self.groups.iter_mut().find(|g| g.name == group) {
            group.members.retain(|m| !nodes.contains(m));
        }
    }

    /// Whether a node is in any group.
    pub(super) fn has_home(&self, node: ProcessId) -> bool {
        self.groups.iter().any(|g| g.members.contains(&node))
    }

    /// A node has been heard of.
    pub(super) fn heard(&mut self, now: Instant, node: ProcessId, state: NodeState) {
        if let Some(node) = self.nodes.get_mut(&node) {
            (node.heard, node.state) = (now, state);
        }
    }

    /// Active nodes not heard of for half of their time (6.7).
    pub(super) fn silent(&self, now: Instant) -> Vec<ProcessId> {
        let silent = |n: &Node| {
            let half = Duration::from_secs(n.timeout_s.into()) / 2;
            n.state == NodeState::Active && n.timeout_s != 0 && n.heard + half <= now
        };
        self.nodes.iter().filter(|(_, n)| silent(n)).map(|(id, _)| *id).collect()
    }

    pub(super) fn active_of(&self, nodes: &[ProcessId]) -> Vec<ProcessId> {
        nodes.iter().copied().filter(|n| self.state(*n) == NodeState::Active).collect()
    }

    pub(super) fn targets(&self, target: &Target) -> Result<Vec<ProcessId>, Errno> {
        Ok(match target {
            Target::Session => self.nodes.keys().copied().collect(),
            Target::Group(name) => self.group(name)?.members.clone(),
            Target::Batch { name, server: true } => self.batch(name)?.servers(),
            Target::Batch { name, server: false } => self.batch(name)?.clients(),
            Target::Nodes(nids) => {
                let ids: Vec<_> = nids.iter().copied().map(ProcessId::lustre).collect();
                if ids.iter().any(|id| !self.nodes.contains_key(id)) {
                    return Err(Errno::ENOENT);
                }
                ids
            }
        })
    }

    pub(super) fn shown(&self) -> SessionShown {
        SessionShown {
            name: self.name.clone(),
            nid: self.sid.nid,
            stamp: self.sid.stamp,
            key: self.key,
            features: self.features,
            timeout_s: self.timeout_s,
            force: self.force,
            nodes: self.nodes.len() as u32,
        }
    }

    pub(super) fn nodes_shown(&self, nodes: &[ProcessId]) -> Vec<NodeShown> {
        let shown = |n: &ProcessId| NodeShown { nid: n.nid, pid: n.pid.0, state: self.state(*n) };
        nodes.iter().map(shown).collect()
    }

    pub(super) fn batch_shown(&self, batch: &Batch) -> BatchShown {
        let test = |t: &Test| TestShown {
            kind: t.spec.kind.name().to_owned(),
            repeat: t.spec.repeat,
            concurrency: t.spec.concurrency,
            clients: self.nodes_shown(&t.clients),
            servers: self.nodes_shown(&t.servers),
        };
        BatchShown {
            running: batch.running,
            clients: self.nodes_shown(&batch.clients()),
            servers: self.nodes_shown(&batch.servers()),
            tests: batch.tests.iter().map(test).collect(),
        }
    }
}

impl Batch {
    pub(super) const fn new(name: String, number: u64) -> Self {
        Self { name, number, tests: Vec::new(), running: false }
    }

    /// The clients of all tests, each once.
    pub(super) fn clients(&self) -> Vec<ProcessId> {
        once(self.tests.iter().flat_map(|t| &t.clients))
    }

    /// The servers of all tests, each once.
    pub(super) fn servers(&self) -> Vec<ProcessId> {
        once(self.tests.iter().flat_map(|t| &t.servers))
    }

    /// What `node` calls test `number`: it counts only those that it is a client of.
    pub(super) fn number_at(&self, node: ProcessId, number: u32) -> u32 {
        let before = self.tests.iter().take(number as usize);
        before.filter(|t| t.clients.contains(&node)).count() as u32
    }
}

fn once<'a>(nodes: impl Iterator<Item = &'a ProcessId>) -> Vec<ProcessId> {
    let mut seen = std::collections::BTreeSet::new();
    nodes.copied().filter(|n| seen.insert(*n)).collect()
}

impl Test {
    /// Destinations of client number `i` (6.14).
    pub(super) fn destinations(&self, i: usize) -> Vec<ProcessId> {
        let (d, s, n) =
            (self.spec.clients.max(1) as usize, self.spec.servers as usize, self.servers.len());
        let first = i / d * s;
        (first..first + s).filter_map(|k| self.servers.get(k.checked_rem(n)?)).copied().collect()
    }

    /// Requests that a server is to expect at a time (6.14).
    pub(super) fn server_buffers(&self) -> u32 {
        let (d, s) = (self.spec.clients.max(1) as usize, self.spec.servers.max(1) as usize);
        let rounds = self.clients.len().div_ceil(d).div_ceil(self.servers.len().div_ceil(s).max(1));
        let all = rounds.saturating_mul(d).saturating_mul(self.spec.concurrency as usize);
        u32::try_from(all).unwrap_or(u32::MAX - 1).max(1)
    }
}
