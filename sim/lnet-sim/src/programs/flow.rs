//! Flows: one node of a workload with its peers, and when it begins which exchange.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use lnet_scenario::{Exchange, NodeId, Pace, Pairing, RailRef, Scenario, Which, Workload, World};
use lnet_types::{Instant, Nid, Prng};

use super::{Desk, Programs, RPC_LEN, Service, Slot, Wish};
use crate::directory::HostId;
use crate::host::Host;

/// One node of a workload, and its peers.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(super) workload: usize,
    pub(super) targets: Arc<[RailRef]>,
    pub(super) free: Vec<u32>,
    pub(super) under_way: u32,
    /// An exchange was due while as many as may were under way: it begins when one ends. More that were
    /// due meanwhile are not made up for.
    pub(super) owed: bool,
    /// Attempts in order of their beginning, until when each is waited for.
    pub(super) patience: VecDeque<(Instant, u64)>,
    pub(super) patience_armed: bool,
    /// When it last finished something, or began with nothing under way.
    pub(super) progress: Instant,
}

impl Programs {
    pub(crate) fn new(scenario: Arc<Scenario>, mut rng: Prng) -> Self {
        let world = &scenario.world;
        let mut desks: Vec<Desk> = Vec::new();
        desks.resize_with(world.nodes.len(), Desk::default);
        let mut flows = Vec::new();
        for (n, w) in scenario.workload.iter().enumerate() {
            let all: Arc<[RailRef]> = targets(world, w).into();
            if w.exchange != Exchange::Ping {
                for t in all.iter() {
                    let serves = &mut desks[t.node.0 as usize].serves;
                    let service = serves.get_or_insert_with(Service::default);
                    service.real |= w.verify;
                    // The bulk of an RPC has a place of its own.
                    let is_rpc = matches!(w.exchange, Exchange::Rpc { .. });
                    let taken = if is_rpc { RPC_LEN } else { w.size };
                    service.largest = service.largest.max(taken);
                }
            }
            for (k, node) in w.from.nodes().into_iter().enumerate() {
                let mine: Vec<Arc<[RailRef]>> = match w.pairing {
                    Pairing::Spread if all.is_empty() => Vec::new(),
                    Pairing::Spread => {
                        // A host that would be its own peer gets the next one.
                        let at = (0..all.len())
                            .map(|i| (k + i) % all.len())
                            .find(|i| all[*i].node != node);
                        at.map(|i| Arc::from([near(world, node, all[i])])).into_iter().collect()
                    }
                    Pairing::All => {
                        let others = all.iter().filter(|t| t.node != node);
                        others.map(|t| Arc::from([near(world, node, *t)])).collect()
                    }
                    Pairing::Random => vec![all.clone()],
                };
                for targets in mine.into_iter().filter(|t| !t.is_empty()) {
                    desks[node.0 as usize].flows.push(flows.len() as u32);
                    flows.push(Flow {
                        workload: n,
                        targets,
                        free: Vec::new(),
                        under_way: 0,
                        owed: false,
                        patience: VecDeque::new(),
                        patience_armed: false,
                        progress: Instant::ZERO,
                    });
                }
            }
        }
        let nids = world
            .nodes
            .iter()
            .map(|n| n.rails.iter().map(|r| r.nid).collect::<Vec<Nid>>())
            .collect();
        Self {
            rng: rng.split(),
            flows,
            slots: Vec::new(),
            desks,
            nids,
            attempts: 0,
            buffers: 0,
            wishes: Vec::new(),
            soon: Vec::new(),
            notes: Vec::new(),
            watched: true,
            scenario,
        }
    }

    /// The NIDs of a node from now on, rail by rail.
    pub(crate) fn set_nids(&mut self, host: HostId, nids: Vec<Nid>) {
        self.nids[host.0 as usize] = nids;
    }

    /// A host has come to life: its servers post their buffers, its clients begin.
    pub(crate) fn born(&mut self, now: Instant, host: HostId, at: &mut Host) {
        self.serve_all(now, host, at);
        for flow in self.desks[host.0 as usize].flows.clone() {
            let f = &self.flows[flow as usize];
            let w = &self.scenario.workload[f.workload];
            let start = Instant(w.start.as_nanos() as u64).max(now);
            // Not all in the same instant.
            let spread = match w.pace {
                Pace::Every(every) => every.min(Duration::from_secs(1)),
                Pace::Rate(_) | Pace::Window { .. } => Duration::from_millis(10),
            };
            let many = match w.pace {
                Pace::Window { window, .. } => window,
                Pace::Every(_) | Pace::Rate(_) => 1,
            };
            let spread = spread.as_nanos() as u64;
            for _ in 0..many {
                let at_time = start + Duration::from_nanos(self.rng.below(spread + 1));
                self.wishes.push((host, at_time, Wish::Next { flow, life: at.incarnation }));
            }
        }
    }

    /// A host has died, and its programs with it. What they had under way has no owner any more.
    pub(crate) fn died(&mut self, host: HostId) {
        let desk = &mut self.desks[host.0 as usize];
        (desk.buffers, desk.free, desk.blank) = (Vec::new(), Vec::new(), None);
        desk.ops.clear();
        let flows = desk.flows.clone();
        for (n, slot) in (0u32..).zip(&mut self.slots) {
            if flows.contains(&slot.flow) {
                (slot.attempt, slot.own, slot.answer, slot.bulk) = (0, None, None, None);
                let free = &mut self.flows[slot.flow as usize].free;
                if !free.contains(&n) {
                    free.push(n);
                }
            }
        }
        for flow in flows {
            let f = &mut self.flows[flow as usize];
            (f.under_way, f.owed) = (0, false);
            f.patience.clear();
            f.patience_armed = false;
        }
    }

    /// The next exchange of a flow is due; sees to the one after it.
    pub(super) fn next(&mut self, now: Instant, host: HostId, at: &mut Host, flow: u32) {
        let f = &mut self.flows[flow as usize];
        let w = &self.scenario.workload[f.workload];
        let every = match w.pace {
            Pace::Every(every) => Some(every),
            Pace::Rate(rate) => {
                Some(Duration::from_nanos(u64::from(w.size) * 1_000_000_000 / rate.max(1)))
            }
            Pace::Window { .. } => None,
        };
        if let Some(every) = every {
            let then = now + every.max(Duration::from_nanos(1));
            if then.0 < w.end.as_nanos() as u64 {
                self.wishes.push((host, then, Wish::Next { flow, life: at.incarnation }));
            }
            if f.under_way >= w.window {
                f.owed = true;
                return;
            }
        }
        self.begin(now, host, at, flow);
    }

    /// Begins an exchange of a flow.
    pub(super) fn begin(&mut self, now: Instant, host: HostId, at: &mut Host, flow: u32) {
        let f = &mut self.flows[flow as usize];
        let w = &self.scenario.workload[f.workload];
        if now.0 >= w.end.as_nanos() as u64 {
            return;
        }
        let target = match w.pairing {
            Pairing::Spread | Pairing::All => f.targets.first().copied(),
            Pairing::Random => {
                let n = self.rng.below(f.targets.len() as u64) as usize;
                let others = f.targets.iter().cycle().skip(n).take(f.targets.len());
                let node = NodeId(host.0);
                others
                    .copied()
                    .find(|t| t.node != node)
                    .map(|t| near(&self.scenario.world, node, t))
            }
        };
        let Some(target) = target else { return };
        if f.under_way == 0 {
            f.progress = now;
        }
        f.under_way += 1;
        let slot = match f.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot {
                    flow,
                    attempt: 0,
                    target,
                    begun: now,
                    again: 0,
                    awaits: 0,
                    own: None,
                    answer: None,
                    bulk: None,
                    damaged: false,
                });
                self.slots.len() as u32 - 1
            }
        };
        let s = &mut self.slots[slot as usize];
        (s.target, s.begun, s.again) = (target, now, 0);
        self.attempt(now, host, at, slot);
    }
}

/// The rails that a workload names; of whole nodes the first one stands for the node.
fn targets(world: &World, w: &Workload) -> Vec<RailRef> {
    let mut all = Vec::new();
    for part in &w.to.parts {
        let place = lnet_scenario::Place { parts: vec![part.clone()] };
        if part.which == Which::All {
            all.extend(place.nodes().into_iter().map(|node| RailRef { node, rail: 0 }));
        } else {
            all.extend(place.rails(world));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Of a node that is meant as a whole, its first rail on a network that both are on.
fn near(world: &World, from: NodeId, to: RailRef) -> RailRef {
    let (Some(a), Some(b)) = (world.node(from), world.node(to.node)) else { return to };
    if to.rail != 0 {
        return to;
    }
    let shared = b.rails.iter().position(|r| a.rails.iter().any(|x| x.net == r.net));
    RailRef { rail: shared.unwrap_or(0) as u16, ..to }
}
