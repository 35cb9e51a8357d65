//! Which target has a sequence (C-35, C-41): ranges of equal width for files of metadata targets and for
//! objects. In the range of an object target each metadata target has one sequence, so that two of them
//! never give out the same object.

use core::ops::Range;

use lustre_wire::fid::{RangeKind, SeqRange};

use super::inode::Id;
use crate::site::{MDTS_MAX, OSTS_MAX, Part, Site};

/// The first sequence of all.
const FIRST: u64 = 0x2_0000_0400;
/// Sequences of a target.
const WIDTH: u64 = 0x4000_0000;
/// Metadata targets whose ranges are before those of object targets, as recorded file systems have them; those
/// of further ones are behind.
const BEFORE: u32 = 2;

const fn range(place: u32) -> Range<u64> {
    let start = FIRST + place as u64 * WIDTH;
    start..start + WIDTH
}

/// The sequences of the files of a metadata target. The first is its own, clients get the others.
pub(super) const fn of_mdt(index: u32) -> Range<u64> {
    range(if index < BEFORE { index } else { index + OSTS_MAX })
}

/// The sequence of the objects that a metadata target uses on an object target.
pub(super) const fn of_objects(mdt: u32, ost: u32) -> u64 {
    range(BEFORE + ost).start + 1 + mdt as u64
}

/// The target that has a sequence, whether it exists or not.
fn owner(seq: u64) -> Option<(Part, u32)> {
    if seq == Id::ROOT.seq {
        return Some((Part::Mdt, 0));
    }
    let offset = seq.checked_sub(FIRST)?;
    let place = u32::try_from(offset / WIDTH).ok()?;
    let behind = BEFORE + OSTS_MAX;
    match place {
        0..BEFORE => Some((Part::Mdt, place)),
        _ if place < behind => {
            let mdt = (offset % WIDTH).checked_sub(1)?;
            (mdt < MDTS_MAX.into()).then_some((Part::Ost, place - BEFORE))
        }
        _ => {
            let index = place - OSTS_MAX;
            (index < MDTS_MAX).then_some((Part::Mdt, index))
        }
    }
}

/// The metadata target of a file.
pub(super) fn mdt_of(id: Id) -> Option<u32> {
    match owner(id.seq)? {
        // The sequence of the root has nothing else.
        (Part::Mdt, 0) if id.seq == Id::ROOT.seq && id != Id::ROOT => None,
        (Part::Mdt, index) => Some(index),
        (Part::Ost, _) => None,
    }
}

/// What is said of a sequence, if a target of the file system has it.
pub(super) fn locate(site: &Site, seq: u64) -> Option<SeqRange> {
    let (part, index) = owner(seq)?;
    let exists = |target: &crate::site::SiteTarget| (target.part, target.index) == (part, index);
    if !site.targets().iter().any(exists) {
        return None;
    }
    let (all, flags) = match part {
        Part::Mdt if seq != Id::ROOT.seq => (of_mdt(index), RangeKind::MDT),
        Part::Mdt => (seq..seq + 1, RangeKind::MDT),
        Part::Ost => (seq..seq + 1, RangeKind::OST),
    };
    Some(SeqRange { start: all.start, end: all.end, index, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c35_no_two_targets_have_a_sequence_in_common() {
        // As recorded, and as stores have them that were made for one metadata target.
        assert_eq!(of_mdt(0), 0x2_0000_0400..0x2_4000_0400);
        assert_eq!(of_mdt(1), 0x2_4000_0400..0x2_8000_0400);
        assert_eq!((of_objects(0, 0), of_objects(0, 1)), (0x2_8000_0401, 0x2_C000_0401));
        for index in 0..MDTS_MAX {
            let range = of_mdt(index);
            for seq in [range.start, range.start + 1, range.end - 1] {
                assert_eq!(owner(seq), Some((Part::Mdt, index)));
                assert_eq!(mdt_of(Id { seq, oid: 1 }), Some(index));
            }
            for ost in [0, 1, OSTS_MAX - 1] {
                assert_eq!(owner(of_objects(index, ost)), Some((Part::Ost, ost)));
            }
        }
        assert_eq!(of_mdt(2).start, range(BEFORE + OSTS_MAX - 1).end);
        assert_eq!(
            (owner(FIRST - 1), owner(of_mdt(MDTS_MAX).start), owner(u64::MAX)),
            (None, None, None)
        );
        assert_eq!(mdt_of(Id::ROOT), Some(0));
        assert_eq!(mdt_of(Id { oid: 2, ..Id::ROOT }), None);
        assert_eq!(mdt_of(Id { seq: of_objects(0, 0), oid: 1 }), None);
    }

    #[test]
    fn c41_only_sequences_of_targets_that_exist_are_located() {
        let nid = "10.0.0.1@tcp".parse().unwrap();
        let site = Site::of_counts("lfs", (2, 1), &[nid]).unwrap();
        let whole =
            SeqRange { start: 0x2_4000_0400, end: 0x2_8000_0400, index: 1, flags: RangeKind::MDT };
        assert_eq!(locate(&site, 0x2_4000_0403), Some(whole));
        let seq = of_objects(1, 0);
        let one = SeqRange { start: seq, end: seq + 1, index: 0, flags: RangeKind::OST };
        assert_eq!(locate(&site, seq), Some(one));
        let root = locate(&site, Id::ROOT.seq).unwrap();
        assert_eq!((root.start, root.end, root.index), (Id::ROOT.seq, Id::ROOT.seq + 1, 0));
        assert_eq!((locate(&site, of_mdt(2).start), locate(&site, of_objects(0, 1))), (None, None));
    }
}
