//! The reference model of the request layer, which knows no resend, no deadline and no connection:
//!
//! - *Must not*: a change is carried out that no client has asked for, or twice; a call is answered by
//!   another's result, or twice; a read misses what was answered before it began; what was answered to
//!   a client that was neither killed nor evicted is gone; a call meets another version of a key than
//!   a plain map has to which changes are applied in order; a call fails for another reason than an
//!   eviction, its own limit or a full store.
//! - *Must*: once the world has been left alone for a while each call ends, and what is begun then
//!   succeeds.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_scenario::{FaultKind, Scenario};
use lnet_types::{Errno, Instant};
use ptlrpc::CallError;

use super::ledger::Ledger;
use super::seen::{CallNo, RpcSeen};
use crate::observe::{Observer, Seen, View};

/// How long after the last fault calls succeed again, and all that are older have ended: a deadline
/// that has grown to some minutes runs out, the next attempts to connect are 50 s apart, and a target
/// that was started again waits for clients that are dead, for nine obd_timeouts at most (P-147).
pub(crate) fn settled_after(scenario: &Scenario) -> Duration {
    Duration::from_secs(400) + scenario.rpc.tunables.obd_timeout * 9
}

/// When nothing of the faults of a scenario is felt any more; `None`: a fault lasts.
pub(super) fn settled_at(scenario: &Scenario) -> Option<Instant> {
    let lasts = |kind: &FaultKind| {
        !matches!(
            kind,
            FaultKind::Reset(_)
                | FaultKind::PeerDel { .. }
                | FaultKind::Tune { .. }
                | FaultKind::Evict { .. }
                // Another node serves its targets.
                | FaultKind::Failover { .. }
        )
    };
    let mut last = Some(Duration::ZERO);
    for fault in &scenario.faults {
        let took = match &fault.kind {
            FaultKind::Failover { after, .. } => *after,
            _ => Duration::ZERO,
        };
        let end = match fault.until {
            None if lasts(&fault.kind) => None,
            until => Some(until.unwrap_or(fault.at).max(fault.at + took)),
        };
        last = last.zip(end).map(|(last, end)| last.max(end));
    }
    last.map(|last| Instant::ZERO + last + settled_after(scenario))
}

/// See the module's head.
pub struct RpcModel {
    ledger: Ledger,
    /// From then on nothing fails; `None`: a fault lasts.
    settled: Option<Instant>,
    /// Calls that were begun after that, and are open.
    late: BTreeSet<CallNo>,
}

impl RpcModel {
    /// The model of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let settled = settled_at(scenario);
        Self { ledger: Ledger::new(scenario), settled, late: BTreeSet::new() }
    }
}

/// Why calls may fail. The books say of a call that was refused that nothing was changed.
fn is_allowed(e: CallError) -> bool {
    let full = CallError::Refused(Errno::ENOSPC);
    matches!(e, CallError::Evicted | CallError::LimitPassed) || e == full
}

impl Observer for RpcModel {
    fn name(&self) -> &'static str {
        "rpc-model"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match *seen {
            Seen::Rpc { host, seen } => {
                self.ledger.see(host, seen)?;
                match seen {
                    RpcSeen::Called { call, .. }
                        if self.settled.is_some_and(|at| view.now >= at) =>
                    {
                        self.late.insert(*call);
                    }
                    RpcSeen::Ended { call, result: Err(e), .. } if !is_allowed(*e) => {
                        let name = view.name(host);
                        return Err(format!("{name}: call {call} failed: {e}"));
                    }
                    RpcSeen::Ended { call, result, .. } => {
                        if let (true, Err(e)) = (self.late.remove(call), result) {
                            let name = view.name(host);
                            return Err(format!("{name}: call {call} failed in peace: {e}"));
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
            Seen::Died { host } => {
                self.ledger.died(host);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        if let Some((call, target)) = self.ledger.first_lost() {
            return Err(format!("the change of call {call} was answered, and {target} lost it"));
        }
        let peace = self.settled.is_some_and(|at| view.now >= at);
        match self.ledger.first_open() {
            Some((call, host)) if peace => {
                let (name, all) = (view.name(host), self.ledger.open());
                Err(format!("{name}: call {call} has no end, {all} in all"))
            }
            _ => Ok(()),
        }
    }
}
