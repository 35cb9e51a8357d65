//! An operation of a program by the means of a visitor, as a tool or a program with `lustre_rt::Mount`
//! does it: the directory is looked up by its path, then the name in it is used.

use std::collections::BTreeMap;

use lnet_types::Errno;
use lustre_client::visitor::{
    Attributes, CacheWire, Changes, Create, DirWish, FileCache, FileKind, Node, OpenFile, OpenHow,
    VisitError, Visitor, Whole, Wish,
};
use ptlrpc::CallError;

use super::op::{FileAnswer, FileAt, FileBytes, FileOp, FilePath, FileShown};
use super::seen::{Dump, Dumps, FileFailure, Found};

/// The longest part of a file that is read at a time.
const READ_MAX: u64 = 1 << 30;
/// Permissions of what is made.
pub(super) const FILE_MODE: u32 = 0o644;
pub(super) const DIR_MODE: u32 = 0o755;

/// How new files are spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Objects.
    pub(super) stripes: u32,
    /// The first bytes are on the metadata target.
    pub(super) on_mdt: bool,
}

/// Bytes of a stripe, and of the part of a file that is on the metadata target.
const STRIPE: u64 = 64 << 10;

/// A program's side of a visit: where it works, and the files that it has open.
pub(super) struct Desk<'a, W: CacheWire> {
    pub(super) visitor: &'a Visitor<W>,
    pub(super) base: Vec<u8>,
    pub(super) spread: Spread,
    pub(super) open: BTreeMap<u8, OpenFile>,
    /// The data of files goes through it.
    pub(super) cache: Option<FileCache<W::Cache>>,
}

/// Why an operation has failed, as a program sees it.
pub(super) fn failure(e: &VisitError) -> FileFailure {
    let broken = |errno: Errno| {
        // A store that is full or broken refuses in the middle; what was done before is done.
        matches!(errno, Errno::ENOSPC | Errno::EIO | Errno::EINPROGRESS | Errno::ENOMEM)
    };
    let said = match e {
        VisitError::Refused { errno, .. } | VisitError::Path { errno, .. } => !broken(*errno),
        VisitError::Layout(_) => true,
        _ => false,
    };
    let over = match e {
        VisitError::Unreachable { .. } => true,
        VisitError::Call { error, .. } => !matches!(error, CallError::Bulk),
        _ => false,
    };
    FileFailure { errno: e.errno(), text: e.to_string(), said, over }
}

const fn shown(kind: FileKind) -> FileShown {
    match kind {
        FileKind::Dir => FileShown::Dir,
        FileKind::Link => FileShown::Link,
        _ => FileShown::File,
    }
}

impl<W: CacheWire> Desk<'_, W> {
    fn path(&self, path: &FilePath) -> Vec<u8> {
        [self.base.clone(), path.bytes()].join(&b'/')
    }

    async fn find(&self, path: &FilePath, follow: bool) -> Result<Node, VisitError> {
        self.visitor.find(&self.path(path), follow).await
    }

    /// The directory that a path ends in, and the name there.
    async fn parent(&self, path: &FilePath) -> Result<(Node, Vec<u8>), VisitError> {
        let (dir, name) = path.split().unwrap_or_default();
        Ok((self.find(&dir, true).await?, FilePath::name(name)))
    }

    fn layout(&self) -> Vec<u8> {
        let Spread { stripes, on_mdt } = self.spread;
        let count = Some(stripes.cast_signed()).filter(|count| *count > 1);
        let on_mdt = on_mdt.then_some(STRIPE);
        let wish = Wish { count, size: count.map(|_| STRIPE), on_mdt, ..Wish::default() };
        // The numbers are such as a wish takes.
        wish.bytes().unwrap_or_default()
    }

    async fn make(
        &self,
        path: &FilePath,
        how: OpenHow,
        exclusive: bool,
    ) -> Result<OpenFile, VisitError> {
        let (dir, name) = self.parent(path).await?;
        let create =
            Create { mode: FILE_MODE, exclusive, layout: self.layout(), ..Create::default() };
        self.visitor.create(&dir, &name, how, &create).await
    }

    /// Makes a file as a copy does.
    async fn make_whole(
        &self,
        path: &FilePath,
        data: FileBytes,
        (atime, mtime): (i64, i64),
    ) -> Result<(), VisitError> {
        let (visitor, how) = (self.visitor, OpenHow { read: false, write: true, truncate: true });
        let (dir, name) = self.parent(path).await?;
        let whole = Some(Whole { size: data.len.into(), atime, mtime });
        let create = Create { mode: FILE_MODE, exclusive: false, layout: self.layout(), whole };
        let mut file = visitor.create(&dir, &name, how, &create).await?;
        file.keep_mtime(mtime);
        let written = match data.len {
            0 => Ok(()),
            _ => Self::write((visitor, None), &mut file, data, false).await,
        };
        match written {
            Ok(()) => {
                let (mode, atime, mtime) = (Some(FILE_MODE), Some(atime), Some(mtime));
                let kept = Changes { mode, atime, mtime, ..Changes::default() };
                visitor.close_with_changes(file, &kept).await
            }
            Err(e) => self.closed(file, Err(e)).await,
        }
    }

    async fn write(
        (visitor, cache): (&Visitor<W>, Option<&FileCache<W::Cache>>),
        file: &mut OpenFile,
        data: FileBytes,
        fsync: bool,
    ) -> Result<(), VisitError> {
        let offset = match data.at {
            FileAt::Offset(offset) => offset,
            FileAt::End => file.size(),
        };
        let end = offset.saturating_add(data.len.into());
        match cache {
            Some(cache) => cache.write(visitor, file, offset, data.bytes(offset)).await?,
            None => {
                visitor.prepare(file, offset, end).await?;
                visitor.write(file, offset, data.bytes(offset)).await?;
            }
        }
        match cache {
            _ if !fsync => Ok(()),
            Some(cache) => cache.fsync(visitor, file).await,
            None => visitor.fsync(file).await,
        }
    }

    async fn read(&self, file: &OpenFile) -> Result<Vec<u8>, VisitError> {
        let parts = match &self.cache {
            Some(cache) => cache.read(self.visitor, file, 0, READ_MAX).await?,
            None => self.visitor.read(file, 0, READ_MAX).await?,
        };
        let mut bytes = Vec::new();
        for part in parts {
            let end = bytes.len() + usize::try_from(part.len).unwrap_or(0);
            bytes.extend_from_slice(&part.bytes);
            bytes.resize(end, 0);
        }
        Ok(bytes)
    }

    /// Closes a file in any case; the first error counts.
    async fn closed<T>(
        &self,
        file: OpenFile,
        result: Result<T, VisitError>,
    ) -> Result<T, VisitError> {
        let closed = match &self.cache {
            Some(cache) => cache.close(self.visitor, file).await,
            None => self.visitor.close(file).await,
        };
        let value = result?;
        closed.map(|()| value)
    }

    async fn names(&self, dir: &Node) -> Result<Vec<Vec<u8>>, VisitError> {
        let mut open = self.visitor.open_dir(dir).await?;
        let mut names = Vec::new();
        loop {
            let some = self.visitor.read_dir(&mut open).await?;
            if some.is_empty() {
                break;
            }
            names.extend(some.into_iter().map(|name| name.name));
        }
        names.sort();
        Ok(names)
    }

    /// Carries an operation out.
    pub(super) async fn carry_out(&mut self, op: &FileOp) -> Result<FileAnswer, VisitError> {
        let visitor = self.visitor;
        let bad = || VisitError::Path { path: Vec::new(), errno: Errno::EBADF };
        match op {
            FileOp::Base => {
                let root = visitor.root_node().await?;
                match visitor.make_dir(&root, &self.base, DIR_MODE, b"").await {
                    Ok(_) => {}
                    Err(e) if e.errno() == Errno::EEXIST => {}
                    Err(e) => return Err(e),
                }
            }
            FileOp::Mkdir(path) => {
                let (dir, name) = self.parent(path).await?;
                visitor.make_dir(&dir, &name, DIR_MODE, b"").await?;
            }
            FileOp::MkdirOn(path, mdt) => {
                let (dir, name) = self.parent(path).await?;
                let wish = DirWish { mdts: vec![*mdt], ..DirWish::default() };
                visitor.make_dir(&dir, &name, DIR_MODE, &wish.bytes()).await?;
            }
            FileOp::Create(path) => {
                let file = self.make(path, OpenHow::WRITE, true).await?;
                visitor.close(file).await?;
            }
            FileOp::Write { path, create, truncate, data, fsync } => {
                let how = OpenHow { truncate: *truncate, ..OpenHow::WRITE };
                let mut file = match create {
                    true => self.make(path, how, false).await?,
                    false => visitor.open_for(&self.find(path, true).await?, how).await?,
                };
                let by = (visitor, self.cache.as_ref());
                let written = Self::write(by, &mut file, *data, *fsync).await;
                self.closed(file, written).await?;
            }
            FileOp::Whole { path, data, times } => self.make_whole(path, *data, *times).await?,
            FileOp::Read(path) => {
                let file = visitor.open_file(&self.find(path, true).await?).await?;
                let read = self.read(&file).await;
                return self.closed(file, read).await.map(FileAnswer::Bytes);
            }
            FileOp::Truncate(path, size) => {
                let node = self.find(path, true).await?;
                let mut file = visitor.open_for(&node, OpenHow::WRITE).await?;
                let cut = visitor.truncate(&mut file, *size).await;
                self.closed(file, cut).await?;
            }
            FileOp::Rename(from, to) => {
                let node = self.find(from, false).await?;
                let (dir, name) = self.parent(to).await?;
                visitor.rename(&node, &dir, &name).await?;
            }
            FileOp::Link(from, to) => {
                let node = self.find(from, false).await?;
                let (dir, name) = self.parent(to).await?;
                visitor.link(&node, &dir, &name).await?;
            }
            FileOp::Symlink(path, text) => {
                let (dir, name) = self.parent(path).await?;
                visitor.make_link(&dir, &name, &text.bytes()).await?;
            }
            FileOp::ReadLink(path) => {
                let node = self.find(path, false).await?;
                if node.kind() != FileKind::Link {
                    return Err(VisitError::Path { path: Vec::new(), errno: Errno::EINVAL });
                }
                return visitor.link_text(&node).await.map(FileAnswer::Text);
            }
            FileOp::Remove(path) => {
                let node = self.find(path, false).await?;
                visitor.remove(&node).await?;
            }
            FileOp::List(path) => {
                let node = self.find(path, true).await?;
                return self.names(&node).await.map(FileAnswer::Names);
            }
            FileOp::Stat(path) => {
                let node = self.find(path, false).await?;
                let Attributes { kind, mode, nlink, size, .. } = visitor.attributes(&node).await?;
                let size = if kind == FileKind::File { size } else { 0 };
                let (kind, mode) = (shown(kind), mode & 0o7777);
                return Ok(FileAnswer::Attributes { kind, mode, nlink, size });
            }
            FileOp::Chmod(path, mode) => {
                let node = self.find(path, true).await?;
                let changes = Changes { mode: Some(*mode), ..Changes::default() };
                visitor.change(&node, &changes).await?;
            }
            FileOp::Open(slot, path, create) => {
                let file = match create {
                    true => self.make(path, OpenHow::WRITE, false).await?,
                    false => {
                        visitor.open_for(&self.find(path, true).await?, OpenHow::WRITE).await?
                    }
                };
                self.open.insert(*slot, file);
            }
            FileOp::WriteOpen(slot, data, fsync) => {
                let file = self.open.get_mut(slot).ok_or_else(bad)?;
                Self::write((visitor, self.cache.as_ref()), file, *data, *fsync).await?;
            }
            FileOp::ReadOpen(slot) => {
                let file = self.open.get(slot).ok_or_else(bad)?;
                return self.read(file).await.map(FileAnswer::Bytes);
            }
            FileOp::Close(slot) => {
                let file = self.open.remove(slot).ok_or_else(bad)?;
                self.closed(file, Ok(())).await?;
            }
            FileOp::Sync => {
                for file in self.open.values() {
                    if let Some(cache) = &self.cache {
                        cache.fsync(visitor, file).await?;
                    }
                }
                visitor.sync().await?;
            }
            FileOp::Settle => visitor.settle().await?,
        }
        Ok(FileAnswer::Done)
    }

    /// Ends all opens, and the cache: whether that had lost something.
    pub(super) async fn close_all(&mut self) -> Result<(), VisitError> {
        while let Some((_, file)) = self.open.pop_first() {
            // The visit ends: what can't be closed goes with it.
            let _ = self.closed(file, Ok(())).await;
        }
        match self.cache.take() {
            Some(cache) => cache.end(self.visitor).await,
            None => Ok(()),
        }
    }

    /// Reads a directory and all that is in it.
    async fn dump(&self, dir: &Node) -> Result<Dump, VisitError> {
        let mut all = Dump::new();
        let mut open: Vec<(Vec<u8>, Node)> = vec![(Vec::new(), dir.clone())];
        while let Some((path, dir)) = open.pop() {
            for name in self.names(&dir).await? {
                let node = self.visitor.child(&dir, &name).await?;
                let found = self.visitor.attributes(&node).await?;
                let path = if path.is_empty() { name } else { [path.clone(), name].join(&b'/') };
                let bytes = match found.kind {
                    FileKind::File => {
                        let file = self.visitor.open_file(&node).await?;
                        let read = self.read(&file).await;
                        self.closed(file, read).await?
                    }
                    FileKind::Link => self.visitor.link_text(&node).await?,
                    _ => Vec::new(),
                };
                let Attributes { fid, kind, mode, nlink, size, mtime, .. } = found;
                let (fid, kind, mode) = ((fid.seq, fid.oid), shown(kind), mode & 0o7777);
                if kind == FileShown::Dir {
                    open.push((path.clone(), node));
                }
                all.insert(path, Found { fid, kind, mode, nlink, bytes, size, mtime });
            }
        }
        Ok(all)
    }

    /// Reads all directories of the root whose names begin so.
    pub(super) async fn dumps(&self, prefix: &str) -> Result<Dumps, FileFailure> {
        let root = self.visitor.root_node().await.map_err(|e| failure(&e))?;
        let mut all = Dumps::new();
        for name in self.names(&root).await.map_err(|e| failure(&e))? {
            let text = String::from_utf8_lossy(&name).into_owned();
            if !text.starts_with(prefix) {
                continue;
            }
            let dump = async { self.dump(&self.visitor.child(&root, &name).await?).await };
            match dump.await.map_err(|e| failure(&e)) {
                Err(e) if e.over => return Err(e),
                dump => _ = all.insert(text, dump),
            }
        }
        Ok(all)
    }
}
