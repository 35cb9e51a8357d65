//! The golden bytes both ways: each vector gives the value that its table names, and that value
//! gives the bytes again; every shorter prefix is refused as short, and `need` never asks for more
//! than there is.

mod support;

use lnet_types::{Nid, Pid};
use lnet_wire::acceptor::{self, Request};
use lnet_wire::ping::Features;
use lnet_wire::sock::{self, Checksum, ConnType, FrameHdr, FrameType, Hello, Noop};
use lnet_wire::{
    ByteOrder, Handle, Hdr, HdrForm, Kind, Need, NiStatus, PingEntry, PingInfo, WireError,
};
use support::fixture;

fn nid(text: &str) -> Nid {
    text.parse().expect("a NID")
}

/// Follows `need` over ever longer prefixes of `bytes`; returns what it finally says.
fn follow_need(bytes: &[u8], need: impl Fn(&[u8]) -> Result<Need, WireError>) -> usize {
    let mut last = 0;
    for have in 0..=bytes.len() {
        match need(&bytes[..have]).expect("a good prefix") {
            Need::AtLeast(n) => assert!(have < n && n <= bytes.len(), "{n} asked with {have}"),
            Need::Exactly(n) => last = n,
        }
    }
    last
}

fn is_short<T: std::fmt::Debug>(got: Result<T, WireError>, have: usize) {
    match got {
        Err(WireError::Short { need, have: seen, .. }) => {
            assert!(seen == have && need > have, "need {need} have {seen} of {have}");
        }
        other => panic!("{have} bytes: {other:?}"),
    }
}

fn request(name: &str, version: acceptor::Version, target: &str, text: &str) {
    let bytes = fixture(name);
    let (req, used) = Request::parse(&bytes).expect(name);
    assert_eq!(used, bytes.len());
    assert_eq!(req, Request { order: ByteOrder::Little, version, nid: nid(target) });
    assert_eq!(req, Request::to(nid(target)));
    assert_eq!(req.to_string(), text);
    assert_eq!(follow_need(&bytes, Request::need), bytes.len());
    let mut out = [0xEE; Request::LEN_MAX];
    assert_eq!(req.emit(&mut out), Ok(bytes.len()));
    assert_eq!(out[..bytes.len()], bytes);
    for have in 0..bytes.len() {
        is_short(Request::parse(&bytes[..have]), have);
        is_short(req.emit(&mut out[..have]), have);
    }
}

#[test]
fn connection_requests_are_the_golden_bytes() {
    use acceptor::Version::{V1, V2};
    request("A1", V1, "192.168.1.20@tcp", "CONNREQ v1 nid 192.168.1.20@tcp");
    request("A2", V2, "fd00::20@tcp", "CONNREQ v2 nid fd00::20@tcp");
}

#[test]
fn the_acceptors_answer_is_the_golden_bytes() {
    assert_eq!(acceptor::ANSWER[..], fixture("A3"));
    assert!(acceptor::is_answer(&fixture("A3")));
    assert!(!acceptor::is_answer(&fixture("H4")));
}

#[test]
fn an_acceptor_answers_unknown_versions_and_the_generic_magic_alone() {
    let mut bytes = fixture("A1");
    bytes[4] = 99;
    let why = Request::need(&bytes[..8]).expect_err("version 99");
    assert_eq!(why, WireError::Version { what: "connection request", version: 99 });
    assert!(acceptor::wants_answer(&why));
    assert_eq!(Request::parse(&bytes), Err(why));
    for (magic, wanted) in [
        (*b"cirE", true),
        (*b"Eric", true),
        (0xDEAD_BEEF_u32.to_le_bytes(), false),
        (0xEEBC_0DED_u32.to_le_bytes(), false),
    ] {
        let why = Request::need(&magic).expect_err("a wrong magic");
        assert_eq!(acceptor::wants_answer(&why), wanted, "{why}");
        assert_eq!(Request::parse(&magic), Err(why));
    }
}

#[test]
fn a_big_endian_request_is_understood_and_made_again() {
    let mut bytes = fixture("A1");
    bytes[..4].reverse();
    bytes[4..8].reverse();
    bytes[8..].reverse();
    let (req, _) = Request::parse(&bytes).expect("a request");
    assert_eq!(req, Request { order: ByteOrder::Big, ..Request::to(nid("192.168.1.20@tcp")) });
    let mut out = [0; 16];
    assert_eq!(req.emit(&mut out), Ok(16));
    assert_eq!(out[..], bytes);
    assert_eq!(req.to_string(), "CONNREQ v1 nid 192.168.1.20@tcp big-endian");
}

fn hello(name: &str, want: &Hello, text: &str) {
    let bytes = fixture(name);
    let (got, used) = Hello::parse(&bytes).expect(name);
    assert_eq!((&got, used), (want, bytes.len()));
    assert_eq!(got.to_string(), text);
    assert_eq!(follow_need(&bytes, Hello::need), bytes.len());
    let mut out = [0xEE; Hello::LEN_MAX];
    assert_eq!(got.emit(&mut out), Ok(bytes.len()));
    assert_eq!(out[..bytes.len()], bytes);
    for have in 0..bytes.len() {
        is_short(Hello::parse(&bytes[..have]), have);
        is_short(got.emit(&mut out[..have]), have);
    }
}

fn a_to_b() -> Hello {
    Hello {
        order: ByteOrder::Little,
        version: sock::Version::V3,
        src: nid("192.168.1.10@tcp"),
        dst: nid("192.168.1.20@tcp"),
        src_pid: Pid::LUSTRE,
        dst_pid: Pid(0),
        src_incarnation: 0x17d0_0000_0000_0001,
        dst_incarnation: 0,
        conn_type: ConnType::CONTROL,
        ips: smallvec::SmallVec::new(),
    }
}

fn b_to_a() -> Hello {
    let Hello { src, dst, .. } = a_to_b();
    Hello { src: dst, dst: src, src_incarnation: 0x17d0_0000_0000_0002, ..a_to_b() }
}

#[test]
fn hellos_are_the_golden_bytes() {
    use sock::Version::{V1, V2, V4};
    hello(
        "H1",
        &Hello { version: V1, dst: Nid::ANY, ..a_to_b() },
        "HELLO v1 CONTROL 192.168.1.10@tcp pid 12345 incarnation 0x17d0000000000001",
    );
    hello(
        "H2",
        &Hello { version: V2, ..a_to_b() },
        "HELLO v2 CONTROL 192.168.1.10@tcp → 192.168.1.20@tcp pid 12345 \
         incarnation 0x17d0000000000001",
    );
    hello(
        "H3",
        &Hello { conn_type: ConnType::BULK_IN, ..a_to_b() },
        "HELLO v3 BULK_IN 192.168.1.10@tcp → 192.168.1.20@tcp pid 12345 \
         incarnation 0x17d0000000000001",
    );
    hello(
        "H4",
        &Hello { conn_type: ConnType::BULK_OUT, ..b_to_a() },
        "HELLO v3 BULK_OUT 192.168.1.20@tcp → 192.168.1.10@tcp pid 12345 \
         incarnation 0x17d0000000000002",
    );
    hello(
        "H5",
        &Hello { conn_type: ConnType::NONE, ..b_to_a() },
        "HELLO v3 NONE 192.168.1.20@tcp → 192.168.1.10@tcp pid 12345 \
         incarnation 0x17d0000000000002",
    );
    hello(
        "H6",
        &Hello {
            version: V4,
            src: nid("fd00::10@tcp"),
            dst: nid("fd00::20@tcp"),
            conn_type: ConnType::BULK_OUT,
            ..a_to_b()
        },
        "HELLO v4 BULK_OUT fd00::10@tcp → fd00::20@tcp pid 12345 incarnation 0x17d0000000000001",
    );
}

fn frame(name: &str, want: FrameHdr, noop: Noop, text: &str) {
    let bytes = fixture(name);
    let got = FrameHdr::parse(ByteOrder::Little, &bytes).expect(name);
    assert_eq!(got, want);
    assert_eq!(got.kind, FrameType::Noop);
    assert_eq!(Noop::from_cookies(got.cookie0, got.cookie1), Ok(noop));
    assert_eq!(got.to_bytes(ByteOrder::Little)[..], bytes);
    assert_eq!(got.to_string(), text);
    for have in 0..FrameHdr::LEN {
        is_short(FrameHdr::parse(ByteOrder::Little, &bytes[..have]), have);
    }
}

#[test]
fn noops_are_the_golden_bytes() {
    for (name, noop, text) in [
        ("F1", Noop::Keepalive, "NOOP keepalive"),
        ("F2", Noop::One(7), "NOOP zc-ack 0x7"),
        ("F3", Noop::Two(9, 7), "NOOP zc-ack 0x9 and 0x7"),
        ("F4", Noop::Range(7, 10), "NOOP zc-ack 0x7 to 0xa"),
    ] {
        frame(name, FrameHdr::noop(noop), noop, text);
    }
}

#[test]
fn every_pair_of_cookies_has_the_meaning_of_the_table() {
    assert_eq!(Noop::from_cookies(0, 0), Ok(Noop::Nothing));
    assert_eq!(Noop::from_cookies(5, 0), Ok(Noop::Nothing));
    assert_eq!(Noop::from_cookies(1, 1), Ok(Noop::Keepalive));
    assert!(Noop::from_cookies(2, 1).is_err());
    assert_eq!(Noop::from_cookies(7, 7), Ok(Noop::Range(7, 7)));
    assert_eq!(Noop::from_cookies(1, 7), Ok(Noop::Range(1, 7)));
    assert_eq!(Noop::from_cookies(8, 7), Ok(Noop::Two(8, 7)));
}

#[test]
fn an_unknown_frame_type_is_refused() {
    let mut bytes = fixture("F1");
    bytes[0] = 0xC7;
    assert_eq!(
        FrameHdr::parse(ByteOrder::Little, &bytes),
        Err(WireError::Value { what: "socklnd frame", field: "type", value: 0xC7 })
    );
}

#[test]
fn the_sum_of_a_version_2_frame_covers_everything_in_any_pieces() {
    let bytes = fixture("F5");
    let hdr = FrameHdr::parse(ByteOrder::Little, &bytes).expect("a frame");
    assert_eq!(hdr.checksum, 0x436f_647b);
    for cut in FrameHdr::LEN..=bytes.len() {
        let mut sum = Checksum::of_frame(ByteOrder::Little, &hdr);
        sum.update(&bytes[FrameHdr::LEN..cut]);
        sum.update(&bytes[cut..]);
        assert_eq!(sum.value(), hdr.checksum);
    }
    assert_eq!(Checksum::new().value(), 0xFFFF_FFFF, "the sum of nothing");
}

const B_HANDLE: u64 = 0x17d0_0000_0000_10aa;

fn message(name: &str, form: HdrForm, cookies: (u64, u64), want: Hdr, shown: u32, text: &str) {
    let bytes = fixture(name);
    let frame = FrameHdr::parse(ByteOrder::Little, &bytes).expect(name);
    assert_eq!(
        frame,
        FrameHdr { checksum: frame.checksum, ..FrameHdr::lnet(cookies.0, cookies.1) }
    );
    assert_eq!(frame.to_bytes(ByteOrder::Little)[..], bytes[..FrameHdr::LEN]);
    let lnet = &bytes[FrameHdr::LEN..];
    let got = Hdr::parse(form, lnet).expect(name);
    assert_eq!(got, want);
    assert_eq!(got.to_string(), text);
    assert_eq!(lnet.len(), form.len() + shown as usize);
    let mut out = [0xEE; Hdr::LEN_MAX];
    assert_eq!(got.emit(form, &mut out), Ok(form.len()));
    assert_eq!(out[..form.len()], lnet[..form.len()]);
    for have in 0..form.len() {
        is_short(Hdr::parse(form, &lnet[..have]), have);
        is_short(got.emit(form, &mut out[..have]), have);
    }
}

fn hdr(src: &str, dst: &str, payload_len: u32, kind: Kind) -> Hdr {
    Hdr {
        src: nid(src),
        dst: nid(dst),
        src_pid: Pid::LUSTRE,
        dst_pid: Pid::LUSTRE,
        payload_len,
        kind,
    }
}

#[test]
fn lnet_messages_are_the_golden_bytes() {
    const A: &str = "192.168.1.10@tcp";
    const B: &str = "192.168.1.20@tcp";
    const A6: &str = "fd00::10@tcp";
    const B6: &str = "fd00::20@tcp";
    const PING: u64 = 1 << 63;
    let handle = |object| Handle { interface: B_HANDLE, object };
    let put = |ack, match_bits, hdr_data, portal| Kind::Put {
        ack,
        match_bits,
        hdr_data,
        portal,
        offset: 0,
    };
    let short = HdrForm::Short;
    message(
        "F5",
        short,
        (0, 0),
        hdr(A, B, 16, put(Handle::NONE, 12, 0, 51)),
        16,
        "PUT 192.168.1.10@tcp → 192.168.1.20@tcp pt 51 bits 0xc len 16",
    );
    message(
        "L1",
        short,
        (0, 0),
        hdr(A, B, 8, put(Handle::NONE, 0x1122_3344_5566_7788, 0xabcd, 12)),
        8,
        "PUT 192.168.1.10@tcp → 192.168.1.20@tcp pt 12 bits 0x1122334455667788 len 8",
    );
    message(
        "L2",
        short,
        (2, 0),
        hdr(A, B, 32768, put(handle(0x125), 0x40, 0, 52)),
        0,
        "PUT 192.168.1.10@tcp → 192.168.1.20@tcp pt 52 bits 0x40 len 32768 ack",
    );
    message(
        "L3",
        short,
        (0, 2),
        hdr(
            B,
            A,
            0,
            Kind::Ack { dst: handle(0x125), match_bits: 0x40, mlength: 32768, pad: [0; 12] },
        ),
        0,
        "ACK 192.168.1.20@tcp → 192.168.1.10@tcp bits 0x40 mlength 32768",
    );
    let get = |object, sink_len| Kind::Get {
        ret: handle(object),
        match_bits: PING,
        portal: 0,
        offset: 0,
        sink_len,
        pad: [0; 4],
    };
    message(
        "L4",
        short,
        (0, 0),
        hdr(A, B, 0, get(0x145, 272)),
        0,
        "GET 192.168.1.10@tcp → 192.168.1.20@tcp pt 0 bits 0x8000000000000000 sink 272",
    );
    message(
        "L5",
        short,
        (0, 0),
        hdr(B, A, 64, Kind::Reply { dst: handle(0x145), pad: [0; 24] }),
        64,
        "REPLY 192.168.1.20@tcp → 192.168.1.10@tcp len 64",
    );
    message(
        "L6",
        short,
        (0, 0),
        hdr(A, B, 48, put(handle(0x165), PING, 0, 0)),
        48,
        "PUT 192.168.1.10@tcp → 192.168.1.20@tcp pt 0 bits 0x8000000000000000 len 48 ack",
    );
    message(
        "L7",
        short,
        (0, 0),
        hdr(B, A, 0, Kind::Ack { dst: handle(0x165), match_bits: PING, mlength: 48, pad: [0; 12] }),
        0,
        "ACK 192.168.1.20@tcp → 192.168.1.10@tcp bits 0x8000000000000000 mlength 48",
    );
    message(
        "L8",
        HdrForm::Long,
        (0, 0),
        hdr(A6, B6, 4, put(Handle::NONE, 11, 0, 50)),
        4,
        "PUT fd00::10@tcp → fd00::20@tcp pt 50 bits 0xb len 4",
    );
    message(
        "L9",
        HdrForm::Long,
        (0, 0),
        hdr(A6, B6, 0, get(0x185, 3960)),
        0,
        "GET fd00::10@tcp → fd00::20@tcp pt 0 bits 0x8000000000000000 sink 3960",
    );
}

fn ping_info(bytes: &[u8], want: &PingInfo, text: &str) {
    let got = PingInfo::parse(bytes).expect("ping info");
    assert_eq!((&got.info, got.order, got.size), (want, ByteOrder::Little, bytes.len()));
    assert_eq!(got.truncated(), None);
    assert_eq!(got.to_string(), text);
    assert_eq!(want.size(), bytes.len());
    assert_eq!(want.emit(), bytes);
    let mut longer = bytes.to_vec();
    longer.extend([0xEE; 44]);
    assert_eq!(PingInfo::parse(&longer), Ok(got), "what follows an info is ignored");
    let big = PingInfo::parse(&want.emit_in(ByteOrder::Big)).expect("big-endian ping info");
    assert_eq!((&big.info, big.order, big.size), (want, ByteOrder::Big, bytes.len()));
    for have in 0..32 {
        is_short(PingInfo::parse(&bytes[..have]), have);
    }
    for have in 32..bytes.len() {
        let part = PingInfo::parse(&bytes[..have]).expect("the beginning of an info");
        assert_eq!(part.truncated(), Some(bytes.len()));
        assert_eq!(part.info.seq, want.seq);
        assert!(part.info.entries.iter().all(|e| want.entries.contains(e)), "{part}");
    }
}

#[test]
fn ping_infos_are_the_golden_bytes() {
    let ordinary =
        Features::NI_STATUS | Features::RTE_DISABLED | Features::MULTI_RAIL | Features::DISCOVERY;
    let up = |text| PingEntry { nid: nid(text), status: NiStatus::UP };
    ping_info(
        &fixture("L5")[96..],
        &PingInfo {
            features: ordinary,
            pid: Pid::LUSTRE,
            seq: 3,
            entries: vec![up("192.168.1.20@tcp"), up("10.10.0.2@o2ib")],
        },
        "ping info seq 3 pid 12345 NI_STATUS|RTE_DISABLED|MULTI_RAIL|DISCOVERY \
         192.168.1.20@tcp up 10.10.0.2@o2ib up",
    );
    ping_info(
        &fixture("L6")[96..],
        &PingInfo {
            features: ordinary,
            pid: Pid::LUSTRE,
            seq: 5,
            entries: vec![up("192.168.1.10@tcp")],
        },
        "ping info seq 5 pid 12345 NI_STATUS|RTE_DISABLED|MULTI_RAIL|DISCOVERY \
         192.168.1.10@tcp up",
    );
    ping_info(
        &fixture("P1"),
        &PingInfo {
            features: ordinary | Features::LARGE_ADDR | Features::PRIMARY_LARGE,
            pid: Pid::LUSTRE,
            seq: 4,
            entries: vec![up("fd00::20@tcp"), up("192.168.1.20@tcp")],
        },
        "ping info seq 4 pid 12345 \
         NI_STATUS|RTE_DISABLED|MULTI_RAIL|DISCOVERY|LARGE_ADDR|PRIMARY_LARGE \
         fd00::20@tcp up 192.168.1.20@tcp up",
    );
}

#[test]
fn an_invalid_ping_info_is_refused_and_says_why() {
    let good = fixture("P1");
    let with = |at: usize, bytes: &[u8]| {
        let mut b = good.clone();
        b[at..at + bytes.len()].copy_from_slice(bytes);
        PingInfo::parse(&b).expect_err("an invalid info").to_string()
    };
    assert_eq!(
        with(0, b"GNIP"),
        "ping info: magic 0x50494e47 (read as little-endian) is not known"
    );
    assert_eq!(with(0, b"ping"), "ping info: features is 0x7e000000", "all of it is swapped");
    assert_eq!(with(4, &[0x1c, 0, 0, 0]), "ping info: features is 0x1c", "no NI_STATUS");
    assert_eq!(with(12, &[0; 4]), "ping info: nnis is 0x0");
    assert_eq!(with(12, &[1, 16, 0, 0]), "ping info: nnis is 4097, at most 4096 allowed");
    assert_eq!(with(22, &[2]), "ping info: ni[0].nid is 0x2000000000000", "not 0@lo");
    assert_eq!(with(28, &[0xff; 4]), "ping info: msg_size is 4294967292, at most 163856 allowed");
    assert_eq!(
        PingInfo::parse_limited(&good, 1).expect_err("one entry allowed").to_string(),
        "ping info: nnis is 2, at most 1 allowed"
    );
}

#[test]
fn large_entries_that_are_no_nids_are_skipped_and_the_walk_ends_at_the_size() {
    let good = fixture("P1");
    let fd00 = &good[48..72];
    let info = |large: &[&[u8]]| {
        let mut b = good[..48].to_vec();
        large.iter().for_each(|entry| b.extend_from_slice(entry));
        b[28] = b.len() as u8;
        PingInfo::parse(&b).expect("ping info").info.entries
    };
    let nids = |large: &[&[u8]]| info(large).iter().map(|e| e.nid.to_string()).collect::<Vec<_>>();
    let both = ["fd00::20@tcp", "192.168.1.20@tcp"];
    let mut long = [0u8; 28];
    long[4] = 16;
    assert_eq!(nids(&[&long, fd00]), both, "a NID of 24 bytes");
    let mut odd = [0u8; 20];
    odd[4] = 5;
    assert_eq!(nids(&[&odd, fd00]), both, "a NID of 13 bytes, padded to 16");
    let mut short = [0u8; 12];
    short[4..12].copy_from_slice(&[0, 2, 0, 0, 10, 0, 0, 7]);
    assert_eq!(nids(&[fd00, &short])[2], "10.0.0.7@tcp", "a 4-byte address among the large ones");
    assert_eq!(nids(&[&fd00[..20]]), both[1..], "an entry that crosses the end");
    assert_eq!(nids(&[&fd00[..4]]), both[1..], "fewer than 8 bytes");
}
