//! The object target: objects with attributes and ranges of bytes, made ahead, read, written, cut,
//! removed, within promises of space and limits of owners (L-76 … L-96).
//!
//! ```text
//!  getattr, setattr, punch                        turn ─► record ─► [commit] ─► reply
//!  create                                         turn ─► last number ─► commit
//!  destroy, orphans                               turn ─► listing ─► commit, page by page
//!  write   [bulk ─►] [checksum ─►]                turn ─► record ─► commit
//!  read                                           turn ─► record ─► load ─► [checksum ─►] bulk
//! ```
//!
//! One request at a time has the turn: it reads records, decides, and gives its orders. A store
//! carries orders out one after the other, so the turn ends with the last order, not with its outcome;
//! data moves outside of turns. `request.rs` reads what is asked, `io.rs`, `attributes.rs` and
//! `create.rs` decide, `plan.rs` takes what they change to the store, with the account of its owner;
//! `grants.rs` has the promises, `locks.rs` what the lock manager is asked: before its turn a
//! request has the lock that it needs; `values.rs` reads attributes that locks lack. An echo target
//! ([`Ost::echo`]) is the same without promises, owners' limits and locks (L-103).

mod attributes;
mod create;
mod extents;
mod grants;
mod io;
mod locks;
mod name;
mod object;
mod plan;
mod request;
mod values;
pub mod wire;

use std::collections::{BTreeMap, VecDeque};

use ldlm::Cookie;
use ldlm::server::{LockServer, Values};
use lnet_types::{Errno, Instant, IoVec};
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ost::{Obdo, ObdoFlags};
use lustre_wire::{BodyFlags, Buffers};
use ptlrpc::{Answer, Direction, ExportId, Rpc, Served, ServedId};

use crate::journal::Cx;
use crate::lock_server;
use crate::store::{DATA_END, Outcome, Source, Space, StoreError, StoreOrder};
use crate::targets::{Beginning, CallbackFact, Kind, LOOK_AGAIN};

pub(crate) use extents::{Extents, RANGES_MAX as EXTENTS_MAX};
pub(crate) use request::{Ask as DataAsk, PAGE, Refusal, Request as DataRequest, read_at};

use create::Removal;
use grants::Grants;
use name::{Name, last_key};
use object::Object;
use plan::Plan;
use request::{Ask, Request};

/// The largest data request, bytes.
const BRW_SIZE: u32 = 16 << 20;
/// The token of the order that measures the space.
const MEASURE: u64 = u64::MAX - 1;
/// The token of the records that are read for locks, and the name of their turn.
const VALUES: u64 = u64::MAX - 2;

/// What a request waits for.
enum Stage {
    /// A lock that the target takes.
    Lock,
    /// Its turn.
    Queue,
    /// Bulk data that move.
    Bulk,
    /// The sum of its data.
    Sum,
    /// The record of its object.
    Record,
    /// The last number of its sequence.
    Last,
    /// A page of objects to be removed.
    List(Removal),
    /// What an owner has, before its changes are stored.
    Usage(Plan, u32),
    /// So many pieces of data, and why one could not be read.
    Load(usize, Option<StoreError>),
    /// A commit.
    Sync,
    /// The space of the store.
    Space,
}

struct Work {
    served: Served,
    request: Request,
    stage: Stage,
    /// Memory of the data.
    memory: IoVec,
    /// Their checksum.
    sum: Option<u32>,
    /// The lock that the target has taken for it.
    lock: Option<Cookie>,
}

impl Work {
    fn new(served: Served, request: Request) -> Self {
        let (stage, memory) = (Stage::Queue, IoVec::new());
        Self { served, request, stage, memory, sum: None, lock: None }
    }
}

/// What an object target is to keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OstLimits {
    /// Most bytes of the objects of one owner; a write beyond that is refused with `EDQUOT`.
    pub uid_bytes: Option<u64>,
}

/// The object target.
pub struct Ost {
    limits: OstLimits,
    /// None: the target is an echo target, with neither locks nor promises.
    locks: Option<LockServer>,
    /// What waits for locks of the target.
    locked_out: BTreeMap<Cookie, ServedId>,
    work: BTreeMap<ServedId, Work>,
    /// The request that has the turn, and those that wait for it.
    turn: Option<ServedId>,
    queue: VecDeque<ServedId>,
    /// Objects whose attributes are read for their locks.
    unread: VecDeque<Name>,
    /// The recovery is over, and locks wait for those attributes.
    recovering: bool,
    grants: Grants,
    /// The store is being asked for its space.
    measuring: bool,
    /// When to ask it again, as it has little.
    look: Option<Instant>,
}

impl core::fmt::Debug for Ost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ost").field("work", &self.work.len()).finish_non_exhaustive()
    }
}

impl Ost {
    fn with(limits: OstLimits, locks: Option<LockServer>) -> Self {
        Self {
            limits,
            locks,
            locked_out: BTreeMap::new(),
            work: BTreeMap::new(),
            turn: None,
            queue: VecDeque::new(),
            unread: VecDeque::new(),
            recovering: false,
            grants: Grants::default(),
            measuring: false,
            look: None,
        }
    }

    /// An object target that has not begun.
    pub fn new(limits: OstLimits) -> Self {
        let locks = lock_server::idle(Values::Objects);
        Self::with(limits, Some(locks))
    }

    /// An echo target: objects for tests of clients (L-103).
    pub fn echo() -> Self {
        Self::with(OstLimits::default(), None)
    }

    /// Ends a request whose answer is given, or never will be.
    fn end(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        if let Some(work) = self.work.remove(&id) {
            cx.free(&work.memory);
            self.let_go(&work, cx);
        }
    }

    fn refuse(&mut self, id: ServedId, errno: Errno, cx: &mut Cx<'_, '_, '_>) {
        self.end(id, cx);
        cx.rpc.refuse(id, errno);
    }

    fn reply(&mut self, id: ServedId, answer: Answer, cx: &mut Cx<'_, '_, '_>) {
        self.end(id, cx);
        cx.rpc.reply(id, answer);
    }

    fn give_up(&mut self, id: ServedId, e: &StoreError, cx: &mut Cx<'_, '_, '_>) {
        let replay = self.work.get(&id).is_some_and(|work| work.served.replay.is_some());
        self.end(id, cx);
        cx.not_stored(id, replay, e);
    }

    /// Asks the store for its space, unless that is under way.
    fn measure(&mut self, cx: &mut Cx<'_, '_, '_>) {
        if !self.measuring {
            self.measuring = true;
            self.look = None;
            self.grants.asked();
            cx.order(StoreOrder::Space { token: MEASURE });
        }
    }

    /// A request waits for its turn.
    fn enter(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        if let Some(work) = self.work.get_mut(&id) {
            work.stage = Stage::Queue;
            self.queue.push_back(id);
        }
        self.next_turn(cx);
    }

    /// Gives the turn to the next one, unless a request has it.
    fn next_turn(&mut self, cx: &mut Cx<'_, '_, '_>) {
        while self.turn.is_none() {
            let Some(id) = self.queue.pop_front() else { return };
            self.turn = Some(id);
            self.begin(id, cx);
            self.check_turn(id);
        }
    }

    /// A request has the turn.
    fn begin(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        if u64::from(id) == VALUES {
            return self.read_value(cx);
        }
        let Some(work) = self.work.get_mut(&id) else { return };
        let name = work.request.name;
        match work.request.ask {
            Ask::Create | Ask::Last(_) => {
                work.stage = Stage::Last;
                read_last(id, name, cx);
            }
            Ask::Destroy => self.destroy(id, cx),
            _ => {
                work.stage = Stage::Record;
                let from = Source::Record(Space::Objects, name.key());
                cx.order(StoreOrder::Read { token: id.into(), from });
            }
        }
    }

    /// The turn of a request ends when it waits for no record any more.
    fn check_turn(&mut self, id: ServedId) {
        let values = u64::from(id) == VALUES && !self.unread.is_empty();
        let reads = values
            || self.work.get(&id).is_some_and(|work| {
                let stage = &work.stage;
                matches!(stage, Stage::Record | Stage::Last | Stage::List(_) | Stage::Usage(..))
            });
        if self.turn == Some(id) && !reads {
            self.turn = None;
        }
    }

    /// A request begins.
    fn run(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        if let Err(errno) = self.start(id, cx) {
            self.refuse(id, errno, cx);
        }
    }

    fn serve_object(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        let id = served.id;
        let portal = cx.rpc.portal(served.service).unwrap_or_default();
        let read = served.msg().map_err(|_| Refusal::Errno(Errno::EPROTO));
        let request = match read.and_then(|msg| request::read(served.opcode, &msg, portal)) {
            Ok(request) => request,
            Err(Refusal::Errno(errno)) => return cx.rpc.refuse(id, errno),
            Err(Refusal::Drop) => return cx.rpc.decline(id),
        };
        if self.grants.space().0 == 0 {
            self.measure(cx);
        }
        self.guard(served, request, cx);
    }

    fn start(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.work.get_mut(&id) else { return Ok(()) };
        match &work.request.ask {
            Ask::Statfs => {
                work.stage = Stage::Space;
                cx.order(StoreOrder::Space { token: id.into() });
            }
            Ask::Sync(_) => {
                work.stage = Stage::Sync;
                cx.order(StoreOrder::Sync { token: id.into() });
            }
            Ask::Shrink => self.shrink(id, cx),
            Ask::Write(ranges, data) => {
                work.memory = cx.alloc(ranges.len)?;
                if !ranges.inline {
                    work.stage = Stage::Bulk;
                    return cx.rpc.bulk(id, Direction::Write, &work.memory);
                }
                let mut rest = data.as_slice();
                for span in &work.memory {
                    let here = cx.below().bytes_mut(*span);
                    let (part, behind) = rest.split_at(here.len().min(rest.len()));
                    here.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                    rest = behind;
                }
                self.written(id, cx);
            }
            _ => self.enter(id, cx),
        }
        Ok(())
    }

    /// The record of a request's object is there.
    fn with_record(&mut self, id: ServedId, object: Option<Object>, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        if matches!(work.request.ask, Ask::Lock) {
            return self.enqueue(id, object, cx);
        }
        if plan::is_done(&work.served, cx) {
            return self.repeat(id, object, cx);
        }
        match (&work.request.ask, object) {
            (Ask::Write(..), object) => self.write(id, object, None, cx),
            (_, None) => self.refuse(id, Errno::ENOENT, cx),
            (Ask::Read(_), Some(object)) => self.load(id, object, cx),
            (Ask::SetAttr, Some(object)) => self.set_attributes(id, object, cx),
            (Ask::Punch, Some(object)) => self.punch(id, object, cx),
            (_, Some(object)) => self.show(id, object, cx),
        }
    }

    fn fact(&mut self, id: ServedId, outcome: Outcome, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        let stage = core::mem::replace(&mut work.stage, Stage::Queue);
        match (stage, outcome) {
            (Stage::Record, Outcome::Record(record)) => match record.map(|b| Object::read(&b)) {
                Some(None) => self.refuse(id, Errno::EIO, cx),
                object => self.with_record(id, object.flatten(), cx),
            },
            (Stage::Last, Outcome::Record(record)) => match number(record) {
                None => self.refuse(id, Errno::EIO, cx),
                Some(last) => match work.request.ask {
                    Ask::Create => self.create(id, last, cx),
                    Ask::Last(_) => self.last(id, last, cx),
                    _ => self.write(id, None, Some(last), cx),
                },
            },
            (Stage::Usage(plan, uid), Outcome::Record(record)) => match number(record) {
                None => self.refuse(id, Errno::EIO, cx),
                Some(used) => self.charge(id, plan, uid, used, cx),
            },
            (Stage::List(removal), Outcome::Listed { entries, more }) => {
                self.remove(id, removal, &entries, more, cx);
            }
            (Stage::Sum, Outcome::Checksum(sum)) => {
                work.sum = Some(sum);
                match work.request.ask {
                    Ask::Write(..) => self.enter(id, cx),
                    _ => self.send(id, cx),
                }
            }
            (Stage::Load(left, failed), _) => self.loaded(id, left, failed, cx),
            (Stage::Sync, _) if matches!(work.request.ask, Ask::Sync(true)) => self.enter(id, cx),
            (Stage::Sync, _) => self.reply(id, obdo(&Obdo::default()), cx),
            (Stage::Space, Outcome::Space { total, free }) => self.statfs(id, total, free, cx),
            _ => self.refuse(id, Errno::EIO, cx),
        }
    }
}

/// A number as it is stored; 0 for none, `None` for something else.
fn number(record: Option<Vec<u8>>) -> Option<u64> {
    let Some(record) = record else { return Some(0) };
    <[u8; 8]>::try_from(record).ok().map(u64::from_le_bytes)
}

fn read_last(id: ServedId, name: Name, cx: &mut Cx<'_, '_, '_>) {
    let from = Source::Record(Space::Meta, last_key(name.seq));
    cx.order(StoreOrder::Read { token: id.into(), from });
}

/// An answer of nothing but attributes.
fn obdo(body: &Obdo) -> Answer {
    Answer { buffers: Buffers::new().layout(body), ..Answer::default() }
}

/// Whether a request was sent before: its account of promises is not new (L-96).
fn is_again(served: &Served, request: &Request) -> bool {
    served.body.flags.intersects(BodyFlags::RESENT | BodyFlags::REPLAY)
        || request.has(ObdoFlags::RECOV_RESEND)
}

impl Kind for Ost {
    fn name(&self) -> &'static str {
        if self.locks.is_some() { "ost" } else { "echo" }
    }

    fn keeps_records(&self) -> bool {
        self.locks.is_some()
    }

    fn offer(&self) -> ConnectData {
        if self.locks.is_none() {
            let flags = ConnectFlags::FID | ConnectFlags::FLAGS2;
            let flags2 = ConnectFlags2::REP_MBITS;
            return ConnectData { flags, flags2, ..ConnectData::default() };
        }
        ConnectData {
            flags: ConnectFlags::GRANT
                | ConnectFlags::MDS
                | ConnectFlags::SRVLOCK
                | ConnectFlags::VERSION
                | ConnectFlags::BRW_SIZE
                | ConnectFlags::AT
                | ConnectFlags::CKSUM
                | ConnectFlags::FID
                | ConnectFlags::VBR
                | ConnectFlags::GRANT_SHRINK
                | ConnectFlags::FULL20
                | ConnectFlags::MAXBYTES
                | ConnectFlags::EINPROGRESS
                | ConnectFlags::GRANT_PARAM
                | ConnectFlags::SHORTIO
                | ConnectFlags::BULK_MBITS
                | ConnectFlags::LVB_TYPE
                | ConnectFlags::CANCELSET
                | ConnectFlags::LRU_RESIZE
                | ConnectFlags::SKIP_ORPHAN
                | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::REP_MBITS,
            brw_size: BRW_SIZE,
            grant_blkbits: 12,
            grant_inobits: 8,
            grant_tax_kb: 24,
            grant_max_blks: 1024,
            maxbytes: DATA_END,
            cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
            ..ConnectData::default()
        }
    }

    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        if self.locks.is_some() {
            let (values, under) = (Values::Objects, locks::is_under);
            self.locks = Some(lock_server::begun_with(values, beginning.recovers, under, rpc));
        }
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        if LockServer::serves(served.opcode) {
            self.serve_lock(served, cx);
        } else {
            self.serve_object(served, cx);
        }
        self.unlocked(cx);
    }

    fn bulk_done(
        &mut self,
        served: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let Some(work) = self.work.get(&served) else { return false };
        match (result, &work.request.ask) {
            (Err(_), _) => self.end(served, cx),
            (Ok(()), Ask::Write(..)) => self.written(served, cx),
            (Ok(()), _) => self.moved(served, cx),
        }
        self.unlocked(cx);
        true
    }

    fn stored(
        &mut self,
        token: u64,
        outcome: Result<Outcome, StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        if token == MEASURE {
            self.measuring = false;
            if let Ok(Outcome::Space { total, free }) = outcome {
                self.grants.measured(total, free);
                self.grants.keep(|export| cx.rpc.granted(export).is_some());
                self.look = self.grants.is_short().then(|| cx.rpc.now() + LOOK_AGAIN);
            }
            return;
        }
        let id = ServedId::from(token);
        match outcome {
            outcome if token == VALUES => self.value_read(outcome, cx),
            Ok(outcome) => self.fact(id, outcome, cx),
            // Memory that the store still reads into is not given back.
            Err(e) => match self.work.get_mut(&id).map(|work| &mut work.stage) {
                Some(Stage::Load(left, failed)) => {
                    let (left, first) = (*left, failed.take().unwrap_or(e));
                    self.loaded(id, left, Some(first), cx);
                }
                _ => self.give_up(id, &e, cx),
            },
        }
        self.check_turn(id);
        self.next_turn(cx);
        self.unlocked(cx);
    }

    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.begin_grants(cx);
        self.unlocked(cx);
    }

    fn refused(&mut self, record: &[u8], cx: &mut Cx<'_, '_, '_>) {
        if let Some(name) = Name::of_key(record) {
            self.show_again(name, cx);
        }
        self.unlocked(cx);
    }

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.drop_waiting(export, cx);
        if let Some(locks) = &mut self.locks {
            locks.left(export, cx.rpc);
        }
        self.unlocked(cx);
    }

    fn waits(&mut self, served: ServedId, export: ExportId, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.hear_waiting(served, export, cx)
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        let Some(locks) = &mut self.locks else { return false };
        let taken = lock_server::report(locks, fact, cx.rpc);
        self.unlocked(cx);
        taken
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let locks = self.locks.as_ref().and_then(LockServer::poll_timeout);
        [locks, self.look].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.expire(cx);
        if self.look.is_some_and(|at| at <= cx.rpc.now()) {
            self.measure(cx);
        }
        self.unlocked(cx);
    }

    fn locks(&self) -> Option<&LockServer> {
        self.locks.as_ref()
    }
}
