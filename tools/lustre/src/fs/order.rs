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

    /// The latest and the largest come first, and those last of which it is not known; those that are equal by name.
    pub(super) fn compare(
        self,
        a: (&[u8], Option<Attributes>),
        b: (&[u8], Option<Attributes>),
    ) -> Ordering {
        let key = |of: Option<Attributes>| {
            let Attributes { mtime, size, .. } = of?;
            Some(match self.key {
                Key::Time => i128::from(mtime),
                Key::Size => i128::from(size),
                Key::Name | Key::None => 0,
            })
        };
        let of_key = key(b.1).cmp(&key(a.1));
        self.directed(of_key.then_with(|| a.0.cmp(b.0)))
    }

    const fn directed(self, ordering: Ordering) -> Ordering {
        if self.reverse { ordering.reverse() } else { ordering }
    }
}

#[cfg(test)]
mod tests {
    use lustre_rt::Fid;
    use lustre_rt::visitor::FileKind;

    use super::*;

    fn of(size: u64, mtime: i64) -> Attributes {
        Attributes {
            fid: Fid::default(),
            kind: FileKind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size,
            blocks: 0,
            atime: 0,
            mtime,
            ctime: 0,
            btime: None,
        }
    }

    #[test]
    fn names_of_which_nothing_is_known_come_last() {
        let all = [("none", None), ("empty", Some(of(0, -9))), ("large", Some(of(9, 9)))];
        for key in [Key::Time, Key::Size] {
            let mut sorted = all;
            let order = Order { key, reverse: false };
            sorted.sort_by(|a, b| order.compare((a.0.as_bytes(), a.1), (b.0.as_bytes(), b.1)));
            assert_eq!(sorted.map(|(name, _)| name), ["large", "empty", "none"]);
        }
    }
}
