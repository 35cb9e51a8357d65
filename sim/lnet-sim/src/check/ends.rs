//! How messages end: each operation once, each delivery at most once, with the right bytes.

use core::time::Duration;
use std::collections::BTreeMap;

use lnet::EventKind;
use lnet_scenario::Transport;
use lnet_types::Instant;

use super::Bounds;
use crate::arrivals::Arrivals;
use crate::directory::HostId;
use crate::host::lnd_timeout;
use crate::observe::{BufferId, Observer, Seen, View};

/// Each free-floating descriptor gets exactly one SEND, exactly one last event, and that in time.
pub(super) struct OneEnd {
    bounds: Bounds,
    /// Descriptors that live: whose, since when, and whether their SEND was seen.
    alive: BTreeMap<BufferId, (HostId, Instant, bool)>,
}

impl OneEnd {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, alive: BTreeMap::new() }
    }

    /// The time limit of an operation on a host. Where kernel clocks rule a driver has its own for
    /// what it holds, and what waits for a credit waits for what a driver holds: one round after the
    /// other, at worst as many as the node has ever had messages in hand.
    fn limit(&self, view: &View<'_>, host: HostId) -> Duration {
        let Some(host) = view.host(host) else { return self.bounds.late_max };
        let transaction = host.node.tunables().transaction();
        let clock = view.scenario.world.nets.iter().filter_map(|net| net.clocks.timeout).max();
        let waits = match lnd_timeout(&host.node, clock) {
            None => transaction * 2,
            Some(driver) => {
                (transaction + driver).saturating_mul(host.node.stats().msgs_max.max(2))
            }
        };
        waits + self.bounds.late_max
    }
}

impl Observer for OneEnd {
    fn name(&self) -> &'static str {
        "one-end"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match *seen {
            Seen::Posted { host, buffer, floating: true } => {
                self.alive.insert(buffer, (host, view.now, false));
            }
            Seen::Event { host, buffer, event } => {
                let Some((_, _, sent)) = self.alive.get_mut(&buffer) else { return Ok(()) };
                if event.kind == EventKind::Send {
                    if *sent {
                        let name = view.name(host);
                        return Err(format!("{name}: a second SEND for one operation: {event:?}"));
                    }
                    *sent = true;
                }
                if event.unlinked {
                    self.alive.remove(&buffer);
                }
            }
            Seen::Died { host } => self.alive.retain(|_, (h, ..)| *h != host),
            Seen::Sample => {
                // The oldest first: numbers are given in order.
                for (host, since, _) in self.alive.values().take(64) {
                    let age = view.now.saturating_since(*since);
                    let held = view.host(*host).is_some_and(|h| h.paused);
                    if !held && age > self.limit(view, *host) {
                        let name = view.name(*host);
                        return Err(format!("{name}: an operation has no end after {age:?}"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// What reaches a program does so once, and as it was sent.
#[derive(Default)]
pub(super) struct OnceAndIntact {
    arrivals: Arrivals,
}

impl Observer for OnceAndIntact {
    fn name(&self) -> &'static str {
        "once-and-intact"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let Seen::Delivered { host, attempt, answer, intact } = *seen else {
            if let Seen::Died { host } = *seen {
                self.arrivals.died(host);
            }
            return Ok(());
        };
        if intact == Some(false) {
            return Err(format!("{}: attempt {} has other bytes", view.name(host), attempt.0));
        }
        if self.arrivals.is_second(host, attempt, answer) {
            // A fabric of datagrams may do that, wherever on the way; streams may not. What an
            // adapter sent, and was never confirmed, goes again (B-20), and is known for a copy
            // where both nodes deduplicate.
            let mut nets = view.scenario.world.nets.iter();
            let all = view.hosts.iter().all(|h| h.node.tunables().suppress_duplicates != 0);
            if nets.any(|net| match net.transport {
                Transport::Datagram => true,
                Transport::Rdma => !all,
                Transport::Stream | Transport::Gni => false,
            }) {
                return Ok(());
            }
            return Err(format!("{}: attempt {} came twice", view.name(host), attempt.0));
        }
        Ok(())
    }
}
