//! `ulnet rpc`: a server is pinged over sockets, and a capture is listed.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::process::{Command, Output};

use lnet_rt::{Errno, NodeBuilder, NodeHandle};
use lustre_rt::{
    ConnectData, ConnectFlags, ConnectFlags2, Handler, ImportKind, Past, Portal, Rpc, RpcNode,
    Served, ServiceConfig, TargetConfig,
};

fn ulnet(words: &[&str]) -> (String, String, Option<i32>) {
    let o: Output = Command::new(env!("CARGO_BIN_EXE_ulnet")).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(o.stdout), text(o.stderr), o.status.code())
}

/// A target that can do nothing but be connected to.
struct Nothing;

impl Handler for Nothing {
    fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>) {
        rpc.refuse(served.id, Errno::EOPNOTSUPP);
    }
}

fn server(port: u16) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp("127.83.0.1".parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let (request, reply) = ImportKind::Mgc.portals();
    let offer = ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::FULL20
            | ConnectFlags::AT
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        instance: 7,
        ..ConnectData::default()
    };
    let target =
        TargetConfig { uuid: "MGS".to_owned(), offer, replayable: false, past: Past::default() };
    let service = ServiceConfig::new("mgs", request.0, reply.0, Portal::MGS_BULK.0);
    rpc.serve(vec![target], vec![service], Nothing).unwrap();
    (node, rpc)
}

#[test]
fn a_ping_connects_measures_and_leaves_nothing_behind() {
    let (_node, rpc) = server(7983);
    let to = ["rpc", "ping", "127.83.0.1@tcp", "--source", "127.83.0.2", "--port", "7983"];
    let (out, err, code) = ulnet(&[&to[..], &["--count", "3"]].concat());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("MGS at 127.83.0.1@tcp: connected in "), "{out}");
    assert_eq!(out.matches("  ping ").count(), 3, "{out}");
    assert!(out.contains("version 2.17.57, instance 7"), "{out}");
    assert!(out.contains("granted VERSION|AT|FULL20|FLAGS2"), "{out}");
    assert!(rpc.exports().unwrap().is_empty(), "it has disconnected");

    // A service is pinged by its portal, if there is one.
    let (request, _) = ImportKind::Mgc.portals();
    let (out, err, code) = ulnet(&[&to[..], &["--portal", &request.0.to_string()]].concat());
    assert_eq!((code, out.matches("  ping ").count()), (Some(0), 1), "{err}");
    let none = ["--portal", "12", "--timeout", "2"];
    let (_, err, code) = ulnet(&[&to[..], &none].concat());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("MGS at 127.83.0.1@tcp, portal 12: ping: "), "{err}");
    assert!(rpc.exports().unwrap().is_empty(), "it has disconnected though its ping failed");

    // Beside a server on the loopback a command takes an address of its own.
    let beside = ["rpc", "ping", "127.83.0.1@tcp", "--port", "7983", "--json"];
    let (out, _, code) = ulnet(&beside);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, value["instance"].as_u64()), (Some(0), Some(7)), "{out}");
    assert_eq!(value["ping_ms"].as_array().map(Vec::len), Some(1));

    let (_, err, code) =
        ulnet(&[&to[..], &["--target", "lfs-MDT0000_UUID", "--timeout", "2"]].concat());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("no connection within 2 s"), "no service on that portal: {err}");
    let reached = "127.83.0.1@tcp answers LNet pings: it has no service for them";
    assert!(err.contains(reached), "{err}");
}

#[test]
fn a_target_that_is_not_there_is_named_in_the_answer() {
    let node = NodeBuilder::new().tcp("127.84.0.1".parse().unwrap(), 7984).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let (request, reply) = ImportKind::Osc.portals();
    let service = ServiceConfig::new("ost", request.0, reply.0, Portal::OST_BULK.0);
    rpc.serve(Vec::new(), vec![service], Nothing).unwrap();
    let (_, err, code) = ulnet(&[
        "rpc",
        "ping",
        "127.84.0.1@tcp",
        "--source",
        "127.84.0.2",
        "--port",
        "7984",
        "--target",
        "lfs-OST0000_UUID",
    ]);
    assert_eq!(code, Some(1));
    assert_eq!(
        err,
        "ulnet rpc: 127.84.0.1@tcp answered: it has no target 'lfs-OST0000_UUID' (-19)\n"
    );
}

#[test]
fn a_server_that_is_not_there_is_given_up_within_the_time() {
    let (_, err, code) = ulnet(&[
        "rpc",
        "ping",
        "127.85.0.1@tcp",
        "--source",
        "127.85.0.2",
        "--port",
        "7985",
        "--timeout",
        "2",
    ]);
    assert_eq!(code, Some(1));
    assert!(err.contains("MGS at 127.85.0.1@tcp: no connection within 2 s"), "{err}");
    assert!(err.contains("127.85.0.1@tcp does not answer LNet pings either"), "{err}");
    let (_, err, code) = ulnet(&["rpc", "ping", "10.1.0.2@tpc"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("10.1.0.2@tpc"), "{err}");
    let (_, err, code) = ulnet(&["rpc", "ping", "10.0.0.1@o2ib"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("NID '10.0.0.1@o2ib': expected one on a tcp network"), "{err}");
    let (_, err, code) = ulnet(&["rpc", "ping", "10.1.0.2"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("did you mean '10.1.0.2@tcp'?"), "{err}");
}

#[test]
fn a_capture_is_listed() {
    let (_, err, code) = ulnet(&["rpc", "decode", "/no/such.pcap"]);
    let why = "ulnet rpc: /no/such.pcap: No such file or directory (os error 2)\n";
    assert_eq!((code, err.as_str()), (Some(1), why));

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ptlrpc/umount.pcap");
    let (out, err, code) = ulnet(&["rpc", "decode", file]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("MGS_DISCONNECT"), "{out}");

    let (out, err, code) = ulnet(&["rpc", "decode", "--json", "--name", "10.78.0.12@tcp=K2", file]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rpcs: Vec<_> = found.as_array().unwrap().iter().filter(|f| f["rpc"].is_object()).collect();
    let left = |kind: &str| {
        rpcs.iter().find(|f| f["rpc"]["opcode"] == "MDS_DISCONNECT" && f["rpc"]["kind"] == kind)
    };
    let (request, reply) = (left("REQ").unwrap(), left("REP").unwrap());
    assert_eq!((&request["frame"], &request["lnet"]["source"]), (&11.into(), &"K2".into()));
    assert_eq!(request["rpc"]["xid"], reply["rpc"]["xid"], "a reply has the number of its request");
    assert_eq!(reply["rpc"]["transno"], 4_294_967_421_u64);
    let cancel = &rpcs[0]["rpc"];
    assert_eq!(cancel["opcode"], "LDLM_CANCEL");
    assert!(cancel["buffers"][0].as_str().unwrap().starts_with("lock_req{"), "{cancel}");
}
