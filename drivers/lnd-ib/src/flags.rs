//! The three flags of a transmit, which say when it is complete (B-13, RS-074 to RS-076).

use lnet_wire::ib::Type;

/// What a transmit still waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Postings that have not completed.
    pub sending: u8,
    /// The peer's driver has yet to answer.
    pub waiting: bool,
    /// It is in a queue, not posted.
    pub queued: bool,
}

impl Flags {
    /// In a queue, for the first time or with its next message.
    pub const fn queue(&mut self) {
        self.queued = true;
    }

    /// Its message of `kind` is posted.
    pub const fn posted(&mut self, kind: Type) {
        self.queued = false;
        self.sending = self.sending.saturating_add(1);
        self.waiting = expects_answer(kind);
    }

    /// A posting has completed.
    pub const fn completed(&mut self) {
        self.sending = self.sending.saturating_sub(1);
    }

    /// The answer has come, or will not.
    pub const fn answered(&mut self) {
        self.waiting = false;
    }

    /// Whether nothing is left.
    pub const fn is_complete(self) -> bool {
        self.sending == 0 && !self.waiting && !self.queued
    }
}

/// Whether a message of this type waits for an answer of the peer's driver (RS-075).
pub(crate) const fn expects_answer(kind: Type) -> bool {
    matches!(kind, Type::PutReq | Type::GetReq | Type::PutAck)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transmit_is_complete_with_all_three_flags_clear_and_not_before() {
        for bits in 0..8_u8 {
            let flags = Flags { sending: bits & 1, waiting: bits & 2 != 0, queued: bits & 4 != 0 };
            assert_eq!(flags.is_complete(), bits == 0, "{flags:?}");
        }
    }

    #[test]
    fn requests_and_put_ack_wait_and_no_other_type_does() {
        for kind in Type::ALL {
            let mut flags = Flags::default();
            flags.queue();
            assert!(flags.queued && !flags.waiting && !flags.is_complete(), "{kind}");
            flags.posted(kind);
            let waits = matches!(kind, Type::PutReq | Type::GetReq | Type::PutAck);
            assert_eq!(flags, Flags { sending: 1, waiting: waits, queued: false }, "{kind}");
            flags.completed();
            assert_eq!(flags.is_complete(), !waits, "{kind}");
            flags.answered();
            assert!(flags.is_complete(), "{kind}");
        }
    }

    #[test]
    fn an_answer_before_the_completion_leaves_the_transmit_incomplete() {
        let mut flags = Flags::default();
        flags.queue();
        flags.posted(Type::PutReq);
        flags.answered();
        assert!(!flags.is_complete());
        // The same transmit goes again, as PUT_DONE.
        flags.queue();
        flags.completed();
        assert!(!flags.is_complete());
        flags.posted(Type::PutDone);
        flags.completed();
        assert!(flags.is_complete());
    }
}
