//! Some of the scenarios, cut short: accounts must agree whatever befalls the rails. Times are for
//! the program (`cargo run -p field`) to judge, not for a test. Errors that callers got are counted
//! there too: what was on a rail when it died is not sent again (DEC-6) unless the receiver
//! suppresses duplicates.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use field::options::{directory, read, shorten};
use field::{Figures, Over, Setup, play};
use netns::World;

/// One at a time: they are a load.
static STAGE: Mutex<()> = Mutex::new(());

/// Plays `name` for `seconds`; nothing where hosts can't be made.
fn played(name: &str, seconds: u64) -> Option<Figures> {
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let world =
        World::new(name).map_err(|why| netns::skipped(&format!("scenario {name}"), why)).ok()?;
    let mut all = read(&directory()).unwrap();
    let scenario = all.iter_mut().find(|s| s.name == name).unwrap();
    shorten(scenario, Duration::from_secs(seconds)).unwrap();
    let dir = fresh::path(&format!("short-{name}"));
    let setup = Setup {
        exe: PathBuf::from(env!("CARGO_BIN_EXE_field")),
        dir: dir.clone(),
        over: Over::Lnet,
    };
    let figures = play(world, scenario, &setup).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    eprintln!("{name}: {figures:?}");
    assert!(figures.messages > 0, "{figures:?}");
    Some(figures)
}

/// Nothing came twice, nothing that was acknowledged is missing, no byte is wrong.
fn accounts_agree(figures: &Figures) {
    assert_eq!((figures.duplicates, figures.lost, figures.corrupt), (0, 0, 0), "{figures:?}");
}

#[test]
fn nothing_is_lost_or_doubled_when_the_carrier_of_a_rail_goes() {
    let Some(figures) = played("carrier-down", 7) else { return };
    accounts_agree(&figures);
}

#[test]
fn nothing_is_lost_or_doubled_when_a_rail_becomes_a_black_hole() {
    let Some(figures) = played("black-hole", 8) else { return };
    accounts_agree(&figures);
}

#[test]
fn puts_without_ack_are_neither_lost_nor_doubled_when_a_rail_becomes_a_black_hole() {
    let Some(figures) = played("black-hole-noack", 8) else { return };
    accounts_agree(&figures);
}

#[test]
fn nothing_is_lost_or_doubled_when_connections_are_reset() {
    let Some(figures) = played("reset", 7) else { return };
    accounts_agree(&figures);
}

#[test]
fn nothing_is_lost_or_doubled_when_one_of_two_routers_dies() {
    let Some(figures) = played("router-death", 7) else { return };
    accounts_agree(&figures);
}

#[test]
fn nothing_is_lost_or_doubled_when_all_rails_are_dark_for_five_seconds() {
    let Some(figures) = played("dark-5s", 11) else { return };
    accounts_agree(&figures);
}
