//! What a file has: from its metadata target, merged with what the holders of its data know (C-51,
//! C-208 … C-217), or from the stripes of a directory (C-160).

use lnet_types::{ByteOrder, Errno};
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{LockReply, Lvb};
use lustre_wire::mds::MdtBody;
use lustre_wire::ost::Obdo;
use lustre_wire::striping::Striping;
use lustre_wire::{Fid, Layout as _};

use super::join::join;
use super::remote::Remote;
use super::stripes::{FileLayout, FileObject};
use super::walk::{FileKind, Node};
use super::{IN_FLIGHT, LayoutError, VisitError, Visitor, Wire, intent, mdc, ost};
use crate::sabotage::Sabotage;

/// Flags of the inode of an encrypted file (C-49).
const ENCRYPTED: u32 = 0x800 | 0x80_0000;

/// What a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its FID.
    pub fid: Fid,
    /// What it is.
    pub kind: FileKind,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links.
    pub nlink: u32,
    /// Device number of a device.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Time of access, seconds since 1970.
    pub atime: i64,
    /// Time of the last change of data, seconds since 1970.
    pub mtime: i64,
    /// Time of the last change, seconds since 1970.
    pub ctime: i64,
    /// Time of birth, seconds since 1970, if the target knows it.
    pub btime: Option<i64>,
}

impl Attributes {
    /// The number of the file, as programs see it (C-37).
    pub const fn inode(&self) -> u64 {
        let Fid { seq, oid, .. } = self.fid;
        match seq {
            // A file of old storage: the sequence is the number.
            12..=0xffff_ffff => seq,
            _ => (seq << 24).wrapping_add((seq >> 24) & 0xff_ffff_0000).wrapping_add(oid as u64),
        }
    }

    /// Of a file that the metadata target knows all of.
    pub(super) fn of(fid: Fid, body: &MdtBody) -> Self {
        Self {
            fid,
            kind: FileKind::of(body.mode),
            mode: body.mode,
            uid: body.uid,
            gid: body.gid,
            nlink: body.nlink,
            rdev: body.rdev,
            size: if body.valid.contains(Valid::SIZE) { body.size } else { 0 },
            blocks: if body.valid.contains(Valid::BLOCKS) { body.blocks } else { 0 },
            atime: body.atime,
            mtime: body.mtime,
            ctime: body.ctime,
            btime: body.valid.contains(Valid::BTIME).then_some(body.btime),
        }
    }

    /// One more stripe of a striped directory (C-160). A stripe with one link counts no directories in it.
    fn add_stripe(&mut self, stripe: &Self) {
        self.nlink = match (self.nlink, stripe.nlink) {
            (1, _) | (_, 1) => 1,
            (all, more) => all.saturating_add(more.saturating_sub(2)),
        };
        self.size = self.size.saturating_add(stripe.size);
        self.blocks = self.blocks.saturating_add(stripe.blocks);
        self.merge_times((stripe.atime, stripe.mtime, stripe.ctime));
    }

    /// Each time is the latest that a part of the file has (C-51).
    fn merge_times(&mut self, (atime, mtime, ctime): (i64, i64, i64)) {
        self.atime = self.atime.max(atime);
        self.mtime = self.mtime.max(mtime);
        self.ctime = self.ctime.max(ctime);
    }
}

/// The layout of a file; data of an encrypted one is of no use without its key.
pub(super) fn layout_of(body: &MdtBody, bytes: &[u8]) -> Result<FileLayout, LayoutError> {
    if FileKind::of(body.mode) == FileKind::File && body.flags & ENCRYPTED != 0 {
        return Err(LayoutError::Encrypted);
    }
    if bytes.is_empty() {
        return Ok(FileLayout::default());
    }
    let striping = Striping::parse(bytes).map_err(|_| LayoutError::Bad("it can't be read"))?;
    FileLayout::of(&striping)
}

/// Size and times of data on a metadata target, as it says them: as an object target does, or, without
/// DOM_LVB (C-276), as attributes.
fn on_mdt(order: ByteOrder, bytes: &[u8]) -> Option<Lvb> {
    if bytes.len() != MdtBody::LEN {
        return Lvb::parse_either(order, bytes).ok();
    }
    let body = MdtBody::parse(order, bytes).ok()?;
    let MdtBody { dom_size: size, dom_blocks: blocks, mtime, atime, ctime, .. } = body;
    let said = body.valid.contains(Valid::DOM_SIZE);
    said.then_some(Lvb { size, blocks, mtime, atime, ctime, ..Lvb::default() })
}

impl<W: Wire> Visitor<W> {
    /// A file as it is by now, and the layout by which it is read and written (C-195).
    pub(super) async fn laid_out(
        &self,
        fid: Fid,
    ) -> Result<(Node, Result<FileLayout, LayoutError>), VisitError> {
        let node = Box::pin(self.node_of(fid)).await?;
        let layout = layout_of(&node.body, &node.layout).map(|layout| self.taken(layout));
        Ok((node, layout))
    }

    /// What a file has, size and times merged from its objects, or from the stripes of a directory.
    ///
    /// # Errors
    /// A layout or an object whose size is not known, no answer.
    pub async fn attributes(&self, node: &Node) -> Result<Attributes, VisitError> {
        if let Ok(Some((_, stripes))) = node.dir_layout() {
            return self.of_stripes(node, stripes).await;
        }
        self.merged(node.fid, &node.body, &layout_of(&node.body, &node.layout)).await
    }

    /// What a striped directory has: its names are in the stripes (C-160).
    async fn of_stripes(&self, node: &Node, stripes: Vec<Fid>) -> Result<Attributes, VisitError> {
        let one = |fid| async move {
            let mdt = self.mdt_of(fid).await?;
            let call = mdc::attributes(&self.who, fid, node.body.gid);
            let reply = mdt.ask(&self.wire, call).await?.reply;
            let (body, _) = Self::shown(mdt, &reply, 1)?;
            Ok::<_, VisitError>(Attributes::of(fid, &body))
        };
        let own = Attributes::of(node.fid, &node.body);
        let mut found = Attributes { nlink: 2, size: 0, blocks: 0, ..own };
        for stripe in join(stripes.into_iter().map(one), IN_FLIGHT).await {
            found.add_stripe(&stripe?);
        }
        Ok(found)
    }

    /// By another mirror, if a target of the first one does not answer.
    pub(super) async fn merged(
        &self,
        fid: Fid,
        body: &MdtBody,
        layout: &Result<FileLayout, LayoutError>,
    ) -> Result<Attributes, VisitError> {
        let first = self.merged_by(fid, body, layout.as_ref().map_err(|e| *e)).await;
        let others = layout.as_ref().map(|layout| layout.others.as_slice()).unwrap_or_default();
        if first.as_ref().is_err_and(VisitError::is_of_a_target) {
            for other in others {
                if let Ok(found) = self.merged_by(fid, body, Ok(other)).await {
                    return Ok(found);
                }
            }
        }
        first
    }

    async fn merged_by(
        &self,
        fid: Fid,
        body: &MdtBody,
        layout: Result<&FileLayout, LayoutError>,
    ) -> Result<Attributes, VisitError> {
        let mut found = Attributes::of(fid, body);
        // The metadata target knows all of what has no objects (C-52).
        if found.kind != FileKind::File || body.valid.contains(Valid::SIZE) {
            return Ok(found);
        }
        let layout = match layout {
            // A kernel node shows an empty file (C-176).
            Err(LayoutError::Foreign(_)) => return Ok(found),
            layout => layout.map_err(VisitError::Layout)?,
        };
        if let Some(component) = layout.on_mdt() {
            let lvb = self.glimpse(fid).await?;
            found.size = component.size_of(0, lvb.size);
            found.blocks = found.blocks.saturating_add(lvb.blocks);
            found.merge_times((lvb.atime, lvb.mtime, lvb.ctime));
        }
        let one = |(component, stripe, object): (usize, usize, Option<_>)| async move {
            let Some(FileObject { id, ost }) = object else {
                return Err(VisitError::Layout(LayoutError::Bad("an object is missing")));
            };
            let remote = self.ost(ost)?;
            let body: Option<Obdo> = remote.ask(&self.wire, ost::attributes(id)).await?.get(1);
            let body = body.filter(|body| body.valid.contains(Valid::SIZE));
            let body = body.ok_or_else(|| remote.bad("expected the size of an object"))?;
            Ok((component, stripe, body))
        };
        for result in join(layout.objects().map(one), IN_FLIGHT).await {
            let (component, stripe, body) = result?;
            if let Some(component) = layout.components.get(component) {
                let size = component.size_of(stripe, body.size);
                let counts = self.breaks(Sabotage::LastSizeCounts) || size > found.size;
                found.size = if counts { size } else { found.size };
            }
            found.blocks = found.blocks.saturating_add(body.blocks);
            found.merge_times((body.atime, body.mtime, body.ctime));
        }
        Ok(found)
    }

    /// Size and times of the data on the metadata target (C-209).
    async fn glimpse(&self, fid: Fid) -> Result<Lvb, VisitError> {
        let mdt = self.mdt_of(fid).await?;
        let answer = mdt.ask(&self.wire, intent::glimpse(fid, self.cookie())).await?;
        let msg = answer.reply.msg().map_err(|_| mdt.bad("expected a message"))?;
        let lock: LockReply = msg.get(1).map_err(|_| mdt.bad("expected a lock"))?;
        let lvb = on_mdt(msg.order, msg.buffer(2).unwrap_or_default());
        // Granted, as no other client had one.
        self.give_back(mdt, lock.handle).await?;
        let lvb = lvb.ok_or_else(|| mdt.bad("expected the size of data on the target"))?;
        match lvb.error() {
            Some(errno) => {
                let errno = Errno(errno.saturating_neg());
                Err(VisitError::Refused { target: mdt.uuid.clone(), errno })
            }
            None => Ok(lvb),
        }
    }

    /// Gives a lock back.
    pub(super) async fn give_back(
        &self,
        mdt: &Remote<W::Link>,
        handle: u64,
    ) -> Result<(), VisitError> {
        if handle != 0 {
            mdt.ask(&self.wire, intent::cancel(&[handle])).await?;
        }
        Ok(())
    }

    /// Gives a lock back, or leaves that to a call that is giving others back: many opens at a time need
    /// few requests for their locks.
    pub(super) async fn give_back_with_others(
        &self,
        mdt: &Remote<W::Link>,
        handle: u64,
    ) -> Result<(), VisitError> {
        if handle == 0 {
            return Ok(());
        }
        if !mdt.unwanted.put(handle) {
            return self.give_back(mdt, handle).await;
        }
        let Some(mut turn) = mdt.unwanted.turn() else { return Ok(()) };
        while let Some(handles) = turn.next() {
            if let Err(e) = mdt.ask(&self.wire, intent::cancel(&handles)).await {
                // Those of other files are not lost with it.
                turn.failed(&handles);
                return Err(e);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c160_stripes_of_a_directory_count_together() {
        let stripe = |nlink, mtime| {
            let body = MdtBody {
                valid: Valid::SIZE | Valid::BLOCKS,
                mode: 0o040_755,
                size: 4096,
                blocks: 8,
                nlink,
                mtime,
                ..MdtBody::default()
            };
            Attributes::of(Fid::default(), &body)
        };
        let all = |stripes: &[Attributes]| {
            let mut found = Attributes { nlink: 2, size: 0, blocks: 0, ..stripe(2, 5) };
            stripes.iter().for_each(|stripe| found.add_stripe(stripe));
            (found.nlink, found.size, found.blocks, found.mtime)
        };
        assert_eq!(all(&[stripe(4, 3), stripe(3, 9)]), (5, 8192, 16, 9));
        assert_eq!(all(&[stripe(2, 3), stripe(2, 4)]), (2, 8192, 16, 5));
        // One that does not count its directories.
        assert_eq!(all(&[stripe(1, 3), stripe(3, 4)]).0, 1);
        assert_eq!(all(&[stripe(3, 3), stripe(1, 4), stripe(3, 4)]).0, 1);
        assert_eq!(all(&[stripe(0, 3), stripe(u32::MAX, 4), stripe(9, 4)]).0, u32::MAX);
    }

    #[test]
    fn size_of_data_on_a_metadata_target_is_understood_in_both_forms() {
        let order = ByteOrder::Little;
        let expected =
            Lvb { size: 3800, blocks: 8, mtime: 3, atime: 2, ctime: 4, ..Lvb::default() };
        assert_eq!(on_mdt(order, &expected.to_bytes(order)), Some(expected));
        let mut body = MdtBody {
            valid: Valid::DOM_SIZE,
            dom_size: 3800,
            dom_blocks: 8,
            // Of the file, which has more.
            size: 100_000,
            blocks: 200,
            mtime: 3,
            atime: 2,
            ctime: 4,
            ..MdtBody::default()
        };
        assert_eq!(on_mdt(order, &body.to_bytes(order)), Some(expected));
        body.valid = Valid::SIZE;
        assert_eq!(on_mdt(order, &body.to_bytes(order)), None);
        assert_eq!(on_mdt(order, &[]), None);
    }
}
