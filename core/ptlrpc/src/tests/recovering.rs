//! What a client of a target that recovers is answered, on the wire (P-150); the machine alone is in
//! `server/recovery/tests.rs`.

use lnet_types::Errno;
use lustre_wire::{Body, BodyFlags, ConnectData, Layout as _, Msg, MsgKind, Opcode};

use super::bench::{APPEND, Bench, ECHO, data};
use super::raw::{Raw, connect_of};

/// A number above those of the bench's client.
const XID: u64 = 1 << 62;

/// A target that has started again and waits for two clients, and the handle of the one that is
/// played here.
fn recovering() -> (Bench, u64) {
    let mut bench = Bench::stored();
    let call = bench.call(Bench::say(APPEND, "a=1"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let (other, import) = bench.new_client("client-2");
    bench.rpc(other, |rpc| rpc.call(import, Bench::say(APPEND, "b=2"))).unwrap();
    bench.settle();
    bench.store(|store, rpc| store.commit(rpc, usize::MAX));
    bench.kill(other);
    bench.crash_server();
    let body = Body { conn_cnt: 2, ..Raw::body(0) };
    let connect = connect_of("client-2", &body, data(), ConnectData::LEN);
    let raw = Raw::send_bytes(&mut bench, XID, &connect);
    let message = raw.message(&bench);
    let handle = Msg::parse(&message).unwrap().body().unwrap().handle;
    assert_ne!(handle, 0);
    (bench, handle)
}

fn body(handle: u64) -> Body {
    Body { conn_cnt: 2, ..Raw::body(handle) }
}

fn in_work(bench: &mut Bench) -> usize {
    let views = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    views.iter().find(|view| view.client == "client-2").unwrap().in_work
}

fn stale(bench: &mut Bench) -> u64 {
    bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats()).stale
}

#[test]
fn p150_2_what_is_not_taken_is_refused_by_an_error_reply() {
    let (mut bench, handle) = recovering();
    let raw = Raw::send(&mut bench, XID + 128, &Body { opcode: Opcode::OST_READ, ..body(handle) });
    let reply = raw.reply(&bench).unwrap();
    assert_eq!((reply.kind, reply.status), (MsgKind::ERROR, Errno::EAGAIN.negative()));
}

#[test]
fn p150_7_a_claim_of_a_queued_transaction_is_dropped_without_a_reply() {
    let (mut bench, handle) = recovering();
    let replay = Body { flags: BodyFlags::REPLAY, transno: 9 << 32, ..body(handle) };
    let first = Raw::send(&mut bench, XID + 128, &replay);
    assert_eq!((in_work(&mut bench), stale(&mut bench)), (1, 0));
    let second = Raw::send(&mut bench, XID + 256, &replay);
    assert_eq!((in_work(&mut bench), stale(&mut bench)), (1, 1));
    assert_eq!((first.reply(&bench), second.reply(&bench)), (None, None));
}

#[test]
fn p150_4_a_second_final_ping_is_answered_in_the_place_of_the_first() {
    let (mut bench, handle) = recovering();
    let flags = BodyFlags::REQ_REPLAY_DONE | BodyFlags::LOCK_REPLAY_DONE;
    let ping = Body { opcode: Opcode::OBD_PING, version: 0x1_0003, flags, ..body(handle) };
    let first = Raw::send(&mut bench, XID + 128, &ping);
    let second = Raw::send(&mut bench, XID + 256, &ping);
    assert_eq!(in_work(&mut bench), 1);
    // The other client comes back: all is over.
    let call = bench.call(Bench::say(ECHO, "is it over?"));
    bench.secs(10);
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!((first.reply(&bench), in_work(&mut bench)), (None, 0));
    assert_eq!(second.reply(&bench).map(|reply| reply.status), Some(0));
}
