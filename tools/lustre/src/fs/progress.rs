//! How far a command is: a line on a terminal when it takes longer than a second, gone at its end. It stands on
//! standard error and is taken away before anything else is printed; a pipe or a file never gets it.

use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{self, FileType};

/// Before the first line of progress, and between two.
const FIRST: Duration = Duration::from_secs(1);
const NEXT: Duration = Duration::from_millis(200);
/// Columns that are cleared.
const WIDTH: usize = 60;

/// Files that a command is through with, and bytes of them that were moved.
static FILES: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// Whether a line stands on the terminal.
static DRAWN: Mutex<bool> = Mutex::new(false);

/// What a command does with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// They are copied: their bytes count too.
    Copied,
    /// Something else, which this word says.
    Done(&'static str),
}

/// A command is through with so many more files.
pub(super) fn files(more: u64) {
    FILES.fetch_add(more, Ordering::Relaxed);
}

/// So many more bytes were moved.
pub(super) fn bytes(more: u64) {
    BYTES.fetch_add(more, Ordering::Relaxed);
}

fn drawn() -> MutexGuard<'static, bool> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the line away, and prints in its place: no line of progress comes in between.
pub(super) fn aside<R>(print: impl FnOnce() -> R) -> R {
    let mut drawn = drawn();
    if core::mem::take(&mut *drawn) {
        eprint!("\r{:WIDTH$}\r", "");
    }
    print()
}

/// A line of progress.
fn text(words: Words, files: u64, bytes: u64, since: Duration) -> String {
    let seconds = since.as_secs();
    match words {
        Words::Copied => format!("{files} files, {} MiB, {seconds} s ", bytes >> 20),
        Words::Done(_) if files == 0 => format!("waiting for a server, {seconds} s "),
        Words::Done(what) => format!("{files} {what}, {seconds} s "),
    }
}

fn draw(words: Words, begun: Instant) {
    let (files, bytes) = (FILES.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let text = text(words, files, bytes, begun.elapsed());
    let mut drawn = drawn();
    let mut out = std::io::stderr().lock();
    // Progress that can't be shown is no reason to end.
    *drawn = write!(out, "\r{text}").and_then(|()| out.flush()).is_ok();
}

/// Whether what is printed goes to another program.
fn is_pipe(file: impl AsFd) -> bool {
    let stat = fs::fstat(file);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Shows progress until it is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    /// Ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Nothing is shown where no person looks, and where another program may have the terminal: what is
    /// printed goes to a pager.
    pub(super) fn begin(words: Words) -> Option<Self> {
        if !std::io::stderr().is_terminal() || is_pipe(std::io::stdout()) {
            return None;
        }
        let (end, ended) = mpsc::channel::<()>();
        let begun = Instant::now();
        let show = move || {
            let mut wait = FIRST;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                draw(words, begun);
                wait = NEXT;
            }
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(show).ok()?;
        Some(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // What it was shown with does not matter any more.
            let _ = thread.join();
        }
        aside(|| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_what_was_done_or_that_nothing_has_come() {
        let after = Duration::from_secs(3);
        let removed = Words::Done("removed");
        assert_eq!(text(removed, 0, 0, after), "waiting for a server, 3 s ");
        assert_eq!(text(removed, 7, 0, after), "7 removed, 3 s ");
        assert_eq!(text(Words::Copied, 2, 5 << 20, after), "2 files, 5 MiB, 3 s ");
        assert!(text(Words::Copied, u64::MAX, u64::MAX, after).len() < WIDTH);
    }
}
