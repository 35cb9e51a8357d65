//! What a destination is taken for: `cp`, `mv` and `ln` of `ulnet lustre` do as the commands of that name do
//! with directories, with `-T`, and with sources that end with `/.`.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::stage::Stage;

/// What a command prints.
#[track_caller]
fn ok(stage: &Stage, words: &[&str]) -> String {
    let o = stage.command(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, err) = (text(o.stdout), text(o.stderr));
    assert!(o.status.success(), "{words:?}: {out}{err}");
    out
}

#[track_caller]
fn fails(stage: &Stage, words: &[&str], says: &str) {
    let (err, code) = stage.run(words);
    assert_eq!(code, Some(1), "{words:?}: {err}");
    assert!(err.contains(says), "{words:?}: {err}");
}

/// Names below a place of the file system.
fn names(stage: &Stage, place: &str) -> String {
    let found = ok(stage, &["find", place]);
    let mut names: Vec<_> = found.lines().collect();
    names.sort_unstable();
    names.join(" ")
}

/// Names in a directory of this machine.
fn here(stage: &Stage, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(stage.dir.join(dir)).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn directory_that_is_there_gets_a_copy_or_is_the_copy() {
    let stage = Stage::new("destination", "127.102", |_| {});
    fs::create_dir_all(stage.dir.join("src/sub")).unwrap();
    for name in ["src/a", "src/sub/b"] {
        fs::write(stage.dir.join(name), name).unwrap();
    }
    let copied = "/d /d/a /d/sub /d/sub/b";
    // The first time the destination is made, with a slash behind it or not.
    ok(&stage, &["cp", "-r", "./src", "/d"]);
    ok(&stage, &["cp", "-r", "./src", "/e/"]);
    assert_eq!(names(&stage, "/d"), copied);
    assert_eq!(names(&stage, "/e"), copied.replace("/d", "/e"));
    // Each of these is the same copy again, and nothing is left to copy.
    for words in [&["-rT", "./src"][..], &["-r", "./src/."], &["-r", "./src/sub/.."]] {
        let account = ok(&stage, &[&["cp", "--resume", "--json"], words, &["/d"]].concat());
        let account: serde_json::Value = serde_json::from_str(&account).unwrap();
        assert_eq!(account["skipped"], 2, "{words:?}: {account}");
        assert_eq!(names(&stage, "/d"), copied, "{words:?}");
    }
    ok(&stage, &["cp", "-r", "./src/.", "/new"]);
    assert_eq!(names(&stage, "/new"), copied.replace("/d", "/new"));
    ok(&stage, &["cp", "-r", "./src", "/new"]);
    assert!(names(&stage, "/new").contains("/new/src/sub/b"));
    // The root has no name in another directory, and stays open to all.
    fs::set_permissions(stage.dir.join("src/sub"), fs::Permissions::from_mode(0o700)).unwrap();
    ok(&stage, &["cp", "-rT", "./src/sub", "/"]);
    assert_eq!(ok(&stage, &["cat", "/b"]), "src/sub/b");
    let mode = |place: &str| ok(&stage, &["ls", "-ld", place]).chars().take(10).collect::<String>();
    assert_eq!((mode("/d/sub"), mode("/")), ("drwxr-xr-x".into(), "drwxr-xr-x".into()));
    // What gets a content stays what it is; what is the copy gets what its source has, also when it goes on.
    ok(&stage, &["cp", "-r", "./src/sub/.", "/d/sub"]);
    assert_eq!(mode("/d/sub"), "drwxr-xr-x");
    ok(&stage, &["cp", "-rT", "--resume", "./src/sub", "/d/sub"]);
    assert_eq!(mode("/d/sub"), "drwx------");
    // Out.
    for words in [&["-r", "/d"][..], &["-rT", "/d"], &["-r", "/d/."]] {
        ok(&stage, &[&["cp"], words, &["./out"]].concat());
        assert_eq!(here(&stage, "out"), ["a", "sub"], "{words:?}");
    }
    ok(&stage, &["cp", "-r", "/d", "./out"]);
    assert_eq!(here(&stage, "out"), ["a", "d", "sub"]);
    // What can't be.
    for words in [&["cp", "-T", "./src/a", "/d"][..], &["cp", "-T", "/d/a", "./out"]] {
        fails(&stage, words, "expected a name that no directory has");
    }
    for verb in ["cp", "mv", "ln"] {
        fails(&stage, &[verb, "-T", "/d/a", "/d/sub/b", "/e"], "expected one source, got 2");
    }
}

#[test]
fn new_name_takes_the_place_of_an_empty_directory() {
    let stage = Stage::new("new-name", "127.103", |_| {});
    ok(&stage, &["mkdir", "/a", "/a/x", "/b", "/c"]);
    ok(&stage, &["mv", "-T", "/a", "/b"]);
    assert_eq!(names(&stage, "/"), "/ /b /b/x /c");
    fails(&stage, &["mv", "-T", "/c", "/b"], "Directory not empty");
    fails(&stage, &["ln", "-sT", "text", "/c"], "File exists");
    ok(&stage, &["ln", "-s", "text", "/c"]);
    assert_eq!(ok(&stage, &["readlink", "/c/text"]).trim_end(), "text");
}
