//! Several metadata targets: who has what, and directories whose name is on another target than they are.
//! Each of the two dies at each moment of a change, and both know the same afterwards.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lnet_types::{Errno, Prng};
use lustre_target::{AcrossWire, Commit, Mdt, MemoryStore, start};
use lustre_wire::dir::page;
use lustre_wire::fid::{RangeKind, SeqOp, SeqRange, Valid};
use lustre_wire::ldlm::{Disposition, InodeBits, LockFlags, LockReply};
use lustre_wire::mds::{CreateRecord, MdtBody, ReintOp, SetattrValid};
use lustre_wire::{Buffers, Fid, Opcode, Portal};
use ptlrpc::{Call, CallError, CallId};

use super::locks::getattr;
use super::{
    Bench, Client, LITTLE, MDT, NOW, OPEN_CREATE, OPEN_WRITE, ROOT, body_of, mdt, opened, reint,
};

const DIR: u32 = 0o040_000;
const OTHER: &str = "lfs-MDT0001_UUID";
const CREATE: u32 = OPEN_CREATE | OPEN_WRITE;

/// Two metadata targets, and a client as both know it.
fn two(commit: Commit) -> (Bench, Client, Client) {
    let mut bench = Bench::with_mdts((2, 2), commit);
    let c = bench.client("c", 0);
    let d = bench.client_at(1, c, "c");
    bench.commit();
    (bench, c, d)
}

fn rmdir(d: Client, dir: Fid, name: &str, file: Fid) -> Buffers {
    let record = d.named(ReintOp::UNLINK, (dir, file), DIR);
    Buffers::from([record, Vec::new(), super::text(name), Vec::new()])
}

/// The status of a change, and the file by which it names another target.
fn sent_on(bench: &mut Bench, c: Client, buffers: Buffers) -> (i32, Fid, Valid) {
    let call = Call { error_reply: true, ..reint(buffers) };
    let reply = bench.call(c, call).unwrap();
    let body: MdtBody = reply.msg().unwrap().get(1).unwrap();
    (reply.status, body.fid1, body.valid)
}

/// All names of a directory.
fn names(bench: &mut Bench, c: Client, dir: Fid) -> Vec<(Vec<u8>, Fid)> {
    let bytes = bench.pages(c, dir, 0, 1 << 16);
    let (_, entries) = page(LITTLE, &bytes[..4096]).unwrap();
    let entries = entries.map(Result::unwrap);
    entries
        .map(|entry| (entry.name.to_vec(), entry.head.fid))
        .filter(|(name, _)| name[0] != b'.')
        .collect()
}

fn locate(bench: &mut Bench, c: Client, seq: u64) -> Result<SeqRange, Errno> {
    let range = SeqRange { start: seq, ..SeqRange::default() };
    let buffers = Buffers::new().layout(&SeqOp::LOOKUP).layout(&range);
    let call = Call::new(Opcode::FLD_QUERY, buffers).answered_by(&[24]);
    let reply = bench.call(c, call).map_err(CallError::errno)?;
    Ok(reply.msg().unwrap().get(1).unwrap())
}

#[test]
fn c41_each_target_knows_which_one_has_a_file() {
    let (bench, c, d) = &mut two(Commit::AtOnce);
    assert_eq!((c.seq, d.seq), (0x2_0000_0401, 0x2_4000_0401));
    for client in [*c, *d] {
        let of = |bench: &mut Bench, seq| locate(bench, client, seq).map(|range| range.index);
        assert_eq!([ROOT.seq, c.seq, d.seq].map(|seq| of(bench, seq)), [Ok(0), Ok(0), Ok(1)]);
        assert_eq!(of(bench, 0x3_0000_0402), Err(Errno::ENOENT));
        let ost = locate(bench, client, 0x2_C000_0402).unwrap();
        assert_eq!((ost.index, ost.flags), (1, RangeKind::OST));
    }
    // The root is with the first target alone.
    assert_eq!(bench.getattr(*c, ROOT).unwrap().mode, 0o040_755);
    let there = bench.getattr(*d, ROOT).unwrap();
    assert_eq!((there.fid1, there.valid), (ROOT, Valid::ID | Valid::MDS));
    assert_eq!(bench.lookup(*d, ROOT, "a"), Err(Errno::EPROTO));
}

#[test]
fn store_of_another_target_is_refused() {
    let (bench, c, d) = &mut two(Commit::AtOnce);
    bench.mkdir(*c, ROOT, "a", 1).unwrap();
    bench.mkdir(*d, ROOT, "r", 1).unwrap();
    for (uuid, wrong) in [(MDT, 1), (OTHER, 0)] {
        let mut store = bench.take(uuid).crashed();
        let e = Mdt::load_at(bench.site(), wrong, &mut store).unwrap_err().to_string();
        assert!(e.contains("another target"), "{e}");
        let _ = start(&mut store, "mdt").unwrap();
    }
}

#[test]
fn c46_directory_on_another_target_is_made_found_and_removed() {
    let (bench, c, d) = &mut two(Commit::AtOnce);
    let (c, d) = (*c, *d);
    let made = bench.mkdir(d, ROOT, "r", 5).unwrap();
    let r = d.fid(5);
    assert_eq!((made.fid1, made.mode, made.nlink), (r, 0o040_755, 2));
    let root = bench.getattr(c, ROOT).unwrap();
    assert_eq!((root.nlink, root.mtime), (3, NOW));
    // By name the first target has the FID and nothing else.
    let entry = bench.lookup(c, ROOT, "r").unwrap();
    assert_eq!((entry.fid1, entry.valid.bits()), (r, 0x1_0000_0001));
    assert_eq!(names(bench, c, ROOT), [(b"r".to_vec(), r)]);
    assert_eq!(bench.getattr(d, r).unwrap().mode, 0o040_755);
    let above = bench.lookup(d, r, "..").unwrap();
    assert_eq!((above.fid1, above.valid), (ROOT, Valid::ID | Valid::MDS));
    // Files in it are with it, and no two targets use the same object.
    let (f, here, _) = bench.open(d, r, "f", 6, CREATE).unwrap();
    let (_, there, _) = bench.open(c, ROOT, "f", 7, CREATE).unwrap();
    assert_eq!(f.fid1, d.fid(6));
    let [here, there] = [here.objects[0], there.objects[0]];
    assert_ne!((here.index, here.id), (there.index, there.id));
    bench.mkdir(d, r, "sub", 8).unwrap();
    assert_eq!(bench.getattr(d, r).unwrap().nlink, 3);
    // Its name is removed by the target that has it.
    let sent = sent_on(bench, c, c.unlink(ROOT, "r", DIR));
    assert_eq!(sent, (Errno::EREMOTE.negative(), r, Valid::ID | Valid::MDS));
    assert_eq!(bench.reint(d, rmdir(d, ROOT, "r", r)), Err(Errno::ENOTEMPTY));
    bench.reint(d, d.unlink(r, "sub", DIR)).unwrap();
    bench.reint(d, d.unlink(r, "f", 0)).unwrap();
    let gone = bench.reint(d, rmdir(d, ROOT, "r", r)).unwrap();
    assert_eq!((gone.fid1, gone.nlink), (r, 0));
    assert_eq!(bench.lookup(c, ROOT, "r"), Err(Errno::ENOENT));
    assert_eq!(bench.getattr(d, r), Err(Errno::ENOENT));
    let root = bench.getattr(c, ROOT).unwrap();
    assert_eq!((root.nlink, root.mtime), (2, NOW + 1));
    // The name is free again.
    bench.mkdir(d, ROOT, "r", 9).unwrap();
}

#[test]
fn c110_open_of_a_directory_on_another_target_is_sent_there() {
    let (bench, c, d) = &mut two(Commit::AtOnce);
    let (c, d) = (*c, *d);
    bench.mkdir(d, ROOT, "r", 5).unwrap();
    let r = d.fid(5);
    let reply = bench.call(c, c.open(ROOT, "r", 1, 1, Vec::new())).unwrap();
    let msg = reply.msg().unwrap();
    let (lock, body): (LockReply, MdtBody) = (msg.get(1).unwrap(), msg.get(2).unwrap());
    let found = Disposition::EXECUTED | Disposition::LOOKED_UP | Disposition::POSITIVE;
    assert_eq!((lock.policy_res1, lock.policy_res2), (found.bits(), 0));
    assert_eq!((body.fid1, body.valid, body.open_handle), (r, Valid::ID | Valid::MDS, 0));
    assert_eq!(
        bench.open(c, ROOT, "r", 1, OPEN_CREATE | super::OPEN_EXCL).map(|_| ()),
        Err(Errno::EEXIST)
    );
    // The second request names the directory, the one above, and no name.
    let record = CreateRecord {
        head: d.head(ReintOp::OPEN, r, ROOT),
        flags_low: 1,
        bias: 2,
        ..CreateRecord::default()
    };
    let (body, ..) = opened(bench.call(d, d.opens(&record, "", Vec::new()))).unwrap();
    assert_eq!((body.fid1, body.open_handle != 0), (r, true));
    // A directory that is open goes with its last handle.
    bench.reint(d, rmdir(d, ROOT, "r", r)).unwrap();
    assert_eq!(bench.getattr(d, r).unwrap().nlink, 0);
    assert_eq!(bench.mkdir(d, r, "late", 7), Err(Errno::ENOENT));
    bench.close(d, &body).unwrap();
    assert_eq!(bench.getattr(d, r), Err(Errno::ENOENT));
}

#[test]
fn other_target_refuses_what_its_directory_does_not_allow() {
    let (bench, c, d) = &mut two(Commit::AtOnce);
    let (c, d) = (*c, *d);
    bench.mkdir(c, ROOT, "a", 1).unwrap();
    assert_eq!(bench.mkdir(d, ROOT, "a", 5), Err(Errno::EEXIST));
    assert_eq!(bench.getattr(d, d.fid(5)), Err(Errno::ENOENT));
    assert_eq!(bench.mkdir(d, c.fid(77), "x", 5), Err(Errno::ESTALE));
    bench.open(c, ROOT, "f", 2, CREATE).unwrap();
    assert_eq!(bench.mkdir(d, c.fid(2), "x", 5), Err(Errno::ENOTDIR));
    let user = Client { uid: 7, ..d };
    assert_eq!(bench.mkdir(user, ROOT, "x", 5), Err(Errno::EACCES));
    // A file goes to the target of its directory.
    let fifo = d.create(ROOT, "p", 6, 0o010_644, b"");
    assert_eq!(sent_on(bench, d, fifo), (Errno::EREMOTE.negative(), ROOT, Valid::ID | Valid::MDS));
    // Sticky: only the owner of the directory or of the file removes a name.
    bench.reint(c, c.setattr(c.fid(1), SetattrValid::MODE, 0o1777, 0)).unwrap();
    bench.mkdir(user, c.fid(1), "own", 7).unwrap();
    bench.mkdir(d, c.fid(1), "roots", 8).unwrap();
    assert_eq!(bench.reint(user, rmdir(user, c.fid(1), "roots", d.fid(8))), Err(Errno::EPERM));
    bench.reint(user, rmdir(user, c.fid(1), "own", d.fid(7))).unwrap();
    // Not what it names.
    assert_eq!(bench.reint(d, rmdir(d, c.fid(1), "none", d.fid(8))), Err(Errno::ENOENT));
    let record = d.named(ReintOp::UNLINK, (c.fid(1), d.fid(8)), 0);
    let unlink = Buffers::from([record, Vec::new(), super::text("roots"), Vec::new()]);
    assert_eq!(bench.reint(d, unlink), Err(Errno::EISDIR));
    // Spread over both.
    let layout = [0x0CD3_0CD0u32, 2].into_iter().flat_map(u32::to_le_bytes).chain([0; 40]);
    let striped = d.create(ROOT, "s", 9, 0o040_755, &layout.collect::<Vec<u8>>());
    assert_eq!(bench.reint(d, striped), Err(Errno::EOPNOTSUPP));
    // Nothing is held for what was refused.
    bench.mkdir(c, ROOT, "x", 10).unwrap();
    bench.mkdir(c, ROOT, "s", 11).unwrap();
}

#[test]
fn directory_on_another_target_inherits_from_the_one_above() {
    let (bench, c, d) = &mut two(Commit::AtOnce);
    let (c, d) = (*c, *d);
    bench.mkdir(c, ROOT, "a", 1).unwrap();
    let a = c.fid(1);
    bench.reint(c, c.setattr(a, SetattrValid::MODE, 0o2755, 0)).unwrap();
    let list: [(u16, u16, u32); 5] = [
        (1, 7, u32::MAX),
        (2, 6, 1000),
        (4, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in list {
        value.extend([tag, bits].iter().flat_map(|word| word.to_le_bytes()));
        value.extend(id.to_le_bytes());
    }
    let default = "system.posix_acl_default";
    bench.reint(c, c.setxattr(a, default, Some(&value), 0)).unwrap();
    let made = bench.mkdir(d, a, "r", 5).unwrap();
    assert_eq!(made.mode, 0o042_750);
    let inner = bench.mkdir(d, d.fid(5), "in", 6).unwrap();
    assert_eq!(inner.mode, made.mode);
}

#[test]
fn links_and_renames_between_targets_are_not_made() {
    let (bench, c, d) = &mut two(Commit::AtOnce);
    let (c, d) = (*c, *d);
    bench.mkdir(d, ROOT, "r", 5).unwrap();
    let r = d.fid(5);
    bench.open(c, ROOT, "f", 1, CREATE).unwrap();
    bench.open(d, r, "g", 6, CREATE).unwrap();
    bench.mkdir(c, ROOT, "a", 2).unwrap();
    let plain = (Errno::EXDEV.negative(), Fid::default(), Valid::empty());
    assert_eq!(sent_on(bench, d, d.link(c.fid(1), r, "l")), plain);
    assert_eq!(sent_on(bench, c, c.link(d.fid(6), ROOT, "l")), plain);
    for (client, from, to) in [
        (d, (ROOT, "f"), (r, "f")),
        (c, (ROOT, "f"), (r, "f")),
        (c, (r, "g"), (ROOT, "g")),
        (c, (ROOT, "a"), (ROOT, "r")),
        (d, (ROOT, "a"), (ROOT, "r")),
        (c, (ROOT, "r"), (ROOT, "a")),
        (c, (ROOT, "r"), (c.fid(2), "r")),
    ] {
        assert_eq!(sent_on(bench, client, client.rename(from, to)), plain, "{from:?} {to:?}");
    }
    // A name that is not there is that first, whatever the other one is.
    assert_eq!(bench.reint(c, c.rename((ROOT, "gone"), (ROOT, "r"))), Err(Errno::ENOENT));
    // Within its directory it gets another name.
    bench.reint(c, c.rename((ROOT, "r"), (ROOT, "s"))).unwrap();
    assert_eq!(bench.lookup(c, ROOT, "s").unwrap().fid1, r);
    assert_eq!(bench.lookup(c, ROOT, "r"), Err(Errno::ENOENT));
    // On one target alone all goes as ever, also of directories.
    bench.mkdir(d, r, "x", 7).unwrap();
    bench.mkdir(d, r, "y", 8).unwrap();
    bench.reint(d, d.rename((r, "x"), (d.fid(8), "x"))).unwrap();
    assert_eq!(bench.reint(d, d.rename((r, "y"), (d.fid(7), "y"))), Err(Errno::EINVAL));
    // A directory below it on the way over another target: not seen from here.
    bench.mkdir(c, r, "back", 3).unwrap();
    assert_eq!(sent_on(bench, c, c.rename((ROOT, "a"), (c.fid(3), "a"))), plain);
    bench.reint(d, rmdir(d, ROOT, "s", r)).unwrap_err();
    bench.reint(c, rmdir(c, r, "back", c.fid(3))).unwrap();
    assert_eq!(bench.lookup(d, r, "back"), Err(Errno::ENOENT));
}

#[test]
fn who_has_a_name_cached_is_called_back_before_it_goes() {
    let mut bench = Bench::with_mdts((2, 1), Commit::AtOnce);
    let [c, other] = bench.caching(&["c", "other"])[..] else { panic!("two") };
    let d = bench.client_at(1, other, "other");
    bench.mkdir(d, ROOT, "r", 5).unwrap();
    let r = d.fid(5);
    let reply = bench.call(c, getattr(c, ROOT, "r", LockFlags::empty(), 41)).unwrap();
    let lock: LockReply = reply.msg().unwrap().get(1).unwrap();
    let held = InodeBits::from_bits_retain(lock.desc.policy.start);
    assert_eq!((reply.status, held), (0, InodeBits::LOOKUP));
    bench.call(c, getattr(c, ROOT, "", LockFlags::empty(), 42)).unwrap();
    bench.party(c.upper, |party, _| party.called.clear());
    bench.reint(d, rmdir(d, ROOT, "r", r)).unwrap();
    let called = bench.party(c.upper, |party, _| {
        let called = party.called.iter().filter(|(_, op, _)| *op == Opcode::LDLM_BL_CALLBACK);
        called.map(|(.., request)| request.handles[0]).collect::<Vec<_>>()
    });
    assert_eq!(called, [42, 41]);
}

/// What is cut off, and which targets die then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    First,
    Second,
    Both,
}

/// Cuts all off after so many further messages.
fn cut_after(bench: &mut Bench, messages: u64) -> Rc<Cell<bool>> {
    let (cut, left) = (Rc::new(Cell::new(false)), Cell::new(messages));
    let seen = cut.clone();
    bench.world.loses = Some(Box::new(move |_| {
        if left.get() == 0 {
            seen.set(true);
            return true;
        }
        left.set(left.get() - 1);
        false
    }));
    cut
}

fn die(bench: &mut Bench, dies: Dies) {
    match dies {
        Dies::First => bench.crash_one(OTHER),
        Dies::Second => bench.crash_one(MDT),
        Dies::Both => bench.crash(),
    }
    bench.world.loses = None;
}

/// The end of a change that was cut off.
fn end(bench: &mut Bench, d: Client, call: CallId) -> Result<MdtBody, Errno> {
    for _ in 0..100 {
        if let Some(end) = bench.end_of(d, call) {
            return body_of(end, 1);
        }
        bench.world.secs(10);
    }
    panic!("the change has no end");
}

#[test]
fn directory_is_made_on_both_targets_whichever_dies_at_any_moment() {
    for dies in [Dies::First, Dies::Second, Dies::Both] {
        let mut messages = 0;
        loop {
            let (mut bench, c, d) = two(Commit::Ordered);
            let cut = cut_after(&mut bench, messages);
            let call = bench.begin(d, reint(d.create(ROOT, "r", 5, 0o040_755, b"")));
            bench.world.secs(1);
            if !cut.get() {
                assert!(messages >= 6, "{messages}");
                break;
            }
            die(&mut bench, dies);
            let made = end(&mut bench, d, call);
            assert_eq!(made.map(|body| body.fid1), Ok(d.fid(5)), "{dies:?} {messages}");
            bench.world.secs(60);
            assert_eq!(bench.lookup(c, ROOT, "r").map(|body| body.fid1), Ok(d.fid(5)));
            assert_eq!(bench.getattr(d, d.fid(5)).map(|body| body.nlink), Ok(2));
            assert_eq!(bench.getattr(c, ROOT).map(|body| body.nlink), Ok(3));
            // Nothing is held any more.
            bench.reint(c, c.rename((ROOT, "r"), (ROOT, "s"))).unwrap();
            bench.reint(d, rmdir(d, ROOT, "s", d.fid(5))).unwrap();
            assert_eq!(bench.getattr(c, ROOT).map(|body| body.nlink), Ok(2));
            messages += 1;
        }
    }
}

#[test]
fn directory_is_removed_on_both_targets_whichever_dies_at_any_moment() {
    for dies in [Dies::First, Dies::Second, Dies::Both] {
        let mut messages = 0;
        loop {
            let (mut bench, c, d) = two(Commit::Ordered);
            bench.mkdir(d, ROOT, "r", 5).unwrap();
            bench.commit();
            let cut = cut_after(&mut bench, messages);
            let call = bench.begin(d, reint(rmdir(d, ROOT, "r", d.fid(5))));
            bench.world.secs(1);
            if !cut.get() {
                assert!(messages >= 6, "{messages}");
                break;
            }
            die(&mut bench, dies);
            let gone = end(&mut bench, d, call);
            assert_eq!(gone.map(|body| body.fid1), Ok(d.fid(5)), "{dies:?} {messages}");
            bench.world.secs(60);
            assert_eq!(bench.lookup(c, ROOT, "r"), Err(Errno::ENOENT));
            assert_eq!(bench.getattr(d, d.fid(5)), Err(Errno::ENOENT));
            assert_eq!(bench.getattr(c, ROOT).map(|body| body.nlink), Ok(2));
            bench.mkdir(c, ROOT, "r", 9).unwrap();
            messages += 1;
        }
    }
}

#[test]
fn change_of_a_client_that_dies_is_whole_or_nothing() {
    for removes in [false, true] {
        let mut messages = 0;
        loop {
            let (mut bench, _, _) = two(Commit::Ordered);
            let w = bench.client("w", 0);
            let d = bench.client_at(1, w, "w");
            if removes {
                bench.mkdir(d, ROOT, "r", 5).unwrap();
            }
            bench.commit();
            let cut = cut_after(&mut bench, messages);
            let buffers = match removes {
                true => rmdir(d, ROOT, "r", d.fid(5)),
                false => d.create(ROOT, "r", 5, 0o040_755, b""),
            };
            bench.begin(d, reint(buffers));
            bench.world.secs(1);
            let whole = !cut.get();
            bench.world.kill(w.upper);
            die(&mut bench, Dies::Both);
            bench.world.secs(1000);
            let c = bench.client("n", 0);
            let e = bench.client_at(1, c, "n");
            let named = bench.lookup(c, ROOT, "r").map(|body| body.fid1).ok();
            let there = bench.getattr(e, d.fid(5)).map(|body| body.fid1).ok();
            assert_eq!(named, there, "removes {removes}, {messages}");
            let nlink = if named.is_some() { 3 } else { 2 };
            assert_eq!(bench.getattr(c, ROOT).map(|body| body.nlink), Ok(nlink));
            if whole {
                break;
            }
            messages += 1;
        }
    }
}

/// Two targets with a client of each, and the change of the second one's that makes the directory `r` of two
/// targets, or removes it: the request, the question and its answer pass, the order to make it gets lost.
fn begun(removes: bool) -> (Bench, [Client; 2], CallId) {
    let (mut bench, c, d) = two(Commit::Ordered);
    if removes {
        bench.mkdir(d, ROOT, "r", 5).unwrap();
    }
    let count = Cell::new(0);
    bench.world.loses = Some(Box::new(move |_| {
        count.set(count.get() + 1);
        count.get() == 4
    }));
    let call = match removes {
        true => reint(rmdir(d, ROOT, "r", d.fid(5))),
        false => reint(d.create(ROOT, "r", 5, 0o040_755, b"")),
    };
    let changed = bench.begin(d, call);
    (bench, [c, d], changed)
}

#[test]
fn name_is_held_while_its_change_is_under_way() {
    for removes in [false, true] {
        let (mut bench, [c, d], changed) = begun(removes);
        let body = MdtBody { eadatasize: 4096, ..c.body(ROOT, Valid::ID | Valid::MODE) };
        let buffers = Buffers::new().layout(&body).bytes(b"").bytes(super::text("r"));
        let call =
            Call::new(Opcode::MDS_GETATTR_NAME, buffers).answered_by(&[216, 4096, 0, 0, 0, 0]);
        let looked = bench.begin(c, call);
        let made = bench.begin(c, reint(c.create(ROOT, "r", 6, 0o040_755, b"")));
        let ends =
            [(d, changed), (c, looked), (c, made)].map(|(who, call)| bench.end_of(who, call));
        assert_eq!(ends, [None, None, None], "removes {removes}");
        let changed = end(&mut bench, d, changed).map(|body| body.fid1);
        let looked = end(&mut bench, c, looked).map(|body| body.fid1);
        let made = end(&mut bench, c, made).map(|body| body.fid1);
        assert_eq!(changed, Ok(d.fid(5)));
        match removes {
            // Of the two that have waited the first was asked first.
            true => assert_eq!((looked, made), (Err(Errno::ENOENT), Ok(c.fid(6)))),
            false => assert_eq!((looked, made), (Ok(d.fid(5)), Err(Errno::EEXIST))),
        }
    }
}

/// The end of a message of the second target to the first: what it is, its number, and what follows.
fn says(bench: &mut Bench, what: u32, number: u64, rest: &[u8]) -> Result<(), CallError> {
    let words = [2, 1, what].into_iter().flat_map(u32::to_le_bytes);
    let numbers = [number, 0].into_iter().flat_map(u64::to_le_bytes);
    let bytes: Vec<u8> = words.chain(numbers).chain(rest.iter().copied()).collect();
    let mut call =
        Call::new(AcrossWire::OPCODE, Buffers::new().bytes(bytes)).answered_by(&[16 << 10]);
    call.portals = Some((Portal::OUT, Portal::OSC_REPLY));
    let call = bench.party(bench.server, |party, below| {
        let rpc = &mut party.ptlrpc.rpc(below);
        let all = rpc.imports();
        let mut second = all.iter().filter(|i| i.client == "lfs-MDT0001-mdtlov_UUID");
        rpc.call(second.find(|i| i.target == MDT).unwrap().id, call).unwrap()
    });
    bench.party(bench.server, |party, _| party.ended.remove(&call)).unwrap().map(|_| ())
}

/// The number of the first settling.
const FIRST: u64 = 1 << 32;

/// A late copy of a question would hold its name until the targets connect anew: for good, on a sound network.
#[test]
fn question_that_comes_when_its_change_is_over_holds_no_name() {
    let (mut bench, c, d) = two(Commit::Ordered);
    let question = |name: &str| {
        let root = ROOT.seq.to_be_bytes().into_iter().chain(ROOT.oid.to_be_bytes());
        let made = d.fid(5).seq.to_be_bytes().into_iter().chain(d.fid(5).oid.to_be_bytes());
        let owner = [0; 6].into_iter().flat_map(u32::to_le_bytes);
        let adds = 1_u32.to_le_bytes().into_iter().chain(root).chain(made).chain([0; 8]);
        owner.chain(adds).chain(name.bytes()).collect::<Vec<u8>>()
    };
    // One is made, one refused, and both names are free again without a message between the targets.
    bench.mkdir(d, ROOT, "made", 5).unwrap();
    bench.reint(c, c.rename((ROOT, "made"), (ROOT, "moved"))).unwrap();
    bench.mkdir(c, ROOT, "there", 1).unwrap();
    assert_eq!(bench.mkdir(d, ROOT, "there", 6).map(|_| ()), Err(Errno::EEXIST));
    bench.reint(c, c.unlink(ROOT, "there", DIR)).unwrap();
    for (number, name, oid) in [(FIRST + 1, "made", 2), (FIRST + 2, "there", 3)] {
        let late = says(&mut bench, 2, number, &question(name));
        assert_eq!(late, Err(CallError::Refused(Errno::EAGAIN)), "{name}");
        assert_eq!(bench.mkdir(c, ROOT, name, oid).map(|body| body.fid1), Ok(c.fid(oid)));
    }
    // One that is not over is taken.
    assert_eq!(says(&mut bench, 2, FIRST + 9, &question("new")), Ok(()));
}

#[test]
fn change_begun_after_a_settling_is_kept_when_that_settling_comes_late() {
    for removes in [false, true] {
        let (mut bench, [c, d], changed) = begun(removes);
        assert_eq!(bench.end_of(d, changed), None);
        // A copy of the first settling, which named no change: all that are under way began after it.
        assert_eq!(says(&mut bench, 1, FIRST, &[]), Ok(()));
        assert_eq!(end(&mut bench, d, changed).map(|body| body.fid1), Ok(d.fid(5)));
        let there = bench.lookup(c, ROOT, "r").map(|body| body.fid1);
        assert_eq!(there, if removes { Err(Errno::ENOENT) } else { Ok(d.fid(5)) });
        assert_eq!(bench.getattr(c, ROOT).map(|body| body.nlink), Ok(if removes { 2 } else { 3 }));
    }
}

#[test]
fn directory_that_is_being_removed_gets_no_names() {
    let (mut bench, c, d) = two(Commit::Ordered);
    bench.mkdir(d, ROOT, "r", 5).unwrap();
    let r = d.fid(5);
    // The other target is asked, and what it was asked gets lost.
    let count = Cell::new(0);
    bench.world.loses = Some(Box::new(move |_| {
        count.set(count.get() + 1);
        count.get() == 2
    }));
    let removed = bench.begin(d, reint(rmdir(d, ROOT, "r", r)));
    let made = bench.begin(d, reint(d.create(r, "in", 6, DIR | 0o755, b"")));
    let opened_there = bench.begin(d, d.open(r, "f", 7, CREATE, Vec::new()));
    // Of a directory on the first target, too.
    let crossed = bench.begin(c, reint(c.create(r, "across", 8, DIR | 0o755, b"")));
    let calls = [(d, removed), (d, made), (d, opened_there), (c, crossed)];
    assert!(calls.iter().all(|(who, call)| bench.end_of(*who, *call).is_none()));
    assert_eq!(end(&mut bench, d, removed).map(|body| body.fid1), Ok(r));
    assert_eq!(end(&mut bench, d, made), Err(Errno::ESTALE));
    assert_eq!(end(&mut bench, c, crossed), Err(Errno::ESTALE));
    let opened_there = opened(bench.end_of(d, opened_there).unwrap());
    assert_eq!(opened_there.map(|_| ()), Err(Errno::ESTALE));
    assert_eq!(bench.getattr(c, c.fid(8)), Err(Errno::ENOENT));
}

#[test]
fn further_targets_have_files_of_their_own() {
    let mut bench = Bench::with_mdts((4, 1), Commit::AtOnce);
    let c = bench.client("c", 0);
    let all = [1, 2, 3].map(|index| bench.client_at(index, c, "c"));
    let mut dir = ROOT;
    let mut oids = Vec::new();
    for (client, oid) in all.into_iter().zip(5..) {
        bench.mkdir(client, dir, "r", oid).unwrap();
        dir = client.fid(oid);
        let (_, stripes, _) = bench.open(client, dir, "f", oid + 10, CREATE).unwrap();
        oids.push(stripes.objects[0].id);
    }
    oids.sort_by_key(|id| format!("{id:?}"));
    oids.dedup();
    assert_eq!(oids.len(), 3);
    assert_eq!(mdt(3), "lfs-MDT0003_UUID");
    let _: MemoryStore = bench.take(&mdt(3));
}

/// Directories with names on both targets, changed at random while targets die.
struct Storm {
    bench: Bench,
    /// The client, as each target knows it.
    clients: [Client; 2],
    /// Directories in which names are, on the targets of these indexes.
    parents: [Fid; 2],
    /// Parent and name of each directory, with its target and FID.
    model: BTreeMap<(usize, &'static str), (usize, Fid)>,
    oid: u32,
    random: Prng,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Storm {
    fn new(seed: u64) -> Self {
        let (mut bench, c, d) = two(Commit::Ordered);
        bench.mkdir(c, ROOT, "zero", 1).unwrap();
        bench.mkdir(d, ROOT, "one", 1).unwrap();
        bench.commit();
        let (clients, parents) = ([c, d], [c.fid(1), d.fid(1)]);
        let (model, random) = (BTreeMap::new(), Prng::new(seed));
        Self { bench, clients, parents, model, oid: 10, random }
    }

    fn below(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    /// A change, in the middle of which targets may die; what comes of it is as if they did not.
    fn change(&mut self) {
        let (parent, name) = (self.below(2), NAMES[self.below(NAMES.len())]);
        let there = self.model.get(&(parent, name)).copied();
        let dir = self.parents[parent];
        let (makes, chosen) = (self.below(2) == 0, self.below(2));
        let (target, buffers, expected) = match (makes, there) {
            (true, there) => {
                self.oid += 1;
                let made = self.clients[chosen].fid(self.oid);
                let buffers = self.clients[chosen].create(dir, name, self.oid, 0o040_755, b"");
                let expected = if there.is_some() { Err(Errno::EEXIST) } else { Ok(made) };
                (chosen, buffers, expected)
            }
            (false, Some((target, fid))) => {
                (target, rmdir(self.clients[target], dir, name, fid), Ok(fid))
            }
            (false, None) => {
                (parent, rmdir(self.clients[parent], dir, name, Fid::default()), Err(Errno::ENOENT))
            }
        };
        let client = self.clients[target];
        let dies = [None, Some(Dies::First), Some(Dies::Second), Some(Dies::Both)][self.below(4)];
        let cut = dies.map(|_| {
            let messages = self.random.below(14);
            cut_after(&mut self.bench, messages)
        });
        let call = self.bench.begin(client, reint(buffers));
        self.bench.world.secs(1);
        if let (Some(dies), Some(_)) = (dies, cut) {
            die(&mut self.bench, dies);
        }
        let result = end(&mut self.bench, client, call).map(|body| body.fid1);
        // A client may hear of its change before the other target has made it: names of it wait, lists do not.
        let named = self.lookup(parent, name);
        assert_eq!(named.is_ok(), makes, "{name} in {parent} on {target}, {dies:?}");
        self.bench.world.secs(if dies.is_some() { 60 } else { 0 });
        assert_eq!(result, expected, "{makes} {name} in {parent} on {target}, {dies:?}");
        match (makes, result) {
            (true, Ok(fid)) => drop(self.model.insert((parent, name), (target, fid))),
            (false, Ok(_)) => drop(self.model.remove(&(parent, name))),
            _ => {}
        }
        if self.below(3) == 0 {
            self.bench.commit();
        }
    }

    /// A name, which waits for changes of it.
    fn lookup(&mut self, parent: usize, name: &str) -> Result<Fid, Errno> {
        let (dir, c) = (self.parents[parent], self.clients[parent]);
        let body = MdtBody { eadatasize: 4096, ..c.body(dir, Valid::ID | Valid::MODE) };
        let buffers = Buffers::new().layout(&body).bytes(b"").bytes(super::text(name));
        let call =
            Call::new(Opcode::MDS_GETATTR_NAME, buffers).answered_by(&[216, 4096, 0, 0, 0, 0]);
        let call = self.bench.begin(c, call);
        end(&mut self.bench, c, call).map(|body| body.fid1)
    }

    fn check(&mut self) {
        for (parent, (dir, client)) in self.parents.into_iter().zip(self.clients).enumerate() {
            let of = self.model.iter().filter(|((of, _), _)| *of == parent);
            let mut expected: Vec<_> =
                of.map(|((_, name), (_, fid))| (name.as_bytes().to_vec(), *fid)).collect();
            let mut listed = names(&mut self.bench, client, dir);
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            listed.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(listed, expected);
            let nlink = self.bench.getattr(client, dir).map(|body| body.nlink);
            assert_eq!(nlink, Ok(2 + expected.len() as u32));
        }
        for (target, fid) in self.model.values() {
            let there = self.bench.getattr(self.clients[*target], *fid);
            assert_eq!(there.map(|body| body.nlink), Ok(2), "{fid}");
        }
        // No directory without a name.
        let named: Vec<Fid> = self.model.values().map(|(_, fid)| *fid).collect();
        for client in self.clients {
            for oid in 11..=self.oid {
                let fid = client.fid(oid);
                let there = self.bench.getattr(client, fid).is_ok();
                assert_eq!(there, named.contains(&fid), "{fid}");
            }
        }
    }
}

#[test]
fn directories_on_two_targets_are_what_clients_have_heard_whatever_dies() {
    for seed in 1..=8 {
        eprintln!("seed {seed}");
        let mut storm = Storm::new(seed);
        for _ in 0..40 {
            storm.change();
            storm.check();
        }
        assert!(!storm.model.is_empty(), "{seed}");
    }
}
