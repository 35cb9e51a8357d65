//! FIDs for new files: each metadata target gives a client sequences, of which it takes numbers
//! (C-38 … C-40).

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use lustre_wire::Fid;
use lustre_wire::fid::SeqRange;

use super::remote::Remote;
use super::{VisitError, Wire, mdc};

/// Files of a sequence.
const WIDTH: u32 = 0x2_0000;
/// Most sequences that a visit takes from one target.
const SEQUENCES_MAX: usize = 1024;

/// A sequence, and how many of its numbers were taken.
#[derive(Debug)]
struct Sequence {
    seq: u64,
    taken: AtomicU32,
    /// How often the target had evicted this client when it gave the sequence.
    evictions: u64,
}

/// The FIDs of a target.
#[derive(Debug, Default)]
pub(super) struct Fids(Vec<OnceLock<Sequence>>);

impl Fids {
    pub(super) fn new() -> Self {
        Self((0..SEQUENCES_MAX).map(|_| OnceLock::new()).collect())
    }
}

impl<L> Remote<L> {
    /// A FID that no file has had. Sequences of before an eviction are not used any more (C-40).
    pub(super) async fn new_fid<W: Wire<Link = L>>(&self, wire: &W) -> Result<Fid, VisitError> {
        for place in &self.fids.0 {
            let evictions = self.evictions(wire);
            let sequence = match place.get() {
                Some(sequence) => sequence,
                None => {
                    let range: Option<SeqRange> = self.ask(wire, mdc::sequence()).await?.get(1);
                    let range = range.filter(|range| range.start != 0 && range.start < range.end);
                    let range = range.ok_or_else(|| self.bad("expected a sequence"))?;
                    let (seq, taken) = (range.start, AtomicU32::new(0));
                    place.get_or_init(|| Sequence { seq, taken, evictions })
                }
            };
            if sequence.evictions < self.evictions(wire) {
                continue;
            }
            let taken = sequence.taken.fetch_add(1, Ordering::Relaxed);
            if taken < WIDTH {
                return Ok(Fid { seq: sequence.seq, oid: taken + 1, ver: 0 });
            }
            // Others that find it empty count on; it must not begin again.
            sequence.taken.store(WIDTH, Ordering::Relaxed);
        }
        Err(self.bad("expected a sequence that is new"))
    }
}
