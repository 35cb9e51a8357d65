//! The node: its parts, and what all of its methods use.
//!
//! The parts are types with files of their own, which know nothing of the node: `portal/`, `rails.rs`,
//! `router/routes.rs`, `fault/`, `dedup/sessions.rs`, `timers/` … What needs several of them at once is
//! a method of the node, in the file of its subject: `send/`, `recv.rs`, `interfaces.rs`, `health.rs`,
//! `recovery/`, `tracker.rs`, `ping.rs`, `peer/`, `router/`, `ops.rs`, `snapshot.rs`. The methods call
//! each other in one direction: those of this file are at the bottom, `turn.rs` and `entry/` at the top.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lnet_types::{CptTable, Errno, Fault, Instant, MdId, MsgId, Net, NiId, Nid, PeerId, PeerNiId};
use lnet_wire::Hdr;
use slotmap::SlotMap;

use crate::budget::Budget;
use crate::check::Invariants;
use crate::dedup::sessions::Sessions;
use crate::fault::Faults;
use crate::handle::Scrambler;
use crate::local::{LocalNet, NetTunables, Ni};
use crate::msg::Msg;
use crate::notice::Notices;
use crate::numa::Numa;
use crate::peer::refusal::Refusal;
use crate::peer::{Facts, Peers};
use crate::policy::Policy;
use crate::port::{Port, PortId};
use crate::portal::Portals;
use crate::rails::Rails;
use crate::record::Recorder;
use crate::router::{Router, RoutingState, alive};
use crate::send::select::Tables;
use crate::stats::NodeStats;
use crate::timers::Timers;
use crate::{DropReason, Event, Explanation, Notice, OpId, Output, Report, Tunables};

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

/// One thing to be done before control returns to the caller.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Work {
    /// Find a path for a message.
    Depart(MsgId),
    /// The same after a failure.
    Resend(MsgId),
    /// A queued message's turn has come.
    Resume(MsgId),
    /// A message has failed before a driver had it.
    Finish(MsgId, Result<(), Fault>),
    /// A peer's discovery may go on.
    Discover(PeerId),
    /// Gateways may have become other peers.
    RehomeRoutes,
    /// An interface is down.
    Leave(PortId),
}

/// A ping or discovery with a waiting caller.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct OpState {
    pub(crate) asked: Nid,
    pub(crate) md: Option<MdId>,
    pub(crate) error: Option<Errno>,
}

/// An LNet node as a value.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Node {
    now: Instant,
    pub(crate) running: bool,
    pub(crate) cookie: u64,
    pub(crate) scrambler: Scrambler,
    pub(crate) tunables: Tunables,
    pub(crate) nets: Vec<LocalNet>,
    pub(crate) nis: SlotMap<NiId, Ni>,
    pub(crate) peers: Peers,
    pub(crate) numa: Numa,
    pub(crate) cpts: CptTable,
    pub(crate) rails: Rails,
    /// Floor of the turns of local networks.
    pub(crate) net_floor: u64,
    pub(crate) explained: VecDeque<Explanation>,
    /// The last resends, whatever `explain_last` says.
    pub(crate) resends: VecDeque<Explanation>,
    pub(crate) faults: Faults,
    pub(crate) portals: Portals,
    pub(crate) router: Router,
    pub(crate) msgs: SlotMap<MsgId, Msg>,
    pub(crate) seq: u64,
    pub(crate) stats: NodeStats,
    pub(crate) drops: BTreeMap<DropReason, u64>,
    pub(crate) refusals: BTreeMap<Refusal, u64>,
    /// Messages that ended after their deadline, and by how much in all (H-4).
    pub(crate) late: (u64, Duration),

    pub(crate) work: VecDeque<Work>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) reports: VecDeque<Report>,
    pub(crate) notices: Notices,

    pub(crate) timers: Timers,
    /// Messages that only wait for their answer.
    pub(crate) answering: usize,
    /// Messages with drivers that another copy has replaced.
    pub(crate) remnants: usize,
    /// What has become of messages in doubt at the first hop.
    pub(crate) in_doubt: crate::InDoubtStats,
    /// The sessions whose messages arrive here.
    pub(crate) sessions: Sessions,
    pub(crate) ops: BTreeMap<OpId, OpState>,
    pub(crate) op_count: u64,

    pub(crate) ping_seq: u32,
    pub(crate) ping_bytes: Arc<[u8]>,
    pub(crate) ping_md: Option<MdId>,
    pub(crate) push_md: Option<MdId>,
    pub(crate) push_bytes: u32,
    /// Rate limit of link announcements.
    pub(crate) announce_budget: Budget,
    /// How often the health of an interface, ours or a peer's, was set.
    pub(crate) health_changes: u64,
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
            cookie: interface_cookie,
            scrambler: Scrambler::new(seed, interface_cookie),
            tunables,
            nets: Vec::new(),
            nis: SlotMap::with_key(),
            peers: Peers::new(seed, Policy::new(strict)),
            numa: Numa::default(),
            cpts: CptTable::default(),
            rails: Rails::default(),
            net_floor: 0,
            explained: VecDeque::new(),
            resends: VecDeque::new(),
            faults: Faults::new(seed),
            portals: Portals::new(seed),
            router: Router::new(seed),
            msgs: SlotMap::with_key(),
            seq: 0,
            stats: NodeStats::default(),
            drops: BTreeMap::new(),
            refusals: BTreeMap::new(),
            late: (0, Duration::ZERO),
            work: VecDeque::new(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            reports: VecDeque::new(),
            notices: Notices::default(),
            timers: Timers::default(),
            answering: 0,
            remnants: 0,
            in_doubt: crate::InDoubtStats::default(),
            sessions: Sessions::default(),
            ops: BTreeMap::new(),
            op_count: 0,
            ping_seq,
            ping_bytes: Arc::from([]),
            ping_md: None,
            push_md: None,
            push_bytes: crate::portal::PING_BYTES_MIN,
            announce_budget: Budget::default(),
            health_changes: 0,
            invariants: Invariants::default(),
            recorder: None,
        }
    }

    /// The id of the loopback interface.
    pub fn loopback(&self) -> Option<NiId> {
        self.nets.first().and_then(|n| n.nis.first()).copied()
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

    /// Whether `nid` is one of our own.
    pub(crate) fn is_own(&self, nid: Nid) -> bool {
        self.nis.values().any(|ni| ni.nid == nid)
    }

    /// The tunables of a local network.
    pub(crate) fn net_tunables(&self, net: Net) -> Option<NetTunables> {
        self.nets.iter().find(|n| n.net == net).map(|n| n.tunables)
    }

    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables {
            nets: &self.nets,
            nis: &self.nis,
            peers: &self.peers,
            numa: &self.numa,
            rails: &self.rails,
            net_floor: self.net_floor,
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
    pub(crate) fn peer_ni_or_new(
        &mut self,
        known: Option<PeerNiId>,
        nid: Nid,
        preferred: Option<Nid>,
    ) -> Result<PeerNiId, Errno> {
        if let Some(id) = self.peers.find_as(known, nid) {
            return Ok(id);
        }
        if nid.is_any() {
            return Err(Errno::EINVAL);
        }
        let local = self.net_tunables(nid.net());
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

    /// Messages in hand, without those that only wait for their answer.
    pub(crate) fn in_hand(&self) -> usize {
        self.msgs.len().saturating_sub(self.answering)
    }

    /// S-82.
    pub(crate) fn count_drop(&mut self, ni: NiId, hdr: &Hdr, reason: DropReason) {
        self.stats.drop_count = self.stats.drop_count.wrapping_add(1);
        self.stats.drop_length += u64::from(hdr.payload_len);
        let kind = hdr.kind.msg_type();
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.port.stats.dropped.bump(kind);
            // M-37: a response that comes too late is dropped in silence.
            if reason != DropReason::BadHandle {
                let (source, target) = (hdr.src, hdr.dst);
                self.notices.push(Notice::Dropped { ni: ni.nid, source, target, kind, reason });
            }
        }
        let count = self.drops.entry(reason).or_default();
        *count += 1;
    }
}

/// The port of an interface, for callers that hold another part of the node too.
pub(crate) fn find<'a>(
    nis: &'a mut SlotMap<NiId, Ni>,
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

    /// The NID of an interface.
    pub(crate) fn nid_of_port(&self, id: PortId) -> Option<Nid> {
        match id {
            PortId::Local(id) => self.nis.get(id).map(|ni| ni.nid),
            PortId::Peer(id) => self.peers.nis.get(id).map(|pni| pni.nid),
        }
    }
}
