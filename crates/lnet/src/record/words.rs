//! The usual calls as words, of which only those are kept that differ from the last call of the same
//! kind: between two messages of one peer three or four.

use lnet_types::{Instant, Nid, Pid, ProcessId, RxId};
use lnet_wire::{Handle, Hdr, Kind};
use slotmap::{Key, KeyData};

use super::Input;
use crate::{Get, Put, Rx};

/// Most words of a usual call.
pub(super) const WORDS: usize = 17;

/// Kinds of usual calls.
pub(super) const KINDS: usize = 6;

/// A usual call.
pub(super) struct Usual {
    pub(super) now: Instant,
    /// Below [`KINDS`].
    pub(super) kind: usize,
    pub(super) words: [u64; WORDS],
    /// How many of them mean something.
    pub(super) len: usize,
}

const SENT: usize = 0;
const RECEIVED: usize = 1;
const PUT: usize = 2;
const GET: usize = 3;
const HEADER: usize = 4;
const UNLINK: usize = 5;

/// A NID and a number of 32 bits.
fn process(nid: Nid, pid: Pid) -> [u64; 3] {
    let &[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = nid.as_wire();
    let tail = u32::from_ne_bytes([q, r, s, t]);
    [
        u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        u64::from_ne_bytes([i, j, k, l, m, n, o, p]),
        pair(tail, pid.0),
    ]
}

fn to_process(words: [u64; 3]) -> ProcessId {
    let [a, b, c] = words;
    let (tail, pid) = unpair(c);
    let mut wire = [0; 20];
    let bytes = a.to_ne_bytes().into_iter().chain(b.to_ne_bytes()).chain(tail.to_ne_bytes());
    for (place, byte) in wire.iter_mut().zip(bytes) {
        *place = byte;
    }
    // It was a NID.
    ProcessId { nid: Nid::from_wire(wire).unwrap_or(Nid::ANY), pid: Pid(pid) }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Usual {
    #[inline]
    fn new<const N: usize>(now: Instant, kind: usize, some: [u64; N]) -> Self {
        let mut words = [0; WORDS];
        for (place, word) in words.iter_mut().zip(some) {
            *place = word;
        }
        Self { now, kind, words, len: N }
    }

    /// `None` for a call that is kept as it is.
    #[inline]
    pub(super) fn of(call: &Input) -> Option<Self> {
        Some(match *call {
            Input::TxDone { now, msg, outcome: Ok(()) } => {
                Self::new(now, SENT, [msg.data().as_ffi()])
            }
            Input::RxDone { now, msg, outcome: Ok(ref bytes) } if bytes.is_empty() => {
                Self::new(now, RECEIVED, [msg.data().as_ffi()])
            }
            Input::Unlink { now, md } => Self::new(now, UNLINK, [md.data().as_ffi()]),
            Input::Put { now, put } => {
                let Put { md, ack, target, portal, match_bits, offset, hdr_data, .. } = put;
                if put.src.is_some() || put.timeout.is_some() {
                    return None;
                }
                let [a, b, c] = process(target.nid, target.pid);
                let (md, place) = (md.data().as_ffi(), pair(portal, offset));
                Self::new(now, PUT, [md, a, b, c, place, match_bits, hdr_data, ack.into()])
            }
            Input::Get { now, get } => {
                let Get { md, target, portal, match_bits, offset, .. } = get;
                if get.src.is_some() || get.timeout.is_some() {
                    return None;
                }
                let [a, b, c] = process(target.nid, target.pid);
                let (md, place) = (md.data().as_ffi(), pair(portal, offset));
                Self::new(now, GET, [md, a, b, c, place, match_bits])
            }
            Input::RxHeader { now, rx, hdr } => Self::header(now, &rx, &hdr),
            _ => return None,
        })
    }

    #[inline]
    fn header(now: Instant, rx: &Rx, hdr: &Hdr) -> Self {
        let [a, b, c] = process(rx.from, rx.from_pid);
        let [d, e, f] = process(hdr.dst, hdr.dst_pid);
        let [g, h, i] = process(hdr.src, hdr.src_pid);
        let (handle, [x, y, z]) = match hdr.kind {
            Kind::Ack { dst, match_bits, mlength } => (dst, [match_bits, mlength.into(), 0]),
            Kind::Put { ack, match_bits, hdr_data, portal, offset } => {
                (ack, [match_bits, hdr_data, pair(portal, offset)])
            }
            Kind::Get { ret, match_bits, portal, offset, sink_len } => {
                (ret, [match_bits, sink_len.into(), pair(portal, offset)])
            }
            Kind::Reply { dst } => (dst, [0; 3]),
        };
        let kind = match hdr.kind {
            Kind::Ack { .. } => 0,
            Kind::Put { .. } => 1,
            Kind::Get { .. } => 2,
            Kind::Reply { .. } => 3,
        };
        let (ni, what) = (rx.ni.data().as_ffi(), pair(hdr.payload_len, kind));
        let Handle { interface, object } = handle;
        let id = rx.id.0;
        let all = [ni, id, a, b, c, d, e, f, g, h, i, what, interface, object, x, y, z];
        Self::new(now, HEADER, all)
    }

    /// The call that it was.
    pub(super) fn call(&self) -> Input {
        let (now, w) = (self.now, &self.words);
        let [first, ..] = *w;
        let target = || to_process([w[1], w[2], w[3]]);
        let (portal, offset) = unpair(w[4]);
        match self.kind {
            SENT => Input::TxDone { now, msg: KeyData::from_ffi(first).into(), outcome: Ok(()) },
            RECEIVED => {
                let msg = KeyData::from_ffi(first).into();
                Input::RxDone { now, msg, outcome: Ok(Vec::new()) }
            }
            UNLINK => Input::Unlink { now, md: KeyData::from_ffi(first).into() },
            PUT => {
                let put = Put {
                    md: KeyData::from_ffi(first).into(),
                    ack: w[7] != 0,
                    src: None,
                    target: target(),
                    portal,
                    match_bits: w[5],
                    offset,
                    hdr_data: w[6],
                    timeout: None,
                };
                Input::Put { now, put }
            }
            GET => {
                let get = Get {
                    md: KeyData::from_ffi(first).into(),
                    src: None,
                    target: target(),
                    portal,
                    match_bits: w[5],
                    offset,
                    timeout: None,
                };
                Input::Get { now, get }
            }
            _ => self.as_header(),
        }
    }

    fn as_header(&self) -> Input {
        let [ni, id, a, b, c, d, e, f, g, h, i, what, interface, object, x, y, z] = self.words;
        let [from, dst, src] = [[a, b, c], [d, e, f], [g, h, i]].map(to_process);
        let rx = Rx {
            ni: KeyData::from_ffi(ni).into(),
            from: from.nid,
            from_pid: from.pid,
            id: RxId(id),
        };
        let (payload_len, kind) = unpair(what);
        let handle = Handle { interface, object };
        let (portal, offset) = unpair(z);
        let kind = match kind {
            0 => Kind::Ack { dst: handle, match_bits: x, mlength: y as u32 },
            1 => Kind::Put { ack: handle, match_bits: x, hdr_data: y, portal, offset },
            2 => Kind::Get { ret: handle, match_bits: x, portal, offset, sink_len: y as u32 },
            _ => Kind::Reply { dst: handle },
        };
        let hdr = Hdr {
            dst: dst.nid,
            src: src.nid,
            dst_pid: dst.pid,
            src_pid: src.pid,
            payload_len,
            kind,
        };
        Input::RxHeader { now: self.now, rx, hdr }
    }
}
