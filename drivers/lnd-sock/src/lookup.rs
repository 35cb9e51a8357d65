//! Which peer a message is for: a hash table that can be asked but not walked, so that its order
//! leaks into nothing, and keyed by the seed, so that no peer can aim its NIDs at one bucket.

use core::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashMap;
use lnet_types::Prng;

/// Keys of the hash.
#[derive(Clone, Copy, Debug)]
struct Keyed(u64, u64);

/// Folded multiplication: two keyed words at a time into the halves of a product.
struct KeyedHasher {
    state: u64,
    key: u64,
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.0, key: self.1 }
    }
}

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        let wide = u128::from(self.state ^ self.key) * u128::from(self.key | 1);
        (wide as u64) ^ (wide >> 64) as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        self.write_u64(u64::from_le_bytes(last));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.state ^ word) * u128::from(self.key | 1);
        self.state = (wide as u64) ^ (wide >> 64) as u64 ^ word.rotate_left(32);
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Lookup<K, V>(HashMap<K, V, Keyed>);

impl<K: Hash + Eq, V: Copy> Lookup<K, V> {
    pub(crate) fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        Self(HashMap::with_hasher(Keyed(prng.next_u64(), prng.next_u64())))
    }

    pub(crate) fn find(&self, key: &K) -> Option<V> {
        self.0.get(key).copied()
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lnet_types::{Net, Nid};

    use super::*;

    #[test]
    fn hashes_spread_over_neighbouring_nids_and_depend_on_the_seed() {
        let hashes = |seed| -> BTreeSet<u64> {
            let table = Lookup::<Nid, ()>::new(seed);
            let hash = |n| table.0.hasher().hash_one(Nid::new(Net::TCP, n)) >> 52;
            (0..1000).map(hash).collect()
        };
        // 1000 balls in 4096 buckets leave about 887 of them with at least one.
        assert!(hashes(1).len() > 800, "{}", hashes(1).len());
        assert_ne!(hashes(1), hashes(2));
        assert_eq!(hashes(1), hashes(1));
    }
}
