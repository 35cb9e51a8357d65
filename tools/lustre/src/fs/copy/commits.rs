//! Commits that a copy waits for, beside those files that are still under way: until they are committed small files
//! are kept in memory, and all are remembered, as they may be lost.

use core::cell::Cell;

use lustre_rt::visitor::WHOLE_MAX;

use super::waiting::Waiting;

/// So many copies, and so many bytes of them, are waited for when they are there.
const DUE: (u64, u64) = (2048, 8 << 20);

/// What is wanted of the one that waits for commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wanted {
    #[default]
    Nothing,
    /// A commit, which is waited for or will be.
    Commit,
    /// The copy is over.
    End,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Commits {
    /// Copies, and their bytes, since a commit was wanted last.
    since: Cell<(u64, u64)>,
    wanted: Cell<Wanted>,
    waiting: Waiting,
}

impl Commits {
    /// A copy of so many bytes is there. Where a commit is due and the last one is still waited for, so is that
    /// one here: no more is kept than two commits bring.
    pub(super) async fn add(&self, bytes: u64) {
        let (copies, all) = self.since.get();
        // More of a large file is not kept until it is committed.
        self.since.set((copies.saturating_add(1), all.saturating_add(bytes.min(WHOLE_MAX))));
        let due = || match (self.is_due(), self.wanted.get()) {
            (true, Wanted::Commit) => None,
            (due, _) => Some(due),
        };
        if self.waiting.until(due).await {
            self.since.set((0, 0));
            self.set(Wanted::Commit);
        }
    }

    fn is_due(&self) -> bool {
        let (copies, bytes) = self.since.get();
        copies >= DUE.0 || bytes >= DUE.1
    }

    /// None is wanted any more.
    pub(super) fn end(&self) {
        self.set(Wanted::End);
    }

    /// Waits with `commit` for each that is wanted, until none is any more.
    pub(super) async fn each(&self, commit: impl AsyncFn()) {
        let wanted = || Some(self.wanted.get()).filter(|wanted| *wanted != Wanted::Nothing);
        while self.waiting.until(wanted).await == Wanted::Commit {
            commit().await;
            if self.wanted.get() == Wanted::Commit {
                self.set(Wanted::Nothing);
            }
        }
    }

    fn set(&self, wanted: Wanted) {
        self.wanted.set(wanted);
        self.waiting.look();
    }
}

#[cfg(test)]
mod tests {
    use lnet_rt::block_on;
    use lustre_rt::visitor::{both, join};

    use super::super::waiting::pause;
    use super::*;

    /// Copies so many files of this size, 32 at a time; each commit takes so many turns. How many commits there
    /// were, and the most copies that were there and not committed.
    fn copy(files: u64, bytes: u64, turns: u32) -> (u64, u64) {
        let commits = Commits::default();
        let (there, committed, count, most) =
            (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
        let one = |_| async {
            pause(2).await;
            there.set(there.get() + 1);
            most.set((there.get() - committed.get()).max(most.get()));
            commits.add(bytes).await;
        };
        let all = async {
            join((0..files).map(one), 32).await;
            commits.end();
        };
        let commit = async || {
            let mark = there.get();
            pause(turns).await;
            committed.set(mark);
            count.set(count.get() + 1);
        };
        block_on(both(all, commits.each(commit)));
        (count.get(), most.get())
    }

    #[test]
    fn a_commit_is_waited_for_after_some_copies_or_bytes() {
        for (most, bytes) in [(DUE.0, 1), (DUE.1.div_ceil(WHOLE_MAX), u64::MAX)] {
            assert_eq!(copy(most - 1, bytes, 1).0, 0);
            // One that is due with the last file is for the end of the copy.
            assert_eq!(copy(most, bytes, 1).0, 0);
            assert_eq!(copy(most + 64, bytes, 1).0, 1);
            assert_eq!(copy(3 * most + 64, bytes, 1).0, 3);
        }
    }

    #[test]
    fn copies_go_on_beside_a_commit_and_wait_before_the_next_one() {
        // As much as a commit brings is there meanwhile, and those that wait.
        let (count, most) = copy(5 * DUE.0, 1, 10_000);
        assert!((4..=5).contains(&count), "{count}");
        assert!((2 * DUE.0 - 32..=2 * DUE.0 + 64).contains(&most), "{most}");
    }
}
