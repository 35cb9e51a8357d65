//! What RDMA interfaces have of their own: defaults, the interface that a request means, what is shown.

use std::time::Duration;

use lnet_admin::{LndSnapshot, RdmaPortSnapshot};
use lnet_config::NetAdd;
use lnet_rt::{IbConfig, IbNi, Interfaces, Namespace, Stack, Verbs, interface_of_rdma_device};
use lnet_types::{Errno, NetType, NiId, Nid};

/// Settings of o2iblnd for nets to come.
#[derive(Clone, Debug)]
pub(crate) struct IbDefaults {
    /// Seconds; 0 follows the node's derived time-out.
    pub(crate) timeout_s: u32,
    legacy_status: bool,
}

impl IbDefaults {
    pub(crate) fn new(conduct: &lnet::Conduct) -> Self {
        Self {
            // As socklnd: the kernel's driver has its own 50 s.
            timeout_s: if conduct.keeps_driver_timeout { 50 } else { 0 },
            legacy_status: conduct.closes_with_legacy_status,
        }
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        (self.timeout_s != 0).then(|| Duration::from_secs(u64::from(self.timeout_s)))
    }
}

/// What was asked for of one interface, after the bounds of the kernel's driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) peercredits_hiw: u16,
    pub(crate) concurrent_sends: u16,
}

/// The depth of connections: forced into what the protocol has room for.
pub(crate) fn depth(peer_credits: u32) -> u32 {
    peer_credits.clamp(8, 255)
}

impl Made {
    pub(crate) fn new(add: &NetAdd, peer_credits: u32) -> Self {
        let depth = u16::try_from(depth(peer_credits)).unwrap_or(255);
        let asked = |value: Option<u32>| value.and_then(|v| u16::try_from(v).ok()).unwrap_or(0);
        let sends = match asked(add.lnd.concurrent_sends) {
            0 => depth,
            n => n.clamp(depth / 2, depth * 2),
        };
        Self {
            peercredits_hiw: asked(add.lnd.peercredits_hiw).clamp(depth / 2, depth - 1),
            concurrent_sends: sends,
        }
    }
}

/// Whether a request can be served at all: what is missing on this machine, or that it comes from
/// another namespace than the daemon's, whose devices are not reached from here.
pub(crate) fn check(namespace: Option<&Namespace>) -> Result<(), (Errno, String)> {
    if namespace.is_some() {
        let why = "RDMA interface: must be in the network namespace of the daemon".to_owned();
        return Err((Errno::EOPNOTSUPP, why));
    }
    Verbs::available().map_err(|e| (e.errno(), e.to_string()))
}

/// The request with the names of RDMA devices as those of their network interfaces, and with the first
/// device of the machine where it names nothing.
pub(crate) fn by_interface(add: &NetAdd, table: &Interfaces) -> NetAdd {
    let mut add = add.clone();
    for interface in &mut add.interfaces {
        if table.named(&interface.name).is_none()
            && let Some(name) = interface_of_rdma_device(&interface.name)
        {
            interface.name = name;
        }
    }
    if add.interfaces.is_empty() && add.nid.is_none() {
        let devices = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
        let mut devices: Vec<_> =
            devices.map(|d| d.file_name().to_string_lossy().into_owned()).collect();
        devices.sort();
        let first = devices.iter().find_map(|device| {
            interface_of_rdma_device(device).filter(|name| table.resolve(name).is_some())
        });
        add.interfaces.extend(first.map(|name| lnet_config::Interface { name, cpts: None }));
    }
    add
}

/// The interface as the runtime takes it.
pub(crate) fn ni(nid: Nid, made: Made, conns_per_peer: u8, defaults: &IbDefaults) -> IbNi {
    let config = IbConfig {
        highwater: made.peercredits_hiw,
        concurrent_sends: made.concurrent_sends,
        conns_per_peer,
        legacy_status: defaults.legacy_status,
        ..IbConfig::default()
    };
    IbNi { config, timeout: defaults.timeout(), ..IbNi::new(nid) }
}

/// What `net show` prints of an interface.
pub(crate) fn snapshot(made: Made, conns_per_peer: u8, tos: i16, timeout_s: u32) -> LndSnapshot {
    LndSnapshot::O2ib {
        peercredits_hiw: made.peercredits_hiw.into(),
        concurrent_sends: made.concurrent_sends.into(),
        conns_per_peer: conns_per_peer.into(),
        timeout_s,
        tos: tos.into(),
        port: RdmaPortSnapshot::default(),
    }
}

/// The port of an interface as it is now.
pub(crate) fn port(stack: &Stack, ni: NiId) -> Option<RdmaPortSnapshot> {
    let port = stack.ib()?.ports().find(|port| port.ib.ni() == ni)?;
    let (state, pins) = (port.adapter.port_state(), port.adapter.pins());
    Some(RdmaPortSnapshot {
        active: state.active,
        rate_mbps: state.rate_mbps,
        degraded: port.ib.is_degraded(),
        connections: u32::try_from(port.ib.connections(None)).unwrap_or(u32::MAX),
        pinned: pins.pinned,
        pinned_max: port.adapter.pinned_max(),
        registered: pins.registered,
        found: pins.found,
        locked_limit: lnet_rt::locked_limit(),
    })
}

/// Whether a network is one of RDMA.
pub(crate) fn is_rdma(nid: Nid) -> bool {
    nid.net().kind == NetType::O2IB
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(credits: u32, hiw: Option<u32>, sends: Option<u32>) -> (u16, u16) {
        let add = r#"{"net": "o2ib"}"#;
        let mut add: NetAdd = serde_json::from_str(add).unwrap();
        (add.lnd.peercredits_hiw, add.lnd.concurrent_sends) = (hiw, sends);
        let made = Made::new(&add, credits);
        (made.peercredits_hiw, made.concurrent_sends)
    }

    #[test]
    fn settings_are_forced_into_the_bounds_of_the_kernel_s_driver() {
        assert_eq!(made(8, None, None), (4, 8), "what the recorded node shows");
        assert_eq!(made(128, None, None), (64, 128));
        assert_eq!(made(16, Some(3), Some(3)), (8, 8));
        assert_eq!(made(16, Some(99), Some(99)), (15, 32));
        assert_eq!((depth(2), depth(1000)), (8, 255));
    }
}
