//! The only border to the outside: byte streams with names, non-blocking, that can be listened for,
//! opened, read, written and closed. `io.rs` makes them of sockets, a simulator of queues.
//!
//! Nothing here has a protocol. The driver holds names only; the implementor of [`Streams`] owns
//! the streams and says through `lnet::Ready` tokens which of them may be worth a look. Readiness
//! is a hint, edge-triggered: the driver reads until [`Stop::WouldBlock`], and a hint too many does
//! no harm.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::io::IoSlice;

use lnet_types::Errno;

/// Name of an open stream. Small numbers, used again after [`Streams::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Name of a listener. Small numbers, used again after [`Streams::unlisten`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// Name of a network namespace other than the one that the streams are usually in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

/// What a readiness token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A listener.
    Listener(ListenerId),
    /// A stream.
    Stream(StreamId),
}

/// Why an operation moved nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Not now: readiness will be reported.
    WouldBlock,
    /// Never again on this stream (for `accept`: not this one).
    Failed(Errno),
}

/// Settings of a stream from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Send small segments at once.
    pub nodelay: bool,
    /// Probe an idle connection: idle time, interval between probes, number of probes.
    pub keepalive: Option<(Duration, Duration, u32)>,
    /// Type of service (IPv4) or traffic class (IPv6), 0 to 255.
    pub tos: Option<u8>,
    /// Size of the send buffer in bytes; the system's choice if `None`.
    pub send_buffer: Option<u32>,
    /// Size of the receive buffer in bytes; the system's choice if `None`.
    pub recv_buffer: Option<u32>,
    /// While little is on the way, repeat it at even intervals for a while before doing so later and
    /// later: a rail that was silent for a moment is back in a fraction of it.
    pub even_retries: bool,
    /// The longest time from one repetition to the next, where the system lets streams have their own;
    /// the system's if zero. How often it is repeated does not count then.
    pub rto_max: Duration,
}

/// How the sending half of a stream fares, as its transport sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Bytes written that the other end's transport has not acknowledged.
    pub unacked: u64,
    /// Those of them that have not been sent yet, for want of room in the other end's window or in
    /// the network's, or because this system has no route or refuses to send them.
    pub unsent: u64,
    /// Bytes that the other end has announced room for, beyond those acknowledged; zero where not known.
    pub window: u64,
    /// Smoothed round-trip time; zero while none is known.
    pub rtt: Duration,
    /// The shortest round-trip time of late; zero while none is known.
    pub rtt_min: Duration,
    /// Bytes of a full segment; zero while not known.
    pub segment: u32,
    /// Data segments sent, those sent again included. Wraps.
    pub sent: u32,
    /// Segments sent again that the other end did not have already. Wraps.
    pub resent: u32,
}

/// Where a connection starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The local address.
    pub addr: IpAddr,
    /// The device that the address is on; gives link-local IPv6 addresses their scope.
    pub interface: Option<&'a str>,
    /// Whether the source port must be a privileged one: 1023 downwards to 512 (wire.md 2.1).
    pub privileged: bool,
    /// The namespace that the address is in, if it is another one than usual.
    pub namespace: Option<NamespaceId>,
    /// The one device that the stream uses, whatever the system's routes say, if this process could take
    /// it back; see [`Streams::keep_to`].
    pub device: Option<&'a str>,
}

/// A stream that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its name.
    pub stream: StreamId,
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Non-blocking byte streams. No call waits. Names that are not open give `Stop::Failed(EBADF)` or
/// nothing, never a panic.
pub trait Streams {
    /// What a token of `lnet::Ready` means; `None` for tokens that are not ours or not in use.
    fn source(&self, token: usize) -> Option<Source>;

    /// Listens on `at`.
    ///
    /// # Errors
    /// What the system says: address in use, not available, not permitted.
    fn listen(&mut self, at: SocketAddr, interface: Option<&str>) -> Result<ListenerId, Errno>;

    /// [`Self::listen`] in a namespace of its own.
    ///
    /// # Errors
    /// As there; `EOPNOTSUPP` where there are no namespaces.
    fn listen_in(
        &mut self,
        _namespace: NamespaceId,
        _at: SocketAddr,
        _interface: Option<&str>,
    ) -> Result<ListenerId, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Stops listening; connections not yet accepted are reset.
    fn unlisten(&mut self, listener: ListenerId);

    /// Takes the next connection that came in.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    fn accept(&mut self, listener: ListenerId, options: &StreamOptions) -> Result<Accepted, Stop>;

    /// Begins to connect; writable readiness says that the attempt has ended.
    ///
    /// # Errors
    /// What fails at once: no route, no source port left (`EADDRINUSE`), a privileged port that is
    /// not permitted (`EACCES`).
    fn connect(
        &mut self,
        from: Origin<'_>,
        to: SocketAddr,
        options: &StreamOptions,
    ) -> Result<StreamId, Errno>;

    /// Asks how a connection attempt ended: our end of it.
    ///
    /// # Errors
    /// `WouldBlock` while it is under way; `Failed` with what the network said.
    fn connected(&mut self, stream: StreamId) -> Result<SocketAddr, Stop>;

    /// Reads into `first`, then into `second`. 0 is the end of the stream, unless both are empty.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing; `Failed` when the stream broke.
    fn read(
        &mut self,
        stream: StreamId,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Stop>;

    /// Writes the slices in order, as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; `Failed` when the stream broke.
    fn write(&mut self, stream: StreamId, slices: &[IoSlice<'_>]) -> Result<usize, Stop>;

    /// Bytes written that the other end's transport has not acknowledged; of a stream that broke, those that
    /// it had not until then.
    fn unacked(&self, stream: StreamId) -> u64;

    /// How the sending half fares; `None` for streams that can't tell.
    fn transport(&self, stream: StreamId) -> Option<Transport>;

    /// The error that the stream has met and not reported yet.
    fn take_error(&mut self, stream: StreamId) -> Option<Errno>;

    /// Sizes of send and receive buffer in bytes, for listings.
    fn buffers(&self, stream: StreamId) -> (u32, u32);

    /// From here on the stream uses one device alone, whatever the system's routes say; `None`: the
    /// routes decide again.
    ///
    /// # Errors
    /// `EPERM`: not permitted to this process, which could not take it back. `EOPNOTSUPP` where there are
    /// no devices. What the system says.
    fn keep_to(&mut self, _stream: StreamId, _device: Option<&str>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// [`Self::keep_to`] of a listener: it answers on one device alone, and hears no other. What it accepts
    /// stays on that device as well.
    ///
    /// # Errors
    /// As there.
    fn keep_listener_to(
        &mut self,
        _listener: ListenerId,
        _device: Option<&str>,
    ) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Nothing more is written: the other end sees an end of file behind what it has. What that sends can
    /// still be read.
    fn finish(&mut self, stream: StreamId);

    /// Closes the stream. With `reset` the other end sees a reset whatever was still on the way,
    /// otherwise an end of file (or a reset, if bytes that arrived were never read).
    fn close(&mut self, stream: StreamId, reset: bool);
}
