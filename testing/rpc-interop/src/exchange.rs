//! What belongs together in a recording: the sendings of a request, its replies, its bulk data; the
//! connections by export cookie.

use std::collections::BTreeMap;

use lnet_types::Nid;
use lnet_wire::{Handle, Kind};
use lustre_wire::ldlm::{LockKind, LockRequest};
use lustre_wire::{BodyFlags, ConnectData, ImportKind, Msg, MsgKind, OpFlags};

use crate::recording::{Message, Role};

/// A request with all that belongs to it. Numbers are places in the list of messages.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// Its sendings, in order.
    pub sendings: Vec<usize>,
    /// Its replies, each with the sending that was answered.
    pub replies: Vec<(usize, usize)>,
    /// PUTs and GETs of bulk data, each with the sending that they are for.
    pub bulk: Vec<(usize, usize)>,
}

/// A connection, seen from the recording.
#[derive(Clone, Debug)]
pub struct Link {
    /// Client.
    pub client: Nid,
    /// Server.
    pub server: Nid,
    /// Export cookie; 0 for a connection whose connect was never answered.
    pub cookie: u64,
    /// Kind of the import.
    pub kind: ImportKind,
    /// `conn_cnt` of the first request.
    pub conn_cnt: u32,
    /// Target uuid, client uuid, client handle and data of a connect in the recording.
    pub asked: Option<Asked>,
    /// Data and flags of the reply to that connect.
    pub granted: Option<(ConnectData, OpFlags)>,
    /// Whether the connection exists before the recording begins.
    pub before: bool,
}

/// What a connect asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Target uuid.
    pub target: String,
    /// Client uuid.
    pub client: String,
    /// Client handle.
    pub handle: u64,
    /// Connect data.
    pub data: ConnectData,
}

/// A recording with its relations.
#[derive(Debug, Default)]
pub struct Index {
    /// All exchanges.
    pub exchanges: Vec<Exchange>,
    /// Exchange of each message, where it has one.
    pub of: BTreeMap<usize, usize>,
    /// The PUT or GET that an ACK or a data message answers.
    pub answers: BTreeMap<usize, usize>,
    /// All connections.
    pub links: Vec<Link>,
    /// The connection of each request, where it is known.
    pub link_of: BTreeMap<usize, usize>,
    /// The way to a client of each callback, numbered from `WAYS` on.
    pub ways: BTreeMap<usize, usize>,
}

/// Numbers of ways to clients begin here, above those of connections.
const WAYS: usize = 1 << 20;

/// Numbers of requests lie at least this far apart, so that the bulk data of one stay below.
pub const XID_STEP: u64 = 64;

/// The number that match bits belong to: an xid, or the base of a resend.
pub fn base(bits: u64) -> u64 {
    bits & !(XID_STEP - 1)
}

/// What a connect asks for, read from its message.
pub fn asked(message: &Message) -> Option<Asked> {
    let msg = Msg::parse(&message.payload).ok()?;
    let text = |index| -> Option<String> {
        Some(String::from_utf8_lossy(msg.text("uuid", index).ok()?).into_owned())
    };
    Some(Asked {
        target: text(1)?,
        client: text(2)?,
        handle: msg.get(3).ok()?,
        data: ConnectData::of(&msg, 4).ok()?,
    })
}

impl Index {
    /// The relations of a recording.
    pub fn new(messages: &[Message]) -> Self {
        let mut index = Self::default();
        index.exchanges(messages);
        index.links(messages);
        let mut ways = BTreeMap::new();
        for (at, message) in messages.iter().enumerate() {
            if message.role == Role::Request && message.is_callback() {
                let next = WAYS + ways.len();
                let by = (message.from(), message.to(), message.body().handle);
                index.ways.insert(at, *ways.entry(by).or_insert(next));
            }
        }
        index
    }

    /// The connection of a request, or the way of a callback.
    pub fn channel(&self, at: usize) -> Option<usize> {
        self.link_of.get(&at).or_else(|| self.ways.get(&at)).copied()
    }

    /// The connection over which a server calls its client back, from the kind of the lock.
    pub fn called_back(&self, message: &Message) -> Option<usize> {
        let msg = Msg::parse(&message.payload).ok()?;
        let kind = LockRequest::of(&msg, 1).ok()?.desc.kind;
        let fits = |link: &Link| match link.kind {
            ImportKind::Osc | ImportKind::MdtToOst => kind == LockKind::EXTENT,
            ImportKind::Mgc => kind == LockKind::PLAIN,
            _ => kind != LockKind::EXTENT && kind != LockKind::PLAIN,
        };
        let ends = |link: &Link| (link.server, link.client) == (message.from(), message.to());
        let named = |link: &Link| {
            ends(link) && link.asked.as_ref().is_some_and(|a| a.handle == message.body().handle)
        };
        let nameless = |link: &Link| ends(link) && fits(link) && link.asked.is_none();
        let find = |is: &dyn Fn(&Link) -> bool| self.links.iter().position(is);
        find(&named).or_else(|| find(&nameless)).or_else(|| find(&|link| ends(link) && fits(link)))
    }

    fn exchanges(&mut self, messages: &[Message]) {
        let mut by_xid: BTreeMap<(Nid, u64), usize> = BTreeMap::new();
        // The sending that match bits at a client belong to.
        let mut by_bits: BTreeMap<(Nid, u64), (usize, usize)> = BTreeMap::new();
        let mut by_handle: BTreeMap<(Nid, u64), usize> = BTreeMap::new();
        for (at, message) in messages.iter().enumerate() {
            match message.hdr.kind {
                Kind::Put { ack, .. } if ack != Handle::NONE => {
                    by_handle.insert((message.from(), ack.object), at);
                }
                Kind::Get { ret, .. } => {
                    by_handle.insert((message.from(), ret.object), at);
                }
                Kind::Ack { dst, .. } | Kind::Reply { dst, .. } => {
                    if let Some(first) = by_handle.get(&(message.to(), dst.object)) {
                        self.answers.insert(at, *first);
                    }
                }
                Kind::Put { .. } => {}
            }
            let found = match message.role {
                Role::Request => {
                    let key = (message.from(), message.bits());
                    let exchange = *by_xid.entry(key).or_insert_with(|| {
                        self.exchanges.push(Exchange::default());
                        self.exchanges.len() - 1
                    });
                    self.exchanges[exchange].sendings.push(at);
                    for bits in [message.bits(), base(message.body().mbits)] {
                        by_bits.insert((message.from(), base(bits)), (exchange, at));
                    }
                    Some(exchange)
                }
                Role::Reply | Role::Early | Role::BulkPut | Role::BulkGet => {
                    let found = by_bits.get(&(message.to(), base(message.bits()))).copied();
                    found.map(|(exchange, sending)| {
                        let exchange_of = &mut self.exchanges[exchange];
                        match message.role {
                            Role::Reply | Role::Early => exchange_of.replies.push((at, sending)),
                            _ => exchange_of.bulk.push((at, sending)),
                        }
                        exchange
                    })
                }
                Role::Ack | Role::Data => None,
            };
            if let Some(exchange) = found {
                self.of.insert(at, exchange);
            }
        }
    }

    /// The real reply to a sending.
    pub fn reply_to(&self, messages: &[Message], sending: usize) -> Option<usize> {
        let exchange = &self.exchanges[*self.of.get(&sending)?];
        let real = |(at, to): &&(usize, usize)| *to == sending && messages[*at].role == Role::Reply;
        exchange.replies.iter().find(real).map(|(at, _)| *at)
    }

    fn links(&mut self, messages: &[Message]) {
        // A connect names its import by client uuid and target; the cookie of its reply is that of
        // the requests after it.
        let mut by_cookie: BTreeMap<(Nid, Nid, u64), usize> = BTreeMap::new();
        let mut by_name: BTreeMap<(Nid, Nid, String, String), usize> = BTreeMap::new();
        for at in 0..messages.len() {
            let message = &messages[at];
            if message.role != Role::Request || message.is_callback() {
                continue;
            }
            let (client, server) = (message.from(), message.to());
            let body = message.body();
            let by = (client, server, body.handle);
            let connect = if body.opcode.is_connect() { asked(message) } else { None };
            let name =
                connect.as_ref().map(|a| (client, server, a.target.clone(), a.client.clone()));
            let named = name.as_ref().and_then(|name| by_name.get(name)).copied();
            let named = named.or_else(|| self.idle_before(messages, at));
            let known = named.or_else(|| by_cookie.get(&by).copied().filter(|_| body.handle != 0));
            let link = known.unwrap_or_else(|| {
                self.links.push(Link {
                    client,
                    server,
                    cookie: body.handle,
                    kind: ImportKind::Osc,
                    conn_cnt: body.conn_cnt,
                    asked: None,
                    granted: None,
                    before: connect.is_none()
                        || body.handle != 0
                        || !body.op_flags.contains(OpFlags::INITIAL),
                });
                self.links.len() - 1
            });
            self.link_of.insert(at, link);
            if body.handle != 0 {
                by_cookie.insert(by, link);
            }
            if let (Some(asked), Some(name)) = (connect, name) {
                by_name.insert(name, link);
                let reply = self.reply_to(messages, at).map(|reply| &messages[reply]);
                let granted = reply.and_then(|reply| {
                    let msg = Msg::parse(&reply.payload).ok()?;
                    let data = ConnectData::of(&msg, 1).ok()?;
                    (reply.body().kind == MsgKind::REPLY).then_some((data, reply.body()))
                });
                if let Some((_, body)) = &granted {
                    by_cookie.insert((client, server, body.handle), link);
                }
                let link = &mut self.links[link];
                link.asked.get_or_insert(asked);
                if let Some((data, body)) = granted {
                    link.granted.get_or_insert((data, body.op_flags));
                }
            }
        }
        for link in 0..self.links.len() {
            self.links[link].kind = self.kind_of(messages, link);
        }
    }

    /// The connection that a connect makes again after it was idle: an initial one of a count above 1.
    fn idle_before(&self, messages: &[Message], at: usize) -> Option<usize> {
        let message = &messages[at];
        let body = message.body();
        let again = body.opcode.is_connect() && body.handle == 0 && body.conn_cnt > 1;
        let kind =
            |link: usize| self.kind_of(messages, link).connects().map(|(connect, _)| connect);
        let same = |link: &usize| {
            let found = &self.links[*link];
            (found.client, found.server) == (message.from(), message.to())
                && found.asked.is_none()
                && kind(*link) == Some(body.opcode)
                // One that goes on is another.
                && !messages[at..].iter().any(|later| {
                    later.role == Role::Request
                        && later.from() == found.client
                        && later.body().handle == found.cookie
                })
        };
        (0..self.links.len()).filter(|_| again).find(same)
    }

    /// The kind of a connection, from what its requests have in common.
    fn kind_of(&self, messages: &[Message], link: usize) -> ImportKind {
        let requests = self.link_of.iter().filter(|(_, l)| **l == link).map(|(at, _)| *at);
        let mut kind = None;
        for at in requests {
            let message = &messages[at];
            let sender = message.rpc.map_or(0, |(header, _)| header.secflvr >> 24);
            let found = match (message.portal(), sender) {
                (Some(26), _) | (_, 3) => Some(ImportKind::Mgc),
                (Some(24), 1) => Some(ImportKind::MdtToMdt),
                (Some(6 | 7 | 28 | 31), 1) => Some(ImportKind::MdtToOst),
                (Some(6 | 7 | 28), _) => Some(ImportKind::Osc),
                (Some(12 | 23 | 30 | 32), 2) => Some(ImportKind::Lightweight),
                (Some(32), _) => Some(ImportKind::Lightweight),
                (Some(12 | 13 | 23 | 24 | 30), _) => Some(ImportKind::Mdc),
                _ => None,
            };
            kind = kind.or(found);
        }
        kind.or_else(|| self.kind_by_callback(messages, link)).unwrap_or(ImportKind::Osc)
    }

    /// The kind of a connection that is only seen to cancel: what was called back before.
    fn kind_by_callback(&self, messages: &[Message], link: usize) -> Option<ImportKind> {
        let found = self.links.get(link)?;
        let first = self.link_of.iter().find(|(_, l)| **l == link).map(|(at, _)| *at)?;
        let before = messages.get(..first)?.iter().rev();
        let callback = |m: &&Message| {
            m.role == Role::Request
                && m.is_callback()
                && (m.from(), m.to()) == (found.server, found.client)
        };
        let msg = before.clone().find(callback).and_then(|m| Msg::parse(&m.payload).ok())?;
        let kind = LockRequest::of(&msg, 1).ok()?.desc.kind;
        Some(match kind {
            LockKind::EXTENT => ImportKind::Osc,
            LockKind::PLAIN => ImportKind::Mgc,
            _ => ImportKind::Mdc,
        })
    }

    /// The first sending of an exchange was not recorded: its first one there is a resend.
    pub fn begins_with_resend(&self, messages: &[Message], exchange: usize) -> bool {
        let first = self.exchanges[exchange].sendings.first();
        first.is_some_and(|at| messages[*at].body().flags.contains(BodyFlags::RESENT))
    }
}
