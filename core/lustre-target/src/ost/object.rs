//! An object's record: its attributes, and where its bytes are (L-68, L-69).

use lnet_types::ByteOrder;
use lustre_wire::Layout;
use lustre_wire::fid::Valid;
use lustre_wire::ost::Obdo;

use super::extents::{Extents, RANGES_MAX};
use crate::store::{DATA_END, DataId};

/// What an object has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Object {
    /// Its bytes, once it has some.
    pub(super) data: Option<DataId>,
    pub(super) size: u64,
    /// Where it has bytes.
    pub(super) extents: Extents,
    /// Transaction of the last change.
    pub(super) version: u64,
    pub(super) mtime: i64,
    pub(super) atime: i64,
    pub(super) ctime: i64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) projid: u32,
    /// The FID of its file.
    pub(super) parent: (u64, u32, u32),
    /// Whether a write has given it its owner and parent (L-91).
    pub(super) owned: bool,
}

/// A regular file, and bits that no file has: what an object is before its first write.
const FRESH: u32 = 0o107_666;
/// Those bits.
const UNWRITTEN: u32 = 0o7000;
/// First word of a record of an object without holes, as earlier versions wrote all.
const WHOLE: u64 = 1;
/// First word of a record that ends with ranges, two words each.
const FORMAT: u64 = 2;
/// Words of a record before its ranges.
const WORDS: usize = 12;

/// Two halves in one word.
const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The ranges behind the words of a record.
fn ranges(bytes: &[u8]) -> Option<Extents> {
    let (words, rest) = bytes.as_chunks::<8>();
    let (pairs, odd) = words.as_chunks::<2>();
    if !rest.is_empty() || !odd.is_empty() || pairs.len() > RANGES_MAX {
        return None;
    }
    let mut extents = Extents::default();
    for [from, to] in pairs {
        let (from, to) = (u64::from_le_bytes(*from), u64::from_le_bytes(*to));
        if from >= to || to > DATA_END {
            return None;
        }
        extents.add(from, to);
    }
    Some(extents)
}

impl Object {
    /// An object without bytes.
    pub(super) fn new(version: u64) -> Self {
        Self { version, mode: FRESH, ..Self::default() }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (parent_seq, parent_oid, parent_ver) = self.parent;
        let words: [u64; WORDS] = [
            FORMAT,
            self.data.map_or(0, |data| data.0),
            self.size,
            self.version,
            self.mtime.cast_unsigned(),
            self.atime.cast_unsigned(),
            self.ctime.cast_unsigned(),
            join(self.mode, self.owned.into()),
            join(self.uid, self.gid),
            join(self.projid, parent_ver),
            parent_seq,
            parent_oid.into(),
        ];
        let mut bytes = words.to_bytes(ByteOrder::Little);
        let ranges = self.extents.iter().flat_map(|(from, to)| [from, to]);
        bytes.extend(ranges.flat_map(u64::to_le_bytes));
        bytes
    }

    /// The record, if it is one.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(WORDS * size_of::<u64>())?;
        let words = <[u64; WORDS]>::parse_exact(ByteOrder::Little, head).ok()?;
        let [format, data, size, version, mtime, atime, ctime, kind, owner, more, seq, oid] = words;
        let ((mode, owned), (uid, gid), (projid, ver)) = (split(kind), split(owner), split(more));
        let data = (data != 0).then_some(DataId(data));
        let extents = match format {
            WHOLE if rest.is_empty() => Extents::whole(if data.is_some() { size } else { 0 }),
            FORMAT => ranges(rest)?,
            _ => return None,
        };
        Some(Self {
            data,
            size,
            extents,
            version,
            mtime: mtime.cast_signed(),
            atime: atime.cast_signed(),
            ctime: ctime.cast_signed(),
            mode,
            uid,
            gid,
            projid,
            parent: (seq, split(oid).0, ver),
            owned: owned == 1,
        })
    }

    /// Takes the times that a request names.
    pub(super) fn take_times(&mut self, from: &Obdo) {
        let has = |bit| from.valid.contains(bit);
        if has(Valid::MTIME) {
            self.mtime = from.mtime;
        }
        if has(Valid::ATIME) {
            self.atime = from.atime;
        }
        if has(Valid::CTIME) {
            self.ctime = from.ctime;
        }
    }

    /// Takes the owners that a request names.
    pub(super) fn take_owners(&mut self, from: &Obdo) {
        let has = |bit| from.valid.contains(bit);
        if has(Valid::UID) {
            self.uid = from.uid;
        }
        if has(Valid::GID) {
            self.gid = from.gid;
        }
        if has(Valid::PROJID) {
            self.projid = from.projid;
        }
    }

    /// The first write has come.
    pub(super) fn own(&mut self, from: &Obdo) {
        self.take_owners(from);
        self.take_parent(from);
        self.mode &= !UNWRITTEN;
        self.owned = true;
    }

    /// Takes the file of which the object is a part.
    pub(super) fn take_parent(&mut self, from: &Obdo) {
        if from.valid.contains(Valid::PARENT) {
            self.parent = (from.parent_seq, from.parent_oid, from.parent_ver);
        }
    }

    /// Blocks of 512 bytes, which holes have none of.
    pub(super) fn blocks(&self) -> u64 {
        self.extents.blocks()
    }

    /// Writes the attributes to a reply.
    pub(super) fn show(&self, to: &mut Obdo) {
        to.size = self.size;
        to.blocks = self.blocks();
        (to.mtime, to.atime, to.ctime) = (self.mtime, self.atime, self.ctime);
        (to.mode, to.uid, to.gid, to.projid) = (self.mode, self.uid, self.gid, self.projid);
        to.valid |= Valid::ATIME
            | Valid::MTIME
            | Valid::CTIME
            | Valid::SIZE
            | Valid::BLOCKS
            | Valid::MODE
            | Valid::TYPE
            | Valid::UID
            | Valid::GID
            | Valid::PROJID;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn record_is_read_as_it_was_written(words in any::<[u64; 8]>(), owned: bool) {
            let [data, size, version, time, kind, owner, seq, more] = words;
            let ((mode, uid), (gid, projid), (oid, ver)) = (split(kind), split(owner), split(more));
            let mut extents = Extents::default();
            extents.add(data % DATA_END, size % DATA_END);
            extents.add(time % DATA_END, seq % DATA_END);
            let object = Object {
                data: (data != 0).then_some(DataId(data)),
                size,
                extents,
                version,
                mtime: time.cast_signed(),
                atime: 1,
                ctime: -1,
                mode,
                uid,
                gid,
                projid,
                parent: (seq, oid, ver),
                owned,
            };
            prop_assert_eq!(Object::read(&object.to_bytes()), Some(object));
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes in any::<Vec<u8>>()) {
            Object::read(&bytes);
        }
    }

    #[test]
    fn record_of_another_format_or_length_is_none() {
        let bytes = Object::new(5).to_bytes();
        assert_eq!(Object::read(&bytes[1..]), None);
        let mut other = bytes.clone();
        other[0] = 3;
        assert_eq!(Object::read(&other), None);
        for rest in [&[0; 8][..], &[0; 16], &[1; 17]] {
            assert_eq!(Object::read(&[&bytes[..], rest].concat()), None, "{rest:?}");
        }
    }

    #[test]
    fn record_of_an_earlier_version_is_of_an_object_without_holes() {
        let mut object = Object::new(5);
        (object.data, object.size) = (Some(DataId(3)), 5000);
        let mut bytes = object.to_bytes();
        bytes[0] = 1;
        assert_eq!(Object::read(&bytes).map(|object| object.blocks()), Some(16));
    }
}
