//! Queries of peers, and announcements to them. [`Node::query`] is the only way in: the row of its
//! [`Cause`] says when, and what is wanted of the two directions (`cause.rs`, `sync.rs`). What is not
//! due at once waits in `retry.rs`; a discovery that begins is carried out in `discovery.rs`.

use lnet_types::{Instant, PeerId};

use super::cause::{Needs, Of, Row, When};
use crate::Node;
use crate::outbox::Work;
use crate::peer::Peer;
use crate::peer::cause::Cause;
use crate::peer::sync::Ours;
use crate::port::HEALTH_MAX;
use crate::router::alive;

impl Node {
    /// Queries peer `id`, or plans to: the row of `cause` says what is wanted, and when.
    pub(crate) fn query(&mut self, now: Instant, id: PeerId, cause: Cause) {
        if !self.is_worth_a_query(id, cause) {
            return;
        }
        match cause.row().when {
            When::Now => {
                self.want(id, cause);
                self.begin_discovery(id);
            }
            When::IfOwed => {
                self.want(id, cause);
                if let Some(peer) = self.peers.peers.get_mut(id) {
                    peer.disc.retry.restart_backoff();
                }
                if self.peers.peers.get(id).is_some_and(|p| self.owes_push(p)) {
                    self.begin_discovery(id);
                }
            }
            When::NextUse => self.want(id, cause),
            When::Retry => {
                self.peers.plan_retry(&mut self.timers, &self.tunables, now, (id, cause));
            }
            When::Refresh => self.peers.plan_refresh(&mut self.timers, &self.tunables, now, id),
        }
    }

    /// Queries all peers, the oldest first.
    pub(crate) fn query_all(&mut self, now: Instant, cause: Cause) {
        let ids: Vec<PeerId> = self.peers.by_age.values().copied().collect();
        for id in ids {
            self.query(now, id, cause);
        }
    }

    fn is_worth_a_query(&self, id: PeerId, cause: Cause) -> bool {
        let Some(peer) = self.peers.peers.get(id) else { return false };
        let conduct = &self.tunables.conduct;
        let may = match cause.row().needs {
            Needs::Nothing => true,
            Needs::Retries => conduct.retries_discovery,
            Needs::SwitchOn => conduct.queries_after_switch_on,
        };
        if !may {
            return false;
        }
        let has_several = || peer.is_mr() && peer.ni_count() > 1;
        match cause.row().of {
            Of::Any => true,
            Of::MultiRail => peer.is_mr(),
            Of::Several => has_several(),
            Of::Unwatched => has_several() && self.tunables.health_sensitivity == 0,
            Of::OneHealthy => has_several() && self.has_healthy_ni(peer),
        }
    }

    pub(crate) fn has_healthy_ni(&self, peer: &Peer) -> bool {
        peer.nis().any(|ni| self.peers.nis.get(ni).is_some_and(|ni| ni.port.health == HEALTH_MAX))
    }

    /// Records what `cause` requires of peer `id`.
    pub(crate) fn want(&mut self, id: PeerId, cause: Cause) {
        let Row { learn, teach, .. } = cause.row();
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.disc.learn.want(learn);
            peer.disc.teach.want(teach);
        }
    }

    /// Lets the discovery of peer `id` begin, or go on (D-11, D-13).
    pub(crate) fn begin_discovery(&mut self, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if !peer.disc.is_running || peer.disc.received.is_some() {
            peer.disc.is_running = true;
            self.outbox.plan(Work::Discover(id));
        }
    }

    /// O-21.
    pub(crate) fn is_up_to_date(&self, id: PeerId) -> bool {
        self.peers.peers.get(id).is_some_and(|p| p.disc.is_up_to_date(self.ours_for(p)))
    }

    /// What of our data a peer receives.
    pub(crate) fn ours_for(&self, peer: &Peer) -> Ours {
        if !peer.is_mr() {
            Ours::Withheld
        } else if alive::is_discovery_off(&self.tunables, peer) {
            Ours::OnDemand
        } else {
            Ours::Shared(self.own.seq())
        }
    }

    /// Whether a push to a peer is due.
    fn owes_push(&self, peer: &Peer) -> bool {
        !peer.disc.rebuild && peer.disc.owes(self.ours_for(peer))
    }

    /// Makes the query that is due. Without any link nothing would be answered: what it is to learn stays
    /// wanted, and all peers are updated when a link is back.
    pub(crate) fn retry_query(&mut self, id: PeerId) {
        let is_cut_off = self.nis.values().filter(|ni| !ni.is_loopback()).all(|ni| ni.fatal);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let Some(cause) = peer.disc.retry.planned.take() else { return };
        let Some(peer) = self.peers.peers.get(id) else { return };
        // Where no interface is healthy, recovery pings are answered first.
        if cause == Cause::Refresh && !self.has_healthy_ni(peer) {
            return;
        }
        self.want(id, cause);
        if !is_cut_off {
            self.begin_discovery(id);
        }
    }
}
