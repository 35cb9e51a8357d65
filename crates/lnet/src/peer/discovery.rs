//! Discovery: how a peer's interfaces are learnt and ours are told (behaviour.md 6).
//!
//! ```text
//!             request                    data good              ACK, or no push needed
//!   Idle ───────────────► Pinging ───────────────► (merge) ─┬──────────────────────► Idle
//!     ▲                     │  ▲  data bad or cut short     │ needs our data          (discovered)
//!     │       error         │  ╰───────────────╯            ▼
//!     ╰─────────────────────┴──────────────────────────── Pushing
//! ```
//!
//! One phase per peer; the facts that outlive a round are `PeerFlags`. `step` is entered from the
//! work list whenever something has happened that may move a peer on; it does one thing and leaves.
//! The rules of adding and removing NIDs are in `config.rs`; what is not believed, in `refusal.rs` and
//! `claims.rs`; what has failed and is tried again, in `again.rs`.

use std::collections::{BTreeSet, VecDeque};

use lnet_types::{Errno, Instant, MdId, MsgId, Nid, PeerId, Pid, ProcessId};
use lnet_wire::ping::{Features, NiStatus, PingEntry, PingInfo};

use crate::internal::Internal;
use crate::local::HEALTH_MAX;
use crate::node::Work;
use crate::peer::again::Again;
use crate::peer::claims::Said;
use crate::peer::config::Change;
use crate::peer::refusal::{Budget, Refusal};
use crate::peer::{Peer, PeerFlags};
use crate::ping::{PING_BITS, PING_BYTES_MAX, PING_BYTES_MIN};
use crate::port::PortId;
use crate::portal::RESERVED_PORTAL;
use crate::portal::md::{Md, MdBuf, Owner};
use crate::send::{Operation, Verb};
use crate::timers::Timer;
use crate::{Event, EventKind, MdOptions, Node, OpId, Timeouts};

/// Where the discovery of a peer stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Phase {
    /// Nobody has asked.
    #[default]
    Idle,
    /// Asked for; the next step decides what to do.
    Due,
    /// Our ping is on its way.
    Pinging(MdId),
    /// Our data are on their way.
    Pushing(MdId),
}

/// What discovery keeps for each peer.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Discovery {
    pub(crate) phase: Phase,
    /// Ping or push data not yet merged (DATA_PRESENT).
    pub(crate) data: Option<Said>,
    /// The error of the last round.
    pub(crate) error: Option<Errno>,
    /// Bytes that its ping data need.
    pub(crate) need: u32,
    /// Its sequence number, as last received.
    pub(crate) peer_seq: u32,
    /// The same when the ping on its way was sent.
    pub(crate) seq_before: u32,
    /// Our sequence number, as last acknowledged by it.
    pub(crate) acked_seq: u32,
    /// The sequence number in the push on its way.
    pub(crate) pushed_seq: u32,
    /// Own NID and its NID that the last ping used: the push takes the same path (D-32).
    pub(crate) via: Option<(Nid, Nid)>,
    /// Messages that wait for the end of this.
    pub(crate) parked: VecDeque<MsgId>,
    /// Users that wait for the end of this.
    pub(crate) waiters: Vec<OpId>,
    /// The peer that was asked last on account of what this one says, and did not answer.
    pub(crate) silent: Option<PeerId>,
    /// NIDs of other peers that its newest data list (`claims.rs`).
    pub(crate) claims: Vec<Nid>,
    /// Questions to others on account of them.
    pub(crate) asks: Budget,
    /// What its data have cost.
    pub(crate) merges: Budget,
    /// Replies in a row that were no use (bounded, unlike the kernel's: Z-8).
    pub(crate) bad_replies: u8,
    /// When it is tried again.
    pub(crate) again: Again,
}

/// How many useless replies in a row end a discovery.
const BAD_REPLIES_MAX: u8 = 8;

impl Discovery {
    pub(crate) fn is_running(&self) -> bool {
        self.phase != Phase::Idle
    }
}

impl Node {
    /// O-21.
    pub(crate) fn is_up_to_date(&self, id: PeerId) -> bool {
        let Some(peer) = self.peers.peers.get(id) else { return false };
        let f = peer.flags;
        !peer.disc.is_running()
            && peer.disc.data.is_none()
            && f.contains(PeerFlags::DISCOVERED | PeerFlags::NIDS_UPTODATE)
            && !f.intersects(PeerFlags::FORCE_PING | PeerFlags::FORCE_PUSH | PeerFlags::REDISCOVER)
            && !self.needs_push(peer)
    }

    /// O-23.
    fn discovery_disabled(&self, peer: &Peer) -> bool {
        self.tunables.discovery == 0
            || !peer.is_mr()
            || peer.flags.contains(PeerFlags::NO_DISCOVERY)
    }

    /// D-21.
    fn needs_push(&self, peer: &Peer) -> bool {
        let f = peer.flags;
        f.contains(PeerFlags::MULTI_RAIL)
            && !f.contains(PeerFlags::MARK_DELETION)
            && !matches!(peer.disc.phase, Phase::Pushing(_))
            && (f.contains(PeerFlags::FORCE_PUSH)
                || (!f.contains(PeerFlags::NO_DISCOVERY)
                    && self.tunables.discovery != 0
                    && (peer.disc.acked_seq != self.ping_seq || self.wants_to_tell(peer))))
    }

    /// Asks for a peer to be discovered (D-11, D-13).
    pub(crate) fn request_discovery(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.peers.get_mut(id)
            && peer.disc.phase == Phase::Idle
        {
            peer.disc.phase = Phase::Due;
            self.work.push_back(Work::Discover(id));
        }
    }

    /// The next thing to do for a peer under discovery (D-14).
    pub(crate) fn discovery_step(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if peer.flags.contains(PeerFlags::MARK_DELETION) && peer.disc.phase != Phase::Idle {
            if self.may_rebuild(now, id) {
                self.rebuild_peer(now, id);
            }
            return;
        }
        if peer.disc.data.is_some() {
            if !self.may_merge(now, id) {
                return;
            }
            let Some(peer) = self.peers.peers.get_mut(id) else { return };
            let Some(data) = peer.disc.data.take() else { return };
            peer.flags |= PeerFlags::NIDS_UPTODATE;
            let at = self.process_data(now, id, &data);
            let own = |e: &PingEntry| e.nid.is_loopback() || self.peers.owner(e.nid) == Some(at);
            let owned = data.info.entries.iter().all(own);
            self.open_session(id, at, owned);
            self.rehome_later();
            if let Some(peer) = self.peers.peers.get_mut(at) {
                if peer.disc.phase == Phase::Idle {
                    peer.disc.phase = Phase::Due;
                }
                self.work.push_back(Work::Discover(at));
            }
            return;
        }
        if peer.disc.phase != Phase::Due {
            return;
        }
        if peer.flags.contains(PeerFlags::FORCE_PING)
            || !peer.flags.contains(PeerFlags::NIDS_UPTODATE)
        {
            return self.discovery_ping(now, id);
        }
        let Some(peer) = self.peers.peers.get(id) else { return };
        if self.needs_push(peer) {
            return self.push(now, id);
        }
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.flags |= PeerFlags::DISCOVERED;
            peer.flags -= PeerFlags::REDISCOVER | PeerFlags::FORCE_PUSH;
        }
        self.discovery_ends(now, id, None);
    }

    /// Tells everybody who waits (D-16).
    fn discovery_ends(&mut self, now: Instant, id: PeerId, error: Option<Errno>) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let phase = core::mem::take(&mut peer.disc.phase);
        peer.disc.error = error;
        peer.disc.bad_replies = 0;
        if error.is_some() {
            peer.flags |= PeerFlags::REDISCOVER;
            self.discovery_failed(now, id, phase);
        } else {
            self.discovered_at_last(id);
        }
        self.gateway_discovered(now, id, error);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let parked = core::mem::take(&mut peer.disc.parked);
        let waiters = core::mem::take(&mut peer.disc.waiters);
        self.release_parked(parked, error);
        for op in waiters {
            self.discovered(now, op, error.map_or(Ok(id), Err));
        }
    }

    /// Sends parked messages on their way again, or ends them.
    pub(crate) fn release_parked(&mut self, parked: VecDeque<MsgId>, error: Option<Errno>) {
        for msg in parked {
            self.timers.stop(Timer::Waiting(msg));
            if let Some(m) = self.msgs.get_mut(msg) {
                m.stage = crate::msg::Stage::Moving;
                match error {
                    None => self.work.push_back(Work::Launch(msg)),
                    Some(errno) => {
                        m.no_resend = true;
                        let fault =
                            lnet_types::Fault::new(lnet_types::HealthStatus::RemoteError, errno);
                        self.work.push_back(Work::Finish(msg, Err(fault)));
                    }
                }
            }
        }
    }

    /// D-30, D-31.
    fn discovery_ping(&mut self, now: Instant, id: PeerId) {
        let limit = self.check_timeout(id);
        let limit = limit.or_else(|| self.retry_limit(id));
        let turn = self.turn_of_retry(id);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.flags -= PeerFlags::FORCE_PING;
        let target = ProcessId { nid: turn.unwrap_or(peer.primary), pid: Pid::LUSTRE };
        let bytes = peer.disc.need.clamp(PING_BYTES_MIN, PING_BYTES_MAX);
        let md = self.portals.mds.insert(Md::new(
            MdBuf::Collect(bytes),
            Some(2),
            MdOptions::TRUNCATE | MdOptions::TRACK_RESPONSE,
            Owner::Internal(Internal::DiscoveryPing(id)),
            true,
        ));
        peer.disc.phase = Phase::Pinging(md);
        peer.disc.seq_before = peer.disc.peer_seq;
        let op = Operation {
            md,
            src: None,
            target,
            portal: RESERVED_PORTAL,
            match_bits: PING_BITS,
            limits: limit.map_or_else(Timeouts::default, Timeouts::from),
            // Just there.
            recovery: turn.is_some(),
            verb: Verb::Get { offset: 0 },
        };
        if let Err(e) = self.operate(now, op) {
            self.portals.mds.remove(md);
            self.discovery_ends(now, id, Some(e.errno()));
        }
    }

    /// D-50.
    fn push(&mut self, now: Instant, id: PeerId) {
        let bytes = self.ping_bytes.clone();
        let seq = self.ping_seq;
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.flags -= PeerFlags::FORCE_PUSH;
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
        peer.disc.phase = Phase::Pushing(md);
        peer.disc.pushed_seq = seq;
        let hdr_data = self.session_for_push(id);
        let op = Operation {
            md,
            src: src.filter(|nid| self.nis.values().any(|ni| ni.nid == *nid)),
            target: ProcessId { nid, pid: Pid::LUSTRE },
            portal: RESERVED_PORTAL,
            match_bits: PING_BITS,
            limits: Timeouts::default(),
            recovery: false,
            verb: Verb::Put { ack: true, hdr_data, offset: 0 },
        };
        if let Err(e) = self.operate(now, op) {
            self.portals.mds.remove(md);
            self.discovery_ends(now, id, Some(e.errno()));
        }
    }

    /// An event on the descriptor of a discovery ping (D-32 … D-38).
    pub(crate) fn discovery_ping_event(
        &mut self,
        now: Instant,
        id: PeerId,
        event: &Event,
        bytes: &[u8],
    ) {
        let ours = |p: &&mut Peer| p.disc.phase == Phase::Pinging(event.md);
        let Some(peer) = self.peers.peers.get_mut(id).filter(ours) else { return };
        match (event.kind, event.status) {
            (EventKind::Send, Ok(())) => {}
            (EventKind::Send | EventKind::Reply, Err(errno)) => {
                self.abandon(event);
                self.discovery_ends(now, id, Some(errno));
            }
            (EventKind::Unlink, _) => self.discovery_ends(now, id, Some(Errno::ETIMEDOUT)),
            (EventKind::Reply, Ok(())) => {
                peer.disc.phase = Phase::Due;
                // D-32: the node itself, not the gateway that its answer came through.
                peer.disc.via = Some((event.target.nid, event.source.nid));
                // What it was asked at answers for itself, by whatever interface.
                let primary = peer.primary;
                let source = event.source.nid;
                let by = if self.peers.owner(source) == Some(id) { source } else { primary };
                self.ping_reply(now, id, by, bytes);
            }
            (EventKind::Put | EventKind::Get | EventKind::Ack, _) => {}
        }
    }

    /// A SEND that failed leaves a descriptor for which no response will come.
    pub(crate) fn abandon(&mut self, event: &Event) {
        if !event.unlinked {
            self.untrack(event.md);
            self.portals.mds.remove(event.md);
        }
    }

    fn ping_reply(&mut self, now: Instant, id: PeerId, by: Nid, bytes: &[u8]) {
        let parsed = PingInfo::parse(bytes);
        if parsed.is_err() {
            self.not_taken(id, None, Refusal::Malformed);
        }
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let Ok(parsed) = parsed else {
            // D-33, bounded.
            peer.disc.bad_replies += 1;
            peer.flags |= PeerFlags::FORCE_PING;
            if peer.disc.bad_replies >= BAD_REPLIES_MAX {
                return self.discovery_ends(now, id, Some(Errno::EPROTO));
            }
            return self.work.push_back(Work::Discover(id));
        };
        let need = u32::try_from(parsed.size).unwrap_or(PING_BYTES_MAX);
        peer.disc.need = need.min(PING_BYTES_MAX);
        let cut = parsed.truncated().is_some();
        let info = parsed.info;
        // A push has come in since it was asked, and says something later; kernel nodes forget that.
        let Discovery { peer_seq, seq_before, .. } = peer.disc;
        let is_overtaken = peer_seq != seq_before
            && is_later(peer_seq, info.seq)
            && !self.tunables.kernel_clocks();
        if is_overtaken || cut && bytes.len() < PING_BYTES_MAX as usize {
            // D-36
            peer.disc.bad_replies += 1;
            peer.flags |= PeerFlags::FORCE_PING;
            let too_often = peer.disc.bad_replies >= BAD_REPLIES_MAX;
            self.grow_push_buffer(need);
            if too_often {
                return self.discovery_ends(now, id, Some(Errno::EPROTO));
            }
            return self.work.push_back(Work::Discover(id));
        }
        // D-34
        let enabled = self.tunables.discovery != 0;
        if !info.features.contains(Features::DISCOVERY) || !enabled {
            if !peer.flags.intersects(PeerFlags::CONFIGURED | PeerFlags::NO_DISCOVERY)
                && peer.flags.intersects(PeerFlags::DISCOVERED | PeerFlags::MULTI_RAIL)
            {
                peer.flags |= PeerFlags::MARK_DELETION;
            }
            peer.flags |= PeerFlags::NO_DISCOVERY;
        } else {
            peer.flags -= PeerFlags::NO_DISCOVERY;
        }
        self.learn_multi_rail(id, info.features);
        self.note_ability(id, info.features);
        let info = self.taken(id, info);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        // D-37
        if peer.is_mr() && primary_of(&info) == Some(peer.primary) {
            peer.disc.peer_seq = info.seq;
        }
        peer.disc.data = Some(Said { by, info });
        self.work.push_back(Work::Discover(id));
    }

    /// Of D-34 and D-53: it takes part in discovery, perhaps again.
    pub(crate) fn note_part(&mut self, id: PeerId, features: Features) {
        let enabled = self.tunables.discovery != 0;
        if let Some(peer) = self.peers.peers.get_mut(id)
            && enabled
            && features.contains(Features::DISCOVERY)
        {
            peer.flags -= PeerFlags::NO_DISCOVERY;
        }
    }

    /// D-35.
    pub(crate) fn learn_multi_rail(&mut self, id: PeerId, features: Features) {
        let enabled = self.tunables.discovery != 0;
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let configured = peer.flags.contains(PeerFlags::CONFIGURED);
        if features.contains(Features::MULTI_RAIL) {
            if peer.is_mr() {
                return;
            }
            if configured {
                tracing::warn!(peer = %peer.primary, "says Multi-Rail, is configured otherwise");
            } else if enabled && !peer.flags.contains(PeerFlags::NO_DISCOVERY) {
                self.set_multi_rail(id);
            }
        } else if peer.is_mr() {
            if configured {
                tracing::warn!(peer = %peer.primary, "is configured Multi-Rail, says otherwise");
            } else {
                tracing::warn!(peer = %peer.primary, "is not Multi-Rail any more");
                peer.flags -= PeerFlags::MULTI_RAIL;
            }
        }
    }

    /// O-22.
    pub(crate) fn set_multi_rail(&mut self, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.flags |= PeerFlags::MULTI_RAIL;
        let nis: Vec<_> = peer.nis().collect();
        for ni in nis {
            if let Some(ni) = self.peers.nis.get_mut(ni) {
                ni.preferred = None;
            }
        }
    }

    /// Merges what a peer says of itself (D-40 … D-43). Returns the peer that now stands for it.
    fn process_data(&mut self, now: Instant, id: PeerId, said: &Said) -> PeerId {
        let info = &said.info;
        self.note_claims(id, info);
        let Some(claimed) = primary_of(info) else { return id };
        let Some(peer) = self.peers.peers.get(id) else { return id };
        let in_data = |nid: Nid| info.entries.iter().any(|e| e.nid == nid);
        let known = self.peers.owner(claimed);
        if peer.primary == claimed || (in_data(peer.primary) && self.discovery_disabled(peer)) {
            self.merge(now, id, said);
            return id;
        }
        if peer.primary.is_loopback() || known.is_none() || known == Some(id) {
            if let Err(errno) = self.set_primary(now, id, claimed) {
                self.discovery_ends(now, id, Some(errno));
                return id;
            }
            self.merge(now, id, said);
            return id;
        }
        // D-42.5: another peer already stands for it.
        let Some(other) = known else { return id };
        if !self.is_conceded(now, id, said.by, claimed) {
            // Until that one says so too, this one is who it was.
            return id;
        }
        let Some(peer) = self.peers.peers.get(id) else { return id };
        let (flags, via) = (peer.flags, peer.disc.via);
        if flags.contains(PeerFlags::MULTI_RAIL) {
            self.set_multi_rail(other);
        }
        if let Some(q) = self.peers.peers.get_mut(other) {
            if !flags.contains(PeerFlags::NO_DISCOVERY) {
                q.flags -= PeerFlags::NO_DISCOVERY;
            }
            q.disc.via = via;
            q.flags -= PeerFlags::FORCE_PING;
            q.flags |= PeerFlags::NIDS_UPTODATE;
            if q.is_mr() {
                q.disc.peer_seq = info.seq;
            }
            if q.disc.phase == Phase::Idle {
                q.disc.phase = Phase::Due;
            }
        }
        self.merge(now, other, said);
        // What is left of the first peer has nothing more to learn; who waited for it waits no
        // longer (its NID usually belongs to the other one by now).
        if self.peers.peers.contains_key(id) {
            if let Some(peer) = self.peers.peers.get_mut(id) {
                peer.flags |= PeerFlags::DISCOVERED;
            }
            self.discovery_ends(now, id, None);
        }
        self.work.push_back(Work::Discover(other));
        other
    }

    /// D-44 … D-46.
    fn merge(&mut self, now: Instant, id: PeerId, said: &Said) {
        let info = &said.info;
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if info.features.contains(Features::RTE_DISABLED) {
            peer.flags -= PeerFlags::ROUTER_ENABLED;
        } else {
            peer.flags |= PeerFlags::ROUTER_ENABLED;
        }
        let Some(peer) = self.peers.peers.get(id) else { return };
        let frozen = self.discovery_disabled(peer);
        let present: BTreeSet<Nid> =
            peer.nis().filter_map(|n| self.peers.nis.get(n)).map(|n| n.nid).collect();
        let entries = || info.entries.iter().filter(|e| !e.nid.is_loopback());
        for e in entries().filter(|e| present.contains(&e.nid)) {
            self.status_update(now, e);
        }
        if frozen {
            return self.gateway_data(now, id, info);
        }
        let multi_rail = info.features.contains(Features::MULTI_RAIL);
        let change = Change { configured: false, multi_rail };
        for e in entries().filter(|e| !present.contains(&e.nid)) {
            if !self.is_conceded(now, id, said.by, e.nid) {
                continue;
            }
            let is_new = self.peers.find(e.nid).is_none();
            let outcome = if is_new && !self.has_room_for_hearsay(id) {
                Err(Errno::ENOSPC)
            } else {
                self.add_nid(now, id, e.nid, change)
            };
            match outcome {
                // Two that are locked keep what they have (O-35.5).
                Ok(()) if self.peers.owner(e.nid) == Some(id) => self.status_update(now, e),
                Ok(()) => {}
                Err(errno) => self.not_added(id, e.nid, errno),
            }
        }
        let listed: BTreeSet<Nid> = entries().map(|e| e.nid).collect();
        for nid in present {
            if !nid.is_loopback() && !listed.contains(&nid) {
                let outcome = self.del_nid(now, id, nid, false);
                match outcome {
                    Ok(()) => self.given_up(now, id, nid),
                    Err(Errno::EPERM) => {
                        self.status_update(now, &PingEntry { nid, status: NiStatus::DOWN });
                    }
                    Err(_) => {}
                }
            }
        }
        self.peers.primary_first(id);
        self.gateway_data(now, id, info);
    }

    /// D-45.
    fn status_update(&mut self, now: Instant, entry: &PingEntry) {
        let Some(id) = self.peers.find(entry.nid) else { return };
        let Some(pni) = self.peers.nis.get_mut(id) else { return };
        let up = entry.status == NiStatus::UP;
        match (pni.port.status_up, up) {
            (true, false) => {
                pni.set_up(now, self.tunables.flap_hold_down, false);
                self.lower(now, PortId::Peer(id));
                self.note_peer(id);
            }
            (false, true) => {
                // Of one that is never heard itself, behind a router, the report is all there will be.
                let reported = pni.last_alive.is_none() && !self.tunables.kernel_clocks();
                pni.set_up(now, self.tunables.flap_hold_down, true);
                if reported {
                    self.set_health(now, PortId::Peer(id), HEALTH_MAX);
                }
            }
            (true, true) if pni.last_alive.is_none() => {
                self.set_health(now, PortId::Peer(id), HEALTH_MAX);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// D-43.
    fn set_primary(&mut self, now: Instant, id: PeerId, nid: Nid) -> Result<(), Errno> {
        let Some(peer) = self.peers.peers.get_mut(id) else { return Err(Errno::ENOENT) };
        let old = peer.primary;
        let fixed = peer.flags.contains(PeerFlags::LOCK_PRIMARY);
        let lenient = peer.flags.intersects(PeerFlags::LOCK_PRIMARY | PeerFlags::CONFIGURED);
        let multi_rail = peer.is_mr();
        if !fixed {
            peer.primary = nid;
        }
        let outcome = self.add_nid(now, id, nid, Change { configured: false, multi_rail });
        match outcome {
            Ok(()) => {
                self.peers.primary_first(id);
                Ok(())
            }
            Err(errno) => {
                if let Some(peer) = self.peers.peers.get_mut(id) {
                    peer.primary = old;
                }
                if lenient { Ok(()) } else { Err(errno) }
            }
        }
    }

    /// An event on the descriptor of a push (D-51).
    pub(crate) fn push_event(&mut self, now: Instant, id: PeerId, event: &Event) {
        let ours = |p: &&mut Peer| p.disc.phase == Phase::Pushing(event.md);
        let Some(peer) = self.peers.peers.get_mut(id).filter(ours) else { return };
        match (event.kind, event.status) {
            (EventKind::Send, Ok(())) => {}
            (EventKind::Ack, Ok(())) => {
                peer.disc.acked_seq = peer.disc.pushed_seq;
                peer.disc.phase = Phase::Due;
                self.push_acknowledged(id);
                self.work.push_back(Work::Discover(id));
            }
            (EventKind::Send | EventKind::Ack, Err(errno)) => {
                self.abandon(event);
                self.discovery_ends(now, id, Some(errno));
            }
            (EventKind::Unlink, _) => self.discovery_ends(now, id, Some(Errno::ETIMEDOUT)),
            (EventKind::Put | EventKind::Get | EventKind::Reply, _) => {}
        }
    }

    /// A peer has pushed its data to us (D-52 … D-54).
    pub(crate) fn pushed(&mut self, now: Instant, event: &Event, bytes: &[u8]) {
        let by = event.source.nid;
        let Some(id) = self.peers.owner(by) else {
            return self.pushed_by_unknown(now, event.sender, bytes);
        };
        if !self.speaks_for(event.sender, by) {
            let sender = self.peers.owner(event.sender).unwrap_or(id);
            self.not_taken(sender, Some(by), Refusal::Impostor);
            return self.ask(now, sender, by);
        }
        let parsed = PingInfo::parse(bytes);
        if parsed.is_err() {
            self.not_taken(id, None, Refusal::Malformed);
        }
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let Ok(parsed) = parsed else {
            peer.flags -= PeerFlags::NIDS_UPTODATE;
            peer.flags |= PeerFlags::FORCE_PING;
            return self.request_discovery(id);
        };
        let need = u32::try_from(parsed.size).unwrap_or(PING_BYTES_MAX);
        let cut = parsed.truncated().is_some() || event.mlength < event.rlength;
        let info = parsed.info;
        if !info.features.contains(Features::MULTI_RAIL) {
            tracing::warn!(peer = %peer.primary, "push without Multi-Rail ignored");
            return;
        }
        if info.features.contains(Features::DISCOVERY) {
            peer.flags -= PeerFlags::NO_DISCOVERY;
        } else {
            if peer.flags.contains(PeerFlags::DISCOVERED)
                && !peer.flags.contains(PeerFlags::NO_DISCOVERY)
                && !peer.disc.is_running()
            {
                peer.flags |= PeerFlags::MARK_DELETION;
            }
            peer.flags |= PeerFlags::NO_DISCOVERY;
        }
        self.learn_multi_rail(id, info.features);
        self.note_ability(id, info.features);
        let info = self.taken(id, info);
        // One that has been overtaken, or its sender has begun anew: it is asked which.
        let kernel = self.tunables.kernel_clocks();
        let known = |p: &Peer| p.flags.contains(PeerFlags::DISCOVERED) && !kernel;
        // A session that is not known yet is word enough of a new life.
        let session = event.hdr_data;
        let anew = |p: &Peer| session != 0 && !p.once.knows(session);
        let stale = |p: &Peer| known(p) && is_later(p.disc.peer_seq, info.seq) && !anew(p);
        let stale = self.peers.peers.get(id).is_some_and(stale);
        if stale && !cut {
            self.not_taken(id, None, Refusal::Stale);
            return self.ask(now, id, by);
        }
        // Its sender counts on it from now on, whatever becomes of the rest.
        self.note_offer(id, event, &info);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.flags -= PeerFlags::NIDS_UPTODATE;
        if cut {
            peer.flags |= PeerFlags::FORCE_PING;
            self.grow_push_buffer(need);
        } else if peer.disc.data.as_ref().is_none_or(|old| is_later(info.seq, old.info.seq)) {
            peer.disc.peer_seq = info.seq;
            peer.disc.data = Some(Said { by, info });
        }
        if peer_is_idle(self.peers.peers.get(id)) {
            self.request_discovery(id);
        } else {
            self.work.push_back(Work::Discover(id));
        }
    }

    /// A push by way of a router, from an interface that nobody has told us of: most likely it was
    /// added, and tells of itself. What it says is not believed; the node that it says it belongs to
    /// is asked. Kernel nodes pass it over (D-52).
    fn pushed_by_unknown(&mut self, now: Instant, sender: Nid, bytes: &[u8]) {
        let Ok(parsed) = PingInfo::parse(bytes) else { return };
        // What it lists first may be new as well.
        let mut listed = parsed.info.entries.iter().filter(|e| !e.nid.is_loopback());
        let named = listed.find_map(|e| self.peers.owner(e.nid));
        let (Some(id), Some(sender)) = (named, self.peers.owner(sender)) else { return };
        if self.tunables.kernel_clocks() || !self.may_ask(now, sender) {
            return;
        }
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.flags -= PeerFlags::NIDS_UPTODATE;
            peer.flags |= PeerFlags::FORCE_PING;
            self.request_discovery(id);
        }
    }

    /// Tells peers about our interfaces (D-60).
    pub(crate) fn push_to_peers(&mut self, _now: Instant, force: bool) {
        let force = force && self.tunables.discovery != 0;
        let ids: Vec<PeerId> = self.peers.by_age.values().copied().collect();
        for id in ids {
            let Some(peer) = self.peers.peers.get_mut(id) else { continue };
            if force && peer.is_mr() {
                peer.flags |= PeerFlags::FORCE_PUSH;
            }
            peer.disc.again.renew();
            if self.peers.peers.get(id).is_some_and(|p| self.needs_push(p)) {
                self.request_discovery(id);
            }
        }
    }

    /// Discovery is on again: asks all peers what was missed meanwhile, and tells them. Kernel nodes
    /// wait until others ping them (D-71), and do not ask.
    pub(crate) fn catch_up(&mut self) {
        if self.tunables.kernel_clocks() {
            return;
        }
        let ids: Vec<PeerId> = self.peers.by_age.values().copied().collect();
        for id in ids {
            if let Some(peer) = self.peers.peers.get_mut(id) {
                peer.flags -= PeerFlags::NIDS_UPTODATE;
                peer.flags |= PeerFlags::FORCE_PING | PeerFlags::FORCE_PUSH;
                self.request_discovery(id);
            }
        }
    }

    /// Deletes a peer that must be known anew (D-48); what waits for it is sent from scratch.
    fn rebuild_peer(&mut self, now: Instant, id: PeerId) {
        let waiters = self
            .peers
            .peers
            .get_mut(id)
            .map(|p| core::mem::take(&mut p.disc.waiters))
            .unwrap_or_default();
        self.keep_debt(id);
        self.delete_peer(now, id);
        for op in waiters {
            // D-80
            self.discovered(now, op, Err(Errno::ENOENT));
        }
    }
}

fn peer_is_idle(peer: Option<&Peer>) -> bool {
    peer.is_some_and(|p| p.disc.phase == Phase::Idle)
}

/// The NID by which a node identifies itself.
pub(crate) fn primary_of(info: &PingInfo) -> Option<Nid> {
    info.entries.first().map(|e| e.nid)
}

/// Whether ping data are later than others, by their sequence numbers, which wrap.
pub(crate) const fn is_later(seq: u32, than: u32) -> bool {
    let ahead = seq.wrapping_sub(than);
    ahead != 0 && ahead < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::is_later;

    #[test]
    fn sequence_numbers_are_later_across_their_wrap() {
        for (seq, than, later) in [
            (2, 1, true),
            (1, 1, false),
            (1, 2, false),
            (0, u32::MAX, true),
            (u32::MAX, 0, false),
            (5, u32::MAX - 5, true),
        ] {
            assert_eq!(is_later(seq, than), later, "{seq} after {than}");
        }
    }
}
