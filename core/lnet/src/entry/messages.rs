//! Operations of users, and what drivers report of messages on their way out. The way itself is in `send/`,
//! doubt about what was written in `dedup/retransmit.rs` and `in_doubt.rs`.

use lnet_types::{Fault, Instant, MsgId, NiId, Nid};

use crate::below::InDoubt;
use crate::msg::{Role, Stage};
use crate::record::Input;
use crate::send::{Operation, Reason, Verb};
use crate::{Get, Node, Put, SendError};

impl Node {
    /// Sends the whole of a descriptor (M-48, M-49). Its outcome arrives as events: one SEND, and
    /// an ACK if one was asked for and came.
    ///
    /// # Errors
    /// Only what shows at once; path and transmission failures are events.
    pub fn put(&mut self, now: Instant, put: Put) -> Result<(), SendError> {
        self.note_usual(|live| live.put(now, &put));
        let now = self.clock(now);
        let Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout } = put;
        let verb = Verb::Put { ack, hdr_data, offset };
        let id = self.operate(
            now,
            Operation {
                md,
                src,
                target,
                portal,
                match_bits,
                limits: timeout.unwrap_or_default(),
                recovery: false,
                verb,
            },
        )?;
        self.depart(now, id);
        self.settle(now);
        Ok(())
    }

    /// Fetches data into a descriptor (M-48, M-49). Its outcome arrives as events: one SEND, and a
    /// REPLY if it came.
    ///
    /// # Errors
    /// As [`Node::put`].
    pub fn get(&mut self, now: Instant, get: Get) -> Result<(), SendError> {
        self.note_usual(|live| live.get(now, &get));
        let now = self.clock(now);
        let Get { md, src, target, portal, match_bits, offset, timeout } = get;
        let verb = Verb::Get { offset };
        let id = self.operate(
            now,
            Operation {
                md,
                src,
                target,
                portal,
                match_bits,
                limits: timeout.unwrap_or_default(),
                recovery: false,
                verb,
            },
        )?;
        self.depart(now, id);
        self.settle(now);
        Ok(())
    }

    /// A driver has done with a message: all its bytes are in the transport's hands, or not.
    /// A message that the node doesn't know (any more) is ignored.
    pub fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        self.note_usual(|live| live.tx_done(now, msg, outcome));
        self.transmitted(now, msg, outcome);
    }

    /// A driver refused a message at once. In profile `kernel` it is not tried again (S-4); otherwise its
    /// status decides, as after any other attempt.
    pub fn tx_refused(&mut self, now: Instant, msg: MsgId, fault: Fault) {
        self.note(|| Input::TxRefused { now, msg, fault });
        if let Some(m) = self.msgs.get_mut(msg) {
            m.no_resend |= !self.tunables.conduct.resends_refused;
        }
        self.transmitted(now, msg, Err(fault));
    }

    fn transmitted(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        let now = self.clock(now);
        if self.msgs.get(msg).is_some_and(|m| m.stage == Stage::Driver) {
            self.close_sink(msg);
            self.finish(now, msg, outcome);
            self.settle(now);
        }
    }

    /// The other answer to [`Output::Recall`](crate::Output::Recall): the driver can't give the message back, because
    /// bytes of it are on their way, or it has ended. If it is known to its receiver, another copy
    /// takes its place; what the driver has is a remnant without a waiter.
    pub fn tx_begun(&mut self, now: Instant, msg: MsgId) {
        self.note(|| Input::TxBegun { now, msg });
        let now = self.clock(now);
        self.split(now, msg);
        self.repeat_if_elsewhere(now, msg);
        self.settle(now);
    }

    /// A driver has given a message back of which nothing was written: one answer to
    /// [`crate::Output::Recall`].
    pub fn tx_recalled(&mut self, now: Instant, msg: MsgId) {
        self.note(|| Input::TxRecalled { now, msg });
        let now = self.clock(now);
        let Some(role) = self.msgs.get(msg).filter(|m| m.stage == Stage::Driver).map(|m| m.role)
        else {
            return;
        };
        self.close_sink(msg);
        if role == Role::Remnant {
            // Another copy is on its way in its place.
            self.remnant_ended(now, msg, None);
        } else {
            self.again(now, msg, Reason::Unsent);
        }
        self.settle(now);
    }

    /// A connection over which `ni` spoke to the peer's interface `nid` has ended, and not in order:
    /// what was written to it and is not answered may be lost.
    pub fn written_lost(&mut self, now: Instant, ni: NiId, nid: Nid) {
        self.note(|| Input::WrittenLost { now, ni, nid });
        let now = self.clock(now);
        let Some(peer_ni) = self.peers.find(nid) else { return };
        self.repeat(now, |_, _, written| written.rail == Some((ni, peer_ni)));
        self.recall_remnants(ni, peer_ni);
        if let Some(primary) = self.peers.primary_behind(peer_ni) {
            self.outbox.lost_connection(primary);
        }
        self.settle(now);
    }

    /// A driver hands back messages that its transport had taken and may not have delivered, oldest
    /// first. They leave again as further copies, by another rail where there is a better one.
    pub fn tx_in_doubt(&mut self, now: Instant, messages: Vec<InDoubt>) {
        self.note(|| Input::TxInDoubt { now, messages: messages.clone() });
        let now = self.clock(now);
        for message in messages {
            self.repeat_in_doubt(now, message);
        }
        self.settle(now);
    }
}
