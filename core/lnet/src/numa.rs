//! Where memory and devices are: NUMA nodes, the CPU partitions that they are in, and the distances
//! between them (S-41.5, S-42). Data that the shell reads from the system, or that a test makes up;
//! nothing is known at first, and an interface of unknown place counts as near as the nearest one.

use std::collections::BTreeMap;

use lnet_types::{CptTable, Errno, IoVec, RegionId};

use crate::msg::Msg;
use crate::output::Payload;
use crate::portal::Portals;
use crate::portal::md::MdBuf;

/// Limit of the NUMA nodes of a machine that are distinguished.
const NODES_MAX: usize = 1024;

/// NUMA topology as far as the choice of interfaces depends on it.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Numa {
    /// Between NUMA nodes, as the system tells it. Row: from; column: to.
    distances: Vec<Vec<u32>>,
    /// Between the partitions of NUMA nodes, by nodes, ready for every message.
    measured: Vec<Vec<u32>>,
    /// Where the node's thread runs.
    home: Option<u32>,
    regions: BTreeMap<RegionId, u32>,
    /// How the machine is parted.
    cpts: CptTable,
}

impl Numa {
    /// Where the node's thread runs.
    pub(crate) const fn home(&self) -> Option<u32> {
        self.home
    }

    /// Sets the distances between NUMA nodes.
    ///
    /// # Errors
    /// `EINVAL`: not square, or more than 1024 nodes.
    pub(crate) fn set_distances(&mut self, distances: Vec<Vec<u32>>) -> Result<(), Errno> {
        let n = distances.len();
        if n > NODES_MAX || distances.iter().any(|row| row.len() != n) {
            return Err(Errno::EINVAL);
        }
        self.distances = distances;
        self.measure();
        Ok(())
    }

    /// How the machine is parted.
    pub(crate) const fn cpts(&self) -> &CptTable {
        &self.cpts
    }

    /// Says how the machine is parted.
    pub(crate) fn set_cpts(&mut self, cpts: CptTable) {
        self.cpts = cpts;
        self.measure();
    }

    /// Sets where the node's thread runs.
    pub(crate) const fn set_home(&mut self, numa_node: Option<u32>) {
        self.home = numa_node;
    }

    /// Sets where registered memory lies.
    pub(crate) fn set_region(&mut self, region: RegionId, numa_node: Option<u32>) {
        match numa_node {
            Some(n) => self.regions.insert(region, n),
            None => self.regions.remove(&region),
        };
    }

    /// The distance from the partition of memory at `from` to that of a device at `to`, both of them
    /// NUMA nodes: that of the two nodes of theirs that are farthest from each other. A node that is
    /// in no partition stands for itself.
    pub(crate) fn distance(&self, from: Option<u32>, to: Option<u32>) -> Option<u32> {
        self.measured.get(from? as usize)?.get(to? as usize).copied()
    }

    /// Works out what [`Numa::distance`] says, after a change of what it is made from.
    fn measure(&mut self) {
        let cpts = &self.cpts;
        // Partitions first, so that their numbers stay, then nodes that are in none.
        let mut sets: Vec<Vec<u32>> =
            cpts.iter().map(|cpt| cpt.numa_nodes.iter().copied().collect()).collect();
        let mut set_of = Vec::new();
        for node in (0..).take(self.distances.len()) {
            // A device or memory is in the first partition of its node.
            let cpt = cpts.of_numa_node(node).next();
            set_of.push(cpt.map_or(sets.len(), |cpt| cpt as usize));
            if cpt.is_none() {
                sets.push(vec![node]);
            }
        }
        let far = farthest(&sets, &self.distances);
        // Both sets have a known node: the one that is asked about.
        let between = |from: &usize, to: &usize| {
            far.get(*from).and_then(|row| *row.get(*to)?).unwrap_or_default()
        };
        let row = |from| set_of.iter().map(|to| between(from, to)).collect();
        self.measured = set_of.iter().map(row).collect();
    }

    /// The NUMA node of the memory that a message brings or waits for.
    #[inline]
    pub(crate) fn node_of(&self, msg: &Msg, portals: &Portals) -> Option<u32> {
        match (&msg.payload, msg.md.and_then(|md| portals.mds.get(md)).map(|md| &md.buf)) {
            (Payload::Spans(iov), _) if !iov.is_empty() => self.of(Some(iov)),
            (_, Some(MdBuf::Spans(iov))) => self.of(Some(iov)),
            _ => self.of(None),
        }
    }

    /// The NUMA node of the memory that begins with `iov`; that of the node's thread if there is
    /// none or it is not known.
    fn of(&self, iov: Option<&IoVec>) -> Option<u32> {
        let region = iov.and_then(|iov| iov.first()).map(|span| span.region);
        region.and_then(|r| self.regions.get(&r)).copied().or(self.home)
    }
}

/// From any member of one set of NUMA nodes to any of another: as far as it can be.
fn farthest(sets: &[Vec<u32>], distances: &[Vec<u32>]) -> Vec<Vec<Option<u32>>> {
    let to_set = |row: &Vec<u32>, set: &Vec<u32>| {
        set.iter().filter_map(|to| row.get(*to as usize).copied()).max()
    };
    // From each node first: whole sets with each other would be a fourth power.
    let of_node = |row| sets.iter().map(|set| to_set(row, set)).collect();
    let of_nodes: Vec<Vec<Option<u32>>> = distances.iter().map(of_node).collect();
    let of_set = |set: &Vec<u32>| {
        let mut all = vec![None; sets.len()];
        for row in set.iter().filter_map(|from| of_nodes.get(*from as usize)) {
            all.iter_mut().zip(row).for_each(|(far, one)| *far = (*far).max(*one));
        }
        all
    };
    sets.iter().map(of_set).collect()
}

/// How far the memory of each CPU partition is from each: as far as those of their NUMA nodes that are
/// farthest from each other, by the `distances` of NUMA nodes; `None` where these say nothing.
pub fn cpt_distances(cpts: &CptTable, distances: &[Vec<u32>]) -> Vec<Vec<Option<u32>>> {
    let nodes = |cpt| cpts.numa_nodes(cpt).collect();
    farthest(&(0..cpts.count()).map(nodes).collect::<Vec<_>>(), distances)
}
