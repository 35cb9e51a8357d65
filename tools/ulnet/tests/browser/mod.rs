//! The browser that pages are looked at with, where there is one.

use std::process::Command;

/// Its program.
pub(crate) fn program() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}
