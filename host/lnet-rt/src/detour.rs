//! Interfaces that the fault of another one has cut off from peers: the system's route to these leaves by
//! that one, whose link is lost, or which is silent towards them (a black hole, a switch that is unplugged).
//! Their streams stay on their own device until that is over, those to come included if the fault is ours, so
//! that one lost rail is one lost interface. In networks where each rail is an IP network of its own, half of
//! the ways between two nodes are of that kind, and a peer of ours that suspects no rails goes on using them.
//! Where nothing is under way on the lost rail itself, only such a way shows the fault, by its own silence: it
//! stays on its own device then as well, for a while, since it will not be silent there.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lnd_sock::Kept;
use lnet::{Blame, Doubt, Link};
use lnet_types::{Instant, NetType, NiId, Nid};

use crate::netlink::Interfaces;
use crate::routes::{Route, Routes};
use crate::stack::{Stack, Watched};

/// How long after a doubt about a rail has changed that is looked after: changes come in dozens.
const LOOK_AFTER: Duration = Duration::from_millis(20);
/// The part of the time that looking may take, at most: one in so many.
const SHARE: u32 = 10;

/// How long a way that was silent itself stays on its own device. Behind that its route is tried again: while
/// the fault lasts, that costs what the first silence did.
const HELD: Duration = Duration::from_secs(10);

/// When to look next, and what has been seen.
#[derive(Debug, Default)]
pub(crate) struct Detours {
    seen: u64,
    due: Option<Instant>,
    took: Duration,
    /// Until when ways stay on their own device for a silence of their own.
    held: BTreeMap<Way, Instant>,
}

/// An address of ours, and one of a peer.
type Way = (IpAddr, IpAddr);

/// Rails that are silent.
#[derive(Debug, Default)]
struct Silent {
    /// The peers' addresses, by the address of ours.
    towards: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    /// The ways that were silent lately, although both of their ends reached others.
    alone: BTreeSet<Way>,
}

impl Silent {
    fn is(&self, own: IpAddr, to: IpAddr) -> bool {
        self.towards.get(&own).is_some_and(|lost| lost.contains(&to))
    }

    /// Whether an address of ours is to blame: it reaches several no more that another one of these does.
    fn is_ours(&self, own: IpAddr, mut others: impl Iterator<Item = IpAddr>) -> bool {
        let Some(lost) = self.towards.get(&own).filter(|lost| lost.len() > 1) else { return false };
        let none = BTreeSet::new();
        others.any(|o| o != own && self.towards.get(&o).unwrap_or(&none).is_disjoint(lost))
    }
}

impl Stack {
    /// Looks for detours some time after the doubt about a rail has changed, if there is a choice of devices.
    pub(crate) fn follow_doubts(&mut self) {
        let changes = self.node.doubt_changes();
        if changes != core::mem::replace(&mut self.detours.seen, changes) && self.watched.len() > 1
        {
            let after = LOOK_AFTER.max(self.detours.took * SHARE);
            let due = self.now + after;
            self.detours.due = Some(self.detours.due.map_or(due, |other| other.min(due)));
        }
        if self.detours.due.is_some_and(|due| due <= self.now) {
            self.detours.due = None;
            // While a link is lost that has been decided for all peers that there were, and a peer whose
            // connections are gone may come back.
            if self.watched.values().all(|w| w.link == Link::Up) {
                self.find_detours();
            }
        }
    }

    /// When [`Self::follow_doubts`] has something to do.
    pub(crate) fn next_look_for_detours(&self) -> Option<Instant> {
        self.detours.due
    }

    /// Finds out whose streams have to stay on their device, after a link or a doubt has changed.
    pub(crate) fn find_detours(&mut self) {
        let begun = self.clock.now();
        let ip = |nid: Nid| nid.ip().filter(|_| nid.net().kind == NetType::TCP);
        let mut silent = Silent::default();
        let held = &mut self.detours.held;
        held.retain(|_, until| *until > begun);
        for rail in self.node.suspicion().rails {
            if let (Doubt::Silent, Some(own), Some(to)) =
                (rail.doubt, ip(rail.local), ip(rail.peer))
            {
                silent.towards.entry(own).or_default().insert(to);
                if rail.blame == Some(Blame::Way) {
                    held.insert((own, to), begun + HELD);
                }
            }
        }
        silent.alone = held.keys().copied().collect();
        let released = held.values().min().copied();
        self.detours.due = self.detours.due.into_iter().chain(released).min();
        let all: Vec<NiId> = self.watched.keys().copied().collect();
        for ni in all {
            let Some(kept) = self.cut_off(ni, &silent) else { continue };
            if let Some(tcp) = self.tcp_mut() {
                tcp.keep_to_device(ni, kept);
            }
        }
        self.detours.took = self.clock.now().saturating_since(begun);
    }

    /// The device of a TCP interface, and the peers to which the route from it leaves by an interface that
    /// has lost its link, or is silent towards them.
    fn cut_off(&self, ni: NiId, silent: &Silent) -> Option<Kept> {
        let tcp = self.tcp()?;
        let w = self.watched.get(&ni)?;
        let monitor = self.monitors.iter().find(|m| m.is_of(w.namespace.as_ref()))?;
        let devices = monitor.table();
        let device = devices.on(w.device.as_deref(), w.ip)?;
        let beside = self.watched.values().filter(|o| o.namespace == w.namespace);
        let (lost, up): (Vec<&Watched>, Vec<&Watched>) = beside.partition(|o| o.link == Link::Down);
        let a_link_is_lost = !lost.is_empty();
        let mut kept = Kept { device: device.name.clone(), ..Kept::default() };
        if w.link == Link::Down || device.loopback {
            return Some(kept);
        }
        kept.addresses = if a_link_is_lost {
            tcp.peer_addresses()
        } else {
            let alone = silent.alone.iter().map(|(_, to)| to);
            silent.towards.values().flatten().chain(alone).copied().collect()
        };
        kept.addresses.retain(|to| to.is_ipv4() == w.ip.is_ipv4());
        if kept.addresses.is_empty() {
            return Some(kept);
        }
        let up: Vec<IpAddr> = up.into_iter().map(|o| o.ip).collect();
        let is_ours = |own: &IpAddr| silent.is_ours(*own, up.iter().copied());
        let to_blame: BTreeSet<IpAddr> = up.iter().copied().filter(is_ours).collect();
        let routes = Routes::open(w.namespace.as_ref());
        let mut addresses = BTreeSet::new();
        for to in core::mem::take(&mut kept.addresses) {
            // Where nothing can be asked, nothing is known to be wrong.
            let Ok(Ok(route)) = routes.as_ref().map(|r| r.find(w.ip, to)) else { continue };
            let nowhere = leads_nowhere(devices, route);
            let by = self.silent_one_of(route, (w, device.index), to, silent);
            // A peer's own fault is no reason to be deaf on other devices.
            kept.listener |= nowhere || by.is_some_and(|by| to_blame.contains(&by));
            if nowhere || by.is_some() {
                addresses.insert(to);
            }
        }
        kept.addresses = addresses;
        Some(kept)
    }

    /// The address of another interface than this one, by whose device the route leaves, if it is silent
    /// towards `to`, or this way alone is.
    fn silent_one_of(
        &self,
        route: Route,
        (from, own): (&Watched, u32),
        to: IpAddr,
        silent: &Silent,
    ) -> Option<IpAddr> {
        let Route::Device(index) = route else { return None };
        let is_on_it = |other: &&Watched| {
            let monitor = self.monitors.iter().find(|m| m.is_of(other.namespace.as_ref()));
            let device = monitor.and_then(|m| m.table().on(other.device.as_deref(), other.ip));
            other.namespace == from.namespace && device.is_some_and(|d| d.index == index)
        };
        let mut others = self.watched.values().filter(|_| index != own).filter(is_on_it);
        let alone = silent.alone.contains(&(from.ip, to));
        others.find(|other| alone || silent.is(other.ip, to)).map(|other| other.ip)
    }
}

/// Whether packets on this route leave by no link that is up.
fn leads_nowhere(devices: &Interfaces, route: Route) -> bool {
    match route {
        Route::Device(index) => devices.numbered(index).is_some_and(|i| !i.is_working()),
        Route::None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(rails: &[(&str, &str)]) -> Silent {
        let mut silent = Silent::default();
        for (own, to) in rails {
            silent.towards.entry(own.parse().unwrap()).or_default().insert(to.parse().unwrap());
        }
        silent
    }

    #[test]
    fn an_address_that_loses_what_another_one_reaches_is_to_blame() {
        let own = ["10.0.0.2", "10.0.1.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let blamed =
            |rails: &[(&str, &str)]| own.map(|o| silent(rails).is_ours(o, own.into_iter()));
        // A black hole of the second one, before and after its neighbour has left it.
        let hole = [("10.0.1.2", "10.0.0.3"), ("10.0.1.2", "10.0.1.3")];
        assert_eq!(blamed(&[hole[0], hole[1], ("10.0.0.2", "10.0.1.3")]), [false, false]);
        assert_eq!(blamed(&hole), [false, true]);
        // A peer that is dead, and an interface of one.
        let dead = [("10.0.0.2", "10.0.0.3"), ("10.0.0.2", "10.0.1.3"), hole[0], hole[1]];
        assert_eq!(blamed(&dead), [false, false]);
        assert_eq!(blamed(&[hole[1]]), [false, false]);
        assert_eq!(blamed(&[]), [false, false]);
    }
}
