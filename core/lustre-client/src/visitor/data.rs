//! Size, times and bytes of a file: from its metadata target and its objects (C-51, C-205 … C-217).

use lnet_types::Errno;
use lustre_wire::Fid;
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ldlm::{Disposition, LockReply, Lvb};
use lustre_wire::mds::MdtBody;
use lustre_wire::ost::Obdo;
use lustre_wire::striping::Striping;

use super::join::join;
use super::mdc::{self, Opened};
use super::stripes::{FileLayout, Piece, Spot};
use super::walk::{FileKind, Node};
use super::{IN_FLIGHT, LayoutError, Remote, VisitError, Visitor, Wire, ost};

/// How often data is read again that does not fit to its checksum.
const RETRIES: u32 = 3;

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

    fn of(fid: Fid, body: &MdtBody) -> Self {
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

    /// Each time is the latest that a part of the file has (C-51).
    fn merge_times(&mut self, (atime, mtime, ctime): (i64, i64, i64)) {
        self.atime = self.atime.max(atime);
        self.mtime = self.mtime.max(mtime);
        self.ctime = self.ctime.max(ctime);
    }
}

/// A file that is open for reading. It is to be closed.
#[derive(Clone, Debug)]
pub struct OpenFile {
    fid: Fid,
    handle: u64,
    layout: Result<FileLayout, LayoutError>,
    attributes: Attributes,
}

impl OpenFile {
    /// What it had when it was opened.
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}

/// Bytes of a file: of a part that it has none for, zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// The first of them, the rest is zeros.
    pub bytes: Vec<u8>,
}

fn layout_of(bytes: &[u8]) -> Result<FileLayout, LayoutError> {
    if bytes.is_empty() {
        return Ok(FileLayout::default());
    }
    let striping = Striping::parse(bytes).map_err(|_| LayoutError::Bad("it can't be read"))?;
    FileLayout::of(&striping)
}

impl<W: Wire> Visitor<W> {
    /// What a file has, size and times merged from its objects.
    ///
    /// # Errors
    /// A layout or an object whose size is not known, no answer.
    pub async fn attributes(&self, node: &Node) -> Result<Attributes, VisitError> {
        self.merged(node.fid, &node.body, layout_of(&node.layout)).await
    }

    async fn merged(
        &self,
        fid: Fid,
        body: &MdtBody,
        layout: Result<FileLayout, LayoutError>,
    ) -> Result<Attributes, VisitError> {
        let mut found = Attributes::of(fid, body);
        // The metadata target knows all of what has no objects (C-52).
        if found.kind != FileKind::File || body.valid.contains(Valid::SIZE) {
            return Ok(found);
        }
        let layout = match layout {
            // A kernel node shows an empty file (C-176).
            Err(LayoutError::Foreign(_)) => return Ok(found),
            layout => layout?,
        };
        if let Some(component) = layout.on_mdt() {
            let lvb = self.glimpse(fid).await?;
            found.size = component.size_of(0, lvb.size);
            found.blocks = found.blocks.saturating_add(lvb.blocks);
            found.merge_times((lvb.atime, lvb.mtime, lvb.ctime));
        }
        let one = |(component, stripe, object): (usize, usize, Option<_>)| async move {
            let Some(super::stripes::FileObject { id, ost }) = object else {
                return Err(VisitError::Layout(LayoutError::Bad("an object is missing")));
            };
            let remote = self.ost(ost)?;
            let (reply, _) = Self::ask(&self.wire, remote, ost::attributes(id), 0).await?;
            let body: Option<Obdo> = reply.msg().ok().and_then(|msg| msg.get(1).ok());
            let body = body.filter(|body| body.valid.contains(Valid::SIZE));
            let body = body.ok_or_else(|| remote.bad("expected the size of an object"))?;
            Ok((component, stripe, body))
        };
        for result in join(layout.objects().map(one), IN_FLIGHT).await {
            let (component, stripe, body) = result?;
            if let Some(component) = layout.components.get(component) {
                found.size = found.size.max(component.size_of(stripe, body.size));
            }
            found.blocks = found.blocks.saturating_add(body.blocks);
            found.merge_times((body.atime, body.mtime, body.ctime));
        }
        Ok(found)
    }

    /// Size and times of the data on the metadata target (C-209).
    async fn glimpse(&self, fid: Fid) -> Result<Lvb, VisitError> {
        let mdt = self.mdt_of(fid).await?;
        let (reply, _) = Self::ask(&self.wire, mdt, mdc::glimpse(fid, self.cookie()), 0).await?;
        let msg = reply.msg().map_err(|_| mdt.bad("expected a message"))?;
        let lock: LockReply = msg.get(1).map_err(|_| mdt.bad("expected a lock"))?;
        let lvb = Lvb::parse_either(msg.order, msg.buffer(2).unwrap_or_default());
        // Granted, as no other client had one.
        self.give_back(mdt, lock.handle).await?;
        let lvb = lvb.map_err(|_| mdt.bad("expected the size of data on the target"))?;
        match lvb.error() {
            Some(errno) => {
                let errno = Errno(errno.saturating_neg());
                Err(VisitError::Refused { target: mdt.uuid.clone(), errno })
            }
            None => Ok(lvb),
        }
    }

    async fn give_back(&self, mdt: &Remote<W::Link>, handle: u64) -> Result<(), VisitError> {
        if handle != 0 {
            Self::ask(&self.wire, mdt, mdc::cancel(handle), 0).await?;
        }
        Ok(())
    }

    /// Opens for reading; the lock that came with it is given back before anything else is done.
    /// Attributes, layout and handle.
    pub(super) async fn open(
        &self,
        node: &Node,
        opened: Opened<'_>,
    ) -> Result<(MdtBody, Vec<u8>, u64), VisitError> {
        let (dir, gid, name) = &node.parent;
        let mdt = self.mdt_of(node.fid).await?;
        let opened = match opened {
            Opened::File(_) if self.mdt_of(*dir).await?.uuid != mdt.uuid => {
                Opened::Remote(node.fid)
            }
            opened => opened,
        };
        let gids = (*gid, node.body.gid);
        let call = mdc::open(&self.who, *dir, gids, opened, self.cookie());
        let failed = |errno| VisitError::Path { path: name.clone(), errno };
        let answer = Self::ask(&self.wire, mdt, call, 0).await;
        let (reply, _) = answer.map_err(|e| e.at(name))?;
        let msg = reply.msg().map_err(|_| mdt.bad("expected a message"))?;
        let lock: LockReply = msg.get(1).map_err(|_| mdt.bad("expected a lock"))?;
        self.give_back(mdt, lock.handle).await?;
        // What the target says in its order (C-63). A result of old peers has its low half alone.
        let found = Disposition::from_bits_retain(lock.policy_res1);
        let errno = (lock.policy_res2 as u32 as i32).saturating_neg();
        if !found.contains(Disposition::EXECUTED) {
            return Err(mdt.bad("expected the result of an open"));
        }
        if errno != 0 {
            return Err(failed(Errno(errno)));
        }
        if !found.contains(Disposition::OPENED) {
            return Err(failed(Errno::ESTALE));
        }
        let (body, layout) = Self::shown(mdt, &reply, 2)?;
        Ok((body, layout, body.open_handle))
    }

    /// Ends an open. One that the target does not know any more has ended (C-106).
    pub(super) async fn close_handle(&self, fid: Fid, handle: u64) -> Result<(), VisitError> {
        let mdt = self.mdt_of(fid).await?;
        match Self::ask(&self.wire, mdt, mdc::close(&self.who, fid, handle), 0).await {
            Ok(_) | Err(VisitError::Refused { errno: Errno::ESTALE, .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Opens a file for reading: the target checks that this user may.
    ///
    /// # Errors
    /// It is no file, may not be read, has data that can't be read, or there is no answer.
    pub async fn open_file(&self, node: &Node) -> Result<OpenFile, VisitError> {
        let failed = |errno| VisitError::Path { path: node.parent.2.clone(), errno };
        match node.kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(failed(Errno::EISDIR)),
            _ => return Err(failed(Errno::EOPNOTSUPP)),
        }
        let (body, bytes, handle) = self.open(node, Opened::File(&node.parent.2)).await?;
        let layout = layout_of(&bytes);
        let fid = body.fid1;
        let attributes = match &layout {
            Ok(_) => self.merged(fid, &body, layout.clone()).await,
            Err(e) => Err(VisitError::Layout(*e)),
        };
        match attributes {
            Ok(attributes) => Ok(OpenFile { fid, handle, layout, attributes }),
            Err(e) => {
                self.close_handle(fid, handle).await?;
                Err(e)
            }
        }
    }

    /// Closes a file.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn close(&self, file: OpenFile) -> Result<(), VisitError> {
        self.close_handle(file.fid, file.handle).await
    }

    /// Reads bytes, up to the end that the file had when it was opened: parts in order, without gap.
    ///
    /// # Errors
    /// Bytes that are lost or damaged, no answer.
    pub async fn read(
        &self,
        file: &OpenFile,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        let layout = file.layout.as_ref().map_err(|e| VisitError::Layout(*e))?;
        let len = len.min(file.attributes.size.saturating_sub(offset));
        let pieces = layout.pieces(offset, len, ost::READ_MAX.into());
        let parts = join(pieces.into_iter().map(|piece| self.piece(file, piece)), IN_FLIGHT).await;
        parts.into_iter().collect()
    }

    async fn piece(&self, file: &OpenFile, piece: Piece) -> Result<Part, VisitError> {
        let Piece { offset, len, at } = piece;
        let (remote, id, from) = match at {
            Spot::Hole => return Ok(Part { offset, len, bytes: Vec::new() }),
            Spot::Lost => return Err(VisitError::Lost { offset }),
            Spot::Mdt => (self.mdt_of(file.fid).await?, ObjectId::of(file.fid), offset),
            Spot::Object { object, offset, .. } => (self.ost(object.ost)?, object.id, offset),
        };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let at = from.saturating_add(bytes.len() as u64);
            let left = len - bytes.len() as u64;
            let (part, room) = self.fetch_data(remote, id, at, left).await?;
            let ends = part.len() < room as usize;
            bytes.extend(part);
            // The object ends here: what follows is a hole of the file (C-216).
            if ends {
                break;
            }
        }
        Ok(Part { offset, len, bytes })
    }

    /// One request's bytes of an object, and how many were asked for.
    async fn fetch_data(
        &self,
        remote: &Remote<W::Link>,
        id: ObjectId,
        offset: u64,
        len: u64,
    ) -> Result<(Vec<u8>, u32), VisitError> {
        let mut again = 0;
        loop {
            let terms = match &remote.link {
                Some(link) => self.wire.terms(link).await,
                None => Default::default(),
            };
            let (kind, max) = (ost::checksum(&terms), ost::read_max(&terms));
            let room = u32::try_from(len).unwrap_or(u32::MAX).min(max);
            let call = ost::read(id, offset, room, kind, again > 0);
            let (reply, mut bytes) = Self::ask(&self.wire, remote, call, room).await?;
            let moved = usize::try_from(reply.status).ok().filter(|moved| *moved <= bytes.len());
            bytes.truncate(moved.ok_or_else(|| remote.bad("expected no more than was asked for"))?);
            let body: Option<Obdo> = reply.msg().ok().and_then(|msg| msg.get(1).ok());
            let body = body.ok_or_else(|| remote.bad("expected attributes of an object"))?;
            let said = body.valid.contains(Valid::CKSUM | Valid::FLAGS);
            let Some(kind) = kind.filter(|k| said && body.flags.checksum() == k.number()) else {
                return Ok((bytes, room));
            };
            let (have, expected) = (kind.of(&bytes), body.nlink);
            if have == expected {
                return Ok((bytes, room));
            }
            again += 1;
            if again > RETRIES {
                let target = remote.uuid.clone();
                return Err(VisitError::Checksum { target, have, expected });
            }
        }
    }
}
