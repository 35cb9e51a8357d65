//! Discoveries that have failed are done again later. What one node has to tell another, it tells when
//! that changes; if this fails just then, and the two have nothing to say to each other, the other one
//! would never learn. Kernel nodes leave it at that until the peer is used (D-51).
//!
//! The times between tries double, and after the last one the peer has to be used, or there has to be
//! something new to tell. Gateways are asked by the router checker anyway.

use core::time::Duration;

use lnet_types::{Instant, Nid, PeerId};

use crate::Node;
use crate::local::HEALTH_MAX;
use crate::peer::discovery::Phase;
use crate::peer::{Peer, PeerFlags};

/// From a failure to the first try; twice as long to each further one. Nor does whoever uses the
/// peer meanwhile cause another one any sooner.
const FIRST: Duration = Duration::from_secs(1);
/// So the last wait is 64 s.
const TRIES_MAX: u8 = 7;
/// How long a further answer is waited for, where others are waited for longer.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What is kept of it for each peer.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Again {
    /// Tries since the last success.
    tries: u8,
    /// The next one.
    due: Option<Instant>,
    /// It is asked for its interfaces then, whatever is known of them.
    asks: bool,
    /// Not before this for those who use it.
    rests_until: Option<Instant>,
}

impl Again {
    /// There is something new to tell.
    pub(crate) fn renew(&mut self) {
        self.tries = 0;
    }

    /// Whether it has failed just now.
    pub(crate) fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }
}

impl Node {
    /// The discovery of peer `id` has failed in this phase.
    pub(crate) fn discovery_failed(&mut self, now: Instant, id: PeerId, phase: Phase) {
        if self.tunables.kernel_clocks() {
            return;
        }
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.disc.again.rests_until = Some(now + FIRST);
        if peer.is_mr() {
            // What it was for is still to be done.
            match phase {
                Phase::Pinging(_) => peer.flags -= PeerFlags::NIDS_UPTODATE,
                Phase::Pushing(_) => peer.flags |= PeerFlags::FORCE_PUSH,
                Phase::Idle | Phase::Due => {}
            }
            self.discover_later(now, id);
        }
    }

    /// What peer `id` has said could not be confirmed: nobody has answered. It will be asked again, and
    /// then those that it names.
    pub(crate) fn confirm_later(&mut self, now: Instant, id: PeerId) {
        if self.tunables.kernel_clocks() {
            return;
        }
        if let Some(peer) = self.peers.peers.get_mut(id).filter(|p| p.is_mr()) {
            peer.flags -= PeerFlags::NIDS_UPTODATE;
            self.discover_later(now, id);
        }
    }

    /// A message to an interface of peer `id` has failed. Where there is no health by which that one
    /// would be left, and pinged, the node is asked whether it still has it.
    pub(crate) fn may_be_gone(&mut self, now: Instant, id: PeerId) {
        if self.tunables.health_sensitivity == 0 {
            self.may_have_changed(now, id);
        }
    }

    /// An interface of peer `id` does not come back. If others are well, its node is asked.
    pub(crate) fn may_be_without(&mut self, now: Instant, id: PeerId) {
        let mut nis = self.peers.peers.get(id).into_iter().flat_map(|peer| peer.nis());
        if nis.any(|ni| self.peers.nis.get(ni).is_some_and(|ni| ni.health == HEALTH_MAX)) {
            drop(nis);
            self.may_have_changed(now, id);
        }
    }

    /// An interface of peer `id` does not answer. Perhaps its node has no such interface any more, and
    /// could not tell: it has died and come back without. Where there are others, it is asked.
    pub(crate) fn may_have_changed(&mut self, now: Instant, id: PeerId) {
        let is_worth_it = |p: &&mut Peer| p.is_mr() && p.ni_count() > 1;
        if !self.tunables.kernel_clocks()
            && let Some(peer) = self.peers.peers.get_mut(id).filter(is_worth_it)
        {
            peer.disc.again.asks = true;
            self.discover_later(now, id);
        }
    }

    /// Where peer `id`, behind a router, is asked when that has failed before: at one of its interfaces
    /// after the other, and just there. Which of them it has lost is what it is asked for, and nothing
    /// else tells.
    pub(crate) fn turn_of_retry(&self, id: PeerId) -> Option<Nid> {
        let peer = self.peers.peers.get(id)?;
        let turn = usize::from(peer.disc.again.tries).checked_sub(2)?;
        let nis = || peer.nis().filter_map(|ni| self.peers.nis.get(ni));
        if nis().any(|ni| ni.local.is_some()) {
            return None;
        }
        nis().nth(turn % nis().count().max(1)).map(|ni| ni.nid)
    }

    /// How long a further answer of peer `id` is waited for.
    pub(crate) fn retry_limit(&self, id: PeerId) -> Option<Duration> {
        let peer = self.peers.peers.get(id)?;
        (peer.disc.again.tries > 0).then(|| self.tunables.transaction().min(RETRY_MAX))
    }

    fn discover_later(&mut self, now: Instant, id: PeerId) {
        let checks = self.tunables.alive_router_check_interval > 0;
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let again = &mut peer.disc.again;
        let is_asked_anyway = peer.gateway.is_router() && checks;
        if is_asked_anyway || again.due.is_some() || again.tries == TRIES_MAX {
            return;
        }
        let due = now + FIRST * (1 << again.tries);
        again.tries += 1;
        again.due = Some(due);
        self.discoveries_due.insert((due, id));
    }

    /// It has succeeded.
    pub(crate) fn discovered_at_last(&mut self, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        // As long as it lists what others have too, somebody is asked in each round.
        let tries = if peer.disc.claims.is_empty() { 0 } else { peer.disc.again.tries };
        let again = core::mem::replace(&mut peer.disc.again, Again { tries, ..Again::default() });
        if let Some(due) = again.due {
            self.discoveries_due.remove(&(due, id));
        }
    }

    /// Tries again what is due. In the dark nobody can be asked, and whoever is back from it tells
    /// everybody anyway.
    pub(crate) fn discover_again(&mut self, now: Instant) {
        let is_dark = self.nis.values().filter(|ni| !ni.is_loopback()).all(|ni| ni.fatal);
        while let Some(&(due, id)) = self.discoveries_due.first()
            && due <= now
        {
            self.discoveries_due.remove(&(due, id));
            if let Some(peer) = self.peers.peers.get_mut(id) {
                peer.disc.again.due = None;
                if !is_dark {
                    if core::mem::take(&mut peer.disc.again.asks) {
                        peer.flags -= PeerFlags::NIDS_UPTODATE;
                    }
                    self.request_discovery(id);
                }
            }
        }
    }
}
