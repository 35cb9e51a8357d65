//! Targets of one node that `lustre-target` has, on stores of this world: keys and values, and locks.
//! What they change is seen where it happens, at the store.

use core::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use lnet::upper::Below;
use lnet_scenario::{Scenario, TargetKind, TargetSpec};
use lnet_types::{Instant, Prng};
use lustre_target::kv::wire::Operation;
use lustre_target::{Kind, Kv, Lock, MemoryStore, Origin, Targets};
use ptlrpc::{Event, Past, Ptlrpc, Served, TargetConfig, TargetId};

use super::connect_data;
use super::disk::{Disk, Trouble};
use super::file::made;
use super::lock::guard;
use super::seen::{CallNo, KeyNo, RpcSeen};
use super::store::{SimStore, StoreSeen};

/// Where a request has the number of its call: behind what its target reads of the buffer.
pub(super) const CALL_AT: usize = 16;

/// See the module's head.
pub(super) struct Keeping {
    scenario: Arc<Scenario>,
    targets: Targets,
    /// Which targets of the scenario they are.
    kept: Vec<(usize, TargetId)>,
    /// Calls by target, client and number of the request, for those that may change something. A
    /// client says to each target for itself which answers it has.
    calls: BTreeMap<(TargetId, String, u64), CallNo>,
    /// The rule that locks of targets break.
    #[cfg(feature = "sabotage")]
    sabotage: Option<ldlm::Sabotage>,
    /// The rule that changes over two metadata targets break.
    #[cfg(feature = "sabotage")]
    across_sabotage: Option<lustre_target::Sabotage>,
    rng: Prng,
}

/// The number of the call behind a request.
fn call_of(served: &Served) -> Option<CallNo> {
    let msg = served.msg().ok()?;
    let number = msg.buffer(1)?.get(CALL_AT..)?.first_chunk()?;
    Some(CallNo(u64::from_le_bytes(*number)))
}

impl Keeping {
    pub(super) fn new(scenario: Arc<Scenario>, rng: Prng) -> Self {
        let (targets, kept, calls) = (Targets::default(), Vec::new(), BTreeMap::new());
        Self {
            scenario,
            targets,
            kept,
            calls,
            #[cfg(feature = "sabotage")]
            sabotage: None,
            #[cfg(feature = "sabotage")]
            across_sabotage: None,
            rng,
        }
    }

    /// Locks of targets that are served from now on break a rule.
    #[cfg(feature = "sabotage")]
    pub(super) fn sabotage(&mut self, rule: ldlm::Sabotage) {
        self.sabotage = Some(rule);
    }

    /// Metadata targets that are served from now on break a rule.
    #[cfg(feature = "sabotage")]
    pub(super) fn sabotage_across(&mut self, rule: lustre_target::Sabotage) {
        self.across_sabotage = Some(rule);
    }

    fn kind(&self, spec: &TargetSpec, left: &mut MemoryStore) -> Result<Box<dyn Kind>, String> {
        #[cfg(feature = "sabotage")]
        if let (TargetKind::Mdt, Some(rule)) = (spec.kind, self.across_sabotage) {
            let mdt = super::file::metadata(&self.scenario, spec, left)?;
            return Ok(Box::new(mdt.sabotaged(rule)));
        }
        if let Some(kind) = made(&self.scenario, spec, left)? {
            return Ok(kind);
        }
        let lock = Lock::new();
        #[cfg(feature = "sabotage")]
        let lock = lock.sabotaged(self.sabotage);
        Ok(match spec.kind {
            TargetKind::Lock => guard(lock),
            _ => Box::new(Kv::new()),
        })
    }

    /// Serves a target from what is left of its store.
    ///
    /// # Errors
    /// Why it can't be served.
    pub(super) fn mount(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        index: usize,
        mut left: MemoryStore,
        trouble: Trouble,
    ) -> Result<(), String> {
        let Some(spec) = self.scenario.rpc.targets.get(index) else { return Ok(()) };
        let wrong = |e: &dyn core::fmt::Display| format!("{}: {e}", spec.name);
        let kind = self.kind(spec, &mut left).map_err(|e| wrong(&e))?;
        let start = lustre_target::start(&mut left, kind.name()).map_err(|e| wrong(&e))?;
        let mut store = SimStore::new(left, spec.store, spec.commit, below.now(), self.rng.split());
        store.trouble(trouble.of_store());
        let offer = match spec.kind {
            TargetKind::Kv | TargetKind::List => connect_data(),
            _ => kind.offer(),
        };
        let (uuid, replayable) = (spec.name.clone(), kind.keeps_records());
        let config = TargetConfig { uuid, offer, replayable, past: Past::default() };
        let mut rpc = ptlrpc.rpc(below);
        let added = self.targets.add(config, kind, Box::new(store), start, &mut rpc);
        self.kept.push((index, added.map_err(|e| wrong(&e))?));
        Ok(())
    }

    fn store(&mut self, id: TargetId) -> Option<&mut SimStore> {
        let store: &mut dyn Any = self.targets.store_mut(id)?;
        store.downcast_mut()
    }

    /// The stores of all targets, as the node's death leaves them.
    pub(super) fn disks(&mut self) -> Vec<(usize, Disk)> {
        let Self { targets, kept, .. } = self;
        let of = |(index, id)| {
            let store: Box<dyn Any> = targets.remove(id)?;
            let store = store.downcast::<SimStore>().ok()?;
            Some((index, Disk::Store(Box::new(store.crashed()))))
        };
        kept.drain(..).filter_map(of).collect()
    }

    /// The index of a target in the scenario.
    pub(super) fn index_of(&self, id: TargetId) -> Option<usize> {
        self.kept.iter().find(|(_, kept)| *kept == id).map(|(index, _)| *index)
    }

    pub(super) fn trouble(&mut self, index: usize, trouble: Trouble) {
        let kept = self.kept.iter().find(|(n, _)| *n == index);
        if let Some(store) = kept.map(|(_, id)| *id).and_then(|id| self.store(id)) {
            store.trouble(trouble.of_store());
        }
    }

    /// When [`Self::poll`] is wanted.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.kept.is_empty() {
            return None;
        }
        let next = |(_, id): &(usize, TargetId)| {
            let store: &dyn Any = self.targets.store(*id)?;
            store.downcast_ref::<SimStore>()?.next()
        };
        self.kept.iter().filter_map(next).chain(self.targets.poll_timeout()).min()
    }

    /// Takes an event to the target that it is for; it comes back if it is for another part of the node.
    pub(super) fn event(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        event: Event,
    ) -> Option<Event> {
        if self.kept.is_empty() {
            return Some(event);
        }
        if let Event::Served(served) = &event
            && Operation::of(served.opcode).is_some_and(Operation::changes)
            && let Some(client) = ptlrpc.client_of(served.export)
        {
            // The client has the answers up to there.
            let (client, had) = (client.to_owned(), served.body.last_xid);
            let key = |xid| (served.target, client.clone(), xid);
            let known = self.calls.range(key(0)..=key(had));
            let known: Vec<_> = known.map(|(key, _)| key.clone()).collect();
            for key in known {
                self.calls.remove(&key);
            }
            if let Some(call) = call_of(served) {
                self.calls.insert(key(served.xid), call);
            }
        }
        self.targets.event(event, &mut ptlrpc.rpc(below))
    }

    /// Takes what stores have done to their targets.
    pub(super) fn poll(
        &mut self,
        ptlrpc: &mut Ptlrpc,
        below: &mut Below<'_>,
        notes: &mut Vec<RpcSeen>,
    ) {
        if self.kept.is_empty() {
            return;
        }
        let now = below.now();
        for n in 0..self.kept.len() {
            let Some(&(_, id)) = self.kept.get(n) else { return };
            if let Some(store) = self.store(id) {
                store.at(now);
            }
        }
        self.targets.handle_timeout(&mut ptlrpc.rpc(below));
        // A store of this world goes on after each failure.
        let _ = self.targets.poll(&mut ptlrpc.rpc(below));
        for n in 0..self.kept.len() {
            let Some(&(target, id)) = self.kept.get(n) else { return };
            let seen = self.store(id).map(SimStore::take_seen).unwrap_or_default();
            for seen in seen {
                self.note((target, id), seen, notes);
            }
        }
    }

    fn note(&self, (target, id): (usize, TargetId), seen: StoreSeen, notes: &mut Vec<RpcSeen>) {
        let (transno, origin, value, key) = match seen {
            StoreSeen::Committed { transno } => {
                return notes.push(RpcSeen::Committed { target, transno });
            }
            StoreSeen::Changed { transno, origin, value, key } => (transno, origin, value, key),
        };
        let kind = self.scenario.rpc.targets.get(target).map(|spec| spec.kind);
        if kind.is_some_and(TargetKind::is_of_files) {
            // What is in their records is theirs: programs see what comes of it.
            return;
        }
        let asked = |Origin { client, xid }| self.calls.get(&(id, client, xid)).copied();
        let call = origin.and_then(asked);
        if let (Some(call), Some(value)) = (call, value)
            && call != value
        {
            notes.push(RpcSeen::Damaged { call });
        }
        let key = KeyNo::read(&key).map(|key| (key, value.is_some()));
        let call = call.or(value).unwrap_or(CallNo::UNKNOWN);
        notes.push(RpcSeen::Executed { target, call, transno, key });
    }
}
