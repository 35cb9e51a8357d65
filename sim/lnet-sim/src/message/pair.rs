//! What is between two rails: a connection that is open at each end or not, attempts to make one,
//! and messages in each direction. Messages stay in one place ([`Parcels`]) while their numbers
//! move from queue to queue.

use core::ops::{Index, IndexMut};
use core::time::Duration;
use std::collections::VecDeque;

use lnet::Retention;
use lnet_types::{Instant, MsgId, PeerNiId, RxId};
use lnet_wire::Hdr;

use crate::directory::RailIx;
use crate::memory::Body;

/// A message in a driver's hands, or on its way.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) msg: MsgId,
    pub(super) hdr: Hdr,
    pub(super) body: Body,
    /// When its driver gives up on it, if it has not been written by then.
    pub(super) deadline: Instant,
    /// How long the transport may take to have it acknowledged.
    pub(super) limit: Duration,
    /// The terms on which it is repeated if it is in doubt; `None` if it is not, or has been.
    pub(super) retention: Option<Retention>,
}

impl Parcel {
    /// Bytes on the wire: with the header and what frames it.
    pub(super) fn wire_len(&self) -> u64 {
        u64::from(self.body.len()) + FRAMING
    }
}

/// Bytes around a payload: header, frame, TCP and IP.
const FRAMING: u64 = 160;

/// Names a [`Parcel`] until it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParcelId(u32);

/// All messages in drivers' hands and on their way.
#[derive(Debug, Default)]
pub(super) struct Parcels {
    all: Vec<Parcel>,
    free: Vec<u32>,
}

impl Parcels {
    pub(super) fn add(&mut self, parcel: Parcel) -> ParcelId {
        match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = parcel;
                ParcelId(at)
            }
            None => {
                self.all.push(parcel);
                ParcelId(self.all.len() as u32 - 1)
            }
        }
    }

    pub(super) fn drop(&mut self, id: ParcelId) {
        // Its bytes have no owner any more.
        self.all[id.0 as usize].body = Body::Blank(0);
        self.free.push(id.0);
    }

    pub(super) fn drop_all(&mut self, ids: impl IntoIterator<Item = ParcelId>) {
        for id in ids {
            self.drop(id);
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

impl Index<ParcelId> for Parcels {
    type Output = Parcel;

    fn index(&self, id: ParcelId) -> &Parcel {
        &self.all[id.0 as usize]
    }
}

impl IndexMut<ParcelId> for Parcels {
    fn index_mut(&mut self, id: ParcelId) -> &mut Parcel {
        &mut self.all[id.0 as usize]
    }
}

/// Attempts of one end to connect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dial {
    pub(super) trying: bool,
    pub(super) since: Instant,
    /// Counts attempts, so that what belongs to an older one is known.
    pub(super) attempt: u32,
    pub(super) not_before: Instant,
    pub(super) backoff: Duration,
}

/// One direction: from `ends[n]` to the other.
#[derive(Debug, Default)]
pub(super) struct Dir {
    /// Not written: no connection yet, or no room.
    pub(super) queue: VecDeque<ParcelId>,
    /// Written, and on their way, in the order of their arrival.
    pub(super) flying: VecDeque<ParcelId>,
    /// Written, and swallowed by the fabric so far: the transport repeats them.
    pub(super) stalled: VecDeque<ParcelId>,
    pub(super) stalled_since: Instant,
    pub(super) rto: Duration,
    /// Arrived behind one that the receiver has deferred, which is the first.
    pub(super) held: VecDeque<ParcelId>,
    pub(super) deferred: Option<RxId>,
    /// Bytes written and not read at the other end.
    pub(super) unread: u64,
    /// When the last one arrives: streams keep their order.
    pub(super) last_arrival: Instant,
}

/// Two rails. Connections have numbers; one is open at an end, or none (0).
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) ends: [RailIx; 2],
    /// What the node at each end calls the interface at the other one.
    pub(super) peer_nis: [Option<PeerNiId>; 2],
    pub(super) made: u32,
    pub(super) open: [u32; 2],
    pub(super) dial: [Dial; 2],
    pub(super) dirs: [Dir; 2],
    /// When each end last heard of the other, by the world's clock.
    pub(super) heard: [Instant; 2],
    /// Since when each end doubts the rail (DEC-31).
    pub(super) doubted: [Option<Instant>; 2],
    /// When such a rail is looked at next.
    pub(super) look: [Instant; 2],
    /// Whether each end repeats what a connection loses, as the other one does.
    pub(super) repeats: [bool; 2],
}

impl Pair {
    pub(super) fn new(ends: [RailIx; 2]) -> Self {
        Self {
            ends,
            peer_nis: [None; 2],
            made: 0,
            open: [0; 2],
            dial: Default::default(),
            dirs: Default::default(),
            heard: [Instant::ZERO; 2],
            doubted: [None; 2],
            look: [Instant::ZERO; 2],
            repeats: [false; 2],
        }
    }
}
