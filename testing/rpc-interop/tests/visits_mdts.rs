//! Several metadata targets: which of them a visitor asks, and what for, against recorded servers with two
//! of them.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use lnet_types::{ByteOrder, Errno};
use lustre_client::visitor::{
    Changes, Create, DirWish, FileKind, Name, OpenHow, SetXattr, Statfs, VisitError, Visitor, Wire,
};
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{Disposition, Intent, LockReply};
use lustre_wire::mds::{CreateRecord, MdtBody, NameRecord, Record, ReintOp};
use lustre_wire::striping::{DirDefault, DirHead, Magic, Striping};
use lustre_wire::{Fid, Layout, Opcode};
use rpc_interop::archive::{Answer, Archive};
use rpc_interop::visit::{DIR, Noted, ROOT, begin, elsewhere, node, recorded, run};

const LITTLE: ByteOrder = ByteOrder::Little;
const REINT: &[Opcode] = &[Opcode::MDS_REINT];
/// A file of the second metadata target, and one of the first.
const THERE: Fid = Fid { seq: 0x2_4000_0402, oid: 1, ver: 0 };
const HERE: Fid = DIR;

fn archive() -> Archive {
    recorded("namespace", u32::MAX, "f10", DIR)
}

/// Before names were removed.
fn earlier() -> Archive {
    recorded("namespace", 420, "f10", DIR)
}

#[test]
fn c125_a_directory_with_a_chosen_target_is_made_there_with_a_fid_of_that_target() {
    let archive = archive();
    let wire = Noted::new(&archive);
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let layout = DirWish { mdts: vec![1], ..DirWish::default() }.bytes();
    // Frame 436: made by MDT 1, in a directory of MDT 0.
    let made = run(visitor.make_dir(&dir, b"dd", 0o777, &layout)).unwrap();
    assert_eq!(made.kind(), FileKind::Dir);
    let opcodes = [Opcode::SEQ_QUERY, Opcode::MDS_REINT];
    assert_eq!(wire.targets(&opcodes), [1, 1], "a sequence, a directory");
    let buffers = &wire.made(REINT)[0].buffers;
    let Ok(Record::Create(record)) = Record::parse(LITTLE, &buffers[0]) else {
        panic!("a record of a new file")
    };
    assert_eq!((record.head.fid1, record.bias), (DIR, 0x20_0000));
    assert_eq!(buffers[3], layout);
}

#[test]
fn a_directory_on_a_target_that_is_not_there_is_refused_by_name() {
    let archive = archive();
    let wire = Noted::new(&archive);
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let layout = DirWish { mdts: vec![7], ..DirWish::default() }.bytes();
    let e = run(visitor.make_dir(&dir, b"dd", 0o777, &layout)).unwrap_err();
    assert_eq!(e.errno(), Errno::ENXIO);
    assert!(e.to_string().starts_with("MDT 7:"), "{e}");
    let e = run(visitor.make_dir(&dir, b"dd", 0o777, b"no layout")).unwrap_err();
    assert_eq!(e.errno(), Errno::EPROTO);
    assert!(wire.made(&[Opcode::SEQ_QUERY, Opcode::MDS_REINT]).is_empty(), "no target was asked");
}

#[test]
fn c126_a_link_is_made_by_the_target_that_the_refusal_names() {
    let archive = earlier();
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::EREMOTE, 0, &elsewhere(THERE));
    let visitor = begin(&wire);
    let (dir, file) = (node(&visitor, "/f10"), node(&visitor, "/f10/file"));
    run(visitor.link(&file, &dir, b"hard")).unwrap();
    assert_eq!(wire.targets(REINT), [0, 1]);
    let made = wire.made(REINT);
    assert_eq!(made[0].buffers, made[1].buffers);
}

#[test]
fn c126_what_is_made_elsewhere_gets_a_fid_of_the_target_that_makes_it() {
    let archive = earlier();
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::EREMOTE, 0, &elsewhere(THERE));
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    run(visitor.make_link(&dir, b"s1", b"short/target")).unwrap();
    assert_eq!(wire.targets(&[Opcode::SEQ_QUERY, Opcode::MDS_REINT]), [0, 0, 1, 1]);
    let made = wire.made(REINT);
    assert_eq!(made[0].buffers[1..], made[1].buffers[1..]);
}

#[test]
fn c131_a_name_is_removed_by_the_target_that_the_refusal_names() {
    let archive = archive();
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::EREMOTE, 0, &elsewhere(THERE));
    let visitor = begin(&wire);
    run(visitor.remove(&node(&visitor, "/f10/s1"))).unwrap();
    assert_eq!(wire.targets(REINT), [0, 1]);
    let made = wire.made(REINT);
    assert_eq!(made[0].buffers, made[1].buffers);
}

#[test]
fn c133_a_rename_goes_to_the_target_that_the_refusal_names_and_says_that_it_is_repeated() {
    for errno in [Errno::EXDEV, Errno::EREMOTE] {
        let archive = earlier();
        let wire = Noted::new(&archive).refusing(REINT[0], errno, 0, &elsewhere(THERE));
        let visitor = begin(&wire);
        let (dir, old) = (node(&visitor, "/f10"), node(&visitor, "/f10/n1"));
        run(visitor.rename(&old, &dir, b"n2")).unwrap();
        assert_eq!(wire.targets(REINT), [0, 1], "{errno:?}");
        let biases = wire.made(REINT).into_iter().map(|made| {
            let record = NameRecord::parse(LITTLE, &made.buffers[0]).unwrap();
            assert_eq!(record.head.opcode, ReintOp::RENAME);
            record.bias
        });
        assert_eq!(biases.collect::<Vec<_>>(), [0, 0x400_0000], "{errno:?}");
    }
}

/// How a rename ends that is refused in this way each time, and which targets it has asked.
fn refused(errno: Errno, named: &[MdtBody]) -> (VisitError, Vec<u32>) {
    let archive = earlier();
    let wire = named
        .iter()
        .fold(Noted::new(&archive), |wire, body| wire.refusing(Opcode::MDS_REINT, errno, 0, body));
    let visitor = begin(&wire);
    let (dir, old) = (node(&visitor, "/f10"), node(&visitor, "/f10/n1"));
    let e = run(visitor.rename(&old, &dir, b"n2")).unwrap_err();
    (e, wire.targets(REINT))
}

#[test]
fn c296_refusals_that_name_no_other_target_are_final() {
    let path = |errno| VisitError::Path { path: b"n2".to_vec(), errno };
    let nowhere = MdtBody::default();
    let unsaid = MdtBody { fid1: THERE, ..MdtBody::default() };
    for (errno, body) in [
        (Errno::EXDEV, nowhere),
        (Errno::EXDEV, unsaid),
        (Errno::EREMOTE, nowhere),
        // The target that was asked.
        (Errno::EREMOTE, elsewhere(HERE)),
        (Errno::ENOTEMPTY, elsewhere(THERE)),
    ] {
        assert_eq!(refused(errno, &[body]), (path(errno), vec![0]), "{errno:?}");
    }
}

#[test]
fn targets_that_name_each_other_are_asked_five_times_in_all() {
    let to_and_fro = [THERE, HERE, THERE, HERE, THERE, HERE].map(elsewhere);
    let (e, asked) = refused(Errno::EREMOTE, &to_and_fro);
    assert_eq!((e.errno(), asked), (Errno::EREMOTE, vec![0, 1, 0, 1, 0]));
    assert_eq!(e.to_string(), "n2: Object is remote");
}

#[test]
fn a_directory_on_a_chosen_target_is_made_there_or_not_at_all() {
    let archive = archive();
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::EREMOTE, 0, &elsewhere(HERE));
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let layout = DirWish { mdts: vec![1], ..DirWish::default() }.bytes();
    let e = run(visitor.make_dir(&dir, b"dd", 0o777, &layout)).unwrap_err();
    assert_eq!((e.errno(), wire.targets(REINT)), (Errno::EREMOTE, vec![1]));
}

#[test]
fn attributes_go_on_to_the_target_that_has_the_file() {
    let of = |visitor: &Visitor<&Noted<'_>>| node(visitor, "/f10/file");
    let archive = recorded("namespace", 514, "f10", DIR);
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::EREMOTE, 0, &elsewhere(THERE));
    let visitor = begin(&wire);
    run(visitor.change(&of(&visitor), &Changes { mode: Some(0o4751), ..Changes::default() }))
        .unwrap();
    assert_eq!(wire.targets(REINT), [0, 1]);

    let named = elsewhere(THERE);
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::EREMOTE, 0, &named);
    let wire = wire.answering(REINT[0], Answer::default());
    let visitor = begin(&wire);
    run(visitor.set_xattr(&of(&visitor), b"user.a", b"1", SetXattr::Any)).unwrap();
    assert_eq!(wire.targets(REINT), [0, 1]);
}

/// Opens by which files are made, and the target of each.
fn creates(wire: &Noted<'_>) -> Vec<(String, CreateRecord)> {
    let opens = wire.made(&[Opcode::LDLM_ENQUEUE]).into_iter().filter(|made| {
        let intent = made.buffers.get(1).and_then(|bytes| Intent::parse(LITTLE, bytes).ok());
        intent.is_some_and(|intent| intent.contains(Intent::CREAT))
    });
    opens
        .map(|made| (made.target, CreateRecord::parse(LITTLE, &made.buffers[2]).unwrap()))
        .collect()
}

fn makes_a_file<W: Wire>(visitor: &Visitor<W>) -> Result<(), VisitError> {
    run(async {
        let dir = visitor.find(b"/f10", false).await?;
        let how = OpenHow { read: false, write: true, truncate: true };
        let create = Create { mode: 0o666, ..Create::default() };
        let file = visitor.create(&dir, b"file", how, &create).await?;
        visitor.close(file).await
    })
}

#[test]
fn c126_an_open_that_makes_a_file_goes_to_the_target_that_the_refusal_names() {
    let archive = recorded("namespace", 391, "f10", DIR);
    let remote = elsewhere(THERE);
    // The server may say it of the message, or in the result of the intent.
    let done = Disposition::EXECUTED.bits();
    let result = Errno::EREMOTE.negative() as i64 as u64;
    let lock = LockReply { policy_res1: done, policy_res2: result, ..LockReply::default() };
    let buffers = vec![lock.to_bytes(LITTLE), remote.to_bytes(LITTLE)];
    let aborted = Answer { status: 301, buffers, ..Answer::default() };
    let opcode = Opcode::LDLM_ENQUEUE;
    for wire in [
        Noted::new(&archive).refusing(opcode, Errno::EREMOTE, 1, &remote),
        Noted::new(&archive).answering(opcode, aborted),
    ] {
        makes_a_file(&begin(&wire)).unwrap();
        let [first, second] = creates(&wire).try_into().unwrap();
        assert_eq!((first.0.as_str(), second.0.as_str()), ("lfs-MDT0000_UUID", "lfs-MDT0001_UUID"));
        assert_eq!(wire.targets(&[Opcode::SEQ_QUERY]), [0, 1], "each takes FIDs of its own alone");
        assert_eq!(first.1.head.fid1, second.1.head.fid1);
    }
}

/// Whether a request is for the default layout of directories.
fn asks_for_default(buffers: &[Vec<u8>]) -> bool {
    let asked = buffers.first().and_then(|bytes| MdtBody::parse(LITTLE, bytes).ok());
    asked.is_some_and(|asked| asked.valid.contains(Valid::DEFAULT_MEA))
}

/// The next requests for default layouts get these.
fn with_defaults<'a>(wire: Noted<'a>, defaults: &[Option<DirDefault>]) -> Noted<'a> {
    defaults.iter().fold(wire, |wire, default| {
        let said = default.map_or(Valid::ID, |_| Valid::ID | Valid::DEFAULT_MEA);
        let body = MdtBody { fid1: DIR, valid: said, ..MdtBody::default() };
        let layout = default.map(|default| default.to_bytes(LITTLE)).unwrap_or_default();
        let buffers = vec![body.to_bytes(LITTLE), layout];
        let answer = Answer { buffers, ..Answer::default() };
        wire.answering_if(Opcode::MDS_GETATTR, asks_for_default, answer)
    })
}

/// A directory is made in `/f10` where these are the defaults of `/f10` and of the root: the targets that
/// are asked to make it, and the layouts that they are asked for.
fn made_by_default(defaults: &[Option<DirDefault>]) -> (Vec<u32>, Vec<Vec<u8>>) {
    let archive = archive();
    let wire = with_defaults(Noted::new(&archive), defaults);
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    run(visitor.make_dir(&dir, b"dd", 0o777, b"")).unwrap();
    let layouts = wire.made(REINT).into_iter().map(|made| made.buffers[3].clone());
    let asked = wire.made(&[Opcode::MDS_GETATTR]);
    let asked = asked.iter().filter(|made| asks_for_default(&made.buffers)).count();
    assert_eq!(asked, defaults.len(), "each default is asked for");
    (wire.targets(REINT), layouts.collect())
}

fn default(master: u32) -> DirDefault {
    DirDefault { magic: Magic::DIR_USER, stripe_count: 1, master, ..DirDefault::default() }
}

#[test]
fn c125_the_default_of_the_parent_or_else_of_the_root_names_the_target() {
    let own = default(1);
    assert_eq!(made_by_default(&[Some(own)]), (vec![1], vec![own.to_bytes(LITTLE)]));
    assert_eq!(made_by_default(&[None, Some(own)]), (vec![1], vec![own.to_bytes(LITTLE)]));
}

#[test]
fn c125_without_a_default_that_counts_a_directory_is_made_by_the_target_of_its_parent() {
    let there = (vec![0], vec![Vec::new()]);
    assert_eq!(made_by_default(&[None, None]), there);
    // Spread over any targets: the server's to place.
    let spread = DirDefault { stripe_count: 2, ..default(u32::MAX) };
    assert_eq!(made_by_default(&[Some(spread)]), there);
    // Of the root for what is in the root alone.
    assert_eq!(made_by_default(&[None, Some(DirDefault { inherit: 1, ..default(1) })]), there);
    // A target of which the configuration knows nothing.
    assert_eq!(made_by_default(&[Some(default(7))]), there);
}

/// The targets that make so many directories in `/f10`, whose default leaves the target open. Targets are asked
/// for their room once.
fn made_by_room(default: DirDefault, count: usize) -> Vec<u32> {
    let archive = archive();
    let wire = with_defaults(Noted::new(&archive), &vec![Some(default); count]);
    let space = Statfs { bavail: 1 << 20, bsize: 4096, ffree: 1 << 20, ..Statfs::default() };
    let answer = Answer { buffers: vec![space.to_bytes(LITTLE)], ..Answer::default() };
    let wire = wire.answering(Opcode::MDS_STATFS, answer.clone());
    let wire = wire.answering(Opcode::MDS_STATFS, answer);
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    for _ in 0..count {
        run(visitor.make_dir(&dir, b"dd", 0o777, b"")).unwrap();
    }
    assert_eq!(wire.targets(&[Opcode::MDS_STATFS]), [0, 1], "each is asked for its room");
    for made in wire.made(REINT) {
        // As in frame 436: the FID says where it is.
        let record = CreateRecord::parse(LITTLE, &made.buffers[0]).unwrap();
        assert_eq!((record.head.fid1, record.flags_high, record.bias), (DIR, 0x40, 0));
        assert_eq!(made.buffers[3], b"");
    }
    wire.targets(REINT)
}

#[test]
fn c125_a_default_that_leaves_the_target_open_spreads_directories_over_all() {
    let any = default(u32::MAX);
    for default in [any, DirDefault { inherit_rr: 3, ..any }] {
        assert_eq!(made_by_room(default, 4), [0, 1, 0, 1]);
    }
}

#[test]
fn c125_the_choice_of_a_user_counts_before_every_default() {
    let archive = archive();
    let wire = Noted::new(&archive);
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let layout = DirWish { mdts: vec![0], ..DirWish::default() }.bytes();
    run(visitor.make_dir(&dir, b"dd", 0o777, &layout)).unwrap();
    assert!(wire.made(&[Opcode::MDS_GETATTR]).iter().all(|made| !asks_for_default(&made.buffers)));
    assert_eq!(wire.targets(REINT), [0]);
}

#[test]
fn c126_a_directory_that_a_default_sends_elsewhere_goes_on_to_the_target_of_the_refusal() {
    let archive = archive();
    let body = MdtBody { valid: Valid::DEFAULT_MEA, ..MdtBody::default() };
    let buffers = vec![body.to_bytes(LITTLE), default(1).to_bytes(LITTLE)];
    let answer = Answer { buffers, ..Answer::default() };
    let wire = Noted::new(&archive).answering_if(Opcode::MDS_GETATTR, asks_for_default, answer);
    let wire = wire.refusing(REINT[0], Errno::EREMOTE, 0, &elsewhere(HERE));
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    run(visitor.make_dir(&dir, b"dd", 0o777, b"")).unwrap();
    assert_eq!(wire.targets(REINT), [1, 0]);
}

/// Whether a request is for the attributes of `/f10` by its FID.
fn asks_for_dir(buffers: &[Vec<u8>]) -> bool {
    let asked = buffers.first().and_then(|bytes| MdtBody::parse(LITTLE, bytes).ok());
    asked.is_some_and(|asked| asked.fid1 == DIR && asked.valid.contains(Valid::MEA))
}

/// `/f10` as it is after it was spread over both targets, by the sum of all characters.
fn spread() -> Answer {
    let valid = Valid::ID | Valid::TYPE | Valid::MODE | Valid::DIREA | Valid::MEA;
    let head = DirHead { stripe_count: 2, hash: 1, version: 3, ..DirHead::default() };
    let layout = Striping::Dir(DirHead { magic: Magic::DIR, ..head }, vec![HERE, THERE]).to_bytes();
    let eadatasize = u32::try_from(layout.len()).unwrap();
    let body = MdtBody { fid1: DIR, valid, mode: 0o040_755, eadatasize, ..MdtBody::default() };
    Answer { buffers: vec![body.to_bytes(LITTLE), layout], ..Answer::default() }
}

#[test]
fn c163_a_name_in_a_directory_that_was_spread_meanwhile_is_made_in_its_stripe() {
    let archive = archive();
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::ESTALE, 0, &MdtBody::default());
    let wire = wire.answering_if(Opcode::MDS_GETATTR, asks_for_dir, spread());
    let made = MdtBody { mode: 0o040_755, ..MdtBody::default() };
    let buffers = vec![made.to_bytes(LITTLE), Vec::new(), Vec::new()];
    let made = Answer { buffers, ..Answer::default() };
    let wire = with_defaults(wire.answering(REINT[0], made), &[None; 3]);
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    // The sum of the characters is odd: the second stripe, on the second target.
    run(visitor.make_dir(&dir, b"a", 0o777, b"")).unwrap();
    assert_eq!(wire.targets(REINT), [0, 1]);
    let records = wire.made(REINT).into_iter().map(|made| {
        let head = CreateRecord::parse(LITTLE, &made.buffers[0]).unwrap().head;
        (head.fid1, head.parent_layout_version)
    });
    assert_eq!(records.collect::<Vec<_>>(), [(DIR, 1), (THERE, 3)]);
}

/// Whether a request is for attributes of a new directory by its FID.
fn asks_for_new(buffers: &[Vec<u8>]) -> bool {
    let asked = buffers.first().and_then(|bytes| MdtBody::parse(LITTLE, bytes).ok());
    asked
        .is_some_and(|asked| ![DIR, ROOT].contains(&asked.fid1) && asked.valid.contains(Valid::MEA))
}

#[test]
fn c282_new_directory_of_which_the_reply_has_no_layout_is_asked_for_it() {
    let archive = archive();
    let body = MdtBody { mode: 0o040_755, ..MdtBody::default() };
    // As servers up to 2.15 answer, and as later ones do.
    for (behind, asked) in [(0, true), (1, true), (2, false)] {
        let mut buffers = vec![body.to_bytes(LITTLE)];
        buffers.resize(1 + behind, Vec::new());
        let wire =
            Noted::new(&archive).answering(REINT[0], Answer { buffers, ..Answer::default() });
        let wire = with_defaults(wire, &[None; 2]);
        let wire = wire.answering_if(Opcode::MDS_GETATTR, asks_for_new, spread());
        let visitor = begin(&wire);
        let dir = node(&visitor, "/f10");
        let made = run(visitor.make_dir(&dir, b"dd", 0o777, b"")).unwrap();
        let attributes = wire.made(&[Opcode::MDS_GETATTR]);
        let count = attributes.iter().filter(|made| asks_for_new(&made.buffers)).count();
        assert_eq!(count, usize::from(asked), "{behind}");
        let stripes = run(visitor.dir_stripes(&made)).unwrap().stripes;
        assert_eq!(stripes, if asked { vec![(0, HERE), (1, THERE)] } else { Vec::new() });
    }
}

/// The same directory while its names move to other stripes.
fn moving() -> Answer {
    let mut answer = spread();
    let Ok(Striping::Dir(head, stripes)) = Striping::parse(&answer.buffers[1]) else {
        panic!("a striped directory")
    };
    let head = DirHead { hash: head.hash | 0x8000_0000, ..head };
    answer.buffers[1] = Striping::Dir(head, stripes).to_bytes();
    answer
}

#[test]
fn c162_listed_file_of_a_directory_whose_layout_changes_has_the_stripe_that_has_its_name() {
    let archive = archive();
    let fid = Fid { oid: 77, ..THERE };
    let moving_dir = |there| {
        let wire = Noted::new(&archive).answering(Opcode::MDS_GETATTR_NAME, moving());
        let wire = wire.answering(Opcode::MDS_GETATTR_NAME, looked_up(None));
        wire.answering_if(Opcode::MDS_GETATTR_NAME, asks_there, looked_up(there))
    };
    let done = Answer { buffers: vec![MdtBody::default().to_bytes(LITTLE)], ..Answer::default() };
    let wire = moving_dir(Some(fid)).answering(REINT[0], done);
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let found = run(visitor.node(fid, &dir, b"n2")).unwrap();
    assert_eq!((found.fid, wire.targets(&[Opcode::MDS_GETATTR_NAME])), (fid, vec![0, 0, 1]));
    run(visitor.remove(&found)).unwrap();
    assert_eq!(places(&wire), [(THERE, fid)]);
    // Its name is gone.
    let wire = moving_dir(None).answering_if(Opcode::MDS_GETATTR, asks_for_dir, moving());
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let name = Name { name: b"n2".to_vec(), fid, kind: None };
    assert_eq!(run(visitor.list(&dir, &[name])), [Ok(None)]);
}

/// Whether a request is for a name in `/f10`.
fn asks_here(buffers: &[Vec<u8>]) -> bool {
    let asked = buffers.first().and_then(|bytes| MdtBody::parse(LITTLE, bytes).ok());
    asked.is_some_and(|asked| asked.fid1 == HERE)
}

#[test]
fn directory_that_another_client_makes_first_is_found() {
    let archive = archive();
    let wire =
        Noted::new(&archive).answering_if(Opcode::MDS_GETATTR_NAME, asks_here, looked_up(None));
    let wire = with_defaults(wire, &[None; 2]);
    let wire = wire.refusing(REINT[0], Errno::EEXIST, 0, &MdtBody::default());
    let there = Fid { oid: 77, ..THERE };
    let wire = wire.answering_if(Opcode::MDS_GETATTR_NAME, asks_here, looked_up(Some(there)));
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let (found, is_new) = run(visitor.child_or_new_dir(&dir, b"dd", 0o777)).unwrap();
    assert_eq!((found.fid, is_new, wire.targets(REINT).len()), (there, false, 1));
}

#[test]
fn a_directory_that_is_stale_and_has_the_same_layout_is_not_asked_again() {
    let archive = archive();
    let wire = Noted::new(&archive).refusing(REINT[0], Errno::ESTALE, 0, &MdtBody::default());
    let visitor = begin(&wire);
    let dir = node(&visitor, "/f10");
    let e = run(visitor.make_link(&dir, b"s1", b"short/target")).unwrap_err();
    assert_eq!((e.errno(), wire.targets(REINT)), (Errno::ESTALE, vec![0]));
}

/// Whether a request is for a name in the second stripe of `/f10`.
fn asks_there(buffers: &[Vec<u8>]) -> bool {
    let asked = buffers.first().and_then(|bytes| MdtBody::parse(LITTLE, bytes).ok());
    asked.is_some_and(|asked| asked.fid1 == THERE)
}

/// The answer to a lookup that finds this file, or none.
fn looked_up(file: Option<Fid>) -> Answer {
    let Some(fid1) = file else {
        return Answer { status: Errno::ENOENT.negative(), ..Answer::default() };
    };
    let valid = Valid::ID | Valid::TYPE | Valid::MODE;
    let body = MdtBody { fid1, valid, mode: 0o100_644, ..MdtBody::default() };
    Answer { buffers: vec![body.to_bytes(LITTLE)], ..Answer::default() }
}

/// Servers for which `/f10` was spread over both targets after it was looked up: the first change in it is
/// refused, and the second one carried out.
fn spread_meanwhile<'a>(archive: &'a Archive, there: Option<Fid>) -> Noted<'a> {
    let wire = Noted::new(archive).refusing(REINT[0], Errno::ESTALE, 0, &MdtBody::default());
    let mut wire = wire.answering_if(Opcode::MDS_GETATTR, asks_for_dir, spread());
    wire = wire.answering_if(Opcode::MDS_GETATTR_NAME, asks_there, looked_up(there));
    let done = Answer { buffers: vec![MdtBody::default().to_bytes(LITTLE)], ..Answer::default() };
    wire.answering(REINT[0], done)
}

/// The places of both names in each change.
fn places(wire: &Noted<'_>) -> Vec<(Fid, Fid)> {
    let made = wire.made(REINT).into_iter();
    let heads = made.map(|made| NameRecord::parse(LITTLE, &made.buffers[0]).unwrap().head);
    heads.map(|head| (head.fid1, head.fid2)).collect()
}

#[test]
fn c163_a_link_in_a_directory_that_was_spread_meanwhile_is_made_in_its_stripe() {
    let archive = earlier();
    let wire = spread_meanwhile(&archive, None);
    let visitor = begin(&wire);
    let (dir, file) = (node(&visitor, "/f10"), node(&visitor, "/f10/file"));
    run(visitor.link(&file, &dir, b"a")).unwrap();
    assert_eq!(places(&wire), [(file.fid, DIR), (file.fid, THERE)]);
}

#[test]
fn c163_a_name_of_a_directory_that_was_spread_meanwhile_is_removed_from_its_stripe() {
    let archive = earlier();
    let before = Noted::new(&archive);
    let fid = node(&begin(&before), "/f10/n1").fid;
    let wire = spread_meanwhile(&archive, Some(fid));
    let visitor = begin(&wire);
    run(visitor.remove(&node(&visitor, "/f10/n1"))).unwrap();
    assert_eq!(places(&wire), [(DIR, fid), (THERE, fid)]);
    // Another file has the name: it is not the one that was to be removed.
    let wire = spread_meanwhile(&archive, Some(Fid { oid: 77, ..THERE }));
    let visitor = begin(&wire);
    let e = run(visitor.remove(&node(&visitor, "/f10/n1"))).unwrap_err();
    assert_eq!((e.errno(), places(&wire)), (Errno::ESTALE, vec![(DIR, fid)]));
}

#[test]
fn c163_a_rename_in_a_directory_that_was_spread_meanwhile_is_made_between_stripes() {
    let archive = earlier();
    let before = Noted::new(&archive);
    let fid = node(&begin(&before), "/f10/n1").fid;
    // The directory is read for the old name, and for the new one, which no file has.
    let wire = spread_meanwhile(&archive, Some(fid));
    let wire = wire.answering_if(Opcode::MDS_GETATTR, asks_for_dir, spread());
    let visitor = begin(&wire);
    let (dir, old) = (node(&visitor, "/f10"), node(&visitor, "/f10/n1"));
    // The sum of the characters is even: the first stripe, which is the directory itself.
    run(visitor.rename(&old, &dir, b"n2")).unwrap();
    assert_eq!(places(&wire), [(DIR, DIR), (THERE, HERE)]);
}

#[test]
fn c154_a_name_that_is_missing_is_asked_of_one_stripe_and_of_another_if_the_layout_has_changed() {
    let archive = archive();
    let striped = |now: Answer, there: Option<Fid>| {
        let wire = Noted::new(&archive).answering(Opcode::MDS_GETATTR_NAME, spread());
        let wire = wire.answering_if(Opcode::MDS_GETATTR_NAME, asks_there, looked_up(None));
        let wire = wire.answering_if(Opcode::MDS_GETATTR, asks_for_dir, now);
        wire.answering(Opcode::MDS_GETATTR_NAME, looked_up(there))
    };
    let lookups = [Opcode::MDS_GETATTR_NAME];
    let wire = striped(spread(), Some(HERE));
    let visitor = begin(&wire);
    let e = run(visitor.child(&node(&visitor, "/f10"), b"a")).unwrap_err();
    assert_eq!((e.errno(), wire.targets(&lookups)), (Errno::ENOENT, vec![0, 1]));
    // It is one stripe by now, with all names.
    let body = MdtBody { fid1: DIR, mode: 0o040_755, ..MdtBody::default() };
    let plain = Answer { buffers: vec![body.to_bytes(LITTLE)], ..Answer::default() };
    let wire = striped(plain, Some(HERE));
    let visitor = begin(&wire);
    let found = run(visitor.child(&node(&visitor, "/f10"), b"a")).unwrap();
    assert_eq!((found.fid, wire.targets(&lookups)), (HERE, vec![0, 1, 0]));
}
