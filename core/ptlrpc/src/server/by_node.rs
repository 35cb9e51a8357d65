//! What is counted for each node. The node that was counted last is counted next nearly always, so its
//! count is at hand.

use std::collections::BTreeMap;

use lnet_types::Nid;

/// See the module's head. `V::default()` is the count of a node that is not here.
#[derive(Debug)]
pub(crate) struct ByNode<V> {
    last: (Nid, V),
    /// Other nodes with another count than that.
    others: BTreeMap<Nid, V>,
}

impl<V: Default> Default for ByNode<V> {
    fn default() -> Self {
        Self { last: (Nid::ANY, V::default()), others: BTreeMap::new() }
    }
}

impl<V: Copy + Default + PartialEq> ByNode<V> {
    pub(crate) fn get(&self, node: Nid) -> V {
        match self.last {
            (last, count) if last == node => count,
            _ => self.others.get(&node).copied().unwrap_or_default(),
        }
    }

    /// How many nodes have a count.
    pub(crate) fn len(&self) -> usize {
        self.others.len() + usize::from(self.last.1 != V::default())
    }

    pub(crate) fn change(&mut self, node: Nid, change: impl FnOnce(&mut V)) {
        if self.last.0 != node {
            let count = self.others.remove(&node).unwrap_or_default();
            let (before, left) = core::mem::replace(&mut self.last, (node, count));
            if left != V::default() {
                self.others.insert(before, left);
            }
        }
        change(&mut self.last.1);
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::Prng;

    use super::*;

    #[test]
    fn counts_are_those_of_a_plain_map_and_nodes_without_one_take_no_room() {
        let node = |n: u64| format!("10.0.{}.{}@tcp", n >> 8, n & 0xFF).parse().unwrap();
        let mut rng = Prng::new(3);
        let (mut counts, mut plain) = (ByNode::<u32>::default(), BTreeMap::<Nid, u32>::new());
        for round in 0..20_000 {
            // Other nodes as time goes by.
            let at = node(round / 50 + rng.below(8));
            let up = rng.below(2) == 0 || counts.get(at) == 0;
            counts.change(at, |count| if up { *count += 1 } else { *count -= 1 });
            let count = plain.entry(at).or_default();
            *count = if up { *count + 1 } else { *count - 1 };
            plain.retain(|_, count| *count > 0);
            let near = node(round / 50 + rng.below(8));
            assert_eq!(counts.get(near), plain.get(&near).copied().unwrap_or(0));
            assert_eq!(counts.len(), plain.len());
            assert!(counts.others.values().all(|count| *count > 0));
        }
    }
}
