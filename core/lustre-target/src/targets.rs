//! The targets of one node: which event of the request layer and which fact of a store goes to which
//! target. Decides nothing.

use core::time::Duration;
use std::collections::BTreeMap;

use ldlm::server::LockServer;
use lnet_types::{Errno, Instant};
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{
    Answer, CallError, CallId, Event, ExportId, ImportId, ImportState, Past, RecoveryChange, Reply,
    Rpc, Served, ServedId, TargetConfig, TargetId,
};

use crate::journal::{Cx, HostMemory, Journal, NO_TOKEN, Recorded, Replies};
use crate::records::Start;
use crate::store::{Outcome, Store, StoreError, StoreFact};

/// What all targets offer to their clients.
pub(crate) fn plain_offer() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// What a target does with requests. Each request is answered once: by [`Cx::commit`] or by the
/// calls of [`Rpc`].
pub trait Kind: Send {
    /// What stores call this kind, so that none is served as another.
    fn name(&self) -> &'static str;

    /// What clients are offered.
    fn offer(&self) -> ConnectData {
        plain_offer()
    }

    /// Whether clients and their replies are recorded, so that a restart loses nothing.
    fn keeps_records(&self) -> bool {
        true
    }

    /// A request.
    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>);

    /// Bulk data have moved, or not: the request is over then. `false` if the request is another
    /// target's.
    fn bulk_done(
        &mut self,
        served: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool;

    /// An order of this target has ended.
    fn stored(&mut self, token: u64, outcome: Result<Outcome, StoreError>, cx: &mut Cx<'_, '_, '_>);

    /// An answer goes that the target has left incomplete.
    fn answer(&mut self, served: ServedId, answer: Answer, cx: &mut Cx<'_, '_, '_>) {
        cx.rpc.reply(served, answer);
    }

    /// The target begins, before anything else.
    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        let _ = (beginning, rpc);
    }

    /// The recovery of the target is over: its clients are back, or evicted and their records gone.
    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let _ = cx;
    }

    /// The store has refused the change of a request that would have put this record in [`Space::Objects`].
    ///
    /// [`Space::Objects`]: crate::store::Space::Objects
    fn refused(&mut self, record: &[u8], cx: &mut Cx<'_, '_, '_>) {
        let _ = (record, cx);
    }

    /// A client has disconnected, or was evicted, and its record is gone.
    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        let _ = (export, cx);
    }

    /// A request of a client finds no slot: what others wait for may go first (P-114). `false` if it is
    /// another target's.
    fn waits(&mut self, served: ServedId, export: ExportId, cx: &mut Cx<'_, '_, '_>) -> bool {
        let _ = (served, export, cx);
        false
    }

    /// A callback has ended, or has gone again. `false` if it is another target's.
    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        let _ = (fact, cx);
        false
    }

    /// The connection of an import has changed its state. `false` if it is another's.
    fn import_changed(
        &mut self,
        import: ImportId,
        state: ImportState,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let _ = (import, state, cx);
        false
    }

    /// Further transactions survive a crash ([`Cx::committed`]).
    fn committed(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let _ = cx;
    }

    /// Whether what it has in memory is ahead of the store: a store waits for the room that its
    /// transactions need, and if one is refused all the same, the target can't go on until it is started
    /// again.
    fn is_ahead(&self) -> bool {
        false
    }

    /// When [`Kind::handle_timeout`] is next due.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// [`Kind::poll_timeout`] has come.
    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let _ = cx;
    }

    /// Its locks; `None` for a kind without locks.
    fn locks(&self) -> Option<&LockServer> {
        None
    }

    /// The name of a resource, if it was announced.
    fn resource_name(&self, resource: &ResourceName) -> Option<&str> {
        let _ = resource;
        None
    }
}

/// How a target begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// How often the target was started, this time included. Stored before the target begins, so no
    /// two starts have the same number.
    pub starts: u32,
    /// Whether clients of an earlier start are awaited.
    pub recovers: bool,
}

/// What is reported of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackFact {
    /// It has gone again.
    Again(CallId),
    /// It has ended.
    Ended(CallId, Result<Reply, CallError>),
}

struct Slot {
    uuid: String,
    kind: Box<dyn Kind>,
    store: Box<dyn Store>,
    journal: Journal,
    failed: Option<StoreError>,
    /// Requests behind the end of a recovery whose record is under way; `None` at other times. The
    /// target takes them for those of a recovery until it learns that it is over.
    behind: Option<Vec<Served>>,
}

impl Slot {
    /// The recovery is over, or its end can't be recorded: what was held back comes to the target.
    fn recovered(&mut self, rpc: &mut Rpc<'_, '_>) {
        for served in self.behind.take().unwrap_or_default() {
            self.serve(served, rpc);
        }
    }

    /// The target is out of service: what waits is given up.
    fn fail(&mut self, e: StoreError, rpc: &mut Rpc<'_, '_>) {
        self.cx(rpc).1.abandon();
        self.failed = Some(e);
        self.recovered(rpc);
    }

    fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>) {
        if self.failed.is_some() {
            return rpc.decline(served.id);
        }
        if let Some(behind) = &mut self.behind {
            return behind.push(served);
        }
        let (kind, mut cx) = self.cx(rpc);
        kind.serve(served, &mut cx);
    }

    /// The target learns what survives a crash.
    fn learn(&mut self, recorded: Recorded, rpc: &mut Rpc<'_, '_>) {
        let (kind, mut cx) = self.cx(rpc);
        match recorded {
            Recorded::Left(export) => kind.left(export, &mut cx),
            Recorded::Recovered => {
                kind.recovered(&mut cx);
                self.recovered(rpc);
            }
            Recorded::Answer(served, answer) => kind.answer(served, answer, &mut cx),
            Recorded::Refused(record) => kind.refused(&record, &mut cx),
        }
    }

    fn cx<'a, 'b, 'c>(
        &'a mut self,
        rpc: &'a mut Rpc<'b, 'c>,
    ) -> (&'a mut dyn Kind, Cx<'a, 'b, 'c>) {
        let Self { kind, store, journal, .. } = self;
        (&mut **kind, Cx { rpc, store: &mut **store, journal })
    }
}

/// A target without room looks after so long whether others have made some: nothing changes by it that would
/// show it.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What an operator should know of the store of a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// [`StoreFact::Failed`], or it has refused what its target had counted on.
    #[error("out of service: {0}")]
    Failed(StoreError),
    /// [`StoreFact::Short`].
    #[error("waits for room: the file system of its store is full")]
    Short,
}

/// The targets of one node.
#[derive(Default)]
pub struct Targets(BTreeMap<TargetId, Slot>);

impl core::fmt::Debug for Targets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.0.values().map(|slot| &slot.uuid)).finish()
    }
}

impl Targets {
    /// Starts a target with what its store gave back.
    ///
    /// # Errors
    /// As [`Rpc::add_target`].
    pub fn add(
        &mut self,
        config: TargetConfig,
        mut kind: Box<dyn Kind>,
        store: Box<dyn Store>,
        mut start: Start,
        rpc: &mut Rpc<'_, '_>,
    ) -> Result<TargetId, Errno> {
        let replies = Replies::from(&start);
        let uuid = config.uuid.clone();
        let past: Past = core::mem::take(&mut start.past);
        let mut config = TargetConfig { past, ..config };
        config.offer.instance = start.starts;
        let recovers = !config.past.clients.is_empty();
        let id = rpc.add_target(config)?;
        kind.begin(Beginning { starts: start.starts, recovers }, rpc);
        let journal = Journal::new(id, &start, replies, kind.is_ahead());
        self.0.insert(id, Slot { uuid, kind, store, journal, failed: None, behind: None });
        Ok(id)
    }

    /// Takes an event to the target that it belongs to. Returns it if it is for the program.
    pub fn event(&mut self, event: Event, rpc: &mut Rpc<'_, '_>) -> Option<Event> {
        match event {
            Event::Served(served) => {
                let Some(slot) = self.0.get_mut(&served.target) else {
                    return Some(Event::Served(served));
                };
                slot.serve(*served, rpc);
                None
            }
            Event::BulkDone { served, result } => {
                let mut taken = false;
                for slot in self.0.values_mut() {
                    let (kind, mut cx) = slot.cx(rpc);
                    taken = taken || kind.bulk_done(served, result, &mut cx);
                }
                (!taken).then_some(Event::BulkDone { served, result })
            }
            Event::Joining { export, target, client, admission } => {
                let Some(slot) = self.0.get_mut(&target) else {
                    return Some(Event::Joining { export, target, client, admission });
                };
                slot.cx(rpc).1.join(export, client, admission);
                None
            }
            Event::Disconnected { export, target, ref client } => {
                let Some(slot) = self.0.get_mut(&target) else { return Some(event) };
                slot.cx(rpc).1.leave(client, export);
                None
            }
            Event::Evicted { export, target, ref client, .. } => {
                if let Some(slot) = self.0.get_mut(&target) {
                    slot.cx(rpc).1.leave(client, export);
                }
                Some(event)
            }
            Event::Waits { served, export } => {
                let taken = self.0.values_mut().any(|slot| {
                    let (kind, mut cx) = slot.cx(rpc);
                    kind.waits(served, export, &mut cx)
                });
                (!taken).then_some(Event::Waits { served, export })
            }
            Event::Import { import, state } => {
                let taken = self.0.values_mut().any(|slot| {
                    let (kind, mut cx) = slot.cx(rpc);
                    kind.import_changed(import, state, &mut cx)
                });
                (!taken).then_some(Event::Import { import, state })
            }
            Event::CalledAgain { call } => {
                let fact = CallbackFact::Again(call);
                (!self.callback(&fact, rpc)).then_some(Event::CalledAgain { call })
            }
            Event::Ended { call, result } => {
                let fact = CallbackFact::Ended(call, result);
                if self.callback(&fact, rpc) {
                    return None;
                }
                let CallbackFact::Ended(call, result) = fact else { return None };
                Some(Event::Ended { call, result })
            }
            Event::Recovery { target, ref change } => {
                let (RecoveryChange::Done { outcome } | RecoveryChange::Aborted { outcome }) =
                    change
                else {
                    return Some(event);
                };
                if let Some(slot) = self.0.get_mut(&target) {
                    slot.behind.get_or_insert_default();
                    slot.cx(rpc).1.new_epoch(outcome.last_transno);
                }
                Some(event)
            }
            event => Some(event),
        }
    }

    /// Takes a fact of a callback to the target that has called.
    fn callback(&mut self, fact: &CallbackFact, rpc: &mut Rpc<'_, '_>) -> bool {
        self.0.values_mut().any(|slot| {
            let (kind, mut cx) = slot.cx(rpc);
            kind.callback(fact, &mut cx)
        })
    }

    /// When [`Targets::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().filter_map(|slot| slot.kind.poll_timeout()).min()
    }

    /// Lets the targets do what is due.
    pub fn handle_timeout(&mut self, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        for slot in self.0.values_mut() {
            if slot.kind.poll_timeout().is_some_and(|at| at <= now) {
                let (kind, mut cx) = slot.cx(rpc);
                kind.handle_timeout(&mut cx);
            }
        }
    }

    /// The uuid of a target.
    pub fn uuid(&self, target: TargetId) -> Option<&str> {
        self.0.get(&target).map(|slot| slot.uuid.as_str())
    }

    /// All targets.
    pub fn ids(&self) -> impl Iterator<Item = TargetId> + '_ {
        self.0.keys().copied()
    }

    /// The target of this uuid.
    pub fn id(&self, uuid: &str) -> Option<TargetId> {
        self.0.iter().find(|(_, slot)| slot.uuid == uuid).map(|(id, _)| *id)
    }

    /// Why the store of a target is out of service.
    pub fn failure(&self, target: TargetId) -> Option<&StoreError> {
        self.0.get(&target)?.failed.as_ref()
    }

    /// The store of a target.
    pub fn store(&self, target: TargetId) -> Option<&dyn Store> {
        Some(&*self.0.get(&target)?.store)
    }

    /// The same, for its host to change.
    pub fn store_mut(&mut self, target: TargetId) -> Option<&mut dyn Store> {
        Some(&mut *self.0.get_mut(&target)?.store)
    }

    /// The targets that have locks: uuid and kind.
    pub fn lockers(&self) -> impl Iterator<Item = (&str, &dyn Kind)> {
        let lockers = self.0.values().filter(|slot| slot.kind.locks().is_some());
        lockers.map(|slot| (slot.uuid.as_str(), &*slot.kind))
    }

    /// Takes a target out; its store is the caller's to be closed. The request layer has been ordered
    /// to forget it before ([`Rpc::remove_target`]).
    pub fn remove(&mut self, target: TargetId) -> Option<Box<dyn Store>> {
        self.0.remove(&target).map(|slot| slot.store)
    }

    /// Takes what stores report to their targets. Returns the first target whose store has failed or
    /// waits since the last call.
    pub fn poll(&mut self, rpc: &mut Rpc<'_, '_>) -> Option<(String, Trouble)> {
        let mut ended = None;
        for slot in self.0.values_mut() {
            while let Some(fact) = slot.store.poll(&mut HostMemory(rpc.below())) {
                let (kind, mut cx) = slot.cx(rpc);
                match fact {
                    StoreFact::Done { token: NO_TOKEN, .. } => {}
                    StoreFact::Done { token, outcome } => kind.stored(token, outcome, &mut cx),
                    StoreFact::Applied { txn, result } => {
                        let refused = result.as_ref().err().cloned();
                        let recorded = cx.applied(txn, result);
                        let fails = refused.filter(|_| kind.is_ahead());
                        if let Some(recorded) = recorded {
                            slot.learn(recorded, rpc);
                        }
                        if let Some(e) = fails {
                            slot.fail(e.clone(), rpc);
                            ended.get_or_insert_with(|| (slot.uuid.clone(), Trouble::Failed(e)));
                        }
                    }
                    StoreFact::Committed { up_to } => {
                        let recorded = cx.settled(up_to);
                        kind.committed(&mut cx);
                        for recorded in recorded {
                            slot.learn(recorded, rpc);
                        }
                    }
                    StoreFact::Failed(e) => {
                        slot.fail(e.clone(), rpc);
                        ended.get_or_insert_with(|| (slot.uuid.clone(), Trouble::Failed(e)));
                    }
                    StoreFact::Short => {
                        ended.get_or_insert_with(|| (slot.uuid.clone(), Trouble::Short));
                    }
                }
            }
        }
        ended
    }
}
