//! What both sides share: time limits, numbers, the purposes of descriptors, and what goes up.

use core::time::Duration;
use std::collections::VecDeque;

use lnet::upper::Below;
use lnet::{AttachError, MdOptions, MdSpec, Unlink};
use lnet_types::{Errno, IoVec, Nid, Prng, Span, iovec_len};

use crate::event::Event;
use crate::lose::Losses;
use crate::sabotage::Sabotage;
use crate::table::{CallId, ExportId, ImportId, PostId, ServedId, ServiceId, Table};
use crate::timers::Timers;
use crate::tunables::Tunables;
use crate::xid::Xids;

/// What a descriptor is for, as its user word says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A request on its way.
    Request(Sending),
    /// Where the reply comes.
    ReplyBuffer(Sending),
    /// What the table says.
    Post(PostId),
}

/// One sending of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) call: CallId,
    /// How often the call had been sent, modulo [`Sending::ATTEMPTS`]: nothing of one sending is left when
    /// so many others were.
    attempt: u32,
}

impl Sending {
    const ATTEMPTS: u32 = 1 << (KIND_SHIFT - ATTEMPT_SHIFT);

    pub(crate) const fn new(call: CallId, attempt: u32) -> Self {
        Self { call, attempt: attempt % Self::ATTEMPTS }
    }
}

/// Behind the 53 bits of a key stand the number of a sending …
const ATTEMPT_SHIFT: u32 = 53;
/// … and the kind of the word.
const KIND_SHIFT: u32 = 62;

impl Word {
    pub(crate) fn of(word: u64) -> Self {
        let key = word & ((1 << ATTEMPT_SHIFT) - 1);
        let attempt = (word >> ATTEMPT_SHIFT) as u32;
        match word >> KIND_SHIFT {
            0 => Self::Post(key.into()),
            1 => Self::Request(Sending::new(key.into(), attempt)),
            _ => Self::ReplyBuffer(Sending::new(key.into(), attempt)),
        }
    }
}

impl From<Word> for u64 {
    fn from(word: Word) -> Self {
        let (kind, key, attempt) = match word {
            Word::Post(post) => (0, post.into(), 0),
            Word::Request(Sending { call, attempt }) => (1, call.into(), attempt),
            Word::ReplyBuffer(Sending { call, attempt }) => (2, call.into(), attempt),
        };
        let key: Self = key;
        kind << KIND_SHIFT | Self::from(attempt) << ATTEMPT_SHIFT | key
    }
}

/// What other descriptors are for. It stays in the table until the descriptor's last event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Post {
    /// A piece of the bulk data of a call.
    ClientBulk { call: CallId, attempt: u32 },
    /// Where requests come.
    RequestBuffer { service: ServiceId, span: Span },
    /// A reply on its way.
    Reply { to: Nid, difficult: Option<ServedId> },
    /// A piece of the bulk data of a request that is being served.
    ServerBulk { served: ServedId },
}

/// Patch levels that metadata servers may be apart (P-65.5, P-129.3).
const PATCHES_APART: u32 = 3;

/// Whether metadata servers of these versions understand each other.
pub(crate) const fn alike(a: u32, b: u32) -> bool {
    let patches = (a >> 8 & 0xff).abs_diff(b >> 8 & 0xff);
    a >> 16 == b >> 16 && patches <= PATCHES_APART
}

pub(crate) struct Common {
    pub(crate) tunables: Tunables,
    pub(crate) xids: Xids,
    pub(crate) prng: Prng,
    pub(crate) posts: Table<PostId, Post>,
    pub(crate) timers: Timers,
    pub(crate) losses: Losses,
    pub(crate) events: VecDeque<Event>,
    /// Imports that are closed.
    pub(crate) imports_gone: Vec<ImportId>,
    /// What callbacks have taught of the way to clients.
    pub(crate) callback_nets: Vec<(ExportId, Duration)>,
    /// Exports whose client has connected anew, or is gone.
    pub(crate) reversed: Vec<ExportId>,
    #[cfg(feature = "sabotage")]
    pub(crate) sabotage: Option<Sabotage>,
}

impl Common {
    /// Whether a rule is broken, to see whether it is noticed.
    #[cfg_attr(not(feature = "sabotage"), allow(clippy::unused_self))]
    pub(crate) const fn breaks(&self, rule: Sabotage) -> bool {
        #[cfg(feature = "sabotage")]
        return matches!(self.sabotage, Some(broken) if broken as u8 == rule as u8);
        #[cfg(not(feature = "sabotage"))]
        {
            let _ = rule;
            false
        }
    }
}

/// What each step works with.
pub(crate) struct Cx<'a, 'b> {
    pub(crate) common: &'a mut Common,
    pub(crate) below: &'a mut Below<'b>,
}

impl Cx<'_, '_> {
    /// Memory for a message of `size` bytes, which `fill` writes all of.
    pub(crate) fn message(
        &mut self,
        size: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Span, Errno> {
        let len = u32::try_from(size).map_err(|_| Errno::EMSGSIZE)?;
        let span = self.below.alloc(len).ok_or(Errno::ENOMEM)?;
        fill(self.below.bytes_mut(span));
        Ok(span)
    }

    /// The bytes of some spans, one behind the other.
    pub(crate) fn copy_out(&self, spans: &[Span]) -> Vec<u8> {
        if let [one] = spans {
            return self.below.bytes(*one).to_vec();
        }
        let mut bytes = Vec::with_capacity(iovec_len(spans) as usize);
        for span in spans {
            bytes.extend_from_slice(self.below.bytes(*span));
        }
        bytes
    }
}

/// A descriptor over small memory or a piece of bulk data; gone after `threshold` operations.
pub(crate) fn spec(buf: IoVec, word: Word, options: MdOptions, threshold: Option<u32>) -> MdSpec {
    let unlink = if threshold.is_some() { Unlink::Auto } else { Unlink::Retain };
    MdSpec { options, threshold, unlink, ..MdSpec::new(buf, word.into()) }
}

/// The error number of a refusal by the node.
pub(crate) fn errno(e: lnet::upper::BelowError) -> Errno {
    match e {
        lnet::upper::BelowError::Attach(AttachError::NoSpace(_)) => Errno::ENOMEM,
        e => e.errno(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_its_descriptor_is_for_and_of_which_sending() {
        let (first, last) = (0, (1 << ATTEMPT_SHIFT) - 2);
        for key in [first, 7, last] {
            for attempt in [0, 1, 511, 512, u32::MAX] {
                let sending = Sending::new(CallId::from(key), attempt);
                let words = [
                    Word::Request(sending),
                    Word::ReplyBuffer(sending),
                    Word::Post(PostId::from(key)),
                ];
                for word in words {
                    assert_eq!(Word::of(word.into()), word, "{key:#x} {attempt}");
                }
            }
        }
        let of = |attempt| Sending::new(CallId::from(7), attempt);
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(1 + Sending::ATTEMPTS));
    }
}
