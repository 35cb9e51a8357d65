//! The destination of several sources in a file system: a directory that gets them, or the name of one.

use std::cell::RefCell;
use std::collections::BTreeSet;

use anyhow::{Result, bail};
use clap::Args;
use lnet_types::Errno;
use lustre_rt::Mount;
use lustre_rt::visitor::{FileKind, Node, Place};

use super::label::{Label, without_slashes};

/// How a destination is taken that a directory has.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Taken {
    /// Take the destination for the new name itself, never for a directory that gets it
    #[arg(short = 'T', long = "no-target-directory")]
    pub(super) as_name: bool,
}

impl Taken {
    /// # Errors
    /// Several sources can't have one name.
    pub(super) fn check(self, sources: usize) -> Result<()> {
        if self.as_name && sources > 1 {
            bail!("--no-target-directory: expected one source, got {sources}");
        }
        Ok(())
    }
}

/// Where sources go.
pub(super) enum Goal {
    /// Into a directory, under their own names; those that were given.
    Into { dir: Box<Node>, path: Label, given: RefCell<BTreeSet<Vec<u8>>> },
    /// The new name of one.
    Name(Label),
}

/// A name in a directory.
pub(super) struct Spot {
    pub(super) dir: Node,
    pub(super) name: Vec<u8>,
    /// Its path.
    pub(super) path: Label,
}

impl Goal {
    /// The destination of commands that give names, as the user wants it taken.
    ///
    /// # Errors
    /// As [`Taken::check`] and [`Goal::find`].
    pub(super) async fn taken(
        mount: &Mount,
        to: &Place,
        taken: Taken,
        sources: usize,
    ) -> Result<Self> {
        taken.check(sources)?;
        match taken.as_name {
            true => Ok(Self::Name(Label::new(to.path.clone()))),
            false => Self::find(mount, to, sources > 1).await,
        }
    }

    /// Finds the destination. It is a directory if there are several sources.
    ///
    /// # Errors
    /// It is none, or can't be looked up.
    pub(super) async fn find(mount: &Mount, to: &Place, several: bool) -> Result<Self> {
        let path = Label::new(to.path.clone());
        match mount.find(&to.path, true).await {
            Ok(dir) if dir.kind() == FileKind::Dir => {
                Ok(Self::Into { dir: Box::new(dir), path, given: RefCell::default() })
            }
            Err(e) if e.errno() != Errno::ENOENT => Err(e.into()),
            _ if several => bail!("destination '{to}': expected a directory for several sources"),
            _ => Ok(Self::Name(path)),
        }
    }

    /// Where a source goes, as far as that can be said before it is looked at.
    pub(super) fn called(&self, name: &[u8]) -> Label {
        match self {
            Self::Into { path, .. } => path.join(name),
            Self::Name(path) => path.clone(),
        }
    }

    /// Where a source goes that is called `name`.
    ///
    /// # Errors
    /// A source before it has the same name, it has none, or its directory does not exist.
    pub(super) async fn of(&self, mount: &Mount, name: &[u8], kind: FileKind) -> Result<Spot> {
        match self {
            Self::Into { dir, path, given } => {
                if name.is_empty() || name == b".." || name == b"." {
                    bail!("expected a path that ends with a name");
                }
                let path = path.join(name);
                // A second directory of a name is copied into the first one, or refused by the server.
                if !given.borrow_mut().insert(name.to_vec()) && kind != FileKind::Dir {
                    bail!("a source before it has been given the name {path}");
                }
                Ok(Spot { dir: Node::clone(dir), name: name.to_vec(), path })
            }
            Self::Name(path) if path.bytes().ends_with(b"/") && kind != FileKind::Dir => {
                bail!("destination '{path}': expected a directory")
            }
            Self::Name(path) => {
                let (dir, name) = super::parent(mount, without_slashes(path.bytes())).await?;
                Ok(Spot { dir, name, path: path.clone() })
            }
        }
    }
}
