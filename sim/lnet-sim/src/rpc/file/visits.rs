//! The calls of all visits of a node, over its request layer: what the host of `lustre_rt::Mount` does on
//! a real node. Memory of bulk data is lent here, opens are kept for their repetition, and locks that come
//! with opens are answered for when they are called back.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use ldlm::client::{CacheLimits, Config, LockClient};
use lnet::upper::Below;
use lnet_types::{Instant, IoVec, Span};
use lustre_client::visitor::{End, LEAVE_MAX, Moved, Opens};
use lustre_wire::ImportKind;
use ptlrpc::{
    Bulk, Call, CallError, CallId, Direction, Event, ImportConfig, ImportId, ImportState, Ptlrpc,
    Reply, Tunables,
};

use super::super::host::Buffers;
use super::cached::{Caches, Parts};
use super::wire::{Answer, Order};

/// A visit of a node, by a number that no other has.
pub(super) type VisitNo = u64;

/// The least memory that is lent for bulk data; more is lent in powers of two.
const PIECE: u32 = 4096;

/// A call under way.
struct Waiting {
    visit: VisitNo,
    order: u64,
    import: ImportId,
    /// The buffers of an open that is kept.
    kept: bool,
    /// The memory of bulk data as it was lent, and how much of it is used.
    memory: Option<(Span, u32)>,
}

/// See the module's head.
pub(super) struct Visits {
    links: BTreeMap<(VisitNo, u64), Result<ImportId, CallError>>,
    /// Visit and connection of each import.
    imports: BTreeMap<ImportId, (VisitNo, u64)>,
    calls: BTreeMap<CallId, Waiting>,
    closing: BTreeMap<ImportId, (VisitNo, u64)>,
    pauses: BTreeSet<(Instant, VisitNo, u64)>,
    opens: Opens,
    locks: LockClient,
    buffers: Buffers,
    caches: Caches,
    /// What was answered since it was asked for.
    answers: Vec<(VisitNo, u64, Answer)>,
    /// A call that has no end after so long is given up.
    limits: BTreeMap<VisitNo, Duration>,
}

impl Visits {
    pub(super) fn new(seed: u64, tunables: Tunables) -> Self {
        Self {
            links: BTreeMap::new(),
            imports: BTreeMap::new(),
            calls: BTreeMap::new(),
            closing: BTreeMap::new(),
            pauses: BTreeSet::new(),
            opens: Opens::default(),
            locks: LockClient::new(Config { seed, tunables, cache: CacheLimits::default() }),
            buffers: Buffers::default(),
            caches: Caches::default(),
            answers: Vec::new(),
            limits: BTreeMap::new(),
        }
    }

    /// No open is repeated.
    #[cfg(feature = "sabotage")]
    pub(super) const fn sabotage_opens(&mut self) {
        self.opens.sabotage();
    }

    /// The calls of a visit have this limit.
    pub(super) fn limit(&mut self, visit: VisitNo, limit: Duration) {
        self.limits.insert(visit, limit);
    }

    /// A visit is over, and orders nothing any more.
    pub(super) fn forget(&mut self, visit: VisitNo) {
        self.limits.remove(&visit);
        self.links.retain(|(of, _), _| *of != visit);
    }

    /// Takes the next answer, and for which visit and order it is.
    pub(super) fn answer(&mut self) -> Option<(VisitNo, u64, Answer)> {
        self.answers.pop()
    }

    /// When [`Self::run`] is wanted.
    pub(super) fn next(&self) -> Option<Instant> {
        let pause = self.pauses.first().map(|(at, ..)| *at);
        let locks = self.locks.poll_timeout().filter(|_| !self.imports.is_empty());
        pause.into_iter().chain(locks).chain(self.caches.poll_timeout()).min()
    }

    /// Does what is due.
    pub(super) fn run(&mut self, ptlrpc: &mut Ptlrpc, below: &mut Below<'_>) {
        let now = below.now();
        while let Some((at, visit, order)) = self.pauses.first().copied().filter(|p| p.0 <= now) {
            self.pauses.remove(&(at, visit, order));
            self.answers.push((visit, order, Answer::Over));
        }
        if self.locks.poll_timeout().is_some_and(|at| at <= now) {
            self.locks.handle_timeout(&mut ptlrpc.rpc(below));
        }
        let Self { caches, locks, buffers, .. } = self;
        caches.handle_timeout(&mut Parts { locks, buffers, ptlrpc, below });
        self.settle(ptlrpc, below);
    }

    /// Takes what locks and caches have to say to where it belongs.
    fn settle(&mut self, ptlrpc: &mut Ptlrpc, below: &mut Below<'_>) {
        let Self { caches, locks, buffers, answers, .. } = self;
        loop {
            // What is written back lets locks go.
            let mut any = false;
            while let Some((import, event)) = locks.poll_event() {
                any = true;
                caches.lock_event(import, event, &mut Parts { locks, buffers, ptlrpc, below });
            }
            any |= caches.drain(&mut Parts { locks, buffers, ptlrpc, below });
            if !any {
                break;
            }
        }
        while let Some((visit, order, end)) = caches.take() {
            answers.push((visit, order, Answer::Object(Box::new(end))));
        }
    }

    /// Carries an order out.
    pub(super) fn order(
        &mut self,
        (visit, number): (VisitNo, u64),
        order: Order,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) {
        let import = |link: u64| self.links.get(&(visit, link)).copied();
        let answer = match order {
            Order::Link(link, config) => {
                let made = self.link((visit, link), *config, false, ptlrpc, below);
                self.links.insert((visit, link), made);
                return;
            }
            Order::Cache(link, config) => {
                let made = self.link((visit, link), *config, true, ptlrpc, below);
                if let Ok(import) = made {
                    self.caches.open(import);
                }
                self.links.insert((visit, link), made);
                return;
            }
            Order::Object(link, id, ask) => {
                match import(link).unwrap_or(Err(CallError::NoImport)) {
                    Ok(import) => {
                        let Self { caches, locks, buffers, .. } = self;
                        let parts = &mut Parts { locks, buffers, ptlrpc, below };
                        caches.begin((visit, number), import, (id, ask), parts);
                        return self.settle(ptlrpc, below);
                    }
                    Err(e) => Answer::Object(Box::new(e.into())),
                }
            }
            Order::Connect(link) => {
                if let Some(import) = import(link).and_then(Result::ok) {
                    ptlrpc.rpc(below).connect(import);
                }
                return;
            }
            Order::Call(link, call, moved) => {
                let made = import(link).unwrap_or(Err(CallError::NoImport)).and_then(|import| {
                    self.call((visit, number), import, *call, moved, ptlrpc, below)
                });
                match made {
                    Ok(()) => return,
                    Err(e) => Answer::End(Box::new(e.into())),
                }
            }
            Order::Handle(link, open) => {
                let import = import(link).and_then(Result::ok);
                Answer::Handle(import.and_then(|import| self.opens.handle(import, open)))
            }
            Order::Terms(link) => {
                let view = import(link).and_then(Result::ok).and_then(|i| ptlrpc.import_view(i));
                Answer::Terms(Box::new(view.map(|view| view.granted).unwrap_or_default()))
            }
            Order::Uncommitted(link) => {
                let view = import(link).and_then(Result::ok).and_then(|i| ptlrpc.import_view(i));
                Answer::Uncommitted(view.is_some_and(|view| view.uncommitted > 0))
            }
            Order::Unsettled(link) => {
                let import = import(link).and_then(Result::ok);
                Answer::Unsettled(import.map(|i| self.caches.unsettled(i)).unwrap_or_default())
            }
            Order::Close(link) => {
                let import = import(link).and_then(Result::ok);
                match import.filter(|import| ptlrpc.import_view(*import).is_some()) {
                    Some(import) => {
                        self.closing.insert(import, (visit, number));
                        let within = self.limits.get(&visit).map(|limit| LEAVE_MAX.min(*limit));
                        ptlrpc.rpc(below).disconnect_within(import, within.or(Some(LEAVE_MAX)));
                        return;
                    }
                    None => Answer::Over,
                }
            }
            Order::Pause(seconds) => {
                let at = below.now() + Duration::from_secs(seconds.into());
                self.pauses.insert((at, visit, number));
                return;
            }
        };
        self.answers.push((visit, number, answer));
    }

    fn link(
        &mut self,
        of: (VisitNo, u64),
        config: ImportConfig,
        caches: bool,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) -> Result<ImportId, CallError> {
        let takes_callbacks = config.kind == ImportKind::Mdc || caches;
        let import = ptlrpc.rpc(below).import(config)?;
        self.imports.insert(import, of);
        if takes_callbacks {
            let opened = self.locks.open(import, &mut ptlrpc.rpc(below));
            opened.map_err(CallError::NoDescriptor)?;
        }
        Ok(import)
    }

    fn call(
        &mut self,
        (visit, order): (VisitNo, u64),
        import: ImportId,
        call: Call,
        moved: Moved,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) -> Result<(), CallError> {
        let limit = self.limits.get(&visit).copied();
        let mut call = Call { limit, ..call };
        let (direction, len) = match &moved {
            Moved::Nothing => (Direction::Read, 0),
            Moved::Read(room) => (Direction::Read, *room),
            Moved::Write(bytes) => {
                (Direction::Write, u32::try_from(bytes.len()).unwrap_or(u32::MAX))
            }
        };
        let mut memory = None;
        if len > 0 {
            let room = len.max(PIECE).next_power_of_two();
            let lent = self.buffers.take(below, room).ok_or(CallError::Closed)?;
            let span = Span { len, ..lent };
            match &moved {
                Moved::Write(bytes) => below.bytes_mut(span).copy_from_slice(bytes),
                _ => below.bytes_mut(span).fill(0),
            }
            call.bulk = Some(Bulk { direction, memory: IoVec::from([span]) });
            memory = Some((lent, len));
        }
        let (kept, ends) = (call.keep, call.ends);
        match ptlrpc.rpc(below).call(import, call) {
            Ok(call) => {
                if let Some(open) = ends {
                    self.opens.closing(import, open, call, &mut ptlrpc.rpc(below));
                }
                self.calls.insert(call, Waiting { visit, order, import, kept, memory });
                Ok(())
            }
            Err(e) => {
                memory.into_iter().for_each(|(lent, _)| self.buffers.give(lent));
                Err(e)
            }
        }
    }

    fn ended(
        &mut self,
        call: CallId,
        waiting: Waiting,
        result: Result<Reply, CallError>,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) {
        let Waiting { visit, order, import, kept, memory } = waiting;
        let mut bytes = Vec::new();
        if let Some((lent, len)) = memory {
            bytes = below.bytes(Span { len, ..lent }).to_vec();
            self.buffers.give(lent);
        }
        if let (Ok(reply), true) = (&result, kept) {
            self.opens.opened(import, call, reply, &mut ptlrpc.rpc(below));
        }
        let end = End { result, bytes, call: Some(call) };
        self.answers.push((visit, order, Answer::End(Box::new(end))));
    }

    /// Takes an event of the request layer; it comes back if it is for another part of the node.
    pub(super) fn event(
        &mut self,
        event: Event,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
    ) -> Option<Event> {
        if self.imports.is_empty() {
            return Some(event);
        }
        let event = self.locks.event(event, &mut ptlrpc.rpc(below));
        let Self { caches, locks, buffers, .. } = self;
        let parts = &mut Parts { locks, buffers, ptlrpc, below };
        let event = event.and_then(|event| caches.event(event, parts));
        self.settle(ptlrpc, below);
        match event? {
            Event::Ended { call, result } => match self.calls.remove(&call) {
                Some(waiting) => {
                    self.ended(call, waiting, result, ptlrpc, below);
                    None
                }
                None => Some(Event::Ended { call, result }),
            },
            Event::Replayed { import, call, result } if self.imports.contains_key(&import) => {
                self.opens.replayed(import, call, &result, &mut ptlrpc.rpc(below));
                None
            }
            Event::Import { import, state } if self.imports.contains_key(&import) => {
                if state == ImportState::Closed {
                    self.opens.forget(import);
                    self.imports.remove(&import);
                    self.settle(ptlrpc, below);
                    self.caches.closed(import);
                    self.settle(ptlrpc, below);
                    if let Some((visit, order)) = self.closing.remove(&import) {
                        self.answers.push((visit, order, Answer::Over));
                    }
                }
                None
            }
            Event::Invalidated { import, lost } => match self.imports.get(&import) {
                Some((visit, link)) => {
                    self.answers.push((*visit, *link, Answer::Lost(lost)));
                    None
                }
                None => Some(Event::Invalidated { import, lost }),
            },
            event => Some(event),
        }
    }
}
