//! The border above the driver: the half that `lnet::Node` implements, as a trait, so that the driver
//! is driven without a node by tests and models.

use lnet::{Doubt, Link, Node, Rx, Verdict};
use lnet_types::{Fault, Instant, MsgId, NiId, Nid, RxId};
use lnet_wire::Hdr;

/// The receiver of reports. Semantics are those of the methods of the same names of [`Node`].
pub trait Upper {
    /// A header has arrived: where does its payload go?
    fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict;
    /// The payload of an accepted message is in place, or will never be.
    fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>);
    /// A GET is here whose REPLY is to go in the exchange that brought it: instead of `rx_done`.
    fn rx_asked(&mut self, now: Instant, msg: MsgId);
    /// A deferred message is gone with its connection.
    fn rx_gone(&mut self, now: Instant, ni: NiId, rx: RxId);
    /// A message has ended, once for each that was accepted.
    fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>);
    /// The last connection to a peer has failed and none is being made (B-32).
    fn peer_down(&mut self, now: Instant, ni: NiId, nid: Nid, last_alive: Instant);
    /// The interface has become usable or unusable (B-40).
    fn link_changed(&mut self, now: Instant, ni: NiId, link: Link);
    /// The judgement of a rail has changed (DEC-31).
    fn rail_changed(&mut self, now: Instant, ni: NiId, nid: Nid, doubt: Doubt);
}

impl Upper for Node {
    fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        Self::rx_header(self, now, rx, hdr)
    }
    fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        Self::rx_done(self, now, msg, outcome);
    }
    fn rx_asked(&mut self, now: Instant, msg: MsgId) {
        Self::rx_asked(self, now, msg);
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
    fn link_changed(&mut self, now: Instant, ni: NiId, link: Link) {
        Self::link_changed(self, now, ni, link);
    }
    fn rail_changed(&mut self, now: Instant, ni: NiId, nid: Nid, doubt: Doubt) {
        Self::rail_changed(self, now, ni, nid, doubt);
    }
}
