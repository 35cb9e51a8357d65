//! Where messages begin and end on a connection that is up. Fed with bytes cut anywhere; gives back
//! headers and the pieces of payload, and keeps nothing but an incomplete header (wire.md 3.9).

use lnet_wire::sock::{Checksum, FrameHdr, FrameType, Version};
use lnet_wire::{ByteOrder, Hdr};

use super::kinds::frame_len;
use crate::stats::Refusal;

/// A payload of this many bytes is worth a system call of its own: it is read straight into place,
/// and after it only the next header, so that the next payload can be read into place as well.
/// Below, copying out of the shared buffer is cheaper than reading twice.
pub(crate) const DIRECT_MIN: u32 = 16 * 1024;

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct FrameRx {
    version: Version,
    order: ByteOrder,
    at: At,
    /// Bytes of a header that is not complete. Holds no memory while there are none.
    partial: Vec<u8>,
    /// The last payload was large, so the next one may be.
    expects_bulk: bool,
    /// The sum of the message so far and the value that it must have, where there is one.
    sum: Option<(Checksum, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// A header is due.
    Head,
    /// So many bytes of payload are due.
    Body(u32),
}

/// What the next bytes were.
#[derive(Debug, PartialEq)]
pub(crate) enum Item<'a> {
    /// All bytes are used up.
    More,
    /// A frame without a message.
    Noop(FrameHdr),
    /// A message begins. Payload follows, if its header says so; then [`FrameRx::end`].
    Message(FrameHdr, Hdr),
    /// Payload of the message.
    Payload(&'a [u8]),
}

impl FrameRx {
    pub(crate) const fn new(version: Version, order: ByteOrder) -> Self {
        Self { version, order, at: At::Head, partial: Vec::new(), expects_bulk: false, sum: None }
    }

    /// Whether the stream stands between two messages, where it may end.
    pub(crate) const fn is_between(&self) -> bool {
        matches!(self.at, At::Head) && self.partial.is_empty()
    }

    /// Bytes of payload that are due.
    pub(crate) const fn left(&self) -> u32 {
        match self.at {
            At::Head => 0,
            At::Body(left) => left,
        }
    }

    /// How much to read at most into a buffer of `room` bytes, so that no large payload ends up
    /// in it.
    pub(crate) fn read_len(&self, room: usize) -> usize {
        let head = frame_len(self.version);
        let due = match self.at {
            At::Head => head.saturating_sub(self.partial.len()),
            At::Body(left) => left as usize + head,
        };
        if self.expects_bulk { due.min(room) } else { room }
    }

    /// Takes a step through `input`, which loses the bytes that are used.
    ///
    /// # Errors
    /// The peer broke the protocol; the connection must be closed.
    #[inline]
    pub(crate) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Item<'a>, Refusal> {
        match self.at {
            At::Head => self.head(input),
            At::Body(left) => {
                let (now, later) = input.split_at(input.len().min(left as usize));
                *input = later;
                if now.is_empty() {
                    return Ok(Item::More);
                }
                self.direct(now);
                Ok(Item::Payload(now))
            }
        }
    }

    /// Notes payload that was read into its place without passing through [`next`](Self::next).
    #[inline]
    pub(crate) fn direct(&mut self, payload: &[u8]) {
        if let Some((sum, _)) = &mut self.sum {
            sum.update(payload);
        }
        if let At::Body(left) = self.at {
            self.at = At::Body(left.saturating_sub(payload.len() as u32));
        }
    }

    /// Whether all payload is here. To be asked after a message's header and after each piece of
    /// payload; when it says yes, the next bytes are a header again.
    ///
    /// # Errors
    /// The checksum is wrong. Not judged where the payload was not `kept` whole.
    #[inline]
    pub(crate) fn end(&mut self, kept: bool) -> Result<bool, Refusal> {
        match self.at {
            At::Body(0) => {}
            At::Body(_) | At::Head => return Ok(false),
        }
        self.at = At::Head;
        match self.sum.take() {
            Some((sum, want)) if kept && sum.value() != want => Err(Refusal::Checksum),
            _ => Ok(true),
        }
    }

    #[inline]
    fn head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Item<'a>, Refusal> {
        if self.partial.is_empty() {
            // Nearly always a header lies whole in the buffer and is read where it lies.
            return match self.read_head(input) {
                Head::Whole(item, used) => {
                    *input = input.get(used..).unwrap_or_default();
                    Ok(item)
                }
                Head::Bad(refusal, used) => {
                    *input = input.get(used..).unwrap_or_default();
                    Err(refusal)
                }
                Head::Short(_) => {
                    self.partial.extend_from_slice(input);
                    *input = &[];
                    Ok(Item::More)
                }
            };
        }
        let mut partial = core::mem::take(&mut self.partial);
        loop {
            match self.read_head(&partial) {
                Head::Whole(item, _) => return Ok(item),
                Head::Bad(refusal, _) => return Err(refusal),
                Head::Short(_) if input.is_empty() => {
                    self.partial = partial;
                    return Ok(Item::More);
                }
                Head::Short(need) => {
                    let due = need.saturating_sub(partial.len());
                    let (now, later) = input.split_at(input.len().min(due));
                    partial.extend_from_slice(now);
                    *input = later;
                }
            }
        }
    }

    /// Reads a header from the front of `bytes`.
    #[inline]
    fn read_head(&mut self, bytes: &[u8]) -> Head {
        let frame = if !self.version.has_frames() {
            FrameHdr::lnet(0, 0)
        } else if bytes.len() < FrameHdr::LEN {
            return Head::Short(FrameHdr::LEN);
        } else if let Ok(frame) = FrameHdr::parse(self.order, bytes) {
            frame
        } else {
            return Head::Bad(Refusal::FrameType, FrameHdr::LEN);
        };
        match frame.kind {
            FrameType::Noop => {
                if frame.checksum != 0 && self.first_sum(&frame).value() != frame.checksum {
                    return Head::Bad(Refusal::Checksum, FrameHdr::LEN);
                }
                Head::Whole(Item::Noop(frame), FrameHdr::LEN)
            }
            FrameType::Lnet => {
                let full = frame_len(self.version);
                let form = self.version.hdr_form();
                let Some(lnet) = bytes.get(full - form.len()..full) else {
                    return Head::Short(full);
                };
                let Ok(hdr) = Hdr::parse(form, lnet) else {
                    return Head::Bad(Refusal::Header, full);
                };
                if frame.checksum != 0 {
                    let mut sum = self.first_sum(&frame);
                    if self.version == Version::V2 {
                        sum.update(lnet);
                    }
                    self.sum = Some((sum, frame.checksum));
                }
                self.at = At::Body(hdr.payload_len);
                self.expects_bulk = hdr.payload_len >= DIRECT_MIN;
                Head::Whole(Item::Message(frame, hdr), full)
            }
        }
    }

    /// Version 2 sums the whole frame, versions 3 and 4 the payload alone.
    fn first_sum(&self, frame: &FrameHdr) -> Checksum {
        match self.version {
            Version::V1 | Version::V2 => Checksum::of_frame(self.order, frame),
            Version::V3 | Version::V4 => Checksum::new(),
        }
    }
}

enum Head {
    /// A header that is complete, and its length.
    Whole(Item<'static>, usize),
    /// One that breaks the protocol, and how much of it had to be read to see that.
    Bad(Refusal, usize),
    /// So many bytes are needed, from the first one on.
    Short(usize),
}

#[cfg(test)]
mod tests {
    use lnet_types::{Net, Nid, Pid};
    use lnet_wire::sock::Noop;
    use lnet_wire::{Handle, HdrForm, Kind};

    use super::*;

    fn put(payload_len: u32) -> Hdr {
        Hdr {
            dst: Nid::new(Net::TCP, 2),
            src: Nid::new(Net::TCP, 1),
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len,
            kind: Kind::Put { ack: Handle::NONE, match_bits: 1, hdr_data: 2, portal: 3, offset: 0 },
        }
    }

    fn frame(version: Version, order: ByteOrder, frame: FrameHdr, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if version.has_frames() {
            out.extend(frame.to_bytes(order));
        }
        let mut hdr = [0; Hdr::LEN_MAX];
        let n = put(payload.len() as u32).emit(version.hdr_form(), &mut hdr).expect("room");
        out.extend(&hdr[..n]);
        out.extend(payload);
        out
    }

    /// What a stream says, with payload in one piece, however it is cut.
    #[derive(Debug, Default, PartialEq)]
    struct Said {
        noops: Vec<FrameHdr>,
        messages: Vec<(FrameHdr, Hdr, Vec<u8>)>,
        error: Option<Refusal>,
        between: bool,
    }

    fn feed(rx: &mut FrameRx, said: &mut Said, mut input: &[u8]) {
        while said.error.is_none() {
            match rx.next(&mut input) {
                Err(refusal) => said.error = Some(refusal),
                Ok(Item::More) => break,
                Ok(Item::Noop(noop)) => said.noops.push(noop),
                Ok(Item::Message(frame, hdr)) => said.messages.push((frame, hdr, Vec::new())),
                Ok(Item::Payload(bytes)) => {
                    said.messages.last_mut().expect("a message").2.extend(bytes);
                }
            }
            if let Err(refusal) = rx.end(true) {
                said.error = Some(refusal);
            }
        }
        said.between = rx.is_between();
    }

    fn conversation(version: Version, order: ByteOrder) -> Vec<u8> {
        let mut bytes = frame(version, order, FrameHdr::lnet(0, 0), b"");
        bytes.extend(frame(version, order, FrameHdr::lnet(7, 0), b"eight by"));
        if version.has_frames() {
            bytes.extend(FrameHdr::noop(Noop::Keepalive).to_bytes(order));
        }
        bytes.extend(frame(version, order, FrameHdr::lnet(0, 0), &[5; 300]));
        bytes
    }

    const VERSIONS: [Version; 4] = [Version::V1, Version::V2, Version::V3, Version::V4];

    #[test]
    fn a_conversation_reads_the_same_wherever_it_is_cut() {
        for version in VERSIONS {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let bytes = conversation(version, order);
                let mut whole = Said::default();
                feed(&mut FrameRx::new(version, order), &mut whole, &bytes);
                assert_eq!(whole.error, None);
                assert!(whole.between);
                assert_eq!(whole.messages.len(), 3);
                assert_eq!(whole.messages[1].2, b"eight by");
                for cut in 0..=bytes.len() {
                    let (mut rx, mut said) = (FrameRx::new(version, order), Said::default());
                    feed(&mut rx, &mut said, &bytes[..cut]);
                    feed(&mut rx, &mut said, &bytes[cut..]);
                    assert_eq!(said, whole, "{version} cut at {cut}");
                }
                let (mut rx, mut said) = (FrameRx::new(version, order), Said::default());
                bytes.iter().for_each(|b| feed(&mut rx, &mut said, &[*b]));
                assert_eq!(said, whole, "{version} byte by byte");
                assert_eq!(rx.partial.capacity(), 0, "an idle connection holds no buffer");
            }
        }
    }

    #[test]
    fn only_the_end_of_a_message_is_a_place_to_stop() {
        let bytes = conversation(Version::V3, ByteOrder::Little);
        let ends: Vec<usize> = (0..=bytes.len())
            .filter(|&cut| {
                let mut said = Said::default();
                feed(&mut FrameRx::new(Version::V3, ByteOrder::Little), &mut said, &bytes[..cut]);
                said.between
            })
            .collect();
        assert_eq!(ends, [0, 96, 96 + 104, 200 + 24, 224 + 396]);
    }

    #[test]
    fn unknown_frames_and_headers_are_refused_as_soon_as_they_are_there() {
        let (v3, le) = (Version::V3, ByteOrder::Little);
        let mut bytes = FrameHdr::noop(Noop::Nothing).to_bytes(le).to_vec();
        bytes[0] = 0xc7;
        let mut said = Said::default();
        feed(&mut FrameRx::new(v3, le), &mut said, &bytes);
        assert_eq!(said.error, Some(Refusal::FrameType));

        let mut bytes = frame(v3, le, FrameHdr::lnet(0, 0), b"");
        bytes[24 + 24] = 9;
        let mut said = Said::default();
        feed(&mut FrameRx::new(v3, le), &mut said, &bytes[..bytes.len() - 1]);
        assert_eq!(said.error, None);
        let mut said = Said::default();
        feed(&mut FrameRx::new(v3, le), &mut said, &bytes);
        assert_eq!(said.error, Some(Refusal::Header));
    }

    #[test]
    fn checksums_of_version_2_cover_the_frame_and_later_ones_the_payload() {
        let le = ByteOrder::Little;
        let payload = b"some payload";
        let mut hdr = [0; 72];
        put(payload.len() as u32).emit(HdrForm::Short, &mut hdr).expect("room");
        let mut v2 = Checksum::of_frame(le, &FrameHdr::lnet(0, 0));
        v2.update(&hdr);
        v2.update(payload);
        let mut v3 = Checksum::new();
        v3.update(payload);
        for (version, good) in [(Version::V2, v2.value()), (Version::V3, v3.value())] {
            for (checksum, want) in [(good, None), (0, None), (good ^ 1, Some(Refusal::Checksum))] {
                let bytes =
                    frame(version, le, FrameHdr { checksum, ..FrameHdr::lnet(0, 0) }, payload);
                let mut said = Said::default();
                feed(&mut FrameRx::new(version, le), &mut said, &bytes);
                assert_eq!(said.error, want, "{version} {checksum:#x}");
            }
        }
        // The checksum is not judged where part of the payload was thrown away.
        let bytes = frame(Version::V2, le, FrameHdr { checksum: 1, ..FrameHdr::lnet(0, 0) }, b"x");
        let (mut rx, mut input) = (FrameRx::new(Version::V2, le), &bytes[..]);
        assert!(matches!(rx.next(&mut input), Ok(Item::Message(..))));
        assert_eq!(rx.end(false), Ok(false));
        assert_eq!(rx.next(&mut input), Ok(Item::Payload(b"x")));
        assert_eq!(rx.end(false), Ok(true));
    }

    #[test]
    fn noops_may_carry_a_checksum_too() {
        let le = ByteOrder::Little;
        let noop = FrameHdr::noop(Noop::Nothing);
        let v2 = Checksum::of_frame(le, &noop).value();
        for (version, good) in [(Version::V2, v2), (Version::V3, u32::MAX)] {
            for (checksum, want) in [(good, None), (good ^ 4, Some(Refusal::Checksum))] {
                let bytes = FrameHdr { checksum, ..noop }.to_bytes(le);
                let mut said = Said::default();
                feed(&mut FrameRx::new(version, le), &mut said, &bytes);
                assert_eq!(said.error, want, "{version} {checksum:#x}");
            }
        }
    }

    #[test]
    fn after_bulk_only_a_header_is_read() {
        let le = ByteOrder::Little;
        let mut rx = FrameRx::new(Version::V3, le);
        assert_eq!(rx.read_len(65536), 65536);
        let big = frame(Version::V3, le, FrameHdr::lnet(0, 0), &vec![0; DIRECT_MIN as usize]);
        let mut said = Said::default();
        feed(&mut rx, &mut said, &big[..100]);
        assert_eq!(rx.left(), DIRECT_MIN - 4);
        assert_eq!(rx.read_len(65536), DIRECT_MIN as usize - 4 + 96);
        feed(&mut rx, &mut said, &big[100..]);
        assert_eq!(rx.read_len(65536), 96);
        feed(&mut rx, &mut said, &big[..10]);
        assert_eq!(rx.read_len(65536), 86);
        let small = frame(Version::V3, le, FrameHdr::lnet(0, 0), b"");
        feed(&mut rx, &mut said, &big[10..]);
        feed(&mut rx, &mut said, &small);
        assert_eq!(rx.read_len(65536), 65536);
    }
}
