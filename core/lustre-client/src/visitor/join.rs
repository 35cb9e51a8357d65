//! Several futures at a time, their results in the order in which they were given.

use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;

/// Runs futures, at most `limit` of them at a time.
pub async fn join<F: Future>(futures: impl IntoIterator<Item = F>, limit: usize) -> Vec<F::Output> {
    let mut waiting = futures.into_iter().fuse();
    let mut results: Vec<Option<F::Output>> = Vec::new();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    poll_fn(|cx| {
        loop {
            while running.len() < limit.max(1)
                && let Some(future) = waiting.next()
            {
                running.push((results.len(), Box::pin(future)));
                results.push(None);
            }
            let before = running.len();
            running.retain_mut(|(place, future)| match future.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    if let Some(slot) = results.get_mut(*place) {
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
pub(super) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
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
    use core::cell::Cell;
    use core::task::{Context, Waker};

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
            poll_fn(|_| {
                turns -= 1;
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
}
