//! One of two rails fails for some seconds between a kernel node and one of ours, under LNet selftest:
//! no operation is lost, and all go on. How fast is for the program to judge
//! (`cargo run -p field -- --only outage`), not for a test.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use field::options::{directory, read};
use field::{Over, Setup, play};
use netns::World;

/// One at a time: they are a load.
static STAGE: Mutex<()> = Mutex::new(());

fn no_operation_is_lost(name: &str) {
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let world = match World::new(name) {
        Ok(world) => world,
        Err(why) => return netns::skipped(&format!("scenario {name}"), why),
    };
    let scenario = read(&directory()).unwrap().into_iter().find(|s| s.name == name).unwrap();
    let dir = fresh::path(&format!("outage-{name}"));
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_field"));
    let setup = Setup { exe, dir: dir.clone(), over: Over::Lnet };
    let figures = play(world, &scenario, &setup).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    eprintln!("{name}: {figures:?}");
    assert!(figures.messages > 0, "{figures:?}");
    // Errors of RPCs, damaged data, calls that never ended.
    assert_eq!((figures.errors, figures.corrupt, figures.lost), (0, 0, 0), "{figures:?}");
    // Every test has completed calls after the rail's return.
    assert!(figures.back.is_some_and(f64::is_finite), "{figures:?}");
}

#[test]
fn no_operation_is_lost_while_the_carrier_of_a_rail_is_gone() {
    no_operation_is_lost("outage-carrier");
}

#[test]
fn no_operation_is_lost_while_a_rail_is_a_black_hole() {
    no_operation_is_lost("outage-hole");
}

#[test]
fn no_operation_is_lost_while_a_rail_is_a_black_hole_one_way() {
    no_operation_is_lost("outage-hole-in");
    no_operation_is_lost("outage-hole-out");
}

#[test]
fn no_operation_is_lost_while_a_rail_loses_packets() {
    no_operation_is_lost("outage-loss");
}
