//! The hosts and servers of a run: a node with `mgs` and `mdt`, two with two `ost`s each, and clients,
//! each with two rails.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use lnet_scenario::{NodeId, Scenario, parse};
use netns::{Process, World};
use rustix::process::{Pid, Signal, kill_process};

use crate::fault::{self, Deed, Step};
use crate::play::spec;
use crate::stage::Stage;

/// Name of the file system.
const FSNAME: &str = "lfs";
/// Port of all nodes.
pub(super) const PORT: u16 = 988;
/// Clients.
pub(super) const CLIENTS: u32 = 8;
/// Object targets of a node.
const OSTS_EACH: u32 = 2;
/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at its log.
const LOOK: Duration = Duration::from_millis(10);

const WORLD: &str = r#"
name = "files"
description = "Files over real processes"
duration = "1000s"

[[net]]
name = "tcp"
bandwidth = "1Gbit/s"
burst = "64KiB"

[[net]]
name = "tcp1"
bandwidth = "1Gbit/s"
burst = "64KiB"

[[node]]
name = "mds"
rails = ["tcp", "tcp1"]

[[node]]
name = "oss"
count = 2
rails = ["tcp", "tcp1"]

[[node]]
name = "client"
count = 8
rails = ["tcp", "tcp1"]
"#;

/// What befalls the servers, one after the other.
pub(super) struct Trouble {
    /// Of the table.
    pub(super) name: String,
    /// How long it lasts.
    pub(super) lasts: Duration,
}

/// A fault of the world: what it is called, what scenarios call it, and how long it lasts.
pub(super) type Fault<'a> = (&'a str, &'a str, Duration);

/// A world of hosts, with its servers.
pub(super) struct Site {
    scenario: Scenario,
    troubles: Vec<Trouble>,
    program: PathBuf,
    dir: PathBuf,
    // Processes before their hosts.
    servers: BTreeMap<NodeId, Process>,
    stage: Stage,
    /// Lives of servers so far: each has a log of its own.
    lives: usize,
}

impl Site {
    /// Makes hosts and starts servers. What they print goes to `dir`, with their storage.
    pub(super) fn begin(
        world: World,
        faults: &[Fault<'_>],
        program: &Path,
        dir: &Path,
    ) -> Result<Self> {
        let mut text = WORLD.to_owned();
        for (i, (_, kind, lasts)) in faults.iter().enumerate() {
            let ms = lasts.as_millis();
            text += &format!("\n[[fault]]\nat = \"{}s\"\nfor = \"{ms}ms\"\n{kind}\n", 60 * i);
        }
        let scenario = parse("files", &text)?;
        let troubles = faults
            .iter()
            .map(|(name, _, lasts)| Trouble { name: (*name).to_owned(), lasts: *lasts })
            .collect();
        let stage = Stage::build(world, &scenario)?;
        let mut site = Self {
            scenario,
            troubles,
            program: program.to_owned(),
            dir: dir.to_owned(),
            servers: BTreeMap::new(),
            stage,
            lives: 0,
        };
        site.describe()?;
        // Object targets first: the metadata target finds them.
        for node in site.nodes("oss")?.into_iter().chain(site.nodes("mds")?) {
            site.start(node)?;
        }
        Ok(site)
    }

    fn nodes(&self, name: &str) -> Result<Vec<NodeId>> {
        let group = self.scenario.world.groups.iter().find(|group| group.name == name);
        let group = group.with_context(|| format!("expected nodes called '{name}'"))?;
        Ok((group.first..group.first + group.count).map(NodeId).collect())
    }

    fn nids(&self, node: NodeId) -> Result<Vec<String>> {
        Ok(spec(&self.scenario, node)?.nids)
    }

    /// What stands before a path of the file system.
    pub(super) fn place(&self) -> Result<String> {
        let mds = self.nodes("mds")?.first().copied().context("no server")?;
        Ok(format!("{}:/{FSNAME}", self.nids(mds)?.join(",")))
    }

    /// Writes what the servers of the file system are.
    fn describe(&self) -> Result<()> {
        let mut text = String::new();
        for node in self.nodes("mds")?.into_iter().chain(self.nodes("oss")?) {
            let nids = self.nids(node)?.join(",");
            for (name, _) in self.targets(node)?.into_iter().filter(|(name, _)| name != "MGS") {
                text += &format!("{name} {nids}\n");
            }
        }
        for dir in ["mgs", "mdt"] {
            let dir = self.dir.join("storage").join(dir);
            std::fs::create_dir_all(&dir)?;
            std::fs::write(dir.join("targets"), &text)?;
        }
        Ok(())
    }

    /// Targets of a node, by name and what `ulnet serve` is to be given.
    fn targets(&self, node: NodeId) -> Result<Vec<(String, String)>> {
        let storage = self.dir.join("storage");
        let target = |name: String, kind: &str, dir: String| {
            let spec = format!("{name}={kind}:{}", storage.join(dir).display());
            (name, spec)
        };
        if self.nodes("mds")?.contains(&node) {
            return Ok(vec![
                target("MGS".to_owned(), "mgs", "mgs".to_owned()),
                target(format!("{FSNAME}-MDT0000_UUID"), "mdt", "mdt".to_owned()),
            ]);
        }
        let place = self.nodes("oss")?.iter().position(|oss| *oss == node);
        let place = u32::try_from(place.context("a node without targets")?)?;
        let indexes = place * OSTS_EACH..(place + 1) * OSTS_EACH;
        let all = indexes.map(|index| {
            target(format!("{FSNAME}-OST{index:04x}_UUID"), "ost", format!("ost{index:04x}"))
        });
        Ok(all.collect())
    }

    fn start(&mut self, node: NodeId) -> Result<()> {
        let targets = self.targets(node)?;
        self.lives += 1;
        let host = self.stage.host(node)?;
        let log = self.dir.join(format!("{}-{}.log", host.name(), self.lives));
        let mut command = host.command(&self.program);
        command.arg(crate::SERVE).args(targets.iter().map(|(_, spec)| spec));
        command.arg("--listen").arg(self.nids(node)?.join(","));
        let out = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let mut process = host.spawn(command)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(&log)?;
            if targets.iter().all(|(name, _)| said.contains(&format!("{name}: serving"))) {
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

    /// A command in the host of a client.
    pub(super) fn command(&self, client: u32, program: &Path) -> Result<Command> {
        let node = self.client(client)?;
        Ok(self.stage.host(node)?.command(program))
    }

    /// Starts such a command.
    pub(super) fn spawn(&self, client: u32, command: Command) -> Result<Process> {
        Ok(self.stage.host(self.client(client)?)?.spawn(command)?)
    }

    /// NIDs of a client.
    pub(super) fn client_nids(&self, client: u32) -> Result<Vec<String>> {
        self.nids(self.client(client)?)
    }

    fn client(&self, client: u32) -> Result<NodeId> {
        let all = self.nodes("client")?;
        all.get(client as usize).copied().context("no client of this number")
    }

    /// What may befall it.
    pub(super) fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    /// A trouble begins or ends.
    pub(super) fn trouble(&mut self, number: usize, on: bool) -> Result<()> {
        let step = Step { at: Duration::ZERO, fault: number, on };
        match fault::apply(&self.stage, &self.scenario, step)? {
            Deed::Nothing => Ok(()),
            Deed::Kill(nodes) => nodes.into_iter().try_for_each(|node| {
                self.servers.remove(&node).context("no server of this node")?.kill()?;
                Ok(())
            }),
            Deed::Restart(nodes) => nodes.into_iter().try_for_each(|node| self.start(node)),
            Deed::Pause(nodes, on) => {
                let signal = if on { Signal::STOP } else { Signal::CONT };
                nodes.into_iter().try_for_each(|node| {
                    let server = self.servers.get(&node).context("no server of this node")?;
                    let id = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
                    Ok(kill_process(id.context("no process")?, signal)?)
                })
            }
            Deed::Add(_) | Deed::Del(_) => bail!("interfaces of a server can't be changed"),
        }
    }
}
