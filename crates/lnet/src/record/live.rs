//! A stretch while it is being recorded: words in the order in which things happened. Nearly all calls
//! of a busy node are messages that go well, and take a few words each (`words.rs`); all others are
//! kept as they are. Its memory is used again by the next stretch but one: fresh pages would cost
//! more than what goes into them, and so would more of them than the caches hold.
//!
//! ```text
//!  short call   kind : 8 │ 0 : 24 │ ns since the last : 32    its word
//!  usual call   kind : 8 │ which words differ : 23, and the way : 1 │ ns since the last : 32    those
//!  clock        CLOCK   the time from which the next call counts
//!  other call   OTHER
//!  given        GIVEN + kind : 8 │ sum : 32
//! ```
//!
//! The usual calls are noted from their arguments; an [`Input`] is made of them when the recording is
//! taken out.

use lnet_types::{Fault, Instant, MdId, MsgId, ProcessId};
use lnet_wire::Hdr;
use slotmap::{Key, KeyData};

use super::words::{self, Arrival, Way};
use super::{Input, Mark, MarkKind, Stretch};
use crate::{Get, Put, Rx};

/// First words: the next one of `others`, …
const OTHER: u64 = 0x40;
/// … the time, …
const CLOCK: u64 = 0x41;
/// … and what was given.
const GIVEN: u64 = 0x80;

/// In a usual call's first word: the way differs.
const WAY: u64 = 1 << 31;

/// The last call of a kind, which the next one is compared with.
#[derive(Clone, Copy, Debug)]
struct Last<W, const N: usize> {
    way: W,
    words: [u64; N],
}

impl<W: Way, const N: usize> Last<W, N> {
    const FIRST: Self = Self { way: W::FIRST, words: [0; N] };

    /// Writes what differs, behind a first word that says what that is.
    #[inline]
    fn write(&mut self, log: &mut Vec<u64>, first: u64, way: &W, words: [u64; N]) {
        let mut differ = 0u64;
        for (bit, (word, last)) in words.iter().zip(&self.words).enumerate() {
            differ |= u64::from(word != last) << bit;
        }
        if *way == self.way {
            log.push(first | differ << 8);
        } else {
            self.turn(log, first | differ << 8, way);
        }
        self.words = words;
        let mut left = differ;
        while left != 0 {
            log.extend(words.get(left.trailing_zeros() as usize));
            left &= left - 1;
        }
    }

    #[inline(never)]
    fn turn(&mut self, log: &mut Vec<u64>, first: u64, way: &W) {
        log.push(first | WAY);
        way.write(log);
        self.way = *way;
    }

    /// The call behind this first word.
    fn read(&mut self, first: u64, log: &mut impl Iterator<Item = u64>) -> (W, [u64; N]) {
        if first & WAY != 0 {
            self.way = W::read(log);
        }
        for (bit, word) in self.words.iter_mut().enumerate() {
            if (first >> (8 + bit)) & 1 != 0 {
                *word = log.next().unwrap_or_default();
            }
        }
        (self.way, self.words)
    }
}

/// The last call of each kind, and when the last one of all was.
#[derive(Clone, Debug)]
struct Lasts {
    now: u64,
    put: Last<ProcessId, 5>,
    get: Last<ProcessId, 3>,
    header: Last<Arrival, 7>,
}

impl Lasts {
    const FIRST: Self = Self { now: 0, put: Last::FIRST, get: Last::FIRST, header: Last::FIRST };

    /// The first word of a usual call.
    #[inline]
    fn first(&mut self, log: &mut Vec<u64>, kind: u64, now: Instant) -> u64 {
        let since = now.0.wrapping_sub(self.now);
        self.now = now.0;
        if since > u64::from(u32::MAX) {
            // The clock went back, or far ahead.
            log.extend_from_slice(&[CLOCK, now.0]);
            return kind;
        }
        kind | since << 32
    }

    /// The usual call behind this first word.
    fn read(&mut self, first: u64, log: &mut impl Iterator<Item = u64>) -> Option<Input> {
        self.now = self.now.wrapping_add(first >> 32);
        let now = Instant(self.now);
        let mut key = || KeyData::from_ffi(log.next().unwrap_or_default());
        Some(match first & 0xff {
            words::SENT => Input::TxDone { now, msg: key().into(), outcome: Ok(()) },
            words::RECEIVED => Input::RxDone { now, msg: key().into(), outcome: Ok(Vec::new()) },
            words::UNLINK => Input::Unlink { now, md: key().into() },
            words::PUT => {
                let (target, words) = self.put.read(first, log);
                words::to_put(now, target, words)
            }
            words::GET => {
                let (target, words) = self.get.read(first, log);
                words::to_get(now, target, words)
            }
            words::HEADER => {
                let (arrival, words) = self.header.read(first, log);
                words::to_header(now, arrival, words)
            }
            _ => return None,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Live {
    /// The node before the first call.
    state: Vec<u8>,
    log: Vec<u64>,
    others: Vec<Input>,
    lasts: Lasts,
    calls: usize,
}

impl Live {
    /// Nothing yet.
    pub(super) const fn new() -> Self {
        Self {
            state: Vec::new(),
            log: Vec::new(),
            others: Vec::new(),
            lasts: Lasts::FIRST,
            calls: 0,
        }
    }

    /// Forgets everything and begins with this state.
    pub(super) fn begin(&mut self, state: Vec<u8>) {
        self.state = state;
        self.log.clear();
        self.others.clear();
        self.lasts = Lasts::FIRST;
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
    pub(super) fn push(&mut self, call: Input) {
        match call {
            Input::TxDone { now, msg, outcome } => self.tx_done(now, msg, outcome),
            Input::RxDone { now, msg, outcome } => {
                self.rx_done(now, msg, outcome.as_deref().map_err(|fault| *fault));
            }
            Input::Unlink { now, md } => self.unlink(now, md),
            Input::Put { now, put } => self.put(now, &put),
            Input::Get { now, get } => self.get(now, &get),
            Input::RxHeader { now, rx, hdr } => self.rx_header(now, &rx, &hdr),
            other => self.keep(other),
        }
    }

    /// A call that is kept as it is.
    #[cold]
    fn keep(&mut self, call: Input) {
        self.calls += 1;
        self.log.push(OTHER);
        self.others.push(call);
    }

    /// A call with one argument, which is another one each time.
    #[inline]
    fn short(&mut self, kind: u64, now: Instant, word: u64) {
        self.calls += 1;
        let first = self.lasts.first(&mut self.log, kind, now);
        self.log.extend_from_slice(&[first, word]);
    }

    #[inline]
    pub(crate) fn tx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<(), Fault>) {
        if outcome.is_err() {
            return self.keep(Input::TxDone { now, msg, outcome });
        }
        self.short(words::SENT, now, msg.data().as_ffi());
    }

    #[inline]
    pub(crate) fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        if outcome.is_ok_and(<[u8]>::is_empty) {
            self.short(words::RECEIVED, now, msg.data().as_ffi());
        } else {
            self.keep(Input::RxDone { now, msg, outcome: outcome.map(<[u8]>::to_vec) });
        }
    }

    #[inline]
    pub(crate) fn unlink(&mut self, now: Instant, md: MdId) {
        self.short(words::UNLINK, now, md.data().as_ffi());
    }

    #[inline]
    pub(crate) fn put(&mut self, now: Instant, put: &Put) {
        if put.src.is_some() || put.timeout.is_some() {
            return self.keep(Input::Put { now, put: *put });
        }
        self.calls += 1;
        let first = self.lasts.first(&mut self.log, words::PUT, now);
        self.lasts.put.write(&mut self.log, first, &put.target, words::of_put(put));
    }

    #[inline]
    pub(crate) fn get(&mut self, now: Instant, get: &Get) {
        if get.src.is_some() || get.timeout.is_some() {
            return self.keep(Input::Get { now, get: *get });
        }
        self.calls += 1;
        let first = self.lasts.first(&mut self.log, words::GET, now);
        self.lasts.get.write(&mut self.log, first, &get.target, words::of_get(get));
    }

    #[inline]
    pub(crate) fn rx_header(&mut self, now: Instant, rx: &Rx, hdr: &Hdr) {
        self.calls += 1;
        let (arrival, words) = words::of_header(rx, hdr);
        let first = self.lasts.first(&mut self.log, words::HEADER, now);
        self.lasts.header.write(&mut self.log, first, &arrival, words);
    }

    #[inline]
    pub(super) fn mark(&mut self, mark: Mark) {
        self.log.push(GIVEN | mark.kind as u64 | u64::from(mark.sum) << 32);
    }

    /// As it is written to a file.
    pub(super) fn stretch(&self) -> Stretch {
        let mut others = self.others.iter();
        let mut lasts = Lasts::FIRST;
        let (mut calls, mut marks) = (Vec::with_capacity(self.calls), Vec::new());
        let mut log = self.log.iter().copied();
        while let Some(first) = log.next() {
            match first {
                OTHER => calls.extend(others.next().cloned()),
                CLOCK => lasts.now = log.next().unwrap_or_default(),
                _ if first & GIVEN != 0 => {
                    let kind = MarkKind::of(first & 0x3f);
                    marks.push((calls.len() as u32, Mark { kind, sum: (first >> 32) as u32 }));
                }
                _ => calls.extend(lasts.read(first, &mut log)),
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
                _ => now.saturating_add(rng.below(100_000)),
            };
            let call = call(&mut rng, Instant(now));
            live.push(call.clone());
            calls.push(call);
            for _ in 0..rng.below(3) {
                let kind = MarkKind::of(rng.below(5));
                let mark = Mark { kind, sum: rng.next_u64() as u32 };
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
        assert!(live.log.len() < 3100, "{} words", live.log.len());
    }
}
