//! The paths that a message could go by, and how much of its time an attempt on one of them has (DEC-9).

use core::time::Duration;

use lnet_types::{HealthStatus, NiId, PeerId, PeerNiId};

use crate::Retries;
use crate::health::{Charge, charge_of};
use crate::msg::{Msg, Role};
use crate::peer::Peer;
use crate::router::choose;
use crate::send::select::Tables;

impl<'a> Tables<'a> {
    /// The share that one attempt has of a message's time.
    pub(crate) fn attempt_time(&self, msg: &Msg) -> Duration {
        // HL-lnd-030: the caller's time, or the node's, shared out among the attempts.
        let whole = msg.limit.unwrap_or_else(|| self.tunables.transaction());
        let paths = match self.tunables.retries() {
            Retries::Count(_) => 1,
            Retries::Paths if msg.tx.is_some_and(|tx| tx.routed) => self.ways(msg),
            // Nearly always the peer that it is bound to already.
            Retries::Paths => match msg.tx.and_then(|tx| self.peers.nis.get(tx.peer_ni?)) {
                Some(pni) if pni.nid == msg.hdr.dst => self.pairs_with(msg, Some(pni.peer)).count(),
                Some(_) | None => self.pairs(msg).count(),
            },
        };
        self.tunables.attempt_of(whole, paths.max(1))
    }

    /// How long the driver may try this time, before the message's own deadline is considered: the limit of
    /// the interface itself, the LND timeout, or the share of its caller's own time (DEC-9). A message that
    /// tries an interface known to be down (C-8) holds a credit of the node that sent it, and may well not
    /// arrive: the limit of the interface does not lengthen what `forward_timeout` allows it.
    #[inline]
    pub(crate) fn driver_time(&self, msg: &Msg, own: Option<Duration>) -> Duration {
        let t = self.tunables;
        match t.retries() {
            Retries::Count(_) if msg.role == Role::Forward && t.forward_timeout != 0 => {
                let share = t.attempt_of(t.forward_limit(), 1);
                match own {
                    Some(own) if self.tries_dead_hop(msg) => own.min(share),
                    own => own.unwrap_or(share),
                }
            }
            Retries::Count(_) if msg.limit.is_none() => own.unwrap_or_else(|| t.lnd_timeout()),
            Retries::Count(_) | Retries::Paths => own.unwrap_or_else(|| self.attempt_time(msg)),
        }
    }

    /// Whether a message is on its way to an interface that is known to be down, and that a router tries now
    /// and then with what passes through.
    pub(crate) fn tries_dead_hop(&self, msg: &Msg) -> bool {
        let hop = msg.tx.and_then(|tx| self.peers.nis.get(tx.peer_ni?));
        hop.is_some_and(|hop| hop.knocked.is_some() && !hop.port.status_up)
    }

    /// Whether a message has no attempt left, and whether there is a limit that says so.
    pub(crate) fn is_spent(&self, msg: &Msg) -> (bool, bool) {
        match self.tunables.retries() {
            Retries::Count(1..) | Retries::Paths if msg.until_deadline => (false, true),
            Retries::Count(limit) => (msg.retries >= limit, limit != 0),
            Retries::Paths => (self.paths_left(msg) == 0, true),
        }
    }

    /// All pairs that a message could go by: one where its source, or the one interface that the
    /// peer has for us, leaves no choice.
    pub(crate) fn pairs(self, msg: &Msg) -> impl Iterator<Item = (NiId, PeerNiId)> + use<'a> {
        self.pairs_with(msg, self.peers.owner(msg.hdr.dst))
    }

    fn pairs_with(
        self,
        msg: &Msg,
        peer: Option<PeerId>,
    ) -> impl Iterator<Item = (NiId, PeerNiId)> + use<'a> {
        let peer = peer.and_then(|p| self.peers.peers.get(p));
        let free = msg.src.is_none() || (msg.may_move() && self.tunables.conduct.moves_responses);
        let nets = peer.filter(|p| free && p.is_mr()).map_or(&[][..], |p| &p.nets);
        nets.iter().flat_map(move |theirs| {
            let ours = self.nets.iter().find(|n| n.net == theirs.net).map_or(&[][..], |n| &n.nis);
            ours.iter().flat_map(|ni| theirs.nis.iter().map(|p| (*ni, *p)))
        })
    }

    /// Paths that a message has not been tried on; the one that it is on has been.
    fn paths_left(&self, msg: &Msg) -> usize {
        if msg.tx.is_some_and(|tx| tx.routed) {
            return self.ways(msg).saturating_sub(msg.retries as usize + 1);
        }
        let now = msg.rail();
        let tried = |pair: (NiId, PeerNiId)| now == Some(pair) || msg.tried.contains(&pair);
        self.pairs(msg).filter(|pair| !tried(*pair)).count()
    }

    /// Gateways that lead to where a message is for.
    fn ways(&self, msg: &Msg) -> usize {
        choose::ways_to(*self, msg.hdr.dst.net())
    }

    /// Whether another path exists on the side that failed.
    pub(crate) fn has_alternative(
        &self,
        msg: &Msg,
        peer_ni: PeerNiId,
        status: HealthStatus,
    ) -> bool {
        let local_paths = self.nis.values().filter(|ni| !ni.is_loopback()).count();
        let peer = self.peers.nis.get(peer_ni).and_then(|n| self.peers.peers.get(n.peer));
        let remote_paths = peer.map_or(0, Peer::ni_count);
        // Others know us by one interface.
        let is_mr = peer.is_some_and(Peer::is_mr);
        // RS-002: another gateway is another path too.
        let ways = match msg.tx {
            Some(tx) if tx.routed && self.tunables.conduct.counts_every_path => self.ways(msg),
            Some(_) | None => 0,
        };
        let (local_paths, remote_paths) = (local_paths.max(ways), remote_paths.max(ways));
        let paths = match charge_of(status) {
            Charge::Local => local_paths,
            // Which side is to blame for a rail is a guess: the same interface may be reached from
            // another of ours (H-20: not by kernel nodes).
            Charge::Remote if !self.tunables.conduct.counts_every_path || !is_mr => remote_paths,
            Charge::Remote | Charge::Both => local_paths.max(remote_paths),
            Charge::None => 0,
        };
        paths >= 2
    }
}
