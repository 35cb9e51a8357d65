//! Memory that maps name: held registrations to be read, and registrations of one exchange to be written.

use std::sync::Arc;

use lnet::Payload;
use lnet_types::{Errno, IoVec, Memory, Span, iovec_slice};
use lnet_wire::ib::{Frag, RdmaDesc};
use smallvec::SmallVec;

use super::Verbs;
use super::pages::Pages;
use super::registrations::RegId;
use super::sys::Sge;
use crate::value::MapMemory;

/// Memory that a map names.
#[derive(Debug)]
pub(super) enum Mapped {
    /// To be read, in its order.
    Read {
        places: SmallVec<[Sge; 1]>,
        registrations: SmallVec<[RegId; 1]>,
        /// Bytes of the node's own.
        _bytes: Option<Arc<[u8]>>,
    },
    /// To be written by a peer.
    Written { registration: RegId, buffer: Option<(Pages, usize)> },
}

impl Verbs {
    pub(super) fn read_spans(&mut self, spans: &[Span], mem: &dyn Memory) -> Result<Mapped, Errno> {
        let (mut places, mut registrations) = (SmallVec::new(), SmallVec::<[RegId; 1]>::new());
        for span in spans.iter().filter(|span| span.len > 0) {
            let addr = mem.bytes(*span).as_ptr() as u64;
            let anchor = mem.anchor(span.region);
            match self.registrations.hold(anchor, addr, span.len.into()) {
                Ok((registration, lkey)) => {
                    registrations.push(registration);
                    places.push(Sge { addr, length: span.len, lkey });
                }
                Err(errno) => {
                    registrations.into_iter().for_each(|id| self.registrations.release(id));
                    return Err(errno);
                }
            }
        }
        Ok(Mapped::Read { places, registrations, _bytes: None })
    }

    pub(super) fn map_read(
        &mut self,
        memory: MapMemory,
        mem: &dyn Memory,
    ) -> Result<Mapped, Errno> {
        match memory {
            MapMemory::Spans(spans) | MapMemory::Payload(Payload::Spans(spans)) => {
                self.read_spans(&spans, mem)
            }
            MapMemory::Payload(Payload::Bytes(bytes)) => {
                let (addr, length) = (bytes.as_ptr() as u64, bytes.len() as u32);
                let (id, lkey) = self.registrations.lend(addr, length.into())?;
                Ok(Mapped::Read {
                    places: SmallVec::from_elem(Sge { addr, length, lkey }, 1),
                    registrations: SmallVec::from_elem(id, 1),
                    _bytes: Some(bytes),
                })
            }
            // Written by peers, never read.
            MapMemory::Buffer(_) => Err(Errno::EINVAL),
        }
    }

    pub(super) fn map_written(
        &mut self,
        memory: MapMemory,
        mem: &mut dyn Memory,
    ) -> Result<(Mapped, RdmaDesc), Errno> {
        let (addr, nob, buffer) = match memory {
            MapMemory::Spans(spans) => {
                // One key opens one place: `IbConfig::one_span` sees to that.
                let [span] = only(&spans)?;
                (mem.bytes_mut(span).as_mut_ptr() as u64, span.len, None)
            }
            MapMemory::Buffer(len) => {
                let pages = Pages::new(len as usize);
                (pages.addr(), len, Some((pages, len as usize)))
            }
            MapMemory::Payload(_) => return Err(Errno::EINVAL),
        };
        let (registration, key) = self.registrations.expose(addr, nob.into())?;
        let frags = SmallVec::from_elem(Frag { addr, nob }, 1);
        Ok((Mapped::Written { registration, buffer }, RdmaDesc { key, frags }))
    }
}

/// The one span that has bytes.
fn only(spans: &IoVec) -> Result<[Span; 1], Errno> {
    let spans = iovec_slice(spans, 0, u64::MAX);
    spans.as_slice().try_into().map_err(|_| Errno::EINVAL)
}
