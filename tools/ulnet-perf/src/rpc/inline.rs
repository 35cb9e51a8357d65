//! Calls from a stack that the measuring thread turns itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report};
use lnet_rt::{Buffer, Stack, Wait};
use lnet_types::{IoVec, Net, Nid, iovec_slice};
use lustre_rt::{Buffers, Call, CallError, Direction};
use ptlrpc::{Bulk, Config, Event, ImportId, Ptlrpc};

use super::super::node;
use super::super::options::{Common, addresses};
use super::super::report::histogram;
use super::{BULK_MAX, Caller, Job, Outcome, What, import};

/// Nothing happening for so long is an error.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Inline {
    stack: Stack,
    upper: UpperId,
    import: ImportId,
    memory: IoVec,
    wait: Wait,
}

/// The request layer, and how many calls have ended.
struct Calls {
    ptlrpc: Ptlrpc,
    ended: u64,
    failed: Option<CallError>,
}

impl Calls {
    fn drain(&mut self) {
        while let Some(event) = self.ptlrpc.poll_event() {
            if let Event::Ended { result, .. } = event {
                self.ended += 1;
                if let Err(e) = result {
                    self.failed.get_or_insert(e);
                }
            }
        }
    }
}

impl Upper for Calls {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain();
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.drain();
    }

    fn poll_timeout(&self) -> Option<lnet_types::Instant> {
        self.ptlrpc.poll_timeout()
    }
}

impl Inline {
    pub(super) fn new(common: &Common, server: Nid) -> anyhow::Result<Self> {
        let mut stack = node::stack(common, Net::TCP, &addresses(&[], common.rails, 129, 0))?;
        let lent = stack.lend(Buffer::zeroed(BULK_MAX as usize)).map_err(|e| e.error)?;
        let memory = stack.region(lent);
        let tunables = ptlrpc::Tunables::default();
        let ptlrpc =
            Ptlrpc::new(Config { seed: 2, wall: Duration::from_secs(1_700_000_000), tunables });
        let calls = Calls { ptlrpc, ended: 0, failed: None };
        let upper = stack.add_upper(Box::new(calls)).context("no upper")?;
        let import = stack.with_upper(upper, |calls: &mut Calls, below| {
            calls.ptlrpc.rpc(below).import(import(server))
        });
        let import = import.context("no upper")??;
        Ok(Self { stack, upper, import, memory, wait: node::wait() })
    }

    fn begin(&mut self, call: &Call) -> anyhow::Result<()> {
        let import = self.import;
        let begun = self.stack.with_upper(self.upper, |calls: &mut Calls, below| {
            let begun = calls.ptlrpc.rpc(below).call(import, call.clone());
            calls.drain();
            begun
        });
        begun.context("no upper")??;
        Ok(())
    }

    /// A turn, and how many calls have ended since the beginning.
    fn turn(&mut self) -> anyhow::Result<u64> {
        self.stack.turn(self.wait);
        self.ended()
    }

    fn ended(&mut self) -> anyhow::Result<u64> {
        let state = self
            .stack
            .with_upper(self.upper, |calls: &mut Calls, _| (calls.ended, calls.failed.take()));
        let (ended, failed) = state.context("no upper")?;
        match failed {
            None => Ok(ended),
            Some(e) => Err(e.into()),
        }
    }
}

impl Caller for Inline {
    fn run(&mut self, job: Job) -> anyhow::Result<Outcome> {
        let mut call = Call::new(job.what.opcode(), Buffers::new());
        if job.size > 0 {
            call.buffers = Buffers::new().layout(&u64::from(job.size));
            let memory = iovec_slice(&self.memory, 0, job.size.into());
            let direction = if job.what == What::Read { Direction::Read } else { Direction::Write };
            call.bulk = Some(Bulk { direction, memory });
        }
        let mut round_trips = histogram()?;
        let before = self.ended()?;
        let begin = Instant::now();
        let (mut last, mut issued, mut done) = (begin, 0u64, 0u64);
        loop {
            let issuing = last - begin < job.limit.time && issued < job.limit.count;
            if !issuing && done == issued {
                break;
            }
            while issuing && issued - done < job.window.into() {
                self.begin(&call)?;
                issued += 1;
            }
            let so_far = done;
            let mut looks = 0u32;
            while done == so_far {
                done = self.turn()? - before;
                looks += 1;
                if looks.is_multiple_of(1 << 16) {
                    ensure!(last.elapsed() < PATIENCE, "no call has ended for {PATIENCE:?}");
                }
            }
            let now = Instant::now();
            if job.window == 1 {
                round_trips.saturating_record((now - last).as_nanos() as u64);
            }
            last = now;
        }
        let round_trips = (job.window == 1).then_some(round_trips);
        Ok(Outcome { calls: done, elapsed: last - begin, round_trips })
    }
}
