//! The bytes of data between a target's memory and the thread that carries orders out: they change hands
//! where the memory allows that, and are copied otherwise.

use lnet_types::{IoVec, Memory, iovec_len, iovec_slice};
use lustre_target::store::{StoreFact, Txn};

use crate::spare::Spare;

/// Bytes, one piece behind the other.
pub(super) type Pieces = Vec<Vec<u8>>;

/// Data that was read, and the memory that it is for: a piece for each of its spans.
pub(super) type Loaded = Option<(IoVec, Pieces)>;

/// The bytes of each write of a transaction.
pub(super) fn written(txn: &Txn, memory: &mut dyn Memory, spare: &Spare) -> Vec<Pieces> {
    txn.writes().map(|spans| take(memory, spans, spare)).collect()
}

/// Takes the bytes of some spans, which have others then. From the first one on that keeps its own the rest
/// is copied, to one piece: pieces that begin anywhere would cut blocks in two.
fn take(memory: &mut dyn Memory, spans: &IoVec, spare: &Spare) -> Pieces {
    let (mut pieces, mut at) = (Vec::with_capacity(spans.len()), 0);
    for span in spans {
        match memory.exchange(*span, spare.take(span.len as usize)) {
            Ok(bytes) => pieces.push(bytes),
            Err(unused) => {
                let rest = iovec_slice(spans, at, iovec_len(spans) - at);
                pieces.push(copy(memory, &rest, unused, spare));
                break;
            }
        }
        at += u64::from(span.len);
    }
    pieces
}

/// A copy of the bytes of some spans, in `bytes` if there is room.
fn copy(memory: &dyn Memory, spans: &IoVec, mut bytes: Vec<u8>, spare: &Spare) -> Vec<u8> {
    // They are in memory.
    let len = iovec_len(spans) as usize;
    if bytes.capacity() < len {
        spare.give(core::mem::replace(&mut bytes, spare.take(len)));
    }
    bytes.clear();
    spans.iter().for_each(|span| bytes.extend_from_slice(memory.bytes(*span)));
    bytes
}

/// Brings data that was read to where it goes.
pub(super) fn deliver(
    (fact, loaded): (StoreFact, Loaded),
    memory: &mut dyn Memory,
    spare: &Spare,
) -> StoreFact {
    let (into, pieces) = loaded.unwrap_or_default();
    for (span, piece) in into.into_iter().zip(pieces) {
        let old = memory.exchange(span, piece).unwrap_or_else(|piece| {
            let to = memory.bytes_mut(span);
            let len = to.len().min(piece.len());
            to.split_at_mut(len).0.copy_from_slice(piece.split_at(len).0);
            piece
        });
        spare.give(old);
    }
    fact
}

#[cfg(test)]
mod tests {
    use lnet_types::{RegionId, Span};
    use lustre_target::store::{Change, DataId};

    use super::*;

    /// Regions; those of an odd number are in use.
    struct Regions(Vec<Vec<u8>>);

    impl Memory for Regions {
        fn bytes(&self, s: Span) -> &[u8] {
            &self.0[s.region.0 as usize][s.offset as usize..][..s.len as usize]
        }

        fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
            &mut self.0[s.region.0 as usize][s.offset as usize..][..s.len as usize]
        }

        fn exchange(&mut self, s: Span, bytes: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
            let region = &mut self.0[s.region.0 as usize];
            if s.region.0 % 2 == 1 || s.len as usize != region.len() || bytes.len() != region.len()
            {
                return Err(bytes);
            }
            Ok(core::mem::replace(region, bytes))
        }
    }

    const LEN: usize = 64 << 10;

    fn spans(regions: &[u32]) -> IoVec {
        let span = |region: &u32| Span { region: RegionId(*region), len: LEN as u32, offset: 0 };
        regions.iter().map(span).collect()
    }

    fn regions(n: u8) -> Regions {
        Regions((0..n).map(|region| vec![region; LEN]).collect())
    }

    #[test]
    fn bytes_of_regions_that_are_free_change_hands_and_the_rest_is_one_copy() {
        let (mut memory, spare) = (regions(5), Spare::default());
        let places: Vec<*const u8> = memory.0.iter().map(|region| region.as_ptr()).collect();
        let bytes = spans(&[0, 2, 1, 4]);
        let changes = vec![Change::Write { data: DataId(1), offset: 0, bytes }];
        let taken = written(&Txn { changes, ..Txn::default() }, &mut memory, &spare);
        let [pieces] = taken.as_slice() else { panic!("one write") };
        let expected = [vec![0; LEN], vec![2; LEN], [vec![1; LEN], vec![4; LEN]].concat()];
        assert_eq!(*pieces, expected);
        assert_eq!(
            pieces[..2].iter().map(|p| p.as_ptr()).collect::<Vec<_>>(),
            [places[0], places[2]]
        );
        // What they have now is as long, and no data.
        assert_eq!((memory.0[0].len(), memory.0[2].len()), (LEN, LEN));
        assert_eq!((memory.0[1][0], memory.0[4][0]), (1, 4));
    }

    #[test]
    fn what_was_read_comes_to_each_span_and_its_memory_before_is_used_again() {
        let (mut memory, spare) = (regions(3), Spare::default());
        let place = memory.0[2].as_ptr();
        let pieces = vec![vec![7; LEN], vec![8; LEN]];
        deliver((StoreFact::Short, Some((spans(&[1, 2]), pieces))), &mut memory, &spare);
        assert_eq!(memory.0, [vec![0; LEN], vec![7; LEN], vec![8; LEN]]);
        let again = spare.take(LEN);
        assert_eq!(again.as_ptr(), place);
    }
}
