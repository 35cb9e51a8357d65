//! What goes wrong: in the node ([`AdminError`]) or in the conversation ([`ProtocolError`]).

use lnet_types::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The node's refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{text} (errno {})", .errno.negative())]
pub struct AdminError {
    /// What kernel LNet would return.
    #[serde(with = "errno_number")]
    pub errno: Errno,
    /// The kernel-side text, such as `cannot add LNet NI`: what scripts see.
    pub text: String,
    /// The reason in our own words: field, value, constraint. Tools show it as a comment behind the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The interface that was named and that the node's machine does not have, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_interface: Option<String>,
}

impl AdminError {
    /// Why nothing is there to be asked or changed, and what helps.
    pub const NOT_CONFIGURED: &str = "LNet is not configured: lnetctl lnet configure starts it";

    /// `errno` with its own text, such as `Network is down`.
    pub fn errno(errno: Errno) -> Self {
        Self::new(errno, errno.to_string())
    }

    /// `errno` with the kernel-side text.
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, text: text.into(), detail: None, no_interface: None }
    }

    /// The user lacks the right; `detail` names the user, the request and the right.
    pub fn not_permitted(detail: impl ToString) -> Self {
        Self::errno(Errno::EPERM).because(detail)
    }

    /// Whether it is a refusal of that kind. The node's own refusals with that number have texts of
    /// their own.
    pub fn is_not_permitted(&self) -> bool {
        self.errno == Errno::EPERM && self.text == Errno::EPERM.to_string()
    }

    /// The same with a reason.
    #[must_use]
    pub fn because(mut self, detail: impl ToString) -> Self {
        self.detail = Some(detail.to_string());
        self
    }
}

/// An errno is its positive number.
mod errno_number {
    use lnet_types::Errno;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(errno: &Errno, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_i32(errno.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Errno, D::Error> {
        i32::deserialize(d).map(Errno)
    }
}

/// The other side does not speak this protocol, or not this version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A frame longer than allowed. The connection cannot go on.
    #[error("frame of {len} bytes: at most {max} are allowed")]
    TooLong {
        /// Its length, bytes.
        len: u64,
        /// The most that is allowed, bytes.
        max: u32,
    },
    /// The two sides were not built for the same protocol.
    #[error("protocol version {theirs}: this side speaks version {ours}")]
    Version {
        /// The version of the other side.
        theirs: u32,
        /// The version of this side ([`crate::VERSION`]).
        ours: u32,
    },
    /// Not JSON, or not a message of this version.
    #[error("malformed message: {0}")]
    Malformed(String),
    /// The reply belongs to another request.
    #[error("reply to request {got}: expected one to request {expected}")]
    Id {
        /// The number in the reply.
        got: u64,
        /// The number of the request.
        expected: u64,
    },
}

impl ProtocolError {
    /// What the client of the tool gets to see.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::TooLong { .. } => Errno::EMSGSIZE,
            Self::Version { .. } | Self::Malformed(_) | Self::Id { .. } => Errno::EPROTO,
        }
    }
}
