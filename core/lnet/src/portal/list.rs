//! Descriptors of one portal in the order in which they are searched. Most lists of equal match bits
//! hold one, for the moment of one request: that takes no memory of its own.

use std::collections::VecDeque;

use lnet_types::MdId;

/// See the module's head. Written down as a plain sequence.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "VecDeque<MdId>", into = "VecDeque<MdId>")]
pub(super) enum List {
    #[default]
    Empty,
    One(MdId),
    Many(VecDeque<MdId>),
}

impl List {
    /// All, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = MdId> + '_ {
        let (front, back) = match self {
            Self::Empty => Default::default(),
            Self::One(one) => (core::slice::from_ref(one), Default::default()),
            Self::Many(many) => many.as_slices(),
        };
        front.iter().chain(back).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::One(_) => false,
            Self::Many(many) => many.is_empty(),
        }
    }

    pub(super) fn push_front(&mut self, id: MdId) {
        match self {
            Self::Empty => *self = Self::One(id),
            Self::One(one) => *self = Self::Many(VecDeque::from([id, *one])),
            Self::Many(many) => many.push_front(id),
        }
    }

    pub(super) fn push_back(&mut self, id: MdId) {
        match self {
            Self::Empty => *self = Self::One(id),
            Self::One(one) => *self = Self::Many(VecDeque::from([*one, id])),
            Self::Many(many) => many.push_back(id),
        }
    }

    /// Takes a descriptor out, if it is in the list.
    pub(super) fn remove(&mut self, id: MdId) {
        match self {
            Self::One(one) if *one == id => *self = Self::Empty,
            Self::Empty | Self::One(_) => {}
            Self::Many(many) => {
                // Nearly always the first one.
                if let Some(at) = many.iter().position(|&x| x == id) {
                    many.remove(at);
                }
            }
        }
    }
}

impl From<VecDeque<MdId>> for List {
    fn from(many: VecDeque<MdId>) -> Self {
        match (many.front().copied(), many.len()) {
            (None, _) => Self::Empty,
            (Some(one), 1) => Self::One(one),
            _ => Self::Many(many),
        }
    }
}

impl From<List> for VecDeque<MdId> {
    fn from(list: List) -> Self {
        match list {
            List::Many(many) => many,
            short => short.iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::Prng;
    use slotmap::KeyData;

    use super::*;

    fn md(n: u64) -> MdId {
        KeyData::from_ffi(1 << 32 | n).into()
    }

    #[test]
    fn list_has_the_order_of_a_plain_queue_whatever_comes_and_goes() {
        let mut rng = Prng::new(5);
        let (mut list, mut plain) = (List::default(), VecDeque::new());
        for n in 0..10_000 {
            match rng.below(5) {
                0 => (list.push_front(md(n)), plain.push_front(md(n))),
                1 => (list.push_back(md(n)), plain.push_back(md(n))),
                _ => {
                    let id = plain.get(rng.below(3) as usize).copied().unwrap_or_else(|| md(n));
                    plain.retain(|x| *x != id);
                    (list.remove(id), ())
                }
            };
            assert!(list.iter().eq(plain.iter().copied()));
            assert_eq!(list.is_empty(), plain.is_empty());
            let written = postcard::to_stdvec(&list).unwrap();
            assert_eq!(written, postcard::to_stdvec(&plain).unwrap(), "written as a plain queue");
            list = postcard::from_bytes(&written).unwrap();
        }
    }

    #[test]
    fn list_of_one_takes_no_memory_of_its_own() {
        let mut list = List::default();
        for n in 0..3 {
            list.push_back(md(n));
            assert!(matches!(list, List::One(_)));
            list.remove(md(n));
            assert!(matches!(list, List::Empty));
        }
    }
}
