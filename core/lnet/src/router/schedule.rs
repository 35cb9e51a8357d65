//! When the state of a router, or of one of its interfaces, changes by itself.

use core::time::Duration;

use lnet_types::Instant;

use super::Router;
use crate::Tunables;
use crate::local::Interfaces;
use crate::router::RoutingState;
use crate::timers::{Timer, Timers};

/// A router that does not become quiet is stopped all the same after this many times as long
///
const STOP_PATIENCE: u32 = 3;

impl Router {
    /// Sets the router's timer: whenever it may be due earlier than it was. Where something heard, or a
    /// message that has come, makes it later, it finds nothing to do and is set again.
    pub(crate) fn arm(&self, timers: &mut Timers, nis: &Interfaces, t: &Tunables) {
        let at = self.next_change(nis, t).unwrap_or(Instant::FAR_FUTURE);
        timers.set(Timer::Router, at);
    }

    /// When the state of the router, or of one of its interfaces, changes by itself.
    pub(super) fn next_change(&self, nis: &Interfaces, t: &Tunables) -> Option<Instant> {
        let state = match self.state {
            RoutingState::Disabled => return None,
            RoutingState::Enabled => None,
            RoutingState::Starting => Some(self.since + silence_limit(t).unwrap_or_default()),
            RoutingState::Stopping => {
                let grace = stop_grace(t);
                let idle = self.pools.iter().all(|p| p.is_idle());
                let after = if idle { grace } else { grace * STOP_PATIENCE };
                Some(self.since + after)
            }
        };
        state.into_iter().chain(next_ageing(nis, t).map(|a| a.0)).min()
    }
}

/// The network that has been silent longest, and when that is too long.
pub(super) fn next_ageing(nis: &Interfaces, t: &Tunables) -> Option<(Instant, usize)> {
    let limit = silence_limit(t)?;
    nis.nets()
        .iter()
        .enumerate()
        .filter(|(_, n)| {
            let own = n.nis.iter().filter_map(|id| nis.get(*id));
            own.filter(|ni| !ni.is_loopback()).any(|ni| !ni.aged)
        })
        .map(|(at, n)| (n.last_alive + limit, at))
        .min()
}

/// How long nothing may be heard on a network before its interfaces count as down (R-40, PA-069):
/// the longest time between two pings of those who use us, and the time that one may take.
fn silence_limit(t: &Tunables) -> Option<Duration> {
    if t.alive_router_check_interval <= 0 {
        return None;
    }
    let interval = if !t.conduct.separates_check_intervals {
        t.alive_router_check_interval
    } else {
        t.alive_router_check_interval
            .max(t.live_router_check_interval)
            .max(t.dead_router_check_interval)
    };
    Some(Duration::from_secs((interval + t.router_ping_timeout) as u64))
}

/// How long peers have to turn to other routers.
fn stop_grace(t: &Tunables) -> Duration {
    match t.routing_stop_time {
        0 => silence_limit(t).unwrap_or_default(),
        secs => Duration::from_secs(secs as u64),
    }
}
