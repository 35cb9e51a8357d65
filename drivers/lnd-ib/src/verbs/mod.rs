//! The shell: an [`Adapter`] over `libibverbs` and `librdmacm`, which are loaded when the first interface
//! is asked for. It decides nothing of the protocol.
//!
//! ```text
//!  Port<Verbs> ── Adapter ──► Verbs ── endpoint.rs ──► queue pairs, identifiers
//!                               ├──── registrations.rs, buffers.rs ──► pinned memory
//!                               ╰──── device.rs, completions.rs ──► three descriptors in the poller
//! ```
//!
//! All news come from three descriptors that do not block: the connection manager's, that of
//! completions and the device's. [`Adapter::ready`] notes which of them to read; completion queues are
//! looked at in every turn, without asking the system.
//!
//! Memory: the device writes receive buffers, and what a peer may write, and nothing else. `endpoint.rs`
//! shows no byte of a posted receive buffer; [`Adapter::unmap`] closes a peer's key before it returns;
//! `destroy` of a queue pair comes before its buffers are freed.

#![allow(unsafe_code)]

mod buffers;
mod completions;
mod device;
mod endpoint;
mod error;
mod events;
mod library;
mod pages;
mod registrations;
mod sends;
mod sys;

use core::ffi::{c_int, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv4Addr};
use core::ptr::null_mut;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use lnet::Payload;
use lnet_types::{Errno, Instant, IoVec, Memory, NetType, Nid, Span, iovec_slice};
use lnet_wire::ib::{Frag, MSG_MAX, RdmaDesc};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use slotmap::{Key, SecondaryMap};
use smallvec::SmallVec;

use crate::adapter::{Adapter, CmFact, Fact};
use crate::device::DeviceEvent;
use crate::value::{
    Access, CmCall, CmEvent, CmRejection, ConnId, MapId, MapMemory, Post, QpSize, RequestId, Write,
};

use buffers::Buffers;
use completions::Completions;
use device::{Device, Pinner, last_error, socket_address};
use endpoint::{Endpoint, Named, PLACES, Seat, Start, send_entries};
use events::{COMMUNICATES, CmNews, DeviceNews, cm_news, device_news};
use pages::Pages;
use registrations::{RegId, Registrations};
use sends::{BufferId, Ended, Message, Request, pieces};
use sys::{CmId, OPTION_ID, OPTION_REUSEADDR, OPTION_TOS, PS_TCP, Sge, Wc};

pub use device::{PortState, locked_limit};
pub use error::OpenError;
pub use registrations::PinStats;

/// Source ports that connections are asked for from, downwards; another one where the system does not
/// allow these (wire.md 7.1).
const PRIVILEGED: Range<u16> = 512..1024;
/// Ports that are tried for one connection.
const PORT_TRIES: usize = 16;

/// Settings of connection requests, those of this side and those of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmConfig {
    /// The service that it listens on, and that its peers listen on.
    pub service: u16,
    /// How often the adapter repeats a request that is not acknowledged, 0 to 7.
    pub retries: u8,
    /// How often it repeats one for which the peer has no receive buffer, 0 to 6; 7 for ever.
    pub receiver_retries: u8,
    /// Whether it asks from source ports below 1024, where the system allows that.
    pub uses_privileged_port: bool,
    /// Whether requests from other ports are refused.
    pub wants_privileged_port: bool,
}

impl Default for CmConfig {
    /// The values of kernel nodes.
    fn default() -> Self {
        Self {
            service: NetType::O2IB_SERVICE,
            retries: 5,
            receiver_retries: 6,
            uses_privileged_port: true,
            wants_privileged_port: false,
        }
    }
}

/// How an interface uses its device.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// The address of the interface.
    pub addr: Ipv4Addr,
    /// Type of service of its connections; the system's choice without one.
    pub tos: Option<u8>,
    /// Bytes of memory that it pins at most.
    pub pinned_max: u64,
    /// Limit of the resolution of an address, and of that of a route.
    pub resolve: Duration,
    /// What it says to the connection manager.
    pub cm: CmConfig,
}

/// Memory that a map names.
#[derive(Debug)]
enum Mapped {
    /// To be read, in its order.
    Read {
        places: SmallVec<[Sge; 1]>,
        registrations: SmallVec<[RegId; 1]>,
        /// Bytes of the node's own.
        _bytes: Option<Arc<[u8]>>,
    },
    /// To be written by a peer.
    Written { registration: RegId, buffer: Option<(Pages, usize)> },
}

/// A place for a connection in the numbers of work requests.
#[derive(Debug, Default)]
struct Place {
    generation: u32,
    conn: Option<ConnId>,
}

/// An adapter port of the machine. See the module's head.
pub struct Verbs {
    config: VerbsConfig,
    registry: Registry,
    tokens: Range<usize>,
    /// Which of the three descriptors have news.
    news: [bool; 3],
    endpoints: SecondaryMap<ConnId, Endpoint>,
    places: Vec<Place>,
    free_places: Vec<u32>,
    requests: BTreeMap<RequestId, *mut CmId>,
    last_request: u64,
    next_port: u16,
    facts: VecDeque<Fact>,
    /// What was reported of the port last: whether it is active, and its rate.
    port: Option<(bool, u32)>,
    /// Gathered here before it is posted.
    scratch: Vec<u8>,
    // What is below is released in this order: keys before the memory that they open, queues before
    // the device.
    registrations: Registrations<Pinner>,
    maps: BTreeMap<MapId, Mapped>,
    /// Buffers that are unmapped, and may be read until the next poll.
    closed: Vec<(MapId, Pages, usize)>,
    buffers: Buffers,
    completions: Completions,
    device: Device,
    /// The caller polls without sleeping.
    spins: bool,
}

// SAFETY: the libraries' calls may be made from any thread; everything that the pointers name is this
// value's alone, and moves with it.
unsafe impl Send for Verbs {}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verbs")
            .field("device", &self.device.name)
            .field("port", &self.device.port)
            .field("connections", &self.endpoints.len())
            .field("pins", &self.registrations.stats())
            .finish_non_exhaustive()
    }
}

impl Verbs {
    /// Tokens that one adapter takes.
    pub const TOKENS: usize = 3;

    /// Whether there is anything to open: both libraries, and a connection manager with a device.
    ///
    /// # Errors
    /// What is missing on this machine.
    pub fn available() -> Result<(), OpenError> {
        Device::available()
    }

    /// Opens the device that has the address of the interface, and listens there. `tokens`:
    /// [`Verbs::TOKENS`] of them, for its descriptors.
    ///
    /// # Errors
    /// What is missing on this machine.
    pub fn open(
        config: VerbsConfig,
        registry: &Registry,
        tokens: Range<usize>,
    ) -> Result<Self, OpenError> {
        let device = Device::open(config.addr, config.cm.service)?;
        let failed = |call, e: &io::Error| OpenError::Call {
            device: device.name.clone(),
            call,
            errno: Errno(e.raw_os_error().unwrap_or(libc::EIO)),
        };
        let registry = registry.try_clone().map_err(|e| failed("dup", &e))?;
        announce(&device, &registry, &tokens).map_err(|e| failed("epoll_ctl", &e))?;
        let mut new = Self {
            registry,
            tokens,
            news: [true; 3],
            endpoints: SecondaryMap::new(),
            places: Vec::new(),
            free_places: Vec::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            next_port: PRIVILEGED.end - 1,
            facts: VecDeque::new(),
            port: None,
            scratch: Vec::with_capacity(MSG_MAX),
            registrations: Registrations::new(device.pinner(), config.pinned_max),
            maps: BTreeMap::new(),
            closed: Vec::new(),
            buffers: Buffers::default(),
            completions: Completions::new(device.call),
            device,
            spins: false,
            config,
        };
        new.report_port();
        Ok(new)
    }

    /// The port as it is now.
    pub fn port_state(&self) -> PortState {
        self.device.port_state()
    }

    /// What is pinned.
    pub const fn pins(&self) -> PinStats {
        self.registrations.stats()
    }

    /// Bytes that may be pinned.
    pub const fn pinned_max(&self) -> u64 {
        self.config.pinned_max
    }

    /// Gives up the device with all that stands on it, and opens it anew.
    fn open_again(&mut self) -> Result<(), OpenError> {
        self.withdraw();
        let limit = self.config.pinned_max;
        // In the order in which they stand on each other.
        self.registrations = Registrations::new(self.device.pinner(), limit);
        self.buffers = Buffers::default();
        self.closed.clear();
        self.completions = Completions::new(self.device.call);
        self.device.close();
        self.device.release_removed();
        self.device = Device::open(self.config.addr, self.config.cm.service)?;
        self.registrations = Registrations::new(self.device.pinner(), limit);
        if let Err(e) = announce(&self.device, &self.registry, &self.tokens) {
            self.device.close();
            let errno = Errno(e.raw_os_error().unwrap_or(libc::EIO));
            return Err(OpenError::Call { device: String::new(), call: "epoll_ctl", errno });
        }
        self.news = [true; 3];
        self.port = None;
        self.report_port();
        Ok(())
    }

    /// Takes the descriptors of the device from the poller, and answers what still waits.
    fn withdraw(&mut self) {
        for fd in self.device.sources().into_iter().flatten() {
            if let Err(error) = self.registry.deregister(&mut SourceFd(&fd)) {
                tracing::error!("a descriptor stays with the poller: {error}");
            }
        }
        for (_, id) in core::mem::take(&mut self.requests) {
            endpoint::refuse(&self.device.call, id, &[]);
        }
    }

    /// Says how the port is where that has changed: whether it is usable, and its rate. Of two
    /// interfaces on one device only one reads an event, and both are woken by it: so neither goes by
    /// the event.
    fn report_port(&mut self) {
        let port = self.device.port_state();
        if self.port.replace((port.active, port.rate_mbps)) == Some((port.active, port.rate_mbps)) {
            return;
        }
        let state = if port.active { DeviceEvent::PortActive } else { DeviceEvent::PortError };
        self.facts.push_back(Fact::Device(state));
        if port.active && port.rate_mbps > 0 {
            self.facts.push_back(Fact::Device(DeviceEvent::Rate(port.rate_mbps)));
        }
    }

    fn report(&mut self, conn: ConnId, event: CmEvent<'static>) {
        self.facts.push_back(Fact::Cm { conn, event: CmFact::Plain(event) });
    }

    // ---- Connections ----

    /// A seat for a connection; none where all are taken, which the limits of the driver exclude.
    fn take_seat(&mut self, conn: ConnId) -> Seat {
        let index = self.free_places.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1) & 0x3ff_ffff;
        place.conn = Some(conn);
        Seat { index, generation: place.generation }
    }

    fn conn_at(places: &[Place], seat: Seat) -> Option<ConnId> {
        let place = places.get(seat.index as usize)?;
        place.conn.filter(|_| place.generation == seat.generation)
    }

    /// The name of a connection, as the context of its identifier; 0 is the listener's.
    fn context(conn: ConnId) -> *mut c_void {
        conn.data().as_ffi() as *mut c_void
    }

    fn resolve(&mut self, conn: ConnId, to: Nid) -> Result<(), Errno> {
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

    fn resolve_ms(&self) -> c_int {
        c_int::try_from(self.config.resolve.as_millis()).unwrap_or(c_int::MAX)
    }

    fn set_tos(&self, id: *mut CmId) {
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
    fn bind(&mut self, id: *mut CmId) -> Result<(), Errno> {
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
    fn equip(&mut self, conn: ConnId, size: QpSize, start: Start) -> Result<(), Errno> {
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

    fn accept(&mut self, conn: ConnId, request: RequestId, size: QpSize, private: Vec<u8>) {
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
    fn begin(&mut self, conn: ConnId) {
        let cm = self.config.cm;
        let begun = self.endpoints.get_mut(conn).map_or(Ok(()), |endpoint| endpoint.begin(cm));
        if let Err(errno) = begun {
            tracing::debug!("a connection is not made: {errno}");
            self.report(conn, CmEvent::ConnectError);
        }
    }

    fn disconnect(&mut self, conn: ConnId) {
        let Some(endpoint) = self.endpoints.get_mut(conn) else { return };
        endpoint.disconnect();
        self.fail_waiting(conn);
    }

    /// Chains that were not posted end as failed.
    fn fail_waiting(&mut self, conn: ConnId) {
        let ended = self.endpoints.get_mut(conn).map(|e| e.sends.fail()).unwrap_or_default();
        for end in ended {
            self.ended(conn, end, Err(()));
        }
    }

    fn ended(&mut self, conn: ConnId, Ended { work, buffer }: Ended, outcome: Result<(), ()>) {
        if let Some(buffer) = buffer {
            self.buffers.give(buffer);
        }
        self.facts.push_back(Fact::Done { conn, work, outcome });
    }

    fn destroy(&mut self, conn: ConnId) {
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

    // ---- Work requests ----

    /// The places that a write reads.
    fn places_of(&self, write: &Write) -> Option<SmallVec<[Sge; 1]>> {
        let Some(Mapped::Read { places, .. }) = self.maps.get(&write.from) else { return None };
        let (mut offset, mut len) = (write.offset, write.len);
        let mut found = SmallVec::new();
        for sge in places {
            let here = u64::from(sge.length);
            if offset >= here {
                offset -= here;
                continue;
            }
            // At most `sge.length`, so it fits.
            let length = len.min((here - offset) as u32);
            if length > 0 {
                found.push(Sge { addr: sge.addr + offset, length, lkey: sge.lkey });
            }
            (offset, len) = (0, len - length);
        }
        (len == 0).then_some(found)
    }

    fn chain(
        &mut self,
        post: &Post,
        mem: &dyn Memory,
    ) -> Result<(VecDeque<sends::Piece>, Message), Errno> {
        let mut all = VecDeque::new();
        let most = (self.device.bounds.places as usize).min(PLACES);
        for write in &post.writes {
            let places = self.places_of(write).ok_or(Errno::EFAULT)?;
            all.extend(pieces(places, (write.addr, write.key), most, self.device.bounds.message));
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&post.head);
        match &post.payload {
            Some(Payload::Spans(spans)) => {
                spans.iter().for_each(|span| self.scratch.extend_from_slice(mem.bytes(*span)));
            }
            Some(Payload::Bytes(bytes)) => self.scratch.extend_from_slice(bytes),
            None => {}
        }
        let inline = self.endpoints.get(post.conn).map_or(0, |endpoint| endpoint.inline);
        let len = u32::try_from(self.scratch.len()).map_err(|_| Errno::EMSGSIZE)?;
        let message = if len <= inline {
            Message::Inline(self.scratch.clone())
        } else {
            Message::Buffer(self.buffers.take(&mut self.registrations, &self.scratch)?, len)
        };
        Ok((all, message))
    }

    /// Posts what there is room for.
    fn pump(&mut self, conn: ConnId) {
        loop {
            let Some(endpoint) = self.endpoints.get_mut(conn) else { return };
            let batch: Vec<Request> = endpoint.sends.next();
            if batch.is_empty() {
                return;
            }
            let buffers = &self.buffers;
            // SAFETY: a chain reads mapped memory, which is unmapped behind its end or that of its
            // queue pair, and a send buffer, which is given back then.
            let posted = unsafe { endpoint.post(&batch, |id: BufferId| buffers.place(id)) };
            if let Err(errno) = posted {
                tracing::debug!("work requests are not posted: {errno}");
                let end = endpoint.sends.refused();
                if let Some(end) = end {
                    self.ended(conn, end, Err(()));
                }
                self.fail_waiting(conn);
                return;
            }
        }
    }

    // ---- News ----

    /// Takes completions.
    fn complete(&mut self) {
        let Self { completions, endpoints, places, buffers, facts, spins, .. } = self;
        let mut moved: SmallVec<[ConnId; 8]> = SmallVec::new();
        completions.take(!*spins, |wc: &Wc| {
            let Some(named) = Named::of(wc.wr_id) else { return };
            let (Named::Receive(seat, _) | Named::Signalled(seat) | Named::Silent(seat)) = named;
            // One of a connection that is gone.
            let Some(conn) = Self::conn_at(places, seat) else { return };
            let Some(endpoint) = endpoints.get_mut(conn) else { return };
            let done = wc.status == 0;
            match named {
                Named::Receive(_, slot) => {
                    endpoint.received(slot);
                    let outcome = if done { Ok(wc.byte_len as usize) } else { Err(()) };
                    facts.push_back(Fact::Received { conn, slot, outcome });
                }
                Named::Signalled(_) => {
                    if let Some(Ended { work, buffer }) = endpoint.sends.completed(done) {
                        if let Some(buffer) = buffer {
                            buffers.give(buffer);
                        }
                        let outcome = if done { Ok(()) } else { Err(()) };
                        facts.push_back(Fact::Done { conn, work, outcome });
                    }
                    if moved.last() != Some(&conn) {
                        moved.push(conn);
                    }
                }
                Named::Silent(_) => {}
            }
            if !done && wc.status != FLUSHED {
                tracing::debug!(?conn, status = wc.status, "a work request has failed");
            }
        });
        for conn in moved {
            if self.endpoints.get(conn).is_some_and(|e| e.sends.is_broken()) {
                self.fail_waiting(conn);
            } else {
                self.pump(conn);
            }
        }
    }

    /// Takes what the connection manager says.
    fn managed(&mut self) {
        let call = self.device.call;
        loop {
            let mut event = null_mut();
            // SAFETY: the channel is the device's; the place for the result is this function's.
            if unsafe { (call.rdma_get_cm_event)(self.device.events, &raw mut event) } != 0 {
                return;
            }
            // SAFETY: the event was just given out, and is acknowledged once, behind the last use of
            // what it holds. Its identifier lives: identifiers are destroyed by this thread only, and
            // their events with them.
            let (id, news, conn, private) = unsafe {
                let news = cm_news((*event).event, (*event).status);
                let id = (*event).id;
                let conn = (*id).context as u64;
                let has_private =
                    matches!(news, CmNews::Request | CmNews::Established | CmNews::Rejected(_));
                let (at, len) = ((*event).conn.private_data, (*event).conn.private_data_len);
                let private = if has_private && !at.is_null() {
                    core::slice::from_raw_parts(at.cast::<u8>(), len.into()).to_vec()
                } else {
                    Vec::new()
                };
                (call.rdma_ack_cm_event)(event);
                (id, news, conn, private)
            };
            if news == CmNews::Request {
                // SAFETY: the identifier came with the request and is this side's; the library has
                // filled in where it comes from.
                let port = unsafe { device::port_of(&(*id).dst_addr) };
                if self.config.cm.wants_privileged_port && port.is_none_or(|p| p >= PRIVILEGED.end)
                {
                    tracing::warn!(
                        port,
                        "a request is refused: its source port must be below 1024"
                    );
                    endpoint::refuse(&call, id, &[]);
                    continue;
                }
                self.last_request += 1;
                let request = RequestId(self.last_request);
                self.requests.insert(request, id);
                self.facts.push_back(Fact::Request { request, private });
                continue;
            }
            if conn == 0 {
                // Of the listener, or of a request that is about to be answered.
                if id == self.device.listener {
                    self.listener_news(news);
                }
                continue;
            }
            let conn = ConnId::from(slotmap::KeyData::from_ffi(conn));
            let event = match news {
                CmNews::Established => CmFact::Established(private),
                CmNews::Rejected(why) => CmFact::Rejected(why, private),
                CmNews::Plain(event) => CmFact::Plain(event),
                CmNews::Request | CmNews::Other => continue,
            };
            if let CmFact::Rejected(CmRejection::Other, _) = event {
                tracing::debug!(?conn, "refused by the connection manager of the peer");
            }
            self.facts.push_back(Fact::Cm { conn, event });
        }
    }

    fn listener_news(&mut self, news: CmNews) {
        match news {
            CmNews::Plain(CmEvent::DeviceRemoval) => {
                self.facts.push_back(Fact::Device(DeviceEvent::Removed));
            }
            CmNews::Plain(CmEvent::AddrChange) => {
                self.facts.push_back(Fact::Device(DeviceEvent::PortChanged));
            }
            _ => {}
        }
    }

    /// Takes what the device says.
    fn device_says(&mut self) {
        let call = self.device.call;
        loop {
            let mut event = MaybeUninit::uninit();
            // SAFETY: the context is the listener's; the place for the result is this function's.
            if unsafe { (call.ibv_get_async_event)(self.device.context, event.as_mut_ptr()) } != 0 {
                return;
            }
            // SAFETY: filled by the call. It is acknowledged once, behind the last use of what it
            // names: a queue pair does not go before that.
            let (news, port) = unsafe {
                let event = event.assume_init_mut();
                let news = device_news(event.event_type);
                if news == DeviceNews::Communicates {
                    let qp = event.element.qp.cast_const().cast();
                    if let Some(endpoint) = self.endpoints.values().find(|e| e.qp() == qp) {
                        (call.rdma_notify)(endpoint.id, COMMUNICATES);
                    }
                }
                let port = match news {
                    DeviceNews::Port(_) => event.element.port_num,
                    _ => 0,
                };
                (call.ibv_ack_async_event)(event);
                (news, port)
            };
            match news {
                DeviceNews::Device(event) => self.facts.push_back(Fact::Device(event)),
                DeviceNews::Port(DeviceEvent::PortChanged)
                    if port == c_int::from(self.device.port) =>
                {
                    self.facts.push_back(Fact::Device(DeviceEvent::PortChanged));
                }
                _ => {}
            }
        }
    }

    // ---- Memory ----

    fn read_spans(&mut self, spans: &[Span], mem: &dyn Memory) -> Result<Mapped, Errno> {
        let (mut places, mut registrations) = (SmallVec::new(), SmallVec::<[RegId; 1]>::new());
        for span in spans.iter().filter(|span| span.len > 0) {
            let addr = mem.bytes(*span).as_ptr() as u64;
            let anchor = mem.anchor(span.region);
            match self.registrations.hold(anchor, addr, span.len.into()) {
                Ok((registration, lkey)) => {
                    registrations.push(registration);
                    places.push(Sge { addr, length: span.len, lkey });
                }
                Err(errno) => {
                    registrations.into_iter().for_each(|id| self.registrations.release(id));
                    return Err(errno);
                }
            }
        }
        Ok(Mapped::Read { places, registrations, _bytes: None })
    }

    fn map_read(&mut self, memory: MapMemory, mem: &dyn Memory) -> Result<Mapped, Errno> {
        match memory {
            MapMemory::Spans(spans) | MapMemory::Payload(Payload::Spans(spans)) => {
                self.read_spans(&spans, mem)
            }
            MapMemory::Payload(Payload::Bytes(bytes)) => {
                let (addr, length) = (bytes.as_ptr() as u64, bytes.len() as u32);
                let (id, lkey) = self.registrations.lend(addr, length.into())?;
                Ok(Mapped::Read {
                    places: SmallVec::from_elem(Sge { addr, length, lkey }, 1),
                    registrations: SmallVec::from_elem(id, 1),
                    _bytes: Some(bytes),
                })
            }
            // Written by peers, never read.
            MapMemory::Buffer(_) => Err(Errno::EINVAL),
        }
    }

    fn map_written(
        &mut self,
        memory: MapMemory,
        mem: &mut dyn Memory,
    ) -> Result<(Mapped, RdmaDesc), Errno> {
        let (addr, nob, buffer) = match memory {
            MapMemory::Spans(spans) => {
                // One key opens one place: `IbConfig::one_span` sees to that.
                let [span] = only(&spans)?;
                (mem.bytes_mut(span).as_mut_ptr() as u64, span.len, None)
            }
            MapMemory::Buffer(len) => {
                let pages = Pages::new(len as usize);
                (pages.addr(), len, Some((pages, len as usize)))
            }
            MapMemory::Payload(_) => return Err(Errno::EINVAL),
        };
        let (registration, key) = self.registrations.expose(addr, nob.into())?;
        let frags = SmallVec::from_elem(Frag { addr, nob }, 1);
        Ok((Mapped::Written { registration, buffer }, RdmaDesc { key, frags }))
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

/// Completions of requests that came back because their queue pair had failed before.
const FLUSHED: u32 = 5;

/// Has the poller report news of a device.
fn announce(device: &Device, registry: &Registry, tokens: &Range<usize>) -> io::Result<()> {
    for (fd, token) in device.sources().into_iter().flatten().zip(tokens.clone()) {
        registry.register(&mut SourceFd(&fd), Token(token), Interest::READABLE)?;
    }
    Ok(())
}

/// The one span that has bytes.
fn only(spans: &IoVec) -> Result<[Span; 1], Errno> {
    let spans = iovec_slice(spans, 0, u64::MAX);
    spans.as_slice().try_into().map_err(|_| Errno::EINVAL)
}

impl Adapter for Verbs {
    fn cm(&mut self, _now: Instant, call: CmCall) {
        match call {
            CmCall::Resolve { conn, to } => {
                if let Err(errno) = self.resolve(conn, to) {
                    tracing::debug!("{to}: address not resolved: {errno}");
                    self.report(conn, CmEvent::AddrError);
                }
            }
            CmCall::ResolveRoute { conn } => {
                let id = self.endpoints.get(conn).map(|endpoint| endpoint.id);
                // SAFETY: the identifier lives as long as its endpoint.
                let asked = id.map(|id| unsafe {
                    (self.device.call.rdma_resolve_route)(id, self.resolve_ms())
                });
                if asked != Some(0) {
                    self.report(conn, CmEvent::RouteError);
                }
            }
            CmCall::Connect { conn, private, qp } => {
                if let Err(errno) = self.equip(conn, qp, Start { private, accepts: false }) {
                    tracing::warn!("a connection is not asked for: {errno}");
                    self.report(conn, CmEvent::ConnectError);
                }
            }
            CmCall::Accept { conn, request, private, qp } => {
                self.accept(conn, request, qp, private);
            }
            CmCall::Reject { request, private } => {
                if let Some(id) = self.requests.remove(&request) {
                    endpoint::refuse(&self.device.call, id, &private);
                }
            }
            CmCall::Disconnect { conn } => self.disconnect(conn),
            CmCall::Destroy { conn } => self.destroy(conn),
        }
    }

    fn receive(&mut self, _now: Instant, conn: ConnId, slot: u16) {
        let posted = self.endpoints.get_mut(conn).map(|endpoint| endpoint.post_receive(slot));
        match posted {
            Some(Ok(true)) => self.begin(conn),
            Some(Ok(false)) => {}
            Some(Err(_)) | None => {
                self.facts.push_back(Fact::Received { conn, slot, outcome: Err(()) });
            }
        }
    }

    fn post(&mut self, _now: Instant, post: Post, mem: &dyn Memory) {
        let (conn, work) = (post.conn, post.work);
        let broken = self.endpoints.get(conn).is_none_or(|e| e.sends.is_broken());
        let chain = if broken { Err(Errno::ENOTCONN) } else { self.chain(&post, mem) };
        match chain {
            Ok((pieces, message)) => {
                if let Some(endpoint) = self.endpoints.get_mut(conn) {
                    endpoint.sends.push(work, pieces, message);
                }
                self.pump(conn);
            }
            Err(errno) => {
                tracing::debug!(?conn, "a message is not posted: {errno}");
                self.facts.push_back(Fact::Done { conn, work, outcome: Err(()) });
            }
        }
    }

    fn map(
        &mut self,
        map: MapId,
        memory: MapMemory,
        access: Access,
        mem: &mut dyn Memory,
    ) -> Result<RdmaDesc, Errno> {
        let (mapped, desc) = match access {
            Access::LocalRead => {
                let mapped = self.map_read(memory, mem)?;
                (mapped, RdmaDesc { key: 0, frags: SmallVec::new() })
            }
            Access::RemoteWrite => self.map_written(memory, mem)?,
        };
        self.maps.insert(map, mapped);
        Ok(desc)
    }

    fn unmap(&mut self, map: MapId) {
        match self.maps.remove(&map) {
            Some(Mapped::Read { registrations, .. }) => {
                registrations.into_iter().for_each(|id| self.registrations.release(id));
            }
            Some(Mapped::Written { registration, buffer }) => {
                self.registrations.release(registration);
                self.closed.extend(buffer.map(|(pages, len)| (map, pages, len)));
            }
            None => {}
        }
    }

    fn slot(&self, conn: ConnId, slot: u16) -> &[u8] {
        self.endpoints.get(conn).map_or(&[], |endpoint| endpoint.slot(slot))
    }

    fn buffer(&self, map: MapId) -> &[u8] {
        let closed = self.closed.iter().find(|(id, ..)| *id == map);
        // SAFETY: its key was closed when it was unmapped.
        closed.map_or(&[], |(_, pages, len)| unsafe { pages.bytes(0, *len) })
    }

    fn spin(&mut self, spins: bool) {
        self.spins = spins;
    }

    fn ready(&mut self, token: usize) {
        let news = token.checked_sub(self.tokens.start).and_then(|n| self.news.get_mut(n));
        if let Some(news) = news {
            *news = true;
        }
    }

    fn is_there(&self) -> bool {
        !self.device.is_open() || self.device.is_there()
    }

    fn reopen(&mut self, _now: Instant) -> Result<(), Errno> {
        if !self.endpoints.is_empty() || !self.maps.is_empty() {
            return Err(Errno::EBUSY);
        }
        self.open_again().map_err(|e| {
            tracing::debug!("the device is not back: {e}");
            e.errno()
        })?;
        tracing::info!(device = self.device.name, "RDMA device opened again");
        Ok(())
    }

    fn poll(&mut self) -> Option<Fact> {
        self.closed.clear();
        if self.facts.is_empty() && self.device.is_open() {
            let [managed, completed, device] = core::mem::take(&mut self.news);
            if managed {
                self.managed();
            }
            if device {
                self.device_says();
                self.report_port();
            }
            if completed {
                self.completions.news(&self.device);
            }
            self.complete();
        }
        self.facts.pop_front()
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        self.withdraw();
        for conn in self.endpoints.keys().collect::<Vec<_>>() {
            self.destroy(conn);
        }
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
