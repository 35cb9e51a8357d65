//! The recipients of descriptors' events. The user word of each descriptor that the runtime makes
//! carries a key into this table; a key is never used twice, so a late event finds no recipient
//! rather than a wrong one.

use lnet::Event;
use lnet_types::{IoVec, MdId};

use crate::attachment::Inbox;
use crate::inbox::Posted;
use crate::operation::Pending;
use crate::stack::Stack;

/// Marks user words that are keys of this table.
pub(crate) const OWNED: u64 = 1 << 63;
/// Marks descriptors whose owner gets no events; the stack needs them all the same.
pub(crate) const SILENT: u64 = 1 << 62;

/// Runs on the node's thread with each event of a descriptor.
pub(crate) type HandlerFn = Box<dyn FnMut(&mut Stack, &Event) + Send>;

pub(crate) enum Owner {
    /// A PUT or GET from a handle.
    Operation(Pending),
    /// A buffer attached from a handle.
    Inbox(Inbox),
    /// A buffer of an inbox that posts itself anew.
    Ring(Posted),
    /// Code on the node's thread. `None` while it runs.
    Handler {
        run: Option<HandlerFn>,
        md: MdId,
        /// What the descriptor stands on, and whether that goes with it.
        iov: IoVec,
        owns_regions: bool,
    },
}

#[derive(Default)]
struct Entry {
    generation: u32,
    owner: Option<Owner>,
}

#[derive(Default)]
pub(crate) struct Owners {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Owners {
    pub(crate) fn insert(&mut self, owner: Owner) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            // Bounded by the node's limit of descriptors.
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.owner = Some(owner);
        // 30 bits: above them are the two marks.
        OWNED | u64::from(entry.generation & 0x3fff_ffff) << 32 | u64::from(index)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut Owner> {
        let entry = self.entries.get_mut(key as u32 as usize)?;
        let generation = (key >> 32) as u32 & 0x3fff_ffff;
        if entry.generation & 0x3fff_ffff == generation { entry.owner.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<Owner> {
        self.get_mut(key)?;
        let entry = &mut self.entries[key as u32 as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key as u32);
        entry.owner.take()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All keys in use, in the order of the table.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let live = self.entries.iter().enumerate().filter(|(_, e)| e.owner.is_some());
        live.map(|(i, e)| OWNED | u64::from(e.generation & 0x3fff_ffff) << 32 | i as u64).collect()
    }
}
