//! An event queue: the ends of operations, messages of inboxes and events of attachments, taken one by
//! one on the program's threads. The queue has no thread of its own: a source that is woken by the node
//! is put on the list of those to be looked at, and is looked at by the thread that waits.
//!
//! For event loops there is a descriptor that polls readable while events may be there; for programs
//! that want calls instead, [`Queue::serve`] has a thread that makes them.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Wake;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

/// Where events come from. Dropped when it has ended or is removed.
pub trait Source<T>: Send {
    /// The next event; `None` after the last.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>>;
}

/// Names a source of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u64);

/// The queue is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// What waiting for an event came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// An event.
    Event(T),
    /// The time is over.
    Nothing,
    /// The queue is closed.
    Closed,
}

/// Events of any number of sources.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    thread_id: OnceLock<ThreadId>,
}

struct Shared<T> {
    ready: Mutex<Ready>,
    filled: Condvar,
    sources: Mutex<Sources<T>>,
}

#[derive(Default)]
struct Ready {
    keys: VecDeque<Key>,
    fd: Option<Arc<OwnedFd>>,
    /// The descriptor is readable.
    signalled: bool,
    closed: bool,
}

struct Sources<T> {
    next: u64,
    entries: BTreeMap<Key, Arc<Entry<T>>>,
}

struct Entry<T> {
    /// `None` once it has ended or was removed.
    source: Mutex<Option<Box<dyn Source<T>>>>,
    alarm: Arc<Alarm<T>>,
}

/// Puts its source on the list, once.
struct Alarm<T> {
    key: Key,
    listed: AtomicBool,
    shared: Weak<Shared<T>>,
}

impl<T: 'static> Wake for Alarm<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::AcqRel)
            && let Some(shared) = self.shared.upgrade()
        {
            shared.list(self.key);
        }
    }
}

fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    // What a panic left behind is a list or a table, whole between two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ready {
    fn signal(&mut self) {
        if let (Some(fd), false) = (&self.fd, self.signalled) {
            self.signalled = true;
            // Fails only if the counter is full: then it is readable.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    fn silence(&mut self) {
        if let (Some(fd), true) = (&self.fd, self.signalled) {
            self.signalled = false;
            let mut count = [0; 8];
            // It was written to, so there is something to read.
            let _ = rustix::io::read(fd, &mut count);
        }
    }
}

impl<T> Shared<T> {
    fn list(&self, key: Key) {
        let mut ready = locked(&self.ready);
        ready.keys.push_back(key);
        ready.signal();
        drop(ready);
        self.filled.notify_one();
    }

    /// The next source to look at.
    fn next_key(&self, deadline: Option<Instant>) -> Taken<Key> {
        let mut ready = locked(&self.ready);
        loop {
            if ready.closed {
                return Taken::Closed;
            }
            if let Some(key) = ready.keys.pop_front() {
                return Taken::Event(key);
            }
            ready.silence();
            ready = match deadline {
                None => self.filled.wait(ready).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Taken::Nothing;
                    }
                    let woken = self.filled.wait_timeout(ready, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl<T: 'static> Shared<T> {
    fn next(&self, limit: Option<Duration>) -> Taken<T> {
        // A limit beyond what the clock can say is none.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let key = match self.next_key(deadline) {
                Taken::Event(key) => key,
                Taken::Nothing => return Taken::Nothing,
                Taken::Closed => return Taken::Closed,
            };
            let entry = locked(&self.sources).entries.get(&key).map(Arc::clone);
            let Some(entry) = entry else { continue };
            entry.alarm.listed.store(false, Ordering::Release);
            let waker = Waker::from(Arc::clone(&entry.alarm));
            let mut source = locked(&entry.source);
            let Some(polled) =
                source.as_mut().map(|s| s.poll_next(&mut Context::from_waker(&waker)))
            else {
                continue;
            };
            match polled {
                Poll::Pending => {}
                Poll::Ready(Some(event)) => {
                    drop(source);
                    // There may be more: behind the other sources.
                    waker.wake();
                    return Taken::Event(event);
                }
                Poll::Ready(None) => {
                    let ended = source.take();
                    drop(source);
                    drop(ended);
                    locked(&self.sources).entries.remove(&key);
                }
            }
        }
    }
}

impl<T: Send + 'static> Queue<T> {
    /// A queue from which events are taken with [`Queue::next`].
    pub fn new() -> Self {
        let sources = Sources { next: 1, entries: BTreeMap::new() };
        let shared = Shared {
            ready: Mutex::default(),
            filled: Condvar::new(),
            sources: Mutex::new(sources),
        };
        Self { shared: Arc::new(shared), thread: Mutex::new(None), thread_id: OnceLock::new() }
    }

    /// A queue whose events are given to `f`, one by one, on a thread of its own.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn serve(mut f: impl FnMut(T) + Send + 'static) -> io::Result<Self> {
        let queue = Self::new();
        let shared = Arc::clone(&queue.shared);
        let run = move || {
            while let Taken::Event(event) = shared.next(None) {
                f(event);
            }
        };
        let thread = thread::Builder::new().name("ulnet-events".to_owned()).spawn(run)?;
        let _ = queue.thread_id.set(thread.thread().id());
        *locked(&queue.thread) = Some(thread);
        Ok(queue)
    }

    /// Whether it has a thread that takes its events.
    pub fn is_served(&self) -> bool {
        self.thread_id.get().is_some()
    }

    /// Whether the calling thread is the one that takes its events.
    pub fn is_here(&self) -> bool {
        self.thread_id.get() == Some(&thread::current().id())
    }

    /// Adds a source. It is looked at when an event is next asked for.
    ///
    /// # Errors
    /// [`Closed`]; the source is dropped.
    pub fn add(&self, source: Box<dyn Source<T>>) -> Result<Key, Closed> {
        let mut sources = locked(&self.shared.sources);
        if locked(&self.shared.ready).closed {
            return Err(Closed);
        }
        let key = Key(sources.next);
        sources.next += 1;
        let alarm =
            Alarm { key, listed: AtomicBool::new(true), shared: Arc::downgrade(&self.shared) };
        let entry = Entry { source: Mutex::new(Some(source)), alarm: Arc::new(alarm) };
        sources.entries.insert(key, Arc::new(entry));
        drop(sources);
        self.shared.list(key);
        Ok(key)
    }

    /// Removes a source, if it is still there. What it has not given yet is lost.
    pub fn remove(&self, key: Key) {
        let entry = locked(&self.shared.sources).entries.remove(&key);
        // Another thread may have it in hand: not longer than one look takes.
        let source = entry.and_then(|entry| locked(&entry.source).take());
        drop(source);
    }

    /// The next event, waiting at most `limit`; for ever if `None`.
    pub fn next(&self, limit: Option<Duration>) -> Taken<T> {
        self.shared.next(limit)
    }

    /// A descriptor that polls readable while there may be an event, until [`Queue::next`] has said that
    /// there is none. Not to be read from.
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub fn fd(&self) -> io::Result<Arc<OwnedFd>> {
        let mut ready = locked(&self.shared.ready);
        if let Some(fd) = &ready.fd {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        ready.fd = Some(Arc::clone(&fd));
        if !ready.keys.is_empty() || ready.closed {
            ready.signal();
        }
        Ok(fd)
    }

    /// Ends it: waiting threads return, sources are dropped with what they had to give, its own thread
    /// has ended when this returns. From that thread itself it must not be called.
    pub fn close(&self) {
        let mut ready = locked(&self.shared.ready);
        ready.closed = true;
        ready.keys.clear();
        ready.signal();
        drop(ready);
        self.shared.filled.notify_all();
        let thread = locked(&self.thread).take();
        if let Some(thread) = thread
            && !self.is_here()
        {
            // A panic there has been printed.
            let _ = thread.join();
        }
        let entries = core::mem::take(&mut locked(&self.shared.sources).entries);
        for entry in entries.into_values() {
            let source = locked(&entry.source).take();
            drop(source);
        }
    }
}

impl<T: Send + 'static> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        let mut ready = locked(&self.shared.ready);
        ready.closed = true;
        ready.keys.clear();
        drop(ready);
        self.shared.filled.notify_all();
        let entries = core::mem::take(&mut locked(&self.shared.sources).entries);
        drop(entries);
    }
}

/// Waits until `fd` polls readable; `false` if a signal or the time came first.
///
/// # Errors
/// Those of `poll(2)`.
pub fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec::try_from(limit).ok();
    match poll(&mut [PollFd::new(&fd.as_fd(), PollFlags::IN)], limit.as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
