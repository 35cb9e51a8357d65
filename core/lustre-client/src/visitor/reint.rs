//! Changes of metadata, one record each (C-111 … C-136). Pure: values to calls.

use lustre_wire::fid::Valid;
use lustre_wire::mds::{
    CreateRecord, MdtBody, NameRecord, RecordHead, ReintOp, SetattrRecord, SetxattrRecord,
};
use lustre_wire::opcode::RENAME;
use lustre_wire::{Buffers, Fid, Layout, Opcode};
use ptlrpc::Call;

use super::intent::OPEN_CREATE;
use super::mdc::{Identity, LAYOUT_ROOM, NO_GROUP};

/// Early cancels: none (C-122).
const NO_CANCELS: [u8; 104] = [0; 104];
/// A directory whose layout is wanted in the reply, upper half of the open flags (C-115).
const WANTS_LAYOUT: u32 = 0x40;
/// Default layouts of directories are understood, upper half of the open flags (C-77).
const KNOWS_DEFAULTS: u32 = 0x200;
/// A directory with a layout of the user's choice (C-123).
const WITH_LAYOUT: u32 = 0x20_0000;
/// A directory with the layout that a default says (C-123).
const BY_DEFAULT: u32 = 0x100_0000;
/// A rename that another target was asked for before (C-123).
const RENAME_AGAIN: u32 = 0x400_0000;
/// Kind of a directory in a mode.
const DIRECTORY: u32 = 0o040_000;

const BODY: u32 = MdtBody::LEN as u32;

/// A place for a name: a directory, or the stripe of it that has the name, and its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    pub(super) fid: Fid,
    pub(super) gid: u32,
    /// Version of the layout of the directory (C-75).
    pub(super) version: u32,
}

/// What is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct New<'a> {
    pub(super) name: &'a [u8],
    pub(super) fid: Fid,
    /// Type and permissions, before the mask.
    pub(super) mode: u32,
    pub(super) umask: u32,
    /// Device number.
    pub(super) rdev: u64,
    /// Text of a link, layout of a directory.
    pub(super) data: &'a [u8],
    /// Why a directory has that layout.
    pub(super) why: DirLayout,
}

/// Why a directory is made with a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirLayout {
    /// A user wants it.
    Wanted,
    /// It is the default.
    Default,
}

fn head(who: &Identity, opcode: ReintOp, gids: (u32, u32), fid1: Fid, fid2: Fid) -> RecordHead {
    RecordHead {
        opcode,
        cap: who.capability(),
        fsuid: who.uid,
        fsgid: who.gid,
        suppgid1: gids.0,
        suppgid2: gids.1,
        fid1,
        fid2,
        ..RecordHead::default()
    }
}

/// A record, and the buffers that each has behind it; `reply`: as [`Call::answered_by`].
fn call<T: Layout>(record: &T, rest: Buffers, reply: &[u32]) -> Call {
    let buffers = Buffers::new().layout(record).bytes(b"").and(&rest);
    let mut call = Call::new(Opcode::MDS_REINT, buffers).answered_by(reply);
    call.modifies = true;
    call
}

/// Makes a directory, a link, a device or a pipe (C-124, C-127, C-128).
pub(super) fn create(who: &Identity, dir: Parent, new: New<'_>, now: i64) -> Call {
    let New { name, fid, mode, umask, rdev, data, why } = new;
    let is_dir = mode & DIRECTORY == DIRECTORY && mode & 0o100_000 == 0;
    let mut head = head(who, ReintOp::CREATE, (who.group(dir.gid), NO_GROUP), dir.fid, fid);
    head.parent_layout_version = dir.version;
    // As recorded clients send them.
    let (bias, flags_low, flags_high) = match why {
        _ if !is_dir => (0, 0, 0),
        _ if data.is_empty() => (0, 0, WANTS_LAYOUT),
        DirLayout::Wanted => (WITH_LAYOUT, OPEN_CREATE, WANTS_LAYOUT),
        DirLayout::Default => (BY_DEFAULT, 0, WANTS_LAYOUT | KNOWS_DEFAULTS),
    };
    let record = CreateRecord {
        head,
        time: now,
        rdev,
        mode,
        bias,
        flags_low,
        flags_high,
        umask,
        ..CreateRecord::default()
    };
    let rest = Buffers::new().text(name);
    let rest = if mode & 0o170_000 == 0o120_000 { rest.text(data) } else { rest.bytes(data) };
    let rest = rest.bytes(NO_CANCELS).up_to(7);
    let room = if is_dir { LAYOUT_ROOM } else { 0 };
    call(&record, rest, &[BODY, 0, room])
}

/// Gives a file one more name (C-129).
pub(super) fn link(
    who: &Identity,
    (file, gid): (Fid, u32),
    dir: Parent,
    name: &[u8],
    now: i64,
) -> Call {
    let gids = (who.group(gid), who.group(dir.gid));
    let head = head(who, ReintOp::LINK, gids, file, dir.fid);
    let record = NameRecord { head, time: now, ..NameRecord::default() };
    let rest = Buffers::new().bytes(b"").text(name).bytes(NO_CANCELS).bytes(b"");
    call(&record, rest, &[BODY])
}

/// Removes a name of a file, or an empty directory (C-130).
pub(super) fn unlink(
    who: &Identity,
    dir: Parent,
    name: &[u8],
    (file, is_dir): (Fid, bool),
    now: i64,
) -> Call {
    let head = head(who, ReintOp::UNLINK, (who.group(dir.gid), NO_GROUP), dir.fid, file);
    let mode = if is_dir { DIRECTORY } else { 0 };
    let record = NameRecord { head, time: now, mode, ..NameRecord::default() };
    let rest = Buffers::new().text(name).bytes(NO_CANCELS).bytes(b"");
    call(&record, rest, &[BODY, 0, 0, 0, 0])
}

/// Renames; `mode` is that of the file, `again` that another target was asked for it before (C-133).
pub(super) fn rename(
    who: &Identity,
    from: (Parent, &[u8]),
    to: (Parent, &[u8]),
    mode: u32,
    (now, again): (i64, bool),
) -> Call {
    let gids = (who.group(from.0.gid), who.group(to.0.gid));
    let head = head(who, ReintOp::RENAME, gids, from.0.fid, to.0.fid);
    let bias = if again { RENAME_AGAIN } else { 0 };
    let record = NameRecord { head, time: now, bias, mode, ..NameRecord::default() };
    let rest = Buffers::new().bytes(b"").text(from.1).text(to.1).bytes(NO_CANCELS).bytes(b"");
    let mut call = call(&record, rest, &[BODY, 0, 0, 0, 0]);
    call.portals = Some(RENAME);
    call
}

/// Changes attributes (C-116). `record` says which, not in whose name.
pub(super) fn setattr(who: &Identity, gid: u32, record: SetattrRecord) -> Call {
    setattr_with(who, gid, record, b"")
}

/// The layout that files in a directory get, as recorded clients give it: with attributes of which none
/// changes (C-199). An extended attribute is another matter: servers let only a privileged user set
/// `trusted.lov`.
pub(super) fn set_default(who: &Identity, dir: Parent, layout: &[u8]) -> Call {
    let record = SetattrRecord { fid: dir.fid, ..SetattrRecord::default() };
    setattr_with(who, dir.gid, record, layout)
}

fn setattr_with(who: &Identity, gid: u32, record: SetattrRecord, layout: &[u8]) -> Call {
    let record = SetattrRecord {
        opcode: ReintOp::SETATTR,
        cap: who.capability(),
        fsuid: who.uid,
        fsgid: who.gid,
        suppgid: who.group(gid),
        ..record
    };
    let rest = Buffers::new().bytes(b"").bytes(layout).bytes(b"").bytes(NO_CANCELS);
    call(&record, rest, &[BODY, 0, 0, 0, 0])
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// Whether it exists or not.
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// Sets an extended attribute, or removes it (C-136, C-237).
pub(super) fn setxattr(
    who: &Identity,
    (file, gid): (Fid, u32),
    name: &[u8],
    value: Option<(&[u8], SetXattr)>,
    now: i64,
) -> Call {
    let (valid, flags) = match value {
        Some((_, SetXattr::Any)) => (Valid::XATTR, 0),
        Some((_, SetXattr::Create)) => (Valid::XATTR, 1),
        Some((_, SetXattr::Replace)) => (Valid::XATTR, 2),
        None => (Valid::XATTRRM, 2),
    };
    let record = SetxattrRecord {
        opcode: ReintOp::SETXATTR,
        cap: who.capability(),
        fsuid: who.uid,
        fsgid: who.gid,
        suppgid1: who.group(gid),
        suppgid2: NO_GROUP,
        fid: file,
        valid: valid | Valid::CTIME,
        time: now,
        flags,
        ..SetxattrRecord::default()
    };
    let bytes = value.map_or(&b""[..], |(bytes, _)| bytes);
    let rest = Buffers::new().text(name).bytes(bytes).bytes(NO_CANCELS).bytes(b"");
    call(&record, rest, &[BODY])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c199_the_default_layout_of_a_directory_goes_as_recorded_clients_send_it() {
        // Recording pool-default-layout, frame 384.
        let fid = Fid { seq: 0x2_0000_0404, oid: 0x11, ver: 0 };
        let mut record = [0; SetattrRecord::LEN];
        record[..8].copy_from_slice(&[1, 0, 0, 0, 255, 255, 255, 255]);
        record[40..56].copy_from_slice(&fid.to_bytes(lnet_types::ByteOrder::Little));
        let mut layout = vec![0; 32];
        layout[..5].copy_from_slice(&[0xd0, 0x0b, 0xd1, 0x0b, 1]);
        layout[24..].copy_from_slice(&[0, 0, 0x10, 0, 2, 0, 1, 0]);
        let dir = Parent { fid, gid: 0, version: 1 };
        let call = set_default(&Identity::default(), dir, &layout);
        let recorded = [&record[..], b"", b"", &layout, b"", &NO_CANCELS];
        assert_eq!((call.opcode, call.buffers), (Opcode::MDS_REINT, Buffers::from(recorded)));
    }
}
