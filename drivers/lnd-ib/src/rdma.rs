//! From a descriptor of remote memory to RDMA writes: each is contiguous at the peer; where it lies
//! here is the shell's to gather.

use lnet_wire::ib::RdmaDesc;
use thiserror::Error;

use crate::value::{MapId, Write};

/// A descriptor that cannot be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RdmaError {
    /// A fragment reaches beyond the end of the address space.
    #[error("fragment of {nob} bytes at {addr:#x}: must end below 2^64")]
    Address {
        /// Its address.
        addr: u64,
        /// Its length.
        nob: u32,
    },
    /// There is less room than data.
    #[error("descriptor of {room} bytes: expected at least {need}")]
    Short {
        /// Bytes of the descriptor.
        room: u64,
        /// Bytes that are to be written.
        need: u64,
    },
}

/// The writes that bring the first `nob` bytes of `from` to the memory of `to`.
///
/// # Errors
/// A descriptor that is too short or has an address that does not fit.
pub fn plan(from: MapId, nob: u64, to: &RdmaDesc) -> Result<Vec<Write>, RdmaError> {
    for frag in &to.frags {
        if frag.addr.checked_add(frag.nob.into()).is_none() {
            return Err(RdmaError::Address { addr: frag.addr, nob: frag.nob });
        }
    }
    let room = to.nob();
    if room < nob {
        return Err(RdmaError::Short { room, need: nob });
    }
    let mut writes = Vec::new();
    let mut offset = 0;
    for frag in &to.frags {
        let len = (nob - offset).min(frag.nob.into());
        if len > 0 {
            // `len` is at most `frag.nob`, so it fits.
            writes.push(Write { from, offset, len: len as u32, addr: frag.addr, key: to.key });
            offset += len;
        }
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use lnet_wire::ib::Frag;
    use proptest::prelude::*;

    use super::*;

    fn desc(frags: &[(u64, u32)]) -> RdmaDesc {
        RdmaDesc { key: 7, frags: frags.iter().map(|&(addr, nob)| Frag { addr, nob }).collect() }
    }

    #[test]
    fn fragments_are_filled_in_order_with_gaps_between_them() {
        let to = desc(&[(0x1000, 100), (0x9000, 0), (0x5000, 50), (0x7000, 50)]);
        let writes = plan(MapId(1), 120, &to).expect("it fits");
        let places: Vec<_> = writes.iter().map(|w| (w.offset, w.len, w.addr, w.key)).collect();
        assert_eq!(places, [(0, 100, 0x1000, 7), (100, 20, 0x5000, 7)]);
        assert_eq!(plan(MapId(1), 0, &to), Ok(vec![]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let short = plan(MapId(1), 101, &desc(&[(0, 100)]));
        assert_eq!(short, Err(RdmaError::Short { room: 100, need: 101 }));
        let beyond = plan(MapId(1), 1, &desc(&[(0, 100), (u64::MAX - 10, 10), (u64::MAX, 1)]));
        assert_eq!(beyond, Err(RdmaError::Address { addr: u64::MAX, nob: 1 }));
    }

    proptest! {
        #[test]
        fn writes_cover_the_data_once_and_stay_inside_the_fragments(
            frags in proptest::collection::vec((0..1_u64 << 40, 0..10_000_u32), 1..20),
            part in 0..=100_u64,
        ) {
            let to = desc(&frags);
            let nob = to.nob() * part / 100;
            let writes = plan(MapId(3), nob, &to).expect("it fits");
            let mut offset = 0;
            for write in &writes {
                prop_assert_eq!(write.offset, offset);
                offset += u64::from(write.len);
                let inside = frags.iter().any(|&(addr, len)| addr == write.addr && write.len <= len);
                prop_assert!(inside && write.len > 0);
            }
            prop_assert_eq!(offset, nob);
        }
    }
}
