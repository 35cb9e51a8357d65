//! Data of files that are on the metadata target: reads, writes, cuts, commits (C-220 … C-224, L-87 … L-92).
//! The locks of data are those of the bit DOM of their file (C-221).
//!
//! ```text
//!  write   [lock ─►] [bulk ─►] [checksum ─►] commit ─► reply
//!  read    [lock ─►] load ─► [checksum ─►] [bulk ─►] reply
//! ```
//!
//! What a file has is in memory with the file, so that a request is decided when its data are here. No
//! space is promised: a client writes through (C-212).

use ldlm::space::{LockView, Value};
use ldlm::{Cookie, Mode, server::LockServer};
use lnet_types::{Errno, IoVec, iovec_len, iovec_slice};
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{InodeBits, LockDesc, LockKind, LockRequest, Lvb, ResourceName};
use lustre_wire::ost::{NiobufFlags, Obdo, ObdoFlags};
use lustre_wire::{Buffers, Layout, Opcode, Portal};
use ptlrpc::{Answer, Direction, ExportId, Served, ServedId};

use super::Mdt;
use super::guard::LockedOut;
use super::held::held;
use super::inode::{Id, Inode};
use super::part::Part;
use super::tree::Edit;
use crate::journal::{Cx, When};
use crate::ost::{DataAsk, DataRequest, PAGE, Refusal, read_at};
use crate::store::{Change, Outcome, Source, StoreError, StoreOrder};

/// What a request for data waits for.
#[derive(Debug)]
enum Step {
    /// A lock of the target.
    Lock,
    /// Bulk data that move.
    Bulk,
    /// The sum of its data.
    Sum,
    /// So many pieces of data, and why one could not be read.
    Load(usize, Option<StoreError>),
    /// A commit.
    Sync,
}

/// A request for data that is under way.
#[derive(Debug)]
pub(super) struct DataWork {
    served: Served,
    request: DataRequest,
    id: Id,
    step: Step,
    memory: IoVec,
    sum: Option<u32>,
    lock: Option<Cookie>,
}

/// Whether a request is one for data.
pub(super) const fn is_data(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::OST_READ | Opcode::OST_WRITE | Opcode::OST_PUNCH | Opcode::OST_SYNC)
}

/// The lock that the target takes for a request, if it is to take one (C-205, C-210).
pub(super) fn wanted_lock(request: &DataRequest) -> Option<Mode> {
    match &request.ask {
        DataAsk::Read(ranges) => ranges.server_locks().then_some(Mode::Pr),
        DataAsk::Write(ranges, _) => ranges.server_locks().then_some(Mode::Pw),
        DataAsk::Punch => request.has(ObdoFlags::SRVLOCK).then_some(Mode::Pw),
        _ => None,
    }
}

/// Size and times of the data of a file, as they go with its locks.
fn value(inode: &Inode) -> Value {
    let part = inode.data.as_deref();
    Value::Object(Lvb {
        size: part.map_or(0, |part| part.size),
        blocks: part.map_or(0, Part::blocks),
        mtime: inode.mtime,
        atime: inode.atime,
        ctime: inode.ctime,
        ..Lvb::default()
    })
}

/// The file of a resource; `None` for one that is no file's (L-7).
fn file_of(resource: &ResourceName) -> Option<Id> {
    let [seq, low, 0, 0] = resource.words else { return None };
    Some(Id { seq, oid: u32::try_from(low).ok()? })
}

/// Takes the times that a request names. An older change of data says nothing.
fn take_times(inode: &mut Inode, from: &Obdo) {
    let has = |bit| from.valid.contains(bit);
    let later = !has(Valid::CTIME) || from.ctime >= inode.ctime;
    if has(Valid::MTIME) && later {
        inode.mtime = from.mtime;
    }
    if has(Valid::CTIME) {
        inode.ctime = inode.ctime.max(from.ctime);
    }
    if has(Valid::ATIME) {
        inode.atime = inode.atime.max(from.atime);
    }
}

fn obdo(body: &Obdo) -> Answer {
    Answer { buffers: Buffers::new().layout(body), ..Answer::default() }
}

/// The attributes of a file in the reply to a write.
fn written(inode: &Inode, asked: &Obdo) -> Obdo {
    let part = inode.data.as_deref();
    let mut body = *asked;
    body.size = part.map_or(0, |part| part.size);
    body.blocks = part.map_or(0, Part::blocks);
    (body.mtime, body.atime, body.ctime) = (inode.mtime, inode.atime, inode.ctime);
    (body.mode, body.uid, body.gid) = (inode.mode, inode.uid, inode.gid);
    body.valid.remove(Valid::ATIME | Valid::MTIME | Valid::GRANT);
    body.valid |= Valid::SIZE | Valid::BLOCKS | Valid::FLAGS;
    body.valid |= Valid::USRQUOTA | Valid::GRPQUOTA | Valid::PRJQUOTA;
    body.flags = asked.flags & ObdoFlags::SHORT_IO;
    body.grant = 0;
    body
}

impl DataWork {
    /// Whether it moves data under this lock of a client.
    pub(super) fn is_under(&self, export: ExportId, lock: &LockView) -> bool {
        let io = held(&self.request, self.id, self.served.replay.is_some());
        self.served.export == export && io.is_some_and(|io| io.is_under(lock))
    }

    fn show_sum(&self, body: &mut Obdo) {
        if let (Some(sum), Some(kind)) = (self.sum, self.request.checksum()) {
            body.nlink = sum;
            body.flags = body.flags.with_checksum(kind.number());
            body.valid |= Valid::CKSUM | Valid::FLAGS;
        }
    }
}

impl Mdt {
    /// The first lock says which kind all others of its resource have (L-2): on files here they are those of
    /// inode bits, and those of files' users have resources of their own.
    ///
    /// # Errors
    /// `EINVAL` for a lock of another kind.
    pub(super) fn check_kind(served: &Served) -> Result<(), Errno> {
        let asked = match served.opcode {
            Opcode::LDLM_ENQUEUE => served.msg().and_then(|msg| LockRequest::of(&msg, 1)).ok(),
            _ => None,
        };
        // What is not well formed, or of no kind, is refused with the lock.
        let Some(LockDesc { kind, resource, .. }) = asked.map(|asked| asked.desc) else {
            return Ok(());
        };
        let [.., own] = resource.words;
        match kind {
            LockKind::PLAIN | LockKind::EXTENT => Err(Errno::EINVAL),
            LockKind::FLOCK if own == 0 => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// The size of data that goes with a lock for them; `None` for other locks.
    pub(super) fn lock_value(&self, served: &Served) -> Result<Option<Value>, Errno> {
        let Some(resource) = LockServer::resource_of(served) else { return Ok(None) };
        let Some(id) = file_of(&resource) else { return Ok(None) };
        let inode = self.tree.inode(id).ok_or(Errno::ENOENT)?;
        Ok((inode.end_here() > 0).then(|| value(inode)))
    }

    /// A file with data here has changed: locks that are granted from now on say so.
    pub(super) fn show_locks(&mut self, id: Id) {
        if let Some(inode) = self.tree.inode(id)
            && inode.end_here() > 0
        {
            let value = value(inode);
            self.locks.set_value(&ResourceName::of(id.fid()), value);
        }
    }

    /// Locks that were replayed bring no sizes: those that wait are granted with them (L-25).
    pub(super) fn show_awaited(&mut self) {
        let files: Vec<Id> =
            self.locks.space().without_value().filter_map(|name| file_of(&name)).collect();
        files.into_iter().for_each(|id| self.show_locks(id));
    }

    /// The file of a request for data, and where its part here ends.
    fn with_data(&self, id: Id) -> Result<(&Inode, u64), Errno> {
        let inode = self.tree.inode(id).ok_or(Errno::ENOENT)?;
        match inode.end_here() {
            0 => Err(Errno::EINVAL),
            end => Ok((inode, end)),
        }
    }

    /// A request for data.
    pub(super) fn serve_data(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        let id = served.id;
        let io = cx.rpc.portal(served.service) == Some(Portal::MDS_IO.0);
        let read = served.msg().map_err(|_| Refusal::Errno(Errno::EPROTO));
        let request = match read.and_then(|msg| read_at(served.opcode, &msg, io)) {
            Ok(request) => request,
            Err(Refusal::Errno(errno)) => return cx.rpc.refuse(id, errno),
            Err(Refusal::Drop) => return cx.rpc.decline(id),
        };
        let changes = matches!(request.ask, DataAsk::Write(..) | DataAsk::Punch);
        let allowed = if changes { Self::may_change(&served, cx) } else { Ok(()) };
        let file = request.body.id.fid().and_then(Id::of).ok_or(Errno::EINVAL);
        let file = match allowed.and(file) {
            Ok(file) => file,
            Err(errno) => return cx.rpc.refuse(id, errno),
        };
        if let Err(errno) = self.touch_held(&served, &request, file, cx) {
            return cx.rpc.refuse(id, errno);
        }
        let mode = wanted_lock(&request).filter(|_| served.replay.is_none());
        let (step, memory) = (Step::Lock, IoVec::new());
        let mut work = DataWork { served, request, id: file, step, memory, sum: None, lock: None };
        let mut waits = false;
        if let Some(mode) = mode {
            let resource = ResourceName::of(file.fid());
            match self.locks.lock_bits_locally(resource, mode, InodeBits::DOM, cx.rpc) {
                Ok((lock, granted)) => {
                    (work.lock, waits) = (Some(lock), !granted);
                    if waits {
                        self.locked_out.insert(lock, LockedOut::Data(id));
                    }
                }
                Err(errno) => return cx.rpc.refuse(id, errno),
            }
        }
        self.data.insert(id, work);
        if !waits {
            self.start_data(id, cx);
        }
    }

    /// A request for data has its lock.
    pub(super) fn start_data(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        if let Err(errno) = self.begin_data(id, cx) {
            self.refuse_data(id, errno, cx);
        }
    }

    fn begin_data(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.data.get(&id) else { return Ok(()) };
        let file = work.id;
        match &work.request.ask {
            DataAsk::Sync(_) => {
                self.step(id, Step::Sync);
                cx.order(StoreOrder::Sync { token: id.into() });
                Ok(())
            }
            DataAsk::Write(ranges, data) => {
                let (ranges, data) = (ranges.clone(), data.clone());
                if !Self::is_done(&work.served, cx) && ranges.span().1 > self.with_data(file)?.1 {
                    return Err(Errno::EFBIG);
                }
                let memory = cx.alloc(ranges.len)?;
                if let Some(work) = self.data.get_mut(&id) {
                    work.memory.clone_from(&memory);
                }
                if !ranges.inline {
                    self.step(id, Step::Bulk);
                    return cx.rpc.bulk(id, Direction::Write, &memory);
                }
                let mut rest = data.as_slice();
                for span in &memory {
                    let here = cx.below().bytes_mut(*span);
                    let (part, behind) = rest.split_at(here.len().min(rest.len()));
                    here.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                    rest = behind;
                }
                self.sum_up(id, cx)
            }
            DataAsk::Read(_) => self.fetch(id, cx),
            DataAsk::Punch => self.punch(id, cx),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn step(&mut self, id: ServedId, step: Step) {
        if let Some(work) = self.data.get_mut(&id) {
            work.step = step;
        }
    }

    /// A request for data is over: its memory and its lock go.
    fn end_data(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.data.remove(&id) else { return };
        cx.free(&work.memory);
        if let Some(lock) = work.lock {
            self.locked_out.remove(&lock);
            self.locks.unlock_locally(lock, cx.rpc);
        }
        // What has moved has moved, whatever became of the lock.
        let _ = self.touch_held(&work.served, &work.request, work.id, cx);
    }

    fn refuse_data(&mut self, id: ServedId, errno: Errno, cx: &mut Cx<'_, '_, '_>) {
        let replayed = self.data.get(&id).filter(|work| work.served.replay.is_some());
        // One that was answered before a crash does not fit to what is there now.
        let replayed = replayed.map(|work| work.served.clone());
        self.end_data(id, cx);
        match replayed {
            Some(served) => cx.unfit(&served),
            None => cx.rpc.refuse(id, errno),
        }
    }

    fn reply_data(&mut self, id: ServedId, answer: Answer, cx: &mut Cx<'_, '_, '_>) {
        self.end_data(id, cx);
        cx.rpc.reply(id, answer);
    }

    /// The data of a request are here: they are summed up, if that is wanted.
    fn sum_up(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.data.get_mut(&id) else { return Ok(()) };
        match work.request.checksum() {
            Some(kind) => {
                work.step = Step::Sum;
                let bytes = work.memory.clone();
                cx.order(StoreOrder::Checksum { token: id.into(), kind, bytes });
                Ok(())
            }
            None => self.summed(id, cx),
        }
    }

    fn summed(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.data.get_mut(&id) else { return Ok(()) };
        match &work.request.ask {
            DataAsk::Write(..) => self.write(id, cx),
            DataAsk::Read(ranges) if !ranges.inline => {
                work.step = Step::Bulk;
                cx.rpc.bulk(id, Direction::Read, &work.memory)
            }
            _ => {
                self.sent(id, cx);
                Ok(())
            }
        }
    }

    /// L-91, L-92.
    fn write(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.data.get(&id) else { return Ok(()) };
        let DataAsk::Write(ranges, _) = &work.request.ask else { return Ok(()) };
        let (ranges, asked, file) = (ranges.clone(), work.request.body, work.id);
        let results = vec![0; ranges.list.len() * <u32 as Layout>::LEN];
        if Self::is_done(&work.served, cx) {
            return self.repeat(id, Some(results), cx);
        }
        let (inode, end) = self.with_data(file)?;
        if ranges.span().1 > end {
            return Err(Errno::EFBIG);
        }
        if work.served.replay.is_none() {
            self.has_room()?;
        }
        let mut after = inode.clone();
        let mut part = match after.data.as_deref() {
            Some(part) => *part,
            None => Part::new(cx.new_data()),
        };
        let (mut changes, mut at) = (Vec::new(), 0);
        for range in &ranges.list {
            let len = u64::from(range.len);
            let bytes = iovec_slice(&work.memory, at, len);
            changes.push(Change::Write { data: part.id, offset: range.offset, bytes });
            part.size = part.size.max(range.offset + len);
            part.extents.add(range.offset, range.offset + len);
            at += len;
        }
        after.data = Some(Box::new(part));
        take_times(&mut after, &asked);
        let mut body = written(&after, &asked);
        work.show_sum(&mut body);
        let mut answer = obdo(&body);
        answer.buffers.push(results);
        let later = ranges.list.iter().all(|range| range.flags.contains(NiobufFlags::ASYNC));
        let when = if later { When::Applied } else { When::Committed };
        self.keep_data(id, after, changes, answer, when, cx);
        Ok(())
    }

    /// The data end where the request says (C-223, L-80).
    fn punch(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.data.get(&id) else { return Ok(()) };
        let (asked, file) = (work.request.body, work.id);
        if Self::is_done(&work.served, cx) {
            return self.repeat(id, None, cx);
        }
        let (inode, end) = self.with_data(file)?;
        let size = asked.size.min(end);
        let mut after = inode.clone();
        let mut changes = Vec::new();
        if size > 0 || after.data.is_some() {
            let mut part = match after.data.as_deref() {
                Some(part) => *part,
                None => Part::new(cx.new_data()),
            };
            if size < part.size {
                changes.push(Change::Cut { data: part.id, from: size });
            }
            part.extents.cut(size);
            part.size = size;
            after.data = Some(Box::new(part));
        }
        take_times(&mut after, &asked);
        let blocks = after.data.as_deref().map_or(0, Part::blocks);
        let valid = Valid::ID | Valid::BLOCKS;
        let answer = obdo(&Obdo { id: asked.id, blocks, valid, ..Obdo::default() });
        self.keep_data(id, after, changes, answer, When::Applied, cx);
        Ok(())
    }

    /// Stores what has become of a file with its data, and ends the request.
    fn keep_data(
        &mut self,
        id: ServedId,
        after: Inode,
        mut changes: Vec<Change>,
        answer: Answer,
        when: When,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let transno = cx.rpc.transno(id);
        let Some(work) = self.data.get_mut(&id) else { return };
        // The request is over, and changes nothing.
        if transno == 0 {
            return self.end_data(id, cx);
        }
        let memory = core::mem::take(&mut work.memory);
        let (served, file) = (work.served.clone(), work.id);
        let mut edit = Edit::new(&mut self.tree, transno);
        edit.set_inode(file, after);
        changes.extend(edit.finish());
        self.measure(cx);
        cx.commit_data(&served, answer, changes, memory, when);
        self.show_locks(file);
        // A store does things in order: what follows finds the change.
        self.end_data(id, cx);
    }

    /// The answer to a request whose effect is there (P-70).
    fn repeat(
        &mut self,
        id: ServedId,
        results: Option<Vec<u8>>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Result<(), Errno> {
        let Some(work) = self.data.get(&id) else { return Ok(()) };
        let asked = work.request.body;
        let inode = self.tree.inode(work.id);
        let body = inode.map_or(asked, |inode| written(inode, &asked));
        let mut answer = obdo(&body);
        answer.buffers.extend(results);
        answer.transno = work.served.replay.map_or(0, |replay| replay.transno);
        self.reply_data(id, answer, cx);
        Ok(())
    }

    /// L-89.
    fn fetch(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.data.get(&id) else { return Ok(()) };
        let DataAsk::Read(ranges) = &work.request.ask else { return Ok(()) };
        let ranges = ranges.clone();
        let (inode, _) = self.with_data(work.id)?;
        let part = inode.data.as_deref().copied();
        let end = part.map_or(0, |part| part.size).next_multiple_of(PAGE);
        let lens =
            ranges.list.iter().map(|range| end.saturating_sub(range.offset).min(range.len.into()));
        let lens: Vec<u64> = lens.collect();
        let memory = cx.alloc(lens.iter().sum())?;
        let (mut at, mut orders) = (0, Vec::new());
        for (range, len) in ranges.list.iter().zip(lens).filter(|(_, len)| *len > 0) {
            let into = iovec_slice(&memory, at, len);
            at += len;
            if let Some(part) = &part {
                orders.push(Source::Data { data: part.id, offset: range.offset, into });
            }
        }
        let Some(work) = self.data.get_mut(&id) else { return Ok(()) };
        work.memory = memory;
        work.step = Step::Load(orders.len(), None);
        let none = orders.is_empty();
        for from in orders {
            cx.order(StoreOrder::Read { token: id.into(), from });
        }
        if none { self.sum_up(id, cx) } else { Ok(()) }
    }

    /// The data of a read have moved, or go with its answer.
    fn sent(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.data.get(&id) else { return };
        let DataAsk::Read(ranges) = &work.request.ask else { return };
        let mut body =
            Obdo { valid: Valid::empty(), flags: ObdoFlags::empty(), ..work.request.body };
        work.show_sum(&mut body);
        let mut answer = obdo(&body);
        let mut data = Vec::new();
        if ranges.inline {
            for span in &work.memory {
                data.extend_from_slice(cx.below().bytes(*span));
            }
        }
        answer.buffers.push(data);
        // A read has at most 64 MiB.
        answer.status = i32::try_from(iovec_len(&work.memory)).unwrap_or(i32::MAX);
        self.reply_data(id, answer, cx);
    }

    /// Bulk data have moved, or not: the request is over then.
    pub(super) fn data_moved(
        &mut self,
        id: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        if result.is_err() {
            return self.end_data(id, cx);
        }
        let writes = self.data.get(&id).map(|work| &work.request.ask);
        let writes = matches!(writes, Some(DataAsk::Write(..)));
        if !writes {
            return self.sent(id, cx);
        }
        if let Err(errno) = self.sum_up(id, cx) {
            self.refuse_data(id, errno, cx);
        }
    }

    /// The store reports something of a request for data.
    pub(super) fn data_stored(
        &mut self,
        id: ServedId,
        outcome: Result<Outcome, StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(work) = self.data.get_mut(&id) else { return };
        let outcome = match (&mut work.step, outcome) {
            // Memory that the store still reads into is not given back.
            (Step::Load(left @ 2.., failed), outcome) => {
                *left -= 1;
                if let Err(e) = outcome {
                    failed.get_or_insert(e);
                }
                return;
            }
            (Step::Load(_, failed), outcome) => match failed.take() {
                Some(e) => Err(e),
                None => outcome,
            },
            (_, outcome) => outcome,
        };
        let done = match (&work.step, outcome) {
            (_, Err(e)) => {
                let replay = work.served.replay.is_some();
                self.end_data(id, cx);
                return cx.not_stored(id, replay, &e);
            }
            (Step::Load(..), Ok(_)) => self.sum_up(id, cx),
            (Step::Sum, Ok(Outcome::Checksum(sum))) => {
                work.sum = Some(sum);
                self.summed(id, cx)
            }
            (Step::Sync, Ok(_)) => {
                self.reply_data(id, obdo(&Obdo::default()), cx);
                Ok(())
            }
            _ => Err(Errno::EIO),
        };
        if let Err(errno) = done {
            self.refuse_data(id, errno, cx);
        }
    }

    /// A client is gone: what it asked for and waits for a lock is void.
    pub(super) fn drop_data(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        let void = self
            .data
            .iter()
            .filter(|(_, work)| work.served.export == export && matches!(work.step, Step::Lock));
        let void: Vec<ServedId> = void.map(|(id, _)| *id).collect();
        for id in void {
            self.end_data(id, cx);
            cx.rpc.decline(id);
        }
    }
}
