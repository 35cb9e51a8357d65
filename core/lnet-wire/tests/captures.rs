//! Everything that kernel nodes said on TCP in the recordings, through our decoders and back.
//!
//! Each capture is walked byte by byte: connection requests, HELLOs, frames, LNet headers and ping
//! infos are decoded, emitted again and compared; checksums are checked. What was decoded is
//! printed in the form of the listing beside the capture (made by another program) and compared
//! with it line by line. Lines where the two are meant to differ are in [`differing`], each with
//! its reason.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lnet_pcap::{Conversation, Direction, Signal};
use lnet_types::Nid;
use lnet_wire::acceptor::{self, Request};
use lnet_wire::ping::{self, Features};
use lnet_wire::sock::{Checksum, ConnType, FrameHdr, FrameType, Hello, Noop, Version};
use lnet_wire::{ByteOrder, Handle, Hdr, HdrForm, Kind, Need, PingInfo, WireError};

/// Lines of ours that stand for lines of the listing, by capture and frame.
fn differing(capture: &str, frame: u32, theirs: &str) -> Option<&'static [&'static str]> {
    Some(match (capture, frame) {
        // A wrong magic or version: the listing goes on reading, we do not. What follows in the
        // stream is of no interest to a receiver either.
        ("acceptor-magic-mismatch", 4) => {
            &["!! connection request: magic 0x45726963 (read as little-endian) is not known"]
        }
        ("acceptor-magic-mismatch", 6) => &[],
        ("raw-peer-negotiation-errors", 4) => &["!! connection request: version 0x63 is not known"],
        ("raw-peer-negotiation-errors", 13) => {
            &["!! connection request: magic 0xdeadbeef (read as little-endian) is not known"]
        }
        ("raw-peer-negotiation-errors", 39) if theirs.contains("HELLO") => {
            &["!! HELLO: version 0x63 is not known"]
        }
        ("raw-peer-negotiation-errors", 47) if theirs.contains("HELLO") => {
            &["!! HELLO: magic 0x12345678 (read as little-endian) is not known"]
        }
        // Ours prints the network of a NID that has none.
        ("raw-peer-negotiation-errors", 27) if theirs.contains("CONNREQ") => {
            &["CONNREQ magic=0xacce7100 v1 nid=0@<0:0>"]
        }
        ("raw-peer-message-errors", 60) => &["!! socklnd frame: type is 0xc7"],
        ("raw-peer-message-errors", 69) => &["!! LNet header: type is 0x9"],
        // A big-endian peer, which the listing does not understand and we do.
        ("raw-peer-ping-versions", 43) => &[
            "CONNREQ magic=0xacce7100 v1 nid=10.77.0.2@tcp",
            "HELLO v3 src=10.77.0.204@tcp dst=10.77.0.2@tcp spid=12345 dpid=0 \
             sinc=0x660c1f6730bfc dinc=0x0 ctype=CONTROL nips=0",
        ],
        // The kernel's answer to it: the destination NID is left in the wrong order.
        ("raw-peer-ping-versions", 45) => &["HELLO v3 src=10.77.0.2@tcp dst=200@<0:19722> \
             spid=12345 dpid=0 sinc=0x18e9f5a7e2dcb586 dinc=0x0 ctype=CONTROL nips=0"],
        _ => return None,
    })
}

/// A line of ours where the listing has none: the GET of the big-endian peer, whose LNet header
/// should have been little-endian.
const UNLISTED: (&str, u32, &str) =
    ("raw-peer-ping-versions", 47, "!! LNet header: type is 0x2000000");

/// Where a line tells the type of the connection.
const TYPE_COLUMN: std::ops::Range<usize> = 20..28;
/// In that column: not known, because the client's HELLO was behind something that we refuse.
const UNKNOWN: &str = "*";

/// A line of a listing.
struct Line {
    frame: u32,
    time_ns: u64,
    conversation: usize,
    conn_type: String,
    addresses: String,
    text: String,
}

impl Line {
    fn head(&self) -> String {
        let Self { frame, time_ns, conversation, conn_type, addresses, .. } = self;
        let micros = time_ns / 1000;
        format!(
            "{frame:5} {:2}.{:06} #{conversation:<2} {conn_type:<8} {addresses}  ",
            micros / 1_000_000,
            micros % 1_000_000
        )
    }
}

/// Where the decoding of one direction stands.
enum Phase {
    Request,
    Hello,
    Messages,
    /// After an error nothing makes sense.
    Lost,
}

struct Side {
    phase: Phase,
    order: ByteOrder,
    version: Version,
    buffer: Vec<u8>,
}

/// Decodes one conversation into lines and checks every message on the way.
struct Walk<'a> {
    conversation: &'a Conversation,
    number: usize,
    conn_type: Option<ConnType>,
    to_server: Side,
    to_client: Side,
    lines: Vec<Line>,
}

impl Walk<'_> {
    fn run(conversation: &Conversation, number: usize) -> Vec<Line> {
        let side = |phase| Side {
            phase,
            order: ByteOrder::Little,
            version: Version::V3,
            buffer: Vec::new(),
        };
        let mut walk = Walk {
            conversation,
            number,
            conn_type: None,
            to_server: side(Phase::Request),
            to_client: side(Phase::Hello),
            lines: Vec::new(),
        };
        let mut events = conversation.events.iter().peekable();
        for segment in &conversation.segments {
            while let Some(event) = events.next_if(|e| e.frame < segment.frame) {
                walk.event(event);
            }
            let at = (segment.direction, segment.frame, segment.time_ns);
            walk.side(at.0).buffer.extend_from_slice(&segment.bytes);
            while let Some(text) = walk.message(at.0) {
                // The type is known from the HELLO on, but the HELLO itself still has none.
                let conn_type = walk.conn_type;
                if let Some(text) = text.strip_prefix("first ") {
                    walk.line(at, None, text);
                } else {
                    walk.line(at, conn_type, &text);
                }
            }
        }
        for event in events {
            walk.event(event);
        }
        walk.lines
    }

    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    fn line(
        &mut self,
        (direction, frame, time_ns): (Direction, u32, u64),
        conn_type: Option<ConnType>,
        text: &str,
    ) {
        let Conversation { client, server, .. } = self.conversation;
        let (src, dst) = match direction {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        };
        let host = |a: &std::net::SocketAddr| format!("{}:{}", a.ip(), a.port());
        self.lines.push(Line {
            frame,
            time_ns,
            conversation: self.number,
            conn_type: match (conn_type, &self.to_server.phase) {
                (None, Phase::Lost) => UNKNOWN.to_owned(),
                (None, _) => "?".to_owned(),
                (Some(conn_type), _) => listed_type(conn_type),
            },
            addresses: format!("{} > {}", host(src), host(dst)),
            text: text.to_owned(),
        });
    }

    fn event(&mut self, event: &lnet_pcap::Event) {
        let text = match event.signal {
            Signal::Syn => "TCP SYN",
            Signal::Fin => "TCP FIN",
            Signal::Rst => "TCP RST",
        };
        self.line((event.direction, event.frame, event.time_ns), self.conn_type, text);
    }

    /// Takes the next message of one direction off its buffer, once it is whole.
    fn message(&mut self, direction: Direction) -> Option<String> {
        let side = self.side(direction);
        let (used, text) = match side.take() {
            Ok(taken) => taken?,
            Err(why) => {
                side.phase = Phase::Lost;
                return Some(format!("!! {why}"));
            }
        };
        side.buffer.drain(..used.bytes);
        if let Some(hello) = used.hello {
            if direction == Direction::ToServer {
                // The listing does not tell the type of version 1 connections.
                if hello.version != Version::V1 {
                    self.conn_type = Some(hello.conn_type);
                }
                self.to_server.version = hello.version;
                return Some(format!("first {text}"));
            }
            // What a refusal says of versions does not matter any more.
            self.to_server.version = hello.version;
        }
        Some(text)
    }
}

struct Used {
    bytes: usize,
    hello: Option<Hello>,
}

impl Side {
    /// Decodes what the buffer begins with. `None` if more bytes are needed.
    fn take(&mut self) -> Result<Option<(Used, String)>, WireError> {
        let b = &self.buffer;
        match self.phase {
            Phase::Request => {
                let Need::Exactly(n) = Request::need(b)? else { return Ok(None) };
                if b.len() < n {
                    return Ok(None);
                }
                let (request, used) = Request::parse(b)?;
                let mut out = [0; Request::LEN_MAX];
                assert_eq!(request.emit(&mut out), Ok(used));
                assert_eq!(out[..used], b[..used], "{request}");
                self.phase = Phase::Hello;
                let text = format!(
                    "CONNREQ magic=0xacce7100 v{} nid={}",
                    request.version as u32, request.nid
                );
                Ok(Some((Used { bytes: used, hello: None }, text)))
            }
            Phase::Hello if acceptor::is_answer(b) => {
                if b.len() < acceptor::ANSWER.len() {
                    return Ok(None);
                }
                assert_eq!(b[..], acceptor::ANSWER);
                self.phase = Phase::Lost;
                let raw = b.iter().fold(String::new(), |mut raw, byte| {
                    let _ = write!(raw, "{byte:02x}");
                    raw
                });
                let text = format!("ACCEPTOR VERSION REPLY magic=0xacce7100 v1 raw={raw}");
                Ok(Some((Used { bytes: b.len(), hello: None }, text)))
            }
            Phase::Hello => {
                let Need::Exactly(n) = Hello::need(b)? else { return Ok(None) };
                if b.len() < n {
                    return Ok(None);
                }
                let (hello, used) = Hello::parse(b)?;
                let mut out = [0; Hello::LEN_MAX];
                assert_eq!(hello.emit(&mut out), Ok(used));
                // The swapped dst_nid (see `differing`) has bits that no NID has.
                if hello.dst.net().kind.0 != 0 {
                    assert_eq!(out[..used], b[..used], "{hello}");
                }
                self.phase = Phase::Messages;
                (self.order, self.version) = (hello.order, hello.version);
                let text = listed_hello(&hello);
                Ok(Some((Used { bytes: used, hello: Some(hello) }, text)))
            }
            Phase::Messages => self.take_message(),
            Phase::Lost => Ok(None),
        }
    }

    fn take_message(&self) -> Result<Option<(Used, String)>, WireError> {
        let mut b = &self.buffer[..];
        let mut bytes = 0;
        let mut frame = None;
        if self.version.has_frames() {
            if b.len() < FrameHdr::LEN {
                return Ok(None);
            }
            let hdr = FrameHdr::parse(self.order, b)?;
            assert_eq!(hdr.to_bytes(self.order), b[..FrameHdr::LEN]);
            bytes = FrameHdr::LEN;
            b = &b[bytes..];
            if hdr.kind == FrameType::Noop {
                return Ok(Some((Used { bytes, hello: None }, listed_noop(&hdr))));
            }
            frame = Some(hdr);
        }
        let form = self.version.hdr_form();
        if b.len() < form.len() {
            return Ok(None);
        }
        let hdr = Hdr::parse(form, b)?;
        let mut out = [0; Hdr::LEN_MAX];
        assert_eq!(hdr.emit(form, &mut out), Ok(form.len()));
        assert_eq!(out[..form.len()], b[..form.len()], "{hdr}");
        let whole = form.len() + hdr.payload_len as usize;
        if b.len() < whole {
            return Ok(None);
        }
        let payload = &b[form.len()..whole];
        let mut text = listed_hdr(&hdr);
        if is_ping_info(&hdr, payload) {
            text += &listed_ping(payload);
        }
        if let Some(frame) = frame {
            if frame.cookie0 != 0 {
                let _ = write!(text, " ZC-REQ={:#x}", frame.cookie0);
            }
            assert_eq!(frame.cookie1, 0, "no acknowledgement rides along in the recordings");
            if frame.checksum != 0 {
                let mut sum = Checksum::of_frame(self.order, &frame);
                sum.update(&b[..whole]);
                assert_eq!(sum.value(), frame.checksum, "{frame} {hdr}");
                let _ = write!(text, " csum={:#x}", frame.checksum);
            }
        }
        Ok(Some((Used { bytes: bytes + whole, hello: None }, text)))
    }
}

fn is_ping_info(hdr: &Hdr, payload: &[u8]) -> bool {
    let ping = match hdr.kind {
        Kind::Put { portal, match_bits, .. } => {
            (portal, match_bits) == (ping::PORTAL, ping::MATCH_BITS)
        }
        Kind::Reply { .. } => true,
        Kind::Ack { .. } | Kind::Get { .. } => false,
    };
    ping && payload.starts_with(&ping::MAGIC.to_le_bytes())
}

fn listed_type(conn_type: ConnType) -> String {
    match conn_type {
        ConnType::NONE => "NONE(-1)".to_owned(),
        ConnType(other @ 4..) => other.to_string(),
        named => named.to_string(),
    }
}

fn listed_nid(nid: Nid) -> String {
    if nid.is_loopback() { "0.0.0.0@lo".to_owned() } else { nid.to_string() }
}

fn listed_hello(hello: &Hello) -> String {
    let (src, dst) = (listed_nid(hello.src), listed_nid(hello.dst));
    let (pid, incarnation) = (hello.src_pid.0, hello.src_incarnation);
    let conn_type = listed_type(hello.conn_type);
    if hello.version == Version::V1 {
        return format!(
            "HELLO v1 magic=0xeebc0ded 1.0 src={src} pid={pid} type=HELLO plen=0 \
             inc={incarnation:#x} ctype={conn_type}"
        );
    }
    format!(
        "HELLO {} src={src} dst={dst} spid={pid} dpid={} sinc={incarnation:#x} dinc={:#x} \
         ctype={conn_type} nips={}",
        hello.version,
        hello.dst_pid.0,
        hello.dst_incarnation,
        hello.ips.len()
    )
}

fn listed_noop(frame: &FrameHdr) -> String {
    let meaning = match Noop::from_cookies(frame.cookie0, frame.cookie1) {
        Ok(Noop::Keepalive) => "keepalive",
        Ok(Noop::One(_)) => "ZC-ACK",
        other => panic!("not in the recordings: {other:?}"),
    };
    let FrameHdr { checksum, cookie0, cookie1, .. } = frame;
    format!("KSOCK NOOP csum={checksum:#x} zc=[{cookie0:#x},{cookie1:#x}] ({meaning})")
}

fn listed_hdr(hdr: &Hdr) -> String {
    let handle = |h: Handle| {
        if h == Handle::NONE {
            "NONE".to_owned()
        } else {
            format!("{:x}.{:x}", h.interface, h.object)
        }
    };
    let (name, fields) = match hdr.kind {
        Kind::Ack { dst, match_bits, mlength, .. } => {
            ("ACK", format!("dst_wmd={} mbits={match_bits:#x} mlen={mlength}", handle(dst)))
        }
        Kind::Put { ack, match_bits, hdr_data, portal, offset } => (
            "PUT",
            format!(
                "portal={portal} mbits={match_bits:#x} hdr_data={hdr_data:#x} off={offset} \
                 ack_wmd={}",
                handle(ack)
            ),
        ),
        Kind::Get { ret, match_bits, portal, offset, sink_len, .. } => (
            "GET",
            format!(
                "portal={portal} mbits={match_bits:#x} src_off={offset} sink={sink_len} \
                 ret_wmd={}",
                handle(ret)
            ),
        ),
        Kind::Reply { dst, .. } => ("REPLY", format!("dst_wmd={}", handle(dst))),
    };
    format!(
        "{name} {} -> {} spid={} dpid={} plen={} {fields}",
        hdr.src, hdr.dst, hdr.src_pid.0, hdr.dst_pid.0, hdr.payload_len
    )
}

/// Decodes the ping info, checks that it is emitted as it was, and lists it.
fn listed_ping(payload: &[u8]) -> String {
    let got = PingInfo::parse(payload).expect("ping info");
    let info = &got.info;
    if got.truncated().is_none() {
        assert_eq!(info.emit(), payload, "{info}");
    }
    let large = info.features.contains(Features::LARGE_ADDR);
    let larges = info.entries.iter().filter(|e| e.nid.is_large());
    let nnis = (got.size - 16 - 24 * larges.clone().count()) / 16;
    let mut text = format!(
        " pinginfo feat={:#x}({}) pid={} nnis={nnis} msgsize={} [lo(seq={})",
        info.features.bits(),
        info.features,
        info.pid.0,
        if large { got.size } else { 0 },
        info.seq
    );
    for e in info.entries.iter().filter(|e| !e.nid.is_large()) {
        let _ = write!(text, ", {}:{}", e.nid, e.status);
    }
    for e in larges {
        let _ = write!(text, ", LARGE {}:{}", e.nid, e.status);
    }
    text + if got.truncated().is_some() { ", ..trunc]" } else { "]" }
}

/// Removes what the listing tells about payloads of lnet_selftest, which is another decoder's.
fn without_selftest(line: &str) -> String {
    let Some((front, back)) = line.split_once(" SRPC ") else {
        return line.to_owned();
    };
    let kept = back.split(' ').filter(|word| word.starts_with("ZC-REQ="));
    kept.fold(front.to_owned(), |line, word| line + " " + word)
}

fn compare(capture: &Path, listing: &Path) -> usize {
    let name = capture.file_stem().and_then(|s| s.to_str()).expect("a name");
    let theirs = std::fs::read_to_string(listing).expect("a listing");
    let conversations = lnet_pcap::conversations(capture).expect("a capture");
    let mut ours: Vec<Line> = conversations
        .iter()
        .enumerate()
        .flat_map(|(i, conversation)| Walk::run(conversation, i + 1))
        .collect();
    ours.sort_by_key(|line| line.frame);
    ours.retain(|line| (name, line.frame, line.text.as_str()) != UNLISTED);
    let mut ours = ours.iter();
    let mut compared = 0;
    for line in theirs.lines() {
        let frame = line[..5].trim().parse().expect("a frame number");
        let mut check = |text: &str| {
            let our = ours.next().unwrap_or_else(|| panic!("{name}: ours ends before: {line}"));
            let mut whole = format!("{}{}", our.head(), our.text);
            if our.conn_type == UNKNOWN {
                whole.replace_range(TYPE_COLUMN, &line[TYPE_COLUMN]);
            }
            if text == line {
                assert_eq!(whole.trim_end(), without_selftest(line).trim_end(), "{name}");
            } else {
                assert_eq!((our.frame, our.text.as_str()), (frame, text), "{name}: {whole}");
            }
            compared += 1;
        };
        match differing(name, frame, line) {
            None => check(line),
            Some(texts) => texts.iter().for_each(|text| check(text)),
        }
    }
    assert_eq!(ours.count(), 0, "{name}: lines of ours are left");
    compared
}

#[test]
fn every_message_of_every_capture_decodes_as_listed_and_is_emitted_as_it_was() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pcap");
    let mut captures: Vec<_> = std::fs::read_dir(&dir)
        .expect("fixtures/pcap")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        // Of nodes of this project, without a listing: `testing/interop` plays them.
        .filter(|path| !path.to_string_lossy().contains("version-0.1-"))
        .collect();
    captures.sort();
    assert_eq!(captures.len(), 21, "captures");
    let mut lines = 0;
    for capture in &captures {
        let listing = dir.join("decoded").join(capture.file_name().expect("a name"));
        lines += compare(capture, &listing.with_extension("txt"));
    }
    assert!(lines > 1900, "{lines} lines compared");
}

/// Recorded: a hand-made client sends an ACK and a REPLY with arbitrary padding by way of a kernel router,
/// three times each.
#[test]
fn bytes_behind_a_body_pass_a_kernel_router_and_are_emitted_as_they_were_read() {
    let path = "../../fixtures/pcap/raw/routed-body-unchanged.pcap";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    let capture = std::fs::read(path).expect("the capture");
    let padding = |from: u8, len: u8| (from..from + len).collect::<Vec<u8>>();
    for (pad, before) in [(padding(0xa1, 12), 32 + 28), (padding(0xb0, 24), 32 + 16)] {
        let found = capture.windows(pad.len()).enumerate().filter(|(_, bytes)| *bytes == pad);
        let headers: Vec<&[u8]> = found.map(|(at, _)| &capture[at - before..][..72]).collect();
        assert_eq!(headers.len(), 3, "behind the router");
        for bytes in &headers {
            let hdr = Hdr::parse(HdrForm::Short, bytes).expect("a header");
            match hdr.kind {
                Kind::Ack { pad: seen, .. } => assert_eq!(seen[..], pad),
                Kind::Reply { pad: seen, .. } => assert_eq!(seen[..], pad),
                other => panic!("{other:?}"),
            }
            let mut out = [0; 72];
            assert_eq!(hdr.emit(HdrForm::Short, &mut out), Ok(72));
            assert_eq!(out, *bytes);
        }
        assert!(headers.iter().all(|bytes| bytes[32..] == headers[0][32..]), "one body");
    }
}
