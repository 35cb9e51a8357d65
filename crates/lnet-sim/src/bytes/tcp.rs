//! One end of a connection: a small TCP. It cuts what is written into segments, keeps what is not
//! acknowledged and sends it again, puts what arrives in order, and says how much more it takes. No
//! congestion window: links have their own bandwidth, and who waits for them is known
//! ([`End::departed`]).
//!
//! ```text
//!  connect ─► SynSent ── SYN,ACK ─► Open ── reset, too many tries ─► Closed
//!  SYN ─────► SynReceived ── ACK ──╯  ╰── both FINs ─► gone
//! ```
//!
//! Pure: segments, bytes and the time come in, segments come out of [`End::send`].

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lnd_sock::Transport;
use lnet_types::{Errno, Instant, Prng};

use super::segment::{Flags, Segment};

/// Most bytes of one segment: what the system hands to a card at once.
pub(super) const SEGMENT_MAX: usize = 64 << 10;
/// Bytes that an end takes before they are acknowledged.
const SEND_BUFFER: usize = 256 << 10;
/// Bytes that an end holds before they are read.
const RECV_BUFFER: usize = 256 << 10;
/// Both, for listings.
pub(super) const BUFFERS: (u32, u32) = (SEND_BUFFER as u32, RECV_BUFFER as u32);
/// The shortest wait before something is sent again.
const RTO_MIN: Duration = Duration::from_millis(200);
/// The wait where no round trip is known yet.
const RTO_FIRST: Duration = Duration::from_secs(1);
/// The longest.
const RTO_MAX: Duration = Duration::from_secs(120);
/// Attempts to connect; the last one fails after 127 s.
const SYN_TRIES: u32 = 6;
/// Tries in a row without an answer after which a connection is given up.
const TRIES: u32 = 15;
/// The same when nobody holds it any more.
const ORPHAN_TRIES: u32 = 8;
/// Tries at even intervals, where the owner wants them.
const EVEN_TRIES: u32 = 6;

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
    Nobody,
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
    /// Idle time, interval, probes.
    pub(super) keepalive: Option<(Duration, Duration, u32)>,
}

/// What an owner may want to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// What the round trips were like.
#[derive(Debug, Default)]
struct Trips {
    smooth: Duration,
    spread: Duration,
    least: Duration,
    /// The sequence whose acknowledgement is timed, and since when.
    timed: Option<(u64, Instant)>,
}

impl Trips {
    fn acked(&mut self, now: Instant, ack: u64) {
        let Some((_, since)) = self.timed.take_if(|(seq, _)| *seq <= ack) else { return };
        let took = now.saturating_since(since);
        if self.smooth.is_zero() {
            (self.smooth, self.spread, self.least) = (took, took / 2, took);
        } else {
            self.spread = (self.spread * 3 + self.smooth.abs_diff(took)) / 4;
            self.smooth = (self.smooth * 7 + took) / 8;
            self.least = self.least.min(took);
        }
    }

    fn rto(&self) -> Duration {
        match self.smooth {
            Duration::ZERO => RTO_FIRST,
            smooth => (smooth + self.spread * 4).clamp(RTO_MIN, RTO_MAX),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct End {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) state: State,
    pub(super) holder: Holder,
    /// What the stream has met and not told.
    error: Option<Errno>,
    wishes: Wishes,
    cut: Cut,

    /// The first sequence that is not acknowledged; `outbox` begins there (or behind the SYN).
    una: u64,
    next: u64,
    /// How far the other end takes more.
    edge: u64,
    outbox: VecDeque<u8>,
    /// A FIN stands behind the outbox; it has been sent.
    fin: bool,
    fin_sent: bool,
    /// What was sent up to here before the last time-out is sent again, piece by piece.
    recover: u64,
    /// The owner was told that there is no room.
    full: bool,

    /// The next sequence that is expected, and the first one of all.
    expected: u64,
    first: u64,
    inbox: VecDeque<u8>,
    /// Arrived before what stands before it.
    early: BTreeMap<u64, Box<[u8]>>,
    eof: bool,
    /// How far the other end was told that it may send.
    told: u64,
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
            fin: false,
            fin_sent: false,
            recover: start,
            full: false,
            expected: 0,
            first: 0,
            inbox: VecDeque::new(),
            early: BTreeMap::new(),
            eof: false,
            told: 0,
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

    // The owner's side.

    /// Gives bytes to the owner, some of those that are there. 0: the end.
    ///
    /// # Errors
    /// Nothing is there (`None`), or the stream is broken.
    pub(super) fn read(
        &mut self,
        rng: &mut Prng,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Option<Errno>> {
        let have = self.inbox.len().min(first.len() + second.len());
        if have == 0 {
            return match (self.error, self.eof) {
                (Some(errno), _) => Err(Some(errno)),
                (None, true) => Ok(0),
                (None, false) if self.state == State::Closed => Err(Some(Errno::ENOTCONN)),
                (None, false) => Err(None),
            };
        }
        let n = self.part(rng, have);
        let into_first = first.len().min(n);
        copy(&self.inbox, 0, &mut first[..into_first]);
        copy(&self.inbox, into_first, &mut second[..n - into_first]);
        self.inbox.drain(..n);
        // Told when it is worth it, as the other end may wait for room.
        if self.window() >= self.told + RECV_BUFFER as u64 / 2 {
            self.ack_due = true;
        }
        Ok(n)
    }

    fn part(&mut self, rng: &mut Prng, n: usize) -> usize {
        match &mut self.cut {
            Cut::Whole => n,
            Cut::Crumbs(left) if *left > 0 => {
                *left -= 1;
                n.min(1 + rng.below(7) as usize)
            }
            Cut::Parts | Cut::Crumbs(_) => 1 + rng.below(n as u64) as usize,
        }
    }

    /// Takes bytes from the owner, as many as there is room for, or fewer.
    ///
    /// # Errors
    /// No room (`None`), or the stream is broken.
    pub(super) fn write<'a>(
        &mut self,
        rng: &mut Prng,
        all: usize,
        bytes: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(usize, News), Option<Errno>> {
        if let Some(errno) = self.error {
            return Err(Some(errno));
        }
        match self.state {
            State::Open => {}
            State::SynSent | State::SynReceived => return Err(None),
            State::Closed => return Err(Some(Errno::EPIPE)),
        }
        let room = SEND_BUFFER.saturating_sub(self.outbox.len());
        let most = all.min(room);
        if most == 0 {
            self.full |= all > 0;
            return if all == 0 { Ok((0, News::default())) } else { Err(None) };
        }
        let n = self.part(rng, most);
        let mut left = n;
        for piece in bytes {
            let piece = &piece[..piece.len().min(left)];
            self.outbox.extend(piece);
            left -= piece.len();
        }
        // Fewer than there was room for: nothing else would say that there still is.
        let more = n < all && n < room;
        self.full |= n < all && !more;
        Ok((n, News { readable: false, writable: more }))
    }

    /// How an attempt to connect ended; `None` while it is under way.
    pub(super) fn connected(&self) -> Option<Result<SocketAddr, Errno>> {
        match (self.error, self.state) {
            (Some(errno), _) => Some(Err(errno)),
            (None, State::SynSent) => None,
            (None, State::Closed) => Some(Err(Errno::ENOTCONN)),
            (None, State::SynReceived | State::Open) => Some(Ok(self.local)),
        }
    }

    pub(super) const fn error(&self) -> Option<Errno> {
        self.error
    }

    pub(super) fn unacked(&self) -> u64 {
        self.outbox.len() as u64
    }

    #[cfg(test)]
    fn unread(&self) -> usize {
        self.inbox.len()
    }

    pub(super) fn transport(&self) -> Transport {
        let unacked = self.unacked();
        let sent = (self.next - self.una).saturating_sub(u64::from(self.fin_sent)).min(unacked);
        Transport {
            unacked,
            unsent: unacked - sent,
            rtt: self.trips.smooth,
            rtt_min: self.trips.least,
            // Nobody here holds acknowledgements back.
            segment: 0,
            sent: self.sent,
            resent: self.resent,
        }
    }

    /// The owner lets go. Gives the segment that says so, if it is a reset; then the end is gone.
    pub(super) fn close(&mut self, reset: bool) -> Option<Segment> {
        self.holder = Holder::Nobody;
        if self.state == State::Closed {
            return None;
        }
        // Bytes that nobody will read are as good as lost, and the other end is told.
        if reset || !self.inbox.is_empty() || self.state != State::Open {
            let was = core::mem::replace(&mut self.state, State::Closed);
            self.due = Instant::FAR_FUTURE;
            let kind = Flags { rst: true, ack: true, ..Flags::default() };
            return (was != State::SynSent).then(|| self.segment(kind, self.next, Box::default()));
        }
        self.fin = true;
        None
    }

    /// It hears of a reset that the other end has not sent.
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
            Holder::Nobody => self.state == State::Closed || said,
        }
    }

    // The network's side.

    fn segment(&self, kind: Flags, seq: u64, data: Box<[u8]>) -> Segment {
        let (src, dst) = (self.local, self.remote);
        let edge = if kind.ack { self.window() } else { 0 };
        Segment { src, dst, kind, seq, ack: if kind.ack { self.expected } else { 0 }, edge, data }
    }

    /// Everything that can be sent now.
    pub(super) fn send(&mut self, now: Instant, rng: &mut Prng, out: &mut Vec<Segment>) {
        match self.state {
            State::Closed => return,
            State::SynSent | State::SynReceived => {
                if core::mem::take(&mut self.syn_due) {
                    let ack = self.state == State::SynReceived;
                    let kind = Flags { syn: true, ack, ..Flags::default() };
                    out.push(self.segment(kind, self.una, Box::default()));
                    self.next = self.una + 1;
                    self.trips.timed = (self.tries == 0).then_some((self.next, now));
                    self.wait(now);
                }
                return;
            }
            State::Open => {}
        }
        if core::mem::take(&mut self.again_due) {
            self.send_again(now, out);
        }
        let end = self.data_end();
        while self.next < end.min(self.edge) && !self.fin_sent {
            let left = (end.min(self.edge) - self.next) as usize;
            let n = self.cut_for_sending(rng, left.min(SEGMENT_MAX));
            let data = self.copy(self.next, n);
            out.push(self.segment(Flags { ack: true, ..Flags::default() }, self.next, data));
            self.next += n as u64;
            self.sent = self.sent.wrapping_add(1);
            if self.una >= self.recover {
                self.trips.timed.get_or_insert((self.next, now));
            }
            self.said(now);
        }
        if self.fin && !self.fin_sent && self.next == end {
            let kind = Flags { fin: true, ack: true, ..Flags::default() };
            out.push(self.segment(kind, self.next, Box::default()));
            self.next += 1;
            self.fin_sent = true;
            self.said(now);
        }
        if core::mem::take(&mut self.probe_due) {
            // What the other end has already: it answers with what it expects and takes.
            let kind = Flags { ack: true, ..Flags::default() };
            out.push(self.segment(kind, self.una.wrapping_sub(1), Box::default()));
        }
        if self.ack_due {
            let kind = Flags { ack: true, ..Flags::default() };
            out.push(self.segment(kind, self.next, Box::default()));
            self.said(now);
        }
        if !self.in_flight() && self.next < end && !self.awaiting {
            // There is no room at the other end, and nobody may say when there is.
            self.wait(now);
        }
    }

    /// What was sent also acknowledges.
    fn said(&mut self, now: Instant) {
        self.ack_due = false;
        self.told = self.window();
        if self.in_flight() && !self.awaiting {
            self.wait(now);
        }
    }

    fn cut_for_sending(&self, rng: &mut Prng, n: usize) -> usize {
        match self.cut {
            Cut::Whole => n,
            Cut::Parts | Cut::Crumbs(_) if n > 1448 => 1448.max(rng.below(n as u64) as usize),
            Cut::Parts | Cut::Crumbs(_) => n,
        }
    }

    fn copy(&self, seq: u64, n: usize) -> Box<[u8]> {
        let mut data = vec![0; n];
        let copied = copy(&self.outbox, (seq - self.una) as usize, &mut data);
        debug_assert_eq!(copied, n);
        data.into()
    }

    /// The first thing that is not acknowledged, once more.
    fn send_again(&mut self, now: Instant, out: &mut Vec<Segment>) {
        if !self.in_flight() {
            return;
        }
        let data = (self.data_end().min(self.next) - self.una) as usize;
        let n = data.min(SEGMENT_MAX);
        let kind = Flags { ack: true, fin: n == 0, ..Flags::default() };
        out.push(self.segment(kind, self.una, self.copy(self.una, n)));
        self.trips.timed = None;
        if n > 0 {
            self.sent = self.sent.wrapping_add(1);
            self.resent = self.resent.wrapping_add(1);
        }
        self.said(now);
    }

    fn wait(&mut self, now: Instant) {
        self.awaiting = true;
        self.due = now + self.patience();
    }

    /// How long to wait for an answer.
    fn patience(&self) -> Duration {
        if self.state == State::SynSent || self.state == State::SynReceived {
            return RTO_FIRST * (1 << self.tries.min(SYN_TRIES));
        }
        let even = self.wishes.even_retries && self.tries <= EVEN_TRIES;
        let doubled = if even { 0 } else { self.tries.min(TRIES) };
        self.trips.rto().saturating_mul(1 << doubled).min(RTO_MAX)
    }

    /// A segment of this end is with the other one at `at`, or was to be: what waits for its answer
    /// begins to wait then. Queues before a slow link are no reason to send again.
    pub(super) fn departed(&mut self, at: Instant) -> News {
        if self.awaiting {
            self.due = self.due.max(at + self.patience());
        }
        News::default()
    }

    /// The time that it waited for has come.
    pub(super) fn expire(&mut self, now: Instant) -> News {
        self.due = Instant::FAR_FUTURE;
        let most = match self.state {
            State::Closed => return News::default(),
            State::SynSent | State::SynReceived => SYN_TRIES,
            State::Open if self.holder == Holder::Nobody => ORPHAN_TRIES,
            State::Open => TRIES,
        };
        let idle = !self.in_flight() && self.next >= self.data_end();
        if idle && self.state == State::Open {
            return self.keep_alive(now);
        }
        if self.tries >= most {
            return self.fail(Errno::ETIMEDOUT);
        }
        self.tries += 1;
        match self.state {
            State::SynSent | State::SynReceived => self.syn_due = true,
            _ if self.in_flight() => {
                self.recover = self.next;
                self.again_due = true;
            }
            _ => self.probe_due = true,
        }
        self.wait(now);
        News::default()
    }

    fn keep_alive(&mut self, now: Instant) -> News {
        let Some((idle, interval, probes)) = self.wishes.keepalive else { return News::default() };
        let since = now.saturating_since(self.heard);
        if since < idle {
            self.due = self.heard + idle;
        } else if self.tries >= probes {
            return self.fail(Errno::ETIMEDOUT);
        } else {
            self.tries += 1;
            self.probe_due = true;
            self.due = now + interval;
        }
        News::default()
    }

    /// What was asked for by [`Wishes::keepalive`] begins when nothing else is waited for.
    fn rest(&mut self) {
        self.awaiting = false;
        self.due = match self.wishes.keepalive {
            Some((idle, ..)) if self.holder == Holder::Driver => self.heard + idle,
            _ => Instant::FAR_FUTURE,
        };
    }

    /// Takes a segment of this connection. Gives the answer of one that does not fit.
    pub(super) fn receive(&mut self, now: Instant, segment: Segment) -> (News, Option<Segment>) {
        let none = News::default();
        let Flags { syn, ack, fin, rst } = segment.kind;
        match self.state {
            State::Closed => return (none, segment.refusal()),
            State::SynSent if ack && segment.ack != self.next => return (none, segment.refusal()),
            State::SynSent if rst && ack => return (self.fail(Errno::ECONNREFUSED), None),
            State::SynSent if syn && ack => {
                (self.first, self.expected) = (segment.seq, segment.seq + 1);
                self.acked(now, &segment);
                self.state = State::Open;
                (self.heard, self.ack_due) = (now, true);
                self.rest();
                return (News { readable: true, writable: true }, None);
            }
            State::SynSent => return (none, None),
            State::SynReceived | State::Open => {}
        }
        if rst {
            let fits = (self.expected..=self.window()).contains(&segment.seq);
            return (if fits { self.fail(Errno::ECONNRESET) } else { none }, None);
        }
        if syn {
            if segment.seq == self.first && self.state == State::SynReceived {
                self.syn_due = true;
            } else {
                // Another connection wants this place. Its owner says what is true.
                self.ack_due = true;
            }
            return (none, None);
        }
        if !ack || segment.ack > self.next {
            self.ack_due = true;
            return (none, None);
        }
        self.heard = now;
        let was = self.state;
        self.state = State::Open;
        let mut news = News::default();
        if was == State::SynReceived {
            if segment.ack < self.next {
                self.state = was;
                return (none, None);
            }
            news.writable = true;
        }
        news.writable |= self.acked(now, &segment);
        if segment.data.is_empty() && !fin {
            if segment.seq < self.expected {
                self.ack_due = true;
            }
            return (news, None);
        }
        if self.holder == Holder::Nobody && !segment.data.is_empty() {
            let answer = segment.refusal();
            self.fail(Errno::ECONNRESET);
            return (none, answer);
        }
        self.ack_due = true;
        let end = segment.seq + segment.data.len() as u64;
        let before = self.expected;
        if end > self.expected && end <= self.told.max(self.window()) {
            self.early.insert(segment.seq, segment.data);
            self.put_in_order();
        }
        if fin && end == self.expected && !self.eof {
            (self.eof, self.expected) = (true, self.expected + 1);
        }
        news.readable |= self.expected > before;
        (news, None)
    }

    fn put_in_order(&mut self) {
        while let Some(entry) = self.early.first_entry() {
            let seq = *entry.key();
            if seq > self.expected {
                return;
            }
            let data = entry.remove();
            let known = (self.expected - seq) as usize;
            if let Some(new) = data.get(known..).filter(|new| !new.is_empty()) {
                self.inbox.extend(new);
                self.expected += new.len() as u64;
            }
        }
    }

    /// Takes what a segment says of ours; whether there is room again for an owner who waits.
    fn acked(&mut self, now: Instant, segment: &Segment) -> bool {
        if segment.ack < self.una {
            return false;
        }
        let opened = segment.edge > self.edge;
        self.edge = self.edge.max(segment.edge);
        if segment.ack > self.una || self.tries > 0 && !self.in_flight() {
            self.tries = 0;
        }
        if segment.ack > self.una {
            self.trips.acked(now, segment.ack);
            // SYN and FIN are counted and are no bytes.
            let bytes = (segment.ack - self.una).min(self.outbox.len() as u64) as usize;
            self.outbox.drain(..bytes);
            self.una = segment.ack;
            if self.in_flight() {
                self.again_due = self.una < self.recover;
                self.wait(now);
            } else {
                self.rest();
            }
        } else if opened && !self.in_flight() {
            self.rest();
        }
        let room = SEND_BUFFER - self.outbox.len();
        self.full && room >= SEND_BUFFER / 3 && {
            self.full = false;
            true
        }
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

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
