//! Access control lists of POSIX (C-240): their bytes, what they grant, and how they and the permissions of a
//! file follow each other. Where they are kept, and who may set them, is in `xattrs.rs`.

use lnet_types::Errno;

use super::access::Who;
use super::inode::take;

/// Attributes that hold them.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Most entries: more are for clients that can read longer lists (C-240).
const ENTRIES_MAX: usize = 32;
const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The id of an entry that names no user or group.
const NONE: u32 = u32::MAX;

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    granted: u16,
    id: u32,
}

/// A list: the owner, users, the owning group, groups, the mask if a user or group is named, others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Reads a list; `None`: it is empty, which takes one away.
    ///
    /// # Errors
    /// `EINVAL` for bytes that are none, `E2BIG` for too many entries.
    pub fn parse(mut bytes: &[u8]) -> Result<Option<Self>, Errno> {
        let rest = &mut bytes;
        if take(rest).map(u32::from_le_bytes) != Some(VERSION) || !rest.len().is_multiple_of(ENTRY)
        {
            return Err(Errno::EINVAL);
        }
        if rest.len() / ENTRY > ENTRIES_MAX {
            return Err(Errno::E2BIG);
        }
        let mut entries = Vec::new();
        while let (Some(tag), Some(granted), Some(id)) = (take(rest), take(rest), take(rest)) {
            let (tag, granted) = (u16::from_le_bytes(tag), u16::from_le_bytes(granted));
            entries.push(Entry { tag, granted, id: u32::from_le_bytes(id) });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let list = Self(entries);
        if list.is_whole() { Ok(Some(list)) } else { Err(Errno::EINVAL) }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.0.len() * ENTRY);
        bytes.extend(VERSION.to_le_bytes());
        for Entry { tag, granted, id } in &self.0 {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(granted.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// Whether it has what a list needs, in its order.
    fn is_whole(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let known = [OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER];
        let fits = |entry: &Entry| {
            let named = entry.tag == USER || entry.tag == GROUP;
            known.contains(&entry.tag) && entry.granted <= 7 && (!named || entry.id != NONE)
        };
        let named = count(USER) + count(GROUP) > 0;
        let ordered = self.0.is_sorted_by_key(|entry| entry.tag);
        let one = [OWNER, OWNING_GROUP, OTHER].into_iter().all(|tag| count(tag) == 1);
        ordered
            && one
            && count(MASK) <= 1
            && (!named || count(MASK) == 1)
            && self.0.iter().all(fits)
    }

    fn of(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.granted)
    }

    fn set(&mut self, tag: u16, change: impl Fn(u16) -> u16) {
        for entry in self.0.iter_mut().filter(|entry| entry.tag == tag) {
            entry.granted = change(entry.granted) & 7;
        }
    }

    /// The entry that stands for the group in the permissions of a file.
    fn group_class(&self) -> u16 {
        if self.of(MASK).is_some() { MASK } else { OWNING_GROUP }
    }

    /// The permissions that stand for it.
    pub(super) fn mode(&self) -> u32 {
        let of = |tag| u32::from(self.of(tag).unwrap_or(0));
        of(OWNER) << 6 | of(self.group_class()) << 3 | of(OTHER)
    }

    /// Whether it says no more than permissions do.
    pub(super) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// The permissions of its file were set.
    pub(super) fn follow(&mut self, mode: u32) {
        let class = self.group_class();
        for (tag, shift) in [(OWNER, 6), (class, 3), (OTHER, 0)] {
            self.set(tag, |_| (mode >> shift) as u16);
        }
    }

    /// As the list of a new file whose maker asks for these permissions: no more than both grant.
    pub(super) fn for_new(mut self, mode: u32) -> Self {
        let class = self.group_class();
        for (tag, shift) in [(OWNER, 6), (class, 3), (OTHER, 0)] {
            self.set(tag, |granted| granted & (mode >> shift) as u16);
        }
        self
    }

    /// Whether a user who does not own the file of this group may use it so. The first class that the user is
    /// of decides, of groups any of them.
    pub(super) fn allows(&self, who: &Who, gid: u32, want: u32) -> bool {
        let mask = u32::from(self.of(MASK).unwrap_or(7));
        let grants = |entry: &Entry| want & !u32::from(entry.granted) == 0;
        let class = |tag| self.0.iter().filter(move |entry| entry.tag == tag);
        if let Some(user) = class(USER).find(|entry| entry.id == who.uid) {
            return grants(user) && want & !mask == 0;
        }
        let own = class(OWNING_GROUP).filter(|_| who.is_in(gid));
        let mut groups = own.chain(class(GROUP).filter(|entry| who.is_in(entry.id))).peekable();
        if groups.peek().is_some() {
            return groups.any(grants) && want & !mask == 0;
        }
        class(OTHER).any(grants)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `u::rw-,u:1001:rwx,g::r--,g:7:-w-,m::rw-,o::---`.
    const LIST: [(u16, u16, u32); 6] = [
        (OWNER, 6, NONE),
        (USER, 7, 1001),
        (OWNING_GROUP, 4, NONE),
        (GROUP, 2, 7),
        (MASK, 6, NONE),
        (OTHER, 0, NONE),
    ];

    fn list(entries: &[(u16, u16, u32)]) -> Result<Option<Acl>, Errno> {
        let entries = entries.iter().map(|(tag, granted, id)| Entry {
            tag: *tag,
            granted: *granted,
            id: *id,
        });
        Acl::parse(&Acl(entries.collect()).to_bytes())
    }

    #[test]
    fn c240_the_bytes_of_a_recorded_list_are_read() {
        // Frame of xattr-acl: u::rw-,u:1001:rw-,g::r--,m::rw-,o::r--.
        let bytes = [
            [2, 0, 0, 0].as_slice(),
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 6, 0, 0xe9, 3, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 6, 0, 255, 255, 255, 255],
            &[32, 0, 4, 0, 255, 255, 255, 255],
        ]
        .concat();
        let read = Acl::parse(&bytes).unwrap().unwrap();
        assert_eq!((read.mode(), read.is_mode()), (0o664, false));
        assert_eq!(read.to_bytes(), bytes);
    }

    #[test]
    fn lists_without_their_parts_or_order_are_refused() {
        assert_eq!(list(&[]), Ok(None));
        assert!(list(&LIST).unwrap().is_some());
        let minimal = [LIST[0], LIST[2], LIST[5]];
        assert!(list(&minimal).unwrap().unwrap().is_mode());
        let mut swapped = LIST;
        swapped.swap(0, 1);
        let without = |n: usize| -> Vec<_> {
            LIST.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, entry)| *entry).collect()
        };
        for wrong in [
            swapped.to_vec(),
            without(0),
            without(2),
            without(4),
            without(5),
            [&LIST[..], &[LIST[5]]].concat(),
            vec![LIST[0], LIST[2], (OTHER, 8, NONE)],
            vec![LIST[0], LIST[2], (3, 0, NONE), LIST[5]],
            vec![LIST[0], (USER, 4, NONE), LIST[2], LIST[4], LIST[5]],
        ] {
            assert_eq!(list(&wrong), Err(Errno::EINVAL), "{wrong:?}");
        }
        let mut long = vec![LIST[0]];
        long.extend((0..30).map(|id| (USER, 4, id)));
        long.extend([LIST[2], LIST[4], LIST[5]]);
        assert_eq!(list(&long), Err(Errno::E2BIG));
        let bytes = list(&LIST).unwrap().unwrap().to_bytes();
        assert_eq!(Acl::parse(&bytes[..bytes.len() - 1]), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&[&[1], &bytes[1..]].concat()), Err(Errno::EINVAL));
    }

    #[test]
    fn the_class_of_a_user_decides_and_the_mask_bounds_it() {
        let list = list(&LIST).unwrap().unwrap();
        for (uid, gid, want, allowed) in [
            (1001, 7, 6, true),
            (1001, 7, 1, false),
            (1002, 50, 4, true),
            (1002, 50, 2, false),
            (1002, 7, 2, true),
            (1002, 7, 4, false),
            (1002, 9, 4, false),
        ] {
            let who = Who::for_test(uid, gid);
            assert_eq!(list.allows(&who, 50, want), allowed, "{uid} {gid} {want}");
        }
    }

    #[test]
    fn permissions_and_the_list_follow_each_other() {
        let mut changed = list(&LIST).unwrap().unwrap();
        assert_eq!(changed.mode(), 0o660);
        changed.follow(0o741);
        assert_eq!(
            (changed.mode(), changed.of(OWNING_GROUP), changed.of(MASK)),
            (0o741, Some(4), Some(4))
        );
        let new = list(&LIST).unwrap().unwrap().for_new(0o646);
        assert_eq!((new.mode(), new.of(USER)), (0o640, Some(7)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list_or_none(bytes: Vec<u8>) {
            if let Ok(Some(list)) = Acl::parse(&bytes) {
                prop_assert_eq!(list.to_bytes(), bytes);
            }
        }
    }
}
