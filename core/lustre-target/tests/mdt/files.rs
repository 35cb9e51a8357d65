//! Opens, layouts and objects.

use lnet_types::Errno;
use lustre_target::ost::wire;
use lustre_wire::fid::ObjectId;
use lustre_wire::ldlm::Disposition;
use lustre_wire::mds::SetattrValid;
use lustre_wire::ost::NiobufFlags;
use lustre_wire::striping::{Magic, StripeHead};
use lustre_wire::{ImportKind, Layout, Opcode};

use super::{Bench, Client, LITTLE, OPEN_CREATE, OPEN_EXCL, OPEN_READ, OPEN_WRITE, ROOT, size};

const CREATE: u32 = OPEN_CREATE | OPEN_WRITE;
const HAS_EA: u32 = 0x4000_0000;
const DELAY: u32 = 0x100_0000;
const DIRECTORY: u32 = 0x1_0000;

/// Writes bytes to an object, as a client without locks does.
fn write(bench: &mut Bench, c: Client, osc: ptlrpc::ImportId, id: ObjectId, bytes: &[u8]) {
    let body = wire::data_body(id, true, None, 0);
    let range = wire::range(0, bytes.len() as u32, NiobufFlags::WRITE);
    let call = wire::data(Opcode::OST_WRITE, &body, &[range], Some(bytes));
    bench.call_on(c, osc, call).unwrap();
}

fn layout(count: u16, size: u32, first: u16) -> Vec<u8> {
    let head = StripeHead {
        magic: Magic::V1,
        stripe_count: count,
        stripe_size: size,
        generation: first,
        ..StripeHead::default()
    };
    head.to_bytes(LITTLE)
}

#[test]
fn a_new_file_has_the_objects_that_its_layout_names() {
    let bench = &mut Bench::new(4);
    let c = bench.client("c", 0);
    let (f, stripes, found) = bench.open(c, ROOT, "f", 1, CREATE).unwrap();
    let expected = Disposition::EXECUTED
        | Disposition::LOOKED_UP
        | Disposition::NEGATIVE
        | Disposition::CREATED
        | Disposition::OPENED;
    assert_eq!(found, expected.bits());
    assert_eq!((f.fid1, f.mode, stripes.objects.len()), (c.fid(1), 0o100_644, 1));
    let [object] = stripes.objects[..] else { panic!("one stripe") };
    let uuid = format!("lfs-OST{:04x}_UUID", object.index);
    let osc = bench.import(c.upper, ImportKind::Osc, &uuid, "c");
    assert_eq!(size(bench, c, osc, object.id), Ok(0));
    write(bench, c, osc, object.id, b"bytes");
    assert_eq!(size(bench, c, osc, object.id), Ok(5));
    bench.close(c, &f).unwrap();
    assert_eq!(bench.close(c, &f), Err(Errno::ESTALE));
    // Another open finds the same, and no second file comes of it.
    assert_eq!(bench.open(c, ROOT, "f", 2, CREATE | OPEN_EXCL), Err(Errno::EEXIST));
    let (again, same, _) = bench.open(c, ROOT, "f", 2, CREATE).unwrap();
    assert_eq!((again.fid1, same.objects), (f.fid1, stripes.objects));
    // What is removed while it is open stays until it is closed, then goes with its objects.
    bench.reint(c, c.unlink(ROOT, "f", 0)).unwrap();
    assert_eq!(bench.lookup(c, ROOT, "f"), Err(Errno::ENOENT));
    assert_eq!(bench.getattr(c, f.fid1).unwrap().nlink, 0);
    assert_eq!(size(bench, c, osc, object.id), Ok(5));
    bench.close(c, &again).unwrap();
    bench.world.secs(1);
    assert_eq!(bench.getattr(c, f.fid1), Err(Errno::ENOENT));
    assert_eq!(size(bench, c, osc, object.id), Err(Errno::ENOENT));
}

#[test]
fn stripes_are_as_many_and_where_they_are_wished() {
    let bench = &mut Bench::new(4);
    let c = bench.client("c", 0);
    let mut indexes = |oid, wish: Vec<u8>| {
        let call = c.open(ROOT, &format!("f{oid}"), oid, CREATE | HAS_EA, wish);
        super::opened(bench.call(c, call)).map(|(_, stripes, _)| {
            let of = stripes.objects.iter().map(|object| object.index);
            (stripes.head.stripe_size, of.collect::<Vec<_>>())
        })
    };
    assert_eq!(indexes(1, layout(4, 1 << 16, 0xffff)), Ok((1 << 16, vec![0, 1, 2, 3])));
    assert_eq!(indexes(2, layout(2, 0, 3)), Ok((4 << 20, vec![3, 0])));
    assert_eq!(indexes(3, layout(0xffff, 1 << 20, 1)).map(|(_, of)| of), Ok(vec![1, 2, 3, 0]));
    assert_eq!(indexes(4, layout(9, 0, 0)).map(|(_, of)| of.len()), Ok(4));
    assert_eq!(indexes(5, layout(1, 1000, 0)), Err(Errno::EINVAL));
    assert_eq!(indexes(6, layout(1, 0, 4)), Err(Errno::EINVAL));
    assert_eq!(indexes(7, b"no layout".to_vec()), Err(Errno::EINVAL));
    // Files without a wish go to the targets by turns.
    let turns = (10..14).map(|oid| indexes(oid, Vec::new()).unwrap().1);
    let turns: Vec<_> = turns.flatten().collect();
    let mut sorted = turns.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3], "{turns:?}");
}

#[test]
fn the_default_of_a_directory_holds_for_files_and_directories_in_it() {
    let bench = &mut Bench::new(4);
    let c = bench.client("c", 0);
    let d = bench.mkdir(c, ROOT, "d", 1).unwrap().fid1;
    let default = layout(2, 1 << 20, 0xffff);
    bench.reint(c, c.setxattr(d, "trusted.lov", Some(&default), 0)).unwrap();
    let sub = bench.mkdir(c, d, "sub", 2).unwrap().fid1;
    for (dir, oid) in [(d, 3), (sub, 4)] {
        let (_, stripes, _) = bench.open(c, dir, "f", oid, CREATE).unwrap();
        assert_eq!((stripes.head.stripe_size, stripes.objects.len()), (1 << 20, 2));
    }
    let none = layout(0, 0, 0xffff);
    bench.reint(c, c.setxattr(d, "trusted.lov", Some(&none), 0)).unwrap();
    let (_, stripes, _) = bench.open(c, d, "g", 5, CREATE).unwrap();
    assert_eq!(stripes.objects.len(), 1);
}

#[test]
fn c199_the_default_of_a_directory_is_set_with_attributes_as_kernel_clients_do() {
    let bench = &mut Bench::new(4);
    let c = bench.client("c", 0);
    let d = bench.mkdir(c, ROOT, "d", 1).unwrap().fid1;
    let set = |layout: Vec<u8>| {
        let mut buffers = c.setattr(d, SetattrValid::empty(), 0, 0);
        buffers.extend([Vec::new(), layout, Vec::new(), Vec::new()]);
        buffers
    };
    bench.reint(c, set(layout(3, 1 << 20, 0xffff))).unwrap();
    let (_, stripes, _) = bench.open(c, d, "f", 2, CREATE).unwrap();
    assert_eq!((stripes.head.stripe_size, stripes.objects.len()), (1 << 20, 3));
    bench.reint(c, set(layout(0, 0, 0xffff))).unwrap();
    let (_, stripes, _) = bench.open(c, d, "g", 3, CREATE).unwrap();
    assert_eq!(stripes.objects.len(), 1);
    assert_eq!(bench.reint(c, set(b"no layout".to_vec())).unwrap_err(), Errno::EINVAL);
}

#[test]
fn a_file_without_objects_gets_them_when_it_is_opened_for_writing() {
    let bench = &mut Bench::new(2);
    let c = bench.client("c", 0);
    let (_, stripes, _) = bench.open(c, ROOT, "f", 1, CREATE | DELAY).unwrap();
    assert_eq!(stripes.objects, []);
    let (_, stripes, found) = bench.open(c, ROOT, "f", 0, OPEN_READ).unwrap();
    assert_eq!((stripes.objects.len(), found & Disposition::LAYOUT_MADE.bits()), (0, 0));
    let call = c.open(ROOT, "f", 0, OPEN_WRITE | HAS_EA, layout(2, 0, 0xffff));
    let (_, stripes, found) = super::opened(bench.call(c, call)).unwrap();
    assert_eq!(stripes.objects.len(), 2);
    assert_ne!(found & Disposition::LAYOUT_MADE.bits(), 0);
    let call = c.open(ROOT, "f", 0, OPEN_WRITE | HAS_EA, layout(1, 0, 0xffff));
    assert_eq!(super::opened(bench.call(c, call)), Err(Errno::EEXIST));
}

#[test]
fn opens_are_checked_by_what_the_file_is_and_who_opens() {
    let bench = &mut Bench::new(1);
    let (root, user) = (bench.client("r", 0), bench.client("u", 7));
    bench.mkdir(root, ROOT, "d", 1).unwrap();
    bench.open(root, ROOT, "f", 2, CREATE).unwrap();
    assert_eq!(bench.open(root, ROOT, "d", 0, OPEN_WRITE), Err(Errno::EISDIR));
    assert_eq!(bench.open(root, ROOT, "f", 0, OPEN_READ | DIRECTORY), Err(Errno::ENOTDIR));
    assert_eq!(bench.open(root, ROOT, "none", 0, OPEN_READ), Err(Errno::ENOENT));
    bench.open(user, ROOT, "f", 0, OPEN_READ).unwrap();
    assert_eq!(bench.open(user, ROOT, "f", 0, OPEN_WRITE), Err(Errno::EACCES));
    assert_eq!(bench.open(user, ROOT, "new", 1, CREATE), Err(Errno::EACCES));
}

#[test]
fn a_client_that_leaves_leaves_no_file_without_a_name() {
    let bench = &mut Bench::new(1);
    let (c, other) = (bench.client("c", 0), bench.client("o", 0));
    let (f, ..) = bench.open(c, ROOT, "f", 1, CREATE).unwrap();
    bench.reint(other, other.unlink(ROOT, "f", 0)).unwrap();
    assert_eq!(bench.getattr(other, f.fid1).unwrap().nlink, 0);
    bench.party(c.upper, |party, below| party.ptlrpc.rpc(below).disconnect(c.mdt));
    bench.world.secs(1);
    assert_eq!(bench.getattr(other, f.fid1), Err(Errno::ENOENT));
}

#[test]
fn many_files_are_made_as_objects_are_made_ahead() {
    let bench = &mut Bench::new(2);
    let c = bench.client("c", 0);
    let mut seen = std::collections::BTreeSet::new();
    for oid in 1..=600 {
        let (f, stripes, _) = bench.open(c, ROOT, &format!("f{oid}"), oid, CREATE).unwrap();
        for object in stripes.objects {
            assert!(seen.insert((object.index, object.id.oid)), "{object:?}");
        }
        bench.close(c, &f).unwrap();
    }
    assert_eq!(seen.len(), 600);
}

#[test]
fn a_new_owner_of_a_file_is_the_owner_of_its_objects() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let (f, stripes, _) = bench.open(c, ROOT, "f", 1, CREATE).unwrap();
    let osc = bench.import(c.upper, ImportKind::Osc, "lfs-OST0000_UUID", "c");
    let id = stripes.objects[0].id;
    write(bench, c, osc, id, b"bytes");
    let valid = SetattrValid::UID;
    bench.reint(c, c.setattr(f.fid1, valid, 0, 1001)).unwrap();
    bench.world.secs(1);
    let reply = bench.call_on(c, osc, wire::get_attributes(id)).unwrap();
    let body: lustre_wire::ost::Obdo = reply.msg().unwrap().get(1).unwrap();
    assert_eq!((body.uid, body.size), (1001, 5));
}
