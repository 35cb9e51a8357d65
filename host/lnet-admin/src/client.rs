//! The blocking side: one request, one reply, within a time limit.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lnet_types::{Errno, Nid};
use thiserror::Error;

use crate::frame::{FrameDecoder, REPLY_MAX, decode_reply, encode_request};
use crate::{AdminError, PeerSnapshot, ProtocolError, Reply, Request, RouteSnapshot};

/// How long a node that is there has to answer a request that does not wait for peers.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a send may find no room: a daemon that hangs is found out.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(5);

const READ_BYTES: usize = 64 << 10;

/// A connection to a node.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    decoder: FrameDecoder,
    next_id: u64,
    /// This process's network namespace, until the first request has taken it along.
    namespace: Option<File>,
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No daemon is there.
    #[error("cannot reach the daemon at {}: {}", .path.display(), system_text(.source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The conversation broke off.
    #[error("lost the daemon at {}: {}", .path.display(), system_text(.source))]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The node did not answer in time.
    #[error("no answer from the daemon at {} within {} s", .path.display(), .limit.as_secs())]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// The other side has another protocol.
    #[error("the daemon at {}: {source}", .path.display())]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        source: ProtocolError,
    },
    /// A reply that does not answer the question.
    #[error("unexpected reply type from the daemon")]
    Unexpected,
    /// The node refuses.
    #[error(transparent)]
    Refused(#[from] AdminError),
}

fn system_text(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(n) => Errno(n).to_string(),
        None => error.to_string(),
    }
}

impl ClientError {
    /// The error number that a tool reports (G-17).
    pub fn errno(&self) -> Errno {
        match self {
            Self::Connect { source, .. } | Self::Io { source, .. } => {
                source.raw_os_error().map_or(Errno::EIO, Errno)
            }
            Self::TimedOut { .. } => Errno::ETIMEDOUT,
            Self::Protocol { source, .. } => source.errno(),
            Self::Unexpected => Errno::EPROTO,
            Self::Refused(error) => error.errno,
        }
    }
}

/// The answering side of requests: a node at the end of a socket, or a stand-in in a test. A view
/// that shows the answers may leave the waiting to another thread.
pub trait Ask: Send {
    /// Asks and waits at most `limit`. After an error that is not a refusal the connection is of no
    /// use any more.
    ///
    /// # Errors
    /// [`ClientError`].
    fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Reply, ClientError>;

    /// Asks and waits at most [`REPLY_TIMEOUT`].
    ///
    /// # Errors
    /// As [`Self::ask_within`].
    fn ask(&mut self, request: &Request) -> Result<Reply, ClientError> {
        self.ask_within(request, REPLY_TIMEOUT)
    }

    /// All peers but the node itself, or the one that owns `nid`, page by page.
    ///
    /// # Errors
    /// As [`Self::ask_within`].
    fn peers(&mut self, nid: Option<Nid>, detail: bool) -> Result<Vec<PeerSnapshot>, ClientError> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let (peers, next) = self.peer_page(nid, detail, from)?;
            all.extend(peers.into_iter().filter(|peer| nid.is_some() || !peer.own));
            match next {
                None => return Ok(all),
                next => from = next,
            }
        }
    }

    /// One page of peers and the node's record of itself, the first without `from`, and where the next one begins. Holds no more than
    /// that, whatever the number of peers.
    ///
    /// # Errors
    /// As [`Self::ask_within`].
    fn peer_page(
        &mut self,
        nid: Option<Nid>,
        detail: bool,
        from: Option<u64>,
    ) -> Result<(Vec<PeerSnapshot>, Option<u64>), ClientError> {
        let Reply::Peers(page) = self.ask(&Request::PeerShow { nid, detail, from })? else {
            return Err(ClientError::Unexpected);
        };
        // Pages only go forward; a server whose pages do not would hold us for ever.
        match page.next {
            next @ Some(_) if next <= from => Err(ClientError::Unexpected),
            next => Ok((page.peers, next)),
        }
    }

    /// All routes, page by page.
    ///
    /// # Errors
    /// As [`Self::ask_within`].
    fn routes(&mut self) -> Result<Vec<RouteSnapshot>, ClientError> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let (routes, next) = self.route_page(from)?;
            all.extend(routes);
            match next {
                None => return Ok(all),
                next => from = next,
            }
        }
    }

    /// One page of routes, the first without `from`, and where the next one begins.
    ///
    /// # Errors
    /// As [`Self::ask_within`].
    fn route_page(
        &mut self,
        from: Option<u64>,
    ) -> Result<(Vec<RouteSnapshot>, Option<u64>), ClientError> {
        let Reply::Routes(page) = self.ask(&Request::RouteShow { from })? else {
            return Err(ClientError::Unexpected);
        };
        // As with peers.
        match page.next {
            next @ Some(_) if next <= from => Err(ClientError::Unexpected),
            next => Ok((page.routes, next)),
        }
    }
}

impl Ask for Client {
    fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Reply, ClientError> {
        let id = self.next_id;
        self.next_id += 1;
        let frame = encode_request(id, request).map_err(|e| self.protocol(e))?;
        let sent = self.stream.set_write_timeout(Some(SEND_TIMEOUT)).and_then(|()| {
            match self.namespace.take() {
                Some(namespace) => crate::descriptor::send_with(&self.stream, &frame, &namespace),
                None => self.stream.write_all(&frame),
            }
        });
        let frame = match sent {
            Ok(()) => self.read_frame(limit)?,
            // A server that turns us away says why, closes, and reads no more.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                self.read_frame(limit).map_err(|_| self.io(e, SEND_TIMEOUT))?
            }
            Err(e) => return Err(self.io(e, SEND_TIMEOUT)),
        };
        let (got, answer) = decode_reply(&frame).map_err(|e| self.protocol(e))?;
        if got != id {
            // A server that could not read the number of the request answers 0.
            if let (0, Err(refusal)) = (got, answer) {
                return Err(refusal.into());
            }
            return Err(self.protocol(ProtocolError::Id { got, expected: id }));
        }
        Ok(answer?)
    }
}

impl Client {
    /// Connects to the node that listens at `path`. The network namespace of this process goes along with
    /// the first request: interfaces are added there.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        let path = path.as_ref().to_owned();
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(source) => return Err(ClientError::Connect { path, source }),
        };
        let decoder = FrameDecoder::new(REPLY_MAX);
        // Without /proc the daemon acts in its own.
        let namespace = File::open("/proc/self/ns/net").ok();
        Ok(Self { stream, path, decoder, next_id: 1, namespace })
    }

    /// Connects to the node that listens at `path`, or is about to: a socket that is not there yet, or at
    /// which no daemon listens yet, is tried again for as long as `limit`.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect_within(path: impl AsRef<Path>, limit: Duration) -> Result<Self, ClientError> {
        const PAUSE: Duration = Duration::from_millis(20);
        let deadline = Instant::now() + limit;
        loop {
            match Self::connect(path.as_ref()) {
                Err(ClientError::Connect { source, .. })
                    if matches!(
                        source.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) && Instant::now() < deadline => {}
                outcome => return outcome,
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn read_frame(&mut self, limit: Duration) -> Result<Vec<u8>, ClientError> {
        let deadline = Instant::now() + limit;
        let mut buf = vec![0; READ_BYTES];
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(|e| self.protocol(e))? {
                return Ok(frame);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::TimedOut { path: self.path.clone(), limit });
            }
            let read =
                self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(&mut buf));
            match read {
                Ok(0) => {
                    return Err(self.io(io::Error::from_raw_os_error(Errno::ECONNRESET.0), limit));
                }
                Ok(n) => self.decoder.push(buf.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.io(source, limit)),
            }
        }
    }

    fn io(&self, source: io::Error, limit: Duration) -> ClientError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ClientError::TimedOut { path, limit }
            }
            _ => ClientError::Io { path, source },
        }
    }

    fn protocol(&self, source: ProtocolError) -> ClientError {
        ClientError::Protocol { path: self.path.clone(), source }
    }
}

#[cfg(test)]
#[path = "client/tests.rs"]
mod tests;
