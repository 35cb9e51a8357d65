//! What commands of `ulnet lustre` refuse, so that nothing is lost that the user did not name.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod stage;

use stage::Stage;

fn stage(name: &str, net: &str) -> Stage {
    Stage::new(name, net, |_| ())
}

#[test]
fn what_dots_stand_for_is_neither_removed_nor_renamed() {
    let stage = stage("dots", "127.54");
    stage.ok(&["mkdir", "-p", "/a/b/c", "/d"]);
    stage.ok(&["touch", "/a/b/f"]);
    for words in [
        &["rm", "-r", "/d/.."][..],
        &["rm", "-rf", "/a/b/.."],
        &["rm", "-r", "/a/b/."],
        &["rm", "-r", "/a/b/../"],
        &["rmdir", "/d/."],
        &["rmdir", "/a/b/c/../../../d/."],
        &["mv", "/a/b/..", "/moved"],
        &["mv", "/a/.", "/moved"],
    ] {
        let (err, code) = stage.run(words);
        assert!(code == Some(1) && err.contains("'..'"), "{words:?}: {code:?} {err}");
    }
    for path in ["/a/b/f", "/a/b/c", "/d"] {
        stage.ok(&["stat", path]);
    }
    // Dots on the way are no harm.
    stage.ok(&["rm", "-r", "/d/../a/./b"]);
    assert_eq!(stage.run(&["stat", "/a/b"]).1, Some(1));
}

#[test]
fn file_system_of_the_environment_with_a_path_is_refused() {
    let stage = stage("variable", "127.55");
    stage.ok(&["mkdir", "-p", "/old", "/project/old"]);
    let mut command = stage.command(&["rm", "-r", "/old"]);
    let o = command.env("ULNET_LUSTRE", "127.55.0.1@tcp:/lfs/project").output().unwrap();
    let err = String::from_utf8_lossy(&o.stderr);
    assert!(!o.status.success() && err.contains("without a path"), "{err}");
    stage.ok(&["stat", "/old", "/project/old"]);
    let mut command = stage.command(&["ls", "/old"]);
    let o = command.env("ULNET_LUSTRE", "lfs").output().unwrap();
    let err = String::from_utf8_lossy(&o.stderr);
    assert!(err.contains("ULNET_LUSTRE") && err.contains("such as"), "{err}");
}
