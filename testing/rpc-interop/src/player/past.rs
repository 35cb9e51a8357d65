//! What was there before the recording: clients that were connected, imports in use, requests that
//! were lost on the way.

use core::time::Duration;

use lnet_wire::{Handle, Hdr, Kind};
use lustre_wire::msg::{Header, MsgBuilder};
use lustre_wire::{
    Body, Buffers, ConnectData, ConnectFlags, ConnectFlags2, ImportKind, MsgKind, OpFlags, Opcode,
};
use ptlrpc::{Answer, Call, ImportConfig, ImportId, Past, ServiceConfig, TargetConfig};

use super::Player;
use crate::recording::Message;
use crate::stage::{START, Sent, Stage};

/// Deadline of a request to a service without history (P-96).
pub(super) const DEADLINE: Duration = Duration::from_secs(16);

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

impl<S: Stage> Player<'_, S> {
    pub(super) fn serve(&mut self) {
        for (name, portal, reply, bulk) in SERVICES {
            let config =
                ServiceConfig { buffers: 4, ..ServiceConfig::new(name, portal, reply, bulk) };
            self.stage.rpc(|rpc| rpc.serve(config)).expect("a service");
        }
    }

    pub(super) fn prelude(&mut self) {
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
        self.locks_were_there();
        self.plan_unseen();
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
            return (before + message.at)
                .saturating_sub(self.setup.tunables.ping_interval)
                .min(late);
        }
        if message.body().opcode.is_connect() && !self.follows_a_table(first, link) {
            // A ping was lost before: its time passed, or LNet failed meanwhile.
            let waited = if self.setup.dies { DEADLINE / 2 } else { DEADLINE };
            let ping = self.setup.tunables.ping_interval + waited;
            return (before + message.at).saturating_sub(ping).min(late);
        }
        late
    }

    pub(super) fn names(&self, link: usize) -> (String, String, u64) {
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
        let target = self.stage.rpc(|rpc| rpc.add_target(config)).expect("a target");
        self.targets.insert(link, target);
    }

    /// What our node sends at once.
    fn answers(&mut self) -> Vec<Sent> {
        self.stage.wait(self.stage.now() + S::PATIENCE);
        core::mem::take(self.stage.sent())
    }

    pub(super) fn header_of(&self, link: usize, kind: Kind, len: usize) -> Hdr {
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
        self.stage.arrive(&hdr, &payload).expect("a connect");
        for sent in self.answers() {
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
        self.stage.events();
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
        self.stage.arrive(&hdr, &payload).expect("a request");
        let served = loop {
            self.take();
            if let Some(served) = self.served.remove(&(found.client, match_bits)) {
                break served;
            }
            assert!(!S::TIMED, "a request is served at once");
            self.stage.wait(self.stage.now() + Duration::from_millis(1));
        };
        if let Some(target) = self.targets.get(&link).copied() {
            self.stage.rpc(|rpc| rpc.committed(target, transno));
        }
        self.stage.rpc(|rpc| rpc.reply(served.id, Answer { transno, ..Answer::default() }));
        self.stage.sent().clear();
    }

    pub(super) fn add_import(&mut self, link: usize) -> ImportId {
        let found = &self.index.links[link];
        let (target, client, _) = self.names(link);
        let wanted = found.asked.as_ref().map_or_else(|| assumed(found.kind), |a| a.data);
        let server = found.server;
        // LNet of the recorded node knew the server before.
        self.stage.rpc(|rpc| rpc.below().discover(server));
        let config = ImportConfig { kind: found.kind, target, client, nids: vec![server], wanted };
        let import = self.stage.rpc(|rpc| rpc.import(config)).expect("an import");
        self.imports.insert(link, import);
        import
    }

    /// An import that is connected when the recording begins.
    fn import_was_there(&mut self, link: usize) {
        let import = self.add_import(link);
        let found = self.index.links[link].clone();
        self.take();
        self.stage.rpc(|rpc| rpc.connect(import));
        let asked = self.answers().pop().expect("a connect");
        let request = Message::new(0, Duration::ZERO, asked.hdr, asked.payload).expect("an RPC");
        let mut data = found.granted.map_or_else(|| assumed(found.kind), |(data, _)| data);
        // A client says in a connect which life of the target it knows.
        data.instance = found.asked.as_ref().map_or(data.instance, |asked| asked.data.instance);
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
        self.stage.arrive(&hdr, &payload).expect("a reply");
        self.relations.exports.relate(found.cookie, found.cookie);
        if replayable {
            self.has_state(link, import);
            self.has_open(link);
        }
        if let Some(ours) = crate::exchange::asked(&request) {
            self.handles.insert(link, ours.handle);
            if let Some(asked) = &found.asked {
                self.relations.clients.relate(asked.handle, ours.handle);
            }
        }
        self.stage.events();
    }

    /// An import that was there has something of the server's: a transaction, long committed.
    fn has_state(&mut self, link: usize, import: ImportId) {
        let call = Call::new(Opcode(20_000), Buffers::new());
        self.stage.rpc(|rpc| rpc.call(import, call)).expect("a call");
        let asked = self.answers().pop().expect("a request");
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
        self.stage.arrive(&hdr, &payload).expect("a reply");
    }
}

/// What the data of connections that began before the recording say.
pub(super) fn assumed(kind: ImportKind) -> ConnectData {
    let mut flags2 = ConnectFlags2::empty();
    // Imports of servers have no REP_MBITS.
    flags2.set(
        ConnectFlags2::REP_MBITS,
        matches!(kind, ImportKind::Osc | ImportKind::Mdc | ImportKind::Mgc),
    );
    let mut flags = ConnectFlags::empty();
    // Attributes of objects come whole (L-18).
    flags.set(ConnectFlags::LVB_TYPE, kind == ImportKind::Osc);
    ConnectData {
        flags: flags
            | ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2,
        ..ConnectData::default()
    }
}
