//! Changes of recorded file systems by a visitor: what it asks for is, field by field, what the recorded
//! clients asked for that did the same, and it understands the recorded answers.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use lnet_types::{ByteOrder, Errno};
use lustre_client::visitor::{
    Changes, Create, FileKind, LayoutError, OpenHow, SetXattr, VisitError,
};
use lustre_wire::fid::ObjectId;
use lustre_wire::ost::{Niobuf, NiobufFlags};
use lustre_wire::{Fid, Layout, Opcode};
use rpc_interop::alike::is_alike;
use rpc_interop::archive::Archive;
use rpc_interop::visit::{DIR, begin, capture, node, recorded, run};

const LITTLE: ByteOrder = ByteOrder::Little;

/// Each of these was asked so often as a recorded client asks it.
#[track_caller]
fn changes_are_the_same(archive: &Archive, opcodes: &[(Opcode, usize)]) {
    let mut same = archive.same();
    same.retain(|same| opcodes.iter().any(|(opcode, _)| *opcode == same.opcode));
    same.iter().for_each(is_alike);
    for (opcode, count) in opcodes {
        let found = same.iter().filter(|same| same.opcode == *opcode).count();
        assert_eq!(found, *count, "{opcode}");
    }
}

#[test]
fn directories_links_and_renames_are_asked_for_as_kernel_nodes_ask() {
    let archive = recorded("namespace", u32::MAX, "f10", DIR);
    let visitor = begin(&archive);
    run(async {
        let dir = visitor.find(b"/f10", false).await?;
        let made = visitor.make_dir(&dir, b"d", 0o777, b"").await?;
        assert_eq!((made.kind(), made.body().mode & 0o7777), (FileKind::Dir, 0o755));
        let link = visitor.make_link(&dir, b"s1", b"short/target").await?;
        assert_eq!((link.kind(), link.body().size), (FileKind::Link, 12));
        Ok::<(), VisitError>(())
    })
    .unwrap();
    changes_are_the_same(&archive, &[(Opcode::MDS_REINT, 2)]);

    // Before they were removed.
    let archive = recorded("namespace", 420, "f10", DIR);
    let visitor = begin(&archive);
    run(async {
        let dir = visitor.find(b"/f10", false).await?;
        let file = visitor.find(b"/f10/file", false).await?;
        visitor.link(&file, &dir, b"hard").await?;
        let old = visitor.find(b"/f10/n1", false).await?;
        visitor.rename(&old, &dir, b"n2").await
    })
    .unwrap();
    changes_are_the_same(&archive, &[(Opcode::MDS_REINT, 2)]);

    let archive = recorded("namespace", u32::MAX, "f10", DIR);
    let visitor = begin(&archive);
    let symlink = node(&visitor, "/f10/s1");
    run(visitor.remove(&symlink)).unwrap();
    changes_are_the_same(&archive, &[(Opcode::MDS_REINT, 1)]);
    let archive = recorded("namespace", 195, "f10", DIR);
    let visitor = begin(&archive);
    let e = run(visitor.remove(&node(&visitor, "/f10/d"))).unwrap_err();
    assert_eq!(e, VisitError::Path { path: b"d".to_vec(), errno: Errno::ENOTEMPTY });
    changes_are_the_same(&archive, &[(Opcode::MDS_REINT, 1)]);
}

#[test]
fn a_new_file_is_made_written_and_closed_as_kernel_nodes_do() {
    let archive = recorded("namespace", 391, "f10", DIR);
    let visitor = begin(&archive);
    run(async {
        let dir = visitor.find(b"/f10", false).await?;
        let how = OpenHow { read: false, write: true, truncate: true };
        let create = Create { mode: 0o666, ..Create::default() };
        let mut file = visitor.create(&dir, b"file", how, &create).await?;
        assert!(file.created());
        visitor.write_at(&mut file, 0, b"content\n").await?;
        assert_eq!(file.size(), 8);
        visitor.close(file).await
    })
    .unwrap();
    let id = ObjectId { first: 0x2_c000_0401, oid: 0x5b, ver: 0 };
    assert_eq!(archive.written(id), b"content\n");
    changes_are_the_same(&archive, &[(Opcode::LDLM_ENQUEUE, 1), (Opcode::MDS_CLOSE, 1)]);
}

#[test]
fn data_goes_to_the_object_with_what_its_target_wants_to_know_of_the_file() {
    let archive = recorded("namespace", 391, "f10", DIR);
    let visitor = begin(&archive);
    run(async {
        let app = visitor.find(b"/f10/app", false).await?;
        let mut file = visitor.open_for(&app, OpenHow::WRITE).await?;
        visitor.write_at(&mut file, 0, b"1 from K1\n").await?;
        visitor.close(file).await
    })
    .unwrap();
    let id = ObjectId { first: 0x3_0000_0401, oid: 0x5b, ver: 0 };
    assert_eq!(archive.written(id), b"1 from K1\n");
    changes_are_the_same(&archive, &[(Opcode::OST_WRITE, 1)]);
}

#[test]
fn permissions_owners_and_times_are_set_on_target_and_object() {
    let archive = recorded("namespace", 514, "f10", DIR);
    let visitor = begin(&archive);
    run(async {
        let file = visitor.find(b"/f10/file", false).await?;
        let chmod = Changes { mode: Some(0o4751), ..Changes::default() };
        visitor.change(&file, &chmod).await
    })
    .unwrap();
    changes_are_the_same(&archive, &[(Opcode::MDS_REINT, 1), (Opcode::OST_SETATTR, 1)]);

    // After it was given to another user.
    let archive = recorded("namespace", 549, "f10", DIR);
    let visitor = begin(&archive);
    run(async {
        let file = visitor.find(b"/f10/file", false).await?;
        // 2001-02-03 04:05:06, as its user said.
        let time = Some(981_173_106);
        visitor.change(&file, &Changes { mtime: time, atime: time, ..Changes::default() }).await?;
        let atime = Some(1_293_840_000);
        visitor.change(&file, &Changes { atime, ..Changes::default() }).await
    })
    .unwrap();
    changes_are_the_same(&archive, &[(Opcode::MDS_REINT, 2), (Opcode::OST_SETATTR, 2)]);
}

#[test]
fn names_that_no_file_may_have_are_refused_before_anything_is_sent() {
    let archive = recorded("namespace", u32::MAX, "f10", DIR);
    let visitor = begin(&archive);
    let dir = node(&visitor, "/f10");
    let before = archive.asked().len();
    for (name, errno) in [
        (&b""[..], Errno::EINVAL),
        (b"a/b", Errno::EINVAL),
        (b"a\0b", Errno::EINVAL),
        (b".", Errno::EEXIST),
        (b"..", Errno::EEXIST),
        (&[b'x'; 256], Errno::ENAMETOOLONG),
    ] {
        let e = run(visitor.make_dir(&dir, name, 0o777, b"")).unwrap_err();
        assert_eq!(e.errno(), errno, "{}", name.escape_ascii());
    }
    let file = node(&visitor, "/f10/app");
    let e = run(visitor.make_dir(&file, b"x", 0o777, b"")).unwrap_err();
    assert_eq!(e.errno(), Errno::ENOTDIR);
    let e = run(visitor.set_xattr(&file, b"", b"", SetXattr::Any)).unwrap_err();
    assert_eq!(e.errno(), Errno::EINVAL);
    let lookups = archive.asked().into_iter().skip(before);
    assert!(lookups.into_iter().all(|opcode| opcode != Opcode::MDS_REINT));
}

#[test]
fn a_file_is_cut_off_by_its_open_and_committed_as_kernel_nodes_do() {
    let dir = Fid { seq: 0x2_4000_0403, oid: 0x26, ver: 0 };
    let archive = recorded("misc-ops", 112, "misc", dir).changing(&capture("misc-ops"));
    let visitor = begin(&archive);
    run(async {
        let file = visitor.find(b"/misc/a", false).await?;
        let how = OpenHow { read: true, write: true, truncate: true };
        let file = visitor.open_for(&file, how).await?;
        assert_eq!(file.size(), 0);
        visitor.fsync(&file).await?;
        visitor.close(file).await
    })
    .unwrap();
    changes_are_the_same(
        &archive,
        &[
            (Opcode::MDS_REINT, 1),
            (Opcode::OST_PUNCH, 1),
            (Opcode::MDS_SYNC, 1),
            (Opcode::OST_SYNC, 1),
        ],
    );
}

#[test]
fn c205_data_under_the_lock_of_the_server_is_asked_for_as_direct_writes_are() {
    let dir = Fid { seq: 0x2_4000_0403, oid: 0x26, ver: 0 };
    let archive = recorded("misc-ops", 401, "misc", dir);
    let visitor = begin(&archive);
    run(async {
        let file = visitor.find(b"/misc/dio", false).await?;
        let mut file = visitor.open_for(&file, OpenHow::WRITE).await?;
        visitor.write_at(&mut file, 0, &[0; 4096]).await?;
        visitor.close(file).await
    })
    .unwrap();
    changes_are_the_same(&archive, &[(Opcode::OST_WRITE, 1)]);
    let same = archive.same();
    let written = same.iter().find(|same| same.opcode == Opcode::OST_WRITE).unwrap();
    let ranges = [&written.buffers.0, &written.buffers.1].map(|buffers| {
        let mut range = Niobuf::parse(LITTLE, &buffers[2]).unwrap();
        // A visitor has no promise of space.
        range.flags.remove(NiobufFlags::FROM_GRANT);
        range
    });
    assert_eq!(ranges[0], ranges[1]);
    let objects = [&written.buffers.0, &written.buffers.1].map(|buffers| buffers[1].clone());
    assert_eq!(objects[0], objects[1]);
}

#[test]
fn c187_objects_are_made_for_the_range_that_is_written() {
    let dir = Fid { seq: 0x2_0000_0402, oid: 7, ver: 0 };
    let archive = recorded("dom-64k", 111, "f6", dir).changing(&capture("dom-64k"));
    let visitor = begin(&archive);
    run(async {
        let file = visitor.find(b"/f6/d", false).await?;
        let mut file = visitor.open_for(&file, OpenHow::WRITE).await?;
        let before = file.layout().unwrap().objects().count();
        let too_early = visitor.write(&file, 65_536, b"x").await.unwrap_err();
        assert_eq!(too_early, VisitError::Layout(LayoutError::NotMade(65_536)));
        visitor.write_at(&mut file, 4000, &[b'G'; 100_000]).await?;
        assert_eq!((before, file.layout().unwrap().objects().count()), (0, 1));
        assert_eq!(file.size(), 104_000);
        visitor.close(file).await
    })
    .unwrap();
    // On the metadata target up to its border, in the object behind it.
    let on_mdt = archive.written(ObjectId { first: 0x2_0000_0402, oid: 9, ver: 0 });
    assert_eq!((on_mdt.len(), on_mdt[4000], on_mdt[65_535]), (65_536, b'G', b'G'));
    let same = archive.same();
    let made = same.iter().rfind(|same| same.opcode == Opcode::LDLM_ENQUEUE).unwrap();
    let (recorded, ours) = &made.buffers;
    assert_eq!(recorded[1..], ours[1..], "intent, and the range that is written");
    assert_eq!(recorded[0][8..88], ours[0][8..88], "the lock");
}

#[test]
fn extended_attributes_are_set_read_listed_and_removed_as_kernel_nodes_do() {
    let archive = Archive::default().with(&capture("fresh-mount"), u32::MAX);
    let archive = archive.with(&capture("xattr-acl"), u32::MAX);
    let visitor = begin(&archive);
    run(async {
        let file = visitor.find(b"/f11/a", false).await?;
        visitor.set_xattr(&file, b"user.color", b"blue", SetXattr::Any).await?;
        visitor.set_xattr(&file, b"user.empty", b"", SetXattr::Any).await
    })
    .unwrap();
    changes_are_the_same(&archive, &[(Opcode::MDS_REINT, 2)]);
}
