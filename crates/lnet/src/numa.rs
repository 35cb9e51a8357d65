//! Where memory and devices are: NUMA nodes and the distances between them (S-41.5, S-42). Data that
//! the shell reads from the system, or that a test makes up; nothing is known at first, and what is
//! not known counts as equally near.

use std::collections::BTreeMap;

use lnet_types::{Errno, IoVec, NiId, RegionId};

use crate::Node;
use crate::msg::Msg;
use crate::output::Payload;
use crate::portal::md::MdBuf;
use crate::record::Input;

/// The most NUMA nodes of a machine that are told apart.
const NODES_MAX: usize = 1024;

/// NUMA topology as far as the choice of interfaces depends on it.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Numa {
    /// Row: from; column: to.
    distances: Vec<Vec<u32>>,
    /// Where the node's thread runs.
    home: Option<u32>,
    regions: BTreeMap<RegionId, u32>,
}

impl Numa {
    /// Where the node's thread runs.
    pub(crate) const fn home(&self) -> Option<u32> {
        self.home
    }

    /// The distance from memory at `from` to a device at `to`.
    pub(crate) fn distance(&self, from: Option<u32>, to: Option<u32>) -> Option<u32> {
        self.distances.get(from? as usize)?.get(to? as usize).copied()
    }

    /// The NUMA node of the memory that begins with `iov`; that of the node's thread if there is
    /// none or it is not known.
    fn of(&self, iov: Option<&IoVec>) -> Option<u32> {
        let region = iov.and_then(|iov| iov.first()).map(|span| span.region);
        region.and_then(|r| self.regions.get(&r)).copied().or(self.home)
    }
}

impl Node {
    /// Sets the distances between NUMA nodes: `distances[a][b]` from memory at `a` to a device at
    /// `b`, in the platform's measure (10 is local on common systems).
    ///
    /// # Errors
    /// `EINVAL`: not square, or more than 1024 nodes.
    pub fn set_numa_distances(&mut self, distances: Vec<Vec<u32>>) -> Result<(), Errno> {
        self.note(|| Input::SetNumaDistances { distances: distances.clone() });
        let n = distances.len();
        if n > NODES_MAX || distances.iter().any(|row| row.len() != n) {
            return Err(Errno::EINVAL);
        }
        self.numa.distances = distances;
        Ok(())
    }

    /// Says on which NUMA node the thread of this node runs: memory of unknown place counts as there.
    pub fn set_numa_home(&mut self, numa_node: Option<u32>) {
        self.note(|| Input::SetNumaHome { numa_node });
        self.numa.home = numa_node;
    }

    /// Says on which NUMA node registered memory lies.
    pub fn set_region_numa_node(&mut self, region: RegionId, numa_node: Option<u32>) {
        self.note(|| Input::SetRegionNumaNode { region, numa_node });
        match numa_node {
            Some(n) => self.numa.regions.insert(region, n),
            None => self.numa.regions.remove(&region),
        };
    }

    /// Says to which NUMA node the device of an interface is attached.
    ///
    /// # Errors
    /// `ENOENT`: no such interface.
    pub fn set_ni_numa_node(&mut self, ni: NiId, numa_node: Option<u32>) -> Result<(), Errno> {
        self.note(|| Input::SetNiNumaNode { ni, numa_node });
        self.nis.get_mut(ni).ok_or(Errno::ENOENT)?.numa_node = numa_node;
        Ok(())
    }

    /// The NUMA node of the memory that a message brings or waits for.
    pub(crate) fn numa_node_of(&self, msg: &Msg) -> Option<u32> {
        match (&msg.payload, msg.md.and_then(|md| self.portals.mds.get(md)).map(|md| &md.buf)) {
            (Payload::Spans(iov), _) if !iov.is_empty() => self.numa.of(Some(iov)),
            (_, Some(MdBuf::Spans(iov))) => self.numa.of(Some(iov)),
            _ => self.numa.of(None),
        }
    }
}
