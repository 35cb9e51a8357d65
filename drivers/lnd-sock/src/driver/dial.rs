//! Making connections: one attempt per peer at a time, in the order of types (K-13, K-20), and what
//! happens when an attempt ends.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use lnet::Link;
use lnet_types::{Errno, Instant, NiId};
use lnet_wire::acceptor::Request;

use super::SockDriver;
use super::conn::{Conn, Dialed, Phase};
use crate::error::{UNSENT, WAITED, Why, connect_fault};
use crate::peer::{Attempt, ConnKey, PeerKey};
use crate::proto::conn::{Cut, Inbox, Outbox, can_name, opening};
use crate::proto::hello::Own;
use crate::proto::kinds::{Counts, Kind};
use crate::proto::watch::Seen;
use crate::streams::{Origin, Stop, Streams};
use crate::upper::Upper;

/// Delays after a failed attempt while suspicion is on (DEC-31): a rail that is back is found
/// within half a second, and a silent peer, which costs nothing, within the shortest. Never longer
/// than the configured ones.
const SOON: Duration = Duration::from_millis(100);
const SOON_MAX: Duration = Duration::from_millis(500);

impl<S: Streams> SockDriver<S> {
    /// Sees to it that missing connections to a peer of ours are made. Tells whether one is being
    /// made or will be.
    pub(super) fn want_connections(&mut self, now: Instant, key: PeerKey) -> bool {
        let Some(peer) = self.peers.get(key) else { return false };
        if !peer.active || self.missing(key).is_none() {
            return false;
        }
        let timeout = self.connect_timeout(peer.ni);
        let Some(peer) = self.peers.get_mut(key) else { return false };
        let was_resting = peer.dialer.is_resting();
        let wanted = if self.suspicion.is_some() {
            peer.dialer.want_in_time(now, timeout)
        } else {
            peer.dialer.want(now, timeout)
        };
        if wanted && was_resting {
            self.dials.push(key);
        }
        wanted
    }

    /// Begins an attempt anew that has had no answer at all (DEC-31). The network tries again too,
    /// but after a second, then two, then four: too long for a rail that comes back in between.
    pub(super) fn redial<U: Upper + ?Sized>(&mut self, now: Instant, key: PeerKey, up: &mut U) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let (attempt, patience) = (peer.dialer.trying(), peer.dialer.patience(peer.rtt));
        let Some(conn) = attempt.and_then(|attempt| self.conns.get(attempt)) else { return };
        let Phase::Connecting(dialed) = conn.phase else { return };
        if now.saturating_since(dialed.begun) < patience {
            return;
        }
        peer.dialer.again(now);
        if let Some(attempt) = attempt {
            self.close_conn(now, attempt, Why::Orderly, false, up);
        }
        self.stats.dial_unanswered += 1;
        self.dials.push(key);
    }

    /// A link is back: connection attempts begin anew at once, whatever became of the last ones.
    pub fn link_changed<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        ni: NiId,
        link: Link,
        up: &mut U,
    ) {
        if link == Link::Down || self.suspicion.is_none() {
            return;
        }
        let peers: Vec<PeerKey> =
            self.peers.iter().filter(|(_, peer)| peer.ni == ni).map(|(key, _)| key).collect();
        for key in peers {
            self.hasten(now, key, up);
        }
    }

    /// There is reason to believe that a peer can be connected to.
    fn hasten<U: Upper + ?Sized>(&mut self, now: Instant, key: PeerKey, up: &mut U) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let attempt = peer.dialer.trying();
        let unanswered = attempt.filter(|conn| {
            self.conns.get(*conn).is_some_and(|c| matches!(c.phase, Phase::Connecting(_)))
        });
        if let Some(attempt) = unanswered {
            peer.dialer.again(now);
            self.close_conn(now, attempt, Why::Orderly, false, up);
        }
        if self.peers.get_mut(key).is_some_and(|peer| peer.dialer.hasten(now)) {
            self.dials.push(key);
        }
    }

    /// A peer has reached us and was refused, because an attempt of ours is under way and has the
    /// preference. One that has waited in vain was lost on the way, which is open now.
    pub(super) fn reached_us<U: Upper + ?Sized>(&mut self, now: Instant, key: PeerKey, up: &mut U) {
        let Some(limits) = self.suspicion else { return };
        let attempt = self.peers.get(key).and_then(|peer| peer.dialer.trying());
        let begun = attempt.and_then(|conn| match &self.conns.get(conn)?.phase {
            Phase::Connecting(dialed) => Some(dialed.begun),
            _ => None,
        });
        if begun.is_some_and(|begun| now.saturating_since(begun) > limits.limit(Duration::ZERO)) {
            self.hasten(now, key, up);
        }
    }

    /// A peer opens a connection of a kind of which it has as many as it may. The peer has lost
    /// those on which no byte gets through: they are closed and reported. The others are probed.
    pub(super) fn drop_dead<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        kind: Kind,
        up: &mut U,
    ) -> bool {
        let Some(limits) = self.suspicion else { return false };
        let conns = self.peers.get(key).map(|peer| peer.conns.clone()).unwrap_or_default();
        let mut dropped = false;
        for conn in conns {
            if self.conns.get(conn).and_then(Conn::up).is_none_or(|state| state.kind != kind) {
                continue;
            }
            if self.look_at_conn(now, limits, conn) == Some(Seen::Silent) {
                dropped = true;
                self.part_conn(now, conn, Why::Orderly, true, up);
            } else {
                self.ask(now, conn);
            }
        }
        dropped
    }

    /// The connection that is to be made next.
    fn missing(&self, key: PeerKey) -> Option<Kind> {
        let peer = self.peers.get(key)?;
        self.counts(key).wanted(peer.conns_per_peer)
    }

    fn counts(&self, key: PeerKey) -> Counts {
        let mut counts = Counts::default();
        for conn in self.peers.get(key).into_iter().flat_map(|peer| &peer.conns) {
            if let Some(up) = self.conns.get(*conn).and_then(Conn::up) {
                counts.add(up.kind);
            }
        }
        counts
    }

    /// Begins the attempt that is due, if one is.
    pub(super) fn dial<U: Upper + ?Sized>(&mut self, now: Instant, key: PeerKey, up: &mut U) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        match peer.dialer.due() {
            Some(at) if at <= now => {}
            Some(at) => return self.arm(key, at),
            None => return,
        }
        let Some(kind) = self.missing(key) else {
            if let Some(peer) = self.peers.get_mut(key) {
                peer.dialer.rest();
            }
            return;
        };
        match self.open(now, key, kind) {
            Ok(conn) => {
                self.stats.dialed += 1;
                self.watch(now, key);
                let Some(peer) = self.peers.get_mut(key) else { return };
                peer.dialer.begun(conn);
                if let Some(until) = peer.dialer.until() {
                    self.arm(key, until);
                }
                // On this host a connection may be complete at once.
                self.connect_ended(now, conn, up);
            }
            Err(errno) => self.attempt_failed(now, key, errno, up),
        }
    }

    /// Opens a stream to `key`.
    fn open(&mut self, now: Instant, key: PeerKey, kind: Kind) -> Result<ConnKey, Errno> {
        let peer = self.peers.get(key).ok_or(Errno::ESHUTDOWN)?;
        let ni = self.nis.get(peer.ni).ok_or(Errno::ENETDOWN)?;
        if ni.blocked {
            return Err(Errno::ENETUNREACH);
        }
        let learned = peer.session.map(|(version, _)| version).or(peer.taught);
        let mut version = learned.unwrap_or_else(|| self.config.first_version(&peer.addr));
        if learned.is_none() && !can_name(version, &[ni.nid, peer.id.nid]) {
            version = lnet_wire::sock::Version::V4;
        }
        let request = Request::to(peer.id.nid);
        let own = Own { nid: ni.nid, incarnation: ni.incarnation };
        let bytes = opening(&request, &own.opening(version, peer.id.nid, kind))
            .map_err(|_| Errno::EPROTO)?;
        let port = if kind == Kind::Control { self.config.port } else { self.config.bulk_port };
        let remote = SocketAddr::new(peer.addr, port);
        // An interface with an address of the other family reaches the peer from any of that host's.
        let addr = match (ni.addr, peer.addr) {
            (IpAddr::V4(_), IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (same, _) => same,
        };
        let from = |privileged| Origin {
            addr,
            interface: ni.interface.as_deref(),
            privileged,
            namespace: ni.namespace,
            device: ni.kept.device_for(peer.addr),
        };
        let privileged = self.config.is_privileged() && !self.unprivileged;
        let stream = match self.streams.connect(from(privileged), remote, &ni.options) {
            Err(Errno::EACCES | Errno::EPERM) if privileged => {
                self.unprivileged = true;
                tracing::warn!(
                    "privileged source ports (512 to 1023) are not permitted to this process: \
                     connecting from others. Kernel nodes in accept mode `secure` refuse them; run \
                     with CAP_NET_BIND_SERVICE, or use accept mode `all` there"
                );
                self.streams.connect(from(false), remote, &ni.options)?
            }
            other => other?,
        };
        let conn = Conn {
            stream,
            ni: peer.ni,
            local: SocketAddr::new(ni.addr, 0),
            remote,
            came: false,
            phase: Phase::Connecting(Dialed { peer: key, kind, version, begun: now }),
            outbox: Outbox::new(bytes),
            timer: Instant::FAR_FUTURE,
            in_dirty: false,
            in_backlog: false,
            in_verify: false,
        };
        tracing::debug!(peer = %peer.id, %kind, %version, "connecting");
        Ok(self.add_conn(conn))
    }

    /// A TCP connection attempt may have ended.
    pub(super) fn connect_ended<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        up: &mut U,
    ) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Phase::Connecting(dialed) = conn.phase else { return };
        match self.streams.connected(conn.stream) {
            Ok(local) => {
                conn.local = local;
                conn.phase = Phase::AwaitHello { dialed, inbox: Inbox::default(), want: 4 };
                self.write_outbox(now, key, up);
                self.look_again(key);
            }
            Err(Stop::WouldBlock) => {}
            Err(Stop::Failed(errno)) => self.handshake_cut(now, key, Cut::Error(errno), up),
        }
    }

    /// An attempt ended without a connection, and without blame. `errno` is the error of the
    /// waiting messages if there is no other.
    pub(super) fn dial_over<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        how: Attempt,
        errno: Errno,
        up: &mut U,
    ) {
        let Some(conn) = self.conns.get(key) else { return };
        let peer_key = match &conn.phase {
            Phase::Connecting(dialed) | Phase::AwaitHello { dialed, .. } => dialed.peer,
            _ => return,
        };
        self.close_conn(now, key, Why::Orderly, false, up);
        self.attempt_over(now, peer_key, how, errno, up);
    }

    /// An attempt failed.
    pub(super) fn dial_failed<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: ConnKey,
        errno: Errno,
        up: &mut U,
    ) {
        self.dial_over(now, key, Attempt::Failed, errno, up);
    }

    fn attempt_failed<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        errno: Errno,
        up: &mut U,
    ) {
        self.attempt_over(now, key, Attempt::Failed, errno, up);
    }

    fn attempt_over<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        key: PeerKey,
        how: Attempt,
        errno: Errno,
        up: &mut U,
    ) {
        let complete = self.counts(key).complete();
        let missing = self.missing(key).is_some();
        let Some(peer) = self.peers.get_mut(key) else { return };
        let was_waiting =
            how == Attempt::Patient || peer.dialer.until().is_some_and(|until| until <= now);
        let (mut min, mut max) = (self.config.min_reconnect, self.config.max_reconnect);
        if self.suspicion.is_some() {
            let most = if was_waiting { SOON } else { SOON_MAX };
            (min, max) = (min.min(SOON), max.min(most));
        }
        if !missing {
            // The peer has connected to us meanwhile.
            peer.dialer.rest();
            return;
        }
        if !peer.dialer.ended(now, how, complete, min, max) {
            match peer.dialer.due() {
                Some(at) if at <= now => self.dials.push(key),
                Some(at) => self.arm(key, at),
                None => {}
            }
            return;
        }
        self.stats.dial_failures += 1;
        let errno = if was_waiting { Errno::ETIMEDOUT } else { errno };
        let (ni, id, last_alive) = (peer.ni, peer.id, peer.last_alive);
        let connected = !peer.conns.is_empty();
        let retry_at = peer.dialer.not_before;
        if !connected {
            peer.taught = None;
        }
        tracing::debug!(peer = %id, %errno, "connection attempt failed");
        let fault = match connect_fault(errno) {
            WAITED if self.suspicion.is_some() => UNSENT,
            fault => fault,
        };
        if !connected {
            self.doubt_unreached(now, key, up);
        }
        if was_waiting && self.suspicion.is_some() {
            // The attempts have had their time, which may not be all that each message has.
            self.expire_waiting(now, key, up);
            if self.peers.get(key).is_some_and(|peer| !peer.waiting.is_empty()) {
                self.want_connections(now, key);
            }
        } else {
            self.fail_waiting(now, key, fault, up);
        }
        if !connected {
            up.peer_down(now, ni, id.nid, last_alive);
            // It is forgotten if no message needs it until then.
            self.arm(key, retry_at);
        }
    }
}
