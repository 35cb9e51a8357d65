//! What an object target asks of the lock manager: whether a client has a lock over the data that it
//! touches (L-49), locks that the target takes itself (L-50), and the attributes that go with locks
//! (L-18). The locks themselves are `ldlm`'s.

use ldlm::server::{LocalAsk, LockServer};
use ldlm::space::{Io, LockView, Touched, Value};
use ldlm::{Cookie, Mode};
use lnet_types::Errno;
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{LockFlags, LockKind, LockRequest, Lvb};
use lustre_wire::ost::{Obdo, ObdoFlags};
use lustre_wire::{BodyFlags, ConnectFlags, Msg, Opcode, Portal};
use ptlrpc::{ExportId, Served, ServedId, Waiting};

use super::name::Name;
use super::object::Object;
use super::request::{self, Ask, Request};
use super::{Ost, Stage, Work};
use crate::journal::Cx;
use crate::lock_server;

/// What a request needs of the locks of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// The client has a lock over its data.
    Held(Io),
    /// The target takes one for as long as the request lasts.
    Taken(LocalAsk),
}

impl Request {
    /// What was done once, before a crash, is done again without a look at locks (L-49).
    fn need(&self, replayed: bool) -> Need {
        let resource = self.name.resource();
        let taken = |mode, start, end| {
            let (discard, removes) = (false, false);
            LocalAsk { resource, mode, start, end, discard, removes }
        };
        let held = |start, end, read| {
            let named = self.body.valid.contains(Valid::HANDLE) && self.body.handle != 0;
            let lock = named.then_some(Cookie(self.body.handle));
            Io { resource, start, end, read, lock }
        };
        match &self.ask {
            _ if replayed => Need::Nothing,
            Ask::Read(ranges) | Ask::Write(ranges, _) => {
                let read = matches!(self.ask, Ask::Read(_));
                let (start, behind) = ranges.span();
                let end = behind.saturating_sub(1);
                match ranges.server_locks() {
                    true => Need::Taken(taken(if read { Mode::Pr } else { Mode::Pw }, start, end)),
                    false => Need::Held(held(start, end, read)),
                }
            }
            Ask::Punch if self.has(ObdoFlags::SRVLOCK) => {
                let start = self.body.size;
                let discard = start == 0;
                Need::Taken(LocalAsk { discard, ..taken(Mode::Pw, start, u64::MAX) })
            }
            Ask::Punch => Need::Held(held(self.body.size, u64::MAX, false)),
            Ask::GetAttr if self.has(ObdoFlags::SRVLOCK) => {
                let mode = if self.has(ObdoFlags::FLUSH) { Mode::Pw } else { Mode::Pr };
                Need::Taken(taken(mode, 0, u64::MAX))
            }
            // Many at a time are those that no client has seen.
            Ask::Destroy if !(self.body.valid.contains(Valid::OBJCOUNT) && self.body.misc > 1) => {
                let (discard, removes) = (true, true);
                Need::Taken(LocalAsk { discard, removes, ..taken(Mode::Pw, 0, u64::MAX) })
            }
            _ => Need::Nothing,
        }
    }

    /// Whether it moves data under a lock of its client.
    fn is_under(&self, replayed: bool, lock: &LockView) -> bool {
        let Need::Held(io) = self.need(replayed) else { return false };
        io.is_under(lock)
    }
}

/// A request that waits for a slot, with whether it is executed again.
fn waiting(waiting: &Waiting<'_>) -> Option<(Request, bool)> {
    let msg = Msg::parse(waiting.message).ok()?;
    // Only what comes to this portal moves data.
    let request = request::read(waiting.body.opcode, &msg, Portal::OST_IO.0).ok()?;
    Some((request, waiting.body.flags.contains(BodyFlags::REPLAY)))
}

/// Whether the data of a request that waits for a slot move under a lock of its client.
pub(super) fn is_under(one: &Waiting<'_>, lock: &LockView) -> bool {
    waiting(one).is_some_and(|(request, replayed)| request.is_under(replayed, lock))
}

/// Whether a client is a metadata target, which cuts objects without a lock (L-49).
fn is_mdt(export: ExportId, cx: &Cx<'_, '_, '_>) -> bool {
    cx.rpc.granted(export).is_some_and(|granted| granted.flags.contains(ConnectFlags::MDS))
}

/// The attributes of an object as they go with its locks.
fn value(object: &Object) -> Value {
    Value::Object(Lvb {
        size: object.size,
        mtime: object.mtime,
        atime: object.atime,
        ctime: object.ctime,
        blocks: object.blocks(),
        ..Lvb::default()
    })
}

impl Ost {
    /// A request for locks. The record of its object is read first, unless its attributes are known.
    pub(super) fn serve_lock(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        let id = served.id;
        let Some(locks) = &mut self.locks else { return cx.rpc.refuse(id, Errno::EOPNOTSUPP) };
        let asked = match served.opcode {
            Opcode::LDLM_ENQUEUE => served.msg().and_then(|msg| LockRequest::of(&msg, 1)).ok(),
            _ => None,
        };
        // What is not well formed is refused there.
        let Some(asked) = asked else { return locks.serve(&served, Ok(None), cx.rpc) };
        let Some(name) = Name::of_resource(&asked.desc.resource) else {
            return cx.rpc.refuse(id, Errno::EPROTO);
        };
        // The first lock says which kind all others have (L-2).
        let known = [LockKind::PLAIN, LockKind::FLOCK, LockKind::IBITS];
        if known.contains(&asked.desc.kind) {
            return cx.rpc.refuse(id, Errno::EINVAL);
        }
        let replay = asked.flags.contains(LockFlags::REPLAY);
        let known = locks.space().value(&asked.desc.resource).is_some();
        // Behind the end of a recovery it is not granted before the locks that were there.
        if replay || known && !self.recovering {
            return locks.serve(&served, Ok(None), cx.rpc);
        }
        let request = Request { body: Obdo::default(), name, ask: Ask::Lock };
        self.work.insert(id, Work::new(served, request));
        self.enter(id, cx);
    }

    /// The record of the object of an enqueue is there.
    pub(super) fn enqueue(
        &mut self,
        id: ServedId,
        object: Option<Object>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(work) = self.work.remove(&id) else { return };
        let Some(locks) = &mut self.locks else { return };
        let value = object.map(|object| Some(value(&object))).ok_or(Errno::ENOENT);
        locks.serve(&work.served, value, cx.rpc);
    }

    /// Lets a request begin that has the locks that it needs; others wait, or are refused.
    pub(super) fn guard(&mut self, served: Served, request: Request, cx: &mut Cx<'_, '_, '_>) {
        let (id, export) = (served.id, served.export);
        let mut work = Work::new(served, request);
        if let Some(locks) = &mut self.locks {
            if matches!(work.request.ask, Ask::Destroy)
                && let Err(errno) = locks.take_back_beside(&work.served, 2, cx.rpc)
            {
                return cx.rpc.refuse(id, errno);
            }
            match work.need() {
                Need::Nothing => {}
                Need::Held(io) => {
                    let lost = locks.touch(id, export, &io, cx.rpc) == Touched::NoLock;
                    if lost && !(matches!(work.request.ask, Ask::Punch) && is_mdt(export, cx)) {
                        return cx.rpc.refuse(id, Errno::ESTALE);
                    }
                }
                Need::Taken(ask) => {
                    let (lock, granted) = match locks.lock_locally(&ask, cx.rpc) {
                        Ok(taken) => taken,
                        Err(errno) => return cx.rpc.refuse(id, errno),
                    };
                    work.lock = Some(lock);
                    if !granted {
                        // A copy that its client sends meanwhile is folded into it (P-110), so that
                        // it is never too late to go on.
                        work.stage = Stage::Lock;
                        self.locked_out.insert(lock, id);
                        self.work.insert(id, work);
                        return;
                    }
                }
            }
        }
        self.work.insert(id, work);
        self.run(id, cx);
    }

    /// Begins what has waited for locks that are granted now.
    pub(super) fn unlocked(&mut self, cx: &mut Cx<'_, '_, '_>) {
        while let Some(lock) = self.locks.as_mut().and_then(LockServer::poll_local) {
            if let Some(id) = self.locked_out.remove(&lock) {
                self.run(id, cx);
            }
        }
    }

    /// A request is over, as far as data and records go: its lock goes, or that of its client has more
    /// time (L-49).
    pub(super) fn let_go(&mut self, work: &Work, cx: &mut Cx<'_, '_, '_>) {
        let Some(locks) = &mut self.locks else { return };
        if let Some(lock) = work.lock {
            self.locked_out.remove(&lock);
            locks.unlock_locally(lock, cx.rpc);
        } else if let Need::Held(io) = work.need() {
            locks.touch(work.served.id, work.served.export, &io, cx.rpc);
        }
    }

    /// An object has changed: locks that are granted from now on say so.
    pub(super) fn show_locks(&mut self, name: Name, object: &Object) {
        if let Some(locks) = &mut self.locks {
            locks.set_value(&name.resource(), value(object));
        }
    }

    /// A client is gone: what it asked for and waits for a lock is void.
    pub(super) fn drop_waiting(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        let void = self
            .work
            .iter()
            .filter(|(_, work)| work.served.export == export && matches!(work.stage, Stage::Lock));
        let void: Vec<ServedId> = void.map(|(id, _)| *id).collect();
        for id in void {
            self.end(id, cx);
            cx.rpc.decline(id);
        }
    }

    /// A request finds no slot: if others wait for what it does, it goes first (P-114). `false` if it
    /// is none of this target.
    pub(super) fn hear_waiting(
        &mut self,
        served: ServedId,
        export: ExportId,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let Some(locks) = &mut self.locks else { return false };
        let all = cx.rpc.waiting(export);
        let found = all.iter().find(|one| one.id == served).and_then(waiting);
        let Some((request, replayed)) = found else { return false };
        let Need::Held(io) = request.need(replayed) else { return false };
        lock_server::raise(locks, (served, export), &io, cx.rpc)
    }

    /// Ends the callback timers whose time has come, but for clients whose data move under the lock
    /// (L-52).
    pub(super) fn expire(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let Self { locks, work, .. } = self;
        let Some(locks) = locks else { return };
        locks.handle_timeout(cx.rpc, |rpc, export, lock| {
            let waits = rpc.waiting(export).iter().any(|one| is_under(one, lock));
            waits || work.values().any(|work| work.served.export == export && work.is_under(lock))
        });
    }
}

impl Work {
    fn need(&self) -> Need {
        self.request.need(self.served.replay.is_some())
    }

    fn is_under(&self, lock: &LockView) -> bool {
        self.request.is_under(self.served.replay.is_some(), lock)
    }
}
