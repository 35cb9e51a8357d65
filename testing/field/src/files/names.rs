//! A program that makes, looks at, renames and removes names in many directories, and holds each result
//! and each refusal against a model.

use lnet_types::Errno;
use lustre_rt::Mount;
use lustre_rt::visitor::{Attributes, Create, FileKind, Node, OpenHow, VisitError};

use super::model::{Entry, FileState, Model, join, split};
use super::score::{Rng, Score};

/// Names in a directory, and directories in one another.
const NAMES: u64 = 24;
const DEPTH: usize = 3;
/// Most bytes of a file.
const BYTES: u64 = 3000;
const MODES: [u32; 3] = [0o644, 0o600, 0o755];

/// The program.
pub(super) struct Namer<'a> {
    pub(super) mount: &'a Mount,
    /// Path of its directory.
    pub(super) base: String,
    pub(super) model: Model,
    pub(super) rng: Rng,
}

impl Namer<'_> {
    fn full(&self, path: &str) -> Vec<u8> {
        join(&self.base, path).trim_end_matches('/').as_bytes().to_vec()
    }

    async fn find(&self, path: &str) -> Result<Node, VisitError> {
        self.mount.find(&self.full(path), false).await
    }

    async fn dir_of(&self, path: &str) -> Result<(Node, Vec<u8>), VisitError> {
        let (dir, name) = split(path);
        Ok((self.find(dir).await?, name.as_bytes().to_vec()))
    }

    fn any_dir(&mut self) -> String {
        let dirs = self.model.dirs();
        let place = self.rng.below(dirs.len() as u64) as usize;
        dirs.get(place).copied().unwrap_or_default().to_owned()
    }

    /// A name that may be there or not.
    fn any_name(&mut self) -> String {
        let dir = self.any_dir();
        join(&dir, &format!("n{}", self.rng.below(NAMES)))
    }

    /// A name that is there, if there is one at all.
    fn any_there(&mut self) -> String {
        let paths = self.model.paths();
        let place = self.rng.below(paths.len() as u64) as usize;
        match paths.get(place) {
            Some(path) => (*path).to_owned(),
            None => self.any_name(),
        }
    }

    /// One operation. After an end that was not expected the model is made anew from what is there.
    ///
    /// # Errors
    /// What is there can't be read.
    pub(super) async fn step(&mut self, score: &mut Score) -> Result<(), VisitError> {
        if self.one(score).await.is_err() {
            self.read_again().await?;
        }
        Ok(())
    }

    async fn one(&mut self, score: &mut Score) -> Result<(), ()> {
        match self.rng.below(20) {
            0..3 => self.make_dir(score).await,
            3..8 => self.create(score).await,
            8..11 => self.rename(score).await,
            11 => self.link(score).await,
            12 => self.symlink(score).await,
            13..16 => self.remove(score).await,
            16..19 => {
                let path = if self.rng.below(8) == 0 { self.any_name() } else { self.any_there() };
                self.stat(&path, score).await
            }
            _ => {
                let dir = self.any_dir();
                self.list(&dir, score).await
            }
        }
    }

    async fn make_dir(&mut self, score: &mut Score) -> Result<(), ()> {
        let path = self.any_name();
        if path.split('/').count() > DEPTH {
            return self.stat(&path, score).await;
        }
        let expected = self.model.make(&path, Entry::Dir);
        let end = score.timed(async {
            let (dir, name) = self.dir_of(&path).await?;
            self.mount.make_dir(&dir, &name, 0o755, b"").await
        });
        let end = end.await;
        score.judge(&format!("mkdir {path}"), expected, end).map(drop)
    }

    async fn create(&mut self, score: &mut Score) -> Result<(), ()> {
        let path = self.any_name();
        let mode = MODES[self.rng.below(MODES.len() as u64) as usize];
        let size = if self.rng.below(2) == 0 { 0 } else { self.rng.below(BYTES) };
        let bytes = self.rng.bytes(size as usize);
        let expected = self.model.create(&path, mode, size);
        let end = score.timed(async {
            let (dir, name) = self.dir_of(&path).await?;
            let create = Create { mode, exclusive: true, ..Create::default() };
            let mut file = self.mount.create(&dir, &name, OpenHow::WRITE, &create).await?;
            let written = match bytes.is_empty() {
                true => Ok(()),
                false => self.mount.write_at(&mut file, 0, &bytes).await,
            };
            self.mount.close(file).await?;
            written
        });
        let end = end.await;
        score.judge(&format!("create {path}"), expected, end).map(drop)
    }

    async fn rename(&mut self, score: &mut Score) -> Result<(), ()> {
        let (from, to) = (self.any_there(), self.any_name());
        let depth = |path: &str| path.split('/').count();
        let below = format!("{from}/");
        let inside = self.model.paths().into_iter().filter(|path| path.starts_with(&below));
        let height = inside.map(depth).max().map_or(0, |deepest| deepest - depth(&from));
        if depth(&to) + height > DEPTH + 1 {
            return self.stat(&to, score).await;
        }
        let expected = self.model.rename(&from, &to);
        let end = score.timed(async {
            let node = self.find(&from).await?;
            let (dir, name) = self.dir_of(&to).await?;
            self.mount.rename(&node, &dir, &name).await
        });
        let end = end.await;
        score.judge(&format!("rename {from} to {to}"), expected, end).map(drop)
    }

    async fn link(&mut self, score: &mut Score) -> Result<(), ()> {
        let (from, to) = (self.any_there(), self.any_name());
        if !matches!(self.model.get(&from), Some(Entry::File(_))) {
            return self.stat(&from, score).await;
        }
        let expected = self.model.link(&from, &to);
        let end = score.timed(async {
            let node = self.find(&from).await?;
            let (dir, name) = self.dir_of(&to).await?;
            self.mount.link(&node, &dir, &name).await
        });
        let end = end.await;
        score.judge(&format!("link {from} as {to}"), expected, end).map(drop)
    }

    async fn symlink(&mut self, score: &mut Score) -> Result<(), ()> {
        let path = self.any_name();
        let text = format!("text/{}", self.rng.next());
        let expected = self.model.make(&path, Entry::Link(text.clone()));
        let end = score.timed(async {
            let (dir, name) = self.dir_of(&path).await?;
            self.mount.make_link(&dir, &name, text.as_bytes()).await
        });
        let end = end.await;
        score.judge(&format!("symlink {path}"), expected, end).map(drop)
    }

    async fn remove(&mut self, score: &mut Score) -> Result<(), ()> {
        let path = self.any_there();
        let expected = self.model.remove(&path);
        let end = score.timed(async {
            let node = self.find(&path).await?;
            self.mount.remove(&node).await
        });
        let end = end.await;
        score.judge(&format!("remove {path}"), expected, end).map(drop)
    }

    /// Looks at a name: attributes, the text of a link.
    async fn stat(&self, path: &str, score: &mut Score) -> Result<(), ()> {
        let entry = self.model.get(path).cloned();
        let expected = entry.as_ref().map(|_| ()).ok_or(Errno::ENOENT);
        let end = score.timed(async {
            let node = self.find(path).await?;
            let text = match node.kind() {
                FileKind::Link => self.mount.link_text(&node).await?,
                _ => Vec::new(),
            };
            Ok((self.mount.attributes(&node).await?, text))
        });
        let end = end.await;
        let what = format!("stat {path}");
        let Some((found, text)) = score.judge(&what, expected, end)? else { return Ok(()) };
        let Some(entry) = entry else { return Ok(()) };
        let (expected, found) = match &entry {
            Entry::Dir => (
                format!("directory, {} links", self.model.dir_links(path)),
                format!("{}, {} links", called(&found), found.nlink),
            ),
            Entry::File(number) => {
                let FileState { nlink, mode, size } = self.model.file(*number);
                let shown = |kind: &str, nlink: u32, mode: u32, size: u64| {
                    format!("{kind}, {nlink} links, mode {mode:o}, {size} bytes")
                };
                let Attributes { nlink: links, mode: has, size: bytes, .. } = found;
                (
                    shown("file", nlink, mode, size),
                    shown(called(&found), links, has & 0o7777, bytes),
                )
            }
            Entry::Link(to) => (
                format!("link to {to}"),
                format!("{} to {}", called(&found), String::from_utf8_lossy(&text)),
            ),
        };
        if expected == found {
            return Ok(());
        }
        score.differs(&what, &format!("{found}; expected {expected}"));
        Err(())
    }

    async fn list(&self, dir: &str, score: &mut Score) -> Result<(), ()> {
        let what = format!("list {dir}");
        let end = score.timed(async {
            let node = self.find(dir).await?;
            self.names(&node).await
        });
        let end = end.await;
        let Some(names) = score.judge(&what, Ok(()), end)? else { return Ok(()) };
        let mut found: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
        found.sort_unstable();
        let expected = self.model.names(dir);
        if found == expected {
            return Ok(());
        }
        let missing = expected.iter().find(|name| !found.iter().any(|found| found == *name));
        let more = found.iter().find(|name| !expected.contains(&name.as_str()));
        score.differs(&what, &format!("missing: {missing:?}, more: {more:?}"));
        Err(())
    }

    async fn names(&self, node: &Node) -> Result<Vec<(String, Node)>, VisitError> {
        let mut opened = self.mount.open_dir(node).await?;
        let mut all = Vec::new();
        loop {
            let names = self.mount.read_dir(&mut opened).await?;
            if names.is_empty() {
                return Ok(all);
            }
            for name in names {
                let found = self.mount.node(name.fid, node, &name.name).await?;
                all.push((String::from_utf8_lossy(&name.name).into_owned(), found));
            }
        }
    }

    /// Makes the model from what is there.
    async fn read_again(&mut self) -> Result<(), VisitError> {
        let mut model = Model::default();
        let mut numbers = std::collections::BTreeMap::new();
        let mut rest = vec![String::new()];
        while let Some(dir) = rest.pop() {
            let node = self.find(&dir).await?;
            for (name, node) in self.names(&node).await? {
                let path = join(&dir, &name);
                match node.kind() {
                    FileKind::Dir => {
                        // Each name of a directory comes once.
                        let _ = model.make(&path, Entry::Dir);
                        rest.push(path);
                    }
                    FileKind::Link => {
                        let text = self.mount.link_text(&node).await?;
                        let text = String::from_utf8_lossy(&text).into_owned();
                        let _ = model.make(&path, Entry::Link(text));
                    }
                    _ => {
                        let fid = node.fid;
                        let next = numbers.len() as u64;
                        let number = *numbers.entry((fid.seq, fid.oid)).or_insert(next);
                        let Attributes { nlink, mode, size, .. } =
                            self.mount.attributes(&node).await?;
                        model.found(&path, number, FileState { nlink, mode: mode & 0o7777, size });
                    }
                }
            }
        }
        self.model = model;
        Ok(())
    }

    /// Looks at every name and every directory.
    pub(super) async fn compare(&self, score: &mut Score) {
        let paths: Vec<String> = self.model.paths().into_iter().map(str::to_owned).collect();
        for path in &paths {
            let _ = self.stat(path, score).await;
        }
        let dirs: Vec<String> = self.model.dirs().into_iter().map(str::to_owned).collect();
        for dir in &dirs {
            let _ = self.list(dir, score).await;
        }
    }
}

const fn called(found: &Attributes) -> &'static str {
    match found.kind {
        FileKind::Dir => "directory",
        FileKind::File => "file",
        FileKind::Link => "link",
        _ => "something else",
    }
}
