//! The account of a copy: what was copied, and what failed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Display;

use serde_json::{Value, json};

use crate::fs::label::Label;
use crate::fs::{Status, progress};

/// Copies that are remembered until they are committed, as far as that is known: those of some seconds.
const RECENT_MAX: usize = 4096;

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
    /// The last copies, the newest at the end.
    recent: RefCell<VecDeque<Label>>,
    /// A server has evicted this client while a file was written.
    evicted: Cell<bool>,
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
        }
        recent.push_back(path);
    }

    /// A server has evicted this client, and may have lost the last so many changes: no more copies than
    /// that, the last ones, which are named.
    pub(super) fn lost(&self, changes: u64, why: &dyn Display) {
        self.evicted.set(true);
        let recent = self.recent.take();
        let first = recent.len().saturating_sub(usize::try_from(changes).unwrap_or(usize::MAX));
        if recent.is_empty() {
            eprintln!("ulnet lustre: {why}");
        }
        for path in recent.iter().skip(first) {
            self.failed(path, why);
        }
    }

    pub(super) fn status(&self) -> Status {
        match self.evicted.get() {
            true => Status::Evicted,
            false => Status::of(self.failed.borrow().is_empty()),
        }
    }

    pub(super) fn json(&self) -> Value {
        let failed = self.failed.borrow();
        let failed = failed.iter().map(|(path, why)| json!({ "path": path, "error": why }));
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

    #[test]
    fn eviction_names_as_many_of_the_last_copies_as_changes_are_lost() {
        let tally = Tally::default();
        for n in 0..RECENT_MAX + 3 {
            tally.finished(Label::new(format!("f{n}")));
        }
        assert_eq!((tally.recent.borrow().len(), tally.status()), (RECENT_MAX, Status::Whole));
        tally.lost(2, &"evicted");
        let failed = tally.json()["failed"].clone();
        let named = |n: usize| json!({ "path": format!("f{n}"), "error": "evicted" });
        assert_eq!(failed, json!([named(RECENT_MAX + 1), named(RECENT_MAX + 2)]));
        assert_eq!(tally.status(), Status::Evicted);
        // What was committed since is no matter of the next eviction.
        tally.finished(Label::new("last"));
        tally.lost(9, &"evicted");
        assert_eq!(tally.json()["failed"].as_array().map(Vec::len), Some(3));
    }
}
