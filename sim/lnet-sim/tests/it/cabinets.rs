//! Nineteen cabinets, smaller still: what befalls clients of the paper's site in its events.

use core::time::Duration;

use lnet_sim::{ARMS, CabinetRun, CabinetSize, EVENTS, cabinets, play_cabinets};

const SMALL: CabinetSize = CabinetSize { clients: 16, names: 12 };

/// Plays an event in an arm, by their names.
fn play(event: &str, arm: &str) -> CabinetRun {
    let event = EVENTS.iter().find(|e| e.name == event).unwrap();
    let arm = ARMS.iter().find(|a| a.name == arm).unwrap();
    let run = play_cabinets(event, arm, SMALL, 1).unwrap();
    println!("{}, {}: {run}", event.name, arm.name);
    // Crashed clients are gone within 1.5 x obd_timeout, whatever the arm.
    assert!(run.dead_left == 0 && run.dead_gone <= Duration::from_secs(451), "{run}");
    run
}

#[test]
fn each_event_is_a_scenario_in_each_arm() {
    for event in &EVENTS {
        for arm in &ARMS {
            let read = cabinets(event, arm, CabinetSize::TENTH);
            assert!(read.is_ok(), "{} {}: {:?}", event.file, arm.name, read.err());
        }
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
