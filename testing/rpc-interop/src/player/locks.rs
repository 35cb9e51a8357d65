//! Our node serves the locks of objects by itself: requests for them go to `ldlm`'s server instead of
//! being answered with recorded bodies, and callbacks are its own. What it can't know is given to it:
//! locks from before the recording, the attributes of objects, which belong to the object layer, and when
//! the server locks objects for itself (`own_locks.rs`).
//!
//! Cookies that a server chooses are replaced by relation: those of the recording by ours on the way in,
//! ours by those of the recording before the comparison.

use core::time::Duration;
use std::collections::BTreeMap;

use ldlm::server::{LockServer, Values};
use ldlm::space::{Config, Value};
use lnet_types::{ByteOrder, Nid};
use lnet_wire::{Handle, Kind};
use lustre_wire::ldlm::{
    END_OF_FILE, LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest, Lvb, Policy,
    ResourceName,
};
use lustre_wire::msg::{Header, MsgBuilder};
use lustre_wire::{Body, ImportKind, Msg, MsgKind, Opcode};
use ptlrpc::{Event, RecoveryChange, Served, TargetId};

use super::Player;
use crate::judge::Bijection;
use crate::recording::{Message, Role};
use crate::stage::Stage;

/// Where the second handle of a callback stands in its request, and the cookie in an enqueue reply.
const SECOND_HANDLE: usize = 96;
const REPLY_COOKIE: usize = 88;
/// Where handles begin.
const HANDLES: usize = 88;

/// Locks of objects.
pub(super) struct Locks {
    pub(super) server: LockServer,
    /// Cookies of the server.
    cookies: Bijection,
}

/// A lock that was there before the recording.
#[derive(Clone, Copy, Debug)]
struct Past {
    link: usize,
    client_cookie: u64,
    resource: ResourceName,
    mode: LockMode,
}

impl Locks {
    /// Those of a target that begins; `replays`: its clients are to replay theirs first.
    pub(super) fn new(enqueue_min: Duration, replays: bool) -> Self {
        let config = Config { enqueue_min, ..Config::new(7) };
        Self {
            server: LockServer::new(config, Values::Objects, replays),
            cookies: Bijection::default(),
        }
    }
}

/// The lock request of a message.
pub(super) fn request_of(message: &Message) -> Option<LockRequest> {
    let msg = Msg::parse(&message.payload).ok()?;
    LockRequest::of(&msg, 1).ok()
}

fn reply_of(message: &Message) -> Option<LockReply> {
    let msg = Msg::parse(&message.payload).ok()?;
    if message.role != Role::Reply || message.body().opcode != Opcode::LDLM_ENQUEUE {
        return None;
    }
    msg.get(1).ok()
}

/// The attributes in an enqueue reply or a completion.
fn attributes(message: &Message) -> Option<Lvb> {
    let msg = Msg::parse(&message.payload).ok()?;
    Lvb::parse_either(msg.order, msg.buffer(2)?).ok()
}

/// Replaces a word of the buffer behind the body.
fn replace(message: &mut Message, at: usize, f: impl FnOnce(u64) -> Option<u64>) {
    let place = {
        let Ok(msg) = Msg::parse(&message.payload) else { return };
        let Some(word) = msg.buffer(1).and_then(|b| b.get(at..at + 8)) else { return };
        word.as_ptr() as usize - message.payload.as_ptr() as usize
    };
    let Some(word) = message.payload.get_mut(place..).and_then(|rest| rest.first_chunk_mut())
    else {
        return;
    };
    if let Some(new) = f(u64::from_le_bytes(*word)) {
        *word = new.to_le_bytes();
    }
}

/// The places of server's cookies in a client's request.
fn cookies_in(message: &Message) -> Vec<(usize, u64)> {
    let Some(request) = request_of(message) else { return Vec::new() };
    let skip = match message.body().opcode {
        Opcode::LDLM_ENQUEUE => 1,
        Opcode::LDLM_CANCEL | Opcode::LDLM_CONVERT => 0,
        _ => return Vec::new(),
    };
    let count = (request.count as usize).max(1);
    let handles = request.handles.iter().copied().enumerate().take(count).skip(skip);
    handles.filter(|(_, handle)| *handle != 0).map(|(n, h)| (HANDLES + 8 * n, h)).collect()
}

impl<S: Stage> Player<'_, S> {
    /// Whether a message belongs to the locks of objects, and these are served by `ldlm`.
    pub(super) fn is_of_locks(&self, at: usize) -> bool {
        if self.locks.is_none() {
            return false;
        }
        let message = &self.messages[at];
        if message.is_callback() {
            let callback =
                match message.role {
                    Role::Request => Some(message),
                    _ => self.index.of.get(&at).map(|exchange| {
                        &self.messages[self.index.exchanges[*exchange].sendings[0]]
                    }),
                };
            return callback
                .and_then(request_of)
                .is_some_and(|request| request.desc.kind == LockKind::EXTENT);
        }
        let sending = match message.role {
            Role::Request => Some(at),
            _ => self.sending_of(at).ok(),
        };
        sending.is_some_and(|sending| {
            let of_objects = |link: &usize| self.index.links[*link].kind == ImportKind::Osc;
            LockServer::serves(self.messages[sending].body().opcode)
                && self.index.link_of.get(&sending).is_some_and(of_objects)
        })
    }

    /// Puts our cookies in place of the recorded ones.
    pub(super) fn know_cookies(&self, message: &mut Message) {
        let Some(locks) = &self.locks else { return };
        for (place, _) in cookies_in(message) {
            replace(message, place, |recorded| locks.cookies.ours(recorded));
        }
    }

    /// Relates the cookies of a recorded message and ours, and puts the recorded one in place of ours.
    pub(super) fn relate_cookies(&mut self, at: usize, ours: &mut Message) {
        if !self.is_of_locks(at) {
            return;
        }
        let Some(locks) = &mut self.locks else { return };
        let recorded = &self.messages[at];
        let (place, theirs) = match recorded.role {
            Role::Reply => (REPLY_COOKIE, reply_of(recorded).map(|reply| reply.handle)),
            Role::Request if recorded.body().opcode == Opcode::LDLM_GL_CALLBACK => return,
            Role::Request => {
                (SECOND_HANDLE, request_of(recorded).map(|request| request.handles[1]))
            }
            _ => return,
        };
        let Some(theirs) = theirs else { return };
        replace(ours, place, |mine| locks.cookies.relate(theirs, mine).then_some(theirs));
    }

    fn is_target_of_objects(&self, target: TargetId) -> bool {
        let of_objects = |link: usize| self.index.links[link].kind == ImportKind::Osc;
        self.targets.iter().any(|(link, t)| *t == target && of_objects(*link))
    }

    /// A request of a client; it comes back if it is not for the locks of objects.
    pub(super) fn serve_lock(&mut self, served: Box<Served>) -> Option<Box<Served>> {
        let mine = LockServer::serves(served.opcode) && self.is_target_of_objects(served.target);
        if !mine || self.locks.is_none() {
            return Some(served);
        }
        let value = self.attributes_for(&served);
        let Some(locks) = &mut self.locks else { return Some(served) };
        for (words, lvb) in value {
            locks.server.set_value(&ResourceName { words }, Value::Object(lvb));
        }
        let asks = self.place_of(&served).is_some_and(|at| self.asks_holders(at));
        let lvb = if asks { None } else { self.recorded_lvb(&served) }.unwrap_or_default();
        let own = LockServer::resource_of(&served);
        let value = own.map(|_| Value::Object(lvb));
        let Some(locks) = &mut self.locks else { return Some(served) };
        self.stage.rpc(|rpc| locks.server.serve(&served, Ok(value), rpc));
        None
    }

    /// The place of a request in the recording.
    fn place_of(&self, served: &Served) -> Option<usize> {
        let at = |(at, message): (usize, &Message)| {
            let same = message.role == Role::Request
                && message.from() == served.from
                && message.bits() == served.xid;
            same.then_some(at)
        };
        self.messages.iter().enumerate().find_map(at)
    }

    /// The attributes in the recorded reply to an enqueue.
    fn recorded_lvb(&self, served: &Served) -> Option<Lvb> {
        let at = self.place_of(served)?;
        attributes(&self.messages[self.index.reply_to(self.messages, at)?])
    }

    /// Whether the recorded server asked holders of locks for the size of an object, before it answered
    /// this request.
    fn asks_holders(&self, at: usize) -> bool {
        let Some(reply) = self.index.reply_to(self.messages, at) else { return false };
        let own = request_of(&self.messages[at]).map(|request| request.desc.resource);
        self.messages.get(at..reply).unwrap_or_default().iter().any(|message| {
            message.role == Role::Request
                && message.body().opcode == Opcode::LDLM_GL_CALLBACK
                && request_of(message).map(|request| request.desc.resource) == own
        })
    }

    /// Attributes of objects at the time of a request, by what the server said next of each: in its
    /// reply, or in completions before the next request that changes any.
    fn attributes_for(&self, served: &Served) -> BTreeMap<[u64; 4], Lvb> {
        let mut found = BTreeMap::new();
        let Some(at) = self.place_of(served) else { return found };
        let own = LockServer::resource_of(served);
        if own.is_some() && self.asks_holders(at) {
            // What the reply says is what holders have answered, and ours must ask them.
            return found;
        }
        if let (Some(own), Some(lvb)) = (own, self.recorded_lvb(served)) {
            found.insert(own.words, lvb);
        }
        for message in &self.messages[at..] {
            if message.role != Role::Request || message.body().opcode != Opcode::LDLM_CP_CALLBACK {
                continue;
            }
            if let (Some(request), Some(lvb)) = (request_of(message), attributes(message)) {
                found.entry(request.desc.resource.words).or_insert(lvb);
            }
        }
        found
    }

    /// An event of the request layer; it comes back if it is not of these locks.
    pub(super) fn lock_event(&mut self, event: Event) -> Option<Event> {
        let of_objects = match &event {
            Event::Recovery { target, .. } => self.is_target_of_objects(*target),
            _ => false,
        };
        let Some(locks) = &mut self.locks else { return Some(event) };
        let server = &mut locks.server;
        match event {
            Event::Ended { call, ref result } => {
                let taken = self.stage.rpc(|rpc| server.called(call, result, rpc));
                (!taken).then_some(event)
            }
            Event::CalledAgain { call } => {
                let taken = self.stage.rpc(|rpc| server.called_again(call, rpc));
                (!taken).then_some(event)
            }
            Event::Disconnected { export, .. } | Event::Evicted { export, .. } => {
                self.stage.rpc(|rpc| server.left(export, rpc));
                Some(event)
            }
            Event::Recovery { change: RecoveryChange::Done { .. }, .. } if of_objects => {
                self.stage.rpc(|rpc| server.recovered(rpc));
                Some(event)
            }
            Event::Served(served) => self.serve_lock(served).map(Event::Served),
            event => Some(event),
        }
    }

    /// Ends timers of callbacks.
    pub(super) fn lock_timers(&mut self) {
        let now = self.stage.now();
        let Some(locks) = &mut self.locks else { return };
        if locks.server.poll_timeout().is_some_and(|at| at <= now) {
            let server = &mut locks.server;
            self.stage.rpc(|rpc| server.handle_timeout(rpc, |_, _, _| false));
        }
    }

    /// Locks that the recording knows and that no reply of it has granted.
    fn past_locks(&self) -> BTreeMap<u64, Past> {
        let (mut known, mut past) = (Vec::new(), BTreeMap::new());
        for (at, message) in self.messages.iter().enumerate() {
            if !self.is_of_locks(at) {
                continue;
            }
            if let Some(reply) = reply_of(message) {
                known.push(reply.handle);
            }
            if message.role != Role::Request {
                continue;
            }
            let Some(request) = request_of(message) else { continue };
            if message.is_callback() && message.body().opcode == Opcode::LDLM_BL_CALLBACK {
                let [client_cookie, cookie] = [request.handles[0], request.handles[1]];
                if known.contains(&cookie) {
                    continue;
                }
                let Some(link) = self.link_to(message.to()) else { continue };
                // What conflicts with a reader writes; with a writer the weakest does.
                let mode = match request.desc.requested {
                    LockMode::PR => LockMode::PW,
                    _ => LockMode::PR,
                };
                let resource = request.desc.resource;
                past.entry(cookie).or_insert(Past { link, client_cookie, resource, mode });
                known.push(cookie);
            } else if message.to() == self.me {
                let Some(link) = self.index.link_of.get(&at).copied() else { continue };
                for (_, cookie) in cookies_in(message) {
                    if !known.contains(&cookie) {
                        // Of which object is not seen.
                        let resource = ResourceName { words: [cookie, 0, 0, 0] };
                        let mode = LockMode::PR;
                        let new = Past { link, client_cookie: cookie, resource, mode };
                        past.entry(cookie).or_insert(new);
                        known.push(cookie);
                    }
                }
            }
        }
        past
    }

    fn link_to(&self, client: Nid) -> Option<usize> {
        let fits = |link: &crate::exchange::Link| {
            (link.server, link.client) == (self.me, client)
                && link.kind == ImportKind::Osc
                && link.before
        };
        self.index.links.iter().position(fits)
    }

    /// Makes the locks from before the recording.
    pub(super) fn locks_were_there(&mut self) {
        for (n, (cookie, past)) in self.past_locks().into_iter().enumerate() {
            let found = self.index.links[past.link].clone();
            let Some(handle) = self.relations.exports.ours(found.cookie) else { continue };
            let whole = Policy::Extent { start: 0, end: END_OF_FILE, gid: 0 };
            let desc = LockDesc {
                kind: LockKind::EXTENT,
                resource: past.resource,
                requested: past.mode,
                policy: whole.words(),
                ..LockDesc::default()
            };
            let lock = LockRequest::new(LockFlags::empty(), 1, desc, &[past.client_cookie]);
            let match_bits = 2_000_000 + 128 * n as u64;
            let body = Body {
                handle,
                kind: MsgKind::REQUEST,
                mbits: match_bits,
                version: 0x4_0003,
                opcode: Opcode::LDLM_ENQUEUE,
                conn_cnt: u32::MAX,
                timeout: 5,
                ..Body::default()
            };
            let payload = MsgBuilder::new(Header::default(), &body)
                .bytes(&lock.to_bytes(ByteOrder::Little))
                .build()
                .expect("a request");
            let (portal, _) = found.kind.portals();
            let kind = Kind::Put {
                ack: Handle::NONE,
                match_bits,
                hdr_data: 0,
                portal: portal.0,
                offset: 0,
            };
            let hdr = self.header_of(past.link, kind, payload.len());
            self.stage.arrive(&hdr, &payload).expect("a request");
            self.take();
            let answer = self.produced.iter().rev().find(|produced| {
                produced.message.role == Role::Reply && produced.message.bits() == match_bits
            });
            let ours = answer.and_then(|produced| reply_of(&produced.message));
            let ours = ours.map_or(0, |reply| reply.handle);
            if let Some(locks) = &mut self.locks {
                assert!(locks.cookies.relate(cookie, ours), "lock {cookie:#x}: {past:?}");
            }
            self.produced.clear();
        }
    }
}
