//! Data off page borders: what the pieces of bulk data have (P-46), and which bytes arrive.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lnet_wire::Kind;
use lustre_wire::Portal;

use super::{Bench, MIB, pattern};

/// Lengths of the pieces of bulk data, by the first match bits of each request.
type Pieces = Rc<RefCell<BTreeMap<u64, BTreeMap<u64, u64>>>>;

fn watch(bench: &mut Bench) -> Pieces {
    let pieces = Pieces::default();
    let seen = Rc::clone(&pieces);
    bench.world.loses = Some(Box::new(move |t| {
        let (match_bits, len) = match t.hdr.kind {
            Kind::Put { match_bits, portal, .. } if portal == Portal::OST_BULK.0 => {
                (match_bits, t.hdr.payload_len)
            }
            Kind::Get { match_bits, sink_len, .. } => (match_bits, sink_len),
            _ => return false,
        };
        // P-44, P-49: numbers of requests are multiples of 128.
        let first = match_bits / 128 * 128;
        seen.borrow_mut().entry(first).or_default().insert(match_bits - first, len.into());
        false
    }));
    pieces
}

/// The lengths, request by request.
fn lens(pieces: &Pieces) -> Vec<Vec<u64>> {
    let all = pieces.take();
    let mut all: Vec<Vec<u64>> = all.into_values().map(|one| one.into_values().collect()).collect();
    all.sort_unstable();
    all
}

#[test]
fn data_at_odd_offsets_move_in_pieces_of_whole_pages_and_requests_end_at_borders() {
    for (offset, len, mut expected) in [
        (100, 3 * MIB / 2, vec![vec![MIB - 100, MIB / 2 + 100]]),
        (MIB - 1, MIB + 2, vec![vec![MIB - 4095, 4097]]),
        (4 * MIB + 4095, MIB, vec![vec![MIB - 4095, 4095]]),
        (
            100,
            9 * MIB,
            vec![vec![MIB - 100, MIB, MIB, MIB], vec![MIB, MIB, MIB, MIB], vec![MIB, 100]],
        ),
    ] {
        expected.sort_unstable();
        let mut bench = Bench::new();
        let (a, b) = (bench.client("a"), bench.client("b"));
        bench.warm(a);
        let bytes = pattern(len, 7);
        let pieces = watch(&mut bench);
        bench.write(a, 1, offset, &bytes);
        assert!(bench.fsync(a, 1).is_ok());
        assert_eq!(lens(&pieces), expected, "{len} bytes written at {offset}");
        let read = bench.read(b, 1, offset, len);
        assert!(read == bytes, "{len} bytes at {offset}");
        assert_eq!(lens(&pieces), expected, "{len} bytes read at {offset}");
        // The same bytes by a request that begins with a page.
        let whole = bench.read(b, 1, 0, offset + len);
        let (before, behind) = whole.split_at(offset as usize);
        assert!(behind == bytes && before.iter().all(|b| *b == 0), "{len} bytes at {offset}");
    }
}
