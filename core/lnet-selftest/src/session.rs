//! This node in a session of some console (6.4 … 6.10): sessions come and go, tests are added,
//! batches run, counters are reported.

use lnet_types::{Errno, Instant, ProcessId};
use lnet_wire::ByteOrder;
use lnet_wire::selftest::{
    BatchReply, BatchRequest, CONCURRENCY_MAX, DESTINATIONS_MAX, DebugReply, DebugRequest,
    FEATURES, MakeSessionReply, MakeSessionRequest, Name, QueryStatReply, QueryStatRequest,
    RemoveSessionReply, RemoveSessionRequest, Reply, Request, RequestMessage, Service, SessionId,
    TestReply, TestRequest, destinations_len, parse_destinations,
};

use std::collections::BTreeMap;

use crate::calls::{Calls, Ended, answer};
use crate::console::Owner;
use crate::io::{Io, RpcCounters};
use crate::limits::{BATCHES_MAX, FETCHES_MAX, TEST_BUFFERS, TEST_BUFFERS_MAX};
use crate::serve::Asker;
use crate::units::{Batches, Clock, Failed, Job, UnitId};
use crate::{Action, Done, LnetCounters, Sink, Token, Wanted};

/// The session that this node is in.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) sid: SessionId,
    name: Name,
    features: u32,
    /// One REMOVE for each MAKE (6.5).
    refs: u32,
    created: Instant,
    heard: Instant,
    serial: u64,
    pub(crate) batches: Batches,
    brw_errors: u32,
    ping_errors: u32,
}

/// A test whose destinations are on the way.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    asker: Asker,
    session: u64,
    request: TestRequest,
    features: u32,
    order: ByteOrder,
    job: Job,
}

/// The responder's framework.
#[derive(Debug)]
pub(crate) struct Framework {
    pub(crate) session: Option<Session>,
    fetches: BTreeMap<Token, Fetch>,
    serial: u64,
    /// Request buffers that test services have now.
    buffers: [u32; 2],
}

impl Framework {
    pub(crate) const fn new() -> Self {
        Self {
            session: None,
            fetches: BTreeMap::new(),
            serial: 0,
            buffers: [TEST_BUFFERS, TEST_BUFFERS],
        }
    }

    fn sid(&self) -> SessionId {
        self.session.as_ref().map_or(SessionId::NONE, |s| s.sid)
    }

    /// The features that replies carry (6.4).
    pub(crate) fn features(&self) -> u32 {
        self.session.as_ref().map_or(FEATURES, |s| s.features)
    }

    /// Handles a framework request; the reply goes out now, or when destinations are there.
    pub(crate) fn request(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        clock: Clock,
        asker: Asker,
        message: &RequestMessage,
        lnet: &LnetCounters,
    ) {
        let service = message.body.service();
        let reply = match self.judge(service, message.features) {
            Some(errno) => Some(refusal(service, errno, self.sid())),
            None => self.act(calls, io, clock, asker, message, lnet),
        };
        if let Some(session) = &mut self.session {
            session.heard = clock.now;
        }
        if let Some(reply) = reply {
            answer(io, asker.at, asker.who, message.body.reply_id(), self.features(), reply);
        }
    }

    /// 6.4.
    fn judge(&self, service: Service, features: u32) -> Option<Errno> {
        let strange = match service {
            Service::MakeSession | Service::Debug => features & !FEATURES != 0,
            _ => self.session.as_ref().is_some_and(|s| s.features != features),
        };
        strange.then_some(Errno::EPROTO)
    }

    fn act(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        clock: Clock,
        asker: Asker,
        message: &RequestMessage,
        lnet: &LnetCounters,
    ) -> Option<Reply> {
        Some(match message.body {
            Request::Debug(request) => self.debug(io, &request).into(),
            Request::MakeSession(request) => {
                self.make(calls, io, clock.now, &request, message.features).into()
            }
            Request::RemoveSession(request) => self.remove(calls, io, clock.now, &request).into(),
            Request::Batch(request) => self.batch(calls, io, clock, &request)?.into(),
            Request::QueryStat(request) => self.stat(io, clock.now, &request, lnet).into(),
            Request::Test(request) => match self.test(io, asker, message, &request) {
                Ok(true) => return None,
                Ok(false) => TestReply { status: 0, sid: self.sid() }.into(),
                Err(errno) => TestReply { status: errno.0 as u32, sid: self.sid() }.into(),
            },
            // Neither a matter of nodes nor of the framework.
            Request::Join(_) | Request::Brw(_) | Request::Ping(_) => return None,
        })
    }

    fn timeout(io: &Io) -> u32 {
        u32::try_from(io.settings.session_timeout.as_secs()).unwrap_or(u32::MAX)
    }

    /// 6.7.
    fn debug(&self, io: &Io, _: &DebugRequest) -> DebugReply {
        let (status, timeout, name) = match &self.session {
            Some(session) => (Errno::OK, Self::timeout(io), session.name),
            None => (Errno::ESRCH, 0, Name::default()),
        };
        DebugReply { status: status.0 as u32, sid: self.sid(), timeout, nbatch: 0, name }
    }

    /// 6.5.
    fn make(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        now: Instant,
        request: &MakeSessionRequest,
        features: u32,
    ) -> MakeSessionReply {
        let timeout = Self::timeout(io);
        let reply = |errno: Errno, sid, name| MakeSessionReply {
            status: errno.0 as u32,
            sid,
            timeout,
            name,
        };
        if request.sid.is_none() {
            return reply(Errno::EINVAL, self.sid(), Name::default());
        }
        match &mut self.session {
            Some(session) if session.sid == request.sid => {
                session.refs = session.refs.saturating_add(1);
                return reply(Errno::OK, session.sid, Name::default());
            }
            Some(session) if request.force == 0 => {
                return reply(Errno::EBUSY, session.sid, session.name);
            }
            Some(_) => self.end(calls, io, now),
            None => {}
        }
        self.serial += 1;
        self.session = Some(Session {
            sid: request.sid,
            name: request.name,
            features,
            refs: 1,
            created: now,
            heard: now,
            serial: self.serial,
            batches: Batches::new(self.serial),
            brw_errors: 0,
            ping_errors: 0,
        });
        reply(Errno::OK, request.sid, Name::default())
    }

    /// 6.6.
    fn remove(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        now: Instant,
        request: &RemoveSessionRequest,
    ) -> RemoveSessionReply {
        let errno = match &mut self.session {
            _ if request.sid.is_none() => Errno::EINVAL,
            None => Errno::ESRCH,
            Some(session) if session.sid != request.sid => Errno::EBUSY,
            Some(session) => {
                session.refs = session.refs.saturating_sub(1);
                if session.refs == 0 {
                    self.end(calls, io, now);
                }
                Errno::OK
            }
        };
        RemoveSessionReply { status: errno.0 as u32, sid: self.sid() }
    }

    /// Ends the session at once, and everything in it.
    pub(crate) fn end(&mut self, calls: &mut Calls<Owner>, io: &mut Io, now: Instant) {
        if let Some(mut session) = self.session.take() {
            session.batches.abort(calls, io, now);
        }
        for (service, buffers) in [Service::Brw, Service::Ping].into_iter().zip(&mut self.buffers) {
            if *buffers != TEST_BUFFERS {
                *buffers = TEST_BUFFERS;
                io.push(Action::Listen { service, buffers: TEST_BUFFERS });
            }
        }
    }

    /// 6.9. `None`: an unknown operation is not answered.
    fn batch(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        clock: Clock,
        request: &BatchRequest,
    ) -> Option<BatchReply> {
        let known = BatchRequest::RUN..=BatchRequest::QUERY;
        if !known.contains(&request.opc) {
            RpcCounters::bump(&mut io.counters.dropped);
            return None;
        }
        let sid = self.sid();
        let reply =
            |errno: Errno, active| BatchReply { status: errno.0 as u32, sid, active, time: 0 };
        let Some(session) = self.session.as_mut().filter(|s| s.sid == request.sid) else {
            return Some(reply(Errno::ESRCH, 0));
        };
        let Some(batch) = session.batches.batches.get(&request.batch_id) else {
            return Some(reply(Errno::ENOENT, 0));
        };
        let active = match (request.test_index as usize).checked_sub(1) {
            None => Some(batch.active()),
            Some(i) => batch.tests.get(i).map(crate::units::Test::active),
        };
        let batches = &mut session.batches;
        Some(match (request.opc, active) {
            (BatchRequest::RUN, _) => {
                batches.run(calls, io, clock, request.batch_id);
                reply(Errno::OK, 0)
            }
            (BatchRequest::STOP, _) => {
                batches.stop(calls, io, clock.now, request.batch_id, request.arg != 0);
                reply(Errno::OK, 0)
            }
            (_, Some(active)) => reply(Errno::OK, active),
            (_, None) => reply(Errno::ENOENT, 0),
        })
    }

    /// 6.10.
    fn stat(
        &self,
        io: &Io,
        now: Instant,
        request: &QueryStatRequest,
        lnet: &LnetCounters,
    ) -> QueryStatReply {
        let rpc = &io.counters;
        let mut reply = QueryStatReply {
            status: 0,
            sid: self.sid(),
            running_ms: 0,
            active_batches: 0,
            zombie_sessions: 0,
            brw_errors: 0,
            ping_errors: 0,
            rpc_errors: rpc.errors,
            rpcs_sent: rpc.sent,
            rpcs_rcvd: rpc.received,
            rpcs_dropped: rpc.dropped,
            rpcs_expired: rpc.expired,
            bulk_get: rpc.bulk_get,
            bulk_put: rpc.bulk_put,
            msgs_alloc: lnet.msgs_alloc,
            msgs_max: lnet.msgs_max,
            errors: lnet.errors,
            send_count: lnet.send_count,
            recv_count: lnet.recv_count,
            route_count: lnet.route_count,
            drop_count: lnet.drop_count,
            send_length: lnet.send_length,
            recv_length: lnet.recv_length,
            route_length: lnet.route_length,
            drop_length: lnet.drop_length,
        };
        let refuse = |errno: Errno| {
            let Reply::QueryStat(mut reply) = Reply::refusal(Service::QueryStat, errno.0 as u32)
            else {
                return reply;
            };
            reply.sid = self.sid();
            reply
        };
        if request.sid.is_none() {
            return refuse(Errno::EINVAL);
        }
        let Some(session) = self.session.as_ref().filter(|s| s.sid == request.sid) else {
            return refuse(Errno::ESRCH);
        };
        let running = now.saturating_since(session.created).as_millis();
        reply.running_ms = u32::try_from(running).unwrap_or(u32::MAX);
        let batches = session.batches.batches.values();
        reply.active_batches = batches.filter(|b| b.active() > 0).count() as u32;
        (reply.brw_errors, reply.ping_errors) = (session.brw_errors, session.ping_errors);
        reply
    }

    /// 6.8. Whether the reply waits for the destinations.
    fn test(
        &mut self,
        io: &mut Io,
        asker: Asker,
        message: &RequestMessage,
        request: &TestRequest,
    ) -> Result<bool, Errno> {
        let client = request.is_client != 0;
        let params = request.params(message.order, message.features).ok_or(Errno::EINVAL)?;
        if request.repeat == 0
            || request.concurrency == 0
            || request.concurrency > CONCURRENCY_MAX
            || request.sid.is_none()
            || request.ndest > DESTINATIONS_MAX
            || (client && request.ndest == 0)
        {
            return Err(Errno::EINVAL);
        }
        let session =
            self.session.as_mut().filter(|s| s.sid == request.sid).ok_or(Errno::ENOENT)?;
        if session.batches.is_running(request.batch_id) {
            return Err(Errno::EBUSY);
        }
        session.batches.room(request.batch_id, BATCHES_MAX)?;
        if !client {
            session.batches.add_server(request.batch_id);
            let service = params.service();
            let place = usize::from(service == Service::Ping);
            let buffers = TEST_BUFFERS.saturating_add(request.repeat).min(TEST_BUFFERS_MAX);
            if let Some(have) = self.buffers.get_mut(place).filter(|have| **have < buffers) {
                *have = buffers;
                io.push(Action::Listen { service, buffers });
            }
            return Ok(false);
        }
        let job = Job::new(params)?;
        if self.fetches.len() >= FETCHES_MAX {
            return Err(Errno::ENOMEM);
        }
        let token = io.token();
        let len = destinations_len(request.ndest as usize) as u32;
        io.push(Action::Get {
            token,
            from: Some(asker.at),
            to: asker.who,
            match_bits: request.bulk_id,
            sink: Sink { len, wanted: Wanted::All },
        });
        let fetch = Fetch {
            asker,
            session: session.serial,
            request: *request,
            features: message.features,
            order: message.order,
            job,
        };
        self.fetches.insert(token, fetch);
        Ok(true)
    }

    /// The destinations of a test are there, or not.
    pub(crate) fn done(&mut self, io: &mut Io, token: Token, done: Done<'_>) -> bool {
        let Some(fetch) = self.fetches.remove(&token) else { return false };
        let added = self.add(&fetch, done);
        let status = added.err().map_or(0, |errno| errno.0 as u32);
        let Fetch { asker, request, .. } = fetch;
        let reply = Reply::Test(TestReply { status, sid: self.sid() });
        answer(io, asker.at, asker.who, request.reply_id, self.features(), reply);
        true
    }

    fn add(&mut self, fetch: &Fetch, done: Done<'_>) -> Result<(), Errno> {
        done.status?;
        let request = &fetch.request;
        let serial = fetch.session;
        let session = self.session.as_mut().filter(|s| s.serial == serial).ok_or(Errno::ENOENT)?;
        if session.batches.is_running(request.batch_id) {
            return Err(Errno::EBUSY);
        }
        session.batches.room(request.batch_id, BATCHES_MAX)?;
        let dests: Vec<ProcessId> = parse_destinations(fetch.order, request.ndest, done.bytes)
            .map_err(|_| Errno::EINVAL)?
            .into_iter()
            .filter(|dest| !dest.nid.is_any())
            .collect();
        if dests.is_empty() {
            return Err(Errno::EINVAL);
        }
        session.batches.add_client(request, fetch.features, fetch.job, &dests)
    }

    /// A call of a unit has ended.
    pub(crate) fn unit_ended(
        &mut self,
        calls: &mut Calls<Owner>,
        io: &mut Io,
        clock: Clock,
        id: UnitId,
        end: &Ended<Owner>,
    ) {
        let Some(session) = self.session.as_mut().filter(|s| s.serial == id.session) else {
            return;
        };
        match session.batches.ended(calls, io, clock, id, end) {
            Failed::No => {}
            Failed::Brw => RpcCounters::bump(&mut session.brw_errors),
            Failed::Ping => RpcCounters::bump(&mut session.ping_errors),
        }
    }

    /// Ends a session whose console is silent, and wakes units.
    pub(crate) fn expire(&mut self, calls: &mut Calls<Owner>, io: &mut Io, clock: Clock) {
        if self.silent_at(io).is_some_and(|at| at <= clock.now) {
            self.end(calls, io, clock.now);
        }
        if let Some(session) = &mut self.session {
            session.batches.wake(calls, io, clock);
        }
    }

    fn silent_at(&self, io: &Io) -> Option<Instant> {
        let limit = io.settings.session_timeout;
        let session = self.session.as_ref().filter(|_| !limit.is_zero())?;
        Some(session.heard + limit)
    }

    pub(crate) fn next_deadline(&self, io: &Io) -> Option<Instant> {
        let wake = self.session.as_ref().and_then(|s| s.batches.next_wake());
        [self.silent_at(io), wake].into_iter().flatten().min()
    }
}

/// A refusal with the session of this node (6.4).
pub(crate) fn refusal(service: Service, errno: Errno, sid: SessionId) -> Reply {
    let mut reply = Reply::refusal(service, errno.0 as u32);
    match &mut reply {
        Reply::Debug(r) => r.sid = sid,
        Reply::MakeSession(r) => r.sid = sid,
        Reply::RemoveSession(r) => r.sid = sid,
        Reply::Batch(r) => r.sid = sid,
        Reply::Test(r) => r.sid = sid,
        Reply::QueryStat(r) => r.sid = sid,
        Reply::Join(r) => r.sid = sid,
        Reply::Brw(_) | Reply::Ping(_) => {}
    }
    reply
}
