//! The watchdog: a request that is being served for far longer than its service is estimated to take
//! is reported, once (P-127). Nothing is done to it: its client has early replies, and a deadline.

use core::time::Duration;

use super::Server;
use crate::common::Cx;
use crate::event::{Event, Stuck};
use crate::table::ServedId;
use crate::timers::Timer;
use crate::tunables::Tunables;

/// How long a request may be served before it is reported.
fn patience(estimate: Duration, tunables: &Tunables) -> Duration {
    estimate.max(tunables.obd_timeout).saturating_mul(tunables.at_unhealthy_factor)
}

impl Server {
    /// A request is being served from now on.
    pub(super) fn guard(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let now = cx.below.now();
        let Some(work) = self.work.get_mut(id) else { return };
        let Some(service) = self.services.get_mut(work.origin.service) else { return };
        work.began = Some(now);
        service.waited.add(now.saturating_since(work.origin.arrival));
        let tunables = &cx.common.tunables;
        let after = patience(service.estimate.get(&tunables.bounds()), tunables);
        cx.common.timers.set(Timer::Watchdog(id), now + after);
    }

    /// A request is served for too long.
    pub(crate) fn watchdog_due(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let Some(work) = self.work.get(id) else { return };
        let Some(service) = self.services.get(work.origin.service) else { return };
        let client = self.exports.get(work.export).map(|export| export.client.clone());
        let stuck = Stuck {
            service: work.origin.service,
            name: service.config.name.clone(),
            client: client.unwrap_or_default(),
            opcode: work.body.opcode,
            xid: work.origin.xid,
            served: work.began.map_or(Duration::ZERO, |at| cx.below.now().saturating_since(at)),
        };
        self.stats.stuck += 1;
        cx.common.events.push_back(Event::Stuck(Box::new(stuck)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p127_patience_is_three_times_the_estimate_and_at_least_three_times_obd_timeout() {
        let (t, secs) = (Tunables::default(), Duration::from_secs);
        assert_eq!(patience(secs(5), &t), secs(300));
        assert_eq!(patience(secs(250), &t), secs(750));
    }
}
