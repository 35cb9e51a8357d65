//! A store's threads: one carries out orders as they come, the other commits what they have changed
//! soon after, many at a time. Orders go on meanwhile. An order that touches memory alone, while no other is
//! under way, is carried out by the thread that gives it: it is over before another one would wake up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lnet_types::Memory;
use lustre_target::store::{Outcome, Store, StoreError, StoreFact, StoreOrder};

use super::bytes::{Loaded, deliver};
use super::commit::{Batch, Committed};
use super::disk::{Disk, Ready};
use super::room::Patience;
use crate::spare::Spare;

/// What is applied is committed after so long, even if no reply waits for it.
const COMMIT_AFTER: Duration = Duration::from_millis(50);
/// A wake-up that found no room is tried again after so long.
const WAKE_AGAIN: Duration = Duration::from_millis(1);
/// Where nothing is due.
const LONG: Duration = Duration::from_secs(3600);
/// Orders that the owner's thread carries out one after the other before it has something else to do.
const AT_ONCE: u32 = 256;

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

/// A fact, and data that is still to be written to memory.
type Fact = (StoreFact, Loaded);

/// A fact on its way to the owner.
struct Sent {
    fact: Fact,
    /// The end of an order that the thread was given.
    ends_order: bool,
}

/// The store, for the thread that carries out an order.
struct Shared {
    disk: Disk,
    /// Since when something waits for its commit.
    dirty_since: Option<Instant>,
    /// Orders that wait for a commit, and the transaction that each one needs.
    syncs: VecDeque<(u64, u64)>,
    /// No further order comes.
    ended: bool,
}

/// The way of facts to the owner.
struct Outbox {
    done: Sender<Sent>,
    wake: Wake,
    signal: Arc<Signal>,
    /// Facts were sent since the owner was woken last.
    undelivered: bool,
}

/// What the threads of a store have in common.
struct Desk {
    shared: Mutex<Shared>,
    /// A commit may have become due.
    due: Condvar,
    /// A commit has ended.
    settled: Condvar,
    outbox: Mutex<Outbox>,
}

/// A store on files whose orders are carried out by a thread of its own, and committed by another.
pub struct FileStore {
    desk: Arc<Desk>,
    /// `None` when no further order comes.
    orders: Option<Sender<Ready>>,
    facts: Receiver<Sent>,
    /// Orders that the thread was given, whose facts were not polled yet. Later ones wait for them.
    handed: usize,
    /// Facts of orders that were carried out at once.
    here: VecDeque<Fact>,
    /// How many there were since there was no fact.
    at_once: u32,
    threads: Vec<JoinHandle<()>>,
    patience: Patience,
    spare: Arc<Spare>,
}

impl Shared {
    /// An order to commit; its fact if it need not wait.
    fn sync(&mut self, token: u64) -> Option<StoreFact> {
        self.syncs.push_back((token, self.disk.progress().0));
        self.end_syncs().pop()
    }

    /// Ends orders that wait for no commit any more.
    fn end_syncs(&mut self) -> Vec<StoreFact> {
        let ((_, committed), failed) = (self.disk.progress(), self.disk.is_failed());
        let mut ended = Vec::new();
        while let Some((token, need)) = self.syncs.front().copied() {
            if !failed && need > committed {
                break;
            }
            self.syncs.pop_front();
            let outcome = if failed { Err(StoreError::OutOfService) } else { Ok(Outcome::Done) };
            ended.push(StoreFact::Done { token, outcome });
        }
        ended
    }

    /// An order was carried out. Whether something waits for its commit that did not before.
    fn executed(&mut self) -> bool {
        let first = self.dirty_since.is_none() && self.disk.is_dirty();
        if first {
            self.dirty_since = Some(Instant::now());
        }
        first
    }

    /// What is committed next: when something waits for it, or was applied long enough ago. What is ordered
    /// meanwhile is carried by the next commit.
    fn freeze(&mut self) -> Option<Batch> {
        let due = self.dirty_since.is_some_and(|since| since.elapsed() >= COMMIT_AFTER);
        if self.syncs.is_empty() && !due && !self.disk.is_full() && !self.ended {
            return None;
        }
        let batch = self.disk.freeze()?;
        self.dirty_since = None;
        Some(batch)
    }

    /// A commit has ended.
    fn settle(&mut self, result: Result<Committed, StoreError>) -> Vec<Fact> {
        let failed = result.as_ref().err().cloned();
        self.disk.settle(result);
        // An order that came meanwhile may have changed nothing: then there is no commit to wait for.
        self.dirty_since = self.dirty_since.filter(|_| self.disk.is_dirty());
        let mut facts = self.facts();
        if let Some(e) = failed {
            let ended = core::mem::take(&mut self.syncs).into_iter();
            facts.extend(
                ended.map(|(token, _)| (StoreFact::Done { token, outcome: Err(e.clone()) }, None)),
            );
        }
        facts.extend(self.end_syncs().into_iter().map(|fact| (fact, None)));
        facts
    }

    fn facts(&mut self) -> Vec<Fact> {
        core::iter::from_fn(|| self.disk.next_fact()).collect()
    }
}

impl Outbox {
    /// Sends facts, and wakes the owner unless that is under way.
    fn send(&mut self, facts: impl IntoIterator<Item = Sent>) {
        for sent in facts {
            // An owner that is gone wants none.
            let _ = self.done.send(sent);
            self.undelivered = true;
        }
        if self.undelivered && !self.signal.woken.swap(true, Ordering::AcqRel) {
            self.undelivered = false;
            (self.wake)(WakeUp(Arc::clone(&self.signal)));
        }
        self.undelivered |= self.signal.lost.swap(false, Ordering::AcqRel);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    fn new(disk: Disk, done: Sender<Sent>, wake: Wake) -> Self {
        let shared = Shared { disk, dirty_since: None, syncs: VecDeque::new(), ended: false };
        let outbox = Outbox { done, wake, signal: Arc::default(), undelivered: false };
        Self {
            shared: Mutex::new(shared),
            due: Condvar::new(),
            settled: Condvar::new(),
            outbox: Mutex::new(outbox),
        }
    }

    /// Sends facts that end no order.
    fn send(&self, facts: impl IntoIterator<Item = Fact>) {
        let sent = facts.into_iter().map(|fact| Sent { fact, ends_order: false });
        lock(&self.outbox).send(sent);
    }

    /// Repeats a wake-up that has not arrived; how long its thread may sleep.
    fn wake_again(&self) -> Duration {
        let mut outbox = lock(&self.outbox);
        outbox.send([]);
        if outbox.undelivered { WAKE_AGAIN } else { LONG }
    }

    /// Carries out orders until no further one comes.
    fn work(&self, orders: &Receiver<Ready>) {
        loop {
            match orders.recv_timeout(self.wake_again()) {
                Ok(ready) => self.order(ready),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn order(&self, ready: Ready) {
        let mut shared = lock(&self.shared);
        if let Some(token) = ready.sync() {
            let fact = shared.sync(token);
            drop(shared);
            self.due.notify_one();
            return self.send(fact.map(|fact| (fact, None)));
        }
        while shared.disk.is_full() && !shared.disk.is_failed() {
            self.due.notify_one();
            shared = self.settled.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
        shared.disk.execute(ready);
        let (first, facts) = (shared.executed(), shared.facts());
        drop(shared);
        if first {
            self.due.notify_one();
        }
        let sent = facts.into_iter().map(|fact| {
            let ends = matches!(fact.0, StoreFact::Done { .. } | StoreFact::Applied { .. });
            Sent { fact, ends_order: ends }
        });
        lock(&self.outbox).send(sent);
    }

    /// Commits what was applied, until no further order comes and nothing is left.
    fn commit(&self, patience: &Patience) {
        while let Some(batch) = self.next_batch() {
            let result = batch.commit();
            drop(batch);
            let facts = lock(&self.shared).settle(result);
            patience.renew();
            self.settled.notify_all();
            self.send(facts);
        }
    }

    fn next_batch(&self) -> Option<Batch> {
        let mut shared = lock(&self.shared);
        loop {
            if let Some(batch) = shared.freeze() {
                return Some(batch);
            }
            if shared.ended {
                return None;
            }
            let mut most = self.wake_again();
            if let Some(since) = shared.dirty_since {
                most = most.min((since + COMMIT_AFTER).saturating_duration_since(Instant::now()));
            }
            let waited = self.due.wait_timeout(shared, most);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl core::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FileStore").field("handed", &self.handed).finish_non_exhaustive()
    }
}

impl FileStore {
    /// A store without threads, and the orders that it hands over.
    fn new(disk: Disk, wake: Wake) -> (Self, Receiver<Ready>) {
        let (orders, received) = channel();
        let (done, facts) = channel();
        let (patience, spare) = (disk.patience(), disk.spare());
        let store = Self {
            desk: Arc::new(Desk::new(disk, done, wake)),
            orders: Some(orders),
            facts,
            handed: 0,
            here: VecDeque::new(),
            at_once: 0,
            threads: Vec::new(),
            patience,
            spare,
        };
        (store, received)
    }

    /// Starts the threads of a store that is open.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(disk: Disk, wake: Wake) -> std::io::Result<Self> {
        let (mut store, orders) = Self::new(disk, wake);
        let short = Arc::downgrade(&store.desk);
        store.patience.begin(move || {
            if let Some(desk) = short.upgrade() {
                desk.send([(StoreFact::Short, None)]);
            }
        });
        let desk = Arc::clone(&store.desk);
        let work = move || desk.work(&orders);
        store.threads.push(thread::Builder::new().name("store".to_owned()).spawn(work)?);
        let (desk, patience) = (Arc::clone(&store.desk), store.patience.clone());
        let commit = move || desk.commit(&patience);
        store.threads.push(thread::Builder::new().name("store-commit".to_owned()).spawn(commit)?);
        Ok(store)
    }

    /// Waits until there is a fact, for owners that have nothing else to do.
    pub fn wait(&mut self, memory: &mut dyn Memory, most: Duration) -> Option<StoreFact> {
        let fact = match self.here.pop_front() {
            Some(fact) => fact,
            None => {
                let sent = self.facts.recv_timeout(most).ok()?;
                self.received(sent)
            }
        };
        Some(deliver(fact, memory, &self.spare))
    }

    /// Carries an order out, if it touches memory alone and waits for nothing; otherwise gives it back.
    fn at_once(&mut self, ready: Ready) -> Option<Ready> {
        if self.handed > 0 || self.at_once >= AT_ONCE {
            return Some(ready);
        }
        let mut shared = match self.desk.shared.try_lock() {
            Ok(shared) => shared,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(ready),
        };
        let due = if let Some(token) = ready.sync() {
            self.here.extend(shared.sync(token).map(|fact| (fact, None)));
            true
        } else if shared.disk.has_at_hand(&ready) && !shared.disk.is_full() {
            shared.disk.execute_at_once(ready);
            self.here.extend(shared.facts());
            shared.executed()
        } else {
            return Some(ready);
        };
        drop(shared);
        self.at_once += 1;
        if due {
            self.desk.due.notify_one();
        }
        None
    }

    fn received(&mut self, sent: Sent) -> Fact {
        self.handed -= usize::from(sent.ends_order);
        sent.fact
    }
}

impl Store for FileStore {
    fn order(&mut self, order: StoreOrder, memory: &mut dyn Memory) {
        let ready = Ready::of(order, memory, &self.spare);
        let Some(ready) = self.at_once(ready) else { return };
        // A commit may take in what comes later: nothing waits for it.
        self.handed += usize::from(ready.sync().is_none());
        if let Some(orders) = &self.orders {
            // The thread ends only with this value.
            let _ = orders.send(ready);
        }
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        // What is committed was applied before: what is here goes first.
        let fact = match self.here.pop_front() {
            Some(fact) => fact,
            None => match self.facts.try_recv() {
                Ok(sent) => self.received(sent),
                Err(_) => {
                    self.at_once = 0;
                    return None;
                }
            },
        };
        Some(deliver(fact, memory, &self.spare))
    }
}

/// What was ordered is carried out and committed before the store is gone, if there is room.
impl Drop for FileStore {
    fn drop(&mut self) {
        self.patience.end();
        self.orders = None;
        let mut threads = self.threads.drain(..);
        if let Some(worker) = threads.next() {
            let _ = worker.join();
        }
        lock(&self.desk.shared).ended = true;
        self.desk.due.notify_one();
        for committer in threads {
            let _ = committer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use lustre_target::conformance::Slate;
    use lustre_target::store::{Change, Source, Space, Txn};

    use super::super::DiskConfig;
    use super::*;

    fn desk(dir: &std::path::Path) -> (Desk, Receiver<Sent>) {
        std::fs::create_dir_all(dir).unwrap();
        let (done, facts) = channel();
        (Desk::new(Disk::open(DiskConfig::new(dir)).unwrap(), done, Box::new(|_| {})), facts)
    }

    fn put(id: u64) -> StoreOrder {
        let put = Change::Put(Space::Objects, b"key".to_vec(), vec![1]);
        StoreOrder::Apply(Txn { id, changes: vec![put], must: false })
    }

    fn read(token: u64) -> StoreOrder {
        StoreOrder::Read { token, from: Source::Record(Space::Objects, b"key".to_vec()) }
    }

    fn store(dir: &std::path::Path) -> FileStore {
        std::fs::create_dir_all(dir).unwrap();
        let disk = Disk::open(DiskConfig::new(dir)).unwrap();
        FileStore::start(disk, Box::new(|_| {})).unwrap()
    }

    fn must(id: u64) -> StoreOrder {
        let StoreOrder::Apply(txn) = put(id) else { unreachable!() };
        StoreOrder::Apply(Txn { must: true, ..txn })
    }

    #[test]
    fn order_that_needs_memory_alone_is_carried_out_where_it_is_given() {
        let (dir, minute) = (fresh::path("store-at-once"), Duration::from_secs(60));
        let (mut store, mut slate) = (store(&dir), Slate(Vec::new()));
        let mut at_once = 0;
        for id in 1..=5 {
            // So that the threads wait for something to do.
            thread::sleep(Duration::from_millis(20));
            store.order(must(id), &mut slate);
            // The lock may be another thread's for a moment: then an order is handed over.
            at_once += u32::from(store.handed == 0);
            // Nothing else makes it known that something waits for its commit.
            let last = StoreFact::Committed { up_to: id };
            while store.wait(&mut slate, minute).unwrap() != last {}
        }
        assert!(at_once > 0);
        drop(store);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn order_behind_one_that_waits_for_the_disk_comes_after_it() {
        let dir = fresh::path("store-behind");
        let (mut store, mut slate) = (store(&dir), Slate(Vec::new()));
        let list = |token| {
            let (after, prefix) = (Vec::new(), Vec::new());
            StoreOrder::List { token, space: Space::Objects, after, prefix, max: 9 }
        };
        store.order(list(1), &mut slate);
        store.order(must(2), &mut slate);
        store.order(list(3), &mut slate);
        let mut facts = Vec::new();
        while facts.len() < 3 {
            match store.wait(&mut slate, Duration::from_secs(60)).unwrap() {
                StoreFact::Committed { .. } => {}
                StoreFact::Done { outcome: Ok(Outcome::Listed { entries, .. }), .. } => {
                    facts.push(Some(entries.len()));
                }
                _ => facts.push(None),
            }
        }
        assert_eq!(facts, [Some(0), None, Some(1)]);
        drop(store);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn orders_that_follow_from_each_other_leave_the_thread_of_their_owner_in_the_end() {
        let dir = fresh::path("store-chain");
        let (mut store, mut slate) = (store(&dir), Slate(Vec::new()));
        // The lock may be another thread's for a moment: then an order is handed over sooner.
        let mut at_once = 0;
        for _ in 0..2 * AT_ONCE {
            store.order(read(1), &mut slate);
            at_once += u32::from(store.handed == 0);
            store.wait(&mut slate, Duration::from_secs(60)).unwrap();
        }
        assert!((1..=AT_ONCE).contains(&at_once), "{at_once}");
        assert_eq!(store.poll(&mut slate), None);
        assert_eq!(store.at_once, 0);
        drop(store);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn order_is_handed_over_while_too_much_is_to_be_committed() {
        let dir = fresh::path("store-full-layer");
        std::fs::create_dir_all(&dir).unwrap();
        let disk = Disk::open(DiskConfig::new(&dir)).unwrap();
        let ((mut store, orders), mut slate) =
            (FileStore::new(disk, Box::new(|_| {})), Slate(Vec::new()));
        let mut id = 0;
        while orders.try_recv().is_err() {
            assert!(id < 10_000, "nothing commits");
            id += 1;
            let key = id.to_string().into_bytes();
            let changes = vec![Change::Put(Space::Objects, key, vec![0; 60_000])];
            store.order(StoreOrder::Apply(Txn { id, changes, must: true }), &mut slate);
            store.at_once = 0;
        }
        assert!(lock(&store.desk.shared).disk.is_full());
        drop(store);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn commit_that_waits_for_room_is_reported_once() {
        let dir = fresh::path("store-worker-short");
        let (mut store, mut slate) = (store(&dir), Slate(Vec::new()));
        let mut refusals = 2;
        let write = || {
            refusals -= 1;
            if refusals < 0 { Ok(()) } else { Err(std::io::ErrorKind::StorageFull.into()) }
        };
        assert_eq!(store.poll(&mut slate), None);
        store.patience.with_room(write).unwrap();
        assert_eq!(store.poll(&mut slate), Some(StoreFact::Short));
        assert_eq!(store.poll(&mut slate), None);
        drop(store);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_read_while_a_commit_is_under_way_leaves_nothing_to_be_committed() {
        let dir = fresh::path("store-worker");
        let (desk, _facts) = desk(&dir);
        let order = |order| desk.order(Ready::of(order, &mut Slate(Vec::new()), &Spare::default()));
        order(put(1));
        order(StoreOrder::Sync { token: 1 });
        let batch = desk.next_batch().unwrap();
        order(read(2));
        let mut shared = lock(&desk.shared);
        shared.settle(batch.commit());
        // Otherwise a commit would be due for ever, and the thread would look for it without a pause.
        assert_eq!(shared.dirty_since, None);
        drop(shared);
        drop(desk);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
