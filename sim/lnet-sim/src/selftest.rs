//! LNet selftest in a world: the value that stands on real nodes (`lnet_selftest::Runner`) on all nodes
//! that a scenario names, and at one of them a console that goes through a script: a session, a group
//! and a batch for each workload, its beginning and its end, and the counters of all nodes.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event, Report as LnetReport};
use lnet_scenario::{NodeId, Place, Scenario, SelftestKind};
use lnet_selftest::{
    Answer, Brw, Check, Command, CommandId, Counters, Kind, Report, Runner, Settings, Target,
    TestSpec,
};
use lnet_types::{Instant, Nid};
use serde::Serialize;

use crate::directory::HostId;
use crate::fabric::Fabric;
use crate::sim::Sim;

/// The time since 1970 at the instant zero of the nodes' clocks.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);
/// What consoles identify themselves by.
const KEY: u32 = 4242;
/// How long a session lives without a command, seconds: as long as any scenario.
const SESSION: u32 = u32::MAX;
/// The limit of a query, seconds.
const QUERY: u32 = 30;
/// Until a batch that was stopped has ended.
const STOPS: Duration = Duration::from_secs(1);

/// What a console has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SelftestFigures {
    /// RPCs that nodes sent.
    pub rpcs: u64,
    /// Bytes of bulk data that servers took and gave.
    pub bulk: u64,
    /// RPCs that failed, data that were wrong, and nodes that did not answer their console.
    pub errors: u64,
    /// Whether the console came to the end of its script.
    pub complete: bool,
}

/// A node of selftest; the console has a script.
struct Station {
    runner: Runner,
    script: VecDeque<(Instant, Command)>,
    /// The command under way.
    waits: Option<CommandId>,
    given: u64,
    figures: SelftestFigures,
}

fn group(load: usize, clients: bool) -> String {
    format!("{}-{load}", if clients { "clients" } else { "servers" })
}

/// The script of a scenario's console. `zero` is what its clock shows when the world begins.
fn script(scenario: &Scenario, zero: Instant) -> VecDeque<(Instant, Command)> {
    let world = &scenario.world;
    let nids = |place: &Place| -> Vec<Nid> {
        let rail = |node: NodeId| world.node(node)?.rails.first().map(|rail| rail.nid);
        place.nodes().into_iter().filter_map(rail).collect()
    };
    let name = "scenario".to_owned();
    let session = Command::NewSession { name, timeout_s: SESSION, force: false, features: 1 };
    let mut steps = vec![(zero, session)];
    let mut ends = zero;
    for (n, load) in scenario.selftests.iter().enumerate() {
        for (name, place) in [(group(n, true), &load.from), (group(n, false), &load.to)] {
            steps.push((zero, Command::AddGroup { name: name.clone() }));
            steps.push((zero, Command::AddNodes { group: name, nids: nids(place) }));
        }
        let batch = format!("batch-{n}");
        let (clients, servers) = (load.from.nodes().len() as u32, load.to.nodes().len() as u32);
        let kind = match load.test {
            SelftestKind::Ping => Kind::Ping,
            SelftestKind::Brw { write, size } => {
                Kind::Brw(Brw { write, size, offset: 0, check: Check::Full })
            }
        };
        steps.push((zero, Command::AddBatch { name: batch.clone() }));
        let (from, to) = (group(n, true), group(n, false));
        let (repeat, concurrency) = (None, load.window);
        let spec = TestSpec {
            batch: batch.clone(),
            from,
            to,
            repeat,
            concurrency,
            clients,
            servers,
            kind,
        };
        steps.push((zero, Command::AddTest(spec)));
        let (start, end) = (zero + load.start, zero + load.end);
        steps.push((start, Command::Run { batch: batch.clone(), timeout_s: 0 }));
        steps.push((end, Command::Stop { batch, force: false }));
        ends = ends.max(end + STOPS);
    }
    for n in 0..scenario.selftests.len() {
        for clients in [true, false] {
            let target = Target::Group(group(n, clients));
            steps.push((ends, Command::Stat { target, timeout_s: QUERY }));
        }
    }
    steps.push((ends, Command::EndSession));
    // What begins first is first; steps of one time stay in their order.
    steps.sort_by_key(|(at, _)| *at);
    steps.into()
}

impl Station {
    fn new(script: VecDeque<(Instant, Command)>) -> Self {
        let runner = Runner::new(Settings::default(), EPOCH);
        Self { runner, script, waits: None, given: 0, figures: SelftestFigures::default() }
    }

    /// Takes answers, and gives the next command when its time has come.
    fn go_on(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some((id, answer)) = self.runner.poll_answer() {
                if self.waits == Some(id) {
                    self.waits = None;
                    self.count(answer);
                    self.figures.complete = self.script.is_empty();
                }
            }
            let due = self.script.front().is_some_and(|(at, _)| *at <= below.now());
            if self.waits.is_some() || !due {
                return;
            }
            let Some((_, command)) = self.script.pop_front() else { return };
            self.given += 1;
            let id = CommandId(self.given);
            self.waits = Some(id);
            self.runner.command(id, KEY, 1, command, below);
        }
    }

    fn count(&mut self, answer: Result<Answer, lnet_types::Errno>) {
        let nodes = match answer {
            Ok(Answer::Nodes(nodes)) => nodes,
            Ok(_) => return,
            Err(_) => return self.figures.errors += 1,
        };
        for node in nodes {
            match node.outcome {
                Ok(Report::Counters(counters)) => self.add(&counters),
                Ok(_) => {}
                Err(_) => self.figures.errors += 1,
            }
        }
    }

    fn add(&mut self, c: &Counters) {
        let figures = &mut self.figures;
        figures.rpcs += u64::from(c.rpcs_sent);
        figures.bulk += c.bulk_get + c.bulk_put;
        let wrong = [c.brw_errors, c.ping_errors, c.rpc_errors, c.rpcs_expired];
        figures.errors += wrong.map(u64::from).iter().sum::<u64>();
    }
}

impl Upper for Station {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        self.runner.event(event, below);
        self.go_on(below);
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, report: &LnetReport, below: &mut Below<'_>) {
        self.runner.report(report, below);
        self.go_on(below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.runner.handle_timeout(below);
        self.go_on(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = self.script.front().filter(|_| self.waits.is_none()).map(|(at, _)| *at);
        self.runner.poll_timeout().into_iter().chain(next).min()
    }
}

impl<F: Fabric> Sim<F> {
    /// Selftest stands on all nodes that the scenario names for it, in each life of theirs.
    pub(crate) fn stand_selftest(&mut self, zero: Instant) {
        let scenario: Arc<Scenario> = self.scenario.clone();
        let loads = &scenario.selftests;
        let places = loads.iter().flat_map(|load| [&load.from, &load.to]);
        let mut nodes: Vec<NodeId> = places.flat_map(Place::nodes).collect();
        let Some(&console) = nodes.first() else { return };
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            let mut script =
                if node == console { script(&scenario, zero) } else { VecDeque::new() };
            // A console that dies has no script in its next life.
            let make =
                move |_| -> Box<dyn Upper> { Box::new(Station::new(core::mem::take(&mut script))) };
            let id = self.stand(HostId(node.0), Box::new(make));
            if node == console {
                self.console = id.map(|id| (HostId(node.0), id));
            }
        }
    }

    /// What the console has counted; `None` where there is no selftest.
    pub(crate) fn selftest_figures(&mut self) -> Option<SelftestFigures> {
        if self.scenario.selftests.is_empty() {
            return None;
        }
        let (host, id): (HostId, UpperId) = self.console?;
        let counted = self.with_upper(host, id, |station: &mut Station, _| station.figures);
        Some(counted.unwrap_or_default())
    }
}
