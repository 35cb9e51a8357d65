//! Objects that are made ahead, and objects that are removed (L-83, L-86).

use lnet_types::Errno;
use lustre_wire::fid::Valid;
use lustre_wire::ost::{Obdo, ObdoFlags};
use lustre_wire::{ConnectData, ConnectFlags};
use ptlrpc::{Answer, ServedId};

use super::name::{Name, last_key};
use super::object::Object;
use super::plan::{self, Plan};
use super::{Ost, Stage, obdo};
use crate::journal::{Cx, When};
use crate::store::{Change, LIST_MAX, Space, StoreOrder};

/// Objects of one sequence: what a client may count on.
const WIDTH: u64 = 0x1ff_ffff;
/// An MDT that is so far behind does not remember: nothing is removed for it.
const ORPHANS_MAX: u64 = 20_000;
/// A request for more than this is for another sequence of events than ours.
const AHEAD_MAX: u64 = 100_000;
/// Objects that one request makes: what one transaction can hold, with room for its record.
const BATCH: u64 = 8_000;

/// Objects to be removed.
#[derive(Debug)]
pub(super) struct Removal {
    seq: u64,
    /// The first of those that are left.
    first: u64,
    last: u64,
    /// Whether one was found.
    found: bool,
    /// The last number of the sequence afterwards, if that changes.
    ends_at: Option<u64>,
    answer: Answer,
}

impl Ost {
    /// The last number of a sequence is known: objects are made up to the wanted one.
    pub(super) fn create(&mut self, id: ServedId, last: u64, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let (request, name) = (&work.request, work.request.name);
        let form = request.body.id;
        let reply = |number: u64| {
            let mut body = Obdo { id: Name::like(form, number), size: WIDTH, ..Obdo::default() };
            body.valid = Valid::ID | Valid::SIZE | Valid::GROUP;
            obdo(&body)
        };
        let replayed = work.served.replay.is_some();
        if plan::is_done(&work.served, cx) {
            return self.settle(id, Plan::new(vec![], reply(last)), cx);
        }
        let mut want = name.id;
        if request.has(ObdoFlags::RECREATE) {
            return match replayed && want <= last {
                true => self.settle(id, Plan::new(vec![], reply(last)), cx),
                false => self.refuse(id, Errno::EINVAL, cx),
            };
        }
        if request.has(ObdoFlags::DELORPHAN) {
            if want < last && last - want > ORPHANS_MAX {
                // The view of the target wins.
                return self.reply(id, reply(last + 1), cx);
            }
            if want < last {
                let granted = cx.rpc.granted(work.served.export);
                let skips = |data: ConnectData| data.flags.contains(ConnectFlags::SKIP_ORPHAN);
                // Late writes to what goes here must not meet an object that is made again.
                let ends_at = if granted.is_some_and(skips) { last } else { want };
                let (seq, first) = (name.seq, want + 1);
                let answer = reply(ends_at);
                let ends_at = Some(ends_at);
                let removal = Removal { seq, first, last, found: true, ends_at, answer };
                return self.list(id, removal, cx);
            }
        } else if want == 0 {
            want = last + 1;
        } else if want < last {
            return self.reply(id, reply(last + 1), cx);
        }
        if want > name.most() {
            return self.refuse(id, Errno::ENOSPC, cx);
        }
        let from = if want - last > AHEAD_MAX { want - ORPHANS_MAX } else { last };
        let end = want.min(from + BATCH);
        let version = cx.rpc.transno(id);
        let object = Object::new(version).to_bytes();
        let made = (from + 1..=end)
            .map(|id| Change::Put(Space::Objects, Name { id, ..name }.key(), object.clone()));
        let mut changes: Vec<_> = made.collect();
        changes.push(Change::Put(Space::Meta, last_key(name.seq), end.to_le_bytes().to_vec()));
        let mut plan = Plan::new(changes, reply(end));
        // The metadata target gives them to files at once, and one without a record repeats nothing.
        plan.when = When::Committed;
        self.settle(id, plan, cx);
    }

    /// Removes the objects that a request names.
    pub(super) fn destroy(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let (body, name) = (work.request.body, work.request.name);
        let count = if body.valid.contains(Valid::OBJCOUNT) { body.misc.max(1) } else { 1 };
        let end = name.id.saturating_add(count.into());
        let reply = obdo(&Obdo { id: Name::like(body.id, end), ..Obdo::default() });
        if plan::is_done(&work.served, cx) {
            return self.settle(id, Plan::new(vec![], reply), cx);
        }
        let (seq, first, last) = (name.seq, name.id, end - 1);
        let removal = Removal { seq, first, last, found: false, ends_at: None, answer: reply };
        self.list(id, removal, cx);
    }

    fn list(&mut self, id: ServedId, removal: Removal, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        let before = Name { seq: removal.seq, id: removal.first.saturating_sub(1) };
        let left = removal.last.saturating_sub(removal.first).saturating_add(1);
        let (token, space, after) = (id.into(), Space::Objects, before.key());
        let (prefix, max) =
            (removal.seq.to_be_bytes().to_vec(), left.min(LIST_MAX as u64) as usize);
        work.stage = Stage::List(removal);
        cx.order(StoreOrder::List { token, space, after, prefix, max });
    }

    /// A page of objects to be removed is known.
    pub(super) fn remove(
        &mut self,
        id: ServedId,
        mut removal: Removal,
        entries: &[(Vec<u8>, Vec<u8>)],
        more: bool,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let mut plan = Plan::new(Vec::new(), Answer::default());
        let mut further = more;
        for (key, record) in entries {
            let (Some(name), Some(object)) = (Name::of_key(key), Object::read(record)) else {
                return self.refuse(id, Errno::EIO, cx);
            };
            if name.id > removal.last {
                further = false;
                break;
            }
            removal.found = true;
            removal.first = name.id + 1;
            plan.remove(name, &object);
        }
        if further && removal.first <= removal.last {
            plan.rest = Some(removal);
            return self.settle(id, plan, cx);
        }
        if !removal.found {
            return self.refuse(id, Errno::ENOENT, cx);
        }
        if let Some(last) = removal.ends_at {
            let last = last.to_le_bytes().to_vec();
            plan.changes.push(Change::Put(Space::Meta, last_key(removal.seq), last));
        }
        plan.answer = removal.answer;
        plan.when = When::Applied;
        self.settle(id, plan, cx);
    }

    /// A page is removed, and others are left.
    pub(super) fn remove_rest(&mut self, id: ServedId, removal: Removal, cx: &mut Cx<'_, '_, '_>) {
        self.list(id, removal, cx);
    }
}
