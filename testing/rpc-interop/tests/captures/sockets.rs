//! Ten of the recordings with our node on TCP, and the recorded ones on the other end of its sockets.
//! Only order and content count: times are the subject of the plays in virtual time. Those that wait
//! for a deadline are ignored unless asked for: `cargo test -p rpc-interop -- --ignored`.

use std::collections::BTreeSet;
use std::path::Path;

use rpc_interop::report::{Allowed, play_on_sockets};

use super::known::KNOWN;
use super::row;

/// Plays a recording in a network of its own; `least` messages of each role are equal.
fn plays(name: &str, net: u8, least: [usize; 2]) {
    plays_node(name, net, None, least);
}

fn plays_node(name: &str, net: u8, only: Option<&str>, least: [usize; 2]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ptlrpc");
    let mut allowed = Allowed { known: KNOWN, used: BTreeSet::new() };
    let only = only.map(|nid| nid.parse().expect("a NID"));
    let path = path.join(name).with_extension("pcap");
    let counts = play_on_sockets(&path, net, only, &mut allowed);
    for ((role, count), least) in ["server", "client"].iter().zip(&counts).zip(least) {
        println!("{} (sockets)", row(name, role, count));
        assert!(count.unknown.is_empty(), "{role}:\n{}", count.unknown.join("\n"));
        assert!(count.equal >= least, "{role}: {} equal, expected {least}", count.equal);
    }
}

#[test]
fn a_mount_is_equal_on_sockets() {
    plays("mount", 90, [20, 22]);
}

#[test]
fn a_remount_is_equal_on_sockets() {
    plays("remount", 91, [60, 62]);
}

#[test]
fn an_unmount_is_equal_on_sockets() {
    plays("umount", 92, [5, 6]);
}

#[test]
fn bulk_data_with_checksums_are_equal_on_sockets() {
    plays("bulk-checksums", 93, [51, 59]);
}

#[test]
fn a_write_in_several_pieces_is_equal_on_sockets() {
    plays("bulk-write-multi-md", 94, [5, 7]);
}

#[test]
fn an_eviction_by_an_administrator_is_equal_on_sockets() {
    plays("evict-admin-ost", 95, [14, 14]);
}

/// Recorded conversations that wait for deadlines of the protocol are played if `LONG` is set.
fn is_asked_for(why: &str) -> bool {
    let asked = std::env::var_os("LONG").is_some();
    if !asked {
        netns::skipped("a recorded conversation", format!("it {why}; LONG=1 plays it"));
    }
    asked
}

#[test]
fn early_replies_are_equal_on_sockets() {
    if is_asked_for("waits for early replies: half a minute") {
        plays("early-reply", 96, [14, 12]);
    }
}

#[test]
fn a_resend_after_a_lost_reply_is_equal_on_sockets() {
    if is_asked_for("waits for a deadline of 16 s") {
        plays("resend-dropped-reply", 97, [14, 15]);
    }
}

#[test]
fn a_resend_after_a_lost_request_is_equal_on_sockets() {
    if is_asked_for("waits for a deadline of 16 s") {
        plays("resend-dropped-request", 98, [4, 8]);
    }
}

/// The clients' role is a matter of 300 s, and of failures of LNet at the recorded times: it is played in
/// virtual time alone.
#[test]
fn a_crash_is_equal_on_sockets_in_the_servers_role() {
    if is_asked_for("waits for early replies, two minutes and a half") {
        plays_node("ldiskfs-recovery-k1", 99, Some("10.78.0.10@tcp"), [77, 0]);
    }
}
