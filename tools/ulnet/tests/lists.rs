//! `ls`, `find` and `du` of `ulnet lustre` have the words and meanings of the tools that users know, names that
//! are no text come and go as they are, and errors of `mv`, `ln` and `cp` name both sides.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use lustre_rt::{Opcode, Served};

use crate::stage::Stage;

/// Standard output of a command that succeeds.
#[track_caller]
fn out(stage: &Stage, words: &[&str]) -> Vec<u8> {
    let o = stage.command(words).output().unwrap();
    assert!(o.status.success(), "{words:?}: {}", String::from_utf8_lossy(&o.stderr));
    o.stdout
}

#[track_caller]
fn text(stage: &Stage, words: &[&str]) -> String {
    String::from_utf8(out(stage, words)).unwrap()
}

fn json(stage: &Stage, words: &[&str]) -> serde_json::Value {
    serde_json::from_slice(&out(stage, &[words, &["--json"]].concat())).unwrap()
}

/// A file of this machine of a size, changed so many seconds ago.
fn file(path: &Path, size: usize, age: u64) {
    fs::write(path, vec![1; size]).unwrap();
    let time = SystemTime::now() - Duration::from_secs(age);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn ls_has_the_options_of_ls() {
    let stage = Stage::new("ls", "127.70", |_| ());
    let d = stage.dir.join("d");
    fs::create_dir_all(d.join("in/deep")).unwrap();
    for (name, size, age) in [("old", 3000, 9000), ("new", 10, 10), (".dot", 20_000, 500)] {
        file(&d.join(name), size, age);
    }
    file(&d.join("in/f"), 1, 1);
    stage.ok(&["cp", "-r", "./d", "/"]);
    let ls = |words: &[&str]| text(&stage, &[&["ls"], words].concat());
    assert_eq!(ls(&["/d"]), "in\nnew\nold\n");
    assert_eq!(ls(&["-A", "/d"]), ".dot\nin\nnew\nold\n");
    assert_eq!(ls(&["-a", "/d"]), ".\n..\n.dot\nin\nnew\nold\n");
    assert_eq!(ls(&["-r", "/d"]), "old\nnew\nin\n");
    assert_eq!(ls(&["-d", "/d", "/d/new"]), "/d\n/d/new\n");
    assert!(ls(&["-ld", "/d"]).starts_with("drwx"));
    assert_eq!(ls(&["-R", "/d"]), "/d:\nin\nnew\nold\n\n/d/in:\ndeep\nf\n\n/d/in/deep:\n");
    let files = |listed: String| -> Vec<String> {
        listed.lines().filter(|l| *l != "in").map(ToOwned::to_owned).collect()
    };
    assert_eq!(files(ls(&["-At", "/d"])), ["new", ".dot", "old"]);
    assert_eq!(files(ls(&["-Atr", "/d"])), ["old", ".dot", "new"]);
    assert_eq!(files(ls(&["-AS", "/d"])), [".dot", "old", "new"]);
    let sizes = ls(&["-lhA", "/d"]);
    assert!(
        sizes.contains(" 20K ") && sizes.contains(" 3.0K ") && sizes.contains(" 10 "),
        "{sizes}"
    );
    let long = ls(&["-la", "/d"]);
    assert!(long.lines().next().unwrap().ends_with(" ."), "{long}");
    let rows = json(&stage, &["ls", "-R", "/d"]);
    assert_eq!((&rows[1]["name"], &rows[1]["contents"][1]["name"]), (&"/d/in".into(), &"f".into()));
}

#[test]
fn find_finds_what_find_finds() {
    let stage = Stage::new("find", "127.71", |_| ());
    let d = stage.dir.join("d");
    fs::create_dir_all(d.join("a/b/c")).unwrap();
    fs::create_dir_all(d.join("none")).unwrap();
    const DAY: u64 = 86_400;
    for (name, size, age) in [
        ("now", 0, 20),
        ("a/minutes", 5, 150),
        ("a/day", 0, DAY + 500),
        ("a/b/two", 7, 2 * DAY + 500),
        ("a/b/c/month", 9000, 31 * DAY),
    ] {
        file(&d.join(name), size, age);
    }
    stage.ok(&["cp", "-r", "./d", "/"]);
    let of = |bytes: &[u8], end: u8| -> BTreeSet<String> {
        let text = bytes.split(|byte| *byte == end).filter(|path| !path.is_empty());
        text.map(|path| String::from_utf8(path.to_vec()).unwrap()).collect()
    };
    for words in [
        &["-maxdepth", "1"][..],
        &["-maxdepth", "0"],
        &["-mindepth", "2"],
        &["-mindepth", "1", "-maxdepth", "2", "-type", "f"],
        &["-type", "f", "-mtime", "0"],
        &["-type", "f", "-mtime", "+0"],
        &["-type", "f", "-mtime", "1"],
        &["-type", "f", "-mtime", "-2"],
        &["-type", "f", "-mtime", "+7"],
        &["-type", "f", "-mmin", "1"],
        &["-type", "f", "-mmin", "-3"],
        &["-type", "f", "-mmin", "+2"],
        &["-empty"],
        &["-empty", "-type", "d"],
        &["-name", "m*", "-print0"],
    ] {
        let end = if words.contains(&"-print0") { 0 } else { b'\n' };
        let expected = Command::new("find").arg("d").args(words).current_dir(&stage.dir).output();
        let expected =
            of(&expected.unwrap().stdout, end).into_iter().map(|path| format!("/{path}"));
        let found = of(&out(&stage, &[&["find", "/d"], words].concat()), end);
        assert_eq!(found, expected.collect(), "{words:?}");
    }
    // Those that were changed at the same second are not newer.
    let newer = text(&stage, &["find", "/d", "-type", "f", "-newer", "/d/a/day"]);
    let newer: BTreeSet<&str> = newer.lines().collect();
    assert_eq!(newer, BTreeSet::from(["/d/a/minutes", "/d/now"]));
    let (err, code) = stage.run(&["find", "/d", "-newer", "/none"]);
    assert!(
        code == Some(1) && err.contains("newer than '") && err.contains("No such file"),
        "{err}"
    );
    let (err, code) = stage.run(&["find", "/d", "-mtime", "x"]);
    assert!(code == Some(2) && err.contains("such as 7, +7 or -7"), "{err}");
}

#[test]
fn du_shows_each_directory_with_what_is_below_it() {
    let stage = Stage::new("du", "127.72", |_| ());
    let d = stage.dir.join("d");
    fs::create_dir_all(d.join("a/b")).unwrap();
    for (name, size) in [("f", 1 << 20), ("a/g", 2 << 20), ("a/b/h", 4 << 20)] {
        file(&d.join(name), size, 5);
    }
    fs::hard_link(d.join("a/g"), d.join("a/again")).unwrap();
    stage.ok(&["cp", "-r", "./d", "/"]);
    let du = |words: &[&str]| -> Vec<(u64, String)> {
        let text = text(&stage, &[&["du"], words].concat());
        let line = |line: &str| {
            let (size, path) = line.split_once('\t').unwrap();
            (size.parse().unwrap(), path.to_owned())
        };
        text.lines().map(line).collect()
    };
    let all = du(&["/d"]);
    let paths: Vec<&str> = all.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, ["/d/a/b", "/d/a", "/d"]);
    let mib = |n: usize| all[n].0 / 1024;
    assert_eq!((mib(0), mib(1), mib(2)), (4, 6, 7), "a second name counts once: {all:?}");
    assert_eq!(du(&["-d", "1", "/d"]), all[1..]);
    assert_eq!(du(&["-s", "/d"]), all[2..]);
    let human = text(&stage, &["du", "-sh", "/d"]);
    assert!(human.ends_with("M\t/d\n"), "{human}");
    let value = json(&stage, &["du", "/d"]);
    assert_eq!(value["space"], all[2].0 * 1024);
    assert_eq!(value["directories"][1]["name"], "/d/a");
}

/// Bytes that are no UTF-8, and characters that are orders for a terminal.
#[test]
fn names_that_are_no_text_come_in_and_go_out_as_they_are() {
    let stage = Stage::new("bytes", "127.73", |_| ());
    let names: [&[u8]; 2] = [b"a\xff\xfe", b"b\x1b[2J\n"];
    for name in names {
        fs::write(stage.dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let ok = |words: &[&[u8]]| {
        let mut command = stage.command(&[&String::from_utf8_lossy(words[0])]);
        let o = command.args(words[1..].iter().map(|w| OsStr::from_bytes(w))).output().unwrap();
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
        o.stdout
    };
    ok(&[b"mkdir", b"/d\xff"]);
    ok(&[b"cp", b"./a\xff\xfe", b"./b\x1b[2J\n", b"/d\xff/"]);
    assert_eq!(ok(&[b"ls", b"/d\xff"]), b"a\xff\xfe\nb\x1b[2J\n\n");
    assert_eq!(ok(&[b"find", b"/d\xff", b"-print0", b"-name", b"a\xff*"]), b"/d\xff/a\xff\xfe\0");
    assert_eq!(ok(&[b"cat", b"/d\xff/a\xff\xfe"]), names[0]);
    let rows: serde_json::Value =
        serde_json::from_slice(&ok(&[b"ls", b"/d\xff", b"--json"])).unwrap();
    assert_eq!((&rows[0]["name"], &rows[0]["name_hex"]), (&"a\\xff\\xfe".into(), &"61fffe".into()));
    assert_eq!((&rows[1]["name"], rows[1].get("name_hex")), (&"b\u{1b}[2J\n".into(), None));
    ok(&[b"ln", b"-s", b"to\xff", b"/d\xff/l"]);
    assert_eq!(ok(&[b"readlink", b"/d\xff/l"]), b"to\xff\n");
    ok(&[b"mv", b"/d\xff/a\xff\xfe", b"/d\xff/c\xfd"]);
    assert_eq!(
        ok(&[b"du", b"-s", b"/d\xff"]).rsplit(|b| *b == b'\t').next(),
        Some(&b"/d\xff\n"[..])
    );
    ok(&[b"cp", b"-r", b"/d\xff", b"."]);
    let copy = stage.dir.join(OsStr::from_bytes(b"d\xff")).join(OsStr::from_bytes(b"c\xfd"));
    assert_eq!(fs::read(copy).unwrap(), names[0]);
    // Each row of JSON has the bytes of each name.
    for (words, field, bytes) in [
        (&[&b"touch"[..], b"/d\xff/t\xff"][..], "name_hex", "2f64ff2f74ff"),
        (&[b"truncate", b"-s", b"1", b"/d\xff/t\xff"], "name_hex", "2f64ff2f74ff"),
        (&[b"chmod", b"600", b"/d\xff/t\xff"], "name_hex", "2f64ff2f74ff"),
        (&[b"chown", b"0", b"/d\xff/t\xff", b"--uid", b"0"], "name_hex", "2f64ff2f74ff"),
        (&[b"sum", b"/d\xff/t\xff"], "name_hex", "2f64ff2f74ff"),
        (&[b"getstripe", b"/d\xff/t\xff"], "name_hex", "2f64ff2f74ff"),
        (&[b"setstripe", b"-c", b"1", b"/d\xff"], "name_hex", "2f64ff"),
        (&[b"tree", b"/d\xff"], "name_hex", "2f64ff"),
        (&[b"readlink", b"/d\xff/l"], "link_hex", "746fff"),
        (&[b"stat", b"/d\xff/l"], "link_hex", "746fff"),
        (&[b"ln", b"/d\xff/t\xff", b"/d\xff/u\xff"], "target_hex", "2f64ff2f74ff"),
        (&[b"mv", b"/d\xff/u\xff", b"/d\xff/v\xff"], "from_hex", "2f64ff2f75ff"),
        (&[b"mv", b"/d\xff/v\xff", b"/d\xff/w\xff"], "to_hex", "2f64ff2f77ff"),
        (&[b"mkdir", b"/d\xff/m\xff"], "name_hex", "2f64ff2f6dff"),
        (&[b"rmdir", b"/d\xff/m\xff"], "name_hex", "2f64ff2f6dff"),
        (&[b"rm", b"/d\xff/t\xff", b"/d\xff/w\xff"], "name_hex", "2f64ff2f74ff"),
    ] {
        let out = ok(&[words, &[b"--json"]].concat());
        let row: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let row = row.get(0).unwrap_or(&row);
        assert_eq!(row[field], bytes, "{words:?}: {row}");
    }
    let rows: serde_json::Value =
        serde_json::from_slice(&ok(&[b"ls", b"-l", b"/d\xff/l", b"--json"])).unwrap();
    assert_eq!(rows[0]["link_hex"], "746fff");
    let mut command = stage.command(&["cp", "--json"]);
    let o = command.args([b"./none\xff", &b"/d\xff/"[..]].map(OsStr::from_bytes)).output().unwrap();
    let account: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(account["failed"][0]["path_hex"], "2e2f6e6f6e65ff", "{account}");
    // Errors and terminals have text.
    let mut command = stage.command(&["stat"]);
    let o = command.arg(OsStr::from_bytes(b"/d\xff/none")).output().unwrap();
    let err = String::from_utf8(o.stderr).unwrap();
    assert!(err.starts_with("ulnet lustre: /d\\xff/none: No such file"), "{err}");
    ok(&[b"rm", b"-r", b"/d\xff"]);
}

#[test]
fn errors_of_commands_with_two_sides_name_both() {
    let stage = Stage::new("sides", "127.74", |_| ());
    fs::create_dir_all(stage.dir.join("here/sub")).unwrap();
    fs::write(stage.dir.join("source"), "x").unwrap();
    stage.ok(&["mkdir", "-p", "/d/full/x", "/e"]);
    stage.ok(&["cp", "./source", "/f"]);
    let fails = |words: &[&str], says: &str| {
        let (err, code) = stage.run(words);
        assert!(code == Some(1) && err.contains(says), "{words:?}: {err}");
    };
    fails(&["mv", "/f", "/none/g"], "/f: not moved to /none/g: /none: No such file or directory");
    fails(&["mv", "/e", "/d/full/x/none/y"], "/e: not moved to /d/full/x/none/y: ");
    fails(&["mv", "/none", "/g"], "ulnet lustre: /none: No such file or directory");
    fails(&["ln", "/f", "/none/g"], "/f: not linked as /none/g: /none: No such file");
    fails(&["ln", "-s", "text", "/f"], "text: no symbolic link /f: File exists");
    fails(&["cp", "./source", "/none/g"], "./source: not copied to /none/g: /none: No such file");
    fs::create_dir_all(stage.dir.join("here/f")).unwrap();
    fails(&["cp", "/f", "./here"], "/f: not copied to ./here/f: Is a directory");
    let (err, code) = stage.run(&["ls", "/", "--net", "foo"]);
    assert!(
        code == Some(2) && err.contains("network 'foo': expected a tcp network, such as tcp1"),
        "{err}"
    );
    let (err, _) = stage.run(&["ls", "/", "--net", "o2ib"]);
    assert!(err.contains("expected a tcp network, such as tcp1"), "{err}");
}

/// Counted at the server: how many requests wait there at a time, while each waits for a second.
#[test]
fn gentle_command_has_one_request_at_a_time_at_each_target() {
    let stage = Stage::new("gentle", "127.76", |_| ());
    fs::create_dir_all(stage.dir.join("d")).unwrap();
    for n in 0..6 {
        fs::write(stage.dir.join("d").join(n.to_string()), "some").unwrap();
    }
    stage.ok(&["cp", "-r", "./d", "/"]);
    stage.delay();
    let most = |words: &[&str]| {
        let mut child = stage.command(words).stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut most = 0;
        loop {
            let (services, _) = stage.rpc.services().unwrap();
            most = services.iter().map(|service| service.queued).fold(most, usize::max);
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{words:?}");
                return most;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let words = ["find", "/d", "-size", "+1K"];
    assert_eq!(most(&[&words[..], &["--gentle"]].concat()), 1);
    let usual = most(&words);
    assert!(usual >= 4, "{usual} without --gentle");
}

#[test]
fn names_of_files_of_which_nothing_is_known_are_listed() {
    let stage = Stage::new("unknown", "127.116", |_| ());
    fs::write(stage.dir.join("source"), "some").unwrap();
    stage.ok(&["mkdir", "-p", "/d/e"]);
    stage.ok(&["cp", "./source", "/d/f"]);
    assert!(stage.rpc.remove_target(crate::stage::OST, Duration::ZERO).unwrap());
    let ls = |words: &[&str]| -> String {
        let words = [&["ls", "/d", "--timeout", "3"], words].concat();
        let o = stage.command(&words).output().unwrap();
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert!(o.status.code() == Some(1) && err.contains("f: lfs-OST0000_UUID"), "{err}");
        String::from_utf8(o.stdout).unwrap()
    };
    let long = ls(&["-l"]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with("drwx") && lines[0].ends_with(" e"), "{long}");
    assert!(lines[1].contains("?????????   ? ") && lines[1].ends_with(" ? f"), "{long}");
    assert_eq!(ls(&["-S"]), "e\nf\n");
    let rows: serde_json::Value = serde_json::from_str(&ls(&["-l", "--json"])).unwrap();
    assert_eq!((&rows[0]["name"], &rows[1]["name"]), (&"e".into(), &"f".into()));
    assert!(rows[1]["error"].as_str().unwrap().contains("not in service"), "{rows}");
    assert_eq!(rows[1].get("size"), None);
}

/// A directory with more names than one request brings; the second request is refused.
#[test]
fn what_of_a_directory_could_be_read_is_shown_copied_and_removed() {
    const FILES: usize = 4500;
    let pages = Arc::new(AtomicI64::new(i64::MAX));
    let left = Arc::clone(&pages);
    let names = move |served: &mut Served| {
        if served.opcode == Opcode::MDS_READPAGE && left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            served.opcode = Opcode(9999);
        }
    };
    let stage = Stage::of("unread", "127.117", 1, |_| (), Some(names));
    let long = "n".repeat(240);
    fs::create_dir(stage.dir.join("d")).unwrap();
    for n in 0..FILES {
        fs::write(stage.dir.join(format!("d/{long}{n:04}")), "").unwrap();
    }
    stage.ok(&["cp", "-r", "./d", "/"]);
    let part = |words: &[&str]| -> String {
        pages.store(1, Ordering::SeqCst);
        let o = stage.command(words).output().unwrap();
        pages.store(i64::MAX, Ordering::SeqCst);
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert!(o.status.code() == Some(1) && err.contains("/d: "), "{words:?}: {err}");
        String::from_utf8(o.stdout).unwrap()
    };
    let count = part(&["ls", "/d"]).lines().count();
    assert!((1000..FILES).contains(&count), "{count}");
    assert_eq!(part(&["ls", "-U", "/d"]).lines().count(), count);
    assert_eq!(part(&["find", "/d", "-maxdepth", "1"]).lines().count(), 1 + count);
    assert!(part(&["tree", "/d", "--depth", "1"]).lines().count() == 1 + count);
    let rows: serde_json::Value = serde_json::from_str(&part(&["ls", "/d", "--json"])).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), count);
    part(&["cp", "-r", "/d", "./out"]);
    assert_eq!(fs::read_dir(stage.dir.join("out")).unwrap().count(), count);
    part(&["rm", "-r", "/d"]);
    assert_eq!(text(&stage, &["ls", "/d"]).lines().count(), FILES - count);
}
