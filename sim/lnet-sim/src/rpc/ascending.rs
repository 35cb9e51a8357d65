//! Values by numbers that nearly always grow, as transactions do: a sorted list, to whose end nearly all
//! come.

/// See the module's head.
#[derive(Debug)]
pub(super) struct Ascending<T>(Vec<(u64, T)>);

impl<T> Default for Ascending<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Ascending<T> {
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if *last == number => Ok(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&number, |(at, _)| *at),
        }
    }

    /// Enters a value; gives the one that had the number.
    pub(super) fn insert(&mut self, number: u64, value: T) -> Option<T> {
        if self.0.last().is_none_or(|(last, _)| *last < number) {
            self.0.push((number, value));
            return None;
        }
        match self.find(number) {
            Ok(at) => self.0.get_mut(at).map(|(_, before)| core::mem::replace(before, value)),
            Err(at) => {
                self.0.insert(at, (number, value));
                None
            }
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let at = self.find(number).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.find(number).is_ok()
    }

    /// The highest number.
    pub(super) fn last(&self) -> Option<u64> {
        self.0.last().map(|(number, _)| *number)
    }

    /// All with their numbers, in the order of these.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(number, value)| (*number, value))
    }

    /// The values from a number on.
    pub(super) fn from(&self, number: u64) -> impl Iterator<Item = &T> {
        let at = self.find(number).unwrap_or_else(|at| at);
        self.0.get(at..).unwrap_or_default().iter().map(|(_, value)| value)
    }

    /// Takes out all above a number.
    pub(super) fn take_above(&mut self, number: u64) -> Vec<(u64, T)> {
        let at = self.find(number).map_or_else(|at| at, |at| at + 1);
        self.0.split_off(at)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lnet_types::Prng;

    use super::*;

    #[test]
    fn values_are_those_of_a_map() {
        let mut rng = Prng::new(9);
        let (mut list, mut map) = (Ascending::default(), BTreeMap::new());
        for n in 0..5_000 {
            let number = if rng.below(4) == 0 { rng.below(n + 1) } else { n };
            assert_eq!(list.insert(number, n), map.insert(number, n));
            if rng.below(50) == 0 {
                let most = n - rng.below(n.min(20) + 1);
                let above: Vec<_> = map.split_off(&(most + 1)).into_iter().collect();
                assert_eq!(list.take_above(most), above);
            }
            let at = rng.below(n + 1);
            assert_eq!((list.get(at), list.contains(at)), (map.get(&at), map.contains_key(&at)));
            assert_eq!(list.last(), map.keys().next_back().copied());
            let near = n.saturating_sub(rng.below(10));
            assert!(list.from(near).eq(map.range(near..).map(|(_, value)| value)));
        }
        assert!(list.iter().eq(map.iter().map(|(number, value)| (*number, value))));
        list.clear();
        assert_eq!(list.last(), None);
    }
}
