//! From connected to in use: replay of what the server lost, its recovery, the resend of what was not
//! answered (P-69 … P-73).

use lnet_types::Errno;
use lustre_wire::body::MsgKind;
use lustre_wire::opcode::Effect;
use lustre_wire::{Buffers, Opcode};

use super::import::{Import, Leaving};
use super::request::{Phase, Purpose, Request};
use super::state::Change;
use super::{Client, ImportState, LogLine, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::estimate::wire_secs;
use crate::event::{Event, Reply};
use crate::sabotage::Sabotage;
use crate::table::ImportId;
use crate::timers::Timer;

impl Client {
    /// One step after the other, until one takes time (P-69).
    pub(super) fn recover(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        loop {
            let Some(im) = self.imports.get(import) else { return };
            match im.state {
                // It goes on when nothing of the time before is under way.
                ImportState::Evicted => return self.invalidate(cx, import),
                ImportState::Replay => {
                    if im.recovering.is_some() || self.replay_next(cx, import) {
                        return;
                    }
                    self.change(cx, import, Change::Replayed);
                }
                // Nothing is left to be repeated: the server handles a disconnect at once (P-150).
                ImportState::ReplayLocks | ImportState::ReplayWait if im.closing => {
                    return self.leave(cx, import, Leaving::Close);
                }
                ImportState::ReplayLocks => {
                    if self.locks_open(cx, import) {
                        return;
                    }
                    self.change(cx, import, Change::LocksReplayed);
                }
                ImportState::ReplayWait => {
                    if im.recovering.is_none() {
                        self.final_ping(cx, import);
                    }
                    return;
                }
                ImportState::Recover => {
                    self.resend(cx, import);
                    self.change(cx, import, Change::Resent);
                }
                ImportState::Full => return self.activate(cx, import),
                _ => return,
            }
        }
    }

    /// The import is in use (again).
    fn activate(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.invalid = false;
        if im.closing {
            return self.leave(cx, import, Leaving::Close);
        }
        if im.conn_cnt > 1 {
            self.log(cx, import, |im| LogLine::Restored {
                target: im.config.target.to_string(),
                nid: im.nid(),
            });
        }
        // What an older connection has not answered, if the server had nothing to recover.
        self.resend(cx, import);
        self.look_again(cx, import);
        self.wake(cx, import);
    }

    /// Sends the next request that the server lost, in the order of its transactions (P-70). `false`
    /// if there is none.
    fn replay_next(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) -> bool {
        let Some(im) = self.imports.get(import) else { return false };
        let mut left = im.retained.after(im.last_replayed);
        let backwards = cx.common.breaks(Sabotage::ReplayBackwards);
        let next = if backwards { left.next_back() } else { left.next() };
        let Some((xid, kept)) = next else { return false };
        drop(left);
        let (header, mut body) = (kept.header, kept.body);
        let (buffers, portals, reply_len) = (kept.buffers.clone(), kept.portals, kept.reply_len);
        let bulk = kept.bulk.clone();
        let net = im.net_time(&cx.common.tunables);
        let resend = im.resend_replay;
        let made = self.own_request(cx, import, Purpose::Replay, body.opcode, buffers);
        let Ok(id) = made else { return false };
        body.service_time = wire_secs(net);
        if let (Some(r), Some(im)) = (self.calls.get_mut(id), self.imports.get_mut(import)) {
            im.calls.remove(r.xid);
            im.calls.insert(xid, id);
            r.xid = xid;
            r.header = header;
            r.body = body;
            r.portals = portals;
            r.reply_len = reply_len;
            r.resent = resend;
            if let Some((bulk, portal)) = bulk {
                (r.bulk, r.bulk_portal) = (Some(bulk), portal);
            }
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
        match &result {
            Ok(reply) if reply.transno != transno && reply.transno != 0 => {
                return self.connect(cx, import);
            }
            Err(CallError::Refused(Errno::ENOTCONN | Errno::ENODEV)) => {
                return self.connect(cx, import);
            }
            Err(CallError::Refused(Errno::EOVERFLOW)) => im.version_failed = true,
            // The same failure as the first time, or another: the effect is what it is.
            Ok(_) | Err(CallError::Refused(_)) => {}
            Err(_) => return self.connect(cx, import),
        }
        im.last_replayed = transno;
        im.retained.repeated(request.xid);
        self.stats.replayed += 1;
        // The program may have forgotten it meanwhile.
        if let Some(first) = im.retained.at(transno, request.xid) {
            let (call, keep, before) = (first.call, first.keep, first.status);
            let writes = first.bulk.is_some();
            let status = result.as_ref().map_or_else(|e| e.errno().negative(), |r| r.status);
            if status != before {
                let line = |im: &Import| LogLine::ReplayDiffers {
                    target: im.config.target.to_string(),
                    transno,
                    status,
                };
                self.log(cx, import, line);
            }
            if keep || writes {
                cx.common.events.push_back(Event::Replayed { import, call, result });
            }
            if keep {
                // The next one goes when the program has seen this, and has amended what it names.
                cx.common.timers.set(Timer::Import(import), cx.below.now());
                return;
            }
        }
        // The memory of a write that is committed now was in use.
        self.committed(cx, import, 0);
        self.recover(cx, import);
    }

    /// The program does not trust the connection any more, or could not repeat its locks over it: it is
    /// made again. In other states it is being made, or is not wanted.
    pub(crate) fn fail(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let state = self.imports.get(import).map(|im| im.state);
        if matches!(state, Some(ImportState::Full | ImportState::ReplayLocks)) {
            self.lost(cx, import, 0);
            self.connect(cx, import);
        }
    }

    /// The ping that ends a client's part (P-72).
    fn final_ping(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let (purpose, opcode) = (Purpose::FinalPing, Opcode::OBD_PING);
        let made = self.own_request(cx, import, purpose, opcode, Buffers::new());
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
        self.change(cx, import, Change::RecoveryEnded);
        self.recover(cx, import);
    }

    /// The server's records of this client are gone, although nothing is cached here: what it may
    /// have done must not be sent again, as it would be done twice (DEC-41).
    pub(super) fn end_doubtful(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        for id in self.calls_of(import) {
            let Some(r) = self.calls.get(id) else { continue };
            let sent = r.resent || matches!(r.phase, Phase::Sent | Phase::Bulk(_));
            let reads = r.body.opcode.row().is_some_and(|row| row.effect == Effect::Reads);
            if sent && !reads && r.purpose == Purpose::Call {
                self.release(cx, id, Next::End(Err(CallError::Evicted)));
            }
        }
    }

    /// What was sent over the connection before, and was not answered, goes again (P-73).
    fn resend(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get(import) else { return };
        let (nid, conn_cnt) = (im.nid(), im.conn_cnt);
        for id in self.calls_of(import) {
            let Some(r) = self.calls.get_mut(id) else { continue };
            let sent = matches!(r.phase, Phase::Sent | Phase::Bulk(_));
            if !sent || r.purpose != Purpose::Call || r.body.conn_cnt == conn_cnt {
                continue;
            }
            r.resent = true;
            let end = (!r.resend).then_some(CallError::TimedOut(nid));
            self.release(cx, id, end.map_or(Next::Again, |e| Next::End(Err(e))));
        }
    }
}
