//! The account of a copy: what was copied, and what failed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Display;

use serde_json::{Value, json};

use crate::fs::label::Label;
use crate::fs::{Status, progress};

/// Copies that are remembered, where commits fail.
const RECENT_MAX: usize = 16 << 10;

/// Counts so many more.
fn count(what: &Cell<u64>, more: u64) {
    what.set(what.get().saturating_add(more));
}

/// What a copy has done.
#[derive(Default)]
pub(super) struct Tally {
    files: Cell<u64>,
    dirs: Cell<u64>,
    links: Cell<u64>,
    bytes: Cell<u64>,
    skipped: Cell<u64>,
    failed: RefCell<Vec<(Label, String)>>,
    /// Attributes that were not kept, with their reasons, and how often that was.
    not_kept: RefCell<BTreeSet<(String, String)>>,
    not_kept_count: Cell<u64>,
    /// The last copies, the newest at the end: those of which it is not known that they are committed.
    recent: RefCell<VecDeque<Label>>,
    /// How many there were before the first of them.
    before: Cell<u64>,
    /// A server has evicted this client while a file was written.
    evicted: Cell<bool>,
    /// The copy has ended with a failure of the whole.
    ended: Cell<bool>,
}

impl Tally {
    pub(super) fn file(&self) {
        count(&self.files, 1);
        progress::files(1);
    }

    pub(super) fn dir(&self) {
        count(&self.dirs, 1);
    }

    pub(super) fn link(&self) {
        count(&self.links, 1);
    }

    pub(super) fn moved(&self, bytes: u64) {
        count(&self.bytes, bytes);
        progress::bytes(bytes);
    }

    pub(super) fn skipped(&self) {
        count(&self.skipped, 1);
    }

    /// Names what was not copied.
    pub(super) fn failed(&self, path: &Label, why: &dyn Display) {
        eprintln!("ulnet lustre: {path}: {why}");
        self.failed.borrow_mut().push((path.clone(), why.to_string()));
    }

    /// Counts what the destination did not take of a file, and names it the first time.
    pub(super) fn not_kept(&self, path: &Label, what: &str, why: &dyn Display) {
        count(&self.not_kept_count, 1);
        if self.not_kept.borrow_mut().insert((what.to_owned(), why.to_string())) {
            eprintln!("ulnet lustre: {path}: {what} is not kept: {why}");
        }
    }

    /// A file was not written to its end, as a server has evicted this client.
    pub(super) fn evicted(&self) {
        self.evicted.set(true);
    }

    /// A copy is there, as far as the server has said.
    pub(super) fn finished(&self, path: Label) {
        let mut recent = self.recent.borrow_mut();
        if recent.len() == RECENT_MAX {
            recent.pop_front();
            count(&self.before, 1);
        }
        recent.push_back(path);
    }

    /// A commit is waited for from now on. The mark says which copies it is of.
    pub(super) fn mark(&self) -> u64 {
        self.before.get().saturating_add(self.recent.borrow().len() as u64)
    }

    /// The copies before a mark are committed.
    pub(super) fn settled(&self, mark: u64) {
        let mut recent = self.recent.borrow_mut();
        while self.before.get() < mark && recent.pop_front().is_some() {
            count(&self.before, 1);
        }
    }

    /// A server has evicted this client, and may have lost something of the copies that were not known to be
    /// committed. They are named: which changes it has lost, it does not say.
    pub(super) fn lost(&self, why: &dyn Display) {
        self.evicted.set(true);
        self.uncertain(why);
    }

    /// The copy has ended with a failure of the whole, which may be a loss of changes.
    pub(super) fn end(&self, why: &dyn Display, lost: bool) {
        self.ended.set(true);
        if lost {
            self.evicted.set(true);
        }
        self.uncertain(why);
    }

    /// Names the copies that are not known to be committed.
    fn uncertain(&self, why: &dyn Display) {
        let recent = self.recent.take();
        count(&self.before, recent.len() as u64);
        if recent.is_empty() {
            eprintln!("ulnet lustre: {why}");
        }
        for path in &recent {
            self.failed(path, why);
        }
    }

    pub(super) fn status(&self) -> Status {
        match self.evicted.get() {
            true => Status::Evicted,
            false => Status::of(self.failed.borrow().is_empty() && !self.ended.get()),
        }
    }

    pub(super) fn json(&self) -> Value {
        let failed = self.failed.borrow();
        let failed = failed.iter().map(|(path, why)| {
            let mut row = json!({ "error": why });
            path.field_in(&mut row, "path");
            row
        });
        json!({
            "files": self.files.get(),
            "directories": self.dirs.get(),
            "links": self.links.get(),
            "bytes": self.bytes.get(),
            "skipped": self.skipped.get(),
            "not_kept": self.not_kept_count.get(),
            "failed": failed.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(tally: &Tally, copies: core::ops::Range<u64>) {
        copies.for_each(|n| tally.finished(Label::new(format!("f{n}"))));
    }

    fn named(tally: &Tally) -> Vec<String> {
        let failed = tally.failed.take();
        failed.into_iter().map(|(path, _)| path.to_string()).collect()
    }

    #[test]
    fn eviction_names_the_copies_that_are_not_known_to_be_committed() {
        let tally = Tally::default();
        finish(&tally, 0..3);
        let mark = tally.mark();
        finish(&tally, 3..5);
        assert_eq!(tally.status(), Status::Whole);
        tally.settled(mark);
        tally.lost(&"evicted");
        assert_eq!(
            (named(&tally), tally.status()),
            (vec!["f3".into(), "f4".into()], Status::Evicted)
        );
        // A commit that was waited for before that is not of what came after it.
        let mark = tally.mark();
        finish(&tally, 5..6);
        tally.settled(mark);
        tally.lost(&"evicted");
        assert_eq!(named(&tally), ["f5"]);
        let last = RECENT_MAX as u64 + 9;
        finish(&tally, 6..last);
        tally.settled(tally.mark() - 1);
        tally.lost(&"evicted");
        assert_eq!(named(&tally), [format!("f{}", last - 1)]);
    }

    #[test]
    fn failure_of_the_end_names_the_copies_that_are_not_known_to_be_committed() {
        let tally = Tally::default();
        finish(&tally, 0..2);
        tally.settled(tally.mark());
        finish(&tally, 2..3);
        tally.end(&"no answer", false);
        assert_eq!((named(&tally), tally.status()), (vec!["f2".into()], Status::Part));
        let tally = Tally::default();
        tally.end(&"evicted", true);
        assert_eq!((named(&tally), tally.status()), (vec![], Status::Evicted));
        let tally = Tally::default();
        tally.end(&"no such file system", false);
        assert_eq!((named(&tally), tally.status()), (vec![], Status::Part));
    }
}
