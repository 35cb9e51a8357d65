//! The timer table for operators.

use core::fmt;

use lnet_types::{Instant, Nid};
use lnet_wire::MsgType;

use super::{Timer, TimerKind};
use crate::Node;
use crate::fault::Held;

/// A timer that is set, and what it is about as far as that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerView {
    /// When it is due.
    pub at: Instant,
    /// What it is.
    pub timer: Timer,
    /// The interface, the primary NID of the peer, or where the message goes.
    pub nid: Option<Nid>,
    /// The type of the message.
    pub message: Option<MsgType>,
}

impl fmt::Display for TimerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.timer.name())?;
        if let Some(kind) = self.message {
            write!(f, " {}", kind.name())?;
        }
        self.nid.map_or(Ok(()), |nid| write!(f, " {nid}"))
    }
}

impl Node {
    /// What a timer is about.
    pub fn timer_view(&self, at: Instant, timer: Timer) -> TimerView {
        let peer = |id| self.peers.peers.get(id).map(|p| p.primary);
        let msg = |id| self.msgs.get(id).map(|m| m.hdr);
        let hdr = match timer {
            Timer::Waiting(id) | Timer::Backoff(id) => msg(id),
            Timer::Delay(number) => match self.faults.held(number) {
                Some(Held::Leaving(id)) => msg(*id),
                Some(Held::Arriving(_, hdr)) => Some(*hdr),
                None => None,
            },
            _ => None,
        };
        let nid = match timer {
            Timer::Announce
            | Timer::AnnounceUp
            | Timer::CutOff
            | Timer::Remind(_)
            | Timer::Router
            | Timer::Retransmit => None,
            Timer::Op(op) => self.ops.get(op).map(|state| state.asked),
            Timer::Delay(_) | Timer::Waiting(_) | Timer::Backoff(_) => hdr.map(|hdr| hdr.dst),
            Timer::Check(id) | Timer::Merge(id) | Timer::Discover(id) => peer(id),
            Timer::Response(md) => {
                let md = self.portals.mds.get(md);
                md.and_then(|md| md.tracker.as_ref()).and_then(|t| t.target)
            }
            Timer::RecoverNi(id) => self.nis.get(id).map(|ni| ni.nid),
            Timer::RecoverPeer(id) => self.peers.nis.get(id).map(|ni| ni.nid),
        };
        let message = hdr.map(|hdr| hdr.kind.msg_type());
        TimerView { at, timer, nid, message }
    }

    /// All timers that are set, in the order in which they are due.
    pub fn timers(&self) -> Vec<TimerView> {
        let mut all: Vec<_> =
            TimerKind::ALL.into_iter().flat_map(|kind| self.timers.of(kind)).collect();
        all.sort_unstable();
        all.into_iter().map(|(at, timer)| self.timer_view(at, timer)).collect()
    }
}
