//! A stack in the hands of its caller: descriptors used again and again, no thread, no handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use lnet::{EventKind, Get, MatchEntry, MdOptions, MdSpec, Put};
use lnet_rt::{Buffer, MemoryError, Stack, Wait};
use lnet_types::{MdId, ProcessId, Span};

use crate::wire::{nid, stacks};

const PORTAL: u32 = 5;

fn put_of(md: MdId) -> Put {
    Put {
        md,
        ack: false,
        src: None,
        target: ProcessId::lustre(nid(2)),
        portal: PORTAL,
        match_bits: 7,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    }
}

/// Turns both until `done`, at most for so many turns.
fn turn_until(stacks: &mut [&mut Stack], mut done: impl FnMut(&mut [&mut Stack]) -> bool) {
    for _ in 0..100_000 {
        stacks.iter_mut().for_each(|s| _ = s.turn(Wait::None));
        if done(stacks) {
            return;
        }
    }
    panic!("nothing came of it");
}

#[test]
fn one_descriptor_serves_many_puts() {
    let [(mut a, _), (mut b, _)] = stacks();
    let sink = b.lend(Buffer::zeroed(64)).unwrap();
    let spec = MdSpec {
        options: MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE,
        ..MdSpec::new(b.region(sink), 2)
    };
    let posted = b.attach(PORTAL, MatchEntry::bits(7), spec).unwrap();
    let source = a.lend(Buffer::zeroed(8)).unwrap();
    let md = a.bind(MdSpec::new(a.region(source), 1)).unwrap();
    for n in 0..1000u64 {
        a.bytes_mut(Span { region: source, len: 8, offset: 0 }).copy_from_slice(&n.to_le_bytes());
        a.put(Put { offset: n as u32 % 8, ..put_of(md) }).unwrap();
        let mut events = (None, None);
        turn_until(&mut [&mut a, &mut b], |s| {
            events.0 = events.0.or_else(|| s[0].poll_event());
            events.1 = events.1.or_else(|| s[1].poll_event());
            events.0.is_some() && events.1.is_some()
        });
        let (sent, got) = (events.0.unwrap(), events.1.unwrap());
        assert_eq!((sent.kind, sent.user, sent.status), (EventKind::Send, 1, Ok(())));
        assert_eq!((got.kind, got.user, got.offset), (EventKind::Put, 2, n % 8));
        let span = Span { region: sink, len: 8, offset: got.offset };
        assert_eq!(*b.bytes(span), n.to_le_bytes());
    }
    assert_eq!(a.take_back(source).unwrap_err(), MemoryError::InUse(1));
    a.unlink(md).unwrap();
    b.unlink(posted).unwrap();
    turn_until(&mut [&mut a, &mut b], |s| {
        s.iter_mut().all(|s| s.poll_event().is_none_or(|e| e.kind == EventKind::Unlink))
    });
    assert_eq!(a.take_back(source).unwrap().len(), 8);
    assert_eq!(b.take_back(sink).unwrap().len(), 64);
    assert!(matches!(b.take_back(sink), Err(MemoryError::Span { .. })));
}

#[test]
fn spans_outside_of_regions_and_reserved_user_words_are_refused() {
    let [(mut a, _), (_b, _)] = stacks();
    let region = a.lend(Buffer::zeroed(8)).unwrap();
    let mut spec = MdSpec::new(a.region(region), 0);
    spec.buf[0].offset = 1;
    let gone = MemoryError::Span { region, start: 1, end: 9 };
    assert_eq!(a.bind(spec.clone()).unwrap_err(), gone);
    spec.buf[0].offset = u64::MAX;
    assert!(matches!(a.bind(spec.clone()), Err(MemoryError::Span { .. })));
    spec.buf[0].offset = 0;
    for user in [1 << 61, 1 << 62, 1 << 63] {
        assert_eq!(a.bind(MdSpec { user, ..spec.clone() }), Err(MemoryError::UserWord(user)));
    }
    a.bind(spec).unwrap();
}

#[test]
fn memory_is_taken_back_though_its_last_event_came_after_another_descriptor_was_made() {
    let [(mut a, _), (_b, _)] = stacks();
    let [first, second] = [(); 2].map(|()| a.lend(Buffer::zeroed(8)).unwrap());
    let md = a.bind(MdSpec::new(a.region(first), 1)).unwrap();
    a.unlink(md).unwrap();
    // The node may give it the place of the one that is gone.
    let other = a.bind(MdSpec::new(a.region(second), 2)).unwrap();
    while a.turn(Wait::None) {
        while a.poll_event().is_some() {}
    }
    assert_eq!(a.take_back(second).unwrap_err(), MemoryError::InUse(1));
    assert_eq!(a.take_back(first).unwrap().len(), 8);
    a.unlink(other).unwrap();
}

#[test]
fn a_silent_descriptor_gives_its_memory_back_without_a_word() {
    let [(mut a, _), (mut b, _)] = stacks();
    let region = a.lend(Buffer::zeroed(8)).unwrap();
    let spec = MdSpec {
        events: false,
        threshold: Some(1),
        unlink: lnet::Unlink::Auto,
        ..MdSpec::new(a.region(region), 1)
    };
    let md = a.bind(spec).unwrap();
    a.put(put_of(md)).unwrap();
    turn_until(&mut [&mut a, &mut b], |s| {
        assert!(s[0].poll_event().is_none());
        s[0].take_back(region).is_ok()
    });
}

#[test]
fn a_bound_handler_sees_the_reply_to_its_get() {
    let [(mut a, _), (mut b, _)] = stacks();
    let store = b.lend(Buffer::from(b"treasure")).unwrap();
    let options = MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
    let spec = MdSpec { options, ..MdSpec::new(b.region(store), 0) };
    b.attach_handler(PORTAL, MatchEntry::bits(7), spec, |_, _| ()).unwrap();
    let sink = a.lend(Buffer::zeroed(8)).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    let md = a
        .bind_handler(MdSpec::new(a.region(sink), 0), move |stack, event| {
            if event.kind == EventKind::Reply {
                tx.send(stack.payload(event).unwrap().to_vec()).unwrap();
            }
        })
        .unwrap();
    let Put { target, portal, match_bits, .. } = put_of(md);
    a.get(Get { md, src: None, target, portal, match_bits, offset: 0, timeout: None }).unwrap();
    let mut got = None;
    turn_until(&mut [&mut a, &mut b], |_| {
        got = rx.try_recv().ok();
        got.is_some()
    });
    assert_eq!(got.unwrap(), b"treasure");
}

#[test]
fn a_turn_that_may_wait_returns_when_a_command_comes() {
    let [(mut a, _), (_b, _)] = stacks();
    let handle = a.handle();
    let called = Arc::new(AtomicBool::new(false));
    let other = std::thread::spawn({
        let called = Arc::clone(&called);
        move || handle.call(move |_, _| called.store(true, Relaxed)).blocking()
    });
    while !called.load(Relaxed) {
        a.turn(Wait::Until(Duration::from_secs(3600)));
    }
    assert_eq!(other.join().unwrap(), Ok(()));
}

#[test]
fn a_caller_driven_stack_stops_in_its_turns() {
    let [(mut a, _), (_b, _)] = stacks();
    a.stop(Duration::ZERO);
    while !a.is_stopped() {
        a.turn(Wait::Block);
    }
    assert!(
        a.node().net_views().iter().all(|net| net.net == lnet_types::Net::LO) || a.is_stopped()
    );
}

#[test]
fn a_handler_that_turns_the_stack_does_nothing_by_it() {
    let [(mut a, _), (mut b, _)] = stacks();
    let sink = b.lend(Buffer::zeroed(64)).unwrap();
    let spec = MdSpec { options: MdOptions::OP_PUT, ..MdSpec::new(b.region(sink), 0) };
    let (tx, rx) = std::sync::mpsc::channel();
    b.attach_handler(PORTAL, MatchEntry::bits(7), spec, move |stack, _| {
        tx.send(stack.turn(Wait::Block)).unwrap();
    })
    .unwrap();
    let source = a.lend(Buffer::zeroed(8)).unwrap();
    let md = a.bind(MdSpec::new(a.region(source), 1)).unwrap();
    a.put(put_of(md)).unwrap();
    let mut inner = None;
    turn_until(&mut [&mut a, &mut b], |_| {
        inner = rx.try_recv().ok();
        inner.is_some()
    });
    assert_eq!(inner, Some(false));
}
