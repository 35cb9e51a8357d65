//! The border below: what a network driver (LND) is to the node, and the node to it.
//!
//! A driver moves bytes and reports facts; it never chooses a path, repeats a message or judges
//! health. The node never sees a socket. They meet in one call each way per stage of a message:
//!
//! ```text
//!  out   Output::Send ─► Driver::send … written … ─► Node::tx_done
//!  in    header read ─► Node::rx_header ─► Verdict ─► payload into place ─► Node::rx_done
//! ```
//!
//! A driver whose protocol writes the data of a GET into the memory that the request names
//! ([`Transmit::sink`]) says [`Node::rx_asked`] of such a GET, and may be asked to end an exchange
//! ([`Driver::withdraw`]).
//!
//! A driver also reports its judgement of rails ([`Node::rail_changed`]) and where it may have lost
//! what it had written ([`Node::written_lost`]), gives back what it has not begun to send
//! ([`Driver::recall`]), and what its transport may not deliver ([`Node::tx_in_doubt`]); what
//! follows from that is the node's business.
//!
//! Next: `output.rs` for what leaves the node, `recv.rs` and `send/` for what it does inside.

use lnet_types::{Fault, Instant, Memory, MsgId, NiId, ProcessId, RxId};

use crate::below::{InDoubt, Link};
use crate::{Node, Transmit, Verdict};

/// One source of readiness, as registered with the shell's poller by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token under which the driver registered it.
    pub token: usize,
    /// There may be bytes to read, a connection to accept, or an error to collect.
    pub readable: bool,
    /// There may be room to write, or a connection attempt has ended.
    pub writable: bool,
}

/// A network driver under a node. One driver may serve several NIs.
///
/// All calls happen on the node's thread. A driver keeps queues per connection, but a message that
/// it has been given always comes back exactly once, by [`Node::tx_done`], whatever happens.
pub trait Driver {
    /// Does the I/O that is ready and reports what came of it to `node`.
    ///
    /// With `spin` the caller polls without sleeping: the driver also polls recently busy sockets
    /// that no readiness event has named, and need not arm what would wake the caller. One turn
    /// without `spin` comes before the caller sleeps.
    fn turn(
        &mut self,
        now: Instant,
        ready: &[Ready],
        spin: bool,
        node: &mut Node,
        mem: &mut dyn Memory,
    );

    /// Takes a message to transmit. Bytes may go out now or at the next [`Driver::flush`].
    ///
    /// # Errors
    /// The driver refuses the message at once (S-4): it will not report it again, and the caller
    /// passes the fault to [`Node::tx_refused`].
    fn send(&mut self, now: Instant, transmit: &Transmit, mem: &dyn Memory) -> Result<(), Fault>;

    /// Gives back a message of [`Driver::send`] of which not one byte has been handed to the
    /// transport: true, and it is not reported again. False where bytes of it may be on their way,
    /// or where it has ended: nothing changes then. A driver that hands over at once has nothing to
    /// give back.
    fn recall(&mut self, _ni: NiId, _to: ProcessId, _msg: MsgId) -> bool {
        false
    }

    /// Gives back what it retains for one peer, or for all peers of `ni`, oldest first, and retains it
    /// no more: the caller passes it to [`Node::tx_in_doubt`]. A driver whose transport reports
    /// delivery retains nothing.
    fn reclaim(&mut self, _ni: NiId, _to: Option<ProcessId>) -> Vec<InDoubt> {
        Vec::new()
    }

    /// Carries out the verdict on a message that was deferred.
    fn resume(
        &mut self,
        now: Instant,
        rx: RxId,
        verdict: Verdict,
        node: &mut Node,
        mem: &mut dyn Memory,
    );

    /// The link of an interface has changed: what failed for want of it may be tried anew at once.
    fn link_changed(&mut self, _now: Instant, _ni: NiId, _link: Link, _node: &mut Node) {}

    /// Forgets the message `msg` whose payload it is reading, if it still is: the rest is read and
    /// thrown away, and there is no [`Node::rx_done`]. A driver that never reports a message before
    /// all of its payload is in place has nothing to forget.
    fn abandon(&mut self, _rx: RxId, _msg: MsgId) {}

    /// Ends the exchange of a GET ([`Transmit::sink`]) whose data are not needed any more: behind
    /// its [`Node::tx_done`], which follows without waiting for the peer, the peer writes nothing to the
    /// memory that the message has named. A driver without such exchanges has nothing to end.
    fn withdraw(&mut self, _ni: NiId, _msg: MsgId) {}

    /// Hands everything queued since the last flush to the transport, as much as it takes, and
    /// reports what is thereby complete.
    fn flush(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory);

    /// Does what has become due: time-outs, reconnects, keepalives.
    fn handle_timeout(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory);

    /// When [`Driver::handle_timeout`] is next due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Stops serving an interface: connections closed, every message in hand reported as failed
    /// with `ENETDOWN`.
    fn ni_stop(&mut self, now: Instant, ni: NiId, node: &mut Node, mem: &mut dyn Memory);

    /// The time limit that the driver puts on one transmission on `ni` (H-30), if it has one.
    fn lnd_timeout(&self, ni: NiId) -> Option<core::time::Duration>;
}
