//! A load process, as the harness holds it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use netns::{Host, Process};

use crate::load::talk::{Answer, Command, Role};

/// How long a process may take to say something.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running load process; killed when this goes away.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    process: Process,
    stdin: ChildStdin,
    answers: Receiver<Answer>,
}

impl Child {
    /// Starts `exe` in `host` and tells it its role. What it logs goes to `log`.
    pub(crate) fn start(exe: &Path, host: &Host, role: &Role, log: &Path) -> anyhow::Result<Self> {
        let mut command = host.command(exe);
        let log = File::options().create(true).append(true).open(log)?;
        command.arg(crate::LOAD).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = host.spawn(command)?;
        let (Some(stdin), Some(stdout)) =
            (process.child().stdin.take(), process.child().stdout.take())
        else {
            bail!("a process without pipes");
        };
        let (queue, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let answer = serde_json::from_str(&line)
                    .unwrap_or_else(|e| Answer::Failed(format!("{line:?}: {e}")));
                if queue.send(answer).is_err() {
                    return;
                }
            }
        });
        let mut this = Self { name: host.name().to_owned(), process, stdin, answers };
        this.report(role)?;
        Ok(this)
    }

    fn report(&mut self, what: &impl serde::Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        self.stdin.write_all(line.as_bytes()).with_context(|| format!("{} is gone", self.name))
    }

    /// The next thing that it says.
    pub(crate) fn answer(&self) -> anyhow::Result<Answer> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(Answer::Failed(why)) => bail!("{}: {why}", self.name),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => bail!("{} does not answer", self.name),
            Err(RecvTimeoutError::Disconnected) => bail!("{} has ended", self.name),
        }
    }

    /// Waits until it is ready.
    pub(crate) fn ready(&self) -> anyhow::Result<()> {
        match self.answer()? {
            Answer::Ready => Ok(()),
            other => bail!("{}: expected that it is ready, not {other:?}", self.name),
        }
    }

    /// Has a command carried out.
    pub(crate) fn ask(&mut self, command: &Command) -> anyhow::Result<()> {
        self.report(command)?;
        match self.answer()? {
            Answer::Done => Ok(()),
            other => bail!("{}: {command:?} was answered with {other:?}", self.name),
        }
    }

    /// Asks for its last word.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        self.report(&Command::Finish)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        // One that is dead is what was wanted.
        let _ = self.process.kill();
    }
}
