//! `ulnet lustre cp --verify` against an object target that answers reads with bytes of another place: the
//! copy fails and is named, and what differs is not left behind. Without `--verify` it stays hidden.
//! Stores on files have checksums and refuse what was damaged on disk, so the target itself has to lie.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lustre_rt::{Opcode, Served};

use crate::stage::Stage;

/// Moves the range of a read by 64 KiB.
fn misread(served: &mut Served) {
    let begin = served.message.as_ptr() as usize;
    let at = served.msg().unwrap().buffer(3).unwrap().as_ptr() as usize - begin;
    // Its offset is the first field, with the lowest byte in front: this one counts 64 KiB.
    served.message[at + 2] ^= 1;
}

#[test]
fn a_copy_that_is_read_otherwise_than_its_source_is_found_by_verify_alone() {
    // So many reads are answered as they ought to be; those behind are not.
    let honest = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&honest);
    let hook = move |served: &mut Served| {
        let less = |left: usize| left.checked_sub(1);
        if served.opcode == Opcode::OST_READ
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err()
        {
            misread(served);
        }
    };
    let stage = Stage::new("verify", "127.36", hook);
    // One request reads all of it; its two halves differ.
    let mut written = vec![1; 64 << 10];
    written.resize(128 << 10, 2);
    fs::write(stage.dir.join("source"), &written).unwrap();
    let run = |reads: usize, words: &[&str]| -> (String, Option<i32>) {
        honest.store(reads, Ordering::SeqCst);
        stage.run(words)
    };
    let says = |(err, code): (String, Option<i32>), name: &str| {
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(&format!("{name}: the copy differs from its source")), "{err}");
    };
    let ok = |reads: usize, words: &[&str]| {
        honest.store(reads, Ordering::SeqCst);
        stage.ok(words);
    };

    // In: nothing is read without --verify.
    ok(0, &["cp", "./source", "/a"]);
    says(run(0, &["cp", "./source", "/b", "--verify"]), "./source");
    assert_eq!(run(0, &["stat", "/b"]).1, Some(1), "a file that differs is not left");
    ok(usize::MAX, &["cp", "./source", "/b", "--verify"]);

    // Out: what is read first is right, what is read again is not.
    ok(1, &["cp", "/a", "./right"]);
    assert!(fs::read(stage.dir.join("right")).unwrap() == written);
    ok(0, &["cp", "/a", "./wrong"]);
    assert!(fs::read(stage.dir.join("wrong")).unwrap() != written, "it stays hidden");
    says(run(1, &["cp", "/a", "./out", "--verify"]), "/a");
    assert!(!stage.dir.join("out").exists(), "a file that differs is not left");
    ok(usize::MAX, &["cp", "/a", "./out", "--verify"]);
    assert!(fs::read(stage.dir.join("out")).unwrap() == written);
}

/// As long as before: only its times say that it is another file.
#[test]
fn source_that_is_rewritten_while_it_is_copied_is_named_and_has_no_copy() {
    let rewritten = Arc::new(std::sync::Mutex::new(None::<std::path::PathBuf>));
    let path = Arc::clone(&rewritten);
    let hook = move |served: &mut Served| {
        if served.opcode == Opcode::OST_WRITE
            && let Some(path) = path.lock().unwrap().take()
        {
            // Clocks of files tick every few milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let mut bytes = fs::read(&path).unwrap();
            bytes.reverse();
            fs::write(&path, bytes).unwrap();
        }
    };
    let stage = Stage::new("rewritten", "127.79", hook);
    let source = stage.dir.join("source");
    let written: Vec<u8> = (0..20 << 20).map(|at: u32| (at >> 12) as u8).collect();
    fs::write(&source, &written).unwrap();
    *rewritten.lock().unwrap() = Some(source);
    let (err, code) = stage.run(&["cp", "./source", "/f"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("./source: it has changed while it was copied"), "{err}");
    assert_eq!(stage.run(&["stat", "/f"]).1, Some(1), "a copy of no moment is not left");
    stage.ok(&["cp", "./source", "/f"]);
}
