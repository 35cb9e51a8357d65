//! The sum of frames: CRC-32 (reflected, polynomial 0xEDB88320) started from all ones and *not*
//! inverted at the end (wire.md 3.9). Incremental, because frame header, LNet header and payload
//! lie in different places.

use super::FrameHdr;
use crate::ByteOrder;

/// A running sum.
#[derive(Clone, Debug)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// The sum of nothing, 0xFFFFFFFF. Where versions 3 and 4 start: they sum the payload alone.
    pub fn new() -> Self {
        Self(crc32fast::Hasher::new())
    }

    /// The sum of a frame header with its checksum field taken as zero. Where version 2 starts:
    /// LNet header and payload follow.
    pub fn of_frame(order: ByteOrder, hdr: &FrameHdr) -> Self {
        let mut sum = Self::new();
        sum.update(&FrameHdr { checksum: 0, ..*hdr }.to_bytes(order));
        sum
    }

    /// Continues the sum over `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum so far.
    pub fn value(&self) -> u32 {
        // The crate computes the usual CRC-32, which ends with the inversion that socklnd omits.
        !self.0.clone().finalize()
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}
