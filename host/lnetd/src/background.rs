//! `--background`: the daemon in a process of its own, away from the terminal. The command returns when
//! the control socket answers, and its exit status says whether it does.
//!
//! The process forks twice before it has threads: the second child belongs to no terminal and can get
//! none. A pipe to the first process carries one line: empty when ready, else the reason why not. A
//! daemon that dies without a line closes the pipe, which is a failure too.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::process::{WaitOptions, chdir, setsid, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Which process returned from [`enter`].
#[derive(Debug)]
pub(crate) enum Role {
    /// The one that was called. The daemon is ready.
    Caller,
    /// The daemon.
    Daemon(Ready),
}

/// The daemon's end of the pipe.
#[derive(Debug)]
pub(crate) struct Ready(File);

impl Ready {
    /// Reports that the control socket answers.
    pub(crate) fn ready(self) {
        self.report("");
    }

    /// Reports why it does not.
    pub(crate) fn failed(self, why: &str) {
        self.report(why);
    }

    fn report(mut self, text: &str) {
        // A caller that has been killed reads nothing.
        let _ = self.0.write_all(format!("{}\n", text.replace('\n', " ")).as_bytes());
    }
}

/// Forks the daemon and, in the caller, waits until it is ready. Nothing else may run in this process
/// yet. `log`: where standard error goes; without one it stays, unless it is a terminal.
///
/// # Errors
/// The reason that the daemon gave, or what the system says.
pub(crate) fn enter(log: Option<&Path>) -> anyhow::Result<Role> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").context("/dev/null")?;
    let log = log.map(log_file).transpose()?;
    let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("pipe")?;
    if let Some(first) = sys::fork().context("fork")? {
        drop(to);
        // The child in between ends at once.
        let _ = waitpid(Some(first), WaitOptions::empty());
        return answer(from).map(|()| Role::Caller);
    }
    drop(from);
    let ready = Ready(File::from(to));
    match detach(&null, log) {
        Ok(()) => Ok(Role::Daemon(ready)),
        Err(e) => {
            ready.failed(&e.to_string());
            std::process::exit(1);
        }
    }
}

/// The file that log lines go behind.
pub(crate) fn log_file(path: &Path) -> anyhow::Result<File> {
    let open = OpenOptions::new().append(true).create(true).open(path);
    open.with_context(|| format!("log {}", path.display()))
}

/// What the daemon says.
fn answer(from: OwnedFd) -> anyhow::Result<()> {
    let mut said = String::new();
    File::from(from).read_to_string(&mut said).context("daemon")?;
    match said.strip_suffix('\n') {
        Some("") => Ok(()),
        Some(why) => bail!("{why}"),
        None => bail!("the daemon ended before its control socket answered"),
    }
}

/// In the first child: a session of its own, a second child without a way to a terminal, no directory
/// held, standard streams closed.
fn detach(null: &File, log: Option<File>) -> io::Result<()> {
    setsid()?;
    if sys::fork()?.is_some() {
        std::process::exit(0);
    }
    chdir("/")?;
    dup2_stdin(null)?;
    dup2_stdout(null)?;
    match log {
        Some(log) => dup2_stderr(log)?,
        None if io::stderr().is_terminal() => dup2_stderr(null)?,
        None => {}
    }
    Ok(())
}

/// A path that means the same in every directory.
pub(crate) fn anchored(path: &mut PathBuf) -> anyhow::Result<()> {
    *path = std::path::absolute(&*path).with_context(|| format!("path {}", path.display()))?;
    Ok(())
}

/// The one thing that there is no safe form of.
mod sys {
    #![allow(unsafe_code)]

    use std::io;

    use rustix::process::Pid;

    /// The child's id in the parent, nothing in the child.
    pub(super) fn fork() -> io::Result<Option<Pid>> {
        // SAFETY: called before any thread was started, so the child has a whole copy of the process:
        // no lock is held by a thread that does not exist there.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            id => Ok(Pid::from_raw(id)),
        }
    }
}
