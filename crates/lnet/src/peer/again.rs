//! Discoveries that have failed are done again later. What one node has to tell another, it tells when
//! that changes; if this fails just then, and the two have nothing to say to each other, the other one
//! would never learn. Kernel nodes leave it at that until the peer is used (D-51).
//!
//! The times between tries double, and after the last one the peer has to be used, or there has to be
//! something new to tell. Gateways are asked by the router checker anyway.
//!
//! And since news can get lost in more ways than anybody thinks of, whoever is used is asked for what it
//! has every now and then, without reason (`refresh_later`). That costs nothing where nothing is sent,
//! and no message waits for it.

use core::time::Duration;

use lnet_types::{Instant, Nid, PeerId};
use slotmap::Key;

use crate::Node;
use crate::local::HEALTH_MAX;
use crate::peer::discovery::Phase;
use crate::peer::{Peer, PeerFlags};
use crate::timers::Timer;

/// From a failure to the first try; twice as long to each further one. Nor does whoever uses the
/// peer meanwhile cause another one any sooner.
const FIRST: Duration = Duration::from_secs(1);
/// So the last wait is 64 s.
const TRIES_MAX: u8 = 7;
/// How long a further answer is waited for, where others are waited for longer.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// In how many groups peers are asked for what they have, without reason.
const SPREAD: u32 = 64;

/// What is kept of it for each peer.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Again {
    /// Tries since the last success.
    tries: u8,
    /// Questions that nobody has answered, one after the other.
    unanswered: u8,
    /// It is asked for its interfaces then, whatever is known of them.
    asks: bool,
    /// There is no reason but that it is used.
    is_refresh: bool,
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
        if matches!(phase, Phase::Pinging(_)) {
            peer.disc.again.unanswered = peer.disc.again.unanswered.wrapping_add(1);
        }
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
        if self.has_one_that_is_well(id) {
            self.may_have_changed(now, id);
        }
    }

    fn has_one_that_is_well(&self, id: PeerId) -> bool {
        let mut nis = self.peers.peers.get(id).into_iter().flat_map(|peer| peer.nis());
        nis.any(|ni| self.peers.nis.get(ni).is_some_and(|ni| ni.port.health == HEALTH_MAX))
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

    /// Where peer `id` is asked when it has not answered: at one of its interfaces after the other, and
    /// just there. Which of them it has lost is what it is asked for, and without health nothing else
    /// tells. Every other question goes as any message would; what the router checker asks, always.
    pub(crate) fn turn_of_retry(&self, id: PeerId) -> Option<Nid> {
        let peer = self.peers.peers.get(id)?;
        let unanswered = usize::from(peer.disc.again.unanswered);
        if unanswered % 2 == 0 || self.is_asked_anyway(id) {
            return None;
        }
        let mut nis = peer.nis().filter_map(|ni| self.peers.nis.get(ni));
        nis.nth(unanswered / 2 % peer.ni_count().max(1)).map(|ni| ni.nid)
    }

    /// How long a further answer of peer `id` is waited for.
    pub(crate) fn retry_limit(&self, id: PeerId) -> Option<Duration> {
        let peer = self.peers.peers.get(id)?;
        (peer.disc.again.tries > 0).then(|| self.tunables.transaction().min(RETRY_MAX))
    }

    /// Peer `id` is used, and all is well. It is asked again what it has, some time from now.
    pub(crate) fn refresh_later(&mut self, now: Instant, id: PeerId) {
        let interval = self.tunables.peer_refresh_interval as u64;
        if interval == 0
            || self.tunables.discovery == 0
            || self.timers.is_set(Timer::Discover(id))
            || self.is_asked_anyway(id)
        {
            return;
        }
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        // Those who were met at once are not asked at once.
        let spread =
            Duration::from_secs(interval) / 4 / SPREAD * (id.data().as_ffi() as u32 % SPREAD);
        peer.disc.again.is_refresh = true;
        self.timers.set(Timer::Discover(id), now + Duration::from_secs(interval) + spread);
    }

    fn discover_later(&mut self, now: Instant, id: PeerId) {
        let is_asked_anyway = self.is_asked_anyway(id);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let again = &mut peer.disc.again;
        let due = now + FIRST * (1 << again.tries);
        let planned = self.timers.at(Timer::Discover(id));
        let is_due = planned.is_some_and(|earlier| earlier <= due);
        if is_due || again.tries == TRIES_MAX || is_asked_anyway {
            return;
        }
        again.tries += 1;
        again.is_refresh = false;
        self.timers.set(Timer::Discover(id), due);
    }

    /// Whether the router checker asks it.
    fn is_asked_anyway(&self, id: PeerId) -> bool {
        let checks = self.tunables.alive_router_check_interval > 0;
        checks && self.peers.peers.get(id).is_some_and(|peer| peer.gateway.is_router())
    }

    /// It has succeeded.
    pub(crate) fn discovered_at_last(&mut self, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        // As long as it lists what others have too, somebody is asked in each round.
        let tries = if peer.disc.claims.is_empty() { 0 } else { peer.disc.again.tries };
        peer.disc.again = Again { tries, ..Again::default() };
        self.timers.stop(Timer::Discover(id));
    }

    /// Tries again what is due. In the dark nobody can be asked, and whoever is back from it tells
    /// everybody anyway.
    pub(crate) fn discover_again(&mut self, id: PeerId) {
        let is_dark = self.nis.values().filter(|ni| !ni.is_loopback()).all(|ni| ni.fatal);
        let is_well = self.has_one_that_is_well(id);
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let again = &mut peer.disc.again;
        let is_refresh = core::mem::take(&mut again.is_refresh);
        // If it is ill all over, pings of recovery will be answered first.
        let is_vain = is_refresh && !again.asks && !is_well;
        if is_dark || is_vain {
            return;
        }
        if core::mem::take(&mut again.asks) || is_refresh {
            peer.flags -= PeerFlags::NIDS_UPTODATE;
        }
        self.request_discovery(id);
    }
}
