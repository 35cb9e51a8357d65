//! Changes of names and attributes: directories, links, renames, permissions, owners, times (C-111 …
//! C-135). Each is one request to the target that has to do it.

use lnet_types::Errno;
use lustre_wire::Fid;
use lustre_wire::fid::ObjectId;
use lustre_wire::mds::{MdtBody, SetattrRecord, SetattrValid};
use lustre_wire::ost::StripeInfo;
use lustre_wire::striping::Striping;

use super::attributes::layout_of;
use super::data::spots;
use super::defaults::Maker;
use super::intent::DIR_VERSION;
use super::join::join;
use super::reint::{self, DirLayout, New, Parent};
use super::stripes::{FileLayout, Spot};
use super::walk::{FileKind, Node};
use super::{IN_FLIGHT, VisitError, Visitor, Wire, mdc, ost};
use crate::osc::Payer;

/// Bits of a mode that make a program run as its owner or group.
const SET_ID: u32 = 0o6000;
/// Kind of a symbolic link in a mode, with all permissions.
const LINK_MODE: u32 = 0o120_777;
/// Kind of a file in a mode.
const KIND: u32 = 0o170_000;
/// Kind of a directory in a mode.
const DIR_MODE: u32 = 0o040_000;
/// Most bytes of the text of a symbolic link.
pub const LINK_MAX: usize = 4095;

/// Attributes to be changed; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of access, seconds since 1970.
    pub atime: Option<i64>,
    /// Time of the last change of data, seconds since 1970.
    pub mtime: Option<i64>,
}

/// What is changed, as it was before.
#[derive(Debug)]
pub(super) struct Changed<'a> {
    pub(super) fid: Fid,
    pub(super) mode: u32,
    pub(super) gid: u32,
    /// Its objects, as far as they are to be asked.
    pub(super) layout: Option<&'a FileLayout>,
    /// What errors call it.
    pub(super) name: &'a [u8],
}

/// A name that a file may have.
///
/// # Errors
/// It is empty, too long, has a slash or NUL, or leads elsewhere.
pub(super) fn checked(name: &[u8]) -> Result<(), VisitError> {
    let failed = |errno| Err(VisitError::Path { path: name.to_vec(), errno });
    if name.len() > 255 {
        return failed(Errno::ENAMETOOLONG);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return failed(Errno::EINVAL);
    }
    if name == b"." || name == b".." { failed(Errno::EEXIST) } else { Ok(()) }
}

impl<W: Wire> Visitor<W> {
    /// Where a name of a directory is, or is to be (C-159).
    pub(super) fn parent_of(&self, dir: &Node, name: &[u8]) -> Result<Parent, VisitError> {
        let failed = |errno| VisitError::Path { path: name.to_vec(), errno };
        if dir.kind() != FileKind::Dir {
            return Err(failed(Errno::ENOTDIR));
        }
        let fid = dir.stripe_of(name).ok_or(VisitError::DirLayout { dir: dir.fid })?;
        let striped = dir.dir_layout().ok().flatten();
        let version = striped.map_or(DIR_VERSION, |(head, _)| head.version);
        Ok(Parent { fid, gid: dir.body.gid, version })
    }

    async fn make_node(
        &self,
        dir: &Node,
        name: &[u8],
        mode: (u32, Option<u32>),
        data: &[u8],
    ) -> Result<Node, VisitError> {
        checked(name)?;
        match self.make_node_in(dir, name, mode, data).await {
            Err(e) => self.make_node_in(&self.relaid(dir, e).await?, name, mode, data).await,
            made => made,
        }
    }

    async fn make_node_in(
        &self,
        dir: &Node,
        name: &[u8],
        (mode, umask): (u32, Option<u32>),
        data: &[u8],
    ) -> Result<Node, VisitError> {
        let parent = self.parent_of(dir, name)?;
        let Maker { mut mdt, chosen, by_default } = match mode & KIND == DIR_MODE {
            true => self.maker(dir, parent.fid, data).await?,
            false => Maker::of(self.mdt_of(parent.fid).await?),
        };
        let why = if by_default.is_some() { DirLayout::Default } else { DirLayout::Wanted };
        let data = by_default.as_deref().unwrap_or(data);
        let mut turn = 0;
        let (fid, answer) = loop {
            // Each target takes FIDs of its own alone (C-84). It is connected then, and has said whether it
            // applies the mask.
            let fid = mdt.new_fid(&self.wire).await?;
            let (mode, umask) = match umask {
                Some(umask) => (mode, umask),
                None => self.masked(mdt, mode).await,
            };
            let new = New { name, fid, mode, umask, rdev: 0, data, why };
            let call = reint::create(&self.who, parent, new, self.wire.now());
            let next = match mdt.ask_or_refuse(&self.wire, call, 1).await {
                Ok(answer) => break (fid, answer),
                // The target that a user has chosen makes it, or none.
                Err(refusal) if chosen => Err(refusal.error),
                Err(refusal) => self.redirected(mdt, refusal, turn).await,
            };
            (mdt, turn) = (next.map_err(|e| e.at(name))?, turn + 1);
        };
        let body: MdtBody =
            answer.get(1).ok_or_else(|| mdt.bad("expected attributes of a file"))?;
        let layout = answer.reply.msg().ok().and_then(|msg| Some(msg.buffer(3)?.to_vec()));
        let parent = (parent.fid, parent.gid, name.to_vec());
        // Servers up to 2.15 do not say whether they have striped it (C-282).
        if layout.is_none() && mode & KIND == DIR_MODE && self.mdts.len() > 1 {
            return self.fetch(fid, dir.fid, parent, dir.below()).await.map_err(|e| e.at(name));
        }
        let layout = layout.unwrap_or_default();
        let layout = layout.get(..body.eadatasize as usize).unwrap_or(&layout).to_vec();
        Ok(Node { fid, dir: dir.fid, parent, body, layout, depth: dir.below() })
    }

    /// Makes a directory. `layout` says which metadata target gets it ([`DirWish`](super::DirWish)). If it
    /// is empty, that is the one that the default layout of the parent or of the root names or leaves to the
    /// client, in turn or by room, or else the one that has the parent.
    ///
    /// # Errors
    /// `EEXIST`, a parent that may not be changed, a target that is not there, a layout that is none, no
    /// answer. Where older servers are asked for the layout of what they have made (C-282), the directory is
    /// there though that fails.
    pub async fn make_dir(
        &self,
        dir: &Node,
        name: &[u8],
        mode: u32,
        layout: &[u8],
    ) -> Result<Node, VisitError> {
        self.make_node(dir, name, (DIR_MODE | mode & 0o7777, None), layout).await
    }

    /// The file of a name in a directory, of whatever kind it is; a directory is made if there is none.
    /// `true`: this client has made it. One that another client makes meanwhile is there like any other.
    ///
    /// # Errors
    /// As [`Visitor::child`] and [`Visitor::make_dir`].
    pub async fn child_or_new_dir(
        &self,
        dir: &Node,
        name: &[u8],
        mode: u32,
    ) -> Result<(Node, bool), VisitError> {
        match self.lookup(dir, name, name).await {
            Err(e) if e.errno() == Errno::ENOENT => {}
            found => return Ok((found?, false)),
        }
        match self.make_dir(dir, name, mode, b"").await {
            Err(e) if e.errno() == Errno::EEXIST => {
                Ok((self.lookup(dir, name, name).await?, false))
            }
            made => Ok((made?, true)),
        }
    }

    /// Makes a symbolic link with this text.
    ///
    /// # Errors
    /// As [`Visitor::make_dir`]; an empty text, one with a NUL, or longer than [`LINK_MAX`].
    pub async fn make_link(
        &self,
        dir: &Node,
        name: &[u8],
        text: &[u8],
    ) -> Result<Node, VisitError> {
        let failed = |errno| Err(VisitError::Path { path: name.to_vec(), errno });
        if text.len() > LINK_MAX {
            return failed(Errno::ENAMETOOLONG);
        }
        if text.is_empty() || text.contains(&0) {
            return failed(Errno::EINVAL);
        }
        self.make_node(dir, name, (LINK_MODE, Some(self.who.umask)), text).await
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, a directory that may not be changed, no answer.
    pub async fn link(&self, file: &Node, dir: &Node, name: &[u8]) -> Result<(), VisitError> {
        checked(name)?;
        match self.link_in(file, dir, name).await {
            Err(e) => self.link_in(file, &self.relaid(dir, e).await?, name).await,
            done => done,
        }
    }

    async fn link_in(&self, file: &Node, dir: &Node, name: &[u8]) -> Result<(), VisitError> {
        let parent = self.parent_of(dir, name)?;
        let mdt = self.mdt_of(parent.fid).await?;
        let of = (file.fid, file.body.gid);
        let call = |_| reint::link(&self.who, of, parent, name, self.wire.now());
        self.ask_for(mdt, call).await.map_err(|e| e.at(name)).map(|_| ())
    }

    /// Removes a name that was found: of a directory, if it is empty; of another file with its last
    /// name its data too.
    ///
    /// # Errors
    /// `ENOTEMPTY`, a name that is gone, a directory that may not be changed, no answer.
    pub async fn remove(&self, node: &Node) -> Result<(), VisitError> {
        checked(&node.parent.2)?;
        match self.remove_found(node).await {
            Err(e) => self.remove_found(&self.refound(node, e).await?).await,
            done => done,
        }
    }

    async fn remove_found(&self, node: &Node) -> Result<(), VisitError> {
        let (dir, gid, name) = &node.parent;
        // The target of the file has its locks, and removes the name wherever that is (C-131).
        let mdt = self.mdt_of(node.fid).await?;
        let what = (node.fid, node.kind() == FileKind::Dir);
        let parent = Parent { fid: *dir, gid: *gid, version: DIR_VERSION };
        let call = |_| reint::unlink(&self.who, parent, name, what, self.wire.now());
        self.ask_for(mdt, call).await.map_err(|e| e.at(name)).map(|_| ())
    }

    /// Gives a file that was found another name, in place of the file that has it (C-133, C-134).
    ///
    /// # Errors
    /// `EISDIR`, `ENOTDIR`, `ENOTEMPTY` by what has the name, `EINVAL` into itself, directories that may
    /// not be changed, no answer.
    pub async fn rename(&self, node: &Node, dir: &Node, name: &[u8]) -> Result<(), VisitError> {
        checked(name)?;
        checked(&node.parent.2)?;
        let error = match self.rename_in(node, dir, name).await {
            Err(e) if e.errno() == Errno::ESTALE => e,
            end => return end,
        };
        // Which of the two places is stale is not said.
        let from = self.refound(node, error.clone()).await;
        let to = self.relaid(dir, error.clone()).await;
        if from.is_err() && to.is_err() {
            return Err(error);
        }
        let (from, to) = (from.as_ref().unwrap_or(node), to.as_ref().unwrap_or(dir));
        self.rename_in(from, to, name).await
    }

    async fn rename_in(&self, node: &Node, dir: &Node, name: &[u8]) -> Result<(), VisitError> {
        let from = Parent { fid: node.parent.0, gid: node.parent.1, version: DIR_VERSION };
        let to = self.parent_of(dir, name)?;
        let at = match self.lookup(dir, name, name).await {
            Ok(there) => there.fid,
            Err(VisitError::Path { errno: Errno::ENOENT, .. }) => to.fid,
            Err(e) => return Err(e),
        };
        let mdt = self.mdt_of(at).await?;
        let (mode, now) = (node.body.mode, self.wire.now());
        let old = (from, node.parent.2.as_slice());
        let call = |again| reint::rename(&self.who, old, (to, name), mode, (now, again));
        self.ask_for(mdt, call).await.map_err(|e| e.at(name)).map(|_| ())
    }

    /// Changes attributes of a file, and the times of its objects, as readers take the latest of all
    /// (C-117 … C-120).
    ///
    /// # Errors
    /// A file of another user, no answer.
    pub async fn change(&self, node: &Node, changes: &Changes) -> Result<(), VisitError> {
        let MdtBody { mode, gid, .. } = node.body;
        // Without a layout that is known there are no objects to be asked.
        let layout = layout_of(&node.body, &node.layout).ok();
        let (layout, name) = (layout.as_ref(), node.parent.2.as_slice());
        let of = Changed { fid: node.fid, mode, gid, layout, name };
        self.change_of(&of, changes).await
    }

    pub(super) async fn change_of(
        &self,
        of: &Changed<'_>,
        changes: &Changes,
    ) -> Result<(), VisitError> {
        let is_file = FileKind::of(of.mode) == FileKind::File;
        let Changes { mode, uid, gid, atime, mtime } = *changes;
        let now = self.wire.now();
        let mut record = SetattrRecord {
            fid: of.fid,
            valid: SetattrValid::CTIME | SetattrValid::CTIME_SET,
            mtime: mtime.unwrap_or(now),
            atime: atime.unwrap_or(now),
            ctime: now,
            ..SetattrRecord::default()
        };
        let mut set = |wanted: bool, valid| record.valid.set(valid, wanted);
        set(uid.is_some(), SetattrValid::UID);
        set(gid.is_some(), SetattrValid::GID);
        set(atime.is_some(), SetattrValid::ATIME | SetattrValid::ATIME_SET);
        set(mtime.is_some(), SetattrValid::MTIME | SetattrValid::MTIME_SET);
        // A file that changes hands does not run as its owner any more (C-118).
        let handed = (uid.is_some() || gid.is_some()) && is_file;
        set(handed && of.mode & 0o4000 != 0, SetattrValid::KILL_SUID);
        set(handed && of.mode & 0o2000 != 0, SetattrValid::KILL_SGID);
        let kept = (handed && of.mode & SET_ID != 0).then_some(of.mode & !SET_ID & 0o7777);
        let mode = mode.or(kept);
        set(mode.is_some(), SetattrValid::MODE);
        if let Some(mode) = mode {
            record.mode = of.mode & !0o7777 | mode & 0o7777;
        }
        (record.uid, record.gid) = (uid.unwrap_or(0), gid.unwrap_or(0));
        let group = gid.unwrap_or(of.gid);
        let mdt = self.mdt_of(of.fid).await?;
        let call = |_| reint::setattr(&self.who, group, record);
        self.ask_for(mdt, call).await.map_err(|e| e.at(of.name))?;
        let Some(layout) = of.layout.filter(|_| is_file) else { return Ok(()) };
        let one = |(info, at): (StripeInfo, Spot)| async move {
            let Spot::Object { stripe, object, .. } = at else { return Ok(()) };
            let object_of = ost::Object {
                id: object.id,
                file: of.fid,
                stripe: u32::try_from(stripe).unwrap_or(u32::MAX),
                on_mdt: false,
                layout: info,
                // Times alone change nothing of that.
                payer: Payer::default(),
            };
            let call = ost::set_times(&object_of, now, mtime, atime);
            self.ost(object.ost)?.ask(&self.wire, call).await.map(|_| ())
        };
        // Those of all mirrors: each is looked at by some reader.
        let all = core::iter::once(layout).chain(&layout.others);
        let all = all.flat_map(|of| spots(of).map(|at| (of.info_at(at), at)));
        let done = join(all.collect::<Vec<_>>().into_iter().map(one), IN_FLIGHT).await;
        done.into_iter().collect()
    }

    /// The layout of a file, or the default one of files in a directory, as the target has it; `None`:
    /// there is none.
    ///
    /// # Errors
    /// Bytes that are no layout, no answer.
    pub async fn striping(&self, node: &Node) -> Result<Option<Striping>, VisitError> {
        let bytes = match node.kind() {
            FileKind::File => node.layout.clone(),
            FileKind::Dir => {
                let mdt = self.mdt_of(node.fid).await?;
                let call = mdc::default_layout(&self.who, node.fid);
                let reply = mdt.ask(&self.wire, call).await?.reply;
                let (body, bytes) = Self::shown(mdt, &reply, 1)?;
                let has = body.valid.contains(lustre_wire::fid::Valid::DIREA);
                if has { bytes } else { Vec::new() }
            }
            _ => Vec::new(),
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let bad = |_| VisitError::Layout(super::LayoutError::Bad("it can't be read"));
        Striping::parse(&bytes).map(Some).map_err(bad)
    }

    /// Gives a directory the layout that new files in it get ([`Wish`](super::Wish)).
    ///
    /// # Errors
    /// `ENOTDIR`, a directory of another user, a layout that the server does not take, no answer.
    pub async fn set_striping(&self, dir: &Node, layout: &[u8]) -> Result<(), VisitError> {
        let name = dir.parent.2.as_slice();
        if dir.kind() != FileKind::Dir {
            return Err(VisitError::Path { path: name.to_vec(), errno: Errno::ENOTDIR });
        }
        let mdt = self.mdt_of(dir.fid).await?;
        let of = Parent { fid: dir.fid, gid: dir.body.gid, version: DIR_VERSION };
        let call = reint::set_default(&self.who, of, layout);
        mdt.ask(&self.wire, call).await.map_err(|e| e.at(name)).map(|_| ())
    }

    /// Waits until all that was changed is committed on the metadata targets that this visit has used.
    ///
    /// # Errors
    /// [`VisitError::ChangesLost`], once; no answer.
    pub async fn sync(&self) -> Result<(), VisitError> {
        for mdt in self.mdts.values().filter(|mdt| mdt.was_asked()) {
            mdt.ask(&self.wire, mdc::sync(&self.who, Fid::default())).await?;
        }
        self.check_losses()
    }

    /// The object targets of a file, by their indexes.
    ///
    /// # Errors
    /// Data that can't be read.
    pub fn objects_of(&self, node: &Node) -> Result<Vec<(u32, ObjectId)>, VisitError> {
        let layout = layout_of(&node.body, &node.layout)?;
        let objects = layout.objects().filter_map(|(.., object)| object);
        Ok(objects.map(|object| (object.ost, object.id)).collect())
    }
}
