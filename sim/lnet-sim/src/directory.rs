//! Who has which NID: rails of all hosts under one number each, found by NID.
//!
//! Rails that are taken away keep their number and lose their NID; a NID of no host gets a number
//! too when a message goes there, so that connections have two ends whatever happens.

use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use lnet_scenario::RailRef;
use lnet_types::Nid;

/// A rail of some host: its number in the [`Directory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RailIx(pub u32);

/// A host: the number of its node in the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// What is known of a rail.
#[derive(Clone, Copy, Debug)]
pub struct RailInfo {
    /// Its NID.
    pub nid: Nid,
    /// Its owner; none where a message went to a NID that does not exist.
    pub host: Option<HostId>,
    /// Index of its network in the scenario.
    pub net: u16,
    /// Whether it is there now.
    pub present: bool,
    /// The rail of the scenario that it is, if it has been there from the beginning.
    pub origin: Option<RailRef>,
}

/// A hash without a key, the same in every run. The map is asked and never walked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A map that is never walked.
pub(crate) type Lookup<K, V> = HashMap<K, V, BuildHasherDefault<Plain>>;

/// All rails.
#[derive(Debug, Default)]
pub struct Directory {
    rails: Vec<RailInfo>,
    by_nid: Lookup<Nid, RailIx>,
}

impl Directory {
    /// A rail by its number.
    pub fn rail(&self, ix: RailIx) -> &RailInfo {
        &self.rails[ix.0 as usize]
    }

    /// The rail that has this NID now.
    pub fn find(&self, nid: Nid) -> Option<RailIx> {
        self.by_nid.get(&nid).copied()
    }

    /// All rails there ever were.
    pub fn rails(&self) -> impl ExactSizeIterator<Item = (RailIx, &RailInfo)> {
        self.rails.iter().enumerate().map(|(n, r)| (RailIx(n as u32), r))
    }

    /// Whether the rail is there, and has an owner.
    pub fn is_present(&self, ix: RailIx) -> bool {
        let rail = self.rail(ix);
        rail.present && rail.host.is_some()
    }

    pub(crate) fn add(&mut self, rail: RailInfo) -> RailIx {
        // The number that the NID got before it had an owner becomes this rail's.
        if let Some(ix) = self.find(rail.nid) {
            self.rails[ix.0 as usize] = rail;
            return ix;
        }
        let ix = RailIx(self.rails.len() as u32);
        self.by_nid.insert(rail.nid, ix);
        self.rails.push(rail);
        ix
    }

    /// The number of a NID, with or without an owner.
    pub(crate) fn number(&mut self, nid: Nid, net: u16) -> RailIx {
        match self.find(nid) {
            Some(ix) => ix,
            None => self.add(RailInfo { nid, host: None, net, present: false, origin: None }),
        }
    }

    pub(crate) fn set_present(&mut self, ix: RailIx, present: bool) {
        self.rails[ix.0 as usize].present = present;
    }
}
