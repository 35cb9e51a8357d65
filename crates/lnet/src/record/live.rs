//! A stretch while it is being recorded: words in the order in which things happened. Nearly all calls
//! of a busy node are messages that go well, and take a few words each (`words.rs`); all others are
//! kept as they are. Its memory is used again by the next stretch but one: fresh pages would cost
//! more than what goes into them, and so would more of them than the caches hold.
//!
//! ```text
//!  usual call   kind : 8 │ which words differ : 24 │ ns since the last : 32    those words
//!  other call   OTHER
//!  given        GIVEN + kind : 8 │ sum : 32
//! ```

use lnet_types::Instant;

use super::words::{KINDS, Usual, WORDS};
use super::{Input, Mark, MarkKind, Stretch};

/// First words: the next one of `others`, …
const OTHER: u64 = 0x40;
/// … and what was given.
const GIVEN: u64 = 0x80;

/// What calls are compared with: the last one of each kind.
#[derive(Clone, Debug, Default)]
struct Last {
    now: u64,
    calls: [[u64; WORDS]; KINDS],
}

#[derive(Debug, Default)]
pub(super) struct Live {
    /// The node before the first call.
    state: Vec<u8>,
    log: Vec<u64>,
    others: Vec<Input>,
    last: Last,
    calls: usize,
    marks: usize,
}

impl Live {
    /// Forgets everything and begins with this state.
    pub(super) fn begin(&mut self, state: Vec<u8>) {
        self.state = state;
        self.log.clear();
        self.others.clear();
        self.last = Last::default();
        (self.calls, self.marks) = (0, 0);
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.state.is_empty()
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn marks(&self) -> usize {
        self.marks
    }

    #[inline]
    pub(super) fn push(&mut self, call: Input) {
        self.calls += 1;
        if !Usual::of(&call).is_some_and(|usual| self.push_usual(&usual)) {
            self.others.push(call);
            self.log.push(OTHER);
        }
    }

    /// False if it does not fit: the clock went back, or far ahead.
    #[inline(never)]
    fn push_usual(&mut self, usual: &Usual) -> bool {
        let since = usual.now.0.wrapping_sub(self.last.now);
        let Some(last) = self.last.calls.get_mut(usual.kind) else { return false };
        if since > u64::from(u32::MAX) {
            // Where the clock stands is known from here on.
            self.last.now = usual.now.0;
            return false;
        }
        self.last.now = usual.now.0;
        let mut entry = [0; WORDS + 1];
        let (mut differ, mut n) = (0u64, 1);
        let words = usual.words.iter().zip(last.iter_mut()).take(usual.len);
        for (bit, (word, last)) in words.enumerate() {
            let new = word != last;
            if let Some(place) = entry.get_mut(n) {
                *place = *word;
            }
            *last = *word;
            differ |= u64::from(new) << bit;
            n += usize::from(new);
        }
        entry[0] = usual.kind as u64 | differ << 8 | since << 32;
        self.log.extend_from_slice(entry.get(..n).unwrap_or_default());
        true
    }

    #[inline]
    pub(super) fn mark(&mut self, mark: Mark) {
        self.marks += 1;
        self.log.push(GIVEN | mark.kind as u64 | u64::from(mark.sum) << 32);
    }

    /// As it is written to a file.
    pub(super) fn stretch(&self) -> Stretch {
        let mut others = self.others.iter();
        let mut last = Last::default();
        let (mut calls, mut marks) = (Vec::with_capacity(self.calls), Vec::new());
        let mut log = self.log.iter().copied();
        while let Some(first) = log.next() {
            if first & GIVEN != 0 {
                let kind = MarkKind::of(first & 0x3f);
                marks.push((calls.len() as u32, Mark { kind, sum: (first >> 32) as u32 }));
            } else if first == OTHER {
                let Some(other) = others.next() else { break };
                if let Some(usual) = Usual::of(other) {
                    last.now = usual.now.0;
                }
                calls.push(other.clone());
            } else {
                let (kind, differ) = (first as usize & 0x3f, (first >> 8) & 0xff_ffff);
                let Some(words) = last.calls.get_mut(kind) else { break };
                for (bit, word) in words.iter_mut().enumerate() {
                    if (differ >> bit) & 1 != 0 {
                        *word = log.next().unwrap_or_default();
                    }
                }
                last.now += first >> 32;
                let now = Instant(last.now);
                calls.push(Usual { now, kind, words: *words, len: WORDS }.call());
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
    use crate::{Get, Put, Rx, Timeouts};

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
        let mut live = Live::default();
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
        assert_eq!((live.calls(), live.marks()), (calls.len(), marks.len()));
        assert_eq!(stretch.calls.len(), calls.len());
        for (n, (got, made)) in stretch.calls.iter().zip(&calls).enumerate() {
            assert_eq!(format!("{got:?}"), format!("{made:?}"), "call {n}");
        }
        assert_eq!(stretch.marks, marks);
    }

    #[test]
    fn messages_of_one_peer_take_a_few_words_each() {
        let mut live = Live::default();
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
