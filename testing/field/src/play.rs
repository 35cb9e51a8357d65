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
use crate::course::{Course, Done};
use crate::fault::{self, Deed, Step};
use crate::load::ledger::Ledger;
use crate::load::talk::{
    Answer, ClientReport, Command, Load, NodeSpec, Role, RouteLine, ServerReport,
};
use crate::measure::{self, Accounts, Figures};
use crate::router::{Daemon, Duty};
use crate::selftest::{self, Batches, Console, Session};
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
/// Between the word to begin and the beginning.
const PREPARE: Duration = Duration::from_millis(50);
/// Rounds of a scenario's world: lives of the server.
const LIVES_MAX: u8 = 15;

/// The two ends of the load, and what goes between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parties {
    pub(crate) client: NodeId,
    pub(crate) server: NodeId,
    pub(crate) load: Load,
    pub(crate) timeout: Duration,
}

impl Parties {
    /// Both ends of LNet selftest, which has a load of its own.
    pub(crate) fn of(session: &Session) -> Self {
        let Session { client, server, .. } = *session;
        Self { client, server, load: Load::default(), timeout: Duration::ZERO }
    }
}

/// Plays `scenario` in `world` and gives the figures.
///
/// # Errors
/// Something in it can't be done with real sockets, or a host or process does not do what it should.
pub fn play(world: World, scenario: &Scenario, setup: &Setup) -> anyhow::Result<Figures> {
    let session = selftest::session(scenario)?;
    let parties = match &session {
        Some(session) if setup.over == Over::Lnet => Parties::of(session),
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
pub(crate) fn parties(scenario: &Scenario) -> anyhow::Result<Parties> {
    let mut load = Load {
        seed: scenario.seed,
        request: 0,
        reply: 0,
        ack: false,
        every: 0,
        window: 0,
        bulk: 0,
        bulk_ack: false,
        bulk_every: 0,
        bulk_window: 0,
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
            (Exchange::Request { reply, ack }, Pace::Every(every)) if load.request == 0 => {
                (load.request, load.reply, load.every) = (w.size, reply, micros(every));
                (load.ack, load.window) = (ack, w.window);
                timeout = w.timeout;
            }
            (Exchange::Put { ack }, Pace::Rate(rate)) if load.bulk == 0 => {
                (load.bulk, load.bulk_ack, load.bulk_window) = (w.size, ack, w.window);
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

fn group(scenario: &Scenario, node: NodeId) -> anyhow::Result<&Group> {
    scenario.world.group_of(node).context("a node of no group")
}

/// What a process has to know of its node.
pub(crate) fn spec(scenario: &Scenario, node: NodeId) -> anyhow::Result<NodeSpec> {
    let group = group(scenario, node)?;
    let rails = scenario.world.node(node).map(|n| n.rails.as_slice()).unwrap_or_default();
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
        conduct: group.conduct.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        routes: group.routes.iter().map(route).collect(),
    })
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
            false => Duty::Route(group(self.scenario, node)?.router),
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

    fn first_nid(&self, node: NodeId) -> anyhow::Result<lnet_types::Nid> {
        let rails = self.scenario.world.node(node).map(|n| &n.rails);
        Ok(rails.and_then(|r| r.first()).context("a node without rails")?.nid)
    }

    fn mptcp_server(&self) -> anyhow::Result<String> {
        let address = self.stage.nic(self.first_nid(self.parties.server)?)?.address;
        Ok(std::net::SocketAddr::new(address, MPTCP_PORT).to_string())
    }

    fn spec(&self, node: NodeId) -> anyhow::Result<NodeSpec> {
        spec(self.scenario, node)
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
        let course = self.course(begin)?;
        let (client, server) = self.finish()?;
        // For those who want to know more than the figures say.
        let report = self.setup.dir.join(format!("{}.json", self.scenario.name));
        std::fs::write(report, serde_json::to_vec(&(begin, &client, &server))?)?;
        Ok(measure::figures(&Accounts {
            course,
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
        let server = self.daemons.get(&session.server).context("no server")?;
        let sockets = [socket, server.socket().to_owned()];
        let clock = self.clock;
        let mut batches = Batches::new(session);
        let (course, progress) =
            selftest::watch(&sockets, (clock, begin), &mut batches, || self.course(begin))?;
        let mut server = Console::connect(&sockets[1])?;
        let seen = (&mut batches, &progress);
        selftest::figures(&mut console, &mut server, session, seen, &course)
    }

    /// Lets the faults befall the hosts, and waits for the end.
    fn course(&mut self, begin: Micros) -> anyhow::Result<Course> {
        let mut done = Vec::new();
        for step in fault::steps(self.scenario) {
            std::thread::sleep(self.clock.until(begin + micros(step.at)));
            let began = self.clock.now();
            self.step(step)?;
            done.push(Done { step, began, done: self.clock.now() });
        }
        let ends = (self.parties.client, self.parties.server);
        let course = Course::new(self.scenario, ends, begin, &done);
        std::thread::sleep(self.clock.until(course.end));
        Ok(course)
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
