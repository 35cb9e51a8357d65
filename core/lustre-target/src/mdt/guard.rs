//! Locks around requests for names and attributes: what a request changes is called back from the clients
//! that have it cached before the change is made (C-60 … C-70, C-87, C-187), and what a client may cache
//! goes out as a lock with the result of its intent.
//!
//! ```text
//!  request ─► needs ─► locks of the target, one after the other ─► decided at once ─► locks go
//!                              └─ waits for clients that are called back
//! ```
//!
//! A request is decided in one turn, so the locks of the target exclude clients only, and not other
//! requests. They are taken in the order of their resources: no two requests wait for each other.

use ldlm::server::BitsAsk;
use ldlm::{Cookie, Mode};
use lnet_types::Errno;
use lustre_wire::connect::ConnectFlags;
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{Disposition, InodeBits, LockFlags, LockReply, LockRequest, ResourceName};
use lustre_wire::mds::{CreateRecord, MdtBody, SetattrValid};
use lustre_wire::{Buffers, Fid, Layout};
use ptlrpc::{Answer, ExportId, Served, ServedId};

use super::acl;
use super::across::{Message, NameChange, Order, What};
use super::inode::{Id, Inode};
use super::open::{lays_out, may_create};
use super::request::{Ask, Reint, Request};
use super::{Mdt, ORDER, request};
use crate::journal::Cx;

/// All that a client may cache of a file that goes (C-70); open handles are no part of it.
const WHOLE: InodeBits = InodeBits::LOOKUP
    .union(InodeBits::UPDATE)
    .union(InodeBits::LAYOUT)
    .union(InodeBits::PERM)
    .union(InodeBits::XATTR)
    .union(InodeBits::DOM);

/// What no other client may have cached while a request is decided: parts of files, in their order.
type Needs = Vec<(Id, Mode, InodeBits)>;

/// A request that waits for locks of the target.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) served: Served,
    needs: Needs,
    locks: Vec<Cookie>,
}

/// What waits for a lock of the target.
#[derive(Debug)]
pub(super) enum LockedOut {
    /// A request for names or attributes.
    Names(Box<Guarded>),
    /// A request for data.
    Data(ServedId),
}

impl Mdt {
    pub(super) fn child(&self, dir: Fid, name: &[u8]) -> Option<Id> {
        Some(self.tree.lookup(Id::of(dir)?, name)?.id)
    }

    /// What a change of names or attributes needs.
    fn needs_of(&self, change: &Reint) -> Vec<(Option<Id>, Mode, InodeBits)> {
        let names = |dir: Fid| (Id::of(dir), Mode::Pw, InodeBits::UPDATE);
        let whole = |id| (id, Mode::Ex, WHOLE);
        match change {
            Reint::Create(record, ..) => vec![names(record.head.fid1)],
            Reint::Link(record, _) => {
                vec![
                    (Id::of(record.head.fid1), Mode::Ex, InodeBits::UPDATE),
                    names(record.head.fid2),
                ]
            }
            Reint::Unlink(record, name) => {
                let dir = record.head.fid1;
                // Of a directory whose name is on another target the client names the file (C-131).
                let victim = match self.crossing(change) {
                    Some(of) => Some(of.file),
                    None => self.child(dir, name),
                };
                vec![names(dir), whole(victim)]
            }
            Reint::Rename(record, from, to) => {
                let (source, target) = (record.head.fid1, record.head.fid2);
                let moved = InodeBits::LOOKUP | InodeBits::UPDATE;
                vec![
                    names(source),
                    names(target),
                    (self.child(source, from), Mode::Ex, moved),
                    whole(self.child(target, to)),
                ]
            }
            Reint::Setattr(record) => {
                let owner = SetattrValid::MODE | SetattrValid::UID | SetattrValid::GID;
                let mut bits = InodeBits::UPDATE;
                bits.set(InodeBits::LOOKUP | InodeBits::PERM, record.valid.intersects(owner));
                vec![(Id::of(record.fid), Mode::Pw, bits)]
            }
            Reint::Setxattr(record, name, _) => {
                let mut bits = InodeBits::XATTR | InodeBits::UPDATE | InodeBits::LAYOUT;
                // It changes what a user may do.
                bits.set(InodeBits::LOOKUP | InodeBits::PERM, name == acl::ACCESS);
                vec![(Id::of(record.fid), Mode::Pw, bits)]
            }
        }
    }

    /// What an open needs: it changes a directory, or gives a file its layout, or nothing.
    fn needs_of_open(
        &self,
        record: &CreateRecord,
        name: &[u8],
    ) -> Vec<(Option<Id>, Mode, InodeBits)> {
        let head = &record.head;
        let named = self.child(head.fid1, name);
        let id = if name.is_empty() { Id::of(head.fid2) } else { named };
        if id.is_some_and(|id| !self.tree.is_here(id)) {
            return Vec::new();
        }
        match id.and_then(|id| self.tree.inode(id)) {
            None if may_create(record.flags_low) => {
                vec![(Id::of(head.fid1), Mode::Pw, InodeBits::UPDATE)]
            }
            Some(inode) if lays_out(record.flags_low, inode) => {
                vec![(id, Mode::Ex, InodeBits::LAYOUT | InodeBits::UPDATE)]
            }
            _ => Vec::new(),
        }
    }

    /// What the change of a name needs whose file is on another target.
    fn needs_of_name(&self, change: Option<&NameChange>) -> Vec<(Option<Id>, Mode, InodeBits)> {
        let Some(change) = change else { return Vec::new() };
        let mut all = vec![(Some(change.dir), Mode::Pw, InodeBits::UPDATE)];
        if change.what == What::Remove {
            all.push((Some(change.file), Mode::Ex, WHOLE));
        }
        all
    }

    fn needs(&self, ask: &Ask) -> Needs {
        let shared = |id: Option<Id>| {
            vec![(id, Mode::Pr, InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::PERM)]
        };
        let all = match ask {
            Ask::Reint(change) => self.needs_of(change),
            Ask::Open(record, name, _) => self.needs_of_open(record, name),
            Ask::GetAttr(body) => shared(Id::of(body.fid1)),
            Ask::Lookup(body, name) => shared(self.child(body.fid1, name)),
            Ask::Intent(body, name) => shared(self.meant(body, name)),
            Ask::Across(Message { from, number, order: Order::Apply, .. }) => {
                self.needs_of_name(self.tree.prepared((*from, *number)))
            }
            _ => Vec::new(),
        };
        let mut needs: Needs = Vec::new();
        for (id, mode, bits) in all {
            let Some(id) = id else { continue };
            match needs.iter_mut().find(|need| need.0 == id) {
                // The stronger mode of the two excludes what either does.
                Some(need) => {
                    need.1 = if need.1 == Mode::Ex || mode == Mode::Ex { Mode::Ex } else { mode };
                    need.2 |= bits;
                }
                None => needs.push((id, mode, bits)),
            }
        }
        needs.sort_by_key(|need| need.0);
        needs
    }

    /// The file that an intent is for.
    pub(super) fn meant(&self, asked: &MdtBody, name: &[u8]) -> Option<Id> {
        if !name.is_empty() {
            return self.child(asked.fid1, name);
        }
        let named = asked.fid2 != Fid::default() && !asked.valid.contains(Valid::CROSSREF);
        Id::of(if named { asked.fid2 } else { asked.fid1 })
    }

    /// Has a request decided under the locks that it needs.
    pub(super) fn guard(&mut self, served: Served, request: Request, cx: &mut Cx<'_, '_, '_>) {
        // What is repeated after a crash was done under locks, and nothing is cached yet.
        let needs = match served.replay {
            Some(_) => Vec::new(),
            None => self.needs(&request.ask),
        };
        // Without a client that caches there is none to be called back.
        if needs.is_empty() || self.locks.space().view().locks == 0 {
            return self.decide(served, request.ask, cx);
        }
        self.lock(Guarded { served, needs, locks: Vec::new() }, cx);
    }

    /// Takes the locks that are missing, and decides the request if none of them waits.
    fn lock(&mut self, mut guarded: Guarded, cx: &mut Cx<'_, '_, '_>) {
        while let Some((id, mode, bits)) = guarded.needs.get(guarded.locks.len()).copied() {
            let resource = ResourceName::of(id.fid());
            match self.locks.lock_bits_locally(resource, mode, bits, cx.rpc) {
                Ok((lock, granted)) => {
                    guarded.locks.push(lock);
                    if !granted {
                        self.locked_out.insert(lock, LockedOut::Names(Box::new(guarded)));
                        return;
                    }
                }
                Err(errno) => {
                    let id = guarded.served.id;
                    self.unlock(&guarded.locks, cx);
                    self.across.drop_request(id);
                    return cx.rpc.refuse(id, errno);
                }
            }
        }
        let Guarded { served, needs, locks } = guarded;
        // It was read before.
        if let Ok(Some(Request { ask, .. })) = request::read(&served) {
            if self.needs(&ask) == needs {
                self.decide(served, ask, cx);
            } else {
                // Names have gone to other files meanwhile.
                self.unlock(&locks, cx);
                return self.serve_file(served, cx);
            }
        }
        self.unlock(&locks, cx);
    }

    fn unlock(&mut self, locks: &[Cookie], cx: &mut Cx<'_, '_, '_>) {
        for lock in locks {
            self.locks.unlock_locally(*lock, cx.rpc);
        }
    }

    /// Lets go on what has waited for locks that are granted now.
    pub(super) fn unlocked(&mut self, cx: &mut Cx<'_, '_, '_>) {
        while let Some(lock) = self.locks.poll_local() {
            match self.locked_out.remove(&lock) {
                Some(LockedOut::Names(guarded)) => self.lock(*guarded, cx),
                Some(LockedOut::Data(id)) => self.start_data(id, cx),
                None => {}
            }
        }
    }

    /// A client is gone: what it asked for and waits for locks is void.
    pub(super) fn drop_guarded(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        let of = |out: &LockedOut| match out {
            LockedOut::Names(guarded) => guarded.served.export == export,
            LockedOut::Data(_) => false,
        };
        let void: Vec<Cookie> =
            self.locked_out.iter().filter(|(_, out)| of(out)).map(|(lock, _)| *lock).collect();
        for lock in void {
            if let Some(LockedOut::Names(guarded)) = self.locked_out.remove(&lock) {
                self.unlock(&guarded.locks, cx);
                cx.rpc.decline(guarded.served.id);
            }
        }
    }

    /// The lock for the reply to an intent for a file, if its client wants one and no other lock excludes it
    /// (C-61, C-87, C-186): what the client may cache from now on.
    fn reserve(
        &mut self,
        served: &Served,
        request: &LockRequest,
        found: Found,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Option<Cookie> {
        if request.flags.contains(LockFlags::INTENT_ONLY) || served.replay.is_some() {
            return None;
        }
        let terms = cx.rpc.granted(served.export)?;
        if !terms.flags.contains(ConnectFlags::IBITS) {
            return None;
        }
        let known = InodeBits::from_bits_retain(terms.ibits_known);
        let layouts = terms.flags.contains(ConnectFlags::LAYOUTLOCK);
        let layout = if layouts { InodeBits::LAYOUT } else { InodeBits::empty() };
        let Found { id, what } = found;
        let is_file = self.tree.inode(id).is_some_and(Inode::is_file);
        let (mode, bits, try_bits) = match what {
            Beside::Attributes(bits) if is_file => (Mode::Pr, bits, layout),
            Beside::Attributes(bits) => (Mode::Pr, bits, InodeBits::empty()),
            Beside::Open(mode, data) => {
                let bits = InodeBits::LOOKUP | InodeBits::PERM;
                (mode, bits, InodeBits::UPDATE | layout | data)
            }
            Beside::Layout => (Mode::Cr, layout, InodeBits::empty()),
            Beside::Xattrs => (Mode::Pr, InodeBits::XATTR, InodeBits::empty()),
        };
        if bits.is_empty() || !known.contains(bits) {
            return None;
        }
        let resource = ResourceName::of(id.fid());
        let ask = BitsAsk { resource, mode, bits, try_bits: try_bits & known };
        self.locks.reserve_beside(served, request, &ask, cx.rpc)
    }

    /// The same for a reply that leaves in this turn.
    pub(super) fn lock_beside(
        &mut self,
        served: &Served,
        request: &LockRequest,
        found: Found,
        cx: &mut Cx<'_, '_, '_>,
    ) -> Option<LockReply> {
        let lock = self.reserve(served, request, found, cx)?;
        let mut lock = self.locks.give_beside(lock, cx.rpc)?;
        lock.flags |= LockFlags::HAS_INTENT;
        lock.flags.set(LockFlags::LOCK_CHANGED, found.what != Beside::Layout);
        Some(lock)
    }

    /// The lock that comes with an open, when its reply leaves (C-87). The record of the open has none: a
    /// client that learns of its open after a crash of this target has no lock here.
    pub(super) fn reserve_for_open(
        &mut self,
        served: &Served,
        id: Id,
        writes: bool,
        body: &MdtBody,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let request = served.msg().ok().and_then(|msg| LockRequest::of(&msg, 1).ok());
        let (Some(request), Some(inode)) = (request, self.tree.inode(id)) else { return false };
        if !inode.is_file() {
            return false;
        }
        let here = inode.end_here() > 0;
        let mut body = *body;
        let data = if here { InodeBits::DOM } else { InodeBits::empty() };
        let mode = if here && writes { Mode::Pw } else { Mode::Pr };
        let (part, alone) = (inode.data.as_deref().copied(), inode.is_here_alone());
        let found = Found { id, what: Beside::Open(mode, data) };
        let Some(lock) = self.reserve(served, &request, found, cx) else { return false };
        let view = self.locks.space().lock(lock);
        let held = view.map_or(0, |view| view.desc.policy.start);
        // C-53.
        if InodeBits::from_bits_retain(held).contains(InodeBits::DOM) {
            body.dom_size = part.map_or(0, |part| part.size);
            body.dom_blocks = part.map_or(0, |part| part.blocks());
            body.valid |= Valid::DOM_SIZE;
            if alone {
                (body.size, body.blocks) = (body.dom_size, body.dom_blocks);
                body.valid.remove(Valid::LAZYSIZE | Valid::LAZYBLOCKS);
                body.valid |= Valid::SIZE | Valid::BLOCKS;
            }
        }
        self.brought.insert(served.id, Brought { lock, body, export: served.export });
        true
    }

    /// An open is over without a reply.
    pub(super) fn bring_nothing(&mut self, id: ServedId, cx: &mut Cx<'_, '_, '_>) {
        if let Some(Brought { lock, .. }) = self.brought.remove(&id) {
            self.locks.unlock_locally(lock, cx.rpc);
        }
    }

    /// The reply to an open leaves, with its lock.
    pub(super) fn bring(&mut self, id: ServedId, answer: &mut Answer, cx: &mut Cx<'_, '_, '_>) {
        let Some(Brought { lock, body, .. }) = self.brought.remove(&id) else { return };
        let Some(mut lock) = self.locks.give_beside(lock, cx.rpc) else { return };
        let Some(head) = answer.buffers.get_mut(0) else { return };
        if let Ok(before) = LockReply::parse_exact(ORDER, head) {
            let (policy_res1, policy_res2) = (before.policy_res1, before.policy_res2);
            lock.flags |= LockFlags::HAS_INTENT | LockFlags::LOCK_CHANGED;
            LockReply { policy_res1, policy_res2, ..lock }.put(ORDER, head);
            if let Some(attributes) = answer.buffers.get_mut(1) {
                body.put(ORDER, attributes);
            }
            answer.status = 0;
        }
    }
}

/// A lock that comes with the reply to an open, and the attributes that go with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brought {
    lock: Cookie,
    body: MdtBody,
    pub(super) export: ExportId,
}

/// What a lock beside the result of an intent covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Attributes(InodeBits),
    /// An open: its mode, and the data that are here.
    Open(Mode, InodeBits),
    Layout,
    Xattrs,
}

/// The file of an intent, and what of it its client may cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: Id,
    pub(super) what: Beside,
}

/// An answer to an intent (C-63): what was found, and its lock, if there is one.
pub(super) fn reply(
    lock: Option<LockReply>,
    found: Disposition,
    result: &Result<Buffers, Errno>,
) -> LockReply {
    let errno = result.as_ref().err().map_or(0, |errno| errno.negative());
    let lock =
        lock.unwrap_or_else(|| LockReply { flags: LockFlags::HAS_INTENT, ..LockReply::default() });
    LockReply { policy_res1: found.bits(), policy_res2: i64::from(errno).cast_unsigned(), ..lock }
}
