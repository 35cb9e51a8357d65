//! How connections come about: negotiation, every refusal and its consequence, races, and what is no
//! request at all (wire.md 7.6, B-30, RS-058).

use core::time::Duration;

use lnd_ib::{
    CmCall, CmEvent, ConnId, Event, IbConfig, IbNi, Limits, NiStart, Output, RequestId,
    connect_fault,
};
use lnet_types::{ByteOrder, Errno, HealthStatus, Instant, NiId, Nid, Pid};
use lnet_wire::ib::{Body, ConnParams, Msg, MsgHead, Reject, RejectReason as Why, Version};
use lnet_wire::{Handle, Hdr, Kind};
use proptest::prelude::*;

use crate::flows::{A, B, SECOND, pair};
use crate::support::fabric::World;
use crate::support::host::Host;

fn nid(text: &str) -> Nid {
    text.parse().expect("a NID")
}

/// An interface B without a world.
fn alone(config: IbConfig) -> IbNi {
    IbNi::new(config, NiStart { ni: NiId::default(), nid: nid(B), incarnation: 0xb }).expect("good")
}

fn outputs(ib: &mut IbNi) -> Vec<Output> {
    core::iter::from_fn(|| ib.poll_output()).collect()
}

/// When a test without a world plays.
const NOW: Instant = Instant::from_secs(1);

const PARAMS: ConnParams = ConnParams { queue_depth: 8, max_frags: 257, max_msg_size: 4096 };

/// A's request to B.
fn request() -> Msg {
    let head = MsgHead {
        order: ByteOrder::Little,
        version: Version::V12,
        credits: 0,
        src: nid(A),
        src_stamp: 0xa,
        dst: nid(B),
        dst_stamp: 0,
    };
    Msg { head, body: Body::ConnReq(PARAMS) }
}

fn bytes(msg: &Msg) -> Vec<u8> {
    let mut out = vec![0; msg.len()];
    msg.emit(0, &mut out).expect("it fits");
    out
}

/// What B answers to private data: a CONNACK, or why not.
fn answer(ib: &mut IbNi, private: &[u8]) -> Result<ConnParams, Reject> {
    ib.connect_request(NOW, RequestId(1), private);
    for output in outputs(ib) {
        match output {
            Output::Cm(CmCall::Accept { private, .. }) => {
                let (msg, _) = Msg::parse(&private).expect("a message");
                assert_eq!((msg.head.src, msg.head.dst), (nid(B), nid(A)));
                assert_eq!((msg.head.src_stamp, msg.head.dst_stamp), (0xb, 0xa));
                let Body::ConnAck(params) = msg.body else { panic!("{msg}") };
                return Ok(params);
            }
            Output::Cm(CmCall::Reject { private, .. }) => {
                return Err(Reject::parse(&private).expect("a refusal"));
            }
            _ => {}
        }
    }
    panic!("no answer")
}

#[test]
fn each_wrong_request_has_its_refusal() {
    let edit = |edit: fn(&mut Msg)| {
        let mut msg = request();
        edit(&mut msg);
        bytes(&msg)
    };
    fn params(msg: &mut Msg, edit: fn(&mut ConnParams)) {
        if let Body::ConnReq(params) = &mut msg.body {
            edit(params);
        }
    }
    let magic = [&0x4572_6963_u32.to_le_bytes()[..], &[0; 60]].concat();
    let mut unknown = bytes(&request());
    unknown[4] = 0x13;
    let table: [(&str, Vec<u8>, Why, u16); 16] = [
        ("five bytes", bytes(&request())[..5].to_vec(), Why::FATAL, 0x12),
        ("the generic magic", magic, Why::FATAL, 0x12),
        ("an unknown version", unknown, Why::FATAL, 0x12),
        ("a cut request", bytes(&request())[..55].to_vec(), Why::FATAL, 0x12),
        ("another type", edit(|m| m.body = Body::Noop), Why::FATAL, 0x12),
        ("another NID", edit(|m| m.head.dst = nid("10.77.0.9@o2ib")), Why::FATAL, 0x12),
        ("another network", edit(|m| m.head.src = nid("10.77.0.2@o2ib7")), Why::FATAL, 0x12),
        ("another incarnation", edit(|m| m.head.dst_stamp = 0xc), Why::CONN_STALE, 0x12),
        ("a deep queue", edit(|m| params(m, |p| p.queue_depth = 9)), Why::MSG_QUEUE_SIZE, 0x12),
        ("no queue", edit(|m| params(m, |p| p.queue_depth = 0)), Why::FATAL, 0x12),
        ("many fragments", edit(|m| params(m, |p| p.max_frags = 258)), Why::RDMA_FRAGS, 0x12),
        ("no fragments", edit(|m| params(m, |p| p.max_frags = 0)), Why::FATAL, 0x12),
        ("long messages", edit(|m| params(m, |p| p.max_msg_size = 4097)), Why::FATAL, 0x12),
        (
            "a deep queue of old",
            edit(|m| {
                m.head.version = Version::V11;
                params(m, |p| p.queue_depth = 9);
            }),
            Why::FATAL,
            0x11,
        ),
        (
            "many fragments of old",
            edit(|m| {
                m.head.version = Version::V11;
                params(m, |p| p.max_frags = 258);
            }),
            Why::FATAL,
            0x11,
        ),
        (
            "one credit of old",
            edit(|m| {
                m.head.version = Version::V11;
                params(m, |p| p.queue_depth = 1);
            }),
            Why::FATAL,
            0x11,
        ),
    ];
    for (what, private, why, version) in table {
        let mut ib = alone(IbConfig::default());
        let reject = answer(&mut ib, &private).expect_err(what);
        assert_eq!((reject.why, reject.version, reject.incarnation), (why, version, 0xb), "{what}");
        assert_eq!((reject.queue_depth, reject.max_frags, reject.max_msg_size), (8, 257, 4096));
        assert_eq!(ib.stats().refused.get(&why), Some(&1), "{what}");
    }
    let mut ib = alone(IbConfig::default());
    ib.set_others_coming(true);
    let other = edit(|m| m.head.dst = nid("10.77.0.9@o2ib"));
    assert_eq!(answer(&mut ib, &other).map_err(|reject| reject.why), Err(Why::EARLY));
}

#[test]
fn a_good_request_is_granted_with_fewer_fragments_if_need_be() {
    let mut ib = alone(IbConfig { max_frags: 16, queue_depth: 32, ..IbConfig::default() });
    let mut msg = request();
    assert_eq!(answer(&mut ib, &bytes(&msg)), Ok(ConnParams { max_frags: 16, ..PARAMS }));
    msg.head.order = ByteOrder::Big;
    msg.head.dst_stamp = 0xb;
    assert_eq!(answer(&mut ib, &bytes(&msg)), Ok(ConnParams { max_frags: 16, ..PARAMS }));
    // What is behind a request is the connection manager's padding.
    let padded = [&bytes(&msg)[..], &[0; 36]].concat();
    assert_eq!(answer(&mut ib, &padded), Ok(ConnParams { max_frags: 16, ..PARAMS }));
}

/// An interface that has let A's request in, which is not confirmed yet.
fn accepting() -> (IbNi, ConnId) {
    let mut ib = alone(IbConfig::default());
    ib.connect_request(NOW, RequestId(1), &bytes(&request()));
    let accepted = |output| match output {
        Output::Cm(CmCall::Accept { conn, .. }) => Some(conn),
        _ => None,
    };
    let conn = outputs(&mut ib).into_iter().find_map(accepted).expect("it is let in");
    (ib, conn)
}

/// A message of A to that interface.
fn from_a(body: Body) -> Vec<u8> {
    bytes(&Msg { head: MsgHead { dst_stamp: 0xb, ..request().head }, body })
}

/// The header of a PUT of A.
fn put(payload_len: u32) -> Hdr {
    Hdr {
        dst: nid(B),
        src: nid(A),
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len,
        kind: Kind::Put { ack: Handle::NONE, match_bits: 0, hdr_data: 0, portal: 0, offset: 0 },
    }
}

/// Whether a header is reported now.
fn hears(ib: &mut IbNi) -> bool {
    outputs(ib).iter().any(|output| matches!(output, Output::Event(Event::Header { .. })))
}

#[test]
fn what_overtakes_a_connection_and_follows_its_end_is_not_heard() {
    let (mut ib, conn) = accepting();
    // The first breaks the protocol, and so ends the connection.
    ib.received(NOW, conn, 0, Ok(&from_a(Body::ConnReq(PARAMS))));
    ib.received(NOW, conn, 1, Ok(&from_a(Body::PutReq { hdr: put(65_536), cookie: 5 })));
    ib.cm_event(NOW, conn, CmEvent::Established { private: &[] });
    ib.check().expect("no header belongs to an ended connection");
    assert!(!hears(&mut ib));
}

#[test]
fn what_overtakes_a_connection_that_ends_before_it_is_known_here_is_heard() {
    let (mut ib, conn) = accepting();
    ib.received(NOW, conn, 0, Ok(&from_a(Body::Immediate(put(0)))));
    ib.cm_event(NOW, conn, CmEvent::Disconnected);
    assert!(hears(&mut ib), "the adapter has acknowledged it");
}

#[test]
fn requests_by_the_thousand_meet_a_limit() {
    let limits = Limits { connections_per_peer: 10, accepting: 25, ..Limits::DEFAULT };
    let mut ib = alone(IbConfig { limits, ..IbConfig::default() });
    let mut granted = 0;
    for host in 0..1000_u32 {
        let mut msg = request();
        msg.head.src = format!("10.77.1.{}@o2ib", host % 5).parse().expect("a NID");
        ib.connect_request(NOW, RequestId(host.into()), &bytes(&msg));
        for output in outputs(&mut ib) {
            match output {
                Output::Cm(CmCall::Accept { .. }) => granted += 1,
                Output::Cm(CmCall::Reject { private, .. }) => {
                    let reject = Reject::parse(&private).expect("a refusal");
                    assert_eq!(reject.why, Why::NO_RESOURCES);
                }
                _ => {}
            }
        }
    }
    assert_eq!(granted, 25);
    assert_eq!(ib.stats().refused.get(&Why::NO_RESOURCES), Some(&975));
    ib.handle_timeout(Instant::from_secs(20));
    assert_eq!(ib.poll_timeout(), None, "attempts that are not confirmed end");
    assert_eq!(ib.check(), Ok(()));
}

/// A with one message for B, up to the point where B has been asked.
fn asking(config: IbConfig) -> (World, ConnId) {
    let hosts = vec![Host::new(A, 0xa, config)];
    let mut world = World::new(1, hosts);
    let to = nid(B);
    world.hosts[0].put(world.now, to, 1, 100).expect("it is taken");
    let mut conn = None;
    let ib = &mut world.hosts[0].port.ib;
    for output in outputs(ib) {
        if let Output::Cm(CmCall::Resolve { conn: id, to: peer }) = output {
            assert_eq!(peer, to);
            conn = Some(id);
        }
    }
    let conn = conn.expect("an attempt");
    ib.cm_event(world.now, conn, CmEvent::AddrResolved);
    ib.cm_event(world.now, conn, CmEvent::RouteResolved);
    (world, conn)
}

/// The request in these outputs.
fn asked(outputs: &[Output]) -> Option<Msg> {
    outputs.iter().find_map(|output| match output {
        Output::Cm(CmCall::Connect { private, .. }) => Some(Msg::parse(private).expect("ours").0),
        _ => None,
    })
}

/// What a refusal leads to: the next request, or the fate of the message.
fn after(reject: Reject) -> Result<Msg, Errno> {
    let (mut world, conn) = asking(IbConfig { queue_depth: 64, ..IbConfig::default() });
    let first = asked(&outputs(&mut world.hosts[0].port.ib)).expect("a request");
    assert_eq!(first.body, Body::ConnReq(ConnParams { queue_depth: 64, ..PARAMS }));
    let private = reject.to_bytes();
    let event = CmEvent::Rejected { why: lnd_ib::CmRejection::Consumer, private: &private };
    let now = world.now;
    let ib = &mut world.hosts[0].port.ib;
    ib.cm_event(now, conn, event);
    let mut ended = None;
    for output in outputs(ib) {
        match output {
            Output::Cm(CmCall::Resolve { conn, .. }) => {
                ib.cm_event(now, conn, CmEvent::AddrResolved);
                ib.cm_event(now, conn, CmEvent::RouteResolved);
                return Ok(asked(&outputs(ib)).expect("another request"));
            }
            Output::Event(Event::TxDone { outcome: Err(fault), .. }) => ended = Some(fault),
            _ => {}
        }
    }
    let fault = ended.expect("the message ends");
    assert_eq!(fault, connect_fault(fault.errno));
    Err(fault.errno)
}

#[test]
fn each_refusal_has_its_consequence() {
    let reject = |why| Reject { queue_depth: 16, max_frags: 32, ..Reject::new(why, 0x12, 0xb) };
    let again = |reject| after(reject).unwrap_or_else(|errno| panic!("{reject}: {errno}"));
    let params = |msg: &Msg| if let Body::ConnReq(p) = msg.body { p } else { panic!("{msg}") };

    assert_eq!(again(reject(Why::CONN_RACE)).head.dst_stamp, 0);
    assert_eq!(again(reject(Why::CONN_STALE)).head.dst_stamp, 0xb);
    assert_eq!(params(&again(reject(Why::MSG_QUEUE_SIZE))).queue_depth, 16);
    assert_eq!(params(&again(reject(Why::RDMA_FRAGS))).max_frags, 32);
    let old = |why| Reject { version: 0x11, ..reject(why) };
    assert_eq!(again(old(Why::CONN_UNCOMPAT)).head.version, Version::V11);
    assert_eq!(again(old(Why::FATAL)).head.version, Version::V11);

    let refused = Err(Errno::ECONNREFUSED);
    for why in [Why::NO_RESOURCES, Why::FATAL, Why::INVALID_SRV_ID, Why::EARLY, Why(77)] {
        assert_eq!(after(reject(why)), refused, "{why}");
    }
    assert_eq!(after(reject(Why::CONN_UNCOMPAT)), refused, "the version that was asked for");
    let same = Reject { queue_depth: 64, max_frags: 257, ..reject(Why::MSG_QUEUE_SIZE) };
    assert_eq!(after(same), refused, "no lower limit");
    assert_eq!(after(Reject { why: Why::RDMA_FRAGS, ..same }), refused);
    assert_eq!(after(Reject { queue_depth: 0, ..same }), refused);
}

#[test]
fn each_event_of_an_attempt_has_its_errno_and_status() {
    use HealthStatus as H;
    let rejected = |why| CmEvent::Rejected { why, private: b"" };
    let table = [
        (CmEvent::AddrError, Errno::EHOSTUNREACH, H::NetworkTimeout),
        (CmEvent::RouteError, Errno::EHOSTUNREACH, H::NetworkTimeout),
        (CmEvent::Unreachable, Errno::ENETDOWN, H::LocalDropped),
        (CmEvent::ConnectError, Errno::ENOTCONN, H::LocalDropped),
        (rejected(lnd_ib::CmRejection::NoListener), Errno::EHOSTUNREACH, H::NetworkTimeout),
        (rejected(lnd_ib::CmRejection::Other), Errno::ECONNREFUSED, H::RemoteDropped),
        (rejected(lnd_ib::CmRejection::Consumer), Errno::ECONNREFUSED, H::RemoteDropped),
        (CmEvent::Disconnected, Errno::ECONNRESET, H::LocalDropped),
        (CmEvent::DeviceRemoval, Errno::ENODEV, H::LocalDropped),
        (CmEvent::Established { private: b"nonsense" }, Errno::EPROTO, H::LocalDropped),
    ];
    for (event, errno, status) in table {
        let (mut world, conn) = asking(IbConfig::default());
        let now = world.now;
        world.hosts[0].port.ib.cm_event(now, conn, event);
        let outputs = outputs(&mut world.hosts[0].port.ib);
        let faults = outputs.iter().filter_map(|output| match output {
            Output::Event(Event::TxDone { outcome: Err(fault), .. }) => Some(*fault),
            _ => None,
        });
        let faults: Vec<_> = faults.map(|fault| (fault.errno, fault.status)).collect();
        assert_eq!(faults, [(errno, status)], "{event:?}");
        let is_down = |o: &Output| matches!(o, Output::Event(Event::PeerDown { nid, .. }) if *nid == self::nid(B));
        assert_eq!(outputs.iter().filter(|o| is_down(o)).count(), 1, "{event:?}");
        assert_eq!(world.hosts[0].port.ib.poll_timeout(), None, "nothing is left");
    }
    for event in [CmEvent::AddrChange, CmEvent::TimewaitExit] {
        let (mut world, conn) = asking(IbConfig::default());
        outputs(&mut world.hosts[0].port.ib);
        let now = world.now;
        world.hosts[0].port.ib.cm_event(now, conn, event);
        assert!(outputs(&mut world.hosts[0].port.ib).is_empty(), "{event:?}");
    }
}

#[test]
fn an_acceptance_that_differs_from_the_request_is_none() {
    let good = || {
        let mut msg = request();
        msg.head = MsgHead { src: nid(B), src_stamp: 0xb, dst: nid(A), dst_stamp: 0xa, ..msg.head };
        msg.body = Body::ConnAck(PARAMS);
        msg
    };
    type Edit = fn(&mut Msg);
    let edits: [(Edit, bool); 10] = [
        (|_| {}, true),
        (|m| m.body = Body::ConnAck(ConnParams { queue_depth: 4, max_frags: 1, ..PARAMS }), true),
        (|m| m.body = Body::ConnAck(ConnParams { queue_depth: 9, ..PARAMS }), false),
        (|m| m.body = Body::ConnAck(ConnParams { queue_depth: 0, ..PARAMS }), false),
        (|m| m.body = Body::ConnAck(ConnParams { max_frags: 0, ..PARAMS }), false),
        (|m| m.body = Body::ConnAck(ConnParams { max_msg_size: 8192, ..PARAMS }), false),
        (|m| m.body = Body::ConnReq(PARAMS), false),
        (|m| m.head.version = Version::V11, false),
        (|m| m.head.src = nid("10.77.0.9@o2ib"), false),
        (|m| m.head.dst_stamp = 0xd, false),
    ];
    for (at, (edit, fits)) in edits.into_iter().enumerate() {
        let (mut world, conn) = asking(IbConfig::default());
        let mut msg = good();
        edit(&mut msg);
        let now = world.now;
        world.hosts[0].port.ib.cm_event(now, conn, CmEvent::Established { private: &bytes(&msg) });
        let outputs = outputs(&mut world.hosts[0].port.ib);
        assert_eq!(world.hosts[0].port.ib.connections(None), usize::from(fits), "{at}");
        assert_eq!(outputs.iter().any(|o| matches!(o, Output::Post(_))), fits, "{at}");
    }
}

#[test]
fn a_race_is_won_by_the_higher_nid_and_both_sides_messages_arrive() {
    for seed in 0..20 {
        let mut world = pair(IbConfig::default());
        world.prng = lnet_types::Prng::new(seed);
        world.put(0, 1, 1, 100);
        world.put(1, 0, 2, 100);
        world.run(Duration::from_secs(5));
        assert_eq!(world.hosts[0].end(1), Some(Ok(())), "seed {seed}");
        assert_eq!(world.hosts[1].end(2), Some(Ok(())), "seed {seed}");
        world.assert_clean();
    }
    // At the same instant B, the higher, refuses and A grants.
    let mut world = pair(IbConfig::default());
    let (a, b) = (nid(A), nid(B));
    for (host, to) in [(0, b), (1, a)] {
        world.hosts[host].put(world.now, to, 1, 100).expect("it is taken");
    }
    let mut b_request = request();
    b_request.head = MsgHead { src: b, src_stamp: 0xb, dst: a, dst_stamp: 0, ..b_request.head };
    for (host, msg, refused) in [(1, request(), true), (0, b_request, false)] {
        let ib = &mut world.hosts[host].port.ib;
        ib.connect_request(world.now, RequestId(9), &bytes(&msg));
        let races = ib.stats().refused.get(&Why::CONN_RACE).copied();
        assert_eq!(races, refused.then_some(1), "{host}");
    }
}

#[test]
fn a_side_that_keeps_losing_a_race_is_let_in_after_twenty() {
    let mut world = pair(IbConfig::default());
    world.hosts[1].put(world.now, nid(A), 1, 100).expect("it is taken");
    let ib = &mut world.hosts[1].port.ib;
    for at in 0..21 {
        ib.connect_request(world.now, RequestId(at), &bytes(&request()));
    }
    assert_eq!(ib.stats().refused.get(&Why::CONN_RACE), Some(&20));
    let accepts =
        outputs(ib).iter().filter(|o| matches!(o, Output::Cm(CmCall::Accept { .. }))).count();
    assert_eq!(accepts, 1);
}

#[test]
fn a_peer_with_smaller_limits_or_the_old_version_is_met_on_its_terms() {
    let small = IbConfig { max_frags: 4, ..IbConfig::default() };
    let large = IbConfig { queue_depth: 128, ..IbConfig::default() };
    for back in [false, true] {
        let hosts = vec![Host::new(A, 0xa, large.clone()), Host::new(B, 0xb, small.clone())];
        let mut world = World::new(3, hosts);
        let (from, to) = if back { (1, 0) } else { (0, 1) };
        world.put(from, to, 1, 100_000);
        world.run(SECOND);
        assert_eq!(world.hosts[from].end(1), Some(Ok(())));
        let credits = world.hosts[0].port.ib.credits(nid(B));
        assert_eq!(credits.iter().map(|(_, c)| c.depth()).collect::<Vec<_>>(), [8]);
        world.assert_clean();
    }
}

#[test]
fn memory_in_more_fragments_than_the_peer_allows_fails_by_name() {
    let small = IbConfig { max_frags: 2, ..IbConfig::default() };
    let hosts = vec![Host::new(A, 0xa, small), Host::new(B, 0xb, IbConfig::default())];
    let mut world = World::new(3, hosts);
    world.faults.fragments = 40;
    for number in 0..8 {
        world.get(0, 1, number, 50_000);
        world.run(SECOND);
    }
    let too_many = world.hosts[0].ended.iter().filter(|(_, outcome)| {
        outcome.is_err_and(|f| (f.status, f.errno) == (HealthStatus::LocalError, Errno::EMSGSIZE))
    });
    assert!(too_many.count() > 4);
    world.assert_clean();
}

#[test]
fn a_restarted_peer_is_stale_once_and_then_connected_anew() {
    let mut world = pair(IbConfig::default());
    world.put(0, 1, 1, 100);
    world.run(SECOND);
    // A is another one from now on, and B does not know yet.
    world.restart(0, Host::new(A, 0xaa, IbConfig::default()));
    world.put(0, 1, 2, 100);
    world.run(Duration::from_secs(5));
    assert_eq!(world.hosts[0].end(2), Some(Ok(())));
    assert_eq!(world.hosts[1].port.ib.stats().refused.get(&Why::CONN_STALE), Some(&1));
    assert_eq!(world.hosts[1].port.ib.stats().closed.get("stale"), Some(&1));
    // B's old incarnation in A's request, because A had a connection to it.
    world.restart(1, Host::new(B, 0xbb, IbConfig::default()));
    world.put(1, 0, 3, 100);
    world.run(Duration::from_secs(5));
    assert_eq!(world.hosts[1].end(3), Some(Ok(())));
    world.assert_clean();
}

#[test]
fn a_message_waits_for_a_connection_no_longer_than_its_limit() {
    let mut world = pair(IbConfig::default());
    world.cut.insert((0, 1));
    world.put(0, 1, 1, 100);
    world.run(Duration::from_millis(12_400));
    assert_eq!(world.hosts[0].end(1), None);
    world.run(Duration::from_millis(200));
    let fault = world.hosts[0].end(1).expect("it has ended").expect_err("no connection");
    assert_eq!((fault.status, fault.errno), (HealthStatus::NetworkTimeout, Errno::ETIMEDOUT));
    world.cut.clear();
    world.absent.insert(1);
    world.put(0, 1, 2, 100);
    world.run(SECOND);
    let fault = world.hosts[0].end(2).expect("it has ended").expect_err("no listener");
    assert_eq!((fault.status, fault.errno), (HealthStatus::NetworkTimeout, Errno::EHOSTUNREACH));
    assert_eq!(world.hosts[0].events.len(), 2, "{:?}", world.hosts[0].events);
    world.assert_clean();
}

proptest! {
    #[test]
    fn any_private_data_is_answered_once(private in proptest::collection::vec(any::<u8>(), 0..120), at in 0..56_usize, byte: u8) {
        let mut good = bytes(&request());
        good[at] = byte;
        for private in [&private, &good] {
            let mut ib = alone(IbConfig::default());
            ib.connect_request(NOW, RequestId(1), private);
            let is_answer = |o: &Output| {
                matches!(o, Output::Cm(CmCall::Accept { .. } | CmCall::Reject { .. }))
            };
            prop_assert_eq!(outputs(&mut ib).iter().filter(|o| is_answer(o)).count(), 1);
            prop_assert_eq!(ib.check(), Ok(()));
        }
        let (mut world, conn) = asking(IbConfig::default());
        let now = world.now;
        let ib = &mut world.hosts[0].port.ib;
        ib.cm_event(now, conn, CmEvent::Rejected { why: lnd_ib::CmRejection::Consumer, private: &private });
        prop_assert_eq!(ib.check(), Ok(()));
    }
}
