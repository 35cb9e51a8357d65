//! What a visitor does where a server answers otherwise than the recorded ones did: recorded answers, one
//! of them changed.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Mutex;

use lnet_types::{ByteOrder, Errno, Nid};
use lustre_client::visitor::{
    Access, CacheWire, Create, DirWish, End, Identity, LayoutError, Moved, ObjectAsk, ObjectEnd,
    OpenHow, VisitConfig, VisitError, Visitor, Wire, Wish,
};
use lustre_wire::fid::ObjectId;
use lustre_wire::ldlm::{Intent, LayoutIntent, LayoutOp, LockReply, LockRequest};
use lustre_wire::mds::{CreateRecord, MdtBody};
use lustre_wire::mgs::{ConfigBody, ConfigResult, TableEntryHead, TableKind};
use lustre_wire::msg::MsgBuilder;
use lustre_wire::ost::Obdo;
use lustre_wire::striping::{
    ComponentEntry, ComponentFlags, CompositeHead, Magic, Stripes, Striping,
};
use lustre_wire::{Body, ConnectData, Fid, Header, ImportKind, Layout, MsgKind, Opcode, Service};
use ptlrpc::{Call, CallError, CallId, ImportConfig, Reply};
use rpc_interop::archive::Archive;
use rpc_interop::visit::{DIR, begin, capture, config, recorded, run};

const LITTLE: ByteOrder = ByteOrder::Little;

type Bend<'a> = Box<dyn Fn(&mut Call) -> Option<End> + Send + Sync + 'a>;

/// Recorded servers behind a bend: it changes what is asked, or answers itself.
struct Bent<'a> {
    archive: &'a Archive,
    bend: Bend<'a>,
    asked: Mutex<Vec<(String, Call)>>,
    pauses: AtomicU32,
    /// By each target.
    evictions: AtomicU64,
}

impl Wire for &Bent<'_> {
    type Link = (String, ImportKind);

    fn link(&self, config: ImportConfig) -> Result<Self::Link, CallError> {
        Ok((config.target, config.kind))
    }

    fn connect(&self, _: &Self::Link) {}

    async fn call(&self, (target, kind): &Self::Link, mut call: Call, moved: Moved) -> End {
        self.asked.lock().unwrap().push((target.clone(), call.clone()));
        match (self.bend)(&mut call) {
            Some(end) => end,
            None => self.archive.call(kind, call, moved).await,
        }
    }

    async fn handle(&self, (_, kind): &Self::Link, call: CallId) -> Option<u64> {
        self.archive.handle(kind, call).await
    }

    async fn pause(&self, _: u32) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> i64 {
        self.archive.now()
    }

    /// A target has granted nothing before it was called.
    async fn terms(&self, (target, kind): &Self::Link) -> ConnectData {
        let called = self.asked.lock().unwrap().iter().any(|(called, _)| called == target);
        if called { self.archive.terms(kind).await } else { ConnectData::default() }
    }

    fn evictions(&self, _: &Self::Link) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    async fn close(&self, _: &Self::Link) {}
}

/// Caching clients whose target has none of the objects.
impl CacheWire for &Bent<'_> {
    type Cache = ();

    fn cache(&self, _: ImportConfig) -> Result<(), CallError> {
        Ok(())
    }

    async fn object(&self, _: &(), _: ObjectId, _: ObjectAsk) -> ObjectEnd {
        CallError::Refused(Errno::ENOENT).into()
    }

    async fn unsettled(&self, _: &()) -> Vec<(ObjectId, Fid)> {
        Vec::new()
    }

    async fn end_cache(&self, _: &()) {}
}

impl<'a> Bent<'a> {
    fn new(
        archive: &'a Archive,
        bend: impl Fn(&mut Call) -> Option<End> + Send + Sync + 'a,
    ) -> Self {
        let (asked, pauses, evictions) = Default::default();
        Self { archive, bend: Box::new(bend), asked, pauses, evictions }
    }

    fn asked(&self, opcode: Opcode) -> Vec<Call> {
        let asked = self.asked.lock().unwrap();
        let calls = asked.iter().map(|(_, call)| call);
        calls.filter(|call| call.opcode == opcode).cloned().collect()
    }
}

/// An answer with these buffers.
fn said(opcode: Opcode, status: i32, buffers: &[Vec<u8>]) -> End {
    let version = Service::Mds.word();
    let body = Body { kind: MsgKind::REPLY, opcode, status, version, ..Body::default() };
    let builder = MsgBuilder::new(Header::default(), &body);
    let builder = buffers.iter().fold(builder, |builder, buffer| builder.bytes(buffer));
    let message = builder.build().unwrap();
    End { result: Ok(Reply { status, transno: 0, message }), bytes: Vec::new(), call: None }
}

fn refused(errno: Errno) -> End {
    CallError::Refused(errno).into()
}

/// The answer to an intent that has this result.
fn intent_result(call: &Call, errno: Errno) -> End {
    let policy_res2 = i64::from(errno.negative()) as u64;
    let lock = LockReply { policy_res1: 1, policy_res2, ..LockReply::default() };
    let body = MdtBody::default().to_bytes(LITTLE);
    said(call.opcode, 301, &[lock.to_bytes(LITTLE), body, Vec::new()])
}

/// Directory of the file `d`, of which 64 KiB are on its metadata target.
const DOM_DIR: Fid = Fid { seq: 0x2_0000_0402, oid: 7, ver: 0 };

fn dom_file() -> Archive {
    recorded("dom-64k", 111, "f6", DOM_DIR).changing(&capture("dom-64k"))
}

fn layout_intent(call: &Call) -> Option<LayoutIntent> {
    let buffers = &call.buffers;
    let intent = buffers.get(1).and_then(|bytes| Intent::parse(LITTLE, bytes).ok());
    let is = call.opcode == Opcode::LDLM_ENQUEUE && intent == Some(Intent::LAYOUT);
    is.then(|| LayoutIntent::parse(LITTLE, buffers.get(2).unwrap()).unwrap())
}

/// The range of the intent that was recorded.
fn as_recorded(call: &mut Call) {
    if let Some(intent) = layout_intent(call) {
        let recorded = LayoutIntent { start: 4000, end: 104_000, ..intent };
        call.buffers.replace(2, recorded.to_bytes(LITTLE));
    }
}

#[test]
fn c28_nodes_that_targets_have_moved_to_are_tried_first() {
    let archive = Archive::default().with(&capture("fresh-mount"), u32::MAX);
    let now = |index: u32| -> Nid { format!("10.9.0.{index}@tcp").parse().unwrap() };
    // One entry for each question; the last one is of a target that no log has.
    let wire = Bent::new(&archive, |call| {
        if call.opcode != Opcode::MGS_CONFIG_READ {
            return None;
        }
        let asked = ConfigBody::parse(LITTLE, call.buffers.get(0).unwrap()).unwrap();
        let index = u32::try_from(asked.offset).unwrap();
        let head = TableEntryHead {
            version: asked.offset,
            index: if index == 3 { 77 } else { index },
            len: TableEntryHead::LEN as u32 + 20,
            kind: TableKind::OST,
            nid_size: 20,
            nid_count: 1,
            ..TableEntryHead::default()
        };
        let read = ConfigResult { offset: asked.offset, size: 3 };
        let entry = [head.to_bytes(LITTLE), now(index).as_wire().to_vec()].concat();
        let mut bytes = vec![0; (asked.units << asked.bits) as usize];
        // Behind an empty page.
        bytes[4096..][..entry.len()].copy_from_slice(&entry);
        Some(End { bytes, ..said(call.opcode, 0, &[read.to_bytes(LITTLE)]) })
    });
    let visitor = begin(&wire);
    assert_eq!(wire.asked(Opcode::MGS_CONFIG_READ).len(), 3);
    for target in run(visitor.targets()) {
        let moved = target.kind == "OST" && [1, 2].contains(&target.index);
        let first = target.nids[0];
        assert_eq!(first == now(target.index), moved, "{}: {first}", target.uuid);
        assert_eq!(target.nids.len(), 1 + usize::from(moved), "{}", target.uuid);
    }
}

#[test]
fn c188_a_cut_where_no_object_is_lets_objects_be_made_for_the_last_byte() {
    let archive = dom_file();
    let wire = Bent::new(&archive, |call| {
        as_recorded(call);
        let cuts = [Opcode::MDS_REINT, Opcode::OST_PUNCH].contains(&call.opcode);
        cuts.then(|| {
            let bodies = [MdtBody::default().to_bytes(LITTLE), Obdo::default().to_bytes(LITTLE)];
            let place = usize::from(call.opcode == Opcode::OST_PUNCH);
            said(call.opcode, 0, &bodies[place..=place])
        })
    });
    let visitor = begin(&wire);
    run(async {
        let file = visitor.find(b"/f6/d", false).await?;
        let mut file = visitor.open_for(&file, OpenHow::WRITE).await?;
        visitor.truncate(&mut file, 100_000).await
    })
    .unwrap();
    let asked = wire.asked(Opcode::LDLM_ENQUEUE);
    let intents: Vec<LayoutIntent> = asked.iter().filter_map(layout_intent).collect();
    let [intent] = intents.as_slice() else { panic!("one intent: {intents:?}") };
    assert_eq!(intent.opcode, LayoutOp::WRITE, "as recorded clients ask");
    assert_eq!((intent.start, intent.end), (99_999, 100_000));
}

#[test]
fn c189_a_layout_that_another_client_changes_is_asked_for_again_after_a_pause() {
    let archive = dom_file();
    let turns = AtomicU32::new(0);
    let wire = Bent::new(&archive, move |call| {
        layout_intent(call)?;
        as_recorded(call);
        match turns.fetch_add(1, Ordering::Relaxed) {
            0 => Some(refused(Errno::EAGAIN)),
            1 => Some(intent_result(call, Errno::EBUSY)),
            2 => Some(intent_result(call, Errno::EINPROGRESS)),
            _ => None,
        }
    });
    let visitor = begin(&wire);
    run(async {
        let file = visitor.find(b"/f6/d", false).await?;
        let mut file = visitor.open_for(&file, OpenHow::WRITE).await?;
        visitor.prepare(&mut file, 4000, 104_000).await
    })
    .unwrap();
    assert_eq!(wire.pauses.load(Ordering::Relaxed), 3);
    let asked = wire.asked(Opcode::LDLM_ENQUEUE);
    assert_eq!(asked.iter().filter_map(layout_intent).count(), 4);
}

#[test]
fn a_layout_that_is_always_busy_is_an_error_after_five_pauses() {
    let archive = dom_file();
    let wire = Bent::new(&archive, |call| layout_intent(call).map(|_| refused(Errno::EBUSY)));
    let visitor = begin(&wire);
    let e = run(async {
        let file = visitor.find(b"/f6/d", false).await?;
        let mut file = visitor.open_for(&file, OpenHow::WRITE).await?;
        visitor.prepare(&mut file, 4000, 104_000).await
    })
    .unwrap_err();
    assert_eq!((e.errno(), wire.pauses.load(Ordering::Relaxed)), (Errno::EBUSY, 5));
}

/// Directory of the file `a`, which has four stripes.
const STRIPED_DIR: Fid = Fid { seq: 0x2_0000_0402, oid: 1, ver: 0 };

/// Marks an object that was there before.
const OLD: u32 = 0x4000_0000;

/// Whether a call opens a file by its name.
fn opens(call: &Call) -> bool {
    let intent = call.buffers.get(1).and_then(|bytes| Intent::parse(LITTLE, bytes).ok());
    call.opcode == Opcode::LDLM_ENQUEUE && intent == Some(Intent::OPEN)
}

/// Whether a call opens a name, and makes the file if there is none.
fn creates(call: &Call) -> bool {
    let intent = call.buffers.get(1).and_then(|bytes| Intent::parse(LITTLE, bytes).ok());
    call.opcode == Opcode::LDLM_ENQUEUE && intent == Some(Intent::OPEN | Intent::CREAT)
}

/// The records of opens.
fn open_records(calls: &[Call]) -> Vec<CreateRecord> {
    let opens = calls.iter().filter(|call| opens(call) || creates(call));
    opens.map(|call| CreateRecord::parse(LITTLE, call.buffers.get(2).unwrap()).unwrap()).collect()
}

#[test]
fn c267_open_that_is_in_progress_goes_again_as_a_new_request_after_a_pause() {
    let archive = recorded("namespace", 391, "f10", DIR);
    for rounds in [2, 5, u32::MAX] {
        let turns = AtomicU32::new(0);
        let wire = Bent::new(&archive, move |call| {
            let is_open = opens(call) || creates(call);
            let later = is_open && turns.fetch_add(1, Ordering::Relaxed) < rounds;
            later.then(|| intent_result(call, Errno::EINPROGRESS))
        });
        let visitor = begin(&wire);
        let made = run(async {
            let dir = visitor.find(b"/f10", false).await?;
            let how = OpenHow { read: false, write: true, truncate: true };
            let create = Create { mode: 0o666, ..Create::default() };
            let file = visitor.create(&dir, b"file", how, &create).await?;
            visitor.close(file).await
        });
        let again = rounds.min(5);
        let expected = if rounds > 5 { Err(Errno::EINPROGRESS) } else { Ok(()) };
        assert_eq!(made.map_err(|e| e.errno()), expected, "{rounds}");
        assert_eq!(wire.pauses.load(Ordering::Relaxed), again, "{rounds}");
        let asked = wire.asked(Opcode::LDLM_ENQUEUE);
        let asked: Vec<&Call> = asked.iter().filter(|call| creates(call)).collect();
        assert_eq!(asked.len() as u32, again + 1, "{rounds}");
        // C-76.
        let mut cookies: Vec<u64> = asked
            .iter()
            .map(|call| {
                LockRequest::parse(LITTLE, call.buffers.get(0).unwrap()).unwrap().handles[0]
            })
            .collect();
        cookies.dedup();
        assert_eq!(cookies.len(), asked.len(), "{rounds}");
    }
}

#[test]
fn c267_open_of_an_existing_file_that_is_in_progress_goes_again() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    let turns = AtomicU32::new(0);
    let wire = Bent::new(&archive, move |call| {
        let later = opens(call) && turns.fetch_add(1, Ordering::Relaxed) < 1;
        later.then(|| intent_result(call, Errno::EINPROGRESS))
    });
    let visitor = begin(&wire);
    run(async {
        let file = visitor.find(b"/f3/a", false).await?;
        visitor.close(visitor.open_file(&file).await?).await
    })
    .unwrap();
    assert_eq!(wire.pauses.load(Ordering::Relaxed), 1);
    assert_eq!(open_records(&wire.asked(Opcode::LDLM_ENQUEUE)).len(), 2);
}

/// A file that is there is created again by a user with group 0, without or with a layout: what comes of it
/// where the target refuses, and the opens.
fn created_again(
    errno: Errno,
    groups: &[u32],
    create: &Create,
) -> (Result<bool, Errno>, Vec<CreateRecord>) {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    let wire = Bent::new(&archive, |call| creates(call).then(|| intent_result(call, errno)));
    let who = Identity { uid: 1000, gid: 1000, groups: groups.to_vec(), umask: 0o22 };
    let config = VisitConfig { who, ..config(Access::Change) };
    let visitor = run(Visitor::begin(&wire, config)).unwrap();
    let made = run(async {
        let dir = visitor.find(b"/f3", false).await?;
        let file = visitor.create(&dir, b"a", OpenHow::WRITE, create).await?;
        let created = file.created();
        visitor.close(file).await?;
        Ok::<_, VisitError>(created)
    });
    (made.map_err(|e| e.errno()), open_records(&wire.asked(Opcode::LDLM_ENQUEUE)))
}

#[test]
fn c197_file_that_has_objects_is_opened_without_the_layout_that_a_new_one_would_get() {
    let layout = Wish { count: Some(2), ..Wish::default() }.bytes().unwrap();
    let create = Create { mode: 0o644, layout, ..Create::default() };
    let (made, records) = created_again(Errno::EEXIST, &[], &create);
    assert_eq!(made, Ok(false));
    let flags: Vec<u32> = records.iter().map(|record| record.flags_low).collect();
    assert_eq!(flags, [0x4000_0043, 3]);
    // Another client was faster.
    let exclusive = Create { exclusive: true, ..create };
    let (made, records) = created_again(Errno::EEXIST, &[], &exclusive);
    assert_eq!((made, records.len()), (Err(Errno::EEXIST), 1));
}

#[test]
fn c246_file_that_is_there_is_opened_with_its_group_where_its_creation_is_refused() {
    let create = Create { mode: 0o644, ..Create::default() };
    let (made, records) = created_again(Errno::EACCES, &[0], &create);
    assert_eq!(made, Ok(false));
    let groups: Vec<u32> = records.iter().map(|record| record.head.suppgid2).collect();
    assert_eq!(groups, [u32::MAX, 0]);
    // A user of one group has named it.
    let (made, records) = created_again(Errno::EACCES, &[], &create);
    assert_eq!((made, records.len()), (Err(Errno::EACCES), 1));
}

#[test]
fn c86_open_is_kept_or_closed_where_its_lock_is_not_given_back() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    let fails = |call: &mut Call| (call.opcode == Opcode::LDLM_CANCEL).then(|| refused(Errno::EIO));
    let wire = Bent::new(&archive, fails);
    let visitor = begin(&wire);
    let locked = |call: &mut Call, archive: &Archive| {
        // With a lock, whatever the recorded server has given.
        let ours: Vec<Vec<u8>> = call.buffers.iter().map(<[u8]>::to_vec).collect();
        let mut answer = archive.answer(call.opcode, &ours)?;
        let lock = LockReply::parse(LITTLE, &answer.buffers[0]).unwrap();
        answer.buffers[0] = LockReply { handle: 77, ..lock }.to_bytes(LITTLE);
        Some(said(call.opcode, 0, &answer.buffers))
    };
    run(async {
        let file = visitor.find(b"/f3/a", false).await?;
        let file = visitor.open_file(&file).await?;
        visitor.read(&file, 0, 400_000).await?;
        visitor.close(file).await
    })
    .unwrap();
    assert!(!wire.asked(Opcode::LDLM_CANCEL).is_empty(), "a lock was given");
    assert_eq!(wire.asked(Opcode::MDS_CLOSE).len(), 1);

    // The lock may be on the data, whose size is asked for then.
    let archive = dom_file();
    let wire = Bent::new(&archive, |call| match opens(call) {
        true => locked(call, &archive),
        false => fails(call),
    });
    let visitor = begin(&wire);
    let e = run(async {
        let file = visitor.find(b"/f6/d", false).await?;
        visitor.open_file(&file).await
    })
    .unwrap_err();
    assert_eq!(e.errno(), Errno::EIO);
    assert_eq!(wire.asked(Opcode::LDLM_CANCEL).len(), 1);
    assert_eq!(wire.asked(Opcode::MDS_CLOSE).len(), 1);
}

/// The recorded answer to an open, with another layout.
fn opened_with(
    archive: &Archive,
    call: &Call,
    change: impl FnOnce(Stripes) -> Striping,
) -> Option<End> {
    let ours: Vec<Vec<u8>> = call.buffers.iter().map(<[u8]>::to_vec).collect();
    let mut answer = archive.answer(call.opcode, &ours)?;
    let Ok(Striping::Plain(stripes)) = Striping::parse(&answer.buffers[2]) else {
        panic!("a plain layout")
    };
    let layout = change(stripes).to_bytes();
    let mut body = MdtBody::parse(LITTLE, &answer.buffers[1]).unwrap();
    body.eadatasize = layout.len() as u32;
    answer.buffers[1] = body.to_bytes(LITTLE);
    answer.buffers[2] = layout;
    Some(said(call.opcode, answer.status, &answer.buffers))
}

/// Whether a call is for an object with the mark.
fn is_old(call: &Call) -> bool {
    [Opcode::OST_READ, Opcode::OST_GETATTR].contains(&call.opcode)
        && Obdo::parse(LITTLE, call.buffers.get(0).unwrap()).unwrap().id.oid & OLD != 0
}

/// The file as it was when it was opened: its first object is another one, which is gone by now.
fn moved(archive: &Archive, call: &mut Call) -> Option<End> {
    if opens(call) {
        return opened_with(archive, call, |mut stripes| {
            stripes.objects[0].id.oid |= OLD;
            Striping::Plain(stripes)
        });
    }
    if !is_old(call) {
        return None;
    }
    if call.opcode == Opcode::OST_READ {
        return Some(refused(Errno::ENOENT));
    }
    let mut body = Obdo::parse(LITTLE, call.buffers.get(0).unwrap()).unwrap();
    body.id.oid &= !OLD;
    call.buffers.replace(0, body.to_bytes(LITTLE));
    None
}

/// Bytes of the recorded file.
fn striped_bytes(len: u32) -> Vec<u8> {
    (0..len).map(|i| ((i / 65_536) % 251) as u8).collect()
}

#[test]
fn c228_data_that_was_moved_to_other_objects_is_read_there() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    let wire = Bent::new(&archive, |call| moved(&archive, call));
    let visitor = begin(&wire);
    let parts = run(async {
        let file = visitor.find(b"/f3/a", false).await?;
        let file = visitor.open_file(&file).await?;
        visitor.read(&file, 0, 400_000).await
    })
    .unwrap();
    let bytes: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
    assert!(bytes == striped_bytes(400_000));
    assert_eq!(wire.asked(Opcode::OST_READ).iter().filter(|call| is_old(call)).count(), 1);
}

#[test]
fn c228_an_object_that_is_gone_with_the_layout_unchanged_is_lost() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    let wire = Bent::new(&archive, |call| {
        (call.opcode == Opcode::OST_READ).then(|| refused(Errno::ENOENT))
    });
    let visitor = begin(&wire);
    let e = run(async {
        let file = visitor.find(b"/f3/a", false).await?;
        let file = visitor.open_file(&file).await?;
        visitor.read(&file, 0, 400_000).await
    })
    .unwrap_err();
    assert_eq!(e.errno(), Errno::EIO);
}

#[test]
fn a_target_that_applies_the_mask_gets_permissions_as_they_are_although_it_was_never_asked() {
    let dir = Fid { seq: 0x2_0000_0402, oid: 0x1461, ver: 0 };
    let archive = recorded("namespace", u32::MAX, "f10", dir);
    let wire = Bent::new(&archive, |_| None);
    let visitor = begin(&wire);
    run(async {
        let dir = visitor.find(b"/f10", false).await?;
        // Frame 436: on a metadata target that this visit has not asked before.
        let layout = DirWish { mdts: vec![1], ..DirWish::default() }.bytes();
        visitor.make_dir(&dir, b"dd", 0o777, &layout).await
    })
    .unwrap();
    let asked = wire.asked(Opcode::MDS_REINT);
    let record = CreateRecord::parse(LITTLE, asked[0].buffers.get(0).unwrap()).unwrap();
    assert_eq!((record.mode & 0o7777, record.umask), (0o777, 0o22));
}

/// Two mirrors of a file; the objects of the first one have the mark.
fn mirrored(stripes: Stripes) -> Striping {
    let mut first = stripes.clone();
    first.objects.iter_mut().for_each(|object| object.id.oid |= OLD);
    let len = Striping::Plain(stripes.clone()).to_bytes().len() as u32;
    let offset = (CompositeHead::LEN + 2 * ComponentEntry::LEN) as u32;
    let entry = |id, offset| ComponentEntry {
        id,
        flags: ComponentFlags::INIT,
        end: u64::MAX,
        offset,
        size: len,
        ..ComponentEntry::default()
    };
    let head = CompositeHead {
        magic: Magic::COMPOSITE,
        size: offset + 2 * len,
        flags: 1,
        count: 2,
        mirrors: 1,
        ..CompositeHead::default()
    };
    let entries = vec![(entry(0x1_0001, offset), first), (entry(0x2_0002, offset + len), stripes)];
    Striping::Composite(head, entries)
}

#[test]
fn c190_another_mirror_is_read_where_the_targets_of_the_first_one_fail() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    // Sizes fail too, or data alone.
    for data_alone in [false, true] {
        let wire = Bent::new(&archive, |call| {
            if opens(call) {
                return opened_with(&archive, call, mirrored);
            }
            if !is_old(call) {
                return None;
            }
            if call.opcode == Opcode::OST_READ || !data_alone {
                return Some(refused(Errno::EIO));
            }
            moved(&archive, call)
        });
        let visitor = begin(&wire);
        let (size, parts) = run(async {
            let file = visitor.find(b"/f3/a", false).await?;
            let file = visitor.open_file(&file).await?;
            Ok::<_, VisitError>((file.size(), visitor.read(&file, 0, 400_000).await?))
        })
        .unwrap();
        let bytes: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
        assert_eq!(size, 1_048_592);
        assert!(bytes == striped_bytes(400_000), "data alone: {data_alone}");
    }
}

#[test]
fn c263_file_that_has_mirrors_when_it_is_opened_again_is_not_written() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    let first = Mutex::new(None);
    let wire = Bent::new(&archive, |call| {
        if is_old(call) {
            return Some(refused(Errno::EIO));
        }
        if !opens(call) {
            return None;
        }
        let first = &mut *first.lock().unwrap();
        match first {
            None => {
                *first = Some(call.clone());
                None
            }
            Some(first) => opened_with(&archive, first, mirrored),
        }
    });
    let visitor = begin(&wire);
    let (fid, e) = run(async {
        let file = visitor.find(b"/f3/a", false).await?;
        let mut file = visitor.open_for(&file, OpenHow::WRITE).await?;
        wire.evictions.fetch_add(1, Ordering::Relaxed);
        let written = visitor.write_at(&mut file, 0, b"x").await;
        Ok::<_, VisitError>((file.attributes().fid, written.unwrap_err()))
    })
    .unwrap();
    assert!(matches!(e, VisitError::Layout(LayoutError::Mirrored)), "{e}");
    assert_eq!(wire.asked(Opcode::OST_WRITE).len(), 0);
    let asked = wire.asked(Opcode::LDLM_ENQUEUE);
    let records = asked.iter().filter(|call| opens(call));
    let records: Vec<_> = records
        .map(|call| CreateRecord::parse(LITTLE, call.buffers.get(2).unwrap()).unwrap())
        .collect();
    let [_, again] = &records[..] else { panic!("two opens: {records:?}") };
    // C-78, C-82.
    assert_eq!((again.flags_low, again.head.fid2), (0x280_0003, fid));
}

#[test]
fn c228_a_caching_client_finds_data_that_was_moved_too() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", STRIPED_DIR);
    let wire = Bent::new(&archive, |call| moved(&archive, call));
    let visitor = begin(&wire);
    let caches = visitor.cache().unwrap();
    let (size, parts) = run(async {
        let file = visitor.find(b"/f3/a", false).await?;
        let file = visitor.open_file(&file).await?;
        let size = caches.size(&visitor, &file).await?;
        Ok::<_, VisitError>((size, caches.read(&visitor, &file, 1_000_000, 1 << 20).await?))
    })
    .unwrap();
    let bytes: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
    assert_eq!((size, bytes.len()), (1_048_592, 48_592), "up to the end of the file");
    let mut expected = striped_bytes(1_048_576);
    expected.extend(b"tail-of-the-file");
    assert!(bytes == expected[1_000_000..]);
}
