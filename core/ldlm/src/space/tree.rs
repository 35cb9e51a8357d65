//! The granted locks of one mode of a resource: a search tree by first byte whose records know how far
//! the locks below them reach, so that locks that overlap a range are found without a look at the
//! others. For inode bits the reach is the union of the bits instead of the last byte. The links are in
//! the records of the locks; balance comes from priorities that follow from their places (a treap).

use super::record::Lock;
use super::slab::{NIL, Slab};
use crate::Kind;

/// What is searched for: a range, or bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
}

fn key(lock: &Lock, at: u32) -> (u64, u32) {
    match lock.kind {
        Kind::Extent | Kind::Flock => (lock.start, at),
        Kind::Plain | Kind::Ibits => (0, at),
    }
}

fn priority(at: u32) -> u32 {
    // Spreads neighbouring places; equal ones do not occur, as each step can be undone.
    let x = at.wrapping_mul(0x9E37_79B1);
    (x ^ x >> 15).wrapping_mul(0x85EB_CA6B)
}

/// How far a lock reaches by itself.
fn own_reach(lock: &Lock) -> u64 {
    match lock.kind {
        Kind::Extent | Kind::Flock => lock.end,
        Kind::Ibits => lock.start,
        Kind::Plain => 1,
    }
}

fn both(kind: Kind, a: u64, b: u64) -> u64 {
    match kind {
        Kind::Extent | Kind::Flock => a.max(b),
        Kind::Plain | Kind::Ibits => a | b,
    }
}

/// Sets the reach of a record from its own part and its children.
fn pull(locks: &mut Slab<Lock>, at: u32) {
    let lock = &locks[at];
    let [left, right] = lock.link.map(|child| locks.get(child).map_or(0, |child| child.reach));
    let reach = both(lock.kind, both(lock.kind, own_reach(lock), left), right);
    locks[at].reach = reach;
}

/// The tree as two: keys below `bound`, and the others.
fn split(locks: &mut Slab<Lock>, root: u32, bound: (u64, u32)) -> [u32; 2] {
    if root == NIL {
        return [NIL; 2];
    }
    let [left, right] = locks[root].link;
    if key(&locks[root], root) < bound {
        let [below, above] = split(locks, right, bound);
        locks[root].link = [left, below];
        pull(locks, root);
        [root, above]
    } else {
        let [below, above] = split(locks, left, bound);
        locks[root].link = [above, right];
        pull(locks, root);
        [below, root]
    }
}

/// One tree of two, of which all keys of the first are below those of the second.
fn join(locks: &mut Slab<Lock>, first: u32, second: u32) -> u32 {
    if first == NIL {
        return second;
    }
    if second == NIL {
        return first;
    }
    if priority(first) > priority(second) {
        let [left, right] = locks[first].link;
        locks[first].link = [left, join(locks, right, second)];
        pull(locks, first);
        first
    } else {
        let [left, right] = locks[second].link;
        locks[second].link = [join(locks, first, left), right];
        pull(locks, second);
        second
    }
}

/// Adds a lock; the new root.
pub(super) fn insert(locks: &mut Slab<Lock>, root: u32, at: u32) -> u32 {
    let bound = key(&locks[at], at);
    if root == NIL || priority(at) > priority(root) {
        locks[at].link = split(locks, root, bound);
        pull(locks, at);
        return at;
    }
    let side = usize::from(key(&locks[root], root) < bound);
    let child = locks[root].link[side];
    let child = insert(locks, child, at);
    // No look at the other child: it may lie far away in memory.
    let own = own_reach(&locks[at]);
    let lock = &mut locks[root];
    lock.link[side] = child;
    lock.reach = both(lock.kind, lock.reach, own);
    root
}

/// Takes a lock out; the new root.
pub(super) fn remove(locks: &mut Slab<Lock>, root: u32, at: u32) -> u32 {
    if root == NIL {
        return NIL;
    }
    if root == at {
        let [left, right] = locks[at].link;
        locks[at].link = [NIL; 2];
        return join(locks, left, right);
    }
    let side = usize::from(key(&locks[root], root) < key(&locks[at], at));
    let child = locks[root].link[side];
    let child = remove(locks, child, at);
    locks[root].link[side] = child;
    // A last byte that lies before that of another lock below did not count.
    let range = matches!(locks[root].kind, Kind::Extent | Kind::Flock);
    if !range || locks[root].reach <= locks[at].end {
        pull(locks, root);
    }
    root
}

/// Visits the locks that overlap the part, in order of their keys, until `visit` says to stop. Whether
/// it did.
pub(super) fn overlapping(
    locks: &Slab<Lock>,
    root: u32,
    part: Part,
    visit: &mut dyn FnMut(u32, &Lock) -> bool,
) -> bool {
    let Some(lock) = locks.get(root) else { return false };
    let [left, right] = lock.link;
    match lock.kind {
        Kind::Extent | Kind::Flock => {
            lock.reach >= part.start
                && (overlapping(locks, left, part, visit)
                    || lock.start <= part.end
                        && ((lock.end >= part.start && visit(root, lock))
                            || overlapping(locks, right, part, visit)))
        }
        Kind::Ibits if lock.reach & part.start == 0 => false,
        Kind::Plain | Kind::Ibits => {
            overlapping(locks, left, part, visit)
                || (lock.kind == Kind::Plain || lock.start & part.start != 0) && visit(root, lock)
                || overlapping(locks, right, part, visit)
        }
    }
}

/// The lowest first byte above a bound.
pub(super) fn next_start(locks: &Slab<Lock>, root: u32, bound: u64) -> Option<u64> {
    let (mut at, mut found) = (root, None);
    while let Some(lock) = locks.get(at) {
        let above = lock.start > bound;
        if above {
            found = Some(lock.start);
        }
        at = lock.link[usize::from(!above)];
    }
    found
}

/// Visits the locks from the highest last byte downwards, until `visit` says to stop.
pub(super) fn from_the_end(
    locks: &Slab<Lock>,
    root: u32,
    visit: &mut dyn FnMut(u32, &Lock) -> bool,
) {
    // Best first: a subtree by its reach, a single lock by its own end.
    let mut heap = std::collections::BinaryHeap::new();
    let tree = |at: u32| locks.get(at).map(|lock| (lock.reach, false, at));
    heap.extend(tree(root));
    while let Some((_, single, at)) = heap.pop() {
        let lock = &locks[at];
        if single {
            if visit(at, lock) {
                return;
            }
        } else {
            heap.push((lock.end, true, at));
            heap.extend(lock.link.into_iter().filter_map(tree));
        }
    }
}
