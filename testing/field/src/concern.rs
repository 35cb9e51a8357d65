//! What a node holds against the ways that it has: rails that it suspects, interfaces without link or
//! full health, routes that are down. A fault is noticed when one more of them is seen. Nodes over
//! sockets and nodes of the simulator are looked at in the same way, equally often.

use std::collections::BTreeSet;
use std::time::Duration;

use lnet::{HEALTH_MAX, Node};
use lnet_types::Nid;

use crate::clock::Micros;

/// From one look at a node to the next.
pub(crate) const LOOK: Duration = Duration::from_millis(2);

/// Something that is held against a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concern {
    /// A rail is suspected: from an interface of ours to one of a peer.
    Rail(Nid, Nid),
    /// An interface of ours has no link, or is down otherwise.
    Link(Nid),
    /// An interface, ours or a peer's, has not its full health.
    Health(Nid),
    /// All routes by a gateway are down.
    Route(Nid),
}

/// All concerns of a node now.
pub(crate) fn of(node: &Node) -> BTreeSet<Concern> {
    let mut all = BTreeSet::new();
    if node.has_doubts() {
        all.extend(node.suspicion().rails.iter().map(|r| Concern::Rail(r.local, r.peer)));
    }
    let nis = node.net_views().into_iter().flat_map(|net| net.nis);
    all.extend(nis.filter(|ni| !ni.up).map(|ni| Concern::Link(ni.nid)));
    let low = node.ailing().filter(|(_, health)| *health < HEALTH_MAX);
    all.extend(low.map(|(nid, _)| Concern::Health(nid)));
    let (up, down): (Vec<_>, Vec<_>) = node.route_views().into_iter().partition(|r| r.up);
    let is_up = |gateway: &Nid| up.iter().any(|r| r.gateway == *gateway);
    let down = down.into_iter().map(|r| r.gateway).filter(|gateway| !is_up(gateway));
    all.extend(down.map(Concern::Route));
    all
}

/// When a node was seen to have one more concern.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    known: BTreeSet<Concern>,
    pub(crate) noticed: Vec<Micros>,
}

impl Watch {
    /// The concerns at a time.
    pub(crate) fn look(&mut self, at: Micros, now: BTreeSet<Concern>) {
        if !now.is_subset(&self.known) {
            self.noticed.push(at);
        }
        self.known = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_concern_is_noticed_and_fewer_are_not() {
        let nid = |text: &str| text.parse::<Nid>().unwrap();
        let (one, other) = (Concern::Link(nid("10.0.0.1@tcp")), Concern::Link(nid("10.0.0.2@tcp")));
        let mut watch = Watch::default();
        let all: [&[Concern]; 5] = [&[], &[one], &[one], &[one, other], &[other]];
        for (at, now) in (0..).zip(all) {
            watch.look(at, now.iter().copied().collect());
        }
        // In place of another one.
        watch.look(9, [one].into());
        assert_eq!(watch.noticed, [1, 3, 9]);
    }
}
