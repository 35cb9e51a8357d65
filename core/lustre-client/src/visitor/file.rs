//! Open files: by name or new, for reading or writing; what an open brings, and what a close says. What is seldom
//! waited for is in a box: all that is waited for on the way of a file is in one future, which is moved as it begins.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lnet_types::Errno;
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ldlm::{Disposition, LockReply};
use lustre_wire::mds::{MdtBody, SetattrRecord, SetattrValid};
use lustre_wire::ost::Obdo;
use lustre_wire::{ConnectFlags, Fid};
use ptlrpc::CallId;

use super::attributes::{Attributes, layout_of};
use super::intent::{self, DIR_VERSION, NewFile, OPEN_READ, OPEN_TRUNCATE, OPEN_WRITE, Opened};
use super::join::both;
use super::names::{Changed, Changes, checked};
use super::redirect::{Refusal, elsewhere};
use super::remote::{Answer, Remote};
use super::stripes::FileLayout;
use super::walk::{FileKind, Node};
use super::{LayoutError, Name, VisitError, Visitor, Wire, ost};
use crate::osc::Payer;

/// Data was changed (C-123).
pub(super) const DATA_MODIFIED: u32 = 0x200;
/// How much newer a time of access must be for a close to bring it, in seconds, as servers are set by default
/// (C-104). One with a longer step keeps no time of access more exactly than that.
const ATIME_STEP: i64 = 60;
/// How often an intent is sent again that the target can't carry out yet, each time after a longer pause.
const INTENT_RETRIES: u32 = 5;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Its data may be read.
    pub read: bool,
    /// Its data may be written.
    pub write: bool,
    /// It is cut off at its front.
    pub truncate: bool,
}

impl OpenHow {
    /// For reading alone.
    pub const READ: Self = Self { read: true, write: false, truncate: false };
    /// For reading and writing.
    pub const WRITE: Self = Self { read: true, write: true, truncate: false };

    fn flags(self) -> u32 {
        let flag = |set, flag| if set { flag } else { 0 };
        flag(self.read, OPEN_READ)
            | flag(self.write, OPEN_WRITE)
            | flag(self.truncate, OPEN_TRUNCATE)
    }
}

/// A file that is made if it does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Create {
    /// Permissions, before the mask of the visit.
    pub mode: u32,
    /// It may not exist before.
    pub exclusive: bool,
    /// Layout that it gets ([`Wish`](super::Wish)); empty for the one of its directory.
    pub layout: Vec<u8>,
    /// All of it is known before.
    pub whole: Option<Whole>,
}

/// A small file, all of which is known before it is made, and whose data go by one write: it is empty until
/// that, and whole after it. If it is new, it has its permissions, without a mask, and its times from the
/// start, its write is answered before it is committed, and the close says what is left. What a crash may
/// undo of it is repeated, and [`Visitor::settle`] waits for it; the close does not.
///
/// A directory learns no new time from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Bytes, at most [`WHOLE_MAX`].
    pub size: u64,
    /// Time of access, seconds since 1970.
    pub atime: i64,
    /// Time of the last change of data, seconds since 1970.
    pub mtime: i64,
}

/// Most bytes of a [`Whole`]: they go inside of a request, so that it is kept with them until it is committed.
pub const WHOLE_MAX: u64 = ost::INLINE_MAX as u64;

impl Whole {
    /// The time that a file has when it is made now, if those that it is to have can follow by a close: that
    /// lets no time go back (C-104).
    fn time(&self, now: i64) -> Option<i64> {
        let first = self.atime.min(self.mtime);
        (0..=now).contains(&first).then_some(first)
    }

    /// Whether a close at this time brings the times that are not the first one: it is to be newer than that.
    fn follows(&self, now: i64) -> bool {
        let first = self.atime.min(self.mtime);
        let atime = self.atime == first || self.atime > first.saturating_add(ATIME_STEP);
        atime && (self.mtime == first || now > first)
    }
}

/// Size and blocks of a holder of data, as its last reply has said.
#[derive(Debug)]
struct Held {
    id: ObjectId,
    blocks: AtomicU64,
}

/// A file that is open. It is to be closed.
#[derive(Debug)]
pub struct OpenFile {
    pub(super) fid: Fid,
    pub(super) handle: u64,
    /// The call by which it was opened.
    open: Option<CallId>,
    /// Evictions by its metadata target before that.
    evictions: u64,
    pub(super) how: OpenHow,
    pub(super) layout: Result<FileLayout, LayoutError>,
    pub(super) attributes: Attributes,
    pub(super) payer: Payer,
    created: bool,
    /// Where the file ends, as far as this client knows.
    size: AtomicU64,
    changed: AtomicBool,
    /// It was moved to other objects after data was written: some may have gone to the former ones.
    pub(super) relaid: bool,
    /// Losses of the visit of which its program knows.
    pub(super) said_losses: AtomicU64,
    /// The time of the last change of data that it will have.
    pub(super) mtime: Option<i64>,
    /// It was made as this.
    whole: Option<Whole>,
    /// It has had the times and permissions of that from the start.
    dated: bool,
    held: Vec<Held>,
}

impl OpenFile {
    /// What it had when it was opened.
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Whether it was made by its open.
    pub const fn created(&self) -> bool {
        self.created
    }

    /// The file will have this time of the last change of data: [`Visitor::close_with_changes`] sets it.
    /// Where the file was made by its open, each write says so, and its objects need not be asked once
    /// more in the end.
    pub const fn keep_mtime(&mut self, mtime: i64) {
        if self.created {
            self.mtime = Some(mtime);
        }
    }

    /// Whether a write of so many bytes brings all of it, so that a target may answer it before it is
    /// committed: one that loses it has an empty file, which nothing takes for a whole one.
    pub(super) fn is_whole(&self, offset: u64, len: u64) -> bool {
        self.whole.is_some_and(|whole| offset == 0 && len == whole.size && len <= WHOLE_MAX)
    }

    /// Whether its making and its close at this time say all of these changes.
    fn says(&self, changes: &Changes, now: i64) -> bool {
        let Some(whole) = self.whole.filter(|_| self.dated) else { return false };
        let (mode, atime, mtime) = (self.attributes.mode & 0o7777, whole.atime, whole.mtime);
        let all = Changes {
            mode: Some(mode),
            atime: Some(atime),
            mtime: Some(mtime),
            ..Changes::default()
        };
        *changes == all && self.mtime == Some(mtime) && whole.follows(now)
    }

    /// Where it ends, as far as this client knows.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The layout, if its data can be read and written.
    ///
    /// # Errors
    /// Why it can't.
    pub const fn layout(&self) -> Result<&FileLayout, &LayoutError> {
        self.layout.as_ref()
    }

    /// The file has this layout from now on.
    pub(super) fn adopt(&mut self, layout: FileLayout) {
        self.layout = Ok(layout);
        let known = core::mem::take(&mut self.held);
        let blocks = |id| {
            let found = known.iter().find(|held| held.id == id);
            found.map_or(0, |held| held.blocks.load(Ordering::Relaxed))
        };
        let layout = self.layout.iter();
        let on_mdt = layout.clone().filter_map(|layout| layout.on_mdt());
        let objects = layout.flat_map(FileLayout::objects);
        let ids = objects.filter_map(|(.., object)| Some(object?.id));
        let ids = on_mdt.map(|_| ObjectId::of(self.fid)).chain(ids);
        self.held = ids.map(|id| Held { id, blocks: AtomicU64::new(blocks(id)) }).collect();
    }

    /// Whether the objects of its layout are its objects by another layout too.
    fn is_kept_by(&self, layout: &Result<FileLayout, LayoutError>) -> bool {
        let Ok(own) = &self.layout else { return true };
        layout.as_ref().is_ok_and(|layout| own.is_kept_by(layout))
    }

    /// Whether this client has changed its data.
    pub(super) fn is_written(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// The file has the layout that its metadata target shows by now. One with mirrors is not written: the
    /// others would be out of date. `written`: data went by the former one.
    pub(super) fn follow(&mut self, layout: Result<FileLayout, LayoutError>, written: bool) {
        self.relaid |= written && !self.is_kept_by(&layout);
        match layout {
            Ok(layout) if layout.mirrored && self.how.write => {
                self.layout = Err(LayoutError::Mirrored);
            }
            Ok(layout) => self.adopt(layout),
            Err(e) => self.layout = Err(e),
        }
    }

    /// Data was written up to `end`, or the file cut off there.
    pub(super) fn wrote(&self, end: u64, cut: bool) {
        self.changed.store(true, Ordering::Relaxed);
        match cut {
            true => self.size.store(end, Ordering::Relaxed),
            false => {
                self.size.fetch_max(end, Ordering::Relaxed);
            }
        }
    }

    /// Whether this client has made it, or changed its data.
    pub(super) fn is_changed(&self) -> bool {
        self.created || self.changed.load(Ordering::Relaxed)
    }

    /// What the holder of a part says of itself.
    pub(super) fn heard(&self, id: ObjectId, body: &Obdo) {
        if let Some(held) = self.held.iter().find(|held| held.id == id)
            && body.valid.contains(Valid::BLOCKS)
        {
            held.blocks.store(body.blocks, Ordering::Relaxed);
        }
    }

    /// What a close says of the file: nothing if it was only read; else times, and size and blocks as
    /// a hint (C-103).
    fn closing(&self, record: SetattrRecord, now: i64) -> SetattrRecord {
        let changed = self.changed.load(Ordering::Relaxed);
        let whole = self.whole.filter(|_| self.dated && self.mtime.is_some());
        if !changed && whole.is_none() {
            return record;
        }
        let blocks = self.held.iter().map(|held| held.blocks.load(Ordering::Relaxed));
        let mut valid = SetattrValid::CTIME
            | SetattrValid::CTIME_SET
            | SetattrValid::LSIZE
            | SetattrValid::LBLOCKS;
        // What the file will have in the end is said by another request, which may overtake this one.
        if self.mtime.is_none() || whole.is_some() {
            valid |= SetattrValid::MODE
                | SetattrValid::ATIME
                | SetattrValid::MTIME
                | SetattrValid::ATIME_SET
                | SetattrValid::MTIME_SET;
        }
        SetattrRecord {
            valid,
            size: self.size(),
            blocks: blocks.fold(0, u64::saturating_add),
            mtime: whole.map_or(now, |whole| whole.mtime),
            atime: whole.map_or(self.attributes.atime, |whole| whole.atime),
            ctime: now,
            mode: self.attributes.mode,
            bias: if changed { DATA_MODIFIED } else { 0 },
            ..record
        }
    }
}

/// Who pays for the data of a file.
fn payer_of(body: &MdtBody) -> Payer {
    let project = body.valid.contains(Valid::PROJID).then_some(body.projid);
    Payer { uid: body.uid, gid: body.gid, project }
}

/// What an open has brought.
pub(super) struct Found {
    pub(super) body: MdtBody,
    layout: Result<FileLayout, LayoutError>,
    pub(super) call: Option<CallId>,
    disposition: Disposition,
    /// Merged with what its objects know.
    attributes: Result<Attributes, VisitError>,
    /// Losses of the visit before it.
    said_losses: u64,
    /// Evictions by the target before it.
    evictions: u64,
}

impl<W: Wire> Visitor<W> {
    /// Opens. An open that the target can't carry out yet goes again as a new request (C-267).
    pub(super) async fn open_at(
        &self,
        mdt: &Remote<W::Link>,
        mut open: intent::Open<'_>,
        name: &[u8],
    ) -> Result<Found, Refusal> {
        let mut tries = 0;
        loop {
            match self.open_once(mdt, open, name).await {
                Err(refusal)
                    if refusal.error.errno() == Errno::EINPROGRESS && tries < INTENT_RETRIES =>
                {
                    tries += 1;
                    Box::pin(self.wire.pause(tries)).await;
                    open.cookie = self.cookie();
                }
                end => return end,
            }
        }
    }

    /// Opens; the lock that came with it is given back at once (C-67), while objects are asked for sizes.
    /// What the target says counts in its order (C-63). A result of old peers has its low half alone.
    async fn open_once(
        &self,
        mdt: &Remote<W::Link>,
        open: intent::Open<'_>,
        name: &[u8],
    ) -> Result<Found, Refusal> {
        let (voided, said_losses) = (mdt.voided(&self.wire), self.losses());
        let evictions = mdt.evictions(&self.wire);
        let answer = mdt.ask_or_refuse(&self.wire, intent::open(&self.who, open), 2).await;
        let answer = answer.map_err(|refusal| refusal.at(name))?;
        let lock: LockReply = answer.get(1).ok_or_else(|| mdt.bad("expected a lock"))?;
        let shown = Self::opened_as(mdt, &answer, &lock, name);
        if shown.as_ref().is_ok_and(|(.., is)| is.contains(Disposition::CREATED)) {
            mdt.note_change(voided);
        }
        // The lock may be on the data that is here: its size is asked for when the lock is gone.
        let here = |layout: &FileLayout| layout.on_mdt().is_some();
        let waits = match &shown {
            Ok((body, Ok(layout), is)) if here(layout) => Some((*body, *is)),
            _ => None,
        };
        let merged = async {
            let (body, layout, disposition) = shown?;
            let attributes = match &layout {
                // Its objects are empty: they need not be asked.
                Ok(_) if disposition.contains(Disposition::CREATED) => {
                    Ok(Attributes::of(body.fid1, &body))
                }
                Ok(_) => self.merged(body.fid1, &body, &layout).await,
                Err(e) => Err(VisitError::Layout(*e)),
            };
            let call = answer.call;
            Ok::<_, Refusal>(Found {
                body,
                layout,
                call,
                disposition,
                attributes,
                said_losses,
                evictions,
            })
        };
        let found = async {
            if let Some((body, is)) = waits {
                let Err(e) = self.give_back(mdt, lock.handle).await else { return merged.await };
                // Without its handle the caller can't end the open (C-86).
                if is.contains(Disposition::OPENED) {
                    let record = intent::closed(&self.who, body.fid1, body.gid);
                    let _ = self.close_with(&record, body.open_handle, answer.call).await;
                }
                return Err(e.into());
            }
            // A lock that is not given back goes with the next request for locks, or is called back: the
            // file is open.
            let (_, found) = both(self.give_back_with_others(mdt, lock.handle), merged).await;
            found
        };
        Box::pin(found).await
    }

    /// What the answer to an open shows.
    fn opened_as(
        mdt: &Remote<W::Link>,
        answer: &Answer,
        lock: &LockReply,
        name: &[u8],
    ) -> Result<(MdtBody, Result<FileLayout, LayoutError>, Disposition), Refusal> {
        let disposition = Disposition::from_bits_retain(lock.policy_res1);
        let errno = Errno((lock.policy_res2 as u32 as i32).saturating_neg());
        if !disposition.contains(Disposition::EXECUTED) {
            return Err(mdt.bad("expected the result of an open").into());
        }
        if errno != Errno(0) {
            let error = VisitError::Path { path: name.to_vec(), errno };
            let elsewhere = answer.get(2).and_then(|body| elsewhere(errno, &body));
            return Err(Refusal { error, elsewhere });
        }
        let (body, layout) = Self::shown(mdt, &answer.reply, 2)?;
        Ok((body, layout_of(&body, &layout), disposition))
    }

    /// Opens what was found before.
    pub(super) async fn open(
        &self,
        node: &Node,
        opened: Opened<'_>,
        flags: u32,
    ) -> Result<Found, VisitError> {
        let (dir, gid, name) = &node.parent;
        let mdt = self.mdt_of(node.fid).await?;
        let opened = match opened {
            Opened::File(_) if self.mdt_of(*dir).await?.uuid != mdt.uuid => {
                Opened::Remote(node.fid)
            }
            opened => opened,
        };
        let (gids, cookie, now) = ((*gid, node.body.gid), self.cookie(), self.wire.now());
        let version = DIR_VERSION;
        let open = intent::Open { dir: *dir, version, gids, opened, flags, cookie, now };
        let found = self.open_at(mdt, open, name).await.map_err(|refusal| refusal.error)?;
        if !found.disposition.contains(Disposition::OPENED) {
            let gone = found.disposition.contains(Disposition::NEGATIVE);
            let errno = if gone { Errno::ENOENT } else { Errno::ESTALE };
            return Err(VisitError::Path { path: name.clone(), errno });
        }
        Ok(found)
    }

    /// Ends an open. One that the target does not know any more has ended (C-106).
    pub(super) async fn close_with(
        &self,
        record: &SetattrRecord,
        handle: u64,
        open: Option<CallId>,
    ) -> Result<(), VisitError> {
        let mdt = self.mdt_of(record.fid).await?;
        let again = match (&mdt.link, open) {
            (Some(link), Some(open)) => self.wire.handle(link, open).await,
            _ => None,
        };
        let call = intent::close(again.unwrap_or(handle), record, open);
        match mdt.ask(&self.wire, call).await {
            Ok(_) | Err(VisitError::Refused { errno: Errno::ESTALE, .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    pub(super) async fn close_found(&self, found: &Found) -> Result<(), VisitError> {
        let record = intent::closed(&self.who, found.body.fid1, found.body.gid);
        self.close_with(&record, found.body.open_handle, found.call).await
    }

    /// Opens a file for reading: the target checks that this user may.
    ///
    /// # Errors
    /// It is no file, may not be read, has data that can't be read, or there is no answer.
    pub async fn open_file(&self, node: &Node) -> Result<OpenFile, VisitError> {
        self.open_for(node, OpenHow::READ).await
    }

    /// Opens a file that a listing has shown, for reading, without asking for its attributes before.
    /// `None`: the listing does not say that it is a file, or it can't be opened in this way;
    /// [`Visitor::node`] and [`Visitor::open_file`] say why.
    pub async fn open_listed(&self, dir: &Node, name: &Name) -> Option<OpenFile> {
        let node = Node::listed(dir, name).filter(|node| node.kind() == FileKind::File)?;
        self.open_for(&node, OpenHow::READ).await.ok()
    }

    /// Opens a file. For writing it gets objects, if it has none.
    ///
    /// # Errors
    /// It is no file, may not be opened in this way, has data that can't be read or written, or there
    /// is no answer.
    pub async fn open_for(&self, node: &Node, how: OpenHow) -> Result<OpenFile, VisitError> {
        let failed = |errno| VisitError::Path { path: node.parent.2.clone(), errno };
        match node.kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(failed(Errno::EISDIR)),
            _ => return Err(failed(Errno::EOPNOTSUPP)),
        }
        self.will_ask_objects(node);
        let found = self.open(node, Opened::File(&node.parent.2), how.flags()).await?;
        self.opened(found, how).await
    }

    /// The targets of its objects are to be asked for sizes once it is open: they connect meanwhile.
    fn will_ask_objects(&self, node: &Node) {
        let Ok(layout) = layout_of(&node.body, &node.layout) else { return };
        let objects = layout.objects().filter_map(|(.., object)| object);
        for ost in objects.filter_map(|object| self.ost(object.ost).ok()) {
            ost.will_be_asked(&self.wire);
        }
    }

    /// Opens a name in a directory, and makes the file if there is none.
    ///
    /// # Errors
    /// `EEXIST` for an exclusive one, a directory that may not be changed, no space; and as
    /// [`Visitor::open_for`].
    pub async fn create(
        &self,
        dir: &Node,
        name: &[u8],
        how: OpenHow,
        create: &Create,
    ) -> Result<OpenFile, VisitError> {
        checked(name)?;
        match self.create_in(dir, name, how, create).await {
            Err(e) => {
                let again =
                    async { self.create_in(&self.relaid(dir, e).await?, name, how, create).await };
                Box::pin(again).await
            }
            made => made,
        }
    }

    async fn create_in(
        &self,
        dir: &Node,
        name: &[u8],
        how: OpenHow,
        create: &Create,
    ) -> Result<OpenFile, VisitError> {
        let parent = self.parent_of(dir, name)?;
        let (mut mdt, mut turn) = (self.mdt_of(parent.fid).await?, 0);
        let now = self.wire.now();
        let time = create.whole.and_then(|whole| whole.time(now));
        let dated = time.is_some();
        let found = loop {
            // Each target takes FIDs of its own alone (C-84). It is connected then, and has said whether it
            // applies the mask.
            let fid = mdt.new_fid(&self.wire).await?;
            let (mode, umask) = match dated {
                true => (create.mode, 0),
                false => self.masked(mdt, create.mode).await,
            };
            let Create { exclusive, ref layout, .. } = *create;
            let new = NewFile { name, fid, mode, umask, exclusive, layout };
            let open = intent::Open {
                dir: parent.fid,
                version: parent.version,
                // The new file is in no group yet.
                gids: (parent.gid, u32::MAX),
                opened: Opened::New(&new),
                flags: how.flags(),
                cookie: self.cookie(),
                now: time.unwrap_or(now),
            };
            match self.open_at(mdt, open, name).await {
                Ok(found) => break found,
                Err(refusal) if self.is_to_be_found(create, refusal.error.errno()) => {
                    let there = async {
                        let node = self.lookup(dir, name, name).await.map_err(|_| refusal.error)?;
                        self.open_for(&node, how).await
                    };
                    return Box::pin(there).await;
                }
                Err(refusal) => mdt = Box::pin(self.redirected(mdt, refusal, turn)).await?,
            }
            turn += 1;
        };
        if found.disposition.contains(Disposition::OPENED) {
            let mut file = self.opened(found, how).await?;
            if let Some(whole) = create.whole.filter(|_| file.created) {
                (file.whole, file.dated, file.mtime) = (Some(whole), dated, Some(whole.mtime));
            }
            return Ok(file);
        }
        // It exists, on another target (C-84).
        let node = Box::pin(self.lookup(dir, name, name)).await?;
        Box::pin(self.open_for(&node, how)).await
    }

    /// Whether a file that was not made may be there, and open if it is not to be made: one that has objects
    /// gets no other layout (C-197), and an open that makes a file does not name the group of one that is there
    /// (C-246).
    fn is_to_be_found(&self, create: &Create, errno: Errno) -> bool {
        !create.exclusive
            && match errno {
                Errno::EEXIST => !create.layout.is_empty(),
                Errno::EACCES => !self.who.groups.is_empty(),
                _ => false,
            }
    }

    /// Permissions of what is made, and the mask for the target to apply; without a target that applies
    /// one it is applied here.
    pub(super) async fn masked(&self, mdt: &Remote<W::Link>, mode: u32) -> (u32, u32) {
        let umask = self.who.umask;
        match mdt.terms(&self.wire).await.flags.contains(ConnectFlags::UMASK) {
            true => (mode, umask),
            false => (mode & !umask, umask),
        }
    }

    async fn opened(&self, found: Found, how: OpenHow) -> Result<OpenFile, VisitError> {
        let failed = |errno| VisitError::Path { path: found.body.fid1.to_string().into(), errno };
        let mirrored = found.layout.as_ref().is_ok_and(|layout| layout.mirrored);
        let attributes = match found.attributes {
            _ if mirrored && how.write => Err(VisitError::Layout(LayoutError::Mirrored)),
            _ if FileKind::of(found.body.mode) != FileKind::File => Err(failed(Errno::EISDIR)),
            ref attributes => attributes.clone(),
        };
        let attributes = match attributes {
            Ok(attributes) => attributes,
            Err(e) => {
                Box::pin(self.close_found(&found)).await?;
                return Err(e);
            }
        };
        let created = found.disposition.contains(Disposition::CREATED);
        let (fid, layout) = (found.body.fid1, found.layout);
        let mut file = OpenFile {
            fid,
            handle: found.body.open_handle,
            open: found.call,
            evictions: found.evictions,
            how,
            layout: Err(LayoutError::NotMade(0)),
            attributes,
            payer: payer_of(&found.body),
            created,
            size: AtomicU64::new(attributes.size),
            changed: AtomicBool::new(false),
            relaid: false,
            said_losses: AtomicU64::new(found.said_losses),
            mtime: None,
            whole: None,
            dated: false,
            held: Vec::new(),
        };
        match layout {
            Ok(layout) => file.adopt(self.taken(layout)),
            Err(e) => file.layout = Err(e),
        }
        // The target has noted that it is to be cut off, and no more (C-94).
        if how.truncate
            && !created
            && let Err(e) = Box::pin(self.cut(&mut file, 0, true)).await
        {
            Box::pin(self.close(file)).await?;
            return Err(e);
        }
        Ok(file)
    }

    /// The layout by which a file is read and written.
    #[cfg_attr(not(feature = "sabotage"), allow(clippy::unused_self))]
    pub(super) fn taken(&self, layout: FileLayout) -> FileLayout {
        #[cfg(feature = "sabotage")]
        if self.breaks(crate::Sabotage::StripeBorder) {
            return layout.sabotaged();
        }
        layout
    }

    /// Closes a file. What was written to it is on its targets before.
    ///
    /// # Errors
    /// [`VisitError::ChangesLost`], if the file was changed and no fsync has said so; [`VisitError::Relaid`]; no
    /// answer, or a refusal.
    pub async fn close(&self, file: OpenFile) -> Result<(), VisitError> {
        self.close_ref(&file).await
    }

    async fn close_ref(&self, file: &OpenFile) -> Result<(), VisitError> {
        let kept = self.check_objects_of(file).await;
        self.close_in_any_case(file).await?;
        kept
    }

    /// What was written is in objects that the file has by now (C-195): a migration that holds its writers up,
    /// and lets them go on, may have replaced them. A file that was made by its open is not asked for: the
    /// request would be one more for each small file.
    ///
    /// # Errors
    /// [`VisitError::Relaid`]; no answer.
    pub(super) async fn check_objects_of(&self, file: &OpenFile) -> Result<(), VisitError> {
        let relaid = Err(VisitError::Relaid { file: file.fid });
        if file.relaid {
            return relaid;
        }
        if file.created || !file.is_written() {
            return Ok(());
        }
        match self.laid_out(file.fid).await {
            Ok((_, layout)) if file.is_kept_by(&layout) => Ok(()),
            Ok(_) => relaid,
            // A file that is gone has lost its data with it.
            Err(e) if matches!(e.errno(), Errno::ENOENT | Errno::ESTALE) => Ok(()),
            Err(e) => Err(e),
        }
    }

    async fn close_in_any_case(&self, file: &OpenFile) -> Result<(), VisitError> {
        let record = intent::closed(&self.who, file.fid, file.attributes.gid);
        let record = file.closing(record, self.wire.now());
        if !file.is_changed() || !self.is_ended(file).await? {
            self.close_with(&record, file.handle, file.open).await?;
        } else if let Some(found) = Box::pin(self.open_again(file)).await? {
            // What a close says of the file another open has to bring. One that is gone needs none.
            self.close_with(&record, found.body.open_handle, found.call).await?;
        }
        self.check_losses_of(file)
    }

    /// Whether an eviction by its metadata target has ended the open of a file.
    async fn is_ended(&self, file: &OpenFile) -> Result<bool, VisitError> {
        Ok(self.mdt_of(file.fid).await?.evictions(&self.wire) != file.evictions)
    }

    /// Opens a file once more, by its FID and for the same (C-263). `None`: it is gone, or its user may not open
    /// it in this way any more.
    async fn open_again(&self, file: &OpenFile) -> Result<Option<Found>, VisitError> {
        let mdt = self.mdt_of(file.fid).await?;
        // It may have got what it was made without, and it is not to be cut off again.
        let flags = OpenHow { truncate: false, ..file.how }.flags();
        let open = intent::Open {
            dir: file.fid,
            version: DIR_VERSION,
            gids: (u32::MAX, file.attributes.gid),
            opened: Opened::Again(file.fid),
            flags,
            cookie: self.cookie(),
            now: self.wire.now(),
        };
        match self.open_at(mdt, open, &[]).await.map_err(|refusal| refusal.error) {
            Ok(found) if found.disposition.contains(Disposition::OPENED) => Ok(Some(found)),
            Ok(_) => Ok(None),
            Err(e) => match e.errno() {
                Errno::ENOENT | Errno::ESTALE | Errno::EACCES | Errno::EPERM => Ok(None),
                _ => Err(e),
            },
        }
    }

    /// A file is written through an open for writing alone: that keeps its objects from being replaced
    /// (C-195). One that an eviction has ended is followed by another.
    ///
    /// # Errors
    /// `EIO`: it can't be opened again; no answer.
    pub(super) async fn keep_open(&self, file: &mut OpenFile) -> Result<(), VisitError> {
        if !self.is_ended(file).await? {
            return Ok(());
        }
        let path = file.fid.to_string().into();
        let found = Box::pin(self.open_again(file)).await?;
        let found = found.ok_or(VisitError::Path { path, errno: Errno::EIO })?;
        (file.handle, file.open) = (found.body.open_handle, found.call);
        file.evictions = found.evictions;
        // It may have got mirrors meanwhile.
        let written = file.is_written();
        file.follow(found.layout.map(|layout| self.taken(layout)), written);
        Ok(())
    }

    /// Closes a file, and changes its attributes: a close says newer times than a user may want.
    ///
    /// # Errors
    /// As [`Visitor::close`] and [`Visitor::change`].
    pub async fn close_with_changes(
        &self,
        file: OpenFile,
        changes: &Changes,
    ) -> Result<(), VisitError> {
        if file.says(changes, self.wire.now()) {
            return self.close_ref(&file).await;
        }
        Box::pin(self.close_then_change(&file, changes)).await
    }

    async fn close_then_change(
        &self,
        file: &OpenFile,
        changes: &Changes,
    ) -> Result<(), VisitError> {
        let Attributes { fid, mode, gid, .. } = file.attributes;
        let name = file.fid.to_string().into_bytes();
        // Its objects know the time from each write. Those without data have 0, which is the latest of all
        // times before 1970.
        let known = file.mtime == changes.mtime && file.mtime.is_some_and(|time| time >= 0);
        let layout = file.layout.as_ref().ok().filter(|_| !known);
        let changed = Changed { fid, mode, gid, layout, name: &name };
        if file.mtime.is_some() {
            let (closed, changed) =
                both(self.close_ref(file), self.change_of(&changed, changes)).await;
            return closed.and(changed);
        }
        self.close_ref(file).await?;
        self.change_of(&changed, changes).await
    }

    /// Makes objects for a range, where the layout has none yet (C-187, C-188).
    ///
    /// # Errors
    /// No space, or a refusal; `EIO` for a file that was open when its metadata target evicted this client, and
    /// is gone.
    pub async fn prepare(
        &self,
        file: &mut OpenFile,
        start: u64,
        end: u64,
    ) -> Result<(), VisitError> {
        if !file.how.write {
            return Ok(());
        }
        self.keep_open(file).await?;
        let layout = file.layout.as_ref().map_err(|e| VisitError::Layout(*e))?;
        if !layout.is_to_be_made(start, end) {
            return Ok(());
        }
        let mdt = self.mdt_of(file.fid).await?;
        let mut tries = 0;
        let bytes = loop {
            match Box::pin(self.make_once(mdt, file.fid, (start, end))).await {
                // Another client changes the layout just now, or the target can't do it yet (C-189, C-267).
                Err(VisitError::Refused {
                    errno: Errno::EBUSY | Errno::EAGAIN | Errno::EINPROGRESS,
                    ..
                }) if tries < INTENT_RETRIES => {
                    tries += 1;
                    self.wire.pause(tries).await;
                }
                made => break made?,
            }
        };
        let body = MdtBody { mode: file.attributes.mode, ..MdtBody::default() };
        let layout = layout_of(&body, &bytes)?;
        if layout.is_to_be_made(start, end) {
            return Err(LayoutError::NotMade(start).into());
        }
        let written = file.is_written();
        file.follow(Ok(self.taken(layout)), written);
        file.layout.as_ref().map(|_| ()).map_err(|e| VisitError::Layout(*e))
    }

    /// Lets the metadata target make objects for a range; the layout of the file with them.
    async fn make_once(
        &self,
        mdt: &Remote<W::Link>,
        fid: Fid,
        range: (u64, u64),
    ) -> Result<Vec<u8>, VisitError> {
        let answer = mdt.ask(&self.wire, intent::layout(fid, range, self.cookie())).await?;
        let msg = answer.reply.msg().map_err(|_| mdt.bad("expected a message"))?;
        let lock: LockReply = msg.get(1).map_err(|_| mdt.bad("expected a lock"))?;
        let bytes = msg.buffer(2).unwrap_or_default().to_vec();
        self.give_back(mdt, lock.handle).await?;
        match (lock.policy_res2 as u32 as i32).saturating_neg() {
            0 => Ok(bytes),
            errno => Err(VisitError::Refused { target: mdt.uuid.clone(), errno: Errno(errno) }),
        }
    }
}
