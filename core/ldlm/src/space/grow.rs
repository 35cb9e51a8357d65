//! Growth of a granted range (L-29): a client that wants a part most likely wants its neighbourhood, so
//! it gets what no other one holds or waits for.

use super::Namespace;
use super::record::Lock;
use super::tree;
use crate::{Kind, Mode};
use lustre_wire::ldlm::{END_OF_FILE, LockFlags};

/// Waiting locks from which on a range does not grow downwards.
const WAITING_MAX: u32 = 5;
/// Locks above which a range for writing grows to [`SPAN_MAX`] alone.
const BUSY: u32 = 32;
/// Bytes from the start of the request.
const SPAN_MAX: u64 = 32 << 20;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// The largest part of a range that is aligned as `wanted` is, and contains it.
fn align((start, end): (u64, u64), wanted: (u64, u64)) -> (u64, u64) {
    let alignment = wanted.0 | wanted.1.wrapping_add(1);
    if (start, end) == (0, END_OF_FILE) || alignment == 0 {
        return (start, end);
    }
    let mask = (1 << alignment.trailing_zeros()).max(PAGE) - 1;
    let start = start.checked_add(mask).map_or(wanted.0, |start| start & !mask);
    // Of the end of the file, the byte after it is that of a next round.
    let end = if end == END_OF_FILE { end } else { ((end + 1) & !mask).saturating_sub(1) };
    (start.min(wanted.0), end.max(wanted.1))
}

impl Namespace {
    /// The range that a lock gets which is to be granted.
    pub(super) fn grown(&self, at: u32) -> (u64, u64) {
        let lock = &self.locks[at];
        let wanted = lock.wanted;
        let still = lock.kind != Kind::Extent
            || lock.flags.contains(LockFlags::NO_EXPANSION)
            || self.holders[lock.holder].kind.is_local()
            || wanted == (0, END_OF_FILE);
        if still {
            return (lock.start, lock.end);
        }
        let resource = &self.resources[lock.resource];
        let (mut start, mut end, mut met) = (0, END_OF_FILE, 0u32);
        for set in resource.against(lock.mode) {
            met += set.count;
            start = wanted.0;
            if let Some(next) = tree::next_start(&self.locks, set.root, wanted.1) {
                end = end.min(next - 1);
            }
        }
        self.shrink_for_waiting(lock, (&mut start, &mut end), &mut met);
        if met > BUSY && matches!(lock.mode, Mode::Pw | Mode::Cw) {
            end = end.min(wanted.0.saturating_add(SPAN_MAX - 1)).max(wanted.1);
        }
        align((start, end), wanted)
    }

    fn shrink_for_waiting(&self, lock: &Lock, range: (&mut u64, &mut u64), met: &mut u32) {
        let (start, end) = range;
        let wanted = lock.wanted;
        let mut waiting = 0;
        let mut at = self.resources[lock.resource].queue[0];
        while let Some(other) = self.locks.get(at) {
            at = other.link[1];
            if (*start, *end) == wanted {
                return;
            }
            let counts = !other.mode.allows(lock.mode) || other.holder == lock.holder;
            let (from, to) = other.wanted;
            if !counts || from <= wanted.1 && wanted.0 <= to {
                continue;
            }
            (waiting, *met) = (waiting + 1, *met + 1);
            if waiting >= WAITING_MAX {
                *start = wanted.0;
            }
            if to < wanted.0 {
                // It ends before a byte of the range, so it does not end at the last byte of all.
                *start = (*start).max(to + 1);
            } else {
                *end = (*end).min(from - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_range_is_aligned_as_its_request() {
        let mib = 1 << 20;
        assert_eq!(align((0, END_OF_FILE), (0, 4095)), (0, END_OF_FILE));
        assert_eq!(align((1, 3 * mib), (mib, 2 * mib - 1)), (mib, 3 * mib - 1));
        assert_eq!(align((5000, 20_000), (8192, 12_287)), (8192, 16_383));
        // A request off a page border keeps its own bounds where the border lies within it.
        assert_eq!(align((100, 300), (100, 200)), (100, 200));
        assert_eq!(align((0, 9000), (100, 200)), (0, 8191));
        let last = END_OF_FILE - 10;
        assert_eq!(align((last, END_OF_FILE), (last, END_OF_FILE)), (last, END_OF_FILE));
        assert_eq!(align((last, last + 2), (last, last + 1)), (last, last + 1));
    }

    proptest::proptest! {
        #[test]
        fn an_aligned_range_contains_its_request_and_lies_in_what_is_free(
            mut bounds: [u64; 4],
        ) {
            bounds.sort_unstable();
            let [from, a, b, to] = bounds;
            let (start, end) = align((from, to), (a, b));
            proptest::prop_assert!(from <= start && start <= a && b <= end && end <= to);
        }
    }
}
