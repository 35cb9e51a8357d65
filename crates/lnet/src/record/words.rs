//! The usual calls in two parts: who talks to whom, which mostly is what it was in the last call of the
//! same kind, and a few words, which mostly are not. Only what differs is kept: between two messages
//! of one peer two or three words. `live.rs` keeps them.

use lnet_types::{Instant, Nid, Pid, ProcessId, RxId};
use lnet_wire::{Handle, Hdr, Kind};
use slotmap::{Key, KeyData};

use super::Input;
use crate::{Get, Put, Rx};

/// Kinds of usual calls, as the log has them.
pub(super) const SENT: u64 = 0;
pub(super) const RECEIVED: u64 = 1;
pub(super) const UNLINK: u64 = 2;
pub(super) const PUT: u64 = 3;
pub(super) const GET: u64 = 4;
pub(super) const HEADER: u64 = 5;

/// Who talks to whom.
pub(super) trait Way: Copy + PartialEq {
    /// What the first call of a stretch is compared with.
    const FIRST: Self;
    fn write(&self, log: &mut Vec<u64>);
    fn read(log: &mut impl Iterator<Item = u64>) -> Self;
}

impl Way for ProcessId {
    const FIRST: Self = Self { nid: Nid::ANY, pid: Pid(0) };

    fn write(&self, log: &mut Vec<u64>) {
        let &[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = self.nid.as_wire();
        let tail = u32::from_ne_bytes([q, r, s, t]);
        log.push(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        log.push(u64::from_ne_bytes([i, j, k, l, m, n, o, p]));
        log.push(pair(tail, self.pid.0));
    }

    fn read(log: &mut impl Iterator<Item = u64>) -> Self {
        let [a, b, c] = [(); 3].map(|()| log.next().unwrap_or_default());
        let (tail, pid) = unpair(c);
        let mut wire = [0; 20];
        let bytes = a.to_ne_bytes().into_iter().chain(b.to_ne_bytes()).chain(tail.to_ne_bytes());
        for (place, byte) in wire.iter_mut().zip(bytes) {
            *place = byte;
        }
        // It was a NID.
        Self { nid: Nid::from_wire(wire).unwrap_or(Nid::ANY), pid: Pid(pid) }
    }
}

/// The way of an arriving message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    /// An interface as a number.
    ni: u64,
    /// What the driver calls the connection.
    id: RxId,
    from: ProcessId,
    /// Not the process: a mark against duplicates stands there.
    dst: Nid,
    src: ProcessId,
}

impl Way for Arrival {
    const FIRST: Self =
        Self { ni: 0, id: RxId(0), from: ProcessId::FIRST, dst: Nid::ANY, src: ProcessId::FIRST };

    fn write(&self, log: &mut Vec<u64>) {
        log.extend_from_slice(&[self.ni, self.id.0]);
        for process in [self.from, ProcessId { nid: self.dst, pid: Pid(0) }, self.src] {
            process.write(log);
        }
    }

    fn read(log: &mut impl Iterator<Item = u64>) -> Self {
        let [ni, id] = [(); 2].map(|()| log.next().unwrap_or_default());
        let [from, dst, src] = [(); 3].map(|()| ProcessId::read(log));
        Self { ni, id: RxId(id), from, dst: dst.nid, src }
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The words of a PUT.
#[inline]
pub(super) fn of_put(put: &Put) -> [u64; 5] {
    let Put { md, ack, portal, match_bits, offset, hdr_data, .. } = *put;
    [md.data().as_ffi(), hdr_data, match_bits, pair(portal, offset), ack.into()]
}

/// The PUT that it was.
pub(super) fn to_put(now: Instant, target: ProcessId, words: [u64; 5]) -> Input {
    let [md, hdr_data, match_bits, place, ack] = words;
    let (portal, offset) = unpair(place);
    let md = KeyData::from_ffi(md).into();
    let (ack, src, timeout) = (ack != 0, None, None);
    let put = Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout };
    Input::Put { now, put }
}

/// The words of a GET.
#[inline]
pub(super) fn of_get(get: &Get) -> [u64; 3] {
    let Get { md, portal, match_bits, offset, .. } = *get;
    [md.data().as_ffi(), match_bits, pair(portal, offset)]
}

/// The GET that it was.
pub(super) fn to_get(now: Instant, target: ProcessId, words: [u64; 3]) -> Input {
    let [md, match_bits, place] = words;
    let (portal, offset) = unpair(place);
    let md = KeyData::from_ffi(md).into();
    let get = Get { md, src: None, target, portal, match_bits, offset, timeout: None };
    Input::Get { now, get }
}

/// The way and the words of a header.
#[inline]
pub(super) fn of_header(rx: &Rx, hdr: &Hdr) -> (Arrival, [u64; 7]) {
    let (kind, handle, [x, y, z]) = match hdr.kind {
        Kind::Ack { dst, match_bits, mlength } => (0, dst, [match_bits, mlength.into(), 0]),
        Kind::Put { ack, match_bits, hdr_data, portal, offset } => {
            (1, ack, [match_bits, hdr_data, pair(portal, offset)])
        }
        Kind::Get { ret, match_bits, portal, offset, sink_len } => {
            (2, ret, [match_bits, sink_len.into(), pair(portal, offset)])
        }
        Kind::Reply { dst } => (3, dst, [0; 3]),
    };
    let arrival = Arrival {
        ni: rx.ni.data().as_ffi(),
        from: ProcessId { nid: rx.from, pid: rx.from_pid },
        id: rx.id,
        dst: hdr.dst,
        src: ProcessId { nid: hdr.src, pid: hdr.src_pid },
    };
    let Handle { interface, object } = handle;
    (arrival, [pair(hdr.payload_len, kind), hdr.dst_pid.0.into(), interface, object, x, y, z])
}

/// The header that it was.
pub(super) fn to_header(now: Instant, arrival: Arrival, words: [u64; 7]) -> Input {
    let [what, dst_pid, interface, object, x, y, z] = words;
    let Arrival { ni, id, from, dst, src } = arrival;
    let (payload_len, kind) = unpair(what);
    let handle = Handle { interface, object };
    let (portal, offset) = unpair(z);
    let kind = match kind {
        0 => Kind::Ack { dst: handle, match_bits: x, mlength: y as u32 },
        1 => Kind::Put { ack: handle, match_bits: x, hdr_data: y, portal, offset },
        2 => Kind::Get { ret: handle, match_bits: x, portal, offset, sink_len: y as u32 },
        _ => Kind::Reply { dst: handle },
    };
    let rx = Rx { ni: KeyData::from_ffi(ni).into(), from: from.nid, from_pid: from.pid, id };
    let (dst_pid, src, src_pid) = (Pid(dst_pid as u32), src.nid, src.pid);
    Input::RxHeader { now, rx, hdr: Hdr { dst, src, dst_pid, src_pid, payload_len, kind } }
}
