//! Path selection: which interface of ours, which interface of the peer. Pure: it reads the tables
//! and says what it would choose, and why not otherwise; the caller acts (behaviour.md 3.2 … 3.5).
//!
//! Each choice is one ordered key (`key.rs`). The smallest key wins; on a complete tie the earlier
//! candidate (S-40). A recorder, if there is one, records all candidates (`trace.rs`).

use core::cmp::Reverse;
use core::net::IpAddr;

use lnet_types::{Errno, Instant, Net, NiId, Nid, PeerNiId};

use crate::below::Doubt;
use crate::flap::Flaps;
use crate::local::{Interfaces, LocalNet, Ni};
use crate::numa::Numa;
use crate::peer::{Peer, PeerNet, PeerNi, Peers};
use crate::policy::turn::{NO_PRIORITY, Standing};
use crate::portal::Portals;
use crate::rails::Rails;
use crate::router::choose::{self as gateway, Passing, Via};
use crate::router::routes::Routes;
use crate::send::key::{
    Distance, Doubted, Down, Excluded, Flapping, NetKey, NiKey, Pairing, PeerNiKey, Priority,
    Tried, Unheard, choose,
};
use crate::send::trace::{Freedom, Named, Recorder, Step};
use crate::{Retries, Tunables};

/// What is to be sent, as far as the path depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) target: PeerNiId,
    /// The source NID that the caller insists on.
    pub(crate) src: Option<Nid>,
    pub(crate) recovery: bool,
    /// On the reserved portal: such messages may leave through any interface (S-32).
    pub(crate) internal: bool,
    pub(crate) response: bool,
    /// Another source will do where `src` is bad.
    pub(crate) may_move: bool,
    /// Where the memory is.
    pub(crate) numa_node: Option<u32>,
    /// Pairs that failed already (DEC-8).
    pub(crate) tried: &'a [(NiId, PeerNiId)],
    /// A pair that was tried is a path all the same: where a copy was in doubt, nothing has failed.
    pub(crate) until_deadline: bool,
    /// For a response: the NID that its request came from (S-51).
    pub(crate) hint: Option<Nid>,
    /// For a forwarded message.
    pub(crate) passing: Option<Passing>,
    /// The ping of a gateway that is being checked: over this network (S-36).
    pub(crate) check_net: Option<Net>,
}

/// The tables that are read.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) nets: &'a [LocalNet],
    pub(crate) nis: &'a Interfaces,
    pub(crate) peers: &'a Peers,
    pub(crate) numa: &'a Numa,
    pub(crate) rails: &'a Rails,
    pub(crate) portals: &'a Portals,
    /// Floor of the turns of local networks.
    pub(crate) net_floor: u64,
    pub(crate) routes: &'a Routes,
    pub(crate) tunables: &'a Tunables,
    /// Flapping interfaces are so for a time.
    pub(crate) now: Instant,
}

/// The pair that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Path {
    pub(crate) ni: NiId,
    pub(crate) peer_ni: PeerNiId,
    /// The chosen NI is recorded as the one that this non-MR peer has for us (S-33).
    pub(crate) remember: bool,
    /// Rules that count messages count this one.
    pub(crate) counted: bool,
    /// `peer_ni` is a gateway's.
    pub(crate) via: Option<Via>,
}

impl Path {
    /// The pair itself, which nothing has chosen.
    pub(crate) const fn plain(ni: NiId, peer_ni: PeerNiId) -> Self {
        Self { ni, peer_ni, remember: false, counted: false, via: None }
    }
}

/// Chooses the path of one message, or says why there is none.
pub(crate) fn path(t: Tables<'_>, r: &Request<'_>, rec: &mut Recorder<'_>) -> Result<Path, Errno> {
    let target = t.peers.nis.get(r.target).ok_or(Errno::EFAULT)?;
    let peer = t.peers.peers.get(target.peer).ok_or(Errno::EFAULT)?;
    let multi_rail = peer.is_mr() && !r.recovery;
    if let Some(passing) = r.passing {
        return gateway::onward(t, r, target, peer, passing, rec);
    }
    if let Some(src) = r.src {
        // DEC-15: an answer that failed may take another pair, but only towards an MR peer.
        let may_move = r.may_move && multi_rail && t.tunables.conduct.moves_responses;
        if !may_move || (r.tried.is_empty() && !has_better_rail(t, r, peer, src)) {
            freedom(rec, Freedom::None);
            return pinned(t, r, target, src, peer.is_mr(), rec);
        }
    }
    // Of nodes behind routers only the gateway is heard.
    let is_heard =
        || peer.nis().any(|id| t.peers.nis.get(id).is_some_and(|n| n.last_alive.is_some()));
    if multi_rail {
        let best = best_pair(t, r, peer, rec);
        if rec.is_some() && local_net(t, target.nid.net()).is_some() && !is_heard() {
            freedom(rec, Freedom::Unheard);
        }
        return best;
    }
    let remember = !r.response && !peer.is_mr() && target.preferred.is_none();
    // S-31: the NID that the peer has for us, unless the message is internal or nothing is known
    // yet. Behind routers internal messages make no exception (S-34), but an interface without a
    // link.
    let is_remote = local_net(t, target.nid.net()).is_none();
    let peer_net = peer.net(target.nid.net());
    let usable = |ni: &NiId| {
        !t.tunables.conduct.ranks_dead_networks || t.nis.get(*ni).is_some_and(|ni| !ni.fatal)
    };
    let known = match peer_net.and_then(|net| known_by(t, net)) {
        Some(ni) if r.internal => Some(ni).filter(|ni| is_remote && !r.recovery && usable(ni)),
        known => known,
    };
    if rec.is_some() {
        freedom(
            rec,
            match known {
                _ if !is_heard() => Freedom::Unheard,
                Some(_) => Freedom::Known,
                None => Freedom::Source,
            },
        );
    }
    if is_remote {
        // S-34; a recovery ping is for exactly this NID.
        let dest = (r.recovery || known.is_some()).then_some(r.target);
        return Ok(Path { remember, ..gateway::routed(t, r, dest, known, rec)? });
    }
    let ni = match known {
        Some(ni) => ni,
        None => {
            let toward = &[r.target];
            best_ni(t, target.nid.net(), peer_net, toward, r, rec).ok_or(Errno::EHOSTUNREACH)?
        }
    };
    Ok(Path { ni, peer_ni: r.target, remember, counted: !r.internal, via: None })
}

/// How a pair stands for what is for `net`: smaller is better. What has no link, ends in an interface
/// that is announced as down or that its peer has no more, or leads to a gateway that does not lead on, is
/// no way.
pub(crate) fn standing(t: Tables<'_>, ni: NiId, hop: PeerNiId, net: Net) -> (bool, Doubt) {
    let lost = t.nis.get(ni).is_none_or(|ni| ni.fatal)
        || t.peers.nis.get(hop).is_none_or(|hop| hop.announced_down || hop.deleting)
        || (local_net(t, net).is_none() && !gateway::leads_to(t, hop, net));
    (lost, t.rails.of(ni, hop))
}

/// Whether a response would leave a rail that is lost or in doubt by going another way (DEC-15, DEC-31,
/// MR-snd-070).
fn has_better_rail(t: Tables<'_>, r: &Request<'_>, peer: &Peer, src: Nid) -> bool {
    let Some(own) = ni_by_nid(t, src) else { return false };
    let of = |ni, peer_ni| standing(t, ni, peer_ni, src.net());
    let current = of(own, r.target);
    current > (false, Doubt::None)
        && best_pair(t, r, peer, &mut None).is_ok_and(|p| of(p.ni, p.peer_ni) < current)
}

/// Whether all rails between `own` and `theirs` are silent: there is no use in trying.
pub(crate) fn silent(t: Tables<'_>, own: &[NiId], theirs: &[PeerNiId]) -> Doubted {
    match least(t, own, theirs) {
        Doubt::Silent => Doubted { least: Doubt::Silent, around: 0 },
        Doubt::None | Doubt::Shaky | Doubt::Unproven | Doubt::Slow => Doubted::default(),
    }
}

/// How much the best of the rails between `own` and `theirs` is doubted, and how much they are in all.
pub(crate) fn shaky(t: Tables<'_>, own: &[NiId], theirs: &[PeerNiId]) -> Doubted {
    if t.rails.is_clean() {
        return Doubted::default();
    }
    let doubts = |ni: &NiId| theirs.iter().map(|p| t.rails.of(*ni, *p) as usize).sum::<usize>();
    let around = own.iter().map(doubts).sum();
    Doubted { least: least(t, own, theirs), around }
}

/// Whether an interface of ours without a link is nearer to `theirs` than `ni` is, by its address:
/// then the network between the two has probably gone with the link.
fn is_cut_off(t: Tables<'_>, all: &[NiId], ni: NiId, theirs: Nid) -> bool {
    let nearness = |id: NiId| t.nis.get(id).and_then(|ni| shared_prefix(ni.nid, theirs));
    let is_dead = |id: NiId| t.nis.get(id).is_some_and(|ni| ni.fatal);
    t.tunables.conduct.ranks_dead_networks
        && all.iter().any(|id| is_dead(*id) && nearness(*id) > nearness(ni))
}

/// Bits that the addresses of two NIDs have in common, from the first on.
fn shared_prefix(a: Nid, b: Nid) -> Option<u32> {
    match (a.ip()?, b.ip()?) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

/// The doubt about the best rail between `own` and `theirs`; none if there is no rail.
fn least(t: Tables<'_>, own: &[NiId], theirs: &[PeerNiId]) -> Doubt {
    if t.rails.is_clean() {
        return Doubt::None;
    }
    let doubts = own.iter().flat_map(|ni| theirs.iter().map(|p| t.rails.of(*ni, *p)));
    doubts.min().unwrap_or_default()
}

fn freedom(rec: &mut Recorder<'_>, freedom: Freedom) {
    if let Some(trace) = rec {
        trace.freedom = freedom;
    }
}

/// The interface of ours that a peer that is not Multi-Rail has on `net`: by rule, or because it
/// was used before (U-24, U-41).
fn known_by(t: Tables<'_>, net: &PeerNet) -> Option<NiId> {
    let nis = || net.nis.iter().filter_map(|id| t.peers.nis.get(*id));
    let by_rule = nis().filter_map(|n| n.mapping.as_ref()).flat_map(|m| &m.preferred);
    let by_use = nis().find_map(|n| n.preferred);
    by_rule
        .map(|p| p.nid)
        .filter(|nid| nid.net() == net.net)
        .find_map(|nid| ni_by_nid(t, nid))
        .or_else(|| by_use.and_then(|nid| ni_by_nid(t, nid)))
}

/// The source is given: exactly that interface, exactly that NID (S-20 … S-23).
fn pinned(
    t: Tables<'_>,
    r: &Request<'_>,
    target: &PeerNi,
    src: Nid,
    is_mr: bool,
    rec: &mut Recorder<'_>,
) -> Result<Path, Errno> {
    let ni = ni_by_nid(t, src).ok_or(Errno::EINVAL)?;
    let remember = !is_mr && !r.response && target.preferred.is_none();
    if src.net() != target.nid.net() {
        // S-23
        let path = gateway::routed(t, r, Some(r.target), Some(ni), rec)?;
        return Ok(Path { remember, counted: false, ..path });
    }
    Ok(Path { ni, peer_ni: r.target, remember, counted: false, via: None })
}

/// Any interface of both sides: network, then ours, then theirs (S-35 … S-47).
pub(crate) fn best_pair(
    t: Tables<'_>,
    r: &Request<'_>,
    peer: &Peer,
    rec: &mut Recorder<'_>,
) -> Result<Path, Errno> {
    if let Some((ni, peer_ni)) = sole_pair(t, peer, rec) {
        return Ok(Path { ni, peer_ni, remember: false, counted: !r.internal, via: None });
    }
    let Some(peer_net) = best_net(t, r, peer, rec) else {
        // S-37
        return gateway::routed(t, r, None, None, rec);
    };
    let (net, toward) = (peer_net.net, &peer_net.nis);
    let ni = best_ni(t, net, Some(peer_net), toward, r, rec).ok_or(Errno::EHOSTUNREACH)?;
    let peer_ni = best_peer_ni(t, r, ni, peer_net, rec).ok_or(Errno::EFAULT)?;
    Ok(Path { ni, peer_ni, remember: false, counted: !r.internal, via: None })
}

/// The only candidate, if no reasons are recorded: nothing is to be compared.
#[inline]
fn sole<'a, T>(t: Tables<'_>, rec: &Recorder<'_>, candidates: &'a [T]) -> Option<&'a T> {
    match candidates {
        // DEC-14 may rule out even the only one.
        [only] if rec.is_none() && t.tunables.exclude_at_zero == 0 => Some(only),
        _ => None,
    }
}

/// The only pair, if there is one alone.
fn sole_pair(t: Tables<'_>, peer: &Peer, rec: &Recorder<'_>) -> Option<(NiId, PeerNiId)> {
    let theirs = sole(t, rec, &peer.nets)?;
    let ours = local_net(t, theirs.net)?;
    let (ni, peer_ni) = (*sole(t, rec, &ours.nis)?, *sole(t, rec, &theirs.nis)?);
    (t.nis.contains_key(ni) && t.peers.nis.contains_key(peer_ni)).then_some((ni, peer_ni))
}

/// The best network of `peer` that is local too (S-35).
fn best_net<'a>(
    t: Tables<'a>,
    r: &Request<'_>,
    peer: &'a Peer,
    rec: &mut Recorder<'_>,
) -> Option<&'a PeerNet> {
    if let Some(only) = sole(t, rec, &peer.nets) {
        return local_net(t, only.net).map(|_| only);
    }
    let common = peer
        .nets
        .iter()
        .filter_map(|pn| local_net(t, pn.net).map(|ln| (pn, ln, local_health(t, ln))))
        .filter(|(pn, _, health)| (pn.health > 0 && *health > 0) || !excludes_zero(t, r))
        .filter(|(pn, ln, _)| !once_each(t, r) || !is_exhausted(t, r, pn, ln))
        .filter(|(pn, ..)| r.check_net.is_none_or(|n| n == pn.net || !checks_over(t, peer, n)));
    let best_peer = common.clone().map(|(pn, ..)| pn.health).max().unwrap_or(0);
    let best_local = common.clone().map(|(.., health)| health).max().unwrap_or(0);
    let keyed = common.map(|(pn, ln, health)| {
        let first = t.tunables.udsp_first != 0;
        let key = NetKey {
            dead: Down(t.tunables.conduct.ranks_dead_networks && is_dead(t, ln)),
            silent: silent(t, &ln.nis, &pn.nis),
            first_peer_priority: priority(pn.grade.priority, first),
            first_local_priority: priority(ln.grade.priority, first),
            peer_health: Reverse(within_range(t, pn.health, best_peer)),
            peer_priority: priority(pn.grade.priority, !first),
            local_health: Reverse(within_range(t, health, best_local)),
            flapping: net_flaps(t, ln, pn),
            local_priority: priority(ln.grade.priority, !first),
            tried: Tried(avoids_tried(t) && is_exhausted(t, r, pn, ln)),
            shaky: Doubted { around: 0, ..shaky(t, &ln.nis, &pn.nis) },
            peer_turn: pn.turn.standing(pn.grade.messages, peer.net_floor),
            local_turn: ln.turn.standing(ln.grade.messages, t.net_floor),
            peer_seq: pn.seq,
            local_seq: ln.seq,
        };
        (pn, key)
    });
    choose(rec, Step::Network, keyed, |pn| Named::Net(pn.net))
}

/// Whether a check of `peer` can go over `net` (S-36).
fn checks_over(t: Tables<'_>, peer: &Peer, net: Net) -> bool {
    peer.net(net).is_some() && local_net(t, net).is_some()
}

/// Health of a local network: that of its best interface with a link (S-35).
fn local_health(t: Tables<'_>, net: &LocalNet) -> u32 {
    let nis = net.nis.iter().filter_map(|id| t.nis.get(*id));
    nis.filter(|ni| !ni.fatal).map(|ni| ni.port.health).max().unwrap_or(0)
}

/// Whether no interface on the network has a link.
fn is_dead(t: Tables<'_>, net: &LocalNet) -> bool {
    net.nis.iter().filter_map(|id| t.nis.get(*id)).all(|ni| ni.fatal)
}

/// Whether the message has been tried on all pairs of a network.
fn is_exhausted(t: Tables<'_>, r: &Request<'_>, peer_net: &PeerNet, net: &LocalNet) -> bool {
    let on_net =
        |(ni, _): &&(NiId, PeerNiId)| t.nis.get(*ni).is_some_and(|n| n.nid.net() == net.net);
    let tried = r.tried.iter().filter(on_net).count();
    tried > 0 && tried >= net.nis.len() * peer_net.nis.len()
}

/// The best interface of ours on `net` (S-41), towards the peer's interfaces there if it has any, of
/// which `toward` come into question.
pub(crate) fn best_ni(
    t: Tables<'_>,
    net: Net,
    peer_net: Option<&PeerNet>,
    toward: &[PeerNiId],
    r: &Request<'_>,
    rec: &mut Recorder<'_>,
) -> Option<NiId> {
    let net = local_net(t, net)?;
    if let Some(only) = sole(t, rec, &net.nis) {
        return t.nis.contains_key(*only).then_some(*only);
    }
    let best = local_health(t, net);
    let candidates = net
        .nis
        .iter()
        .copied()
        .filter_map(|id| t.nis.get(id).map(|ni| (id, ni)))
        .filter(|(_, ni)| (ni.port.health > 0 && !ni.fatal) || !excludes_zero(t, r))
        .filter(|(id, _)| {
            let tried = |p: &PeerNiId| r.tried.contains(&(*id, *p));
            !once_each(t, r) || peer_net.is_none_or(|net| !net.nis.iter().all(tried))
        });
    let nearest = candidates.clone().filter_map(|(_, ni)| distance(t, r, ni)).min();
    let keyed = candidates.map(|(id, ni)| {
        let first = t.tunables.udsp_first != 0;
        let (excluded, path_turn) = pairing(t, ni.nid, peer_net);
        let tried = r.tried.iter().filter(|_| avoids_tried(t)).filter(|&&(x, _)| x == id);
        let key = NiKey {
            fatal: Down(ni.fatal),
            silent: silent(t, &[id], toward),
            first_priority: priority(ni.port.grade.priority, first),
            health: Reverse(within_range(t, ni.port.health, best)),
            flapping: is_flapping(t, &ni.port.flaps),
            tried: tried.count(),
            priority: priority(ni.port.grade.priority, !first),
            excluded: Excluded(excluded),
            shaky: shaky(t, &[id], toward),
            turn: ni.port.turn.standing(ni.port.grade.messages, net.floor),
            path_turn,
            distance: distance(t, r, ni).or(nearest).unwrap_or(Distance(0)),
            credits: Reverse(ni.port.credits.free),
            seq: ni.port.seq,
        };
        (id, key)
    });
    let name = |id| Named::Nid(t.nis.get(id).map_or(Nid::ANY, |ni| ni.nid));
    choose(rec, Step::Interface, keyed, name)
}

/// S-41.5: all distances within numa_range are the same. `None` if it is not known: then the interface
/// counts as near as the nearest candidate.
fn distance(t: Tables<'_>, r: &Request<'_>, ni: &Ni) -> Option<Distance> {
    let range = u32::try_from(t.tunables.numa_range).unwrap_or(u32::MAX);
    t.numa.distance(r.numa_node, ni.numa_node).map(|d| Distance(d.max(range)))
}

/// What pair rules say of a local interface: whether they map all the best interfaces of the peer to
/// others, and the turn of its best pathway. The kernel asks neither (U-41).
fn pairing(t: Tables<'_>, own: Nid, peer_net: Option<&PeerNet>) -> (bool, Standing) {
    let policy = &t.peers.policy;
    let Some(net) = peer_net.filter(|_| policy.pairs() && t.tunables.conduct.ranks_pair_rules)
    else {
        return (false, Standing::NONE);
    };
    let best = best_peer_health(t, net);
    let (mut excluded, mut turn) = (true, Standing::NONE);
    for n in net.nis.iter().filter_map(|id| t.peers.nis.get(*id)) {
        if within_range(t, n.port.health, best) == best {
            excluded &= pairing_of(t, own, n) == Pairing::Elsewhere;
            turn = turn.min(path_turn(n, own, net));
        }
    }
    (excluded, turn)
}

fn pairing_of(t: Tables<'_>, own: Nid, n: &PeerNi) -> Pairing {
    match n.mapping.as_ref().filter(|m| !m.preferred.is_empty()) {
        None => Pairing::Free,
        Some(map) if map.path(own).is_some() => Pairing::Mapped,
        // S-43.3 has two values.
        Some(_) if !t.tunables.conduct.ranks_pair_rules => Pairing::Free,
        Some(_) => Pairing::Elsewhere,
    }
}

fn path_turn(n: &PeerNi, own: Nid, net: &PeerNet) -> Standing {
    let path = n.mapping.as_ref().and_then(|m| m.path(own));
    path.map_or(Standing::NONE, |p| p.turn.standing(p.messages, net.path_floor))
}

fn best_peer_health(t: Tables<'_>, net: &PeerNet) -> u32 {
    net.nis.iter().filter_map(|id| t.peers.nis.get(*id)).map(|n| n.port.health).max().unwrap_or(0)
}

/// The best interface of the peer on `net`, for messages that leave from `ni` (S-43).
fn best_peer_ni(
    t: Tables<'_>,
    r: &Request<'_>,
    ni: NiId,
    net: &PeerNet,
    rec: &mut Recorder<'_>,
) -> Option<PeerNiId> {
    if let Some(only) = sole(t, rec, &net.nis) {
        return t.peers.nis.contains_key(*only).then_some(*only);
    }
    let best = best_peer_health(t, net);
    let own = t.nis.get(ni).map_or(Nid::ANY, |ni| ni.nid);
    let first = t.tunables.udsp_first != 0;
    // A connection is there, where another pair may have to make one first.
    let prefers_heard = r.internal && t.tunables.conduct.prefers_heard;
    let all = local_net(t, net.net).map_or(&[][..], |net| &net.nis);
    let keyed = net
        .nis
        .iter()
        .copied()
        .filter_map(|id| t.peers.nis.get(id).map(|n| (id, n)))
        .filter(|(_, n)| n.port.health > 0 || !excludes_zero(t, r))
        .filter(|(id, _)| !once_each(t, r) || !r.tried.contains(&(ni, *id)))
        .map(|(id, n)| {
            let key = PeerNiKey {
                silent: silent(t, &[ni], &[id]),
                first_priority: priority(n.port.grade.priority, first),
                health: Reverse(within_range(t, n.port.health, best)),
                flapping: is_flapping(t, &n.port.flaps),
                tried: Tried(avoids_tried(t) && r.tried.contains(&(ni, id))),
                priority: priority(n.port.grade.priority, !first),
                pairing: pairing_of(t, own, n),
                shaky: Doubted {
                    around: shaky(t, all, &[id]).around
                        + usize::from(is_cut_off(t, all, ni, n.nid)),
                    ..shaky(t, &[ni], &[id])
                },
                unheard: Unheard(prefers_heard && n.heard_by != Some(ni)),
                turn: n.port.turn.standing(n.port.grade.messages, net.floor),
                path_turn: path_turn(n, own, net),
                queued_bytes: t.tunables.conduct.counts_queued_bytes.then_some(n.queued_bytes),
                credits: Reverse(n.port.credits.free),
                seq: n.port.seq,
            };
            (id, key)
        });
    let name = |id| Named::Nid(t.peers.nis.get(id).map_or(Nid::ANY, |n| n.nid));
    choose(rec, Step::PeerInterface, keyed, name)
}

/// A priority in the place where it counts: before health, or after it (`udsp_first`).
fn priority(given: u32, counts: bool) -> Priority {
    Priority(if counts { given } else { NO_PRIORITY })
}

/// Healths that differ from the best by no more than `health_range` count as the best (DEC-12).
pub(crate) fn within_range(t: Tables<'_>, health: u32, best: u32) -> u32 {
    let range = t.tunables.health_range as u32;
    if health.saturating_add(range) >= best { best } else { health }
}

/// Whether a network has nothing but interfaces that flap, on one side or the other.
fn net_flaps(t: Tables<'_>, ours: &LocalNet, theirs: &PeerNet) -> Flapping {
    if t.tunables.flap_hold_down == 0 {
        return Flapping(false);
    }
    let ours = ours.nis.iter().filter_map(|id| t.nis.get(*id)).filter(|ni| !ni.fatal);
    let theirs = theirs.nis.iter().filter_map(|id| t.peers.nis.get(*id));
    let flaps = |flaps: &Flaps| is_flapping(t, flaps).0;
    Flapping(all(ours.map(|ni| flaps(&ni.port.flaps))) || all(theirs.map(|n| flaps(&n.port.flaps))))
}

/// Whether there are any, and it is true of all.
fn all(mut these: impl Iterator<Item = bool>) -> bool {
    these.next().is_some_and(|first| first && these.all(|other| other))
}

/// HL-lnt-115.
fn is_flapping(t: Tables<'_>, flaps: &Flaps) -> Flapping {
    Flapping(flaps.is_flapping(t.now, t.tunables.flap_hold_down))
}

/// DEC-11: whether a message goes by no path twice, whatever the health of that.
fn once_each(t: Tables<'_>, r: &Request<'_>) -> bool {
    t.tunables.retries() == Retries::Paths && !r.until_deadline
}

/// The kernel has no memory of what was tried but health (S-71).
pub(crate) fn avoids_tried(t: Tables<'_>) -> bool {
    t.tunables.conduct.avoids_tried_paths
}

/// DEC-14. The node's own messages go all the same: they bring health back.
fn excludes_zero(t: Tables<'_>, r: &Request<'_>) -> bool {
    t.tunables.exclude_at_zero != 0 && !r.internal && !r.recovery
}

pub(crate) fn local_net(t: Tables<'_>, net: Net) -> Option<&LocalNet> {
    t.nets.iter().find(|n| n.net == net)
}

fn ni_by_nid(t: Tables<'_>, nid: Nid) -> Option<NiId> {
    let net = t.nets.iter().find(|n| n.net == nid.net())?;
    net.nis.iter().copied().find(|id| t.nis.get(*id).is_some_and(|ni| ni.nid == nid))
}
