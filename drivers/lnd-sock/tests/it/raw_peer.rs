//! Scripted peers: what kernel nodes were recorded to send, what they never would, and what we do.

use core::time::Duration;
use std::path::PathBuf;

use lnd_sock::{Kind, Refusal, SockConfig};
use lnet_pcap::{Closed, Conversation, Signal};
use lnet_types::{Net, Nid, Pid};
use lnet_wire::acceptor::{ANSWER, Request};
use lnet_wire::sock::{Checksum, ConnType, FrameHdr, FrameType, Hello, Noop, Version};
use lnet_wire::{ByteOrder, Hdr, HdrForm, Need};
use smallvec::SmallVec;

use crate::support::{Decision, Raw, Stands, World, addr, ni_start, nid, put};

fn capture(name: &str) -> Vec<Conversation> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pcap").join(name);
    lnet_pcap::conversations(path).expect("a good capture")
}

/// A world with one host that has the address and NID of the recorded node.
fn recorded_host(conversation: &Conversation) -> World {
    let mut world = World::new(1);
    let addr = conversation.server.ip();
    let nid = Nid::from_ip(Net::TCP, addr);
    world.host(SockConfig::default(), lnd_sock::NiStart { nid, addr, ..ni_start(1) });
    world
}

/// What a server said before messages began: a HELLO with the incarnation taken out, or other bytes.
#[derive(Debug, PartialEq)]
enum Answer {
    Nothing,
    Hello(Hello),
    Other(Vec<u8>),
}

fn answer(bytes: &[u8]) -> Answer {
    if bytes.is_empty() {
        return Answer::Nothing;
    }
    match Hello::parse(bytes) {
        Ok((hello, _)) => Answer::Hello(Hello { src_incarnation: 0, ..hello }),
        Err(_) => Answer::Other(bytes.to_vec()),
    }
}

/// How a recorded server stood before the client closed.
fn recorded_end(conversation: &Conversation) -> Stands {
    let client_closed = conversation
        .events
        .iter()
        .position(|e| e.direction == lnet_pcap::Direction::ToServer && e.signal != Signal::Syn);
    let server_closed = conversation
        .events
        .iter()
        .position(|e| e.direction == lnet_pcap::Direction::ToClient && e.signal != Signal::Syn);
    match (server_closed, client_closed) {
        (Some(s), Some(c)) if c < s => Stands::Open,
        (None, _) => Stands::Open,
        (Some(s), _) => match conversation.events[s].signal {
            Signal::Rst => Stands::Reset,
            _ => Stands::Eof,
        },
    }
}

/// Plays the client of a recorded conversation to our driver.
fn play(conversation: &Conversation) -> (World, Raw, Stands) {
    let mut world = recorded_host(conversation);
    let privileged = conversation.client.port() < 1024;
    let (from, to) = (conversation.client.ip(), conversation.server.ip());
    world.weather(|w| w.window = 1 << 24);
    let mut raw = Raw::connect(&world, from, to, privileged);
    raw.write(&conversation.to_server);
    // The stand-in of the node does what the recorded one did with a message for another node.
    if conversation.client.ip().to_string() == "10.77.0.222" {
        world.hosts[0].up.decisions = vec![Decision::Close];
    }
    world.pass(Duration::from_secs(1));
    let stands = raw.look();
    (world, raw, stands)
}

#[test]
fn recorded_peers_are_answered_as_the_kernel_answered_them() {
    let mut played = 0;
    for file in [
        "raw-peer-negotiation-errors.pcap",
        "raw-peer-message-errors.pcap",
        "raw-peer-ping-versions.pcap",
        "acceptor-magic-mismatch.pcap",
        "tcp-hello-ping.pcap",
        "ipv6-large-nid.pcap",
        "discovery-push.pcap",
        "selftest-brw-write-1m.pcap",
    ] {
        for conversation in capture(file) {
            // The kernel does not understand big-endian peers; we do (DEC-35).
            if conversation.client.ip().to_string() == "10.77.0.204" {
                continue;
            }
            let what = format!("{file} from {}", conversation.client);
            let (_, raw, stands) = play(&conversation);
            assert_eq!(answer(&raw.got), answer(&conversation.to_client), "{what}");
            assert_eq!(stands, recorded_end(&conversation), "{what}: how it ended");
            played += 1;
        }
    }
    assert!(played > 35, "only {played} conversations");
}

#[test]
fn recorded_messages_arrive_whole() {
    let file = "selftest-brw-write-1m.pcap";
    let mut bulk = 0;
    for conversation in capture(file) {
        let (world, raw, _) = play(&conversation);
        let up = &world.hosts[0].up;
        assert!(up.received.iter().all(|r| matches!(r.outcome, Some(Ok(_)))), "{:?}", up.received);
        let asked = world.hosts[0].driver.stats().acks_requested;
        for r in up.received.iter().filter(|r| r.hdr.payload_len == 1 << 20) {
            bulk += 1;
            let payload = world.hosts[0].mem.read(&r.place);
            let at = find(&conversation.to_server, &payload[..64]);
            assert!(payload[..] == conversation.to_server[at..at + payload.len()]);
            assert_eq!(asked, 1, "it asks for an acknowledgement");
            let noop = FrameHdr::noop(Noop::One(2)).to_bytes(ByteOrder::Little);
            assert!(raw.got.ends_with(&noop), "the acknowledgement is the kernel's, to the byte");
        }
    }
    assert_eq!(bulk, 1);
}

fn find(haystack: &[u8], needle: &[u8]) -> usize {
    haystack.windows(needle.len()).position(|w| w == needle).expect("it is in there")
}

#[test]
fn the_recorded_big_endian_peer_is_answered_and_its_big_endian_header_refused() {
    let all = capture("raw-peer-ping-versions.pcap");
    let conversation =
        all.iter().find(|c| c.client.ip().to_string() == "10.77.0.204").expect("recorded");
    let (world, raw, stands) = play(conversation);
    let Answer::Hello(hello) = answer(&raw.got) else { panic!("no HELLO") };
    assert_eq!(hello.order, ByteOrder::Little);
    // Unlike the kernel we swap its NIDs.
    assert_eq!(hello.dst, "10.77.0.204@tcp".parse().expect("a NID"));
    assert_eq!(stands, recorded_end(conversation));
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::Header), 1);
}

#[test]
fn a_big_endian_peer_is_understood() {
    let be = ByteOrder::Big;
    for version in [Version::V2, Version::V3, Version::V4] {
        let mut world = one_host();
        let hello = Hello { order: be, ..hello(9, version, ConnType::CONTROL) };
        let mut raw = accepted_as(&mut world, &hello);
        // Frames are in its order, LNet headers little-endian all the same.
        let mut bytes = wire_put(version, FrameHdr::lnet(0, 0), 1, b"payload");
        bytes[..24].copy_from_slice(&FrameHdr::lnet(0x99, 0).to_bytes(be));
        raw.write(&bytes);
        world.settle();
        assert_eq!(raw.look(), Stands::Open);
        assert_eq!(world.payload(0, 1), Some(b"payload".to_vec()), "{version}");
        assert_eq!(acknowledged(version, &raw.got), [(FrameType::Noop, 0, 0x99)]);
    }
}

/// The HELLO of a peer at `10.0.0.n`.
pub(crate) fn hello(n: u8, version: Version, kind: ConnType) -> Hello {
    Hello {
        order: ByteOrder::Little,
        version,
        src: nid(n),
        dst: nid(1),
        src_pid: Pid::LUSTRE,
        dst_pid: Pid(0),
        src_incarnation: 5,
        dst_incarnation: 0,
        conn_type: kind,
        ips: SmallVec::new(),
    }
}

pub(crate) fn bytes_of(hello: &Hello) -> Vec<u8> {
    let mut out = vec![0; Hello::LEN_MAX];
    let n = hello.emit(&mut out).expect("it fits");
    out.truncate(n);
    out
}

pub(crate) fn request(to: Nid) -> Vec<u8> {
    let mut out = vec![0; Request::LEN_MAX];
    let n = Request::to(to).emit(&mut out).expect("it fits");
    out.truncate(n);
    out
}

fn one_host() -> World {
    let mut world = World::new(1);
    world.host(SockConfig::default(), ni_start(1));
    world
}

/// A scripted peer at `10.0.0.9` that has been accepted.
pub(crate) fn accepted(world: &mut World, version: Version, kind: ConnType) -> Raw {
    accepted_as(world, &hello(9, version, kind))
}

fn accepted_as(world: &mut World, hello: &Hello) -> Raw {
    let mut raw = Raw::connect(world, addr(9), addr(1), true);
    raw.write(&request(nid(1)));
    raw.write(&bytes_of(hello));
    world.settle();
    assert_eq!(raw.look(), Stands::Open);
    let (answer, used) = Hello::parse(&raw.got).expect("a HELLO");
    assert_eq!(answer.version, hello.version);
    assert_eq!(answer.conn_type, hello.conn_type.inverse().expect("a type"));
    assert_eq!(used, raw.got.len());
    raw.got.clear();
    raw
}

/// A PUT from `10.0.0.9` as it is on the wire.
pub(crate) fn wire_put(version: Version, frame: FrameHdr, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if version.has_frames() {
        out.extend(frame.to_bytes(ByteOrder::Little));
    }
    let mut hdr = [0; Hdr::LEN_MAX];
    let n = put(nid(9), nid(1), number, payload.len() as u32)
        .emit(version.hdr_form(), &mut hdr)
        .expect("it fits");
    out.extend(&hdr[..n]);
    out.extend(payload);
    out
}

const VERSIONS: [Version; 4] = [Version::V1, Version::V2, Version::V3, Version::V4];

#[test]
fn peers_of_all_versions_are_heard_and_answered_in_their_own() {
    for version in VERSIONS {
        let mut world = one_host();
        let mut raw = accepted(&mut world, version, ConnType::CONTROL);
        raw.write(&wire_put(version, FrameHdr::lnet(0, 0), 1, b"payload"));
        world.settle();
        assert_eq!(world.payload(0, 1), Some(b"payload".to_vec()), "{version}");
        world.send_with(0, nid(9), 2, b"reply", |_| ());
        world.settle();
        raw.look();
        let mut want = Vec::new();
        if version.has_frames() {
            want.extend(FrameHdr::lnet(0, 0).to_bytes(ByteOrder::Little));
        }
        let mut hdr = [0; Hdr::LEN_MAX];
        let n = put(nid(1), nid(9), 2, 5).emit(version.hdr_form(), &mut hdr).expect("it fits");
        want.extend(&hdr[..n]);
        want.extend(b"reply");
        assert_eq!(raw.got, want, "{version}");
        // All sizes travel on the one connection that there is.
        world.send_with(0, nid(9), 3, &[7; 5000], |_| ());
        world.settle();
        assert_eq!(world.hosts[0].up.outcome(3), Some(Ok(())), "{version}");
    }
}

#[test]
fn handshakes_may_come_byte_by_byte() {
    for version in VERSIONS {
        let mut world = one_host();
        let mut raw = Raw::connect(&world, addr(9), addr(1), true);
        let mut bytes = request(nid(1));
        let ips = if version == Version::V4 { vec![] } else { vec![[10, 0, 0, 9].into(); 3] };
        let hello = Hello { ips: ips.into(), ..hello(9, version, ConnType::CONTROL) };
        bytes.extend(bytes_of(&hello));
        bytes.extend(wire_put(version, FrameHdr::lnet(0, 0), 1, b"at once"));
        for byte in bytes {
            raw.write(&[byte]);
            world.settle();
        }
        assert_eq!(raw.look(), Stands::Open);
        assert_eq!(world.payload(0, 1), Some(b"at once".to_vec()), "{version}");
    }
}

#[test]
fn every_bad_opening_is_closed_and_counted() {
    let good = hello(9, Version::V3, ConnType::CONTROL);
    let patched = |at: usize, with: &[u8]| {
        let mut bytes = bytes_of(&good);
        bytes[at..at + with.len()].copy_from_slice(with);
        [request(nid(1)), bytes].concat()
    };
    let patched_request = |at: usize, with: &[u8]| {
        let mut bytes = request(nid(1));
        bytes[at..at + with.len()].copy_from_slice(with);
        [bytes, bytes_of(&good)].concat()
    };
    let v1 = |at: usize, with: &[u8]| {
        let mut bytes = bytes_of(&hello(9, Version::V1, ConnType::CONTROL));
        bytes[at..at + with.len()].copy_from_slice(with);
        [request(nid(1)), bytes].concat()
    };
    let refusing = Hello {
        src: nid(1),
        dst: nid(1),
        src_incarnation: 1001,
        conn_type: ConnType::NONE,
        ..good.clone()
    };
    let refusing = bytes_of(&refusing);
    let any = Hello { src: Nid::ANY, ..hello(9, Version::V3, ConnType::CONTROL) };
    let table: Vec<(&str, Vec<u8>, Refusal, &[u8])> = vec![
        ("request magic", patched_request(0, b"HTTP"), Refusal::RequestMagic, b""),
        (
            "generic magic in a request",
            patched_request(0, &0x4572_6963u32.to_le_bytes()),
            Refusal::RequestMagic,
            &ANSWER,
        ),
        ("request version 0", patched_request(4, &[0]), Refusal::RequestVersion, &ANSWER),
        ("request version 3", patched_request(4, &[3]), Refusal::RequestVersion, &ANSWER),
        ("request for another NID", patched_request(8, &[9]), Refusal::RequestNid, b""),
        ("HELLO magic", patched(0, b"HELO"), Refusal::HelloMagic, b""),
        ("HELLO version 1 in new clothes", patched(4, &[1]), Refusal::HelloVersion, &refusing),
        ("HELLO version 5", patched(4, &[5]), Refusal::HelloVersion, &refusing),
        ("HELLO 1.1", v1(6, &[1]), Refusal::HelloVersion, &refusing),
        ("17 addresses", patched(52, &[17]), Refusal::HelloMalformed, b""),
        ("4 billion addresses", patched(52, &[0xff; 4]), Refusal::HelloMalformed, b""),
        ("address 0", [patched(52, &[1]), vec![0; 4]].concat(), Refusal::HelloMalformed, b""),
        ("version 1, other message", v1(24, &[1]), Refusal::HelloMalformed, b""),
        ("version 1, odd length", v1(28, &[3]), Refusal::HelloMalformed, b""),
        (
            "from the wildcard",
            [request(nid(1)), bytes_of(&any)].concat(),
            Refusal::HelloAnyNid,
            b"",
        ),
        ("type 4", patched(48, &[4]), Refusal::HelloType, b""),
        ("type NONE", patched(48, &[0xff; 4]), Refusal::HelloType, b""),
    ];
    for (what, bytes, refusal, answer) in table {
        let mut world = one_host();
        let mut raw = Raw::connect(&world, addr(9), addr(1), true);
        raw.write(&bytes);
        world.settle();
        assert_ne!(raw.look(), Stands::Open, "{what}");
        assert_eq!(raw.got, answer, "{what}");
        let stats = world.hosts[0].driver.stats();
        assert_eq!(stats.refused(refusal), 1, "{what}");
        assert_eq!(stats.refusals().map(|(_, n)| n).sum::<u64>(), 1, "{what}: {stats:?}");
        assert!(world.hosts[0].driver.connections().is_empty());
        assert!(world.hosts[0].driver.peers().is_empty(), "{what} leaves a record behind");
    }
}

#[test]
fn every_bad_frame_closes_all_connections_to_the_peer_and_is_counted() {
    let le = ByteOrder::Little;
    let noop = |cookie0, cookie1| {
        FrameHdr { kind: FrameType::Noop, checksum: 0, cookie0, cookie1 }.to_bytes(le).to_vec()
    };
    let plain = FrameHdr::lnet(0, 0);
    let header_type = |kind: u32, version: Version| {
        let mut bytes = wire_put(version, plain, 1, b"");
        let at = if version == Version::V4 { 24 + 48 } else { 24 + 24 };
        bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        bytes
    };
    let mut bad_nid = wire_put(Version::V4, plain, 1, b"");
    bad_nid[24] = 7;
    let mut frame_type = noop(0, 0);
    frame_type[0] = 0xc7;
    let summed = |checksum| FrameHdr { checksum, ..plain };
    let v3 = Version::V3;
    let table: Vec<(&str, Version, Vec<u8>, Refusal)> = vec![
        ("frame type", v3, frame_type, Refusal::FrameType),
        ("unknown cookie", v3, noop(0, 0x9999), Refusal::UnknownCookie),
        ("two unknown cookies", v3, noop(9, 7), Refusal::UnknownCookie),
        ("range of unknown cookies", v3, noop(7, 9), Refusal::UnknownCookie),
        ("range of all cookies", v3, noop(2, u64::MAX), Refusal::UnknownCookie),
        ("keepalive beside a cookie", v3, noop(5, 1), Refusal::FrameCookies),
        ("keepalive in version 2", Version::V2, noop(0, 1), Refusal::UnknownCookie),
        (
            "unknown cookie on a message",
            v3,
            wire_put(v3, FrameHdr::lnet(0, 5), 1, b""),
            Refusal::UnknownCookie,
        ),
        ("message type 4", v3, header_type(4, v3), Refusal::Header),
        ("message type of all ones", v3, header_type(u32::MAX, v3), Refusal::Header),
        ("message type 9, version 4", Version::V4, header_type(9, Version::V4), Refusal::Header),
        ("NID of no size", Version::V4, bad_nid, Refusal::Header),
        (
            "checksum, version 2",
            Version::V2,
            wire_put(Version::V2, summed(7), 1, b"x"),
            Refusal::Checksum,
        ),
        ("checksum, version 3", v3, wire_put(v3, summed(7), 1, b"x"), Refusal::Checksum),
    ];
    for (what, version, bytes, refusal) in table {
        let mut world = one_host();
        let mut other = accepted(&mut world, version, ConnType::BULK_IN);
        let mut raw = accepted(&mut world, version, ConnType::CONTROL);
        raw.write(&bytes);
        world.settle();
        assert_ne!(raw.look(), Stands::Open, "{what}");
        assert_ne!(other.look(), Stands::Open, "{what}: the other connection");
        assert_eq!(world.hosts[0].driver.stats().refused(refusal), 1, "{what}");
        assert!(world.hosts[0].driver.peers().is_empty(), "{what} leaves a record behind");
        assert_eq!(world.hosts[0].up.down.len(), 1, "{what}: the node hears of it once");
        assert!(world.hosts[0].up.arrived().is_empty(), "{what}");
    }
}

#[test]
fn a_message_that_the_node_refuses_closes_all_connections() {
    let mut world = one_host();
    world.hosts[0].up.decisions = vec![Decision::Close];
    let mut other = accepted(&mut world, Version::V3, ConnType::BULK_IN);
    let mut raw = accepted(&mut world, Version::V3, ConnType::CONTROL);
    raw.write(&wire_put(Version::V3, FrameHdr::lnet(0, 0), 1, b"x"));
    world.settle();
    assert_ne!(raw.look(), Stands::Open);
    assert_ne!(other.look(), Stands::Open);
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::Misbehaved), 1);
}

#[test]
fn good_checksums_are_accepted_and_sent_where_wanted() {
    let (le, v2) = (ByteOrder::Little, Version::V2);
    let mut sum = Checksum::of_frame(le, &FrameHdr::lnet(0, 0));
    sum.update(&wire_put(v2, FrameHdr::lnet(0, 0), 1, b"payload")[24..]);
    let frame = FrameHdr { checksum: sum.value(), ..FrameHdr::lnet(0, 0) };
    let mut world = World::new(1);
    let config = SockConfig { checksum: true, ..SockConfig::default() };
    world.host(config, ni_start(1));
    let mut raw = accepted(&mut world, v2, ConnType::CONTROL);
    raw.write(&wire_put(v2, frame, 1, b"payload"));
    world.settle();
    assert_eq!(world.payload(0, 1), Some(b"payload".to_vec()));
    world.send_with(0, nid(9), 2, b"reply", |_| ());
    world.settle();
    raw.look();
    let sent = FrameHdr::parse(le, &raw.got).expect("a frame");
    let mut sum = Checksum::of_frame(le, &sent);
    sum.update(&raw.got[24..]);
    assert_eq!(sent.checksum, sum.value());
}

/// The NOOPs in what a peer got, and the cookies on messages.
fn acknowledged(version: Version, mut bytes: &[u8]) -> Vec<(FrameType, u64, u64)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let frame = FrameHdr::parse(ByteOrder::Little, bytes).expect("a frame");
        out.push((frame.kind, frame.cookie0, frame.cookie1));
        bytes = &bytes[24..];
        if frame.kind == FrameType::Lnet {
            let hdr = Hdr::parse(version.hdr_form(), bytes).expect("a header");
            bytes = &bytes[version.hdr_form().len() + hdr.payload_len as usize..];
        }
    }
    out
}

#[test]
fn zero_copy_requests_are_acknowledged_on_the_connection_that_we_call_bulk_in() {
    let v3 = Version::V3;
    let ask = |cookie| wire_put(v3, FrameHdr::lnet(cookie, 0), cookie, &[1; 20_000]);
    let mut world = one_host();
    let mut control = accepted(&mut world, v3, ConnType::CONTROL);
    // What the peer calls BULK_OUT is our BULK_IN.
    let mut bulk = accepted(&mut world, v3, ConnType::BULK_OUT);
    bulk.write(&ask(2));
    world.settle();
    bulk.look();
    assert_eq!(acknowledged(v3, &bulk.got), [(FrameType::Noop, 0, 2)]);
    // A run of them is one range; two that do not touch are one NOOP as well.
    bulk.got.clear();
    bulk.write(&[ask(3), ask(4), ask(5)].concat());
    world.settle();
    bulk.look();
    assert_eq!(acknowledged(v3, &bulk.got), [(FrameType::Noop, 3, 5)]);
    bulk.got.clear();
    bulk.write(&[ask(9), ask(7)].concat());
    world.settle();
    bulk.look();
    assert_eq!(acknowledged(v3, &bulk.got), [(FrameType::Noop, 9, 7)]);
    // Also for what the node threw away.
    bulk.got.clear();
    world.hosts[0].up.decisions = vec![Decision::Drop];
    bulk.write(&ask(11));
    world.settle();
    bulk.look();
    assert_eq!(acknowledged(v3, &bulk.got), [(FrameType::Noop, 0, 11)]);
    control.look();
    assert!(control.got.is_empty(), "nothing on the other connection");
    assert_eq!(world.hosts[0].driver.stats().acks_sent, 7);
}

#[test]
fn acknowledgements_that_a_peer_does_not_read_are_limited() {
    let v3 = Version::V3;
    let mut world = World::new(1);
    let mut config = SockConfig::default();
    config.limits.acks_per_peer = 64;
    world.host(config, ni_start(1));
    let mut raw = accepted(&mut world, v3, ConnType::BULK_OUT);
    // It reads nothing more, and its window takes little.
    world.weather(|w| w.window = 128);
    for n in 1..1000_u64 {
        // Apart from each other, so that none stands for many.
        raw.write(&wire_put(v3, FrameHdr::lnet(3 * n, 0), n, b""));
        world.settle();
    }
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::TooManyAcks), 1);
    assert_ne!(raw.look(), Stands::Open);
}

#[test]
fn acknowledgements_that_waited_for_room_go_when_there_is_some() {
    let v3 = Version::V3;
    let mut world = one_host();
    let mut raw = accepted(&mut world, v3, ConnType::BULK_OUT);
    world.weather(|w| w.window = 128);
    for n in 1..40_u64 {
        raw.write(&wire_put(v3, FrameHdr::lnet(3 * n, 0), n, b""));
        world.settle();
    }
    world.weather(|w| w.window = 1 << 20);
    for _ in 0..3 {
        raw.look();
        world.wake();
        world.settle();
    }
    raw.look();
    let cookies: Vec<u64> = acknowledged(v3, &raw.got)
        .into_iter()
        .flat_map(|(_, one, two)| [one, two])
        .filter(|cookie| *cookie > 0)
        .collect();
    assert_eq!(cookies.len(), 39, "{cookies:?}");
}

#[test]
fn acknowledgements_ride_on_messages_that_go_anyway() {
    for version in [Version::V2, Version::V3, Version::V4] {
        let mut world = one_host();
        let mut raw = accepted(&mut world, version, ConnType::CONTROL);
        raw.write(&wire_put(version, FrameHdr::lnet(77, 0), 1, b"x"));
        world.send_with(0, nid(9), 2, b"reply", |_| ());
        world.settle();
        raw.look();
        assert_eq!(acknowledged(version, &raw.got), [(FrameType::Lnet, 0, 77)], "{version}");
        assert_eq!(world.hosts[0].driver.stats().acks_piggybacked, 1);
    }
}

#[test]
fn a_held_message_is_not_acknowledged_before_it_is_read() {
    let v3 = Version::V3;
    let mut world = one_host();
    world.hosts[0].up.decisions = vec![Decision::Defer];
    let mut raw = accepted(&mut world, v3, ConnType::BULK_OUT);
    raw.write(&wire_put(v3, FrameHdr::lnet(2, 0), 1, &[3; 100]));
    world.pass(Duration::from_secs(3));
    raw.look();
    assert!(raw.got.is_empty());
    world.resume(0, 0, &Decision::Keep);
    raw.look();
    assert_eq!(acknowledged(v3, &raw.got), [(FrameType::Noop, 0, 2)]);
}

#[test]
fn a_peer_that_restarted_is_taken_in_at_the_second_try() {
    let mut world = one_host();
    let mut old = accepted(&mut world, Version::V3, ConnType::CONTROL);
    let again = Hello { src_incarnation: 6, ..hello(9, Version::V3, ConnType::CONTROL) };
    let mut raw = Raw::connect(&world, addr(9), addr(1), true);
    raw.write(&request(nid(1)));
    raw.write(&bytes_of(&again));
    world.settle();
    assert_ne!(raw.look(), Stands::Open);
    let (refusal, _) = Hello::parse(&raw.got).expect("a HELLO");
    assert_eq!(refusal.conn_type, ConnType::NONE);
    assert_ne!(old.look(), Stands::Open, "the old connection is closed");
    assert!(world.hosts[0].up.down.is_empty(), "without an error");
    assert_eq!(world.hosts[0].driver.stats().new_incarnations, 1);
    accepted_as(&mut world, &again);
}

#[test]
fn a_peer_that_closes_its_last_connection_is_reported_and_one_of_several_is_not() {
    let mut world = one_host();
    let mut control = accepted(&mut world, Version::V3, ConnType::CONTROL);
    let mut bulk = accepted(&mut world, Version::V3, ConnType::BULK_IN);
    control.close();
    world.settle();
    assert!(world.hosts[0].up.down.is_empty(), "another one is open");
    bulk.close();
    world.settle();
    assert_eq!(world.hosts[0].up.down.len(), 1);
}

#[test]
fn a_second_connection_of_one_type_is_refused() {
    let mut world = one_host();
    let _first = accepted(&mut world, Version::V3, ConnType::CONTROL);
    let mut raw = Raw::connect(&world, addr(9), addr(1), true);
    raw.write(&request(nid(1)));
    raw.write(&bytes_of(&hello(9, Version::V3, ConnType::CONTROL)));
    world.settle();
    assert_eq!(raw.look(), Stands::Eof);
    let (refusal, _) = Hello::parse(&raw.got).expect("a HELLO");
    assert_eq!((refusal.conn_type, refusal.version), (ConnType::NONE, Version::V3));
    assert_eq!(world.hosts[0].driver.stats().refused(Refusal::Duplicate), 1);
}

/// Reads the opening of our driver at a scripted acceptor.
fn opening(raw: &mut Raw) -> Hello {
    raw.look();
    let (request, used) = Request::parse(&raw.got).expect("a request");
    assert_eq!(request.nid, nid(9));
    let (hello, more) = Hello::parse(&raw.got[used..]).expect("a HELLO");
    assert_eq!(used + more, raw.got.len(), "nothing is sent before the answer");
    hello
}

#[test]
fn an_initiator_learns_the_version_of_an_older_peer_and_forgets_it_with_the_last_connection() {
    let mut world = one_host();
    let mut raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"hello", |_| ());
    world.settle();
    assert!(raw.accept());
    let first = opening(&mut raw);
    assert_eq!((first.version, first.conn_type), (Version::V3, ConnType::CONTROL));
    // This peer has version 2 alone.
    raw.write(&bytes_of(&hello(9, Version::V2, ConnType::NONE)));
    raw.close();
    world.settle();
    assert!(raw.accept(), "it comes again at once");
    let second = opening(&mut raw);
    assert_eq!(second.version, Version::V2);
    raw.write(&bytes_of(&hello(9, Version::V2, ConnType::CONTROL)));
    world.settle();
    raw.look();
    assert_eq!(world.hosts[0].up.outcome(1), Some(Ok(())));
    assert_eq!(world.hosts[0].driver.stats().version_changes, 1);
    raw.close();
    world.settle();
    // The attempts for bulk connections are still in the queue of the listener.
    while raw.accept() {
        assert_eq!(opening(&mut raw).version, Version::V2);
        raw.close();
    }
    world.pass(Duration::from_secs(100));
    world.send_with(0, nid(9), 2, b"hello", |_| ());
    world.settle();
    assert!(raw.accept());
    assert_eq!(opening(&mut raw).version, Version::V3, "forgotten");
}

#[test]
fn an_initiator_goes_on_in_the_version_of_the_answer() {
    for version in [Version::V1, Version::V2, Version::V4] {
        let mut world = one_host();
        let mut raw = Raw::listen(&world, addr(9));
        world.send_with(0, nid(9), 1, b"hello", |_| ());
        world.settle();
        assert!(raw.accept());
        opening(&mut raw);
        raw.got.clear();
        raw.write(&bytes_of(&hello(9, version, ConnType::CONTROL)));
        world.settle();
        raw.look();
        let form = version.hdr_form();
        let at = if version.has_frames() { 24 } else { 0 };
        let hdr = Hdr::parse(form, &raw.got[at..]).expect("a header");
        assert_eq!((hdr.src, hdr.payload_len), (nid(1), 5), "{version}");
        assert_eq!(form == HdrForm::Long, version == Version::V4);
        assert_eq!(world.hosts[0].driver.connections()[0].kind, Kind::Control);
    }
}

#[test]
fn a_wrong_answer_to_a_hello_ends_the_attempt_to_connect() {
    let good = hello(9, Version::V3, ConnType::CONTROL);
    let mut unknown = bytes_of(&good);
    unknown[4] = 9;
    let table: Vec<(&str, Vec<u8>, Refusal)> = vec![
        ("another NID", bytes_of(&Hello { src: nid(8), ..good.clone() }), Refusal::HelloOtherPeer),
        (
            "another pid",
            bytes_of(&Hello { src_pid: Pid(1), ..good.clone() }),
            Refusal::HelloOtherPeer,
        ),
        (
            "another type",
            bytes_of(&Hello { conn_type: ConnType::BULK_IN, ..good }),
            Refusal::HelloType,
        ),
        ("an unknown version", unknown, Refusal::HelloVersion),
        ("an acceptor", ANSWER.to_vec(), Refusal::HelloFromAcceptor),
        ("a web server", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Refusal::HelloMagic),
    ];
    for (what, bytes, refusal) in table {
        let mut world = one_host();
        let mut raw = Raw::listen(&world, addr(9));
        world.send_with(0, nid(9), 1, b"hello", |_| ());
        world.settle();
        assert!(raw.accept());
        raw.write(&bytes);
        world.settle();
        let fault = world.fault(0, 1);
        assert_eq!(fault.errno, lnet_types::Errno::EPROTO, "{what}");
        assert_eq!(fault.status, lnet_types::HealthStatus::LocalError, "{what}");
        assert_eq!(world.hosts[0].driver.stats().refused(refusal), 1, "{what}");
        assert_eq!(world.hosts[0].up.down.len(), 1, "{what}");
    }
}

#[test]
fn an_acceptor_that_closes_without_a_word_looks_like_a_reset() {
    let mut world = one_host();
    let mut raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"hello", |_| ());
    world.settle();
    assert!(raw.accept());
    raw.look();
    raw.close();
    world.settle();
    let fault = world.fault(0, 1);
    assert_eq!(fault.errno, lnet_types::Errno::ECONNRESET);
    assert_eq!(fault.status, lnet_types::HealthStatus::RemoteDropped);
}

#[test]
fn captures_of_kernel_initiators_need_nothing_that_we_do_not_send() {
    // Our opening has the bytes of the kernel's, but for NIDs and incarnation.
    let theirs = &capture("tcp-hello-ping.pcap")[0];
    let mut world = one_host();
    let mut raw = Raw::listen(&world, addr(9));
    world.send_with(0, nid(9), 1, b"hello", |_| ());
    world.settle();
    assert!(raw.accept());
    let ours = opening(&mut raw);
    let (_, used) = Request::parse(&theirs.to_server).expect("a request");
    let (kernel, len) = Hello::parse(&theirs.to_server[used..]).expect("a HELLO");
    let neutral = |h: Hello| Hello { src: Nid::ANY, dst: Nid::ANY, src_incarnation: 0, ..h };
    assert_eq!(neutral(ours), neutral(kernel));
    assert_eq!(raw.got.len(), used + len);
    assert_eq!(theirs.client_closed, Closed::Open);
    assert!(matches!(Hello::need(&raw.got[used..]), Ok(Need::Exactly(n)) if n == len));
}

/// A version 3 HELLO of `10.0.0.n` as bytes.
pub(crate) fn hello_bytes_of(n: u8, kind: ConnType) -> Vec<u8> {
    bytes_of(&hello(n, Version::V3, kind))
}
