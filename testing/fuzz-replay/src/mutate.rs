//! Changes inputs: the usual small damages, and values that decoders stumble over.

use lnet_types::Prng;

/// Inputs do not grow beyond this, bytes (unless a corpus file is larger).
pub const LEN_MAX: usize = 4096;

/// Numbers at the edges of fields.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    17,
    0x7F,
    0xFF,
    0x100,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// A damaged copy of one of `corpus`, made by one to eight changes.
pub fn mutation(prng: &mut Prng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = pick(prng, corpus);
    let max = LEN_MAX.max(input.len());
    for _ in 0..=prng.below(8) {
        change(prng, &mut input, corpus);
    }
    input.truncate(max);
    input
}

fn pick(prng: &mut Prng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let i = prng.below(corpus.len() as u64) as usize;
    corpus.get(i).cloned().unwrap_or_default()
}

/// A place in `input`, or its end.
fn place(prng: &mut Prng, input: &[u8]) -> usize {
    // Most of what matters stands in front.
    let end = input.len().min(if prng.one_in(3) { usize::MAX } else { 96 });
    prng.below(end as u64 + 1) as usize
}

fn change(prng: &mut Prng, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = place(prng, input);
    match prng.below(9) {
        0 => overwrite(input, at, &[1u8 << prng.below(8)], |old, new| old ^ new),
        1 => overwrite(input, at, &[prng.next_u64() as u8], |_, new| new),
        2 | 3 => {
            let edge = EDGES[prng.below(EDGES.len() as u64) as usize];
            let width = 1usize << prng.below(4);
            let bytes = edge.to_le_bytes();
            if prng.one_in(2) {
                overwrite(input, at, &bytes[..width], |_, new| new);
            } else {
                let big: Vec<u8> = bytes[..width].iter().rev().copied().collect();
                overwrite(input, at, &big, |_, new| new);
            }
        }
        4 => {
            let by = prng.next_u64() as u8 & 0x1F;
            let up = prng.one_in(2);
            overwrite(input, at, &[by], |old, by| {
                if up { old.wrapping_add(by) } else { old.wrapping_sub(by) }
            });
        }
        5 => input.truncate(at),
        6 => {
            let to = place(prng, input);
            input.drain(at.min(to)..at.max(to));
        }
        7 => {
            let n = prng.below(16);
            let new: Vec<u8> = (0..n).map(|_| prng.next_u64() as u8).collect();
            input.splice(at..at, new);
        }
        _ => {
            // A piece of another input, or of this one again.
            let other = pick(prng, corpus);
            let (a, b) = (place(prng, &other), place(prng, &other));
            let piece = other[a.min(b)..a.max(b)].to_vec();
            let over = if prng.one_in(2) { piece.len() } else { 0 };
            let end = input.len().min(at + over);
            input.splice(at..end, piece);
        }
    }
}

/// Combines the bytes at `at` with `with`, as far as there are any.
fn overwrite(input: &mut [u8], at: usize, with: &[u8], how: impl Fn(u8, u8) -> u8) {
    for (byte, with) in input.iter_mut().skip(at).zip(with) {
        *byte = how(*byte, *with);
    }
}
