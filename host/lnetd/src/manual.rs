//! Manual pages from trees of options.

use clap::{Command, CommandFactory as _};

use crate::Options;

/// `lnetd(8)`.
pub fn manual() -> String {
    render_manual(Options::command(), "8")
}

/// The page of a command line, in a section of the manual.
pub fn render_manual(command: Command, section: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let page = clap_mangen::Man::new(command)
        .section(section)
        .source(format!("ulnet {version}"))
        .manual("LNet in user space");
    let mut bytes = Vec::new();
    // Infallible: writing to a Vec.
    let _ = page.render(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
