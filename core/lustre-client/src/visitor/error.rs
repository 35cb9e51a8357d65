//! Why a visit fails, and the number that stands for it.

use lnet_types::{Errno, Nid};
use lustre_wire::Fid;
use ptlrpc::CallError;

use super::{ConfigError, LayoutError, ListingError, Tried};

/// Why a visit fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VisitError {
    /// A target has refused a call.
    #[error("{target}: {errno} ({})", .errno.negative())]
    Refused {
        /// Uuid of the target.
        target: String,
        /// Why.
        errno: Errno,
    },
    /// A target has not answered in time. It is not asked again before it is connected again.
    #[error("{target}: {}", unanswered(.nids, .tried))]
    Unreachable {
        /// Uuid of the target.
        target: String,
        /// The nodes that may serve it.
        nids: Vec<Nid>,
        /// What each of them has said, as far as that is known.
        tried: Vec<Tried>,
    },
    /// A call has failed.
    #[error("{target}: {error}")]
    Call {
        /// Uuid of the target.
        target: String,
        /// Why.
        error: CallError,
    },
    /// A target has answered with something that is no reply of its kind.
    #[error("{target}: bad reply: {what}")]
    BadReply {
        /// Uuid of the target.
        target: String,
        /// What was expected.
        what: &'static str,
    },
    /// The management server has no client log of this name.
    #[error("file system '{fsname}': the management server has none of this name")]
    NoFileSystem {
        /// The name.
        fsname: String,
    },
    /// A configuration that can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A target that no record names.
    #[error("{kind} {index}: the configuration has none of this index")]
    NoTarget {
        /// MDT or OST.
        kind: &'static str,
        /// Index.
        index: u32,
    },
    /// A target that an administrator has deactivated.
    #[error("{target}: deactivated by the configuration")]
    Inactive {
        /// Uuid of the target.
        target: String,
    },
    /// A path, or a name in it, that can't be used.
    #[error("{}: {errno}", .path.escape_ascii())]
    Path {
        /// The path up to the name.
        path: Vec<u8>,
        /// Why.
        errno: Errno,
    },
    /// A symbolic link to a path outside of the file system.
    #[error("{}: the link to '{}' leads out of the file system", .path.escape_ascii(), .to.escape_ascii())]
    Outside {
        /// The link.
        path: Vec<u8>,
        /// Its text.
        to: Vec<u8>,
    },
    /// Data that can't be read.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A directory that can't be read.
    #[error("directory {dir}: {error}")]
    Listing {
        /// The directory.
        dir: Fid,
        /// Why.
        error: ListingError,
    },
    /// A striped directory in which no name can be made or removed.
    #[error(
        "directory {dir}: its layout changes, or has a hash that is not known: names in it are not changed"
    )]
    DirLayout {
        /// The directory.
        dir: Fid,
    },
    /// Bytes that are in an object that is missing.
    #[error("bytes from {offset} on are lost: their object is missing")]
    Lost {
        /// The first of them.
        offset: u64,
    },
    /// A target has evicted this client, and may have lost what it had answered before.
    #[error(
        "{target}: evicted by the server: {count} changes that were not committed yet may be lost"
    )]
    ChangesLost {
        /// Uuid of the target, the first one of several.
        target: String,
        /// How many.
        count: u64,
    },
    /// A file that was written has other objects than those that the data went to.
    #[error("file {file}: moved to other objects while it was written: data may be lost")]
    Relaid {
        /// The file.
        file: Fid,
    },
    /// Data that was cached, and that its targets do not have.
    #[error("data was lost that was written to {}", named(.files))]
    DataLost {
        /// The files, and why.
        files: Vec<(Fid, Errno)>,
    },
    /// Data that is not what its checksum says, however often it was read.
    #[error("{target}: checksum {have:#010x}: expected {expected:#010x}")]
    Checksum {
        /// Uuid of the target.
        target: String,
        /// Of the data that came.
        have: u32,
        /// That the target said.
        expected: u32,
    },
}

/// Files that a message names; of more it has the number.
const NAMED_MAX: usize = 8;

/// Files with their errors, in words.
fn named(files: &[(Fid, Errno)]) -> String {
    let some = files.iter().take(NAMED_MAX).map(|(file, errno)| format!("{file} ({errno})"));
    let some = some.collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(NAMED_MAX) {
        0 => some,
        more => format!("{some} and {more} more files"),
    }
}

/// What was tried, in words.
fn unanswered(nids: &[Nid], tried: &[Tried]) -> String {
    if tried.is_empty() {
        let nids: Vec<String> = nids.iter().map(ToString::to_string).collect();
        return format!("no answer in time from {}", nids.join(", "));
    }
    let tries: Vec<String> = tried.iter().map(ToString::to_string).collect();
    let what = match tried.iter().all(Tried::does_not_serve) {
        true => "not in service",
        false => "no answer in time",
    };
    format!("{what}: {}", tries.join("; "))
}

impl VisitError {
    /// The error number that stands for it.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Refused { errno, .. } | Self::Path { errno, .. } => *errno,
            Self::Unreachable { .. } => Errno::ETIMEDOUT,
            Self::Call { error, .. } => error.errno(),
            Self::NoFileSystem { .. } => Errno::ENOENT,
            Self::Outside { .. } => Errno::EXDEV,
            Self::Layout(LayoutError::Released) => Errno::ENODATA,
            Self::Layout(LayoutError::Bad(_)) => Errno::EPROTO,
            Self::Layout(LayoutError::NotMade(_)) => Errno::EIO,
            Self::Layout(_) | Self::DirLayout { .. } => Errno::EOPNOTSUPP,
            Self::BadReply { .. } | Self::Config(_) | Self::Listing { .. } => Errno::EPROTO,
            Self::DataLost { files } => match files.as_slice() {
                [(_, errno), ..] => *errno,
                [] => Errno::EIO,
            },
            Self::NoTarget { .. } => Errno::ENXIO,
            Self::Inactive { .. }
            | Self::Lost { .. }
            | Self::ChangesLost { .. }
            | Self::Relaid { .. }
            | Self::Checksum { .. } => Errno::EIO,
        }
    }

    /// Whether it says something of a target, and nothing of the file: other targets may have the data.
    pub(super) const fn is_of_a_target(&self) -> bool {
        match self {
            Self::Refused { .. }
            | Self::Unreachable { .. }
            | Self::Call { .. }
            | Self::NoTarget { .. }
            | Self::Inactive { .. }
            | Self::Lost { .. }
            | Self::Checksum { .. } => true,
            // An object of which nothing is known.
            Self::Layout(e) => matches!(e, LayoutError::Bad(_)),
            _ => false,
        }
    }

    /// The same for a path: what a target says of a name is said of the path.
    pub(super) fn at(self, path: &[u8]) -> Self {
        match self {
            Self::Refused { errno, .. } => Self::Path { path: path.to_vec(), errno },
            other => other,
        }
    }
}
