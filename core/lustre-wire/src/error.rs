//! Why bytes were refused.

use thiserror::Error;

/// Bytes that are not what they should be. Names the structure, the field and the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the structure does.
    #[error("{what}: {have} bytes, expected at least {need}")]
    Short {
        /// The structure.
        what: &'static str,
        /// Bytes that are needed.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A buffer of a fixed size has another one.
    #[error("{what}: {have} bytes, expected {need}")]
    Size {
        /// The structure.
        what: &'static str,
        /// Bytes that are expected; of an array, the size of an element.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// The message begins with a number that is the magic in neither byte order.
    #[error("message: magic {magic:#010x} (read as little-endian): expected 0x0bd00bd3")]
    Magic {
        /// The four bytes, read as a little-endian number.
        magic: u32,
    },
    /// The low half of the version word is another protocol version.
    #[error("{what}: version {version:#x}: expected {expected:#x} in the low half")]
    Version {
        /// The structure.
        what: &'static str,
        /// The version word.
        version: u32,
        /// The version that is known.
        expected: u32,
    },
    /// A field holds a value that the protocol does not know.
    #[error("{what}: {field} {value:#x} is not known")]
    Value {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A count or length outside of its limits.
    #[error("{what}: {field} {value}: expected {min} to {max}")]
    Limit {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// The message has no buffer with this index.
    #[error("{what}: buffer {index} is missing, the message has {count}")]
    Missing {
        /// The structure that was looked for.
        what: &'static str,
        /// Index of the buffer.
        index: usize,
        /// Buffers of the message.
        count: usize,
    },
    /// A text buffer without its NUL.
    #[error("{what}: a text of {len} bytes must end with NUL")]
    Unterminated {
        /// The structure.
        what: &'static str,
        /// Length of the buffer.
        len: usize,
    },
}
