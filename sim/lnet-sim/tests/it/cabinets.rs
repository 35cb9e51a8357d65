//! Nineteen cabinets, smaller still: what befalls clients of the paper's site in its events.

use core::time::Duration;

use lnet_sim::{ARMS, CabinetSize, EVENTS, SiteRun, cabinets, play_cabinets, unmet};

const SMALL: CabinetSize = CabinetSize { clients: 16, ..CabinetSize::TENTH };
const TWO: CabinetSize = CabinetSize { file_systems: 2, ..CabinetSize::TENTH };

/// Plays an event in an arm, by their names.
fn play(event: &str, arm: &str) -> SiteRun {
    play_of(SMALL, event, arm)
}

fn play_of(size: CabinetSize, event: &str, arm: &str) -> SiteRun {
    let event = EVENTS.iter().find(|e| e.name == event).unwrap();
    let arm = ARMS.iter().find(|a| a.name == arm).unwrap();
    let run = play_cabinets(event, arm, size, 1).unwrap();
    println!("{}, {}: {run}", event.name, arm.name);
    // Crashed clients are gone within 1.5 x obd_timeout, whatever the arm.
    assert!(run.dead_left == 0 && run.dead_gone <= Duration::from_secs(451), "{run}");
    run
}

#[test]
fn each_event_is_a_scenario_in_each_arm() {
    for event in &EVENTS {
        for arm in &ARMS {
            for size in [CabinetSize::TENTH, CabinetSize::FULL, TWO] {
                let [targets, servers] =
                    [size.targets, size.servers].map(|each| each * size.file_systems);
                let read = cabinets(event, arm, size).unwrap();
                assert_eq!(read.rpc.targets.len(), targets as usize, "{}", event.file);
                let of = |name| read.world.groups.iter().find(|g| g.name == name).unwrap().count;
                let counts = (of("client"), of("router"), of("server"));
                assert_eq!(counts, (size.clients, size.routers, servers));
                let loads = read.rpc.loads.iter().map(|load| load.to.len());
                assert_eq!(loads.sum::<usize>(), targets as usize, "{}", arm.name);
            }
        }
    }
    let CabinetSize { clients, routers, .. } = CabinetSize::FULL;
    assert_eq!(clients + 5 + routers, 3648, "slots of nineteen cabinets");
}

#[test]
fn each_claim_that_runs_do_not_bear_out_is_named() {
    let run = |evicted| Some(SiteRun { evicted, ..SiteRun::default() });
    let of = |event: usize, evicted: [usize; 4]| unmet(&EVENTS[event], &evicted.map(run));
    assert_eq!(of(0, [3, 1, 0, 0]), [""; 0]);
    assert_eq!(of(0, [0, 0, 0, 0]), ["A evicts no client"]);
    assert_eq!(of(0, [2, 2, 0, 0]), ["B evicts 2, not fewer than A"]);
    assert_eq!(of(1, [0, 0, 0, 1]), ["D evicts 1 clients that live"]);
    assert_eq!(of(2, [0, 1, 0, 0]), ["B evicts 1, more than A"]);
    let slow = SiteRun { span: Some(Duration::from_secs(101)), ..SiteRun::default() };
    let none = unmet(&EVENTS[2], &[run(0), Some(slow), run(0), run(0)]);
    assert!(matches!(&none[..], [why] if why.contains("longer than its timer")), "{none:?}");
    let kept = SiteRun { dead_left: 1, ..SiteRun::default() };
    let kept = unmet(&EVENTS[1], &[run(0), run(0), run(0), Some(kept)]);
    assert!(matches!(&kept[..], [why] if why.starts_with("D keeps 1 dead")), "{kept:?}");
    // What was not played is no miss, and compared with nothing.
    assert_eq!(unmet(&EVENTS[0], &[None, run(2), None, run(0)]), [""; 0]);
    assert_eq!(unmet(&EVENTS[0], &[run(0), None, None, None]), ["A evicts no client"]);
}

#[test]
fn about_one_client_in_twenty_holds_a_lock_that_another_wants_at_either_size() {
    let full = CabinetSize { clients: 32, routers: 4, servers: 2, ..CabinetSize::FULL };
    let tenth = CabinetSize { clients: 64, ..CabinetSize::TENTH };
    for size in [full, tenth] {
        let run = play_of(size, "a router dies", "C");
        assert!((30..=100).contains(&run.wanted_per_mille), "{size:?}: {run}");
    }
}

#[test]
fn pa088_callbacks_lost_with_a_router_evict_clients_only_if_they_are_not_sent_again() {
    let before = play("a router dies", "A");
    let resent = play("a router dies", "B");
    let advised = play("a router dies", "C");
    assert!(before.evicted > 0, "{before}");
    assert!(resent.evicted < before.evicted, "{resent}");
    assert_eq!(advised.evicted, 0, "{advised}");
}

#[test]
fn pa084_two_quiesces_evict_no_client_that_lives_and_all_are_back_within_140_s() {
    let advised = play("two quiesces", "C");
    assert_eq!(advised.evicted, 0, "{advised}");
    let span = advised.span.unwrap();
    assert!(span < Duration::from_secs(140), "{advised}");
}

/// One seed each; docs/losses.md has a hundred.
#[test]
fn pa152_no_event_evicts_a_client_that_lives_where_the_recommendations_are_followed() {
    for event in &EVENTS {
        let advised = play(event.name, "C");
        assert_eq!(advised.evicted, 0, "{}: {advised}", event.name);
    }
}
