//! Where fields lie in what goes over an LNet TCP connection, for cutting streams into messages and
//! for comparing two of them field by field.
//!
//! This is written from wire.md and shares nothing with `lnet-wire` on purpose: a judge that decoded
//! with the code it judges would find no mistake that the two have in common. It knows only what
//! comparing takes, and only little-endian senders; all else is [`Kind::Raw`].

use std::fmt;
use std::ops::Range;

/// Who chooses the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The protocol, the configuration or an earlier message: it has to be equal.
    Fixed,
    /// The sender freely: equal values of the kernel have to be equal values of ours.
    Own(Pool),
    /// The receiver of this message, in an earlier one: a copy of that.
    Echo(Pool),
}

/// What a freely chosen value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pool {
    /// Incarnation of an interface.
    Incarnation,
    /// First word of a wire handle: the node's boot.
    Boot,
    /// Second word of a wire handle.
    Object,
    /// Zero-copy cookie.
    Cookie,
    /// Match bits for replies and bulk of selftest.
    Selftest,
    /// A console's number for its session.
    Stamp,
}

impl Pool {
    /// Values that have a meaning of their own and are therefore never replaced.
    pub fn is_reserved(self, value: u64) -> bool {
        match self {
            Self::Incarnation => value == 0,
            Self::Boot | Self::Object => value == u64::MAX,
            Self::Cookie => value <= 1,
            Self::Selftest => value == 0,
            Self::Stamp => value == u64::MAX,
        }
    }
}

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in wire.md.
    pub name: String,
    /// Its bytes.
    pub range: Range<usize>,
    /// Who chooses it.
    pub class: Class,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Connection request of the given version.
    ConnReq(u32),
    /// The acceptor's answer to a request of a version that it does not know.
    AcceptorAnswer,
    /// HELLO of the given version.
    Hello(u32),
    /// Frame without a message.
    Noop,
    /// ACK.
    Ack,
    /// PUT.
    Put,
    /// GET.
    Get,
    /// REPLY.
    Reply,
    /// Bytes that are none of these; what follows on the stream is raw as well.
    Raw,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnReq(version) => write!(f, "CONNREQ v{version}"),
            Self::AcceptorAnswer => f.write_str("ACCEPTOR ANSWER"),
            Self::Hello(version) => write!(f, "HELLO v{version}"),
            Self::Noop => f.write_str("NOOP"),
            Self::Ack => f.write_str("ACK"),
            Self::Put => f.write_str("PUT"),
            Self::Get => f.write_str("GET"),
            Self::Reply => f.write_str("REPLY"),
            Self::Raw => f.write_str("raw bytes"),
        }
    }
}

/// One message with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// All of it, framing and payload included.
    pub bytes: Vec<u8>,
    /// Where its LNet header starts, for the kinds that have one.
    header: usize,
    /// Whether NIDs take 20 bytes in it.
    large: bool,
}

const MAGIC_ACCEPTOR: u32 = 0xacce_7100;
const MAGIC_SOCK: u32 = 0x4572_6963;
const MAGIC_HELLO1: u32 = 0xeebc_0ded;
const MAGIC_PING: u32 = 0x7069_6e67;
const MAGIC_SELFTEST: u32 = 0xeeb0_f00d;
/// The portal of replies and bulk of selftest.
const PORTAL_SELFTEST: u32 = 52;
const FRAME_LEN: usize = 24;
const FRAME_NOOP: u32 = 0xc0;
const FRAME_LNET: u32 = 0xc1;
const PAYLOAD_MAX: usize = 1 << 20;
const ADDRESSES_MAX: usize = 64;

fn word(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn long(b: &[u8], range: &Range<usize>) -> u64 {
    b.get(range.clone()).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Item {
    /// The value of an 8-byte field.
    pub fn value(&self, field: &Field) -> u64 {
        long(&self.bytes, &field.range)
    }

    /// The fields, in order and without gaps.
    pub fn fields(&self) -> Vec<Field> {
        use Class::{Echo, Fixed, Own};
        let mut list = Fields(Vec::new(), 0);
        match self.kind {
            Kind::ConnReq(version) => {
                list.all(&[("magic", 4), ("version", 4)]);
                list.one("nid", if version == 1 { 8 } else { 20 }, Fixed);
            }
            Kind::AcceptorAnswer => list.all(&[("magic", 4), ("version", 4), ("nid", 8)]),
            Kind::Hello(1) => {
                list.all(&[("magic", 4), ("major", 2), ("minor", 2), ("src_nid", 8)]);
                list.all(&[("dest_pid", 4), ("src_pid", 4), ("type", 4), ("payload_length", 4)]);
                list.one("incarnation", 8, Own(Pool::Incarnation));
                list.all(&[("conn_type", 4), ("unused", 28)]);
            }
            Kind::Hello(version) => {
                let nid = if version == 4 { 20 } else { 8 };
                list.all(&[("magic", 4), ("version", 4), ("src_nid", nid), ("dst_nid", nid)]);
                list.all(&[("src_pid", 4), ("dst_pid", 4)]);
                list.one("src_incarnation", 8, Own(Pool::Incarnation));
                list.one("dst_incarnation", 8, Echo(Pool::Incarnation));
                list.all(&[("conn_type", 4), ("nips", 4)]);
            }
            Kind::Noop => {
                list.all(&[("type", 4), ("checksum", 4)]);
                list.one("cookie0", 8, Echo(Pool::Cookie));
                list.one("cookie1", 8, Echo(Pool::Cookie));
            }
            Kind::Ack | Kind::Put | Kind::Get | Kind::Reply => self.message_fields(&mut list),
            Kind::Raw => {}
        }
        list.rest("payload", self.bytes.len());
        list.0
    }

    fn message_fields(&self, list: &mut Fields) {
        use Class::{Echo, Fixed, Own};
        if self.header != 0 {
            list.all(&[("type", 4), ("checksum", 4)]);
            list.one("cookie0", 8, Own(Pool::Cookie));
            list.one("cookie1", 8, Echo(Pool::Cookie));
        }
        let nid = if self.large { 20 } else { 8 };
        list.all(&[("dest_nid", nid), ("src_nid", nid), ("dest_pid", 4), ("src_pid", 4)]);
        list.all(&[("msg_type", 4), ("payload_length", 4)]);
        let handle = match self.kind {
            Kind::Put | Kind::Get => Own,
            _ => Echo,
        };
        list.one("handle.interface", 8, handle(Pool::Boot));
        list.one("handle.object", 8, handle(Pool::Object));
        match self.kind {
            Kind::Ack => list.all(&[("match_bits", 8), ("mlength", 4), ("unused", 12)]),
            Kind::Put => {
                list.one("match_bits", 8, self.bits(list.1 + 16));
                list.all(&[("hdr_data", 8), ("portal", 4), ("offset", 4)]);
            }
            Kind::Get => {
                list.one("match_bits", 8, self.bits(list.1 + 8));
                list.all(&[("portal", 4), ("src_offset", 4)]);
                list.all(&[("sink_length", 4), ("unused", 4)]);
            }
            _ => list.one("unused", 24, Fixed),
        }
        if self.kind == Kind::Put && word(&self.bytes, list.1) == MAGIC_SELFTEST {
            self.selftest_fields(list);
        }
        if word(&self.bytes, list.1) == MAGIC_PING {
            list.all(&[("ping.magic", 4), ("ping.features", 4), ("ping.pid", 4), ("ping.nnis", 4)]);
            let nnis = word(&self.bytes, list.1 - 4);
            let mut entry = 0;
            while entry < nnis && list.1 + 16 <= self.bytes.len() {
                let second = if entry == 0 { "sequence" } else { "status" };
                list.one(&format!("ping.entry{entry}.nid"), 8, Fixed);
                list.one(&format!("ping.entry{entry}.{second}"), 4, Fixed);
                list.one(&format!("ping.entry{entry}.size"), 4, Fixed);
                entry += 1;
            }
        }
    }

    /// Match bits, whose portal is at `portal`: those of selftest's replies and bulk are chosen by
    /// the requester.
    fn bits(&self, portal: usize) -> Class {
        match word(&self.bytes, portal) {
            PORTAL_SELFTEST => Class::Echo(Pool::Selftest),
            _ => Class::Fixed,
        }
    }

    /// A selftest message (wire.md 6). What is not named is the same for all nodes.
    fn selftest_fields(&self, list: &mut Fields) {
        use Class::{Echo, Own};
        let kind = word(&self.bytes, list.1 + 8);
        list.all(&[("selftest.magic", 4), ("selftest.version", 4), ("selftest.type", 4)]);
        list.all(&[("selftest.reserved", 8), ("selftest.features", 4)]);
        if kind.is_multiple_of(2) {
            list.one("selftest.reply_id", 8, Own(Pool::Selftest));
            match kind {
                8 | 12 => list.one("selftest.bulk_id", 8, Own(Pool::Selftest)),
                14 => list.all(&[
                    ("selftest.ping_magic", 4),
                    ("selftest.seq", 4),
                    ("selftest.time", 16),
                ]),
                _ => {}
            }
            if kind <= 10 {
                list.all(&[("selftest.sid.nid", 8)]);
                list.one("selftest.sid.stamp", 8, Own(Pool::Stamp));
            }
            return;
        }
        list.all(&[("selftest.status", 4)]);
        if kind <= 11 {
            list.all(&[("selftest.sid.nid", 8)]);
            list.one("selftest.sid.stamp", 8, Echo(Pool::Stamp));
        }
        if kind == 7 {
            list.all(&[("selftest.running_ms", 4), ("selftest.batches", 8)]);
            list.all(&[("selftest.errors", 8), ("selftest.rpc_errors", 4)]);
            list.all(&[("selftest.rpcs_sent", 4), ("selftest.rpcs_rcvd", 4)]);
            list.all(&[("selftest.rpcs_dropped", 4), ("selftest.rpcs_expired", 4)]);
            list.all(&[("selftest.bulk_get", 8), ("selftest.bulk_put", 8)]);
            list.all(&[("selftest.msgs_alloc", 4), ("selftest.msgs_max", 4)]);
            list.all(&[("selftest.lnet_errors", 4), ("selftest.send_count", 4)]);
            list.all(&[("selftest.recv_count", 4), ("selftest.route_count", 4)]);
            list.all(&[("selftest.drop_count", 4), ("selftest.send_length", 8)]);
            list.all(&[("selftest.recv_length", 8)]);
        }
    }

    /// The zero-copy cookies that a NOOP acknowledges (wire.md 3.10); none if it is a keepalive.
    pub fn acknowledged(&self) -> Vec<u64> {
        if self.kind != Kind::Noop {
            return Vec::new();
        }
        match (long(&self.bytes, &(8..16)), long(&self.bytes, &(16..24))) {
            (_, 0 | 1) => Vec::new(),
            (0, one) => vec![one],
            (higher, lower) if higher > lower => vec![higher, lower],
            // No node has more outstanding than this.
            (first, last) => (first..=last).take(1 << 16).collect(),
        }
    }

    /// Takes the acknowledgement of a zero-copy cookie out of a message that it rides on.
    pub fn take_rider(&mut self) -> Option<u64> {
        let is_message = matches!(self.kind, Kind::Ack | Kind::Put | Kind::Get | Kind::Reply);
        let place = 16..24;
        let cookie = long(&self.bytes, &place);
        if !is_message || self.header == 0 || Pool::Cookie.is_reserved(cookie) {
            return None;
        }
        self.bytes[place].fill(0);
        Some(cookie)
    }

    /// The connection type in a HELLO.
    pub fn conn_type(&self) -> Option<u32> {
        let field = self.fields().into_iter().find(|field| field.name == "conn_type")?;
        Some(word(&self.bytes, field.range.start))
    }

    /// The portal of a PUT or GET.
    pub fn portal(&self) -> Option<u32> {
        let name = match self.kind {
            Kind::Put | Kind::Get => "portal",
            _ => return None,
        };
        self.fields().iter().find(|f| f.name == name).map(|f| word(&self.bytes, f.range.start))
    }

    /// A line for people: kind, and what tells one message of a kind from another.
    pub fn describe(&self) -> String {
        let shown = ["conn_type", "portal", "sink_length", "payload_length", "cookie0", "cookie1"];
        let mut line = self.kind.to_string();
        for field in self.fields().iter().filter(|f| shown.contains(&f.name.as_str())) {
            let value = match field.range.len() {
                4 => u64::from(word(&self.bytes, field.range.start)),
                _ => self.value(field),
            };
            if value != 0 || field.name == "conn_type" || field.name == "portal" {
                line.push_str(&format!(" {} {value:#x}", field.name));
            }
        }
        line
    }
}

/// A list of fields that grows from the front.
struct Fields(Vec<Field>, usize);

impl Fields {
    fn one(&mut self, name: &str, len: usize, class: Class) {
        self.0.push(Field { name: name.to_owned(), range: self.1..self.1 + len, class });
        self.1 += len;
    }

    fn all(&mut self, fields: &[(&str, usize)]) {
        for (name, len) in fields {
            self.one(name, *len, Class::Fixed);
        }
    }

    fn rest(&mut self, name: &str, end: usize) {
        if end > self.1 {
            self.one(name, end - self.1, Class::Fixed);
        }
    }
}

/// Which end of a connection sent a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The one that connected.
    Client,
    /// The one that accepted.
    Server,
}

impl End {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    ConnReq,
    Hello,
    /// Frames of this socklnd version.
    Frames(u32),
    Raw,
}

/// Cuts what one end sent into messages, wherever the reads end.
#[derive(Debug)]
pub struct Splitter {
    end: End,
    stage: Stage,
    held: Vec<u8>,
}

/// What can be said of the bytes at hand.
enum Next {
    /// More bytes are needed.
    More,
    /// A message of this many bytes is complete.
    Item { kind: Kind, len: usize, header: usize, large: bool, stage: Stage },
    /// It is nothing known.
    Raw,
}

impl Splitter {
    /// For the stream of `end`.
    pub fn new(end: End) -> Self {
        let stage = match end {
            End::Client => Stage::ConnReq,
            End::Server => Stage::Hello,
        };
        Self { end, stage, held: Vec::new() }
    }

    /// Takes bytes, gives the messages that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Item> {
        self.held.extend_from_slice(bytes);
        let mut items = Vec::new();
        while !self.held.is_empty() {
            match self.next() {
                Next::More => break,
                Next::Item { kind, len, header, large, stage } => {
                    self.stage = stage;
                    let bytes = self.held.drain(..len).collect();
                    items.push(Item { kind, bytes, header, large });
                }
                Next::Raw => {
                    self.stage = Stage::Raw;
                    items.push(self.raw());
                }
            }
        }
        items
    }

    /// At the end of the stream: what never became a message.
    pub fn finish(&mut self) -> Option<Item> {
        (!self.held.is_empty()).then(|| self.raw())
    }

    fn raw(&mut self) -> Item {
        let bytes = std::mem::take(&mut self.held);
        Item { kind: Kind::Raw, bytes, header: 0, large: false }
    }

    fn next(&self) -> Next {
        let have = self.held.len();
        let item = |kind, len: usize, header, large, stage| {
            if have < len { Next::More } else { Next::Item { kind, len, header, large, stage } }
        };
        match self.stage {
            Stage::Raw => Next::Raw,
            _ if have < 8 => Next::More,
            Stage::ConnReq => match (word(&self.held, 0), word(&self.held, 4)) {
                (MAGIC_ACCEPTOR, 1) => item(Kind::ConnReq(1), 16, 0, false, Stage::Hello),
                (MAGIC_ACCEPTOR, 2) => item(Kind::ConnReq(2), 28, 0, true, Stage::Hello),
                _ => Next::Raw,
            },
            Stage::Hello => self.next_hello(item),
            Stage::Frames(1) => self.next_message(0, false, 1),
            Stage::Frames(version) => match word(&self.held, 0) {
                FRAME_NOOP => item(Kind::Noop, FRAME_LEN, 0, false, self.stage),
                FRAME_LNET => self.next_message(FRAME_LEN, version == 4, version),
                _ => Next::Raw,
            },
        }
    }

    fn next_hello(&self, item: impl Fn(Kind, usize, usize, bool, Stage) -> Next) -> Next {
        // Addresses may follow; how many stands in the last word (versions 2, 3) or in the length.
        let followed = |len: usize, count_at: usize, bytes_each: usize| {
            let count = word(&self.held, count_at) as usize;
            if self.held.len() < len {
                Some(len)
            } else {
                (count <= ADDRESSES_MAX).then_some(len + count * bytes_each)
            }
        };
        match (word(&self.held, 0), word(&self.held, 4)) {
            (MAGIC_SOCK, version @ (2 | 3)) => match followed(56, 52, 4) {
                Some(len) => item(Kind::Hello(version), len, 0, false, Stage::Frames(version)),
                None => Next::Raw,
            },
            (MAGIC_SOCK, 4) => item(Kind::Hello(4), 80, 0, true, Stage::Frames(4)),
            (MAGIC_HELLO1, 1) => match followed(72, 28, 1) {
                Some(len) => item(Kind::Hello(1), len, 0, false, Stage::Frames(1)),
                None => Next::Raw,
            },
            (MAGIC_ACCEPTOR, _) if self.end == End::Server => {
                item(Kind::AcceptorAnswer, 16, 0, false, Stage::Raw)
            }
            _ => Next::Raw,
        }
    }

    fn next_message(&self, header: usize, large: bool, version: u32) -> Next {
        let (nids, len) = if large { (40, header + 96) } else { (16, header + 72) };
        if self.held.len() < len {
            return Next::More;
        }
        let kind = match word(&self.held, header + nids + 8) {
            0 => Kind::Ack,
            1 => Kind::Put,
            2 => Kind::Get,
            3 => Kind::Reply,
            _ => return Next::Raw,
        };
        let payload = word(&self.held, header + nids + 12) as usize;
        if payload > PAYLOAD_MAX {
            return Next::Raw;
        }
        let len = len + payload;
        if self.held.len() < len {
            return Next::More;
        }
        Next::Item { kind, len, header, large, stage: Stage::Frames(version) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello3() -> Vec<u8> {
        let mut hello = vec![0; 56];
        hello[..8].copy_from_slice(&[0x63, 0x69, 0x72, 0x45, 3, 0, 0, 0]);
        hello
    }

    fn put(payload: &[u8]) -> Vec<u8> {
        let mut put = vec![0; 96];
        put[0] = 0xc1;
        put[48] = 1;
        put[52] = u8::try_from(payload.len()).unwrap();
        put[88] = 50;
        [put, payload.to_vec()].concat()
    }

    #[test]
    fn a_stream_is_cut_into_the_same_messages_wherever_reads_end() {
        let mut noop = vec![0; 24];
        noop[0] = 0xc0;
        let stream = [hello3(), put(b"hello"), noop, put(b"")].concat();
        let whole = Splitter::new(End::Server).push(&stream);
        let kinds: Vec<Kind> = whole.iter().map(|item| item.kind).collect();
        assert_eq!(kinds, [Kind::Hello(3), Kind::Put, Kind::Noop, Kind::Put]);
        for cut in 1..stream.len() {
            let mut splitter = Splitter::new(End::Server);
            let mut items = splitter.push(&stream[..cut]);
            items.extend(splitter.push(&stream[cut..]));
            assert_eq!(items, whole, "cut at {cut}");
            assert_eq!(splitter.finish(), None);
        }
    }

    #[test]
    fn fields_cover_every_byte_once() {
        let stream = [hello3(), put(b"hello")].concat();
        for item in Splitter::new(End::Server).push(&stream) {
            let mut at = 0;
            for field in item.fields() {
                assert_eq!(field.range.start, at, "{} of {}", field.name, item.kind);
                at = field.range.end;
            }
            assert_eq!(at, item.bytes.len(), "{}", item.kind);
        }
        let items = Splitter::new(End::Server).push(&stream);
        assert_eq!(items[1].portal(), Some(50));
    }

    #[test]
    fn a_noop_names_one_two_or_a_range_of_cookies() {
        let noop = |c0: u64, c1: u64| {
            let mut bytes = [0; 24];
            bytes[0] = 0xc0;
            bytes[8..16].copy_from_slice(&c0.to_le_bytes());
            bytes[16..].copy_from_slice(&c1.to_le_bytes());
            let mut splitter = Splitter::new(End::Server);
            splitter.push(&hello3());
            splitter.push(&bytes).remove(0).acknowledged()
        };
        assert_eq!(noop(0, 1), [0; 0]);
        assert_eq!(noop(0, 7), [7]);
        assert_eq!(noop(9, 7), [9, 7]);
        assert_eq!(noop(7, 10), [7, 8, 9, 10]);
    }

    #[test]
    fn an_acknowledgement_that_rides_on_a_message_is_taken_out_of_it() {
        let plain = [hello3(), put(b"hello")].concat();
        let mut laden = plain.clone();
        laden[56 + 16] = 7;
        let mut laden = Splitter::new(End::Server).push(&laden);
        assert_eq!(laden[1].take_rider(), Some(7));
        assert_eq!(laden, Splitter::new(End::Server).push(&plain));
        assert_eq!(laden.iter_mut().find_map(Item::take_rider), None);
    }

    #[test]
    fn an_unknown_protocol_stays_raw() {
        let mut splitter = Splitter::new(End::Client);
        let items = splitter.push(&[0xde, 0xad, 0xbe, 0xef, 1, 0, 0, 0, 9]);
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].kind, Kind::Raw);
        assert_eq!(splitter.push(&hello3())[0].kind, Kind::Raw);
    }
}
