//! Commands of `ulnet lustre` that end before their time: a copy that the user interrupts leaves nothing
//! behind, here and there; one whose client is evicted in the middle of a file names it.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lustre_rt::{LockFilter, Opcode, Served};

use crate::stage::{OST, Stage};

/// Bytes of the file that is copied: sixteen requests.
const LEN: usize = 64 << 20;

/// A file system that takes its time for data, a file that it takes long to copy, and how many requests
/// for data there were.
fn slow(name: &str, net: &str) -> (Stage, Vec<u8>, Arc<AtomicUsize>) {
    let moved = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&moved);
    let hook = move |served: &mut Served| {
        if served.opcode == Opcode::OST_WRITE || served.opcode == Opcode::OST_READ {
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(100));
        }
    };
    let stage = Stage::new(name, net, hook);
    let bytes: Vec<u8> = (0..LEN).map(|at| (at >> 8) as u8 | 1).collect();
    fs::write(stage.dir.join("source"), &bytes).unwrap();
    stage.ok(&["mkdir", "/d"]);
    (stage, bytes, moved)
}

fn begin(stage: &Stage, words: &[&str]) -> Child {
    stage.command(words).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until so many more requests for data have come.
fn until(moved: &AtomicUsize, more: usize) {
    let enough = moved.load(Ordering::SeqCst) + more;
    let seen = (0..3000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        moved.load(Ordering::SeqCst) >= enough
    });
    assert!(seen, "no data was moved");
}

fn ended(child: Child) -> (String, Option<i32>) {
    let done = child.wait_with_output().unwrap();
    (String::from_utf8_lossy(&done.stderr).into_owned(), done.status.code())
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Evicts all clients of a target but the server's own; `false`: there is none.
fn evict(stage: &Stage, target: &str) -> bool {
    let all = stage.rpc.exports().unwrap().into_iter();
    let mine = all.filter(|e| e.target == target && !e.client.starts_with("lfs-MDT"));
    let mine: Vec<_> = mine.map(|export| export.id).collect();
    let some = !mine.is_empty();
    stage.rpc.with(move |rpc| mine.into_iter().for_each(|export| rpc.evict(export))).unwrap();
    some
}

/// Clients of the server but its own.
fn clients(stage: &Stage) -> Vec<String> {
    let all = stage.rpc.exports().unwrap().into_iter();
    all.map(|export| export.client).filter(|client| !client.starts_with("lfs-MDT")).collect()
}

/// No client, no lock, no file in the directory. A request whose data had come before its client left is
/// carried out by the store, under a lock of the target itself: that one goes with it.
fn nothing_is_left(stage: &Stage) {
    assert_eq!(clients(stage), [""; 0]);
    let locks = || stage.rpc.locks(LockFilter::All, 0, 10).unwrap().0;
    let gone = (0..3000).any(|_| {
        let gone = locks().is_empty();
        thread::sleep(Duration::from_millis(if gone { 0 } else { 10 }));
        gone
    });
    assert!(gone, "{:?}", locks());
    let listed = stage.command(&["ls", "/d"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "");
}

#[test]
fn an_interrupted_copy_leaves_no_file_lock_or_connection_behind() {
    let (stage, _, moved) = slow("interrupted-in", "127.37");
    let copy = begin(&stage, &["cp", "./source", "/d/f"]);
    until(&moved, 2);
    interrupt(&copy);
    let (err, code) = ended(copy);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("interrupted"), "{err}");
    nothing_is_left(&stage);
}

#[test]
fn a_copy_whose_terminal_is_closed_leaves_nothing_behind() {
    let (stage, _, moved) = slow("hung-up", "127.112");
    let command = stage.command(&["cp", "./source", "/d/f"]);
    // What begins the tests may ignore the signal, and a child would then, too.
    let mut copy = Command::new("env");
    copy.arg("--default-signal=HUP").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| copy.env(name, value));
    }
    copy.current_dir(command.get_current_dir().unwrap()).stderr(Stdio::piped());
    let copy = copy.spawn().unwrap();
    until(&moved, 2);
    let sent = Command::new("kill").args(["-HUP", &copy.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let (err, code) = ended(copy);
    assert!(code == Some(1) && err.contains("interrupted"), "{code:?} {err}");
    nothing_is_left(&stage);
}

#[test]
fn part_that_a_killed_copy_has_left_has_not_the_time_of_its_source() {
    let (stage, bytes, moved) = slow("killed-part", "127.113");
    let source = fs::File::options().write(true).open(stage.dir.join("source")).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    source.set_modified(time).unwrap();
    let mut copy = begin(&stage, &["cp", "./source", "/d/f"]);
    // More than are under way at a time: some are written.
    until(&moved, 16);
    copy.kill().unwrap();
    copy.wait().unwrap();
    // No other client has to wait until the server misses it.
    assert!(evict(&stage, OST) && evict(&stage, "lfs-MDT0000_UUID"));
    let o = stage.command(&["stat", "/d/f", "--json"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let mtime = value["mtime"].as_i64().unwrap_or_else(|| panic!("{value}"));
    assert!(mtime < 4_000_000_000, "{value}");
    stage.ok(&["cp", "--resume", "./source", "/d/f"]);
    let out = stage.command(&["cat", "/d/f"]).output().unwrap();
    assert!(out.stdout == bytes, "{} bytes", out.stdout.len());
}

#[test]
fn an_interrupted_copy_out_leaves_no_part_of_a_file() {
    let (stage, _, moved) = slow("interrupted-out", "127.38");
    stage.ok(&["cp", "./source", "/d/f"]);
    fs::create_dir(stage.dir.join("out")).unwrap();
    let copy = begin(&stage, &["cp", "/d/f", "./out/"]);
    until(&moved, 2);
    interrupt(&copy);
    let (err, code) = ended(copy);
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(fs::read_dir(stage.dir.join("out")).unwrap().count(), 0, "{err}");
    stage.ok(&["rm", "/d/f"]);
    nothing_is_left(&stage);
}

#[test]
fn a_copy_whose_client_is_evicted_names_the_file_and_is_repaired_by_resume() {
    let (stage, bytes, moved) = slow("evicted", "127.39");
    let copy = begin(&stage, &["cp", "./source", "/d/f"]);
    until(&moved, 2);
    assert!(evict(&stage, OST));
    let (err, code) = ended(copy);
    assert_eq!(code, Some(5), "{err}");
    assert!(err.contains("./source: ") && err.contains("evicted"), "{err}");
    stage.ok(&["cp", "--resume", "./source", "/d/f"]);
    let out = stage.command(&["cat", "/d/f"]).output().unwrap();
    assert!(out.stdout == bytes, "{} bytes", out.stdout.len());
}

#[test]
fn a_command_whose_client_is_evicted_before_its_changes_are_committed_says_so() {
    let times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&times);
    let stage = Stage::new("evicted-at-the-end", "127.101", move |served: &mut Served| {
        if served.opcode == Opcode::OST_SETATTR {
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(300));
        }
    });
    // On a busy machine the eviction may come when all is committed.
    let said = (0..20).any(|_| {
        let touch = begin(&stage, &["touch", "/f"]);
        // Its times are set, and the metadata target has nothing more to do for it.
        until(&times, 1);
        evict(&stage, "lfs-MDT0000_UUID");
        let (err, code) = ended(touch);
        if code == Some(5) {
            assert!(err.contains("evicted by the server") && err.contains("may be lost"), "{err}");
        } else {
            assert_eq!(code, Some(0), "{err}");
        }
        code == Some(5)
    });
    assert!(said, "no eviction was said");
    // What was lost is not known here; the next one has it.
    stage.ok(&["touch", "/f"]);
}

/// As the test before this one; what was copied is named in the one account that there is.
#[test]
fn a_copy_whose_client_is_evicted_before_its_end_has_one_account_that_names_it() {
    let times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&times);
    let stage = Stage::new("evicted-account", "127.114", move |served: &mut Served| {
        if served.opcode == Opcode::OST_SETATTR {
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(300));
        }
    });
    let said = (0..20).any(|_| {
        // A time of now is set in the end, after all data.
        fs::write(stage.dir.join("source"), "some").unwrap();
        let mut copy = stage.command(&["cp", "./source", "/f", "--json"]);
        let copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until(&times, 1);
        evict(&stage, "lfs-MDT0000_UUID");
        let o = copy.wait_with_output().unwrap();
        let account: serde_json::Value = serde_json::from_slice(&o.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&o.stdout)));
        if o.status.code() == Some(5) {
            assert_eq!(account["failed"][0]["path"], "./source", "{account}");
        } else {
            assert_eq!(o.status.code(), Some(0), "{account}");
        }
        o.status.code() == Some(5)
    });
    assert!(said, "no eviction was said");
}

#[test]
fn what_changes_while_it_is_moved_by_a_copy_stays_and_is_named() {
    let moved = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&moved);
    let hook = move |served: &mut Served| {
        if served.opcode == Opcode::OST_READ {
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(100));
        }
    };
    let stage = Stage::of("changed-move", "127.115", 2, hook, None::<fn(&mut Served)>);
    stage.ok(&["mkdir", "-i", "1", "/a"]);
    stage.ok(&["mkdir", "/a/sub", "/b"]);
    fs::write(stage.dir.join("small"), "small").unwrap();
    fs::write(stage.dir.join("large"), vec![1; 32 << 20]).unwrap();
    stage.ok(&["cp", "./small", "/a/sub/x"]);
    stage.ok(&["cp", "./small", "/a/sub/y"]);
    stage.ok(&["touch", "--time", "1000", "/a/sub/x", "/a/sub/y"]);
    // What is listed first is copied last: it takes long.
    let o = stage.command(&["ls", "-U", "/a/sub"]).output().unwrap();
    let listed = String::from_utf8(o.stdout).unwrap();
    let names: Vec<&str> = listed.lines().collect();
    let [last, first] = [names[0], names[1]].map(|name| format!("/a/sub/{name}"));
    stage.ok(&["cp", "./large", &last]);
    let mv = begin(&stage, &["mv", "/a/sub", "/b"]);
    // One request for the small one.
    until(&moved, 3);
    stage.ok_at(3, &["touch", "--time", "2000", &first]);
    let (err, code) = ended(mv);
    assert!(code == Some(1) && err.contains("has changed since"), "{code:?} {err}");
    assert!(err.contains(&first) && !err.contains(&last), "{err}");
    stage.ok(&["stat", &first, "/b/sub/x", "/b/sub/y"]);
    assert_eq!(stage.run(&["stat", &last]).1, Some(1));
}

#[test]
fn a_command_that_waits_for_a_silent_server_ends_soon_after_an_interrupt() {
    let silent = Arc::new(AtomicBool::new(false));
    let (held, hook) = (Arc::clone(&silent), Arc::clone(&silent));
    let moved = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&moved);
    let stage = Stage::new("silent", "127.57", move |served: &mut Served| {
        if served.opcode == Opcode::OST_WRITE {
            count.fetch_add(1, Ordering::SeqCst);
            // A server in the middle of something that does not end.
            while hook.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
        }
    });
    fs::write(stage.dir.join("source"), vec![1; 100]).unwrap();
    stage.ok(&["mkdir", "/d"]);
    held.store(true, Ordering::SeqCst);
    let copy = begin(&stage, &["cp", "./source", "/d/f", "--timeout", "600"]);
    until(&moved, 1);
    interrupt(&copy);
    // Without an end of its own it would be found by the limit of the whole test run.
    let (err, code) = ended(copy);
    assert!(code == Some(1) && err.contains("interrupted"), "{code:?} {err}");
    silent.store(false, Ordering::SeqCst);
}
