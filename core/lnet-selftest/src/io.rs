//! The border below: actions for the host, and their results. And the queue of
//! actions with what every part shares: tokens, ids, counters.

use core::time::Duration;
use std::collections::VecDeque;

use lnet_types::{Errno, Nid, ProcessId};
use lnet_wire::selftest::{PORTAL_REPLY, Service};

use crate::Settings;

/// Names one action until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Bytes to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// These.
    Bytes(Vec<u8>),
    /// The test pattern ([`crate::fill`]) of this length, or that with some bytes changed.
    Pattern {
        /// Bytes.
        len: u32,
        /// Whether it is to be wrong ([`crate::damage`]).
        damaged: bool,
    },
}

impl Data {
    /// Bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Pattern { len, .. } => *len as usize,
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is wanted of bytes that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: they may be thrown away, and [`Done::bytes`] is empty.
    Nothing,
    /// They come with [`Done`]; before, the first and last 8 bytes hold [`crate::poison`].
    Edges,
    /// They come with [`Done`]; before, all of the buffer holds [`crate::poison`].
    All,
}

/// A buffer for what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Its length. More is not taken.
    pub len: u32,
    /// What is wanted of its bytes.
    pub wanted: Wanted,
}

/// What a buffer on the portal of replies is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// To be read by one GET.
    Source(Data),
    /// To be written by one PUT.
    Sink(Sink),
}

/// A wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// From here on keep so many buffers of one message posted for requests of `service`: on its
    /// portal, with its number as match bits, from any node, without truncation. Each request goes
    /// to [`crate::Selftest::request`].
    Listen {
        /// The service.
        service: Service,
        /// How many.
        buffers: u32,
    },
    /// Send a PUT without ACK; done when it is sent.
    Put {
        /// Its name.
        token: Token,
        /// The NID to send from; any if `None`.
        from: Option<Nid>,
        /// The target.
        to: ProcessId,
        /// Which portal.
        portal: u32,
        /// Match bits.
        match_bits: u64,
        /// What.
        data: Data,
    },
    /// Send a GET to the portal of replies; done when the answer is there.
    Get {
        /// Its name.
        token: Token,
        /// The NID to send from; any if `None`.
        from: Option<Nid>,
        /// The target.
        to: ProcessId,
        /// Match bits.
        match_bits: u64,
        /// Where to.
        sink: Sink,
    },
    /// Post a buffer on the portal of replies, for one operation of `peer`; done when that is over.
    Offer {
        /// Its name.
        token: Token,
        /// Who may use it.
        peer: ProcessId,
        /// Match bits.
        match_bits: u64,
        /// For what.
        buffer: Offered,
    },
    /// The action of that name is of no interest any more: its buffer goes, and nothing more is
    /// said about it.
    Withdraw {
        /// Its name.
        token: Token,
    },
}

/// How an action ended.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// Whether it went well.
    pub status: Result<(), Errno>,
    /// Bytes that were moved.
    pub len: u32,
    /// The bytes that arrived, if they are wanted.
    pub bytes: &'a [u8],
}

/// The counters of LNet that QUERY_STAT tells (6.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the wire")]
pub struct LnetCounters {
    pub msgs_alloc: u32,
    pub msgs_max: u32,
    pub errors: u32,
    pub send_count: u32,
    pub recv_count: u32,
    pub route_count: u32,
    pub drop_count: u32,
    pub send_length: u64,
    pub recv_length: u64,
    pub route_length: u64,
    pub drop_length: u64,
}

/// The counters of the RPC, since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RpcCounters {
    pub(crate) errors: u32,
    pub(crate) sent: u32,
    pub(crate) received: u32,
    pub(crate) dropped: u32,
    pub(crate) expired: u32,
    pub(crate) bulk_get: u64,
    pub(crate) bulk_put: u64,
}

impl RpcCounters {
    pub(crate) fn bump(counter: &mut u32) {
        *counter = counter.wrapping_add(1);
    }
}

/// Actions, and the source of their names.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) settings: Settings,
    /// The time limit of calls that the console's session has set, until it ends.
    pub(crate) patience: Option<Duration>,
    pub(crate) counters: RpcCounters,
    actions: VecDeque<Action>,
    next_token: u64,
    next_id: u64,
}

impl Io {
    /// `first_id`: the ids of this life begin here, far from those of the one before (6.1).
    pub(crate) const fn new(settings: Settings, first_id: u64) -> Self {
        Self {
            settings,
            patience: None,
            counters: RpcCounters {
                errors: 0,
                sent: 0,
                received: 0,
                dropped: 0,
                expired: 0,
                bulk_get: 0,
                bulk_put: 0,
            },
            actions: VecDeque::new(),
            next_token: 1,
            next_id: first_id,
        }
    }

    pub(crate) fn token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    /// Match bits for a reply or bulk: unique and never 0.
    pub(crate) fn id(&mut self) -> u64 {
        let id = self.next_id.max(1);
        self.next_id = id.wrapping_add(1);
        id
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A PUT to the portal of replies.
    pub(crate) fn put_reply(
        &mut self,
        from: Nid,
        to: ProcessId,
        match_bits: u64,
        data: Data,
    ) -> Token {
        let token = self.token();
        let from = Some(from);
        self.push(Action::Put { token, from, to, portal: PORTAL_REPLY, match_bits, data });
        token
    }

    pub(crate) fn withdraw(&mut self, token: Token) {
        self.push(Action::Withdraw { token });
    }

    /// The test pattern, damaged if errors are to be injected.
    pub(crate) fn pattern(&mut self, len: u32) -> Data {
        let damaged = self.settings.inject_errors > 0;
        self.settings.inject_errors = self.settings.inject_errors.saturating_sub(1);
        Data::Pattern { len, damaged }
    }
}
