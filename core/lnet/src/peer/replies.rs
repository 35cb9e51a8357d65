//! What comes back of a discovery: replies to its pings, ACKs of its pushes, pushes of the peer; and its end.
//! The steps that send them are in `discovery.rs`.

use std::collections::VecDeque;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, Nid, PeerId};
use lnet_wire::ping::{Features, PingInfo};

use crate::check::live;
use crate::outbox::Work;
use crate::peer::cause::Cause;
use crate::peer::merge::primary_of;
use crate::peer::refusal::Refusal;
use crate::peer::sync::{Announcement, Discovery, is_later};
use crate::peer::{Facts, Peer};
use crate::portal::PING_BYTES_MAX;
use crate::timers::Timer;
use crate::{Event, EventKind, Node};

/// How many useless replies in a row end a discovery.
const BAD_REPLIES_MAX: u8 = 8;

impl Node {
    /// Ends a discovery and notifies all that waits for it (D-16).
    pub(crate) fn discovery_ends(&mut self, now: Instant, id: PeerId, outcome: Result<(), Errno>) {
        let retries = self.tunables.conduct.retries_discovery;
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let disc = &mut peer.disc;
        disc.is_running = false;
        disc.error = outcome.err();
        disc.bad_replies = 0;
        disc.learn.land();
        let pushed = disc.teach.land();
        if outcome.is_err() {
            if retries {
                disc.retry.fail(now, disc.learn.is_behind());
            } else if let Some(generation) = pushed {
                // D-51: one push per wish.
                disc.teach.succeed(generation);
            }
            self.query(now, id, Cause::Failed);
        } else {
            self.peers.end_retries(&mut self.timers, id);
        }
        self.gateway_discovered(now, id, outcome.err());
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let parked = core::mem::take(&mut peer.disc.parked);
        self.release_parked(parked, outcome.err());
        if outcome.is_err() || !self.awaits_answers(id) {
            let Some(peer) = self.peers.peers.get_mut(id) else { return };
            for op in core::mem::take(&mut peer.disc.waiters) {
                self.discovered(now, op, outcome.map(|()| id));
            }
        }
    }

    /// Sends parked messages on their way again, or ends them.
    pub(crate) fn release_parked(&mut self, parked: VecDeque<MsgId>, error: Option<Errno>) {
        for msg in parked {
            self.timers.stop(Timer::Waiting(msg));
            if let Some(m) = live!(mut self.msgs, msg) {
                m.stage = crate::msg::Stage::Moving;
                match error {
                    None => self.outbox.plan(Work::Depart(msg)),
                    Some(errno) => {
                        m.no_resend = true;
                        let fault = Fault::new(HealthStatus::RemoteError, errno);
                        self.outbox.plan(Work::Finish(msg, Err(fault)));
                    }
                }
            }
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
        let ours = |p: &&mut Peer| p.disc.learn.in_flight() == Some(event.md);
        let Some(peer) = self.peers.peers.get_mut(id).filter(ours) else { return };
        match (event.kind, event.status) {
            (EventKind::Send, Ok(())) => {}
            (EventKind::Send | EventKind::Reply, Err(errno)) => {
                self.abandon(event);
                self.discovery_ends(now, id, Err(errno));
            }
            (EventKind::Unlink, _) => self.discovery_ends(now, id, Err(Errno::ETIMEDOUT)),
            (EventKind::Reply, Ok(())) => {
                let Some(generation) = peer.disc.learn.land() else { return };
                // D-32: the node itself, not the gateway that its answer came through.
                peer.disc.via = Some((event.target.nid, event.source.nid));
                // What it was asked at answers for itself, by whatever interface.
                let primary = peer.primary;
                let source = event.source.nid;
                let by = if self.peers.owner(source) == Some(id) { source } else { primary };
                self.ping_reply(now, id, (by, generation), bytes);
            }
            (EventKind::Put | EventKind::Get | EventKind::Ack, _) => {}
        }
    }

    fn ping_reply(&mut self, now: Instant, id: PeerId, (by, generation): (Nid, u32), bytes: &[u8]) {
        // D-33
        let Ok(parsed) = PingInfo::parse(bytes) else {
            self.reject(id, None, Refusal::Malformed);
            return self.useless_reply(now, id);
        };
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let need = u32::try_from(parsed.size).unwrap_or(PING_BYTES_MAX);
        peer.disc.need = need.min(PING_BYTES_MAX);
        let cut = parsed.truncated().is_some();
        let info = parsed.info;
        // A push has come in since it was asked, and says something later; kernel nodes forget that.
        let Discovery { peer_seq, seq_before, .. } = peer.disc;
        let is_overtaken = peer_seq != seq_before
            && is_later(peer_seq, info.seq)
            && self.tunables.conduct.rejects_stale_data;
        if is_overtaken || cut && bytes.len() < PING_BYTES_MAX as usize {
            // D-36
            self.own.grow_push_buffer(&mut self.portals, need);
            return self.useless_reply(now, id);
        }
        // D-34
        let enabled = self.tunables.discovery != 0;
        if !info.features.contains(Features::DISCOVERY) || !enabled {
            peer.disc.rebuild |= !peer.facts.intersects(Facts::CONFIGURED | Facts::NO_DISCOVERY)
                && (peer.disc.discovered || peer.is_mr());
            peer.facts |= Facts::NO_DISCOVERY;
        } else {
            peer.facts -= Facts::NO_DISCOVERY;
        }
        self.peers.note_features(id, info.features, self.tunables.discovery != 0);
        let info = self.taken(id, info);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        // D-37
        if peer.is_mr() && primary_of(&info) == Some(peer.primary) {
            peer.disc.peer_seq = info.seq;
        }
        peer.disc.received = Some(Announcement { by, info, generation });
        self.outbox.plan(Work::Discover(id));
    }

    /// A reply brought nothing that can be merged: it is pinged once more, up to a limit.
    fn useless_reply(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.disc.bad_replies += 1;
        if peer.disc.bad_replies >= BAD_REPLIES_MAX {
            return self.discovery_ends(now, id, Err(Errno::EPROTO));
        }
        self.want(id, Cause::Unreadable);
        self.outbox.plan(Work::Discover(id));
    }

    /// An event on the descriptor of a push (D-51).
    pub(crate) fn push_event(&mut self, now: Instant, id: PeerId, event: &Event) {
        let ours = |p: &&mut Peer| p.disc.teach.in_flight() == Some(event.md);
        let Some(peer) = self.peers.peers.get_mut(id).filter(ours) else { return };
        match (event.kind, event.status) {
            (EventKind::Send, Ok(())) => {}
            (EventKind::Ack, Ok(())) => {
                let disc = &mut peer.disc;
                disc.acked_seq = disc.pushed_seq;
                if let Some(generation) = disc.teach.land() {
                    disc.teach.succeed(generation);
                }
                self.outbox.plan(Work::Discover(id));
            }
            (EventKind::Send | EventKind::Ack, Err(errno)) => {
                self.abandon(event);
                self.discovery_ends(now, id, Err(errno));
            }
            (EventKind::Unlink, _) => self.discovery_ends(now, id, Err(Errno::ETIMEDOUT)),
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
            self.reject(sender, Some(by), Refusal::Impostor);
            return self.ask(now, sender, by);
        }
        let Ok(parsed) = PingInfo::parse(bytes) else {
            self.reject(id, None, Refusal::Malformed);
            return self.query(now, id, Cause::Unreadable);
        };
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let need = u32::try_from(parsed.size).unwrap_or(PING_BYTES_MAX);
        let cut = parsed.truncated().is_some() || event.mlength < event.rlength;
        let info = parsed.info;
        if !info.features.contains(Features::MULTI_RAIL) {
            tracing::warn!(peer = %peer.primary, "push without Multi-Rail ignored");
            return;
        }
        if info.features.contains(Features::DISCOVERY) {
            peer.facts -= Facts::NO_DISCOVERY;
        } else {
            let took_part = peer.disc.discovered && !peer.facts.contains(Facts::NO_DISCOVERY);
            // DEC-28: what was configured is not the peer's to delete.
            let is_configured = peer.facts.intersects(Facts::CONFIGURED | Facts::LOCK_PRIMARY);
            let stays = is_configured && self.tunables.conduct.keeps_configured;
            peer.disc.rebuild |= took_part && !peer.disc.is_running && !stays;
            peer.facts |= Facts::NO_DISCOVERY;
        }
        self.peers.note_features(id, info.features, self.tunables.discovery != 0);
        let info = self.taken(id, info);
        // One that has been overtaken, or its sender has begun anew: it is asked which.
        let rejects = self.tunables.conduct.rejects_stale_data;
        let known = |p: &Peer| p.disc.discovered && rejects;
        let stale = |p: &Peer| known(p) && is_later(p.disc.peer_seq, info.seq);
        let stale = self.peers.peers.get(id).is_some_and(stale);
        if stale && !cut {
            self.reject(id, None, Refusal::Stale);
            return self.ask(now, id, by);
        }
        if cut {
            self.own.grow_push_buffer(&mut self.portals, need);
            return self.query(now, id, Cause::Unreadable);
        }
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let disc = &mut peer.disc;
        if disc.received.as_ref().is_none_or(|old| is_later(info.seq, old.info.seq)) {
            disc.peer_seq = info.seq;
            let generation = disc.learn.generation();
            disc.received = Some(Announcement { by, info, generation });
        }
        self.query(now, id, Cause::Announced);
    }

    /// A push by way of a router, from an interface that is not known: most likely it was added, and
    /// announces itself. What it says is not accepted; the node that it names as its own is queried.
    /// Kernel nodes pass it over (D-52).
    fn pushed_by_unknown(&mut self, now: Instant, sender: Nid, bytes: &[u8]) {
        let Ok(parsed) = PingInfo::parse(bytes) else { return };
        // What it lists first may be new as well.
        let mut listed = parsed.info.entries.iter().filter(|e| !e.nid.is_loopback());
        let named = listed.find_map(|e| self.peers.owner(e.nid));
        let (Some(id), Some(sender)) = (named, self.peers.owner(sender)) else { return };
        if self.tunables.conduct.queries_unknown_pushers && self.may_ask(now, sender) {
            self.query(now, id, Cause::Contradicted);
        }
    }
}
