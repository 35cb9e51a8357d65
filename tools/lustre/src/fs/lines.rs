//! Lines on standard output. A reader that has read enough, like `head`, ends no command in the middle: its
//! files are to be closed and its connections ended.

use std::io::{ErrorKind, Write as _};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};

/// Why standard output takes no more.
static CLOSED: OnceLock<ErrorKind> = OnceLock::new();

/// Writes a line, unless standard output takes no more.
pub(super) fn line(text: std::fmt::Arguments<'_>) {
    if !are_unread()
        && let Err(e) = writeln!(std::io::stdout(), "{text}")
    {
        closed(&e);
    }
}

/// Standard output takes no more.
pub(super) fn closed(e: &std::io::Error) {
    let _ = CLOSED.set(e.kind());
}

/// Whether further lines are in vain.
pub(super) fn are_unread() -> bool {
    CLOSED.get().is_some()
}

/// Whether all lines went out, but for those that a reader did not want.
///
/// # Errors
/// Standard output can't be written.
pub(super) fn finish() -> Result<()> {
    match CLOSED.get() {
        None | Some(ErrorKind::BrokenPipe) => Ok(()),
        Some(kind) => Err(anyhow!("{kind}")).context("standard output"),
    }
}
