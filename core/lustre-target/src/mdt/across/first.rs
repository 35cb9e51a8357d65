//! The target of a directory that is made or removed, whose name is on another target.

use lnet_types::Errno;
use lustre_wire::Buffers;
use lustre_wire::mds::{CreateRecord, NameRecord};
use ptlrpc::{Answer, Served, ServedId};

use super::{Across, Change, Ended, NameChange, OPEN_MAX, Stage, What};
use crate::journal::{Cx, When};
use crate::mdt::access::Who;
use crate::mdt::inode::{DIRECTORY, Id, Inode, KIND_MASK};
use crate::mdt::open::{Parent, kind_of};
use crate::mdt::reint::{answer, stripes_of};
use crate::mdt::request::{Reint, check_name};
use crate::mdt::tree::Edit;
use crate::mdt::{Mdt, sequences, show};
use crate::sabotage::Sabotage;

impl Across {
    /// What the directory of a request's name gives, if the other target holds the name for it.
    fn prepared(&self, request: ServedId) -> Option<(u64, u32, Parent)> {
        let number = self.number_of(request)?;
        let change = self.changes.get(&number)?;
        match &change.stage {
            Stage::Prepared(parent) => Some((number, change.partner, (**parent).clone())),
            _ => None,
        }
    }

    /// A request is over: its change is not made.
    pub(in crate::mdt) fn drop_request(&mut self, request: ServedId) {
        if let Some(number) = self.number_of(request) {
            self.drop_change(number);
        }
    }

    /// The change of a request is stored: its answer waits for the other target. The answer comes back if the
    /// request has no such change.
    pub(in crate::mdt) fn stored(&mut self, request: ServedId, answer: Answer) -> Option<Answer> {
        let number = self.number_of(request);
        let early = self.breaks(Sabotage::AnsweredEarly);
        let change = number.and_then(|number| self.changes.get_mut(&number));
        match change.filter(|change| matches!(change.stage, Stage::Storing)) {
            Some(change) => {
                change.stage = Stage::Apply;
                if early {
                    return Some(answer);
                }
                change.answer = Some(answer);
                None
            }
            None => Some(answer),
        }
    }
}

impl Mdt {
    /// Whether another target has the name of a directory that a change makes or removes here.
    pub(in crate::mdt) fn crossing(&self, change: &Reint) -> Option<NameChange> {
        let (what, head, name, time) = match change {
            Reint::Create(record, name, _) if kind_of(record) == DIRECTORY => {
                (What::Add, &record.head, name, record.time)
            }
            Reint::Unlink(record, name) => (What::Remove, &record.head, name, record.time),
            _ => return None,
        };
        let dir = self.of_another(head.fid1)?;
        let file = Id::of(head.fid2).filter(|id| self.tree.is_here(*id))?;
        if what == What::Remove && !self.tree.inode(file).is_some_and(Inode::is_dir) {
            return None;
        }
        Some(NameChange { what, dir, name: name.clone(), file, time })
    }

    /// What has to be true here, before and after the other target was asked.
    fn may_cross(&self, change: &Reint, file: Id) -> Result<(), Errno> {
        match change {
            Reint::Create(record, name, data) => {
                check_name(name)?;
                self.new_id(record.head.fid2)?;
                self.may_be_striped(data)?;
                self.has_room()
            }
            Reint::Unlink(record, name) => {
                check_name(name)?;
                match record.mode & KIND_MASK {
                    DIRECTORY if self.tree.is_empty(file) => Ok(()),
                    DIRECTORY => Err(Errno::ENOTEMPTY),
                    _ => Err(Errno::EISDIR),
                }
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Whether a directory may have the layout that a client wants (C-155).
    pub(in crate::mdt) fn may_be_striped(&self, layout: &[u8]) -> Result<(), Errno> {
        let mdts = u32::try_from(self.site.mdts().count()).unwrap_or(u32::MAX);
        // As many as there are, if more are wanted.
        match stripes_of(layout).min(mdts) {
            0 | 1 => Ok(()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// A change over two targets: it begins, or goes on when the other target holds the name.
    pub(in crate::mdt) fn cross(
        &mut self,
        served: Served,
        change: &Reint,
        of: NameChange,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let allowed = Self::may_change(&served, cx).and_then(|()| self.may_cross(change, of.file));
        match (allowed, self.across.prepared(served.id)) {
            (Err(errno), _) => {
                self.across.drop_request(served.id);
                Self::unchanged(&served, Self::refusal(errno, None), cx);
                self.work(cx);
            }
            (Ok(()), Some((number, partner, parent))) => {
                self.make_half(&served, change, (number, partner), &parent, cx);
            }
            (Ok(()), None) => self.begin_crossing(served, change, of, cx),
        }
    }

    fn begin_crossing(
        &mut self,
        served: Served,
        change: &Reint,
        of: NameChange,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(partner) = sequences::mdt_of(of.dir) else { return };
        if self.across.is_dying(of.file) || self.across.holds_in(of.file) {
            return self.hold_up(served, cx);
        }
        if self.across.changes.len() >= OPEN_MAX {
            return cx.rpc.refuse(served.id, Errno::EINPROGRESS);
        }
        let who = match change {
            Reint::Create(record, ..) => Who::from(record),
            Reint::Unlink(record, _) => Who::from(record),
            _ => return,
        };
        let owner = self.tree.inode(of.file).map_or(0, |inode| inode.uid);
        let number = self.across.number();
        let change = Change {
            partner,
            stage: Stage::Ask { owner, who },
            change: Some(of),
            request: Some((served.id, served.export)),
            served: Some(served),
            answer: None,
            call: None,
            again: None,
        };
        self.across.changes.insert(number, change);
        self.work(cx);
    }

    /// The half of a change that is here, with the record that the other half is to be made.
    fn make_half(
        &mut self,
        served: &Served,
        change: &Reint,
        (number, partner): (u64, u32),
        parent: &Parent,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let transno = cx.rpc.transno(served.id);
        if transno == 0 {
            self.across.drop_request(served.id);
            return self.work(cx);
        }
        let mut edit = Edit::new(&mut self.tree, transno);
        let buffers = match change {
            Reint::Create(record, ..) => make(&mut edit, record, parent),
            Reint::Unlink(record, _) => remove(&mut edit, record),
            _ => Buffers::new(),
        };
        edit.set_pending(number, partner);
        let changes = edit.finish();
        if let Some(change) = self.across.changes.get_mut(&number) {
            change.stage = Stage::Storing;
        }
        self.measure(cx);
        let answer = Answer { buffers, ..Answer::default() };
        cx.commit_part(served, answer, changes, When::Committed);
    }

    /// A call to another target has ended.
    pub(in crate::mdt) fn crossed(&mut self, ended: Ended, cx: &mut Cx<'_, '_, '_>) {
        match ended {
            Ended::Nothing => {}
            Ended::GoesOn(served) => self.serve_file(*served, cx),
            Ended::Refused(request, errno) => {
                cx.rpc.reply(request, Self::refusal(errno, None));
            }
            Ended::Made(number, answered) => {
                let mut edit = Edit::new(&mut self.tree, cx.last());
                edit.remove_pending(number);
                let changes = edit.finish();
                cx.batch(changes);
                if let Some((request, answer)) = answered {
                    cx.rpc.reply(request, answer);
                }
            }
        }
        self.work(cx);
        self.go_on(cx);
    }
}

/// A directory is made.
fn make(edit: &mut Edit<'_>, record: &CreateRecord, parent: &Parent) -> Buffers {
    let (Some(dir), Some(id)) = (Id::of(record.head.fid1), Id::of(record.head.fid2)) else {
        return Buffers::new();
    };
    Mdt::add_inode(edit, id, parent.child(record, dir), parent.default_acl.as_deref());
    let body = edit.tree().inode(id).map(|inode| show::body(id, inode)).unwrap_or_default();
    answer(&body, 3)
}

/// A directory loses its name, and goes if it is not open.
fn remove(edit: &mut Edit<'_>, record: &NameRecord) -> Buffers {
    let Some(id) = Id::of(record.head.fid2) else { return Buffers::new() };
    let before = edit.tree().inode(id).cloned().unwrap_or_default();
    edit.change(id, |inode| {
        inode.nlink = 0;
        inode.ctime = inode.ctime.max(record.time);
    });
    if !edit.tree().is_open(id) {
        edit.remove_inode(id);
    }
    answer(&Mdt::removed(edit, id, before), 5)
}
