//! A table whose keys fit into the word that an upper has in each descriptor, and are not used again
//! before two million others of their place were.

use core::marker::PhantomData;
use core::num::NonZeroU64;

/// The bits of a key that count how often its place was used …
const TURNS: u64 = (1 << 21) - 1;
/// … stand behind its place.
const TURN_SHIFT: u32 = 32;

/// The place of a key in its table: what has it later has another key.
pub(crate) const fn index(key: u64) -> usize {
    key as u32 as usize
}

#[derive(Debug)]
struct Slot<T> {
    /// Of what stands here, or comes here next.
    key: u64,
    value: Option<T>,
}

/// Values by key; `K` makes keys of different tables different types.
#[derive(Debug)]
pub(crate) struct Table<K, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    key: PhantomData<K>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), key: PhantomData }
    }
}

impl<K: From<u64> + Into<u64> + Copy, T> Table<K, T> {
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> K {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len();
            self.slots.push(Slot { key: index as u64, value: None });
            // Bounded by the limits of what it holds, far below 2^32.
            index as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        K::from(slot.key)
    }

    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&T> {
        let key: u64 = key.into();
        let slot = self.slots.get(index(key))?;
        if slot.key == key { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let key: u64 = key.into();
        let slot = self.slots.get_mut(index(key))?;
        if slot.key == key { slot.value.as_mut() } else { None }
    }

    /// What stands at a place now, with its key.
    pub(crate) fn at(&self, place: u32) -> Option<(K, &T)> {
        let slot = self.slots.get(place as usize)?;
        Some((K::from(slot.key), slot.value.as_ref()?))
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        let key: u64 = key.into();
        let slot = self.slots.get_mut(index(key)).filter(|slot| slot.key == key)?;
        if slot.value.is_some() {
            let turn = ((key >> TURN_SHIFT) + 1) & TURNS;
            slot.key = turn << TURN_SHIFT | u64::from(key as u32);
            self.free.push(index(key) as u32);
        }
        // Values may be large: each is moved once.
        slot.value.take()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slots.iter().filter_map(|slot| Some((K::from(slot.key), slot.value.as_ref()?)))
    }
}

/// Declares the names of things in tables: a key and one, so that a name that may be missing takes no
/// more room than one that is there.
macro_rules! ids {
    ($($(#[$doc:meta])* $vis:vis $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(NonZeroU64);

        impl From<u64> for $name {
            fn from(key: u64) -> Self {
                Self(NonZeroU64::MIN.saturating_add(key))
            }
        }

        impl From<$name> for u64 {
            fn from(name: $name) -> Self {
                name.0.get() - 1
            }
        }
    )* };
}

ids! {
    /// The name of an import.
    pub ImportId;
    /// The name of a call under way.
    pub CallId;
    /// The name of a target.
    pub TargetId;
    /// The name of a service.
    pub ServiceId;
    /// The name of an export.
    pub ExportId;
    /// The name of a request that is being served.
    pub ServedId;
    /// The name of a descriptor's purpose.
    pub(crate) PostId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_what_is_gone_finds_nothing() {
        let mut table: Table<CallId, &str> = Table::default();
        let (a, b) = (table.insert("a"), table.insert("b"));
        assert_eq!((table.get(a), table.get(b)), (Some(&"a"), Some(&"b")));
        assert_eq!(table.remove(a), Some("a"));
        let c = table.insert("c");
        assert_ne!(u64::from(a), u64::from(c), "its place, but another name");
        assert_eq!(table.get(a), None);
        assert_eq!(table.get_mut(a), None);
        assert_eq!(table.remove(a), None);
        assert_eq!(table.len(), 2);
        assert_eq!(table.at(0), Some((c, &"c")));
        assert_eq!(table.at(2), None);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(c, &"c"), (b, &"b")]);
        assert!(u64::from(c) < 1 << 53, "fits into a user word");
    }
}
