//! What a service does with requests that wait: slots, heads, policies, health.

use lnet_types::{Errno, Nid};
use lustre_wire::{Buffers, ImportKind, Opcode, Portal};

use super::bench::{APPEND, Bench, ECHO, append_log, data, keeper};
use crate::{
    Answer, Call, CallId, Event, Histogram, ImportConfig, ImportState, NrsError, Past, PolicyKind,
    ServiceConfig, ServiceId, ServiceView, TargetConfig, Tunables,
};

/// Slots of the bench's service: its only client may have all.
const SLOTS: usize = 64;

fn service(bench: &mut Bench) -> ServiceView {
    bench.party_of(bench.server, |p, _| p.ptlrpc.service_views()[0].clone())
}

fn set(bench: &mut Bench, name: &str, value: &str) -> Result<(), NrsError> {
    let id = service(bench).id;
    bench.rpc(bench.server, |rpc| rpc.set_parameter(id, name, value))
}

fn get(bench: &mut Bench, name: &str) -> Result<String, NrsError> {
    let id = service(bench).id;
    bench.party_of(bench.server, |p, _| p.ptlrpc.parameter(id, name))
}

/// A bench whose client has all slots that it may have.
fn full() -> Bench {
    let mut bench = Bench::new(keeper());
    for n in 0..SLOTS {
        bench.call(Bench::say(APPEND, &n.to_string()));
    }
    assert_eq!(bench.kept().len(), SLOTS);
    bench
}

/// A service for locks with one slot, which is taken; what it serves besides.
fn lock_service(bench: &mut Bench, hears_of_waiting: bool) -> ServiceId {
    let (request, reply) = (Portal::LDLM_CANCEL.0, Portal::LDLM_CANCEL_REPLY.0);
    let config = ServiceConfig::new("locks", request, reply, Portal::OST_BULK.0);
    let config = ServiceConfig { slots: 1, hears_of_waiting, ..config };
    let id = bench.rpc(bench.server, |rpc| rpc.serve(config)).unwrap();
    lock_call(bench, Opcode::LDLM_CONVERT);
    assert_eq!(bench.kept().len(), 1);
    id
}

fn lock_call(bench: &mut Bench, opcode: Opcode) -> CallId {
    bench.call(Call { buffers: Buffers::from([[0; 104]]), ..Bench::say(opcode, "") })
}

fn opcodes(bench: &mut Bench) -> Vec<Opcode> {
    bench.kept().iter().map(|served| served.opcode).collect()
}

#[test]
fn a_cancel_is_served_although_all_slots_are_taken() {
    use Opcode as O;
    let mut bench = Bench::new(keeper());
    let service = lock_service(&mut bench, false);
    lock_call(&mut bench, O::LDLM_CONVERT);
    let first = lock_call(&mut bench, O::LDLM_CANCEL);
    assert_eq!(opcodes(&mut bench), [O::LDLM_CONVERT, O::LDLM_CANCEL]);
    // One more has no slot, but goes before the regular one that came first.
    lock_call(&mut bench, O::LDLM_CANCEL);
    let views = bench.party_of(bench.server, |p, _| p.ptlrpc.service_views());
    let view = views.iter().find(|view| view.id == service).unwrap();
    assert_eq!((view.busy, view.queued, view.queued_high), (2, 2, 1));
    let cancel = bench.kept()[1].id;
    bench.rpc(bench.server, |rpc| rpc.reply(cancel, Answer::default()));
    bench.settle();
    assert!(bench.end_of(first).unwrap().is_ok());
    assert_eq!(opcodes(&mut bench), [O::LDLM_CONVERT, O::LDLM_CANCEL, O::LDLM_CANCEL]);
}

#[test]
fn a_request_that_waits_can_be_raised_above_the_regular_ones() {
    let mut bench = full();
    bench.call(Bench::say(APPEND, "first"));
    bench.call(Bench::say(APPEND, "others wait for this one"));
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    let waiting = bench.party_of(bench.server, |p, _| {
        let waiting = p.ptlrpc.waiting(export);
        waiting.iter().map(|w| (w.id, w.high, w.message.len())).collect::<Vec<_>>()
    });
    assert!(waiting.len() == 2 && waiting.iter().all(|(_, high, len)| !high && *len > 224));
    let raised = bench.rpc(bench.server, |rpc| (rpc.raise(waiting[1].0), rpc.raise(waiting[1].0)));
    assert_eq!(raised, (true, false), "then it is being served");
    assert_eq!(bench.kept().last().map(|s| s.id), Some(waiting[1].0));
    let view = service(&mut bench);
    assert_eq!((view.queued, view.queued_high), (1, 0));
}

#[test]
fn p114_a_regular_request_that_finds_no_slot_is_announced_and_can_be_raised() {
    use Opcode as O;
    let mut bench = Bench::new(keeper());
    lock_service(&mut bench, true);
    let announced = |b: &mut Bench| {
        b.party_of(b.server, |p, _| {
            let of = |event: &Event| match event {
                Event::Waits { served, .. } => Some(*served),
                _ => None,
            };
            let ids: Vec<_> = p.events.iter().filter_map(of).collect();
            ids.iter().map(|id| (*id, p.ptlrpc.waiting_as(*id).map(|w| w.body.opcode))).collect()
        })
    };
    let none: Vec<(crate::ServedId, Option<O>)> = announced(&mut bench);
    assert_eq!(none, [], "the first one has a slot");
    lock_call(&mut bench, O::LDLM_CANCEL);
    lock_call(&mut bench, O::LDLM_CANCEL);
    assert_eq!(announced(&mut bench), [], "cancels are of high priority anyway");
    lock_call(&mut bench, O::LDLM_CONVERT);
    let waits = announced(&mut bench);
    assert_eq!(
        waits.iter().map(|(_, opcode)| *opcode).collect::<Vec<_>>(),
        [Some(O::LDLM_CONVERT)]
    );
    assert!(bench.rpc(bench.server, |rpc| rpc.raise(waits[0].0)));
    let views = bench.party_of(bench.server, |p, _| p.ptlrpc.service_views());
    assert_eq!(views[1].queued_high, 2, "a cancel, and behind it the one that was raised");
}

#[test]
fn slots_of_a_target_that_is_removed_go_to_requests_of_others() {
    let mut bench = full();
    let other = bench.rpc(bench.server, |rpc| {
        let uuid = "log-2".to_owned();
        let past = Past::default();
        rpc.add_target(TargetConfig { uuid, offer: data(), replayable: false, past }).unwrap()
    });
    bench.rpc(bench.client, |rpc| {
        let import = rpc.import(ImportConfig {
            kind: ImportKind::Osc,
            target: "log-2".to_owned(),
            client: "client-1".to_owned(),
            nids: vec![Nid::LOOPBACK],
            wanted: data(),
        });
        rpc.call(import.unwrap(), Bench::say(APPEND, "waits")).unwrap();
    });
    bench.settle();
    assert_eq!(bench.kept().len(), SLOTS);
    let first = bench.target;
    assert!(bench.rpc(bench.server, |rpc| rpc.remove_target(first)));
    bench.settle();
    assert_eq!(bench.kept().len(), SLOTS + 1);
    assert_eq!(bench.kept().last().unwrap().target, other);
}

#[test]
fn requests_of_a_client_that_is_gone_leave_the_queue() {
    let mut bench = full();
    for _ in 0..10 {
        bench.call(Bench::say(APPEND, "waits"));
    }
    assert_eq!(service(&mut bench).queued, 10);
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    bench.rpc(bench.server, |rpc| rpc.evict(export));
    assert_eq!((service(&mut bench).queued, service(&mut bench).busy), (0, SLOTS));
}

#[test]
fn a_cancel_is_done_after_its_deadline_and_anything_else_is_dropped() {
    // P-107. All wait behind slots that are taken, and no early reply asks for more time.
    use Opcode as O;
    let mut bench = Bench::new(keeper());
    lock_service(&mut bench, false);
    let at_extra = core::time::Duration::ZERO;
    bench.party_of(bench.server, |p, _| {
        let tunables = Tunables { at_extra, ..p.ptlrpc.tunables().clone() };
        p.ptlrpc.set_tunables(tunables);
    });
    for opcode in [O::LDLM_CANCEL, O::LDLM_CANCEL, O::LDLM_CONVERT] {
        lock_call(&mut bench, opcode);
    }
    bench.secs(12);
    let late = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.server_stats().late);
    assert_eq!((opcodes(&mut bench).len(), late(&mut bench)), (2, 0), "no other had its turn");
    for n in [0, 1] {
        let served = bench.kept()[n].id;
        bench.rpc(bench.server, |rpc| rpc.decline(served));
    }
    assert_eq!(opcodes(&mut bench), [O::LDLM_CONVERT, O::LDLM_CANCEL, O::LDLM_CANCEL]);
    assert_eq!(late(&mut bench), 1);
}

#[test]
fn a_delayed_service_answers_after_the_delay_and_early_replies_bridge_it() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(ECHO, "connect"));
    assert!(bench.end_of(call).unwrap().is_ok());
    set(&mut bench, "nrs_policies", "delay reg").unwrap();
    set(&mut bench, "nrs_delay_max", "40").unwrap();
    set(&mut bench, "nrs_delay_min", "40").unwrap();
    let call = bench.call(Bench::say(APPEND, "held back"));
    bench.secs(39);
    assert_eq!((bench.end_of(call), service(&mut bench).queued), (None, 1));
    bench.secs(1);
    let reply = bench.end_of(call).unwrap().unwrap();
    assert_eq!(reply.transno, 1);
    // P-126: early replies at 6 and 31 s, and the service's estimate is what it took.
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!((stats.early, stats.folded), (2, 0));
    assert_eq!(reply.msg().unwrap().body().unwrap().service_time, 40);
    // Probes at 1 and 3, 10 and 18 s (DEC-48), and so no ping.
    assert_eq!(bench.sent, 2 * 2 + 2 + 2 + 2 * 4, "connect, echo, append, early replies, probes");
}

#[test]
fn pings_never_wait_and_a_policy_that_is_stopped_serves_what_it_held_back() {
    let mut bench = Bench::new(append_log());
    set(&mut bench, "nrs_policies", "delay").unwrap();
    set(&mut bench, "nrs_delay_min", "200").unwrap();
    let call = bench.call(Bench::say(APPEND, "held back"));
    set(&mut bench, "nrs_delay_pct", "0").unwrap();
    let other = bench.call(Bench::say(ECHO, "not held back"));
    assert!(bench.end_of(other).unwrap().is_ok() && bench.end_of(call).is_none());
    set(&mut bench, "nrs_delay_pct", "100").unwrap();
    bench.secs(100);
    assert_eq!(bench.states(), [ImportState::Connecting, ImportState::Full], "pings are answered");
    assert_eq!(bench.end_of(call), None);
    set(&mut bench, "nrs_policies", "fifo").unwrap();
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
    assert_eq!(service(&mut bench).policies, (PolicyKind::Fifo, Some(PolicyKind::Fifo)));
}

#[test]
fn parameters_of_policies_read_as_they_are_written_and_say_what_is_wrong() {
    // P-120, each error with its number.
    let mut bench = Bench::new(append_log());
    assert_eq!(get(&mut bench, "nrs_policies").unwrap(), "fifo reg\nfifo hp");
    let error = |b: &mut Bench, name, value| {
        let e = set(b, name, value).unwrap_err();
        (e.errno(), e.to_string())
    };
    let (errno, text) = error(&mut bench, "nrs_delay_min", "7");
    assert_eq!(errno, Errno::ENODEV);
    assert_eq!(text, "nrs_delay_min: policy delay must be started first, on this head");
    let (errno, text) = error(&mut bench, "nrs_policies", "lifo");
    assert_eq!(errno, Errno::EINVAL);
    assert_eq!(
        text,
        "nrs_policies \"lifo\": expected fifo, crrn or delay, then nothing, reg or hp"
    );
    set(&mut bench, "nrs_policies", "delay").unwrap();
    assert_eq!(get(&mut bench, "nrs_delay_min").unwrap(), "reg_delay_min:5 hp_delay_min:5");
    set(&mut bench, "nrs_delay_min", "reg_delay_min:7 hp_delay_min:2").unwrap();
    set(&mut bench, "nrs_delay_max", "hp_delay_max:2").unwrap();
    set(&mut bench, "nrs_delay_pct", "30").unwrap();
    assert_eq!(get(&mut bench, "nrs_delay_min").unwrap(), "reg_delay_min:7 hp_delay_min:2");
    assert_eq!(get(&mut bench, "nrs_delay_max").unwrap(), "reg_delay_max:300 hp_delay_max:2");
    assert_eq!(get(&mut bench, "nrs_delay_pct").unwrap(), "reg_delay_pct:30 hp_delay_pct:30");
    // One number is for both heads, and neither takes it if one of them can't.
    let (errno, text) = error(&mut bench, "nrs_delay_min", "8");
    assert_eq!(errno, Errno::EINVAL);
    let crossed =
        "nrs_delay_min 8: nrs_delay_max is 2, and nrs_delay_min must not be above nrs_delay_max";
    assert_eq!(text, crossed);
    assert_eq!(get(&mut bench, "nrs_delay_min").unwrap(), "reg_delay_min:7 hp_delay_min:2");
    assert_eq!(error(&mut bench, "nrs_delay_max", "hp_delay_max:1").0, Errno::EINVAL);
    let bad = [
        "",
        "-1",
        "65536",
        "1 2",
        "reg_delay_min:",
        "reg_delay_min:1 reg_delay_min:2",
        "5 hp_delay_min:1",
    ];
    for value in bad.into_iter().chain(["hp_delay_max:1", "reg_pct:1", "five", "+5", "5s"]) {
        let (errno, text) = error(&mut bench, "nrs_delay_min", value);
        assert_eq!(errno, Errno::EINVAL, "{value}");
        let bounds = "expected a whole number from 0 to 65535, or reg_delay_min:NUMBER, hp_delay_min:NUMBER or both";
        assert_eq!(text, format!("nrs_delay_min {value:?}: {bounds}"));
    }
    assert_eq!(error(&mut bench, "nrs_delay_pct", "101").0, Errno::EINVAL);
    assert_eq!(error(&mut bench, "nrs_crrn_quantum", "3").0, Errno::ENODEV);
    set(&mut bench, "nrs_policies", "crrn reg").unwrap();
    assert_eq!(get(&mut bench, "nrs_crrn_quantum").unwrap(), "reg_quantum:16");
    set(&mut bench, "nrs_crrn_quantum", "3").unwrap();
    assert_eq!(get(&mut bench, "nrs_crrn_quantum").unwrap(), "reg_quantum:3");
    assert_eq!(error(&mut bench, "nrs_crrn_quantum", "hp_quantum:3").0, Errno::ENODEV);
    assert_eq!(error(&mut bench, "nrs_crrn_quantum", "0").0, Errno::EINVAL);
    assert_eq!(get(&mut bench, "nrs_policies").unwrap(), "crrn reg\ndelay hp");
    assert_eq!(error(&mut bench, "nrs_tbf_rule", "1").0, Errno::ENOENT);
    let nowhere = bench
        .rpc(bench.server, |rpc| rpc.set_parameter(ServiceId::from(77), "nrs_policies", "fifo"))
        .unwrap_err();
    assert_eq!(nowhere.errno(), Errno::ENODEV);
}

#[test]
fn p127_a_request_that_is_served_for_three_times_obd_timeout_is_reported_once() {
    let mut bench = Bench::new(keeper());
    let call = bench.call(Bench::say(APPEND, "slow"));
    let stuck = |b: &mut Bench| {
        let lines = |p: &mut super::bench::Party| {
            let texts = p.events.iter().filter_map(|event| match event {
                Event::Stuck(stuck) => Some(stuck.to_string()),
                _ => None,
            });
            (texts.collect::<Vec<_>>(), p.ptlrpc.server_stats().stuck)
        };
        b.party_of(b.server, |p, _| lines(p))
    };
    bench.secs(299);
    assert_eq!(stuck(&mut bench), (Vec::new(), 0));
    bench.secs(1000);
    let served = bench.kept()[0].clone();
    let line = format!(
        "service log: {} x{} of {} is served for 300 s",
        served.opcode,
        served.xid,
        bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].client.clone())
    );
    assert_eq!(stuck(&mut bench), (vec![line], 1));
    bench.rpc(bench.server, |rpc| rpc.reply(served.id, Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
}

#[test]
fn a_service_counts_how_long_requests_have_waited_and_were_served() {
    let mut bench = full();
    bench.call(Bench::say(APPEND, "waits"));
    bench.secs(7);
    let first = bench.kept()[0].id;
    bench.rpc(bench.server, |rpc| rpc.reply(first, Answer::default()));
    bench.settle();
    let view = service(&mut bench);
    assert_eq!((view.waited.count(), view.served.count()), (SLOTS as u64 + 1, 1));
    let ten = Histogram::BOUNDS.iter().position(|b| b.as_secs() == 10).unwrap();
    assert_eq!((view.waited.counts()[ten], view.served.counts()[ten]), (1, 1));
    assert_eq!(view.served.sum().as_secs(), 7);
}

#[test]
fn a_service_that_takes_no_request_for_three_times_at_max_is_unhealthy() {
    // P-127.
    let mut bench = full();
    assert_eq!(service(&mut bench).unhealthy_at, None, "nothing waits");
    let since = bench.now;
    bench.call(Bench::say(APPEND, "waits"));
    let hour_and_a_half = core::time::Duration::from_secs(1800);
    assert_eq!(service(&mut bench).unhealthy_at, Some(since + hour_and_a_half));
    bench.secs(100);
    bench.call(Bench::say(APPEND, "waits too"));
    assert_eq!(service(&mut bench).unhealthy_at, Some(since + hour_and_a_half));
    // One is taken: it is alive.
    let first = bench.kept()[0].id;
    bench.rpc(bench.server, |rpc| rpc.reply(first, Answer::default()));
    assert_eq!(service(&mut bench).unhealthy_at, Some(bench.now + hour_and_a_half));
}
