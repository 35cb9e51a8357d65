//! Reports about gateways and their effects (behaviour.md 7.3, 7.6): the router
//! checker, the data in gateways' ping replies, traffic, and what drivers report.
//!
//! What follows from these facts for a route is decided in `alive.rs`. A check is an ordinary
//! discovery of the gateway, over a chosen network (S-36); its course is in `peer/discovery.rs`.

use core::time::Duration;

use lnet_types::{Errno, Instant, MsgId, NiId, Nid, PeerId, PeerNiId};
use lnet_wire::Hdr;
use lnet_wire::ping::{Features, NiStatus, PingInfo};

use super::life::Sign;
use super::{Gateway, alive, choose};
use crate::check::live;
use crate::conduct::RouterPingLimit;
use crate::msg::Stage;
use crate::outbox::Work;
use crate::peer::Facts;
use crate::peer::cause::Cause;
use crate::port::PortId;
use crate::send::Reason;
use crate::send::rest::News;
use crate::timers::{Timer, TimerKind};
use crate::{Doubt, Node, Notice};

/// A message from a gateway that is taken for dead is reason to ask it, and so is a connection to it
/// that has failed where there are others, but not more often than this.
const RECHECK_MIN: Duration = Duration::from_secs(1);

impl Node {
    /// Time from one check of a gateway to the next (R-32, PA-133); `None`: gateways are not
    /// checked.
    fn check_interval(&self, alive: bool) -> Option<Duration> {
        let t = &self.tunables;
        if t.alive_router_check_interval <= 0 {
            return None;
        }
        let own = match alive {
            _ if !t.conduct.separates_check_intervals => 0,
            true => t.live_router_check_interval,
            false => t.dead_router_check_interval,
        };
        let secs = if own > 0 { own } else { t.alive_router_check_interval };
        Some(Duration::from_secs(secs as u64))
    }

    /// How long the answer to a check may take, if that differs from other pings (R-38, PA-134).
    pub(crate) fn check_timeout(&self, id: PeerId) -> Option<Duration> {
        let checking = |p: &crate::peer::Peer| p.facts.contains(Facts::ROUTER_CHECK);
        if !self.peers.peers.get(id).is_some_and(checking) {
            return None;
        }
        let limit = Duration::from_secs(self.tunables.router_ping_timeout as u64);
        match self.tunables.conduct.router_ping_limit {
            RouterPingLimit::AsOthers => None,
            RouterPingLimit::Bounded => Some(limit.min(self.tunables.ping_limit())),
            RouterPingLimit::Full => Some(limit),
        }
    }

    /// All networks of a gateway are due for a check now.
    pub(crate) fn check_soon(&mut self, now: Instant, id: PeerId) {
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.gateway.next.clear();
            self.arm_check(now, id);
        }
    }

    /// The same for a report that a check may have caused itself, as its own failure shows: so long
    /// after the last check as a message would have to come.
    fn check_again(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let due = now.max(peer.gateway.started + RECHECK_MIN);
        for next in &mut peer.gateway.next {
            next.1 = next.1.min(due);
        }
        self.arm_check(now, id);
    }

    /// The peer is no gateway any more.
    pub(crate) fn stop_checks(&mut self, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.facts -= Facts::ROUTER_CHECK;
        peer.gateway = Gateway::default();
        self.timers.stop(Timer::Check(id));
    }

    /// Notes when a gateway is to be looked at next; not while it is being looked at.
    fn arm_check(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        self.timers.stop(Timer::Check(id));
        if !peer.gateway.is_router()
            || peer.facts.contains(Facts::ROUTER_CHECK)
            || self.tunables.alive_router_check_interval <= 0
        {
            return;
        }
        let g = &peer.gateway;
        let due = peer
            .nets
            .iter()
            .filter(|n| self.nis.nets().iter().any(|l| l.net == n.net))
            .map(|n| g.next.iter().find(|x| x.0 == n.net).map_or(now, |x| x.1))
            .min();
        if let Some(due) = due {
            self.timers.set(Timer::Check(id), due);
        }
    }

    /// Local networks or tunables have changed: every gateway is looked at again.
    pub(crate) fn arm_checks(&mut self, now: Instant) {
        let gateways: Vec<PeerId> = self.router.routes.all().map(|r| r.gateway).collect();
        for id in gateways {
            self.arm_check(now, id);
        }
    }

    /// Checks the gateways that are due.
    pub(crate) fn check_gateways(&mut self, now: Instant) {
        while let Some(Timer::Check(id)) = self.timers.pop_of(TimerKind::Check, now) {
            self.check_gateway(now, id);
        }
    }

    /// Checks a gateway that is due, over the next of its networks.
    pub(crate) fn check_gateway(&mut self, now: Instant, id: PeerId) {
        let Some(peer) = self.peers.peers.get(id) else { return };
        let Some(interval) = self.check_interval(peer.gateway.life.is_alive()) else { return };
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        let g = &peer.gateway;
        let is_due = |net| g.next.iter().find(|x| x.0 == net).is_none_or(|x| x.1 <= now);
        let after = peer.nets.iter().position(|n| Some(n.net) == g.ping_net);
        let from = after.map_or(0, |at| at + 1);
        let (first, second) = (peer.nets.iter().skip(from), peer.nets.iter().take(from));
        let net = first
            .chain(second)
            .map(|n| n.net)
            .find(|net| self.nis.nets().iter().any(|l| l.net == *net) && is_due(*net));
        if let Some(net) = net {
            peer.gateway.ping_net = Some(net);
            peer.gateway.started = now;
            peer.gateway.next.retain(|x| x.0 != net);
            peer.gateway.next.push((net, now + interval));
            peer.facts |= Facts::ROUTER_CHECK;
            self.query(now, id, Cause::RouterCheck);
        } else {
            self.arm_check(now, id);
        }
    }

    /// A discovery of a gateway has ended, whatever its cause.
    pub(crate) fn gateway_discovered(&mut self, now: Instant, id: PeerId, error: Option<Errno>) {
        let Some(peer) = self.peers.peers.get_mut(id).filter(|p| p.gateway.is_router()) else {
            return;
        };
        let was_check = peer.facts.contains(Facts::ROUTER_CHECK);
        peer.facts -= Facts::ROUTER_CHECK;
        if error.is_none() {
            peer.gateway.repeated = false;
        } else if was_check && self.repeat_check(now, id) {
            return;
        }
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        peer.facts |= Facts::ROUTER_CHECKED;
        let nis = peer.nis().collect::<Vec<_>>();
        let alive = error.is_none();
        self.sign_gateway(id, if alive { Sign::Answered } else { Sign::Failed });
        if error.is_some() {
            for ni in nis {
                self.gateway_ni_down(now, ni);
            }
            for route in self.router.routes.all_mut().filter(|r| r.gateway == id) {
                route.cached = false;
            }
            self.leave_gateway(now, id);
            self.rehome_later();
        }
        // The next one as far from this one as its outcome says.
        if was_check
            && let Some(interval) = self.check_interval(alive)
            && let Some(peer) = self.peers.peers.get_mut(id)
        {
            let (net, due) = (peer.gateway.ping_net, peer.gateway.started + interval);
            if let Some(next) = peer.gateway.next.iter_mut().find(|x| Some(x.0) == net) {
                next.1 = due;
            }
        }
        self.arm_check(now, id);
    }

    /// A check of gateway `id` has failed. If we have several interfaces there, the one that it
    /// went by may be to blame: it is made once more, and goes by another one if this one is
    /// degraded or silent by now. Kernel nodes give the gateway up.
    fn repeat_check(&mut self, now: Instant, id: PeerId) -> bool {
        let may_repeat = self.tunables.conduct.repeats_failed_checks;
        let Some(peer) = self.peers.peers.get_mut(id) else { return false };
        let net = self.nis.nets().iter().find(|n| Some(n.net) == peer.gateway.ping_net);
        let nis = net.map_or(&[][..], |n| &n.nis[..]);
        let is_usable = |ni: &NiId| self.nis.get(*ni).is_some_and(|ni| !ni.fatal);
        let is_ours = nis.len() > 1 && nis.iter().any(is_usable);
        let repeats = is_ours && may_repeat && !peer.gateway.repeated;
        peer.gateway.repeated = repeats;
        if repeats {
            peer.facts |= Facts::ROUTER_CHECK;
            self.query(now, id, Cause::RouterCheck);
        }
        repeats
    }

    /// An interface of a gateway is not there. Besides noting it, we ask it for a sign of life
    /// until it gives one; the kernel waits for the next check.
    fn gateway_ni_down(&mut self, now: Instant, ni: PeerNiId) {
        let Some(pni) = self.peers.nis.get_mut(ni) else { return };
        let was_up = pni.set_up(now, self.tunables.flap_hold_down, false);
        let recovers = self.tunables.conduct.acts_on_gateway_news;
        if was_up && pni.local.is_some() && recovers {
            self.lower(now, PortId::Peer(ni));
        }
        if was_up {
            self.note_peer(ni);
        }
    }

    /// A gateway has said how its interfaces are.
    pub(crate) fn gateway_data(&mut self, now: Instant, id: PeerId, info: &PingInfo) {
        let Some(peer) = self.peers.peers.get(id).filter(|p| p.gateway.is_router()) else {
            return;
        };
        let disabled = info.features.contains(Features::RTE_DISABLED);
        if disabled && self.router.routes.all().any(|r| r.gateway == id && r.cached) {
            // Once, not at every check; a state that gets worse is a warning.
            tracing::warn!("gateway {}: has routing disabled", peer.primary);
        }
        let (mut lost, mut found) = (false, false);
        for route in self.router.routes.all_mut().filter(|r| r.gateway == id) {
            let far = || info.entries.iter().filter(|e| e.nid.net() == route.net);
            let before = route.cached;
            let local_up = alive::has_up_ni(&self.peers, peer, route.nid.net());
            if disabled || !local_up {
                route.cached = false;
                lost = true;
                continue;
            }
            let (single_hop, far_up) =
                (far().next().is_some(), far().any(|e| e.status == NiStatus::UP));
            route.single_hop = single_hop;
            route.cached = !alive::watches_far_side(&self.tunables, route) || far_up;
            lost |= !route.cached;
            found |= route.cached && !before;
            if route.hops == Some(1) && !single_hop && self.tunables.avoid_asym_router_failure != 0
            {
                tracing::warn!(net = %route.net, gateway = %route.nid,
                    "one hop configured, but the gateway has no interface there");
            }
        }
        if lost {
            self.leave_gateway(now, id);
        }
        if found {
            self.notify_resting(now, News::Link);
        }
    }

    /// Changes what is believed of a gateway, and reports it when that says something else about its use.
    pub(crate) fn sign_gateway(&mut self, id: PeerId, sign: Sign) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if peer.gateway.sign(sign) {
            let (primary, usable) = (peer.primary, peer.gateway.life.is_alive());
            self.outbox.notice(Notice::Gateway { primary, usable });
        }
    }

    /// A message has come from an interface of a gateway.
    pub(crate) fn heard_gateway(&mut self, now: Instant, ni: PeerNiId, hdr: &Hdr) {
        let Some(pni) = self.peers.nis.get(ni) else { return };
        let (id, net) = (pni.peer, pni.nid.net());
        let Some(peer) = self.peers.peers.get_mut(id).filter(|p| p.gateway.is_router()) else {
            return;
        };
        if peer.gateway.life.is_alive() {
            return;
        }
        let source = hdr.src.net();
        if source == net {
            // It sends messages of its own: time to query it.
            let waited = now.saturating_since(peer.gateway.started) >= RECHECK_MIN;
            if waited && self.tunables.conduct.acts_on_gateway_news {
                self.check_soon(now, id);
            }
            return;
        }
        let believed = alive::is_discovery_off(&self.tunables, peer);
        let nis: Vec<_> = peer.net(source).into_iter().flat_map(|n| n.nis.clone()).collect();
        self.sign_gateway(id, Sign::Traffic);
        for ni in nis {
            if let Some(pni) = self.peers.nis.get_mut(ni) {
                pni.set_up(now, self.tunables.flap_hold_down, true);
            }
        }
        if believed {
            let routes = self.router.routes.all_mut();
            for route in routes.filter(|r| r.gateway == id && r.net == source) {
                route.cached = true;
            }
        }
    }

    /// A link of a router is back and announced. That neighbours behind it count as down was
    /// concluded while no message could arrive from them; what is for them is tried again from here
    /// on. The kernel waits for a message of theirs, and drops what comes meanwhile.
    pub(crate) fn believe_neighbours(&mut self, now: Instant, ni: NiId) {
        if !self.tunables.conduct.trusts_neighbours_after_link || !self.router.is_on() {
            return;
        }
        let Some(net) = self.nis.get(ni).map(|ni| ni.nid.net()) else { return };
        let hold_down = self.tunables.flap_hold_down;
        for pni in self.peers.nis.values_mut() {
            if pni.nid.net() == net && pni.local.is_some() && !pni.port.status_up {
                pni.set_up(now, hold_down, true);
            }
        }
    }

    /// R-61 … R-63.
    pub(crate) fn notified(
        &mut self,
        now: Instant,
        by: Option<NiId>,
        nid: Nid,
        up: bool,
        when: Instant,
    ) {
        let Some(id) = self.peers.find(nid) else { return };
        let Some(pni) = self.peers.nis.get_mut(id) else { return };
        let when = if up { when } else { when.max(pni.last_alive.unwrap_or(when)) };
        if pni.notified.is_some_and(|last| when < last) {
            return;
        }
        pni.notified = Some(when);
        let peer_id = pni.peer;
        let gateway = alive::is_router(&self.peers, peer_id);
        if gateway && !up && by.is_some_and(|by| self.has_other_rail(by, id)) {
            return self.check_again(now, peer_id);
        }
        if gateway && (up || !self.is_another_preferable(by)) {
            self.notified_routes(peer_id, nid, up);
        }
        if up {
            if let Some(pni) = self.peers.nis.get_mut(id) {
                pni.set_up(now, self.tunables.flap_hold_down, true);
            }
            if gateway && self.tunables.conduct.acts_on_gateway_news {
                // PA-098: usable at once, and asked for the rest.
                self.sign_gateway(peer_id, Sign::Up);
                self.check_soon(now, peer_id);
            }
            return;
        }
        if gateway || self.router.is_on() {
            self.gateway_ni_down(now, id);
        } else if let Some(pni) = self.peers.nis.get_mut(id)
            && pni.set_up(now, self.tunables.flap_hold_down, false)
            && by.is_none()
        {
            // That a connection has ended says little: what is to be sent opens the next one, and what
            // can't be sent is reported itself.
            self.note_peer(id);
        }
        if gateway && self.tunables.conduct.acts_on_gateway_news {
            let nothing_up = self.peers.peers.get(peer_id).is_some_and(|p| {
                !self.nis.nets().iter().any(|l| alive::has_up_ni(&self.peers, p, l.net))
            });
            if nothing_up {
                self.sign_gateway(peer_id, Sign::Down);
            }
            self.leave_queue(now, id);
            self.leave_gateway(now, peer_id);
        }
    }

    /// where the gateway is not discovered, the report decides.
    fn notified_routes(&mut self, peer_id: PeerId, nid: Nid, up: bool) {
        let Some(peer) = self.peers.peers.get(peer_id) else { return };
        if alive::is_discovery_off(&self.tunables, peer) {
            for route in self.router.routes.all_mut().filter(|r| r.nid == nid) {
                route.cached = up;
            }
        }
    }

    /// whether the reporting interface is not the one that would be used anyway.
    fn is_another_preferable(&self, by: Option<NiId>) -> bool {
        let Some(ni) = by.and_then(|id| self.nis.get(id)) else { return false };
        let Some(net) = self.nis.nets().iter().find(|n| n.net == ni.nid.net()) else {
            return false;
        };
        net.nis
            .iter()
            .filter_map(|id| self.nis.get(*id))
            .any(|other| (!other.fatal, other.port.health) > (!ni.fatal, ni.port.health))
    }

    /// Whether an interface of ours other than `by` has an undoubted way to this one of a gateway:
    /// then the failure may lie with `by`, and the gateway is queried. Kernel nodes, and nodes that
    /// cannot query, accept the report.
    fn has_other_rail(&self, by: NiId, gateway: PeerNiId) -> bool {
        let Some(pni) = self.peers.nis.get(gateway) else { return false };
        let asks = |peer| !alive::is_discovery_off(&self.tunables, peer);
        let checks = self.tunables.alive_router_check_interval > 0;
        let net = self.nis.nets().iter().find(|n| n.net == pni.nid.net());
        let others = net.into_iter().flat_map(|n| &n.nis).filter(|ni| **ni != by);
        let is_good = |ni: &NiId| {
            self.nis.get(*ni).is_some_and(|n| !n.fatal)
                && self.rails.of(*ni, gateway) < Doubt::Silent
        };
        let mut good = others.copied().filter(is_good);
        self.tunables.conduct.acts_on_gateway_news
            && checks
            && self.peers.peers.get(pni.peer).is_some_and(asks)
            && good.next().is_some()
    }

    /// Messages that wait for a credit of a gateway's interface look for another way, if there is
    /// one.
    fn leave_queue(&mut self, now: Instant, ni: PeerNiId) {
        let Some(pni) = self.peers.nis.get(ni) else { return };
        for id in pni.port.credits.queue.iter().copied().collect::<Vec<MsgId>>() {
            let Some(msg) = live!(self.msgs, id).filter(|m| m.stage == Stage::PeerQueue) else {
                continue;
            };
            if choose::ways_to(self.tables(), msg.hdr.dst.net()) > 0 {
                self.again(now, id, Reason::Unbound);
            }
        }
    }

    /// Asks for routes to be looked at whose peer is gone or whose gateway NID has moved.
    pub(crate) fn rehome_later(&mut self) {
        if !self.router.routes.is_empty() {
            self.outbox.plan(Work::RehomeRoutes);
        }
    }
}
