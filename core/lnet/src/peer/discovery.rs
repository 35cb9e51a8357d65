//! Discovery: how a peer's interfaces are learnt and ours are announced to it (behaviour.md 6).
//!
//! ```text
//!   query ──► Ping ──► (reply) ──► Merge ──► Push ──► (ACK) ──► Idle: discovered
//!              ▲          │                   │
//!              ╰──────────┴─── useless ───────┴─── error ──► Idle: waiters are notified, retry.rs
//! ```
//!
//! A step is taken from the work list whenever something has happened that may move a peer on;
//! [`Discovery::next`](super::sync::Discovery::next) says which, and the functions here carry it out.
//! What comes of it is taken in by `replies.rs`. Why a peer is queried at all is in `query.rs`, retries are in `retry.rs`, the merge in
//! `merge.rs`; what is rejected, in `admission.rs` and `claims.rs`.

use lnet_types::{Instant, PeerId, ProcessId};

use crate::internal::PingTo;
use crate::outbox::Work;
use crate::peer::sync::Step;
use crate::portal::md::{Md, MdBuf};
use crate::portal::owner::{Internal, Owner};
use crate::portal::{PING_BITS, RESERVED_PORTAL};
use crate::send::{Operation, Verb};
use crate::{MdOptions, Node, Timeouts};

impl Node {
    /// Takes the next step for a peer (D-14).
    pub(crate) fn discovery_step(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get(id) else { return };
        match peer.disc.next(self.merge_is_held(now, id), self.ours_for(peer)) {
            Step::Wait => {}
            Step::Idle => self.discovery_succeeds(now, id),
            Step::Rebuild => {
                if self.may_rebuild(now, id) {
                    self.keep_debt(id);
                    // D-80: its waiters are notified of the end.
                    self.delete_peer(now, id);
                }
            }
            Step::Merge => {
                if self.may_merge(now, id) {
                    self.merge_received(now, id);
                }
            }
            Step::Ping => self.discovery_ping(now, id),
            Step::Push => self.push(now, id),
        }
    }

    fn discovery_succeeds(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id).filter(|p| p.disc.is_running) else { return };
        peer.disc.discovered = true;
        // D-50: a peer that is not Multi-Rail receives no push.
        peer.disc.teach.drop_wishes();
        self.discovery_ends(now, id, Ok(()));
    }

    /// D-30, D-31.
    fn discovery_ping(&mut self, now: Instant, id: PeerId) {
        let limit = self.check_timeout(id).or_else(|| self.peers.retry_limit(&self.tunables, id));
        let turn = self.peers.turn_of_retry(&self.tunables, id);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.disc.seq_before = peer.disc.peer_seq;
        let (nid, bytes) = (turn.unwrap_or(peer.primary), peer.disc.need);
        let to = PingTo { direct: turn.is_some(), ..PingTo::from(nid) };
        let limits = limit.map_or_else(|| self.own_limits(), Timeouts::from);
        let sent = self.internal_ping(now, to, Internal::DiscoveryPing(id), bytes, limits);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        match sent {
            Ok(md) => peer.disc.learn.depart(md),
            Err(errno) => self.discovery_ends(now, id, Err(errno)),
        }
    }

    /// D-50.
    pub(crate) fn push(&mut self, now: Instant, id: PeerId) {
        let (bytes, seq) = (self.announcement_for(id), self.own.seq());
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let (src, nid) = match peer.disc.via.take() {
            Some((own, theirs)) => (Some(own), theirs),
            None => (None, peer.primary),
        };
        let md = self.portals.mds.insert(Md::new(
            MdBuf::Bytes(bytes),
            Some(2),
            MdOptions::TRACK_RESPONSE,
            Owner::Internal(Internal::Push(id)),
            true,
        ));
        peer.disc.teach.depart(md);
        peer.disc.pushed_seq = seq;
        let op = Operation {
            md,
            src: src.filter(|nid| self.nis.owns(*nid)),
            target: ProcessId::lustre(nid),
            portal: RESERVED_PORTAL,
            match_bits: PING_BITS,
            limits: self.own_limits(),
            recovery: false,
            verb: Verb::Put { ack: true, hdr_data: 0, offset: 0 },
        };
        match self.operate(now, op) {
            Ok(msg) => self.outbox.plan(Work::Depart(msg)),
            Err(e) => {
                self.portals.mds.remove(md);
                self.discovery_ends(now, id, Err(e.errno()));
            }
        }
    }
}
