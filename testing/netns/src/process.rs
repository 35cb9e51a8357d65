//! Children: run to the end with their output checked, or kept and killed with their guard.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use crate::Error;

/// A running child that is killed and waited for when this goes away.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    pub(crate) fn spawn(mut command: Command) -> Result<Self, Error> {
        let child =
            command.spawn().map_err(|source| Error::Start { command: line(&command), source })?;
        Ok(Self(child))
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, for its pipes and its exit status.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Kills it (SIGKILL) and waits.
    ///
    /// # Errors
    /// What waiting for it says.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        // A child that has ended by itself cannot be killed; its status is still to be had.
        let _ = self.0.kill();
        self.0.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Runs `command` to its end with nothing on its standard input; fails unless it exits with 0.
pub(crate) fn run(mut command: Command) -> Result<Output, Error> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { command: line(&command), source })?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(Error::Failed { command: line(&command), status: output.status, stderr })
}

/// Runs `ip` with the words of `args`.
pub(crate) fn ip<I>(args: I) -> Result<Output, Error>
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = Command::new("ip");
    command.args(args);
    run(command)
}

fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}
