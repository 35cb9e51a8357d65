//! One interface: peers, connections and transmits in tables, and the queue of outputs. What each
//! input leads to is in the files beside this one, each an `impl IbNi` of its subject.

mod check;
mod close;
mod connect;
mod device;
mod kept;
mod receive;
mod timers;
mod transmit;
mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet_types::{Instant, NiId, Nid, RxId};
use lnet_wire::ByteOrder;
use lnet_wire::ib::{MsgHead, Version};
use slotmap::SlotMap;

use crate::conn::Conn;
use crate::credits::Credits;
use crate::fault::CloseReason;
use crate::peer::Peer;
use crate::stats::Stats;
use crate::suspicion::Suspicion;
use crate::tunables::{ConfigError, IbConfig};
use crate::tx::{Tx, TxKey};
use crate::value::{ConnId, Event, MapId, Output, WorkId};

pub use kept::KEPT_MAX;
use receive::Pending;
use timers::Timer;
use watch::Rail;

/// An interface to be served.
#[derive(Clone, Copy, Debug)]
pub struct NiStart {
    /// The node's name for it.
    pub ni: NiId,
    /// Its NID, with a 4-byte address.
    pub nid: Nid,
    /// Tells this life of the interface from earlier ones: wall-clock microseconds at start.
    pub incarnation: u64,
}

/// What the end of a received message gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    /// The buffer alone.
    Buffer,
    /// The buffer, and with it a credit of the peer.
    Credit,
}

/// One interface of the RDMA driver.
#[derive(Debug)]
pub struct IbNi {
    config: IbConfig,
    start: NiStart,
    now: Instant,
    stats: Stats,
    peers: BTreeMap<Nid, Peer>,
    conns: SlotMap<ConnId, Conn>,
    txs: SlotMap<TxKey, Tx>,
    works: BTreeMap<WorkId, (ConnId, TxKey)>,
    maps: BTreeMap<MapId, TxKey>,
    rxs: BTreeMap<RxId, Pending>,
    /// How many of them are kept without a connection.
    kept: usize,
    timers: BTreeSet<(Instant, Timer)>,
    outputs: VecDeque<Output>,
    /// Receive buffers that are posted again once the outputs have been carried out.
    backs: Vec<(ConnId, u16, Back)>,
    /// Accepted connections that are not established.
    accepting: usize,
    last_work: u64,
    last_map: u64,
    last_rx: u64,
    /// Other interfaces of the node are still being set up (`EARLY`).
    others_coming: bool,
    stopped: bool,
    device_gone: bool,
    /// The network interface of the device has no link, or is gone.
    link_lost: bool,
    /// When it is looked for again.
    reopen_at: Option<Instant>,
    /// The interface is unusable.
    fatal: bool,
    /// The highest rate of the link so far, and whether it is slower now.
    rate: u32,
    degraded: bool,
    suspicion: Option<Suspicion>,
    /// Peers whose rails are looked at.
    rails: BTreeMap<Nid, Rail>,
}

impl IbNi {
    /// An interface with nothing going on.
    ///
    /// # Errors
    /// A setting out of its bounds; a NID with a 16-byte address, which no message can carry.
    pub fn new(config: IbConfig, start: NiStart) -> Result<Self, ConfigError> {
        config.check()?;
        if start.nid.is_large() || start.nid.is_any() {
            return Err(ConfigError::LargeNid);
        }
        Ok(Self {
            config,
            start,
            now: Instant::ZERO,
            stats: Stats::default(),
            peers: BTreeMap::new(),
            conns: SlotMap::with_key(),
            txs: SlotMap::with_key(),
            works: BTreeMap::new(),
            maps: BTreeMap::new(),
            rxs: BTreeMap::new(),
            kept: 0,
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            backs: Vec::new(),
            accepting: 0,
            last_work: 0,
            last_map: 0,
            last_rx: 0,
            others_coming: false,
            stopped: false,
            device_gone: false,
            link_lost: false,
            reopen_at: None,
            fatal: false,
            rate: 0,
            degraded: false,
            suspicion: None,
            rails: BTreeMap::new(),
        })
    }

    /// The node's name for the interface.
    pub const fn ni(&self) -> NiId {
        self.start.ni
    }

    /// Its NID.
    pub const fn nid(&self) -> Nid {
        self.start.nid
    }

    /// Whether the link is slower than it has been.
    pub const fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// The settings.
    pub const fn config(&self) -> &IbConfig {
        &self.config
    }

    /// Sets the limit of a transmission, for what begins from now on.
    ///
    /// # Errors
    /// It is zero.
    pub const fn set_timeout(&mut self, limit: Duration) -> Result<(), ConfigError> {
        if limit.is_zero() {
            return Err(ConfigError::Zero { name: "timeout" });
        }
        self.config.timeout = limit;
        Ok(())
    }

    /// Sets how many connections to each peer this side asks for; peers to come get as many.
    ///
    /// # Errors
    /// Out of its bounds.
    pub fn set_conns_per_peer(&mut self, count: u8) -> Result<(), ConfigError> {
        let config = IbConfig { conns_per_peer: count, ..self.config.clone() };
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// Counters.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Connections in use, to one peer or to all.
    pub fn connections(&self, peer: Option<Nid>) -> usize {
        let of = |nid: &Nid| peer.is_none_or(|peer| peer == *nid);
        self.peers.iter().filter(|(nid, _)| of(nid)).map(|(_, peer)| peer.conns.len()).sum()
    }

    /// The credits of each connection in use to `peer`.
    pub fn credits(&self, peer: Nid) -> Vec<(ConnId, &Credits)> {
        let conns = self.peers.get(&peer).map_or(&[][..], |peer| &peer.conns);
        conns.iter().filter_map(|id| Some((*id, &self.conns.get(*id)?.credits))).collect()
    }

    /// Whether other interfaces of the node are still being set up: requests for NIDs that are not
    /// known are refused as `EARLY` meanwhile, so that the peer comes back.
    pub const fn set_others_coming(&mut self, coming: bool) {
        self.others_coming = coming;
    }

    /// The next thing to do. `None` once everything is done; receive buffers are posted again last, so
    /// that what the node answers at once goes ahead of the credits for it.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() && !self.backs.is_empty() {
            for (conn, slot, back) in core::mem::take(&mut self.backs) {
                self.repost(conn, slot, back);
            }
        }
        self.outputs.pop_front()
    }

    /// The next thing to do before the node answers: the same without the receive buffers.
    pub fn poll_decided(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Ends everything in order: connections are closed, messages end with `ENETDOWN`.
    pub fn stop(&mut self, now: Instant) {
        self.clock(now);
        self.stopped = true;
        self.unwatch_all();
        self.forget_device();
        self.close_all(CloseReason::Stopped);
        self.release_all();
    }

    /// Whether a stopped interface has nothing left that the adapter could reach.
    pub fn is_stopped(&self) -> bool {
        self.stopped && self.conns.is_empty() && self.txs.is_empty()
    }

    fn report(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Time never goes backwards.
    fn clock(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The header of a message to a peer.
    const fn head(&self, peer: Nid, stamp: u64, version: Version, credits: u8) -> MsgHead {
        MsgHead {
            order: ByteOrder::Little,
            version,
            credits,
            src: self.start.nid,
            src_stamp: self.start.incarnation,
            dst: peer,
            dst_stamp: stamp,
        }
    }

    fn peer_mut(&mut self, nid: Nid) -> &mut Peer {
        let (config, now) = (&self.config, self.now);
        self.peers.entry(nid).or_insert_with(|| Peer {
            conns: Vec::new(),
            pending: None,
            accepting: BTreeSet::new(),
            queue: VecDeque::new(),
            races: 0,
            attempts: 0,
            retry_at: None,
            version: config.version,
            queue_depth: config.queue_depth,
            max_frags: config.max_frags,
            stamp: 0,
            last_alive: now,
            turn: 0,
        })
    }
}
