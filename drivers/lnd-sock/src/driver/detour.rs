//! Streams that stay on the device of their interface. Between interfaces of different IP networks the
//! system's route leaves by the device that is in the peer's network, which need not be the one of the
//! interface that a message was given to: a lost link then takes streams of interfaces with it whose own
//! link is up. While that lasts they use their own device, and so does the listener: its answer to a peer
//! that connects would have no route, or a silent one. Which ones those are, and when, is for the shell to
//! find out (`lnet-rt`, `detour.rs`), for it knows the routes.

use core::net::IpAddr;
use std::collections::BTreeSet;

use lnet_types::{Errno, NiId};

use super::SockDriver;
use super::conn::Phase;
use crate::peer::ConnKey;
use crate::streams::{StreamId, Streams};

/// What stays on the device of an interface.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The device.
    pub device: String,
    /// The peers' addresses to which streams stay on it.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether the listener does, too: it hears no other device then.
    pub listener: bool,
}

impl Kept {
    /// The device for a stream to `to`; `None`: the routes decide.
    pub(super) fn device_for(&self, to: IpAddr) -> Option<&str> {
        self.addresses.contains(&to).then_some(self.device.as_str())
    }

    /// The device for a listener; `None`: the routes decide.
    pub(super) fn device_for_any(&self) -> Option<&str> {
        self.listener.then_some(self.device.as_str())
    }
}

impl<S: Streams> SockDriver<S> {
    /// The addresses of the peers that any interface has: a peer may connect to another one next.
    pub fn peer_addresses(&self) -> BTreeSet<IpAddr> {
        self.peers.values().map(|peer| peer.addr).collect()
    }

    /// From here on what `kept` names stays on its device, and routes decide about all other streams of `ni`
    /// again. Without the right to undo it nothing is done.
    pub fn keep_to_device(&mut self, ni: NiId, kept: Kept) {
        let Some(state) = self.nis.get_mut(ni) else { return };
        if state.kept == kept {
            return;
        }
        let before = core::mem::replace(&mut state.kept, kept);
        if before.listener != state.kept.listener {
            self.keep_listeners(ni);
        }
        let conns: Vec<(ConnKey, IpAddr)> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.ni == ni && !matches!(conn.phase, Phase::Draining))
            .map(|(key, conn)| (key, conn.remote.ip()))
            .collect();
        for (key, to) in conns {
            let Some(kept) = self.nis.get(ni).map(|state| &state.kept) else { return };
            let device = kept.device_for(to);
            if device.is_some() == before.device_for(to).is_some() {
                continue;
            }
            let Some(stream) = self.conns.get(key).map(|conn| conn.stream) else { continue };
            match self.streams.keep_to(stream, device) {
                Ok(()) => tracing::debug!(%to, ?device, "stream stays on a device"),
                Err(errno @ (Errno::EPERM | Errno::EOPNOTSUPP)) => {
                    tracing::debug!(%to, %errno, "streams follow the routes");
                    if let Some(state) = self.nis.get_mut(ni) {
                        state.kept = Kept::default();
                    }
                    return;
                }
                // The stream has ended, or its device is gone: reading and writing will tell.
                Err(errno) => tracing::debug!(%to, ?device, %errno, "stream stays on a device"),
            }
        }
    }

    /// The listeners of an interface stay where its streams do.
    pub(super) fn keep_listeners(&mut self, ni: NiId) {
        let Some(state) = self.nis.get(ni) else { return };
        let device = state.kept.device_for_any();
        for ((namespace, at), (listener, _)) in &self.listeners {
            if *namespace == state.namespace
                && at.ip() == state.addr
                && let Err(errno) = self.streams.keep_listener_to(*listener, device)
            {
                tracing::debug!(%at, ?device, %errno, "listener stays on a device");
            }
        }
    }

    /// A stream that has come in is where its listener is: the routes decide about it again, unless it is
    /// one of those that stay.
    pub(super) fn keep_accepted(&mut self, ni: NiId, stream: StreamId, from: IpAddr) {
        let Some(state) = self.nis.get(ni) else { return };
        if state.kept.device_for_any().is_some()
            && let Err(errno) = self.streams.keep_to(stream, state.kept.device_for(from))
        {
            tracing::debug!(%from, %errno, "stream stays on a device");
        }
    }
}
