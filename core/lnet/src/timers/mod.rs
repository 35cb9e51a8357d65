//! The timer table: all that the node does by itself at an instant, each with what it is about.
//!
//! ```text
//!   set(timer, at) ─► one queue per kind ─► next(): the earliest, and why
//!   stop(timer)                         └─► pop(now): what is due, kind by kind
//! ```
//!
//! [`handle_timeout`](crate::Node::handle_timeout) is one match over what [`Timers::pop`] gives.
//! Subjects hold no copy of their deadlines: [`Timers::at`] has them. `queue.rs` is one kind's queue,
//! `view.rs` what operators see.

mod queue;
#[cfg(test)]
mod tests;
mod view;

use lnet_types::{Instant, MdId, MsgId, NiId, PeerId, PeerNiId};
use slotmap::{Key, KeyData};

use crate::OpId;
use queue::Queue;

pub use view::TimerView;

/// What a timer may be about.
trait Subject: Copy {
    /// Whether the upper half of its key is a place in a table.
    const IS_SLOT: bool;
    /// It as a number. Equal deadlines of one kind go by it.
    fn key(self) -> u64;
    fn of(key: u64) -> Self;
}

/// The node as a whole.
impl Subject for () {
    const IS_SLOT: bool = true;
    fn key(self) -> u64 {
        0
    }
    fn of(_: u64) {}
}

macro_rules! slots {
    ($($id:ty),*) => {$(
        impl Subject for $id {
            const IS_SLOT: bool = true;
            fn key(self) -> u64 {
                self.data().as_ffi().rotate_left(32)
            }
            fn of(key: u64) -> Self {
                KeyData::from_ffi(key.rotate_left(32)).into()
            }
        }
    )*};
}
slots!(MdId, MsgId, NiId, PeerId, PeerNiId);

impl Subject for OpId {
    const IS_SLOT: bool = false;
    fn key(self) -> u64 {
        self.0
    }
    fn of(key: u64) -> Self {
        Self(key)
    }
}

impl Subject for u64 {
    const IS_SLOT: bool = false;
    fn key(self) -> u64 {
        self
    }
    fn of(key: u64) -> Self {
        key
    }
}

/// The type of a subject, if there is one.
macro_rules! subject {
    () => {
        ()
    };
    ($id:ty) => {
        $id
    };
}

macro_rules! timers {
    ($($(#[$doc:meta])* $kind:ident $(($subject:ident: $id:ty))? = $name:literal;)*) => {
        /// Something that a node does by itself at an instant. Of what is due, kinds go in this order,
        /// whatever is due longer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Timer {
            $($(#[$doc])* $kind $(($id))?,)*
        }

        /// The kinds of timers, in the order of [`Timer`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum TimerKind {
            $($kind,)*
        }

        const KINDS: usize = [$($name,)*].len();

        impl TimerKind {
            const ALL: [Self; KINDS] = [$(Self::$kind,)*];

            /// Whether its subjects are places in a table.
            const fn of_slots(self) -> bool {
                match self {
                    $(Self::$kind => <subject!($($id)?) as Subject>::IS_SLOT,)*
                }
            }

            /// The timer of this kind about the subject with this key.
            fn of(self, key: u64) -> Timer {
                match self {
                    $(Self::$kind => Timer::$kind $((<$id as Subject>::of(key)))?,)*
                }
            }
        }

        impl Timer {
            /// The name of its kind, for operators.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => $name,)*
                }
            }

            /// Its kind, and the key of its subject.
            #[inline(always)]
            fn parts(self) -> (TimerKind, u64) {
                match self {
                    $(Self::$kind $(($subject))? => {
                        (TimerKind::$kind, Subject::key(($($subject)?)))
                    })*
                }
            }
        }
    };
}

timers! {
    /// Changes of links are announced to peers (H-92).
    Announce = "announce";
    /// Interfaces that are up again are announced to peers.
    AnnounceUp = "announce-up";
    /// Interfaces that a peer does not reach are announced to it as down.
    CutOff = "cut-off";
    /// A lost link is announced once more, for the time after the first one.
    Remind(nth: u64) = "announce-again";
    /// Timeout of a user's ping (D-82). It lowers no health, so it goes before the timeout of the
    /// response, which does (H-64).
    Op(op: OpId) = "ping";
    /// A message that a delay rule holds goes on (F-22).
    Delay(held: u64) = "delay-rule";
    /// The router changes its state, or a network that has been silent too long goes down (R-23, R-40).
    Router = "router";
    /// Check of a gateway (R-32).
    Check(peer: PeerId) = "gateway-check";
    /// Timeout of a response (H-64).
    Response(md: MdId) = "response";
    /// Deadline of a message that waits for a credit, a discovery or a delay rule (UG-014).
    Waiting(msg: MsgId) = "deadline";
    /// Retry of a message that has no untried path left.
    Backoff(msg: MsgId) = "retry";
    /// Requests with overdue answers are sent again.
    Retransmit = "retransmit";
    /// Recovery ping of an interface of this node (H-44).
    RecoverNi(ni: NiId) = "recovery";
    /// Recovery ping of an interface of a peer (H-44).
    RecoverPeer(ni: PeerNiId) = "peer-recovery";
    /// Ping data that came too fast are merged.
    Merge(peer: PeerId) = "merge";
    /// Retry of a discovery, or refresh of a peer's ping data.
    Discover(peer: PeerId) = "discovery";
}

/// All timers of a node.
#[derive(Debug)]
pub(crate) struct Timers {
    /// The earliest of each kind, not before its gate: `FAR_FUTURE` where there is none.
    first: [Instant; KINDS],
    /// No timer of the kind is due before this.
    gates: [Instant; KINDS],
    queues: [Queue; KINDS],
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            first: [Instant::FAR_FUTURE; KINDS],
            gates: [Instant::ZERO; KINDS],
            queues: TimerKind::ALL.map(|kind| Queue::new(kind.of_slots())),
        }
    }
}

impl Timers {
    /// Sets a timer, which was set or not. One in the far future is none.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        if at == Instant::FAR_FUTURE {
            self.stop(timer);
            return;
        }
        let (kind, key) = timer.parts();
        self.queues[kind as usize].set(at, key);
        self.changed(kind);
    }

    /// Sets a timer unless it is set for that time, or an earlier one.
    pub(crate) fn hasten(&mut self, timer: Timer, at: Instant) {
        if self.at(timer).is_none_or(|before| at < before) {
            self.set(timer, at);
        }
    }

    /// Stops a timer: when it was due, if it was set.
    #[inline(always)]
    pub(crate) fn stop(&mut self, timer: Timer) -> Option<Instant> {
        let (kind, key) = timer.parts();
        // Nearly always there is none of the kind.
        if self.queues[kind as usize].first().is_none() { None } else { self.take(kind, key) }
    }

    fn take(&mut self, kind: TimerKind, key: u64) -> Option<Instant> {
        let at = self.queues[kind as usize].stop(key)?;
        self.changed(kind);
        Some(at)
    }

    /// When a timer is due, if it is set.
    #[inline(always)]
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        // Where it is inlined the kind is known.
        let (kind, key) = timer.parts();
        self.queues[kind as usize].at(key)
    }

    /// Whether a timer is set.
    #[inline(always)]
    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.at(timer).is_some()
    }

    /// The next timer: of several for one instant, as [`Self::pop`] gives them.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let mut kind = TimerKind::Announce;
        let mut first = Instant::FAR_FUTURE;
        for other in TimerKind::ALL {
            if self.first[other as usize] < first {
                (kind, first) = (other, self.first[other as usize]);
            }
        }
        let (_, key) = self.queues[kind as usize].first()?;
        Some((first, kind.of(key)))
    }

    /// Takes one of the timers that are due: of the first kind that has any, the earliest; of several
    /// for one instant, the one whose subject stands first in its table.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let kind = TimerKind::ALL.into_iter().find(|kind| self.first[*kind as usize] <= now)?;
        self.pop_of(kind, now)
    }

    /// Takes the earliest of the timers of a kind that are due.
    pub(crate) fn pop_of(&mut self, kind: TimerKind, now: Instant) -> Option<Timer> {
        if self.first[kind as usize] > now {
            return None;
        }
        let queue = &mut self.queues[kind as usize];
        let (_, key) = queue.first()?;
        queue.stop(key);
        self.changed(kind);
        Some(kind.of(key))
    }

    /// Lets no timer of a kind be due before `until`.
    pub(crate) fn gate(&mut self, kind: TimerKind, until: Instant) {
        self.gates[kind as usize] = until;
        self.changed(kind);
    }

    /// Before when no timer of a kind is due.
    pub(crate) const fn gate_of(&self, kind: TimerKind) -> Instant {
        self.gates[kind as usize]
    }

    /// How many timers of a kind are set.
    pub(crate) fn count(&self, kind: TimerKind) -> usize {
        self.queues[kind as usize].len()
    }

    /// The timers of a kind, in no order.
    pub(crate) fn of(&self, kind: TimerKind) -> impl Iterator<Item = (Instant, Timer)> + '_ {
        self.queues[kind as usize].iter().map(move |(at, key)| (at, kind.of(key)))
    }

    /// All timers, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Timer> + '_ {
        TimerKind::ALL.into_iter().flat_map(|kind| self.of(kind)).map(|(_, timer)| timer)
    }

    /// The timers of a kind in the order in which they are due.
    pub(crate) fn sorted(&self, kind: TimerKind) -> Vec<(Instant, Timer)> {
        let mut all: Vec<_> = self.of(kind).collect();
        all.sort_unstable();
        all
    }

    #[inline]
    fn changed(&mut self, kind: TimerKind) {
        let first = self.queues[kind as usize].first();
        self.first[kind as usize] = match first {
            Some((at, _)) => at.max(self.gates[kind as usize]),
            None => Instant::FAR_FUTURE,
        };
    }
}

/// One kind as it is written: its gate, and its timers in the order in which they are due, so that equal
/// tables are written alike.
type Written = (Instant, Vec<(Instant, u64)>);

impl serde::Serialize for Timers {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let written = TimerKind::ALL.map(|kind| -> Written {
            let mut all: Vec<_> = self.queues[kind as usize].iter().collect();
            all.sort_unstable();
            (self.gates[kind as usize], all)
        });
        written.serialize(to)
    }
}

impl<'de> serde::Deserialize<'de> for Timers {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written: [Written; KINDS] = serde::Deserialize::deserialize(from)?;
        let mut timers = Self::default();
        for (kind, (gate, all)) in TimerKind::ALL.into_iter().zip(written) {
            for (at, key) in all {
                timers.queues[kind as usize].set(at, key);
            }
            timers.gate(kind, gate);
        }
        Ok(timers)
    }
}
