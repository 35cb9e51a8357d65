//! What a silent rail looks like seen from here: a way that is broken, an interface of the peer's, or
//! one of ours (RS-028, RS-029, RS-034). A reading of what drivers say of all rails at this moment, for
//! people and for what is announced to peers (`cut_off.rs`). A rail that nothing was sent over is above doubt,
//! so the reading gets better as messages find other ways.

use core::fmt;

use lnet_types::{NiId, PeerNiId};

use crate::below::Doubt;
use crate::send::select::Tables;

/// What seems to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Blame {
    /// The way between the two: other interfaces of ours reach the peer's, and ours reaches others.
    Way,
    /// The peer's interface: none of ours reaches it.
    Theirs,
    /// Our interface: it reaches several no more that another one of ours does reach.
    Ours,
    /// Not decidable: this node has one interface on the network.
    Undetermined,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Way => "the way between them",
            Self::Theirs => "the peer's interface",
            Self::Ours => "our interface",
            Self::Undetermined => "undetermined, with one interface here",
        })
    }
}

/// What the silence of a rail looks like. `None` if it is not silent.
pub(crate) fn of(t: Tables<'_>, ni: NiId, peer_ni: PeerNiId) -> Option<Blame> {
    let is_silent = |ni, peer_ni| t.rails.of(ni, peer_ni) == Doubt::Silent;
    if !is_silent(ni, peer_ni) {
        return None;
    }
    let net = t.nis.get(ni)?.nid.net();
    let others: Vec<NiId> = t
        .nis
        .iter()
        .filter(|(id, other)| *id != ni && other.nid.net() == net && !other.fatal)
        .map(|(id, _)| id)
        .collect();
    if others.is_empty() {
        return Some(Blame::Undetermined);
    }
    if others.iter().all(|other| is_silent(*other, peer_ni)) {
        return Some(Blame::Theirs);
    }
    let lost: Vec<PeerNiId> = t.rails.silent_from(ni).collect();
    let reaches_all = |other: &NiId| lost.iter().all(|lost| !is_silent(*other, *lost));
    Some(if lost.len() > 1 && others.iter().any(reaches_all) { Blame::Ours } else { Blame::Way })
}
