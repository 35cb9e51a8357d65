//! The RPC of LNet selftest (wire.md 6): messages of exactly 160 bytes that travel as payload of
//! PUTs, the list of destinations that a test is given, and the pattern of its bulk data.
//!
//! Every message has a head of 24 bytes and a body that depends on the service and on whether it
//! asks or answers. Numbers are in the order of the sender, which the magic announces. Values are
//! taken as they come: what a receiver makes of an operation or an error number that it does not
//! know is not decided here.
//!
//! Bodies are in `body.rs`, one table each; this file has services, head and message.

mod body;
mod data;
mod fields;

use core::fmt;

use lnet_types::Nid;

use crate::order::first4;
use crate::{ByteOrder, WireError};
use fields::{Field, Reader, Writer};

pub use body::{
    BatchReply, BatchRequest, BrwReply, BrwRequest, DebugReply, DebugRequest, JoinReply,
    JoinRequest, MakeSessionReply, MakeSessionRequest, PingReply, PingRequest, QueryStatReply,
    QueryStatRequest, RemoveSessionReply, RemoveSessionRequest, Reply, Request, TestParams,
    TestReply, TestRequest,
};
pub use data::{
    DEST_LEN, LIST_PAGE, PATTERN, PATTERN_LEN, destinations_len, emit_destinations,
    parse_destinations,
};

/// Byte-order mark of a message.
pub const MAGIC: u32 = 0xEEB0_F00D;
/// The only version.
pub const VERSION: u32 = 1;
/// Every message has this many bytes.
pub const LEN: usize = 160;
/// Bytes of the head.
pub const HEAD_LEN: usize = 24;
/// Bytes of the longest body.
pub const BODY_LEN: usize = LEN - HEAD_LEN;
/// Feature bit 0: test parameters carry bytes and an offset, not pages.
pub const FEATURE_BYTES: u32 = 1;
/// All features that there are.
pub const FEATURES: u32 = FEATURE_BYTES;
/// Portal of replies and bulk.
pub const PORTAL_REPLY: u32 = 52;
/// Portal of requests for the session framework.
pub const PORTAL_FRAMEWORK: u32 = 51;
/// Portal of test requests.
pub const PORTAL_TEST: u32 = 50;
/// The mark inside of ping tests.
pub const PING_MAGIC: u32 = 0xBABE_FACE;
/// The most bytes of one BRW.
pub const BRW_MAX: u32 = 1 << 20;
/// The most test units per destination.
pub const CONCURRENCY_MAX: u32 = 1024;
/// The most destinations of one test: 256 pages of 341.
pub const DESTINATIONS_MAX: u32 = 87_296;

pub(crate) const WHAT: &str = "selftest message";

/// What is asked for. The number is the match bits of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Service {
    /// Is the node alive, and in which session.
    Debug = 0,
    /// Take part in a session.
    MakeSession = 1,
    /// Leave a session.
    RemoveSession = 2,
    /// Run, stop or query a batch.
    Batch = 3,
    /// Add a test to a batch.
    Test = 4,
    /// Tell the counters.
    QueryStat = 5,
    /// Asks a console to take the sender into a group.
    Join = 6,
    /// Bulk read or write test.
    Brw = 11,
    /// Ping test.
    Ping = 12,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Debug,
        Self::MakeSession,
        Self::RemoveSession,
        Self::Batch,
        Self::Test,
        Self::QueryStat,
        Self::Join,
        Self::Brw,
        Self::Ping,
    ];

    /// The service of that number.
    pub fn from_id(id: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.id() == id)
    }

    /// Its number, which is the match bits of its requests.
    pub const fn id(self) -> u64 {
        self as u64
    }

    /// Whether it is a test, not a part of the framework.
    pub const fn is_test(self) -> bool {
        matches!(self, Self::Brw | Self::Ping)
    }

    /// The portal of its requests.
    pub const fn portal(self) -> u32 {
        if self.is_test() { PORTAL_TEST } else { PORTAL_FRAMEWORK }
    }

    /// The message type of its requests; its replies have the next one.
    pub const fn request_type(self) -> u32 {
        match self {
            Self::MakeSession => 0,
            Self::RemoveSession => 2,
            Self::Batch => 4,
            Self::QueryStat => 6,
            Self::Test => 8,
            Self::Debug => 10,
            Self::Brw => 12,
            Self::Ping => 14,
            Self::Join => 16,
        }
    }

    /// The message type of its replies.
    pub const fn reply_type(self) -> u32 {
        self.request_type() + 1
    }

    /// Its name, as errors use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::MakeSession => "make session",
            Self::RemoveSession => "remove session",
            Self::Batch => "batch",
            Self::Test => "test",
            Self::QueryStat => "query stat",
            Self::Join => "join",
            Self::Brw => "brw",
            Self::Ping => "ping",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A session, by the node that made it and a number of its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The console node. A short NID, or the wildcard where there is no session.
    pub nid: Nid,
    /// Milliseconds, as the console counts them.
    pub stamp: i64,
}

impl SessionId {
    /// No session.
    pub const NONE: Self = Self { nid: Nid::ANY, stamp: -1 };

    /// Whether this names no session (any stamp will do).
    pub const fn is_none(&self) -> bool {
        self.nid.is_any()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.stamp, self.nid)
    }
}

/// A name of at most 31 bytes, NUL-terminated on the wire. What follows the NUL is not kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name([u8; Self::LEN]);

impl Name {
    /// Bytes on the wire.
    pub const LEN: usize = 32;

    /// `text` as a name; `None` if it has more than 31 bytes or a NUL.
    pub fn new(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut name = [0; Self::LEN];
        if bytes.len() >= Self::LEN || bytes.contains(&0) {
            return None;
        }
        name.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(name))
    }

    /// What was received: cut at its NUL, or after 31 bytes.
    pub fn from_wire(bytes: [u8; Self::LEN]) -> Self {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(Self::LEN - 1);
        let mut name = [0; Self::LEN];
        for (to, from) in name.iter_mut().zip(bytes.iter().take(end)) {
            *to = *from;
        }
        Self(name)
    }

    /// The bytes that go on the wire.
    pub const fn as_wire(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The text, with replacement characters for what is not UTF-8.
    pub fn text(&self) -> String {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(Self::LEN);
        String::from_utf8_lossy(self.0.get(..end).unwrap_or_default()).into_owned()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<B> {
    /// The order of the sender.
    pub order: ByteOrder,
    /// Feature bits of the session.
    pub features: u32,
    /// What it says.
    pub body: B,
}

/// A message that asks.
pub type RequestMessage = Message<Request>;
/// A message that answers.
pub type ReplyMessage = Message<Reply>;

impl Message<Request> {
    /// Reads a request for `service`.
    ///
    /// # Errors
    /// A length other than 160, another magic, a type of another service; and
    /// [`WireError::Version`], which is answered with EPROTO (6.4): [`reply_id`] tells where to.
    pub fn parse(service: Service, b: &[u8]) -> Result<Self, WireError> {
        let (order, features, mut body) = open(service.request_type(), b)?;
        Ok(Self { order, features, body: Request::read(service, &mut body) })
    }

    /// The bytes that go on the wire, in the message's order.
    pub fn emit(&self) -> [u8; LEN] {
        let service = self.body.service();
        seal(self.order, service.request_type(), self.features, |w| self.body.write(w))
    }
}

impl Message<Reply> {
    /// Reads a reply of `service`.
    ///
    /// # Errors
    /// As [`RequestMessage::parse`].
    pub fn parse(service: Service, b: &[u8]) -> Result<Self, WireError> {
        let (order, features, mut body) = open(service.reply_type(), b)?;
        Ok(Self { order, features, body: Reply::read(service, &mut body) })
    }

    /// The bytes that go on the wire, in the message's order.
    pub fn emit(&self) -> [u8; LEN] {
        let service = self.body.service();
        seal(self.order, service.reply_type(), self.features, |w| self.body.write(w))
    }
}

impl<B: fmt::Debug> fmt::Display for Message<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "selftest {:?} features {:#x}", self.body, self.features)?;
        if self.order == ByteOrder::Big { f.write_str(" big-endian") } else { Ok(()) }
    }
}

/// Match bits for the answer to a request that is refused for its version: all versions begin alike.
pub fn reply_id(b: &[u8]) -> Option<u64> {
    let order = ByteOrder::of_magic(*b.first_chunk()?, MAGIC)?;
    let id = *b.get(HEAD_LEN..)?.first_chunk::<8>()?;
    (b.len() == LEN).then(|| match order {
        ByteOrder::Little => u64::from_le_bytes(id),
        ByteOrder::Big => u64::from_be_bytes(id),
    })
}

/// Reads the head and gives what it says, and the body.
fn open(kind: u32, b: &[u8]) -> Result<(ByteOrder, u32, Reader<'_>), WireError> {
    let magic = first4(WHAT, b)?;
    let order = ByteOrder::of_magic(magic, MAGIC)
        .ok_or_else(|| WireError::Magic { what: WHAT, magic: u32::from_le_bytes(magic) })?;
    if b.len() < LEN {
        return Err(WireError::Short { what: WHAT, need: LEN, have: b.len() });
    }
    if b.len() > LEN {
        let (value, max) = (b.len() as u64, LEN as u64);
        return Err(WireError::Limit { what: WHAT, field: "length", value, max });
    }
    let mut r = Reader::new(order, b);
    let _magic = u32::read(&mut r);
    let version = u32::read(&mut r);
    let said = u32::read(&mut r);
    let _reserved = u64::read(&mut r);
    let features = u32::read(&mut r);
    if said != kind {
        return Err(WireError::Value { what: WHAT, field: "type", value: said.into() });
    }
    if version != VERSION {
        return Err(WireError::Version { what: WHAT, version });
    }
    Ok((order, features, r))
}

fn seal(
    order: ByteOrder,
    kind: u32,
    features: u32,
    body: impl FnOnce(&mut Writer<'_>),
) -> [u8; LEN] {
    let mut out = [0; LEN];
    let mut w = Writer::new(order, &mut out);
    for word in [MAGIC, VERSION, kind, 0, 0, features] {
        word.write(&mut w);
    }
    body(&mut w);
    out
}
