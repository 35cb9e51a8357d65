//! Interfaces that a lost link of another one has cut off from peers: the system's route to these left by
//! that link. Their streams, those to come included, stay on their own device until the link is back, so that
//! one lost link is one lost interface. In networks where each rail is an IP network of its own, half of the
//! ways between two nodes are of that kind.

use core::net::IpAddr;
use std::collections::BTreeSet;

use lnet::Link;
use lnet_types::NiId;

use crate::netlink::Interfaces;
use crate::routes::{Route, Routes};
use crate::stack::Stack;

impl Stack {
    /// Finds out whose streams have to stay on their device, after a link has changed.
    pub(crate) fn find_detours(&mut self) {
        let all: Vec<NiId> = self.watched.keys().copied().collect();
        for ni in all {
            let Some((device, addresses)) = self.cut_off(ni) else { continue };
            if let Some(tcp) = self.tcp_mut() {
                tcp.keep_to_device(ni, &device, addresses);
            }
        }
    }

    /// The device of a TCP interface, and the peers to which no route leads from it by a link that is
    /// up, while another interface has lost its link.
    fn cut_off(&self, ni: NiId) -> Option<(String, BTreeSet<IpAddr>)> {
        let tcp = self.tcp()?;
        let w = self.watched.get(&ni)?;
        let monitor = self.monitors.iter().find(|m| m.is_of(w.namespace.as_ref()))?;
        let devices = monitor.table();
        let device = devices.on(w.device.as_deref(), w.ip)?;
        let a_link_is_lost =
            self.watched.values().any(|o| o.namespace == w.namespace && o.link == Link::Down);
        let mut addresses = BTreeSet::new();
        if w.link == Link::Up && a_link_is_lost && !device.loopback {
            addresses = tcp.peer_addresses();
            addresses.retain(|to| to.is_ipv4() == w.ip.is_ipv4());
            let routes = Routes::open(w.namespace.as_ref());
            let dead = |to: &IpAddr| match routes.as_ref().map(|r| r.find(w.ip, *to)) {
                Ok(Ok(route)) => leads_nowhere(devices, route),
                // Where nothing can be asked, nothing is known to be wrong.
                Ok(Err(_)) | Err(_) => false,
            };
            addresses.retain(dead);
        }
        Some((device.name.clone(), addresses))
    }
}

/// Whether packets on this route leave by no link that is up.
fn leads_nowhere(devices: &Interfaces, route: Route) -> bool {
    match route {
        Route::Device(index) => devices.numbered(index).is_some_and(|i| !i.is_working()),
        Route::None => true,
    }
}
