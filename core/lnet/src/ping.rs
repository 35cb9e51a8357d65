//! The node's own ping data: what peers read when they ping us and receive when we push
//! (behaviour.md 6.1). Rebuilt whenever an interface comes, goes or changes its status.

use std::sync::Arc;

use lnet_types::{Instant, Nid, Pid, ProcessId};
use lnet_wire::ping::{Features, NiStatus, PingEntry, PingInfo};

use crate::peer::cause::Cause;
use crate::portal::md::{Md, MdBuf};
use crate::portal::owner::{Internal, Owner};
use crate::portal::{PING_BITS, PING_BYTES_MAX, RESERVED_PORTAL};
use crate::timers::Timer;
use crate::{MatchEntry, MdOptions, Node, Position, Unlink};

/// Changes of links that are announced at once: with the third fall they count it as flapping ...
const ANNOUNCE_BURST: u32 = 6;
/// ... and of how many per second where there were more.
const ANNOUNCE_RATE: u32 = 1;

impl Node {
    /// Posts the buffers for pings and pushes (D-8). Once, at the start.
    pub(crate) fn post_ping_targets(&mut self) {
        let me = MatchEntry {
            from: ProcessId { nid: Nid::ANY, pid: Pid::ANY },
            match_bits: PING_BITS,
            ignore_bits: 0,
            unlink: Unlink::Retain,
            position: Position::After,
        };
        let target = Md::new(
            MdBuf::Bytes(Arc::from([])),
            None,
            MdOptions::OP_GET | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE,
            Owner::Internal(Internal::PingTarget),
            false,
        );
        let push = Md::new(
            MdBuf::Collect(self.push_bytes),
            None,
            MdOptions::OP_PUT | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE,
            Owner::Internal(Internal::PushTarget),
            false,
        );
        // Portal 0 is empty at this point, so neither can fail; without them no peer could ping us.
        self.ping_md = self.portals.attach_md(RESERVED_PORTAL, me, target).ok();
        self.push_md = self.portals.attach_md(RESERVED_PORTAL, me, push).ok();
    }

    /// Makes room for larger pushes (D-36, D-53).
    pub(crate) fn grow_push_buffer(&mut self, need: u32) {
        let need = need.min(PING_BYTES_MAX);
        if need > self.push_bytes {
            self.push_bytes = need;
            if let Some(md) = self.push_md.and_then(|md| self.portals.mds.get_mut(md)) {
                md.buf = MdBuf::Collect(need);
                md.len = u64::from(need);
            }
        }
    }

    /// Builds the ping data anew, under the next sequence number (D-7).
    pub(crate) fn rebuild_ping(&mut self) {
        self.ping_seq = self.ping_seq.wrapping_add(1);
        self.refresh_ping();
    }

    /// Builds the ping data anew under the same sequence number: feature bits or statuses changed.
    pub(crate) fn refresh_ping(&mut self) {
        for ni in self.nis.values_mut() {
            ni.announced_up = ni.is_up();
        }
        let nis = self.nets.iter().flat_map(|n| &n.nis).filter_map(|id| self.nis.get(*id));
        let entries = nis
            .filter(|ni| !ni.is_loopback())
            .map(|ni| PingEntry {
                nid: ni.nid,
                status: if ni.announced_up { NiStatus::UP } else { NiStatus::DOWN },
            })
            .collect();
        let mut features = Features::NI_STATUS | Features::MULTI_RAIL;
        features.set(Features::RTE_DISABLED, self.routing_state() != crate::RoutingState::Enabled);
        if self.tunables.discovery != 0 {
            features |= Features::DISCOVERY;
        }
        features.set(Features::DEDUPLICATES, self.tunables.deduplicates());
        let info = PingInfo { features, pid: Pid::LUSTRE, seq: self.ping_seq, entries };
        let bytes: Arc<[u8]> = info.emit().into();
        if let Some(md) = self.ping_md.and_then(|md| self.portals.mds.get_mut(md)) {
            md.len = bytes.len() as u64;
            md.buf = MdBuf::Bytes(bytes.clone());
        }
        self.ping_bytes = bytes;
    }

    /// Decides whether a change of a link is announced at once (H-92). Announcements for a flapping
    /// link are limited to one per second, since each costs a message to every peer; kernel nodes
    /// announce all changes.
    pub(crate) fn announce_link(&mut self, now: Instant) -> bool {
        if self.timers.at(Timer::Announce).is_some_and(|at| at > now) {
            return false;
        }
        let at = match self.announce_budget.take(now, 1, ANNOUNCE_BURST, ANNOUNCE_RATE) {
            Err(until) if self.tunables.conduct.limits_announcements => until,
            Ok(()) | Err(_) => now,
        };
        self.timers.set(Timer::Announce, at);
        at == now
    }

    /// Pushes our data to peers that lack them (D-60); with `force` also to those that have them, unless
    /// discovery is off.
    pub(crate) fn push_to_peers(&mut self, now: Instant, force: bool) {
        let force = force && self.tunables.discovery != 0;
        self.query_all(now, Cause::Changed { force });
    }

    /// Announces the links that have come or gone.
    pub(crate) fn announce_links(&mut self, now: Instant) {
        if self.tunables.conduct.reports_status_in_place && self.router.is_on() {
            // H-92: a kernel router changes its status in place.
            self.refresh_ping();
            self.push_to_peers(now, true);
        } else {
            self.announce(now, false);
        }
    }

    /// Announces a changed status of interfaces to peers (H-92).
    pub(crate) fn announce(&mut self, now: Instant, force: bool) {
        self.rebuild_ping();
        self.push_to_peers(now, force);
    }
}
