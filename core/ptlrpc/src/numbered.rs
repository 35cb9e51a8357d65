//! Values by numbers that nearly always grow and whose values nearly always go in the same order, as
//! xids and transactions do: a queue in which each is found by halving. What goes from the middle leaves
//! its place empty until the places before it go, or until half of all are empty.

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Numbered<V> {
    /// In the order of their numbers. The first and the last place are not empty.
    places: VecDeque<(u64, Option<V>)>,
    empty: usize,
}

/// So many empty places never matter.
const EMPTY_MAX: usize = 16;

impl<V> Default for Numbered<V> {
    fn default() -> Self {
        Self { places: VecDeque::new(), empty: 0 }
    }
}

impl<V> Numbered<V> {
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.places.front() {
            Some((first, _)) if *first == number => Ok(0),
            _ => self.places.binary_search_by_key(&number, |(at, _)| *at),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.empty
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Enters a value; gives the one that had the number.
    pub(crate) fn insert(&mut self, number: u64, value: V) -> Option<V> {
        if self.places.back().is_none_or(|(last, _)| *last < number) {
            self.places.push_back((number, Some(value)));
            return None;
        }
        match self.find(number) {
            Ok(at) => {
                let before = self.places.get_mut(at)?.1.replace(value);
                self.empty -= usize::from(before.is_none());
                before
            }
            Err(at) => {
                self.places.insert(at, (number, Some(value)));
                None
            }
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<&V> {
        let at = self.find(number).ok()?;
        self.places.get(at)?.1.as_ref()
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<V> {
        let at = self.find(number).ok()?;
        let value = self.places.get_mut(at)?.1.take()?;
        self.empty += 1;
        self.tidy();
        Some(value)
    }

    /// The lowest number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.places.front().map(|(number, _)| *number)
    }

    /// Takes the value with the lowest number, if that is at most `most`.
    pub(crate) fn pop_up_to(&mut self, most: u64) -> Option<(u64, V)> {
        self.first().filter(|first| *first <= most)?;
        let (number, value) = self.places.pop_front()?;
        self.tidy();
        value.map(|value| (number, value))
    }

    /// All values, in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.places.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// Gives back places that are empty.
    fn tidy(&mut self) {
        while self.places.front().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_front();
            self.empty -= 1;
        }
        while self.places.back().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_back();
            self.empty -= 1;
        }
        if self.empty > EMPTY_MAX && self.empty > self.places.len() / 2 {
            self.places.retain(|(_, value)| value.is_some());
            self.empty = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lnet_types::Prng;

    use super::*;

    #[test]
    fn numbered_values_are_those_of_a_map() {
        let mut rng = Prng::new(4);
        let (mut numbered, mut map) = (Numbered::default(), BTreeMap::new());
        for n in 0..20_000 {
            // Mostly behind all others.
            let near = n - rng.below(n.min(90) + 1);
            match rng.below(8) {
                0..3 => assert_eq!(numbered.insert(n, n), map.insert(n, n)),
                3 => assert_eq!(numbered.insert(near, n), map.insert(near, n)),
                4..7 => {
                    let at = rng.below(map.len() as u64 + 1) as usize;
                    let number = *map.keys().nth(at).unwrap_or(&near);
                    assert_eq!(numbered.remove(number), map.remove(&number));
                    assert_eq!(numbered.remove(number), None);
                }
                _ => {
                    let most = near.saturating_sub(200);
                    let first = map.first_entry().filter(|e| *e.key() <= most);
                    let first = first.map(|e| e.remove_entry());
                    assert_eq!(numbered.pop_up_to(most), first);
                }
            }
            assert_eq!((numbered.len(), numbered.is_empty()), (map.len(), map.is_empty()));
            assert_eq!(numbered.first(), map.keys().next().copied());
            assert_eq!(numbered.get(near), map.get(&near));
            if n % 100 == 0 {
                assert!(numbered.values().eq(map.values()));
            }
        }
    }

    #[test]
    fn places_that_became_empty_are_given_back_while_the_first_value_stays() {
        let mut numbered = Numbered::default();
        numbered.insert(0, 0);
        numbered.insert(1, 0);
        for number in 2..100_000 {
            numbered.insert(number, 0);
            assert_eq!(numbered.remove(number - 1), Some(0));
            assert!(numbered.places.len() <= 2 * EMPTY_MAX, "{}", numbered.places.len());
        }
        assert_eq!((numbered.first(), numbered.len()), (Some(0), 2));
    }
}
