//! The descriptor of remote memory: a key and fragments (wire.md 7.3). The receiver of a descriptor
//! writes into the fragments in their order.

use core::fmt;
use core::mem::{offset_of, size_of};

use smallvec::SmallVec;
use zerocopy::byteorder::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FRAGS_MAX;
use crate::WireError;
use crate::order::room;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead<O: zerocopy::ByteOrder> {
    key: U32<O>,
    count: U32<O>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFrag<O: zerocopy::ByteOrder> {
    nob: U32<O>,
    addr: U64<O>,
}

type Le = zerocopy::byteorder::LittleEndian;
const HEAD: usize = size_of::<RawHead<Le>>();
const FRAG: usize = size_of::<RawFrag<Le>>();
const _: () = {
    assert!(HEAD == 8 && FRAG == 12);
    assert!(offset_of!(RawHead<Le>, count) == 4);
    assert!(offset_of!(RawFrag<Le>, addr) == 4);
};

/// A contiguous piece of remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frag {
    /// Its address, as the remote adapter understands it.
    pub addr: u64,
    /// Its length, bytes.
    pub nob: u32,
}

/// Remote memory that may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDesc {
    /// The key that the remote adapter asks for.
    pub key: u32,
    /// The pieces, 1 to [`FRAGS_MAX`], in the order in which they are filled.
    pub frags: SmallVec<[Frag; 1]>,
}

impl RdmaDesc {
    /// Total length of the fragments, bytes.
    pub fn nob(&self) -> u64 {
        self.frags.iter().map(|f| u64::from(f.nob)).sum()
    }

    /// Bytes on the wire.
    pub fn wire_len(&self) -> usize {
        HEAD + FRAG * self.frags.len()
    }

    /// Reads a descriptor from the front of `b`.
    ///
    /// # Errors
    /// Too few bytes; no fragment, or more than [`FRAGS_MAX`].
    pub(super) fn parse<O: zerocopy::ByteOrder>(
        what: &'static str,
        b: &[u8],
    ) -> Result<Self, WireError> {
        let short = |need| WireError::Short { what, need, have: b.len() };
        let (head, rest) = RawHead::<O>::ref_from_prefix(b).map_err(|_| short(HEAD))?;
        let count = check_count(what, u64::from(head.count.get()))?;
        let (frags, _) = <[RawFrag<O>]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| short(HEAD + FRAG * count))?;
        let frags = frags.iter().map(|f| Frag { addr: f.addr.get(), nob: f.nob.get() });
        Ok(Self { key: head.key.get(), frags: frags.collect() })
    }

    /// Writes the descriptor to the front of `out`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(super) fn emit<O: zerocopy::ByteOrder>(
        &self,
        what: &'static str,
        out: &mut [u8],
    ) -> Result<(), WireError> {
        check_count(what, self.frags.len() as u64)?;
        let out = room(what, out, self.wire_len())?;
        let (head, rest) = out.split_at_mut(HEAD);
        let raw =
            RawHead::<O> { key: U32::new(self.key), count: U32::new(self.frags.len() as u32) };
        head.copy_from_slice(raw.as_bytes());
        for (to, frag) in rest.chunks_exact_mut(FRAG).zip(&self.frags) {
            let raw = RawFrag::<O> { nob: U32::new(frag.nob), addr: U64::new(frag.addr) };
            to.copy_from_slice(raw.as_bytes());
        }
        Ok(())
    }
}

fn check_count(what: &'static str, count: u64) -> Result<usize, WireError> {
    match usize::try_from(count) {
        Ok(0) => Err(WireError::Value { what, field: "fragments", value: 0 }),
        Ok(n) if n <= FRAGS_MAX => Ok(n),
        _ => {
            let max = FRAGS_MAX as u64;
            Err(WireError::Limit { what, field: "fragments", value: count, max })
        }
    }
}

impl fmt::Display for RdmaDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:#x} {} bytes in {}", self.key, self.nob(), self.frags.len())
    }
}
