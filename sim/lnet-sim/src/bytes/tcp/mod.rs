//! One end of a connection: a small TCP. It cuts what is written into segments, keeps what is not
//! acknowledged and sends what is lost again, puts what arrives in order, and says how much more it
//! takes. No congestion window: links have their own bandwidth, and who waits for them is known
//! ([`End::departed`]).
//!
//! ```text
//!  connect ─► SynSent ── SYN,ACK ─► Open ── reset, too many tries ─► Closed
//!  SYN ─────► SynReceived ── ACK ──╯  ╰── both FINs ─► gone
//! ```
//!
//! Here is what an end is, how it begins and how it ends. `owner.rs` is the side of the one who reads
//! and writes, `send.rs` and `receive.rs` are the network's, `flight.rs` knows what
//! is lost, `timers.rs` is about waiting.
//!
//! Pure: segments, bytes and the time come in, segments come out of [`End::send`].

mod flight;
mod owner;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod timers;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Errno, Instant};

use super::segment::{Flags, Segment};
use flight::Flight;
use timers::Trips;

/// Most bytes of one segment: what the system hands to a card at once.
pub(super) const SEGMENT_MAX: usize = 64 << 10;
/// Bytes that an end takes before they are acknowledged. Linux grows it to as much as 4 MiB under load: what
/// a dead rail swallows, and whether its credits are ever used up, hangs on it.
const SEND_BUFFER: usize = 2 << 20;
/// Bytes that an end holds before they are read.
const RECV_BUFFER: usize = 2 << 20;
/// Both, for listings.
pub(super) const BUFFERS: (u32, u32) = (SEND_BUFFER as u32, RECV_BUFFER as u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A SYN is under way.
    SynSent,
    /// A SYN was answered; the last word is due.
    SynReceived,
    Open,
    /// Nothing comes or goes any more.
    Closed,
}

/// Whose an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// It waits to be accepted.
    Listener,
    /// The driver's.
    Driver,
    /// Closed: what is written still goes out.
    Orphan,
}

/// In which pieces an owner sees what comes: streams promise none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// As large as they come.
    Whole,
    /// Anything from one byte on.
    Parts,
    /// The first so many reads give a few bytes only; then parts.
    Crumbs(u32),
}

/// What the owner asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    pub(super) even_retries: bool,
    /// The longest wait before something is sent again, which then does not fail; the usual one if zero.
    pub(super) rto_max: Duration,
    /// Idle time, interval, probes.
    pub(super) keepalive: Option<(Duration, Duration, u32)>,
}

/// What an owner may want to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct End {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) state: State,
    pub(super) holder: Holder,
    /// An error of the stream that is not yet reported.
    error: Option<Errno>,
    wishes: Wishes,
    cut: Cut,

    /// The first sequence that is not acknowledged; `outbox` begins there (or behind the SYN).
    una: u64,
    next: u64,
    /// How far the other end takes more.
    edge: u64,
    outbox: VecDeque<u8>,
    /// How much was in it when the stream broke: that counts as unacknowledged for ever.
    broken: u64,
    /// A FIN stands behind the outbox; it has been sent.
    fin: bool,
    fin_sent: bool,
    /// What of the outbox is on the way.
    flight: Flight,
    /// How far was sent when the last loss was noticed.
    recover: u64,
    /// The last segment on the way has been sent again, to find out what has arrived.
    probed: bool,
    /// When the last segment is through the queues on its way.
    through: Instant,
    /// The owner has got the answer that there is no room.
    full: bool,

    /// The next sequence that is expected, and the first one of all.
    expected: u64,
    first: u64,
    inbox: VecDeque<u8>,
    /// Arrived before what stands before it.
    early: BTreeMap<u64, Box<[u8]>>,
    eof: bool,
    /// How far the other end may send by the last announced window.
    announced: u64,
    ack_due: bool,
    syn_due: bool,
    again_due: bool,
    probe_due: bool,

    /// When to do something without having heard anything; `FAR_FUTURE` for never.
    pub(super) due: Instant,
    /// For when its host has it in its list.
    pub(super) listed: Instant,
    /// That is for an answer, and not for a sign of life from time to time.
    awaiting: bool,
    tries: u32,
    heard: Instant,
    trips: Trips,
    sent: u32,
    resent: u32,
}

impl End {
    fn new(local: SocketAddr, remote: SocketAddr, state: State, start: u64, cut: Cut) -> Self {
        Self {
            local,
            remote,
            state,
            holder: Holder::Driver,
            error: None,
            wishes: Wishes::default(),
            cut,
            una: start,
            next: start,
            edge: start + 1,
            outbox: VecDeque::new(),
            broken: 0,
            fin: false,
            fin_sent: false,
            flight: Flight::default(),
            recover: start,
            probed: false,
            through: Instant::ZERO,
            full: false,
            expected: 0,
            first: 0,
            inbox: VecDeque::new(),
            early: BTreeMap::new(),
            eof: false,
            announced: 0,
            ack_due: false,
            syn_due: true,
            again_due: false,
            probe_due: false,
            due: Instant::FAR_FUTURE,
            listed: Instant::FAR_FUTURE,
            awaiting: false,
            tries: 0,
            heard: Instant::ZERO,
            trips: Trips::default(),
            sent: 0,
            resent: 0,
        }
    }

    /// Begins to connect. `start` is where its sequence begins.
    pub(super) fn connect(local: SocketAddr, remote: SocketAddr, start: u64, cut: Cut) -> Self {
        Self::new(local, remote, State::SynSent, start, cut)
    }

    /// Answers a SYN.
    pub(super) fn accept(now: Instant, syn: &Segment, start: u64, cut: Cut) -> Self {
        let mut end = Self::new(syn.dst, syn.src, State::SynReceived, start, cut);
        (end.first, end.expected, end.edge) =
            (syn.seq, syn.seq + 1, start + 1 + RECV_BUFFER as u64);
        (end.heard, end.holder) = (now, Holder::Listener);
        end
    }

    pub(super) fn wish(&mut self, wishes: Wishes) {
        self.wishes = wishes;
    }

    fn in_flight(&self) -> bool {
        self.next > self.una
    }

    /// Where the data that was written ends.
    fn data_end(&self) -> u64 {
        let syn = u64::from(matches!(self.state, State::SynSent | State::SynReceived));
        self.una + syn + self.outbox.len() as u64
    }

    fn window(&self) -> u64 {
        self.expected + RECV_BUFFER.saturating_sub(self.inbox.len()) as u64
    }

    /// The owner will write no more.
    pub(super) fn finish(&mut self) {
        self.fin |= self.state == State::Open;
    }

    /// The owner lets go. Gives the segment that says so, if it is a reset; then the end is gone.
    pub(super) fn close(&mut self, reset: bool) -> Option<Segment> {
        self.holder = Holder::Orphan;
        if self.state == State::Closed {
            return None;
        }
        // Unread bytes are as good as lost, and the other end gets a reset.
        if reset || !self.inbox.is_empty() || self.state != State::Open {
            let was = core::mem::replace(&mut self.state, State::Closed);
            self.due = Instant::FAR_FUTURE;
            let kind = Flags { rst: true, ack: true, ..Flags::default() };
            return (was != State::SynSent).then(|| self.segment(kind, self.next, Box::default()));
        }
        self.fin = true;
        None
    }

    /// It gets a reset that the other end has not sent.
    pub(super) fn broken(&mut self) -> News {
        self.fail(Errno::ECONNRESET)
    }

    fn fail(&mut self, errno: Errno) -> News {
        if self.state == State::Closed {
            return News::default();
        }
        self.state = State::Closed;
        self.error = Some(errno);
        self.due = Instant::FAR_FUTURE;
        self.broken = self.outbox.len() as u64;
        self.outbox.clear();
        self.early.clear();
        News { readable: true, writable: true }
    }

    /// Whether nothing will ever come of it any more.
    pub(super) fn is_over(&self) -> bool {
        let said = self.fin_sent && self.una == self.next;
        match self.holder {
            Holder::Driver => false,
            Holder::Listener => self.state == State::Closed,
            Holder::Orphan => self.state == State::Closed || said,
        }
    }

    fn segment(&self, kind: Flags, seq: u64, data: Box<[u8]>) -> Segment {
        let (src, dst) = (self.local, self.remote);
        let (ack, edge) = if kind.ack { (self.expected, self.window()) } else { (0, 0) };
        Segment { src, dst, kind, seq, ack, edge, early: self.early(), data }
    }
}

/// Fills `to` with what stands from `at` on; how much that was.
fn copy(from: &VecDeque<u8>, at: usize, to: &mut [u8]) -> usize {
    let (a, b) = from.as_slices();
    let a = a.get(at..).unwrap_or_default();
    let b = b.get(at.saturating_sub(from.as_slices().0.len())..).unwrap_or_default();
    let mut done = 0;
    for part in [a, b] {
        let n = part.len().min(to.len() - done);
        to[done..done + n].copy_from_slice(&part[..n]);
        done += n;
    }
    done
}
