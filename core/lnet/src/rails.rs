//! The rails that are not above doubt, and how grave it is (DEC-31). What follows from it is in
//! `suspicion.rs` and `send/select.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet_types::{Instant, NiId, PeerId, PeerNiId};

use crate::Doubt;

/// The rails that are not above doubt. Nearly always empty, so that a caller can stop there.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Rails {
    doubted: BTreeMap<(NiId, PeerNiId), Doubted>,
    /// Interfaces of ours that these peers don't reach, or reach badly, as last decided (`cut_off.rs`).
    pub(crate) cut_off: BTreeSet<(PeerId, NiId)>,
    /// The peers to which an announcement is being repeated (`cut_off.rs`).
    pub(crate) reminded: BTreeSet<PeerId>,
    /// Whether it is withdrawn from these at the moment, to be news again.
    pub(crate) withdrawn: bool,
    /// Messages that were taken off a rail unsent.
    moved: u64,
    /// Times that a rail fell under suspicion, or under a graver one.
    falls: u64,
    /// Times that the doubt about a rail changed.
    #[serde(skip)]
    changes: u64,
    /// The rails of the last changes, oldest first, at most [`RECENT`].
    #[serde(skip)]
    recent: VecDeque<(NiId, PeerNiId)>,
}

/// A rail that is not above doubt.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Doubted {
    doubt: Doubt,
    /// Since when it is this doubt.
    since: Instant,
    /// Since when the rail carries little or nothing, if it does.
    lame: Option<Instant>,
}

/// Changes that are kept by rail, for hosts that look after each event: an event brings few of them.
const RECENT: usize = 64;

impl Rails {
    pub(crate) fn is_clean(&self) -> bool {
        self.doubted.is_empty()
    }

    /// What is thought of a rail.
    pub(crate) fn of(&self, ni: NiId, peer_ni: PeerNiId) -> Doubt {
        self.doubted.get(&(ni, peer_ni)).map_or(Doubt::None, |doubted| doubted.doubt)
    }

    /// The peers' interfaces to which the rails from `ni` are silent.
    pub(crate) fn silent_from(&self, ni: NiId) -> impl Iterator<Item = PeerNiId> + '_ {
        self.silent().filter(move |rail| rail.0 == ni).map(|rail| rail.1)
    }

    /// The rails that are silent.
    pub(crate) fn silent(&self) -> impl Iterator<Item = (NiId, PeerNiId)> + '_ {
        self.all().filter(|(_, doubt, _)| *doubt == Doubt::Silent).map(|(rail, ..)| rail)
    }

    /// The rails that carry little or nothing, and since when.
    pub(crate) fn lame(&self) -> impl Iterator<Item = (NiId, PeerNiId, Instant)> + '_ {
        self.doubted.iter().filter_map(|((ni, peer_ni), d)| Some((*ni, *peer_ni, d.lame?)))
    }

    /// Counts a message that was taken off a rail unsent.
    pub(crate) fn count_moved(&mut self) {
        self.moved += 1;
    }

    /// All of them, with the time since when they are doubted so.
    pub(crate) fn all(&self) -> impl Iterator<Item = ((NiId, PeerNiId), Doubt, Instant)> + '_ {
        self.doubted.iter().map(|(rail, d)| (*rail, d.doubt, d.since))
    }

    /// Times that a rail fell under suspicion, or under a graver one.
    pub(crate) const fn falls(&self) -> u64 {
        self.falls
    }

    /// Messages that were taken off a rail unsent.
    pub(crate) const fn moved(&self) -> u64 {
        self.moved
    }

    /// Forgets the rails of interfaces that are gone.
    pub(crate) fn retain(&mut self, exists: impl Fn(NiId, PeerNiId) -> bool) {
        let before = self.doubted.len();
        self.doubted.retain(|(ni, peer_ni), _| exists(*ni, *peer_ni));
        if self.doubted.len() < before {
            self.changed_at_large();
        }
    }

    /// Doubts have changed about rails that are not known here.
    fn changed_at_large(&mut self) {
        self.changes += 1;
        self.recent.clear();
    }

    /// Times that the doubt about a rail changed.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The rails of all changes behind the first `seen`; `None` if they are not known any more.
    pub(crate) fn changed_since(
        &self,
        seen: u64,
    ) -> Option<impl Iterator<Item = (NiId, PeerNiId)> + '_> {
        let missed = usize::try_from(self.changes.checked_sub(seen)?).ok()?;
        let known = self.recent.len().checked_sub(missed)?;
        Some(self.recent.iter().skip(known).copied())
    }

    /// Forgets all suspicion.
    pub(crate) fn clear(&mut self) {
        self.doubted.clear();
        self.changed_at_large();
    }

    /// Takes note; true if it is news.
    pub(crate) fn set(&mut self, rail: (NiId, PeerNiId), doubt: Doubt, now: Instant) -> bool {
        let before = self.of(rail.0, rail.1);
        if doubt == before {
            return false;
        }
        self.falls += u64::from(doubt > before);
        self.changes += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(rail);
        if doubt == Doubt::None {
            self.doubted.remove(&rail);
        } else {
            let lame = self.doubted.get(&rail).and_then(|before| before.lame).unwrap_or(now);
            let lame = (doubt >= Doubt::Slow).then_some(lame);
            self.doubted.insert(rail, Doubted { doubt, since: now, lame });
        }
        true
    }
}
