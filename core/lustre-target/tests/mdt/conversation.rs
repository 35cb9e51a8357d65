//! Recorded conversations of two kernel clients with a file system, played to ours from the first request
//! to the last: names, layouts, data and locks. Requests go out in the recorded order, in the same bytes but
//! for names that servers choose: handles, objects. The clients give locks back when the recorded ones did,
//! and at once where the recorded server had no reason to ask.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use lnet::upper::UpperId;
use lnet_types::{IoVec, Memory, Nid};
use lnet_wire::Kind;
use lustre_wire::connect::ConnectData;
use lustre_wire::fid::ObjectId;
use lustre_wire::ldlm::{
    InodeBits, Intent, LockDesc, LockFlags, LockKind, LockReply, LockRequest, Lvb,
};
use lustre_wire::mds::{Epoch, MdtBody};
use lustre_wire::ost::{IoObj, Obdo, ObdoFlags};
use lustre_wire::striping::{StripeObject, Stripes, Striping};
use lustre_wire::{Buffers, Fid, ImportKind, Layout, Msg, MsgKind, Opcode, Portal};
use ptlrpc::{Bulk, Call, CallError, CallId, Direction, ImportConfig, ImportId, Reply};

use super::captures::seen;
use super::{Bench, Client, LITTLE, ROOT};

/// The recorded server.
const SERVER: &str = "10.78.0.2@tcp";
/// Sequence of the objects of the first target, and how far that of the next one is.
const OBJECTS: u64 = 0x2_8000_0401;
const STRIDE: u64 = 0x4000_0000;

/// A recorded request, with what it brought.
struct Step {
    frame: u32,
    client: Nid,
    portal: Portal,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Bulk data, whichever way.
    data: Vec<u8>,
}

/// A recording.
struct Recording {
    steps: Vec<Step>,
    /// What clients said of sizes, by their name of a lock.
    sizes: BTreeMap<u64, VecDeque<Vec<u8>>>,
}

/// Bulk data of a request, in order.
type Pieces = BTreeMap<(u64, u32), Vec<u8>>;

fn read(name: &str) -> Recording {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lustre-mount");
    let capture = lnet_pcap::conversations(dir.join(name).with_extension("pcap")).unwrap();
    let server: Nid = SERVER.parse().unwrap();
    let mut steps: Vec<Step> = Vec::new();
    let mut at: BTreeMap<(Nid, u64), usize> = BTreeMap::new();
    let mut pieces: BTreeMap<(Nid, u64), Pieces> = BTreeMap::new();
    let mut gets = BTreeMap::new();
    let (mut glimpses, mut sizes) = (BTreeMap::new(), BTreeMap::new());
    for found in lnet_capture::messages(&capture).unwrap() {
        let (from, to) = (found.hdr.src, found.hdr.dst);
        let client = if from == server { to } else { from };
        match found.hdr.kind {
            Kind::Put { portal, match_bits: bits, offset, .. } => {
                if portal == Portal::OST_BULK.0 || portal == Portal::MDS_BULK.0 {
                    let all: &mut Pieces = pieces.entry((client, bits & !127)).or_default();
                    all.insert((bits, offset), found.payload);
                    continue;
                }
                let msg = Msg::parse(&found.payload).ok();
                let Some(body) = msg.as_ref().and_then(|msg| msg.body().ok()) else { continue };
                let callback = body.opcode == Opcode::LDLM_GL_CALLBACK;
                if from == server && body.kind == MsgKind::REQUEST && callback {
                    let request = LockRequest::of(msg.as_ref().unwrap(), 1).unwrap();
                    glimpses.insert((client, bits), request.handles[0]);
                } else if to == server && body.kind == MsgKind::REQUEST {
                    at.insert((client, bits), steps.len());
                    steps.push(Step {
                        frame: found.frame,
                        client,
                        portal: Portal(portal),
                        request: found.payload.clone(),
                        reply: Vec::new(),
                        data: Vec::new(),
                    });
                } else if to == server
                    && let Some(cookie) = glimpses.remove(&(client, bits))
                {
                    let size = msg.unwrap().buffer(1).unwrap_or_default().to_vec();
                    let all: &mut VecDeque<Vec<u8>> = sizes.entry(cookie).or_default();
                    all.push_back(size);
                } else if from == server
                    && (offset != 0 || body.opcode.is_connect())
                    && let Some(step) = at.get(&(client, bits))
                {
                    steps[*step].reply = found.payload.clone();
                }
            }
            Kind::Get { ret, match_bits: bits, offset, .. } => {
                gets.insert((client, ret.object), (bits, offset));
            }
            Kind::Reply { dst, .. } => {
                if let Some((bits, offset)) = gets.remove(&(client, dst.object)) {
                    let all: &mut Pieces = pieces.entry((client, bits & !127)).or_default();
                    all.insert((bits, offset), found.payload);
                }
            }
            Kind::Ack { .. } => {}
        }
    }
    for ((client, bits), step) in at {
        let data = pieces.remove(&(client, bits & !127)).unwrap_or_default();
        steps[step].data = data.into_values().flatten().collect();
    }
    Recording { steps, sizes }
}

/// The components of a layout: where they are, how they are spread. Objects are each server's own, and ours
/// makes them all at once.
fn components(bytes: &[u8]) -> Vec<(u64, u64, u32, u32, u16)> {
    let of = |start, end, stripes: &Stripes| {
        let head = stripes.head;
        (start, end, head.pattern.bits(), head.stripe_size, head.stripe_count)
    };
    match Striping::parse(bytes) {
        Ok(Striping::Plain(stripes)) => vec![of(0, u64::MAX, &stripes)],
        Ok(Striping::Composite(_, parts)) => {
            parts.iter().map(|(entry, stripes)| of(entry.start, entry.end, stripes)).collect()
        }
        _ => Vec::new(),
    }
}

fn objects(bytes: &[u8]) -> Vec<StripeObject> {
    match Striping::parse(bytes) {
        Ok(Striping::Plain(stripes)) => stripes.objects,
        Ok(Striping::Composite(_, parts)) => {
            parts.into_iter().flat_map(|(_, stripes)| stripes.objects).collect()
        }
        _ => Vec::new(),
    }
}

/// A request under way.
struct Pending {
    step: usize,
    client: Client,
    import: ImportId,
    id: CallId,
    memory: IoVec,
}

/// A play under way.
struct Play {
    bench: Bench,
    upper: UpperId,
    clients: BTreeMap<Nid, Client>,
    imports: BTreeMap<(Nid, u32), ImportId>,
    wanted: ConnectData,
    /// Ours for recorded ones: open handles; locks, with the import that has each; objects.
    handles: BTreeMap<u64, u64>,
    locks: BTreeMap<u64, (ImportId, u64)>,
    objects: BTreeMap<(u64, u32), ObjectId>,
    pending: Vec<Pending>,
    /// Requests of a kind, and those that were answered as recorded.
    table: BTreeMap<String, (usize, usize)>,
    odd: Vec<String>,
    /// The same for locks beside.
    odd_locks: Vec<String>,
}

/// What a step asks.
fn name_of(step: &Step) -> String {
    let asked = Msg::parse(&step.request).unwrap();
    let opcode = asked.body().unwrap().opcode;
    match intent_of(&asked, opcode) {
        Some(intent) => format!("{opcode} {intent}"),
        None => opcode.to_string(),
    }
}

fn intent_of(asked: &Msg<'_>, opcode: Opcode) -> Option<Intent> {
    let intent = opcode == Opcode::LDLM_ENQUEUE && asked.buffer(3).is_some();
    if intent { asked.get(2).ok() } else { None }
}

impl Play {
    fn new(osts: u32, dir: (&str, Fid), recording: &Recording) -> Self {
        let mut bench = Bench::new(osts);
        let root = bench.client("before", 0);
        let mut buffers = root.create(ROOT, dir.0, 1, 0o040_755, b"");
        buffers.get_mut(0).unwrap()[56..72].copy_from_slice(&dir.1.to_bytes(LITTLE));
        bench.reint(root, buffers).unwrap();
        let mut nids: Vec<Nid> = recording.steps.iter().map(|step| step.client).collect();
        nids.sort_unstable();
        nids.dedup();
        let names: Vec<String> = nids.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let made = bench.caching(&names);
        let upper = made[0].upper;
        let sizes = recording.sizes.clone();
        bench.party(upper, |party, _| {
            party.sizes = sizes;
            party.keeps = true;
        });
        let connects = recording.steps.iter().find_map(|step| {
            let asked = Msg::parse(&step.request).ok()?;
            let is = asked.body().ok()?.opcode == Opcode::OST_CONNECT;
            is.then(|| ConnectData::of(&asked, 4).unwrap())
        });
        Self {
            bench,
            upper,
            clients: nids.into_iter().zip(made).collect(),
            imports: BTreeMap::new(),
            wanted: connects.unwrap(),
            handles: BTreeMap::new(),
            locks: BTreeMap::new(),
            objects: BTreeMap::new(),
            pending: Vec::new(),
            table: BTreeMap::new(),
            odd: Vec::new(),
            odd_locks: Vec::new(),
        }
    }

    fn import(&mut self, nid: Nid, index: u32) -> ImportId {
        if let Some(import) = self.imports.get(&(nid, index)) {
            return *import;
        }
        let config = ImportConfig {
            kind: ImportKind::Osc,
            target: format!("lfs-OST{index:04x}_UUID"),
            client: nid.to_string(),
            nids: vec![Nid::LOOPBACK],
            wanted: self.wanted,
        };
        let made = self
            .bench
            .party(self.upper, |party, below| party.ptlrpc.rpc(below).import(config).unwrap());
        self.imports.insert((nid, index), made);
        made
    }

    /// Our name of an object of a file.
    fn object(&self, id: ObjectId) -> ObjectId {
        self.objects.get(&(id.first, id.oid)).copied().unwrap_or(id)
    }

    /// Learns which objects of ours those of a recorded layout are.
    fn learn(&mut self, theirs: &[u8], ours: &[u8]) {
        for (theirs, ours) in objects(theirs).into_iter().zip(objects(ours)) {
            self.objects.insert((theirs.id.first, theirs.id.oid), ours.id);
        }
    }

    fn lock(&self, handle: u64) -> u64 {
        self.locks.get(&handle).map_or(handle, |(_, ours)| *ours)
    }

    /// The buffers of a request, with our names.
    fn buffers(&self, asked: &Msg<'_>, opcode: Opcode) -> Buffers {
        let mut buffers: Buffers = asked.buffers().skip(1).map(|buffer| buffer.to_vec()).collect();
        match opcode {
            Opcode::LDLM_ENQUEUE | Opcode::LDLM_CANCEL | Opcode::LDLM_CONVERT => {
                let mut request = LockRequest::of(asked, 1).unwrap();
                let own = usize::from(opcode == Opcode::LDLM_ENQUEUE);
                for handle in request.handles.iter_mut().skip(own) {
                    *handle = self.lock(*handle);
                }
                let [seq, low, ..] = request.desc.resource.words;
                if let Some(ours) = self.objects.get(&(seq, low as u32)) {
                    request.desc.resource.words[0] = ours.first;
                    request.desc.resource.words[1] = ours.oid.into();
                }
                buffers.replace(0, request.to_bytes(LITTLE));
            }
            Opcode::OST_READ | Opcode::OST_WRITE | Opcode::OST_PUNCH | Opcode::OST_SYNC => {
                let mut body: Obdo = asked.get(1).unwrap();
                body.id = self.object(body.id);
                body.handle = self.lock(body.handle);
                buffers.replace(0, body.to_bytes(LITTLE));
                if let Ok(mut object) = asked.get::<IoObj>(2) {
                    object.id = self.object(object.id);
                    buffers.replace(1, object.to_bytes(LITTLE));
                }
            }
            Opcode::MDS_CLOSE => {
                let epoch: Epoch = asked.get(1).unwrap();
                let handle = self.handles.get(&epoch.handle).copied().unwrap_or(epoch.handle);
                buffers.replace(0, Epoch { handle }.to_bytes(LITTLE));
            }
            _ => {}
        }
        buffers
    }

    /// Which target a request goes to; `None`: it is not played.
    fn target(&mut self, step: &Step, asked: &Msg<'_>, opcode: Opcode) -> Option<ImportId> {
        let index = |id: ObjectId| {
            let far = self.object(id).first.checked_sub(OBJECTS)?;
            (far % STRIDE == 0).then_some((far / STRIDE) as u32)
        };
        match opcode {
            Opcode::LDLM_CANCEL | Opcode::LDLM_CONVERT => {
                let request = LockRequest::of(asked, 1).unwrap();
                self.locks.get(&request.handles[0]).map(|(import, _)| *import)
            }
            Opcode::LDLM_ENQUEUE if step.portal == Portal::OST_REQUEST => {
                let [seq, low, ..] = LockRequest::of(asked, 1).unwrap().desc.resource.words;
                let index = index(ObjectId { first: seq, oid: low as u32, ver: 0 })?;
                Some(self.import(step.client, index))
            }
            Opcode::OST_READ | Opcode::OST_WRITE | Opcode::OST_PUNCH | Opcode::OST_SYNC => {
                match index(asked.get::<Obdo>(1).unwrap().id) {
                    Some(index) => Some(self.import(step.client, index)),
                    None => Some(self.clients[&step.client].mdt),
                }
            }
            Opcode::LDLM_ENQUEUE
            | Opcode::MDS_REINT
            | Opcode::MDS_CLOSE
            | Opcode::MDS_GETATTR
            | Opcode::MDS_GETATTR_NAME
            | Opcode::MDS_SYNC => Some(self.clients[&step.client].mdt),
            _ => None,
        }
    }

    fn begin(&mut self, at: usize, step: &Step) {
        let asked = Msg::parse(&step.request).unwrap();
        let opcode = asked.body().unwrap().opcode;
        let Some(import) = self.target(step, &asked, opcode) else { return };
        let client = self.clients[&step.client];
        let mut call = Call::new(opcode, self.buffers(&asked, opcode));
        let intent = intent_of(&asked, opcode);
        call.modifies = call.modifies && intent.is_none_or(|intent| intent == Intent::LAYOUT)
            || intent.is_some_and(|intent| intent.contains(Intent::OPEN));
        let lens: &[u32] = if opcode == Opcode::OST_READ { &[208, 1 << 16] } else { &[8192; 4] };
        call = call.answered_by(lens);
        let mut memory = IoVec::new();
        let inline = |body: Obdo| body.flags.contains(ObdoFlags::SHORT_IO);
        match opcode {
            Opcode::OST_WRITE if !inline(asked.get(1).unwrap()) => {
                memory = self.bench.world.heap.memory(step.data.clone());
                call.bulk = Some(Bulk { direction: Direction::Write, memory: memory.clone() });
            }
            Opcode::OST_READ if !inline(asked.get(1).unwrap()) => {
                let ranges = asked.buffer(3).unwrap().chunks(16);
                let lens = ranges.map(|r| u32::from_le_bytes(r[8..12].try_into().unwrap()));
                let len: u32 = lens.sum();
                memory = self.bench.world.heap.memory(vec![0xee; len as usize]);
                call.bulk = Some(Bulk { direction: Direction::Read, memory: memory.clone() });
            }
            _ => {}
        }
        let id = self.bench.begin_on(client, import, call);
        self.pending.push(Pending { step: at, client, import, id, memory });
        self.bench.world.pass(core::time::Duration::from_millis(20));
    }

    /// Takes the answers that are here.
    fn take(&mut self, steps: &[Step]) {
        for pending in core::mem::take(&mut self.pending) {
            match self.bench.end_of(pending.client, pending.id) {
                Some(end) => self.ended(&pending, &steps[pending.step], end),
                None => self.pending.push(pending),
            }
        }
    }

    fn ended(&mut self, pending: &Pending, step: &Step, end: Result<Reply, CallError>) {
        let name = name_of(step);
        let row = self.table.entry(name.clone()).or_default();
        row.0 += 1;
        match self.judge(pending, step, end) {
            Ok(()) => self.table.get_mut(&name).unwrap().1 += 1,
            Err(why) => self.odd.push(format!("{} {name}: {why}", step.frame)),
        }
    }

    fn judge(
        &mut self,
        pending: &Pending,
        step: &Step,
        end: Result<Reply, CallError>,
    ) -> Result<(), String> {
        let asked = Msg::parse(&step.request).unwrap();
        let said = Msg::parse(&step.reply).map_err(|_| "no recorded answer".to_owned())?;
        let opcode = asked.body().unwrap().opcode;
        let theirs = said.body().unwrap().status;
        let same = |what: &str, ours: &dyn core::fmt::Debug, theirs: &dyn core::fmt::Debug| {
            let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
            if ours == theirs { Ok(()) } else { Err(format!("{what} {ours}, recorded {theirs}")) }
        };
        let reply = match &end {
            Ok(reply) => reply,
            Err(e) => return same("status", &e.errno().negative(), &theirs),
        };
        let ours = reply.msg().unwrap();
        let intent = intent_of(&asked, opcode);
        if opcode == Opcode::LDLM_ENQUEUE {
            let [mine, other] = [&ours, &said].map(|msg| msg.get::<LockReply>(1));
            if let (Ok(mine), Ok(other)) = (mine, other) {
                if mine.handle != 0 && other.handle != 0 {
                    self.locks.insert(other.handle, (pending.import, mine.handle));
                    let more = mine.desc.policy.start & !other.desc.policy.start;
                    if mine.desc.kind == LockKind::IBITS && more & InodeBits::DOM.bits() != 0 {
                        // The recorded client has no data under it: ours gives this bit back.
                        let back = without_data(&mine);
                        self.bench.begin_on(pending.client, pending.import, back);
                    }
                } else if mine.handle != 0 {
                    let back = super::cancel(mine.handle);
                    self.bench.begin_on(pending.client, pending.import, back);
                }
                let of = |status, lock: &LockReply| {
                    (status, lock.desc.granted, lock.desc.policy.start, lock.desc.policy.end)
                };
                let (mine, other) = (of(reply.status, &mine), of(theirs, &other));
                if let Err(why) = same("lock", &mine, &other) {
                    self.odd_locks.push(format!("{} {}: {why}", step.frame, name_of(step)));
                }
            }
        }
        match (opcode, intent) {
            (Opcode::LDLM_ENQUEUE, Some(Intent::LAYOUT)) => {
                let [mine, other] = [&ours, &said].map(|msg| msg.buffer(2).unwrap_or_default());
                self.learn(other, mine);
                same("layout", &components(mine), &components(other))
            }
            (Opcode::LDLM_ENQUEUE, Some(_)) => {
                let [mine, other] = [&ours, &said].map(|msg| {
                    let body = msg.get::<MdtBody>(2).unwrap_or_default();
                    (body, msg.buffer(3).unwrap_or_default().to_vec())
                });
                if other.0.open_handle != 0 {
                    self.handles.insert(other.0.open_handle, mine.0.open_handle);
                }
                self.learn(&other.1, &mine.1);
                same("answer", &seen(opcode, true, &ours, &[]), &seen(opcode, true, &said, &[]))?;
                same("layout", &components(&mine.1), &components(&other.1))
            }
            (Opcode::LDLM_ENQUEUE, None) => {
                let [mine, other] = [&ours, &said].map(|msg| {
                    let lvb = Lvb::parse_either(LITTLE, msg.buffer(2).unwrap_or_default());
                    lvb.map(|lvb| (lvb.size, lvb.mtime)).ok()
                });
                same("size", &mine, &other)
            }
            (Opcode::OST_READ, _) => {
                same("status", &reply.status, &theirs)?;
                let heap = &self.bench.world.heap;
                let moved = pending.memory.iter().flat_map(|span| heap.bytes(*span).to_vec());
                let mut mine: Vec<u8> = moved.collect();
                let mut other = step.data.clone();
                if pending.memory.is_empty() {
                    mine = ours.buffer(2).unwrap_or_default().to_vec();
                    other = said.buffer(2).unwrap_or_default().to_vec();
                }
                let len = usize::try_from(theirs).unwrap();
                let first = mine.iter().zip(&other).take(len).position(|(a, b)| a != b);
                match first {
                    None => Ok(()),
                    Some(at) => Err(format!("byte {at} of {len} differs")),
                }
            }
            (Opcode::OST_WRITE, _) => {
                same("status", &reply.status, &theirs)?;
                same("results", &ours.buffer(2), &said.buffer(2))
            }
            (Opcode::MDS_REINT | Opcode::MDS_GETATTR | Opcode::MDS_GETATTR_NAME, _) => {
                same("answer", &seen(opcode, false, &ours, &[]), &seen(opcode, false, &said, &[]))?;
                let [mine, other] = [&ours, &said].map(|msg| msg.buffer(2).unwrap_or_default());
                same("layout", &components(mine), &components(other))
            }
            _ => same("status", &reply.status, &theirs),
        }
    }

    /// Plays a recording.
    fn of(name: &str, osts: u32, dir: (&str, Fid)) -> Self {
        let recording = read(name);
        let mut play = Self::new(osts, dir, &recording);
        for (at, step) in recording.steps.iter().enumerate() {
            let ahead: Vec<u64> = recording.steps[at..]
                .iter()
                .flat_map(|step| given_back(&step.request))
                .filter_map(|handle| play.locks.get(&handle).map(|(_, ours)| *ours))
                .collect();
            let upper = play.upper;
            play.bench.party(upper, |party, below| party.give_back_but(&ahead, below));
            play.begin(at, step);
            play.take(&recording.steps);
        }
        let upper = play.upper;
        play.bench.party(upper, |party, below| party.give_back_but(&[], below));
        for _ in 0..5 {
            play.bench.world.secs(1);
            play.take(&recording.steps);
        }
        for pending in core::mem::take(&mut play.pending) {
            let step = &recording.steps[pending.step];
            play.odd.push(format!("{} {}: no end", step.frame, name_of(step)));
        }
        for (what, (all, equal)) in &play.table {
            eprintln!("{what:<36} {equal:>3} of {all}");
        }
        play.odd_locks.iter().for_each(|line| eprintln!("lock {line}"));
        play
    }
}

/// Gives the data under a lock back, and keeps what else is under it.
fn without_data(lock: &LockReply) -> Call {
    let mut desc = LockDesc { requested: lock.desc.granted, ..LockDesc::default() };
    desc.policy.start = lock.desc.policy.start & !InodeBits::DOM.bits();
    let request = LockRequest::new(LockFlags::empty(), 1, desc, &[lock.handle]);
    Call::new(Opcode::LDLM_CONVERT, Buffers::new().bytes(request.to_bytes(LITTLE)))
        .answered_by(&[112])
}

/// The locks that a request gives back, or changes.
fn given_back(request: &[u8]) -> Vec<u64> {
    let msg = Msg::parse(request).unwrap();
    match msg.body().unwrap().opcode {
        Opcode::LDLM_CANCEL | Opcode::LDLM_CONVERT => {
            LockRequest::of(&msg, 1).unwrap().counted().to_vec()
        }
        _ => Vec::new(),
    }
}

fn fid(oid: u32) -> Fid {
    Fid { seq: 0x2_0000_0402, oid, ver: 0 }
}

impl Play {
    /// Everything is as recorded, but for the locks of these frames.
    #[track_caller]
    fn is_as_recorded_but(&self, locks: &[(u32, &str)]) {
        assert_eq!(self.odd, Vec::<String>::new());
        let frame = |line: &String| line.split(' ').next().and_then(|frame| frame.parse().ok());
        let mut odd: Vec<u32> = self.odd_locks.iter().filter_map(frame).collect();
        odd.sort_unstable();
        let known: Vec<u32> = locks.iter().map(|(frame, _)| *frame).collect();
        assert_eq!(odd, known, "{:#?}", self.odd_locks);
        let equal: usize = self.table.values().map(|(_, equal)| equal).sum();
        assert!(equal > 90, "{equal}");
    }
}

/// Why locks beside differ.
const HANDLE: &str = "the recorded client asks for a lock that keeps its handle in cache";
const QUEUED: &str =
    "a change is first in the queue, as the lock that it waits for has more bits than recorded";
const FREE: &str = "the recorded server gives none, though bits are free";
const THERE: &str = "nothing is to be made: the layout of ours is whole from the beginning";

#[test]
fn recorded_clients_of_a_striped_file_are_answered_as_recorded() {
    let play = Play::of("striped-4-ost-whole", 4, ("f3", fid(1)));
    play.is_as_recorded_but(&[
        (1804, HANDLE),
        (2784, HANDLE),
        (2849, QUEUED),
        (2856, QUEUED),
        (3084, HANDLE),
    ]);
}

#[test]
fn recorded_clients_of_data_on_the_metadata_target_are_answered_as_recorded() {
    let play = Play::of("dom-64k", 4, ("f6", fid(7)));
    play.is_as_recorded_but(&[
        (29, HANDLE),
        (74, FREE),
        (107, HANDLE),
        (166, THERE),
        (465, HANDLE),
        (523, HANDLE),
    ]);
}
