//! What an operator asks of a node and waits for: pings and discoveries (behaviour.md 6.9). Each
//! gets a number; its one report is polled by [`Node::poll_report`].

use core::time::Duration;

use lnet_types::{Errno, Instant, MdId, Nid, PeerId, ProcessId};
use lnet_wire::ping::PingInfo;

use crate::api::{Found, OpId, Report};
use crate::internal::PingTo;
use crate::node::OpState;
use crate::peer::cause::Cause;
use crate::portal::owner::Internal;
use crate::record::Input;
use crate::timers::Timer;
use crate::{Event, EventKind, Node};

/// The largest answer that a user's ping takes, bytes (D-81).
const USER_PING_BYTES: u32 = 3960;
/// Time-outs beyond this, and none at all, mean this (D-82).
const USER_PING_TIMEOUT_MAX: Duration = Duration::from_secs(180);

impl Node {
    /// Asks a node for its interfaces (D-81). `timeout` zero or above 180 s means 180 s (D-82).
    pub fn ping(
        &mut self,
        now: Instant,
        target: ProcessId,
        src: Option<Nid>,
        timeout: Duration,
    ) -> OpId {
        self.note(|| Input::Ping { now, target, src, timeout });
        let now = self.clock(now);
        // A ping discovers no peer, but uses what discovery has found.
        let known = self.peers.owner(target.nid).filter(|id| self.is_up_to_date(*id));
        if let Some(id) = known {
            self.query(now, id, Cause::Refresh);
        }
        let op = self.new_op();
        let timeout = match timeout {
            Duration::ZERO => USER_PING_TIMEOUT_MAX,
            t => t.min(USER_PING_TIMEOUT_MAX),
        };
        let to = PingTo { target, src, direct: false };
        // H-60, H-61: its response is tracked as any other.
        let limits = timeout.min(self.tunables.transaction()).into();
        let sent = self.internal_ping(now, to, Internal::UserPing(op), USER_PING_BYTES, limits);
        self.ops.insert(op, OpState { asked: target.nid, md: sent.ok(), error: None });
        self.timers.set(Timer::Op(op), now + timeout);
        if let Err(errno) = sent {
            self.report(op, Err(errno));
        }
        self.settle(now);
        op
    }

    /// Discovers a peer, or again if it is known (D-80).
    pub fn discover(&mut self, now: Instant, nid: Nid, force: bool) -> OpId {
        self.note(|| Input::Discover { now, nid, force });
        let now = self.clock(now);
        let op = self.new_op();
        self.ops.insert(op, OpState { asked: nid, md: None, error: None });
        match self.peer_ni_or_new(None, nid, None) {
            _ if !self.running => self.report(op, Err(Errno::ESHUTDOWN)),
            Err(errno) => self.report(op, Err(errno)),
            Ok(ni) => {
                let id = self.peers.nis.get(ni).map(|n| n.peer);
                if let Some(id) = id
                    && let Some(peer) = self.peers.peers.get_mut(id)
                {
                    peer.disc.waiters.push(op);
                    self.query(now, id, Cause::User { force });
                }
            }
        }
        self.settle(now);
        op
    }

    /// The next report on a ping or discovery.
    #[inline]
    pub fn poll_report(&mut self) -> Option<Report> {
        let report = self.reports.pop_front();
        self.gave_report(report.as_ref());
        report
    }

    fn new_op(&mut self) -> OpId {
        self.op_count += 1;
        OpId(self.op_count)
    }

    fn report(&mut self, op: OpId, outcome: Result<Found, Errno>) {
        if self.ops.remove(&op).is_some() {
            self.timers.stop(Timer::Op(op));
            self.reports.push_back(Report { op, outcome });
        }
    }

    /// A discovery with a waiting caller has ended.
    pub(crate) fn discovered(&mut self, _now: Instant, op: OpId, outcome: Result<PeerId, Errno>) {
        let Some(asked) = self.ops.get(&op).map(|s| s.asked) else { return };
        let found = outcome.and_then(|id| {
            // The NID may belong to another peer by now.
            let id = self.peers.owner(asked).unwrap_or(id);
            let peer = self.peers.peers.get(id).ok_or(Errno::ENOENT)?;
            let nids =
                peer.nis().filter_map(|n| self.peers.nis.get(n)).map(|n| n.nid).collect::<Vec<_>>();
            Ok(Found {
                asked,
                primary: peer.primary,
                multi_rail: peer.is_mr(),
                nids: nids.into_iter().filter(|n| !n.is_loopback()).collect(),
            })
        });
        self.report(op, found);
    }

    /// An event on the descriptor of a user's ping.
    pub(crate) fn user_ping_event(&mut self, op: OpId, event: &Event, bytes: &[u8]) {
        let Some(state) = self.ops.get_mut(&op) else { return };
        match (event.kind, event.status) {
            (EventKind::Send, Ok(())) => {}
            (EventKind::Send, Err(errno)) => {
                // The user gets the first error (D-81); nothing more will come.
                state.error.get_or_insert(errno);
                state.md = None;
                self.abandon(event);
                self.report(op, Err(errno));
            }
            (EventKind::Reply, Ok(())) => {
                let asked = state.asked;
                let outcome = match PingInfo::parse(bytes) {
                    Ok(parsed) if parsed.truncated().is_none() => {
                        let peer = self.peers.owner(asked).and_then(|id| self.peers.peers.get(id));
                        Ok(Found {
                            asked,
                            primary: peer.map_or(asked, |p| p.primary),
                            multi_rail: peer.is_some_and(|p| p.is_mr()),
                            nids: parsed.info.entries.iter().map(|e| e.nid).collect(),
                        })
                    }
                    Ok(_) | Err(_) => Err(Errno::EPROTO),
                };
                self.report(op, outcome);
            }
            (EventKind::Reply, Err(errno)) => self.report(op, Err(errno)),
            (EventKind::Unlink, _) => {
                let errno = state.error.unwrap_or(Errno::EIO);
                self.report(op, Err(errno));
            }
            (EventKind::Put | EventKind::Get | EventKind::Ack, _) => {}
        }
    }

    /// Ends a ping that took too long (D-82).
    pub(crate) fn expire_op(&mut self, now: Instant, op: OpId) {
        let md: Option<MdId> = self.ops.get(&op).and_then(|s| s.md);
        if let Some(md) = md.filter(|md| self.portals.mds.contains_key(*md)) {
            self.response_given_up(md);
            self.unlink_md(now, md);
        }
        // With the GET still in a driver's hands no UNLINK comes now; the user has waited long enough
        // all the same.
        let error = self.ops.get(&op).and_then(|s| s.error).unwrap_or(Errno::EIO);
        self.report(op, Err(error));
    }
}
