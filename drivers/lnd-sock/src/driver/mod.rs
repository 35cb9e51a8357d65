//! The driver: interfaces, peers and connections in tables, and the turn. What happens inside a turn
//! is in the files beside this one, each an `impl SockDriver` of its subject.
//!
//! Nothing is polled per connection and turn. A connection is looked at when its stream is ready,
//! when it is in one of the short lists below, or when its timer fires.

mod accept;
mod close;
mod conn;
pub(crate) mod detour;
mod dial;
mod faults;
mod handshake;
mod lenders;
mod part;
mod receive;
mod refused;
mod show;
mod timers;
mod transmit;
mod watch;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet::{Doubt, Driver, InDoubt, Link, Node, Profile, Ready, Transmit, Tunables, Verdict};
use lnet_types::{Fault, Instant, Memory, MsgId, NiId, Nid, PeerNiId, Pid, ProcessId, RxId};
use slotmap::{SecondaryMap, SlotMap};

use crate::error::StartError;
use crate::lookup::Lookup;
use crate::peer::{ConnKey, Peer, PeerKey};
use crate::proto::admit::Held;
use crate::proto::kinds::Kind;
use crate::proto::retained::{Orphan, Retained};
use crate::proto::txq::{Pieces, STAGE_LEN};
use crate::stats::{Stats, Traffic};
use crate::streams::{ListenerId, NamespaceId, Source, StreamOptions, Streams};
use crate::tunables::{AcceptMode, CONNS_PER_PEER_MAX, SockConfig, Suspicion, TimeLimits};
use crate::upper::Upper;

use conn::{Conn, Recent};
use detour::Kept;
use refused::Turned;

/// An interface to be served.
#[derive(Clone, Debug)]
pub struct NiStart {
    /// The node's name for it.
    pub ni: NiId,
    /// Its NID.
    pub nid: Nid,
    /// The address that it listens on and connects from.
    pub addr: IpAddr,
    /// The device that the address is on; needed for link-local IPv6 addresses.
    pub interface: Option<String>,
    /// Tells this life of the interface from earlier ones: wall-clock nanoseconds at start.
    pub incarnation: u64,
    /// Bulk connections each way per peer, 1 to [`CONNS_PER_PEER_MAX`].
    pub conns_per_peer: u8,
    /// Type of service 0 to 255, or -1 for the system's choice.
    pub tos: i16,
    /// Time limit of one transmission (`sock_timeout`, K-3).
    pub lnd_timeout: Duration,
    /// The network namespace of its address, if it is another one than the driver's.
    pub namespace: Option<NamespaceId>,
}

/// An interface that is served.
#[derive(Debug)]
struct Ni {
    nid: Nid,
    addr: IpAddr,
    interface: Option<String>,
    namespace: Option<NamespaceId>,
    incarnation: u64,
    conns_per_peer: u8,
    options: StreamOptions,
    timeout: Duration,
    /// It uses the listener of its address.
    listening: bool,
    /// Cut by a test: see `faults.rs`.
    blocked: bool,
    /// Whose streams stay on its device.
    kept: Kept,
    traffic: Traffic,
    /// The peers that messages went to, by the node's names for their interfaces; some may be gone.
    peers: SecondaryMap<PeerNiId, PeerKey>,
}

impl Ni {
    /// Whether it takes connections to an address of a namespace.
    fn serves(&self, namespace: Option<NamespaceId>, addr: IpAddr) -> bool {
        (self.namespace, self.addr) == (namespace, addr) && self.listening && !self.blocked
    }
}

/// Where is listened: the same address may be there in several namespaces.
type Site = (Option<NamespaceId>, SocketAddr);

/// What a timer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A peer and all its connections.
    Peer(PeerKey),
    /// A connection that belongs to no peer yet, or has parted from it.
    Conn(ConnKey),
    /// A listener that could not accept.
    Accept(ListenerId),
    /// The rail to a peer, which is to be looked at.
    Look(PeerKey),
}

/// The TCP driver. One value serves any number of interfaces of one node.
#[derive(Debug)]
pub struct SockDriver<S> {
    config: SockConfig,
    streams: S,
    stats: Stats,
    nis: SecondaryMap<NiId, Ni>,
    /// Which interfaces there are; a handful.
    ni_list: Vec<NiId>,
    /// The listener of each address and port, and how many interfaces use it.
    listeners: BTreeMap<Site, (ListenerId, usize)>,
    conns: SlotMap<ConnKey, Conn>,
    peers: SlotMap<PeerKey, Peer>,
    by_id: Lookup<(NiId, Nid, Pid), PeerKey>,
    /// Connection of each stream, by its number.
    by_stream: Vec<Option<ConnKey>>,
    /// What the connections of each remote address hold.
    by_address: BTreeMap<IpAddr, Held>,
    /// Who was turned away lately.
    refused: Turned,
    /// Accepted connections in handshake.
    pending: usize,
    timers: BTreeSet<(Instant, Timer)>,
    /// Counts uses of connections, for "least recently used".
    uses: u64,

    /// Connections with something to write.
    dirty: Vec<ConnKey>,
    /// Peers with acknowledgements to write.
    ack_dirty: Vec<PeerKey>,
    /// Peers to be connected to now.
    dials: Vec<PeerKey>,
    /// Connections of bulk data with something to read, and others that were left before they were
    /// drained; the first one has waited longest.
    backlog: VecDeque<ConnKey>,
    /// What may still be moved in this turn.
    room: Room,
    /// Connections whose last read gave less than it asked for. Nearly always they are drained;
    /// an end of file that came with the last bytes would be missed without another look.
    verify: Vec<ConnKey>,
    /// Listeners that may have more connections.
    accepts: Vec<ListenerId>,
    /// Messages that ended inside `send`, to be reported at the next opportunity.
    ended: Vec<(MsgId, Fault)>,
    recent: Recent,
    /// When rails are suspected; never if `None`.
    suspicion: Option<Suspicion>,
    limits: TimeLimits,
    /// Bytes that one connection retains, at most.
    retained_max: usize,
    /// Rails that are being looked at.
    watched: usize,
    /// Rails with a new judgement that is not yet reported to the node.
    judged: Vec<(NiId, Nid, Doubt)>,
    /// The caller of the last `turn` spins: there will be another one at once.
    spinning: bool,

    /// The one read buffer and the one staging buffer, lent to each reader and writer.
    rbuf: Vec<u8>,
    stage: Vec<u8>,
    pieces: Pieces,
    done: Vec<MsgId>,
    /// Connections that something is lent to by messages that have not ended (`proto/retained.rs`).
    lenders: Vec<ConnKey>,
    /// When they are looked at, if there is no turn before.
    lenders_due: Instant,
    /// Those of the messages that have ended, to be reported before the call is over; and those whose
    /// connection has.
    repaid: Vec<MsgId>,
    orphans: Vec<Orphan>,
    /// Memory for what the next connection retains that has nothing in doubt.
    spare: Option<Box<Retained>>,
    /// Privileged source ports were refused by the system, and that has been said.
    unprivileged: bool,
}

/// Bytes that are still read, and written, before the turn ends. What is left waits for the next one, so
/// that small messages and the news of a lost link wait for a megabyte of bulk data each way and not for
/// what all connections hold. The time-outs behind a turn have as much once more.
#[derive(Clone, Copy, Debug)]
struct Room {
    read: usize,
    write: usize,
}

impl Room {
    /// That of a whole turn: the largest message.
    const FULL: Self = Self { read: 1 << 20, write: 1 << 20 };
}

/// Bytes of the shared read buffer.
const READ_LEN: usize = 64 * 1024;

impl<S: Streams> SockDriver<S> {
    /// A driver without interfaces. `seed` keys its hash tables.
    pub fn new(config: SockConfig, streams: S, seed: u64) -> Self {
        Self {
            config,
            streams,
            stats: Stats::new(),
            nis: SecondaryMap::new(),
            ni_list: Vec::new(),
            listeners: BTreeMap::new(),
            conns: SlotMap::with_key(),
            peers: SlotMap::with_key(),
            by_id: Lookup::new(seed),
            by_stream: Vec::new(),
            by_address: BTreeMap::new(),
            refused: Turned::default(),
            pending: 0,
            timers: BTreeSet::new(),
            uses: 0,
            dirty: Vec::new(),
            ack_dirty: Vec::new(),
            dials: Vec::new(),
            backlog: VecDeque::new(),
            room: Room::FULL,
            verify: Vec::new(),
            accepts: Vec::new(),
            ended: Vec::new(),
            recent: Recent::default(),
            suspicion: None,
            limits: TimeLimits::default(),
            retained_max: Tunables::new(Profile::Default).retained_per_connection as usize,
            watched: 0,
            judged: Vec::new(),
            spinning: false,
            rbuf: vec![0; READ_LEN],
            stage: Vec::with_capacity(STAGE_LEN),
            pieces: Pieces::new(),
            done: Vec::new(),
            lenders: Vec::new(),
            lenders_due: Instant::FAR_FUTURE,
            repaid: Vec::new(),
            orphans: Vec::new(),
            spare: None,
            unprivileged: false,
        }
    }

    /// The settings.
    pub const fn config(&self) -> &SockConfig {
        &self.config
    }

    /// The streams below.
    pub const fn streams(&self) -> &S {
        &self.streams
    }

    /// The streams below, for their driver.
    pub const fn streams_mut(&mut self) -> &mut S {
        &mut self.streams
    }

    /// Begins to serve an interface: listens, unless the accept mode is `None`.
    ///
    /// # Errors
    /// Settings out of range; an address that can't be listened on.
    pub fn ni_start(&mut self, _now: Instant, start: NiStart) -> Result<(), StartError> {
        if self.nis.contains_key(start.ni) {
            return Err(StartError::AlreadyStarted(start.ni));
        }
        check_conns_per_peer(start.conns_per_peer)?;
        if start.lnd_timeout.is_zero() {
            return Err(StartError::Timeout);
        }
        let tos = match start.tos {
            -1 => None,
            tos => Some(u8::try_from(tos).map_err(|_| StartError::Tos(tos))?),
        };
        let mut ni = Ni {
            nid: start.nid,
            addr: start.addr,
            interface: start.interface,
            namespace: start.namespace,
            incarnation: start.incarnation,
            conns_per_peer: start.conns_per_peer,
            options: StreamOptions {
                nodelay: !self.config.nagle,
                keepalive: self.config.tcp_keepalive,
                tos,
                send_buffer: self.config.send_buffer,
                recv_buffer: self.config.recv_buffer,
                even_retries: self.suspicion.is_some(),
                rto_max: self.limits.rto_max,
            },
            timeout: start.lnd_timeout,
            listening: false,
            blocked: false,
            kept: Kept::default(),
            traffic: Traffic::default(),
            peers: SecondaryMap::new(),
        };
        self.listen(&mut ni)?;
        if !self.config.is_privileged() && self.ni_list.is_empty() {
            tracing::info!(
                port = self.config.port,
                "unprivileged net: source ports prove nothing here; kernel nodes in accept mode \
                 `secure` refuse peers without privileged source ports and connect to port 988"
            );
        }
        self.nis.insert(start.ni, ni);
        self.ni_list.push(start.ni);
        Ok(())
    }

    /// The ports that are listened on: one, or another one for bulk connections.
    fn ports(&self) -> impl Iterator<Item = u16> + use<S> {
        let (port, bulk) = (self.config.port, self.config.bulk_port);
        core::iter::once(port).chain((bulk != port).then_some(bulk))
    }

    /// Interfaces on one address (`tcp` and `tcp1`) share its listeners.
    fn listen(&mut self, ni: &mut Ni) -> Result<(), StartError> {
        if self.config.accept == AcceptMode::None {
            return Ok(());
        }
        let mut open: Vec<Site> = Vec::new();
        for port in self.ports() {
            let at = SocketAddr::new(ni.addr, port);
            let site = (ni.namespace, at);
            if let Some((_, users)) = self.listeners.get_mut(&site) {
                *users += 1;
            } else {
                let interface = ni.interface.as_deref();
                let listener = match ni.namespace {
                    None => self.streams.listen(at, interface),
                    Some(namespace) => self.streams.listen_in(namespace, at, interface),
                };
                match listener {
                    Ok(listener) => _ = self.listeners.insert(site, (listener, 1)),
                    Err(errno) => {
                        open.into_iter().for_each(|site| self.unlisten_at(site));
                        return Err(StartError::Listen { at, errno });
                    }
                }
            }
            open.push(site);
        }
        ni.listening = true;
        Ok(())
    }

    fn unlisten(&mut self, ni: NiId) {
        let Some(ni) = self.nis.get_mut(ni) else { return };
        if !core::mem::take(&mut ni.listening) {
            return;
        }
        let (namespace, addr) = (ni.namespace, ni.addr);
        for port in self.ports() {
            self.unlisten_at((namespace, SocketAddr::new(addr, port)));
        }
    }

    /// One interface uses this listener no longer.
    fn unlisten_at(&mut self, at: Site) {
        if let Some((listener, users)) = self.listeners.get_mut(&at) {
            *users -= 1;
            if *users == 0 {
                self.streams.unlisten(*listener);
                self.listeners.remove(&at);
            }
        }
    }

    /// Sets the bulk connections per peer of an interface, for peers met from now on (K-12).
    ///
    /// # Errors
    /// Out of range.
    pub fn set_conns_per_peer(&mut self, ni: NiId, n: u8) -> Result<(), StartError> {
        check_conns_per_peer(n)?;
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.conns_per_peer = n;
        }
        Ok(())
    }

    /// Sets the time limit of transmissions on an interface, for those that begin from now on.
    ///
    /// # Errors
    /// Zero.
    pub fn set_timeout(&mut self, ni: NiId, timeout: Duration) -> Result<(), StartError> {
        if timeout.is_zero() {
            return Err(StartError::Timeout);
        }
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.timeout = timeout;
        }
        Ok(())
    }

    /// [`Driver::turn`] for any [`Upper`].
    pub fn turn<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        ready: &[Ready],
        spin: bool,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        self.spinning = spin;
        self.room = Room::FULL;
        if spin {
            self.look_at_recent(now, up, mem);
        } else {
            self.verify(now, up, mem);
        }
        for ready in ready {
            match self.streams.source(ready.token) {
                Some(Source::Listener(listener)) => self.accept(now, listener),
                Some(Source::Stream(stream)) => {
                    let Some(key) = self.by_stream.get(stream.0 as usize).copied().flatten() else {
                        continue;
                    };
                    // First what comes in: an acknowledgement may ride on what goes out. Small
                    // messages wait for no bulk data.
                    if ready.readable && self.carries_bulk(key) {
                        self.look_again(key);
                    } else if ready.readable {
                        self.readable(now, key, up, mem);
                    }
                    if ready.writable {
                        self.writable(now, key, up);
                    }
                }
                None => {}
            }
        }
        self.catch_up(now, up, mem);
        self.look_at_lenders(now, mem);
        self.end_lent(now, up, mem);
    }

    /// [`Driver::flush`] for any [`Upper`].
    pub fn flush<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        if self.is_quiet() {
            return;
        }
        if !(self.ended.is_empty() && self.judged.is_empty() && self.dials.is_empty()) {
            for (msg, fault) in core::mem::take(&mut self.ended) {
                up.tx_done(now, msg, Err(fault));
            }
            self.report_judged(now, up);
            for peer in core::mem::take(&mut self.dials) {
                self.dial(now, peer, up);
            }
        }
        let mut dirty = core::mem::take(&mut self.dirty);
        let mut waiting = Vec::new();
        for key in dirty.drain(..) {
            if self.room.write == 0 && self.carries_bulk(key) {
                waiting.push(key);
            } else {
                self.write_out(now, key, up, mem);
            }
        }
        if !waiting.is_empty() {
            // Before those that have had their part.
            waiting.append(&mut self.dirty);
            self.dirty = waiting;
        } else if self.dirty.is_empty() {
            // Its memory is used again.
            self.dirty = dirty;
        }
        self.flush_acks(now, up, mem);
        if !self.spinning {
            self.verify(now, up, mem);
        }
        self.end_lent(now, up, mem);
    }

    /// [`Driver::handle_timeout`] for any [`Upper`].
    pub fn handle_timeout<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        self.room = Room::FULL;
        self.verify(now, up, mem);
        self.catch_up(now, up, mem);
        self.fire_timers(now, up, mem);
        self.look_at_lenders(now, mem);
        self.end_lent(now, up, mem);
    }

    /// [`Driver::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at_once = !(self.is_quiet()
            && self.verify.is_empty()
            && self.backlog.is_empty()
            && self.accepts.is_empty());
        if at_once {
            return Some(Instant::ZERO);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.lenders_due()).min()
    }

    /// Whether [`Self::flush`] has nothing to do. It is called several times in each turn. While the caller
    /// spins, the second look at a connection is the next turn's.
    fn is_quiet(&self) -> bool {
        self.dirty.is_empty()
            && self.ack_dirty.is_empty()
            && self.dials.is_empty()
            && (self.spinning || self.verify.is_empty())
            && self.ended.is_empty()
            && self.judged.is_empty()
            && self.repaid.is_empty()
            && self.orphans.is_empty()
    }

    /// Continues what an earlier call left for reasons of fairness.
    fn catch_up<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        if self.accepts.is_empty() && self.backlog.is_empty() {
            return;
        }
        for listener in core::mem::take(&mut self.accepts) {
            self.accept(now, listener);
        }
        while self.room.read > 0
            && let Some(key) = self.backlog.pop_front()
        {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.in_backlog = false;
            }
            self.readable(now, key, up, mem);
        }
    }

    /// Whether large messages flow on a connection: all but those that are for small ones alone.
    fn carries_bulk(&self, key: ConnKey) -> bool {
        let up = self.conns.get(key).and_then(Conn::up);
        up.is_some_and(|up| up.kind != Kind::Control)
    }

    /// Looks at the connections that were busy lately; that is the second look at those of them that
    /// were probably drained.
    fn look_at_recent<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        up: &mut U,
        mem: &mut dyn Memory,
    ) {
        if !self.verify.is_empty() {
            let (conns, recent) = (&mut self.conns, &self.recent);
            self.verify.retain(|key| {
                let looked_at = recent.has(*key);
                if looked_at && let Some(conn) = conns.get_mut(*key) {
                    conn.in_verify = false;
                }
                !looked_at
            });
            if !self.verify.is_empty() {
                self.verify(now, up, mem);
            }
        }
        // What this look finds to be drained waits in the list for the next one. One that has news moves to
        // the first place, and only those that were looked at move back.
        let mut at = 0;
        while let Some(key) = self.recent.look(at) {
            // Small messages wait for no bulk data.
            if self.carries_bulk(key) {
                self.look_again(key);
            } else {
                self.readable(now, key, up, mem);
            }
            at += 1;
        }
    }

    /// Looks once more at connections that were probably drained.
    fn verify<U: Upper + ?Sized>(&mut self, now: Instant, up: &mut U, mem: &mut dyn Memory) {
        let mut verify = core::mem::take(&mut self.verify);
        for key in verify.drain(..) {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.in_verify = false;
            }
            self.readable(now, key, up, mem);
        }
        if self.verify.is_empty() {
            self.verify = verify;
        }
    }

    /// The interface, if it is served.
    fn ni(&self, ni: NiId) -> Option<&Ni> {
        self.nis.get(ni)
    }

    /// The time limit of `ni`; any number for one that is gone.
    fn timeout(&self, ni: NiId) -> Duration {
        self.ni(ni).map_or(Duration::from_secs(50), |ni| ni.timeout)
    }

    /// The time limit of connection attempts from `ni`.
    fn connect_timeout(&self, ni: NiId) -> Duration {
        shorter(self.timeout(ni), self.limits.connect)
    }

    /// How long a connection to a peer may stay unacknowledged. What the transport can still deliver is
    /// not thrown away, unless the two nodes repeat what is lost (DEC-47).
    fn progress_timeout(&self, key: PeerKey) -> Duration {
        let Some(peer) = self.peers.get(key) else { return Duration::MAX };
        let timeout = self.timeout(peer.ni);
        if self.replaces(peer) { self.limits.reconnect.min(timeout) } else { timeout }
    }

    /// Whether a silent connection to `peer` is replaced, before the LND timeout is over.
    fn replaces(&self, peer: &Peer) -> bool {
        let can_dial = peer.active || !peer.id.pid.is_user();
        peer.repeats && can_dial && self.suspicion.is_some() && !self.limits.reconnect.is_zero()
    }

    /// The peer, if it has a record.
    fn find_peer(&self, ni: NiId, nid: Nid, pid: Pid) -> Option<PeerKey> {
        self.by_id.find(&(ni, nid, pid))
    }

    fn add_peer(&mut self, peer: Peer) -> PeerKey {
        let id = (peer.ni, peer.id.nid, peer.id.pid);
        let key = self.peers.insert(peer);
        self.by_id.insert(id, key);
        key
    }

    /// Forgets a peer without connections.
    fn remove_peer(&mut self, key: PeerKey) {
        if let Some(peer) = self.peers.remove(key) {
            self.by_id.remove(&(peer.ni, peer.id.nid, peer.id.pid));
            self.timers.remove(&(peer.timer, Timer::Peer(key)));
            self.unwatch(key, &peer);
        }
    }
}

/// `limit` where there is one and it is shorter than `timeout`.
fn shorter(timeout: Duration, limit: Duration) -> Duration {
    if limit.is_zero() { timeout } else { timeout.min(limit) }
}

fn check_conns_per_peer(n: u8) -> Result<(), StartError> {
    if (1..=CONNS_PER_PEER_MAX).contains(&n) { Ok(()) } else { Err(StartError::ConnsPerPeer(n)) }
}

impl<S: Streams> Driver for SockDriver<S> {
    fn turn(
        &mut self,
        now: Instant,
        ready: &[Ready],
        spin: bool,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        Self::turn(self, now, ready, spin, node, mem);
    }

    fn send(&mut self, now: Instant, transmit: &Transmit, _mem: &dyn Memory) -> Result<(), Fault> {
        Self::send(self, now, transmit)
    }

    fn recall(&mut self, ni: NiId, to: ProcessId, msg: MsgId) -> bool {
        Self::recall(self, ni, to, msg)
    }

    fn reclaim(&mut self, ni: NiId, to: Option<ProcessId>) -> Vec<InDoubt> {
        Self::reclaim(self, ni, to)
    }

    fn link_changed(&mut self, now: Instant, ni: NiId, link: Link, node: &mut Node) {
        Self::link_changed(self, now, ni, link, node);
    }

    fn resume(
        &mut self,
        now: Instant,
        rx: RxId,
        verdict: Verdict,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        Self::resume(self, now, rx, verdict, node, mem);
    }

    fn abandon(&mut self, rx: RxId, msg: MsgId) {
        Self::abandon(self, rx, msg);
    }

    fn flush(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory) {
        Self::flush(self, now, node, mem);
    }

    fn handle_timeout(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory) {
        Self::handle_timeout(self, now, node, mem);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn ni_stop(&mut self, now: Instant, ni: NiId, node: &mut Node, _mem: &mut dyn Memory) {
        Self::ni_stop(self, now, ni, node);
    }

    fn lnd_timeout(&self, ni: NiId) -> Option<Duration> {
        self.ni(ni).map(|ni| ni.timeout)
    }
}
