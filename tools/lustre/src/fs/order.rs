//! Which names `ls` shows, and in which order.

use std::cmp::Ordering;

use lustre_rt::visitor::Attributes;

/// What becomes of names that begin with a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// They are not shown.
    None,
    /// They are shown.
    AlmostAll,
    /// And so are `.` and `..`, which are no names that a server lists.
    All,
}

impl Hidden {
    pub(super) fn shows(self, name: &[u8]) -> bool {
        self != Self::None || !name.starts_with(b".")
    }
}

/// By what names are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Name,
    Time,
    Size,
    None,
}

/// How names are sorted. By bytes: the same everywhere, whatever the language of the user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) key: Key,
    pub(super) reverse: bool,
}

impl Order {
    pub(super) fn by_name(self, a: &[u8], b: &[u8]) -> Ordering {
        self.directed(a.cmp(b))
    }

    /// The latest and the largest come first; those that are equal by name.
    pub(super) fn compare(self, a: (&[u8], &Attributes), b: (&[u8], &Attributes)) -> Ordering {
        let of_key = match self.key {
            Key::Time => b.1.mtime.cmp(&a.1.mtime),
            Key::Size => b.1.size.cmp(&a.1.size),
            Key::Name | Key::None => Ordering::Equal,
        };
        self.directed(of_key.then_with(|| a.0.cmp(b.0)))
    }

    const fn directed(self, ordering: Ordering) -> Ordering {
        if self.reverse { ordering.reverse() } else { ordering }
    }
}
