//! What a call leaves behind: work to be done before control returns, and what waits to be polled: orders
//! for drivers, events, reports, connections that were lost, and notices.

use std::collections::{BTreeSet, VecDeque};

use lnet_types::{Errno, Fault, MsgId, NiId, Nid, PeerId};

use crate::notice::{Notice, Notices};
use crate::port::PortId;
use crate::portal::owner::{Internal, Owner};
use crate::{Event, Output, Report};

/// One thing to be done before control returns to the caller.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Work {
    /// Find a path for a message.
    Depart(MsgId),
    /// The same after a failure.
    Resend(MsgId),
    /// A queued message's turn has come.
    Resume(MsgId),
    /// A message has failed before a driver had it.
    Finish(MsgId, Result<(), Fault>),
    /// A peer's discovery may go on.
    Discover(PeerId),
    /// Gateways may have become other peers.
    RehomeRoutes,
    /// An interface is down.
    Leave(PortId),
}

/// The queues that a call fills.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outbox {
    work: VecDeque<Work>,
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
    /// Words of quiet descriptors that are gone. A recording has no use for them.
    #[serde(skip)]
    spent: VecDeque<u64>,
    reports: VecDeque<Report>,
    /// Peers, by primary NID. At most one entry for each, for hosts that never ask.
    #[serde(skip)]
    lost_connections: BTreeSet<Nid>,
    notices: Notices,
}

impl Outbox {
    /// Plans work for before control returns.
    pub(crate) fn plan(&mut self, work: Work) {
        self.work.push_back(work);
    }

    /// The next work, in the order in which it was planned.
    pub(crate) fn next_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// How much work is planned: none between calls of the node.
    pub(crate) fn planned(&self) -> usize {
        self.work.len()
    }

    /// Whether something waits to be polled.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.has_work() || !self.notices.is_empty()
    }

    /// Whether something waits to be polled that its host has to act upon.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.outputs.is_empty()
            && self.events.is_empty()
            && self.reports.is_empty()
            && self.lost_connections.is_empty())
    }

    /// Whether an order waits to be polled.
    #[inline]
    pub(crate) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Whether an event waits to be polled.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Gives an order to a driver.
    #[inline]
    pub(crate) fn order(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Takes back what an interface that is gone was to send.
    pub(crate) fn take_back(&mut self, ni: NiId) {
        self.outputs.retain(|out| !matches!(out, Output::Send(t) if t.ni == ni));
    }

    /// An operation of a descriptor has ended, the `last` one, or another: its user gets the event, which
    /// is made for one that does, where it stays: it is large. `Some`: the node itself gets it.
    #[inline]
    pub(crate) fn report_end(
        &mut self,
        owner: Owner,
        status: Result<(), Errno>,
        last: bool,
        event: impl FnOnce() -> Event,
    ) -> Option<Internal> {
        match owner {
            Owner::Quiet(user) if status.is_ok() => {
                if last {
                    self.spent.push_back(user);
                }
            }
            Owner::User(_) | Owner::Quiet(_) => self.events.push_back(event()),
            Owner::Internal(what) => return Some(what),
            Owner::Silent => {}
        }
        None
    }

    /// Reports the end of a ping or discovery.
    pub(crate) fn report(&mut self, report: Report) {
        self.reports.push_back(report);
    }

    /// Reports that a connection to this peer is lost.
    pub(crate) fn lost_connection(&mut self, primary: Nid) {
        self.lost_connections.insert(primary);
    }

    /// Notes something for the log.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// The next order for a driver.
    #[inline]
    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The next event.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The word of the next quiet descriptor that is gone.
    #[inline]
    pub(crate) fn next_spent(&mut self) -> Option<u64> {
        self.spent.pop_front()
    }

    /// The next report.
    #[inline]
    pub(crate) fn next_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// The next peer to which a connection is lost.
    #[inline]
    pub(crate) fn next_lost_connection(&mut self) -> Option<Nid> {
        self.lost_connections.pop_first()
    }

    /// The next notice.
    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    /// Exchanges the orders for an empty queue, which gives its memory.
    #[inline]
    pub(crate) fn swap_outputs(&mut self, into: &mut VecDeque<Output>) {
        *into = core::mem::replace(&mut self.outputs, core::mem::take(into));
    }

    /// Exchanges the events for an empty queue, which gives its memory.
    #[inline]
    pub(crate) fn swap_events(&mut self, into: &mut VecDeque<Event>) {
        *into = core::mem::replace(&mut self.events, core::mem::take(into));
    }
}
