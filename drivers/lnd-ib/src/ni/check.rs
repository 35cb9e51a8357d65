//! What holds between any two inputs, for tests.

use super::IbNi;
use super::receive::Pending;
use crate::conn::ConnState;
use crate::tx::Place;

impl IbNi {
    /// Whether the tables agree with each other.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let holds = |what: bool, text: String| what.then_some(()).ok_or(text);
        for (id, conn) in &self.conns {
            let credits = &conn.credits;
            holds(credits.held() <= credits.depth(), format!("{id:?}: {credits:?}"))?;
            holds(credits.reserved() <= credits.depth(), format!("{id:?}: {credits:?}"))?;
            holds(conn.posted_sends <= conn.sends_max, format!("{id:?}: sends beyond the limit"))?;
            let posted = self.works.values().filter(|(conn, _)| *conn == id).count();
            holds(posted == usize::from(conn.posted_sends), format!("{id:?}: {posted} works"))?;
            let queued = conn.requests.iter().chain(&conn.normal).chain(&conn.free);
            for key in queued.clone() {
                let tx = self.txs.get(*key);
                let fits = tx.is_some_and(|tx| tx.flags.queued && tx.conn == Some(id));
                holds(fits, format!("{id:?}: {key:?} in a queue is {tx:?}"))?;
            }
            let flagged =
                conn.txs.iter().filter(|key| self.txs.get(**key).is_some_and(|t| t.flags.queued));
            holds(flagged.count() == queued.count(), format!("{id:?}: queues and flags differ"))?;
            let peer = self.peers.get(&conn.peer);
            let known = match conn.state {
                ConnState::Up => peer.is_some_and(|peer| peer.conns.contains(&id)),
                ConnState::Accepting => peer.is_some_and(|peer| peer.accepting.contains(&id)),
                ConnState::Closing => true,
                _ => peer.is_some_and(|peer| peer.pending == Some(id)),
            };
            holds(known, format!("{id:?} {:?}: unknown to its peer", conn.state))?;
        }
        for (key, tx) in &self.txs {
            if let Some(id) = tx.conn {
                let has = self.conns.get(id).is_some_and(|conn| conn.txs.contains(&key));
                holds(has, format!("{key:?}: not with its connection"))?;
            }
            let waits = self.peers.get(&tx.peer).is_some_and(|p| p.queue.contains(&key));
            holds(waits == (tx.place == Place::Peer), format!("{key:?}: {:?}", tx.place))?;
            let closing =
                tx.conn.and_then(|id| self.conns.get(id)).is_some_and(|c| c.state != ConnState::Up);
            let done = tx.place == Place::Conn && tx.flags.is_complete() && !closing;
            holds(!done, format!("{key:?}: complete and not ended"))?;
        }
        let kept = self.rxs.values().filter(|p| matches!(p, Pending::Kept { .. })).count();
        holds(kept == self.kept, format!("kept {} {kept}", self.kept))?;
        for (rx, pending) in &self.rxs {
            let Some(id) = pending.conn() else { continue };
            let has = self.conns.get(id).is_some_and(|conn| conn.rxs.contains(rx));
            holds(has, format!("{rx:?}: not with {id:?}"))?;
        }
        let accepting = self.conns.values().filter(|c| c.state == ConnState::Accepting).count();
        holds(accepting == self.accepting, format!("accepting {} {accepting}", self.accepting))
    }
}
