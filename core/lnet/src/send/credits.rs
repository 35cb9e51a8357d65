//! Credits that come back (behaviour.md 4.1), and the end of a message, with which all that it holds comes
//! back. One credit of the peer NI and one of the NI; a count of −n says that n messages wait in the
//! queue beside it (C-4). How they are taken is in `admit.rs`.

use lnet_types::{MsgId, NiId};

use crate::Node;
use crate::check::live;
use crate::msg::{Msg, Stage, Tx};
use crate::outbox::Work;
use crate::port::PortId;
use crate::timers::Timer;

/// What a message weighs in its peer's queue besides its payload (C-5).
const HEADER_BYTES: u64 = 72;

/// What a message weighs in its peer's queue.
pub(crate) fn queued_bytes(msg: &Msg) -> u64 {
    u64::from(msg.hdr.payload_len) + HEADER_BYTES
}

impl Node {
    /// Gives back what a message holds (C-7): NI credit first, each letting one waiting message go.
    pub(crate) fn return_credits(&mut self, id: MsgId) {
        self.timers.stop(Timer::Waiting(id));
        let Some(msg) = self.msgs.get_mut(id) else { return };
        let Some(tx) = msg.tx.take() else { return };
        let stage = core::mem::replace(&mut msg.stage, Stage::Moving);
        let bytes = queued_bytes(msg);
        if let Stage::Held(token) = stage {
            self.faults.forget(&mut self.timers, token);
        }
        if tx.peer_ni.is_some()
            && let Some(ni) = self.nis.get_mut(tx.ni)
        {
            ni.port.refs = ni.port.refs.saturating_sub(1);
        }
        self.give_credits_of(id, &tx, bytes, stage);
        if let Some(peer_ni) = tx.peer_ni {
            self.peers.release(peer_ni);
        }
    }

    /// Gives back the credits of a message that its driver keeps: what lies on a rail that carries nothing
    /// does not hold up what goes to the same interface by others.
    pub(crate) fn free_credits(&mut self, id: MsgId) {
        let Some(msg) = self.msgs.get_mut(id) else { return };
        let bytes = queued_bytes(msg);
        let Some(tx) = &mut msg.tx else { return };
        let held = *tx;
        (tx.ni_credit, tx.peer_credit) = (false, false);
        self.give_credits_of(id, &held, bytes, Stage::Driver);
    }

    fn give_credits_of(&mut self, id: MsgId, tx: &Tx, bytes: u64, stage: Stage) {
        if tx.ni_credit {
            self.give_credit(PortId::Local(tx.ni), (stage == Stage::NiQueue).then_some(id));
        }
        let Some(peer_ni) = tx.peer_ni.filter(|_| tx.peer_credit) else { return };
        if let Some(pni) = self.peers.nis.get_mut(peer_ni) {
            pni.queued_bytes = pni.queued_bytes.saturating_sub(bytes);
        }
        self.give_credit(PortId::Peer(peer_ni), (stage == Stage::PeerQueue).then_some(id));
    }

    /// Gives a credit back; `waiter` is the message that waited for it in vain.
    fn give_credit(&mut self, port: PortId, waiter: Option<MsgId>) {
        let next = self.port_mut(port).and_then(|port| port.credits.give_back(waiter));
        self.give_turn(next);
    }

    /// A queued message's turn has come. From here on it holds the credit that it waited for, so
    /// that it passes it on even if it ends before it is resumed.
    fn give_turn(&mut self, next: Option<MsgId>) {
        if let Some(id) = next
            && let Some(msg) = live!(mut self.msgs, id)
        {
            msg.stage = Stage::Moving;
            self.outbox.plan(Work::Resume(id));
        }
    }

    /// Takes the messages that wait for credits off `ni`, in the order in which they would have gone;
    /// they are to be sent again. They were not on their way, so this is no attempt.
    pub(crate) fn unbind_waiting(&mut self, ni: NiId, may: impl Fn(&Msg) -> bool) -> Vec<MsgId> {
        if !self.tunables.conduct.moves_waiting {
            return Vec::new();
        }
        let waits = |m: &Msg| {
            matches!(m.stage, Stage::NiQueue | Stage::PeerQueue)
                && !m.recovery
                && m.tx.is_some_and(|tx| tx.ni == ni)
        };
        let mut ids: Vec<_> = self
            .msgs
            .iter()
            .filter(|(_, m)| waits(m) && may(m))
            .map(|(id, m)| (m.stage == Stage::PeerQueue, m.tx.map(|tx| tx.committed), id))
            .collect();
        // Messages that wait for the interface have had the turn at their peer.
        ids.sort_unstable();
        for &(.., id) in &ids {
            let pair = self.msgs.get(id).and_then(Msg::rail);
            self.return_credits(id);
            if let Some(msg) = self.msgs.get_mut(id) {
                // DEC-15 lets a response leave the interface of its request for such a reason.
                msg.tried.extend(pair);
            }
        }
        ids.into_iter().map(|(.., id)| id).collect()
    }

    /// A message is in hand no more.
    pub(crate) fn count_out(&mut self, id: MsgId) {
        if let Some(msg) = self.msgs.get_mut(id)
            && core::mem::take(&mut msg.counted)
        {
            self.counts.message_out();
        }
    }

    /// Frees a message, with all that it holds. The only place where one ceases to exist.
    pub(crate) fn discard(&mut self, id: MsgId) {
        let Some(msg) = self.msgs.get_mut(id) else { return };
        let copied = msg.rx.as_ref().is_some_and(|rx| rx.copied.is_some());
        let passing = msg.transit.is_some();
        let from = msg.rx.as_ref().and_then(|rx| rx.peer_ni);
        let (stage, counted) = (msg.stage, core::mem::take(&mut msg.counted));
        if counted {
            self.counts.message_out();
        }
        if copied {
            self.copy_lost(id);
        }
        match stage {
            Stage::Resting(_) => self.end_rest(id),
            Stage::Answering => self.msgs.end_answering(),
            _ => {}
        }
        self.return_credits(id);
        if passing {
            self.return_transit(id);
        }
        self.peers.count_answered(from);
        self.msgs.remove(id);
    }
}
