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
    /// Discoveries that have failed begin again.
    Discoveries,
    /// The next pass of the pinger.
    Pass,
    /// A call that is not answered for so long lets its import ask whether the server knows it.
    Unanswered(ImportId),
}

/// Variants of [`Timer`].
const KINDS: usize = 13;

impl Timer {
    /// Its kind, and the key of what it is for.
    fn split(self) -> (u8, u64) {
        match self {
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
            Self::Discoveries => (10, 0),
            Self::Pass => (11, 0),
            Self::Unanswered(id) => (12, id.into()),
        }
    }

    fn of(kind: u8, key: u64) -> Self {
        match kind {
            0 => Self::Call(key.into()),
            1 => Self::Limit(key.into()),
            2 => Self::Import(key.into()),
            3 => Self::Close(key.into()),
            4 => Self::Early(key.into()),
            5 => Self::Bulk(key.into()),
            6 => Self::Service(key.into()),
            8 => Self::Recovery(key.into()),
            9 => Self::Watchdog(key.into()),
            10 => Self::Discoveries,
            11 => Self::Pass,
            12 => Self::Unanswered(key.into()),
            _ => Self::Silence,
        }
    }
}

/// The time of what is not due.
const NEVER: Instant = Instant::FAR_FUTURE;

/// Many: an idle import has one.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Of what it is for: what comes to its place later has the same slot, and another key.
    key: u64,
    /// When it is due; never after a stop.
    at: Instant,
    /// The time of its entry in the list, not after `at`; never without one.
    listed: Instant,
}

/// An entry of the list: time, kind, place in the table of what it is for.
type Entry = (Instant, u8, u32);

#[derive(Debug, Default)]
pub(crate) struct Timers {
    slots: [Vec<Slot>; KINDS],
    listed: BTreeSet<Entry>,
}

impl Timers {
    fn slot(&self, kind: u8, place: usize) -> Option<&Slot> {
        self.slots.get(usize::from(kind))?.get(place)
    }

    fn slot_mut(&mut self, kind: u8, place: usize) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(kind))?.get_mut(place)
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        let (kind, key) = timer.split();
        let place = index(key);
        let Some(slots) = self.slots.get_mut(usize::from(kind)) else { return };
        if slots.len() <= place {
            slots.resize(place + 1, Slot { key, at: NEVER, listed: NEVER });
        }
        let Some(slot) = slots.get_mut(place) else { return };
        (slot.key, slot.at) = (key, at);
        if at < slot.listed {
            // Places of tables are 32 bits.
            let place = place as u32;
            if slot.listed != NEVER {
                self.listed.remove(&(slot.listed, kind, place));
            }
            slot.listed = at;
            self.listed.insert((at, kind, place));
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        let (kind, key) = timer.split();
        if let Some(slot) = self.slot_mut(kind, index(key)).filter(|slot| slot.key == key) {
            slot.at = NEVER;
        }
    }

    /// When a timer is due.
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        let (kind, key) = timer.split();
        let slot = self.slot(kind, index(key))?;
        (slot.key == key && slot.at != NEVER).then_some(slot.at)
    }

    /// No timer is due before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.listed.first().map(|(at, ..)| *at)
    }

    /// Imports whose time comes before `end`; of more than `most` some of the earliest.
    pub(crate) fn imports_before(&self, end: Instant, most: usize) -> Vec<ImportId> {
        let (import, _) = Timer::Import(ImportId::from(0)).split();
        let listed = self.listed.range(..(end, 0, 0)).filter(|(_, kind, _)| *kind == import);
        // Those whose time has moved count: there may be any number of them.
        let slots =
            listed.take(most).filter_map(|(_, kind, place)| self.slot(*kind, *place as usize));
        slots.filter(|slot| slot.at < end).map(|slot| slot.key.into()).collect()
    }

    /// Takes one that is due, the earliest first.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        while let Some(&(listed, kind, place)) = self.listed.first().filter(|(at, ..)| *at <= now) {
            self.listed.pop_first();
            let Some(slot) = self.slot_mut(kind, place as usize) else { continue };
            let key = slot.key;
            if slot.at > listed {
                slot.listed = slot.at;
                if slot.at != NEVER {
                    let entry = (slot.at, kind, place);
                    self.listed.insert(entry);
                }
            } else {
                (slot.at, slot.listed) = (NEVER, NEVER);
                return Some(Timer::of(kind, key));
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
    fn imports_that_are_due_before_a_time_are_listed_but_not_those_that_were_moved() {
        let mut timers = Timers::default();
        let import = |n: u64| Timer::Import(ImportId::from(n));
        for (n, at) in [(1, 10), (2, 20), (3, 14), (4, 11), (5, 15)] {
            timers.set(import(n), secs(at));
        }
        timers.set(call(1, 1), secs(12));
        timers.set(import(4), secs(30));
        timers.stop(import(1));
        assert_eq!(timers.imports_before(secs(15), 9), [ImportId::from(3)]);
        timers.set(import(4), secs(12));
        let all = [4, 3, 5].map(ImportId::from);
        assert_eq!(timers.imports_before(secs(16), 9), all);
        // One that was stopped is looked at, too.
        assert_eq!(timers.imports_before(secs(16), 3), all[..2]);
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
