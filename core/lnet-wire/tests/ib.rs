//! Messages of the RDMA driver: the golden bytes both ways, every value both ways, every prefix of
//! a message refused, and each check of wire.md 7.7 by the one field that breaks it.

mod support;

use lnet_pcap::roce::{self, CmKind, Happened, Operation};
use lnet_types::{Net, NetType, Nid, Pid};
use lnet_wire::ib::{
    Body, ConnParams, Done, Frag, MSG_MAX, Msg, MsgHead, RdmaDesc, Reject, RejectReason, Sign,
    Type, Version, checksum, peek_version,
};
use lnet_wire::{ByteOrder, Handle, Hdr, Kind, WireError};
use proptest::collection::vec;
use proptest::prelude::*;
use support::fixture;

fn nid(text: &str) -> Nid {
    text.parse().expect("a NID")
}

const HANDLE: u64 = 0x17d0_0000_0000_10aa;

/// The header of the vectors: from .1 to .2, or back.
fn head(back: bool, credits: u8) -> MsgHead {
    let (a, b) = (
        (nid("10.10.0.1@o2ib"), 0x0006_0f00_0000_0001),
        (nid("10.10.0.2@o2ib"), 0x0006_0f00_0000_0002),
    );
    let (src, dst) = if back { (b, a) } else { (a, b) };
    MsgHead {
        order: ByteOrder::Little,
        version: Version::V12,
        credits,
        src: src.0,
        src_stamp: src.1,
        dst: dst.0,
        dst_stamp: dst.1,
    }
}

fn lnet(payload_len: u32, kind: Kind) -> Hdr {
    Hdr {
        dst: nid("10.10.0.2@o2ib"),
        src: nid("10.10.0.1@o2ib"),
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len,
        kind,
    }
}

fn get(object: u64, match_bits: u64, portal: u32, sink_len: u32) -> Hdr {
    let ret = Handle { interface: HANDLE, object };
    lnet(0, Kind::Get { ret, match_bits, portal, offset: 0, sink_len, pad: [0; 4] })
}

fn rd(key: u32, frags: &[(u32, u64)]) -> RdmaDesc {
    RdmaDesc { key, frags: frags.iter().map(|&(nob, addr)| Frag { addr, nob }).collect() }
}

/// The vectors and the values that their tables name.
fn golden() -> Vec<(&'static str, MsgHead, Body)> {
    let params = ConnParams { queue_depth: 8, max_frags: 257, max_msg_size: 4096 };
    let put = Kind::Put {
        ack: Handle { interface: HANDLE, object: 0x1c5 },
        match_bits: 0x77,
        hdr_data: 0,
        portal: 8,
        offset: 0,
    };
    let sink = rd(0x1900_aa02, &[(4096, 0x7f00_5555_0000), (1_044_480, 0x7f00_5556_0000)]);
    vec![
        ("O1", MsgHead { dst_stamp: 0, ..head(false, 0) }, Body::ConnReq(params)),
        ("O2", head(true, 0), Body::ConnAck(params)),
        ("O3", head(false, 7), Body::Noop),
        ("O4", head(false, 1), Body::Immediate(get(0x1a5, 1 << 63, 0, 272))),
        ("O5", head(false, 0), Body::PutReq { hdr: lnet(65536, put), cookie: 0x101 }),
        (
            "O6",
            head(true, 1),
            Body::PutAck {
                src_cookie: 0x101,
                dst_cookie: 0x202,
                rd: rd(0x1900_aa01, &[(65536, 0x7f00_1234_0000)]),
            },
        ),
        ("O7", head(false, 0), Body::PutDone(Done { cookie: 0x202, status: 65536 })),
        ("O8", head(true, 1), Body::PutNak(Done { cookie: 0x101, status: 0 })),
        (
            "O9",
            head(false, 0),
            Body::GetReq { hdr: get(0x1e5, 0x78, 8, 1 << 20), cookie: 0x303, rd: sink },
        ),
        ("O10", head(true, 1), Body::GetDone(Done { cookie: 0x303, status: -61 })),
    ]
}

/// The message without its checksum.
fn unsummed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[12..16].fill(0);
    bytes
}

#[test]
fn messages_are_the_golden_bytes() {
    for (name, head, body) in golden() {
        let bytes = fixture(name);
        let msg = Msg { head, body };
        assert_eq!(Msg::parse(&bytes), Ok((msg.clone(), bytes.len())), "{name}");
        let mut out = [0xEE; MSG_MAX];
        assert_eq!(msg.emit(0, &mut out), Ok(bytes.len()), "{name}");
        assert_eq!(out[..bytes.len()], unsummed(bytes.clone()), "{name}");
        for have in 0..bytes.len() {
            let got = Msg::parse(&bytes[..have]);
            assert!(matches!(got, Err(WireError::Short { .. })), "{name} {have}: {got:?}");
            assert!(msg.emit(0, &mut out[..have]).is_err(), "{name} {have}");
        }
        // What is behind a message in a receive buffer is not looked at.
        let padded = [&bytes[..], &[0xEE; 100]].concat();
        assert_eq!(Msg::parse(&padded), Ok((msg, bytes.len())), "{name}");
    }
}

#[test]
fn a_refusal_is_the_golden_bytes() {
    let bytes = fixture("O11");
    let reject = Reject {
        queue_depth: 8,
        max_frags: 257,
        ..Reject::new(RejectReason::MSG_QUEUE_SIZE, 0x12, 0x0006_0f00_0000_0002)
    };
    assert_eq!(Reject::parse(&bytes), Ok(reject));
    assert_eq!(reject.to_bytes()[..], bytes);
    for have in 0..bytes.len() {
        assert!(matches!(Reject::parse(&bytes[..have]), Err(WireError::Short { .. })), "{have}");
    }
    let big = Reject { order: ByteOrder::Big, ..reject };
    assert_eq!(Reject::parse(&big.to_bytes()), Ok(big));
}

#[test]
fn both_sums_of_a_message_are_accepted_and_any_other_is_not() {
    let mut bytes = fixture("O3");
    assert_eq!(checksum(Sign::Unsigned, &bytes), 0x6b3a_4a4a);
    assert_eq!(checksum(Sign::Signed, &bytes), 0x6a98_ca4a);
    assert_eq!(checksum(Sign::Unsigned, &[]), 1, "0 would mean that there is none");
    for (sum, good) in
        [(0x6b3a_4a4a_u32, true), (0x6a98_ca4a, true), (0, true), (0x6b3a_4a4b, false)]
    {
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Msg::parse(&bytes).is_ok(), good, "{sum:#x}");
    }
}

/// A vector with `bytes` at `at`.
fn with(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = fixture(name);
    all[at..at + bytes.len()].copy_from_slice(bytes);
    all
}

#[test]
fn each_check_is_made() {
    let what = "o2iblnd message";
    let value = |field, value| WireError::Value { what, field, value };
    let limit = |field, value, max| WireError::Limit { what, field, value, max };
    let table = [
        (with("O3", 0, &[0]), WireError::Magic { what, magic: 0x0be9_1b00 }),
        (with("O3", 4, &[0x13]), WireError::Version { what, version: 0x13 }),
        (with("O3", 6, &[0xC2]), value("type", 0xC2)),
        (with("O3", 8, &[47]), value("nob", 47)),
        (with("O3", 8, &[49]), WireError::Short { what, need: 49, have: 48 }),
        (with("O3", 8, &[1, 16]), limit("nob", 4097, 4096)),
        (with("O3", 16, &[0xff; 8]), value("src_nid", u64::MAX)),
        (with("O4", 8, &[119]), value("nob", 119)),
        (with("O5", 8, &[127]), value("nob", 127)),
        (with("O6", 8, &[83]), value("nob", 83)),
        (with("O6", 68, &[2]), value("nob", 84)),
        (with("O6", 68, &[0]), value("fragments", 0)),
        (with("O6", 68, &[2, 1]), limit("fragments", 258, 257)),
        (with("O7", 8, &[59]), value("nob", 59)),
        (with("O9", 132, &[0xff; 4]), limit("fragments", u32::MAX.into(), 257)),
        (with("O1", 8, &[55]), value("nob", 55)),
    ];
    for (bytes, error) in table {
        assert_eq!(Msg::parse(&unsummed(bytes)), Err(error));
    }
    let header = with("O4", 72, &[9]);
    assert!(matches!(Msg::parse(&header), Err(WireError::Value { what: "LNet header", .. })));
}

#[test]
fn the_version_of_a_request_is_read_from_six_bytes() {
    assert_eq!(peek_version(&fixture("O1")[..6]), Ok((ByteOrder::Little, 0x12)));
    assert_eq!(peek_version(&[0x0b, 0xe9, 0x1b, 0x91, 0, 0x99]), Ok((ByteOrder::Big, 0x99)));
    assert!(peek_version(&fixture("O1")[..5]).is_err());
    assert!(peek_version(&[0; 48]).is_err());
}

fn short_nid() -> impl Strategy<Value = Nid> {
    any::<(u16, u32)>().prop_map(|(num, addr)| Nid::new(Net::new(NetType::O2IB, num), addr))
}

fn hdr() -> impl Strategy<Value = Hdr> {
    (short_nid(), short_nid(), any::<u32>(), any::<(u64, u64)>()).prop_map(
        |(src, dst, payload_len, (interface, object))| Hdr {
            payload_len,
            ..{
                let mut hdr =
                    lnet(0, Kind::Reply { dst: Handle { interface, object }, pad: [0; 24] });
                (hdr.src, hdr.dst) = (src, dst);
                hdr
            }
        },
    )
}

fn desc() -> impl Strategy<Value = RdmaDesc> {
    (any::<u32>(), vec(any::<(u32, u64)>(), 1..300)).prop_map(|(key, mut frags)| {
        frags.truncate(257);
        rd(key, &frags)
    })
}

fn body() -> impl Strategy<Value = Body> {
    let params = any::<(u16, u16, u32)>().prop_map(|(queue_depth, max_frags, max_msg_size)| {
        ConnParams { queue_depth, max_frags, max_msg_size }
    });
    let done = any::<(u64, i32)>().prop_map(|(cookie, status)| Done { cookie, status });
    prop_oneof![
        params.clone().prop_map(Body::ConnReq),
        params.prop_map(Body::ConnAck),
        Just(Body::Noop),
        hdr().prop_map(Body::Immediate),
        (hdr(), any::<u64>()).prop_map(|(hdr, cookie)| Body::PutReq { hdr, cookie }),
        done.clone().prop_map(Body::PutNak),
        (any::<u64>(), any::<u64>(), desc())
            .prop_map(|(src_cookie, dst_cookie, rd)| Body::PutAck { src_cookie, dst_cookie, rd }),
        done.clone().prop_map(Body::PutDone),
        (hdr(), any::<u64>(), desc()).prop_map(|(hdr, cookie, rd)| Body::GetReq {
            hdr,
            cookie,
            rd
        }),
        done.prop_map(Body::GetDone),
    ]
}

fn msg() -> impl Strategy<Value = Msg> {
    let order = prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)];
    let version = prop_oneof![Just(Version::V11), Just(Version::V12)];
    (order, version, any::<u8>(), short_nid(), short_nid(), any::<(u64, u64)>(), body()).prop_map(
        |(order, version, credits, src, dst, (src_stamp, dst_stamp), body)| Msg {
            head: MsgHead { order, version, credits, src, src_stamp, dst, dst_stamp },
            body,
        },
    )
}

proptest! {
    #[test]
    fn every_message_is_read_as_it_is_written(msg in msg(), payload in 0..200_usize) {
        let mut out = [0xEE; MSG_MAX];
        let payload = if msg.body.kind() == Type::Immediate { payload } else { 0 };
        let len = msg.emit(payload, &mut out).expect("it fits");
        prop_assert_eq!(len, msg.len());
        prop_assert_eq!(Msg::parse(&out), Ok((msg.clone(), len + payload)));
        for have in 0..len + payload {
            let got = Msg::parse(&out[..have]);
            prop_assert!(matches!(got, Err(WireError::Short { .. })), "{} {:?}", have, got);
        }
        prop_assert!(msg.emit(MSG_MAX, &mut out).is_err());
        for sign in [Sign::Unsigned, Sign::Signed] {
            let sum = checksum(sign, &out[..len + payload]);
            let field = match msg.head.order {
                ByteOrder::Little => sum.to_le_bytes(),
                ByteOrder::Big => sum.to_be_bytes(),
            };
            out[12..16].copy_from_slice(&field);
            prop_assert_eq!(Msg::parse(&out), Ok((msg.clone(), len + payload)));
        }
        let _ = msg.to_string();
    }

    #[test]
    fn any_bytes_give_a_message_or_an_error(bytes in vec(any::<u8>(), 0..400), kind in 0..10_usize, big in any::<bool>()) {
        let mut bytes = bytes;
        let _ = (Msg::parse(&bytes), Reject::parse(&bytes));
        if bytes.len() >= 12 {
            bytes[..8].copy_from_slice(&[0x91, 0x1b, 0xe9, 0x0b, 0x12, 0, Type::ALL[kind] as u8, 3]);
            bytes[8..12].copy_from_slice(&60_u32.to_le_bytes());
            if big {
                bytes[..4].reverse();
                bytes[4..6].reverse();
                bytes[8..12].reverse();
            }
            let _ = Msg::parse(&bytes);
        }
    }
}

/// The operations of a recording over soft-RoCE.
fn recorded(name: &str) -> Vec<Happened> {
    let path = format!("{}/../../fixtures/o2ib/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    roce::operations(&file).expect("a capture")
}

/// A line for each operation; each message is read and written again on the way.
fn table(name: &str) -> Vec<String> {
    let lines = recorded(name).into_iter().map(|happened| {
        let again = |bytes: &[u8]| {
            let (msg, nob) =
                Msg::parse(bytes).unwrap_or_else(|e| panic!("{}: {e}", happened.frame));
            let payload = nob - msg.len();
            let mut out = bytes.to_vec();
            assert_eq!(msg.emit(payload, &mut out), Ok(msg.len()));
            assert_eq!(out, bytes, "frame {}", happened.frame);
            (msg.to_string(), nob)
        };
        let text = match &happened.operation {
            Operation::Cm { kind: CmKind::Request, service, private, .. } => {
                assert_eq!(
                    *service,
                    Some(0x0106_0000 | u64::from(NetType::O2IB_SERVICE)),
                    "service 987"
                );
                // The connection manager's own header of IP addresses comes first.
                format!("request {}", again(&private[36..]).0)
            }
            Operation::Cm { kind: CmKind::Reply, private, .. } => {
                format!("reply   {}", again(private).0)
            }
            Operation::Cm { kind, .. } => format!("{kind:?}"),
            Operation::Send { bytes, immediate } => {
                let (text, nob) = again(bytes);
                assert_eq!((nob, *immediate), (bytes.len(), None), "frame {}", happened.frame);
                format!("send    {text}")
            }
            Operation::Write { addr, key, bytes, immediate: None } => {
                format!("write   {} bytes to {addr:#x} key {key:#x}", bytes.len())
            }
            Operation::Write { .. } => panic!("no immediate data in this protocol"),
        };
        format!("{:>4} {} {text}", happened.frame, happened.src)
    });
    lines.collect()
}

#[test]
fn every_message_of_the_recordings_is_read_and_written_again() {
    let mut kinds = std::collections::BTreeMap::new();
    for name in ["o2ib-rxe-ping-discovery", "o2ib-rxe-selftest"] {
        let lines = table(name);
        println!("{name}\n  {}", lines.join("\n  "));
        for line in lines {
            let words: Vec<_> = line.split_whitespace().skip(2).take(2).collect();
            let word = if words[0] == "write" { "write" } else { words.last().expect("a word") };
            *kinds.entry(word.to_owned()).or_insert(0) += 1;
        }
    }
    let expected = [
        ("CONNACK", 2),
        ("CONNREQ", 2),
        ("GET_DONE", 2),
        ("GET_REQ", 2),
        ("IMMEDIATE", 32),
        ("NOOP", 1),
        ("PUT_ACK", 1),
        ("PUT_DONE", 1),
        ("PUT_REQ", 1),
        ("Ready", 2),
        ("write", 3),
    ];
    assert_eq!(kinds.iter().map(|(k, n)| (k.as_str(), *n)).collect::<Vec<_>>(), expected);
}
