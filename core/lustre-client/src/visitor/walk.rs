//! From a path to a file: a lookup for each name, links followed, and the names of a directory.

use lnet_types::{ByteOrder, Errno};
use lustre_wire::dir::PAGE_LEN;
use lustre_wire::fid::Valid;
use lustre_wire::mds::MdtBody;
use lustre_wire::striping::{DirHead, Striping};
use lustre_wire::{ConnectData, ConnectFlags, Fid};
use ptlrpc::Reply;

use super::attributes::Attributes;
use super::hash::Hash;
use super::intent::{OPEN_READ, Opened};
use super::join::join;
use super::listing::{Listing, Name};
use super::mdc;
use super::remote::Remote;
use super::{IN_FLIGHT, Moved, VisitError, Visitor, Wire};

/// Most symbolic links on the way of one path.
pub const LINKS_MAX: usize = 40;
/// Most stripes of a directory.
const DIR_STRIPES_MAX: usize = 2000;
/// Most bytes of a directory that are asked for at a time.
const PAGES: u32 = 1 << 20;
const PAGE: u32 = PAGE_LEN as u32;
/// Bits of a mode that say what a file is.
const KIND_MASK: u32 = 0o170_000;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Data.
    File,
    /// Names.
    Dir,
    /// A path.
    Link,
    /// A block device.
    Block,
    /// A character device.
    Char,
    /// A pipe.
    Fifo,
    /// A socket.
    Socket,
    /// Something else.
    Unknown,
}

impl FileKind {
    /// What the upper bits of a mode say.
    pub const fn of(mode: u32) -> Self {
        match mode & KIND_MASK {
            0o100_000 => Self::File,
            0o040_000 => Self::Dir,
            0o120_000 => Self::Link,
            0o060_000 => Self::Block,
            0o020_000 => Self::Char,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            _ => Self::Unknown,
        }
    }
}

/// A file as its metadata target has shown it, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its FID.
    pub fid: Fid,
    /// The directory in which it was found; the root is its own.
    pub(super) dir: Fid,
    /// That directory or its stripe that has the name, group of the directory, and name.
    pub(super) parent: (Fid, u32, Vec<u8>),
    /// Its attributes.
    pub(super) body: MdtBody,
    /// Its layout as bytes.
    pub(super) layout: Vec<u8>,
    /// Directories between the root and it, itself counted, if that is known.
    pub(super) depth: Option<u16>,
}

impl Node {
    /// What tells it from other files.
    pub const fn fid(&self) -> Fid {
        self.fid
    }

    /// What it is.
    pub const fn kind(&self) -> FileKind {
        FileKind::of(self.body.mode)
    }

    /// Its attributes, as the metadata target has them: of a file with objects, size and times may be
    /// others ([`Visitor::attributes`]).
    pub const fn body(&self) -> &MdtBody {
        &self.body
    }

    /// A name that a listing has shown, if that says what it is; its attributes are not known.
    pub(super) fn listed(dir: &Self, name: &Name) -> Option<Self> {
        let body = MdtBody { mode: name.kind?.into(), gid: u32::MAX, ..MdtBody::default() };
        let parent = (dir.stripe_of(&name.name)?, dir.body.gid, name.name.clone());
        let (fid, layout) = (name.fid, Vec::new());
        Some(Self { fid, dir: dir.fid, parent, body, layout, depth: dir.below() })
    }

    /// The depth of what is in it.
    pub(super) fn below(&self) -> Option<u16> {
        self.depth.map(|depth| depth.saturating_add(1))
    }

    /// The stripe that has a name by its hash, or the directory itself. `None`: its layout is not known,
    /// or changes.
    pub(super) fn stripe_of(&self, name: &[u8]) -> Option<Fid> {
        let bytes = self.layout.as_slice();
        if !self.body.valid.contains(Valid::MEA) || bytes.is_empty() {
            return Some(self.fid);
        }
        match Striping::parse(bytes) {
            Ok(Striping::Dir(head, stripes)) if !stripes.is_empty() => {
                let place = Hash::of(head.hash)?.stripe(name, stripes.len());
                stripes.get(place).copied().filter(|fid| *fid != Fid::default())
            }
            Ok(Striping::Foreign(..)) | Err(_) => None,
            Ok(_) => Some(self.fid),
        }
    }

    /// The FIDs that have its names: its stripes, if it is a striped directory (C-153).
    fn dir_stripes(&self) -> Result<Vec<Fid>, Errno> {
        Ok(self.dir_layout()?.map_or_else(|| vec![self.fid], |(_, stripes)| stripes))
    }

    /// The layout of a striped directory, and its stripes; `None`: it is not striped.
    pub(super) fn dir_layout(&self) -> Result<Option<(DirHead, Vec<Fid>)>, Errno> {
        let bytes = self.layout.as_slice();
        if !self.body.valid.contains(Valid::MEA) || bytes.is_empty() {
            return Ok(None);
        }
        match Striping::parse(bytes) {
            Ok(Striping::Dir(head, stripes)) if !stripes.is_empty() => {
                let stripes: Vec<Fid> =
                    stripes.into_iter().filter(|fid| *fid != Fid::default()).collect();
                if stripes.len() > DIR_STRIPES_MAX {
                    return Err(Errno::EPROTO);
                }
                Ok(Some((head, stripes)))
            }
            Ok(Striping::Foreign(..)) => Err(Errno::ENODATA),
            // The default for files in it, or for directories.
            Ok(_) => Ok(None),
            Err(_) => Err(Errno::EPROTO),
        }
    }
}

/// Bytes of a directory that a target moves at a time (C-8, C-143).
fn pages_of(granted: &ConnectData) -> u32 {
    match granted.flags.contains(ConnectFlags::BRW_SIZE) {
        true => (granted.brw_size / PAGE * PAGE).clamp(PAGE, PAGES),
        false => PAGE,
    }
}

impl<W: Wire> Visitor<W> {
    /// Attributes and layout in a reply, whose metadata body has this index.
    pub(super) fn shown(
        remote: &Remote<W::Link>,
        reply: &Reply,
        index: usize,
    ) -> Result<(MdtBody, Vec<u8>), VisitError> {
        let msg = reply.msg().map_err(|_| remote.bad("expected a message"))?;
        let body: MdtBody =
            msg.get(index).map_err(|_| remote.bad("expected attributes of a file"))?;
        let layout = msg.buffer(index + 1).unwrap_or_default();
        let len = (body.eadatasize as usize).min(layout.len());
        Ok((body, layout.get(..len).unwrap_or_default().to_vec()))
    }

    /// The file of a FID that was found by a name. Where the layout of the directory does not say which stripe
    /// has the name, it is the file that has the name now: changes of the name need its stripe (C-159, C-162).
    ///
    /// # Errors
    /// `ENOENT`, no answer.
    pub async fn node(&self, fid: Fid, parent: &Node, name: &[u8]) -> Result<Node, VisitError> {
        let Some(dir) = parent.stripe_of(name) else {
            return Box::pin(self.lookup(parent, name, name)).await;
        };
        let at = (dir, parent.body.gid, name.to_vec());
        self.fetch(fid, parent.fid, at, parent.below()).await
    }

    pub(super) async fn fetch(
        &self,
        fid: Fid,
        dir: Fid,
        parent: (Fid, u32, Vec<u8>),
        depth: Option<u16>,
    ) -> Result<Node, VisitError> {
        let mdt = self.mdt_of(fid).await?;
        let call = mdc::attributes(&self.who, fid, parent.1);
        let reply = mdt.ask(&self.wire, call).await?.reply;
        let (body, layout) = Self::shown(mdt, &reply, 1)?;
        Ok(Node { fid, dir, parent, body, layout, depth })
    }

    /// The root.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn root_node(&self) -> Result<Node, VisitError> {
        self.fetch(self.root, self.root, (self.root, 0, Vec::new()), Some(0)).await
    }

    /// A file as it is by now; its name counts no more.
    pub(super) async fn node_of(&self, fid: Fid) -> Result<Node, VisitError> {
        self.fetch(fid, fid, (fid, u32::MAX, Vec::new()), None).await
    }

    /// A name in a directory.
    ///
    /// # Errors
    /// `ENOENT`, a directory that may not be searched, no answer.
    pub async fn child(&self, dir: &Node, name: &[u8]) -> Result<Node, VisitError> {
        self.lookup(dir, name, name).await
    }

    /// A name in a directory. Of a striped directory the stripe by the hash of the name is asked, or each in
    /// turn, if its layout changes or its hash is not known (C-154, C-162). A name that is missing there is
    /// looked for once more if the layout is another one by now: a visitor has no lock on it.
    pub(super) async fn lookup(
        &self,
        dir: &Node,
        name: &[u8],
        path: &[u8],
    ) -> Result<Node, VisitError> {
        let failed = |errno| VisitError::Path { path: path.to_vec(), errno };
        if name.len() > 255 {
            return Err(failed(Errno::ENAMETOOLONG));
        }
        if dir.kind() != FileKind::Dir {
            return Err(failed(Errno::ENOTDIR));
        }
        let mut found = self.lookup_in(dir, name, path).await?;
        if found.is_none()
            && dir.dir_layout().map_err(failed)?.is_some()
            && let Some(dir) = self.laid_anew(dir).await
        {
            found = self.lookup_in(&dir, name, path).await?;
        }
        found.ok_or_else(|| failed(Errno::ENOENT))
    }

    /// A name in a directory whose layout is known; `None`: it is not where that says.
    pub(super) async fn lookup_in(
        &self,
        dir: &Node,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<Node>, VisitError> {
        let failed = |errno| VisitError::Path { path: path.to_vec(), errno };
        let gid = dir.body.gid;
        let stripes = match dir.stripe_of(name) {
            Some(stripe) => vec![stripe],
            None => dir.dir_stripes().map_err(failed)?,
        };
        for stripe in stripes {
            let mdt = self.mdt_of(stripe).await?;
            let call = mdc::lookup(&self.who, stripe, gid, name);
            let reply = match mdt.ask(&self.wire, call).await {
                Err(VisitError::Refused { errno: Errno::ENOENT, .. }) => continue,
                end => end.map_err(|e| e.at(path))?.reply,
            };
            let (body, layout) = Self::shown(mdt, &reply, 1)?;
            let (fid, parent) = (body.fid1, (stripe, gid, name.to_vec()));
            // Its attributes are on another target (C-165).
            if body.valid.contains(Valid::MDS) {
                let found = self.fetch(fid, dir.fid, parent, dir.below()).await;
                return found.map(Some).map_err(|e| e.at(path));
            }
            self.found_at(mdt, fid);
            return Ok(Some(Node { fid, dir: dir.fid, parent, body, layout, depth: dir.below() }));
        }
        Ok(None)
    }

    /// The file at a path from the root on. Symbolic links on the way are followed; one at its end if
    /// `follow` says so, or a slash stands behind it: that is the directory. No path leads above the root.
    ///
    /// # Errors
    /// [`VisitError::Path`] for a name that does not exist or may not be looked up, a link to a path
    /// that begins with a slash, as it is one of a node that has mounted the file system, no answer.
    pub async fn find(&self, path: &[u8], follow: bool) -> Result<Node, VisitError> {
        let must_be_dir = path.ends_with(b"/");
        let follow = follow || must_be_dir;
        let mut way = vec![self.root_node().await?];
        let mut names: Vec<Vec<u8>> = split(path);
        names.reverse();
        let mut done: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(name) = names.pop() {
            if name == b".." {
                if way.len() > 1 {
                    way.pop();
                    done.pop();
                }
                continue;
            }
            let Some(dir) = way.last() else { break };
            let mut here = done.clone();
            here.push(name.clone());
            let shown = joined(&here);
            let node = self.lookup(dir, &name, &shown).await?;
            if node.kind() == FileKind::Link && (follow || !names.is_empty()) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(VisitError::Path { path: shown, errno: Errno::ELOOP });
                }
                let to = self.link_text(&node).await?;
                if to.starts_with(b"/") {
                    return Err(VisitError::Outside { path: shown, to });
                }
                names.extend(split(&to).into_iter().rev());
                continue;
            }
            done.push(name);
            way.push(node);
        }
        let end = way.pop();
        match end {
            Some(node) if must_be_dir && node.kind() != FileKind::Dir => {
                Err(VisitError::Path { path: joined(&done), errno: Errno::ENOTDIR })
            }
            Some(node) => Ok(node),
            None => self.root_node().await,
        }
    }

    /// The directory and the name of a file that is to be made at a path, unless it is there. A symbolic link at
    /// the end of the path is followed, also one to a name that does not exist.
    ///
    /// # Errors
    /// As [`Visitor::find`] for the directory; `EISDIR` for a path that ends with no name.
    pub async fn find_place(&self, path: &[u8]) -> Result<(Node, Vec<u8>), VisitError> {
        let mut path = path.to_vec();
        for _ in 0..=LINKS_MAX {
            let names = split(&path);
            let last =
                names.split_last().filter(|(name, _)| *name != b".." && !path.ends_with(b"/"));
            let Some((name, above)) = last else {
                return Err(VisitError::Path { path, errno: Errno::EISDIR });
            };
            let above = joined(above);
            let dir = self.find(&above, true).await?;
            let node = match self.lookup(&dir, name, &path).await {
                Ok(node) if node.kind() == FileKind::Link => node,
                Err(e) if e.errno() != Errno::ENOENT => return Err(e),
                _ => return Ok((dir, name.clone())),
            };
            let to = self.link_text(&node).await?;
            if to.starts_with(b"/") {
                return Err(VisitError::Outside { path, to });
            }
            path = [above.as_slice(), b"/", to.as_slice()].concat();
        }
        Err(VisitError::Path { path, errno: Errno::ELOOP })
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn link_text(&self, node: &Node) -> Result<Vec<u8>, VisitError> {
        let mdt = self.mdt_of(node.fid).await?;
        let call = mdc::link_text(&self.who, node.fid);
        let reply = mdt.ask(&self.wire, call).await?.reply;
        let (body, mut text) = Self::shown(mdt, &reply, 1)?;
        if !body.valid.contains(Valid::LINKNAME) {
            return Err(mdt.bad("expected the text of a link"));
        }
        if let Some(end) = text.iter().position(|byte| *byte == 0) {
            text.truncate(end);
        }
        Ok(text)
    }

    /// Begins to read a directory. That an ordinary user may read it is asked by an open, as the
    /// target checks it nowhere else (C-248).
    ///
    /// # Errors
    /// It is no directory, may not be read, or there is no answer.
    pub async fn open_dir(&self, node: &Node) -> Result<OpenDir, VisitError> {
        let failed = |errno| VisitError::Path { path: node.parent.2.clone(), errno };
        if node.kind() != FileKind::Dir {
            return Err(failed(Errno::ENOTDIR));
        }
        if !self.who.is_root() {
            let found = self.open(node, Opened::Dir(node.fid), OPEN_READ).await?;
            self.close_found(&found).await?;
        }
        let mut stripes = node.dir_stripes().map_err(failed)?;
        stripes.reverse();
        Ok(OpenDir { stripes, listing: Listing::default() })
    }

    /// More names of a directory; none at its end. What changes meanwhile may be there or not, all else
    /// comes once.
    ///
    /// # Errors
    /// No answer, a refusal, pages that are none; [`OpenDir::skip`] goes on behind them.
    pub async fn read_dir(&self, dir: &mut OpenDir) -> Result<Vec<Name>, VisitError> {
        while let Some(stripe) = dir.stripes.last().copied() {
            let Some(hash) = dir.listing.next() else {
                dir.stripes.pop();
                dir.listing = Listing::default();
                continue;
            };
            let mdt = self.mdt_of(stripe).await?;
            let room = pages_of(&self.terms_of(mdt).await?);
            let call = mdc::pages(&self.who, stripe, hash, room);
            let answer = mdt.ask_with(&self.wire, call, Moved::Read(room)).await;
            let bytes = answer.map_err(|(e, _)| e)?.bytes;
            let names = dir.listing.take(ByteOrder::Little, &bytes);
            let names = names.map_err(|error| VisitError::Listing { dir: stripe, error })?;
            self.wire.recycle(bytes);
            if !names.is_empty() {
                return Ok(names);
            }
        }
        Ok(Vec::new())
    }
}

impl<W: Wire> Visitor<W> {
    /// What each of these names of a directory has, `None` for one that is gone by now.
    pub async fn list(
        &self,
        dir: &Node,
        names: &[Name],
    ) -> Vec<Result<Option<Attributes>, VisitError>> {
        let one = |name| async move {
            let name: &Name = name;
            let found = async {
                let node = self.node(name.fid, dir, &name.name).await?;
                self.attributes(&node).await
            };
            match found.await {
                Ok(attributes) => Ok(Some(attributes)),
                Err(
                    VisitError::Refused { errno: Errno::ENOENT, .. }
                    | VisitError::Path { errno: Errno::ENOENT, .. },
                ) => Ok(None),
                Err(e) => Err(e),
            }
        };
        join(names.iter().map(one), IN_FLIGHT).await
    }
}

/// A directory that is being read.
#[derive(Clone, Debug)]
pub struct OpenDir {
    /// Stripes to be read, the next one last.
    stripes: Vec<Fid>,
    listing: Listing,
}

impl OpenDir {
    /// Goes on behind what could not be read: the names that the same stripe still has are missing then.
    pub fn skip(&mut self) {
        self.stripes.pop();
        self.listing = Listing::default();
    }
}

/// The names of a path.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
}

/// A path of names.
fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    names.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect()
}

#[cfg(test)]
mod tests {
    use lustre_wire::striping::Magic;

    use super::*;

    #[test]
    fn c143_no_more_bytes_of_a_directory_are_asked_for_than_the_target_moves() {
        let granted = |flags, brw_size| ConnectData { flags, brw_size, ..ConnectData::default() };
        let sized = ConnectFlags::BRW_SIZE;
        for (flags, brw_size, pages) in [
            (sized, 1 << 20, 1 << 20),
            (sized, 4 << 20, 1 << 20),
            (sized, 65_536 + 7, 65_536),
            (sized, 0, 4096),
            (ConnectFlags::empty(), 1 << 20, 4096),
        ] {
            assert_eq!(pages_of(&granted(flags, brw_size)), pages, "{brw_size}");
        }
    }

    const fn fid(seq: u64, oid: u32) -> Fid {
        Fid { seq, oid, ver: 0 }
    }

    /// Directory `st` of the recording dne-2-mdt: two stripes, FNV-1a.
    fn striped() -> Node {
        let head = DirHead { magic: Magic::DIR, stripe_count: 2, hash: 2, ..DirHead::default() };
        let stripes = vec![fid(0x2_0000_0400, 4), fid(0x2_4000_0401, 4)];
        let dir = fid(0x2_0000_0404, 0x1b);
        let valid = Valid::DIREA | Valid::MEA;
        let body = MdtBody { fid1: dir, mode: 0o040_755, valid, ..MdtBody::default() };
        let parent = (fid(0x2_0000_0404, 1), 0, b"st".to_vec());
        let layout = Striping::Dir(head, stripes).to_bytes();
        Node { fid: dir, dir, parent, body, layout, depth: Some(2) }
    }

    #[test]
    fn directory_whose_stripe_can_not_be_read_is_read_on_with_the_next_stripe() {
        let mut stripes = striped().dir_stripes().unwrap();
        stripes.reverse();
        let mut dir = OpenDir { stripes, listing: Listing::default() };
        dir.skip();
        assert_eq!(dir.stripes, [fid(0x2_4000_0401, 4)]);
        assert_eq!(dir.listing.next(), Some(0));
        dir.skip();
        dir.skip();
        assert_eq!(dir.stripes, []);
    }

    #[test]
    fn listed_file_of_a_striped_directory_is_opened_in_the_stripe_of_its_name() {
        let dir = striped();
        let stripes = [fid(0x2_0000_0400, 4), fid(0x2_4000_0401, 4)];
        assert_eq!(dir.dir_stripes(), Ok(stripes.to_vec()), "each of them is listed");
        // As recorded: name, the file, and the target of its stripe.
        for (name, file, target) in [
            ("n1", fid(0x2_0000_0404, 0x1c), 0),
            ("n2", fid(0x2_4000_0403, 0x8), 1),
            ("n3", fid(0x2_0000_0404, 0x1d), 0),
            ("n4", fid(0x2_4000_0403, 0x9), 1),
            ("n7", fid(0x2_0000_0404, 0x1f), 0),
            ("n8", fid(0x2_4000_0403, 0xb), 1),
        ] {
            let listed = Name { name: name.into(), fid: file, kind: Some(0o100_000) };
            let node = Node::listed(&dir, &listed).unwrap();
            assert_eq!((node.fid, node.kind()), (file, FileKind::File));
            assert_eq!(node.parent.0, stripes[target], "{name}");
            assert_eq!(node.parent.2, name.as_bytes());
        }
        // Without a hash that is known there is no stripe to be named.
        let mut other = striped();
        other.layout[12] = 9;
        let name = Name { name: b"n1".to_vec(), fid: fid(1, 1), kind: Some(0o100_000) };
        assert_eq!(Node::listed(&other, &name), None);
        // A directory that is not striped is named itself.
        let plain = Node { layout: Vec::new(), ..striped() };
        assert_eq!(Node::listed(&plain, &name).unwrap().parent.0, plain.fid);
    }
}
