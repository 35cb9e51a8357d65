//! A connection in the driver's table: its stream and what each phase owns. An idle one holds a few
//! hundred bytes and no buffer.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use lnet_types::{Instant, NiId, PeerNiId, ProcessId, RxId};
use lnet_wire::Hdr;
use lnet_wire::sock::Version;
use smallvec::SmallVec;

use crate::peer::{ConnKey, PeerKey};
use crate::proto::conn::{Inbox, Outbox, Stage};
use crate::proto::frame::FrameRx;
use crate::proto::kinds::Kind;
use crate::proto::load::Run;
use crate::proto::retained::Retained;
use crate::proto::sink::Inbound;
use crate::proto::txq::{Queued, TxQueue};
use crate::proto::watch::{Loss, Mark};
use crate::stats::Traffic;
use crate::streams::StreamId;

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) stream: StreamId,
    pub(super) ni: NiId,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Whether the other side opened it.
    pub(super) came: bool,
    pub(super) phase: Phase,
    /// Bytes of the handshake that are to be written, before anything else.
    pub(super) outbox: Outbox,
    /// When the handshake must have gone on, for a connection without a peer; when one that has parted from
    /// its peer is closed.
    pub(super) timer: Instant,
    /// It is in the driver's list of that name.
    pub(super) in_dirty: bool,
    pub(super) in_backlog: bool,
    pub(super) in_verify: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// TCP connect under way.
    Connecting(Dialed),
    /// We opened; the answer is due, `want` bytes of it next.
    AwaitHello { dialed: Dialed, inbox: Inbox, want: usize },
    /// Accepted; the request is due.
    AwaitRequest { inbox: Inbox, want: usize },
    /// The request was good; the HELLO is due.
    AwaitPeerHello { inbox: Inbox, want: usize },
    /// A refusal is being written; the connection closes behind it.
    Draining,
    /// Messages flow.
    Up(Box<Up>),
}

/// What an attempt of ours is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialed {
    pub(super) peer: PeerKey,
    pub(super) kind: Kind,
    pub(super) version: Version,
    /// When it began.
    pub(super) begun: Instant,
}

/// A connection over which messages flow.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) peer: PeerKey,
    pub(super) from: ProcessId,
    /// The node's name for the interface at the other end, once it has one.
    pub(super) peer_ni: Option<PeerNiId>,
    /// A peer in user space: its messages get the connection's identity as their source
    /// (wire.md 3.13).
    pub(super) claimed: bool,
    pub(super) kind: Kind,
    pub(super) version: Version,

    pub(super) rx: FrameRx,
    pub(super) inbound: Option<Inbound>,
    pub(super) deferred: Option<Box<Deferred>>,
    /// When a message that has begun to arrive must have gone on; `FAR_FUTURE` between messages.
    pub(super) rx_deadline: Instant,

    pub(super) tx: TxQueue,
    /// The stream takes no more; it will be reported as writable.
    pub(super) blocked: bool,
    /// When something must have been acknowledged; `FAR_FUTURE` while nothing is on the way.
    pub(super) tx_deadline: Instant,
    /// How long it may stay unacknowledged with what is on the way; zero while nothing is.
    pub(super) patience: Duration,
    /// Bytes written, and how many of them were acknowledged when last looked at.
    pub(super) written: u64,
    pub(super) acked: u64,
    /// The looks at the rail since something has been on the way.
    pub(super) run: Run,
    /// What was written and is not acknowledged, towards a peer that recognizes duplicates.
    pub(super) retained: Option<Box<Retained>>,
    /// The age of what is on the way, and what of it is lost.
    pub(super) mark: Mark,
    pub(super) loss: Loss,
    /// It has parted from its peer and is only read any more (`part.rs`).
    pub(super) parted: Option<Parted>,
    /// When it was last chosen, in uses of connections.
    pub(super) used: u64,
    pub(super) traffic: Traffic,
}

/// A connection that is only read any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parted {
    /// It ends with a reset.
    pub(super) reset: bool,
}

/// What a connection has for its peer when it parts from it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) ni: NiId,
    pub(super) peer: PeerKey,
    pub(super) from: ProcessId,
    pub(super) kind: Kind,
    pub(super) written: u64,
    pub(super) retained: Option<Box<Retained>>,
    pub(super) items: VecDeque<Queued>,
}

/// A message that waits for the node to find a buffer; the connection is not read meanwhile.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) rx: RxId,
    pub(super) hdr: Hdr,
    pub(super) cookie: u64,
    /// Bytes that were read beyond the header: at most one read's worth.
    pub(super) behind: Vec<u8>,
}

impl Conn {
    /// The stage of its handshake; `None` when that is over.
    pub(super) const fn stage(&self) -> Option<Stage> {
        match &self.phase {
            Phase::Connecting(_) => Some(Stage::Connecting),
            Phase::AwaitHello { .. } => Some(Stage::AwaitHello),
            Phase::AwaitRequest { .. } => Some(Stage::AwaitRequest),
            Phase::AwaitPeerHello { .. } => Some(Stage::AwaitPeerHello),
            Phase::Draining => Some(Stage::Draining),
            Phase::Up(_) => None,
        }
    }

    /// Bytes that it holds for a message without a buffer.
    pub(super) fn ahead(&self) -> u64 {
        self.up().and_then(|up| up.deferred.as_ref()).map_or(0, |d| d.behind.len() as u64)
    }

    /// Whether it was accepted and has not finished its handshake.
    pub(super) const fn is_pending(&self) -> bool {
        match &self.phase {
            Phase::AwaitRequest { .. } | Phase::AwaitPeerHello { .. } | Phase::Draining => true,
            Phase::Connecting(_) | Phase::AwaitHello { .. } | Phase::Up(_) => false,
        }
    }

    pub(super) fn up(&self) -> Option<&Up> {
        match &self.phase {
            Phase::Up(up) => Some(up),
            _ => None,
        }
    }

    pub(super) fn up_mut(&mut self) -> Option<&mut Up> {
        match &mut self.phase {
            Phase::Up(up) => Some(up),
            _ => None,
        }
    }
}

impl Up {
    /// Takes all that it has for its peer; `ni` is the connection's.
    pub(super) fn take_outgoing(&mut self, ni: NiId) -> Outgoing {
        self.tx_deadline = Instant::FAR_FUTURE;
        Outgoing {
            ni,
            peer: self.peer,
            from: self.from,
            kind: self.kind,
            written: self.written,
            retained: self.retained.take(),
            items: self.tx.drain(),
        }
    }

    /// Something is on its way that must make progress within `timeout`. When to look for the first time,
    /// if nothing was on the way before: four times within the limit (K-35).
    #[inline]
    pub(super) fn expect_progress(&mut self, now: Instant, timeout: Duration) -> Option<Instant> {
        self.patience = self.patience.max(timeout);
        if self.tx_deadline != Instant::FAR_FUTURE {
            return None;
        }
        self.tx_deadline = now + self.patience;
        Some(now + self.patience / 4)
    }
}

/// The connections that were busy lately, for callers that spin. Small, because each costs a read
/// per round.
#[derive(Debug, Default)]
pub(super) struct Recent(SmallVec<[(ConnKey, u16); RECENT]>);

/// Connections watched while spinning.
const RECENT: usize = 8;
/// Rounds without news after which one is watched no more; readiness brings it back.
const MISSES_MAX: u16 = 1024;

impl Recent {
    /// `key` had news: it is the first from here on, and the others move back.
    pub(super) fn note(&mut self, key: ConnKey) {
        match self.0.iter().position(|(other, _)| *other == key) {
            Some(at) => {
                if let Some(moved) = self.0.get_mut(..=at) {
                    moved.rotate_right(1);
                }
            }
            None => {
                self.0.truncate(RECENT - 1);
                self.0.insert(0, (key, 0));
            }
        }
        if let Some((_, misses)) = self.0.first_mut() {
            *misses = 0;
        }
    }

    /// Whether `key` is watched.
    pub(super) fn has(&self, key: ConnKey) -> bool {
        self.0.iter().any(|(other, _)| *other == key)
    }

    /// The one at a place, which is looked at now. The last one to have spoken is watched for ever.
    pub(super) fn look(&mut self, at: usize) -> Option<ConnKey> {
        loop {
            let (key, misses) = self.0.get_mut(at)?;
            *misses = if at == 0 { 0 } else { *misses + 1 };
            if *misses <= MISSES_MAX {
                return Some(*key);
            }
            self.0.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::{Key, KeyData};

    use super::*;

    fn key(n: u64) -> ConnKey {
        ConnKey::from(KeyData::from_ffi(1 << 32 | n))
    }

    fn watched(recent: &mut Recent) -> Vec<u64> {
        let mut at = 0;
        let mut keys = Vec::new();
        while let Some(key) = recent.look(at) {
            keys.push(key.data().as_ffi() & 0xffff);
            at += 1;
        }
        keys
    }

    #[test]
    fn the_latest_connections_are_watched_latest_first() {
        let mut recent = Recent::default();
        for n in [1, 2, 3, 1, 1] {
            recent.note(key(n));
        }
        assert_eq!(watched(&mut recent), [1, 3, 2]);
        (10..30).for_each(|n| recent.note(key(n)));
        assert_eq!(watched(&mut recent), [29, 28, 27, 26, 25, 24, 23, 22]);
    }

    #[test]
    fn silent_connections_are_watched_no_more_but_for_the_last_one() {
        let mut recent = Recent::default();
        recent.note(key(1));
        recent.note(key(2));
        for _ in 0..=MISSES_MAX {
            assert_eq!(watched(&mut recent).first(), Some(&2));
        }
        assert_eq!(watched(&mut recent), [2]);
    }

    #[test]
    fn an_idle_connection_is_small() {
        let size = (size_of::<Conn>() + size_of::<Up>()) as u64;
        assert!(size <= crate::CONN_BYTES, "{size} bytes for each idle connection");
    }
}
