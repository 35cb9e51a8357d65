//! The TCP driver, compatible on the wire with the kernel's ksocklnd: it carries LNet messages over
//! typed TCP connections, makes and accepts these, and reports facts to the node above. It chooses
//! no path, repeats no message and judges no health.
//!
//! Protocol and I/O are apart. Everything but `io.rs` is pure: [`SockDriver`] is generic over
//! [`Streams`], the few things that can be done to byte streams, so that the same driver runs over
//! sockets ([`MioStreams`], feature `io`) and over a simulator's queues. Time comes in as an
//! argument, randomness as a seed, memory as `lnet_types::Memory`.
//!
//! ```text
//!  lnet::Node ◄── Upper ──╮           ╭── Streams ──► sockets, or a simulator
//!            rx_header …  │           │  read, write …
//!                    driver/ ── what is due, done in turns
//!                         │
//!                    proto/ ── machines fed with bytes and facts;  peer.rs ── peers and back-off
//! ```
//!
//! Read `driver/mod.rs` first, then follow a message: `driver/transmit.rs` down, `driver/receive.rs`
//! up. `driver/handshake.rs` and `driver/dial.rs` make connections, `driver/close.rs` ends them,
//! `driver/timers.rs` is all that depends on time. Settings are in `tunables.rs`, counters in
//! `stats.rs`, fates of messages in `error.rs`. Statements cited: wire.md 2 and 3, behaviour K-1 to
//! K-51.

mod driver;
mod error;
#[cfg(feature = "io")]
mod io;
mod lookup;
#[cfg(feature = "io")]
mod namespace;
mod peer;
mod proto;
mod stats;
mod streams;
mod tunables;
mod upper;

pub use driver::detour::Kept;
pub use driver::{NiStart, SockDriver};
pub use error::StartError;
#[cfg(feature = "io")]
pub use io::MioStreams;
#[cfg(feature = "io")]
pub use namespace::Namespace;
pub use proto::admit::{ANY, AcceptFrom, parse_patterns};
pub use proto::kinds::Kind;
pub use stats::{ConnInfo, PeerInfo, Refusal, Refused, Stats, Traffic};
pub use streams::{
    Accepted, ListenerId, NamespaceId, Origin, Source, Stop, StreamId, StreamOptions, Streams,
    Transport,
};
pub use tunables::{
    AcceptMode, CONN_BYTES, CONNS_PER_PEER_MAX, Limits, REFUSED_KEPT, SockConfig, Suspicion,
    TimeLimits, conns_per_peer_for,
};
pub use upper::Upper;
