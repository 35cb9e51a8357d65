//! The value block of a resource: attributes that travel with its locks (L-1, L-18).

use lustre_wire::ldlm::Lvb;

/// Bytes of an opaque value block at most.
pub const VALUE_MAX: usize = 1024;

/// Value block of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Attributes of an object.
    Object(Lvb),
    /// Anything else, at most [`VALUE_MAX`] bytes; longer ones are cut.
    Bytes(Box<[u8]>),
}

impl Value {
    /// Bytes as a value block.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.get(..VALUE_MAX).unwrap_or(bytes).into())
    }

    /// Size of the object, for glimpses (L-35); 0 of anything but an object.
    pub(super) const fn size(&self) -> u64 {
        match self {
            Self::Object(lvb) if lvb.error().is_none() => lvb.size,
            _ => 0,
        }
    }

    /// Takes over what a client says of an object it holds a lock on: size, times and blocks increase,
    /// never decrease (L-34). An error is no data (L-18).
    pub(super) fn grow(&mut self, seen: &Lvb) {
        let Self::Object(lvb) = self else { return };
        if seen.error().is_some() {
            return;
        }
        lvb.size = lvb.size.max(seen.size);
        lvb.blocks = match lvb.error() {
            Some(_) => seen.blocks,
            None => lvb.blocks.max(seen.blocks),
        };
        let later = |at: (i64, u32), seen: (i64, u32)| at.max(seen);
        (lvb.mtime, lvb.mtime_ns) = later((lvb.mtime, lvb.mtime_ns), (seen.mtime, seen.mtime_ns));
        (lvb.atime, lvb.atime_ns) = later((lvb.atime, lvb.atime_ns), (seen.atime, seen.atime_ns));
        (lvb.ctime, lvb.ctime_ns) = later((lvb.ctime, lvb.ctime_ns), (seen.ctime, seen.ctime_ns));
    }
}
