//! Nodes that go away, answers that do not come, and data that are wrong.

use std::time::Duration;

use lnet_selftest::*;
use lnet_types::Errno;
use lnet_wire::selftest::Service;

use crate::world::{World, brw, new_session, nid, test};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn damaged_data_are_found_by_either_side_with_either_check_and_only_then() {
    for check in [Check::Simple, Check::Full, Check::None, Check::Discard] {
        for write in [true, false] {
            let mut w = World::new(2);
            w.session(&[1], &[2]);
            // Clients send what is written, servers what is read.
            let sender = if write { 1 } else { 2 };
            w.host(sender).machine.settings_mut().inject_errors = 1;
            w.nodes(1, Command::AddTest(test(brw(write, 4096, check), Some(3), 1)));
            w.run_batch();
            w.run(SECOND);
            let found = u32::from(matches!(check, Check::Simple | Check::Full));
            assert_eq!(w.counters("c")[0].brw_errors, found, "{check:?} write {write}");
            let brws = w.requests.iter().filter(|(s, ..)| *s == Service::Brw).count();
            assert_eq!(brws, if found == 1 { 1 } else { 3 }, "a unit stops at its first error");
        }
    }
}

#[test]
fn a_server_that_goes_away_is_an_error_of_the_test_and_the_console_sees_it_down() {
    let mut w = World::new(3);
    w.session(&[1], &[2]);
    w.nodes(1, Command::AddTest(test(Kind::Ping, None, 4)));
    w.run_batch();
    w.run(SECOND / 10);
    w.down.insert(nid(2));
    w.run(SECOND / 10);
    assert_eq!((w.active(0), w.counters("c")[0].ping_errors), (vec![0], 4));
    let ping = Command::Ping { target: Target::Session, timeout_s: 5 };
    let states: Vec<_> = w.nodes(1, ping).iter().map(|n| (n.nid, n.state)).collect();
    assert!(states.contains(&(nid(2), NodeState::Down)), "{states:?}");
    assert_eq!(w.offers(), 0, "nothing waits for an answer any more");
}

#[test]
fn a_time_limit_of_calls_ends_with_the_session_that_set_it_however_that_ends() {
    let mut w = World::new(2);
    w.session(&[1], &[2]);
    w.command(1, Command::Patience { seconds: 1 }).unwrap();
    // Its program is gone, and another one takes its place.
    w.command(1, new_session("next", true)).unwrap();
    for (group, n) in [("c", 1), ("s", 2)] {
        w.command(1, Command::AddGroup { name: group.to_owned() }).unwrap();
        w.nodes(1, Command::AddNodes { group: group.to_owned(), nids: vec![nid(n)] });
    }
    w.nodes(1, Command::AddTest(test(Kind::Ping, Some(2), 1)));
    w.mute.insert(nid(2));
    w.run_batch();
    w.run(SECOND * 30);
    assert_eq!((w.active(0), w.counters("c")[0].ping_errors), (vec![1], 0), "it waits for 64 s");
}

#[test]
fn a_call_without_answer_ends_with_its_time_limit_and_is_counted() {
    let settings = Settings { rpc_timeout: SECOND * 20, ..Settings::default() };
    let mut w = World::with(2, settings);
    w.session(&[1], &[2]);
    w.nodes(1, Command::AddTest(test(brw(false, 4096, Check::Full), Some(2), 1)));
    w.mute.insert(nid(2));
    w.run_batch();
    w.run(SECOND * 19);
    assert_eq!(w.active(0), [1]);
    w.run(SECOND);
    let stat = w.counters("c")[0];
    assert_eq!((stat.rpcs_expired, stat.brw_errors, stat.rpc_errors), (1, 1, 0));
    assert_eq!((w.active(0), w.offers()), (vec![0], 0));
    w.mute.clear();
    w.run_batch();
    w.run(SECOND);
    assert_eq!(w.counters("c")[0].brw_errors, 1, "it runs again when asked to");
}

#[test]
fn sessions_end_on_nodes_whose_console_is_gone_and_live_while_it_is_there() {
    let mut w = World::new(2);
    w.session(&[1], &[2]);
    // The console asks silent nodes, so that they do not give up (6.7).
    w.run(SECOND * 250);
    assert!(!w.host(2).machine.is_idle());
    let debugs = w.requests.iter().filter(|(s, ..)| *s == Service::Debug).count();
    assert!((6..40).contains(&debugs), "{debugs}: each about every 50 s");
    w.hosts.remove(&nid(1));
    w.run(SECOND * 40);
    assert!(!w.host(2).machine.is_idle());
    w.run(SECOND * 61);
    assert!(w.host(2).machine.is_idle(), "100 s of silence");
}

#[test]
fn a_session_without_commands_ends_by_itself_on_its_nodes_too() {
    let mut w = World::new(2);
    w.session(&[1], &[2]);
    w.nodes(1, Command::AddTest(test(Kind::Ping, Some(1), 1)));
    w.run(SECOND * 299);
    assert!(w.command(1, Command::ShowSession).is_ok(), "looking is no command");
    w.run(SECOND * 2);
    assert_eq!(w.command(1, Command::ShowSession), Err(Errno::ESRCH));
    w.run(SECOND);
    assert!(w.hosts.values().all(|h| h.machine.is_idle()));
}

#[test]
fn more_units_than_the_limit_are_refused_by_the_node() {
    let mut w = World::new(20);
    let servers: Vec<u32> = (2..=20).collect();
    w.session(&[1], &servers);
    let spec = TestSpec { servers: 19, ..test(Kind::Ping, None, 1024) };
    let nodes = w.nodes(1, Command::AddTest(spec));
    let client = nodes.last().unwrap();
    let full = NodeFailure { refused: true, errno: Errno::ENOMEM.0 };
    assert_eq!((client.nid, client.outcome.clone()), (nid(1), Err(full)));
    // Data to be checked at a time are limited, too: two destinations with a GiB each.
    let spec = TestSpec { servers: 2, ..test(brw(false, 1 << 20, Check::Full), None, 1024) };
    let nodes = w.nodes(1, Command::AddTest(spec));
    assert_eq!(nodes.last().unwrap().outcome, Err(full));
    let Ok(Answer::Batch(batch)) = w.command(1, Command::ShowBatch { name: "batch".to_owned() })
    else {
        panic!()
    };
    assert!(batch.tests.is_empty(), "a test without clients is none");
}

#[test]
fn when_the_node_stops_sessions_end_on_both_sides() {
    let mut w = World::new(2);
    w.session(&[1], &[2]);
    w.nodes(1, Command::AddTest(test(Kind::Ping, None, 4)));
    w.run_batch();
    w.run(SECOND / 100);
    let now = w.now;
    w.host(1).machine.stop(now);
    w.run(SECOND);
    assert!(w.hosts.values().all(|h| h.machine.is_idle()));
    assert_eq!(w.offers(), 0);
}
