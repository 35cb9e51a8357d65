//! What travels between the ends of connections.

use core::net::SocketAddr;

/// What travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    pub(super) kind: Flags,
    pub(super) seq: u64,
    /// The next byte that is expected; without meaning if `kind.ack` is not set.
    pub(super) ack: u64,
    /// How far the other end may send.
    pub(super) edge: u64,
    /// What has arrived behind a gap, from and to.
    pub(super) early: Box<[(u64, u64)]>,
    pub(super) data: Box<[u8]>,
}

/// What a segment says besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) syn: bool,
    pub(super) ack: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
}

impl Segment {
    /// Bytes on the wire.
    pub(super) fn wire_len(&self) -> u64 {
        self.data.len() as u64 + 80
    }

    /// What it advances the sequence by.
    fn len(&self) -> u64 {
        self.data.len() as u64 + u64::from(self.kind.syn) + u64::from(self.kind.fin)
    }

    /// The answer of a host without such a connection; nothing to a reset.
    pub(super) fn refusal(&self) -> Option<Self> {
        let (seq, ack) = match (self.kind.rst, self.kind.ack) {
            (true, _) => return None,
            (false, true) => (self.ack, 0),
            (false, false) => (0, self.seq + self.len()),
        };
        let kind = Flags { rst: true, ack: !self.kind.ack, ..Flags::default() };
        let (early, data) = (Box::default(), Box::default());
        Some(Self { src: self.dst, dst: self.src, kind, seq, ack, edge: 0, early, data })
    }
}
