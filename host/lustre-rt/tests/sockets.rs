//! Two nodes over TCP sockets: calls and bulk data both ways, a server that dies and comes back.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::collections::BTreeMap;

use lnet_rt::{Errno, Nid, NodeBuilder, NodeHandle, OpError, Span};
use lustre_rt::{
    Answer, Buffers, Call, CallError, ConnectData, ConnectFlags, ConnectFlags2, Direction, Handler,
    Import, ImportConfig, ImportKind, ImportState, Opcode, Past, Portal, Rpc, RpcError, RpcNode,
    Served, ServedId, ServiceConfig, TargetConfig,
};

const STORE: Opcode = Opcode(20_000);
const FETCH: Opcode = Opcode(20_001);
const LEN: usize = 1 << 20;

fn data() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// Keeps one block, which clients store and fetch.
#[derive(Default)]
struct Shelf {
    block: Option<Vec<u8>>,
    moving: BTreeMap<ServedId, (Opcode, Span)>,
    transno: u64,
}

impl Handler for Shelf {
    fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>) {
        let span = rpc.below().alloc(LEN as u32).unwrap();
        let direction = match served.opcode {
            STORE => Direction::Write,
            FETCH => {
                let Some(block) = &self.block else { return rpc.refuse(served.id, Errno::ENOENT) };
                rpc.below().bytes_mut(span).copy_from_slice(block);
                Direction::Read
            }
            _ => return rpc.refuse(served.id, Errno::EOPNOTSUPP),
        };
        self.moving.insert(served.id, (served.opcode, span));
        rpc.bulk(served.id, direction, &[span].into_iter().collect()).unwrap();
    }

    fn bulk_done(&mut self, id: ServedId, result: Result<(), Errno>, rpc: &mut Rpc<'_, '_>) {
        let Some((opcode, span)) = self.moving.remove(&id) else { return };
        if result.is_ok() {
            let transno = if opcode == STORE {
                self.block = Some(rpc.below().bytes(span).to_vec());
                self.transno += 1;
                self.transno
            } else {
                0
            };
            rpc.reply(id, Answer { transno, ..Answer::default() });
        }
        rpc.below().free(span);
    }
}

fn server(ip: &str, port: u16) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let (request, reply) = ImportKind::Osc.portals();
    let service = ServiceConfig::new("shelf", request.0, reply.0, Portal::OST_BULK.0);
    let target = TargetConfig {
        uuid: "shelf-1".to_owned(),
        offer: data(),
        replayable: false,
        past: Past::default(),
    };
    rpc.serve(vec![target], vec![service], Shelf::default()).unwrap();
    (node, rpc)
}

fn client(ip: &str, server: &str, port: u16) -> (NodeHandle, Import) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    let nid: Nid = format!("{server}@tcp").parse().unwrap();
    let import = rpc.import(ImportConfig {
        kind: ImportKind::Osc,
        target: "shelf-1".to_owned(),
        client: format!("client-{ip}"),
        nids: vec![nid],
        wanted: data(),
    });
    (node, import.unwrap())
}

#[test]
fn a_megabyte_goes_there_and_comes_back() {
    let (_node, served) = server("127.81.0.1", 7981);
    let (_client, import) = client("127.81.0.2", "127.81.0.1", 7981);
    let (missing, _) = import
        .call_with(Call::new(FETCH, Buffers::new()), Direction::Read, vec![0; LEN])
        .unwrap()
        .blocking();
    assert!(
        matches!(missing, Err(RpcError::Call(CallError::Refused(Errno::ENOENT)))),
        "{missing:?}"
    );
    let text: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
    let (stored, buffer) = import
        .call_with(Call::new(STORE, Buffers::new()), Direction::Write, text.clone())
        .unwrap()
        .blocking();
    assert_eq!((stored.unwrap().transno, buffer.unwrap().len()), (1, LEN));
    let (fetched, buffer) = import
        .call_with(Call::new(FETCH, Buffers::new()), Direction::Read, vec![0; LEN])
        .unwrap()
        .blocking();
    fetched.unwrap();
    assert!(buffer.unwrap()[..] == text[..], "what was stored is fetched");
    assert_eq!(import.view().unwrap().unwrap().state, ImportState::Full);
    assert_eq!(served.exports().unwrap().len(), 1);
    import.disconnect().unwrap();
    assert!(served.exports().unwrap().is_empty());
}

#[test]
fn calls_to_a_server_that_dies_are_answered_by_its_next_life() {
    let (node, served) = server("127.82.0.1", 7982);
    let (_client, import) = client("127.82.0.2", "127.82.0.1", 7982);
    let unknown = || import.call(Call::new(Opcode(20_002), Buffers::new())).unwrap();
    let refused = |end: Result<_, RpcError>| {
        assert!(
            matches!(end, Err(RpcError::Call(CallError::Refused(Errno::EOPNOTSUPP)))),
            "{end:?}"
        );
    };
    refused(unknown().blocking().0.map(|_| ()));
    drop(served);
    node.stop(std::time::Duration::ZERO).blocking();
    let waiting = unknown();
    let (_node, _served) = server("127.82.0.1", 7982);
    // What was written to the dying process is in doubt, and its next life remembers nothing.
    match waiting.blocking().0.map(|_| ()) {
        Err(RpcError::Call(CallError::Evicted)) => {}
        end => refused(end),
    }
    refused(unknown().blocking().0.map(|_| ()));
    let view = import.view().unwrap().unwrap();
    assert!(view.conn_cnt >= 2, "{view:?}");
}

#[test]
fn a_call_that_cannot_begin_says_so_at_its_end_and_its_buffer_comes_back() {
    let (_node, _served) = server("127.82.0.3", 7983);
    let (_client, import) = client("127.82.0.4", "127.82.0.3", 7983);
    let closed = import.clone();
    import.disconnect().unwrap();
    let done =
        closed.call_with(Call::new(FETCH, Buffers::new()), Direction::Read, vec![0; 8]).unwrap();
    let (end, buffer) = done.blocking();
    assert!(matches!(end, Err(RpcError::Call(CallError::NoImport))), "{end:?}");
    assert_eq!(buffer.unwrap().len(), 8);
}

#[test]
fn a_call_can_be_cancelled_before_the_node_has_begun_it() {
    let (node, import) = client("127.82.0.5", "127.82.0.6", 7984);
    // The node's thread is busy until both commands have reached it.
    let (go, wait) = std::sync::mpsc::channel();
    let held = node.call(move |_, _| wait.recv().unwrap());
    let done = import.call(Call::new(FETCH, Buffers::new())).unwrap();
    let cancelled = std::thread::scope(|scope| {
        let cancel = scope.spawn(|| done.cancel());
        go.send(()).unwrap();
        cancel.join().unwrap()
    });
    cancelled.unwrap();
    held.blocking().unwrap();
    let (end, _) = done.blocking();
    assert!(matches!(end, Err(RpcError::Call(CallError::Cancelled))), "{end:?}");
}

#[test]
fn waiting_for_a_call_on_the_nodes_own_thread_is_refused() {
    let (node, import) = client("127.82.0.7", "127.82.0.8", 7985);
    let end =
        node.call(move |_, _| import.call(Call::new(FETCH, Buffers::new())).unwrap().blocking().0);
    let end = end.blocking().unwrap();
    assert!(matches!(end, Err(RpcError::Node(OpError::WouldDeadlock))), "{end:?}");
}
