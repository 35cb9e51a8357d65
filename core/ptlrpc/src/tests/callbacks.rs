//! A server calls its client: the way there, copies, limits, ends (P-129.13, P-130, DEC-39).

use core::time::Duration;

use lnet_types::{Errno, Nid};
use lustre_wire::{BodyFlags, Buffers, Opcode};

use super::bench::{Bench, ECHO, append_log, keeper};
use crate::{
    Answer, Call, CallError, CallId, Event, Evictor, ExportId, Never, Reply, Served, ServiceConfig,
    Tunables,
};

/// The portal of callbacks.
const PORTAL: u32 = 15;

/// A bench with a connected client that serves callbacks, and keeps those that come.
fn connected() -> (Bench, ExportId) {
    let mut bench = Bench::new(append_log());
    bench.rpc(bench.client, |rpc| {
        rpc.serve(ServiceConfig::new("callbacks", PORTAL, 16, 8)).unwrap();
    });
    let call = bench.call(Bench::say(ECHO, "connect"));
    assert!(bench.end_of(call).unwrap().is_ok());
    bench.program(bench.client, keeper());
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    (bench, export)
}

fn blocking() -> Call {
    Call::new(Opcode::LDLM_BL_CALLBACK, Buffers::from([[1; 104]]))
}

fn call_back(bench: &mut Bench, export: ExportId, call: Call) -> CallId {
    let id = bench.rpc(bench.server, |rpc| rpc.callback(export, call)).unwrap();
    bench.settle();
    id
}

/// What the client's program keeps.
fn kept(bench: &mut Bench) -> Vec<Served> {
    bench.party_of(bench.client, |p, _| p.kept.clone())
}

fn end(bench: &mut Bench, call: CallId) -> Option<Result<Reply, CallError>> {
    bench.end_at(bench.server, call)
}

#[test]
fn a_callback_reaches_the_import_and_is_answered() {
    let (mut bench, export) = connected();
    let call = call_back(&mut bench, export, blocking());
    let served = kept(&mut bench).remove(0);
    assert_eq!((served.import, served.opcode), (Some(bench.import), Opcode::LDLM_BL_CALLBACK));
    assert_eq!((served.body.conn_cnt, served.body.timeout), (0, 11));
    assert_eq!((served.body.mbits, served.body.last_xid), (served.xid, served.xid - 1));
    let answer = Answer { status: 0, buffers: Buffers::new().bytes(b"mine"), ..Answer::default() };
    bench.rpc(bench.client, |rpc| rpc.reply(served.id, answer));
    bench.settle();
    assert_eq!(end(&mut bench, call).unwrap().unwrap().status, 0);
    // The way to the client is named by its ends, and never connects by itself.
    let view = bench.party_of(bench.server, |p, _| p.ptlrpc.import_views().remove(0));
    let client = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views().remove(0));
    assert_eq!((view.target, view.client), (client.client, client.target));
    let why = bench.rpc(bench.server, |rpc| rpc.explain(view.id)).unwrap();
    assert_eq!((why.never, why.nodes[0].next), (Some(Never::Callback), false));
    assert!(why.to_string().contains("next: none; a server's way to its client"), "{why}");
    // What stands for the server's calls is no client.
    let exports = bench.party_of(bench.client, |p, _| p.ptlrpc.export_views());
    assert!(exports.is_empty());
    assert_eq!(bench.party_of(bench.client, |p, _| p.ptlrpc.server_stats().callbacks), 1);
}

#[test]
fn a_callback_that_is_not_answered_goes_again_and_copies_are_folded() {
    let (mut bench, export) = connected();
    let call = call_back(&mut bench, export, blocking());
    bench.secs(15);
    let folded = |b: &mut Bench| b.party_of(b.client, |p, _| p.ptlrpc.server_stats().folded);
    // The client's early replies keep it waiting as any server's do.
    bench.lose(|portal, _| portal == 16);
    bench.secs(100);
    assert!(folded(&mut bench) >= 1);
    assert_eq!(kept(&mut bench).len(), 1);
    bench.loses = None;
    let served = kept(&mut bench).remove(0);
    bench.rpc(bench.client, |rpc| rpc.reply(served.id, Answer::default()));
    bench.secs(60);
    // Its answer may have gone to a sending that was given up: then it was served once more.
    for served in kept(&mut bench).into_iter().skip(1) {
        assert!(served.body.flags.contains(BodyFlags::RESENT));
        bench.rpc(bench.client, |rpc| rpc.reply(served.id, Answer::default()));
    }
    bench.settle();
    assert!(end(&mut bench, call).unwrap().is_ok());
}

#[test]
fn p134_a_term_of_silence_counts_the_way_to_the_client_as_callbacks_have_shown_it() {
    let (mut bench, export) = connected();
    let server = |b: &mut Bench, at_min| {
        b.party_of(b.server, |p, _| {
            let evictor = Evictor::Kernel;
            let tunables = Tunables { evictor, at_min, ..p.ptlrpc.tunables().clone() };
            p.ptlrpc.set_tunables(tunables);
        });
    };
    // An estimate of the way that is 100 s.
    server(&mut bench, Duration::from_secs(100));
    call_back(&mut bench, export, blocking());
    let served = kept(&mut bench).remove(0);
    bench.rpc(bench.client, |rpc| rpc.reply(served.id, Answer::default()));
    bench.settle();
    server(&mut bench, Duration::from_secs(5));
    let call = bench.call(Bench::say(ECHO, "the last word"));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
    let (other, import) = bench.new_client("client-2");
    bench.rpc(other, |rpc| rpc.connect(import));
    bench.kill(bench.client);
    let clients = |b: &mut Bench| b.party_of(b.server, |p, _| p.ptlrpc.export_views().len());
    // 2 × 25 + 11 + 100 + 5 + 100, and a sixteenth: 282 s.
    bench.secs(281);
    assert_eq!(clients(&mut bench), 2);
    bench.secs(26);
    assert_eq!(clients(&mut bench), 1);
}

#[test]
fn pa090_a_lost_callback_goes_again_each_deadline_with_its_number_until_its_limit() {
    let (mut bench, export) = connected();
    let mut sent = 0;
    bench.lose(move |portal, _| {
        sent += usize::from(portal == PORTAL);
        portal == PORTAL && sent <= 3
    });
    let limit = Some(Duration::from_secs(150));
    let call = call_back(&mut bench, export, Call { limit, ..blocking() });
    // 11 s for the client, 5 s for the net; the fourth arrives.
    bench.secs(47);
    assert!(kept(&mut bench).is_empty());
    bench.secs(1);
    let served = kept(&mut bench).remove(0);
    assert!(served.body.flags.contains(BodyFlags::RESENT));
    assert_ne!(served.body.mbits, served.xid);
    bench.rpc(bench.client, |rpc| rpc.reply(served.id, Answer::default()));
    bench.settle();
    assert!(end(&mut bench, call).unwrap().is_ok());
    let again = |e: &Event| matches!(e, Event::CalledAgain { call: again } if *again == call);
    assert_eq!(bench.heard().into_iter().filter(again).count(), 3, "each copy is reported");
    // All lost: it ends with its limit, and the client stays.
    bench.lose(|portal, _| portal == PORTAL);
    let call = call_back(&mut bench, export, Call { limit, ..blocking() });
    bench.secs(149);
    assert_eq!(end(&mut bench, call), None);
    bench.secs(1);
    assert_eq!(end(&mut bench, call), Some(Err(CallError::LimitPassed)));
    assert!(bench.party_of(bench.server, |p, _| p.ptlrpc.reverse_view(export)).is_some());
}

#[test]
fn dec39_with_ast_resend_off_a_lost_callback_fails() {
    let (mut bench, _) = connected();
    let tunables = Tunables { ast_resend: false, ..Tunables::default() };
    bench.party_of(bench.server, |p, _| p.ptlrpc.set_tunables(tunables));
    let export = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views()[0].id);
    bench.lose(|portal, _| portal == PORTAL);
    let call = call_back(&mut bench, export, blocking());
    bench.secs(15);
    assert_eq!(end(&mut bench, call), None);
    bench.secs(1);
    assert_eq!(end(&mut bench, call), Some(Err(CallError::TimedOut(Nid::LOOPBACK))));
}

#[test]
fn p129_13_a_client_that_connects_again_gets_at_once_what_it_has_not_answered() {
    let (mut bench, export) = connected();
    // The first callback and the client's call are lost: it connects again after 16 s.
    bench.without_probes();
    bench.lose(|_, n| n <= 2);
    bench.call(Bench::say(ECHO, "lost"));
    bench.secs(10);
    call_back(&mut bench, export, blocking());
    assert!(kept(&mut bench).is_empty());
    bench.secs(6);
    let served = kept(&mut bench).remove(0);
    assert!(served.body.flags.contains(BodyFlags::RESENT));
}

#[test]
fn callbacks_to_a_client_that_is_evicted_or_leaves_end() {
    let (mut bench, export) = connected();
    let call = call_back(&mut bench, export, blocking());
    bench.rpc(bench.server, |rpc| rpc.evict(export));
    assert_eq!(end(&mut bench, call), Some(Err(CallError::Closed)));
    let gone = bench.rpc(bench.server, |rpc| rpc.callback(export, blocking()));
    assert_eq!(gone, Err(CallError::NoImport));

    let (mut bench, export) = connected();
    let call = call_back(&mut bench, export, blocking());
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.disconnect(import));
    bench.settle();
    assert_eq!(end(&mut bench, call), Some(Err(CallError::Closed)));
}

#[test]
fn a_client_that_drops_the_export_of_its_server_serves_the_next_callback() {
    let (mut bench, export) = connected();
    call_back(&mut bench, export, blocking());
    let dropped = kept(&mut bench).remove(0).export;
    bench.rpc(bench.client, |rpc| rpc.evict(dropped));
    let evicted = |e: &Event| matches!(e, Event::Evicted { .. });
    let heard = bench.party_of(bench.client, |p, _| core::mem::take(&mut p.events));
    assert!(!heard.iter().any(evicted), "a server is no client");
    let call = call_back(&mut bench, export, blocking());
    let served = kept(&mut bench).pop().unwrap();
    assert_ne!(served.export, dropped);
    bench.rpc(bench.client, |rpc| rpc.reply(served.id, Answer::default()));
    bench.settle();
    assert!(end(&mut bench, call).unwrap().is_ok());
}

#[test]
fn a_callback_that_disconnects_is_refused_and_harms_no_later_one() {
    let (mut bench, export) = connected();
    let call = call_back(&mut bench, export, Call::new(Opcode::OST_DISCONNECT, Buffers::new()));
    assert_eq!(end(&mut bench, call), Some(Err(CallError::Refused(Errno::EINVAL))));
    let call = call_back(&mut bench, export, blocking());
    let served = kept(&mut bench).remove(0);
    bench.rpc(bench.client, |rpc| rpc.reply(served.id, Answer::default()));
    bench.settle();
    assert!(end(&mut bench, call).unwrap().is_ok());
}
