//! Memory that an emulated adapter reaches, by the keys that open it.

use std::collections::BTreeMap;

use lnet::Payload;
use lnet_types::{IoVec, Memory, Span, iovec_len, iovec_slice};
use lnet_wire::ib::{Frag, RdmaDesc};

use crate::value::{Access, ConnId, MapId, MapMemory};

/// Addresses between the beginnings of two maps.
const APART: u64 = 1 << 32;

#[derive(Debug)]
enum Place {
    Spans(IoVec),
    Bytes(Vec<u8>),
}

#[derive(Debug)]
struct Mapped {
    place: Place,
    access: Access,
    key: u32,
    /// Its first address.
    at: u64,
    /// The connection on which its key was sent to a peer that has not said that it is done, and the name of
    /// the exchange.
    announced: Option<(ConnId, u64)>,
    open: bool,
}

impl Mapped {
    fn len(&self) -> u64 {
        match &self.place {
            Place::Spans(spans) => iovec_len(spans),
            Place::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// All maps.
#[derive(Debug, Default)]
pub(super) struct Keys {
    maps: BTreeMap<MapId, Mapped>,
    by_key: BTreeMap<u32, MapId>,
    last_key: u32,
    /// Closed, with bytes that their driver may still read.
    closed: Vec<MapId>,
}

impl Keys {
    /// Opens memory, in so many pieces as its peer sees it.
    pub(super) fn open_map(
        &mut self,
        map: MapId,
        memory: MapMemory,
        access: Access,
        pieces: u64,
    ) -> RdmaDesc {
        let place = match memory {
            MapMemory::Spans(spans) | MapMemory::Payload(Payload::Spans(spans)) => {
                Place::Spans(spans)
            }
            MapMemory::Payload(Payload::Bytes(bytes)) => Place::Bytes(bytes.to_vec()),
            MapMemory::Buffer(len) => Place::Bytes(vec![0; len as usize]),
        };
        self.last_key = self.last_key.wrapping_add(7);
        let key = self.last_key;
        let at = APART.wrapping_mul(map.0);
        let mapped = Mapped { place, access, key, at, announced: None, open: true };
        let len = mapped.len();
        self.maps.insert(map, mapped);
        self.by_key.insert(key, map);
        let each = len.div_ceil(pieces).max(1);
        let frags = (0..len)
            .step_by(each as usize)
            .map(|first| Frag { addr: at + first, nob: each.min(len - first) as u32 });
        RdmaDesc { key, frags: frags.collect() }
    }

    /// Closes memory. The connection through which a peer may have been writing it.
    pub(super) fn close_map(&mut self, map: MapId) -> Option<ConnId> {
        let mapped = self.maps.get_mut(&map)?;
        self.by_key.remove(&mapped.key);
        mapped.open = false;
        self.closed.push(map);
        mapped.announced.map(|(conn, _)| conn)
    }

    /// What is closed is gone.
    pub(super) fn forget_closed(&mut self) {
        for map in self.closed.drain(..) {
            self.maps.remove(&map);
        }
    }

    pub(super) fn open(&self) -> usize {
        self.maps.values().filter(|mapped| mapped.open).count()
    }

    /// A peer gets to know a key; whether it opens anything.
    pub(super) fn announce(&mut self, key: u32, conn: ConnId, cookie: u64) -> bool {
        let mapped = self.by_key.get(&key).and_then(|map| self.maps.get_mut(map));
        let Some(mapped) = mapped else { return false };
        mapped.announced = Some((conn, cookie));
        true
    }

    /// A peer has said that an exchange is over: it writes there no more.
    pub(super) fn done(&mut self, conn: ConnId, cookie: u64) {
        let of_it = |mapped: &&mut Mapped| mapped.announced == Some((conn, cookie));
        if let Some(mapped) = self.maps.values_mut().find(of_it) {
            mapped.announced = None;
        }
    }

    pub(super) fn buffer(&self, map: MapId) -> &[u8] {
        match self.maps.get(&map) {
            Some(Mapped { place: Place::Bytes(bytes), .. }) => bytes,
            _ => &[],
        }
    }

    /// The bytes that a write reads; `None` where the memory is not open or too short.
    pub(super) fn read(
        &self,
        map: MapId,
        offset: u64,
        len: u32,
        mem: &dyn Memory,
    ) -> Option<Vec<u8>> {
        let mapped = self.maps.get(&map).filter(|mapped| mapped.open)?;
        match &mapped.place {
            Place::Bytes(bytes) => {
                let from = usize::try_from(offset).ok()?;
                Some(bytes.get(from..)?.get(..len as usize)?.to_vec())
            }
            Place::Spans(spans) => {
                let part = iovec_slice(spans, offset, len.into());
                let mut bytes = Vec::new();
                // Span by span: byte by byte took most of the time of worlds with RDMA.
                part.iter().for_each(|span| bytes.extend_from_slice(mem.bytes(*span)));
                (bytes.len() == len as usize).then_some(bytes)
            }
        }
    }

    /// Writes for a peer, and lists what was written; false where the key does not open the place.
    pub(super) fn write(
        &mut self,
        key: u32,
        addr: u64,
        bytes: &[u8],
        mem: &mut dyn Memory,
        written: &mut Vec<Span>,
    ) -> bool {
        let mapped = self.by_key.get(&key).and_then(|map| self.maps.get_mut(map));
        let Some(mapped) = mapped.filter(|mapped| mapped.access == Access::RemoteWrite) else {
            return false;
        };
        let room = mapped.len();
        let Some(offset) = addr.checked_sub(mapped.at) else { return false };
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > room) {
            return false;
        }
        match &mut mapped.place {
            Place::Bytes(to) => {
                let at = offset as usize;
                to[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Place::Spans(spans) => {
                let mut rest = bytes;
                for span in iovec_slice(spans, offset, bytes.len() as u64) {
                    let (now, later) = rest.split_at(rest.len().min(span.len as usize));
                    mem.bytes_mut(span).copy_from_slice(now);
                    written.push(span);
                    rest = later;
                }
            }
        }
        true
    }
}
