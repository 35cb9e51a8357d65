//! The shell: an [`Adapter`] over `libibverbs` and `librdmacm`, which are loaded when the first interface
//! is asked for. It decides nothing of the protocol.
//!
//! ```text
//!  Port<Verbs> ── adapter.rs ──► Verbs ── connections.rs, endpoint.rs ──► queue pairs, identifiers
//!                                  ├──── work.rs, sends.rs ──► work requests
//!                                  ├──── memory.rs, registrations.rs, buffers.rs ──► pinned memory
//!                                  ╰──── news.rs, device.rs, completions.rs ──► three descriptors in the
//!                                        poller
//! ```
//!
//! All news come from three descriptors that do not block: the connection manager's, that of
//! completions and the device's. [`Adapter::ready`] notes which of them to read; completion queues are
//! looked at in every turn, without asking the system.
//!
//! Memory: the device writes receive buffers, and what a peer may write, and nothing else. `endpoint.rs`
//! shows no byte of a posted receive buffer; [`Adapter::unmap`] closes a peer's key before it returns;
//! `destroy` of a queue pair comes before its buffers are freed.
//!
//! [`Adapter`]: crate::Adapter
//! [`Adapter::ready`]: crate::Adapter::ready
//! [`Adapter::unmap`]: crate::Adapter::unmap

#![allow(unsafe_code)]

mod adapter;
mod buffers;
mod completions;
mod connections;
mod device;
mod endpoint;
mod error;
mod events;
mod library;
mod memory;
mod news;
mod pages;
mod registrations;
mod roce;
mod sends;
mod sys;
mod work;

use core::fmt;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;

use lnet_types::{Errno, NetType};
use lnet_wire::ib::MSG_MAX;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use slotmap::SecondaryMap;

use crate::adapter::{CmFact, Fact};
use crate::device::DeviceEvent;
use crate::value::{CmEvent, ConnId, MapId, RequestId};

use buffers::Buffers;
use completions::Completions;
use connections::PRIVILEGED;
use device::{Device, Pinner};
use endpoint::Endpoint;
use memory::Mapped;
use pages::Pages;
use registrations::Registrations;
use sys::CmId;

pub use device::{PortState, locked_limit};
pub use error::OpenError;
pub use registrations::PinStats;

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

    /// The version of RoCE that its connections use, 1 or 2; 0 for none, or if it is not known.
    pub fn roce_version(&self) -> u8 {
        match self.device.port_state() {
            PortState { ethernet: true, .. } => {
                roce::version(&self.device.name, self.device.port, self.config.addr)
            }
            _ => 0,
        }
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
}

/// Has the poller report news of a device.
fn announce(device: &Device, registry: &Registry, tokens: &Range<usize>) -> io::Result<()> {
    for (fd, token) in device.sources().into_iter().flatten().zip(tokens.clone()) {
        registry.register(&mut SourceFd(&fd), Token(token), Interest::READABLE)?;
    }
    Ok(())
}

impl Drop for Verbs {
    fn drop(&mut self) {
        self.withdraw();
        for conn in self.endpoints.keys().collect::<Vec<_>>() {
            self.destroy(conn);
        }
    }
}
