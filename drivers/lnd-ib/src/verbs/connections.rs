//! Identifiers and queue pairs of connections: made, bound, connected, ended and destroyed.

#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::net::IpAddr;
use core::ops::Range;
use core::ptr::null_mut;

use lnet_types::{Errno, Nid};
use lnet_wire::ib::MSG_MAX;
use slotmap::Key;

use super::device::{last_error, socket_address};
use super::endpoint::{Endpoint, Seat, Start, send_entries};
use super::pages::Pages;
use super::sends::Ended;
use super::sys::{CmId, OPTION_ID, OPTION_REUSEADDR, OPTION_TOS, PS_TCP};
use super::{Place, Verbs};
use crate::adapter::Fact;
use crate::value::{CmEvent, ConnId, QpSize, RequestId};

/// Source ports that connections are asked for from, downwards; another one where the system does not
/// allow these (wire.md 7.1).
pub(super) const PRIVILEGED: Range<u16> = 512..1024;
/// Ports that are tried for one connection.
const PORT_TRIES: usize = 16;

impl Verbs {
    /// A seat for a connection; none where all are taken, which the limits of the driver exclude.
    pub(super) fn take_seat(&mut self, conn: ConnId) -> Seat {
        let index = self.free_places.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1) & 0x3ff_ffff;
        place.conn = Some(conn);
        Seat { index, generation: place.generation }
    }

    pub(super) fn conn_at(places: &[Place], seat: Seat) -> Option<ConnId> {
        let place = places.get(seat.index as usize)?;
        place.conn.filter(|_| place.generation == seat.generation)
    }

    /// The name of a connection, as the context of its identifier; 0 is the listener's.
    pub(super) fn context(conn: ConnId) -> *mut c_void {
        conn.data().as_ffi() as *mut c_void
    }

    pub(super) fn resolve(&mut self, conn: ConnId, to: Nid) -> Result<(), Errno> {
        let Some(IpAddr::V4(to)) = to.ip() else { return Err(Errno::EINVAL) };
        if !self.device.is_open() {
            return Err(Errno::ENODEV);
        }
        let call = self.device.call;
        let mut id: *mut CmId = null_mut();
        // SAFETY: the channel is the device's; the place for the result is this function's.
        let made = unsafe {
            (call.rdma_create_id)(self.device.events, &raw mut id, Self::context(conn), PS_TCP)
        };
        if made != 0 {
            return Err(last_error());
        }
        let seat = self.take_seat(conn);
        self.endpoints.insert(conn, Endpoint::new(call, id, seat));
        self.set_tos(id);
        self.bind(id)?;
        let mut to = socket_address(to, self.config.cm.service);
        // SAFETY: the identifier lives; the address outlives the call.
        let asked = unsafe {
            (call.rdma_resolve_addr)(id, null_mut(), (&raw mut to).cast(), self.resolve_ms())
        };
        if asked == 0 { Ok(()) } else { Err(last_error()) }
    }

    pub(super) fn resolve_ms(&self) -> c_int {
        c_int::try_from(self.config.resolve.as_millis()).unwrap_or(c_int::MAX)
    }

    pub(super) fn set_tos(&self, id: *mut CmId) {
        let Some(mut tos) = self.config.tos else { return };
        // SAFETY: the identifier lives; the option is one byte.
        let set = unsafe {
            (self.device.call.rdma_set_option)(id, OPTION_ID, OPTION_TOS, (&raw mut tos).cast(), 1)
        };
        if set != 0 {
            tracing::debug!("type of service {tos} is not set: {}", last_error());
        }
    }

    /// Binds an identifier to the address of the interface, and to a privileged port if that is
    /// allowed (wire.md 7.1).
    pub(super) fn bind(&mut self, id: *mut CmId) -> Result<(), Errno> {
        let call = self.device.call;
        let bind = |port: u16| {
            let mut from = socket_address(self.config.addr, port);
            // SAFETY: the identifier lives; the address outlives the call.
            let bound = unsafe { (call.rdma_bind_addr)(id, (&raw mut from).cast()) };
            if bound == 0 { Ok(()) } else { Err(last_error()) }
        };
        let mut yes: c_int = 1;
        // SAFETY: the identifier lives; the option is one int. Without it ports are used up sooner.
        unsafe {
            (call.rdma_set_option)(
                id,
                OPTION_ID,
                OPTION_REUSEADDR,
                (&raw mut yes).cast(),
                size_of::<c_int>(),
            );
        }
        let tries = if self.config.cm.uses_privileged_port { PORT_TRIES } else { 0 };
        for _ in 0..tries {
            let port = self.next_port;
            self.next_port = below(port, self.config.cm.service);
            match bind(port) {
                Err(Errno::EADDRINUSE | Errno::EADDRNOTAVAIL) => {}
                Err(Errno::EACCES) => break,
                outcome => return outcome,
            }
        }
        bind(0)
    }

    /// Gives a connection its queue pair and its receive buffers.
    pub(super) fn equip(&mut self, conn: ConnId, size: QpSize, start: Start) -> Result<(), Errno> {
        let endpoint = self.endpoints.get_mut(conn).ok_or(Errno::ENOTCONN)?;
        let count = send_entries(size, self.device.bounds) + u32::from(size.receives);
        let entries = self.completions.reserve(&self.device, count)?;
        endpoint.entries = Some(entries);
        endpoint.make_qp(&self.device, self.completions.cq(entries), size)?;
        let pages = Pages::new(usize::from(size.receives) * MSG_MAX);
        let (registration, key) = self.registrations.own(pages.addr(), pages.len() as u64)?;
        endpoint.set_ring(pages, registration, key, size.receives);
        endpoint.start = Some(start);
        Ok(())
    }

    pub(super) fn accept(
        &mut self,
        conn: ConnId,
        request: RequestId,
        size: QpSize,
        private: Vec<u8>,
    ) {
        let Some(id) = self.requests.remove(&request) else { return };
        // SAFETY: the identifier came with the request and is this side's.
        unsafe { (*id).context = Self::context(conn) };
        let seat = self.take_seat(conn);
        self.endpoints.insert(conn, Endpoint::new(self.device.call, id, seat));
        if let Err(errno) = self.equip(conn, size, Start { private, accepts: true }) {
            tracing::warn!("a connection is not accepted: {errno}");
            self.report(conn, CmEvent::ConnectError);
        }
    }

    /// Everything is posted: the peer may hear of it.
    pub(super) fn begin(&mut self, conn: ConnId) {
        let cm = self.config.cm;
        let begun = self.endpoints.get_mut(conn).map_or(Ok(()), |endpoint| endpoint.begin(cm));
        if let Err(errno) = begun {
            tracing::debug!("a connection is not made: {errno}");
            self.report(conn, CmEvent::ConnectError);
        }
    }

    pub(super) fn disconnect(&mut self, conn: ConnId) {
        let Some(endpoint) = self.endpoints.get_mut(conn) else { return };
        endpoint.disconnect();
        self.fail_waiting(conn);
    }

    /// Chains that were not posted end as failed.
    pub(super) fn fail_waiting(&mut self, conn: ConnId) {
        let ended = self.endpoints.get_mut(conn).map(|e| e.sends.fail()).unwrap_or_default();
        for end in ended {
            self.ended(conn, end, Err(()));
        }
    }

    pub(super) fn ended(
        &mut self,
        conn: ConnId,
        Ended { work, buffer }: Ended,
        outcome: Result<(), ()>,
    ) {
        if let Some(buffer) = buffer {
            self.buffers.give(buffer);
        }
        self.facts.push_back(Fact::Done { conn, work, outcome });
    }

    pub(super) fn destroy(&mut self, conn: ConnId) {
        let Some(mut endpoint) = self.endpoints.remove(conn) else { return };
        endpoint.destroy();
        let place = &mut self.places[endpoint.seat.index as usize];
        place.conn = None;
        self.free_places.push(endpoint.seat.index);
        for buffer in endpoint.sends.buffers() {
            self.buffers.give(buffer);
        }
        if let Some(ring) = &endpoint.ring {
            self.registrations.release(ring.registration);
        }
        // What is left of it in the queue is thrown away before another connection has the entries.
        self.complete();
        if let Some(entries) = endpoint.entries {
            self.completions.free(entries);
        }
        self.facts.retain(|fact| fact.conn() != Some(conn));
    }
}

/// The port that is tried behind this one: the next one below that is not the service's.
const fn below(port: u16, service: u16) -> u16 {
    let next = if port == PRIVILEGED.start { PRIVILEGED.end - 1 } else { port - 1 };
    match next == service {
        true if next == PRIVILEGED.start => PRIVILEGED.end - 1,
        true => next - 1,
        false => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_go_down_without_the_service_and_begin_again() {
        assert_eq!(below(1023, 987), 1022);
        assert_eq!(below(988, 987), 986);
        assert_eq!(below(512, 987), 1023);
        assert_eq!(below(513, 512), 1023);
        assert_eq!(below(512, 1023), 1022);
    }
}
