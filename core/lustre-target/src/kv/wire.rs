//! Opcodes and buffers of the key-value target, for both ends.
//!
//! | operation | request buffers 1.. | reply buffers 1.. |
//! |---|---|---|
//! | put, cas | ask, key, value (or by bulk) | info |
//! | get | ask, key | info, value (or by bulk) |
//! | del | ask, key | info |
//! | list | ask, key to begin after, prefix | info, listing |

use lnet_types::ByteOrder;
use lustre_wire::{Buffers, Layout, Msg, Opcode};
use ptlrpc::{Answer, Call};

/// Most bytes of a key.
pub const KEY_MAX: usize = 255;
/// Most bytes of a value inside of a message.
pub const INLINE_MAX: usize = 16 << 10;
/// Most bytes of a value.
pub const VALUE_MAX: u64 = 64 << 20;
/// Most keys in one listing.
pub const LIST_MAX: usize = 1000;
/// Most bytes of a listing.
pub const LISTING_MAX: usize = 60 << 10;

/// What is asked of a key. The numbers are of no kind that Lustre has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Stores a value.
    Put = 20_480,
    /// Reads a value.
    Get,
    /// Stores a value if the key has the expected version.
    Cas,
    /// Removes a key.
    Del,
    /// Lists keys.
    List,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Put, Self::Get, Self::Cas, Self::Del, Self::List];

    /// The name, in the manner of those that Lustre has.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "KV_PUT",
            Self::Get => "KV_GET",
            Self::Cas => "KV_CAS",
            Self::Del => "KV_DEL",
            Self::List => "KV_LIST",
        }
    }

    /// The opcode.
    pub const fn opcode(self) -> Opcode {
        Opcode(self as u32)
    }

    /// The operation of an opcode.
    pub fn of(opcode: Opcode) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.opcode() == opcode)
    }

    /// Whether it may change something.
    pub const fn changes(self) -> bool {
        matches!(self, Self::Put | Self::Cas | Self::Del)
    }

    /// Whether a value goes to the target.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Cas)
    }
}

/// The first buffer of a request: 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Cas: the version that the key must have; 0: it must not exist.
    pub expect: u64,
    /// Bytes of bulk data, 0 for none. List: most keys.
    pub len: u64,
}

impl Ask {
    /// As it is written.
    const fn words(self) -> [u64; 3] {
        [self.expect, self.len, 0]
    }

    /// The value of a buffer; `None` for another length.
    pub fn read(order: ByteOrder, b: &[u8]) -> Option<Self> {
        let [expect, len, _] = <[u64; 3]>::parse_exact(order, b).ok()?;
        Some(Self { expect, len })
    }
}

/// What else a reply says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoFlags(u64);

impl InfoFlags {
    /// The change has happened.
    pub const APPLIED: Self = Self(1);
    /// The value is too large for a message.
    pub const LARGE: Self = Self(2);
    /// There are further keys.
    pub const MORE: Self = Self(4);

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub(super) fn set(&mut self, flags: Self, on: bool) {
        self.0 = if on { self.0 | flags.0 } else { self.0 & !flags.0 };
    }
}

/// The first buffer of a reply: 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The version of the key; 0: it does not exist.
    pub version: u64,
    /// The version before a change.
    pub previous: u64,
    /// Bytes of the value or listing.
    pub len: u64,
    /// What else is to be said.
    pub flags: InfoFlags,
}

impl Info {
    const LEN: u32 = 32;

    /// An answer with more buffers behind.
    pub(super) fn answer(self, more: &[&[u8]]) -> Answer {
        let words = [self.version, self.previous, self.len, self.flags.0];
        let mut buffers = Buffers::new().layout(&words);
        buffers.extend(more);
        Answer { buffers, ..Answer::default() }
    }

    /// What a reply says; `None` if its first buffer has another length.
    pub fn of(msg: &Msg<'_>) -> Option<Self> {
        let [version, previous, len, flags] =
            <[u64; 4]>::parse_exact(msg.order, msg.buffer(1)?).ok()?;
        Some(Self { version, previous, len, flags: InfoFlags(flags) })
    }
}

/// The call of an operation. A value in `value` goes inside of the message; for bulk data it is
/// empty, and `ask` has their length.
pub fn call(operation: Operation, ask: Ask, key: &[u8], value: &[u8]) -> Call {
    let buffers = Buffers::new().layout(&ask.words()).bytes(key).bytes(value);
    let more = match operation {
        Operation::Get => INLINE_MAX,
        Operation::List => LISTING_MAX,
        _ => return Call::new(operation.opcode(), buffers).answered_by(&[Info::LEN]),
    };
    Call::new(operation.opcode(), buffers).answered_by(&[Info::LEN, more as u32])
}

/// A key in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its version.
    pub version: u64,
    /// Bytes of its value.
    pub len: u64,
}

/// A listing of as many keys as have room; whether some had none.
pub(super) fn write_listing<'a>(
    items: impl Iterator<Item = (&'a [u8], u64, u64)>,
) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    for (key, version, len) in items {
        let Ok(key_len) = u8::try_from(key.len()) else { continue };
        if out.len() + 17 + key.len() > LISTING_MAX {
            return (out, true);
        }
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        out.push(key_len);
        out.extend_from_slice(key);
    }
    (out, false)
}

/// The keys of a listing; `None` if it is none.
pub fn read_listing(mut b: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !b.is_empty() {
        let (version, rest) = b.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (key_len, rest) = rest.split_first()?;
        let (key, rest) = rest.split_at_checked(usize::from(*key_len))?;
        let (version, len) = (u64::from_le_bytes(*version), u64::from_le_bytes(*len));
        entries.push(Entry { key: key.to_vec(), version, len });
        b = rest;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_operation_has_an_opcode_that_lustre_has_not() {
        for operation in Operation::ALL {
            assert_eq!(Operation::of(operation.opcode()), Some(operation));
            assert!(operation.opcode().row().is_none(), "{operation:?}");
        }
        // All of them, and no other.
        let known = (20_400..20_500).filter(|n| Operation::of(Opcode(*n)).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [20_480, 20_481, 20_482, 20_483, 20_484]);
        assert_eq!(Operation::List.opcode(), Opcode(20_484));
        assert_eq!(Operation::of(Opcode::OST_READ), None);
    }

    #[test]
    fn listing_without_room_says_that_it_was_cut() {
        let key = [7; KEY_MAX];
        let (listing, cut) = write_listing((0..1000).map(|i| (&key[..], i, 1)));
        assert!(cut && listing.len() <= LISTING_MAX);
        let entries = read_listing(&listing).unwrap();
        assert_eq!(entries.len(), LISTING_MAX / (17 + KEY_MAX));
        assert_eq!(entries.last().map(|e| e.version), Some(entries.len() as u64 - 1));
    }

    proptest! {
        #[test]
        fn listing_is_read_as_it_was_written(
            entries in proptest::collection::vec((any::<Vec<u8>>(), any::<u64>(), any::<u64>()), 0..20),
        ) {
            let rows = entries.iter().map(|(key, version, len)| (key.as_slice(), *version, *len));
            let (listing, cut) = write_listing(rows.clone());
            let entry = |(key, version, len): (&[u8], _, _)| Entry { key: key.to_vec(), version, len };
            prop_assert_eq!(read_listing(&listing), Some(rows.map(entry).collect::<Vec<_>>()));
            prop_assert!(!cut);
        }

        #[test]
        fn any_bytes_are_a_listing_or_none(bytes in any::<Vec<u8>>()) {
            if let Some(entries) = read_listing(&bytes) {
                let again = entries.iter().map(|e| (e.key.as_slice(), e.version, e.len));
                prop_assert_eq!(write_listing(again).0, bytes);
            }
        }
    }
}
