//! What other threads want from a stack: a queue, and a wake-up that is skipped while the stack is
//! awake anyway. Whatever is in the queue when the stack goes away is dropped, and every command
//! wakes its waiter when it is dropped: no caller waits for ever.

use core::cell::Cell;
use core::convert::Infallible;
use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::{Registry, Token, Waker};

use crate::operation::Operation;
use crate::stack::Stack;

/// Commands that may wait for one stack; what comes in the way of work already begun (cancelling,
/// detaching, stopping) is not counted. 65,536 commands are about 16 MiB.
pub(crate) const COMMANDS_MAX: usize = 65_536;

pub(crate) enum Command {
    /// Begin a PUT or a GET.
    Begin(Operation),
    /// The waiter of the operation or the holder of the attachment with this key is gone.
    Release(u64),
    /// Run something on the node's thread.
    Call(Box<dyn FnOnce(&mut Stack) + Send>),
    /// Finish what is under way, at most for so long, and stop.
    Stop(Duration),
}

/// The queue is behind a lock, since the stack takes all of it at once: a command costs its caller the
/// lock, and the stack nothing but reading it, one behind the other.
pub(crate) struct Mailbox {
    queue: Mutex<VecDeque<Command>>,
    /// The length of the queue, for those who only look.
    waiting: AtomicUsize,
    /// The stack sleeps, or is about to, and needs to be woken.
    asleep: AtomicBool,
    closed: AtomicBool,
    waker: Waker,
    /// Closed when the stack and its sockets are gone; nothing is ever sent.
    gone: (async_channel::Sender<Infallible>, async_channel::Receiver<Infallible>),
}

thread_local! {
    /// The mailbox of the stack that is in its turn on this thread.
    static HERE: Cell<*const Mailbox> = const { Cell::new(core::ptr::null()) };
}

impl Mailbox {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self {
            queue: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker: Waker::new(registry, token)?,
            gone: async_channel::bounded(1),
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Command>> {
        // No code that can panic runs under the lock, so a poisoned one is as good as any.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command that the limit does not apply to.
    pub(crate) fn push(&self, command: Command) {
        let mut queue = self.lock();
        queue.push_back(command);
        self.waiting.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        // The stack sets `asleep`, then looks at the queue; here it is the other way round. With a
        // full fence on both sides at least one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::Relaxed)
            && let Err(e) = self.waker.wake()
        {
            // An eventfd write fails only if the descriptor is broken; the stack then finds the
            // command at its next time-out.
            tracing::error!("waking the node's thread: {e}");
        }
        if self.closed.load(Ordering::SeqCst) {
            self.discard();
        }
    }

    /// Whether a command that the limit applies to may be queued. Threads that ask at the same time
    /// may go past it by one each.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < COMMANDS_MAX
    }

    /// Takes all commands in exchange for an empty queue, which gives its memory. One that is just being
    /// queued may be missed, and is found at the next look: an empty queue costs one load.
    pub(crate) fn take(&self, into: &mut VecDeque<Command>) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut queue = self.lock();
        core::mem::swap(&mut *queue, into);
        self.waiting.store(queue.len(), Ordering::Relaxed);
    }

    /// Announces sleep. Returns false, and takes it back, if a command came in meanwhile.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return true;
        }
        self.wake_up();
        false
    }

    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// The stack goes away: nothing will be executed from here on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.discard();
    }

    fn discard(&self) {
        let mut all = VecDeque::new();
        let mut queue = self.lock();
        core::mem::swap(&mut *queue, &mut all);
        self.waiting.store(0, Ordering::Relaxed);
        // Commands may queue others when they are dropped.
        drop(queue);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until the stack and its sockets are gone.
    pub(crate) async fn gone(&self) {
        // An error is all that can come.
        let _ = self.gone.1.recv().await;
    }

    /// Marks this thread as the one that runs the stack, until the guard goes.
    pub(crate) fn enter(&self) -> Entered {
        Entered(HERE.replace(self))
    }

    /// Whether the caller is the thread that is running the stack just now.
    pub(crate) fn is_here(&self) -> bool {
        core::ptr::eq(HERE.get(), self)
    }
}

/// The last thing of a stack that goes: tells those who wait for its end.
pub(crate) struct Gone(pub(crate) Arc<Mailbox>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.gone.0.close();
    }
}

/// Restores what was there: a handler of one stack may drive another.
pub(crate) struct Entered(*const Mailbox);

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({} waiting)", self.waiting.load(Ordering::Relaxed))
    }
}
