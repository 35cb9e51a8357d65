//! `ulnet serve --fs` as a process over the loopback, and `ulnet lustre` as its client: a file system of
//! our own shows its targets and its root, also after SIGKILL.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server; dropping it is SIGKILL.
struct Server(Child, Lines<BufReader<ChildStdout>>);

impl Server {
    fn start(words: &[&str], nid: &str, port: &str) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg("serve")
            .args(words)
            .args(["--listen", nid, "--port", port])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    fn file_system(dir: &Path, osts: &str, nid: &str, port: &str) -> Self {
        let words = ["--fs", "lfs", dir.to_str().unwrap(), "--osts", osts];
        let mut server = Self::start(&words, nid, port);
        server.wait_for("lfs-MDT0000_UUID: serving");
        server
    }

    fn wait_for(&mut self, what: &str) {
        let line = self.1.by_ref().map_while(Result::ok).find(|line| line.contains(what));
        assert!(line.is_some(), "the server never said '{what}'");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `ulnet lustre`: what it prints on both streams, and its status.
fn lustre(words: &[&str]) -> (String, String, Option<i32>) {
    let o = Command::new(PROGRAM).arg("lustre").args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(o.stdout), text(o.stderr), o.status.code())
}

fn ok(words: &[&str]) -> String {
    let (out, err, code) = lustre(words);
    assert_eq!(code, Some(0), "{words:?}: {out}{err}");
    out
}

#[test]
fn a_file_system_of_one_process_shows_its_targets_and_its_root() {
    let scratch = Scratch::new("one");
    let nid = "127.94.0.1@tcp";
    let way = ["--port", "7994", "--source", "127.94.0.2"];
    let place = "127.94.0.1@tcp:/lfs";
    let with = |words: &[&'static str]| [words, &way[..]].concat();
    let server = Server::file_system(&scratch.0, "4", nid, "7994");
    let df = ok(&with(&["df", place]));
    for target in ["lfs-MDT0000_UUID", "lfs-OST0000_UUID", "lfs-OST0003_UUID"] {
        assert!(df.contains(target), "{df}");
    }
    assert_eq!(ok(&with(&["ls", place])), "");
    let root = ok(&with(&["stat", place]));
    assert!(root.contains("directory") && root.contains("0x200000007:0x1:0x0"), "{root}");
    let (_, err, code) = lustre(&with(&["ls", "127.94.0.1@tcp:/none"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("file system 'none'"), "{err}");
    let (_, err, code) = lustre(&with(&["cat", "127.94.0.1@tcp:/lfs/missing"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("missing"), "{err}");
    drop(server);
    let server = Server::file_system(&scratch.0, "5", nid, "7994");
    assert!(ok(&with(&["df", place])).contains("lfs-OST0004_UUID"));
    drop(server);
    // An object target less would take data away.
    let dir = scratch.0.to_str().unwrap();
    let words = ["serve", "--fs", "lfs", dir, "--osts", "4", "--listen", nid, "--port", "7994"];
    let o = Command::new(PROGRAM).args(words).output().unwrap();
    let err = String::from_utf8(o.stderr).unwrap();
    assert!(err.contains("--osts 4") && err.contains("has 5"), "{err}");
    assert_eq!(o.status.code(), Some(1));
}

#[test]
fn targets_of_a_file_system_are_served_one_by_one() {
    let scratch = Scratch::new("each");
    let (meta, data) = ("127.95.0.1@tcp", "127.95.0.2@tcp");
    let text = format!("lfs-MDT0000_UUID {meta}\nlfs-OST0000_UUID {data}\n");
    for dir in ["mgs", "mdt"] {
        let dir = scratch.0.join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("targets"), &text).unwrap();
    }
    let at = |name: &str| scratch.0.join(name).display().to_string();
    let ost = format!("lfs-OST0000_UUID=ost:{}", at("ost"));
    let mut second = Server::start(&[&ost], data, "7995");
    second.wait_for("serving");
    let (mgs, mdt) =
        (format!("MGS=mgs:{}", at("mgs")), format!("lfs-MDT0000_UUID=mdt:{}", at("mdt")));
    let mut first = Server::start(&[&mgs, &mdt], meta, "7995");
    first.wait_for("lfs-MDT0000_UUID: serving");
    let way = ["--port", "7995", "--source", "127.95.0.3"];
    let df = ok(&[&["df", "127.95.0.1@tcp:/lfs"], &way[..]].concat());
    assert!(df.contains("lfs-MDT0000_UUID") && df.contains("lfs-OST0000_UUID"), "{df}");
    // A name that is not in the description.
    let other = format!("lfs-MDT0001_UUID=mdt:{}", at("mdt"));
    drop(first);
    let words = ["serve", &other, "--listen", meta, "--port", "7995"];
    let o = Command::new(PROGRAM).args(words).output().unwrap();
    let err = String::from_utf8(o.stderr).unwrap();
    assert!(err.contains("expected 'lfs-MDT0000_UUID'"), "{err}");
}

#[test]
fn directories_are_on_two_metadata_targets_also_after_sigkill() {
    let scratch = Scratch::new("two");
    let (nid, port) = ("127.96.0.1@tcp", "7996");
    let way = ["--port", port, "--source", "127.96.0.2"];
    let at = |path: &str| format!("127.96.0.1@tcp:/lfs{path}");
    let dir = scratch.0.join("store").display().to_string();
    let serve = |mdts: &str| {
        let words = ["--fs", "lfs", &dir, "--mdts", mdts, "--osts", "2"];
        let mut server = Server::start(&words, nid, port);
        server.wait_for("lfs-MDT0000_UUID: serving");
        server
    };
    let run = |words: &[&str]| lustre(&[words, &way[..]].concat());
    let done = |words: &[&str]| ok(&[words, &way[..]].concat());
    let server = serve("2");
    for shown in [done(&["df", &at("/")]), done(&["check", &at("/")])] {
        assert!(shown.contains("MDT0000") && shown.contains("MDT0001"), "{shown}");
    }
    let local = scratch.0.join("file");
    std::fs::write(&local, "remote\n").unwrap();
    let local = local.to_str().unwrap();
    done(&["mkdir", "-i", "1", &at("/r")]);
    assert!(done(&["getstripe", &at("/r")]).contains("mdt: 1"));
    done(&["mkdir", &at("/r/sub")]);
    done(&["cp", local, &at("/r/file")]);
    done(&["cp", local, &at("/file")]);
    drop(server);
    let server = serve("2");
    assert_eq!(done(&["ls", &at("/r")]), "file\nsub\n");
    assert_eq!(done(&["cat", &at("/r/file")]), "remote\n");
    assert!(done(&["stat", &at("/r/file")]).contains("0x24000040"));
    // Names do not go from one target to the other: files are copied, all that they have with them.
    done(&["ln", &at("/r/file"), &at("/r/sub/again")]);
    done(&["ln", "-s", "file", &at("/r/sub/link")]);
    done(&["chmod", "0640", &at("/r/file")]);
    done(&["touch", "--time", "1000000000", &at("/r/file")]);
    let moved: serde_json::Value =
        serde_json::from_str(&done(&["mv", "--json", &at("/r/sub"), &at("/moved")])).unwrap();
    assert_eq!(moved["copied"], true, "{moved}");
    assert_eq!(done(&["ls", &at("/moved")]), "again\nlink\n");
    assert_eq!(done(&["readlink", &at("/moved/link")]).trim(), "file");
    assert_eq!(done(&["cat", &at("/moved/again")]), "remote\n");
    assert_eq!(done(&["ls", &at("/r")]), "file\n");
    // A file takes the name of another one, a directory that of an empty one, which another target has.
    done(&["mv", &at("/moved/again"), &at("/r/file")]);
    let stat: serde_json::Value =
        serde_json::from_str(&done(&["stat", "--json", &at("/r/file")])).unwrap();
    assert_eq!(stat["nlink"], 1, "{stat}");
    assert_eq!(stat["mtime"], 1_000_000_000, "{stat}");
    assert!(done(&["stat", &at("/r/file")]).contains("0640"));
    done(&["mkdir", "-i", "1", &at("/empty")]);
    done(&["mv", &at("/moved"), &at("/r/")]);
    // An empty directory gives its name away, whichever target has it; one that is not empty does not.
    done(&["mv", &at("/r/moved"), &at("/empty/moved")]);
    done(&["mkdir", "-p", &at("/local/moved"), &at("/other")]);
    done(&["mkdir", "-i", "1", &at("/other/moved"), &at("/full")]);
    done(&["mkdir", "-p", &at("/full/moved/sub")]);
    done(&["mv", &at("/empty/moved"), &at("/local")]);
    done(&["mv", &at("/local/moved"), &at("/other")]);
    let (_, err, code) = run(&["mv", &at("/other/moved"), &at("/full")]);
    assert!(code == Some(1) && err.contains("not empty"), "{err}");
    done(&["mv", &at("/other/moved"), &at("/r")]);
    done(&["rm", "-r", &at("/full"), &at("/local"), &at("/other")]);
    assert_eq!(done(&["ls", &at("/r")]), "file\nmoved\n");
    let (_, err, code) = run(&["mv", &at("/r"), &at("/r/moved/r")]);
    assert!(code == Some(1) && !err.is_empty(), "{err}");
    // What can't be copied stays, and nothing is left of its copy.
    let (_, err, code) = run(&["mv", &at("/r"), &at("/file")]);
    assert!(code == Some(1) && !err.is_empty(), "{err}");
    assert_eq!(done(&["ls", "-A", &at("/")]), "empty\nfile\nr\n");
    assert_eq!(done(&["ls", "-A", &at("/r")]), "file\nmoved\n");
    assert_eq!(done(&["ls", "-A", &at("/r/moved")]), "link\n");
    done(&["rmdir", &at("/empty")]);
    let (_, err, code) = run(&["rmdir", &at("/r")]);
    assert!(code == Some(1) && err.contains("not empty"), "{err}");
    done(&["mv", &at("/r"), &at("/s")]);
    done(&["rm", "-r", &at("/s")]);
    assert_eq!(done(&["ls", &at("/")]), "file\n");
    drop(server);
    let words = ["serve", "--fs", "lfs", &dir, "--osts", "2", "--listen", nid, "--port", port];
    let o = Command::new(PROGRAM).args(words).output().unwrap();
    let err = String::from_utf8(o.stderr).unwrap();
    assert!(err.contains("--mdts 1") && err.contains("has 2"), "{err}");
}

#[test]
fn metadata_targets_of_two_processes_change_one_tree() {
    let scratch = Scratch::new("apart");
    let (meta, other) = ("127.97.0.1@tcp", "127.97.0.2@tcp");
    let text =
        format!("lfs-MDT0000_UUID {meta}\nlfs-MDT0001_UUID {other}\nlfs-OST0000_UUID {other}\n");
    for dir in ["mgs", "mdt0", "mdt1"] {
        let dir = scratch.0.join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("targets"), &text).unwrap();
    }
    let at = |name: &str| scratch.0.join(name).display().to_string();
    let (mgs, mdt0) =
        (format!("MGS=mgs:{}", at("mgs")), format!("lfs-MDT0000_UUID=mdt:{}", at("mdt0")));
    let (ost, mdt1) = (
        format!("lfs-OST0000_UUID=ost:{}", at("ost")),
        format!("lfs-MDT0001_UUID=mdt:{}", at("mdt1")),
    );
    let port = "7997";
    let first = || {
        let mut server = Server::start(&[&mgs, &mdt0], meta, port);
        server.wait_for("lfs-MDT0000_UUID: serving");
        server
    };
    let mut second = Server::start(&[&ost, &mdt1], other, port);
    second.wait_for("lfs-MDT0001_UUID: serving");
    let server = first();
    let way = ["--port", port, "--source", "127.97.0.3"];
    let done = |words: &[&str]| ok(&[words, &way[..]].concat());
    let place = |path: &str| format!("127.97.0.1@tcp:/lfs{path}");
    done(&["mkdir", "-i", "1", &place("/r")]);
    done(&["mkdir", "-i", "0", &place("/r/back")]);
    drop(server);
    let _server = first();
    assert_eq!(done(&["ls", &place("/r")]), "back\n");
    done(&["rmdir", &place("/r/back")]);
    done(&["rmdir", &place("/r")]);
    assert_eq!(done(&["ls", &place("/")]), "");
}
