//! Several futures at a time, their results in the order in which they were given.

use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;

/// What one of several futures is woken by. Of many that wait, the others are left alone.
struct Bell {
    rung: AtomicBool,
    /// What runs them all.
    all: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // One that was rung before has woken it.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.all.wake_by_ref();
        }
    }
}

/// A future under way.
struct Seat<F> {
    /// Its place among the results.
    place: usize,
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<F: Future> Seat<F> {
    fn new(place: usize, future: F, all: &Waker) -> Self {
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), all: all.clone() });
        let waker = Waker::from(Arc::clone(&bell));
        Self { place, future: Box::pin(future), bell, waker }
    }

    /// Another one runs them all from now on.
    fn follow(&mut self, all: &Waker) {
        if !self.bell.all.will_wake(all) {
            self.bell = Arc::new(Bell { rung: AtomicBool::new(true), all: all.clone() });
            self.waker = Waker::from(Arc::clone(&self.bell));
        }
    }

    /// The result, if it was woken and has ended.
    fn poll(&mut self) -> Poll<F::Output> {
        match self.bell.rung.swap(false, Ordering::AcqRel) {
            true => self.future.as_mut().poll(&mut Context::from_waker(&self.waker)),
            false => Poll::Pending,
        }
    }
}

/// Runs futures, at most `limit` of them at a time. Each is polled when it was woken.
pub async fn join<F: Future>(futures: impl IntoIterator<Item = F>, limit: usize) -> Vec<F::Output> {
    let mut waiting = futures.into_iter().fuse();
    let mut results: Vec<Option<F::Output>> = Vec::new();
    let mut running: Vec<Seat<F>> = Vec::new();
    poll_fn(|cx| {
        running.iter_mut().for_each(|seat| seat.follow(cx.waker()));
        loop {
            while running.len() < limit.max(1)
                && let Some(future) = waiting.next()
            {
                running.push(Seat::new(results.len(), future, cx.waker()));
                results.push(None);
            }
            let before = running.len();
            running.retain_mut(|seat| match seat.poll() {
                Poll::Ready(result) => {
                    if let Some(slot) = results.get_mut(seat.place) {
                        *slot = Some(result);
                    }
                    false
                }
                Poll::Pending => true,
            });
            // Those that have ended make room for others, which must be polled as well.
            if running.len() == before {
                break;
            }
        }
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Runs two futures at a time.
pub async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(move |cx| {
        if first.is_none()
            && let Poll::Ready(result) = a.as_mut().poll(cx)
        {
            first = Some(result);
        }
        if second.is_none()
            && let Poll::Ready(result) = b.as_mut().poll(cx)
        {
            second = Some(result);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};
    use core::sync::atomic::AtomicU32;

    use super::*;

    /// Runs a future that needs no event.
    fn run<F: Future>(future: F) -> F::Output {
        let mut future = Box::pin(future);
        loop {
            if let Poll::Ready(result) =
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                return result;
            }
        }
    }

    /// Ends at the n-th poll, and must not be polled again.
    async fn at_poll(n: u32) -> u32 {
        let mut polls = 0;
        poll_fn(move |_| {
            polls += 1;
            assert!(polls <= n, "polled after its end");
            if polls == n { Poll::Ready(n) } else { Poll::Pending }
        })
        .await
    }

    #[test]
    fn both_results_come_when_the_later_one_is_there() {
        for (a, b) in [(1, 1), (1, 4), (4, 1)] {
            let mut both = pin!(both(at_poll(a), at_poll(b)));
            let mut polls = 0;
            let results = loop {
                polls += 1;
                let mut cx = Context::from_waker(Waker::noop());
                if let Poll::Ready(results) = both.as_mut().poll(&mut cx) {
                    break results;
                }
            };
            assert_eq!((results, polls), ((a, b), a.max(b)));
        }
    }

    #[test]
    fn results_keep_their_order_and_no_more_run_than_may() {
        let running = Cell::new(0usize);
        let most = Cell::new(0usize);
        let (running, most) = (&running, &most);
        let one = |n: usize| async move {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            let mut turns = 8 - n % 7;
            poll_fn(|cx| {
                turns -= 1;
                cx.waker().wake_by_ref();
                if turns == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            running.set(running.get() - 1);
            n
        };
        assert_eq!(run(join((0..50).map(one), 8)), (0..50).collect::<Vec<_>>());
        assert_eq!(most.get(), 8);
        assert_eq!(run(join((0..0).map(one), 8)), []);
        assert_eq!(run(join((0..3).map(one), 0)), [0, 1, 2]);
    }

    #[test]
    fn of_many_that_wait_those_are_polled_that_were_woken() {
        let wakers: Vec<RefCell<Option<Waker>>> = (0..20).map(|_| RefCell::default()).collect();
        let polls = Cell::new(0);
        let (wakers, polls) = (&wakers, &polls);
        let one = |n: usize| {
            poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                match wakers[n].replace(Some(cx.waker().clone())) {
                    Some(_) => Poll::Ready(n),
                    None => Poll::Pending,
                }
            })
        };
        // In twos, so that a call is passed on.
        let two = |n: usize| join([one(2 * n), one(2 * n + 1)], 2);
        let mut all = pin!(join((0..10).map(two), 10));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(all.as_mut().poll(&mut cx).is_pending());
        for n in (0..20).rev() {
            let before = polls.get();
            let waker = wakers[n].borrow().clone().unwrap();
            waker.wake();
            assert_eq!(all.as_mut().poll(&mut cx).is_ready(), n == 0);
            assert_eq!(polls.get() - before, 1, "{n}");
        }
    }

    /// Counts how often it is woken.
    struct Runner(AtomicU32);

    impl Wake for Runner {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_one_that_polls_is_woken() {
        let waker = RefCell::new(Waker::noop().clone());
        let waits = || {
            poll_fn(|cx| {
                waker.replace(cx.waker().clone());
                Poll::<()>::Pending
            })
        };
        let mut all = pin!(join([waits()], 1));
        let runners = [0, 1].map(|_| Arc::new(Runner(AtomicU32::new(0))));
        for (n, runner) in runners.iter().enumerate() {
            let polled_by = Waker::from(Arc::clone(runner));
            assert!(all.as_mut().poll(&mut Context::from_waker(&polled_by)).is_pending());
            waker.borrow().wake_by_ref();
            let woken = runners.each_ref().map(|runner| runner.0.load(Ordering::Relaxed));
            assert_eq!(woken, [1, u32::from(n == 1)]);
        }
    }
}
