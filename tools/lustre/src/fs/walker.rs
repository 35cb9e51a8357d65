//! A walk through a tree: what is in a directory comes in batches as it is read, then what is in those
//! below it. What can't be read is named on standard error, and the walk goes on.

use anyhow::Result;
use lustre_rt::Mount;
use lustre_rt::visitor::{FileKind, Name, Node, OpenDir, join};

use super::sentences::why;
use super::{Stop, show};

/// Requests that are under way at a time.
const IN_FLIGHT: usize = 8;
/// Names that are looked at together.
const BATCH: usize = 256;

/// A file on the way.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) node: Node,
    pub(super) path: String,
    pub(super) name: Vec<u8>,
}

/// A walk.
pub(super) struct Walker<'a> {
    mount: &'a Mount,
    stop: &'a Stop,
    /// Directories to be read, the next one last.
    waiting: Vec<(Node, String)>,
    /// The one that is being read, and names of it that were not looked at.
    reading: Option<(Node, String, OpenDir, Vec<Name>)>,
    failed: bool,
}

impl<'a> Walker<'a> {
    /// A walk through what is in a directory.
    pub(super) fn new(mount: &'a Mount, stop: &'a Stop, dir: Node, path: &str) -> Self {
        let path = path.trim_end_matches('/').to_owned();
        Self { mount, stop, waiting: vec![(dir, path)], reading: None, failed: false }
    }

    /// Whether something could not be read.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Names something that could not be done.
    pub(super) fn fail(&mut self, path: &str, e: &anyhow::Error) {
        eprintln!("ulnet lustre: {path}: {}", why(e, path));
        self.failed = true;
    }

    /// More files; none at the end.
    pub(super) async fn next(&mut self) -> Result<Vec<Found>> {
        loop {
            self.stop.check()?;
            let Some((dir, path, mut opened, mut names)) = self.reading.take() else {
                let Some((dir, path)) = self.waiting.pop() else { return Ok(Vec::new()) };
                match self.mount.open_dir(&dir).await {
                    Ok(opened) => self.reading = Some((dir, path, opened, Vec::new())),
                    Err(e) => self.fail(&path, &e.into()),
                }
                continue;
            };
            if names.is_empty() {
                names = match self.mount.read_dir(&mut opened).await {
                    Ok(names) => names,
                    Err(e) => {
                        self.fail(&path, &e.into());
                        continue;
                    }
                };
                if names.is_empty() {
                    continue;
                }
            }
            let rest = names.split_off(BATCH.min(names.len()));
            let one = |name: Name| {
                let (dir, path, mount) = (&dir, &path, self.mount);
                async move {
                    let path = format!("{path}/{}", show::name(&name.name));
                    let node = mount.node(name.fid, dir, &name.name).await;
                    (path, name.name, node)
                }
            };
            let looked = join(names.into_iter().map(one), IN_FLIGHT).await;
            self.reading = Some((dir, path, opened, rest));
            let mut batch = Vec::new();
            for (path, name, node) in looked {
                match node {
                    Ok(node) => {
                        if node.kind() == FileKind::Dir {
                            self.waiting.push((node.clone(), path.clone()));
                        }
                        batch.push(Found { node, path, name });
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
