//! RPCs of our own: a request out, its reply and its bulk in, all within a time limit. Test units
//! and the console make them; what an end means is theirs to say.

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use lnet_types::{Errno, Instant, ProcessId};
use lnet_wire::ByteOrder;
use lnet_wire::selftest::{BrwRequest, LEN, Message, Reply, ReplyMessage, Request, Service};

use crate::io::{Io, RpcCounters};
use crate::pattern::judge;
use crate::{Action, Data, Done, Offered, Sink, Token, Wanted};

/// Names a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(u64);

/// The bulk of a call.
#[derive(Clone, Debug)]
pub(crate) enum Bulk {
    /// None.
    None,
    /// The server writes to us: a BRW read with its check.
    Read { len: u32, check: u32 },
    /// The server reads from us.
    Give(Data),
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended<O> {
    pub(crate) owner: O,
    pub(crate) to: ProcessId,
    /// The answer, or why there is none.
    pub(crate) result: Result<ReplyMessage, Errno>,
    /// Whether data that came were right, if they were to be checked.
    pub(crate) data_right: bool,
    pub(crate) took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Request,
    Reply,
    Bulk,
}

#[derive(Debug)]
struct Call<O> {
    owner: O,
    service: Service,
    to: ProcessId,
    begun: Instant,
    deadline: Option<Instant>,
    /// What is still out.
    tokens: Vec<(Part, Token)>,
    bulk: Bulk,
    /// In whose order the data were written; `None` inside if they were wrong.
    written: Option<Option<ByteOrder>>,
    reply: Option<ReplyMessage>,
}

/// All calls in flight.
#[derive(Debug)]
pub(crate) struct Calls<O> {
    calls: BTreeMap<CallId, Call<O>>,
    tokens: BTreeMap<Token, (CallId, Part)>,
    deadlines: BTreeSet<(Instant, CallId)>,
    next: u64,
}

/// Target and time limit of a call (zero is for ever).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) to: ProcessId,
    pub(crate) features: u32,
    pub(crate) timeout: Duration,
}

impl<O: Clone> Calls<O> {
    pub(crate) const fn new() -> Self {
        Self {
            calls: BTreeMap::new(),
            tokens: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next: 1,
        }
    }

    /// Begins a call. `request` makes the body from the ids of reply and bulk.
    pub(crate) fn start(
        &mut self,
        io: &mut Io,
        now: Instant,
        route: Route,
        owner: O,
        bulk: Bulk,
        request: impl FnOnce(u64, u64) -> Request,
    ) -> CallId {
        let Route { to, features, timeout } = route;
        let id = CallId(self.next);
        self.next += 1;
        let mut tokens = Vec::with_capacity(3);
        let reply_id = io.id();
        let reply = io.token();
        let sink = Sink { len: LEN as u32, wanted: Wanted::All };
        let buffer = Offered::Sink(sink);
        io.push(Action::Offer { token: reply, peer: to, match_bits: reply_id, buffer });
        tokens.push((Part::Reply, reply));
        let offered = match &bulk {
            Bulk::None => None,
            Bulk::Read { len, check } => {
                Some(Offered::Sink(Sink { len: *len, wanted: wanted(*check) }))
            }
            Bulk::Give(data) => Some(Offered::Source(data.clone())),
        };
        let bulk_id = match offered {
            None => 0,
            Some(buffer) => {
                let (match_bits, token) = (io.id(), io.token());
                io.push(Action::Offer { token, peer: to, match_bits, buffer });
                tokens.push((Part::Bulk, token));
                match_bits
            }
        };
        let body = request(reply_id, bulk_id);
        let service = body.service();
        let message = Message { order: ByteOrder::Little, features, body };
        let token = io.token();
        io.push(Action::Put {
            token,
            from: None,
            to,
            portal: service.portal(),
            match_bits: service.id(),
            data: Data::Bytes(message.emit().to_vec()),
        });
        tokens.push((Part::Request, token));
        for (part, token) in &tokens {
            self.tokens.insert(*token, (id, *part));
        }
        let deadline = (!timeout.is_zero()).then(|| now + timeout);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        let call = Call {
            owner,
            service,
            to,
            begun: now,
            deadline,
            tokens,
            bulk,
            written: None,
            reply: None,
        };
        self.calls.insert(id, call);
        id
    }

    /// Takes the end of an action, if it is one of these; gives the call that it ends.
    pub(crate) fn done(
        &mut self,
        io: &mut Io,
        now: Instant,
        token: Token,
        done: Done<'_>,
    ) -> Option<Ended<O>> {
        let (id, part) = self.tokens.remove(&token)?;
        let call = self.calls.get_mut(&id)?;
        call.tokens.retain(|(_, t)| *t != token);
        if let Err(errno) = done.status {
            RpcCounters::bump(&mut io.counters.errors);
            return self.finish(io, now, id, Err(errno));
        }
        match part {
            Part::Request => {
                RpcCounters::bump(&mut io.counters.sent);
                return None;
            }
            Part::Reply => match ReplyMessage::parse(call.service, done.bytes) {
                Ok(reply) => call.reply = Some(reply),
                Err(_) => return self.finish(io, now, id, Err(Errno::EBADMSG)),
            },
            Part::Bulk => {
                let expected = match &call.bulk {
                    Bulk::Read { len, .. } => u64::from(*len),
                    // The peer asked for what it wanted.
                    Bulk::Give(_) | Bulk::None => u64::from(done.len),
                };
                let whole = u64::from(done.len) == expected;
                call.written = Some(match call.bulk {
                    Bulk::Read { check, .. } if whole && wanted(check) != Wanted::Nothing => {
                        judge(check, done.bytes)
                    }
                    _ => whole.then_some(ByteOrder::Little),
                });
            }
        }
        let reply = call.reply.clone()?;
        let waits = matches!(call.bulk, Bulk::Read { .. } | Bulk::Give(_));
        if reply.body.status() == 0 && waits && call.written.is_none() {
            return None;
        }
        self.finish(io, now, id, Ok(reply))
    }

    /// Ends a call for a reason of its owner's; nothing is said about it any more.
    pub(crate) fn abort(&mut self, io: &mut Io, now: Instant, id: CallId) {
        drop(self.finish(io, now, id, Err(Errno::ECANCELED)));
    }

    /// Ends calls whose time is up.
    pub(crate) fn expire(&mut self, io: &mut Io, now: Instant) -> Vec<Ended<O>> {
        let mut ended = Vec::new();
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.remove(&(at, id));
            RpcCounters::bump(&mut io.counters.expired);
            ended.extend(self.finish(io, now, id, Err(Errno::ETIMEDOUT)));
        }
        ended
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    fn finish(
        &mut self,
        io: &mut Io,
        now: Instant,
        id: CallId,
        result: Result<ReplyMessage, Errno>,
    ) -> Option<Ended<O>> {
        let call = self.calls.remove(&id)?;
        if let Some(deadline) = call.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        for (part, token) in call.tokens {
            self.tokens.remove(&token);
            // A request that has been answered is on its way out of the books by itself.
            if part != Part::Request || result.is_err() {
                io.withdraw(token);
            }
        }
        let written = call.written.unwrap_or(Some(ByteOrder::Little));
        // Data are in the byte order of their writer, which the magic of the reply shows.
        let data_right = match (&call.bulk, &result) {
            (Bulk::Read { check, .. }, Ok(reply)) if wanted(*check) != Wanted::Nothing => {
                written == Some(reply.order) || reply.body.status() != 0
            }
            _ => written.is_some(),
        };
        let took = now.saturating_since(call.begun);
        Some(Ended { owner: call.owner, to: call.to, result, data_right, took })
    }
}

/// What is wanted of data with that check.
pub(crate) const fn wanted(check: u32) -> Wanted {
    match check {
        BrwRequest::CHECK_SIMPLE => Wanted::Edges,
        BrwRequest::CHECK_FULL => Wanted::All,
        _ => Wanted::Nothing,
    }
}

/// Answers a request: `at` is the NID that it came to.
pub(crate) fn answer(
    io: &mut Io,
    at: lnet_types::Nid,
    to: ProcessId,
    reply_id: u64,
    features: u32,
    body: Reply,
) {
    let message = Message { order: ByteOrder::Little, features, body };
    io.put_reply(at, to, reply_id, Data::Bytes(message.emit().to_vec()));
}
