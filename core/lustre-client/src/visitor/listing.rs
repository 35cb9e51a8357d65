//! Reading of a directory: pages become names, each of them once (C-145 … C-151).

use std::collections::BTreeSet;

use lnet_types::ByteOrder;
use lustre_wire::dir::{END_OF_DIRECTORY, PAGE_LEN, PageFlags, page};
use lustre_wire::{Fid, WireError};

/// Most names of one hash.
const SAME_HASH_MAX: usize = 65_536;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// 1 to 255 bytes without slash and NUL; neither `.` nor `..`.
    pub name: Vec<u8>,
    /// The file.
    pub fid: Fid,
    /// Upper bits of its mode, if the server named them.
    pub kind: Option<u16>,
}

/// Why pages can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// A page or entry that is damaged.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A name that no file may have.
    #[error("name '{}': expected 1 to 255 bytes without '/' or NUL", .0.escape_ascii())]
    Name(Vec<u8>),
    /// The bytes of a reply are no pages.
    #[error("{0} bytes: expected pages of {PAGE_LEN} bytes")]
    Len(usize),
    /// The server would send the same for ever.
    #[error("hash {0:#x}: expected a later one than that of the page before")]
    Order(u64),
}

/// How far a directory was read.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Hash to be read from next.
    next: u64,
    over: bool,
    /// Names with the hash that comes next, if they may come again.
    again: BTreeSet<Vec<u8>>,
}

impl Listing {
    /// The hash to be read from next; `None` at the end of the directory.
    pub const fn next(&self) -> Option<u64> {
        if self.over { None } else { Some(self.next) }
    }

    /// The names in the pages of a reply to a request from [`Listing::next`] on, and in the zeros behind
    /// them. Each name of a
    /// directory comes once.
    ///
    /// # Errors
    /// As [`ListingError`] says; the listing is over then.
    pub fn take(&mut self, order: ByteOrder, bytes: &[u8]) -> Result<Vec<Name>, ListingError> {
        let taken = self.pages(order, bytes);
        self.over |= taken.is_err();
        taken
    }

    fn pages(&mut self, order: ByteOrder, bytes: &[u8]) -> Result<Vec<Name>, ListingError> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(PAGE_LEN) {
            return Err(ListingError::Len(bytes.len()));
        }
        let (mut names, from) = (Vec::new(), self.next);
        let mut fresh = false;
        for (place, bytes) in bytes.chunks_exact(PAGE_LEN).enumerate() {
            let (head, entries) = page(order, bytes)?;
            // Room that the server had no page for: each page ends behind hash 0.
            if place > 0 && head.end == 0 {
                break;
            }
            let mut of_end = BTreeSet::new();
            for entry in entries {
                let entry = entry?;
                let (name, hash) = (entry.name, entry.head.hash);
                if name.is_empty() || name.len() > 255 || name.contains(&b'/') || name.contains(&0)
                {
                    return Err(ListingError::Name(name.to_vec()));
                }
                if hash == head.end {
                    of_end.insert(name.to_vec());
                }
                if hash == self.next && self.again.contains(name) {
                    continue;
                }
                fresh = true;
                if name != b"." && name != b".." {
                    let (name, fid, kind) = (name.to_vec(), entry.head.fid, entry.kind);
                    names.push(Name { name, fid, kind });
                }
            }
            self.over = head.end == END_OF_DIRECTORY;
            if self.over {
                break;
            }
            // Hashes ascend, but for those of pages between which names have the same.
            if head.end < self.next || head.end == from && !fresh {
                return Err(ListingError::Order(head.end));
            }
            if !head.flags.contains(PageFlags::COLLIDE) {
                of_end.clear();
            }
            if head.end == self.next {
                self.again.append(&mut of_end);
            } else {
                self.again = of_end;
            }
            self.next = head.end;
            if self.again.len() > SAME_HASH_MAX {
                return Err(ListingError::Order(head.end));
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use lustre_wire::Layout;
    use lustre_wire::dir::{DirEntry, EntryAttrs, EntryHead, PageHead};

    use super::*;

    const ORDER: ByteOrder = ByteOrder::Little;

    fn pages(end: u64, flags: PageFlags, entries: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = PageHead { start: 0, end, flags }.to_bytes(ORDER);
        for (i, (name, hash)) in entries.iter().enumerate() {
            let attrs = EntryAttrs::FID;
            let head = EntryHead { hash: *hash, attrs, ..EntryHead::default() };
            let entry = DirEntry { head, name: name.as_bytes(), kind: Some(0x8000) };
            bytes.extend(entry.to_bytes(ORDER, i + 1 == entries.len()));
        }
        bytes.resize(PAGE_LEN, 0);
        bytes
    }

    fn names(found: Result<Vec<Name>, ListingError>) -> Vec<String> {
        let found = found.unwrap().into_iter();
        found.map(|name| String::from_utf8(name.name).unwrap()).collect()
    }

    #[test]
    fn names_with_the_hash_of_a_page_border_come_once() {
        let mut listing = Listing::default();
        let plain = PageFlags::empty();
        let first = pages(7, PageFlags::COLLIDE, &[(".", 1), ("a", 2), ("b", 7), ("c", 7)]);
        assert_eq!(names(listing.take(ORDER, &first)), ["a", "b", "c"]);
        assert_eq!(listing.next(), Some(7));
        let second = pages(9, plain, &[("b", 7), ("c", 7), ("d", 7), ("..", 8)]);
        assert_eq!(names(listing.take(ORDER, &second)), ["d"]);
        // The entry that did not fit has the hash of the end: it was not listed.
        let mut third = pages(END_OF_DIRECTORY, PageFlags::COLLIDE, &[("e", 9), ("b", 10)]);
        third.resize(3 * PAGE_LEN, 0);
        assert_eq!(names(listing.take(ORDER, &third)), ["e", "b"]);
        assert_eq!(listing.next(), None);
    }

    #[test]
    fn a_server_that_repeats_itself_or_goes_back_is_found_out() {
        let collide = PageFlags::COLLIDE;
        let mut listing = Listing::default();
        let same = pages(7, collide, &[("b", 7)]);
        assert_eq!(names(listing.take(ORDER, &same)), ["b"]);
        assert_eq!(listing.take(ORDER, &same), Err(ListingError::Order(7)));
        assert_eq!(listing.next(), None);
        let mut listing = Listing::default();
        listing.take(ORDER, &pages(7, collide, &[("b", 2)])).unwrap();
        let back = pages(3, PageFlags::empty(), &[("c", 2)]);
        assert_eq!(listing.take(ORDER, &back), Err(ListingError::Order(3)));
        let empty = pages(0, PageFlags::EMPTY, &[]);
        assert_eq!(Listing::default().take(ORDER, &empty), Err(ListingError::Order(0)));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["a/b", "../x", "a\0b", ""] {
            let bytes = pages(END_OF_DIRECTORY, PageFlags::empty(), &[(name, 2)]);
            let e = Listing::default().take(ORDER, &bytes).unwrap_err();
            assert_eq!(e, ListingError::Name(name.as_bytes().to_vec()));
        }
        for len in [0, 100, PAGE_LEN + 1] {
            let e = Listing::default().take(ORDER, &vec![0; len]);
            assert_eq!(e, Err(ListingError::Len(len)));
        }
    }
}
