//! Lines on standard output. A reader that has read enough, like `head`, ends no command in the middle: its
//! files are to be closed and its connections ended.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};

use super::progress;

/// Why standard output takes no more.
static CLOSED: OnceLock<ErrorKind> = OnceLock::new();

/// Writes a line, unless standard output takes no more.
pub(super) fn line(text: std::fmt::Arguments<'_>) {
    bytes(format!("{text}\n").as_bytes());
}

/// Writes a line on standard error.
pub(super) fn error(text: std::fmt::Arguments<'_>) {
    // Where no error can be shown, none is.
    let _ = progress::aside(|| writeln!(std::io::stderr(), "{text}"));
}

/// Writes bytes, unless standard output takes no more.
pub(super) fn bytes(bytes: &[u8]) {
    if !are_unread()
        && let Err(e) = progress::aside(|| std::io::stdout().write_all(bytes))
    {
        closed(&e);
    }
}

/// Writes a line with the name of a file in it.
pub(super) fn named(before: std::fmt::Arguments<'_>, name: &[u8]) {
    bytes(&[before.to_string().as_bytes(), &out(name, super::show::name), b"\n"].concat());
}

/// A name as it is printed: its bytes, but for a terminal as text.
pub(super) fn out(name: &[u8], for_terminal: fn(&[u8]) -> String) -> Cow<'_, [u8]> {
    static TERMINAL: OnceLock<bool> = OnceLock::new();
    match TERMINAL.get_or_init(|| std::io::stdout().is_terminal()) {
        true => for_terminal(name).into_bytes().into(),
        false => name.into(),
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
