//! Between the conductor and its two nodes: JSON lines, orders down standard input, news up standard
//! output. A node whose conductor is gone ends; a conductor whose node is gone says so.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::rails::RailView;

/// From the conductor to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Receive {
        port: u16,
        ips: Vec<IpAddr>,
        copy: PathBuf,
    },
    Send {
        port: u16,
        ips: Vec<IpAddr>,
        peer: IpAddr,
        file: PathBuf,
        size: u64,
        seconds: u32,
        /// The share of the file, in percent, that may go before a rail was cut and is back.
        free: u64,
    },
    Cut {
        rail: usize,
    },
    Restore {
        rail: usize,
    },
}

/// From a node to the conductor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ChildReport {
    Ready,
    Discovered {
        primary: String,
        nids: Vec<String>,
    },
    Progress {
        done: u64,
        rails: Vec<RailView>,
    },
    /// The rail that was restored carries its share again, after so many milliseconds.
    Healed {
        after_ms: u64,
    },
    Sent(SendReport),
    Received(ReceiveReport),
    Failed {
        why: String,
    },
}

/// How sending went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SendReport {
    pub(crate) sha256: String,
    /// Messages that LNet sent again.
    pub(crate) resent: u64,
    /// Chunks that the application had to repeat because delivery was unknown, and
    /// the receiver said that they had not.
    pub(crate) repeated: u64,
    /// Longest time in which chunks were on their way and none was acknowledged.
    pub(crate) stall_ms: u64,
    pub(crate) millis: u64,
    pub(crate) rails: Vec<RailView>,
}

/// What arrived.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReceiveReport {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) duplicates: u64,
}

/// Sends news to the conductor. If it is gone there is no recipient.
pub(crate) fn report(news: &ChildReport) {
    if let Ok(mut line) = serde_json::to_vec(news) {
        line.push(b'\n');
        let _ = io::stdout().lock().write_all(&line);
    }
}

/// The orders of the conductor, read on a thread of their own. The end of the channel is the end of
/// the conductor.
pub(crate) fn orders() -> Receiver<Order> {
    let (tx, rx) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            match serde_json::from_str(&line) {
                Ok(order) => {
                    if tx.send(order).is_err() {
                        return;
                    }
                }
                Err(e) => {
                    return report(&ChildReport::Failed { why: format!("order {line:?}: {e}") });
                }
            }
        }
    });
    rx
}

/// The processes of this conductor that live.
static CHILDREN: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<u32>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all nodes, for the conductor ends at once. None is started from here on.
pub(crate) fn kill_all() {
    let all = children();
    for id in all.iter() {
        let pid = i32::try_from(*id).ok().and_then(Pid::from_raw);
        // One that has ended already is not waited for: its id is still its own.
        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
    }
    // No other one may be started while this process ends.
    core::mem::forget(all);
}

/// A node's process, as the conductor sees it. Killed when dropped.
pub(crate) struct Child {
    role: &'static str,
    process: process::Child,
    orders: ChildStdin,
    news: Receiver<ChildReport>,
    heard: Instant,
}

impl Child {
    pub(crate) fn start(role: &'static str) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("own program")?;
        let mut process = Command::new(program)
            .args(["demo", "--node", role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{role} process"))?;
        let (Some(orders), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("{role} process: no pipes");
        };
        let (tx, news) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let news = serde_json::from_str(&line)
                    .unwrap_or_else(|e| ChildReport::Failed { why: format!("news {line:?}: {e}") });
                if tx.send(news).is_err() {
                    return;
                }
            }
        });
        children().push(process.id());
        Ok(Self { role, process, orders, news, heard: Instant::now() })
    }

    pub(crate) fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        if self.orders.write_all(&line).and_then(|()| self.orders.flush()).is_err() {
            let end = self.obituary();
            bail!("{} process: {end}", self.role);
        }
        Ok(())
    }

    /// The next news within `patience`, if any.
    pub(crate) fn poll(&mut self, patience: Duration) -> anyhow::Result<Option<ChildReport>> {
        match self.news.recv_timeout(patience) {
            Ok(news) => {
                self.heard = Instant::now();
                Ok(Some(news))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let end = self.obituary();
                bail!("{} process: {end}", self.role)
            }
        }
    }

    /// News of the kind `wanted`, within `patience`.
    pub(crate) fn wait_for(
        &mut self,
        patience: Duration,
        wanted: impl Fn(&ChildReport) -> bool,
    ) -> anyhow::Result<ChildReport> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll(left)? {
                Some(ChildReport::Failed { why }) => bail!("{} process: {why}", self.role),
                Some(news) if wanted(&news) => return Ok(news),
                Some(_) => {}
                None => bail!("{} process: no sign of life", self.role),
            }
        }
    }

    /// How long nothing has been heard.
    pub(crate) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    fn obituary(&mut self) -> String {
        match self.process.wait() {
            Ok(status) => format!("ended unexpectedly ({status})"),
            Err(e) => format!("ended unexpectedly ({e})"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        children().retain(|id| *id != self.process.id());
        let _ = self.process.wait();
    }
}
