//! The node: its tables and the three polls. (under construction)

use core::time::Duration;

use lnet_types::{Errno, Fault, Instant, MdId, MsgId, NiId, Nid, RxId};
use lnet_wire::Hdr;

use crate::{
    AttachError, Event, Get, Link, MatchEntry, MdSpec, Output, PeerMisbehaved, Put, Rx, SendError,
    UnlinkError, Verdict,
};

/// What a node is born with.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Seed of all its random choices.
    pub seed: u64,
    /// Identifies this incarnation in wire handles: wall-clock nanoseconds at start (O-11).
    pub interface_cookie: u64,
}

/// A new local interface.
#[derive(Clone, Debug)]
pub struct NiSpec {
    /// Its NID.
    pub nid: Nid,
    /// Name of the device that it stands on.
    pub interface: Option<String>,
    /// Seconds; shown, and enables aliveness on routers (V-11).
    pub peer_timeout: u32,
    /// Concurrent sends per peer NI.
    pub peer_credits: u32,
    /// Router buffers per peer; 0 follows the global default.
    pub peer_buffer_credits: u32,
    /// Concurrent sends of the interface.
    pub credits: u32,
    /// The driver's own time limit for one transmission, if it has one (H-30).
    pub lnd_timeout: Option<Duration>,
}

/// An LNet node as a value.
#[derive(Debug)]
pub struct Node {}

#[allow(unused_variables, missing_docs, clippy::needless_pass_by_ref_mut)]
impl Node {
    pub fn new(config: NodeConfig, now: Instant) -> Self {
        Self {}
    }
    pub fn add_ni(&mut self, now: Instant, spec: NiSpec) -> Result<NiId, Errno> {
        Err(Errno::EINVAL)
    }
    pub fn del_ni(&mut self, now: Instant, ni: NiId) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }
    pub fn link_changed(&mut self, now: Instant, ni: NiId, link: Link) {}
    pub fn attach(
        &mut self,
        now: Instant,
        portal: u32,
        me: MatchEntry,
        md: MdSpec,
    ) -> Result<MdId, AttachError> {
        Err(AttachError::NoOperation)
    }
    pub fn bind(&mut self, md: MdSpec) -> Result<MdId, AttachError> {
        Err(AttachError::NoOperation)
    }
    pub fn unlink(&mut self, now: Instant, md: MdId) -> Result<(), UnlinkError> {
        Err(UnlinkError)
    }
    pub fn set_lazy(&mut self, now: Instant, portal: u32, lazy: bool) -> Result<(), AttachError> {
        Ok(())
    }
    pub fn put(&mut self, now: Instant, put: Put) -> Result<(), SendError> {
        Err(SendError::BadMd)
    }
    pub fn get(&mut self, now: Instant, get: Get) -> Result<(), SendError> {
        Err(SendError::BadMd)
    }
    pub fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        Verdict::Close(PeerMisbehaved::WrongNid(hdr.dst))
    }
    /// `outcome`: the bytes of a `Sink::Bytes` (else an empty slice), or what went wrong.
    pub fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {}
    /// A deferred message can't be resumed any more: its connection is gone.
    pub fn rx_gone(&mut self, now: Instant, ni: NiId, rx: RxId) {}
    pub fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {}
    pub fn tx_refused(&mut self, now: Instant, msg: MsgId, fault: Fault) {}
    /// A driver has lost its last connection to a peer with an error (K-29, K-42, R-60).
    pub fn peer_down(&mut self, now: Instant, ni: NiId, nid: Nid, last_alive: Instant) {}
    pub fn handle_timeout(&mut self, now: Instant) {}
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
