//! The mark of a message: the name of its session and its number in it, by which two nodes of this
//! kind tell a repeated message from a new one (DEC-6, `docs/duplicates.md`). A mark stands in bytes
//! that receivers return or ignore, and that routers of any kind forward unchanged (wire.md 4.3):
//!
//! | kind | where |
//! |---|---|
//! | PUT, GET | the handle: `interface` is the name, `object` as below |
//! | ACK | the 12 bytes behind the body: the name, then the lower half of `object` |
//! | REPLY | the first 12 of the 24 bytes behind the body, likewise |
//!
//! | bits of `object` | what |
//! |---|---|
//! | 63 | no ACK is wanted: the PUT would bear [`Handle::NONE`] |
//! | 32 … 62 | key by which the sender finds its descriptor again |
//! | 31 | further copy: an earlier one may have arrived |
//! | 0 … 30 | number of the message in the session |

use core::fmt;

use crate::{Handle, Kind};

/// The name of a session: twelve fixed bits, and 52 that only its bearer and its peers
/// have. A node's interface cookie is a wall-clock time in nanoseconds, which has the highest bit
/// clear until the year 2262, so that no cookie is taken for a name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct SessionName(u64);

impl SessionName {
    const TAG: u64 = 0xD5E << 52;
    const FREE: u64 = (1 << 52) - 1;

    /// The name with these lower 52 bits.
    pub const fn new(bits: u64) -> Self {
        Self(Self::TAG | bits & Self::FREE)
    }

    /// The name that a word is, if it has the tag of names.
    pub const fn of(word: u64) -> Option<Self> {
        if word & !Self::FREE == Self::TAG { Some(Self(word)) } else { None }
    }

    /// The name as it stands on the wire.
    pub const fn word(self) -> u64 {
        self.0
    }
}

const NO_ACK: u64 = 1 << 63;
const KEY_SHIFT: u32 = 32;
const FURTHER: u32 = 1 << 31;
const NUMBER: u32 = FURTHER - 1;

/// What a marked message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Mark {
    /// The session of its sender.
    pub session: SessionName,
    /// Its number, modulo [`Self::NUMBERS`].
    number: u32,
    /// An earlier copy of it may have arrived.
    pub further: bool,
}

/// What an ACK or REPLY returns of the mark of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The session of the request.
    pub session: SessionName,
    /// The number of the request, modulo [`Mark::NUMBERS`].
    pub number: u32,
    /// The key of the request.
    pub key: u32,
}

impl Mark {
    /// Numbers are counted modulo this.
    pub const NUMBERS: u64 = 1 << 31;
    /// Keys are less than this.
    pub const KEYS: u32 = 1 << 31;

    /// The mark of message `n` of a session.
    pub const fn new(session: SessionName, n: u64, further: bool) -> Self {
        Self { session, number: n as u32 & NUMBER, further }
    }

    /// The mark of another copy of the message: a further one, or the first.
    #[must_use]
    pub const fn copy(self, further: bool) -> Self {
        Self { further, ..self }
    }

    /// The mark that a message bears, if it bears one.
    pub fn of(kind: &Kind) -> Option<Self> {
        match kind {
            Kind::Put { ack: handle, .. } | Kind::Get { ret: handle, .. } => {
                Self::read(handle.interface, handle.object as u32)
            }
            Kind::Ack { pad, .. } => Self::behind(pad),
            Kind::Reply { pad, .. } => Self::behind(pad),
        }
    }

    fn read(name: u64, word: u32) -> Option<Self> {
        let session = SessionName::of(name)?;
        Some(Self { session, number: word & NUMBER, further: word & FURTHER != 0 })
    }

    fn behind(pad: &[u8]) -> Option<Self> {
        let (name, rest) = pad.split_first_chunk()?;
        Self::read(u64::from_le_bytes(*name), u32::from_le_bytes(*rest.first_chunk()?))
    }

    const fn word(self) -> u32 {
        self.number | if self.further { FURTHER } else { 0 }
    }

    /// The same message with the mark. `key` is what a response will return, less than
    /// [`Self::KEYS`]; 0 where none is expected.
    #[must_use]
    pub fn on(self, mut kind: Kind, key: u32) -> Kind {
        self.put_on(&mut kind, key);
        kind
    }

    /// Makes of a message what [`Self::on`] gives.
    pub fn put_on(self, kind: &mut Kind, key: u32) {
        let handle = |no_ack: bool| Handle {
            interface: self.session.0,
            object: if no_ack { NO_ACK } else { u64::from(key) << KEY_SHIFT & !NO_ACK }
                | u64::from(self.word()),
        };
        match kind {
            Kind::Put { ack, .. } => *ack = handle(*ack == Handle::NONE),
            Kind::Get { ret, .. } => *ret = handle(false),
            Kind::Ack { pad, .. } => self.put_behind(pad),
            Kind::Reply { pad, .. } => self.put_behind(pad),
        }
    }

    fn put_behind(self, pad: &mut [u8]) {
        if let Some((name, rest)) = pad.split_first_chunk_mut() {
            *name = self.session.0.to_le_bytes();
            if let Some(word) = rest.first_chunk_mut() {
                *word = self.word().to_le_bytes();
            }
        }
    }

    /// The same message as a further copy, if it bears a mark.
    #[must_use]
    pub fn further_copy(mut kind: Kind) -> Option<Kind> {
        let mark = Self::of(&kind)?.copy(true);
        match &mut kind {
            Kind::Put { ack: handle, .. } | Kind::Get { ret: handle, .. } => {
                handle.object |= u64::from(FURTHER);
            }
            Kind::Ack { pad, .. } => mark.put_behind(pad),
            Kind::Reply { pad, .. } => mark.put_behind(pad),
        }
        Some(kind)
    }

    /// The same message as its receiver is to treat it: a PUT whose mark says so requests no ACK. A
    /// handle that an ACK or REPLY returns stays as it came.
    #[must_use]
    pub fn off(mut kind: Kind) -> Kind {
        kind.unmark();
        kind
    }

    /// The whole number nearest to `near` that this one can be.
    pub const fn number_near(self, near: u64) -> u64 {
        let ahead = (self.number.wrapping_sub(near as u32) & NUMBER) as u64;
        if ahead < Self::NUMBERS / 2 {
            near.saturating_add(ahead)
        } else {
            near.saturating_sub(Self::NUMBERS - ahead)
        }
    }

    /// The number, modulo [`Self::NUMBERS`].
    pub const fn number(self) -> u32 {
        self.number
    }
}

impl Kind {
    /// Makes it what [`Mark::off`] gives.
    pub fn unmark(&mut self) {
        if let Self::Put { ack, .. } = self
            && !ack.wants_ack()
        {
            *ack = Handle::NONE;
        }
    }
}

impl Handle {
    /// Whether a PUT with this handle requests an ACK.
    pub fn wants_ack(self) -> bool {
        self != Self::NONE
            && (self.object & NO_ACK == 0 || SessionName::of(self.interface).is_none())
    }
}

impl Returned {
    /// What a handle that came back says, if its request was marked and wanted an answer.
    pub fn of(handle: Handle) -> Option<Self> {
        let session = SessionName::of(handle.interface)?;
        if handle.object & NO_ACK != 0 {
            return None;
        }
        let key = (handle.object >> KEY_SHIFT) as u32;
        Some(Self { session, number: handle.object as u32 & NUMBER, key })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let further = if self.further { ", further copy" } else { "" };
        write!(f, "message {} of session {:x}{further}", self.number, self.session.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds(word: u64) -> [Kind; 5] {
        let handle = Handle { interface: 0x1000_0000_0000_0000 | word >> 4, object: word };
        let put = |ack| Kind::Put { ack, match_bits: 1, hdr_data: 2, portal: 3, offset: 4 };
        let (match_bits, portal, offset, sink_len) = (1, 2, 3, 4);
        [
            put(handle),
            put(Handle::NONE),
            Kind::Get { ret: handle, match_bits, portal, offset, sink_len, pad: [0; 4] },
            Kind::Ack { dst: handle, match_bits, mlength: 5, pad: [0; 12] },
            Kind::Reply { dst: handle, pad: [0; 24] },
        ]
    }

    proptest! {
        #[test]
        fn a_mark_is_read_as_it_was_written(
            name: u64, n: u64, further: bool, word: u64, key in 0..Mark::KEYS,
        ) {
            let mark = Mark::new(SessionName::new(name), n, further);
            for plain in kinds(word) {
                prop_assert_eq!(Mark::of(&plain), None);
                let marked = mark.on(plain, key);
                prop_assert_eq!(Mark::of(&marked), Some(mark));
                prop_assert_eq!(u64::from(mark.number()), n % Mark::NUMBERS);
                let copy = mark.copy(true).on(plain, key);
                prop_assert_eq!(Mark::further_copy(marked), Some(copy));
                prop_assert_eq!(Mark::further_copy(plain), None);
                match (plain, Mark::off(marked)) {
                    (Kind::Put { ack: Handle::NONE, .. }, off) => prop_assert_eq!(off, plain),
                    (Kind::Put { .. } | Kind::Get { .. }, off) => {
                        let (Kind::Put { ack: handle, .. } | Kind::Get { ret: handle, .. }) = off
                        else { unreachable!() };
                        let (session, number) = (mark.session, mark.number());
                        prop_assert_eq!(
                            Returned::of(handle), Some(Returned { session, number, key })
                        );
                    }
                    (_, off) => prop_assert_eq!(off, marked),
                }
            }
        }

        #[test]
        fn a_number_is_found_again_within_half_of_all_numbers(
            near in 1u64 << 40..1 << 41,
            off in -(1i64 << 30)..(1 << 30),
        ) {
            let n = near.saturating_add_signed(off);
            let mark = Mark::new(SessionName::new(0), n, false);
            prop_assert_eq!(mark.number_near(near), n);
        }
    }

    #[test]
    fn a_cookie_is_no_name_and_a_handle_that_wanted_no_answer_returns_nothing() {
        for word in [0, 1, u64::MAX, u64::MAX >> 1, 0x18F3_0000_0000_0000] {
            assert_eq!(SessionName::of(word), None, "{word:x}");
        }
        let mark = Mark::new(SessionName::new(5), 7, true);
        assert_eq!(mark.to_string(), "message 7 of session d5e0000000000005, further copy");
        let [_, put, ..] = kinds(9);
        let Kind::Put { ack, .. } = mark.on(put, 1) else { unreachable!() };
        assert_eq!((Returned::of(ack), ack.wants_ack()), (None, false));
        assert!(Handle { interface: 7, object: NO_ACK }.wants_ack());
        assert_eq!(Returned::of(Handle { interface: 7, object: 8 }), None);
    }
}
