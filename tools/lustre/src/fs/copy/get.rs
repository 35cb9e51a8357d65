//! The way out: files of a file system are made on this machine.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use lustre_rt::Fid;
use lustre_rt::visitor::{Attributes, FileKind, Node, OpenFile, Place, VisitError, join};
use rustix::fs::FileType;

use super::local::{Dir, dress, not_replaced};
use super::{AT_A_TIME, Copy, SMALL, at_a_time, chunks, each_while, is_hole, is_nameless};
use crate::fs::label::Label;
use crate::fs::sentences::{local, towards_here, why};
use crate::fs::{last_name, reading, show};

/// Files with several names that were copied: where the first copy is.
type Links = RefCell<BTreeMap<(u64, u32), (Dir, Vec<u8>)>>;

/// A file in [`Links`].
const fn key(fid: Fid) -> (u64, u32) {
    (fid.seq, fid.oid)
}

/// A directory that is being copied.
struct Level {
    node: Node,
    /// Its copy.
    made: Dir,
    /// What it is called, if it has a name here.
    name: Vec<u8>,
    path: Label,
    /// What in it is copied one by one, and what that is called, the next one last.
    later: Vec<(Node, Vec<u8>, Label)>,
}

/// A copy on its way out.
struct Out<'a> {
    copy: &'a Copy<'a>,
    links: Links,
    /// Names of files on their way that were given.
    names: Cell<u64>,
}

impl Copy<'_> {
    /// Copies places. A link that the user names is followed, unless trees are copied.
    pub(super) async fn get(&self, from: &[Place], to: &Path) -> Result<()> {
        let out = Out { copy: self, links: Links::default(), names: Cell::new(0) };
        let into = to.is_dir();
        if !into && from.len() > 1 {
            bail!("destination '{}': expected a directory for several sources", to.display());
        }
        let mut given = BTreeSet::new();
        for place in from {
            let node = match self.mount.find(&place.path, !self.recursive).await {
                Ok(node) => node,
                Err(e) => {
                    let label = Label::new(place.path.clone());
                    self.tally.failed(&label, &why(&e.into(), label.bytes()));
                    continue;
                }
            };
            let is_dir = node.kind() == FileKind::Dir;
            let named = self.taken.as_name && is_dir && to.file_name().is_some();
            let is_itself = into && (self.taken.as_name || is_dir && is_nameless(&place.path));
            let whereto = match is_itself && !named {
                true => itself(to, is_dir),
                false => destination(to, into && !named, place, node.kind()),
            };
            let whereto = whereto.and_then(|(dir, name)| {
                // A second directory of a name is copied into the first one.
                if !given.insert(name.clone()) && !is_dir {
                    bail!("a source before it has been given the name {}", show::name(&name));
                }
                let opened = Dir::open(&dir).with_context(|| dir.display().to_string())?;
                Ok((opened, name))
            });
            let label = Label::new(place.path.clone());
            match whereto {
                Ok((dir, name)) => out.any(&node, &dir, &name, &label).await?,
                Err(e) => out.failed(&label, &e)?,
            }
        }
        Ok(())
    }
}

/// The content of a directory goes to the destination, without a name there.
fn itself(to: &Path, is_dir: bool) -> Result<(PathBuf, Vec<u8>)> {
    if !is_dir {
        bail!("destination '{}': expected a name that no directory has", to.display());
    }
    Ok((to.to_owned(), Vec::new()))
}

/// The directory of a copy, and its name there.
fn destination(to: &Path, into: bool, place: &Place, kind: FileKind) -> Result<(PathBuf, Vec<u8>)> {
    if into {
        let name = last_name(&place.path);
        let name = if name.is_empty() { place.fsname.as_bytes() } else { name };
        if is_nameless(name) {
            bail!("expected a path that ends with a name");
        }
        return Ok((to.to_owned(), name.to_vec()));
    }
    let said = to.as_os_str().as_bytes();
    if kind != FileKind::Dir && (said.ends_with(b"/") || said.ends_with(b"/.")) {
        bail!("destination '{}': expected a directory", to.display());
    }
    let real = if kind == FileKind::File { behind(to)? } else { to.to_owned() };
    let to = real.as_path();
    let name = to
        .file_name()
        .ok_or_else(|| anyhow!("destination '{}': expected a path with a name", to.display()))?;
    let dir =
        to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    Ok((dir.to_owned(), name.as_bytes().to_vec()))
}

/// The file of a name that the user has given: a symbolic link is written through, as by cp.
fn behind(to: &Path) -> Result<PathBuf> {
    if !to.is_symlink() {
        return Ok(to.to_owned());
    }
    let shown = to.display();
    let real = to.metadata().and_then(|meta| match FileType::from_raw_mode(meta.mode()) {
        FileType::RegularFile => to.canonicalize(),
        kind => Err(not_replaced(kind)),
    });
    real.map_err(|e| anyhow!("destination '{shown}': what it leads to: {}", local(&e)))
}

impl Out<'_> {
    fn failed(&self, path: &Label, e: &anyhow::Error) -> Result<()> {
        self.copy.stop.check()?;
        self.copy.tally.failed(path, &why(e, path.bytes()));
        Ok(())
    }

    /// The same of a copy that has a name here: what this machine has refused concerns that.
    fn not_copied(&self, path: &Label, dir: &Dir, name: &[u8], e: anyhow::Error) -> Result<()> {
        self.failed(path, &towards_here(e, "not copied to", &dir.path().join(name)))
    }

    async fn any(&self, node: &Node, dir: &Dir, name: &[u8], path: &Label) -> Result<()> {
        self.copy.stop.check()?;
        let done = match node.kind() {
            FileKind::Dir if !self.copy.recursive => {
                self.copy.tally.failed(path, &"a directory: not copied without -r");
                return Ok(());
            }
            FileKind::Dir => Box::pin(self.tree(node, dir, name, path)).await,
            FileKind::File => self.file(node, dir, name, path).await,
            FileKind::Link => self.link(node, dir, name, path).await,
            _ => Err(anyhow!("no file, directory or symbolic link: not copied")),
        };
        match done {
            Ok(()) => Ok(()),
            Err(e) => self.not_copied(path, dir, name, e),
        }
    }

    /// Copies a directory with all that is in it. How deep that is, the server says: no level is one of the stack.
    async fn tree(&self, node: &Node, dir: &Dir, name: &[u8], path: &Label) -> Result<()> {
        let mut way = vec![self.dir(node.clone(), dir, name, path).await?];
        while let Some(level) = way.last_mut() {
            self.copy.stop.check()?;
            if let Some((node, name, path)) = level.later.pop() {
                if node.kind() != FileKind::Dir {
                    self.any(&node, &level.made, &name, &path).await?;
                    continue;
                }
                match self.dir(node, &level.made, &name, &path).await {
                    Ok(below) => way.push(below),
                    Err(e) => self.not_copied(&path, &level.made, &name, e)?,
                }
            } else if let Some(level) = way.pop() {
                match (self.finish(&level).await, way.last()) {
                    (Err(e), Some(above)) => {
                        self.not_copied(&level.path, &above.made, &level.name, e)?;
                    }
                    (ended, _) => ended?,
                }
            }
        }
        Ok(())
    }

    /// Makes a directory, and copies what of it can be copied beside each other.
    async fn dir(&self, node: Node, dir: &Dir, name: &[u8], path: &Label) -> Result<Level> {
        let made = if name.is_empty() { dir.again()? } else { dir.enter(name)? };
        self.copy.tally.dir();
        let mount = self.copy.mount;
        let mut opened = mount.open_dir(&node).await?;
        let mut later = Vec::new();
        loop {
            self.copy.stop.check()?;
            let failed = |e: VisitError| self.failed(path, &e.into());
            let names = reading::names(mount, &mut opened, failed).await?;
            if names.is_empty() {
                break;
            }
            let one = |name| {
                let name: &lustre_rt::visitor::Name = name;
                let (node, made) = (&node, &made);
                async move {
                    let path = path.join(&name.name);
                    self.copy.stop.check()?;
                    // What else is kept is asked of a file that was looked at.
                    if !self.copy.preserve
                        && let Some(file) = mount.open_listed(node, name).await
                    {
                        let Attributes { nlink, size, .. } = *file.attributes();
                        let small = nlink == 1 && size <= SMALL;
                        let done = match small {
                            true => self.opened(None, file, made, (&name.name, &path)).await,
                            false => mount.close(file).await.map_err(Into::into),
                        };
                        let has_failed = done.is_err();
                        if let Err(e) = done {
                            self.not_copied(&path, made, &name.name, e)?;
                        }
                        if small || has_failed {
                            return Ok(None);
                        }
                    }
                    let found = match Box::pin(mount.node(name.fid, node, &name.name)).await {
                        Ok(found) => found,
                        // It was removed after it had been listed.
                        Err(e) if e.errno() == lnet_types::Errno::ENOENT => return Ok(None),
                        Err(e) => {
                            self.failed(&path, &e.into())?;
                            return Ok(None);
                        }
                    };
                    let body = found.body();
                    let small = found.kind() == FileKind::Link
                        || found.kind() == FileKind::File && body.nlink == 1 && body.size <= SMALL;
                    if small {
                        Box::pin(self.any(&found, made, &name.name, &path)).await?;
                        return Ok(None);
                    }
                    Ok::<_, anyhow::Error>(Some((found, name.name.clone(), path)))
                }
            };
            for left in join(names.iter().map(one), AT_A_TIME).await {
                later.extend(left?);
            }
        }
        // The last one is next.
        later.reverse();
        Ok(Level { node, made, name: name.to_vec(), path: path.clone(), later })
    }

    /// A directory gets what else it is to have: what was made in it has changed its times.
    async fn finish(&self, Level { node, made, name, path, .. }: &Level) -> Result<()> {
        self.copy.preserve_out(path, node, made).await?;
        if !name.is_empty() || self.copy.preserve {
            let body = node.body();
            made.finish(body.mode, body.atime, body.mtime)?;
        }
        Ok(())
    }

    async fn link(&self, node: &Node, dir: &Dir, name: &[u8], path: &Label) -> Result<()> {
        dir.free(name, true)?;
        let text = self.copy.mount.link_text(node).await?;
        dir.symlink(name, &text)?;
        self.copy.link_out(path, node, dir, name);
        let body = node.body();
        dir.date(name, body.atime, body.mtime)?;
        self.copy.tally.link();
        Ok(())
    }

    async fn file(&self, node: &Node, dir: &Dir, name: &[u8], path: &Label) -> Result<()> {
        let several = node.body().nlink > 1;
        if several {
            let links = self.links.borrow();
            if let Some((first, called)) = links.get(&key(node.fid)) {
                dir.free(name, false)?;
                dir.link(name, first, called)?;
                self.copy.tally.link();
                return Ok(());
            }
        }
        let mount = self.copy.mount;
        self.opened(Some(node), mount.open_file(node).await?, dir, (name, path)).await?;
        if several {
            self.links.borrow_mut().insert(key(node.fid), (dir.again()?, name.to_vec()));
        }
        Ok(())
    }

    /// Copies a file that is open, and closes it.
    async fn opened(
        &self,
        node: Option<&Node>,
        file: OpenFile,
        dir: &Dir,
        called: (&[u8], &Label),
    ) -> Result<()> {
        let copied = self.fill(node, &file, dir, called).await;
        // What was opened is closed, whatever became of it.
        let closed = self.copy.mount.close(file).await;
        copied?;
        Ok(closed?)
    }

    /// Whether the copy of a file is there from before. One that has the bytes gets what else it is to have.
    async fn is_there(
        &self,
        node: Option<&Node>,
        file: &OpenFile,
        dir: &Dir,
        (name, path): (&[u8], &Label),
    ) -> Result<bool> {
        let Attributes { size, mode, atime, mtime, .. } = *file.attributes();
        let Some((there, time)) = dir.there(name) else { return Ok(false) };
        if there == size && time == mtime && !self.copy.verify {
            return Ok(true);
        }
        if there != size {
            return Ok(false);
        }
        let here = dir.read(name)?;
        if !self.copy.is_same(&here, size, file).await? {
            return Ok(false);
        }
        if time != mtime {
            if let Some(node) = node {
                Box::pin(self.copy.preserve_out(path, node, &here)).await?;
            }
            dress(&here, mode, (atime, mtime))?;
        }
        Ok(true)
    }

    async fn fill(
        &self,
        node: Option<&Node>,
        file: &OpenFile,
        dir: &Dir,
        (name, path): (&[u8], &Label),
    ) -> Result<()> {
        let Copy { mount, stop, tally, resume, verify, room, .. } = self.copy;
        let Attributes { size, mode, atime, mtime, .. } = *file.attributes();
        let _room = room.take(size).await;
        if *resume && Box::pin(self.is_there(node, file, dir, (name, path))).await? {
            tally.skipped();
            return Ok(());
        }
        dir.free(name, false)?;
        let unique = self.names.get();
        self.names.set(unique + 1);
        let new = dir.make(name, unique)?;
        let one = async |(at, len): (u64, u64)| {
            stop.check()?;
            for part in mount.read(file, at, len).await? {
                new.write(part.offset, &part.bytes)?;
                mount.recycle(part.bytes);
            }
            tally.moved(len);
            Ok(true)
        };
        let end = if is_hole(file) { 0 } else { size };
        each_while(chunks(0, end), at_a_time(file), one).await?;
        if *verify {
            new.file.set_len(size)?;
            if !Box::pin(self.copy.is_same(&new.file, size, file)).await? {
                bail!("the copy differs from its source");
            }
        }
        if let Some(node) = node {
            Box::pin(self.copy.preserve_out(path, node, &new.file)).await?;
        }
        new.finish(size, mode, (atime, mtime))?;
        tally.file();
        Ok(())
    }
}
