//! The objects of one target, as a client has them that caches data under locks.
//!
//! ```text
//!  write ─► lock PW ─► room, promise of space ─► dirty                      Done
//!                                    └ no promise: written through ─►       Done
//!  read  ─► lock PR ─► own dirty data there written back ─► READ ─►         Done
//!  dirty ─► write-back: when called back, too old, too much, waited for ─► WRITE
//!         ─► answered, not committed: kept for a replay ─► committed ─►  Free
//! ```
//!
//! Locks stay in the cache of `ldlm::client` when an operation is over; when another client wants one,
//! what is dirty under it is written back first (L-44). Data that a target has answered and not
//! committed are kept, and written again if it restarts; [`Osc::unsettled`] names their objects. If the target
//! evicts this client, what was dirty or kept is gone: the next fsync and the next close of each that has written
//! say `EIO`, once. Data that was read is not kept.
//!
//! `op.rs` has the operations, `locks.rs` what locks mean for data, `data.rs` the data requests with
//! their repetitions (L-93), `dirty.rs` and `buffers.rs` what is dirty, `grant.rs` promises of space (L-95),
//! `turns.rs` which object is written back next, `quota.rs` who has no space left, `settle.rs` what may still be
//! lost, `waits.rs` how long locks were waited for, `writers.rs` who hears of a loss, `wire.rs` the
//! requests.

mod buffers;
mod data;
mod dirty;
mod grant;
mod locks;
mod op;
mod quota;
mod settle;
mod turns;
mod waits;
mod wire;
mod writers;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use ldlm::client::{HoldId, LockClient, LockId};
use lnet_types::{Errno, Instant, IoVec};
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ldlm::ResourceName;
use lustre_wire::ost::{Obdo, StripeInfo};
use lustre_wire::{Checksum, Fid};
use ptlrpc::{CallId, Event, ImportId, ImportState, Rpc};

use buffers::Buffers;
use data::{DataId, Io};
use grant::{GRANT_FIRST, Grant};
use locks::{HeldLock, Key, Object};
use op::Op;
use quota::Quota;
use settle::Uncommitted;
use turns::{Turns, Urgency};

pub use waits::LockWaits;
pub use writers::Writer;

/// Most objects with locks, data, operations or errors that are not reported.
pub const OBJECTS_MAX: usize = 65_536;
/// Most operations under way.
pub const OPS_MAX: usize = 65_536;

/// What a client of objects keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OscConfig {
    /// Most dirty bytes; more wait until others are written back. As many again may be answered and not
    /// committed; beyond that the target is to commit before it answers.
    pub dirty_max: u64,
    /// Dirty data is written back when it is so old.
    pub max_age: Duration,
    /// Most bytes of a data request; the target may grant fewer.
    pub brw_size: u32,
    /// Data requests under way at a time.
    pub in_flight: usize,
    /// How data is summed up; in another way, if the target does not know this one.
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

/// What an object is part of: each write says so (C-202).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The file.
    pub file: Fid,
    /// Number of the stripe in its component.
    pub stripe: u32,
    /// The component.
    pub layout: StripeInfo,
    /// Who pays for its space.
    pub payer: Payer,
    /// Its writer may use space that is kept for administrators (C-205).
    pub privileged: bool,
}

/// Who pays for the space of a file: its objects are theirs from the first write on (C-203).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payer {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project, if the metadata target names it.
    pub project: Option<u32>,
}

impl Payer {
    /// A request to an object names them.
    pub(crate) fn named_in(self, body: &mut Obdo) {
        let Self { uid, gid, project } = self;
        (body.uid, body.gid, body.projid) = (uid, gid, project.unwrap_or_default());
        body.valid |= Valid::UID | Valid::GID;
        body.valid.set(Valid::PROJID, project.is_some());
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
    /// How often the target has dropped this client.
    pub evicted: u64,
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
    urgent: Turns,
    /// When the oldest dirty data is too old.
    age_due: Option<Instant>,
    grant: Grant,
    quota: Quota,
    uncommitted: Uncommitted,
    announced: u32,
    buffers: Buffers,
    dirty_bytes: u64,
    /// How often the target has dropped this client.
    generation: u32,
    last_op: u64,
    last_data: u64,
    events: VecDeque<OscEvent>,
    stats: OscStats,
    waits: LockWaits,
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
            | ConnectFlags::CANCELSET
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        brw_size: OscConfig::default().brw_size,
        grant: GRANT_FIRST,
        // Its own blocks, that is pages; the target answers with those of its storage (P-21).
        grant_blkbits: 12,
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
            urgent: Turns::default(),
            age_due: None,
            grant: Grant::default(),
            quota: Quota::default(),
            uncommitted: Uncommitted::default(),
            announced: GRANT_FIRST,
            buffers: Buffers::default(),
            dirty_bytes: 0,
            generation: 0,
            last_op: 0,
            last_data: 0,
            events: VecDeque::new(),
            stats: OscStats::default(),
            waits: LockWaits::default(),
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

    /// How long reads and writes have waited for locks that were not cached.
    pub const fn lock_waits(&self) -> &LockWaits {
        &self.waits
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
                    Calling::Data(id) => self.answered(id, call, result.as_ref(), cx),
                    Calling::Op(id) => self.called(id, result.as_ref(), cx),
                }
                self.work(cx);
                None
            }
            Event::Import { import, state: ImportState::Evicted } if import == self.import => {
                self.generation += 1;
                self.stats.evicted += 1;
                self.lose_dirty(cx);
                self.grant.clear();
                Some(event)
            }
            Event::Import { import, state: ImportState::Full } if import == self.import => {
                let terms = cx.rpc.terms(import).unwrap_or_default();
                let promised = terms.flags.contains(ConnectFlags::GRANT).then_some(terms.grant);
                self.grant.begin(promised.unwrap_or(0).into());
                self.work(cx);
                Some(event)
            }
            Event::Import { import, state: ImportState::Idle } if import == self.import => {
                // Without a connection there are no promises.
                self.grant.clear();
                self.work(cx);
                Some(event)
            }
            Event::Import { import, state: ImportState::Closed } if import == self.import => {
                self.free_kept();
                Some(event)
            }
            Event::Replayed { call, ref result, .. } if self.uncommitted.has(call) => {
                self.replayed(call, result.as_ref());
                None
            }
            Event::Unretained { call, committed, .. } if self.uncommitted.has(call) => {
                self.unretained(call, committed);
                self.work(cx);
                None
            }
            event => Some(event),
        }
    }

    /// Begins what may begin, and says what promises are held.
    fn work(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.admit(cx);
        self.launch(cx);
        let announced = self.grant.announced();
        if announced != self.announced {
            self.announced = announced;
            cx.rpc.announce_grant(self.import, announced);
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
                    self.urgent.insert(*key, Urgency::Kept);
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
