//! Borders of the pieces of bulk data, the same ones at client and server (P-46).
//!
//! ```text
//!  pages    │    ▒▒▒│▒▒▒▒▒▒▒│▒▒ … ▒▒│▒▒▒▒▒▒▒│▒▒     │
//!  skew      ───┘
//!  pieces   │ 1 MiB - skew          │ 1 MiB …
//! ```

use lnet_types::{ByteOrder, IoVec, iovec_len, iovec_slice};
use lustre_wire::ost::Niobuf;
use lustre_wire::{Buffers, Layout, Msg, Opcode};

/// Bytes that the pages of one piece have (P-46).
const PIECE: u64 = 1 << 20;
/// Most pieces of the bulk data of one request (P-46).
pub(crate) const PIECES_MAX: u64 = 64;
/// Each fragment counts rounded to so many bytes (P-46).
const PAGE: u64 = 4096;
/// The buffer of the niobufs, that of the body being the first one (L-87).
const NIOBUFS: usize = 3;

/// How bulk data are cut into pieces. The pages of a piece have 1 MiB, and a page that is used in part counts
/// as a whole one (P-46). Inside of one request only the first niobuf begins, and only the last one ends, off
/// a page border (L-73), so where the first byte lies in its page says it all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Offset of the first byte in its page. Less than [`PAGE`].
    skew: u64,
}

impl Cut {
    /// The cut of data whose first niobuf is `first`. Only reads and writes of objects have niobufs: all
    /// other bulk data begin with a page.
    fn of(opcode: Opcode, first: impl FnOnce() -> Option<Niobuf>) -> Self {
        match opcode {
            Opcode::OST_READ | Opcode::OST_WRITE => {
                Self { skew: first().map_or(0, |first| first.offset % PAGE) }
            }
            _ => Self::default(),
        }
    }

    /// The cut of the bulk data of a call with these buffers behind its body.
    pub(crate) fn of_call(opcode: Opcode, buffers: &Buffers) -> Self {
        // Messages of this client are little-endian.
        Self::of(opcode, || Niobuf::parse(ByteOrder::Little, buffers.get(NIOBUFS - 1)?).ok())
    }

    /// The cut of the bulk data of a request that has arrived.
    pub(crate) fn of_message(opcode: Opcode, message: &[u8]) -> Self {
        Self::of(opcode, || {
            // The limit of the service was checked before.
            let msg = Msg::parse_within(message, message.len()).ok()?;
            Niobuf::parse(msg.order, msg.buffer(NIOBUFS)?).ok()
        })
    }

    /// Number of the pieces that have so many bytes.
    pub(crate) const fn pieces(self, len: u64) -> u64 {
        match len {
            0 => 0,
            _ => self.skew.saturating_add(len).div_ceil(PIECE),
        }
    }

    /// Most bytes of `pieces` pieces.
    pub(crate) const fn most(self, pieces: u64) -> u64 {
        (pieces * PIECE).saturating_sub(self.skew)
    }

    /// The part of `memory` that is in piece `k`: the bytes after the first `k` pieces in transfer order
    /// (P-46). Empty behind the end.
    pub(crate) fn piece(self, memory: &IoVec, k: u64) -> IoVec {
        let from = self.most(k);
        iovec_slice(memory, from, self.most(k + 1) - from)
    }

    /// Number of the pieces of `memory`.
    pub(crate) fn pieces_of(self, memory: &IoVec) -> u64 {
        self.pieces(iovec_len(memory))
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::{RegionId, Span};
    use lustre_wire::msg::{MsgBuilder, message};
    use lustre_wire::ost::NiobufFlags;
    use lustre_wire::{Body, Header};
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(offset: u64) -> Niobuf {
        Niobuf { offset, len: 1, flags: NiobufFlags::empty() }
    }

    /// Lengths of the pieces of so many bytes that begin at `offset` of an object.
    fn lens(offset: u64, len: u64) -> Vec<u64> {
        let cut = Cut::of(Opcode::OST_WRITE, || Some(range(offset)));
        let memory = IoVec::from([Span { region: RegionId(1), offset: 0, len: len as u32 }]);
        (0..cut.pieces_of(&memory)).map(|k| iovec_len(&cut.piece(&memory, k))).collect()
    }

    /// P-46 word for word: fragments of a page at most, each rounded to 4 KiB, 1 MiB of them in each piece.
    fn by_fragments(ranges: &[(u64, u64)]) -> Vec<u64> {
        let (mut pieces, mut room) = (Vec::new(), 0);
        for &(offset, len) in ranges {
            let (mut at, end) = (offset, offset + len);
            while at < end {
                let fragment = (4096 - at % 4096).min(end - at);
                if room == 0 {
                    pieces.push(0);
                    room = MIB;
                }
                *pieces.last_mut().unwrap() += fragment;
                room -= fragment.next_multiple_of(4096);
                at += fragment;
            }
        }
        pieces
    }

    #[test]
    fn p46_first_piece_is_short_of_what_its_first_page_lacks() {
        for (offset, len, expected) in [
            (0, 0, vec![]),
            (0, 1, vec![1]),
            (0, MIB, vec![MIB]),
            (0, MIB + 1, vec![MIB, 1]),
            (4096, 2 * MIB, vec![MIB, MIB]),
            (1, MIB - 1, vec![MIB - 1]),
            (1, MIB, vec![MIB - 1, 1]),
            (4095, MIB, vec![MIB - 4095, 4095]),
            (5 * MIB + 100, 3 * MIB / 2, vec![MIB - 100, MIB / 2 + 100]),
            (4097, 3 * MIB, vec![MIB - 1, MIB, MIB, 1]),
        ] {
            assert_eq!(lens(offset, len), expected, "{len} bytes at {offset}");
        }
    }

    #[test]
    fn client_and_server_read_the_same_of_a_request_in_both_byte_orders() {
        let before = Buffers::new().bytes(b"body").bytes(b"object");
        for (opcode, buffers, skew) in [
            (Opcode::OST_READ, before.clone().layout(&range(4196)), 100),
            (Opcode::OST_WRITE, before.clone().layout(&range(4196)), 100),
            (Opcode::OST_WRITE, before.clone().layout(&range(8192)), 0),
            (Opcode::OST_WRITE, before.clone().bytes([1; 15]), 0),
            (Opcode::OST_WRITE, before.clone(), 0),
            (Opcode::MDS_READPAGE, before.layout(&range(4196)), 0),
        ] {
            let cut = Cut { skew };
            assert_eq!(Cut::of_call(opcode, &buffers), cut, "{opcode} {buffers:?}");
            let (header, body) = (Header::default(), Body::default());
            let sent = message(&header, &body, &buffers).unwrap();
            assert_eq!(Cut::of_message(opcode, &sent), cut, "{opcode} {buffers:?}");
            assert_eq!(Cut::of_message(opcode, &sent[..sent.len() - 1]), Cut::default());
        }
        let swapped = MsgBuilder::in_order(ByteOrder::Big, Header::default(), &Body::default());
        let swapped = swapped.bytes(b"body").bytes(b"object").layout(&range(4196)).build().unwrap();
        assert_eq!(Cut::of_message(Opcode::OST_READ, &swapped), Cut { skew: 100 });
    }

    proptest! {
        /// Niobufs as L-73 wants them: inner borders on pages.
        #[test]
        fn p46_pieces_are_those_of_the_fragments(
            pages in proptest::collection::vec((1..700u64, 0..3u64), 1..5),
            skew in 0..4096u64, cut_off in 0..4096u64,
        ) {
            let (mut ranges, mut at) = (Vec::new(), 8192);
            for (count, gap) in pages {
                ranges.push((at, count * 4096));
                at += (count + gap) * 4096;
            }
            // One page may be both the first and the last one.
            let skew = if ranges[0].1 > 4096 { skew } else { skew / 2 };
            ranges[0] = (ranges[0].0 + skew, ranges[0].1 - skew);
            let last = ranges.last_mut().unwrap();
            last.1 -= cut_off / 2;
            let len = ranges.iter().map(|(_, len)| len).sum();
            let expected = by_fragments(&ranges);
            prop_assert_eq!(&lens(ranges[0].0, len), &expected);
            // P-50: a short read has the same borders as far as it goes.
            let short = lens(ranges[0].0, len / 2);
            let behind = short.len().saturating_sub(1);
            prop_assert_eq!(&short[..behind], &expected[..behind]);
        }
    }
}
