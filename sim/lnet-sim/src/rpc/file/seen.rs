//! What can be seen of files from outside: by the programs that work with them.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::Errno;

use super::op::{FileAnswer, FileOp, FileShown};

/// Why an operation has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFailure {
    /// The number that a program gets.
    pub errno: Errno,
    /// What it says.
    pub text: String,
    /// A target has said so, of the names and files as they are: nothing was changed.
    pub said: bool,
    /// The visit is over.
    pub over: bool,
}

/// A file as another visitor has found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What tells it from other files: the same under each of its names.
    pub fid: (u64, u32),
    /// What it is.
    pub kind: FileShown,
    /// Permissions.
    pub mode: u32,
    /// Names of it.
    pub nlink: u32,
    /// Its bytes, or the text of a link.
    pub bytes: Vec<u8>,
    /// How many bytes it has said to have before it was opened.
    pub size: u64,
    /// Time of the last change of its data, seconds since 1970.
    pub mtime: i64,
}

/// The files of a directory, and of those in it, by their paths as bytes.
pub type Dump = BTreeMap<Vec<u8>, Found>;

/// The directories of a load by their names, each as it was found, or why it can't be read.
pub type Dumps = BTreeMap<String, Result<Dump, FileFailure>>;

/// Something that a program has seen. A visit is named by the uuid of its client, and has one operation
/// under way at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSeen {
    /// A program begins an operation.
    Begun {
        /// Its visit.
        client: String,
        /// The directory that it works in.
        tree: String,
        /// What.
        op: FileOp,
    },
    /// It has ended.
    Ended {
        /// Of which visit.
        client: String,
        /// How long it took.
        took: Duration,
        /// How.
        result: Result<FileAnswer, FileFailure>,
    },
    /// A visit has ended by itself.
    Left {
        /// Which one.
        client: String,
        /// Whether all that it had changed was committed before.
        result: Result<(), FileFailure>,
    },
    /// A visit could not begin.
    Stayed {
        /// Which one; its first operation was not begun.
        client: String,
        /// Why.
        failure: FileFailure,
    },
    /// A visit begins to read the directories of a load again.
    Checks {
        /// Which one.
        client: String,
    },
    /// The directories of a load, as a visit has found them that has to do with none of them; or why it
    /// could not read them.
    Checked {
        /// Which visit.
        client: String,
        /// Which load.
        load: usize,
        /// What it has found.
        trees: Result<Dumps, FileFailure>,
    },
}

impl fmt::Display for FileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FileSeen {
    /// Whether a reader of a run wants to see it.
    pub(in crate::rpc) const fn is_moment(&self) -> bool {
        match self {
            Self::Begun { .. } | Self::Checks { .. } => false,
            Self::Ended { result, .. } => matches!(result, Err(FileFailure { said: false, .. })),
            Self::Left { .. } | Self::Stayed { .. } | Self::Checked { .. } => true,
        }
    }

    /// A line about it.
    pub(in crate::rpc) fn line(&self) -> String {
        match self {
            Self::Begun { client, tree, op } => format!("{client} in {tree}: {op:?}"),
            Self::Ended { client, took, result: Err(e) } => {
                format!("{client}: failed after {took:?}: {e}")
            }
            Self::Ended { client, took, result: Ok(answer) } => match answer {
                FileAnswer::Bytes(bytes) => {
                    format!("{client}: {} bytes after {took:?}", bytes.len())
                }
                answer => format!("{client}: {answer:?} after {took:?}"),
            },
            Self::Checks { client } => format!("{client} reads all again"),
            Self::Left { client, result: Ok(()) } => format!("{client} has left"),
            Self::Left { client, result: Err(e) } => format!("{client} has left: {e}"),
            Self::Stayed { client, failure } => format!("{client} could not begin: {failure}"),
            Self::Checked { load, trees: Ok(trees), .. } => {
                format!("{} directories of load {load} are read again", trees.len())
            }
            Self::Checked { load, trees: Err(e), .. } => {
                format!("the directories of load {load} can't be read: {e}")
            }
        }
    }

    /// A word that tells it from others, for the hash of a run.
    pub(in crate::rpc) fn word(&self) -> u64 {
        let of = |result: &Result<FileAnswer, FileFailure>| match result {
            Ok(FileAnswer::Bytes(bytes)) => 1 << 32 | bytes.len() as u64,
            Ok(FileAnswer::Names(names)) => 2 << 32 | names.len() as u64,
            Ok(FileAnswer::Attributes { size, .. }) => 3 << 32 | size,
            Ok(FileAnswer::Done | FileAnswer::Text(_)) => 4 << 32,
            Err(e) => 5 << 32 | u64::from(e.errno.0.unsigned_abs()),
        };
        match self {
            Self::Begun { .. } | Self::Checks { .. } => 1,
            Self::Ended { result, .. } => of(result),
            Self::Left { .. } => 2,
            Self::Stayed { failure, .. } => 3 | u64::from(failure.errno.0.unsigned_abs()) << 8,
            Self::Checked { trees, .. } => 4 | trees.as_ref().map_or(0, |t| t.len() as u64) << 8,
        }
    }
}
