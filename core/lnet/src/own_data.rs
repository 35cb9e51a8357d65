//! The node's own ping data: what peers read when they ping us and receive when we push
//! (behaviour.md 6.1), and the descriptors for both. When they are built anew is in `ping.rs`.

use std::sync::Arc;

use lnet_types::{Instant, MdId, Nid, Pid, ProcessId};
use lnet_wire::ping::{Features, PingEntry, PingInfo};

use crate::budget::Budget;
use crate::portal::md::{Md, MdBuf};
use crate::portal::owner::{Internal, Owner};
use crate::portal::{PING_BITS, PING_BYTES_MAX, PING_BYTES_MIN, Portals, RESERVED_PORTAL};
use crate::{MatchEntry, MdOptions, Position, Unlink};

/// Changes of links that are announced at once: with the third fall they count it as flapping ...
const ANNOUNCE_BURST: u32 = 6;
/// ... and of how many per second where there were more.
const ANNOUNCE_RATE: u32 = 1;

/// The ping data of this node, and what is posted for them.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct OwnData {
    seq: u32,
    bytes: Arc<[u8]>,
    ping_md: Option<MdId>,
    push_md: Option<MdId>,
    /// Room for the push of a peer.
    push_bytes: u32,
    /// Rate limit of link announcements.
    budget: Budget,
}

impl OwnData {
    /// No data yet; `seq` is the number before that of the first.
    pub(crate) fn new(seq: u32) -> Self {
        Self {
            seq,
            bytes: Arc::from([]),
            ping_md: None,
            push_md: None,
            push_bytes: PING_BYTES_MIN,
            budget: Budget::default(),
        }
    }

    /// Posts the buffers for pings and pushes (D-8). Once, at the start.
    pub(crate) fn post(&mut self, portals: &mut Portals) {
        let me = MatchEntry {
            from: ProcessId { nid: Nid::ANY, pid: Pid::ANY },
            match_bits: PING_BITS,
            ignore_bits: 0,
            unlink: Unlink::Retain,
            position: Position::After,
        };
        let target = Md::new(
            MdBuf::Bytes(Arc::from([])),
            None,
            MdOptions::OP_GET | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE,
            Owner::Internal(Internal::PingTarget),
            false,
        );
        let push = Md::new(
            MdBuf::Collect(self.push_bytes),
            None,
            MdOptions::OP_PUT | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE,
            Owner::Internal(Internal::PushTarget),
            false,
        );
        // Portal 0 is empty at this point, so neither can fail; without them no peer could ping us.
        self.ping_md = portals.attach_md(RESERVED_PORTAL, me, target).ok();
        self.push_md = portals.attach_md(RESERVED_PORTAL, me, push).ok();
    }

    /// Makes room for larger pushes (D-36, D-53).
    pub(crate) fn grow_push_buffer(&mut self, portals: &mut Portals, need: u32) {
        let need = need.min(PING_BYTES_MAX);
        if need > self.push_bytes {
            self.push_bytes = need;
            if let Some(md) = self.push_md.and_then(|md| portals.mds.get_mut(md)) {
                md.buf = MdBuf::Collect(need);
                md.len = u64::from(need);
            }
        }
    }

    /// The number of the data.
    pub(crate) const fn seq(&self) -> u32 {
        self.seq
    }

    /// What is built next has the next number (D-7).
    pub(crate) fn advance(&mut self) {
        self.seq = self.seq.wrapping_add(1);
    }

    /// The data as peers read them.
    pub(crate) const fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Builds the data from features and interfaces, under the present number.
    pub(crate) fn set(
        &mut self,
        portals: &mut Portals,
        features: Features,
        entries: Vec<PingEntry>,
    ) {
        let info = PingInfo { features, pid: Pid::LUSTRE, seq: self.seq, entries };
        let bytes: Arc<[u8]> = info.emit().into();
        if let Some(md) = self.ping_md.and_then(|md| portals.mds.get_mut(md)) {
            md.len = bytes.len() as u64;
            md.buf = MdBuf::Bytes(bytes.clone());
        }
        self.bytes = bytes;
    }

    /// Whether one more change of a link may be announced now.
    ///
    /// # Errors
    /// When the next one may be.
    pub(crate) fn announces(&mut self, now: Instant) -> Result<(), Instant> {
        self.budget.take(now, 1, ANNOUNCE_BURST, ANNOUNCE_RATE)
    }
}

#[cfg(test)]
impl OwnData {
    /// The descriptors that are posted for pings and for pushes.
    pub(crate) const fn mds(&self) -> [Option<MdId>; 2] {
        [self.ping_md, self.push_md]
    }

    /// For tests that begin with another number.
    pub(crate) fn set_seq(&mut self, seq: u32) {
        self.seq = seq;
    }
}
