//! Reads and writes of data (L-87 … L-92), and what they say of promised space (L-95, L-96).

use lnet_types::{Errno, IoVec, iovec_len, iovec_slice};
use lustre_wire::fid::Valid;
use lustre_wire::ost::{Niobuf, NiobufFlags, Obdo, ObdoFlags};
use ptlrpc::{Direction, ServedId};

use super::name::last_key;
use super::object::Object;
use super::plan::Plan;
use super::request::{Ask, PAGE, Ranges};
use super::{Ost, Stage, Work, is_again, obdo, read_last};
use crate::journal::{Cx, When};
use crate::store::{Change, Source, Space, StoreError, StoreOrder};

/// Bytes of a range that a read gets: up to the end of the page in which the object ends (L-89).
fn readable(range: &Niobuf, size: u64) -> u64 {
    let end = size.next_multiple_of(PAGE);
    end.saturating_sub(range.offset).min(range.len.into())
}

/// Says how the data of a request sums up.
fn show_sum(work: &Work, body: &mut Obdo) {
    if let (Some(sum), Some(kind)) = (work.sum, work.request.checksum()) {
        body.nlink = sum;
        body.flags = body.flags.with_checksum(kind.number());
        body.valid |= Valid::CKSUM | Valid::FLAGS;
    }
}

impl Ost {
    /// What a data request says of its client's promises, and what the client gets (L-95).
    fn account(&mut self, id: ServedId, cx: &Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let (export, body) = (work.served.export, work.request.body);
        if self.locks.is_none() || !body.valid.contains(Valid::GRANT) {
            return;
        }
        if let Some(terms) = cx.rpc.granted(export) {
            self.grants.meet(export, work.served.body.conn_cnt, terms.grant.into());
        }
        if !is_again(&work.served, &work.request) {
            self.grants.hear(export, &body);
        }
    }

    /// Says in a reply what a client was promised beside what it has.
    fn promise(&mut self, id: ServedId, body: &mut Obdo, cx: &Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let asked = work.request.body;
        body.grant = 0;
        if self.locks.is_none() || !asked.valid.contains(Valid::GRANT) {
            body.valid.remove(Valid::GRANT);
            return;
        }
        if !is_again(&work.served, &work.request) {
            let export = work.served.export;
            let brw = cx.rpc.granted(export).map_or(0, |terms| terms.brw_size);
            let (wanted, held) = (u64::from(asked.mode), asked.grant);
            body.grant = self.grants.grant(export, wanted, held, brw.into());
        }
    }

    /// The data of a write is here.
    pub(super) fn written(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        match work.request.checksum() {
            Some(kind) => {
                work.stage = Stage::Sum;
                let bytes = work.memory.clone();
                cx.order(StoreOrder::Checksum { token: id.into(), kind, bytes });
            }
            None => self.enter(id, cx),
        }
    }

    /// Which ranges of a write have room, as a result for each (L-91, L-95).
    fn room(&mut self, id: ServedId, ranges: &Ranges, before: &Object) -> Vec<Errno> {
        let Some(work) = self.work.get(&id) else { return Vec::new() };
        if self.locks.is_none() {
            return vec![Errno::OK; ranges.list.len()];
        }
        let export = work.served.export;
        // What was answered once has its space, as far as there is any.
        let brought_back = work.served.replay.is_some();
        let (mut promised, mut others) = (0, Vec::new());
        let mut free = Vec::with_capacity(ranges.list.len());
        for range in &ranges.list {
            let len = u64::from(range.len);
            let covered = range.flags.contains(NiobufFlags::FROM_GRANT)
                && self.grants.holds(export, promised + len);
            let written_before = range.offset + len <= before.size;
            promised += if covered { len } else { 0 };
            free.push(covered || written_before || brought_back);
            if !free.last().copied().unwrap_or_default() {
                others.push(len);
            }
        }
        let again = is_again(&work.served, &work.request);
        let used = if again { 0 } else { promised.max(work.request.body.data_version) };
        let used = if promised == 0 { 0 } else { used };
        let mut room = self.grants.spend(export, used, &others).into_iter();
        let fits = free.into_iter().map(|free| free || room.next().unwrap_or_default());
        fits.map(|fits| if fits { Errno::OK } else { Errno::ENOSPC }).collect()
    }

    /// The record of the object of a write is there, or it has none. `last`: the last number of its
    /// sequence, once that is known.
    pub(super) fn write(
        &mut self,
        id: ServedId,
        object: Option<Object>,
        last: Option<u64>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(work) = self.work.get_mut(&id) else { return };
        let name = work.request.name;
        let Ask::Write(ranges, _) = &work.request.ask else { return };
        let ranges = ranges.clone();
        // L-91: what a target has lost of objects made ahead comes back with what was written to them.
        let before = match (object, last, work.served.replay) {
            (Some(object), ..) => object,
            (None, Some(_), _) => Object::new(0),
            (None, None, Some(_)) => {
                work.stage = Stage::Last;
                return read_last(id, name, cx);
            }
            (None, None, None) => return self.refuse(id, Errno::ENOENT, cx),
        };
        self.account(id, cx);
        let results = self.room(id, &ranges, &before);
        let Some(work) = self.work.get(&id) else { return };
        let asked = work.request.body;
        let mut after = Object { version: cx.rpc.transno(id), ..before };
        let data = before.data.unwrap_or_else(|| cx.new_data());
        let (mut changes, mut at) = (Vec::new(), 0);
        for (range, result) in ranges.list.iter().zip(&results) {
            let len = u64::from(range.len);
            if *result == Errno::OK {
                let bytes = iovec_slice(&work.memory, at, len);
                changes.push(Change::Write { data, offset: range.offset, bytes });
                after.size = after.size.max(range.offset + len);
                after.extents.add(range.offset, range.offset + len);
                after.data = Some(data);
            }
            at += len;
        }
        after.take_times(&asked);
        if !before.owned {
            after.own(&asked);
        }
        let mut body = asked;
        after.show(&mut body);
        body.valid.remove(Valid::ATIME | Valid::MTIME);
        body.valid |= Valid::FLAGS | Valid::USRQUOTA | Valid::GRPQUOTA | Valid::PRJQUOTA;
        body.flags = asked.flags & ObdoFlags::SHORT_IO;
        show_sum(work, &mut body);
        self.promise(id, &mut body, cx);
        let mut answer = obdo(&body);
        answer.buffers.push(Self::results(&results));
        if changes.is_empty() {
            return self.reply(id, answer, cx);
        }
        let mut plan = Plan::of_object(name, before, after, answer);
        plan.changes.append(&mut changes);
        if last.is_some_and(|last| last < name.id) {
            let number = name.id.to_le_bytes().to_vec();
            plan.changes.push(Change::Put(Space::Meta, last_key(name.seq), number));
        }
        // L-92.
        let later = ranges.list.iter().all(|range| range.flags.contains(NiobufFlags::ASYNC));
        plan.when = if later { When::Applied } else { When::Committed };
        self.settle(id, plan, cx);
    }

    /// The record of the object of a read is there.
    pub(super) fn load(&mut self, id: ServedId, object: Object, cx: &mut Cx<'_, '_, '_>) {
        self.account(id, cx);
        let Some(work) = self.work.get_mut(&id) else { return };
        let Ask::Read(ranges) = &work.request.ask else { return };
        let lens: Vec<u64> = ranges.list.iter().map(|r| readable(r, object.size)).collect();
        work.memory = match cx.alloc(lens.iter().sum()) {
            Ok(memory) => memory,
            Err(errno) => return self.refuse(id, errno, cx),
        };
        let (mut at, mut orders) = (0, Vec::new());
        for (range, len) in ranges.list.iter().zip(lens).filter(|(_, len)| *len > 0) {
            let into = iovec_slice(&work.memory, at, len);
            at += len;
            match object.data {
                Some(data) => orders.push(Source::Data { data, offset: range.offset, into }),
                // It was never written: the memory is not what others left in it.
                None => into.iter().for_each(|span| cx.below().bytes_mut(*span).fill(0)),
            }
        }
        work.stage = Stage::Load(orders.len(), None);
        let none = orders.is_empty();
        for from in orders {
            cx.order(StoreOrder::Read { token: id.into(), from });
        }
        if none {
            self.whole(id, cx);
        }
    }

    /// A piece of data is read, or can't be.
    pub(super) fn loaded(
        &mut self,
        id: ServedId,
        left: usize,
        failed: Option<StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(work) = self.work.get_mut(&id) else { return };
        match (left, failed) {
            (2.., failed) => work.stage = Stage::Load(left - 1, failed),
            (_, Some(e)) => self.give_up(id, &e, cx),
            (_, None) => self.whole(id, cx),
        }
    }

    /// All data of a read is here.
    fn whole(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        match work.request.checksum() {
            Some(kind) => {
                work.stage = Stage::Sum;
                let bytes = work.memory.clone();
                cx.order(StoreOrder::Checksum { token: id.into(), kind, bytes });
            }
            None => self.send(id, cx),
        }
    }

    /// The data of a read goes to its client.
    pub(super) fn send(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        work.stage = Stage::Bulk;
        let Ask::Read(ranges) = &work.request.ask else { return };
        if ranges.inline {
            return self.moved(id, cx);
        }
        if let Err(errno) = cx.rpc.bulk(id, Direction::Read, &work.memory) {
            self.refuse(id, errno, cx);
        }
    }

    /// The data of a read has moved, or goes with its answer.
    pub(super) fn moved(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let Ask::Read(ranges) = &work.request.ask else { return };
        let (inline, memory): (bool, IoVec) = (ranges.inline, work.memory.clone());
        let mut body = work.request.body;
        body.flags = ObdoFlags::empty();
        body.valid &= Valid::GRANT;
        show_sum(work, &mut body);
        self.promise(id, &mut body, cx);
        let mut answer = obdo(&body);
        let mut data = Vec::new();
        if inline {
            for span in &memory {
                data.extend_from_slice(cx.below().bytes(*span));
            }
        }
        answer.buffers.push(data);
        // A read has at most 64 MiB.
        answer.status = i32::try_from(iovec_len(&memory)).unwrap_or(i32::MAX);
        self.reply(id, answer, cx);
    }
}
