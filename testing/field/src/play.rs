//! Plays a scenario: hosts, nodes, load, faults at their times, and the accounts at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use lnet_scenario::{Exchange, Group, NodeId, Pace, Place, Scenario, Workload};
use netns::World;
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Child;
use crate::clock::{Clock, Micros, micros};
use crate::fault::{self, Deed, Step};
use crate::load::ledger::Ledger;
use crate::load::talk::{
    Answer, ClientReport, Command, Load, NodeSpec, Role, RouteLine, ServerReport,
};
use crate::measure::{self, Accounts, Figures};
use crate::router::{Daemon, Duty};
use crate::selftest::{self, Console, Session};
use crate::stage::Stage;

/// What the load goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// LNet nodes.
    Lnet,
    /// Multipath TCP of the kernel.
    Mptcp,
}

/// How to play.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program that the load processes run: this one, or one that hands on to
    /// [`crate::load::main`].
    pub exe: PathBuf,
    /// Where ledgers and logs go. What is there stays.
    pub dir: PathBuf,
    /// What the load goes over.
    pub over: Over,
}

/// Port of all nodes: the one that LNet has.
const PORT: u16 = 988;
/// Port of the MPTCP servers.
const MPTCP_PORT: u16 = 9880;
/// Bulk messages under way at most.
const BULK_WINDOW: u32 = 16;
/// Between the word to begin and the beginning.
const PREPARE: Duration = Duration::from_millis(50);
/// Rounds of a scenario's world: lives of the server.
const LIVES_MAX: u8 = 15;

/// The two ends of the load, and what goes between them.
#[derive(Clone, Copy, Debug)]
struct Parties {
    client: NodeId,
    server: NodeId,
    load: Load,
    timeout: Duration,
}

/// Plays `scenario` in `world` and gives the figures.
///
/// # Errors
/// Something in it can't be done with real sockets, or a host or process does not do what it should.
pub fn play(world: World, scenario: &Scenario, setup: &Setup) -> anyhow::Result<Figures> {
    let session = selftest::session(scenario)?;
    let parties = match &session {
        Some(session) if setup.over == Over::Lnet => Parties {
            client: session.client,
            server: session.server,
            load: Load::default(),
            timeout: Duration::ZERO,
        },
        Some(_) => bail!("{}: LNet selftest is not played over MPTCP", scenario.name),
        None => parties(scenario)?,
    };
    std::fs::create_dir_all(&setup.dir)?;
    let stage = Stage::build(world, scenario)?;
    let mut run = Run {
        clock: Clock::new(),
        scenario,
        setup,
        parties,
        stage,
        daemons: BTreeMap::new(),
        client: None,
        server: None,
        life: 1,
        killed: Vec::new(),
    };
    if let Some(session) = session {
        return run.play_selftest(&session);
    }
    let _ = std::fs::remove_file(run.ledger());
    run.start()?;
    run.play()
}

/// Reads client and server. One client, one server, requests at fixed times, perhaps bulk.
fn parties(scenario: &Scenario) -> anyhow::Result<Parties> {
    let mut load = Load {
        seed: scenario.seed,
        request: 0,
        reply: 0,
        every: 0,
        bulk: 0,
        bulk_ack: true,
        bulk_every: 0,
        bulk_window: BULK_WINDOW,
        timeout: None,
    };
    let one = |place: &Place, w: &Workload| match place.nodes()[..] {
        [node] => Ok(node),
        _ => bail!("line {}: one client and one server are played on real sockets", w.line),
    };
    let mut ends = None;
    let mut timeout = Duration::ZERO;
    for w in &scenario.workload {
        let these = (one(&w.from, w)?, one(&w.to, w)?);
        if *ends.get_or_insert(these) != these {
            bail!("line {}: one client and one server are played on real sockets", w.line);
        }
        if !w.start.is_zero() || w.end != scenario.duration || w.retries != 0 || !w.verify {
            bail!(
                "line {}: 'start', 'until', 'retries' and 'verify' can't be changed here",
                w.line
            );
        }
        match (w.exchange, w.pace) {
            (Exchange::Request { reply }, Pace::Every(every)) if load.request == 0 => {
                (load.request, load.reply, load.every) = (w.size, reply, micros(every));
                timeout = w.timeout;
            }
            (Exchange::Put { ack }, Pace::Rate(rate)) if load.bulk == 0 => {
                (load.bulk, load.bulk_ack) = (w.size, ack);
                load.bulk_every = u64::from(w.size) * 1_000_000 / rate.max(1);
            }
            _ => bail!(
                "line {}: expected one workload of requests with 'every', and at most one of puts \
                 with 'rate'",
                w.line
            ),
        }
    }
    let Some((client, server)) = ends.filter(|_| load.request > 0 && load.reply > 0) else {
        bail!("{}: expected a workload of requests with size and reply", scenario.name);
    };
    load.timeout = Some(micros(timeout));
    Ok(Parties { client, server, load, timeout })
}

/// What was done, and when.
struct Course {
    end: Micros,
    /// When the first fault began, and when the last was over.
    faults: (Micros, Micros),
    /// When each change of a carrier that flaps was begun.
    flaps: Vec<Micros>,
    /// When each fault began and ended, by its index.
    times: BTreeMap<(usize, bool), Micros>,
}

struct Run<'s> {
    clock: Clock,
    scenario: &'s Scenario,
    setup: &'s Setup,
    parties: Parties,
    // Processes before their hosts.
    daemons: BTreeMap<NodeId, Daemon>,
    client: Option<Child>,
    server: Option<Child>,
    stage: Stage,
    life: u8,
    killed: Vec<Micros>,
}

impl Run<'_> {
    fn ledger(&self) -> PathBuf {
        self.setup.dir.join(format!("{}.ledger", self.scenario.name))
    }

    fn log(&self, node: NodeId) -> PathBuf {
        let name = self.scenario.world.name(node);
        self.setup.dir.join(format!("{}-{name}.log", self.scenario.name))
    }

    fn start(&mut self) -> anyhow::Result<()> {
        if self.setup.over == Over::Mptcp {
            crate::mptcp::prepare(&self.stage, self.parties.client, self.parties.server)?;
        } else {
            for node in (0..self.scenario.world.nodes.len() as u32).map(NodeId) {
                if node != self.parties.client && node != self.parties.server {
                    self.start_daemon(node)?;
                }
            }
        }
        self.start_server()?;
        let Parties { client, server, load, .. } = self.parties;
        let role = match self.setup.over {
            Over::Lnet => Role::Client {
                node: self.spec(client)?,
                server: self.first_nid(server)?.to_string(),
                load,
            },
            Over::Mptcp => Role::MptcpClient { server: self.mptcp_server()?, load },
        };
        let child = self.start_child(client, &role)?;
        child.ready()?;
        self.client = Some(child);
        Ok(())
    }

    fn start_child(&self, node: NodeId, role: &Role) -> anyhow::Result<Child> {
        Child::start(&self.setup.exe, self.stage.host(node)?, role, &self.log(node))
    }

    fn start_daemon(&mut self, node: NodeId) -> anyhow::Result<()> {
        let is_end = [self.parties.client, self.parties.server].contains(&node);
        let duty = match is_end {
            true => Duty::Selftest,
            false => Duty::Route(self.group(node)?.router),
        };
        let spec = self.spec(node)?;
        let host = self.stage.host(node)?;
        let files = self.setup.dir.join(format!("{}-{}", self.scenario.name, host.name()));
        let router = Daemon::start(&self.setup.exe, host, &spec, duty, &files)?;
        self.daemons.insert(node, router);
        Ok(())
    }

    fn start_server(&mut self) -> anyhow::Result<()> {
        let (node, load) = (self.parties.server, self.parties.load);
        let (ledger, life) = (self.ledger(), self.life);
        let role = match self.setup.over {
            Over::Lnet => Role::Server { node: self.spec(node)?, ledger, life, load },
            Over::Mptcp => Role::MptcpServer { listen: self.mptcp_server()?, ledger, life, load },
        };
        let child = self.start_child(node, &role)?;
        child.ready()?;
        self.server = Some(child);
        Ok(())
    }

    fn group(&self, node: NodeId) -> anyhow::Result<&Group> {
        self.scenario.world.group_of(node).context("a node of no group")
    }

    fn first_nid(&self, node: NodeId) -> anyhow::Result<lnet_types::Nid> {
        let rails = self.scenario.world.node(node).map(|n| &n.rails);
        Ok(rails.and_then(|r| r.first()).context("a node without rails")?.nid)
    }

    fn mptcp_server(&self) -> anyhow::Result<String> {
        let address = self.stage.nic(self.first_nid(self.parties.server)?)?.address;
        Ok(std::net::SocketAddr::new(address, MPTCP_PORT).to_string())
    }

    fn spec(&self, node: NodeId) -> anyhow::Result<NodeSpec> {
        let group = self.group(node)?;
        let rails = self.scenario.world.node(node).map(|n| n.rails.as_slice()).unwrap_or_default();
        let route = |r: &lnet::RouteSpec| RouteLine {
            net: r.net.to_string(),
            gateway: r.gateway.to_string(),
            hops: r.hops,
            priority: r.priority,
        };
        Ok(NodeSpec {
            nids: rails.iter().map(|r| r.nid.to_string()).collect(),
            port: PORT,
            profile: group.profile.name().to_owned(),
            tunables: group.tunables.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
            conduct: group
                .conduct
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
            routes: group.routes.iter().map(route).collect(),
        })
    }

    fn child(&mut self, node: NodeId) -> Option<&mut Child> {
        if node == self.parties.client {
            self.client.as_mut()
        } else if node == self.parties.server {
            self.server.as_mut()
        } else {
            None
        }
    }

    fn play(mut self) -> anyhow::Result<Figures> {
        let begin = self.clock.now() + micros(PREPARE);
        self.client.as_mut().context("no client")?.ask(&Command::Begin(begin))?;
        let Course { end, faults, flaps, times } = self.course(begin)?;
        let dark = self.dark(begin, &times);
        let (client, server) = self.finish()?;
        // For those who want to know more than the figures say.
        let report = self.setup.dir.join(format!("{}.json", self.scenario.name));
        std::fs::write(report, serde_json::to_vec(&(begin, &client, &server))?)?;
        Ok(measure::figures(&Accounts {
            begin,
            end,
            faults,
            flaps,
            dark,
            killed: core::mem::take(&mut self.killed),
            timeout: micros(self.parties.timeout),
            dawn: micros(self.scenario.bars.sockets.back_max.unwrap_or_default()),
            load: self.parties.load,
            client,
            server,
            ledger: Ledger::read(&self.ledger())?,
        }))
    }

    /// LNet selftest between two daemons.
    fn play_selftest(mut self, session: &Session) -> anyhow::Result<Figures> {
        for node in (0..self.scenario.world.nodes.len() as u32).map(NodeId) {
            self.start_daemon(node)?;
        }
        let client = self.daemons.get(&session.client).context("no client")?;
        let socket = client.socket().to_owned();
        let mut console = Console::connect(&socket)?;
        console
            .begin(session, [self.first_nid(session.client)?, self.first_nid(session.server)?])?;
        let begin = self.clock.now();
        let (course, progress) = selftest::watch(&socket, &Clock::new(), || self.course(begin))?;
        let times = (begin, course.end);
        selftest::figures(&mut console, session, &progress, times, course.faults)
    }

    /// Lets the faults befall the hosts, and waits for the end.
    fn course(&mut self, begin: Micros) -> anyhow::Result<Course> {
        let steps = fault::steps(self.scenario);
        let end = begin + micros(self.scenario.duration);
        let mut first = None;
        let mut last = begin;
        let mut lasting = false;
        let mut flaps = Vec::new();
        let mut times: BTreeMap<(usize, bool), Micros> = BTreeMap::new();
        for step in steps {
            std::thread::sleep(self.clock.until(begin + micros(step.at)));
            let began = self.clock.now();
            self.step(step)?;
            let done = self.clock.now();
            times.entry((step.fault, step.on)).or_insert(if step.on { began } else { done });
            first.get_or_insert(began);
            last = done;
            if self.is_flap(step) {
                flaps.push(began);
            }
            lasting |= self.scenario.faults.get(step.fault).is_some_and(|f| f.until.is_none());
        }
        std::thread::sleep(self.clock.until(end));
        if lasting || first == Some(last) {
            last = end;
        }
        let faults = (first.unwrap_or(end), if first.is_none() { end } else { last });
        Ok(Course { end, faults, flaps, times })
    }

    /// When there was no way, as it was done rather than as it was planned.
    fn dark(
        &self,
        begin: Micros,
        times: &BTreeMap<(usize, bool), Micros>,
    ) -> Vec<(Micros, Micros)> {
        let planned = fault::dark(self.scenario, self.parties.client, self.parties.server);
        let real = |at: Duration, on: bool| {
            let same =
                |(index, _): &(usize, &lnet_scenario::Fault)| times.get(&(*index, on)).copied();
            let faults = self.scenario.faults.iter().enumerate();
            let mut at_that =
                faults.filter(|(_, f)| if on { f.at == at } else { f.until == Some(at) });
            at_that.find_map(|f| same(&f)).unwrap_or_else(|| begin + micros(at))
        };
        planned.into_iter().map(|(from, to)| (real(from, true), real(to, false))).collect()
    }

    fn is_flap(&self, step: Step) -> bool {
        let fault = self.scenario.faults.get(step.fault);
        fault.is_some_and(|f| matches!(f.kind, lnet_scenario::FaultKind::Flap { .. }))
    }

    fn step(&mut self, step: Step) -> anyhow::Result<()> {
        match fault::apply(&self.stage, self.scenario, step)? {
            Deed::Nothing => Ok(()),
            Deed::Kill(nodes) => nodes.into_iter().try_for_each(|node| self.kill(node)),
            Deed::Restart(nodes) => nodes.into_iter().try_for_each(|node| self.restart(node)),
            Deed::Pause(nodes, on) => {
                let signal = if on { Signal::STOP } else { Signal::CONT };
                for node in nodes {
                    let id = match self.daemons.get(&node) {
                        Some(router) => router.id(),
                        None => self.child(node).context("no process to pause")?.id(),
                    };
                    let pid = i32::try_from(id).ok().and_then(Pid::from_raw).context("no id")?;
                    kill_process(pid, signal)?;
                }
                Ok(())
            }
            Deed::Add(all) => all.into_iter().try_for_each(|(node, nid)| {
                let command = Command::AddNi(nid.to_string());
                if self.setup.over == Over::Mptcp {
                    crate::mptcp::endpoint(&self.stage, self.parties.server, nid, true)?;
                }
                self.child(node).context("interfaces are added to client or server")?.ask(&command)
            }),
            Deed::Del(all) => all.into_iter().try_for_each(|(node, nid)| {
                let command = Command::DelNi(nid.to_string());
                if self.setup.over == Over::Mptcp {
                    crate::mptcp::endpoint(&self.stage, self.parties.server, nid, false)?;
                }
                self.child(node)
                    .context("interfaces are taken from client or server")?
                    .ask(&command)
            }),
        }
    }

    fn kill(&mut self, node: NodeId) -> anyhow::Result<()> {
        if let Some(router) = self.daemons.get_mut(&node) {
            router.kill();
            return Ok(());
        }
        if node == self.parties.client {
            bail!("the client keeps the accounts and can't be killed");
        }
        self.killed.push(self.clock.now());
        self.child(node).context("no process to kill")?.kill();
        Ok(())
    }

    fn restart(&mut self, node: NodeId) -> anyhow::Result<()> {
        if self.daemons.contains_key(&node) {
            return self.start_daemon(node);
        }
        self.life += 1;
        if self.life > LIVES_MAX {
            bail!("a server has at most {LIVES_MAX} lives");
        }
        self.start_server()
    }

    fn finish(&mut self) -> anyhow::Result<(ClientReport, ServerReport)> {
        let mut client = self.client.take().context("no client")?;
        client.finish()?;
        let client = match client.answer()? {
            Answer::Client(report) => *report,
            other => bail!("the client's last word is {other:?}"),
        };
        let Some(mut server) = self.server.take() else {
            return Ok((client, ServerReport::default()));
        };
        if server.finish().is_err() {
            // Killed, and not started again.
            return Ok((client, ServerReport::default()));
        }
        match server.answer()? {
            Answer::Server(report) => Ok((client, report)),
            other => bail!("the server's last word is {other:?}"),
        }
    }
}

/// A directory for ledgers and logs, unless the caller has one.
pub fn scratch() -> PathBuf {
    let name = format!("ulnet-field-{}", std::process::id());
    Path::new(&std::env::temp_dir()).join(name)
}
