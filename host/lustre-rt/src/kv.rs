//! The client of a key-value target: calls that wait for their end. What goes over the wire stands in
//! `lustre_target::kv::wire`.

use std::time::Duration;

use lnet_rt::{Errno, Nid};
use lustre_target::kv::wire::{
    Ask, Entry, INLINE_MAX, Info, InfoFlags, Operation, VALUE_MAX, call, read_listing,
};
use lustre_wire::ImportKind;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use ptlrpc::{Call, CallError, Direction, ImportConfig, Reply};

use crate::node::{Import, RpcError, RpcNode};

/// What a target with a store offers, and its clients want.
pub(crate) fn offer() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The call failed.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The target answered with something that is no reply of its kind.
    #[error("bad reply: {0}")]
    BadReply(&'static str),
}

/// A client of a key-value target. Each call waits until it is answered: a server that is dead or
/// restarts is waited for, unless there is a limit.
#[derive(Clone, Debug)]
pub struct KvClient {
    import: Import,
    limit: Option<Duration>,
}

impl KvClient {
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
            wanted: offer(),
        })?;
        Ok(Self { import, limit: None })
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

    fn run(&self, call: Call) -> Result<(Info, Reply), KvError> {
        let call = Call { limit: self.limit, ..call };
        Self::info(self.import.call(call)?.blocking().0?)
    }

    fn info(reply: Reply) -> Result<(Info, Reply), KvError> {
        let info = reply.msg().ok().and_then(|msg| Info::of(&msg));
        Ok((info.ok_or(KvError::BadReply("expected 32 bytes of information"))?, reply))
    }

    fn write(
        &self,
        operation: Operation,
        expect: u64,
        key: &[u8],
        value: Vec<u8>,
    ) -> Result<Info, KvError> {
        if value.len() <= INLINE_MAX {
            let ask = Ask { expect, len: 0 };
            return Ok(self.run(call(operation, ask, key, &value))?.0);
        }
        let ask = Ask { expect, len: value.len() as u64 };
        let call = Call { limit: self.limit, ..call(operation, ask, key, &[]) };
        let (end, _) = self.import.call_with(call, Direction::Write, value)?.blocking();
        Ok(Self::info(end?)?.0)
    }

    /// Stores a value of at most 64 MiB. The reply has the version of the key, and the one before.
    ///
    /// # Errors
    /// Why there is no answer, or the target's refusal.
    pub fn put(&self, key: &[u8], value: impl Into<Vec<u8>>) -> Result<Info, KvError> {
        self.write(Operation::Put, 0, key, value.into())
    }

    /// Stores a value if the key has version `expect` (0: if it does not exist). The reply has
    /// [`InfoFlags::APPLIED`], or the version that the key has.
    ///
    /// # Errors
    /// As [`KvClient::put`].
    pub fn cas(&self, key: &[u8], value: impl Into<Vec<u8>>, expect: u64) -> Result<Info, KvError> {
        self.write(Operation::Cas, expect, key, value.into())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist, and as [`KvClient::put`].
    pub fn del(&self, key: &[u8]) -> Result<Info, KvError> {
        Ok(self.run(call(Operation::Del, Ask::default(), key, &[]))?.0)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// `ENOENT` if the key does not exist, and as [`KvClient::put`].
    pub fn get(&self, key: &[u8]) -> Result<(Info, Vec<u8>), KvError> {
        let get = |len| call(Operation::Get, Ask { expect: 0, len }, key, &[]);
        loop {
            let (info, reply) = self.run(get(0))?;
            if !info.flags.contains(InfoFlags::LARGE) {
                let msg = reply.msg().map_err(|_| KvError::BadReply("expected a message"))?;
                return Ok((info, msg.buffer(2).unwrap_or_default().to_vec()));
            }
            if info.len > VALUE_MAX {
                return Err(KvError::BadReply("expected a value of at most 64 MiB"));
            }
            let call = Call { limit: self.limit, ..get(info.len) };
            let room = vec![0; info.len as usize];
            let (end, buffer) = self.import.call_with(call, Direction::Read, room)?.blocking();
            match end {
                Ok(reply) => {
                    let value = buffer.ok_or(KvError::BadReply("expected bulk data"))?;
                    return Ok((Self::info(reply)?.0, value.to_vec()));
                }
                // It was replaced by one of another length meanwhile.
                Err(RpcError::Call(CallError::Refused(Errno::ESTALE))) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Keys above `after` that begin with `prefix`, at most `max`, and whether there are more.
    ///
    /// # Errors
    /// As [`KvClient::put`].
    pub fn list(
        &self,
        prefix: &[u8],
        after: &[u8],
        max: u64,
    ) -> Result<(Vec<Entry>, bool), KvError> {
        let ask = Ask { expect: 0, len: max };
        let (info, reply) = self.run(call(Operation::List, ask, after, prefix))?;
        let msg = reply.msg().map_err(|_| KvError::BadReply("expected a message"))?;
        let entries = read_listing(msg.buffer(2).unwrap_or_default());
        let entries = entries.ok_or(KvError::BadReply("expected a listing"))?;
        Ok((entries, info.flags.contains(InfoFlags::MORE)))
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn disconnect(self) -> Result<(), lnet_rt::OpError> {
        self.import.disconnect()
    }
}
