//! The client of an object target: calls that wait for their end, without a cache and without locks of
//! its own. What goes over the wire stands in `lustre_target::ost::wire`.

use std::thread;
use std::time::Duration;

use lnet_rt::{Errno, Nid};
use lnet_types::ByteOrder;
use lustre_target::ost::wire;
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ost::{NiobufFlags, Obdo, ObdoFlags, Statfs};
use lustre_wire::{Checksum, ImportKind, Layout, Opcode};
use ptlrpc::{Call, CallError, Direction, ImportConfig, Reply};

use crate::node::{Import, RpcError, RpcNode};

/// Bytes of one data request.
const CHUNK: usize = 4 << 20;
/// How often a data request is made again (L-93).
const RETRIES: u32 = 10;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjError {
    /// The call failed.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// A range could not be written.
    #[error("not written: {0}")]
    Range(Errno),
    /// The data is not what its checksum says, however often it was sent.
    #[error("checksum {have:#010x}: expected {expected:#010x}")]
    Checksum {
        /// Of the data that is here.
        have: u32,
        /// That the target said.
        expected: u32,
    },
    /// The target answered with something that is no reply of its kind.
    #[error("bad reply: {0}")]
    BadReply(&'static str),
}

/// What an object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjInfo {
    /// Bytes up to its end.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Permissions and type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change of data, seconds since 1970; 0 if no client has said one.
    pub mtime: i64,
    /// Transaction of the last change.
    pub version: u64,
}

/// Space of a target, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjSpace {
    /// In all.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Free, and promised to no client.
    pub available: u64,
}

/// A client of an object target. Each call waits until it is answered: a server that is dead or
/// restarts is waited for, unless there is a limit. The server takes the locks (L-50), and what was
/// written survives it when the call has ended.
#[derive(Clone, Debug)]
pub struct ObjClient {
    import: Import,
    limit: Option<Duration>,
    checksum: Checksum,
}

impl ObjClient {
    /// A client of `target`, which one of `nids` serves. It connects with its first call. No other
    /// client has the same `uuid`.
    ///
    /// # Errors
    /// A uuid that is empty or too long, no NID.
    pub fn new(rpc: &RpcNode, target: &str, uuid: &str, nids: Vec<Nid>) -> Result<Self, RpcError> {
        let import = rpc.import(ImportConfig {
            kind: ImportKind::Osc,
            target: target.to_owned(),
            client: uuid.to_owned(),
            nids,
            wanted: wire::wanted(),
        })?;
        Ok(Self::over(import, None))
    }

    /// One over a connection that there is.
    pub(crate) const fn over(import: Import, limit: Option<Duration>) -> Self {
        Self { import, limit, checksum: Checksum::Crc32c }
    }

    /// The same client, whose calls fail when they are not answered after so long.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The connection.
    pub const fn import(&self) -> &Import {
        &self.import
    }

    fn run(&self, call: Call) -> Result<Reply, ObjError> {
        let call = Call { limit: self.limit, ..call };
        Ok(self.import.call(call)?.blocking().0?)
    }

    /// Makes one more object, and names it.
    ///
    /// # Errors
    /// Why there is no answer, or the target's refusal.
    pub fn create(&self) -> Result<ObjectId, ObjError> {
        Ok(body(&self.run(wire::create(ObjectId::old(0)))?)?.id)
    }

    /// What an object has.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist, and as [`ObjClient::create`].
    pub fn stat(&self, id: ObjectId) -> Result<ObjInfo, ObjError> {
        let body = body(&self.run(wire::get_attributes(id))?)?;
        let Obdo { size, blocks, mode, uid, gid, mtime, data_version, .. } = body;
        Ok(ObjInfo { size, blocks, mode, uid, gid, mtime, version: data_version })
    }

    /// Cuts an object off at `size`, or extends it with zeros.
    ///
    /// # Errors
    /// As [`ObjClient::stat`].
    pub fn punch(&self, id: ObjectId, size: u64) -> Result<(), ObjError> {
        self.run(wire::punch(id, size)).map(|_| ())
    }

    /// Waits until everything that was done before survives the server; `None`: on the whole target.
    ///
    /// # Errors
    /// As [`ObjClient::stat`].
    pub fn sync(&self, id: Option<ObjectId>) -> Result<(), ObjError> {
        self.run(wire::sync(id)).map(|_| ())
    }

    /// Removes `count` objects from this one on, as far as they exist.
    ///
    /// # Errors
    /// `ENOENT` if none of them exists, and as [`ObjClient::create`].
    pub fn remove(&self, id: ObjectId, count: u32) -> Result<(), ObjError> {
        self.run(wire::destroy(id, count)).map(|_| ())
    }

    /// The highest number that an object of old has had.
    ///
    /// # Errors
    /// As [`ObjClient::create`].
    pub fn last(&self) -> Result<u64, ObjError> {
        let reply = self.run(wire::last_id())?;
        let last = reply.msg().ok().and_then(|msg| msg.get::<u64>(1).ok());
        last.ok_or(ObjError::BadReply("expected a number"))
    }

    /// The space of the target.
    ///
    /// # Errors
    /// As [`ObjClient::create`].
    pub fn space(&self) -> Result<ObjSpace, ObjError> {
        let reply = self.run(wire::statfs())?;
        let space = reply.msg().ok().and_then(|msg| msg.get::<Statfs>(1).ok());
        let space = space.ok_or(ObjError::BadReply("expected the space of a target"))?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.bsize.into());
        let (total, free, available) =
            (bytes(space.blocks), bytes(space.bfree), bytes(space.bavail));
        Ok(ObjSpace { total, free, available })
    }

    /// Writes bytes from `offset` on. A part of them may be there if it fails.
    ///
    /// # Errors
    /// [`ObjError::Range`] with `ENOSPC` if there is no space, [`ObjError::Checksum`], and as
    /// [`ObjClient::stat`].
    pub fn write(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<(), ObjError> {
        let mut at = offset;
        for part in chunks(offset, bytes) {
            self.retried(|again| self.write_part(id, at, part, again))?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Reads up to `len` bytes from `offset` on. Fewer come back where the object ends, with zeros up to
    /// the end of its last page.
    ///
    /// # Errors
    /// [`ObjError::Checksum`], and as [`ObjClient::stat`].
    pub fn read(&self, id: ObjectId, offset: u64, len: usize) -> Result<Vec<u8>, ObjError> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            let here = (len - bytes.len()).min(CHUNK - (at % CHUNK as u64) as usize);
            let part = self.retried(|again| self.read_part(id, at, here, again))?;
            let short = part.len() < here;
            bytes.extend(part);
            if short {
                break;
            }
        }
        Ok(bytes)
    }

    /// L-93: waits longer each time, and says that the request was made before.
    fn retried<T>(&self, part: impl Fn(bool) -> Result<T, ObjError>) -> Result<T, ObjError> {
        let mut retries = 0;
        loop {
            let failed = match part(retries > 0) {
                Err(e) if may_retry(&e) && retries < RETRIES => e,
                end => return end,
            };
            retries += 1;
            let pause = Duration::from_secs(retries.into());
            if self.limit.is_some_and(|limit| pause > limit) {
                return Err(failed);
            }
            thread::sleep(pause);
        }
    }

    fn write_part(
        &self,
        id: ObjectId,
        offset: u64,
        part: &[u8],
        again: bool,
    ) -> Result<(), ObjError> {
        let inline = part.len() <= wire::INLINE_MAX as usize;
        let have = self.checksum.of(part);
        let mut asked = wire::data_body(id, inline, Some(self.checksum), have);
        asked.flags.set(ObdoFlags::RECOV_RESEND, again);
        // A part is at most a chunk.
        let ranges = [wire::range(offset, part.len() as u32, NiobufFlags::WRITE)];
        let call = wire::data(Opcode::OST_WRITE, &asked, &ranges, inline.then_some(part));
        let reply = if inline {
            self.run(call)?
        } else {
            let call = Call { limit: self.limit, ..call };
            let done = self.import.call_with(call, Direction::Write, part.to_vec())?;
            done.blocking().0?
        };
        let results = reply.msg().ok().and_then(|msg| {
            let words = msg.buffer(2)?.chunks(4);
            let result = words.map(|word| i32::get(ByteOrder::Little, word)).find(|r| *r < 0);
            Some(result.unwrap_or(0))
        });
        match results.ok_or(ObjError::BadReply("expected results of ranges"))? {
            0 => self.compare(&body(&reply)?, have),
            errno => Err(ObjError::Range(Errno(errno.saturating_neg()))),
        }
    }

    fn read_part(
        &self,
        id: ObjectId,
        offset: u64,
        len: usize,
        again: bool,
    ) -> Result<Vec<u8>, ObjError> {
        let inline = len <= wire::INLINE_MAX as usize;
        let mut asked = wire::data_body(id, inline, Some(self.checksum), 0);
        asked.flags.set(ObdoFlags::RECOV_RESEND, again);
        let ranges = [wire::range(offset, len as u32, NiobufFlags::READ)];
        let call =
            wire::data(Opcode::OST_READ, &asked, &ranges, if inline { Some(&[]) } else { None });
        let (reply, mut bytes) = if inline {
            let reply = self.run(call)?;
            let bytes = reply.msg().ok().and_then(|msg| Some(msg.buffer(2)?.to_vec()));
            (reply, bytes.ok_or(ObjError::BadReply("expected data"))?)
        } else {
            let call = Call { limit: self.limit, ..call };
            let (end, buffer) =
                self.import.call_with(call, Direction::Read, vec![0; len])?.blocking();
            let buffer = buffer.ok_or(ObjError::BadReply("expected bulk data"));
            (end?, buffer?.to_vec())
        };
        let moved = usize::try_from(reply.status).ok().filter(|moved| *moved <= bytes.len());
        bytes.truncate(moved.ok_or(ObjError::BadReply("expected no more bytes than wanted"))?);
        self.compare(&body(&reply)?, self.checksum.of(&bytes))?;
        Ok(bytes)
    }

    /// Compares the checksum that a target says, if it says one of our kind.
    fn compare(&self, body: &Obdo, have: u32) -> Result<(), ObjError> {
        let ours = body.flags.checksum() == self.checksum.number();
        if !body.valid.contains(Valid::CKSUM) || !ours || body.nlink == have {
            return Ok(());
        }
        Err(ObjError::Checksum { have, expected: body.nlink })
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn disconnect(self) -> Result<(), lnet_rt::OpError> {
        self.import.disconnect()
    }
}

fn may_retry(e: &ObjError) -> bool {
    let retried = [Errno::EIO, Errno::EROFS, Errno::ENOMEM, Errno::EAGAIN];
    match e {
        ObjError::Checksum { .. } => true,
        ObjError::Range(errno) | ObjError::Rpc(RpcError::Call(CallError::Refused(errno))) => {
            retried.contains(errno)
        }
        _ => false,
    }
}

fn body(reply: &Reply) -> Result<Obdo, ObjError> {
    let body = reply.msg().ok().and_then(|msg| msg.get::<Obdo>(1).ok());
    body.ok_or(ObjError::BadReply("expected attributes of an object"))
}

/// Bytes in parts that end on borders of a chunk.
fn chunks(offset: u64, mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut first = CHUNK - (offset % CHUNK as u64) as usize;
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let (part, rest) = bytes.split_at(first.min(bytes.len()));
        (bytes, first) = (rest, CHUNK);
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_on_borders_of_chunks() {
        let bytes = vec![0; 2 * CHUNK + 5];
        let lens = |offset| chunks(offset, &bytes).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lens(0), [CHUNK, CHUNK, 5]);
        assert_eq!(lens(10), [CHUNK - 10, CHUNK, 15]);
        assert_eq!(chunks(3, &[]).count(), 0);
    }

    #[test]
    fn only_errors_that_may_pass_are_retried() {
        assert!(may_retry(&ObjError::Checksum { have: 1, expected: 2 }));
        assert!(may_retry(&ObjError::Range(Errno::EIO)));
        assert!(!may_retry(&ObjError::Range(Errno::ENOSPC)));
        let refused = |errno| ObjError::Rpc(RpcError::Call(CallError::Refused(errno)));
        assert!(may_retry(&refused(Errno::EAGAIN)));
        assert!(!may_retry(&refused(Errno::ENOENT)));
    }
}
