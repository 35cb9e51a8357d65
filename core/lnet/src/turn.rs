//! The turn of the node: what a call has set in motion, and what has become due, is worked off here before
//! control returns; then events and outputs are polled.
//!
//! This is the thin layer that knows all parts, together with `entry/`, which every call from outside goes
//! through. All other files call each other in one direction only, which `testing/house` checks.

use std::collections::VecDeque;

use lnet_types::Instant;

use crate::outbox::Work;
use crate::port::PortId;
use crate::record::Input;
use crate::timers::Timer;
use crate::{Event, Node, Output};

/// Far more steps than one call can cause; reaching it is a bug of the work list.
const WORK_PER_CALL_MAX: usize = 1 << 24;

impl Node {
    /// Works off what the last call set in motion.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant) {
        if self.outbox.planned() > 0 {
            self.work_off(now);
        }
        self.check_settled();
    }

    fn work_off(&mut self, now: Instant) {
        let mut budget = WORK_PER_CALL_MAX;
        while let Some(work) = self.outbox.next_work() {
            match work {
                Work::Depart(id) => self.depart(now, id),
                Work::Resend(id) => self.resend(now, id),
                Work::Resume(id) => self.resume(now, id),
                Work::Finish(id, outcome) => self.finish(now, id, outcome),
                Work::Discover(id) => self.discovery_step(now, id),
                Work::RehomeRoutes => self.rehome_routes(now),
                Work::Leave(port) => self.leave_port(now, port),
            }
            budget -= 1;
            assert!(budget > 0, "the node's work list does not come to an end");
        }
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.note(|| Input::HandleTimeout { now });
        let now = self.clock(now);
        while let Some(timer) = self.timers.pop(now) {
            tracing::trace!(timer = timer.name(), "due");
            match timer {
                Timer::Announce => self.announce_links(now),
                Timer::AnnounceUp => self.announce_up(now),
                Timer::CutOff => self.judge_cut_off(now),
                Timer::Remind(nth) => self.remind(now, nth),
                Timer::Op(op) => self.expire_op(now, op),
                Timer::Delay(token) => self.release(now, token),
                Timer::Router => self.router_due(now),
                Timer::Check(peer) => self.check_gateway(now, peer),
                Timer::Response(md) => self.response_overdue(now, md),
                Timer::Waiting(msg) => self.expire_waiting(msg),
                Timer::Backoff(msg) => self.end_backoff(msg),
                Timer::Retransmit => self.repeat_overdue(now),
                Timer::RecoverNi(ni) => self.recover(now, PortId::Local(ni)),
                Timer::RecoverPeer(ni) => self.recover(now, PortId::Peer(ni)),
                Timer::Merge(peer) => self.outbox.plan(Work::Discover(peer)),
                Timer::Discover(peer) => self.retry_query(peer),
            }
        }
        self.plan_scan(now);
        self.settle(now);
    }

    /// Whether something waits to be polled: an event, an output, a report, a lost connection or a notice.
    /// A host that spins asks this before all of them.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.outbox.has_news() || self.is_page_full()
    }

    /// Whether [`Self::take_outputs`] has something to do.
    #[inline]
    pub fn has_outputs(&self) -> bool {
        self.outbox.has_outputs() || self.is_page_full()
    }

    /// Whether an event, an output, a report or a lost connection waits to be polled: for a host that
    /// looks at no notices.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.outbox.has_work()
    }

    /// The next event for a user.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.outbox.next_event();
        self.gave_events(&event);
        event
    }

    /// The user word of the next descriptor that is gone and was [`QUIET`](crate::MdOptions::QUIET). It is
    /// no news ([`Self::has_news`]): who has such descriptors asks when it suits.
    #[inline]
    pub fn poll_spent(&mut self) -> Option<u64> {
        self.outbox.next_spent()
    }

    /// All pending events at once: they are in `into` then, which gives its memory. False if there
    /// are none.
    #[inline]
    pub fn take_events(&mut self, into: &mut VecDeque<Event>) -> bool {
        if !into.is_empty() {
            into.clear();
        }
        if !self.outbox.has_events() {
            return false;
        }
        self.outbox.swap_events(into);
        self.gave_events(&*into);
        !into.is_empty()
    }

    /// All that there is to be carried out, as [`Self::take_events`] does it.
    #[inline]
    pub fn take_outputs(&mut self, into: &mut VecDeque<Output>) -> bool {
        self.turn_page();
        if !into.is_empty() {
            into.clear();
        }
        if !self.outbox.has_outputs() {
            return false;
        }
        self.outbox.swap_outputs(into);
        self.gave_outputs(&*into);
        !into.is_empty()
    }

    /// The next thing for the shell to carry out.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.turn_page();
        let output = self.outbox.next_output();
        self.gave_outputs(&output);
        output
    }

    /// When [`Node::handle_timeout`] is next due.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_timer().map(|(at, _)| at)
    }

    /// When [`Node::handle_timeout`] is next due, and why.
    #[inline]
    pub fn next_timer(&self) -> Option<(Instant, Timer)> {
        self.timers.next()
    }
}
