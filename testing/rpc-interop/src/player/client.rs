//! Our node asks: it makes the recorded calls, and takes the recorded replies, bulk data and callbacks.

use core::time::Duration;

use lnet_types::Nid;
use lnet_wire::Kind;
use lustre_wire::msg::rewrite;
use lustre_wire::opcode::RENAME;
use lustre_wire::{Body, BodyFlags, ConnectData, Msg, MsgKind, Opcode};
use ptlrpc::{Bulk, Call, Direction, ImportId};

use super::recovery::is_lock_replay;
use super::{NEAR, Player};
use crate::exchange::base;
use crate::recording::{Message, Role};
use crate::stage::Stage;

/// How long LNet's rules that drop messages were there, at most.
const DROPS: Duration = Duration::from_secs(5);

/// The recorded call, without its bulk data.
pub(super) fn call_of(message: &Message) -> Call {
    let (header, body) = message.rpc.unwrap_or_default();
    let mut call = Call::new(body.opcode, message.buffers().into_iter().collect());
    if header.repsize > 224 {
        call = call.answered_by(&[header.repsize - 224]);
    }
    call.modifies = body.tag != 0;
    if message.portal() == Some(RENAME.0.0) && body.opcode == Opcode::MDS_REINT {
        call.portals = Some(RENAME);
    }
    call
}

impl<S: Stage> Player<'_, S> {
    /// A server calls our node back, by the cookie of the import that it knows.
    pub(super) fn callback_in(&mut self, message: &mut Message) -> Result<(), &'static str> {
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

    /// A reply to a sending that was sent again all the same never reached its client. What LNet dropped
    /// by its portal took the replies to pings along, whose clients connect again next.
    fn was_lost(&self, at: usize, sending: usize) -> bool {
        if self.messages[sending].body().opcode != Opcode::OBD_PING {
            return self.was_resent(at, sending);
        }
        let portal = self.messages[at].portal();
        let mut before =
            (0..at).rev().take_while(|b| self.messages[*b].at + DROPS > self.messages[at].at);
        self.connects_again_behind(sending)
            && before.any(|b| {
                self.messages[b].portal() == portal
                    && self.messages[b].to() == self.me
                    && self.sending_of(b).is_ok_and(|sending| self.was_resent(b, sending))
            })
    }

    fn was_resent(&self, at: usize, sending: usize) -> bool {
        let Some(exchange) = self.index.of.get(&at) else { return false };
        let sendings = &self.index.exchanges[*exchange].sendings;
        let later = sendings.iter().find(|later| **later > sending);
        self.messages[at].role == Role::Reply
            && later.is_some_and(|later| {
                self.messages[*later].body().flags.contains(BodyFlags::RESENT)
                    && self.messages[at].body().kind == MsgKind::REPLY
            })
    }

    /// Whether the next request over a connection connects it again.
    fn connects_again_behind(&self, sending: usize) -> bool {
        let Some(link) = self.index.link_of.get(&sending) else { return false };
        let mut later = self.index.link_of.range(sending + 1..).filter(|(_, l)| *l == link);
        later.next().is_some_and(|(next, _)| self.messages[*next].body().opcode.is_connect())
    }

    pub(super) fn reply_in(
        &mut self,
        at: usize,
        message: &mut Message,
    ) -> Result<(), &'static str> {
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
                self.before_recovery(sending, &message.body());
            }
        }
        Ok(())
    }

    pub(super) fn bulk_in(&self, at: usize, message: &mut Message) -> Result<(), &'static str> {
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

    pub(super) fn request_out(&mut self, at: usize) -> Option<&'static str> {
        let message = &self.messages[at];
        if message.is_callback() {
            return self.callback_out(at);
        }
        let body = message.body();
        let exchange = *self.index.of.get(&at)?;
        let link = *self.index.link_of.get(&at)?;
        let first = self.index.exchanges[exchange].sendings.first() == Some(&at);
        let known = self.imports.contains_key(&link);
        // Where times don't count, a ping is not waited for: the program sends it.
        let last = body.flags.contains(BodyFlags::REQ_REPLAY_DONE);
        let own_ping = body.opcode == Opcode::OBD_PING && (S::TIMED || last);
        if body.opcode.is_connect() {
            if !known {
                let import = self.add_import(link);
                self.stage.rpc(|rpc| rpc.connect(import));
            } else if let Some((import, server, instance)) = self.read_of_restart(at, link) {
                self.stage.rpc(|rpc| rpc.restarted(import, server, instance));
            }
        } else if body.opcode.is_disconnect() {
            if let Some(import) = self.imports.remove(&link) {
                self.stage.rpc(|rpc| rpc.disconnect(import));
            }
        } else if is_lock_replay(message) {
            return self.replay_lock(at);
        } else if first
            && !own_ping
            && !body.flags.intersects(BodyFlags::RESENT | BodyFlags::REPLAY)
        {
            self.calls_before(at);
            self.call(at);
        }
        self.take();
        None
    }

    /// The program has read in the table of targets that this one has started again (P-154).
    fn read_of_restart(&self, connect: usize, link: usize) -> Option<(ImportId, Nid, u32)> {
        if !self.follows_a_table(connect, link) {
            return None;
        }
        let reply = &self.messages[self.index.reply_to(self.messages, connect)?];
        let msg = Msg::parse(&reply.payload).ok()?;
        let instance = ConnectData::of(&msg, 1).ok()?.instance;
        Some((*self.imports.get(&link)?, self.index.links[link].server, instance))
    }

    /// Whether a node has read the table of targets between the last message of a connection and a connect.
    pub(super) fn follows_a_table(&self, connect: usize, link: usize) -> bool {
        let before = self.index.link_of.range(..connect).rev().find(|(_, l)| **l == link);
        let last = before.map_or(0, |(last, _)| *last);
        self.messages[last..connect].iter().any(|message| {
            message.role == Role::Reply
                && message.to() == self.me
                && message.body().opcode == Opcode::MGS_CONFIG_READ
        })
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
    pub(super) fn call(&mut self, at: usize) {
        let message = &self.messages[at];
        let Some(exchange) = self.index.of.get(&at).copied() else { return };
        if self.calls.contains_key(&exchange) {
            return;
        }
        let link = self.index.link_of.get(&at).copied();
        let Some(import) = link.and_then(|link| self.imports.get(&link)).copied() else { return };
        let mut call = call_of(message);
        // One request of a kernel client plans for a reply of 0 bytes, and has room for it all the same.
        let reply = self.index.reply_to(self.messages, at).map(|reply| &self.messages[reply]);
        let planned = message.rpc.map_or(0, |(header, _)| header.repsize);
        if let Some(reply) = reply.filter(|_| planned == 0) {
            let more = (reply.payload.len() as u32).checked_sub(224).filter(|more| *more > 0);
            call = call.answered_by(more.as_slice());
        }
        call.bulk = self.bulk_of(exchange, &message.body());
        call.keep = self.keeps(exchange);
        let sent = self.produced.len();
        if let Ok(id) = self.stage.rpc(|rpc| rpc.call(import, call)) {
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
        let memory = self.stage.memory(bytes);
        Some(Bulk { direction, memory })
    }
}
