//! Tables by names that this side has chosen: cookies, holds, resources that its program asks for. The
//! hash has no key, as no peer chooses what is hashed. They are walked in the order of names alone, so
//! that no other order can leak into decisions.

use core::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashMap;

#[derive(Clone, Copy, Debug, Default)]
struct Mixing;

struct Mixer(u64);

impl BuildHasher for Mixing {
    type Hasher = Mixer;
    fn build_hasher(&self) -> Mixer {
        Mixer(0)
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        self.0 = (wide as u64) ^ (wide >> 64) as u64;
    }
}

/// A table of values by name.
#[derive(Clone, Debug)]
pub(crate) struct Lookup<K, V>(HashMap<K, V, Mixing>);

impl<K, V> Default for Lookup<K, V> {
    fn default() -> Self {
        Self(HashMap::with_hasher(Mixing))
    }
}

impl<K: Hash + Eq, V> Lookup<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(crate) fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Keeps those that `keeps` wants. It is asked in no order.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| keeps(key));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All names, in their order.
    pub(crate) fn sorted_keys(&self) -> Vec<K>
    where
        K: Copy + Ord,
    {
        let mut keys: Vec<K> = self.0.keys().copied().collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_walked_in_their_order_whatever_order_they_came_in() {
        let mut table = Lookup::default();
        for n in (0..1000u64).rev() {
            let key = n.wrapping_mul(0x5851_F42D_4C95_7F2D);
            assert_eq!(table.insert(key, n), None);
            assert_eq!(*table.get_or_insert_with(key, || 0), n);
        }
        table.retain(|key| !key.is_multiple_of(3));
        let keys = table.sorted_keys();
        assert!(keys.is_sorted() && keys.len() == table.len() && !table.is_empty());
        for key in keys {
            assert!(table.contains(&key) && !key.is_multiple_of(3));
            assert_eq!(table.get(&key).copied(), table.remove(&key));
        }
        assert!(table.is_empty());
    }
}
