//! Memory for small messages: blocks of a few sizes, cut from regions of the host. What is given
//! back is given out again before a region is asked for.

use std::collections::BTreeMap;

use lnet_types::{RegionId, Span};

use super::Arena;
use crate::table::Lookup;

/// Sizes of blocks, bytes.
const CLASSES: [u32; 6] = [1 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The first region of a class is of so many bytes, or of one block: a program with little to send needs
/// no more. Each further one is as large as all before it, up to [`REGION_MAX`].
const REGION_MIN: u32 = 16 << 10;
const REGION_MAX: u32 = 1 << 20;

/// A region, cut into blocks.
#[derive(Clone, Copy, Debug)]
struct Cut {
    class: usize,
    blocks: u32,
}

#[derive(Debug)]
pub(super) struct Slabs {
    /// Free blocks by class.
    free: [Vec<Span>; CLASSES.len()],
    /// Bytes of all regions of a class.
    held: [u32; CLASSES.len()],
    regions: Lookup<RegionId, Cut>,
}

impl Default for Slabs {
    fn default() -> Self {
        // Names of regions are the host's own, as those of descriptors are the node's.
        Self { free: Default::default(), held: [0; CLASSES.len()], regions: Lookup::new(0) }
    }
}

impl Slabs {
    /// A block of at least `len` bytes, cut to `len`.
    pub(super) fn alloc(&mut self, len: u32, arena: &mut dyn Arena) -> Option<Span> {
        let class = CLASSES.iter().position(|size| *size >= len)?;
        if self.free[class].is_empty() {
            let size = CLASSES[class];
            let bytes = self.held[class].clamp(REGION_MIN.max(size), REGION_MAX);
            let region = arena.register(bytes).ok()?;
            let blocks = bytes / size;
            self.held[class] = self.held[class].saturating_add(bytes);
            self.regions.insert(region, Cut { class, blocks });
            self.free[class].extend((0..blocks).rev().map(|n| Span {
                region,
                len: size,
                offset: u64::from(n * size),
            }));
        }
        let block = self.free[class].pop()?;
        Some(Span { len, ..block })
    }

    /// Takes a block back.
    pub(super) fn free(&mut self, span: Span) {
        let Some(&Cut { class, .. }) = self.regions.get(&span.region) else { return };
        let size = CLASSES[class];
        // Sizes are powers of two.
        let offset = span.offset & !u64::from(size - 1);
        let block = Span { region: span.region, len: size, offset };
        debug_assert!(!self.free[class].contains(&block), "{span:?} is given back twice");
        self.free[class].push(block);
    }

    /// Gives back regions that no block is in use of.
    pub(super) fn trim(&mut self, arena: &mut dyn Arena) {
        for (class, size) in CLASSES.into_iter().enumerate() {
            let mut left: BTreeMap<RegionId, u32> = BTreeMap::new();
            for block in &self.free[class] {
                *left.entry(block.region).or_default() += 1;
            }
            left.retain(|region, blocks| {
                self.regions.get(region).is_some_and(|cut| cut.blocks == *blocks)
            });
            self.free[class].retain(|block| !left.contains_key(&block.region));
            for (region, blocks) in left {
                self.regions.remove(&region);
                self.held[class] = self.held[class].saturating_sub(blocks * size);
                arena.unregister(region);
            }
        }
    }
}
