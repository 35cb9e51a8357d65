//! Objects and locks over real processes, in the short form: two servers behind two routers, eight clients,
//! one of them stopped, one killed. All of it: `cargo run -p field -- --objects`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::PathBuf;

use field::{ObjectsSetup, ObjectsTimes, play_objects};
use netns::World;

#[test]
fn accounts_of_objects_and_locks_agree_when_holders_servers_routers_and_a_disk_fail() {
    let world = match World::new("objects") {
        Ok(world) => world,
        Err(why) => return netns::skipped("objects over real processes", why),
    };
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_field"));
    let dir = fresh::path("field-objects");
    let setup = ObjectsSetup { exe, dir: dir.clone(), times: ObjectsTimes::SHORT };
    let figures = play_objects(world, &setup).unwrap();
    eprint!("{}", figures.table());
    assert!(figures.hold(), "{}", figures.table());
    assert!(figures.writes > 100 && figures.lines > 100, "{}", figures.table());
    assert_eq!(figures.evicted, [6], "the client that was stopped: {}", figures.table());
    // Of a test that fails the accounts and logs stay.
    std::fs::remove_dir_all(dir).unwrap();
}
