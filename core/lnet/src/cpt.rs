//! CPU partitions and NUMA nodes of the machine, and which of them each interface uses (V-3, O-13, O-17). A node
//! works on one thread: partitions say where that thread may run, and how far things are from each
//! other (`numa.rs`). Queues and credits are not split among them.

use std::collections::BTreeSet;

use lnet_types::{CptTable, Errno, NiId, Nid, RegionId};

use crate::Node;
use crate::local::Ni;
use crate::record::Input;

impl Node {
    /// The machine's partitions.
    pub const fn cpts(&self) -> &CptTable {
        self.numa.cpts()
    }

    /// Says how the machine is parted.
    ///
    /// # Errors
    /// `ERANGE`: an interface uses a partition that would be gone.
    pub fn set_cpts(&mut self, cpts: CptTable) -> Result<(), Errno> {
        self.note(|| Input::SetCpts { cpts: cpts.clone() });
        let count = cpts.count();
        let gone = |ni: &Ni| ni.cpts.as_ref().is_some_and(|own| own.iter().any(|c| *c >= count));
        if self.nis.values().any(gone) {
            return Err(Errno::ERANGE);
        }
        self.numa.set_cpts(cpts);
        Ok(())
    }

    /// Ties an interface to partitions (MR-cfg-025), at any time (MR-cfg-030); `None`: as if none had
    /// ever been named (O-17).
    ///
    /// # Errors
    /// Nothing changes. `ENOENT`: no such interface. `EINVAL`: an empty list. `ERANGE`: one of them
    /// does not exist.
    pub fn set_ni_cpts(&mut self, ni: NiId, cpts: Option<BTreeSet<u32>>) -> Result<(), Errno> {
        self.note(|| Input::SetNiCpts { ni, cpts: cpts.clone() });
        let count = self.numa.cpts().count();
        let ni = self.nis.get_mut(ni).ok_or(Errno::ENOENT)?;
        match &cpts {
            Some(cpts) if cpts.is_empty() => return Err(Errno::EINVAL),
            Some(cpts) if cpts.iter().any(|cpt| *cpt >= count) => return Err(Errno::ERANGE),
            _ => {}
        }
        ni.cpts = cpts;
        Ok(())
    }

    /// The partitions that an interface uses: those that were named, else those of its device if
    /// they are known, else all (O-17, MR-cfg-035).
    pub(crate) fn cpts_of(&self, ni: &Ni) -> BTreeSet<u32> {
        if let Some(named) = &ni.cpts {
            return named.clone();
        }
        let near: BTreeSet<u32> =
            ni.numa_node.into_iter().flat_map(|node| self.numa.cpts().of_numa_node(node)).collect();
        if near.is_empty() { (0..self.numa.cpts().count()).collect() } else { near }
    }

    /// The CPUs of all partitions that interfaces use, loopback aside; of all partitions while
    /// there is no such interface. Empty where the machine does not report its CPUs.
    pub fn cpus_in_use(&self) -> BTreeSet<u32> {
        let real = self.nis.values().filter(|ni| !ni.nid.is_loopback());
        let used: BTreeSet<u32> = real.flat_map(|ni| self.cpts_of(ni)).collect();
        let all = || (0..self.numa.cpts().count()).collect();
        self.numa.cpts().cpus_of(&if used.is_empty() { all() } else { used })
    }

    /// The partition that a NID is assigned to: by a hash of it, among those that the interfaces of
    /// its network use, or all (O-13). The hash is FNV-1a, which stays as it is: the kernel's is not
    /// known, so that the same NID may have another number there.
    pub fn cpt_of_nid(&self, nid: Nid) -> u32 {
        let local = self.nis.values().filter(|ni| ni.nid.net() == nid.net());
        let mut among: BTreeSet<u32> = local.flat_map(|ni| self.cpts_of(ni)).collect();
        if among.is_empty() {
            among = (0..self.numa.cpts().count()).collect();
        }
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = nid.as_wire().iter().copied().fold(0xcbf2_9ce4_8422_2325, step);
        // The low bits of this hash follow those of the address; the high ones do not.
        let at = (hash >> 32) as usize % among.len().max(1);
        among.into_iter().nth(at).unwrap_or(0)
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
        self.numa.set_distances(distances)
    }

    /// Says on which NUMA node the thread of this node runs: memory of unknown place counts as there.
    pub fn set_numa_home(&mut self, numa_node: Option<u32>) {
        self.note(|| Input::SetNumaHome { numa_node });
        self.numa.set_home(numa_node);
    }

    /// Says on which NUMA node registered memory lies.
    pub fn set_region_numa_node(&mut self, region: RegionId, numa_node: Option<u32>) {
        self.note(|| Input::SetRegionNumaNode { region, numa_node });
        self.numa.set_region(region, numa_node);
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
}
