//! A key-value target on files over TCP sockets: values small and large, versions, listings, a server
//! that stops and starts again.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lnet_rt::{Errno, NodeBuilder, NodeHandle};
use lustre_rt::store::{DirLock, Disk, DiskConfig};
use lustre_rt::{
    CallError, InfoFlags, Kv, KvClient, KvError, Portal, RpcError, RpcNode, TargetKind, TargetSpec,
};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("kv-{name}"));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server(ip: &str, port: u16, config: DiskConfig) -> (NodeHandle, Arc<Mutex<Vec<String>>>) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    rpc.log(move |_, line| log.lock().unwrap().push(line.to_owned())).unwrap();
    rpc.add_target("kv-1", Kv::new(), Disk::open(config).unwrap()).unwrap();
    rpc.serve_targets().unwrap();
    (node, lines)
}

fn client(ip: &str, server: &str, port: u16) -> (NodeHandle, KvClient) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let nids = vec![format!("{server}@tcp").parse().unwrap()];
    let client = KvClient::new(&rpc, "kv-1", &format!("client-{ip}"), nids).unwrap();
    (node, client.with_limit(Duration::from_secs(60)))
}

fn refused<T: std::fmt::Debug>(result: Result<T, KvError>) -> Errno {
    match result {
        Err(KvError::Rpc(RpcError::Call(CallError::Refused(errno)))) => errno,
        other => panic!("expected a refusal: {other:?}"),
    }
}

#[test]
fn values_of_any_size_are_put_read_compared_listed_removed() {
    let scratch = Scratch::new("sizes");
    let (_server, _) = server("127.83.0.1", 7983, DiskConfig::new(&scratch.0));
    let (_client, kv) = client("127.83.0.2", "127.83.0.1", 7983);
    assert_eq!(refused(kv.get(b"a")), Errno::ENOENT);
    let first = kv.put(b"a", "one").unwrap();
    assert_eq!((first.previous, first.flags), (0, InfoFlags::APPLIED));
    let second = kv.put(b"a", "two").unwrap();
    assert_eq!(second.previous, first.version);
    let (info, value) = kv.get(b"a").unwrap();
    assert_eq!((info.version, value), (second.version, b"two".to_vec()));

    // Two and a half pieces of bulk data, replaced by a small value and back.
    let large: Vec<u8> = (0..2_600_001u32).map(|i| (i % 251) as u8).collect();
    let stored = kv.put(b"large", large.clone()).unwrap();
    let (info, value) = kv.get(b"large").unwrap();
    assert!(info.version == stored.version && value == large);
    assert_eq!(kv.put(b"large", "small").unwrap().previous, stored.version);
    assert_eq!(kv.get(b"large").unwrap().1, b"small");
    kv.put(b"large", large.clone()).unwrap();

    let lost = kv.cas(b"a", "three", first.version).unwrap();
    assert_eq!((lost.flags, lost.version), (InfoFlags::default(), second.version));
    let won = kv.cas(b"a", "three", second.version).unwrap();
    assert!(won.flags.contains(InfoFlags::APPLIED));
    assert_eq!(kv.cas(b"new", large.clone(), 7).unwrap().version, 0);
    assert!(kv.cas(b"new", large.clone(), 0).unwrap().flags.contains(InfoFlags::APPLIED));

    let (keys, more) = kv.list(b"", b"", 2).unwrap();
    let names: Vec<_> = keys.iter().map(|e| (e.key.as_slice(), e.len)).collect();
    assert_eq!(names, [(&b"a"[..], 5), (&b"large"[..], large.len() as u64)]);
    assert!(more);
    assert_eq!(kv.list(b"", b"large", 2).unwrap().0.len(), 1);
    assert_eq!(kv.list(b"x", b"", 2).unwrap().0, []);

    assert_eq!(kv.del(b"a").unwrap().previous, won.version);
    assert_eq!(refused(kv.del(b"a")), Errno::ENOENT);
    assert_eq!(refused(kv.put(&[7; 256], "")), Errno::E2BIG);
    assert_eq!(refused(kv.put(b"", "")), Errno::EINVAL);
    kv.disconnect().unwrap();
}

#[test]
fn services_of_a_kind_begin_with_its_first_target() {
    let node = NodeBuilder::new().tcp("127.0.0.1".parse().unwrap(), fresh::port()).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let portals = || {
        let (services, _) = rpc.services().unwrap();
        services.iter().map(|s| s.portal).collect::<BTreeSet<_>>()
    };
    assert_eq!(portals(), BTreeSet::new());
    let objects = [Portal::OST_REQUEST, Portal::OST_IO, Portal::OST_CREATE, Portal::LDLM_CANCEL];
    let mut expected: BTreeSet<u32> = objects.iter().map(|portal| portal.0).collect();
    for name in ["a", "b"] {
        let spec: TargetSpec = format!("{name}=echo:").parse().unwrap();
        rpc.start_target(&spec, None).unwrap();
        assert_eq!(portals(), expected, "the second needs no others");
    }
    // A standby has them before it may start its target.
    rpc.serve_kind(TargetKind::Mgs).unwrap();
    expected.insert(Portal::MGS_REQUEST.0);
    assert_eq!(portals(), expected);
    rpc.serve_kind(TargetKind::Mdt).unwrap();
    assert!(portals().contains(&Portal::MDS_REQUEST.0));
}

#[test]
fn target_that_starts_again_has_what_was_put_before() {
    let scratch = Scratch::new("restart");
    let (node, _) = server("127.84.0.1", 7984, DiskConfig::new(&scratch.0));
    let (_client, kv) = client("127.84.0.2", "127.84.0.1", 7984);
    let large = vec![5; 1 << 20];
    kv.put(b"large", large.clone()).unwrap();
    let mut last = kv.put(b"count", "0").unwrap();
    node.stop(Duration::ZERO).blocking();
    drop(node);
    let (_server, lines) = server("127.84.0.1", 7984, DiskConfig::new(&scratch.0));
    for n in 1..10u8 {
        let put = kv.put(b"count", [n]).unwrap();
        assert_eq!(put.previous, last.version, "put {n}: each one happens once");
        assert!(put.version > last.version);
        last = put;
    }
    assert!(kv.get(b"large").unwrap().1 == large);
    let lines = lines.lock().unwrap().join("\n");
    assert!(lines.contains("Recovery over after"), "{lines}");
}

#[test]
fn target_that_is_removed_and_added_again_keeps_its_values_and_its_clients() {
    let scratch = Scratch::new("removed");
    let node = NodeBuilder::new().tcp("127.83.4.1".parse().unwrap(), 7983).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    rpc.serve_targets().unwrap();
    let spec: TargetSpec = format!("kv-1=kv:{}", scratch.0.display()).parse().unwrap();
    rpc.start_target(&spec, DirLock::take(&spec.dir).unwrap()).unwrap();
    let (_client, kv) = client("127.83.4.2", "127.83.4.1", 7983);
    kv.put(b"a", "one").unwrap();
    let clients = |rpc: &RpcNode| {
        let views = rpc.inspect(|ptlrpc, now| ptlrpc.target_views(now)).unwrap();
        views.into_iter().map(|view| (view.uuid, view.clients)).collect::<Vec<_>>()
    };
    assert_eq!(clients(&rpc), [("kv-1".to_owned(), 1)]);

    assert!(DirLock::take(&spec.dir).is_err(), "the directory is in use");
    assert!(rpc.remove_target("kv-1", Duration::from_secs(5)).unwrap());
    assert!(!rpc.remove_target("kv-1", Duration::ZERO).unwrap(), "it is gone");
    assert_eq!(clients(&rpc), []);
    assert_eq!(rpc.evictions().unwrap(), []);
    // A call that is made meanwhile waits for the next start.
    let waiting = std::thread::spawn({
        let kv = kv.clone();
        move || kv.put(b"b", "two")
    });
    let lock = DirLock::take(&spec.dir).expect("the directory is free");
    rpc.start_target(&spec, lock).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().previous, 0);
    assert_eq!(kv.get(b"a").unwrap().1, b"one");
    assert_eq!(clients(&rpc), [("kv-1".to_owned(), 1)]);
}
