//! Memory for small messages: blocks of a few sizes, cut from regions of the host. What is given
//! back is given out again before a region is asked for.

use std::collections::BTreeMap;

use lnet_types::{RegionId, Span};

use super::Arena;

/// Sizes of blocks, bytes.
const CLASSES: [u32; 6] = [1 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// A region is asked for at a time of so many bytes.
const REGION: u32 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Slabs {
    /// Free blocks by class.
    free: [Vec<Span>; CLASSES.len()],
    /// The class of the blocks in each region.
    class_of: BTreeMap<RegionId, usize>,
}

impl Slabs {
    /// A block of at least `len` bytes, cut to `len`.
    pub(super) fn alloc(&mut self, len: u32, arena: &mut dyn Arena) -> Option<Span> {
        let class = CLASSES.iter().position(|size| *size >= len)?;
        if self.free[class].is_empty() {
            let region = arena.register(REGION).ok()?;
            self.class_of.insert(region, class);
            let size = CLASSES[class];
            let blocks = (0..REGION / size).rev();
            self.free[class].extend(blocks.map(|n| Span {
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
        let Some(&class) = self.class_of.get(&span.region) else { return };
        let size = CLASSES[class];
        let offset = span.offset - span.offset % u64::from(size);
        let block = Span { region: span.region, len: size, offset };
        debug_assert!(!self.free[class].contains(&block), "{span:?} is given back twice");
        self.free[class].push(block);
    }

    /// Gives back regions that no block is in use of.
    pub(super) fn trim(&mut self, arena: &mut dyn Arena) {
        for (class, size) in CLASSES.iter().enumerate() {
            let mut left: BTreeMap<RegionId, u32> = BTreeMap::new();
            for block in &self.free[class] {
                *left.entry(block.region).or_default() += 1;
            }
            left.retain(|_, blocks| *blocks == REGION / size);
            self.free[class].retain(|block| !left.contains_key(&block.region));
            for region in left.into_keys() {
                self.class_of.remove(&region);
                arena.unregister(region);
            }
        }
    }
}
