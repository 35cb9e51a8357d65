//! RDMA networks at byte level: the real driver (`lnd_ib::IbDriver`) on every host, over emulated
//! adapters (`lnd_ib::emulated`), one for each rail.
//!
//! ```text
//!   node ◄─► IbDriver ◄─ rig.rs ─► Emulated ── packets ─► wire.rs: Links::way, Cables ─► Emulated
//! ```
//!
//! Connections, credits, exchanges, keepalives, time-outs and suspicion are the driver's own; queue
//! pairs, keys and the connection manager are the adapter's. A fabric of this kind keeps the order
//! between two rails; what it loses or damages the adapters send again.
//!
//! `ledger.rs` holds the driver to its word: no write behind the end of a delivery, one end for each
//! message, credits that balance. `bytes/` has the streams of other networks, and hands us what is for
//! rails of these.

mod ledger;
mod rig;
mod wire;

use std::collections::BTreeMap;

use lnd_ib::DeviceEvent;
use lnd_ib::emulated::Packet;
use lnet::{Transmit, Verdict};
use lnet_scenario::{ByteSettings, Transport};
use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, NiId, RxId};

use crate::bytes::ByteEvent;
use crate::directory::{HostId, RailIx};
use crate::fabric::{AdapterChange, Cx, GONE, Happening};
use crate::host::Host;
use crate::travel::{Cables, chance};
use rig::Rig;

/// The driver has no memory (DEC-19).
const NO_ROOM: Fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
/// The message was lost before it was sent.
const LOST_UNSENT: Fault = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);

/// Later events.
#[derive(Debug)]
pub(crate) enum RdmaEvent {
    /// A packet is there.
    Arrive { from: RailIx, to: RailIx, packet: Box<Packet> },
    /// A driver or its adapters have something to do.
    Due(HostId),
}

/// All adapters and what is between them.
#[derive(Debug, Default)]
pub(crate) struct Rdma {
    settings: ByteSettings,
    rigs: Vec<Option<Rig>>,
    cables: Cables,
    /// When what was sent last between two rails is there.
    last: BTreeMap<(RailIx, RailIx), Instant>,
    /// What must not be, of hosts that are gone.
    violations: Vec<String>,
}

impl Rdma {
    pub(crate) fn new(settings: ByteSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether a rail is on a network of this kind.
    pub(crate) fn carries(cx: &Cx<'_, ByteEvent>, ix: RailIx) -> bool {
        let net = usize::from(cx.directory.rail(ix).net);
        cx.links.transport(net) == Transport::Rdma
    }

    /// The same of an interface of a host.
    pub(crate) fn serves(cx: &Cx<'_, ByteEvent>, id: HostId, ni: NiId) -> bool {
        cx.hosts[id.0 as usize].rail_of(ni).is_some_and(|ix| Self::carries(cx, ix))
    }

    fn rig(&mut self, id: HostId) -> Option<&mut Rig> {
        self.rigs.get_mut(id.0 as usize)?.as_mut()
    }

    /// Lets a host's driver do all that it can do, and takes away what leaves.
    pub(crate) fn work(&mut self, cx: &mut Cx<'_, ByteEvent>, id: HostId) {
        let now = cx.now;
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let host = &mut cx.hosts[id.0 as usize];
        if !host.is_running() {
            return;
        }
        if rig.turn(now, host) {
            // Only then: a host that is looked after comes by here again.
            cx.host(id);
        }
        self.ship(cx, id);
        self.arm(cx, id);
    }

    /// Sees to it that the next deadline is kept.
    fn arm(&mut self, cx: &mut Cx<'_, ByteEvent>, id: HostId) {
        let now = cx.now;
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let Some(at) = rig.next(&cx.hosts[id.0 as usize]).map(|at| at.max(now)) else { return };
        if at < rig.armed {
            rig.armed = at;
            cx.at(at, ByteEvent::rdma(RdmaEvent::Due(id)));
        }
    }

    pub(crate) fn event(&mut self, cx: &mut Cx<'_, ByteEvent>, event: RdmaEvent) {
        match event {
            RdmaEvent::Arrive { from, to, packet } => self.arrive(cx, from, to, *packet),
            RdmaEvent::Due(id) => {
                let now = cx.now;
                let Some(rig) = self.rig(id) else { return };
                // Only the earliest counts: others were meant for something that is over.
                if rig.armed <= now {
                    rig.armed = Instant::FAR_FUTURE;
                    self.work(cx, id);
                }
            }
        }
    }

    pub(crate) fn send(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        id: HostId,
        from: RailIx,
        transmit: &Transmit,
    ) -> Result<(), Fault> {
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
        let local = host.clock.local(cx.now);
        let Some(rig) = self.rig(id) else { return Err(GONE) };
        rig.send(local, transmit.clone(), swallow)
    }

    pub(crate) fn recall(&mut self, id: HostId, ni: NiId, msg: MsgId) -> bool {
        self.rig(id).is_some_and(|rig| rig.recall(ni, msg))
    }

    pub(crate) fn abandon(&mut self, id: HostId, rx: RxId, msg: MsgId) {
        if let Some(rig) = self.rig(id) {
            rig.abandon(rx, msg);
        }
    }

    pub(crate) fn withdraw(&mut self, id: HostId, ni: NiId, msg: MsgId) {
        if let Some(rig) = self.rig(id) {
            rig.withdraw(ni, msg);
        }
    }

    pub(crate) fn resume(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        id: HostId,
        rx: RxId,
        verdict: Verdict,
    ) {
        let now = cx.now;
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if rig.resume(now, &mut cx.hosts[id.0 as usize], rx, verdict) {
            cx.host(id);
        }
    }

    fn rail_added(&mut self, cx: &mut Cx<'_, ByteEvent>, ix: RailIx) -> Result<(), String> {
        let rail = *cx.directory.rail(ix);
        let Some(id) = rail.host else { return Ok(()) };
        let n = id.0 as usize;
        if self.rigs.len() <= n {
            self.rigs.resize_with(n + 1, || None);
        }
        let seed = cx.rng.next_u64();
        let host = &cx.hosts[n];
        let rig = self.rigs[n].get_or_insert_with(Rig::default);
        let Some(ni) = host.ni_of(ix) else { return Ok(()) };
        rig.start(host, cx.now, (ni, rail.nid), seed, self.settings.conns_per_peer)
    }

    /// Something has happened to rails or hosts.
    ///
    /// # Errors
    /// An interface can't be served.
    pub(crate) fn happened(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        what: &Happening<'_>,
    ) -> Result<(), String> {
        match *what {
            Happening::RailAdded(ix) => self.rail_added(cx, ix)?,
            Happening::Suspended(_) | Happening::Resumed(_) => {}
            Happening::LinksChanged => {
                for n in 0..self.rigs.len() as u32 {
                    let Some(rig) = self.rigs[n as usize].as_mut() else { continue };
                    let host: &Host = &cx.hosts[n as usize];
                    if host.is_running() {
                        rig.set(host);
                        rig.armed = Instant::FAR_FUTURE;
                        self.work(cx, HostId(n));
                    }
                }
            }
            Happening::CarrierGone(ix) => self.device(cx, ix, DeviceEvent::PortError),
            Happening::CarrierBack(ix) => self.device(cx, ix, DeviceEvent::PortActive),
            Happening::RailRemoved(ix, ni) => {
                let Some(id) = cx.directory.rail(ix).host else { return Ok(()) };
                let now = cx.now;
                let Some(rig) = self.rig(id) else { return Ok(()) };
                let packets = rig.stop(now, &mut cx.hosts[id.0 as usize], ni);
                cx.host(id);
                self.carry(cx, id, packets);
            }
            Happening::HostDied(id) => {
                let local = cx.hosts[id.0 as usize].clock.local(cx.now);
                let resets = cx.hosts[id.0 as usize].resets;
                if let Some(rig) = self.rig(id).filter(|_| resets) {
                    rig.leave(local);
                    self.ship(cx, id);
                }
                if let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::take) {
                    self.violations.extend(rig.into_violations());
                }
            }
            Happening::Reset(is_meant) => {
                for n in 0..self.rigs.len() as u32 {
                    let directory = &*cx.directory;
                    let Some(rig) = self.rigs[n as usize].as_mut() else { continue };
                    rig.break_those(|own, other| {
                        let (own, other) = (directory.find(own), directory.find(other));
                        own.zip(other).is_some_and(|(own, other)| is_meant(own, other))
                    });
                    self.work(cx, HostId(n));
                }
            }
            Happening::Adapter(ix, change) => match change {
                AdapterChange::Fatal => self.device(cx, ix, DeviceEvent::Fatal),
                AdapterChange::Recovered => self.device(cx, ix, DeviceEvent::PortActive),
                AdapterChange::Rate(rate) => self.device(cx, ix, DeviceEvent::Rate(rate)),
                AdapterChange::Completions(one_in) => {
                    self.at(cx, ix, |rig, ni| rig.fault(ni, |f| f.completion_loss = one_in));
                }
                AdapterChange::Credits(kept) => {
                    self.at(cx, ix, |rig, ni| rig.fault(ni, |f| f.withholds_credits = kept));
                }
            },
        }
        Ok(())
    }

    /// Does something at the adapter of a rail, if it has one.
    fn at(&mut self, cx: &Cx<'_, ByteEvent>, ix: RailIx, what: impl FnOnce(&mut Rig, NiId)) {
        let Some(id) = cx.directory.rail(ix).host else { return };
        let Some(ni) = cx.hosts[id.0 as usize].ni_of(ix) else { return };
        if let Some(rig) = self.rig(id) {
            what(rig, ni);
        }
    }

    fn device(&mut self, cx: &mut Cx<'_, ByteEvent>, ix: RailIx, event: DeviceEvent) {
        self.at(cx, ix, |rig, ni| rig.device(ni, event));
        if let Some(id) = cx.directory.rail(ix).host {
            self.work(cx, id);
        }
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.rigs.iter().flatten().map(Rig::in_hand).sum()
    }

    /// What must not be, since the last call.
    pub(crate) fn violations(&mut self) -> Vec<String> {
        let mut all = core::mem::take(&mut self.violations);
        all.extend(self.rigs.iter_mut().flatten().flat_map(Rig::take_violations));
        all
    }

    /// Whether credits balance where nothing is under way.
    pub(crate) fn check(&self) -> Result<(), String> {
        ledger::balance(&self.rigs.iter().flatten().collect::<Vec<_>>())
    }
}
