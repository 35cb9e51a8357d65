//! What files wait for that are copied beside each other. All run on one thread.

use core::cell::RefCell;
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// Those that wait until something has changed.
#[derive(Default)]
pub(super) struct Waiting(RefCell<Vec<Waker>>);

impl Waiting {
    /// Waits until there is something.
    pub(super) async fn until<T>(&self, mut there: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match there() {
            Some(value) => Poll::Ready(value),
            None => {
                self.0.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Something has changed. Who began first is asked first, as they are run in that order.
    pub(super) fn look(&self) {
        self.0.take().into_iter().for_each(Waker::wake);
    }
}

/// Lets others run so often.
#[cfg(test)]
pub(super) async fn pause(mut turns: u32) {
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        turns = turns.saturating_sub(1);
        if turns == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
