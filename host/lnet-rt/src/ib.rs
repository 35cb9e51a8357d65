//! RDMA interfaces of a stack: the driver with its adapters, made when the first interface needs it, and
//! what must happen together when an interface comes: adapter, node, driver, link watch. `tcp.rs` is the
//! same for TCP.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::fs;

use lnd_ib::{CmConfig, IbConfig, IbDriver, NiStart, Suspicion, Verbs, VerbsConfig};
use lnet::{NetTunables, NiSpec};
use lnet_types::{Errno, NetType, NiId, Nid};

use crate::clock;
use crate::netlink::{Interface, Interfaces};
use crate::numa;
use crate::stack::{DriverId, Lnd, Stack};
use crate::{IbError, NiError};

/// Bytes of memory that an interface pins at most, if nothing else is said.
const PINNED_MAX: u64 = 1 << 30;

/// An RDMA interface to be added.
#[derive(Clone, Debug)]
pub struct IbNi {
    /// Its NID, with the IPv4 address that its device has on a network interface.
    pub nid: Nid,
    /// The network interface that it was configured by. Without one, whatever device has the address.
    pub interface: Option<String>,
    /// Tunables of its network; in force if it is the first one there. `peer_credits` is the depth of
    /// its connections.
    pub tunables: NetTunables,
    /// Settings of the driver. Queue depth, time limit and what the adapter asks for are set from the
    /// other fields.
    pub config: IbConfig,
    /// What it says to the connection manager.
    pub cm: CmConfig,
    /// Type of service 0 to 255, or -1 for the system's choice.
    pub tos: i16,
    /// The driver's own time limit of one transmission; what the node derives if `None`.
    pub timeout: Option<Duration>,
    /// Bytes of memory that it pins at most.
    pub pinned_max: u64,
    /// CPU partitions that it is tied to; see [`Stack::set_ni_cpts`].
    pub cpts: Option<BTreeSet<u32>>,
}

impl IbNi {
    /// An interface with all the defaults.
    pub fn new(nid: Nid) -> Self {
        Self {
            nid,
            interface: None,
            // Those of the kernel's drivers are the same.
            tunables: NetTunables::SOCK,
            config: IbConfig::default(),
            cm: CmConfig::default(),
            tos: -1,
            timeout: None,
            pinned_max: PINNED_MAX,
            cpts: None,
        }
    }
}

/// The network interface of an RDMA device (`mlx5_0`, `rxe0`), by the first port that has one.
pub fn interface_of_rdma_device(device: &str) -> Option<String> {
    if device.contains('/') {
        return None;
    }
    let ports = fs::read_dir(format!("/sys/class/infiniband/{device}/ports")).ok()?;
    let mut ports: Vec<_> = ports.flatten().map(|port| port.path()).collect();
    ports.sort();
    let name = |port: &std::path::PathBuf| {
        let name = fs::read_to_string(port.join("gid_attrs/ndevs/0")).ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    };
    ports.iter().find_map(name)
}

/// The interface and IPv4 address that a name means: a network interface, an RDMA device, an address.
pub(crate) fn resolve(name: &str, table: &Interfaces) -> Result<(Option<String>, IpAddr), IbError> {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok((None, ip));
    }
    let own = interface_of_rdma_device(name);
    let netdev = own.as_deref().unwrap_or(name);
    match table.resolve(netdev) {
        Some((_, ip)) => Ok((Some(netdev.to_owned()), ip)),
        None if table.named(netdev).is_some() => Err(IbError::NoAddress(netdev.to_owned())),
        None => Err(IbError::NoInterface(name.to_owned())),
    }
}

impl Stack {
    /// The RDMA driver, if it is there: its settings, counters and listings.
    pub fn ib(&self) -> Option<&IbDriver<Verbs>> {
        let (DriverId(id), _) = self.ib.as_ref()?;
        match &self.drivers.get(usize::from(*id))?.driver {
            Lnd::Ib(driver) => Some(driver),
            Lnd::Loopback(_) | Lnd::Sock(_) | Lnd::Other(_) => None,
        }
    }

    /// The RDMA driver, if it is there, to be set.
    pub fn ib_mut(&mut self) -> Option<&mut IbDriver<Verbs>> {
        let DriverId(id) = self.ib.as_ref()?.0;
        match &mut self.drivers.get_mut(usize::from(id))?.driver {
            Lnd::Ib(driver) => Some(driver),
            Lnd::Loopback(_) | Lnd::Sock(_) | Lnd::Other(_) => None,
        }
    }

    /// Adds an RDMA interface: opens its device, and tells node, driver and the watch on links. If any
    /// of them refuses, the others do not know it either.
    ///
    /// # Errors
    /// [`NiError`], without any effect. On a machine without RDMA it says what is missing.
    pub fn add_ib_ni(&mut self, new: IbNi) -> Result<NiId, NiError> {
        let IbNi { nid, interface, tunables, config, cm, tos, timeout, pinned_max, cpts } = new;
        let failed = |reason: IbError| NiError::Ib { nid, reason };
        let of_rdma = nid.ip().filter(|_| nid.net().kind == NetType::O2IB);
        let Some(IpAddr::V4(addr)) = of_rdma else { return Err(failed(IbError::NotRdma)) };
        let limit = timeout.unwrap_or_else(|| self.node().tunables().lnd_timeout());
        let depth = u16::try_from(tunables.peer_credits).unwrap_or(u16::MAX);
        // One key opens one place.
        let config = IbConfig { queue_depth: depth, timeout: limit, one_span: true, ..config };
        config.check().map_err(|e| failed(e.into()))?;
        let tos = u8::try_from(tos).ok();
        let verbs = VerbsConfig { addr, tos, pinned_max, resolve: limit / 4, cm };
        let (driver, tokens) = self.adapter_tokens()?;
        let adapter = Verbs::open(verbs, self.poll.registry(), tokens);
        let adapter = adapter.map_err(|e| failed(e.into()))?;
        let device = adapter.port_state();
        tracing::info!(%nid, device = device.device, port = device.port, "RDMA device opened");

        let spec = NiSpec { nid, interface: interface.clone(), tunables, lnd_timeout: timeout };
        let ni = self.add_ni(driver, spec).map_err(|errno| NiError::Refused { nid, errno })?;
        if let Err(errno) = self.node.set_ni_cpts(ni, cpts) {
            self.unmake(ni, nid);
            return Err(NiError::Refused { nid, errno });
        }
        let start = NiStart { ni, nid, incarnation: clock::incarnation() };
        let started = self.ib_mut().map(|ib| ib.ni_start(config, start, adapter));
        if let Some(Err(e)) = started {
            self.unmake(ni, nid);
            return Err(failed(e.into()));
        }
        self.set_ib_suspicion();
        if timeout.is_none() {
            self.follows_node.push(ni);
        }
        let interfaces = self.interfaces().unwrap_or_default();
        if let Some(Interface { name, .. }) = interfaces.with_address(addr.into()) {
            numa::introduce_device(self.node_mut(), ni, name);
        }
        self.place_thread();
        self.watch(ni, interface, addr.into());
        Ok(ni)
    }

    /// The driver, made if there is none, and tokens for one more adapter.
    fn adapter_tokens(&mut self) -> Result<(DriverId, core::ops::Range<usize>), NiError> {
        if self.ib.is_none() {
            let mut all = 0..0;
            let id = self.push_driver(|_, tokens| {
                all = tokens;
                Ok(Lnd::Ib(Box::default()))
            })?;
            self.ib = Some((id, all));
        }
        let refused = NiError::System(std::io::ErrorKind::InvalidInput.into());
        let Some((id, left)) = &mut self.ib else { return Err(refused) };
        if left.len() < Verbs::TOKENS {
            return Err(refused);
        }
        let tokens = left.start..left.start + Verbs::TOKENS;
        left.start = tokens.end;
        Ok((*id, tokens))
    }

    /// Sets an RDMA interface's own time limit of one transmission; `None` follows the node.
    ///
    /// # Errors
    /// `ENOENT`: no such RDMA interface. `EINVAL`: zero.
    pub fn set_ib_timeout(&mut self, ni: NiId, timeout: Option<Duration>) -> Result<(), Errno> {
        let limit = timeout.unwrap_or_else(|| self.node().tunables().lnd_timeout());
        let port = self.ib_mut().and_then(|ib| ib.port(ni)).ok_or(Errno::ENOENT)?;
        port.ib.set_timeout(limit).map_err(|_| Errno::EINVAL)?;
        self.node_mut().set_lnd_timeout(ni, timeout);
        self.follows_node.retain(|n| *n != ni);
        if timeout.is_none() {
            self.follows_node.push(ni);
        }
        Ok(())
    }

    /// Gives the RDMA driver the node's limits of suspicion (DEC-31).
    pub(crate) fn set_ib_suspicion(&mut self) {
        let t = self.node().tunables();
        let limits = (t.rail_suspicion != 0).then(|| Suspicion {
            after: Duration::from_millis(t.suspect_after_min as u64),
            completions: t.suspect_after_rtts as u32,
        });
        if let Some(ib) = self.ib_mut() {
            ib.set_suspicion(limits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeBuilder;

    /// Whatever this machine has: the loopback device is none of RDMA.
    #[test]
    fn a_machine_without_the_device_says_what_is_missing() {
        let error = NodeBuilder::new().ib("lo").build().expect_err("it has no RDMA device there");
        let text = error.to_string();
        let missing = ["library lib", "device /dev/infiniband/rdma_cm", "no RDMA device has it"];
        assert!(missing.iter().any(|words| text.contains(words)), "{text}");
        assert_eq!(error.errno(), Errno::ENETDOWN);
        let error = NodeBuilder::new().ib("no-such-device").build().expect_err("it is not there");
        assert!(error.to_string().contains("interface no-such-device: no network interface"));
        assert_eq!(interface_of_rdma_device("../net"), None);
    }
}
