//! Messages that have been everywhere, and wait for news (profile `default`; kernel nodes have no such
//! thing). An attempt that fails at once, because nothing listens or no link is there, costs no time,
//! so all of them together would be over in milliseconds, long before the caller's patience is. So,
//! where no path is left that could be another matter than those the message was tried on:
//!
//! * the attempts that are left are spread over its time: attempt *k* not before *k* shares of it, and
//!   the last one as late as half a share before its end;
//! * further copies of a message in doubt, which go until its deadline, rest for a short time first, and
//!   for twice as long each time; they rest as well where there is no path at all;
//! * news wakes it at once: a link that is back, a rail that is thought better of, a sign of life of
//!   its peer.

use core::time::Duration;

use lnet_types::{Instant, MsgId, NiId, PeerId, PeerNiId};

use crate::below::Doubt;
use crate::check::live;
use crate::msg::{Msg, Role, Stage};
use crate::outbox::Work;
use crate::portal::is_internal;
use crate::router::choose;
use crate::send::select::Tables;
use crate::timers::{Timer, TimerKind};
use crate::{Node, Retries};

/// How long a further copy rests first, and how often that doubles at most: never longer than the share
/// that one attempt has of its time.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_DOUBLINGS: u32 = 16;
/// A sign of life so soon after a failure may be older than the failure: it is no news.
const STALE: Duration = Duration::from_millis(50);

/// What there is news of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    /// A link of ours.
    Link,
    /// The rail to a peer.
    Rail(PeerId),
    /// The peer, which was heard.
    Life(PeerId),
}

impl Tables<'_> {
    /// Until when a message rests whose attempt has just failed; `None` if it need not.
    pub(crate) fn rests_until(&self, now: Instant, msg: &Msg) -> Option<Instant> {
        if msg.until_deadline {
            return self.copy_rests_until(now, msg);
        }
        let Retries::Count(limit) = self.tunables.retries() else { return None };
        let next = msg.retries + 1;
        if !self.tunables.conduct.spreads_attempts
            || msg.role == Role::Forward
            || is_internal(&msg.hdr.kind)
            || self.has_fresh_path(msg, next >= limit)
        {
            return None;
        }
        let at = if next < limit {
            msg.born + self.attempt_time(msg).saturating_mul(next)
        } else {
            self.last_attempt(msg)
        };
        (at > now).then_some(at)
    }

    /// Until when a further copy of a request rests, which goes until its caller's time is over. It rests
    /// where it could only go the ways that copies of it were lost on just now: where a node dies, all its
    /// connections end one after the other, and copies would follow each other into them.
    pub(crate) fn copy_rests_until(&self, now: Instant, msg: &Msg) -> Option<Instant> {
        if msg.retries < 2 || self.may_take_fresh_path(msg) {
            return None;
        }
        Some(self.pause_ends(now, msg))
    }

    /// When a further copy goes again that rests now. Time passes until then in any case: copies that fail at
    /// once would follow each other without an end.
    pub(crate) fn pause_ends(&self, now: Instant, msg: &Msg) -> Instant {
        let doublings = msg.retries.saturating_sub(2).min(PAUSE_DOUBLINGS);
        let pause = PAUSE_MIN.saturating_mul(1 << doublings);
        let end = now + pause.min(self.attempt_time(msg)).max(PAUSE_MIN);
        // Up to its deadline news may help it, and behind it nothing.
        end.min(msg.deadline)
    }

    /// Whether the next copy takes a path that none has taken. Each takes one if its health is no worse: after
    /// as many copies as there are paths, one that looks fresh is one that the choice does not fall on, and
    /// copies that fail at once would follow each other without an end.
    fn may_take_fresh_path(&self, msg: &Msg) -> bool {
        let paths = match msg.tx {
            Some(tx) if tx.routed => choose::hops_to(*self, msg.hdr.dst.net()).count(),
            _ => self.pairs(msg).count(),
        };
        usize::try_from(msg.retries).is_ok_and(|n| n <= paths) && self.has_fresh_path(msg, true)
    }

    /// When an attempt behind which there is no other is made at last.
    fn last_attempt(&self, msg: &Msg) -> Instant {
        let half = self.attempt_time(msg) / 2;
        Instant(msg.deadline.0.saturating_sub(half.as_nanos() as u64))
    }

    /// Whether there is a path that looks usable, and of which the message has not tried both ends. The
    /// last attempt is not for one whose far end is known to be down.
    fn has_fresh_path(&self, msg: &Msg, last: bool) -> bool {
        let current = msg.rail();
        let tried = || msg.tried.iter().chain(&current);
        if msg.tx.is_some_and(|tx| tx.routed) {
            let hops = choose::hops_to(*self, msg.hdr.dst.net());
            return hops.into_iter().any(|hop| !tried().any(|t| t.1 == hop));
        }
        let is_new = |(ni, hop): (NiId, PeerNiId)| {
            !(tried().any(|t| t.0 == ni) && tried().any(|t| t.1 == hop))
        };
        self.pairs(msg).any(|pair| {
            is_new(pair)
                && self.nis.get(pair.0).is_some_and(|ni| !ni.fatal)
                && self.rails.of(pair.0, pair.1) < Doubt::Silent
                && (!last || self.peers.nis.get(pair.1).is_some_and(|pni| pni.port.status_up))
        })
    }
}

impl Node {
    /// Lays a message down that holds nothing any more.
    pub(crate) fn rest(&mut self, now: Instant, id: MsgId, until: Instant) {
        let Some(msg) = live!(mut self.msgs, id) else { return };
        msg.stage = Stage::Resting(now);
        let target = msg.hdr.dst;
        self.msgs.resting.insert(target, id);
        self.timers.set(Timer::Backoff(id), until);
    }

    /// A message rests no more.
    pub(crate) fn end_rest(&mut self, id: MsgId) {
        if let Some(msg) = self.msgs.get_mut(id)
            && let Stage::Resting(_) = msg.stage
        {
            msg.stage = Stage::Moving;
            let target = msg.hdr.dst;
            self.msgs.resting.remove(target, id);
            self.timers.stop(Timer::Backoff(id));
        }
    }

    /// There may be a way again: resting messages go, oldest first. Costs nothing while none rests;
    /// the caller settles.
    #[inline]
    pub(crate) fn notify_resting(&mut self, now: Instant, news: News) {
        if self.timers.count(TimerKind::Backoff) == 0 {
            return;
        }
        let ids: Vec<MsgId> = match news {
            News::Link => self.msgs.resting.all().collect(),
            News::Rail(peer) | News::Life(peer) => self.resting_for(peer).collect(),
        };
        let mut due: Vec<(Instant, MsgId)> = Vec::new();
        for id in ids {
            let Some(msg) = live!(self.msgs, id) else { continue };
            let Stage::Resting(since) = msg.stage else { continue };
            if !matches!(news, News::Life(_)) || now >= since + STALE {
                due.push((msg.born, id));
            }
        }
        due.sort_unstable();
        for (_, id) in due {
            self.end_backoff(id);
        }
    }

    /// The messages that rest for the NIDs of a peer.
    fn resting_for(&self, peer: PeerId) -> impl Iterator<Item = MsgId> + '_ {
        let nis = self.peers.peers.get(peer).into_iter().flat_map(|peer| peer.nis());
        let nids = nis.filter_map(|ni| self.peers.nis.get(ni)).map(|ni| ni.nid);
        nids.flat_map(|nid| self.msgs.resting.of(nid))
    }

    /// Lets a message go whose time has come; the caller settles.
    pub(crate) fn end_backoff(&mut self, id: MsgId) {
        self.end_rest(id);
        self.outbox.plan(Work::Resend(id));
    }
}
