//! Which gateway carries a message to a network that is not local (behaviour.md 3.6). Pure, like
//! `send/select.rs`, which calls this when no local path exists.
//!
//! Each choice is one ordered key. The smallest key wins.

use core::cmp::Reverse;

use lnet_types::{Errno, Net, NiId, Nid, PeerId, PeerNiId};

use super::alive;
use super::routes::Route;
use crate::HEALTH_MAX;
use crate::peer::{Peer, PeerNi};
use crate::send::key::{
    Doubted, Down, GatewayKey, NotPreferred, Priority, RouteKey, Tried, choose,
};
use crate::send::select::{
    Path, Request, Tables, avoids_tried, best_ni, best_pair, local_net, shaky, silent, within_range,
};
use crate::send::trace::{Named, Recorder, Step};

/// What a path over a gateway adds to a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Via {
    /// The interface that the message is for in the end.
    pub(crate) dest: PeerNiId,
    /// The route; `None` if the message goes back the way that its request came (S-51).
    pub(crate) route: Option<RouteUse>,
}

/// The route that was chosen, and its new place in the round (S-57).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct RouteUse {
    pub(crate) net: Net,
    pub(crate) gateway: PeerId,
    pub(crate) seq: u64,
}

/// A message that this node only passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Passing {
    /// Whether the node that the message comes from in the first place is Multi-Rail (S-13).
    pub(crate) from_mr: bool,
    /// The previous hop: sending it back there would go on for ever.
    pub(crate) previous: Option<PeerId>,
}

/// The path of a message that is being forwarded (S-12 … S-14, S-31, S-53).
pub(crate) fn onward(
    t: Tables<'_>,
    r: &Request<'_>,
    target: &PeerNi,
    peer: &Peer,
    passing: Passing,
    rec: &mut Recorder<'_>,
) -> Result<Path, Errno> {
    if local_net(t, target.nid.net()).is_none() {
        // A neighbour that was addressed by the NID of its far side (S-15): it takes what is for
        // its near side only (S-81.3).
        if peer.is_mr() && peer.nets.iter().any(|n| local_net(t, n.net).is_some()) {
            return best_pair(t, r, peer, rec);
        }
        return routed(t, r, Some(r.target), None, rec);
    }
    let ailing = !target.port.status_up || target.port.health < HEALTH_MAX;
    if passing.from_mr && peer.is_mr() && ailing && !r.recovery {
        return best_pair(t, r, peer, rec);
    }
    let ni = best_ni(t, target.nid.net(), None, &[r.target], r, rec).ok_or(Errno::EHOSTUNREACH)?;
    Ok(Path { ni, peer_ni: r.target, remember: false, counted: false, via: None })
}

/// A path over a gateway (S-50 … S-59). `dest`: the final interface, if it is fixed; else the best
/// of the target's peer. `from`: our interface, if it is fixed.
pub(crate) fn routed(
    t: Tables<'_>,
    r: &Request<'_>,
    dest: Option<PeerNiId>,
    from: Option<NiId>,
    rec: &mut Recorder<'_>,
) -> Result<Path, Errno> {
    let back = hinted(t, r, from, rec);
    if let Some(path) = back
        && is_hint_good(t, r, path.peer_ni)
    {
        return Ok(path);
    }
    let chosen = by_route(t, r, dest, from, rec);
    match (chosen, back) {
        (Ok(path), _) => Ok(path),
        // Nothing better is known: the way that the request came did work once.
        (Err(_), Some(path)) => Ok(path),
        (Err(errno), None) => Err(errno),
    }
}

/// The way back over the gateway that a request came by (S-51).
fn hinted(
    t: Tables<'_>,
    r: &Request<'_>,
    from: Option<NiId>,
    rec: &mut Recorder<'_>,
) -> Option<Path> {
    let hop = t.peers.find(r.hint?)?;
    let gateway = t.peers.nis.get(hop)?;
    if !alive::is_router(t.peers, gateway.peer) {
        return None;
    }
    let ni = match from {
        Some(ni) => ni,
        None => best_ni(t, gateway.nid.net(), None, &[hop], r, rec)?,
    };
    if t.nis.get(ni)?.nid.net() != gateway.nid.net() {
        return None;
    }
    let via = Via { dest: r.target, route: None };
    Some(Path { ni, peer_ni: hop, remember: false, counted: false, via: Some(via) })
}

/// The kernel goes back by the hint, come what may. We don't through a gateway that is known dead
/// or has just failed this message (DEC-24).
fn is_hint_good(t: Tables<'_>, r: &Request<'_>, hop: PeerNiId) -> bool {
    let alive = t.peers.nis.get(hop).is_some_and(|n| {
        n.port.status_up && t.peers.peers.get(n.peer).is_some_and(|p| p.gateway.life.is_alive())
    });
    !avoids_tried(t) || (alive && !r.tried.iter().any(|&(_, id)| id == hop))
}

fn by_route(
    t: Tables<'_>,
    r: &Request<'_>,
    dest: Option<PeerNiId>,
    from: Option<NiId>,
    rec: &mut Recorder<'_>,
) -> Result<Path, Errno> {
    let dest = match dest {
        Some(dest) => dest,
        None => best_dest(t, r)?,
    };
    let target = t.peers.nis.get(dest).ok_or(Errno::EFAULT)?;
    let source = from.and_then(|ni| t.nis.get(ni)).map(|ni| ni.nid.net());
    let ideal = match rec {
        None => ideal(t, r, target, source),
        Some(_) => None,
    };
    let (chosen, highest) = match ideal {
        Some(found) => {
            debug_assert_eq!(
                compared(t, r, target, source, &mut None).map(|(c, seq)| (c.hop, c.place, seq)),
                Some((found.0.hop, found.0.place, found.1)),
                "an ideal gateway is the best one"
            );
            found
        }
        None => {
            #[cfg(test)]
            t.routes.compared.0.update(|n| n + 1);
            compared(t, r, target, source, rec).ok_or(Errno::EHOSTUNREACH)?
        }
    };
    let ni = match from {
        Some(ni) => ni,
        None => {
            let (net, toward) = (chosen.ni.nid.net(), &[chosen.hop]);
            best_ni(t, net, None, toward, r, rec).ok_or(Errno::EFAULT)?
        }
    };
    let seq = highest + 1;
    let route = RouteUse { net: chosen.route.net, gateway: chosen.route.gateway, seq };
    Ok(Path {
        ni,
        peer_ni: chosen.hop,
        remember: false,
        counted: !r.internal && r.passing.is_none(),
        via: Some(Via { dest, route: Some(route) }),
    })
}

/// The best candidate, and the highest place in the round that any has.
fn compared<'a>(
    t: Tables<'a>,
    r: &Request<'_>,
    dest: &PeerNi,
    source: Option<Net>,
    rec: &mut Recorder<'_>,
) -> Option<(Candidate<'a>, u64)> {
    let routes = t.routes.to(dest.nid.net()).iter().enumerate();
    let candidates: Vec<Candidate<'a>> =
        routes.filter_map(|of| usable(t, r, dest, source, of)).collect();
    let best = candidates.iter().map(|c| c.ni.port.health).max().unwrap_or(0);
    let highest = candidates.iter().map(|c| c.route.seq).max().unwrap_or(0);
    let keyed = candidates.iter().map(|c| (c, key(t, r, dest, best, c)));
    let chosen = choose(rec, Step::Gateway, keyed, |c| Named::Nid(c.ni.nid))?;
    Some((*chosen, highest))
}

/// How many routes are looked at for one that is ideal before all are compared.
const LOOKS: usize = 4;

/// The same, if it is found without comparing all: the first of the round whose key no other can undercut
/// but by its turn. As a rule nothing is wrong with any gateway and that is the very first, while a node
/// with dozens of them has their records all over its memory.
fn ideal<'a>(
    t: Tables<'a>,
    r: &Request<'_>,
    dest: &PeerNi,
    source: Option<Net>,
) -> Option<(Candidate<'a>, u64)> {
    let routes = t.routes.to(dest.nid.net());
    let (first, last, least) = bounds(t, routes)?;
    let highest = usable(t, r, dest, source, last)?.route.seq;
    let mut next = first;
    for _ in 0..LOOKS {
        let found = usable(t, r, dest, source, next);
        if let Some(found) = found.filter(|found| {
            let key = key(t, r, dest, HEALTH_MAX, found);
            key == RouteKey { seq: key.seq, place: key.place, ..least }
        }) {
            return Some((found, highest));
        }
        let turn = |&(place, route): &(usize, &Route)| (route.seq, Reverse(place));
        next = routes.iter().enumerate().filter(|of| turn(of) > turn(&next)).min_by_key(turn)?;
    }
    None
}

/// A route, and its place in the list.
type Placed<'a> = (usize, &'a Route);

/// Of routes to one network those that are the first and the last in the round, and what no key of theirs
/// is less than, its turn apart.
fn bounds<'a>(t: Tables<'a>, routes: &'a [Route]) -> Option<(Placed<'a>, Placed<'a>, RouteKey)> {
    let one = (0, routes.first()?);
    let (mut first, mut last) = (one, one);
    let (mut least_priority, mut least_hops) = (u32::MAX, u64::MAX);
    for (place, route) in routes.iter().enumerate() {
        // Of equals the later one wins.
        if route.seq <= first.1.seq {
            first = (place, route);
        }
        if route.seq > last.1.seq {
            last = (place, route);
        }
        least_priority = least_priority.min(route.priority);
        least_hops = least_hops.min(hops(route));
    }
    let turns = t.tunables.legacy_route_rr != 0;
    let credits = t.nets.iter().map(|n| n.tunables.peer_credits).max().unwrap_or(0) as i32;
    let least = RouteKey {
        silent: Doubted::default(),
        tried: Tried(false),
        not_preferred: NotPreferred(false),
        priority: least_priority.into(),
        hops: least_hops,
        health: Reverse(if turns { 0 } else { HEALTH_MAX }),
        shaky: Doubted::default(),
        queued_bytes: 0,
        credits: Reverse(if turns { 0 } else { credits }),
        seq: 0,
        place: Reverse(0),
    };
    Some((first, last, least))
}

/// Routers on the way.
fn hops(route: &Route) -> u64 {
    route.hops.unwrap_or(1).into()
}

/// A route that may be used, and the interface of its gateway that would be.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    route: &'a Route,
    place: usize,
    hop: PeerNiId,
    ni: &'a PeerNi,
}

/// A route at its place in the list as a candidate (S-54).
fn usable<'a>(
    t: Tables<'a>,
    r: &Request<'_>,
    dest: &PeerNi,
    source: Option<Net>,
    (place, route): (usize, &'a Route),
) -> Option<Candidate<'a>> {
    let previous = r.passing.and_then(|p| p.previous);
    // Neither back where it came from, nor through a gateway to that gateway's own far side,
    // which it would take for a mistake (S-81.3).
    if previous == Some(route.gateway)
        || dest.peer == route.gateway
        || !alive::is_route_alive(t.tunables, t.peers, route)
    {
        return None;
    }
    let gateway = t.peers.peers.get(route.gateway)?;
    let (hop, ni) = gateway
        .nets
        .iter()
        .filter(|n| source.is_none_or(|s| s == n.net) && local_net(t, n.net).is_some())
        .flat_map(|n| &n.nis)
        .filter_map(|id| t.peers.nis.get(*id).map(|n| (*id, n)))
        .min_by_key(|&(id, n)| GatewayKey {
            down: Down(avoids_tried(t) && !n.port.status_up),
            silent: silent(t, own(t, n), &[id]),
            health: Reverse(n.port.health),
            tried: Tried(was_tried(t, r, id)),
            priority: Priority(n.port.grade.priority),
            shaky: Doubted { around: 0, ..shaky(t, own(t, n), &[id]) },
            credits: Reverse(n.port.credits.free),
            seq: n.port.seq,
        })?;
    Some(Candidate { route, place, hop, ni })
}

/// Our interfaces from which rails lead to a gateway's.
fn own<'a>(t: Tables<'a>, n: &PeerNi) -> &'a [NiId] {
    local_net(t, n.nid.net()).map_or(&[][..], |net| &net.nis)
}

fn was_tried(t: Tables<'_>, r: &Request<'_>, hop: PeerNiId) -> bool {
    avoids_tried(t) && t.tunables.legacy_route_rr == 0 && r.tried.iter().any(|&(_, id)| id == hop)
}

fn key(t: Tables<'_>, r: &Request<'_>, dest: &PeerNi, best: u32, c: &Candidate<'_>) -> RouteKey {
    let primary = t.peers.peers.get(c.route.gateway).map(|p| p.primary);
    // Plain turns, as before there was health.
    let turns = t.tunables.legacy_route_rr != 0;
    let preferred = |nid: Nid| dest.mapping.iter().any(|m| m.routers.contains(&nid));
    RouteKey {
        silent: silent(t, own(t, c.ni), &[c.hop]),
        tried: Tried(was_tried(t, r, c.hop)),
        not_preferred: NotPreferred(
            dest.mapping.iter().any(|m| !m.routers.is_empty()) && !primary.is_some_and(preferred),
        ),
        priority: c.route.priority.into(),
        hops: hops(c.route),
        health: Reverse(if turns { 0 } else { within_range(t, c.ni.port.health, best) }),
        shaky: Doubted { around: 0, ..shaky(t, own(t, c.ni), &[c.hop]) },
        queued_bytes: if turns { 0 } else { c.ni.queued_bytes },
        credits: Reverse(if turns { 0 } else { c.ni.port.credits.free }),
        seq: c.route.seq,
        place: Reverse(c.place as u32),
    }
}

/// The interface of the target's peer to go for: on the best of its networks that routes lead to
/// (S-53).
fn best_dest(t: Tables<'_>, r: &Request<'_>) -> Result<PeerNiId, Errno> {
    let target = t.peers.nis.get(r.target).ok_or(Errno::EFAULT)?;
    let peer = t.peers.peers.get(target.peer).ok_or(Errno::EFAULT)?;
    let net = peer
        .nets
        .iter()
        .filter(|n| t.routes.has_net(n.net))
        .min_by_key(|n| (Reverse(n.health), n.grade.priority, n.seq))
        .ok_or(Errno::EHOSTUNREACH)?;
    net.nis
        .iter()
        .filter_map(|id| t.peers.nis.get(*id).map(|n| (*id, n)))
        .min_by_key(|&(_, n)| {
            (
                Reverse(n.port.health),
                n.port.grade.priority,
                Reverse(n.port.credits.free),
                n.port.seq,
            )
        })
        .map(|(id, _)| id)
        .ok_or(Errno::EHOSTUNREACH)
}

/// How many interfaces of gateways could carry a message to `net` now: whether there is another
/// way for one that has failed.
pub(crate) fn ways_to(t: Tables<'_>, net: Net) -> usize {
    hops_to(t, net).count()
}

/// Those interfaces.
pub(crate) fn hops_to(t: Tables<'_>, net: Net) -> impl Iterator<Item = PeerNiId> + '_ {
    t.routes
        .to(net)
        .iter()
        .filter(move |route| alive::is_route_alive(t.tunables, t.peers, route))
        .filter_map(move |route| t.peers.peers.get(route.gateway))
        .flat_map(move |p| p.nets.iter().filter(move |n| local_net(t, n.net).is_some()))
        .flat_map(|n| n.nis.iter().copied())
}

/// Whether the gateway with the interface `hop` leads to `net` now.
pub(crate) fn leads_to(t: Tables<'_>, hop: PeerNiId, net: Net) -> bool {
    let gateway = t.peers.nis.get(hop).map(|n| n.peer);
    let routes = t.routes.to(net).iter();
    routes
        .filter(|route| Some(route.gateway) == gateway)
        .any(|route| alive::is_route_alive(t.tunables, t.peers, route))
}

/// The route with the fewest hops (M-51).
pub(crate) fn nearest(t: Tables<'_>, net: Net) -> Option<&Route> {
    t.routes.to(net).iter().min_by_key(|r| r.hops.unwrap_or(1))
}
