//! What waits for a time, one time for each. Requests set and stop their timers far more often than
//! one comes due, so both only write the time into its slot. The list ordered by time follows when a
//! time that was listed has come, or a timer is set to an earlier one: it has at most one entry for
//! each slot.

use std::collections::BTreeSet;

use lnet_types::Instant;

use crate::table::{CallId, ImportId, ServedId, ServiceId, TargetId, index};

/// What a time is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// A request is served for too long.
    Watchdog(ServedId),
}

/// Variants of [`Timer`].
const KINDS: usize = 10;

impl Timer {
    /// Its kind, and the place of what it is for in the table of that: what comes to this place later
    /// has the same slot.
    fn place(self) -> (usize, usize) {
        let (kind, key): (usize, u64) = match self {
            Self::Call(id) => (0, id.into()),
            Self::Limit(id) => (1, id.into()),
            Self::Import(id) => (2, id.into()),
            Self::Close(id) => (3, id.into()),
            Self::Early(id) => (4, id.into()),
            Self::Bulk(id) => (5, id.into()),
            Self::Service(id) => (6, id.into()),
            Self::Silence => (7, 0),
            Self::Recovery(id) => (8, id.into()),
            Self::Watchdog(id) => (9, id.into()),
        };
        (kind, index(key))
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    timer: Timer,
    /// When it is due; `None` after a stop.
    at: Option<Instant>,
    /// The time of its entry in the list, never after `at`.
    listed: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    slots: [Vec<Option<Slot>>; KINDS],
    listed: BTreeSet<(Instant, usize, usize)>,
}

impl Timers {
    fn slot(&mut self, (kind, index): (usize, usize)) -> Option<&mut Slot> {
        self.slots.get_mut(kind)?.get_mut(index)?.as_mut()
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        let (kind, index) = timer.place();
        let Some(slots) = self.slots.get_mut(kind) else { return };
        if slots.len() <= index {
            slots.resize(index + 1, None);
        }
        let Some(slot) = slots.get_mut(index) else { return };
        let slot = slot.get_or_insert(Slot { timer, at: None, listed: None });
        (slot.timer, slot.at) = (timer, Some(at));
        if slot.listed.is_none_or(|listed| at < listed) {
            if let Some(late) = slot.listed.replace(at) {
                self.listed.remove(&(late, kind, index));
            }
            self.listed.insert((at, kind, index));
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        if let Some(slot) = self.slot(timer.place()).filter(|slot| slot.timer == timer) {
            slot.at = None;
        }
    }

    /// When a timer is due.
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        let (kind, index) = timer.place();
        let slot = self.slots.get(kind)?.get(index)?.as_ref()?;
        slot.at.filter(|_| slot.timer == timer)
    }

    /// No timer is due before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.listed.first().map(|(at, ..)| *at)
    }

    /// Takes one that is due, the earliest first.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        while let Some(&(listed, kind, index)) = self.listed.first().filter(|(at, ..)| *at <= now) {
            self.listed.pop_first();
            let Some(slot) = self.slot((kind, index)) else { continue };
            slot.listed = slot.at.filter(|at| *at > listed);
            match slot.listed {
                Some(at) => {
                    self.listed.insert((at, kind, index));
                }
                None if slot.at.take().is_some() => return Some(slot.timer),
                None => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn secs(n: u64) -> Instant {
        Instant::from_secs(n)
    }

    /// The call at a place of its table, after so many others there.
    fn call(place: u64, turn: u64) -> Timer {
        Timer::Call(CallId::from(turn << 32 | place))
    }

    #[test]
    fn a_timer_that_moves_later_or_stops_costs_the_list_nothing() {
        let mut timers = Timers::default();
        for n in 0..1000 {
            timers.set(call(0, n), secs(10 + n));
            timers.stop(call(0, n));
        }
        timers.set(call(0, 1000), secs(2000));
        assert_eq!((timers.listed.len(), timers.next()), (1, Some(secs(10))));
        assert_eq!(timers.pop(secs(1999)), None);
        assert_eq!(timers.next(), Some(secs(2000)));
        assert_eq!(timers.pop(secs(2000)), Some(call(0, 1000)));
        assert_eq!((timers.pop(secs(9999)), timers.next()), (None, None));
    }

    #[test]
    fn the_stop_of_what_had_a_place_before_stops_nothing() {
        let mut timers = Timers::default();
        timers.set(call(3, 0), secs(5));
        timers.set(call(3, 1), secs(6));
        timers.stop(call(3, 0));
        assert_eq!(timers.pop(secs(6)), Some(call(3, 1)));
    }

    proptest! {
        #[test]
        fn timers_come_in_their_order_at_the_time_that_was_set_last(
            steps in proptest::collection::vec((0u64..6, 0u64..40, 0u8..4), 1..120),
        ) {
            let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
            let mut now = 0;
            for (place, time, what) in steps {
                let timer = call(place, 0);
                match what {
                    0 | 1 => {
                        timers.set(timer, secs(now + time));
                        model.insert(place, now + time);
                    }
                    2 => {
                        timers.stop(timer);
                        model.remove(&place);
                    }
                    _ => {
                        now += time;
                        let mut due: Vec<_> =
                            model.iter().filter(|(_, at)| **at <= now).map(|(p, at)| (*at, *p)).collect();
                        due.sort_unstable();
                        model.retain(|_, at| *at > now);
                        let popped: Vec<_> =
                            core::iter::from_fn(|| timers.pop(secs(now))).collect();
                        let expected: Vec<_> = due.into_iter().map(|(_, p)| call(p, 0)).collect();
                        prop_assert_eq!(popped, expected);
                    }
                }
                let first = model.values().min().copied().map(secs);
                prop_assert!(first.is_none_or(|first| timers.next().is_some_and(|at| at <= first)));
            }
        }
    }
}
