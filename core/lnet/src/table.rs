//! Lookup tables with a fixed, keyed hash: fast, the same in every run from the same seed, and not
//! to be iterated, so that no order can leak into decisions.

use core::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// Hashes with a key taken from the node's seed, so that a peer can't aim at one bucket.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Keyed(u64);

struct KeyedHasher(u64);

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(self.0)
    }
}

impl KeyedHasher {
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = (wide as u64) ^ (wide >> 64) as u64 ^ word.rotate_left(32);
    }
}

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        let wide = u128::from(self.0) * u128::from(MULTIPLIER);
        (wide as u64) ^ (wide >> 64) as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for c in &mut chunks {
            self.mix(u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.mix(u64::from_le_bytes(last));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }
}

/// A counter that is no part of the state of a node: equal nodes look alike.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Count(pub(crate) core::cell::Cell<u64>);

#[cfg(test)]
impl core::fmt::Debug for Count {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Count")
    }
}

/// A map that can be asked, and not walked.
#[derive(Clone, Debug)]
pub(crate) struct Lookup<K, V>(HashMap<K, V, Keyed>);

impl<K: Hash + Eq, V> Lookup<K, V> {
    pub(crate) fn new(seed: u64) -> Self {
        Self(HashMap::with_hasher(Keyed(seed | 1)))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Takes something out of a value, which goes itself if nothing is left: `take` says so.
    pub(crate) fn reduce(&mut self, key: K, take: impl FnOnce(&mut V) -> bool) {
        if let Entry::Occupied(mut value) = self.0.entry(key)
            && take(value.get_mut())
        {
            value.remove();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.0.entry(key).or_default()
    }
}

/// As a list in order of keys: equal tables are written alike, whatever happened in them before.
impl<K: serde::Serialize + Ord, V: serde::Serialize> serde::Serialize for Lookup<K, V> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        (self.0.hasher(), entries).serialize(to)
    }
}

impl<'de, K, V> serde::Deserialize<'de> for Lookup<K, V>
where
    K: serde::Deserialize<'de> + Hash + Eq,
    V: serde::Deserialize<'de>,
{
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (hasher, entries): (Keyed, Vec<(K, V)>) = serde::Deserialize::deserialize(from)?;
        let mut table = HashMap::with_capacity_and_hasher(entries.len(), hasher);
        table.extend(entries);
        Ok(Self(table))
    }
}
