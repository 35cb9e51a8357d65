//! The turn: what a stack does each time that its thread comes by, and the loop of a thread that
//! does nothing else.
//!
//! ```text
//!  settle      what the caller has asked for since the last turn goes out
//!  sleep       until something is ready, a time-out is due, or a command comes: as `Wait` allows
//!  drivers     do the I/O that is ready; facts into the node
//!  settle      events up, messages out, flush; again until there is nothing left
//!  commands    from other threads
//!  time-outs   of node, drivers and uppers
//!  settle      if one of these has set something in motion
//! ```
//!
//! The clock is read once, after the sleep. Order is fixed; nothing here decides anything about LNet.

use core::time::Duration;
use std::io;

use lnet::upper::Uppers;
use lnet::{NI_STOPPED, Output, Ready};
use lnet_types::{Instant, NiId};
use mio::Token;

use crate::owners::Owner;
use crate::stack::{Stack, TOKEN_BITS, WAKE};

/// How long a turn may wait for something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    None,
    /// Not at all, and there will be another turn at once: drivers also look at connections that
    /// were busy lately without asking the kernel which ones are ready, which saves a system call
    /// on the way of a message. The poller is still asked every [`LOOKS_PER_POLL`] turns. On a single
    /// processor it costs milliseconds for each message: see [`Wait::eager`].
    Spin,
    /// At most so long.
    Until(Duration),
    /// Until something happens.
    Block,
}

impl Wait {
    /// For a caller that expects something at once: [`Wait::Spin`], and on a single processor, where looking
    /// keeps the one who has work to bring from running, a sleep of at most `longest`.
    pub fn eager(longest: Duration) -> Self {
        if is_alone() { Self::Until(longest) } else { Self::Spin }
    }
}

/// Whether this process has one processor.
fn is_alone() -> bool {
    std::thread::available_parallelism().is_ok_and(|n| n.get() == 1)
}

/// With [`Wait::Spin`], the poller is asked in one turn of so many.
pub const LOOKS_PER_POLL: u32 = 32;

/// With [`Wait::Spin`], the clock is held against what is due in one turn of so many.
const LOOKS_PER_TIMEOUT: u32 = 8;

/// Commands executed in one turn, so that a flood of them can't keep the network waiting.
const COMMANDS_PER_TURN: usize = 1024;

/// Rounds of events and messages in one turn: a handler that answers itself over the loopback
/// interface would otherwise never let the turn end.
const ROUNDS_PER_TURN: usize = 64;

/// On the way down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    deadline: Instant,
    stopped: bool,
}

/// Places for outputs and for events that are exchanged with the node from the beginning, so that a burst a
/// little larger than those before it needs no memory.
const TAKEN: usize = 32;

impl Stack {
    /// One turn. Returns whether there was anything to do; events for the caller are then waiting in
    /// [`Stack::poll_event`]. Called from inside of a turn (by a handler) it does nothing.
    pub fn turn(&mut self, wait: Wait) -> bool {
        if self.in_turn {
            return false;
        }
        let _here = self.mailbox.enter();
        self.stats.turns += 1;
        let mut busy = false;
        // What the caller has asked for goes out at once, and its time is the time of the turn,
        // unless the thread sleeps in between.
        let asked = self.unfinished;
        if asked {
            self.now = self.clock.now();
            self.in_turn = true;
            busy = self.settle();
            self.in_turn = false;
        }
        let spin = wait == Wait::Spin;
        if core::mem::replace(&mut self.spun, spin) && !spin {
            busy |= self.stop_spinning();
        }
        let polls = !spin || self.looks == 0;
        if polls {
            busy |= self.look(wait, busy);
            self.looks = LOOKS_PER_POLL;
        }
        self.looks -= 1;

        if polls || !asked {
            self.now = self.clock.now();
        }
        self.in_turn = true;
        // A lost link comes first, and is announced before anything is read: megabytes may be ready,
        // and what peers write meanwhile still goes to that interface.
        if self.monitor_ready {
            self.watch_links();
            self.settle();
            busy = true;
        }
        self.drive(spin, spin);
        // What came in is answered before anything else is looked at.
        busy |= self.settle();
        if !polls && !self.events.is_empty() {
            // A caller that spins has its news at once; the rest is for a turn without any.
            self.in_turn = false;
            return true;
        }
        let mut moved = self.obey();
        if polls || self.looks.is_multiple_of(LOOKS_PER_TIMEOUT) {
            moved |= self.expire();
        }
        if moved || self.unfinished {
            self.settle();
            busy = true;
        }
        self.progress_stop();
        self.in_turn = false;
        busy
    }

    /// Whether the node has stopped for good.
    pub fn is_stopped(&self) -> bool {
        self.stopping.is_some_and(|s| s.stopped)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Asks the poller, sleeping as `wait` allows, and sorts what is ready by driver.
    fn look(&mut self, wait: Wait, busy: bool) -> bool {
        let limit = match wait {
            Wait::None | Wait::Spin => Some(Duration::ZERO),
            Wait::Until(limit) => Some(limit),
            Wait::Block => None,
        };
        let nothing_to_wait_for = self.unfinished
            || !self.commands.is_empty()
            || self.is_stopped()
            || !self.events.is_empty()
            || !self.reports.is_empty();
        let mut timeout = if nothing_to_wait_for { Some(Duration::ZERO) } else { limit };
        if timeout != Some(Duration::ZERO) {
            // `settle` may have taken a while: only a fresh clock tells how long to sleep. It is
            // read again after the sleep, where time has passed.
            let due = self.poll_timeout().map(|t| t.saturating_since(self.clock.now()));
            timeout = match (timeout, due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let sleeps = timeout != Some(Duration::ZERO);
        if sleeps && !self.mailbox.fall_asleep() {
            timeout = Some(Duration::ZERO);
        }
        self.stats.polls += 1;
        self.stats.sleeps += u64::from(sleeps);
        let polled = self.poll.poll(&mut self.polled, timeout);
        if sleeps {
            self.mailbox.wake_up();
        }
        match polled {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return busy,
            // The descriptor is this struct's own and valid: nothing else is left to go wrong.
            Err(e) => panic!("epoll_wait: {e}"),
        }
        let mut any = false;
        for event in &self.polled {
            let Token(token) = event.token();
            match event.token() {
                WAKE => continue,
                Token(own) if own < 1 << TOKEN_BITS => {
                    self.monitor_ready = true;
                    continue;
                }
                Token(_) => any = true,
            }
            let ready = Ready {
                token,
                readable: event.is_readable() || event.is_read_closed() || event.is_error(),
                writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            };
            match (token >> TOKEN_BITS).checked_sub(1).and_then(|n| self.drivers.get_mut(n)) {
                Some(slot) => slot.ready.push(ready),
                None => tracing::error!("readiness of an unknown source {token:#x}"),
            }
        }
        any
    }

    /// The last turn of a caller that spins no more, and may sleep in the next one: drivers arm what
    /// wakes it, and find what has come before that.
    fn stop_spinning(&mut self) -> bool {
        self.now = self.clock.now();
        self.in_turn = true;
        self.drive(false, true);
        let busy = self.settle();
        self.in_turn = false;
        busy
    }

    /// Turns the drivers that have news, or `all`.
    fn drive(&mut self, spin: bool, all: bool) {
        for slot in &mut self.drivers {
            if all || !slot.ready.is_empty() {
                slot.driver.get_mut().turn(
                    self.now,
                    &slot.ready,
                    spin,
                    &mut self.node,
                    &mut self.mem,
                );
                slot.ready.clear();
            }
        }
    }

    fn obey(&mut self) -> bool {
        if self.commands.is_empty() {
            self.mailbox.take(&mut self.commands);
        }
        if self.commands.is_empty() {
            return false;
        }
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = self.commands.pop_front() else { break };
            self.execute(command);
        }
        if self.commands.is_empty() {
            // What a flood has made of it is given back.
            self.commands.shrink_to(2 * COMMANDS_PER_TURN);
        }
        true
    }

    fn expire(&mut self) -> bool {
        let due = |t: Option<Instant>| t.is_some_and(|t| t <= self.now);
        let mut any = false;
        if due(self.node.poll_timeout()) {
            self.node.handle_timeout(self.now);
            any = true;
        }
        for slot in &mut self.drivers {
            if slot.driver.get().poll_timeout().is_some_and(|t| t <= self.now) {
                slot.driver.get_mut().handle_timeout(self.now, &mut self.node, &mut self.mem);
                any = true;
            }
        }
        any |= self.uppers.handle_timeout(self.now, &mut self.node, &mut self.mem);
        self.follow_doubts();
        any
    }

    /// Events up and messages out, until there are no more of either.
    fn settle(&mut self) -> bool {
        let mut any = false;
        for _ in 0..ROUNDS_PER_TURN {
            let more = self.node.has_news();
            if more {
                self.deliver_events();
                self.carry_outputs();
            }
            for slot in &mut self.drivers {
                slot.driver.get_mut().flush(self.now, &mut self.node, &mut self.mem);
            }
            if more {
                // No message waits for these.
                self.deliver_rest();
            }
            any |= more;
            if !self.node.has_news() {
                self.unfinished = false;
                return any;
            }
        }
        self.unfinished = true;
        any
    }

    /// Gives to their recipients what waits in the node beside events and outputs.
    fn deliver_rest(&mut self) {
        while let Some(report) = self.node.poll_report() {
            self.deliver_report(report);
        }
        while let Some(peer) = self.node.poll_lost_connection() {
            self.uppers.connection_lost(self.now, peer, &mut self.node, &mut self.mem);
        }
        while let Some(notice) = self.node.poll_notice() {
            self.log.print(self.now, &notice);
        }
        self.log.turn(self.now);
    }

    /// Gives the node's messages to the drivers, which write it with their next `flush`. Done
    /// for each operation as it begins: of a burst of them each is still in the cache then.
    pub(crate) fn carry_outputs(&mut self) {
        if !self.node.has_outputs() {
            return;
        }
        let mut outputs = core::mem::take(&mut self.taken_outputs);
        outputs.reserve(TAKEN);
        while self.node.take_outputs(&mut outputs) {
            outputs.iter().for_each(|output| self.carry_out(output));
        }
        self.taken_outputs = outputs;
    }

    /// Gives the node's events to their owners.
    fn deliver_events(&mut self) {
        let mut events = core::mem::take(&mut self.taken_events);
        events.reserve(TAKEN);
        while self.node.take_events(&mut events) {
            events.iter_mut().for_each(|event| self.deliver_event(event));
        }
        self.taken_events = events;
    }

    fn carry_out(&mut self, output: &Output) {
        match *output {
            Output::Send(ref transmit) => {
                self.stats.sends += 1;
                let msg = transmit.msg;
                let sent = match self.driver_of(transmit.ni) {
                    Some(n) => self.drivers[n].driver.get_mut().send(self.now, transmit, &self.mem),
                    None => Err(NI_STOPPED),
                };
                if let Err(fault) = sent {
                    self.stats.refused += 1;
                    self.node.tx_refused(self.now, msg, fault);
                }
            }
            Output::Resume { ni, rx, ref verdict } => {
                // If the driver was stopped on this interface, it has said `rx_gone` for this one.
                if let Some(n) = self.driver_of(ni) {
                    let driver = self.drivers[n].driver.get_mut();
                    driver.resume(self.now, rx, verdict.clone(), &mut self.node, &mut self.mem);
                }
            }
            Output::Recall { ni, to, msg } => {
                let driver = self.driver_of(ni).map(|n| self.drivers[n].driver.get_mut());
                if driver.is_some_and(|driver| driver.recall(ni, to, msg)) {
                    self.stats.recalled += 1;
                    self.node.tx_recalled(self.now, msg);
                } else {
                    self.node.tx_begun(self.now, msg);
                }
            }
            Output::Reclaim { ni, to } => {
                let driver = self.driver_of(ni).map(|n| self.drivers[n].driver.get_mut());
                let messages = driver.map(|driver| driver.reclaim(ni, to)).unwrap_or_default();
                if !messages.is_empty() {
                    self.node.tx_in_doubt(self.now, messages);
                }
            }
            Output::Abandon { ni, rx, msg } => {
                if let Some(n) = self.driver_of(ni) {
                    self.drivers[n].driver.get_mut().abandon(rx, msg);
                }
            }
            Output::Withdraw { ni, msg } => {
                if let Some(n) = self.driver_of(ni) {
                    self.drivers[n].driver.get_mut().withdraw(ni, msg);
                }
            }
            Output::Release(region) => drop(self.mem.remove(region)),
        }
    }

    fn driver_of(&self, ni: NiId) -> Option<usize> {
        self.ni_driver.get(ni).map(|id| usize::from(id.0))
    }

    /// When a turn is wanted at the latest.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let drivers = self.drivers.iter().filter_map(|slot| slot.driver.get().poll_timeout());
        let stop = self.stopping.filter(|s| !s.stopped).map(|s| s.deadline);
        let above = self.uppers.poll_timeout();
        let detours = self.next_look_for_detours();
        drivers.chain(self.node.poll_timeout()).chain(above).chain(stop).chain(detours).min()
    }

    pub(crate) fn begin_stop(&mut self, grace: Duration) {
        let deadline = self.tick() + grace;
        if let Some(stopping) = &mut self.stopping {
            stopping.deadline = stopping.deadline.min(deadline);
            return;
        }
        self.stopping = Some(Stopping { deadline, stopped: false });
        self.unfinished = true;
        for key in self.owners.keys() {
            if !matches!(self.owners.get_mut(key), Some(Owner::Operation(_))) {
                self.release(key);
            }
        }
        self.uppers.close(self.now, &mut self.node);
    }

    /// Goes on with stopping: waits for operations, then takes the interfaces down.
    fn progress_stop(&mut self) {
        let Some(Stopping { deadline, stopped: false }) = self.stopping else { return };
        self.uppers.reap(&mut self.node, &mut self.mem);
        let waits =
            self.owners.len() > 0 || !self.waiters.is_empty() || self.uppers.descriptors() > 0;
        if waits && self.now < deadline {
            return;
        }
        let nis: Vec<NiId> = self.ni_driver.keys().collect();
        for ni in nis {
            self.ni_stop(ni);
        }
        self.node.shutdown(self.now);
        self.settle();
        // Each upper has seen the end of what it had.
        self.uppers = Uppers::default();
        self.stopping = Some(Stopping { deadline, stopped: true });
    }
}

/// How a thread of its own waits: it looks for work a little longer before it sleeps, because being
/// woken costs more than a short wait does.
///
/// How long adapts: work that comes less than `max` after the last makes it twice that gap, work
/// that comes later halves it. So an idle or slow node costs nothing, and a busy one rarely sleeps.
/// After each look the thread gives the processor to other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// The longest that a thread looks before it sleeps; zero never looks.
    pub max: Duration,
}

impl Default for Spin {
    /// 50 µs, a few times what a sleep and a wake-up cost; never on a single processor, where
    /// looking keeps the one who has work to bring from running.
    fn default() -> Self {
        Self { max: if is_alone() { Duration::ZERO } else { Duration::from_micros(50) } }
    }
}

/// The state behind [`Spin`].
#[derive(Clone, Copy, Debug)]
struct Spinner {
    max: Duration,
    budget: Duration,
    idle_since: Instant,
}

impl Spinner {
    /// Work has come at `now`.
    fn worked(&mut self, now: Instant) {
        let gap = now.saturating_since(self.idle_since);
        self.budget = if gap <= self.max {
            (gap * 2).max(self.budget * 7 / 8).min(self.max)
        } else {
            self.budget / 2
        };
        self.idle_since = now;
    }

    /// Whether to look again at `now`, or to sleep.
    fn looks(&self, now: Instant) -> bool {
        now.saturating_since(self.idle_since) < self.budget
    }
}

/// The loop of a stack on its own thread. Ends when the stack has stopped.
pub(crate) fn run(mut stack: Stack, spin: Spin) {
    stack.own_thread();
    let mut spinner =
        Spinner { max: spin.max, budget: Duration::ZERO, idle_since: stack.clock.now() };
    while !stack.is_stopped() {
        let wait = if spinner.looks(stack.now) { Wait::Spin } else { Wait::Block };
        if stack.turn(wait) {
            spinner.worked(stack.now);
        } else if wait == Wait::Spin {
            std::thread::yield_now();
        }
        // Descriptors made without a handler have no poller for their events here.
        stack.stats.events_unclaimed += (stack.events.len() + stack.reports.len()) as u64;
        stack.events.clear();
        stack.reports.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_follows_the_gaps_between_work() {
        let us = Duration::from_micros;
        let mut s = Spinner { max: us(50), budget: Duration::ZERO, idle_since: Instant::ZERO };
        let mut now = Instant::ZERO;
        assert!(!s.looks(now), "an idle node does not look");
        for _ in 0..3 {
            now += us(15);
            s.worked(now);
        }
        assert_eq!(s.budget, us(30));
        assert!(s.looks(now + us(29)) && !s.looks(now + us(30)));
        for _ in 0..40 {
            now += us(1000);
            s.worked(now);
        }
        assert!(s.budget.is_zero(), "a slow node stops looking");
        s.max = Duration::ZERO;
        s.worked(now);
        assert!(!s.looks(now), "zero never looks");
    }
}
