//! The system's routes, asked one at a time over netlink: by which device it would send. No privileges
//! are needed.

use core::net::IpAddr;
use std::io;

use lnd_sock::Namespace;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr};

use crate::netlink::{messages, route_socket};

/// Asks for routes.
pub(crate) struct Routes(Socket);

/// What the system says of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It would send by the device of this number.
    Device(u32),
    /// It knows none.
    None,
}

impl Routes {
    /// The routes of a network namespace; `None` is the stack's own.
    ///
    /// # Errors
    /// Those of a netlink socket.
    pub(crate) fn open(namespace: Option<&Namespace>) -> io::Result<Self> {
        let socket = route_socket(namespace)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// The route of packets from an address of this machine.
    ///
    /// # Errors
    /// Those of a netlink socket, and of a system that gives neither a route nor says that there is none.
    pub(crate) fn find(&self, from: IpAddr, to: IpAddr) -> io::Result<Route> {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let header = RouteHeader {
            address_family: if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
            destination_prefix_length: bits,
            source_prefix_length: bits,
            ..RouteHeader::default()
        };
        let attributes =
            vec![RouteAttribute::Source(from.into()), RouteAttribute::Destination(to.into())];
        let mut message = RouteMessage::default();
        (message.header, message.attributes) = (header, attributes);
        let request = RouteNetlinkMessage::GetRoute(message);
        let mut packet =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
        packet.header.flags = NLM_F_REQUEST;
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let (bytes, _) = self.0.recv_from_full()?;
        for message in messages(&bytes) {
            match message {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                    let device = route.attributes.iter().find_map(|a| match a {
                        RouteAttribute::Oif(index) => Some(*index),
                        _ => None,
                    });
                    return device
                        .map(Route::Device)
                        .ok_or_else(|| io::ErrorKind::InvalidData.into());
                }
                NetlinkPayload::Error(e) => {
                    let error = e.to_io();
                    return match error.kind() {
                        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                            Ok(Route::None)
                        }
                        _ => Err(error),
                    };
                }
                _ => {}
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Interfaces;

    #[test]
    fn what_is_here_goes_by_the_loopback_device() {
        let lo = Interfaces::load().unwrap().iter().find(|i| i.loopback).unwrap().index;
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let routes = Routes::open(None).unwrap();
        for to in ["127.0.0.1", "127.9.9.9"] {
            assert_eq!(routes.find(here, to.parse().unwrap()).unwrap(), Route::Device(lo));
        }
    }
}
