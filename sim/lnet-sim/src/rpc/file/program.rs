//! Programs of one node that visit the file system: each has a visit with one operation under way, rests,
//! begins the next one. A visit that is over is followed by another one, with another client and another
//! directory. When a load is to be checked, one more visit reads the directories of all its programs.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lnet::upper::Below;
use lnet_scenario::{FileLoad, LoadKind, NodeId, Pace, RpcLoad, Scenario, TargetKind};
use lnet_types::{Instant, Nid, Prng};
use lustre_client::visitor::{Access, Identity, VisitConfig, Visitor, WHOLE_MAX};
use ptlrpc::{Event, Ptlrpc};

use super::super::seen::RpcSeen;
use super::op::{FileAnswer, FileAt, FileBytes, FileOp, FilePath};
use super::seen::{Dumps, FileFailure, FileSeen};
use super::target::mdts;
use super::visits::{VisitNo, Visits};
use super::wire::SimWire;
use super::work::{Desk, Spread, failure};

/// A program that could not do something rests at least so long.
const REST: Duration = Duration::from_millis(500);
/// Files that a program has open at a time.
const SLOTS: u64 = 3;
/// A visit ends after so many operations, one in so many times each.
const LEAVES_ONE_IN: u64 = 60;
/// Border at which stripes of files end.
const STRIPE: u64 = 64 << 10;

/// What a program wants of its visit.
enum Task {
    Do(FileOp),
    /// Reads all directories whose names begin so.
    Check(String),
    Leave,
}

/// What a visit reports.
enum Report {
    Stayed(FileFailure),
    Ended(Result<FileAnswer, FileFailure>),
    Checked(Result<Dumps, FileFailure>),
    Left(Result<(), FileFailure>),
}

type Channel = SimWire<Task, Report>;

/// The rule that visits break, in a build that can break one.
#[derive(Clone, Copy, Default)]
struct Broken {
    #[cfg(feature = "sabotage")]
    rule: Option<lustre_client::Sabotage>,
}

impl Broken {
    #[cfg_attr(not(feature = "sabotage"), allow(clippy::unused_self))]
    fn breaks(self, visitor: Visitor<Channel>) -> Visitor<Channel> {
        #[cfg(feature = "sabotage")]
        let visitor = self.rule.into_iter().fold(visitor, Visitor::sabotaged);
        visitor
    }
}

/// A visit under way.
struct Visit {
    number: VisitNo,
    wire: Channel,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    client: String,
    tree: String,
    /// Numbers of files that are open.
    open: BTreeSet<u8>,
    /// The operation under way, and since when.
    doing: Option<(FileOp, Instant)>,
    /// It has been ordered to end.
    leaves: bool,
}

/// A program, or the check of a load.
struct Program {
    load: usize,
    number: u32,
    /// Visits that it has begun.
    visits: u32,
    /// When it goes on; `None`: never.
    due: Option<Instant>,
    visit: Option<Visit>,
    checks: bool,
}

/// All programs of a node that work with files.
pub(in crate::rpc) struct Filing {
    scenario: Arc<Scenario>,
    node: NodeId,
    life: u32,
    zero: Instant,
    /// Seconds since 1970 when the clock of the node shows zero.
    wall: Duration,
    programs: Vec<Program>,
    visits: Visits,
    numbers: VisitNo,
    /// Visits that may go on.
    ready: BTreeSet<VisitNo>,
    rng: Prng,
    broken: Broken,
}

/// The whole of a visit.
async fn visit(
    wire: Channel,
    config: VisitConfig,
    (base, spread): (Vec<u8>, Spread),
    caches: bool,
    broken: Broken,
) {
    let visitor = match Visitor::begin(wire.clone(), config).await {
        Ok(visitor) => broken.breaks(visitor),
        Err(e) => return wire.result(Report::Stayed(failure(&e))),
    };
    let cache = match caches.then(|| visitor.cache()).transpose() {
        Ok(cache) => cache,
        Err(e) => {
            // Nothing was changed that could be lost.
            let _ = visitor.end().await;
            return wire.result(Report::Stayed(failure(&e)));
        }
    };
    let mut desk = Desk { visitor: &visitor, base, spread, open: BTreeMap::new(), cache };
    loop {
        match wire.task().await {
            Task::Do(op) => {
                let result = desk.carry_out(&op).await.map_err(|e| failure(&e));
                let over = result.as_ref().is_err_and(|e| e.over);
                wire.result(Report::Ended(result));
                if over {
                    break;
                }
            }
            Task::Check(prefix) => {
                let found = desk.dumps(&prefix).await;
                wire.result(Report::Checked(found));
            }
            Task::Leave => break,
        }
    }
    let kept = desk.close_all().await;
    drop(desk);
    let ended = visitor.end().await;
    wire.result(Report::Left(kept.and(ended).map_err(|e| failure(&e))));
}

impl Filing {
    pub(in crate::rpc) fn new(
        scenario: Arc<Scenario>,
        (node, life): (NodeId, u32),
        zero: Instant,
        mut rng: Prng,
    ) -> Self {
        let visits = Visits::new(rng.next_u64(), scenario.rpc.tunables.clone());
        Self {
            scenario,
            node,
            life,
            zero,
            wall: Duration::ZERO,
            programs: Vec::new(),
            visits,
            numbers: 0,
            ready: BTreeSet::new(),
            rng,
            broken: Broken::default(),
        }
    }

    /// Visits that begin from now on break a rule.
    #[cfg(feature = "sabotage")]
    pub(in crate::rpc) fn sabotage(&mut self, rule: lustre_client::Sabotage) {
        self.broken.rule = Some(rule);
        if rule == lustre_client::Sabotage::OpenForgotten {
            self.visits.sabotage_opens();
        }
    }

    /// Makes the programs of the node. `wall` is the time since 1970.
    pub(in crate::rpc) fn open(&mut self, wall: Duration, now: Instant) {
        self.wall = wall.saturating_sub(Duration::from_nanos(now.as_nanos()));
        let scenario = self.scenario.clone();
        for (load, l) in scenario.rpc.loads.iter().enumerate() {
            let LoadKind::Files(FileLoad { check, .. }) = l.kind else { continue };
            if !l.from.nodes().contains(&self.node) {
                continue;
            }
            let of = |number, due, checks| Program {
                load,
                number,
                visits: 0,
                due: Some(due),
                visit: None,
                checks,
            };
            let begin = (self.zero + l.start).max(now);
            self.programs.extend((0..l.window).map(|number| of(number, begin, false)));
            if let Some(at) = check {
                self.programs.push(of(l.window, (self.zero + at).max(now), true));
            }
        }
    }

    /// When [`Self::run`] is wanted.
    pub(in crate::rpc) fn next(&self) -> Option<Instant> {
        if self.programs.is_empty() {
            return None;
        }
        let programs = self.programs.iter().filter_map(|program| program.due).min();
        programs.into_iter().chain(self.visits.next()).min()
    }

    /// Does what is due.
    pub(in crate::rpc) fn run(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        if self.programs.is_empty() {
            return;
        }
        self.visits.run(ptlrpc, below);
        for at in 0..self.programs.len() {
            if self.programs.get(at).is_some_and(|p| p.due.is_some_and(|due| due <= below.now())) {
                self.go_on(at, below.now(), notes);
            }
        }
        loop {
            while let Some((visit, order, answer)) = self.visits.answer() {
                let mut visits = self.programs.iter().filter_map(|p| p.visit.as_ref());
                if let Some(found) = visits.find(|v| v.number == visit) {
                    found.wire.answer(order, answer);
                    self.ready.insert(visit);
                }
            }
            let Some(visit) = self.ready.pop_first() else { return };
            self.turn(visit, ptlrpc, below, notes);
        }
    }

    /// The turn of a visit.
    fn turn(
        &mut self,
        visit: VisitNo,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        let is = |p: &Program| p.visit.as_ref().is_some_and(|v| v.number == visit);
        let Some(at) = self.programs.iter().position(is) else { return };
        let now = self.wall + Duration::from_nanos(below.now().as_nanos());
        let Some(found) = self.programs.get_mut(at).and_then(|p| p.visit.as_mut()) else { return };
        found.wire.at(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        // One that has ended reports it, and is not polled again.
        let _ = found.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let wire = found.wire.clone();
        while let Some((number, order)) = wire.next() {
            self.visits.order((visit, number), order, ptlrpc, below);
        }
        while let Some(report) = wire.take() {
            self.reported(at, report, below.now(), notes);
        }
    }

    fn reported(&mut self, at: usize, report: Report, now: Instant, notes: &mut Vec<RpcSeen>) {
        let Some((program, visit)) =
            self.programs.get_mut(at).and_then(|p| p.visit.take().map(|visit| (p, visit)))
        else {
            return;
        };
        let load = program.load;
        let think = match self.scenario.rpc.loads.get(load).map(|load| load.pace) {
            Some(Pace::Window { think, .. }) => think,
            Some(Pace::Every(every)) => every,
            _ => Duration::ZERO,
        };
        let mut visit = visit;
        let client = visit.client.clone();
        let seen = match report {
            Report::Stayed(failure) => {
                self.visits.forget(visit.number);
                program.due = Some(now + think.max(REST));
                notes.push(RpcSeen::File { seen: FileSeen::Stayed { client, failure } });
                return;
            }
            Report::Left(result) => {
                self.visits.forget(visit.number);
                program.due = (!program.checks).then(|| now + think.max(REST));
                notes.push(RpcSeen::File { seen: FileSeen::Left { client, result } });
                return;
            }
            Report::Checked(trees) => {
                visit.wire.give(Task::Leave);
                visit.leaves = true;
                self.ready.insert(visit.number);
                FileSeen::Checked { client, load, trees }
            }
            Report::Ended(result) => {
                let (op, since) = visit.doing.take().unwrap_or((FileOp::Sync, now));
                match (&op, &result) {
                    (FileOp::Open(slot, ..), Ok(_)) => _ = visit.open.insert(*slot),
                    (FileOp::Close(slot), _) => _ = visit.open.remove(slot),
                    _ => {}
                }
                match &result {
                    Err(e) if e.over => visit.leaves = true,
                    // What it has in its directory is not known any more.
                    Err(e) if !e.said => {
                        visit.leaves = true;
                        visit.wire.give(Task::Leave);
                        self.ready.insert(visit.number);
                    }
                    _ if !visit.leaves => program.due = Some(now + think),
                    _ => {}
                }
                FileSeen::Ended { client, took: now.saturating_since(since), result }
            }
        };
        program.visit = Some(visit);
        notes.push(RpcSeen::File { seen });
    }

    /// A program goes on: with a visit, or an operation.
    fn go_on(&mut self, at: usize, now: Instant, notes: &mut Vec<RpcSeen>) {
        let Some(mut program) = self.programs.get_mut(at).map(|program| {
            let (load, number, visits, checks) =
                (program.load, program.number, program.visits, program.checks);
            let visit = program.visit.take();
            program.due = None;
            Program { load, number, visits, due: None, visit, checks }
        }) else {
            return;
        };
        self.step(&mut program, now, notes);
        if let Some(place) = self.programs.get_mut(at) {
            *place = program;
        }
    }

    fn step(&mut self, program: &mut Program, now: Instant, notes: &mut Vec<RpcSeen>) {
        let scenario = self.scenario.clone();
        let Some(load) = scenario.rpc.loads.get(program.load) else { return };
        let LoadKind::Files(files) = load.kind else { return };
        let ends = now >= self.zero + load.end && !program.checks;
        let Some(visit) = &mut program.visit else {
            if !ends {
                self.begin(program, files, load, now, notes);
            }
            return;
        };
        if visit.leaves {
            return;
        }
        self.ready.insert(visit.number);
        let leaves = ends || self.rng.one_in(LEAVES_ONE_IN);
        // One that leaves for good has all committed before, others may not.
        let op = match leaves {
            // What others have seen of a directory is not to be lost with it.
            true if ends || files.shared || self.rng.one_in(2) => FileOp::Sync,
            true => {
                visit.leaves = true;
                return visit.wire.give(Task::Leave);
            }
            false => {
                let wall = self.wall + Duration::from_nanos(now.as_nanos());
                let op = match files.whole && self.rng.one_in(3) {
                    true => choose_whole(&mut self.rng, files, wall),
                    false => choose(&mut self.rng, files, &visit.open),
                };
                place_dir(&mut self.rng, mdts(&scenario), op)
            }
        };
        begin_op(visit, op, now, notes);
        if leaves {
            visit.leaves = true;
            visit.wire.give(Task::Leave);
        }
    }

    /// Begins a visit, and the first thing that it does.
    fn begin(
        &mut self,
        program: &mut Program,
        files: FileLoad,
        load: &RpcLoad,
        now: Instant,
        notes: &mut Vec<RpcSeen>,
    ) {
        program.visits += 1;
        self.numbers += 1;
        let (node, life, number, nth) = (self.node.0, self.life, program.number, program.visits);
        let name = format!("{node}-{life}-{number}-{nth}");
        let prefix = prefix_of(program.load);
        let tree = match (files.shared, files.cached) {
            (true, _) => format!("f{}{ALL}", program.load),
            (false, true) => format!("{prefix}{name}{CACHED}"),
            (false, false) => format!("{prefix}{name}"),
        };
        let client = format!("v{}-{name}", program.load);
        let scenario = &self.scenario;
        let nid =
            |node: NodeId| scenario.world.node(node).and_then(|n| n.rails.first()).map(|r| r.nid);
        let mgs = scenario.rpc.targets.iter().find(|t| t.kind == TargetKind::Mgs);
        let nodes = mgs.into_iter().flat_map(|t| [Some(t.on), t.failover]).flatten();
        let mgs: Vec<Nid> = nodes.filter_map(nid).collect();
        let config = VisitConfig {
            mgs,
            fsname: scenario.rpc.fsname().unwrap_or_default().to_owned(),
            client: client.clone(),
            who: Identity { umask: 0o022, ..Identity::default() },
            access: Access::Change,
            seed: self.rng.next_u64(),
        };
        let wire = Channel::new();
        let spread = Spread { stripes: files.stripes, on_mdt: files.on_mdt };
        let place = (tree.clone().into_bytes(), spread);
        // A check looks as another client, which has no cache.
        let caches = files.cached && !program.checks;
        let future = visit(wire.clone(), config, place, caches, self.broken);
        if let Some(limit) = load.timeout {
            self.visits.limit(self.numbers, limit);
        }
        self.ready.insert(self.numbers);
        let mut visit = Visit {
            number: self.numbers,
            wire,
            future: Box::pin(future),
            client,
            tree,
            open: BTreeSet::new(),
            doing: None,
            leaves: false,
        };
        match program.checks {
            true => {
                let client = visit.client.clone();
                notes.push(RpcSeen::File { seen: FileSeen::Checks { client } });
                visit.wire.give(Task::Check(prefix));
            }
            false => begin_op(&mut visit, FileOp::Base, now, notes),
        }
        program.visit = Some(visit);
    }

    /// Takes an event of the request layer; it comes back if it is for another part of the node.
    pub(in crate::rpc) fn event(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        event: Event,
    ) -> Option<Event> {
        self.visits.event(event, ptlrpc, below)
    }
}

/// Whether a client is a visit of a program of this node.
pub(in crate::rpc) fn is_visit_of(client: &str, node: NodeId) -> bool {
    let mut parts = client.strip_prefix('v').unwrap_or_default().split('-').skip(1);
    parts.next().is_some_and(|part| part == node.0.to_string())
}

/// What the name of a directory of all programs of a load ends with.
pub(super) const ALL: &str = "-all";

/// What the name of a directory ends with whose program caches the data of its files.
pub(super) const CACHED: &str = "-cached";

/// What the directories of a load begin with.
pub(super) fn prefix_of(load: usize) -> String {
    format!("f{load}-")
}

fn begin_op(visit: &mut Visit, op: FileOp, now: Instant, notes: &mut Vec<RpcSeen>) {
    let (client, tree) = (visit.client.clone(), visit.tree.clone());
    notes.push(RpcSeen::File { seen: FileSeen::Begun { client, tree, op: op.clone() } });
    visit.doing = Some((op.clone(), now));
    visit.wire.give(Task::Do(op));
}

fn path(rng: &mut Prng, files: FileLoad) -> FilePath {
    let depth = [1, 1, 1, 2, 2, 3][rng.below(6) as usize];
    FilePath((0..depth).map(|_| rng.below(files.names.into()) as u8).collect())
}

/// A place in a file, borders of stripes and the bytes beside them often.
fn place(rng: &mut Prng, files: FileLoad) -> u64 {
    let size = u64::from(files.size);
    match rng.below(4) {
        0 => 0,
        1 => {
            let border = STRIPE * rng.below(size / STRIPE + 1);
            (border + rng.below(3)).saturating_sub(1).min(size)
        }
        _ => rng.below(size + 1),
    }
}

fn data(rng: &mut Prng, files: FileLoad) -> FileBytes {
    let from = place(rng, files);
    let room = u64::from(files.size) - from;
    let len = match rng.below(3) {
        0 => 1 + rng.below(64),
        1 => 1 + rng.below(8192),
        _ => 1 + rng.below(u64::from(files.size)),
    };
    // Where a file ends of which cached data was lost is known when its program has heard of that.
    let at = if rng.one_in(4) && !files.cached { FileAt::End } else { FileAt::Offset(from) };
    FileBytes { at, len: len.min(room.max(1)) as u32, fill: rng.next_u64() }
}

/// What a program does next in a directory that others change too: names alone.
fn choose_shared(rng: &mut Prng, files: FileLoad) -> FileOp {
    let path = |rng: &mut Prng| FilePath(vec![rng.below(files.names.into()) as u8]);
    match rng.below(16) {
        0 | 1 => FileOp::Mkdir(path(rng)),
        2..=4 => FileOp::Create(path(rng)),
        5..=7 => FileOp::Rename(path(rng), path(rng)),
        8 | 9 => FileOp::Link(path(rng), path(rng)),
        10 => FileOp::Symlink(path(rng), path(rng)),
        11 | 12 => FileOp::Remove(path(rng)),
        13 => FileOp::List(FilePath::default()),
        14 => FileOp::Stat(path(rng)),
        _ => FileOp::ReadLink(path(rng)),
    }
}

/// Of several metadata targets each gets new directories.
fn place_dir(rng: &mut Prng, mdts: u32, op: FileOp) -> FileOp {
    match op {
        FileOp::Mkdir(path) if mdts > 1 => FileOp::MkdirOn(path, rng.below(mdts.into()) as u32),
        op => op,
    }
}

/// What a program does next that copies files.
fn choose_whole(rng: &mut Prng, files: FileLoad, wall: Duration) -> FileOp {
    if rng.one_in(6) {
        return FileOp::Settle;
    }
    let most = WHOLE_MAX.min(files.size.into());
    let len = match rng.below(4) {
        0 => most,
        1 => rng.below(64.min(most)),
        _ => rng.below(most + 1),
    };
    let now = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
    // Files are old as a rule, and may be from before 1970, or from machines whose clock is ahead.
    let time = |rng: &mut Prng| match rng.below(6) {
        0 => now,
        1 => now - 30,
        2 => now + 3600,
        3 => -5,
        _ => now - 1 - rng.below(1 << 24) as i64,
    };
    let (path, fill) = (path(rng, files), rng.next_u64());
    let data = FileBytes { at: FileAt::Offset(0), len: len as u32, fill };
    FileOp::Whole { path, data, times: (time(rng), time(rng)) }
}

/// What a program does next.
fn choose(rng: &mut Prng, files: FileLoad, open: &BTreeSet<u8>) -> FileOp {
    if files.shared {
        return choose_shared(rng, files);
    }
    let slot = rng.below(SLOTS) as u8;
    let path = |rng: &mut Prng| path(rng, files);
    if open.contains(&slot) && rng.one_in(3) {
        return match rng.below(6) {
            0..=2 => FileOp::WriteOpen(slot, data(rng, files), rng.one_in(4)),
            3 | 4 => FileOp::ReadOpen(slot),
            _ => FileOp::Close(slot),
        };
    }
    match rng.below(40) {
        0..=3 => FileOp::Mkdir(path(rng)),
        4..=11 => FileOp::Write {
            path: path(rng),
            create: !rng.one_in(4),
            truncate: rng.one_in(4),
            data: data(rng, files),
            fsync: rng.one_in(4),
        },
        12 | 13 => FileOp::Create(path(rng)),
        14..=17 => FileOp::Read(path(rng)),
        18 | 19 => FileOp::Truncate(path(rng), place(rng, files)),
        20..=23 => FileOp::Rename(path(rng), path(rng)),
        24 | 25 => FileOp::Link(path(rng), path(rng)),
        26 => FileOp::Symlink(path(rng), FilePath(vec![rng.below(files.names.into()) as u8])),
        27 => FileOp::ReadLink(path(rng)),
        28..=31 => FileOp::Remove(path(rng)),
        32 => FileOp::List(path(rng)),
        33 => FileOp::List(FilePath::default()),
        34 | 35 => FileOp::Stat(path(rng)),
        36 => FileOp::Chmod(path(rng), [0o600, 0o640, 0o644, 0o700, 0o755][rng.below(5) as usize]),
        37 | 38 if !open.contains(&slot) => FileOp::Open(slot, path(rng), rng.one_in(2)),
        37 | 38 => FileOp::Close(slot),
        _ => FileOp::Sync,
    }
}
