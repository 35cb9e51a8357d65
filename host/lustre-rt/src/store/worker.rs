//! A store's threads: one carries out orders as they come, the other commits what they have changed
//! soon after, many at a time. Orders go on meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lnet_types::Memory;
use lustre_target::store::{Loaded, Outcome, Store, StoreError, StoreFact, StoreOrder};

use super::commit::{Batch, Committed};
use super::disk::{Disk, Ready, deliver};
use super::room::Patience;
use crate::spare::Spare;

/// What is applied is committed after so long, even if no reply waits for it.
const COMMIT_AFTER: Duration = Duration::from_millis(50);
/// While a commit is under way, how often to look whether it waits for room.
const LOOK: Duration = Duration::from_secs(1);
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
    Order(Ready),
    /// A batch is committed, or is not.
    Committed(Result<Committed, StoreError>),
    End,
}

/// A store on files whose orders are carried out by a thread of its own, and committed by another.
#[derive(Debug)]
pub struct FileStore {
    jobs: Sender<Job>,
    facts: Receiver<(StoreFact, Loaded)>,
    threads: Vec<JoinHandle<()>>,
    patience: Patience,
    spare: Arc<Spare>,
}

impl FileStore {
    /// Starts the threads of a store that is open.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(disk: Disk, wake: Wake) -> std::io::Result<Self> {
        let (jobs, orders) = channel();
        let (done, facts) = channel();
        let (batches, frozen) = channel::<Batch>();
        let (committed, spare) = (jobs.clone(), disk.spare());
        let patience = disk.patience();
        patience.begin();
        let commit = move || {
            for batch in frozen {
                // The other thread waits for it before it ends.
                let _ = committed.send(Job::Committed(batch.commit()));
            }
        };
        let committer = thread::Builder::new().name("store-commit".to_owned()).spawn(commit)?;
        let signal = Arc::new(Signal::default());
        let work = move || {
            let worker = Worker {
                patience: disk.patience(),
                disk,
                batches,
                committing: false,
                short: false,
                dirty_since: None,
                syncs: VecDeque::new(),
                held: VecDeque::new(),
                done,
                wake,
                signal,
                undelivered: false,
            };
            worker.run(&orders);
        };
        let worker = thread::Builder::new().name("store".to_owned()).spawn(work)?;
        Ok(Self { jobs, facts, threads: vec![worker, committer], patience, spare })
    }

    /// Waits until there is a fact, for owners that have nothing else to do.
    pub fn wait(&mut self, memory: &mut dyn Memory, most: Duration) -> Option<StoreFact> {
        let fact = self.facts.recv_timeout(most).ok()?;
        Some(deliver(fact, memory, &self.spare))
    }
}

impl Store for FileStore {
    fn order(&mut self, order: StoreOrder, memory: &dyn Memory) {
        // The thread ends only with this value.
        let _ = self.jobs.send(Job::Order(Ready::of(order, memory, &self.spare)));
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        let fact = self.facts.try_recv().ok()?;
        Some(deliver(fact, memory, &self.spare))
    }
}

/// What was ordered is carried out and committed before the store is gone, if there is room.
impl Drop for FileStore {
    fn drop(&mut self) {
        self.patience.end();
        let _ = self.jobs.send(Job::End);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Worker {
    disk: Disk,
    batches: Sender<Batch>,
    /// A batch is on its way.
    committing: bool,
    patience: Patience,
    /// It waits for room, which was reported.
    short: bool,
    /// Since when something waits for its commit.
    dirty_since: Option<Instant>,
    /// Orders that wait for a commit, and the transaction that each one needs.
    syncs: VecDeque<(u64, u64)>,
    /// Jobs that came while the store could take no more changes.
    held: VecDeque<Job>,
    done: Sender<(StoreFact, Loaded)>,
    wake: Wake,
    signal: Arc<Signal>,
    /// Facts were sent since the owner was woken last.
    undelivered: bool,
}

impl Worker {
    fn run(mut self, orders: &Receiver<Job>) {
        loop {
            self.begin_commit();
            self.look_for_room();
            self.report();
            match self.next(orders) {
                Some(Job::Order(ready)) => self.order(ready),
                Some(Job::Committed(result)) => self.committed(result),
                Some(Job::End) => break,
                None => {}
            }
        }
        while self.committing {
            match orders.recv() {
                Ok(Job::Committed(result)) => self.committed(result),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        // A failure was reported as a fact; no owner is left to read it.
        let _ = self.disk.commit();
    }

    /// The next job; `None` if the time for a commit or a wake-up has come before.
    fn next(&mut self, orders: &Receiver<Job>) -> Option<Job> {
        if self.committing && self.disk.is_full() {
            loop {
                match orders.recv_timeout(LOOK) {
                    Ok(committed @ Job::Committed(_)) => return Some(committed),
                    Ok(job) => self.held.push_back(job),
                    Err(RecvTimeoutError::Timeout) => return None,
                    Err(RecvTimeoutError::Disconnected) => return Some(Job::End),
                }
            }
        }
        if let Some(job) = self.held.pop_front() {
            return Some(job);
        }
        let mut most = if self.committing { LOOK } else { Duration::from_secs(3600) };
        if let Some(since) = self.dirty_since.filter(|_| !self.committing) {
            most = (since + COMMIT_AFTER).saturating_duration_since(Instant::now());
        }
        if self.undelivered {
            most = most.min(WAKE_AGAIN);
        }
        match orders.recv_timeout(most) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Job::End),
        }
    }

    fn order(&mut self, ready: Ready) {
        if let Some(token) = ready.sync() {
            self.syncs.push_back((token, self.disk.progress().0));
            return self.end_syncs();
        }
        self.disk.execute(ready);
        if self.disk.is_dirty() {
            self.dirty_since.get_or_insert_with(Instant::now);
        }
    }

    /// A commit begins when one is waited for, or something has waited long enough. What is ordered
    /// meanwhile is carried by the next one.
    fn begin_commit(&mut self) {
        let due = self.dirty_since.is_some_and(|since| since.elapsed() >= COMMIT_AFTER);
        if self.committing || self.syncs.is_empty() && !due && !self.disk.is_full() {
            return;
        }
        if let Some(batch) = self.disk.freeze() {
            self.dirty_since = None;
            // The thread ends only with this value.
            self.committing = self.batches.send(batch).is_ok();
        }
    }

    /// Reports a commit that waits for room, once.
    fn look_for_room(&mut self) {
        if self.patience.take_used() && self.committing && !self.short {
            self.short = true;
            self.send((StoreFact::Short, None));
        }
    }

    fn committed(&mut self, result: Result<Committed, StoreError>) {
        self.committing = false;
        self.short = false;
        let failed = result.as_ref().err().cloned();
        self.disk.settle(result);
        // An order that came meanwhile may have changed nothing: then there is no commit to wait for.
        self.dirty_since = self.dirty_since.filter(|_| self.disk.is_dirty());
        self.report();
        if let Some(e) = failed {
            for (token, _) in core::mem::take(&mut self.syncs) {
                self.send((StoreFact::Done { token, outcome: Err(e.clone()) }, None));
            }
        }
        self.end_syncs();
    }

    /// Ends orders that wait for no commit any more.
    fn end_syncs(&mut self) {
        let (_, committed) = self.disk.progress();
        while let Some((token, need)) = self.syncs.front().copied() {
            let outcome = match self.disk.is_failed() {
                true => Err(StoreError::OutOfService),
                false if need > committed => return,
                false => Ok(Outcome::Done),
            };
            self.syncs.pop_front();
            self.report();
            self.send((StoreFact::Done { token, outcome }, None));
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

#[cfg(test)]
mod tests {
    use lustre_target::conformance::Slate;
    use lustre_target::store::{Change, Source, Space, Txn};

    use super::super::DiskConfig;
    use super::*;

    fn worker(dir: &std::path::Path) -> (Worker, Receiver<Batch>, Receiver<(StoreFact, Loaded)>) {
        std::fs::create_dir_all(dir).unwrap();
        let (batches, frozen) = channel();
        let (done, facts) = channel();
        let disk = Disk::open(DiskConfig::new(dir)).unwrap();
        let worker = Worker {
            patience: disk.patience(),
            disk,
            batches,
            committing: false,
            short: false,
            dirty_since: None,
            syncs: VecDeque::new(),
            held: VecDeque::new(),
            done,
            wake: Box::new(|_| {}),
            signal: Arc::default(),
            undelivered: false,
        };
        (worker, frozen, facts)
    }

    #[test]
    fn a_read_while_a_commit_is_under_way_leaves_nothing_to_be_committed() {
        let dir = fresh::path("store-worker");
        let (mut worker, frozen, _facts) = worker(&dir);
        let slate = Slate(Vec::new());
        let put = Change::Put(Space::Objects, b"key".to_vec(), vec![1]);
        let read = Source::Record(Space::Objects, b"key".to_vec());
        for order in [
            StoreOrder::Apply(Txn { id: 1, changes: vec![put], must: false }),
            StoreOrder::Sync { token: 1 },
        ] {
            worker.order(Ready::of(order, &slate, &Spare::default()));
        }
        worker.begin_commit();
        let batch: Batch = frozen.try_recv().unwrap();
        let read = StoreOrder::Read { token: 2, from: read };
        worker.order(Ready::of(read, &slate, &Spare::default()));
        worker.committed(batch.commit());
        // Otherwise a commit would be due for ever, and the thread would look for it without a pause.
        assert_eq!(worker.dirty_since, None);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn commit_that_waits_for_room_is_reported_once() {
        let dir = fresh::path("store-worker-short");
        let (mut worker, _frozen, facts) = worker(&dir);
        let full = |patience: &Patience| {
            let mut refused = false;
            let write = || match core::mem::replace(&mut refused, true) {
                false => Err(std::io::ErrorKind::StorageFull.into()),
                true => Ok(()),
            };
            patience.with_room(write).unwrap();
        };
        worker.patience.begin();
        worker.committing = true;
        worker.look_for_room();
        assert!(facts.try_recv().is_err());
        for _ in 0..2 {
            full(&worker.patience);
            worker.look_for_room();
        }
        let reported: Vec<_> = facts.try_iter().map(|(fact, _)| fact).collect();
        assert_eq!(reported, [StoreFact::Short]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
