//! The node: its tables, its local interfaces, and the polls.
//!
//! All entry points follow one pattern: take the clock, do the one thing, then [`Node::settle`],
//! which works off whatever that set in motion (credits that let messages go, resends, discovery
//! steps) before control returns. Nothing in here recurses through messages.
//!
//! The subjects are in their own files as further `impl Node` blocks: `send/`, `recv.rs`,
//! `health.rs`, `recovery.rs`, `tracker.rs`, `ping.rs`, `peer/`, `router/`, `ops.rs`, `snapshot.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use core::time::Duration;

use lnet_types::{CptTable, Errno, Fault, Instant, MdId, MsgId, Net, NiId, Nid, PeerId, PeerNiId};
use slotmap::SlotMap;

use crate::check::Invariants;
use crate::dedup::{self, sessions::Sessions};
use crate::fault::Faults;
use crate::handle::Scrambler;
use crate::internal::Internal;
use crate::local::{HEALTH_MAX, LocalNet, NetTunables, Ni};
use crate::msg::Msg;
use crate::notice::Notices;
use crate::numa::Numa;
use crate::peer::Peers;
use crate::peer::query::Cause;
use crate::peer::refusal::{Budget, Refusal};
use crate::policy::Policy;
use crate::policy::turn::{Grade, Turn};
use crate::port::{Port, PortId};
use crate::portal::Portals;
use crate::record::{Input, Recorder};
use crate::router::Router;
use crate::send::Reason;
use crate::stats::{NiFailures, NodeStats};
use crate::suspicion::Rails;
use crate::timers::{Timer, Timers};
use crate::{
    AttachError, DropReason, Event, EventKind, Explanation, Link, MatchEntry, MdSpec, NiState,
    OpId, Output, Report, TunableError, Tunables,
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

/// A new local interface.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct NiSpec {
    /// Its NID.
    pub nid: Nid,
    /// Name of the device that it stands on.
    pub interface: Option<String>,
    /// Tunables of its network; in force if it is the first one there (C-netadd-6).
    pub tunables: NetTunables,
    /// The driver's own time limit for one transmission, if it has one (H-30).
    pub lnd_timeout: Option<Duration>,
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
            push_bytes: crate::ping::PING_BYTES_MIN,
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
        let deduplicated = dedup::is_on(&self.tunables);
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
        if dedup::is_on(&self.tunables) != deduplicated {
            self.refresh_ping();
        }
        crate::send::explain::trim(&mut self.explained, self.tunables.explain_last);
        self.arm_checks(now);
        self.arm_router();
        self.settle(now);
        Ok(())
    }

    /// Adds a local interface (O-14 … O-16).
    ///
    /// # Errors
    /// `EUSERS` (a route leads to that network), `EEXIST` (NID, or device on that network, in use), `ENOSPC` (limit), `EINVAL` (loopback or
    /// wildcard, no credits), `ESHUTDOWN`.
    pub fn add_ni(&mut self, now: Instant, spec: NiSpec) -> Result<NiId, Errno> {
        self.note(|| Input::AddNi { now, spec: Box::new(spec.clone()) });
        let now = self.clock(now);
        let net = spec.nid.net();
        if !self.running {
            return Err(Errno::ESHUTDOWN);
        }
        if spec.nid.is_any() || net == Net::LO {
            return Err(Errno::EINVAL);
        }
        if self.router.routes.has_net(net) {
            return Err(Errno::EUSERS);
        }
        let same_net = |ni: &Ni| ni.nid.net() == net;
        let taken = |ni: &Ni| {
            ni.nid == spec.nid
                || (same_net(ni) && ni.interface.is_some() && ni.interface == spec.interface)
        };
        if self.nis.values().any(taken) {
            return Err(Errno::EEXIST);
        }
        if self.nis.len() as i64 >= self.tunables.max_interfaces - 1 {
            return Err(Errno::ENOSPC);
        }
        if spec.tunables.credits == 0 || spec.tunables.peer_credits == 0 {
            return Err(Errno::EINVAL);
        }
        let is_new = !self.nets.iter().any(|n| n.net == net);
        let id = self.insert_ni(spec);
        if is_new {
            self.adopt_peers(net);
            self.arm_checks(now);
        }
        self.arm_router();
        self.announce(now, false);
        self.settle(now);
        Ok(id)
    }

    fn insert_ni(&mut self, spec: NiSpec) -> NiId {
        let net = spec.nid.net();
        let at = self.nets.iter().position(|n| n.net == net).unwrap_or_else(|| {
            let mut tunables = spec.tunables;
            // V-11
            tunables.peer_credits = tunables.peer_credits.min(tunables.credits);
            self.nets.push(LocalNet {
                net,
                nis: Vec::new(),
                tunables,
                seq: 0,
                grade: Grade::default(),
                turn: Turn::default(),
                floor: 0,
                last_alive: self.now,
            });
            self.nets.len() - 1
        });
        let mut port = Port::new(self.nets[at].tunables.credits);
        if spec.nid.is_loopback() {
            // S-net-6: loopback's health means nothing and begins at 0.
            port.health = 0;
        }
        let id = self.nis.insert(Ni {
            nid: spec.nid,
            interface: spec.interface,
            lnd_timeout: spec.lnd_timeout,
            fatal: false,
            link_down: false,
            plays_dead: false,
            port,
            announced_up: true,
            aged: false,
            numa_node: None,
            cpts: None,
            failures: NiFailures::default(),
            last_received: None,
            noted: NiState::Active,
        });
        self.nets[at].nis.push(id);
        self.policy_nis_changed();
        id
    }

    /// O-41: peers' interfaces on a network that has become local get their credits.
    fn adopt_peers(&mut self, net: Net) {
        let tunables = self.net_tunables(net);
        for pni in self.peers.nis.values_mut().filter(|n| n.nid.net() == net) {
            pni.local = tunables;
            pni.port.credits.refill(tunables.map_or(0, |t| t.peer_credits));
        }
    }

    /// A local interface is about to be removed: nothing more is bound to it while there is another,
    /// and what waits for its credits goes by another (MR-snd-085; kernel nodes leave it there).
    /// Then its driver stops it, then comes [`Node::del_ni`].
    pub fn leave_ni(&mut self, now: Instant, id: NiId) {
        self.note(|| Input::LeaveNi { now, id });
        let now = self.clock(now);
        let Some(ni) = self.nis.get_mut(id).filter(|ni| !ni.is_loopback()) else { return };
        ni.link_down = true;
        ni.fatal = true;
        let waiting = self.unbind_waiting(id, |_| true);
        waiting.into_iter().for_each(|msg| self.again(now, msg, Reason::Unbound));
        self.repeat_elsewhere(now, None);
        self.settle(now);
    }

    /// Removes a local interface (O-18). Stop it in its driver first, so that nothing is under way:
    /// messages that it still has fail with `ENETDOWN`, those that wait for its credits go another
    /// way if they may.
    ///
    /// # Errors
    /// `ENOENT` (unknown), `EINVAL` (loopback).
    pub fn del_ni(&mut self, now: Instant, id: NiId) -> Result<(), Errno> {
        self.note(|| Input::DelNi { now, id });
        let now = self.clock(now);
        let ni = self.nis.get(id).ok_or(Errno::ENOENT)?;
        if ni.is_loopback() {
            return Err(Errno::EINVAL);
        }
        let net = ni.nid.net();
        for portal in 0..lnet_wire::PORTALS {
            self.flush_delayed(portal, Some(id));
        }
        self.drop_held(Some(id));
        self.drop_transit(Some(id), DropReason::NotRouter);
        let waiting = self.unbind_waiting(id, |m| m.src.is_none());
        let bound: Vec<MsgId> = self
            .msgs
            .iter()
            .filter(|(_, m)| m.tx.is_some_and(|tx| tx.ni == id))
            .map(|(id, _)| id)
            .collect();
        for msg in bound {
            self.finish(now, msg, Err(crate::NI_STOPPED));
        }
        waiting.into_iter().for_each(|msg| self.again(now, msg, Reason::Unbound));
        // What was for the driver is decided: it will have another attempt, or none.
        self.outputs.retain(|out| !matches!(out, Output::Send(t) if t.ni == id));
        self.timers.stop(Timer::RecoverNi(id));
        if let Some(ln) = self.nets.iter_mut().find(|n| n.net == net) {
            ln.nis.retain(|x| *x != id);
        }
        self.nis.remove(id);
        if self.nets.iter().any(|n| n.net == net && n.nis.is_empty()) {
            self.nets.retain(|n| n.net != net);
            self.del_routes_over(net);
            self.abandon_peers(now, net);
        }
        self.policy_nis_changed();
        self.announce(now, false);
        self.settle(now);
        Ok(())
    }

    /// O-42: peers lose their interfaces on a network that is not local any more, unless they can
    /// still be reached on another one.
    fn abandon_peers(&mut self, now: Instant, net: Net) {
        let ids: Vec<PeerNiId> = self
            .peers
            .nis
            .iter()
            .filter(|(_, n)| n.nid.net() == net && !n.deleting)
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            let Some(pni) = self.peers.nis.get(id) else { continue };
            let (nid, peer_id) = (pni.nid, pni.peer);
            let Some(peer) = self.peers.peers.get(peer_id) else { continue };
            let other = peer
                .nis()
                .filter_map(|n| self.peers.nis.get(n))
                .find(|n| n.nid.net() != net && self.nets.iter().any(|l| l.net == n.nid.net()))
                .map(|n| n.nid);
            let locked = peer.facts.contains(crate::peer::Facts::LOCK_PRIMARY);
            match other {
                Some(survivor) => {
                    let was_primary = peer.primary == nid;
                    if let Some(pni) = self.peers.nis.get_mut(id) {
                        pni.local = None;
                        pni.port.credits.refill(0);
                    }
                    if was_primary && !locked {
                        if let Some(peer) = self.peers.peers.get_mut(peer_id) {
                            peer.primary = survivor;
                        }
                        self.peers.primary_first(peer_id);
                    }
                }
                None if peer.primary == nid || peer.ni_count() == 1 => {
                    self.delete_peer(now, peer_id);
                }
                None => {
                    self.remove_peer_ni(now, id);
                    self.lost_sight(now, peer_id, nid);
                }
            }
        }
    }

    /// The tunables of a local network.
    pub(crate) fn net_tunables(&self, net: Net) -> Option<NetTunables> {
        self.nets.iter().find(|n| n.net == net).map(|n| n.tunables)
    }

    /// The condition of an interface has changed (H-90 … H-92).
    pub fn link_changed(&mut self, now: Instant, ni: NiId, link: Link) {
        self.note(|| Input::LinkChanged { now, ni, link });
        let now = self.clock(now);
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.link_down = link == Link::Down;
        }
        self.link_judged(now, ni);
    }

    /// What the driver says of a link, or a simulated fault, has changed: what it is now, if that is
    /// news.
    pub(crate) fn link_noted(&mut self, now: Instant, id: NiId) -> Option<Link> {
        let ni = self.nis.get_mut(id)?;
        let fatal = ni.link_down || ni.plays_dead;
        if ni.fatal == fatal {
            return None;
        }
        ni.fatal = fatal;
        ni.port.transitions.count(!fatal);
        if !fatal && ni.port.health == HEALTH_MAX {
            ni.port.status_up = true;
        }
        let is_announced_now = self.announce_link(now);
        if fatal {
            self.penalize(now, id);
        } else if is_announced_now {
            // D-7, as recorded: announced at once with the status in place, and with the next
            // number afterwards.
            self.refresh_ping();
            self.push_to_peers(now, true);
        }
        self.note_ni(id);
        Some(if fatal { Link::Down } else { Link::Up })
    }

    /// Changes the driver's own time limit on an interface (H-84).
    pub fn set_lnd_timeout(&mut self, ni: NiId, timeout: Option<Duration>) {
        self.note(|| Input::SetLndTimeout { ni, timeout });
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.lnd_timeout = timeout;
        }
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
