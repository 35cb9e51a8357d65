//! `ulnet lustre` has the habits of the tools that its commands are named after: what a link, a slash or a sign on a
//! command line means, and how options may be spelled.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use crate::stage::Stage;

/// Standard output of a command, what it says on standard error, and its status.
fn all(stage: &Stage, words: &[&str]) -> (String, String, Option<i32>) {
    let o = stage.command(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&o.stdout), text(&o.stderr), o.status.code())
}

#[track_caller]
fn ok(stage: &Stage, words: &[&str]) -> String {
    let (out, err, code) = all(stage, words);
    assert_eq!(code, Some(0), "{words:?}: {out}{err}");
    out
}

#[track_caller]
fn fails(stage: &Stage, words: &[&str], says: &str) {
    let (out, err, code) = all(stage, words);
    assert_eq!(code, Some(1), "{words:?}: {out}{err}");
    assert!(err.contains(says), "{words:?}: {err}");
}

#[track_caller]
fn json(stage: &Stage, words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(stage, &[words, &["--json"]].concat())).unwrap()
}

/// As root of the file system, also where another user runs the test.
const ROOT: [&str; 4] = ["--uid", "0", "--gid", "0"];

#[test]
fn size_with_a_sign_is_relative_and_other_numbers_have_none() {
    let stage = Stage::new("signs", "127.104", |_| ());
    fs::write(stage.dir.join("f"), vec![1; 10_000]).unwrap();
    ok(&stage, &["cp", "./f", "/f"]);
    for (size, after) in [("+4K", 14_096), ("-6K", 7952), ("4K", 4096), ("-1G", 0)] {
        let value = json(&stage, &["truncate", "-s", size, "/f"]);
        assert_eq!(value["size"], after, "{size}");
        assert_eq!(json(&stage, &["stat", "/f"])["size"], after, "{size}");
    }
    for words in [
        &["truncate", "-s", "++4K", "/f"][..],
        &["chmod", "+750", "/f"],
        &["chown", "+7", "/f"],
        &["setstripe", "-S", "+1M", "/g"],
    ] {
        let (_, err, code) = all(&stage, words);
        assert!(code == Some(2) && err.contains("expected"), "{words:?}: {code:?} {err}");
    }
}

#[test]
fn copy_out_replaces_regular_files_alone() {
    use rustix::fs::{CWD, FileType, Mode};
    let stage = Stage::new("replaced", "127.105", |_| ());
    let at = |name: &str| stage.dir.join(name);
    fs::write(at("source"), "new").unwrap();
    ok(&stage, &["mkdir", "/d"]);
    ok(&stage, &["cp", "./source", "/d/f"]);
    // What is no regular file keeps its name.
    rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fails(&stage, &["cp", "/d/f", "./pipe"], "not copied to ./pipe: a pipe has this name");
    assert!(!fs::symlink_metadata(at("pipe")).unwrap().is_file());
    fails(&stage, &["cp", "/d/f", "file:/dev/stdout"], "a pipe has this name: not replaced");
    fails(&stage, &["cp", "/d/f", "file:/dev/null"], "a device has this name: not replaced");
    // A link that is named is written through; one that a directory has is not looked at.
    fs::write(at("real"), "old").unwrap();
    symlink("real", at("through")).unwrap();
    ok(&stage, &["cp", "/d/f", "./through"]);
    assert!(fs::symlink_metadata(at("through")).unwrap().is_symlink());
    assert_eq!(fs::read(at("real")).unwrap(), b"new");
    symlink("nowhere", at("dangling")).unwrap();
    fails(&stage, &["cp", "/d/f", "./dangling"], "destination './dangling': what it leads to");
    assert!(!at("nowhere").exists());
    fs::create_dir(at("into")).unwrap();
    fs::write(at("victim"), "old").unwrap();
    symlink("../victim", at("into/f")).unwrap();
    for words in [&["cp", "/d/f", "./into/"][..], &["cp", "-rT", "/d", "./into"]] {
        fails(&stage, words, "a symbolic link has this name: not replaced");
    }
    assert_eq!(fs::read(at("victim")).unwrap(), b"old");
    // A link takes the place of a link.
    ok(&stage, &["ln", "-s", "f", "/d/l"]);
    fs::remove_file(at("into/f")).unwrap();
    symlink("else", at("into/l")).unwrap();
    ok(&stage, &["cp", "-rT", "/d", "./into"]);
    assert_eq!(fs::read_link(at("into/l")).unwrap().to_str(), Some("f"));
    // A slash says that it is a directory.
    for to in ["./new/", "./new/."] {
        fails(&stage, &["cp", "/d/f", to], "expected a directory");
    }
    assert!(!at("new").exists());
    ok(&stage, &["cp", "-r", "/d", "./new/"]);
    assert_eq!(fs::read(at("new/f")).unwrap(), b"new");
}

#[test]
fn program_that_is_copied_in_runs_as_its_owner_only_where_that_is_kept() {
    let stage = Stage::new("set-id", "127.106", |_| ());
    fs::create_dir(stage.dir.join("t")).unwrap();
    let program = stage.dir.join("t/program");
    fs::write(&program, "some").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    let mode = |place: &str| json(&stage, &["stat", place])["mode"].as_str().unwrap().to_owned();
    ok(&stage, &["mkdir", "-m", "777", "/d"]);
    ok(&stage, &["cp", "./t/program", "/d/plain"]);
    ok(&stage, &["cp", "-r", "./t", "/d/tree"]);
    ok(&stage, &["cp", "-p", "./t/program", "/d/kept"]);
    assert_eq!((mode("/d/plain"), mode("/d/tree/program")), ("0755".into(), "0755".into()));
    assert_eq!(mode("/d/kept"), "6755");
    // One that may not give it to its owner.
    let other = ["--uid", "4711", "--gid", "4711"];
    let value = json(&stage, &[&["cp", "-p", "./t/program", "/d/other"][..], &other].concat());
    assert_ne!(value["not_kept"], 0, "{value}");
    assert_eq!(mode("/d/other"), "0755");
    // The same where the bytes are there from before.
    ok(&stage, &["touch", "--time", "7", "/d/plain"]);
    let value = json(&stage, &["cp", "--resume", "./t/program", "/d/plain"]);
    assert_eq!((&value["skipped"], mode("/d/plain")), (&1.into(), "0755".into()));
}

#[test]
fn link_that_is_named_is_followed_by_a_slash() {
    let stage = Stage::new("links", "127.107", |_| ());
    ok(&stage, &["mkdir", "-p", "/d/e"]);
    ok(&stage, &["touch", "/d/f", "/g"]);
    ok(&stage, &["ln", "-s", "d", "/to"]);
    ok(&stage, &["ln", "-s", "f", "/d/l"]);
    let owner = |place: &str| json(&stage, &["stat", place])["uid"].clone();
    assert_eq!(ok(&stage, &["find", "/to"]), "/to\n");
    assert_eq!(ok(&stage, &["find", "/to", "-type", "l"]), "/to\n");
    let below = ok(&stage, &["find", "/to/", "-mindepth", "1"]);
    assert_eq!(below.lines().count(), 3, "{below}");
    assert_eq!(json(&stage, &["stat", "/to"])["type"], "symbolic link");
    assert_eq!(json(&stage, &["stat", "/to/"])["type"], "directory");
    fails(&stage, &["stat", "/d/l/"], "Not a directory");
    // chown -R gives links themselves to another owner.
    ok(&stage, &[&["chown", "-R", "7:8", "/to"][..], &ROOT].concat());
    assert_eq!((owner("/to"), owner("/d/f")), (7.into(), 0.into()));
    ok(&stage, &[&["chown", "-R", "9", "/to/"][..], &ROOT].concat());
    assert_eq!((owner("/to"), owner("/d")), (7.into(), 9.into()));
    assert_eq!((owner("/d/f"), owner("/d/l")), (9.into(), 9.into()));
    // Without it the file that a link leads to.
    ok(&stage, &[&["chown", "5", "/d/l"][..], &ROOT].concat());
    assert_eq!((owner("/d/f"), owner("/d/l")), (5.into(), 9.into()));
    // A file with a slash behind it is no directory.
    for words in [
        &["rm", "/g/"][..],
        &["rm", "-f", "/g/x", "/d"],
        &["rm", "-r", "/to/"],
        &["mv", "/g/", "/h"],
        &["rmdir", "/g/"],
    ] {
        let (_, err, code) = all(&stage, words);
        assert!(code == Some(1) && err.contains("directory"), "{words:?}: {err}");
    }
    assert_eq!(ok(&stage, &["rm", "-f", "/g/x", "/none/x"]), "");
    assert_eq!(ok(&stage, &["ls", "/", "/d"]), "/:\nd\ng\nto\n\n/d:\ne\nf\nl\n");
}

#[test]
fn name_that_is_moved_to_one_of_its_file_is_removed() {
    let stage = Stage::new("same-file", "127.108", |_| ());
    ok(&stage, &["touch", "/a"]);
    ok(&stage, &["mkdir", "/d"]);
    ok(&stage, &["ln", "/a", "/b"]);
    ok(&stage, &["mv", "/a", "/b"]);
    assert_eq!(ok(&stage, &["ls", "/"]), "b\nd\n");
    assert_eq!(json(&stage, &["stat", "/b"])["nlink"], 1);
    ok(&stage, &["ln", "/b", "/d/b"]);
    ok(&stage, &["mv", "/b", "/d"]);
    assert_eq!(ok(&stage, &["ls", "/", "/d"]), "/:\nd\n\n/d:\nb\n");
    fails(&stage, &["mv", "/d/b", "/d"], "it has this name already");
    fails(&stage, &["mv", "-T", "/d", "/d"], "it has this name already");
    assert_eq!(ok(&stage, &["ls", "/d"]), "b\n");
}

#[test]
fn options_have_their_usual_spellings() {
    let stage = Stage::new("spellings", "127.109", |_| ());
    fs::create_dir(stage.dir.join("t")).unwrap();
    fs::write(stage.dir.join("t/f"), vec![1; 101]).unwrap();
    symlink("f", stage.dir.join("t/l")).unwrap();
    ok(&stage, &["cp", "-R", "./t", "/a"]);
    ok(&stage, &["cp", "-a", "./t", "/b"]);
    assert_eq!(ok(&stage, &["readlink", "/a/l", "/b/l"]), "f\nf\n");
    assert_eq!(ok(&stage, &["ls", "-1", "/a"]), "f\nl\n");
    let larger = |size: &str| ok(&stage, &["find", "/a", "-type", "f", "-size", size]);
    assert_eq!((larger("+100c"), larger("+101c")), ("/a/f\n".into(), String::new()));
    for kind in ["p", "s", "b", "c"] {
        assert_eq!(ok(&stage, &["find", "/a", "-type", kind]), "");
    }
    let (_, err, code) = all(&stage, &["find", "/a", "-name", "[[:alpha:]]"]);
    assert!(code == Some(2) && err.contains("such as [0-9]"), "{err}");
    ok(&stage, &["rm", "-R", "/b"]);
    let times = || {
        let value = json(&stage, &["stat", "/a/f"]);
        (value["atime"].clone(), value["mtime"].clone())
    };
    for (options, time, expected) in [
        (&["-a", "-m"][..], "5", (5, 5)),
        (&["-a"], "7", (7, 5)),
        (&["-m"], "9", (7, 9)),
        (&["-am"], "11", (11, 11)),
    ] {
        ok(&stage, &[&["touch", "/a/f", "--time", time][..], options].concat());
        assert_eq!(times(), (expected.0.into(), expected.1.into()), "{options:?}");
    }
    // As lfs names pools, and the first target of new files.
    ok(&stage, &["setstripe", "-p", "lfs.fast", "-i", "0", "/a"]);
    let layout = &json(&stage, &["getstripe", "/a"])["layout"];
    assert_eq!((&layout["pool"], &layout["stripe_index"]), (&"fast".into(), &0.into()));
    assert!(ok(&stage, &["getstripe", "/a"]).contains("stripe_index: 0"));
    ok(&stage, &["setstripe", "-c", "1", "/a"]);
    assert_eq!(json(&stage, &["getstripe", "/a"])["layout"].get("stripe_index"), None);
    fails(&stage, &["setstripe", "-p", "other.fast", "/a"], "expected one of file system 'lfs'");
    fails(&stage, &["cp", "./t/f", "/g", "--pool", "other.fast"], "expected one of file system");
}

#[test]
fn copy_that_is_there_from_before_gets_what_it_lacks() {
    use std::os::unix::fs::MetadataExt as _;
    let stage = Stage::new("lacks", "127.110", |_| ());
    let at = |name: &str| stage.dir.join(name);
    let write = |name: &str, bytes: &str, mtime: i64| {
        fs::write(at(name), bytes).unwrap();
        let time = rustix::fs::Timespec { tv_sec: mtime, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, at(name), &times, rustix::fs::AtFlags::empty())
            .unwrap();
    };
    write("source", "right", 1000);
    ok(&stage, &["cp", "./source", "/f"]);
    ok(&stage, &["chmod", "640", "/f"]);
    // Out: the same bytes with another time.
    write("copy", "right", 77);
    let value = json(&stage, &["cp", "--resume", "/f", "./copy"]);
    assert_eq!((&value["skipped"], &value["files"]), (&1.into(), &0.into()));
    let meta = fs::metadata(at("copy")).unwrap();
    assert_eq!((meta.mtime(), meta.mode() & 0o7777), (1000, 0o640));
    // Other bytes with the same time are found by --verify alone, on both ways.
    write("copy", "wrong", 1000);
    assert_eq!(json(&stage, &["cp", "--resume", "/f", "./copy"])["skipped"], 1);
    assert_eq!(json(&stage, &["cp", "--resume", "--verify", "/f", "./copy"])["files"], 1);
    assert_eq!(fs::read(at("copy")).unwrap(), b"right");
    write("wrong", "wrong", 1000);
    assert_eq!(json(&stage, &["cp", "--resume", "./wrong", "/f"])["skipped"], 1);
    assert_eq!(json(&stage, &["cp", "--resume", "--verify", "./wrong", "/f"])["files"], 1);
    assert_eq!(ok(&stage, &["cat", "/f"]), "wrong");
    // A time that has not come when the copy was made may be that of a part.
    write("source", "right", 4_000_000_000);
    ok(&stage, &["touch", "--time", "4000000000", "/f"]);
    assert_eq!(json(&stage, &["cp", "--resume", "./source", "/f"])["files"], 1);
    assert_eq!(ok(&stage, &["cat", "/f"]), "right");
}

/// Their depth is of another one's making: no command may end by its stack.
#[test]
fn trees_of_thousands_of_levels_are_copied_and_removed() {
    let stage = Stage::new("deep", "127.111", |_| ());
    ok(&stage, &["mkdir", "-p", &"/d".repeat(2000)]);
    // Each level of a copy here is held open.
    let (_, err, code) = all(&stage, &["cp", "-r", "/d", "./out"]);
    assert!(code == Some(0) || code == Some(1) && err.contains("Too many open files"), "{err}");
    let value = json(&stage, &["rm", "-r", "/d"]);
    assert_eq!((&value["removed"], &value["all"]), (&2000.into(), &true.into()));
    let mut local = stage.dir.clone();
    for _ in 0..1500 {
        local.push("t");
        fs::create_dir(&local).unwrap();
    }
    let value = json(&stage, &["cp", "-r", "./t", "/"]);
    assert_eq!(value["directories"], 1500);
    ok(&stage, &["rm", "-r", "/t"]);
    assert_eq!(ok(&stage, &["ls", "/"]), "");
    // More levels than the library takes away.
    let gone = Command::new("rm").args(["-rf", "out", "t"]).current_dir(&stage.dir).status();
    assert!(gone.unwrap().success());
}
