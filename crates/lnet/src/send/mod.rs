//! Sending: from a PUT or GET of the user, or a response of the node, to a message in a driver's
//! hands. The order of steps is that of behaviour.md 3.1.
//!
//! `select.rs` chooses the path, `credits.rs` decides when the message goes, `finish.rs` what
//! becomes of it afterwards, `attempts.rs` whether it goes again, `again.rs` how; `key.rs` orders candidates, `explain.rs` writes the reasons down.

mod again;
mod attempts;
mod credits;
pub(crate) mod explain;
mod finish;
pub(crate) mod key;
pub(crate) mod rest;
pub(crate) mod select;

pub(crate) use again::Reason;
pub(crate) use attempts::Next;

use lnet_types::{
    Errno, Fault, HealthStatus, Instant, MdId, MsgId, Net, NiId, Nid, PeerNiId, Pid, ProcessId,
    iovec_slice,
};
use lnet_wire::{Handle, Hdr, Kind};

use core::time::Duration;

use crate::msg::{Msg, Role, Stage, Tx};
use crate::node::Work;
use crate::output::Payload;
use crate::peer::Facts;
use crate::peer::query::Cause;
use crate::portal::RESERVED_PORTAL;
use crate::portal::md::MdBuf;
use crate::timers::Timer;
use crate::{Get, MdOptions, Node, Put, Retries, SendError, Timeouts};
use explain::Trace;
use select::{Request, Tables};

/// One PUT or GET, whoever asked for it.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Operation {
    pub(crate) md: MdId,
    pub(crate) src: Option<Nid>,
    pub(crate) target: ProcessId,
    pub(crate) portal: u32,
    pub(crate) match_bits: u64,
    pub(crate) limits: Timeouts,
    pub(crate) recovery: bool,
    pub(crate) verb: Verb,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) enum Verb {
    Put { ack: bool, hdr_data: u64, offset: u32 },
    Get { offset: u32 },
}

impl Node {
    /// Sends the whole of a descriptor (M-48, M-49). Its outcome arrives as events: one SEND, and
    /// an ACK if one was asked for and came.
    ///
    /// # Errors
    /// Only what shows at once; path and transmission failures are events.
    pub fn put(&mut self, now: Instant, put: Put) -> Result<(), SendError> {
        self.note_usual(|live| live.put(now, &put));
        let now = self.clock(now);
        let Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout } = put;
        let verb = Verb::Put { ack, hdr_data, offset };
        self.operate(
            now,
            Operation {
                md,
                src,
                target,
                portal,
                match_bits,
                limits: timeout.unwrap_or_default(),
                recovery: false,
                verb,
            },
        )?;
        self.settle(now);
        Ok(())
    }

    /// Fetches data into a descriptor (M-48, M-49). Its outcome arrives as events: one SEND, and a
    /// REPLY if it came.
    ///
    /// # Errors
    /// As [`Node::put`].
    pub fn get(&mut self, now: Instant, get: Get) -> Result<(), SendError> {
        self.note_usual(|live| live.get(now, &get));
        let now = self.clock(now);
        let Get { md, src, target, portal, match_bits, offset, timeout } = get;
        let verb = Verb::Get { offset };
        self.operate(
            now,
            Operation {
                md,
                src,
                target,
                portal,
                match_bits,
                limits: timeout.unwrap_or_default(),
                recovery: false,
                verb,
            },
        )?;
        self.settle(now);
        Ok(())
    }

    /// Begins an operation; the caller settles.
    pub(crate) fn operate(&mut self, now: Instant, op: Operation) -> Result<MsgId, SendError> {
        if op.target.nid.is_any() {
            return Err(SendError::AnyTarget);
        }
        if self.faults.fails(op.target.nid) {
            return Err(SendError::Simulated);
        }
        let limit = self.tunables.messages_max as usize;
        if self.in_hand() >= limit {
            return Err(SendError::NoSpace(limit));
        }
        let handle = self.handle_of(op.md);
        let md = self
            .portals
            .mds
            .get_mut(op.md)
            .filter(|md| md.place.is_none() && !md.zombie && md.threshold != Some(0))
            .ok_or(SendError::BadMd)?;
        md.take();
        let len = md.len as u32;
        let (kind, payload, offset, tracked) = match op.verb {
            Verb::Put { ack, hdr_data, offset } => {
                let payload = match &md.buf {
                    MdBuf::Spans(iov) => Payload::Spans(iov.clone()),
                    MdBuf::Bytes(bytes) => Payload::Bytes(bytes.clone()),
                    MdBuf::Collect(_) => Payload::empty(),
                };
                let kind = Kind::Put {
                    ack: if ack { handle } else { Handle::NONE },
                    match_bits: op.match_bits,
                    hdr_data,
                    portal: op.portal,
                    offset,
                };
                (kind, payload, offset, ack.then_some(2))
            }
            Verb::Get { offset } => {
                let kind = Kind::Get {
                    ret: handle,
                    match_bits: op.match_bits,
                    portal: op.portal,
                    offset,
                    sink_len: len,
                    pad: [0; 4],
                };
                (kind, Payload::empty(), offset, Some(1))
            }
        };
        // H-60: bit 1 GETs, bit 2 PUTs, unless the descriptor says otherwise.
        let track = tracked.is_some_and(|bit| {
            md.options.contains(MdOptions::TRACK_RESPONSE)
                || (!md.options.contains(MdOptions::NO_TRACK_RESPONSE)
                    && self.tunables.response_tracking & bit != 0)
        });
        let hdr = Hdr {
            dst: op.target.nid,
            src: Nid::ANY,
            dst_pid: op.target.pid,
            src_pid: Pid::LUSTRE,
            payload_len: payload.len() as u32,
            kind,
        };
        let mut msg = Msg {
            payload,
            md: Some(op.md),
            src: op.src,
            recovery: op.recovery,
            limit: op.limits.send,
            ..Msg::new(Role::Request, hdr, now)
        };
        (msg.ev.offset, msg.ev.rlength, msg.ev.mlength) = (u64::from(offset), len, len);
        if track {
            let limit = op.limits.response.or(op.limits.send);
            self.track(now, op.md, limit.unwrap_or_else(|| self.tunables.transaction()));
        }
        let id = self.msgs.insert(msg);
        self.work.push_back(Work::Launch(id));
        Ok(id)
    }

    /// Finds a path for a message and puts it on its way; or parks it, or ends it.
    pub(crate) fn launch(&mut self, now: Instant, id: MsgId) {
        if let Err(errno) = self.try_launch(now, id) {
            // S-3: without effect on health, because the message isn't committed. One that passes
            // through, or that has become a response, was received, and its sender has no part in
            // this; kernel nodes hold the latter against it.
            let role = self.msgs.get(id).map(|m| m.role);
            let responds = matches!(role, Some(Role::GetIn | Role::AckOut));
            let status = match errno {
                _ if role == Some(Role::Forward) => HealthStatus::Ok,
                _ if responds && !self.tunables.conduct.charges_bystanders => HealthStatus::Ok,
                Errno::EHOSTUNREACH => HealthStatus::RemoteError,
                _ => HealthStatus::LocalError,
            };
            if let Some(msg) = self.msgs.get_mut(id) {
                msg.no_resend = true;
            }
            self.work.push_back(Work::Finish(id, Err(Fault::new(status, errno))));
        }
    }

    fn try_launch(&mut self, now: Instant, id: MsgId) -> Result<(), Errno> {
        self.follow(now, id);
        let msg = self.msgs.get(id).ok_or(Errno::ENOENT)?;
        let target = msg.hdr.dst;
        if !self.running {
            return Err(Errno::ESHUTDOWN);
        }
        if msg.role == Role::Copy && !self.is_wanted(id) {
            return Err(Errno::ECANCELED);
        }
        if target.is_loopback() {
            return self.launch_loopback(now, id);
        }
        let internal = is_internal(&msg.hdr.kind);
        let response = msg.is_response();
        let peer_ni = self.peer_ni_or_new(target, None)?;
        if !response && !internal && self.park(id, peer_ni)? {
            return Ok(());
        }
        let msg = self.msgs.get(id).ok_or(Errno::ENOENT)?;
        let request = self.request(msg, peer_ni);
        // Resends are rare: their reasons are always kept.
        let path = if self.tunables.explain_last == 0 && msg.retries == 0 {
            select::path(self.tables(), &request, &mut None)?
        } else {
            let mut trace = Trace::default();
            let path = select::path(self.tables(), &request, &mut Some(&mut trace));
            self.keep_explanation(id, target, trace, path);
            path?
        };
        // S-52: gateways that are not checked are discovered like destinations.
        if path.via.is_some()
            && self.tunables.alive_router_check_interval <= 0
            && !response
            && !internal
            && self.park(id, path.peer_ni)?
        {
            return Ok(());
        }
        self.commit(now, id, path);
        self.admit(now, id);
        Ok(())
    }

    /// What selection asks about a message for `target`.
    pub(crate) fn request<'a>(&self, msg: &'a Msg, target: PeerNiId) -> Request<'a> {
        Request {
            target,
            src: msg.src,
            recovery: msg.recovery,
            internal: is_internal(&msg.hdr.kind),
            response: msg.is_response(),
            numa_node: self.numa_node_of(msg),
            tried: &msg.tried,
            hint: msg.hint,
            passing: self.passing(msg),
            check_net: self.check_net(target, &msg.hdr.kind),
        }
    }

    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables {
            nets: &self.nets,
            nis: &self.nis,
            peers: &self.peers,
            numa: &self.numa,
            rails: &self.rails,
            net_floor: self.net_floor,
            routes: &self.router.routes,
            tunables: &self.tunables,
            now: self.now(),
        }
    }

    /// The network over which a gateway is being checked, for the ping that does it (S-36).
    fn check_net(&self, target: PeerNiId, kind: &Kind) -> Option<Net> {
        if !matches!(kind, Kind::Get { portal: RESERVED_PORTAL, .. }) {
            return None;
        }
        let peer = self.peers.peers.get(self.peers.nis.get(target)?.peer)?;
        let checking = peer.facts.contains(Facts::ROUTER_CHECK);
        peer.gateway.ping_net.filter(|_| checking)
    }

    /// The discovery gate (S-6): true if the message now waits for its peer to be discovered. In
    /// kernel LNet it waits for every later round as well, and in routers, too.
    fn park(&mut self, id: MsgId, peer_ni: PeerNiId) -> Result<bool, Errno> {
        let peer_id = self.peers.nis.get(peer_ni).ok_or(Errno::EFAULT)?.peer;
        if self.is_up_to_date(peer_id) {
            self.query(self.now(), peer_id, Cause::Refresh);
            return Ok(false);
        }
        let checking = |p: &crate::peer::Peer| p.facts.contains(Facts::ROUTER_CHECK);
        if self.peers.peers.get(peer_id).is_some_and(checking) {
            return Ok(false);
        }
        let limit = self.tunables.parked_max as usize;
        let renews = self.tunables.conduct.sends_during_rediscovery;
        let now = self.now();
        let peer = self.peers.peers.get_mut(peer_id).ok_or(Errno::EFAULT)?;
        // What is known will do while it is renewed: a ping or push that a dying rail has swallowed
        // must not hold up the traffic on the others until its time-out. Nor is it asked for each
        // message when it has failed just now.
        let backs_off = peer.disc.retry.backs_off(now);
        // Nor does a router hold up what it forwards, for which the NID in the header will do: the
        // answer to its ping would stay behind further such messages, which it has no room for.
        let forwards = self.msgs.get(id).is_some_and(|m| m.role == Role::Forward);
        if renews && (backs_off || forwards || peer.disc.discovered) && !peer.disc.rebuild {
            if !backs_off {
                self.query(now, peer_id, Cause::Used);
            }
            return Ok(false);
        }
        if peer.disc.parked.len() >= limit {
            return Err(Errno::ENOBUFS);
        }
        peer.disc.parked.push_back(id);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.stage = Stage::Parked(peer_id);
        }
        self.wait_until_deadline(id);
        self.query(now, peer_id, Cause::Used);
        Ok(true)
    }

    /// S-5: no credits, no peer, no health.
    fn launch_loopback(&mut self, now: Instant, id: MsgId) -> Result<(), Errno> {
        let ni = self.nets.first().and_then(|n| n.nis.first()).copied().ok_or(Errno::ESHUTDOWN)?;
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.hdr.src = Nid::LOOPBACK;
            msg.tx = Some(Tx {
                ni,
                peer_ni: None,
                hop: Nid::LOOPBACK,
                routed: false,
                peer_credit: false,
                ni_credit: false,
                committed: now,
            });
        }
        let deadline = self.deadline_of(now, id, ni);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.deadline = deadline;
        }
        self.count_in(id);
        self.transmit(now, id);
        Ok(())
    }

    /// Binds a message to its pair (S-2.7 … S-2.10, S-60, S-64).
    fn commit(&mut self, now: Instant, id: MsgId, path: select::Path) {
        let select::Path { ni: ni_id, peer_ni: pni_id, remember, counted, via } = path;
        let dest_id = via.map_or(pni_id, |via| via.dest);
        self.seq += 1;
        let Some(ni) = self.nis.get_mut(ni_id) else { return };
        ni.port.seq = self.seq;
        ni.port.refs += 1;
        let src_nid = ni.nid;
        if let Some(net) = self.nets.iter_mut().find(|n| n.net == src_nid.net()) {
            net.seq = self.seq;
        }
        let Some(hop) = self.count_turn(pni_id, 1) else { return };
        let mut dst = hop;
        if via.is_some() {
            dst = self.count_turn(dest_id, 0).unwrap_or(hop);
        }
        if remember && let Some(dest) = self.peers.nis.get_mut(dest_id) {
            dest.preferred = Some(src_nid);
        }
        if let Some(used) = via.and_then(|via| via.route) {
            self.router.routes.used(used.net, used.gateway, used.seq);
        }
        if counted && self.peers.policy.counts() {
            self.take_turns(src_nid, dst);
        }
        let deadline = self.deadline_of(now, id, ni_id);
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.deadline = deadline;
            if !msg.counted {
                msg.counted = true;
                self.stats.count_in();
            }
            if msg.role != Role::Forward {
                msg.hdr.src = src_nid;
            }
            msg.hdr.dst = dst;
            msg.tx = Some(Tx {
                ni: ni_id,
                peer_ni: Some(pni_id),
                hop,
                routed: via.is_some(),
                peer_credit: false,
                ni_credit: false,
                committed: now,
            });
            // H-62
            if let Some(t) = msg
                .md
                .and_then(|md| self.portals.mds.get_mut(md))
                .and_then(|md| md.tracker.as_mut())
                && matches!(msg.role, Role::Request | Role::Copy)
            {
                t.next_hop = Some(hop);
                t.target = Some(dst);
            }
            if msg.retries > 0 {
                self.note_rerouted(id, (src_nid, hop));
            }
        }
    }

    /// One more turn of a peer's interface (S-60), and `refs` more messages that use it. Returns its
    /// NID.
    fn count_turn(&mut self, id: PeerNiId, refs: u32) -> Option<Nid> {
        let pni = self.peers.nis.get_mut(id)?;
        pni.port.refs += refs;
        let nid = pni.nid;
        if let Some(peer) = self.peers.peers.get_mut(pni.peer) {
            peer.seq += 1;
            pni.port.seq = peer.seq;
            let net = nid.net();
            if let Some(net) = peer.nets.iter_mut().find(|n| n.net == net) {
                net.seq = peer.seq;
            }
        }
        Some(nid)
    }

    /// H-30, H-31, DEC-10.
    fn deadline_of(&self, now: Instant, id: MsgId, ni: NiId) -> Instant {
        let Some(msg) = self.msgs.get(id) else { return now };
        match msg.limit {
            // As long as its caller waits for the answer.
            _ if matches!(msg.role, Role::Copy | Role::Repeat) => msg.deadline,
            Some(limit) => msg.born + limit,
            None if self.tunables.conduct.deadline_per_attempt => self.deadline_from(now, ni),
            // How old a message is that passes through nobody knows here (H-31).
            None if msg.role == Role::Forward => now + self.tunables.forward_limit(),
            None => msg.born + self.tunables.transaction(),
        }
    }

    /// When a message that is born now on `ni` is late.
    pub(crate) fn deadline_from(&self, now: Instant, ni: NiId) -> Instant {
        let t = &self.tunables;
        if t.conduct.deadline_per_attempt
            && let Some(lnd) = self.nis.get(ni).and_then(|ni| ni.lnd_timeout)
            && let Retries::Count(n) = t.retries()
        {
            return now + lnd * (n + 1) + Duration::from_secs(1);
        }
        now + t.transaction()
    }

    /// Puts a waiting message under the deadline watch, where the profile has one.
    pub(crate) fn wait_until_deadline(&mut self, id: MsgId) {
        let passing = |m: &Msg| m.role == Role::Forward;
        if !self.tunables.conduct.expires_waiting || self.msgs.get(id).is_some_and(passing) {
            return;
        }
        let transaction = self.tunables.transaction();
        if let Some(msg) = self.msgs.get_mut(id) {
            if msg.deadline == Instant::FAR_FUTURE {
                msg.deadline = msg.born + msg.limit.unwrap_or(transaction);
            }
            self.timers.set(Timer::Waiting(id), msg.deadline);
        }
    }

    /// Answers a GET: the message becomes its REPLY (M-35).
    pub(crate) fn reply(&mut self, now: Instant, id: MsgId) {
        let Some(msg) = self.msgs.get_mut(id) else { return };
        let (Kind::Get { ret, .. }, Some(rx)) = (msg.hdr.kind, msg.rx) else { return };
        let payload = match msg.md.and_then(|md| self.portals.mds.get(md)).map(|md| &md.buf) {
            Some(MdBuf::Spans(iov)) => {
                Payload::Spans(iovec_slice(iov, msg.ev.offset, u64::from(msg.ev.mlength)))
            }
            Some(MdBuf::Bytes(b)) if msg.ev.offset == 0 && b.len() == msg.ev.mlength as usize => {
                Payload::Bytes(b.clone())
            }
            Some(MdBuf::Bytes(b)) => {
                let from = msg.ev.offset as usize;
                let to = from + msg.ev.mlength as usize;
                Payload::Bytes(b.get(from..to).unwrap_or_default().into())
            }
            Some(MdBuf::Collect(_)) | None => Payload::empty(),
        };
        let own = self.nis.get(rx.ni).map_or(msg.hdr.dst, |ni| ni.nid);
        msg.hdr = Hdr {
            dst: msg.hdr.src,
            src: own,
            dst_pid: msg.hdr.src_pid,
            src_pid: Pid::LUSTRE,
            payload_len: payload.len() as u32,
            kind: Kind::Reply { dst: ret, pad: [0; 24] },
        };
        msg.payload = payload;
        self.respond(now, id, own);
    }

    /// Sends a message that has become a response from `own` (S-16, DEC-15).
    pub(crate) fn respond(&mut self, now: Instant, id: MsgId, own: Nid) {
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.src = Some(own);
            msg.hint = msg.rx.map(|rx| rx.from);
            msg.hop_pid = msg.hdr.dst_pid;
            msg.stage = Stage::Moving;
            msg.born = now;
            msg.retries = 0;
            msg.numbered = None;
            msg.tried.clear();
        }
        self.launch(now, id);
    }

    /// The record of a peer's interface; made if there is none (O-24, O-25).
    pub(crate) fn peer_ni_or_new(
        &mut self,
        nid: Nid,
        preferred: Option<Nid>,
    ) -> Result<PeerNiId, Errno> {
        if let Some(id) = self.peers.find(nid) {
            return Ok(id);
        }
        if nid.is_any() {
            return Err(Errno::EINVAL);
        }
        let local = self.net_tunables(nid.net());
        let max = self.tunables.peers_max as usize;
        let peer = self.peers.create(nid, Facts::empty());
        match self.peers.attach(peer, nid, local, max) {
            Ok(id) => {
                if let Some(pni) = self.peers.nis.get_mut(id) {
                    pni.preferred = preferred;
                }
                Ok(id)
            }
            Err(errno) => {
                self.peers.forget(peer);
                Err(errno)
            }
        }
    }
}

/// Whether a request is LNet's own: a PUT or GET on the reserved portal.
pub(crate) fn is_internal(kind: &Kind) -> bool {
    matches!(kind, Kind::Put { portal, .. } | Kind::Get { portal, .. } if *portal == RESERVED_PORTAL)
}
