//! Data on the metadata target.

use lnet_types::{Errno, Memory};
use lustre_target::Commit;
use lustre_target::ost::wire;
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ldlm::{
    InodeBits, LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest, Lvb, Policy,
    ResourceName,
};
use lustre_wire::mds::{SetattrRecord, SetattrValid};
use lustre_wire::ost::{NiobufFlags, Obdo};
use lustre_wire::striping::{
    ComponentEntry, CompositeHead, Magic, Pattern, StripeHead, Stripes, Striping,
};
use lustre_wire::{Buffers, Fid, Layout as _, Opcode};
use ptlrpc::{Bulk, Call, CallError, Direction, Reply};

use super::{Bench, Client, LITTLE, OPEN_CREATE, OPEN_WRITE, ROOT};

pub(super) const CREATE: u32 = OPEN_CREATE | OPEN_WRITE | 0x4000_0000;

/// A request for a layout: up to `end` on the target, what is behind it in an object.
pub(super) fn wish(end: u64) -> Vec<u8> {
    let part = |pattern, size, count| Stripes {
        head: StripeHead {
            magic: Magic::V1,
            pattern,
            stripe_size: size,
            stripe_count: count,
            generation: 0xffff,
            ..StripeHead::default()
        },
        pool: None,
        objects: Vec::new(),
    };
    let entry = |start, end, offset| ComponentEntry {
        start,
        end,
        offset,
        size: 32,
        ..ComponentEntry::default()
    };
    let head =
        CompositeHead { magic: Magic::COMPOSITE, size: 192, count: 2, ..CompositeHead::default() };
    let parts = vec![
        (entry(0, end, 128), part(Pattern::MDT, end as u32, 0)),
        (entry(end, u64::MAX, 160), part(Pattern::RAID0, 1 << 16, 1)),
    ];
    Striping::Composite(head, parts).to_bytes()
}

/// A request for a layout with all of the file on the target.
fn alone(end: u64) -> Vec<u8> {
    let Ok(Striping::Composite(mut head, mut parts)) = Striping::parse(&wish(end)) else {
        panic!("composite")
    };
    (head.size, head.count) = (112, 1);
    parts.truncate(1);
    parts[0].0.offset = 80;
    Striping::Composite(head, parts).to_bytes()
}

fn file(bench: &mut Bench, c: Client, name: &str, oid: u32) -> Fid {
    let call = c.open(ROOT, name, oid, CREATE, wish(1 << 16));
    let (body, ..) = super::opened(bench.call(c, call)).unwrap();
    bench.close(c, &body).unwrap();
    body.fid1
}

fn write(bench: &mut Bench, c: Client, fid: Fid, at: u64, bytes: &[u8]) -> Result<Obdo, Errno> {
    let inline = bytes.len() <= 4096;
    let body = wire::data_body(ObjectId::of(fid), inline, None, 0);
    let range = wire::range(at, bytes.len() as u32, NiobufFlags::WRITE);
    let inside = inline.then_some(bytes);
    let mut call = wire::data(Opcode::OST_WRITE, &body, &[range], inside);
    if !inline {
        let memory = bench.world.heap.memory(bytes.to_vec());
        call.bulk = Some(Bulk { direction: Direction::Write, memory });
    }
    let reply = bench.call(c, call).map_err(CallError::errno)?;
    Ok(reply.msg().unwrap().get(1).unwrap())
}

pub(super) fn read_call(
    bench: &mut Bench,
    fid: Fid,
    at: u64,
    len: u32,
) -> (Call, lnet_types::IoVec) {
    let inline = len <= 4096;
    let body = wire::data_body(ObjectId::of(fid), inline, None, 0);
    let range = wire::range(at, len, NiobufFlags::READ);
    let mut call = wire::data(Opcode::OST_READ, &body, &[range], inline.then_some(&[]));
    let mut memory = lnet_types::IoVec::new();
    if !inline {
        memory = bench.world.heap.memory(vec![0xee; len as usize]);
        call.bulk = Some(Bulk { direction: Direction::Read, memory: memory.clone() });
    }
    (call, memory)
}

fn read(bench: &mut Bench, c: Client, fid: Fid, at: u64, len: u32) -> Result<Vec<u8>, Errno> {
    let (call, memory) = read_call(bench, fid, at, len);
    let reply = bench.call(c, call).map_err(CallError::errno)?;
    Ok(bytes_of(bench, &reply, &memory))
}

pub(super) fn bytes_of(bench: &Bench, reply: &Reply, memory: &lnet_types::IoVec) -> Vec<u8> {
    let mut bytes = match memory.is_empty() {
        true => reply.msg().unwrap().buffer(2).unwrap_or_default().to_vec(),
        false => memory.iter().flat_map(|span| bench.world.heap.bytes(*span).to_vec()).collect(),
    };
    bytes.truncate(usize::try_from(reply.status).unwrap());
    bytes
}

/// Asks for a lock on the data of a file; `intent`: for their size.
pub(super) fn data_lock(fid: Fid, mode: LockMode, flags: LockFlags, cookie: u64) -> Call {
    let bits = InodeBits::DOM;
    let policy = Policy::Ibits { bits, try_bits: InodeBits::empty(), gid: 0, initiator: 0 };
    let desc = LockDesc {
        kind: LockKind::IBITS,
        resource: ResourceName::of(fid),
        requested: mode,
        policy: policy.words(),
        ..LockDesc::default()
    };
    let request = LockRequest::new(flags, 1, desc, &[cookie]);
    Call::new(Opcode::LDLM_ENQUEUE, Buffers::new().bytes(request.to_bytes(LITTLE)))
        .answered_by(&[112, 56])
}

fn glimpse(bench: &mut Bench, c: Client, fid: Fid) -> Result<Lvb, Errno> {
    let call = data_lock(fid, LockMode::PR, LockFlags::HAS_INTENT, 99);
    let reply = bench.call(c, call).map_err(CallError::errno)?;
    let msg = reply.msg().unwrap();
    let lock: LockReply = msg.get(1).unwrap();
    if lock.handle != 0 {
        bench.call(c, super::cancel(lock.handle)).unwrap();
    }
    Ok(Lvb::parse_either(LITTLE, msg.buffer(2).unwrap()).unwrap())
}

#[test]
fn layout_of_a_file_with_data_here_is_that_of_recorded_servers() {
    let bench = &mut Bench::new(2);
    let c = bench.client("c", 0);
    let reply = bench.call(c, c.open(ROOT, "f", 1, CREATE, wish(1 << 16))).unwrap();
    let msg = reply.msg().unwrap();
    let layout = msg.buffer(3).unwrap();
    let Ok(Striping::Composite(head, parts)) = Striping::parse(layout) else { panic!("composite") };
    assert_eq!((head.size, head.count, parts.len()), (216, 2, 2));
    let (entry, here) = &parts[0];
    assert_eq!((entry.id, entry.start, entry.end), (1, 0, 1 << 16));
    assert_eq!((entry.offset, entry.size), (128, 32));
    assert_eq!((here.head.pattern, here.head.stripe_size), (Pattern::MDT, 1 << 16));
    assert_eq!((here.head.file_seq, here.head.file_oid), (c.seq, 1));
    assert!(here.objects.is_empty());
    assert_eq!((parts[1].1.objects.len(), parts[1].0.end), (1, u64::MAX));
    // Data here begin the file, and have an end.
    for end in [u64::MAX, 1 << 30, (1 << 16) + 1] {
        let call = c.open(ROOT, "g", 2, CREATE, wish(end));
        assert_eq!(super::opened(bench.call(c, call)).err(), Some(Errno::EINVAL), "{end:#x}");
    }
}

#[test]
fn bytes_on_the_target_are_read_as_they_were_written() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let f = file(bench, c, "f", 1);
    assert_eq!(read(bench, c, f, 0, 4096), Ok(Vec::new()));
    assert_eq!(glimpse(bench, c, f).unwrap().size, 0);
    let body = write(bench, c, f, 0, b"first").unwrap();
    assert_eq!((body.size, body.blocks), (5, 8));
    let long: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
    write(bench, c, f, 8192, &long).unwrap();
    let lvb = glimpse(bench, c, f).unwrap();
    assert_eq!((lvb.size, lvb.blocks), (48_192, 8 + 80));
    // Up to the end of its last page; between the two there is a hole.
    let mut expected = b"first".to_vec();
    expected.resize(8192, 0);
    expected.extend(&long);
    expected.resize(49_152, 0);
    assert_eq!(read(bench, c, f, 0, 1 << 16), Ok(expected.clone()));
    assert_eq!(read(bench, c, f, 8192, 4096), Ok(expected[8192..12_288].to_vec()));
    assert_eq!(read(bench, c, f, 60_000, 100), Ok(Vec::new()));
    // What is behind the part is in objects.
    assert_eq!(write(bench, c, f, 65_530, b"1234567"), Err(Errno::EFBIG));
    // The size is a hint: a client with a lock may know more.
    let shown = bench.getattr(c, f).unwrap();
    assert!(!shown.valid.contains(Valid::SIZE));
    assert_eq!(shown.size, 48_192);
    // A file without a part here has no such data.
    let (plain, ..) = bench.open(c, ROOT, "plain", 2, OPEN_CREATE | OPEN_WRITE).unwrap();
    assert_eq!(write(bench, c, plain.fid1, 0, b"x"), Err(Errno::EINVAL));
    assert_eq!(write(bench, c, c.fid(77), 0, b"x"), Err(Errno::ENOENT));
}

#[test]
fn data_that_are_cut_off_are_zeros_when_the_file_grows_again() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let f = file(bench, c, "f", 1);
    write(bench, c, f, 0, &[7; 9000]).unwrap();
    bench.call(c, wire::punch(ObjectId::of(f), 5000)).unwrap();
    let lvb = glimpse(bench, c, f).unwrap();
    assert_eq!((lvb.size, lvb.blocks), (5000, 16));
    bench.call(c, wire::punch(ObjectId::of(f), 8000)).unwrap();
    assert_eq!(glimpse(bench, c, f).unwrap().size, 8000);
    let mut expected = vec![7; 5000];
    expected.resize(8192, 0);
    assert_eq!(read(bench, c, f, 0, 1 << 16), Ok(expected));
    bench.call(c, wire::sync(Some(ObjectId::of(f)))).unwrap();
}

/// A file that a truncate has made longer has a place for data, and no data.
#[test]
fn file_without_bytes_shares_its_data_with_none_that_is_written_after_a_crash() {
    let bench = &mut Bench::with(1, Commit::Ordered);
    let c = bench.client("c", 0);
    let (empty, other) = (file(bench, c, "empty", 1), file(bench, c, "other", 2));
    bench.call(c, wire::punch(ObjectId::of(empty), 73)).unwrap();
    bench.commit();
    bench.crash();
    bench.world.secs(30);
    write(bench, c, other, 41, b"of the other").unwrap();
    let bytes = read(bench, c, empty, 0, 4096).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "{bytes:?}");
}

#[test]
fn data_that_were_answered_survive_a_crash_and_go_with_their_file() {
    let bench = &mut Bench::with(1, Commit::Ordered);
    let c = bench.client("c", 0);
    let f = file(bench, c, "f", 1);
    write(bench, c, f, 100, b"kept").unwrap();
    bench.commit();
    bench.crash();
    bench.world.secs(30);
    let mut expected = vec![0; 100];
    expected.extend(b"kept");
    expected.resize(4096, 0);
    assert_eq!(read(bench, c, f, 0, 4096), Ok(expected));
    assert_eq!(glimpse(bench, c, f).unwrap().size, 104);
    let g = file(bench, c, "g", 2);
    write(bench, c, g, 0, b"gone").unwrap();
    bench.reint(c, c.unlink(ROOT, "g", 0)).unwrap();
    assert_eq!(read(bench, c, g, 0, 4096), Err(Errno::ENOENT));
    assert_eq!(glimpse(bench, c, g), Err(Errno::ENOENT));
}

#[test]
fn c104_a_close_gives_no_hint_of_a_size_that_the_target_knows() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    // With a part in objects there is a hint; none if all of the file is here.
    for (n, (layout, seen)) in
        [(wish(1 << 16), 1 << 40), (alone(1 << 16), 5)].into_iter().enumerate()
    {
        let (name, oid) = (format!("f{n}"), 1 + n as u32);
        let call = c.open(ROOT, &name, oid, CREATE, layout);
        let (body, ..) = super::opened(bench.call(c, call)).unwrap();
        write(bench, c, body.fid1, 0, b"12345").unwrap();
        let mut close = c.close(body.fid1, body.open_handle);
        let mut record: SetattrRecord =
            SetattrRecord::parse(LITTLE, close.buffers.get(1).unwrap()).unwrap();
        record.valid = SetattrValid::LSIZE | SetattrValid::LBLOCKS;
        (record.size, record.blocks) = (1 << 40, 1 << 31);
        close.buffers.replace(1, record.to_bytes(LITTLE));
        bench.call(c, close).unwrap();
        let shown = bench.getattr(c, body.fid1).unwrap();
        assert_eq!(shown.size, seen, "{name}");
        assert!(shown.valid.contains(Valid::LAZYSIZE), "{name}");
    }
    // Nor does a truncate leave one.
    let f = c.fid(2);
    let mut buffers = c.setattr(f, SetattrValid::SIZE | SetattrValid::CTIME, 0, 0);
    let mut record: SetattrRecord = SetattrRecord::parse(LITTLE, buffers.get(0).unwrap()).unwrap();
    record.size = 1 << 40;
    buffers.replace(0, record.to_bytes(LITTLE));
    bench.reint(c, buffers).unwrap();
    bench.call(c, wire::punch(ObjectId::of(f), 3)).unwrap();
    assert_eq!(bench.getattr(c, f).unwrap().size, 3);
}
