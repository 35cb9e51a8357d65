//! One stack: a node, its drivers, its memory, and the table of recipients of events. It belongs
//! to one thread at a time; what it does when that thread comes by is in `shard.rs`.
//!
//! A caller-driven program uses it directly: [`Stack::lend`] memory once, [`Stack::bind`] or
//! [`Stack::attach`] descriptors once, then [`Stack::put`], [`Stack::turn`], [`Stack::poll_event`] in a
//! loop, none of which allocates. Code that runs on a node's own thread (handlers, closures given to
//! `NodeHandle::call`) gets the same `&mut Stack`.

use core::fmt;
use core::net::IpAddr;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread;

use lnd_ib::{IbDriver, Verbs};
use lnd_sock::{MioStreams, Namespace, NamespaceId, SockDriver};
use lnet::upper::{self, Uppers};
use lnet::{
    AttachError, Driver, Event, Found, Get, Link, Loopback, MatchEntry, MdSpec, NiSpec, Node, OpId,
    Output, Put, Ready, Report, SendError, UnlinkError,
};
use lnet_types::{Errno, Instant, IoVec, MdId, Memory, NiId, Nid, RegionId, Span, iovec_slice};
use mio::{Events, Poll, Registry, Token};
use slotmap::SecondaryMap;

use crate::affinity::Affinity;
use crate::clock::Clock;
use crate::detour::Detours;
use crate::mailbox::{Command, Gone, Mailbox};
use crate::memory::{Regions, spans};
use crate::netlink::{Interfaces, Monitor};
use crate::notices::Log;
use crate::numa;
use crate::oneshot::Sender;
use crate::owners::{HandlerFn, OWNED, Owner, Owners, SILENT};
use crate::shard::{self, Spin, Stopping};
use crate::{AttachOptions, Buffer, MemoryError, NodeHandle, OpError, OpFailed};

/// Tokens below `1 << TOKEN_BITS` are the stack's own: the mailbox wakes it, netlink has news.
pub(crate) const WAKE: Token = Token(0);
pub(crate) const NETLINK: Token = Token(1);
/// Each driver has the tokens `n << TOKEN_BITS ..` for its own `n > 0`.
pub(crate) const TOKEN_BITS: u32 = 40;

/// A driver's place in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverId(pub(crate) u8);

/// A driver. A driver that the runtime knows by name can be queried for what it alone has.
pub(crate) enum Lnd {
    Loopback(Loopback),
    Sock(Box<SockDriver<MioStreams>>),
    Ib(Box<IbDriver<Verbs>>),
    Other(Box<dyn Driver + Send>),
}

impl Lnd {
    pub(crate) fn get(&self) -> &dyn Driver {
        match self {
            Self::Loopback(d) => d,
            Self::Sock(d) => &**d,
            Self::Ib(d) => &**d,
            Self::Other(d) => &**d,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut dyn Driver {
        match self {
            Self::Loopback(d) => d,
            Self::Sock(d) => &mut **d,
            Self::Ib(d) => &mut **d,
            Self::Other(d) => &mut **d,
        }
    }
}

pub(crate) struct DriverSlot {
    pub(crate) driver: Lnd,
    pub(crate) ready: Vec<Ready>,
}

/// What an interface stands on, and how it was last.
pub(crate) struct Watched {
    pub(crate) device: Option<String>,
    pub(crate) ip: IpAddr,
    pub(crate) link: Link,
    /// Its network namespace, if it is another one than the stack's.
    pub(crate) namespace: Option<Namespace>,
}

/// Who waits for the end of a ping, or of a discovery, of a NID.
pub(crate) struct Waiter {
    pub(crate) is_ping: bool,
    pub(crate) target: Nid,
    pub(crate) answer: Sender<Result<Found, OpError>>,
}

/// What a stack counts about itself. The node's and the drivers' counters are theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// Turns taken.
    pub turns: u64,
    /// Times that the poller was asked.
    pub polls: u64,
    /// Times that the thread was allowed to sleep in the poller.
    pub sleeps: u64,
    /// Commands from handles.
    pub commands: u64,
    /// Events delivered.
    pub events: u64,
    /// Messages handed to drivers.
    pub sends: u64,
    /// Messages that a driver gave back, to go another way (DEC-31).
    pub recalled: u64,
    /// Messages that a driver refused at once.
    pub refused: u64,
    /// Events and reports for the caller of [`Stack::turn`], when the stack runs by itself and has
    /// none.
    pub events_unclaimed: u64,
}

/// A node with everything that it stands on.
pub struct Stack {
    pub(crate) node: Node,
    pub(crate) drivers: Vec<DriverSlot>,
    pub(crate) ni_driver: SecondaryMap<NiId, DriverId>,
    /// The TCP driver, once there is one.
    pub(crate) tcp: Option<DriverId>,
    /// The RDMA driver, once there is one, and the tokens that are left for its adapters.
    pub(crate) ib: Option<(DriverId, Range<usize>)>,
    /// Interfaces without a time limit of their own: theirs is derived from the node's.
    pub(crate) follows_node: Vec<NiId>,
    /// The machine's interfaces; `None` where the system gives no netlink socket.
    /// One for the stack's own network namespace, if the system has netlink, and one for each other one
    /// that interfaces are in.
    pub(crate) monitors: Vec<Monitor>,
    pub(crate) monitor_ready: bool,
    /// Interfaces of the node that stand on one of the machine's.
    pub(crate) watched: BTreeMap<NiId, Watched>,
    /// Streams that stay on their device.
    pub(crate) detours: Detours,
    /// The names that the TCP driver's streams have for the namespaces of interfaces.
    pub(crate) namespaces: BTreeMap<NiId, NamespaceId>,
    pub(crate) mem: Regions,
    pub(crate) owners: Owners,
    /// Protocols that stand on the node.
    pub(crate) uppers: Uppers,
    /// Inboxes for whose sake a portal is lazy.
    pub(crate) lazy_inboxes: BTreeMap<u32, u32>,
    /// Descriptors of the caller, with what they stand on. Until the last event of one has been polled
    /// the node may have given its slot to another, so a map by slots would lose it.
    raw: BTreeMap<MdId, IoVec>,
    pub(crate) events: VecDeque<Event>,
    /// Memory for what is taken from the node: its outputs, its events.
    pub(crate) taken_outputs: VecDeque<Output>,
    pub(crate) taken_events: VecDeque<Event>,
    /// Who waits for a ping or discovery.
    pub(crate) waiters: BTreeMap<OpId, Waiter>,
    /// Ends of pings and discoveries that the caller asked for.
    pub(crate) reports: VecDeque<Report>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Commands that were taken from there and not executed yet.
    pub(crate) commands: VecDeque<Command>,
    pub(crate) poll: Poll,
    pub(crate) polled: Events,
    pub(crate) clock: Clock,
    pub(crate) now: Instant,
    pub(crate) in_turn: bool,
    pub(crate) looks: u32,
    /// The last turn was one of a caller that spins.
    pub(crate) spun: bool,
    pub(crate) unfinished: bool,
    pub(crate) stopping: Option<Stopping>,
    pub(crate) stats: StackStats,
    pub(crate) log: Log,
    /// Where the stack's own thread may run, if it has one.
    pub(crate) affinity: Option<Affinity>,
    /// Fields go in this order: when this one does, all sockets are closed.
    _gone: Gone,
}

impl Stack {
    pub(crate) fn new(node: impl FnOnce(Instant) -> Node) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mailbox = Arc::new(Mailbox::new(poll.registry(), WAKE)?);
        // Sandboxes without netlink exist; nodes with explicit addresses work there all the same.
        let monitors = Monitor::new(poll.registry(), NETLINK, None)
            .inspect_err(|e| tracing::warn!("interfaces are not watched: {e}"))
            .into_iter()
            .collect();
        let gone = Gone(Arc::clone(&mailbox));
        let clock = Clock::new();
        let now = clock.now();
        let mut node = node(now);
        numa::introduce(&mut node);
        let loopback = DriverSlot { driver: Lnd::Loopback(Loopback::new()), ready: Vec::new() };
        Ok(Self {
            ni_driver: node.loopback().map(|ni| (ni, DriverId(0))).into_iter().collect(),
            node,
            drivers: vec![loopback],
            tcp: None,
            ib: None,
            follows_node: Vec::new(),
            monitors,
            monitor_ready: false,
            watched: BTreeMap::new(),
            detours: Detours::default(),
            namespaces: BTreeMap::new(),
            mem: Regions::default(),
            owners: Owners::default(),
            uppers: Uppers::default(),
            lazy_inboxes: BTreeMap::new(),
            raw: BTreeMap::new(),
            events: VecDeque::new(),
            taken_outputs: VecDeque::new(),
            taken_events: VecDeque::new(),
            waiters: BTreeMap::new(),
            reports: VecDeque::new(),
            mailbox,
            commands: VecDeque::new(),
            poll,
            polled: Events::with_capacity(1024),
            clock,
            now,
            in_turn: false,
            looks: 0,
            spun: false,
            unfinished: true,
            stopping: None,
            stats: StackStats::default(),
            log: Log::default(),
            affinity: None,
            _gone: gone,
        })
    }

    // ---- Interfaces and drivers ----

    /// Adds a driver. `make` gets the poller's registry and the tokens that the driver may register
    /// sources under.
    ///
    /// # Errors
    /// Those of `make`; `InvalidInput` when there are 255 drivers.
    pub fn add_driver(
        &mut self,
        make: impl FnOnce(&Registry, Range<usize>) -> io::Result<Box<dyn Driver + Send>>,
    ) -> io::Result<DriverId> {
        self.push_driver(|registry, tokens| make(registry, tokens).map(Lnd::Other))
    }

    pub(crate) fn push_driver(
        &mut self,
        make: impl FnOnce(&Registry, Range<usize>) -> io::Result<Lnd>,
    ) -> io::Result<DriverId> {
        let id = u8::try_from(self.drivers.len())
            .ok()
            .filter(|n| *n < u8::MAX)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let first = (usize::from(id) + 1) << TOKEN_BITS;
        let driver = make(self.poll.registry(), first..first + (1 << TOKEN_BITS))?;
        self.drivers.push(DriverSlot { driver, ready: Vec::new() });
        Ok(DriverId(id))
    }

    /// Adds an interface that `driver` serves already or will serve once it is announced to it.
    ///
    /// # Errors
    /// The node's.
    pub fn add_ni(&mut self, driver: DriverId, spec: NiSpec) -> Result<NiId, Errno> {
        let now = self.tick();
        let ni = self.node.add_ni(now, spec)?;
        self.ni_driver.insert(ni, driver);
        Ok(ni)
    }

    /// Removes an interface: its connections are closed, messages in hand fail.
    ///
    /// # Errors
    /// `ENOENT` if there is no such interface, `EINVAL` for the loopback interface.
    pub fn del_ni(&mut self, ni: NiId) -> Result<(), Errno> {
        if self.node.loopback() == Some(ni) {
            return Err(Errno::EINVAL);
        }
        let now = self.tick();
        self.node.leave_ni(now, ni);
        self.ni_stop(ni);
        self.unfinished = true;
        let now = self.tick();
        let gone = self.node.del_ni(now, ni);
        self.place_thread();
        gone
    }

    /// Ties an interface to CPU partitions of the machine; `None`: to those of its device if they are
    /// known, else to all. Where the stack has a thread of its own, that may run on the CPUs of all
    /// partitions that interfaces use.
    ///
    /// # Errors
    /// Those of `Node::set_ni_cpts`.
    pub fn set_ni_cpts(&mut self, ni: NiId, cpts: Option<BTreeSet<u32>>) -> Result<(), Errno> {
        self.node.set_ni_cpts(ni, cpts)?;
        self.place_thread();
        Ok(())
    }

    /// Stops an interface in its driver. From here on messages for it are refused.
    pub(crate) fn ni_stop(&mut self, ni: NiId) {
        let now = self.tick();
        self.unwatch(ni);
        self.follows_node.retain(|n| *n != ni);
        if let Some(id) = self.ni_driver.remove(ni) {
            let slot = &mut self.drivers[usize::from(id.0)];
            slot.driver.get_mut().ni_stop(now, ni, &mut self.node, &mut self.mem);
        }
        if let (Some(namespace), Some(tcp)) = (self.namespaces.remove(&ni), self.tcp_mut()) {
            tcp.streams_mut().leave(namespace);
        }
    }

    /// The machine's network interfaces as they are now.
    ///
    /// # Errors
    /// Those of a netlink socket, where the system gives none.
    pub fn interfaces(&mut self) -> io::Result<Interfaces> {
        // Notices may be waiting for the next turn.
        self.watch_links();
        match self.monitors.iter().find(|m| m.is_of(None)) {
            Some(monitor) => Ok(monitor.table().clone()),
            None => Interfaces::load(),
        }
    }

    /// From here on the node gets reports of the state of `ni`, with address `ip`, on the machine:
    /// by the name of its device, or on whatever device has the address (K-60, K-61).
    pub fn watch(&mut self, ni: NiId, device: Option<String>, ip: IpAddr) {
        self.watch_in(ni, device, ip, None);
    }

    /// The same in another network namespace.
    pub(crate) fn watch_in(
        &mut self,
        ni: NiId,
        device: Option<String>,
        ip: IpAddr,
        namespace: Option<Namespace>,
    ) {
        if namespace.is_some() && !self.monitors.iter().any(|m| m.is_of(namespace.as_ref())) {
            let used = |n: &usize| self.monitors.iter().any(|m| m.token() == Token(*n));
            let free = (NETLINK.0 + 1..1 << TOKEN_BITS).find(|n| !used(n)).unwrap_or(NETLINK.0);
            match Monitor::new(self.poll.registry(), Token(free), namespace.clone()) {
                Ok(monitor) => self.monitors.push(monitor),
                Err(e) => tracing::warn!(%ip, "interface is not watched: {e}"),
            }
        }
        let Some(monitor) = self.monitors.iter().find(|m| m.is_of(namespace.as_ref())) else {
            return;
        };
        let link = monitor.table().link(device.as_deref(), ip);
        self.watched.insert(ni, Watched { device, ip, link, namespace });
        let now = self.tick();
        self.unfinished = true;
        self.node.link_changed(now, ni, link);
    }

    /// Watches an interface no longer, nor a namespace that has no other one.
    fn unwatch(&mut self, ni: NiId) {
        let Some(gone) = self.watched.remove(&ni) else { return };
        let one = gone.namespace.as_ref();
        if one.is_some() && !self.watched.values().any(|w| w.namespace.as_ref() == one) {
            self.monitors.retain(|m| !m.is_of(one));
        }
        // It may have been the one with the lost link.
        self.find_detours();
    }

    /// Takes in what netlink has to say.
    pub(crate) fn watch_links(&mut self) {
        self.monitor_ready = false;
        let now = self.tick();
        let mut changed = false;
        for monitor in &mut self.monitors {
            changed |= monitor.turn();
            self.monitor_ready |= monitor.is_behind();
        }
        if !changed {
            return;
        }
        self.unfinished = true;
        let mut links_changed = false;
        for (ni, w) in &mut self.watched {
            let monitor = self.monitors.iter().find(|m| m.is_of(w.namespace.as_ref()));
            let Some(monitor) = monitor else { continue };
            let link = monitor.table().link(w.device.as_deref(), w.ip);
            if link != w.link {
                tracing::info!(ip = %w.ip, ?link, "interface");
                w.link = link;
                links_changed = true;
                // The driver first: what the node then sends finds it ready.
                if let Some(id) = self.ni_driver.get(*ni) {
                    let driver = self.drivers[usize::from(id.0)].driver.get_mut();
                    driver.link_changed(now, *ni, link, &mut self.node);
                }
                self.node.link_changed(now, *ni, link);
            }
        }
        if links_changed {
            self.find_detours();
        }
    }

    // ---- Memory ----

    /// Registers a buffer for use by any number of descriptors of the caller.
    ///
    /// # Errors
    /// Gives the buffer back when there are [`Regions::MAX`] regions.
    pub fn lend(&mut self, buffer: Buffer) -> Result<RegionId, OpFailed> {
        self.mem.lend(buffer).map_err(|buffer| OpFailed {
            error: OpError::NoRegion(Regions::MAX),
            buffer: Some(buffer),
        })
    }

    /// Takes back a buffer that no descriptor uses any more.
    ///
    /// # Errors
    /// [`MemoryError::InUse`], [`MemoryError::Span`] if there is no such region.
    pub fn take_back(&mut self, region: RegionId) -> Result<Buffer, MemoryError> {
        let gone = MemoryError::Span { region, start: 0, end: 0 };
        self.mem.len_of(region).ok_or(gone)?;
        match self.mem.descriptors(region) {
            0 => self.mem.remove(region).ok_or(gone),
            n => Err(MemoryError::InUse(n)),
        }
    }

    /// The whole of a region, as descriptors name it.
    pub fn region(&self, region: RegionId) -> IoVec {
        spans(region, 0..self.mem.len_of(region).unwrap_or(0) as u64)
    }

    /// The bytes of registered memory. Panics on a span that is not inside a region.
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.mem.bytes(span)
    }

    /// The bytes of registered memory, to be written. Panics as [`Stack::bytes`], and on bytes that
    /// have been delivered to an `Attachment`.
    pub fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        self.mem.bytes_mut(span)
    }

    /// What an event at a buffer with handler brought. `None` for other events, and for bytes that
    /// lie in more than one span.
    pub fn payload(&mut self, event: &Event) -> Option<&[u8]> {
        let iov = match self.owners.get_mut(event.user)? {
            Owner::Handler { iov, .. } => iovec_slice(iov, event.offset, u64::from(event.mlength)),
            Owner::Operation(_) | Owner::Inbox(_) | Owner::Ring(_) => return None,
        };
        match iov.as_slice() {
            [] => Some(&[]),
            [span] => Some(self.mem.bytes(*span)),
            _ => None,
        }
    }

    // ---- Descriptors and operations of the caller ----

    /// Makes a free-floating descriptor. Its events are polled with [`Stack::poll_event`].
    ///
    /// # Errors
    /// [`MemoryError`], without any effect.
    pub fn bind(&mut self, spec: MdSpec) -> Result<MdId, MemoryError> {
        let (iov, spec) = self.raw_spec(spec)?;
        let md = self.node.bind(spec)?;
        self.keep_raw(md, iov);
        Ok(md)
    }

    /// Attaches a buffer to a portal. Its events are polled with [`Stack::poll_event`].
    ///
    /// # Errors
    /// [`MemoryError`], without any effect.
    pub fn attach(
        &mut self,
        portal: u32,
        me: MatchEntry,
        spec: MdSpec,
    ) -> Result<MdId, MemoryError> {
        let (iov, spec) = self.raw_spec(spec)?;
        let now = self.tick();
        let md = self.node.attach(now, portal, me, spec)?;
        self.keep_raw(md, iov);
        self.unfinished = true;
        Ok(md)
    }

    /// [`Stack::bind`], with events going to `handler` as they happen; `spec.user` is not used.
    ///
    /// # Errors
    /// [`MemoryError`], without any effect.
    pub fn bind_handler(
        &mut self,
        spec: MdSpec,
        handler: impl FnMut(&mut Self, &Event) + Send + 'static,
    ) -> Result<MdId, MemoryError> {
        self.with_handler(spec, Box::new(handler), false, |stack, spec| stack.node.bind(spec))
            .map(|(md, _)| md)
    }

    /// [`Stack::attach`], with events going to `handler` as they happen; `spec.user` is not used.
    ///
    /// # Errors
    /// [`MemoryError`], without any effect.
    pub fn attach_handler(
        &mut self,
        portal: u32,
        me: MatchEntry,
        spec: MdSpec,
        handler: impl FnMut(&mut Self, &Event) + Send + 'static,
    ) -> Result<MdId, MemoryError> {
        self.with_handler(spec, Box::new(handler), false, |stack, spec| {
            let now = stack.tick();
            stack.node.attach(now, portal, me, spec)
        })
        .map(|(md, _)| md)
    }

    /// For handles: attaches a buffer that goes with its descriptor.
    pub(crate) fn attach_service(
        &mut self,
        portal: u32,
        me: MatchEntry,
        buffer: Buffer,
        options: AttachOptions,
        handler: HandlerFn,
    ) -> Result<u64, OpFailed> {
        if self.is_stopping() {
            return Err(OpFailed { error: OpError::Stopped, buffer: Some(buffer) });
        }
        let len = buffer.len();
        let region = self.lend(buffer)?;
        let spec = options.spec(region, len, 0);
        let attached = self.with_handler(spec, handler, true, |stack, spec| {
            let now = stack.tick();
            stack.node.attach(now, portal, me, spec)
        });
        match attached {
            Ok((_, key)) => Ok(key),
            Err(e) => {
                let error = match e {
                    MemoryError::Attach(e) => e.into(),
                    // The span is the region just made, and the user word the stack's own.
                    _ => OpError::Stopped,
                };
                Err(OpFailed { error, buffer: self.mem.remove(region) })
            }
        }
    }

    fn with_handler(
        &mut self,
        spec: MdSpec,
        handler: HandlerFn,
        owns_regions: bool,
        make: impl FnOnce(&mut Self, MdSpec) -> Result<MdId, AttachError>,
    ) -> Result<(MdId, u64), MemoryError> {
        self.check_spans(&spec.buf)?;
        let iov = spec.buf.clone();
        let key = self.owners.insert(Owner::Handler {
            run: Some(handler),
            md: MdId::default(),
            iov: iov.clone(),
            owns_regions,
        });
        let made = make(self, MdSpec { user: key, events: true, ..spec });
        match (made, self.owners.get_mut(key)) {
            (Ok(made), Some(Owner::Handler { md, .. })) => {
                *md = made;
                iov.iter().for_each(|s| self.mem.add_descriptor(s.region));
                self.unfinished = true;
                Ok((made, key))
            }
            (made, _) => {
                self.owners.remove(key);
                Err(made.err().unwrap_or(AttachError::NoOperation).into())
            }
        }
    }

    /// Unlinks a descriptor: its last event comes now, or with the operation that still uses it.
    ///
    /// # Errors
    /// There is no such descriptor (any more).
    pub fn unlink(&mut self, md: MdId) -> Result<(), UnlinkError> {
        let now = self.tick();
        self.unfinished = true;
        self.node.unlink(now, md)
    }

    /// Starts a PUT of a bound descriptor.
    ///
    /// # Errors
    /// The node's.
    pub fn put(&mut self, put: Put) -> Result<(), SendError> {
        let now = self.tick();
        self.unfinished = true;
        self.node.put(now, put)?;
        self.carry_outputs();
        Ok(())
    }

    /// Starts a GET into a bound descriptor.
    ///
    /// # Errors
    /// The node's.
    pub fn get(&mut self, get: Get) -> Result<(), SendError> {
        let now = self.tick();
        self.unfinished = true;
        self.node.get(now, get)?;
        self.carry_outputs();
        Ok(())
    }

    /// The next event of a descriptor made with [`Stack::bind`] or [`Stack::attach`].
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next end of a ping or discovery that was begun with [`Stack::node_mut`].
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    // ---- The rest ----

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node, to be configured. Its outputs are carried out in the next turn.
    pub fn node_mut(&mut self) -> &mut Node {
        self.unfinished = true;
        &mut self.node
    }

    /// The time: of this turn inside of one, read from the clock otherwise.
    pub fn tick(&mut self) -> Instant {
        if !self.in_turn {
            self.now = self.clock.now();
        }
        self.now
    }

    /// A handle for other threads. It does not keep a node alive that runs on its own thread.
    pub fn handle(&self) -> NodeHandle {
        NodeHandle::observer(Arc::clone(&self.mailbox))
    }

    /// What this stack has counted.
    pub fn stats(&self) -> StackStats {
        self.stats
    }

    /// Operations and attachments that this stack has in hand for others, and regions of memory.
    pub fn in_use(&self) -> (usize, usize) {
        (self.owners.len(), self.mem.len())
    }

    /// Gives the stack a thread of its own.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn spawn(self, name: impl Into<String>, spin: Spin) -> io::Result<NodeHandle> {
        let mailbox = Arc::clone(&self.mailbox);
        thread::Builder::new().name(name.into()).spawn(move || shard::run(self, spin))?;
        Ok(NodeHandle::owner(mailbox))
    }

    /// Begins to stop: attachments are detached at once, operations may finish within `grace`, then
    /// interfaces go down. Over when [`Stack::is_stopped`] says so; turns are needed to get there.
    pub fn stop(&mut self, grace: Duration) {
        self.begin_stop(grace);
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    pub(crate) fn unlink_md(&mut self, md: MdId) {
        // One that is gone already has reported its end.
        let _ = self.unlink(md);
    }

    /// The waiter for `key` is gone.
    pub(crate) fn release(&mut self, key: u64) {
        let md = match self.owners.get_mut(key) {
            Some(Owner::Operation(pending)) => pending.md(),
            Some(Owner::Inbox(inbox)) => inbox.md(),
            Some(Owner::Ring(posted)) => posted.md(),
            Some(Owner::Handler { md, .. }) => *md,
            None => return,
        };
        self.unlink_md(md);
    }

    pub(crate) fn execute(&mut self, command: Command) {
        self.stats.commands += 1;
        match command {
            Command::Begin(operation) => self.begin(operation),
            Command::Release(key) => self.release(key),
            Command::Call(call) => call(self),
            Command::Stop(grace) => self.begin_stop(grace),
        }
    }

    /// Takes an event of the node to its owner.
    pub(crate) fn deliver_event(&mut self, event: &mut Event) {
        self.stats.events += 1;
        if event.user & OWNED == 0 {
            if self.uppers.event(self.now, event, &mut self.node, &mut self.mem) {
                return;
            }
            if event.unlinked
                && let Some(iov) = self.raw.remove(&event.md)
            {
                iov.iter().for_each(|s| self.mem.drop_descriptor(s.region));
            }
            if event.user & SILENT == 0 {
                self.events.push_back(*event);
            }
            return;
        }
        match self.owners.get_mut(event.user) {
            Some(Owner::Operation(_)) => self.operation_event(event.user, event),
            Some(Owner::Inbox(_)) => self.inbox_event(event.user, event),
            Some(Owner::Ring(_)) => self.ring_event(event.user, event),
            Some(Owner::Handler { run, .. }) => {
                let run = run.take();
                self.handler_event(event.user, event, run);
            }
            None => tracing::warn!("event without a recipient: {event:?}"),
        }
    }

    pub(crate) fn deliver_report(&mut self, report: Report) {
        match self.waiters.remove(&report.op) {
            // The waiter may be gone.
            Some(Waiter { is_ping, target, answer }) => {
                let failed = |errno| OpError::Question { is_ping, target, errno };
                _ = answer.send(report.outcome.map_err(failed));
            }
            None if self.uppers.report(self.now, &report, &mut self.node, &mut self.mem) => {}
            None => self.reports.push_back(report),
        }
    }

    fn handler_event(&mut self, key: u64, event: &Event, handler: Option<HandlerFn>) {
        // Events are delivered one after the other, so a handler is never found running.
        let Some(mut handler) = handler else { return };
        handler(self, event);
        if !event.unlinked {
            if let Some(Owner::Handler { run, .. }) = self.owners.get_mut(key) {
                *run = Some(handler);
            }
            return;
        }
        if let Some(Owner::Handler { iov, owns_regions, .. }) = self.owners.remove(key) {
            for span in &iov {
                self.mem.drop_descriptor(span.region);
                if owns_regions && self.mem.descriptors(span.region) == 0 {
                    self.mem.remove(span.region);
                }
            }
        }
    }

    fn raw_spec(&self, mut spec: MdSpec) -> Result<(IoVec, MdSpec), MemoryError> {
        if spec.user & (OWNED | SILENT | upper::MARK) != 0 {
            return Err(MemoryError::UserWord(spec.user));
        }
        self.check_spans(&spec.buf)?;
        // The stack must see the last event in any case, to know when the memory is free.
        spec.options.remove(lnet::MdOptions::QUIET);
        if !spec.events {
            spec.events = true;
            spec.user |= SILENT;
        }
        Ok((spec.buf.clone(), spec))
    }

    fn keep_raw(&mut self, md: MdId, iov: IoVec) {
        iov.iter().for_each(|s| self.mem.add_descriptor(s.region));
        self.raw.insert(md, iov);
    }

    fn check_spans(&self, iov: &[Span]) -> Result<(), MemoryError> {
        if let Some(Span { region, len, offset }) = self.mem.first_outside(iov) {
            let end = offset.saturating_add(u64::from(len));
            return Err(MemoryError::Span { region, start: offset, end });
        }
        Ok(())
    }
}

impl Drop for Stack {
    /// Fails what is left: one outcome for every waiter.
    fn drop(&mut self) {
        self.mailbox.close();
        // An adapter may write to memory until it is gone, and what follows gives memory back.
        self.drivers.clear();
        for key in self.owners.keys() {
            match self.owners.remove(key) {
                Some(Owner::Operation(pending)) => pending.abort(&mut self.mem),
                Some(Owner::Inbox(inbox)) => inbox.abort(&mut self.mem),
                Some(Owner::Ring(posted)) => posted.abort(key, &mut self.mem),
                Some(Owner::Handler { .. }) | None => {}
            }
        }
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("drivers", &self.drivers.len())
            .field("owners", &self.owners.len())
            .field("memory", &self.mem)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
