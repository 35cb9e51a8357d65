//! Connecting, connecting again, and what a lost connection costs (P-58, P-61, P-63 … P-68). What a
//! connect brings is decided in `outcome.rs`, where to connect in `connections.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use core::time::Duration;

use lnet::{Node, OpId, Report};
use lnet_types::{Errno, Instant, Nid};
use lustre_wire::msg::size;
use lustre_wire::{Body, Buffers, ConnectData, ConnectFlags, ImportKind, Layout, OpFlags};

use super::connections::{Choice, Connection, Readiness, choose, pace};
use super::import::Import;
use super::outcome::{Before, Failed, Failure, Terms, failure, outcome, terms};
use super::request::{Phase, Purpose, Request};
use super::state::{Change, next};
use super::{Client, ImportState, LogLine, Next, restarted};
use crate::common::Cx;
use crate::error::CallError;
use crate::estimate::{Estimate, estimate_of, wire_secs};
use crate::event::{Event, Reply};
use crate::table::ImportId;
use crate::timers::Timer;
use crate::tunables::{Reconnect, SWITCH, Tunables};

/// The time that a connect gets that is not sent (P-62).
pub(super) const UNREADY: Duration = Duration::from_secs(1);
/// Attempts of an import to connect, and of LNet to reach a node, are no closer than this (P-87).
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a uuid's buffer (P-18).
const UUID_LEN: usize = 39;
/// Room that a client leaves for connect data of servers to come (P-22).
const NEWER: u32 = 128;

fn uuid_buffer(uuid: &str) -> [u8; UUID_LEN] {
    let mut bytes = [0; UUID_LEN];
    bytes.iter_mut().zip(uuid.bytes()).for_each(|(to, from)| *to = from);
    bytes
}

/// What LNet knows of a node.
fn readiness(node: &Node, nid: Nid) -> Readiness {
    /// The peer's flag that a discovery has succeeded (S-peer-3).
    const DISCOVERED: u32 = 1 << 4;
    if nid.is_loopback() {
        return Readiness::Ready;
    }
    let Some(peer) = node.peer_view_of(nid) else { return Readiness::Unknown };
    if !peer.own && !peer.nis.iter().any(|ni| ni.up && ni.health > 0) {
        Readiness::Unreachable
    } else if peer.own || peer.state & DISCOVERED != 0 {
        Readiness::Ready
    } else {
        Readiness::Unknown
    }
}

/// A discovery that LNet makes, and the imports that wait for its end.
#[derive(Debug)]
pub(super) struct Discovery {
    /// `None`: the last one has failed, and the next one waits for its time.
    op: Option<OpId>,
    imports: BTreeSet<ImportId>,
}

/// What an import would do if it connected now. A connect carries it out, a view shows it.
#[derive(Debug)]
pub(super) struct Decision {
    /// The connections, with what LNet knows of them now.
    pub(super) connections: Vec<Connection>,
    pub(super) choice: Choice,
    /// The net's estimate for the connect (P-61).
    pub(super) net: Estimate,
}

impl Decision {
    /// The node, and what LNet knows of it.
    pub(super) fn next(&self) -> Option<&Connection> {
        self.connections.get(self.choice.index)
    }

    /// Nodes that LNet is to discover: one that it takes for unreachable, too. No request goes there, so
    /// nothing else finds out that it is back.
    fn unready(&self, tunables: &Tunables) -> Vec<Nid> {
        let unready = |c: &&Connection| match tunables.reconnect {
            Reconnect::Readiness => c.ready != Readiness::Ready,
            Reconnect::OnNotice => c.ready == Readiness::Unreachable,
            Reconnect::Interval => false,
        };
        self.connections.iter().filter(unready).map(|c| c.nid).collect()
    }

    /// P-62: LNet has not discovered the node; the connect is not sent.
    pub(super) fn is_held(&self, tunables: &Tunables) -> bool {
        tunables.reconnect == Reconnect::Readiness
            && self.next().is_some_and(|c| c.ready != Readiness::Ready)
    }
}

impl Import {
    /// Which node is next, and at which pace (P-60, P-61). `None` without any.
    pub(super) fn decide(
        &self,
        node: &Node,
        now: Instant,
        tunables: &Tunables,
    ) -> Option<Decision> {
        let bounds = tunables.bounds();
        let mut connections = self.connections.clone();
        for connection in &mut connections {
            connection.refresh(readiness(node, connection.nid));
        }
        let keep = self.force_reconnect.then_some(self.current);
        let choice = choose(&connections, self.last_success, keep, tunables.reconnect)?;
        let mut net = self.net.clone();
        if keep.is_none()
            && let Some((other, measured)) =
                pace(&choice, net.get(&bounds), SWITCH, tunables.switch_max())
        {
            if measured {
                net.measure(now, other, &bounds);
            } else {
                net = Estimate::new(other);
            }
        }
        Some(Decision { connections, choice, net })
    }
}

impl Client {
    /// The next connect says that the client holds promises of so many bytes (L-96).
    pub(crate) fn announce_grant(&mut self, import: ImportId, bytes: u32) {
        if let Some(im) = self.imports.get_mut(import) {
            Arc::make_mut(&mut im.wanted).grant = bytes;
        }
    }

    /// A program wants a connection now. A refusal for good counts no longer.
    pub(crate) fn connect_now(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        if let Some(im) = self.imports.get_mut(import)
            && im.deactivated
        {
            im.deactivated = false;
            im.invalid = false;
        }
        self.change(cx, import, Change::Wake);
        self.connect(cx, import);
    }

    /// Starts a connect, if one may start (P-63).
    pub(crate) fn connect(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let now = Self::now(cx);
        let tunables = cx.common.tunables.clone();
        let Some(im) = self.imports.get_mut(import) else { return };
        if next(im.state, Change::Connect).is_none()
            || im.connecting.is_some()
            || im.closing && im.handle == 0
            || im.deactivated
        {
            return;
        }
        let Some((opcode, _)) = im.config.kind.connects() else { return };
        let Some(decision) = im.decide(cx.below.node(), now, &tunables) else { return };
        let unready = decision.unready(&tunables);
        let held = decision.is_held(&tunables);
        im.force_reconnect = false;
        im.net = decision.net;
        im.current = decision.choice.index;
        im.connections = decision.connections;
        for (connection, reason) in im.connections.iter_mut().zip(decision.choice.reasons) {
            connection.reason = Some(reason);
        }
        let Some(connection) = im.connections.get_mut(im.current) else { return };
        connection.tried(now);
        let silent = connection.silent;
        im.conn_cnt += 1;
        im.resend_replay = false;
        im.force_verify = false;
        let initial = im.handle == 0;
        let first_replay = im.retained.first_transno();
        let mut data = *im.wanted;
        data.version = crate::VERSION;
        let mut op_flags = OpFlags::empty();
        op_flags.set(OpFlags::INITIAL, initial);
        if first_replay != 0 {
            op_flags.insert(OpFlags::TRANSNO);
            data.transno = first_replay;
        }
        let server_time = if held { Duration::ZERO } else { tunables.initial_connect() };
        let portal = im.config.kind.portals().0.0;
        let before = estimate_of(im.server_time(portal, &tunables));
        let (handle, own_handle, conn_cnt) = (im.handle, im.own_handle, im.conn_cnt);
        let uuids = (uuid_buffer(&im.config.target), uuid_buffer(&im.config.client));
        self.stats.connects += 1;
        self.change(cx, import, Change::Connect);
        for nid in unready {
            self.discover(cx, import, nid);
        }
        let uuids = Buffers::from([uuids.0, uuids.1]);
        let buffers = uuids.layout(&own_handle).layout(&data).bytes(b"");
        let made = self.own_request(cx, import, Purpose::Connect, opcode, buffers);
        let Ok(id) = made else { return self.connect_failed(cx, import, None, false, SWITCH) };
        if let Some(r) = self.calls.get_mut(id) {
            r.body.handle = handle;
            r.body.op_flags = op_flags;
            r.body.conn_cnt = conn_cnt;
            r.timeout = server_time;
            r.body.timeout = wire_secs(server_time);
            r.body.service_time = wire_secs(before);
            r.reply_len = size(&[Body::LEN as u32, ConnectData::LEN as u32 + NEWER]) as u32;
            r.header.repsize = r.reply_len;
        }
        if let Some(im) = self.imports.get_mut(import) {
            im.connecting = Some(id);
        }
        if held {
            if let Some(r) = self.calls.get_mut(id) {
                r.phase = Phase::Sent;
                r.sent = Some(now);
                r.deadline = Some(now + UNREADY);
            }
            cx.common.timers.set(Timer::Call(id), now + UNREADY);
        } else {
            self.progress(cx, id);
            // DEC-48: the others of its target are asked meanwhile.
            let net = self.imports.get(import).map(|im| im.net_time(&tunables));
            if let (Some(since), Some(net)) = (silent, net) {
                let round = restarted::round(now.saturating_since(since));
                cx.common.timers.set(Timer::Call(id), now + round.min(net));
            }
        }
    }

    /// Lets LNet find out whether it reaches a node: once for all imports that want to know.
    pub(super) fn discover(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, nid: Nid) {
        let begin = || Discovery { op: Some(cx.below.discover(nid)), imports: BTreeSet::new() };
        self.discoveries.entry(nid).or_insert_with(begin).imports.insert(import);
    }

    /// LNet has found out.
    pub(crate) fn report(&mut self, cx: &mut Cx<'_, '_>, report: &Report) {
        let mut all = self.discoveries.iter_mut();
        let of = all.find(|(_, discovery)| discovery.op == Some(report.op));
        let Some((&nid, discovery)) = of else { return };
        if report.outcome.is_err() {
            discovery.op = None;
            if cx.common.timers.at(Timer::Discoveries).is_none() {
                cx.common.timers.set(Timer::Discoveries, cx.below.now() + PAUSE);
            }
            return;
        }
        let Some(Discovery { imports, .. }) = self.discoveries.remove(&nid) else { return };
        for import in imports {
            let Some(im) = self.imports.get(import) else { continue };
            if im.state == ImportState::Full {
                self.partner_found(cx, import, nid);
                continue;
            }
            if im.state != ImportState::Disconnected {
                continue;
            }
            // At once, but not more often than requests go again (P-87).
            let last = im.connections.iter().filter_map(|c| c.last_attempt).max();
            let at = last.map_or_else(|| cx.below.now(), |last| last + PAUSE);
            cx.common.timers.set(Timer::Import(import), at);
        }
    }

    /// Discoveries that have failed begin again, if an import still waits for them.
    pub(crate) fn discoveries_due(&mut self, cx: &mut Cx<'_, '_>) {
        let imports = &self.imports;
        let waits = |import: &ImportId| {
            imports.get(*import).is_some_and(|im| {
                !im.deactivated
                    && matches!(im.state, ImportState::Disconnected | ImportState::Connecting)
            })
        };
        self.discoveries.retain(|nid, discovery| {
            if discovery.op.is_none() {
                discovery.imports.retain(waits);
                if discovery.imports.is_empty() {
                    return false;
                }
                discovery.op = Some(cx.below.discover(*nid));
            }
            true
        });
    }

    /// A connect has ended (P-65).
    pub(super) fn connected(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        request: &Request,
        result: Result<Reply, CallError>,
    ) {
        let Some(im) = self.imports.get_mut(import) else { return };
        im.connecting = None;
        let sent = request.sent.unwrap_or_else(|| cx.below.now());
        let waited = request.deadline.map_or(SWITCH, |at| at.saturating_since(sent));
        let settled = match &result {
            Err(e) => Err((*e, false)),
            Ok(reply) => terms(im.config.kind, &im.wanted, &reply.message)
                .map_err(|e| (e, other_version(reply))),
        };
        let settled = settled.and_then(|(body, terms)| {
            let before = Before {
                handle: im.handle,
                invalid: im.invalid,
                no_cached_data: im.no_cached_data,
                lightweight: im.config.kind == ImportKind::Lightweight,
                locks: im.replay_stage == ImportState::ReplayLocks,
            };
            let change = outcome(before, &body).map_err(|e| (e, false))?;
            Ok((body, terms, change))
        });
        match settled {
            Ok((body, terms, change)) => self.apply(cx, import, &body, terms, change, sent),
            Err((e, other_version)) => {
                self.connect_failed(cx, import, Some(e), other_version, waited);
            }
        }
    }

    fn apply(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        body: &Body,
        terms: Terms,
        change: Change,
        sent: Instant,
    ) {
        let now = Self::now(cx);
        let bounds = cx.common.tunables.bounds();
        let Some(im) = self.imports.get_mut(import) else { return };
        im.terms = terms;
        im.refusal = None;
        im.adaptive = terms.data.flags.contains(ConnectFlags::AT);
        // P-65.6: what was learnt of another connection does not count.
        im.net = Estimate::new(Duration::ZERO);
        let worked = Duration::from_secs(body.service_time.into());
        let took = now.saturating_since(sent).saturating_sub(worked);
        im.net.measure(now, took + Duration::from_secs(1), &bounds);
        if let Some(connection) = im.connections.get_mut(im.current) {
            connection.replies += 1;
            connection.silent = None;
            im.last_success = connection.last_attempt;
        }
        if im.current < im.connections.len() {
            let good = im.connections.remove(im.current);
            im.connections.insert(0, good);
            im.current = 0;
        }
        cx.common.timers.stop(Timer::Import(import));
        im.replayable = body.op_flags.contains(OpFlags::REPLAYABLE);
        match change {
            Change::Fresh | Change::FreshRecovering => im.no_cached_data = true,
            Change::SameRecovering { .. } => im.resend_replay = true,
            Change::NewRecovering => im.last_replayed = 0,
            _ => {}
        }
        // P-65.11: a server's own connection keeps no state over a restart.
        if change == Change::SameExport && im.handle != body.handle && im.handle != 0 {
            im.retained.clear();
            for call in im.retained.take_void() {
                cx.common.events.push_back(Event::Unretained { import, call, committed: false });
            }
        }
        let another = im.handle != body.handle && im.handle != 0;
        im.handle = body.handle;
        let (known, now) = (im.committed, body.last_committed);
        if !body.op_flags.contains(OpFlags::RECONNECT) {
            // What another life of the target had committed says nothing of this one's numbers.
            im.committed = now;
        }
        if now != 0 && now < known {
            let line = |im: &Import| LogLine::LostCommits {
                target: im.config.target.to_string(),
                known,
                now,
            };
            self.log(cx, import, line);
        }
        if change == Change::Dropped {
            self.stats.evictions += 1;
            self.log(cx, import, |im| LogLine::Evicted {
                target: im.config.target.to_string(),
                nid: im.nid(),
            });
        }
        if another && matches!(change, Change::SameExport | Change::DroppedEmpty) {
            self.end_doubtful(cx, import);
        }
        self.change(cx, import, change);
        self.recover(cx, import);
    }

    /// P-65.2 and P-67: what follows, and when the next attempt is due.
    pub(super) fn connect_failed(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        error: Option<CallError>,
        other_version: bool,
        waited: Duration,
    ) {
        let now = Self::now(cx);
        self.stats.connects_failed += 1;
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.state == ImportState::Closed {
            return;
        }
        im.refusal = error.map(Box::new);
        if let Some(connection) = im.connections.get_mut(im.current) {
            connection.failure = error.map(Box::new);
        }
        let attempt = im.connections.get(im.current).and_then(|c| c.last_attempt).unwrap_or(now);
        let errno = error.map_or(Errno::EIO, CallError::errno);
        // Profile `kernel` leaves what follows an attempt of its own to the next pass (P-67).
        let planned = cx.common.tunables.reconnect != Reconnect::Readiness
            || im.look_again.is_some_and(|at| at >= attempt + SWITCH);
        let kind = im.config.kind;
        let next = im.decide(cx.below.node(), now, &cx.common.tunables);
        let rested =
            next.as_ref().and_then(Decision::next).is_some_and(|c| c.is_rested(now, SWITCH));
        let failed = Failed { kind, errno, other_version, attempt, waited, planned, rested };
        let (closing, initial) = (im.closing, im.handle == 0);
        match failure(failed, now) {
            Failure::Again { same, at } => {
                im.force_reconnect = same;
                im.force_verify = at <= now;
                self.change(cx, import, Change::ConnectFailed);
                self.fail_unrepeatable(cx, import);
                if closing && initial {
                    return self.close(cx, import);
                }
                cx.common.timers.set(Timer::Import(import), at);
                self.watch(cx, import, errno);
            }
            Failure::Deactivated => {
                im.deactivated = true;
                im.invalid = true;
                self.log(cx, import, |im| LogLine::Refused {
                    target: im.config.target.to_string(),
                    nid: im.nid(),
                    errno,
                });
                self.change(cx, import, Change::ConnectFailed);
                cx.common.timers.stop(Timer::Import(import));
                // Calls do not wait for another answer.
                let refusal = error.unwrap_or(CallError::Closed);
                let calls = self.calls_of(import);
                self.end_all(cx, calls, refusal);
                if !initial {
                    self.invalidate(cx, import);
                }
                if closing {
                    self.close(cx, import);
                }
            }
            Failure::Incompatible => {
                self.change(cx, import, Change::Incompatible);
                self.close(cx, import);
            }
        }
    }

    /// In the profile that looks for notices, LNet reports when it reaches a node again.
    fn watch(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, errno: Errno) {
        if cx.common.tunables.reconnect != Reconnect::OnNotice || errno != Errno::ETIMEDOUT {
            return;
        }
        let Some(im) = self.imports.get(import) else { return };
        let nid = im.nid();
        if !nid.is_loopback() {
            self.discover(cx, import, nid);
        }
    }

    /// P-65.2: what waits, and may not be repeated, ends with a failed connect, but for what has
    /// woken the import (P-81).
    fn fail_unrepeatable(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let woken = self.imports.get(import).and_then(|im| im.woken);
        for id in self.calls_of(import) {
            let Some(r) = self.calls.get(id) else { continue };
            let waits = matches!(r.phase, Phase::Delayed | Phase::Queued);
            if waits && !r.resend && r.purpose == Purpose::Call && woken != Some(r.generation) {
                self.release(cx, id, Next::End(Err(CallError::ConnectFailed)));
            }
        }
    }

    /// A request over the connection has failed (P-58). Failures of an older one don't count.
    pub(super) fn lost(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, conn_cnt: u32) {
        let abort = cx.common.tunables.abort_unreplayable;
        let Some(im) = self.imports.get_mut(import) else { return };
        if conn_cnt != 0 && conn_cnt != im.conn_cnt {
            return;
        }
        let aborts = abort && !im.replayable;
        if !self.change(cx, import, Change::Lost) {
            return;
        }
        self.stats.lost += 1;
        self.log(cx, import, |im| LogLine::Lost {
            target: im.config.target.to_string(),
            nid: im.nid(),
        });
        if aborts {
            self.abort_older(cx, import);
        }
    }

    /// Looks at once after a connection that was lost.
    pub(super) fn verify(&self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let disconnected =
            self.imports.get(import).is_some_and(|im| im.state == ImportState::Disconnected);
        if disconnected {
            cx.common.timers.set(Timer::Import(import), cx.below.now());
        }
    }
}

/// Whether a reply is of another version than ours (P-67).
fn other_version(reply: &Reply) -> bool {
    let version = reply.msg().and_then(|msg| ConnectData::of(&msg, 1)).map(|data| data.version);
    version.is_ok_and(|version| version != crate::VERSION)
}
