//! The only source of randomness in the core: xoshiro256**, seeded by value, so that a run can be
//! repeated from its seed for ever (a library's algorithm may change between versions).

/// A deterministic generator. Not for secrets.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Prng {
    s: [u64; 4],
}

impl Prng {
    /// A generator whose whole future is fixed by `seed`.
    pub fn new(seed: u64) -> Self {
        // SplitMix64 spreads the seed so that similar seeds give unrelated streams.
        let mut z = seed;
        let mut next = || {
            z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = z;
            x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^ (x >> 31)
        };
        Self { s: [next(), next(), next(), next()] }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let out = self.s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = self.s[1] << 17;
        self.s[2] ^= self.s[0];
        self.s[3] ^= self.s[1];
        self.s[1] ^= self.s[2];
        self.s[0] ^= self.s[3];
        self.s[2] ^= t;
        self.s[3] = self.s[3].rotate_left(45);
        out
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` times on average; never for 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// An independent generator, for a part of the world that must not disturb the others.
    pub fn split(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_fixed_for_ever() {
        let mut p = Prng::new(1);
        let got: Vec<u64> = (0..3).map(|_| p.next_u64()).collect();
        assert_eq!(got, [0xb3f2_af6d_0fc7_10c5, 0x853b_5596_4736_4cea, 0x92f8_9756_082a_4514]);
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut p = Prng::new(2);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[p.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
        assert_eq!(p.below(0), 0);
    }
}
