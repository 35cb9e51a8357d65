//! One look at the whole daemon: the snapshots of the control protocol, taken page by page so that a
//! node of ten thousand peers is not held up. What is made of it, numbers or a page, is in `http/`.

use std::collections::BTreeSet;

use lnet::{DropReason, NodeStats};
use lnet_admin::{
    EvictionSnapshot, ExportSnapshot, FaultKind, FaultSnapshot, GlobalSnapshot, ImportSnapshot,
    NetSnapshot, PeerSnapshot, RailSnapshot, RefusedSnapshot, RouteSnapshot, RoutingSnapshot,
    ServiceSnapshot, StatsSnapshot, TargetSnapshot,
};
use lnet_rt::NodeHandle;
use lnet_types::{Instant, Nid};
use lustre_rt::{ClientStats, Eviction, ImportState, NamespaceRow, Ptlrpc, ServerStats};

use crate::control::Control;
use crate::nets::Settings;
use crate::{control::fault, rpc_views, views};

/// Peers that one question to the node's thread is about.
const PEERS_PER_CALL: usize = 64;
/// The same where only health is asked for, which costs far less.
const HEALTHS_PER_CALL: usize = 1024;

/// Imports, and exports, on the status page.
const RPC_ROWS: usize = 64;

/// Whose interface: our own NIDs are peers too, where we talk to ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Local,
    Peer,
}

/// What there is to see.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// The tunables and the profile.
    pub(crate) global: GlobalSnapshot,
    /// Clients of the control socket, and requests of theirs, that had not the right.
    pub(crate) control_refused: u64,
    /// The node, if LNet is configured.
    pub(crate) node: Option<NodePicture>,
    /// The request layer, if it is in use.
    pub(crate) rpc: Option<RpcPicture>,
}

/// What the request layer shows.
#[derive(Clone, Debug)]
pub(crate) struct RpcPicture {
    pub(crate) client: ClientStats,
    pub(crate) server: ServerStats,
    pub(crate) targets: Vec<TargetSnapshot>,
    /// How many imports are in which state.
    pub(crate) import_states: Vec<(&'static str, usize)>,
    /// Some of them, those that are not in use first.
    pub(crate) imports: Vec<ImportSnapshot>,
    pub(crate) export_count: usize,
    /// Some exports, those with most requests in work first.
    pub(crate) exports: Vec<ExportSnapshot>,
    /// The last evictions, oldest first.
    pub(crate) evictions: Vec<EvictionSnapshot>,
    /// Rules that lose messages.
    pub(crate) rules: usize,
    pub(crate) services: Vec<ServiceSnapshot>,
    pub(crate) namespaces: Vec<NamespaceRow>,
}

/// What a node shows.
#[derive(Clone, Debug)]
pub(crate) struct NodePicture {
    /// When, on the node's clock.
    pub(crate) at: Instant,
    pub(crate) nets: Vec<NetSnapshot>,
    /// The oldest peers, as many as were asked for.
    pub(crate) peers: Vec<PeerSnapshot>,
    /// How many peers and peer interfaces there are.
    pub(crate) peer_count: (usize, usize),
    pub(crate) routes: Vec<RouteSnapshot>,
    pub(crate) routing: RoutingSnapshot,
    pub(crate) stats: StatsSnapshot,
    pub(crate) drops: Vec<(DropReason, u64)>,
    /// Rejected announcements of peers.
    pub(crate) disbelieved: Vec<(lnet::Refusal, u64)>,
    /// Entries of the node that were missing and must exist.
    pub(crate) invariant_violations: u64,
    /// Counters of the TCP driver, if it is there.
    pub(crate) sock: Option<lnd_sock::Stats>,
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
        // A node that stops meanwhile is one that is not there.
        let node = self.handle_and_settings().ok();
        Picture {
            global: self.global(),
            control_refused: self.refused(),
            node: node.and_then(|(handle, settings)| node_picture(&handle, settings, peer_nis_max)),
            rpc: self.rpc_picture(),
        }
    }

    fn rpc_picture(&self) -> Option<RpcPicture> {
        let targets = self.target_snapshots().ok()?;
        let looked = self.look(None, |rpc| {
            let (evictions, namespaces) = (rpc.evictions()?, rpc.namespaces()?);
            rpc.inspect(move |ptlrpc, now| {
                Some(RpcPicture { namespaces, ..seen(ptlrpc, now, targets, &evictions) })
            })
        });
        // A node that stops meanwhile has no request layer.
        looked.ok().flatten()
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

fn seen(
    ptlrpc: &Ptlrpc,
    now: Instant,
    targets: Vec<TargetSnapshot>,
    evictions: &[Eviction],
) -> RpcPicture {
    let states = ptlrpc.import_states();
    let count = |state: &ImportState| states.get(state).copied().unwrap_or_default();
    let imports = ptlrpc.worst_imports(RPC_ROWS);
    let exports = ptlrpc.busiest_exports(RPC_ROWS);
    RpcPicture {
        client: ptlrpc.client_stats(),
        server: ptlrpc.server_stats(),
        targets,
        import_states: ImportState::ALL.iter().map(|s| (s.name(), count(s))).collect(),
        imports: imports.iter().map(|view| rpc_views::import(view, now)).collect(),
        export_count: ptlrpc.export_count(),
        exports: exports.iter().map(|view| rpc_views::export(view, now)).collect(),
        evictions: evictions.iter().map(|e| rpc_views::eviction(e, now)).collect(),
        rules: ptlrpc.losing().len(),
        namespaces: Vec::new(),
        services: ptlrpc.service_views().iter().map(|view| rpc_views::service(view, now)).collect(),
    }
}

fn node_picture(
    handle: &NodeHandle,
    settings: Settings,
    peer_nis_max: usize,
) -> Option<NodePicture> {
    let mut picture = handle
        .call(move |stack, now| {
            let sock = stack.tcp().map(lnd_sock::SockDriver::stats);
            let nets = views::nets(stack, &settings, true, now);
            let node = stack.node();
            let kinds = [FaultKind::Drop, FaultKind::Delay];
            Some(NodePicture {
                at: now,
                nets,
                peers: Vec::new(),
                peer_count: node.peer_count(),
                routes: node.route_views().iter().map(views::route).collect(),
                routing: views::routing(&node.routing_view()),
                stats: views::stats(&node.stats()).ok()?,
                drops: node.drops().collect(),
                disbelieved: node.refusals().collect(),
                invariant_violations: node.invariant_violations(),
                sock,
                resends: node.resends().map(|e| (e.at, e.to_string())).collect(),
                faults: kinds.into_iter().flat_map(|kind| fault::show(node, kind)).collect(),
                rails: views::rails(&node.suspicion()),
                recovering: node.recovery_queues(),
            })
        })
        .blocking()
        .ok()??;
    let (mut after, mut nis) = (None, 0);
    while nis < peer_nis_max {
        let (page, now) = handle
            .call(move |stack, now| (stack.node().peer_views(after, PEERS_PER_CALL), now))
            .blocking()
            .ok()?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        for (_, peer) in page {
            nis += peer.nis.len();
            if nis > peer_nis_max && !picture.peers.is_empty() {
                break;
            }
            picture.peers.push(views::peer(&peer, true, now));
        }
    }
    Some(picture)
}

impl NodePicture {
    /// Peers that the driver turned away lately, longest ago first.
    pub(crate) fn turned_away(&self) -> Vec<&RefusedSnapshot> {
        let mut all: Vec<_> = self.nets.iter().flat_map(|net| &net.refused).collect();
        all.sort_by_key(|refused| core::cmp::Reverse(refused.ago_s));
        all
    }

    /// Ends of rails under doubt, at the peers.
    pub(crate) fn suspects(&self) -> BTreeSet<Nid> {
        self.rails.iter().map(|rail| rail.peer).collect()
    }
}
