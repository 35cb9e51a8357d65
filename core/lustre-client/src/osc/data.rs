//! Data requests: what goes into one, its checksum, its repetition (L-87 … L-93).

use core::ops::Range;
use core::time::Duration;

use lnet_types::{Errno, Instant, IoVec, iovec_slice};
use lustre_wire::Checksum;
use lustre_wire::connect::{ConnectData, ConnectFlags};
use lustre_wire::fid::ObjectId;
use ptlrpc::{CallError, CallId, Direction, Reply};

use super::dirty::Piece;
use super::grant::Price;
use super::locks::Key;
use super::op::Stage;
use super::settle::Written;
use super::wire::{self, Said};
use super::{Calling, Cx, FilePart, OpId, Osc, OscEvent, SumId};

/// A data request is made again so often at most (L-93).
const RETRIES_MAX: u32 = 10;
/// Bytes of a request to a target that names no limit.
const BRW_LEAST: u32 = 1 << 20;
/// Data count by so many bytes (P-46).
const PAGE: u32 = 4096;

/// A data request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DataId(u64);

/// What a data request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Its turn.
    Turn,
    /// The sum of what it writes.
    Sum,
    /// Its reply.
    Reply,
    /// The sum of what was read, which should be this.
    Check(u32),
    /// To be made again, at this time.
    Retry(Instant),
}

#[derive(Debug)]
pub(super) struct Io {
    key: Key,
    id: ObjectId,
    offset: u64,
    len: u64,
    memory: IoVec,
    /// What is written; empty for a read.
    pieces: Vec<(u64, Piece)>,
    /// The read that it belongs to.
    op: Option<OpId>,
    mtime: Option<i64>,
    part: Option<FilePart>,
    wait: Wait,
    /// The target may answer it before it is committed (L-92).
    later: bool,
    /// How often it was made again.
    retries: u32,
    /// How often the target had dropped this client when it began.
    generation: u32,
    checksum: Option<(Checksum, u32)>,
}

impl Io {
    /// What it writes of an object.
    pub(super) fn writes(&self, key: Key) -> Option<Range<u64>> {
        let end = self.offset.saturating_add(self.len);
        (self.key == key && self.op.is_none()).then_some(self.offset..end)
    }

    /// The object that it writes to.
    pub(super) fn written(&self) -> Option<Key> {
        self.op.is_none().then_some(self.key)
    }

    /// Whether it is a read under way.
    fn reads_now(&self) -> bool {
        self.op.is_some() && self.wait != Wait::Turn
    }

    /// What was written, which the target may lose.
    fn as_written(&self, good: bool) -> Written {
        let pieces = self.pieces.iter().map(|(_, piece)| *piece).collect();
        Written { key: self.key, id: self.id, part: self.part, good, pieces }
    }

    /// When it is made again.
    pub(super) const fn due(&self) -> Option<Instant> {
        match self.wait {
            Wait::Retry(at) => Some(at),
            _ => None,
        }
    }
}

/// Whether a data request is made again after an error (L-93).
const fn passes(errno: Errno, retries: u32) -> bool {
    match errno {
        Errno::EINPROGRESS => true,
        Errno::EIO | Errno::EROFS | Errno::ENOMEM | Errno::EAGAIN => retries < RETRIES_MAX,
        _ => false,
    }
}

/// How data is summed up: as it is wanted, or in another way if the target does not grant that one: it
/// grants what its processor is fast at (C-233).
fn summed_as(wanted: Checksum, granted: &ConnectData) -> Option<Checksum> {
    let known = |kind: &Checksum| granted.cksum_types.bits() & u32::from(kind.number()) != 0;
    let kinds = [wanted, Checksum::Crc32c, Checksum::Crc32, Checksum::Adler];
    kinds.into_iter().find(known).filter(|_| granted.flags.contains(ConnectFlags::CKSUM))
}

/// What a program hears of an error.
const fn shown(errno: Errno) -> Errno {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT | Errno::ENOENT | Errno::EROFS => errno,
        _ => Errno::EIO,
    }
}

impl Osc {
    /// Most bytes of a data request.
    fn brw(&self, cx: &Cx<'_, '_, '_>) -> u32 {
        let terms = cx.rpc.terms(self.import).unwrap_or_default();
        let granted = match terms.flags.contains(ConnectFlags::BRW_SIZE) {
            true => terms.brw_size,
            false => BRW_LEAST,
        };
        // Whole pages: a request that ends inside of one makes all that follow begin inside of one (P-46).
        (self.config.brw_size.min(granted) / PAGE * PAGE).max(PAGE)
    }

    /// How the target counts space.
    pub(super) fn price(&self, cx: &Cx<'_, '_, '_>) -> Price {
        Price::of(&cx.rpc.terms(self.import).unwrap_or_default())
    }

    /// How data is summed up.
    fn checksum(&self, cx: &Cx<'_, '_, '_>) -> Option<Checksum> {
        summed_as(self.config.checksum?, &cx.rpc.terms(self.import).unwrap_or_default())
    }

    fn add(&mut self, io: Io) -> DataId {
        self.last_data += 1;
        let id = DataId(self.last_data);
        self.ios.insert(id, io);
        id
    }

    /// The data of a read is asked for.
    pub(super) fn fetch(&mut self, id: OpId, cx: &Cx<'_, '_, '_>) {
        let brw = u64::from(self.brw(cx));
        let checksum = self.checksum(cx).map(|kind| (kind, 0));
        let Some(op) = self.ops.get_mut(&id) else { return };
        let (key, object, end, offset) = (op.key, op.id, op.end(), op.offset);
        let memory = op.memory.clone();
        let (mut at, mut count) = (offset, 0);
        while at < end {
            // Parts end on borders, so that no page is split, and no part has more pages than it may (P-46).
            let to = ((at / brw + 1) * brw).min(end);
            let part = Io {
                key,
                id: object,
                offset: at,
                len: to - at,
                memory: iovec_slice(&memory, at - offset, to - at),
                pieces: Vec::new(),
                op: Some(id),
                mtime: None,
                part: None,
                wait: Wait::Turn,
                later: false,
                retries: 0,
                generation: self.generation,
                checksum,
            };
            let part = self.add(part);
            self.reads.push_back(part);
            (at, count) = (to, count + 1);
        }
        if let Some(op) = self.ops.get_mut(&id) {
            op.stage = Stage::Data(count);
        }
    }

    /// Begins data requests, as many as may be under way: first what is to be written back, beside one read.
    pub(super) fn launch(&mut self, cx: &mut Cx<'_, '_, '_>) {
        while self.ios.len().saturating_sub(self.reads.len()) < self.config.in_flight {
            // A program that writes without end must not keep reads from their end, and with them their locks.
            let read_first = !self.reads.is_empty() && !self.ios.values().any(Io::reads_now);
            if !read_first && self.write_back(cx) {
                continue;
            }
            let Some(id) = self.reads.pop_front() else { return };
            self.send(id, cx);
        }
    }

    /// Begins to write back what is waited for. `false` if there is no such data.
    fn write_back(&mut self, cx: &mut Cx<'_, '_, '_>) -> bool {
        let brw = self.brw(cx);
        let checksum = self.checksum(cx);
        let mut turn = None;
        while let Some((at, key)) = self.urgent.after(turn) {
            turn = Some(at);
            let busy: Vec<Range<u64>> = self.ios.values().filter_map(|io| io.writes(key)).collect();
            let Some(object) = self.objects.get_mut(&key) else {
                self.urgent.remove(key);
                continue;
            };
            let pieces = object.dirty.take_run(brw.into(), &busy, &object.called_back());
            let Some((offset, _)) = pieces.first().copied() else {
                // What is on its way at the same place is over first.
                if !object.dirty.is_urgent(&(0..u64::MAX)) {
                    self.urgent.remove(key);
                }
                continue;
            };
            self.urgent.remove(key);
            if object.dirty.is_urgent(&(0..u64::MAX)) {
                self.urgent.insert(key, object.urgency());
            }
            let len = pieces.iter().map(|(_, piece)| piece.len).sum();
            let mut memory = IoVec::new();
            for (_, piece) in &pieces {
                memory.extend(self.buffers.slice(piece.buffer, piece.at, piece.len));
            }
            let io = Io {
                key,
                id: object.id,
                offset,
                len,
                memory,
                pieces,
                op: None,
                mtime: object.mtime,
                part: object.part,
                wait: Wait::Turn,
                later: false,
                retries: 0,
                generation: self.generation,
                checksum: checksum.map(|kind| (kind, 0)),
            };
            let id = self.add(io);
            self.sum_or_send(id, cx);
            return true;
        }
        false
    }

    /// What is written is summed up first.
    fn sum_or_send(&mut self, id: DataId, cx: &mut Cx<'_, '_, '_>) {
        let Some(io) = self.ios.get_mut(&id) else { return };
        match io.checksum {
            Some((kind, _)) if io.op.is_none() => {
                io.wait = Wait::Sum;
                let memory = io.memory.clone();
                self.events.push_back(OscEvent::Sum { id: SumId(id), kind, memory });
            }
            _ => self.send(id, cx),
        }
    }

    /// The host has summed bytes up.
    pub fn summed(&mut self, id: SumId, sum: u32, cx: &mut Cx<'_, '_, '_>) {
        let SumId(id) = id;
        let Some(io) = self.ios.get_mut(&id) else { return };
        match io.wait {
            Wait::Sum => {
                io.checksum = io.checksum.map(|(kind, _)| (kind, sum));
                self.send(id, cx);
            }
            Wait::Check(expected) if expected == sum => self.over(id, Ok(()), cx),
            Wait::Check(_) => self.failed(id, Errno::EAGAIN, cx),
            Wait::Turn | Wait::Reply | Wait::Retry(_) => {}
        }
        self.work(cx);
    }

    fn send(&mut self, id: DataId, cx: &mut Cx<'_, '_, '_>) {
        let (brw, generation) = (self.brw(cx), self.generation);
        let granting = cx.rpc.terms(self.import).unwrap_or_default();
        let granting = granting.flags.contains(ConnectFlags::GRANT);
        let Some(io) = self.ios.get_mut(&id) else { return };
        if io.generation != generation {
            return self.over(id, Err(Errno::EIO), cx);
        }
        io.wait = Wait::Reply;
        let granted = io.op.is_none() && io.pieces.iter().all(|(_, piece)| piece.granted);
        let used = io.pieces.iter().map(|(_, piece)| piece.space).sum();
        let used = if granted { used } else { 0 };
        // What ends with this write would have to wait for the commit in any case.
        let settling = self.objects.get(&io.key).is_some_and(|object| object.settling > 0);
        if granted && !io.later && !settling {
            io.later = self.uncommitted.reserve(io.len, self.config.dirty_max);
        }
        let most = u64::from(brw).saturating_mul(self.config.in_flight as u64 + 1);
        let account = self.grant.account(self.config.dirty_max.max(most), used);
        let call = wire::data(&wire::Data {
            id: io.id,
            direction: if io.op.is_none() { Direction::Write } else { Direction::Read },
            offset: io.offset,
            memory: io.memory.clone(),
            // At most a request's bytes.
            len: u32::try_from(io.len).unwrap_or(u32::MAX),
            brw,
            granted,
            later: io.later,
            again: io.retries > 0,
            checksum: io.checksum,
            account: granting.then_some(account),
            mtime: io.mtime,
            part: io.part,
        });
        self.stats.requests += 1;
        match cx.rpc.call(self.import, call) {
            Ok(call) => {
                self.calls.insert(call, Calling::Data(id));
            }
            Err(_) => self.over(id, Err(Errno::EIO), cx),
        }
    }

    /// A data request has its reply, or never will.
    pub(super) fn answered(
        &mut self,
        id: DataId,
        call: CallId,
        result: Result<&Reply, &CallError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(io) = self.ios.get_mut(&id) else { return };
        let said = match result {
            Err(CallError::Refused(errno)) => return self.failed(id, *errno, cx),
            // What may be repeated was repeated below.
            Err(_) => return self.over(id, Err(Errno::EIO), cx),
            Ok(reply) => Said::of(reply),
        };
        if cx.rpc.retains(self.import, call) {
            // Its memory stays, whatever becomes of this one.
            let good = said.is_some_and(|said| said.is_written(io.checksum));
            self.uncommitted.keep(call, io.as_written(good));
            io.pieces.iter().for_each(|(_, piece)| self.buffers.claim(piece.buffer, piece.len));
        }
        let Some(said) = said else { return self.over(id, Err(Errno::EPROTO), cx) };
        self.grant.add(said.grant());
        let expected = io.checksum.and_then(|(kind, sum)| Some((kind, sum, said.sum(kind)?)));
        if io.op.is_none() {
            if let Some(part) = io.part {
                self.quota.hear(part.payer, &said.body);
            }
            match (said.result, expected) {
                (Some(0), Some((_, ours, theirs))) if ours != theirs => {
                    self.failed(id, Errno::EAGAIN, cx);
                }
                (Some(0), _) => self.over(id, Ok(()), cx),
                (Some(errno), _) => self.failed(id, Errno(errno.saturating_neg()), cx),
                (None, _) => self.over(id, Err(Errno::EPROTO), cx),
            }
            return;
        }
        let Some(moved) = u64::try_from(said.status).ok().filter(|moved| *moved <= io.len) else {
            return self.over(id, Err(Errno::EPROTO), cx);
        };
        // The tail that the target does not have is zeros.
        for span in iovec_slice(&io.memory, moved, io.len - moved) {
            cx.rpc.below().bytes_mut(span).fill(0);
        }
        match expected {
            Some((kind, _, theirs)) => {
                io.wait = Wait::Check(theirs);
                let memory = iovec_slice(&io.memory, 0, moved);
                self.events.push_back(OscEvent::Sum { id: SumId(id), kind, memory });
            }
            None => self.over(id, Ok(()), cx),
        }
    }

    /// A data request was refused: it is made again later, or over (L-93).
    fn failed(&mut self, id: DataId, errno: Errno, cx: &mut Cx<'_, '_, '_>) {
        let generation = self.generation;
        let Some(io) = self.ios.get_mut(&id) else { return };
        if io.generation != generation {
            return self.over(id, Err(Errno::EIO), cx);
        }
        if !passes(errno, io.retries) {
            return self.over(id, Err(errno), cx);
        }
        io.retries = io.retries.saturating_add(1);
        self.stats.retries += 1;
        let pause = Duration::from_secs(io.retries.into()).min(cx.rpc.tunables().obd_timeout);
        io.wait = Wait::Retry(cx.rpc.now() + pause);
    }

    /// Makes requests again whose time has come.
    pub(super) fn retry_due(&mut self, now: Instant, cx: &mut Cx<'_, '_, '_>) {
        let due = |(_, io): &(&DataId, &Io)| io.due().is_some_and(|at| at <= now);
        let due: Vec<DataId> = self.ios.iter().filter(due).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.sum_or_send(id, cx));
    }

    /// A data request is over.
    fn over(&mut self, id: DataId, result: Result<(), Errno>, cx: &mut Cx<'_, '_, '_>) {
        let Some(io) = self.ios.remove(&id) else { return };
        let result = result.map_err(shown);
        let bytes = if result.is_ok() { io.len } else { 0 };
        let Some(op) = io.op else {
            self.stats.written += bytes;
            if io.later {
                self.uncommitted.unreserve(io.len);
            }
            for (_, piece) in &io.pieces {
                if piece.granted {
                    self.grant.spend(piece.space);
                }
                self.settled(io.key, piece, result, cx);
            }
            self.check(io.key, cx);
            return self.tidy(io.key);
        };
        self.stats.read += bytes;
        let Some(reading) = self.ops.get_mut(&op) else { return };
        if let Err(errno) = result {
            reading.error.get_or_insert(errno);
        }
        if let Stage::Data(left) = &mut reading.stage {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.fetched(op, cx);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lustre_wire::connect::ChecksumKinds;

    use super::*;

    #[test]
    fn c233_data_is_summed_up_in_another_way_where_the_wanted_one_is_not_granted() {
        let granted = |flags, kinds| {
            let cksum_types = ChecksumKinds::from_bits_retain(kinds);
            ConnectData { flags, cksum_types, ..ConnectData::default() }
        };
        let has = ConnectFlags::CKSUM;
        for (flags, kinds, expected) in [
            // As recorded servers have granted: Adler-32, and two kinds of T10.
            (has, 0x32, Some(Checksum::Adler)),
            (has, 0x7, Some(Checksum::Crc32c)),
            (has, 0x3, Some(Checksum::Crc32)),
            (has, 0x30, None),
            (ConnectFlags::empty(), 0x7, None),
        ] {
            let kind = summed_as(Checksum::Crc32c, &granted(flags, kinds));
            assert_eq!(kind, expected, "{kinds:#x}");
        }
        assert_eq!(summed_as(Checksum::Adler, &granted(has, 0x7)), Some(Checksum::Adler));
    }

    #[test]
    fn l93_errors_that_may_pass_are_tried_ten_times_and_one_for_ever() {
        for errno in [Errno::EIO, Errno::EROFS, Errno::ENOMEM, Errno::EAGAIN] {
            assert!(passes(errno, RETRIES_MAX - 1) && !passes(errno, RETRIES_MAX), "{errno}");
        }
        assert!(passes(Errno::EINPROGRESS, 1_000_000));
        assert!(!passes(Errno::ENOSPC, 0) && !passes(Errno::ESTALE, 0));
        assert_eq!((shown(Errno::ESTALE), shown(Errno::ENOSPC)), (Errno::EIO, Errno::ENOSPC));
    }
}
