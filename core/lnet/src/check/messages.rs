//! Invariants of messages: each is in the place that its stage names and in no other one, and what
//! messages hold of interfaces, descriptors and buffers is what those miss.

use lnet_types::{MdId, MsgId, NiId, PeerId, PeerNiId};
use slotmap::SecondaryMap;

use super::{Violation, expect};
use crate::Node;
use crate::fault::Held;
use crate::msg::{Msg, Role, Stage};
use crate::router::PoolKind;
use crate::send::queued_bytes;
use crate::timers::{Timer, TimerKind};

/// A table in which a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    NiQueue(NiId),
    PeerQueue(PeerNiId),
    Parked(PeerId),
    Backoff,
    Held(u64),
    Portal,
    TransitQueue(PeerNiId),
    PoolQueue(PoolKind),
}

/// What messages hold of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    refs: u32,
    credits: i32,
    bytes: u64,
    received: u32,
    router_credits: i32,
}

/// What all messages hold.
#[derive(Default)]
struct Sum {
    nis: SecondaryMap<NiId, Share>,
    peer_nis: SecondaryMap<PeerNiId, Share>,
    mds: SecondaryMap<MdId, u32>,
    buffers: [u32; 3],
    counted: u32,
    answering: usize,
    remnants: usize,
    resting: usize,
    deferred: usize,
}

impl Sum {
    fn ni(&mut self, id: NiId) -> Option<&mut Share> {
        Some(self.nis.entry(id)?.or_default())
    }

    fn peer_ni(&mut self, id: PeerNiId) -> Option<&mut Share> {
        Some(self.peer_nis.entry(id)?.or_default())
    }
}

impl Node {
    pub(super) fn check_messages(&self) -> Result<(), Violation> {
        let places = self.places()?;
        let mut sum = Sum::default();
        for (id, msg) in self.msgs.iter() {
            self.check_place(id, msg, places.get(id).copied())?;
            self.add(id, msg, &mut sum)?;
        }
        expect(
            "msgs_alloc counts messages in hand",
            "node",
            sum.counted,
            self.counts.stats().msgs_alloc,
        )?;
        expect(
            "messages that wait for answers are counted",
            "node",
            sum.answering,
            self.msgs.answering(),
        )?;
        expect("replaced messages are counted", "node", sum.remnants, self.msgs.copies.len())?;
        let resting = self.msgs.resting.all().count();
        expect("resting messages are listed by target", "node", sum.resting, resting)?;
        let deferred = self.router.deferred.len();
        expect("deferred messages wait on this router", "router", sum.deferred, deferred)?;
        self.check_shares(&sum)
    }

    /// Where each message waits, from the tables.
    fn places(&self) -> Result<SecondaryMap<MsgId, Place>, Violation> {
        let mut places = SecondaryMap::new();
        let mut put = |id: MsgId, place: Place| {
            expect("messages in queues exist", (id, place), true, self.msgs.contains_key(id))?;
            let before = places.insert(id, place);
            expect("a message waits in one place", id, None, before.map(|old| (old, place)))
        };
        for (id, ni) in self.nis.iter() {
            for msg in &ni.port.credits.queue {
                put(*msg, Place::NiQueue(id))?;
            }
        }
        for (id, pni) in &self.peers.nis {
            for msg in &pni.port.credits.queue {
                put(*msg, Place::PeerQueue(id))?;
            }
            for msg in &pni.transit.queue {
                put(*msg, Place::TransitQueue(id))?;
            }
        }
        for (id, peer) in &self.peers.peers {
            for msg in &peer.disc.parked {
                put(*msg, Place::Parked(id))?;
            }
        }
        for (_, timer) in self.timers.of(TimerKind::Backoff) {
            if let Timer::Backoff(msg) = timer {
                put(msg, Place::Backoff)?;
            }
        }
        for (token, held) in self.faults.all_held() {
            if let Held::Leaving(msg) = held {
                put(*msg, Place::Held(token))?;
            }
        }
        for delayed in self.portals.all_delayed() {
            put(delayed.msg, Place::Portal)?;
        }
        for pool in &self.router.pools {
            for msg in pool.waiting() {
                put(msg, Place::PoolQueue(pool.kind))?;
            }
        }
        Ok(places)
    }

    /// A message is where its stage says, with the credits of that stage.
    fn check_place(&self, id: MsgId, msg: &Msg, found: Option<Place>) -> Result<(), Violation> {
        let from = || msg.rx.and_then(|rx| rx.peer_ni);
        let place = match msg.stage {
            Stage::Moving => {
                return expect("no message is without a place", id, None, Some(msg.role));
            }
            Stage::Receiving | Stage::Driver | Stage::Answering => None,
            Stage::Deferred => Some(Place::Portal),
            Stage::TransitQueue => from().map(Place::TransitQueue),
            Stage::PoolQueue => msg.transit.as_ref().map(|t| Place::PoolQueue(t.holds().0)),
            Stage::Parked(peer) => Some(Place::Parked(peer)),
            Stage::PeerQueue => msg.tx.and_then(|tx| tx.peer_ni).map(Place::PeerQueue),
            Stage::NiQueue => msg.tx.map(|tx| Place::NiQueue(tx.ni)),
            Stage::Resting(_) => Some(Place::Backoff),
            Stage::Held(token) => Some(Place::Held(token)),
        };
        let subject = (id, msg.role, msg.stage);
        expect("a message is in the place of its stage", subject, place, found)?;
        // What it has taken: the credit of its peer's interface, and that of ours.
        let has = msg.tx.map(|tx| (tx.peer_credit, tx.ni_credit));
        let taken = match msg.stage {
            Stage::PeerQueue => Some((true, false)),
            Stage::NiQueue | Stage::Held(_) => Some((true, true)),
            // A remnant has left its credits to the copy that replaces it.
            Stage::Driver if msg.role == Role::Remnant => Some((false, false)),
            Stage::Driver if msg.tx.is_some_and(|tx| tx.peer_ni.is_none()) => Some((false, false)),
            // Stuck on a rail that other messages have left, it has left both to them.
            Stage::Driver if has == Some((false, false)) => has,
            Stage::Driver => Some((true, true)),
            _ => None,
        };
        expect("a message has the credits of its stage", subject, taken, has)?;
        let waits = matches!(
            msg.stage,
            Stage::PeerQueue | Stage::NiQueue | Stage::Parked(_) | Stage::Held(_)
        );
        let watched = waits && self.tunables.conduct.expires_waiting && msg.role != Role::Forward;
        let is_set = self.timers.is_set(Timer::Waiting(id));
        expect("a message that waits has its deadline set", subject, watched, is_set)
    }

    /// Adds what a message holds.
    fn add(&self, id: MsgId, msg: &Msg, sum: &mut Sum) -> Result<(), Violation> {
        sum.counted += u32::from(msg.counted);
        sum.answering += usize::from(msg.stage == Stage::Answering);
        sum.remnants += usize::from(msg.role == Role::Remnant);
        if let Stage::Resting(_) = msg.stage {
            let is_listed = self.msgs.resting.of(msg.hdr.dst).any(|listed| listed == id);
            expect("a resting message is listed by its target", id, true, is_listed)?;
            sum.resting += 1;
        }
        if let Some(md) = msg.md {
            let exists = self.portals.mds.contains_key(md);
            expect("the descriptor of a message exists", (id, msg.role, md), true, exists)?;
            if msg.stage != Stage::Answering
                && let Some(entry) = sum.mds.entry(md)
            {
                *entry.or_default() += 1;
            }
        }
        if let Some(tx) = msg.tx {
            let exists = self.nis.contains_key(tx.ni)
                && tx.peer_ni.is_none_or(|id| self.peers.nis.contains_key(id));
            expect("the path of a message exists", (id, msg.role, msg.stage), true, exists)?;
            if let Some(share) = sum.ni(tx.ni) {
                share.refs += u32::from(tx.peer_ni.is_some());
                share.credits += i32::from(tx.ni_credit);
            }
            if let Some(share) = tx.peer_ni.and_then(|id| sum.peer_ni(id)) {
                share.refs += 1;
                share.credits += i32::from(tx.peer_credit);
                share.bytes += if tx.peer_credit { queued_bytes(msg) } else { 0 };
            }
        }
        if let Some(share) = msg.rx.and_then(|rx| rx.peer_ni).and_then(|id| sum.peer_ni(id)) {
            share.received += 1;
        }
        if let Some(transit) = &msg.transit {
            let (kind, credit, buffer) = transit.holds();
            if let Some(buffers) = sum.buffers.get_mut(kind as usize) {
                *buffers += u32::from(buffer);
            }
            if let Some(share) = msg.rx.and_then(|rx| rx.peer_ni).and_then(|id| sum.peer_ni(id)) {
                share.refs += 1;
                share.router_credits += i32::from(credit);
            }
        }
        if matches!(msg.stage, Stage::TransitQueue | Stage::PoolQueue) {
            sum.deferred += 1;
            let by_name = msg.rx.and_then(|rx| self.router.deferred.get(&(rx.ni, rx.id)));
            expect("a deferred message is known by its name", id, Some(&id), by_name)?;
        }
        Ok(())
    }

    /// What interfaces, descriptors and pools miss is what messages hold.
    fn check_shares(&self, sum: &Sum) -> Result<(), Violation> {
        let waiting = |free: i32| usize::try_from(-free).unwrap_or(0);
        for (id, ni) in self.nis.iter() {
            let share = sum.nis.get(id).copied().unwrap_or_default();
            let max = self.nis.tunables_of(ni.nid.net()).map_or(0, |t| t.credits) as i32;
            let credits = &ni.port.credits;
            expect("credits of an interface", ni.nid, max, credits.free + share.credits)?;
            let queue = credits.queue.len();
            expect("queue of an interface", ni.nid, waiting(credits.free), queue)?;
            expect("messages bound to an interface", ni.nid, share.refs, ni.port.refs)?;
        }
        for (id, pni) in &self.peers.nis {
            let share = sum.peer_nis.get(id).copied().unwrap_or_default();
            let max = pni.local.map_or(0, |t| t.peer_credits) as i32;
            let credits = &pni.port.credits;
            let queue = credits.queue.len();
            expect("credits of a peer's interface", pni.nid, max, credits.free + share.credits)?;
            expect("queue of a peer's interface", pni.nid, waiting(credits.free), queue)?;
            expect("messages bound to a peer's interface", pni.nid, share.refs, pni.port.refs)?;
            expect("bytes queued for a peer", pni.nid, share.bytes, pni.queued_bytes)?;
            expect("messages in hand from a peer", pni.nid, share.received, pni.received)?;
            let held = pni.transit.held;
            expect("router credits of a peer", pni.nid, share.router_credits, held)?;
            let exists = !pni.deleting || pni.port.refs > 0;
            expect("a removed interface of a peer is in use", pni.nid, true, exists)?;
        }
        for (id, md) in &self.portals.mds {
            let refs = sum.mds.get(id).copied().unwrap_or_default();
            expect("operations of a descriptor", (id, md.owner), refs, md.refs)?;
        }
        for (pool, out) in self.router.pools.iter().zip(sum.buffers) {
            pool.check(out).map_err(|(invariant, expected, found)| Violation {
                invariant,
                subject: format!("{:?}", pool.kind),
                expected: expected.to_string(),
                found: found.to_string(),
            })?;
        }
        Ok(())
    }
}
