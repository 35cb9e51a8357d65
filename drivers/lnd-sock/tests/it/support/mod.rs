//! Stand-ins for what is around a driver.

pub(crate) mod upstairs;
pub(crate) mod world;

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use lnd_sock::NiStart;
use lnet_types::{Net, NiId, Nid};
use slotmap::KeyData;

pub(crate) use upstairs::{Decision, Mem, Upstairs, put};
pub(crate) use world::{Raw, Stands, World};

/// The interface that tests use; another one by another number.
pub(crate) fn ni(n: u64) -> NiId {
    NiId::from(KeyData::from_ffi(1 << 32 | n))
}

/// `10.0.0.n`.
pub(crate) fn addr(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, n).into()
}

/// `10.0.0.n@tcp`.
pub(crate) fn nid(n: u8) -> Nid {
    Nid::from_ip(Net::TCP, addr(n))
}

/// An interface at `10.0.0.n`, with one connection of each type.
pub(crate) fn ni_start(n: u8) -> NiStart {
    NiStart {
        namespace: None,
        ni: ni(1),
        nid: nid(n),
        addr: addr(n),
        interface: None,
        incarnation: 1000 + u64::from(n),
        conns_per_peer: 1,
        tos: -1,
        lnd_timeout: Duration::from_secs(50),
    }
}
