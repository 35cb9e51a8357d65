//! Tests in the client role (6.8): a test is a number of units, each of which asks one destination,
//! waits for the answer, and asks again, as often as the test says.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use lnet_types::{Errno, Instant, ProcessId};
use lnet_wire::selftest::{
    BRW_MAX, BrwRequest, FEATURE_BYTES, LIST_PAGE, PING_MAGIC, PingRequest, Reply, Request,
    TestParams, TestRequest,
};

use crate::calls::{Bulk, CallId, Calls, Ended, Route, wanted};
use crate::console::Owner;
use crate::console::command::STALL;
use crate::io::Io;
use crate::limits::{BACK_OFF, BACK_OFF_MAX, KEPT_BYTES_MAX, TESTS_MAX, UNITS_MAX};
use crate::{Histogram, Wanted};

/// What the units of a test do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Ping,
    Brw { write: bool, len: u32, check: u32 },
}

impl Job {
    /// From the parameters of a request.
    ///
    /// # Errors
    /// EINVAL for what a server would refuse: kernel servers do not survive being asked for it
    /// (6.13), so it is refused here.
    pub(crate) fn new(params: TestParams) -> Result<Self, Errno> {
        let (opc, check, len) = match params {
            TestParams::Ping { .. } => return Ok(Self::Ping),
            TestParams::BrwPages { opc, npages, check } => {
                (opc, check, npages.saturating_mul(LIST_PAGE as u32))
            }
            TestParams::Brw { opc, check, len, .. } => (opc.into(), check.into(), len),
        };
        let known = matches!(opc, BrwRequest::READ | BrwRequest::WRITE)
            && (BrwRequest::CHECK_NONE..=BrwRequest::CHECK_DISCARD).contains(&check);
        if !known || len == 0 || len > BRW_MAX || !len.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        // Servers before 2.17.5x do not know the last one, and it is only a permission.
        let check = if check == BrwRequest::CHECK_DISCARD { BrwRequest::CHECK_NONE } else { check };
        Ok(Self::Brw { write: opc == BrwRequest::WRITE, len, check })
    }

    /// Bytes that one unit keeps in order to check them.
    fn kept(self) -> u64 {
        match self {
            Self::Brw { write: false, len, check } if wanted(check) != Wanted::Nothing => {
                len.into()
            }
            _ => 0,
        }
    }

    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Ping => 0,
            Self::Brw { len, .. } => len as u64,
        }
    }
}

/// Names a unit of this node's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnitId {
    /// Which session: later ones have other numbers.
    pub(crate) session: u64,
    pub(crate) batch: u64,
    pub(crate) test: usize,
    pub(crate) unit: usize,
}

#[derive(Debug)]
struct Unit {
    to: ProcessId,
    /// Iterations to go; `None` is no end.
    left: Option<u32>,
    call: Option<CallId>,
    /// When that call began.
    begun: Instant,
    /// When it may go on after a failure.
    wakes: Option<Instant>,
    /// Failures one after the other.
    failures: u32,
    active: bool,
}

/// A test that this node is a client of.
#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) job: Job,
    repeat: u32,
    stop_on_error: bool,
    features: u32,
    units: Vec<Unit>,
    seq: u32,
    pub(crate) errors: u64,
    pub(crate) took: Histogram,
}

impl Test {
    /// Running units.
    pub(crate) fn active(&self) -> u32 {
        self.units.iter().filter(|u| u.active).count() as u32
    }

    /// Calls in flight for longer than [`STALL`], and the time of the oldest call in flight.
    pub(crate) fn stalled(&self, now: Instant) -> (u32, Duration) {
        let ages =
            self.units.iter().filter(|u| u.call.is_some()).map(|u| now.saturating_since(u.begun));
        ages.fold((0, Duration::ZERO), |(stalled, oldest), age| {
            (stalled + u32::from(age > STALL), oldest.max(age))
        })
    }
}

/// Tests that are run and stopped together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Those in the client role, by their number from 1; in the server role nothing is added.
    pub(crate) tests: Vec<Test>,
    stopping: bool,
}

impl Batch {
    /// Running tests.
    pub(crate) fn active(&self) -> u32 {
        self.tests.iter().filter(|t| t.active() > 0).count() as u32
    }
}

/// What a step of a unit adds to the session's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    No,
    Brw,
    Ping,
}

/// The batches of a session.
#[derive(Debug)]
pub(crate) struct Batches {
    session: u64,
    pub(crate) batches: BTreeMap<u64, Batch>,
    wakes: BTreeSet<(Instant, UnitId)>,
}

impl Batches {
    pub(crate) const fn new(session: u64) -> Self {
        Self { session, batches: BTreeMap::new(), wakes: BTreeSet::new() }
    }

    /// Whether a batch runs.
    pub(crate) fn is_running(&self, batch: u64) -> bool {
        self.batches.get(&batch).is_some_and(|b| b.active() > 0)
    }

    /// Whether one more test fits, with so many units.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn room(&self, batch: u64, max: usize) -> Result<(), Errno> {
        let (known, tests) = match self.batches.get(&batch) {
            Some(b) => (true, b.tests.len()),
            None => (false, 0),
        };
        let full = tests >= TESTS_MAX || (!known && self.batches.len() >= max);
        if full { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Makes a batch if it is not there: all that a test in the server role does.
    pub(crate) fn add_server(&mut self, batch: u64) {
        self.batches.entry(batch).or_default();
    }

    /// Adds a test in the client role.
    ///
    /// # Errors
    /// ENOMEM: more units, or more data to check at a time, than a session may have.
    pub(crate) fn add_client(
        &mut self,
        request: &TestRequest,
        features: u32,
        job: Job,
        dests: &[ProcessId],
    ) -> Result<(), Errno> {
        let per_dest = request.concurrency as usize;
        let more = dests.len().saturating_mul(per_dest);
        let tests = || self.batches.values().flat_map(|b| &b.tests);
        let units: usize = tests().map(|t| t.units.len()).sum();
        let kept: u64 = tests().map(|t| t.job.kept() * t.units.len() as u64).sum();
        if units.saturating_add(more) > UNITS_MAX
            || kept.saturating_add(job.kept().saturating_mul(more as u64)) > KEPT_BYTES_MAX
        {
            return Err(Errno::ENOMEM);
        }
        let unit = |to: &ProcessId| Unit {
            to: *to,
            left: None,
            call: None,
            begun: Instant::ZERO,
            wakes: None,
            failures: 0,
            active: false,
        };
        let test = Test {
            job,
            repeat: request.repeat,
            stop_on_error: request.stop_on_error != 0,
            features: features & FEATURE_BYTES,
            units: dests.iter().flat_map(|to| (0..per_dest).map(move |_| unit(to))).collect(),
            seq: 0,
            errors: 0,
            took: Histogram::default(),
        };
        self.batches.entry(request.batch_id).or_default().tests.push(test);
        Ok(())
    }

    /// Runs a batch from the beginning; nothing happens if it runs.
    pub(crate) fn run(&mut self, calls: &mut Calls<Owner>, io: &mut Io, clock: Clock, batch: u64) {
        if self.is_running(batch) {
            return;
        }
        let Some(b) = self.batches.get_mut(&batch) else { return };
        b.stopping = false;
        let mut all = Vec::new();
        for (test, t) in b.tests.iter_mut().enumerate() {
            let endless = t.repeat == TestRequest::ENDLESS;
            for (unit, u) in t.units.iter_mut().enumerate() {
                u.left = (!endless).then_some(t.repeat);
                (u.active, u.failures) = (true, 0);
                all.push(UnitId { session: self.session, batch, test, unit });
            }
        }
        for id in all {
            self.step(calls, io, clock, id);
        }
    }

    /// Stops a batch; with `force` without waiting for what is in flight.
    pub(crate) fn stop(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        now: Instant,
        batch: u64,
        force: bool,
    ) {
        let Some(b) = self.batches.get_mut(&batch) else { return };
        b.stopping = true;
        for (test, t) in b.tests.iter_mut().enumerate() {
            for (unit, u) in t.units.iter_mut().enumerate() {
                if let Some(at) = u.wakes.take() {
                    let id = UnitId { session: self.session, batch, test, unit };
                    self.wakes.remove(&(at, id));
                }
                if force && let Some(call) = u.call.take() {
                    calls.abort(io, now, call);
                }
                u.active &= u.call.is_some();
            }
        }
    }

    /// Stops everything at once.
    pub(crate) fn abort(&mut self, calls: &mut Calls<Owner>, io: &mut Io, now: Instant) {
        let all: Vec<u64> = self.batches.keys().copied().collect();
        for batch in all {
            self.stop(calls, io, now, batch, true);
        }
    }

    /// When a unit goes on that waits after a failure.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Lets units go on whose wait is over.
    pub(crate) fn wake(&mut self, calls: &mut Calls<Owner>, io: &mut Io, clock: Clock) {
        while let Some(&(at, id)) = self.wakes.first()
            && at <= clock.now
        {
            self.wakes.remove(&(at, id));
            if let Some(unit) = self.unit(id) {
                unit.wakes = None;
            }
            self.step(calls, io, clock, id);
        }
    }

    fn unit(&mut self, id: UnitId) -> Option<&mut Unit> {
        let test = self.batches.get_mut(&id.batch)?.tests.get_mut(id.test)?;
        test.units.get_mut(id.unit)
    }

    /// A unit's call has ended: counts it and goes on.
    pub(crate) fn ended(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        clock: Clock,
        id: UnitId,
        end: &Ended<Owner>,
    ) -> Failed {
        let Some(test) = self.batches.get_mut(&id.batch).and_then(|b| b.tests.get_mut(id.test))
        else {
            return Failed::No;
        };
        let Some(unit) = test.units.get_mut(id.unit) else { return Failed::No };
        unit.call = None;
        let good = end.data_right
            && match &end.result {
                Ok(reply) => match reply.body {
                    Reply::Ping(ping) => ping.status == 0 && ping.magic == PING_MAGIC,
                    ref body => body.status() == 0,
                },
                Err(_) => false,
            };
        if good {
            test.took.add(end.took);
            unit.failures = 0;
        } else {
            test.errors += 1;
            unit.failures = unit.failures.saturating_add(1);
            if test.stop_on_error {
                unit.left = Some(0);
            }
        }
        let failed = match test.job {
            _ if good => Failed::No,
            Job::Ping => Failed::Ping,
            Job::Brw { .. } => Failed::Brw,
        };
        // One that fails at once, for want of a route say, must not spin.
        if !good && unit.left != Some(0) {
            let at = clock.now + back_off(unit.failures);
            unit.wakes = Some(at);
            self.wakes.insert((at, id));
            if !self.batches.get(&id.batch).is_some_and(|b| b.stopping) {
                return failed;
            }
            self.wakes.remove(&(at, id));
        }
        self.step(calls, io, clock, id);
        failed
    }

    /// The next iteration of a unit, or its end.
    fn step(&mut self, calls: &mut Calls<Owner>, io: &mut Io, clock: Clock, id: UnitId) {
        let Some(batch) = self.batches.get_mut(&id.batch) else { return };
        let stopping = batch.stopping;
        let Some(test) = batch.tests.get_mut(id.test) else { return };
        let Some(unit) = test.units.get_mut(id.unit) else { return };
        if stopping || unit.left == Some(0) || !unit.active {
            (unit.active, unit.wakes) = (false, None);
            return;
        }
        if let Some(left) = &mut unit.left {
            *left -= 1;
        }
        let timeout = io.patience.unwrap_or(io.settings.rpc_timeout);
        let features = test.features;
        let route = Route { to: unit.to, features, timeout };
        let owner = Owner::Unit(id);
        unit.begun = clock.now;
        unit.call = Some(match test.job {
            Job::Ping => {
                let seq = test.seq;
                test.seq = test.seq.wrapping_add(1);
                let wall = clock.wall();
                calls.start(io, clock.now, route, owner, Bulk::None, |reply_id, _| {
                    Request::Ping(PingRequest {
                        reply_id,
                        magic: PING_MAGIC,
                        seq,
                        time_sec: wall.as_secs(),
                        time_nsec: wall.subsec_nanos().into(),
                    })
                })
            }
            Job::Brw { write, len, check } => {
                let bulk =
                    if write { Bulk::Give(io.pattern(len)) } else { Bulk::Read { len, check } };
                let rw = if write { BrwRequest::WRITE } else { BrwRequest::READ };
                calls.start(io, clock.now, route, owner, bulk, |reply_id, bulk_id| {
                    Request::Brw(BrwRequest { reply_id, bulk_id, rw, len, check })
                })
            }
        });
    }
}

fn back_off(failures: u32) -> Duration {
    BACK_OFF.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACK_OFF_MAX)
}

/// The time, and what it is by the calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    /// Since 1970, at instant zero.
    pub(crate) epoch: Duration,
}

impl Clock {
    fn wall(&self) -> Duration {
        self.epoch + Duration::from_nanos(self.now.as_nanos())
    }
}
