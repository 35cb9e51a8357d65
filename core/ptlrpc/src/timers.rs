//! What waits for a time, ordered by it; one time for each.

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::Instant;

use crate::table::{CallId, ImportId, ServedId, ServiceId, TargetId};

/// What a time is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The deadline of a request that was sent, or the end of a wait before it goes again.
    Call(CallId),
    /// The limit that the caller set, waiting included.
    Limit(CallId),
    /// The next ping, or the next attempt to connect.
    Import(ImportId),
    /// An import that recovers is closed all the same.
    Close(ImportId),
    /// The next early reply.
    Early(ServedId),
    /// The limit of bulk data.
    Bulk(ServedId),
    /// The next request that a policy holds back may go.
    Service(ServiceId),
    /// A client may have been silent for too long.
    Silence,
    /// The window of a recovery is over, or something waits to be done.
    Recovery(TargetId),
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Instant, Timer)>,
    at: BTreeMap<Timer, Instant>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.stop(timer);
        self.at.insert(timer, at);
        self.due.insert((at, timer));
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.due.remove(&(at, timer));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes one that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let &(at, timer) = self.due.first()?;
        if at > now {
            return None;
        }
        self.stop(timer);
        Some(timer)
    }
}
