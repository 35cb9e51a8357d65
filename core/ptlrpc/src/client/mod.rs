//! The client's side: imports, and the calls over them.
//!
//! ```text
//!  call ─► request.rs  may it go? ─► transmit ─► LNet
//!            ▲   │ no: waits            │
//!            │   └─ connect.rs          ▼
//!   again ◄──┴── reply.rs  reply, early reply, expiry ─► Event::Ended
//! ```
//!
//! `connect.rs` makes connections and makes them again (`restarted.rs`: on notice), `recover.rs` what
//! follows before the import is in use, `locks.rs` its part for locks, `retain.rs` keeps what may be
//! repeated, `pinger.rs` keeps idle ones alive, `leave.rs` ends them, `evicted.rs` ends what an
//! eviction makes void, `reverse.rs` has the imports of servers to their clients. What is decided is
//! in pure functions: `state.rs` (states), `outcome.rs` (connects), `connections.rs` (where to),
//! `decide.rs` (requests), `slots.rs` (how many; `pump.rs` gives them).

mod connect;
mod connections;
mod decide;
mod evicted;
mod explain;
mod import;
mod leave;
mod locks;
mod log;
mod outcome;
mod pinger;
mod pump;
mod recover;
mod reply;
mod request;
mod restarted;
mod retain;
mod reverse;
mod slots;
mod state;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use lnet_types::{Instant, Nid};
use lustre_wire::body::MsgKind;
use lustre_wire::msg::{BODY_ONLY_LEN, Header, message_size};
use lustre_wire::{
    Body, BodyFlags, Buffers, ConnectData, ConnectFlags2, ImportKind, Opcode, Service, WireError,
};

use crate::common::Cx;
use crate::cut::{Cut, PIECES_MAX};
use crate::error::CallError;
use crate::event::{Event, Reply};
use crate::table::{CallId, ExportId, ImportId, Table, index};
use crate::timers::Timer;

pub use connections::{ChoiceReason, Connection, Readiness};
pub use explain::{ExplainedNode, Explanation, Never};
pub use import::{ImportConfig, ImportTunables};
pub use log::LogLine;
pub use outcome::Terms;
#[cfg(test)]
pub(crate) use pinger::AT_ONCE;
pub(crate) use request::Next;
pub use request::{Bulk, Call, Direction};
pub(crate) use reverse::Reverse;
pub use state::ImportState;
pub use view::{ClientStats, ImportView};

use connect::Discovery;
use import::Import;
use pinger::Burst;
use pump::Pump;
use request::{Phase, Purpose, Request};
use slots::Class;
use state::Change;

/// Most bytes of the bulk data of a call; fewer where they begin inside of a page (P-46).
pub const BULK_MAX: u64 = 64 << 20;
/// Most imports of one node, those to clients not counted.
pub const IMPORTS_MAX: usize = 200_000;
/// Most calls of one import that have not ended.
pub const CALLS_PER_IMPORT_MAX: usize = 65_536;
/// Most finished requests of one import that its server may still lose, or that the program keeps:
/// beyond it a call that modifies is refused, unless it ends what an earlier one keeps. Metadata targets
/// of kernel nodes commit each five to eight seconds, and opens and closes of files that are read count.
pub const RETAINED_PER_IMPORT_MAX: usize = 262_144;
/// Most bytes of a uuid, its NUL not counted (P-18).
pub const UUID_MAX: usize = 38;

#[derive(Default)]
pub(crate) struct Client {
    /// In boxes: a table that grows moves what is in it.
    imports: Table<ImportId, Box<Import>>,
    calls: Table<CallId, Request>,
    /// Imports to clients, by export.
    reverse: BTreeMap<ExportId, ImportId>,
    /// Discoveries under way, by node. The end of one may mean that the node is back.
    discoveries: BTreeMap<Nid, Discovery>,
    /// What the last import was made to ask for.
    wanted: Arc<ConnectData>,
    /// The pings of the present moment.
    burst: Burst,
    pump: Pump,
    /// When the kernel's pinger makes its next pass.
    pass: Option<Instant>,
    stats: ClientStats,
    /// The warning about LNet's time was given.
    warned: bool,
}

/// What the header of a client's messages says of who sends (P-15).
const fn flavour(kind: ImportKind) -> u32 {
    match kind {
        ImportKind::Mgc => 3 << 24,
        ImportKind::MdtToOst | ImportKind::MdtToMdt => 1 << 24,
        ImportKind::Lightweight => 2 << 24,
        ImportKind::Osc | ImportKind::Mdc | ImportKind::Callback => 0,
    }
}

impl Import {
    /// Replies are matched by `mbits` (P-38).
    fn rep_mbits(&self) -> bool {
        self.terms.data.flags2.contains(ConnectFlags2::REP_MBITS)
    }
}

impl Client {
    /// A new import; it connects with its first call, or [`Client::connect`].
    pub(crate) fn import(
        &mut self,
        cx: &mut Cx<'_, '_>,
        config: ImportConfig,
    ) -> Result<ImportId, CallError> {
        for (what, uuid) in [("target uuid", &config.target), ("client uuid", &config.client)] {
            if uuid.len() > UUID_MAX || uuid.is_empty() || uuid.contains('\0') {
                let (value, max) = (uuid.len() as u64, UUID_MAX as u64);
                let wrong = WireError::Limit { what, field: "length", value, min: 1, max };
                return Err(CallError::BadRequest(wrong));
            }
        }
        if config.nids.is_empty() || config.kind.connects().is_none() {
            return Err(CallError::NoImport);
        }
        if self.imports.len() - self.reverse.len() >= IMPORTS_MAX {
            return Err(CallError::TooMany { what: "imports", limit: IMPORTS_MAX });
        }
        // The lower half is the import's place, by which a callback finds it.
        let secret = (cx.common.prng.next_u64() | 1 << 32) & u64::from(u32::MAX) << 32;
        let wanted = self.wants(config.wanted);
        let import = Import::new(config, wanted, 0, &cx.common.tunables);
        let id = self.imports.insert(Box::new(import));
        if let Some(im) = self.imports.get_mut(id) {
            im.own_handle = secret | index(id.into()) as u64;
        }
        Ok(id)
    }

    /// What an import asks for, shared with the one that was made before it if that asks for the same.
    fn wants(&mut self, data: ConnectData) -> Arc<ConnectData> {
        if *self.wanted != data {
            self.wanted = Arc::new(data);
        }
        self.wanted.clone()
    }

    /// Sets what may be set for one import.
    pub(crate) fn tune(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, tunables: ImportTunables) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.tunables = tunables;
        self.pump(cx, import);
    }

    /// The program has, or has no longer, what goes with the connection (P-103).
    pub(crate) fn hold(&mut self, import: ImportId, held: bool) {
        if let Some(im) = self.imports.get_mut(import) {
            im.held = held;
        }
    }

    /// The imports of which `is` holds.
    fn imports_where(&self, is: impl Fn(&Import) -> bool) -> Vec<ImportId> {
        self.imports.iter().filter(|(_, im)| is(im)).map(|(id, _)| id).collect()
    }

    pub(crate) fn call(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        call: Call,
    ) -> Result<CallId, CallError> {
        let im = self.imports.get(import).ok_or(CallError::NoImport)?;
        if im.under_way() >= CALLS_PER_IMPORT_MAX {
            return Err(CallError::TooMany { what: "calls", limit: CALLS_PER_IMPORT_MAX });
        }
        let adds = (call.modifies || call.keep) && call.ends.is_none();
        if adds && im.retained.len() >= RETAINED_PER_IMPORT_MAX {
            let (what, limit) = ("uncommitted requests", RETAINED_PER_IMPORT_MAX);
            return Err(CallError::TooMany { what, limit });
        }
        let class = Class::of(im.config.kind, call.opcode, call.modifies, im.tags());
        let limit = call.limit;
        let id = self.prepare(import, Purpose::Call, class, call)?;
        self.rouse(cx, import);
        let now = cx.below.now();
        let Some(im) = self.imports.get_mut(import) else { return Err(CallError::NoImport) };
        let slot = im.slots.take(class, id, im.limits());
        if let Some(r) = self.calls.get_mut(id) {
            r.generation = im.generation;
            r.limit = limit.map(|limit| now + limit);
            if let Some(at) = r.limit {
                cx.common.timers.set(Timer::Limit(id), at);
            }
        }
        self.stats.calls += 1;
        if let Some(slot) = slot {
            self.number(cx, id, slot);
            self.progress(cx, id);
        }
        Ok(id)
    }

    /// A call of the program.
    fn prepare(
        &mut self,
        import: ImportId,
        purpose: Purpose,
        class: Class,
        call: Call,
    ) -> Result<CallId, CallError> {
        let im = self.imports.get(import).ok_or(CallError::NoImport)?;
        if let Some(bulk) = &call.bulk {
            let value = lnet_types::iovec_len(&bulk.memory);
            let max = Cut::of_call(call.opcode, &call.buffers).most(PIECES_MAX);
            if value == 0 || value > max {
                let (what, field) = ("bulk data", "length");
                let wrong = WireError::Limit { what, field, value, min: 1, max };
                return Err(CallError::BadRequest(wrong));
            }
        }
        let portals = call.portals.unwrap_or_else(|| call.opcode.portals(im.config.kind));
        let id = self.request(import, purpose, call.opcode, call.buffers)?;
        if let Some(r) = self.calls.get_mut(id) {
            r.portals = (portals.0.0, portals.1.0);
            r.reply_len = call.reply_max;
            r.header.repsize = call.reply_max;
            r.bulk = call.bulk;
            r.resend = call.resend;
            r.delay = call.delay;
            r.in_recovery = call.in_recovery;
            r.keep = call.keep;
            r.retains_bulk = call.retains_bulk;
            r.ends = call.ends;
            r.error_reply = call.error_reply;
            r.class = class;
        }
        Ok(id)
    }

    /// The buffers of a call that is under way, or retained.
    pub(crate) fn buffers(&self, import: ImportId, call: CallId) -> Option<&Buffers> {
        let retained = self.imports.get(import).and_then(|im| im.retained.get(call));
        let own = |r: &&Request| r.import == import && r.purpose == Purpose::Call;
        let under_way = || self.calls.get(call).filter(own);
        let kept = retained.map(|kept| &kept.buffers);
        kept.or_else(|| under_way().map(|r| &r.buffers))
    }

    /// Other buffers for such a call.
    pub(crate) fn amend(&mut self, import: ImportId, call: CallId, buffers: Buffers) -> bool {
        let retained = self.imports.get_mut(import).and_then(|im| im.retained.get_mut(call));
        let amended = match (retained, self.calls.get_mut(call)) {
            (Some(kept), _) => &mut kept.buffers,
            (None, Some(r)) if r.import == import && r.purpose == Purpose::Call => &mut r.buffers,
            _ => return false,
        };
        if message_size(&buffers).is_err() {
            return false;
        }
        *amended = buffers;
        true
    }

    /// A retained call is not replayed any more.
    pub(crate) fn forget(&mut self, import: ImportId, call: CallId) -> bool {
        self.imports.get_mut(import).is_some_and(|im| im.retained.forget(call))
    }

    /// Whether a call that has ended would be replayed.
    pub(crate) fn retains(&self, import: ImportId, call: CallId) -> bool {
        self.imports.get(import).is_some_and(|im| im.retained.has(call))
    }

    /// A call makes an import that is not connected connect (P-81).
    fn rouse(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        self.change(cx, import, Change::Wake);
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.state == ImportState::New && !im.closing {
            im.generation += 1;
            im.woken = Some(im.generation);
            self.connect(cx, import);
        }
    }

    /// Gives a request its number, and the slot that it has taken (P-82).
    fn number(&mut self, cx: &mut Cx<'_, '_>, id: CallId, slot: u16) {
        let Some(r) = self.calls.get_mut(id) else { return };
        r.xid = cx.common.xids.next();
        r.slot = slot;
        r.phase = Phase::Delayed;
        if matches!(r.class, Class::Modify | Class::Close) {
            r.body.tag = slot;
        }
        // Connects and disconnects count for no `last_xid` (P-45).
        if !matches!(r.purpose, Purpose::Connect | Purpose::Disconnect)
            && let Some(im) = self.imports.get_mut(r.import)
        {
            im.calls.insert(r.xid, id);
        }
    }

    /// A request of the request layer itself, with its number.
    fn own_request(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        purpose: Purpose,
        opcode: Opcode,
        buffers: Buffers,
    ) -> Result<CallId, CallError> {
        let id = self.request(import, purpose, opcode, buffers)?;
        self.number(cx, id, 0);
        Ok(id)
    }

    /// A request with these buffers behind its body.
    fn request(
        &mut self,
        import: ImportId,
        purpose: Purpose,
        opcode: Opcode,
        buffers: Buffers,
    ) -> Result<CallId, CallError> {
        message_size(&buffers).map_err(CallError::BadRequest)?;
        let im = self.imports.get_mut(import).ok_or(CallError::NoImport)?;
        let header = Header {
            secflvr: flavour(im.config.kind),
            repsize: BODY_ONLY_LEN as u32,
            ..Header::default()
        };
        let service = opcode.row().and_then(|row| row.service).unwrap_or(Service::Obd);
        let body =
            Body { kind: MsgKind::REQUEST, version: service.word(), opcode, ..Body::default() };
        let (request, reply) = im.config.kind.portals();
        let send_state = match purpose {
            Purpose::Call | Purpose::Ping | Purpose::Probe => ImportState::Full,
            Purpose::Connect | Purpose::Disconnect => ImportState::Connecting,
            Purpose::Replay => ImportState::Replay,
            Purpose::LockReplay => ImportState::ReplayLocks,
            Purpose::FinalPing => ImportState::ReplayWait,
        };
        let id = self.calls.insert(Request {
            import,
            purpose,
            send_state,
            header,
            body,
            buffers,
            portals: (request.0, reply.0),
            bulk_portal: opcode.bulk_portal(im.config.kind).0,
            reply_len: BODY_ONLY_LEN as u32,
            bulk: None,
            resend: false,
            delay: false,
            limit: None,
            class: Class::Unlimited,
            slot: 0,
            in_recovery: false,
            keep: false,
            retains_bulk: false,
            ends: None,
            error_reply: false,
            xid: 0,
            sent_as: 0,
            generation: im.generation,
            phase: Phase::Queued,
            attempt: 0,
            sent: None,
            resent: false,
            refused: false,
            timeout: core::time::Duration::ZERO,
            deadline: None,
            reply_buffer: None,
            bulk_mds: Vec::new(),
            bulk_open: 0,
            bulk_failed: false,
            bulk_moved: Default::default(),
            in_progress: 0,
            not_before: None,
            cancelled: false,
        });
        Ok(id)
    }

    /// Takes a call back. It ends as soon as nothing uses its memory.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get_mut(id) else { return };
        r.cancelled = true;
        if !matches!(r.phase, Phase::Unlinking(Next::End(_))) {
            self.release(cx, id, Next::End(Err(CallError::Cancelled)));
        }
    }

    /// The limit of a call has passed.
    pub(crate) fn limit_passed(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get_mut(id) else { return };
        if !matches!(r.phase, Phase::Unlinking(Next::End(_))) {
            self.release(cx, id, Next::End(Err(CallError::LimitPassed)));
        }
    }

    /// A request has ended: it leaves all tables, and its result goes where it belongs.
    fn finish(&mut self, cx: &mut Cx<'_, '_>, id: CallId, result: Result<Reply, CallError>) {
        let taken = self.calls.remove(id);
        let Some(r) = &taken else { return };
        cx.common.timers.stop(Timer::Call(id));
        cx.common.timers.stop(Timer::Limit(id));
        if let Some(im) = self.imports.get_mut(r.import) {
            im.call_ended(r.xid);
            if r.xid == 0 {
                im.slots.forget(r.class, id);
            } else {
                im.slots.give(r.class, r.slot);
            }
            // No program repeats what ends an effect (C-258): what it was to end is repeated no more.
            if let (Err(_), Some(call)) = (&result, r.ends) {
                im.retained.forget(call);
            }
        }
        match r.purpose {
            Purpose::Call => cx.common.events.push_back(Event::Ended { call: id, result }),
            Purpose::Connect => self.connected(cx, r.import, r, result),
            Purpose::Disconnect => self.left(cx, r.import, result.map(|_| ())),
            Purpose::Ping | Purpose::Probe => {}
            // A disconnect has overtaken it.
            Purpose::Replay | Purpose::FinalPing if !self.recovers_by(r.import, id) => {}
            Purpose::Replay => self.replayed(cx, r.import, r, result),
            Purpose::LockReplay => {
                let good = matches!(result, Ok(_) | Err(CallError::Cancelled));
                cx.common.events.push_back(Event::Ended { call: id, result });
                self.lock_replayed(cx, r.import, r.body.conn_cnt, good);
            }
            Purpose::FinalPing => self.recovered(cx, r.import, result.is_ok()),
        }
        self.invalidated(cx, r.import);
        self.pump(cx, r.import);
    }

    /// Whether the recovery of an import waits for this request.
    fn recovers_by(&self, import: ImportId, id: CallId) -> bool {
        self.imports.get(import).is_some_and(|im| im.recovering == Some(id))
    }

    /// Changes the state of an import, and reports the new one. `false` if the change is not for its
    /// state.
    fn change(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, change: Change) -> bool {
        let Some(im) = self.imports.get_mut(import) else { return false };
        let state = im.change(cx.below.now(), change);
        let changed = state.is_some();
        // A program knows nothing of imports to clients.
        if let Some(state) = state.filter(|_| im.callback.is_none()) {
            cx.common.events.push_back(Event::Import { import, state });
        }
        changed
    }

    /// Writes a line of the log.
    fn log(&self, cx: &mut Cx<'_, '_>, import: ImportId, line: impl FnOnce(&Import) -> LogLine) {
        if let Some(im) = self.imports.get(import) {
            cx.common.events.push_back(Event::Log { import, line: line(im) });
        }
    }

    /// The calls of an import that have not ended: those with a number by number, then those that
    /// wait for a slot.
    fn calls_of(&self, import: ImportId) -> Vec<CallId> {
        let Some(im) = self.imports.get(import) else { return Vec::new() };
        im.calls.iter().chain(im.slots.waiting()).collect()
    }

    /// Calls that waited for the import may go.
    fn wake(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        self.pump(cx, import);
        for id in self.calls_of(import) {
            let delayed = |r: &Request| matches!(r.phase, Phase::Delayed);
            if self.calls.get(id).is_some_and(delayed) {
                self.progress(cx, id);
            }
        }
        if let Some(im) = self.imports.get_mut(import) {
            im.woken = None;
        }
    }

    /// A time has come.
    pub(crate) fn call_due(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let phase = self.calls.get(id).map(|r| matches!(r.phase, Phase::Waiting));
        match phase {
            Some(true) => self.progress(cx, id),
            Some(false) => self.expire(cx, id),
            None => {}
        }
    }

    /// Flags of a request in recovery.
    const DONE: BodyFlags = BodyFlags::REQ_REPLAY_DONE.union(BodyFlags::LOCK_REPLAY_DONE);

    /// The time, as requests count it.
    fn now(cx: &Cx<'_, '_>) -> Instant {
        cx.common.tunables.count(cx.below.now())
    }
}
