//! What clients may cache: locks with the results of intents, and who is called back for a change.

use lnet_types::Errno;
use lustre_target::ost::wire;
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ldlm::{
    InodeBits, Intent, LayoutIntent, LayoutOp, LockDesc, LockFlags, LockKind, LockMode, LockReply,
    LockRequest, Policy, ResourceName,
};
use lustre_wire::mds::{MdtBody, SetattrValid};
use lustre_wire::ost::NiobufFlags;
use lustre_wire::{Buffers, Fid, Opcode};
use ptlrpc::Call;

use super::data::{CREATE, bytes_of, data_lock, read_call, wish};
use super::{Bench, Client, LITTLE, OPEN_CREATE, OPEN_WRITE, ROOT, cancel, reint, text};

fn ask(fid: Fid, mode: LockMode, bits: InodeBits, flags: LockFlags, cookie: u64) -> Vec<u8> {
    let policy = Policy::Ibits { bits, try_bits: InodeBits::empty(), gid: 0, initiator: 0 };
    let desc = LockDesc {
        kind: LockKind::IBITS,
        resource: ResourceName::of(fid),
        requested: mode,
        policy: policy.words(),
        ..LockDesc::default()
    };
    LockRequest::new(LockFlags::HAS_INTENT | flags, 1, desc, &[cookie]).to_bytes(LITTLE)
}

pub(super) fn getattr(c: Client, dir: Fid, name: &str, flags: LockFlags, cookie: u64) -> Call {
    let body = MdtBody { eadatasize: 4096, ..c.body(dir, Valid::ID | Valid::EASIZE) };
    let buffers = Buffers::new()
        .bytes(ask(dir, LockMode::CR, InodeBits::UPDATE, flags, cookie))
        .layout(&Intent::GETATTR)
        .layout(&body)
        .bytes(b"")
        .bytes(text(name));
    Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[112, 216, 4096, 0, 0, 0, 0, 0])
}

fn layout(fid: Fid, cookie: u64) -> Call {
    let intent = LayoutIntent { opcode: LayoutOp::ACCESS, flags: 0, start: 0, end: u64::MAX };
    let buffers = Buffers::new()
        .bytes(ask(fid, LockMode::CR, InodeBits::LAYOUT, LockFlags::empty(), cookie))
        .layout(&Intent::LAYOUT)
        .layout(&intent)
        .bytes(b"");
    Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[112, 4096])
}

/// Status of the reply, its lock, mode and bits.
fn lock(bench: &mut Bench, c: Client, call: Call) -> (i32, u64, LockMode, u64) {
    let reply = bench.call(c, call).unwrap();
    let lock: LockReply = reply.msg().unwrap().get(1).unwrap();
    (reply.status, lock.handle, lock.desc.granted, lock.desc.policy.start)
}

/// The bits that clients were called back for.
fn called(bench: &mut Bench, c: Client) -> Vec<u64> {
    let all = bench.party(c.upper, |party, _| core::mem::take(&mut party.called));
    let blocking = all.into_iter().filter(|(_, opcode, _)| *opcode == Opcode::LDLM_BL_CALLBACK);
    blocking.map(|(_, _, request)| request.desc.policy.end).collect()
}

fn file(bench: &mut Bench, c: Client, name: &str, oid: u32) -> Fid {
    let (body, ..) = bench.open(c, ROOT, name, oid, OPEN_CREATE | OPEN_WRITE).unwrap();
    bench.close(c, &body).unwrap();
    body.fid1
}

#[test]
fn c61_attributes_come_with_a_lock_that_each_change_of_them_calls_back() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    let f = file(bench, a, "f", 1);
    let changes: [(Buffers, u64); 3] = [
        (b.setattr(f, SetattrValid::MODE | SetattrValid::CTIME, 0o600, 0), 0x13),
        (b.setattr(f, SetattrValid::CTIME, 0, 0), 0x2),
        (b.unlink(ROOT, "f", 0), 0x1b),
    ];
    for (n, (change, bits)) in changes.into_iter().enumerate() {
        let cookie = 10 + n as u64;
        let (status, handle, mode, held) =
            lock(bench, a, getattr(a, ROOT, "f", LockFlags::empty(), cookie));
        assert_eq!((status, mode, held), (0, LockMode::PR, 0x1b));
        assert_ne!(handle, 0);
        // What does not change does not matter to it.
        bench.lookup(b, ROOT, "f").unwrap();
        assert_eq!(lock(bench, b, getattr(b, ROOT, "f", LockFlags::empty(), 50 + cookie)).0, 0);
        assert_eq!(called(bench, a), Vec::<u64>::new());
        bench.reint(b, change).unwrap();
        assert_eq!(called(bench, a), [bits; 2], "of both clients");
    }
    // A client that wants no lock gets none, nor does one whose name does not exist.
    file(bench, a, "g", 2);
    let none = (301, 0, LockMode::NONE, 0);
    assert_eq!(lock(bench, a, getattr(a, ROOT, "g", LockFlags::INTENT_ONLY, 30)), none);
    assert_eq!(lock(bench, a, getattr(a, ROOT, "f", LockFlags::empty(), 31)), none);
}

#[test]
fn change_is_made_when_the_lock_on_what_it_changes_is_given_back() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    bench.mkdir(a, ROOT, "d", 1).unwrap();
    bench.party(a.upper, |party, _| party.keeps = true);
    let (_, handle, ..) = lock(bench, a, getattr(a, ROOT, "d", LockFlags::empty(), 10));
    let d = a.fid(1);
    let waits = bench.begin(b, reint(b.create(d, "sub", 1, 0o040_755, b"")));
    bench.world.secs(2);
    assert!(bench.end_of(b, waits).is_none(), "the lock is held");
    assert_eq!(called(bench, a), [0x2]);
    // Other directories are not concerned, and no new lock goes out in front of the change.
    bench.mkdir(b, ROOT, "e", 2).unwrap();
    assert_eq!(lock(bench, b, getattr(b, ROOT, "e", LockFlags::empty(), 11)).0, 0);
    let late = bench.begin(b, getattr(b, ROOT, "d", LockFlags::empty(), 12));
    bench.world.secs(1);
    assert!(bench.end_of(b, late).is_none(), "the change is first");
    bench.call(a, cancel(handle)).unwrap();
    bench.world.secs(1);
    assert!(bench.end_of(b, waits).unwrap().is_ok());
    let seen = bench.end_of(b, late).unwrap().unwrap();
    let body: MdtBody = seen.msg().unwrap().get(2).unwrap();
    assert_eq!(body.nlink, 3, "the attributes are those after the change");
}

#[test]
fn client_that_keeps_its_lock_is_evicted_and_the_change_goes_on() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    bench.mkdir(a, ROOT, "d", 1).unwrap();
    bench.party(a.upper, |party, _| party.keeps = true);
    lock(bench, a, getattr(a, ROOT, "d", LockFlags::empty(), 10));
    let waits = bench.begin(b, reint(b.unlink(ROOT, "d", 0o040_000)));
    bench.world.secs(400);
    assert!(bench.end_of(b, waits).unwrap().is_ok());
    assert_eq!(bench.lookup(b, ROOT, "d"), Err(Errno::ENOENT));
}

#[test]
fn c186_layout_comes_with_a_lock_that_another_layout_calls_back() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    let delay = 0x100_0000;
    bench.open(a, ROOT, "f", 1, OPEN_CREATE | OPEN_WRITE | delay).unwrap();
    let f = a.fid(1);
    let (status, _, mode, held) = lock(bench, a, layout(f, 10));
    assert_eq!((status, mode, held), (0, LockMode::CR, 0x8));
    bench.open(b, ROOT, "f", 2, OPEN_WRITE).unwrap();
    assert_eq!(called(bench, a), [0x8]);
    let reply = bench.call(a, layout(f, 11)).unwrap();
    assert_eq!(reply.msg().unwrap().buffer(2).unwrap().len(), 56);
}

#[test]
fn c87_open_comes_with_a_lock_and_a_writer_of_data_here_may_cache_them() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    let wants = |mut call: Call, cookie: u64| {
        let mut request = LockRequest::parse(LITTLE, call.buffers.get(0).unwrap()).unwrap();
        request.flags.remove(LockFlags::INTENT_ONLY);
        request.handles[0] = cookie;
        call.buffers.replace(0, request.to_bytes(LITTLE));
        call
    };
    let plain = a.open(ROOT, "plain", 1, OPEN_CREATE | OPEN_WRITE, Vec::new());
    let (status, _, mode, held) = lock(bench, a, wants(plain, 10));
    assert_eq!((status, mode, held), (0, LockMode::PR, 0x1b));
    let created = a.open(ROOT, "f", 2, CREATE, wish(1 << 16));
    let reply = bench.call(a, wants(created, 11)).unwrap();
    let msg = reply.msg().unwrap();
    let (lock_of_a, body): (LockReply, MdtBody) = (msg.get(1).unwrap(), msg.get(2).unwrap());
    assert_eq!((reply.status, lock_of_a.desc.granted), (0, LockMode::PW));
    assert_eq!(lock_of_a.desc.policy.start, 0x5b);
    assert!(body.valid.contains(Valid::DOM_SIZE) && body.open_handle != 0);
    // Where another client has it there is none, and the open is none the worse.
    let (status, handle, ..) =
        lock(bench, b, wants(b.open(ROOT, "f", 2, super::OPEN_READ, Vec::new()), 12));
    assert_eq!((status, handle), (301, 0));
    assert_eq!(called(bench, a), Vec::<u64>::new());
    // Attributes are asked of the writer, which gives its lock back for them.
    bench.lookup(b, ROOT, "f").unwrap();
    assert_eq!(called(bench, a), [0x13]);
    // An open that was answered before a crash is known after it, without its lock.
    let (status, ..) = lock(bench, b, wants(b.open(ROOT, "f", 2, OPEN_WRITE, Vec::new()), 13));
    assert_eq!(status, 0);
    bench.crash();
    bench.world.secs(30);
    bench.reint(a, a.unlink(ROOT, "f", 0)).unwrap();
}

#[test]
fn c221_data_are_read_when_the_lock_of_their_writer_is_given_back() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    let call = a.open(ROOT, "f", 1, CREATE, wish(1 << 16));
    super::opened(bench.call(a, call)).unwrap();
    let f = a.fid(1);
    bench.party(a.upper, |party, _| party.keeps = true);
    let (status, handle, mode, held) =
        lock(bench, a, data_lock(f, LockMode::PW, LockFlags::empty(), 10));
    assert_eq!((status, mode, held), (0, LockMode::PW, 0x40));
    // Attributes are no data.
    bench.lookup(b, ROOT, "f").unwrap();
    let (call, memory) = read_call(bench, f, 0, 4096);
    let reads = bench.begin(b, call);
    bench.world.secs(2);
    assert!(bench.end_of(b, reads).is_none(), "the lock is held");
    assert_eq!(called(bench, a), [0x40]);
    bench.call(a, cancel(handle)).unwrap();
    bench.world.secs(1);
    let reply = bench.end_of(b, reads).unwrap().unwrap();
    assert_eq!(bytes_of(bench, &reply, &memory), Vec::<u8>::new());
}

/// A write without a lock of the target, under one of its client.
fn write_held(fid: Fid, handle: u64, bytes: &[u8]) -> Call {
    let mut body = wire::data_body(ObjectId::of(fid), true, None, 0);
    if handle != 0 {
        body.handle = handle;
        body.valid |= Valid::HANDLE;
    }
    let mut range = wire::range(0, bytes.len() as u32, NiobufFlags::WRITE);
    range.flags.remove(NiobufFlags::SRVLOCK);
    wire::data(Opcode::OST_WRITE, &body, &[range], Some(bytes))
}

#[test]
fn l49_data_are_written_under_a_lock_of_their_client_alone() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    let call = a.open(ROOT, "f", 1, CREATE, wish(1 << 16));
    super::opened(bench.call(a, call)).unwrap();
    let f = a.fid(1);
    let stale = Err(Errno::ESTALE);
    let write = |bench: &mut Bench, c, handle| {
        let end = bench.call(c, write_held(f, handle, b"some"));
        end.map(|_| ()).map_err(ptlrpc::CallError::errno)
    };
    assert_eq!(write(bench, a, 0), stale, "it has none");
    let (_, read, ..) = lock(bench, a, data_lock(f, LockMode::PR, LockFlags::empty(), 10));
    assert_eq!(write(bench, a, read), stale, "one for reading");
    bench.call(a, cancel(read)).unwrap();
    let (_, held, ..) = lock(bench, a, data_lock(f, LockMode::PW, LockFlags::empty(), 11));
    for handle in [held, 0, 77] {
        assert_eq!(write(bench, a, handle), Ok(()), "{handle:#x}");
    }
    assert_eq!(write(bench, b, held), stale, "the lock is another client's");
    bench.call(a, cancel(held)).unwrap();
    assert_eq!(write(bench, a, held), stale, "it is given back");
}

#[test]
fn l49_client_that_writes_under_a_lock_that_is_wanted_has_more_time() {
    let bench = &mut Bench::new(1);
    let [a, b] = bench.caching(&["a", "b"])[..] else { panic!("two clients") };
    let call = a.open(ROOT, "f", 1, CREATE, wish(1 << 16));
    super::opened(bench.call(a, call)).unwrap();
    let f = a.fid(1);
    bench.party(a.upper, |party, _| party.keeps = true);
    let (_, held, ..) = lock(bench, a, data_lock(f, LockMode::PW, LockFlags::empty(), 10));
    let (call, memory) = read_call(bench, f, 0, 4096);
    let reads = bench.begin(b, call);
    // Longer than a client has that does nothing.
    for _ in 0..10 {
        bench.world.secs(50);
        assert!(bench.end_of(b, reads).is_none(), "the lock is held");
        bench.call(a, write_held(f, held, b"some")).unwrap();
    }
    bench.call(a, cancel(held)).unwrap();
    bench.world.secs(1);
    let reply = bench.end_of(b, reads).unwrap().unwrap();
    assert_eq!(bytes_of(bench, &reply, &memory)[..4], *b"some");
}

#[test]
fn l2_client_fixes_no_other_kind_of_locks_for_a_file_than_inode_bits() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let f = file(bench, c, "f", 1);
    let mut asked = |kind, own| {
        let mut resource = ResourceName::of(f);
        resource.words[3] = own;
        let policy = Policy::Extent { start: 0, end: u64::MAX, gid: 0 }.words();
        let desc =
            LockDesc { kind, resource, requested: LockMode::PR, policy, ..LockDesc::default() };
        let request = LockRequest::new(LockFlags::empty(), 1, desc, &[1]);
        let buffers = Buffers::new().bytes(request.to_bytes(LITTLE));
        let call = Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[112, 56]);
        bench.call(c, call).map(|_| ()).map_err(ptlrpc::CallError::errno)
    };
    for (kind, own) in
        [(LockKind::PLAIN, 0), (LockKind::EXTENT, 0), (LockKind::EXTENT, 12), (LockKind::FLOCK, 0)]
    {
        assert_eq!(asked(kind, own), Err(Errno::EINVAL), "{kind:?} {own}");
    }
    assert_eq!(asked(LockKind(9), 0), Err(Errno::EFAULT), "no kind");
    assert_eq!(asked(LockKind::FLOCK, 12), Ok(()), "its users' locks have a name of their own");
    assert_eq!(asked(LockKind::IBITS, 0), Ok(()));
}
