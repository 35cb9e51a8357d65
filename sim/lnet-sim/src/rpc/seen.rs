//! What can be seen of targets and clients from outside.

use core::fmt;
use core::time::Duration;

use ptlrpc::{CallError, EvictReason, ImportState};

use super::file::FileSeen;
use super::lock::LockSeen;

/// Bits of a call's number that count the calls of one life of a node.
const COUNT_BITS: u32 = 28;
/// Bits that count its lives.
const LIFE_BITS: u32 = 8;

/// A call of a client, by a number that no other call of the run has: its node, which life of that, and
/// the calls of that life in sequence. It goes with the request, so that the target knows it without the
/// request layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNo(pub u64);

impl CallNo {
    /// A change whose request left no record at its target.
    pub(super) const UNKNOWN: Self = Self(u64::MAX);

    /// The number of a call of this life of a node.
    pub(super) const fn new(node: u32, life: u32, count: u64) -> Self {
        let life = life as u64 & ((1 << LIFE_BITS) - 1);
        Self::of((node as u64) << LIFE_BITS | life, count)
    }

    /// The number of a call of a life of all nodes.
    pub(super) const fn of(life: u64, count: u64) -> Self {
        Self(life << COUNT_BITS | count & ((1 << COUNT_BITS) - 1))
    }

    /// Which life of all nodes, which call in that.
    pub(super) const fn split(self) -> (u64, u64) {
        (self.0 >> COUNT_BITS, self.0 & ((1 << COUNT_BITS) - 1))
    }

    /// Whether it is of a life of this node.
    pub(crate) fn is_of(self, node: u32) -> bool {
        Self::lives_of(node).contains(&self.split().0)
    }

    /// The number of the node that has a life.
    pub(super) const fn node_of(life: u64) -> usize {
        (life >> LIFE_BITS) as usize
    }

    /// The lives of a node.
    pub(super) const fn lives_of(node: u32) -> core::ops::Range<u64> {
        (node as u64) << LIFE_BITS..(node as u64 + 1) << LIFE_BITS
    }
}

impl fmt::Display for CallNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A key of a key-value target: that of a load, and which of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyNo(pub u64);

impl KeyNo {
    pub(super) fn new(load: usize, key: u64) -> Self {
        Self((load as u64) << 32 | key)
    }

    /// As targets know it.
    pub(super) fn bytes(self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(u64::from_be_bytes(bytes)))
    }
}

impl fmt::Display for KeyNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An entry of a list.
    Append,
    /// How long a list is: its last transaction.
    Length,
    /// A value for a key.
    Put(KeyNo),
    /// The same if the key has this version; 0: if there is no such key.
    Cas(KeyNo, u64),
    /// That a key is gone.
    Del(KeyNo),
    /// The value of a key.
    Get(KeyNo),
}

impl Asked {
    /// Whether it changes nothing, whatever the target has.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Length | Self::Get(_))
    }

    /// The key that it is about.
    pub const fn key(self) -> Option<KeyNo> {
        match self {
            Self::Append | Self::Length => None,
            Self::Put(key) | Self::Cas(key, _) | Self::Del(key) | Self::Get(key) => Some(key),
        }
    }
}

/// How a call ended that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The change that it asked for has happened.
    Changed {
        /// Its transaction.
        transno: u64,
        /// The version that its key had before, 0 for none; `None`: it has no key.
        before: Option<u64>,
    },
    /// Nothing was changed.
    Read {
        /// The last transaction of a list; the version of a key, 0 for none.
        value: u64,
        /// Whose value came along.
        by: Option<CallNo>,
    },
}

impl Answered {
    /// The number in it.
    pub const fn value(self) -> u64 {
        match self {
            Self::Changed { transno, .. } => transno,
            Self::Read { value, .. } => value,
        }
    }
}

/// Something that was seen at a node. Targets are indices in
/// [`lnet_scenario::RpcWorld::targets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcSeen {
    /// The node serves a target from now on, with what was committed.
    Served {
        /// Which target.
        target: usize,
    },
    /// A client has begun a call.
    Called {
        /// Which target.
        target: usize,
        /// Which call.
        call: CallNo,
        /// For what.
        asked: Asked,
    },
    /// A target has carried out a change.
    Executed {
        /// Which target.
        target: usize,
        /// Whose change.
        call: CallNo,
        /// Its transaction.
        transno: u64,
        /// The key, and whether it is there from now on; `None`: it has no keys.
        key: Option<(KeyNo, bool)>,
    },
    /// Changes of a target up to this transaction survive a crash.
    Committed {
        /// Which target.
        target: usize,
        /// The last one.
        transno: u64,
    },
    /// A call is over.
    Ended {
        /// Which target.
        target: usize,
        /// Which call.
        call: CallNo,
        /// From its beginning.
        took: Duration,
        /// How.
        result: Result<Answered, CallError>,
    },
    /// Bulk data of a call are not those that were sent.
    Damaged {
        /// Which call.
        call: CallNo,
    },
    /// Copies of requests that did not say so came to a node.
    Unmarked {
        /// How many.
        copies: u64,
    },
    /// Bulk data of a request did not move.
    Unmoved {
        /// At which target.
        target: usize,
        /// Whose.
        call: CallNo,
        /// From when the target wanted them.
        took: Duration,
    },
    /// A client's connection to a target has another state.
    State {
        /// Which target.
        target: usize,
        /// The state.
        state: ImportState,
    },
    /// A client has found out that it was evicted.
    Invalidated {
        /// By which target.
        target: usize,
    },
    /// A step of a target's recovery.
    Recovery {
        /// Which target.
        target: usize,
        /// The line for its log.
        line: String,
    },
    /// Something of a lock.
    Lock {
        /// Of which target.
        target: usize,
        /// What a program has seen.
        seen: LockSeen,
    },
    /// Something of files.
    File {
        /// What a program has seen.
        seen: FileSeen,
    },
    /// A target has evicted a client.
    Evicted {
        /// Which target.
        target: usize,
        /// The client's uuid.
        client: String,
        /// Why.
        reason: EvictReason,
    },
}

impl RpcSeen {
    /// Whether it is a moment that a reader of a run wants to see.
    pub(crate) const fn is_moment(&self) -> bool {
        match self {
            Self::Called { .. }
            | Self::Executed { .. }
            | Self::Unmoved { .. }
            | Self::Committed { .. } => false,
            Self::Ended { result, .. } => result.is_err(),
            Self::Lock { seen, .. } => seen.is_moment(),
            Self::File { seen } => seen.is_moment(),
            _ => true,
        }
    }

    /// A line about it.
    pub(crate) fn line(&self, names: &[lnet_scenario::TargetSpec]) -> String {
        let name = |at: &usize| names.get(*at).map_or("?", |t| t.name.as_str());
        match self {
            Self::Served { target } => format!("serves {}", name(target)),
            Self::Called { target, call, asked } => {
                let what = match asked {
                    Asked::Append => "appends to".to_owned(),
                    Asked::Length => "reads".to_owned(),
                    Asked::Put(key) => format!("puts {key} at"),
                    Asked::Cas(key, version) => format!("puts {key} over {version} at"),
                    Asked::Del(key) => format!("deletes {key} at"),
                    Asked::Get(key) => format!("gets {key} at"),
                };
                format!("call {call} {what} {}", name(target))
            }
            Self::Executed { target, call, transno, .. } => {
                format!("{} carries out call {call} as transaction {transno}", name(target))
            }
            Self::Unmoved { target, call, took } => {
                format!("bulk data of call {call} to {} did not move in {took:?}", name(target))
            }
            Self::Committed { target, transno } => {
                format!("{} has committed up to transaction {transno}", name(target))
            }
            Self::Ended { target, call, took, result: Ok(answered) } => {
                let value = answered.value();
                format!("call {call} to {} answered {value} after {took:?}", name(target))
            }
            Self::Ended { target, call, took, result: Err(e) } => {
                format!("call {call} to {} failed after {took:?}: {e}", name(target))
            }
            Self::Damaged { call } => format!("bulk data of call {call} are damaged"),
            Self::Unmarked { copies } => {
                format!("{copies} copies of requests came without the mark of a copy")
            }
            Self::State { target, state } => {
                format!("connection to {} is {}", name(target), state.name())
            }
            Self::Invalidated { target } => format!("was evicted by {}", name(target)),
            Self::Lock { target, seen } => seen.line(name(target)),
            Self::File { seen } => seen.line(),
            Self::Recovery { target, line } => format!("{}: {line}", name(target)),
            Self::Evicted { target, client, reason } => {
                format!("{} evicts {client}: {reason:?}", name(target))
            }
        }
    }

    /// Words that tell it from others, for the hash of a run.
    pub(crate) fn words(&self) -> [u64; 3] {
        match *self {
            Self::Served { target } => [1, target as u64, 0],
            Self::Called { target, call, asked } => {
                [2, (target as u64) << 1 | u64::from(asked.reads()), call.0]
            }
            Self::Executed { target, call, transno, .. } => {
                [3 | (target as u64) << 8, call.0, transno]
            }
            Self::Unmoved { target, call, .. } => [11, target as u64, call.0],
            Self::Committed { target, transno } => [4, target as u64, transno],
            Self::Ended { call, ref result, .. } => {
                [5, call.0, result.map_or_else(|e| e.errno().0 as u64, Answered::value)]
            }
            Self::Damaged { call } => [6, call.0, 0],
            Self::Unmarked { copies } => [14, copies, 0],
            Self::State { target, state } => [7, target as u64, state as u64],
            Self::Invalidated { target } => [8, target as u64, 0],
            Self::Lock { target, seen } => [12 | (target as u64) << 8, seen.ask().0, seen.word()],
            Self::File { ref seen } => [13, seen.word(), 0],
            Self::Recovery { target, ref line } => [10, target as u64, line.len() as u64],
            Self::Evicted { target, reason, .. } => [9, target as u64, reason as u64],
        }
    }
}
