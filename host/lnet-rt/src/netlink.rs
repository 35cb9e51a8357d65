//! The machine's network interfaces, and what happens to them: a list read over netlink, kept up to
//! date by the kernel's notices, and the test that says whether an interface of the node stands on
//! firm ground (K-60, K-61). No privileges are needed.
//!
//! `Stack::watch_links` reports to the node; names and addresses for configuration come from
//! [`Interfaces`].

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use lnd_sock::Namespace;
use lnet::Link;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, State};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// One address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    /// The kernel's label (IPv4 only): the interface's name, or an alias such as `eth0:1`.
    pub label: Option<String>,
}

/// One network interface of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Set up by the administrator.
    pub up: bool,
    /// The loopback device.
    pub loopback: bool,
    /// The operational state, as RFC 2863 has it, is not one of being down.
    pub operational: bool,
    /// The physical layer has a carrier.
    pub carrier: bool,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<Address>,
}

impl Interface {
    /// Nominal speed in Mbit/s, where the device reports it.
    pub fn speed_mbps(&self) -> Option<u32> {
        let path = format!("/sys/class/net/{}/speed", self.name);
        // Devices without the notion fail to read or say -1.
        std::fs::read_to_string(path).ok()?.trim().parse().ok().filter(|n| *n > 0)
    }

    /// Whether packets to `ip` end here: one of the addresses, or on the loopback device any
    /// address of their networks (all of 127.0.0.0/8).
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.ip == ip || (self.loopback && same_network(a, ip)))
    }

    /// Packets can leave by it.
    pub(crate) const fn is_working(&self) -> bool {
        self.up && self.operational && self.carrier
    }

    /// Usable or not, for an NI with address `ip` (K-60).
    fn link(&self, ip: IpAddr) -> Link {
        if self.is_working() && self.has_address(ip) { Link::Up } else { Link::Down }
    }
}

fn same_network(of: &Address, ip: IpAddr) -> bool {
    match (of.ip, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(of.prefix)).unwrap_or(0);
            (a.to_bits() ^ b.to_bits()) & mask == 0
        }
        _ => false,
    }
}

/// The machine's network interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces(BTreeMap<u32, Interface>);

impl Interfaces {
    /// Reads the list from the kernel.
    ///
    /// # Errors
    /// Those of a netlink socket.
    pub fn load() -> io::Result<Self> {
        Self::load_in(None)
    }

    /// The same in another network namespace.
    ///
    /// # Errors
    /// Those of a netlink socket; that of going there.
    pub fn load_in(namespace: Option<&Namespace>) -> io::Result<Self> {
        let mut table = Self::default();
        let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let socket = route_socket(namespace)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        for request in [links, addresses] {
            table.dump(&socket, request)?;
        }
        Ok(table)
    }

    /// All interfaces, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.0.values()
    }

    /// The interface called `name`.
    pub fn named(&self, name: &str) -> Option<&Interface> {
        self.iter().find(|i| i.name == name)
    }

    /// The interface and address that `name` means: an interface's first address, IPv4 before IPv6
    /// that is not link-local, or the address with that label (`eth0:1`).
    pub fn resolve(&self, name: &str) -> Option<(&Interface, IpAddr)> {
        let usable = |a: &&Address| match a.ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        };
        if let Some(i) = self.named(name) {
            let first = i.addresses.iter().filter(usable).min_by_key(|a| a.ip.is_ipv6())?;
            return Some((i, first.ip));
        }
        self.iter().find_map(|i| {
            let labelled = i.addresses.iter().find(|a| a.label.as_deref() == Some(name))?;
            Some((i, labelled.ip))
        })
    }

    /// The interface that has the address `ip`.
    pub fn with_address(&self, ip: IpAddr) -> Option<&Interface> {
        let exact = self.iter().find(|i| i.addresses.iter().any(|a| a.ip == ip));
        exact.or_else(|| self.iter().find(|i| i.has_address(ip)))
    }

    /// The interface with the kernel's number `index`.
    pub(crate) fn numbered(&self, index: u32) -> Option<&Interface> {
        self.0.get(&index)
    }

    /// The device of an NI with address `ip`, which was configured by the name `device`.
    pub(crate) fn on(&self, device: Option<&str>, ip: IpAddr) -> Option<&Interface> {
        match device {
            // An alias is an address of the device before the colon.
            Some(name) => self.named(name.split(':').next().unwrap_or(name)),
            None => self.with_address(ip),
        }
    }

    /// The condition of an NI with address `ip`, on `device` if it was configured by that name
    /// (K-60). A device that is gone is down, and so is an address that no device has.
    pub(crate) fn link(&self, device: Option<&str>, ip: IpAddr) -> Link {
        self.on(device, ip).map_or(Link::Down, |i| i.link(ip))
    }

    fn dump(&mut self, socket: &Socket, request: RouteNetlinkMessage) -> io::Result<()> {
        let mut packet =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
        packet.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        packet.header.sequence_number = 1;
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        socket.send(&bytes, 0)?;
        loop {
            let (bytes, _) = socket.recv_from_full()?;
            for message in messages(&bytes) {
                match message {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(e) => return Err(e.to_io()),
                    NetlinkPayload::InnerMessage(m) => _ = self.apply(&m),
                    _ => {}
                }
            }
        }
    }

    /// Takes in a notice. Returns whether it was about interfaces.
    fn apply(&mut self, message: &RouteNetlinkMessage) -> bool {
        match message {
            RouteNetlinkMessage::NewLink(m) if is_plain(m) => self.link_changed(m),
            RouteNetlinkMessage::DelLink(m) if is_plain(m) => {
                self.0.remove(&m.header.index);
            }
            RouteNetlinkMessage::NewAddress(m) => self.address_changed(m, true),
            RouteNetlinkMessage::DelAddress(m) => self.address_changed(m, false),
            _ => return false,
        }
        true
    }

    fn link_changed(&mut self, m: &LinkMessage) {
        let interface = self.0.entry(m.header.index).or_insert_with(|| Interface {
            index: m.header.index,
            name: String::new(),
            up: false,
            loopback: false,
            operational: true,
            carrier: true,
            mtu: 0,
            addresses: Vec::new(),
        });
        interface.up = m.header.flags.contains(LinkFlags::Up);
        interface.loopback = m.header.flags.contains(LinkFlags::Loopback);
        for attribute in &m.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Carrier(carrier) => interface.carrier = *carrier != 0,
                LinkAttribute::OperState(state) => {
                    interface.operational =
                        !matches!(state, State::Down | State::LowerLayerDown | State::NotPresent);
                }
                _ => {}
            }
        }
    }

    fn address_changed(&mut self, m: &AddressMessage, present: bool) {
        let Some(interface) = self.0.get_mut(&m.header.index) else { return };
        let (mut local, mut remote, mut label) = (None, None, None);
        for attribute in &m.attributes {
            match attribute {
                // On a point-to-point link the plain address is the other end's.
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => remote = Some(*ip),
                AddressAttribute::Label(l) => label = Some(l.clone()),
                _ => {}
            }
        }
        let Some(ip) = local.or(remote) else { return };
        let prefix = m.header.prefix_len;
        let at = interface.addresses.iter().position(|a| a.ip == ip && a.prefix == prefix);
        match (at, present) {
            (Some(at), true) => interface.addresses[at].label = label,
            (None, true) => interface.addresses.push(Address { ip, prefix, label }),
            (Some(at), false) => _ = interface.addresses.remove(at),
            (None, false) => {}
        }
    }
}

/// A netlink socket, which belongs to the namespace that it is made in.
pub(crate) fn route_socket(namespace: Option<&Namespace>) -> io::Result<Socket> {
    match namespace {
        None => Socket::new(NETLINK_ROUTE),
        Some(namespace) => namespace.within(|| Socket::new(NETLINK_ROUTE))?,
    }
}

/// Bridges send notices about their ports in the same form; those say nothing about the device.
fn is_plain(m: &LinkMessage) -> bool {
    m.header.interface_family == AddressFamily::Unspec
}

/// The messages of a datagram; what can't be parsed is left out.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = NetlinkPayload<RouteNetlinkMessage>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let len = rest.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b) as usize)?;
            if len < 16 || len > rest.len() {
                return None;
            }
            let (this, next) = rest.split_at(len);
            rest = next.get(len.next_multiple_of(4) - len..).unwrap_or(&[]);
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(this) {
                Ok(message) => return Some(message.payload),
                Err(e) => tracing::debug!("netlink message of {len} bytes: {e}"),
            }
        }
    })
}

/// Groups of `rtnetlink(7)`: links, IPv4 addresses, IPv6 addresses.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// The list, kept up to date.
pub(crate) struct Monitor {
    socket: Socket,
    table: Interfaces,
    /// The namespace that it looks at, if it is not the stack's.
    namespace: Option<Namespace>,
    /// What its readiness is reported under.
    token: Token,
    /// Notices were lost, and the list has not been read since.
    overrun: bool,
}

impl Monitor {
    pub(crate) fn new(
        registry: &Registry,
        token: Token,
        namespace: Option<Namespace>,
    ) -> io::Result<Self> {
        let mut socket = route_socket(namespace.as_ref())?;
        // First the notices, then the list: what happens in between is seen twice, not never.
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        socket.set_non_blocking(true)?;
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        let table = Interfaces::load_in(namespace.as_ref())?;
        Ok(Self { socket, table, namespace, token, overrun: false })
    }

    /// Whether it looks at this namespace; `None` is the stack's own.
    pub(crate) fn is_of(&self, namespace: Option<&Namespace>) -> bool {
        self.namespace.as_ref() == namespace
    }

    /// Whether it has lost notices and could not read the list since.
    pub(crate) const fn is_behind(&self) -> bool {
        self.overrun
    }

    pub(crate) const fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn table(&self) -> &Interfaces {
        &self.table
    }

    /// Takes in what the kernel has to say. Returns whether anything may have changed.
    pub(crate) fn turn(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.socket.recv_from_full() {
                // Older than the list that is read below.
                Ok(_) if self.overrun => {}
                Ok((bytes, _)) => {
                    for message in messages(&bytes) {
                        if let NetlinkPayload::InnerMessage(m) = message {
                            changed |= self.table.apply(&m);
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // ENOBUFS: notices were lost. Until the queue is empty more may be, without a word.
                    tracing::debug!("netlink: {e}; reading the list of interfaces again");
                    self.overrun = true;
                }
            }
        }
        if self.overrun {
            match Interfaces::load_in(self.namespace.as_ref()) {
                Ok(table) => {
                    self.table = table;
                    self.overrun = false;
                    changed = true;
                }
                // The next turn tries again.
                Err(e) => tracing::warn!("reading the list of interfaces: {e}"),
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lo(up: bool) -> Interface {
        let ip = "127.0.0.1".parse().unwrap();
        Interface {
            index: 1,
            name: "lo".into(),
            up,
            loopback: true,
            operational: true,
            carrier: up,
            mtu: 65536,
            addresses: vec![Address { ip, prefix: 8, label: Some("lo".into()) }],
        }
    }

    fn eth(label: &str) -> Interface {
        let ip = |s: &str| s.parse().unwrap();
        Interface {
            index: 2,
            name: "eth0".into(),
            loopback: false,
            addresses: vec![
                Address { ip: ip("fe80::1"), prefix: 64, label: None },
                Address { ip: ip("fd00::1"), prefix: 64, label: None },
                Address { ip: ip("10.0.0.1"), prefix: 24, label: Some("eth0".into()) },
                Address { ip: ip("10.0.0.2"), prefix: 24, label: Some(label.into()) },
            ],
            ..lo(true)
        }
    }

    fn table(list: impl IntoIterator<Item = Interface>) -> Interfaces {
        Interfaces(list.into_iter().map(|i| (i.index, i)).collect())
    }

    #[test]
    fn names_and_aliases_mean_their_addresses() {
        let t = table([lo(true), eth("eth0:1")]);
        let of = |name| t.resolve(name).map(|(i, ip)| (i.index, ip.to_string()));
        assert_eq!(of("eth0"), Some((2, "10.0.0.1".into())));
        assert_eq!(of("eth0:1"), Some((2, "10.0.0.2".into())));
        assert_eq!(of("eth0:2"), None);
        let mut six = eth("x");
        six.addresses.truncate(2);
        let t = table([six]);
        assert_eq!(t.resolve("eth0").unwrap().1, "fd00::1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn an_interface_is_down_without_address_carrier_or_device() {
        let ip = "10.0.0.2".parse().unwrap();
        let good = eth("eth0:1");
        let link = |i: &Interface| table([i.clone()]).link(Some("eth0:1"), ip);
        assert_eq!(link(&good), Link::Up);
        assert_eq!(link(&Interface { up: false, ..good.clone() }), Link::Down);
        assert_eq!(link(&Interface { carrier: false, ..good.clone() }), Link::Down);
        assert_eq!(link(&Interface { operational: false, ..good.clone() }), Link::Down);
        assert_eq!(link(&Interface { addresses: vec![], ..good.clone() }), Link::Down);
        assert_eq!(link(&Interface { name: "eth1".into(), ..good.clone() }), Link::Down);
        assert_eq!(table([good]).link(None, ip), Link::Up);
    }

    #[test]
    fn every_address_of_its_network_is_on_the_loopback_device() {
        let t = table([lo(true), eth("eth0:1")]);
        let up = |ip: &str| t.link(None, ip.parse().unwrap());
        assert_eq!(up("127.3.2.1"), Link::Up);
        assert_eq!(up("10.0.0.7"), Link::Down, "only the loopback device takes all of its network");
        assert_eq!(table([lo(false)]).link(Some("lo"), "127.0.0.1".parse().unwrap()), Link::Down);
    }

    #[test]
    fn this_machine_has_a_loopback_device() {
        let t = Interfaces::load().unwrap();
        let lo = t.iter().find(|i| i.loopback).expect("no loopback device");
        assert!(lo.index > 0 && !lo.name.is_empty() && lo.mtu > 0, "{lo:?}");
        assert_eq!(t.named(&lo.name), Some(lo));
    }

    #[test]
    fn truncated_and_odd_datagrams_end_quietly() {
        let mut bytes = 20u32.to_ne_bytes().to_vec();
        bytes.extend([0xff; 30]);
        for len in 0..bytes.len() {
            assert!(messages(&bytes[..len]).count() <= 1);
        }
        bytes[..4].copy_from_slice(&0u32.to_ne_bytes());
        assert_eq!(messages(&bytes).count(), 0, "a length of zero must not loop");
    }
}
