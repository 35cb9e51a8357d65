//! How hard a visit works its targets. The usual pace is bounded by the calls that a target gets at a time; the
//! gentle one leaves each target more time for others than it takes.

use core::future::Future;
use core::time::Duration;
use std::time::Instant;

use async_channel::{Receiver, Sender, bounded};

/// The longest rest of a target between two calls of a gentle visit.
pub const REST_MAX: Duration = Duration::from_secs(1);

/// How hard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As many calls at a time for each target as a visit has.
    #[default]
    Usual,
    /// One call at a time for each target, and then a rest as long as its answer has taken, [`REST_MAX`] at
    /// most: a target that is slow, because it has much to do, is asked less. Locks that came with an answer
    /// are given back without a rest.
    Gentle,
}

/// A clock, and a way to wait by it.
pub(crate) trait Waits {
    fn now(&self) -> Instant;

    /// Ends at a time.
    fn until(&self, time: Instant) -> impl Future<Output = ()> + Send;
}

/// What one call of a target has at a time, with the end of the rest behind it.
#[derive(Debug)]
pub(crate) struct Turn {
    free: Receiver<Instant>,
    back: Sender<Instant>,
}

impl Turn {
    pub(crate) fn new(now: Instant) -> Self {
        let (back, free) = bounded(1);
        // There is room for one.
        let _ = back.try_send(now);
        Self { free, back }
    }

    /// Waits until no other call has it, and the rest is over.
    pub(crate) async fn take<'a, W: Waits>(&'a self, clock: &'a W) -> Going<'a, W> {
        let rested = self.free.recv().await.unwrap_or_else(|_| clock.now());
        let mut going = Going { turn: self, clock, rested, begun: None };
        if clock.now() < rested {
            clock.until(rested).await;
        }
        going.begun = Some(clock.now());
        going
    }
}

/// The call that has the turn. It gives it back when it is dropped, in the middle of a call too.
#[derive(Debug)]
pub(crate) struct Going<'a, W: Waits> {
    turn: &'a Turn,
    clock: &'a W,
    /// When it may begin.
    rested: Instant,
    begun: Option<Instant>,
}

impl<W: Waits> Drop for Going<'_, W> {
    fn drop(&mut self) {
        let now = self.clock.now();
        let rested = match self.begun {
            Some(begun) => now + now.saturating_duration_since(begun).min(REST_MAX),
            None => self.rested,
        };
        // There is room: it was taken out.
        let _ = self.turn.back.try_send(rested);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lustre_client::visitor::join;

    use super::*;

    /// A clock that goes on when it is waited for.
    struct Virtual(Mutex<Instant>);

    impl Virtual {
        fn advance(&self, time: Duration) {
            *self.0.lock().unwrap() += time;
        }
    }

    impl Waits for Virtual {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        async fn until(&self, time: Instant) {
            let mut now = self.0.lock().unwrap();
            *now = time.max(*now);
        }
    }

    /// Runs calls that take so long each, eight at a time: the most that were under way, and how long all took.
    fn run(calls: &[Duration]) -> (usize, Duration) {
        let begun = Instant::now();
        let clock = Virtual(Mutex::new(begun));
        let turn = Turn::new(begun);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = |took: &Duration| {
            let (turn, clock, now, most, took) = (&turn, &clock, &now, &most, *took);
            async move {
                let going = turn.take(clock).await;
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Others have a chance to begin.
                let mut again = true;
                core::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if core::mem::take(&mut again) {
                        core::task::Poll::Pending
                    } else {
                        core::task::Poll::Ready(())
                    }
                })
                .await;
                clock.advance(took);
                now.fetch_sub(1, Ordering::SeqCst);
                drop(going);
            }
        };
        lnet_rt::block_on(join(calls.iter().map(one), 8));
        (most.into_inner(), clock.now() - begun)
    }

    #[test]
    fn gentle_target_has_one_call_at_a_time_and_rests_as_long_as_it_worked() {
        let ms = Duration::from_millis;
        // Behind the last one nothing waits.
        assert_eq!(run(&[ms(10); 20]), (1, ms(20 * 10 + 19 * 10)));
        // One that works for minutes is not left for minutes.
        assert_eq!(run(&[ms(90_000), ms(10)]), (1, ms(90_000 + 1000 + 10)));
    }
}
