//! Cookies of locks: place and turn of the lock's record, mixed with a key. The mixing can be undone, so
//! no two records have one cookie, and no table is needed to find the record.

use crate::Cookie;

const A: u64 = 0x9E37_79B9_7F4A_7C15;
const B: u64 = 0xBF58_476D_1CE4_E5B9;

/// The number whose product with an odd number is 1.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut rounds = 0;
    while rounds < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        rounds += 1;
    }
    x
}

const fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(A);
    let x = (x ^ x >> 32).wrapping_mul(B);
    x ^ x >> 32
}

const fn unmix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(inverse(B));
    (x ^ x >> 32).wrapping_mul(inverse(A))
}

/// The key of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookies(u64);

impl Cookies {
    pub(super) const fn new(seed: u64) -> Self {
        // The upper half of a serial with all bits set is a turn that no place reaches: a serial
        // never equals the key, and no cookie is 0.
        Self(mix(seed) | 0xFFFF_FFFF << 32)
    }

    pub(super) const fn of(self, place: u32, turn: u32) -> Cookie {
        Cookie(mix(((turn as u64) << 32 | place as u64) ^ self.0))
    }

    /// Place and turn.
    pub(super) const fn undo(self, cookie: Cookie) -> (u32, u32) {
        let serial = unmix(cookie.0) ^ self.0;
        (serial as u32, (serial >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_place_and_turn_has_cookie_0() {
        for seed in 0..100 {
            let (place, turn) = Cookies::new(seed).undo(Cookie(0));
            assert_eq!(turn, u32::MAX, "place {place}");
        }
    }

    proptest! {
        #[test]
        fn a_cookie_names_its_place_and_turn_alone(
            seed: u64, place: u32, turn in 0..u32::MAX, other: u64,
        ) {
            let cookies = Cookies::new(seed);
            let cookie = cookies.of(place, turn);
            prop_assert_eq!(cookies.undo(cookie), (place, turn));
            prop_assert_ne!(cookie.0, 0);
            let (p, t) = cookies.undo(Cookie(other));
            prop_assert_eq!(cookies.of(p, t), Cookie(other));
        }
    }
}
