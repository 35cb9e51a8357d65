//! The target that has the name of a directory that is made or removed on another one.

use lnet_types::Errno;
use lustre_wire::Buffers;
use ptlrpc::{Answer, Served};

use super::wire::{Decision, decision_bytes, is_asked_again};
use super::{Across, Message, NameChange, OPEN_MAX, Order, Past, What};
use crate::journal::Cx;
use crate::mdt::access::{EXECUTE, Who};
use crate::mdt::inode::{DIRECTORY, Id, Inode};
use crate::mdt::open::Parent;
use crate::mdt::request::{Ask, Reint, check_name};
use crate::mdt::tree::{ChangeId, Edit, Entry};
use crate::mdt::{Mdt, Stage, sequences};
use crate::sabotage::Sabotage;
use crate::store::StoreOrder;

/// Requests that wait for names that are held. Further ones are to come again: what a dead target holds up
/// leaves room for what has nothing to do with it.
const HELD_UP_MAX: usize = 16;

fn decided(decision: &Decision) -> Answer {
    Answer { buffers: Buffers::from([decision_bytes(decision)]), ..Answer::default() }
}

impl Across {
    /// A change is over: it was made, dropped or refused.
    fn end(&mut self, (from, number): ChangeId) {
        if let Some(past) = self.past.get_mut(&from) {
            past.end(number);
        }
    }

    /// A name is no longer held.
    pub(in crate::mdt) fn release(&mut self, change: ChangeId) {
        self.held.retain(|_, id| *id != change);
    }
}

impl Mdt {
    /// What another target asks for.
    pub(in crate::mdt) fn second(
        &mut self,
        served: Served,
        message: Message,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Message { from, number, lowest, order } = message;
        let client = cx.rpc.client(served.export).map(|(client, _)| client);
        let known = self.across.partners.contains_key(&from);
        if !known || client != Some(self.site.mdt_client(from).as_str()) {
            return cx.rpc.refuse(served.id, Errno::EPERM);
        }
        if let Some(past) = self.across.past.get_mut(&from) {
            past.rise(lowest);
        }
        match order {
            Order::Settle(open) => self.settle(&served, (from, number), &open, cx),
            Order::Prepare(change, owner, who) => {
                self.prepare(&served, (from, number), change, (owner, &who), cx);
            }
            Order::Apply => self.apply(&served, (from, number), cx),
            Order::Drop => {
                self.across.end((from, number));
                self.let_go(&[(from, number)], cx);
                cx.rpc.reply(served.id, decided(&Ok(Parent::default())));
                self.go_on(cx);
            }
        }
    }

    /// Of a target's changes up to a number only these are under way. Those above it began after the message: a
    /// copy of one that was settled before comes late, and names none of them.
    fn settle(
        &mut self,
        served: &Served,
        (from, last): ChangeId,
        open: &[u64],
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let kept = self.across.breaks(Sabotage::NameKept);
        let gone = self.tree.all_prepared().map(|(id, _)| id).filter(|_| !kept);
        let gone: Vec<ChangeId> = gone
            .filter(|(index, number)| *index == from && *number <= last && !open.contains(number))
            .collect();
        self.let_go(&gone, cx);
        let settled = || Past::settled(last);
        self.across.past.entry(from).or_insert_with(settled).rise(last.saturating_add(1));
        cx.rpc.reply(served.id, decided(&Ok(Parent::default())));
        self.go_on(cx);
    }

    /// Names are not held any more, and their changes not made.
    fn let_go(&mut self, gone: &[ChangeId], cx: &mut Cx<'_, '_, '_>) {
        let mut edit = Edit::new(&mut self.tree, cx.last());
        for id in gone {
            // One that is being stored is held until that is done.
            if edit.remove_prepared(*id).is_some() {
                self.across.release(*id);
            }
        }
        let changes = edit.finish();
        if !changes.is_empty() {
            cx.batch(changes);
        }
    }

    fn prepare(
        &mut self,
        served: &Served,
        id: ChangeId,
        change: NameChange,
        (owner, who): (u32, &Who),
        cx: &mut Cx<'_, '_, '_>,
    ) {
        // A copy that comes when the change is over holds its name no more.
        if self.across.past.get(&id.0).is_none_or(|past| !past.admits(id.1)) {
            return cx.rpc.refuse(served.id, Errno::EAGAIN);
        }
        let decision = self.may_prepare(id, &change, owner, who);
        if let Err(errno) = decision {
            if !is_asked_again(errno) {
                self.across.end(id);
            }
            return cx.rpc.reply(served.id, decided(&decision));
        }
        if self.tree.prepared(id).is_none() {
            self.across.held.insert((change.dir, change.name.clone()), id);
            let mut edit = Edit::new(&mut self.tree, cx.last());
            edit.set_prepared(id, change);
            let changes = edit.finish();
            cx.batch(changes);
        }
        let order = StoreOrder::Sync { token: served.id.into() };
        self.wait(served, Stage::Sync(decided(&decision)), order, cx);
    }

    fn may_prepare(&self, id: ChangeId, change: &NameChange, owner: u32, who: &Who) -> Decision {
        let NameChange { what, name, file, .. } = change;
        if let Some(same) = self.tree.prepared(id) {
            return if same == change { Ok(self.gives(same.dir)) } else { Err(Errno::EPROTO) };
        }
        if sequences::mdt_of(*file) != Some(id.0) {
            return Err(Errno::EPROTO);
        }
        let (dir, parent) = self.dir(change.dir.fid())?;
        if self.across.is_held(dir, name) || self.across.is_dying(dir) {
            return Err(Errno::EAGAIN);
        }
        let of_target = self.tree.all_prepared().filter(|((index, _), _)| *index == id.0);
        if of_target.count() >= OPEN_MAX {
            return Err(Errno::EBUSY);
        }
        match what {
            What::Add => self.may_add(dir, name, DIRECTORY, who),
            What::Remove => {
                who.may(parent, EXECUTE)?;
                check_name(name)?;
                let entry = self.tree.lookup(dir, name).filter(|entry| entry.id == *file);
                entry.ok_or(Errno::ENOENT)?;
                who.may_remove(parent, &Inode { uid: owner, ..Inode::default() })?;
                Ok(Parent::default())
            }
        }
    }

    /// What new files get from a directory.
    fn gives(&self, dir: Id) -> Parent {
        self.tree.inode(dir).map(|inode| self.parent(dir, inode)).unwrap_or_default()
    }

    /// The change of a name is made.
    fn apply(&mut self, served: &Served, id: ChangeId, cx: &mut Cx<'_, '_, '_>) {
        let stays = self.across.breaks(Sabotage::NameStays);
        self.across.end(id);
        let mut edit = Edit::new(&mut self.tree, cx.last());
        // What is not held was applied before, and may not be stored yet.
        if let Some(NameChange { what, dir, name, file, time }) = edit.remove_prepared(id) {
            match what {
                What::Add => {
                    Self::add_name(
                        &mut edit,
                        dir,
                        &name,
                        Entry { id: file, kind: DIRECTORY },
                        time,
                    );
                }
                What::Remove if stays => {}
                What::Remove => {
                    edit.remove_name(dir, &name);
                    edit.change(dir, |dir| {
                        dir.nlink = dir.nlink.saturating_sub(1);
                        dir.mtime = dir.mtime.max(time);
                        dir.ctime = dir.ctime.max(time);
                    });
                }
            }
        }
        let changes = edit.finish();
        if !changes.is_empty() {
            cx.batch(changes);
        }
        let stage = Stage::Applied(decided(&Ok(Parent::default())), id);
        self.wait(served, stage, StoreOrder::Sync { token: served.id.into() }, cx);
    }

    /// Whether a request has to wait for the end of a change over two targets.
    pub(in crate::mdt) fn is_held_up(&self, ask: &Ask) -> bool {
        let across = &self.across;
        let open = !across.held.is_empty() || !across.changes.is_empty();
        if !open || across.breaks(Sabotage::HeldNotWaited) {
            return false;
        }
        let held = |dir, name: &[u8]| Id::of(dir).is_some_and(|dir| across.is_held(dir, name));
        let dying = |dir| Id::of(dir).is_some_and(|dir| across.is_dying(dir));
        // A name that is held is one of its directory, which is not empty.
        let victim = |dir, name: &[u8]| self.child(dir, name).is_some_and(|id| across.holds_in(id));
        match ask {
            Ask::Lookup(body, name) | Ask::Intent(body, name) => held(body.fid1, name),
            Ask::Open(record, name, _) => held(record.head.fid1, name) || dying(record.head.fid1),
            Ask::Reint(Reint::Create(record, name, _)) => {
                held(record.head.fid1, name) || dying(record.head.fid1)
            }
            Ask::Reint(Reint::Link(record, name)) => {
                held(record.head.fid2, name) || dying(record.head.fid2)
            }
            Ask::Reint(Reint::Unlink(record, name)) => {
                held(record.head.fid1, name) || victim(record.head.fid1, name)
            }
            Ask::Reint(Reint::Rename(record, from, to)) => {
                let (source, target) = (record.head.fid1, record.head.fid2);
                held(source, from) || held(target, to) || dying(target) || victim(target, to)
            }
            _ => false,
        }
    }

    /// A request waits for the end of a change over two targets.
    pub(in crate::mdt) fn hold_up(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        match self.held_up.len() < HELD_UP_MAX {
            true => self.held_up.push_back(served),
            false => cx.rpc.refuse(served.id, Errno::EINPROGRESS),
        }
    }
}
