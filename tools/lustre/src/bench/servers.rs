//! A server and its standby on the loopback, for the time of a run.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use signal_hook::consts::{SIGKILL, SIGTERM};

use crate::client::{Target, target};

const NAME: &str = "bench";
/// A server that says nothing for so long has not started.
const START: Duration = Duration::from_secs(20);

/// A process of `ulnet serve`, which is killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
}

/// Two servers of one target; the directory goes with them.
pub(super) struct Servers {
    dir: PathBuf,
    nids: [String; 2],
    first: Server,
    second: Server,
}

impl Server {
    /// Starts it with the words behind `ulnet serve`.
    ///
    /// # Errors
    /// There is no such program or no process.
    pub(crate) fn start(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut child = Command::new(program)
            .arg("serve")
            .args(words)
            .stdout(Stdio::piped())
            // Ctrl-C is for the clients, which end their servers.
            .process_group(0)
            .spawn()
            .context("ulnet serve")?;
        let out = child.stdout.take().ok_or_else(|| anyhow!("ulnet serve: no output"))?;
        let (tx, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if tx.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits until it has said something.
    ///
    /// # Errors
    /// It has not in time.
    pub(crate) fn wait_for(&self, what: &str) -> Result<()> {
        loop {
            let line = self.lines.recv_timeout(START);
            let line = line.map_err(|_| anyhow!("ulnet serve did not say '{what}'"))?;
            if line.contains(what) {
                return Ok(());
            }
        }
    }

    /// Kills it.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill")?;
        self.child.wait().context("kill")?;
        Ok(())
    }

    /// Ends it, if it runs.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            signal(i32::try_from(self.child.id())?, SIGTERM)?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends SIGKILL.
pub(super) fn kill(pid: i32) -> Result<()> {
    signal(pid, SIGKILL)
}

fn signal(pid: i32, signal: i32) -> Result<()> {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
    if !status.context("kill")?.success() {
        bail!("process {pid}: not killed");
    }
    Ok(())
}

impl Servers {
    pub(super) fn start(port: u16) -> Result<Self> {
        let id = std::process::id();
        let [.., c, _] = id.to_be_bytes();
        let dir = std::env::temp_dir().join(format!("ulnet-bench-{id}"));
        let nids = [1, 2].map(|n| format!("127.126.{c}.{n}@tcp"));
        let server = |nid: &str| {
            let spec = format!("{NAME}=kv:{}", dir.display());
            let (nid, port) = (nid.to_owned(), port.to_string());
            let rest = ["--listen".into(), nid, "--port".into(), port, "--standby".into()];
            Server::start([spec].into_iter().chain(rest))
        };
        let first = server(&nids[0])?;
        first.wait_for("serving")?;
        let second = server(&nids[1])?;
        second.wait_for("standby")?;
        Ok(Self { dir, nids, first, second })
    }

    pub(super) fn target(&self) -> Target {
        target(&format!("{NAME}@{}", self.nids.join(",")))
            .unwrap_or_else(|_| Target { name: NAME.to_owned(), nids: Vec::new() })
    }

    /// Kills the first; the second takes over.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.first.kill()
    }

    /// Ends both.
    pub(super) fn stop(mut self) -> Result<()> {
        self.first.stop()?;
        self.second.stop()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
