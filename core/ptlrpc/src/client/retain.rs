//! Answered requests that are repeated to a server that has lost what they did: until they are
//! committed, or as long as the program keeps them (P-70, P-74, P-75). Pure; `reply.rs` puts them in,
//! `recover.rs` repeats them.

use std::collections::{BTreeMap, BTreeSet};

use lustre_wire::{Body, Buffers, Header};

use super::request::Bulk;
use crate::table::CallId;

/// Transaction and xid: the order of replay.
pub(crate) type Place = (u64, u64);

/// One of them.
#[derive(Debug)]
pub(crate) struct Retained {
    /// The call that it was.
    pub(crate) call: CallId,
    pub(crate) header: Header,
    pub(crate) body: Body,
    /// Buffers behind the body.
    pub(crate) buffers: Buffers,
    pub(crate) portals: (u32, u32),
    pub(crate) reply_len: u32,
    /// What it writes, and the portal for that.
    pub(crate) bulk: Option<(Bulk, u32)>,
    /// The first answer.
    pub(crate) status: i32,
    /// Repeated although it is committed, until the program forgets it.
    pub(crate) keep: bool,
    /// The call whose effect this one ends: once this one is committed, that one is forgotten.
    pub(crate) ends: Option<CallId>,
}

/// What is committed and kept goes before what is not committed (P-70).
#[derive(Debug, Default)]
struct Kept {
    committed: BTreeMap<Place, Box<Retained>>,
    /// In boxes: the first one leaves at each commit, and those behind it move up.
    uncommitted: BTreeMap<Place, Box<Retained>>,
    places: BTreeMap<CallId, Place>,
    /// Numbers of those that are still to be repeated, while replay is under way.
    left: BTreeSet<u64>,
    /// Writes that are void, whose programs have not heard that their memory is free.
    void: Vec<CallId>,
}

/// All of one import; nothing for one without any, as idle ones are many.
#[derive(Debug, Default)]
pub(crate) struct Retention(Option<Box<Kept>>);

impl Retention {
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |kept| kept.places.len())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a commit is awaited.
    pub(crate) fn awaits_commit(&self) -> bool {
        self.0.as_ref().is_some_and(|kept| !kept.uncommitted.is_empty())
    }

    /// How many of them the server may still lose.
    pub(crate) fn uncommitted(&self) -> usize {
        self.0.as_ref().map_or(0, |kept| kept.uncommitted.len())
    }

    /// Keeps a request whose answer named transaction `retained.body.transno`.
    pub(crate) fn insert(&mut self, xid: u64, retained: Retained) {
        let kept = self.0.get_or_insert_default();
        let place = (retained.body.transno, xid);
        kept.places.insert(retained.call, place);
        if let Some(before) = kept.uncommitted.insert(place, Box::new(retained)) {
            // A server that gives one number twice: the last answer holds.
            kept.places.retain(|call, at| *at != place || *call != before.call);
        }
    }

    /// Everything up to this transaction is committed (P-75), but for the one at `busy`, whose replay is
    /// under way. Returns the writes whose memory is free.
    pub(crate) fn commit(&mut self, last: u64, busy: Option<Place>) -> Vec<CallId> {
        let (mut free, mut later) = (Vec::new(), None);
        let Some(kept) = &mut self.0 else { return free };
        while let Some(first) = kept.uncommitted.first_entry().filter(|r| r.key().0 <= last) {
            let (place, retained) = first.remove_entry();
            if busy == Some(place) {
                later = Some((place, retained));
                continue;
            }
            if retained.keep {
                kept.committed.insert(place, retained);
                continue;
            }
            kept.places.remove(&retained.call);
            kept.left.remove(&place.1);
            free.extend(retained.bulk.is_some().then_some(retained.call));
            if let Some(ended) = retained.ends {
                kept.forget(ended);
            }
        }
        kept.uncommitted.extend(later);
        self.tidy();
        free
    }

    /// A request is repeated no more. `false`: it was not kept.
    pub(crate) fn forget(&mut self, call: CallId) -> bool {
        let forgotten = self.0.as_mut().is_some_and(|kept| kept.forget(call));
        self.tidy();
        forgotten
    }

    fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|kept| kept.places.is_empty() && kept.void.is_empty()) {
            self.0 = None;
        }
    }

    /// The request that a call was.
    pub(crate) fn get(&self, call: CallId) -> Option<&Retained> {
        let (transno, xid) = *self.0.as_ref()?.places.get(&call)?;
        self.at(transno, xid)
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, call: CallId) -> Option<&mut Retained> {
        let kept = self.0.as_mut()?;
        let place = kept.places.get(&call)?;
        let retained = match kept.committed.get_mut(place) {
            Some(retained) => Some(retained),
            None => kept.uncommitted.get_mut(place),
        };
        retained.map(|retained| &mut **retained)
    }

    /// The request at a place.
    pub(crate) fn at(&self, transno: u64, xid: u64) -> Option<&Retained> {
        let (place, kept) = ((transno, xid), self.0.as_ref()?);
        let retained = kept.committed.get(&place).or_else(|| kept.uncommitted.get(&place));
        retained.map(|retained| &**retained)
    }

    /// Replay begins behind a transaction.
    pub(crate) fn begin_replay(&mut self, last: u64) {
        let left = self.after(last).map(|(xid, _)| xid).collect();
        if let Some(kept) = &mut self.0 {
            kept.left = left;
        }
    }

    /// A request was repeated.
    pub(crate) fn repeated(&mut self, xid: u64) {
        if let Some(kept) = &mut self.0 {
            kept.left.remove(&xid);
        }
    }

    /// The lowest xid of what is still to be repeated.
    pub(crate) fn lowest_left(&self) -> Option<u64> {
        self.0.as_ref()?.left.first().copied()
    }

    /// Those behind a transaction, in the order of replay, with their xids.
    pub(crate) fn after(
        &self,
        transno: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &Retained)> + '_ {
        let from = (transno.saturating_add(1), 0);
        let lists = self.0.iter().flat_map(|kept| [&kept.committed, &kept.uncommitted]);
        let behind = lists.flat_map(move |list| list.range(from..));
        behind.map(|((_, xid), retained)| (*xid, &**retained))
    }

    /// The transaction that is repeated first, 0 for none (P-63).
    pub(crate) fn first_transno(&self) -> u64 {
        self.after(0).next().map_or(0, |(_, retained)| retained.body.transno)
    }

    /// Whether a call is kept, or void without the word that its memory is free.
    pub(crate) fn has(&self, call: CallId) -> bool {
        let has = |kept: &Kept| kept.places.contains_key(&call) || kept.void.contains(&call);
        self.0.as_ref().is_some_and(|kept| has(kept))
    }

    /// None is repeated any more. The memory of writes is free with [`Retention::take_void`].
    pub(crate) fn clear(&mut self) {
        let Some(kept) = self.0.take() else { return };
        let Kept { committed, uncommitted, mut void, .. } = *kept;
        let all = committed.into_values().chain(uncommitted.into_values());
        void.extend(all.filter(|retained| retained.bulk.is_some()).map(|retained| retained.call));
        if !void.is_empty() {
            self.0 = Some(Box::new(Kept { void, ..Kept::default() }));
        }
    }

    /// The writes that were cleared: nothing uses their memory now.
    pub(crate) fn take_void(&mut self) -> Vec<CallId> {
        let void = self.0.as_mut().map(|kept| core::mem::take(&mut kept.void));
        self.tidy();
        void.unwrap_or_default()
    }
}

impl Kept {
    fn forget(&mut self, call: CallId) -> bool {
        let Some(place) = self.places.remove(&call) else { return false };
        self.left.remove(&place.1);
        self.committed.remove(&place).or_else(|| self.uncommitted.remove(&place)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Direction;
    use super::*;

    fn kept(call: u64, transno: u64, keep: bool, ends: Option<u64>) -> Retained {
        Retained {
            call: CallId::from(call),
            header: Header::default(),
            body: Body { transno, ..Body::default() },
            buffers: Buffers::new(),
            portals: (12, 10),
            reply_len: 0,
            bulk: None,
            status: 0,
            keep,
            ends: ends.map(CallId::from),
        }
    }

    fn order(retention: &Retention) -> Vec<u64> {
        retention.after(0).map(|(_, r)| r.call.into()).collect()
    }

    #[test]
    fn p45_lowest_number_of_what_is_still_to_be_repeated_is_known() {
        let mut retention = Retention::default();
        retention.insert(512, kept(1, 10, true, None));
        retention.insert(384, kept(2, 11, true, None));
        retention.insert(128, kept(3, 12, false, None));
        retention.insert(256, kept(4, 13, false, None));
        assert_eq!(retention.lowest_left(), None, "no replay is under way");
        retention.begin_replay(10);
        assert_eq!(retention.lowest_left(), Some(128));
        retention.repeated(128);
        assert_eq!(retention.lowest_left(), Some(256));
        retention.commit(13, None);
        assert_eq!(retention.lowest_left(), Some(384));
        assert!(retention.forget(CallId::from(2)));
        assert_eq!(retention.lowest_left(), None);
    }

    #[test]
    fn p75_a_kept_request_survives_its_commit_and_is_repeated_first() {
        let mut retention = Retention::default();
        retention.insert(128, kept(1, 10, true, None));
        retention.insert(256, kept(2, 11, false, None));
        retention.insert(384, kept(3, 12, false, None));
        retention.commit(11, None);
        assert_eq!(order(&retention), [1, 3]);
        assert!(retention.awaits_commit());
        assert_eq!(retention.uncommitted(), 1);
        retention.commit(12, None);
        assert_eq!(order(&retention), [1]);
        assert!(!retention.awaits_commit());
        assert_eq!((retention.first_transno(), retention.len()), (10, 1));
        assert!(retention.forget(CallId::from(1)));
        assert!(!retention.forget(CallId::from(1)));
        assert!(retention.is_empty());
    }

    #[test]
    fn p75_what_ends_an_effect_lets_it_go_with_its_own_commit() {
        let mut retention = Retention::default();
        retention.insert(128, kept(1, 10, true, None));
        retention.commit(10, None);
        retention.insert(256, kept(2, 11, false, Some(1)));
        retention.commit(10, None);
        assert_eq!(order(&retention), [1, 2], "the end may be lost: both are repeated");
        retention.commit(11, None);
        assert!(retention.is_empty());
    }

    #[test]
    fn p70_equal_transactions_go_in_the_order_of_xids() {
        let mut retention = Retention::default();
        retention.insert(384, kept(3, 10, false, None));
        retention.insert(128, kept(1, 10, false, None));
        assert_eq!(order(&retention), [1, 3]);
        retention.insert(128, kept(4, 10, false, None));
        assert_eq!((order(&retention), retention.len()), (vec![4, 3], 2));
    }

    #[test]
    fn p74_memory_of_a_write_is_free_with_its_commit_or_when_it_is_void() {
        let write = |call, transno| {
            let memory = lnet_types::IoVec::new();
            let bulk = Bulk { direction: Direction::Write, memory };
            Retained { bulk: Some((bulk, 8)), ..kept(call, transno, false, None) }
        };
        let mut retention = Retention::default();
        for (call, transno) in [(1, 10), (2, 11), (3, 12)] {
            retention.insert(128 * call, write(call, transno));
        }
        retention.insert(512, kept(4, 13, false, None));
        assert_eq!(retention.commit(9, None), []);
        // The replay of the second one is under way: its memory is in use.
        assert_eq!(retention.commit(11, Some((11, 256))), [CallId::from(1)]);
        assert_eq!(order(&retention), [2, 3, 4]);
        assert_eq!(retention.commit(11, None), [CallId::from(2)]);
        retention.clear();
        assert_eq!((order(&retention), retention.len()), (vec![], 0));
        assert!(retention.has(CallId::from(3)), "its program has not heard of it");
        assert_eq!(retention.take_void(), [CallId::from(3)]);
        assert!(retention.is_empty());
    }
}
