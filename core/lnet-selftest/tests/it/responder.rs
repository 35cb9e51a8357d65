//! One machine against messages made by hand: the tables of statuses of wire.md 6.

use std::time::Duration;

use lnet_selftest::*;
use lnet_types::{Errno, Instant, Nid, Pid, ProcessId};
use lnet_wire::ByteOrder;
use lnet_wire::selftest::*;

struct Node {
    machine: Selftest,
    now: Instant,
    order: ByteOrder,
    features: u32,
    /// What is left of its last actions.
    other: Vec<Action>,
}

const SID: SessionId = SessionId { nid: Nid::new(lnet_types::Net::TCP, 0x0a00_0009), stamp: 77 };
const OTHER: SessionId = SessionId { stamp: 78, ..SID };
const WHO: ProcessId = ProcessId { nid: SID.nid, pid: Pid(4711) };

fn here() -> Nid {
    "10.0.0.1@tcp".parse().unwrap()
}

impl Node {
    fn new() -> Self {
        let machine = Selftest::new(Settings::default(), Duration::from_secs(9));
        let (now, order) = (Instant::from_secs(5), ByteOrder::Little);
        let mut node = Self { machine, now, order, features: 1, other: Vec::new() };
        node.reply();
        node
    }

    /// Sends a request; gives the message that answers it, if any.
    fn send(&mut self, bytes: &[u8], service: Service) -> Option<Vec<u8>> {
        let lnet = LnetCounters { recv_count: 3, ..LnetCounters::default() };
        self.machine.request(self.now, service, WHO, here(), bytes, &lnet);
        self.reply()
    }

    fn reply(&mut self) -> Option<Vec<u8>> {
        self.other.clear();
        let mut reply = None;
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Put { from, to, portal, match_bits: 0xABCD, data, .. } => {
                    assert_eq!((from, to, portal), (Some(here()), WHO, 52));
                    let Data::Bytes(bytes) = data else { panic!("a reply is no pattern") };
                    assert!(reply.replace(bytes).is_none(), "two replies");
                }
                other => self.other.push(other),
            }
        }
        reply
    }

    fn ask(&mut self, body: impl Into<Request>) -> Reply {
        let body = body.into();
        let message = Message { order: self.order, features: self.features, body };
        let bytes = self.send(&message.emit(), body.service()).expect("a reply");
        let reply = ReplyMessage::parse(body.service(), &bytes).unwrap();
        assert_eq!(reply.order, ByteOrder::Little, "in the replier's order");
        reply.body
    }

    fn make(&mut self, sid: SessionId, force: bool) -> MakeSessionReply {
        let name = Name::new(if sid == SID { "first" } else { "second" }).unwrap();
        let request = MakeSessionRequest { reply_id: 0xABCD, sid, force: force.into(), name };
        match self.ask(request) {
            Reply::MakeSession(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn remove(&mut self, sid: SessionId) -> RemoveSessionReply {
        match self.ask(RemoveSessionRequest { reply_id: 0xABCD, sid }) {
            Reply::RemoveSession(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn batch(&mut self, sid: SessionId, batch_id: u64, opc: u32, test_index: u32) -> (u32, u32) {
        let request = BatchRequest { reply_id: 0xABCD, sid, batch_id, opc, test_index, arg: 0 };
        match self.ask(request) {
            Reply::Batch(reply) => (reply.status, reply.active),
            other => panic!("{other:?}"),
        }
    }
}

fn test(change: impl FnOnce(&mut TestRequest)) -> TestRequest {
    let mut request = TestRequest {
        reply_id: 0xABCD,
        bulk_id: 0xB,
        sid: SID,
        batch_id: 2,
        service: 12,
        repeat: 5,
        concurrency: 2,
        is_client: 1,
        stop_on_error: 0,
        ndest: 1,
        param: [0; 12],
    };
    change(&mut request);
    request
}

fn errno(n: Errno) -> u32 {
    n.0 as u32
}

#[test]
fn sessions_are_made_counted_refused_and_forced() {
    let mut n = Node::new();
    assert_eq!(n.make(SessionId::NONE, false).status, errno(Errno::EINVAL));
    assert_eq!(n.remove(SID).status, errno(Errno::ESRCH));
    let made = n.make(SID, false);
    assert_eq!((made.status, made.sid, made.timeout), (0, SID, 100));
    assert_eq!(n.make(SID, false).status, 0, "once more");
    let busy = n.make(OTHER, false);
    assert_eq!((busy.status, busy.sid), (errno(Errno::EBUSY), SID));
    assert_eq!(busy.name.text(), "first");
    assert_eq!(n.remove(OTHER).status, errno(Errno::EBUSY));
    assert_eq!(n.remove(SessionId::NONE).status, errno(Errno::EINVAL));
    let once = n.remove(SID);
    assert_eq!((once.status, once.sid), (0, SID), "one REMOVE for each MAKE");
    let gone = n.remove(SID);
    assert_eq!((gone.status, gone.sid), (0, SessionId::NONE));
    n.make(SID, false);
    assert_eq!(n.make(OTHER, true).sid, OTHER);
    assert_eq!(n.remove(SID).status, errno(Errno::EBUSY), "the first has been replaced");
}

#[test]
fn a_debug_request_tells_the_session_or_that_there_is_none() {
    let mut n = Node::new();
    let debug = DebugRequest { reply_id: 0xABCD, sid: OTHER, flags: 0 };
    let Reply::Debug(none) = n.ask(debug) else { panic!() };
    assert_eq!((none.status, none.sid), (errno(Errno::ESRCH), SessionId::NONE));
    n.make(SID, false);
    let Reply::Debug(reply) = n.ask(debug) else { panic!() };
    assert_eq!((reply.status, reply.sid, reply.timeout), (0, SID, 100));
    assert_eq!(reply.name.text(), "first");
}

#[test]
fn features_must_be_known_and_those_of_the_session() {
    let mut n = Node::new();
    n.features = 2;
    assert_eq!(n.make(SID, false).status, errno(Errno::EPROTO));
    n.features = 0;
    assert_eq!(n.make(SID, false).status, 0);
    n.features = 1;
    let reply = n.remove(SID);
    assert_eq!((reply.status, reply.sid), (errno(Errno::EPROTO), SID));
    let stat = n.ask(QueryStatRequest { reply_id: 0xABCD, sid: SID, stat_type: 0 });
    assert_eq!(stat.status(), errno(Errno::EPROTO));
    n.features = 0;
    assert_eq!(n.remove(SID).status, 0);
}

#[test]
fn tests_are_checked_before_their_destinations_are_fetched() {
    let mut n = Node::new();
    let ask = |n: &mut Node, t: TestRequest| n.ask(t).status();
    assert_eq!(ask(&mut n, test(|_| {})), errno(Errno::ENOENT), "no session");
    n.make(SID, false);
    assert_eq!(ask(&mut n, test(|t| t.sid = OTHER)), errno(Errno::ENOENT));
    type Change = fn(&mut TestRequest);
    let bad: [Change; 8] = [
        |t| t.repeat = 0,
        |t| t.concurrency = 0,
        |t| t.concurrency = 1025,
        |t| t.sid = SessionId::NONE,
        |t| t.ndest = 0,
        |t| t.ndest = DESTINATIONS_MAX + 1,
        |t| t.service = 3,
        // A BRW without parameters.
        |t| t.service = 11,
    ];
    for (i, change) in bad.into_iter().enumerate() {
        assert_eq!(ask(&mut n, test(change)), errno(Errno::EINVAL), "{i}");
    }
    let server = test(|t| (t.is_client, t.ndest, t.repeat) = (0, 0, 500));
    assert_eq!(ask(&mut n, server), 0);
    let more = Action::Listen { service: Service::Ping, buffers: 564 };
    assert_eq!(n.other, [more], "room for what is to come");
    assert_eq!(n.batch(SID, 2, BatchRequest::QUERY, 0), (0, 0), "its batch is there");
    n.remove(SID);
    let fewer = Action::Listen { service: Service::Ping, buffers: 64 };
    assert_eq!(n.other, [fewer]);
}

/// Adds a ping test in the client role, with two units.
fn with_test(n: &mut Node) {
    let body = Request::Test(test(|t| t.repeat = TestRequest::ENDLESS));
    let message = Message { order: n.order, features: 1, body };
    assert_eq!(n.send(&message.emit(), Service::Test), None, "first the destinations");
    let [Action::Get { token, to, match_bits: 0xB, sink, .. }] = n.other.as_slice() else {
        panic!("{:?}", n.other)
    };
    assert_eq!((*to, sink.len), (WHO, 12));
    let list = emit_destinations(n.order, &[ProcessId::lustre(OTHER.nid)]);
    let token = *token;
    n.machine.done(n.now, token, Done { status: Ok(()), len: 12, bytes: &list });
    let reply = ReplyMessage::parse(Service::Test, &n.reply().expect("a reply")).unwrap();
    assert_eq!(reply.body.status(), 0);
}

#[test]
fn batches_are_run_queried_and_stopped() {
    use BatchRequest as B;
    let mut n = Node::new();
    assert_eq!(n.batch(SID, 2, B::RUN, 0).0, errno(Errno::ESRCH));
    n.make(SID, false);
    assert_eq!(n.batch(OTHER, 2, B::RUN, 0).0, errno(Errno::ESRCH));
    assert_eq!(n.batch(SID, 2, B::RUN, 0).0, errno(Errno::ENOENT));
    with_test(&mut n);
    assert_eq!(n.batch(SID, 2, B::STOP, 0).0, 0, "an idle batch may be stopped");
    assert_eq!(n.batch(SID, 2, B::RUN, 0).0, 0);
    let puts = n.other.iter().filter(|a| matches!(a, Action::Put { portal: 50, .. })).count();
    assert_eq!(puts, 2, "a request of each unit");
    assert_eq!(n.batch(SID, 2, B::QUERY, 0), (0, 1), "tests");
    assert_eq!(n.batch(SID, 2, B::QUERY, 1), (0, 2), "units");
    assert_eq!(n.batch(SID, 2, B::QUERY, 2).0, errno(Errno::ENOENT));
    assert_eq!(n.ask(test(|_| {})).status(), errno(Errno::EBUSY), "no test while it runs");
    assert_eq!(n.batch(SID, 2, B::STOP, 0).0, 0);
    assert_eq!(n.batch(SID, 2, B::QUERY, 0), (0, 1), "they may finish");
    let stop = B { reply_id: 0xABCD, sid: SID, batch_id: 2, opc: B::STOP, test_index: 0, arg: 1 };
    assert_eq!(n.ask(stop).status(), 0);
    assert_eq!(n.batch(SID, 2, B::QUERY, 0), (0, 0), "now they may not");
    let unknown = Request::Batch(B { opc: 9, ..stop });
    let message = Message { order: ByteOrder::Little, features: 1, body: unknown };
    assert_eq!(n.send(&message.emit(), Service::Batch), None, "is not answered");
}

#[test]
fn a_peer_of_the_other_byte_order_is_understood() {
    let mut n = Node::new();
    n.order = ByteOrder::Big;
    assert_eq!(n.make(SID, false).sid, SID);
    with_test(&mut n);
    assert_eq!(n.batch(SID, 2, BatchRequest::RUN, 0).0, 0);
    let write = BrwRequest { reply_id: 0xABCD, bulk_id: 1, rw: 2, len: 16, check: 3 };
    for (word, status) in [(PATTERN.to_be_bytes(), 0), (PATTERN.to_le_bytes(), 74)] {
        let message = Message { order: ByteOrder::Big, features: 1, body: Request::Brw(write) };
        assert_eq!(n.send(&message.emit(), Service::Brw), None);
        let [Action::Get { token, .. }] = n.other.as_slice() else { panic!("{:?}", n.other) };
        let (token, bytes) = (*token, word.repeat(2));
        n.machine.done(n.now, token, Done { status: Ok(()), len: 16, bytes: &bytes });
        let reply = ReplyMessage::parse(Service::Brw, &n.reply().unwrap()).unwrap();
        assert_eq!(reply.body.status(), status, "data are in the writer's order");
    }
}

#[test]
fn tests_need_no_session_and_bad_ones_are_refused() {
    let mut n = Node::new();
    let ping =
        PingRequest { reply_id: 0xABCD, magic: PING_MAGIC, seq: 9, time_sec: 1, time_nsec: 2 };
    let Reply::Ping(pong) = n.ask(ping) else { panic!() };
    assert_eq!((pong.status, pong.magic, pong.seq), (0, PING_MAGIC, 9));
    let wrong = Request::Ping(PingRequest { magic: 1, ..ping });
    let bytes = Message { order: ByteOrder::Little, features: 1, body: wrong }.emit();
    assert_eq!(n.send(&bytes, Service::Ping), None);
    let brw = BrwRequest { reply_id: 0xABCD, bulk_id: 1, rw: 1, len: 4096, check: 1 };
    type Change = fn(&mut BrwRequest);
    let bad: [Change; 6] = [
        |b| b.rw = 0,
        |b| b.rw = 3,
        |b| b.check = 0,
        |b| b.check = 5,
        |b| b.len = 0,
        |b| b.len = BRW_MAX + 1,
    ];
    for change in bad {
        let mut request = brw;
        change(&mut request);
        assert_eq!(n.ask(request).status(), errno(Errno::EINVAL), "{request:?}");
    }
    n.features = 0;
    assert_eq!(n.ask(BrwRequest { len: 100, ..brw }).status(), errno(Errno::EINVAL));
    n.features = 4;
    assert_eq!(n.ask(brw).status(), errno(Errno::EPROTO));
}

#[test]
fn another_version_is_answered_and_garbage_is_not() {
    let mut n = Node::new();
    let ping =
        PingRequest { reply_id: 0xABCD, magic: PING_MAGIC, seq: 9, time_sec: 1, time_nsec: 2 };
    let mut bytes =
        Message { order: ByteOrder::Little, features: 1, body: Request::Ping(ping) }.emit();
    bytes[4] = 2;
    let reply = n.send(&bytes, Service::Ping).expect("a reply");
    let reply = ReplyMessage::parse(Service::Ping, &reply).unwrap();
    assert_eq!((reply.body.status(), reply.features), (errno(Errno::EPROTO), 1));
    assert_eq!(n.send(&bytes[..159], Service::Ping), None);
    assert_eq!(n.send(&bytes, Service::Brw), None, "a type of another service");
}

#[test]
fn counters_are_those_of_the_node_and_the_session() {
    let mut n = Node::new();
    let stat = |sid| QueryStatRequest { reply_id: 0xABCD, sid, stat_type: 0 };
    assert_eq!(n.ask(stat(SessionId::NONE)).status(), errno(Errno::EINVAL));
    assert_eq!(n.ask(stat(SID)).status(), errno(Errno::ESRCH));
    n.make(SID, false);
    n.now += Duration::from_millis(1500);
    let Reply::QueryStat(reply) = n.ask(stat(SID)) else { panic!() };
    assert_eq!((reply.running_ms, reply.rpcs_rcvd, reply.recv_count), (1500, 4, 3));
    // Replies are no requests (as in the recordings).
    assert_eq!(reply.rpcs_sent, 0);
}
