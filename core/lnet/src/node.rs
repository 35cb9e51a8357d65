//! The node: its parts, and what all of its methods use.
//!
//! The parts are types with files of their own, which know nothing of the node: `portal/`, `rails.rs`,
//! `router/routes.rs`, `fault/`, `dedup/sessions.rs`, `timers/` … What needs several of them at once is
//! a method of the node, in the file of its subject: `send/`, `recv.rs`, `interfaces.rs`, `health.rs`,
//! `recovery/`, `tracker.rs`, `ping.rs`, `peer/`, `router/`, `ops.rs`, `snapshot.rs`. The methods call
//! each other in one direction: those of this file are at the bottom, `turn.rs` and `entry/` at the top.

use lnet_types::{Errno, Instant, NiId, Nid, PeerNiId};
use lnet_wire::Hdr;

use crate::check::Invariants;
use crate::counts::Counts;
use crate::dedup::sessions::Sessions;
use crate::fault::Faults;
use crate::handle::Scrambler;
use crate::local::Interfaces;
use crate::messages::Messages;
use crate::numa::Numa;
use crate::op_table::Ops;
use crate::outbox::Outbox;
use crate::own_data::OwnData;
use crate::peer::eviction::Purpose;
use crate::peer::{Facts, Peers};
use crate::policy::Policy;
use crate::port::{Port, PortId};
use crate::portal::Portals;
use crate::rails::Rails;
use crate::record::Recorder;
use crate::router::{Router, RoutingState, alive};
use crate::send::select::Tables;
use crate::send::trace::Explanations;
use crate::timers::Timers;
use crate::{DropReason, Notice, Tunables};

/// What a node is born with.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct NodeConfig {
    /// Seed of all its random choices.
    pub seed: u64,
    /// Identifies this incarnation in wire handles: wall-clock nanoseconds at start (O-11).
    pub interface_cookie: u64,
    /// The number before that of its first ping data: 0, unless it is to begin as a node that has
    /// changed its interfaces many times.
    pub ping_seq: u32,
    /// Tunables to begin with.
    pub tunables: Tunables,
}

/// An LNet node as a value.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Node {
    now: Instant,
    pub(crate) running: bool,
    pub(crate) scrambler: Scrambler,
    pub(crate) tunables: Tunables,
    pub(crate) nis: Interfaces,
    pub(crate) peers: Peers,
    pub(crate) numa: Numa,
    pub(crate) rails: Rails,
    pub(crate) explanations: Explanations,
    pub(crate) faults: Faults,
    pub(crate) portals: Portals,
    pub(crate) router: Router,
    pub(crate) msgs: Messages,
    pub(crate) counts: Counts,

    pub(crate) outbox: Outbox,

    pub(crate) timers: Timers,
    /// The sessions whose messages arrive here.
    pub(crate) sessions: Sessions,
    pub(crate) ops: Ops,

    pub(crate) own: OwnData,
    #[serde(skip)]
    pub(crate) invariants: Invariants,
    #[serde(skip)]
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl Node {
    /// A node of which nothing is posted, not even its loopback interface.
    pub(crate) fn empty(config: NodeConfig, now: Instant) -> Self {
        let NodeConfig { seed, interface_cookie, ping_seq, tunables } = config;
        let strict = !tunables.conduct.takes_all_rules;
        Self {
            now,
            running: true,
            scrambler: Scrambler::new(seed, interface_cookie),
            tunables,
            nis: Interfaces::default(),
            peers: Peers::new(seed, Policy::new(strict)),
            numa: Numa::default(),
            rails: Rails::default(),
            explanations: Explanations::default(),
            faults: Faults::new(seed),
            portals: Portals::new(seed),
            router: Router::new(seed),
            msgs: Messages::default(),
            counts: Counts::default(),
            outbox: Outbox::default(),
            timers: Timers::default(),
            sessions: Sessions::default(),
            ops: Ops::default(),
            own: OwnData::new(ping_seq),
            invariants: Invariants::default(),
            recorder: None,
        }
    }

    /// The id of the loopback interface.
    pub fn loopback(&self) -> Option<NiId> {
        self.nis.nets().first().and_then(|n| n.nis.first()).copied()
    }

    /// The latest time that the node has seen.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// The latest time that the node has seen: an older `now` counts as this one.
    pub(crate) fn clock(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// The node's tunables.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// What is read to choose a path, and to judge the one that a message is on.
    #[inline]
    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables {
            nets: self.nis.nets(),
            nis: &self.nis,
            peers: &self.peers,
            numa: &self.numa,
            rails: &self.rails,
            portals: &self.portals,
            net_floor: self.nis.floor(),
            routes: &self.router.routes,
            tunables: &self.tunables,
            now: self.now(),
        }
    }

    /// Whether this is an interface of a gateway.
    pub(crate) fn is_of_router(&self, id: PeerNiId) -> bool {
        self.peers.nis.get(id).is_some_and(|pni| alive::is_router(&self.peers, pni.peer))
    }

    /// The record of a peer's interface, which may be `known`; made if there is none (O-24, O-25).
    #[inline]
    pub(crate) fn peer_ni_or_new(
        &mut self,
        known: Option<PeerNiId>,
        nid: Nid,
        preferred: Option<Nid>,
        purpose: Purpose,
    ) -> Result<PeerNiId, Errno> {
        match self.peers.find_as(known, nid) {
            Some(id) => Ok(id),
            None => self.new_peer_ni(nid, preferred, purpose),
        }
    }

    /// Whether there is room for one more interface of a peer, perhaps since another peer was evicted.
    pub(crate) fn has_room_for(&mut self, purpose: Purpose) -> bool {
        let max = self.tunables.peers_max as usize;
        self.peers.has_room_for(&mut self.timers, purpose, max)
    }

    #[cold]
    fn new_peer_ni(
        &mut self,
        nid: Nid,
        preferred: Option<Nid>,
        purpose: Purpose,
    ) -> Result<PeerNiId, Errno> {
        if nid.is_any() {
            return Err(Errno::EINVAL);
        }
        if !self.has_room_for(purpose) {
            return Err(Errno::ENOSPC);
        }
        let local = self.nis.tunables_of(nid.net());
        let max = self.tunables.peers_max as usize;
        let peer = self.peers.create(nid, Facts::empty());
        match self.peers.attach(peer, nid, local, max) {
            Ok(id) => {
                if let Some(pni) = self.peers.nis.get_mut(id) {
                    pni.preferred = preferred;
                }
                Ok(id)
            }
            Err(errno) => {
                self.peers.forget(peer);
                Err(errno)
            }
        }
    }

    /// The node's name for the interface `nid` of a peer, if it has a record of it. `known` is what it
    /// was before, if that is known: while it is, nothing is looked up.
    pub fn peer_ni(&self, known: Option<PeerNiId>, nid: Nid) -> Option<PeerNiId> {
        self.peers.find_as(known, nid)
    }

    /// Where forwarding stands.
    pub fn routing_state(&self) -> RoutingState {
        self.router.state
    }

    /// S-82.
    pub(crate) fn count_drop(&mut self, ni: NiId, hdr: &Hdr, reason: DropReason) {
        self.counts.dropped(hdr.payload_len);
        let kind = hdr.kind.msg_type();
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.port.stats.get_mut().dropped.bump(kind);
            // M-37: a response that comes too late is dropped in silence.
            if reason != DropReason::BadHandle {
                let (source, target) = (hdr.src, hdr.dst);
                self.outbox.notice(Notice::Dropped { ni: ni.nid, source, target, kind, reason });
            }
        }
        self.counts.drop_reason(reason);
    }
}

/// The port of an interface, for callers that hold another part of the node too.
pub(crate) fn find<'a>(
    nis: &'a mut Interfaces,
    peers: &'a mut Peers,
    id: PortId,
) -> Option<&'a mut Port> {
    match id {
        PortId::Local(id) => nis.get_mut(id).map(|ni| &mut ni.port),
        PortId::Peer(id) => peers.nis.get_mut(id).map(|pni| &mut pni.port),
    }
}

impl Node {
    /// The port of an interface, if that exists.
    pub(crate) fn port(&self, id: PortId) -> Option<&Port> {
        match id {
            PortId::Local(id) => self.nis.get(id).map(|ni| &ni.port),
            PortId::Peer(id) => self.peers.nis.get(id).map(|pni| &pni.port),
        }
    }

    pub(crate) fn port_mut(&mut self, id: PortId) -> Option<&mut Port> {
        find(&mut self.nis, &mut self.peers, id)
    }

    /// Does something with the ports of a rail. Loopback has no interface of a peer.
    #[inline]
    pub(crate) fn each_port(
        &mut self,
        ni: NiId,
        peer_ni: Option<PeerNiId>,
        mut f: impl FnMut(&mut Port),
    ) {
        if let Some(ni) = self.nis.get_mut(ni) {
            f(&mut ni.port);
        }
        if let Some(peer_ni) = peer_ni.and_then(|id| self.peers.nis.get_mut(id)) {
            f(&mut peer_ni.port);
        }
    }

    /// The NID of an interface.
    pub(crate) fn nid_of_port(&self, id: PortId) -> Option<Nid> {
        match id {
            PortId::Local(id) => self.nis.get(id).map(|ni| ni.nid),
            PortId::Peer(id) => self.peers.nis.get(id).map(|pni| pni.nid),
        }
    }
}
