//! A store's thread: it carries out orders as they come, and commits what they have changed soon
//! after, many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lnet_types::Memory;
use lustre_target::store::{Loaded, Outcome, Store, StoreFact, StoreOrder};

use super::disk::{Disk, bytes_of, deliver};

/// What is applied is committed after so long, even if no reply waits for it.
const COMMIT_AFTER: Duration = Duration::from_millis(50);
/// A wake-up that found no room is tried again after so long.
const WAKE_AGAIN: Duration = Duration::from_millis(1);

/// Lets the owner of a store know that there are facts to be polled.
pub type Wake = Box<dyn Fn(WakeUp) + Send>;

/// A wake-up on its way to the owner of a store. One that is dropped on the way is repeated.
#[derive(Debug)]
pub struct WakeUp(Arc<Signal>);

impl WakeUp {
    /// The wake-up has reached the owner, which polls next.
    pub fn arrived(self) {
        self.0.woken.store(false, Ordering::Release);
    }
}

impl Drop for WakeUp {
    fn drop(&mut self) {
        // After `arrived` nothing is under way, and nothing is lost.
        if self.0.woken.swap(false, Ordering::AcqRel) {
            self.0.lost.store(true, Ordering::Release);
        }
    }
}

#[derive(Debug, Default)]
struct Signal {
    /// A wake-up is under way.
    woken: AtomicBool,
    /// A wake-up did not arrive.
    lost: AtomicBool,
}

enum Job {
    Order(StoreOrder, Vec<u8>),
    End,
}

/// A store on files whose orders are carried out by a thread of its own.
#[derive(Debug)]
pub struct FileStore {
    jobs: Sender<Job>,
    facts: Receiver<(StoreFact, Loaded)>,
    thread: Option<JoinHandle<()>>,
}

impl FileStore {
    /// Starts the thread of a store that is open.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(disk: Disk, wake: Wake) -> std::io::Result<Self> {
        let (jobs, orders) = channel();
        let (done, facts) = channel();
        let signal = Arc::new(Signal::default());
        let work = move || Worker { disk, done, wake, signal, undelivered: false }.run(&orders);
        let thread = thread::Builder::new().name("store".to_owned()).spawn(work)?;
        Ok(Self { jobs, facts, thread: Some(thread) })
    }

    /// Waits until there is a fact, for owners that have nothing else to do.
    pub fn wait(&mut self, memory: &mut dyn Memory, most: Duration) -> Option<StoreFact> {
        self.facts.recv_timeout(most).ok().map(|fact| deliver(fact, memory))
    }
}

impl Store for FileStore {
    fn order(&mut self, order: StoreOrder, memory: &dyn Memory) {
        let bytes = bytes_of(&order, memory);
        // The thread ends only with this value.
        let _ = self.jobs.send(Job::Order(order, bytes));
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        self.facts.try_recv().ok().map(|fact| deliver(fact, memory))
    }
}

/// What was ordered is carried out and committed before the store is gone.
impl Drop for FileStore {
    fn drop(&mut self) {
        let _ = self.jobs.send(Job::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    disk: Disk,
    done: Sender<(StoreFact, Loaded)>,
    wake: Wake,
    signal: Arc<Signal>,
    /// Facts were sent since the owner was woken last.
    undelivered: bool,
}

impl Worker {
    fn run(mut self, orders: &Receiver<Job>) {
        // Since when something waits for its commit, and the orders that wait for one.
        let mut since: Option<Instant> = None;
        let mut syncs: Vec<u64> = Vec::new();
        loop {
            let now = Instant::now();
            let due = since.map(|since| (since + COMMIT_AFTER).saturating_duration_since(now));
            let job = match (syncs.is_empty(), due) {
                // Replies wait for the commit: it carries what is queued already, and begins.
                (false, _) => orders.try_recv().map_err(|e| e == TryRecvError::Disconnected),
                (true, Some(due)) if due.is_zero() => Err(false),
                (true, due) => {
                    let most = due.unwrap_or(Duration::MAX);
                    let most = if self.undelivered { most.min(WAKE_AGAIN) } else { most };
                    match orders.recv_timeout(most.min(Duration::from_secs(3600))) {
                        Ok(job) => Ok(job),
                        Err(RecvTimeoutError::Disconnected) => Err(true),
                        Err(RecvTimeoutError::Timeout) => {
                            self.report();
                            continue;
                        }
                    }
                }
            };
            match job {
                Ok(Job::Order(StoreOrder::Sync { token }, _)) => syncs.push(token),
                Ok(Job::Order(order, bytes)) => {
                    self.disk.execute(order, &bytes);
                    if since.is_none() && self.disk.is_dirty() {
                        since = Some(now);
                    }
                }
                Ok(Job::End) | Err(true) => {
                    // A failure was reported as a fact; there is no one left to hear of it.
                    let _ = self.disk.commit();
                    return;
                }
                Err(false) => {
                    let committed = self.disk.commit().map(|()| Outcome::Done);
                    since = None;
                    self.report();
                    for token in syncs.drain(..) {
                        self.send((StoreFact::Done { token, outcome: committed.clone() }, None));
                    }
                }
            }
            self.report();
        }
    }

    fn send(&mut self, fact: (StoreFact, Loaded)) {
        // An owner that is gone wants none.
        let _ = self.done.send(fact);
        self.undelivered = true;
    }

    /// Hands facts over, and wakes the owner unless that is under way.
    fn report(&mut self) {
        while let Some(fact) = self.disk.next_fact() {
            self.send(fact);
        }
        if self.undelivered && !self.signal.woken.swap(true, Ordering::AcqRel) {
            self.undelivered = false;
            (self.wake)(WakeUp(Arc::clone(&self.signal)));
        }
        self.undelivered |= self.signal.lost.swap(false, Ordering::AcqRel);
    }
}
