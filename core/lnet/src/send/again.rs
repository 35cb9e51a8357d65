//! Sending again: [`Node::again`] is the only way, and each [`Reason`] says what it means for the
//! message. Whether a failed attempt is followed by another one is decided in `attempts.rs`, whether a
//! message that waits or was written would do better elsewhere in `suspicion.rs`, `in_doubt.rs` and
//! `dedup/retransmit.rs`.
//!
//! | reason | attempt | counted | before it goes |
//! | --- | --- | --- | --- |
//! | `Failed` | yes | when it has a path | may rest |
//! | `Unanswered` | yes | when it has a path | each but the first may rest |
//! | `Begun` | yes | when it has a path | a twin is made, which goes in its place |
//! | `InDoubt` | yes | when it has a path | |
//! | `Unsent` | no | as moved | |
//! | `Unbound` | no | no | |
//!
//! An attempt adds to `retries` and to the paths tried. Where the message may have arrived, its next
//! copy is marked as a further one. A message that leaves in doubt (`Unanswered`, `Begun`, `InDoubt`) has not
//! failed: from then on it goes until its deadline, as `Tables::is_spent` has it.

use lnet_types::{HealthStatus, Instant, MsgId, NiId, PeerNiId};

use crate::Node;
use crate::msg::{Role, Stage};
use crate::outbox::Work;
use crate::portal::md::Written;

/// Why a message is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// Its attempt has failed (H-23). It goes at once, or rests until then.
    Failed { status: HealthStatus, rest: Option<Instant> },
    /// It was written over this rail, and is in doubt before its answer came.
    Unanswered { rail: Option<(NiId, PeerNiId)> },
    /// Its driver has begun with it and does not give it back.
    Begun,
    /// Its driver has handed it back after it was written over this rail.
    InDoubt { rail: Option<(NiId, PeerNiId)> },
    /// Nothing of it was written, and another rail is better.
    Unsent,
    /// The interface or gateway whose credit it waited for is out of the question.
    Unbound,
}

impl Reason {
    /// Whether the message leaves as a further copy although no attempt of it has failed.
    const fn is_doubt(self) -> bool {
        matches!(self, Self::Unanswered { .. } | Self::Begun | Self::InDoubt { .. })
    }
}

/// Whether a message may have arrived whose attempt has failed so.
pub(crate) const fn may_have_arrived(status: HealthStatus) -> bool {
    matches!(status, HealthStatus::NetworkTimeout | HealthStatus::RemoteTimeout)
}

impl Node {
    /// Sends a message again: it gives back what it holds, and goes when the work list gets to it, or
    /// when it has rested.
    pub(crate) fn again(&mut self, now: Instant, id: MsgId, reason: Reason) {
        let Some(msg) = self.msgs.get_mut(id) else { return };
        let bound = msg.rail();
        let (id, attempt) = match reason {
            Reason::Begun => (self.make_twin(id), Some((HealthStatus::NetworkTimeout, bound))),
            Reason::Failed { status, .. } => (Some(id), Some((status, bound))),
            Reason::Unanswered { rail } | Reason::InDoubt { rail } => {
                (Some(id), Some((HealthStatus::NetworkTimeout, rail)))
            }
            Reason::Unsent | Reason::Unbound => (Some(id), None),
        };
        let Some(id) = id else { return };
        self.return_credits(id);
        let Some(msg) = self.msgs.get_mut(id) else { return };
        msg.stage = Stage::Moving;
        msg.until_deadline |= reason.is_doubt();
        if let Some((status, rail)) = attempt {
            msg.failed = Some(status);
            msg.retries += 1;
            msg.goes_again = true;
            msg.tried.extend(rail);
            if may_have_arrived(status)
                && let Some(numbered) = &mut msg.numbered
            {
                numbered.note_unsure();
            }
        }
        let rest = match reason {
            Reason::Failed { rest, .. } => rest,
            Reason::Unanswered { .. } => {
                self.msgs.get(id).and_then(|msg| self.tables().copy_rests_until(now, msg))
            }
            _ => None,
        };
        if let Some(until) = rest {
            return self.rest(now, id, until);
        }
        if let Reason::Unsent = reason {
            self.rails.count_moved();
        }
        let failed = matches!(reason, Reason::Failed { .. });
        self.outbox.plan(if failed { Work::Resend(id) } else { Work::Depart(id) });
    }

    /// Makes the twin of a message, which uses its descriptor too and whose answer is waited for in its
    /// place.
    pub(crate) fn make_twin(&mut self, id: MsgId) -> Option<MsgId> {
        let twin = self.msgs.get_mut(id)?.twin();
        let (md, is_copy, numbered) = (twin.md, twin.role == Role::Copy, twin.numbered);
        self.free_credits(id);
        let new = self.msgs.insert(twin);
        self.msgs.copies.replaced(id, new, numbered);
        if let Some(md) = md.and_then(|md| self.portals.mds.get_mut(md)) {
            md.refs += 1;
            if let Some(tracker) = md.tracker.as_mut().filter(|_| is_copy) {
                let due = Instant::FAR_FUTURE;
                tracker.written = Some(Written { msg: new, rail: None, due });
            }
        }
        Some(new)
    }
}
