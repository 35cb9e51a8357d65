//! Runs one LNet stack: a node, its network drivers, its memory and its clock.
//!
//! Two ways, no third:
//! 1. **On its own thread.** [`NodeBuilder::start`] gives a [`NodeHandle`]: async and blocking calls
//!    from any thread, with any executor or none.
//! 2. **Driven by the caller.** [`NodeBuilder::build`] gives the [`Stack`] itself; every
//!    [`Stack::turn`] does what there is to do on the caller's thread, so a message meets no queue
//!    between threads, no wake-up and no allocation.
//!
//! ```no_run
//! use lnet_rt::{InboxOptions, MatchEntry, Nid, NodeBuilder};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = NodeBuilder::new().tcp("127.0.0.2".parse()?, 7988).start()?;
//! let inbox = node.inbox(10, MatchEntry::bits(1), InboxOptions::DEFAULT)?;
//!
//! let peer: Nid = "127.0.0.3@tcp".parse()?;
//! let sent = node.put(peer, 10, 1, "hello").ack().blocking()?; // or: .ack().await?
//! println!("{} bytes taken; the buffer is back: {:?}", sent.mlength, sent.buffer);
//!
//! while let Some(message) = inbox.recv_blocking() {
//!     println!("{} bytes from {}", message.len(), message.event.initiator);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The words, for those who don't come from Lustre
//!
//! - A *NID* names an interface on a network: `10.0.0.1@tcp`. A node has one for each interface;
//!   whichever of them is used as the target, the message goes to the *node*, over whatever pair of
//!   interfaces is best at that moment.
//! - A *PUT* writes the caller's bytes into a buffer that the target has posted, a *GET* reads from
//!   one. The target's program takes no part in it: it hears of it by an event, afterwards.
//! - A *portal* is a number, 0 to 63, that separates protocols as a port does in TCP. Below it, 64
//!   *match bits* in each message choose the buffer: a posted buffer has a *match entry*
//!   ([`MatchEntry`]) that says which bits it takes, which of them it does not care about, and which
//!   senders. Entries are asked in their order; the first that matches and has room gets the message.
//! - A *memory descriptor* ([`MdId`]) is a buffer as the network sees it: which operations it allows,
//!   how many of them, and where the next one goes. Spent descriptors unlink themselves, with a last
//!   event that returns the memory. An [`Inbox`] is a ring of such buffers that is posted anew as it
//!   is read.
//! - **What matches nothing is dropped** at the target, and counted there (`drop_count`). A PUT
//!   without ACK ends well all the same: it has left. A PUT with ACK and a GET end with
//!   [`OpStage::NoAnswer`] when their time is over. Nothing waits for a buffer that might be posted
//!   later, unless the portal is *lazy*, as that of an [`Inbox`] is ([`Below::set_lazy`] elsewhere):
//!   there a PUT waits, and its connection is not read, until a buffer is posted.
//!
//! Nothing here decides anything about LNet: that is `lnet` (what to send where) and the drivers (how).
//!
//! Where to read on: `shard.rs` is the turn; `stack.rs` what a stack is and offers; `handle.rs`,
//! `operation.rs`, `inbox.rs` and `attachment.rs` what other threads see; `memory.rs` how bytes are lent, and why
//! that is sound; `uppers.rs` how a protocol stands on a node.

mod affinity;
mod attachment;
mod builder;
mod clock;
mod detour;
mod error;
mod handle;
mod ib;
mod inbox;
mod mailbox;
mod memory;
mod netlink;
mod notices;
mod numa;
mod oneshot;
mod operation;
mod owners;
mod router;
mod routes;
mod shard;
mod stack;
mod stderr;
mod tcp;
mod uppers;

pub use attachment::{AttachOptions, Attachment, Delivery};
pub use builder::NodeBuilder;
pub use clock::Clock;
pub use error::{IbError, MemoryError, NiError, OpError, OpFailed, OpStage};
pub use handle::{Answer, Asked, Call, NodeHandle, Service, Stopped};
pub use ib::{IbNi, interface_of_rdma_device};
pub use inbox::{Inbox, InboxOptions, InboxState, Message};
pub use memory::{Buffer, MapMode, Regions};
pub use netlink::{Address, Interface, Interfaces};
pub use numa::{cpt_distances, cpt_table};
pub use oneshot::block_on;
pub use operation::{GetRequest, Moved, OpFuture, PutRequest};
pub use shard::{LOOKS_PER_POLL, Spin, Wait};
pub use stack::{DriverId, Stack, StackStats};
pub use stderr::{LOG_ENV, log_to_stderr};
pub use tcp::TcpNi;

// What every program that embeds a node names, so that this crate is all it depends on.
pub use lnd_ib::{CmConfig, IbConfig, IbDriver, OpenError, Verbs, locked_limit};
pub use lnd_sock::{MioStreams, Namespace, SockConfig, SockDriver};
pub use lnet::upper::{Below, BelowError, Upper, UpperId};
pub use lnet::{
    Event, EventKind, Found, Get, MatchEntry, MdOptions, MdSpec, NetTunables, Node, Position,
    Profile, Put, Report, RouteError, RouteSpec, TunableError, Tunables, Unlink,
};
pub use lnet_types::{
    CptError, CptTable, CpuPattern, Errno, Instant, IoVec, MdId, Net, NiId, Nid, Pid, ProcessId,
    RegionId, Span,
};

/// The page of the book about this crate: its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/library.md")]
struct Book;
