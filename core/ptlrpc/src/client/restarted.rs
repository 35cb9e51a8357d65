//! A server that has started again is noticed before a request is not answered: by what its management
//! server says (imperative recovery, P-154), by a connection of LNet that was lost, or by the answer to a
//! probe where a router keeps the client's connection (DEC-48). One that is silent is left for another
//! node of its target that is not.

use core::time::Duration;

use lnet_types::Nid;
use lustre_wire::{Buffers, Opcode};

use super::connections::Connection;
use super::request::{Phase, Purpose};
use super::{Client, ImportState, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::table::{CallId, ImportId};
use crate::timers::Timer;
use crate::tunables::Reconnect;

/// What was sent when a connection was lost is waited for no longer than this; nor does it go again sooner
/// (P-87).
const PATIENCE: Duration = Duration::from_secs(1);
/// A call that is not answered for so long may have gone to a process that is no more.
const DOUBT: Duration = Duration::from_secs(1);
/// How long a server that was left as silent is waited for, at least, before its partners are asked again.
const ROUND: Duration = Duration::from_secs(5);
/// Each probe doubles the time to the next one, so often at most.
const DOUBLINGS: u8 = 5;
/// Most nodes that an import knows for its target: as many as a target may register (P-162).
const NODES_MAX: usize = 32;

/// How long a connect to a server waits that was left as silent so long ago (DEC-48). A partner that has taken
/// over since is found late by a quarter of the outage at most, and a server that is slow to answer has
/// enough time some day.
pub(super) fn round(silent: Duration) -> Duration {
    ROUND.max(silent / 4)
}

impl Client {
    /// A target runs at `nid` as this incarnation.
    pub(crate) fn restarted(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        nid: Nid,
        instance: u32,
    ) -> bool {
        let Some(im) = self.imports.get(import) else { return false };
        let (conn_cnt, here) = (im.conn_cnt, im.nid() == nid);
        let under_way = im.connecting.or(im.recovering);
        if im.deactivated || im.closing || im.leaving.is_some() {
            return false;
        }
        let known = im.terms.data.instance == instance;
        match im.state {
            ImportState::Closed | ImportState::New | ImportState::Idle | ImportState::Evicted => {
                return false;
            }
            // What is being connected to is what has started.
            ImportState::Connecting if here => return false,
            ImportState::Connecting | ImportState::Disconnected => {}
            ImportState::Full
            | ImportState::Replay
            | ImportState::ReplayLocks
            | ImportState::ReplayWait
            | ImportState::Recover => {
                if known {
                    return false;
                }
            }
        }
        if !im.connections.iter().any(|c| c.nid == nid) && im.connections.len() >= NODES_MAX {
            return false;
        }
        self.lost(cx, import, conn_cnt);
        self.aim(import, nid);
        // What was sent to the incarnation before gets no answer any more.
        let lock =
            |id: &CallId| self.calls.get(*id).is_some_and(|r| r.purpose == Purpose::LockReplay);
        let lock = self.calls_of(import).into_iter().find(lock);
        if let Some(call) = under_way.or(lock) {
            self.release(cx, call, Next::End(Err(CallError::TimedOut(nid))));
        }
        if self.imports.get(import).is_some_and(|im| im.state != ImportState::Connecting) {
            self.aim(import, nid);
            self.connect(cx, import);
        }
        true
    }

    /// DEC-48: LNet has lost a connection to this peer. If its process has died, what was sent to it gets no
    /// answer. A ping finds out: it fails, or is answered by a process that knows no such client, or by the
    /// same process as before, and then nothing follows. What an import that connects or recovers has sent
    /// is waited for no longer.
    pub(crate) fn connection_lost(&mut self, cx: &mut Cx<'_, '_>, primary: Nid) {
        if cx.common.tunables.reconnect != Reconnect::OnNotice {
            return;
        }
        let node = cx.below.node();
        let there = |nid: Nid| nid == primary || node.primary_of(nid) == primary;
        let concerned: Vec<ImportId> =
            self.imports_where(|im| im.callback.is_none() && there(im.nid()));
        for import in concerned {
            self.doubt(cx, import);
        }
    }

    /// The server of an import may be another process than before.
    fn doubt(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get(import) else { return };
        let under_way = match im.state {
            ImportState::Full if im.leaving.is_none() => return self.ping(cx, import),
            ImportState::Connecting => im.connecting,
            ImportState::Replay | ImportState::ReplayWait => im.recovering,
            ImportState::ReplayLocks => {
                let lock = |id: &CallId| {
                    self.calls.get(*id).is_some_and(|r| r.purpose == Purpose::LockReplay)
                };
                self.calls_of(import).into_iter().find(lock)
            }
            _ => None,
        };
        let Some(id) = under_way else { return };
        let Some(r) = self.calls.get(id).filter(|r| matches!(r.phase, Phase::Sent)) else { return };
        let now = cx.below.now();
        let due = r.sent.map_or(now, |sent| sent + PATIENCE).max(now);
        if r.deadline.is_none_or(|deadline| due < deadline) {
            cx.common.timers.set(Timer::Call(id), due);
        }
    }

    /// DEC-48: a call goes out; if it is not answered, the import asks whether the server is still the same.
    pub(super) fn expects_answer(&self, cx: &mut Cx<'_, '_>, import: ImportId) {
        if !cx.common.tunables.probes {
            return;
        }
        let (timer, due) = (Timer::Unanswered(import), cx.below.now() + DOUBT);
        // One that was put off for an earlier call counts no longer when a call has been answered.
        let fresh = || self.imports.get(import).is_some_and(|im| im.probes == 0);
        if cx.common.timers.at(timer).is_none_or(|at| at > due && fresh()) {
            cx.common.timers.set(timer, due);
        }
    }

    /// DEC-48: looks whether a call waits for too long. A server that was started again behind a router
    /// has lost no connection to this client; it answers a probe that it knows no such client. Probes of
    /// one wait get rarer, down to the pinger's own pace, so that a busy server has few of them.
    pub(crate) fn unanswered(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get(import) else { return };
        let in_use = im.state == ImportState::Full && im.leaving.is_none();
        if !in_use || im.callback.is_some() || !cx.common.tunables.probes {
            return;
        }
        let sent = |id: CallId| {
            let r = self.calls.get(id)?;
            r.sent.filter(|_| matches!(r.phase, Phase::Sent) && r.purpose == Purpose::Call)
        };
        let Some(oldest) = im.calls.iter().find_map(sent) else { return };
        let since = im.last_reply.map_or(oldest, |last| last.max(oldest));
        let wait =
            |probes: u8| (DOUBT * (1 << probes)).min(cx.common.tunables.ping_interval.max(DOUBT));
        let (now, due, next) = (cx.below.now(), since + wait(im.probes), wait(im.probes + 1));
        if now < due {
            return cx.common.timers.set(Timer::Unanswered(import), due);
        }
        cx.common.timers.set(Timer::Unanswered(import), now + next);
        if self.is_silent(import) {
            self.seek_partner(cx, import);
        }
        if let Some(im) = self.imports.get_mut(import) {
            im.probes = (im.probes + 1).min(DOUBLINGS);
        }
        self.ask(cx, import, Purpose::Probe);
    }

    /// DEC-48: nothing has come from the server since a probe that it has not answered, and all that waits
    /// for it may go again.
    fn is_silent(&self, import: ImportId) -> bool {
        let Some(im) = self.imports.get(import) else { return false };
        let sent = || {
            let calls = im.calls.iter().filter_map(|id| self.calls.get(id));
            calls.filter(|r| matches!(r.phase, Phase::Sent))
        };
        let Some(probe) = sent().find(|r| r.purpose == Purpose::Probe) else { return false };
        let heard = im.replied >= probe.xid || im.last_reply > probe.sent;
        !heard && sent().all(|r| r.purpose != Purpose::Call || r.resend)
    }

    /// Lets LNet find out which other nodes of a target are there.
    fn seek_partner(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get(import) else { return };
        let node = cx.below.node();
        let here = node.primary_of(im.nid());
        let others = im.connections.iter().map(|c| c.nid);
        let others = others.filter(|nid| !nid.is_loopback() && node.primary_of(*nid) != here);
        for nid in others.collect::<Vec<_>>() {
            self.discover(cx, import, nid);
        }
    }

    /// DEC-48: another node of the target is there. If the one in use is still silent, this one is tried: it
    /// serves the target by now, or says at once that it does not (P-68).
    pub(super) fn partner_found(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, nid: Nid) {
        let Some(im) = self.imports.get(import) else { return };
        let (conn_cnt, current) = (im.conn_cnt, im.current);
        if im.nid() == nid || im.leaving.is_some() || !self.is_silent(import) {
            return;
        }
        let now = cx.below.now();
        if let Some(connection) =
            self.imports.get_mut(import).and_then(|im| im.connections.get_mut(current))
        {
            connection.silent = Some(now);
        }
        self.lost(cx, import, conn_cnt);
        self.aim(import, nid);
        self.connect(cx, import);
    }

    /// Asks a server whether it is there, and knows this client.
    pub(super) fn ping(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        self.ask(cx, import, Purpose::Ping);
    }

    fn ask(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, purpose: Purpose) {
        if let Ok(id) = self.own_request(cx, import, purpose, Opcode::OBD_PING, Buffers::new()) {
            self.progress(cx, id);
        }
    }

    /// The next connect goes to this node.
    fn aim(&mut self, import: ImportId, nid: Nid) {
        let Some(im) = self.imports.get_mut(import) else { return };
        let at = im.connections.iter().position(|c| c.nid == nid);
        im.current = at.unwrap_or_else(|| {
            im.connections.push(Connection::new(nid));
            im.connections.len() - 1
        });
        im.force_reconnect = true;
    }
}
