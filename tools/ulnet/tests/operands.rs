//! Commands of `ulnet lustre` with several places of one file system visit it once: each target has one
//! connection of theirs.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use lustre_rt::Served;

use crate::stage::Stage;

#[test]
fn operands_of_one_file_system_share_its_connections() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let clients = Arc::clone(&seen);
    let hook = move |served: &mut Served| {
        clients.lock().unwrap().insert(format!("{:?}", served.export));
    };
    let stage = Stage::new("operands", "127.46", hook);
    fs::write(stage.dir.join("source"), b"some").unwrap();
    for name in ["/a", "/b", "/c"] {
        stage.ok(&["cp", "./source", name]);
    }
    // The metadata target has a connection to each object target, which has no part in these.
    let count = |words: &[&str]| {
        seen.lock().unwrap().clear();
        stage.ok(words);
        seen.lock().unwrap().len()
    };
    for verb in ["cat", "sum", "stat", "du", "truncate"] {
        let more: &[&str] = if verb == "truncate" { &["--size", "3"] } else { &[] };
        assert_eq!(count(&[&[verb, "/a", "/b", "/c"], more].concat()), 1, "{verb}");
    }
    let full = |name: &str| format!("127.46.0.1@tcp:/lfs{name}");
    assert_eq!(count(&["sum", &full("/a"), &full("/b"), "/c"]), 1, "however they are written");
}
