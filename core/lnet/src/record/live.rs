//! A stretch while it is being recorded: words in the order in which things happened. Nearly all calls
//! of a busy node are messages that go well, and take one or two words each (`words.rs`); all others
//! are kept as they are. Half of what a call costs the busy node is to get hold of memory for it, so
//! fewer words are worth some work; and a stretch's memory is used again by the next one but one, since
//! fresh pages would cost more than what goes into them.
//!
//! ```text
//!  usual call   kind : 4 │ way differs : 1 │ which words differ : 6 │ what was given : 12 │
//!               own word as foretold : 1 │ ns since the last : 20 │ sum : 20
//!               its own word, unless it was foretold
//!               the way and the words, those that differ
//!  other call   OTHER : 4 │ … what was given … │ … sum : 20
//!  clock        CLOCK : 4
//!               the time from which the next call counts
//!  given        GIVEN : 4 │ … what was given … │ … sum : 20
//!  one thing    ONE : 4 │ its kind : 4 │ … │ its sum : 32
//! ```
//!
//! Each call carries what was given since the one before: how many outputs and events, and a sum over
//! them, over the verdict of a header before them, and over all that was given earlier in the
//! stretch. Where the numbers would not fit, they stand in words of their own.
//!
//! The usual calls are noted from their arguments; an [`Input`] is made of them when the recording is
//! taken out.

use lnet_types::{Fault, Instant, MdId, MsgId};
use lnet_wire::Hdr;
use slotmap::{Key, KeyData};

use super::given::{Given, Sums};
use super::words::{self, Bound, Header, Usual, Way};
use super::{Input, Mark, MarkKind, Stretch};
use crate::{Event, Get, MdSpec, Output, Put, Rx, Verdict};

/// Kinds of first words beside those of usual calls: the next one of `others`, …
const OTHER: u64 = 8;
/// … the time, …
const CLOCK: u64 = 9;
/// … what was given and is more than a call's word can hold, …
const GIVEN: u64 = 10;
/// … and what is given so rarely that each has its own.
const ONE: u64 = 11;

/// The bits of a first word that say its kind.
const KIND: u64 = 0xF;
/// In a usual call's first word: the way differs.
const WAY: u64 = 1 << 4;
/// Where it says which words differ, …
const DIFFER: u32 = 5;
/// … how many outputs …
const OUTPUT: u64 = 1 << 11;
const OUTPUTS: u64 = 63 * OUTPUT;
/// … and events were given, …
const EVENT: u64 = 1 << 17;
const EVENTS: u64 = 63 * EVENT;
/// … whether the own word is as far from the last one of its kind as that was from the one before, …
const FORETOLD: u64 = 1 << 23;
/// … and the time since the last call, …
const SINCE: u32 = 24;
/// … which is less than this.
const LEAP: u64 = 1 << 20;
/// And the sum.
const SUM: u32 = u64::BITS - Sums::BITS;

/// Writes what differs from the last call of the kind, behind a first word that says what that is.
#[inline(never)]
fn write<C: Usual<N>, const N: usize>(
    last: &mut C,
    log: &mut Vec<u64>,
    first: u64,
    own: u64,
    call: C,
) {
    let ((last_way, before), (way, words)) = (last.parts(), call.parts());
    let mut differ = 0;
    for (bit, (word, before)) in words.iter().zip(&before).enumerate() {
        differ |= u64::from(word != before) << bit;
    }
    let turned = way != last_way;
    let first = first | differ << DIFFER | if turned { WAY } else { 0 };
    log.push(first);
    if first & FORETOLD == 0 {
        log.push(own);
    }
    if turned {
        way.write(log);
    }
    let differing = words.iter().zip(&before).filter(|(word, before)| word != before);
    log.extend(differing.map(|(word, _)| *word));
    *last = call;
}

/// The call behind this first word.
fn read<C: Usual<N>, const N: usize>(
    last: &mut C,
    first: u64,
    own: u64,
    log: &mut impl Iterator<Item = u64>,
) -> C {
    let (mut way, mut words) = last.parts();
    if first & WAY != 0 {
        way = C::Way::read(log);
    }
    for (bit, word) in words.iter_mut().enumerate() {
        if (first >> DIFFER >> bit) & 1 != 0 {
            *word = words::word(log);
        }
    }
    *last = C::of(own, way, words);
    *last
}

/// The own word of the last call of a kind, and how far it was from the one before: places in tables
/// are used in their order, or the same one again, and messages are numbered.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    word: u64,
    step: u64,
}

impl Own {
    /// Notes the next one; true if it is as it was to be expected.
    #[inline]
    fn foretold(&mut self, word: u64) -> bool {
        let step = word.wrapping_sub(self.word);
        let before = core::mem::replace(self, Self { word, step });
        step == before.step
    }

    /// The one that is to be expected.
    const fn next(self) -> u64 {
        self.word.wrapping_add(self.step)
    }
}

/// The last call of each kind, and when the last one of all was.
#[derive(Clone, Debug)]
#[repr(C)]
struct Lasts {
    now: u64,
    own: [Own; words::KINDS],
    put: Put,
    get: Get,
    header: Header,
    bound: Bound,
}

impl Lasts {
    fn first_ones() -> Self {
        let (put, get, header) = (Put::first(), Get::first(), Header::first());
        let own = [Own::default(); words::KINDS];
        Self { now: 0, own, put, get, header, bound: Bound::first() }
    }

    /// The usual call behind this first word.
    fn read(&mut self, first: u64, log: &mut impl Iterator<Item = u64>) -> Option<Input> {
        self.now = self.now.wrapping_add((first >> SINCE) & (LEAP - 1));
        let now = Instant(self.now);
        let kind = first & KIND;
        let last = self.own.get_mut(kind as usize)?;
        let own = if first & FORETOLD != 0 { last.next() } else { words::word(log) };
        last.foretold(own);
        let key = KeyData::from_ffi(own);
        Some(match kind {
            words::SENT => Input::TxDone { now, msg: key.into(), outcome: Ok(()) },
            words::RECEIVED => Input::RxDone { now, msg: key.into(), outcome: Ok(Vec::new()) },
            words::UNLINK => Input::Unlink { now, md: key.into() },
            words::UNLINK_AT_ONCE => Input::UnlinkAtOnce { now, md: key.into() },
            words::PUT => Input::Put { now, put: read(&mut self.put, first, own, log) },
            words::GET => Input::Get { now, get: read(&mut self.get, first, own, log) },
            words::BIND => Input::Bind { md: read(&mut self.bound, first, own, log).spec() },
            words::HEADER => {
                let Header { rx, hdr } = read(&mut self.header, first, own, log);
                Input::RxHeader { now, rx, hdr }
            }
            _ => return None,
        })
    }
}

/// What each call touches stands together, from the log to the own words: hence the layout.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Live {
    /// The node before the first call.
    state: Vec<u8>,
    others: Vec<Input>,
    /// It is full when there are so many words.
    end: usize,
    log: Vec<u64>,
    /// How much was given since the last call, where a first word has it.
    given: u64,
    sums: Sums,
    lasts: Lasts,
}

/// Memory of a stretch, in words for each call that it must be able to hold: most take one. One whose
/// header has nothing in common with the last one takes nineteen.
const WORDS_PER_CALL: usize = 20;
/// So many others at most, for each call that it must be able to hold.
const OTHERS_PER_CALL: usize = 4;

impl Live {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            state: Vec::new(),
            log: Vec::new(),
            end: 0,
            others: Vec::new(),
            lasts: Lasts::first_ones(),
            given: 0,
            sums: Sums::default(),
        }
    }

    /// Forgets everything and begins with this state. There is room for so many calls at least.
    pub(super) fn begin(&mut self, state: Vec<u8>, calls: usize) {
        self.state = state;
        self.log.clear();
        self.end = calls * WORDS_PER_CALL;
        self.others.clear();
        self.lasts = Lasts::first_ones();
        self.given = 0;
        self.sums = Sums::default();
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.state.is_empty()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.log.len() >= self.end
    }

    /// Words so far.
    pub(super) fn words(&self) -> usize {
        self.log.len()
    }

    /// Any call. Those that a busy node makes all the time have their own way, on which no [`Input`]
    /// is made.
    pub(crate) fn push(&mut self, call: Input) {
        match call {
            Input::TxDone { now, msg, outcome } => self.tx_done(now, msg, outcome),
            Input::RxDone { now, msg, outcome } => {
                self.rx_done(now, msg, outcome.as_deref().map_err(|fault| *fault));
            }
            Input::Bind { md } => self.bind(&md),
            Input::Unlink { now, md } => self.unlink(now, md),
            Input::UnlinkAtOnce { now, md } => self.unlink_at_once(now, md),
            Input::Put { now, put } => self.put(now, &put),
            Input::Get { now, get } => self.get(now, &get),
            other => self.keep(|| other),
        }
    }

    /// A call that is kept as it is.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, call: impl FnOnce() -> Input) {
        let first = self.first(OTHER);
        self.log.push(first);
        self.others.push(call());
        // These take more room than words.
        if self.others.len() >= self.end / WORDS_PER_CALL * OTHERS_PER_CALL {
            self.end = 0;
        }
    }

    /// A first word, with what was given before.
    #[inline]
    fn first(&mut self, kind: u64) -> u64 {
        kind | core::mem::take(&mut self.given) | u64::from(self.sums.all()) << SUM
    }

    /// A usual call's first word.
    #[inline]
    fn usual(&mut self, kind: u64, now: Instant) -> u64 {
        let since = now.0.wrapping_sub(self.lasts.now);
        self.lasts.now = now.0;
        if since < LEAP { self.first(kind) | since << SINCE } else { self.leap(kind, now) }
    }

    /// The clock went back, or far ahead.
    #[cold]
    #[inline(never)]
    fn leap(&mut self, kind: u64, now: Instant) -> u64 {
        self.log.extend_from_slice(&[CLOCK, now.0]);
        self.first(kind)
    }

    /// A first word, with whether its call's own word is foretold.
    #[inline]
    fn foretell(&mut self, kind: u64, first: u64, own: u64) -> u64 {
        let foretold = self.lasts.own.get_mut(kind as usize).is_some_and(|last| last.foretold(own));
        if foretold { first | FORETOLD } else { first }
    }

    /// A call with one argument, which is another one each time. Mostly it takes one word, for which there
    /// is room; the way of those ends here, and makes no further call.
    #[inline(never)]
    fn short<const USUAL: u64>(&mut self, now: Instant, own: u64) {
        let since = now.0.wrapping_sub(self.lasts.now);
        let foretold = self.lasts.own[USUAL as usize].foretold(own);
        if since >= LEAP || !foretold || self.log.len() == self.log.capacity() {
            return self.long(USUAL, foretold, now, own);
        }
        self.lasts.now = now.0;
        let first = self.first(USUAL | FORETOLD) | since << SINCE;
        self.log.push(first);
    }

    /// The same where there is more to it.
    #[cold]
    #[inline(never)]
    fn long(&mut self, kind: u64, foretold: bool, now: Instant, own: u64) {
        let first = self.usual(kind, now);
        self.log.push(if foretold { first | FORETOLD } else { first });
        if !foretold {
            self.log.push(own);
        }
    }

    #[inline]
    pub(crate) fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        if outcome.is_err() {
            return self.keep(|| Input::TxDone { now, msg, outcome });
        }
        self.short::<{ words::SENT }>(now, msg.data().as_ffi());
    }

    #[inline]
    pub(crate) fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        if !outcome.is_ok_and(<[u8]>::is_empty) {
            let outcome = || outcome.map(<[u8]>::to_vec);
            return self.keep(|| Input::RxDone { now, msg, outcome: outcome() });
        }
        self.short::<{ words::RECEIVED }>(now, msg.data().as_ffi());
    }

    /// It has no time.
    pub(crate) fn bind(&mut self, md: &MdSpec) {
        let Some(bound) = Bound::of_spec(md) else {
            return self.keep(|| Input::Bind { md: md.clone() });
        };
        let first = self.first(words::BIND);
        let first = self.foretell(words::BIND, first, md.user);
        write(&mut self.lasts.bound, &mut self.log, first, md.user, bound);
    }

    #[inline]
    pub(crate) fn unlink(&mut self, now: Instant, md: MdId) {
        self.short::<{ words::UNLINK }>(now, md.data().as_ffi());
    }

    #[inline]
    pub(crate) fn unlink_at_once(&mut self, now: Instant, md: MdId) {
        self.short::<{ words::UNLINK_AT_ONCE }>(now, md.data().as_ffi());
    }

    #[inline]
    pub(crate) fn put(&mut self, now: Instant, put: &Put) {
        if put.src.is_some() || put.timeout.is_some() {
            return self.keep(|| Input::Put { now, put: *put });
        }
        let md = put.md.data().as_ffi();
        if words::same_put(&self.lasts.put, put) {
            return self.short::<{ words::PUT }>(now, md);
        }
        self.other_put(now, md, put);
    }

    #[inline(never)]
    fn other_put(&mut self, now: Instant, md: u64, put: &Put) {
        let first = self.usual(words::PUT, now);
        let first = self.foretell(words::PUT, first, md);
        write(&mut self.lasts.put, &mut self.log, first, md, *put);
    }

    #[inline]
    pub(crate) fn get(&mut self, now: Instant, get: &Get) {
        if get.src.is_some() || get.timeout.is_some() {
            return self.keep(|| Input::Get { now, get: *get });
        }
        let md = get.md.data().as_ffi();
        if words::same_get(&self.lasts.get, get) {
            return self.short::<{ words::GET }>(now, md);
        }
        let first = self.usual(words::GET, now);
        let first = self.foretell(words::GET, first, md);
        write(&mut self.lasts.get, &mut self.log, first, md, *get);
    }

    /// Its own word is the object of its handle.
    #[inline]
    pub(crate) fn rx_header(&mut self, now: Instant, rx: &Rx, hdr: &Hdr, verdict: &Verdict) {
        let own = Header::object(hdr);
        if self.lasts.header.is_as(rx, hdr) {
            self.short::<{ words::HEADER }>(now, own);
        } else {
            self.other_header(now, own, rx, hdr);
        }
        self.sums.verdict(verdict);
    }

    #[inline(never)]
    fn other_header(&mut self, now: Instant, own: u64, rx: &Rx, hdr: &Hdr) {
        let first = self.usual(words::HEADER, now);
        let first = self.foretell(words::HEADER, first, own);
        let header = Header { rx: *rx, hdr: *hdr };
        write(&mut self.lasts.header, &mut self.log, first, own, header);
    }

    #[inline]
    pub(super) fn output(&mut self, output: &Output) {
        self.sums.output(output);
        self.given += OUTPUT;
        if self.given & OUTPUTS == OUTPUTS {
            self.report_given();
        }
    }

    #[inline]
    pub(super) fn event(&mut self, event: &Event) {
        self.sums.event(event);
        self.given += EVENT;
        if self.given & EVENTS == EVENTS {
            self.report_given();
        }
    }

    /// It would not fit the word of the next call.
    #[cold]
    #[inline(never)]
    fn report_given(&mut self) {
        let first = self.first(GIVEN);
        self.log.push(first);
    }

    /// What is rarely given.
    #[cold]
    pub(super) fn one(&mut self, mark: Mark) {
        self.log.push(ONE | (mark.kind as u64) << 4 | u64::from(mark.sum) << 32);
    }

    /// As it is written to a file.
    pub(super) fn stretch(&self) -> Stretch {
        let mut others = self.others.iter();
        let mut lasts = Lasts::first_ones();
        let (mut calls, mut given) = (Vec::new(), Vec::new());
        let last = GIVEN | self.given | u64::from(self.sums.all()) << SUM;
        let mut log = self.log.iter().copied().chain([last]);
        while let Some(first) = log.next() {
            let before = calls.len() as u32;
            let kind = first & KIND;
            match kind {
                CLOCK => lasts.now = words::word(&mut log),
                ONE => {
                    let kind = MarkKind::of((first >> 4) & KIND);
                    given.push((before, Given::One(Mark { kind, sum: (first >> 32) as u32 })));
                }
                _ => {
                    let outputs = ((first & OUTPUTS) / OUTPUT) as u8;
                    let events = ((first & EVENTS) / EVENT) as u8;
                    let sum = (first >> SUM) as u32;
                    given.push((before, Given::Usual { outputs, events, sum }));
                    match kind {
                        GIVEN => {}
                        OTHER => calls.extend(others.next().cloned()),
                        _ => calls.extend(lasts.read(first, &mut log)),
                    }
                }
            }
        }
        Stretch { state: self.state.clone(), calls, given }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use lnet_types::{Errno, Fault, HealthStatus, MdId, MsgId, Net, NiId, Nid, Pid, Prng};
    use lnet_types::{ProcessId, RegionId, RxId, Span};
    use lnet_wire::{Handle, Hdr, Kind, MsgType};
    use slotmap::KeyData;

    use super::*;
    use crate::{EventKind, MdOptions, Timeouts, Unlink};

    /// A number that is often one of the last.
    fn word(rng: &mut Prng) -> u64 {
        match rng.below(4) {
            0 => rng.next_u64(),
            1 => u64::MAX,
            _ => rng.below(3),
        }
    }

    fn event(rng: &mut Prng) -> Event {
        let process = ProcessId::lustre(nid(rng));
        Event {
            kind: EventKind::Put,
            status: Ok(()),
            md: key(rng),
            user: 0,
            msg_type: MsgType::Put,
            initiator: process,
            source: process,
            sender: process.nid,
            target: process,
            portal: 0,
            match_bits: word(rng),
            rlength: 0,
            mlength: word(rng) as u32,
            offset: word(rng),
            hdr_data: 0,
            unlinked: false,
        }
    }

    fn key<K: From<KeyData>>(rng: &mut Prng) -> K {
        KeyData::from_ffi(word(rng)).into()
    }

    fn nid(rng: &mut Prng) -> Nid {
        match rng.below(5) {
            0 => Nid::ANY,
            1 => Nid::LOOPBACK,
            2 => Nid::from_ip(Net::TCP, [7; 16].into()),
            n => Nid::new(Net::TCP, n as u32),
        }
    }

    fn bytes<const N: usize>(rng: &mut Prng) -> [u8; N] {
        [0; N].map(|_: u8| word(rng) as u8)
    }

    fn call(rng: &mut Prng, now: Instant) -> Input {
        let fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
        let (md, src) = (key::<MdId>(rng), (rng.below(9) == 0).then(|| nid(rng)));
        let target = ProcessId { nid: nid(rng), pid: Pid(word(rng) as u32) };
        let (portal, match_bits) = (word(rng) as u32, word(rng));
        let (offset, hdr_data) = (word(rng) as u32, word(rng));
        let timeout = (rng.below(9) == 0).then(|| Timeouts::from(Duration::from_secs(1)));
        let handle = Handle { interface: word(rng), object: word(rng) };
        let msg = key::<MsgId>(rng);
        match rng.below(11) {
            10 => Input::UnlinkAtOnce { now, md },
            9 => {
                let span = |rng: &mut Prng| Span {
                    region: RegionId(word(rng) as u32),
                    len: word(rng) as u32,
                    offset: word(rng),
                };
                let md = MdSpec {
                    threshold: (rng.below(2) == 0).then(|| word(rng) as u32),
                    max_size: word(rng) as u32,
                    options: MdOptions::from_bits_retain(word(rng) as u32),
                    events: rng.below(2) == 0,
                    unlink: if rng.below(2) == 0 { Unlink::Auto } else { Unlink::Retain },
                    ..MdSpec::new((0..rng.below(3)).map(|_| span(rng)).collect(), word(rng))
                };
                Input::Bind { md }
            }
            0 => Input::TxDone { now, msg, outcome: Ok(()) },
            1 => Input::TxDone { now, msg, outcome: Err(fault) },
            2 => Input::RxDone { now, msg, outcome: Ok(Vec::new()) },
            3 => Input::RxDone { now, msg, outcome: Ok(vec![1, 2]) },
            4 => Input::Unlink { now, md },
            5 => {
                let ack = rng.below(2) == 0;
                let put =
                    Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout };
                Input::Put { now, put }
            }
            6 => {
                let get = Get { md, src, target, portal, match_bits, offset, timeout };
                Input::Get { now, get }
            }
            7 => Input::HandleTimeout { now },
            _ => {
                let mlength = word(rng) as u32;
                let kind = match rng.below(4) {
                    0 => Kind::Ack { dst: handle, match_bits, mlength, pad: bytes(rng) },
                    1 => Kind::Put { ack: handle, match_bits, hdr_data, portal, offset },
                    2 => {
                        let (sink_len, pad) = (mlength, bytes(rng));
                        Kind::Get { ret: handle, match_bits, portal, offset, sink_len, pad }
                    }
                    _ => Kind::Reply { dst: handle, pad: bytes(rng) },
                };
                let payload_len = word(rng) as u32;
                let (dst, src, dst_pid, src_pid) = (nid(rng), nid(rng), target.pid, Pid(12345));
                let hdr = Hdr { dst, src, dst_pid, src_pid, payload_len, kind };
                let (ni, from) = (key::<NiId>(rng), nid(rng));
                let rx = Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: None, id: RxId(word(rng)) };
                Input::RxHeader { now, rx, hdr }
            }
        }
    }

    #[test]
    fn recorded_calls_are_read_back_unchanged_whatever_the_clock_does() {
        let mut rng = Prng::new(4711);
        let mut live = Live::new();
        live.begin(vec![1], 100_000);
        let (mut calls, mut given, mut sums) = (Vec::new(), vec![(0, 0, 0)], Sums::default());
        let mut ones = Vec::new();
        let mut now = 0u64;
        for _ in 0..20_000 {
            now = match rng.below(20) {
                0 => rng.next_u64(),
                1 => now.saturating_sub(5),
                2 => now.saturating_add(5_000_000_000),
                3 => now.saturating_add(LEAP - 2 + rng.below(4)),
                _ => now.saturating_add(rng.below(100_000)),
            };
            let call = call(&mut rng, Instant(now));
            calls.push(call.clone());
            if let Input::RxHeader { now, rx, hdr } = call {
                live.rx_header(now, &rx, &hdr, &Verdict::Defer);
                sums.verdict(&Verdict::Defer);
            } else {
                live.push(call);
            }
            // Sometimes more than a word can hold.
            let many = if rng.below(100) == 0 { 300 } else { 3 };
            let (outputs, events) = (rng.below(many), rng.below(many));
            for _ in 0..outputs {
                let rx = RxId(word(&mut rng));
                let output = Output::Resume { ni: key(&mut rng), rx, verdict: Verdict::Defer };
                live.output(&output);
                sums.output(&output);
            }
            for _ in 0..events {
                let event = event(&mut rng);
                live.event(&event);
                sums.event(&event);
            }
            given.push((outputs, events, sums.all()));
            if rng.below(100) == 0 {
                let sum = rng.next_u64() as u32;
                let mark = Mark { kind: MarkKind::of(2 + rng.below(2)), sum };
                live.one(mark);
                ones.push((calls.len() as u32, Given::One(mark)));
            }
        }
        let stretch = live.stretch();
        assert_eq!(stretch.calls.len(), calls.len());
        for (n, (got, made)) in stretch.calls.iter().zip(&calls).enumerate() {
            assert_eq!(format!("{got:?}"), format!("{made:?}"), "call {n}");
        }
        let mut came = vec![(0, 0, 0); given.len()];
        for (at, given) in &stretch.given {
            if let Given::Usual { outputs, events, sum } = given {
                let (o, e, _) = came[*at as usize];
                came[*at as usize] = (o + u64::from(*outputs), e + u64::from(*events), *sum);
            }
        }
        assert_eq!(came, given);
        let is_one = |(_, given): &&(u32, Given)| matches!(given, Given::One(_));
        assert_eq!(stretch.given.iter().filter(is_one).copied().collect::<Vec<_>>(), ones);
    }

    #[test]
    fn a_stretch_holds_the_calls_that_it_must_and_the_usual_ones_of_one_peer_are_many() {
        let mut rng = Prng::new(815);
        let mut live = Live::new();
        live.begin(vec![1], 1000);
        let mut calls = 0;
        while !live.is_full() {
            let now = Instant(rng.next_u64());
            live.push(call(&mut rng, now));
            calls += 1;
        }
        assert!(calls >= 1000, "{calls}");
        live.begin(vec![1], 1000);
        calls = 0;
        while !live.is_full() {
            let md = KeyData::from_ffi(rng.next_u64() | 1 << 32).into();
            live.push(Input::Unlink { now: Instant(calls * 1000), md });
            calls += 1;
        }
        assert_eq!(calls, 10_000);
        live.begin(vec![1], 1000);
        calls = 0;
        while !live.is_full() {
            live.push(Input::HandleTimeout { now: Instant(calls * 1000) });
            calls += 1;
        }
        assert_eq!(calls, 4000);
    }

    #[test]
    fn messages_of_one_peer_take_a_few_words_each() {
        let mut live = Live::new();
        live.begin(vec![1], 100_000);
        let put = Put {
            md: MdId::from(KeyData::from_ffi(1)),
            ack: false,
            src: None,
            target: ProcessId::lustre(Nid::new(Net::TCP, 9)),
            portal: 3,
            match_bits: 7,
            offset: 0,
            hdr_data: 0,
            timeout: None,
        };
        for n in 0..1000 {
            let md = MdId::from(KeyData::from_ffi((n % 16) | (1 << 32)));
            live.push(Input::Put { now: Instant(n * 1000), put: Put { md, hdr_data: n, ..put } });
        }
        // The descriptor is mostly the next one; the user's word is another one each time.
        assert!(live.log.len() < 2200, "{} words", live.log.len());
    }
}
