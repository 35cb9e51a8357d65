//! What recorded servers have answered, as a [`Wire`] for a visit: a question that a recorded client has
//! asked too gets the recorded answer. A visitor asks some of them in another form, without a lock; it
//! gets what the recorded client got with one: attributes from intents, sizes from lock value blocks,
//! data from reads and writes. A change gets the answer that the recorded client got to the same change;
//! what is written is kept, and compared where the recorded client has written the same. Neither time nor
//! a request layer is in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use lnet_types::{ByteOrder, Errno};
use lustre_client::visitor::{End, Moved, Wire};
use lustre_wire::connect::{ConnectData, ConnectFlags};
use lustre_wire::fid::{ObjectId, SeqRange, Valid};
use lustre_wire::ldlm::{
    Disposition, Intent, LayoutIntent, LockKind, LockReply, LockRequest, Lvb, ResourceName,
};
use lustre_wire::llog::LlogdBody;
use lustre_wire::mds::{CreateRecord, Epoch, MdtBody, Record, ReintOp, SetattrRecord};
use lustre_wire::ost::{Niobuf, Obdo, ObdoFlags};
use lustre_wire::striping::Striping;
use lustre_wire::{Body, Fid, Header, ImportKind, Layout, MsgKind, Opcode, msg::MsgBuilder};
use ptlrpc::{Call, CallError, CallId, ImportConfig, Reply};

use crate::exchange::Index;
use crate::recording::{Message, Role, messages};

const LITTLE: ByteOrder = ByteOrder::Little;

/// Sequence of the FIDs of new files, if no recorded client has asked for one.
pub const SEQUENCE: u64 = 0x2_0000_0500;
/// Sequences of the second of the recorded metadata targets; all others are of the first (C-41).
const OF_MDT_1: core::ops::Range<u64> = 0x2_4000_0400..0x2_8000_0400;
/// What the clock of a visit says.
pub const NOW: i64 = 1_795_385_000;

/// A change: its kind, the files that it names, what else it is known by, names.
type Change = (u32, Fid, Fid, u64, Vec<Vec<u8>>);

/// What a change of metadata is, and of which names; of new files, whatever FID they get.
fn changed(buffers: &[Vec<u8>]) -> Option<Change> {
    let names = |places: &[usize]| places.iter().map(|place| name_of(buffers, *place)).collect();
    let none = Fid::default();
    Some(match Record::parse(LITTLE, buffers.first()?).ok()? {
        Record::Create(r) => {
            let kind = u64::from(r.mode & 0o170_000);
            (r.head.opcode.0, r.head.fid1, none, kind, names(&[2]))
        }
        Record::Name(r) => {
            let op = r.head.opcode;
            let at: &[usize] = match op {
                ReintOp::UNLINK => &[2],
                ReintOp::LINK => &[3],
                _ => &[3, 4],
            };
            // The server goes by the name of what is removed.
            let other = if op == ReintOp::UNLINK { none } else { r.head.fid2 };
            (op.0, r.head.fid1, other, 0, names(at))
        }
        Record::Setattr(r) => (r.opcode.0, r.fid, none, r.valid.bits(), Vec::new()),
        Record::Setxattr(r) => {
            let how = u64::from(r.flags);
            (r.opcode.0, r.fid, none, r.valid.bits() ^ how, names(&[2]))
        }
    })
}

/// A question and its answer.
#[derive(Clone, Debug)]
struct Recorded {
    frame: u32,
    handle: u64,
    opcode: Opcode,
    request: Vec<Vec<u8>>,
    status: i32,
    reply: Vec<Vec<u8>>,
    bulk: Vec<u8>,
}

/// An answer to a visitor.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Result, as the body has it.
    pub status: i32,
    /// Buffers behind the body.
    pub buffers: Vec<Vec<u8>>,
    /// Bulk data.
    pub bulk: Vec<u8>,
}

impl Answer {
    /// The end of a call with this answer: `sent` went as bulk data, for others there is `room`.
    pub(crate) fn end(self, call: &Call, sent: Vec<u8>, room: usize) -> End {
        let Self { status, buffers, bulk } = self;
        if status < 0 && !call.error_reply {
            return CallError::Refused(Errno(-status)).into();
        }
        let body = Body { kind: MsgKind::REPLY, opcode: call.opcode, status, ..Body::default() };
        let body = Body { version: lustre_wire::Service::Mds.word(), ..body };
        let builder = MsgBuilder::new(Header::default(), &body);
        let builder = buffers.iter().fold(builder, |builder, buffer| builder.bytes(buffer));
        let message = match builder.build() {
            Ok(message) => message,
            Err(e) => return CallError::BadReply(e).into(),
        };
        let mut bytes = sent;
        if room > 0 {
            bytes = vec![0; room];
            bytes.iter_mut().zip(bulk).for_each(|(to, from)| *to = from);
        }
        End { result: Ok(Reply { status, transno: 0, message }), bytes, call: None }
    }
}

/// A question that a recorded client has asked in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Same {
    /// Frame of the recorded request.
    pub frame: u32,
    /// The connection on which the recorded client asked, as the server names it.
    pub handle: u64,
    /// Operation.
    pub opcode: Opcode,
    /// Buffers behind the body: recorded, and the visitor's.
    pub buffers: (Vec<Vec<u8>>, Vec<Vec<u8>>),
}

/// Recorded answers.
#[derive(Debug, Default)]
pub struct Archive {
    recorded: Vec<Recorded>,
    /// Answers to changes, which show nothing to those that only look.
    changes: Vec<Recorded>,
    /// Names that no recorded client has looked up; without a file: there is none.
    names: Vec<(Fid, Vec<u8>, Option<Fid>)>,
    same: Mutex<Vec<Same>>,
    asked: Mutex<Vec<Opcode>>,
    /// Objects as they were written here.
    written: Mutex<BTreeMap<(u64, u32), Vec<u8>>>,
    /// Layouts of files for which objects were made here.
    made: Mutex<BTreeMap<[u64; 4], Vec<u8>>>,
}

fn get<T: Layout>(buffers: &[Vec<u8>], index: usize) -> Option<T> {
    T::parse(LITTLE, buffers.get(index)?).ok()
}

fn name_of(buffers: &[Vec<u8>], index: usize) -> Vec<u8> {
    let bytes = buffers.get(index).cloned().unwrap_or_default();
    bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// The answers of a capture in frames up to `until`.
fn answers(capture: &Path, until: u32) -> Vec<Recorded> {
    let mut all = Vec::new();
    let messages = messages(capture);
    let index = Index::new(&messages);
    let data_of: BTreeMap<usize, usize> =
        index.answers.iter().map(|(answer, of)| (*of, *answer)).collect();
    for exchange in &index.exchanges {
        let Some((at, sending)) =
            exchange.replies.iter().find(|(at, _)| messages[*at].role == Role::Reply)
        else {
            continue;
        };
        let (request, reply): (&Message, &Message) = (&messages[*sending], &messages[*at]);
        if reply.frame > until || request.is_callback() {
            continue;
        }
        let mut parts: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, _) in &exchange.bulk {
            let bytes = match messages[*at].role {
                Role::BulkPut => Some(messages[*at].payload.clone()),
                _ => data_of.get(at).map(|data| messages[*data].payload.clone()),
            };
            parts.extend(bytes.map(|bytes| (messages[*at].bits(), bytes)));
        }
        parts.sort();
        all.push(Recorded {
            frame: request.frame,
            handle: request.body().handle,
            opcode: request.body().opcode,
            request: request.buffers(),
            status: reply.body().status,
            reply: reply.buffers(),
            bulk: parts.into_iter().flat_map(|(_, bytes)| bytes).collect(),
        });
    }
    all
}

impl Archive {
    /// The answers of a capture in frames up to `until`, behind those that are known.
    ///
    /// # Panics
    /// A capture that can't be read.
    #[must_use]
    pub fn with(mut self, capture: &Path, until: u32) -> Self {
        self.recorded.extend(answers(capture, until));
        self
    }

    /// The answers to changes alone of a capture: files are still as other captures show them.
    ///
    /// # Panics
    /// A capture that can't be read.
    #[must_use]
    pub fn changing(mut self, capture: &Path) -> Self {
        self.changes.extend(answers(capture, u32::MAX));
        self
    }

    /// A name that no recorded client has looked up.
    #[must_use]
    pub fn named(mut self, dir: Fid, name: &str, fid: Fid) -> Self {
        self.names.push((dir, name.as_bytes().to_vec(), Some(fid)));
        self
    }

    /// A name that no recorded client has looked up, as it is not there.
    #[must_use]
    pub fn without(mut self, dir: Fid, name: &str) -> Self {
        self.names.push((dir, name.as_bytes().to_vec(), None));
        self
    }

    /// What was asked in the same form as by a recorded client.
    ///
    /// # Panics
    /// A thread has panicked.
    pub fn same(&self) -> Vec<Same> {
        self.same.lock().expect("no panic").clone()
    }

    /// All that was asked.
    ///
    /// # Panics
    /// A thread has panicked.
    pub fn asked(&self) -> Vec<Opcode> {
        self.asked.lock().expect("no panic").clone()
    }

    /// The bytes that were written to an object here.
    ///
    /// # Panics
    /// A thread has panicked.
    pub fn written(&self, id: ObjectId) -> Vec<u8> {
        let written = self.written.lock().expect("no panic");
        written.get(&(id.first, id.oid)).cloned().unwrap_or_default()
    }

    fn latest(&self, fits: impl Fn(&Recorded) -> bool) -> Option<&Recorded> {
        self.recorded.iter().rev().find(|recorded| fits(recorded))
    }

    /// The recorded answer to the same question.
    fn again(
        &self,
        opcode: Opcode,
        ours: &[Vec<u8>],
        fits: impl Fn(&Recorded) -> bool,
    ) -> Option<Answer> {
        let is = |recorded: &Recorded| recorded.opcode == opcode && fits(recorded);
        let change = || self.changes.iter().rev().find(|recorded| is(recorded));
        let found = self.latest(is).or_else(change)?;
        let buffers = (found.request.clone(), ours.to_vec());
        self.same.lock().expect("no panic").push(Same {
            frame: found.frame,
            handle: found.handle,
            opcode,
            buffers,
        });
        let Recorded { status, reply, bulk, .. } = found;
        Some(Answer { status: *status, buffers: reply.clone(), bulk: bulk.clone() })
    }

    /// Lock, attributes and layout that an intent has brought, with the name and directory it is for.
    fn intent(recorded: &Recorded) -> Option<(Intent, Fid, Vec<u8>, LockReply)> {
        if recorded.opcode != Opcode::LDLM_ENQUEUE || recorded.status < 0 {
            return None;
        }
        let intent: Intent = get(&recorded.request, 1)?;
        let (dir, name) = if intent.contains(Intent::OPEN) {
            let record: CreateRecord = get(&recorded.request, 2)?;
            (record.head.fid1, name_of(&recorded.request, 5))
        } else if intent.intersects(Intent::GETATTR | Intent::LOOKUP) {
            let body: MdtBody = get(&recorded.request, 2)?;
            (body.fid1, name_of(&recorded.request, 4))
        } else {
            return None;
        };
        Some((intent, dir, name, get(&recorded.reply, 0)?))
    }

    /// Attributes of a file with the layout that it has got here.
    fn with_layout_made(&self, fid: Fid, mut shown: Answer) -> Option<Answer> {
        let made = self.made.lock().expect("no panic").get(&ResourceName::of(fid).words).cloned();
        if let Some(layout) = made {
            let mut body: MdtBody = get(&shown.buffers, 0)?;
            body.eadatasize = u32::try_from(layout.len()).ok()?;
            shown.buffers = vec![body.to_bytes(LITTLE), layout];
        }
        Some(shown)
    }

    fn shown(buffers: &[Vec<u8>]) -> Option<Answer> {
        let mut body: MdtBody = get(buffers, 0)?;
        let layout = buffers.get(1).cloned().unwrap_or_default();
        // Attributes of data on the target come with its lock alone (C-53).
        body.valid.remove(Valid::DOM_SIZE);
        let buffers = vec![body.to_bytes(LITTLE), layout];
        Some(Answer { buffers, ..Answer::default() })
    }

    /// Attributes by FID: what the last answer about it has shown.
    fn by_fid(&self, fid: Fid) -> Option<Answer> {
        self.recorded.iter().rev().find_map(|recorded| {
            let at = match recorded.opcode {
                Opcode::LDLM_ENQUEUE => {
                    Self::intent(recorded)?;
                    1
                }
                Opcode::MDS_GETATTR | Opcode::MDS_GETATTR_NAME if recorded.status == 0 => 0,
                _ => return None,
            };
            let body: MdtBody = get(&recorded.reply, at)?;
            let whole = Valid::TYPE | Valid::MODE | Valid::NLINK;
            if body.fid1 != fid || !body.valid.contains(whole) {
                return None;
            }
            Self::shown(recorded.reply.get(at..)?)
        })
    }

    /// The default layout of directories in one: as the last intent about it has brought it, behind the
    /// attributes.
    fn dir_default(&self, dir: Fid) -> Option<Answer> {
        self.recorded.iter().rev().find_map(|recorded| {
            Self::intent(recorded)?;
            let body: MdtBody = get(&recorded.reply, 1)?;
            let whole = Valid::TYPE | Valid::MODE | Valid::NLINK;
            if body.fid1 != dir || !body.valid.contains(whole) {
                return None;
            }
            let is =
                |bytes: &&Vec<u8>| matches!(Striping::parse(bytes), Ok(Striping::DirDefault(..)));
            let default = recorded.reply.iter().skip(2).find(is).cloned().unwrap_or_default();
            Some(Answer { buffers: vec![body.to_bytes(LITTLE), default], ..Answer::default() })
        })
    }

    fn lookup(&self, dir: Fid, name: &[u8]) -> Option<Answer> {
        let missing = Answer { status: Errno::ENOENT.negative(), ..Answer::default() };
        let found = self.recorded.iter().rev().find_map(|recorded| {
            let (_, of, called, lock) = Self::intent(recorded)?;
            if of != dir || called != name || name.is_empty() {
                return None;
            }
            let found = Disposition::from_bits_retain(lock.policy_res1);
            if found.contains(Disposition::NEGATIVE) && !found.contains(Disposition::CREATED) {
                return Some(missing.clone());
            }
            Self::shown(recorded.reply.get(1..)?)
        });
        let known = || {
            let mut names = self.names.iter();
            let (.., file) = names.find(|(of, called, _)| *of == dir && called == name)?;
            file.map_or(Some(missing.clone()), |file| self.by_fid(file))
        };
        found.or_else(known)
    }

    /// Size and times of a resource, as a lock or query has brought them last.
    fn lvb(&self, resource: ResourceName, kind: LockKind) -> Option<Lvb> {
        self.recorded.iter().rev().find_map(|recorded| {
            if recorded.opcode != Opcode::LDLM_ENQUEUE {
                return None;
            }
            let asked = LockRequest::parse(LITTLE, recorded.request.first()?).ok()?;
            if asked.desc.resource != resource || asked.desc.kind != kind {
                return None;
            }
            Lvb::parse_either(LITTLE, recorded.reply.get(1)?).ok()
        })
    }

    /// The bytes of an object that were read or written, as far as they are known.
    fn data(&self, id: ObjectId) -> Vec<Option<u8>> {
        let mut known: Vec<Option<u8>> = Vec::new();
        for recorded in &self.recorded {
            let writes = recorded.opcode == Opcode::OST_WRITE;
            if !writes && recorded.opcode != Opcode::OST_READ || recorded.status < 0 {
                continue;
            }
            if get::<Obdo>(&recorded.request, 0).is_none_or(|body| body.id != id) {
                continue;
            }
            let inline = if writes { recorded.request.get(4) } else { recorded.reply.get(1) };
            let inline = inline.cloned().unwrap_or_default();
            let mut bytes =
                if recorded.bulk.is_empty() { inline } else { recorded.bulk.clone() }.into_iter();
            let ranges = recorded.request.get(2).cloned().unwrap_or_default();
            for range in ranges.chunks_exact(Niobuf::LEN).map(|b| Niobuf::get(LITTLE, b)) {
                for at in range.offset..range.offset + u64::from(range.len) {
                    let Some(byte) = bytes.next() else { break };
                    let at = usize::try_from(at).expect("a small object");
                    if known.len() <= at {
                        known.resize(at + 1, None);
                    }
                    known[at] = Some(byte);
                }
            }
        }
        known
    }

    fn read(&self, buffers: &[Vec<u8>], size: u64) -> Option<Answer> {
        let (body, range): (Obdo, Niobuf) = (get(buffers, 0)?, get(buffers, 2)?);
        let known = self.data(body.id);
        let end = (range.offset + u64::from(range.len)).min(size);
        let bytes = (range.offset..end).map(|at| known.get(usize::try_from(at).ok()?).copied()?);
        let bulk: Vec<u8> = bytes.collect::<Option<_>>()?;
        let reply = Obdo { id: body.id, valid: Valid::ID, ..Obdo::default() };
        let status = i32::try_from(bulk.len()).ok()?;
        let reply = reply.to_bytes(LITTLE);
        if body.flags.contains(ObdoFlags::SHORT_IO) {
            return Some(Answer { status, buffers: vec![reply, bulk], ..Answer::default() });
        }
        Some(Answer { status, buffers: vec![reply], bulk })
    }

    /// Keeps what is written. A recorded client may have written the same range.
    fn write(&self, ours: &[Vec<u8>], bulk: &[u8]) -> Option<Answer> {
        let (body, range): (Obdo, Niobuf) = (get(ours, 0)?, get(ours, 2)?);
        let inline = ours.get(4).map(Vec::as_slice).unwrap_or_default();
        let bytes = if bulk.is_empty() { inline } else { bulk };
        assert_eq!(bytes.len() as u64, u64::from(range.len), "the bytes of the range");
        let mut written = self.written.lock().expect("no panic");
        let object = written.entry((body.id.first, body.id.oid)).or_default();
        let at = usize::try_from(range.offset).expect("a small object");
        if object.len() < at + bytes.len() {
            object.resize(at + bytes.len(), 0);
        }
        object[at..at + bytes.len()].copy_from_slice(bytes);
        let size = object.len() as u64;
        drop(written);
        let of = |buffers: &[Vec<u8>]| {
            let (body, range): (Obdo, Niobuf) = (get(buffers, 0)?, get(buffers, 2)?);
            Some((body.id, range.offset, range.len))
        };
        let _ = self.again(Opcode::OST_WRITE, ours, |r| of(&r.request) == of(ours));
        let valid = Valid::ID | Valid::SIZE | Valid::BLOCKS | Valid::FLAGS | Valid::CKSUM;
        let Obdo { id, flags, nlink, .. } = body;
        let body =
            Obdo { id, valid, size, blocks: size.div_ceil(512), flags, nlink, ..Obdo::default() };
        Some(Answer { buffers: vec![body.to_bytes(LITTLE), vec![0; 4]], ..Answer::default() })
    }

    fn size(&self, id: ObjectId) -> Option<Lvb> {
        self.lvb(ResourceName::of_object(id), LockKind::EXTENT).or_else(|| {
            let fid = id.fid()?;
            self.lvb(ResourceName::of(fid), LockKind::IBITS)
        })
    }

    /// The answer to a question; `None` if no recorded client has learned it.
    ///
    /// # Panics
    /// A thread has panicked.
    pub fn answer(&self, opcode: Opcode, ours: &[Vec<u8>]) -> Option<Answer> {
        self.answer_to(opcode, ours, &[])
    }

    /// The same, to a question with bulk data.
    ///
    /// # Panics
    /// A thread has panicked.
    pub fn answer_to(&self, opcode: Opcode, ours: &[Vec<u8>], bulk: &[u8]) -> Option<Answer> {
        self.asked.lock().expect("no panic").push(opcode);
        match opcode {
            Opcode::MGS_CONFIG_READ => self.again(opcode, ours, |_| true),
            Opcode::SEQ_QUERY => {
                let range = SeqRange { start: SEQUENCE, end: SEQUENCE + 1, ..SeqRange::default() };
                let said = Answer { buffers: vec![range.to_bytes(LITTLE)], ..Answer::default() };
                Some(self.again(opcode, ours, |_| true).unwrap_or(said))
            }
            Opcode::MDS_REINT => {
                let change = changed(ours)?;
                self.again(opcode, ours, |r| changed(&r.request).as_ref() == Some(&change))
            }
            Opcode::MDS_GETXATTR => {
                let of = |buffers: &[Vec<u8>]| {
                    let body: MdtBody = get(buffers, 0)?;
                    let wants = body.eadatasize != 0;
                    Some((body.fid1, body.valid, wants, name_of(buffers, 2)))
                };
                self.again(opcode, ours, |r| of(&r.request) == of(ours))
            }
            Opcode::MDS_SYNC => {
                let of = |buffers: &[Vec<u8>]| Some(get::<MdtBody>(buffers, 0)?.fid1);
                self.again(opcode, ours, |r| of(&r.request) == of(ours))
            }
            Opcode::OST_SETATTR | Opcode::OST_PUNCH | Opcode::OST_SYNC => {
                let of = |buffers: &[Vec<u8>]| {
                    let body: Obdo = get(buffers, 0)?;
                    let times = body.valid & (Valid::MTIME | Valid::ATIME | Valid::SIZE);
                    Some((body.id, body.size, times))
                };
                self.again(opcode, ours, |r| of(&r.request) == of(ours))
            }
            Opcode::OST_WRITE => self.write(ours, bulk),
            Opcode::LLOG_ORIGIN_HANDLE_CREATE => {
                let name = name_of(ours, 1);
                let same = self.again(opcode, ours, |r| name_of(&r.request, 1) == name);
                let none = Answer { status: Errno::ENOENT.negative(), ..Answer::default() };
                Some(same.unwrap_or(none))
            }
            Opcode::LLOG_READ_HEADER | Opcode::LLOG_NEXT_BLOCK => {
                let of = |buffers: &[Vec<u8>]| {
                    let place: LlogdBody = get(buffers, 0)?;
                    Some((place.id, place.index, place.offset))
                };
                self.again(opcode, ours, |r| of(&r.request) == of(ours))
            }
            Opcode::MDS_GET_ROOT => self.again(opcode, ours, |_| true),
            Opcode::MDS_STATFS => self.again(opcode, ours, |r| r.request.is_empty()),
            Opcode::FLD_QUERY => self.again(opcode, ours, |r| r.request == ours).or_else(|| {
                let mut range: SeqRange = get(ours, 1)?;
                range.end = range.start + 1;
                range.index = u32::from(OF_MDT_1.contains(&range.start));
                Some(Answer { buffers: vec![range.to_bytes(LITTLE)], ..Answer::default() })
            }),
            Opcode::MDS_GETATTR => {
                let asked: MdtBody = get(ours, 0)?;
                if asked.valid.contains(Valid::DEFAULT_MEA) {
                    return self.dir_default(asked.fid1);
                }
                if asked.valid.contains(Valid::LINKNAME) {
                    return self.again(opcode, ours, |r| {
                        let body: Option<MdtBody> = get(&r.request, 0);
                        body.is_some_and(|body| {
                            body.fid1 == asked.fid1 && body.valid.contains(Valid::LINKNAME)
                        })
                    });
                }
                self.with_layout_made(asked.fid1, self.by_fid(asked.fid1)?)
            }
            Opcode::MDS_GETATTR_NAME => {
                let asked: MdtBody = get(ours, 0)?;
                self.lookup(asked.fid1, &name_of(ours, 2))
            }
            Opcode::MDS_READPAGE => {
                let asked: MdtBody = get(ours, 0)?;
                self.again(opcode, ours, |r| {
                    let body: Option<MdtBody> = get(&r.request, 0);
                    body.is_some_and(|b| (b.fid1, b.size) == (asked.fid1, asked.size))
                })
            }
            Opcode::LDLM_ENQUEUE => self.lock(ours),
            Opcode::LDLM_CANCEL => Some(Answer::default()),
            Opcode::MDS_CLOSE => {
                let of = |buffers: &[Vec<u8>]| {
                    let (epoch, record): (Epoch, SetattrRecord) =
                        (get(buffers, 0)?, get(buffers, 1)?);
                    Some((epoch.handle, record.fid, record.valid.is_empty()))
                };
                let same = self.again(opcode, ours, |r| of(&r.request) == of(ours));
                let body = || MdtBody::default().to_bytes(LITTLE);
                Some(same.unwrap_or_else(|| Answer { buffers: vec![body()], ..Answer::default() }))
            }
            Opcode::OST_GETATTR => {
                let asked: Obdo = get(ours, 0)?;
                let Lvb { size, mtime, atime, ctime, blocks, .. } = self.size(asked.id)?;
                let valid = Valid::ID | Valid::SIZE | Valid::BLOCKS;
                let id = asked.id;
                let body = Obdo { valid, id, size, mtime, atime, ctime, blocks, ..Obdo::default() };
                Some(Answer { buffers: vec![body.to_bytes(LITTLE)], ..Answer::default() })
            }
            Opcode::OST_READ => {
                let asked: Obdo = get(ours, 0)?;
                self.read(ours, self.size(asked.id)?.size)
            }
            _ => None,
        }
    }

    fn lock(&self, ours: &[Vec<u8>]) -> Option<Answer> {
        let asked = LockRequest::parse(LITTLE, ours.first()?).ok()?;
        if get::<Intent>(ours, 1) == Some(Intent::LAYOUT) {
            let of = |buffers: &[Vec<u8>]| {
                let lock = LockRequest::parse(LITTLE, buffers.first()?).ok()?;
                let wanted: LayoutIntent = get(buffers, 2)?;
                (get::<Intent>(buffers, 1)? == Intent::LAYOUT).then_some((
                    lock.desc.resource,
                    wanted.opcode,
                    wanted.start,
                    wanted.end,
                ))
            };
            let made = self.again(Opcode::LDLM_ENQUEUE, ours, |r| of(&r.request) == of(ours))?;
            if let Some(layout) = made.buffers.get(1) {
                let mut all = self.made.lock().expect("no panic");
                all.insert(asked.desc.resource.words, layout.clone());
            }
            return Some(made);
        }
        let Some(record) = get::<CreateRecord>(ours, 2) else {
            let lvb = self.lvb(asked.desc.resource, LockKind::IBITS)?;
            let lock = LockReply::default().to_bytes(LITTLE);
            return Some(Answer {
                status: 301,
                buffers: vec![lock, lvb.to_bytes(LITTLE)],
                ..Answer::default()
            });
        };
        let name = name_of(ours, 5);
        if get::<Intent>(ours, 1).is_some_and(|intent| intent.contains(Intent::CREAT)) {
            let makes = |recorded: &Recorded| {
                Self::intent(recorded).is_some_and(|(intent, dir, called, _)| {
                    let here = (dir, called) == (record.head.fid1, name.clone());
                    intent.contains(Intent::CREAT) && here
                })
            };
            let alike = |recorded: &Recorded| {
                let flags = get::<CreateRecord>(&recorded.request, 2).map(|r| r.flags_low);
                makes(recorded) && flags == Some(record.flags_low)
            };
            if let Some(made) = self.latest(alike) {
                return self.again(Opcode::LDLM_ENQUEUE, ours, |r| r.frame == made.frame);
            }
            // Made for something else.
            let Recorded { status, reply, .. } = self.latest(makes)?;
            let buffers = reply.clone();
            return Some(Answer { status: *status, buffers, ..Answer::default() });
        }
        // Without a name it is the file itself, whose name is on another target (C-110).
        let shown = match name.is_empty() {
            true => self.by_fid(record.head.fid1)?,
            false => self.lookup(record.head.fid1, &name)?,
        };
        let file = get::<MdtBody>(&shown.buffers, 0)?.fid1;
        let opened = self.latest(|recorded| {
            Self::intent(recorded).is_some_and(|(intent, _, _, lock)| {
                intent == Intent::OPEN
                    && Disposition::from_bits_retain(lock.policy_res1).contains(Disposition::OPENED)
                    && get::<MdtBody>(&recorded.reply, 1).is_some_and(|body| body.fid1 == file)
            })
        });
        if let Some(opened) = opened {
            return self.again(Opcode::LDLM_ENQUEUE, ours, |r| r.frame == opened.frame);
        }
        // No recorded client has opened it.
        let found = Disposition::EXECUTED | Disposition::POSITIVE | Disposition::OPENED;
        let lock = LockReply { policy_res1: found.bits(), ..LockReply::default() };
        let mut buffers = vec![lock.to_bytes(LITTLE)];
        buffers.extend(shown.buffers);
        Some(Answer { status: 301, buffers, ..Answer::default() })
    }
}

impl Wire for &Archive {
    type Link = ImportKind;

    fn link(&self, config: ImportConfig) -> Result<ImportKind, CallError> {
        Ok(config.kind)
    }

    fn connect(&self, _: &ImportKind) {}

    async fn call(&self, _: &ImportKind, call: Call, moved: Moved) -> End {
        let unknown = Answer { status: Errno::EOPNOTSUPP.negative(), ..Answer::default() };
        let (sent, room) = match moved {
            Moved::Nothing => (Vec::new(), 0),
            Moved::Read(room) => (Vec::new(), room as usize),
            Moved::Write(bytes) => (bytes, 0),
        };
        let ours: Vec<Vec<u8>> = call.buffers.iter().map(<[u8]>::to_vec).collect();
        let answer = self.answer_to(call.opcode, &ours, &sent);
        answer.unwrap_or(unknown).end(&call, sent, room)
    }

    async fn handle(&self, _: &ImportKind, _: CallId) -> Option<u64> {
        None
    }

    async fn pause(&self, _: u32) {}

    fn now(&self) -> i64 {
        NOW
    }

    async fn terms(&self, _: &ImportKind) -> ConnectData {
        let flags = ConnectFlags::BRW_SIZE
            | ConnectFlags::IMP_RECOV
            | ConnectFlags::SRVLOCK
            | ConnectFlags::UMASK
            | ConnectFlags::SHORTIO;
        ConnectData { flags, brw_size: 1 << 20, ..ConnectData::default() }
    }

    async fn close(&self, _: &ImportKind) {}
}
