//! TCP conversations and RDMA operations out of packet captures.
//!
//! Reads classic pcap of Ethernet frames with IPv4 or IPv6 and puts the TCP streams together again,
//! and the work requests of RoCE version 2.
//! Knows nothing of LNet. Not for hostile networks, but total all the same: any bytes give
//! conversations or a [`PcapError`]. Start at [`conversations`]; `packet.rs` takes frames apart,
//! `stream.rs` puts bytes in order, `roce.rs` has the operations.

mod packet;
pub mod roce;
mod stream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thiserror::Error;

use packet::{Frame, TcpPacket};
use stream::Stream;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// The side that connected, to the side that accepted.
    ToServer,
    /// The other way.
    ToClient,
}

/// Bytes that became readable at one moment, each byte of a stream in exactly one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Who sent them.
    pub direction: Direction,
    /// Number of the frame that completed them, the first of the file being 1.
    pub frame: u32,
    /// Nanoseconds since the first frame of the file.
    pub time_ns: u64,
    /// The bytes, without those that were sent before.
    pub bytes: Vec<u8>,
}

/// What one side did to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Opened it (SYN of the client; that of the server is not reported).
    Syn,
    /// Closed its direction.
    Fin,
    /// Broke it off.
    Rst,
}

/// A [`Signal`] and when it was seen. Repetitions of SYN and FIN are not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who sent it.
    pub direction: Direction,
    /// Number of its frame.
    pub frame: u32,
    /// Nanoseconds since the first frame of the file.
    pub time_ns: u64,
    /// What it was.
    pub signal: Signal,
}

/// How one side left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closed {
    /// Not at all within the capture.
    #[default]
    Open,
    /// With a FIN and nothing worse.
    Fin,
    /// With a reset.
    Rst,
}

/// One TCP connection.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The side that connected. Where no SYN was seen: the side that spoke first.
    pub client: SocketAddr,
    /// The side that accepted.
    pub server: SocketAddr,
    /// All bytes from client to server, up to the first gap.
    pub to_server: Vec<u8>,
    /// All bytes from server to client, up to the first gap.
    pub to_client: Vec<u8>,
    /// The same bytes, as they came, of both directions.
    pub segments: Vec<Segment>,
    /// SYN, FIN and RST, as they came.
    pub events: Vec<Event>,
    /// How the client left.
    pub client_closed: Closed,
    /// How the server left.
    pub server_closed: Closed,
}

/// Why a capture can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The file can't be read.
    #[error("{path}: {why}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// It is no classic pcap of Ethernet frames.
    #[error("{field} of the capture is {value:#x}: expected classic pcap with link type Ethernet")]
    Format {
        /// Which field of the file header.
        field: &'static str,
        /// What it holds.
        value: u32,
    },
    /// The file ends within a header or frame.
    #[error("the capture ends within frame {frame}")]
    Short {
        /// Number of the frame, 0 for the file header.
        frame: u32,
    },
    /// The frame was not captured whole, so a stream can't be either.
    #[error("frame {frame}: {captured} of {len} bytes captured")]
    Cut {
        /// Number of the frame.
        frame: u32,
        /// Bytes in the file.
        captured: u32,
        /// Bytes on the wire.
        len: u32,
    },
}

/// The TCP connections of the capture at `path`, in the order of their first frames.
///
/// # Errors
/// A file that can't be read or is not what [`parse`] takes.
pub fn conversations(path: impl AsRef<Path>) -> Result<Vec<Conversation>, PcapError> {
    let path = path.as_ref();
    let file = std::fs::read(path).map_err(|why| PcapError::Io { path: path.to_owned(), why })?;
    parse(&file)
}

/// The TCP connections of a capture in memory.
///
/// # Errors
/// Another format than classic pcap, another link type than Ethernet, a file that ends early,
/// frames that were not captured whole.
pub fn parse(file: &[u8]) -> Result<Vec<Conversation>, PcapError> {
    let mut found: Vec<Tracked> = Vec::new();
    // The latest connection of each pair of addresses; the smaller address first.
    let mut latest: BTreeMap<(SocketAddr, SocketAddr), usize> = BTreeMap::new();
    for frame in packet::frames(file)? {
        let frame = frame?;
        let Some(tcp) = packet::tcp(&frame) else {
            continue;
        };
        let pair = (tcp.src.min(tcp.dst), tcp.src.max(tcp.dst));
        let known = latest.get(&pair).copied().filter(|&i| !found[i].is_superseded_by(&tcp));
        let i = known.unwrap_or_else(|| {
            found.push(Tracked::new(&tcp));
            latest.insert(pair, found.len() - 1);
            found.len() - 1
        });
        found[i].take(&frame, &tcp);
    }
    Ok(found.into_iter().map(|t| t.conversation).collect())
}

/// A conversation that is being put together.
struct Tracked {
    conversation: Conversation,
    to_server: Stream,
    to_client: Stream,
}

impl Tracked {
    fn new(tcp: &TcpPacket<'_>) -> Self {
        let from_server = tcp.syn && tcp.ack;
        let (client, server) = if from_server { (tcp.dst, tcp.src) } else { (tcp.src, tcp.dst) };
        Self {
            conversation: Conversation {
                client,
                server,
                to_server: Vec::new(),
                to_client: Vec::new(),
                segments: Vec::new(),
                events: Vec::new(),
                client_closed: Closed::Open,
                server_closed: Closed::Open,
            },
            to_server: Stream::default(),
            to_client: Stream::default(),
        }
    }

    /// Whether `tcp` opens a new connection between the same addresses: a SYN with another number, or
    /// after the bytes or the end of a connection that was open before the capture began.
    fn is_superseded_by(&self, tcp: &TcpPacket<'_>) -> bool {
        let number = tcp.seq.wrapping_add(1);
        let another = match self.stream(self.direction(tcp)).first() {
            Some(first) => first != number,
            None => {
                let closed = [self.conversation.client_closed, self.conversation.server_closed];
                let bytes = self.to_server.first().or_else(|| self.to_client.first());
                bytes.is_some() || closed.iter().any(|closed| *closed != Closed::Open)
            }
        };
        tcp.syn && !tcp.ack && another
    }

    fn direction(&self, tcp: &TcpPacket<'_>) -> Direction {
        if tcp.src == self.conversation.client { Direction::ToServer } else { Direction::ToClient }
    }

    fn stream(&self, direction: Direction) -> &Stream {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    fn take(&mut self, frame: &Frame<'_>, tcp: &TcpPacket<'_>) {
        let direction = self.direction(tcp);
        let to = &mut self.conversation;
        let (stream, all, closed) = match direction {
            Direction::ToServer => (&mut self.to_server, &mut to.to_server, &mut to.client_closed),
            Direction::ToClient => (&mut self.to_client, &mut to.to_client, &mut to.server_closed),
        };
        let (frame, time_ns) = (frame.number, frame.time_ns);
        let mut record = |signal| to.events.push(Event { direction, frame, time_ns, signal });
        if tcp.syn {
            if stream.first().is_none() && !tcp.ack {
                record(Signal::Syn);
            }
            stream.open(tcp.seq.wrapping_add(1));
        }
        let bytes = stream.take(tcp.seq.wrapping_add(tcp.syn.into()), tcp.payload);
        if !bytes.is_empty() {
            all.extend_from_slice(&bytes);
            to.segments.push(Segment { direction, frame, time_ns, bytes });
        }
        if tcp.rst {
            record(Signal::Rst);
            *closed = Closed::Rst;
        } else if tcp.fin && *closed == Closed::Open {
            record(Signal::Fin);
            *closed = Closed::Fin;
        }
    }
}
