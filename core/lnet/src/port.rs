//! Ports: what an interface of this node and one of a peer have in common, which is credits, health,
//! recovery, and what was counted and measured. Data and their upkeep only. What lowers and raises
//! health is in `health.rs`, recovery pings are in `recovery/`, messages that wait for credits in
//! `send/credits.rs`.

use std::collections::VecDeque;

use lnet_types::{Instant, MdId, MsgId, NiId, PeerNiId};

use crate::flap::Flaps;
use crate::meter::MeterSlot;
use crate::policy::turn::{Grade, Turn};
use crate::stats::{StatsSlot, Transitions};
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
    /// The timer of the recovery ping of this interface.
    pub(crate) const fn recovery(self) -> Timer {
        match self {
            Self::Local(id) => Timer::RecoverNi(id),
            Self::Peer(id) => Timer::RecoverPeer(id),
        }
    }
}

/// The part of an interface that is the same for this node and for peers.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Port {
    /// 0 to [`HEALTH_MAX`].
    pub(crate) health: u32,
    /// Stored status: a local interface is down when its health reached 0 (H-16), one of a peer by
    /// what the peer or the network reported.
    pub(crate) status_up: bool,
    pub(crate) credits: Credits,
    pub(crate) recovery: Recovery,
    pub(crate) seq: u64,
    /// What rules say of it, and its turn on its network.
    pub(crate) grade: Grade,
    pub(crate) turn: Turn,
    pub(crate) stats: StatsSlot,
    /// What was measured.
    pub(crate) meter: MeterSlot,
    /// Times that it went down and came back, and what follows from it.
    pub(crate) transitions: Transitions,
    pub(crate) flaps: Flaps,
    /// Messages bound to it.
    pub(crate) refs: u32,
}

impl Port {
    /// A healthy port with so many credits.
    pub(crate) fn new(credits: u32) -> Self {
        Self {
            health: HEALTH_MAX,
            status_up: true,
            credits: Credits::new(credits),
            recovery: Recovery::default(),
            seq: 0,
            grade: Grade::default(),
            turn: Turn::default(),
            stats: StatsSlot::default(),
            meter: MeterSlot::default(),
            transitions: Transitions::default(),
            flaps: Flaps::default(),
            refs: 0,
        }
    }

    /// Counts the least free credits anew, from those that are free now.
    pub(crate) fn reset_minimum(&mut self) {
        self.credits.least = self.credits.free;
    }

    /// Zeroes what was counted and measured.
    pub(crate) fn reset_counters(&mut self) {
        self.stats = StatsSlot::default();
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

    /// Sets their number; all are free. Messages that wait stay in the queue.
    pub(crate) fn refill(&mut self, credits: u32) {
        self.free = credits as i32;
        self.least = self.free;
    }

    /// Takes a credit, and returns whether there was one. Otherwise it is owed, and the message must
    /// go into the queue.
    pub(crate) fn take(&mut self) -> bool {
        self.free -= 1;
        self.least = self.least.min(self.free);
        self.free >= 0
    }

    /// Gives a credit back, and returns the message whose turn has come. `waiter` is the message that
    /// gives it back while it waits in the queue: it never had the credit, so no turn comes of it.
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

/// Where the recovery of an interface stands (H-40 … H-51). Its timer says whether it is in recovery.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Recovery {
    /// Pings sent since something was last heard.
    pub(crate) sent: u32,
    /// Pings failed in a row.
    pub(crate) failed: u32,
    /// When the last one was sent.
    pub(crate) sent_at: Instant,
    /// The ping on its way.
    pub(crate) ping: Option<MdId>,
}

/// Health of an interface with which nothing is wrong.
pub const HEALTH_MAX: u32 = 1000;

#[cfg(test)]
mod tests {
    use slotmap::{Key, KeyData};

    use super::*;

    fn id(n: u64) -> MsgId {
        let id = MsgId::from(KeyData::from_ffi(n << 32 | n));
        assert!(!id.is_null());
        id
    }

    /// One credit, of which one message has it and two wait.
    fn contended() -> Credits {
        let mut credits = Credits::new(1);
        assert!(credits.take());
        for n in [1, 2] {
            assert!(!credits.take());
            credits.queue.push_back(id(n));
        }
        credits
    }

    #[test]
    fn each_credit_that_is_given_back_is_the_turn_of_the_first_waiting_message() {
        let mut credits = contended();
        assert_eq!((credits.free, credits.least), (-2, -2));
        assert_eq!(credits.give_back(None), Some(id(1)));
        assert_eq!(credits.give_back(None), Some(id(2)));
        assert_eq!(credits.give_back(None), None);
        assert_eq!((credits.free, credits.least), (1, -2));
    }

    #[test]
    fn a_message_that_leaves_the_queue_without_its_credit_gives_no_message_its_turn() {
        let mut credits = contended();
        assert_eq!(credits.give_back(Some(id(1))), None);
        assert_eq!((credits.free, credits.queue.make_contiguous()), (-1, &mut [id(2)][..]));
    }

    #[test]
    fn credits_that_are_set_anew_are_all_free_and_messages_go_on_waiting() {
        let mut credits = contended();
        credits.refill(8);
        assert_eq!((credits.free, credits.least, credits.queue.len()), (8, 8, 2));
    }

    #[test]
    fn an_interface_of_a_peer_without_traffic_costs_little_memory() {
        let size = size_of::<crate::peer::PeerNi>();
        assert!(size <= 400, "{size} bytes");
    }
}
