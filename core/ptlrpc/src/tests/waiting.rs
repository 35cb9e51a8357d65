//! Calls that wait for slots end together, in a loop: the stack stays small however many they are.

use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::{ImportKind, OpFlags, Opcode};

use super::bench::{APPEND, Bench, ECHO, data};
use super::script::{Said, config, scripted};
use crate::{Call, CallError, Event, Tunables};

const CALLS: usize = 20_000;
const STACK: usize = 256 << 10;

fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(STACK).spawn(test).unwrap().join().unwrap();
}

/// A client with one transaction whose reads are not answered.
fn bench(mut connects: Vec<Said>) -> Bench {
    scripted(Tunables::default(), config(ImportKind::Osc, data()), move |asked| {
        let mut said = Said::status(0);
        match asked.body.opcode {
            _ if asked.connects() && connects.len() > 1 => vec![connects.remove(0)],
            _ if asked.connects() => connects.clone(),
            Opcode::OST_READ => Vec::new(),
            APPEND => {
                said.body.transno = 5;
                vec![said]
            }
            _ => vec![said],
        }
    })
}

fn connected(handle: u64) -> Said {
    Said::connected(handle, OpFlags::empty(), data())
}

/// A client whose connection is in use.
fn in_use(second: Said) -> Bench {
    let mut bench = bench(vec![connected(7), second]);
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench
}

fn reads(bench: &mut Bench, limit: Option<Duration>) {
    let import = bench.import;
    bench.party_of(bench.client, |party, _| party.events.clear());
    bench.rpc(bench.client, |rpc| {
        for _ in 0..CALLS {
            let call = Call { limit, ..Bench::say(Opcode::OST_READ, "") };
            rpc.call(import, call).unwrap();
        }
    });
}

/// Asserts that all calls have ended for one reason.
fn all_ended(bench: &mut Bench, reason: CallError) {
    let ends = bench.party_of(bench.client, |party, _| {
        let end = |event: &Event| match event {
            Event::Ended { result, .. } => Some(result.clone().map(|_| ())),
            _ => None,
        };
        party.events.iter().filter_map(end).collect::<Vec<_>>()
    });
    assert_eq!(ends.len(), CALLS);
    let other = ends.iter().find(|end| **end != Err(reason));
    assert_eq!(other, None, "expected {reason:?}");
}

#[test]
fn p76_eviction_ends_all_waiting_calls_as_those_under_way() {
    on_small_stack(|| {
        let mut bench = in_use(connected(8));
        reads(&mut bench, None);
        let (client, import) = (bench.client, bench.import);
        bench.rpc(client, |rpc| rpc.fail(import));
        bench.secs(10);
        all_ended(&mut bench, CallError::Evicted);
        let call = bench.call(Bench::say(ECHO, "after"));
        assert!(bench.end_of(call).unwrap().is_ok());
    });
}

#[test]
fn p67_refusal_for_good_ends_all_waiting_calls_with_its_error() {
    on_small_stack(|| {
        let mut bench = bench(vec![Said::error(Errno::EACCES)]);
        reads(&mut bench, None);
        bench.secs(10);
        all_ended(&mut bench, CallError::Refused(Errno::EACCES));
    });
}

#[test]
fn p67_refusal_for_good_of_a_known_client_ends_all_waiting_calls_with_its_error() {
    on_small_stack(|| {
        let mut bench = in_use(Said::error(Errno::EPERM));
        reads(&mut bench, None);
        let (client, import) = (bench.client, bench.import);
        bench.rpc(client, |rpc| rpc.fail(import));
        bench.secs(10);
        all_ended(&mut bench, CallError::Refused(Errno::EPERM));
    });
}

#[test]
fn p104_disconnect_ends_all_waiting_calls() {
    on_small_stack(|| {
        let mut bench = in_use(connected(8));
        reads(&mut bench, None);
        let (client, import) = (bench.client, bench.import);
        bench.rpc(client, |rpc| rpc.disconnect(import));
        bench.secs(10);
        all_ended(&mut bench, CallError::Closed);
    });
}

#[test]
fn p79_3_limit_ends_all_waiting_calls() {
    on_small_stack(|| {
        let mut bench = in_use(connected(8));
        reads(&mut bench, Some(Duration::from_secs(2)));
        bench.secs(10);
        all_ended(&mut bench, CallError::LimitPassed);
    });
}

#[test]
fn p82_cancel_of_a_call_under_way_gives_its_slot_to_the_next() {
    let mut bench = in_use(connected(8));
    let in_flight = usize::from(Tunables::default().max_rpcs_in_flight);
    let calls: Vec<_> =
        (0..=in_flight).map(|_| bench.call(Bench::say(Opcode::OST_READ, ""))).collect();
    assert_eq!(bench.asked_for(Opcode::OST_READ).len(), in_flight);
    let first = calls[0];
    bench.rpc(bench.client, |rpc| rpc.cancel(first));
    bench.settle();
    assert_eq!(bench.end_of(first), Some(Err(CallError::Cancelled)));
    assert_eq!(bench.asked_for(Opcode::OST_READ).len(), in_flight + 1);
}
