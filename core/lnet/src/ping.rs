//! When the node's own ping data (`own_data.rs`) are built anew and announced (behaviour.md 6.1, H-92):
//! whenever an interface comes, goes or changes its status.

use lnet_types::Instant;
use lnet_wire::ping::{Features, NiStatus, PingEntry};

use crate::Node;
use crate::peer::cause::Cause;
use crate::timers::Timer;

impl Node {
    /// Builds the ping data anew, under the next sequence number (D-7).
    pub(crate) fn rebuild_ping(&mut self) {
        self.own.advance();
        self.refresh_ping();
    }

    /// Builds the ping data anew under the same sequence number: feature bits or statuses changed.
    pub(crate) fn refresh_ping(&mut self) {
        for ni in self.nis.values_mut() {
            ni.announced_up = ni.is_up();
        }
        let entries = self
            .nis
            .listed()
            .filter(|ni| !ni.is_loopback())
            .map(|ni| PingEntry {
                nid: ni.nid,
                status: if ni.announced_up { NiStatus::UP } else { NiStatus::DOWN },
            })
            .collect();
        let mut features = Features::NI_STATUS | Features::MULTI_RAIL;
        features.set(Features::RTE_DISABLED, self.routing_state() != crate::RoutingState::Enabled);
        if self.tunables.discovery != 0 {
            features |= Features::DISCOVERY;
        }
        features.set(Features::DEDUPLICATES, self.tunables.deduplicates());
        self.own.set(&mut self.portals, features, entries);
    }

    /// Decides whether a change of a link is announced at once (H-92). Announcements for a flapping
    /// link are limited to one per second, since each costs a message to every peer; kernel nodes
    /// announce all changes.
    pub(crate) fn announce_link(&mut self, now: Instant) -> bool {
        if self.timers.at(Timer::Announce).is_some_and(|at| at > now) {
            return false;
        }
        let at = match self.own.announces(now) {
            Err(until) if self.tunables.conduct.limits_announcements => until,
            Ok(()) | Err(_) => now,
        };
        self.timers.set(Timer::Announce, at);
        at == now
    }

    /// Pushes our data to peers that lack them (D-60); with `force` also to those that have them, unless
    /// discovery is off.
    pub(crate) fn push_to_peers(&mut self, now: Instant, force: bool) {
        let force = force && self.tunables.discovery != 0;
        self.query_all(now, Cause::Changed { force });
    }

    /// Announces the links that have come or gone.
    pub(crate) fn announce_links(&mut self, now: Instant) {
        if self.tunables.conduct.reports_status_in_place && self.router.is_on() {
            // H-92: a kernel router changes its status in place.
            self.refresh_ping();
            self.push_to_peers(now, true);
        } else {
            self.announce(now, false);
        }
        if self.nis.values().any(|ni| ni.fatal) {
            self.plan_reminders(now);
        }
    }

    /// Announces a changed status of interfaces to peers (H-92).
    pub(crate) fn announce(&mut self, now: Instant, force: bool) {
        self.rebuild_ping();
        self.push_to_peers(now, force);
    }
}
