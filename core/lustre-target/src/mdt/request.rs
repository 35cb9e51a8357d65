//! What is asked of a metadata target, read and checked (C-56 … C-60, C-74, C-102, C-111 … C-113).
//! Everything in a request may be anything.

use lnet_types::Errno;
use lustre_wire::fid::{SeqOp, SeqRange, Valid};
use lustre_wire::format::Variant;
use lustre_wire::ldlm::{Intent, LockRequest};
use lustre_wire::mds::{
    CreateRecord, Epoch, MdtBody, NameRecord, Record, ReintOp, SetattrRecord, SetxattrRecord,
};
use lustre_wire::{Fid, Msg, Opcode};
use ptlrpc::Served;

use super::across::{Message, OPCODE};

/// Longest name.
const NAME_MAX: usize = 255;
/// Longest text of a symbolic link.
pub(super) const TEXT_MAX: usize = 4095;

/// A change of names or attributes.
#[derive(Clone, Debug)]
pub(super) enum Reint {
    /// With the text of a symbolic link, or a layout.
    Create(CreateRecord, Vec<u8>, Vec<u8>),
    Link(NameRecord, Vec<u8>),
    Unlink(NameRecord, Vec<u8>),
    /// From the first name to the second.
    Rename(NameRecord, Vec<u8>, Vec<u8>),
    Setattr(SetattrRecord),
    Setxattr(SetxattrRecord, Vec<u8>, Vec<u8>),
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// The root, or the directory of a path.
    Root(Vec<u8>),
    Statfs,
    /// A file by its FID.
    GetAttr(MdtBody),
    /// A name in a directory.
    Lookup(MdtBody, Vec<u8>),
    Pages(MdtBody),
    GetXattr(MdtBody, Vec<u8>),
    Close(Epoch, SetattrRecord),
    Sync,
    Sequence,
    Locate(u64),
    Reint(Reint),
    /// With name and layout.
    Open(CreateRecord, Vec<u8>, Vec<u8>),
    /// An intent for attributes, by name or FID.
    Intent(MdtBody, Vec<u8>),
    /// The layout of a file.
    Layout(Fid),
    /// All extended attributes.
    AllXattrs(MdtBody),
    /// Of another metadata target.
    Across(Message),
}

/// A request, and in which buffer it gives locks back beside.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) ask: Ask,
    pub(super) cancels: Option<usize>,
}

/// A name that a file may have.
///
/// # Errors
/// `ENAMETOOLONG`, `EINVAL`.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name.len() {
        0 => Err(Errno::EINVAL),
        _ if name.contains(&b'/') => Err(Errno::EINVAL),
        1..=NAME_MAX => Ok(()),
        _ => Err(Errno::ENAMETOOLONG),
    }
}

fn malformed<E>(_: E) -> Errno {
    Errno::EPROTO
}

fn text(msg: &Msg<'_>, index: usize) -> Result<Vec<u8>, Errno> {
    msg.text("name", index).map(<[u8]>::to_vec).map_err(malformed)
}

fn bytes(msg: &Msg<'_>, index: usize) -> Vec<u8> {
    msg.buffer(index).unwrap_or_default().to_vec()
}

fn reint(msg: &Msg<'_>, op: ReintOp) -> Result<(Reint, usize), Errno> {
    let record = Record::parse(msg.order, msg.buffer(1).unwrap_or_default()).map_err(malformed)?;
    Ok(match (record, op) {
        (Record::Create(record), ReintOp::CREATE) => {
            (Reint::Create(record, text(msg, 3)?, bytes(msg, 4)), 5)
        }
        (Record::Name(record), ReintOp::LINK) => (Reint::Link(record, text(msg, 4)?), 5),
        (Record::Name(record), ReintOp::UNLINK) => (Reint::Unlink(record, text(msg, 3)?), 4),
        (Record::Name(record), ReintOp::RENAME) => {
            (Reint::Rename(record, text(msg, 4)?, text(msg, 5)?), 6)
        }
        (Record::Setattr(record), ReintOp::SETATTR) => match bytes(msg, 4) {
            none if none.is_empty() => (Reint::Setattr(record), 6),
            layout => (default_layout(&record, layout), 6),
        },
        (Record::Setxattr(record), ReintOp::SETXATTR) => {
            (Reint::Setxattr(record, text(msg, 3)?, bytes(msg, 4)), 5)
        }
        _ => return Err(Errno::EOPNOTSUPP),
    })
}

/// A layout for the files of a directory comes with attributes that stay as they are: clients send it so
/// (C-199). It is what the attribute of this name says.
fn default_layout(record: &SetattrRecord, layout: Vec<u8>) -> Reint {
    let &SetattrRecord { cap, fsuid, fsgid, suppgid: suppgid1, fid, ctime: time, .. } = record;
    let set = SetxattrRecord {
        opcode: ReintOp::SETXATTR,
        cap,
        fsuid,
        fsgid,
        suppgid1,
        fid,
        valid: Valid::XATTR,
        time,
        ..SetxattrRecord::default()
    };
    Reint::Setxattr(set, b"trusted.lov".to_vec(), layout)
}

/// What an enqueue with an intent asks for.
fn intent(msg: &Msg<'_>, intent: Intent) -> Result<Ask, Errno> {
    if intent.intersects(Intent::OPEN | Intent::CREAT) {
        let record = Record::parse(msg.order, msg.buffer(3).unwrap_or_default());
        return match record.map_err(malformed)? {
            Record::Create(record) if record.head.opcode == ReintOp::OPEN => {
                Ok(Ask::Open(record, text(msg, 6)?, bytes(msg, 7)))
            }
            _ => Err(Errno::EPROTO),
        };
    }
    if intent.intersects(Intent::GETATTR | Intent::LOOKUP) {
        return Ok(Ask::Intent(msg.get(3).map_err(malformed)?, text(msg, 5)?));
    }
    match intent {
        Intent::GETXATTR => Ok(Ask::AllXattrs(msg.get(3).map_err(malformed)?)),
        Intent::LAYOUT => {
            let lock = LockRequest::of(msg, 1).map_err(malformed)?;
            let [seq, low, ..] = lock.desc.resource.words;
            Ok(Ask::Layout(Fid { seq, oid: low as u32, ver: (low >> 32) as u32 }))
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Reads a request; `None`: it is one for a lock and nothing else.
///
/// # Errors
/// `EPROTO` for what is not well formed, `EOPNOTSUPP` for what is not served here.
pub(super) fn read(served: &Served) -> Result<Option<Request>, Errno> {
    if served.opcode == OPCODE {
        return Ok(Some(Request { ask: Ask::Across(Message::of(served)?), cancels: None }));
    }
    let msg = served.msg().map_err(malformed)?;
    let variant = Variant::of(&msg, &served.body);
    if let Some(format) = variant.request(served.opcode) {
        format.check(&msg).map_err(malformed)?;
    }
    let body = || msg.get::<MdtBody>(1).map_err(malformed);
    let mut cancels = None;
    let ask = match (served.opcode, variant) {
        (Opcode::LDLM_ENQUEUE, Variant::Intent(bits)) => intent(&msg, bits)?,
        (Opcode::LDLM_ENQUEUE | Opcode::LDLM_CONVERT | Opcode::LDLM_CANCEL, _) => return Ok(None),
        (Opcode::MDS_REINT, Variant::Reint(op)) => {
            let (change, index) = reint(&msg, op)?;
            cancels = Some(index);
            Ask::Reint(change)
        }
        (Opcode::MDS_GET_ROOT, _) => match msg.buffer(2) {
            Some(_) => Ask::Root(text(&msg, 2)?),
            None => Ask::Root(Vec::new()),
        },
        (Opcode::MDS_STATFS, _) => Ask::Statfs,
        (Opcode::MDS_GETATTR, _) => Ask::GetAttr(body()?),
        (Opcode::MDS_GETATTR_NAME, _) => Ask::Lookup(body()?, text(&msg, 3)?),
        (Opcode::MDS_READPAGE, _) => Ask::Pages(body()?),
        (Opcode::MDS_GETXATTR, _) => {
            let name = if msg.buffer(3).is_some() { text(&msg, 3)? } else { Vec::new() };
            Ask::GetXattr(body()?, name)
        }
        (Opcode::MDS_CLOSE, _) => {
            let record = msg.buffer(2).unwrap_or_default();
            match Record::parse(msg.order, record).map_err(malformed)? {
                Record::Setattr(record) => Ask::Close(msg.get(1).map_err(malformed)?, record),
                _ => return Err(Errno::EPROTO),
            }
        }
        (Opcode::MDS_SYNC, _) => Ask::Sync,
        (Opcode::SEQ_QUERY, _) => match msg.get::<SeqOp>(1).map_err(malformed)? {
            SeqOp::META => Ask::Sequence,
            _ => return Err(Errno::EOPNOTSUPP),
        },
        (Opcode::FLD_QUERY, _) => match msg.get::<SeqOp>(1).map_err(malformed)? {
            SeqOp::LOOKUP => Ask::Locate(msg.get::<SeqRange>(2).map_err(malformed)?.start),
            _ => return Err(Errno::EOPNOTSUPP),
        },
        _ => return Err(Errno::EOPNOTSUPP),
    };
    Ok(Some(Request { ask, cancels }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c72_names_are_1_to_255_bytes_without_slash() {
        assert_eq!(check_name(b"a"), Ok(()));
        assert_eq!(check_name(&[0xff; 255]), Ok(()));
        assert_eq!(check_name(&[b'a'; 256]), Err(Errno::ENAMETOOLONG));
        assert_eq!(check_name(b""), Err(Errno::EINVAL));
        assert_eq!(check_name(b"a/b"), Err(Errno::EINVAL));
    }
}
