//! The byte order of a sender.

use core::fmt;

/// The byte order in which a peer sends the fields that follow its host order. A magic number
/// announces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// What x86 and arm64 send, and what we send first, always (DEC-35).
    #[default]
    Little,
    /// The other one.
    Big,
}

impl ByteOrder {
    /// The order in which `bytes` spell `magic`, if either does.
    pub const fn of_magic(bytes: [u8; 4], magic: u32) -> Option<Self> {
        if u32::from_le_bytes(bytes) == magic {
            Some(Self::Little)
        } else if u32::from_be_bytes(bytes) == magic {
            Some(Self::Big)
        } else {
            None
        }
    }
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        })
    }
}
