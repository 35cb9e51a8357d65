//! TCP interfaces of a stack: the socket driver, made when the first interface needs it, and the
//! three things that must happen together when an interface comes or goes: node, driver, link watch.

use core::time::Duration;
use std::collections::BTreeSet;

use lnd_sock::{
    AcceptFrom, MioStreams, Namespace, NiStart, SockConfig, SockDriver, Suspicion, TimeLimits,
    conns_per_peer_for,
};
use lnet::{NetTunables, NiSpec, TunableError, Tunables};
use lnet_types::{Errno, Instant, Net, NetType, NiId, Nid};

use crate::clock;
use crate::netlink::Interface;
use crate::numa;
use crate::stack::{DriverId, Lnd, Stack};
use crate::{NiError, clock::random_seed};

/// A TCP interface to be added.
#[derive(Clone, Debug)]
pub struct TcpNi {
    /// Its NID; the address in it is listened on and connected from.
    pub nid: Nid,
    /// The device or alias that it was configured by. Without one, whatever device has the address.
    pub interface: Option<String>,
    /// Tunables of its network; in force if it is the first one there.
    pub tunables: NetTunables,
    /// Bulk connections each way per peer; by the device's speed if `None`.
    pub conns_per_peer: Option<u8>,
    /// Type of service 0 to 255, or -1 for the system's choice.
    pub tos: i16,
    /// The driver's own time limit of one transmission; what the node derives if `None`.
    pub timeout: Option<Duration>,
    /// CPU partitions that it is tied to; see [`Stack::set_ni_cpts`].
    pub cpts: Option<BTreeSet<u32>>,
    /// The network namespace that its address is in, if it is another one than the stack's. Its sockets
    /// are made there, which needs `CAP_SYS_ADMIN`.
    pub namespace: Option<Namespace>,
}

impl TcpNi {
    /// An interface with all the defaults.
    pub fn new(nid: Nid) -> Self {
        Self {
            nid,
            interface: None,
            tunables: NetTunables::SOCK,
            conns_per_peer: None,
            tos: -1,
            timeout: None,
            cpts: None,
            namespace: None,
        }
    }
}

impl Stack {
    /// Settles how the TCP driver works, before its first interface. Without this call it works as
    /// [`SockConfig::default`] says.
    ///
    /// # Errors
    /// `EBUSY` if the driver is there already; those of a poller's registry.
    pub fn enable_tcp(&mut self, config: SockConfig) -> Result<(), NiError> {
        if self.tcp.is_some() {
            return Err(NiError::TcpEnabled);
        }
        let seed = random_seed();
        let id = self.push_driver(|registry, tokens| {
            let streams = MioStreams::new(registry.try_clone()?, tokens);
            Ok(Lnd::Sock(Box::new(SockDriver::new(config, streams, seed))))
        })?;
        self.tcp = Some(id);
        self.set_suspicion();
        Ok(())
    }

    /// The TCP driver, if it is there: its settings, counters and listings.
    pub fn tcp(&self) -> Option<&SockDriver<MioStreams>> {
        match &self.drivers.get(usize::from(self.tcp?.0))?.driver {
            Lnd::Sock(driver) => Some(driver),
            Lnd::Loopback(_) | Lnd::Ib(_) | Lnd::Other(_) => None,
        }
    }

    /// The TCP driver, if it is there, to be set.
    pub fn tcp_mut(&mut self) -> Option<&mut SockDriver<MioStreams>> {
        let DriverId(id) = self.tcp?;
        match &mut self.drivers.get_mut(usize::from(id))?.driver {
            Lnd::Sock(driver) => Some(driver),
            Lnd::Loopback(_) | Lnd::Ib(_) | Lnd::Other(_) => None,
        }
    }

    /// Sets which peers may connect over TCP from now on, and closes what others have opened.
    pub fn set_tcp_accept_from(&mut self, now: Instant, accept_from: AcceptFrom) {
        let Some(DriverId(id)) = self.tcp else { return };
        let slot = self.drivers.get_mut(usize::from(id));
        if let Some(Lnd::Sock(driver)) = slot.map(|slot| &mut slot.driver) {
            driver.set_accept_from(now, accept_from, &mut self.node);
            self.unfinished = true;
        }
    }

    /// Closes the TCP connections of a network to one peer or to all, or with `forget` drops all that the
    /// driver keeps of them. Returns how many peers that were.
    pub fn disconnect_tcp(
        &mut self,
        now: Instant,
        net: Net,
        peer: Option<Nid>,
        forget: bool,
    ) -> usize {
        let nis = self.node.net_views().into_iter().filter(|view| view.net == net);
        let nis: Vec<NiId> = nis.flat_map(|view| view.nis).map(|ni| ni.id).collect();
        let meant = |ni: NiId, nid: Nid| nis.contains(&ni) && peer.is_none_or(|one| one == nid);
        let Some(DriverId(id)) = self.tcp else { return 0 };
        let slot = self.drivers.get_mut(usize::from(id));
        let Some(Lnd::Sock(driver)) = slot.map(|slot| &mut slot.driver) else { return 0 };
        self.unfinished = true;
        driver.disconnect(now, meant, forget, &mut self.node)
    }

    /// Adds a TCP interface: to the node, to the driver, and to the list of those that follow a
    /// device of the machine. If the driver can't serve it, the node does not know it either.
    ///
    /// # Errors
    /// [`NiError`], without any effect.
    pub fn add_tcp_ni(&mut self, new: TcpNi) -> Result<NiId, NiError> {
        let TcpNi { nid, interface, tunables, conns_per_peer, tos, timeout, cpts, namespace } = new;
        let addr = nid.ip().filter(|_| nid.net().kind == NetType::TCP);
        let addr = addr.ok_or(NiError::NotTcp(nid))?;
        if self.tcp.is_none() {
            self.enable_tcp(SockConfig::default())?;
        }
        let Some(driver) = self.tcp else { return Err(NiError::NotTcp(nid)) };
        let interfaces = self.interfaces().unwrap_or_default();
        // What the system tells of devices is about those of the stack's own namespace.
        let device = interfaces.with_address(addr).filter(|_| namespace.is_none());
        let conns_per_peer = conns_per_peer.unwrap_or_else(|| {
            let speed = device.and_then(Interface::speed_mbps);
            conns_per_peer_for(speed.map(|mbps| mbps / 1000))
        });
        let spec = NiSpec { nid, interface: interface.clone(), tunables, lnd_timeout: timeout };
        let ni = self.add_ni(driver, spec).map_err(|errno| NiError::Refused { nid, errno })?;
        if let Err(errno) = self.node.set_ni_cpts(ni, cpts) {
            self.unmake(ni, nid);
            return Err(NiError::Refused { nid, errno });
        }
        let streams = self.tcp_mut().map(SockDriver::streams_mut);
        let namespace_id = streams.and_then(|s| namespace.as_ref().map(|n| s.enter(n)));
        if let Some(id) = namespace_id {
            self.namespaces.insert(ni, id);
        }
        let start = NiStart {
            namespace: namespace_id,
            ni,
            nid,
            addr,
            interface: interface.clone(),
            incarnation: clock::incarnation(),
            conns_per_peer,
            tos,
            lnd_timeout: timeout.unwrap_or_else(|| self.node().tunables().lnd_timeout()),
        };
        let now = self.tick();
        let started = self.tcp_mut().map(|tcp| tcp.ni_start(now, start));
        if let Some(Err(reason)) = started {
            self.unmake(ni, nid);
            return Err(NiError::Driver { nid, reason });
        }
        if timeout.is_none() {
            self.follows_node.push(ni);
        }
        if let Some(device) = device {
            numa::introduce_device(self.node_mut(), ni, &device.name);
        }
        self.place_thread();
        self.watch_in(ni, interface, addr, namespace);
        Ok(ni)
    }

    /// Takes back an interface that could not be started.
    pub(crate) fn unmake(&mut self, ni: NiId, nid: Nid) {
        if let Err(errno) = self.del_ni(ni) {
            tracing::error!("{nid} was not started and can't be removed: {errno}");
        }
    }

    /// Sets a TCP interface's own time limit of one transmission; `None` follows the node.
    ///
    /// # Errors
    /// `ENOENT`: no such TCP interface. `EINVAL`: zero.
    pub fn set_tcp_timeout(&mut self, ni: NiId, timeout: Option<Duration>) -> Result<(), Errno> {
        if self.tcp.is_none() || self.ni_driver.get(ni).copied() != self.tcp {
            return Err(Errno::ENOENT);
        }
        let limit = timeout.unwrap_or_else(|| self.node().tunables().lnd_timeout());
        let set = self.tcp_mut().map(|tcp| tcp.set_timeout(ni, limit));
        if let Some(Err(e)) = set {
            return Err(e.errno());
        }
        self.node_mut().set_lnd_timeout(ni, timeout);
        self.follows_node.retain(|n| *n != ni);
        if timeout.is_none() {
            self.follows_node.push(ni);
        }
        Ok(())
    }

    /// Cuts a TCP interface or restores it, as fault injection: while it is cut its connections are
    /// reset, no peer can connect to it, and connecting from it fails.
    ///
    /// # Errors
    /// `ENOENT`: no such TCP interface. Restoring: its address can't be listened on again.
    pub fn block_tcp_ni(&mut self, ni: NiId, blocked: bool) -> Result<(), NiError> {
        let now = self.tick();
        let Some(id) = self.tcp.filter(|id| self.ni_driver.get(ni) == Some(id)) else {
            return Err(NiError::Refused { nid: Nid::ANY, errno: Errno::ENOENT });
        };
        let slot = self.drivers.get_mut(usize::from(id.0));
        if let Some(Lnd::Sock(tcp)) = slot.map(|slot| &mut slot.driver) {
            tcp.ni_block(now, ni, blocked, &mut self.node)
                .map_err(|reason| NiError::Driver { nid: Nid::ANY, reason })?;
        }
        self.unfinished = true;
        Ok(())
    }

    /// Gives the TCP driver the node's limits of suspicion (DEC-31), its time limits (DEC-46), and how
    /// much a connection retains.
    fn set_suspicion(&mut self) {
        let t = self.node().tunables();
        let limits = (t.rail_suspicion != 0).then(|| Suspicion {
            after: Duration::from_millis(t.suspect_after_min as u64),
            rtts: t.suspect_after_rtts as u32,
        });
        let times = time_limits(t);
        let retained = t.retained_per_connection as usize;
        if let Some(tcp) = self.tcp_mut() {
            tcp.set_suspicion(limits);
            tcp.set_time_limits(times);
            tcp.set_retained_per_connection(retained);
        }
    }

    /// Sets tunables of the node, all or none, and what drivers derive from them.
    ///
    /// # Errors
    /// Those of `Node::set_tunables`.
    pub fn set_tunables(&mut self, changes: &[(&str, i64)]) -> Result<(), TunableError> {
        let now = self.tick();
        self.node_mut().set_tunables(now, changes)?;
        self.set_suspicion();
        self.set_ib_suspicion();
        let limit = self.node().tunables().lnd_timeout();
        for ni in self.follows_node.clone() {
            // Refused only for zero, which the bounds of the tunables exclude.
            if let Some(port) = self.ib_mut().and_then(|ib| ib.port(ni)) {
                if let Err(e) = port.ib.set_timeout(limit) {
                    tracing::error!("time limit of {limit:?}: {e}");
                }
                continue;
            }
            let refused = self.tcp_mut().and_then(|tcp| tcp.set_timeout(ni, limit).err());
            if let Some(e) = refused {
                tracing::error!("time limit of {limit:?}: {e}");
            }
        }
        Ok(())
    }
}

/// The time limits of the TCP driver.
fn time_limits(tunables: &Tunables) -> TimeLimits {
    let millis = |n: i64| Duration::from_millis(n as u64);
    TimeLimits {
        connect: millis(tunables.connect_timeout),
        reconnect: millis(tunables.reconnect_timeout),
        rto_max: millis(tunables.tcp_rto_max),
    }
}
