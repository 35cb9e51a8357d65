//! Many operations under way on one thread that also has other things to do: each wakes it by a
//! note in its queue.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Wake, Waker};

use lnet_rt::{Moved, OpFailed, OpFuture};

/// Operations, each with the number of its message.
pub(crate) struct Ops<N> {
    running: BTreeMap<u64, OpFuture>,
    queue: Sender<N>,
    note: fn(u64) -> N,
}

struct Alarm<N> {
    number: u64,
    queue: Sender<N>,
    note: fn(u64) -> N,
}

impl<N: Send + 'static> Wake for Alarm<N> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // No waiter is left: the program is over.
        let _ = self.queue.send((self.note)(self.number));
    }
}

impl<N: Send + 'static> Ops<N> {
    /// None yet. `note` is what is queued when the operation with that number should be looked at.
    pub(crate) fn new(queue: Sender<N>, note: fn(u64) -> N) -> Self {
        Self { running: BTreeMap::new(), queue, note }
    }

    /// Keeps an operation. Its outcome, if it has ended already.
    pub(crate) fn begin(&mut self, number: u64, op: OpFuture) -> Option<Result<Moved, OpFailed>> {
        self.running.insert(number, op);
        self.look(number)
    }

    /// Looks at an operation: its outcome, if it has ended.
    pub(crate) fn look(&mut self, number: u64) -> Option<Result<Moved, OpFailed>> {
        let op = self.running.get_mut(&number)?;
        let alarm = Alarm { number, queue: self.queue.clone(), note: self.note };
        let waker = Waker::from(Arc::new(alarm));
        match Pin::new(op).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(outcome) => {
                self.running.remove(&number);
                Some(outcome)
            }
        }
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }
}
