//! What a request changes, on its way to the store: with what the owners of objects have afterwards,
//! and the record of its answer. That names no versions, as in all recordings: a change of an object says
//! what is there afterwards, whatever was there before, and is brought back without what others have lost
//! (P-152).

use std::collections::BTreeMap;

use lnet_types::{ByteOrder, Errno};
use lustre_wire::Layout;
use lustre_wire::fid::Valid;
use lustre_wire::ost::NiobufFlags;
use ptlrpc::{Answer, Served, ServedId};

use super::create::Removal;
use super::name::{Name, usage_key};
use super::object::Object;
use super::request::Ask;
use super::{Ost, Stage, obdo};
use crate::journal::{Cx, When};
use crate::store::{Change, Source, Space, StoreOrder};

/// What a request changes.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    /// Bytes that owners have more, or fewer.
    pub(super) deltas: BTreeMap<u32, i128>,
    pub(super) answer: Answer,
    pub(super) when: When,
    /// The object that changes, as it is afterwards.
    after: Option<Box<(Name, Object)>>,
    /// What is to be removed after this.
    pub(super) rest: Option<Removal>,
}

/// Whether the effect of a request that is executed again is there, and committed (P-70).
pub(super) fn is_done(served: &Served, cx: &Cx<'_, '_, '_>) -> bool {
    served.replay.is_some_and(|replay| replay.transno <= cx.committed())
}

impl Plan {
    pub(super) fn new(changes: Vec<Change>, answer: Answer) -> Self {
        let (deltas, when) = (BTreeMap::new(), When::Applied);
        Self { changes, deltas, answer, when, after: None, rest: None }
    }

    /// One object changes.
    pub(super) fn of_object(name: Name, before: Object, after: Object, answer: Answer) -> Self {
        let put = Change::Put(Space::Objects, name.key(), after.to_bytes());
        let mut plan = Self::new(vec![put], answer);
        plan.after = Some(Box::new((name, after)));
        plan.account(before.uid, -i128::from(before.size));
        plan.account(after.uid, i128::from(after.size));
        plan
    }

    /// One object is removed.
    pub(super) fn remove(&mut self, name: Name, object: &Object) {
        self.changes.push(Change::Delete(Space::Objects, name.key()));
        self.changes.extend(object.data.map(|data| Change::Cut { data, from: 0 }));
        self.account(object.uid, -i128::from(object.size));
    }

    fn account(&mut self, uid: u32, bytes: i128) {
        let delta = self.deltas.entry(uid).or_default();
        *delta += bytes;
        if *delta == 0 {
            self.deltas.remove(&uid);
        }
    }
}

impl Ost {
    /// Takes a plan to the store, once the accounts of the owners are known.
    pub(super) fn settle(&mut self, id: ServedId, plan: Plan, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get_mut(&id) else { return };
        let Some(uid) = plan.deltas.keys().next().copied() else {
            return self.store(id, plan, cx);
        };
        work.stage = Stage::Usage(plan, uid);
        let from = Source::Record(Space::Meta, usage_key(uid));
        cx.order(StoreOrder::Read { token: id.into(), from });
    }

    /// What an owner has is known.
    pub(super) fn charge(
        &mut self,
        id: ServedId,
        mut plan: Plan,
        uid: u32,
        used: u64,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(work) = self.work.get(&id) else { return };
        let delta = plan.deltas.remove(&uid).unwrap_or_default();
        let now = u64::try_from((i128::from(used) + delta).max(0)).unwrap_or(u64::MAX);
        let privileged = match &work.request.ask {
            Ask::Write(ranges, _) => ranges.list.iter().all(|range| {
                range.flags.intersects(NiobufFlags::NOQUOTA | NiobufFlags::SYS_RESOURCE)
            }),
            _ => false,
        };
        let over = self.limits.uid_bytes.is_some_and(|most| delta > 0 && now > most);
        // What a client has been answered is brought back, whatever the limit is now.
        if over && !privileged && work.served.replay.is_none() {
            return self.refuse(id, Errno::EDQUOT, cx);
        }
        let key = usage_key(uid);
        plan.changes.push(match now {
            0 => Change::Delete(Space::Meta, key),
            now => Change::Put(Space::Meta, key, now.to_le_bytes().to_vec()),
        });
        self.settle(id, plan, cx);
    }

    fn store(&mut self, id: ServedId, plan: Plan, cx: &mut Cx<'_, '_, '_>) {
        let Plan { changes, answer, when, after, rest, .. } = plan;
        if let Some(rest) = rest {
            cx.batch(changes);
            return self.remove_rest(id, rest, cx);
        }
        let Some(mut work) = self.work.remove(&id) else { return };
        if let Some(replay) = work.served.replay.filter(|_| is_done(&work.served, cx)) {
            cx.free(&work.memory);
            return cx.rpc.reply(id, Answer { transno: replay.transno, ..answer });
        }
        let memory = core::mem::take(&mut work.memory);
        // `false`: the request is over, and changes nothing.
        if cx.commit_data(&work.served, answer, changes, memory, when)
            && let Some(after) = after
        {
            self.show_locks(after.0, &after.1);
        }
        // A store does things in order: what follows finds the change.
        self.let_go(&work, cx);
        self.measure(cx);
    }

    /// A request that is executed again, whose effect is there: the object may have gone on since, or
    /// be gone.
    pub(super) fn repeat(&mut self, id: ServedId, object: Option<Object>, cx: &mut Cx<'_, '_, '_>) {
        let Some(work) = self.work.get(&id) else { return };
        let mut body = work.request.body;
        if let Some(object) = object {
            object.show(&mut body);
        }
        body.valid.remove(Valid::GRANT);
        let mut answer = obdo(&body);
        if let Ask::Write(ranges, _) = &work.request.ask {
            let results: Vec<u8> = vec![0; ranges.list.len() * <u32 as Layout>::LEN];
            answer.buffers.push(results);
        }
        self.store(id, Plan::new(Vec::new(), answer), cx);
    }

    /// The results of ranges, as a buffer.
    pub(super) fn results(results: &[Errno]) -> Vec<u8> {
        let words = results.iter().map(|errno| errno.negative());
        words.flat_map(|word| word.to_bytes(ByteOrder::Little)).collect()
    }
}
