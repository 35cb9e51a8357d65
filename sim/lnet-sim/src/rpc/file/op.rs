//! What programs do with files, and what comes of it.

use core::fmt;

/// Names of a path below the directory of a program, each by its number; empty is the directory itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePath(pub Vec<u8>);

impl FilePath {
    /// The name of a number.
    pub fn name(number: u8) -> Vec<u8> {
        format!("n{number}").into_bytes()
    }

    /// The path as bytes, names apart by slashes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let names: Vec<Vec<u8>> = self.0.iter().map(|name| Self::name(*name)).collect();
        names.join(&b'/')
    }

    /// The directory that the last name is in, and that name; `None` for the directory itself.
    pub(super) fn split(&self) -> Option<(Self, u8)> {
        let (name, dir) = self.0.split_last()?;
        Some((Self(dir.to_vec()), *name))
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", String::from_utf8_lossy(&self.bytes()))
    }
}

/// Where bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAt {
    /// From there on.
    Offset(u64),
    /// From the end on, as the open has found it.
    End,
}

/// Bytes that are written: where, how many, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBytes {
    /// Where.
    pub at: FileAt,
    /// How many.
    pub len: u32,
    /// What tells them from those of other writes.
    pub fill: u64,
}

impl FileBytes {
    /// The bytes, as they lie from `offset` on.
    pub(super) fn bytes(self, offset: u64) -> Vec<u8> {
        let byte = |at: u64| {
            let mixed = (self.fill ^ at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            // None is zero: a hole is seen.
            (mixed >> 56) as u8 | 1
        };
        (offset..offset + u64::from(self.len)).map(byte).collect()
    }
}

/// An operation of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Makes the directory of the program, if it is not there.
    Base,
    /// Makes a directory.
    Mkdir(FilePath),
    /// Makes a directory on this metadata target.
    MkdirOn(FilePath, u32),
    /// Opens, writes, closes.
    Write {
        /// Which file.
        path: FilePath,
        /// It is made, if it is not there.
        create: bool,
        /// It is cut off at its front before.
        truncate: bool,
        /// What is written.
        data: FileBytes,
        /// It is synced before it is closed.
        fsync: bool,
    },
    /// Makes a file with all that is in it, or puts that in place of what is in one, as a copy does.
    Whole {
        /// Which file.
        path: FilePath,
        /// All of it, from its front on.
        data: FileBytes,
        /// Times of access and of the last change of data that it gets, seconds since 1970.
        times: (i64, i64),
    },
    /// Makes a file that may not be there.
    Create(FilePath),
    /// Opens, reads all, closes.
    Read(FilePath),
    /// Opens, cuts off or makes longer, closes.
    Truncate(FilePath, u64),
    /// Another name instead.
    Rename(FilePath, FilePath),
    /// Another name besides.
    Link(FilePath, FilePath),
    /// Makes a symbolic link with this text, a path from its directory on.
    Symlink(FilePath, FilePath),
    /// Reads the text of a symbolic link.
    ReadLink(FilePath),
    /// Removes a name, of a directory too.
    Remove(FilePath),
    /// Names of a directory.
    List(FilePath),
    /// Attributes.
    Stat(FilePath),
    /// Other permissions.
    Chmod(FilePath, u32),
    /// Opens, and keeps it open under a number.
    Open(u8, FilePath, bool),
    /// Writes to a file that is open.
    WriteOpen(u8, FileBytes, bool),
    /// Reads all of a file that is open.
    ReadOpen(u8),
    /// Closes a file.
    Close(u8),
    /// All names that were changed are committed.
    Sync,
    /// All that was changed is committed, data too.
    Settle,
}

impl FileOp {
    /// Whether it changes nothing of files.
    pub const fn reads(&self) -> bool {
        use FileOp::{Close, List, Read, ReadLink, ReadOpen, Settle, Stat, Sync};
        let syncs = matches!(self, Sync | Settle);
        syncs || matches!(self, Read(_) | List(_) | Stat(_) | ReadLink(_) | ReadOpen(_) | Close(_))
    }

    /// Whether a file is empty before it is written.
    pub(super) const fn cuts(&self) -> bool {
        matches!(self, Self::Write { truncate: true, .. } | Self::Whole { .. })
    }
}

/// What a file is, as programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileShown {
    /// Data.
    File,
    /// Names.
    Dir,
    /// A path.
    Link,
}

/// The end of an operation that has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAnswer {
    /// It is done.
    Done,
    /// The bytes of a file.
    Bytes(Vec<u8>),
    /// Names, in ascending order.
    Names(Vec<Vec<u8>>),
    /// The text of a link.
    Text(Vec<u8>),
    /// Attributes.
    Attributes {
        /// What it is.
        kind: FileShown,
        /// Permissions.
        mode: u32,
        /// Names of it.
        nlink: u32,
        /// Bytes; 0 for all but files.
        size: u64,
    },
}
