//! The border between worlds and what carries their messages. A [`Fabric`] is all drivers of all
//! hosts with everything between them: `message/` models what a driver would do with each message;
//! `bytes/` runs the real drivers, over simulated streams and adapters. Worlds, faults, workloads and
//! checkers see no difference.

use lnet::{InDoubt, NI_STOPPED, Transmit, Verdict};
use lnet_types::{Fault, Instant, MsgId, NiId, Prng, ProcessId, RxId};

use crate::directory::{Directory, HostId, RailIx};
use crate::host::Host;
use crate::links::Links;
use crate::queue::Queue;
use crate::sim::Event;

/// Something that befalls connections at a certain time. What only changes the [`Links`] is not
/// reported: fabrics look there when something is to move.
#[derive(Clone)]
pub enum Happening<'a> {
    /// A rail has come into being. Its host and interface are in the directory.
    RailAdded(RailIx),
    /// A rail goes: everything that its driver has in hand comes back as `NI_STOPPED`.
    RailRemoved(RailIx, NiId),
    /// A host has died without a word, with all that its drivers held; or its process has, and its
    /// kernel resets what was connected ([`Host::resets`]). The new incarnation, if any, is reported
    /// rail by rail.
    HostDied(HostId),
    /// The networks with these indices stand still from now on.
    Suspended(&'a [u16]),
    /// They go on.
    Resumed(&'a [u16]),
    /// Links were mended, or have changed otherwise; what waits may be looked at.
    LinksChanged,
    /// The carrier of a rail went, and its driver has the report.
    CarrierGone(RailIx),
    /// The carrier of a rail is back, and its driver has the report.
    CarrierBack(RailIx),
    /// The adapter of a rail has changed.
    Adapter(RailIx, AdapterChange),
    /// Connections between these rails are reset.
    Reset(&'a dyn Fn(RailIx, RailIx) -> bool),
}

/// What happens to an RDMA adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterChange {
    /// The device is in an error, and all its queue pairs are.
    Fatal,
    /// It is usable again.
    Recovered,
    /// The rate of its link, Mbit/s.
    Rate(u32),
    /// One in so many completions is lost; none if 0.
    Completions(u64),
    /// Whether its messages return no credits.
    Credits(bool),
}

/// What a fabric may use while it does something.
pub struct Cx<'a, E> {
    /// The world's time.
    pub now: Instant,
    /// All hosts.
    pub hosts: &'a mut Vec<Host>,
    /// Who has which NID.
    pub directory: &'a mut Directory,
    /// What passes where.
    pub links: &'a Links,
    /// The fabric's own randomness.
    pub rng: &'a mut Prng,
    pub(crate) queue: &'a mut Queue<Event<E>>,
    pub(crate) dirty: &'a mut Vec<HostId>,
}

impl<E> Cx<'_, E> {
    /// Schedules a call of [`Fabric::event`] with `event` at `at`.
    pub fn at(&mut self, at: Instant, event: E) {
        self.queue.push(at.max(self.now), Event::Fabric(event));
    }

    /// The host `id`, which is looked after when the fabric is done.
    pub fn host(&mut self, id: HostId) -> &mut Host {
        let host = &mut self.hosts[id.0 as usize];
        if !host.dirty {
            host.dirty = true;
            self.dirty.push(id);
        }
        host
    }

    /// Tells a node how a transmission ended.
    pub fn tx_done(&mut self, id: HostId, msg: MsgId, outcome: Result<(), Fault>) {
        let now = self.now;
        let host = self.host(id);
        let now = host.clock.local(now);
        host.node.tx_done(now, msg, outcome);
    }
}

/// All drivers, and what is between them. Calls go to hosts that live and do not stand still.
pub trait Fabric: Sized {
    /// Its timers and their subjects.
    type Event;

    /// Whether messages are moved as bytes, so that router buffers must be real memory.
    const MOVES_BYTES: bool;

    /// A driver takes a message, which comes back by `tx_done` exactly once.
    ///
    /// # Errors
    /// The driver refuses it at once.
    fn send(
        &mut self,
        cx: &mut Cx<'_, Self::Event>,
        host: HostId,
        transmit: &Transmit,
    ) -> Result<(), Fault>;

    /// Gives back a message of which not one byte has been handed to the transport: true, and it is
    /// not reported any more.
    fn recall(
        &mut self,
        cx: &mut Cx<'_, Self::Event>,
        host: HostId,
        ni: NiId,
        to: ProcessId,
        msg: MsgId,
    ) -> bool;

    /// Gives back what is in doubt on the way to one peer, or to all: see [`lnet::Driver::reclaim`].
    fn reclaim(
        &mut self,
        cx: &mut Cx<'_, Self::Event>,
        host: HostId,
        ni: NiId,
        to: Option<ProcessId>,
    ) -> Vec<InDoubt>;

    /// What comes in as `msg` is not wanted any more: its payload is thrown away, and there is no
    /// [`lnet::Node::rx_done`]. Nothing to do where payload is in place in the moment in which its
    /// header is judged.
    fn abandon(
        &mut self,
        _cx: &mut Cx<'_, Self::Event>,
        _host: HostId,
        _ni: NiId,
        _rx: RxId,
        _msg: MsgId,
    ) {
    }

    /// The data of a GET have come another way: see [`lnet::Driver::withdraw`].
    fn withdraw(&mut self, _cx: &mut Cx<'_, Self::Event>, _host: HostId, _ni: NiId, _msg: MsgId) {}

    /// A message that was deferred is decided.
    fn resume(
        &mut self,
        cx: &mut Cx<'_, Self::Event>,
        host: HostId,
        ni: NiId,
        rx: RxId,
        verdict: Verdict,
    );

    /// A host has nothing more to hand over for now.
    fn flush(&mut self, cx: &mut Cx<'_, Self::Event>, host: HostId);

    /// A timer of its own is due.
    fn event(&mut self, cx: &mut Cx<'_, Self::Event>, event: Self::Event);

    /// Something has happened to connections.
    fn happened(&mut self, cx: &mut Cx<'_, Self::Event>, what: &Happening<'_>);

    /// Messages that drivers hold, for checks of memory.
    fn in_hand(&self) -> usize;

    /// What drivers did that none may do, since the last call.
    fn violations(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether all is in order where nothing is under way, at the end of a run.
    ///
    /// # Errors
    /// What is not.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The fault of a message for an interface that is gone.
pub(crate) const GONE: Fault = NI_STOPPED;
