//! Opens and closes (C-74 … C-110), and the making of files, which both opens and changes of names do
//! (C-98 … C-101).

use lnet_types::Errno;
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{Disposition, InodeBits};
use lustre_wire::mds::{CreateRecord, MdtBody, SetattrRecord, SetattrValid};
use lustre_wire::striping::StripeObject;
use lustre_wire::{Buffers, Fid};
use ptlrpc::{Answer, Served};

use super::access::{EXECUTE, READ, WRITE, Who};
use super::acl::{self, Acl};
use super::guard::{Beside, Found};
use super::inode::{DIRECTORY, Id, Inode, KIND_MASK, REGULAR, SYMLINK};
use super::layouts::Wished;
use super::lookup::elsewhere;
use super::request::{TEXT_MAX, check_name};
use super::tree::{Edit, Entry, Open};
use super::{BLOCK, Mdt, Stop, sequences, show};
use crate::journal::Cx;

/// Flags of an open, lower half (C-77).
const OPEN_READ: u32 = 0x1;
const OPEN_WRITE: u32 = 0x2;
const OPEN_EXEC: u32 = 0x4 | 0x10;
const OPEN_CREATE: u32 = 0x40;
const OPEN_EXCL: u32 = 0x80;
const OPEN_TRUNCATE: u32 = 0x200;
const OPEN_DIRECTORY: u32 = 0x1_0000;
const OPEN_BY_FID: u32 = 0x80_0000;
const OPEN_DELAY_CREATE: u32 = 0x100_0000;
const OPEN_OWNER_OVERRIDE: u32 = 0x200_0000;
const OPEN_HAS_EA: u32 = 0x4000_0000;
const OPEN_HAS_OBJECTS: u32 = 0x8000_0000;
/// The directory of the name is on another target (C-123).
const CROSS_REF: u32 = 0x2;
/// Set-group-id bit.
const SETGID: u32 = 0o2000;
/// How much newer a time of access must be to be kept (C-104).
const ATIME_STEP: i64 = 60;
/// Most links of a file.
pub(super) const LINKS_MAX: u32 = 65_000;

/// Whether an open makes a file where there is none.
pub(super) const fn may_create(flags: u32) -> bool {
    flags & OPEN_CREATE != 0
}

/// Whether an open gives a file its layout: data need one (C-91).
pub(super) fn lays_out(flags: u32, inode: &Inode) -> bool {
    let wanted = flags & OPEN_WRITE != 0 && flags & OPEN_DELAY_CREATE == 0;
    wanted && inode.is_file() && inode.layout.is_empty()
}

/// What an open has found or made.
struct Opened {
    id: Id,
    inode: Inode,
    found: Disposition,
    /// Its name, if it is new.
    new: Option<(Id, Vec<u8>)>,
    objects: Vec<StripeObject>,
}

/// The type of what a record makes.
pub(super) const fn kind_of(record: &CreateRecord) -> u32 {
    match record.mode & KIND_MASK {
        0 => REGULAR,
        kind => kind,
    }
}

/// What a new file gets from its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) mode: u32,
    pub(super) gid: u32,
    /// The default layout of files in it.
    pub(super) layout: Vec<u8>,
    /// The default access control list, as its attribute has it.
    pub(super) default_acl: Option<Vec<u8>>,
}

impl Parent {
    /// A new file in it, without layout or text. `dir` is its name.
    pub(super) fn child(&self, record: &CreateRecord, dir: Id) -> Inode {
        let kind = kind_of(record);
        let asked = record.mode & 0o7777;
        let default = self.default_acl.as_deref().and_then(|bytes| Acl::parse(bytes).ok()?);
        let default = default.filter(|_| kind != SYMLINK);
        // The umask is for directories without a default list (C-101).
        let acl = default.map(|default| default.for_new(asked));
        let mut mode = match &acl {
            Some(acl) => kind | asked & !0o777 | acl.mode(),
            None => kind | asked & !record.umask,
        };
        let is_dir = kind == DIRECTORY;
        let mut gid = record.head.fsgid;
        if self.mode & SETGID != 0 {
            gid = self.gid;
            mode |= if is_dir { SETGID } else { 0 };
        }
        let time = record.time;
        Inode {
            mode,
            uid: record.head.fsuid,
            gid,
            projid: 0,
            nlink: if is_dir { 2 } else { 1 },
            rdev: record.rdev as u32,
            size: if is_dir { BLOCK } else { 0 },
            blocks: if is_dir { BLOCK / 512 } else { 0 },
            mtime: time,
            atime: time,
            ctime: time,
            btime: time,
            version: 0,
            parent: is_dir.then_some(dir),
            layout: if is_dir { self.layout.clone() } else { Vec::new() },
            text: Vec::new(),
            data: None,
            acl: acl.filter(|acl| !acl.is_mode()).map(Box::new),
        }
    }
}

impl Mdt {
    /// A new file as a record describes it, without name, layout or text; `dir` is where it goes.
    ///
    /// # Errors
    /// The name exists or can't be, the user may not, the FID is not new, there is no room.
    pub(super) fn new_file(
        &self,
        record: &CreateRecord,
        dir: Id,
        name: &[u8],
    ) -> Result<(Id, Inode), Errno> {
        let parent = self.may_add(dir, name, kind_of(record), &Who::from(record))?;
        Ok((self.new_id(record.head.fid2)?, parent.child(record, dir)))
    }

    /// Whether a user may give a directory a name, and what a file of this type gets from it.
    ///
    /// # Errors
    /// The name exists or can't be, the user may not, there is no room.
    pub(super) fn may_add(
        &self,
        dir: Id,
        name: &[u8],
        kind: u32,
        who: &Who,
    ) -> Result<Parent, Errno> {
        let parent = self.tree.inode(dir).ok_or(Errno::ESTALE)?;
        if !parent.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if parent.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        check_name(name)?;
        who.may(parent, EXECUTE)?;
        if self.tree.lookup(dir, name).is_some() {
            return Err(Errno::EEXIST);
        }
        who.may(parent, WRITE)?;
        self.has_room()?;
        if kind == DIRECTORY && parent.nlink >= LINKS_MAX {
            return Err(Errno::EMLINK);
        }
        Ok(self.parent(dir, parent))
    }

    /// What new files get from a directory.
    pub(super) fn parent(&self, dir: Id, inode: &Inode) -> Parent {
        let default_acl = self.tree.xattr(dir, acl::DEFAULT).map(<[u8]>::to_vec);
        Parent { mode: inode.mode, gid: inode.gid, layout: inode.layout.clone(), default_acl }
    }

    /// The name of a new file of this target.
    ///
    /// # Errors
    /// `EINVAL` for a FID of another target, `ESTALE` for one that exists.
    pub(super) fn new_id(&self, fid: Fid) -> Result<Id, Errno> {
        let ours = sequences::of_mdt(self.index);
        let id = Id::of(fid).filter(|id| ours.contains(&id.seq) && id.oid != 0);
        let id = id.ok_or(Errno::EINVAL)?;
        if self.tree.inode(id).is_some() { Err(Errno::ESTALE) } else { Ok(id) }
    }

    /// The text of a new symbolic link.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`.
    pub(super) fn set_text(inode: &mut Inode, data: &[u8]) -> Result<(), Errno> {
        let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
        match text.len() {
            0 => Err(Errno::EINVAL),
            1..=TEXT_MAX => {
                inode.text = text.to_vec();
                inode.size = text.len() as u64;
                inode.mode = SYMLINK | 0o777;
                Ok(())
            }
            _ => Err(Errno::ENAMETOOLONG),
        }
    }

    /// Puts a new file into a directory.
    pub(super) fn add_file(edit: &mut Edit<'_>, dir: Id, name: &[u8], id: Id, inode: Inode) {
        let (kind, time) = (inode.kind(), inode.ctime);
        let default = edit.tree().xattr(dir, acl::DEFAULT).map(<[u8]>::to_vec);
        Self::add_inode(edit, id, inode, default.as_deref());
        Self::add_name(edit, dir, name, Entry { id, kind }, time);
    }

    /// Adds a new file without a name. `default`: the default list of its directory.
    pub(super) fn add_inode(edit: &mut Edit<'_>, id: Id, inode: Inode, default: Option<&[u8]>) {
        let is_dir = inode.is_dir();
        edit.set_inode(id, inode);
        if let Some(default) = default.filter(|_| is_dir) {
            edit.set_xattr(id, acl::DEFAULT, default);
        }
    }

    /// Gives a directory the name of a new file.
    pub(super) fn add_name(edit: &mut Edit<'_>, dir: Id, name: &[u8], entry: Entry, time: i64) {
        edit.set_name(dir, name, entry);
        edit.change(dir, |parent| {
            parent.nlink += u32::from(entry.kind == DIRECTORY);
            parent.mtime = parent.mtime.max(time);
            parent.ctime = parent.ctime.max(time);
        });
    }

    /// Gives a file its layout: that which the request names, else that of its directory, of the root, or
    /// the usual one (C-100). A replayed open names the one that it got (C-256).
    fn lay_out(
        &mut self,
        id: Id,
        dir: Option<Id>,
        asked: &[u8],
        replays: bool,
    ) -> Result<(Vec<u8>, Vec<StripeObject>), Stop> {
        if replays && !asked.is_empty() {
            let file = Inode { mode: REGULAR, layout: asked.to_vec(), ..Inode::default() };
            let objects: Vec<StripeObject> = file
                .objects()
                .into_iter()
                .map(|(index, id)| StripeObject { id, generation: 0, index })
                .collect();
            if objects.iter().any(|object| object.id.oid != 0) {
                return Ok((asked.to_vec(), objects));
            }
        }
        let wished = match Wished::read(asked)? {
            Some(wished) => wished,
            None => {
                let defaults = dir.into_iter().chain([Id::ROOT]);
                let mut known = defaults.filter_map(|dir| self.tree.inode(dir));
                let layout = known.find(|dir| !dir.layout.is_empty()).map(|dir| &dir.layout);
                let wished = layout.map(|layout| Wished::read(layout)).transpose()?;
                wished.flatten().unwrap_or_else(Wished::usual)
            }
        };
        match wished.make(id, &mut self.objects, &self.tree) {
            // Those that are on their way may come.
            Err(Errno::EINPROGRESS) if !self.objects.is_settled(&self.tree) => Err(Stop::Wait),
            Err(Errno::EINPROGRESS) => Err(Errno::ENOSPC.into()),
            made => Ok(made?),
        }
    }

    /// The file of an open, found or made. What was found until an error is in `found`.
    fn opened(
        &mut self,
        served: &Served,
        record: &CreateRecord,
        name: &[u8],
        layout: &[u8],
        done: bool,
        found: &mut Disposition,
    ) -> Result<Opened, Stop> {
        let flags = record.flags_low;
        let who = Who::from(record);
        let replays = served.replay.is_some();
        let head = &record.head;
        let known = Id::of(head.fid2).filter(|id| self.tree.inode(*id).is_some());
        // C-256: a replay names the file that it had opened.
        let by_fid = flags & OPEN_BY_FID != 0 || name.is_empty() || replays && known.is_some();
        let crosses = name.is_empty() && record.bias & CROSS_REF != 0;
        let fid = if crosses { head.fid1 } else { head.fid2 };
        let entry = if by_fid {
            let id = Id::of(fid).ok_or(Errno::ENOENT)?;
            self.tree.inode(id).ok_or(Errno::ENOENT)?;
            Some(id)
        } else {
            let (dir, inode) = self.dir(head.fid1)?;
            who.may(inode, EXECUTE)?;
            check_name(name)?;
            self.tree.lookup(dir, name).map(|entry| entry.id)
        };
        let Some(id) = entry else {
            *found |= Disposition::NEGATIVE;
            // What was made and committed is made no second time.
            if flags & OPEN_CREATE == 0 || done {
                return Err(Errno::ENOENT.into());
            }
            let dir = Id::of(head.fid1).ok_or(Errno::ESTALE)?;
            let (id, mut inode) = self.new_file(record, dir, name)?;
            if !inode.is_file() {
                return Err(Errno::EINVAL.into());
            }
            let mut objects = Vec::new();
            if flags & OPEN_DELAY_CREATE == 0 {
                (inode.layout, objects) = self.lay_out(id, Some(dir), layout, replays)?;
            }
            *found |= Disposition::CREATED;
            return Ok(Opened {
                id,
                inode,
                found: *found,
                new: Some((dir, name.to_vec())),
                objects,
            });
        };
        *found |= Disposition::POSITIVE;
        if flags & OPEN_CREATE != 0 && flags & OPEN_EXCL != 0 && !replays {
            return Err(Errno::EEXIST.into());
        }
        if !self.tree.is_here(id) {
            return Err(Stop::Elsewhere(id));
        }
        let mut inode = self.tree.inode(id).cloned().ok_or(Errno::EIO)?;
        let mut objects = Vec::new();
        if replays {
            return Ok(Opened { id, inode, found: *found, new: None, objects });
        }
        if inode.is_dir() && flags & (OPEN_WRITE | OPEN_CREATE) != 0 {
            return Err(Errno::EISDIR.into());
        }
        if !inode.is_dir() && flags & OPEN_DIRECTORY != 0 {
            return Err(Errno::ENOTDIR.into());
        }
        let bits = [(OPEN_READ, READ), (OPEN_WRITE | OPEN_TRUNCATE, WRITE), (OPEN_EXEC, EXECUTE)];
        let want = bits.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, want)| want).sum();
        let overrides = flags & OPEN_OWNER_OVERRIDE != 0 && who.uid == inode.uid;
        if !overrides {
            who.may(&inode, want)?;
        }
        if inode.is_file()
            && flags & OPEN_HAS_EA != 0
            && inode.is_laid_out()
            && !layout.is_empty()
            && flags & OPEN_CREATE == 0
        {
            return Err(Errno::EEXIST.into());
        }
        if lays_out(flags, &inode) {
            self.has_room()?;
            let dir = Id::of(head.fid1).filter(|dir| self.tree.inode(*dir).is_some());
            (inode.layout, objects) = self.lay_out(id, dir, layout, replays)?;
            *found |= Disposition::LAYOUT_MADE;
        }
        Ok(Opened { id, inode, found: *found, new: None, objects })
    }

    /// An open. `Err(Stop::Wait)`: nothing was done, it is to begin anew later.
    pub(super) fn open(
        &mut self,
        served: &Served,
        record: &CreateRecord,
        name: &[u8],
        layout: &[u8],
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<(), Stop> {
        let flags = record.flags_low;
        let changes = OPEN_WRITE | OPEN_CREATE | OPEN_TRUNCATE;
        let mut found = Disposition::EXECUTED | Disposition::LOOKED_UP;
        let allowed = match flags {
            _ if flags & changes != 0 => Self::may_change(served, cx),
            _ => Ok(()),
        };
        let named = flags & OPEN_HAS_OBJECTS != 0 && served.replay.is_none();
        let allowed = if named { Err(Errno::EINVAL) } else { allowed };
        let opened = allowed.map_err(Stop::Errno);
        let done = Self::is_done(served, cx);
        let opened =
            opened.and_then(|()| self.opened(served, record, name, layout, done, &mut found));
        let opened = match opened {
            Ok(opened) => opened,
            Err(Stop::Wait) => return Err(Stop::Wait),
            Err(Stop::Elsewhere(id)) => {
                let buffers = Buffers::new().layout(&elsewhere(id)).up_to(10);
                let beside = Found { id, what: Beside::Attributes(InodeBits::LOOKUP) };
                let answer = self.of_intent(served, found, Ok(buffers), Some(beside), cx);
                Self::unchanged(served, answer, cx);
                return Ok(());
            }
            Err(Stop::Errno(errno)) => {
                // That there is no such name is no failure (C-63).
                let creates = flags & OPEN_CREATE != 0;
                let negative = found.contains(Disposition::NEGATIVE);
                let absent = errno == Errno::ENOENT && negative && !creates;
                let nothing = Buffers::new().layout(&MdtBody::default()).up_to(10);
                let result = if absent { Ok(nothing) } else { Err(errno) };
                let answer = Self::with_lock(None, found, result);
                Self::unchanged(served, answer, cx);
                return Ok(());
            }
        };
        let Opened { id, inode, found, new, objects } = opened;
        let opens = inode.is_file() || inode.is_dir();
        let transno = cx.rpc.transno(served.id);
        let old = record.old_handle;
        let handle = match served.replay {
            Some(_) if old != 0 && self.tree.open(old).is_none_or(|open| open.id == id) => old,
            _ => self.handle(),
        };
        let client = cx.rpc.client(served.export).map(|(client, _)| client.to_owned());
        let mut edit = Edit::new(&mut self.tree, transno);
        for object in &objects {
            let number = u64::from(object.id.oid);
            if number > edit.tree().used(object.index) {
                edit.set_used(object.index, number);
            }
        }
        let makes_layout = found.contains(Disposition::LAYOUT_MADE);
        match new {
            Some((dir, name)) => Self::add_file(&mut edit, dir, &name, id, inode),
            None if makes_layout => edit.change(id, |old| {
                old.layout.clone_from(&inode.layout);
                (old.size, old.blocks) = (0, 0);
            }),
            None => {}
        }
        let mut found = found;
        if let Some(client) = client.filter(|_| opens) {
            edit.set_open(handle, Open { id, flags, client });
            found |= Disposition::OPENED;
        }
        let changes = edit.finish();
        let Some(inode) = self.tree.inode(id) else { return Ok(()) };
        let asked = MdtBody {
            valid: Valid::EASIZE | Valid::DIREA | Valid::MEA,
            eadatasize: u32::MAX,
            ..MdtBody::default()
        };
        let (mut body, data) = show::attributes(id, inode, &asked);
        if found.contains(Disposition::OPENED) {
            body.open_handle = handle;
            // A layout that is new is not locked with its open.
            if !makes_layout {
                let writes = flags & OPEN_WRITE != 0;
                self.reserve_for_open(served, id, writes, &body, cx);
            }
        }
        // Inline data: none.
        let buffers = Buffers::new().layout(&body).bytes(data).up_to(5).bytes([0; 16]).up_to(9);
        let answer = Self::with_lock(None, found, Ok(buffers));
        self.commit(served, answer, changes, cx);
        Ok(())
    }

    /// C-102 … C-108.
    pub(super) fn close(
        &mut self,
        served: &Served,
        handle: u64,
        record: &SetattrRecord,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let buffers = Buffers::new().layout(&MdtBody::default()).up_to(5);
        let answer = Answer { buffers, ..Answer::default() };
        let client = cx.rpc.client(served.export).map(|(client, _)| client);
        let open = self.tree.open(handle).filter(|open| Some(open.client.as_str()) == client);
        let Some(open) = open.cloned() else {
            if let Some(replay) = served.replay {
                // It is closed: nothing of it is left.
                return cx.rpc.reply(served.id, Answer { transno: replay.transno, ..answer });
            }
            return cx.rpc.reply(served.id, Self::plain(Err(Errno::ESTALE)));
        };
        let reads_only = Self::may_change(served, cx).is_err();
        let transno = cx.rpc.transno(served.id);
        let mut edit = Edit::new(&mut self.tree, transno);
        let mut after = edit.tree().inode(open.id).cloned().unwrap_or_default();
        let before = after.clone();
        let uses = open.flags & (OPEN_READ | OPEN_WRITE | OPEN_EXEC) != 0;
        if uses && !reads_only {
            keep_times(&mut after, record);
        }
        if after != before {
            edit.set_inode(open.id, after);
        }
        edit.close(handle);
        let changes = edit.finish();
        self.commit(served, answer, changes, cx);
    }
}

/// What a close says of a file, as far as it is kept (C-104).
fn keep_times(inode: &mut Inode, record: &SetattrRecord) {
    let has = |bit| record.valid.contains(bit);
    if has(SetattrValid::CTIME) && record.ctime > inode.ctime {
        inode.ctime = record.ctime;
        if has(SetattrValid::MTIME) && record.mtime > inode.mtime {
            inode.mtime = record.mtime;
        }
    }
    if has(SetattrValid::ATIME) && record.atime > inode.atime.saturating_add(ATIME_STEP) {
        inode.atime = record.atime;
    }
    let hints = has(SetattrValid::LSIZE) || has(SetattrValid::LBLOCKS);
    if hints && inode.is_laid_out() && !inode.is_here_alone() {
        if has(SetattrValid::LSIZE) {
            inode.size = inode.size.max(record.size);
        }
        if has(SetattrValid::LBLOCKS) {
            inode.blocks = inode.blocks.max(record.blocks);
        }
    }
}
