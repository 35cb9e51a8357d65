//! How the rail of a message stands, compared with the one that it would be bound to now.

use crate::below::Doubt;
use crate::msg::Msg;
use crate::send::select::{self, Tables, standing};

impl Tables<'_> {
    /// How the pair stands that a message would be bound to now: one for a NID without an owner follows
    /// the previous one.
    pub(crate) fn best_standing(&self, msg: &Msg) -> Option<(bool, Doubt)> {
        let t = *self;
        let current = self.peers.find(msg.hdr.dst);
        let target = current.or_else(|| {
            let owner = self.peers.last_owner(msg.hdr.dst)?;
            self.peers.find(self.peers.peers.get(owner)?.primary)
        });
        let mut request = t.request(msg, target?);
        if current.is_none() && msg.may_move() {
            request.src = None;
        }
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
