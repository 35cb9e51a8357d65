//! Rail suspicion (DEC-31), as the driver of sockets has it: what was written and is not
//! acknowledged in time, or a connection attempt that is not answered or fails, makes a rail silent. A
//! doubted rail is asked to prove itself, with connection attempts if it has no connection; when it
//! carries again it is trusted, and after a minute without traffic it is left alone.

use core::time::Duration;

use lnet::{Doubt, InDoubt};
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
        if stalled || dialing {
            self.doubt(cx, pair, end);
        }
    }

    /// Nothing gets through, as far as is known here.
    pub(super) fn doubt(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let p = &mut self.pairs[pair as usize];
        if p.doubted[end].is_some() {
            return;
        }
        (p.doubted[end], p.look[end]) = (Some(cx.now), cx.now + LOOK);
        cx.at(p.look[end], MessageEvent(What::Proof { pair, end: end as u8 }));
        self.judged(cx, pair, end, Doubt::Silent);
    }

    /// Sees to the next look at a rail, if it is doubted. There is one every [`LOOK`], but for those that
    /// could find nothing: while what was written is not acknowledged, an attempt to connect is under way, or
    /// it is too soon for another one. To be called when that is over.
    pub(super) fn look(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let paused = self.is_paused(cx, pair, end);
        let p = &mut self.pairs[pair as usize];
        let Some(since) = p.doubted[end] else { return };
        let forgotten = Instant(since.0 + FORGET.as_nanos() as u64 + 1);
        let from = match p.dial[end] {
            _ if p.open[end] != 0 && !p.dirs[end].stalled.is_empty() => forgotten,
            _ if p.open[end] != 0 || paused => cx.now,
            dial if dial.trying => forgotten,
            dial => dial.not_before.min(forgotten),
        };
        let passed = from.max(Instant(cx.now.0 + 1)).0 - since.0;
        let look = LOOK.as_nanos() as u64;
        let at = Instant(since.0 + passed.div_ceil(look) * look);
        if p.look[end] <= cx.now || at < p.look[end] {
            p.look[end] = at;
            cx.at(at, MessageEvent(What::Proof { pair, end: end as u8 }));
        }
    }

    /// Does it carry again?
    pub(super) fn prove(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let p = &mut self.pairs[pair as usize];
        let Some(since) = p.doubted[end].filter(|_| p.look[end] == cx.now) else { return };
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
        self.look(cx, pair, end);
    }

    /// Takes what an end has written and what has not arrived; it may arrive all the same.
    pub(super) fn take_in_doubt(
        &mut self,
        cx: &Cx<'_, MessageEvent>,
        pair: u32,
        end: usize,
    ) -> Vec<InDoubt> {
        let p = &self.pairs[pair as usize];
        let rail = p.ends[end];
        let to = cx.directory.rail(p.ends[1 - end]).nid;
        let host = self.host_at(cx, pair, end);
        let Some(ni) = host.and_then(|host| cx.hosts[host.0 as usize].ni_of(rail)) else {
            return Vec::new();
        };
        let dir = &p.dirs[end];
        let mut in_doubt = Vec::new();
        for id in dir.flying.iter().chain(&dir.stalled) {
            let parcel = &mut self.parcels[*id];
            if let Some(retention) = parcel.retention.take() {
                let (hdr, payload) = (parcel.hdr, parcel.body.to_payload());
                in_doubt.push(InDoubt { ni, to, hdr, payload, retention });
            }
        }
        in_doubt.sort_by_key(|message| message.retention.born);
        in_doubt
    }

    /// A connection ends: what it leaves in doubt goes back to the node.
    pub(super) fn hand_back(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let in_doubt = self.take_in_doubt(cx, pair, end);
        if in_doubt.is_empty() {
            return;
        }
        let Some(host) = self.host_at(cx, pair, end) else { return };
        let now = cx.now;
        let host = cx.host(host);
        host.node.tx_in_doubt(host.clock.local(now), in_doubt);
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
