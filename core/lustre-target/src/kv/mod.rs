//! The key-value target: small values in records, large ones as data, a version for each key. The
//! version of a key is the transaction of its last change.
//!
//! ```text
//!  put, cas   [bulk ─►] key's turn ─► read record ─► commit
//!  del                  key's turn ─► read record ─► commit
//!  get                  key's turn ─► read record ─► [load data ─► bulk] ─► reply
//! ```
//!
//! Requests for one key take turns at its record; orders of a store take effect in order, so a turn
//! ends when the last order is given. A change that stands on one that a crash may lose for good is answered
//! when both are committed (`uncommitted.rs`). `wire.rs` has opcodes and buffers.

mod item;
mod uncommitted;
pub mod wire;

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Errno, IoVec};
use ptlrpc::{Answer, Direction, Served, ServedId};

use crate::journal::{Cx, When};
use crate::store::{Change, Outcome, Source, Space, StoreError, StoreOrder};
use crate::targets::Kind;

use item::{Item, Value};
use uncommitted::Uncommitted;
use wire::{Ask, Info, InfoFlags, KEY_MAX, Operation, VALUE_MAX};

enum Stage {
    /// Waits for the record of its key.
    Record,
    /// Bulk data move.
    Bulk,
    /// Data is read from the store.
    Load,
    /// Keys are listed.
    List,
}

struct Work {
    served: Served,
    operation: Operation,
    ask: Ask,
    key: Vec<u8>,
    /// The value, or the prefix of a listing.
    value: Vec<u8>,
    /// Memory of bulk data.
    memory: IoVec,
    /// The reply of a get that moves bulk data.
    info: Info,
    stage: Stage,
}

/// The key-value target.
#[derive(Default)]
pub struct Kv {
    work: BTreeMap<ServedId, Work>,
    /// Requests that wait for the one that is at the record of a key.
    turns: BTreeMap<Vec<u8>, VecDeque<ServedId>>,
    uncommitted: Uncommitted,
}

impl core::fmt::Debug for Kv {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Kv").field("work", &self.work.len()).finish_non_exhaustive()
    }
}

/// Reads a request.
fn read(served: &Served) -> Result<(Operation, Ask, Vec<u8>, Vec<u8>), Errno> {
    let operation = Operation::of(served.opcode).ok_or(Errno::EOPNOTSUPP)?;
    let msg = served.msg().map_err(|_| Errno::EPROTO)?;
    let ask = msg.buffer(1).and_then(|b| Ask::read(msg.order, b)).ok_or(Errno::EPROTO)?;
    let key = msg.buffer(2).ok_or(Errno::EPROTO)?.to_vec();
    let value = msg.buffer(3).unwrap_or_default().to_vec();
    let listing = operation == Operation::List;
    if key.len() > KEY_MAX || value.len() > wire::INLINE_MAX || ask.len > VALUE_MAX {
        return Err(Errno::E2BIG);
    }
    if key.is_empty() && !listing || listing && value.len() > KEY_MAX {
        return Err(Errno::EINVAL);
    }
    Ok((operation, ask, key, value))
}

impl Kv {
    /// A target with no request under way.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends a request whose answer is given, or never will be.
    fn end(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        if let Some(work) = self.work.remove(&id) {
            cx.free(&work.memory);
        }
    }

    fn refuse(&mut self, id: ServedId, errno: Errno, cx: &mut Cx<'_, '_, '_>) {
        self.end(id, cx);
        cx.rpc.refuse(id, errno);
    }

    fn give_up(&mut self, id: ServedId, e: &StoreError, cx: &mut Cx<'_, '_, '_>) {
        let replay = self.work.get(&id).is_some_and(|work| work.served.replay.is_some());
        self.end(id, cx);
        cx.not_stored(id, replay, e);
    }

    fn start(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) -> Result<(), Errno> {
        let Some(work) = self.work.get_mut(&id) else { return Ok(()) };
        if work.operation == Operation::List {
            let (after, prefix) = (work.key.clone(), work.value.clone());
            let max = (work.ask.len as usize).clamp(1, wire::LIST_MAX);
            work.stage = Stage::List;
            let (token, space) = (id.into(), Space::Objects);
            cx.order(StoreOrder::List { token, space, after, prefix, max });
            return Ok(());
        }
        if work.operation.writes() && work.ask.len > 0 {
            work.memory = cx.alloc(work.ask.len)?;
            work.stage = Stage::Bulk;
            return cx.rpc.bulk(id, Direction::Write, &work.memory);
        }
        self.take_turn(id, cx);
        Ok(())
    }

    /// The record of a key is read when those before have their orders given.
    fn take_turn(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        work.stage = Stage::Record;
        let key = work.key.clone();
        match self.turns.get_mut(&key) {
            Some(queue) => queue.push_back(id),
            None => {
                self.turns.insert(key.clone(), VecDeque::new());
                let from = Source::Record(Space::Objects, key);
                cx.order(StoreOrder::Read { token: id.into(), from });
            }
        }
    }

    fn end_turn(&mut self, key: &[u8], cx: &mut Cx<'_, '_, '_>) {
        let Some(queue) = self.turns.get_mut(key) else { return };
        match queue.pop_front() {
            Some(next) => {
                let from = Source::Record(Space::Objects, key.to_vec());
                cx.order(StoreOrder::Read { token: next.into(), from });
            }
            None => {
                self.turns.remove(key);
            }
        }
    }

    /// The record of its key is there.
    fn with_record(&mut self, id: ServedId, item: Option<Item>, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        match work.operation {
            Operation::Get => self.get(id, item, cx),
            _ => self.change(id, item, cx),
        }
    }

    fn get(&mut self, id: ServedId, item: Option<Item>, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        let Some(item) = item else { return self.refuse(id, Errno::ENOENT, cx) };
        let info = Info { version: item.version, len: item.len(), ..Info::default() };
        match item.value {
            // The client waits for bulk data of another length.
            Value::Inline(_) if work.ask.len > 0 => self.refuse(id, Errno::ESTALE, cx),
            Value::Inline(value) => {
                self.end(id, cx);
                cx.rpc.reply(id, info.answer(&[&value]));
            }
            // The client asks again with memory for it.
            Value::Data(..) if work.ask.len == 0 => {
                self.end(id, cx);
                let info = Info { flags: InfoFlags::LARGE, ..info };
                cx.rpc.reply(id, info.answer(&[]));
            }
            Value::Data(_, len) if len != work.ask.len => self.refuse(id, Errno::ESTALE, cx),
            Value::Data(data, len) => match cx.alloc(len) {
                Ok(memory) => {
                    work.memory = memory.clone();
                    work.info = Info { flags: InfoFlags::LARGE, ..info };
                    work.stage = Stage::Load;
                    let from = Source::Data { data, offset: 0, into: memory };
                    cx.order(StoreOrder::Read { token: id.into(), from });
                }
                Err(errno) => self.refuse(id, errno, cx),
            },
        }
    }

    fn change(&mut self, id: ServedId, item: Option<Item>, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let version = item.as_ref().map_or(0, |item| item.version);
        if let Some(replay) = work.served.replay {
            // P-70: its effect is there already, or is brought back to the version that it met.
            if replay.transno <= cx.committed() {
                let info =
                    Info { version: replay.transno, flags: InfoFlags::APPLIED, ..Info::default() };
                let answer = Answer { transno: replay.transno, ..info.answer(&[]) };
                self.end(id, cx);
                return cx.rpc.reply(id, answer);
            }
            let [before, ..] = replay.pre_versions;
            if before != 0 && before != version {
                cx.unfit(&work.served);
                return self.end(id, cx);
            }
        } else if work.operation == Operation::Cas && work.ask.expect != version {
            let info = Info { version, len: item.map_or(0, |item| item.len()), ..Info::default() };
            self.end(id, cx);
            return cx.rpc.reply(id, info.answer(&[]));
        }
        if work.operation == Operation::Del && item.is_none() {
            return self.refuse(id, Errno::ENOENT, cx);
        }
        let Some(mut work) = self.work.remove(&id) else { return };
        let transno = cx.rpc.transno(id);
        let mut changes = Vec::new();
        let mut info = Info { previous: version, flags: InfoFlags::APPLIED, ..Info::default() };
        let mut when = self.uncommitted.change(&work.key, transno, &work.served);
        if work.operation == Operation::Del {
            changes.push(Change::Delete(Space::Objects, work.key.clone()));
        } else {
            let value = if work.ask.len > 0 {
                let (data, bytes) = (cx.new_data(), work.memory.clone());
                changes.push(Change::Write { data, offset: 0, bytes });
                // Its client has given the memory back by the time of a replay.
                when = When::Committed;
                Value::Data(data, work.ask.len)
            } else {
                Value::Inline(core::mem::take(&mut work.value))
            };
            let new = Item { version: transno, value };
            (info.version, info.len) = (transno, new.len());
            changes.push(Change::Put(Space::Objects, work.key.clone(), new.to_bytes()));
        }
        if let Some(Value::Data(data, _)) = item.map(|item| item.value) {
            changes.push(Change::Cut { data, from: 0 });
        }
        let mut answer = info.answer(&[]);
        answer.pre_versions = [version, 0, 0, 0];
        cx.commit_data(&work.served, answer, changes, work.memory, when);
    }
}

impl Kind for Kv {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        let id = served.id;
        let (operation, ask, key, value) = match read(&served) {
            Ok(request) => request,
            Err(errno) => return cx.rpc.refuse(id, errno),
        };
        let work = Work {
            served,
            operation,
            ask,
            key,
            value,
            memory: IoVec::new(),
            info: Info::default(),
            stage: Stage::Record,
        };
        self.work.insert(id, work);
        if let Err(errno) = self.start(id, cx) {
            self.refuse(id, errno, cx);
        }
    }

    fn committed(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.uncommitted.committed(cx.committed());
    }

    fn bulk_done(
        &mut self,
        served: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let Some(work) = self.work.get_mut(&served) else { return false };
        if result.is_err() {
            self.end(served, cx);
        } else if work.operation.writes() {
            self.take_turn(served, cx);
        } else {
            let answer = work.info.answer(&[]);
            self.end(served, cx);
            cx.rpc.reply(served, answer);
        }
        true
    }

    fn stored(
        &mut self,
        token: u64,
        outcome: Result<Outcome, StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let id = ServedId::from(token);
        let Some(work) = self.work.get_mut(&id) else { return };
        match (&work.stage, outcome) {
            (Stage::Record, outcome) => {
                let key = work.key.clone();
                match outcome {
                    Ok(Outcome::Record(record)) => match record.map(|b| Item::read(&b)) {
                        Some(None) => self.refuse(id, Errno::EIO, cx),
                        item => self.with_record(id, item.flatten(), cx),
                    },
                    Err(e) => self.give_up(id, &e, cx),
                    Ok(_) => self.refuse(id, Errno::EIO, cx),
                }
                self.end_turn(&key, cx);
            }
            (_, Err(e)) => self.give_up(id, &e, cx),
            (Stage::Load, Ok(_)) => {
                work.stage = Stage::Bulk;
                if let Err(errno) = cx.rpc.bulk(id, Direction::Read, &work.memory) {
                    self.refuse(id, errno, cx);
                }
            }
            (Stage::List, Ok(Outcome::Listed { entries, more })) => {
                self.end(id, cx);
                let items = entries.iter().filter_map(|(key, record)| {
                    let item = Item::read(record)?;
                    Some((key.as_slice(), item.version, item.len()))
                });
                let (listing, cut) = wire::write_listing(items);
                let mut info = Info { len: listing.len() as u64, ..Info::default() };
                info.flags.set(InfoFlags::MORE, more || cut);
                cx.rpc.reply(id, info.answer(&[&listing]));
            }
            (Stage::List | Stage::Bulk, Ok(_)) => {}
        }
    }
}
