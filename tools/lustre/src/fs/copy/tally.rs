//! The account of a copy: what was copied, and what failed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Display;

use serde_json::{Value, json};

use crate::fs::label::Label;
use crate::fs::{Status, progress};

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
    lost: Cell<u64>,
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
        self.lost.set(self.lost.get().saturating_add(1));
        if self.not_kept.borrow_mut().insert((what.to_owned(), why.to_string())) {
            eprintln!("ulnet lustre: {path}: {what} is not kept: {why}");
        }
    }

    /// A file was not written to its end, as a server has evicted this client.
    pub(super) fn evicted(&self) {
        self.evicted.set(true);
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
            "not_kept": self.lost.get(),
            "failed": failed.collect::<Vec<_>>(),
        })
    }
}
