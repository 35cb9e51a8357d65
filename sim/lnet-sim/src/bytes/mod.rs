//! Byte level: the real driver of sockets (`lnd_sock::SockDriver`) on every host, over byte streams
//! that are cut anywhere, stall, break, are refused, stand half open and may be damaged.
//!
//! ```text
//!   node ◄─► SockDriver ◄─ rig.rs ─► Sockets (sockets.rs) ─► End (tcp/): segment.rs
//!                                                               │
//!                       wire.rs: Links::way says what becomes of each, and when it is there
//! ```
//!
//! HELLOs, versions, frames, races of connections, back-off, keepalives, time-outs and suspicion are
//! the driver's own; what is modelled is what lies under it, a small TCP. So what the message level
//! says of drivers (`message/`) can be held against this one. Each host is one driver, whatever the
//! names of its networks; two of its NIDs with one address are one cable. Networks of transport "rdma"
//! are not its business: `../rdma/` has them, and gets what is for their rails.
//!
//! Packets are lost, doubled, late and overtaken without damage to the stream; those that are
//! `corrupt` are noticed by TCP and lost. Only corruption that is `unnoticed` (cards that compute
//! checksums themselves do that) reaches the driver: wire.md 3.9 says what it sees of it.

mod rig;
mod segment;
mod sockets;
mod tcp;
mod wire;

use core::net::IpAddr;
use std::collections::BTreeMap;

use lnet::{InDoubt, Transmit, Verdict};
use lnet_scenario::ByteSettings;
use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, NiId, ProcessId, RxId};

use crate::directory::{HostId, RailIx};
use crate::fabric::{Cx, Fabric, GONE, Happening};
use crate::rdma::{Rdma, RdmaEvent};
use crate::travel::{Cables, chance};
use rig::Rig;
use segment::Segment;

/// Wall-clock time at the beginning, for incarnations of interfaces: nanoseconds.
const WALL_BEGIN: u64 = 1_800_000_000_000_000_000;

/// The driver has no memory (DEC-19).
const NO_ROOM: Fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
/// The message was lost before it was sent.
const LOST_UNSENT: Fault = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);

/// Later events of the fabric.
#[derive(Debug)]
pub struct ByteEvent(What);

#[derive(Debug)]
enum What {
    /// A segment is there.
    Arrive { from: RailIx, to: RailIx, segment: Box<Segment> },
    /// A driver or its sockets have something to do.
    Due(HostId),
    /// Of an RDMA network.
    Rdma(RdmaEvent),
}

impl ByteEvent {
    pub(crate) const fn rdma(event: RdmaEvent) -> Self {
        Self(What::Rdma(event))
    }
}

/// The byte-level fabric.
#[derive(Debug, Default)]
pub struct Bytes {
    settings: ByteSettings,
    rigs: Vec<Option<Rig>>,
    /// Rails of each address.
    by_ip: BTreeMap<IpAddr, Vec<RailIx>>,
    cables: Cables,
    /// Networks of the other kind.
    rdma: Rdma,
}

impl Bytes {
    /// A fabric without any stream.
    pub fn new(settings: ByteSettings) -> Self {
        Self { settings, rdma: Rdma::new(settings), ..Self::default() }
    }

    fn rig(&mut self, host: HostId) -> Option<&mut Rig> {
        self.rigs.get_mut(host.0 as usize)?.as_mut()
    }

    /// Lets a host's driver do all that it can do, and takes away what leaves.
    fn work(&mut self, cx: &mut Cx<'_, ByteEvent>, id: HostId) {
        let now = cx.now;
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let host = &mut cx.hosts[id.0 as usize];
        if !host.is_running() {
            return;
        }
        rig.sockets(now).expire();
        let called = rig.turn(now, host);
        if called {
            // Only then: a host that is looked after comes by here again.
            cx.host(id);
        }
        self.ship(cx, id);
        self.arm(cx, id);
    }

    /// Sees to it that the driver's next deadline is kept.
    fn arm(&mut self, cx: &mut Cx<'_, ByteEvent>, id: HostId) {
        let now = cx.now;
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let Some(at) = rig.next(now, &cx.hosts[id.0 as usize]).map(|at| at.max(now)) else {
            return;
        };
        if at < rig.armed {
            rig.armed = at;
            cx.at(at, ByteEvent(What::Due(id)));
        }
    }

    /// All hosts, whose clocks, tunables or time may have changed.
    fn look_after_all(&mut self, cx: &mut Cx<'_, ByteEvent>) {
        for n in 0..self.rigs.len() as u32 {
            let host = &cx.hosts[n as usize];
            if !host.is_running() {
                continue;
            }
            let Some(rig) = self.rigs.get_mut(n as usize).and_then(Option::as_mut) else {
                continue;
            };
            rig.set(host);
            rig.armed = Instant::FAR_FUTURE;
            self.work(cx, HostId(n));
        }
    }

    fn rail_added(&mut self, cx: &mut Cx<'_, ByteEvent>, ix: RailIx) -> Result<(), String> {
        let rail = *cx.directory.rail(ix);
        let Some(id) = rail.host else { return Ok(()) };
        let n = id.0 as usize;
        if self.rigs.len() <= n {
            self.rigs.resize_with(n + 1, || None);
        }
        let host = &cx.hosts[n];
        let rng = cx.rng.split();
        let rig = self.rigs[n].get_or_insert_with(|| Rig::new(host, &self.settings, rng));
        let Some(ni) = host.ni_of(ix) else { return Ok(()) };
        let incarnation = WALL_BEGIN + cx.now.as_nanos() + u64::from(host.incarnation);
        let conns_per_peer = self.settings.conns_per_peer;
        rig.start(host, cx.now, (ni, rail.nid), incarnation, conns_per_peer)?;
        if let Some(ip) = rail.nid.ip() {
            let rails = self.by_ip.entry(ip).or_default();
            if !rails.contains(&ix) {
                rails.push(ix);
            }
        }
        Ok(())
    }
}

impl Fabric for Bytes {
    type Event = ByteEvent;
    const MOVES_BYTES: bool = true;

    fn send(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        id: HostId,
        transmit: &Transmit,
    ) -> Result<(), Fault> {
        let host = &cx.hosts[id.0 as usize];
        let Some(from) = host.rail_of(transmit.ni) else { return Err(GONE) };
        if Rdma::carries(cx, from) {
            return self.rdma.send(cx, id, from, transmit);
        }
        let host = &cx.hosts[id.0 as usize];
        if host.starved {
            return Err(NO_ROOM);
        }
        let net = cx.directory.rail(from).net;
        let to = cx.directory.number(transmit.to.nid, net);
        let way = cx.links.way(from, to, cx.directory);
        if chance(cx.rng, way.drop_reported) {
            return Err(LOST_UNSENT);
        }
        let swallow = chance(cx.rng, way.drop_silent);
        let now = cx.now;
        let Some(rig) = self.rig(id) else { return Err(GONE) };
        rig.send(now, host, transmit.clone(), swallow)
    }

    fn recall(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        host: HostId,
        ni: NiId,
        to: ProcessId,
        msg: MsgId,
    ) -> bool {
        if Rdma::serves(cx, host, ni) {
            return self.rdma.recall(host, ni, msg);
        }
        let Some(rig) = self.rig(host) else { return false };
        let recalled = rig.driver.recall(ni, to, msg);
        rig.in_hand -= usize::from(recalled);
        recalled
    }

    fn reclaim(
        &mut self,
        _cx: &mut Cx<'_, ByteEvent>,
        host: HostId,
        ni: NiId,
        to: Option<ProcessId>,
    ) -> Vec<InDoubt> {
        self.rig(host).map(|rig| rig.driver.reclaim(ni, to)).unwrap_or_default()
    }

    fn abandon(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        host: HostId,
        ni: NiId,
        rx: RxId,
        msg: MsgId,
    ) {
        if Rdma::serves(cx, host, ni) {
            return self.rdma.abandon(host, rx, msg);
        }
        if let Some(rig) = self.rig(host) {
            rig.driver.abandon(rx, msg);
        }
    }

    fn withdraw(&mut self, cx: &mut Cx<'_, ByteEvent>, host: HostId, ni: NiId, msg: MsgId) {
        if Rdma::serves(cx, host, ni) {
            self.rdma.withdraw(host, ni, msg);
        }
    }

    fn resume(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        id: HostId,
        ni: NiId,
        rx: RxId,
        verdict: Verdict,
    ) {
        if Rdma::serves(cx, id, ni) {
            return self.rdma.resume(cx, id, rx, verdict);
        }
        let now = cx.now;
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let host = &mut cx.hosts[id.0 as usize];
        let called = rig.call(now, host, |driver, local, up, mem| {
            driver.resume(local, rx, verdict, up, mem);
        });
        if called {
            cx.host(id);
        }
    }

    fn flush(&mut self, cx: &mut Cx<'_, ByteEvent>, host: HostId) {
        self.work(cx, host);
        self.rdma.work(cx, host);
    }

    fn event(&mut self, cx: &mut Cx<'_, ByteEvent>, event: ByteEvent) {
        match event.0 {
            What::Arrive { from, to, segment } => self.arrive(cx, from, to, *segment),
            What::Rdma(event) => self.rdma.event(cx, event),
            What::Due(id) => {
                let now = cx.now;
                let Some(rig) = self.rig(id) else { return };
                // Only the earliest counts: others were meant for something that is over.
                if rig.armed > now {
                    return;
                }
                rig.armed = Instant::FAR_FUTURE;
                self.work(cx, id);
            }
        }
    }

    fn happened(&mut self, cx: &mut Cx<'_, ByteEvent>, what: &Happening<'_>) {
        let of_rdma = match *what {
            Happening::RailAdded(rail)
            | Happening::RailRemoved(rail, _)
            | Happening::CarrierGone(rail)
            | Happening::CarrierBack(rail)
            | Happening::Adapter(rail, _) => Some(Rdma::carries(cx, rail)),
            Happening::HostDied(_)
            | Happening::Suspended(_)
            | Happening::Resumed(_)
            | Happening::LinksChanged
            | Happening::Reset(_) => None,
        };
        if of_rdma != Some(false)
            && let Err(why) = self.rdma.happened(cx, what)
        {
            // Scenarios that can't be played so are refused before they are played.
            panic!("an interface can't be served: {why}");
        }
        if of_rdma == Some(true) {
            return;
        }
        match *what {
            // Sockets see it when they are silent, and streams have no adapters.
            Happening::CarrierGone(_) | Happening::Adapter(..) => {}
            Happening::RailAdded(rail) => {
                if let Err(why) = self.rail_added(cx, rail) {
                    // Scenarios that can't be played so are refused before they are played.
                    panic!("an interface can't be served: {why}");
                }
            }
            Happening::Suspended(_) | Happening::Resumed(_) => {}
            Happening::LinksChanged => self.look_after_all(cx),
            Happening::CarrierBack(rail) => {
                let Some(id) = cx.directory.rail(rail).host else { return };
                let now = cx.now;
                let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else {
                    return;
                };
                let host = &mut cx.hosts[id.0 as usize];
                if let Some(ni) = host.ni_of(rail) {
                    rig.carrier_back(now, host, ni);
                }
                cx.host(id);
                self.work(cx, id);
            }
            Happening::RailRemoved(rail, ni) => {
                let Some(id) = cx.directory.rail(rail).host else { return };
                let now = cx.now;
                let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else {
                    return;
                };
                rig.stop(now, &mut cx.hosts[id.0 as usize], ni);
                cx.host(id);
                self.ship(cx, id);
            }
            Happening::HostDied(host) => {
                let now = cx.now;
                if cx.hosts[host.0 as usize].resets
                    && let Some(rig) = self.rig(host)
                {
                    rig.sockets(now).reset_all();
                    self.ship(cx, host);
                }
                if let Some(rig) = self.rigs.get_mut(host.0 as usize) {
                    *rig = None;
                }
            }
            Happening::Reset(is_meant) => {
                for n in 0..self.rigs.len() as u32 {
                    let by_ip = &self.by_ip;
                    let now = cx.now;
                    let Some(rig) = self.rigs.get_mut(n as usize).and_then(Option::as_mut) else {
                        continue;
                    };
                    rig.sockets(now).break_those(|local, remote| {
                        wire::rails_between(by_ip, cx.directory, local.ip(), remote.ip())
                            .is_some_and(|(a, b)| is_meant(a, b))
                    });
                    self.work(cx, HostId(n));
                }
            }
        }
    }

    fn in_hand(&self) -> usize {
        self.rigs.iter().flatten().map(|rig| rig.in_hand).sum::<usize>() + self.rdma.in_hand()
    }

    fn violations(&mut self) -> Vec<String> {
        self.rdma.violations()
    }

    fn check(&self) -> Result<(), String> {
        self.rdma.check()
    }
}
