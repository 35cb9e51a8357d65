//! Payload is named, never held: the core passes `Span`s of registered memory about, and only the
//! layers that move or read bytes get to resolve them through `Memory`.

use std::sync::Arc;

use smallvec::SmallVec;

/// A registered region of memory, issued by the memory's owner (`lnet-rt`, the simulator).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct RegionId(pub u32);

/// `len` bytes at `offset` of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// Length in bytes.
    pub len: u32,
    /// First byte, counted from the start of the region.
    pub offset: u64,
}

/// A scatter/gather list. Nearly always one span.
pub type IoVec = SmallVec<[Span; 1]>;

/// Total length in bytes of a scatter/gather list.
#[inline]
pub fn iovec_len(iov: &[Span]) -> u64 {
    match iov {
        [one] => u64::from(one.len),
        many => many.iter().map(|s| u64::from(s.len)).sum(),
    }
}

/// The part of `iov` that begins `offset` bytes in and is `len` bytes long. What lies past the end
/// of `iov` is left out, so the result may be shorter than `len`.
#[inline]
pub fn iovec_slice(iov: &[Span], offset: u64, len: u64) -> IoVec {
    match iov {
        [one] => part(one, offset, len).map_or_else(IoVec::new, |part| IoVec::from_buf([part])),
        many => slice_of_many(many, offset, len),
    }
}

fn slice_of_many(iov: &[Span], mut offset: u64, mut len: u64) -> IoVec {
    let mut out = IoVec::new();
    for span in iov {
        let here = u64::from(span.len);
        if offset >= here {
            offset -= here;
            continue;
        }
        if len == 0 {
            break;
        }
        let Some(part) = part(span, offset, len) else { break };
        out.push(part);
        offset = 0;
        len -= u64::from(part.len);
    }
    out
}

/// The part of a span that begins `offset` bytes in and has `len` bytes at most; `None` if it is empty.
#[inline]
fn part(span: &Span, offset: u64, len: u64) -> Option<Span> {
    let take = u64::from(span.len).checked_sub(offset)?.min(len);
    // `take` is at most `span.len`, so it fits.
    let part = Span { region: span.region, len: take as u32, offset: span.offset + offset };
    (take > 0).then_some(part)
}

/// A copy of a scatter/gather list: nearly always of one span.
#[inline]
pub fn iovec_copy(iov: &[Span]) -> IoVec {
    match iov {
        [one] => IoVec::from_buf([*one]),
        many => IoVec::from_slice(many),
    }
}

/// Access to the bytes behind spans, lent to the few who read or move payload.
///
/// A span that does not lie inside a live region is a bug of the caller (spans are made by checked
/// constructors and only ever narrowed): implementations panic on it.
pub trait Memory {
    /// The bytes of `span`.
    fn bytes(&self, span: Span) -> &[u8];
    /// The bytes of `span`, to be written.
    fn bytes_mut(&mut self, span: Span) -> &mut [u8];

    /// Puts `bytes` in the place of those of `span`, and gives those: no byte is copied.
    ///
    /// # Errors
    /// `bytes` come back, and nothing has changed: the span is not the whole of a region, or has not as many
    /// bytes, or something else uses the region or knows its place; or this memory exchanges nothing.
    fn exchange(&mut self, _span: Span, bytes: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
        Err(bytes)
    }

    /// What lives exactly as long as the bytes of a region stay at their place, across all regions that
    /// the same memory is lent as: what is known of the place may be kept that long. `None` where it
    /// may be kept no longer than the region is in use.
    fn anchor(&self, _region: RegionId) -> Option<&Arc<()>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(offset: u64, len: u32) -> Span {
        Span { region: RegionId(7), len, offset }
    }

    #[test]
    fn slices_cross_span_borders_and_stop_at_the_end() {
        let iov = [span(0, 10), span(100, 5), span(200, 20)];
        assert_eq!(iovec_slice(&iov, 8, 10).as_slice(), &[span(8, 2), span(100, 5), span(200, 3)]);
        assert_eq!(iovec_slice(&iov, 30, 100).as_slice(), &[span(215, 5)]);
        assert!(iovec_slice(&iov, 35, 1).is_empty());
        assert!(iovec_slice(&iov, 0, 0).is_empty());
    }
}
