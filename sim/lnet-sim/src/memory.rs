//! A host's memory. Where a workload looks at its bytes they are real; elsewhere a region is only a
//! length, and ten thousand hosts fit into one machine.
//!
//! Router buffers hold what was put there and nothing else: a router of a real site has more than a
//! gigabyte of them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use lnet::upper::Arena;
use lnet::{Payload, RouterMemory};
use lnet_types::{Errno, IoVec, Memory, RegionId, Span, iovec_len};

/// What a message carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// So many bytes without content.
    Blank(u32),
    /// These.
    Bytes(Arc<[u8]>),
}

impl Body {
    /// How many bytes.
    pub fn len(&self) -> u32 {
        match self {
            Self::Blank(len) => *len,
            Self::Bytes(b) => b.len() as u32,
        }
    }

    /// The same as what a driver would send. Bytes without a reader are zeros.
    pub(crate) fn to_payload(&self) -> Payload {
        match self {
            Self::Blank(len) => Payload::Bytes(vec![0; *len as usize].into()),
            Self::Bytes(bytes) => Payload::Bytes(bytes.clone()),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug)]
enum Region {
    /// Its content is not kept.
    Blank,
    Bytes(Vec<u8>),
    /// Router buffers: what lies at which offset.
    Chunks(BTreeMap<u64, Body>),
}

/// Regions by number.
#[derive(Debug, Default)]
pub struct Mem {
    regions: Vec<Option<Region>>,
    free: Vec<u32>,
    /// Whether router buffers are real bytes: drivers that read and write them need that.
    real_buffers: bool,
    nowhere: Vec<u8>,
}

impl Mem {
    pub(crate) fn new(real_buffers: bool) -> Self {
        Self { real_buffers, ..Self::default() }
    }

    /// Whether messages come byte by byte, and so several at a time.
    pub(crate) const fn moves_bytes(&self) -> bool {
        self.real_buffers
    }

    fn insert(&mut self, region: Region) -> RegionId {
        match self.free.pop() {
            Some(at) => {
                self.regions[at as usize] = Some(region);
                RegionId(at)
            }
            None => {
                self.regions.push(Some(region));
                RegionId(self.regions.len() as u32 - 1)
            }
        }
    }

    /// A region of `len` bytes; real ones only if `real`.
    pub(crate) fn add(&mut self, len: u32, real: bool) -> IoVec {
        let region = if real { Region::Bytes(vec![0; len as usize]) } else { Region::Blank };
        let region = self.insert(region);
        IoVec::from_slice(&[Span { region, len, offset: 0 }])
    }

    pub(crate) fn add_bytes(&mut self, bytes: Vec<u8>) -> IoVec {
        let len = bytes.len() as u32;
        let region = self.insert(Region::Bytes(bytes));
        IoVec::from_slice(&[Span { region, len, offset: 0 }])
    }

    pub(crate) fn remove(&mut self, id: RegionId) {
        if self.regions.get_mut(id.0 as usize).and_then(Option::take).is_some() {
            self.free.push(id.0);
        }
    }

    /// The first `len` bytes of a region, if they are real.
    pub(crate) fn look(&self, id: RegionId, len: u32) -> Option<&[u8]> {
        self.look_at(id, 0, len)
    }

    /// `len` bytes of a region from `offset` on, if they are real.
    pub(crate) fn look_at(&self, id: RegionId, offset: u64, len: u32) -> Option<&[u8]> {
        match self.regions.get(id.0 as usize) {
            Some(Some(Region::Bytes(b))) => b.get(offset as usize..)?.get(..len as usize),
            _ => None,
        }
    }

    /// What leaves.
    pub fn read(&self, payload: &Payload) -> Body {
        match payload {
            Payload::Bytes(b) => Body::Bytes(b.clone()),
            Payload::Spans(iov) => match iov.as_slice() {
                [] => Body::Blank(0),
                [one] => self.read_span(*one),
                many => self.read_spans(many),
            },
        }
    }

    fn read_span(&self, span: Span) -> Body {
        match self.regions.get(span.region.0 as usize) {
            Some(Some(Region::Bytes(_))) => Body::Bytes(Arc::from(self.bytes(span))),
            Some(Some(Region::Chunks(chunks))) => match chunks.get(&span.offset) {
                Some(body) if body.len() == span.len => body.clone(),
                _ => Body::Blank(span.len),
            },
            _ => Body::Blank(span.len),
        }
    }

    /// Bytes of several spans are real if all are.
    fn read_spans(&self, spans: &[Span]) -> Body {
        let mut all = Vec::new();
        for span in spans {
            match self.read_span(*span) {
                Body::Bytes(b) => all.extend_from_slice(&b),
                Body::Blank(_) => return Body::Blank(iovec_len(spans) as u32),
            }
        }
        Body::Bytes(all.into())
    }

    /// What arrives, as far as there is room.
    pub fn write(&mut self, iov: &[Span], body: &Body) {
        let mut done = 0usize;
        for span in iov {
            let n = (span.len as usize).min(body.len() as usize - done);
            if n == 0 {
                return;
            }
            let part = match body {
                Body::Bytes(b) if n == b.len() => body.clone(),
                Body::Bytes(b) => Body::Bytes(b[done..done + n].into()),
                Body::Blank(_) => Body::Blank(n as u32),
            };
            done += n;
            match (self.regions.get_mut(span.region.0 as usize), part) {
                (Some(Some(Region::Bytes(to))), Body::Bytes(b)) => {
                    let at = span.offset as usize;
                    to[at..at + n].copy_from_slice(&b);
                }
                (Some(Some(Region::Chunks(chunks))), part) => {
                    chunks.insert(span.offset, part);
                }
                // No content.
                _ => {}
            }
        }
    }

    /// Regions in existence.
    pub fn count(&self) -> usize {
        self.regions.len() - self.free.len()
    }
}

impl Memory for Mem {
    /// Places without bytes read as zeros.
    fn bytes(&self, s: Span) -> &[u8] {
        // Made with the first use: as a constant they would be a megabyte of the program.
        static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; 1 << 20]);
        match self.regions.get(s.region.0 as usize) {
            Some(Some(Region::Bytes(b))) => {
                &b[s.offset as usize..s.offset as usize + s.len as usize]
            }
            _ => &ZEROS[..s.len as usize],
        }
    }

    /// What is written to places without bytes is forgotten.
    fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
        match self.regions.get_mut(s.region.0 as usize) {
            Some(Some(Region::Bytes(b))) => {
                &mut b[s.offset as usize..s.offset as usize + s.len as usize]
            }
            _ => {
                self.nowhere.resize(s.len as usize, 0);
                &mut self.nowhere
            }
        }
    }
}

/// Real bytes.
impl Arena for Mem {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        Ok(self.insert(Region::Bytes(vec![0; len as usize])))
    }

    fn unregister(&mut self, region: RegionId) {
        self.remove(region);
    }

    fn contains(&self, spans: &[Span]) -> bool {
        spans.iter().all(|s| self.look_at(s.region, s.offset, s.len).is_some())
    }

    // Uppers give regions back only when no descriptor stands on them, so no count is needed.
    fn hold(&mut self, _: &[Span]) {}
    fn release(&mut self, _: &[Span]) {}
}

impl RouterMemory for Mem {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        let region = match self.real_buffers {
            true => Region::Bytes(vec![0; len as usize]),
            false => Region::Chunks(BTreeMap::new()),
        };
        Ok(self.insert(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_hands_on_what_it_was_given_real_or_not() {
        let mut m = Mem::new(false);
        let region = RouterMemory::register(&mut m, 1 << 24).unwrap();
        let span = |offset, len| [Span { region, len, offset }];
        m.write(&span(4096, 4096), &Body::Bytes(Arc::from([7u8; 5])));
        m.write(&span(8192, 4096), &Body::Blank(100));
        let at = |offset, len| m.read(&Payload::Spans(IoVec::from_slice(&span(offset, len))));
        assert_eq!(at(4096, 5), Body::Bytes(Arc::from([7u8; 5])));
        assert_eq!(at(8192, 100), Body::Blank(100));
    }

    #[test]
    fn bytes_cross_the_borders_of_spans() {
        let mut m = Mem::new(true);
        let mut iov = m.add(3, true);
        iov.extend(m.add(4, true));
        m.write(&iov, &Body::Bytes(Arc::from(*b"abcdefg")));
        assert_eq!(m.read(&Payload::Spans(iov)), Body::Bytes(Arc::from(*b"abcdefg")));
    }
}
