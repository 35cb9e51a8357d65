//! What people do with `lst`, from the first to the last command.

use std::time::Duration;

use lnet_selftest::*;
use lnet_types::Errno;
use lnet_wire::selftest::Service;

use crate::world::{KEY, World, brw, new_session, nid, test};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_session_runs_from_its_making_to_its_end_and_leaves_nothing_behind() {
    let mut w = World::new(4);
    w.session(&[1, 2], &[3, 4]);
    for write in [true, false] {
        let spec = TestSpec { servers: 2, ..test(brw(write, 8192, Check::Full), Some(10), 3) };
        let nodes = w.nodes(1, Command::AddTest(spec));
        assert_eq!(nodes.len(), 4, "both servers, then both clients");
        assert!(nodes.iter().all(|n| n.outcome.is_ok()), "{nodes:?}");
    }
    let spec = TestSpec { servers: 2, ..test(Kind::Ping, Some(7), 2) };
    w.nodes(1, Command::AddTest(spec));
    w.run_batch();
    w.run(SECOND);
    assert_eq!(w.active(0), [0, 0], "repetitions have an end");
    let count = |service| w.requests.iter().filter(|(s, ..)| *s == service).count();
    // Clients × servers × units × repetitions, for each test.
    assert_eq!((count(Service::Brw), count(Service::Ping)), (2 * 2 * 2 * 3 * 10, 2 * 2 * 2 * 7));
    for c in w.counters("s") {
        assert_eq!((c.bulk_get, c.bulk_put), (2 * 3 * 10 * 8192, 2 * 3 * 10 * 8192), "{c:?}");
        assert_eq!((c.brw_errors, c.ping_errors, c.rpc_errors), (0, 0, 0));
        assert!(c.running_ms >= 1000 && c.send_count == 7);
    }
    let Ok(Answer::Local(local)) = w.command(1, Command::Local) else { panic!() };
    assert_eq!(local.iter().map(|t| t.took.count()).collect::<Vec<_>>(), [60, 60, 28]);
    assert_eq!(w.nodes(1, Command::EndSession).len(), 4);
    assert_eq!(w.command(1, Command::ShowSession), Err(Errno::ESRCH));
    w.run(SECOND);
    assert!(w.hosts.values().all(|h| h.machine.is_idle()));
    assert_eq!(w.offers(), 0);
}

#[test]
fn an_endless_test_runs_until_it_is_stopped_and_can_be_run_again() {
    let mut w = World::new(2);
    w.session(&[1], &[2]);
    w.nodes(1, Command::AddTest(test(Kind::Ping, None, 4)));
    for force in [false, true] {
        w.run_batch();
        w.run(SECOND / 10);
        assert_eq!((w.active(0), w.active(1)), (vec![1], vec![4]));
        // A second run changes nothing.
        w.run_batch();
        assert_eq!(w.active(1), [4]);
        let stop = Command::Stop { batch: "batch".to_owned(), force };
        assert!(w.nodes(1, stop.clone()).iter().all(|n| n.outcome.is_ok()));
        w.run(SECOND / 10);
        let before = w.requests.len();
        w.run(SECOND / 10);
        assert_eq!((w.active(0), w.requests.len()), (vec![0], before + 1), "the query alone");
        assert!(w.nodes(1, stop).iter().all(|n| n.outcome.is_ok()), "stopping twice is no error");
    }
    assert_eq!(w.counters("c")[0].ping_errors, 0, "what is stopped is no error");
}

#[test]
fn a_second_session_is_refused_and_the_first_goes_on_unless_it_is_forced() {
    let mut w = World::new(3);
    w.session(&[1], &[2]);
    let Ok(Answer::Session(first)) = w.command(1, Command::ShowSession) else { panic!() };
    assert_eq!((first.name.as_str(), first.nodes, first.key), ("t", 2, KEY));
    assert_eq!(w.command(1, new_session("u", false)), Err(Errno::EEXIST));
    assert_eq!(w.command(1, Command::ShowSession), Ok(Answer::Session(first)));
    assert_eq!(w.command_as(1, 1, Command::ListGroups), Err(Errno::EACCES));
    let Ok(Answer::Session(next)) = w.command(1, new_session("u", true)) else { panic!() };
    assert!(next.force && next.nodes == 0);
    w.run(SECOND);
    let Ok(Answer::Names(groups)) = w.command(1, Command::ListGroups) else { panic!() };
    assert!(groups.is_empty());
    assert!(w.host(2).machine.is_idle(), "its nodes left it");
}

#[test]
fn a_node_serves_one_console_at_a_time() {
    let mut w = World::new(3);
    w.session(&[1], &[3]);
    for force in [false, true] {
        w.command(2, new_session("theirs", force)).unwrap();
        w.command(2, Command::AddGroup { name: "g".to_owned() }).unwrap();
        let add = Command::AddNodes { group: "g".to_owned(), nids: vec![nid(3)] };
        let node = w.nodes(2, add).remove(0);
        if force {
            assert_eq!((node.state, node.outcome), (NodeState::Active, Ok(Report::Done)));
        } else {
            let busy = NodeFailure { refused: true, errno: Errno::EBUSY.0 };
            assert_eq!((node.state, node.outcome), (NodeState::Busy, Err(busy)));
        }
    }
    // The first console finds out.
    let ping = Command::Ping { target: Target::Group("s".to_owned()), timeout_s: 5 };
    let node = w.nodes(1, ping).remove(0);
    let report = Report::Alive { session: "theirs".to_owned(), console: nid(2) };
    assert_eq!((node.state, node.outcome), (NodeState::Busy, Ok(report)));
}

#[test]
fn clients_share_servers_as_the_distribution_says() {
    let mut w = World::new(9);
    w.session(&[1, 2, 3, 4], &[5, 6, 7]);
    let spec = TestSpec { clients: 2, servers: 2, ..test(Kind::Ping, Some(1), 1) };
    w.nodes(1, Command::AddTest(spec));
    w.requests.clear();
    w.run_batch();
    w.run(SECOND);
    let mut seen: Vec<_> = w
        .requests
        .iter()
        .filter(|(s, ..)| *s == Service::Ping)
        .map(|(_, from, to)| (from.addr() & 0xff, to.addr() & 0xff))
        .collect();
    seen.sort_unstable();
    // Two clients share two servers, the next two the next two, around the ring.
    assert_eq!(seen, [(1, 5), (1, 6), (2, 5), (2, 6), (3, 5), (3, 7), (4, 5), (4, 7)]);
}

#[test]
fn groups_are_refreshed_cleaned_and_removed_but_not_while_a_test_uses_them() {
    let mut w = World::new(3);
    w.down.insert(nid(3));
    w.command(1, new_session("t", false)).unwrap();
    w.command(1, Command::AddGroup { name: "g".to_owned() }).unwrap();
    assert_eq!(w.command(1, Command::AddGroup { name: "g".to_owned() }), Err(Errno::EEXIST));
    let nids = vec![nid(1), nid(2), nid(3)];
    let nodes = w.nodes(1, Command::AddNodes { group: "g".to_owned(), nids });
    let unreached = NodeFailure { refused: false, errno: Errno::EHOSTUNREACH.0 };
    assert_eq!(nodes.iter().filter(|n| n.outcome == Err(unreached)).count(), 1, "{nodes:?}");
    let states = |w: &mut World| match w.command(1, Command::ShowGroup { name: "g".to_owned() }) {
        Ok(Answer::Group(nodes)) => nodes.iter().map(|n| n.state).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    use NodeState::{Active, Down};
    assert_eq!(states(&mut w), [Active, Active, Down]);
    w.down.clear();
    let refreshed = w.nodes(1, Command::RefreshGroup { name: "g".to_owned() });
    assert!(refreshed.iter().all(|n| n.outcome.is_ok()));
    assert_eq!(states(&mut w), [Active; 3]);
    let remove = |n| Command::RemoveNodes { group: "g".to_owned(), nids: vec![nid(n)] };
    assert_eq!(w.nodes(1, remove(3)).len(), 1);
    assert!(w.host(3).machine.is_idle(), "it has left the session");
    assert_eq!(w.command(1, remove(3)), Err(Errno::ENOENT));
    let clean = Command::CleanGroup { name: "g".to_owned(), states: vec![Down] };
    assert_eq!(w.nodes(1, clean.clone()), []);
    let spec = TestSpec { from: "g".to_owned(), to: "g".to_owned(), ..test(Kind::Ping, None, 1) };
    w.nodes(1, Command::AddTest(spec));
    for command in [clean, remove(2), Command::DelGroup { name: "g".to_owned() }] {
        assert_eq!(w.command(1, command), Err(Errno::EBUSY));
    }
}

#[test]
fn commands_without_sense_are_refused_before_any_request() {
    let mut w = World::new(2);
    assert_eq!(w.command(1, Command::ListGroups), Err(Errno::ESRCH));
    assert_eq!(w.command(1, new_session(&"x".repeat(32), false)), Err(Errno::EINVAL));
    assert_eq!(w.command_as(1, 0, new_session("t", false)), Err(Errno::EINVAL));
    w.session(&[1], &[2]);
    w.requests.clear();
    let large = "fd00::1@tcp".parse().unwrap();
    let add = Command::AddNodes { group: "c".to_owned(), nids: vec![large] };
    assert_eq!(w.command(1, add), Err(Errno::EINVAL), "it has no short form");
    let bad = [
        test(brw(true, 12, Check::None), None, 1),
        test(brw(true, 0, Check::None), None, 1),
        test(brw(true, (1 << 20) + 8, Check::None), None, 1),
        test(Kind::Ping, Some(0), 1),
        test(Kind::Ping, None, 0),
        test(Kind::Ping, None, 1025),
        TestSpec { servers: 2, ..test(Kind::Ping, None, 1) },
        TestSpec { clients: 0, ..test(Kind::Ping, None, 1) },
        test(Kind::Brw(Brw { write: true, size: 4096, offset: 4, check: Check::None }), None, 1),
    ];
    for spec in bad {
        let shown = format!("{spec:?}");
        assert_eq!(w.command(1, Command::AddTest(spec)), Err(Errno::EINVAL), "{shown}");
    }
    let spec = TestSpec { from: "no-such-group".to_owned(), ..test(Kind::Ping, None, 1) };
    assert_eq!(w.command(1, Command::AddTest(spec)), Err(Errno::ENOENT));
    let run = |batch: &str| Command::Run { batch: batch.to_owned(), timeout_s: 0 };
    assert_eq!(w.command(1, run("nope")), Err(Errno::ENOENT));
    assert_eq!(w.command(1, run("batch")), Err(Errno::ENODATA), "it has no tests");
    assert_eq!(w.requests, []);
}

#[test]
fn numbers_of_tests_are_those_of_the_console_also_where_a_node_has_fewer() {
    let mut w = World::new(3);
    w.session(&[1], &[2]);
    w.command(1, Command::AddGroup { name: "d".to_owned() }).unwrap();
    w.nodes(1, Command::AddNodes { group: "d".to_owned(), nids: vec![nid(3)] });
    w.nodes(1, Command::AddTest(test(Kind::Ping, None, 2)));
    w.nodes(1, Command::AddTest(TestSpec { from: "d".to_owned(), ..test(Kind::Ping, None, 5) }));
    w.run_batch();
    w.run(SECOND / 100);
    assert_eq!((w.active(1), w.active(2)), (vec![2], vec![5]));
}

#[test]
fn a_node_can_take_itself_into_a_group() {
    use lnet_wire::ByteOrder;
    use lnet_wire::selftest::{JoinRequest, Message, Name, Request, SessionId};
    let mut w = World::new(2);
    w.command(1, new_session("t", false)).unwrap();
    let group = Name::new("self").unwrap();
    let body = Request::Join(JoinRequest { reply_id: 5, sid: SessionId::NONE, group });
    let bytes = Message { order: ByteOrder::Little, features: 1, body }.emit();
    let now = w.now;
    let lnet = LnetCounters::default();
    let who = nid(2).into();
    w.host(1).machine.request(now, Service::Join, who, nid(1), &bytes, &lnet);
    let Ok(Answer::Group(nodes)) = w.command(1, Command::ShowGroup { name: "self".to_owned() })
    else {
        panic!()
    };
    assert_eq!(nodes, [NodeShown { nid: nid(2), pid: 12345, state: NodeState::Active }]);
}
