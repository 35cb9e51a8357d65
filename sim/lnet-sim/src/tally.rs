//! What is counted of every run, with and without observers: the figures behind the summary and the
//! bars.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;
use lnet::{Doubt, DropReason, Node, Transmit};
use lnet_scenario::{FaultKind, LinkEvent, Place, Scenario};
use lnet_types::{Instant, Nid};

use crate::arrivals::Arrivals;
use crate::directory::{Directory, HostId};
use crate::host::Host;
use crate::observe::Seen;
use crate::rpc::{FileSeen, LockSeen, RpcSeen, RpcTally};
use crate::selftest::SelftestFigures;

/// A fault, and when a node noticed.
#[derive(Clone, Debug)]
pub struct FaultSeen {
    /// Index in [`Scenario::faults`].
    pub index: usize,
    /// When it began.
    pub began: Instant,
    /// When it ended, if it has.
    pub ended: Option<Instant>,
    /// After which time who noticed what.
    pub noticed: Option<(Duration, HostId, String)>,
    /// The NIDs that it is about, all if empty; `None`: it befalls requests, and no interface notices it.
    about: Option<BTreeSet<Nid>>,
}

/// Figures of a run.
#[derive(Debug)]
pub struct Tally {
    /// Events of the world.
    pub events: u64,
    /// Messages that nodes handed to drivers.
    pub messages: u64,
    /// Their payload, bytes.
    pub bytes: u64,
    /// Pings, pushes and their answers among them.
    pub control: u64,
    /// Most of these that one host sent in one second, and which.
    pub control_rate_max: (u64, Option<HostId>),
    /// Attempts begun.
    pub attempts: u64,
    /// Exchanges that ended well.
    pub completed: u64,
    /// Exchanges that failed.
    pub errors: u64,
    /// Messages that reached a program twice.
    pub duplicates: u64,
    /// Messages that arrived with other bytes than were sent.
    pub damaged: u64,
    /// Messages that nodes sent again.
    pub resends: u64,
    /// Responses that nodes missed.
    pub response_timeouts: u64,
    /// Messages that nodes dropped, by reason.
    pub drops: BTreeMap<DropReason, u64>,
    /// Times of exchanges that ended well, nanoseconds.
    pub stalls: Histogram<u64>,
    /// Longest time in which a flow with something under way finished nothing.
    pub gap_max: Duration,
    /// Faults, in order of their beginning.
    pub faults: Vec<FaultSeen>,
    /// Interfaces below full health.
    pub degraded: BTreeSet<(HostId, Nid)>,
    /// When the last one was healthy again.
    pub healthy_since: Instant,
    /// What could not be done as the scenario asks.
    pub complaints: Vec<String>,
    /// Targets, clients and calls above LNet.
    pub rpc: RpcTally,
    /// LNet selftest, if the scenario has any.
    pub selftest: Option<SelftestFigures>,
    /// Per host: the current second, and control messages in it.
    seconds: Vec<(u64, u64)>,
    arrivals: Arrivals,
}

impl Tally {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            events: 0,
            messages: 0,
            bytes: 0,
            control: 0,
            control_rate_max: (0, None),
            attempts: 0,
            completed: 0,
            errors: 0,
            duplicates: 0,
            damaged: 0,
            resends: 0,
            response_timeouts: 0,
            drops: BTreeMap::new(),
            // Three digits are more than is readable; it grows with its greatest value.
            stalls: Histogram::new(3).unwrap_or_else(|e| unreachable!("three digits are few: {e}")),
            gap_max: Duration::ZERO,
            faults: Vec::new(),
            degraded: BTreeSet::new(),
            healthy_since: Instant::ZERO,
            complaints: Vec::new(),
            rpc: RpcTally::new(scenario),
            selftest: None,
            seconds: vec![(0, 0); scenario.world.nodes.len()],
            arrivals: Arrivals::default(),
        }
    }

    /// A node has handed a message to a driver.
    pub(crate) fn sent(&mut self, now: Instant, host: HostId, t: &Transmit, control: bool) {
        self.messages += 1;
        self.bytes += u64::from(t.hdr.payload_len);
        if !control {
            return;
        }
        self.control += 1;
        let Some((second, count)) = self.seconds.get_mut(host.0 as usize) else { return };
        if *second != now.as_secs() {
            (*second, *count) = (now.as_secs(), 0);
        }
        *count += 1;
        if *count > self.control_rate_max.0 {
            self.control_rate_max = (*count, Some(host));
        }
    }

    pub(crate) fn gap(&mut self, length: Duration) {
        self.gap_max = self.gap_max.max(length);
    }

    pub(crate) fn see(
        &mut self,
        now: Instant,
        seen: &Seen<'_>,
        scenario: &Scenario,
        directory: &Directory,
    ) {
        match *seen {
            Seen::Begun { .. } => self.attempts += 1,
            Seen::Ended { took, well: true, .. } => {
                self.completed += 1;
                // It grows with its greatest value; times of a scenario fit into 64 bits.
                let _ = self.stalls.record(took.as_nanos() as u64);
            }
            Seen::Ended { well: false, .. } => self.errors += 1,
            Seen::Delivered { host, attempt, answer, intact } => {
                self.damaged += u64::from(intact == Some(false));
                let again = self.arrivals.is_second(host, attempt, answer);
                self.duplicates += u64::from(again);
            }
            Seen::Health { host, nid, from, to } => {
                if to == lnet::HEALTH_MAX {
                    self.degraded.remove(&(host, nid));
                    self.note_healthy(now);
                } else {
                    self.degraded.insert((host, nid));
                }
                if to < from {
                    self.notice(now, host, &[nid], || format!("health {from} → {to} of {nid}"));
                }
            }
            Seen::Route { host, gateway, up: false } => {
                self.notice(now, host, &[gateway], || format!("route by {gateway} down"));
            }
            Seen::Doubt { host, local, peer, doubt } if doubt > Doubt::None => {
                let what = || format!("suspects the rail {local} → {peer}: {doubt}");
                self.notice(now, host, &[local, peer], what);
            }
            Seen::Fault { index, kind, begins: true } => {
                let about = about(kind, scenario);
                // Its own node gets a report.
                let reported = match kind {
                    FaultKind::Carrier { known_after, .. }
                    | FaultKind::Flap { known_after, .. } => Some(*known_after),
                    _ => None,
                };
                let first = about.iter().flatten().next();
                let host = first.and_then(|nid| directory.find(*nid));
                let host = host.and_then(|ix| directory.rail(ix).host);
                let noticed = reported
                    .zip(host)
                    .map(|(after, h)| (after, h, "reported by its driver".to_owned()));
                self.faults.push(FaultSeen { index, began: now, ended: None, noticed, about });
            }
            Seen::Fault { index, begins: false, .. } => {
                for f in self.faults.iter_mut().filter(|f| f.index == index) {
                    f.ended = Some(now);
                }
            }
            Seen::Rpc { host, seen } => self.rpc_seen(host, seen),
            Seen::Died { host } => {
                self.rpc.died(host);
                self.arrivals.died(host);
                self.degraded.retain(|(h, _)| *h != host);
                self.note_healthy(now);
            }
            Seen::Route { .. }
            | Seen::Timer { .. }
            | Seen::Doubt { .. }
            | Seen::Failed { .. }
            | Seen::Posted { .. }
            | Seen::Event { .. }
            | Seen::Sent { .. }
            | Seen::Born { .. }
            | Seen::Console { .. }
            | Seen::Sample => {}
        }
    }

    /// RPCs of selftest are exchanges, too.
    pub(crate) fn selftest(&mut self, figures: SelftestFigures) {
        self.attempts += figures.rpcs;
        self.errors += figures.errors;
        self.completed += figures.rpcs.saturating_sub(figures.errors);
        if !figures.complete {
            self.errors += 1;
            self.complaints.push("selftest: its console did not come to an end".to_owned());
        }
        self.selftest = Some(figures);
    }

    /// Calls are exchanges, too.
    fn rpc_seen(&mut self, host: HostId, seen: &RpcSeen) {
        self.rpc.see(host, seen);
        match seen {
            RpcSeen::Called { .. } => self.attempts += 1,
            RpcSeen::Ended { took, result: Ok(_), .. } => {
                self.completed += 1;
                let _ = self.stalls.record(took.as_nanos() as u64);
            }
            RpcSeen::Ended { .. } => self.errors += 1,
            RpcSeen::Lock { seen: LockSeen::Asked { .. }, .. } => self.attempts += 1,
            RpcSeen::Lock { seen: LockSeen::Granted { .. }, .. } => self.completed += 1,
            RpcSeen::Lock { seen: LockSeen::Refused { .. }, .. } => self.errors += 1,
            RpcSeen::File { seen: FileSeen::Begun { .. } } => self.attempts += 1,
            RpcSeen::File { seen: FileSeen::Ended { result, .. } } => match result {
                Err(e) if !e.said => self.errors += 1,
                _ => self.completed += 1,
            },
            RpcSeen::Damaged { .. } => self.damaged += 1,
            _ => {}
        }
    }

    fn note_healthy(&mut self, now: Instant) {
        if self.degraded.is_empty() {
            self.healthy_since = now;
        }
    }

    fn notice(&mut self, now: Instant, host: HostId, nids: &[Nid], what: impl Fn() -> String) {
        for f in &mut self.faults {
            let over = f.ended.is_some_and(|e| now > e + Duration::from_secs(1));
            let meant = f.about.as_ref().is_some_and(|about| {
                about.is_empty() || nids.iter().any(|nid| about.contains(nid))
            });
            if f.noticed.is_none() && !over && meant {
                f.noticed = Some((now.saturating_since(f.began), host, what()));
            }
        }
    }

    /// A node is gone, with its counters.
    pub(crate) fn bury(&mut self, host: &Host) {
        self.add(&host.node);
    }

    fn add(&mut self, node: &Node) {
        let stats = node.stats();
        self.resends += u64::from(stats.resend_count);
        self.response_timeouts += u64::from(stats.response_timeout_count);
        for (reason, count) in node.drops() {
            *self.drops.entry(reason).or_default() += count;
        }
    }

    /// The run is over.
    pub(crate) fn close(&mut self, hosts: &[Host]) {
        for host in hosts.iter().filter(|h| h.alive) {
            self.add(&host.node);
        }
    }

    /// When the last fault that ends has ended.
    pub fn last_end(&self) -> Option<Instant> {
        self.faults.iter().filter_map(|f| f.ended).max()
    }

    /// How long after the end of the last fault all interfaces were healthy again; `None` if one is
    /// still degraded.
    pub fn recovery(&self) -> Option<Duration> {
        let end = self.last_end().unwrap_or(Instant::ZERO);
        self.degraded.is_empty().then(|| self.healthy_since.saturating_since(end))
    }
}

/// The NIDs that a fault is about; an empty set: of all hosts.
fn about(kind: &FaultKind, scenario: &Scenario) -> Option<BTreeSet<Nid>> {
    let nids = |place: &Place| -> BTreeSet<Nid> {
        let rails = place.rails(&scenario.world);
        rails.into_iter().filter_map(|r| scenario.world.rail(r)).map(|r| r.nid).collect()
    };
    Some(match kind {
        FaultKind::Cut(l) | FaultKind::Refuse(l) | FaultKind::Reset(l) => nids(&l.on),
        FaultKind::Loss { links, .. }
        | FaultKind::Corrupt { links, .. }
        | FaultKind::Duplicate { links, .. }
        | FaultKind::Reorder { links, .. }
        | FaultKind::Drop { links, .. }
        | FaultKind::Delay { links, .. }
        | FaultKind::Slow { links, .. } => nids(&links.on),
        FaultKind::Carrier { on: p, .. }
        | FaultKind::Device(p)
        | FaultKind::Degraded { on: p, .. }
        | FaultKind::Completions { on: p, .. }
        | FaultKind::Credits(p)
        | FaultKind::Flap { on: p, .. }
        | FaultKind::Kill { nodes: p, .. }
        | FaultKind::Failover { nodes: p, .. }
        | FaultKind::Pause(p)
        | FaultKind::Drift { nodes: p, .. }
        | FaultKind::Memory(p)
        | FaultKind::NiDel(p)
        | FaultKind::PeerDel { peers: p, .. }
        | FaultKind::LinkEvent(LinkEvent { on: p, .. })
        | FaultKind::Tune { nodes: p, .. } => nids(p),
        FaultKind::NiAdd { nids, .. } => nids.iter().copied().collect(),
        FaultKind::Partition(_) | FaultKind::Quiesce(_) => BTreeSet::new(),
        FaultKind::HandlerDelay { .. }
        | FaultKind::CommitStall(_)
        | FaultKind::StoreFull(_)
        | FaultKind::StoreError { .. }
        | FaultKind::RpcLose { .. }
        | FaultKind::Evict { .. }
        | FaultKind::Hang(_) => return None,
    })
}
