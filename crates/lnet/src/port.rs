//! What an interface of this node and one of a peer have in common: credits, health, recovery, and what
//! was counted and measured. `health.rs` and `recovery.rs` work on it, whichever it is.

use std::collections::VecDeque;

use lnet_types::{MsgId, NiId, Nid, PeerNiId};

use crate::Node;
use crate::flap::Flaps;
use crate::local::HEALTH_MAX;
use crate::meter::MeterSlot;
use crate::policy::turn::{Grade, Turn};
use crate::recovery::Recovery;
use crate::stats::{InterfaceStats, Transitions};
use crate::timers::Timer;

/// An interface, of this node or of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum PortId {
    /// Of this node.
    Local(NiId),
    /// Of a peer.
    Peer(PeerNiId),
}

impl PortId {
    /// The timer of its recovery ping.
    pub(crate) const fn recovery(self) -> Timer {
        match self {
            Self::Local(id) => Timer::RecoverNi(id),
            Self::Peer(id) => Timer::RecoverPeer(id),
        }
    }
}

/// The part of an interface that does not depend on whose it is.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Port {
    /// 0 to [`HEALTH_MAX`].
    pub(crate) health: u32,
    /// Stored status: of ours down when health reached 0 (H-16), of a peer's what is known of it.
    pub(crate) status_up: bool,
    pub(crate) credits: Credits,
    pub(crate) recovery: Recovery,
    pub(crate) seq: u64,
    /// What rules say of it, and its turn on its network.
    pub(crate) grade: Grade,
    pub(crate) turn: Turn,
    pub(crate) stats: InterfaceStats,
    /// What was measured.
    pub(crate) meter: MeterSlot,
    /// Times that it went down and came back, and what follows from it.
    pub(crate) transitions: Transitions,
    pub(crate) flaps: Flaps,
    /// Messages bound to it.
    pub(crate) refs: u32,
}

impl Port {
    /// A healthy one.
    pub(crate) fn new(credits: u32) -> Self {
        Self {
            health: HEALTH_MAX,
            status_up: true,
            credits: Credits::new(credits),
            recovery: Recovery::default(),
            seq: 0,
            grade: Grade::default(),
            turn: Turn::default(),
            stats: InterfaceStats::default(),
            meter: MeterSlot::default(),
            transitions: Transitions::default(),
            flaps: Flaps::default(),
            refs: 0,
        }
    }

    /// Zeroes what was counted and measured.
    pub(crate) fn reset_counters(&mut self) {
        self.stats = InterfaceStats::default();
        self.transitions = Transitions::default();
        self.meter.reset();
    }
}

/// Concurrent sends of an interface. A count of −n says that n messages wait (C-4).
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Credits {
    pub(crate) free: i32,
    /// The least that were ever free.
    pub(crate) least: i32,
    /// Messages that wait for one, in their order.
    pub(crate) queue: VecDeque<MsgId>,
}

impl Credits {
    pub(crate) fn new(credits: u32) -> Self {
        let free = credits as i32;
        Self { free, least: free, queue: VecDeque::new() }
    }

    /// There are so many from now on, all free. Messages that wait stay in the queue.
    pub(crate) fn refill(&mut self, credits: u32) {
        self.free = credits as i32;
        self.least = self.free;
    }

    /// Takes a credit: whether there was one. Otherwise it is owed, and the message belongs into the
    /// queue.
    pub(crate) fn take(&mut self) -> bool {
        self.free -= 1;
        self.least = self.least.min(self.free);
        self.free >= 0
    }

    /// Gives a credit back that was taken: the message whose turn it is now. `waiter`: the message that
    /// gives it leaves the queue without having had it, so that it is no other message's turn.
    pub(crate) fn give_back(&mut self, waiter: Option<MsgId>) -> Option<MsgId> {
        self.free += 1;
        match waiter {
            Some(id) => {
                self.queue.retain(|x| *x != id);
                None
            }
            None if self.free <= 0 => self.queue.pop_front(),
            None => None,
        }
    }
}

impl Node {
    /// An interface, if it is there.
    pub(crate) fn port(&self, id: PortId) -> Option<&Port> {
        match id {
            PortId::Local(id) => self.nis.get(id).map(|ni| &ni.port),
            PortId::Peer(id) => self.peers.nis.get(id).map(|pni| &pni.port),
        }
    }

    pub(crate) fn port_mut(&mut self, id: PortId) -> Option<&mut Port> {
        match id {
            PortId::Local(id) => self.nis.get_mut(id).map(|ni| &mut ni.port),
            PortId::Peer(id) => self.peers.nis.get_mut(id).map(|pni| &mut pni.port),
        }
    }

    /// The NID of an interface.
    pub(crate) fn nid_of_port(&self, id: PortId) -> Option<Nid> {
        match id {
            PortId::Local(id) => self.nis.get(id).map(|ni| ni.nid),
            PortId::Peer(id) => self.peers.nis.get(id).map(|pni| pni.nid),
        }
    }
}
