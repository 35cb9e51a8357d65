//! What RDMA interfaces have of their own: defaults, the interface that a request means, what is shown.

use std::time::Duration;

use lnet::NetTunables;
use lnet_admin::{LndSnapshot, RdmaPortSnapshot};
use lnet_config::{IbParameters, NetAdd, o2ib_concurrent_sends, o2ib_depth, o2ib_peercredits_hiw};
use lnet_rt::{
    CmConfig, IbConfig, IbNi, Interfaces, Namespace, Stack, Verbs, interface_of_rdma_device,
};
use lnet_types::{Errno, NetType, NiId, Nid};

/// Settings of o2iblnd for nets to come.
#[derive(Clone, Debug)]
pub(crate) struct IbDefaults {
    /// Seconds; 0 follows the node's derived time-out.
    pub(crate) timeout_s: u32,
    legacy_status: bool,
    /// What module parameters say.
    parameters: IbParameters,
}

impl IbDefaults {
    pub(crate) fn new(conduct: &lnet::Conduct, parameters: &IbParameters) -> Self {
        Self {
            // As socklnd: the kernel's driver has its own 50 s.
            timeout_s: parameters.timeout.unwrap_or(match conduct.keeps_driver_timeout {
                true => 50,
                false => 0,
            }),
            legacy_status: conduct.closes_with_legacy_status,
            parameters: parameters.clone(),
        }
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        (self.timeout_s != 0).then(|| Duration::from_secs(u64::from(self.timeout_s)))
    }

    /// What module parameters say.
    pub(crate) const fn parameters(&self) -> &IbParameters {
        &self.parameters
    }

    /// What the driver says to the connection manager.
    pub(crate) fn cm(&self) -> CmConfig {
        let (p, default) = (&self.parameters, CmConfig::default());
        CmConfig {
            service: p.service.unwrap_or(default.service),
            retries: p.retry_count.unwrap_or(default.retries),
            receiver_retries: p.rnr_retry_count.unwrap_or(default.receiver_retries),
            uses_privileged_port: p.use_privileged_port.unwrap_or(default.uses_privileged_port),
            wants_privileged_port: p
                .require_privileged_port
                .unwrap_or(default.wants_privileged_port),
        }
    }

    /// The silence after which a connection is shown to live.
    pub(crate) fn keepalive(&self) -> Duration {
        let asked = self.parameters.keepalive.map(|s| Duration::from_secs(s.into()));
        asked.unwrap_or_else(|| IbConfig::default().keepalive)
    }

    /// The request with the names of RDMA devices as those of their network interfaces. Where it names
    /// nothing: with the interface of the module parameters, else the first device of the machine.
    pub(crate) fn by_interface(&self, add: &NetAdd, table: &Interfaces) -> NetAdd {
        let mut add = add.clone();
        if add.interfaces.is_empty() && add.nid.is_none() {
            let name = self.parameters.ipif_name.clone().or_else(|| first_device(table));
            add.interfaces.extend(name.map(|name| lnet_config::Interface { name, cpts: None }));
        }
        for interface in &mut add.interfaces {
            if table.named(&interface.name).is_none()
                && let Some(name) = interface_of_rdma_device(&interface.name)
            {
                interface.name = name;
            }
        }
        add
    }
}

/// The network interface of the first RDMA device that has an address.
fn first_device(table: &Interfaces) -> Option<String> {
    let devices = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut devices: Vec<_> =
        devices.map(|d| d.file_name().to_string_lossy().into_owned()).collect();
    devices.sort();
    devices.iter().find_map(|device| {
        interface_of_rdma_device(device).filter(|name| table.resolve(name).is_some())
    })
}

/// What was asked for of one interface, after the bounds of the kernel's driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) peercredits_hiw: u16,
    pub(crate) concurrent_sends: u16,
}

/// Tunables of a network after the bounds of the kernel's driver: no peer has more credits than the
/// interface.
pub(crate) fn bounded(tunables: NetTunables) -> NetTunables {
    let peer_credits = o2ib_depth(tunables.peer_credits.min(tunables.credits));
    NetTunables { peer_credits, ..tunables }
}

impl Made {
    pub(crate) fn new(add: &NetAdd, peer_credits: u32) -> Self {
        let depth = o2ib_depth(peer_credits);
        let asked = |value: Option<u32>| value.unwrap_or(0);
        // Twice the depth at most.
        let small = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        Self {
            peercredits_hiw: small(o2ib_peercredits_hiw(asked(add.lnd.peercredits_hiw), depth)),
            concurrent_sends: small(o2ib_concurrent_sends(asked(add.lnd.concurrent_sends), depth)),
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

/// The interface as the runtime takes it.
pub(crate) fn ni(nid: Nid, made: Made, conns_per_peer: u8, defaults: &IbDefaults) -> IbNi {
    let config = IbConfig {
        highwater: made.peercredits_hiw,
        concurrent_sends: made.concurrent_sends,
        conns_per_peer,
        keepalive: defaults.keepalive(),
        legacy_status: defaults.legacy_status,
        ..IbConfig::default()
    };
    IbNi { config, cm: defaults.cm(), timeout: defaults.timeout(), ..IbNi::new(nid) }
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
        mtu: state.mtu,
        ethernet: state.ethernet,
        gid: state.gid,
        pkey: state.pkey,
        roce: port.adapter.roce_version(),
        keepalive_s: u32::try_from(port.ib.config().keepalive.as_secs()).ok(),
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
        assert_eq!((o2ib_depth(2), o2ib_depth(1000)), (8, 255));
        let of = |peer_credits, credits| {
            bounded(NetTunables { peer_credits, credits, ..NetTunables::SOCK }).peer_credits
        };
        assert_eq!((of(64, 256), of(64, 32), of(64, 4)), (64, 32, 8));
    }

    #[test]
    fn module_parameters_are_the_defaults_of_interfaces_to_come() {
        let conduct = lnet::Conduct::new(lnet::Profile::Kernel);
        let of = |text: &str| {
            let all = lnet_config::ModuleParameters::from_modprobe(text).unwrap();
            IbDefaults::new(&conduct, &all.ib)
        };
        let silent = of("");
        assert_eq!((silent.timeout_s, silent.cm()), (50, CmConfig::default()));
        assert_eq!(silent.keepalive(), Duration::from_secs(100));
        let said = of("options ko2iblnd timeout=10 keepalive=30 service=1987 retry_count=3 \
                       rnr_retry_count=2 use_privileged_port=0 require_privileged_port=1\n");
        assert_eq!(
            (said.timeout(), said.keepalive()),
            (Some(Duration::from_secs(10)), Duration::from_secs(30))
        );
        let cm = CmConfig {
            service: 1987,
            retries: 3,
            receiver_retries: 2,
            uses_privileged_port: false,
            wants_privileged_port: true,
        };
        assert_eq!(said.cm(), cm);
        let add: NetAdd = serde_json::from_str(r#"{"net": "o2ib"}"#).unwrap();
        let named = of("options ko2iblnd ipif_name=ib7\n");
        let add = named.by_interface(&add, &Interfaces::default());
        assert_eq!(add.interfaces[0].name, "ib7");
    }
}
