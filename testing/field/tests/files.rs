//! Files over real processes in their small form: three nodes with servers, eight clients, a tree of 300
//! files in and out, and faults meanwhile. All of it: `cargo run -p field -- --files`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::PathBuf;

use field::{FilesSetup, Size, play_files, tools};
use netns::World;

#[test]
fn files_and_names_are_as_expected_when_servers_die_stop_and_lose_a_rail() {
    let what = "files over real processes";
    if let Err(why) = tools() {
        return netns::skipped(what, why);
    }
    let world = match World::new("files") {
        Ok(world) => world,
        Err(why) => return netns::skipped(what, why),
    };
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_field"));
    let dir = fresh::path("field-files");
    let setup = FilesSetup { ulnet: exe.clone(), exe, dir: dir.clone(), size: Size::Small };
    let figures = play_files(world, &setup).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    eprint!("{}", figures.table());
    assert!(figures.hold(), "{}", figures.table());
    let ops = |place: usize| figures.rows[place].score.ops;
    // Bytes, bytes in turns, names; all of it read again; a copy in, a copy out, a comparison.
    assert_eq!(figures.rows.len(), 9);
    assert!(ops(0) > 20 && ops(1) > 0 && ops(2) > 20, "{}", figures.table());
    assert!(ops(6) > 300 && ops(6) == ops(7), "{}", figures.table());
}
