//! Structures of a fixed length: where each field stands, once, for both byte orders.
//!
//! [`layout!`](crate::layout) declares a structure with the offsets of its fields; the gaps are
//! padding, written as zeros and ignored on receipt (P-4). `codes!` declares a word with named
//! values, `flags!` one with named bits; both keep values without a name. Reading never fails: the
//! length is checked before, in [`Layout::parse`] or by [`Msg`](crate::Msg).

use core::fmt;

use lnet_types::ByteOrder;

use crate::WireError;

/// A value with a fixed place of [`LEN`](Self::LEN) bytes.
pub trait Layout: Sized {
    /// Bytes on the wire.
    const LEN: usize;
    /// What errors call it.
    const NAME: &'static str;

    /// The value in the first [`LEN`](Self::LEN) bytes of `b`; bytes that are missing count as 0.
    fn get(order: ByteOrder, b: &[u8]) -> Self;

    /// Writes the value to the first [`LEN`](Self::LEN) bytes of `out`, padding included, as far as
    /// there are that many.
    fn put(&self, order: ByteOrder, out: &mut [u8]);

    /// The value at the front of `b`.
    ///
    /// # Errors
    /// Fewer bytes than [`LEN`](Self::LEN).
    fn parse(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        if b.len() < Self::LEN {
            return Err(WireError::Short { what: Self::NAME, need: Self::LEN, have: b.len() });
        }
        Ok(Self::get(order, b))
    }

    /// The value, if `b` has exactly its length.
    ///
    /// # Errors
    /// Another length than [`LEN`](Self::LEN).
    fn parse_exact(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        if b.len() != Self::LEN {
            return Err(WireError::Size { what: Self::NAME, need: Self::LEN, have: b.len() });
        }
        Ok(Self::get(order, b))
    }

    /// The bytes of the value.
    fn to_bytes(&self, order: ByteOrder) -> Vec<u8> {
        let mut out = vec![0; Self::LEN];
        self.put(order, &mut out);
        out
    }
}

/// The `len` bytes at `at`, or as many as there are.
#[inline]
pub(crate) fn part(b: &[u8], at: usize, len: usize) -> &[u8] {
    let rest = b.get(at..).unwrap_or_default();
    rest.get(..len).unwrap_or(rest)
}

/// The same, to be written.
#[inline]
pub(crate) fn part_mut(b: &mut [u8], at: usize, len: usize) -> &mut [u8] {
    let rest = b.get_mut(at..).unwrap_or_default();
    let len = len.min(rest.len());
    rest.get_mut(..len).unwrap_or_default()
}

macro_rules! number {
    ($($ty:ident)*) => { $(
        impl Layout for $ty {
            const LEN: usize = size_of::<Self>();
            const NAME: &'static str = stringify!($ty);

            #[inline]
            fn get(order: ByteOrder, b: &[u8]) -> Self {
                let bytes = match b.first_chunk() {
                    Some(bytes) => *bytes,
                    None => {
                        let mut bytes = [0; size_of::<Self>()];
                        bytes.iter_mut().zip(b).for_each(|(to, from)| *to = *from);
                        bytes
                    }
                };
                match order {
                    ByteOrder::Little => Self::from_le_bytes(bytes),
                    ByteOrder::Big => Self::from_be_bytes(bytes),
                }
            }

            #[inline]
            fn put(&self, order: ByteOrder, out: &mut [u8]) {
                let bytes = match order {
                    ByteOrder::Little => self.to_le_bytes(),
                    ByteOrder::Big => self.to_be_bytes(),
                };
                match out.first_chunk_mut() {
                    Some(out) => *out = bytes,
                    None => out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from),
                }
            }
        }
    )* };
}
number!(u8 u16 u32 u64 i32 i64);

impl<T: Layout + Copy + Default, const N: usize> Layout for [T; N] {
    const LEN: usize = T::LEN * N;
    const NAME: &'static str = T::NAME;

    #[inline(always)]
    fn get(order: ByteOrder, b: &[u8]) -> Self {
        let mut values = [T::default(); N];
        for (at, value) in values.iter_mut().enumerate() {
            *value = T::get(order, part(b, at * T::LEN, T::LEN));
        }
        values
    }

    #[inline(always)]
    fn put(&self, order: ByteOrder, out: &mut [u8]) {
        for (at, value) in self.iter().enumerate() {
            value.put(order, part_mut(out, at * T::LEN, T::LEN));
        }
    }
}

/// A text in a field of `N` bytes, which ends at the first NUL or with the field. What follows the
/// NUL is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// The text in a field, with a NUL behind it.
    ///
    /// # Errors
    /// A text that leaves no room for its NUL.
    pub fn new(text: &str) -> Result<Self, WireError> {
        let mut bytes = [0; N];
        if text.len() >= N {
            let (value, max) = (text.len() as u64, N.saturating_sub(1) as u64);
            return Err(WireError::Limit { what: "text", field: "length", value, min: 0, max });
        }
        bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        Ok(Self(bytes))
    }

    /// The bytes before the first NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|b| *b == 0).next().unwrap_or_default()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl<const N: usize> Layout for Text<N> {
    const LEN: usize = N;
    const NAME: &'static str = "text";

    #[inline]
    fn get(_: ByteOrder, b: &[u8]) -> Self {
        let mut bytes = [0; N];
        match b.first_chunk() {
            Some(field) => bytes = *field,
            None => bytes.iter_mut().zip(b).for_each(|(to, from)| *to = *from),
        }
        Self(bytes)
    }

    #[inline]
    fn put(&self, _: ByteOrder, out: &mut [u8]) {
        match out.first_chunk_mut() {
            Some(field) => *field = self.0,
            None => out.iter_mut().zip(self.0).for_each(|(to, from)| *to = from),
        }
    }
}

/// Declares a structure: its name in errors, its length, and its fields with their offsets.
/// Offsets must ascend without overlap; the compiler checks it.
macro_rules! layout {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident($label:literal, $len:literal) {
            $($(#[$field_meta:meta])* $at:literal $field:ident: $ty:ty,)*
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl $crate::Layout for $name {
            const LEN: usize = $len;
            const NAME: &'static str = $label;

            fn get(order: lnet_types::ByteOrder, b: &[u8]) -> Self {
                #[inline(always)]
                fn read(order: lnet_types::ByteOrder, whole: &[u8; $len]) -> $name {
                    $name {
                        $($field: {
                            const LEN: usize = <$ty as $crate::Layout>::LEN;
                            let field = $crate::layout::part(whole, $at, LEN);
                            <$ty as $crate::Layout>::get(order, field)
                        },)*
                    }
                }
                // In an array the place of each field is known to be there.
                let mut padded = [0; $len];
                let whole: &[u8; $len] = match b.first_chunk() {
                    Some(whole) => whole,
                    None => {
                        padded.iter_mut().zip(b).for_each(|(to, from)| *to = *from);
                        &padded
                    }
                };
                // The order is asked for once, and not for each field.
                match order {
                    lnet_types::ByteOrder::Little => read(lnet_types::ByteOrder::Little, whole),
                    lnet_types::ByteOrder::Big => read(lnet_types::ByteOrder::Big, whole),
                }
            }

            fn put(&self, order: lnet_types::ByteOrder, out: &mut [u8]) {
                #[inline(always)]
                fn write(value: &$name, order: lnet_types::ByteOrder, whole: &mut [u8; $len]) {
                    *whole = [0; $len];
                    $({
                        const LEN: usize = <$ty as $crate::Layout>::LEN;
                        let field = $crate::layout::part_mut(whole, $at, LEN);
                        $crate::Layout::put(&value.$field, order, field);
                    })*
                }
                // In an array the place of each field is known to be there.
                let Some(whole) = out.first_chunk_mut::<{ $len }>() else {
                    let mut whole = [0; $len];
                    self.put(order, &mut whole);
                    return out.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
                };
                // The order is asked for once, and not for each field.
                match order {
                    lnet_types::ByteOrder::Little => {
                        write(self, lnet_types::ByteOrder::Little, whole);
                    }
                    lnet_types::ByteOrder::Big => write(self, lnet_types::ByteOrder::Big, whole),
                }
            }
        }

        const _: () = {
            let end = 0;
            $(
                assert!($at >= end, concat!(stringify!($field), " overlaps what is before it"));
                let end = $at + <$ty as $crate::Layout>::LEN;
            )*
            assert!(end <= $len);
        };
    )* };
}
pub(crate) use layout;

/// Declares a word with named values. Values without a name are kept.
macro_rules! codes {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident($ty:ident) {
            $($(#[$value_meta:meta])* $value:ident = $number:literal $text:literal,)*
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $ty);

        impl $name {
            $($(#[$value_meta])* pub const $value: Self = Self($number);)*

            /// The name of the value, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl $crate::Layout for $name {
            const LEN: usize = <$ty as $crate::Layout>::LEN;
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn get(order: lnet_types::ByteOrder, b: &[u8]) -> Self {
                Self(<$ty as $crate::Layout>::get(order, b))
            }

            #[inline]
            fn put(&self, order: lnet_types::ByteOrder, out: &mut [u8]) {
                $crate::Layout::put(&self.0, order, out);
            }
        }
    )* };
}
pub(crate) use codes;

/// Declares a word with named bits. Bits without a name are kept; the text form shows them as
/// numbers, each on its own, and 0 as `0`.
macro_rules! flags {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident($ty:ident) {
            $($(#[$($bit_meta:tt)*])* $bit:ident = $number:expr, $text:literal;)*
        }
    )*) => { $(
        bitflags::bitflags! {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: $ty {
                $($(#[$($bit_meta)*])* const $bit = $number;)*
                const _ = !0;
            }
        }

        impl $name {
            /// Names of the bits, in ascending order.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$bit, $text),)*];
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let name = |bit| {
                    let named = Self::NAMES.iter().find(|(flag, _)| flag.bits() == bit);
                    named.map(|(_, name)| *name)
                };
                $crate::layout::write_bits(f, u64::from(self.bits()), |bit| {
                    $ty::try_from(bit).ok().and_then(name)
                })
            }
        }

        impl $crate::Layout for $name {
            const LEN: usize = <$ty as $crate::Layout>::LEN;
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn get(order: lnet_types::ByteOrder, b: &[u8]) -> Self {
                Self::from_bits_retain(<$ty as $crate::Layout>::get(order, b))
            }

            #[inline]
            fn put(&self, order: lnet_types::ByteOrder, out: &mut [u8]) {
                $crate::Layout::put(&self.bits(), order, out);
            }
        }
    )* };
}
pub(crate) use flags;

/// Writes the names of the bits of `word`, lowest first, with `|` between them.
pub(crate) fn write_bits(
    f: &mut fmt::Formatter<'_>,
    word: u64,
    name: impl Fn(u64) -> Option<&'static str>,
) -> fmt::Result {
    if word == 0 {
        return f.write_str("0");
    }
    let mut rest = word;
    while rest != 0 {
        let bit = rest & rest.wrapping_neg();
        rest &= !bit;
        match name(bit) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "{bit:#x}")?,
        }
        if rest != 0 {
            f.write_str("|")?;
        }
    }
    Ok(())
}
