//! Names, attributes, directories.

use lnet_types::Errno;
use lustre_wire::Layout;
use lustre_wire::dir::{END_OF_DIRECTORY, PAGE_LEN, page};
use lustre_wire::fid::Valid;
use lustre_wire::mds::{MdtBody, SetattrValid};
use lustre_wire::{Buffers, Fid, Opcode};
use ptlrpc::Call;

use super::{Bench, LITTLE, NOW, ROOT, body_of};

#[test]
fn names_are_made_found_moved_and_removed() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let d = bench.mkdir(c, ROOT, "d", 1).unwrap();
    assert_eq!((d.fid1, d.mode, d.nlink, d.size), (c.fid(1), 0o040_755, 2, 4096));
    assert_eq!(bench.getattr(c, ROOT).unwrap().nlink, 3);
    assert_eq!(bench.mkdir(c, ROOT, "d", 2), Err(Errno::EEXIST));
    // A FID names one file.
    assert_eq!(bench.mkdir(c, ROOT, "e", 1), Err(Errno::ESTALE));
    let d = d.fid1;
    let symlink = c.create(d, "s", 3, 0o120_777, b"there/it is\0");
    let s = bench.reint(c, symlink).unwrap();
    assert_eq!((s.mode, s.size), (0o120_777, 11));
    let fifo = bench.reint(c, c.create(d, "f", 4, 0o010_666, b"")).unwrap();
    assert_eq!(fifo.mode, 0o010_644);
    bench.reint(c, c.link(fifo.fid1, ROOT, "g")).unwrap();
    assert_eq!(bench.lookup(c, ROOT, "g").unwrap().nlink, 2);
    assert_eq!(bench.reint(c, c.link(d, ROOT, "h")), Err(Errno::EPERM));
    // Rename over a file, into another directory, of a directory.
    bench.reint(c, c.rename((d, "s"), (ROOT, "g"))).unwrap();
    assert_eq!(bench.lookup(c, ROOT, "g").unwrap().fid1, s.fid1);
    assert_eq!(bench.lookup(c, d, "f").unwrap().nlink, 1);
    bench.mkdir(c, d, "in", 5).unwrap();
    assert_eq!(bench.reint(c, c.rename((ROOT, "d"), (c.fid(5), "x"))), Err(Errno::EINVAL));
    assert_eq!(bench.reint(c, c.rename((ROOT, "g"), (d, "in"))), Err(Errno::EISDIR));
    assert_eq!(bench.reint(c, c.rename((d, "in"), (ROOT, "g"))), Err(Errno::ENOTDIR));
    bench.reint(c, c.rename((d, "in"), (ROOT, "out"))).unwrap();
    let nlinks = [ROOT, d].map(|dir| bench.getattr(c, dir).unwrap().nlink);
    assert_eq!(nlinks, [4, 2]);
    assert_eq!(bench.lookup(c, c.fid(5), "..").unwrap().fid1, ROOT);
    // Removal.
    assert_eq!(bench.reint(c, c.unlink(ROOT, "d", 0)), Err(Errno::EISDIR));
    assert_eq!(bench.reint(c, c.unlink(ROOT, "g", 0o040_000)), Err(Errno::ENOTDIR));
    assert_eq!(bench.reint(c, c.unlink(ROOT, "d", 0o040_000)), Err(Errno::ENOTEMPTY));
    let gone = bench.reint(c, c.unlink(d, "f", 0)).unwrap();
    assert_eq!((gone.fid1, gone.nlink), (fifo.fid1, 0));
    bench.reint(c, c.unlink(ROOT, "d", 0o040_000)).unwrap();
    assert_eq!(bench.lookup(c, ROOT, "d"), Err(Errno::ENOENT));
    assert_eq!(bench.mkdir(c, d, "late", 6), Err(Errno::ESTALE));
    let root = bench.getattr(c, ROOT).unwrap();
    assert_eq!((root.nlink, root.mtime), (3, NOW + 1));
}

#[test]
fn nothing_new_is_made_without_room_and_again_when_others_have_made_some() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    bench.mkdir(c, ROOT, "before", 1).unwrap();
    bench.room(0);
    // It is measured with each change. What was begun before is done in any case.
    bench.mkdir(c, ROOT, "on the way", 2).unwrap();
    assert_eq!(bench.mkdir(c, ROOT, "without", 3), Err(Errno::ENOSPC));
    bench.lookup(c, ROOT, "on the way").unwrap();
    bench.room(1 << 30);
    bench.world.secs(1);
    bench.mkdir(c, ROOT, "after", 4).unwrap();
}

#[test]
fn a_name_that_no_file_may_have_is_refused() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    for (name, errno) in [
        ("", Errno::EINVAL),
        ("a/b", Errno::EINVAL),
        (".", Errno::EEXIST),
        ("..", Errno::EEXIST),
        (&"n".repeat(256), Errno::ENAMETOOLONG),
    ] {
        assert_eq!(bench.mkdir(c, ROOT, name, 1), Err(errno), "{name}");
    }
    assert_eq!(bench.mkdir(c, c.fid(9), "d", 1), Err(Errno::ESTALE));
    for fid in [Fid { seq: 0x2_0000_0401, oid: 0, ver: 0 }, Fid { seq: 7, oid: 1, ver: 0 }] {
        let mut buffers = c.create(ROOT, "d", 1, 0o040_755, b"");
        buffers.get_mut(0).unwrap()[56..72].copy_from_slice(&fid.to_bytes(LITTLE));
        assert_eq!(bench.reint(c, buffers), Err(Errno::EINVAL), "{fid}");
    }
}

#[test]
fn each_name_of_a_large_directory_is_listed_once_wherever_reading_begins() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let mut expected = Vec::new();
    for i in 0..700u32 {
        let name = format!("{i:-<width$}", width = 1 + (i % 120) as usize);
        bench.reint(c, c.create(ROOT, &name, i + 1, 0o010_644, b"")).unwrap();
        expected.push((name.into_bytes(), c.fid(i + 1), Some(0o010_000)));
    }
    expected.extend([b".".to_vec(), b"..".to_vec()].map(|name| (name, ROOT, Some(0o040_000))));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    for room in [4096, 16_384, 1 << 20] {
        let (mut found, mut hash, mut last) = (Vec::new(), 0, 0);
        while hash != END_OF_DIRECTORY {
            let start = hash;
            for (i, bytes) in bench.pages(c, ROOT, hash, room).chunks(PAGE_LEN).enumerate() {
                let (head, entries) = page(LITTLE, bytes).unwrap();
                // Room that no page was sent for.
                if i > 0 && head.end == 0 {
                    break;
                }
                assert_eq!(head.start, hash);
                for entry in entries {
                    let entry = entry.unwrap();
                    assert!(last <= entry.head.hash && entry.head.hash < head.end);
                    last = entry.head.hash;
                    found.push((entry.name.to_vec(), entry.head.fid, entry.kind));
                }
                hash = head.end;
            }
            assert!(hash > start);
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, expected, "{room}");
    }
    let empty = bench.mkdir(c, ROOT, "empty", 1000).unwrap();
    let bytes = bench.pages(c, empty.fid1, 0, 4096);
    let (head, entries) = page(LITTLE, &bytes).unwrap();
    assert_eq!((head.end, entries.count()), (END_OF_DIRECTORY, 2));
    let behind = bench.pages(c, ROOT, END_OF_DIRECTORY, 4096);
    let (head, entries) = page(LITTLE, &behind).unwrap();
    assert_eq!((head.end, entries.count()), (END_OF_DIRECTORY, 0));
}

#[test]
fn a_user_may_do_what_modes_allow() {
    let bench = &mut Bench::new(1);
    let (root, user, other) = (bench.client("r", 0), bench.client("u", 7), bench.client("o", 8));
    assert_eq!(bench.mkdir(user, ROOT, "d", 1), Err(Errno::EACCES));
    let tmp = bench.mkdir(root, ROOT, "tmp", 1).unwrap().fid1;
    let mode = SetattrValid::MODE | SetattrValid::CTIME;
    let set = bench.reint(root, root.setattr(tmp, mode, 0o1777, 0)).unwrap();
    assert_eq!((set.mode, set.ctime), (0o041_777, NOW + 2));
    let mine = bench.mkdir(user, tmp, "mine", 1).unwrap();
    assert_eq!((mine.uid, mine.gid), (7, 7));
    assert_eq!(bench.reint(other, other.setattr(mine.fid1, mode, 0o777, 0)), Err(Errno::EPERM));
    let owner = SetattrValid::UID | SetattrValid::CTIME;
    assert_eq!(bench.reint(user, user.setattr(mine.fid1, owner, 0, 8)), Err(Errno::EPERM));
    let unlink = other.unlink(tmp, "mine", 0o040_000);
    assert_eq!(bench.reint(other, unlink), Err(Errno::EPERM));
    bench.reint(user, user.setattr(mine.fid1, mode, 0o700, 0)).unwrap();
    assert_eq!(bench.lookup(other, mine.fid1, "x"), Err(Errno::EACCES));
    assert_eq!(bench.lookup(user, mine.fid1, "x"), Err(Errno::ENOENT));
    assert_eq!(bench.reint(root, root.setattr(mine.fid1, owner, 0, 8)).unwrap().uid, 8);
}

#[test]
fn extended_attributes_are_kept_listed_and_removed() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let d = bench.mkdir(c, ROOT, "d", 1).unwrap().fid1;
    let long = vec![7; 60_000];
    bench.reint(c, c.setxattr(d, "user.a", Some(b"one"), 1)).unwrap();
    bench.reint(c, c.setxattr(d, "user.b", Some(&long), 0)).unwrap();
    assert_eq!(bench.reint(c, c.setxattr(d, "user.a", Some(b"x"), 1)), Err(Errno::EEXIST));
    assert_eq!(bench.reint(c, c.setxattr(d, "user.c", Some(b"x"), 2)), Err(Errno::ENODATA));
    assert_eq!(bench.reint(c, c.setxattr(d, "trusted.lma", Some(b"x"), 0)), Err(Errno::EPERM));
    let mut get = |valid, name: &str, room| {
        let body = MdtBody { eadatasize: room, ..c.body(d, Valid::ID | valid) };
        let buffers = Buffers::new().layout(&body).bytes(b"").bytes(super::text(name));
        let call = Call::new(Opcode::MDS_GETXATTR, buffers).answered_by(&[216, room]);
        let reply = bench.call(c, call).map_err(ptlrpc::CallError::errno)?;
        let msg = reply.msg().unwrap();
        let body: MdtBody = msg.get(1).unwrap();
        Ok::<_, Errno>((body.eadatasize, msg.buffer(2).unwrap_or_default().to_vec()))
    };
    assert_eq!(get(Valid::XATTR, "user.a", 0), Ok((3, Vec::new())));
    assert_eq!(get(Valid::XATTR, "user.a", 256), Ok((3, b"one".to_vec())));
    assert_eq!(get(Valid::XATTR, "user.b", 1 << 16), Ok((60_000, long)));
    assert_eq!(get(Valid::XATTR, "user.b", 256), Err(Errno::ERANGE));
    assert_eq!(get(Valid::XATTR, "user.c", 256), Err(Errno::ENODATA));
    assert_eq!(get(Valid::XATTRLS, "", 256), Ok((14, b"user.a\0user.b\0".to_vec())));
    bench.reint(c, c.setxattr(d, "user.a", None, 0)).unwrap();
    assert_eq!(bench.reint(c, c.setxattr(d, "user.a", None, 0)), Err(Errno::ENODATA));
}

#[test]
fn a_client_that_only_reads_changes_nothing() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let mut reader = c;
    let wanted = lustre_wire::ConnectData {
        flags: super::wanted().flags | lustre_wire::ConnectFlags::RDONLY,
        ..super::wanted()
    };
    let config = ptlrpc::ImportConfig {
        kind: lustre_wire::ImportKind::Mdc,
        target: super::MDT.to_owned(),
        client: "reader".to_owned(),
        nids: vec![lnet_types::Nid::LOOPBACK],
        wanted,
    };
    reader.mdt =
        bench.party(c.upper, |party, below| party.ptlrpc.rpc(below).import(config).unwrap());
    assert_eq!(bench.mkdir(reader, ROOT, "d", 1), Err(Errno::EROFS));
    assert_eq!(bench.open(reader, ROOT, "f", 1, super::OPEN_CREATE | 2), Err(Errno::EROFS));
    let (found, ..) = bench.open(reader, ROOT, ".", 0, super::OPEN_READ).unwrap();
    assert_eq!(found.fid1, ROOT);
    bench.close(reader, &found).unwrap();
}

#[test]
fn a_request_that_is_damaged_is_refused() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let made = c.create(ROOT, "d", 1, 0o040_755, b"");
    let whole = made.get(0).unwrap();
    for (i, buffers) in [
        Buffers::new(),
        Buffers::from([[0; 136]]),
        Buffers::from([&whole[..100]]),
        Buffers::from([whole, b""]),
        Buffers::from([whole, b"", b"no end"]),
    ]
    .into_iter()
    .enumerate()
    {
        let e = body_of(bench.call(c, super::reint(buffers)), 1).unwrap_err();
        assert!([Errno::EPROTO, Errno::EOPNOTSUPP].contains(&e), "{i}: {e}");
    }
    let tiny = bench.call(c, Call::new(Opcode::MDS_GETATTR, Buffers::from([[0; 20]]))).unwrap_err();
    assert_eq!(tiny.errno(), Errno::EPROTO);
    assert_eq!(bench.getattr(c, ROOT).unwrap().nlink, 2);
}
