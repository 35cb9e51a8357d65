//! The node: its parts, and the polls.
//!
//! All entry points follow one pattern: take the clock, do the one thing, then [`Node::settle`],
//! which works off whatever that set in motion (credits that let messages go, resends, discovery
//! steps) before control returns. Nothing in here recurses through messages.
//!
//! The parts are types with files of their own, which know nothing of the node: `portal/`, `rails.rs`,
//! `router/routes.rs`, `fault/mod.rs`, `dedup/sessions.rs`, `timers/` … What needs several of them at
//! once is a method of the node, in the file of its subject: `send/`, `recv.rs`, `interfaces.rs`,
//! `health.rs`, `recovery.rs`, `tracker.rs`, `ping.rs`, `peer/`, `router/`, `ops.rs`, `snapshot.rs`.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lnet_types::{CptTable, Errno, Fault, Instant, MdId, MsgId, NiId, Nid, PeerId};
use slotmap::SlotMap;

use crate::budget::Budget;
use crate::check::Invariants;
use crate::dedup::sessions::Sessions;
use crate::fault::Faults;
use crate::handle::Scrambler;
use crate::local::{LocalNet, NetTunables, Ni, NiSpec};
use crate::msg::Msg;
use crate::notice::Notices;
use crate::numa::Numa;
use crate::peer::Peers;
use crate::peer::cause::Cause;
use crate::peer::refusal::Refusal;
use crate::policy::Policy;
use crate::port::{Port, PortId};
use crate::portal::Portals;
use crate::portal::owner::Internal;
use crate::rails::Rails;
use crate::record::{Input, Recorder};
use crate::router::Router;
use crate::stats::NodeStats;
use crate::timers::{Timer, Timers};
use crate::{
    AttachError, DropReason, Event, EventKind, Explanation, MatchEntry, MdSpec, OpId, Output,
    Report, TunableError, Tunables,
};

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

/// Far more steps than one call can cause; reaching it is a bug of the work list.
const WORK_PER_CALL_MAX: usize = 1 << 24;

impl Node {
    /// A node with the loopback interface and nothing else.
    pub fn new(config: NodeConfig, now: Instant) -> Self {
        let NodeConfig { seed, interface_cookie, ping_seq, tunables } = config;
        let strict = !tunables.conduct.takes_all_rules;
        let mut node = Self {
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
        };
        node.post_ping_targets();
        node.insert_ni(NiSpec {
            nid: Nid::LOOPBACK,
            interface: None,
            tunables: NetTunables::default(),
            lnd_timeout: None,
        });
        node.rebuild_ping();
        node.plan_scan(now);
        node
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

    /// Works off what the last call set in motion.
    pub(crate) fn settle(&mut self, now: Instant) {
        let mut budget = WORK_PER_CALL_MAX;
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Depart(id) => self.depart(now, id),
                Work::Resend(id) => self.resend(now, id),
                Work::Resume(id) => self.resume(now, id),
                Work::Finish(id, outcome) => self.finish(now, id, outcome),
                Work::Discover(id) => self.discovery_step(now, id),
                Work::RehomeRoutes => self.rehome_routes(now),
                Work::Leave(port) => self.leave_port(now, port),
            }
            budget -= 1;
            assert!(budget > 0, "the node's work list does not come to an end");
        }
        self.check_settled();
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.note(|| Input::HandleTimeout { now });
        let now = self.clock(now);
        while let Some(timer) = self.timers.pop(now) {
            tracing::trace!(timer = timer.name(), "due");
            match timer {
                Timer::Announce => self.announce_links(now),
                Timer::AnnounceUp => self.announce_up(now),
                Timer::CutOff => self.judge_cut_off(now),
                Timer::Op(op) => self.expire_op(now, op),
                Timer::Delay(token) => self.release(now, token),
                Timer::Router => self.router_due(now),
                Timer::Check(peer) => self.check_gateway(now, peer),
                Timer::Response(md) => self.response_overdue(now, md),
                Timer::Waiting(msg) => self.expire_waiting(msg),
                Timer::Backoff(msg) => self.end_backoff(msg),
                Timer::Retransmit => self.repeat_overdue(now),
                Timer::RecoverNi(ni) => self.recover(now, PortId::Local(ni)),
                Timer::RecoverPeer(ni) => self.recover(now, PortId::Peer(ni)),
                Timer::Merge(peer) => self.work.push_back(Work::Discover(peer)),
                Timer::Discover(peer) => self.retry_query(peer),
            }
        }
        self.plan_scan(now);
        self.settle(now);
    }

    /// The next event for a user.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        self.gave_events(&event);
        event
    }

    /// All pending events at once: they are in `into` then, which gives its memory. False if there
    /// are none.
    #[inline]
    pub fn take_events(&mut self, into: &mut VecDeque<Event>) -> bool {
        into.clear();
        core::mem::swap(&mut self.events, into);
        self.gave_events(&*into);
        !into.is_empty()
    }

    /// All that there is to be carried out, as [`Self::take_events`] does it.
    #[inline]
    pub fn take_outputs(&mut self, into: &mut VecDeque<Output>) -> bool {
        self.turn_page();
        into.clear();
        core::mem::swap(&mut self.outputs, into);
        self.gave_outputs(&*into);
        !into.is_empty()
    }

    /// The next thing for the shell to carry out.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.turn_page();
        let output = self.outputs.pop_front();
        self.gave_outputs(&output);
        output
    }

    /// When [`Node::handle_timeout`] is next due.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_timer().map(|(at, _)| at)
    }

    /// When [`Node::handle_timeout`] is next due, and why.
    #[inline]
    pub fn next_timer(&self) -> Option<(Instant, Timer)> {
        self.timers.next()
    }

    /// The node's tunables.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Sets tunables, all or none (V-10). Discovery turned on or off is announced to peers (D-70,
    /// D-71).
    ///
    /// # Errors
    /// As [`Tunables::set_all`].
    pub fn set_tunables(
        &mut self,
        now: Instant,
        changes: &[(&str, i64)],
    ) -> Result<(), TunableError> {
        self.note(|| Input::SetTunables {
            now,
            changes: changes.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        });
        let now = self.clock(now);
        let before = self.tunables.discovery;
        let deduplicated = self.tunables.deduplicates();
        let mut next = self.tunables.clone();
        next.set_all(changes)?;
        match (before != 0, next.discovery != 0) {
            (true, false) => {
                // The last push still goes out while discovery is on.
                self.tunables.discovery = 0;
                self.refresh_ping();
                self.tunables.discovery = before;
                self.push_to_peers(now, true);
                self.settle(now);
                self.tunables = next;
            }
            (false, true) => {
                self.tunables = next;
                self.refresh_ping();
                self.query_all(now, Cause::SwitchedOn);
            }
            (true, true) | (false, false) => self.tunables = next,
        }
        if self.tunables.rail_suspicion == 0 {
            self.trust_all();
        }
        if self.tunables.deduplicates() != deduplicated {
            self.refresh_ping();
        }
        crate::send::trace::trim(&mut self.explained, self.tunables.explain_last);
        self.arm_checks(now);
        self.arm_router();
        self.settle(now);
        Ok(())
    }

    /// Posts a buffer (M-6 … M-13).
    ///
    /// # Errors
    /// Names what is wrong with the portal, the entry or the descriptor.
    pub fn attach(
        &mut self,
        now: Instant,
        portal: u32,
        me: MatchEntry,
        md: MdSpec,
    ) -> Result<MdId, AttachError> {
        self.note(|| Input::Attach { now, portal, me, md: md.clone() });
        let now = self.clock(now);
        let id = self.portals.attach(portal, me, md)?;
        self.match_delayed(now, portal);
        self.settle(now);
        Ok(id)
    }

    /// Makes a descriptor for a PUT or GET of ours (M-14).
    ///
    /// # Errors
    /// Names what is wrong with it.
    pub fn bind(&mut self, md: MdSpec) -> Result<MdId, AttachError> {
        self.note_usual(|live| live.bind(&md));
        self.portals.bind(md)
    }

    /// Makes a portal lazy: PUTs that match nothing wait for a buffer. Clearing it drops what waits
    /// (M-40).
    ///
    /// # Errors
    /// No such portal, or the reserved one.
    pub fn set_lazy(&mut self, now: Instant, portal: u32, lazy: bool) -> Result<(), AttachError> {
        self.note(|| Input::SetLazy { now, portal, lazy });
        let now = self.clock(now);
        self.portals.set_lazy(portal, lazy)?;
        if !lazy {
            self.flush_delayed(portal, None);
        }
        self.settle(now);
        Ok(())
    }

    /// An event on one of the node's own descriptors.
    pub(crate) fn internal_event(
        &mut self,
        now: Instant,
        what: Internal,
        event: &Event,
        bytes: &[u8],
    ) {
        match what {
            Internal::PingTarget => {}
            Internal::PushTarget => {
                if event.kind == EventKind::Put && event.status.is_ok() {
                    self.pushed(now, event, bytes);
                }
            }
            Internal::DiscoveryPing(peer) => self.discovery_ping_event(now, peer, event, bytes),
            Internal::Push(peer) => self.push_event(now, peer, event),
            Internal::Recover(port) => match event.kind {
                EventKind::Send if event.status.is_ok() => {}
                EventKind::Send => {
                    self.abandon(event);
                    self.recovery_answered(now, port, None);
                }
                EventKind::Reply | EventKind::Unlink => {
                    let ok = event.kind == EventKind::Reply && event.status.is_ok();
                    self.recovery_answered(now, port, ok.then_some(event.sender));
                }
                EventKind::Put | EventKind::Get | EventKind::Ack => {}
            },
            Internal::Ask { claimant, nid, seq } => {
                self.ask_event(now, claimant, (nid, seq), event, bytes);
            }
            Internal::UserPing(op) => self.user_ping_event(op, event, bytes),
        }
    }

    /// Stops the node (H-72): every message ends with `ESHUTDOWN`, every descriptor is unlinked.
    /// Interfaces are to be stopped in their drivers before.
    pub fn shutdown(&mut self, now: Instant) {
        self.note(|| Input::Shutdown { now });
        let now = self.clock(now);
        self.running = false;
        self.drop_held(None);
        self.shut_router();
        let down = Fault::new(lnet_types::HealthStatus::Ok, Errno::ESHUTDOWN);
        // Those that wait for a discovery end here, not with it.
        for peer in self.peers.peers.values_mut() {
            peer.disc.parked.clear();
        }
        for id in self.msgs.keys().collect::<Vec<_>>() {
            if self.msgs.contains_key(id) {
                self.finish(now, id, Err(down));
            }
        }
        self.settle(now);
        for md in self.portals.mds.keys().collect::<Vec<_>>() {
            self.unlink_md(now, md);
        }
        self.settle(now);
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
