//! Requests to metadata targets that bring a lock, wanted or not: opens, sizes, layouts to be made; with
//! what ends them. Pure: values to calls.

use lustre_wire::ldlm::{
    InodeBits, Intent, LayoutIntent, LayoutOp, LockDesc, LockFlags, LockKind, LockMode,
    LockRequest, Policy, ResourceName,
};
use lustre_wire::mds::{CreateRecord, Epoch, MdtBody, RecordHead, ReintOp, SetattrRecord};
use lustre_wire::{Buffers, Fid, Layout, Opcode};
use ptlrpc::{Call, CallId};

use super::mdc::{Identity, LAYOUT_ROOM, LITTLE};

/// Open flags, lower half (C-77).
pub(super) const OPEN_READ: u32 = 0x1;
pub(super) const OPEN_WRITE: u32 = 0x2;
pub(super) const OPEN_CREATE: u32 = 0x40;
const OPEN_EXCLUSIVE: u32 = 0x80;
pub(super) const OPEN_TRUNCATE: u32 = 0x200;
const OPEN_BY_FID: u32 = 0x80_0000;
/// Permissions do not count for the owner, who has opened the file before.
const OPEN_OWNER_OVERRIDE: u32 = 0x200_0000;
const OPEN_DIRECTORY: u32 = 0x1_0000;
const OPEN_HAS_LAYOUT: u32 = 0x4000_0000;
/// Upper half: no restore from the archive, as a visit would wait for it; a default layout in the reply
/// is understood.
const OPEN_HIGH: u32 = 0x202;
/// Upper half of an open that makes a file: there is nothing to restore.
const CREATE_HIGH: u32 = 0x200;
/// The directory of the name is on another target (C-123).
const CROSS_REF: u32 = 0x2;
/// Version of a plain directory's layout, as kernel nodes send it (C-75).
pub(super) const DIR_VERSION: u32 = 1;
/// Kind of a regular file in a mode.
const REGULAR: u32 = 0o100_000;

/// What is opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opened<'a> {
    /// A file, by its name in a directory.
    File(&'a [u8]),
    /// A directory, by its FID.
    Dir(Fid),
    /// A file that was opened before, by its FID (C-78, C-82).
    Again(Fid),
    /// A file whose name is on another target than it is itself (C-110).
    Remote(Fid),
    /// A name that may be made.
    New(&'a NewFile<'a>),
}

/// A file that is made by its open.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFile<'a> {
    pub(super) name: &'a [u8],
    /// The FID that it gets.
    pub(super) fid: Fid,
    /// Permissions, before the mask.
    pub(super) mode: u32,
    pub(super) umask: u32,
    /// The name may not exist before.
    pub(super) exclusive: bool,
    /// The layout that it gets; empty for the one of its directory.
    pub(super) layout: &'a [u8],
}

/// An open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open<'a> {
    /// The parent.
    pub(super) dir: Fid,
    /// Version of its layout (C-75).
    pub(super) version: u32,
    /// Groups of parent and file.
    pub(super) gids: (u32, u32),
    pub(super) opened: Opened<'a>,
    /// How: [`OPEN_READ`] …
    pub(super) flags: u32,
    /// Names the lock that the server may grant with it.
    pub(super) cookie: u64,
    pub(super) now: i64,
}

fn ibits(fid: Fid, requested: LockMode, bits: InodeBits) -> LockDesc {
    let policy = Policy::Ibits { bits, try_bits: InodeBits::empty(), gid: 0, initiator: 0 };
    LockDesc {
        kind: LockKind::IBITS,
        resource: ResourceName::of(fid),
        requested,
        policy: policy.words(),
        ..LockDesc::default()
    }
}

fn lock(desc: LockDesc, cookie: u64, flags: LockFlags) -> Vec<u8> {
    LockRequest::new(LockFlags::HAS_INTENT | flags, 1, desc, &[cookie]).to_bytes(LITTLE)
}

/// Opens a file (C-74, C-76). It is repeated to a server that has lost it, until a close ends it
/// (C-258).
pub(super) fn open(who: &Identity, open: Open<'_>) -> Call {
    let Open { dir, version, gids, opened, flags, cookie, now } = open;
    let (none, empty) = (Fid::default(), &b""[..]);
    let (how, fid1, fid2, name) = match opened {
        Opened::File(name) => (0, dir, none, name),
        Opened::Dir(fid) => (OPEN_BY_FID | OPEN_DIRECTORY, dir, fid, empty),
        Opened::Again(fid) => (OPEN_BY_FID | OPEN_OWNER_OVERRIDE, dir, fid, empty),
        Opened::Remote(fid) => (0, fid, dir, empty),
        Opened::New(new) => {
            let exclusive = if new.exclusive { OPEN_EXCLUSIVE } else { 0 };
            let layout = if new.layout.is_empty() { 0 } else { OPEN_HAS_LAYOUT };
            (OPEN_CREATE | exclusive | layout, dir, new.fid, new.name)
        }
    };
    let (desc, intent, record) = match opened {
        Opened::New(new) => (
            ibits(fid1, LockMode::CW, InodeBits::UPDATE),
            Intent::OPEN | Intent::CREAT,
            CreateRecord {
                mode: REGULAR | new.mode & 0o7777,
                umask: new.umask,
                flags_high: CREATE_HIGH,
                ..CreateRecord::default()
            },
        ),
        Opened::File(_) | Opened::Dir(_) | Opened::Again(_) | Opened::Remote(_) => (
            ibits(fid1, LockMode::CR, InodeBits::LOOKUP),
            Intent::OPEN,
            CreateRecord { mode: REGULAR, flags_high: OPEN_HIGH, ..CreateRecord::default() },
        ),
    };
    let remote = matches!(opened, Opened::Remote(_));
    let record = CreateRecord {
        head: RecordHead {
            opcode: ReintOp::OPEN,
            cap: who.capability(),
            fsuid: who.uid,
            fsgid: who.gid,
            parent_layout_version: version,
            suppgid1: who.group(gids.0),
            suppgid2: who.group(gids.1),
            fid1,
            fid2,
        },
        bias: if remote { CROSS_REF } else { 0 },
        time: if remote { 0 } else { now },
        flags_low: flags | how,
        ..record
    };
    // A server may give a lock nevertheless (C-66).
    let buffers = Buffers::from([lock(desc, cookie, LockFlags::INTENT_ONLY)])
        .layout(&intent)
        .layout(&record)
        .bytes(b"")
        .bytes(b"")
        .text(name)
        .bytes(match opened {
            Opened::New(new) => new.layout,
            _ => b"",
        })
        .up_to(11);
    let mut call = Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[
        112,
        MdtBody::LEN as u32,
        LAYOUT_ROOM,
        0,
        0,
        0,
        16,
        0,
        0,
        0,
    ]);
    call.modifies = true;
    call.keep = true;
    call
}

/// Ends an open. `record` says what has become of the file (C-102 … C-105).
pub(super) fn close(handle: u64, record: &SetattrRecord, open: Option<CallId>) -> Call {
    let buffers = Buffers::new().layout(&Epoch { handle }).layout(record).bytes(b"");
    let mut call =
        Call::new(Opcode::MDS_CLOSE, buffers).answered_by(&[MdtBody::LEN as u32, 0, 0, 0, 0]);
    call.ends = open;
    call
}

/// Who closes which file, and nothing of what it has.
pub(super) fn closed(who: &Identity, fid: Fid, gid: u32) -> SetattrRecord {
    SetattrRecord {
        opcode: ReintOp::SETATTR,
        cap: who.capability(),
        fsuid: who.uid,
        fsgid: who.gid,
        suppgid: who.group(gid),
        fid,
        ..SetattrRecord::default()
    }
}

/// Gives locks back that came with answers (C-67).
pub(super) fn cancel(handles: &[u64]) -> Call {
    let count = u32::try_from(handles.len()).unwrap_or(u32::MAX);
    let request = LockRequest::new(LockFlags::empty(), count, LockDesc::default(), handles);
    Call::new(Opcode::LDLM_CANCEL, Buffers::from([request.to_bytes(LITTLE)]))
}

/// Size and times of the part of a file that is on its metadata target, from those that know them
/// (C-209).
pub(super) fn glimpse(fid: Fid, cookie: u64) -> Call {
    let desc = ibits(fid, LockMode::PR, InodeBits::DOM);
    Call::new(Opcode::LDLM_ENQUEUE, Buffers::from([lock(desc, cookie, LockFlags::empty())]))
        .answered_by(&[112, 56])
}

/// Objects are made for a range of a file that is to be written, or with whose end it is to end; the layout
/// comes back (C-185 … C-188). Before a cut, too, it is said that the range is written, as recorded clients
/// do: no recording has the intent of a cut (C-295), and which range it means is not sure.
pub(super) fn layout(fid: Fid, (start, end): (u64, u64), cookie: u64) -> Call {
    let desc = ibits(fid, LockMode::EX, InodeBits::LAYOUT);
    let wanted = LayoutIntent { opcode: LayoutOp::WRITE, flags: 0, start, end };
    let buffers = Buffers::from([lock(desc, cookie, LockFlags::empty())])
        .layout(&Intent::LAYOUT)
        .layout(&wanted)
        .bytes(b"");
    let mut call = Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[112, LAYOUT_ROOM]);
    call.modifies = true;
    call
}
