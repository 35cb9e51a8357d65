//! CPU partitions (CPTs; V-3): the machine's CPUs in groups, by the NUMA nodes that they belong to. A
//! table of them is made from what the machine is and what was wished for (`pattern.rs`); nothing
//! here asks a machine.

mod pattern;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

pub use pattern::{Automatic, CpuPattern, ParseCpuPatternError};

use crate::NumberSet;

/// CPUs that work may run on, each with its NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology(BTreeMap<u32, u32>);

impl FromIterator<(u32, u32)> for Topology {
    /// From CPUs and their NUMA nodes.
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cpt {
    /// Its CPUs.
    pub cpus: BTreeSet<u32>,
    /// The NUMA nodes that they belong to.
    pub numa_nodes: BTreeSet<u32>,
}

/// The partitions of a machine, numbered from 0. A machine without such data is one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CptTable {
    /// None: one partition, of unknown CPUs.
    cpts: Vec<Cpt>,
}

/// Why a machine can't be parted as wished.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CptError {
    /// A CPU that is not there, or not for this process.
    #[error("partition {cpt}: CPU {cpu} does not exist, or this process may not run on it")]
    NoCpu {
        /// The partition.
        cpt: usize,
        /// The CPU.
        cpu: u32,
    },
    /// A NUMA node of which no CPU is there.
    #[error("partition {cpt}: NUMA node {node} has no CPU that this process may run on")]
    NoNode {
        /// The partition.
        cpt: usize,
        /// The node.
        node: u32,
    },
    /// A CPU or node that is listed again.
    #[error("partition {cpt}: {what} {number} is listed twice")]
    Twice {
        /// The partition in which it is found again.
        cpt: usize,
        /// CPU or NUMA node.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// More partitions than CPUs.
    #[error("cpu_npartitions {count}: expected at most {cpus}, as many as there are CPUs")]
    TooManyForCpus {
        /// What was wished for.
        count: u32,
        /// The CPUs that are there.
        cpus: usize,
    },
    /// All CPUs are left out.
    #[error("cpu_pattern '{0}': no CPU is left")]
    NoneLeft(CpuPattern),
    /// More NUMA nodes than there may be partitions.
    #[error("{0} NUMA nodes with CPUs: expected at most {max} partitions", max = CptTable::MAX)]
    TooMany(usize),
}

impl CptTable {
    /// The most partitions.
    pub const MAX: usize = 256;

    /// The partitions of a machine of these CPUs. One of which nothing is known has one partition.
    ///
    /// # Errors
    /// [`CptError`]: what the machine has not, or has but once.
    pub fn new(pattern: &CpuPattern, machine: &Topology) -> Result<Self, CptError> {
        let cpts = match pattern {
            CpuPattern::Automatic(wish) => automatic(pattern, wish, machine)?,
            CpuPattern::Cpus(lists) => {
                listed(lists, machine.0.keys().copied(), "CPU", |cpt, cpu| CptError::NoCpu {
                    cpt,
                    cpu,
                })?
            }
            CpuPattern::Nodes(lists) => {
                let nodes: BTreeSet<u32> = machine.0.values().copied().collect();
                let no = |cpt, node| CptError::NoNode { cpt, node };
                let parts = listed(lists, nodes.iter().copied(), "NUMA node", no)?;
                let cpus = |nodes: &BTreeSet<u32>| {
                    let of = machine.0.iter().filter(|(_, node)| nodes.contains(node));
                    of.map(|(cpu, _)| *cpu).collect::<BTreeSet<u32>>()
                };
                parts.iter().map(cpus).collect()
            }
        };
        if cpts.len() > Self::MAX {
            return Err(CptError::TooMany(cpts.len()));
        }
        let cpt = |cpus: BTreeSet<u32>| {
            let numa_nodes = cpus.iter().filter_map(|cpu| machine.0.get(cpu)).copied().collect();
            Cpt { cpus, numa_nodes }
        };
        Ok(Self { cpts: cpts.into_iter().map(cpt).collect() })
    }

    /// How many there are: at least one.
    pub fn count(&self) -> u32 {
        u32::try_from(self.cpts.len()).unwrap_or(u32::MAX).max(1)
    }

    /// The partitions of which something is known.
    pub fn iter(&self) -> impl Iterator<Item = &Cpt> {
        self.cpts.iter()
    }

    /// The partitions that have CPUs of a NUMA node.
    pub fn of_numa_node(&self, node: u32) -> impl Iterator<Item = u32> {
        let has = move |(_, cpt): &(u32, &Cpt)| cpt.numa_nodes.contains(&node);
        (0..).zip(&self.cpts).filter(has).map(|(number, _)| number)
    }

    /// The NUMA nodes of a partition.
    pub fn numa_nodes(&self, cpt: u32) -> impl Iterator<Item = u32> {
        let cpt = usize::try_from(cpt).ok().and_then(|n| self.cpts.get(n));
        cpt.into_iter().flat_map(|cpt| cpt.numa_nodes.iter().copied())
    }

    /// The CPUs of these partitions.
    pub fn cpus_of(&self, cpts: &BTreeSet<u32>) -> BTreeSet<u32> {
        let meant = (0..).zip(&self.cpts).filter(|(number, _)| cpts.contains(number));
        meant.flat_map(|(_, cpt)| cpt.cpus.iter().copied()).collect()
    }
}

/// Groups of numbers, each of which must be there and in one group; `[*]` is all that are there.
fn listed(
    lists: &[NumberSet],
    there: impl Iterator<Item = u32> + Clone,
    what: &'static str,
    absent: impl Fn(usize, u32) -> CptError,
) -> Result<Vec<BTreeSet<u32>>, CptError> {
    let known: BTreeSet<u32> = there.collect();
    let mut taken = BTreeSet::new();
    let mut groups = Vec::new();
    for (cpt, list) in lists.iter().enumerate() {
        let mut group = BTreeSet::new();
        for range in list.ranges() {
            if !pattern::is_everything(*range)
                && let Some(number) = range.values().find(|n| !known.contains(n))
            {
                return Err(absent(cpt, number));
            }
            for number in known.iter().copied().filter(|n| range.contains(*n)) {
                if !taken.insert(number) {
                    return Err(CptError::Twice { cpt, what, number });
                }
                group.insert(number);
            }
        }
        groups.push(group);
    }
    Ok(groups)
}

/// One partition for each NUMA node, or as many as wished for, of neighbours.
fn automatic(
    pattern: &CpuPattern,
    wish: &Automatic,
    machine: &Topology,
) -> Result<Vec<BTreeSet<u32>>, CptError> {
    let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (cpu, node) in &machine.0 {
        nodes.entry(*node).or_default().push(*cpu);
    }
    for cpus in nodes.values_mut() {
        let mut core = 0..;
        cpus.retain(|cpu| {
            let without = |set: &Option<NumberSet>, n| set.as_ref().is_some_and(|s| s.contains(n));
            let core = core.next().unwrap_or(u32::MAX);
            !without(&wish.without_cores, core) && !without(&wish.without_cpus, *cpu)
        });
    }
    nodes.retain(|_, cpus| !cpus.is_empty());
    if nodes.is_empty() && !machine.0.is_empty() {
        return Err(CptError::NoneLeft(pattern.clone()));
    }
    if wish.count == 0 {
        return Ok(nodes.into_values().map(BTreeSet::from_iter).collect());
    }
    let cpus: Vec<u32> = nodes.into_values().flatten().collect();
    let count = usize::try_from(wish.count).unwrap_or(usize::MAX);
    if count > cpus.len() {
        return Err(CptError::TooManyForCpus { count: wish.count, cpus: cpus.len() });
    }
    // The first ones have one more where it does not come out even.
    let (each, more) = (cpus.len() / count, cpus.len() % count);
    let mut cpus = cpus.into_iter();
    let part = |n| cpus.by_ref().take(each + usize::from(n < more)).collect();
    Ok((0..count).map(part).collect())
}

#[cfg(test)]
#[path = "cpts/tests.rs"]
mod tests;
