//! The event queue by itself: what wakes it, what its descriptor says, how it ends.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use ulnet::queue::{Closed, Queue, Source, Taken, wait_readable};

/// Longer than any of this takes.
const LONG: Option<Duration> = Some(Duration::from_secs(30));
const NONE: Option<Duration> = Some(Duration::ZERO);

/// A source fed by the test.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    values: Vec<u32>,
    ended: bool,
    waker: Option<Waker>,
}

impl Pipe {
    fn put(&self, value: u32) {
        let mut state = self.0.lock().unwrap();
        state.values.insert(0, value);
        state.waker.take().into_iter().for_each(Waker::wake);
    }

    fn end(&self) {
        let mut state = self.0.lock().unwrap();
        state.ended = true;
        state.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Source<u32> for Pipe {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        let mut state = self.0.lock().unwrap();
        match state.values.pop() {
            Some(value) => Poll::Ready(Some(value)),
            None if state.ended => Poll::Ready(None),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[test]
fn a_waiting_thread_gets_the_event_of_a_source_that_is_woken() {
    let (queue, pipe) = (Arc::new(Queue::new()), Pipe::default());
    queue.add(Box::new(pipe.clone())).unwrap();
    let waiting = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.next(LONG))
    };
    pipe.put(7);
    assert_eq!(waiting.join().unwrap(), Taken::Event(7));
    assert_eq!(queue.next(NONE), Taken::Nothing);
}

#[test]
fn sources_with_much_to_say_take_turns() {
    let (queue, one, two) = (Queue::new(), Pipe::default(), Pipe::default());
    for value in 0..3 {
        one.put(value);
        two.put(value + 10);
    }
    queue.add(Box::new(one)).unwrap();
    queue.add(Box::new(two)).unwrap();
    let all: Vec<_> = (0..6).map(|_| queue.next(NONE)).collect();
    assert_eq!(all, [0, 10, 1, 11, 2, 12].map(Taken::Event));
}

#[test]
fn the_descriptor_is_readable_until_there_is_nothing() {
    let (queue, pipe) = (Queue::new(), Pipe::default());
    queue.add(Box::new(pipe.clone())).unwrap();
    assert_eq!(queue.next(NONE), Taken::Nothing);
    let fd = queue.fd().unwrap();
    let readable = |limit| wait_readable(fd.as_fd(), Duration::from_millis(limit)).unwrap();
    assert!(!readable(0));
    pipe.put(1);
    pipe.put(2);
    assert!(readable(30_000));
    assert_eq!(queue.next(NONE), Taken::Event(1));
    assert!(readable(0));
    assert_eq!(queue.next(NONE), Taken::Event(2));
    assert_eq!(queue.next(NONE), Taken::Nothing);
    assert!(!readable(0));
    pipe.put(3);
    assert!(readable(30_000));
}

#[test]
fn a_descriptor_made_late_shows_what_is_there() {
    let (queue, pipe) = (Queue::new(), Pipe::default());
    pipe.put(1);
    queue.add(Box::new(pipe)).unwrap();
    let fd = queue.fd().unwrap();
    assert!(wait_readable(fd.as_fd(), Duration::ZERO).unwrap());
}

#[test]
fn a_source_that_has_ended_is_dropped() {
    let (queue, pipe) = (Queue::new(), Pipe::default());
    pipe.put(1);
    queue.add(Box::new(pipe.clone())).unwrap();
    assert_eq!(queue.next(NONE), Taken::Event(1));
    pipe.end();
    assert_eq!(queue.next(NONE), Taken::Nothing);
    assert_eq!(Arc::strong_count(&pipe.0), 1);
}

#[test]
fn a_removed_source_says_nothing_any_more() {
    let (queue, pipe) = (Queue::new(), Pipe::default());
    let key = queue.add(Box::new(pipe.clone())).unwrap();
    pipe.put(1);
    queue.remove(key);
    assert_eq!(Arc::strong_count(&pipe.0), 1);
    assert_eq!(queue.next(NONE), Taken::Nothing);
}

#[test]
fn closing_wakes_who_waits_and_drops_all_sources() {
    let (queue, pipe) = (Arc::new(Queue::<u32>::new()), Pipe::default());
    queue.add(Box::new(pipe.clone())).unwrap();
    let waiting = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.next(None))
    };
    queue.close();
    assert_eq!(waiting.join().unwrap(), Taken::Closed);
    assert_eq!(Arc::strong_count(&pipe.0), 1);
    assert_eq!(queue.add(Box::new(pipe.clone())), Err(Closed));
    assert_eq!(Arc::strong_count(&pipe.0), 1);
}

#[test]
fn a_served_queue_gives_events_in_order_and_none_after_its_close() {
    let (seen, see) = mpsc::channel();
    let queue = Queue::serve(move |value| seen.send(value).unwrap()).unwrap();
    let pipe = Pipe::default();
    queue.add(Box::new(pipe.clone())).unwrap();
    for value in 0..100 {
        pipe.put(value);
    }
    let got: Vec<u32> = (0..100).map(|_| see.recv().unwrap()).collect();
    assert_eq!(got, (0..100).collect::<Vec<u32>>());
    assert!(queue.is_served() && !queue.is_here());
    queue.close();
    pipe.put(100);
    // The thread has ended, and its sender with it.
    assert!(see.recv().is_err());
}

#[test]
fn a_panic_in_a_source_leaves_the_queue_in_order() {
    struct Bad;
    impl Source<u32> for Bad {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<u32>> {
            panic!("of this source");
        }
    }
    let (queue, pipe) = (Queue::new(), Pipe::default());
    let bad = queue.add(Box::new(Bad)).unwrap();
    pipe.put(1);
    queue.add(Box::new(pipe)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| queue.next(NONE))).is_err());
    assert_eq!(queue.next(NONE), Taken::Event(1));
    queue.remove(bad);
    queue.close();
}

#[test]
fn no_event_is_lost_between_threads_that_feed_and_threads_that_take() {
    const EACH: usize = 5000;
    let (queue, taken) = (Arc::new(Queue::new()), Arc::new(AtomicUsize::new(0)));
    let done = Arc::new(AtomicBool::new(false));
    let pipes: Vec<Pipe> = (0..4).map(|_| Pipe::default()).collect();
    for pipe in &pipes {
        queue.add(Box::new(pipe.clone())).unwrap();
    }
    let takers: Vec<_> = (0..3)
        .map(|_| {
            let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
            let done = Arc::clone(&done);
            thread::spawn(move || {
                while let Taken::Event(_) = queue.next(LONG) {
                    if taken.fetch_add(1, Ordering::SeqCst) + 1 == 4 * EACH {
                        done.store(true, Ordering::SeqCst);
                        queue.close();
                    }
                }
            })
        })
        .collect();
    let feeders: Vec<_> = pipes
        .into_iter()
        .map(|pipe| thread::spawn(move || (0..EACH).for_each(|_| pipe.put(1))))
        .collect();
    feeders.into_iter().chain(takers).for_each(|thread| thread.join().unwrap());
    assert!(done.load(Ordering::SeqCst), "only {} events", taken.load(Ordering::SeqCst));
}
