//! Tests in the server role (6.12, 6.13): pings are answered, bulk is moved and then answered.

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Errno, Nid, ProcessId};
use lnet_wire::selftest::{
    BRW_MAX, BrwReply, BrwRequest, FEATURE_BYTES, FEATURES, LIST_PAGE, PING_MAGIC, PingReply,
    PingRequest, Reply,
};
use lnet_wire::{ByteOrder, selftest::RequestMessage};

use crate::calls::{answer, wanted};
use crate::io::{Io, RpcCounters};
use crate::limits::{KEPT_BYTES_MAX, SERVED_MAX, WAITING_MAX};
use crate::pattern::judge;
use crate::{Action, Done, Sink, Token, Wanted};

/// Who asked, and at which of our NIDs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) who: ProcessId,
    pub(crate) at: Nid,
}

#[derive(Clone, Copy, Debug)]
struct Service {
    asker: Asker,
    request: BrwRequest,
    features: u32,
    order: ByteOrder,
}

impl Service {
    /// Bytes that are kept to be checked.
    fn kept(&self) -> u64 {
        let checked = wanted(self.request.check) != Wanted::Nothing;
        if self.request.rw == BrwRequest::WRITE && checked { self.request.len.into() } else { 0 }
    }
}

/// Bulk requests in hand.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    moving: BTreeMap<Token, Service>,
    waiting: VecDeque<Service>,
    kept: u64,
}

impl Serving {
    /// Answers a ping; one with a wrong mark is not answered (6.12).
    pub(crate) fn ping(
        io: &mut Io,
        asker: Asker,
        message: &RequestMessage,
        p: PingRequest,
        features: u32,
    ) {
        if p.magic != PING_MAGIC {
            RpcCounters::bump(&mut io.counters.dropped);
            return;
        }
        let unknown = message.features & !FEATURES != 0;
        let status = if unknown { Errno::EPROTO.0 as u32 } else { 0 };
        let features = if unknown { FEATURES } else { features };
        let reply = PingReply { status, magic: PING_MAGIC, seq: p.seq };
        answer(io, asker.at, asker.who, p.reply_id, features, Reply::Ping(reply));
    }

    /// Begins to serve a bulk request, or refuses it.
    /// Replies carry `features` (6.4).
    pub(crate) fn brw(
        &mut self,
        io: &mut Io,
        asker: Asker,
        message: &RequestMessage,
        request: BrwRequest,
        features: u32,
    ) {
        let refusal = if message.features & !FEATURES != 0 {
            Some((Errno::EPROTO, FEATURES))
        } else if !valid(&request, message.features) {
            Some((Errno::EINVAL, features))
        } else {
            None
        };
        if let Some((errno, features)) = refusal {
            let reply = Reply::Brw(BrwReply { status: errno.0 as u32 });
            answer(io, asker.at, asker.who, request.reply_id, features, reply);
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            RpcCounters::bump(&mut io.counters.dropped);
            return;
        }
        self.waiting.push_back(Service { asker, request, features, order: message.order });
        self.begin(io);
    }

    /// Begins what there is room for, oldest first.
    fn begin(&mut self, io: &mut Io) {
        while let Some(service) = self.waiting.front().copied() {
            let fits = self.kept + service.kept() <= KEPT_BYTES_MAX || self.moving.is_empty();
            if self.moving.len() >= SERVED_MAX || !fits {
                return;
            }
            self.waiting.pop_front();
            let Service { asker, request, .. } = service;
            let BrwRequest { bulk_id, len, check, .. } = request;
            let token = if request.rw == BrwRequest::READ {
                let data = io.pattern(len);
                io.put_reply(asker.at, asker.who, bulk_id, data)
            } else {
                let token = io.token();
                let sink = Sink { len, wanted: wanted(check) };
                let (from, to) = (Some(asker.at), asker.who);
                io.push(Action::Get { token, from, to, match_bits: bulk_id, sink });
                token
            };
            self.kept += service.kept();
            self.moving.insert(token, service);
        }
    }

    /// The bulk of a request has been moved, or not.
    pub(crate) fn done(&mut self, io: &mut Io, token: Token, done: Done<'_>) -> bool {
        let Some(service) = self.moving.remove(&token) else { return false };
        self.kept -= service.kept();
        let Service { asker, request, features, order } = service;
        let BrwRequest { reply_id, len, check, rw, .. } = request;
        if done.status.is_err() {
            // The client finds out by its time-out: a client that accepts no bulk accepts no reply.
            RpcCounters::bump(&mut io.counters.errors);
            self.begin(io);
            return true;
        }
        let moved = u64::from(len);
        let status = if rw == BrwRequest::READ {
            io.counters.bulk_put = io.counters.bulk_put.wrapping_add(moved);
            0
        } else {
            io.counters.bulk_get = io.counters.bulk_get.wrapping_add(moved);
            let right = done.len == len
                && (wanted(check) == Wanted::Nothing || judge(check, done.bytes) == Some(order));
            if right { 0 } else { Errno::EBADMSG.0 as u32 }
        };
        let reply = Reply::Brw(BrwReply { status });
        answer(io, asker.at, asker.who, reply_id, features, reply);
        self.begin(io);
        true
    }
}

/// What a server serves (6.13).
fn valid(request: &BrwRequest, features: u32) -> bool {
    let BrwRequest { rw, len, check, .. } = *request;
    matches!(rw, BrwRequest::READ | BrwRequest::WRITE)
        && (BrwRequest::CHECK_NONE..=BrwRequest::CHECK_DISCARD).contains(&check)
        && (1..=BRW_MAX).contains(&len)
        && (features & FEATURE_BYTES != 0 || (len as usize).is_multiple_of(LIST_PAGE))
}
