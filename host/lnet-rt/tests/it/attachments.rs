//! Buffers at portals: deliveries in place, copies, handlers, limits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use lnet::{EventKind, MatchEntry};
use lnet_rt::{AttachOptions, Buffer, OpError};

use crate::wire::{left, nid, nodes, settles};

const PORTAL: u32 = 5;

#[test]
fn deliveries_are_read_in_place_while_more_arrives() {
    let [(a, _), (b, _)] = nodes();
    let buffer = Buffer::zeroed(400);
    let place = buffer.as_ptr();
    let inbox = b.attach(PORTAL, MatchEntry::bits(7), buffer, AttachOptions::PUT).unwrap();
    let mut held = Vec::new();
    for n in 0..40u8 {
        a.put(nid(2), PORTAL, 7, vec![n; 10]).ack().blocking().unwrap();
        held.push(inbox.recv_blocking().unwrap());
        for (m, delivery) in held.iter().enumerate() {
            assert_eq!(delivery[..], [m as u8; 10]);
            assert_eq!(delivery.as_ptr(), place.wrapping_add(m * 10), "copied");
        }
    }
    drop(held);
    let back = inbox.detach_blocking().unwrap();
    assert_eq!((back.as_ptr(), back[390..].to_vec()), (place, vec![39; 10]));
    assert_eq!(left(&b), (0, 0));
}

#[test]
fn a_full_buffer_is_reported_and_can_be_taken_back() {
    let [(a, _), (b, _)] = nodes();
    let options = AttachOptions { max_size: Some(10), ..AttachOptions::PUT };
    let inbox = b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(25), options).unwrap();
    for text in ["first", "the second"] {
        a.put(nid(2), PORTAL, 7, text).ack().blocking().unwrap();
    }
    assert_eq!(
        inbox.recv_blocking().map(|d| (d.to_vec(), d.event.unlinked)),
        Some((b"first".to_vec(), false))
    );
    let last = inbox.recv_blocking().map(|d| (d.to_vec(), d.event.unlinked));
    // 15 bytes used, 10 left: one more fits.
    assert_eq!(last, Some((b"the second".to_vec(), false)));
    a.put(nid(2), PORTAL, 7, "3rd").ack().blocking().unwrap();
    let last = inbox.recv_blocking().map(|d| (d.to_vec(), d.event.unlinked));
    assert_eq!(last, Some((b"3rd".to_vec(), true)));
    assert!(inbox.recv_blocking().is_none());
    assert_eq!(inbox.detach_blocking().unwrap()[..18], *b"firstthe second3rd");
}

#[test]
fn remotely_managed_bytes_are_copied_out_and_in() {
    let [(a, _), (b, _)] = nodes();
    let options = AttachOptions { manage_remote: true, get: true, ..AttachOptions::PUT };
    let box_ = b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(16), options).unwrap();
    a.put(nid(2), PORTAL, 7, "xyz").offset(4).ack().blocking().unwrap();
    let got = box_.recv_blocking().unwrap();
    assert_eq!((got.event.offset, got.event.mlength, got.len()), (4, 3, 0));
    let mut copy = [0; 5];
    box_.read_at_blocking(3, &mut copy).unwrap();
    assert_eq!(copy, *b"\0xyz\0");
    box_.write_at_blocking(0, *b"ABC").unwrap();
    let read = a.get(nid(2), PORTAL, 7, Buffer::zeroed(7)).blocking().unwrap();
    assert_eq!(read.buffer[..], *b"ABC\0xyz");
    let e = box_.read_at_blocking(14, &mut copy).unwrap_err();
    assert_eq!(e, OpError::Range { start: 14, end: 19, len: 16 });
    assert!(matches!(box_.write_at_blocking(u64::MAX, *b"x"), Err(OpError::Range { .. })));
}

#[test]
fn delivered_bytes_can_not_be_overwritten() {
    let [(a, _), (b, _)] = nodes();
    let inbox =
        b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(16), AttachOptions::PUT).unwrap();
    a.put(nid(2), PORTAL, 7, "abcd").ack().blocking().unwrap();
    let got = inbox.recv_blocking().unwrap();
    assert_eq!(inbox.write_at_blocking(3, *b"xx"), Err(OpError::Delivered { start: 3, end: 5 }));
    inbox.write_at_blocking(4, *b"xx").unwrap();
    assert_eq!(got[..], *b"abcd");
}

#[test]
fn unreceived_events_are_bounded_and_not_lost() {
    let [(a, _), (b, _)] = nodes();
    let options = AttachOptions { events_max: 3, manage_remote: true, ..AttachOptions::PUT };
    let inbox = b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(16), options).unwrap();
    for _ in 0..3 {
        assert!(!inbox.overrun());
        a.put(nid(2), PORTAL, 7, "x").ack().blocking().unwrap();
    }
    settles(&b);
    assert!(inbox.overrun());
    let kinds: Vec<_> =
        std::iter::from_fn(|| inbox.recv_blocking().map(|d| d.event.kind)).collect();
    assert_eq!(kinds, [EventKind::Put, EventKind::Put, EventKind::Put, EventKind::Unlink]);
}

#[test]
fn a_dropped_attachment_is_detached() {
    let [(_, _), (b, _)] = nodes();
    let options = AttachOptions::default();
    drop(b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(16), options).unwrap());
    settles(&b);
}

#[test]
fn a_refused_attachment_gives_the_buffer_back() {
    let [(a, _), (_b, _)] = nodes();
    let e = a.attach(64, MatchEntry::bits(7), b"mine", AttachOptions::PUT).err().unwrap();
    assert_eq!(e.buffer.unwrap()[..], *b"mine");
    assert!(matches!(e.error, OpError::Attach(_)));
    let none = AttachOptions { put: false, ..AttachOptions::PUT };
    let e = a.attach_handler(5, MatchEntry::bits(7), b"mine", none, |_, _| ()).err().unwrap();
    assert_eq!(e.buffer.unwrap()[..], *b"mine");
    assert_eq!(left(&a), (0, 0));
}

#[test]
fn a_handler_answers_on_the_node_s_own_thread() {
    let [(a, _), (b, _)] = nodes();
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let (tx, rx) = mpsc::channel();
    let options = AttachOptions { manage_remote: true, ..AttachOptions::PUT };
    let handle = b.call(|stack, _| stack.handle()).blocking().unwrap();
    let service = b
        .attach_handler(
            PORTAL,
            MatchEntry::bits(7),
            Buffer::zeroed(64),
            options,
            move |stack, event| {
                if event.kind != EventKind::Put {
                    return;
                }
                count.fetch_add(1, Relaxed);
                let mut answer = stack.payload(event).unwrap().to_vec();
                answer.reverse();
                // Blocking here would wait for this very thread.
                let refused = handle.put(event.initiator, PORTAL, 8, answer.clone()).blocking();
                assert_eq!(refused.unwrap_err().error, OpError::WouldDeadlock);
                tx.send(handle.put(event.initiator, PORTAL, 8, answer).into_future()).unwrap();
            },
        )
        .unwrap();
    let answers =
        a.attach(PORTAL, MatchEntry::bits(8), Buffer::zeroed(64), AttachOptions::PUT).unwrap();
    for text in ["abc", "1234"] {
        a.put(nid(2), PORTAL, 7, text).blocking().unwrap();
        let backwards: String = text.chars().rev().collect();
        assert_eq!(answers.recv_blocking().unwrap()[..], *backwards.as_bytes());
        crate::wire::block_on(rx.recv().unwrap()).unwrap();
    }
    assert_eq!(served.load(Relaxed), 2);
    drop(service);
    settles(&b);
}
