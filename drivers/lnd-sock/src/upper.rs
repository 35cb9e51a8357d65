//! What the driver calls upwards: the half of the border that `lnet::Node` implements. It is a
//! trait so that the driver can be driven without a node, by tests and by programs that need only
//! messages.

use lnet::{Doubt, InDoubt, Node, Rx, Verdict};
use lnet_types::{Fault, Instant, MsgId, NiId, Nid, PeerNiId, RxId};
use lnet_wire::Hdr;

/// The receiver of facts. Semantics are those of the methods of the same names of [`Node`].
pub trait Upper {
    /// A message's header has arrived: where does its payload go?
    fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict;
    /// The name of a peer's interface, for [`Rx`], and whether it is still the one that is `known`.
    fn peer_ni(&self, known: Option<PeerNiId>, nid: Nid) -> Option<PeerNiId>;
    /// The payload of an accepted message is in place, or will never be.
    fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>);
    /// A deferred message can't be resumed: its connection is gone.
    fn rx_gone(&mut self, now: Instant, ni: NiId, rx: RxId);
    /// A message has been transmitted, or failed. Exactly once for each accepted `send`.
    fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>);
    /// The last connection to a peer is gone with an error and none is being made (K-29, K-42).
    fn peer_down(&mut self, now: Instant, ni: NiId, nid: Nid, last_alive: Instant);
    /// A connection to which something was written has ended, and not in order. What its peer's system
    /// has acknowledged may be lost as well: the process there need not have read it.
    fn written_lost(&mut self, now: Instant, ni: NiId, nid: Nid);
    /// Messages that were written, and may not have been delivered, are to be repeated.
    fn tx_in_doubt(&mut self, now: Instant, messages: Vec<InDoubt>);
    /// A rail is thought of differently (DEC-31). Only while suspicion is on.
    fn rail_changed(&mut self, now: Instant, ni: NiId, nid: Nid, doubt: Doubt);
}

impl Upper for Node {
    fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        Self::rx_header(self, now, rx, hdr)
    }
    fn peer_ni(&self, known: Option<PeerNiId>, nid: Nid) -> Option<PeerNiId> {
        Self::peer_ni(self, known, nid)
    }
    fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        Self::rx_done(self, now, msg, outcome);
    }
    fn rx_gone(&mut self, now: Instant, ni: NiId, rx: RxId) {
        Self::rx_gone(self, now, ni, rx);
    }
    fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        Self::tx_done(self, now, msg, outcome);
    }
    fn peer_down(&mut self, now: Instant, ni: NiId, nid: Nid, last_alive: Instant) {
        Self::peer_down(self, now, ni, nid, last_alive);
    }
    fn written_lost(&mut self, now: Instant, ni: NiId, nid: Nid) {
        Self::written_lost(self, now, ni, nid);
    }
    fn tx_in_doubt(&mut self, now: Instant, messages: Vec<InDoubt>) {
        Self::tx_in_doubt(self, now, messages);
    }
    fn rail_changed(&mut self, now: Instant, ni: NiId, nid: Nid, doubt: Doubt) {
        Self::rail_changed(self, now, ni, nid, doubt);
    }
}
