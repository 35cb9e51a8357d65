//! Deadlines of messages (H-30, H-31, DEC-10).

use core::time::Duration;

use lnet_types::{Instant, NiId};

use crate::Retries;
use crate::msg::{Msg, Role};
use crate::send::select::Tables;

impl Tables<'_> {
    /// H-30, H-31, DEC-10.
    #[inline]
    pub(crate) fn deadline_of(&self, now: Instant, msg: &Msg, ni: NiId) -> Instant {
        match msg.limit {
            // As long as its caller waits for the answer.
            _ if msg.until_deadline => msg.deadline,
            Some(limit) => msg.born + limit,
            None if self.tunables.conduct.deadline_per_attempt => self.deadline_from(now, ni),
            // The age of a message that passes through is not known here (H-31).
            None if msg.role == Role::Forward => now + self.tunables.forward_limit(),
            None => msg.born + self.tunables.transaction(),
        }
    }

    /// When a message that is born now on `ni` is late.
    #[inline]
    pub(crate) fn deadline_from(&self, now: Instant, ni: NiId) -> Instant {
        let t = self.tunables;
        if t.conduct.deadline_per_attempt
            && let Some(lnd) = self.nis.get(ni).and_then(|ni| ni.lnd_timeout)
            && let Retries::Count(n) = t.retries()
        {
            return now + lnd * (n + 1) + Duration::from_secs(1);
        }
        now + t.transaction()
    }
}
