//! Scenarios whose workloads are windows of reads and writes: LNet selftest between two daemons, as
//! operators run it. A window is the test's concurrency. Profiles may differ, so that one end stands for a kernel node.
//!
//! Workloads that begin and end with one another are a batch; batches may follow one another.
//!
//! What is measured is progress: for how long a test completed no call, and whether every call that
//! the faults held up was completed in the end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use lnet_admin::{Ask as _, Client, Reply, Request};
use lnet_scenario::{Exchange, NodeId, Pace, Scenario, Workload};
use lnet_selftest::{
    Answer, Brw, Check, Command, Kind, LocalTest, Nodes, Report, Target, TestSpec,
};
use lnet_types::Nid;

use crate::clock::{Clock, Micros, micros};
use crate::concern::{Concern, Watch};
use crate::course::Course;
use crate::measure::{self, Figures, Spread};

/// Key and names of the session.
const KEY: u32 = 988;
const CLIENT: &str = "client";
const SERVER: &str = "server";
/// The session outlives a harness that is killed by so much, seconds.
const SESSION_S: u32 = 120;
/// How long nodes may take over a question, seconds.
const ASK_S: u32 = 20;
/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// From one look at the counters to the next.
const LOOK: Duration = Duration::from_millis(5);
/// How long calls may take to end after the last fault and the end of the load.
const DRAIN: Duration = Duration::from_secs(20);
/// How long the beginning is left out.
const SETTLE: Micros = 1_000_000;

/// One test: its direction, and what it keeps in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    write: bool,
    size: u32,
    window: u32,
    span: Span,
}

/// When a test begins and ends, counted from the beginning of the load.
type Span = (Duration, Duration);

/// The two ends, and the tests between them.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) client: NodeId,
    pub(crate) server: NodeId,
    tests: Vec<Test>,
}

/// The session that a scenario asks for, if its workloads are windows.
///
/// # Errors
/// Some of them are, or they are of a kind that selftest does not have.
pub(crate) fn session(scenario: &Scenario) -> anyhow::Result<Option<Session>> {
    let is_window = |w: &Workload| matches!(w.pace, Pace::Window { .. });
    if !scenario.workload.iter().any(is_window) {
        return Ok(None);
    }
    let mut session: Option<Session> = None;
    for w in &scenario.workload {
        let (Exchange::Rpc { write }, Pace::Window { window, think: Duration::ZERO }) =
            (w.exchange, w.pace)
        else {
            bail!("line {}: expected read or write, and a window, as selftest has", w.line)
        };
        let (&[client], &[server]) = (&w.from.nodes()[..], &w.to.nodes()[..]) else {
            bail!("line {}: one client and one server are played on real sockets", w.line)
        };
        let test = Test { write, size: w.size, window, span: (w.start, w.end) };
        match &mut session {
            Some(s) if (s.client, s.server) == (client, server) => s.tests.push(test),
            Some(_) => bail!("line {}: one client and one server are played", w.line),
            None => session = Some(Session { client, server, tests: vec![test] }),
        }
    }
    if let Some(session) = &mut session {
        // Nodes list tests by batch.
        session.tests.sort_by_key(|test| test.span);
    }
    Ok(session)
}

impl Session {
    /// The stretches of time that have a batch, in order.
    fn batches(&self) -> BTreeSet<Span> {
        self.tests.iter().map(|test| test.span).collect()
    }
}

/// The name of a batch: its beginning and its end.
fn batch((begin, end): Span) -> String {
    format!("{}-{}-ms", begin.as_millis(), end.as_millis())
}

/// Batches that are still to be started, and then to be stopped.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    waiting: BTreeSet<Span>,
    running: BTreeSet<Span>,
}

impl Batches {
    /// Those of a session that is to begin.
    pub(crate) fn new(session: &Session) -> Self {
        Self { waiting: session.batches(), running: BTreeSet::new() }
    }

    /// Starts and stops what is due, so long after the beginning of the load.
    fn keep_up(&mut self, console: &mut Console, elapsed: Duration) -> anyhow::Result<()> {
        while let Some(span) = self.waiting.first().copied().filter(|span| span.0 <= elapsed) {
            console.all(Command::Run { batch: batch(span), timeout_s: 0 })?;
            self.waiting.remove(&span);
            self.running.insert(span);
        }
        let over: Vec<Span> = self.running.iter().copied().filter(|s| s.1 <= elapsed).collect();
        for span in over {
            console.all(Command::Stop { batch: batch(span), force: false })?;
            self.running.remove(&span);
        }
        Ok(())
    }
}

/// The console of a session, at the client's daemon.
pub(crate) struct Console(Client);

impl Console {
    /// Speaks to the daemon behind `socket`.
    ///
    /// # Errors
    /// It can't be reached.
    pub(crate) fn connect(socket: &Path) -> anyhow::Result<Self> {
        Ok(Self(Client::connect(socket)?))
    }

    fn order(&mut self, command: Command) -> anyhow::Result<Answer> {
        let request = Request::Selftest { key: KEY, command };
        match self.0.ask_within(&request, PATIENCE)? {
            Reply::Selftest(answer) => Ok(answer),
            _ => bail!("unexpected reply type from the daemon"),
        }
    }

    fn nodes(&mut self, command: Command) -> anyhow::Result<Nodes> {
        match self.order(command)? {
            Answer::Nodes(nodes) => Ok(nodes),
            _ => bail!("unexpected answer type from the console"),
        }
    }

    /// A command that no node may refuse.
    fn all(&mut self, command: Command) -> anyhow::Result<()> {
        let what = format!("{command:?}");
        for node in self.nodes(command)? {
            ensure!(node.outcome.is_ok(), "{what}: {:?}", node.outcome);
        }
        Ok(())
    }

    /// What the node holds against its ways, as far as its daemon says so.
    fn concerns(&mut self) -> anyhow::Result<BTreeSet<Concern>> {
        let mut all = BTreeSet::new();
        if let Reply::Rails(rails) = self.0.ask_within(&Request::RailsShow, PATIENCE)? {
            all.extend(rails.iter().map(|r| Concern::Rail(r.local, r.peer)));
        }
        let nets = Request::NetShow { net: None, detail: false };
        if let Reply::Nets(nets) = self.0.ask_within(&nets, PATIENCE)? {
            let nis = nets.iter().flat_map(|net| &net.nis).filter(|ni| !ni.up);
            all.extend(nis.map(|ni| Concern::Link(ni.nid)));
        }
        Ok(all)
    }

    /// Messages that the node has sent again.
    fn resends(&mut self) -> anyhow::Result<u64> {
        match self.0.ask_within(&Request::StatsShow, PATIENCE)? {
            Reply::Stats(stats) => Ok(u64::from(stats.resend_count)),
            _ => bail!("unexpected reply type from the daemon"),
        }
    }

    fn tests(&mut self) -> anyhow::Result<Vec<LocalTest>> {
        match self.order(Command::Local)? {
            Answer::Local(tests) => Ok(tests),
            _ => bail!("unexpected answer type from the console"),
        }
    }

    /// Makes the session and its batches.
    ///
    /// # Errors
    /// A node refuses.
    pub(crate) fn begin(&mut self, session: &Session, nids: [Nid; 2]) -> anyhow::Result<()> {
        let name = "outage".to_owned();
        self.order(Command::NewSession { name, timeout_s: SESSION_S, force: false, features: 1 })?;
        for (group, nid) in [(CLIENT, nids[0]), (SERVER, nids[1])] {
            self.order(Command::AddGroup { name: group.to_owned() })?;
            self.all(Command::AddNodes { group: group.to_owned(), nids: vec![nid] })?;
        }
        for span in session.batches() {
            self.order(Command::AddBatch { name: batch(span) })?;
        }
        for test in &session.tests {
            let Test { write, size, window, span } = *test;
            self.all(Command::AddTest(TestSpec {
                batch: batch(span),
                from: CLIENT.to_owned(),
                to: SERVER.to_owned(),
                repeat: None,
                concurrency: window,
                clients: 1,
                servers: 1,
                kind: Kind::Brw(Brw { write, size, offset: 0, check: Check::Simple }),
            }))?;
        }
        Ok(())
    }

    /// Ends the tests. Returns how many calls were still under way when their time was over.
    fn end(&mut self, batches: &mut Batches) -> anyhow::Result<u64> {
        batches.waiting.clear();
        batches.keep_up(self, Duration::MAX)?;
        let clock = Clock::new();
        let end = clock.now() + micros(DRAIN);
        loop {
            let active: u32 = self.tests()?.iter().map(|t| t.active).sum();
            if active == 0 || clock.now() > end {
                return Ok(active.into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Errors that both nodes counted: damaged data, and RPCs that failed or expired.
    fn errors(&mut self) -> anyhow::Result<[u64; 2]> {
        let (mut corrupt, mut failed) = (0, 0);
        for group in [CLIENT, SERVER] {
            let target = Target::Group(group.to_owned());
            for node in self.nodes(Command::Stat { target, timeout_s: ASK_S })? {
                match node.outcome {
                    Ok(Report::Counters(c)) => {
                        corrupt += u64::from(c.brw_errors);
                        failed += u64::from(c.rpc_errors) + u64::from(c.rpcs_expired);
                    }
                    other => bail!("counters of {group}: {other:?}"),
                }
            }
        }
        Ok([corrupt, failed])
    }
}

/// What was seen of the tests: when, and how many calls each had completed.
#[derive(Clone, Debug)]
struct Look {
    at: Micros,
    done: Vec<u64>,
}

/// The progress of a session while faults are played.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    looks: Vec<Look>,
    /// When one of the nodes was seen to hold something more against a way.
    pub(crate) noticed: Vec<Micros>,
}

/// What a session came to, beside its progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Calls that failed.
    pub(crate) errors: u64,
    /// Calls that were still under way long after their time.
    pub(crate) unfinished: u64,
    /// Calls with wrong bytes.
    pub(crate) corrupt: u64,
    /// Messages that both nodes sent again.
    pub(crate) resends: u64,
}

/// Plays `faults` from `begin` on while the batches are started and stopped and their progress is watched at
/// the first of `sockets`, and concerns of the nodes at all of them.
///
/// # Errors
/// Those of `faults`, and of the console.
pub(crate) fn watch<T>(
    sockets: &[PathBuf],
    (clock, begin): (Clock, Micros),
    batches: &mut Batches,
    faults: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Progress)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| -> anyhow::Result<Progress> {
            let mut consoles: Vec<(Console, Watch)> = Vec::new();
            for socket in sockets {
                consoles.push((Console::connect(socket)?, Watch::default()));
            }
            let mut progress = Progress::default();
            while !over.load(Ordering::Relaxed) {
                let tests = match consoles.first_mut() {
                    Some((console, _)) => {
                        let elapsed = clock.now().saturating_sub(begin);
                        batches.keep_up(console, Duration::from_micros(elapsed))?;
                        console.tests()?
                    }
                    None => Vec::new(),
                };
                let done = tests.iter().map(|t| t.took.count() + t.errors).collect();
                progress.look(clock.now(), done);
                for (console, watch) in &mut consoles {
                    watch.look(clock.now(), console.concerns()?);
                }
                std::thread::sleep(LOOK);
            }
            progress.noticed = consoles.into_iter().flat_map(|(_, watch)| watch.noticed).collect();
            Ok(progress)
        });
        let played = faults();
        over.store(true, Ordering::Relaxed);
        let progress = watcher.join().ok().context("the watcher panicked")??;
        Ok((played?, progress))
    })
}

impl Progress {
    /// Notes how many calls each test has completed at a time.
    pub(crate) fn look(&mut self, at: Micros, done: Vec<u64>) {
        self.looks.push(Look { at, done });
    }

    /// When each completion of test `test` was seen first, within a stretch of time.
    fn seen(&self, test: usize, from: Micros, to: Micros) -> impl Iterator<Item = Micros> {
        let count = move |look: &Look| look.done.get(test).copied().unwrap_or(0);
        let pairs = self.looks.iter().zip(self.looks.iter().skip(1));
        let more = pairs.filter(move |(a, b)| count(b) > count(a)).map(|(_, b)| b.at);
        more.filter(move |at| (from..to).contains(at))
    }

    /// Times without a completion, milliseconds.
    fn gaps(&self, test: usize, from: Micros, to: Micros) -> impl Iterator<Item = f64> {
        let mut last = from;
        self.seen(test, from, to).chain([to]).map(move |at| {
            let gap = (at - last) as f64 / 1000.0;
            last = at;
            gap
        })
    }

    fn tests(&self) -> usize {
        self.looks.last().map_or(0, |look| look.done.len())
    }

    /// Calls completed by a time.
    fn done(&self, test: usize, by: Micros) -> u64 {
        let last = self.looks.iter().rev().find(|look| look.at <= by);
        last.and_then(|look| look.done.get(test).copied()).unwrap_or(0)
    }

    /// Works the figures out.
    pub(crate) fn figures(&self, session: &Session, course: &Course, account: Account) -> Figures {
        let (begin, end, (from, to)) = (course.begin, course.end, course.faults);
        let all = || 0..self.tests();
        // Of each test within its own time.
        let stall = |part: &dyn Fn(Micros, Micros) -> (Micros, Micros)| {
            let of = |(t, test): (usize, &Test)| {
                let (start, end) = test.span;
                let (from, to) = part(begin + micros(start), begin + micros(end));
                self.gaps(t, from, to).fold(0.0, f64::max)
            };
            session.tests.iter().enumerate().map(of).fold(0.0, f64::max)
        };
        // When the first fault of a stretch of time began; its end if there is none.
        let struck = |start, end| {
            course.begun.iter().copied().filter(|at| (start..end).contains(at)).min().unwrap_or(end)
        };
        let rate = |from: Micros, to: Micros| {
            let bytes: u64 = all()
                .zip(&session.tests)
                .map(|(t, test)| (self.done(t, to) - self.done(t, from)) * u64::from(test.size))
                .sum();
            bytes as f64 / to.saturating_sub(from).max(1) as f64
        };
        let lasts =
            |t: &usize| session.tests.get(*t).is_some_and(|test| begin + micros(test.span.1) > to);
        let back = |t: usize| self.seen(t, to, end).next().map(|at| (at - to) as f64 / 1000.0);
        let backs: Option<Vec<f64>> = all().filter(lasts).map(back).collect();
        let max = |max| Spread { max, ..Spread::default() };
        let healthy =
            stall(&|start, end| ((start + SETTLE).min(struck(start, end)), struck(start, end)));
        // Of the test that was held up for longest, within its own time.
        let late = |(t, test): (usize, &Test)| {
            let (start, end) = (begin + micros(test.span.0), begin + micros(test.span.1));
            let (from, to) = (from.max(start).min(end), to.min(end).max(start));
            self.gaps(t, from, to.max(from)).map(|gap| (gap - 2.0 * healthy).max(0.0)).sum::<f64>()
        };
        let minutes = to.saturating_sub(from) as f64 / 60e6;
        let stalled = || session.tests.iter().enumerate().map(late).fold(0.0, f64::max) / minutes;
        Figures {
            healthy: max(healthy),
            stall: max(stall(&|start, end| (struck(start, end), end))),
            later: max(stall(&|start, end| (start.max(to).min(end), end))),
            noticed: measure::noticed_after(self.noticed.iter().copied(), course.faults),
            stall_per_minute: (minutes > 0.0).then(stalled),
            back: (to < end)
                .then(|| backs.map_or(f64::INFINITY, |b| b.into_iter().fold(0.0, f64::max))),
            messages: all().map(|t| self.done(t, end)).sum(),
            errors: account.errors,
            corrupt: account.corrupt,
            lost: account.unfinished,
            goodput_healthy: rate(begin + SETTLE, from),
            goodput: rate(from, to),
            resends: account.resends,
            ..Figures::default()
        }
    }
}

/// Ends the session, and works the figures out.
///
/// # Errors
/// The nodes can't be asked.
pub(crate) fn figures(
    console: &mut Console,
    server: &mut Console,
    session: &Session,
    (batches, progress): (&mut Batches, &Progress),
    course: &Course,
) -> anyhow::Result<Figures> {
    let errors: u64 = console.tests()?.iter().map(|t| t.errors).sum();
    let unfinished = console.end(batches)?;
    let [corrupt, failed] = console.errors()?;
    let resends = console.resends()? + server.resends()?;
    let account = Account { errors: errors.max(failed), unfinished, corrupt, resends };
    Ok(progress.figures(session, course, account))
}
