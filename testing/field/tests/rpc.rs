//! Some of the scenarios under `ulnet rpc bench`: eight nodes with clients, two servers of one target. No
//! call fails, none is executed twice or lost, and clients and servers have the same account of every
//! key. All of them: `cargo run -p field -- --rpc`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use field::options::{directory, shorten};
use field::{Over, Setup, play_rpc, read_rpc, rpc_table};
use netns::World;

/// One at a time: they are a load.
static STAGE: Mutex<()> = Mutex::new(());

fn accounts_agree(name: &str, seconds: u64) {
    let _alone = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let world = match World::new(name) {
        Ok(world) => world,
        Err(why) => return netns::skipped(&format!("scenario {name} under requests"), why),
    };
    let mut scenario = read_rpc(&directory().join(format!("{name}.toml"))).unwrap();
    shorten(&mut scenario, Duration::from_secs(seconds)).unwrap();
    let dir = fresh::path(&format!("field-rpc-{name}"));
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_field"));
    let setup = Setup { exe, dir: dir.clone(), over: Over::Lnet };
    let figures = play_rpc(world, &scenario, &setup).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    eprint!("{}", rpc_table(std::slice::from_ref(&figures)));
    assert!(figures.hold(), "{figures:?}");
    assert!(figures.calls > 100, "{figures:?}");
}

#[test]
fn accounts_of_requests_agree_when_a_rail_becomes_a_black_hole() {
    accounts_agree("black-hole", 10);
}

#[test]
fn accounts_of_requests_agree_when_all_rails_are_dark_for_five_seconds() {
    accounts_agree("dark-5s", 11);
}

#[test]
fn accounts_of_requests_agree_when_one_of_two_routers_dies() {
    accounts_agree("router-death", 10);
}

#[test]
fn accounts_of_requests_agree_when_both_servers_are_killed_and_come_back() {
    accounts_agree("node-restart", 10);
}
