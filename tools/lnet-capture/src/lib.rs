//! Messages of LNet out of packet captures: TCP streams of socklnd, taken apart. A capture may begin in
//! the middle of a connection, on the border of a frame: then the newest protocol version with short
//! headers is assumed.
//!
//! Start at [`walk`]. The streams come from `lnet_pcap`, the layouts from `lnet_wire`. Total: any
//! bytes give finds, and [`What::Broken`] where they mean nothing.

use std::net::SocketAddr;

use lnet_pcap::{Conversation, Direction, Segment, Signal};
use lnet_wire::acceptor::Request;
use lnet_wire::sock::{ConnType, FrameHdr, FrameType, Hello, Version};
use lnet_wire::{ByteOrder, Hdr, Need, WireError};

/// What was found in a stream.
#[derive(Clone, Debug)]
pub enum What {
    /// The connection was opened or closed.
    Signal(Signal),
    /// A connection request.
    Request(Request),
    /// A HELLO.
    Hello(Hello),
    /// A frame without message.
    Noop(FrameHdr),
    /// A message, with the zero-copy cookie of its frame.
    Message(Hdr, Vec<u8>, u64),
    /// Bytes that mean nothing; the rest of the direction is not read.
    Broken(WireError),
}

/// A find, and where it was made.
#[derive(Clone, Debug)]
pub struct Found {
    /// Number of the frame in which it was complete.
    pub frame: u32,
    /// Nanoseconds since the first frame of the file.
    pub time_ns: u64,
    /// Number of the connection, the first being 1.
    pub connection: usize,
    /// Kind of the connection.
    pub kind: Kind,
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// What it is.
    pub what: What,
}

/// Kind of a connection, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The capture begins after its HELLO.
    Middle,
    /// Its HELLO has not come yet.
    Unknown,
    /// As its HELLO says.
    Known(ConnType),
}

/// All finds of a capture, by frame.
pub fn walk(conversations: &[Conversation]) -> Vec<Found> {
    let numbered = conversations.iter().enumerate();
    let mut found: Vec<_> = numbered.flat_map(|(i, c)| Walk::run(c, i + 1)).collect();
    found.sort_by_key(|found| found.frame);
    found
}

/// A message of LNet, and where it was found.
#[derive(Clone, Debug)]
pub struct Message {
    /// Number of the frame in which it was complete.
    pub frame: u32,
    /// Nanoseconds since the first frame of the file.
    pub time_ns: u64,
    /// Its header.
    pub hdr: Hdr,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// All messages of a capture, by frame; within a frame as they stand in the stream.
///
/// # Errors
/// A stream that is none of socklnd's.
pub fn messages(conversations: &[Conversation]) -> Result<Vec<Message>, WireError> {
    let mut messages = Vec::new();
    for Found { frame, time_ns, what, .. } in walk(conversations) {
        match what {
            What::Message(hdr, payload, _) => {
                messages.push(Message { frame, time_ns, hdr, payload });
            }
            What::Broken(why) => return Err(why),
            What::Signal(_) | What::Request(_) | What::Hello(_) | What::Noop(_) => {}
        }
    }
    Ok(messages)
}

struct Side {
    buffer: Vec<u8>,
    greeted: bool,
    broken: bool,
    order: ByteOrder,
    version: Version,
}

impl Side {
    const fn new() -> Self {
        let (order, version) = (ByteOrder::Little, Version::V3);
        Self { buffer: Vec::new(), greeted: false, broken: false, order, version }
    }
}

struct Walk<'a> {
    conversation: &'a Conversation,
    number: usize,
    kind: Kind,
    found: Vec<Found>,
}

impl Walk<'_> {
    fn run(conversation: &Conversation, number: usize) -> Vec<Found> {
        let opened = conversation.events.iter().any(|event| event.signal == Signal::Syn);
        let kind = if opened { Kind::Unknown } else { Kind::Middle };
        let mut walk = Walk { conversation, number, kind, found: Vec::new() };
        let mut sides = [Side::new(), Side::new()];
        let mut events = conversation.events.iter().peekable();
        for segment in &conversation.segments {
            while let Some(event) = events.next_if(|event| event.frame < segment.frame) {
                walk.event(event);
            }
            let [to_server, to_client] = &mut sides;
            let side = match segment.direction {
                Direction::ToServer => to_server,
                Direction::ToClient => to_client,
            };
            if !side.broken {
                side.buffer.extend_from_slice(&segment.bytes);
            }
            walk.read(side, segment);
        }
        events.for_each(|event| walk.event(event));
        walk.found
    }

    fn event(&mut self, event: &lnet_pcap::Event) {
        let what = What::Signal(event.signal);
        self.add((event.direction, event.frame, event.time_ns), self.kind, what);
    }

    fn add(&mut self, at: (Direction, u32, u64), kind: Kind, what: What) {
        let (direction, frame, time_ns) = at;
        let (client, server) = (self.conversation.client, self.conversation.server);
        let (from, to) = match direction {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        };
        let connection = self.number;
        self.found.push(Found { frame, time_ns, connection, kind, from, to, what });
    }

    /// Takes everything off a buffer that is whole.
    fn read(&mut self, side: &mut Side, segment: &Segment) {
        let at = (segment.direction, segment.frame, segment.time_ns);
        loop {
            match take(side) {
                Ok(Some((len, what))) => {
                    side.buffer.drain(..len);
                    // The kind is known from the client's HELLO on; the HELLO itself has none yet.
                    let kind = self.kind;
                    if let What::Hello(hello) = &what
                        && segment.direction == Direction::ToServer
                    {
                        self.kind = Kind::Known(hello.conn_type);
                    }
                    self.add(at, kind, what);
                }
                Ok(None) => return,
                Err(why) => {
                    side.broken = true;
                    side.buffer.clear();
                    return self.add(at, self.kind, What::Broken(why));
                }
            }
        }
    }
}

/// What a buffer begins with, and its length. `None` if more bytes are needed.
fn take(side: &mut Side) -> Result<Option<(usize, What)>, WireError> {
    let b = &side.buffer[..];
    if b.len() < 4 {
        return Ok(None);
    }
    if !side.greeted {
        if let Ok(need) = Request::need(b) {
            let Need::Exactly(need) = need else { return Ok(None) };
            if b.len() < need {
                return Ok(None);
            }
            let (request, len) = Request::parse(b)?;
            return Ok(Some((len, What::Request(request))));
        }
        if let Ok(need) = Hello::need(b) {
            let Need::Exactly(need) = need else { return Ok(None) };
            if b.len() < need {
                return Ok(None);
            }
            let (hello, len) = Hello::parse(b)?;
            (side.greeted, side.order, side.version) = (true, hello.order, hello.version);
            return Ok(Some((len, What::Hello(hello))));
        }
        side.greeted = true;
    }
    take_message(side.order, side.version, b)
}

fn take_message(
    order: ByteOrder,
    version: Version,
    b: &[u8],
) -> Result<Option<(usize, What)>, WireError> {
    let mut rest = b;
    let mut cookie = 0;
    if version.has_frames() {
        if b.len() < FrameHdr::LEN {
            return Ok(None);
        }
        let frame = FrameHdr::parse(order, b)?;
        if frame.kind == FrameType::Noop {
            return Ok(Some((FrameHdr::LEN, What::Noop(frame))));
        }
        cookie = frame.cookie0;
        rest = b.get(FrameHdr::LEN..).unwrap_or_default();
    }
    let form = version.hdr_form();
    if rest.len() < form.len() {
        return Ok(None);
    }
    let hdr = Hdr::parse(form, rest)?;
    let end = form.len() + hdr.payload_len as usize;
    let Some(payload) = rest.get(form.len()..end) else { return Ok(None) };
    let len = b.len() - rest.len() + end;
    Ok(Some((len, What::Message(hdr, payload.to_vec(), cookie))))
}
