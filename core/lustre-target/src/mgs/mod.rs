//! The management target: the configuration logs of file systems, as their clients read them, and locks
//! on them (P-156 … P-160, C-13 … C-20). The logs are made of descriptions when the target begins; what
//! is added to a description stands behind what its log had before.
//!
//! `log.rs` writes a log. Nothing is stored but clients.

mod log;

use ldlm::server::{LockServer, Values};
use lnet_types::{Errno, Instant};
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::{LockKind, LockRequest};
use lustre_wire::llog::{BLOCK_LEN, LlogdBody, LogId};
use lustre_wire::{Buffers, Msg, Opcode};
use ptlrpc::{Answer, ExportId, Rpc, Served, ServedId};

use crate::journal::Cx;
use crate::lock_server;
use crate::site::Site;
use crate::store::{Outcome, StoreError};
use crate::targets::{Beginning, CallbackFact, Kind};

use log::Log;

/// The uuid of the management target, as clients name it.
pub const MGS_UUID: &str = "MGS";
/// The sequence of logs (C-35).
const LOG_SEQ: u64 = 10;

/// The management target.
#[derive(Debug)]
pub struct Mgs {
    logs: Vec<Log>,
    locks: LockServer,
}

impl Mgs {
    /// A target that has not begun, with the configuration of these file systems.
    pub fn new(sites: &[Site]) -> Self {
        let locks = lock_server::idle(Values::Objects);
        // Parameters of all clients: kernel servers keep the log without one, too.
        let params = Log::empty("params");
        Self { logs: sites.iter().map(Log::of).chain([params]).collect(), locks }
    }

    /// The log of an id that this target has given out.
    fn log(&self, id: &LogId) -> Option<&Log> {
        let at = usize::try_from(id.oid.checked_sub(1)?).ok()?;
        self.logs.get(at).filter(|_| id.seq == LOG_SEQ)
    }

    fn read(&self, opcode: Opcode, msg: &Msg<'_>) -> Result<Buffers, Errno> {
        let asked: LlogdBody = msg.get(1).map_err(|_| Errno::EPROTO)?;
        if opcode == Opcode::LLOG_ORIGIN_HANDLE_CREATE {
            let name = msg.text("log name", 2).map_err(|_| Errno::EPROTO)?;
            let found = self.logs.iter().zip(1..).find(|(log, _)| log.name.as_bytes() == name);
            let (_, oid) = found.ok_or(Errno::ENOENT)?;
            let id = LogId { oid, seq: LOG_SEQ, generation: 0 };
            return Ok(Buffers::new().layout(&LlogdBody { id, ..LlogdBody::default() }));
        }
        let log = self.log(&asked.id).ok_or(Errno::ENOENT)?;
        if opcode == Opcode::LLOG_READ_HEADER {
            return Ok(Buffers::new().layout(&log.header()));
        }
        if asked.len as usize != BLOCK_LEN {
            return Err(Errno::EINVAL);
        }
        let (block, last, end) = log.block_with(asked.index).ok_or(Errno::EBADR)?;
        let read = LlogdBody { saved_index: last, offset: end, ..asked };
        Ok(Buffers::new().layout(&read).bytes(block))
    }

    /// A lock on a configuration: plain locks alone.
    fn serve_lock(&mut self, served: &Served, cx: &mut Cx<'_, '_, '_>) {
        let asked = served.msg().and_then(|msg| LockRequest::of(&msg, 1));
        let plain = asked.is_ok_and(|asked| asked.desc.kind == LockKind::PLAIN);
        if served.opcode == Opcode::LDLM_ENQUEUE && !plain {
            return cx.rpc.refuse(served.id, Errno::EINVAL);
        }
        self.locks.serve(served, Ok(None), cx.rpc);
    }
}

impl Kind for Mgs {
    fn name(&self) -> &'static str {
        "mgs"
    }

    fn keeps_records(&self) -> bool {
        false
    }

    fn offer(&self) -> ConnectData {
        ConnectData {
            flags: ConnectFlags::VERSION
                | ConnectFlags::AT
                | ConnectFlags::FULL20
                | ConnectFlags::BULK_MBITS
                | ConnectFlags::CANCELSET
                | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::REP_MBITS,
            ..ConnectData::default()
        }
    }

    fn begin(&mut self, _: Beginning, rpc: &mut Rpc<'_, '_>) {
        self.locks = lock_server::begun(Values::Objects, false, rpc);
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        if LockServer::serves(served.opcode) {
            return self.serve_lock(&served, cx);
        }
        let logs =
            [Opcode::LLOG_ORIGIN_HANDLE_CREATE, Opcode::LLOG_READ_HEADER, Opcode::LLOG_NEXT_BLOCK];
        if !logs.contains(&served.opcode) {
            return cx.rpc.refuse(served.id, Errno::EOPNOTSUPP);
        }
        let msg = served.msg().map_err(|_| Errno::EPROTO);
        match msg.and_then(|msg| self.read(served.opcode, &msg)) {
            Ok(buffers) => cx.rpc.reply(served.id, Answer { buffers, ..Answer::default() }),
            Err(errno) => cx.rpc.refuse(served.id, errno),
        }
    }

    fn bulk_done(&mut self, _: ServedId, _: Result<(), Errno>, _: &mut Cx<'_, '_, '_>) -> bool {
        false
    }

    fn stored(&mut self, _: u64, _: Result<Outcome, StoreError>, _: &mut Cx<'_, '_, '_>) {}

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.locks.left(export, cx.rpc);
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        lock_server::report(&mut self.locks, fact, cx.rpc)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.locks.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.locks.handle_timeout(cx.rpc, |_, _, _| false);
    }

    fn locks(&self) -> Option<&LockServer> {
        Some(&self.locks)
    }
}
