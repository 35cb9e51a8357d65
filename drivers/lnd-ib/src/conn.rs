//! One connection: its state, its queues, and what is posted on it.

use std::collections::{BTreeSet, VecDeque};

use lnet_types::{Instant, Nid, RxId};
use lnet_wire::Handle;
use lnet_wire::ib::{Msg, RdmaDesc, Version};

use crate::credits::Credits;
use crate::tx::TxKey;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    /// Its address is being resolved.
    Resolving,
    /// Its route is being resolved.
    Routing,
    /// The peer has been asked.
    Connecting,
    /// A request was accepted, and is not confirmed yet.
    Accepting,
    /// In use.
    Up,
    /// Ended; what is posted has to come back.
    Closing,
}

/// A peer's GET_REQ whose data the node has yet to send.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The handle that the REPLY will name.
    pub(crate) ret: Handle,
    pub(crate) cookie: u64,
    pub(crate) rd: RdmaDesc,
    /// The receive buffer of the request, which is posted again behind the answer.
    pub(crate) slot: u16,
    pub(crate) until: Instant,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) peer: Nid,
    /// This side asked for it.
    pub(crate) active: bool,
    pub(crate) state: ConnState,
    pub(crate) version: Version,
    pub(crate) max_frags: u16,
    pub(crate) credits: Credits,
    /// Chains of work requests that may be posted at a time.
    pub(crate) sends_max: u16,
    /// Incarnation of the peer.
    pub(crate) stamp: u64,
    /// Requests; each needs a reserved credit before it may go with the rest.
    pub(crate) requests: VecDeque<TxKey>,
    /// What takes a credit.
    pub(crate) normal: VecDeque<TxKey>,
    /// What takes none.
    pub(crate) free: VecDeque<TxKey>,
    /// Every transmit that is with it.
    pub(crate) txs: BTreeSet<TxKey>,
    pub(crate) posted_sends: u16,
    pub(crate) posted_receives: u16,
    /// NOOPs posted and not completed.
    pub(crate) noops: u8,
    /// A NOOP is due because nothing has been sent for long.
    pub(crate) keepalive: bool,
    /// Messages that came before the connection was established.
    pub(crate) early: Vec<(u16, Msg, usize)>,
    pub(crate) served: Vec<Served>,
    /// Whether what is read behind its end is taken: the peer has kept to the protocol.
    pub(crate) believed: bool,
    /// Headers that wait for the node's verdict.
    pub(crate) rxs: BTreeSet<RxId>,
    pub(crate) last_sent: Instant,
    /// When it was asked for.
    pub(crate) begun: Instant,
    /// Since when something is posted and nothing has completed.
    pub(crate) moving_since: Option<Instant>,
    /// Since when messages wait to be posted and none is.
    pub(crate) blocked_since: Option<Instant>,
    /// When its timer is set.
    pub(crate) timer: Option<Instant>,
}

impl Conn {
    /// Whether nothing is posted, and nothing that was received is in use.
    pub(crate) fn is_drained(&self) -> bool {
        self.posted_sends == 0 && self.posted_receives == 0 && self.rxs.is_empty()
    }
}
