//! The client's part after a crash of its server, as far as it is the program's: which opens are still
//! there, what the replayed requests say now, and the replay of locks.

use lnet_wire::{Handle, Kind};
use lustre_wire::msg::{Header, MsgBuilder};
use lustre_wire::{Body, BodyFlags, MsgKind, OpFlags, Opcode};
use ptlrpc::Call;

use super::Player;
use super::client::call_of;
use crate::exchange::base;
use crate::recording::Message;
use crate::stage::Stage;

/// Whether a request is the replay of a lock.
pub(super) fn is_lock_replay(message: &Message) -> bool {
    let body = message.body();
    body.flags.contains(BodyFlags::REQ_REPLAY_DONE) && body.opcode == Opcode::LDLM_ENQUEUE
}

impl<S: Stage> Player<'_, S> {
    /// The requests of a connection between a connect and the next one.
    fn until_next_connect(&self, connect: usize) -> Vec<usize> {
        let link = self.index.link_of.get(&connect).copied();
        let later = self.index.link_of.range(connect + 1..).filter(|(_, l)| Some(**l) == link);
        let connects = |at: &usize| self.messages[*at].body().opcode.is_connect();
        later.map(|(at, _)| *at).take_while(|at| !connects(at)).collect()
    }

    /// The replays of an exchange.
    fn replays(&self, exchange: usize) -> impl Iterator<Item = usize> + '_ {
        let sendings = self.index.exchanges[exchange].sendings.iter().copied();
        sendings.filter(|at| self.messages[*at].body().flags.contains(BodyFlags::REPLAY))
    }

    /// Whether the program keeps a call for replay: one that opens a file.
    pub(super) fn keeps(&self, exchange: usize) -> bool {
        let opens = |at: usize| self.messages[at].body().opcode == Opcode::LDLM_ENQUEUE;
        self.replays(exchange).any(opens)
    }

    /// A connect is about to be answered: if the server recovers, the program says what is to be
    /// repeated, and how.
    pub(super) fn before_recovery(&mut self, connect: usize, reply: &Body) {
        let recovers = reply.op_flags.contains(OpFlags::RECOVERING);
        let link = self.index.link_of.get(&connect).copied();
        let import = link.and_then(|link| self.imports.get(&link)).copied();
        let (Some(link), Some(import), true) = (link, import, recovers) else { return };
        let stage = self.until_next_connect(connect);
        let locks = stage.iter().any(|at| is_lock_replay(&self.messages[*at]));
        self.stage.rpc(|rpc| rpc.replays_locks(import, locks));
        for (exchange, call) in self.calls.clone() {
            let Some(first) = self.index.exchanges[exchange].sendings.first().copied() else {
                continue;
            };
            if self.index.link_of.get(&first) != Some(&link) {
                continue;
            }
            let opcode = self.messages[first].body().opcode;
            let replay = self.replays(exchange).find(|at| stage.contains(at));
            if let Some(replay) = replay {
                let buffers = self.messages[replay].buffers().into_iter().collect();
                self.stage.rpc(|rpc| rpc.amend(import, call, buffers));
            } else if matches!(opcode, Opcode::LDLM_ENQUEUE | Opcode::MDS_CLOSE) {
                // The file is closed, and was not made by its open: there is nothing to bring back.
                self.stage.rpc(|rpc| rpc.forget(import, call));
            }
        }
    }

    /// Replays a lock, once the import has come so far; the last one ends the stage.
    pub(super) fn replay_lock(&mut self, at: usize) -> Option<&'static str> {
        let exchange = *self.index.of.get(&at)?;
        let link = *self.index.link_of.get(&at)?;
        let Some(import) = self.imports.get(&link).copied() else { return Some("no import") };
        let end = self.patience(at);
        let call = call_of(&self.messages[at]);
        loop {
            let attempt: Call = call.clone();
            if let Ok(id) = self.stage.rpc(|rpc| rpc.replay_lock(import, attempt)) {
                self.calls.insert(exchange, id);
                break;
            }
            if self.stage.now() >= end {
                return Some("the import is not in the stage of locks");
            }
            let step = (self.stage.now() + S::PATIENCE / 60).min(end);
            self.stage.wait(step);
            self.take();
        }
        let last = !self.index.link_of.range(at + 1..).any(|(later, l)| {
            *l == link
                && is_lock_replay(&self.messages[*later])
                && !(at..*later).any(|between| {
                    self.index.link_of.get(&between) == Some(&link)
                        && self.messages[between].body().opcode.is_connect()
                })
        });
        if last {
            self.stage.rpc(|rpc| rpc.locks_replayed(import));
        }
        self.take();
        None
    }

    /// Requests from before the recording that are repeated in it: files that were open, and changes that
    /// were not committed.
    pub(super) fn has_open(&mut self, link: usize) {
        for exchange in 0..self.index.exchanges.len() {
            let first = self.index.exchanges[exchange].sendings.first().copied();
            let Some(first) = first.filter(|at| self.index.link_of.get(at) == Some(&link)) else {
                continue;
            };
            if !self.messages[first].body().flags.contains(BodyFlags::REPLAY) {
                continue;
            }
            self.call(first);
            self.take();
            let recorded = self.messages[first].body();
            let Some(asked) = self.produced.pop().map(|produced| produced.message) else { return };
            self.relations.xids.relate(base(self.messages[first].bits()), base(asked.bits()));
            let kept = self.keeps(exchange);
            let body = Body {
                kind: MsgKind::REPLY,
                version: 3,
                opcode: recorded.opcode,
                transno: recorded.transno,
                // An open that is repeated is committed, as nothing is known of any other.
                last_committed: if kept {
                    recorded.transno
                } else {
                    recorded.transno.saturating_sub(1)
                },
                pre_versions: recorded.pre_versions,
                timeout: 5,
                service_time: 1,
                ..Body::default()
            };
            let payload = MsgBuilder::new(Header::default(), &body).build().expect("a reply");
            let bits = if asked.body().mbits == 0 { asked.bits() } else { asked.body().mbits };
            let (_, portal) = self.index.links[link].kind.portals();
            let kind = Kind::Put {
                ack: Handle::NONE,
                match_bits: bits,
                hdr_data: 0,
                portal: portal.0,
                offset: 224,
            };
            let hdr = self.header_of(link, kind, payload.len());
            self.stage.arrive(&hdr, &payload).expect("a reply");
        }
    }
}
