//! What the feature bits in ping data say of the abilities of a peer.

use lnet_types::PeerId;
use lnet_wire::ping::Features;

use crate::peer::{Facts, Peers};

impl Peers {
    /// What the feature bits in ping data of peer `id` say of its abilities.
    /// `enabled`: we take part in discovery.
    pub(crate) fn note_features(&mut self, id: PeerId, features: Features, enabled: bool) {
        self.learn_multi_rail(id, features, enabled);
        self.note_ability(id, features);
    }

    /// D-35.
    fn learn_multi_rail(&mut self, id: PeerId, features: Features, enabled: bool) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let configured = peer.facts.contains(Facts::CONFIGURED);
        if features.contains(Features::MULTI_RAIL) {
            if peer.is_mr() {
                return;
            }
            if configured {
                tracing::warn!(peer = %peer.primary, "announces Multi-Rail, is configured without");
            } else if enabled && !peer.facts.contains(Facts::NO_DISCOVERY) {
                self.set_multi_rail(id);
            }
        } else if peer.is_mr() {
            if configured {
                tracing::warn!(peer = %peer.primary, "is configured Multi-Rail, announces none");
            } else {
                tracing::warn!(peer = %peer.primary, "is not Multi-Rail any more");
                peer.facts -= Facts::MULTI_RAIL;
            }
        }
    }

    /// O-22.
    pub(crate) fn set_multi_rail(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.facts |= Facts::MULTI_RAIL;
        let nis: Vec<_> = peer.nis().collect();
        for ni in nis {
            if let Some(ni) = self.nis.get_mut(ni) {
                ni.preferred = None;
            }
        }
    }

    /// A peer's data have come, by ping or push.
    pub(crate) fn note_ability(&mut self, id: PeerId, features: Features) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.numbering.announced(features.contains(Features::DEDUPLICATES));
        }
    }
}
