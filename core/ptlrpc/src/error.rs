//! Why a call failed.

use lnet_types::{Errno, Nid};
use lustre_wire::WireError;

/// The end of a call that brought no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server answered with an error, or could not be asked to do it.
    #[error("the server answered: {0}")]
    Refused(Errno),
    /// The limit of the call has passed.
    #[error("not answered within the limit of the call")]
    LimitPassed,
    /// It may not be sent again, and was not answered within its time.
    #[error("not answered in time by {0}")]
    TimedOut(Nid),
    /// It may not wait, and the import is not connected.
    #[error("not connected")]
    NotConnected,
    /// The server has evicted this client since the call was made, or it was about to.
    #[error("evicted by the server")]
    Evicted,
    /// The import is closed.
    #[error("the import is closed")]
    Closed,
    /// The import is void: the server has evicted this client, and there is no new connection yet
    /// (P-77). After a connect that was refused for good calls end with that refusal.
    #[error("the import is inactive")]
    Inactive,
    /// It may not be repeated, and waited for a connect that failed.
    #[error("the connect failed that it waited for")]
    ConnectFailed,
    /// There is no such import.
    #[error("no such import")]
    NoImport,
    /// There are as many as there may be.
    #[error("{what}: the limit is {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: usize,
    },
    /// The program took the call back.
    #[error("cancelled")]
    Cancelled,
    /// The reply is longer than was planned for, and the request may not be sent again.
    #[error("the reply has more bytes than were planned for")]
    TooLong,
    /// The reply is not what the protocol says.
    #[error("bad reply: {0}")]
    BadReply(WireError),
    /// The request can't be packed.
    #[error("bad request: {0}")]
    BadRequest(WireError),
    /// The node has no memory or no descriptor left, or the bulk memory is not the node's.
    #[error("no descriptor: {0}")]
    NoDescriptor(Errno),
    /// The bulk data were cut off.
    #[error("bulk data failed")]
    Bulk,
}

impl CallError {
    /// The error number that stands for it.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Refused(errno) | Self::NoDescriptor(errno) => errno,
            Self::LimitPassed | Self::TimedOut(_) => Errno::ETIMEDOUT,
            Self::NotConnected => Errno::EAGAIN,
            Self::TooMany { .. } => Errno::EBUSY,
            Self::Evicted | Self::Bulk | Self::Closed | Self::ConnectFailed => Errno::EIO,
            Self::Inactive => Errno::ESHUTDOWN,
            Self::NoImport => Errno::ENODEV,
            Self::Cancelled => Errno::ECANCELED,
            Self::TooLong => Errno::EOVERFLOW,
            Self::BadReply(_) => Errno::EPROTO,
            Self::BadRequest(_) => Errno::EINVAL,
        }
    }
}
