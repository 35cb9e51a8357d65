//! What objects are called, and where their records stand (L-71, L-76).

use lustre_wire::fid::{Fid, ObjectId};
use lustre_wire::ldlm::ResourceName;

/// The sequence of objects of old.
pub(super) const OLD: u64 = 0;
/// The sequence of echo objects.
const ECHO: u64 = 2;
/// Sequences whose FIDs stand for numbers of old.
const IDIF: core::ops::RangeInclusive<u64> = 0x1_0000_0000..=0x1_ffff_ffff;
/// The first sequence of ordinary objects.
const NORMAL: u64 = 0x2_0000_0400;

/// An object: its sequence, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) seq: u64,
    pub(super) id: u64,
}

impl Name {
    /// The object that a request names; `None` for a sequence that has no objects.
    pub(super) fn of(id: ObjectId) -> Option<Self> {
        let Some(Fid { seq, oid, .. }) = id.fid() else {
            return Some(Self { seq: OLD, id: id.first });
        };
        if IDIF.contains(&seq) {
            return Some(Self { seq: OLD, id: (seq & 0xffff) << 32 | u64::from(oid) });
        }
        let known = seq == OLD || seq == ECHO || seq >= NORMAL;
        known.then_some(Self { seq, id: oid.into() })
    }

    /// The object of a resource; `None` for one that is no object's (L-7).
    pub(super) fn of_resource(resource: &ResourceName) -> Option<Self> {
        let [first, second, 0, 0] = resource.words else { return None };
        if second == 0 {
            return Some(Self { seq: OLD, id: first });
        }
        let known = first == ECHO || first >= NORMAL;
        (known && second <= u32::MAX.into()).then_some(Self { seq: first, id: second })
    }

    /// The resource of its locks (L-7).
    pub(super) const fn resource(self) -> ResourceName {
        let words = if self.seq == OLD { [self.id, 0, 0, 0] } else { [self.seq, self.id, 0, 0] };
        ResourceName { words }
    }

    /// Another object of the sequence, named in the form in which this one was.
    pub(super) fn like(form: ObjectId, id: u64) -> ObjectId {
        match form.fid() {
            None => ObjectId::old(id),
            Some(fid) if IDIF.contains(&fid.seq) => {
                let seq = fid.seq & !0xffff | id >> 32 & 0xffff;
                ObjectId::of(Fid { seq, oid: id as u32, ver: 0 })
            }
            // Numbers of FIDs have 32 bits: `most` keeps to them.
            Some(fid) => ObjectId::of(Fid { seq: fid.seq, oid: id as u32, ver: 0 }),
        }
    }

    /// The highest number of the sequence.
    pub(super) const fn most(self) -> u64 {
        if self.seq == OLD { (1 << 48) - 1 } else { u32::MAX as u64 }
    }

    /// The key of its record: objects of a sequence stand together, in the order of their numbers.
    pub(super) fn key(self) -> Vec<u8> {
        [self.seq.to_be_bytes(), self.id.to_be_bytes()].concat()
    }

    /// The object of a key.
    pub(super) fn of_key(key: &[u8]) -> Option<Self> {
        let (seq, id) = key.split_first_chunk()?;
        let id = <[u8; 8]>::try_from(id).ok()?;
        Some(Self { seq: u64::from_be_bytes(*seq), id: u64::from_be_bytes(id) })
    }
}

/// The key of the last number of a sequence.
pub(super) fn last_key(seq: u64) -> Vec<u8> {
    [&b"last "[..], &seq.to_be_bytes()].concat()
}

/// The key of the bytes that the objects of an owner have.
pub(super) fn usage_key(uid: u32) -> Vec<u8> {
    [&b"uid "[..], &uid.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(seq: u64, oid: u32) -> ObjectId {
        ObjectId::of(Fid { seq, oid, ver: 0 })
    }

    #[test]
    fn only_sequences_of_objects_have_names() {
        assert_eq!(Name::of(ObjectId::old(7)), Some(Name { seq: 0, id: 7 }));
        assert_eq!(Name::of(fid(2, 7)), Some(Name { seq: 2, id: 7 }));
        assert_eq!(Name::of(fid(0x2_4000_0400, 7)), Some(Name { seq: 0x2_4000_0400, id: 7 }));
        // Index 3 of the target is no part of the number.
        assert_eq!(Name::of(fid(0x1_0003_0002, 7)), Some(Name { seq: 0, id: 2 << 32 | 7 }));
        for seq in [1, 3, 0xffff_ffff, 0x2_0000_0000, 0x2_0000_03ff] {
            assert_eq!(Name::of(fid(seq, 1)), None, "{seq:#x}");
        }
    }

    #[test]
    fn another_object_is_named_in_the_same_form() {
        for form in [ObjectId::old(9), fid(2, 9), fid(0x1_0003_0000, 9), fid(0x2_0000_0400, 9)] {
            let name = Name::of(form).unwrap();
            assert_eq!(Name::like(form, 9), form);
            let next = Name::of(Name::like(form, 10)).unwrap();
            assert_eq!((next.seq, next.id), (name.seq, 10));
        }
        let far = Name::like(fid(0x1_0003_0000, 9), 5 << 32 | 1);
        assert_eq!(far, fid(0x1_0003_0005, 1));
    }

    #[test]
    fn l7_resources_of_objects_are_those_that_clients_name() {
        for id in [ObjectId::old(9), fid(2, 9), fid(0x1_0003_0002, 9), fid(0x2_0000_0400, 9)] {
            let name = Name::of(id).unwrap();
            assert_eq!(name.resource(), ResourceName::of_object(id), "{id:?}");
            assert_eq!(Name::of_resource(&name.resource()), Some(name));
        }
        for words in [[9, 0, 1, 0], [9, 0, 0, 1], [3, 1, 0, 0], [2, 1 << 32, 0, 0]] {
            assert_eq!(Name::of_resource(&ResourceName { words }), None, "{words:?}");
        }
    }

    #[test]
    fn keys_are_in_the_order_of_names() {
        let names = [(0, 1), (0, 256), (2, 1), (2, 3)].map(|(seq, id)| Name { seq, id });
        assert!(names.is_sorted_by_key(|name| name.key()));
        for name in names {
            assert_eq!(Name::of_key(&name.key()), Some(name));
        }
        assert_eq!(Name::of_key(&[0; 15]), None);
    }
}
