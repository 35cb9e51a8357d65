//! Pages of a directory, as bulk data brings them (C-145 … C-148).

use lnet_types::ByteOrder;

use crate::fid::Fid;
use crate::layout::{flags, layout, part};
use crate::{Layout, WireError};

/// Bytes of a page, whatever the pages of the machines are.
pub const PAGE_LEN: usize = 4096;
/// The hash behind the last entry of a directory.
pub const END_OF_DIRECTORY: u64 = u64::MAX - 1;

flags! {
    /// Flags of a page.
    pub struct PageFlags(u32) {
        /// It has no entry.
        EMPTY = 0x1, "EMPTY";
        /// The next page has entries of the same hash.
        COLLIDE = 0x2, "COLLIDE";
    }

    /// What an entry says beside its name.
    pub struct EntryAttrs(u32) {
        /// FID.
        FID = 0x1, "FID";
        /// Type.
        TYPE = 0x2, "TYPE";
        /// The hash has 64 bits.
        HASH_64BIT = 0x4, "64BITHASH";
    }
}

layout! {
    /// The front of a page.
    pub struct PageHead("directory page", 24) {
        /// Hash of the first entry.
        0 start: u64,
        /// Hash of the first entry that did not fit.
        8 end: u64,
        /// Flags.
        16 flags: PageFlags,
    }

    /// The front of an entry.
    pub struct EntryHead("directory entry", 32) {
        /// The file.
        0 fid: Fid,
        /// Hash of the name.
        16 hash: u64,
        /// Bytes of the entry, 0 for the last of a page.
        24 len: u16,
        /// Bytes of the name.
        26 name_len: u16,
        /// What the entry says.
        28 attrs: EntryAttrs,
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Its front.
    pub head: EntryHead,
    /// Its name.
    pub name: &'a [u8],
    /// Its type: the upper bits of a mode.
    pub kind: Option<u16>,
}

/// The entries of a page. Ends with its last entry.
#[derive(Clone, Debug)]
pub struct DirEntries<'a> {
    order: ByteOrder,
    rest: &'a [u8],
}

/// The front of a page and its entries.
///
/// # Errors
/// Fewer bytes than a front.
pub fn page(order: ByteOrder, b: &[u8]) -> Result<(PageHead, DirEntries<'_>), WireError> {
    let head = PageHead::parse(order, b)?;
    let b = b.get(..PAGE_LEN).unwrap_or(b);
    let entries = b.get(PageHead::LEN..).unwrap_or_default();
    let rest = if head.flags.contains(PageFlags::EMPTY) { &[] } else { entries };
    Ok((head, DirEntries { order, rest }))
}

impl<'a> DirEntries<'a> {
    fn entry(&self) -> Result<(DirEntry<'a>, usize), WireError> {
        let (what, have) = (EntryHead::NAME, self.rest.len());
        let head = EntryHead::parse(self.order, self.rest)?;
        let len = usize::from(head.len);
        let name_end = EntryHead::LEN + usize::from(head.name_len);
        let kind_at = EntryHead::LEN + usize::from(head.name_len).next_multiple_of(2);
        let typed = head.attrs.contains(EntryAttrs::TYPE);
        let need = if typed { kind_at + 2 } else { name_end };
        if have < need.max(len) {
            return Err(WireError::Short { what, need: need.max(len), have });
        }
        // The length of the last entry is not given.
        if len != 0 && (len < need || !len.is_multiple_of(8)) {
            let (field, value, min) = ("length", head.len.into(), need as u64);
            return Err(WireError::Limit { what, field, value, min, max: PAGE_LEN as u64 });
        }
        let name = part(self.rest, EntryHead::LEN, head.name_len.into());
        let kind = typed.then(|| u16::get(self.order, part(self.rest, kind_at, 2)));
        Ok((DirEntry { head, name, kind }, len))
    }
}

impl<'a> Iterator for DirEntries<'a> {
    type Item = Result<DirEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let found = self.entry();
        self.rest = match &found {
            Ok((_, len)) if *len != 0 => self.rest.get(*len..).unwrap_or_default(),
            _ => &[],
        };
        Some(found.map(|(entry, _)| entry))
    }
}

impl DirEntry<'_> {
    /// The bytes of the entry, its length given; as the last of a page its length is 0. There is room
    /// for a NUL behind the name, as kernel nodes have it.
    pub fn to_bytes(&self, order: ByteOrder, last: bool) -> Vec<u8> {
        let mut bytes = vec![0; EntryHead::LEN];
        bytes.extend_from_slice(self.name);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        let mut attrs = self.head.attrs;
        attrs.set(EntryAttrs::TYPE, self.kind.is_some());
        if let Some(kind) = self.kind {
            bytes.extend(kind.to_bytes(order));
        }
        let room = (self.name.len() + 1).next_multiple_of(2) + 2 * usize::from(self.kind.is_some());
        bytes.resize((EntryHead::LEN + room).next_multiple_of(8), 0);
        let len = if last { 0 } else { bytes.len() as u16 };
        let head = EntryHead { len, name_len: self.name.len() as u16, attrs, ..self.head };
        head.put(order, &mut bytes);
        bytes
    }
}
