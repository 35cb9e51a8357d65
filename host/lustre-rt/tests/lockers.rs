//! A lock target over TCP sockets: what is locked is seen by name, a second client's wait and the lock it
//! waits for too, and a lock that is broken goes to the next.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::time::{Duration, Instant};

use lnet_rt::{NodeBuilder, NodeHandle};
use lustre_rt::store::DirLock;
use lustre_rt::{
    Answer, Call, ConnectData, ConnectFlags, Handler, Import, ImportConfig, ImportKind, LockDesc,
    LockFilter, LockKind, LockMode, LockRow, Opcode, Policy, Portal, Rpc, RpcNode, Served,
    ServiceConfig, TargetSpec,
};
use lustre_target::lock::wire;
use lustre_wire::Buffers;
use lustre_wire::Layout as _;
use lustre_wire::ldlm::{LockFlags, LockReply, LockRequest};

const PORT: u16 = 7993;

/// Answers callbacks, and keeps what it has.
struct Keeps;

impl Handler for Keeps {
    fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>) {
        rpc.reply(served.id, Answer::default());
    }
}

fn client(ip: &str) -> (NodeHandle, Import) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), PORT).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let (request, reply) = (Portal::LDLM_CALLBACK.0, Portal::LDLM_CALLBACK_REPLY.0);
    let callbacks = ServiceConfig::new("callbacks", request, reply, Portal::OST_BULK.0);
    rpc.serve(vec![], vec![callbacks], Keeps).unwrap();
    let flags = ConnectFlags::FULL20 | ConnectFlags::VERSION | ConnectFlags::AT;
    let import = rpc.import(ImportConfig {
        kind: ImportKind::Osc,
        target: "locks".to_owned(),
        client: format!("client-{ip}"),
        nids: vec!["127.93.0.1@tcp".parse().unwrap()],
        wanted: ConnectData { flags: flags | ConnectFlags::LVB_TYPE, ..ConnectData::default() },
    });
    (node, import.unwrap())
}

fn enqueue(import: &Import, name: &str, cookie: u64) -> (LockReply, Option<u64>) {
    let desc = LockDesc {
        kind: LockKind::EXTENT,
        resource: wire::resource_of(name).unwrap(),
        requested: LockMode::EX,
        granted: LockMode::NONE,
        policy: Policy::Extent { start: 0, end: u64::MAX, gid: 0 }.words(),
    };
    let order = lnet_types::ByteOrder::Little;
    let request = LockRequest::new(LockFlags::empty(), 1, desc, &[cookie]).to_bytes(order);
    let call =
        Call::new(Opcode::LDLM_ENQUEUE, Buffers::new().bytes(request).bytes(name.as_bytes()))
            .answered_by(&[LockReply::LEN as u32, 56]);
    let reply = import.call(call).unwrap().blocking().0.unwrap();
    let msg = reply.msg().unwrap();
    (msg.get(1).unwrap(), wire::fence_of(msg.order, msg.buffer(2).unwrap_or_default()))
}

fn shown(server: &RpcNode, filter: LockFilter) -> Vec<LockRow> {
    server.locks(filter, 0, 100).unwrap().0
}

#[test]
fn a_lock_is_seen_by_its_name_and_goes_to_the_next_when_it_is_broken() {
    let dir = fresh::path("lockers");
    let _ = std::fs::remove_dir_all(&dir);
    let node = NodeBuilder::new().tcp("127.93.0.1".parse().unwrap(), PORT).start().unwrap();
    let server = RpcNode::start(&node, Default::default()).unwrap();
    let spec: TargetSpec = format!("locks=lock:{}", dir.display()).parse().unwrap();
    server.start_target(&spec, DirLock::take(&spec.dir).unwrap()).unwrap();
    server.serve_targets().unwrap();
    let ((_a, first), (_b, second)) = (client("127.93.0.2"), client("127.93.0.3"));

    let (granted, fence) = enqueue(&first, "jobs/42", 7);
    assert_eq!((granted.desc.granted, fence), (LockMode::EX, Some((1 << 40) + 1)));
    let (waits, none) = enqueue(&second, "jobs/42", 7);
    assert!(waits.flags.contains(LockFlags::BLOCK_GRANTED) && none.is_none());

    let rows = shown(&server, LockFilter::Named("jobs/42".to_owned()));
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_deref(), row.lock.client.as_str(), row.lock.waits))
        .collect();
    let name = Some("jobs/42");
    assert_eq!(seen, [(name, "client-127.93.0.2", false), (name, "client-127.93.0.3", true)]);
    assert!(rows[0].lock.called_back && rows[0].lock.expires.is_some());
    let blockers: Vec<_> = rows[1].waits_for.iter().map(|line| line.lock.0).collect();
    assert_eq!(blockers, [granted.handle]);
    assert_eq!(shown(&server, LockFilter::Contended).len(), 2);
    assert_eq!(shown(&server, LockFilter::Named("jobs/43".to_owned())), []);
    let space = server.namespaces().unwrap().remove(0);
    assert_eq!((space.space.locks, space.stats.blocking), (2, 1));

    assert!(!server.break_lock(lustre_rt::Cookie(1)).unwrap());
    assert!(server.break_lock(lustre_rt::Cookie(granted.handle)).unwrap());
    // The grant is announced by a callback; the target shows it before that is answered.
    let since = Instant::now();
    let next = loop {
        let rows = shown(&server, LockFilter::All);
        match rows.as_slice() {
            [row] if !row.lock.waits => break row.lock.clone(),
            _ => assert!(since.elapsed() < Duration::from_secs(60), "{rows:?}"),
        }
    };
    assert_eq!((next.lock.0, next.fence), (waits.handle, (1 << 40) + 2));
    std::fs::remove_dir_all(&dir).unwrap();
}
