//! Daemons, as operators run them: the routers, and both ends of a session of LNet selftest.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use lnet_admin::{Ask as _, Client, Reply, Request};
use lnet_config::GLOBAL_KEYS;
use netns::{Host, Process};

use crate::load::talk::NodeSpec;

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon in a host.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: Process,
    socket: PathBuf,
}

/// What a daemon is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// A node that forwards, or does not.
    Route(bool),
    /// An end of LNet selftest.
    Selftest,
}

impl Daemon {
    /// Starts it, configured. `files` is the beginning of the names of its files.
    pub(crate) fn start(
        exe: &Path,
        host: &Host,
        spec: &NodeSpec,
        duty: Duty,
        files: &Path,
    ) -> anyhow::Result<Self> {
        ensure!(
            spec.conduct.is_empty(),
            "{}: conduct: must be a profile's on a router",
            host.name()
        );
        let with = |end: &str| PathBuf::from(format!("{}{end}", files.display()));
        let (config, socket) = (with(".yaml"), with(".sock"));
        std::fs::write(&config, yaml(spec, duty == Duty::Route(true))?)?;
        let log = File::options().create(true).append(true).open(with(".log"))?;
        let mut command = host.command(exe);
        command.arg(crate::DAEMON).arg("--config").arg(&config).arg("--socket").arg(&socket);
        command.arg("--port").arg(spec.port.to_string()).args(["--profile", &spec.profile]);
        if duty == Duty::Selftest {
            command.arg("--selftest");
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut process = host.spawn(command)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let there = nids(&socket);
            if spec.nids.iter().all(|nid| there.contains(nid)) {
                return Ok(Self { process, socket });
            }
            if process.child().try_wait()?.is_some() || Instant::now() > end {
                bail!("{}: the daemon did not start: see {}", host.name(), with(".log").display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
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

    /// Its control socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

/// The interfaces that a daemon has; none while it can't be asked.
fn nids(socket: &Path) -> Vec<String> {
    let ask = Request::NetShow { net: None, detail: false };
    match Client::connect(socket).and_then(|mut client| client.ask(&ask)) {
        Ok(Reply::Nets(nets)) => {
            nets.iter().flat_map(|net| &net.nis).map(|ni| ni.nid.to_string()).collect()
        }
        _ => Vec::new(),
    }
}

/// The configuration, as `lnetctl import` reads it.
fn yaml(spec: &NodeSpec, forwards: bool) -> anyhow::Result<String> {
    use std::fmt::Write as _;
    let mut out = String::from("net:\n");
    for (number, nid) in spec.nids.iter().enumerate() {
        let Some((_, net)) = nid.split_once('@') else { bail!("{nid}: not a NID") };
        let _ = write!(
            out,
            "    - net type: {net}\n      local NI(s):\n        - nid: {nid}\n          \
             interfaces:\n              0: eth{number}\n"
        );
    }
    if !spec.routes.is_empty() {
        out.push_str("route:\n");
    }
    for route in &spec.routes {
        let hops = route.hops.map_or(-1, i64::from);
        let _ = write!(
            out,
            "    - net: {}\n      gateway: {}\n      hop: {hops}\n      priority: {}\n",
            route.net, route.gateway, route.priority
        );
    }
    if forwards {
        out.push_str("routing:\n    - enable: 1\n");
    }
    // A daemon's file has three places for what is one table elsewhere.
    let (buffers, others): (Vec<_>, Vec<_>) =
        spec.tunables.iter().partition(|(name, _)| name.ends_with("_buffers"));
    let (global, own): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|(name, _)| GLOBAL_KEYS.contains(&name.as_str()));
    for (block, rows) in [("buffers", buffers), ("global", global), ("ulnet", own)] {
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(out, "{block}:");
        for (name, value) in rows {
            let _ = writeln!(out, "    {}: {value}", name.trim_end_matches("_buffers"));
        }
    }
    Ok(out)
}
