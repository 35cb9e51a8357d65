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
//! A driver also reports its judgement of rails ([`Node::rail_changed`]) and where it may have lost
//! what it had written ([`Node::written_lost`]), gives back what it has not begun to send
//! ([`Driver::recall`]), and what its transport may not deliver ([`Node::tx_in_doubt`]); what
//! follows from that is the node's business.
//!
//! Next: `output.rs` for what leaves the node, `recv.rs` and `send/` for what it does inside.

use lnet_types::{Errno, Fault, Instant, Memory, MsgId, NiId, Nid, PeerNiId, Pid, ProcessId, RxId};
use lnet_wire::Hdr;

use crate::{Node, Payload, Transmit, Verdict};

/// A message whose header has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rx {
    /// The interface that it came in on.
    pub ni: NiId,
    /// The previous hop (the connection's peer), which need not be the originator.
    pub from: Nid,
    /// The previous hop's process.
    pub from_pid: Pid,
    /// The node's name for the previous hop's interface, as [`Node::peer_ni`] gave it. `None` and a name
    /// that is out of date cost a lookup by NID.
    #[serde(skip)]
    pub peer_ni: Option<PeerNiId>,
    /// The driver's own name for it; comes back in `Output::Resume`.
    pub id: RxId,
}

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

/// Terms under which a driver retains a message until its transport has acknowledged the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Retention {
    /// When the caller handed the message in.
    pub born: Instant,
    /// The message's deadline: no further copy leaves after it.
    pub until: Instant,
    /// Copies leave from the same interface: the caller has named it.
    pub bound: bool,
}

/// A message in doubt: its transport has taken it, and has not acknowledged it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct InDoubt {
    /// The interface that it left from.
    pub ni: NiId,
    /// The interface of the next hop.
    pub to: Nid,
    /// The header, as it was sent.
    pub hdr: Hdr,
    /// What followed it.
    pub payload: Payload,
    /// What the node said when it handed the message over.
    pub retention: Retention,
}

/// Condition of a local interface, as its driver or netlink sees it (H-90, K-60).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Link {
    /// Usable.
    Up,
    /// Not usable: no carrier, address gone, device gone.
    Down,
}

/// A driver's judgement of a *rail*: the way from one interface of ours to one of a peer (DEC-31).
/// Greater is worse.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub enum Doubt {
    /// No evidence against it.
    #[default]
    None,
    /// It carries, but badly: it loses what is sent, or takes far longer than it needs to, or has
    /// done so a moment ago.
    Shaky,
    /// It was silent, and answers again: it has yet to prove itself. A rail that crawls is like this
    /// between two silences, so one that is only shaky is better.
    Unproven,
    /// What was sent has not been acknowledged, or a connection attempt not answered, for longer
    /// than either should take.
    Silent,
}

impl Doubt {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shaky => "shaky",
            Self::Unproven => "unproven",
            Self::Silent => "silent",
        }
    }
}

impl core::fmt::Display for Doubt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// A network driver under a node. One driver may serve several NIs.
///
/// All calls happen on the node's thread. A driver keeps queues per connection, but a message that
/// it has been given always comes back exactly once, by [`Node::tx_done`], whatever happens.
pub trait Driver {
    /// Does the I/O that is ready and reports what came of it to `node`.
    ///
    /// With `spin` the caller polls without sleeping: the driver also polls recently busy sockets
    /// that no readiness event has named.
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
    fn send(&mut self, now: Instant, transmit: Transmit, mem: &dyn Memory) -> Result<(), Fault>;

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

/// The fault of a message whose interface went away under it (K-40).
pub const NI_STOPPED: Fault = Fault::new(lnet_types::HealthStatus::RemoteDropped, Errno::ENETDOWN);
