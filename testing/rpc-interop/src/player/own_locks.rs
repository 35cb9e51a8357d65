//! Locks that the recorded server took for itself: for writes of clients without a lock (L-50), and for
//! what it did to an object inside of its own node, such as a removal that its metadata target asked for.
//! Of those the recording shows the callbacks to holders alone, so ours is told when, of which object, in
//! which mode, and whether holders may drop their data; whom it calls back, and with what, is its own.

use ldlm::Mode;
use ldlm::server::LocalAsk;
use lustre_wire::Opcode;
use lustre_wire::ldlm::{LockFlags, LockRequest};

use super::Player;
use super::locks::request_of;
use crate::recording::{Message, Role};
use crate::stage::Stage;

impl<S: Stage> Player<'_, S> {
    /// Takes the lock behind a recorded callback for which no client's request is the reason.
    pub(super) fn lock_for_itself(&mut self, at: usize) {
        let message = &self.messages[at];
        if message.body().opcode != Opcode::LDLM_BL_CALLBACK || self.was_called_back(at) {
            return;
        }
        let Some(request) = request_of(message) else { return };
        if self.is_wanted_by_a_client(at, &request) {
            return;
        }
        let Some(mode) = Mode::of(request.desc.requested) else { return };
        let ask = LocalAsk {
            resource: request.desc.resource,
            mode,
            // The end is not that of what is wanted (L-33).
            start: request.desc.policy.start,
            end: u64::MAX,
            discard: request.flags.contains(LockFlags::DISCARD_DATA),
            removes: false,
        };
        let Some(locks) = &mut self.locks else { return };
        let server = &mut locks.server;
        // A lock that is refused calls nobody back: the callback is missing then.
        let _ = self.stage.rpc(|rpc| server.lock_locally(&ask, rpc));
        self.take();
    }

    /// Whether the recorded callback is a copy of one before.
    fn was_called_back(&self, at: usize) -> bool {
        let exchange = self.index.of.get(&at).map(|exchange| &self.index.exchanges[*exchange]);
        exchange.is_some_and(|exchange| exchange.sendings.first() != Some(&at))
    }

    /// Whether an enqueue for the same object was there at that time, and had no answer.
    fn is_wanted_by_a_client(&self, at: usize, callback: &LockRequest) -> bool {
        let enqueues = |(_, message): &(usize, &Message)| {
            message.role == Role::Request
                && message.to() == self.me
                && message.body().opcode == Opcode::LDLM_ENQUEUE
                && request_of(message).map(|r| r.desc.resource) == Some(callback.desc.resource)
        };
        let before = self.messages.iter().enumerate().take(at).filter(enqueues);
        let answered = |sending| self.index.reply_to(self.messages, sending);
        before.into_iter().any(|(sending, _)| answered(sending).is_none_or(|reply| reply > at))
    }

    /// Locks of the server that were granted after a wait go at once: what they were for is not played.
    pub(super) fn unlock_its_own(&mut self) {
        let Some(locks) = &mut self.locks else { return };
        let server = &mut locks.server;
        while let Some(lock) = server.poll_local() {
            self.stage.rpc(|rpc| server.unlock_locally(lock, rpc));
        }
    }
}
