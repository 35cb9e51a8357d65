//! The recording `dne-2-mdt`, command by command: two metadata targets, a remote directory, striped ones,
//! names that go to and fro between them. A visitor asks the targets that the recorded clients asked, for
//! the same, and sees what their users saw.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use lnet_types::ByteOrder;
use lustre_client::visitor::{
    Attributes, Create, DirHash, DirStripes, DirWish, FileKind, Node, OpenHow, VisitError, Visitor,
};
use lustre_wire::ldlm::Intent;
use lustre_wire::{Fid, Layout, Opcode};
use rpc_interop::alike::is_alike;
use rpc_interop::archive::{Archive, Same};
use rpc_interop::visit::{Noted, ROOT, begin, capture, node, run};

type Visit<'a> = Visitor<&'a Noted<'a>>;

const fn fid(seq: u64, oid: u32) -> Fid {
    Fid { seq, oid, ver: 0 }
}

/// The directory of the recorded users.
const F9: Fid = fid(0x2_0000_0404, 0x1a);

/// The mount, and the recording up to a frame; changes are answered as in all of it.
fn until(frame: u32) -> Archive {
    let archive = Archive::default().with(&capture("fresh-mount"), u32::MAX);
    let archive = archive.with(&capture("dne-2-mdt"), frame).changing(&capture("dne-2-mdt"));
    // The recorded user had looked it up before.
    let archive = archive.named(ROOT, "f9", F9);
    // A visitor looks for what is missing in each stripe, the recorded clients in one.
    archive.without(fid(0x2_4000_0401, 4), "renamed1").without(fid(0x2_0000_0400, 4), "sub")
}

/// A change after a frame: which frame of a recorded client it is like.
#[track_caller]
fn changes(frame: u32, change: impl FnOnce(&Visit<'_>), as_frame: u32) {
    let archive = until(frame);
    let wire = Noted::new(&archive);
    change(&begin(&wire));
    as_recorded(&wire, &[as_frame]);
}

/// Index of the metadata target of a connection of the two recorded clients.
fn asked(same: &Same) -> u32 {
    match same.handle & 0xffff {
        0xbdd5 | 0xf358 => 0,
        0xbddc | 0xf35f => 1,
        other => panic!("frame {}: connection {other:#x}", same.frame),
    }
}

/// The changes that were asked for are those of these frames, of the same targets.
#[track_caller]
fn as_recorded(wire: &Noted<'_>, frames: &[u32]) {
    let is_change = |opcode: Opcode, buffers: &[Vec<u8>]| {
        let intent = buffers.get(1).and_then(|bytes| Intent::parse(ByteOrder::Little, bytes).ok());
        opcode == Opcode::MDS_REINT || intent.is_some_and(|intent| intent.contains(Intent::CREAT))
    };
    let opcodes = [Opcode::MDS_REINT, Opcode::LDLM_ENQUEUE];
    let made = wire.made(&opcodes).into_iter().filter(|made| is_change(made.opcode, &made.buffers));
    let mut found = Vec::new();
    for made in made {
        let [same] = made.same.as_slice() else { panic!("{made:?}") };
        is_alike(same);
        let of = format!("lfs-MDT{:04x}_UUID", asked(same));
        assert_eq!(made.target, of, "{} of frame {}", same.opcode, same.frame);
        found.push(same.frame);
    }
    assert_eq!(found, frames);
}

fn stat(visit: &Visit<'_>, path: &str) -> Attributes {
    run(visit.attributes(&node(visit, path))).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn cat(visit: &Visit<'_>, path: &str) -> String {
    let found = run(async {
        let file = visit.open_file(&visit.find(path.as_bytes(), true).await?).await?;
        let parts = visit.read(&file, 0, 4096).await?;
        visit.close(file).await?;
        Ok::<_, VisitError>(parts.into_iter().flat_map(|part| part.bytes).collect())
    });
    String::from_utf8(found.unwrap_or_else(|e| panic!("{path}: {e}"))).unwrap()
}

fn ls(visit: &Visit<'_>, path: &str) -> Vec<String> {
    let names = run(async {
        let mut dir = visit.open_dir(&visit.find(path.as_bytes(), true).await?).await?;
        let mut names = Vec::new();
        loop {
            let more = visit.read_dir(&mut dir).await?;
            if more.is_empty() {
                names.sort();
                return Ok::<_, VisitError>(names);
            }
            names.extend(more.into_iter().map(|name| String::from_utf8(name.name).unwrap()));
        }
    });
    names.unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// `lfs mkdir` with these, or `mkdir`.
#[track_caller]
fn mkdir(visit: &Visit<'_>, dir: &str, name: &str, wish: &DirWish) -> Node {
    let (parent, layout) = (node(visit, dir), wish.bytes());
    run(visit.make_dir(&parent, name.as_bytes(), 0o777, &layout))
        .unwrap_or_else(|e| panic!("{dir}/{name}: {e}"))
}

/// Makes an empty file.
fn touch(visit: &Visit<'_>, dir: &str, name: &str) -> Result<(), VisitError> {
    let how = OpenHow { read: false, write: true, truncate: true };
    let create = Create { mode: 0o666, ..Create::default() };
    run(async {
        let dir = visit.find(dir.as_bytes(), true).await?;
        visit.close(visit.create(&dir, name.as_bytes(), how, &create).await?).await
    })
}

fn moves(visit: &Visit<'_>, from: &str, dir: &str, name: &str) {
    let (file, dir) = (node(visit, from), node(visit, dir));
    run(visit.rename(&file, &dir, name.as_bytes())).unwrap_or_else(|e| panic!("{from}: {e}"));
}

fn nowhere() -> DirWish {
    DirWish::default()
}

#[test]
fn frames_1_to_43_a_remote_directory_is_made_on_the_target_that_the_user_names() {
    let there = DirWish { mdts: vec![1], ..DirWish::default() };
    let made = |visit: &Visit<'_>| {
        let made = mkdir(visit, "/f9", "r1", &there);
        assert_eq!(made.body().fid1, fid(0x2_4000_0403, 5));
    };
    changes(18, made, 20);

    let archive = until(43);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    let r1 = node(&visit, "/f9/r1");
    assert_eq!(
        (r1.fid, stat(&visit, "/f9/r1").inode()),
        (fid(0x2_4000_0403, 5), 162_129_603_815_538_693)
    );
    let stripes = run(visit.dir_stripes(&r1)).unwrap();
    assert_eq!(stripes, DirStripes { mdt: 1, hash: 0, stripes: Vec::new() });
}

#[test]
fn frames_44_to_105_what_is_made_in_a_remote_directory_is_on_its_target() {
    let archive = until(105);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    touch(&visit, "/f9/r1", "file").unwrap();
    mkdir(&visit, "/f9/r1", "sub", &nowhere());
    as_recorded(&wire, &[59, 76]);
    assert_eq!(ls(&visit, "/f9/r1"), ["file", "sub"]);
    let file = stat(&visit, "/f9/r1/file");
    // Its size is in the cache of the recorded client.
    assert_eq!((file.fid, file.mode, file.nlink), (fid(0x2_4000_0403, 6), 0o100_644, 1));
    let sub = stat(&visit, "/f9/r1/sub");
    assert_eq!(
        (sub.fid, sub.mode, sub.nlink, sub.size),
        (fid(0x2_4000_0403, 7), 0o040_755, 2, 4096)
    );
}

#[test]
fn frames_106_to_138_a_directory_is_striped_over_two_targets() {
    let two = DirWish { count: Some(2), ..DirWish::default() };
    let made = |visit: &Visit<'_>| {
        let made = mkdir(visit, "/f9", "st", &two);
        assert_eq!(made.body().fid1, fid(0x2_0000_0404, 0x1b));
    };
    changes(111, made, 113);

    let archive = until(138);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    let stripes = run(visit.dir_stripes(&node(&visit, "/f9/st"))).unwrap();
    let both = vec![(0, fid(0x2_0000_0400, 4)), (1, fid(0x2_4000_0401, 4))];
    assert_eq!(stripes, DirStripes { mdt: 0, hash: 2, stripes: both });
    assert_eq!(DirHash::name_of(stripes.hash), Some("fnv_1a_64"));
}

#[test]
fn frames_139_to_368_files_of_a_striped_directory_are_on_the_targets_of_their_names() {
    let archive = until(368);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    for i in 1..=8 {
        touch(&visit, "/f9/st", &format!("n{i}")).unwrap();
    }
    as_recorded(&wire, &[146, 168, 174, 182, 188, 196, 202, 210]);
    assert_eq!(ls(&visit, "/f9/st"), ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]);
    for (name, seq, oid) in [
        ("n1", 0x2_0000_0404, 0x1c),
        ("n2", 0x2_4000_0403, 0x8),
        ("n5", 0x2_0000_0404, 0x1e),
        ("n8", 0x2_4000_0403, 0xb),
    ] {
        let found = stat(&visit, &format!("/f9/st/{name}"));
        assert_eq!((found.fid, found.mode), (fid(seq, oid), 0o100_644), "{name}");
    }
}

/// Directories of two stripes by each rule: name, rule, its number, oid of the stripes.
const RULES: [(&str, &str, u32, u32); 4] = [
    ("sa", "all_char", 1, 5),
    ("sf", "fnv_1a_64", 2, 6),
    ("sc", "crush", 3, 7),
    ("sc2", "crush2", 4, 8),
];

#[test]
fn frames_369_to_485_directories_are_striped_by_each_rule() {
    let archive = until(368);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    for (name, rule, ..) in RULES {
        let hash = DirHash::named(rule);
        mkdir(&visit, "/f9", name, &DirWish { count: Some(2), hash, ..DirWish::default() });
    }
    as_recorded(&wire, &[372, 382, 392, 402]);

    let archive = until(485);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    for (name, rule, hash, oid) in RULES {
        let stripes = run(visit.dir_stripes(&node(&visit, &format!("/f9/{name}")))).unwrap();
        let both = vec![(0, fid(0x2_0000_0400, oid)), (1, fid(0x2_4000_0401, oid))];
        assert_eq!(stripes, DirStripes { mdt: 0, hash, stripes: both }, "{name}");
        assert_eq!(DirHash::name_of(hash), Some(rule));
    }
}

#[test]
fn frames_486_to_1007_names_go_to_the_stripe_that_their_rule_says() {
    let archive = until(1007);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    let names = ["alpha", "beta", "gamma", "delta", "x1", "x2"];
    for (dir, ..) in RULES {
        for name in names {
            touch(&visit, &format!("/f9/{dir}"), name).unwrap();
        }
    }
    let sequences = wire.targets(&[Opcode::LDLM_ENQUEUE]);
    // As `lfs getstripe -m` of the recorded user says.
    let crush = [1, 1, 1, 1, 0, 1];
    let expected = [[0, 0, 1, 0, 1, 0], [1, 1, 0, 1, 0, 1], crush, crush].concat();
    assert_eq!(sequences, expected);
}

#[test]
fn frames_1095_to_1336_a_client_that_has_just_mounted_sees_all_names() {
    let archive = until(1336);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    assert_eq!(ls(&visit, "/f9"), ["r1", "sa", "sc", "sc2", "sf", "st"]);
    assert_eq!(ls(&visit, "/f9/r1"), ["file", "sub"]);
    assert_eq!(ls(&visit, "/f9/st"), ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]);
    assert_eq!(cat(&visit, "/f9/r1/file"), "remote\n");
    assert_eq!(cat(&visit, "/f9/st/n5"), "5\n");
    // As `ls -la` of the recorded user says: links, bytes, names of the directories.
    for (name, nlink, size) in [
        ("r1", 3, 4096),
        ("sa", 2, 8192),
        ("sc", 2, 8192),
        ("sc2", 2, 8192),
        ("sf", 2, 8192),
        ("st", 2, 8192),
    ] {
        let dir = stat(&visit, &format!("/f9/{name}"));
        assert_eq!((dir.kind, dir.nlink, dir.size), (FileKind::Dir, nlink, size), "{name}");
    }
    for (path, size) in [("r1/file", 7), ("st/n1", 2), ("st/n8", 2)] {
        let file = stat(&visit, &format!("/f9/{path}"));
        assert_eq!((file.mode, file.nlink, file.size), (0o100_644, 1, size), "{path}");
    }
}

#[test]
fn frames_1367_to_1475_names_go_between_stripes_and_targets_by_one_request_each() {
    changes(1368, |visit| moves(visit, "/f9/st/n1", "/f9/st", "renamed1"), 1370);
    changes(1381, |visit| moves(visit, "/f9/st/n2", "/f9/r1", "moved"), 1383);
    changes(1395, |visit| moves(visit, "/f9/r1/file", "/f9", "top"), 1397);
    changes(1413, |visit| moves(visit, "/f9/r1/sub", "/f9/st", "sub"), 1414);

    let archive = until(1475);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    assert_eq!(ls(&visit, "/f9"), ["r1", "sa", "sc", "sc2", "sf", "st", "top"]);
    assert_eq!(ls(&visit, "/f9/r1"), ["moved"]);
    let st = ["n3", "n4", "n5", "n6", "n7", "n8", "renamed1", "sub"];
    assert_eq!(ls(&visit, "/f9/st"), st);
}

#[test]
fn frames_1476_to_1579_the_other_client_reads_what_has_moved() {
    let archive = until(1579);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    assert_eq!(ls(&visit, "/f9/r1"), ["moved"]);
    assert_eq!(cat(&visit, "/f9/top"), "remote\n");
    assert_eq!(cat(&visit, "/f9/r1/moved"), "2\n");
}

#[test]
fn frames_1580_to_1727_links_and_removals_cross_targets_and_a_list_of_targets_is_obeyed() {
    let linked = |visit: &Visit<'_>| {
        let (file, dir) = (node(visit, "/f9/st/n3"), node(visit, "/f9/r1"));
        run(visit.link(&file, &dir, b"hardlink")).unwrap();
    };
    changes(1579, linked, 1598);
    let removed = |visit: &Visit<'_>, path: &str| run(visit.remove(&node(visit, path)));
    changes(1610, |visit| removed(visit, "/f9/st/n4").unwrap(), 1611);
    changes(1621, |visit| removed(visit, "/f9/st/sub").unwrap(), 1623);
    let full = |visit: &Visit<'_>| {
        let e = removed(visit, "/f9/st").unwrap_err();
        assert_eq!(e.to_string(), "st: Directory not empty");
    };
    changes(1628, full, 1629);
    changes(1688, |visit| removed(visit, "/f9/sa").unwrap(), 1689);
    let both = DirWish { mdts: vec![1, 0], count: Some(2), ..DirWish::default() };
    changes(1706, |visit| drop(mkdir(visit, "/f9", "od", &both)), 1708);

    let archive = until(1727);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    assert_eq!(stat(&visit, "/f9/st/n3").nlink, 2);
    let stripes = run(visit.dir_stripes(&node(&visit, "/f9/od"))).unwrap();
    let both = vec![(1, fid(0x2_4000_0400, 4)), (0, fid(0x2_0000_0401, 4))];
    assert_eq!(stripes, DirStripes { mdt: 1, hash: 2, stripes: both });
}

#[test]
fn frames_1728_to_1790_a_default_that_names_a_target_is_obeyed() {
    changes(1733, |visit| drop(mkdir(visit, "/f9", "dflt", &nowhere())), 1741);

    let archive = until(1760);
    let wire = Noted::new(&archive);
    let visit = begin(&wire);
    let child = mkdir(&visit, "/f9/dflt", "child", &nowhere());
    assert_eq!(child.body().fid1, fid(0x2_4000_0403, 0x1d));
    as_recorded(&wire, &[1762]);
    let default = run(visit.dir_default(&node(&visit, "/f9/dflt"))).unwrap().unwrap();
    assert_eq!((default.stripe_count, default.master, default.hash), (1, 1, 0));
    assert_eq!(run(visit.dir_default(&node(&visit, "/f9"))).unwrap(), None);
}
