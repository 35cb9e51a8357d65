//! Records by a small number, in chunks that never move: no record is copied when the slab grows, and
//! no more than one chunk is unused. Each place counts how often it was used.

use core::ops::{Index, IndexMut};

/// No record.
pub(super) const NIL: u32 = u32::MAX;

/// Records in a chunk.
const CHUNK: usize = 64;

#[derive(Debug)]
struct Slot<T> {
    turn: u32,
    value: Option<T>,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Box<[Slot<T>]>>,
    /// Places that were used and are free; the others follow `fresh`.
    free: Vec<u32>,
    fresh: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), fresh: 0, len: 0 }
    }
}

impl<T> Slab<T> {
    fn slot(&self, at: u32) -> Option<&Slot<T>> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)
    }

    fn slot_mut(&mut self, at: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            let at = self.fresh;
            if at as usize / CHUNK == self.chunks.len() {
                let slots = core::iter::repeat_with(|| Slot { turn: 0, value: None });
                self.chunks.push(slots.take(CHUNK).collect());
            }
            self.fresh += 1;
            at
        });
        if let Some(slot) = self.slot_mut(at) {
            slot.value = Some(value);
            self.len += 1;
        }
        at
    }

    /// The record leaves; its place is used again, but for a place whose turns are used up.
    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let slot = self.slot_mut(at)?;
        let value = slot.value.take()?;
        slot.turn = slot.turn.saturating_add(1);
        if slot.turn != u32::MAX {
            self.free.push(at);
        }
        self.len -= 1;
        Some(value)
    }

    /// How often the place was used before.
    pub(super) fn turn(&self, at: u32) -> u32 {
        self.slot(at).map_or(0, |slot| slot.turn)
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.slot(at)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slot_mut(at)?.value.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.zip(0u32..).filter_map(|(slot, at)| Some((at, slot.value.as_ref()?)))
    }
}

/// For numbers that the machine itself keeps: a record that is named is there.
impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        match self.get(at) {
            Some(value) => value,
            None => unreachable!("record {at} is named and gone"),
        }
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        match self.get_mut(at) {
            Some(value) => value,
            None => unreachable!("record {at} is named and gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_with_another_turn_until_its_turns_are_used_up() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((slab.remove(a), slab.remove(a), slab.len()), (Some('a'), None, 1));
        assert_eq!((slab.turn(a), slab.get(a), slab[b]), (1, None, 'b'));
        assert_eq!(slab.insert('c'), a);
        slab.slot_mut(a).expect("a place").turn = u32::MAX - 1;
        slab.remove(a);
        assert_ne!(slab.insert('d'), a);
        assert_eq!(slab.iter().map(|(_, c)| *c).collect::<String>(), "bd");
    }
}
