//! What holds when all is over: credits are home, nothing is left in any hand, all are healthy, and
//! those who know each other agree.

use lnet::HEALTH_MAX;
use lnet_scenario::{Fault, FaultKind, NodeId};
use lnet_types::Instant;

use super::Bounds;
use crate::directory::HostId;
use crate::host::Host;
use crate::observe::{Observer, Seen, View};

/// See the module's head.
pub(super) struct AllHome {
    bounds: Bounds,
}

impl AllHome {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds }
    }

    fn home(&self, view: &View<'_>, host: &Host) -> Result<(), String> {
        let node = &host.node;
        let must_be_well = self.bounds.must_be_well && !tries_in_vain(view, host);
        let stats = node.stats();
        // Pings of recovery and of routes go on for ever, one at a time.
        let own = host.rails.len() as u32 * 2 + node.ailing().count() as u32 + 64;
        if stats.msgs_alloc > own {
            return Err(format!("{} messages are still in hand", stats.msgs_alloc));
        }
        for net in node.net_views().iter().skip(1) {
            for ni in &net.nis {
                if ni.credits < net.tunables.credits as i32 - own as i32 {
                    let max = net.tunables.credits;
                    return Err(format!("{} has {} of {max} credits", ni.nid, ni.credits));
                }
                if must_be_well && ni.health < HEALTH_MAX {
                    return Err(format!("{} has health {}", ni.nid, ni.health));
                }
            }
        }
        let routing = node.routing_view();
        for pool in routing.pools {
            if pool.credits < pool.nbuffers as i32 - own as i32 {
                let (free, of) = (pool.credits, pool.nbuffers);
                return Err(format!("{free} of {of} router buffers ({:?}) are free", pool.kind));
            }
        }
        for (_, peer) in node.peer_views(None, usize::MAX) {
            for ni in &peer.nis {
                if ni.credits_max > 0 && ni.credits < 0 {
                    return Err(format!("{} messages wait for peer {}", -ni.credits, ni.nid));
                }
            }
        }
        Ok(())
    }

    /// A node's record of a live Multi-Rail peer agrees with that peer.
    fn agrees(&self, view: &View<'_>, host: &Host) -> Result<(), String> {
        if !self.bounds.must_be_well || host.node.tunables().discovery == 0 {
            return Ok(());
        }
        for (_, peer) in host.node.peer_views(None, usize::MAX) {
            let owner = view.directory.find(peer.primary).map(|ix| view.directory.rail(ix));
            let Some(owner) = owner.filter(|r| r.present).and_then(|r| r.host) else { continue };
            let Some(other) = view.host(owner) else { continue };
            if !peer.multi_rail || !other.alive {
                continue;
            }
            let mut believed: Vec<_> = peer.nis.iter().map(|n| n.nid).collect();
            let mut real: Vec<_> =
                other.rails.iter().map(|r| view.directory.rail(r.ix).nid).collect();
            believed.sort_unstable();
            real.sort_unstable();
            if !learns(view, host, owner) {
                continue;
            }
            if believed != real {
                return Err(format!("takes {} for {believed:?}, it is {real:?}", peer.primary));
            }
            // Without pings to interfaces that were never heard, without belief in what is reported
            // of them (H-42, D-45), and without a report that all is over (H-92), health that was
            // once lowered there may stay so.
            let conduct = host.node.tunables().conduct;
            let heals = conduct.recovers_unheard
                && conduct.believes_reported_health
                && other.node.tunables().conduct.announces_recovery;
            if let Some(ni) = peer.nis.iter().find(|n| heals && n.health < HEALTH_MAX) {
                return Err(format!("records {} as degraded: health {}", ni.nid, ni.health));
            }
        }
        Ok(())
    }
}

/// Whether a node may go on trying what is gone, so that its own interface is charged now and then: with
/// pings, because it has no report of it ([`learns`]), where each of them costs that as well (H-10); with
/// answers, until their time and that of their last attempt are over.
fn tries_in_vain(view: &View<'_>, host: &Host) -> bool {
    let goes = |f: &&Fault| matches!(f.kind, FaultKind::NiAdd { .. } | FaultKind::NiDel(_));
    let t = host.node.tunables();
    let answers = t.transaction() + t.lnd_timeout();
    let ended = |f: &Fault| Instant::ZERO + f.until.unwrap_or(f.at);
    let in_vain = |f| t.conduct.charges_bystanders || view.now < ended(f) + answers;
    view.scenario.faults.iter().filter(goes).any(in_vain)
}

/// Whether `host` has discovered what `other` has, however that came and went. Without sessions
/// (docs/duplicates.md) no peer notices a node that has died and come back other than it was, or
/// has lost its last interface on a network and with it its peers there, unless one of them has
/// something to ask of the other.
fn learns(view: &View<'_>, host: &Host, other: HostId) -> bool {
    let has_sessions = host.node.tunables().suppress_duplicates != 0;
    let faults = &view.scenario.faults;
    let node = NodeId(other.0);
    let forgets = |f: &Fault| match &f.kind {
        FaultKind::Kill { nodes: p, .. } | FaultKind::NiDel(p) => p.nodes().contains(&node),
        _ => false,
    };
    !is_mistaken(view, other) && (has_sessions || faults.len() < 2 || !faults.iter().any(forgets))
}

/// Whether others may be mistaken about what `node` has. Without retries it announces a change once
/// (D-51, D-60); others may accept older data after newer ones (D-53), or another node's claim (O-35).
/// So a change amid faults may stay unknown, or be undone, and what is sent to what is gone fails.
pub(crate) fn is_mistaken(view: &View<'_>, node: HostId) -> bool {
    let conduct = |h: &Host| h.node.tunables().conduct;
    let announces_once = view.host(node).is_some_and(|h| !conduct(h).retries_discovery);
    let is_credulous = |h: &Host| !conduct(h).rejects_stale_data || conduct(h).believes_last_claim;
    let may_err = announces_once || view.hosts.iter().any(is_credulous);
    let node = NodeId(node.0);
    let faults = &view.scenario.faults;
    let changes = |f: &Fault| match &f.kind {
        FaultKind::NiAdd { nodes: p, .. } | FaultKind::NiDel(p) => p.nodes().contains(&node),
        _ => false,
    };
    may_err && faults.len() > 1 && faults.iter().any(changes)
}

impl Observer for AllHome {
    fn name(&self) -> &'static str {
        "all-home"
    }

    fn see(&mut self, _seen: &Seen<'_>, _view: &View<'_>) -> Result<(), String> {
        Ok(())
    }

    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        for (n, host) in (0u32..).zip(view.hosts).filter(|(_, h)| h.alive) {
            let tell = |what| format!("{}: {what}", view.name(HostId(n)));
            if self.bounds.must_be_home {
                self.home(view, host).map_err(tell)?;
            }
            self.agrees(view, host).map_err(tell)?;
        }
        Ok(())
    }
}
