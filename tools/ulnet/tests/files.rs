//! `ulnet lustre` against `ulnet serve --fs` over the loopback: files go in and come out as they were, with
//! their names, times, permissions, links and holes, also while the server dies.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(name);
        fs::create_dir_all(dir.join("fs")).unwrap();
        Self(dir)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file system of one process; dropping it is SIGKILL.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file system, and how commands reach it.
struct Site {
    scratch: Scratch,
    /// Second number of its addresses.
    net: u8,
    port: String,
    server: Option<Server>,
}

impl Site {
    fn new(name: &str, net: u8) -> Self {
        Self::on(&format!("79{net}"), name, net)
    }

    fn on(port: &str, name: &str, net: u8) -> Self {
        let (scratch, port) = (Scratch::new(name), port.to_owned());
        let mut site = Self { scratch, net, port, server: None };
        site.start();
        site
    }

    /// What a command prints on standard output with `--json`, and its status.
    fn json(&self, words: &[&str]) -> (serde_json::Value, Option<i32>) {
        let (out, err, code) = self.run(&[words, &["--json"]].concat());
        let value = serde_json::from_str(&out);
        (value.unwrap_or_else(|e| panic!("{words:?}: {e}: {out}{err}")), code)
    }

    fn start(&mut self) {
        let (dir, nid) = (self.scratch.at("fs"), format!("127.{}.0.1@tcp", self.net));
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--fs", "lfs", &dir, "--osts", "4", "--listen", &nid])
            .args(["--port", &self.port])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.any(|line| line.contains("lfs-MDT0000_UUID: serving"));
        assert!(ready, "the server never served");
        // What else it says is read, so that it never waits.
        thread::spawn(move || lines.count());
        self.server = Some(Server(child));
    }

    fn kill(&mut self) {
        self.server = None;
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("lustre").args(words);
        command.args(["--port", &self.port, "--source", &format!("127.{}.0.2", self.net)]);
        command.env("ULNET_LUSTRE", format!("127.{}.0.1@tcp:/lfs", self.net));
        command.current_dir(&self.scratch.0);
        command
    }

    /// What a command prints on both streams, and its status.
    fn run(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let o = self.command(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (text(o.stdout), text(o.stderr), o.status.code())
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let (out, err, code) = self.run(words);
        assert_eq!(code, Some(0), "{words:?}: {out}{err}");
        out
    }

    #[track_caller]
    fn fails(&self, words: &[&str], says: &str) {
        let (out, err, code) = self.run(words);
        assert_eq!(code, Some(1), "{words:?}: {out}{err}");
        assert!(err.contains(says), "{words:?}: {err}");
    }
}

/// Bytes that repeat at no border.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// A file or directory as a tree is compared by: path, permissions, time, contents.
type Row = (String, u32, i64, Vec<u8>);

fn rows(dir: &Path, before: &str, rows: &mut Vec<Row>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let name = format!("{before}/{}", entry.file_name().to_string_lossy());
        if meta.is_symlink() {
            let text = fs::read_link(&path).unwrap();
            rows.push((name, 0, 0, text.as_os_str().as_encoded_bytes().to_vec()));
        } else if meta.is_dir() {
            rows.push((name.clone(), meta.mode() & 0o7777, meta.mtime(), Vec::new()));
            self::rows(&path, &name, rows);
        } else {
            rows.push((name, meta.mode() & 0o7777, meta.mtime(), fs::read(&path).unwrap()));
        }
    }
}

fn tree(dir: &Path) -> Vec<Row> {
    let mut all = Vec::new();
    rows(dir, "", &mut all);
    all
}

#[test]
fn a_file_goes_in_over_four_targets_and_comes_out_the_same() {
    let site = Site::new("file", 31);
    let source = site.scratch.0.join("source");
    let written = bytes((21 << 20) + 12_345, 7);
    fs::write(&source, &written).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
    let old =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(981_173_106));
    fs::File::options().write(true).open(&source).unwrap().set_times(old).unwrap();

    site.ok(&["mkdir", "-p", "/data/in"]);
    let stripes = ["--stripe-count", "4", "--stripe-size", "64K", "--verify"];
    site.ok(&[&["cp", "./source", "/data/in/f"], &stripes[..]].concat());
    let shown = site.ok(&["stat", "/data/in/f", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["size"], written.len());
    assert_eq!((&shown["mode"], &shown["mtime"]), (&"0640".into(), &981_173_106.into()));
    let layout = site.ok(&["getstripe", "/data/in/f"]);
    assert!(
        layout.contains("stripe_count: 4") && layout.contains("stripe_size: 65536"),
        "{layout}"
    );
    let out = site.command(&["cat", "/data/in/f"]).output().unwrap();
    assert!(out.stdout == written);

    site.ok(&["cp", "/data/in/f", "./copy", "--verify"]);
    let copy = site.scratch.0.join("copy");
    assert!(fs::read(&copy).unwrap() == written);
    let meta = fs::metadata(&copy).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime()), (0o640, 981_173_106));

    // Shorter, longer with a hole, and by other names.
    site.ok(&["truncate", "/data/in/f", "--size", "100000"]);
    site.ok(&["truncate", "/data/in/f", "--size", "300000"]);
    let mut expected = written[..100_000].to_vec();
    expected.resize(300_000, 0);
    assert!(site.command(&["cat", "/data/in/f"]).output().unwrap().stdout == expected);
    site.ok(&["ln", "/data/in/f", "/data/hard"]);
    site.ok(&["ln", "-s", "in/f", "/data/soft"]);
    assert_eq!(site.ok(&["readlink", "/data/soft"]), "in/f\n");
    site.ok(&["mv", "/data/in/f", "/data/in/g"]);
    site.fails(&["cat", "/data/soft"], "No such file or directory");
    assert_eq!(
        site.ok(&["sum", "/data/hard"]),
        site.ok(&["sum", "/data/in/g"]).replace("in/g", "hard")
    );
    site.fails(&["rm", "/data"], "not removed without -r");
    site.ok(&["rm", "-r", "/data"]);
    assert_eq!(site.ok(&["ls", "/"]), "");
    site.ok(&["check"]);
}

#[test]
fn a_tree_of_hundreds_of_files_goes_in_and_comes_out_the_same() {
    let site = Site::new("tree", 32);
    let source = site.scratch.0.join("tree");
    for dir in 0..4 {
        let dir = source.join(format!("d{dir}/e"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..60 {
            let path = dir.join(format!("f{file:03}"));
            fs::write(&path, bytes(file * 97, file as u64)).unwrap();
        }
    }
    let first = source.join("d0/e/f001");
    fs::set_permissions(&first, fs::Permissions::from_mode(0o751)).unwrap();
    fs::hard_link(&first, source.join("again")).unwrap();
    symlink("d0/e/f002", source.join("link")).unwrap();
    symlink("/nowhere", source.join("away")).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(20 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 10 << 20).unwrap();
    fs::create_dir(source.join("empty")).unwrap();

    let account = site.ok(&["cp", "-r", "./tree", "/", "--json"]);
    let account: serde_json::Value = serde_json::from_str(&account).unwrap();
    assert_eq!(account["files"], 241, "{account}");
    assert_eq!((&account["links"], &account["directories"]), (&3.into(), &10.into()));
    assert!(account["bytes"].as_u64().unwrap() < 4 << 20, "holes are not sent: {account}");
    let found = site.ok(&["find", "/tree", "-name", "f00?", "-type", "f"]);
    assert_eq!(found.lines().count(), 40, "{found}");
    let large = site.ok(&["find", "/tree", "-size", "+1M"]);
    assert_eq!(large, "/tree/sparse\n");
    let space = site.ok(&["du", "/tree", "--json"]);
    let space: serde_json::Value = serde_json::from_str(&space).unwrap();
    // A hole takes no space.
    let bytes_of = |name: &str| space[name].as_u64().unwrap();
    assert!(bytes_of("bytes") > 20 << 20 && bytes_of("space") < 4 << 20, "{space}");

    site.ok(&["cp", "-r", "/tree", "./out"]);
    let (ours, theirs) = (tree(&source), tree(&site.scratch.0.join("out")));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert!(
            ours == theirs,
            "{:?} {:?}",
            (&ours.0, ours.1, ours.2),
            (&theirs.0, theirs.1, theirs.2)
        );
    }
    assert_eq!(ours.len(), theirs.len());
    let ino = |name: &str| fs::metadata(site.scratch.0.join("out").join(name)).unwrap().ino();
    assert_eq!(ino("again"), ino("d0/e/f001"), "one file with two names");
    assert!(fs::metadata(site.scratch.0.join("out/sparse")).unwrap().blocks() < 2048, "holes");

    // What is there is left; what differs is repaired.
    let changed = source.join("d1/e/f005");
    fs::write(&changed, bytes(5 * 97, 1)).unwrap();
    // Times are compared in seconds, and all of this takes less than one.
    let later = SystemTime::now() + Duration::from_secs(2);
    fs::File::options().write(true).open(&changed).unwrap().set_modified(later).unwrap();
    let again = site.ok(&["cp", "-r", "--resume", "./tree", "/", "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["files"], &again["failed"]), (&1.into(), &serde_json::json!([])), "{again}");
    site.ok(&["chmod", "-R", "700", "/tree/d1"]);
    let listed = site.ok(&["ls", "-l", "/tree/d1/e"]);
    assert_eq!(listed.lines().filter(|line| line.starts_with("-rwx------")).count(), 60);
    site.ok(&["rm", "-r", "/tree"]);
    assert_eq!(site.ok(&["ls", "/"]), "");
}

#[test]
fn a_copy_goes_on_when_the_server_is_killed_in_the_middle_and_starts_again() {
    let mut site = Site::new("killed", 33);
    let source = site.scratch.0.join("source");
    let written = bytes(64 << 20, 3);
    fs::write(&source, &written).unwrap();
    site.ok(&["mkdir", "/d"]);
    let words = ["cp", "./source", "/d/f", "--stripe-count", "4", "--timeout", "120"];
    let copy = site.command(&words).stderr(Stdio::piped()).spawn().unwrap();
    // In the middle: some of the data is there.
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(20));
        let space = fs::read_dir(site.scratch.0.join("fs")).unwrap().count();
        let there = site.run(&["ls", "/d"]).0;
        if space > 0 && !there.is_empty() {
            break;
        }
    }
    site.kill();
    thread::sleep(Duration::from_millis(500));
    site.start();
    let done = copy.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{err}");
    let out = site.command(&["cat", "/d/f"]).output().unwrap();
    assert!(out.stdout == written, "{} bytes", out.stdout.len());
}

#[test]
fn what_a_user_may_not_do_is_said_in_a_sentence() {
    let site = Site::new("errors", 34);
    site.ok(&["mkdir", "/d"]);
    site.ok(&["touch", "/d/f", "--time", "7"]);
    site.fails(&["mkdir", "/d"], "this name is taken");
    site.fails(&["mkdir", "/none/e"], "No such file or directory");
    site.fails(&["cp", "./none", "/d"], "./none");
    site.fails(&["cp", "/d", "."], "not copied without -r");
    site.fails(&["truncate", "/d", "--size", "0"], "directory");
    site.fails(&["readlink", "/d/f"], "expected a symbolic link");
    site.fails(&["mv", "/d", "/d/e"], "Invalid argument");
    site.fails(&["rm", "/"], "the root of a file system is not removed");
    site.fails(&["setstripe", "/d/f", "--stripe-count", "2"], "keeps the layout");
    site.fails(&["setstripe", "/d"], "such as --stripe-count 4");
    site.fails(&["cp", "./x", "/d", "--stripe-size", "1000"], "multiple of 64 KiB");
    site.ok(&["setstripe", "/d", "--stripe-count", "2"]);
    assert!(site.ok(&["getstripe", "/d"]).contains("stripe_count: 2"));
    site.ok(&["touch", "/d/g"]);
    assert!(site.ok(&["getstripe", "/d/g"]).contains("stripe_count: 2"));
    // A link to nothing yet: its file is made.
    site.ok(&["ln", "-s", "d/new", "/soft"]);
    site.ok(&["touch", "/soft"]);
    assert!(site.ok(&["stat", "/d/new"]).contains("regular"));
}

#[test]
fn reader_that_has_read_enough_ends_no_command_in_the_middle() {
    let site = Site::new("enough", 45);
    site.ok(&["mkdir", "-p", "/d/e"]);
    for words in [&["ls", "-l", "/"][..], &["getstripe", "/d", "--json"], &["stat", "/d"]] {
        let mut command = site.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!((done.status.code(), err.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn files_with_mdt_size_have_their_first_bytes_on_the_metadata_target() {
    let mut site = Site::new("mdt-size", 44);
    site.ok(&["mkdir", "/small"]);
    site.ok(&["setstripe", "/small", "--mdt-size", "64K", "--stripe-count", "2"]);
    let source = site.scratch.0.join("in");
    fs::create_dir(&source).unwrap();
    // On the target alone, up to its border, and behind it.
    let lens = [0, 1, 5000, 65_536, 65_537, 300_000];
    for len in lens {
        fs::write(source.join(len.to_string()), bytes(len, 7)).unwrap();
    }
    site.ok(&["cp", "-r", "./in", "/small", "--verify"]);
    let same = |site: &Site, out: &str| {
        site.ok(&["cp", "-r", "/small/in", out]);
        for len in lens {
            let found = fs::read(site.scratch.0.join(out).join(len.to_string())).unwrap();
            assert!(found == bytes(len, 7), "{len}: {} bytes", found.len());
        }
    };
    same(&site, "./out");
    let layout = site.ok(&["getstripe", "/small/in/5000"]);
    assert!(layout.contains("pattern: mdt") && layout.contains("end: 65536"), "{layout}");
    let stat = site.ok(&["stat", "/small/in/65537", "--json"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(stat["size"], 65_537, "{stat}");
    // What was answered is there after a crash.
    site.kill();
    site.start();
    same(&site, "./again");
    site.ok(&["truncate", "/small/in/300000", "--size", "1000"]);
    site.ok(&["cp", "/small/in/300000", "./cut"]);
    assert!(fs::read(site.scratch.0.join("cut")).unwrap() == bytes(300_000, 7)[..1000]);
    site.ok(&["cp", "./in/5000", "/alone", "--mdt-size", "128K"]);
    assert!(site.ok(&["getstripe", "/alone"]).contains("end: 131072"));
    site.ok(&["rm", "-r", "/small"]);
    site.ok(&["rm", "/alone"]);
    site.fails(&["setstripe", "/", "--mdt-size", "1000"], "multiple of 64 KiB");
}

#[test]
fn a_directory_is_listed_by_name_unless_the_order_of_the_server_is_asked_for() {
    let site = Site::new("sorted", 35);
    // Enough that no order of hashes is that of the names, with a byte beyond ASCII and one in upper case.
    let mut expected: Vec<String> = (0..300).map(|n| format!("f{n:03}")).collect();
    expected.extend(["B".to_owned(), "a b".to_owned(), "\u{e9}".to_owned()]);
    expected.sort();
    let source = site.scratch.0.join("d");
    fs::create_dir(&source).unwrap();
    for name in &expected {
        fs::write(source.join(name), name).unwrap();
    }
    site.ok(&["cp", "-r", "./d", "/"]);
    let lines =
        |words: &[&str]| -> Vec<String> { site.ok(words).lines().map(ToOwned::to_owned).collect() };
    let names = |words: &[&str]| -> Vec<String> {
        let rows: Vec<serde_json::Value> = serde_json::from_str(&site.ok(words)).unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(lines(&["ls", "/d"]), expected);
    assert_eq!(names(&["ls", "/d", "--json"]), expected);
    assert_eq!(names(&["ls", "-l", "/d", "--json"]), expected);
    let long = lines(&["ls", "-l", "/d"]);
    assert_eq!(long.len(), expected.len());
    for (line, name) in long.iter().zip(&expected) {
        assert!(line.ends_with(&format!(" {name}")), "{line}: expected {name}");
    }
    let mut unsorted = lines(&["ls", "-U", "/d"]);
    assert_ne!(unsorted, expected, "the server's order");
    assert_eq!(unsorted, names(&["ls", "-l", "--unsorted", "/d", "--json"]));
    unsorted.sort();
    assert_eq!(unsorted, expected);
}

const ACCESS: &str = "system.posix_acl_access";

/// An ACL with an entry for user 1001, as the system writes it.
fn acl() -> Vec<u8> {
    let entries = [(1u16, 6u16, u32::MAX), (2, 6, 1001), (4, 4, u32::MAX), (16, 6, u32::MAX)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries.into_iter().chain([(32, 0, u32::MAX)]) {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn owners_and_attributes_are_kept_by_preserve_as_far_as_the_destination_takes_them() {
    use rustix::fs::XattrFlags;
    let site = Site::new("preserve", 43);
    let at = |name: &str| site.scratch.0.join(name);
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::setxattr(at(name), attribute, value, XattrFlags::empty()).is_ok()
    };
    let value = |name: &str, attribute: &str| -> Option<Vec<u8>> {
        let mut room = vec![0; 4096];
        let len = rustix::fs::lgetxattr(at(name), attribute, &mut room).ok()?;
        Some(room[..len].to_vec())
    };
    fs::create_dir_all(at("tree/d")).unwrap();
    fs::write(at("tree/d/f"), b"some").unwrap();
    fs::write(at("tree/listed"), b"more").unwrap();
    symlink("d/f", at("tree/link")).unwrap();
    if !set("tree/d/f", "user.colour", b"blue") || !set("tree/d", "user.of", &[0; 2000]) {
        eprintln!("skipped: the directory for temporary files keeps no attributes");
        return;
    }
    let root = rustix::process::geteuid().is_root();
    if root {
        for name in ["tree/d/f", "tree/d", "tree/link"] {
            std::os::unix::fs::lchown(at(name), Some(1001), Some(1002)).unwrap();
        }
    }
    let owner = |name: &str| {
        let meta = fs::symlink_metadata(at(name)).unwrap();
        (meta.uid(), meta.gid())
    };

    // Without it nothing of this goes with a copy.
    site.ok(&["cp", "-r", "./tree", "/plain"]);
    site.ok(&["cp", "-rp", "/plain", "./plain"]);
    assert_eq!(value("plain/d/f", "user.colour"), None);

    let account = site.ok(&["cp", "-rp", "./tree", "/kept", "--json"]);
    let account: serde_json::Value = serde_json::from_str(&account).unwrap();
    assert_eq!(account["not_kept"], 0, "{account}");
    site.ok(&["cp", "-r", "/kept", "./bare"]);
    assert_eq!(value("bare/d/f", "user.colour"), None);
    site.ok(&["cp", "-r", "--preserve", "/kept", "./kept"]);
    assert_eq!(value("kept/d/f", "user.colour").as_deref(), Some(&b"blue"[..]));
    assert_eq!(value("kept/d", "user.of"), Some(vec![0; 2000]));
    for name in ["d/f", "d", "link"] {
        assert_eq!(owner(&format!("kept/{name}")), owner(&format!("tree/{name}")), "{name}");
    }
    assert!(tree(&at("kept")) == tree(&at("tree")), "times and permissions too");

    // So are ACLs, on both ways; without it they are not.
    if set("tree/listed", ACCESS, &acl()) && set("tree/d", "system.posix_acl_default", &acl()) {
        let (account, code) = site.json(&["cp", "-rp", "./tree", "/listed"]);
        assert_eq!((&account["not_kept"], code), (&0.into(), Some(0)), "{account}");
        assert_eq!(site.json(&["stat", "/listed/listed"]).0["mode"], "0660");
        site.ok(&["cp", "-rp", "/listed", "./listed"]);
        assert_eq!(value("listed/listed", ACCESS), Some(acl()));
        assert_eq!(value("listed/d", "system.posix_acl_default"), Some(acl()));
        site.ok(&["cp", "-r", "/listed", "./unlisted"]);
        assert_eq!(value("unlisted/listed", ACCESS), None);
        // A user that a list names may, another one may not.
        site.ok(&["cat", "/listed/listed", "--uid", "1001", "--gid", "9"]);
        site.fails(&["cat", "/listed/listed", "--uid", "1002", "--gid", "9"], "Permission denied");
    }
}

#[test]
fn operand_that_fails_is_named_and_the_others_are_done() {
    let site = Site::new("operands", 48);
    let part = |words: &[&str], names: &[&str]| -> String {
        let (out, err, code) = site.run(words);
        assert_eq!(code, Some(1), "{words:?}: {out}{err}");
        let named: Vec<&str> = err.lines().filter_map(|line| line.split(": ").nth(1)).collect();
        assert_eq!(named, names, "{words:?}: {err}");
        out
    };
    fs::write(site.scratch.0.join("f"), b"some").unwrap();
    fs::write(site.scratch.0.join("g"), b"more").unwrap();
    site.ok(&["mkdir", "/d", "/e"]);
    part(&["mkdir", "/d", "/i", "/d", "/j"], &["/d", "/d"]);
    part(&["rmdir", "/d/none", "/i"], &["/d/none"]);
    part(&["cp", "./f", "./none", "./g", "/d"], &["./none"]);
    assert_eq!(part(&["cat", "/d/f", "/none", "/d/g"], &["/none"]), "somemore");
    assert_eq!(part(&["sum", "/d/g", "/none", "/d/f"], &["/none"]).lines().count(), 2);
    assert_eq!(part(&["stat", "/none", "/d", "/d/f"], &["/none"]).matches("File:").count(), 2);
    part(&["touch", "/none/a", "/d/t", "/d/u"], &["/none/a"]);
    part(&["truncate", "--size", "9", "/d/t", "/d", "/d/u"], &["/d"]);
    part(&["chmod", "640", "/d/t", "/none", "/d/u"], &["/none"]);
    part(&["chown", "7:8", "/d/t", "/none", "/d/u"], &["/none"]);
    for name in ["/d/t", "/d/u"] {
        let (shown, _) = site.json(&["stat", name]);
        let of = |name: &str| shown[name].as_u64().unwrap();
        assert_eq!((of("size"), of("uid"), of("gid")), (9, 7, 8));
        assert_eq!(shown["mode"], "0640");
    }
    site.ok(&["ln", "-s", "f", "/d/soft"]);
    assert_eq!(part(&["readlink", "/d/soft", "/d/f", "/d/soft"], &["/d/f"]), "f\nf\n");
    assert_eq!(part(&["du", "/d", "/none", "/e"], &["/none"]).lines().count(), 2);
    assert_eq!(part(&["find", "/d", "/none", "/e", "-name", "f"], &["/none"]), "/d/f\n");
    assert!(part(&["tree", "/e", "/none", "/d"], &["/none"]).starts_with("/e\n/d\n"));
    part(&["setstripe", "/d", "/d/f", "/e/new", "--stripe-count", "2"], &["/d/f"]);
    let layouts = part(&["getstripe", "/d", "/none", "/e/new"], &["/none"]);
    assert_eq!(layouts.matches("stripe_count: 2").count(), 2, "{layouts}");
    part(&["rm", "/d/t", "/none", "/e", "/d/u"], &["/none", "/e"]);
    assert_eq!(site.ok(&["ls", "/d"]), "f\ng\nsoft\n");
    site.ok(&["rm", "-rf", "/d", "/none", "/e", "/j"]);
    assert_eq!(site.ok(&["ls", "/"]), "");
}

#[test]
fn several_places_are_listed_each_below_its_name() {
    let site = Site::new("listed", 49);
    site.ok(&["mkdir", "-p", "/d/x", "/e"]);
    site.ok(&["touch", "/f", "/e/y"]);
    assert_eq!(site.ok(&["ls", "/d"]), "x\n");
    assert_eq!(site.ok(&["ls", "/d", "/e"]), "/d:\nx\n\n/e:\ny\n");
    assert_eq!(site.ok(&["ls", "/f", "/d", "/f"]), "/f\n\n/d:\nx\n\n/f\n");
    let long = site.ok(&["ls", "-l", "/f", "/e"]);
    assert!(long.starts_with("-rw") && long.contains("\n\n/e:\n-rw"), "{long}");
    // As JSON: rows for one place, and what several have below their names.
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    let (rows, code) = site.json(&["ls", "/d"]);
    assert_eq!((name(&rows[0]), code), ("x".to_owned(), Some(0)));
    let (rows, code) = site.json(&["ls", "/d", "/none", "/f"]);
    assert_eq!(code, Some(1));
    let names: Vec<String> = rows.as_array().unwrap().iter().map(name).collect();
    assert_eq!(names, ["/d", "/none", "/f"]);
    assert_eq!(name(&rows[0]["contents"][0]), "x");
    assert_eq!(rows[1]["error"], "No such file or directory");
    assert_eq!(rows[2]["size"], 0);
}

#[test]
fn json_is_an_array_of_what_each_operand_gives_alone() {
    let site = Site::new("arrays", 50);
    site.ok(&["mkdir", "/d", "/e"]);
    site.ok(&["touch", "/d/a", "/d/b", "--time", "7"]);
    for verb in ["stat", "du", "tree", "sum", "getstripe", "ls", "find"] {
        let places = if verb == "sum" { ["/d/a", "/d/b"] } else { ["/d", "/d/b"] };
        let alone = places.map(|place| site.json(&[verb, place]).0);
        let (both, code) = site.json(&[verb, places[0], places[1]]);
        // Of a file there is no tree.
        let whole = verb != "tree";
        assert_eq!(code, Some(i32::from(!whole)), "{verb}: {both}");
        match verb {
            "ls" => {
                assert_eq!(both[0]["contents"], alone[0]);
                assert_eq!(both[1], alone[1][0]);
            }
            "find" => {
                let rows = alone.iter().flat_map(|rows| rows.as_array().unwrap().clone());
                assert_eq!(both, serde_json::Value::Array(rows.collect()));
            }
            _ => assert_eq!(both, serde_json::json!(alone), "{verb}"),
        }
    }
    let error = |value: &serde_json::Value| value["error"].as_str().unwrap().to_owned();
    for verb in ["stat", "sum", "readlink", "rm", "du"] {
        let (alone, code) = site.json(&[verb, "/none"]);
        assert_eq!(code, Some(1));
        assert_eq!((&alone["name"], error(&alone).starts_with("No such")), (&"/none".into(), true));
    }
    let unreached = format!("127.{}.0.9@tcp:/lfs/a", site.net);
    let (out, code) = site.json(&["stat", "/d", &unreached, "--timeout", "2"]);
    assert_eq!((out[0]["type"].as_str(), code), (Some("directory"), Some(1)));
    assert!(error(&out[1]).contains("no answer in time"), "{out}");
    let out = site.command(&["cat", "/d/a", "/d/b", "--json"]).output().unwrap();
    let account: serde_json::Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!((&account[1]["file"], &account[1]["bytes"]), (&"/d/b".into(), &0.into()));
}

#[test]
fn several_sources_go_into_a_directory_or_nowhere() {
    let site = Site::new("sources", 51);
    for name in ["a", "b"] {
        fs::create_dir_all(site.scratch.0.join(name)).unwrap();
        fs::write(site.scratch.0.join(name).join("f"), name).unwrap();
    }
    site.ok(&["mkdir", "/d", "/x", "/y"]);
    let refused = "expected a directory for several sources";
    for to in ["/none", "/x/f"] {
        site.fails(&["cp", "./a/f", "./none", to], refused);
    }
    site.fails(
        &["cp", "./a/f", "./b/f", "/d"],
        "./b/f: a source before it has been given the name",
    );
    assert_eq!(site.ok(&["cat", "/d/f"]), "a");
    site.ok(&["cp", "./a/f", "/x/f"]);
    site.ok(&["cp", "./b/f", "/x/g"]);
    site.fails(&["cp", "/x/f", "/x/g", "./out"], refused);
    for verb in ["mv", "ln"] {
        site.fails(&[verb, "/x/f", "/x/g", "/none"], refused);
        site.fails(&[verb, "/x/f", "/none", "/x/g"], refused);
    }
    assert_eq!(site.ok(&["ls", "/x", "/y"]), "/x:\nf\ng\n\n/y:\n");
    site.fails(&["ln", "/x/f", "/none", "/x/g", "/y"], "/none: No such file");
    site.ok(&["mkdir", "/y/s"]);
    site.ok(&["ln", "-s", "../x/f", "/x/h", "/y/s"]);
    assert_eq!(site.ok(&["ls", "/y", "/y/s"]), "/y:\nf\ng\ns\n\n/y/s:\nf\nh\n");
    site.fails(&["mv", "/y/f", "/none", "/x/f", "/y/s/h", "/d/"], "/x/f: a source before it");
    assert_eq!(site.ok(&["ls", "/d", "/y"]), "/d:\nf\nh\n\n/y:\ng\ns\n");
    site.fails(&["mv", "/y/g", "/d/new/"], "expected a directory");
    // Out: the same, and each in the directory.
    site.fails(&["cp", "/x/f", "/none", "/x/g", "/d/f", "."], "/d/f: a source before it");
    for name in ["f", "g"] {
        assert_eq!(
            fs::read(site.scratch.0.join(name)).unwrap(),
            if name == "f" { b"a" } else { b"b" }
        );
    }
}

#[test]
fn operands_of_two_file_systems_are_visited_one_after_the_other() {
    let (one, two) = (Site::new("first", 52), Site::on("7952", "second", 53));
    one.ok(&["mkdir", "/d"]);
    two.ok(&["mkdir", "/e"]);
    let [there, none] = ["/e", "/none"].map(|path| format!("127.{}.0.1@tcp:/lfs{path}", two.net));
    let (out, err, code) = one.run(&["du", "/d", &there, &none, "/d"]);
    assert_eq!(code, Some(1), "{out}{err}");
    let first = format!("127.{}.0.1@tcp:/lfs/d", one.net);
    let names: Vec<&str> = out.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    assert_eq!(names, [first.as_str(), &there, &first]);
    assert!(err.contains(&format!("{none}: No such file or directory")), "{err}");
    let listed = one.ok(&["ls", "-a", "/d", &there]);
    assert_eq!(listed, format!("{first}:\n.\n..\n\n{there}:\n.\n..\n"));
    for verb in ["mv", "ln"] {
        one.fails(&[verb, "/d", &there], "in the file system of");
        one.fails(&[verb, "/d", "/none", &there], "in the file system of");
    }
    one.fails(&["cp", "-r", "/d", &there, "."], "in the file system of");
}

#[test]
fn layout_of_components_grows_with_its_file() {
    let site = Site::new("components", 77);
    site.ok(&["mkdir", "/d"]);
    site.ok(&[
        "setstripe",
        "-E",
        "1M",
        "-c",
        "1",
        "-E",
        "2M",
        "-c",
        "2",
        "-E",
        "-1",
        "-c",
        "4",
        "/d",
    ]);
    let written = bytes(5 << 20, 9);
    fs::write(site.scratch.0.join("source"), &written).unwrap();
    site.ok(&["cp", "./source", "/d/f", "--verify"]);
    let (shown, _) = site.json(&["getstripe", "/d/f"]);
    let parts = shown["layout"]["components"].as_array().unwrap();
    let of = |name: &str| -> Vec<Option<u64>> { parts.iter().map(|p| p[name].as_u64()).collect() };
    assert_eq!(of("start"), [Some(0), Some(1 << 20), Some(2 << 20)], "{shown}");
    assert_eq!(of("end"), [Some(1 << 20), Some(2 << 20), None]);
    assert_eq!(of("stripe_count"), [Some(1), Some(2), Some(4)]);
    // A file of its own, with its front on the metadata target.
    site.ok(&["setstripe", "-E", "64K", "-L", "mdt", "-E", "eof", "-c", "-1", "-S", "64K", "/g"]);
    site.ok(&["cp", "./source", "/g", "--verify"]);
    let (shown, _) = site.json(&["getstripe", "/g"]);
    assert_eq!(shown["layout"]["components"][0]["pattern"], "mdt", "{shown}");
    for (words, why) in [
        (&["-c", "1", "-E", "-1"][..], "-E: expected before"),
        (&["-E", "1000", "-E", "-1"], "component end 1000: expected a multiple of 64 KiB above 0"),
        (&["-E", "1M", "-E", "1M"], "component end 1048576"),
    ] {
        let (_, err, code) = site.run(&[&["setstripe", "/h"], words].concat());
        assert!(code != Some(0) && err.contains(why), "{words:?}: {err}");
    }
}

/// Objects without data have the time 0, which is later than all times before 1970.
#[test]
fn files_from_before_1970_keep_their_time_with_and_without_data() {
    let site = Site::new("early", 78);
    let tree = site.scratch.0.join("tree");
    fs::create_dir_all(&tree).unwrap();
    for (name, len) in [("empty", 0), ("small", 10), ("large", 300_000)] {
        let path = tree.join(name);
        fs::write(&path, bytes(len, 3)).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH - Duration::from_secs(86_400)).unwrap();
    }
    site.ok(&["cp", "-r", "./tree", "/", "--stripe-count", "4", "--stripe-size", "64K"]);
    for name in ["empty", "small", "large"] {
        let (shown, _) = site.json(&["stat", &format!("/tree/{name}")]);
        assert_eq!(shown["mtime"], -86_400, "{name}: {shown}");
    }
    site.ok(&["cp", "-r", "/tree", "./back"]);
    let back = fs::metadata(site.scratch.0.join("back/empty")).unwrap();
    assert_eq!(back.mtime(), -86_400);
}
