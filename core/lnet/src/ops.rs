//! Reports on what an operator asks of a node and waits for: pings and discoveries (behaviour.md 6.9).
//! Each gets a number when it begins (`entry/peers.rs`), and one report, which is polled by
//! [`Node::poll_report`].

use lnet_types::{Errno, Instant, Nid, PeerId};
use lnet_wire::ping::PingInfo;

use crate::api::{Found, OpId, Report};
use crate::timers::Timer;
use crate::{Event, EventKind, Node};

impl Node {
    /// The next report on a ping or discovery.
    #[inline]
    pub fn poll_report(&mut self) -> Option<Report> {
        let report = self.outbox.next_report();
        self.gave_report(report.as_ref());
        report
    }

    /// The primary NID of a peer to which a connection has ended out of order: what was written to it may
    /// be lost, and the process behind it may be another one. Several connections of a peer that end
    /// together are one.
    #[inline]
    pub fn poll_lost_connection(&mut self) -> Option<Nid> {
        self.outbox.next_lost_connection()
    }

    pub(crate) fn report(&mut self, op: OpId, outcome: Result<Found, Errno>) {
        if self.ops.close(op) {
            self.timers.stop(Timer::Op(op));
            self.outbox.report(Report { op, outcome });
        }
    }

    /// A discovery with a waiting caller has ended.
    pub(crate) fn discovered(&mut self, _now: Instant, op: OpId, outcome: Result<PeerId, Errno>) {
        let Some(asked) = self.ops.get(op).map(|s| s.asked) else { return };
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
        let Some(state) = self.ops.get_mut(op) else { return };
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
}
