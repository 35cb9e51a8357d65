//! The way in: files of this machine are made in a file system.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use lustre_rt::CallError;
use lustre_rt::visitor::{
    Attributes, Changes, Create, FileKind, Node, OpenFile, OpenHow, Place, VisitError, WHOLE_MAX,
    Whole, both, join,
};

use super::local::data_of;
use super::{
    AT_A_TIME, Copy, SMALL, at_a_time, chunks, each_while, has_name, is_hole, is_nameless,
};
use crate::fs::goal::{Goal, Spot};
use crate::fs::label::Label;
use crate::fs::sentences::{local, towards, why};

/// What a failure of the destination has led to.
const NOT_COPIED: &str = "not copied to";

/// All permissions.
const ALL: u32 = 0o7777;
/// Those of a file of another owner than the source's.
const FOREIGN: u32 = 0o1777;

/// Files with several names that were copied, by device and number: where the first copy is.
type Links = RefCell<BTreeMap<(u64, u64), Node>>;

/// A file of this machine, and what its copy is called.
struct Source {
    path: PathBuf,
    name: Vec<u8>,
    meta: Metadata,
    /// Where the copy is to be, to be shown.
    to: Label,
    /// It is in a directory that is copied with it, and gets its times in the end.
    within: bool,
}

/// A directory that is being copied.
struct Level {
    source: Source,
    /// Its copy.
    node: Node,
    /// What in it is copied one by one, the next one last.
    later: Vec<Source>,
}

impl Source {
    fn label(&self) -> Label {
        label(&self.path)
    }
}

fn label(path: &Path) -> Label {
    Label::new(path.as_os_str().as_bytes())
}

/// What a source is called; a link as the user calls it, whatever it leads to.
fn called(path: &Path) -> Vec<u8> {
    let real = || path.canonicalize().ok()?.file_name().map(ToOwned::to_owned);
    let name = path.file_name().map(ToOwned::to_owned).or_else(real);
    name.map(|name| name.as_bytes().to_vec()).unwrap_or_default()
}

impl Copy<'_> {
    /// Copies, and waits until what was copied is committed.
    pub(super) async fn put_all(&self, from: &[PathBuf], to: &Place) -> Result<()> {
        let copy = async {
            let put = self.put(from, to).await;
            self.commits.end();
            put
        };
        let (put, ()) = both(copy, self.commits.each(async || self.settle().await)).await;
        self.settle().await;
        put
    }

    /// Waits until what was copied so far is committed.
    async fn settle(&self) {
        let mark = self.tally.mark();
        match self.mount.settle().await {
            Ok(()) => self.tally.settled(mark),
            Err(e) => self.note_loss(&e),
        }
    }

    /// What was copied last may be lost: it is named. Other failures meet the end of the visit again.
    fn note_loss(&self, e: &VisitError) {
        if matches!(e, VisitError::ChangesLost { .. }) {
            self.tally.lost(e);
        }
    }

    async fn put(&self, from: &[PathBuf], to: &Place) -> Result<()> {
        let goal = Goal::find(self.mount, to, from.len() > 1).await?;
        let links = Links::default();
        for path in from {
            let (real, meta) = match self.named(path) {
                Ok(found) => found,
                Err(e) => {
                    self.tally.failed(&label(path), &local(&e));
                    continue;
                }
            };
            match self.spot(&goal, path, meta.is_dir()).await {
                Ok(Spot { dir, name, path: to }) => {
                    let source = Source { path: real, name, meta, to, within: false };
                    self.put_any(source, &dir, &links).await?;
                }
                Err(e) => {
                    let e = towards(e, NOT_COPIED, &goal.called(&called(path)));
                    self.failed(path, &e)?;
                }
            }
        }
        Ok(())
    }

    /// Where a source goes. The content of a directory goes to a spot without a name.
    async fn spot(&self, goal: &Goal, path: &Path, is_dir: bool) -> Result<Spot> {
        let has_no_name = is_dir && is_nameless(path.as_os_str().as_bytes());
        let kind = if is_dir { FileKind::Dir } else { FileKind::File };
        match goal {
            Goal::Into { path: to, .. } if self.taken.as_name && !is_dir => {
                bail!("destination '{to}': expected a name that no directory has")
            }
            Goal::Into { path, .. } if self.taken.as_name && has_name(path.bytes()) => {
                Goal::Name(path.clone()).of(self.mount, b"", kind).await
            }
            Goal::Into { dir, path, .. } if self.taken.as_name || has_no_name => {
                Ok(Spot { dir: Node::clone(dir), name: Vec::new(), path: path.clone() })
            }
            _ => goal.of(self.mount, &called(path), kind).await,
        }
    }

    /// A source that the user names, and what it has. A link is followed, unless trees are copied.
    fn named(&self, path: &Path) -> std::io::Result<(PathBuf, Metadata)> {
        let meta = path.symlink_metadata()?;
        if self.recursive || !meta.is_symlink() {
            return Ok((path.to_owned(), meta));
        }
        let real = path.canonicalize()?;
        let meta = real.symlink_metadata()?;
        Ok((real, meta))
    }

    fn failed(&self, path: &Path, e: &anyhow::Error) -> Result<()> {
        // What the user wants is no failure of a file.
        self.stop.check()?;
        self.note_eviction(e);
        self.tally.failed(&label(path), &why(e, path.as_os_str().as_bytes()));
        Ok(())
    }

    fn note_eviction(&self, e: &anyhow::Error) {
        let evicted = |e: &VisitError| {
            let call = matches!(e, VisitError::Call { error: CallError::Evicted, .. });
            call || matches!(e, VisitError::ChangesLost { .. })
        };
        if e.downcast_ref().is_some_and(evicted) {
            self.tally.evicted();
        }
    }

    async fn put_any(&self, source: Source, dir: &Node, links: &Links) -> Result<()> {
        self.stop.check()?;
        if source.meta.is_dir() {
            if !self.recursive {
                self.tally.failed(&source.label(), &"a directory: not copied without -r");
                return Ok(());
            }
            return Box::pin(self.put_tree(source, dir, links)).await;
        }
        let done = self.put_leaf(&source, dir, links).await;
        self.account(&source, done).await
    }

    /// What became of a source.
    async fn account(&self, source: &Source, done: Result<()>) -> Result<()> {
        match done {
            Ok(()) => {
                self.tally.finished(source.label());
                // Of what was finished before an eviction something may be lost, of what follows nothing.
                if let Err(e) = self.mount.check_losses() {
                    self.note_loss(&e);
                }
                self.commits.add(source.meta.size()).await;
                Ok(())
            }
            Err(e) => {
                self.note_eviction(&e);
                self.failed(&source.path, &towards(e, NOT_COPIED, &source.to))
            }
        }
    }

    /// Copies a directory with all that is in it, however deep that is: no level is one of the stack.
    async fn put_tree(&self, top: Source, dir: &Node, links: &Links) -> Result<()> {
        let mut way = Vec::new();
        match self.put_dir(&top, dir, links).await {
            Ok((node, later)) => way.push(Level { source: top, node, later }),
            Err(e) => self.account(&top, Err(e)).await?,
        }
        while let Some(level) = way.last_mut() {
            self.stop.check()?;
            match level.later.pop() {
                Some(source) if source.meta.is_dir() => {
                    match self.put_dir(&source, &level.node, links).await {
                        Ok((node, later)) => way.push(Level { source, node, later }),
                        Err(e) => self.account(&source, Err(e)).await?,
                    }
                }
                Some(source) => Box::pin(self.put_any(source, &level.node, links)).await?,
                None => {
                    let Some(level) = way.pop() else { break };
                    let done = self.finish(&level).await;
                    self.account(&level.source, done).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes a directory, and copies what of it can be copied beside each other: what is left, the next one last.
    async fn put_dir(
        &self,
        source: &Source,
        dir: &Node,
        links: &Links,
    ) -> Result<(Node, Vec<Source>)> {
        let Source { path, name, meta, to, .. } = source;
        let node = match name.as_slice() {
            b"" => dir.clone(),
            name => self.enter(dir, name, meta).await?,
        };
        self.tally.dir();
        let mut later = Vec::new();
        let mut small = Vec::new();
        for entry in std::fs::read_dir(path)? {
            self.stop.check()?;
            let entry = match entry {
                Ok(entry) => entry,
                // What was read before it is copied.
                Err(e) => {
                    self.tally.failed(&label(path), &local(&e));
                    continue;
                }
            };
            let (path, name) = (entry.path(), entry.file_name().as_bytes().to_vec());
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                Err(e) => {
                    self.tally.failed(&label(&path), &local(&e));
                    continue;
                }
            };
            let to = to.join(&name);
            let source = Source { path, name, meta, to, within: true };
            let is_small = !source.meta.is_dir() && source.meta.size() <= SMALL;
            // Files with several names go one by one, so that the first is there for the others.
            if is_small && source.meta.nlink() == 1 {
                small.push(source);
                if small.len() >= 8 * AT_A_TIME {
                    self.put_small(&mut small, &node, links).await?;
                }
            } else {
                later.push(source);
            }
        }
        self.put_small(&mut small, &node, links).await?;
        later.reverse();
        Ok((node, later))
    }

    /// A directory gets what else it is to have: what was made in it has changed its times.
    async fn finish(&self, Level { source, node, .. }: &Level) -> Result<()> {
        let Source { path, name, meta, .. } = source;
        if self.preserve {
            let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
            let no_follow = i32::try_from(flags.bits()).unwrap_or(0);
            let here = File::options().read(true).custom_flags(no_follow).open(path)?;
            self.preserve_in(&label(path), (here, meta), node).await?;
        }
        // A directory that gets the content of another one
        // stays what it is.
        if !name.is_empty() || self.preserve {
            self.mount.change(node, &kept(meta, ALL)).await?;
        }
        Ok(())
    }

    /// A directory in another one, made if there is none.
    async fn enter(&self, dir: &Node, name: &[u8], meta: &Metadata) -> Result<Node> {
        // Open for its owner until all is in it.
        let mode = meta.mode() & 0o7777 | 0o700;
        let (node, _) = self.mount.child_or_new_dir(dir, name, mode).await?;
        match node.kind() {
            FileKind::Dir => Ok(node),
            _ => bail!("expected a directory of this name in the destination"),
        }
    }

    async fn put_small(&self, files: &mut Vec<Source>, dir: &Node, links: &Links) -> Result<()> {
        let one = |source| self.put_any(source, dir, links);
        let done = join(files.drain(..).map(one), AT_A_TIME).await;
        done.into_iter().collect()
    }

    async fn put_leaf(&self, source: &Source, dir: &Node, links: &Links) -> Result<()> {
        let Source { name, meta, .. } = source;
        let kind = meta.file_type();
        if kind.is_symlink() {
            return Box::pin(self.put_link(source, dir)).await;
        }
        if !kind.is_file() {
            bail!("no file, directory or symbolic link: not copied");
        }
        let several = (meta.nlink() > 1).then_some((meta.dev(), meta.ino()));
        let first = several.and_then(|of| links.borrow().get(&of).cloned());
        if let Some(first) = first {
            match Box::pin(self.mount.link(&first, dir, name)).await {
                Ok(()) => {
                    self.tally.link();
                    return Ok(());
                }
                Err(e) if e.errno() == lnet_types::Errno::EEXIST => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.put_file(source, dir).await?;
        if let Some(of) = several {
            let node = Box::pin(self.mount.child(dir, name)).await?;
            links.borrow_mut().insert(of, node);
        }
        Ok(())
    }

    async fn put_link(&self, source: &Source, dir: &Node) -> Result<()> {
        let Source { path, name, meta, .. } = source;
        let text = std::fs::read_link(path)?;
        let text = text.as_os_str().as_bytes();
        let made = match self.mount.make_link(dir, name, text).await {
            Ok(made) => made,
            Err(e) if e.errno() == lnet_types::Errno::EEXIST => {
                let there = self.mount.child(dir, name).await?;
                if there.kind() == FileKind::Link && self.mount.link_text(&there).await? == text {
                    self.tally.skipped();
                    return Ok(());
                }
                if there.kind() == FileKind::Dir {
                    bail!("a directory of this name is in the destination");
                }
                self.mount.remove(&there).await?;
                self.mount.make_link(dir, name, text).await?
            }
            Err(e) => return Err(e.into()),
        };
        self.own_in(&label(path), meta, &made).await?;
        let times = Changes { mode: None, ..kept(meta, ALL) };
        self.mount.change(&made, &times).await?;
        self.tally.link();
        Ok(())
    }

    /// Whether the copy of a file is there from before.
    async fn is_there(
        &self,
        file: &File,
        meta: &Metadata,
        path: &Path,
        (dir, name): (&Node, &[u8]),
    ) -> Result<bool> {
        let node = match self.mount.child(dir, name).await {
            Ok(node) if node.kind() == FileKind::File => node,
            Ok(_) => return Ok(false),
            Err(e) if e.errno() == lnet_types::Errno::ENOENT => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let Attributes { size, mtime, ctime, .. } = self.mount.attributes(&node).await?;
        if size != meta.size() {
            return Ok(false);
        }
        let dated = mtime == meta.mtime();
        // A copy that was not finished may have the size. It has a time of its own, which is that of a source of the
        // same second alone.
        if dated && ctime > mtime && !self.verify {
            return Ok(true);
        }
        let there = self.mount.open_file(&node).await?;
        let same = self.is_same(file, meta.size(), &there).await;
        self.mount.close(there).await?;
        if !same? {
            return Ok(false);
        }
        if !dated {
            let owned = match self.preserve {
                true => self.preserve_in(&label(path), (file, meta), &node).await?,
                false => false,
            };
            self.mount.change(&node, &kept(meta, bits_of(owned))).await?;
        }
        Ok(true)
    }

    /// Compares a file of this machine with one in the file system.
    pub(super) async fn is_same(&self, file: &File, size: u64, there: &OpenFile) -> Result<bool> {
        let one = async |(at, len): (u64, u64)| {
            self.stop.check()?;
            let bytes = self.read(file, at, len)?;
            let parts = self.mount.read(there, at, len).await?;
            let mut rest = bytes.as_slice();
            for part in parts {
                let len = usize::try_from(part.len).unwrap_or(usize::MAX).min(rest.len());
                let (here, behind) = rest.split_at(len);
                let (front, zeros) = here.split_at(part.bytes.len().min(len));
                if front != part.bytes || zeros.iter().any(|byte| *byte != 0) {
                    return Ok(false);
                }
                rest = behind;
                self.mount.recycle(part.bytes);
            }
            let same = rest.is_empty();
            self.mount.recycle(bytes);
            Ok(same)
        };
        // Of two holes nothing is read.
        let parts = match is_hole(there) {
            true => data_of(file, &file.metadata()?),
            false => vec![(0, size)],
        };
        let all = parts.iter().flat_map(|(start, end)| chunks(*start, *end));
        Ok(there.size() == size && each_while(all, at_a_time(there), one).await?)
    }

    async fn put_file(&self, source: &Source, dir: &Node) -> Result<()> {
        let Source { path, name, meta, .. } = source;
        let _room = self.room.take(meta.size()).await;
        let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
        let file = File::options().read(true).custom_flags(no_follow).open(path)?;
        let meta = &file.metadata()?;
        if self.resume && Box::pin(self.is_there(&file, meta, path, (dir, name))).await? {
            self.tally.skipped();
            return Ok(());
        }
        let how = OpenHow { read: self.verify, write: true, truncate: true };
        let parts = data_of(&file, meta);
        let create = Create {
            mode: meta.mode() & FOREIGN,
            exclusive: false,
            layout: self.layout.clone(),
            whole: self.whole(source.within, meta, &parts),
        };
        let mut copy = self.mount.create(dir, name, how, &create).await?;
        let made = copy.created();
        // A copy that is not finished never has size and time of its source: it is not taken for a whole one.
        if create.whole.is_some() || meta.mtime() < seconds().saturating_sub(1) {
            copy.keep_mtime(meta.mtime());
        }
        let mut filled = self.fill(&file, meta.size(), &parts, &mut copy).await;
        if filled.is_ok() {
            filled = unchanged(&file, meta);
        }
        let mut bits = FOREIGN;
        if self.preserve && filled.is_ok() {
            let kept = async {
                let node = self.mount.child(dir, name).await?;
                self.preserve_in(&label(path), (&file, meta), &node).await
            };
            filled = Box::pin(kept).await.map(|owned| bits = bits_of(owned));
        }
        let closed = match &filled {
            Ok(()) => self.mount.close_with_changes(copy, &kept(meta, bits)).await,
            Err(_) => self.mount.close(copy).await,
        };
        let end = filled.and_then(|()| Ok(closed?));
        if end.is_err() && made {
            // A part of a file is worse than none.
            if let Ok(part) = Box::pin(self.mount.child(dir, name)).await {
                Box::pin(self.mount.remove(&part)).await?;
            }
        }
        end?;
        self.tally.file();
        Ok(())
    }

    /// Bytes of a file, which may not have become shorter.
    fn read(&self, file: &File, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = self.mount.buffer(usize::try_from(len)?);
        file.read_exact_at(&mut bytes, at).context("it has become shorter while it was copied")?;
        Ok(bytes)
    }

    /// What a copy is, if it can be made in one go: without owners, which are given to a file that is there,
    /// and without holes, so that one write brings all of it.
    fn whole(&self, within: bool, meta: &Metadata, parts: &[(u64, u64)]) -> Option<Whole> {
        let (size, atime, mtime) = (meta.size(), meta.atime(), meta.mtime());
        let dense = match parts {
            [] => size == 0,
            [part] => *part == (0, size),
            _ => false,
        };
        // A program that runs as its owner is none before it is whole.
        let plain = meta.mode() & 0o6000 == 0;
        let whole = within && dense && plain && size <= WHOLE_MAX && !self.preserve;
        whole.then_some(Whole { size, atime, mtime })
    }

    async fn fill(
        &self,
        file: &File,
        size: u64,
        parts: &[(u64, u64)],
        copy: &mut OpenFile,
    ) -> Result<()> {
        for (start, end) in parts {
            self.mount.prepare(copy, *start, *end).await?;
        }
        let to = &*copy;
        let one = async |(at, len): (u64, u64)| {
            self.stop.check()?;
            let bytes = self.read(file, at, len)?;
            self.mount.write(to, at, bytes).await?;
            self.tally.moved(len);
            Ok(true)
        };
        let all = parts.iter().flat_map(|(start, end)| chunks(*start, *end));
        each_while(all, at_a_time(to), one).await?;
        if copy.size() < size {
            Box::pin(self.mount.truncate(copy, size)).await?;
        }
        if self.verify && !Box::pin(self.is_same(file, size, copy)).await? {
            bail!("the copy differs from its source");
        }
        Ok(())
    }
}

/// Seconds since 1970.
fn seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(now).unwrap_or(i64::MAX)
}

/// A source that was written to in the meantime has no copy: its bytes are those of no moment. The time of the
/// last change of its attributes tells of a program that has set the other one back.
fn unchanged(file: &File, before: &Metadata) -> Result<()> {
    let after = file.metadata()?;
    let of = |meta: &Metadata| {
        let mtime = (meta.mtime(), meta.mtime_nsec());
        (meta.size(), mtime, (meta.ctime(), meta.ctime_nsec()))
    };
    if of(&after) != of(before) {
        bail!("it has changed while it was copied");
    }
    Ok(())
}

/// What of the permissions a file keeps. A program that runs as its owner is one of the source's owner: a copy that
/// belongs to another one does not run as that.
const fn bits_of(owned: bool) -> u32 {
    if owned { ALL } else { FOREIGN }
}

/// What a copy keeps of its source: these of the permissions, and times.
fn kept(meta: &Metadata, bits: u32) -> Changes {
    Changes {
        mode: Some(meta.mode() & bits),
        atime: Some(meta.atime()),
        mtime: Some(meta.mtime()),
        ..Changes::default()
    }
}
