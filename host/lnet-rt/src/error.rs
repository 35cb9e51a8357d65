//! Errors by who must act. Each has the number that kernel LNet would return, for edges that speak
//! in numbers; failures of the network arrive here as that number alone, because what it means for
//! health has been settled inside the node.

use core::fmt;
use std::io;

use lnd_ib::{ConfigError, OpenError};
use lnd_sock::StartError;
use lnet::{AttachError, SendError};
use lnet_types::{Errno, Nid, RegionId};
use thiserror::Error;

use crate::Buffer;

/// At which stage an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpStage {
    /// No local interface, peer interface or route leads to the target.
    NoPath,
    /// The target, or a router, refused the connection.
    Refused,
    /// The request was not transmitted.
    Transmission,
    /// The target answered with an error.
    Answer,
    /// The request was transmitted and no answer came: nothing matched it at the target's portal, or
    /// either of the two was lost.
    NoAnswer,
}

impl fmt::Display for OpStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPath => "no path",
            Self::Refused => "connection refused",
            Self::Transmission => "not transmitted",
            Self::Answer => "refused by the target",
            Self::NoAnswer => "no answer, or no match at the portal",
        })
    }
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpError {
    /// A ping or a discovery failed.
    #[error("{} of {target}: {errno}", if *.is_ping { "ping" } else { "discovery" })]
    Question {
        /// A ping, else a discovery.
        is_ping: bool,
        /// Who was asked.
        target: Nid,
        /// `ETIMEDOUT`, `EHOSTUNREACH`, `ECONNREFUSED`, ….
        errno: Errno,
    },
    /// A PUT or GET failed.
    #[error("{} to {target}, portal {portal}: {stage}: {errno}", if *.is_put { "PUT" } else { "GET" })]
    Operation {
        /// A PUT, else a GET.
        is_put: bool,
        /// The target.
        target: Nid,
        /// The portal there.
        portal: u32,
        /// How far it came.
        stage: OpStage,
        /// `ETIMEDOUT`, `EHOSTUNREACH`, ….
        errno: Errno,
    },
    /// The buffer can't be used so.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// It could not be begun.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The range asked for lies outside of the buffer.
    #[error("range {start}..{end} of a buffer of {len} bytes")]
    Range {
        /// First byte.
        start: u64,
        /// Byte behind the last.
        end: u64,
        /// What the buffer holds.
        len: u64,
    },
    /// The range has been delivered already and can't change any more.
    #[error("bytes {start}..{end} have been delivered already")]
    Delivered {
        /// First byte.
        start: u64,
        /// Byte behind the last.
        end: u64,
    },
    /// An option of an inbox is 0.
    #[error("inbox option {0} 0: must be at least 1")]
    Inbox(&'static str),
    /// Too much is waiting for the node's thread.
    #[error("limit of {0} commands waiting for the node reached")]
    Busy(usize),
    /// The node has as many regions of memory as it may.
    #[error("limit of {0} buffers in use reached")]
    NoRegion(usize),
    /// The node has stopped or is stopping.
    #[error("the node has stopped")]
    Stopped,
    /// A blocking call on the node's own thread, which would wait for itself for ever.
    #[error("blocking call on the node's own thread")]
    WouldDeadlock,
}

impl OpError {
    /// The error number.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Question { errno, .. } | Self::Operation { errno, .. } => errno,
            Self::Attach(e) => e.errno(),
            Self::Send(e) => e.errno(),
            Self::Range { .. } | Self::Delivered { .. } | Self::Inbox(_) => Errno::EINVAL,
            Self::Busy(_) => Errno::EAGAIN,
            Self::NoRegion(_) => Errno::ENOMEM,
            Self::Stopped => Errno::ESHUTDOWN,
            // EDEADLK.
            Self::WouldDeadlock => Errno(35),
        }
    }
}

/// An operation that failed, with the buffer that was lent for it.
pub struct OpFailed {
    /// Why.
    pub error: OpError,
    /// The buffer. `None` only if the node's thread died with it.
    pub buffer: Option<Buffer>,
}

impl OpFailed {
    /// The error number.
    pub const fn errno(&self) -> Errno {
        self.error.errno()
    }
}

impl fmt::Debug for OpFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpFailed({:?})", self.error)
    }
}

impl fmt::Display for OpFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for OpFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Why a caller-driven program could not use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The node refused the descriptor.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// No such region, or a span outside of it.
    #[error("{region:?}: no such region, or bytes {start}..{end} are not in it")]
    Span {
        /// The region named.
        region: RegionId,
        /// First byte.
        start: u64,
        /// Byte behind the last.
        end: u64,
    },
    /// Descriptors still stand on the region.
    #[error("{0} memory descriptors still use the region")]
    InUse(u32),
    /// The three upper bits of a descriptor's user word belong to the runtime.
    #[error("user word {0:#x}: must be less than 2^61")]
    UserWord(u64),
}

/// Why the RDMA driver can't serve an interface.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IbError {
    /// Something is missing on this machine, or refused.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A setting out of its bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The NID is of another kind of network, or has no IPv4 address.
    #[error("not an IPv4 address of an o2ib network")]
    NotRdma,
    /// There is no such interface.
    #[error("interface {0}: no network interface or RDMA device of that name")]
    NoInterface(String),
    /// An interface has no address.
    #[error("interface {0}: it has no usable address")]
    NoAddress(String),
}

impl IbError {
    /// The error number.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Open(e) => e.errno(),
            Self::Config(_) | Self::NotRdma => Errno::EINVAL,
            Self::NoInterface(_) | Self::NoAddress(_) => Errno::ENODEV,
        }
    }
}

/// Why an interface was not added or removed, or a node not started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NiError {
    /// The node refused.
    #[error("{nid}: {errno}")]
    Refused {
        /// The interface.
        nid: Nid,
        /// Why.
        errno: Errno,
    },
    /// The driver could not start on it.
    #[error("{nid}: {reason}")]
    Driver {
        /// The interface.
        nid: Nid,
        /// What it says. Part of the text, and so no source of it.
        reason: StartError,
    },
    /// The RDMA driver could not start on it.
    #[error("{nid}: {reason}")]
    Ib {
        /// The interface.
        nid: Nid,
        /// What it says.
        reason: IbError,
    },
    /// The TCP driver is settled already.
    #[error("the TCP driver is at work already: its settings are fixed")]
    TcpEnabled,
    /// All TCP interfaces of a node use one port, like those of its peers.
    #[error("port {asked} for {nid}: the node's TCP interfaces use port {port}")]
    Port {
        /// The interface.
        nid: Nid,
        /// What was asked for.
        asked: u16,
        /// What is in use.
        port: u16,
    },
    /// The NID has no IP address to listen on.
    #[error("{0}: not an address of a TCP network")]
    NotTcp(Nid),
    /// The system refused something that every node needs: a poller, randomness, a thread.
    #[error("starting a node: {0}")]
    System(#[from] io::Error),
}

impl NiError {
    /// The error number.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused { errno, .. } => *errno,
            Self::Driver { reason, .. } => reason.errno(),
            Self::Ib { reason, .. } => reason.errno(),
            Self::System(source) => Errno(source.raw_os_error().unwrap_or(Errno::EIO.0)),
            Self::NotTcp(_) | Self::Port { .. } => Errno::EINVAL,
            Self::TcpEnabled => Errno::EBUSY,
        }
    }
}
