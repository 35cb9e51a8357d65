//! Beginnings and ends: no caller waits for ever, and nothing outlives its node.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use lnet::{EventKind, MatchEntry};
use lnet_rt::{AttachOptions, Buffer, NodeBuilder, NodeHandle, OpError, Wait};

use crate::wire::{block_on, nid, nodes, stacks};

const PORTAL: u32 = 5;

fn observer(node: &NodeHandle) -> NodeHandle {
    node.call(|stack, _| stack.handle()).blocking().unwrap()
}

#[test]
fn stopping_fails_what_does_not_finish_and_returns_its_buffer() {
    let [(a, weather), (_b, _)] = nodes();
    weather.lost.store(true, Relaxed);
    let inbox =
        a.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8), AttachOptions::PUT).unwrap();
    let put = a.put(nid(2), PORTAL, 7, "lost").ack().into_future();
    a.stop(Duration::from_millis(20)).blocking();
    let e = block_on(put).unwrap_err();
    assert_eq!(e.buffer.unwrap()[..], *b"lost");
    assert_eq!(inbox.recv_blocking().unwrap().event.kind, EventKind::Unlink);
    assert!(inbox.recv_blocking().is_none());
    assert_eq!(inbox.detach_blocking().unwrap().len(), 8);

    assert!(a.is_stopped());
    let e = a.put(nid(2), PORTAL, 7, "late").blocking().unwrap_err();
    assert_eq!((e.error, &e.buffer.unwrap()[..]), (OpError::Stopped, &b"late"[..]));
    assert_eq!(a.call(|_, _| ()).blocking(), Err(OpError::Stopped));
    assert_eq!(a.ping(nid(2), Duration::ZERO).blocking(), Err(OpError::Stopped));
    let e = a.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8), AttachOptions::PUT).err();
    assert_eq!(e.unwrap().error, OpError::Stopped);
    a.stop(Duration::ZERO).blocking();
}

#[test]
fn stopping_lets_operations_finish() {
    let [(a, _), (b, _)] = nodes();
    let inbox =
        b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8), AttachOptions::PUT).unwrap();
    let put = a.put(nid(2), PORTAL, 7, "in time").ack().into_future();
    a.stop(Duration::from_secs(60)).blocking();
    assert_eq!(block_on(put).unwrap().mlength, 7);
    assert_eq!(inbox.recv_blocking().unwrap()[..], *b"in time");
}

#[test]
fn the_last_handle_takes_the_node_with_it() {
    let [(a, _), (b, _)] = nodes();
    let watch = observer(&a);
    let inbox =
        a.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8), AttachOptions::PUT).unwrap();
    drop(a);
    b.put(nid(1), PORTAL, 7, "kept").ack().blocking().unwrap();
    assert_eq!(inbox.recv_blocking().unwrap()[..], *b"kept", "an attachment keeps its node");
    assert!(!watch.is_stopped());
    drop(inbox);
    block_on(watch.stop(Duration::from_secs(60)).wait());
    assert!(watch.is_stopped());
}

#[test]
fn a_panic_on_the_node_s_thread_ends_all_waits() {
    let [(a, weather), (_b, _)] = nodes();
    weather.lost.store(true, Relaxed);
    let put = a.put(nid(2), PORTAL, 7, "x").ack().into_future();
    let inbox =
        a.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8), AttachOptions::PUT).unwrap();
    let waiting = thread::spawn(move || inbox.recv_blocking().is_none());
    let call = a.call(|_, _| panic!("on purpose, in a test"));
    assert_eq!(call.blocking(), Err(OpError::Stopped));
    assert_eq!(block_on(put).unwrap_err().error, OpError::Stopped);
    assert!(waiting.join().unwrap());
}

#[test]
fn stopping_under_fire_ends_every_call_of_every_thread() {
    let [(a, _), (b, _)] = nodes();
    let options = AttachOptions { manage_remote: true, ..AttachOptions::PUT };
    let inbox = b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8), options).unwrap();
    thread::scope(|s| {
        for _ in 0..6 {
            s.spawn(|| {
                loop {
                    let put = a.put(nid(2), PORTAL, 7, "fire").ack();
                    if put.blocking().is_err_and(|e| e.error == OpError::Stopped) {
                        return;
                    }
                    if a.call(|_, _| ()).blocking() == Err(OpError::Stopped) {
                        return;
                    }
                }
            });
        }
        for _ in 0..200 {
            inbox.recv_blocking().unwrap();
        }
        a.stop(Duration::from_millis(5)).blocking();
    });
}

#[test]
fn a_dropped_stack_fails_what_its_handles_wait_for() {
    let [(mut a, _), (_b, _)] = stacks();
    let handle = a.handle();
    let begun = handle.put(nid(2), PORTAL, 7, "begun").ack().into_future();
    a.turn(Wait::None);
    let queued = handle.put(nid(2), PORTAL, 7, "queued").ack().into_future();
    drop(a);
    for (put, text) in [(begun, "begun"), (queued, "queued")] {
        let e = block_on(put).unwrap_err();
        assert_eq!((e.error, &e.buffer.unwrap()[..]), (OpError::Stopped, text.as_bytes()));
    }
    block_on(handle.stop(Duration::ZERO).wait());
}

#[test]
fn commands_that_wait_have_a_limit() {
    let stack = NodeBuilder::new().build().unwrap();
    let handle = stack.handle();
    let calls: Vec<_> = (0..65_536).map(|_| handle.call(|_, _| ())).collect();
    assert_eq!(handle.call(|_, _| ()).blocking(), Err(OpError::Busy(65_536)));
    let e = handle.put(nid(1), PORTAL, 7, "full").blocking().unwrap_err();
    assert_eq!((e.error, &e.buffer.unwrap()[..]), (OpError::Busy(65_536), &b"full"[..]));
    drop((stack, calls));
}
