//! What a server makes of connects that it may take (P-129, rows 8 to 15). Who may connect is in
//! `server/connect.rs`.

use lnet_types::Errno;
use lustre_wire::connect::ConnectFlags;
use lustre_wire::{Body, ConnectData, Msg, MsgKind, OpFlags};

use super::bench::{APPEND, Bench, append_log, data};
use super::raw::{Raw, connect_of};

/// A connect: of which client, its own handle being 7, and how often it has connected.
struct Connect {
    client: &'static str,
    conn_cnt: u32,
    op_flags: OpFlags,
    data: ConnectData,
    len: usize,
}

impl Connect {
    fn of(client: &'static str, conn_cnt: u32) -> Self {
        let (op_flags, data) = (OpFlags::empty(), data());
        Self { client, conn_cnt, op_flags, data, len: 192 }
    }

    /// The body of the answer, and the length of the connect data in it.
    fn send(&self, bench: &mut Bench, xid: u64) -> (Body, Option<usize>) {
        let Self { client, conn_cnt, op_flags, data, len } = *self;
        let body = Body { conn_cnt, op_flags, ..Raw::body(0) };
        let message = connect_of(client, &body, data, len);
        let raw = Raw::send_bytes(bench, xid << 40, &message);
        let message = raw.message(bench);
        let msg = Msg::parse(&message).unwrap();
        (msg.body().unwrap(), msg.buffer(1).map(<[u8]>::len))
    }
}

const REFUSED: MsgKind = MsgKind::ERROR;

#[test]
fn p129_9_to_13_a_connect_and_the_next_of_the_same_client() {
    let mut bench = Bench::new(append_log());
    let (first, len) = Connect::of("client-x", 1).send(&mut bench, 1);
    assert_eq!((first.kind, first.status), (MsgKind::REPLY, 0));
    assert_eq!(first.op_flags, OpFlags::empty(), "9: new, and the target keeps nothing");
    assert!(first.handle != 0 && len == Some(192), "11, 13");
    // 11: connect data as long as those that were asked for.
    let short = Connect { len: 72, ..Connect::of("client-y", 1) };
    assert_eq!(short.send(&mut bench, 2).1, Some(72));
    // 9: the same client again, with its handle as the answer.
    let (again, _) = Connect::of("client-x", 2).send(&mut bench, 3);
    assert_eq!((again.op_flags, again.handle), (OpFlags::RECONNECT, first.handle));
    // 12: a count that is not above the last.
    let (old, _) = Connect::of("client-x", 2).send(&mut bench, 4);
    assert_eq!((old.kind, old.status), (REFUSED, Errno::EALREADY.negative()));
}

#[test]
fn p129_5_and_10_a_server_that_connects_as_a_new_client_gets_another_export() {
    let mut bench = Bench::new(append_log());
    let mut connect = Connect::of("client-x", 1);
    connect.data.flags |= ConnectFlags::LIGHTWEIGHT;
    connect.op_flags = OpFlags::INITIAL;
    let (first, _) = connect.send(&mut bench, 1);
    let (second, _) = connect.send(&mut bench, 2);
    assert_eq!((second.status, second.op_flags), (0, OpFlags::empty()), "no reconnect");
    assert!(second.handle != 0 && second.handle != first.handle);
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!(exports.len(), 1, "the one before is evicted");
}

#[test]
fn p129_8_10_14_15_connects_to_a_target_that_recovers() {
    let mut bench = Bench::stored();
    let call = bench.call(Bench::say(APPEND, "a=1"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.store(|store, rpc| store.commit(rpc, 1));
    bench.kill(bench.client);
    bench.crash_server();
    let stage = |b: &mut Bench| {
        let (target, now) = (b.target, b.now);
        let view = b.party_of(b.server, |p, _| p.ptlrpc.recovery_view(target, now)).unwrap();
        (view.connected, view.clients)
    };
    assert_eq!(stage(&mut bench), (0, 1));
    // 10: a new client waits until the known ones are back; a lightweight one takes no part.
    // The client of the bench is dead: the server's own upper sends.
    bench.client = bench.server;
    let (stranger, _) = Connect::of("client-x", 1).send(&mut bench, 1);
    assert_eq!((stranger.kind, stranger.status), (REFUSED, Errno::EBUSY.negative()));
    let mut light = Connect::of("client-light", 1);
    light.data.flags |= ConnectFlags::LIGHTWEIGHT;
    let (light, _) = light.send(&mut bench, 2);
    assert_eq!((light.status, light.op_flags), (0, OpFlags::REPLAYABLE), "15");
    // 7: a client with a known uuid that counts from 1 is another one.
    let (other, _) = Connect::of("client-1", 1).send(&mut bench, 3);
    assert_eq!((other.kind, other.status), (REFUSED, Errno::EALREADY.negative()));
    // 9, 14, 15: the known one joins the recovery.
    let (known, _) = Connect::of("client-1", 2).send(&mut bench, 4);
    assert_eq!(known.op_flags, OpFlags::REPLAYABLE | OpFlags::RECOVERING);
    assert_eq!(stage(&mut bench), (1, 1));
}
