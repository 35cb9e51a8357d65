//! [`Streams`] over TCP sockets of the system: socket2 makes them, mio reports their readiness. The
//! only file of this crate that touches the outside.
//!
//! Sockets are registered once, edge-triggered, for both directions. Their tokens are a range that
//! the shell sets aside; a stream's number is its place in that range.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use lnet_types::Errno;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::namespace::Namespace;
use crate::streams::{
    Accepted, ListenerId, NamespaceId, Origin, Source, Stop, StreamId, StreamOptions, Streams,
    Transport,
};

/// Privileged source ports, highest first (wire.md 2.1).
const PRIVILEGED_PORTS: Range<u16> = 512..1024;
/// Connections that may wait to be accepted, as in the kernel.
const BACKLOG: i32 = 127;

/// TCP sockets under a [`crate::SockDriver`].
#[derive(Debug)]
pub struct MioStreams {
    registry: Registry,
    tokens: Range<usize>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Namespaces that interfaces are in, and how many of them.
    namespaces: BTreeMap<NamespaceId, (Namespace, usize)>,
    /// Whether this process may take back that a socket uses one device; not tried yet if `None`.
    may_release: Option<bool>,
}

#[derive(Debug)]
enum Entry {
    Free,
    Listener(TcpListener),
    Stream(TcpStream),
}

impl MioStreams {
    /// Streams registered with `registry` under tokens of `tokens`, which no other registrant uses.
    /// Their number bounds that of sockets.
    pub fn new(registry: Registry, tokens: Range<usize>) -> Self {
        Self {
            registry,
            tokens,
            entries: Vec::new(),
            free: Vec::new(),
            namespaces: BTreeMap::new(),
            may_release: None,
        }
    }

    /// A name for a namespace, for one more interface.
    pub fn enter(&mut self, namespace: &Namespace) -> NamespaceId {
        if let Some((id, (_, users))) =
            self.namespaces.iter_mut().find(|(_, (n, _))| n == namespace)
        {
            *users += 1;
            return *id;
        }
        let unused = (0..).map(NamespaceId).find(|id| !self.namespaces.contains_key(id));
        let id = unused.unwrap_or(NamespaceId(u32::MAX));
        self.namespaces.insert(id, (namespace.clone(), 1));
        id
    }

    /// An interface leaves its namespace.
    pub fn leave(&mut self, id: NamespaceId) {
        if let Some((_, users)) = self.namespaces.get_mut(&id) {
            *users -= 1;
            if *users == 0 {
                self.namespaces.remove(&id);
            }
        }
    }

    /// Makes a socket, in a namespace if one is named.
    fn make<R: Send>(
        &self,
        namespace: Option<NamespaceId>,
        f: impl FnOnce() -> Result<R, Errno> + Send,
    ) -> Result<R, Errno> {
        let Some(id) = namespace else { return f() };
        let (namespace, _) = self.namespaces.get(&id).ok_or(EBADF)?;
        namespace.within(f).map_err(|e| errno(&e))?
    }

    fn listen_at(
        &mut self,
        namespace: Option<NamespaceId>,
        at: SocketAddr,
        interface: Option<&str>,
    ) -> Result<ListenerId, Errno> {
        let open = || -> io::Result<TcpListener> {
            let at = scoped(at, interface);
            let socket = socket(at)?;
            socket.set_reuse_address(true)?;
            socket.bind(&at.into())?;
            socket.listen(BACKLOG)?;
            Ok(TcpListener::from_std(socket.into()))
        };
        let mut listener = self.make(namespace, || open().map_err(|e| errno(&e)))?;
        let place = self.place()?;
        if let Err(error) =
            self.registry.register(&mut listener, self.token(place), Interest::READABLE)
        {
            self.free.push(place);
            return Err(errno(&error));
        }
        self.put(place, Entry::Listener(listener));
        Ok(ListenerId(place))
    }

    /// Whether a stream that stays on a device could be taken from it again.
    fn may_release(&mut self) -> bool {
        *self.may_release.get_or_insert_with(may_release)
    }

    /// A free place.
    fn place(&mut self) -> Result<u32, Errno> {
        if let Some(at) = self.free.pop() {
            return Ok(at);
        }
        let at = self.entries.len();
        if at >= self.tokens.len() {
            return Err(EMFILE);
        }
        self.entries.push(Entry::Free);
        u32::try_from(at).map_err(|_| EMFILE)
    }

    fn token(&self, at: u32) -> Token {
        Token(self.tokens.start + at as usize)
    }

    /// Registers a stream and gives it a name.
    fn add(&mut self, mut stream: TcpStream) -> Result<StreamId, Errno> {
        let at = self.place()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.registry.register(&mut stream, self.token(at), both) {
            self.free.push(at);
            return Err(errno(&error));
        }
        self.put(at, Entry::Stream(stream));
        Ok(StreamId(at))
    }

    fn put(&mut self, at: u32, entry: Entry) -> Option<Entry> {
        let place = self.entries.get_mut(at as usize)?;
        Some(std::mem::replace(place, entry))
    }

    fn stream(&self, id: StreamId) -> Option<&TcpStream> {
        match self.entries.get(id.0 as usize)? {
            Entry::Stream(stream) => Some(stream),
            Entry::Free | Entry::Listener(_) => None,
        }
    }
}

impl Streams for MioStreams {
    fn source(&self, token: usize) -> Option<Source> {
        let at = token.checked_sub(self.tokens.start)?;
        let id = u32::try_from(at).ok()?;
        match self.entries.get(at)? {
            Entry::Free => None,
            Entry::Listener(_) => Some(Source::Listener(ListenerId(id))),
            Entry::Stream(_) => Some(Source::Stream(StreamId(id))),
        }
    }

    fn listen(&mut self, at: SocketAddr, interface: Option<&str>) -> Result<ListenerId, Errno> {
        self.listen_at(None, at, interface)
    }

    fn listen_in(
        &mut self,
        namespace: NamespaceId,
        at: SocketAddr,
        interface: Option<&str>,
    ) -> Result<ListenerId, Errno> {
        self.listen_at(Some(namespace), at, interface)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        if let Some(Entry::Listener(_)) = self.entries.get(listener.0 as usize) {
            // Closing it also ends its registration.
            self.put(listener.0, Entry::Free);
            self.free.push(listener.0);
        }
    }

    fn accept(&mut self, listener: ListenerId, options: &StreamOptions) -> Result<Accepted, Stop> {
        let Some(Entry::Listener(listener)) = self.entries.get(listener.0 as usize) else {
            return Err(Stop::Failed(EBADF));
        };
        let (stream, remote) = listener.accept().map_err(|e| stop(&e))?;
        // A peer that has gone again has no addresses; the first read will tell.
        let local = stream.local_addr().map_err(|e| stop(&e))?;
        set_options(SockRef::from(&stream), local, options);
        let stream = self.add(stream).map_err(Stop::Failed)?;
        Ok(Accepted { stream, local: unmapped(local), remote: unmapped(remote) })
    }

    fn connect(
        &mut self,
        from: Origin<'_>,
        to: SocketAddr,
        options: &StreamOptions,
    ) -> Result<StreamId, Errno> {
        let device = from.device.filter(|_| self.may_release());
        let open = |port: u16| -> io::Result<TcpStream> {
            let to = scoped(to, from.interface);
            let local = scoped(SocketAddr::new(from.addr, port), from.interface);
            let socket = socket(to)?;
            set_options(SockRef::from(&socket), local, options);
            if let Some(device) = device {
                socket.bind_device(Some(device.as_bytes()))?;
            }
            if port == 0 {
                sys::bind_address_no_port(socket.as_raw_fd())?;
            } else {
                // The same source port serves connections to different peers.
                socket.set_reuse_address(true)?;
            }
            socket.bind(&local.into())?;
            match socket.connect(&to.into()) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
                Err(e) => return Err(e),
            }
            Ok(TcpStream::from_std(socket.into()))
        };
        let make = || {
            if !from.privileged {
                return open(0).map_err(|e| errno(&e));
            }
            for port in PRIVILEGED_PORTS.rev() {
                match open(port) {
                    Err(e) if is_port_taken(&e) => {}
                    made => return made.map_err(|e| errno(&e)),
                }
            }
            Err(Errno::EADDRINUSE)
        };
        let stream = self.make(from.namespace, make)?;
        self.add(stream)
    }

    fn connected(&mut self, stream: StreamId) -> Result<SocketAddr, Stop> {
        let stream = self.stream(stream).ok_or(Stop::Failed(EBADF))?;
        match stream.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Err(Stop::Failed(errno(&error))),
        }
        match stream.peer_addr() {
            Ok(_) => stream.local_addr().map(unmapped).map_err(|e| stop(&e)),
            Err(e) if e.kind() == ErrorKind::NotConnected => Err(Stop::WouldBlock),
            Err(e) => Err(stop(&e)),
        }
    }

    fn read(
        &mut self,
        stream: StreamId,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Stop> {
        let mut stream = self.stream(stream).ok_or(Stop::Failed(EBADF))?;
        loop {
            let got = if second.is_empty() {
                stream.read(first)
            } else {
                stream.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])
            };
            match got {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                got => return got.map_err(|e| stop(&e)),
            }
        }
    }

    fn write(&mut self, stream: StreamId, slices: &[IoSlice<'_>]) -> Result<usize, Stop> {
        let mut stream = self.stream(stream).ok_or(Stop::Failed(EBADF))?;
        loop {
            let written = match slices {
                [one] => stream.write(one),
                // Never `writev`: it raises SIGPIPE, which C programs with a node inside have not disabled.
                many => SockRef::from(stream).send_vectored_with_flags(many, libc::MSG_NOSIGNAL),
            };
            match written {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                written => return written.map_err(|e| stop(&e)),
            }
        }
    }

    fn unacked(&self, stream: StreamId) -> u64 {
        self.stream(stream).map_or(0, |stream| sys::unacked(stream.as_raw_fd()))
    }

    fn transport(&self, stream: StreamId) -> Option<Transport> {
        sys::transport(self.stream(stream)?.as_raw_fd())
    }

    fn take_error(&mut self, stream: StreamId) -> Option<Errno> {
        match self.stream(stream)?.take_error() {
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(errno(&error)),
        }
    }

    fn buffers(&self, stream: StreamId) -> (u32, u32) {
        let Some(stream) = self.stream(stream) else { return (0, 0) };
        let socket = SockRef::from(stream);
        let size = |size: io::Result<usize>| size.ok().and_then(|n| n.try_into().ok()).unwrap_or(0);
        (size(socket.send_buffer_size()), size(socket.recv_buffer_size()))
    }

    fn keep_to(&mut self, stream: StreamId, device: Option<&str>) -> Result<(), Errno> {
        if device.is_some() && !self.may_release() {
            return Err(Errno::EPERM);
        }
        let socket = SockRef::from(self.stream(stream).ok_or(EBADF)?);
        socket.bind_device(device.map(str::as_bytes)).map_err(|e| errno(&e))
    }

    fn keep_listener_to(
        &mut self,
        listener: ListenerId,
        device: Option<&str>,
    ) -> Result<(), Errno> {
        if device.is_some() && !self.may_release() {
            return Err(Errno::EPERM);
        }
        let Some(Entry::Listener(listener)) = self.entries.get(listener.0 as usize) else {
            return Err(EBADF);
        };
        SockRef::from(listener).bind_device(device.map(str::as_bytes)).map_err(|e| errno(&e))
    }

    fn finish(&mut self, stream: StreamId) {
        if let Some(stream) = self.stream(stream) {
            // One that broke has nothing more to say.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn close(&mut self, stream: StreamId, reset: bool) {
        let Some(socket) = self.stream(stream) else { return };
        if reset {
            // If it can't be set the peer sees an end of file, which also ends the connection.
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
        self.put(stream.0, Entry::Free);
        self.free.push(stream.0);
    }
}

fn socket(of: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(of), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether the system lets this process take a socket from its device again. Everybody may put one
/// there.
fn may_release() -> bool {
    let try_it = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind_device(Some(b"lo"))?;
        socket.bind_device(None)
    };
    try_it().inspect_err(|error| tracing::debug!(%error, "sockets don't stay on devices")).is_ok()
}

/// Settings that help but don't decide whether messages flow: a system that refuses one is no reason
/// to refuse the connection.
fn set_options(socket: SockRef<'_>, local: SocketAddr, options: &StreamOptions) {
    let refused = |what: &str, result: io::Result<()>| {
        if let Err(error) = result {
            tracing::debug!(what, %error, "socket option not set");
        }
    };
    refused("nodelay", socket.set_tcp_nodelay(options.nodelay));
    if let Some((idle, interval, probes)) = options.keepalive {
        let params =
            TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes);
        refused("keepalive", socket.set_tcp_keepalive(&params));
    }
    if let Some(tos) = options.tos {
        let tos = u32::from(tos);
        refused(
            "tos",
            if local.is_ipv4() { socket.set_tos_v4(tos) } else { socket.set_tclass_v6(tos) },
        );
    }
    if options.even_retries {
        refused("even retries", sys::even_retries(socket.as_raw_fd()));
    }
    if !options.rto_max.is_zero() {
        refused("longest retransmission timeout", limit_rto(socket.as_raw_fd(), options.rto_max));
    }
    if let Some(size) = options.send_buffer {
        refused("send buffer", socket.set_send_buffer_size(size as usize));
    }
    if let Some(size) = options.recv_buffer {
        refused("receive buffer", socket.set_recv_buffer_size(size as usize));
    }
}

/// Bounds the time from one repetition to the next. The system derives from it when a stream has failed
/// (14 s at 1 s), which is for the driver to say: so that gets a bound of its own.
fn limit_rto(fd: RawFd, most: Duration) -> io::Result<()> {
    sys::set_millis(fd, TCP_RTO_MAX_MS, most)?;
    sys::set_millis(fd, libc::TCP_USER_TIMEOUT, FAILED_AFTER)
}

/// Time that a stream may spend with repetitions, where they are bounded: what the system's own bound
/// comes to.
const FAILED_AFTER: Duration = Duration::from_secs(924);

/// Since Linux 6.15; not in the crate of system calls yet.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Whether another source port may do (wire.md 2.1).
fn is_port_taken(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable)
}

/// Link-local addresses mean something on one device only.
fn scoped(addr: SocketAddr, interface: Option<&str>) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) if is_link_local(v6.ip()) => {
            let scope = interface.and_then(sys::interface_index).unwrap_or(0);
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()
        }
        other => other,
    }
}

fn is_link_local(ip: &Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

/// IPv4 addresses in IPv6 clothing are IPv4 addresses.
fn unmapped(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

fn errno(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

fn stop(error: &io::Error) -> Stop {
    if error.kind() == ErrorKind::WouldBlock {
        Stop::WouldBlock
    } else {
        Stop::Failed(errno(error))
    }
}

const EBADF: Errno = Errno(libc::EBADF);
const EMFILE: Errno = Errno(libc::EMFILE);

/// System calls that have no safe form in the crates we use.
#[allow(unsafe_code)]
mod sys {
    use std::ffi::CString;

    use super::{Duration, RawFd, Transport, io};

    /// Bytes written that the peer's TCP has not acknowledged.
    pub(super) fn unacked(fd: RawFd) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ (SIOCOUTQ of sockets) stores one int through the pointer, which is valid
        // for that; `fd` is an open socket of the caller.
        let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// How the sending half of a socket fares.
    pub(super) fn transport(fd: RawFd) -> Option<Transport> {
        // SAFETY: the struct is plain numbers, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
        let mut len = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the option stores at most `len` bytes through the pointer, which has so many;
        // fields that an older kernel does not know stay zero. `fd` is an open socket of the caller.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut len,
            )
        };
        let micros = |us: u32| Duration::from_micros(us.into());
        (result == 0).then(|| Transport {
            unacked: unacked(fd),
            unsent: info.tcpi_notsent_bytes.into(),
            window: info.tcpi_snd_wnd.into(),
            // Before the first measurement the field is 0 or a guess of a whole second.
            rtt: micros(if info.tcpi_rttvar == 0 { 0 } else { info.tcpi_rtt }),
            // `u32::MAX`: not measured yet.
            rtt_min: micros(Some(info.tcpi_min_rtt).filter(|us| *us != u32::MAX).unwrap_or(0)),
            segment: info.tcpi_snd_mss,
            sent: info.tcpi_data_segs_out,
            resent: info.tcpi_total_retrans.wrapping_sub(info.tcpi_dsack_dups),
        })
    }

    /// Timeouts of thin streams don't grow, for the first six of them.
    pub(super) fn even_retries(fd: RawFd) -> io::Result<()> {
        set_on(fd, libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS)
    }

    /// Lets `bind` to port 0 leave the choice to `connect`, which then has the whole address pair:
    /// more connections than there are ports, to different peers.
    pub(super) fn bind_address_no_port(fd: RawFd) -> io::Result<()> {
        set_on(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
    }

    /// Sets an option of TCP that is a number of milliseconds.
    pub(super) fn set_millis(fd: RawFd, option: libc::c_int, time: Duration) -> io::Result<()> {
        let millis = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX);
        set(fd, libc::IPPROTO_TCP, option, millis)
    }

    /// Sets an option that is an int to 1.
    fn set_on(fd: RawFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
        set(fd, level, option, 1)
    }

    fn set(
        fd: RawFd,
        level: libc::c_int,
        option: libc::c_int,
        value: libc::c_int,
    ) -> io::Result<()> {
        // SAFETY: the option reads one int through the pointer, whose size is given; `fd` is an open
        // socket of the caller.
        let result = unsafe {
            libc::setsockopt(
                fd,
                level,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The index of a device.
    pub(super) fn interface_index(name: &str) -> Option<u32> {
        let name = CString::new(name).ok()?;
        // SAFETY: the pointer is to a string that ends with a zero byte and outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        (index != 0).then_some(index)
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "signals of the thread that the test runs in")]
mod tests {
    use std::net::{Shutdown, TcpListener};

    use super::*;

    /// Whether a SIGPIPE waits for this thread.
    fn is_sigpipe_pending() -> bool {
        // SAFETY: the set is written by the call before it is read.
        unsafe {
            let mut set = core::mem::zeroed();
            libc::sigpending(&raw mut set);
            libc::sigismember(&raw const set, libc::SIGPIPE) == 1
        }
    }

    #[test]
    fn writes_of_several_pieces_to_a_closed_stream_raise_no_signal() {
        // A signal that is blocked waits, also where it is ignored otherwise, as in Rust programs.
        // SAFETY: the set is made before it is used; the mask is this thread's alone.
        unsafe {
            let mut set = core::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let poll = mio::Poll::new().unwrap();
        let mut streams = MioStreams::new(poll.registry().try_clone().unwrap(), 0..1024);
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ours.set_nonblocking(true).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        let stream = streams.add(TcpStream::from_std(ours)).unwrap();
        let pieces = [IoSlice::new(b"head"), IoSlice::new(b"payload")];
        assert_eq!(streams.write(stream, &pieces), Err(Stop::Failed(Errno(libc::EPIPE))));
        assert!(!is_sigpipe_pending());
    }
}
