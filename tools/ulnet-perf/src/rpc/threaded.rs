//! Calls from a program's thread, through a node on its own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use lnet_rt::{Buffer, NodeHandle, Spin};
use lnet_types::{Net, Nid};
use lustre_rt::{Buffers, Call, Direction, Done, Import, RpcNode};

use super::super::node;
use super::super::options::{Common, addresses};
use super::super::report::histogram;
use super::{Caller, Job, Outcome, What, import};

pub(super) struct Threaded {
    node: NodeHandle,
    import: Import,
}

impl Drop for Threaded {
    /// The addresses are free afterwards.
    fn drop(&mut self) {
        self.node.stop(Duration::ZERO).blocking();
    }
}

impl Threaded {
    pub(super) fn new(common: &Common, server: Nid) -> anyhow::Result<Self> {
        let stack = node::stack(common, Net::TCP, &addresses(&[], common.rails, 129, 0))?;
        let node = stack.spawn("lnet", Spin::default())?;
        let import = RpcNode::start(&node, Default::default())?.import(import(server))?;
        Ok(Self { node, import })
    }

    fn begin(&self, job: Job, spare: &mut Vec<Buffer>) -> anyhow::Result<Done> {
        let mut call = Call::new(job.what.opcode(), Buffers::new());
        if job.size == 0 {
            return Ok(self.import.call(call)?);
        }
        call.buffers = Buffers::new().layout(&u64::from(job.size));
        let direction = if job.what == What::Read { Direction::Read } else { Direction::Write };
        let buffer = spare.pop().context("no buffer is free")?;
        Ok(self.import.call_with(call, direction, buffer)?)
    }
}

impl Caller for Threaded {
    fn run(&mut self, job: Job) -> anyhow::Result<Outcome> {
        let buffers = if job.size == 0 { 0 } else { job.window };
        let mut spare: Vec<Buffer> =
            (0..buffers).map(|_| Buffer::zeroed(job.size as usize)).collect();
        let mut under_way = VecDeque::with_capacity(job.window.into());
        let mut round_trips = histogram()?;
        let begin = Instant::now();
        let (mut last, mut calls) = (begin, 0);
        loop {
            let issuing = last - begin < job.limit.time && calls < job.limit.count;
            while issuing && under_way.len() < job.window.into() {
                under_way.push_back(self.begin(job, &mut spare)?);
            }
            let Some(oldest) = under_way.pop_front() else { break };
            let (result, buffer) = oldest.blocking();
            result?;
            spare.extend(buffer);
            calls += 1;
            let now = Instant::now();
            if job.window == 1 {
                round_trips.saturating_record((now - last).as_nanos() as u64);
            }
            last = now;
        }
        let round_trips = (job.window == 1).then_some(round_trips);
        Ok(Outcome { calls, elapsed: last - begin, round_trips })
    }
}
