//! Silent clients, by our rule and by the kernel's.

use lustre_wire::{ImportKind, Opcode};

use super::bench::{APPEND, Bench, ECHO, append_log, keeper};
use super::raw::connect;
use crate::{Event, Evictor, ImportState, Tunables};

/// A bench by one of the rules, with its client connected.
fn bench_by(evictor: Evictor) -> Bench {
    let mut bench = Bench::new(append_log());
    bench.party_of(bench.server, |p, _| {
        let tunables = Tunables { evictor, ..p.ptlrpc.tunables().clone() };
        p.ptlrpc.set_tunables(tunables);
    });
    let call = bench.call(Bench::say(ECHO, "connect"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench
}

fn clients(bench: &mut Bench) -> Vec<String> {
    let views = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    views.into_iter().map(|view| view.client).collect()
}

#[test]
fn a_client_whose_pings_are_lost_but_not_its_requests_stays() {
    // PA-015. Requests of other kinds than pings arrive each 100 s.
    for evictor in [Evictor::Own, Evictor::Kernel] {
        let mut bench = bench_by(evictor);
        let request = ImportKind::Osc.portals().0.0;
        for _ in 0..8 {
            // The ping after 25 s is lost, and what comes of that until the next request.
            bench.lose(move |portal, n| portal == request && n <= 1);
            bench.secs(100);
            bench.loses = None;
            let call = bench.call(Bench::say(APPEND, "sign of life"));
            assert!(bench.end_of(call).unwrap().is_ok());
        }
        assert!(!bench.states().contains(&ImportState::Evicted), "{evictor:?}");
    }
}

#[test]
fn a_client_that_was_silent_for_149_seconds_stays_and_one_second_later_it_is_gone() {
    // DEC-42: what counts is the arrival.
    let mut bench = bench_by(Evictor::Own);
    connect(&mut bench, "client-x");
    assert_eq!(clients(&mut bench).len(), 2);
    bench.secs(149);
    assert_eq!(clients(&mut bench).len(), 2);
    bench.secs(1);
    assert_eq!(clients(&mut bench), ["client-1"]);
}

#[test]
fn by_the_kernels_rule_a_request_of_one_client_evicts_another_that_was_silent_for_150_seconds() {
    let mut bench = bench_by(Evictor::Kernel);
    connect(&mut bench, "client-x");
    bench.secs(149);
    assert_eq!(clients(&mut bench).len(), 2);
    // The next ping of the other comes at 150 s.
    bench.secs(1);
    assert_eq!(clients(&mut bench), ["client-1"]);
    let gone = |e: &Event| matches!(e, Event::Evicted { client, .. } if client == "client-x");
    assert!(bench.heard().iter().any(gone));
}

#[test]
fn by_the_kernels_rule_a_dead_net_evicts_no_client() {
    let mut bench = bench_by(Evictor::Kernel);
    let call = bench.call(Bench::say(APPEND, "held"));
    assert!(bench.end_of(call).unwrap().is_ok());
    connect(&mut bench, "client-x");
    bench.lose(|_, _| true);
    bench.secs(1000);
    assert_eq!(clients(&mut bench).len(), 2);
    bench.loses = None;
    // It is back; the other is given 185 s more, since it may be that all have been cut off.
    bench.secs(60);
    assert_eq!((clients(&mut bench).len(), bench.states().last()), (2, Some(&ImportState::Full)));
    assert!(!bench.states().contains(&ImportState::Evicted));
    bench.secs(200);
    assert_eq!(clients(&mut bench), ["client-1"]);
    let late = bench.call(Bench::say(Opcode(20_001), "goes on"));
    assert!(bench.end_of(late).unwrap().is_ok());
}

#[test]
fn a_change_of_the_rule_takes_effect_for_clients_that_are_connected() {
    let mut bench = bench_by(Evictor::Kernel);
    bench.lose(|_, _| true);
    bench.secs(300);
    assert_eq!(clients(&mut bench).len(), 1);
    bench.party_of(bench.server, |p, _| p.ptlrpc.set_tunables(Tunables::default()));
    bench.secs(1);
    assert_eq!(clients(&mut bench).len(), 0);
}

#[test]
fn target_that_is_removed_refuses_what_it_has_under_way_and_evicts_no_client() {
    let mut bench = Bench::new(keeper());
    let call = bench.call(Bench::say(ECHO, "kept"));
    bench.settle();
    assert_eq!(bench.kept().len(), 1);
    let busy = |bench: &mut Bench| {
        let views = bench.party_of(bench.server, |p, _| p.ptlrpc.service_views());
        views.iter().map(|view| view.busy + view.queued).sum::<usize>()
    };
    assert_eq!(busy(&mut bench), 1);
    let removed = bench.party_of(bench.server, |p, below| {
        let target = p.ptlrpc.target_views(below.now())[0].id;
        let mut rpc = p.ptlrpc.rpc(below);
        (rpc.remove_target(target), rpc.remove_target(target))
    });
    assert_eq!(removed, (true, false));
    assert_eq!((clients(&mut bench).len(), busy(&mut bench)), (0, 0));
    assert!(!bench.heard().iter().any(|e| matches!(e, Event::Evicted { .. })));
    // The call goes on: another start, or a partner, may still serve it.
    bench.secs(60);
    assert!(!bench.states().contains(&ImportState::Evicted));
    assert_eq!(bench.end_of(call), None);
}
