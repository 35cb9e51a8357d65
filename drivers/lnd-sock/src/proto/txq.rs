//! What is to be written on one connection, in order, and how it is laid out for one write: headers
//! and small payloads are copied behind each other into a staging buffer, large payloads are
//! referred to where they lie. One write thus carries hundreds of small messages, or the largest
//! without a copy.

use core::ops::Range;
use std::collections::VecDeque;
use std::sync::Arc;

use lnet::{Payload, Retention};
use lnet_types::{Instant, Memory, MsgId, Span, iovec_slice};
use lnet_wire::sock::{Checksum, FrameHdr, Noop, Version};
use lnet_wire::{ByteOrder, Hdr};
use smallvec::SmallVec;

use super::kinds::frame_len;
use super::retained::Message;
use super::zc::Owed;

/// Payloads up to this many bytes are copied next to their header, which is cheaper than another
/// slice. Measured over loopback: payloads of 4 KiB go faster as slices of their own.
pub(crate) const COPY_MAX: u64 = 1024;
/// Bytes of the staging buffer.
pub(crate) const STAGE_LEN: usize = 64 * 1024;
/// Slices of one write.
pub(crate) const SLICES_MAX: usize = 256;

/// A frame that is queued.
#[derive(Debug)]
pub(crate) struct Queued {
    body: Body,
    frame: FrameHdr,
    /// Bytes of the frame on the wire.
    len: u64,
    /// Bytes of it that have been handed over.
    sent: u64,
    /// When the node stops waiting for it.
    deadline: Instant,
    /// The frame header is final: bytes of it may be on the wire.
    fixed: bool,
    /// The terms on which it is retained when it has been written.
    retention: Option<Retention>,
    /// The message was reported as failed: the rest of its bytes is only there to complete the frame.
    disowned: bool,
}

/// A queued message that was not written whole.
#[derive(Debug)]
pub(crate) struct Unwritten {
    pub(crate) msg: MsgId,
    pub(crate) hdr: Hdr,
    pub(crate) payload: Payload,
    /// When the node stops waiting for it.
    pub(crate) until: Instant,
    pub(crate) retention: Option<Retention>,
}

#[derive(Debug)]
enum Body {
    Noop,
    Message { msg: MsgId, hdr: Hdr, payload: Payload },
}

impl Queued {
    /// The message in it, if it is one that is still to be reported.
    pub(crate) const fn msg(&self) -> Option<MsgId> {
        match self.body {
            Body::Message { msg, .. } if !self.disowned => Some(msg),
            Body::Message { .. } | Body::Noop => None,
        }
    }

    /// The message in it, for another connection: whatever was written of an incomplete frame, the peer
    /// discards with its connection.
    pub(crate) fn into_message(self) -> Option<Unwritten> {
        match self.body {
            Body::Message { msg, hdr, payload } if !self.disowned => Some(Unwritten {
                msg,
                hdr,
                payload,
                until: self.deadline,
                retention: self.retention,
            }),
            Body::Message { .. } | Body::Noop => None,
        }
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// A message that is to be retained, which ends at `end` of the stream, and its payload.
    pub(crate) fn to_retain(&self, end: u64) -> Option<(Message, &Payload)> {
        match &self.body {
            Body::Message { hdr, payload, .. } if !self.disowned => {
                Some((Message { end, hdr: *hdr, retention: self.retention? }, payload))
            }
            Body::Message { .. } | Body::Noop => None,
        }
    }
}

/// The queue of one connection.
#[derive(Debug)]
pub(crate) struct TxQueue {
    version: Version,
    items: VecDeque<Queued>,
    /// Bytes queued and not handed over.
    bytes: u64,
}

/// A piece of one write.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes of the staging buffer.
    Staged(Range<usize>),
    /// Registered memory.
    Memory(Span),
    /// Bytes of the node's own.
    Own(Arc<[u8]>, Range<usize>),
}

/// The pieces of one write.
pub(crate) type Pieces = SmallVec<[Piece; 8]>;

impl TxQueue {
    pub(crate) const fn new(version: Version) -> Self {
        Self { version, items: VecDeque::new(), bytes: 0 }
    }

    /// Bytes queued and not handed over.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Queues a message.
    ///
    /// # Panics
    /// If the header has another length than the payload: every message behind it would
    /// be misread by the peer.
    pub(crate) fn push(
        &mut self,
        msg: MsgId,
        hdr: &Hdr,
        payload: Payload,
        deadline: Instant,
        retention: Option<Retention>,
    ) {
        let payload_len = payload.len();
        assert_eq!(u64::from(hdr.payload_len), payload_len, "{hdr}: payload of another length");
        let len = frame_len(self.version) as u64 + payload_len;
        self.bytes += len;
        self.items.push_back(Queued {
            body: Body::Message { msg, hdr: *hdr, payload },
            frame: FrameHdr::lnet(0, 0),
            len,
            sent: 0,
            deadline,
            fixed: false,
            retention,
            disowned: false,
        });
    }

    /// Queues a NOOP. Nothing happens in version 1, which has none.
    pub(crate) fn push_noop(&mut self, noop: Noop, checksum: bool) {
        if !self.version.has_frames() {
            return;
        }
        let mut frame = FrameHdr::noop(noop);
        if checksum && self.version == Version::V2 {
            frame.checksum = Checksum::of_frame(ByteOrder::Little, &frame).value();
        }
        let len = FrameHdr::LEN as u64;
        self.bytes += len;
        self.items.push_back(Queued {
            body: Body::Noop,
            frame,
            len,
            sent: 0,
            deadline: Instant::FAR_FUTURE,
            fixed: true,
            retention: None,
            disowned: false,
        });
    }

    /// Lays out the next write: as many frames as fit `stage` and [`SLICES_MAX`], and no more once there
    /// are `enough` bytes. Each message that is laid out for the first time takes one of the
    /// acknowledgements `owed` on its back; the number taken is returned.
    pub(crate) fn lay_out(
        &mut self,
        owed: &mut Owed,
        checksum: bool,
        enough: usize,
        mem: &dyn Memory,
        stage: &mut Vec<u8>,
        pieces: &mut Pieces,
    ) -> u64 {
        stage.clear();
        pieces.clear();
        let (mut taken, mut bytes) = (0, 0);
        for item in &mut self.items {
            // The longest that an item adds, so that staged bytes never move.
            if stage.len() + frame_len(self.version) + COPY_MAX as usize > STAGE_LEN
                || pieces.len() + 2 > SLICES_MAX
                || bytes > 0 && bytes >= enough as u64
            {
                break;
            }
            bytes += item.len - item.sent;
            if !item.fixed {
                item.fixed = true;
                if self.version.has_frames()
                    && let Some(cookie) = owed.pop()
                {
                    item.frame.cookie1 = cookie;
                    taken += 1;
                }
                if checksum && self.version == Version::V2 {
                    item.frame.checksum = sum_v2(item, mem);
                }
            }
            lay_out_one(self.version, item, mem, stage, pieces);
        }
        taken
    }

    /// Notes that `n` bytes were written; names the frames that are thereby complete to `done`, with
    /// how many of the bytes each ends at.
    pub(crate) fn wrote(&mut self, n: usize, mut done: impl FnMut(&Queued, u64)) {
        let all = n as u64;
        let mut n = all;
        self.bytes = self.bytes.saturating_sub(n);
        let mut complete = 0;
        for item in &mut self.items {
            let rest = item.len - item.sent;
            if n < rest {
                item.sent += n;
                break;
            }
            n -= rest;
            item.sent = item.len;
            done(item, all - n);
            complete += 1;
        }
        // Dropped where they are: taking them out one by one would move each once more.
        self.items.drain(..complete);
    }

    /// The earliest deadline of the messages queued.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.items.iter().map(|i| i.deadline).filter(|d| *d != Instant::FAR_FUTURE).min()
    }

    /// Takes out the messages whose deadline has passed and of which nothing has been written, with
    /// the acknowledgement that each had on its back (0 for none), and tells whether one remains
    /// that has been begun: the stream can't be mended then.
    pub(crate) fn expire(&mut self, now: Instant, mut expired: impl FnMut(MsgId, u64)) -> bool {
        let mut begun = false;
        let mut gone = 0;
        self.items.retain(|item| match item.msg() {
            Some(msg) if item.deadline <= now => {
                if item.sent > 0 {
                    begun = true;
                    return true;
                }
                gone += item.len;
                expired(msg, item.frame.cookie1);
                false
            }
            _ => true,
        });
        self.bytes -= gone;
        begun
    }

    /// Takes over the payload of a message that has been begun and is late, so that its memory is its
    /// owner's again while the frame is completed. The message, if there is one: it is to be reported.
    pub(crate) fn disown_begun(&mut self, now: Instant, mem: &dyn Memory) -> Option<(MsgId, u64)> {
        let item = self.items.front_mut().filter(|i| i.sent > 0 && i.deadline <= now)?;
        let msg = item.msg()?;
        if let Body::Message { payload: payload @ Payload::Spans(_), .. } = &mut item.body {
            let Payload::Spans(spans) = &*payload else { return None };
            let bytes: Vec<u8> = spans.iter().flat_map(|span| mem.bytes(*span)).copied().collect();
            *payload = Payload::Bytes(bytes.into());
        }
        (item.disowned, item.deadline) = (true, Instant::FAR_FUTURE);
        Some((msg, item.sent))
    }

    /// Takes out a message of which nothing has been written, and gives the acknowledgement that it
    /// had on its back (0 for none). `None`, and nothing changes, if it is not there or was begun.
    pub(crate) fn take_back(&mut self, msg: MsgId) -> Option<u64> {
        let at = self.items.iter().position(|i| i.msg() == Some(msg) && i.sent == 0)?;
        let item = self.items.remove(at)?;
        self.bytes -= item.len;
        Some(item.frame.cookie1)
    }

    /// Empties the queue.
    pub(crate) fn drain(&mut self) -> VecDeque<Queued> {
        self.bytes = 0;
        core::mem::take(&mut self.items)
    }
}

/// The pieces of one frame from its first unsent byte on.
fn lay_out_one(
    version: Version,
    item: &Queued,
    mem: &dyn Memory,
    stage: &mut Vec<u8>,
    pieces: &mut Pieces,
) {
    let from = stage.len();
    stage.resize(from + FrameHdr::LEN + Hdr::LEN_MAX, 0);
    let head_len = emit_head(version, item, stage.get_mut(from..).unwrap_or_default());
    stage.truncate(from + head_len);
    if item.sent > 0 {
        stage.drain(from..from + head_len.min(item.sent as usize));
    }
    let Body::Message { payload, .. } = &item.body else {
        return staged(pieces, from..stage.len());
    };
    // Bytes of payload that are gone already.
    let gone = item.sent.saturating_sub(head_len as u64);
    let len = payload.len();
    if len <= COPY_MAX {
        match payload {
            Payload::Spans(spans) => {
                let mut skip = gone as usize;
                for span in spans {
                    let bytes = mem.bytes(*span);
                    stage.extend_from_slice(bytes.get(skip..).unwrap_or_default());
                    skip = skip.saturating_sub(bytes.len());
                }
            }
            Payload::Bytes(bytes) => {
                stage.extend_from_slice(bytes.get(gone as usize..).unwrap_or_default());
            }
        }
        return staged(pieces, from..stage.len());
    }
    staged(pieces, from..stage.len());
    match payload {
        Payload::Spans(spans) => {
            // What does not fit goes out with the next write.
            let room = SLICES_MAX.saturating_sub(pieces.len());
            let rest = iovec_slice(spans, gone, len - gone);
            pieces.extend(rest.into_iter().take(room).map(Piece::Memory));
        }
        Payload::Bytes(bytes) => {
            pieces.push(Piece::Own(bytes.clone(), gone as usize..bytes.len()));
        }
    }
}

/// Adds staged bytes to the write, as one piece with those before them where they touch.
fn staged(pieces: &mut Pieces, range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    match pieces.last_mut() {
        Some(Piece::Staged(last)) if last.end == range.start => last.end = range.end,
        _ => pieces.push(Piece::Staged(range)),
    }
}

/// Frame header and LNet header of `item`, and their length.
fn emit_head(version: Version, item: &Queued, out: &mut [u8]) -> usize {
    let mut n = 0;
    if version.has_frames() {
        let frame = item.frame.to_bytes(ByteOrder::Little);
        if let Some(out) = out.get_mut(..frame.len()) {
            out.copy_from_slice(&frame);
            n = frame.len();
        }
    }
    if let Body::Message { hdr, .. } = &item.body {
        // It fits, and `push` was asked only with NIDs that the version can name.
        n += hdr.emit(version.hdr_form(), out.get_mut(n..).unwrap_or_default()).unwrap_or(0);
    }
    n
}

/// The checksum of a version 2 frame: over frame header, LNet header and payload.
fn sum_v2(item: &Queued, mem: &dyn Memory) -> u32 {
    let mut sum = Checksum::of_frame(ByteOrder::Little, &item.frame);
    if let Body::Message { hdr, payload, .. } = &item.body {
        let mut head = [0; Hdr::LEN_MAX];
        let n = hdr.emit(Version::V2.hdr_form(), &mut head).unwrap_or(0);
        sum.update(head.get(..n).unwrap_or_default());
        match payload {
            Payload::Spans(spans) => spans.iter().for_each(|span| sum.update(mem.bytes(*span))),
            Payload::Bytes(bytes) => sum.update(bytes),
        }
    }
    sum.value()
}

#[cfg(test)]
mod tests {
    use lnet_types::{IoVec, Net, Nid, Pid, RegionId};
    use lnet_wire::{Handle, Kind};
    use slotmap::KeyData;

    use super::*;

    struct Mem(Vec<u8>);

    impl Memory for Mem {
        fn bytes(&self, s: Span) -> &[u8] {
            &self.0[s.offset as usize..][..s.len as usize]
        }
        fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
            &mut self.0[s.offset as usize..][..s.len as usize]
        }
    }

    fn hdr(payload_len: u32) -> Hdr {
        Hdr {
            dst: Nid::new(Net::TCP, 2),
            src: Nid::new(Net::TCP, 1),
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len,
            kind: Kind::Put { ack: Handle::NONE, match_bits: 1, hdr_data: 2, portal: 3, offset: 0 },
        }
    }

    fn msg(n: u64) -> MsgId {
        MsgId::from(KeyData::from_ffi(1 << 32 | n))
    }

    fn spans(parts: &[(u64, u32)]) -> Payload {
        let spans: IoVec =
            parts.iter().map(|&(offset, len)| Span { region: RegionId(0), len, offset }).collect();
        Payload::Spans(spans)
    }

    /// A queue with small, empty, split, large and own payloads, and a NOOP.
    fn filled(version: Version) -> TxQueue {
        let mut q = TxQueue::new(version);
        q.push(msg(1), &hdr(8), spans(&[(0, 8)]), Instant::FAR_FUTURE, None);
        q.push(msg(2), &hdr(0), Payload::empty(), Instant::FAR_FUTURE, None);
        q.push_noop(Noop::One(7), false);
        q.push(msg(3), &hdr(10), spans(&[(8, 3), (20, 7)]), Instant::FAR_FUTURE, None);
        q.push(msg(4), &hdr(9000), spans(&[(0, 5000), (5000, 4000)]), Instant::FAR_FUTURE, None);
        q.push(msg(5), &hdr(5), Payload::Bytes(b"hello"[..].into()), Instant::FAR_FUTURE, None);
        q.push(msg(6), &hdr(5000), Payload::Bytes(vec![9; 5000].into()), Instant::FAR_FUTURE, None);
        q
    }

    fn gather(stage: &[u8], pieces: &Pieces, mem: &Mem) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Staged(range) => out.extend(&stage[range.clone()]),
                Piece::Memory(span) => out.extend(mem.bytes(*span)),
                Piece::Own(bytes, range) => out.extend(&bytes[range.clone()]),
            }
        }
        out
    }

    fn write_all(q: &mut TxQueue, step: usize, checksum: bool) -> (Vec<u8>, Vec<MsgId>) {
        let mem = Mem((0..10_000).map(|i| i as u8).collect());
        let (mut out, mut done) = (Vec::new(), Vec::new());
        let (mut stage, mut pieces) = (Vec::with_capacity(STAGE_LEN), Pieces::new());
        let mut owed = Owed::default();
        while !q.is_empty() {
            q.lay_out(&mut owed, checksum, usize::MAX, &mem, &mut stage, &mut pieces);
            let bytes = gather(&stage, &pieces, &mem);
            assert!(!bytes.is_empty(), "a queue that lays out nothing never ends");
            let n = bytes.len().min(step);
            out.extend(&bytes[..n]);
            q.wrote(n, |item, _| done.extend(item.msg()));
        }
        assert_eq!(q.bytes(), 0);
        (out, done)
    }

    #[test]
    fn the_bytes_are_the_same_however_little_each_write_takes() {
        for version in [Version::V1, Version::V2, Version::V3, Version::V4] {
            let len = filled(version).bytes();
            let (whole, done) = write_all(&mut filled(version), usize::MAX, true);
            assert_eq!(whole.len() as u64, len);
            assert_eq!(done, (1..=6).map(msg).collect::<Vec<_>>());
            for step in [1, 7, 96, 1000, 4099] {
                let (bytes, done) = write_all(&mut filled(version), step, true);
                assert!(bytes == whole, "{version}, {step} bytes a write");
                assert_eq!(done.len(), 6);
            }
        }
    }

    #[test]
    fn many_small_messages_are_one_piece() {
        let mem = Mem(vec![0; 64]);
        let mut q = TxQueue::new(Version::V3);
        for n in 0..100 {
            q.push(msg(n), &hdr(8), spans(&[(0, 8)]), Instant::FAR_FUTURE, None);
        }
        let (mut stage, mut pieces) = (Vec::new(), Pieces::new());
        q.lay_out(&mut Owed::default(), false, usize::MAX, &mem, &mut stage, &mut pieces);
        assert_eq!(pieces.len(), 1);
        assert_eq!(stage.len(), 100 * 104);
    }

    #[test]
    fn payload_of_more_spans_than_a_write_takes_goes_out_in_several() {
        let parts: Vec<(u64, u32)> = (0..300).map(|i| (i, 20)).collect();
        let mut q = TxQueue::new(Version::V3);
        q.push(msg(1), &hdr(6000), spans(&parts), Instant::FAR_FUTURE, None);
        let (bytes, done) = write_all(&mut q, usize::MAX, false);
        assert_eq!((bytes.len(), done.len()), (96 + 6000, 1));
    }

    #[test]
    fn messages_carry_acknowledgements_on_their_back() {
        let mem = Mem(vec![0; 64]);
        let mut owed = Owed::default();
        owed.push(41);
        owed.push(42);
        let mut q = TxQueue::new(Version::V3);
        q.push(msg(1), &hdr(0), Payload::empty(), Instant::FAR_FUTURE, None);
        let (mut stage, mut pieces) = (Vec::new(), Pieces::new());
        assert_eq!(q.lay_out(&mut owed, false, usize::MAX, &mem, &mut stage, &mut pieces), 1);
        let frame = FrameHdr::parse(ByteOrder::Little, &stage).expect("a frame");
        assert_eq!(frame, FrameHdr::lnet(0, 41));
        // The same frame again, should the write not have taken it.
        assert_eq!(q.lay_out(&mut owed, false, usize::MAX, &mem, &mut stage, &mut pieces), 0);
        assert_eq!(FrameHdr::parse(ByteOrder::Little, &stage).expect("a frame").cookie1, 41);
        assert_eq!(owed.pop(), Some(42));
        // Version 1 has no room for it.
        owed.push(43);
        let mut q = TxQueue::new(Version::V1);
        q.push(msg(1), &hdr(0), Payload::empty(), Instant::FAR_FUTURE, None);
        assert_eq!(q.lay_out(&mut owed, false, usize::MAX, &mem, &mut stage, &mut pieces), 0);
        assert_eq!(stage.len(), 72);
    }

    #[test]
    fn only_messages_that_were_not_begun_can_expire() {
        let at = Instant::from_secs;
        let mut q = TxQueue::new(Version::V3);
        q.push(msg(1), &hdr(0), Payload::empty(), at(1), None);
        q.push(msg(2), &hdr(0), Payload::empty(), at(2), None);
        q.push(msg(3), &hdr(0), Payload::empty(), at(3), None);
        q.wrote(10, |_, _| panic!("nothing is complete"));
        assert_eq!(q.next_deadline(), Some(at(1)));
        let mut gone = Vec::new();
        assert!(q.expire(at(2), |msg, _| gone.push(msg)));
        assert_eq!(gone, [msg(2)]);
        assert_eq!(q.bytes(), 2 * 96 - 10);
        let mut q = filled(Version::V3);
        assert!(!q.expire(at(9), |_, _| panic!("nothing has a deadline")));
    }
}
