//! Plays a scenario under requests in place of messages: its server is two nodes with one key-value
//! target, its client eight nodes that run `ulnet rpc bench`. What each client was answered, and what
//! the store has at the end, are two accounts that must agree.
//!
//! Nodes have the interfaces and routes of the scenario, and the tunables of `ulnet serve` and
//! `ulnet rpc`. A server that dies is started again as a standby of the other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use lnet_scenario::{FaultKind, NodeId, Scenario, parse};
use netns::{Process, World};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, micros};
use crate::fault::{self, Deed, Step};
use crate::play::{Setup, spec};
use crate::router::{Daemon, Duty};
use crate::stage::Stage;

/// Nodes that may serve the target.
const SERVERS: u32 = 2;
/// Nodes with clients, and the clients of each.
const CLIENTS: u32 = 8;
const CLIENTS_EACH: u32 = 2;
/// The target.
const TARGET: &str = "kv-1";
/// How long a server may take to start, and a client to end after its time: whatever has befallen it,
/// a call is answered or has failed by then.
const PATIENCE: Duration = Duration::from_secs(20);
const CALL: Duration = Duration::from_secs(300);
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);

/// What came of a play.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RpcFigures {
    /// The scenario.
    pub name: String,
    /// Calls, and those that failed, were executed twice or are lost, as clients have counted.
    pub calls: u64,
    /// See above.
    pub failed: u64,
    /// See above.
    pub twice: u64,
    /// See above.
    pub lost: u64,
    /// Connections that were made or tried after the first.
    pub reconnects: u64,
    /// Requests sent again, and repeated in a recovery.
    pub resent: u64,
    /// See above.
    pub replayed: u64,
    /// The longest call, seconds.
    pub longest: f64,
    /// Keys of which clients and servers have the same account.
    pub agreed: usize,
    /// Those of which they do not, and what each says.
    pub disagreed: Vec<String>,
    /// What clients said of calls that failed.
    pub said: Vec<String>,
}

impl RpcFigures {
    /// Whether nothing failed, was executed twice or is lost, by both accounts.
    pub fn hold(&self) -> bool {
        (self.failed, self.twice, self.lost) == (0, 0, 0)
            && self.disagreed.is_empty()
            && self.calls > 0
            && self.agreed > 0
    }
}

/// The figures of all plays, as a table.
pub fn rpc_table(all: &[RpcFigures]) -> String {
    let mut out = format!(
        "{:<20} {:>8} {:>7} {:>6} {:>5} {:>8} {:>9} {:>7} {:>9}  {}\n",
        "scenario",
        "calls",
        "failed",
        "twice",
        "lost",
        "longest",
        "reconnect",
        "resent",
        "replayed",
        "keys agreed"
    );
    for f in all {
        let _ = writeln!(
            out,
            "{:<20} {:>8} {:>7} {:>6} {:>5} {:>6.1} s {:>9} {:>7} {:>9}  {} of {}",
            f.name,
            f.calls,
            f.failed,
            f.twice,
            f.lost,
            f.longest,
            f.reconnects,
            f.resent,
            f.replayed,
            f.agreed,
            f.agreed + f.disagreed.len(),
        );
        for line in f.disagreed.iter().chain(&f.said) {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

/// Whether commands can play a scenario: no interface of one that runs can be changed.
pub(crate) fn is_for_commands(scenario: &Scenario) -> bool {
    let changes = |kind: &FaultKind| matches!(kind, FaultKind::NiAdd { .. } | FaultKind::NiDel(_));
    !scenario.faults.iter().any(|fault| changes(&fault.kind))
}

/// Reads a scenario with as many servers and clients as are played.
///
/// # Errors
/// It can't be read, or has something that is said of one node alone.
pub fn read_rpc(path: &Path) -> anyhow::Result<Scenario> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let sized = |text: &str, name: &str, count: u32| {
        let line = format!("name = \"{name}\"\n");
        text.replace(&line, &format!("{line}count = {count}\n"))
    };
    let text = sized(&sized(&text, "client", CLIENTS), "server", SERVERS);
    Ok(parse(&path.display().to_string(), &text)?)
}

/// What `ulnet rpc bench --json` prints.
#[derive(Debug, Deserialize)]
struct BenchReport {
    calls: u64,
    failed: u64,
    executed_twice: u64,
    lost: u64,
    longest_s: f64,
    reconnects_tried: u64,
    resent: u64,
    replayed: u64,
    versions: BTreeMap<String, u64>,
}

/// What `ulnet rpc list --json` prints of a key.
#[derive(Debug, Deserialize)]
struct Stored {
    key: String,
    version: u64,
}

struct Play<'s> {
    scenario: &'s Scenario,
    setup: &'s Setup,
    // Processes before their hosts.
    routers: BTreeMap<NodeId, Daemon>,
    servers: BTreeMap<NodeId, Process>,
    stage: Stage,
    /// Lives of servers so far: each has a log of its own.
    lives: usize,
}

/// Plays a scenario of [`read_rpc`] in `world`.
///
/// # Errors
/// Something in it can't be done, or a host or process does not do what it should.
pub fn play_rpc(world: World, scenario: &Scenario, setup: &Setup) -> anyhow::Result<RpcFigures> {
    std::fs::create_dir_all(&setup.dir)?;
    let stage = Stage::build(world, scenario)?;
    let mut play = Play {
        scenario,
        setup,
        routers: BTreeMap::new(),
        servers: BTreeMap::new(),
        stage,
        lives: 0,
    };
    let store = play.file("store");
    // What is there is of another play.
    let _ = std::fs::remove_dir_all(&store);
    play.run()
}

impl Play<'_> {
    fn run(&mut self) -> anyhow::Result<RpcFigures> {
        let groups = &self.scenario.world.groups;
        for group in groups.iter().filter(|group| group.router) {
            for node in (group.first..group.first + group.count).map(NodeId) {
                self.start_router(node)?;
            }
        }
        let (servers, clients) = (self.nodes("server")?, self.nodes("client")?);
        for server in &servers {
            self.start_server(*server)?;
        }
        let target = self.target(&servers)?;
        let clock = Clock::new();
        let begin = clock.now();
        let seconds = self.scenario.duration.as_secs().to_string();
        let mut benches = Vec::new();
        for client in &clients {
            let words = ["bench", "--clients", &CLIENTS_EACH.to_string(), "--seconds", &seconds];
            benches.push(self.start_client(*client, &target, &words)?);
        }
        for step in fault::steps(self.scenario) {
            std::thread::sleep(clock.until(begin + micros(step.at)));
            self.step(step)?;
        }
        let mut figures = RpcFigures { name: self.scenario.name.clone(), ..RpcFigures::default() };
        let mut versions = BTreeMap::new();
        let end = Instant::now() + self.scenario.duration + CALL;
        for (mut process, files) in benches {
            wait(&mut process, end).with_context(|| files.err.display().to_string())?;
            let report: BenchReport = files.read()?;
            figures.calls += report.calls;
            figures.failed += report.failed;
            figures.twice += report.executed_twice;
            figures.lost += report.lost;
            figures.reconnects += report.reconnects_tried;
            figures.resent += report.resent;
            figures.replayed += report.replayed;
            figures.longest = figures.longest.max(report.longest_s);
            versions.extend(report.versions);
            figures.said.extend(files.said());
        }
        let first = *clients.first().context("no client")?;
        self.compare(first, &target, &versions, &mut figures)?;
        Ok(figures)
    }

    /// Asks the servers for what they have, as another client.
    fn compare(
        &self,
        client: NodeId,
        target: &str,
        versions: &BTreeMap<String, u64>,
        figures: &mut RpcFigures,
    ) -> anyhow::Result<()> {
        let (mut process, files) = self.start_client(client, target, &["list"])?;
        wait(&mut process, Instant::now() + CALL)?;
        let stored: Vec<Stored> = files.read()?;
        let stored: BTreeMap<String, u64> =
            stored.into_iter().map(|stored| (stored.key, stored.version)).collect();
        for (key, version) in versions {
            match stored.get(key) {
                Some(has) if has == version => figures.agreed += 1,
                Some(has) => figures
                    .disagreed
                    .push(format!("{key}: version {version:#x}, its server has {has:#x}")),
                None => figures.disagreed.push(format!("{key}: its server has no such key")),
            }
        }
        Ok(())
    }

    fn nodes(&self, name: &str) -> anyhow::Result<Vec<NodeId>> {
        let group = self.scenario.world.groups.iter().find(|group| group.name == name);
        let group = group.with_context(|| format!("expected nodes called '{name}'"))?;
        Ok((group.first..group.first + group.count).map(NodeId).collect())
    }

    fn target(&self, servers: &[NodeId]) -> anyhow::Result<String> {
        let first = |node: &NodeId| -> anyhow::Result<String> {
            let spec = spec(self.scenario, *node)?;
            spec.nids.first().cloned().context("a server without rails")
        };
        let nids = servers.iter().map(first).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(format!("{TARGET}@{}", nids.join(",")))
    }

    fn file(&self, end: &str) -> PathBuf {
        self.setup.dir.join(format!("{}-rpc-{end}", self.scenario.name))
    }

    fn start_router(&mut self, node: NodeId) -> anyhow::Result<()> {
        let spec = spec(self.scenario, node)?;
        let host = self.stage.host(node)?;
        let files = self.file(host.name());
        let router = Daemon::start(&self.setup.exe, host, &spec, Duty::Route(true), &files)?;
        self.routers.insert(node, router);
        Ok(())
    }

    fn start_server(&mut self, node: NodeId) -> anyhow::Result<()> {
        let spec = spec(self.scenario, node)?;
        self.lives += 1;
        let log = self.file(&format!("server-{}.log", self.lives));
        let host = self.stage.host(node)?;
        let mut command = host.command(&self.setup.exe);
        command.arg(crate::SERVE).arg(format!("{TARGET}=kv:{}", self.file("store").display()));
        command.arg("--listen").arg(spec.nids.join(",")).arg("--standby");
        for route in &spec.routes {
            command.arg("--route").arg(format!("{}={}", route.net, route.gateway));
        }
        let out = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let mut process = host.spawn(command)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(&log)?;
            if said.contains("serving") || said.contains("standby") {
                break;
            }
            if process.child().try_wait()?.is_some() || Instant::now() > end {
                bail!("{}: the server did not start: {said}", host.name());
            }
            std::thread::sleep(LOOK);
        }
        self.servers.insert(node, process);
        Ok(())
    }

    fn start_client(
        &self,
        node: NodeId,
        target: &str,
        words: &[&str],
    ) -> anyhow::Result<(Process, Files)> {
        let spec = spec(self.scenario, node)?;
        let host = self.stage.host(node)?;
        let verb = words.first().copied().unwrap_or_default();
        let files = Files {
            out: self.file(&format!("{}-{verb}.json", host.name())),
            err: self.file(&format!("{}-{verb}.log", host.name())),
        };
        let mut command = host.command(&self.setup.exe);
        command.arg(crate::RPC).args(words).args(["--target", target, "--json"]);
        command.args(["--timeout", &CALL.as_secs().to_string()]);
        command.arg("--source").arg(spec.nids.join(","));
        for route in &spec.routes {
            command.arg("--route").arg(format!("{}={}", route.net, route.gateway));
        }
        command.stdin(Stdio::null());
        command.stdout(File::create(&files.out)?).stderr(File::create(&files.err)?);
        Ok((host.spawn(command)?, files))
    }

    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        match fault::apply(&self.stage, self.scenario, step)? {
            Deed::Nothing => Ok(()),
            Deed::Kill(nodes) => nodes.into_iter().try_for_each(|node| {
                if let Some(router) = self.routers.get_mut(&node) {
                    router.kill();
                    return Ok(());
                }
                let server = self.servers.get_mut(&node);
                let server = server.context("clients keep the accounts and can't be killed")?;
                // One that is dead is what was wanted.
                let _ = server.kill();
                Ok(())
            }),
            Deed::Restart(nodes) => nodes.into_iter().try_for_each(|node| {
                if self.routers.contains_key(&node) {
                    return self.start_router(node);
                }
                self.start_server(node)
            }),
            Deed::Pause(nodes, on) => {
                let signal = if on { Signal::STOP } else { Signal::CONT };
                for node in nodes {
                    let server = self.servers.get(&node).map(Process::id);
                    let id = self.routers.get(&node).map(Daemon::id).or(server);
                    let id = id.context("no process to pause")?;
                    let pid = i32::try_from(id).ok().and_then(Pid::from_raw).context("no id")?;
                    kill_process(pid, signal)?;
                }
                Ok(())
            }
            Deed::Add(_) | Deed::Del(_) => {
                bail!("interfaces of a running command can't be changed")
            }
        }
    }
}

/// What a client prints.
struct Files {
    out: PathBuf,
    err: PathBuf,
}

impl Files {
    fn read<T: serde::de::DeserializeOwned>(&self) -> anyhow::Result<T> {
        let text = std::fs::read_to_string(&self.out)?;
        let said = || self.said().join("; ");
        serde_json::from_str(&text)
            .with_context(|| format!("{}: {text:?}: {}", self.out.display(), said()))
    }

    fn said(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.err).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Waits for the end of a process. How it ended is in what it printed.
fn wait(process: &mut Process, end: Instant) -> anyhow::Result<()> {
    loop {
        if process.child().try_wait()?.is_some() {
            return Ok(());
        }
        ensure!(Instant::now() < end, "a client does not end");
        std::thread::sleep(LOOK);
    }
}
