//! From connected to in use: replay of what the server lost, its recovery, the resend of what was not
//! answered (P-69 … P-73).

use lnet_types::Errno;
use lustre_wire::Opcode;
use lustre_wire::body::MsgKind;

use super::request::{Phase, Purpose, Request};
use super::{Client, ImportState, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::estimate::wire_secs;
use crate::event::Reply;
use crate::table::ImportId;

impl Client {
    /// One step after the other, until one takes time (P-69).
    pub(super) fn recover(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        loop {
            let Some(im) = self.imports.get(import) else { return };
            match im.state {
                ImportState::Evicted => {
                    self.invalidate(cx, import);
                    if let Some(im) = self.imports.get_mut(import) {
                        im.invalid = false;
                    }
                    self.enter(cx, import, ImportState::Recover);
                }
                ImportState::Replay => {
                    if im.recovering.is_some() || self.replay_next(cx, import) {
                        return;
                    }
                    self.enter(cx, import, ImportState::ReplayLocks);
                }
                // Locks stand on another floor; without any there is nothing to repeat.
                ImportState::ReplayLocks => self.enter(cx, import, ImportState::ReplayWait),
                ImportState::ReplayWait => {
                    if im.recovering.is_none() {
                        self.final_ping(cx, import);
                    }
                    return;
                }
                ImportState::Recover => {
                    self.resend(cx, import);
                    self.enter(cx, import, ImportState::Full);
                }
                ImportState::Full => {
                    self.ping_later(cx, import);
                    self.wake(cx, import);
                    return;
                }
                _ => return,
            }
        }
    }

    /// Sends the next request that the server lost, in the order of its transactions (P-70). `false`
    /// if there is none.
    fn replay_next(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) -> bool {
        let Some(im) = self.imports.get(import) else { return false };
        let after = (im.last_replayed.saturating_add(1), 0);
        let Some((&(_, xid), kept)) = im.retained.range(after..).next() else { return false };
        let (header, mut body) = (kept.header, kept.body);
        let (message, portals, reply_len) = (kept.message.clone(), kept.portals, kept.reply_len);
        let net = im.net_time(&cx.common.tunables);
        let resend = im.resend_replay;
        let made = self.request(cx, import, Purpose::Replay, body.opcode, |builder| builder);
        let Ok(id) = made else { return false };
        body.service_time = wire_secs(net);
        if let (Some(r), Some(im)) = (self.calls.get_mut(id), self.imports.get_mut(import)) {
            im.calls.remove(&r.xid);
            im.calls.insert(xid, id);
            r.xid = xid;
            r.header = header;
            r.body = body;
            r.message = message;
            r.portals = portals;
            r.reply_len = reply_len;
            r.resent = resend;
            im.recovering = Some(id);
        }
        self.progress(cx, id);
        true
    }

    /// A replay has ended (P-71).
    pub(super) fn replayed(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        request: &Request,
        result: Result<Reply, CallError>,
    ) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.recovering = None;
        let transno = request.body.transno;
        match result {
            Ok(reply) if reply.transno != transno && reply.transno != 0 => {
                return self.connect(cx, import);
            }
            // The server does not know us any more, or no longer serves the target.
            Err(CallError::Refused(Errno::ENOTCONN | Errno::ENODEV)) => {
                return self.connect(cx, import);
            }
            Err(CallError::Refused(Errno::EOVERFLOW)) => im.version_failed = true,
            // The same failure as the first time, or another: the effect is what it is.
            Ok(_) | Err(CallError::Refused(_)) => {}
            Err(_) => return self.connect(cx, import),
        }
        im.last_replayed = transno;
        self.recover(cx, import);
    }

    /// The ping that ends a client's part (P-72).
    fn final_ping(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let made =
            self.request(cx, import, Purpose::FinalPing, Opcode::OBD_PING, |builder| builder);
        let Ok(id) = made else { return };
        if let (Some(r), Some(im)) = (self.calls.get_mut(id), self.imports.get_mut(import)) {
            r.body.flags.insert(Self::DONE);
            r.body.kind = MsgKind::REQUEST;
            im.recovering = Some(id);
        }
        self.progress(cx, id);
    }

    /// The server's recovery is over, or has gone wrong.
    pub(super) fn recovered(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, good: bool) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.recovering = None;
        if !good || im.version_failed {
            return self.connect(cx, import);
        }
        self.enter(cx, import, ImportState::Recover);
        self.recover(cx, import);
    }

    /// What was sent over the connection before, and was not answered, goes again (P-73).
    fn resend(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        for id in self.calls_of(import) {
            let Some(r) = self.calls.get_mut(id) else { continue };
            if !matches!(r.phase, Phase::Sent | Phase::Bulk(_)) || r.purpose != Purpose::Call {
                continue;
            }
            r.resent = true;
            let nid = self.imports.get(import).map_or(lnet_types::Nid::ANY, |im| im.nid());
            let resend = self.calls.get(id).is_some_and(|r| r.resend);
            let next = if resend { Next::Again } else { Next::End(Err(CallError::TimedOut(nid))) };
            self.release(cx, id, next);
        }
    }
}
