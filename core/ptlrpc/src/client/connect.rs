//! Connecting, connecting again, and what a lost connection costs (P-58, P-61, P-63 … P-68).

use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::msg::size;
use lustre_wire::{Body, ConnectData, ConnectFlags, Layout, Msg, OpFlags};

use super::connections::{choose, rested};
use super::request::{Purpose, Request};
use super::{Client, ImportState};
use crate::common::Cx;
use crate::error::CallError;
use crate::estimate::{Estimate, estimate_of, wire_secs};
use crate::event::{Event, Reply};
use crate::table::ImportId;
use crate::timers::Timer;
use crate::tunables::SWITCH;

/// Bytes of a uuid's buffer (P-18).
const UUID_LEN: usize = 39;
/// Room that a client leaves for connect data of servers to come (P-22).
const NEWER: u32 = 128;

fn uuid_buffer(uuid: &str) -> Vec<u8> {
    let mut bytes = uuid.as_bytes().to_vec();
    bytes.resize(UUID_LEN, 0);
    bytes
}

impl Client {
    /// Starts a connect, if one may start (P-63).
    pub(crate) fn connect(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let now = cx.below.now();
        let tunables = cx.common.tunables.clone();
        let Some(im) = self.imports.get_mut(import) else { return };
        if !matches!(
            im.state,
            ImportState::New
                | ImportState::Disconnected
                | ImportState::Replay
                | ImportState::ReplayLocks
                | ImportState::ReplayWait
        ) || im.connecting.is_some()
            || im.closing
        {
            return;
        }
        let Some((opcode, _)) = im.config.kind.connects() else { return };
        let bounds = tunables.bounds();
        if im.force_reconnect {
            im.force_reconnect = false;
        } else if let Some(choice) = choose(&im.connections, im.last_success) {
            // P-61: a fast first round, then a slower one each time.
            let pace = im.net.get(&bounds);
            if !choice.all_tried && pace > SWITCH {
                im.net = Estimate::new(SWITCH);
            } else if choice.all_tried && choice.index == 0 && pace < tunables.switch_max() {
                im.net.measure(now, pace + SWITCH, &bounds);
            }
            im.current = choice.index;
        }
        if let Some(connection) = im.connections.get_mut(im.current) {
            connection.last_attempt = Some(now);
            connection.attempts += 1;
        }
        im.conn_cnt += 1;
        im.resend_replay = false;
        im.force_verify = false;
        let initial = im.handle == 0;
        let first_replay = im.retained.keys().next().map_or(0, |(transno, _)| *transno);
        let mut data = im.config.wanted;
        data.version = crate::VERSION;
        let mut op_flags = OpFlags::empty();
        op_flags.set(OpFlags::INITIAL, initial);
        if first_replay != 0 {
            op_flags.insert(OpFlags::TRANSNO);
            data.transno = first_replay;
        }
        let server_time = tunables.initial_connect();
        let portal = im.config.kind.portals().0.0;
        let before = estimate_of(im.server_time(portal, &tunables));
        let (handle, own_handle, conn_cnt) = (im.handle, im.own_handle, im.conn_cnt);
        let buffers = (uuid_buffer(&im.config.target), uuid_buffer(&im.config.client));
        self.enter(cx, import, ImportState::Connecting);
        let made = self.request(cx, import, Purpose::Connect, opcode, |builder| {
            builder.bytes(&buffers.0).bytes(&buffers.1).layout(&own_handle).layout(&data).bytes(&[])
        });
        let Ok(id) = made else { return self.connect_failed(cx, import, None, SWITCH) };
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
        self.progress(cx, id);
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
        let reply = match result {
            Ok(reply) => reply,
            Err(e) => {
                im.force_reconnect = matches!(e.errno(), Errno::EBUSY | Errno::EAGAIN);
                return self.connect_failed(cx, import, Some(e), waited);
            }
        };
        match Self::granted(&reply, im.config.wanted) {
            Ok((body, data)) => self.apply(cx, import, &body, data, sent),
            Err(e) => self.connect_failed(cx, import, Some(e), waited),
        }
    }

    /// What a server grants: nothing that was not asked for.
    fn granted(reply: &Reply, wanted: ConnectData) -> Result<(Body, ConnectData), CallError> {
        let msg = Msg::parse(&reply.message).map_err(CallError::BadReply)?;
        let body = msg.body().map_err(CallError::BadReply)?;
        let mut data = ConnectData::of(&msg, 1).map_err(CallError::BadReply)?;
        if !data.flags.contains(ConnectFlags::FLAGS2) {
            data.flags2 = Default::default();
        }
        if !wanted.flags.contains(data.flags) || !wanted.flags2.contains(data.flags2) {
            return Err(CallError::Refused(Errno::EPROTO));
        }
        Ok((body, data))
    }

    fn apply(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        body: &Body,
        data: ConnectData,
        sent: lnet_types::Instant,
    ) {
        let now = cx.below.now();
        let bounds = cx.common.tunables.bounds();
        let Some(im) = self.imports.get_mut(import) else { return };
        im.granted = data;
        im.refusal = None;
        im.adaptive = data.flags.contains(ConnectFlags::AT);
        // P-65.6: what was learnt of another connection does not count.
        im.net = Estimate::new(Duration::ZERO);
        let worked = Duration::from_secs(body.service_time.into());
        let took = now.saturating_since(sent).saturating_sub(worked);
        im.net.measure(now, took + Duration::from_secs(1), &bounds);
        if let Some(connection) = im.connections.get_mut(im.current) {
            connection.replies += 1;
            im.last_success = connection.last_attempt;
        }
        if im.current < im.connections.len() {
            let good = im.connections.remove(im.current);
            im.connections.insert(0, good);
            im.current = 0;
        }
        cx.common.timers.stop(Timer::Import(import));
        let flags = body.op_flags;
        let recovering = flags.contains(OpFlags::RECOVERING);
        let initial = im.handle == 0;
        let same = im.handle == body.handle;
        let known = flags.contains(OpFlags::RECONNECT);
        im.replayable = flags.contains(OpFlags::REPLAYABLE);
        let next = if initial {
            im.no_cached_data = true;
            if recovering { ImportState::ReplayLocks } else { ImportState::Full }
        } else if known && body.handle == 0 {
            let e = CallError::Refused(Errno::ENOTCONN);
            return self.connect_failed(cx, import, Some(e), SWITCH);
        } else if known && (im.invalid || (!same && !recovering && !im.no_cached_data)) {
            // With nothing of the server's state here, a new export costs nothing: the answer to
            // the connect that made it was lost.
            ImportState::Evicted
        } else if known && recovering && same {
            im.resend_replay = true;
            im.replay_stage
        } else if known && !recovering {
            ImportState::Recover
        } else if recovering && !im.invalid {
            // Nothing was repeated to this export, although it may be known: the answer to the
            // connect that made it may have been lost.
            im.last_replayed = 0;
            ImportState::Replay
        } else if im.no_cached_data && !im.invalid {
            // The server holds nothing for us that it could have dropped.
            ImportState::Recover
        } else {
            ImportState::Evicted
        };
        im.handle = body.handle;
        self.enter(cx, import, next);
        self.recover(cx, import);
    }

    /// P-67: when the next attempt is due.
    pub(super) fn connect_failed(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        error: Option<CallError>,
        waited: Duration,
    ) {
        let now = cx.below.now();
        let errno = error.map(CallError::errno);
        self.enter(cx, import, ImportState::Disconnected);
        let Some(im) = self.imports.get_mut(import) else { return };
        im.refusal = error;
        let kind = im.config.kind;
        let own = matches!(
            kind,
            lustre_wire::ImportKind::Lightweight
                | lustre_wire::ImportKind::MdtToMdt
                | lustre_wire::ImportKind::MdtToOst
        );
        match errno {
            Some(Errno::EACCES | Errno::EROFS) if own => im.force_reconnect = true,
            Some(Errno::EACCES | Errno::EROFS | Errno::EPROTO) => {
                // Refused for good: calls do not wait for another answer.
                im.invalid = true;
                let refusal = error.unwrap_or(CallError::Closed);
                return self.refused(cx, import, refusal);
            }
            Some(Errno::ENODEV | Errno::ETIMEDOUT) if rested(&im.connections, now, SWITCH) => {
                im.force_verify = true;
            }
            _ => {}
        }
        let Some(im) = self.imports.get(import) else { return };
        let last = im.connections.get(im.current).and_then(|c| c.last_attempt).unwrap_or(now);
        let at =
            if im.force_verify { now } else { (last + waited).max(now) + Duration::from_secs(1) };
        cx.common.timers.set(Timer::Import(import), at);
    }

    /// The server will have nothing to do with this client: its calls end with that.
    fn refused(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, error: CallError) {
        cx.common.timers.stop(Timer::Import(import));
        for id in self.calls_of(import) {
            self.release(cx, id, super::Next::End(Err(error)));
        }
    }

    /// A request over the connection has failed (P-58). Failures of an older one don't count.
    pub(super) fn lost(&mut self, cx: &mut Cx<'_, '_>, import: ImportId, conn_cnt: u32) {
        let Some(im) = self.imports.get_mut(import) else { return };
        if im.state != ImportState::Full || (conn_cnt != 0 && conn_cnt != im.conn_cnt) {
            return;
        }
        self.enter(cx, import, ImportState::Disconnected);
    }

    /// Looks at once after a connection that was lost.
    pub(super) fn verify(&self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let disconnected =
            self.imports.get(import).is_some_and(|im| im.state == ImportState::Disconnected);
        if disconnected {
            cx.common.timers.set(Timer::Import(import), cx.below.now());
        }
    }

    /// The server has dropped this client: all that was under way is void (P-76).
    pub(super) fn invalidate(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        let Some(im) = self.imports.get_mut(import) else { return };
        Self::generation_ends(im);
        im.no_cached_data = true;
        im.version_failed = false;
        cx.common.events.push_back(Event::Invalidated { import });
        self.abort_older(cx, import);
    }
}
