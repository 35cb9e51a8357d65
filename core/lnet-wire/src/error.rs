//! Why bytes were refused.

use lnet_types::NidError;
use thiserror::Error;

/// Bytes that are not what they should be. Names the message, the field and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the message does.
    #[error("{what}: {have} bytes, expected at least {need}")]
    Short {
        /// The message.
        what: &'static str,
        /// Bytes that are needed.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// The message begins with a number that is none of its magic numbers in any byte order.
    #[error("{what}: magic {magic:#010x} (read as little-endian) is not known")]
    Magic {
        /// The message.
        what: &'static str,
        /// The first four bytes, read as a little-endian number.
        magic: u32,
    },
    /// The magic is right, the version is none that we know. Some receivers answer this (wire.md
    /// 2.4, 3.4), so it has a variant of its own.
    #[error("{what}: version {version:#x} is not known")]
    Version {
        /// The message.
        what: &'static str,
        /// The version, in the order of the sender.
        version: u32,
    },
    /// A field holds a value that the protocol does not know.
    #[error("{what}: {field} is {value:#x}")]
    Value {
        /// The message.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A count or length beyond its limit.
    #[error("{what}: {field} is {value}, at most {max} allowed")]
    Limit {
        /// The message.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// The limit.
        max: u64,
    },
    /// A NID field that is no NID.
    #[error("{what}: {field}: {source}")]
    Nid {
        /// The message.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: NidError,
    },
    /// A large NID where only 8 bytes are on the wire.
    #[error("{what}: {field}: a 16-byte address does not fit the short form")]
    LargeNid {
        /// The message.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
}
