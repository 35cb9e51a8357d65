//! A file system in one world: management, metadata and object targets on one request layer, and clients
//! that make requests as they go over the wire, in virtual time. `names.rs` has names and attributes,
//! `files.rs` opens, layouts and objects, `across.rs` several metadata targets, `data.rs` data on the target, `locks.rs` what clients may cache,
//! `captures.rs`, `mounts.rs` and `conversation.rs` play recorded clients, `recovery.rs` has what is left
//! when the server dies, `storm.rs` all of it at random against a model.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod acl;
mod across;
mod captures;
mod conversation;
mod data;
mod files;
mod locks;
mod mounts;
mod names;
mod recovery;
mod storm;

use core::any::Any;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event as LnetEvent, Report};
use lnet_types::{ByteOrder, Errno, Instant, Nid};
use lustre_target::ost::wire;
use lustre_target::{
    Commit, Kind, MGS_UUID, Mdt, MemoryStore, Mgs, Ost, OstLimits, Site, Targets, start,
};
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::fid::{ObjectId, SeqOp, SeqRange, Valid};
use lustre_wire::ldlm::{
    Disposition, Intent, LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest,
    ResourceName,
};
use lustre_wire::mds::{
    CreateRecord, Epoch, MdtBody, NameRecord, RecordHead, ReintOp, SetattrRecord, SetattrValid,
    SetxattrRecord,
};
use lustre_wire::ost::Obdo;
use lustre_wire::striping::{Stripes, Striping};
use lustre_wire::{Buffers, Fid, ImportKind, Layout, Opcode, Portal};
use ptlrpc::world::World;
use ptlrpc::{
    Answer, Call, CallError, CallId, Config, Direction, Event, ImportConfig, ImportId, Past,
    Ptlrpc, Reply, Served, ServiceConfig, TargetConfig, Tunables,
};

const LITTLE: ByteOrder = ByteOrder::Little;
const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
const MDT: &str = "lfs-MDT0000_UUID";
const NOW: i64 = 1_795_000_000;
const OPEN_READ: u32 = 0x1;
const OPEN_WRITE: u32 = 0x2;
const OPEN_CREATE: u32 = 0x40;
const OPEN_EXCL: u32 = 0x80;

/// A request layer, with targets or with calls.
struct Party {
    ptlrpc: Ptlrpc,
    targets: Targets,
    ended: BTreeMap<CallId, Result<Reply, CallError>>,
    /// New answers to opens that were repeated.
    replayed: Vec<CallId>,
    /// Locks that its clients were called back for, and the operations.
    called: Vec<(ImportId, Opcode, LockRequest)>,
    /// Its clients keep locks that they are called back for.
    keeps: bool,
    /// What they say of sizes, by their name of the lock.
    sizes: BTreeMap<u64, VecDeque<Vec<u8>>>,
    /// Locks that they keep although they were called back.
    kept: Vec<(ImportId, u64)>,
}

impl Party {
    fn drain(&mut self, below: &mut Below<'_>) {
        loop {
            while let Some(event) = self.ptlrpc.poll_event() {
                match self.targets.event(event, &mut self.ptlrpc.rpc(below)) {
                    Some(Event::Ended { call, result }) => {
                        self.ended.insert(call, result);
                    }
                    Some(Event::Replayed { call, .. }) => self.replayed.push(call),
                    Some(Event::Served(served)) => self.called_back(*served, below),
                    _ => {}
                }
            }
            assert_eq!(self.targets.poll(&mut self.ptlrpc.rpc(below)), None);
            if !self.ptlrpc.has_event() {
                return;
            }
        }
    }
}

impl Party {
    /// A server wants a lock back.
    fn called_back(&mut self, served: Served, below: &mut Below<'_>) {
        let Some(import) = served.import else { return };
        let rpc = &mut self.ptlrpc.rpc(below);
        let request = LockRequest::of(&served.msg().unwrap(), 1).unwrap();
        let mut answer = Answer::default();
        match served.opcode {
            Opcode::LDLM_BL_CALLBACK if self.keeps => self.kept.push((import, request.handles[1])),
            Opcode::LDLM_BL_CALLBACK => {
                rpc.call(import, cancel(request.handles[1])).unwrap();
            }
            Opcode::LDLM_GL_CALLBACK => {
                let sizes = self.sizes.get_mut(&request.handles[0]);
                answer.buffers.extend(sizes.and_then(VecDeque::pop_front));
            }
            _ => {}
        }
        rpc.reply(served.id, answer);
        self.called.push((import, served.opcode, request));
    }

    /// Gives back locks that were called back, but for these.
    fn give_back_but(&mut self, kept: &[u64], below: &mut Below<'_>) {
        for (import, handle) in core::mem::take(&mut self.kept) {
            match kept.contains(&handle) {
                true => self.kept.push((import, handle)),
                false => {
                    self.ptlrpc.rpc(below).call(import, cancel(handle)).unwrap();
                }
            }
        }
    }
}

impl Upper for Party {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.targets.handle_timeout(&mut self.ptlrpc.rpc(below));
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.ptlrpc.poll_timeout(), self.targets.poll_timeout()].into_iter().flatten().min()
    }
}

fn party(seed: u64) -> Party {
    let wall = Duration::from_secs(1_795_000_000 + seed * 1000);
    let ptlrpc = Ptlrpc::new(Config { seed, wall, tunables: Tunables::default() });
    Party {
        ptlrpc,
        targets: Targets::default(),
        ended: BTreeMap::new(),
        replayed: Vec::new(),
        called: Vec::new(),
        keeps: false,
        sizes: BTreeMap::new(),
        kept: Vec::new(),
    }
}

fn osts(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("lfs-OST{index:04x}_UUID"))
}

fn mdt(index: u32) -> String {
    format!("lfs-MDT{index:04x}_UUID")
}

/// A file system, and its clients.
struct Bench {
    world: World,
    server: UpperId,
    mdts: u32,
    osts: u32,
    commit: Commit,
    seeds: u64,
}

/// A client.
#[derive(Clone, Copy)]
struct Client {
    upper: UpperId,
    mdt: ImportId,
    /// Its sequence of FIDs.
    seq: u64,
    /// In whose name it asks.
    uid: u32,
}

impl Bench {
    fn new(osts: u32) -> Self {
        Self::with(osts, Commit::AtOnce)
    }

    fn with(osts: u32, commit: Commit) -> Self {
        Self::with_mdts((1, osts), commit)
    }

    /// The same with several metadata targets.
    fn with_mdts((mdts, osts): (u32, u32), commit: Commit) -> Self {
        let mut world = World::default();
        let server = world.add(Box::new(party(1)));
        let mut bench = Self { world, server, mdts, osts, commit, seeds: 1 };
        bench.serve(|_| None);
        bench
    }

    fn site(&self) -> Site {
        Site::of_counts("lfs", (self.mdts, self.osts), &[Nid::LOOPBACK]).unwrap()
    }

    /// The uuids of all targets, those that find others last.
    fn uuids(&self) -> Vec<String> {
        osts(self.osts).chain([MGS_UUID.to_owned()]).chain((0..self.mdts).map(mdt)).collect()
    }

    fn party<R>(&mut self, id: UpperId, f: impl FnOnce(&mut Party, &mut Below<'_>) -> R) -> R {
        let result = self.world.with(id, |party: &mut Party, below| {
            let result = f(party, below);
            party.drain(below);
            result
        });
        self.world.settle();
        result
    }

    /// Starts all targets, each with the store that it had.
    fn serve(&mut self, mut store_of: impl FnMut(&str) -> Option<MemoryStore>) {
        let services = [
            (Portal::OST_REQUEST, Portal::OSC_REPLY, Portal::OST_BULK),
            (Portal::OST_IO, Portal::OSC_REPLY, Portal::OST_BULK),
            (Portal::OST_CREATE, Portal::OSC_REPLY, Portal::OST_BULK),
            (Portal::MDS_REQUEST, Portal::MDC_REPLY, Portal::MDS_BULK),
            (Portal::MDS_IO, Portal::MDC_REPLY, Portal::OST_BULK),
            (Portal::MDS_READPAGE, Portal::MDC_REPLY, Portal::MDS_BULK),
            (Portal::FLD, Portal::MDC_REPLY, Portal::MDS_BULK),
            (Portal::SEQ_METADATA, Portal::MDC_REPLY, Portal::MDS_BULK),
            (Portal::OUT, Portal::OSC_REPLY, Portal::MDS_BULK),
            (Portal::MGS_REQUEST, Portal::MGC_REPLY, Portal::MGS_BULK),
            (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY, Portal::MDS_BULK),
        ];
        self.party(self.server, |party, below| {
            let rpc = &mut party.ptlrpc.rpc(below);
            for (request, reply, bulk) in services {
                let mut service = ServiceConfig::new("service", request.0, reply.0, bulk.0);
                service.request_max = 96 << 10;
                service.buffers = 4;
                rpc.serve(service).unwrap();
            }
        });
        for uuid in self.uuids() {
            let store = store_of(&uuid);
            self.start(&uuid, store);
        }
        // Objects are made ahead.
        self.world.secs(1);
    }

    /// Starts a target, with a store that it had.
    fn start(&mut self, uuid: &str, store: Option<MemoryStore>) {
        let (site, commit) = (self.site(), self.commit);
        let mut store = store.unwrap_or_else(|| MemoryStore::new(commit, 1 << 30));
        let kind: Box<dyn Kind> = match site.mdt(uuid) {
            Some(index) => Box::new(Mdt::load_at(site, index, &mut store).unwrap()),
            None if uuid == MGS_UUID => Box::new(Mgs::new(&[site])),
            None => Box::new(Ost::new(OstLimits::default())),
        };
        let begun = start(&mut store, kind.name()).unwrap();
        let config = TargetConfig {
            uuid: uuid.to_owned(),
            offer: kind.offer(),
            replayable: kind.keeps_records(),
            past: Past::default(),
        };
        self.party(self.server, |party, below| {
            let rpc = &mut party.ptlrpc.rpc(below);
            party.targets.add(config, kind, Box::new(store), begun, rpc).unwrap();
        });
    }

    /// The store of a target, which is taken out.
    fn take(&mut self, uuid: &str) -> MemoryStore {
        self.party(self.server, |party, _| {
            let id = party.targets.id(uuid).unwrap();
            let store: Box<dyn Any> = party.targets.remove(id).unwrap();
            *store.downcast::<MemoryStore>().unwrap()
        })
    }

    /// The server dies, and with it what was not committed; it begins again.
    fn crash(&mut self) {
        let uuids = self.uuids();
        let mut stores: BTreeMap<String, MemoryStore> =
            uuids.into_iter().map(|uuid| (uuid.clone(), self.take(&uuid).crashed())).collect();
        self.world.kill(self.server);
        self.seeds += 1;
        self.server = self.world.add(Box::new(party(self.seeds)));
        self.serve(|uuid| stores.remove(uuid));
    }

    /// One target dies, and begins again.
    fn crash_one(&mut self, uuid: &str) {
        let client = uuid.replace("_UUID", "-mdtlov_UUID");
        let store: Box<dyn Any> = self.party(self.server, |party, below| {
            let id = party.targets.id(uuid).unwrap();
            let store = party.targets.remove(id).unwrap();
            let rpc = &mut party.ptlrpc.rpc(below);
            rpc.remove_target(id);
            // What it had to do with others is over with it.
            let all = rpc.imports();
            for import in all.into_iter().filter(|import| import.client == client) {
                rpc.disconnect_within(import.id, Some(Duration::ZERO));
            }
            store
        });
        let store = store.downcast::<MemoryStore>().unwrap().crashed();
        self.start(uuid, Some(store));
    }

    /// Commits what the stores have applied.
    fn commit(&mut self) {
        let uuids = self.uuids();
        self.party(self.server, |party, below| {
            for uuid in uuids.iter().filter(|uuid| *uuid != MGS_UUID) {
                let Some(id) = party.targets.id(uuid) else { continue };
                let store: &mut dyn Any = party.targets.store_mut(id).unwrap();
                store.downcast_mut::<MemoryStore>().unwrap().commit();
            }
            party.drain(below);
        });
    }

    /// The store of names has room for so many bytes from now on.
    fn room(&mut self, bytes: u64) {
        self.party(self.server, |party, _| {
            let id = party.targets.id(MDT).unwrap();
            let store: &mut dyn Any = party.targets.store_mut(id).unwrap();
            store.downcast_mut::<MemoryStore>().unwrap().set_max(bytes);
        });
    }

    fn import(&mut self, upper: UpperId, kind: ImportKind, target: &str, client: &str) -> ImportId {
        let config = ImportConfig {
            kind,
            target: target.to_owned(),
            client: client.to_owned(),
            nids: vec![Nid::LOOPBACK],
            wanted: if kind == ImportKind::Osc { wire::wanted() } else { wanted() },
        };
        self.party(upper, |party, below| party.ptlrpc.rpc(below).import(config).unwrap())
    }

    /// A client in a user's name, with a sequence of its own.
    fn client(&mut self, name: &str, uid: u32) -> Client {
        self.seeds += 1;
        let upper = self.world.add(Box::new(party(self.seeds)));
        self.client_on(upper, name, uid)
    }

    /// Clients that are called back for their locks: they have one portal of callbacks.
    fn caching(&mut self, names: &[&str]) -> Vec<Client> {
        self.seeds += 1;
        let upper = self.world.add(Box::new(party(self.seeds)));
        let (request, reply) = (Portal::LDLM_CALLBACK.0, Portal::LDLM_CALLBACK_REPLY.0);
        let service = ServiceConfig::new("callbacks", request, reply, Portal::OST_BULK.0);
        self.party(upper, |party, below| party.ptlrpc.rpc(below).serve(service).unwrap());
        names.iter().map(|name| self.client_on(upper, name, 0)).collect()
    }

    fn client_on(&mut self, upper: UpperId, name: &str, uid: u32) -> Client {
        self.client_of(0, upper, name, uid)
    }

    /// A client, as another metadata target knows it.
    fn client_at(&mut self, index: u32, client: Client, name: &str) -> Client {
        self.client_of(index, client.upper, name, client.uid)
    }

    fn client_of(&mut self, index: u32, upper: UpperId, name: &str, uid: u32) -> Client {
        let mdt = self.import(upper, ImportKind::Mdc, &mdt(index), name);
        let client = Client { upper, mdt, seq: 0, uid };
        let buffers = Buffers::new().layout(&SeqOp::META).layout(&SeqRange::default());
        let call = Call::new(Opcode::SEQ_QUERY, buffers).answered_by(&[24]);
        let reply = self.call(client, call).unwrap();
        let range: SeqRange = reply.msg().unwrap().get(1).unwrap();
        assert_eq!((range.end, range.index), (range.start + 1, index));
        Client { seq: range.start, ..client }
    }

    fn begin(&mut self, client: Client, call: Call) -> CallId {
        self.begin_on(client, client.mdt, call)
    }

    fn begin_on(&mut self, client: Client, import: ImportId, call: Call) -> CallId {
        self.party(client.upper, |party, below| party.ptlrpc.rpc(below).call(import, call).unwrap())
    }

    fn end_of(&mut self, client: Client, call: CallId) -> Option<Result<Reply, CallError>> {
        self.party(client.upper, |party, _| party.ended.remove(&call))
    }

    /// A call, and its end, which it has within seconds.
    fn call(&mut self, client: Client, call: Call) -> Result<Reply, CallError> {
        self.call_on(client, client.mdt, call)
    }

    fn call_on(
        &mut self,
        client: Client,
        import: ImportId,
        call: Call,
    ) -> Result<Reply, CallError> {
        let id = self.begin_on(client, import, call);
        for _ in 0..10 {
            if let Some(end) = self.end_of(client, id) {
                return end;
            }
            self.world.secs(1);
        }
        panic!("the call has no end");
    }

    fn reint(&mut self, client: Client, buffers: Buffers) -> Result<MdtBody, Errno> {
        body_of(self.call(client, reint(buffers)), 1)
    }

    fn mkdir(&mut self, client: Client, dir: Fid, name: &str, oid: u32) -> Result<MdtBody, Errno> {
        self.reint(client, client.create(dir, name, oid, 0o040_755, b""))
    }

    fn open(
        &mut self,
        client: Client,
        dir: Fid,
        name: &str,
        oid: u32,
        flags: u32,
    ) -> Result<(MdtBody, Stripes, u64), Errno> {
        opened(self.call(client, client.open(dir, name, oid, flags, Vec::new())))
    }

    fn close(&mut self, client: Client, body: &MdtBody) -> Result<MdtBody, Errno> {
        body_of(self.call(client, client.close(body.fid1, body.open_handle)), 1)
    }

    fn lookup(&mut self, client: Client, dir: Fid, name: &str) -> Result<MdtBody, Errno> {
        let body = MdtBody { eadatasize: 4096, ..client.body(dir, Valid::ID | Valid::MODE) };
        let buffers = Buffers::new().layout(&body).bytes(b"").bytes(text(name));
        let call =
            Call::new(Opcode::MDS_GETATTR_NAME, buffers).answered_by(&[216, 4096, 0, 0, 0, 0]);
        body_of(self.call(client, call), 1)
    }

    fn getattr(&mut self, client: Client, fid: Fid) -> Result<MdtBody, Errno> {
        let body = MdtBody { eadatasize: 4096, ..client.body(fid, Valid::ID | Valid::EASIZE) };
        let call = Call::new(Opcode::MDS_GETATTR, Buffers::new().layout(&body).bytes(b""))
            .answered_by(&[216, 4096, 0, 0, 0, 0]);
        body_of(self.call(client, call), 1)
    }

    /// Pages of a directory from a hash on.
    fn pages(&mut self, client: Client, dir: Fid, hash: u64, room: u32) -> Vec<u8> {
        let body = MdtBody { size: hash, mode: 3, nlink: room, ..client.body(dir, Valid::ID) };
        let mut call = Call::new(Opcode::MDS_READPAGE, Buffers::new().layout(&body).bytes(b""))
            .answered_by(&[216]);
        let memory = self.world.heap.memory(vec![0; room as usize]);
        call.bulk = Some(ptlrpc::Bulk { direction: Direction::Read, memory: memory.clone() });
        self.call(client, call).unwrap();
        let heap = &self.world.heap;
        memory.iter().flat_map(|span| lnet_types::Memory::bytes(heap, *span).to_vec()).collect()
    }
}

fn wanted() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::FID
            | ConnectFlags::IBITS
            | ConnectFlags::BRW_SIZE
            | ConnectFlags::HASH_64BIT
            | ConnectFlags::MULTIMODRPCS
            | ConnectFlags::UMASK
            | ConnectFlags::XATTR
            | ConnectFlags::LAYOUTLOCK
            | ConnectFlags::LVB_TYPE
            | ConnectFlags::SRVLOCK
            | ConnectFlags::SHORTIO
            | ConnectFlags::CANCELSET
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ibits_known: 0x7f,
        brw_size: 1 << 20,
        maxmodrpcs: 8,
        ..ConnectData::default()
    }
}

/// A lock is given back.
fn cancel(handle: u64) -> Call {
    let request = LockRequest::new(LockFlags::empty(), 1, LockDesc::default(), &[handle]);
    Call::new(Opcode::LDLM_CANCEL, Buffers::new().bytes(request.to_bytes(LITTLE)))
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0"].concat()
}

fn reint(buffers: Buffers) -> Call {
    Call::new(Opcode::MDS_REINT, buffers).answered_by(&[216, 4096, 0, 0, 0])
}

fn body_of(end: Result<Reply, CallError>, index: usize) -> Result<MdtBody, Errno> {
    let reply = end.map_err(CallError::errno)?;
    Ok(reply.msg().unwrap().get(index).unwrap())
}

/// Attributes, layout and disposition of an open.
fn opened(end: Result<Reply, CallError>) -> Result<(MdtBody, Stripes, u64), Errno> {
    let reply = end.map_err(CallError::errno)?;
    let msg = reply.msg().unwrap();
    let lock: LockReply = msg.get(1).unwrap();
    let found = Disposition::from_bits_retain(lock.policy_res1);
    assert!(found.contains(Disposition::EXECUTED));
    let errno = lock.policy_res2.cast_signed();
    if errno != 0 {
        return Err(Errno(-i32::try_from(errno).unwrap()));
    }
    assert_eq!(lock.handle, 0);
    if found.contains(Disposition::NEGATIVE) && !found.contains(Disposition::CREATED) {
        return Err(Errno::ENOENT);
    }
    let layout = msg.buffer(3).unwrap_or_default();
    let stripes = match Striping::parse(layout) {
        Ok(Striping::Plain(stripes)) => stripes,
        _ => Stripes { head: Default::default(), pool: None, objects: Vec::new() },
    };
    Ok((msg.get(2).unwrap(), stripes, found.bits()))
}

impl Client {
    fn fid(self, oid: u32) -> Fid {
        Fid { seq: self.seq, oid, ver: 0 }
    }

    fn capability(self) -> u32 {
        if self.uid == 0 { u32::MAX } else { 0 }
    }

    fn body(self, fid1: Fid, valid: Valid) -> MdtBody {
        MdtBody {
            fid1,
            valid,
            fsuid: self.uid,
            fsgid: self.uid,
            capability: self.capability(),
            suppgid: u32::MAX,
            ..MdtBody::default()
        }
    }

    fn head(self, opcode: ReintOp, fid1: Fid, fid2: Fid) -> RecordHead {
        RecordHead {
            opcode,
            cap: self.capability(),
            fsuid: self.uid,
            fsgid: self.uid,
            suppgid1: u32::MAX,
            suppgid2: u32::MAX,
            fid1,
            fid2,
            ..RecordHead::default()
        }
    }

    fn create(self, dir: Fid, name: &str, oid: u32, mode: u32, data: &[u8]) -> Buffers {
        let head = self.head(ReintOp::CREATE, dir, self.fid(oid));
        let record = CreateRecord { head, mode, time: NOW, umask: 0o022, ..Default::default() };
        Buffers::new().layout(&record).bytes(b"").bytes(text(name)).bytes(data).bytes(b"")
    }

    fn named(self, op: ReintOp, fids: (Fid, Fid), mode: u32) -> Vec<u8> {
        let head = self.head(op, fids.0, fids.1);
        NameRecord { head, time: NOW + 1, mode, ..NameRecord::default() }.to_bytes(LITTLE)
    }

    fn unlink(self, dir: Fid, name: &str, mode: u32) -> Buffers {
        let record = self.named(ReintOp::UNLINK, (dir, Fid::default()), mode);
        Buffers::new().bytes(record).bytes(b"").bytes(text(name)).bytes(b"")
    }

    fn rename(self, from: (Fid, &str), to: (Fid, &str)) -> Buffers {
        let record = self.named(ReintOp::RENAME, (from.0, to.0), 0);
        Buffers::new()
            .bytes(record)
            .bytes(b"")
            .bytes(b"")
            .bytes(text(from.1))
            .bytes(text(to.1))
            .bytes(b"")
    }

    fn link(self, file: Fid, dir: Fid, name: &str) -> Buffers {
        let record = self.named(ReintOp::LINK, (file, dir), 0);
        Buffers::new().bytes(record).bytes(b"").bytes(b"").bytes(text(name)).bytes(b"")
    }

    fn setattr(self, fid: Fid, valid: SetattrValid, mode: u32, uid: u32) -> Buffers {
        let record = SetattrRecord {
            opcode: ReintOp::SETATTR,
            cap: self.capability(),
            fsuid: self.uid,
            fsgid: self.uid,
            suppgid: u32::MAX,
            fid,
            valid,
            mode,
            uid,
            ctime: NOW + 2,
            ..SetattrRecord::default()
        };
        Buffers::new().layout(&record).bytes(b"")
    }

    fn setxattr(self, fid: Fid, name: &str, value: Option<&[u8]>, flags: u32) -> Buffers {
        let record = SetxattrRecord {
            opcode: ReintOp::SETXATTR,
            cap: self.capability(),
            fsuid: self.uid,
            fsgid: self.uid,
            fid,
            valid: if value.is_some() { Valid::XATTR } else { Valid::XATTRRM },
            flags,
            ..SetxattrRecord::default()
        };
        let value = value.unwrap_or_default();
        Buffers::new().layout(&record).bytes(b"").bytes(text(name)).bytes(value)
    }

    fn open(self, dir: Fid, name: &str, oid: u32, flags: u32, layout: Vec<u8>) -> Call {
        let head = self.head(ReintOp::OPEN, dir, self.fid(oid));
        let record = CreateRecord {
            head,
            mode: 0o100_644,
            time: NOW,
            flags_low: flags,
            umask: 0o022,
            ..CreateRecord::default()
        };
        self.opens(&record, name, layout)
    }

    fn opens(self, record: &CreateRecord, name: &str, layout: Vec<u8>) -> Call {
        let desc = LockDesc {
            kind: LockKind::IBITS,
            resource: ResourceName::of(record.head.fid1),
            requested: LockMode::CR,
            ..LockDesc::default()
        };
        let flags = LockFlags::HAS_INTENT | LockFlags::INTENT_ONLY;
        let lock = LockRequest::new(flags, 1, desc, &[7]);
        let intent = Intent::OPEN | Intent::CREAT;
        let buffers = Buffers::from([lock.to_bytes(LITTLE)])
            .layout(&intent)
            .layout(record)
            .bytes(b"")
            .bytes(b"")
            .bytes(text(name))
            .bytes(layout)
            .up_to(11);
        let mut call = Call::new(Opcode::LDLM_ENQUEUE, buffers)
            .answered_by(&[112, 216, 4096, 0, 0, 0, 16, 0, 0, 0]);
        call.modifies = true;
        call.keep = true;
        call
    }

    fn close(self, fid: Fid, handle: u64) -> Call {
        let opcode = ReintOp::SETATTR;
        let record = SetattrRecord { opcode, fid, ..SetattrRecord::default() };
        let buffers = Buffers::new().layout(&Epoch { handle }).layout(&record).bytes(b"");
        Call::new(Opcode::MDS_CLOSE, buffers).answered_by(&[216, 0, 0, 0, 0])
    }
}

/// Size of an object, without a lock.
fn size(bench: &mut Bench, client: Client, osc: ImportId, id: ObjectId) -> Result<u64, Errno> {
    let reply = bench.call_on(client, osc, wire::get_attributes(id)).map_err(CallError::errno)?;
    Ok(reply.msg().unwrap().get::<Obdo>(1).unwrap().size)
}
