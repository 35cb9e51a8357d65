//! Over all values: what is emitted parses to itself and leaves the rest alone; `need` agrees with
//! `parse`; every shorter prefix is short. What holds over all bytes is in `testing/fuzz-replay`.

use lnet_types::{Net, NetType, Nid, Pid};
use lnet_wire::acceptor::{self, Request};
use lnet_wire::ping::Features;
use lnet_wire::sock::{Checksum, ConnType, FrameHdr, FrameType, Hello, IPS_MAX, Noop, Version};
use lnet_wire::{
    ByteOrder, Handle, Hdr, HdrForm, Kind, Need, NiStatus, PingEntry, PingInfo, WireError,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

fn small_nid() -> impl Strategy<Value = Nid> {
    prop_oneof![
        20 => any::<(u8, u16, u32)>()
            .prop_map(|(kind, num, addr)| Nid::new(Net::new(NetType(kind), num), addr)),
        1 => Just(Nid::ANY),
        1 => Just(Nid::LOOPBACK),
    ]
}

fn large_nid() -> impl Strategy<Value = Nid> {
    (prop_oneof![Just(NetType::TCP), Just(NetType::O2IB), Just(NetType::EFA)], any::<(u16, u128)>())
        .prop_map(|(kind, (num, ip))| {
            Nid::from_ip(Net::new(kind, num), std::net::Ipv6Addr::from(ip).into())
        })
}

fn nid() -> impl Strategy<Value = Nid> {
    prop_oneof![small_nid(), large_nid()]
}

fn request() -> impl Strategy<Value = Request> {
    let v1 = (order(), small_nid()).prop_map(|(order, nid)| Request {
        order,
        version: acceptor::Version::V1,
        nid,
    });
    let v2 = (order(), nid()).prop_map(|(order, nid)| Request {
        order,
        version: acceptor::Version::V2,
        nid,
    });
    prop_oneof![v1, v2]
}

fn conn_type() -> impl Strategy<Value = ConnType> {
    prop_oneof![0..5u32, Just(u32::MAX), any::<u32>()].prop_map(ConnType)
}

fn hello() -> impl Strategy<Value = Hello> {
    let version =
        prop_oneof![Just(Version::V1), Just(Version::V2), Just(Version::V3), Just(Version::V4)];
    let ips = vec((1..=u32::MAX).prop_map(std::net::Ipv4Addr::from), 0..=IPS_MAX);
    (version, order(), nid(), nid(), any::<(u32, u32, u64, u64)>(), conn_type(), ips).prop_map(
        |(version, order, src, dst, (src_pid, dst_pid, src_inc, dst_inc), conn_type, ips)| {
            // What a version cannot say is left out.
            let short = |nid: Nid| {
                if version != Version::V4 && nid.is_large() { Nid::LOOPBACK } else { nid }
            };
            let v1 = version == Version::V1;
            Hello {
                order: if v1 { ByteOrder::Little } else { order },
                version,
                src: short(src),
                dst: if v1 { Nid::ANY } else { short(dst) },
                src_pid: Pid(src_pid),
                dst_pid: Pid(dst_pid),
                src_incarnation: src_inc,
                dst_incarnation: if v1 { 0 } else { dst_inc },
                conn_type,
                ips: if version == Version::V4 { Vec::new() } else { ips }.into(),
            }
        },
    )
}

fn frame() -> impl Strategy<Value = FrameHdr> {
    (any::<bool>(), any::<u32>(), cookie(), cookie()).prop_map(
        |(noop, checksum, cookie0, cookie1)| FrameHdr {
            kind: if noop { FrameType::Noop } else { FrameType::Lnet },
            checksum,
            cookie0,
            cookie1,
        },
    )
}

fn cookie() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, any::<u64>()]
}

fn kind() -> impl Strategy<Value = Kind> {
    let handle =
        || any::<(u64, u64)>().prop_map(|(interface, object)| Handle { interface, object });
    let n = any::<u32>;
    prop_oneof![
        (handle(), any::<u64>(), n(), any::<[u8; 12]>()).prop_map(
            |(dst, match_bits, mlength, pad)| Kind::Ack { dst, match_bits, mlength, pad }
        ),
        (prop_oneof![handle(), Just(Handle::NONE)], any::<(u64, u64)>(), n(), n()).prop_map(
            |(ack, (match_bits, hdr_data), portal, offset)| Kind::Put {
                ack,
                match_bits,
                hdr_data,
                portal,
                offset
            }
        ),
        (handle(), any::<u64>(), n(), n(), n(), any::<[u8; 4]>()).prop_map(
            |(ret, match_bits, portal, offset, sink_len, pad)| Kind::Get {
                ret,
                match_bits,
                portal,
                offset,
                sink_len,
                pad
            }
        ),
        (handle(), any::<[u8; 24]>()).prop_map(|(dst, pad)| Kind::Reply { dst, pad }),
    ]
}

fn hdr() -> impl Strategy<Value = (HdrForm, Hdr)> {
    let fields = || (any::<(u32, u32, u32)>(), kind());
    let make = |src, dst, ((src_pid, dst_pid, payload_len), kind)| Hdr {
        src,
        dst,
        src_pid: Pid(src_pid),
        dst_pid: Pid(dst_pid),
        payload_len,
        kind,
    };
    prop_oneof![
        (small_nid(), small_nid(), fields())
            .prop_map(move |(src, dst, f)| (HdrForm::Short, make(src, dst, f))),
        (nid(), nid(), fields()).prop_map(move |(src, dst, f)| (HdrForm::Long, make(src, dst, f))),
    ]
}

/// Infos whose entries are in the order that survives the wire.
fn ping_info() -> impl Strategy<Value = PingInfo> {
    let entry = |nid, status| PingEntry { nid, status: NiStatus(status) };
    let small = vec((small_nid(), any::<u32>()).prop_map(move |(n, s)| entry(n, s)), 0..20);
    let large = vec((large_nid(), any::<u32>()).prop_map(move |(n, s)| entry(n, s)), 0..20);
    (any::<(u32, u32, u32)>(), any::<bool>(), small, large).prop_map(
        |((features, pid, seq), primary_large, mut entries, large)| {
            let mut large = large.into_iter();
            if primary_large && let Some(primary) = large.next() {
                entries.insert(0, primary);
            }
            entries.extend(large);
            let features = Features::from_bits_retain(features) | Features::NI_STATUS;
            let mut info = PingInfo { features, pid: Pid(pid), seq, entries };
            info.features = info.wire_features();
            info
        },
    )
}

fn is_short<T>(got: Result<T, WireError>) -> bool {
    matches!(got, Err(WireError::Short { .. }))
}

/// The checks that every message with a `need` shares.
fn round_trip<T: PartialEq + std::fmt::Debug>(
    value: &T,
    bytes: &[u8],
    need: impl Fn(&[u8]) -> Result<Need, WireError>,
    parse: impl Fn(&[u8]) -> Result<(T, usize), WireError>,
) -> Result<(), TestCaseError> {
    for have in 0..bytes.len() {
        prop_assert!(is_short(parse(&bytes[..have])));
        match need(&bytes[..have]) {
            Ok(Need::AtLeast(n)) => prop_assert!(have < n && n <= bytes.len()),
            other => prop_assert_eq!(other, Ok(Need::Exactly(bytes.len()))),
        }
    }
    let mut longer = bytes.to_vec();
    longer.extend([0xEE; 3]);
    prop_assert_eq!(need(&longer), Ok(Need::Exactly(bytes.len())));
    let (got, used) = parse(&longer).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!((&got, used), (value, bytes.len()));
    Ok(())
}

proptest! {
    #[test]
    fn connection_requests_survive_the_wire(value in request()) {
        let mut out = [0xEE; Request::LEN_MAX];
        let n = value.emit(&mut out).expect("room");
        round_trip(&value, &out[..n], Request::need, Request::parse)?;
    }

    #[test]
    fn hellos_survive_the_wire(value in hello()) {
        let mut out = [0xEE; Hello::LEN_MAX];
        let n = value.emit(&mut out).expect("room");
        round_trip(&value, &out[..n], Hello::need, Hello::parse)?;
    }

    #[test]
    fn frame_headers_survive_the_wire(value in frame(), order in order()) {
        prop_assert_eq!(FrameHdr::parse(order, &value.to_bytes(order)), Ok(value));
        if let Ok(noop) = Noop::from_cookies(value.cookie0, value.cookie1) {
            let (c0, c1) = noop.cookies();
            prop_assert_eq!(Noop::from_cookies(c0, c1), Ok(noop));
        } else {
            prop_assert!(value.cookie1 == 1 && value.cookie0 > 1);
        }
    }

    #[test]
    fn lnet_headers_survive_the_wire((form, value) in hdr()) {
        let mut out = [0xEE; Hdr::LEN_MAX];
        prop_assert_eq!(value.emit(form, &mut out), Ok(form.len()));
        prop_assert_eq!(Hdr::parse(form, &out), Ok(value));
        for have in 0..form.len() {
            prop_assert!(is_short(Hdr::parse(form, &out[..have])));
        }
    }

    #[test]
    fn ping_infos_survive_the_wire(value in ping_info(), order in order()) {
        let bytes = value.emit_in(order);
        prop_assert_eq!(bytes.len(), value.size());
        let got = PingInfo::parse(&bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!((&got.info, got.order, got.truncated()), (&value, order, None));
        let half = bytes.len() / 2;
        if half >= 32 {
            let part = PingInfo::parse(&bytes[..half]).expect("the beginning of an info");
            prop_assert_eq!(part.truncated(), Some(bytes.len()));
        }
    }

    #[test]
    fn checksums_do_not_depend_on_where_the_bytes_are_cut(
        bytes in vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>(),
    ) {
        let mut bitwise = u32::MAX;
        for byte in &bytes {
            bitwise ^= u32::from(*byte);
            for _ in 0..8 {
                bitwise = (bitwise >> 1) ^ if bitwise & 1 == 1 { 0xEDB8_8320 } else { 0 };
            }
        }
        let (front, back) = bytes.split_at(cut.index(bytes.len() + 1));
        let mut sum = Checksum::new();
        sum.update(front);
        sum.update(back);
        prop_assert_eq!(sum.value(), bitwise);
    }
}
