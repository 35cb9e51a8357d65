//! What holds at every moment: health in its bounds, memory bounded.

use super::Bounds;
use crate::observe::{Observer, Seen, View};

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
