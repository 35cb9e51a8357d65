//! What is asked of an object target, read and checked (L-72, L-73, L-76, L-88). Everything in a
//! request may be anything.

use lnet_types::Errno;
use lustre_wire::fid::{Fid, ObjectId, Valid};
use lustre_wire::ost::{IoObj, Niobuf, NiobufFlags, Obdo, ObdoFlags};
use lustre_wire::{Checksum, Layout, Msg, Opcode, Portal};

use super::name::Name;
use crate::store::{DATA_END, WRITE_MAX};

/// Most ranges of one request.
pub(super) const RANGES_MAX: usize = 16_384;
/// Most bytes inside of a message.
pub(super) const INLINE_MAX: u64 = 16 << 10;
/// Ranges begin and end on borders of so many bytes, but for the first and the last.
pub(crate) const PAGE: u64 = 4096;

/// Operations whose first buffer is the attributes of an object.
const OF_OBJECTS: [Opcode; 8] = [
    Opcode::OST_GETATTR,
    Opcode::OST_SETATTR,
    Opcode::OST_READ,
    Opcode::OST_WRITE,
    Opcode::OST_CREATE,
    Opcode::OST_DESTROY,
    Opcode::OST_PUNCH,
    Opcode::OST_SYNC,
];

/// Ranges of an object that are read or written.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    pub(crate) list: Vec<Niobuf>,
    /// Bytes of all.
    pub(crate) len: u64,
    /// The data is inside of the messages.
    pub(crate) inline: bool,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    GetAttr,
    SetAttr,
    Punch,
    /// An object, or the whole target.
    Sync(bool),
    Create,
    Destroy,
    Statfs,
    /// The last number of a sequence; as a FID if that is asked for.
    Last(Option<Fid>),
    /// Promises are given back.
    Shrink,
    Read(Ranges),
    /// With the bytes that are inside of the message.
    Write(Ranges, Vec<u8>),
    /// A lock on an object.
    Lock,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) body: Obdo,
    /// Its object, or the sequence of one; of no meaning if the request names none.
    pub(super) name: Name,
    pub(crate) ask: Ask,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Errno(Errno),
    /// No answer at all.
    Drop,
}

impl Ranges {
    /// Whether the server takes the lock.
    pub(crate) fn server_locks(&self) -> bool {
        self.list.iter().all(|range| range.flags.contains(NiobufFlags::SRVLOCK))
    }

    /// From the first byte to behind the last.
    pub(crate) fn span(&self) -> (u64, u64) {
        let start = self.list.first().map_or(0, |range| range.offset);
        let end = self.list.last().map_or(0, |range| range.offset + u64::from(range.len));
        (start, end)
    }
}

impl Request {
    /// How the data of a request is summed up, if it is to be (L-94).
    pub(crate) fn checksum(&self) -> Option<Checksum> {
        let wanted = self.body.valid.contains(Valid::CKSUM);
        let flagged = self.body.valid.contains(Valid::FLAGS);
        let number = if flagged { self.body.flags.checksum() } else { 0 };
        wanted.then(|| Checksum::of_number(number))
    }

    /// Whether a flag is set, and valid.
    pub(crate) fn has(&self, flag: ObdoFlags) -> bool {
        self.body.valid.contains(Valid::FLAGS) && self.body.flags.contains(flag)
    }
}

/// Reads a request that came to a portal.
pub(super) fn read(opcode: Opcode, msg: &Msg<'_>, portal: u32) -> Result<Request, Refusal> {
    read_at(opcode, msg, portal == Portal::OST_IO.0)
}

/// Reads a request. `io`: it came to a portal of data, which metadata targets have as well (C-220).
pub(crate) fn read_at(opcode: Opcode, msg: &Msg<'_>, io: bool) -> Result<Request, Refusal> {
    parse(opcode, msg, io).map_err(|errno| {
        // L-76: at this portal there is no answer to what can't be queued.
        let malformed = errno == Errno::EPROTO || errno == Errno::EFAULT;
        if io && malformed { Refusal::Drop } else { Refusal::Errno(errno) }
    })
}

fn parse(opcode: Opcode, msg: &Msg<'_>, io: bool) -> Result<Request, Errno> {
    if opcode == Opcode::OST_STATFS {
        let name = Name { seq: 0, id: 0 };
        return Ok(Request { body: Obdo::default(), name, ask: Ask::Statfs });
    }
    if opcode == Opcode::OST_GET_INFO {
        return information(msg);
    }
    if opcode == Opcode::OST_SET_INFO {
        let key = msg.buffer(1).ok_or(Errno::EFAULT)?;
        if text(key) != b"grant_shrink" {
            return Err(Errno::EOPNOTSUPP);
        }
        let body = msg.get::<Obdo>(2).map_err(|_| Errno::EFAULT)?;
        return Ok(Request { body, name: Name { seq: 0, id: 0 }, ask: Ask::Shrink });
    }
    if !OF_OBJECTS.contains(&opcode) {
        return Err(Errno::EOPNOTSUPP);
    }
    let body = msg.get::<Obdo>(1).map_err(|_| Errno::EFAULT)?;
    let name = Name::of(body.id);
    let ask = match opcode {
        Opcode::OST_GETATTR => Ask::GetAttr,
        Opcode::OST_SETATTR => Ask::SetAttr,
        Opcode::OST_PUNCH => Ask::Punch,
        Opcode::OST_SYNC => Ask::Sync(name.is_some_and(|name| name.id != 0)),
        Opcode::OST_CREATE => Ask::Create,
        Opcode::OST_DESTROY => Ask::Destroy,
        Opcode::OST_READ => Ask::Read(ranges(msg, &body, io)?),
        Opcode::OST_WRITE => {
            let ranges = ranges(msg, &body, io)?;
            let data = if ranges.inline { msg.buffer(5).unwrap_or_default() } else { &[] };
            if ranges.inline && data.len() as u64 != ranges.len {
                return Err(Errno::EPROTO);
            }
            Ask::Write(ranges, data.to_vec())
        }
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let name = name.ok_or(Errno::EPROTO)?;
    // A create names what it has, and a sync may be of the whole target.
    if !matches!(ask, Ask::Create | Ask::Sync(_))
        && (name.id == 0 || !body.valid.contains(Valid::ID))
    {
        return Err(Errno::EPROTO);
    }
    let request = Request { body, name, ask };
    match request.ask {
        // L-80, L-79.
        Ask::Punch if !request.body.valid.contains(Valid::SIZE | Valid::BLOCKS) => {
            Err(Errno::EPROTO)
        }
        Ask::Punch if request.body.blocks != u64::MAX => Err(Errno::EOPNOTSUPP),
        Ask::Punch if request.body.size > DATA_END => Err(Errno::EINVAL),
        Ask::SetAttr
            if request.body.valid.contains(Valid::SIZE) && request.body.size != u64::MAX =>
        {
            Err(Errno::EPERM)
        }
        _ => Ok(request),
    }
}

fn text(key: &[u8]) -> &[u8] {
    key.split(|b| *b == 0).next().unwrap_or_default()
}

/// L-85.
fn information(msg: &Msg<'_>) -> Result<Request, Errno> {
    let key = msg.buffer(1).ok_or(Errno::EFAULT)?;
    let (id, fid) = match text(key) {
        b"last_id" => (ObjectId::old(0), None),
        b"last_fid" => {
            let fid = msg.get::<Fid>(2).map_err(|_| Errno::EFAULT)?;
            (ObjectId::of(fid), Some(fid))
        }
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let name = Name::of(id).ok_or(Errno::EPROTO)?;
    Ok(Request { body: Obdo::default(), name, ask: Ask::Last(fid) })
}

/// The object and the ranges of a data request.
fn ranges(msg: &Msg<'_>, body: &Obdo, io: bool) -> Result<Ranges, Errno> {
    // L-87.
    if !io {
        return Err(Errno::EPROTO);
    }
    let object = msg.buffer(2).ok_or(Errno::EPROTO)?;
    let object = IoObj::parse_exact(msg.order, object).map_err(|_| Errno::EPROTO)?;
    let pieces = (object.max_brw >> 16) + 1;
    let count = object.count as usize;
    let list = msg.buffer(3).ok_or(Errno::EPROTO)?;
    if !pieces.is_power_of_two()
        || object.id != body.id
        || count == 0
        || count > RANGES_MAX
        || list.len() != count * Niobuf::LEN
    {
        return Err(Errno::EPROTO);
    }
    let list: Vec<_> = list.chunks(Niobuf::LEN).map(|b| Niobuf::get(msg.order, b)).collect();
    let (mut end, mut len) = (0, 0);
    for (i, range) in list.iter().enumerate() {
        let here = u64::from(range.len);
        let to = range.offset.checked_add(here).ok_or(Errno::EPROTO)?;
        // Well formed, but beyond what an object of this target has.
        if to > DATA_END {
            return Err(Errno::EFBIG);
        }
        let first = i == 0 || range.offset.is_multiple_of(PAGE);
        let last = i + 1 == count || to.is_multiple_of(PAGE);
        if here == 0 || range.offset < end || !first || !last {
            return Err(Errno::EPROTO);
        }
        (end, len) = (to, len + here);
    }
    let inline = body.valid.contains(Valid::FLAGS) && body.flags.contains(ObdoFlags::SHORT_IO);
    if len > WRITE_MAX || inline && (count != 1 || len > INLINE_MAX) {
        return Err(Errno::EPROTO);
    }
    let locked = list.iter().filter(|range| range.flags.contains(NiobufFlags::SRVLOCK)).count();
    if locked != 0 && locked != count {
        return Err(Errno::EFAULT);
    }
    Ok(Ranges { list, len, inline })
}
