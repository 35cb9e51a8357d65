//! Path selection: which interface of ours, which interface of the peer. Pure: it reads the tables
//! and says what it would choose, and why not otherwise; the caller acts (behaviour.md 3.2 … 3.5).
//!
//! Each choice is one ordered key. The smallest key wins; on a complete tie the earlier candidate
//! (S-40). The next criteria (UDSP, NUMA) are further fields of these keys, nothing else.

use core::cmp::Reverse;

use lnet_types::{Errno, Net, NiId, Nid, PeerNiId};
use slotmap::SlotMap;

use crate::Tunables;
use crate::local::{LocalNet, Ni};
use crate::peer::{PeerNet, PeerNi, Peers};

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
    /// Pairs that failed already (DEC-8).
    pub(crate) tried: &'a [(NiId, PeerNiId)],
}

/// The tables that are read.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) nets: &'a [LocalNet],
    pub(crate) nis: &'a SlotMap<NiId, Ni>,
    pub(crate) peers: &'a Peers,
    pub(crate) tunables: &'a Tunables,
}

/// The pair that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) ni: NiId,
    pub(crate) peer_ni: PeerNiId,
    /// The chosen NI is to be remembered as the one that this non-MR peer knows (S-33).
    pub(crate) remember: bool,
}

/// The order of local interfaces on one network (S-41). Smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NiKey {
    fatal: bool,
    health: Reverse<u32>,
    tried: bool,
    credits: Reverse<i32>,
    seq: u64,
}

/// The order of a peer's interfaces on one network (S-43). Smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PeerNiKey {
    health: Reverse<u32>,
    tried: bool,
    credits: Reverse<i32>,
    seq: u64,
}

/// The order of networks that both sides have (S-35). Smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NetKey {
    peer_health: Reverse<u32>,
    local_health: Reverse<u32>,
    peer_seq: u64,
    local_seq: u64,
}

/// Chooses the path of one message, or says why there is none.
pub(crate) fn path(t: Tables<'_>, r: &Request<'_>) -> Result<Path, Errno> {
    let target = t.peers.nis.get(r.target).ok_or(Errno::EFAULT)?;
    let peer = t.peers.peers.get(target.peer).ok_or(Errno::EFAULT)?;
    let multi_rail = peer.is_mr() && !r.recovery;
    if let Some(src) = r.src {
        // DEC-15: a response that failed may take another pair, but only towards an MR peer.
        let may_move = r.response && multi_rail && !r.tried.is_empty();
        if !may_move || t.tunables.kernel_clocks() {
            return pinned(t, r, target, src, peer.is_mr());
        }
    }
    if multi_rail {
        return best_pair(t, r, &peer.nets);
    }
    let remember = !r.response && !peer.is_mr() && target.preferred.is_none();
    // S-31: what the peer knows us by, unless the message is internal or nothing is known yet.
    let known = peer
        .net(target.nid.net())
        .filter(|_| !r.internal)
        .into_iter()
        .flat_map(|n| &n.nis)
        .find_map(|id| t.peers.nis.get(*id).and_then(|n| n.preferred));
    let ni = match known.and_then(|nid| ni_by_nid(t, nid)) {
        Some(ni) => ni,
        None => best_ni(t, target.nid.net(), r).ok_or(Errno::EHOSTUNREACH)?,
    };
    Ok(Path { ni, peer_ni: r.target, remember })
}

/// The source is given: exactly that interface, exactly that NID (S-20 … S-23).
fn pinned(
    t: Tables<'_>,
    r: &Request<'_>,
    target: &PeerNi,
    src: Nid,
    is_mr: bool,
) -> Result<Path, Errno> {
    let ni = ni_by_nid(t, src).ok_or(Errno::EINVAL)?;
    if src.net() != target.nid.net() {
        return Err(Errno::EHOSTUNREACH);
    }
    let remember = !is_mr && !r.response && target.preferred.is_none();
    Ok(Path { ni, peer_ni: r.target, remember })
}

/// Any interface of both sides: network, then ours, then theirs (S-35 … S-47).
fn best_pair(t: Tables<'_>, r: &Request<'_>, nets: &[PeerNet]) -> Result<Path, Errno> {
    let common = nets.iter().filter_map(|pn| local_net(t, pn.net).map(|ln| (pn, ln)));
    let (peer_net, _) =
        common.min_by_key(|(pn, ln)| net_key(t, pn, ln)).ok_or(Errno::EHOSTUNREACH)?;
    let ni = best_ni(t, peer_net.net, r).ok_or(Errno::EHOSTUNREACH)?;
    let peer_ni = peer_net
        .nis
        .iter()
        .copied()
        .filter_map(|id| t.peers.nis.get(id).map(|n| (id, n)))
        .min_by_key(|&(id, n)| peer_ni_key(t, r, ni, id, n, best_peer_health(t, peer_net)))
        .map(|(id, _)| id)
        .ok_or(Errno::EFAULT)?;
    Ok(Path { ni, peer_ni, remember: false })
}

fn net_key(t: Tables<'_>, peer_net: &PeerNet, local: &LocalNet) -> NetKey {
    let healths = local.nis.iter().filter_map(|id| t.nis.get(*id)).filter(|ni| !ni.fatal);
    NetKey {
        peer_health: Reverse(peer_net.health),
        local_health: Reverse(healths.map(|ni| ni.health).max().unwrap_or(0)),
        peer_seq: peer_net.seq,
        local_seq: local.seq,
    }
}

/// The best interface of ours on `net` (S-41).
fn best_ni(t: Tables<'_>, net: Net, r: &Request<'_>) -> Option<NiId> {
    let nis = &local_net(t, net)?.nis;
    let healths = nis.iter().filter_map(|id| t.nis.get(*id)).filter(|ni| !ni.fatal);
    let best = healths.map(|ni| ni.health).max().unwrap_or(0);
    nis.iter()
        .copied()
        .filter_map(|id| t.nis.get(id).map(|ni| (id, ni)))
        .min_by_key(|&(id, ni)| NiKey {
            fatal: ni.fatal,
            health: Reverse(within_range(t, ni.health, best)),
            tried: avoids_tried(t) && r.tried.iter().any(|&(x, _)| x == id),
            credits: Reverse(ni.credits),
            seq: ni.seq,
        })
        .map(|(id, _)| id)
}

fn best_peer_health(t: Tables<'_>, net: &PeerNet) -> u32 {
    net.nis.iter().filter_map(|id| t.peers.nis.get(*id)).map(|n| n.health).max().unwrap_or(0)
}

fn peer_ni_key(
    t: Tables<'_>,
    r: &Request<'_>,
    ni: NiId,
    id: PeerNiId,
    n: &PeerNi,
    best: u32,
) -> PeerNiKey {
    PeerNiKey {
        health: Reverse(within_range(t, n.health, best)),
        tried: avoids_tried(t) && r.tried.contains(&(ni, id)),
        credits: Reverse(n.credits),
        seq: n.seq,
    }
}

/// Healths that differ from the best by no more than `health_range` count as the best (DEC-12).
fn within_range(t: Tables<'_>, health: u32, best: u32) -> u32 {
    let range = t.tunables.health_range as u32;
    if health.saturating_add(range) >= best { best } else { health }
}

/// The kernel has no memory of what was tried but health (S-71).
fn avoids_tried(t: Tables<'_>) -> bool {
    !t.tunables.kernel_clocks()
}

pub(crate) fn local_net(t: Tables<'_>, net: Net) -> Option<&LocalNet> {
    t.nets.iter().find(|n| n.net == net)
}

fn ni_by_nid(t: Tables<'_>, nid: Nid) -> Option<NiId> {
    let net = t.nets.iter().find(|n| n.net == nid.net())?;
    net.nis.iter().copied().find(|id| t.nis.get(*id).is_some_and(|ni| ni.nid == nid))
}
