//! The driver of one host over its adapters, and its turn.

use core::time::Duration;

use lnd_ib::emulated::{Emulated, Faults, Outgoing, Packet};
use lnd_ib::{DeviceEvent, IbConfig, IbDriver, NiStart, Port, Suspicion, Upper};
use lnet::{Doubt, Link, Node, Rx, Transmit, Verdict};
use lnet_types::{Fault, Instant, IoVec, Memory, MsgId, NiId, Nid, RxId};
use lnet_wire::Hdr;

use super::ledger::Ledger;
use crate::host::{Host, lnd_timeout};

/// Rounds of one turn. Each moves something on; a driver that needs more never comes to rest.
const ROUNDS_MAX: u32 = 1 << 20;
/// Wall-clock time at the beginning, for incarnations of interfaces: microseconds.
const WALL_BEGIN: u64 = 1_800_000_000_000_000;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Rig {
    driver: IbDriver<Emulated>,
    ledger: Ledger,
    /// Messages that a fault has swallowed, to be reported as sent.
    swallowed: Vec<MsgId>,
    /// The earliest time for which the world has an event for it.
    pub(super) armed: Instant,
    /// Credits were withheld here, or from here.
    unbalanced: bool,
}

/// The node, as the driver calls it: notes whether it was called, and what was said.
struct Noting<'a> {
    node: &'a mut Node,
    ledger: &'a mut Ledger,
    called: bool,
}

impl Upper for Noting<'_> {
    fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        self.called = true;
        let verdict = self.node.rx_header(now, rx, hdr);
        self.ledger.decided(&verdict);
        verdict
    }
    fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        self.called = true;
        self.ledger.delivered(msg);
        self.node.rx_done(now, msg, outcome);
    }
    fn rx_asked(&mut self, now: Instant, msg: MsgId) {
        self.called = true;
        self.ledger.delivered(msg);
        self.node.rx_asked(now, msg);
    }
    fn rx_gone(&mut self, now: Instant, ni: NiId, rx: RxId) {
        self.called = true;
        self.node.rx_gone(now, ni, rx);
    }
    fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        self.called = true;
        self.ledger.ended(msg);
        self.node.tx_done(now, msg, outcome);
    }
    fn peer_down(&mut self, now: Instant, ni: NiId, nid: Nid, last_alive: Instant) {
        self.called = true;
        self.node.peer_down(now, ni, nid, last_alive);
    }
    fn link_changed(&mut self, now: Instant, ni: NiId, link: Link) {
        self.called = true;
        self.node.link_changed(now, ni, link);
    }
    fn rail_changed(&mut self, now: Instant, ni: NiId, nid: Nid, doubt: Doubt) {
        self.called = true;
        self.node.rail_changed(now, ni, nid, doubt);
    }
}

fn timeout(host: &Host) -> Duration {
    lnd_timeout(&host.node, None).unwrap_or_else(|| host.node.tunables().lnd_timeout())
}

impl Rig {
    /// Gives the driver what it derives from the node's tunables, as the shell of a real node does.
    pub(super) fn set(&mut self, host: &Host) {
        let t = host.node.tunables();
        self.driver.set_suspicion((t.rail_suspicion != 0).then(|| Suspicion {
            after: Duration::from_millis(t.suspect_after_min as u64),
            completions: t.suspect_after_rtts as u32,
        }));
        for port in self.driver.ports_mut() {
            // Refused for zero only, which the bounds of the tunables exclude.
            let _ = port.ib.set_timeout(timeout(host));
        }
    }

    /// Serves one more interface.
    pub(super) fn start(
        &mut self,
        host: &Host,
        now: Instant,
        (ni, nid): (NiId, Nid),
        seed: u64,
        conns_per_peer: u8,
    ) -> Result<(), String> {
        let nets = host.node.net_views();
        let net = nets.iter().find(|net| net.net == nid.net());
        let credits = net.map_or(0, |net| net.tunables.peer_credits).clamp(8, 255);
        let config = IbConfig {
            queue_depth: u16::try_from(credits).unwrap_or(8),
            conns_per_peer,
            timeout: timeout(host),
            legacy_status: host.node.tunables().conduct.closes_with_legacy_status,
            ..IbConfig::default()
        };
        let incarnation = WALL_BEGIN + now.as_nanos() / 1000 + u64::from(host.incarnation);
        let start = NiStart { ni, nid, incarnation };
        let adapter = Emulated::new(nid, seed);
        self.driver.ni_start(config, start, adapter).map_err(|e| format!("{nid}: {e}"))?;
        self.set(host);
        self.armed = Instant::FAR_FUTURE;
        Ok(())
    }

    /// Calls the driver. Returns whether it called its node.
    fn call(
        &mut self,
        host: &mut Host,
        call: impl FnOnce(&mut IbDriver<Emulated>, &mut Noting<'_>, &mut dyn Memory),
    ) -> bool {
        let mut up = Noting { node: &mut host.node, ledger: &mut self.ledger, called: false };
        call(&mut self.driver, &mut up, &mut host.mem);
        up.called
    }

    /// Everything that the driver can do now. Returns whether it called its node.
    pub(super) fn turn(&mut self, now: Instant, host: &mut Host) -> bool {
        let local = host.clock.local(now);
        for port in self.driver.ports_mut() {
            port.adapter.faults.map_failure = u64::from(host.starved);
            if port.adapter.poll_timeout().is_some_and(|at| at <= local) {
                port.adapter.handle_timeout(local, &host.mem);
            }
        }
        let swallowed = core::mem::take(&mut self.swallowed);
        let mut called = self.call(host, |_, up, _| {
            for msg in swallowed {
                up.tx_done(local, msg, Ok(()));
            }
        });
        for _ in 0..ROUNDS_MAX {
            let mut more = false;
            called |= self.call(host, |driver, up, mem| {
                driver.flush(local, up, mem);
                if driver.poll_timeout().is_some_and(|at| at <= local) {
                    more = true;
                    driver.handle_timeout(local, up, mem);
                }
            });
            if !more {
                return called;
            }
        }
        panic!("a driver never comes to rest");
    }

    pub(super) fn resume(
        &mut self,
        now: Instant,
        host: &mut Host,
        rx: RxId,
        verdict: Verdict,
    ) -> bool {
        let local = host.clock.local(now);
        self.ledger.decided(&verdict);
        self.call(host, |driver, up, mem| {
            driver.resume(local, rx, verdict);
            driver.turn(local, up, mem);
        })
    }

    /// Takes a message, or swallows it where a fault says so.
    pub(super) fn send(
        &mut self,
        local: Instant,
        transmit: Transmit,
        swallow: bool,
    ) -> Result<(), Fault> {
        let msg = transmit.msg;
        let sink = if swallow { IoVec::new() } else { transmit.sink.clone() };
        if swallow {
            self.swallowed.push(msg);
        } else {
            self.driver.send(local, transmit)?;
        }
        self.ledger.taken(msg, sink);
        Ok(())
    }

    pub(super) fn recall(&mut self, ni: NiId, msg: MsgId) -> bool {
        let back = self.driver.recall(ni, msg);
        if back {
            self.ledger.ended(msg);
        }
        back
    }

    pub(super) fn abandon(&mut self, rx: RxId, msg: MsgId) {
        self.driver.abandon(rx, msg);
        self.ledger.abandoned(msg);
    }

    pub(super) fn withdraw(&mut self, ni: NiId, msg: MsgId) {
        self.driver.withdraw(ni, msg);
    }

    /// An interface goes: what it has in hand comes back. The last packets of its adapter.
    pub(super) fn stop(&mut self, now: Instant, host: &mut Host, ni: NiId) -> Vec<Outgoing> {
        let local = host.clock.local(now);
        let mut packets = Vec::new();
        self.call(host, |driver, up, mem| {
            if let Some(mut port) = driver.ni_stop(local, ni, up, mem) {
                packets = port.adapter.take_packets();
                up.ledger.violations.append(&mut port.adapter.violations);
                if port.adapter.open_maps() > 0 {
                    up.ledger.violations.push("a stopped interface has mapped memory".to_owned());
                }
            }
        });
        packets
    }

    /// The process of the host is gone: its adapters say so.
    pub(super) fn leave(&mut self, local: Instant) {
        self.driver.ports_mut().for_each(|port| port.adapter.leave(local));
    }

    /// Queue pairs of these connections, by the NIDs of both ends, fail.
    pub(super) fn break_those(&mut self, are_meant: impl Fn(Nid, Nid) -> bool) {
        for port in self.driver.ports_mut() {
            let own = port.ib.nid();
            for conn in port.adapter.conns().collect::<Vec<_>>() {
                if port.adapter.other_end(conn).is_some_and(|(other, _)| are_meant(own, other)) {
                    port.adapter.break_qp(conn);
                }
            }
        }
    }

    pub(super) fn device(&mut self, ni: NiId, event: DeviceEvent) {
        if let Some(port) = self.driver.port(ni) {
            port.adapter.device(event);
        }
    }

    /// Changes what is wrong with an adapter.
    pub(super) fn fault(&mut self, ni: NiId, change: impl FnOnce(&mut Faults)) {
        if let Some(port) = self.driver.port(ni) {
            change(&mut port.adapter.faults);
            self.unbalanced |= port.adapter.faults.withholds_credits;
        }
    }

    /// A packet has arrived at this address.
    pub(super) fn arrive(&mut self, now: Instant, host: &mut Host, to: NiId, packet: Packet) {
        let local = host.clock.local(now);
        let Some(port) = self.driver.port(to) else { return };
        let arrival = port.adapter.arrive(local, packet, &mut host.mem);
        self.ledger.written(&arrival.written);
    }

    /// What is to leave, with the interface that it leaves from.
    pub(super) fn take_packets(&mut self) -> Vec<Outgoing> {
        self.driver.ports_mut().flat_map(|port| port.adapter.take_packets()).collect()
    }

    /// A packet from this address is there at that time, or would be.
    pub(super) fn departed(&mut self, from: Nid, conn: lnd_ib::ConnId, at: Instant) {
        if let Some(port) = self.driver.ports_mut().find(|port| port.ib.nid() == from) {
            port.adapter.departed(conn, at);
        }
    }

    /// When the driver or its adapters want to be called, by the world's time.
    pub(super) fn next(&self, host: &Host) -> Option<Instant> {
        let adapters = self.driver.ports().filter_map(|port| port.adapter.poll_timeout());
        let local = adapters.chain(self.driver.poll_timeout()).min()?;
        Some(host.clock.global(local))
    }

    pub(super) fn in_hand(&self) -> usize {
        self.ledger.in_hand()
    }

    /// Whether nothing is under way, and credits are where the protocol has them.
    pub(super) fn is_idle(&self) -> bool {
        self.ledger.is_idle() && !self.unbalanced
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &Port<Emulated>> {
        self.driver.ports()
    }

    pub(super) fn take_violations(&mut self) -> Vec<String> {
        let mut all = core::mem::take(&mut self.ledger.violations);
        for port in self.driver.ports_mut() {
            all.append(&mut port.adapter.violations);
        }
        all
    }

    pub(super) fn into_violations(mut self) -> Vec<String> {
        self.take_violations()
    }
}
