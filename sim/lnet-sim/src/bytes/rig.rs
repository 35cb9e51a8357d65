//! The driver of one host, over its sockets, and its turn.

use lnd_sock::{NiStart, SockConfig, SockDriver, Suspicion, TimeLimits, Upper};
use lnet::{Doubt, InDoubt, Node, Rx, Verdict};
use lnet_scenario::ByteSettings;
use lnet_types::{Fault, Instant, MsgId, NiId, Nid, PeerNiId, Prng, RxId};
use lnet_wire::Hdr;

use super::sockets::Sockets;
use crate::fabric::GONE;
use crate::host::{Host, lnd_timeout};

/// Rounds of one turn. Each moves something on; a driver that needs more never comes to rest.
const ROUNDS_MAX: u32 = 1 << 20;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) driver: SockDriver<Sockets>,
    /// Messages that it has taken and not given back.
    pub(super) in_hand: usize,
    /// Messages that a fault has swallowed, to be reported as sent.
    pub(super) swallowed: Vec<MsgId>,
    /// The earliest time for which the world has an event for it.
    pub(super) armed: Instant,
}

/// The node, as the driver calls it: notes whether it was called.
struct Noting<'a> {
    node: &'a mut Node,
    called: bool,
    ended: usize,
}

impl Upper for Noting<'_> {
    fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        self.called = true;
        self.node.rx_header(now, rx, hdr)
    }
    fn peer_ni(&self, known: Option<PeerNiId>, nid: Nid) -> Option<PeerNiId> {
        self.node.peer_ni(known, nid)
    }
    fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        self.called = true;
        self.node.rx_done(now, msg, outcome);
    }
    fn rx_gone(&mut self, now: Instant, ni: NiId, rx: RxId) {
        self.called = true;
        self.node.rx_gone(now, ni, rx);
    }
    fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        self.called = true;
        self.ended += 1;
        self.node.tx_done(now, msg, outcome);
    }
    fn peer_down(&mut self, now: Instant, ni: NiId, nid: Nid, last_alive: Instant) {
        self.called = true;
        self.node.peer_down(now, ni, nid, last_alive);
    }
    fn written_lost(&mut self, now: Instant, ni: NiId, nid: Nid) {
        self.called = true;
        self.node.written_lost(now, ni, nid);
    }
    fn tx_in_doubt(&mut self, now: Instant, messages: Vec<InDoubt>) {
        self.called = true;
        self.node.tx_in_doubt(now, messages);
    }
    fn rail_changed(&mut self, now: Instant, ni: NiId, nid: Nid, doubt: Doubt) {
        self.called = true;
        self.node.rail_changed(now, ni, nid, doubt);
    }
}

impl Rig {
    pub(super) fn new(host: &Host, settings: &ByteSettings, mut rng: Prng) -> Self {
        let seed = rng.next_u64();
        let config = SockConfig {
            checksum: settings.checksum,
            first_version: settings.version,
            legacy_close_status: host.node.tunables().conduct.closes_with_legacy_status,
            ..SockConfig::default()
        };
        let mut rig = Self {
            driver: SockDriver::new(config, Sockets::new(rng), seed),
            in_hand: 0,
            swallowed: Vec::new(),
            armed: Instant::FAR_FUTURE,
        };
        rig.set(host);
        rig
    }

    /// Gives the driver what it derives from the node's tunables, as the shell of a real node does.
    pub(super) fn set(&mut self, host: &Host) {
        let t = host.node.tunables();
        self.driver.set_suspicion((t.rail_suspicion != 0).then(|| Suspicion {
            after: core::time::Duration::from_millis(t.suspect_after_min as u64),
            rtts: t.suspect_after_rtts as u32,
        }));
        let millis = |n: i64| core::time::Duration::from_millis(n as u64);
        self.driver.set_time_limits(TimeLimits {
            connect: millis(t.connect_timeout),
            reconnect: millis(t.reconnect_timeout),
            rto_max: millis(t.tcp_rto_max),
        });
        self.driver.set_retained_per_connection(t.retained_per_connection as usize);
        for rail in &host.rails {
            let limit = lnd_timeout(&host.node, None).unwrap_or_else(|| t.lnd_timeout());
            // Refused for zero only, which the bounds of the tunables exclude.
            let _ = self.driver.set_timeout(rail.ni, limit);
        }
    }

    /// Serves one more interface. `incarnation` differs from that of all its earlier lives.
    pub(super) fn start(
        &mut self,
        host: &Host,
        now: Instant,
        (ni, nid): (NiId, Nid),
        incarnation: u64,
        conns_per_peer: u8,
    ) -> Result<(), String> {
        let addr = nid.ip().ok_or_else(|| format!("{nid} has no IP address"))?;
        let start = NiStart {
            namespace: None,
            ni,
            nid,
            addr,
            interface: None,
            incarnation,
            conns_per_peer,
            tos: -1,
            lnd_timeout: lnd_timeout(&host.node, None)
                .unwrap_or_else(|| host.node.tunables().lnd_timeout()),
        };
        self.driver.ni_start(host.clock.local(now), start).map_err(|e| format!("{nid}: {e}"))
    }

    pub(super) fn sockets(&mut self, now: Instant) -> &mut Sockets {
        let sockets = self.driver.streams_mut();
        sockets.set_now(now);
        sockets
    }

    /// Calls the driver. Returns whether it called its node.
    pub(super) fn call(
        &mut self,
        now: Instant,
        host: &mut Host,
        call: impl FnOnce(
            &mut SockDriver<Sockets>,
            Instant,
            &mut dyn Upper,
            &mut dyn lnet_types::Memory,
        ),
    ) -> bool {
        self.driver.streams_mut().set_now(now);
        let local = host.clock.local(now);
        let mut up = Noting { node: &mut host.node, called: false, ended: 0 };
        call(&mut self.driver, local, &mut up, &mut host.mem);
        self.in_hand = self.in_hand.saturating_sub(up.ended);
        up.called
    }

    /// Everything that the driver can do now. Returns whether it called its node.
    pub(super) fn turn(&mut self, now: Instant, host: &mut Host) -> bool {
        let swallowed = core::mem::take(&mut self.swallowed);
        let mut called = self.call(now, host, |_, local, up, _| {
            for msg in swallowed {
                up.tx_done(local, msg, Ok(()));
            }
        });
        for _ in 0..ROUNDS_MAX {
            let ready = self.driver.streams_mut().take_ready();
            let mut more = !ready.is_empty();
            called |= self.call(now, host, |driver, local, up, mem| {
                if !ready.is_empty() {
                    driver.turn(local, &ready, false, up, mem);
                }
                driver.flush(local, up, mem);
                if driver.poll_timeout().is_some_and(|at| at <= local) {
                    more = true;
                    driver.handle_timeout(local, up, mem);
                    driver.flush(local, up, mem);
                }
            });
            if !more {
                return called;
            }
        }
        panic!("a driver never comes to rest");
    }

    /// An interface goes: what it has in hand comes back.
    pub(super) fn stop(&mut self, now: Instant, host: &mut Host, ni: NiId) -> bool {
        self.call(now, host, |driver, local, up, _| driver.ni_stop(local, ni, up))
    }

    /// The carrier of an interface is back.
    pub(super) fn carrier_back(&mut self, now: Instant, host: &mut Host, ni: NiId) -> bool {
        self.call(now, host, |driver, local, up, _| {
            driver.link_changed(local, ni, lnet::Link::Up, up);
        })
    }

    /// When the driver or its sockets want to be called, by the world's time.
    pub(super) fn next(&self, now: Instant, host: &Host) -> Option<Instant> {
        let driver = self.driver.poll_timeout().map(|local| host.clock.global(local).max(now));
        driver.into_iter().chain(self.driver.streams().next_due()).min()
    }

    /// Takes a message, or swallows it where a fault says so.
    pub(super) fn send(
        &mut self,
        now: Instant,
        host: &Host,
        transmit: lnet::Transmit,
        swallow: bool,
    ) -> Result<(), Fault> {
        if host.rail_of(transmit.ni).is_none() {
            return Err(GONE);
        }
        self.driver.streams_mut().set_now(now);
        if swallow {
            self.swallowed.push(transmit.msg);
        } else {
            self.driver.send(host.clock.local(now), &transmit)?;
        }
        self.in_hand += 1;
        Ok(())
    }
}
