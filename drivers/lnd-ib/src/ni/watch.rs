//! Looking at rails (DEC-31). A rail with something under way is looked at a few times per limit by a
//! timer of its own; one that is idle and above doubt costs nothing. What a look means is judged in
//! `suspicion.rs`; what follows from it is the node's business.
//!
//! A doubted rail proves itself by NOOPs while it is idle, and by connection attempts while it has no
//! connection. That ends a minute after the last message for it.

use core::time::Duration;

use lnet::Doubt;
use lnet_types::{Instant, Nid};

use super::{IbNi, Timer};
use crate::conn::ConnState;
use crate::suspicion::{Evidence, Suspicion, Watch};
use crate::value::{ConnId, Event};

/// Looks at one rail are so many to the shortest limit ...
const LOOKS_PER_LIMIT: u32 = 4;
/// ... but no more than a look anywhere in this time.
const LOOK_COST: Duration = Duration::from_micros(10);
/// Looks from one proof of an idle rail to the next.
const LOOKS_PER_PROOF: u32 = 4;
/// A doubted rail is left alone after so long without a message.
const FORGET: Duration = Duration::from_secs(60);

/// The way to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rail {
    watch: Watch,
    /// The incarnation of the peer that it was watched for; 0 if there was none yet.
    life: u64,
    /// When the next look is due.
    look_at: Option<Instant>,
    looks: u32,
    /// When a message last was on its way.
    wanted: Instant,
    /// Completions since the last look, and how long they have taken of late.
    completed: u32,
    usual: Duration,
}

impl IbNi {
    /// Switches suspicion on, with its limits, or off. Switched off, rails are above doubt.
    pub const fn set_suspicion(&mut self, limits: Option<Suspicion>) {
        self.suspicion = limits;
    }

    /// The judgement of the rail to a peer.
    pub fn doubt(&self, nid: Nid) -> Doubt {
        let seen = self.rails.get(&nid).map_or(Doubt::None, |rail| rail.watch.doubt());
        if self.degraded { seen.max(Doubt::Shaky) } else { seen }
    }

    /// The link is slower than it has been, or as fast again: so are its rails (HL-lnd-025).
    pub(super) fn judge_all(&mut self) {
        let mut all: Vec<Nid> = self.peers.keys().chain(self.rails.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        for nid in all {
            self.report_rail(nid);
        }
    }

    /// Reports the judgement of a rail.
    pub(super) fn report_rail(&mut self, nid: Nid) {
        let doubt = self.doubt(nid);
        self.report(Event::Rail { nid, doubt });
    }

    /// Something is on its way to a peer, or waits for that: its rail is worth a look.
    pub(super) fn watch(&mut self, nid: Nid, wanted: bool) {
        let Some(limits) = self.suspicion else { return };
        let watched = u32::try_from(self.rails.len()).unwrap_or(u32::MAX);
        let every = (limits.after / LOOKS_PER_LIMIT).max(LOOK_COST.saturating_mul(watched));
        let (at, now) = (self.now + every, self.now);
        let life = self.peers.get(&nid).map_or(0, |peer| peer.stamp);
        let rail = self.rails.entry(nid).or_default();
        if rail.life == 0 {
            rail.life = life;
        }
        if wanted {
            rail.wanted = now;
        }
        if rail.look_at.is_none() {
            rail.look_at = Some(at);
            self.timers.insert((at, Timer::Look(nid)));
        }
    }

    /// Looks at no rail any more.
    pub(super) fn unwatch_all(&mut self) {
        for (nid, rail) in core::mem::take(&mut self.rails) {
            if let Some(at) = rail.look_at {
                self.timers.remove(&(at, Timer::Look(nid)));
            }
        }
        self.suspicion = None;
    }

    /// A work request has been posted on a connection.
    pub(super) fn watch_posted(&mut self, id: ConnId, wanted: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.moving_since.get_or_insert(self.now);
        let nid = conn.peer;
        self.watch(nid, wanted);
    }

    /// A work request has completed in order on a connection.
    pub(super) fn watch_completed(&mut self, id: ConnId) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        let since = conn.moving_since.take().unwrap_or(now);
        conn.moving_since = (conn.posted_sends > 0).then_some(now);
        if let Some(rail) = self.rails.get_mut(&conn.peer) {
            rail.completed += 1;
            rail.usual = rail.usual - rail.usual / 8 + now.saturating_since(since) / 8;
        }
    }

    /// The timer of a rail has fired.
    pub(super) fn look(&mut self, nid: Nid) {
        let now = self.now;
        let Some(rail) = self.rails.get_mut(&nid) else { return };
        rail.look_at = None;
        let completed = core::mem::take(&mut rail.completed);
        let usual = rail.usual;
        let Some(limits) = self.suspicion else {
            let doubted = rail.watch.doubt() != Doubt::None;
            self.rails.remove(&nid);
            if doubted {
                self.report_rail(nid);
            }
            return;
        };
        let (busy, age) = self.oldest(nid);
        let seen = if age > limits.limit(usual) {
            Evidence::Overdue
        } else if completed > 0 {
            Evidence::Sound
        } else {
            Evidence::Nothing
        };
        let Some(rail) = self.rails.get_mut(&nid) else { return };
        let news = if now <= rail.wanted + FORGET {
            rail.watch.saw(now, seen)
        } else {
            let doubted = rail.watch.doubt() != Doubt::None;
            rail.watch.trust(now);
            doubted
        };
        rail.looks = rail.looks.wrapping_add(1);
        let doubted = rail.watch.doubt() != Doubt::None;
        let prove = doubted && !busy && rail.looks.is_multiple_of(LOOKS_PER_PROOF);
        if prove {
            self.prove(nid);
        }
        if busy || doubted {
            self.watch(nid, false);
        } else if !self.peers.contains_key(&nid) {
            self.rails.remove(&nid);
        }
        if news {
            self.report_rail(nid);
        }
    }

    /// An attempt to connect to a peer without connections has failed: as long as no other one succeeds,
    /// no rail that carries is worse than this one.
    pub(super) fn doubt_unreached(&mut self, nid: Nid) {
        let now = self.now;
        let rail = self.rails.get_mut(&nid).filter(|rail| now <= rail.wanted + FORGET);
        let (Some(rail), Some(_)) = (rail, self.suspicion) else { return };
        let news = rail.watch.saw(now, Evidence::Overdue);
        self.watch(nid, false);
        if news {
            self.report_rail(nid);
        }
    }

    /// A peer has connected in another life, or in the same one: that the one before fell silent was its
    /// end, and no fault of the rail.
    pub(super) fn new_life(&mut self, nid: Nid, incarnation: u64) {
        let Some(rail) = self.rails.get_mut(&nid) else { return };
        let before = core::mem::replace(&mut rail.life, incarnation);
        if before != 0 && before != incarnation {
            let doubted = rail.watch.doubt() != Doubt::None;
            rail.watch = Watch::default();
            if doubted {
                self.report_rail(nid);
            }
        }
    }

    /// Whether something is under way to a peer, and how long the oldest of it has made no progress.
    fn oldest(&self, nid: Nid) -> (bool, Duration) {
        let Some(peer) = self.peers.get(&nid) else { return (false, Duration::ZERO) };
        let conns = peer.conns.iter().filter_map(|id| self.conns.get(*id)?.moving_since);
        let attempt = peer.pending.and_then(|id| self.conns.get(id)).map(|conn| conn.begun);
        let first = peer.queue.front().and_then(|key| self.txs.get(*key));
        // A peer that has a connection is served by that.
        let waiting = first.filter(|_| peer.conns.is_empty()).map(|tx| tx.since);
        let oldest = conns.chain(attempt).chain(waiting).min();
        (oldest.is_some(), oldest.map_or(Duration::ZERO, |at| self.now.saturating_since(at)))
    }

    /// Sends something over an idle rail that shows how it is.
    fn prove(&mut self, nid: Nid) {
        let conn = self.peers.get(&nid).and_then(|peer| peer.conns.first().copied());
        match conn {
            Some(id) => {
                if let Some(conn) = self.conns.get_mut(id).filter(|c| c.state == ConnState::Up) {
                    conn.keepalive = true;
                }
                self.pump(id);
            }
            None => {
                self.peer_mut(nid);
                self.dial_if_wanted(nid);
                self.forget_peer(nid);
            }
        }
    }
}
