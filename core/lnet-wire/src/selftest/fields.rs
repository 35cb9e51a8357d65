//! Numbers, names and session ids in sequence, in the order of the sender. A layout is a sequence of
//! fields, so reading and writing are made from one table and cannot differ.

use lnet_types::Nid;

use super::{Name, SessionId};
use crate::ByteOrder;

/// Reads fields from the front. Layouts are checked at compile time to fit a message, so there is
/// always enough; if not, zeros.
pub(super) struct Reader<'a> {
    pub(super) order: ByteOrder,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(order: ByteOrder, rest: &'a [u8]) -> Self {
        Self { order, rest }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.rest.split_first_chunk::<N>() else { return [0; N] };
        self.rest = rest;
        *field
    }
}

/// Writes fields from the front.
pub(super) struct Writer<'a> {
    pub(super) order: ByteOrder,
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    pub(super) const fn new(order: ByteOrder, rest: &'a mut [u8]) -> Self {
        Self { order, rest }
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let rest = core::mem::take(&mut self.rest);
        if let Some((field, rest)) = rest.split_first_chunk_mut::<N>() {
            *field = bytes;
            self.rest = rest;
        }
    }
}

/// What a layout is made of.
pub(super) trait Field: Sized {
    /// Bytes on the wire.
    const LEN: usize;
    fn read(r: &mut Reader<'_>) -> Self;
    fn write(&self, w: &mut Writer<'_>);
}

macro_rules! numbers {
    ($($ty:ident $len:literal)*) => {$(
        impl Field for $ty {
            const LEN: usize = $len;

            fn read(r: &mut Reader<'_>) -> Self {
                let bytes = r.take();
                match r.order {
                    ByteOrder::Little => Self::from_le_bytes(bytes),
                    ByteOrder::Big => Self::from_be_bytes(bytes),
                }
            }

            fn write(&self, w: &mut Writer<'_>) {
                w.put(match w.order {
                    ByteOrder::Little => self.to_le_bytes(),
                    ByteOrder::Big => self.to_be_bytes(),
                });
            }
        }
    )*};
}

numbers!(u8 1 u16 2 u32 4 u64 8 i64 8);

impl Field for [u8; 12] {
    const LEN: usize = 12;

    fn read(r: &mut Reader<'_>) -> Self {
        r.take()
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.put(*self);
    }
}

impl Field for Name {
    const LEN: usize = Self::LEN;

    fn read(r: &mut Reader<'_>) -> Self {
        Self::from_wire(r.take())
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.put(*self.as_wire());
    }
}

impl Field for SessionId {
    const LEN: usize = 16;

    fn read(r: &mut Reader<'_>) -> Self {
        Self { nid: Nid::from_nid4(u64::read(r)), stamp: i64::read(r) }
    }

    fn write(&self, w: &mut Writer<'_>) {
        // A large NID has no short form; consoles use short ones (6.2).
        self.nid.to_nid4().unwrap_or(Nid::NID4_ANY).write(w);
        self.stamp.write(w);
    }
}
