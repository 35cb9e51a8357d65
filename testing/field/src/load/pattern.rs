//! What messages hold: a window into a table of noise that both ends make from the same seed, at a
//! place that follows from the message's number. A byte that is missing, doubled, swapped, or of
//! another message is seen, and comparing costs one pass over memory.

/// Places where a window may begin.
const PLACES: usize = 1 << 20;

/// The table.
#[derive(Debug)]
pub struct Pattern {
    noise: Vec<u8>,
}

impl Pattern {
    /// A table for messages up to `longest` bytes.
    pub fn new(seed: u64, longest: usize) -> Self {
        let mut state = seed | 1;
        let mut noise = Vec::with_capacity(PLACES + longest + 8);
        while noise.len() < PLACES + longest {
            state = mix(state);
            noise.extend_from_slice(&state.to_le_bytes());
        }
        Self { noise }
    }

    /// What message `number` of `len` bytes holds; shorter only if `len` exceeds the table's
    /// longest.
    pub fn of(&self, number: u64, len: usize) -> &[u8] {
        let start = (mix(number) as usize) % PLACES;
        self.noise.get(start..start + len).unwrap_or(&[])
    }

    /// Whether `bytes` are those of message `number`, of `len` bytes.
    pub fn is(&self, number: u64, len: usize, bytes: &[u8]) -> bool {
        bytes.len() == len && bytes == self.of(number, len)
    }
}

/// A step of splitmix64.
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_another_message_and_another_length_are_seen() {
        let pattern = Pattern::new(7, 65_536);
        let good = pattern.of(12, 4096).to_vec();
        assert!(pattern.is(12, 4096, &good));
        assert!(!pattern.is(13, 4096, &good));
        assert!(!pattern.is(12, 4096, &good[..4095]));
        for at in [0, 1, 2047, 4095] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(!pattern.is(12, 4096, &bad), "byte {at}");
        }
    }

    #[test]
    fn both_ends_make_the_same_table_and_the_longest_message_fits_everywhere() {
        let (one, other) = (Pattern::new(3, 1 << 20), Pattern::new(3, 1 << 20));
        for number in 0..1000 {
            assert_eq!(one.of(number, 1 << 20).len(), 1 << 20);
            assert_eq!(one.of(number, 64), other.of(number, 64));
        }
    }
}
