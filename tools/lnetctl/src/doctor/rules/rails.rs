//! Rails that are not trusted now: silent, lossy or slow. Peers that never answered are the subject of
//! `peers.rs` and, if they are gateways, of routes: of their rails there is nothing more to say.

use super::{Finding, Level};
use crate::doctor::site::{Peer, Site};

pub(super) const NAME: &str = "rail";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        let was_reached = |nid| {
            let peer = node.peers.iter().find(|peer| peer.nis.iter().any(|ni| ni.nid == nid));
            peer.is_none_or(Peer::has_answered)
        };
        for rail in node.suspects.iter().filter(|rail| was_reached(rail.peer)) {
            let seconds = rail.for_ms as f64 / 1000.0;
            let text = format!(
                "{}: the rail from {} to {} is {} for {seconds:.1} s: messages avoid it",
                node.name, rail.local, rail.peer, rail.doubt
            );
            let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
            found.push(finding.fix(&node.name, "lnetctl debug suspicion"));
        }
    }
}
