//! Requests for objects in which anything may stand: each ends in a named error or in no answer, and
//! the target goes on.

use lnet_types::{Errno, Prng};
use lustre_wire::fid::{Fid, ObjectId, Valid};
use lustre_wire::ost::{Niobuf, NiobufFlags, Obdo, ObdoFlags};
use lustre_wire::{Buffers, Opcode, Portal};
use ptlrpc::{Bulk, Call, CallError, Direction};

use super::ost::{errno, make, object, pattern, read_range, world, write, write_call};
use super::world::{Client, World};
use crate::ost::wire;

const FLAGS: NiobufFlags = NiobufFlags::WRITE.union(NiobufFlags::SRVLOCK);

fn range(offset: u64, len: u32) -> Niobuf {
    Niobuf { offset, len, flags: FLAGS }
}

/// Whether a request of a client is left without an answer.
fn is_dropped(world: &mut World, client: Client, mut call: Call) -> bool {
    call.limit = Some(core::time::Duration::from_secs(1));
    let id = world.begin(client, call);
    let dropped = world.end_of(client, id).is_none();
    world.pass(core::time::Duration::from_secs(300));
    dropped
}

#[test]
fn l73_ranges_that_overlap_descend_exceed_or_begin_off_pages_are_dropped() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let cases: [(&str, Vec<Niobuf>); 8] = [
        ("none", vec![]),
        ("empty", vec![range(0, 0)]),
        ("overlap", vec![range(0, 8192), range(4096, 4096)]),
        ("same", vec![range(0, 4096), range(0, 4096)]),
        ("descend", vec![range(8192, 4096), range(0, 4096)]),
        ("end off a page", vec![range(0, 100), range(4096, 10)]),
        ("begin off a page", vec![range(0, 4096), range(5000, 10)]),
        ("beyond any object", vec![range(u64::MAX - 4095, 4096)]),
    ];
    for (name, ranges) in cases {
        let call = write_call(&mut world, object(1), &ranges, &[1; 8192], |_| ());
        assert!(is_dropped(&mut world, client, call), "{name}");
    }
    let mut large = vec![range(0, 1 << 30); 3];
    (large[1].offset, large[2].offset) = (1 << 30, 2 << 30);
    let call = write_call(&mut world, object(1), &large, &[1; 8192], |_| ());
    assert!(is_dropped(&mut world, client, call), "more than a request may have");
    // A well formed one beyond what an object has is answered.
    let beyond = write_call(&mut world, object(1), &[range(1 << 56, 1)], &[1], |_| ());
    let refused = world.call(client, beyond).unwrap_err();
    assert_eq!(refused, CallError::Refused(Errno::EFBIG));
    // Off pages at the two ends alone is as it should be.
    let good = [range(100, 3996), range(4096, 4096), range(16_384, 7)];
    let call = write_call(&mut world, object(1), &good, &pattern(8099, 0), |_| ());
    world.call(client, call).unwrap();
}

#[test]
fn l72_counts_and_descriptors_that_lie_are_dropped() {
    let (mut world, client) = world();
    make(&mut world, client, 2);
    let edits: [(&str, usize, usize, &[u8]); 6] = [
        ("more ranges than there are", 1, 20, &2u32.to_le_bytes()),
        ("fewer ranges than there are", 1, 20, &0u32.to_le_bytes()),
        ("ranges beyond number", 1, 20, &u32::MAX.to_le_bytes()),
        ("descriptors that are no power of two", 1, 16, &(2u32 << 16).to_le_bytes()),
        ("another object than the body's", 1, 8, &2u32.to_le_bytes()),
        ("a range that is cut off", 2, 16, &[1]),
    ];
    for (name, buffer, at, bytes) in edits {
        let mut call = write_call(&mut world, object(1), &[range(0, 10)], &[1; 10], |_| ());
        let mut edited = call.buffers.get(buffer).unwrap().to_vec();
        edited.resize(edited.len().max(at + bytes.len()), 0);
        edited[at..at + bytes.len()].copy_from_slice(bytes);
        call.buffers.replace(buffer, edited);
        assert!(is_dropped(&mut world, client, call), "{name}");
    }
    let mut two = write_call(&mut world, object(1), &[range(0, 10)], &[1; 10], |_| ());
    two.buffers.replace(1, two.buffers.get(1).unwrap().repeat(2));
    assert!(is_dropped(&mut world, client, two), "two objects");
    let mut some = vec![range(0, 4096), range(4096, 10)];
    some[1].flags = NiobufFlags::WRITE;
    let call = write_call(&mut world, object(1), &some, &[1; 4106], |_| ());
    assert!(is_dropped(&mut world, client, call), "a lock for some of the ranges");
}

#[test]
fn l88_data_inside_of_a_message_that_is_not_what_the_range_says_is_dropped() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let asked = wire::data_body(object(1), true, None, 0);
    for (ranges, data) in [
        (vec![range(0, 5)], vec![1; 4]),
        (vec![range(0, 5)], vec![1; 6]),
        (vec![range(0, 5)], vec![]),
        (vec![range(0, 4096), range(4096, 1)], vec![1; 4097]),
        (vec![range(0, 16_385)], vec![1; 16_385]),
    ] {
        let call = wire::data(Opcode::OST_WRITE, &asked, &ranges, Some(&data));
        assert!(is_dropped(&mut world, client, call), "{} bytes", data.len());
    }
}

#[test]
fn bulk_data_of_another_length_than_the_ranges_is_not_written() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    // Pieces of 1 MiB: two are posted, three are named.
    let mut call = write_call(&mut world, object(1), &[range(0, 3 << 20)], &[1; 2 << 20], |_| ());
    call.limit = Some(core::time::Duration::from_secs(1));
    assert_eq!(errno(world.call(client, call)), Errno::EPROTO);
    // No bulk data at all.
    let body = wire::data_body(object(1), false, None, 0);
    let call = wire::data(Opcode::OST_WRITE, &body, &[range(0, 3 << 20)], None);
    assert_eq!(errno(world.call(client, call)), Errno::EPROTO);
    assert_eq!(read_range(&mut world, client, object(1), 0, 100), []);
}

#[test]
fn l76_objects_of_no_sequence_or_number_are_refused_or_dropped_by_portal() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let strange = ObjectId::of(Fid { seq: 1, oid: 1, ver: 0 });
    let zero = ObjectId::old(0);
    for id in [strange, zero] {
        assert_eq!(errno(world.call(client, wire::get_attributes(id))), Errno::EPROTO);
        assert!(is_dropped(&mut world, client, wire::punch(id, 5)));
    }
    let unnamed = Obdo { id: object(1), ..Obdo::default() };
    let call = wire::object(Opcode::OST_GETATTR, &unnamed);
    assert_eq!(errno(world.call(client, call)), Errno::EPROTO);
    let mut none = Call::new(Opcode::OST_GETATTR, Buffers::new());
    none = none.answered_by(&[208]);
    assert_eq!(errno(world.call(client, none)), Errno::EFAULT);
    let mut other = Call::new(Opcode::OST_QUOTACTL, Buffers::new().bytes(vec![0; 200]));
    other = other.answered_by(&[208]);
    assert_eq!(errno(world.call(client, other)), Errno::EOPNOTSUPP);
}

#[test]
fn memory_of_requests_goes_back_whatever_becomes_of_them() {
    let (mut world, client) = world();
    make(&mut world, client, 1);
    let round = |world: &mut World| {
        write(world, client, object(1), 5, &pattern(100_000, 1));
        read_range(world, client, object(1), 0, 200_000);
        for id in [object(1), object(9)] {
            let call = write_call(world, id, &[range(0, 50_000)], &[1; 50_000], |_| ());
            let _ = world.call(client, call);
            let mut read = wire::data(
                Opcode::OST_READ,
                &wire::data_body(id, false, None, 0),
                &[range(0, 50_000)],
                None,
            );
            let memory = world.memory(&[0; 50_000]);
            read.bulk = Some(Bulk { direction: Direction::Read, memory });
            let _ = world.call(client, read);
        }
    };
    round(&mut world);
    let before = world.registered();
    for _ in 0..50 {
        round(&mut world);
    }
    assert_eq!(world.registered(), before);
}

#[test]
fn requests_of_random_bytes_leave_the_target_at_work() {
    let (mut world, client) = world();
    make(&mut world, client, 4);
    let mut prng = Prng::new(7);
    let opcodes = [
        Opcode::OST_GETATTR,
        Opcode::OST_SETATTR,
        Opcode::OST_READ,
        Opcode::OST_WRITE,
        Opcode::OST_CREATE,
        Opcode::OST_DESTROY,
        Opcode::OST_PUNCH,
        Opcode::OST_SYNC,
        Opcode::OST_SET_INFO,
        Opcode::OST_GET_INFO,
    ];
    for n in 0..3000usize {
        let opcode = opcodes[n % opcodes.len()];
        let id = object(1 + n as u32 % 5);
        let mut body = wire::data_body(id, n.is_multiple_of(2), None, 0);
        body.valid = Valid::from_bits_retain(prng.next_u64()) | Valid::ID;
        body.flags = ObdoFlags::from_bits_retain(prng.next_u64() as u32) - ObdoFlags::DELORPHAN;
        (body.size, body.blocks) = (prng.next_u64() >> (n % 64), u64::MAX);
        (body.grant, body.misc) = (prng.next_u64(), prng.next_u64() as u32 % 3);
        (body.mode, body.data_version) = (prng.next_u64() as u32, prng.next_u64());
        let flags = NiobufFlags::from_bits_retain(prng.next_u64() as u32) | FLAGS;
        let ranges = [Niobuf { flags, ..range(prng.next_u64() >> (n % 64), 1 + n as u32 % 9) }];
        let data = vec![9; ranges[0].len as usize];
        let mut call = wire::data(opcode, &body, &ranges, Some(&data));
        // Some buffers are cut, or a bit of them is another.
        if n.is_multiple_of(3) {
            let at = prng.next_u64() as usize % call.buffers.len();
            let mut buffer = call.buffers.get(at).unwrap().to_vec();
            let len = buffer.len();
            if n.is_multiple_of(2) {
                buffer.truncate(prng.next_u64() as usize % (len + 1));
            } else if len > 0 {
                buffer[prng.next_u64() as usize % len] ^= 1 << (n % 8);
            }
            call.buffers.replace(at, buffer);
        }
        call = call.answered_by(&[4096, 4096]);
        call.portals = Some((
            if n.is_multiple_of(5) { Portal::OST_REQUEST } else { Portal::OST_IO },
            Portal::OSC_REPLY,
        ));
        call.limit = Some(core::time::Duration::from_millis(1));
        world.begin(client, call);
        world.pass(core::time::Duration::from_millis(2));
    }
    // Bulk data that a client never posted is waited for, in half of the slots.
    world.pass(core::time::Duration::from_secs(800));
    let client = world.client(wire::wanted());
    world.call(client, wire::create(ObjectId::old(0))).unwrap();
    write(&mut world, client, ObjectId::old(1), 0, b"after it all");
    assert_eq!(&read_range(&mut world, client, ObjectId::old(1), 0, 12), b"after it all");
}
