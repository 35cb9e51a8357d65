//! Source files: a head that says what the file is, one subject, nothing left for later.

use std::path::Path;

use crate::workspace::{crate_files, dir_of, files, root, text};

/// Lines of code, tests not counted, after which a file has a second subject in it.
const LINES_MAX: usize = 1_500;

fn is_test_code(path: &Path) -> bool {
    let mut parts = path.iter().map(|p| p.to_string_lossy());
    parts.any(|p| p == "tests" || p == "tests.rs" || p == "benches" || p == "examples")
}

/// Words that must not be committed. Put together here, so that this file does not hold them.
fn leftovers() -> [String; 8] {
    [
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
        ["db", "g!("].concat(),
        ["#[ig", "nore"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X:"].concat(),
        ["allow(dead", "_code)"].concat(),
        ["allow(un", "used"].concat(),
    ]
}

#[test]
fn every_source_file_says_what_it_is() {
    let mut sources = crate_files("rs");
    sources.extend(files("python", "rs"));
    assert!(sources.len() > 20, "only {} source files found", sources.len());
    let headless: Vec<_> = sources
        .iter()
        // The tests of one file, put beside it for their length, have their head there.
        .filter(|path| path.iter().any(|p| p == "src") && !path.ends_with("tests.rs"))
        .filter(|path| !text(path).trim_start().starts_with("//!"))
        .collect();
    assert!(headless.is_empty(), "no module head (`//!`): {headless:?}");
}

#[test]
fn no_source_file_has_a_second_subject() {
    let mut long = Vec::new();
    for path in crate_files("rs").iter().filter(|path| !is_test_code(path)) {
        let text = text(path);
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().count();
        if lines > LINES_MAX {
            long.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(long.is_empty(), "longer than {LINES_MAX} lines without tests: {long:?}");
}

#[test]
fn nothing_is_left_for_later() {
    let leftovers = leftovers();
    let mut found = Vec::new();
    let outside = [files("fuzz", "rs"), files("python", "rs"), files("python", "py")].concat();
    for path in crate_files("rs").iter().chain(&outside) {
        for (number, line) in text(path).lines().enumerate() {
            if let Some(word) = leftovers.iter().find(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Tests of one binary run in one process: names made of its id alone are shared by two of them.
#[test]
fn tests_get_temporary_paths_from_fresh_alone() {
    // Programs, of which each process has one directory.
    let programs = [
        "testing/field/src/play.rs",
        "testing/fresh/src/lib.rs",
        "tools/lustre/src/bench/servers.rs",
        "tools/lustre/src/obj/bench/servers.rs",
        "tools/ulnet-demo/src/lib.rs",
    ];
    let call = ["temp_", "dir()"].concat();
    let mut with_call: Vec<String> = crate_files("rs")
        .iter()
        .filter(|path| text(path).contains(&call))
        .map(|path| path.display().to_string())
        .collect();
    with_call.sort();
    assert_eq!(with_call, programs, "use fresh::path for a test");
}

#[test]
fn every_crate_takes_the_lints_and_versions_of_the_workspace() {
    let mut wrong = Vec::new();
    for path in crate_files("toml").iter().filter(|p| p.ends_with("Cargo.toml")) {
        let text = text(path);
        if !text.contains("[lints]\nworkspace = true") {
            wrong.push(format!("{}: does not take the workspace's lints", path.display()));
        }
        let mut dependencies = false;
        for line in text.lines() {
            if line.starts_with('[') {
                dependencies = line.contains("dependencies");
            } else if dependencies
                && line.contains('=')
                && !line.contains("workspace = true")
                && !line.contains("path = \".\"")
                && !line.starts_with('#')
            {
                wrong.push(format!("{}: `{line}` has its own version", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pure_crates_ban_clocks_threads_and_random_order() {
    for name in [
        "lnet-types",
        "lnet-wire",
        "lustre-wire",
        "lnet",
        "lnet-config",
        "lnd-ib",
        "lnd-sock",
        "lnet-scenario",
        "lnet-sim",
    ] {
        let dir = dir_of(name).expect("a crate of the workspace");
        let path = format!("{dir}/clippy.toml");
        assert!(root().join(&path).exists(), "{path} is missing");
        let text = text(&path);
        for ban in ["Instant::now", "SystemTime::now", "thread::spawn", "HashMap", "Mutex"] {
            assert!(text.contains(ban), "{path} does not ban {ban}");
        }
    }
}

/// A call that changes a node and is not recorded makes every recording after it worthless.
#[test]
fn every_call_that_changes_a_node_is_recorded() {
    // They take from queues, and what they took is recorded; or they end in one that is.
    let exempt = [
        "poll_event",
        "poll_output",
        "poll_notice",
        "poll_report",
        "poll_spent",
        "poll_lost_connection",
        "take_events",
        "take_outputs",
        "record",
        "reset_stats",
    ];
    let (mut seen, mut silent) = (0, Vec::new());
    let engine = format!("{}/src", dir_of("lnet").expect("the engine"));
    for path in files(&engine, "rs").iter().filter(|path| !is_test_code(path)) {
        let text = text(path);
        for block in text.split("\nimpl Node {\n").skip(1) {
            let block = block.split("\n}\n").next().unwrap_or_default();
            for call in block.split("\n    pub fn ").skip(1) {
                let call = call.split("\n    }\n").next().unwrap_or_default();
                let name = call.split(['(', '<']).next().unwrap_or_default();
                let takes = call.split('{').next().unwrap_or_default();
                if !takes.contains("&mut self") || exempt.contains(&name) {
                    continue;
                }
                seen += 1;
                let noted = ["self.note(", "self.note_made(", "self.note_usual("];
                if !noted.iter().any(|way| call.contains(way)) {
                    silent.push(format!("{}: {name}", path.display()));
                }
            }
        }
    }
    assert!(seen > 40, "only {seen} calls found");
    assert!(silent.is_empty(), "not recorded (see core/lnet/src/record): {silent:?}");
}
