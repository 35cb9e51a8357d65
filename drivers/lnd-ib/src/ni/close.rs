//! The end of connections: what of their messages ends at once, what waits until the adapter is
//! through with the queue pair, and the order in which memory is given back (B-20 to B-23, RS-096).

use super::{IbNi, Timer};
use crate::conn::ConnState;
use crate::fault::CloseReason;
use crate::tx::TxKey;
use crate::value::{CmCall, ConnId, Event, Output};

use lnet_types::{Errno, Instant, Nid};

impl IbNi {
    /// Ends a connection. Transmits that the adapter has nothing to do with end at once; the others
    /// when their work requests have come back, and those whose memory the peer may be writing when
    /// the queue pair is destroyed.
    pub(super) fn close(&mut self, id: ConnId, reason: CloseReason) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.state {
            ConnState::Closing if reason == CloseReason::DeviceGone => return self.destroy(id),
            ConnState::Closing => return,
            ConnState::Up => {}
            _ => return self.attempt_failed(id, reason.errno()),
        }
        conn.state = ConnState::Closing;
        conn.believed = reason.is_innocent();
        let nid = conn.peer;
        let (rxs, txs) = (core::mem::take(&mut conn.rxs), conn.txs.clone());
        conn.served.clear();
        conn.early.clear();
        for queue in [&mut conn.requests, &mut conn.normal, &mut conn.free] {
            queue.clear();
        }
        self.backs.retain(|(conn, ..)| *conn != id);
        *self.stats.closed.entry(reason.name()).or_default() += 1;
        self.outputs.push_back(Output::Cm(CmCall::Disconnect { conn: id }));
        self.report(Event::Closed { nid, reason });
        self.leave_conn(rxs, reason.is_innocent());
        for key in txs {
            if let Some(tx) = self.txs.get_mut(key) {
                let fault = reason.fault(tx.flags, self.config.legacy_status);
                if core::mem::take(&mut tx.flags.queued) {
                    tx.failed.get_or_insert(fault);
                } else if !tx.is_answered() {
                    tx.doom = Some(fault);
                }
            }
            self.finish_if_unreachable(key);
        }
        let until = self.now + self.config.drain;
        self.set_timer(id, Some(until));
        self.left(nid, id, reason.errno());
        if reason == CloseReason::DeviceGone {
            self.destroy(id);
        } else {
            self.drained(id, None);
        }
    }

    /// A peer has one connection less.
    fn left(&mut self, nid: Nid, id: ConnId, errno: Errno) {
        let Some(peer) = self.peers.get_mut(&nid) else { return };
        peer.conns.retain(|conn| *conn != id);
        let last_alive = peer.last_alive;
        if peer.is_alone() && peer.retry_at.is_none() {
            if errno != Errno::OK && errno != Errno::ENETDOWN {
                self.report(Event::PeerDown { nid, last_alive });
            }
            self.forget_peer(nid);
        }
    }

    fn finish_if_unreachable(&mut self, key: TxKey) {
        if self.txs.get(key).is_some_and(|tx| tx.flags.sending == 0 && !tx.is_exposed()) {
            self.finish(key);
        }
    }

    /// Something of a closing connection has come back. With the last of it the queue pair goes.
    pub(super) fn drained(&mut self, id: ConnId, tx: Option<TxKey>) {
        if let Some(key) = tx {
            self.finish_if_unreachable(key);
        }
        let closing = |conn: &crate::conn::Conn| conn.state == ConnState::Closing;
        if self.conns.get(id).is_some_and(|conn| closing(conn) && conn.is_drained()) {
            self.destroy(id);
        }
    }

    /// Destroys the queue pair, then ends what is left of the connection: behind that output the
    /// adapter reaches none of its memory.
    pub(super) fn destroy(&mut self, id: ConnId) {
        self.set_timer(id, None);
        let Some(conn) = self.conns.get(id) else { return };
        if conn.state == ConnState::Closing && !conn.is_drained() {
            self.stats.undrained += 1;
        }
        let (rxs, txs, believed) = (conn.rxs.clone(), conn.txs.clone(), conn.believed);
        self.leave_conn(rxs, believed && !self.stopped);
        self.outputs.push_back(Output::Cm(CmCall::Destroy { conn: id }));
        self.works.retain(|_, (conn, _)| *conn != id);
        for key in txs {
            self.finish(key);
        }
        self.conns.remove(id);
    }

    /// Destroys what a stopped interface has left, without waiting for the adapter.
    pub fn destroy_all(&mut self, now: Instant) {
        self.clock(now);
        if self.stopped {
            for id in self.conns.keys().collect::<Vec<_>>() {
                self.destroy(id);
            }
        }
    }

    /// Ends all connections, attempts and messages.
    pub(super) fn close_all(&mut self, reason: CloseReason) {
        let conns: Vec<ConnId> = self.conns.keys().collect();
        let peers: Vec<Nid> = self.peers.keys().copied().collect();
        if reason != CloseReason::CompletionsLost {
            // Messages that no connection has, nor will get.
            let keys: Vec<TxKey> = self.txs.keys().collect();
            for key in keys {
                if let Some(tx) = self.txs.get(key).filter(|tx| tx.conn.is_none()) {
                    let flags = crate::flags::Flags { queued: true, ..tx.flags };
                    self.fail(key, reason.fault(flags, self.config.legacy_status));
                }
            }
            for nid in &peers {
                if let Some(at) = self.peers.get_mut(nid).and_then(|peer| peer.retry_at.take()) {
                    self.timers.remove(&(at, Timer::Peer(*nid)));
                }
            }
        }
        for id in conns {
            self.close(id, reason);
        }
        for nid in peers {
            self.forget_peer(nid);
        }
    }
}
