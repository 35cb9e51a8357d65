//! The client's side: imports, and the calls over them.
//!
//! ```text
//!  call ─► request.rs  may it go? ─► transmit ─► LNet
//!            ▲   │ no: waits            │
//!            │   └─ connect.rs          ▼
//!   again ◄──┴── reply.rs  reply, early reply, expiry ─► Event::Ended
//! ```
//!
//! `connect.rs` makes connections and makes them again, `recover.rs` what follows before the import
//! is in use, `pinger.rs` keeps idle ones alive.

mod connect;
mod connections;
mod import;
mod pinger;
mod recover;
mod reply;
mod request;
mod view;

use lnet_types::Instant;
use lustre_wire::body::MsgKind;
use lustre_wire::msg::{BODY_ONLY_LEN, Header, MsgBuilder, size};
use lustre_wire::{Body, BodyFlags, ConnectFlags2, ImportKind, Layout, Opcode, Service, WireError};

use crate::common::Cx;
use crate::error::CallError;
use crate::event::{Event, Reply};
use crate::table::{CallId, ImportId, Table};
use crate::timers::Timer;

pub use connections::Connection;
pub use import::{ImportConfig, ImportState};
pub(crate) use request::Next;
pub use request::{Bulk, Call, Direction};
pub use view::ImportView;

use import::Import;
use request::{Phase, Purpose, Request};

/// Most bytes of the bulk data of a call (P-46).
pub const BULK_MAX: u64 = 64 << 20;
/// Most bytes of a uuid, its NUL not counted (P-18).
pub const UUID_MAX: usize = 38;

#[derive(Default)]
pub(crate) struct Client {
    imports: Table<ImportId, Import>,
    calls: Table<CallId, Request>,
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
        self.granted.flags2.contains(ConnectFlags2::REP_MBITS)
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
        let own_handle = cx.common.prng.next_u64() | 1;
        Ok(self.imports.insert(Import::new(config, own_handle)))
    }

    pub(crate) fn call(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        call: Call,
    ) -> Result<CallId, CallError> {
        let im = self.imports.get(import).ok_or(CallError::NoImport)?;
        if let Some(bulk) = &call.bulk {
            let value = lnet_types::iovec_len(&bulk.memory);
            if value == 0 || value > BULK_MAX {
                let (what, field) = ("bulk data", "length");
                let wrong = WireError::Limit { what, field, value, min: 1, max: BULK_MAX };
                return Err(CallError::BadRequest(wrong));
            }
        }
        let (opcode, limit) = (call.opcode, call.limit);
        let portals = opcode.portals(im.config.kind);
        let mut lens = vec![Body::LEN as u32];
        lens.extend(&call.reply_lens);
        let reply_len = u32::try_from(size(&lens)).unwrap_or(u32::MAX);
        let id = self.request(cx, import, Purpose::Call, opcode, |builder| {
            call.buffers.iter().fold(builder, |builder, buffer| builder.bytes(buffer))
        })?;
        let now = cx.below.now();
        if let Some(r) = self.calls.get_mut(id) {
            r.portals = (portals.0.0, portals.1.0);
            r.reply_len = reply_len;
            r.header.repsize = reply_len;
            r.bulk = call.bulk;
            r.resend = call.resend;
            r.delay = call.delay;
            r.limit = limit.map(|limit| now + limit);
            if let Some(at) = r.limit {
                cx.common.timers.set(Timer::Limit(id), at);
            }
        }
        let new = self.imports.get(import).is_some_and(|im| im.state == ImportState::New);
        self.progress(cx, id);
        if new {
            self.connect(cx, import);
        }
        Ok(id)
    }

    /// A request, packed, with its number.
    fn request(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        purpose: Purpose,
        opcode: Opcode,
        fill: impl FnOnce(MsgBuilder) -> MsgBuilder,
    ) -> Result<CallId, CallError> {
        let im = self.imports.get_mut(import).ok_or(CallError::NoImport)?;
        let xid = cx.common.xids.next();
        let header = Header {
            secflvr: flavour(im.config.kind),
            repsize: BODY_ONLY_LEN as u32,
            ..Header::default()
        };
        let service = opcode.row().and_then(|row| row.service).unwrap_or(Service::Obd);
        let body =
            Body { kind: MsgKind::REQUEST, version: service.word(), opcode, ..Body::default() };
        let message =
            fill(MsgBuilder::new(header, &body)).build().map_err(CallError::BadRequest)?;
        let (request, reply) = im.config.kind.portals();
        let send_state = match purpose {
            Purpose::Call | Purpose::Ping => ImportState::Full,
            Purpose::Connect | Purpose::Disconnect => ImportState::Connecting,
            Purpose::Replay => ImportState::Replay,
            Purpose::FinalPing => ImportState::ReplayWait,
        };
        let id = self.calls.insert(Request {
            import,
            purpose,
            send_state,
            header,
            body,
            message,
            portals: (request.0, reply.0),
            bulk_portal: im.config.kind.bulk_portal().0,
            reply_len: BODY_ONLY_LEN as u32,
            bulk: None,
            resend: false,
            delay: false,
            limit: None,
            xid,
            sent_as: 0,
            generation: im.generation,
            phase: Phase::Delayed,
            attempt: 0,
            sent: None,
            resent: false,
            timeout: core::time::Duration::ZERO,
            deadline: None,
            reply_md: None,
            bulk_mds: Vec::new(),
            bulk_open: 0,
            bulk_failed: false,
            in_progress: 0,
            cancelled: false,
        });
        // Connects and disconnects count for no `last_xid` (P-45).
        if !matches!(purpose, Purpose::Connect | Purpose::Disconnect) {
            im.calls.insert(xid, id);
        }
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
        let Some(r) = self.calls.remove(id) else { return };
        cx.common.timers.stop(Timer::Call(id));
        cx.common.timers.stop(Timer::Limit(id));
        if let Some(im) = self.imports.get_mut(r.import) {
            im.calls.remove(&r.xid);
        }
        match r.purpose {
            Purpose::Call => cx.common.events.push_back(Event::Ended { call: id, result }),
            Purpose::Connect => self.connected(cx, r.import, &r, result),
            Purpose::Disconnect => self.close(cx, r.import),
            Purpose::Ping => {}
            Purpose::Replay => self.replayed(cx, r.import, &r, result),
            Purpose::FinalPing => self.recovered(cx, r.import, result.is_ok()),
        }
    }

    /// Changes the state of an import, and says so.
    fn enter(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, state: ImportState) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.enter(cx.below.now(), state) {
            cx.common.events.push_back(Event::Import { import, state });
        }
    }

    /// The calls of an import that have not ended, oldest first.
    fn calls_of(&self, import: ImportId) -> Vec<CallId> {
        let im = self.imports.get(import);
        im.map(|im| im.calls.values().copied().collect()).unwrap_or_default()
    }

    /// Calls that waited for the import may go.
    fn wake(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        for id in self.calls_of(import) {
            let delayed = |r: &Request| matches!(r.phase, Phase::Delayed);
            if self.calls.get(id).is_some_and(delayed) {
                self.progress(cx, id);
            }
        }
    }

    /// No more calls: those under way end, and the server gets a disconnect.
    pub(crate) fn disconnect(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.closing {
            return;
        }
        im.closing = true;
        let full = im.state == ImportState::Full;
        let disconnects = im.config.kind.connects().map(|(_, opcode)| opcode);
        for id in self.calls_of(import) {
            self.release(cx, id, Next::End(Err(CallError::Closed)));
        }
        let Some(opcode) = disconnects.filter(|_| full) else { return self.close(cx, import) };
        self.enter(cx, import, ImportState::Connecting);
        match self.request(cx, import, Purpose::Disconnect, opcode, |builder| builder) {
            Ok(id) => {
                // P-104: its own wait is 5 s, whatever the server is given.
                let at = cx.below.now() + crate::tunables::SWITCH;
                cx.common.timers.set(Timer::Limit(id), at);
                self.progress(cx, id);
            }
            Err(_) => self.close(cx, import),
        }
    }

    fn close(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        self.enter(cx, import, ImportState::Closed);
        cx.common.timers.stop(Timer::Import(import));
        for id in self.calls_of(import) {
            self.release(cx, id, Next::End(Err(CallError::Closed)));
        }
        self.imports.remove(import);
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

    /// Requests of an older generation than the import's end (P-76).
    fn abort_older(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        for id in self.calls_of(import) {
            self.release(cx, id, Next::End(Err(CallError::Evicted)));
        }
    }

    fn generation_ends(im: &mut Import) {
        im.generation += 1;
        im.retained.clear();
    }

    /// Flags of a request in recovery.
    const DONE: BodyFlags = BodyFlags::REQ_REPLAY_DONE.union(BodyFlags::LOCK_REPLAY_DONE);

    fn now(cx: &Cx<'_, '_>) -> Instant {
        cx.below.now()
    }
}
