//! `peer`: peers and their interfaces.

use lnet::Node;
use lnet_admin::{AdminError, NiTarget, PEER_NIS_PER_PAGE, PeerPage, Reply};
use lnet_config::{PeerAdd, PeerDel};
use lnet_types::{Errno, Instant, Nid};

use super::{Control, nid_of};
use crate::views;

impl Control {
    pub(super) fn peers_add(&self, adds: Vec<PeerAdd>) -> Result<Reply, AdminError> {
        self.on_node(Errno::ESHUTDOWN, move |stack, now| {
            adds.iter().try_for_each(|one| add(stack.node_mut(), now, one)).map(|()| Reply::Done)
        })
    }

    pub(super) fn peer_del(&self, del: &PeerDel) -> Result<Reply, AdminError> {
        let one = del.clone();
        self.on_node(Errno::ESHUTDOWN, move |stack, now| {
            self::del(stack.node_mut(), now, &one).map(|()| Reply::Done)
        })
    }

    pub(super) fn peer_show(
        &self,
        nid: Option<Nid>,
        detail: bool,
        from: Option<u64>,
    ) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let node = stack.node();
            if let Some(nid) = nid {
                let view = node.peer_view_of(nid).ok_or_else(|| {
                    AdminError::new(Errno::ENOENT, "cannot get peer information")
                        .because(format_args!("{nid}: must be a NID of a peer"))
                })?;
                return Ok(Reply::Peers(PeerPage {
                    peers: vec![views::peer(&view, detail, now)],
                    next: None,
                }));
            }
            let (mut peers, mut nis, mut after) = (Vec::new(), 0, from);
            loop {
                let Some((age, view)) = node.peer_views_and_own(after, 1).pop() else {
                    return Ok(Reply::Peers(PeerPage { peers, next: None }));
                };
                nis += view.nis.len();
                peers.push(views::peer(&view, detail, now));
                after = Some(age);
                if nis >= PEER_NIS_PER_PAGE {
                    return Ok(Reply::Peers(PeerPage { peers, next: after }));
                }
            }
        })
    }

    pub(super) fn peer_set(
        &self,
        target: NiTarget,
        health: Option<u16>,
        flags: Option<u32>,
    ) -> Result<Reply, AdminError> {
        let nid = nid_of(target);
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let node = stack.node_mut();
            if let Some(nid) = nid
                && node.peer_view_of(nid).is_none()
            {
                return Err(AdminError::new(Errno::ENOENT, "cannot set peer NI")
                    .because(format_args!("{nid}: must be a NID of a peer")));
            }
            if let Some(health) = health {
                node.set_peer_ni_health(now, nid, u32::from(health));
            }
            if let Some(flags) = flags {
                let nids: Vec<Nid> = match nid {
                    Some(nid) => vec![nid],
                    None => {
                        node.peer_views(None, usize::MAX).iter().map(|(_, v)| v.primary).collect()
                    }
                };
                for nid in nids {
                    // They have been found a moment ago.
                    let _ = node.set_peer_state(nid, flags);
                }
            }
            Ok(Reply::Done)
        })
    }

    /// Writes all that is known of a peer to the log.
    pub(super) fn peer_dump(&self, nid: Nid) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| {
            let view = stack.node().peer_view_of(nid).ok_or_else(|| {
                AdminError::errno(Errno::ENOENT).because(format_args!("no peer has the NID {nid}"))
            })?;
            tracing::info!("peer {nid}: {view:#?}");
            Ok(Reply::Done)
        })
    }

    pub(super) fn recovery_show(&self, peers: bool) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| {
            let (local, remote) = stack.node().recovery_queues();
            Ok(Reply::Nids(if peers { remote } else { local }))
        })
    }
}

/// C-peer-2.
pub(super) fn add(node: &mut Node, now: Instant, add: &PeerAdd) -> Result<(), AdminError> {
    let PeerAdd { primary, nids, multi_rail, lock_primary } = add;
    let text = match nids.is_empty() {
        true => "failed to add primary peer",
        false => "failed to add peer",
    };
    let added = node.peer_add(now, *primary, nids, *multi_rail, *lock_primary);
    added.map_err(|errno| AdminError::new(errno, text).because(not_added(errno, *primary)))
}

/// C-peer-3.
pub(super) fn del(node: &mut Node, now: Instant, del: &PeerDel) -> Result<(), AdminError> {
    let PeerDel { primary, nids, force } = del;
    let text = if nids.is_empty() { "failed to del primary peer" } else { "failed to del peer" };
    node.peer_del(now, *primary, nids, *force).map_err(|errno| {
        let owner = node.peer_view_of(*primary).map(|view| view.primary);
        AdminError::new(errno, text).because(not_deleted(errno, *primary, owner))
    })
}

/// Why a peer with the primary NID was not added (C-peer-3).
fn not_added(errno: Errno, primary: Nid) -> String {
    let why = match errno {
        Errno::EBUSY => "is the gateway of a route: must be added before the route",
        Errno::EEXIST => "a NID of it belongs to another configured peer",
        Errno::EPERM => "is configured with another value of Multi-Rail",
        Errno::ENODEV => "is a NID of a peer with another primary NID",
        Errno::EALREADY => "is a NID of a peer whose primary NID is locked",
        Errno::ENOSPC => "more NIDs than the limit max_interfaces, or more peers than peers_max",
        Errno::ENOTUNIQ => "has one NID on each network, being without Multi-Rail",
        Errno::EINVAL => "must have NIDs of other nodes: no loopback, no wildcard",
        errno => return format!("peer {primary}: {errno}"),
    };
    format!("peer {primary}: {why}")
}

/// Why nothing of a peer was deleted (C-peer-4). `owner`: the primary NID of the peer that has the NID.
fn not_deleted(errno: Errno, primary: Nid, owner: Option<Nid>) -> String {
    match (errno, owner) {
        (_, None) => format!("peer {primary}: not known to this node"),
        (Errno::ENODEV, Some(owner)) => {
            format!("peer {primary}: must be a primary NID: did you mean '{owner}'?")
        }
        (Errno::EBUSY, _) => format!("peer {primary}: is the gateway of a route"),
        (errno, _) => format!("peer {primary}: {errno}"),
    }
}
