//! Changes that a visitor and a recorded client ask for, compared field by field.

use lnet_types::ByteOrder;
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{LockFlags, LockRequestHead};
use lustre_wire::mds::{
    CreateRecord, NameRecord, ReintOp, SetattrRecord, SetattrValid, SetxattrRecord,
};
use lustre_wire::ost::{IoObj, Niobuf, Obdo, ObdoFlags};
use lustre_wire::{Layout, Opcode};

use crate::archive::Same;

const LITTLE: ByteOrder = ByteOrder::Little;

fn patched<T: Layout>(buffer: &mut Vec<u8>, f: impl FnOnce(&mut T)) {
    let mut value = T::parse(LITTLE, buffer).expect("a structure");
    f(&mut value);
    *buffer = value.to_bytes(LITTLE);
}

/// The fields of a change in which a visitor may differ from the recorded client, set to nothing: times
/// of this day, FIDs that a client chooses, locks that it gives back with it, and room for replies.
fn without_what_may_differ(opcode: Opcode, buffers: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut b = buffers.to_vec();
    match opcode {
        Opcode::MDS_REINT => {
            let op = ReintOp::get(LITTLE, &b[0]);
            let cancels = match op {
                ReintOp::CREATE | ReintOp::LINK | ReintOp::SETXATTR => 4,
                ReintOp::UNLINK => 3,
                _ => 5,
            };
            b[cancels].clear();
            match op {
                ReintOp::CREATE => patched::<CreateRecord>(&mut b[0], |r| {
                    (r.time, r.head.fid2) = Default::default();
                }),
                ReintOp::SETATTR => patched::<SetattrRecord>(&mut b[0], |r| {
                    r.ctime = 0;
                    if !r.valid.contains(SetattrValid::MTIME_SET)
                        || r.valid.contains(SetattrValid::SIZE)
                    {
                        r.mtime = 0;
                    }
                    if !r.valid.contains(SetattrValid::ATIME_SET) {
                        r.atime = 0;
                    }
                }),
                ReintOp::SETXATTR => patched::<SetxattrRecord>(&mut b[0], |r| r.time = 0),
                _ => patched::<NameRecord>(&mut b[0], |r| r.time = 0),
            }
        }
        Opcode::LDLM_ENQUEUE => {
            b[0].truncate(88);
            b[0][4..8].fill(0);
            // A visitor wants no lock beside (C-66).
            patched::<LockRequestHead>(&mut b[0], |r| r.flags.remove(LockFlags::INTENT_ONLY));
            if b.len() > 4 {
                patched::<CreateRecord>(&mut b[2], |r| {
                    (r.time, r.head.fid2) = Default::default();
                });
                if b[6].iter().all(|byte| *byte == 0) {
                    b[6].clear();
                }
            }
        }
        Opcode::MDS_CLOSE => patched::<SetattrRecord>(&mut b[1], |r| {
            (r.mtime, r.atime, r.ctime) = Default::default();
            // Recorded clients know them when they have asked for them.
            r.blocks = 0;
        }),
        Opcode::OST_WRITE => {
            patched::<Obdo>(&mut b[0], |r| {
                // A visitor has neither lock nor promise, and another kind of checksum.
                (r.handle, r.blocks, r.grant, r.mode) = Default::default();
                (r.data_version, r.misc, r.nlink, r.mtime, r.ctime) = Default::default();
                let kept = Valid::HANDLE | Valid::GRANT | Valid::BLOCKS | Valid::TYPE;
                r.valid.remove(kept | Valid::CKSUM);
                r.flags = r.flags.without_checksum();
            });
            patched::<IoObj>(&mut b[1], |r| r.max_brw = r.max_brw.min(0xffff_0000));
            patched::<Niobuf>(&mut b[2], |r| r.flags = Default::default());
        }
        Opcode::OST_PUNCH => patched::<Obdo>(&mut b[0], |r| {
            (r.mtime, r.ctime) = Default::default();
            // Recorded clients had the lock.
            r.flags.remove(ObdoFlags::SRVLOCK);
            r.valid.remove(Valid::FLAGS | Valid::HANDLE);
        }),
        Opcode::OST_SETATTR => patched::<Obdo>(&mut b[0], |r| r.ctime = 0),
        Opcode::OST_SYNC => patched::<Obdo>(&mut b[0], |r| r.blocks = 0),
        _ => {}
    }
    b
}

/// Compares two requests, but for the fields in which a visitor may differ.
///
/// # Panics
/// They differ in others.
#[track_caller]
pub fn is_alike(same: &Same) {
    let Same { frame, opcode, buffers: (recorded, ours), .. } = same;
    let recorded = without_what_may_differ(*opcode, recorded);
    let ours = without_what_may_differ(*opcode, ours);
    for (i, (recorded, ours)) in recorded.iter().zip(&ours).enumerate() {
        assert_eq!(recorded, ours, "{opcode} of frame {frame}: buffer {}", i + 1);
    }
    assert_eq!(recorded.len(), ours.len(), "{opcode} of frame {frame}");
}
