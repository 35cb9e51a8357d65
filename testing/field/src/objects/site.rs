//! Hosts of a run: clients on one network, two servers on another, two routers between.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lnet_scenario::{NodeId, Scenario, parse};
use netns::{Process, World};
use rustix::process::{Pid, Signal, kill_process};

use super::worker::{Part, Task};
use super::{CLIENTS, END, KILLED, LOCKS, LOOK, ObjectsSetup, ObjectsTimes, STOPPED, TARGETS};
use super::{account_file, target_name};
use crate::fault::{self, Deed, Step};
use crate::play::spec;
use crate::router::{Daemon, Duty};
use crate::stage::Stage;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the disk of the first target.
const DISK: u64 = 48 << 20;

/// What stops a client.
pub(super) const STOP: &str = "SIGSTOP of a client";
/// What fills the disk.
const FULL: &str = "full disk of an ost";

const WORLD: &str = r#"
name = "objects"
description = "Objects and locks over real processes"
duration = "1000s"

[[net]]
name = "tcp"

[[net]]
name = "tcp1"

[[node]]
name = "server"
count = 2
rails = ["tcp1"]
routes = [{ net = "tcp", gateway = "router", hops = 1 }]

[[node]]
name = "router"
count = 2
router = true
rails = ["tcp", "tcp1"]
tunables = { tiny_buffers = 512, small_buffers = 512, large_buffers = 64 }

[[node]]
name = "client"
count = 8
rails = ["tcp"]
routes = [{ net = "tcp1", gateway = "router", hops = 1 }]
"#;

/// What befalls them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    /// Of the table.
    pub(super) name: &'static str,
    /// How long it lasts.
    pub(super) lasts: Duration,
    /// As scenarios say it.
    text: &'static str,
}

fn troubles(times: ObjectsTimes) -> Vec<Trouble> {
    let ObjectsTimes { timer, cut, dark, .. } = times;
    let down = Duration::from_secs(1);
    let all = [
        // Longer than the callback timer, which begins anew with a callback that is sent again. What is dead
        // keeps its locks as long, and is waited for.
        (STOP, timer * 2, "kind = \"pause\"\non = \"client-7\""),
        ("SIGKILL of a client", timer * 2, "kind = \"kill\"\nprocess = true\non = \"client-8\""),
        (
            "black hole out of a client",
            cut,
            "kind = \"cut\"\non = \"client-1\"\ndirection = \"out\"",
        ),
        ("black hole into a client", cut, "kind = \"cut\"\non = \"client-2\"\ndirection = \"in\""),
        ("SIGKILL of a router", cut, "kind = \"kill\"\nprocess = true\non = \"router-1\""),
        ("SIGKILL of a server", down, "kind = \"kill\"\nprocess = true\non = \"server-1\""),
        ("servers dark", dark, "kind = \"cut\"\non = \"server\""),
        (FULL, cut, ""),
    ];
    all.map(|(name, lasts, text)| Trouble { name, lasts, text }).into()
}

/// A client and what it says.
pub(super) struct Client {
    pub(super) process: Process,
    err: PathBuf,
}

impl Client {
    /// What it said.
    pub(super) fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.err).unwrap_or_default();
        format!("{}: {}", self.err.display(), text.trim_end())
    }

    /// Waits for its end.
    pub(super) fn end(&mut self) -> Result<()> {
        self.process.child().stdin = None;
        let end = Instant::now() + END;
        loop {
            if let Some(status) = self.process.child().try_wait()? {
                ensure!(status.success(), "{}", self.said());
                return Ok(());
            }
            if Instant::now() > end {
                bail!("a client does not end: {}", self.said());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(id.context("no process")?, signal)?)
    }
}

/// A disk of its own, if one can be mounted.
struct Disk(PathBuf, bool);

impl Disk {
    fn mount(dir: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={DISK}"), "tmpfs"]).arg(&dir);
        let mounted = mount.status().is_ok_and(|status| status.success());
        Ok(Self(dir, mounted))
    }

    /// Fills it, or empties it.
    fn fill(&self, full: bool) -> Result<()> {
        let file = self.0.join("fill");
        if full {
            // It fails where the disk is full.
            let _ = std::fs::write(file, vec![1; DISK as usize]);
            return Ok(());
        }
        Ok(std::fs::remove_file(file)?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.1 {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// A world of hosts, with its servers and routers.
pub(super) struct Site {
    scenario: Scenario,
    troubles: Vec<Trouble>,
    exe: PathBuf,
    dir: PathBuf,
    times: ObjectsTimes,
    // Processes before their hosts.
    servers: BTreeMap<NodeId, Process>,
    routers: BTreeMap<NodeId, Daemon>,
    stage: Stage,
    disk: Disk,
    lives: usize,
}

impl Site {
    /// Makes hosts, starts routers and servers.
    pub(super) fn begin(world: World, setup: &ObjectsSetup) -> Result<Self> {
        let disk = Disk::mount(setup.dir.join("disk"))?;
        let mut troubles = troubles(setup.times);
        troubles.retain(|trouble| disk.1 || trouble.name != FULL);
        let mut text = WORLD.to_owned();
        for (at, trouble) in troubles.iter().enumerate().filter(|(_, t)| !t.text.is_empty()) {
            text +=
                &format!("\n[[fault]]\nat = \"{}s\"\nfor = \"1s\"\n{}\n", 10 * at, trouble.text);
        }
        let scenario = parse("objects", &text)?;
        let stage = Stage::build(world, &scenario)?;
        let mut site = Self {
            scenario,
            troubles,
            exe: setup.exe.clone(),
            dir: setup.dir.clone(),
            times: setup.times,
            servers: BTreeMap::new(),
            routers: BTreeMap::new(),
            stage,
            disk,
            lives: 0,
        };
        for node in site.nodes("router")? {
            site.start_router(node)?;
        }
        for node in site.nodes("server")? {
            site.start_server(node)?;
        }
        Ok(site)
    }

    fn nodes(&self, name: &str) -> Result<Vec<NodeId>> {
        let group = self.scenario.world.groups.iter().find(|group| group.name == name);
        let group = group.with_context(|| format!("expected nodes called '{name}'"))?;
        Ok((group.first..group.first + group.count).map(NodeId).collect())
    }

    /// What may befall it.
    pub(super) fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    fn start_router(&mut self, node: NodeId) -> Result<()> {
        let spec = spec(&self.scenario, node)?;
        let host = self.stage.host(node)?;
        let files = self.dir.join(host.name());
        let router = Daemon::start(&self.exe, host, &spec, Duty::Route(true), &files)?;
        self.routers.insert(node, router);
        Ok(())
    }

    /// What a server serves or stands by for: the first has the first target and the locks, the second
    /// the second, and stands by for the others.
    fn start_server(&mut self, node: NodeId) -> Result<()> {
        let first = self.nodes("server")?.first() == Some(&node);
        let dir = |path: &Path| path.display().to_string();
        let ost = |n: u32, path: PathBuf| format!("{}=ost:{}", target_name(n), dir(&path));
        let (zero, one) = (ost(0, self.disk.0.join("ost-0")), ost(1, self.dir.join("ost-1")));
        let locks = format!("{LOCKS}=lock:{}", dir(&self.dir.join("locks")));
        let targets = if first { vec![zero, locks] } else { vec![one, zero, locks] };
        let spec = spec(&self.scenario, node)?;
        self.lives += 1;
        let host = self.stage.host(node)?;
        let log = self.dir.join(format!("{}-{}.log", host.name(), self.lives));
        let seconds = |time: Duration| time.as_secs().to_string();
        let mut command = host.command(&self.exe);
        command.arg(crate::SERVE).args(&targets).arg("--listen").arg(spec.nids.join(","));
        command.args(["--ldlm-enqueue-min", &seconds(self.times.timer)]);
        command.args(["--at-max", &seconds(self.times.at_max), "--standby"]);
        command.args(["--obd-timeout", &seconds(self.times.obd_timeout())]);
        for route in &spec.routes {
            command.arg("--route").arg(format!("{}={}", route.net, route.gateway));
        }
        let out = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let mut process = host.spawn(command)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(&log)?;
            let is_there = |line: &&str| line.contains(": serving") || line.contains(": standby");
            if said.lines().filter(is_there).count() >= targets.len() {
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

    fn first_nid(&self, node: NodeId) -> Result<String> {
        spec(&self.scenario, node)?.nids.first().cloned().context("a node without rails")
    }

    /// Starts a client; one more than there are is another one on the first host.
    pub(super) fn client(&self, number: u32, part: Part) -> Result<Client> {
        let node = *self
            .nodes("client")?
            .get((number % CLIENTS) as usize)
            .context("no client of this number")?;
        let servers = self.nodes("server")?;
        let nids = servers.iter().map(|node| self.first_nid(*node)).collect::<Result<Vec<_>>>()?;
        // The second target has one server.
        let last = nids.last().cloned().into_iter().collect();
        let mut targets = vec![nids.clone(), last];
        ensure!(targets.len() == TARGETS as usize, "each target has servers");
        targets.push(nids);
        let node_spec = spec(&self.scenario, node)?;
        let obd_timeout = self.times.obd_timeout();
        let dir = self.dir.clone();
        let task = Task { node: node_spec, targets, dir, client: number, part, obd_timeout };
        let err = account_file(&self.dir, number, "log");
        let host = self.stage.host(node)?;
        let mut command = host.command(&self.exe);
        command.arg(crate::OBJECTS).arg(serde_json::to_string(&task)?).stdin(Stdio::piped());
        let out = File::options().create(true).append(true).open(&err)?;
        command.stdout(out.try_clone()?).stderr(out);
        Ok(Client { process: host.spawn(command)?, err })
    }

    /// A trouble begins or ends.
    pub(super) fn trouble(
        &mut self,
        number: usize,
        on: bool,
        clients: &mut [Client],
    ) -> Result<()> {
        if self.troubles.get(number).is_some_and(|trouble| trouble.name == FULL) {
            self.disk.fill(on)?;
            if on {
                return Ok(());
            }
            // A store that could not write is out of service: the other server starts with what was
            // committed.
            return self.nodes("server")?.into_iter().try_for_each(|node| {
                self.kill_server(node)?;
                self.start_server(node)
            });
        }
        let step = Step { at: Duration::ZERO, fault: number, on };
        let client = |site: &Self, node: NodeId| -> Result<Option<usize>> {
            Ok(site.nodes("client")?.iter().position(|one| *one == node))
        };
        match fault::apply(&self.stage, &self.scenario, step)? {
            Deed::Nothing => Ok(()),
            Deed::Kill(nodes) => nodes.into_iter().try_for_each(|node| {
                if let Some(n) = client(self, node)? {
                    ensure!(n == KILLED as usize, "another client is to be killed");
                    clients.get_mut(n).context("no client")?.process.kill()?;
                    return Ok(());
                }
                match self.routers.get_mut(&node) {
                    Some(router) => router.kill(),
                    None => self.kill_server(node)?,
                }
                Ok(())
            }),
            Deed::Restart(nodes) => nodes.into_iter().try_for_each(|node| {
                if client(self, node)?.is_some() {
                    return Ok(());
                }
                match self.routers.contains_key(&node) {
                    true => self.start_router(node),
                    false => self.start_server(node),
                }
            }),
            Deed::Pause(nodes, on) => nodes.into_iter().try_for_each(|node| {
                let n = client(self, node)?.context("a client is to be stopped")?;
                ensure!(n == STOPPED as usize, "another client is to be stopped");
                let signal = if on { Signal::STOP } else { Signal::CONT };
                clients.get(n).context("no client")?.signal(signal)
            }),
            Deed::Add(_) | Deed::Del(_) => bail!("interfaces can't be changed"),
        }
    }

    fn kill_server(&mut self, node: NodeId) -> Result<()> {
        self.servers.remove(&node).context("no server of this node")?.kill()?;
        Ok(())
    }
}
