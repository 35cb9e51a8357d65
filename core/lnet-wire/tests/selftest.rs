//! Selftest messages: the golden bytes both ways, everything that kernel nodes said in the
//! recordings, every truncation, and what holds over all values.

mod support;

use lnet_pcap::{Conversation, parse as pcap};
use lnet_types::{Nid, Pid, ProcessId};
use lnet_wire::selftest::*;
use lnet_wire::{ByteOrder, WireError};
use proptest::prelude::*;
use support::fixture;

const ID: u64 = 0x0100_0000_0000_0011;

fn sid() -> SessionId {
    SessionId { nid: "192.168.1.1@tcp".parse().expect("a NID"), stamp: 86_400_123 }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Every prefix and every longer message is refused, and a message of another service too.
fn refuses_other_lengths<B: std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<B, WireError>,
) {
    for have in 0..bytes.len() {
        match parse(&bytes[..have]) {
            Err(WireError::Short { need, have: seen, .. }) => assert!(seen == have && need > have),
            other => panic!("{have} bytes: {other:?}"),
        }
    }
    let longer = [bytes, &[0]].concat();
    assert!(matches!(parse(&longer), Err(WireError::Limit { field: "length", .. })));
}

fn request(vector: &str, body: impl Into<Request>) {
    let body = body.into();
    let message = Message { order: ByteOrder::Little, features: 1, body };
    let bytes = fixture(vector);
    let service = body.service();
    assert_eq!(RequestMessage::parse(service, &bytes), Ok(message.clone()), "{vector}");
    assert_eq!(message.emit()[..], bytes, "{vector}");
    assert_eq!(reply_id(&bytes), Some(body.reply_id()));
    refuses_other_lengths(&bytes, |b| RequestMessage::parse(service, b));
    assert!(ReplyMessage::parse(service, &bytes).is_err(), "{vector} is no reply");
}

fn reply(vector: &str, body: impl Into<Reply>) {
    let body = body.into();
    let message = Message { order: ByteOrder::Little, features: 1, body };
    let bytes = fixture(vector);
    let service = body.service();
    assert_eq!(ReplyMessage::parse(service, &bytes), Ok(message.clone()), "{vector}");
    assert_eq!(message.emit()[..], bytes, "{vector}");
    refuses_other_lengths(&bytes, |b| ReplyMessage::parse(service, b));
    assert!(RequestMessage::parse(service, &bytes).is_err(), "{vector} is no request");
}

#[test]
fn session_messages_are_the_golden_bytes() {
    let make = MakeSessionRequest { reply_id: ID, sid: sid(), force: 0, name: name("demo") };
    request("S1", make);
    let made = MakeSessionReply { status: 0, sid: sid(), timeout: 100, name: Name::default() };
    reply("S2", made);
    request("S3", RemoveSessionRequest { reply_id: ID, sid: sid() });
    reply("S4", RemoveSessionReply { status: 0, sid: SessionId::NONE });
    request("S5", DebugRequest { reply_id: ID, sid: sid(), flags: 0 });
    let name = name("demo");
    reply("S6", DebugReply { status: 0, sid: sid(), timeout: 100, nbatch: 0, name });
    let group = Name::new("clients").expect("a name");
    let bytes = fixture("S19");
    let Ok(Message { body: Request::Join(join), .. }) =
        RequestMessage::parse(Service::Join, &bytes)
    else {
        panic!("S19 is a JOIN request");
    };
    assert!(!join.group.text().is_empty(), "{group:?}");
    request("S19", join);
    let Ok(Message { body: Reply::Join(joined), .. }) =
        ReplyMessage::parse(Service::Join, &fixture("S20"))
    else {
        panic!("S20 is a JOIN reply");
    };
    assert_eq!((joined.status, joined.sid), (0, sid()));
    reply("S20", joined);
}

#[test]
fn test_and_batch_messages_are_the_golden_bytes() {
    let Ok(Message { body: Request::Test(server), .. }) =
        RequestMessage::parse(Service::Test, &fixture("S7"))
    else {
        panic!("S7 is a TEST request");
    };
    assert_eq!((server.is_client, server.ndest, server.service), (0, 0, 11));
    request("S7", server);
    let Ok(Message { body: Request::Test(client), .. }) =
        RequestMessage::parse(Service::Test, &fixture("S8"))
    else {
        panic!("S8 is a TEST request");
    };
    assert_eq!((client.is_client, client.ndest, client.repeat), (1, 2, TestRequest::ENDLESS));
    let params = TestParams::Brw {
        opc: BrwRequest::WRITE as u16,
        check: BrwRequest::CHECK_FULL as u16,
        len: BRW_MAX,
        offset: 0,
    };
    assert_eq!(client.params(ByteOrder::Little, 1), Some(params));
    assert_eq!(params.emit(ByteOrder::Little), client.param);
    request("S8", client);
    let dests = parse_destinations(ByteOrder::Little, 2, &fixture("S9")).expect("two");
    assert_eq!(dests.len(), 2);
    assert_eq!(dests[1], ProcessId::lustre("192.168.1.20@tcp".parse().expect("a NID")));
    assert_eq!(emit_destinations(ByteOrder::Little, &dests), fixture("S9"));
    reply("S10", TestReply { status: 0, sid: sid() });
    let run = BatchRequest {
        reply_id: ID,
        sid: sid(),
        batch_id: 1,
        opc: BatchRequest::RUN,
        test_index: 0,
        arg: 0,
    };
    request("S11", run);
    reply("S12", BatchReply { status: 0, sid: sid(), active: 2, time: 0 });
}

#[test]
fn counters_pings_and_bulk_are_the_golden_bytes() {
    request("S13", QueryStatRequest { reply_id: ID, sid: sid(), stat_type: 0 });
    let stat = QueryStatReply {
        status: 0,
        sid: sid(),
        running_ms: 60_000,
        active_batches: 1,
        zombie_sessions: 0,
        brw_errors: 0,
        ping_errors: 0,
        rpc_errors: 0,
        rpcs_sent: 1000,
        rpcs_rcvd: 1001,
        rpcs_dropped: 0,
        rpcs_expired: 0,
        bulk_get: 1_048_576_000,
        bulk_put: 0,
        msgs_alloc: 3,
        msgs_max: 64,
        errors: 0,
        send_count: 2003,
        recv_count: 2004,
        route_count: 0,
        drop_count: 0,
        send_length: 320_480,
        recv_length: 1_048_896_000,
        route_length: 0,
        drop_length: 0,
    };
    reply("S14", stat);
    let ping = PingRequest {
        reply_id: ID,
        magic: PING_MAGIC,
        seq: 42,
        time_sec: 1_700_000_000,
        time_nsec: 123_456_789,
    };
    request("S15", ping);
    reply("S16", PingReply { status: 0, magic: PING_MAGIC, seq: 42 });
    let brw = BrwRequest {
        reply_id: ID,
        bulk_id: ID + 1,
        rw: BrwRequest::WRITE,
        len: 4096,
        check: BrwRequest::CHECK_SIMPLE,
    };
    request("S17", brw);
    let Ok(refused) = ReplyMessage::parse(Service::Brw, &fixture("S18")) else {
        panic!("S18 is a BRW reply");
    };
    assert_ne!(refused.body.status(), 0);
    reply("S18", refused.body);
    assert_eq!(PATTERN.to_le_bytes()[..], fixture("S21"));
}

/// The selftest messages in a stream, with their places: they begin with magic and version.
fn messages(stream: &[u8]) -> Vec<&[u8]> {
    let mark = [MAGIC.to_le_bytes(), VERSION.to_le_bytes()].concat();
    let starts = stream.windows(mark.len()).enumerate().filter(|(_, w)| *w == mark);
    starts.filter_map(|(at, _)| stream.get(at..at + LEN)).collect()
}

fn conversations(capture: &str) -> Vec<Conversation> {
    let path = format!("{}/../../fixtures/pcap/{capture}.pcap", env!("CARGO_MANIFEST_DIR"));
    pcap(&std::fs::read(&path).expect("a capture")).expect("a capture")
}

#[test]
fn everything_that_kernel_nodes_said_comes_out_as_it_went_in() {
    let captures = [
        "selftest-ping",
        "selftest-brw-small",
        "selftest-brw-write-1m",
        "selftest-brw-read-1m",
        "routed-selftest",
        "conns-per-peer-2",
        "interop-2.17-2.15",
        "failover",
    ];
    let mut kinds = std::collections::BTreeMap::new();
    for capture in captures {
        for conversation in conversations(capture) {
            for stream in [&conversation.to_server, &conversation.to_client] {
                for bytes in messages(stream) {
                    let kind = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
                    let service = Service::ALL
                        .into_iter()
                        .find(|s| s.request_type() == kind || s.reply_type() == kind)
                        .unwrap_or_else(|| panic!("{capture}: type {kind}"));
                    let out = if kind == service.request_type() {
                        RequestMessage::parse(service, bytes).map(|m| m.emit())
                    } else {
                        ReplyMessage::parse(service, bytes).map(|m| m.emit())
                    };
                    // Unused bytes of a kernel's reply may be anything; in these they are zeros.
                    assert_eq!(out.expect(capture)[..], *bytes, "{capture} {service}");
                    *kinds.entry(kind).or_insert(0) += 1;
                }
            }
        }
    }
    let seen: Vec<u32> = kinds.keys().copied().collect();
    assert_eq!(seen, [0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15], "{kinds:?}");
}

#[test]
fn another_selftest_version_is_recognized_and_can_be_answered() {
    let mut bytes = fixture("S15");
    bytes[4] = 9;
    let why = RequestMessage::parse(Service::Ping, &bytes).expect_err("version 9");
    assert_eq!(why, WireError::Version { what: "selftest message", version: 9 });
    assert_eq!(reply_id(&bytes), Some(ID));
    bytes[0] = 0;
    assert!(matches!(RequestMessage::parse(Service::Ping, &bytes), Err(WireError::Magic { .. })));
    assert_eq!(reply_id(&bytes), None);
}

#[test]
fn a_list_of_more_than_a_page_keeps_its_entries_whole_but_for_the_last() {
    let dest = |i: u32| ProcessId { nid: Nid::new(lnet_types::Net::TCP, i), pid: Pid(i) };
    let list: Vec<_> = (0..700).map(dest).collect();
    let all = emit_destinations(ByteOrder::Big, &list);
    assert_eq!(parse_destinations(ByteOrder::Big, 700, &all), Ok(list.clone()));
    // What a node fetches (6.8): two gaps of 4 bytes are missing at the end.
    let fetched = &all[..destinations_len(700)];
    let got = parse_destinations(ByteOrder::Big, 700, fetched).expect("not too many");
    assert_eq!(got[..699], list[..699]);
    assert!(got.len() == 699, "the last has lost its NID: {}", got.len());
    let one_gap = parse_destinations(ByteOrder::Big, 342, &all[..destinations_len(342)]);
    assert_eq!(one_gap.expect("not too many")[341].pid, Pid::LUSTRE, "it has lost its pid");
    assert!(parse_destinations(ByteOrder::Big, DESTINATIONS_MAX + 1, &all).is_err());
    assert_eq!(parse_destinations(ByteOrder::Little, 5, &[]), Ok(vec![]));
}

fn any_name() -> impl Strategy<Value = Name> {
    any::<[u8; 32]>().prop_map(Name::from_wire)
}

proptest! {
    #[test]
    fn any_body_of_any_service_and_order_parses_and_comes_out_the_same(
        service in prop::sample::select(Service::ALL.to_vec()),
        big in any::<bool>(),
        features in any::<u32>(),
        body in prop::collection::vec(any::<u8>(), BODY_LEN),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        for kind in [service.request_type(), service.reply_type()] {
            let head = [MAGIC, VERSION, kind, 0, 0, features].map(word).concat();
            let bytes = [&head[..], &body].concat();
            // Once through removes what receivers do not read; from then on nothing changes.
            let once = if kind == service.request_type() {
                let m = RequestMessage::parse(service, &bytes).expect("any body");
                prop_assert_eq!((m.order, m.features), (order, features));
                prop_assert_eq!(&RequestMessage::parse(service, &m.emit()), &Ok(m.clone()));
                m.emit()
            } else {
                let m = ReplyMessage::parse(service, &bytes).expect("any body");
                prop_assert_eq!(&ReplyMessage::parse(service, &m.emit()), &Ok(m.clone()));
                m.emit()
            };
            prop_assert_eq!(&once[..HEAD_LEN], &bytes[..HEAD_LEN]);
        }
    }

    #[test]
    fn parameters_come_back_in_either_order(
        big in any::<bool>(), a in any::<u32>(), b in any::<u32>(), c in any::<u32>(),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let all = [
            (TestParams::Ping { size: a, flags: b }, 1),
            (TestParams::BrwPages { opc: a, npages: b, check: c }, 0),
            (TestParams::Brw { opc: a as u16, check: b as u16, len: b, offset: c }, 1),
        ];
        for (params, features) in all {
            let test = TestRequest {
                reply_id: 1, bulk_id: 2, sid: SessionId::NONE, batch_id: 3,
                service: params.service().id() as u32, repeat: 1, concurrency: 1, is_client: 1,
                stop_on_error: 0, ndest: 1, param: params.emit(order),
            };
            prop_assert_eq!(test.params(order, features), Some(params));
        }
    }

    #[test]
    fn a_name_is_its_text(name in any_name()) {
        prop_assert_eq!(Name::from_wire(*name.as_wire()), name);
        let text = name.text();
        if !text.contains(char::REPLACEMENT_CHARACTER) {
            prop_assert_eq!(Name::new(&text), Some(name));
        }
    }
}
