//! A file of a metadata target: what its record has, and how that stands in the store.

use lustre_wire::Fid;
use lustre_wire::fid::ObjectId;
use lustre_wire::striping::{Pattern, Stripes, Striping};

use super::acl::Acl;
use super::part::Part;

/// Upper bits of a mode.
pub(super) const KIND_MASK: u32 = 0o170_000;
pub(super) const REGULAR: u32 = 0o100_000;
pub(super) const DIRECTORY: u32 = 0o040_000;
pub(super) const SYMLINK: u32 = 0o120_000;
/// First byte of a record.
const FORMAT: u8 = 1;
/// First byte of a record that ends with the data of the file.
const FORMAT_WITH_DATA: u8 = 2;
/// First byte of a record with an access control list, and of one with both.
const FORMAT_WITH_ACL: u8 = 3;
const FORMAT_WITH_BOTH: u8 = 4;

/// The name of a file: its FID, whose version is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) seq: u64,
    pub(super) oid: u32,
}

impl Id {
    /// The root of a file system (C-31).
    pub(super) const ROOT: Self = Self { seq: 0x2_0000_0007, oid: 1 };

    /// The file of a FID; `None` for a FID with a version.
    pub(super) const fn of(fid: Fid) -> Option<Self> {
        if fid.ver == 0 { Some(Self { seq: fid.seq, oid: fid.oid }) } else { None }
    }

    pub(super) const fn fid(self) -> Fid {
        Fid { seq: self.seq, oid: self.oid, ver: 0 }
    }

    /// The bytes of it in a key, in the order of names.
    pub(super) fn key(self) -> [u8; 12] {
        let mut key = [0; 12];
        let words = self.seq.to_be_bytes().into_iter().chain(self.oid.to_be_bytes());
        key.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        key
    }

    pub(super) fn of_key(key: &[u8]) -> Option<(Self, &[u8])> {
        let (seq, rest) = key.split_first_chunk()?;
        let (oid, rest) = rest.split_first_chunk()?;
        Some((Self { seq: u64::from_be_bytes(*seq), oid: u32::from_be_bytes(*oid) }, rest))
    }
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) projid: u32,
    /// 0: it has no name any more, and is kept for those that have it open.
    pub(super) nlink: u32,
    pub(super) rdev: u32,
    /// Size, of a file with objects a hint of it.
    pub(super) size: u64,
    /// Blocks of 512 bytes, of a file with objects a hint.
    pub(super) blocks: u64,
    pub(super) mtime: i64,
    pub(super) atime: i64,
    pub(super) ctime: i64,
    pub(super) btime: i64,
    /// Transaction of the last change.
    pub(super) version: u64,
    /// The directory of a directory.
    pub(super) parent: Option<Id>,
    /// The layout of a file, or the default for files in a directory.
    pub(super) layout: Vec<u8>,
    /// The text of a symbolic link.
    pub(super) text: Vec<u8>,
    /// The data that is here, once there is some (C-220).
    pub(super) data: Option<Box<Part>>,
    /// The access control list, if it says more than the mode (C-240).
    pub(super) acl: Option<Box<Acl>>,
}

/// Takes a number off the front of some bytes.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn take_bytes(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let len = take_u32(bytes)? as usize;
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head.to_vec())
}

impl Inode {
    pub(super) const fn kind(&self) -> u32 {
        self.mode & KIND_MASK
    }

    pub(super) const fn is_dir(&self) -> bool {
        self.kind() == DIRECTORY
    }

    pub(super) const fn is_file(&self) -> bool {
        self.kind() == REGULAR
    }

    /// Whether a file has a place for its bytes.
    pub(super) fn is_laid_out(&self) -> bool {
        self.is_file() && !self.layout.is_empty()
    }

    /// Where the part of the file ends that is on this target (C-182); 0: no part of it is.
    pub(super) fn end_here(&self) -> u64 {
        if !self.is_laid_out() {
            return 0;
        }
        let Ok(Striping::Composite(_, parts)) = Striping::parse(&self.layout) else { return 0 };
        let here = parts.iter().filter(|(_, stripes)| stripes.head.pattern == Pattern::MDT);
        here.map(|(entry, _)| entry.end).max().unwrap_or(0)
    }

    /// Whether all of the file is on this target: its size is that of the data here, and no hint (C-53,
    /// C-104).
    pub(super) fn is_here_alone(&self) -> bool {
        if !self.is_laid_out() {
            return false;
        }
        let Ok(Striping::Composite(_, parts)) = Striping::parse(&self.layout) else { return false };
        parts.iter().all(|(_, stripes)| stripes.head.pattern == Pattern::MDT)
    }

    /// The objects of a file, with the index of their targets.
    pub(super) fn objects(&self) -> Vec<(u32, ObjectId)> {
        if !self.is_laid_out() {
            return Vec::new();
        }
        let of = |stripes: &Stripes| -> Vec<_> {
            stripes.objects.iter().map(|object| (object.index, object.id)).collect()
        };
        match Striping::parse(&self.layout) {
            Ok(Striping::Plain(stripes)) => of(&stripes),
            Ok(Striping::Composite(_, parts)) => {
                parts.iter().flat_map(|(_, stripes)| of(stripes)).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let format = match (&self.acl, &self.data) {
            (None, None) => FORMAT,
            (None, Some(_)) => FORMAT_WITH_DATA,
            (Some(_), None) => FORMAT_WITH_ACL,
            (Some(_), Some(_)) => FORMAT_WITH_BOTH,
        };
        let mut out = vec![format];
        let words = [self.mode, self.uid, self.gid, self.projid, self.nlink, self.rdev];
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let times = [self.mtime, self.atime, self.ctime, self.btime].map(i64::cast_unsigned);
        let longs = [self.size, self.blocks, self.version].into_iter().chain(times);
        out.extend(longs.flat_map(u64::to_le_bytes));
        out.push(self.parent.is_some().into());
        out.extend_from_slice(&self.parent.unwrap_or(Id { seq: 0, oid: 0 }).key());
        for bytes in [&self.layout, &self.text] {
            // Layouts and texts are far below 4 GiB.
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        if let Some(acl) = &self.acl {
            let bytes = acl.to_bytes();
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
        out.extend(self.data.iter().flat_map(|part| part.to_bytes()));
        out
    }

    /// The record, if it is one.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Self> {
        let b = &mut bytes;
        let [format] = take::<1>(b)?;
        let (has_acl, has_data) = match format {
            FORMAT => (false, false),
            FORMAT_WITH_DATA => (false, true),
            FORMAT_WITH_ACL => (true, false),
            FORMAT_WITH_BOTH => (true, true),
            _ => return None,
        };
        let mut inode = Self::default();
        let Self { mode, uid, gid, projid, nlink, rdev, .. } = &mut inode;
        for word in [mode, uid, gid, projid, nlink, rdev] {
            *word = take_u32(b)?;
        }
        let Self { size, blocks, version, .. } = &mut inode;
        for word in [size, blocks, version] {
            *word = take_u64(b)?;
        }
        let Self { mtime, atime, ctime, btime, .. } = &mut inode;
        for time in [mtime, atime, ctime, btime] {
            *time = take_u64(b)?.cast_signed();
        }
        let [has_parent] = take(b)?;
        let parent: [u8; 12] = take(b)?;
        inode.parent = match has_parent {
            0 if parent == [0; 12] => None,
            1 => Some(Id::of_key(&parent)?.0),
            _ => return None,
        };
        inode.layout = take_bytes(b)?;
        inode.text = take_bytes(b)?;
        if has_acl {
            inode.acl = Some(Box::new(Acl::parse(&take_bytes(b)?).ok()??));
        }
        if has_data {
            inode.data = Some(Box::new(Part::take(b)?));
        }
        b.is_empty().then_some(inode)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ost::Extents;
    use crate::store::DataId;

    proptest! {
        #[test]
        fn record_is_read_as_it_was_written(
            words in any::<[u32; 6]>(),
            longs in any::<[u64; 4]>(),
            parent in any::<Option<(u64, u32)>>(),
            layout: Vec<u8>,
            text: Vec<u8>,
            data in any::<Option<(u64, u64, u32, u32)>>(),
            listed: bool,
        ) {
            let [mode, uid, gid, projid, nlink, rdev] = words;
            let [size, blocks, version, time] = longs;
            let inode = Inode {
                mode, uid, gid, projid, nlink, rdev, size, blocks, version,
                mtime: time.cast_signed(),
                atime: 1,
                ctime: -1,
                btime: 3,
                parent: parent.map(|(seq, oid)| Id { seq, oid }),
                layout,
                text,
                data: data.map(|(id, size, from, len)| {
                    let mut part = Part { id: DataId(id), size, extents: Extents::default() };
                    part.extents.add(from.into(), u64::from(from) + u64::from(len));
                    Box::new(part)
                }),
                acl: listed.then(|| {
                    let bytes = [[2u8, 0, 0, 0].as_slice(), &[1, 0, 6, 0, 0, 0, 0, 0]].concat();
                    let more = [[4u8, 0, 4, 0, 0, 0, 0, 0], [32, 0, 0, 0, 0, 0, 0, 0]].concat();
                    Box::new(Acl::parse(&[bytes, more].concat()).unwrap().unwrap())
                }),
            };
            prop_assert_eq!(Inode::read(&inode.to_bytes()), Some(inode));
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes: Vec<u8>) {
            if let Some(inode) = Inode::read(&bytes) {
                prop_assert_eq!(inode.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn keys_are_in_the_order_of_names() {
        let ids = [(1, 2), (1, 256), (2, 1)].map(|(seq, oid)| Id { seq, oid });
        assert!(ids.is_sorted_by_key(|id| id.key()));
        for id in ids {
            assert_eq!(Id::of_key(&id.key()), Some((id, &[][..])));
        }
    }
}
