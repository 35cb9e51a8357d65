//! The data of bulk tests: what is written, and how it is judged (wire.md 6.13).
//!
//! A writer fills every word, which satisfies every check of every reader, whatever the size of its
//! pages. A reader that checks simply looks at what every writer fills: the first and the last word.

use lnet_wire::ByteOrder;
use lnet_wire::selftest::{BrwRequest, PATTERN, PATTERN_LEN};

/// What sinks hold before data arrives.
const POISON: u64 = 0xBEEF_BEEF_BEEF_BEEF;

fn repeat(word: u64, out: &mut [u8]) {
    let word = word.to_le_bytes();
    let (words, rest) = out.as_chunks_mut::<PATTERN_LEN>();
    words.fill(word);
    rest.iter_mut().zip(word).for_each(|(to, from)| *to = from);
}

/// Fills a buffer with the pattern. Any part of it that begins at a multiple of 8 is pattern, too.
pub fn fill(out: &mut [u8]) {
    repeat(PATTERN, out);
}

/// Fills a buffer with what must not be there when data has arrived.
pub fn poison(out: &mut [u8]) {
    repeat(POISON, out);
}

/// Makes a pattern wrong where every check finds it: in its first word.
pub fn damage(out: &mut [u8]) {
    if let Some(first) = out.first_mut() {
        *first ^= 0x01;
    }
}

/// The byte order of the writer of `bytes`, by the check of a BRW; `None` if they are wrong.
pub(crate) fn judge(check: u32, bytes: &[u8]) -> Option<ByteOrder> {
    let order = match *bytes.first_chunk::<PATTERN_LEN>()? {
        word if word == PATTERN.to_le_bytes() => ByteOrder::Little,
        word if word == PATTERN.to_be_bytes() => ByteOrder::Big,
        _ => return None,
    };
    let word = match order {
        ByteOrder::Little => PATTERN.to_le_bytes(),
        ByteOrder::Big => PATTERN.to_be_bytes(),
    };
    let (words, rest) = bytes.as_chunks::<PATTERN_LEN>();
    let good = match check {
        BrwRequest::CHECK_FULL => words.iter().all(|w| *w == word) && rest.is_empty(),
        _ => bytes.last_chunk() == Some(&word),
    };
    good.then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIMPLE: u32 = BrwRequest::CHECK_SIMPLE;
    const FULL: u32 = BrwRequest::CHECK_FULL;

    #[test]
    fn the_pattern_passes_and_one_wrong_byte_does_not() {
        let mut good = vec![0; 4096];
        fill(&mut good);
        for check in [SIMPLE, FULL] {
            assert_eq!(judge(check, &good), Some(ByteOrder::Little));
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(judge(FULL, &bad), None, "byte {at}");
            let edge = at < 8 || at >= good.len() - 8;
            assert_eq!(judge(SIMPLE, &bad).is_none(), edge, "byte {at}");
        }
        damage(&mut good);
        assert_eq!((judge(SIMPLE, &good), judge(FULL, &good)), (None, None));
    }

    #[test]
    fn a_pattern_in_the_other_byte_order_is_recognized_and_never_mixed() {
        let big: Vec<u8> = PATTERN.to_be_bytes().repeat(4);
        assert_eq!(judge(FULL, &big), Some(ByteOrder::Big));
        let mixed = [PATTERN.to_be_bytes(), PATTERN.to_le_bytes()].concat();
        assert_eq!((judge(FULL, &mixed), judge(SIMPLE, &mixed)), (None, None));
    }

    #[test]
    fn poison_and_too_little_are_no_pattern() {
        let mut bytes = vec![0; 64];
        poison(&mut bytes);
        assert_eq!(judge(SIMPLE, &bytes), None);
        fill(&mut bytes);
        assert_eq!(judge(SIMPLE, &bytes[..7]), None);
        assert_eq!(judge(FULL, &bytes[..12]), None);
        assert_eq!(judge(FULL, &[]), None);
    }
}
