//! Attributes of objects and of the target: getattr, setattr, punch, statfs, what is known of a
//! sequence (L-78 … L-82, L-85).

use lnet_types::ByteOrder;
use lustre_wire::fid::{Fid, Valid};
use lustre_wire::ost::{Obdo, ObdoFlags, Statfs, StatfsState};
use lustre_wire::{Buffers, Layout};
use ptlrpc::{Answer, ServedId};

use super::name::Name;
use super::object::Object;
use super::plan::Plan;
use super::request::{Ask, PAGE};
use super::{Ost, obdo};
use crate::journal::{Cx, When};
use crate::store::{Change, DATA_END};

/// What the space of our stores is called: "ulnt".
const STORE: u64 = 0x756c_6e74;
/// Bytes that an object takes at least, beside its data.
const OBJECT: u64 = 4096;

/// A reply with the attributes of an object.
fn attributes(asked: &Obdo, object: &Object) -> Obdo {
    let mut body = Obdo { id: asked.id, ..Obdo::default() };
    body.valid = Valid::ID | asked.valid & Valid::GROUP;
    object.show(&mut body);
    body
}

impl Ost {
    /// Answers with the attributes of an object.
    pub(super) fn show(&mut self, id: ServedId, object: Object, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let mut body = attributes(&work.request.body, &object);
        if matches!(work.request.ask, Ask::GetAttr) {
            body.data_version = object.version;
            body.flags = ObdoFlags::FLUSH;
            body.valid |= Valid::FLAGS | Valid::DATAVERSION;
        } else {
            body.valid.remove(Valid::UID | Valid::GID | Valid::PROJID);
        }
        self.reply(id, obdo(&body), cx);
    }

    /// L-79.
    pub(super) fn set_attributes(&mut self, id: ServedId, before: Object, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let asked = work.request.body;
        let mut after = Object { version: cx.rpc.transno(id), ..before };
        after.take_times(&asked);
        after.take_owners(&asked);
        after.take_parent(&asked);
        if asked.valid.contains(Valid::MODE) {
            after.mode = before.mode & !0o7777 | asked.mode & 0o7777;
        }
        let body = attributes(&asked, &after);
        let plan = Plan::of_object(work.request.name, before, after, obdo(&body));
        self.settle(id, plan, cx);
    }

    /// L-80: the object ends where the request says.
    pub(super) fn punch(&mut self, id: ServedId, before: Object, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let asked = work.request.body;
        let version = cx.rpc.transno(id);
        let mut after = Object { version, size: asked.size, ..before };
        after.extents.cut(asked.size);
        after.take_times(&asked);
        let mut body = Obdo { id: asked.id, blocks: after.blocks(), ..Obdo::default() };
        body.valid = Valid::ID | Valid::BLOCKS;
        let mut plan = Plan::of_object(work.request.name, before, after, obdo(&body));
        if let Some(data) = before.data.filter(|_| asked.size < before.size) {
            plan.changes.push(Change::Cut { data, from: asked.size });
        }
        // The client repeats it until it is committed.
        plan.when = When::Applied;
        self.settle(id, plan, cx);
    }

    /// L-85.
    pub(super) fn last(&mut self, id: ServedId, last: u64, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let value = match work.request.ask {
            Ask::Last(Some(fid)) => {
                let of_form = Name::like(lustre_wire::fid::ObjectId::of(fid), last);
                let known = Fid { seq: of_form.first, oid: of_form.oid, ver: 0 };
                known.to_bytes(ByteOrder::Little)
            }
            _ => last.to_le_bytes().to_vec(),
        };
        self.reply(id, Answer { buffers: Buffers::from([value]), ..Answer::default() }, cx);
    }

    /// L-82.
    pub(super) fn statfs(&mut self, id: ServedId, total: u64, free: u64, cx: &mut Cx<'_, '_, '_>) {
        self.measure(cx);
        let (.., promised) = self.grants.space();
        let left = free.saturating_sub(promised);
        let mut state = StatfsState::empty();
        state.set(StatfsState::ENOSPC, left < OBJECT);
        let space = Statfs {
            kind: STORE,
            blocks: total / PAGE,
            bfree: free / PAGE,
            bavail: left / PAGE,
            files: total / OBJECT,
            ffree: left / OBJECT,
            bsize: PAGE as u32,
            namelen: 255,
            maxbytes: DATA_END,
            state,
            granted: u32::try_from(promised / PAGE).unwrap_or(u32::MAX),
            ..Statfs::default()
        };
        let buffers = Buffers::new().layout(&space);
        self.reply(id, Answer { buffers, ..Answer::default() }, cx);
    }

    /// A client gives promised space back (L-96).
    pub(super) fn shrink(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let (export, body) = (work.served.export, work.request.body);
        if !super::is_again(&work.served, &work.request) && body.valid.contains(Valid::GRANT) {
            self.grants.give_back(export, body.grant);
        }
        self.reply(id, obdo(&body), cx);
    }
}
