//! The objects of one target, as a client has them that caches data under locks.
//!
//! ```text
//!  write ─► lock PW ─► room, promise of space ─► dirty                      Done
//!                                    └ no promise: written through ─►       Done
//!  read  ─► lock PR ─► own dirty data there written back ─► READ ─►         Done
//!  dirty ─► write-back: when called back, too old, too much, waited for ─► WRITE
//! ```
//!
//! Locks stay in the cache of `ldlm::client` when an operation is over; when another client wants one,
//! what is dirty under it is written back first (L-44). A write-back is committed by the target before
//! it is answered: what has left this client needs no second keeping, whatever crashes. If the target
//! evicts this client, what was dirty is gone: the next fsync and the next close of the object each say
//! `EIO`, once. Data that was read is not kept.
//!
//! `op.rs` has the operations, `data.rs` the data requests with their repetitions (L-93), `dirty.rs`
//! and `buffers.rs` what is dirty, `grant.rs` promises of space (L-95), `wire.rs` the requests.

mod buffers;
mod data;
mod dirty;
mod grant;
mod op;
mod wire;

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ldlm::Mode;
use ldlm::client::{GoneReason, HoldId, LockClient, LockEvent, LockId};
use lnet_types::{ByteOrder, Errno, Instant, IoVec};
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::ObjectId;
use lustre_wire::ldlm::{Lvb, Policy, ResourceName};
use lustre_wire::{Checksum, Layout};
use ptlrpc::{CallId, Event, ImportId, ImportState, Rpc};

use buffers::Buffers;
use data::{DataId, Io};
use dirty::{Dirty, Piece};
use grant::Grant;
use op::Op;

/// Most objects with locks, data, operations or errors that are not reported.
pub const OBJECTS_MAX: usize = 65_536;
/// Most operations under way.
pub const OPS_MAX: usize = 65_536;

/// What a client of objects keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OscConfig {
    /// Most dirty bytes; more wait until others are written back.
    pub dirty_max: u64,
    /// Dirty data is written back when it is so old.
    pub max_age: Duration,
    /// Most bytes of a data request; the target may grant fewer.
    pub brw_size: u32,
    /// Data requests under way at a time.
    pub in_flight: usize,
    /// How data is summed up, if the target knows the kind.
    pub checksum: Option<Checksum>,
}

impl Default for OscConfig {
    fn default() -> Self {
        Self {
            dirty_max: 32 << 20,
            max_age: Duration::from_secs(10),
            brw_size: 4 << 20,
            in_flight: 8,
            checksum: Some(Checksum::Crc32c),
        }
    }
}

/// An operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(u64);

/// Bytes that the host sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SumId(DataId);

/// Why an operation does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OscError {
    /// The range is empty, or ends behind the last byte that an object may have.
    #[error("range at {offset} of {len} bytes: must not be empty, and must end at 2^56 at most")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// There are as many as there may be.
    #[error("{what}: limit {limit} reached")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: usize,
    },
    /// The lock can't be asked for.
    #[error(transparent)]
    Lock(#[from] ldlm::client::LockError),
    /// The call can't be made.
    #[error(transparent)]
    Call(#[from] ptlrpc::CallError),
}

/// What a program hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OscEvent {
    /// An operation has ended. A write and a read say how many bytes, a query of the size the size, the
    /// others 0. The memory of a read is the program's again.
    Done {
        /// Which one.
        op: OpId,
        /// How.
        result: Result<u64, Errno>,
    },
    /// The memory of a write is the program's again.
    Free(IoVec),
    /// Bytes are to be summed up: [`Osc::summed`] takes the result.
    Sum {
        /// By which it is answered.
        id: SumId,
        /// How.
        kind: Checksum,
        /// Which bytes.
        memory: IoVec,
    },
}

/// What a client of objects has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OscStats {
    /// Data requests.
    pub requests: u64,
    /// Those that were made again (L-93).
    pub retries: u64,
    /// Bytes that were written back.
    pub written: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Dirty bytes that were lost: the target took their lock away, or did not take them.
    pub lost: u64,
}

/// What an operation works with, for the length of one call.
pub struct Cx<'a, 'b, 'c> {
    /// The locks of the node.
    pub locks: &'a mut LockClient,
    /// The request layer.
    pub rpc: &'a mut Rpc<'b, 'c>,
}

impl core::fmt::Debug for Cx<'_, '_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cx").finish_non_exhaustive()
    }
}

/// A lock that this client has, in the words of data: from the first byte to the last.
#[derive(Clone, Copy, Debug)]
struct HeldLock {
    key: Key,
    start: u64,
    last: u64,
}

impl HeldLock {
    const fn range(&self) -> Range<u64> {
        self.start..self.last.saturating_add(1)
    }
}

/// What has to wait until a range is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// A lock goes.
    Leave(LockId),
    /// An operation goes on.
    Go(OpId),
}

/// The words of an object's resource.
type Key = [u64; 4];

/// What is known of an object.
#[derive(Debug)]
struct Object {
    id: ObjectId,
    dirty: Dirty,
    /// Its size, as far as this client knows: what its locks said, and what it has written since.
    size: u64,
    /// Whether that is more than what this client has written.
    size_known: bool,
    mtime: Option<i64>,
    waits: Vec<(Range<u64>, Then)>,
    /// Operations under way.
    ops: usize,
    /// What the next fsync and the next close say.
    fsync_error: Option<Errno>,
    close_error: Option<Errno>,
}

impl Object {
    const fn new(id: ObjectId) -> Self {
        Self {
            id,
            dirty: Dirty::new(),
            size: 0,
            size_known: false,
            mtime: None,
            waits: Vec::new(),
            ops: 0,
            fsync_error: None,
            close_error: None,
        }
    }

    /// Data was lost. The first reason counts.
    fn fail(&mut self, errno: Errno) {
        self.fsync_error.get_or_insert(errno);
        self.close_error.get_or_insert(errno);
    }
}

/// What a call under way is for.
#[derive(Clone, Copy, Debug)]
enum Calling {
    Data(DataId),
    /// An operation that is one call.
    Op(OpId),
}

/// The objects of one import.
#[derive(Debug)]
pub struct Osc {
    import: ImportId,
    config: OscConfig,
    objects: BTreeMap<Key, Object>,
    ops: BTreeMap<OpId, Op>,
    holds: BTreeMap<HoldId, OpId>,
    locks: BTreeMap<LockId, HeldLock>,
    /// Data requests under way, and reads whose turn has not come.
    ios: BTreeMap<DataId, Io>,
    reads: VecDeque<DataId>,
    calls: BTreeMap<CallId, Calling>,
    /// Writes that wait for room, in their order.
    crowd: VecDeque<OpId>,
    /// Objects with data that something waits for.
    urgent: BTreeSet<Key>,
    /// When the oldest dirty data is too old.
    age_due: Option<Instant>,
    grant: Grant,
    announced: u64,
    buffers: Buffers,
    dirty_bytes: u64,
    /// How often the target has dropped this client.
    generation: u32,
    last_op: u64,
    last_data: u64,
    events: VecDeque<OscEvent>,
    stats: OscStats,
}

/// What a client with locks asks for when it connects.
pub fn wanted() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::GRANT
            | ConnectFlags::SRVLOCK
            | ConnectFlags::VERSION
            | ConnectFlags::BRW_SIZE
            | ConnectFlags::AT
            | ConnectFlags::CKSUM
            | ConnectFlags::FID
            | ConnectFlags::FULL20
            | ConnectFlags::MAXBYTES
            | ConnectFlags::EINPROGRESS
            | ConnectFlags::GRANT_PARAM
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::LVB_TYPE
            | ConnectFlags::LRU_RESIZE
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        brw_size: OscConfig::default().brw_size,
        cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
        ..ConnectData::default()
    }
}

impl Osc {
    /// The objects of an import that is open for locks ([`LockClient::open`]).
    pub fn new(import: ImportId, config: OscConfig) -> Self {
        Self {
            import,
            config,
            objects: BTreeMap::new(),
            ops: BTreeMap::new(),
            holds: BTreeMap::new(),
            locks: BTreeMap::new(),
            ios: BTreeMap::new(),
            reads: VecDeque::new(),
            calls: BTreeMap::new(),
            crowd: VecDeque::new(),
            urgent: BTreeSet::new(),
            age_due: None,
            grant: Grant::default(),
            announced: 0,
            buffers: Buffers::default(),
            dirty_bytes: 0,
            generation: 0,
            last_op: 0,
            last_data: 0,
            events: VecDeque::new(),
            stats: OscStats::default(),
        }
    }

    /// The import.
    pub const fn import(&self) -> ImportId {
        self.import
    }

    /// What was counted.
    pub const fn stats(&self) -> OscStats {
        self.stats
    }

    /// Bytes that are dirty, or on their way to the target.
    pub const fn dirty(&self) -> u64 {
        self.dirty_bytes
    }

    /// What the program is to know next.
    pub fn poll_event(&mut self) -> Option<OscEvent> {
        self.events.pop_front()
    }

    /// Whether [`Osc::poll_event`] has something.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes an event of the request layer. Returns it if it is for others too.
    pub fn event(&mut self, event: Event, cx: &mut Cx<'_, '_, '_>) -> Option<Event> {
        match event {
            Event::Ended { call, ref result } => {
                let Some(calling) = self.calls.remove(&call) else { return Some(event) };
                match calling {
                    Calling::Data(id) => self.answered(id, result.as_ref(), cx),
                    Calling::Op(id) => self.called(id, result.as_ref(), cx),
                }
                self.work(cx);
                None
            }
            Event::Import { import, state: ImportState::Evicted } if import == self.import => {
                self.generation += 1;
                self.grant.clear();
                Some(event)
            }
            event => Some(event),
        }
    }

    /// Takes an event of the locks of this import.
    pub fn lock_event(&mut self, event: LockEvent, cx: &mut Cx<'_, '_, '_>) {
        match event {
            LockEvent::Granted { hold, lock, mode, policy, lvb } => {
                self.granted(hold, lock, mode, &policy, &lvb, cx);
            }
            LockEvent::Refused { hold, error } => {
                if let Some(op) = self.holds.remove(&hold) {
                    self.refused(op, error.errno(), cx);
                }
            }
            LockEvent::Aborted { hold, results, lvb } => {
                if let Some(op) = self.holds.remove(&hold) {
                    // The second word is a negative errno, or 0.
                    let errno = (results.1 as i64).min(results.0 as i64);
                    let size = Lvb::parse_either(ByteOrder::Little, &lvb).ok();
                    let size = size.filter(|lvb| errno >= 0 && lvb.error().is_none());
                    self.sized(op, size.map(|lvb| lvb.size).ok_or(Errno::ENOENT), cx);
                }
            }
            LockEvent::Flush { lock, discard } => self.flush(lock, discard, cx),
            LockEvent::Glimpse { glimpse, lock } => {
                let lvb = self.show(lock).map(|lvb| lvb.to_bytes(ByteOrder::Little));
                cx.locks.glimpsed(glimpse, lvb, cx.rpc);
            }
            LockEvent::Gone { lock, holds, reason } => self.gone(lock, &holds, reason, cx),
            // Operations end by themselves, and none begins under a lock that another client wants.
            LockEvent::CalledBack { .. } | LockEvent::Converted { .. } => {}
        }
        self.work(cx);
    }

    /// A lock is there, and with it what the target says of the object.
    fn granted(
        &mut self,
        hold: HoldId,
        lock: LockId,
        mode: Mode,
        policy: &Policy,
        lvb: &[u8],
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(&op) = self.holds.get(&hold) else { return };
        let Some(key) = self.ops.get(&op).map(|op| op.key) else { return };
        let Policy::Extent { start, end, .. } = *policy else { return };
        let written = self.written(key);
        if let Some(object) = self.objects.get_mut(&key)
            && !self.locks.contains_key(&lock)
        {
            self.locks.insert(lock, HeldLock { key, start, last: end });
            let lvb = Lvb::parse_either(ByteOrder::Little, lvb).ok();
            let lvb = lvb.filter(|lvb| lvb.error().is_none());
            object.size_known = lvb.is_some();
            let size = lvb.map_or(object.size, |lvb| lvb.size);
            object.size = size.max(written);
            object.mtime = object.mtime.max(lvb.map(|lvb| lvb.mtime));
        }
        self.locked(op, lock, mode, cx);
    }

    /// Behind the last byte of an object that is dirty, or on its way.
    fn written(&self, key: Key) -> u64 {
        let moving = self.ios.values().filter_map(|io| io.writes(key)).map(|range| range.end).max();
        let dirty = self.objects.get(&key).map(|object| object.dirty.end());
        moving.max(dirty).unwrap_or(0)
    }

    /// What this client knows of the object of a lock, for a client that asks (L-40).
    fn show(&self, lock: LockId) -> Option<Lvb> {
        let held = self.locks.get(&lock)?;
        let object = self.objects.get(&held.key)?;
        // Behind its locks others know better.
        let size = object.size.min(held.last.saturating_add(1));
        let mtime = object.mtime.unwrap_or_default();
        Some(Lvb { size, mtime, blocks: size.div_ceil(512), ..Lvb::default() })
    }

    /// A lock is to go: what is dirty under it is written back first, or dropped (L-44).
    fn flush(&mut self, lock: LockId, discard: bool, cx: &mut Cx<'_, '_, '_>) {
        let Some(held) = self.locks.get(&lock).copied() else {
            return cx.locks.flushed(self.import, lock, cx.rpc);
        };
        if discard {
            self.drop_dirty(held.key, &held.range(), None, cx);
        }
        self.wait_for(held.key, held.range(), Then::Leave(lock));
        self.check(held.key, cx);
    }

    /// A lock is gone. If the target has taken it away, what was dirty under it is lost.
    fn gone(
        &mut self,
        lock: LockId,
        holds: &[HoldId],
        reason: GoneReason,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(held) = self.locks.remove(&lock) else { return };
        let lost = reason == GoneReason::Lost;
        if lost {
            self.drop_dirty(held.key, &held.range(), Some(Errno::EIO), cx);
        }
        let written = self.written(held.key);
        if let Some(object) = self.objects.get_mut(&held.key) {
            object.waits.retain(|(_, then)| *then != Then::Leave(lock));
            let of = |other: &&HeldLock| other.key == held.key;
            let last = self.locks.values().filter(of).map(|other| other.last).max();
            let bound = last.map_or(0, |last| last.saturating_add(1));
            object.size = object.size.min(bound).max(written);
            object.size_known &= last == Some(u64::MAX);
        }
        for hold in holds.iter().filter(|_| lost) {
            if let Some(op) = self.holds.remove(hold) {
                self.unlocked(op, cx);
            }
        }
        self.check(held.key, cx);
        self.tidy(held.key);
    }

    /// Drops dirty data. With an error it is lost, and the object says so.
    fn drop_dirty(
        &mut self,
        key: Key,
        range: &Range<u64>,
        error: Option<Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let pieces = object.dirty.cut(range.clone());
        for (_, piece) in pieces {
            if piece.granted {
                self.grant.give_up(piece.len);
            }
            self.settled(key, &piece, error.map_or(Ok(()), Err), cx);
        }
    }

    /// A piece is dirty no more: it is at the target, replaced, or lost.
    fn settled(
        &mut self,
        key: Key,
        piece: &Piece,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        self.dirty_bytes = self.dirty_bytes.saturating_sub(piece.len);
        self.events.extend(self.buffers.release(piece.buffer, piece.len).map(OscEvent::Free));
        match (piece.op, result) {
            // It waits, and says it itself.
            (Some(op), result) => self.through(op, piece.len, result, cx),
            (None, Err(errno)) => {
                self.stats.lost += piece.len;
                if let Some(object) = self.objects.get_mut(&key) {
                    object.fail(errno);
                }
            }
            (None, Ok(())) => {}
        }
    }

    /// Lets something wait until what is dirty in a range is written back.
    fn wait_for(&mut self, key: Key, range: Range<u64>, then: Then) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        if object.dirty.urge(&range, |_| true) {
            self.urgent.insert(key);
        }
        object.waits.push((range, then));
    }

    /// Goes on with what has waited for data of an object that is written back.
    fn check(&mut self, key: Key, cx: &mut Cx<'_, '_, '_>) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let moving: Vec<Range<u64>> = self.ios.values().filter_map(|io| io.writes(key)).collect();
        let waits = core::mem::take(&mut object.waits);
        let clean = |range: &Range<u64>| {
            let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
            !object.dirty.is_urgent(range) && !moving.iter().any(meets)
        };
        let (ready, left): (Vec<_>, Vec<_>) =
            waits.into_iter().partition(|(range, _)| clean(range));
        object.waits = left;
        for (_, then) in ready {
            match then {
                Then::Leave(lock) => cx.locks.flushed(self.import, lock, cx.rpc),
                Then::Go(op) => self.written_back(op, cx),
            }
        }
    }

    /// Forgets an object of which nothing is left.
    fn tidy(&mut self, key: Key) {
        let Some(object) = self.objects.get(&key) else { return };
        let errors = object.fsync_error.or(object.close_error).is_some();
        let used = object.ops > 0 || errors || !object.dirty.is_empty() || !object.waits.is_empty();
        let locked = || self.locks.values().any(|held| held.key == key);
        let moving = || self.ios.values().any(|io| io.writes(key).is_some());
        if !used && !locked() && !moving() {
            self.objects.remove(&key);
            self.urgent.remove(&key);
        }
    }

    /// Begins what may begin, and says what promises are held.
    fn work(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.admit(cx);
        self.launch(cx);
        let total = self.grant.total();
        if total != self.announced {
            self.announced = total;
            cx.rpc.announce_grant(self.import, u32::try_from(total).unwrap_or(u32::MAX));
        }
    }

    /// When [`Osc::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let retries = self.ios.values().filter_map(Io::due).min();
        [self.age_due, retries].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let now = cx.rpc.now();
        if self.age_due.is_some_and(|due| due <= now) {
            let max_age = self.config.max_age;
            for (key, object) in &mut self.objects {
                if object.dirty.urge(&(0..u64::MAX), |piece| piece.since + max_age <= now) {
                    self.urgent.insert(*key);
                }
            }
            let oldest = self.objects.values().filter_map(|object| object.dirty.oldest()).min();
            self.age_due = oldest.map(|since| since + max_age);
        }
        self.retry_due(now, cx);
        self.work(cx);
    }

    fn key(id: ObjectId) -> Key {
        ResourceName::of_object(id).words
    }
}
