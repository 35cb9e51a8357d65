//! All that depends on time: deadlines of transmits, of attempts, of drains, and keepalives.

use lnet_types::{Errno, Instant, Nid};
use lnet_wire::ib::{Done, Type};

use super::{Back, IbNi};
use crate::conn::ConnState;
use crate::fault::{CloseReason, UNPOSTED, WAITED};
use crate::tx::{Place, TxKey};
use crate::value::ConnId;

/// What a timer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A transmit that has to be complete.
    Tx(TxKey),
    /// An attempt, a keepalive, a peer's GET without answer, or a drain.
    Conn(ConnId),
    /// An attempt that is to be repeated.
    Peer(Nid),
    /// A look at the rail to a peer.
    Look(Nid),
    /// A look for the device, which was taken away.
    Device,
}

impl IbNi {
    /// When [`handle_timeout`](Self::handle_timeout) is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.clock(now);
        while let Some(&(at, timer)) = self.timers.first() {
            if at > self.now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Tx(key) => self.tx_expired(key),
                Timer::Conn(id) => {
                    if let Some(conn) = self.conns.get_mut(id) {
                        conn.timer = None;
                    }
                    self.conn_expired(id);
                }
                Timer::Peer(nid) => self.retry(nid),
                Timer::Look(nid) => self.look(nid),
                Timer::Device => self.look_for_device(),
            }
        }
    }

    pub(super) fn set_timer(&mut self, id: ConnId, at: Option<Instant>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Some(old) = core::mem::replace(&mut conn.timer, at) {
            self.timers.remove(&(old, Timer::Conn(id)));
        }
        if let Some(at) = at {
            self.timers.insert((at, Timer::Conn(id)));
        }
    }

    /// Sets the timer of a connection in use: the next keepalive, or the end of a peer's GET.
    pub(super) fn set_conn_timer(&mut self, id: ConnId) {
        let keepalive = self.config.keepalive;
        let Some(conn) = self.conns.get(id) else { return };
        let served = conn.served.iter().map(|served| served.until).min();
        let alive = (!keepalive.is_zero()).then(|| conn.last_sent + keepalive);
        let at = served.into_iter().chain(alive).min();
        self.set_timer(id, at);
    }

    /// A transmit is past its deadline (RS-073). A connection that has not let a message go for a whole
    /// LND timeout, or not answered it, is of no use; one that has kept a message with a shorter limit
    /// waiting may be.
    fn tx_expired(&mut self, key: TxKey) {
        let Some(tx) = self.txs.get(key) else { return };
        let unposted = tx.flags.sending == 0 && !tx.flags.waiting;
        // Messages with short limits may come and go while the peer returns no credit at all.
        let blocked = tx.conn.and_then(|id| self.conns.get(id)?.blocked_since);
        let since = blocked.map_or(tx.since, |blocked| blocked.min(tx.since));
        let young = self.now.saturating_since(since) < self.config.timeout;
        match (tx.place, tx.conn) {
            (Place::Peer, _) => self.fail(key, WAITED),
            (Place::Mapping, None) => self.fail(key, UNPOSTED),
            (Place::Mapping, Some(_)) => self.unmappable(key, Errno::ETIMEDOUT),
            (Place::Conn, _) if unposted && young => self.fail(key, UNPOSTED),
            (Place::Conn, Some(conn)) => self.close(conn, CloseReason::Timeout),
            (Place::Conn, None) => self.fail(key, UNPOSTED),
        }
    }

    fn conn_expired(&mut self, id: ConnId) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.state {
            ConnState::Closing => self.destroy(id),
            ConnState::Up => {
                let keepalive = self.config.keepalive;
                if !keepalive.is_zero() && conn.last_sent + keepalive <= now {
                    conn.keepalive = true;
                    // Where no NOOP can go, the next look is due a keepalive later.
                    conn.last_sent = now;
                }
                let (late, rest) =
                    core::mem::take(&mut conn.served).into_iter().partition(|s| s.until <= now);
                conn.served = rest;
                let late: Vec<crate::conn::Served> = late;
                for served in late {
                    self.backs.push((id, served.slot, Back::Credit));
                    let status = Errno::ENODATA.negative();
                    self.refuse(id, Type::GetDone, Done { cookie: served.cookie, status });
                }
                self.pump(id);
                self.set_conn_timer(id);
            }
            _ => self.attempt_failed(id, Errno::ETIMEDOUT),
        }
    }

    /// A message that waited for a connection has one.
    pub(super) fn enqueue_or_launch(&mut self, key: TxKey, id: ConnId) {
        if self.conns.get(id).is_some_and(|conn| conn.state == ConnState::Up) {
            self.enqueue(key, id);
        } else if let Some(peer) = self.txs.get(key).map(|tx| tx.peer) {
            // It ended with one of its first messages.
            self.peer_mut(peer).queue.push_back(key);
        }
    }
}
