//! Operations of the node's own: pings, pushes, recovery. They use descriptors and messages like
//! all operations; only their events come back inside.

use core::time::Duration;

use lnet_types::{Errno, Instant, MdId, Nid, PeerNiId, ProcessId};

use crate::outbox::Work;
use crate::port::PortId;
use crate::portal::md::{Md, MdBuf};
use crate::portal::owner::{Internal, Owner};
use crate::portal::{PING_BITS, PING_BYTES_MAX, PING_BYTES_MIN, RESERVED_PORTAL};
use crate::send::{Operation, Verb};
use crate::{MdOptions, Node, Timeouts};

/// Where one of the node's own pings goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PingTo {
    pub(crate) target: ProcessId,
    /// The NID that it leaves from, if that matters.
    pub(crate) src: Option<Nid>,
    /// To just this NID, whichever interfaces of its node are better.
    pub(crate) direct: bool,
}

impl From<Nid> for PingTo {
    fn from(nid: Nid) -> Self {
        Self { target: ProcessId::lustre(nid), src: None, direct: false }
    }
}

impl Node {
    /// The limits of the node's own pings and pushes (DEC-46).
    pub(crate) fn own_limits(&self) -> Timeouts {
        match self.tunables.ping_timeout {
            0 => Timeouts::default(),
            secs => Duration::from_secs(secs as u64).into(),
        }
    }

    /// Pings a node for `what`, with room for `bytes` of its answer. What comes of it are events of the
    /// descriptor that is returned.
    ///
    /// # Errors
    /// As [`Node::get`]: nothing was sent.
    pub(crate) fn internal_ping(
        &mut self,
        now: Instant,
        to: PingTo,
        what: Internal,
        bytes: u32,
        limits: Timeouts,
    ) -> Result<MdId, Errno> {
        // A user's ping has a timer of its own (D-82).
        let is_tracked = !matches!(what, Internal::UserPing(_));
        let mut options = MdOptions::TRUNCATE;
        options.set(MdOptions::TRACK_RESPONSE, is_tracked);
        let buf = MdBuf::Collect(bytes.clamp(PING_BYTES_MIN, PING_BYTES_MAX));
        let md = Md::new(buf, Some(2), options, Owner::Internal(what), true);
        let md = self.portals.mds.insert(md);
        let op = Operation {
            md,
            src: to.src,
            target: to.target,
            portal: RESERVED_PORTAL,
            match_bits: PING_BITS,
            limits,
            recovery: to.direct,
            verb: Verb::Get { offset: 0 },
        };
        match self.operate(now, op) {
            Ok(id) => {
                self.outbox.plan(Work::Depart(id));
                Ok(md)
            }
            Err(e) => {
                self.portals.mds.remove(md);
                Err(e.errno())
            }
        }
    }

    /// Whether this is a request of the node itself to a peer that was already in doubt: a missing
    /// answer is then no evidence against the interfaces on the way. Kernel nodes charge these too
    /// (H-10, H-66).
    pub(crate) fn was_in_doubt(&self, owner: Owner) -> bool {
        let Owner::Internal(what) = owner else { return false };
        !self.tunables.conduct.charges_bystanders
            && match what {
                Internal::Recover(PortId::Peer(_)) | Internal::Ask { .. } => true,
                Internal::DiscoveryPing(id) | Internal::Push(id) => {
                    self.peers.peers.get(id).is_some_and(|p| p.disc.error.is_some())
                }
                Internal::PingTarget
                | Internal::PushTarget
                | Internal::Recover(PortId::Local(_))
                | Internal::UserPing(_) => false,
            }
    }

    /// The same where the answer was to come by `hop`, if that is a gateway. It has its own checks.
    pub(crate) fn is_no_news_of(&self, hop: PeerNiId, owner: Owner) -> bool {
        let asked = match owner {
            Owner::Internal(Internal::Recover(PortId::Peer(id))) => {
                self.peers.nis.get(id).map(|n| n.peer)
            }
            Owner::Internal(Internal::Ask { nid, .. }) => self.peers.owner(nid),
            Owner::Internal(Internal::DiscoveryPing(id) | Internal::Push(id)) => Some(id),
            Owner::Internal(_) | Owner::User(_) | Owner::Quiet(_) | Owner::Silent => return false,
        };
        self.was_in_doubt(owner) && self.peers.nis.get(hop).map(|n| n.peer) != asked
    }
}
