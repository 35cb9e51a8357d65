//! What is counted of targets, clients and calls: the figures behind the summary and its bars.

use core::time::Duration;
use std::collections::BTreeSet;

use hdrhistogram::Histogram;
use lnet_scenario::Scenario;
use ptlrpc::{ImportState, ServerStats};
use serde::Serialize;

use super::ledger::Ledger;
use super::seen::RpcSeen;
use crate::directory::HostId;

/// Figures of a run above LNet. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RpcFigures {
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that have no end.
    pub open: u64,
    /// Times of calls, good or bad: half of them took at most so long.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// All.
    pub longest: u64,
    /// Changes that targets carried out.
    pub executed: u64,
    /// Those that a target has twice.
    pub executed_twice: u64,
    /// Changes that were answered, and are gone.
    pub lost_writes: u64,
    /// Connections that were in use again after they were lost.
    pub reconnects: u64,
    /// Evictions that a living client found out about.
    pub evictions: u64,
    /// Clients that targets have evicted, dead ones with them.
    pub evicted: u64,
    /// Copies of requests that servers were working on, or had answered.
    pub copies: u64,
    /// Early replies.
    pub early_replies: u64,
    /// Bulk data that did not move.
    pub bulk_failed: u64,
}

/// Counts.
#[derive(Debug)]
pub struct RpcTally {
    ledger: Ledger,
    any: bool,
    times: Histogram<u64>,
    /// Connections that were in use before, or are.
    known: BTreeSet<(HostId, usize)>,
    reconnects: u64,
    copies: u64,
    early: u64,
    bulk_failed: u64,
}

impl RpcTally {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            ledger: Ledger::new(scenario),
            any: !scenario.rpc.targets.is_empty(),
            times: Histogram::new(3).unwrap_or_else(|e| unreachable!("three digits are few: {e}")),
            known: BTreeSet::new(),
            reconnects: 0,
            copies: 0,
            early: 0,
            bulk_failed: 0,
        }
    }

    pub(crate) fn see(&mut self, host: HostId, seen: &RpcSeen) {
        // What contradicts the books is for the model to say.
        let _ = self.ledger.see(host, seen);
        match *seen {
            RpcSeen::Ended { took, .. } => {
                // It grows with its greatest value; times of a scenario fit into 64 bits.
                let _ = self.times.record(nanos(took));
            }
            RpcSeen::State { target, state: ImportState::Full } => {
                self.reconnects += u64::from(!self.known.insert((host, target)));
            }
            _ => {}
        }
    }

    pub(crate) fn died(&mut self, host: HostId) {
        self.ledger.died(host);
        self.known.retain(|(h, _)| *h != host);
    }

    /// What a server has counted in a life.
    pub(crate) fn add(&mut self, stats: &ServerStats) {
        self.copies += stats.folded + stats.answered_again;
        self.early += stats.early;
        self.bulk_failed += stats.bulk_failed;
    }

    /// The figures; `None` where the scenario has no targets.
    pub fn figures(&self) -> Option<RpcFigures> {
        self.any.then(|| RpcFigures {
            answered: self.ledger.answered,
            failed: self.ledger.failed,
            open: self.ledger.open() as u64,
            p50: self.times.value_at_quantile(0.5),
            p99: self.times.value_at_quantile(0.99),
            longest: self.times.max(),
            executed: self.ledger.executed,
            executed_twice: self.ledger.executed_twice,
            lost_writes: self.ledger.lost(),
            reconnects: self.reconnects,
            evictions: self.ledger.invalidated,
            evicted: self.ledger.evicted,
            copies: self.copies,
            early_replies: self.early,
            bulk_failed: self.bulk_failed,
        })
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
