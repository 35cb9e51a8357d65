//! The records of a namespace: locks, resources, holders. A lock's record is all that a granted lock
//! costs, but for its entries in two tables and its share of the resource.

use core::time::Duration;

use lnet_types::Instant;
use lustre_wire::ldlm::{LockDesc, LockFlags, LockMode, PolicyWords, ResourceName};
use smallvec::SmallVec;

use super::contention::Contention;
use super::slab::NIL;
use super::{HolderId, HolderKind, State, Value};
use crate::{Kind, Mode};

/// Where a lock's record hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: not decided yet, or gone with its answer (a test, the release of a file lock).
    Loose,
    /// In the waiting queue of its resource.
    Queue,
    /// Among the granted locks of its resource.
    Granted,
}

/// A lock. What a search through a tree reads stands first, so that it lies together.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Lock {
    /// First and last byte; inode bits, and the bits to be tried or, once called back, cancelled.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of the granted locks below this one in its tree, itself included: the last byte; all bits.
    pub(super) reach: u64,
    /// Neighbours in the queue, before and after; children in the tree.
    pub(super) link: [u32; 2],
    pub(super) mode: Mode,
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) holder: u32,
    pub(super) client_cookie: u64,
    /// Since when it is where it is.
    pub(super) since: Instant,
    /// The same as they were asked for.
    pub(super) wanted: (u64, u64),
    /// Group, or owner of a file lock.
    pub(super) gid: u64,
    /// When the last callback was sent.
    pub(super) asked: Instant,
    /// Initiator of inode bits, process of a file lock.
    pub(super) who: u32,
    /// Flags that stay with the lock (L-17).
    pub(super) flags: LockFlags,
    pub(super) resource: u32,
    /// Neighbours among the locks of the holder.
    pub(super) mates: [u32; 2],
    /// When the callback timer ends, in seconds; 0 without a timer.
    pub(super) expires: u32,
    /// The client knows of it.
    pub(super) answered: bool,
    /// A conflict was met: the callback was sent, or goes with the answer or completion (L-27).
    pub(super) called_back: bool,
    /// The holder may drop what it has not written (L-33).
    pub(super) discard: bool,
    /// A further copy of its request, or its replay, came (L-26).
    pub(super) found: bool,
    /// It waits behind granted locks, not only behind waiting ones (L-16).
    pub(super) behind_granted: bool,
}

impl Lock {
    pub(super) fn state(&self) -> State {
        if self.place == Place::Queue { State::Waiting } else { State::Granted }
    }

    /// Whether it is not what was asked for. What a test of a file lock describes never is: clients look at
    /// no part of the description without LOCK_CHANGED (L-16).
    pub(super) fn changed(&self) -> bool {
        let described = self.kind == Kind::Flock && self.flags.contains(LockFlags::TEST_LOCK);
        described
            || self.start != self.wanted.0
            || self.kind != Kind::Ibits && self.end != self.wanted.1
    }

    /// Whether two locks of one resource have a part of it in common (L-5, L-9).
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match self.kind {
            Kind::Plain => true,
            Kind::Ibits => self.start & other.start != 0,
            Kind::Extent | Kind::Flock => self.start <= other.end && other.start <= self.end,
        }
    }

    /// Whether `self` held excludes `wanted`, its part not regarded: the matrix and its exceptions
    /// (L-4, L-5). File locks of one owner never exclude each other.
    pub(super) fn excludes(&self, wanted: &Self) -> bool {
        let either = |mode| self.mode == mode || wanted.mode == mode;
        let one_holder = self.holder == wanted.holder;
        if self.mode.allows(wanted.mode) {
            return false;
        }
        if self.kind == Kind::Flock {
            return !(one_holder && self.gid == wanted.gid);
        }
        let one_group = self.mode == Mode::Group && wanted.mode == Mode::Group;
        let one_initiator = self.kind == Kind::Ibits && self.who != 0 && self.who == wanted.who;
        !(one_group && self.gid == wanted.gid
            || either(Mode::Cos) && one_holder
            || either(Mode::Txn) && one_initiator)
    }

    /// Whether `self` held and `wanted` conflict.
    pub(super) fn conflicts(&self, wanted: &Self) -> bool {
        self.overlaps(wanted) && self.excludes(wanted)
    }

    /// The lock on the wire.
    pub(super) fn desc(&self, resource: ResourceName) -> LockDesc {
        let mode = self.mode.word();
        let granted = if self.place == Place::Queue { LockMode::NONE } else { mode };
        let policy = match self.kind {
            Kind::Plain => PolicyWords { start: 0, end: 0, gid: 0, who: 0 },
            _ => PolicyWords { start: self.start, end: self.end, gid: self.gid, who: self.who },
        };
        LockDesc { kind: self.kind.word(), resource, requested: mode, granted, policy }
    }
}

/// The granted locks of one mode, as a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    pub(super) mode: Mode,
    pub(super) root: u32,
    pub(super) count: u32,
}

/// A resource: there as long as it has locks.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: ResourceName,
    pub(super) kind: Kind,
    pub(super) granted: SmallVec<[Set; 2]>,
    /// The waiting queue: first, last, number.
    pub(super) queue: [u32; 2],
    pub(super) waiting: u32,
    /// Locks in all, those without a place included, and what keeps it beside them.
    pub(super) locks: u32,
    /// To be examined again before the call ends.
    pub(super) dirty: bool,
    pub(super) value: Option<Box<Value>>,
    pub(super) contention: Option<Box<Contention>>,
}

impl Resource {
    pub(super) fn new(name: ResourceName, kind: Kind) -> Self {
        let (granted, queue) = (SmallVec::new(), [NIL; 2]);
        let (value, contention) = (None, None);
        Self { name, kind, granted, queue, waiting: 0, locks: 0, dirty: false, value, contention }
    }

    /// The sets whose mode excludes another one.
    pub(super) fn against(&self, mode: Mode) -> impl Iterator<Item = Set> + '_ {
        self.granted.iter().copied().filter(move |set| !set.mode.allows(mode))
    }
}

/// A holder.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) id: HolderId,
    pub(super) kind: HolderKind,
    pub(super) estimate: Duration,
    /// Its first lock.
    pub(super) first: u32,
    pub(super) locks: usize,
    /// Its eviction was asked for.
    pub(super) leaving: bool,
}
