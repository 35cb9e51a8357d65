//! A stretch while it is being recorded: words in the order in which things happened. Nearly all calls
//! of a busy node are messages that go well, and take a few words each (`words.rs`); all others are
//! kept as they are. Its memory is used again by the next stretch but one: fresh pages would cost
//! more than what goes into them, and so would more of them than the caches hold.
//!
//! ```text
//!  usual call   kind : 3 │ way differs : 1 │ which words differ : 7 │ ns since the last : 20 │ 0
//!               its own word    the way and the words, those that differ
//!  clock        CLOCK : 3     the time from which the next call counts
//!  other call   OTHER : 3
//!  given        sum : 28 │ kind : 3 │ 1
//! ```
//!
//! The log is of 32 bits a piece, and a call's word takes two: the fewer bytes, the fewer lines of
//! the caches are taken from what the node works with.
//!
//! A header's own word is its destination's process and, above it, the sum of the verdict that
//! every one gets.
//!
//! The usual calls are noted from their arguments; an [`Input`] is made of them when the recording is
//! taken out.

use lnet_types::{Fault, Instant, MdId, MsgId};
use lnet_wire::Hdr;
use slotmap::{Key, KeyData};

use super::words::{self, Header, Usual, Way};
use super::{Input, Mark, MarkKind, Stretch};
use crate::{Get, Put, Rx};

/// Kinds of first words beside those of usual calls: the next one of `others`, …
const OTHER: u32 = 6;
/// … and the time.
const CLOCK: u32 = 7;
/// In a first word: this is something that was given.
const GIVEN: u32 = 1 << 31;
/// Where its kind stands, above its sum.
const GIVEN_KIND: u32 = Mark::SUM_BITS;

/// The bits of a first word that say its kind.
const KIND: u32 = 7;
/// In a usual call's first word: the way differs.
const WAY: u32 = 1 << 3;
/// Where it says which words differ, …
const DIFFER: u32 = 4;
/// … and the time since the last call, …
const SINCE: u32 = 11;
/// … which is less than this.
const LEAP: u64 = 1 << 20;

/// Writes what differs from the last call of the kind, behind a first word that says what that is.
#[inline(never)]
fn write<C: Usual<N>, const N: usize>(
    last: &mut C,
    log: &mut Vec<u32>,
    first: u32,
    own: u64,
    call: C,
) {
    let ((last_way, before), (way, words)) = (last.parts(), call.parts());
    let mut differ = 0;
    for (bit, (word, before)) in words.iter().zip(&before).enumerate() {
        differ |= u32::from(word != before) << bit;
    }
    let turned = way != last_way;
    let (low, high) = words::unpair(own);
    let first = first | differ << DIFFER | if turned { WAY } else { 0 };
    log.extend_from_slice(&[first, low, high]);
    if turned {
        way.write(log);
    }
    for (word, before) in words.iter().zip(&before) {
        if word != before {
            log.extend_from_slice(&<[u32; 2]>::from(words::unpair(*word)));
        }
    }
    *last = call;
}

/// The call behind this first word.
fn read<C: Usual<N>, const N: usize>(
    last: &mut C,
    first: u32,
    own: u64,
    log: &mut impl Iterator<Item = u32>,
) -> C {
    let (mut way, mut words) = last.parts();
    if first & WAY != 0 {
        way = C::Way::read(log);
    }
    for (bit, word) in words.iter_mut().enumerate() {
        if (first >> DIFFER >> bit) & 1 != 0 {
            *word = words::long(log);
        }
    }
    *last = C::of(own, way, words);
    *last
}

/// The last call of each kind, and when the last one of all was.
#[derive(Clone, Debug)]
struct Lasts {
    now: u64,
    put: Put,
    get: Get,
    header: Header,
}

impl Lasts {
    fn first_ones() -> Self {
        Self { now: 0, put: Put::first(), get: Get::first(), header: Header::first() }
    }

    /// The first word of a usual call.
    #[inline]
    fn first(&mut self, log: &mut Vec<u32>, kind: u32, now: Instant) -> u32 {
        let since = now.0.wrapping_sub(self.now);
        self.now = now.0;
        if since >= LEAP {
            leap(log, now);
            return kind;
        }
        kind | (since as u32) << SINCE
    }

    /// The usual call behind this first word, and the verdict that it got.
    fn read(
        &mut self,
        first: u32,
        log: &mut impl Iterator<Item = u32>,
    ) -> Option<(Input, Option<Mark>)> {
        self.now = self.now.wrapping_add((first >> SINCE).into());
        let now = Instant(self.now);
        let own = words::long(log);
        let key = KeyData::from_ffi(own);
        let call = match first & KIND {
            words::SENT => Input::TxDone { now, msg: key.into(), outcome: Ok(()) },
            words::RECEIVED => Input::RxDone { now, msg: key.into(), outcome: Ok(Vec::new()) },
            words::UNLINK => Input::Unlink { now, md: key.into() },
            words::PUT => Input::Put { now, put: read(&mut self.put, first, own, log) },
            words::GET => Input::Get { now, get: read(&mut self.get, first, own, log) },
            words::HEADER => {
                let Header { rx, hdr } = read(&mut self.header, first, own, log);
                let sum = (own >> 32) as u32;
                let verdict = Mark { kind: MarkKind::Verdict, sum };
                return Some((Input::RxHeader { now, rx, hdr }, Some(verdict)));
            }
            _ => return None,
        };
        Some((call, None))
    }
}

/// The clock went back, or far ahead.
#[cold]
#[inline(never)]
fn leap(log: &mut Vec<u32>, now: Instant) {
    let (low, high) = words::unpair(now.0);
    log.extend_from_slice(&[CLOCK, low, high]);
}

#[derive(Debug)]
pub(crate) struct Live {
    /// The node before the first call.
    state: Vec<u8>,
    log: Vec<u32>,
    others: Vec<Input>,
    lasts: Lasts,
    calls: usize,
}

impl Live {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            state: Vec::new(),
            log: Vec::new(),
            others: Vec::new(),
            lasts: Lasts::first_ones(),
            calls: 0,
        }
    }

    /// Forgets everything and begins with this state.
    pub(super) fn begin(&mut self, state: Vec<u8>) {
        self.state = state;
        self.log.clear();
        self.others.clear();
        self.lasts = Lasts::first_ones();
        self.calls = 0;
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.state.is_empty()
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> usize {
        self.calls
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
            Input::Unlink { now, md } => self.unlink(now, md),
            Input::Put { now, put } => self.put(now, &put),
            Input::Get { now, get } => self.get(now, &get),
            other => self.keep(|| other),
        }
    }

    /// A call that is kept as it is.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, call: impl FnOnce() -> Input) {
        self.calls += 1;
        self.log.push(OTHER);
        self.others.push(call());
    }

    /// A call with one argument, which is another one each time.
    #[inline]
    fn short(&mut self, kind: u32, now: Instant, own: u64) {
        self.calls += 1;
        let first = self.lasts.first(&mut self.log, kind, now);
        let (low, high) = words::unpair(own);
        self.log.extend_from_slice(&[first, low, high]);
    }

    #[inline]
    pub(crate) fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        if outcome.is_err() {
            return self.keep(|| Input::TxDone { now, msg, outcome });
        }
        self.short(words::SENT, now, msg.data().as_ffi());
    }

    #[inline]
    pub(crate) fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        if !outcome.is_ok_and(<[u8]>::is_empty) {
            let outcome = || outcome.map(<[u8]>::to_vec);
            return self.keep(|| Input::RxDone { now, msg, outcome: outcome() });
        }
        self.short(words::RECEIVED, now, msg.data().as_ffi());
    }

    #[inline]
    pub(crate) fn unlink(&mut self, now: Instant, md: MdId) {
        self.short(words::UNLINK, now, md.data().as_ffi());
    }

    #[inline]
    pub(crate) fn put(&mut self, now: Instant, put: &Put) {
        if put.src.is_some() || put.timeout.is_some() {
            return self.keep(|| Input::Put { now, put: *put });
        }
        let md = put.md.data().as_ffi();
        if words::same_put(&self.lasts.put, put) {
            return self.short(words::PUT, now, md);
        }
        self.calls += 1;
        let first = self.lasts.first(&mut self.log, words::PUT, now);
        write(&mut self.lasts.put, &mut self.log, first, md, *put);
    }

    #[inline]
    pub(crate) fn get(&mut self, now: Instant, get: &Get) {
        if get.src.is_some() || get.timeout.is_some() {
            return self.keep(|| Input::Get { now, get: *get });
        }
        let md = get.md.data().as_ffi();
        if words::same_get(&self.lasts.get, get) {
            return self.short(words::GET, now, md);
        }
        self.calls += 1;
        let first = self.lasts.first(&mut self.log, words::GET, now);
        write(&mut self.lasts.get, &mut self.log, first, md, *get);
    }

    #[inline]
    pub(crate) fn rx_header(&mut self, now: Instant, rx: &Rx, hdr: &Hdr, verdict: Mark) {
        let own = u64::from(hdr.dst_pid.0) | u64::from(verdict.sum) << 32;
        if self.lasts.header.is_as(rx, hdr) {
            return self.short(words::HEADER, now, own);
        }
        self.other_header(now, own, rx, hdr);
    }

    #[inline(never)]
    fn other_header(&mut self, now: Instant, own: u64, rx: &Rx, hdr: &Hdr) {
        self.calls += 1;
        let first = self.lasts.first(&mut self.log, words::HEADER, now);
        let header = Header { rx: *rx, hdr: *hdr };
        write(&mut self.lasts.header, &mut self.log, first, own, header);
    }

    #[inline]
    pub(super) fn mark(&mut self, mark: Mark) {
        self.log.push(GIVEN | (mark.kind as u32) << GIVEN_KIND | mark.sum);
    }

    /// As it is written to a file.
    pub(super) fn stretch(&self) -> Stretch {
        let mut others = self.others.iter();
        let mut lasts = Lasts::first_ones();
        let (mut calls, mut marks) = (Vec::with_capacity(self.calls), Vec::new());
        let mut log = self.log.iter().copied();
        while let Some(first) = log.next() {
            match first & KIND {
                _ if first & GIVEN != 0 => {
                    let kind = MarkKind::of((first & !GIVEN) >> GIVEN_KIND);
                    let sum = first & ((1 << GIVEN_KIND) - 1);
                    marks.push((calls.len() as u32, Mark { kind, sum }));
                }
                OTHER => calls.extend(others.next().cloned()),
                CLOCK => lasts.now = words::long(&mut log),
                _ => {
                    if let Some((call, verdict)) = lasts.read(first, &mut log) {
                        calls.push(call);
                        marks.extend(verdict.map(|mark| (calls.len() as u32, mark)));
                    }
                }
            }
        }
        Stretch { state: self.state.clone(), calls, marks }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use lnet_types::{Errno, Fault, HealthStatus, MdId, MsgId, Net, NiId, Nid, Pid, Prng};
    use lnet_types::{ProcessId, RxId};
    use lnet_wire::{Handle, Hdr, Kind};
    use slotmap::KeyData;

    use super::*;
    use crate::Timeouts;

    /// A number that is often one of the last.
    fn word(rng: &mut Prng) -> u64 {
        match rng.below(4) {
            0 => rng.next_u64(),
            1 => u64::MAX,
            _ => rng.below(3),
        }
    }

    fn sum(rng: &mut Prng) -> u32 {
        (rng.next_u64() as u32) >> (32 - Mark::SUM_BITS)
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

    fn call(rng: &mut Prng, now: Instant) -> Input {
        let fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
        let (md, src) = (key::<MdId>(rng), (rng.below(9) == 0).then(|| nid(rng)));
        let target = ProcessId { nid: nid(rng), pid: Pid(word(rng) as u32) };
        let (portal, match_bits) = (word(rng) as u32, word(rng));
        let (offset, hdr_data) = (word(rng) as u32, word(rng));
        let timeout = (rng.below(9) == 0).then(|| Timeouts::from(Duration::from_secs(1)));
        let handle = Handle { interface: word(rng), object: word(rng) };
        let msg = key::<MsgId>(rng);
        match rng.below(9) {
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
                    0 => Kind::Ack { dst: handle, match_bits, mlength },
                    1 => Kind::Put { ack: handle, match_bits, hdr_data, portal, offset },
                    2 => Kind::Get { ret: handle, match_bits, portal, offset, sink_len: mlength },
                    _ => Kind::Reply { dst: handle },
                };
                let payload_len = word(rng) as u32;
                let (dst, src, dst_pid, src_pid) = (nid(rng), nid(rng), target.pid, Pid(12345));
                let hdr = Hdr { dst, src, dst_pid, src_pid, payload_len, kind };
                let (ni, from) = (key::<NiId>(rng), nid(rng));
                let rx = Rx { ni, from, from_pid: Pid::LUSTRE, id: RxId(word(rng)) };
                Input::RxHeader { now, rx, hdr }
            }
        }
    }

    #[test]
    fn what_was_noted_comes_out_as_it_was_whatever_the_clock_does() {
        let mut rng = Prng::new(4711);
        let mut live = Live::new();
        live.begin(vec![1]);
        let (mut calls, mut marks) = (Vec::new(), Vec::new());
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
                let verdict = Mark { kind: MarkKind::Verdict, sum: sum(&mut rng) };
                live.rx_header(now, &rx, &hdr, verdict);
                marks.push((calls.len() as u32, verdict));
            } else {
                live.push(call);
            }
            for _ in 0..rng.below(3) {
                let kind = MarkKind::of(rng.below(5) as u32);
                let mark = Mark { kind, sum: sum(&mut rng) };
                live.mark(mark);
                marks.push((calls.len() as u32, mark));
            }
        }
        let stretch = live.stretch();
        assert_eq!(live.calls(), calls.len());
        assert_eq!(stretch.calls.len(), calls.len());
        for (n, (got, made)) in stretch.calls.iter().zip(&calls).enumerate() {
            assert_eq!(format!("{got:?}"), format!("{made:?}"), "call {n}");
        }
        assert_eq!(stretch.marks, marks);
    }

    #[test]
    fn messages_of_one_peer_take_a_few_words_each() {
        let mut live = Live::new();
        live.begin(vec![1]);
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
        assert!(live.log.len() < 5100, "{} words", live.log.len());
    }
}
