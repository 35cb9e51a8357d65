//! What holds when all is over: credits are home, nothing is left in any hand, everybody is well, and
//! those who know each other agree.

use lnet::{HEALTH_MAX, PeerFlags};

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

    fn home(&self, host: &Host) -> Result<(), String> {
        let node = &host.node;
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
                if self.bounds.must_be_well && ni.health < HEALTH_MAX {
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

    /// What a node thinks of a peer that lives and is Multi-Rail is what that peer says.
    fn agrees(&self, view: &View<'_>, at: HostId, host: &Host) -> Result<(), String> {
        if !self.bounds.must_be_well || host.node.tunables().discovery == 0 {
            return Ok(());
        }
        for (_, peer) in host.node.peer_views(None, usize::MAX) {
            let owner = view.directory.find(peer.primary).map(|ix| view.directory.rail(ix));
            let Some(other) = owner.filter(|r| r.present).and_then(|r| view.host(r.host?)) else {
                continue;
            };
            if !peer.multi_rail || !other.alive {
                continue;
            }
            let mut believed: Vec<_> = peer.nis.iter().map(|n| n.nid).collect();
            let mut real: Vec<_> =
                other.rails.iter().map(|r| view.directory.rail(r.ix).nid).collect();
            believed.sort_unstable();
            real.sort_unstable();
            if believed != real && tells(view, other, at) {
                return Err(format!("takes {} for {believed:?}, it is {real:?}", peer.primary));
            }
            // The kernel does not ping whom it has never heard from, nor heal whom it is told of (H-42,
            // D-45): what was once lowered there may stay.
            let heals = !host.node.tunables().kernel_clocks();
            if let Some(ni) = peer.nis.iter().find(|n| heals && n.health < HEALTH_MAX) {
                return Err(format!("takes {} for ill: health {}", ni.nid, ni.health));
            }
        }
        Ok(())
    }
}

/// Whether `other` has told `host` of its interfaces, or should have. A kernel node tells whom it has
/// discovered (D-60): it forgets all peers on a network with its own last interface there, and does not
/// discover those whom it only answers afterwards. And if that fails, it tries again when it uses the
/// peer (D-51).
fn tells(view: &View<'_>, other: &Host, host: HostId) -> bool {
    let owner = |nid| view.directory.find(nid).and_then(|ix| view.directory.rail(ix).host);
    let failed = |state| PeerFlags::from_bits_truncate(state).contains(PeerFlags::REDISCOVER);
    let mut peers = other.node.peer_views(None, usize::MAX).into_iter();
    !other.node.tunables().kernel_clocks()
        || peers.any(|(_, peer)| {
            peer.multi_rail && !failed(peer.state) && owner(peer.primary) == Some(host)
        })
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
                self.home(host).map_err(tell)?;
            }
            self.agrees(view, HostId(n), host).map_err(tell)?;
        }
        Ok(())
    }
}
