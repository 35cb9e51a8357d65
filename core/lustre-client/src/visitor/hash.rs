//! Which stripe of a striped directory has a name (C-154, C-156, C-157). Pure.

/// How the names of a directory are spread over its stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    /// By the sum of their bytes.
    AllChars,
    /// By FNV-1a.
    Fnv,
    /// By straws; names of files on their way go with the final ones.
    Crush,
    /// The same, with another rule for what a final name is.
    Crush2,
}

/// Kind of a hash, without the flags above it.
const KIND: u32 = 0xffff;
/// Flags of a layout that changes: names may be in a stripe of before or after (C-162).
const CHANGING: u32 = 0x0400_0000 | 0x0800_0000 | 0x8000_0000;
/// Other flags that are known; they say nothing of where a name is.
const QUIET: u32 = 0x0100_0000 | 0x0200_0000 | 0x1000_0000 | 0x2000_0000;

/// Places of the straws.
const GROUPS: u64 = 4096;

impl Hash {
    /// The hash of a directory whose layout says this. `None`: it is not known, or changes.
    pub(super) const fn of(word: u32) -> Option<Self> {
        if word & CHANGING != 0 || word & !(KIND | QUIET) != 0 {
            return None;
        }
        match word & KIND {
            1 => Some(Self::AllChars),
            2 => Some(Self::Fnv),
            3 => Some(Self::Crush),
            4 => Some(Self::Crush2),
            _ => None,
        }
    }

    /// The stripe of a name, of so many.
    pub(super) fn stripe(self, name: &[u8], count: usize) -> usize {
        let count = count.max(1) as u64;
        let stripe = match self {
            Self::AllChars => name.iter().map(|byte| u64::from(*byte)).sum::<u64>() % count,
            Self::Fnv => fnv(name) % count,
            Self::Crush | Self::Crush2 => {
                let group = fnv(final_name(name, self == Self::Crush2)) % GROUPS;
                let (mut best, mut longest) = (0, 0);
                for stripe in 0..count {
                    // Less than the largest number of stripes.
                    let straw = straw(group as u32, stripe as u32);
                    if straw > longest {
                        (best, longest) = (stripe, straw);
                    }
                }
                best
            }
        };
        // Less than the count.
        stripe as usize
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Whether the end of a name looks as if a program had made it up.
fn is_random(suffix: &[u8], second: bool) -> bool {
    if suffix.iter().all(u8::is_ascii_uppercase) || suffix.iter().all(u8::is_ascii_lowercase) {
        return false;
    }
    if second && !suffix.iter().all(u8::is_ascii_alphanumeric) {
        return false;
    }
    let digits = suffix.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits + 1 >= suffix.len() {
        let first = suffix.first().is_some_and(u8::is_ascii_digit);
        return first != second;
    }
    true
}

/// The part of a name that its final name has too.
fn final_name(name: &[u8], second: bool) -> &[u8] {
    // `.NAME.` and six random characters.
    if let [b'.', rest @ ..] = name
        && name.len() >= 9
        && let Some((front, [b'.', suffix @ ..])) = rest.split_at_checked(rest.len() - 7)
        && is_random(suffix, second)
    {
        return front;
    }
    // `NAME.` and eight random characters.
    if name.len() >= 10
        && let Some((front, [b'.', suffix @ ..])) = name.split_at_checked(name.len() - 9)
        && is_random(suffix, second)
    {
        return front;
    }
    if let [front @ .., b'~'] = name
        && !front.is_empty()
        && front.last() != Some(&b'.')
    {
        return front;
    }
    for end in [".bak", ".sav", ".orig"] {
        if let Some((front, suffix)) = name.split_at_checked(name.len().saturating_sub(end.len()))
            && !front.is_empty()
            && suffix.eq_ignore_ascii_case(end.as_bytes())
        {
            return front;
        }
    }
    name
}

/// Nine steps: which of the words changes, with which other one it is mixed, and how far that is
/// shifted, to the right if positive.
const STEPS: [(usize, usize, i32); 9] = [
    (0, 2, 13),
    (1, 0, -8),
    (2, 1, 13),
    (0, 2, 12),
    (1, 0, -16),
    (2, 1, 5),
    (0, 2, 3),
    (1, 0, -10),
    (2, 1, 15),
];

fn mix(words: &mut [u32; 3]) {
    for (changed, other, shift) in STEPS {
        let sum = words.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
        let word = words.get(changed).copied().unwrap_or_default();
        let by = words.get(other).copied().unwrap_or_default();
        let by = if shift > 0 { by >> shift } else { by << -shift };
        if let Some(place) = words.get_mut(changed) {
            *place = word.wrapping_sub(sum.wrapping_sub(word)) ^ by;
        }
    }
}

fn straw(a: u32, b: u32) -> u32 {
    let hash = 1_315_423_911 ^ a ^ b;
    let mut first = [a, b, hash];
    mix(&mut first);
    let mut second = [231_232, first[0], first[2]];
    mix(&mut second);
    let mut third = [first[1], 1_232, second[2]];
    mix(&mut third);
    third[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["alpha", "beta", "gamma", "delta", "x1", "x2"];

    #[test]
    fn c156_names_are_in_the_stripes_of_the_reference() {
        let of = |hash: Hash, count| NAMES.map(|name| hash.stripe(name.as_bytes(), count));
        assert_eq!(of(Hash::AllChars, 2), [0, 0, 1, 0, 1, 0]);
        assert_eq!(of(Hash::Fnv, 2), [1, 1, 0, 1, 0, 1]);
        assert_eq!(of(Hash::Crush, 2), [1, 1, 1, 1, 0, 1]);
        assert_eq!(of(Hash::Crush2, 2), [1, 1, 1, 1, 0, 1]);
        assert_eq!(of(Hash::Crush, 4), [2, 3, 2, 1, 0, 2]);
        assert_eq!(of(Hash::Crush, 5), [2, 3, 2, 4, 0, 2]);
        assert_eq!(of(Hash::Fnv, 4), [3, 3, 2, 1, 2, 3]);
        assert_eq!(of(Hash::AllChars, 4), [2, 0, 3, 2, 1, 2]);
    }

    #[test]
    fn c157_names_on_their_way_are_where_kernel_nodes_have_put_them() {
        // Of two stripes: crush, crush2, FNV-1a, sum.
        for (name, stripes) in [
            ("file", [0, 0, 1, 0]),
            ("file.bak", [0, 0, 1, 0]),
            ("file.SAV", [0, 0, 1, 0]),
            ("file~", [0, 0, 1, 0]),
            ("file.orig", [0, 0, 0, 1]),
            ("file.~", [1, 1, 1, 0]),
            ("report.txt", [1, 1, 1, 0]),
            (".report.txt.AbC123", [1, 1, 1, 0]),
            ("report.txt.aB3dE6gH", [1, 1, 1, 0]),
            ("report.txt.12345678", [1, 0, 1, 0]),
            (".report.txt.123456", [1, 1, 0, 1]),
            (".report.txt.abcdef", [1, 1, 0, 1]),
            (".report.txt.12345a", [1, 0, 1, 0]),
            (".report.txt.a12345", [0, 1, 1, 0]),
            (".report.txt.AB.123", [1, 1, 0, 1]),
            ("data.0001", [0, 0, 0, 1]),
            ("data.1.2345678", [1, 1, 1, 0]),
            ("é漢", [0, 0, 1, 0]),
            ("x3", [1, 1, 0, 1]),
            ("x4", [0, 0, 1, 0]),
        ] {
            let hashes = [Hash::Crush, Hash::Crush2, Hash::Fnv, Hash::AllChars];
            assert_eq!(hashes.map(|hash| hash.stripe(name.as_bytes(), 2)), stripes, "{name}");
        }
    }

    #[test]
    fn c162_layouts_that_change_have_no_place_for_new_names() {
        assert_eq!(Hash::of(3), Some(Hash::Crush));
        assert_eq!(Hash::of(0x0200_0002), Some(Hash::Fnv));
        for word in [0, 5, 0x8000_0003, 0x0400_0003, 0x0800_0003, 0x4000_0003, 0x0001_0003] {
            assert_eq!(Hash::of(word), None, "{word:#x}");
        }
    }
}
