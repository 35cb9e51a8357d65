//! The bodies of selftest messages (wire.md 6.5 … 6.13): each a table of its fields in their order,
//! with the length that it must come to.

use super::fields::{Field, Reader, Writer};
use super::{BODY_LEN, FEATURE_BYTES, Name, Service, SessionId};
use crate::ByteOrder;

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident = $len:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $name {
            fn read(r: &mut Reader<'_>) -> Self {
                Self { $($field: Field::read(r),)* }
            }

            fn write(&self, w: &mut Writer<'_>) {
                $(self.$field.write(w);)*
            }
        }

        const _: () = assert!(0 $(+ <$ty as Field>::LEN)* == $len && $len <= BODY_LEN);
    )*};
}

bodies! {
    /// Asks whether a node is alive.
    DebugRequest = 28 {
        /// Match bits for the reply.
        reply_id: u64,
        /// Session of the asker; nodes do not look at it.
        sid: SessionId,
        /// 0.
        flags: u32,
    }
    /// What a node says about its session.
    DebugReply = 60 {
        /// 0 or ESRCH.
        status: u32,
        /// Its session.
        sid: SessionId,
        /// When an idle session ends, seconds.
        timeout: u32,
        /// Batches; current nodes do not fill it in.
        nbatch: u32,
        /// Name of the session.
        name: Name,
    }
    /// Asks a node to take part in a session.
    MakeSessionRequest = 60 {
        /// Match bits for the reply.
        reply_id: u64,
        /// The session.
        sid: SessionId,
        /// Not 0: replaces a session of another console.
        force: u32,
        /// Name of the session.
        name: Name,
    }
    /// Whether a node takes part in a session.
    MakeSessionReply = 56 {
        /// 0 or an errno.
        status: u32,
        /// The session that is now active on the node.
        sid: SessionId,
        /// When an idle session ends, seconds.
        timeout: u32,
        /// With EBUSY: the name of the session that is there.
        name: Name,
    }
    /// Asks a node to leave a session.
    RemoveSessionRequest = 24 {
        /// Match bits for the reply.
        reply_id: u64,
        /// The session.
        sid: SessionId,
    }
    /// Whether a node has left a session.
    RemoveSessionReply = 20 {
        /// 0 or an errno.
        status: u32,
        /// The session that is still active.
        sid: SessionId,
    }
    /// Runs, stops or queries a batch.
    BatchRequest = 44 {
        /// Match bits for the reply.
        reply_id: u64,
        /// The session.
        sid: SessionId,
        /// The batch.
        batch_id: u64,
        /// One of [`BatchRequest::RUN`] and its siblings.
        opc: u32,
        /// 0 for the whole batch, or a test of it from 1 on.
        test_index: u32,
        /// Run: a time-out that nodes do not use. Stop: not 0 aborts what is in flight.
        arg: u32,
    }
    /// How a batch is.
    BatchReply = 28 {
        /// 0 or an errno.
        status: u32,
        /// The session that is active.
        sid: SessionId,
        /// Query: running tests, or running units of the test.
        active: u32,
        /// Current nodes do not fill it in.
        time: u32,
    }
    /// Adds a test to a batch.
    TestRequest = 70 {
        /// Match bits for the reply.
        reply_id: u64,
        /// Match bits of the list of destinations; client role only.
        bulk_id: u64,
        /// The session.
        sid: SessionId,
        /// The batch; made if it is not there.
        batch_id: u64,
        /// Number of the test's service.
        service: u32,
        /// Client: iterations per unit, [`TestRequest::ENDLESS`] for ever. Server: request buffers.
        repeat: u32,
        /// Units per destination.
        concurrency: u32,
        /// 1 for the client role.
        is_client: u8,
        /// 1: a unit stops at its first error.
        stop_on_error: u8,
        /// Destinations in the list.
        ndest: u32,
        /// Parameters of the test: see [`TestRequest::params`].
        param: [u8; 12],
    }
    /// Whether a test was added.
    TestReply = 20 {
        /// 0 or an errno.
        status: u32,
        /// The session that is active.
        sid: SessionId,
    }
    /// Asks for the counters.
    QueryStatRequest = 28 {
        /// Match bits for the reply.
        reply_id: u64,
        /// The session.
        sid: SessionId,
        /// 0.
        stat_type: u32,
    }
    /// The counters of a node.
    QueryStatReply = 136 {
        /// 0 or an errno.
        status: u32,
        /// The session that is active.
        sid: SessionId,
        /// Milliseconds since the session was made.
        running_ms: u32,
        /// Batches that run.
        active_batches: u32,
        /// Sessions that are being torn down.
        zombie_sessions: u32,
        /// Errors of bulk tests in this session.
        brw_errors: u32,
        /// Errors of ping tests in this session.
        ping_errors: u32,
        /// LNet errors.
        rpc_errors: u32,
        /// Requests sent.
        rpcs_sent: u32,
        /// Requests received.
        rpcs_rcvd: u32,
        /// Requests dropped.
        rpcs_dropped: u32,
        /// Requests that got no answer in time.
        rpcs_expired: u32,
        /// Bytes fetched as server.
        bulk_get: u64,
        /// Bytes sent as server.
        bulk_put: u64,
        /// LNet: messages in hand.
        msgs_alloc: u32,
        /// LNet: most messages in hand.
        msgs_max: u32,
        /// LNet: errors.
        errors: u32,
        /// LNet: messages sent.
        send_count: u32,
        /// LNet: messages received.
        recv_count: u32,
        /// LNet: messages forwarded.
        route_count: u32,
        /// LNet: messages dropped.
        drop_count: u32,
        /// LNet: bytes sent.
        send_length: u64,
        /// LNet: bytes received.
        recv_length: u64,
        /// LNet: bytes forwarded.
        route_length: u64,
        /// LNet: bytes dropped.
        drop_length: u64,
    }
    /// Asks a console to take the sender into a group.
    JoinRequest = 56 {
        /// Match bits for the reply.
        reply_id: u64,
        /// The session; the wildcard for any.
        sid: SessionId,
        /// The group.
        group: Name,
    }
    /// Whether the sender is in the group.
    JoinReply = 56 {
        /// 0 or an errno.
        status: u32,
        /// The console's session.
        sid: SessionId,
        /// Time-out of the console's session, seconds.
        timeout: u32,
        /// Name of the session.
        session: Name,
    }
    /// One iteration of a bulk test.
    BrwRequest = 28 {
        /// Match bits for the reply.
        reply_id: u64,
        /// Match bits of the client's buffer.
        bulk_id: u64,
        /// [`BrwRequest::READ`] or [`BrwRequest::WRITE`].
        rw: u32,
        /// Bytes.
        len: u32,
        /// How the data is checked: one of [`BrwRequest::CHECK_NONE`] and its siblings.
        check: u32,
    }
    /// Its answer.
    BrwReply = 4 {
        /// 0 or an errno.
        status: u32,
    }
    /// One iteration of a ping test.
    PingRequest = 32 {
        /// Match bits for the reply.
        reply_id: u64,
        /// [`super::PING_MAGIC`].
        magic: u32,
        /// Counts up.
        seq: u32,
        /// The sender's clock, seconds.
        time_sec: u64,
        /// And nanoseconds.
        time_nsec: u64,
    }
    /// Its answer.
    PingReply = 12 {
        /// 0 or EPROTO.
        status: u32,
        /// [`super::PING_MAGIC`].
        magic: u32,
        /// Of the request.
        seq: u32,
    }
}

impl BatchRequest {
    /// Runs all tests of the batch from their beginning.
    pub const RUN: u32 = 1;
    /// Stops it.
    pub const STOP: u32 = 2;
    /// Asks how it is.
    pub const QUERY: u32 = 3;
}

impl BrwRequest {
    /// The server sends data to the client.
    pub const READ: u32 = 1;
    /// The server fetches data from the client.
    pub const WRITE: u32 = 2;
    /// Data are not looked at.
    pub const CHECK_NONE: u32 = 1;
    /// The first and last 8 bytes of each page.
    pub const CHECK_SIMPLE: u32 = 2;
    /// Every 8 bytes.
    pub const CHECK_FULL: u32 = 3;
    /// Data are not looked at, and need not even be kept.
    pub const CHECK_DISCARD: u32 = 4;
}

/// What a test is to do, from the 12 bytes of a [`TestRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestParams {
    /// A ping test; both words are 0.
    Ping {
        /// Not used.
        size: u32,
        /// Not used.
        flags: u32,
    },
    /// A bulk test of whole pages, without feature bit 0.
    BrwPages {
        /// As [`BrwRequest::rw`].
        opc: u32,
        /// Length in pages of the client.
        npages: u32,
        /// As [`BrwRequest::check`].
        check: u32,
    },
    /// A bulk test, with feature bit 0.
    Brw {
        /// As [`BrwRequest::rw`].
        opc: u16,
        /// As [`BrwRequest::check`].
        check: u16,
        /// Bytes.
        len: u32,
        /// Offset in the client's first page.
        offset: u32,
    },
}

impl TestRequest {
    /// Repeats until the batch is stopped.
    pub const ENDLESS: u32 = u32::MAX;

    /// The parameters, as sender order, service and features tell; `None` for a service that is no
    /// test.
    pub fn params(&self, order: ByteOrder, features: u32) -> Option<TestParams> {
        let r = &mut Reader::new(order, &self.param);
        Some(match Service::from_id(self.service.into())? {
            Service::Ping => TestParams::Ping { size: Field::read(r), flags: Field::read(r) },
            Service::Brw if features & FEATURE_BYTES == 0 => TestParams::BrwPages {
                opc: Field::read(r),
                npages: Field::read(r),
                check: Field::read(r),
            },
            Service::Brw => TestParams::Brw {
                opc: Field::read(r),
                check: Field::read(r),
                len: Field::read(r),
                offset: Field::read(r),
            },
            _ => return None,
        })
    }
}

impl TestParams {
    /// The test's service.
    pub const fn service(&self) -> Service {
        match self {
            Self::Ping { .. } => Service::Ping,
            Self::BrwPages { .. } | Self::Brw { .. } => Service::Brw,
        }
    }

    /// The 12 bytes for a message of that order.
    pub fn emit(&self, order: ByteOrder) -> [u8; 12] {
        let mut out = [0; 12];
        let w = &mut Writer::new(order, &mut out);
        match *self {
            Self::Ping { size, flags } => [size, flags].iter().for_each(|n| n.write(w)),
            Self::BrwPages { opc, npages, check } => {
                [opc, npages, check].iter().for_each(|n| n.write(w));
            }
            Self::Brw { opc, check, len, offset } => {
                [opc, check].iter().for_each(|n| n.write(w));
                [len, offset].iter().for_each(|n| n.write(w));
            }
        }
        out
    }
}

macro_rules! messages {
    ($($service:ident: $request:ident, $reply:ident;)*) => {
        /// The body of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented at its type")]
        pub enum Request {
            $($service($request),)*
        }

        /// The body of a reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented at its type")]
        #[allow(clippy::large_enum_variant, reason = "a message has 160 bytes, whatever it says")]
        pub enum Reply {
            $($service($reply),)*
        }

        impl Request {
            pub(super) fn read(service: Service, r: &mut Reader<'_>) -> Self {
                match service { $(Service::$service => Self::$service($request::read(r)),)* }
            }

            pub(super) fn write(&self, w: &mut Writer<'_>) {
                match self { $(Self::$service(body) => body.write(w),)* }
            }

            /// The service that it is for.
            pub const fn service(&self) -> Service {
                match self { $(Self::$service(_) => Service::$service,)* }
            }

            /// Match bits for the reply.
            pub const fn reply_id(&self) -> u64 {
                match self { $(Self::$service(body) => body.reply_id,)* }
            }
        }

        impl Reply {
            pub(super) fn read(service: Service, r: &mut Reader<'_>) -> Self {
                match service { $(Service::$service => Self::$service($reply::read(r)),)* }
            }

            pub(super) fn write(&self, w: &mut Writer<'_>) {
                match self { $(Self::$service(body) => body.write(w),)* }
            }

            /// The service that it is of.
            pub const fn service(&self) -> Service {
                match self { $(Self::$service(_) => Service::$service,)* }
            }

            /// 0 or an errno.
            pub const fn status(&self) -> u32 {
                match self { $(Self::$service(body) => body.status,)* }
            }

            /// A reply that says `status` and nothing else.
            pub fn refusal(service: Service, status: u32) -> Self {
                let mut bytes = [0; BODY_LEN];
                status.write(&mut Writer::new(ByteOrder::Little, &mut bytes));
                Self::read(service, &mut Reader::new(ByteOrder::Little, &bytes))
            }
        }

        $(
            impl From<$request> for Request {
                fn from(body: $request) -> Self {
                    Self::$service(body)
                }
            }

            impl From<$reply> for Reply {
                fn from(body: $reply) -> Self {
                    Self::$service(body)
                }
            }
        )*
    };
}

messages! {
    Debug: DebugRequest, DebugReply;
    MakeSession: MakeSessionRequest, MakeSessionReply;
    RemoveSession: RemoveSessionRequest, RemoveSessionReply;
    Batch: BatchRequest, BatchReply;
    Test: TestRequest, TestReply;
    QueryStat: QueryStatRequest, QueryStatReply;
    Join: JoinRequest, JoinReply;
    Brw: BrwRequest, BrwReply;
    Ping: PingRequest, PingReply;
}
