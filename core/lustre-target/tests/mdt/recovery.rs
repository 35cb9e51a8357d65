//! What is left when the server dies in the middle, and comes back.

use lnet_types::Errno;
use lustre_target::Commit;
use lustre_target::ost::wire;
use lustre_wire::{Buffers, ImportKind, Opcode};
use ptlrpc::{Call, Lose, Part};

use super::{Bench, Client, OPEN_CREATE, OPEN_WRITE, ROOT, body_of, opened, party, reint, size};

const CREATE: u32 = OPEN_CREATE | OPEN_WRITE;

/// Names in the root that are there, of so many.
fn names(bench: &mut Bench, c: Client, count: u32) -> Vec<u32> {
    let is_there = |i: &u32| bench.lookup(c, ROOT, &format!("n{i}")).is_ok();
    (1..=count).filter(is_there).collect()
}

#[test]
fn what_clients_had_heard_of_is_there_again_after_a_crash() {
    let bench = &mut Bench::with(2, Commit::Ordered);
    let c = bench.client("c", 0);
    bench.commit();
    for i in 1..=8 {
        bench.mkdir(c, ROOT, &format!("n{i}"), i).unwrap();
        if i == 3 {
            bench.commit();
        }
    }
    bench.reint(c, c.rename((ROOT, "n1"), (ROOT, "m1"))).unwrap();
    bench.reint(c, c.unlink(ROOT, "n2", 0o040_000)).unwrap();
    bench.crash();
    bench.world.secs(200);
    assert_eq!(names(bench, c, 8), [3, 4, 5, 6, 7, 8]);
    assert_eq!(bench.lookup(c, ROOT, "m1").unwrap().fid1, c.fid(1));
    assert_eq!(bench.getattr(c, ROOT).unwrap().nlink, 2 + 7);
}

#[test]
fn an_open_file_is_open_with_its_objects_after_a_crash() {
    let bench = &mut Bench::with(2, Commit::Ordered);
    let c = bench.client("c", 0);
    let (committed, ..) = bench.open(c, ROOT, "a", 1, CREATE).unwrap();
    bench.commit();
    // The client names the objects that it got when it repeats the open (C-256).
    let call = c.open(ROOT, "b", 2, CREATE, Vec::new());
    let id = bench.begin(c, call);
    let reply = bench.end_of(c, id).unwrap();
    let layout = reply.as_ref().unwrap().msg().unwrap().buffer(3).unwrap().to_vec();
    let (lost, stripes, _) = opened(reply).unwrap();
    let amended = c.open(ROOT, "b", 2, CREATE | 0x4000_0000, layout);
    bench.party(c.upper, |party, below| {
        assert!(party.ptlrpc.rpc(below).amend(c.mdt, id, amended.buffers.clone()));
    });
    bench.crash();
    bench.world.secs(200);
    assert_eq!(bench.party(c.upper, |party, _| party.replayed.len()), 2);
    let (again, same, _) = bench.open(c, ROOT, "b", 3, OPEN_WRITE).unwrap();
    assert_eq!((again.fid1, &same.objects), (lost.fid1, &stripes.objects));
    let [object] = stripes.objects[..] else { panic!("one stripe") };
    let osc = format!("lfs-OST{:04x}_UUID", object.index);
    let osc = bench.import(c.upper, ImportKind::Osc, &osc, "c");
    assert_eq!(size(bench, c, osc, object.id), Ok(0));
    // No later file gets it.
    for oid in 10..14 {
        let (_, other, _) = bench.open(c, ROOT, &format!("f{oid}"), oid, CREATE).unwrap();
        assert!(!other.objects.contains(&object));
    }
    bench.close(c, &committed).unwrap();
}

#[test]
fn files_that_are_open_for_a_client_that_does_not_come_back_are_closed() {
    let bench = &mut Bench::with(1, Commit::Ordered);
    let (c, other) = (bench.client("c", 0), bench.client("o", 0));
    let (f, stripes, _) = bench.open(c, ROOT, "f", 1, CREATE).unwrap();
    bench.reint(other, other.unlink(ROOT, "f", 0)).unwrap();
    bench.commit();
    bench.world.kill(c.upper);
    bench.crash();
    bench.world.secs(1000);
    assert_eq!(bench.getattr(other, f.fid1), Err(Errno::ENOENT));
    let osc = bench.import(other.upper, ImportKind::Osc, "lfs-OST0000_UUID", "o");
    bench.commit();
    bench.world.secs(10);
    let gone = size(bench, other, osc, stripes.objects[0].id);
    assert_eq!(gone, Err(Errno::ENOENT));
}

/// A client of the first object target alone.
fn client_of_objects(bench: &mut Bench, other: Client) -> Client {
    bench.seeds += 1;
    let upper = bench.world.add(Box::new(party(bench.seeds)));
    let osc = bench.import(upper, ImportKind::Osc, "lfs-OST0000_UUID", "x");
    let client = Client { upper, mdt: osc, ..other };
    bench.call_on(client, osc, Call::new(Opcode::OBD_PING, Buffers::new())).unwrap();
    client
}

#[test]
fn a_new_file_waits_for_an_object_target_that_waits_for_a_dead_client() {
    let bench = &mut Bench::with(1, Commit::Ordered);
    let other = bench.client("o", 0);
    let dead = client_of_objects(bench, other);
    bench.commit();
    bench.world.kill(dead.upper);
    bench.crash();
    let id = bench.begin(other, other.open(ROOT, "f", 1, CREATE, Vec::new()));
    bench.world.secs(60);
    assert_eq!(bench.end_of(other, id), None, "the dead client may come back");
    // No other client of the object target comes, and it ends its recovery.
    bench.world.secs(1000);
    let (file, stripes, _) = opened(bench.end_of(other, id).unwrap()).unwrap();
    assert_eq!((file.fid1, stripes.objects.len()), (other.fid(1), 1));
}

#[test]
fn objects_of_a_removed_file_are_destroyed_only_when_its_removal_survives() {
    let bench = &mut Bench::with(1, Commit::Ordered);
    let c = bench.client("c", 0);
    let (f, stripes, _) = bench.open(c, ROOT, "f", 1, CREATE).unwrap();
    bench.close(c, &f).unwrap();
    bench.commit();
    let id = stripes.objects[0].id;
    let osc = bench.import(c.upper, ImportKind::Osc, "lfs-OST0000_UUID", "c");
    bench.call_on(c, osc, wire::get_attributes(id)).unwrap();
    bench.reint(c, c.unlink(ROOT, "f", 0)).unwrap();
    bench.world.secs(10);
    assert_eq!(size(bench, c, osc, id), Ok(0));
    bench.commit();
    bench.world.secs(10);
    assert_eq!(size(bench, c, osc, id), Err(Errno::ENOENT));
}

#[test]
fn a_change_whose_reply_was_lost_happens_once() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    bench.party(bench.server, |party, below| {
        let lose = Lose { opcode: Some(Opcode::MDS_REINT), part: Part::Reply, count: 1 };
        party.ptlrpc.rpc(below).lose(lose).unwrap();
    });
    let id = bench.begin(c, reint(c.create(ROOT, "d", 1, 0o040_755, b"")));
    assert_eq!(bench.end_of(c, id), None);
    bench.world.secs(200);
    let made = body_of(bench.end_of(c, id).unwrap(), 1).unwrap();
    assert_eq!((made.fid1, made.mode), (c.fid(1), 0o040_755));
    assert_eq!(bench.getattr(c, ROOT).unwrap().nlink, 3);
}

#[test]
fn no_two_clients_get_the_same_sequence_whatever_dies() {
    let bench = &mut Bench::with(1, Commit::Ordered);
    let mut seen = Vec::new();
    for i in 0..3 {
        for j in 0..2 {
            seen.push(bench.client(&format!("c{i}{j}"), 0).seq);
        }
        bench.crash();
        bench.world.secs(1000);
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:x?}");
}
