//! Memory descriptors: what they still allow, and what of them is busy (behaviour.md 2).
//!
//! A descriptor lives until it is unlinked *and* no operation uses it. Which of its events is the
//! last is decided here, in [`Md::release`].

use core::time::Duration;
use std::sync::Arc;

use lnet_types::{Instant, IoVec, MsgId, NiId, PeerNiId, iovec_len};
use lnet_wire::mark::{Mark, SessionName};
use smallvec::SmallVec;

use super::owner::Owner;
use crate::{MatchEntry, MdOptions};

/// The memory behind a descriptor.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum MdBuf {
    /// Registered memory of a user.
    Spans(IoVec),
    /// Bytes of the node's own, to be read by peers.
    Bytes(Arc<[u8]>),
    /// Bytes for the node itself, at most this many.
    Collect(u32),
}

impl MdBuf {
    fn len(&self) -> u64 {
        match self {
            Self::Spans(iov) => iovec_len(iov),
            Self::Bytes(b) => b.len() as u64,
            Self::Collect(len) => u64::from(*len),
        }
    }
}

/// A memory descriptor.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Md {
    pub(crate) buf: MdBuf,
    pub(crate) len: u64,
    pub(crate) threshold: Option<u32>,
    pub(crate) max_size: u32,
    pub(crate) options: MdOptions,
    pub(crate) owner: Owner,
    pub(crate) auto_unlink: bool,
    /// Next byte to be used (M-25).
    pub(crate) offset: u64,
    /// Operations in progress.
    pub(crate) refs: u32,
    /// Not to be found any more; goes with the last operation (M-46).
    pub(crate) zombie: bool,
    /// Unlinked by its owner: operations end with `ETIMEDOUT` or `ECANCELED` (M-44, M-47).
    pub(crate) aborted: bool,
    /// The portal and entry that it is attached to.
    pub(crate) place: Option<(u32, MatchEntry)>,
    /// The response that is being waited for (H-60).
    pub(crate) tracker: Option<Tracker>,
    /// The GET whose driver may have a peer write to the memory.
    pub(crate) written_by: Option<MsgId>,
    /// Marked requests whose answers are for it.
    asked: SmallVec<[Asked; 1]>,
}

/// Requests of one session.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Asked {
    session: SessionName,
    /// Their numbers are between these, modulo [`Mark::NUMBERS`].
    first: u32,
    last: u32,
}

/// One awaited ACK or REPLY (H-60 … H-68).
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Tracker {
    /// How long the response may take once a driver has the request (DEC-10). Its timer is set then.
    pub(crate) limit: Duration,
    /// When the latest operation was asked for.
    pub(crate) started: Instant,
    /// Operations whose answers are still to come.
    pub(crate) awaited: u32,
    /// The last next hop: blamed if the operation fails.
    pub(crate) next_hop: Option<lnet_types::Nid>,
    /// The final target, beyond the next hop.
    pub(crate) target: Option<lnet_types::Nid>,
    /// The request itself, if another copy of it may go.
    pub(crate) written: Option<Written>,
}

impl Md {
    #[inline]
    pub(crate) fn new(
        buf: MdBuf,
        threshold: Option<u32>,
        options: MdOptions,
        owner: Owner,
        auto_unlink: bool,
    ) -> Self {
        Self {
            len: buf.len(),
            buf,
            threshold,
            max_size: 0,
            options,
            owner,
            auto_unlink,
            offset: 0,
            refs: 0,
            zombie: false,
            aborted: false,
            place: None,
            tracker: None,
            written_by: None,
            asked: SmallVec::new(),
        }
    }

    /// The same, for messages of at most so many bytes.
    #[inline]
    pub(crate) fn limited(self, max_size: u32) -> Self {
        Self { max_size, ..self }
    }

    /// The same, attached to a portal.
    #[inline]
    pub(crate) fn placed(self, portal: u32, me: MatchEntry) -> Self {
        Self { place: Some((portal, me)), ..self }
    }

    /// Message `number` of a session asks for something by this descriptor. Numbers go up.
    pub(crate) fn asks(&mut self, session: SessionName, number: u32) {
        match self.asked.iter_mut().find(|asked| asked.session == session) {
            Some(asked) => asked.last = number,
            None => self.asked.push(Asked { session, first: number, last: number }),
        }
    }

    /// Whether message `number` of a session may have asked by this descriptor. Others of the session
    /// may have numbers between its own; the peer could as well answer those.
    pub(crate) fn has_asked(&self, session: SessionName, number: u32) -> bool {
        let from = |first: u32, n: u32| u64::from(n.wrapping_sub(first)) % Mark::NUMBERS;
        let mut of_it = self.asked.iter().filter(|asked| asked.session == session);
        of_it.any(|a| from(a.first, number) <= from(a.first, a.last))
    }

    /// M-22.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.threshold == Some(0)
            || (self.options.contains(MdOptions::MAX_SIZE)
                && self.offset + u64::from(self.max_size) > self.len)
            || (self.fills_up() && self.len > 0 && self.offset >= self.len)
    }

    /// Whether it is spent when messages have filled it.
    pub(crate) fn fills_up(&self) -> bool {
        self.options.contains(MdOptions::SPENT_WHEN_FULL)
            && !self.options.intersects(MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE)
    }

    /// An operation begins.
    pub(crate) fn take(&mut self) {
        self.refs += 1;
        if let Some(t) = &mut self.threshold {
            *t = t.saturating_sub(1);
        }
    }

    /// An operation ends. True if the descriptor ends with it (M-46).
    pub(crate) fn release(&mut self) -> bool {
        self.refs = self.refs.saturating_sub(1);
        self.refs == 0 && (self.zombie || (self.auto_unlink && self.is_exhausted()))
    }
}

/// A request that was written.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Written {
    pub(crate) msg: MsgId,
    /// The rail over which its last copy went; `None` if that one failed.
    pub(crate) rail: Option<(NiId, PeerNiId)>,
    /// When its answer is overdue. A message that a router has accepted can be lost behind it
    /// without a report; a neighbour's transport reports a loss, so there this is never.
    pub(crate) due: Instant,
}
