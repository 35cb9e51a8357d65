//! A walk through a tree: what is in a directory comes in batches as it is read, then what is in those
//! below it. What can't be read is named on standard error, and the walk goes on.

use std::cell::Cell;

use anyhow::Result;
use lustre_rt::Mount;
use lustre_rt::visitor::{FileKind, Name, Node, OpenDir, VisitError, join};

use super::label::Label;
use super::sentences::why;
use super::{Stop, progress, reading};

/// Requests that are under way at a time.
pub(super) const IN_FLIGHT: usize = 8;
/// Names that are looked at together.
const BATCH: usize = 256;

/// A file on the way.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) node: Node,
    pub(super) path: Label,
    pub(super) name: Vec<u8>,
    /// Levels below the top of the walk.
    pub(super) depth: u32,
}

/// A directory on the way, and its level.
type Dir = (Node, Label, u32);

/// A walk.
pub(super) struct Walker<'a> {
    mount: &'a Mount,
    stop: &'a Stop,
    /// Directories to be read, the next one last.
    waiting: Vec<Dir>,
    /// The one that is being read, and names of it that were not looked at.
    reading: Option<(Dir, OpenDir, Vec<Name>)>,
    /// The lowest level that is looked at.
    lowest: u32,
    failed: Cell<bool>,
}

impl<'a> Walker<'a> {
    /// A walk through what is in a directory.
    pub(super) fn new(mount: &'a Mount, stop: &'a Stop, dir: Node, path: &Label) -> Self {
        let waiting = vec![(dir, path.clone(), 0)];
        Self { mount, stop, waiting, reading: None, lowest: u32::MAX, failed: Cell::new(false) }
    }

    /// The same, down to a level.
    #[must_use]
    pub(super) fn down_to(mut self, level: Option<u32>) -> Self {
        self.lowest = level.unwrap_or(u32::MAX);
        if self.lowest == 0 {
            self.waiting.clear();
        }
        self
    }

    /// Whether something could not be read.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Names something that could not be done.
    pub(super) fn fail(&self, path: &Label, e: &anyhow::Error) {
        eprintln!("ulnet lustre: {path}: {}", why(e, path.bytes()));
        self.failed.set(true);
    }

    /// More files; none at the end.
    pub(super) async fn next(&mut self) -> Result<Vec<Found>> {
        loop {
            self.stop.check()?;
            let Some((dir, mut opened, mut names)) = self.reading.take() else {
                let Some(dir) = self.waiting.pop() else { return Ok(Vec::new()) };
                match self.mount.open_dir(&dir.0).await {
                    Ok(opened) => self.reading = Some((dir, opened, Vec::new())),
                    Err(e) => self.fail(&dir.1, &e.into()),
                }
                continue;
            };
            if names.is_empty() {
                let failed = |e: VisitError| {
                    self.fail(&dir.1, &e.into());
                    Ok(())
                };
                names = reading::names(self.mount, &mut opened, failed).await?;
                if names.is_empty() {
                    continue;
                }
            }
            let rest = names.split_off(BATCH.min(names.len()));
            let one = |name: Name| {
                let ((dir, path, _), mount) = (&dir, self.mount);
                async move {
                    let path = path.join(&name.name);
                    let node = mount.node(name.fid, dir, &name.name).await;
                    (path, name.name, node)
                }
            };
            let looked = join(names.into_iter().map(one), IN_FLIGHT).await;
            progress::files(looked.len() as u64);
            let depth = dir.2 + 1;
            self.reading = Some((dir, opened, rest));
            let mut batch = Vec::new();
            for (path, name, node) in looked {
                match node {
                    Ok(node) => {
                        if node.kind() == FileKind::Dir && depth < self.lowest {
                            self.waiting.push((node.clone(), path.clone(), depth));
                        }
                        batch.push(Found { node, path, name, depth });
                    }
                    // It was removed after it had been listed.
                    Err(e) if e.errno() == lnet_types::Errno::ENOENT => {}
                    Err(e) => self.fail(&path, &e.into()),
                }
            }
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }
}
