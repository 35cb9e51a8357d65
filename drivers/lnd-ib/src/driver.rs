//! The driver as a node has it: all its RDMA interfaces, behind [`lnet::Driver`].

use core::time::Duration;

use lnet::{Driver, Link, Node, Ready, Transmit, Verdict};
use lnet_types::{Errno, Fault, HealthStatus, Instant, Memory, MsgId, NiId, ProcessId, RxId};

use crate::adapter::Adapter;
use crate::ni::{IbNi, NiStart};
use crate::port::Port;
use crate::suspicion::Suspicion;
use crate::tunables::{ConfigError, IbConfig};
use crate::upper::Upper;

/// The message is for an interface that this driver does not serve.
const NOT_SERVED: Fault = Fault::new(HealthStatus::LocalError, Errno::ENODEV);

/// See the module's head.
#[derive(Debug)]
pub struct IbDriver<A> {
    /// By number; a place whose interface went is used again.
    ports: Vec<Option<Port<A>>>,
    /// The latest time that a call has brought.
    now: Instant,
}

impl<A> Default for IbDriver<A> {
    fn default() -> Self {
        Self { ports: Vec::new(), now: Instant::ZERO }
    }
}

impl<A: Adapter> IbDriver<A> {
    /// Serves an interface.
    ///
    /// # Errors
    /// As [`IbNi::new`].
    pub fn ni_start(
        &mut self,
        config: IbConfig,
        start: NiStart,
        adapter: A,
    ) -> Result<(), ConfigError> {
        let ib = IbNi::new(config, start)?;
        let free = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        let number = u16::try_from(free).map_err(|_| ConfigError::Interfaces)?;
        if free == self.ports.len() {
            self.ports.push(None);
        }
        self.ports[free] = Some(Port::new(ib, adapter, number));
        Ok(())
    }

    /// The ports in use.
    pub fn ports(&self) -> impl Iterator<Item = &Port<A>> {
        self.ports.iter().flatten()
    }

    /// The same, for their owner below.
    pub fn ports_mut(&mut self) -> impl Iterator<Item = &mut Port<A>> {
        self.ports.iter_mut().flatten()
    }

    /// The port of an interface.
    pub fn port(&mut self, ni: NiId) -> Option<&mut Port<A>> {
        self.ports_mut().find(|port| port.ib.ni() == ni)
    }

    /// Switches suspicion on, with its limits, or off (DEC-31).
    pub fn set_suspicion(&mut self, limits: Option<Suspicion>) {
        for port in self.ports_mut() {
            port.ib.set_suspicion(limits);
        }
    }

    /// Does the work that is ready.
    pub fn turn<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        self.now = self.now.max(now);
        for port in self.ports_mut() {
            port.turn(now, up, mem);
        }
    }

    /// Hands over everything that is queued.
    pub fn flush<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        self.now = self.now.max(now);
        for port in self.ports_mut() {
            port.flush(now, up, mem);
        }
    }

    /// Takes a message of the node.
    ///
    /// # Errors
    /// Refused at once, and not reported again.
    pub fn send(&mut self, now: Instant, transmit: Transmit) -> Result<(), Fault> {
        let port = self.port(transmit.ni).ok_or(NOT_SERVED)?;
        port.send(now, transmit)
    }

    /// The verdict on a message that was deferred.
    pub fn resume(&mut self, now: Instant, rx: RxId, verdict: Verdict) {
        let number = usize::try_from(Port::<A>::number_of(rx)).unwrap_or(usize::MAX);
        if let Some(Some(port)) = self.ports.get_mut(number) {
            port.verdict(now, rx, verdict);
        }
    }

    /// [`Driver::abandon`].
    pub fn abandon(&mut self, rx: RxId, msg: MsgId) {
        let number = usize::try_from(Port::<A>::number_of(rx)).unwrap_or(usize::MAX);
        let now = self.now;
        if let Some(Some(port)) = self.ports.get_mut(number) {
            port.abandon(now, msg);
        }
    }

    /// [`Driver::withdraw`].
    pub fn withdraw(&mut self, ni: NiId, msg: MsgId) {
        let now = self.now;
        if let Some(port) = self.port(ni) {
            port.withdraw(now, msg);
        }
    }

    /// [`Driver::recall`].
    pub fn recall(&mut self, ni: NiId, msg: MsgId) -> bool {
        self.port(ni).is_some_and(|port| port.ib.recall(msg))
    }

    /// Does what has become due.
    pub fn handle_timeout<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        for port in self.ports_mut() {
            port.ib.handle_timeout(now);
        }
        self.turn(now, up, mem);
    }

    /// When [`IbDriver::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ports().filter_map(|port| port.ib.poll_timeout()).min()
    }

    /// Stops serving an interface; what is left of its port.
    pub fn ni_stop<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        ni: NiId,
        up: &mut U,
        mem: &mut dyn Memory,
    ) -> Option<Port<A>> {
        let is_it =
            |place: &&mut Option<Port<A>>| place.as_ref().is_some_and(|port| port.ib.ni() == ni);
        let mut port = self.ports.iter_mut().find(is_it)?.take()?;
        port.stop(now, up, mem);
        Some(port)
    }
}

impl<A: Adapter> Driver for IbDriver<A> {
    fn turn(
        &mut self,
        now: Instant,
        ready: &[Ready],
        spin: bool,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        self.ports_mut().for_each(|port| port.adapter.spin(spin));
        for Ready { token, .. } in ready {
            self.ports_mut().for_each(|port| port.adapter.ready(*token));
        }
        Self::turn(self, now, node, mem);
    }

    fn send(&mut self, now: Instant, transmit: &Transmit, _mem: &dyn Memory) -> Result<(), Fault> {
        Self::send(self, now, transmit.clone())
    }

    fn recall(&mut self, ni: NiId, _to: ProcessId, msg: MsgId) -> bool {
        Self::recall(self, ni, msg)
    }

    fn resume(
        &mut self,
        now: Instant,
        rx: RxId,
        verdict: Verdict,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        Self::resume(self, now, rx, verdict);
        Self::turn(self, now, node, mem);
    }

    fn link_changed(&mut self, now: Instant, ni: NiId, link: Link, _node: &mut Node) {
        let Some(port) = self.port(ni) else { return };
        port.ib.link_changed(now, link);
        if link == Link::Up {
            port.ib.retry_all(now);
        }
    }

    fn abandon(&mut self, rx: RxId, msg: MsgId) {
        Self::abandon(self, rx, msg);
    }

    fn withdraw(&mut self, ni: NiId, msg: MsgId) {
        Self::withdraw(self, ni, msg);
    }

    fn flush(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory) {
        Self::flush(self, now, node, mem);
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory) {
        Self::handle_timeout(self, now, node, mem);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn ni_stop(&mut self, now: Instant, ni: NiId, node: &mut Node, mem: &mut dyn Memory) {
        Self::ni_stop(self, now, ni, node, mem);
    }

    fn lnd_timeout(&self, ni: NiId) -> Option<Duration> {
        self.ports().find(|port| port.ib.ni() == ni).map(|port| port.ib.config().timeout)
    }
}
