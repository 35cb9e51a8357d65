//! How often a message goes: whether a failed attempt is followed by another one (behaviour.md 5.4,
//! DEC-6, DEC-7, DEC-11).
//!
//! Which paths are left is counted in `paths.rs`; which one the next attempt takes is chosen in
//! `select.rs`, like that of the first.

use lnet_types::{HealthStatus, Instant, PeerNiId};

use crate::msg::Msg;
use crate::send::again::may_have_arrived;
use crate::send::select::Tables;

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: the message has got through, or does not go again.
    End,
    /// Nothing: the limit of attempts is reached.
    Spent,
    /// Another one, at once.
    Again,
    /// Another one then, or when there is news.
    Rest(Instant),
}

impl Tables<'_> {
    /// What follows an attempt that has failed with `status` (H-20 … H-22). `can_repeat`: the receiver
    /// detects a duplicate (DEC-6), which matters where delivery is unknown.
    pub(crate) fn next_attempt(
        &self,
        now: Instant,
        msg: &Msg,
        (peer_ni, status): (PeerNiId, HealthStatus),
        can_repeat: impl Fn() -> bool,
    ) -> Next {
        if msg.tx.is_none() || msg.recovery || msg.no_resend {
            return Next::End;
        }
        if !(self.tunables.resends(status) || may_have_arrived(status) && can_repeat()) {
            return Next::End;
        }
        // What is in doubt goes until its deadline, over its only rail too.
        if !msg.until_deadline && !self.has_alternative(msg, peer_ni, status) {
            return Next::End;
        }
        match self.is_spent(msg) {
            (true, true) => Next::Spent,
            (true, false) => Next::End,
            (false, _) => self.rests_until(now, msg).map_or(Next::Again, Next::Rest),
        }
    }
}
