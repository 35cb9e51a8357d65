//! What releases from 2.12 to 2.17 differ in: attributes with nanoseconds or without, conversions or none.

use ldlm::Mode;
use ldlm::client::{Ask, HoldId, LockEvent};
use lnet_types::ByteOrder;
use lustre_wire::Layout as _;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::{InodeBits, LockFlags, Lvb, Policy};

use super::glimpse::{asked, glimpse, writer};
use super::{Bench, OBJECT, data, lvb, whole};

/// A client that does not expect nanoseconds.
fn without_nanoseconds() -> ConnectData {
    ConnectData { flags: data().flags.difference(ConnectFlags::LVB_TYPE), ..data() }
}

/// Bytes of the attributes that came with a hold.
fn attributes(bench: &mut Bench, hold: HoldId) -> Option<usize> {
    bench.seen().into_iter().find_map(|(_, event)| match event {
        LockEvent::Granted { hold: of, lvb, .. } if of == hold => Some(lvb.len()),
        _ => None,
    })
}

#[test]
fn l18_attributes_are_short_in_each_message_to_a_client_without_lvb_type() {
    for (wanted, len) in [(data(), Lvb::LEN), (without_nanoseconds(), Lvb::LEN_SHORT)] {
        let mut bench = Bench::new();
        let (a, b) = (bench.client("a"), bench.client_with("b", wanted));
        // In the reply to an enqueue.
        let hold = bench.ask(b, &whole(Mode::Pr));
        assert_eq!(attributes(&mut bench, hold), Some(len), "enqueue");
        bench.clients(|clients, below| {
            clients.locks.release(b, hold, false, &mut clients.ptlrpc.rpc(below));
        });
        // In a completion.
        let (holds, _) = bench.granted(a, &whole(Mode::Ex));
        let waits = bench.ask(b, &whole(Mode::Pr));
        assert_eq!(attributes(&mut bench, waits), None);
        bench.clients(|clients, below| {
            clients.locks.release(a, holds, false, &mut clients.ptlrpc.rpc(below));
        });
        assert_eq!(attributes(&mut bench, waits), Some(len), "completion");
        bench.clients(|clients, below| {
            clients.locks.release(b, waits, false, &mut clients.ptlrpc.rpc(below));
        });
        // In the reply to a glimpse that leaves no lock.
        bench.granted(a, &writer());
        let call = glimpse(&mut bench, b, LockFlags::empty());
        let asks = asked(&mut bench).expect("the writer is asked");
        bench.answer(asks, Some(100));
        let reply = bench.ended(call).unwrap().unwrap();
        assert_eq!(reply.msg().unwrap().buffer(2).map(<[u8]>::len), Some(len), "glimpse");
    }
}

#[test]
fn l18_client_without_lvb_type_answers_a_glimpse_without_nanoseconds() {
    for (wanted, nanoseconds) in [(data(), 5), (without_nanoseconds(), 0)] {
        let mut bench = Bench::new();
        let (a, b) = (bench.client_with("a", wanted), bench.client("b"));
        bench.granted(a, &writer());
        let call = glimpse(&mut bench, b, LockFlags::empty());
        let asks = asked(&mut bench).expect("the writer is asked");
        let known = Lvb { mtime: 7, mtime_ns: 5, ..lvb(100) };
        bench.clients(|clients, below| {
            let bytes = Some(known.to_bytes(ByteOrder::Little));
            clients.locks.glimpsed(asks, bytes, &mut clients.ptlrpc.rpc(below));
        });
        let reply = bench.ended(call).unwrap().unwrap();
        let msg = reply.msg().unwrap();
        let said = Lvb::parse_either(ByteOrder::Little, msg.buffer(2).unwrap()).unwrap();
        assert_eq!((said.size, said.mtime, said.mtime_ns), (100, 7, nanoseconds));
    }
}

#[test]
fn l45_without_lock_convert_no_conversion_is_sent_and_the_lock_goes_as_a_whole() {
    let mut bench = Bench::new();
    let flags2 = data().flags2.difference(ConnectFlags2::LOCK_CONVERT);
    let old = bench.client_with("a", ConnectData { flags2, ..data() });
    let b = bench.client("b");
    let part = |bits| {
        let (bits, try_bits) = (InodeBits::from_bits_retain(bits), InodeBits::empty());
        Policy::Ibits { bits, try_bits, gid: 0, initiator: 0 }
    };
    let (hold, lock) = bench.granted(old, &Ask::new(OBJECT, Mode::Pr, part(7)));
    let waits = bench.ask(b, &Ask::new(OBJECT, Mode::Ex, part(2)));
    let refused = bench.clients(|clients, below| {
        let keep = InodeBits::from_bits_retain(5);
        clients.locks.convert(old, lock, keep, &mut clients.ptlrpc.rpc(below))
    });
    assert!(refused.unwrap_err().to_string().contains("LOCK_CONVERT"));
    assert_eq!(bench.server(|server, _| server.locks.stats().converts), 0);
    bench.seen();
    bench.clients(|clients, below| {
        clients.locks.release(old, hold, false, &mut clients.ptlrpc.rpc(below));
    });
    assert!(attributes(&mut bench, waits).is_some(), "granted");
}
