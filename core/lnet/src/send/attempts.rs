//! How often a message goes: whether a failed attempt is followed by another one (behaviour.md 5.4,
//! DEC-6, DEC-7, DEC-11).
//!
//! Which paths are left is counted in `paths.rs`; which one the next attempt takes is chosen in
//! `select.rs`, like that of the first.

use lnet_types::{HealthStatus, Instant, MsgId, PeerNiId};

use crate::Node;
use crate::check::live;
use crate::send::again::may_have_arrived;

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: the message has got through, or does not go again.
    End,
    /// Another one, at once.
    Again,
    /// Another one then, or when there is news.
    Rest(Instant),
}

impl Node {
    /// H-20 … H-22.
    pub(crate) fn next_attempt(
        &mut self,
        now: Instant,
        id: MsgId,
        peer_ni: PeerNiId,
        status: HealthStatus,
    ) -> Next {
        let Some(msg) = live!(self.msgs, id) else { return Next::End };
        if msg.tx.is_none() || msg.recovery || msg.no_resend {
            return Next::End;
        }
        // DEC-6: when delivery is unknown, the receiver must detect a duplicate.
        let unsure = may_have_arrived(status);
        if !(self.tunables.resends(status) || unsure && self.can_repeat(msg)) {
            return Next::End;
        }
        if !self.tables().has_alternative(msg, peer_ni, status) {
            return Next::End;
        }
        let (spent, limited) = self.tables().is_spent(msg);
        if spent {
            if limited {
                self.counts.resend_failed();
            }
            return Next::End;
        }
        self.tables().rests_until(now, msg).map_or(Next::Again, Next::Rest)
    }
}
