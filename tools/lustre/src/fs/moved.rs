//! A move that servers do not make by a change of names: between metadata targets that refuse it, or projects.
//! What is moved is copied beside its new name, gets that when all of it is there, and is removed only then.
//! Nothing is removed that was not copied: what changes meanwhile stays, and is named. Trees are gone through without
//! recursion: their depth is that of a server's making.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use lnet_types::Errno;
use lustre_rt::Mount;
use lustre_rt::visitor::{
    Attributes, Changes, Create, FileKind, Node, OpenFile, OpenHow, SetXattr, VisitError,
};

use super::copy::is_kept;
use super::goal::Spot;
use super::label::Label;
use super::{Stop, progress};

/// Bytes that are read at a time.
const CHUNK: u64 = 4 << 20;
/// Most names that stay and are named.
const STAYS_MAX: usize = 8;

/// A file, as one name in the tree has it.
struct Named {
    node: Node,
    dir: Node,
    name: Vec<u8>,
    path: Label,
}

/// Size, time of the last change of data and of any change of a file that was copied.
type Seen = (u64, i64, i64);

const fn seen(attributes: &Attributes) -> Seen {
    (attributes.size, attributes.mtime, attributes.ctime)
}

/// A name that was copied, and what a file had then.
struct Copied {
    named: Named,
    seen: Option<Seen>,
}

/// A directory that is being copied.
struct Level {
    named: Named,
    before: Attributes,
    made: Node,
    /// Names in it that are still to be copied.
    names: Vec<Vec<u8>>,
}

struct Mover<'a> {
    mount: &'a Mount,
    stop: &'a Stop,
    /// The directory that gets all of it: it must not be in it.
    into: &'a Node,
    /// Copies of files with several names, by what tells a file.
    links: RefCell<BTreeMap<(u64, u32), (Node, Seen)>>,
    /// What is to be removed, directories behind what is in them.
    copied: RefCell<Vec<Copied>>,
}

thread_local! {
    /// Moves of this program.
    static MOVES: Cell<u64> = const { Cell::new(0) };
}

/// A name that nothing else has: a rename of it is one of this very copy.
fn beside() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let count = MOVES.with(|moves| moves.replace(moves.get() + 1));
    format!(".ulnet-mv-{}-{now:x}-{count}", std::process::id()).into_bytes()
}

fn fid(node: &Node) -> (u64, u32) {
    let fid = node.fid();
    (fid.seq, fid.oid)
}

/// Moves a file or a tree to a name.
///
/// # Errors
/// Nothing is moved and nothing is lost; or, as that says, all is there under its new name and a part still
/// under the old one.
pub(super) async fn by_copy(
    (mount, stop): (&Mount, &Stop),
    node: &Node,
    (dir, name, path): (&Node, &[u8], &Label),
    spot: &Spot,
) -> Result<()> {
    let mover = Mover {
        mount,
        stop,
        into: &spot.dir,
        links: RefCell::default(),
        copied: RefCell::default(),
    };
    let victim = mover.victim(node, spot).await?;
    let temp = beside();
    let placed = async {
        let (node, dir) = (node.clone(), dir.clone());
        let named = Named { node, dir, name: name.to_vec(), path: path.plain() };
        mover.copy(named, &spot.dir, &temp).await?;
        let made = mount.child(&spot.dir, &temp).await?;
        // What has the new name goes only when all is there.
        mount.sync().await?;
        mover.place(&made, victim, spot).await
    };
    if let Err(e) = placed.await {
        mover.clean(&spot.dir, &temp).await;
        return Err(e);
    }
    mount.sync().await?;
    mover.remove(&spot.path).await
}

impl Mover<'_> {
    /// What has the new name, if that can be replaced.
    async fn victim(&self, node: &Node, spot: &Spot) -> Result<Option<Node>> {
        let victim = match self.mount.child(&spot.dir, &spot.name).await {
            Ok(victim) => victim,
            Err(e) if e.errno() == Errno::ENOENT => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let is_dir = |node: &Node| node.kind() == FileKind::Dir;
        let errno = match (is_dir(node), is_dir(&victim)) {
            (true, false) => Errno::ENOTDIR,
            (false, true) => Errno::EISDIR,
            (true, true) if !self.names(&victim).await?.is_empty() => Errno::ENOTEMPTY,
            _ => return Ok(Some(victim)),
        };
        Err(VisitError::Path { path: spot.path.bytes().to_vec(), errno }.into())
    }

    /// The copy gets its name.
    async fn place(&self, made: &Node, victim: Option<Node>, spot: &Spot) -> Result<()> {
        match (self.mount.rename(made, &spot.dir, &spot.name).await, victim) {
            // A directory of another target has the name: it is empty, or refuses to go.
            (Err(e), Some(victim)) if e.errno() == Errno::EXDEV => {
                self.mount.remove(&victim).await?;
                Ok(self.mount.rename(made, &spot.dir, &spot.name).await?)
            }
            (renamed, _) => Ok(renamed?),
        }
    }

    async fn names(&self, dir: &Node) -> Result<Vec<Vec<u8>>> {
        let mut open = self.mount.open_dir(dir).await?;
        let mut all = Vec::new();
        loop {
            self.stop.check()?;
            let some = self.mount.read_dir(&mut open).await?;
            if some.is_empty() {
                return Ok(all);
            }
            all.extend(some.into_iter().map(|name| name.name));
        }
    }

    async fn copy(&self, top: Named, dir: &Node, name: &[u8]) -> Result<()> {
        let mut way: Vec<Level> = self.one(top, dir, name).await?.into_iter().collect();
        while let Some(level) = way.last_mut() {
            self.stop.check()?;
            if let Some(name) = level.names.pop() {
                let node = self.mount.child(&level.named.node, &name).await?;
                let (dir, path) = (level.named.node.clone(), level.named.path.join(&name));
                let named = Named { node, dir, name: name.clone(), path };
                let below = self.one(named, &level.made, &name).await?;
                way.extend(below);
            } else if let Some(Level { named, before, made, .. }) = way.pop() {
                self.dress(&named.node, &made, &before).await?;
                self.copied.borrow_mut().push(Copied { named, seen: None });
            }
        }
        Ok(())
    }

    /// Copies a file or link; of a directory it is begun.
    async fn one(&self, named: Named, dir: &Node, name: &[u8]) -> Result<Option<Level>> {
        self.stop.check()?;
        let node = &named.node;
        let before = self.mount.attributes(node).await?;
        let mut copied = None;
        match node.kind() {
            FileKind::Dir => {
                if node.fid() == self.into.fid() {
                    bail!("a directory is not moved into itself");
                }
                let made = self.mount.make_dir(dir, name, 0o700, b"").await?;
                let names = self.names(node).await?;
                return Ok(Some(Level { named, before, made, names }));
            }
            FileKind::Link => {
                let text = self.mount.link_text(node).await?;
                let made = self.mount.make_link(dir, name, &text).await?;
                self.own(&made, &before).await?;
                self.mount.change(&made, &times(&before)).await?;
            }
            FileKind::File => {
                let known = self.links.borrow().get(&fid(node)).cloned();
                copied = Some(match known {
                    Some((made, seen)) => {
                        self.mount.link(&made, dir, name).await?;
                        seen
                    }
                    None => {
                        self.file(node, &before, dir, name).await?;
                        seen(&before)
                    }
                });
            }
            _ => bail!("neither a file, a directory nor a symbolic link: not copied"),
        }
        self.copied.borrow_mut().push(Copied { named, seen: copied });
        Ok(None)
    }

    async fn file(&self, node: &Node, before: &Attributes, dir: &Node, name: &[u8]) -> Result<()> {
        let source = self.mount.open_file(node).await?;
        let copied = async {
            let create = Create { mode: 0o600, exclusive: true, ..Create::default() };
            let mut copy = self.mount.create(dir, name, OpenHow::WRITE, &create).await?;
            let written = self.data(&source, &mut copy, before.size).await;
            let closed = self.mount.close(copy).await;
            written?;
            Ok::<_, anyhow::Error>(closed?)
        };
        let copied = copied.await;
        let closed = self.mount.close(source).await;
        copied?;
        closed?;
        let made = self.mount.child(dir, name).await?;
        self.dress(node, &made, before).await?;
        let after = self.mount.attributes(node).await?;
        if seen(&after) != seen(before) {
            bail!("it was changed while it was copied");
        }
        progress::files(1);
        if before.nlink > 1 {
            self.links.borrow_mut().insert(fid(node), (made, seen(before)));
        }
        Ok(())
    }

    /// The bytes of a file; holes stay holes.
    async fn data(&self, from: &OpenFile, to: &mut OpenFile, size: u64) -> Result<()> {
        let mut at = 0;
        while at < size {
            self.stop.check()?;
            let parts = self.mount.read(from, at, CHUNK.min(size - at)).await?;
            let Some(end) = parts.last().map(|part| part.offset + part.len) else { break };
            for part in parts.into_iter().filter(|part| !part.bytes.is_empty()) {
                self.mount.write_at(to, part.offset, &part.bytes).await?;
            }
            progress::bytes(end - at);
            at = end;
        }
        if at != size {
            bail!("it was changed while it was copied");
        }
        self.mount.truncate(to, size).await?;
        Ok(self.mount.fsync(to).await?)
    }

    /// A copy gets what its source has: a rename would keep all of it.
    async fn dress(&self, node: &Node, made: &Node, before: &Attributes) -> Result<()> {
        self.own(made, before).await?;
        for name in self.mount.list_xattrs(node).await? {
            if is_kept(&name) {
                let value = self.mount.get_xattr(node, &name).await?;
                self.mount.set_xattr(made, &name, &value, SetXattr::Any).await?;
            }
        }
        let mode = Changes { mode: Some(before.mode & 0o7777), ..times(before) };
        Ok(self.mount.change(made, &mode).await?)
    }

    /// Owner and group. A user who may not give a file away does not move it.
    async fn own(&self, made: &Node, before: &Attributes) -> Result<()> {
        let Attributes { uid, gid, .. } = *before;
        if (made.body().uid, made.body().gid) != (uid, gid) {
            let both = Changes { uid: Some(uid), gid: Some(gid), ..Changes::default() };
            self.mount.change(made, &both).await?;
        }
        Ok(())
    }

    /// An unfinished copy goes. What can't be removed stays beside: the source has all.
    async fn clean(&self, dir: &Node, name: &[u8]) {
        if let Ok(node) = self.mount.child(dir, name).await {
            self.drop_tree(node).await;
        }
    }

    async fn drop_tree(&self, top: Node) {
        // Each directory stands before what is in it, and goes when that has gone.
        let mut waiting = vec![(top, false)];
        while let Some((node, emptied)) = waiting.pop() {
            if emptied || node.kind() != FileKind::Dir {
                // See `clean`.
                let _ = self.mount.remove(&node).await;
                continue;
            }
            waiting.push((node.clone(), true));
            for name in self.names(&node).await.unwrap_or_default() {
                if let Ok(child) = self.mount.child(&node, &name).await {
                    waiting.push((child, false));
                }
            }
        }
    }

    /// What was copied goes, name by name, if it is still the same. What is not stays, with the directories above it.
    async fn remove(&self, copy: &Label) -> Result<()> {
        let mut stays: Vec<Label> = Vec::new();
        // Files that have lost a name: that is a change of them as well.
        let mut touched = BTreeSet::new();
        for Copied { named, seen: then } in self.copied.take() {
            let Named { node, dir, name, path } = &named;
            let found = match self.mount.child(dir, name).await {
                Ok(found) if found.fid() == node.fid() => found,
                Ok(_) => {
                    stays.push(path.clone());
                    continue;
                }
                // Another client was first.
                Err(e) if e.errno() == Errno::ENOENT => continue,
                Err(e) => return Err(still(copy, &e)),
            };
            if let Some(then) = then {
                let now = self.mount.attributes(&found).await.map_err(|e| still(copy, &e))?;
                if !same(then, seen(&now), touched.contains(&fid(node))) {
                    stays.push(path.clone());
                    continue;
                }
            }
            match self.mount.remove(node).await {
                Ok(()) => drop(touched.insert(fid(node))),
                Err(e) if e.errno() == Errno::ENOENT => {}
                // What was made in it, or what stays.
                Err(e) if e.errno() == Errno::ENOTEMPTY => {
                    let inside = path.join(b"");
                    if !stays.iter().any(|stays| stays.bytes().starts_with(inside.bytes())) {
                        stays.push(path.clone());
                    }
                }
                Err(e) => return Err(still(copy, &e)),
            }
        }
        match stays.len() {
            0 => Ok(()),
            len => {
                let named: Vec<_> = stays.iter().take(STAYS_MAX).map(ToString::to_string).collect();
                let more = len.saturating_sub(STAYS_MAX);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                bail!(
                    "copied to {copy}; not removed, as it has changed since: {}{more}",
                    named.join(", ")
                )
            }
        }
    }
}

/// Whether a file is the one that was copied. One that has lost a name by this move has a new time of its last
/// change.
const fn same(then: Seen, now: Seen, touched: bool) -> bool {
    then.0 == now.0 && then.1 == now.1 && (touched || then.2 == now.2)
}

/// The old names are there besides the new ones.
fn still(copy: &Label, e: &VisitError) -> anyhow::Error {
    anyhow::anyhow!("copied to {copy}, and not removed: {e}")
}

const fn times(before: &Attributes) -> Changes {
    let (atime, mtime) = (Some(before.atime), Some(before.mtime));
    Changes { mode: None, uid: None, gid: None, atime, mtime }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_the_one_that_was_copied_if_nothing_of_it_has_changed() {
        let then = (7, 100, 100);
        assert!(same(then, then, false));
        for now in [(8, 100, 100), (7, 101, 101), (7, 100, 101)] {
            assert!(!same(then, now, false), "{now:?}");
        }
        // Its other name was removed by the move itself.
        assert!(same(then, (7, 100, 101), true));
        assert!(!same(then, (8, 100, 101), true) && !same(then, (7, 101, 101), true));
    }
}
