//! A target of a visit: the connection to it, and calls to it.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use lnet_types::Nid;
use lustre_wire::{ConnectData, Layout, Opcode};
use ptlrpc::{Call, CallError, CallId, Reply};

use super::fids::Fids;
use super::unwanted::Unwanted;
use super::{End, Moved, VisitError, Wire};

/// A target that has answered no change.
const UNCHANGED: u64 = u64::MAX;

/// A target, and the connection to it.
#[derive(Debug)]
pub(crate) struct Remote<L> {
    pub(super) uuid: String,
    pub(super) nids: Vec<Nid>,
    /// `None` for a target that is not active.
    pub(super) link: Option<L>,
    /// It was not reached once, when it had been connected so often, less one; it is tried again when it was
    /// connected once more. 0: it is tried.
    unreachable: AtomicU32,
    /// It has answered a call.
    asked: AtomicBool,
    /// What its evictions had made void when it was asked for the first change; [`UNCHANGED`] before.
    before: AtomicU64,
    /// FIDs for new files, of a metadata target.
    pub(super) fids: Fids,
    pub(super) unwanted: Unwanted,
}

/// An answer to a call.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// Bulk data that came, with room behind it, or that went.
    pub(super) bytes: Vec<u8>,
    pub(super) call: Option<CallId>,
}

impl Answer {
    /// The structure in a buffer of the reply.
    pub(super) fn get<T: Layout>(&self, index: usize) -> Option<T> {
        self.reply.msg().ok()?.get(index).ok()
    }
}

/// Whether a target that carries a call out has something to commit that its user would miss. An open says
/// so by what it has made, and a close repeats what is known of the data.
fn is_change(call: &Call) -> bool {
    call.modifies && !call.keep && call.opcode != Opcode::MDS_CLOSE
}

impl<L> Remote<L> {
    pub(super) fn new(uuid: String, nids: Vec<Nid>, link: Option<L>, fids: Fids) -> Self {
        let (unreachable, asked) = (AtomicU32::new(0), AtomicBool::new(false));
        let before = AtomicU64::new(UNCHANGED);
        Self { uuid, nids, link, unreachable, asked, before, fids, unwanted: Unwanted::default() }
    }

    pub(super) fn bad(&self, what: &'static str) -> VisitError {
        VisitError::BadReply { target: self.uuid.clone(), what }
    }

    /// It has not answered; which of its nodes were tried, and what they have said.
    async fn lost<W: Wire<Link = L>>(&self, wire: &W, link: &L) -> VisitError {
        let tried = wire.tried(link).await;
        VisitError::Unreachable { target: self.uuid.clone(), nids: self.nids.clone(), tried }
    }

    /// Whether it was asked something, and has answered.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether it has answered something that a crash of its server may undo.
    pub(super) fn has_changed(&self) -> bool {
        self.before.load(Ordering::Relaxed) != UNCHANGED
    }

    /// It has answered such a thing. When it was asked for it, its evictions had made so much void.
    pub(super) fn note_change(&self, before: u64) {
        // The first one counts: the losses of a visit begin with it.
        let (order, first) = (Ordering::Relaxed, UNCHANGED);
        let _ = self.before.compare_exchange(first, before, order, order);
    }

    /// How much its evictions of this client have made void so far.
    pub(super) fn voided<W: Wire<Link = L>>(&self, wire: &W) -> u64 {
        self.link.as_ref().map_or(0, |link| wire.losses(link))
    }

    /// How often it has evicted this client so far.
    pub(super) fn evictions<W: Wire<Link = L>>(&self, wire: &W) -> u64 {
        self.link.as_ref().map_or(0, |link| wire.evictions(link))
    }

    /// The same as [`Remote::voided`] since the first change.
    pub(super) fn losses<W: Wire<Link = L>>(&self, wire: &W) -> u64 {
        self.voided(wire).saturating_sub(self.before.load(Ordering::Relaxed))
    }

    /// What the target has granted, as far as it has answered.
    pub(super) async fn terms<W: Wire<Link = L>>(&self, wire: &W) -> ConnectData {
        match &self.link {
            Some(link) => wire.terms(link).await,
            None => ConnectData::default(),
        }
    }

    /// Whether it was not reached, and was not connected since.
    fn is_unreachable<W: Wire<Link = L>>(&self, wire: &W, link: &L) -> bool {
        let mark = self.unreachable.load(Ordering::Relaxed);
        mark != 0 && wire.connections(link) < mark
    }

    /// It is to be asked soon: one that was not asked before connects now.
    pub(super) fn will_be_asked<W: Wire<Link = L>>(&self, wire: &W) {
        if let Some(link) = &self.link
            && !self.was_asked()
            && !self.is_unreachable(wire, link)
        {
            wire.connect(link);
        }
    }

    /// A call without bulk data.
    pub(super) async fn ask<W: Wire<Link = L>>(
        &self,
        wire: &W,
        call: Call,
    ) -> Result<Answer, VisitError> {
        self.ask_with(wire, call, Moved::Nothing).await.map_err(|(e, _)| e)
    }

    /// A call. A target that was not reached once is not tried again before it is connected again: each
    /// outage of a target that is noticed costs a visit the time of one call at most. With an error, what was to be written
    /// comes back.
    pub(super) async fn ask_with<W: Wire<Link = L>>(
        &self,
        wire: &W,
        call: Call,
        moved: Moved,
    ) -> Result<Answer, (VisitError, Vec<u8>)> {
        let back = |moved| match moved {
            Moved::Write(bytes) => bytes,
            Moved::Nothing | Moved::Read(_) => Vec::new(),
        };
        let target = || self.uuid.clone();
        let Some(link) = &self.link else {
            return Err((VisitError::Inactive { target: target() }, back(moved)));
        };
        if self.is_unreachable(wire, link) {
            return Err((self.lost(wire, link).await, back(moved)));
        }
        let change = is_change(&call).then(|| wire.losses(link));
        // What a call is made of is large, and all that make one would hold room for it.
        let End { result, bytes, call } = Box::pin(wire.call(link, call, moved)).await;
        let error = match result {
            Ok(reply) => {
                self.asked.store(true, Ordering::Relaxed);
                self.unreachable.store(0, Ordering::Relaxed);
                if let Some(before) = change.filter(|_| reply.transno != 0) {
                    self.note_change(before);
                }
                return Ok(Answer { reply, bytes, call });
            }
            Err(CallError::LimitPassed) => {
                // One that is connected is slow: a call that waits for a lock of another client may take
                // longer than its limit (L-47).
                if !wire.is_connected(link) {
                    let mark = wire.connections(link).saturating_add(1);
                    self.unreachable.store(mark, Ordering::Relaxed);
                }
                self.lost(wire, link).await
            }
            Err(CallError::Refused(errno)) => VisitError::Refused { target: target(), errno },
            Err(error) => VisitError::Call { target: target(), error },
        };
        Err((error, bytes))
    }
}
