//! Our node serves: it takes the recorded requests, its handlers answer with the recorded bodies, and its
//! exports make the recorded callbacks.

use lnet_types::Errno;
use lnet_wire::Kind;
use lustre_wire::msg::rewrite;
use lustre_wire::{Body, BodyFlags, MsgKind, OpFlags, Opcode};
use ptlrpc::{Answer, Call, ClientRecord, Direction, Hold, Past, TargetConfig};

use super::compare::wants_ack;
use super::locks::Locks;
use super::past::assumed;
use super::{NEAR, Player, UNRECORDED};
use crate::recording::{Message, Role};
use crate::stage::Stage;

impl<S: Stage> Player<'_, S> {
    pub(super) fn request_in(
        &mut self,
        at: usize,
        message: &mut Message,
    ) -> Result<(), &'static str> {
        let exchange = self.index.of.get(&at).copied().ok_or("no exchange")?;
        self.know_cookies(message);
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
            self.stage.rpc(|rpc| rpc.committed(target, reply.last_committed));
            self.evict_first(&body, &reply, link);
        }
        if let Some(ours) = self.relations.exports.ours(body.handle) {
            let body = Body { handle: ours, ..body };
            let header = message.rpc.map(|(header, _)| header).unwrap_or_default();
            rewrite(&mut message.payload, &header, &body).map_err(|_| "no body of version 3")?;
        }
        Ok(())
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

    /// The recorded server, or the target that is asked for, had gone, or had started again: a connect
    /// finds none, or one that recovers. A target starts when its first connect is answered by one.
    fn restart(&mut self, link: usize, asked: &Body, reply: &Body) {
        let absent = [Errno::ENODEV, Errno::EAGAIN].map(Errno::negative).contains(&reply.status);
        let anew = asked.handle != 0 && asked.handle != reply.handle;
        let recovers = reply.op_flags.contains(OpFlags::RECOVERING);
        if self.setup.dies && !self.restarted && anew {
            self.restarted = true;
            self.stage.restart();
            self.targets.clear();
            self.served.clear();
            let enqueue_min = self.setup.tunables.ldlm_enqueue_min;
            self.locks = self.setup.locks.then(|| Locks::new(enqueue_min, true));
            self.serve();
        }
        let (uuid, ..) = self.names(link);
        let reborn = recovers && anew && self.reborn.insert(uuid.clone());
        if absent || reborn {
            self.remove_target(&uuid);
        }
        if reply.status < 0 || self.targets.contains_key(&link) {
            return;
        }
        let found = &self.index.links[link];
        let offer = found.granted.map_or_else(|| assumed(found.kind), |(data, _)| data);
        let links = self.index.links.iter().enumerate();
        let known = links.filter_map(|(other, link)| {
            let asked = link.asked.as_ref().filter(|asked| recovers && asked.target == uuid)?;
            // One that the target did not wait for had come too late to be in its records.
            let committed = Some(self.committed_before(other)?);
            Some(ClientRecord { uuid: asked.client.clone(), committed, ..ClientRecord::default() })
        });
        let mut clients: Vec<_> = known.collect();
        if recovers && self.waits_for_an_absent_client(&uuid) {
            let uuid = "absent".to_owned();
            clients.push(ClientRecord { uuid, ..ClientRecord::default() });
        }
        let theirs = clients.iter().filter_map(|client| client.committed).max();
        let last_transno = theirs.unwrap_or(0).max(reply.last_committed);
        let past = Past { last_transno, clients };
        let replayable = reply.op_flags.contains(OpFlags::REPLAYABLE);
        let config = TargetConfig { uuid: uuid.clone(), offer, replayable, past };
        let Ok(target) = self.stage.rpc(|rpc| rpc.add_target(config)) else { return };
        for other in self.links_to(&uuid) {
            self.targets.insert(other, target);
        }
    }

    /// The connections to one of our targets.
    fn links_to(&self, uuid: &str) -> Vec<usize> {
        let links = self.index.links.iter().enumerate();
        let mine = links.filter(|(_, link)| {
            link.server == self.me && link.asked.as_ref().is_some_and(|a| a.target == uuid)
        });
        mine.map(|(link, _)| link).collect()
    }

    /// Whether a target that recovers never answers a client that has repeated its requests: it waits for
    /// one that does not come, of which the recording shows nothing.
    fn waits_for_an_absent_client(&self, uuid: &str) -> bool {
        let links = self.links_to(uuid);
        self.messages.iter().enumerate().any(|(at, message)| {
            message.role == Role::Request
                && message.body().flags.contains(BodyFlags::REQ_REPLAY_DONE)
                && self.index.link_of.get(&at).is_some_and(|link| links.contains(link))
                && self.index.reply_to(self.messages, at).is_none()
        })
    }

    fn remove_target(&mut self, uuid: &str) {
        for link in self.links_to(uuid) {
            if let Some(target) = self.targets.remove(&link) {
                self.stage.rpc(|rpc| rpc.remove_target(target));
            }
        }
        self.take();
    }

    /// What a client had committed, as its target says when it recovers.
    fn committed_before(&self, link: usize) -> Option<u64> {
        let mut mine = self.index.link_of.iter().filter(|(_, l)| **l == link).map(|(at, _)| *at);
        mine.find_map(|at| {
            let reply = self.messages[self.index.reply_to(self.messages, at)?].body();
            let recovers =
                reply.opcode.is_connect() && reply.op_flags.contains(OpFlags::RECOVERING);
            recovers.then_some(reply.last_committed)
        })
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
        let views = self.stage.look(|ptlrpc| ptlrpc.export_views());
        let mine = views.iter().find(|view| view.target == target && view.client == client);
        if let Some(view) = mine {
            let id = view.id;
            self.stage.rpc(|rpc| rpc.evict(id));
        }
    }

    /// Our node calls a client back.
    pub(super) fn callback_out(&mut self, at: usize) -> Option<&'static str> {
        let message = &self.messages[at];
        let exchange = *self.index.of.get(&at)?;
        if message.body().flags.contains(BodyFlags::RESENT) || self.calls.contains_key(&exchange) {
            return None;
        }
        let link = self.index.called_back(message)?;
        let (target, client, _) = self.names(link);
        let views = self.stage.look(|ptlrpc| ptlrpc.export_views());
        let mine = views.iter().find(|view| view.target == target && view.client == client);
        let Some(export) = mine.map(|view| view.id) else { return Some("its client is gone") };
        let (header, body) = message.rpc.unwrap_or_default();
        let mut call = Call::new(body.opcode, message.buffers().into_iter().collect());
        if header.repsize > 224 {
            call = call.answered_by(&[header.repsize - 224]);
        }
        let result = self.stage.rpc(|rpc| rpc.callback(export, call));
        let Ok(id) = result else { return Some("the request layer refused the callback") };
        self.calls.insert(exchange, id);
        self.take();
        None
    }

    pub(super) fn reply_out(&mut self, at: usize) -> Option<&'static str> {
        let Ok(sending) = self.sending_of(at) else { return Some(UNRECORDED) };
        if !self.injected.contains(&sending) {
            return Some("its request could not be handed on");
        }
        if !self.answer(at) {
            self.answer_others(at);
            self.answer(at);
        }
        None
    }

    /// What a recovering target repeats has its turn one after another here. The recorded one answered
    /// in another order: requests whose recorded replies come a moment later are in the way.
    fn answer_others(&mut self, at: usize) {
        let end = self.messages[at].at + NEAR / 4;
        for later in at + 1..self.messages.len() {
            let message = &self.messages[later];
            if message.at > end {
                return;
            }
            if message.from() == self.me && message.role == Role::Reply {
                self.answer(later);
            }
        }
    }

    /// Answers a request with its recorded reply; `false`: it is not served now.
    fn answer(&mut self, at: usize) -> bool {
        let Ok(sending) = self.sending_of(at) else { return false };
        let message = &self.messages[at];
        let body = message.body();
        let key = (message.to(), self.messages[sending].bits());
        let Some(served) = self.served.remove(&key) else { return false };
        let id = served.id;
        if body.kind == MsgKind::ERROR {
            let errno = Errno(body.status.saturating_neg());
            self.stage.rpc(|rpc| rpc.refuse(id, errno));
        } else {
            let link = self.index.link_of.get(&sending);
            if let Some(target) = link.and_then(|link| self.targets.get(link)).copied() {
                self.stage.rpc(|rpc| rpc.committed(target, body.last_committed));
            }
            let answer = Answer {
                status: body.status,
                buffers: message.buffers().into_iter().collect(),
                transno: body.transno,
                pre_versions: body.pre_versions,
                hold: if wants_ack(&message.hdr) { Hold::UntilAck } else { Hold::No },
            };
            self.stage.rpc(|rpc| rpc.reply(id, answer));
        }
        self.take();
        true
    }

    pub(super) fn bulk_out(&mut self, at: usize) -> Option<&'static str> {
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
        let memory = self.stage.memory(bytes);
        let begun = self.stage.rpc(|rpc| rpc.bulk(id, direction, &memory));
        self.take();
        begun.err().map(|_| "the request layer refused the bulk data")
    }
}
