//! Rail suspicion (DEC-31), as the driver of sockets has it: what was written and is not acknowledged
//! in time, or a connection attempt that is not answered, makes a rail silent. A doubted rail is
//! asked to prove itself, with connection attempts if it has no connection; when it carries again it
//! is trusted, and when nobody has wanted it for a minute it is left alone.

use core::time::Duration;

use lnet::Doubt;
use lnet_types::Instant;

use super::{MessageEvent, Messages, What};
use crate::fabric::Cx;

/// From one look at a doubted rail to the next.
const LOOK: Duration = Duration::from_millis(100);
/// A doubted rail is left alone after that.
const FORGET: Duration = Duration::from_secs(60);

impl Messages {
    /// Something has begun that should not take long.
    pub(super) fn watch(&self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let Some(host) = self.host_at(cx, pair, end) else { return };
        let tunables = cx.hosts[host.0 as usize].node.tunables();
        if tunables.rail_suspicion == 0 {
            return;
        }
        let way = self.way(cx, pair, end);
        let least = Duration::from_millis(tunables.suspect_after_min as u64);
        let limit = least.max(way.latency * 2 * tunables.suspect_after_rtts as u32);
        let since = cx.now;
        cx.at(since + limit, MessageEvent(What::Suspect { pair, end: end as u8, since }));
    }

    /// It has taken long.
    pub(super) fn suspect(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        end: usize,
        since: Instant,
    ) {
        let p = &mut self.pairs[pair as usize];
        let stalled = !p.dirs[end].stalled.is_empty() && p.dirs[end].stalled_since == since;
        let dialing = p.dial[end].trying && p.dial[end].since == since;
        if p.doubted[end].is_some() || !(stalled || dialing) {
            return;
        }
        p.doubted[end] = Some(cx.now);
        let at = cx.now + LOOK;
        cx.at(at, MessageEvent(What::Proof { pair, end: end as u8 }));
        self.judged(cx, pair, end, Doubt::Silent);
    }

    /// Does it carry again?
    pub(super) fn prove(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let p = &mut self.pairs[pair as usize];
        let Some(since) = p.doubted[end] else { return };
        let well = p.open[end] != 0 && p.dirs[end].stalled.is_empty();
        if well || cx.now > since + FORGET {
            p.doubted[end] = None;
            return self.judged(cx, pair, end, Doubt::None);
        }
        let idle = p.open[end] == 0;
        let Some(host) = self.host_at(cx, pair, end) else {
            self.pairs[pair as usize].doubted[end] = None;
            return;
        };
        if idle && !cx.hosts[host.0 as usize].paused {
            // Too soon after the last attempt: at a later look.
            let _ = self.want(cx, pair, end);
        }
        let at = cx.now + LOOK;
        cx.at(at, MessageEvent(What::Proof { pair, end: end as u8 }));
    }

    fn judged(&self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize, doubt: Doubt) {
        let Some(host) = self.host_at(cx, pair, end) else { return };
        let ends = self.pairs[pair as usize].ends;
        let nid = cx.directory.rail(ends[1 - end]).nid;
        let now = cx.now;
        let host = cx.host(host);
        if let Some(ni) = host.ni_of(ends[end]) {
            host.node.rail_changed(host.clock.local(now), ni, nid, doubt);
        }
    }
}
