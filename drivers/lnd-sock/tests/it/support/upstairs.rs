//! A node's stand-in: takes every message, records the reports, and insists that each message
//! ends exactly once.

use std::collections::BTreeMap;

use lnd_sock::Upper;
use lnet::{
    Doubt, DropReason, InDoubt, Payload, PeerMisbehaved, Retention, Rx, Sink, Transmit, Verdict,
};
use lnet_types::{
    Fault, Instant, IoVec, Memory, MsgId, NiId, Nid, PeerNiId, Pid, ProcessId, RegionId, RxId, Span,
};
use lnet_wire::{Handle, Hdr, Kind};
use slotmap::SlotMap;

use core::time::Duration;

/// One region. Places in it are given out once and never again.
pub(crate) struct Mem(Vec<u8>);

/// Bytes of the region: untouched pages cost nothing.
const MEM_LEN: usize = 1 << 28;

impl Default for Mem {
    fn default() -> Self {
        Self(vec![0; MEM_LEN])
    }
}

impl Mem {
    /// What lies in `spans`.
    pub(crate) fn read(&self, spans: &IoVec) -> Vec<u8> {
        spans.iter().flat_map(|span| self.bytes(*span).to_vec()).collect()
    }
}

impl Memory for Mem {
    fn bytes(&self, s: Span) -> &[u8] {
        &self.0[s.offset as usize..][..s.len as usize]
    }
    fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
        &mut self.0[s.offset as usize..][..s.len as usize]
    }
}

/// For calls in which no payload moves.
pub(crate) struct NoMem;

impl Memory for NoMem {
    fn bytes(&self, s: Span) -> &[u8] {
        panic!("{s:?} is looked at")
    }
    fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
        panic!("{s:?} is written")
    }
}

/// What to do with a message that comes in.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Into memory of its own.
    Keep,
    /// Into memory that is this much too short.
    Truncate(u32),
    /// To the node, at most this much.
    Bytes(u32),
    Drop,
    Defer,
    Close,
}

/// A message that came in.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) rx: Rx,
    pub(crate) hdr: Hdr,
    /// How it ended, with the bytes that the driver collected.
    pub(crate) outcome: Option<Result<Vec<u8>, Fault>>,
    /// Where its payload is.
    pub(crate) place: IoVec,
}

/// The stand-in.
pub(crate) struct Upstairs {
    /// First byte of memory that is not given out.
    next: u64,
    ids: SlotMap<MsgId, ()>,
    /// What is done with messages to come; the last one for all after it.
    pub(crate) decisions: Vec<Decision>,
    /// Messages in the order in which their headers came.
    pub(crate) received: Vec<Received>,
    places: BTreeMap<MsgId, usize>,
    /// Messages given to the driver and not ended.
    pub(crate) out: BTreeMap<MsgId, u64>,
    /// How messages ended, by the number that they were sent with.
    pub(crate) ended: Vec<(u64, Result<(), Fault>)>,
    pub(crate) gone: Vec<RxId>,
    /// Messages that were deferred and not decided, by their place in `received`.
    held: Vec<usize>,
    pub(crate) down: Vec<(NiId, Nid, Instant)>,
    /// What the driver said of rails, and when.
    pub(crate) rails: Vec<(Nid, Doubt, Instant)>,
    /// Peers of which a connection was lost with bytes on the way.
    pub(crate) lost: Vec<Nid>,
    /// The terms on which messages are retained that are sent from now on.
    pub(crate) retention: Option<Retention>,
    /// Messages that the driver handed back in doubt.
    pub(crate) in_doubt: Vec<InDoubt>,
}

impl Default for Upstairs {
    fn default() -> Self {
        Self {
            next: 0,
            ids: SlotMap::with_key(),
            decisions: vec![Decision::Keep],
            received: Vec::new(),
            places: BTreeMap::new(),
            out: BTreeMap::new(),
            ended: Vec::new(),
            gone: Vec::new(),
            held: Vec::new(),
            down: Vec::new(),
            rails: Vec::new(),
            lost: Vec::new(),
            retention: None,
            in_doubt: Vec::new(),
        }
    }
}

/// A PUT that carries `number` in its match bits.
pub(crate) fn put(from: Nid, to: Nid, number: u64, payload_len: u32) -> Hdr {
    Hdr {
        dst: to,
        src: from,
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len,
        kind: Kind::Put {
            ack: Handle::NONE,
            match_bits: number,
            hdr_data: 0,
            portal: 4,
            offset: 0,
        },
    }
}

/// The number that a PUT carries.
pub(crate) fn number_of(hdr: &Hdr) -> u64 {
    match hdr.kind {
        Kind::Put { match_bits, .. } => match_bits,
        Kind::Reply { dst, .. } => dst.object,
        _ => u64::MAX,
    }
}

impl Upstairs {
    /// A PUT of `payload`, as the node hands it to a driver.
    pub(crate) fn transmit(
        &mut self,
        mem: &mut Mem,
        ni: NiId,
        from: Nid,
        to: Nid,
        number: u64,
        payload: &[u8],
    ) -> Transmit {
        let msg = self.ids.insert(());
        self.out.insert(msg, number);
        let place = self.place(payload.len() as u32);
        place.iter().for_each(|span| mem.bytes_mut(*span).copy_from_slice(payload));
        Transmit {
            repeats: false,
            msg,
            ni,
            to: ProcessId::lustre(to),
            peer_ni: None,
            hdr: put(from, to, number, payload.len() as u32),
            payload: Payload::Spans(place),
            sink: IoVec::new(),
            timeout: Duration::from_secs(1000),
            retention: self.retention,
        }
    }

    /// New memory.
    pub(crate) fn place(&mut self, len: u32) -> IoVec {
        let offset = self.next;
        self.next += u64::from(len);
        assert!(self.next <= MEM_LEN as u64, "the test needs more memory");
        [Span { region: RegionId(0), len, offset }].into_iter().collect()
    }

    /// The driver did not take it.
    pub(crate) fn refused(&mut self, msg: MsgId, fault: Fault) {
        let number = self.out.remove(&msg).expect("a message that is out");
        self.ended.push((number, Err(fault)));
    }

    /// How the message with this number ended.
    pub(crate) fn outcome(&self, number: u64) -> Option<Result<(), Fault>> {
        self.ended.iter().find(|(n, _)| *n == number).map(|(_, outcome)| *outcome)
    }

    /// Messages that wait for a decision, by their place in `received`.
    pub(crate) fn held(&self) -> impl Iterator<Item = usize> + use<> {
        self.held.clone().into_iter()
    }

    /// The one at `at` is being decided.
    pub(crate) fn take_held(&mut self, at: usize) {
        self.held.retain(|held| *held != at);
    }

    /// Numbers of the messages that arrived whole, in order.
    pub(crate) fn arrived(&self) -> Vec<u64> {
        self.received
            .iter()
            .filter(|r| matches!(r.outcome, Some(Ok(_))))
            .map(|r| number_of(&r.hdr))
            .collect()
    }

    /// The message that is being received at `at` of `received`.
    pub(crate) fn receiving(&self, at: usize) -> Option<MsgId> {
        self.places.iter().find(|(_, place)| **place == at).map(|(msg, _)| *msg)
    }

    /// Turns a decision into a verdict on the message at `at` of `received`.
    pub(crate) fn verdict(&mut self, at: usize, decision: &Decision) -> Verdict {
        let len = self.received[at].hdr.payload_len;
        let (place, sink) = match decision {
            Decision::Keep | Decision::Truncate(_) => {
                let short = if let Decision::Truncate(n) = decision { *n } else { 0 };
                let len = len.saturating_sub(short);
                // In two spans, to have both kinds.
                let place = self.place(len);
                let half = len / 2;
                let place = if half == 0 {
                    place
                } else {
                    let (one, two) = (Span { len: half, ..place[0] }, place[0]);
                    let offset = two.offset + u64::from(half);
                    [one, Span { len: len - half, offset, ..two }].into_iter().collect()
                };
                (place.clone(), Sink::Spans(place))
            }
            Decision::Bytes(max) => (IoVec::new(), Sink::Bytes(*max)),
            Decision::Drop => return Verdict::Drop(DropReason::NoMatch),
            Decision::Defer => {
                self.held.push(at);
                return Verdict::Defer;
            }
            Decision::Close => {
                return Verdict::Close(PeerMisbehaved::WrongNid(self.received[at].hdr.dst));
            }
        };
        let msg = self.ids.insert(());
        self.received[at].place = place;
        self.places.insert(msg, at);
        Verdict::Deliver { msg, sink }
    }
}

impl Upper for Upstairs {
    fn rx_header(&mut self, _now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        self.received.push(Received { rx, hdr: *hdr, outcome: None, place: IoVec::new() });
        let decision = if self.decisions.len() > 1 {
            self.decisions.remove(0)
        } else {
            self.decisions[0].clone()
        };
        self.verdict(self.received.len() - 1, &decision)
    }

    fn peer_ni(&self, _known: Option<PeerNiId>, _nid: Nid) -> Option<PeerNiId> {
        None
    }

    fn rx_done(&mut self, _now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        let at = self.places.remove(&msg).expect("a message that was not done before");
        let before = self.received[at].outcome.replace(outcome.map(<[u8]>::to_vec));
        assert!(before.is_none(), "a message was done twice");
    }

    fn rx_gone(&mut self, _now: Instant, _ni: NiId, rx: RxId) {
        self.gone.push(rx);
        // A connection has one of them at a time: the last one under this name is meant.
        let at = self.held.iter().rposition(|at| self.received[*at].rx.id == rx);
        self.held.remove(at.expect("a message that was deferred and not decided"));
    }

    fn tx_done(&mut self, _now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        let number = self.out.remove(&msg).expect("a message ends once, and only if it was sent");
        self.ended.push((number, outcome));
    }

    fn peer_down(&mut self, _now: Instant, ni: NiId, nid: Nid, last_alive: Instant) {
        self.down.push((ni, nid, last_alive));
    }

    fn written_lost(&mut self, _now: Instant, _ni: NiId, nid: Nid) {
        self.lost.push(nid);
    }

    fn tx_in_doubt(&mut self, _now: Instant, messages: Vec<InDoubt>) {
        self.in_doubt.extend(messages);
    }

    fn rail_changed(&mut self, now: Instant, _ni: NiId, nid: Nid, doubt: Doubt) {
        self.rails.push((nid, doubt, now));
    }
}
