//! How much more of a message a reader must wait for, and room for what is written.

use lnet_types::Nid;

use crate::WireError;

/// How long a message is, judged by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Not known yet: ask again when this many bytes of the message are there.
    AtLeast(usize),
    /// The whole message has this many bytes.
    Exactly(usize),
}

impl Need {
    /// Total bytes of the message that must be there before the next step.
    pub const fn bytes(self) -> usize {
        match self {
            Self::AtLeast(n) | Self::Exactly(n) => n,
        }
    }
}

/// The first four bytes, or how many are missing.
pub(crate) fn first4(what: &'static str, b: &[u8]) -> Result<[u8; 4], WireError> {
    b.first_chunk().copied().ok_or(WireError::Short { what, need: 4, have: b.len() })
}

/// The 8-byte form of `nid` for the field `field`, or why there is none.
pub(crate) fn short_nid(
    nid: Nid,
    what: &'static str,
    field: &'static str,
) -> Result<u64, WireError> {
    nid.to_nid4().ok_or(WireError::LargeNid { what, field })
}

/// The part of `out` that takes `len` bytes, or why it does not.
pub(crate) fn room<'a>(
    what: &'static str,
    out: &'a mut [u8],
    len: usize,
) -> Result<&'a mut [u8], WireError> {
    let have = out.len();
    out.get_mut(..len).ok_or(WireError::Short { what, need: len, have })
}
