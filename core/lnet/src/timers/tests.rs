use core::time::Duration;

use proptest::prelude::*;
use slotmap::KeyData;

use super::*;

/// Subjects of one table: three places, each with two occupants one after the other.
fn id<K: From<KeyData>>(n: u64) -> K {
    KeyData::from_ffi((n % 3) | (1 + 2 * (n / 3 % 2)) << 32).into()
}

/// One of a few timers of every kind.
fn timer(kind: usize, n: u64) -> Timer {
    match TimerKind::ALL[kind % KINDS] {
        TimerKind::Announce => Timer::Announce,
        TimerKind::AnnounceUp => Timer::AnnounceUp,
        TimerKind::CutOff => Timer::CutOff,
        TimerKind::Remind => Timer::Remind(n % 4),
        TimerKind::Op => Timer::Op(OpId(n % 4)),
        TimerKind::Delay => Timer::Delay(n % 4),
        TimerKind::Router => Timer::Router,
        TimerKind::Check => Timer::Check(id(n)),
        TimerKind::Response => Timer::Response(id(n)),
        TimerKind::Waiting => Timer::Waiting(id(n)),
        TimerKind::Backoff => Timer::Backoff(id(n)),
        TimerKind::Retransmit => Timer::Retransmit,
        TimerKind::RecoverNi => Timer::RecoverNi(id(n)),
        TimerKind::RecoverPeer => Timer::RecoverPeer(id(n)),
        TimerKind::Merge => Timer::Merge(id(n)),
        TimerKind::Discover => Timer::Discover(id(n)),
    }
}

/// A list with the same calls.
#[derive(Default)]
struct Model {
    set: Vec<(Timer, Instant)>,
    gates: Vec<(TimerKind, Instant)>,
}

impl Model {
    fn set(&mut self, timer: Timer, at: Instant) {
        let (kind, key) = timer.parts();
        let same_place = |other: Timer| {
            let (its_kind, its_key) = other.parts();
            its_kind == kind && kind.of_slots() && its_key >> 32 == key >> 32
        };
        self.set.retain(|(other, _)| *other != timer && !same_place(*other));
        self.set.push((timer, at));
    }

    fn due(&self, (timer, at): (Timer, Instant)) -> Instant {
        let gates = self.gates.iter().filter(|(kind, _)| *kind == timer.parts().0);
        gates.map(|(_, until)| *until).fold(at, Instant::max)
    }

    fn next(&self) -> Option<(Instant, Timer)> {
        let first = |kind| self.set.iter().filter(move |s| s.0.parts().0 == kind);
        let of_kind = |kind| first(kind).min_by_key(|(timer, at)| (*at, *timer));
        let firsts = TimerKind::ALL.into_iter().filter_map(of_kind);
        firsts
            .map(|set| (self.due(*set), set.0))
            .min_by_key(|(at, timer)| (*at, timer.parts().0 as u8))
    }

    fn pop(&mut self, now: Instant) -> Option<Timer> {
        let due = self.set.iter().filter(|set| self.due(**set) <= now);
        let (timer, _) = *due.min_by_key(|(timer, at)| (timer.parts().0 as u8, *at, *timer))?;
        self.set.retain(|(other, _)| *other != timer);
        Some(timer)
    }
}

proptest! {
    #[test]
    fn the_timer_table_gives_what_a_plain_list_of_timers_gives(
        calls in prop::collection::vec((0..8u8, 0..KINDS, 0..8u64, 0..20u64), 1..200),
    ) {
        let (mut timers, mut model) = (Timers::default(), Model::default());
        for (call, kind, subject, at) in calls {
            let (timer, at) = (timer(kind, subject), Instant(at));
            match call {
                0..=3 => {
                    timers.set(timer, at);
                    model.set(timer, at);
                }
                4 => {
                    let was = model.set.iter().position(|(other, _)| *other == timer);
                    prop_assert_eq!(timers.stop(timer), was.map(|at| model.set.remove(at).1));
                }
                5 => {
                    timers.hasten(timer, at);
                    if !model.set.iter().any(|(other, before)| *other == timer && *before <= at) {
                        model.set(timer, at);
                    }
                }
                6 if subject == 0 => {
                    let kind = timer.parts().0;
                    timers.gate(kind, at);
                    model.gates.retain(|(other, _)| *other != kind);
                    model.gates.push((kind, at));
                }
                _ => prop_assert_eq!(timers.pop(at), model.pop(at)),
            }
            prop_assert_eq!(timers.next(), model.next());
            let is_set = model.set.iter().find(|(other, _)| *other == timer);
            prop_assert_eq!(timers.at(timer), is_set.map(|set| set.1));
            timers.queues.iter().for_each(Queue::check);
        }
        let written = postcard::to_stdvec(&timers).unwrap();
        let mut read: Timers = postcard::from_bytes(&written).unwrap();
        prop_assert_eq!(postcard::to_stdvec(&read).unwrap(), written);
        while let Some(timer) = model.pop(Instant(100)) {
            prop_assert_eq!(timers.pop(Instant(100)), Some(timer));
            prop_assert_eq!(read.pop(Instant(100)), Some(timer));
        }
        prop_assert_eq!((timers.next(), read.next()), (None, None));
    }
}

#[test]
fn timers_that_are_due_go_by_kind_and_then_by_time() {
    let mut timers = Timers::default();
    let start = Instant::from_secs(1);
    // What goes last was due first.
    for (n, kind) in (0..KINDS).rev().enumerate() {
        timers.set(timer(kind, 0), start + Duration::from_secs(n as u64));
    }
    timers.set(Timer::Response(id(1)), start);
    let all = core::iter::from_fn(|| timers.pop(start + Duration::from_secs(60)));
    let kinds: Vec<TimerKind> = all.map(|timer| timer.parts().0).collect();
    let mut expected = TimerKind::ALL.to_vec();
    let response = TimerKind::Response as usize;
    expected.insert(response, TimerKind::Response);
    assert_eq!(kinds, expected);
    // The timeout of a ping goes before the one of its response, whichever is due first (D-82, H-64).
    assert!((TimerKind::Op as u8) < TimerKind::Response as u8);
    timers.set(Timer::Response(id(0)), start);
    timers.set(Timer::Op(OpId(1)), start + Duration::from_millis(1));
    timers.set(Timer::Op(OpId(2)), start + Duration::from_secs(2));
    let late = start + Duration::from_secs(1);
    assert_eq!(timers.pop(late), Some(Timer::Op(OpId(1))));
    assert_eq!(timers.pop(late), Some(Timer::Response(id(0))));
    assert_eq!(timers.pop(late), None);
    assert_eq!(timers.next(), Some((start + Duration::from_secs(2), Timer::Op(OpId(2)))));
}

#[test]
fn a_timer_in_the_far_future_is_not_set() {
    let mut timers = Timers::default();
    timers.set(Timer::Retransmit, Instant(7));
    timers.set(Timer::Retransmit, Instant::FAR_FUTURE);
    assert_eq!((timers.at(Timer::Retransmit), timers.next()), (None, None));
    timers.hasten(Timer::Retransmit, Instant::FAR_FUTURE);
    assert_eq!(timers.next(), None);
}
