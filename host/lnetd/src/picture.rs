//! One look at the whole daemon: copies of what the node knows, taken page by page so that a node of
//! ten thousand peers is not held up. What is made of it, numbers or a page, is in `http/`.

use lnet::{
    DropReason, NetView, NodeStats, PeerView, Profile, RouteView, RoutingView, Row, Tunables,
};
use lnet_admin::{FaultKind, FaultSnapshot, RailSnapshot};
use lnet_rt::NodeHandle;
use lnet_types::{Instant, Nid};

use crate::control::Control;
use crate::{control::fault, views};

/// Peers that one question to the node's thread is about.
const PEERS_PER_CALL: usize = 64;
/// The same where only health is asked for, which costs far less.
const HEALTHS_PER_CALL: usize = 1024;

/// Whose interface: our own NIDs are peers too, where we talk to ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Local,
    Peer,
}

/// What there is to see.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// The defaults that rule.
    pub(crate) profile: Profile,
    /// Every tunable of the table with its value.
    pub(crate) tunables: Vec<(&'static Row, i64)>,
    /// Time limit of one transmission, seconds.
    pub(crate) lnd_timeout_s: f64,
    /// Clients of the control socket, and requests of theirs, that had not the right.
    pub(crate) control_refused: u64,
    /// The node, if LNet is configured.
    pub(crate) node: Option<NodePicture>,
}

/// What a node shows.
#[derive(Clone, Debug)]
pub(crate) struct NodePicture {
    /// When, on the node's clock.
    pub(crate) at: Instant,
    pub(crate) nets: Vec<NetView>,
    /// The oldest peers, as many as were asked for.
    pub(crate) peers: Vec<PeerView>,
    /// How many peers and peer interfaces there are.
    pub(crate) peer_count: (usize, usize),
    pub(crate) routes: Vec<RouteView>,
    pub(crate) routing: RoutingView,
    pub(crate) stats: NodeStats,
    pub(crate) drops: Vec<(DropReason, u64)>,
    /// What peers have said and was not taken.
    pub(crate) disbelieved: Vec<(lnet::Refusal, u64)>,
    /// Entries of the node that were missing and must exist.
    pub(crate) invariant_violations: u64,
    /// Counters of the TCP driver, if it is there.
    pub(crate) sock: Option<lnd_sock::Stats>,
    /// Whom it turned away lately, longest ago first.
    pub(crate) turned_away: Vec<lnd_sock::Refused>,
    /// When and why messages were sent again, oldest first.
    pub(crate) resends: Vec<(Instant, String)>,
    /// Drop rules, then delay rules.
    pub(crate) faults: Vec<FaultSnapshot>,
    /// Rails that are not above doubt.
    pub(crate) rails: Vec<RailSnapshot>,
    /// Interfaces in recovery: ours, then peers'.
    pub(crate) recovering: (Vec<Nid>, Vec<Nid>),
}

/// Whose interface, which, and its health.
pub(crate) type Health = (Side, Nid, u32);

impl Control {
    /// Looks at everything, but at no more peers than bring the peer interfaces to
    /// `peer_nis_max`.
    pub(crate) fn picture(&self, peer_nis_max: usize) -> Picture {
        let (tunables, handle) = self.tunables_and_node();
        Picture {
            profile: tunables.profile,
            lnd_timeout_s: tunables.lnd_timeout().as_secs_f64(),
            tunables: Tunables::TABLE
                .iter()
                .filter_map(|row| Some((row, tunables.value(row.name)?)))
                .collect(),
            control_refused: self.refused(),
            // A node that stops meanwhile is one that is not there.
            node: handle.and_then(|handle| node_picture(&handle, peer_nis_max)),
        }
    }

    /// Health of every interface, ours first, and the counters of the node; `None` without a node.
    /// Stops after `limit` of them.
    pub(crate) fn healths(&self, limit: usize) -> Option<(Vec<Health>, NodeStats)> {
        let (_, handle) = self.tunables_and_node();
        let handle = handle?;
        let (mut all, stats) = handle
            .call(|stack, _| {
                let ours = stack.node().ni_healths().map(|(nid, h)| (Side::Local, nid, h));
                (ours.collect::<Vec<_>>(), stack.node().stats())
            })
            .blocking()
            .ok()?;
        let mut after = None;
        while all.len() < limit {
            let (page, next) = handle
                .call(move |stack, _| stack.node().peer_ni_healths(after, HEALTHS_PER_CALL))
                .blocking()
                .ok()?;
            all.extend(page.into_iter().map(|(nid, health)| (Side::Peer, nid, health)));
            if next.is_none() {
                break;
            }
            after = next;
        }
        all.truncate(limit);
        Some((all, stats))
    }
}

fn node_picture(handle: &NodeHandle, peer_nis_max: usize) -> Option<NodePicture> {
    let mut picture = handle
        .call(|stack, now| {
            let sock = stack.tcp().map(lnd_sock::SockDriver::stats);
            let turned_away = stack.tcp().map(lnd_sock::SockDriver::refused).unwrap_or_default();
            let node = stack.node();
            let kinds = [FaultKind::Drop, FaultKind::Delay];
            NodePicture {
                at: now,
                nets: node.net_views(),
                peers: Vec::new(),
                peer_count: node.peer_count(),
                routes: node.route_views(),
                routing: node.routing_view(),
                stats: node.stats(),
                drops: node.drops().collect(),
                disbelieved: node.refusals().collect(),
                invariant_violations: node.invariant_violations(),
                sock,
                turned_away,
                resends: node.resends().map(|e| (e.at, e.to_string())).collect(),
                faults: kinds.into_iter().flat_map(|kind| fault::show(node, kind)).collect(),
                rails: views::rails(&node.suspicion()),
                recovering: node.recovery_queues(),
            }
        })
        .blocking()
        .ok()?;
    let (mut after, mut nis) = (None, 0);
    while nis < peer_nis_max {
        let page = handle
            .call(move |stack, _| stack.node().peer_views(after, PEERS_PER_CALL))
            .blocking()
            .ok()?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        for (_, peer) in page {
            nis += peer.nis.len();
            if nis > peer_nis_max && !picture.peers.is_empty() {
                break;
            }
            picture.peers.push(peer);
        }
    }
    Some(picture)
}
