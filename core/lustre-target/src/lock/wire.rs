//! Names and fencing numbers of the lock target, for both ends.
//!
//! An enqueue names its resource twice: by the four words that follow from the name, and by the name
//! itself in a buffer of its own behind the lock request, so that an operator can read it. Two names of
//! the same words are refused when they meet. The fencing number stands in the place of the size in the
//! value block of the reply or completion that grants the lock.
//!
//! | operation | request buffers 1.. | reply buffers 1.. |
//! |---|---|---|
//! | enqueue | lock request, name | lock reply, value block |
//! | completion | lock request, value block | |

use lnet_types::ByteOrder;
use lustre_wire::ldlm::{Lvb, ResourceName};

/// Most bytes of a name.
pub const NAME_MAX: usize = 255;

/// What the hash of a byte is multiplied by, and what the four words begin with.
const PRIME: u64 = 0x0100_0000_01b3;
const BASES: [u64; 4] =
    [0xcbf2_9ce4_8422_2325, 0x9ae1_6a3b_2f90_404f, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9];

/// The words of a name; `None` for a name of no bytes, or of more than [`NAME_MAX`]. The same in all
/// versions.
pub fn resource_of(name: &str) -> Option<ResourceName> {
    if name.is_empty() || name.len() > NAME_MAX {
        return None;
    }
    let words = BASES.map(|base| {
        let hash = name.bytes().fold(base, |hash, byte| {
            // A word of its own for each base: what differs is turned away from the low bits.
            (hash ^ u64::from(byte)).wrapping_mul(PRIME).rotate_left(23) ^ base
        });
        let mixed = (hash ^ hash >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
        mixed ^ mixed >> 27
    });
    Some(ResourceName { words })
}

/// The fencing number in a value block; `None` if it has none: the lock needs none, or waits.
pub fn fence_of(order: ByteOrder, value: &[u8]) -> Option<u64> {
    Lvb::parse_either(order, value).ok().map(|lvb| lvb.size).filter(|fence| *fence != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_of_a_name_are_the_same_in_all_versions() {
        let words = |name: &str| resource_of(name).map(|resource| resource.words);
        assert_eq!(words(""), None);
        assert_eq!(words(&"n".repeat(NAME_MAX + 1)), None);
        assert!(words(&"n".repeat(NAME_MAX)).is_some());
        let expected = [
            0x2477_b35f_de18_c015,
            0x817a_a1b5_1606_63d6,
            0xb28c_5aba_cbd1_6bb4,
            0xb09c_3086_69fc_3bdb,
        ];
        assert_eq!(words("jobs/42"), Some(expected));
    }

    #[test]
    fn names_that_differ_little_differ_in_each_word() {
        let mut seen: [BTreeSet<u64>; 4] = Default::default();
        for n in 0..20_000 {
            let words = resource_of(&format!("jobs/{n}")).unwrap().words;
            for (seen, word) in seen.iter_mut().zip(words) {
                assert!(seen.insert(word), "jobs/{n}");
            }
        }
    }
}
