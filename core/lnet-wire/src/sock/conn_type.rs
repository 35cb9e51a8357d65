//! What a connection is for, seen from the node that calls it so (wire.md 3.5).

use core::fmt;

/// The type of a connection as a HELLO carries it. Unknown numbers are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnType(pub u32);

impl ConnType {
    /// Everything goes on it (versions 1 and 2).
    pub const ANY: Self = Self(0);
    /// Messages below the bulk threshold.
    pub const CONTROL: Self = Self(1);
    /// We receive bulk on it.
    pub const BULK_IN: Self = Self(2);
    /// We send bulk on it.
    pub const BULK_OUT: Self = Self(3);
    /// No connection: only in a HELLO that refuses one.
    pub const NONE: Self = Self(u32::MAX);

    /// What the other end calls the same connection. `None` for what is no type of a connection:
    /// [`NONE`](Self::NONE) and unknown numbers.
    pub const fn inverse(self) -> Option<Self> {
        match self {
            Self::ANY | Self::CONTROL => Some(self),
            Self::BULK_IN => Some(Self::BULK_OUT),
            Self::BULK_OUT => Some(Self::BULK_IN),
            _ => None,
        }
    }
}

impl fmt::Display for ConnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ANY => f.write_str("ANY"),
            Self::CONTROL => f.write_str("CONTROL"),
            Self::BULK_IN => f.write_str("BULK_IN"),
            Self::BULK_OUT => f.write_str("BULK_OUT"),
            Self::NONE => f.write_str("NONE"),
            Self(other) => write!(f, "{other:#x}"),
        }
    }
}

impl fmt::Debug for ConnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
