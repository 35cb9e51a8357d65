//! The reference model: what programs may, must and must not see of their exchanges.
//!
//! Its input is the scenario (which nodes speak, which faults are when) and what programs see. It
//! has no paths that were chosen, credits, health or retries of nodes.
//!
//! - *May*: a message of an attempt reaches its target, an answer comes to its requester.
//! - *Must not*: a message arrives that was never begun, or elsewhere, or that has no such message; an
//!   answer before its question; success without what makes it one; two ends of one exchange.
//! - *Must*: once the world has been left alone for a while everything succeeds at the first attempt;
//!   and with a rail at both ends that no fault touches, between two that have met, no program has to try
//!   many times. At the end nothing is open.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lnet_scenario::{Exchange, Fault, FaultKind, Group, NodeId, Place, Rail, RailRef, Scenario};
use lnet_types::Instant;

use crate::check::is_mistaken;
use crate::directory::HostId;
use crate::host::Host;
use crate::observe::{AttemptId, Observer, Seen, View};

/// How long after the last fault everything succeeds at once. Attempts from before it take up to 15
/// s, interfaces at health 0 are back to where they are chosen again, connections after their
/// back-off, and each peer in use has been discovered again (`peer_refresh_interval`: 75 s at
/// most).
const SETTLED: Duration = Duration::from_secs(90);
/// How long a rail counts as touched after the end of a fault on it: connections come back.
const TOUCHED_AFTER: Duration = Duration::from_secs(15);
/// Attempts that may fail in a row beside a rail without fault: each may have had bad luck with a
/// path whose failure was not known yet.
const UNLUCKY_MAX: u32 = 6;

/// An attempt, as the programs see it.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    host: HostId,
    to: HostId,
    /// The rail that it is addressed to, one that was there from the beginning.
    rail: Option<RailRef>,
    workload: usize,
    begun: Instant,
    again: u32,
    asked: bool,
    answered: bool,
    over: bool,
}

/// An exchange that has no end yet: its last attempt.
#[derive(Clone, Copy, Debug)]
struct Open {
    host: HostId,
    first: Instant,
    again: u32,
}

/// When a rail is touched by a fault.
type Spans = BTreeMap<RailRef, Vec<(Instant, Instant)>>;

/// See the module's head.
#[derive(Debug)]
pub struct Model {
    attempts: BTreeMap<AttemptId, Attempt>,
    open: BTreeMap<u64, Open>,
    touched: Spans,
    /// When a rail was taken away: its NID had no known owner.
    removed: Spans,
    /// Pairs with an exchange in their present incarnations. Pings make no one known.
    met: BTreeSet<(HostId, HostId)>,
    settled: Instant,
    /// See [`jams`].
    jams: bool,
    /// How long an attempt is remembered.
    remembered: Duration,
    /// Whether a node has discovered all rails of its peers and avoids those that fail.
    heals: bool,
}

/// Attempts end within so long, and what belongs to them has arrived by then; but see [`jams`], and
/// [`driver_limit`], which comes on top: a message whose end an adapter keeps to itself is read behind the
/// end of its connection.
const REMEMBERED: Duration = Duration::from_secs(120);
/// Bits of an attempt's number that name the place of its exchange.
const SLOT_MASK: u64 = 0xff_ffff;

impl Model {
    /// The model of a scenario in which all faults end.
    pub fn new(scenario: &Scenario) -> Self {
        let mut touched = Spans::new();
        let mut removed = Spans::new();
        let mut last = Duration::ZERO;
        let limit = driver_limit(scenario);
        for f in &scenario.faults {
            let after = match f.kind {
                // A connection that lacks credits, or whose work has not been reported, may stand still until
                // its driver gives it up.
                FaultKind::Credits(_) | FaultKind::Completions { .. } => limit,
                _ => Duration::ZERO,
            };
            let end = f.until.unwrap_or(f.at) + after;
            last = last.max(end);
            let span = (Instant::ZERO + f.at, Instant::ZERO + end + TOUCHED_AFTER);
            for rail in rails(scenario, &f.kind) {
                touched.entry(rail).or_default().push(span);
                if matches!(f.kind, FaultKind::NiDel(_)) {
                    removed.entry(rail).or_default().push(span);
                }
            }
        }
        let switched_off = |f: &Fault| match &f.kind {
            FaultKind::Tune { tunables, .. } => tunables.contains(&("discovery", 0)),
            _ => false,
        };
        let blind = scenario.faults.iter().any(switched_off);
        let off = |name: &str| {
            scenario.world.groups.iter().any(|g| {
                let t = g.settings();
                match name {
                    "discovery" => t.discovery == 0,
                    _ => t.health_sensitivity < 100,
                }
            })
        };
        let jams = jams(scenario);
        let settled = match jams {
            true => Instant::FAR_FUTURE,
            false => Instant::ZERO + last + SETTLED,
        };
        Self {
            attempts: BTreeMap::new(),
            open: BTreeMap::new(),
            touched,
            removed,
            met: BTreeSet::new(),
            settled,
            jams,
            remembered: REMEMBERED + limit,
            heals: !blind && !off("discovery") && !off("health"),
        }
    }

    /// Whether some rail of each, on one network, was touched by no fault all the time, and what the
    /// attempt is addressed to was not taken away.
    fn clean(&self, view: &View<'_>, attempt: &Attempt, from: Instant) -> bool {
        let Attempt { host: a, to: b, rail, .. } = *attempt;
        let hit = |(begin, end): &(Instant, Instant)| *begin <= view.now && *end >= from;
        let within =
            |spans: &Spans, rail: &RailRef| spans.get(rail).is_some_and(|s| s.iter().any(hit));
        if rail.is_some_and(|rail| within(&self.removed, &rail)) {
            return false;
        }
        let untouched = |host: HostId| {
            let node = view.scenario.world.node(NodeId(host.0));
            let rails = node.map(|n| n.rails.as_slice()).unwrap_or_default();
            let mut nets = BTreeSet::new();
            for (rail, r) in (0u16..).zip(rails) {
                if !within(&self.touched, &RailRef { node: NodeId(host.0), rail }) {
                    nets.insert(r.net);
                }
            }
            nets
        };
        untouched(a).intersection(&untouched(b)).next().is_some()
    }

    /// Whether routers may take an interface of `host` for down although all is over: it announces no recovery
    /// (H-92) from what a fault has done to it. Each time it says so, what is forwarded to it is dropped
    /// until it is heard again (C-8).
    fn stays_down(&self, view: &View<'_>, host: HostId) -> bool {
        let announces = |h: &Host| h.node.tunables().conduct.announces_recovery;
        let is_silent = view.host(host).is_some_and(|h| !announces(h));
        let has_routers = || view.scenario.world.groups.iter().any(|g| g.router);
        is_silent && has_routers() && self.touched.keys().any(|rail| rail.node == NodeId(host.0))
    }

    fn begun(&mut self, view: &View<'_>, id: AttemptId, new: Attempt) -> Result<(), String> {
        if self.attempts.insert(id, new).is_some() {
            return Err(format!("attempt {} was begun twice", id.0));
        }
        let place = id.0 & SLOT_MASK;
        match (new.again, self.open.get_mut(&place)) {
            (0, None) => {
                let open = Open { host: new.host, first: view.now, again: 0 };
                self.open.insert(place, open);
                Ok(())
            }
            (again, Some(open)) if again == open.again + 1 && open.host == new.host => {
                open.again = again;
                Ok(())
            }
            (again, open) => Err(format!("attempt {} is number {again} after {open:?}", id.0)),
        }
    }

    fn failed(&mut self, view: &View<'_>, id: AttemptId, why: &str) -> Result<(), String> {
        let Some(a) = self.attempts.get_mut(&id) else {
            return Err(format!("attempt {} failed and was never begun", id.0));
        };
        if core::mem::replace(&mut a.over, true) {
            return Err(format!("attempt {} ended twice", id.0));
        }
        let a = *a;
        let (name, to) = (view.name(a.host), view.name(a.to));
        let errs = |node| is_mistaken(view, node) || self.stays_down(view, node);
        let is_known = || ![a.host, a.to].into_iter().any(errs);
        if a.begun >= self.settled && is_known() {
            return Err(format!("{name}: attempt {} to {to} failed in peace: {why}", id.0));
        }
        let first = self.open.get(&(id.0 & SLOT_MASK)).map_or(a.begun, |o| o.first);
        let known = self.heals && learns(view, &a) && self.met.contains(&(a.host, a.to));
        if known && a.again >= UNLUCKY_MAX && self.clean(view, &a, first) {
            return Err(format!(
                "{name}: {} attempts to {to} failed since {first}, beside a rail without fault",
                a.again + 1
            ));
        }
        Ok(())
    }

    fn delivered(
        &mut self,
        view: &View<'_>,
        host: HostId,
        id: AttemptId,
        answer: bool,
    ) -> Result<(), String> {
        let name = view.name(host);
        let Some(a) = self.attempts.get_mut(&id) else {
            return Err(format!("{name}: something arrived of attempt {}, never begun", id.0));
        };
        let exchange = view.scenario.workload.get(a.workload).map(|w| w.exchange);
        let (due, known) = match (exchange, answer) {
            (
                Some(Exchange::Put { .. } | Exchange::Request { .. } | Exchange::Rpc { .. }),
                false,
            ) => (a.to, true),
            (Some(Exchange::Request { .. } | Exchange::Rpc { .. }), true) => (a.host, a.asked),
            (Some(Exchange::Get), true) => (a.host, true),
            _ => return Err(format!("{name}: attempt {} has no such message", id.0)),
        };
        if due != host {
            return Err(format!("{name}: attempt {} was for {}", id.0, view.name(due)));
        }
        if !known {
            return Err(format!("{name}: attempt {} is answered and was not asked", id.0));
        }
        *(if answer { &mut a.answered } else { &mut a.asked }) = true;
        Ok(())
    }

    fn ended(&mut self, view: &View<'_>, id: AttemptId, well: bool) -> Result<(), String> {
        let place = id.0 & SLOT_MASK;
        if self.open.remove(&place).is_none() {
            return Err(format!("the exchange of attempt {} ended twice", id.0));
        }
        if !well {
            return Ok(());
        }
        let Some(a) = self.attempts.get_mut(&id) else {
            return Err(format!("attempt {} ended well and was never begun", id.0));
        };
        if core::mem::replace(&mut a.over, true) {
            return Err(format!("attempt {} ended twice", id.0));
        }
        let (host, to) = (a.host, a.to);
        let exchange = view.scenario.workload.get(a.workload).map(|w| w.exchange);
        let shown = match exchange {
            Some(Exchange::Put { ack: true }) => a.asked,
            Some(Exchange::Get | Exchange::Request { .. } | Exchange::Rpc { .. }) => a.answered,
            _ => true,
        };
        if exchange != Some(Exchange::Ping) {
            self.met.insert((host, to));
        }
        match shown {
            true => Ok(()),
            false => Err(format!("attempt {} ended well and nothing had arrived", id.0)),
        }
    }
}

/// How long drivers try at most: so long a connection that does nothing may stay.
fn driver_limit(scenario: &Scenario) -> Duration {
    let limits = scenario.world.groups.iter().map(|g| g.settings().lnd_timeout());
    limits.max().unwrap_or_default()
}

/// Whether there is a router that holds up what it forwards while it discovers the receiver anew
/// (S-6), and with it, for want of credits, the answers to its own pings: after a fault that many have
/// noticed it may be busy with that for minutes.
pub(super) fn jams(scenario: &Scenario) -> bool {
    let holds_up = |g: &Group| !g.settings().conduct.sends_during_rediscovery;
    scenario.world.groups.iter().any(|g| g.router && holds_up(g))
}

/// Whether the host of an attempt learns which of its paths to the other one are bad. Health has
/// nothing on a peer with one interface (H-12), and where only one of several is in reach, each success
/// undoes what it has. A host without memory of the paths that a message has tried has nothing else.
fn learns(view: &View<'_>, attempt: &Attempt) -> bool {
    let world = &view.scenario.world;
    let remembers = |node| {
        let conduct = world.group_of(node).map(|g| g.settings().conduct);
        conduct.is_none_or(|c| c.avoids_tried_paths && c.counts_every_path)
    };
    let [host, to] = [attempt.host, attempt.to].map(|host| NodeId(host.0));
    let (Some(ours), Some(theirs)) = (world.node(host), world.node(to)) else { return false };
    let in_reach = |rail: &&Rail| ours.rails.iter().any(|our| our.net == rail.net);
    remembers(host) || theirs.rails.len() > 1 && theirs.rails.iter().filter(in_reach).count() != 1
}

/// The rails that a fault touches: those of its links' one end, which is enough to hit a path.
fn rails(scenario: &Scenario, kind: &FaultKind) -> Vec<RailRef> {
    let world = &scenario.world;
    let all = || (0..world.nodes.len() as u32).map(|n| Place::node(NodeId(n)));
    match kind {
        FaultKind::Cut(l)
        | FaultKind::Refuse(l)
        | FaultKind::Reset(l)
        | FaultKind::Loss { links: l, .. }
        | FaultKind::Corrupt { links: l, .. }
        | FaultKind::Duplicate { links: l, .. }
        | FaultKind::Reorder { links: l, .. }
        | FaultKind::Drop { links: l, .. }
        | FaultKind::Delay { links: l, .. }
        | FaultKind::Slow { links: l, .. } => l.on.rails(world),
        FaultKind::Carrier { on: p, .. }
        | FaultKind::Flap { on: p, .. }
        | FaultKind::Device(p)
        | FaultKind::Degraded { on: p, .. }
        | FaultKind::Completions { on: p, .. }
        | FaultKind::Credits(p)
        | FaultKind::NiDel(p) => p.rails(world),
        FaultKind::Kill { nodes: p, .. }
        | FaultKind::Pause(p)
        | FaultKind::Drift { nodes: p, .. }
        | FaultKind::Memory(p)
        | FaultKind::NiAdd { nodes: p, .. }
        | FaultKind::PeerDel { nodes: p, .. }
        | FaultKind::Tune { nodes: p, .. } => {
            p.nodes().into_iter().flat_map(|n| Place::node(n).rails(world)).collect()
        }
        FaultKind::Failover { nodes: p, .. } => {
            p.nodes().into_iter().flat_map(|n| Place::node(n).rails(world)).collect()
        }
        FaultKind::HandlerDelay { .. }
        | FaultKind::CommitStall(_)
        | FaultKind::RpcLose { .. }
        | FaultKind::StoreFull(_)
        | FaultKind::StoreError { .. }
        | FaultKind::Hang(_)
        | FaultKind::Evict { .. } => Vec::new(),
        FaultKind::Partition(_) | FaultKind::Quiesce(_) | FaultKind::LinkEvent(_) => {
            all().flat_map(|p| p.rails(world)).collect()
        }
    }
}

impl Observer for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match *seen {
            Seen::Begun { host, workload, attempt, to, again } => {
                // The present owner, or the one from the beginning.
                let rail = view.scenario.world.rail_of(to);
                let owner = rail.map(|r| HostId(r.node.0));
                let Some(to) = owner else { return Err(format!("{to} has no owner")) };
                let (asked, answered, over) = (false, false, false);
                let begun = view.now;
                let new = Attempt { host, to, rail, workload, begun, again, asked, answered, over };
                self.begun(view, attempt, new)
            }
            Seen::Failed { attempt, why, .. } => {
                let why = why.map_or_else(|| "no answer in time".to_owned(), |e| format!("{e:?}"));
                self.failed(view, attempt, &why)
            }
            Seen::Delivered { host, attempt, answer, .. } => {
                self.delivered(view, host, attempt, answer)
            }
            Seen::Ended { attempt, well, .. } => self.ended(view, attempt, well),
            Seen::Died { host } => {
                self.open.retain(|_, o| o.host != host);
                self.met.retain(|(a, b)| *a != host && *b != host);
                Ok(())
            }
            Seen::Sample => {
                if !self.jams {
                    self.attempts.retain(|_, a| a.begun + self.remembered > view.now);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        // Programs stop with the scenario; what they had begun has had time to end.
        match self.open.values().next() {
            Some(o) => {
                let name = view.name(o.host);
                Err(format!("{name}: an exchange that began at {} has no end", o.first))
            }
            None => Ok(()),
        }
    }
}
