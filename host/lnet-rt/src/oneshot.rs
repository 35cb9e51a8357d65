//! One value from the node's thread to its waiter, async or blocking, on any executor or
//! none. Both ends may go away at any time: a sender dropped without sending ends the wait, a value
//! for a receiver that is gone comes back to the sender.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, Thread};

enum State<T> {
    Empty,
    Waiting(Waker),
    Done(T),
    /// Sent and taken, or never to be sent.
    Closed,
    /// The receiver is gone.
    Abandoned,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// The sender's name for what the receiver waits for; 0 until it has one.
    key: AtomicU64,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that can panic runs under the lock, so a poisoned one is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` when it has sent.
pub(crate) struct Sender<T>(Option<Arc<Shared<T>>>);

/// `None` when it has its value, or will never have one.
pub(crate) struct Receiver<T>(Option<Arc<Shared<T>>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Empty), key: AtomicU64::new(0) });
    (Sender(Some(Arc::clone(&shared))), Receiver(Some(shared)))
}

impl<T> Sender<T> {
    /// Hands over the value, or gives it back if the receiver is gone.
    pub(crate) fn send(mut self, value: T) -> Result<(), T> {
        let Some(shared) = self.0.take() else { return Err(value) };
        let mut state = shared.lock();
        match core::mem::replace(&mut *state, State::Closed) {
            State::Empty => *state = State::Done(value),
            State::Waiting(waker) => {
                *state = State::Done(value);
                drop(state);
                waker.wake();
            }
            State::Abandoned => {
                *state = State::Abandoned;
                return Err(value);
            }
            // `send` consumes the only sender.
            State::Done(_) | State::Closed => unreachable!("sent twice"),
        }
        Ok(())
    }

    pub(crate) fn set_key(&self, key: u64) {
        if let Some(shared) = &self.0 {
            shared.key.store(key, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| matches!(*shared.lock(), State::Abandoned))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.lock();
        match core::mem::replace(&mut *state, State::Closed) {
            State::Waiting(waker) => {
                drop(state);
                waker.wake();
            }
            State::Empty | State::Closed => {}
            other @ (State::Done(_) | State::Abandoned) => *state = other,
        }
    }
}

impl<T> Receiver<T> {
    /// Gives up: the sender's name for what was waited for, if it may still be at work on it.
    pub(crate) fn abandon(mut self) -> Option<u64> {
        let shared = self.0.take()?;
        let last = core::mem::replace(&mut *shared.lock(), State::Abandoned);
        // In this order: the sender sets the key, then looks whether it is abandoned.
        let key = shared.key.load(Ordering::Relaxed);
        (matches!(last, State::Empty | State::Waiting(_)) && key != 0).then_some(key)
    }
}

impl<T> Future for Receiver<T> {
    /// `None`: the sender went away.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(shared) = &self.0 else { return Poll::Ready(None) };
        let mut state = shared.lock();
        let value = match core::mem::replace(&mut *state, State::Closed) {
            State::Done(value) => Some(value),
            State::Closed | State::Abandoned => None,
            State::Empty => {
                *state = State::Waiting(cx.waker().clone());
                return Poll::Pending;
            }
            State::Waiting(waker) => {
                let waker = if waker.will_wake(cx.waker()) { waker } else { cx.waker().clone() };
                *state = State::Waiting(waker);
                return Poll::Pending;
            }
        };
        drop(state);
        self.0 = None;
        Poll::Ready(value)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let Some(shared) = &self.0 else { return };
        let last = core::mem::replace(&mut *shared.lock(), State::Abandoned);
        // A value that was not taken is dropped without the lock: its own drop may be long.
        drop(last);
    }
}

/// How often a blocked caller looks again before it asks the kernel to be woken. Each look gives
/// the processor away, so a caller that waits for the network costs others nothing; one that waits
/// for a thread that is awake saves two context switches.
const LOOKS: u32 = 50;

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    static PARKER: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
}

/// Runs a future to its end on this thread: for programs without an executor.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // Taken out while in use: a blocking call inside of the future's own poll gets another one.
    let parker = PARKER.take().unwrap_or_else(|| {
        Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) })
    });
    let waker = Waker::from(Arc::clone(&parker));
    let mut cx = Context::from_waker(&waker);
    let output = 'done: loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            break output;
        }
        for _ in 0..LOOKS {
            if parker.woken.swap(false, Ordering::Acquire) {
                continue 'done;
            }
            thread::yield_now();
        }
        while !parker.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    };
    PARKER.set(Some(parker));
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_arrives_before_or_during_the_wait() {
        let (tx, rx) = channel();
        tx.send(1).unwrap();
        assert_eq!(block_on(rx), Some(1));
        let (tx, rx) = channel();
        let other = thread::spawn(move || block_on(rx));
        thread::yield_now();
        tx.send(2).unwrap();
        assert_eq!(other.join().unwrap(), Some(2));
    }

    #[test]
    fn a_sender_that_goes_away_ends_the_wait() {
        let (tx, rx) = channel::<u8>();
        let other = thread::spawn(move || block_on(rx));
        thread::yield_now();
        drop(tx);
        assert_eq!(other.join().unwrap(), None);
    }

    #[test]
    fn a_value_without_a_receiver_comes_back() {
        let (tx, rx) = channel();
        assert!(!tx.is_abandoned());
        drop(rx);
        assert!(tx.is_abandoned());
        assert_eq!(tx.send("back"), Err("back"));
    }

    #[test]
    fn blocking_inside_of_a_future_loses_no_wake_up() {
        let (tx, mut rx) = channel();
        let (inner_tx, inner_rx) = channel();
        let (polled, was_polled) = std::sync::mpsc::channel();
        let mut inner = Some(inner_rx);
        let waiting = thread::spawn(move || {
            block_on(core::future::poll_fn(move |cx| {
                if let Some(inner) = inner.take() {
                    let first = Pin::new(&mut rx).poll(cx);
                    assert!(first.is_pending());
                    polled.send(()).unwrap();
                    assert_eq!(block_on(inner), Some(1));
                }
                Pin::new(&mut rx).poll(cx)
            }))
        });
        was_polled.recv().unwrap();
        inner_tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert_eq!(waiting.join().unwrap(), Some(2));
    }
}
