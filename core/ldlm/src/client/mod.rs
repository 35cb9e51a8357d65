//! Locks of a client: enqueue, match, cache, callbacks, replay. Stands on `ptlrpc`: calls go down,
//! events are polled.
//!
//! ```text
//!  program   enqueue, release, flushed, convert, glimpsed     poll_event ─► Granted, CalledBack, Gone …
//!  here      mod.rs: which call and which callback belongs to which import
//!            namespace.rs: the locks of one import, without the request layer
//!  ptlrpc    call, reply, hold, fail                          Ended, Served, Import, Invalidated
//! ```
//!
//! A program that holds a lock learns at once when its server has dropped it, if the server can say so:
//! a client without a connection learns it with the next one. What must not be done by two at a time
//! is protected by a number that the server gives out, not by the lock alone.

mod ask;
mod cache;
mod callback;
mod lock;
mod namespace;
mod replay;
#[cfg(test)]
mod tests;
mod view;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet_types::{Errno, Instant, Prng};
use lustre_wire::connect::{ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::{InodeBits, LockRequest, Lvb};
use lustre_wire::{Buffers, Layout as _, Opcode, Portal};
use ptlrpc::{
    Answer, CallId, Event, ImportId, ImportState, Rpc, Served, ServedId, ServiceConfig, Tunables,
};

pub use ask::{Ask, GlimpseId, GoneReason, HoldId, LockError, LockEvent, LockId, Share};
pub use cache::CacheLimits;
pub use lock::Stage;
pub use namespace::LOCKS_PER_IMPORT_MAX;
pub use view::LockView;

use callback::CallbackAnswer;
use namespace::{Namespace, Order, Ticket};

/// The largest callback, bytes (P-37), and the buffers for callbacks: one is filled, and one is for bursts.
const CALLBACK_MAX: u32 = 5 << 10;
const CALLBACK_BUFFERS: u32 = 2;

/// Most glimpses that wait for the program; further ones are answered as if it knew nothing.
pub const GLIMPSES_MAX: usize = 4096;

/// Answer to a server that sets a key which is not known (L-41); LNet itself has no such number.
const ENOSYS: Errno = Errno(38);

/// What locks of a client begin with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of cookies. They must not be those of an earlier life with the same uuid.
    pub seed: u64,
    /// Tunables, as the request layer has them.
    pub tunables: Tunables,
    /// Limits of the cache of each import.
    pub cache: CacheLimits,
}

/// The locks of all imports of a node.
#[derive(Debug)]
pub struct LockClient {
    config: Config,
    prng: Prng,
    holds: u64,
    glimpse: u64,
    /// Callbacks are served.
    serves: bool,
    spaces: BTreeMap<ImportId, Namespace>,
    /// When each of them is due; those that never are, are not here. A client has a hundred imports, and is
    /// asked after each message.
    due: BTreeSet<(Instant, ImportId)>,
    calls: BTreeMap<CallId, (ImportId, Ticket)>,
    /// Glimpses that the program is to answer.
    glimpses: BTreeMap<GlimpseId, (ServedId, ImportId, LockId)>,
    events: VecDeque<(ImportId, LockEvent)>,
}

impl LockClient {
    /// One without imports.
    pub fn new(config: Config) -> Self {
        Self {
            prng: Prng::new(config.seed),
            config,
            holds: 0,
            glimpse: 0,
            serves: false,
            spaces: BTreeMap::new(),
            due: BTreeSet::new(),
            calls: BTreeMap::new(),
            glimpses: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes locks over an import from now on. The first one starts the service of callbacks.
    ///
    /// # Errors
    /// Another program serves the portal of callbacks, or there is no memory.
    pub fn open(&mut self, import: ImportId, rpc: &mut Rpc<'_, '_>) -> Result<(), Errno> {
        if !self.serves {
            let (portal, reply) = (Portal::LDLM_CALLBACK.0, Portal::LDLM_CALLBACK_REPLY.0);
            let service = ServiceConfig::new("ldlm_cbd", portal, reply, Portal::OST_BULK.0);
            // A callback is small, each buffer holds a hundred, and one that is full is replaced at once.
            rpc.serve(ServiceConfig {
                request_max: CALLBACK_MAX,
                buffers: CALLBACK_BUFFERS,
                ..service
            })?;
            self.serves = true;
        }
        let Config { tunables, cache, .. } = &self.config;
        let space = || Namespace::new(tunables.clone(), *cache);
        self.spaces.entry(import).or_insert_with(space);
        Ok(())
    }

    /// Asks for a lock (L-36). [`LockEvent::Granted`] or [`LockEvent::Refused`] is the end.
    ///
    /// # Errors
    /// What is asked for can't be, there are too many locks, or the import is not open here.
    pub fn enqueue(
        &mut self,
        import: ImportId,
        ask: &Ask,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<HoldId, LockError> {
        let closed = LockError::Invalid("import: not open for locks");
        let space = self.spaces.get_mut(&import).ok_or(closed)?;
        let hold = HoldId(self.holds + 1);
        let mut id = LockId(self.prng.next_u64());
        while id.0 == 0 || space.locks.contains(&id) {
            id = LockId(self.prng.next_u64());
        }
        space.enqueue(rpc.now(), ask, hold, id)?;
        self.holds = hold.0;
        self.carry_out(import, rpc);
        Ok(hold)
    }

    fn with(
        &mut self,
        import: ImportId,
        rpc: &mut Rpc<'_, '_>,
        f: impl FnOnce(&mut Namespace, Instant),
    ) {
        if let Some(space) = self.spaces.get_mut(&import) {
            f(space, rpc.now());
            self.carry_out(import, rpc);
        }
    }

    /// Gives a hold back, or gives up waiting for it. With `keep` the lock stays in the cache until
    /// another client wants it; else it goes with its last hold.
    pub fn release(&mut self, import: ImportId, hold: HoldId, keep: bool, rpc: &mut Rpc<'_, '_>) {
        self.with(import, rpc, |space, now| space.release(now, hold, keep));
    }

    /// What was under a lock is written back: the answer to [`LockEvent::Flush`].
    pub fn flushed(&mut self, import: ImportId, lock: LockId, rpc: &mut Rpc<'_, '_>) {
        self.with(import, rpc, |space, _| space.flushed(lock));
    }

    /// Gives inode bits back and keeps the others (L-45). [`LockEvent::Converted`] is the end.
    ///
    /// # Errors
    /// The lock is not granted, or bits to keep are not among its bits; the target has not granted
    /// `LOCK_CONVERT`, as releases before 2.12 do not: such a lock goes as a whole.
    pub fn convert(
        &mut self,
        import: ImportId,
        lock: LockId,
        keep: InodeBits,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<(), LockError> {
        let terms = rpc.terms(import).map(|terms| terms.flags2).unwrap_or_default();
        if !terms.contains(ConnectFlags2::LOCK_CONVERT) {
            return Err(LockError::Invalid("conversion: LOCK_CONVERT must be granted"));
        }
        let mut result = Err(LockError::Invalid("import: not open for locks"));
        self.with(import, rpc, |space, _| result = space.convert(lock, keep));
        result
    }

    /// Answers a glimpse with attributes, or with nothing known (L-40).
    pub fn glimpsed(&mut self, glimpse: GlimpseId, lvb: Option<Vec<u8>>, rpc: &mut Rpc<'_, '_>) {
        let Some((served, import, _)) = self.glimpses.remove(&glimpse) else { return };
        let terms = rpc.terms(import).map(|terms| terms.flags).unwrap_or_default();
        let answer = match lvb {
            Some(mut lvb) => {
                // Nanoseconds are for servers that expect them (L-18).
                if lvb.len() == Lvb::LEN && !terms.contains(ConnectFlags::LVB_TYPE) {
                    lvb.truncate(Lvb::LEN_SHORT);
                }
                Answer { buffers: Buffers::from([lvb]), ..Answer::default() }
            }
            None => Answer { status: callback::NO_LOCK_DATA, ..Answer::default() },
        };
        rpc.reply(served, answer);
    }

    /// Takes an event of the request layer. Returns it if it is for others too.
    pub fn event(&mut self, event: Event, rpc: &mut Rpc<'_, '_>) -> Option<Event> {
        let now = rpc.now();
        match event {
            Event::Ended { call, ref result } => {
                let Some((import, ticket)) = self.calls.remove(&call) else { return Some(event) };
                if let Some(space) = self.spaces.get_mut(&import) {
                    space.ended(now, ticket, result.as_ref().map_err(|e| *e));
                    self.carry_out(import, rpc);
                }
                None
            }
            Event::Served(served) => {
                let import = served.import.filter(|import| self.spaces.contains_key(import));
                match import {
                    Some(import) if is_callback(served.opcode) => {
                        self.callback(import, &served, rpc);
                        None
                    }
                    _ => Some(Event::Served(served)),
                }
            }
            Event::Import { import, state } => {
                match state {
                    ImportState::Evicted => self.with(import, rpc, |space, _| space.lost()),
                    ImportState::Closed => {
                        self.with(import, rpc, |space, _| space.lost());
                        if let Some(at) = self.spaces.remove(&import).and_then(|space| space.listed)
                        {
                            self.due.remove(&(at, import));
                        }
                    }
                    _ => {}
                }
                Some(event)
            }
            Event::ReplayLocks { import } => {
                if !self.spaces.contains_key(&import) {
                    return Some(event);
                }
                self.with(import, rpc, |space, _| space.replay());
                None
            }
            // A server that refuses this client for good evicts no client, and says so here alone.
            Event::Invalidated { import, .. } => {
                self.with(import, rpc, |space, _| space.lost());
                Some(event)
            }
            event => Some(event),
        }
    }

    /// A callback of the server of an import.
    fn callback(&mut self, import: ImportId, served: &Served, rpc: &mut Rpc<'_, '_>) {
        let status = |errno: Errno| Answer { status: errno.negative(), ..Answer::default() };
        let Some(space) = self.spaces.get_mut(&import) else {
            return rpc.reply(served.id, status(Errno::EINVAL));
        };
        if served.opcode == Opcode::LDLM_SET_INFO {
            // L-41: no key is known.
            return rpc.reply(served.id, status(ENOSYS));
        }
        let read = served.msg().and_then(|msg| {
            let request = LockRequest::of(&msg, 1)?;
            let lvb = msg.buffer(2).unwrap_or_default().to_vec();
            Ok((request, lvb))
        });
        let Ok((request, lvb)) = read else {
            return rpc.reply(served.id, status(Errno::EPROTO));
        };
        let glimpse = GlimpseId(self.glimpse + 1);
        let full = self.glimpses.len() >= GLIMPSES_MAX;
        match space.callback(rpc.now(), served.opcode, &request, &lvb, glimpse, full) {
            CallbackAnswer::Status(status) => {
                rpc.reply(served.id, Answer { status, ..Answer::default() });
            }
            CallbackAnswer::Glimpse(lock) => {
                self.glimpse = glimpse.0;
                self.glimpses.insert(glimpse, (served.id, import, lock));
            }
        }
        self.carry_out(import, rpc);
    }

    /// Does what the locks of an import order, until nothing is left.
    fn carry_out(&mut self, import: ImportId, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        let Some(space) = self.spaces.get_mut(&import) else { return };
        while let Some(order) = space.poll_order(now) {
            match order {
                Order::Call(ticket, call) => {
                    let begun = match ticket {
                        Ticket::Replay(..) => rpc.replay_lock(import, call),
                        _ => rpc.call(import, call),
                    };
                    match begun {
                        Ok(call) => {
                            self.calls.insert(call, (import, ticket));
                        }
                        Err(e) => space.ended(now, ticket, Err(e)),
                    }
                }
                Order::DropReplays(round) => {
                    let old = self.calls.iter().filter(|(_, (of, ticket))| {
                        *of == import && matches!(ticket, Ticket::Replay(_, r) if *r < round)
                    });
                    let old: Vec<CallId> = old.map(|(call, _)| *call).collect();
                    old.into_iter().for_each(|call| rpc.cancel(call));
                }
                Order::Hold(held) => {
                    rpc.hold(import, held);
                    rpc.replays_locks(import, held);
                }
                Order::Fail => rpc.fail(import),
                Order::Replayed => rpc.locks_replayed(import),
            }
        }
        while let Some(event) = space.events.pop_front() {
            if let LockEvent::Gone { lock, .. } = event {
                let of =
                    |(_, (_, _, of)): &(&GlimpseId, &(ServedId, ImportId, LockId))| *of == lock;
                let void: Vec<GlimpseId> =
                    self.glimpses.iter().filter(of).map(|(glimpse, _)| *glimpse).collect();
                for (served, ..) in void.iter().filter_map(|glimpse| self.glimpses.remove(glimpse))
                {
                    let status = Errno::EINVAL.negative();
                    rpc.reply(served, Answer { status, ..Answer::default() });
                }
            }
            self.events.push_back((import, event));
        }
        let due = space.due();
        let was = core::mem::replace(&mut space.listed, due);
        if was != due {
            was.map(|at| self.due.remove(&(at, import)));
            due.map(|at| self.due.insert((at, import)));
        }
    }

    /// What the program is to know next, and of which import.
    pub fn poll_event(&mut self) -> Option<(ImportId, LockEvent)> {
        self.events.pop_front()
    }

    /// When [`LockClient::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let first = self.due.first().map(|(at, _)| *at);
        debug_assert_eq!(first, self.spaces.values().filter_map(Namespace::due).min());
        first
    }

    /// Runs what is due.
    pub fn handle_timeout(&mut self, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let due: BTreeSet<ImportId> = due.map(|(_, import)| *import).collect();
        for import in due {
            self.with(import, rpc, Namespace::handle_timeout);
        }
    }

    /// The locks of an import, in no order that means something.
    pub fn views(&self, import: ImportId) -> Vec<LockView> {
        let Some(Namespace { locks, .. }) = self.spaces.get(&import) else { return Vec::new() };
        let view = |id: LockId| Some(LockView::of(id, locks.get(&id)?));
        locks.sorted_keys().into_iter().filter_map(view).collect()
    }
}

/// Whether it is a server's request about its client's locks.
const fn is_callback(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::LDLM_BL_CALLBACK
            | Opcode::LDLM_CP_CALLBACK
            | Opcode::LDLM_GL_CALLBACK
            | Opcode::LDLM_SET_INFO
    )
}
