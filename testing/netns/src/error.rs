//! What can go wrong while hosts are made and used.

use std::io;

use thiserror::Error;

/// Why no world can be made here. Tests skip on it, loudly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// Network namespaces need root.
    #[error("needs root (effective user id is {0})")]
    NotRoot(u32),
    /// A program is not installed.
    #[error("needs `{0}` (Debian package iproute2)")]
    Missing(&'static str),
    /// The kernel or the container does not let us.
    #[error("network namespaces do not work here: {0}")]
    Refused(String),
}

/// A step that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// A program could not be started.
    #[error("{command}: {source}")]
    Start {
        /// The command line.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{command}: {status}: {stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// The kernel lacks a queueing discipline.
    #[error("this kernel has no `{0}` queueing discipline")]
    NoQdisc(&'static str),
    /// A name that cannot be one.
    #[error("{what} `{name}`: expected 1 to {max} letters, digits or dashes")]
    Name {
        /// What it is the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// The longest one, bytes.
        max: usize,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
}
