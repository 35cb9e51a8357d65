//! The usual calls in three parts: one word that is another one each time, sender with receiver,
//! and a few words more. The last two mostly are what they were in the last call of the same kind,
//! so they are compared where they are, and only what differs is taken apart and kept. `live.rs`
//! keeps it.

use lnet_types::{IoVec, MdId, Nid, Pid, ProcessId, RegionId, RxId, Span};
use lnet_wire::{Handle, Hdr, Kind};
use slotmap::{Key, KeyData};

use crate::{Get, MdOptions, MdSpec, Put, Rx, Unlink};

/// Kinds of usual calls, as the log has them.
pub(super) const SENT: u64 = 0;
pub(super) const RECEIVED: u64 = 1;
pub(super) const UNLINK: u64 = 2;
pub(super) const PUT: u64 = 3;
pub(super) const GET: u64 = 4;
pub(super) const HEADER: u64 = 5;
pub(super) const BIND: u64 = 6;
pub(super) const UNLINK_AT_ONCE: u64 = 7;
/// So many kinds there are.
pub(super) const KINDS: usize = 8;

/// Sender and receiver.
pub(super) trait Way: Copy + PartialEq {
    /// What the first call of a stretch is compared with.
    const FIRST: Self;
    fn write(&self, log: &mut Vec<u64>);
    fn read(log: &mut impl Iterator<Item = u64>) -> Self;
}

/// The next word.
pub(super) fn word(log: &mut impl Iterator<Item = u64>) -> u64 {
    log.next().unwrap_or_default()
}

impl Way for ProcessId {
    const FIRST: Self = Self { nid: Nid::ANY, pid: Pid(0) };

    fn write(&self, log: &mut Vec<u64>) {
        let (halves, rest) = self.nid.as_wire().as_chunks();
        log.extend(halves.iter().map(|half| u64::from_ne_bytes(*half)));
        let last = rest.first_chunk().map_or(0, |last| u32::from_ne_bytes(*last));
        log.push(pair(last, self.pid.0));
    }

    fn read(log: &mut impl Iterator<Item = u64>) -> Self {
        let mut wire = [0; 20];
        let (halves, rest) = wire.as_chunks_mut();
        for half in halves {
            *half = word(log).to_ne_bytes();
        }
        let (last, pid) = unpair(word(log));
        rest.copy_from_slice(&last.to_ne_bytes());
        // It was a NID.
        let nid = Nid::from_wire(wire).unwrap_or(Nid::ANY);
        Self { nid, pid: Pid(pid) }
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
    dst: ProcessId,
    src: ProcessId,
}

impl Way for Arrival {
    const FIRST: Self = {
        let first = ProcessId::FIRST;
        Self { ni: 0, id: RxId(0), from: first, dst: first, src: first }
    };

    fn write(&self, log: &mut Vec<u64>) {
        log.extend_from_slice(&[self.ni, self.id.0]);
        for process in [self.from, self.dst, self.src] {
            process.write(log);
        }
    }

    fn read(log: &mut impl Iterator<Item = u64>) -> Self {
        let [ni, id] = [(); 2].map(|()| word(log));
        let [from, dst, src] = [(); 3].map(|()| ProcessId::read(log));
        Self { ni, id: RxId(id), from, dst, src }
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

pub(super) const fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A call that a busy node makes all the time, in its parts.
pub(super) trait Usual<const N: usize>: Copy {
    type Way: Way;
    /// What the first call of a stretch is compared with.
    fn first() -> Self;

    /// All but the word that is another one each time.
    fn parts(&self) -> (Self::Way, [u64; N]);

    /// The call that it was.
    fn of(own: u64, way: Self::Way, words: [u64; N]) -> Self;
}

impl Usual<4> for Put {
    type Way = ProcessId;

    fn first() -> Self {
        Self::of(MdId::null().data().as_ffi(), Way::FIRST, [0; 4])
    }

    fn parts(&self) -> (ProcessId, [u64; 4]) {
        let Self { ack, portal, match_bits, offset, hdr_data, .. } = *self;
        (self.target, [hdr_data, match_bits, pair(portal, offset), ack.into()])
    }

    fn of(md: u64, target: ProcessId, words: [u64; 4]) -> Self {
        let [hdr_data, match_bits, place, ack] = words;
        let (portal, offset) = unpair(place);
        let md = KeyData::from_ffi(md).into();
        let (ack, src, timeout) = (ack != 0, None, None);
        Self { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout }
    }
}

impl Usual<2> for Get {
    type Way = ProcessId;

    fn first() -> Self {
        Self::of(MdId::null().data().as_ffi(), Way::FIRST, [0; 2])
    }

    fn parts(&self) -> (ProcessId, [u64; 2]) {
        (self.target, [self.match_bits, pair(self.portal, self.offset)])
    }

    fn of(md: u64, target: ProcessId, words: [u64; 2]) -> Self {
        let [match_bits, place] = words;
        let (portal, offset) = unpair(place);
        let md = KeyData::from_ffi(md).into();
        Self { md, src: None, target, portal, match_bits, offset, timeout: None }
    }
}

/// A descriptor over one span of memory. Its own word is its owner's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    user: u64,
    words: [u64; 4],
}

impl Bound {
    /// None if its memory is in several pieces, or in none.
    pub(super) fn of_spec(md: &MdSpec) -> Option<Self> {
        let MdSpec { buf, threshold, max_size, options, user, events, unlink } = md;
        let [span] = buf.as_slice() else { return None };
        let retain = *unlink == Unlink::Retain;
        let flags =
            u32::from(threshold.is_some()) | u32::from(*events) << 1 | u32::from(retain) << 2;
        let place = pair(span.region.0, span.len);
        let limits = pair(threshold.unwrap_or_default(), *max_size);
        let words = [place, span.offset, limits, pair(flags, options.bits())];
        Some(Self { user: *user, words })
    }

    pub(super) fn spec(&self) -> MdSpec {
        let [place, offset, limits, rest] = self.words;
        let ((region, len), (threshold, max_size)) = (unpair(place), unpair(limits));
        let (flags, options) = unpair(rest);
        MdSpec {
            threshold: (flags & 1 != 0).then_some(threshold),
            max_size,
            options: MdOptions::from_bits_retain(options),
            events: flags & 2 != 0,
            unlink: if flags & 4 != 0 { Unlink::Retain } else { Unlink::Auto },
            ..MdSpec::new(IoVec::from([Span { region: RegionId(region), len, offset }]), self.user)
        }
    }
}

impl Way for () {
    const FIRST: Self = ();

    fn write(&self, _log: &mut Vec<u64>) {}

    fn read(_log: &mut impl Iterator<Item = u64>) -> Self {}
}

impl Usual<4> for Bound {
    type Way = ();

    fn first() -> Self {
        Self::of(0, (), [0; 4])
    }

    fn parts(&self) -> ((), [u64; 4]) {
        ((), self.words)
    }

    fn of(user: u64, (): (), words: [u64; 4]) -> Self {
        Self { user, words }
    }
}

/// Differ in nothing but their descriptor.
#[inline]
pub(super) fn same_put(one: &Put, other: &Put) -> bool {
    one.match_bits == other.match_bits
        && one.hdr_data == other.hdr_data
        && one.portal == other.portal
        && one.offset == other.offset
        && one.ack == other.ack
        && one.target == other.target
}

/// Differ in nothing but their descriptor.
#[inline]
pub(super) fn same_get(one: &Get, other: &Get) -> bool {
    one.match_bits == other.match_bits
        && one.portal == other.portal
        && one.offset == other.offset
        && one.target == other.target
}

/// The arguments of a call for a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) rx: Rx,
    pub(super) hdr: Hdr,
}

impl Header {
    /// The same but for the object of the handle: the number of a marked request stands there.
    #[inline]
    pub(super) fn is_as(&self, rx: &Rx, hdr: &Hdr) -> bool {
        let last = &self.hdr;
        self.rx == *rx
            && last.dst == hdr.dst
            && last.src == hdr.src
            && last.dst_pid == hdr.dst_pid
            && last.src_pid == hdr.src_pid
            && last.payload_len == hdr.payload_len
            && same_kind(last.kind, hdr.kind)
    }

    /// The object of a message's handle.
    pub(super) const fn object(hdr: &Hdr) -> u64 {
        let (Kind::Ack { dst: handle, .. }
        | Kind::Put { ack: handle, .. }
        | Kind::Get { ret: handle, .. }
        | Kind::Reply { dst: handle, .. }) = hdr.kind;
        handle.object
    }
}

/// Differ in nothing but the object of their handle.
#[inline]
fn same_kind(mut one: Kind, mut other: Kind) -> bool {
    for kind in [&mut one, &mut other] {
        let (Kind::Ack { dst: handle, .. }
        | Kind::Put { ack: handle, .. }
        | Kind::Get { ret: handle, .. }
        | Kind::Reply { dst: handle, .. }) = kind;
        handle.object = 0;
    }
    one == other
}

/// What follows the body of a REPLY, as words.
fn padding(pad: [u8; 24]) -> [u64; 3] {
    let (words, _) = pad.as_chunks();
    [0, 1, 2].map(|i| words.get(i).map_or(0, |word| u64::from_le_bytes(*word)))
}

impl Usual<5> for Header {
    type Way = Arrival;

    fn first() -> Self {
        Self::of(0, Way::FIRST, [0; 5])
    }

    fn parts(&self) -> (Arrival, [u64; 5]) {
        let Self { rx, hdr } = self;
        let (kind, handle, [x, y, z]) = match hdr.kind {
            Kind::Ack { dst, match_bits, mlength, pad } => {
                let (name, number) = pad.split_at(8);
                let name = name.first_chunk().map_or(0, |name| u64::from_le_bytes(*name));
                let number = number.first_chunk().map_or(0, |n| u32::from_le_bytes(*n));
                (0, dst, [match_bits, name, pair(mlength, number)])
            }
            Kind::Put { ack, match_bits, hdr_data, portal, offset } => {
                (1, ack, [match_bits, hdr_data, pair(portal, offset)])
            }
            Kind::Get { ret, match_bits, portal, offset, sink_len, pad } => {
                let sizes = pair(sink_len, u32::from_le_bytes(pad));
                (2, ret, [match_bits, sizes, pair(portal, offset)])
            }
            Kind::Reply { dst, pad } => (3, dst, padding(pad)),
        };
        let arrival = Arrival {
            ni: rx.ni.data().as_ffi(),
            from: ProcessId { nid: rx.from, pid: rx.from_pid },
            id: rx.id,
            dst: ProcessId { nid: hdr.dst, pid: hdr.dst_pid },
            src: ProcessId { nid: hdr.src, pid: hdr.src_pid },
        };
        (arrival, [pair(hdr.payload_len, kind), handle.interface, x, y, z])
    }

    fn of(object: u64, arrival: Arrival, words: [u64; 5]) -> Self {
        let [what, interface, x, y, z] = words;
        let Arrival { ni, id, from, dst, src } = arrival;
        let (payload_len, kind) = unpair(what);
        let handle = Handle { interface, object };
        let (portal, offset) = unpair(z);
        let kind = match kind {
            0 => {
                let (mlength, number) = unpair(z);
                let mut pad = [0; 12];
                pad[..8].copy_from_slice(&y.to_le_bytes());
                pad[8..].copy_from_slice(&number.to_le_bytes());
                Kind::Ack { dst: handle, match_bits: x, mlength, pad }
            }
            1 => Kind::Put { ack: handle, match_bits: x, hdr_data: y, portal, offset },
            2 => {
                let (sink_len, pad) = unpair(y);
                let pad = pad.to_le_bytes();
                Kind::Get { ret: handle, match_bits: x, portal, offset, sink_len, pad }
            }
            _ => {
                let mut pad = [0; 24];
                for (bytes, word) in pad.as_chunks_mut().0.iter_mut().zip([x, y, z]) {
                    *bytes = word.to_le_bytes();
                }
                Kind::Reply { dst: handle, pad }
            }
        };
        let rx = Rx {
            ni: KeyData::from_ffi(ni).into(),
            from: from.nid,
            from_pid: from.pid,
            peer_ni: None,
            id,
        };
        let (dst, dst_pid, src, src_pid) = (dst.nid, dst.pid, src.nid, src.pid);
        Self { rx, hdr: Hdr { dst, src, dst_pid, src_pid, payload_len, kind } }
    }
}
