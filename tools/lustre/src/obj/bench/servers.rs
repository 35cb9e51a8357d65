//! Servers of objects on the loopback, for the time of a run: each serves a target of its own, and
//! stands by for the target of the one before.

use std::path::PathBuf;

use anyhow::{Result, anyhow};

use crate::bench::servers::Server;
use crate::client::{Target, target};

/// See the module's head; the directory goes with them.
pub(super) struct Servers {
    dir: PathBuf,
    port: u16,
    running: Vec<Server>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.running.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn name(n: usize) -> String {
    format!("bench-{n}")
}

/// The addresses of this run on the loopback.
fn nid(n: usize) -> String {
    let [.., c, _] = std::process::id().to_be_bytes();
    format!("127.125.{c}.{}@tcp", n + 1)
}

impl Servers {
    /// Starts so many.
    ///
    /// # Errors
    /// One does not start.
    pub(super) fn start(count: usize, port: u16) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("ulnet-obj-bench-{}", std::process::id()));
        let mut servers = Self { dir, port, running: Vec::new() };
        for n in 0..count {
            let server = servers.serve(n)?;
            servers.running.push(server);
        }
        Ok(servers)
    }

    fn serve(&self, n: usize) -> Result<Server> {
        let spec = |n: usize| format!("{}=ost:{}", name(n), self.dir.join(name(n)).display());
        let before = n.checked_sub(1);
        let specs = [Some(n), before].into_iter().flatten().map(spec);
        let rest = ["--listen".into(), nid(n), "--port".into(), self.port.to_string()];
        let words = specs.chain(rest).chain(before.map(|_| "--standby".to_owned()));
        let server = Server::start(words)?;
        server.wait_for(&format!("{}: serving", name(n)))?;
        if let Some(before) = before {
            server.wait_for(&format!("{}: standby", name(before)))?;
        }
        Ok(server)
    }

    /// The targets, each with the nodes that may serve it.
    ///
    /// # Errors
    /// None, for names of this module.
    pub(super) fn targets(&self) -> Result<Vec<Target>> {
        let count = self.running.len();
        let of = |n: usize| {
            let nids = [n, n + 1].into_iter().filter(|n| *n < count).map(nid);
            target(&format!("{}@{}", name(n), nids.collect::<Vec<_>>().join(",")))
        };
        (0..count).map(of).collect()
    }

    /// Kills the first: the second takes its target over. One that is alone is started again.
    ///
    /// # Errors
    /// It is not killed, or does not start again.
    pub(super) fn kill(&mut self) -> Result<()> {
        let first = self.running.first_mut().ok_or_else(|| anyhow!("no server"))?;
        first.kill()?;
        if self.running.len() == 1 {
            let again = self.serve(0)?;
            self.running = vec![again];
        }
        Ok(())
    }

    /// Ends all, the last first: each stands by for the one before, and would take its target over.
    ///
    /// # Errors
    /// One does not end.
    pub(super) fn stop(mut self) -> Result<()> {
        self.running.iter_mut().rev().try_for_each(Server::stop)
    }
}
