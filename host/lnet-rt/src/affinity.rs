//! Where a stack's own thread may run: on the CPUs of the partitions that its interfaces use, so that a
//! node whose interfaces are all tied to one partition does all its work there (MR-cfg-025). A thread
//! that the caller drives is the caller's, and left alone.

use std::collections::BTreeSet;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::numa;
use crate::stack::Stack;

/// Where the current thread may run.
#[derive(Debug)]
pub(crate) struct Affinity {
    /// When it began.
    had: BTreeSet<u32>,
    now: BTreeSet<u32>,
}

/// The CPUs that the current thread may run on; none if the system does not say.
pub(crate) fn allowed() -> BTreeSet<u32> {
    let set = sched_getaffinity(None)
        .inspect_err(|e| tracing::warn!("CPUs of this thread: sched_getaffinity: {e}"))
        .unwrap_or_default();
    let numbers = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    numbers.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

impl Affinity {
    /// That of the current thread.
    pub(crate) fn here() -> Self {
        let had = allowed();
        Self { now: had.clone(), had }
    }

    /// Keeps the current thread on those CPUs of `wanted` that it had when it began; on all that it
    /// had if nothing is wanted. Returns whether that changed anything. A refusal of the system is
    /// reported in the log: the node works anyway.
    fn follow(&mut self, wanted: &BTreeSet<u32>) -> bool {
        let mut cpus: BTreeSet<u32> = self.had.intersection(wanted).copied().collect();
        if cpus.is_empty() {
            cpus.clone_from(&self.had);
        }
        if cpus == self.now {
            return false;
        }
        let mut set = CpuSet::new();
        for cpu in cpus.iter().filter_map(|cpu| usize::try_from(*cpu).ok()) {
            set.set(cpu);
        }
        if let Err(e) = sched_setaffinity(None, &set) {
            tracing::warn!("keeping the node's thread on CPUs {cpus:?}: sched_setaffinity: {e}");
            return false;
        }
        tracing::info!("the node's thread runs on CPUs {cpus:?}");
        self.now = cpus;
        true
    }
}

impl Stack {
    /// To be called by the loop of the stack's own thread, from there.
    pub(crate) fn own_thread(&mut self) {
        self.affinity = Some(Affinity::here());
        self.place_thread();
    }

    /// After interfaces have come, gone or changed their partitions: the thread goes where they are.
    pub(crate) fn place_thread(&mut self) {
        let Some(affinity) = &mut self.affinity else { return };
        if affinity.follow(&self.node.cpus_in_use()) {
            numa::settle(&mut self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, which a test may do with as it likes.
    #[test]
    fn a_thread_moves_to_the_given_cpus_and_back() {
        std::thread::spawn(|| {
            let mut affinity = Affinity::here();
            let all = affinity.had.clone();
            assert!(!affinity.follow(&all), "nothing is to be done");
            assert!(!affinity.follow(&BTreeSet::new()));
            let last: BTreeSet<u32> = all.last().copied().into_iter().collect();
            let beyond = last.iter().copied().chain([1_000_000]).collect();
            assert_eq!(affinity.follow(&beyond), all.len() > 1);
            assert_eq!(allowed(), last, "what it never had it does not get");
            assert!(!affinity.follow(&last));
            assert_eq!(affinity.follow(&[1_000_000].into_iter().collect()), all.len() > 1);
            assert_eq!(allowed(), all);
        })
        .join()
        .unwrap();
    }
}
