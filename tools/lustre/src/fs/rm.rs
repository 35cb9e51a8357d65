//! `ulnet lustre rm`: removes files and trees.

use std::cell::Cell;

use anyhow::{Result, bail};
use clap::Args;
use lnet_types::Errno;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, FileKind, Name, Node, OpenDir, Place, VisitError, join};
use serde_json::json;

use super::label::Label;
use super::operands::{self, At, Done, Shape};
use super::sentences::why;
use super::{Stop, Visit, progress, reading};

/// Requests that are under way at a time.
const IN_FLIGHT: usize = 8;

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A symbolic link is removed itself, never what it leads to.\n\nExamples:\n  \
    ulnet lustre rm 10.0.0.1@tcp:/lfs/data/f1\n  \
    ulnet lustre rm -r /data/old /data/older"
)]
pub(super) struct Options {
    /// Files and directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Remove a directory with all that is in it
    #[arg(short, visible_short_alias = 'R', long)]
    recursive: bool,
    /// A name that does not exist is no failure
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    visit: Visit,
}

/// A directory that is being emptied.
struct Emptied {
    node: Node,
    path: Label,
    opened: OpenDir,
    /// Directories in it that were read and are still there.
    dirs: Vec<(Node, Label)>,
    /// All of it could be read.
    whole: bool,
}

struct Remover<'a> {
    mount: &'a Mount,
    stop: &'a Stop,
    removed: Cell<u64>,
    failed: Cell<bool>,
}

impl Remover<'_> {
    fn done(&self, path: &Label, end: Result<()>) -> Result<()> {
        self.stop.check()?;
        match end {
            Ok(()) => {
                progress::files(1);
                self.removed.set(self.removed.get() + 1);
            }
            Err(e) => {
                eprintln!("ulnet lustre: {path}: {}", why(&e, path.bytes()));
                self.failed.set(true);
            }
        }
        Ok(())
    }

    async fn remove(&self, node: &Node, path: &Label) -> Result<()> {
        let end = match self.mount.remove(node).await {
            // Another client was first.
            Err(e) if e.errno() == Errno::ENOENT => Ok(()),
            end => end.map_err(Into::into),
        };
        self.done(path, end)
    }

    /// Begins to empty a directory; `None`: it can't be read, and was named.
    async fn enter(&self, node: Node, path: Label) -> Result<Option<Emptied>> {
        match self.mount.open_dir(&node).await {
            Ok(opened) => Ok(Some(Emptied { node, path, opened, dirs: Vec::new(), whole: true })),
            Err(e) => self.done(&path, Err(e.into())).map(|()| None),
        }
    }

    /// Removes more of what is in a directory, but for directories; `false`: that was all.
    async fn some(&self, dir: &mut Emptied) -> Result<bool> {
        let Emptied { node: above, path, opened, dirs, whole } = dir;
        let failed = |e: VisitError| {
            *whole = false;
            self.done(path, Err(e.into()))
        };
        let names = reading::names(self.mount, opened, failed).await?;
        let one = |name| {
            let name: &Name = name;
            let (path, above) = (path.join(&name.name), &*above);
            async move {
                match self.mount.node(name.fid, above, &name.name).await {
                    Ok(node) if node.kind() == FileKind::Dir => Ok(Some((node, path))),
                    Ok(node) => self.remove(&node, &path).await.map(|()| None),
                    Err(e) if e.errno() == Errno::ENOENT => Ok(None),
                    Err(e) => self.done(&path, Err(e.into())).map(|()| None),
                }
            }
        };
        for found in join(names.iter().map(one), IN_FLIGHT).await {
            dirs.extend(found?);
        }
        Ok(!names.is_empty())
    }

    /// Removes a directory with all that is in it. One below another is emptied before more of that is read.
    async fn tree(&self, dir: Node, path: Label) -> Result<()> {
        let mut way: Vec<Emptied> = self.enter(dir, path).await?.into_iter().collect();
        while let Some(dir) = way.last_mut() {
            self.stop.check()?;
            if let Some((node, path)) = dir.dirs.pop() {
                way.extend(self.enter(node, path).await?);
            } else if !self.some(dir).await?
                && let Some(Emptied { node, path, whole, .. }) = way.pop()
                // What could not be read is still in it.
                && whole
            {
                self.remove(&node, &path).await?;
            }
        }
        Ok(())
    }
}

/// Whether there is nothing at a path.
fn is_none(e: &anyhow::Error) -> bool {
    let errno = e.downcast_ref().map(VisitError::errno);
    matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR))
}

async fn one(at: &At<'_>, recursive: bool, force: bool) -> Result<Done> {
    let At { mount, stop, place, name } = *at;
    if super::names(&place.path).is_empty() {
        bail!("the root of a file system is not removed");
    }
    super::own_name(&place.path)?;
    let remover = Remover { mount, stop, removed: Cell::default(), failed: Cell::default() };
    match super::find_itself(mount, &place.path).await {
        // As by rm: what is below a file does not exist either.
        Err(e) if force && is_none(&e) => {}
        Ok(node) if node.kind() == FileKind::Dir => {
            if !recursive {
                bail!("a directory: not removed without -r");
            }
            remover.tree(node, name.plain()).await?;
        }
        found => mount.remove(&found?).await.map(|()| remover.removed.set(1))?,
    }
    let (removed, whole) = (remover.removed.get(), !remover.failed.get());
    Ok(Done { value: name.row(json!({ "removed": removed, "all": whole })), whole })
}

/// Runs the command. `false`: a part is still there, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, recursive, force, visit } = options;
    operands::each(places, visit, Access::Change, Shape::Each, async |at| {
        one(at, *recursive, *force).await
    })
}
