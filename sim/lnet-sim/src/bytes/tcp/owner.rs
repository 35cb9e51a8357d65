//! The side of a connection's holder: bytes in and out, and queries.

use core::net::SocketAddr;

use lnd_sock::Transport;
use lnet_types::{Errno, Prng};

use super::{Cut, End, News, RECV_BUFFER, SEND_BUFFER, State, copy};

impl End {
    /// Gives bytes to the owner, some of those that are there. 0: the end.
    ///
    /// # Errors
    /// Nothing is there (`None`), or the stream is broken.
    pub(in crate::bytes) fn read(
        &mut self,
        rng: &mut Prng,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Option<Errno>> {
        let have = self.inbox.len().min(first.len() + second.len());
        if have == 0 {
            return match (self.error, self.eof) {
                (Some(errno), _) => Err(Some(errno)),
                (None, true) => Ok(0),
                (None, false) if self.state == State::Closed => Err(Some(Errno::ENOTCONN)),
                (None, false) => Err(None),
            };
        }
        let n = self.part(rng, have);
        let into_first = first.len().min(n);
        copy(&self.inbox, 0, &mut first[..into_first]);
        copy(&self.inbox, into_first, &mut second[..n - into_first]);
        self.inbox.drain(..n);
        // Announced when it is worth it, as the other end may wait for room.
        if self.window() >= self.announced + RECV_BUFFER as u64 / 2 {
            self.ack_due = true;
        }
        Ok(n)
    }

    fn part(&mut self, rng: &mut Prng, n: usize) -> usize {
        match &mut self.cut {
            Cut::Whole => n,
            Cut::Crumbs(left) if *left > 0 => {
                *left -= 1;
                n.min(1 + rng.below(7) as usize)
            }
            Cut::Parts | Cut::Crumbs(_) => 1 + rng.below(n as u64) as usize,
        }
    }

    /// Takes bytes from the owner, as many as there is room for, or fewer.
    ///
    /// # Errors
    /// No room (`None`), or the stream is broken.
    pub(in crate::bytes) fn write<'a>(
        &mut self,
        rng: &mut Prng,
        all: usize,
        bytes: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(usize, News), Option<Errno>> {
        if let Some(errno) = self.error {
            return Err(Some(errno));
        }
        match self.state {
            State::Open => {}
            State::SynSent | State::SynReceived => return Err(None),
            State::Closed => return Err(Some(Errno::EPIPE)),
        }
        let room = SEND_BUFFER.saturating_sub(self.outbox.len());
        let most = all.min(room);
        if most == 0 {
            self.full |= all > 0;
            return if all == 0 { Ok((0, News::default())) } else { Err(None) };
        }
        let n = self.part(rng, most);
        let mut left = n;
        for piece in bytes {
            let piece = &piece[..piece.len().min(left)];
            self.outbox.extend(piece);
            left -= piece.len();
        }
        // Fewer than there was room for: nothing else would say that there still is.
        let more = n < all && n < room;
        self.full |= n < all && !more;
        Ok((n, News { readable: false, writable: more }))
    }

    /// How an attempt to connect ended; `None` while it is under way.
    pub(in crate::bytes) fn connected(&self) -> Option<Result<SocketAddr, Errno>> {
        match (self.error, self.state) {
            (Some(errno), _) => Some(Err(errno)),
            (None, State::SynSent) => None,
            (None, State::Closed) => Some(Err(Errno::ENOTCONN)),
            (None, State::SynReceived | State::Open) => Some(Ok(self.local)),
        }
    }

    pub(in crate::bytes) const fn error(&self) -> Option<Errno> {
        self.error
    }

    pub(in crate::bytes) fn unacked(&self) -> u64 {
        self.outbox.len() as u64 + self.broken
    }

    #[cfg(test)]
    pub(super) fn unread(&self) -> usize {
        self.inbox.len()
    }

    pub(in crate::bytes) fn transport(&self) -> Transport {
        let unacked = self.unacked();
        let sent = (self.next - self.una).saturating_sub(u64::from(self.fin_sent)).min(unacked);
        Transport {
            unacked,
            unsent: unacked - sent,
            window: self.edge.saturating_sub(self.una),
            rtt: self.trips.smooth,
            rtt_min: self.trips.least,
            // This stack does not delay acknowledgements.
            segment: 0,
            sent: self.sent,
            resent: self.resent,
        }
    }
}
