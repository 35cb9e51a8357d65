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
