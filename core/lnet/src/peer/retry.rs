//! Retries failed discoveries with exponential backoff, and queries peers in use from time to time.
//!
//! What one node has to announce, it announces when that changes; if that fails just then, and the two
//! have nothing else to exchange, the peer would never learn of it. Kernel nodes leave it at that until
//! the peer is used (D-51). Here the intervals between tries double; after the last one the peer must
//! be used, or our data must change. Gateways are queried by the router checker anyway.

use core::time::Duration;

use lnet_types::{Instant, Nid, PeerId};
use slotmap::Key;

use crate::Tunables;
use crate::peer::Peers;
use crate::peer::backoff::{FIRST, Retry};
use crate::peer::cause::Cause;
use crate::timers::{Timer, Timers};

/// So the last interval is 64 s.
const TRIES_MAX: u8 = 7;
/// Time limit of a retried query, where others have a longer one.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Number of groups over which refreshes are spread.
const SPREAD: u32 = 64;

impl Peers {
    /// The NID at which peer `id` is queried, and only there, if its last query had no answer: its
    /// interfaces in turn, as one that it has lost may be the one that selection prefers. Every other
    /// query takes the path of any message.
    pub(crate) fn turn_of_retry(&self, t: &Tunables, id: PeerId) -> Option<Nid> {
        let peer = self.peers.get(id)?;
        let unanswered = usize::from(peer.disc.retry.unanswered);
        if unanswered.is_multiple_of(2) || self.is_checked_gateway(t, id) {
            return None;
        }
        let mut nis = peer.nis().filter_map(|ni| self.nis.get(ni));
        nis.nth(unanswered / 2 % peer.ni_count().max(1)).map(|ni| ni.nid)
    }

    /// The time limit of a retried query of peer `id`.
    pub(crate) fn retry_limit(&self, t: &Tunables, id: PeerId) -> Option<Duration> {
        let peer = self.peers.get(id)?;
        (peer.disc.retry.tries > 0).then(|| t.ping_limit().min(RETRY_MAX))
    }

    /// Plans a query for `cause` with the next retry of peer `id`.
    pub(crate) fn plan_retry(
        &mut self,
        timers: &mut Timers,
        t: &Tunables,
        now: Instant,
        (id, cause): (PeerId, Cause),
    ) {
        if self.is_checked_gateway(t, id) {
            return;
        }
        let Some(peer) = self.peers.get_mut(id) else { return };
        let retry = &mut peer.disc.retry;
        let due = now + FIRST * (1 << retry.tries);
        if timers.at(Timer::Discover(id)).is_some_and(|earlier| earlier <= due) {
            if cause.learns() {
                retry.planned = Some(cause);
            }
        } else if retry.tries < TRIES_MAX {
            // What is planned for later is done then, too.
            let learns = retry.planned.filter(|c| *c != Cause::Refresh && c.learns());
            retry.planned = learns.or(Some(cause));
            retry.tries += 1;
            timers.set(Timer::Discover(id), due);
        }
    }

    /// Plans the next refresh of peer `id`, which is in use.
    pub(crate) fn plan_refresh(
        &mut self,
        timers: &mut Timers,
        t: &Tunables,
        now: Instant,
        id: PeerId,
    ) {
        let interval = t.peer_refresh_interval as u64;
        if interval == 0
            || t.discovery == 0
            || timers.is_set(Timer::Discover(id))
            || self.is_checked_gateway(t, id)
        {
            return;
        }
        // Peers that were met together are not refreshed together.
        let spread =
            Duration::from_secs(interval) / 4 / SPREAD * (id.data().as_ffi() as u32 % SPREAD);
        if let Some(peer) = self.peers.get_mut(id) {
            peer.disc.retry.planned = Some(Cause::Refresh);
            timers.set(Timer::Discover(id), now + Duration::from_secs(interval) + spread);
        }
    }

    /// Whether the router checker queries it.
    fn is_checked_gateway(&self, t: &Tunables, id: PeerId) -> bool {
        let checks = t.alive_router_check_interval > 0;
        checks && self.peers.get(id).is_some_and(|peer| peer.gateway.is_router())
    }

    /// A discovery of peer `id` has succeeded.
    pub(crate) fn end_retries(&mut self, timers: &mut Timers, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        // As long as it lists what others have too, a claim is checked in each round, and again as
        // planned.
        let claims = !peer.disc.claims.is_empty();
        let tries = if claims { peer.disc.retry.tries } else { 0 };
        let planned = peer.disc.retry.planned.filter(|c| claims && *c == Cause::Unconfirmed);
        peer.disc.retry = Retry { tries, planned, ..Retry::default() };
        if planned.is_none() {
            timers.stop(Timer::Discover(id));
        }
    }
}
