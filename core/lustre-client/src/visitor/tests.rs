//! Data of one file that other clients change too, in a world of calls that are answered at once.

#![allow(clippy::disallowed_types, reason = "the calls of a visit share one world")]

use core::future::{Future, ready};
use core::pin::pin;
use core::sync::atomic::AtomicU64;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::sync::Mutex;

use lnet_types::{ByteOrder, Errno};
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ldlm::{Disposition, Intent, LayoutIntent, LockReply, Lvb};
use lustre_wire::mds::MdtBody;
use lustre_wire::msg::{Header, MsgBuilder};
use lustre_wire::ost::{Niobuf, Obdo};
use lustre_wire::striping::{
    ComponentEntry, ComponentFlags, CompositeHead, Magic, Pattern, StripeHead, StripeObject,
    Stripes, Striping,
};
use lustre_wire::{Body, ConnectData, ConnectFlags, Fid, Layout, MsgKind, Opcode, Service};
use ptlrpc::{Call, CallError, CallId, ImportConfig, Reply};

use super::fids::Fids;
use super::places::Places;
use super::remote::Remote;
use super::{
    CacheWire, End, FileCache, Identity, Moved, ObjectAsk, ObjectEnd, OpenFile, OpenHow, Part,
    VisitError, Visitor, Wire,
};

const LITTLE: ByteOrder = ByteOrder::Little;
const FILE: Fid = Fid { seq: 0x2_0000_0401, oid: 1, ver: 0 };
/// Where the first component ends.
const BORDER: u64 = 1 << 20;

/// Status, buffers, bulk data.
type Answer = (i32, Vec<Vec<u8>>, Vec<u8>);

/// A file of two components.
#[derive(Debug)]
struct Site {
    /// The first one is on the metadata target.
    on_mdt: bool,
    /// The object of each, once it has one.
    objects: [Option<u64>; 2],
    /// The data of all objects.
    data: BTreeMap<(u64, u32), Vec<u8>>,
    asked: Vec<Opcode>,
}

fn key(id: ObjectId) -> (u64, u32) {
    (id.first, id.oid)
}

impl Site {
    fn instantiate(&mut self, range: core::ops::Range<u64>) {
        let places = [range.start < BORDER, range.end > BORDER];
        for (place, _) in places.iter().enumerate().filter(|(_, touched)| **touched) {
            if self.objects[place].is_none() {
                let id = place as u64 + 1;
                self.objects[place] = Some(id);
                self.data.insert((id, 0), Vec::new());
            }
        }
    }

    fn layout(&self) -> Vec<u8> {
        let len = (StripeHead::LEN + StripeObject::LEN) as u32;
        let front = (CompositeHead::LEN + 2 * ComponentEntry::LEN) as u32;
        let part = |place: usize| {
            let object = self.objects[place];
            let on_mdt = self.on_mdt && place == 0;
            let entry = ComponentEntry {
                id: place as u32 + 1,
                flags: match object {
                    Some(_) => ComponentFlags::INIT,
                    None => ComponentFlags::empty(),
                },
                start: if place == 0 { 0 } else { BORDER },
                end: if place == 0 { BORDER } else { u64::MAX },
                offset: front + place as u32 * len,
                size: len,
                ..ComponentEntry::default()
            };
            let head = StripeHead {
                magic: Magic::V1,
                pattern: if on_mdt { Pattern::MDT } else { Pattern::RAID0 },
                stripe_size: 65_536,
                stripe_count: u16::from(!on_mdt),
                ..StripeHead::default()
            };
            let id = ObjectId::old(object.unwrap_or_default());
            let objects = vec![StripeObject { id, generation: 0, index: 0 }];
            (entry, Stripes { head, pool: None, objects })
        };
        let head = CompositeHead {
            magic: Magic::COMPOSITE,
            size: front + 2 * len,
            count: 2,
            ..CompositeHead::default()
        };
        Striping::Composite(head, vec![part(0), part(1)]).to_bytes()
    }

    /// What a metadata target shows of the file.
    fn shown(&self) -> [Vec<u8>; 2] {
        let layout = self.layout();
        let body = MdtBody {
            fid1: FILE,
            mode: 0o100_644,
            open_handle: 5,
            eadatasize: layout.len() as u32,
            ..MdtBody::default()
        };
        [body.to_bytes(LITTLE), layout]
    }

    fn write(&mut self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let data = self.data.get_mut(&key(id)).ok_or(Errno::ENOENT)?;
        let (offset, end) = (offset as usize, offset as usize + bytes.len());
        data.resize(data.len().max(end), 0);
        data[offset..end].copy_from_slice(bytes);
        Ok(bytes.len() as u64)
    }

    fn read(&self, id: ObjectId, offset: u64, len: u32) -> Result<Vec<u8>, Errno> {
        let data = self.data.get(&key(id)).ok_or(Errno::ENOENT)?;
        Ok(data.iter().skip(offset as usize).take(len as usize).copied().collect())
    }

    fn len(&self, id: ObjectId) -> Result<u64, Errno> {
        self.data.get(&key(id)).map(|data| data.len() as u64).ok_or(Errno::ENOENT)
    }

    fn answer(&mut self, call: &Call, moved: &Moved) -> Result<Answer, Errno> {
        let buffer = |index| call.buffers.get(index).unwrap();
        let obdo = || Obdo::parse(LITTLE, buffer(0)).unwrap();
        self.asked.push(call.opcode);
        let (mut status, mut bulk) = (0, Vec::new());
        let buffers = match call.opcode {
            Opcode::MDS_GETATTR => self.shown().to_vec(),
            Opcode::LDLM_ENQUEUE => {
                let intent = call.buffers.get(1).map(|b| Intent::parse(LITTLE, b).unwrap());
                let found = Disposition::EXECUTED | Disposition::POSITIVE | Disposition::OPENED;
                let lock = LockReply { policy_res1: found.bits(), ..LockReply::default() };
                let mut buffers = vec![lock.to_bytes(LITTLE)];
                match intent {
                    Some(Intent::OPEN) => buffers.extend(self.shown()),
                    Some(Intent::LAYOUT) => {
                        let wanted = LayoutIntent::parse(LITTLE, buffer(2)).unwrap();
                        self.instantiate(wanted.start..wanted.end);
                        buffers.push(self.layout());
                    }
                    // The size of the data on the metadata target.
                    _ => {
                        let size = self.len(ObjectId::of(FILE))?;
                        buffers.push(Lvb { size, ..Lvb::default() }.to_bytes(LITTLE));
                    }
                }
                buffers
            }
            Opcode::OST_GETATTR => {
                let size = self.len(obdo().id)?;
                vec![Obdo { size, valid: Valid::SIZE, ..Obdo::default() }.to_bytes(LITTLE)]
            }
            Opcode::OST_PUNCH => {
                let body = obdo();
                let data = self.data.get_mut(&key(body.id)).ok_or(Errno::ENOENT)?;
                data.resize(body.size as usize, 0);
                vec![Obdo::default().to_bytes(LITTLE)]
            }
            Opcode::OST_WRITE => {
                let Moved::Write(bytes) = moved else { panic!("bytes are written") };
                let range = Niobuf::parse(LITTLE, buffer(2)).unwrap();
                self.write(obdo().id, range.offset, bytes)?;
                vec![Obdo::default().to_bytes(LITTLE), vec![0; 4]]
            }
            Opcode::OST_READ => {
                let range = Niobuf::parse(LITTLE, buffer(2)).unwrap();
                bulk = self.read(obdo().id, range.offset, range.len)?;
                status = bulk.len() as i32;
                vec![Obdo::default().to_bytes(LITTLE)]
            }
            _ => Vec::new(),
        };
        Ok((status, buffers, bulk))
    }
}

#[derive(Debug)]
struct World(Mutex<Site>);

impl Wire for World {
    type Link = ();

    fn link(&self, _: ImportConfig) -> Result<(), CallError> {
        Ok(())
    }

    fn connect(&self, (): &()) {}

    async fn call(&self, (): &(), call: Call, moved: Moved) -> End {
        let (status, buffers, bulk) = match self.0.lock().unwrap().answer(&call, &moved) {
            Ok(answer) => answer,
            Err(errno) => return CallError::Refused(errno).into(),
        };
        let body = Body { kind: MsgKind::REPLY, opcode: call.opcode, status, ..Body::default() };
        let body = Body { version: Service::Mds.word(), ..body };
        let builder = MsgBuilder::new(Header::default(), &body);
        let message = buffers.iter().fold(builder, |builder, buffer| builder.bytes(buffer));
        let message = message.build().unwrap();
        let bytes = if let Moved::Write(bytes) = moved { bytes } else { bulk };
        End { result: Ok(Reply { status, transno: 0, message }), bytes, call: None }
    }

    async fn handle(&self, (): &(), _: CallId) -> Option<u64> {
        None
    }

    async fn terms(&self, (): &()) -> ConnectData {
        ConnectData { flags: ConnectFlags::VERSION, ..ConnectData::default() }
    }

    async fn close(&self, (): &()) {}

    async fn pause(&self, _: u32) {}

    fn now(&self) -> i64 {
        0
    }
}

impl CacheWire for World {
    type Cache = ();

    fn cache(&self, _: ImportConfig) -> Result<(), CallError> {
        Ok(())
    }

    async fn object(&self, (): &(), id: ObjectId, ask: ObjectAsk) -> ObjectEnd {
        let mut site = self.0.lock().unwrap();
        let end = match ask {
            ObjectAsk::Write { offset, bytes, .. } => {
                site.write(id, offset, &bytes).map(|count| (count, Vec::new()))
            }
            ObjectAsk::Read { offset, len } => {
                site.read(id, offset, len).map(|bytes| (bytes.len() as u64, bytes))
            }
            ObjectAsk::Size => site.len(id).map(|size| (size, Vec::new())),
            ObjectAsk::Fsync(_) | ObjectAsk::Close(_) => Ok((0, Vec::new())),
        };
        match end {
            Ok((count, bytes)) => ObjectEnd { result: Ok(count), bytes },
            Err(errno) => CallError::Refused(errno).into(),
        }
    }

    fn unsettled(&self, (): &()) -> impl Future<Output = Vec<(ObjectId, Fid)>> + Send {
        ready(Vec::new())
    }

    async fn end_cache(&self, (): &()) {}
}

fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(end) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return end;
        }
    }
    panic!("it does not end");
}

/// A visitor, and a file whose first component has so many bytes of 1.
fn begun(on_mdt: bool, len: u64) -> (Visitor<World>, FileCache<()>) {
    let first = if on_mdt { key(ObjectId::of(FILE)) } else { (1, 0) };
    let data = BTreeMap::from([(first, vec![1; len as usize])]);
    let site = Site { on_mdt, objects: [Some(1), None], data, asked: Vec::new() };
    let remote = |uuid: &str| {
        BTreeMap::from([(0, Remote::new(uuid.to_owned(), Vec::new(), Some(()), Fids::default()))])
    };
    let visitor = Visitor {
        wire: World(Mutex::new(site)),
        client: String::new(),
        who: Identity::default(),
        mdts: remote("lfs-MDT0000_UUID"),
        osts: remote("lfs-OST0000_UUID"),
        root: FILE,
        places: Places::default(),
        balance: Default::default(),
        root_default: Default::default(),
        cookies: AtomicU64::new(1),
        said_losses: AtomicU64::new(0),
        #[cfg(feature = "sabotage")]
        sabotage: None,
    };
    let cache = visitor.cache().unwrap();
    (visitor, cache)
}

fn open(visitor: &Visitor<World>) -> OpenFile {
    run(async {
        let node = visitor.node_of(FILE).await?;
        visitor.open_for(&node, OpenHow::WRITE).await
    })
    .unwrap()
}

/// Another client writes so many bytes of 2 from the border on.
fn grows(visitor: &Visitor<World>, len: u64) {
    let mut site = visitor.wire.0.lock().unwrap();
    site.instantiate(BORDER..BORDER + len);
    site.write(ObjectId::old(2), BORDER, &vec![2; len as usize]).unwrap();
}

/// The data of the first component is moved to another object.
fn migrates(visitor: &Visitor<World>) {
    migrates_to(visitor, 1, 7);
}

fn migrates_to(visitor: &Visitor<World>, from: u64, to: u64) {
    let mut site = visitor.wire.0.lock().unwrap();
    let data = site.data.remove(&(from, 0)).unwrap();
    site.data.insert((to, 0), data);
    site.objects[0] = Some(to);
}

/// The calls since the last time.
fn asked(visitor: &Visitor<World>) -> Vec<Opcode> {
    core::mem::take(&mut visitor.wire.0.lock().unwrap().asked)
}

fn bytes(parts: Vec<Part>) -> Vec<u8> {
    let one = |part: Part| {
        let mut bytes = part.bytes;
        bytes.resize(part.len as usize, 0);
        bytes
    };
    parts.into_iter().flat_map(one).collect()
}

#[test]
fn c195_cached_reads_find_what_another_client_has_made_objects_for() {
    for on_mdt in [false, true] {
        let (visitor, cache) = begun(on_mdt, 100);
        let file = open(&visitor);
        grows(&visitor, 50);
        assert_eq!(run(cache.size(&visitor, &file)), Ok(BORDER + 50), "{on_mdt}");
        let read = bytes(run(cache.read(&visitor, &file, 0, 2 * BORDER)).unwrap());
        assert_eq!(read.len() as u64, BORDER + 50, "{on_mdt}");
        assert!(read[..100].iter().all(|byte| *byte == 1), "{on_mdt}");
        assert!(read[100..BORDER as usize].iter().all(|byte| *byte == 0), "{on_mdt}");
        assert!(read[BORDER as usize..].iter().all(|byte| *byte == 2), "{on_mdt}");
    }
}

#[test]
fn c195_cached_reads_before_an_end_that_is_known_ask_for_no_layout() {
    let (visitor, cache) = begun(false, 100);
    let file = open(&visitor);
    asked(&visitor);
    assert_eq!(run(cache.read(&visitor, &file, 20, 80)).map(bytes), Ok(vec![1; 80]));
    assert_eq!(asked(&visitor), []);
    // Behind the end there may be more by now.
    assert_eq!(run(cache.read(&visitor, &file, 20, 90)).map(bytes), Ok(vec![1; 80]));
    assert_eq!(asked(&visitor), [Opcode::MDS_GETATTR]);
    // All of the file has objects.
    grows(&visitor, 50);
    let file = open(&visitor);
    asked(&visitor);
    let end = bytes(run(cache.read(&visitor, &file, BORDER, 100)).unwrap());
    assert_eq!((end, asked(&visitor)), (vec![2; 50], Vec::new()));
}

#[test]
fn c195_cached_append_goes_behind_what_another_client_has_made_objects_for() {
    for on_mdt in [false, true] {
        let (visitor, cache) = begun(on_mdt, 100);
        let mut file = open(&visitor);
        grows(&visitor, 50);
        asked(&visitor);
        let at = run(cache.append(&visitor, &mut file, vec![3; 10]));
        assert_eq!(at, Ok(BORDER + 50), "{on_mdt}");
        // The write goes by the layout that the end was found by.
        let asked = asked(&visitor);
        let layouts = asked.iter().filter(|opcode| **opcode == Opcode::MDS_GETATTR).count();
        assert_eq!(layouts, 1, "{on_mdt}");
        assert!(on_mdt || asked.len() == 1, "{asked:?}");
        let site = visitor.wire.0.lock().unwrap();
        let second = &site.data[&(2, 0)][BORDER as usize..];
        assert_eq!(second, [vec![2; 50], vec![3; 10]].concat(), "{on_mdt}");
    }
}

#[test]
fn c228_cached_append_goes_to_the_objects_that_a_file_was_moved_to() {
    let (visitor, cache) = begun(false, 100);
    let mut file = open(&visitor);
    migrates(&visitor);
    assert_eq!(run(cache.append(&visitor, &mut file, vec![3; 10])), Ok(100));
    let site = visitor.wire.0.lock().unwrap();
    assert_eq!(site.data[&(7, 0)], [vec![1; 100], vec![3; 10]].concat());
}

#[test]
fn c223_truncate_cuts_objects_that_another_client_has_had_made() {
    for on_mdt in [false, true] {
        let (visitor, cache) = begun(on_mdt, 100);
        let mut file = open(&visitor);
        grows(&visitor, 50);
        run(visitor.truncate(&mut file, 10)).unwrap();
        assert_eq!(file.size(), 10);
        assert_eq!(run(cache.size(&visitor, &file)), Ok(10), "{on_mdt}");
        assert_eq!(visitor.wire.0.lock().unwrap().len(ObjectId::old(2)), Ok(0), "{on_mdt}");
    }
}

#[test]
fn c223_truncate_of_a_file_that_has_all_objects_asks_for_no_layout() {
    let (visitor, _) = begun(false, 100);
    grows(&visitor, 50);
    let mut file = open(&visitor);
    asked(&visitor);
    run(visitor.truncate(&mut file, 10)).unwrap();
    assert_eq!(asked(&visitor), [Opcode::MDS_REINT, Opcode::OST_PUNCH, Opcode::OST_PUNCH]);
}

#[test]
fn write_of_no_bytes_leaves_a_file_as_long_as_it_is() {
    let (visitor, cache) = begun(false, 100);
    let mut file = open(&visitor);
    run(visitor.write(&file, 5000, Vec::new())).unwrap();
    run(cache.write(&visitor, &mut file, 5000, Vec::new())).unwrap();
    assert_eq!((file.size(), file.is_changed()), (100, false));
    let e = run(visitor.write(&file, u64::MAX, Vec::new())).unwrap_err();
    assert!(matches!(e, VisitError::Path { errno: Errno::EFBIG, .. }), "{e}");
}

#[test]
fn c228_write_goes_to_the_objects_that_a_file_was_moved_to() {
    let (visitor, _) = begun(false, 100);
    let mut file = open(&visitor);
    migrates(&visitor);
    run(visitor.write_at(&mut file, 50, &[3; 10])).unwrap();
    let data = visitor.wire.0.lock().unwrap().data[&(7, 0)].clone();
    assert_eq!(data, [vec![1; 50], vec![3; 10], vec![1; 40]].concat());
    // All of it went there.
    assert_eq!(run(visitor.fsync(&file)), Ok(()));
    assert_eq!(run(visitor.close(file)), Ok(()));
}

#[test]
fn c195_file_moved_after_a_write_is_reported_by_fsync_and_close() {
    let relaid = Err(VisitError::Relaid { file: FILE });
    let (visitor, cache) = begun(false, 100);
    for _ in 0..2 {
        let mut file = open(&visitor);
        let object = visitor.wire.0.lock().unwrap().objects[0].unwrap();
        run(cache.write(&visitor, &mut file, 0, vec![3; 10])).unwrap();
        // The former object is still there: a write to it is answered.
        migrates_to(&visitor, object, 7 + object);
        visitor.wire.0.lock().unwrap().data.insert((object, 0), Vec::new());
        assert_eq!(run(cache.fsync(&visitor, &file)), relaid);
        assert_eq!(run(cache.close(&visitor, file)), relaid);
    }
    // Closed all the same.
    let closes = asked(&visitor).into_iter().filter(|opcode| *opcode == Opcode::MDS_CLOSE);
    assert_eq!(closes.count(), 2);
    // Also where a later write has found the new objects.
    let mut file = open(&visitor);
    let object = visitor.wire.0.lock().unwrap().objects[0].unwrap();
    run(visitor.write_at(&mut file, 0, &[3; 10])).unwrap();
    migrates_to(&visitor, object, 7 + object);
    run(visitor.write_at(&mut file, 20, &[3; 10])).unwrap();
    assert_eq!(run(visitor.close(file)), relaid);
}

#[test]
fn c195_file_moved_before_objects_are_made_for_a_write_is_reported_until_it_is_emptied() {
    let relaid = Err(VisitError::Relaid { file: FILE });
    let (visitor, _) = begun(false, 100);
    let mut file = open(&visitor);
    run(visitor.write_at(&mut file, 0, &[3; 10])).unwrap();
    // The former object is still there, and the layout that comes with new objects names another one.
    migrates_to(&visitor, 1, 7);
    visitor.wire.0.lock().unwrap().data.insert((1, 0), Vec::new());
    run(visitor.write_at(&mut file, BORDER, &[3; 10])).unwrap();
    assert_eq!(run(visitor.fsync(&file)), relaid);
    run(visitor.truncate(&mut file, 0)).unwrap();
    run(visitor.write_at(&mut file, 0, &[4; 10])).unwrap();
    assert_eq!(run(visitor.fsync(&file)), Ok(()));
    assert_eq!(run(visitor.close(file)), Ok(()));
}

#[test]
fn c193_file_that_has_grown_by_another_client_is_closed_without_an_error() {
    let (visitor, cache) = begun(false, 100);
    let mut file = open(&visitor);
    run(cache.write(&visitor, &mut file, 0, vec![3; 10])).unwrap();
    grows(&visitor, 50);
    assert_eq!(run(cache.fsync(&visitor, &file)), Ok(()));
    assert_eq!(run(cache.close(&visitor, file)), Ok(()));
    // One that was only read is closed without a look at its layout.
    let file = open(&visitor);
    asked(&visitor);
    run(visitor.close(file)).unwrap();
    assert_eq!(asked(&visitor), [Opcode::MDS_CLOSE]);
}
