//! A capture as a script: connections, and what happened on them in the order in which it happened.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use lnet_pcap::{Direction, PcapError, Signal};

use crate::layout::{End, Item, Splitter};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The client connects.
    Open,
    /// A message is complete.
    Item(Item),
    /// An end has nothing more to send.
    Fin,
    /// An end resets the connection.
    Reset,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, since the capture began.
    pub at: Duration,
    /// Index into [`Capture::conns`].
    pub conn: usize,
    /// Who did it.
    pub from: End,
    /// What it is.
    pub what: What,
}

/// The two ends of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conn {
    /// The one that connected.
    pub client: SocketAddr,
    /// The one that accepted.
    pub server: SocketAddr,
}

impl Conn {
    /// The address of an end.
    pub fn addr(&self, end: End) -> SocketAddr {
        match end {
            End::Client => self.client,
            End::Server => self.server,
        }
    }
}

/// A capture, read and cut into messages.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Connections, in the order in which they were opened.
    pub conns: Vec<Conn>,
    /// Events, in order.
    pub events: Vec<Event>,
}

impl Capture {
    /// Reads a capture of TCP connections.
    ///
    /// # Errors
    /// What the reader of captures says of the file.
    pub fn load(path: &Path) -> Result<Self, PcapError> {
        let conversations = lnet_pcap::conversations(path)?;
        let mut pieces = Vec::new();
        for (conn, conversation) in conversations.iter().enumerate() {
            for segment in &conversation.segments {
                let place = (segment.frame, 1, segment.time_ns);
                pieces.push((place, conn, end(segment.direction), Piece::Data(&segment.bytes)));
            }
            for event in &conversation.events {
                // A FIN comes after the bytes of its frame.
                let (order, piece) = match event.signal {
                    Signal::Syn => (0, Piece::Open),
                    Signal::Fin => (2, Piece::Fin),
                    Signal::Rst => (2, Piece::Reset),
                };
                let place = (event.frame, order, event.time_ns);
                pieces.push((place, conn, end(event.direction), piece));
            }
        }
        pieces.sort_by_key(|(place, ..)| *place);
        let conns = conversations.iter().map(|c| Conn { client: c.client, server: c.server });
        let mut builder = Builder::new(conns.collect());
        for ((_, _, time), conn, from, piece) in pieces {
            builder.piece(Duration::from_nanos(time), conn, from, piece);
        }
        Ok(builder.capture)
    }

    /// All addresses, in order.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        self.conns.iter().flat_map(|conn| [conn.client.ip(), conn.server.ip()]).collect()
    }
}

fn end(direction: Direction) -> End {
    match direction {
        Direction::ToServer => End::Client,
        Direction::ToClient => End::Server,
    }
}

/// A piece of one TCP connection.
enum Piece<'a> {
    Open,
    Data(&'a [u8]),
    Fin,
    Reset,
}

/// Puts a capture together, piece by piece in order of time.
struct Builder {
    capture: Capture,
    splitters: Vec<[Splitter; 2]>,
    ended: Vec<[bool; 2]>,
}

impl Builder {
    fn new(conns: Vec<Conn>) -> Self {
        let both = |_: &Conn| [Splitter::new(End::Client), Splitter::new(End::Server)];
        let splitters = conns.iter().map(both).collect();
        let ended = vec![[false; 2]; conns.len()];
        Self { capture: Capture { conns, events: Vec::new() }, splitters, ended }
    }

    /// Adds a piece. What an end sends after its FIN or RST is left out.
    fn piece(&mut self, at: Duration, conn: usize, from: End, piece: Piece<'_>) {
        let end = from as usize;
        if self.ended[conn][end] {
            return;
        }
        let splitter = &mut self.splitters[conn][end];
        let mut happened = Vec::new();
        match piece {
            Piece::Open => happened.push(What::Open),
            Piece::Data(bytes) => happened.extend(splitter.push(bytes).into_iter().map(What::Item)),
            Piece::Fin | Piece::Reset => {
                happened.extend(splitter.finish().map(What::Item));
                let reset = matches!(piece, Piece::Reset);
                happened.push(if reset { What::Reset } else { What::Fin });
                self.ended[conn][end] = true;
            }
        }
        let events = happened.into_iter().map(|what| Event { at, conn, from, what });
        self.capture.events.extend(events);
    }
}
