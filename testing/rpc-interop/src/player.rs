//! Plays a recording to one node of ours: what the others sent arrives at the recorded times, what
//! the recorded program did our program does, and each message that the recorded node sent is
//! compared with ours.
//!
//! Numbers that a node chooses for itself are replaced by relation on the way in: export cookies in
//! requests, match bits in replies and bulk data, handles of descriptors in acknowledgements.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lnet_types::{Errno, Instant, Nid};
use lnet_wire::{Handle, Hdr, Kind};
use lustre_wire::msg::{Header, MsgBuilder, rewrite};
use lustre_wire::opcode::RENAME;
use lustre_wire::{
    Body, BodyFlags, ConnectData, ConnectFlags, ConnectFlags2, ImportKind, MsgKind, OpFlags, Opcode,
};
use ptlrpc::{
    Answer, Bulk, Call, CallId, ClientRecord, Direction, Event, Hold, ImportConfig, ImportId, Past,
    Served, ServiceConfig, TargetConfig, TargetId, Tunables,
};

use crate::exchange::{Index, base};
use crate::host::{Host, PING, START, instant};
use crate::judge::{Context, Relations};
use crate::recording::{Message, Role};

/// Ours is within this of the recording where a recording is a matter of time.
const NEAR: Duration = Duration::from_secs(1);
/// Timers of the recorded kernel run late by up to a fortieth of what was waited for: pings of 25 s
/// come after 25.6 and 26.6 s.
const COARSE: f64 = 1.0 / 40.0;
/// A message that comes later than this is missing.
const PATIENCE: Duration = Duration::from_secs(6);
/// A ping without a recorded reply is answered after this, before its deadline.
const UNRECORDED_REPLY: Duration = Duration::from_secs(12);
/// Deadline of a request to a service without history (P-96).
const DEADLINE: Duration = Duration::from_secs(16);

/// Portals that are served: requests, replies, bulk data (P-33, P-32).
const SERVICES: [(&str, u32, u32, u32); 14] = [
    ("ost", 28, 4, 8),
    ("ost_create", 7, 4, 8),
    ("ost_io", 6, 4, 8),
    ("ost_seq", 31, 4, 8),
    ("mdt", 12, 10, 14),
    ("mdt_io", 13, 10, 8),
    ("mdt_readpage", 23, 10, 14),
    ("mdt_out", 24, 4, 14),
    ("mdt_seqm", 30, 10, 14),
    ("mdt_seqs", 32, 10, 14),
    ("mdt_fld", 29, 10, 14),
    ("mgs", 26, 25, 33),
    ("ldlm_canceld", 17, 18, 14),
    ("ldlm_cbd", 15, 16, 8),
];

/// Role of our node for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It serves.
    Server,
    /// It asks.
    Client,
}

/// What is known of a recording beside its messages.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Tunables of the nodes.
    pub tunables: Tunables,
    /// The whole server dies in it, and starts again.
    pub dies: bool,
}

/// What came of one recorded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the table says.
    Equal,
    /// Sent, with these differences.
    Differs(Vec<String>),
    /// Not to be played, for this reason.
    Open(&'static str),
}

/// One recorded message of the node that ours stands for.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its frame.
    pub frame: u32,
    /// Role of our node.
    pub side: Side,
    /// What the message is.
    pub what: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// A play that is over.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// All recorded messages of the node.
    pub outcomes: Vec<Outcome>,
    /// What our node sent beside.
    pub extra: Vec<(Side, String)>,
    /// What was recorded and could not be handed to our node: the message and why.
    pub kept_back: Vec<(Side, String)>,
}

struct Produced {
    message: Message,
    at: Instant,
    paired: bool,
    /// A ping that was dealt with outside of the recording.
    answered: bool,
}

/// The player.
pub struct Player<'a> {
    messages: &'a [Message],
    index: &'a Index,
    me: Nid,
    host: Host,
    produced: Vec<Produced>,
    /// Recorded message to ours.
    pairs: BTreeMap<usize, usize>,
    imports: BTreeMap<usize, ImportId>,
    calls: BTreeMap<usize, CallId>,
    targets: BTreeMap<usize, TargetId>,
    served: BTreeMap<(Nid, u64), Served>,
    /// Memory of bulk reads of the server, and exchanges whose bulk data have begun.
    moving: BTreeSet<usize>,
    injected: BTreeSet<usize>,
    learned: BTreeSet<(usize, u32)>,
    relations: Relations,
    played: Played,
    /// Reconnects whose cause was not recorded: what must be lost, and when.
    losses: Vec<(Duration, Loss)>,
    setup: Setup,
    /// Our server has died and started again.
    restarted: bool,
    /// Cookies of our imports.
    handles: BTreeMap<usize, u64>,
}

/// Something that the recorded node sent and the wire lost before it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The first sending of an exchange.
    Call(usize),
}

/// What the data of connections that began before the recording say.
fn assumed(kind: ImportKind) -> ConnectData {
    let mut flags2 = ConnectFlags2::empty();
    // Imports of servers have no REP_MBITS.
    flags2.set(
        ConnectFlags2::REP_MBITS,
        matches!(kind, ImportKind::Osc | ImportKind::Mdc | ImportKind::Mgc),
    );
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2,
        ..ConnectData::default()
    }
}

impl<'a> Player<'a> {
    /// Plays a recording to a node that stands for `me`.
    pub fn play(messages: &'a [Message], index: &'a Index, me: Nid, setup: &Setup) -> Played {
        let begin = START - Duration::from_secs(100);
        let mut player = Self {
            messages,
            index,
            me,
            host: Host::new(me, 7, begin, setup.tunables.clone()),
            setup: setup.clone(),
            produced: Vec::new(),
            pairs: BTreeMap::new(),
            imports: BTreeMap::new(),
            calls: BTreeMap::new(),
            targets: BTreeMap::new(),
            served: BTreeMap::new(),
            moving: BTreeSet::new(),
            injected: BTreeSet::new(),
            learned: BTreeSet::new(),
            relations: Relations::default(),
            played: Played::default(),
            losses: Vec::new(),
            restarted: false,
            handles: BTreeMap::new(),
        };
        player.prelude();
        for (at, message) in messages.iter().enumerate() {
            player.lose_until(message.at);
            if message.to() == me {
                player.run_to(instant(message.at));
                player.input(at);
            } else if message.from() == me {
                player.output(at);
            }
        }
        player.take();
        for produced in player.produced.iter().filter(|p| !p.paired) {
            let at = produced.at.saturating_since(START).as_secs_f64();
            let message = &produced.message;
            let side = if message.role == Role::Request { Side::Client } else { Side::Server };
            player.played.extra.push((side, format!("{} at {at:.1} s", describe(message))));
        }
        player.played
    }

    // ---- what was before the recording -----------------------------------------------------------

    fn serve(&mut self) {
        for (name, portal, reply, bulk) in SERVICES {
            let config =
                ServiceConfig { buffers: 4, ..ServiceConfig::new(name, portal, reply, bulk) };
            self.host.rpc(|rpc| rpc.serve(config)).expect("a service");
        }
    }

    fn prelude(&mut self) {
        self.serve();
        let mut order: Vec<(Duration, usize)> = Vec::new();
        for (link, found) in self.index.links.iter().enumerate() {
            if found.server == self.me {
                self.add_target(link);
            }
            if !found.before {
                continue;
            }
            if found.server == self.me {
                order.push((Duration::from_secs(99), link));
            } else if found.client == self.me {
                order.push((self.connected_at(link), link));
            }
        }
        order.sort();
        for (at, link) in order {
            self.run_to(START - Duration::from_secs(100) + at);
            if self.index.links[link].server == self.me {
                self.client_was_there(link);
            } else {
                self.import_was_there(link);
            }
        }
        for loss in 0..self.index.exchanges.len() {
            self.plan_loss(loss);
        }
        self.losses.sort_by_key(|(at, _)| *at);
    }

    /// A request that was first recorded as a resend was lost a deadline before its reconnect.
    fn plan_loss(&mut self, exchange: usize) {
        if !self.index.begins_with_resend(self.messages, exchange) {
            return;
        }
        let first = self.index.exchanges[exchange].sendings[0];
        if self.messages[first].from() != self.me || self.messages[first].is_callback() {
            return;
        }
        let link = self.index.link_of.get(&first).copied();
        let connect = (0..first).rev().find(|at| {
            self.index.link_of.get(at).copied() == link
                && self.messages[*at].body().opcode.is_connect()
        });
        if let Some(connect) = connect {
            let at = self.messages[connect].at.saturating_sub(DEADLINE);
            self.losses.push((at, Loss::Call(exchange)));
        }
    }

    fn lose_until(&mut self, end: Duration) {
        while let Some((at, loss)) = self.losses.first().copied() {
            if at > end {
                return;
            }
            self.losses.remove(0);
            self.run_to(instant(at));
            let Loss::Call(exchange) = loss;
            let first = self.index.exchanges[exchange].sendings[0];
            let before = self.produced.len();
            self.call(first);
            self.take();
            for lost in &mut self.produced[before..] {
                lost.paired = true;
                let recorded = &self.messages[first];
                self.relations.xids.relate(base(recorded.bits()), base(lost.message.bits()));
            }
        }
    }

    /// When an import that was there before must have sent its last request, as time before the
    /// recording plus 100 s: so that its next ping comes when one was recorded.
    fn connected_at(&self, link: usize) -> Duration {
        let before = Duration::from_secs(100);
        let late = before - Duration::from_millis(10);
        let mut mine = self.index.link_of.iter().filter(|(_, l)| **l == link).map(|(at, _)| *at);
        let Some(first) = mine.next() else { return late };
        let message = &self.messages[first];
        if message.body().opcode == Opcode::OBD_PING {
            return (before + message.at).saturating_sub(PING).min(late);
        }
        if message.body().opcode.is_connect() {
            // A ping was lost before.
            return (before + message.at).saturating_sub(PING + DEADLINE).min(late);
        }
        late
    }

    fn names(&self, link: usize) -> (String, String, u64) {
        match &self.index.links[link].asked {
            Some(asked) => (asked.target.clone(), asked.client.clone(), asked.handle),
            None => (format!("target-{link}"), format!("client-{link}"), 1000 + link as u64),
        }
    }

    fn add_target(&mut self, link: usize) {
        let found = &self.index.links[link];
        let (uuid, ..) = self.names(link);
        let mut offer = found.granted.map_or_else(|| assumed(found.kind), |(data, _)| data);
        // A reply without data of its own is one to a client that offered them.
        offer.flags |= ConnectFlags::FULL20;
        let replayable = found.granted.map_or_else(
            || !matches!(found.kind, ImportKind::Mgc),
            |(_, flags)| flags.contains(OpFlags::REPLAYABLE),
        );
        let existing = self.index.links[..link].iter().position(|other| {
            let same = |a: &crate::exchange::Asked| a.target == uuid;
            other.server == self.me && other.asked.as_ref().is_some_and(same)
        });
        if let Some(target) = existing.and_then(|other| self.targets.get(&other)).copied() {
            self.targets.insert(link, target);
            return;
        }
        let config = TargetConfig { uuid, offer, replayable, past: Past::default() };
        let target = self.host.rpc(|rpc| rpc.add_target(config)).expect("a target");
        self.targets.insert(link, target);
    }

    fn header_of(&self, link: usize, kind: Kind, len: usize) -> Hdr {
        let found = &self.index.links[link];
        let mine = found.server == self.me;
        let (src, dst) =
            if mine { (found.client, found.server) } else { (found.server, found.client) };
        let pid = self.messages[0].hdr.dst_pid;
        Hdr { dst, src, dst_pid: pid, src_pid: pid, payload_len: len as u32, kind }
    }

    /// A client that is connected to us when the recording begins.
    fn client_was_there(&mut self, link: usize) {
        let found = self.index.links[link].clone();
        let (target, client, handle) = self.names(link);
        let data = found.asked.as_ref().map_or_else(|| assumed(found.kind), |a| a.data);
        let (opcode, _) = found.kind.connects().expect("a kind that connects");
        let first = self.index.link_of.iter().find(|(_, l)| **l == link).map(|(at, _)| *at);
        let reconnects = first.is_some_and(|at| self.messages[at].body().opcode.is_connect())
            && link < usize::MAX;
        let body = Body {
            kind: MsgKind::REQUEST,
            version: opcode.row().and_then(|row| row.service).map_or(0, |s| s.word()),
            opcode,
            op_flags: OpFlags::INITIAL,
            conn_cnt: found.conn_cnt - u32::from(reconnects),
            timeout: 5,
            ..Body::default()
        };
        let padded = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(39, 0);
            bytes
        };
        let payload = MsgBuilder::new(Header::default(), &body)
            .bytes(&padded(&target))
            .bytes(&padded(&client))
            .layout(&handle)
            .layout(&data)
            .bytes(&[])
            .build()
            .expect("a connect");
        let (portal, _) = found.kind.portals();
        let kind = Kind::Put {
            ack: Handle::NONE,
            match_bits: 128 * (link as u64 + 1),
            hdr_data: 0,
            portal: portal.0,
            offset: 0,
        };
        let hdr = self.header_of(link, kind, payload.len());
        self.host.arrive(&hdr, &payload).expect("a connect");
        for sent in core::mem::take(&mut self.host.sent) {
            let message = Message::new(0, Duration::ZERO, sent.hdr, sent.payload);
            let body = message.map(|message| message.body()).unwrap_or_default();
            if body.opcode == opcode && body.handle != 0 {
                self.relations.exports.relate(found.cookie, body.handle);
                if found.asked.is_some() {
                    self.relations.clients.relate(handle, handle);
                }
                self.has_committed(link, body.handle);
            }
        }
        self.host.events();
    }

    /// A client that was there has a transaction that is long committed, if its first reply says so.
    fn has_committed(&mut self, link: usize, handle: u64) {
        let found = self.index.links[link].clone();
        let mut mine = self.index.link_of.iter().filter(|(_, l)| **l == link).map(|(at, _)| *at);
        let reply = mine.find_map(|at| {
            let reply = self.messages[self.index.reply_to(self.messages, at)?].body();
            (reply.opcode != Opcode::LDLM_CANCEL && reply.kind == MsgKind::REPLY).then_some(reply)
        });
        let Some(transno) = reply.filter(|r| r.transno == 0 || r.transno > r.last_committed) else {
            return;
        };
        let transno = transno.last_committed;
        let body = Body {
            handle,
            kind: MsgKind::REQUEST,
            version: 0x1_0003,
            opcode: Opcode(20_000),
            conn_cnt: u32::MAX,
            timeout: 5,
            ..Body::default()
        };
        let payload = MsgBuilder::new(Header::default(), &body).build().expect("a request");
        let (portal, _) = found.kind.portals();
        let match_bits = 1_000_000 + 128 * link as u64;
        let kind =
            Kind::Put { ack: Handle::NONE, match_bits, hdr_data: 0, portal: portal.0, offset: 0 };
        let hdr = self.header_of(link, kind, payload.len());
        self.host.arrive(&hdr, &payload).expect("a request");
        self.take();
        let served = self.served.remove(&(found.client, match_bits)).expect("a request");
        if let Some(target) = self.targets.get(&link).copied() {
            self.host.rpc(|rpc| rpc.committed(target, transno));
        }
        self.host.rpc(|rpc| rpc.reply(served.id, Answer { transno, ..Answer::default() }));
        self.host.sent.clear();
    }

    fn add_import(&mut self, link: usize) -> ImportId {
        let found = &self.index.links[link];
        let (target, client, _) = self.names(link);
        let wanted = found.asked.as_ref().map_or_else(|| assumed(found.kind), |a| a.data);
        let server = found.server;
        // LNet of the recorded node knew the server before.
        self.host.rpc(|rpc| rpc.below().discover(server));
        let config = ImportConfig { kind: found.kind, target, client, nids: vec![server], wanted };
        let import = self.host.rpc(|rpc| rpc.import(config)).expect("an import");
        self.imports.insert(link, import);
        import
    }

    /// An import that is connected when the recording begins.
    fn import_was_there(&mut self, link: usize) {
        let import = self.add_import(link);
        let found = self.index.links[link].clone();
        self.take();
        self.host.rpc(|rpc| rpc.connect(import));
        let asked = self.host.sent.pop().expect("a connect");
        let request = Message::new(0, Duration::ZERO, asked.hdr, asked.payload).expect("an RPC");
        let data = found.granted.map_or_else(|| assumed(found.kind), |(data, _)| data);
        let replayable = found.granted.map_or_else(
            || matches!(found.kind, ImportKind::Mdc | ImportKind::Osc),
            |(_, flags)| flags.contains(OpFlags::REPLAYABLE),
        );
        let mut op_flags = OpFlags::empty();
        op_flags.set(OpFlags::REPLAYABLE, replayable);
        let body = Body {
            kind: MsgKind::REPLY,
            version: 3,
            opcode: request.body().opcode,
            handle: found.cookie,
            op_flags,
            timeout: 5,
            service_time: 1,
            ..Body::default()
        };
        let payload =
            MsgBuilder::new(Header::default(), &body).layout(&data).build().expect("a reply");
        let (_, portal) = found.kind.portals();
        let kind = Kind::Put {
            ack: Handle::NONE,
            match_bits: request.bits(),
            hdr_data: 0,
            portal: portal.0,
            offset: 0,
        };
        let hdr = self.header_of(link, kind, payload.len());
        self.host.arrive(&hdr, &payload).expect("a reply");
        self.relations.exports.relate(found.cookie, found.cookie);
        if replayable {
            self.has_state(link, import);
        }
        if let Some(ours) = crate::exchange::asked(&request) {
            self.handles.insert(link, ours.handle);
            if let Some(asked) = &found.asked {
                self.relations.clients.relate(asked.handle, ours.handle);
            }
        }
        self.host.events();
    }

    /// An import that was there has something of the server's: a transaction, long committed.
    fn has_state(&mut self, link: usize, import: ImportId) {
        let call = Call::new(Opcode(20_000), Vec::new());
        self.host.rpc(|rpc| rpc.call(import, call)).expect("a call");
        let asked = self.host.sent.pop().expect("a request");
        let request = Message::new(0, Duration::ZERO, asked.hdr, asked.payload).expect("an RPC");
        let body = Body {
            kind: MsgKind::REPLY,
            version: 3,
            opcode: request.body().opcode,
            transno: 1,
            last_committed: 1,
            timeout: 5,
            service_time: 1,
            ..Body::default()
        };
        let payload = MsgBuilder::new(Header::default(), &body).build().expect("a reply");
        let (_, portal) = self.index.links[link].kind.portals();
        let kind = Kind::Put {
            ack: Handle::NONE,
            match_bits: request.bits(),
            hdr_data: 0,
            portal: portal.0,
            offset: 224,
        };
        let hdr = self.header_of(link, kind, payload.len());
        self.host.arrive(&hdr, &payload).expect("a reply");
    }

    // ---- time ------------------------------------------------------------------------------------

    fn run_to(&mut self, end: Instant) {
        while end > self.host.now {
            let step = (self.host.now + NEAR).min(end);
            self.host.run(step, |_| false);
            self.take();
            self.answer_pings();
        }
        self.take();
    }

    /// Answers pings that come at times of their own, where the recording shows that the connection
    /// held: its next request is no connect.
    fn answer_pings(&mut self) {
        for place in 0..self.produced.len() {
            let produced = &self.produced[place];
            let (at, body) = (produced.at, produced.message.body());
            let ping = produced.message.role == Role::Request && body.opcode == Opcode::OBD_PING;
            let due = at + UNRECORDED_REPLY;
            if !ping || produced.paired || produced.answered || self.host.now < due {
                continue;
            }
            let next = self.index.link_of.iter().find(|(later, link)| {
                instant(self.messages[**later].at) > at
                    && self.index.links[**link].client == self.me
                    && self.index.links[**link].server == produced.message.to()
                    && (self.messages[**later].body().handle == body.handle
                        || self.index.links[**link].cookie == body.handle)
            });
            let lost = next.is_none_or(|(next, _)| self.messages[*next].body().opcode.is_connect());
            self.produced[place].answered = true;
            if !lost {
                self.answer_ping(place);
            }
        }
    }

    fn answer_ping(&mut self, place: usize) {
        let ping = self.produced[place].message.clone();
        let body = Body {
            kind: MsgKind::REPLY,
            version: 3,
            opcode: Opcode::OBD_PING,
            service_time: 1,
            ..Body::default()
        };
        let payload = MsgBuilder::new(Header::default(), &body).build().expect("a reply");
        let portal = match ping.portal() {
            Some(26) => 25,
            Some(28) => 4,
            _ => 10,
        };
        let bits = if ping.body().mbits == 0 { ping.bits() } else { ping.body().mbits };
        let kind =
            Kind::Put { ack: Handle::NONE, match_bits: bits, hdr_data: 0, portal, offset: 224 };
        let hdr = Hdr {
            dst: ping.from(),
            src: ping.to(),
            payload_len: payload.len() as u32,
            kind,
            ..ping.hdr
        };
        // A reply that came in time has taken the buffer away.
        let _ = self.host.arrive(&hdr, &payload);
        self.take();
    }

    /// Takes what our node has sent, and what its request layer reports.
    fn take(&mut self) {
        for sent in core::mem::take(&mut self.host.sent) {
            let at = sent.at.saturating_since(START);
            if let Some(message) = Message::new(0, at, sent.hdr, sent.payload) {
                self.produced.push(Produced {
                    message,
                    at: sent.at,
                    paired: false,
                    answered: false,
                });
            }
        }
        for event in self.host.events() {
            match event {
                Event::Served(served) => {
                    self.served.insert((served.from, served.xid), *served);
                }
                Event::Ended { .. } | Event::Import { .. } => {}
                _ => {}
            }
        }
    }

    // ---- what the others sent --------------------------------------------------------------------

    fn kept_back(&mut self, at: usize, why: &str) {
        // What arrives is for the other role than what it would be if it left.
        let side = match self.side(at) {
            Side::Server => Side::Client,
            Side::Client => Side::Server,
        };
        self.played.kept_back.push((side, format!("{}: {why}", describe(&self.messages[at]))));
    }

    fn input(&mut self, at: usize) {
        let mut message = self.messages[at].clone();
        let ready = match message.role {
            Role::Request => self.request_in(at, &mut message),
            Role::Reply | Role::Early => self.reply_in(at, &mut message),
            Role::BulkPut | Role::BulkGet => self.bulk_in(at, &mut message),
            Role::Ack | Role::Data => self.answer_in(at, &mut message),
        };
        if let Err(why) = ready {
            return self.kept_back(at, why);
        }
        match self.host.arrive(&message.hdr, &message.payload) {
            Ok(()) => {
                self.injected.insert(at);
            }
            Err(why) => self.kept_back(at, &why),
        }
        self.take();
    }

    fn request_in(&mut self, at: usize, message: &mut Message) -> Result<(), &'static str> {
        let exchange = self.index.of.get(&at).copied().ok_or("no exchange")?;
        if message.is_callback() {
            if self.never_arrived(at, exchange) {
                return Err("the recorded client lost it");
            }
            return self.callback_in(message);
        }
        let body = message.body();
        let replies = &self.index.exchanges[exchange].replies;
        let at_once = body.opcode.is_connect()
            || body.opcode.is_disconnect()
            || body.opcode == Opcode::OBD_PING;
        if replies.is_empty() && at_once {
            return Err("the recorded server was not there");
        }
        if self.never_arrived(at, exchange) {
            return Err("the recorded server lost it");
        }
        let link = self.index.link_of.get(&at).copied().ok_or("no connection")?;
        let reply = self.index.reply_to(self.messages, at).map(|reply| self.messages[reply].body());
        if let Some(reply) = reply.filter(|_| body.opcode.is_connect()) {
            self.restart(link, &body, &reply);
        }
        if let (Some(reply), Some(target)) = (reply, self.targets.get(&link).copied()) {
            self.host.rpc(|rpc| rpc.committed(target, reply.last_committed));
            self.evict_first(&body, &reply, link);
        }
        if let Some(ours) = self.relations.exports.ours(body.handle) {
            let body = Body { handle: ours, ..body };
            let header = message.rpc.map(|(header, _)| header).unwrap_or_default();
            rewrite(&mut message.payload, &header, &body).map_err(|_| "no body of version 3")?;
        }
        Ok(())
    }

    /// A server calls our node back, by the cookie of the import that it knows.
    fn callback_in(&mut self, message: &mut Message) -> Result<(), &'static str> {
        let body = message.body();
        if self.relations.clients.ours(body.handle).is_none() {
            let link = self.index.called_back(message).ok_or("no connection")?;
            let own = self.handles.get(&link).copied().ok_or("no connection")?;
            self.relations.clients.relate(body.handle, own);
        }
        let ours = self.relations.clients.ours(body.handle).unwrap_or_default();
        let header = message.rpc.map(|(header, _)| header).unwrap_or_default();
        let body = Body { handle: ours, ..body };
        rewrite(&mut message.payload, &header, &body).map_err(|_| "no body of version 3")
    }

    /// The reply to a later sending counts its time from that one: this one had not arrived.
    fn never_arrived(&self, at: usize, exchange: usize) -> bool {
        let exchange = &self.index.exchanges[exchange];
        let Some((reply, sending)) = exchange.replies.first().copied() else { return false };
        let (asked, later) = (self.messages[at].at, self.messages[sending].at);
        let worked = u64::from(self.messages[reply].body().service_time);
        sending > at
            && later > asked + NEAR
            && worked <= (self.messages[reply].at - later).as_secs() + 2
    }

    /// The recorded server had died and started again: a connect finds no target yet, or one that
    /// recovers. A target starts when its first connect is answered by one.
    fn restart(&mut self, link: usize, asked: &Body, reply: &Body) {
        let absent = reply.status < 0;
        let anew = asked.handle != 0 && asked.handle != reply.handle;
        let recovers = reply.op_flags.contains(OpFlags::RECOVERING);
        if self.setup.dies && !self.restarted && anew {
            self.restarted = true;
            self.host = Host::new(self.me, 8, self.host.now, self.setup.tunables.clone());
            self.targets.clear();
            self.served.clear();
            self.serve();
        }
        if !self.restarted || absent || self.targets.contains_key(&link) {
            return;
        }
        let (uuid, ..) = self.names(link);
        let found = &self.index.links[link];
        let offer = found.granted.map_or_else(|| assumed(found.kind), |(data, _)| data);
        let known = |other: &&crate::exchange::Asked| recovers && other.target == uuid;
        let asked = self.index.links.iter().filter_map(|other| other.asked.as_ref());
        let clients = asked
            .filter(known)
            .map(|asked| ClientRecord { uuid: asked.client.clone(), replies: Vec::new() });
        let past = Past { last_transno: reply.last_committed, clients: clients.collect() };
        let replayable = reply.op_flags.contains(OpFlags::REPLAYABLE);
        let config = TargetConfig { uuid: uuid.clone(), offer, replayable, past };
        let Ok(target) = self.host.rpc(|rpc| rpc.add_target(config)) else { return };
        for (other, found) in self.index.links.iter().enumerate() {
            if found.server == self.me && found.asked.as_ref().is_some_and(|a| a.target == uuid) {
                self.targets.insert(other, target);
            }
        }
    }

    /// The recorded server had dropped the client before this request came.
    fn evict_first(&mut self, body: &Body, reply: &Body, link: usize) {
        let gone = reply.kind == MsgKind::ERROR && reply.status == Errno::ENOTCONN.negative();
        let anew = body.opcode.is_connect()
            && body.handle != 0
            && reply.kind == MsgKind::REPLY
            && !reply.op_flags.intersects(OpFlags::RECONNECT | OpFlags::RECOVERING)
            && !self.restarted;
        if !gone && !anew {
            return;
        }
        let (target, client, _) = self.names(link);
        let views = self.host.look(|ptlrpc| ptlrpc.export_views());
        let mine = views.iter().find(|view| view.target == target && view.client == client);
        if let Some(view) = mine {
            let id = view.id;
            self.host.rpc(|rpc| rpc.evict(id));
        }
    }

    fn pair(&self, at: usize) -> Result<&Message, &'static str> {
        let pair = self.pairs.get(&at).and_then(|pair| self.produced.get(*pair));
        pair.map(|pair| &pair.message).ok_or(UNSENT)
    }

    fn sending_of(&self, at: usize) -> Result<usize, &'static str> {
        let exchange = self.index.of.get(&at).ok_or("no exchange")?;
        let exchange = &self.index.exchanges[*exchange];
        let all = exchange.replies.iter().chain(&exchange.bulk);
        let found = all.into_iter().find(|(other, _)| *other == at);
        found.map(|(_, sending)| *sending).ok_or("no sending")
    }

    /// A reply to a sending that was sent again all the same never reached its client.
    fn was_lost(&self, at: usize, sending: usize) -> bool {
        let Some(exchange) = self.index.of.get(&at) else { return false };
        let sendings = &self.index.exchanges[*exchange].sendings;
        let later = sendings.iter().find(|later| **later > sending);
        self.messages[at].role == Role::Reply
            && later.is_some_and(|later| {
                self.messages[*later].body().flags.contains(BodyFlags::RESENT)
                    && self.messages[at].body().kind == MsgKind::REPLY
            })
    }

    fn reply_in(&mut self, at: usize, message: &mut Message) -> Result<(), &'static str> {
        let sending = self.sending_of(at)?;
        if self.was_lost(at, sending) {
            return Err("the recorded client lost it");
        }
        let ours = self.pair(sending)?;
        let (bits, body) = (ours.bits(), ours.body());
        let asked = &self.messages[sending];
        let by_mbits = asked.body().mbits != 0 && asked.body().mbits == message.bits();
        let bits = if by_mbits { body.mbits } else { bits };
        if let Kind::Put { match_bits, .. } = &mut message.hdr.kind {
            *match_bits = bits;
        }
        if let Some(link) = self.index.channel(sending) {
            let portal = asked.portal().unwrap_or_default();
            if message.role == Role::Reply && message.body().timeout != 0 {
                self.learned.insert((link, portal));
            }
            if asked.body().opcode.is_connect() && message.body().handle != 0 {
                let cookie = message.body().handle;
                self.relations.exports.relate(cookie, cookie);
            }
        }
        Ok(())
    }

    fn bulk_in(&self, at: usize, message: &mut Message) -> Result<(), &'static str> {
        let sending = self.sending_of(at)?;
        let ours = base(self.pair(sending)?.body().mbits);
        let recorded = base(self.messages[sending].body().mbits);
        match &mut message.hdr.kind {
            Kind::Put { match_bits, .. } | Kind::Get { match_bits, .. } => {
                *match_bits = *match_bits - recorded + ours;
            }
            Kind::Ack { .. } | Kind::Reply { .. } => {}
        }
        Ok(())
    }

    fn answer_in(&self, at: usize, message: &mut Message) -> Result<(), &'static str> {
        let first = self.index.answers.get(&at).ok_or("answers nothing that was recorded")?;
        let ours = match self.pair(*first)?.hdr.kind {
            Kind::Put { ack, .. } => ack,
            Kind::Get { ret, .. } => ret,
            Kind::Ack { .. } | Kind::Reply { .. } => Handle::NONE,
        };
        if ours == Handle::NONE {
            return Err("ours wanted no acknowledgement");
        }
        match &mut message.hdr.kind {
            Kind::Ack { dst, .. } | Kind::Reply { dst, .. } => *dst = ours,
            Kind::Put { .. } | Kind::Get { .. } => {}
        }
        Ok(())
    }

    // ---- what the recorded node sent -------------------------------------------------------------

    fn output(&mut self, at: usize) {
        let message = &self.messages[at];
        let side = self.side(at);
        self.run_to(instant(message.at));
        let open = match message.role {
            Role::Request => self.request_out(at),
            Role::Reply => self.reply_out(at),
            Role::Early => None,
            Role::BulkPut | Role::BulkGet => self.bulk_out(at),
            Role::Ack | Role::Data => self.answer_out(at),
        };
        let verdict = match open {
            Some(why) => Verdict::Open(why),
            None => self.expect(at),
        };
        let what = describe(message);
        self.played.outcomes.push(Outcome { frame: message.frame, side, what, verdict });
    }

    /// Whether our node serves or asks with this message.
    fn side(&self, at: usize) -> Side {
        let message = &self.messages[at];
        let callback = match self.index.answers.get(&at) {
            Some(first) => self.messages[*first].is_callback(),
            None => message.is_callback(),
        };
        let serves =
            matches!(message.role, Role::Reply | Role::Early | Role::BulkPut | Role::BulkGet);
        if serves != callback { Side::Server } else { Side::Client }
    }

    fn request_out(&mut self, at: usize) -> Option<&'static str> {
        let message = &self.messages[at];
        if message.is_callback() {
            return self.callback_out(at);
        }
        let body = message.body();
        let exchange = *self.index.of.get(&at)?;
        let link = *self.index.link_of.get(&at)?;
        let first = self.index.exchanges[exchange].sendings.first() == Some(&at);
        let known = self.imports.contains_key(&link);
        if body.opcode.is_connect() {
            if !known {
                let import = self.add_import(link);
                self.host.rpc(|rpc| rpc.connect(import));
            }
        } else if body.opcode.is_disconnect() {
            if let Some(import) = self.imports.remove(&link) {
                self.host.rpc(|rpc| rpc.disconnect(import));
            }
        } else if body.flags.contains(BodyFlags::REQ_REPLAY_DONE)
            && body.opcode == Opcode::LDLM_ENQUEUE
        {
            return Some("lock replay is the lock layer's, which has no way to ask for it");
        } else if first
            && body.opcode != Opcode::OBD_PING
            && !body.flags.intersects(BodyFlags::RESENT | BodyFlags::REPLAY)
        {
            self.calls_before(at);
            self.call(at);
        }
        self.take();
        None
    }

    /// Our node calls a client back.
    fn callback_out(&mut self, at: usize) -> Option<&'static str> {
        let message = &self.messages[at];
        let exchange = *self.index.of.get(&at)?;
        if message.body().flags.contains(BodyFlags::RESENT) || self.calls.contains_key(&exchange) {
            return None;
        }
        let link = self.index.called_back(message)?;
        let (target, client, _) = self.names(link);
        let views = self.host.look(|ptlrpc| ptlrpc.export_views());
        let mine = views.iter().find(|view| view.target == target && view.client == client);
        let Some(export) = mine.map(|view| view.id) else { return Some("its client is gone") };
        let (header, body) = message.rpc.unwrap_or_default();
        let mut call = Call::new(body.opcode, message.buffers());
        if header.repsize > 224 {
            call.reply_lens = vec![header.repsize - 224];
        }
        let result = self.host.rpc(|rpc| rpc.callback(export, call));
        let Ok(id) = result else { return Some("the request layer refused the callback") };
        self.calls.insert(exchange, id);
        self.take();
        None
    }

    /// Makes the calls with lower xids that were recorded a moment later, over another connection of
    /// TCP: a call has its xid from its beginning.
    fn calls_before(&mut self, at: usize) {
        let message = &self.messages[at];
        let mut before: Vec<_> = (at + 1..self.messages.len())
            .take_while(|later| self.messages[*later].at < message.at + NEAR / 4)
            .filter(|later| {
                let other = &self.messages[*later];
                let body = other.body();
                other.role == Role::Request
                    && other.from() == self.me
                    && other.bits() < message.bits()
                    && !other.is_callback()
                    && !body.opcode.is_connect()
                    && !body.opcode.is_disconnect()
                    && body.opcode != Opcode::OBD_PING
                    && !body.flags.intersects(BodyFlags::RESENT | BodyFlags::REPLAY)
            })
            .collect();
        before.sort_by_key(|later| self.messages[*later].bits());
        for later in before {
            self.call(later);
        }
    }

    /// Makes the recorded call, once.
    fn call(&mut self, at: usize) {
        let message = &self.messages[at];
        let Some(exchange) = self.index.of.get(&at).copied() else { return };
        if self.calls.contains_key(&exchange) {
            return;
        }
        let link = self.index.link_of.get(&at).copied();
        let Some(import) = link.and_then(|link| self.imports.get(&link)).copied() else { return };
        let (header, body) = message.rpc.unwrap_or_default();
        let mut call = Call::new(body.opcode, message.buffers());
        // One request of a kernel client plans for a reply of 0 bytes, and has room for it all the same.
        let reply = self.index.reply_to(self.messages, at).map(|reply| &self.messages[reply]);
        let needed = reply.map_or(0, |reply| reply.payload.len() as u32);
        let planned = if header.repsize == 0 { needed } else { header.repsize };
        if planned > 224 {
            call.reply_lens = vec![planned - 224];
        }
        call.bulk = self.bulk_of(exchange, &body);
        call.modifies = body.tag != 0;
        if message.portal() == Some(RENAME.0.0) && body.opcode == Opcode::MDS_REINT {
            call.portals = Some(RENAME);
        }
        let sent = self.produced.len();
        if let Ok(id) = self.host.rpc(|rpc| rpc.call(import, call)) {
            self.calls.insert(exchange, id);
        }
        self.take();
        if let Some(ours) = self.produced.get(sent).filter(|p| p.message.role == Role::Request) {
            let (recorded, ours) = (self.messages[at].bits(), ours.message.bits());
            self.relations.xids.relate(base(recorded), base(ours));
        }
    }

    /// The bulk data of a call: the bytes that were recorded, or room for them.
    fn bulk_of(&mut self, exchange: usize, body: &Body) -> Option<Bulk> {
        let bulk = &self.index.exchanges[exchange].bulk;
        let (first, sending) = *bulk.first()?;
        let mut bytes = Vec::new();
        for (at, _) in bulk.iter().filter(|(_, to)| *to == sending) {
            let answer = self.index.answers.iter().find(|(_, put)| **put == *at);
            match self.messages[*at].hdr.kind {
                Kind::Get { .. } => {
                    let data = answer.map(|(data, _)| self.messages[*data].payload.clone());
                    bytes.extend(data.unwrap_or_default());
                }
                _ => bytes.resize(bytes.len() + self.messages[*at].payload.len(), 0),
            }
        }
        let direction = match self.messages[first].role {
            Role::BulkGet => Direction::Write,
            _ => Direction::Read,
        };
        // As many pieces as the match bits say (P-48).
        let pieces = body.mbits - base(body.mbits) + 1;
        if direction == Direction::Read {
            let least = ((pieces - 1) << 20) as usize + 4096;
            bytes.resize(bytes.len().next_multiple_of(4096).max(least), 0);
        }
        let memory = self.host.memory(bytes);
        Some(Bulk { direction, memory })
    }

    fn reply_out(&mut self, at: usize) -> Option<&'static str> {
        let message = &self.messages[at];
        let Ok(sending) = self.sending_of(at) else { return Some(UNRECORDED) };
        if !self.injected.contains(&sending) {
            return Some("its request could not be handed on");
        }
        let body = message.body();
        let key = (message.to(), self.messages[sending].bits());
        let served = self.served.remove(&key)?;
        let id = served.id;
        if body.kind == MsgKind::ERROR {
            let errno = Errno(body.status.saturating_neg());
            self.host.rpc(|rpc| rpc.refuse(id, errno));
        } else {
            let link = self.index.link_of.get(&sending);
            if let Some(target) = link.and_then(|link| self.targets.get(link)).copied() {
                self.host.rpc(|rpc| rpc.committed(target, body.last_committed));
            }
            let answer = Answer {
                status: body.status,
                buffers: message.buffers(),
                transno: body.transno,
                pre_versions: body.pre_versions,
                hold: if wants_ack(&message.hdr) { Hold::UntilAck } else { Hold::No },
            };
            self.host.rpc(|rpc| rpc.reply(id, answer));
        }
        self.take();
        None
    }

    fn bulk_out(&mut self, at: usize) -> Option<&'static str> {
        let Ok(sending) = self.sending_of(at) else { return Some(UNRECORDED) };
        if !self.injected.contains(&sending) {
            return Some("its request could not be handed on");
        }
        if !self.moving.insert(sending) {
            return None;
        }
        let exchange = *self.index.of.get(&at)?;
        let key = (self.messages[at].to(), self.messages[sending].bits());
        let id = self.served.get(&key)?.id;
        let mut bytes = Vec::new();
        for (other, _) in self.index.exchanges[exchange].bulk.iter().filter(|(_, s)| *s == sending)
        {
            match self.messages[*other].hdr.kind {
                Kind::Get { sink_len, .. } => bytes.resize(bytes.len() + sink_len as usize, 0),
                _ => bytes.extend_from_slice(&self.messages[*other].payload),
            }
        }
        let direction = match self.messages[at].role {
            Role::BulkGet => Direction::Write,
            _ => Direction::Read,
        };
        let memory = self.host.memory(bytes);
        let begun = self.host.rpc(|rpc| rpc.bulk(id, direction, &memory));
        self.take();
        begun.err().map(|_| "the request layer refused the bulk data")
    }

    fn answer_out(&self, at: usize) -> Option<&'static str> {
        let Some(first) = self.index.answers.get(&at) else { return Some(UNRECORDED) };
        (!self.injected.contains(first)).then_some("what it answers could not be handed on")
    }

    // ---- comparison ------------------------------------------------------------------------------

    fn candidate(&self, at: usize) -> Option<usize> {
        let recorded = &self.messages[at];
        let fits = |produced: &Produced| {
            let ours = &produced.message;
            !produced.paired
                && ours.role == recorded.role
                && ours.to() == recorded.to()
                && match recorded.role {
                    Role::Request => self.same_request(recorded, ours),
                    Role::Reply | Role::Early | Role::BulkPut | Role::BulkGet => {
                        ours.bits() == recorded.bits()
                    }
                    Role::Ack | Role::Data => answered(&ours.hdr) == answered(&recorded.hdr),
                }
        };
        // Connects and pings before the last one were lost on the wire, if they were not recorded.
        let body = recorded.body();
        let repeats = recorded.role == Role::Request
            && (body.opcode.is_connect() || body.opcode == Opcode::OBD_PING);
        if repeats {
            self.produced.iter().rposition(fits)
        } else {
            self.produced.iter().position(fits)
        }
    }

    /// How much later than the recorded message ours came, counted from what both followed: the
    /// request before on the same connection, or the early reply before.
    fn late(&self, at: usize, link: usize, sent: Instant) -> (f64, f64) {
        let seconds = |instant: Instant| instant.as_nanos() as f64 / 1e9;
        let before = match self.messages[at].role {
            Role::Request => self.before(at, |other| self.index.channel(other) == Some(link)),
            Role::Early => self.before(at, |other| {
                self.messages[other].role == Role::Early
                    && self.index.of.get(&other) == self.index.of.get(&at)
            }),
            _ => None,
        };
        let skew = seconds(sent) - seconds(instant(self.messages[at].at));
        let Some((recorded, ours)) = before else { return (skew, 0.0) };
        let waited = (self.messages[at].at - self.messages[recorded].at).as_secs_f64();
        let drift = seconds(ours) - seconds(instant(self.messages[recorded].at));
        (skew - drift, waited)
    }

    /// The last message before `at` that fits and has one of ours in its place.
    fn before(&self, at: usize, fits: impl Fn(usize) -> bool) -> Option<(usize, Instant)> {
        let (recorded, ours) = self.pairs.range(..at).rev().find(|(other, _)| fits(**other))?;
        Some((*recorded, self.produced[*ours].at))
    }

    fn same_request(&self, recorded: &Message, ours: &Message) -> bool {
        let (a, b) = (recorded.body(), ours.body());
        let xid = match self.relations.xids.ours(base(recorded.bits())) {
            Some(xid) => xid == base(ours.bits()),
            None => self.relations.xids.recorded(base(ours.bits())).is_none(),
        };
        let target = |m: &Message| crate::exchange::asked(m).map(|asked| asked.target);
        a.opcode == b.opcode
            && xid
            && if a.opcode.is_connect() {
                target(recorded) == target(ours)
            } else if recorded.is_callback() {
                self.relations.clients.ours(a.handle).is_none_or(|handle| handle == b.handle)
            } else {
                self.relations.exports.ours(a.handle).unwrap_or(a.handle) == b.handle
            }
    }

    /// Waits for our message in place of a recorded one, and compares them.
    fn expect(&mut self, at: usize) -> Verdict {
        let due = instant(self.messages[at].at);
        let mut found = self.candidate(at);
        while found.is_none() && self.host.now < due + PATIENCE {
            let end = (self.host.now + Duration::from_millis(100)).min(due + PATIENCE);
            self.host.run(end, |host| !host.sent.is_empty());
            self.take();
            found = self.candidate(at);
        }
        let Some(place) = found else {
            self.host.now = self.host.now.max(due);
            return Verdict::Differs(vec!["not sent".to_owned()]);
        };
        self.pairs.insert(at, place);
        self.produced[place].paired = true;
        let sent = self.produced[place].at;
        let ours = self.produced[place].message.clone();
        let link = self.index.channel(at).unwrap_or_default();
        let portal = self.messages[at].portal().unwrap_or_default();
        let learned = self.learned.contains(&(link, portal));
        let skew = (sent.as_nanos() as f64 - due.as_nanos() as f64) / 1e9;
        let counted = if ours.role == Role::Request { 0.0 } else { skew };
        let context = Context { link, learned, oldest: self.oldest(at, link), skew: counted };
        let mut differences = self.relations.compare(&self.messages[at], &ours, context);
        let (late, waited) = self.late(at, link, sent);
        let near = |late: f64, waited: f64| late.abs() <= NEAR.as_secs_f64() + waited * COARSE;
        if !near(skew, 0.0) && !near(late, waited) {
            differences.push(format!("time: {late:+.1} s"));
        }
        if differences.is_empty() { Verdict::Equal } else { Verdict::Differs(differences) }
    }

    /// Lowest xid of a connection without a reply before this place.
    fn oldest(&self, at: usize, link: usize) -> u64 {
        let unanswered = self.index.exchanges.iter().enumerate().filter(|(place, exchange)| {
            let Some(first) = exchange.sendings.first().copied() else { return false };
            let body = self.messages[first].body();
            (first <= at || self.calls.contains_key(place))
                && self.index.channel(first) == Some(link)
                && !body.opcode.is_connect()
                && !body.opcode.is_disconnect()
                && !exchange.replies.iter().any(|(reply, _)| {
                    *reply < at
                        && self.messages[*reply].role == Role::Reply
                        && self.injected.contains(reply)
                })
        });
        let lowest =
            unanswered.map(|(_, exchange)| self.messages[exchange.sendings[0]].bits()).min();
        lowest.unwrap_or_else(|| self.messages[at].bits())
    }
}

/// Whether a PUT asks for an acknowledgement.
fn wants_ack(hdr: &Hdr) -> bool {
    matches!(hdr.kind, Kind::Put { ack, .. } if ack != Handle::NONE)
}

/// The handle that an acknowledgement or data message answers.
fn answered(hdr: &Hdr) -> Option<Handle> {
    match hdr.kind {
        Kind::Ack { dst, .. } | Kind::Reply { dst, .. } => Some(dst),
        Kind::Put { .. } | Kind::Get { .. } => None,
    }
}

const UNSENT: &str = "ours has not sent what it belongs to";
const UNRECORDED: &str = "what it belongs to was not recorded";

/// A message in a few words.
pub fn describe(message: &Message) -> String {
    let body = message.body();
    match message.role {
        Role::Request => format!("{} {}", body.kind, body.opcode),
        Role::Reply => format!("{} {}", body.kind, body.opcode),
        Role::Early => format!("EARLY {}", body.opcode),
        Role::BulkPut => "bulk PUT".to_owned(),
        Role::BulkGet => "bulk GET".to_owned(),
        Role::Ack => "ACK".to_owned(),
        Role::Data => "REPLY".to_owned(),
    }
}
