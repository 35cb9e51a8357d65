//! How many requests of an import are under way at a time (P-82, P-88). A request takes a slot before
//! it gets its xid, and has it until it ends, so that the xids that use one slot grow.

use std::collections::{BTreeSet, VecDeque};

use lustre_wire::opcode::Effect;
use lustre_wire::{ImportKind, Opcode, Service};

use crate::table::CallId;

/// Requests that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Pings, cancels, connects, and operations that are no one's but the program's.
    Unlimited,
    /// Reads: of objects, or of metadata.
    Read,
    /// Writes of objects.
    Write,
    /// Changes of metadata, or of what a server keeps by slots: their slot is their tag.
    Modify,
    /// Closes, which may use one slot more.
    Close,
}

impl Class {
    /// The class of an operation; `modifies` says it for operations that are reads or changes by what
    /// is in them.
    pub(crate) fn of(kind: ImportKind, opcode: Opcode, modifies: bool, slots: bool) -> Self {
        let lock = matches!(opcode, Opcode::LDLM_CANCEL | Opcode::LDLM_CONVERT);
        if lock || opcode == Opcode::OBD_PING || kind == ImportKind::Callback {
            return Self::Unlimited;
        }
        let metadata = kind == ImportKind::Mdc;
        let row = opcode.row();
        let effect = row.map(|row| row.effect);
        // Data of a metadata target take no tag, as those of an object target (C-6).
        let data = row.is_some_and(|row| row.service == Some(Service::Ost));
        match (opcode, effect) {
            (Opcode::OST_READ, _) => Self::Read,
            (Opcode::OST_WRITE, _) => Self::Write,
            _ if data => Self::Unlimited,
            (Opcode::MDS_CLOSE, _) if metadata => Self::Close,
            _ if modifies && (metadata || slots) => Self::Modify,
            (_, Some(Effect::Reads)) if metadata => Self::Read,
            _ => Self::Unlimited,
        }
    }
}

/// The slots of one class.
#[derive(Debug, Default)]
struct Lane {
    /// Numbers in use, from 1.
    used: BTreeSet<u16>,
    waiting: VecDeque<(CallId, Class)>,
}

impl Lane {
    /// The lowest free number, if it is at most `max`.
    fn take(&mut self, max: u16) -> Option<u16> {
        // Numbers ascend: the first that is not the one expected leaves that free.
        let taken = (1..=max).zip(&self.used).take_while(|(slot, used)| slot == *used).count();
        let free = u16::try_from(taken).ok()?.checked_add(1).filter(|free| *free <= max)?;
        self.used.insert(free);
        Some(free)
    }
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.used.is_empty() && self.waiting.is_empty()
    }
}

#[derive(Debug, Default)]
struct Lanes {
    read: Lane,
    write: Lane,
    modify: Lane,
}

impl Lanes {
    fn lane(&mut self, class: Class) -> Option<&mut Lane> {
        match class {
            Class::Unlimited => None,
            Class::Read => Some(&mut self.read),
            Class::Write => Some(&mut self.write),
            Class::Modify | Class::Close => Some(&mut self.modify),
        }
    }

    const fn all(&self) -> [&Lane; 3] {
        [&self.modify, &self.read, &self.write]
    }
}

/// The slots of an import; nothing for one of which no slot is in use, as idle ones are many.
#[derive(Debug, Default)]
pub(crate) struct Slots(Option<Box<Lanes>>);

/// How many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) rpcs: u16,
    pub(crate) mod_rpcs: u16,
}

impl Limits {
    fn of(self, class: Class) -> u16 {
        match class {
            Class::Unlimited => u16::MAX,
            Class::Read | Class::Write => self.rpcs,
            Class::Modify => self.mod_rpcs,
            Class::Close => self.mod_rpcs.saturating_add(1),
        }
        .max(1)
    }
}

impl Slots {
    /// A slot for a call: its number, 0 if it needs none. `None`: the call waits for one.
    pub(crate) fn take(&mut self, class: Class, call: CallId, limits: Limits) -> Option<u16> {
        if class == Class::Unlimited {
            return Some(0);
        }
        let max = limits.of(class);
        let lane = self.0.get_or_insert_default().lane(class)?;
        // A close may go before changes that wait: it has a slot that they have not.
        let ahead = lane.waiting.iter().any(|(_, waits)| limits.of(*waits) >= max);
        let slot = if ahead { None } else { lane.take(max) };
        if slot.is_none() {
            lane.waiting.push_back((call, class));
        }
        slot
    }

    fn lane(&mut self, class: Class) -> Option<&mut Lane> {
        self.0.as_mut()?.lane(class)
    }

    fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|lanes| lanes.all().into_iter().all(Lane::is_empty)) {
            self.0 = None;
        }
    }

    /// A call that waited for a slot has ended.
    pub(crate) fn forget(&mut self, class: Class, call: CallId) {
        if let Some(lane) = self.lane(class) {
            if let Some(at) = lane.waiting.iter().position(|(waits, _)| *waits == call) {
                lane.waiting.remove(at);
            }
            self.tidy();
        }
    }

    /// A slot is free again.
    pub(crate) fn give(&mut self, class: Class, slot: u16) {
        if let Some(lane) = self.lane(class) {
            lane.used.remove(&slot);
            self.tidy();
        }
    }

    /// Whether a call waits for a slot.
    pub(crate) fn has_waiting(&self) -> bool {
        let waits = |lanes: &Lanes| lanes.all().iter().any(|lane| !lane.waiting.is_empty());
        self.0.as_deref().is_some_and(waits)
    }

    /// The next call that has waited for a slot of this class, with its slot.
    pub(crate) fn next(&mut self, class: Class, limits: Limits) -> Option<(CallId, u16)> {
        let lane = self.lane(class)?;
        for at in 0..lane.waiting.len() {
            let Some(&(call, waits)) = lane.waiting.get(at) else { break };
            if let Some(slot) = lane.take(limits.of(waits)) {
                lane.waiting.remove(at);
                return Some((call, slot));
            }
        }
        None
    }

    /// Calls that wait for a slot, oldest first in each class.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = CallId> + '_ {
        let lanes = self.0.iter().flat_map(|lanes| lanes.all());
        lanes.flat_map(|lane| lane.waiting.iter().map(|(call, _)| *call))
    }

    /// How many calls wait for a slot.
    pub(crate) fn waiting_len(&self) -> usize {
        self.0.iter().flat_map(|lanes| lanes.all()).map(|lane| lane.waiting.len()).sum()
    }

    /// Reads, writes and changes under way.
    pub(crate) fn used(&self) -> [usize; 3] {
        let used =
            |lanes: &Lanes| [&lanes.read, &lanes.write, &lanes.modify].map(|lane| lane.used.len());
        self.0.as_deref().map_or([0; 3], used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { rpcs: 2, mod_rpcs: 2 };

    fn call(n: u64) -> CallId {
        CallId::from(n)
    }

    #[test]
    fn p88_each_operation_has_its_class() {
        use Class as C;
        use ImportKind as K;
        for (kind, opcode, modifies, slots, class) in [
            (K::Osc, Opcode::OST_READ, false, false, C::Read),
            (K::Osc, Opcode::OST_WRITE, true, false, C::Write),
            (K::Osc, Opcode::OST_WRITE, true, true, C::Write),
            (K::Osc, Opcode::OST_STATFS, false, false, C::Unlimited),
            (K::Osc, Opcode::OST_PUNCH, true, false, C::Unlimited),
            (K::Mdc, Opcode::OST_READ, false, true, C::Read),
            (K::Mdc, Opcode::OST_WRITE, true, true, C::Write),
            (K::Mdc, Opcode::OST_PUNCH, true, true, C::Unlimited),
            (K::Mdc, Opcode::OST_SETATTR, true, true, C::Unlimited),
            (K::Osc, Opcode::OBD_PING, false, true, C::Unlimited),
            (K::Osc, Opcode::LDLM_CANCEL, true, true, C::Unlimited),
            (K::Osc, Opcode(20_000), true, false, C::Unlimited),
            (K::Osc, Opcode(20_000), true, true, C::Modify),
            (K::Callback, Opcode(20_000), true, true, C::Unlimited),
            (K::Mdc, Opcode::MDS_REINT, true, true, C::Modify),
            (K::Mdc, Opcode::MDS_REINT, true, false, C::Modify),
            (K::Mdc, Opcode::MDS_CLOSE, true, true, C::Close),
            (K::Mdc, Opcode::MDS_GETATTR, false, true, C::Read),
            (K::Mdc, Opcode::OBD_PING, false, true, C::Unlimited),
            (K::Mdc, Opcode::LDLM_CANCEL, true, true, C::Unlimited),
        ] {
            assert_eq!(Class::of(kind, opcode, modifies, slots), class, "{kind:?} {opcode:?}");
        }
    }

    #[test]
    fn p82_a_close_uses_one_slot_more_than_changes() {
        let mut slots = Slots::default();
        assert_eq!(slots.take(Class::Modify, call(1), LIMITS), Some(1));
        assert_eq!(slots.take(Class::Modify, call(2), LIMITS), Some(2));
        assert_eq!(slots.take(Class::Modify, call(3), LIMITS), None);
        assert_eq!(slots.take(Class::Close, call(4), LIMITS), Some(3));
        assert_eq!(slots.take(Class::Close, call(5), LIMITS), None);
        // The slot of the close is none for a change.
        slots.give(Class::Close, 3);
        assert_eq!(slots.next(Class::Modify, LIMITS), Some((call(5), 3)));
        slots.give(Class::Modify, 1);
        assert_eq!(slots.next(Class::Modify, LIMITS), Some((call(3), 1)));
        assert_eq!(slots.next(Class::Modify, LIMITS), None);
    }

    #[test]
    fn p88_reads_and_writes_have_limits_of_their_own() {
        let mut slots = Slots::default();
        for n in 1..=2 {
            assert!(slots.take(Class::Read, call(n), LIMITS).is_some());
            assert!(slots.take(Class::Write, call(10 + n), LIMITS).is_some());
        }
        assert_eq!(slots.take(Class::Read, call(3), LIMITS), None);
        assert_eq!(slots.take(Class::Write, call(13), LIMITS), None);
        slots.give(Class::Read, 1);
        assert_eq!(slots.next(Class::Write, LIMITS), None);
        assert_eq!(slots.next(Class::Read, LIMITS), Some((call(3), 1)));
        assert_eq!(slots.used(), [2, 2, 0]);
    }

    proptest! {
        #[test]
        fn no_slot_has_two_calls_and_no_call_waits_beside_a_free_slot(
            steps in proptest::collection::vec((any::<bool>(), 0usize..8), 1..200),
        ) {
            let mut slots = Slots::default();
            let mut held: Vec<(u16, CallId)> = Vec::new();
            for (n, (begin, which)) in steps.into_iter().enumerate() {
                if begin {
                    let id = call(n as u64);
                    if let Some(slot) = slots.take(Class::Modify, id, LIMITS) {
                        held.push((slot, id));
                    }
                } else if !held.is_empty() {
                    let (slot, _) = held.remove(which % held.len());
                    slots.give(Class::Modify, slot);
                    while let Some((id, slot)) = slots.next(Class::Modify, LIMITS) {
                        held.push((slot, id));
                    }
                }
                let mut numbers: Vec<u16> = held.iter().map(|(slot, _)| *slot).collect();
                numbers.sort_unstable();
                numbers.dedup();
                prop_assert_eq!(numbers.len(), held.len());
                prop_assert!(held.len() <= 2);
                prop_assert!(held.len() == 2 || slots.waiting().next().is_none());
            }
        }
    }
}
