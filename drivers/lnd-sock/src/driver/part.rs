//! Connections that part from their peer: nothing goes out by them any more, what they held for it ends as
//! when they are closed, and they are read to their end. What our system has acknowledged, the peer counts as
//! delivered: to close a connection with it unread would lose it in silence.
//!
//! A broken stream ends behind what has arrived. Any other gets its end of file, and a peer answers that by
//! closing its end. How messages are read is in `receive.rs`.

use core::time::Duration;

use lnet_types::Instant;

use super::SockDriver;
use super::conn::Parted;
use crate::error::Why;
use crate::peer::ConnKey;
use crate::streams::Streams;
use crate::upper::Upper;

/// How long the end of a stream is waited for.
const LINGER: Duration = Duration::from_secs(1);

impl<S: Streams> SockDriver<S> {
    /// Ends a connection for its peer and reads it to its end. `reset`: it stays as it is meanwhile, and
    /// ends with a reset; so nothing is read that comes later.
    pub(super) fn part_conn<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        why: Why,
        reset: bool,
        up: &mut U,
    ) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (stream, ni, in_backlog) = (conn.stream, conn.ni, conn.in_backlog || conn.in_verify);
        let held = conn.up().is_some_and(|state| state.deferred.is_some());
        // One that is to be reset waits for no end of file: only what is known to be there is read.
        let is_unread = held || in_backlog || !reset;
        let Some(state) = conn.up_mut().filter(|_| why.leaves_to_read() && is_unread) else {
            return self.close_conn(now, key, why, reset, up);
        };
        if state.parted.is_some() {
            return;
        }
        state.parted = Some(Parted { reset });
        let outgoing = state.take_outgoing(ni);
        if !reset {
            self.streams.finish(stream);
        }
        // A message that waits for a buffer may do so for as long as any.
        let limit = if held { self.timeout(ni) } else { LINGER };
        self.set_conn_timer(key, now + limit);
        self.look_again(key);
        self.ended(now, key, outgoing, why, up);
    }
}
