//! Recordings with locks of objects, with `ldlm` on the server's side: order, fields and
//! times of enqueue replies, callbacks, completions and replies to cancels.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet::Profile;
use ptlrpc::Tunables;
use rpc_interop::report::{Allowed, Count, Known, play_locks};

use super::{captures, row};

/// Recordings, and how many messages of locks a server has in each, and how many of ours are equal.
const RECORDINGS: &[(&str, usize, usize)] = &[
    ("bulk-checksums", 12, 12),
    ("bulk-read-multi-md", 1, 1),
    ("callback-resend", 8, 8),
    ("cancel-batch", 2, 2),
    ("conflict-write-read", 9, 8),
    ("conflict-write-write", 12, 12),
    ("create-write-short", 5, 5),
    ("early-reply", 2, 2),
    ("evict-admin-mdt", 16, 16),
    ("evict-admin-ost", 1, 1),
    ("evict-lock-timer", 8, 6),
    ("evict-ping-and-lock", 29, 24),
    ("extent-growth", 13, 13),
    ("glimpse", 9, 8),
    ("idle-ping-disconnect", 15, 15),
    ("ldiskfs-bulk-crc", 3, 3),
    ("ldiskfs-create-write-commit", 8, 8),
    ("ldiskfs-recovery-k1", 13, 13),
    ("link-cut-reconnect", 15, 15),
    ("mdt-ost-create-destroy", 3, 3),
    ("read-second-client", 6, 6),
    ("remount", 18, 18),
    ("rename-mkdir-unlink", 7, 7),
    ("resend-dropped-reply", 5, 4),
    ("short-read-eof", 8, 8),
];

/// Differences, each with its reason.
const KNOWN: &[Known] = &[
    Known {
        what: "REP LDLM_ENQUEUE",
        difference: "buffer[1]",
        ..Known::at("conflict-write-read", CANCELLED)
    },
    Known { what: "REP LDLM_ENQUEUE", difference: "buffer[1]", ..Known::at("glimpse", CANCELLED) },
    Known {
        what: "REP LDLM_ENQUEUE",
        difference: "buffer[1]",
        ..Known::at("resend-dropped-reply", CANCELLED)
    },
    Known { difference: "time", ..Known::at("evict-lock-timer", LATE) },
    Known {
        what: "EARLY LDLM_ENQUEUE",
        difference: "time",
        ..Known::at("evict-ping-and-lock", EARLY_LATE)
    },
    Known {
        what: "REQ LDLM_BL_CALLBACK",
        difference: "time",
        ..Known::at("evict-ping-and-lock", CUT)
    },
    Known { difference: "time", ..Known::at("evict-ping-and-lock", LIMIT) },
    Known {
        what: "REP LDLM_ENQUEUE",
        difference: "buffer[1]",
        ..Known::at("evict-ping-and-lock", EVICTED)
    },
    Known {
        what: "REQ LDLM_CP_CALLBACK",
        difference: "buffer[2]",
        ..Known::at("evict-lock-timer", OBJECT)
    },
];

const CANCELLED: &str =
    "the recorded server took the cancel before it answered, ours answers first";
const EARLY_LATE: &str = "the recorded timer of early replies was 2 s late";
const CUT: &str = "the link was cut: copies of callbacks were sent once it was back";
const LIMIT: &str = "the recorded server looks at the 150 s of a callback when a copy of it has ended: its evictor \
    of silent clients was first, after 156 s";
const EVICTED: &str = "the recorded server granted what the evicted client had held before it answered, ours answers first";
const LATE: &str = "the recorded timer ran late by a fortieth of its 100 s";
const OBJECT: &str = "the object layer has read the attributes between reply and completion";

fn tunables(name: &str) -> Tunables {
    let kernel = Tunables::of(Profile::Kernel);
    match name {
        // Set before the holder connected, so its callback limit is the lower bound.
        "evict-lock-timer" => Tunables { obd_timeout: Duration::from_secs(20), ..kernel },
        _ => kernel,
    }
}

#[test]
fn recorded_locks_of_objects_are_served_by_ldlm_as_recorded() {
    let mut allowed = Allowed { known: KNOWN, used: BTreeSet::new() };
    let (mut wrong, mut found) = (Vec::new(), Vec::new());
    let paths = captures("ptlrpc", 35);
    println!("{:28} {:7} {:>5} {:>5}  open", "recording", "ours is", "all", "equal");
    for &(name, all, equal) in RECORDINGS {
        let named = |path: &&std::path::PathBuf| path.file_stem().is_some_and(|stem| stem == name);
        let path = paths.iter().find(named).expect("a capture");
        let count: Count = play_locks(path, &tunables(name), &mut allowed);
        println!("{}", row(name, "ldlm", &count));
        wrong.extend(count.unknown.iter().map(|why| format!("{name}: {why}")));
        if (count.compared, count.equal) != (all, equal) {
            found.push(format!(
                "{name}: {} of {}, not {equal} of {all}",
                count.equal, count.compared
            ));
        }
    }
    assert!(wrong.is_empty(), "unknown differences:\n{}", wrong.join("\n"));
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (at, known) in KNOWN.iter().enumerate() {
        assert!(allowed.used.contains(&at), "no difference needs this row any more: {known:?}");
    }
}
