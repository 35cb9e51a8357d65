//! Several futures at a time, their results in the order in which they were given.

use core::future::{Future, poll_fn};
use core::pin::Pin;
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
