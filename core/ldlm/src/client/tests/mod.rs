//! The locks of one import, with a test in the place of the request layer and of the server.

mod cached;
mod callbacks;
mod enqueues;
mod hostile;
mod recovery;

use core::time::Duration;

use lnet_types::{ByteOrder, Instant};
use lustre_wire::ldlm::{
    LockDesc, LockFlags, LockMode, LockReply, LockRequest, Policy, ResourceName,
};
use lustre_wire::msg::{Header, MsgBuilder};
use lustre_wire::{Body, Layout, MsgKind, Opcode};
use ptlrpc::{Call, CallError, Reply, Tunables};

use super::ask::{Ask, GlimpseId, GoneReason, HoldId, LockError, LockEvent, LockId};
use super::cache::CacheLimits;
use super::callback::CallbackAnswer;
use super::namespace::{Namespace, Order, Ticket};
use crate::Mode;

const LITTLE: ByteOrder = ByteOrder::Little;
const NAME: ResourceName = ResourceName { words: [7, 8, 0, 0] };

/// A call that has not ended.
#[derive(Clone, Debug)]
struct Out {
    ticket: Ticket,
    opcode: Opcode,
    request: LockRequest,
    call: Call,
}

/// What a server answers to an enqueue.
#[derive(Clone, Debug)]
struct Grant {
    status: i32,
    flags: LockFlags,
    /// `None`: as in the request.
    granted: Option<LockMode>,
    policy: Option<Policy>,
    handle: u64,
    lvb: Vec<u8>,
    slv: u64,
}

impl Default for Grant {
    fn default() -> Self {
        Self {
            status: 0,
            flags: LockFlags::empty(),
            granted: None,
            policy: None,
            handle: 0x5e11,
            lvb: Vec::new(),
            slv: 0,
        }
    }
}

fn blocked() -> Grant {
    Grant { flags: LockFlags::BLOCK_GRANTED, granted: Some(LockMode::NONE), ..Grant::default() }
}

struct Desk {
    space: Namespace,
    now: Instant,
    out: Vec<Out>,
    events: Vec<LockEvent>,
    /// Orders that are no calls.
    orders: Vec<String>,
    next: u64,
}

impl Desk {
    fn new() -> Self {
        Self::with(CacheLimits::default())
    }

    fn with(limits: CacheLimits) -> Self {
        Self {
            space: Namespace::new(Tunables::default(), limits),
            now: Instant::from_secs(1000),
            out: Vec::new(),
            events: Vec::new(),
            orders: Vec::new(),
            next: 0,
        }
    }

    fn settle(&mut self) {
        while let Some(order) = self.space.poll_order(self.now) {
            match order {
                Order::Call(ticket, call) => {
                    let request = LockRequest::parse(LITTLE, call.buffers.get(0).unwrap()).unwrap();
                    self.out.push(Out { ticket, opcode: call.opcode, request, call });
                }
                Order::DropReplays(round) => {
                    self.out.retain(|o| !matches!(o.ticket, Ticket::Replay(_, r) if r < round));
                }
                Order::Hold(held) => self.orders.push(format!("hold {held}")),
                Order::Fail => self.orders.push("fail".to_owned()),
                Order::Replayed => self.orders.push("replayed".to_owned()),
            }
        }
        self.events.extend(self.space.events.drain(..));
    }

    fn secs(&mut self, secs: u64) {
        let end = self.now + Duration::from_secs(secs);
        loop {
            self.settle();
            let Some(due) = self.space.due().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.space.handle_timeout(self.now);
        }
        self.now = end;
    }

    fn try_ask(&mut self, ask: &Ask) -> Result<HoldId, LockError> {
        self.next += 1;
        let (hold, id) = (HoldId(self.next), LockId(0xc11e_0000 + self.next));
        self.space.enqueue(self.now, ask, hold, id)?;
        self.settle();
        Ok(hold)
    }

    fn ask(&mut self, ask: &Ask) -> HoldId {
        self.try_ask(ask).unwrap()
    }

    /// The only call of this operation that has not ended.
    fn only(&self, opcode: Opcode) -> &Out {
        let mut of = self.out.iter().filter(|o| o.opcode == opcode);
        let one = of.next().unwrap_or_else(|| panic!("no {opcode} in {:?}", self.out));
        assert!(of.next().is_none(), "more than one {opcode}");
        one
    }

    fn end(&mut self, ticket: Ticket, result: Result<Reply, CallError>) {
        self.out.retain(|o| o.ticket != ticket);
        self.space.ended(self.now, ticket, result.as_ref().map_err(|e| *e));
        self.settle();
    }

    /// Answers the only call of this operation with a status alone.
    fn status(&mut self, opcode: Opcode, status: i32) {
        let ticket = self.only(opcode).ticket;
        self.end(ticket, Ok(reply(opcode, status, 0, &[])));
    }

    /// Answers an enqueue, a replay or a conversion.
    fn grant_of(&mut self, out: &Out, grant: &Grant) {
        let mut desc = out.request.desc;
        desc.granted = grant.granted.unwrap_or(desc.requested);
        if let Some(policy) = grant.policy {
            desc.policy = policy.words();
        }
        let lock = LockReply {
            flags: grant.flags,
            desc,
            handle: grant.handle,
            policy_res1: 0,
            policy_res2: 0,
        };
        let buffers = [lock.to_bytes(LITTLE), grant.lvb.clone()];
        self.end(out.ticket, Ok(reply(out.opcode, grant.status, grant.slv, &buffers)));
    }

    fn grant(&mut self, grant: &Grant) {
        let out = self.only(Opcode::LDLM_ENQUEUE).clone();
        self.grant_of(&out, grant);
    }

    /// A lock that is granted at once, and held.
    fn held(&mut self, ask: &Ask) -> (HoldId, LockId) {
        let hold = self.ask(ask);
        let handle = 0x5e00 + self.next;
        self.grant(&Grant { handle, ..Grant::default() });
        (hold, self.lock_of(hold).expect("granted"))
    }

    /// A lock that is granted, and not used any more.
    fn cached(&mut self, ask: &Ask) -> LockId {
        let (hold, lock) = self.held(ask);
        self.release(hold, true);
        lock
    }

    fn release(&mut self, hold: HoldId, keep: bool) {
        self.space.release(self.now, hold, keep);
        self.settle();
    }

    /// The lock of a hold that was granted.
    fn lock_of(&self, hold: HoldId) -> Option<LockId> {
        let mut of = self.events.iter().filter_map(|event| match event {
            LockEvent::Granted { hold: h, lock, .. } if *h == hold => Some(*lock),
            _ => None,
        });
        let lock = of.next();
        assert!(of.next().is_none(), "{hold:?} was granted twice");
        lock
    }

    fn refused(&self, hold: HoldId) -> Option<LockError> {
        self.events.iter().find_map(|event| match event {
            LockEvent::Refused { hold: h, error } if *h == hold => Some(*error),
            _ => None,
        })
    }

    fn gone(&self, lock: LockId) -> Option<GoneReason> {
        let mut of = self.events.iter().filter_map(|event| match event {
            LockEvent::Gone { lock: l, reason, .. } if *l == lock => Some(*reason),
            _ => None,
        });
        let reason = of.next();
        assert!(of.next().is_none(), "{lock} has gone twice");
        reason
    }

    fn called_back(&self, lock: LockId) -> usize {
        let of = |event: &&LockEvent| matches!(event, LockEvent::CalledBack { lock: l, .. } if *l == lock);
        self.events.iter().filter(of).count()
    }

    /// A callback for the lock of this cookie.
    fn call_back(&mut self, opcode: Opcode, cookie: u64, f: impl FnOnce(&mut LockRequest)) -> i32 {
        match self.call_with(opcode, cookie, &[], f) {
            CallbackAnswer::Status(status) => status,
            CallbackAnswer::Glimpse(lock) => panic!("a glimpse of {lock}"),
        }
    }

    fn call_with(
        &mut self,
        opcode: Opcode,
        cookie: u64,
        lvb: &[u8],
        f: impl FnOnce(&mut LockRequest),
    ) -> CallbackAnswer {
        let desc = match self.space.locks.get(&LockId(cookie)) {
            Some(lock) => LockDesc {
                kind: lock.kind.word(),
                resource: lock.resource,
                requested: lock.mode.word(),
                granted: lock.mode.word(),
                policy: lock.policy.words(),
            },
            None => LockDesc::get(LITTLE, &[0; LockDesc::LEN]),
        };
        let mut request = LockRequest::new(LockFlags::empty(), 0, desc, &[cookie, 0x5e11]);
        f(&mut request);
        let answer = self.space.callback(self.now, opcode, &request, lvb, GlimpseId(1), false);
        // What follows comes after the answer.
        self.settle();
        answer
    }

    fn block(&mut self, lock: LockId) -> i32 {
        self.call_back(Opcode::LDLM_BL_CALLBACK, lock.0, |_| {})
    }

    fn complete(&mut self, lock: LockId) -> i32 {
        self.call_back(Opcode::LDLM_CP_CALLBACK, lock.0, |_| {})
    }

    /// The lock that is asked for, and has no answer.
    fn asked(&self) -> LockId {
        match self.only(Opcode::LDLM_ENQUEUE).ticket {
            Ticket::Enqueue(lock) => lock,
            other => panic!("{other:?}"),
        }
    }
}

fn reply(opcode: Opcode, status: i32, slv: u64, buffers: &[Vec<u8>]) -> Reply {
    let body = Body { kind: MsgKind::REPLY, opcode, status, slv, version: 3, ..Body::default() };
    let builder = MsgBuilder::new(Header::default(), &body);
    let message = buffers.iter().fold(builder, |b, bytes| b.bytes(bytes)).build().unwrap();
    Reply { status, transno: 0, message }
}

fn extent(start: u64, end: u64) -> Policy {
    Policy::Extent { start, end, gid: 0 }
}

fn ask(mode: Mode) -> Ask {
    Ask::new(NAME, mode, Policy::Plain)
}

fn range(mode: Mode, start: u64, end: u64) -> Ask {
    Ask::new(NAME, mode, extent(start, end))
}
