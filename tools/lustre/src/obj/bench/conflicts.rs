//! Looks at the locks of all clients, again and again during a run: two clients never have locks that
//! exclude each other at the same moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use lustre_rt::{ImportId, ObjectLock, RpcNode};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// A client and the target of its connection.
pub(super) type Connections = BTreeMap<ImportId, (u32, usize)>;

/// Looks until it is stopped.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<BTreeSet<(u32, u32)>>>,
}

/// The pairs of clients with locks that exclude each other.
fn pairs(locks: &[ObjectLock], connections: &Connections) -> BTreeSet<(u32, u32)> {
    let mut by_object: BTreeMap<_, Vec<(u32, &ObjectLock)>> = BTreeMap::new();
    for lock in locks {
        if let Some((client, target)) = connections.get(&lock.import) {
            let object = (*target, lock.resource.words);
            by_object.entry(object).or_default().push((*client, lock));
        }
    }
    let mut found = BTreeSet::new();
    for all in by_object.into_values() {
        for (a, x) in &all {
            let meets = |y: &ObjectLock| x.start <= y.last && y.start <= x.last;
            let excluded =
                |(b, y): &&(u32, &ObjectLock)| a < b && meets(y) && !x.mode.allows(y.mode);
            found.extend(all.iter().filter(excluded).map(|(b, _)| (*a, *b)));
        }
    }
    found
}

impl Watch {
    /// Begins to look.
    ///
    /// # Errors
    /// The system has no thread.
    pub(super) fn start(rpc: &RpcNode, connections: Connections) -> Result<Self> {
        let (stop, rpc) = (Arc::new(AtomicBool::new(false)), rpc.clone());
        let stopped = Arc::clone(&stop);
        let look = move || {
            let mut found = BTreeSet::new();
            while !stopped.load(Ordering::Relaxed) {
                found.extend(pairs(&rpc.object_locks()?, &connections));
                thread::sleep(LOOK);
            }
            Ok(found)
        };
        Ok(Self { stop, thread: thread::Builder::new().name("locks".into()).spawn(look)? })
    }

    /// Pairs of clients that had such locks; one that was evicted shows locks that it has lost, and does
    /// not count.
    ///
    /// # Errors
    /// The node has stopped.
    pub(super) fn stop(self, evicted: &BTreeSet<u32>) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let found = self.thread.join().map_err(|_| anyhow!("the look at locks has failed"))??;
        let lives = |(a, b): &&(u32, u32)| !evicted.contains(a) && !evicted.contains(b);
        Ok(found.iter().filter(lives).count())
    }
}
