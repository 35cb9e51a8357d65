//! The border below the driver: one adapter port with its connection manager. A shell over verbs
//! implements it, and so does the emulated adapter (`emulated/`).
//!
//! Calls go down in the order in which [`crate::IbNi`] polls them. What happens comes up as [`Fact`]s,
//! polled; none names a connection behind the call that destroyed it.

use lnet_types::{Errno, Instant, Memory};
use lnet_wire::ib::RdmaDesc;

use crate::device::DeviceEvent;
use crate::value::{
    Access, CmCall, CmEvent, CmRejection, ConnId, MapId, MapMemory, Post, RequestId, WorkId,
};

/// An adapter port.
pub trait Adapter {
    /// Calls the connection manager.
    fn cm(&mut self, now: Instant, call: CmCall);

    /// Posts a receive buffer of [`lnet_wire::ib::MSG_MAX`] bytes.
    fn receive(&mut self, now: Instant, conn: ConnId, slot: u16);

    /// Posts a chain of work requests. The message and its payload are gathered before the call
    /// returns; writes read mapped memory until the chain completes. Its end is a [`Fact::Done`].
    fn post(&mut self, now: Instant, post: Post, mem: &dyn Memory);

    /// Makes memory reachable. `mem` says where spans lie; their bytes stay there as long as they are
    /// mapped.
    ///
    /// # Errors
    /// The adapter, or the limit on locked memory, does not allow it.
    fn map(
        &mut self,
        map: MapId,
        memory: MapMemory,
        access: Access,
        mem: &mut dyn Memory,
    ) -> Result<RdmaDesc, Errno>;

    /// Makes memory unreachable before the call returns. What a peer may be writing is unmapped when its
    /// connection is destroyed (RS-096).
    fn unmap(&mut self, map: MapId);

    /// The same, at the node's wish: a peer that may be writing loses its connection if it does.
    fn revoke(&mut self, map: MapId) {
        self.unmap(map);
    }

    /// The bytes of a receive buffer; none of one that is posted.
    fn slot(&self, conn: ConnId, slot: u16) -> &[u8];

    /// The bytes of a mapped buffer of the shell's ([`MapMemory::Buffer`]), readable behind
    /// [`Adapter::unmap`] until the next [`Adapter::poll`].
    fn buffer(&self, map: MapId) -> &[u8];

    /// Whether the caller polls without sleeping from now on: nothing has to wake it as long as it
    /// does.
    fn spin(&mut self, _spins: bool) {}

    /// The source that was registered under a token of this adapter has news.
    fn ready(&mut self, _token: usize) {}

    /// Whether the system has the device still, as far as is known.
    fn is_there(&self) -> bool {
        true
    }

    /// Opens a device again that was taken away. Its port and its rate follow as facts.
    ///
    /// # Errors
    /// It is not back.
    fn reopen(&mut self, now: Instant) -> Result<(), Errno>;

    /// The next thing that has happened.
    fn poll(&mut self) -> Option<Fact>;
}

/// Something that an adapter reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// An event of the connection manager.
    Cm {
        /// The connection.
        conn: ConnId,
        /// The event.
        event: CmFact,
    },
    /// A peer asks for a connection.
    Request {
        /// Its name, for the answer.
        request: RequestId,
        /// What it carries.
        private: Vec<u8>,
    },
    /// A receive buffer has completed: with so many bytes, or as failed.
    Received {
        /// The connection.
        conn: ConnId,
        /// The buffer.
        slot: u16,
        /// Bytes.
        outcome: Result<usize, ()>,
    },
    /// A chain of work requests has completed.
    Done {
        /// The connection.
        conn: ConnId,
        /// The chain.
        work: WorkId,
        /// Whether it was carried out.
        outcome: Result<(), ()>,
    },
    /// An event of the device.
    Device(DeviceEvent),
}

impl Fact {
    /// The connection that it is about.
    pub const fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Cm { conn, .. } | Self::Received { conn, .. } | Self::Done { conn, .. } => {
                Some(*conn)
            }
            Self::Request { .. } | Self::Device(_) => None,
        }
    }
}

/// An event of the connection manager that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmFact {
    /// One without private data.
    Plain(CmEvent<'static>),
    /// The connection is there.
    Established(Vec<u8>),
    /// The peer refuses.
    Rejected(CmRejection, Vec<u8>),
}

impl CmFact {
    /// The event.
    pub fn event(&self) -> CmEvent<'_> {
        match self {
            Self::Plain(event) => *event,
            Self::Established(private) => CmEvent::Established { private },
            Self::Rejected(why, private) => CmEvent::Rejected { why: *why, private },
        }
    }
}
