//! What a metadata target shows of its files: attributes, layouts, texts, pages of directories (C-43 …
//! C-53, C-145 … C-150, C-242).

use lnet_types::ByteOrder;
use lustre_wire::Layout;
use lustre_wire::dir::{
    DirEntry, END_OF_DIRECTORY, EntryAttrs, EntryHead, PAGE_LEN, PageFlags, PageHead,
};
use lustre_wire::fid::Valid;
use lustre_wire::mds::MdtBody;

use super::inode::{Id, Inode, SYMLINK};
use super::layouts::LAYOUT_MAX;
use super::tree::{Entry, Tree};

const ORDER: ByteOrder = ByteOrder::Little;

/// What each file shows (C-48).
const ALWAYS: Valid = Valid::ID
    .union(Valid::ATIME)
    .union(Valid::MTIME)
    .union(Valid::CTIME)
    .union(Valid::MODE)
    .union(Valid::TYPE)
    .union(Valid::UID)
    .union(Valid::GID)
    .union(Valid::FLAGS)
    .union(Valid::NLINK)
    .union(Valid::RDEV)
    .union(Valid::MODEASIZE)
    .union(Valid::ACL)
    .union(Valid::PROJID)
    .union(Valid::BTIME);

/// The attributes of a file.
pub(super) fn body(id: Id, inode: &Inode) -> MdtBody {
    let mut body = MdtBody {
        fid1: id.fid(),
        valid: ALWAYS,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        projid: inode.projid,
        nlink: inode.nlink,
        rdev: inode.rdev,
        size: inode.size,
        blocks: inode.blocks,
        mtime: inode.mtime,
        atime: inode.atime,
        ctime: inode.ctime,
        btime: inode.btime,
        max_mdsize: LAYOUT_MAX as u32,
        ..MdtBody::default()
    };
    // C-52: of a file with a layout both are hints, if there are any. Of data that is here too (C-53):
    // a client with a lock may know of more.
    if let Some(part) = &inode.data {
        body.size = body.size.max(part.size);
        body.blocks = body.blocks.max(part.blocks());
    }
    body.valid |= match inode.is_laid_out() {
        false => Valid::SIZE | Valid::BLOCKS,
        true if body.size != 0 => Valid::LAZYSIZE | Valid::LAZYBLOCKS,
        true => Valid::empty(),
    };
    body
}

/// The attributes of a file, and the layout or text that is wanted with them.
pub(super) fn attributes(id: Id, inode: &Inode, asked: &MdtBody) -> (MdtBody, Vec<u8>) {
    let mut body = body(id, inode);
    let wants = |bits: Valid| asked.valid.intersects(bits);
    let room = asked.eadatasize as usize;
    let mut data = Vec::new();
    if wants(Valid::LINKNAME) && inode.kind() == SYMLINK {
        data.extend_from_slice(&inode.text);
        data.push(0);
        data.truncate(room);
        body.valid |= Valid::LINKNAME;
    } else if inode.is_laid_out() && wants(Valid::EASIZE) && room > 0 {
        data.extend_from_slice(&inode.layout);
        body.valid |= Valid::EASIZE;
    } else if inode.is_dir()
        && wants(Valid::DIREA)
        && !wants(Valid::MEA)
        && !inode.layout.is_empty()
        && room > 0
    {
        data.extend_from_slice(&inode.layout);
        body.valid |= Valid::DIREA;
    }
    // Layouts and texts are far below 4 GiB.
    body.eadatasize = data.len() as u32;
    (body, data)
}

/// Pages of a directory from a hash on, at most `room` bytes. `wide`: hashes have 64 bits for this
/// client, else 32 (C-150).
pub(super) fn pages(tree: &Tree, dir: Id, hash: u64, room: usize, wide: bool) -> Vec<u8> {
    let narrowed = if wide { 0 } else { 32 };
    let mut entries = tree.list(dir, hash << narrowed).peekable();
    let mut out = Vec::new();
    let mut start = hash;
    let mut over = entries.peek().is_none();
    while out.len() + PAGE_LEN <= room && (out.is_empty() || !over) {
        let at = out.len();
        out.resize(at + PageHead::LEN, 0);
        // The last entry of a page has no length: it is written when the next one is known.
        let mut held: Option<(u64, Vec<u8>, Vec<u8>)> = None;
        let end = loop {
            let Some((hash, name, entry)) = entries.peek().copied() else {
                over = true;
                break END_OF_DIRECTORY;
            };
            let hash = hash >> narrowed;
            let bytes = entry_bytes(hash, name, entry, wide);
            let before = held.as_ref().map_or(0, |(_, whole, _)| whole.len());
            if out.len() - at + before + bytes.0.len() > PAGE_LEN {
                break hash;
            }
            entries.next();
            if let Some((_, whole, _)) = held.replace((hash, bytes.0, bytes.1)) {
                out.extend(whole);
            }
        };
        let mut flags = PageFlags::empty();
        match held {
            None => flags |= PageFlags::EMPTY,
            Some((last, _, bytes)) => {
                flags.set(PageFlags::COLLIDE, last == end);
                out.extend(bytes);
            }
        }
        out.resize(at + PAGE_LEN, 0);
        let head = PageHead { start, end, flags };
        if let Some(place) = out.get_mut(at..at + PageHead::LEN) {
            head.put(ORDER, place);
        }
        start = end;
    }
    out
}

/// An entry with its length, and the same as the last of a page.
fn entry_bytes(hash: u64, name: &[u8], entry: Entry, wide: bool) -> (Vec<u8>, Vec<u8>) {
    let mut attrs = EntryAttrs::FID;
    attrs.set(EntryAttrs::HASH_64BIT, wide);
    let head = EntryHead { fid: entry.id.fid(), hash, attrs, ..EntryHead::default() };
    let entry = DirEntry { head, name, kind: Some(entry.kind as u16) };
    (entry.to_bytes(ORDER, false), entry.to_bytes(ORDER, true))
}
