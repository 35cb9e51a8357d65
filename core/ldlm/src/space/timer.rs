//! Callback timers (L-46 to L-53): armed with a callback, refreshed by I/O and by further callbacks,
//! ended by the end of the lock or by the eviction of its holder. They are in order of expiry, so that
//! no timer waits for a longer one that was armed before it (DEC-39); whole seconds, rounded up (L-48).

use core::time::Duration;

use lnet_types::Instant;

use super::record::Place;
use super::tree::{self, Part};
use super::{Effect, EvictReason, HolderId, HolderKind, Io, LockView, Namespace, Touched};
use crate::sabotage::Sabotage;
use crate::{Cookie, Kind, Mode};

fn seconds(at: Instant) -> u32 {
    u32::try_from(at.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}

pub(super) fn expiry(seconds: u32) -> Option<Instant> {
    (seconds != 0).then(|| Instant::from_secs(seconds.into()))
}

impl Namespace {
    /// Time from a callback to the eviction of its holder: 1.5 times the estimate, at least
    /// `ldlm_enqueue_min` (L-47).
    pub fn callback_limit(&self, holder: HolderId) -> Duration {
        self.find_holder(holder).map_or(self.config.enqueue_min, |at| self.limit_of(at))
    }

    fn limit_of(&self, holder: u32) -> Duration {
        let estimate = self.holders[holder].estimate;
        estimate.saturating_add(estimate / 2).max(self.config.enqueue_min)
    }

    /// A callback is sent: the timer begins, unless it runs already (L-46). Locks of groups and of
    /// servers have none (L-53).
    pub(super) fn arm(&mut self, now: Instant, at: u32) {
        let lock = &mut self.locks[at];
        lock.asked = now;
        let holder = &self.holders[lock.holder];
        let timed = holder.kind == HolderKind::Client && lock.mode != Mode::Group;
        if timed && lock.expires == 0 {
            let until = now + self.limit_of(self.locks[at].holder);
            self.move_timer(at, seconds(until));
        }
    }

    /// A running timer ends later, if `until` is later (L-46).
    fn refresh(&mut self, at: u32, until: Instant) {
        let (until, expires) = (seconds(until), self.locks[at].expires);
        if expires != 0 && until > expires {
            self.move_timer(at, until);
        }
    }

    fn move_timer(&mut self, at: u32, expires: u32) {
        self.disarm(at);
        // 0 means none.
        let expires = expires.max(1);
        self.locks[at].expires = expires;
        self.timers.insert((expires, at));
    }

    pub(super) fn disarm(&mut self, at: u32) {
        let expires = core::mem::take(&mut self.locks[at].expires);
        if expires != 0 {
            self.timers.remove(&(expires, at));
        }
    }

    /// A callback is sent again: its timer is refreshed (L-51). When it ends; `None` if it does not run.
    pub fn callback_resent(&mut self, now: Instant, lock: Cookie) -> Option<Instant> {
        let at = self.find(lock)?;
        self.locks[at].asked = now;
        let until = now + self.limit_of(self.locks[at].holder);
        self.refresh(at, until);
        expiry(self.locks[at].expires)
    }

    /// I/O of a client refreshes the timers of the locks under it, to `prolong` from now (L-49).
    pub fn touch(&mut self, now: Instant, holder: HolderId, io: &Io, prolong: Duration) -> Touched {
        let under = self.under(holder, io);
        if under.is_empty() {
            return Touched::NoLock;
        }
        let mut touched = Touched::Held;
        for at in under {
            if self.locks[at].called_back {
                touched = Touched::CalledBack;
                if !self.breaks(Sabotage::TimerNotRefreshed) {
                    self.refresh(at, now + prolong);
                }
            }
        }
        touched
    }

    /// The granted locks of a holder that cover I/O: the one that it names, if that contains the range,
    /// otherwise all that overlap it.
    fn under(&self, holder: HolderId, io: &Io) -> Vec<u32> {
        let Some(resource) = self.find_resource(&io.resource) else { return Vec::new() };
        let Some(owner) = self.find_holder(holder) else { return Vec::new() };
        let covers = |mode| matches!(mode, Mode::Pw | Mode::Group) || io.read && mode == Mode::Pr;
        if let Some(at) = io.lock.and_then(|lock| self.find(lock)) {
            let lock = &self.locks[at];
            let own = lock.holder == owner && lock.resource == resource;
            let whole = match lock.kind {
                Kind::Ibits => lock.start & io.start == io.start,
                _ => lock.start <= io.start && io.end <= lock.end,
            };
            if own && whole && lock.place == Place::Granted && covers(lock.mode) {
                return vec![at];
            }
        }
        let (part, mut under) = (Part { start: io.start, end: io.end }, Vec::new());
        for set in self.resources[resource].granted.iter().filter(|set| covers(set.mode)) {
            tree::overlapping(&self.locks, set.root, part, &mut |at, lock| {
                if lock.holder == owner {
                    under.push(at);
                }
                false
            });
        }
        under
    }

    /// When the first callback timer ends.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().and_then(|(expires, _)| expiry(*expires))
    }

    /// Ends callback timers whose time has come: a lock for which `busy` says that a request of high
    /// priority lies in the queue gets half of its time again, the holder of any other is evicted
    /// (L-52).
    pub fn handle_timeout(&mut self, now: Instant, busy: &mut dyn FnMut(&LockView) -> bool) {
        let end = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        // Each once: a timer that is set again may end at the same second.
        let due: Vec<_> = self.timers.range(..=(end, u32::MAX)).map(|(_, at)| *at).collect();
        for at in due {
            let holder = self.locks[at].holder;
            if !self.holders[holder].leaving && busy(&self.show(at)) {
                self.move_timer(at, seconds(now + self.limit_of(holder) / 2));
            } else {
                self.disarm(at);
                self.ask_eviction(at, EvictReason::Expired);
            }
        }
    }

    /// The holder of a lock is to be evicted; once.
    pub(super) fn ask_eviction(&mut self, at: u32, why: EvictReason) {
        let (lock, holder) = (self.cookie(at), &mut self.holders[self.locks[at].holder]);
        if !core::mem::replace(&mut holder.leaving, true) {
            let holder = holder.id;
            self.effects.push_back(Effect::Evict { holder, lock, why });
        }
    }
}
