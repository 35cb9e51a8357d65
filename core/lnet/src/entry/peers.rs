//! What an administrator orders and asks about peers, and what drivers report of them. Pings and
//! discoveries get a number each; their reports are polled ([`Node::poll_report`]).

use core::time::Duration;

use lnet_types::{Errno, Instant, NiId, Nid, PeerNiId, ProcessId};

use crate::Node;
use crate::api::OpId;
use crate::internal::PingTo;
use crate::peer::Facts;
use crate::peer::cause::Cause;
use crate::peer::eviction::Purpose;
use crate::port::PortId;
use crate::portal::owner::Internal;
use crate::record::Input;
use crate::timers::Timer;

/// Time-outs beyond this, and none at all, mean this (D-82).
const USER_PING_TIMEOUT_MAX: Duration = Duration::from_secs(180);

/// The largest answer that a user's ping takes, bytes (D-81).
const USER_PING_BYTES: u32 = 3960;

impl Node {
    /// `peer add`: creates the peer `primary` if need be and gives it `nids` (O-32 … O-35).
    ///
    /// # Errors
    /// As the table C-peer-4. Nothing of this call stays if one NID is refused.
    pub fn peer_add(
        &mut self,
        now: Instant,
        primary: Nid,
        nids: &[Nid],
        multi_rail: bool,
        lock_primary: bool,
    ) -> Result<(), Errno> {
        self.note(|| Input::PeerAdd {
            now,
            primary,
            nids: nids.to_vec(),
            multi_rail,
            lock_primary,
        });
        let now = self.clock(now);
        if primary.is_any() || primary.is_loopback() {
            return Err(Errno::EINVAL);
        }
        let peer = self.peers.owner(primary).and_then(|id| self.peers.peers.get(id));
        let existed =
            peer.is_some_and(|p| p.facts.contains(Facts::CONFIGURED) && p.primary == primary);
        // With NIDs, an existing configured peer is taken as it is (O-34).
        if !existed || nids.is_empty() {
            self.create_configured(now, primary, multi_rail, lock_primary)?;
        }
        let mut added = Vec::new();
        let outcome = nids.iter().filter(|n| **n != primary).try_for_each(|&nid| {
            let mine = self.peers.owner(nid) == self.peers.owner(primary);
            self.add_configured(now, primary, nid, multi_rail)?;
            if !mine {
                added.push(nid);
            }
            Ok(())
        });
        if outcome.is_err()
            && let Some(id) = self.peers.owner(primary)
        {
            if existed {
                for nid in added {
                    // It was added a moment ago, so it can be removed.
                    let _ = self.del_nid(now, id, nid, true);
                }
            } else {
                self.delete_peer(now, id);
            }
        }
        self.settle(now);
        outcome
    }

    /// `peer del`: the whole peer, or some of its NIDs (O-37).
    ///
    /// # Errors
    /// As the table C-peer-4.
    pub fn peer_del(
        &mut self,
        now: Instant,
        primary: Nid,
        nids: &[Nid],
        force: bool,
    ) -> Result<(), Errno> {
        self.note(|| Input::PeerDel { now, primary, nids: nids.to_vec(), force });
        let now = self.clock(now);
        if primary.is_any() {
            return Err(Errno::EINVAL);
        }
        let id = self.peers.owner(primary).ok_or(Errno::ENOENT)?;
        let peer = self.peers.peers.get(id).ok_or(Errno::ENOENT)?;
        if peer.primary != primary {
            return Err(Errno::ENODEV);
        }
        if peer.gateway.is_router() {
            return Err(Errno::EBUSY);
        }
        let locked = peer.facts.contains(Facts::LOCK_PRIMARY);
        let outcome = if nids.is_empty() || nids.contains(&primary) {
            if locked && !force {
                self.reset_peer(now, id);
            } else {
                self.delete_peer(now, id);
            }
            Ok(())
        } else {
            nids.iter().try_for_each(|&nid| self.del_nid(now, id, nid, true))
        };
        self.settle(now);
        outcome
    }

    /// Asks a node for its interfaces (D-81). `timeout` zero or above 180 s means 180 s (D-82).
    pub fn ping(
        &mut self,
        now: Instant,
        target: ProcessId,
        src: Option<Nid>,
        timeout: Duration,
    ) -> OpId {
        self.note(|| Input::Ping { now, target, src, timeout });
        let now = self.clock(now);
        // A ping discovers no peer, but uses what discovery has found.
        let known = self.peers.owner(target.nid).filter(|id| self.is_up_to_date(*id));
        if let Some(id) = known {
            self.query(now, id, Cause::Refresh);
        }
        let op = self.ops.number();
        let timeout = match timeout {
            Duration::ZERO => USER_PING_TIMEOUT_MAX,
            t => t.min(USER_PING_TIMEOUT_MAX),
        };
        let to = PingTo { target, src, direct: false };
        // H-60, H-61: its response is tracked as any other.
        let limits = timeout.min(self.tunables.transaction()).into();
        let sent = self.internal_ping(now, to, Internal::UserPing(op), USER_PING_BYTES, limits);
        self.ops.open(op, target.nid, sent.ok());
        self.timers.set(Timer::Op(op), now + timeout);
        if let Err(errno) = sent {
            self.report(op, Err(errno));
        }
        self.settle(now);
        op
    }

    /// Discovers a peer, or again if it is known (D-80).
    pub fn discover(&mut self, now: Instant, nid: Nid, force: bool) -> OpId {
        self.note(|| Input::Discover { now, nid, force });
        let now = self.clock(now);
        let op = self.ops.number();
        self.ops.open(op, nid, None);
        match self.peer_ni_or_new(None, nid, None, Purpose::Ordered) {
            _ if !self.running => self.report(op, Err(Errno::ESHUTDOWN)),
            Err(errno) => self.report(op, Err(errno)),
            Ok(ni) => {
                let id = self.peers.nis.get(ni).map(|n| n.peer);
                if let Some(id) = id
                    && let Some(peer) = self.peers.peers.get_mut(id)
                {
                    peer.disc.waiters.push(op);
                    self.query(now, id, Cause::User { force });
                }
            }
        }
        self.settle(now);
        op
    }

    /// Sets the health of peers' interfaces, one or all (H-81).
    pub fn set_peer_ni_health(&mut self, now: Instant, nid: Option<Nid>, health: u32) {
        self.note(|| Input::SetPeerNiHealth { now, nid, health });
        let ids: Vec<PeerNiId> = match nid {
            Some(nid) => self.peers.find(nid).into_iter().collect(),
            None => self.peers.nis.keys().collect(),
        };
        let now = self.set_healths(now, ids.into_iter().map(PortId::Peer), health);
        self.settle(now);
    }

    /// The administrator, or something that watches the fabric, says that a NID was seen up or
    /// down at `when` (R-13, PA-092).
    ///
    /// # Errors
    /// `EINVAL`: `when` is in the future. `ESHUTDOWN`.
    pub fn notify(&mut self, now: Instant, nid: Nid, up: bool, when: Instant) -> Result<(), Errno> {
        self.note(|| Input::Notify { now, nid, up, when });
        let now = self.clock(now);
        if when > now {
            return Err(Errno::EINVAL);
        }
        if !self.running {
            return Err(Errno::ESHUTDOWN);
        }
        self.notified(now, None, nid, up, when);
        self.settle(now);
        Ok(())
    }

    /// A driver has lost its last connection to a peer with an error (K-29, K-42, R-60). A gateway
    /// is left at once; a router stops forwarding there; elsewhere health is already charged by the
    /// messages that failed.
    pub fn peer_down(&mut self, now: Instant, ni: NiId, nid: Nid, last_alive: Instant) {
        self.note(|| Input::PeerDown { now, ni, nid, last_alive });
        let now = self.clock(now);
        let net = self.nis.get(ni).map(|ni| ni.nid.net());
        if self.tunables.auto_down == 0 || net != Some(nid.net()) {
            return;
        }
        tracing::debug!(%nid, ?ni, %last_alive, "driver lost its last connection");
        self.notified(now, Some(ni), nid, false, last_alive);
        self.settle(now);
    }
}
