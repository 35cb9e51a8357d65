//! The body of a message (P-11): the first buffer of each, and what requests and replies are
//! matched, ordered and timed by.

use lnet_types::ByteOrder;

use crate::layout::{Text, codes, flags, layout};
use crate::opcode::{Opcode, Service};
use crate::{Layout, WireError};

codes! {
    /// What a message is.
    pub struct MsgKind(u32) {
        /// A request.
        REQUEST = 4711 "REQ",
        /// An error reply: the request did not reach its handler, or the service failed.
        ERROR = 4712 "ERR",
        /// A reply.
        REPLY = 4713 "REP",
    }
}

flags! {
    /// Flags of the body (P-13). Bits without a name are to be ignored.
    pub struct BodyFlags(u32) {
        /// The request was sent before.
        RESENT = 0x2, "RESENT";
        /// The request repeats an effect that the server may have lost.
        REPLAY = 0x4, "REPLAY";
        /// The client has repeated all its requests.
        REQ_REPLAY_DONE = 0x40, "REQ_REPLAY_DONE";
        /// The client has repeated all its locks.
        LOCK_REPLAY_DONE = 0x80, "LOCK_REPLAY_DONE";
        /// Reply: the client is banned.
        CLIENT_BANNED = 0x100, "CLIENT_BANNED";
        /// `uid` and `gid` are set.
        PACK_UID_GID = 0x200, "UID_GID";
        /// `projid` is set.
        PACK_PROJID = 0x400, "PROJID";
    }

    /// Flags of connect requests and their replies (P-14).
    pub struct OpFlags(u32) {
        /// Reply: the target is recovering.
        RECOVERING = 0x1, "RECOVERING";
        /// Reply: the client is known from before.
        RECONNECT = 0x2, "RECONNECT";
        /// Reply: the target keeps records of its clients.
        REPLAYABLE = 0x4, "REPLAYABLE";
        /// A client library of old; refused.
        LIBCLIENT = 0x10, "LIBCLIENT";
        /// Request: the client has no export yet.
        INITIAL = 0x20, "INITIAL";
        /// The newer version of the connect.
        NEXT_VER = 0x80, "NEXT_VER";
        /// Request: `transno` of the connect data is set.
        TRANSNO = 0x100, "TRANSNO";
    }
}

layout! {
    /// The body.
    pub struct Body("body", 184) {
        /// Server's cookie of the export; callbacks: client's cookie of the connection.
        0 handle: u64,
        /// What the message is.
        8 kind: MsgKind,
        /// [`Service`] and protocol version, [`Service::word`].
        12 version: u32,
        /// Operation.
        16 opcode: Opcode,
        /// Request: process id of the caller. Reply: result, a negative errno or a number whose
        /// meaning depends on the operation.
        20 status: i32,
        /// Request: all requests of the import up to this xid have been answered.
        24 last_xid: u64,
        /// Slot of a modifying request, 0 for none.
        32 tag: u16,
        /// Project id, with [`BodyFlags::PACK_PROJID`].
        36 projid: u32,
        /// Reply: highest transaction that is committed.
        40 last_committed: u64,
        /// Reply: transaction of the operation, 0 for none. Replay: transaction to be repeated.
        48 transno: u64,
        /// Flags.
        56 flags: BodyFlags,
        /// Flags of connects.
        60 op_flags: OpFlags,
        /// Request: counter of the client's connections. 0 in callbacks and replies.
        64 conn_cnt: u32,
        /// Request: seconds that the server has. Reply: the server's estimate.
        68 timeout: u32,
        /// Reply: seconds from arrival to reply. Connect and replay: an estimate of the client.
        72 service_time: u32,
        /// Reply: limit for the client's lock cache.
        76 limit: u32,
        /// Reply: server lock volume.
        80 slv: u64,
        /// Versions of the objects: before the change in replies, to be checked in replays.
        88 pre_versions: [u64; 4],
        /// Match bits of the last bulk descriptor, and of the reply.
        120 mbits: u64,
        /// Caller, with [`BodyFlags::PACK_UID_GID`].
        144 uid: u32,
        /// Group of the caller, with [`BodyFlags::PACK_UID_GID`].
        148 gid: u32,
        /// Job.
        152 jobid: Text<32>,
    }
}

impl Body {
    /// The server lock volume in the first buffer of a message that was read before, without the rest
    /// of its body; 0 if the buffer is too short for one.
    pub fn slv_of(order: ByteOrder, b: &[u8]) -> u64 {
        const SLV: usize = 80;
        u64::get(order, crate::layout::part(b, SLV, u64::LEN))
    }

    /// Bytes of the body of version 2, which has no job: the least that is accepted (P-10).
    pub const LEN_MIN: usize = 152;

    /// The body in a first buffer.
    ///
    /// # Errors
    /// Fewer bytes than [`Self::LEN_MIN`], or another protocol version (P-12).
    pub fn parse(order: ByteOrder, b: &[u8]) -> Result<Self, WireError> {
        if b.len() < Self::LEN_MIN {
            return Err(WireError::Short { what: Self::NAME, need: Self::LEN_MIN, have: b.len() });
        }
        let body = Self::get(order, b);
        if body.version & Service::VERSION_MASK != Service::VERSION {
            let (what, version) = (Self::NAME, body.version);
            return Err(WireError::Version { what, version, expected: Service::VERSION });
        }
        Ok(body)
    }
}
