//! `ulnet rpc ping` and `ulnet rpc probe` towards a kernel server: its answers are the recorded bytes of
//! Lustre 2.17.57, over sockets, and what is compared is what a user reads. The program of the field
//! tests has the commands in it.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use rpc_interop::kernel::KernelServer;
use serde_json::{Value, json};

/// The recorded servers, as one: MGS, MDT0000, OST0000 and OST0001 of file system `lfs`.
const RECORDINGS: [&str; 6] = [
    "ptlrpc/mount.pcap",
    "ptlrpc/idle-ping-disconnect.pcap",
    "ptlrpc/ldiskfs-create-write-commit.pcap",
    "ptlrpc/umount.pcap",
    // Targets that are not there.
    "ptlrpc/ldiskfs-recovery-k1.pcap",
    "lustre-client/ost-restart-evict.pcap",
];

fn kernel(net: u8, port: u16) -> KernelServer {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let paths: Vec<PathBuf> = RECORDINGS.iter().map(|name| fixtures.join(name)).collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    KernelServer::start(&paths, format!("127.{net}.0.1@tcp").parse().unwrap(), port)
}

/// Runs `ulnet rpc VERB` towards the server of a network; what it prints, and its status.
fn rpc(verb: &str, net: u8, port: u16, words: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_field"));
    command.args(["rpc", verb, &format!("127.{net}.0.1@tcp"), "--port", &port.to_string()]);
    command.args(["--source", &format!("127.{net}.0.2")]).args(words);
    let out = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.status.code())
}

/// What is printed, with each time replaced by `T`.
fn timeless(out: &str) -> String {
    let mut lines = String::new();
    for line in out.lines() {
        let words = line.split(' ').collect::<Vec<_>>();
        let before_ms = |at: usize| words.get(at + 1) == Some(&"ms");
        let word = |(at, word): (usize, &&str)| if before_ms(at) { "T" } else { *word }.to_owned();
        lines += &words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ");
        lines.push('\n');
    }
    lines
}

#[test]
fn a_ping_says_of_each_target_of_a_kernel_server_what_it_granted() {
    let _server = kernel(101, 7971);
    for (target, expected) in [
        (
            "MGS",
            "MGS at 127.101.0.1@tcp: connected in T ms\n\
             \x20 ping T ms\n\
             \x20 version 2.17.57, instance 0\n\
             \x20 granted VERSION|AT|FULL20|BULK_MBITS|FLAGS2\n\
             \x20 granted REP_MBITS (second word)\n\
             \x20 keeps no transactions, last committed 0\n\
             \x20 estimates: service 5 s, net 5 s\n",
        ),
        (
            "lfs-MDT0000_UUID",
            "lfs-MDT0000_UUID at 127.101.0.1@tcp: connected in T ms\n\
             \x20 ping T ms\n\
             \x20 version 2.17.57, instance 1\n\
             \x20 granted VERSION|IBITS|ATTRFID|AT|FID|FULL20|BULK_MBITS|FLAGS2\n\
             \x20 granted REP_MBITS (second word)\n\
             \x20 keeps transactions, last committed 4294967385\n\
             \x20 estimates: service 5 s, net 5 s\n",
        ),
        (
            "lfs-OST0000_UUID",
            "lfs-OST0000_UUID at 127.101.0.1@tcp: connected in T ms\n\
             \x20 ping T ms\n\
             \x20 version 2.17.57, instance 1\n\
             \x20 granted VERSION|BRW_SIZE|AT|FID|FULL20|BULK_MBITS|FLAGS2\n\
             \x20 granted REP_MBITS (second word)\n\
             \x20 keeps transactions, last committed 4294967372\n\
             \x20 estimates: service 5 s, net 5 s\n",
        ),
    ] {
        let (out, err, code) = rpc("ping", 101, 7971, &["--target", target]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{target}: {out}");
        assert_eq!(timeless(&out), expected, "{target}");
    }
}

#[test]
fn a_ping_of_a_kernel_server_is_an_object_for_programs() {
    let _server = kernel(102, 7972);
    let words = ["--target", "lfs-MDT0000_UUID", "--count", "3", "--json"];
    let (out, err, code) = rpc("ping", 102, 7972, &words);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let mut value: Value = serde_json::from_str(&out).unwrap();
    let times = value["ping_ms"].take();
    assert!(value["connect_ms"].take().as_f64().unwrap() > 0.0, "{out}");
    assert_eq!(times.as_array().map(Vec::len), Some(3), "{out}");
    let expected = json!({
        "target": "lfs-MDT0000_UUID",
        "nid": "127.102.0.1@tcp",
        "portal": 12,
        "version": "2.17.57",
        "instance": 1,
        "connect_ms": null,
        "ping_ms": null,
        "granted": "VERSION|IBITS|ATTRFID|AT|FID|FULL20|BULK_MBITS|FLAGS2",
        "granted2": "REP_MBITS",
        "replayable": true,
        "last_committed": 4_294_967_385_u64,
        "service_estimate_s": 5,
        "net_estimate_s": 5,
    });
    assert_eq!(value, expected);
}

#[test]
fn a_kernel_server_without_the_target_is_named_with_its_answer() {
    let _server = kernel(103, 7973);
    let (out, err, code) = rpc("ping", 103, 7973, &["--target", "lfs-MDT0007_UUID"]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(
        err.contains("127.103.0.1@tcp answered: it has no target 'lfs-MDT0007_UUID' (-19)"),
        "{err}"
    );
}

#[test]
fn a_probe_lists_the_targets_of_a_kernel_server() {
    let _server = kernel(104, 7974);
    let (out, err, code) = rpc("probe", 104, 7974, &["--fsname", "lfs"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(
        out,
        "MGS: serving, version 2.17.57, instance 0\n\
         lfs-MDT0000_UUID: serving, version 2.17.57, instance 1\n\
         lfs-MDT0001_UUID: -19: No such device\n\
         lfs-MDT0002_UUID: -19: No such device\n\
         lfs-MDT0003_UUID: -19: No such device\n\
         lfs-OST0000_UUID: serving, version 2.17.57, instance 1\n\
         lfs-OST0001_UUID: serving, version 2.17.57, instance 2\n\
         lfs-OST0002_UUID: -19: No such device\n\
         lfs-OST0003_UUID: -19: No such device\n"
    );
}
