//! Imperative recovery: word that a target has started again makes its import connect at once (P-154).

use lnet::{Found, OpId, Report};
use lnet_types::Nid;
use lustre_wire::{ImportKind, OpFlags, Opcode};

use super::bench::{APPEND, Bench, ECHO, data};
use super::script::{Said, config, scripted};
use crate::{Call, Event, ImportState, ImportView};

fn view(bench: &mut Bench) -> ImportView {
    let import = bench.import;
    bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).unwrap()
}

fn restarted(bench: &mut Bench, nid: Nid, instance: u32) -> bool {
    let import = bench.import;
    let begun = bench.rpc(bench.client, |rpc| rpc.restarted(import, nid, instance));
    bench.settle();
    begun
}

fn connected() -> Bench {
    let mut bench = Bench::stored();
    let call = bench.call(Bench::say(APPEND, "a=1"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench
}

#[test]
fn an_import_in_use_connects_and_recovers_without_waiting_for_a_timeout() {
    let mut bench = connected();
    bench.crash_server();
    let before = bench.now;
    assert!(restarted(&mut bench, Nid::LOOPBACK, 2));
    assert_eq!(bench.now, before);
    let seen = view(&mut bench);
    assert_eq!((seen.state, seen.conn_cnt), (ImportState::Full, 2));
    assert_eq!(bench.store(|store, _| store.now().log.len()), 1, "and has repeated what was lost");
}

#[test]
fn an_import_that_knows_this_incarnation_does_nothing() {
    let mut bench = connected();
    let known = view(&mut bench).granted.instance;
    assert!(!restarted(&mut bench, Nid::LOOPBACK, known));
    assert_eq!(view(&mut bench).conn_cnt, 1);
}

#[test]
fn a_connect_to_a_node_that_does_not_answer_gives_way_to_the_node_that_serves_now() {
    let mut bench = connected();
    bench.lose(|_, _| true);
    let call = bench.call(Bench::say(ECHO, "lost"));
    bench.secs(20);
    assert_eq!(view(&mut bench).state, ImportState::Connecting);
    // It is being tried anyway.
    assert!(!restarted(&mut bench, Nid::LOOPBACK, 2));
    let elsewhere: Nid = "10.0.0.9@tcp".parse().unwrap();
    assert!(restarted(&mut bench, elsewhere, 2));
    let seen = view(&mut bench);
    assert_eq!(seen.connections.len(), 2);
    let tried = seen.connections.iter().find(|c| c.nid == elsewhere).unwrap();
    assert_eq!(tried.attempts, 1);
    // The next attempt goes where the target was.
    bench.loses = None;
    bench.secs(60);
    assert_eq!(view(&mut bench).state, ImportState::Full);
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn a_second_restart_ends_what_was_sent_to_the_first_one() {
    let mut bench = connected();
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.replays_locks(import, true));
    bench.crash_server();
    assert!(restarted(&mut bench, Nid::LOOPBACK, 2));
    assert_eq!(view(&mut bench).state, ImportState::ReplayLocks);
    bench.lose(|_, _| true);
    let lock = Bench::say(Opcode::LDLM_ENQUEUE, "one");
    let lock = bench.rpc(bench.client, |rpc| rpc.replay_lock(import, lock)).unwrap();
    bench.settle();
    bench.loses = None;
    bench.crash_server();
    assert!(restarted(&mut bench, Nid::LOOPBACK, 3));
    assert!(bench.end_of(lock).unwrap().is_err());
    let seen = view(&mut bench);
    assert_eq!((seen.state, seen.conn_cnt), (ImportState::ReplayLocks, 3));
    let asked = bench.party_of(bench.client, |party, _| {
        party.events.iter().filter(|e| matches!(e, Event::ReplayLocks { .. })).count()
    });
    assert_eq!(asked, 2);
    bench.rpc(bench.client, |rpc| rpc.locks_replayed(import));
    bench.settle();
    assert_eq!(view(&mut bench).state, ImportState::Full);
}

#[test]
fn an_import_without_a_connection_is_left_alone() {
    let mut bench = Bench::stored();
    assert!(!restarted(&mut bench, Nid::LOOPBACK, 2));
    assert_eq!(view(&mut bench).state, ImportState::New);
}

/// LNet loses its connection to the server's node.
fn connection_lost(bench: &mut Bench) {
    bench.party_of(bench.client, |p, below| {
        let primary = below.node().primary_of(Nid::LOOPBACK);
        p.ptlrpc.connection_lost(primary, below);
    });
    bench.settle();
}

#[test]
fn dec48_a_lost_connection_to_a_server_that_has_restarted_makes_its_import_recover_at_once() {
    let mut bench = connected();
    bench.lose(|_, _| true);
    let call = bench.call(Bench::say(APPEND, "b=2"));
    bench.loses = None;
    bench.crash_server();
    let before = bench.now;
    connection_lost(&mut bench);
    assert_eq!((bench.now, view(&mut bench).state), (before, ImportState::Full));
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(bench.store(|store, _| store.now().log.len()), 2);
}

#[test]
fn dec48_a_server_that_is_the_same_as_before_costs_a_ping_and_nothing_else() {
    let mut bench = connected();
    let sent = bench.sent;
    connection_lost(&mut bench);
    assert_eq!((bench.sent - sent, view(&mut bench).conn_cnt), (2, 1));
}

#[test]
fn dec48_other_profiles_wait_for_their_deadlines() {
    let mut bench = connected();
    bench.crash_server();
    let sent = bench.sent;
    bench.party_of(bench.client, |p, _| {
        p.ptlrpc.set_tunables(crate::Tunables::of(lnet::Profile::Kernel));
    });
    connection_lost(&mut bench);
    assert_eq!(bench.sent, sent);
}

#[test]
fn dec48_a_request_of_a_recovery_that_went_to_a_dead_process_is_not_waited_for() {
    let mut bench = connected();
    bench.crash_server();
    // A ping, a connect, their answers; the replay after them is lost with the process.
    bench.lose(|_, n| n > 4);
    connection_lost(&mut bench);
    assert_eq!(view(&mut bench).state, ImportState::Replay);
    bench.loses = None;
    bench.crash_server();
    connection_lost(&mut bench);
    // The answer may be on its way: not before a second has passed.
    assert_eq!(view(&mut bench).state, ImportState::Replay);
    bench.secs(1);
    assert_eq!(view(&mut bench).state, ImportState::Full);
}

#[test]
fn dec48_a_restart_that_costs_no_connection_of_lnet_is_found_by_a_probe_after_a_second() {
    let mut bench = connected();
    bench.lose(|_, _| true);
    let call = bench.call(Bench::say(APPEND, "b=2"));
    bench.loses = None;
    bench.crash_server();
    bench.secs(1);
    assert_eq!(view(&mut bench).state, ImportState::Full);
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(bench.store(|store, _| store.now().log.len()), 2);
}

#[test]
fn dec48_a_server_that_is_back_later_is_found_when_its_absence_has_doubled() {
    let mut bench = connected();
    bench.lose(|_, _| true);
    let call = bench.call(Bench::say(APPEND, "b=2"));
    // Probes after 1, 3 and 7 s.
    bench.secs(6);
    bench.loses = None;
    bench.crash_server();
    assert_eq!(view(&mut bench).conn_cnt, 1);
    bench.secs(1);
    assert_eq!((view(&mut bench).state, view(&mut bench).conn_cnt), (ImportState::Full, 2));
    assert!(bench.end_of(call).unwrap().is_ok());
}

/// Messages of the 20 s in which a server works on a call; one is an early reply at 6 s.
fn sent_while_a_call_waits(tunables: Option<crate::Tunables>) -> (u64, ImportView) {
    let mut bench = Bench::new(super::bench::append_log());
    let call = bench.call(Bench::say(ECHO, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    if let Some(tunables) = tunables {
        bench.party_of(bench.client, |p, _| p.ptlrpc.set_tunables(tunables));
    }
    let server = bench.server;
    bench.program(server, super::bench::keeper());
    bench.call(Bench::say(ECHO, "slow"));
    let before = bench.sent;
    bench.secs(20);
    (bench.sent - before, view(&mut bench))
}

#[test]
fn dec48_probes_of_a_call_that_takes_long_get_rarer_and_change_nothing() {
    let (sent, seen) = sent_while_a_call_waits(None);
    let wanted = (1 + 2 * 4, ImportState::Full, 1);
    assert_eq!((sent, seen.state, seen.conn_cnt), wanted, "at 1 and 3, 10 and 18 s");
    let kernel = crate::Tunables::of(lnet::Profile::Kernel);
    assert_eq!(sent_while_a_call_waits(Some(kernel)).0, 1);
}

/// How often another node of a target is tried that LNet finds 3 s after a call that is not answered.
fn tries_of_a_partner(answers_pings: bool, resend: bool) -> u32 {
    let partner: Nid = "10.9.9.9@tcp".parse().unwrap();
    let mut both = config(ImportKind::Osc, data());
    both.nids.push(partner);
    let mut bench = scripted(crate::Tunables::default(), both, move |asked| {
        let known = if asked.body.handle == 0 { OpFlags::empty() } else { OpFlags::RECONNECT };
        match asked.body.opcode {
            _ if asked.connects() => vec![Said::connected(7, known, data())],
            Opcode::OBD_PING if answers_pings => vec![Said::status(0)],
            _ => vec![],
        }
    });
    bench.call(Call { resend, ..Bench::say(ECHO, "one") });
    bench.secs(3);
    for op in 0..100 {
        let found =
            Found { asked: partner, primary: partner, multi_rail: false, nids: vec![partner] };
        let report = Report { op: OpId(op), outcome: Ok(found) };
        bench.party_of(bench.client, |p, below| p.ptlrpc.report(&report, below));
    }
    bench.settle();
    let connections = view(&mut bench).connections;
    connections.iter().find(|c| c.nid == partner).unwrap().attempts
}

#[test]
fn dec48_a_silent_server_is_left_for_a_partner_that_answers() {
    assert_eq!(tries_of_a_partner(false, true), 1);
}

#[test]
fn dec48_a_server_that_answers_pings_is_not_left_for_its_partner() {
    assert_eq!(tries_of_a_partner(true, true), 0);
}

#[test]
fn dec48_a_server_is_not_left_while_a_call_waits_that_may_not_go_again() {
    assert_eq!(tries_of_a_partner(false, false), 0);
}
