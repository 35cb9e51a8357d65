//! The metadata target: names, attributes, layouts, open files (C-31 … C-269).
//!
//! ```text
//!  request.rs ─► reads: show.rs                                   ─► reply
//!             ─► open.rs, reint.rs ─► tree.rs: memory + changes   ─► commit ─► reply
//!                     │ objects.rs: made ahead on object targets
//! ```
//!
//! All that the target has is in memory and, as records, in its store (`tree.rs`), so a request is
//! decided at once. It waits for three things: pages that move, the store where its answer is about
//! the store, and object targets that have no object ready for a new file. `access.rs` says what a user
//! may do, `layouts.rs` makes layouts.
//!
//! Objects are made ahead by this target, and named in the layout that the open of a new file answers
//! with: so a file has the objects that its layout names, whatever clients do, and an object target needs
//! no rule for objects that were not made. An open is recorded like a change: after a crash its file is kept
//! for a client that comes back, and its handle goes with a client that does not.
//!
//! `guard.rs` has the locks: what a request changes is called back from clients that have it cached, and
//! attributes, layouts, extended attributes and opens come with a lock for clients that want one; where one
//! can't be had the result comes without (status 301, C-63, C-88). `data.rs` has the data that are here
//! (C-220).
//!
//! A file system has one metadata target or several: `sequences.rs` says which has a file. Each has all names
//! of its directories with their files, but for a directory that was made on another target than its parent:
//! `across/` makes and removes those.

mod access;
mod acl;
mod across;
mod data;
mod guard;
mod held;
mod inode;
mod layouts;
mod links;
mod lookup;
mod objects;
mod open;
mod part;
mod reint;
mod request;
mod sequences;
mod show;
mod tree;
mod xattrs;

pub use acl::Acl;
pub use across::AcrossWire;

use std::collections::{BTreeMap, VecDeque};

use ldlm::Cookie;
use ldlm::server::{LockServer, Values};
use lnet_types::{ByteOrder, Errno, Instant, IoVec, Prng};
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::dir::PAGE_LEN;
use lustre_wire::fid::{RangeKind, SeqRange, Valid};
use lustre_wire::ldlm::{Disposition, InodeBits, LockReply, LockRequest};
use lustre_wire::mds::MdtBody;
use lustre_wire::ost::{Statfs, StatfsState};
use lustre_wire::{Buffers, Opcode};
use ptlrpc::{Answer, Direction, ExportId, ImportId, ImportState, Rpc, Served, ServedId};

use crate::journal::{Cx, When};
use crate::lock_server;
use crate::site::Site;
use crate::store::{Change, Outcome, Store, StoreError, StoreOrder};
use crate::targets::{Beginning, CallbackFact, Kind, LOOK_AGAIN};

use across::Across;
use data::{DataWork, is_data};
use guard::{Beside, Brought, Found, LockedOut};
use inode::{DIRECTORY, Id, Inode};
use objects::Objects;
use request::Ask;
use tree::{ChangeId, Edit, Tree};

const ORDER: ByteOrder = ByteOrder::Little;
/// Status of an enqueue that has a result, and no lock.
const LOCK_ABORTED: i32 = 301;
/// Largest bulk data: pages of a directory, data of files.
const BRW_SIZE: u32 = 1 << 20;
/// Modifying requests of a client at a time.
const MOD_RPCS: u16 = 8;
/// Largest value of an extended attribute.
const VALUE_MAX: u32 = 64 << 10;
/// What the space of our stores is called: "ulnt".
const STORE: u64 = 0x756c_6e74;
const BLOCK: u64 = 4096;
/// Space that is left for what removes files: nothing new is made when there is less.
const RESERVE: u64 = 1 << 20;
/// Space that a file takes.
const FILE: u64 = 4096;

/// What a request waits for.
enum Stage {
    /// Pages that move.
    Pages(IoVec),
    /// The space of the store.
    Space,
    /// A commit, then this answer.
    Sync(Answer),
    /// The same; a name is no longer held then.
    Applied(Answer, ChangeId),
}

struct Work {
    replay: bool,
    stage: Stage,
}

/// Why a request has no answer of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Errno(Errno),
    /// Object targets have no object ready: later.
    Wait,
    /// The file is another target's (C-110).
    Elsewhere(Id),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// The metadata target of a file system.
pub struct Mdt {
    site: Site,
    /// Which of the metadata targets it is.
    index: u32,
    tree: Tree,
    objects: Objects,
    locks: LockServer,
    /// What waits for locks of this target.
    locked_out: BTreeMap<Cookie, LockedOut>,
    /// Locks that come with the replies to opens.
    brought: BTreeMap<ServedId, Brought>,
    work: BTreeMap<ServedId, Work>,
    /// Requests for data.
    data: BTreeMap<ServedId, DataWork>,
    /// Opens that wait for objects.
    waiting: VecDeque<Served>,
    /// Changes over two targets.
    across: Across,
    /// Requests that wait for their end.
    held_up: VecDeque<Served>,
    handles: Prng,
    /// Free bytes of the store, as far as it is known.
    free: Option<u64>,
    measuring: bool,
    /// When to ask it again, as it has none.
    look: Option<Instant>,
}

/// The token of the order that measures the space.
const MEASURE: u64 = u64::MAX - 1;

impl core::fmt::Debug for Mdt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mdt").field("files", &self.tree.files()).finish_non_exhaustive()
    }
}

impl Mdt {
    /// The target with index 0 that has not begun, with what its store has. The store answers at once.
    ///
    /// # Errors
    /// The store's, [`StoreError::Damaged`] for records that can't be read.
    pub fn load(site: Site, store: &mut dyn Store) -> Result<Self, StoreError> {
        Self::load_at(site, 0, store)
    }

    /// The same with this index.
    ///
    /// # Errors
    /// As [`Mdt::load`]; [`StoreError::Damaged`] for the store of a target with another index.
    pub fn load_at(site: Site, index: u32, store: &mut dyn Store) -> Result<Self, StoreError> {
        let tree = Tree::load(store, index)?;
        let objects = Objects::of(&site, index);
        let across = Across::of(&site, index, &tree);
        let locks = lock_server::idle(Values::Objects);
        Ok(Self {
            site,
            index,
            tree,
            objects,
            locks,
            locked_out: BTreeMap::new(),
            brought: BTreeMap::new(),
            work: BTreeMap::new(),
            data: BTreeMap::new(),
            waiting: VecDeque::new(),
            across,
            held_up: VecDeque::new(),
            handles: Prng::new(0),
            free: None,
            measuring: false,
            look: None,
        })
    }

    /// The same, which breaks a rule of changes over two targets.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotaged(mut self, rule: crate::Sabotage) -> Self {
        self.across.sabotage(rule);
        self
    }

    /// A handle that no open file has.
    fn handle(&mut self) -> u64 {
        loop {
            let handle = self.handles.next_u64();
            if handle != 0 && self.tree.open(handle).is_none() {
                return handle;
            }
        }
    }

    /// The first root of a new file system.
    fn make_root(&mut self, cx: &mut Cx<'_, '_, '_>) {
        if self.index != 0 || self.tree.has_root() {
            return;
        }
        let mut edit = Edit::new(&mut self.tree, 0);
        let mode = DIRECTORY | 0o755;
        edit.set_inode(
            Id::ROOT,
            Inode { mode, nlink: 2, size: BLOCK, blocks: 8, ..Inode::default() },
        );
        let changes = edit.finish();
        cx.batch(changes);
    }

    /// A sequence for a client; no other gets it, also after a crash (C-38, C-40).
    fn sequence(&mut self, served: &Served, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let start = self.tree.next_seq();
        if !sequences::of_mdt(self.index).contains(&start) {
            return Err(Errno::ENOSPC);
        }
        let mut edit = Edit::new(&mut self.tree, 0);
        edit.set_next_seq(start + 1);
        let changes = edit.finish();
        cx.batch(changes);
        let (end, index) = (start + 1, self.index);
        let range = SeqRange { start, end, index, flags: RangeKind::MDT };
        let answer = Answer { buffers: Buffers::new().layout(&range), ..Answer::default() };
        self.wait(served, Stage::Sync(answer), StoreOrder::Sync { token: served.id.into() }, cx);
        Ok(())
    }

    fn wait(&mut self, served: &Served, stage: Stage, order: StoreOrder, cx: &mut Cx<'_, '_, '_>) {
        let replay = served.replay.is_some();
        self.work.insert(served.id, Work { replay, stage });
        cx.order(order);
    }

    /// C-143, C-144.
    fn pages(
        &mut self,
        served: &Served,
        asked: &MdtBody,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<(), Errno> {
        let terms = cx.rpc.granted(served.export).unwrap_or_default();
        let wide = terms.flags.contains(ConnectFlags::HASH_64BIT);
        // Without a size that was agreed on it is one page.
        let most = if terms.brw_size == 0 { PAGE_LEN as u32 } else { terms.brw_size };
        let room = asked.nlink.min(most).min(BRW_SIZE);
        if (room as usize) < PAGE_LEN {
            return Err(Errno::EINVAL);
        }
        let (dir, inode) = self.file(asked.fid1)?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let pages = show::pages(&self.tree, dir, asked.size, room as usize, wide);
        let memory = cx.alloc(pages.len() as u64)?;
        let mut rest = pages.as_slice();
        for span in &memory {
            let here = cx.below().bytes_mut(*span);
            let (part, behind) = rest.split_at(here.len().min(rest.len()));
            here.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            rest = behind;
        }
        if let Err(errno) = cx.rpc.bulk(served.id, Direction::Read, &memory) {
            cx.free(&memory);
            return Err(errno);
        }
        self.work.insert(served.id, Work { replay: false, stage: Stage::Pages(memory) });
        Ok(())
    }

    fn statfs(&self, total: u64, free: u64) -> Answer {
        let left = free.saturating_sub(RESERVE);
        let mut state = StatfsState::empty();
        state.set(StatfsState::ENOSPC, left < FILE);
        let space = Statfs {
            kind: STORE,
            blocks: total / BLOCK,
            bfree: free / BLOCK,
            bavail: left / BLOCK,
            files: self.tree.files() + left / FILE,
            ffree: left / FILE,
            bsize: BLOCK as u32,
            namelen: 255,
            maxbytes: crate::store::DATA_END,
            state,
            ..Statfs::default()
        };
        Answer { buffers: Buffers::new().layout(&space), ..Answer::default() }
    }

    /// An answer to an intent: what was found, and a lock of it, if one can be given (C-63).
    fn of_intent(
        &mut self,
        served: &Served,
        found: Disposition,
        result: Result<Buffers, Errno>,
        beside: Option<Found>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Answer {
        let request = served.msg().ok().and_then(|msg| LockRequest::of(&msg, 1).ok());
        let lock = match (request, beside) {
            (Some(request), Some(beside)) if result.is_ok() => {
                self.lock_beside(served, &request, beside, cx)
            }
            _ => None,
        };
        Self::with_lock(lock, found, result)
    }

    /// The same with this lock.
    fn with_lock(
        lock: Option<LockReply>,
        found: Disposition,
        result: Result<Buffers, Errno>,
    ) -> Answer {
        let status = if lock.is_some() { 0 } else { LOCK_ABORTED };
        let reply = guard::reply(lock, found, &result);
        let buffers = Buffers::new().layout(&reply);
        let buffers = match result {
            Ok(more) => buffers.and(&more),
            Err(_) => buffers.layout(&MdtBody::default()),
        };
        Answer { status, buffers, ..Answer::default() }
    }

    /// The same for another request.
    fn plain(result: Result<Buffers, Errno>) -> Answer {
        match result {
            Ok(buffers) => Answer { buffers, ..Answer::default() },
            Err(errno) => Answer { status: errno.negative(), ..Answer::default() },
        }
    }

    /// A change that can't be made. One that was made before a crash is lost.
    fn unchanged(served: &Served, answer: Answer, cx: &mut Cx<'_, '_, '_>) {
        match served.replay {
            Some(_) => cx.unfit(served),
            None => cx.rpc.reply(served.id, answer),
        }
    }

    /// Whether a request repeats a change whose effect is there.
    fn is_done(served: &Served, cx: &Cx<'_, '_, '_>) -> bool {
        served.replay.is_some_and(|replay| replay.transno <= cx.committed())
    }

    /// Whether the store has room for something new, as far as it is known.
    fn has_room(&self) -> Result<(), Errno> {
        if self.free.is_some_and(|free| free < RESERVE) { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    fn measure(&mut self, cx: &mut Cx<'_, '_, '_>) {
        if !self.measuring {
            self.measuring = true;
            self.look = None;
            cx.order(StoreOrder::Space { token: MEASURE });
        }
    }

    fn serve_file(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        if is_data(served.opcode) {
            return self.serve_data(served, cx);
        }
        let request = match request::read(&served) {
            Ok(Some(request)) => request,
            Ok(None) => {
                if let Err(errno) = Self::check_kind(&served) {
                    return cx.rpc.refuse(served.id, errno);
                }
                let value = self.lock_value(&served);
                return self.locks.serve(&served, value, cx.rpc);
            }
            Err(errno) => return cx.rpc.refuse(served.id, errno),
        };
        let given_back = match (request.cancels, served.opcode) {
            (Some(index), _) => self.locks.take_back_beside(&served, index, cx.rpc),
            (None, Opcode::LDLM_ENQUEUE) => self.locks.begin_intent(&served, cx.rpc).map(|_| ()),
            (None, _) => Ok(()),
        };
        match given_back {
            Ok(()) => self.guard(served, request, cx),
            Err(errno) => cx.rpc.refuse(served.id, errno),
        }
    }

    /// Carries a request out, or refuses it.
    fn decide(&mut self, served: Served, ask: Ask, cx: &mut Cx<'_, '_, '_>) {
        let id = served.id;
        // What is repeated after a crash was done before any name was held.
        if served.replay.is_none() && self.is_held_up(&ask) {
            return self.hold_up(served, cx);
        }
        let answer = match ask {
            Ask::Root(path) => Self::plain(self.root(&path)),
            Ask::GetAttr(body) => {
                Self::plain(self.known(body.fid1).map(|found| Self::shown(&found, &body)))
            }
            Ask::Lookup(body, name) => Self::plain(self.lookup(&body, &name)),
            Ask::GetXattr(body, name) => Self::plain(self.get_xattr(&body, &name)),
            Ask::Locate(seq) => Self::plain(self.locate(seq)),
            Ask::Intent(body, name) => {
                let (found, result) = self.intent(&body, &name);
                let id = self.meant(&body, &name);
                let mut bits = InodeBits::UPDATE | InodeBits::PERM;
                bits.set(InodeBits::LOOKUP, !body.valid.contains(Valid::CROSSREF));
                // What else its clients may cache of it is with the target of the file (C-110).
                if id.is_some_and(|id| !self.tree.is_here(id)) {
                    bits = InodeBits::LOOKUP;
                }
                let id = id.filter(|_| found.contains(Disposition::POSITIVE));
                let beside = id.map(|id| Found { id, what: Beside::Attributes(bits) });
                self.of_intent(&served, found, result, beside, cx)
            }
            Ask::Layout(fid) => {
                let (found, result) = self.layout(fid);
                let beside = Id::of(fid).map(|id| Found { id, what: Beside::Layout });
                self.of_intent(&served, found, result, beside, cx)
            }
            Ask::AllXattrs(body) => {
                let result = self.all_xattrs(&body);
                let beside = Id::of(body.fid1).map(|id| Found { id, what: Beside::Xattrs });
                self.of_intent(&served, Disposition::EXECUTED, result, beside, cx)
            }
            Ask::Statfs => {
                return self.wait(
                    &served,
                    Stage::Space,
                    StoreOrder::Space { token: id.into() },
                    cx,
                );
            }
            Ask::Sync => {
                let answer = Self::plain(Ok(Buffers::new().layout(&MdtBody::default())));
                let order = StoreOrder::Sync { token: id.into() };
                return self.wait(&served, Stage::Sync(answer), order, cx);
            }
            Ask::Pages(body) => match self.pages(&served, &body, cx) {
                Ok(()) => return,
                Err(errno) => Self::plain(Err(errno)),
            },
            Ask::Sequence => match self.sequence(&served, cx) {
                Ok(()) => return,
                Err(errno) => Self::plain(Err(errno)),
            },
            Ask::Close(epoch, record) => return self.close(&served, epoch.handle, &record, cx),
            Ask::Across(message) => return self.second(served, message, cx),
            Ask::Reint(change) => {
                return match self.crossing(&change).filter(|_| served.replay.is_none()) {
                    Some(of) => self.cross(served, &change, of, cx),
                    None => self.reint(&served, &change, cx),
                };
            }
            Ask::Open(record, name, layout) => {
                if self.open(&served, &record, &name, &layout, cx) == Err(Stop::Wait) {
                    self.waiting.push_back(served);
                }
                return;
            }
        };
        cx.rpc.reply(id, answer);
    }

    /// Whether the client may change anything (C-12).
    fn may_change(served: &Served, cx: &Cx<'_, '_, '_>) -> Result<(), Errno> {
        let terms = cx.rpc.granted(served.export);
        let reads = terms.is_some_and(|terms| terms.flags.contains(ConnectFlags::RDONLY));
        if reads { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Opens that have waited for objects, and requests for names that were held, begin anew.
    fn go_on(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let held_up = core::mem::take(&mut self.held_up);
        for served in core::mem::take(&mut self.waiting).into_iter().chain(held_up) {
            self.serve_file(served, cx);
        }
    }

    /// What other targets are to do.
    fn work(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let committed = cx.committed();
        self.objects.work(&self.tree, committed, cx.rpc);
        self.across.work(cx.rpc);
    }

    /// Handles of clients that are gone are closed.
    fn drop_opens(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let gone = self.tree.opens().filter(|(_, open)| !cx.knows(&open.client));
        let gone: Vec<u64> = gone.map(|(handle, _)| handle).collect();
        if gone.is_empty() {
            return;
        }
        let mut edit = Edit::new(&mut self.tree, cx.last());
        for handle in gone {
            edit.close(handle);
        }
        let changes = edit.finish();
        cx.batch(changes);
    }

    /// Stores a change with its answer.
    fn commit(
        &mut self,
        served: &Served,
        answer: Answer,
        changes: Vec<Change>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        if changes.iter().any(|change| matches!(change, Change::Put(..))) {
            self.measure(cx);
        }
        // What a reply brings beside is no part of its record.
        let kept = match self.brought.contains_key(&served.id) {
            true => cx.commit_part(served, answer, changes, When::Applied),
            false => cx.commit(served, answer, changes, When::Applied),
        };
        if !kept {
            self.bring_nothing(served.id, cx);
        }
        self.work(cx);
    }
}

impl Kind for Mdt {
    fn name(&self) -> &'static str {
        "mdt"
    }

    fn offer(&self) -> ConnectData {
        ConnectData {
            flags: ConnectFlags::RDONLY
                | ConnectFlags::VERSION
                | ConnectFlags::AT
                | ConnectFlags::FULL20
                | ConnectFlags::FID
                | ConnectFlags::ATTRFID
                | ConnectFlags::IBITS
                | ConnectFlags::BRW_SIZE
                | ConnectFlags::HASH_64BIT
                | ConnectFlags::CANCELSET
                | ConnectFlags::XATTR
                | ConnectFlags::LAYOUTLOCK
                | ConnectFlags::LVB_TYPE
                | ConnectFlags::LOV_V3
                | ConnectFlags::MAX_EASIZE
                | ConnectFlags::DISP_STRIPE
                | ConnectFlags::OPEN_BY_FID
                | ConnectFlags::MULTIMODRPCS
                | ConnectFlags::UMASK
                | ConnectFlags::SUBTREE
                | ConnectFlags::SRVLOCK
                | ConnectFlags::CKSUM
                | ConnectFlags::SHORTIO
                | ConnectFlags::JOBSTATS
                | ConnectFlags::EINPROGRESS
                | ConnectFlags::BULK_MBITS
                | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::REP_MBITS | ConnectFlags2::LSOM | ConnectFlags2::DOM_LVB,
            ibits_known: 0x7f,
            cksum_types: ChecksumKinds::CRC32 | ChecksumKinds::ADLER | ChecksumKinds::CRC32C,
            brw_size: BRW_SIZE,
            max_easize: VALUE_MAX,
            maxmodrpcs: MOD_RPCS,
            ..ConnectData::default()
        }
    }

    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        let (values, under) = (Values::Objects, held::is_under);
        self.locks = lock_server::begun_with(values, beginning.recovers, under, rpc);
        self.handles = Prng::new(rpc.seed());
        self.objects.begin(&self.site, beginning.recovers, rpc);
        self.across.begin(&self.site, beginning.starts, rpc);
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        self.make_root(cx);
        if self.free.is_none() {
            self.measure(cx);
        }
        self.serve_file(served, cx);
        self.unlocked(cx);
    }

    fn bulk_done(
        &mut self,
        served: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        if self.data.contains_key(&served) {
            self.data_moved(served, result, cx);
            self.unlocked(cx);
            return true;
        }
        let Some(Work { stage: Stage::Pages(memory), .. }) = self.work.get(&served) else {
            return false;
        };
        cx.free(memory);
        self.work.remove(&served);
        if result.is_ok() {
            let buffers = Buffers::new().layout(&MdtBody::default());
            cx.rpc.reply(served, Answer { buffers, ..Answer::default() });
        }
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
            if let Ok(Outcome::Space { free, .. }) = outcome {
                self.free = Some(free);
                self.look = self.has_room().is_err().then(|| cx.rpc.now() + LOOK_AGAIN);
            }
            return;
        }
        let id = ServedId::from(token);
        if self.data.contains_key(&id) {
            self.data_stored(id, outcome, cx);
            return self.unlocked(cx);
        }
        let Some(Work { replay, stage }) = self.work.remove(&id) else { return };
        match (stage, outcome) {
            (Stage::Space, Ok(Outcome::Space { total, free })) => {
                self.free = Some(free);
                cx.rpc.reply(id, self.statfs(total, free));
            }
            (Stage::Sync(answer), Ok(_)) => cx.rpc.reply(id, answer),
            (Stage::Applied(answer, change), Ok(_)) => {
                cx.rpc.reply(id, answer);
                self.across.release(change);
                self.go_on(cx);
                self.unlocked(cx);
            }
            (_, Err(e)) => cx.not_stored(id, replay, &e),
            (_, Ok(_)) => cx.rpc.refuse(id, Errno::EIO),
        }
    }

    fn answer(&mut self, served: ServedId, answer: Answer, cx: &mut Cx<'_, '_, '_>) {
        let Some(mut answer) = self.across.stored(served, answer) else { return self.work(cx) };
        self.bring(served, &mut answer, cx);
        cx.rpc.reply(served, answer);
        self.unlocked(cx);
    }

    fn is_ahead(&self) -> bool {
        true
    }

    fn committed(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.work(cx);
    }

    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.show_awaited();
        self.locks.recovered(cx.rpc);
        self.drop_opens(cx);
        self.objects.recovered(cx.rpc.now());
        self.work(cx);
        self.unlocked(cx);
    }

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.drop_guarded(export, cx);
        self.drop_data(export, cx);
        self.brought.retain(|_, brought| brought.export != export);
        self.locks.left(export, cx.rpc);
        self.waiting.retain(|served| served.export != export);
        self.held_up.retain(|served| served.export != export);
        self.across.left(export);
        self.drop_opens(cx);
        self.work(cx);
        self.unlocked(cx);
    }

    fn waits(&mut self, served: ServedId, export: ExportId, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.raise_held(served, export, cx)
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        let (call, result) = match fact {
            CallbackFact::Again(call) => return self.locks.called_again(*call, cx.rpc),
            CallbackFact::Ended(call, result) => (*call, result),
        };
        let now = cx.rpc.now();
        if let Some(ended) = self.across.ended(call, result, now) {
            self.crossed(ended, cx);
            self.unlocked(cx);
            return true;
        }
        let Some(ended) = self.objects.ended(call, result, now, &self.tree) else {
            let taken = self.locks.called(call, result, cx.rpc);
            self.unlocked(cx);
            return taken;
        };
        let mut edit = Edit::new(&mut self.tree, cx.last());
        if let Some((index, object, debt)) = ended.paid {
            edit.paid(index, object, debt);
        }
        if let Some((index, object)) = ended.used {
            edit.set_used(index, object);
        }
        let changes = edit.finish();
        if !changes.is_empty() {
            cx.batch(changes);
        }
        self.work(cx);
        self.go_on(cx);
        true
    }

    fn import_changed(
        &mut self,
        import: ImportId,
        state: ImportState,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let taken =
            self.objects.import_changed(import, state) || self.across.import_changed(import, state);
        if taken {
            self.work(cx);
        }
        taken
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let others = [self.objects.poll_timeout(), self.across.poll_timeout()];
        let due = others.into_iter().chain([self.locks.poll_timeout(), self.look]);
        due.flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.expire_locks(cx);
        if self.look.is_some_and(|at| at <= cx.rpc.now()) {
            self.measure(cx);
        }
        self.work(cx);
        self.go_on(cx);
        self.unlocked(cx);
    }

    fn locks(&self) -> Option<&LockServer> {
        Some(&self.locks)
    }
}
