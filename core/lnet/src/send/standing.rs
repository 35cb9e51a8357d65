//! How the rail of a message stands, compared with the one that it would be bound to now.

use lnet_types::{Net, NiId, PeerNiId};

use crate::below::Doubt;
use crate::msg::Msg;
use crate::router::choose;
use crate::send::select::{self, Tables};

/// How a pair stands for what is for `net`: smaller is better. What has no link, ends in an interface
/// that is announced as down, or leads to a gateway that does not lead on, is no way.
pub(crate) fn standing(t: Tables<'_>, ni: NiId, hop: PeerNiId, net: Net) -> (bool, Doubt) {
    let lost = t.nis.get(ni).is_none_or(|ni| ni.fatal)
        || t.peers.nis.get(hop).is_none_or(|hop| hop.announced_down)
        || (select::local_net(t, net).is_none() && !choose::leads_to(t, hop, net));
    (lost, t.rails.of(ni, hop))
}

impl Tables<'_> {
    /// How the pair stands that a message would be bound to now.
    pub(crate) fn best_standing(&self, msg: &Msg) -> Option<(bool, Doubt)> {
        let t = *self;
        let request = t.request(msg, self.peers.find(msg.hdr.dst)?);
        let path = select::path(t, &request, &mut None).ok()?;
        Some(standing(t, path.ni, path.peer_ni, msg.hdr.dst.net()))
    }

    /// Whether a message that is bound to a pair would now be bound to a better one.
    pub(crate) fn has_better_path(&self, msg: &Msg) -> bool {
        let Some((ni, hop)) = msg.rail() else { return false };
        let current = standing(*self, ni, hop, msg.hdr.dst.net());
        if current == (false, Doubt::None) {
            return false;
        }
        self.best_standing(msg).is_some_and(|best| best < current)
    }
}
