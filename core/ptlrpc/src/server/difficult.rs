//! Difficult replies: what a request has locked stays locked until the client has the reply, or the
//! transaction survives a crash (P-144). Whose locks they are is the program's business: it hears
//! when they may go.

use lnet::{Event as LnetEvent, EventKind};

use super::Server;
use crate::common::Cx;
use crate::event::Event;
use crate::table::{ExportId, ServedId, TargetId};

/// How long a reply keeps what its request has locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Not at all: a plain reply.
    #[default]
    No,
    /// Until the client acknowledges the reply, or its transaction is committed.
    UntilAck,
    /// Until its transaction is committed; no ACK is requested.
    UntilCommit,
}

/// What has ended the hold of a difficult reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// The client has the reply.
    Acknowledged,
    /// The transaction survives a crash, or there is none.
    Committed,
    /// The reply was not sent, or not acknowledged in LNet's time.
    NotDelivered,
    /// The client is gone.
    ClientGone,
}

/// A reply whose locks are held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difficult {
    pub(super) target: TargetId,
    pub(super) export: ExportId,
    /// 0: it changed nothing, and only the ACK counts.
    pub(super) transno: u64,
}

impl Server {
    /// A reply is about to leave. The name under which its ACK is wanted, if it is.
    pub(super) fn hold_reply(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: ServedId,
        hold: Hold,
        held: Difficult,
    ) -> Option<ServedId> {
        let Difficult { target, export, transno } = held;
        if hold == Hold::No {
            return None;
        }
        self.difficult.insert(id, held);
        if self.exports.get(export).is_none() {
            self.release(cx, id, Release::ClientGone);
            return None;
        }
        let committed = self.targets.get(target).map_or(0, |t| t.committed);
        if transno <= committed && (transno != 0 || hold == Hold::UntilCommit) {
            self.release(cx, id, Release::Committed);
            return None;
        }
        (hold == Hold::UntilAck).then_some(id)
    }

    /// Something happened to a difficult reply on its way.
    pub(crate) fn reply_event(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, event: &LnetEvent) {
        if event.status.is_err() {
            self.release(cx, id, Release::NotDelivered);
        } else if event.kind == EventKind::Ack {
            self.release(cx, id, Release::Acknowledged);
        } else if event.unlinked {
            self.release(cx, id, Release::NotDelivered);
        }
    }

    /// A target has committed.
    pub(crate) fn release_committed(&mut self, cx: &mut Cx<'_, '_>, target: TargetId) {
        let committed = self.targets.get(target).map_or(0, |t| t.committed);
        self.release_all(cx, Release::Committed, |d| {
            d.target == target && d.transno != 0 && d.transno <= committed
        });
    }

    /// A client is gone.
    pub(super) fn release_client(&mut self, cx: &mut Cx<'_, '_>, export: ExportId) {
        self.release_all(cx, Release::ClientGone, |d| d.export == export);
    }

    fn release_all(
        &mut self,
        cx: &mut Cx<'_, '_>,
        why: Release,
        which: impl Fn(&Difficult) -> bool,
    ) {
        let held = self.difficult.iter().filter(|(_, d)| which(d)).map(|(id, _)| *id);
        for id in held.collect::<Vec<_>>() {
            self.release(cx, id, why);
        }
    }

    /// Ends a hold, once.
    pub(super) fn release(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, why: Release) {
        if self.difficult.remove(&id).is_some() {
            cx.common.events.push_back(Event::Released { served: id, why });
        }
    }
}
