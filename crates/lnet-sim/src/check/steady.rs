//! What holds at every moment: health in its bounds, no storm of control traffic, memory bounded.

use super::Bounds;
use crate::observe::{Observer, Seen, View, is_control};

/// Health is never outside of 0 to 1000.
pub(super) struct Health;

impl Observer for Health {
    fn name(&self) -> &'static str {
        "health"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match *seen {
            Seen::Health { host, nid, to, .. } if to > lnet::HEALTH_MAX => {
                Err(format!("{}: health {to} of {nid}", view.name(host)))
            }
            _ => Ok(()),
        }
    }
}

/// No node sends more control messages in a second than it has peers and interfaces, times a bound.
pub(super) struct ControlTraffic {
    bounds: Bounds,
    /// Per host: the current second, and control messages in it.
    seconds: Vec<(u64, u64)>,
}

impl ControlTraffic {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, seconds: Vec::new() }
    }
}

impl Observer for ControlTraffic {
    fn name(&self) -> &'static str {
        "control-traffic"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let Seen::Sent { host, transmit, .. } = *seen else { return Ok(()) };
        if !is_control(transmit) {
            return Ok(());
        }
        if self.seconds.len() < view.hosts.len() {
            self.seconds.resize(view.hosts.len(), (0, 0));
        }
        let (second, count) = &mut self.seconds[host.0 as usize];
        if *second != view.now.as_secs() {
            (*second, *count) = (view.now.as_secs(), 0);
        }
        *count += 1;
        // Whom it may have to do with: everybody, a few times; whoever comes back is met by all anew,
        // and pinged back to health.
        let everybody = view.hosts.len() as u64 * 12;
        if *count > self.bounds.control_per_second + everybody {
            let name = view.name(host);
            return Err(format!("{name}: {count} control messages within one second"));
        }
        Ok(())
    }
}

/// Drivers hold a bounded number of messages.
pub(super) struct Memory {
    bounds: Bounds,
}

impl Memory {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds }
    }
}

impl Observer for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match seen {
            Seen::Sample if view.in_hand > self.bounds.in_hand_max => {
                Err(format!("drivers hold {} messages", view.in_hand))
            }
            _ => Ok(()),
        }
    }
}
