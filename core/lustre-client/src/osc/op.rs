//! Operations of programs on objects.

use ldlm::Mode;
use ldlm::client::{Ask, HoldId, LockId, Share};
use lnet_types::{Errno, Instant, IoVec, iovec_len};
use lustre_wire::fid::ObjectId;
use lustre_wire::ldlm::{LockFlags, Policy, ResourceName};
use ptlrpc::{Call, CallError, Reply};

use super::dirty::Piece;
use super::locks::{Key, Object, Then};
use super::turns::Urgency;
use super::writers::Writer;
use super::{Calling, Cx, FilePart, OBJECTS_MAX, OPS_MAX, OpId, Osc, OscError, OscEvent, wire};

/// Behind the last byte that an object may have.
const OBJECT_END: u64 = 1 << 56;
/// Locks begin and end on borders of so many bytes, as those of all clients do.
const PAGE: u64 = 4096;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read,
    Size,
    Punch,
    Fsync,
    Close,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its lock.
    Lock,
    /// Room for more dirty data.
    Room,
    /// Bytes of its own that are on their way to the target.
    Through(u64),
    /// Data that is to be written back first.
    Flush,
    /// So many data requests.
    Data(usize),
    /// The size of the object.
    Size,
    /// One call.
    Call,
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) key: Key,
    pub(super) id: ObjectId,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Of a write that has become dirty data: nothing.
    pub(super) memory: IoVec,
    pub(super) mtime: Option<i64>,
    /// Who writes, or wants to hear of losses.
    writer: Writer,
    /// When it asked for the lock under which it works.
    asked: Option<Instant>,
    /// Of that lock, and of the query for the size.
    hold: Option<HoldId>,
    query: Option<HoldId>,
    /// Behind the last byte that this client had written when it asked for the size, and that its target may
    /// not have had.
    written: u64,
    pub(super) stage: Stage,
    /// The first thing that went wrong.
    pub(super) error: Option<Errno>,
}

impl Op {
    pub(super) const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// A lock on whole pages.
fn pages(id: ObjectId, mode: Mode, start: u64, end: u64) -> Ask {
    let (start, end) = (start & !(PAGE - 1), (end - 1) | (PAGE - 1));
    let policy = Policy::Extent { start, end, gid: 0 };
    let writes = mode == Mode::Pw;
    Ask {
        share: Share::Client,
        writes_back: writes,
        glimpses: writes,
        ..Ask::new(ResourceName::of_object(id), mode, policy)
    }
}

/// The size of an object, from those that know it (L-35).
fn query(id: ObjectId) -> Ask {
    let policy = Policy::Extent { start: 0, end: u64::MAX, gid: 0 };
    Ask {
        flags: LockFlags::HAS_INTENT,
        share: Share::Client,
        ..Ask::new(ResourceName::of_object(id), Mode::Pr, policy)
    }
}

impl Osc {
    /// Writes bytes from `offset` on. It ends when the bytes are cached under a lock, or, where no space
    /// is promised for them, when the target has them. `memory` is not to be changed until
    /// [`OscEvent::Free`] gives it back. `mtime`: seconds since 1970.
    ///
    /// # Errors
    /// The range can't be, or there are too many operations; the memory was not taken.
    pub fn write(
        &mut self,
        id: ObjectId,
        offset: u64,
        memory: IoVec,
        mtime: Option<i64>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        self.ranged(Kind::Write, id, offset, memory, mtime, cx)
    }

    /// The same to an object that is part of a file, by an open file.
    ///
    /// # Errors
    /// As [`Osc::write`].
    pub fn write_part(
        &mut self,
        writer: Writer,
        (id, part): (ObjectId, FilePart),
        offset: u64,
        memory: IoVec,
        mtime: Option<i64>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        let op = self.write(id, offset, memory, mtime, cx)?;
        // No byte is sent before the lock is there, which comes later.
        let key = self.ops.get(&op).map(|op| op.key);
        if let Some(object) = key.and_then(|key| self.objects.get_mut(&key)) {
            object.part = Some(part);
        }
        if let Some(op) = self.ops.get_mut(&op) {
            op.writer = writer;
        }
        Ok(op)
    }

    /// Reads bytes from `offset` on, as many as `memory` has. Fewer come back where the object ends.
    ///
    /// # Errors
    /// As [`Osc::write`].
    pub fn read(
        &mut self,
        id: ObjectId,
        offset: u64,
        memory: IoVec,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        self.ranged(Kind::Read, id, offset, memory, None, cx)
    }

    fn ranged(
        &mut self,
        kind: Kind,
        id: ObjectId,
        offset: u64,
        memory: IoVec,
        mtime: Option<i64>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        let len = iovec_len(&memory);
        let end = offset.checked_add(len).filter(|end| len > 0 && *end <= OBJECT_END);
        let end = end.ok_or(OscError::Range { offset, len })?;
        self.room_for(id)?;
        let mode = if kind == Kind::Write { Mode::Pw } else { Mode::Pr };
        let hold = cx.locks.enqueue(self.import, &pages(id, mode, offset, end), cx.rpc)?;
        let op = self.begin(kind, id, Stage::Lock);
        self.holds.insert(hold, op);
        if let Some(op) = self.ops.get_mut(&op) {
            (op.offset, op.len, op.memory) = (offset, len, memory);
            (op.mtime, op.hold, op.asked) = (mtime, Some(hold), Some(cx.rpc.now()));
        }
        Ok(op)
    }

    /// Asks for the size of an object, which clients with dirty data know better than the target.
    ///
    /// # Errors
    /// There are too many operations or locks.
    pub fn size(&mut self, id: ObjectId, cx: &mut Cx<'_, '_, '_>) -> Result<OpId, OscError> {
        self.room_for(id)?;
        let hold = cx.locks.enqueue(self.import, &query(id), cx.rpc)?;
        let op = self.begin(Kind::Size, id, Stage::Size);
        self.asks_size(op, hold);
        Ok(op)
    }

    /// Cuts an object off at `size`, or extends it with zeros. The target takes the lock (L-80).
    ///
    /// # Errors
    /// As [`Osc::write`].
    pub fn punch(
        &mut self,
        id: ObjectId,
        size: u64,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        if size > OBJECT_END {
            return Err(OscError::Range { offset: size, len: 0 });
        }
        self.room_for(id)?;
        let call = cx.rpc.call(self.import, wire::punch(id, size))?;
        let op = self.begin(Kind::Punch, id, Stage::Call);
        self.calls.insert(call, Calling::Op(op));
        Ok(op)
    }

    /// Waits until what was written to an object before survives the target. Fails, once, if data was
    /// lost since the last time.
    ///
    /// # Errors
    /// There are too many operations.
    pub fn fsync(&mut self, id: ObjectId, cx: &mut Cx<'_, '_, '_>) -> Result<OpId, OscError> {
        self.fsync_by(Writer::Program, id, cx)
    }

    /// The same of an open file.
    ///
    /// # Errors
    /// As [`Osc::fsync`].
    pub fn fsync_by(
        &mut self,
        writer: Writer,
        id: ObjectId,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        self.flushing(Kind::Fsync, writer, id, cx)
    }

    /// The program is done with an object: what it has written survives the target then. Fails, once, if
    /// data was lost since the last time.
    ///
    /// # Errors
    /// As [`Osc::fsync`].
    pub fn close(&mut self, id: ObjectId, cx: &mut Cx<'_, '_, '_>) -> Result<OpId, OscError> {
        self.close_by(Writer::Program, id, cx)
    }

    /// The same of an open file.
    ///
    /// # Errors
    /// As [`Osc::fsync`].
    pub fn close_by(
        &mut self,
        writer: Writer,
        id: ObjectId,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        self.flushing(Kind::Close, writer, id, cx)
    }

    /// An fsync or a close has said that data was lost, and its program has not heard it: the next one says it.
    pub fn unheard(&mut self, writer: Writer, id: ObjectId, errno: Errno) {
        let object = self.objects.entry(Self::key(id)).or_insert_with(|| Object::new(id));
        object.writers.unheard(writer, errno);
    }

    fn flushing(
        &mut self,
        kind: Kind,
        writer: Writer,
        id: ObjectId,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<OpId, OscError> {
        self.room_for(id)?;
        let op = self.begin(kind, id, Stage::Flush);
        if let Some(op) = self.ops.get_mut(&op) {
            op.writer = writer;
        }
        if let Some(object) = self.objects.get_mut(&Self::key(id)) {
            object.settling += 1;
        }
        self.wait_for(Self::key(id), 0..u64::MAX, Then::Go(op));
        self.check(Self::key(id), cx);
        self.work(cx);
        Ok(op)
    }

    fn room_for(&self, id: ObjectId) -> Result<(), OscError> {
        if self.ops.len() >= OPS_MAX {
            return Err(OscError::TooMany { what: "operations", limit: OPS_MAX });
        }
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(&Self::key(id)) {
            return Err(OscError::TooMany { what: "objects", limit: OBJECTS_MAX });
        }
        Ok(())
    }

    fn begin(&mut self, kind: Kind, id: ObjectId, stage: Stage) -> OpId {
        self.last_op += 1;
        let (op, key) = (OpId(self.last_op), Self::key(id));
        self.objects.entry(key).or_insert_with(|| Object::new(id)).ops += 1;
        self.ops.insert(
            op,
            Op {
                key,
                id,
                kind,
                offset: 0,
                len: 0,
                memory: IoVec::new(),
                mtime: None,
                writer: Writer::Program,
                asked: None,
                hold: None,
                query: None,
                written: 0,
                stage,
                error: None,
            },
        );
        op
    }

    fn done(&mut self, id: OpId, result: Result<u64, Errno>, cx: &mut Cx<'_, '_, '_>) {
        let Some(op) = self.ops.remove(&id) else { return };
        for hold in [op.hold, op.query].into_iter().flatten() {
            self.holds.remove(&hold);
            cx.locks.release(self.import, hold, true, cx.rpc);
        }
        if op.kind == Kind::Write && !op.memory.is_empty() {
            // Nothing of it was taken.
            self.events.push_back(OscEvent::Free(op.memory));
        }
        if let Some(object) = self.objects.get_mut(&op.key) {
            object.ops -= 1;
            object.settling -= usize::from(matches!(op.kind, Kind::Fsync | Kind::Close));
        }
        self.events.push_back(OscEvent::Done { op: id, result });
        self.tidy(op.key);
    }

    /// The lock of an operation is granted.
    pub(super) fn locked(&mut self, id: OpId, lock: LockId, mode: Mode, cx: &mut Cx<'_, '_, '_>) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        // One that is cached is there at once.
        let waited = op.asked.take().map(|since| cx.rpc.now().saturating_since(since));
        if let Some(waited) = waited.filter(|waited| !waited.is_zero()) {
            self.waits.add(waited);
        }
        match (op.stage, op.kind) {
            (Stage::Lock, Kind::Write) if mode == Mode::Pw => {
                op.stage = Stage::Room;
                self.crowd.push_back(id);
            }
            (Stage::Lock, Kind::Read) => {
                op.stage = Stage::Flush;
                let (key, range) = (op.key, op.offset..op.end());
                self.wait_for(key, range, Then::Go(id));
                self.check(key, cx);
            }
            // No other client changes the object now.
            (Stage::Size, _) => {
                let known = self.objects.get(&op.key).filter(|object| object.size_known);
                let whole = self.locks.get(&lock).is_some_and(|held| held.last == u64::MAX);
                match known.filter(|_| whole).map(|object| object.size) {
                    Some(size) => self.sized(id, Ok(size), cx),
                    // The grant of a lock that was waited for while the target crashed says nothing.
                    None => {
                        let call = wire::attributes(op.id);
                        self.call(id, call, cx);
                    }
                }
            }
            // A mode that was not asked for.
            _ => self.done(id, Err(Errno::EPROTO), cx),
        }
    }

    /// The lock of an operation is refused.
    pub(super) fn refused(&mut self, id: OpId, errno: Errno, cx: &mut Cx<'_, '_, '_>) {
        self.done(id, Err(errno), cx);
    }

    /// The lock under which an operation works is lost. Calls under way end by themselves.
    pub(super) fn unlocked(&mut self, id: OpId, cx: &mut Cx<'_, '_, '_>) {
        let Some(op) = self.ops.get(&id) else { return };
        if matches!(op.stage, Stage::Room | Stage::Flush) {
            self.crowd.retain(|waiting| *waiting != id);
            let key = op.key;
            if let Some(object) = self.objects.get_mut(&key) {
                object.waits.retain(|(_, then)| *then != Then::Go(id));
            }
            self.done(id, Err(Errno::EIO), cx);
        }
    }

    /// Lets writes that have their lock become dirty data, as far as there is room.
    pub(super) fn admit(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let price = self.price(cx);
        while let Some(id) = self.crowd.front().copied() {
            let Some(op) = self.ops.get_mut(&id) else {
                self.crowd.pop_front();
                continue;
            };
            let (len, key) = (op.len, op.key);
            if self.dirty_bytes > 0 && self.dirty_bytes.saturating_add(len) > self.config.dirty_max
            {
                self.urge_all();
                return;
            }
            self.crowd.pop_front();
            let Some(object) = self.objects.get_mut(&key) else { continue };
            let (start, end, now) = (op.offset, op.end(), cx.rpc.now());
            let space = price.of_range(start, len);
            let over = object.part.is_some_and(|part| self.quota.is_over(part.payer));
            let granted = !over && self.grant.reserve(space);
            let buffer = self.buffers.insert(core::mem::take(&mut op.memory));
            op.stage = Stage::Through(if granted { 0 } else { len });
            let waits = (!granted).then_some(id);
            let piece = Piece {
                len,
                buffer,
                at: 0,
                since: now,
                granted,
                space,
                op: waits,
                urgent: !granted,
            };
            object.writers.add(op.writer);
            object.mtime = object.mtime.max(op.mtime);
            object.size = object.size.max(end);
            let old = object.dirty.insert(start, piece);
            self.dirty_bytes += len;
            if object.dirty.is_urgent(&(start..end)) {
                self.urgent.insert(key, object.urgency());
            }
            self.age_due.get_or_insert(now + self.config.max_age);
            for (_, piece) in old {
                if piece.granted {
                    self.grant.give_up(piece.space);
                }
                self.settled(key, &piece, Ok(()), cx);
            }
            if granted {
                self.done(id, Ok(len), cx);
            }
            if self.dirty_bytes > self.config.dirty_max / 2 {
                self.urge_all();
            }
        }
    }

    /// There is much dirty data: it goes.
    fn urge_all(&mut self) {
        for (key, object) in &mut self.objects {
            if object.dirty.urge(&(0..u64::MAX), |_| true) {
                self.urgent.insert(*key, Urgency::Kept);
            }
        }
    }

    /// Bytes of a write that is written through are settled.
    pub(super) fn through(
        &mut self,
        id: OpId,
        len: u64,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let Stage::Through(left) = &mut op.stage else { return };
        *left = left.saturating_sub(len);
        let all = *left == 0;
        if let Err(errno) = result {
            op.error.get_or_insert(errno);
        }
        if all {
            let result = op.error.map_or(Ok(op.len), Err);
            self.done(id, result, cx);
        }
    }

    /// What an operation has waited for is written back.
    pub(super) fn written_back(&mut self, id: OpId, cx: &mut Cx<'_, '_, '_>) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        match op.kind {
            Kind::Read => self.fetch(id, cx),
            Kind::Close if !self.uncommitted.is_of(op.key) => {
                let object = self.objects.get_mut(&op.key);
                let writer = op.writer;
                let error = object.and_then(|object| object.writers.closed(writer));
                self.done(id, error.map_or(Ok(0), Err), cx);
            }
            Kind::Fsync | Kind::Close => {
                let call = wire::sync(op.id);
                self.call(id, call, cx);
            }
            Kind::Write | Kind::Size | Kind::Punch => {}
        }
    }

    /// An operation is one call from now on.
    fn call(&mut self, id: OpId, call: Call, cx: &mut Cx<'_, '_, '_>) {
        if let Some(op) = self.ops.get_mut(&id) {
            op.stage = Stage::Call;
        }
        match cx.rpc.call(self.import, call) {
            Ok(call) => {
                self.calls.insert(call, Calling::Op(id));
            }
            Err(e) => self.called(id, Err(&e), cx),
        }
    }

    /// The one call of an operation has ended.
    pub(super) fn called(
        &mut self,
        id: OpId,
        result: Result<&Reply, &CallError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let own = self.own_end(id);
        let Some(op) = self.ops.get(&id) else { return };
        let reply = result.map_err(|e| e.errno());
        let object = self.objects.get_mut(&op.key);
        match (op.kind, object) {
            (Kind::Read | Kind::Size, Some(object)) => {
                let said = reply.and_then(|reply| wire::Said::of(reply).ok_or(Errno::EPROTO));
                let size = said.map(|said| said.body.size.max(own));
                if let Ok(size) = size {
                    (object.size, object.size_known) = (size, true);
                }
                self.sized(id, size, cx);
            }
            (Kind::Fsync, Some(object)) => {
                let lost = object.writers.fsynced(op.writer).map_or(Ok(()), Err);
                self.done(id, lost.and_then(|()| reply.map(|_| 0)), cx);
            }
            (Kind::Close, Some(object)) => {
                let lost = object.writers.closed(op.writer).map_or(Ok(()), Err);
                self.done(id, lost.and_then(|()| reply.map(|_| 0)), cx);
            }
            _ => self.done(id, reply.map(|_| 0), cx),
        }
    }

    /// All data of a read is here. Where the object ends there may be less of it than was asked for.
    pub(super) fn fetched(&mut self, id: OpId, cx: &mut Cx<'_, '_, '_>) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if let Some(errno) = op.error {
            return self.done(id, Err(errno), cx);
        }
        let (len, end) = (op.len, op.end());
        if self.objects.get(&op.key).is_some_and(|object| end <= object.size) {
            return self.done(id, Ok(len), cx);
        }
        op.stage = Stage::Size;
        match cx.locks.enqueue(self.import, &query(op.id), cx.rpc) {
            Ok(hold) => self.asks_size(id, hold),
            Err(e) => self.done(id, Err(e.errno()), cx),
        }
    }

    /// An operation asks for the size of its object.
    fn asks_size(&mut self, id: OpId, hold: HoldId) {
        self.holds.insert(hold, id);
        let own = self.own_end(id);
        if let Some(op) = self.ops.get_mut(&id) {
            (op.query, op.written) = (Some(hold), own);
        }
    }

    /// Behind what this client has written, or was writing back since the operation asked for the size: it may
    /// have come to the target after that had said its size.
    fn own_end(&self, id: OpId) -> u64 {
        self.ops.get(&id).map_or(0, |op| self.written(op.key).max(op.written))
    }

    /// The size of an object is known, as its target knows it.
    pub(super) fn sized(&mut self, id: OpId, size: Result<u64, Errno>, cx: &mut Cx<'_, '_, '_>) {
        let own = self.own_end(id);
        let Some(op) = self.ops.get(&id) else { return };
        let size = size.map(|size| size.max(own));
        let result = match op.kind {
            Kind::Read => size.map(|size| size.saturating_sub(op.offset).min(op.len)),
            _ => size,
        };
        self.done(id, result, cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l35_the_size_of_an_object_is_asked_for_by_a_lock_request_alone() {
        let ask = query(ObjectId::old(7));
        assert_eq!((ask.flags, ask.mode), (LockFlags::HAS_INTENT, Mode::Pr));
        assert!(ask.beside.is_empty(), "recorded clients send no intent");
    }
}
