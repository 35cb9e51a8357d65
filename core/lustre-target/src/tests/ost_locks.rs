//! Locks of an object target: the attributes that go with them, and requests that need those of their clients.

use core::time::Duration;

use lnet_types::{ByteOrder, Errno};
use lustre_wire::connect::{ConnectData, ConnectFlags};
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ldlm::{
    Intent, LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest, Lvb, Policy,
    ResourceName,
};
use lustre_wire::ost::{Niobuf, NiobufFlags, Obdo};
use lustre_wire::{Buffers, Layout, Opcode};
use ptlrpc::Call;

use super::ost::{errno, make, object, ost, pattern, write};
use super::ost_recovery::Shelf;
use super::world::{Client, World};
use crate::Commit;
use crate::ost::wire;

/// A request for a lock on a whole object.
fn lock(id: ObjectId, mode: LockMode, flags: LockFlags, cookie: u64) -> Call {
    let desc = LockDesc {
        kind: LockKind::EXTENT,
        resource: ResourceName::of_object(id),
        requested: mode,
        policy: Policy::Extent { start: 0, end: u64::MAX, gid: 0 }.words(),
        ..LockDesc::default()
    };
    let request = LockRequest::new(flags, 1, desc, &[cookie]);
    let mut buffers = Buffers::from([request.to_bytes(ByteOrder::Little)]);
    if flags.contains(LockFlags::HAS_INTENT) {
        buffers = buffers.layout(&Intent::GLIMPSE);
    }
    let mut call =
        Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[LockReply::LEN as u32, 56]);
    call.modifies = false;
    call
}

/// The size that the target knows.
fn known(world: &mut World, client: Client, id: ObjectId) -> u64 {
    let flags = LockFlags::HAS_INTENT | LockFlags::BLOCK_NOWAIT;
    let reply = world.call(client, lock(id, LockMode::PR, flags, 99)).unwrap();
    Lvb::parse_either(ByteOrder::Little, reply.msg().unwrap().buffer(2).unwrap()).unwrap().size
}

/// A write under a lock of its client.
fn held_write(id: ObjectId, offset: u64, bytes: &[u8]) -> Call {
    let range = Niobuf { offset, len: bytes.len() as u32, flags: NiobufFlags::WRITE };
    wire::data(Opcode::OST_WRITE, &wire::data_body(id, true, None, 0), &[range], Some(bytes))
}

#[test]
fn l18_locks_show_no_change_that_the_store_has_refused() {
    let shelf = Shelf::new(Commit::AtOnce, None);
    let mut world = World::new(ost(), shelf.clone());
    let (a, b) = (world.client(wire::wanted()), world.client(wire::wanted()));
    make(&mut world, a, 1);
    world.call(a, lock(object(1), LockMode::PW, LockFlags::empty(), 1)).unwrap();
    world.call(a, held_write(object(1), 0, &pattern(1000, 0))).unwrap();
    assert_eq!(known(&mut world, b, object(1)), 1000);
    shelf.refuse();
    let refused = world.call(a, held_write(object(1), 8192, b"more"));
    assert_eq!(errno(refused), Errno::ENOSPC);
    assert_eq!(known(&mut world, b, object(1)), 1000);
    world.call(a, held_write(object(1), 8192, b"more")).unwrap();
    assert_eq!(known(&mut world, b, object(1)), 8196);
}

#[test]
fn l32_lock_that_was_replayed_as_waiting_is_granted_with_the_attributes() {
    let shelf = Shelf::new(Commit::AtOnce, None);
    let mut world = World::new(ost(), shelf.clone());
    let client = world.client(wire::wanted());
    make(&mut world, client, 1);
    write(&mut world, client, object(1), 0, &pattern(1000, 0));
    let waits = LockFlags::REPLAY | LockFlags::BLOCK_WAIT;
    world.replays(client, lock(object(1), LockMode::PW, waits, 1));
    world.restart(ost(), shelf.survivor());
    for _ in 0..20 {
        world.pass(Duration::from_secs(20));
    }
    let said = world.completed(client);
    let sizes =
        said.iter().map(|lvb| Lvb::parse_either(ByteOrder::Little, lvb).map(|lvb| lvb.size));
    assert_eq!(sizes.collect::<Vec<_>>(), [Ok(1000)]);
}

#[test]
fn p114_write_that_waits_goes_first_when_its_lock_is_called_back() {
    let shelf = Shelf::new(Commit::AtOnce, None);
    let mut world = World::narrow(ost(), shelf.clone());
    let (a, b) = (world.client(wire::wanted()), world.client(wire::wanted()));
    make(&mut world, a, 2);
    write(&mut world, b, object(2), 0, b"some");
    world.call(a, lock(object(1), LockMode::PW, LockFlags::empty(), 1)).unwrap();
    // A write of the other client has the only slot, for as long as the store stands.
    shelf.stand(true);
    let range = [wire::range(0, 4, NiobufFlags::WRITE)];
    let body = wire::data_body(object(2), true, None, 0);
    world.begin(b, wire::data(Opcode::OST_WRITE, &body, &range, Some(b"data")));
    let first = world.begin(a, held_write(object(1), 0, b"data"));
    assert_eq!(world.waiting(), [(Opcode::OST_WRITE, false)]);
    world.begin(b, lock(object(1), LockMode::PW, LockFlags::empty(), 1));
    assert_eq!(world.waiting(), [], "it is served beside those that have slots");
    shelf.stand(false);
    world.pass(Duration::from_secs(1));
    assert!(world.end_of(a, first).is_some_and(|end| end.is_ok()));
}

#[test]
fn l49_metadata_target_cuts_an_object_without_a_lock() {
    let mut world = World::new(ost(), super::ost::store());
    let flags = wire::wanted().flags | ConnectFlags::MDS;
    let mdt = world.client(ConnectData { flags, ..wire::wanted() });
    let client = world.client(wire::wanted());
    make(&mut world, mdt, 1);
    write(&mut world, client, object(1), 0, &pattern(1000, 0));
    let punch = || {
        let mut asked = Obdo { size: 10, blocks: u64::MAX, ..wire::named(object(1)) };
        asked.valid |= Valid::SIZE | Valid::BLOCKS;
        wire::object(Opcode::OST_PUNCH, &asked)
    };
    assert_eq!(errno(world.call(client, punch())), Errno::ESTALE);
    world.call(mdt, punch()).unwrap();
    assert_eq!(known(&mut world, client, object(1)), 10);
}
