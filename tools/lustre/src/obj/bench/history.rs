//! What clients did with blocks of shared objects, and whether one order explains it: each read finds
//! the last write before it, where what ended before something else began comes before it
//! (linearizability). Every write has a value of its own, so a value and its reads are a group: from the
//! first end among them it was there, until the last beginning nothing newer was. Two groups whose spans
//! meet, or a group that lies inside of another's span, have no order (Gibbons and Korach, 1997).

use std::collections::BTreeMap;

/// The value of a block that was never written.
pub const NEVER: u64 = 0;

/// One operation on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Its number.
    pub block: u32,
    /// Who did it.
    pub client: u32,
    /// What was written or read.
    pub value: u64,
    /// Whether it is a write.
    pub writes: bool,
    /// When it began and ended, on one clock.
    pub begin: u64,
    /// See above.
    pub end: u64,
    /// A write whose outcome is not known: it failed, or what was cached was lost and fsync said so.
    pub unsure: bool,
}

/// A value and its reads.
#[derive(Clone, Copy, Debug)]
struct Group {
    written: Option<u64>,
    unsure_of: Option<u32>,
    /// A client other than the one that is unsure has read it.
    seen: bool,
    first_end: u64,
    first_read_end: u64,
    last_begin: u64,
}

impl Group {
    const EMPTY: Self = Self {
        written: None,
        unsure_of: None,
        seen: false,
        first_end: u64::MAX,
        first_read_end: u64::MAX,
        last_begin: 0,
    };
}

/// The first end and the last beginning of a group.
type Ends = (u64, u64);

/// How often no order explains a history.
pub fn contradictions(ops: &[Op]) -> u64 {
    let mut blocks: BTreeMap<u32, BTreeMap<u64, Group>> = BTreeMap::new();
    for op in ops.iter().filter(|op| op.writes) {
        let group = blocks.entry(op.block).or_default().entry(op.value).or_insert(Group::EMPTY);
        group.written = Some(op.begin);
        group.last_begin = op.begin;
        match op.unsure {
            true => group.unsure_of = Some(op.client),
            false => group.first_end = op.end,
        }
    }
    for op in ops.iter().filter(|op| !op.writes) {
        let group = blocks.entry(op.block).or_default().entry(op.value).or_insert(Group::EMPTY);
        if op.value == NEVER {
            (group.written, group.first_end) = (Some(0), 0);
        }
        group.seen |= group.unsure_of.is_none_or(|client| client != op.client);
        group.first_end = group.first_end.min(op.end);
        group.first_read_end = group.first_read_end.min(op.end);
        group.last_begin = group.last_begin.max(op.begin);
    }
    blocks.into_values().map(|groups| of_block(groups.into_values())).sum()
}

fn of_block(groups: impl Iterator<Item = Group>) -> u64 {
    // What was lost, and was read by the client that lost it alone, has never been.
    let groups: Vec<Group> = groups.filter(|g| g.unsure_of.is_none() || g.seen).collect();
    // A value that was never written, or was read before.
    let from_nowhere = |g: &&Group| g.written.is_none_or(|begin| g.first_read_end < begin);
    let mut found = groups.iter().filter(from_nowhere).count() as u64;
    let (mut spans, points): (Vec<Ends>, Vec<Ends>) = groups
        .iter()
        .filter(|g| !from_nowhere(g))
        .map(|g| (g.first_end, g.last_begin))
        .partition(|(first_end, last_begin)| first_end < last_begin);
    spans.sort_unstable();
    // Spans that meet are one from then on.
    let mut joined: Vec<Ends> = Vec::new();
    for (start, end) in spans {
        match joined.last_mut() {
            Some((_, last)) if start < *last => {
                found += 1;
                *last = end.max(*last);
            }
            _ => joined.push((start, end)),
        }
    }
    for (end, begin) in points {
        let before = joined.partition_point(|(start, _)| *start < begin);
        let around = before.checked_sub(1).and_then(|n| joined.get(n));
        found += u64::from(around.is_some_and(|(_, last)| end < *last));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(client: u32, value: u64, writes: bool, begin: u64, end: u64) -> Op {
        Op { block: 1, client, value, writes, begin, end, unsure: false }
    }

    fn write(value: u64, begin: u64, end: u64) -> Op {
        op(1, value, true, begin, end)
    }

    fn read(value: u64, begin: u64, end: u64) -> Op {
        op(2, value, false, begin, end)
    }

    #[test]
    fn reads_of_the_last_write_and_of_one_that_is_under_way_are_explained() {
        assert_eq!(contradictions(&[]), 0);
        assert_eq!(contradictions(&[read(NEVER, 1, 2), write(7, 3, 4), read(7, 5, 6)]), 0);
        // Either value while the second write is under way.
        let both = [write(7, 1, 2), write(8, 3, 10), read(7, 4, 5), read(8, 6, 7), read(8, 11, 12)];
        assert_eq!(contradictions(&both), 0);
        // Two writes at a time: either may be the last.
        for last in [7, 8] {
            assert_eq!(contradictions(&[write(7, 1, 5), write(8, 2, 6), read(last, 7, 8)]), 0);
        }
    }

    #[test]
    fn read_of_a_replaced_value_is_a_contradiction() {
        assert_eq!(contradictions(&[write(7, 1, 2), write(8, 3, 4), read(7, 5, 6)]), 1);
        assert_eq!(contradictions(&[write(7, 1, 2), read(NEVER, 5, 6)]), 1);
        // Two readers who see two writes in different orders.
        let orders = [
            write(7, 1, 9),
            write(8, 1, 9),
            read(7, 2, 3),
            read(8, 4, 5),
            read(7, 6, 7),
            read(8, 8, 9),
        ];
        assert_eq!(contradictions(&orders), 1);
        // On another block it is none.
        let other = Op { block: 2, ..write(8, 3, 4) };
        assert_eq!(contradictions(&[write(7, 1, 2), other, read(7, 5, 6)]), 0);
    }

    #[test]
    fn value_from_nowhere_is_a_contradiction() {
        assert_eq!(contradictions(&[read(9, 1, 2)]), 1);
        assert_eq!(contradictions(&[read(9, 1, 2), write(9, 3, 4)]), 1);
    }

    #[test]
    fn write_of_unknown_outcome_may_have_happened_or_not_but_happens_once() {
        let unsure = |begin, end| Op { unsure: true, ..write(8, begin, end) };
        let before = [write(7, 1, 2), unsure(3, 4)];
        for seen in [7, 8] {
            assert_eq!(contradictions(&[&before[..], &[read(seen, 5, 6)]].concat()), 0, "{seen}");
        }
        // Only the client that has lost it had read it.
        let own = op(1, 8, false, 5, 6);
        assert_eq!(contradictions(&[&before[..], &[own, read(7, 7, 8)]].concat()), 0);
        let back = [read(8, 5, 6), read(7, 7, 8)];
        assert_eq!(contradictions(&[&before[..], &back].concat()), 1);
    }

    /// A million operations of many clients on few blocks, each with a moment of its own between its
    /// beginning and its end at which it happens: one order explains them.
    fn million() -> Vec<Op> {
        let mut prng = lnet_types::Prng::new(7);
        let mut last = BTreeMap::new();
        let op = |n: u64| {
            let happens = n * 100 + 10_000;
            let (begin, end) = (happens - prng.below(10_000), happens + 1 + prng.below(10_000));
            let (block, client) = (prng.below(64) as u32, prng.below(16) as u32);
            let writes = prng.below(3) == 0;
            let value = match writes {
                true => n + 1,
                false => last.get(&block).copied().unwrap_or(NEVER),
            };
            last.insert(block, value);
            Op { block, client, value, writes, begin, end, unsure: false }
        };
        (0..1_000_000).map(op).collect()
    }

    #[test]
    fn million_operations_of_one_order_are_explained_and_one_stale_read_among_them_is_found() {
        let mut ops = million();
        assert!(ops.iter().any(|op| op.writes) && ops.len() == 1_000_000);
        assert_eq!(contradictions(&ops), 0);
        // Behind all others, a read of what was replaced long ago.
        let old = ops.iter().find(|op| op.writes && op.block == 1).copied().unwrap();
        let end = ops.iter().map(|op| op.end).max().unwrap();
        ops.push(Op { writes: false, begin: end + 1, end: end + 2, ..old });
        assert!(contradictions(&ops) > 0);
    }
}
