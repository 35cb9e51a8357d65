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

/// What a descriptor is for. It stays in the table until the descriptor's last event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Post {
    /// A request on its way; its memory goes with it.
    Request { call: CallId, attempt: u32, span: Span },
    /// Where the reply comes.
    ReplyBuffer { call: CallId, attempt: u32, span: Span },
    /// A piece of the bulk data of a call.
    ClientBulk { call: CallId, attempt: u32 },
    /// Where requests come.
    RequestBuffer { service: ServiceId, span: Span },
    /// A reply on its way; its memory goes with it.
    Reply { span: Span, to: Nid, difficult: Option<ServedId> },
    /// A piece of the bulk data of a request that is being served.
    ServerBulk { served: ServedId },
}

/// Bytes that one bulk descriptor covers at most (P-46).
pub(crate) const BULK_PIECE: u64 = 1 << 20;

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
        let mut bytes = Vec::with_capacity(iovec_len(spans) as usize);
        for span in spans {
            bytes.extend_from_slice(self.below.bytes(*span));
        }
        bytes
    }
}

/// A descriptor over small memory or a piece of bulk data; gone after `threshold` operations.
pub(crate) fn spec(buf: IoVec, post: PostId, options: MdOptions, threshold: Option<u32>) -> MdSpec {
    let unlink = if threshold.is_some() { Unlink::Auto } else { Unlink::Retain };
    MdSpec { options, threshold, unlink, ..MdSpec::new(buf, post.into()) }
}

/// The error number of a refusal by the node.
pub(crate) fn errno(e: lnet::upper::BelowError) -> Errno {
    match e {
        lnet::upper::BelowError::Attach(AttachError::NoSpace(_)) => Errno::ENOMEM,
        e => e.errno(),
    }
}
