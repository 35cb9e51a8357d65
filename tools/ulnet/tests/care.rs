//! What commands of `ulnet lustre` refuse, so that nothing is lost that the user did not name.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::fs::symlink;

use crate::stage::Stage;

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

#[test]
fn link_that_is_named_without_r_is_copied_as_the_file_that_it_leads_to() {
    let stage = stage("followed", "127.56");
    fs::write(stage.dir.join("f"), b"data").unwrap();
    symlink("f", stage.dir.join("latest")).unwrap();
    symlink("none", stage.dir.join("dangling")).unwrap();
    stage.ok(&["mkdir", "/d"]);
    stage.ok(&["cp", "./latest", "/d/"]);
    let o = stage.command(&["cat", "/d/latest"]).output().unwrap();
    assert_eq!(o.stdout, b"data", "{}", String::from_utf8_lossy(&o.stderr));
    let (err, code) = stage.run(&["cp", "./dangling", "/d/"]);
    assert!(code == Some(1) && err.contains("No such file"), "{err}");
    // With -r links are kept.
    stage.ok(&["cp", "-r", "./latest", "./dangling", "/d/"]);
    let o = stage.command(&["readlink", "/d/latest", "/d/dangling"]).output().unwrap();
    assert_eq!(o.stdout, b"f\nnone\n");
    // The way out.
    stage.ok(&["cp", "./f", "/d/f"]);
    fs::create_dir(stage.dir.join("out")).unwrap();
    stage.ok(&["cp", "/d/latest", "./out/"]);
    let there = fs::symlink_metadata(stage.dir.join("out/latest")).unwrap();
    assert!(there.is_file());
    stage.ok(&["cp", "-r", "/d/latest", "./out/link"]);
    assert!(fs::symlink_metadata(stage.dir.join("out/link")).unwrap().is_symlink());
}

#[test]
fn json_names_what_keeps_a_whole_command_from_its_work() {
    let stage = stage("no-visit", "127.58");
    fs::write(stage.dir.join("f"), b"x").unwrap();
    let other = "127.58.0.1@tcp:/other";
    let place = format!("{other}/a");
    for words in [
        &["df", other][..],
        &["check", other],
        &["cp", "./f", &place],
        &["cp", &place, "./g"],
        &["mv", &place, &format!("{other}/b")],
        &["ln", &place, &format!("{other}/b")],
    ] {
        let o = stage.command(&[words, &["--json"]].concat()).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap_or_default();
        let error = value["error"].as_str().unwrap_or_default();
        assert!(o.status.code() == Some(1) && error.contains("'other'"), "{words:?}: {value}");
    }
}

#[test]
fn name_with_a_slash_behind_makes_no_file() {
    let stage = stage("slash", "127.59");
    for words in [&["touch", "/new/"][..], &["setstripe", "/new/", "--stripe-count", "1"]] {
        let (err, code) = stage.run(words);
        assert!(code == Some(1) && err.contains("no directory"), "{words:?}: {code:?} {err}");
    }
    assert_eq!(stage.run(&["stat", "/new"]).1, Some(1));
}

#[test]
fn find_begins_with_what_is_named_and_ls_shows_links() {
    let stage = stage("named", "127.60");
    let lines = |words: &[&str]| {
        let o = stage.command(words).output().unwrap();
        assert!(o.status.success(), "{words:?}: {}", String::from_utf8_lossy(&o.stderr));
        String::from_utf8(o.stdout).unwrap()
    };
    stage.ok(&["mkdir", "/d"]);
    stage.ok(&["touch", "/d/f"]);
    stage.ok(&["ln", "-s", "/none", "/d/l"]);
    stage.ok(&["ln", "-s", "d", "/to"]);
    // As find(1).
    assert_eq!(lines(&["find", "/d/", "-type", "d"]), "/d\n");
    assert_eq!(lines(&["find", "/d/f"]), "/d/f\n");
    assert_eq!(lines(&["find", "/", "-name", "d"]), "/d\n");
    assert!(lines(&["find", "/"]).starts_with("/\n/"));
    // As ls(1).
    let long = lines(&["ls", "-l", "/d"]);
    assert!(long.lines().any(|line| line.ends_with(" l -> /none")), "{long}");
    assert!(lines(&["ls", "-l", "/d/l"]).ends_with(" /d/l -> /none\n"));
    assert_eq!(lines(&["ls", "/d/l"]), "/d/l\n");
    assert!(lines(&["ls", "-l", "/to"]).ends_with(" /to -> d\n"));
    assert_eq!((lines(&["ls", "/to"]), lines(&["ls", "/to/"])), ("f\nl\n".into(), "f\nl\n".into()));
    let rows: serde_json::Value =
        serde_json::from_str(&lines(&["ls", "-l", "/d", "--json"])).unwrap();
    assert_eq!((&rows[1]["link"], rows[0].get("link")), (&"/none".into(), None));
}

#[test]
fn times_of_links_are_kept_both_ways() {
    use std::os::unix::fs::MetadataExt as _;
    let stage = stage("link-times", "127.61");
    fs::create_dir(stage.dir.join("t")).unwrap();
    symlink("none", stage.dir.join("t/l")).unwrap();
    let at = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: at(5), last_modification: at(7) };
    let follow = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    let link = stage.dir.join("t/l");
    rustix::fs::utimensat(rustix::fs::CWD, &link, &times, follow).unwrap();
    stage.ok(&["cp", "-r", "./t", "/"]);
    let o = stage.command(&["stat", "/t/l", "--json"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(value["mtime"], 7);
    stage.ok(&["cp", "-r", "/t", "./out"]);
    assert_eq!(fs::symlink_metadata(stage.dir.join("out/l")).unwrap().mtime(), 7);
}

#[test]
fn default_layout_of_a_directory_may_be_a_pool_alone() {
    let stage = stage("pool", "127.62");
    stage.ok(&["mkdir", "/d"]);
    stage.ok(&["setstripe", "/d", "--pool", "fast"]);
    let shown = || {
        let o = stage.command(&["getstripe", "/d", "--json"]).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        value["layout"]["pool"].clone()
    };
    assert_eq!(shown(), "fast");
    stage.ok(&["setstripe", "/d", "--delete"]);
    assert_eq!(shown(), serde_json::Value::Null);
}

#[test]
fn directory_on_a_metadata_target_that_is_not_there_is_not_made() {
    let stage = stage("chosen", "127.63");
    stage.ok(&["mkdir", "-i", "0", "/here"]);
    let (err, code) = stage.run(&["mkdir", "-i", "7", "/there"]);
    assert!(code == Some(1) && err.contains("MDT 7: the configuration has none"), "{code:?} {err}");
    let (err, code) = stage.run(&["mkdir", "-i", "0,1", "-c", "3", "/there"]);
    assert!(code == Some(1) && err.contains("--mdt-count 3: expected 2"), "{code:?} {err}");
    for (words, expected) in [
        (["mkdir", "-H", "crush", "/there"], "--mdt-hash without --mdt-count"),
        (["mkdir", "-i", "1,0,1", "/there"], "--mdt-index 1: expected each index once"),
    ] {
        let (err, code) = stage.run(&words);
        assert!(code == Some(1) && err.contains(expected), "{words:?}: {code:?} {err}");
    }
    assert_eq!(stage.run(&["stat", "/there"]).1, Some(1));
    let o = stage.command(&["getstripe", "/here", "--json"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let here = serde_json::json!({ "mdt": 0, "stripe_count": 0, "hash": null, "stripes": [] });
    assert_eq!(
        (&value["directory"], &value["directory_default"]),
        (&here, &serde_json::Value::Null)
    );
    for (words, expected) in [
        (&["mkdir", "-c", "0", "/there"][..], "expected 1 to 2000, or -1 for all"),
        (&["mkdir", "-i", "0,", "/there"], "INDEX"),
        (&["mkdir", "-c", "2", "-H", "md5", "/there"], "all_char, fnv_1a_64, crush, crush2"),
    ] {
        let (err, code) = stage.run(words);
        assert!(code == Some(2) && err.contains(expected), "{words:?}: {code:?} {err}");
    }
}

#[test]
fn target_out_of_service_is_named_with_what_each_of_its_nodes_has_said() {
    let stage = stage("service", "127.68");
    fs::write(stage.dir.join("source"), "some").unwrap();
    stage.ok(&["cp", "./source", "/f"]);
    assert!(stage.rpc.remove_target(crate::stage::OST, std::time::Duration::ZERO).unwrap());
    let (err, code) = stage.run(&["cat", "/f", "--timeout", "3"]);
    let says = "lfs-OST0000_UUID: not in service: 127.68.0.1@tcp does not serve it (-19)";
    assert!(code == Some(1) && err.contains(says), "{err}");
    // Nothing listens at this one.
    let mut command = stage.command(&["ls", "127.68.0.9@tcp:/lfs", "--timeout", "3"]);
    let err = String::from_utf8(command.output().unwrap().stderr).unwrap();
    let says = "MGS: no answer in time: 127.68.0.9@tcp has not answered";
    assert!(err.contains(says), "{err}");
    // Of several nodes each is named.
    let place = "127.68.0.9@tcp:127.68.0.8@tcp:/lfs";
    let err = stage.run(&["ls", place, "--timeout", "6"]).0;
    assert!(err.contains("127.68.0.9@tcp") && err.contains("; 127.68.0.8@tcp"), "{err}");
}
