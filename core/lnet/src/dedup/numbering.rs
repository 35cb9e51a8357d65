//! The sender's side of a session, as data: the numbers of our messages to one peer, and the number of
//! one message.

use lnet_wire::mark::{Mark, SessionName};

/// The numbering of our messages to one peer.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Numbering {
    /// Whether its ping data say that it deduplicates; `None` while they are not known.
    able: Option<bool>,
    /// The number of our next message to it.
    next: u64,
    /// The name of our session with it, once a message has had a number. It follows from what the node
    /// knows of itself and of the peer, so it is not written down.
    #[serde(skip)]
    session: Option<SessionName>,
}

impl Numbering {
    /// Whether the peer deduplicates; `None` while that is not known.
    pub(crate) const fn able(&self) -> Option<bool> {
        self.able
    }

    /// Whether the peer is known to deduplicate.
    pub(crate) fn is_able(&self) -> bool {
        self.able == Some(true)
    }

    /// Its ping data say whether the peer deduplicates.
    pub(crate) const fn announced(&mut self, able: bool) {
        self.able = Some(able);
    }

    /// The number of the next message, in the session of this name.
    pub(super) fn take(&mut self, name: impl FnOnce() -> SessionName) -> Numbered {
        let session = *self.session.get_or_insert_with(name);
        let n = self.next;
        self.next += 1;
        Numbered { session, n, unsure: false, written: false, lost: false }
    }

    /// Whether a further copy of a message is recognized as one while `session` is the session with the
    /// peer: its number is far from where numbers begin anew.
    pub(super) fn is_recent(&self, session: SessionName, numbered: Numbered) -> bool {
        session != numbered.session || self.next.saturating_sub(numbered.n) < Mark::NUMBERS / 4
    }
}

/// The session and number of a message of ours: the same for all its copies.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Numbered {
    pub(super) session: SessionName,
    n: u64,
    /// An earlier copy may have arrived.
    unsure: bool,
    /// An earlier copy has been written whole.
    written: bool,
    /// A copy has failed that may have reached the receiver, and taken the place of another one there.
    lost: bool,
}

/// What all copies of a message have in common: its session, and its number there.
pub(crate) type Number = (SessionName, u64);

impl Numbered {
    /// See [`Number`].
    pub(crate) const fn number(self) -> Number {
        (self.session, self.n)
    }

    /// An earlier copy has been written whole.
    pub(super) const fn note_written(&mut self) {
        self.written = true;
    }

    /// A copy has failed that may have reached the receiver.
    pub(crate) const fn note_lost(&mut self) {
        self.lost = true;
    }

    /// Whether an earlier copy has been written whole.
    pub(crate) const fn is_written(self) -> bool {
        self.written
    }

    /// Whether an earlier copy has been written whole, and no other one can have taken its place at the
    /// receiver and been lost: a further copy need not be written.
    pub(crate) const fn has_arrived(self) -> bool {
        self.written && !self.lost
    }

    /// The next copy of the message may not be the first to arrive.
    pub(crate) const fn note_unsure(&mut self) {
        self.unsure = true;
    }

    /// Whether an earlier copy may have arrived.
    pub(super) const fn is_unsure(self) -> bool {
        self.unsure
    }

    pub(super) const fn mark(self) -> Mark {
        Mark::new(self.session, self.n, self.unsure)
    }
}
