//! Changes of names and attributes (C-111 … C-136).

use lnet_types::Errno;
use lustre_wire::Buffers;
use lustre_wire::mds::{CreateRecord, MdtBody, NameRecord, SetattrRecord, SetattrValid};
use lustre_wire::striping::Magic;
use ptlrpc::{Answer, Served};

use super::access::{EXECUTE, WRITE, Who};
use super::inode::{DIRECTORY, Id, Inode, KIND_MASK, SYMLINK, take};
use super::open::LINKS_MAX;
use super::request::{Reint, check_name};
use super::tree::{Debt, Edit, Entry};
use super::{Mdt, lookup, show};
use crate::journal::Cx;
use crate::store::Change;

/// Set-user-id and set-group-id bits.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// What a change has made: changes of the store, and the buffers of its answer.
type Made = (Vec<Change>, Buffers);

/// Why a change is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    errno: Errno,
    /// A file of the target that can make it (C-126, C-131).
    elsewhere: Option<Id>,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self { errno, elsewhere: None }
    }
}

/// The target of this file is to be asked.
const fn remote(id: Id) -> Refused {
    Refused { errno: Errno::EREMOTE, elsewhere: Some(id) }
}

/// Stripes of a directory in the layout that a client wants for it, 0 if it wants none (C-155).
pub(super) fn stripes_of(layout: &[u8]) -> u32 {
    let mut rest = layout;
    let (magic, count) = (take(&mut rest), take(&mut rest));
    let known = magic.map(|magic| Magic(u32::from_le_bytes(magic)));
    match known {
        Some(Magic::DIR_USER | Magic::DIR_USER_SPECIFIC) => count.map_or(0, u32::from_le_bytes),
        _ => 0,
    }
}

pub(super) fn answer(body: &MdtBody, buffers: usize) -> Buffers {
    Buffers::new().layout(body).up_to(buffers)
}

impl Mdt {
    /// A change, with its answer.
    pub(super) fn reint(&mut self, served: &Served, change: &Reint, cx: &mut Cx<'_, '_, '_>) {
        if let Some(replay) = served.replay.filter(|_| Self::is_done(served, cx)) {
            let buffers = self.done(change);
            let answer = Answer { transno: replay.transno, buffers, ..Answer::default() };
            return cx.rpc.reply(served.id, answer);
        }
        let transno = cx.rpc.transno(served.id);
        let allowed = Self::may_change(served, cx).map_err(Refused::from);
        let made = allowed.and_then(|()| self.is_for_here(change)).and_then(|()| match change {
            Reint::Create(record, name, data) => self.create(record, name, data, transno),
            Reint::Link(record, name) => self.link(record, name, transno),
            Reint::Unlink(record, name) => self.unlink(record, name, transno),
            Reint::Rename(record, from, to) => self.rename(record, from, to, transno),
            Reint::Setattr(record) => Ok(self.set_attributes(record, transno)?),
            Reint::Setxattr(record, name, value) => {
                let change = self.set_xattr(record, name, value)?;
                let mut edit = Edit::new(&mut self.tree, transno);
                change(&mut edit);
                Ok((edit.finish(), answer(&MdtBody::default(), 1)))
            }
        });
        match made {
            Ok((changes, buffers)) => {
                self.commit(served, Answer { buffers, ..Answer::default() }, changes, cx);
            }
            Err(Refused { errno, elsewhere }) => {
                Self::unchanged(served, Self::refusal(errno, elsewhere), cx);
            }
        }
    }

    /// The answer to a change that is not made; `elsewhere`: a file of the target that can make it.
    pub(super) fn refusal(errno: Errno, elsewhere: Option<Id>) -> Answer {
        let buffers = answer(&elsewhere.map(lookup::elsewhere).unwrap_or_default(), 1);
        Answer { status: errno.negative(), buffers, ..Answer::default() }
    }

    /// Whether the directories of a change are here. Links and renames between targets are not made: programs
    /// copy, as they do between file systems.
    fn is_for_here(&self, change: &Reint) -> Result<(), Refused> {
        let there = |fid| self.of_another(fid);
        match change {
            Reint::Create(record, ..) => {
                there(record.head.fid1).map_or(Ok(()), |id| Err(remote(id)))
            }
            Reint::Unlink(record, _) => {
                there(record.head.fid1).map_or(Ok(()), |id| Err(remote(id)))
            }
            Reint::Link(record, _) => match (there(record.head.fid2), there(record.head.fid1)) {
                (Some(dir), _) => Err(remote(dir)),
                (None, Some(_)) => Err(Errno::EXDEV.into()),
                (None, None) => Ok(()),
            },
            Reint::Rename(record, ..) => {
                match there(record.head.fid1).or_else(|| there(record.head.fid2)) {
                    Some(_) => Err(Errno::EXDEV.into()),
                    None => Ok(()),
                }
            }
            Reint::Setattr(_) | Reint::Setxattr(..) => Ok(()),
        }
    }

    /// The answer to a change whose effect is there: what its file is now (C-139).
    fn done(&self, change: &Reint) -> Buffers {
        let fid = match change {
            Reint::Create(record, ..) => record.head.fid2,
            Reint::Setattr(record) => record.fid,
            _ => return answer(&MdtBody::default(), 1),
        };
        let body = self.file(fid).map(|(id, inode)| show::body(id, inode)).unwrap_or_default();
        answer(&body, 3)
    }

    /// C-124, C-127, C-128.
    fn create(
        &mut self,
        record: &CreateRecord,
        name: &[u8],
        data: &[u8],
        transno: u64,
    ) -> Result<Made, Refused> {
        let dir = self.dir(record.head.fid1)?.0;
        let (id, mut inode) = self.new_file(record, dir, name)?;
        match inode.kind() {
            SYMLINK => Self::set_text(&mut inode, data)?,
            DIRECTORY => self.may_be_striped(data)?,
            _ => {}
        }
        let mut edit = Edit::new(&mut self.tree, transno);
        Self::add_file(&mut edit, dir, name, id, inode);
        let changes = edit.finish();
        let body = self.tree.inode(id).map(|inode| show::body(id, inode)).unwrap_or_default();
        Ok((changes, answer(&body, 3)))
    }

    /// C-129.
    fn link(&mut self, record: &NameRecord, name: &[u8], transno: u64) -> Result<Made, Refused> {
        let who = Who::from(record);
        let (id, inode) = self.file(record.head.fid1)?;
        let (dir, parent) = self.dir(record.head.fid2)?;
        check_name(name)?;
        who.may(parent, WRITE | EXECUTE)?;
        if inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        // One that has no name any more gets none again.
        if inode.nlink == 0 || parent.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        if self.tree.lookup(dir, name).is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.has_room()?;
        let (kind, time) = (inode.kind(), record.time);
        let mut edit = Edit::new(&mut self.tree, transno);
        edit.set_name(dir, name, Entry { id, kind });
        edit.change(id, |inode| {
            inode.nlink += 1;
            inode.ctime = inode.ctime.max(time);
        });
        touch(&mut edit, dir, time);
        Ok((edit.finish(), answer(&MdtBody::default(), 1)))
    }

    /// A name that may be removed, and its file.
    fn victim(&self, dir: Id, name: &[u8], who: &Who) -> Result<(Id, Inode), Refused> {
        let parent = self.tree.inode(dir).ok_or(Errno::ESTALE)?;
        who.may(parent, EXECUTE)?;
        check_name(name)?;
        if name == b"." || name == b".." {
            return Err(Errno::EINVAL.into());
        }
        let entry = self.tree.lookup(dir, name).ok_or(Errno::ENOENT)?;
        if !self.tree.is_here(entry.id) {
            return Err(remote(entry.id));
        }
        let inode = self.tree.inode(entry.id).ok_or(Errno::EIO)?;
        who.may_remove(parent, inode)?;
        Ok((entry.id, inode.clone()))
    }

    /// A name goes, and its file with its last name, unless it is open.
    fn drop_name(edit: &mut Edit<'_>, dir: Id, name: &[u8], id: Id, time: i64) {
        edit.remove_name(dir, name);
        let is_dir = edit.tree().inode(id).is_some_and(Inode::is_dir);
        edit.change(id, |inode| {
            inode.nlink = if is_dir { 0 } else { inode.nlink.saturating_sub(1) };
            inode.ctime = inode.ctime.max(time);
        });
        edit.change(dir, |parent| parent.nlink -= u32::from(is_dir));
        touch(edit, dir, time);
        let gone = edit.tree().inode(id).is_some_and(|inode| inode.nlink == 0);
        if gone && !edit.tree().is_open(id) {
            edit.remove_inode(id);
        }
    }

    /// The attributes of a file that has lost a name (C-132): as it is now, or was when it went.
    pub(super) fn removed(edit: &Edit<'_>, id: Id, before: Inode) -> MdtBody {
        match edit.tree().inode(id) {
            Some(inode) => show::body(id, inode),
            None => show::body(id, &Inode { nlink: 0, ..before }),
        }
    }

    /// C-130.
    fn unlink(&mut self, record: &NameRecord, name: &[u8], transno: u64) -> Result<Made, Refused> {
        let dir = self.dir(record.head.fid1)?.0;
        let (id, inode) = self.victim(dir, name, &Who::from(record))?;
        let wants_dir = record.mode & KIND_MASK == DIRECTORY;
        match (wants_dir, inode.is_dir()) {
            (true, false) => return Err(Errno::ENOTDIR.into()),
            (false, true) => return Err(Errno::EISDIR.into()),
            (true, true) if !self.tree.is_empty(id) => return Err(Errno::ENOTEMPTY.into()),
            _ => {}
        }
        let mut edit = Edit::new(&mut self.tree, transno);
        Self::drop_name(&mut edit, dir, name, id, record.time);
        let body = Self::removed(&edit, id, inode);
        Ok((edit.finish(), answer(&body, 5)))
    }

    /// C-133.
    fn rename(
        &mut self,
        record: &NameRecord,
        from: &[u8],
        to: &[u8],
        transno: u64,
    ) -> Result<Made, Refused> {
        let who = Who::from(record);
        let (source, target) = (self.dir(record.head.fid1)?.0, self.dir(record.head.fid2)?.0);
        let away = |entry: &Entry| !self.tree.is_here(entry.id);
        if let Some(entry) = self.tree.lookup(source, from).filter(away) {
            return self.rename_remote(record, (source, from), (target, to), entry, transno);
        }
        let (id, inode) = self.victim(source, from, &who)?;
        if self.tree.lookup(target, to).as_ref().is_some_and(away) {
            return Err(Errno::EXDEV.into());
        }
        check_name(to)?;
        let parent = self.tree.inode(target).ok_or(Errno::ESTALE)?;
        who.may(parent, WRITE | EXECUTE)?;
        if parent.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if to == b"." || to == b".." {
            return Err(Errno::EINVAL.into());
        }
        let is_dir = inode.is_dir();
        if is_dir && source != target {
            self.may_go_below(id, source, target)?;
        }
        // A directory that goes to another one has another parent from then on.
        if is_dir && source != target {
            if parent.nlink >= LINKS_MAX {
                return Err(Errno::EMLINK.into());
            }
            who.may(&inode, WRITE)?;
        }
        let victim = match self.tree.lookup(target, to) {
            Some(entry) if entry.id == id => {
                return Ok((Vec::new(), answer(&MdtBody::default(), 5)));
            }
            Some(_) => Some(self.victim(target, to, &who)?),
            None => None,
        };
        if let Some((victim, old)) = &victim {
            match (is_dir, old.is_dir()) {
                (true, false) => return Err(Errno::ENOTDIR.into()),
                (false, true) => return Err(Errno::EISDIR.into()),
                (true, true) if !self.tree.is_empty(*victim) => return Err(Errno::ENOTEMPTY.into()),
                _ => {}
            }
        } else {
            self.has_room()?;
        }
        let (kind, time) = (inode.kind(), record.time);
        let mut body = MdtBody::default();
        let mut edit = Edit::new(&mut self.tree, transno);
        if let Some((victim, old)) = victim {
            Self::drop_name(&mut edit, target, to, victim, time);
            body = Self::removed(&edit, victim, old);
        }
        edit.remove_name(source, from);
        edit.set_name(target, to, Entry { id, kind });
        edit.change(id, |inode| {
            inode.ctime = inode.ctime.max(time);
            if is_dir {
                inode.parent = Some(target);
            }
        });
        if is_dir && source != target {
            edit.change(source, |dir| dir.nlink -= 1);
            edit.change(target, |dir| dir.nlink += 1);
        }
        touch(&mut edit, source, time);
        touch(&mut edit, target, time);
        Ok((edit.finish(), answer(&body, 5)))
    }

    /// Whether a directory of `source` may become one of `target`: that is not below it (C-133).
    fn may_go_below(&self, id: Id, source: Id, target: Id) -> Result<(), Errno> {
        let above: Vec<Id> = self.tree.upwards(source).collect();
        for dir in self.tree.upwards(target) {
            if dir == id {
                return Err(Errno::EINVAL);
            }
            if above.contains(&dir) {
                return Ok(());
            }
        }
        // The way up leads to another target, where the two may meet anywhere.
        Err(Errno::EXDEV)
    }

    /// A rename of a directory of another target: within its directory only the name changes.
    fn rename_remote(
        &mut self,
        record: &NameRecord,
        (source, from): (Id, &[u8]),
        (target, to): (Id, &[u8]),
        entry: Entry,
        transno: u64,
    ) -> Result<Made, Refused> {
        let who = Who::from(record);
        let dir = self.tree.inode(source).ok_or(Errno::ESTALE)?;
        check_name(to)?;
        if [from, to].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Err(Errno::EINVAL.into());
        }
        // Whose it is is not known here: in a sticky directory it is no one's.
        who.may_remove(dir, &Inode { uid: u32::MAX, ..Inode::default() })?;
        match self.tree.lookup(target, to) {
            Some(same) if same.id == entry.id => {
                return Ok((Vec::new(), answer(&MdtBody::default(), 5)));
            }
            None if source == target => {}
            _ => return Err(Errno::EXDEV.into()),
        }
        let mut edit = Edit::new(&mut self.tree, transno);
        edit.remove_name(source, from);
        edit.set_name(target, to, entry);
        touch(&mut edit, source, record.time);
        Ok((edit.finish(), answer(&MdtBody::default(), 5)))
    }

    /// C-116 … C-119.
    fn set_attributes(&mut self, record: &SetattrRecord, transno: u64) -> Result<Made, Errno> {
        let who = Who::from(record);
        let (id, inode) = self.file(record.fid)?;
        let before = (inode.uid, inode.gid);
        let mut inode = inode.clone();
        change_attributes(&mut inode, record, &who)?;
        let mut edit = Edit::new(&mut self.tree, transno);
        if before != (inode.uid, inode.gid) {
            edit.owe(&inode, Debt::Own(inode.uid, inode.gid));
        }
        edit.set_inode(id, inode);
        let changes = edit.finish();
        self.show_locks(id);
        let body = self.tree.inode(id).map(|inode| show::body(id, inode)).unwrap_or_default();
        Ok((changes, answer(&body, 5)))
    }
}

/// A directory has changed.
fn touch(edit: &mut Edit<'_>, dir: Id, time: i64) {
    edit.change(dir, |dir| {
        dir.mtime = dir.mtime.max(time);
        dir.ctime = dir.ctime.max(time);
    });
}

fn change_attributes(inode: &mut Inode, record: &SetattrRecord, who: &Who) -> Result<(), Errno> {
    let has = |bit| record.valid.contains(bit);
    if has(SetattrValid::ATTR_FLAG) || has(SetattrValid::PROJID) {
        return Err(Errno::EOPNOTSUPP);
    }
    // Of a file that the client has open for writing, the open was checked.
    let writes = |inode: &Inode| match has(SetattrValid::OVERRIDE) {
        true => Ok(()),
        false => who.may(inode, WRITE),
    };
    if has(SetattrValid::SIZE) {
        if !inode.is_file() {
            return Err(if inode.is_dir() { Errno::EISDIR } else { Errno::EINVAL });
        }
        writes(inode)?;
        // Of data that are here alone the end is moved by a request for data (C-223).
        if !inode.is_here_alone() {
            inode.size = record.size;
            inode.blocks = record.size.div_ceil(512).min(inode.blocks);
        }
    }
    if has(SetattrValid::UID) && record.uid != inode.uid {
        if !who.may_chown() {
            return Err(Errno::EPERM);
        }
        inode.uid = record.uid;
    }
    if has(SetattrValid::GID) && record.gid != inode.gid {
        let own = who.uid == inode.uid && who.is_in(record.gid);
        if !own && !who.may_chown() {
            return Err(Errno::EPERM);
        }
        inode.gid = record.gid;
    }
    if has(SetattrValid::MODE) {
        who.owns(inode)?;
        let mut mode = record.mode & 0o7777;
        if !inode.is_dir() && !who.keeps_setgid(inode.gid) {
            mode &= !SETGID;
        }
        inode.mode = inode.kind() | mode;
        if let Some(acl) = &mut inode.acl {
            acl.follow(mode);
        }
    }
    // C-118: without CHOWN a new owner never runs as the old one.
    let owned = has(SetattrValid::UID) || has(SetattrValid::GID);
    if inode.is_file() && (has(SetattrValid::KILL_SUID) || owned && !who.may_chown()) {
        inode.mode &= !SETUID;
    }
    if inode.is_file() && (has(SetattrValid::KILL_SGID) || owned && !who.may_chown()) {
        inode.mode &= !SETGID;
    }
    let given = has(SetattrValid::ATIME_SET) || has(SetattrValid::MTIME_SET);
    let of_data = has(SetattrValid::SIZE);
    if has(SetattrValid::ATIME) || has(SetattrValid::MTIME) {
        match given && !of_data {
            true => who.owns(inode)?,
            // The present time: each user who may write may set it.
            false if !of_data => who.owns(inode).or_else(|_| writes(inode))?,
            false => {}
        }
        if has(SetattrValid::ATIME) {
            inode.atime = record.atime;
        }
        if has(SetattrValid::MTIME) {
            inode.mtime = record.mtime;
        }
    }
    if has(SetattrValid::CTIME) {
        inode.ctime = inode.ctime.max(record.ctime);
    }
    Ok(())
}
