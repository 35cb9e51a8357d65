//! What an object target answers, statement by statement.

use lnet_types::{ByteOrder, Errno};
use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags};
use lustre_wire::fid::{Fid, ObjectId, Valid};
use lustre_wire::ost::{Niobuf, NiobufFlags, Obdo, ObdoFlags, Statfs, StatfsState};
use lustre_wire::{Buffers, Checksum, Layout, Opcode, Portal};
use ptlrpc::{Bulk, Call, CallError, Direction, Reply};

use super::world::{Client, World};
use crate::ost::wire;
use crate::{Commit, MemoryStore, Ost, OstLimits};

const MIB: usize = 1 << 20;
/// A sequence of ordinary objects.
const SEQ: u64 = 0x2_4000_0400;

pub(super) fn ost() -> Ost {
    Ost::new(OstLimits::default())
}

pub(super) fn store() -> MemoryStore {
    MemoryStore::new(Commit::AtOnce, 1 << 30)
}

pub(super) fn world() -> (World, Client) {
    let mut world = World::new(ost(), store());
    let client = world.client(wire::wanted());
    (world, client)
}

pub(super) fn object(oid: u32) -> ObjectId {
    ObjectId::of(Fid { seq: SEQ, oid, ver: 0 })
}

pub(super) fn errno<T: core::fmt::Debug>(result: Result<T, CallError>) -> Errno {
    match result {
        Err(CallError::Refused(errno)) => errno,
        other => panic!("expected a refusal: {other:?}"),
    }
}

pub(super) fn body(reply: &Reply) -> Obdo {
    reply.msg().unwrap().get::<Obdo>(1).unwrap()
}

/// Errors of the ranges of a write.
pub(super) fn results(reply: &Reply) -> Vec<i32> {
    let msg = reply.msg().unwrap();
    let words = msg.buffer(2).unwrap().chunks(4);
    words.map(|b| i32::get(ByteOrder::Little, b)).collect()
}

/// The first `n` objects of the sequence.
pub(super) fn make(world: &mut World, client: Client, n: u32) {
    let made = world.call(client, wire::create(object(n))).unwrap();
    assert_eq!(body(&made).id, object(n));
}

pub(super) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 3) as u8 ^ seed).collect()
}

pub(super) fn write_call(
    world: &mut World,
    id: ObjectId,
    ranges: &[Niobuf],
    bytes: &[u8],
    edit: impl FnOnce(&mut Obdo),
) -> Call {
    let mut body = wire::data_body(id, false, None, 0);
    edit(&mut body);
    let mut call = wire::data(Opcode::OST_WRITE, &body, ranges, None);
    call.bulk = Some(Bulk { direction: Direction::Write, memory: world.memory(bytes) });
    call
}

/// Writes by bulk data.
pub(super) fn write(
    world: &mut World,
    client: Client,
    id: ObjectId,
    offset: u64,
    bytes: &[u8],
) -> Reply {
    let ranges = [wire::range(offset, bytes.len() as u32, NiobufFlags::WRITE)];
    let call = write_call(world, id, &ranges, bytes, |_| ());
    world.call(client, call).unwrap()
}

/// Reads by bulk data: the status, the attributes, and the memory.
pub(super) fn read(
    world: &mut World,
    client: Client,
    id: ObjectId,
    ranges: &[Niobuf],
    kind: Option<Checksum>,
) -> (i32, Obdo, Vec<u8>) {
    let len: usize = ranges.iter().map(|r| r.len as usize).sum();
    let mut call = wire::data(Opcode::OST_READ, &wire::data_body(id, false, kind, 0), ranges, None);
    let memory = world.memory(&vec![0xEE; len]);
    call.bulk = Some(Bulk { direction: Direction::Read, memory: memory.clone() });
    let reply = world.call(client, call).unwrap();
    (reply.status, body(&reply), world.bytes(&memory))
}

pub(super) fn read_range(
    world: &mut World,
    client: Client,
    id: ObjectId,
    offset: u64,
    len: usize,
) -> Vec<u8> {
    let range = [wire::range(offset, len as u32, NiobufFlags::READ)];
    let (status, _, mut bytes) = read(world, client, id, &range, None);
    bytes.truncate(status as usize);
    bytes
}

fn attributes(world: &mut World, client: Client, id: ObjectId) -> Obdo {
    body(&world.call(client, wire::get_attributes(id)).unwrap())
}

#[test]
fn l78_getattr_shows_what_an_object_has_and_its_version() {
    let (mut world, client) = world();
    make(&mut world, client, 2);
    let fresh = attributes(&mut world, client, object(1));
    assert_eq!((fresh.size, fresh.blocks, fresh.mode), (0, 0, 0o107_666));
    assert!(fresh.valid.contains(Valid::DATAVERSION | Valid::SIZE | Valid::MTIME));
    assert_eq!(fresh.flags, ObdoFlags::FLUSH);
    let written = write(&mut world, client, object(1), 0, &pattern(1000, 0));
    let after = attributes(&mut world, client, object(1));
    assert_eq!((after.size, after.blocks, after.mode), (1000, 8, 0o100_666));
    assert_eq!(after.data_version, written.transno);
    assert!(after.data_version > fresh.data_version);
    let missing = world.call(client, wire::get_attributes(object(3)));
    assert_eq!(errno(missing), Errno::ENOENT);
}

#[test]
fn holes_of_an_object_have_no_blocks() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    write(&mut world, client, object(1), 1 << 30, &pattern(1, 0));
    let far = attributes(&mut world, client, object(1));
    assert_eq!((far.size, far.blocks), ((1 << 30) + 1, 8));
    write(&mut world, client, object(1), 4000, &pattern(200, 0));
    assert_eq!(attributes(&mut world, client, object(1)).blocks, 24);
    world.call(client, wire::punch(object(1), 1 << 20)).unwrap();
    assert_eq!(attributes(&mut world, client, object(1)).blocks, 16);
    world.call(client, wire::punch(object(1), 1 << 40)).unwrap();
    let longer = attributes(&mut world, client, object(1));
    assert_eq!((longer.size, longer.blocks), (1 << 40, 16));
}

#[test]
fn l79_setattr_takes_owners_times_and_mode_but_no_size() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let mut asked = Obdo { uid: 7, gid: 8, mtime: -5, mode: 0o170_600, ..wire::named(object(1)) };
    asked.valid |= Valid::UID | Valid::GID | Valid::MTIME | Valid::MODE;
    let set = world.call(client, wire::object(Opcode::OST_SETATTR, &asked)).unwrap();
    assert_ne!(set.transno, 0);
    let has = attributes(&mut world, client, object(1));
    assert_eq!((has.uid, has.gid, has.mtime, has.mode), (7, 8, -5, 0o100_600));
    asked.valid |= Valid::SIZE;
    let sized = world.call(client, wire::object(Opcode::OST_SETATTR, &asked));
    assert_eq!(errno(sized), Errno::EPERM);
    asked.size = u64::MAX;
    world.call(client, wire::object(Opcode::OST_SETATTR, &asked)).unwrap();
}

#[test]
fn l80_punch_cuts_and_extends_and_wants_both_ends() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    write(&mut world, client, object(1), 0, &pattern(10_000, 1));
    let cut = world.call(client, wire::punch(object(1), 5000)).unwrap();
    assert_eq!((body(&cut).blocks, body(&cut).valid), (16, Valid::ID | Valid::BLOCKS));
    world.call(client, wire::punch(object(1), 9000)).unwrap();
    assert_eq!(attributes(&mut world, client, object(1)).size, 9000);
    let mut expected = pattern(5000, 1);
    expected.resize(12_288, 0);
    assert_eq!(read_range(&mut world, client, object(1), 0, 20_000), expected);
    for edit in [(|b: &mut Obdo| b.valid.remove(Valid::SIZE)) as fn(&mut Obdo), |b| {
        b.valid.remove(Valid::BLOCKS)
    }] {
        let mut asked = Obdo { blocks: u64::MAX, ..wire::named(object(1)) };
        asked.valid |= Valid::SIZE | Valid::BLOCKS;
        edit(&mut asked);
        // On another portal than that of I/O it has an answer (L-76).
        let mut call = wire::object(Opcode::OST_PUNCH, &asked);
        call.portals = Some((Portal::OST_REQUEST, Portal::OSC_REPLY));
        assert_eq!(errno(world.call(client, call)), Errno::EPROTO);
    }
}

#[test]
fn l81_sync_commits_an_object_or_the_whole_target() {
    let mut world = World::new(ost(), MemoryStore::new(Commit::Ordered, 1 << 30));
    let client = world.client(wire::wanted());
    make(&mut world, client, 1);
    let synced = world.call(client, wire::sync(Some(object(1)))).unwrap();
    assert!(body(&synced).valid.contains(Valid::SIZE));
    assert_eq!(synced.msg().unwrap().body().unwrap().last_committed >> 32, 1);
    let whole = world.call(client, wire::sync(None)).unwrap();
    assert_eq!(body(&whole).valid, Valid::empty());
    assert_eq!(errno(world.call(client, wire::sync(Some(object(2))))), Errno::ENOENT);
}

#[test]
fn l82_statfs_is_answered_when_the_target_is_full() {
    let mut world = World::new(ost(), MemoryStore::new(Commit::AtOnce, 2 << 20));
    let client = world.client(wire::wanted());
    make(&mut world, client, 1);
    let space = |world: &mut World| {
        let reply = world.call(client, wire::statfs()).unwrap();
        reply.msg().unwrap().get::<Statfs>(1).unwrap()
    };
    let before = space(&mut world);
    assert_eq!((before.blocks, before.bsize), (512, 4096));
    assert!(!before.state.contains(StatfsState::ENOSPC));
    write(&mut world, client, object(1), 0, &pattern(2 * MIB - 5000, 0));
    write(&mut world, client, object(1), 1 << 30, &[1; 1000]);
    let after = space(&mut world);
    assert!(after.bavail < 2 && after.state.contains(StatfsState::ENOSPC), "{after:?}");
}

#[test]
fn room_that_others_have_made_is_seen_within_a_second() {
    let mut world = World::new(ost(), MemoryStore::new(Commit::AtOnce, 1 << 30));
    let client = world.client(wire::wanted());
    make(&mut world, client, 1);
    let mut at = 0;
    let mut written = |world: &mut World| {
        at += 4096;
        let ranges = [wire::range(at, 4096, NiobufFlags::WRITE)];
        let call = write_call(world, object(1), &ranges, &[1; 4096], |_| ());
        match world.call(client, call) {
            Ok(reply) => reply.msg().unwrap().get::<i32>(2).unwrap(),
            Err(CallError::Refused(errno)) => errno.negative(),
            Err(e) => panic!("{e}"),
        }
    };
    assert_eq!(written(&mut world), 0);
    world.room(1);
    // It is measured with each change.
    let refused = [(); 3].map(|()| written(&mut world));
    assert_eq!(refused[1..], [-28, -28]);
    world.room(1 << 30);
    world.pass(core::time::Duration::from_secs(1));
    assert_eq!(written(&mut world), 0);
}

#[test]
fn l83_create_makes_what_is_missing_up_to_the_wanted_object() {
    let (mut world, client) = world();
    let create = |world: &mut World, id, flags| {
        let mut asked = Obdo { flags, ..wire::named(id) };
        asked.valid |= Valid::FLAGS;
        let reply = world.call(client, wire::object(Opcode::OST_CREATE, &asked));
        reply.map(|reply| body(&reply))
    };
    let none = ObdoFlags::empty();
    let made = create(&mut world, object(32), none).unwrap();
    assert_eq!((made.id, made.size), (object(32), 0x1ff_ffff));
    assert_eq!(made.valid, Valid::ID | Valid::SIZE | Valid::GROUP);
    for oid in [1, 32] {
        attributes(&mut world, client, object(oid));
    }
    // One that is behind learns where the sequence stands; number 0 of old asks for one object.
    assert_eq!(create(&mut world, object(5), none).unwrap().id, object(33));
    assert_eq!(create(&mut world, object(32), none).unwrap().id, object(32));
    for n in 1..3 {
        assert_eq!(create(&mut world, ObjectId::old(0), none).unwrap().id, ObjectId::old(n));
    }
    // A part of a large demand is success; far beyond it only the last ones are made.
    let part = create(&mut world, object(60_000), none).unwrap().id;
    assert_eq!(part, object(8032));
    let far = create(&mut world, object(500_000), none).unwrap().id;
    assert_eq!(far, object(488_000));
    let gap = world.call(client, wire::get_attributes(object(400_000)));
    assert_eq!(errno(gap), Errno::ENOENT);
    assert_eq!(errno(create(&mut world, object(9), ObdoFlags::RECREATE)), Errno::EINVAL);
    let idif = ObjectId::of(Fid { seq: 0x1_0000_0000, oid: 3, ver: 0 });
    assert_eq!(create(&mut world, idif, none).unwrap().id, idif, "the sequence of old");
}

#[test]
fn l83_delorphan_removes_what_the_mdt_does_not_know_of() {
    let (mut world, client) = world();
    let orphans = |world: &mut World, oid| {
        let mut asked = Obdo { flags: ObdoFlags::DELORPHAN, ..wire::named(object(oid)) };
        asked.valid |= Valid::FLAGS;
        body(&world.call(client, wire::object(Opcode::OST_CREATE, &asked)).unwrap()).id
    };
    for last in [3000, 7000] {
        make(&mut world, client, last);
    }
    write(&mut world, client, object(6999), 0, &pattern(5000, 0));
    assert_eq!(orphans(&mut world, 4000), object(4000));
    attributes(&mut world, client, object(4000));
    for oid in [4001, 6999, 7000] {
        assert_eq!(errno(world.call(client, wire::get_attributes(object(oid)))), Errno::ENOENT);
    }
    // Objects that are made again have nothing of those before.
    make(&mut world, client, 7000);
    assert_eq!(attributes(&mut world, client, object(6999)).size, 0);
    assert_eq!(orphans(&mut world, 7010), object(7010));
    attributes(&mut world, client, object(7010));
    // One that is too far behind removes nothing.
    for last in [15_000, 23_000, 30_000] {
        make(&mut world, client, last);
    }
    assert_eq!(orphans(&mut world, 9999), object(30_001));
    attributes(&mut world, client, object(30_000));
}

/// A client whose file was lost in a crash of the metadata target may still write to its object.
#[test]
fn numbers_of_orphans_are_not_used_again_where_that_was_agreed() {
    let mut world = World::new(ost(), store());
    let mut wanted = wire::wanted();
    wanted.flags |= ConnectFlags::SKIP_ORPHAN;
    let client = world.client(wanted);
    make(&mut world, client, 9);
    let mut asked = Obdo { flags: ObdoFlags::DELORPHAN, ..wire::named(object(4)) };
    asked.valid |= Valid::FLAGS;
    let answer = world.call(client, wire::object(Opcode::OST_CREATE, &asked)).unwrap();
    assert_eq!(body(&answer).id, object(9));
    make(&mut world, client, 12);
    for oid in 5..=9 {
        assert_eq!(errno(world.call(client, wire::get_attributes(object(oid)))), Errno::ENOENT);
    }
    for oid in [4, 10, 12] {
        attributes(&mut world, client, object(oid));
    }
}

#[test]
fn l85_last_number_has_the_form_of_the_request() {
    let (mut world, client) = world();
    make(&mut world, client, 9);
    world.call(client, wire::create(ObjectId::old(3))).unwrap();
    let old = world.call(client, wire::last_id()).unwrap();
    assert_eq!(old.msg().unwrap().get::<u64>(1).unwrap(), 3);
    let fid = Fid { seq: SEQ, oid: 1, ver: 0 };
    let key = Buffers::new().text(b"last_fid").layout(&fid);
    let call = Call::new(Opcode::OST_GET_INFO, key).answered_by(&[16]);
    let last = world.call(client, call).unwrap();
    assert_eq!(last.msg().unwrap().get::<Fid>(1).unwrap(), Fid { oid: 9, ..fid });
    let other = Call::new(Opcode::OST_GET_INFO, Buffers::from([b"fiemap"])).answered_by(&[16]);
    assert_eq!(errno(world.call(client, other)), Errno::EOPNOTSUPP);
}

#[test]
fn l86_destroy_removes_several_objects_and_names_the_next() {
    let (mut world, client) = world();
    make(&mut world, client, 3000);
    write(&mut world, client, object(2), 0, &pattern(5000, 0));
    let one = world.call(client, wire::destroy(object(2), 1)).unwrap();
    assert_eq!((body(&one).id, body(&one).valid), (object(3), Valid::empty()));
    assert_eq!(errno(world.call(client, wire::destroy(object(2), 1))), Errno::ENOENT);
    let many = world.call(client, wire::destroy(object(1), 2500)).unwrap();
    assert_eq!(body(&many).id, object(2501));
    assert_eq!(errno(world.call(client, wire::get_attributes(object(2500)))), Errno::ENOENT);
    attributes(&mut world, client, object(2501));
}

#[test]
fn l87_data_is_written_and_read_by_bulk_in_pieces() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let bytes = pattern(3 * MIB + 5, 7);
    let reply = write(&mut world, client, object(1), 1000, &bytes);
    assert_eq!((reply.status, results(&reply)), (0, vec![0]));
    assert_eq!(body(&reply).size, 1000 + bytes.len() as u64);
    let found = read_range(&mut world, client, object(1), 1000, bytes.len());
    assert!(found == bytes);
    // Two ranges with a hole between, one after the other in the data.
    let flags = NiobufFlags::WRITE;
    let ranges = [wire::range(100, 3996, flags), wire::range(8192, 10, flags)];
    let call = write_call(&mut world, object(1), &ranges, &pattern(4006, 9), |_| ());
    world.call(client, call).unwrap();
    let mut expected = vec![0; 1000];
    expected.extend(&bytes[..19_000]);
    let new = pattern(4006, 9);
    expected[100..4096].copy_from_slice(&new[..3996]);
    expected[8192..8202].copy_from_slice(&new[3996..]);
    assert!(read_range(&mut world, client, object(1), 0, 20_000) == expected);
    let ranges = ranges.map(|range| wire::range(range.offset, range.len, NiobufFlags::READ));
    let (status, _, found) = read(&mut world, client, object(1), &ranges, None);
    assert!(status == 4006 && found == new);
}

#[test]
fn l87_data_requests_on_another_portal_are_refused() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let range = [wire::range(0, 10, NiobufFlags::WRITE)];
    let mut call = write_call(&mut world, object(1), &range, &[1; 10], |_| ());
    call.portals = Some((Portal::OST_REQUEST, Portal::OSC_REPLY));
    assert_eq!(errno(world.call(client, call)), Errno::EPROTO);
}

#[test]
fn l88_small_data_goes_inside_of_the_messages() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let (bytes, kind) = (pattern(5000, 3), Checksum::Adler);
    let sum = kind.of(&bytes);
    let asked = wire::data_body(object(1), true, Some(kind), sum);
    let ranges = [wire::range(0, 5000, NiobufFlags::WRITE)];
    let call = wire::data(Opcode::OST_WRITE, &asked, &ranges, Some(&bytes));
    let wrote = world.call(client, call).unwrap();
    let said = body(&wrote);
    assert_eq!((said.nlink, said.flags.checksum()), (sum, 2));
    assert!(said.flags.contains(ObdoFlags::SHORT_IO));
    let ranges = [wire::range(0, 16_384, NiobufFlags::READ)];
    let asked = wire::data_body(object(1), true, Some(kind), 0);
    let call = wire::data(Opcode::OST_READ, &asked, &ranges, Some(&[]));
    let reply = world.call(client, call).unwrap();
    let mut expected = bytes;
    expected.resize(8192, 0);
    assert_eq!(reply.status, 8192);
    assert_eq!(reply.msg().unwrap().buffer(2).unwrap(), expected);
    assert_eq!(body(&reply).nlink, kind.of(&expected));
}

#[test]
fn l89_read_ends_with_the_page_in_which_the_object_ends() {
    let (mut world, client) = world();
    make(&mut world, client, 2);
    write(&mut world, client, object(1), 0, &[7; 5000]);
    let lens =
        [(0, 100_000, 8192), (4096, 4096, 4096), (8191, 9, 1), (8192, 10, 0), (1 << 40, 5, 0)];
    for (offset, len, expected) in lens {
        let found = read_range(&mut world, client, object(1), offset, len);
        assert_eq!(found.len(), expected, "{len} bytes at {offset}");
    }
    assert_eq!(read_range(&mut world, client, object(2), 0, 100), []);
    let flags = NiobufFlags::READ;
    let ranges = [wire::range(0, 4096, flags), wire::range(8192, 10, flags)];
    let (status, said, _) = read(&mut world, client, object(1), &ranges, None);
    assert_eq!((status, said.valid), (4096, Valid::empty()));
    let range = [wire::range(0, 10, flags)];
    let body = wire::data_body(object(9), true, None, 0);
    let missing = wire::data(Opcode::OST_READ, &body, &range, Some(&[]));
    assert_eq!(errno(world.call(client, missing)), Errno::ENOENT);
}

#[test]
fn l89_object_that_was_only_extended_reads_as_zeros() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    world.call(client, wire::punch(object(1), 6000)).unwrap();
    assert_eq!(read_range(&mut world, client, object(1), 100, 10_000), vec![0; 8092]);
}

#[test]
fn l91_first_write_gives_an_object_its_owner_and_parent() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let range = [wire::range(0, 4, NiobufFlags::WRITE)];
    for (uid, expected) in [(5, 5), (6, 5)] {
        let call = write_call(&mut world, object(1), &range, b"data", |body| {
            (body.uid, body.mtime) = (uid, 77);
            body.valid |= Valid::UID | Valid::MTIME;
        });
        let said = body(&world.call(client, call).unwrap());
        assert_eq!(said.uid, expected);
        assert!(!said.valid.intersects(Valid::MTIME | Valid::ATIME));
        assert_eq!(attributes(&mut world, client, object(1)).mtime, 77);
    }
    let call = write_call(&mut world, object(7), &range, b"data", |_| ());
    assert_eq!(errno(world.call(client, call)), Errno::ENOENT);
}

#[test]
fn l92_write_is_answered_when_it_is_committed_unless_all_ranges_may_wait() {
    let mut world = World::new(ost(), MemoryStore::new(Commit::Ordered, 1 << 30));
    let client = world.client(wire::wanted());
    make(&mut world, client, 1);
    let flags = NiobufFlags::WRITE | NiobufFlags::SRVLOCK;
    let later = |offset| Niobuf { offset, len: 4096, flags: flags | NiobufFlags::ASYNC };
    let at_once = Niobuf { flags, ..later(4096) };
    let mut committed = |ranges: [Niobuf; 2]| {
        let call = write_call(&mut world, object(1), &ranges, &[1; 8192], |_| ());
        let reply = world.call(client, call).unwrap();
        reply.msg().unwrap().body().unwrap().last_committed >= reply.transno
    };
    assert!(!committed([later(0), later(4096)]));
    assert!(committed([later(0), at_once]));
}

#[test]
fn l94_checksums_of_each_kind_are_those_of_the_data() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let bytes = pattern(2 * MIB, 5);
    write(&mut world, client, object(1), 0, &bytes);
    for kind in [Checksum::Crc32, Checksum::Adler, Checksum::Crc32c] {
        let range = [wire::range(0, bytes.len() as u32, NiobufFlags::READ)];
        let (_, said, found) = read(&mut world, client, object(1), &range, Some(kind));
        assert!(found == bytes);
        assert_eq!((said.nlink, said.flags.checksum()), (kind.of(&bytes), kind.number()));
        assert_eq!(said.valid, Valid::CKSUM | Valid::FLAGS);
    }
    // A kind that is not computed here is answered with one that is, by name.
    let range = [wire::range(0, 100, NiobufFlags::READ)];
    let mut asked = wire::data_body(object(1), true, Some(Checksum::Crc32), 0);
    asked.flags = asked.flags.with_checksum(6);
    let call = wire::data(Opcode::OST_READ, &asked, &range, Some(&[]));
    let said = body(&world.call(client, call).unwrap());
    assert_eq!((said.flags.checksum(), said.nlink), (2, Checksum::Adler.of(&bytes[..100])));
}

fn with_grants() -> ConnectData {
    let wanted = wire::wanted();
    let flags = wanted.flags | ConnectFlags::GRANT | ConnectFlags::GRANT_PARAM;
    ConnectData { flags, grant: 1 << 30, ..wanted }
}

/// A write of one range under a promise, by a client that holds and wants so much.
fn granted_write(
    world: &mut World,
    client: Client,
    range: (u64, usize),
    held: u64,
    wanted: u32,
    again: bool,
) -> Result<Reply, CallError> {
    let flags = NiobufFlags::SRVLOCK | NiobufFlags::FROM_GRANT;
    let ranges = [Niobuf { offset: range.0, len: range.1 as u32, flags }];
    let call = write_call(world, object(1), &ranges, &pattern(range.1, 1), |body| {
        (body.grant, body.mode, body.data_version) = (held, wanted, range.1 as u64);
        body.valid |= Valid::GRANT;
        body.flags.set(ObdoFlags::RECOV_RESEND, again);
    });
    world.call(client, call)
}

#[test]
fn l95_promised_bytes_are_written_when_others_get_enospc_in_their_result() {
    let mut world = World::new(ost(), MemoryStore::new(Commit::AtOnce, 16 << 20));
    let (first, second) = (world.client(with_grants()), world.client(with_grants()));
    make(&mut world, first, 1);
    // Nothing is promised before a client has written or read.
    let reply = granted_write(&mut world, first, (0, 4096), 0, 4 << 20, false).unwrap();
    let promise = body(&reply).grant;
    assert!((1..=2 << 20).contains(&promise), "{promise}: at most an eighth of what is left");
    let all = 16 << 20;
    let left = (all - promise as usize - 64 * 1024) & !4095;
    write(&mut world, second, object(1), 1 << 30, &pattern(left - MIB, 1));
    let ranges = [wire::range(1 << 40, MIB as u32 * 2, NiobufFlags::WRITE)];
    let call = write_call(&mut world, object(1), &ranges, &pattern(2 * MIB, 1), |_| ());
    let full = world.call(second, call).unwrap();
    assert_eq!((results(&full), full.transno), (vec![-28], 0));
    let range = (1 << 41, (promise & !4095) as usize);
    let reply = granted_write(&mut world, first, range, promise, 4 << 20, false).unwrap();
    assert_eq!(results(&reply), [0]);
    // What is there may be written over.
    write(&mut world, second, object(1), 1 << 30, &[5; 4096]);
}

#[test]
fn l96_resent_write_leaves_the_account_as_it_is() {
    let mut world = World::new(ost(), store());
    let client = world.client(with_grants());
    make(&mut world, client, 1);
    let mut grant = |again| {
        let reply = granted_write(&mut world, client, (0, 4096), 0, 1 << 20, again).unwrap();
        body(&reply).grant
    };
    assert_eq!(grant(true), 0);
    assert_eq!(grant(false), 1 << 20);
    assert_eq!(grant(true), 0);
}

#[test]
fn l96_promises_that_are_given_back_or_of_clients_that_are_gone_are_free_again() {
    let mut world = World::new(ost(), MemoryStore::new(Commit::AtOnce, 64 << 20));
    let (first, second) = (world.client(with_grants()), world.client(wire::wanted()));
    make(&mut world, first, 1);
    let promised = |world: &mut World| {
        let reply = world.call(second, wire::statfs()).unwrap();
        let space = reply.msg().unwrap().get::<Statfs>(1).unwrap();
        u64::from(space.granted) * 4096
    };
    let given =
        body(&granted_write(&mut world, first, (0, 4096), 0, 8 << 20, false).unwrap()).grant;
    assert_eq!(promised(&mut world), given & !4095);
    let mut back = Obdo { grant: given - 8192, ..Obdo::default() };
    back.valid = Valid::GRANT;
    let key = b"grant_shrink\0".to_vec();
    let call = Call::new(Opcode::OST_SET_INFO, Buffers::new().bytes(key).layout(&back))
        .answered_by(&[Obdo::LEN as u32]);
    world.call(first, call).unwrap();
    assert_eq!(promised(&mut world), 8192);
    world.kill(first);
    world.pass(core::time::Duration::from_secs(400));
    promised(&mut world);
    assert_eq!(promised(&mut world), 0);
}

#[test]
fn owner_is_held_to_its_limit_and_an_object_that_is_removed_makes_room() {
    let limits = OstLimits { uid_bytes: Some(10_000) };
    let mut world = World::new(Ost::new(limits), store());
    let client = world.client(wire::wanted());
    make(&mut world, client, 3);
    let range = |len| [wire::range(0, len, NiobufFlags::WRITE)];
    let owned = |world: &mut World, oid, len: u32, uid| {
        let call = write_call(world, object(oid), &range(len), &pattern(len as usize, 0), |body| {
            body.uid = uid;
            body.valid |= Valid::UID;
        });
        world.call(client, call).map(|_| ())
    };
    owned(&mut world, 1, 6000, 5).unwrap();
    owned(&mut world, 1, 5000, 5).unwrap();
    assert_eq!(errno(owned(&mut world, 2, 4001, 5)), Errno::EDQUOT);
    owned(&mut world, 2, 4000, 5).unwrap();
    owned(&mut world, 3, 9000, 6).unwrap();
    assert_eq!(errno(owned(&mut world, 1, 6001, 5)), Errno::EDQUOT);
    world.call(client, wire::punch(object(1), 1000)).unwrap();
    owned(&mut world, 1, 6000, 5).unwrap();
    // An object that changes hands counts for its new owner.
    let mut given = Obdo { uid: 6, ..wire::named(object(2)) };
    given.valid |= Valid::UID;
    let give = wire::object(Opcode::OST_SETATTR, &given);
    assert_eq!(errno(world.call(client, give.clone())), Errno::EDQUOT);
    world.call(client, wire::destroy(object(3), 1)).unwrap();
    world.call(client, give).unwrap();
    owned(&mut world, 1, 10_000, 5).unwrap();
}

#[test]
fn l49_client_without_a_lock_that_does_not_say_srvlock_is_refused_as_one_that_has_lost_it() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let range = [Niobuf { offset: 0, len: 4, flags: NiobufFlags::READ }];
    let body = wire::data_body(object(1), true, None, 0);
    let read = wire::data(Opcode::OST_READ, &body, &range, Some(&[]));
    assert_eq!(errno(world.call(client, read)), Errno::ESTALE);
    let call = write_call(&mut world, object(1), &range, b"data", |_| ());
    assert_eq!(errno(world.call(client, call)), Errno::ESTALE);
    let mut asked = Obdo { blocks: u64::MAX, ..wire::named(object(1)) };
    asked.valid |= Valid::SIZE | Valid::BLOCKS;
    let punch = wire::object(Opcode::OST_PUNCH, &asked);
    assert_eq!(errno(world.call(client, punch)), Errno::ESTALE);
}

#[test]
fn l103_echo_grants_what_the_echo_server_grants_and_serves_objects() {
    let mut world = World::new(Ost::echo(), store());
    let flags = with_grants().flags | ConnectFlags::VBR;
    let client = world.client(ConnectData { flags, ..with_grants() });
    let echo = |oid| ObjectId::of(Fid { seq: 2, oid, ver: 0 });
    let made = world.call(client, wire::create(echo(4))).unwrap();
    assert_eq!(body(&made).id, echo(4));
    // Locks are not asked for, and promises are neither used nor given.
    let flags = NiobufFlags::FROM_GRANT;
    let range = [Niobuf { offset: 0, len: 5000, flags }];
    let call = write_call(&mut world, echo(4), &range, &pattern(5000, 1), |body| {
        (body.mode, body.valid) = (1 << 20, body.valid | Valid::GRANT);
    });
    let said = body(&world.call(client, call).unwrap());
    assert_eq!((said.size, said.grant, said.valid & Valid::GRANT), (5000, 0, Valid::empty()));
    let found = read_range(&mut world, client, echo(4), 0, 5000);
    assert!(found == pattern(5000, 1));
    let granted = world.granted();
    assert_eq!(granted.flags, ConnectFlags::FID | ConnectFlags::FLAGS2);
    assert_eq!(granted.flags2.bits(), wire::wanted().flags2.bits());
}

#[test]
fn connect_grants_checksums_and_sizes_that_the_target_has() {
    let mut world = World::new(ost(), store());
    let all = ChecksumKinds::CRC32C | ChecksumKinds::T10IP4K;
    let client =
        world.client(ConnectData { cksum_types: all, brw_size: 64 << 20, ..with_grants() });
    world.call(client, wire::statfs()).unwrap();
    let granted = world.granted();
    assert_eq!(granted.cksum_types, ChecksumKinds::CRC32C);
    assert_eq!((granted.brw_size, granted.grant), (wire::DATA_MAX, 0));
    assert_eq!((granted.grant_blkbits, granted.grant_max_blks), (12, 1024));
}
