//! The account of a copy: what was copied, what failed, and how far it is.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fs::Status;

/// Before the first line of progress, and between two.
const FIRST: Duration = Duration::from_secs(1);
const NEXT: Duration = Duration::from_millis(200);

/// What a copy has done.
pub(super) struct Tally {
    files: Cell<u64>,
    dirs: Cell<u64>,
    links: Cell<u64>,
    bytes: Cell<u64>,
    skipped: Cell<u64>,
    failed: RefCell<Vec<(String, String)>>,
    /// Attributes that were not kept, with their reasons, and how often that was.
    not_kept: RefCell<BTreeSet<(String, String)>>,
    lost: Cell<u64>,
    /// A server has evicted this client while a file was written.
    evicted: Cell<bool>,
    begun: Instant,
    /// When progress was shown last; `None`: it is not shown.
    shown: Cell<Option<Instant>>,
    drawn: Cell<bool>,
}

impl Tally {
    pub(super) fn new(shows: bool) -> Self {
        let now = Instant::now();
        Self {
            files: Cell::default(),
            dirs: Cell::default(),
            links: Cell::default(),
            bytes: Cell::default(),
            skipped: Cell::default(),
            failed: RefCell::default(),
            not_kept: RefCell::default(),
            lost: Cell::default(),
            evicted: Cell::default(),
            begun: now,
            shown: Cell::new((shows && std::io::stderr().is_terminal()).then_some(now)),
            drawn: Cell::new(false),
        }
    }

    fn count(&self, what: &Cell<u64>, more: u64) {
        what.set(what.get().saturating_add(more));
        let Some(shown) = self.shown.get() else { return };
        let now = Instant::now();
        if now - self.begun < FIRST || now - shown < NEXT {
            return;
        }
        self.shown.set(Some(now));
        self.drawn.set(true);
        let mib = self.bytes.get() >> 20;
        let mut out = std::io::stderr().lock();
        // Progress that can't be shown is no reason to end.
        let _ = write!(out, "\r{} files, {mib} MiB ", self.files.get()).and_then(|()| out.flush());
    }

    pub(super) fn file(&self) {
        self.count(&self.files, 1);
    }

    pub(super) fn dir(&self) {
        self.count(&self.dirs, 1);
    }

    pub(super) fn link(&self) {
        self.count(&self.links, 1);
    }

    pub(super) fn moved(&self, bytes: u64) {
        self.count(&self.bytes, bytes);
    }

    pub(super) fn skipped(&self) {
        self.count(&self.skipped, 1);
    }

    /// Names what was not copied.
    pub(super) fn failed(&self, path: &dyn Display, why: &dyn Display) {
        self.clear();
        eprintln!("ulnet lustre: {path}: {why}");
        self.failed.borrow_mut().push((path.to_string(), why.to_string()));
    }

    /// Counts what the destination did not take of a file, and names it the first time.
    pub(super) fn not_kept(&self, path: &str, what: &str, why: &dyn Display) {
        self.lost.set(self.lost.get().saturating_add(1));
        if self.not_kept.borrow_mut().insert((what.to_owned(), why.to_string())) {
            self.clear();
            eprintln!("ulnet lustre: {path}: {what} is not kept: {why}");
        }
    }

    fn clear(&self) {
        if self.drawn.replace(false) {
            eprint!("\r{:40}\r", "");
        }
    }

    /// No more progress is shown.
    pub(super) fn end(&self) {
        self.clear();
        self.shown.set(None);
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
