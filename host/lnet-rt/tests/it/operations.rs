//! PUT, GET, ping and discovery through handles.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use lnet::{EventKind, MatchEntry};
use lnet_rt::{Asked, AttachOptions, Buffer, OpError, OpStage};
use lnet_types::{Errno, Prng};

use crate::wire::{block_on, left, nid, nodes, settles};

const PORTAL: u32 = 5;

#[test]
fn a_put_with_ack_arrives_and_its_buffer_comes_back() {
    let [(a, _), (b, _)] = nodes();
    let inbox =
        b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(64), AttachOptions::PUT).unwrap();
    let data = Buffer::from(b"hello");
    let place = data.as_ptr();
    let moved = a.put(nid(2), PORTAL, 7, data).ack().hdr_data(99).blocking().unwrap();
    assert_eq!(
        (moved.mlength, moved.buffer.as_ptr(), &moved.buffer[..]),
        (5, place, &b"hello"[..])
    );
    let got = inbox.recv_blocking().unwrap();
    assert_eq!((got.event.kind, got.event.hdr_data, &got[..]), (EventKind::Put, 99, &b"hello"[..]));
    assert_eq!(left(&a), (0, 0));
}

#[test]
fn part_of_a_buffer_goes_out_and_part_of_it_is_filled() {
    let [(a, _), (b, _)] = nodes();
    let inbox =
        b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(64), AttachOptions::PUT).unwrap();
    a.put(nid(2), PORTAL, 7, b"0123456789").range(3..6).ack().blocking().unwrap();
    assert_eq!(inbox.recv_blocking().unwrap()[..], *b"345");
    let store = b"abcdefghij";
    let _served = b.attach(PORTAL, MatchEntry::bits(8), store, AttachOptions::GET).unwrap();
    let got =
        a.get(nid(2), PORTAL, 8, Buffer::zeroed(10)).range(2..6).offset(5).blocking().unwrap();
    assert_eq!((got.mlength, &got.buffer[..]), (4, &b"\0\0fghi\0\0\0\0"[..]));
}

#[test]
fn async_calls_run_on_any_executor() {
    let [(a, _), (b, _)] = nodes();
    block_on(async {
        let inbox = b
            .attach_async(PORTAL, MatchEntry::bits(7), Buffer::zeroed(64), AttachOptions::PUT)
            .await
            .unwrap();
        assert_eq!(a.put(nid(2), PORTAL, 7, "abc").await.unwrap().mlength, 3);
        assert_eq!(inbox.recv().await.unwrap()[..], *b"abc");
        assert_eq!(b.call(|_, now| now.as_nanos() > 0).await, Ok(true));
    });
}

#[test]
fn an_operation_that_can_not_begin_fails_with_its_reason_and_returns_the_buffer() {
    let [(a, _), (_b, _)] = nodes();
    let fail = |len: usize, to: lnet_types::Nid| {
        let e = a.put(to, PORTAL, 7, Buffer::zeroed(len)).ack().blocking().unwrap_err();
        assert_eq!(e.buffer.unwrap().len(), len);
        e.error
    };
    assert!(matches!(fail((1 << 20) + 1, nid(2)), OpError::Attach(_)));
    assert!(matches!(fail(1, lnet_types::Nid::ANY), OpError::Send(_)));
    let far = fail(1, "10.9.9.9@o2ib".parse().unwrap());
    assert_eq!(far.errno(), Errno::EHOSTUNREACH);
    assert!(far.to_string().contains("10.9.9.9@o2ib"), "{far}");
    #[allow(clippy::reversed_empty_ranges)]
    for range in [3..9, 6..2] {
        let e = a.put(nid(2), PORTAL, 7, b"1234").range(range).blocking().unwrap_err();
        assert!(matches!(e.error, OpError::Range { len: 4, .. }), "{e:?}");
        assert_eq!(e.buffer.unwrap()[..], *b"1234");
    }
    assert_eq!(left(&a), (0, 0));
}

#[test]
fn a_missing_answer_times_out_within_the_limit_of_the_call() {
    let [(a, _), (b, _)] = nodes();
    let limit = Duration::from_millis(30);
    let e = a.put(nid(2), PORTAL, 7, "unheard").ack().timeout(limit).blocking().unwrap_err();
    assert_eq!(
        e.to_string(),
        format!(
            "PUT to {}, portal {PORTAL}: no answer, or no match at the portal: Connection timed out",
            nid(2)
        )
    );
    assert!(matches!(e.error, OpError::Operation { stage: OpStage::NoAnswer, .. }), "{e:?}");
    assert_eq!((e.errno(), &e.buffer.unwrap()[..]), (Errno::ETIMEDOUT, &b"unheard"[..]));
    let e = a.get(nid(2), PORTAL, 7, Buffer::zeroed(3)).timeout(limit).blocking().unwrap_err();
    assert_eq!((e.errno(), e.buffer.unwrap().len()), (Errno::ETIMEDOUT, 3));
    assert_eq!((left(&a), left(&b)), ((0, 0), (0, 0)));
}

#[test]
fn peers_are_pinged_and_discovered() {
    let [(a, _), (_b, _)] = nodes();
    let found = a.ping(nid(2), Duration::from_secs(5)).blocking().unwrap();
    assert!(found.nids.contains(&nid(2)), "{found:?}");
    let found = block_on(a.discover(nid(2))).unwrap();
    assert_eq!((found.primary, found.multi_rail, found.nids), (nid(2), true, vec![nid(2)]));
    let unreachable = "10.9.9.9@o2ib".parse().unwrap();
    let words = |asked: Asked| asked.blocking().unwrap_err().to_string();
    assert_eq!(words(a.discover(unreachable)), "discovery of 10.9.9.9@o2ib: No route to host");
    let ping = a.ping(unreachable, Duration::from_secs(5));
    assert_eq!(words(ping), "ping of 10.9.9.9@o2ib: No route to host");
}

#[test]
fn many_threads_share_one_handle() {
    const THREADS: u64 = 8;
    const PUTS: u64 = 300;
    let [(a, _), (b, _)] = nodes();
    let options = AttachOptions { manage_remote: true, ..AttachOptions::PUT };
    let inbox = b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(64), options).unwrap();
    thread::scope(|s| {
        for t in 0..THREADS {
            let a = &a;
            s.spawn(move || {
                let mut buffer = Buffer::zeroed(8);
                for n in 0..PUTS {
                    let put = a.put(nid(2), PORTAL, 7, buffer).hdr_data(t << 32 | n);
                    let moved = if n % 2 == 0 {
                        put.ack().blocking()
                    } else {
                        block_on(put.ack().into_future())
                    };
                    buffer = moved.unwrap().buffer;
                }
            });
        }
        let mut next = [0; THREADS as usize];
        for _ in 0..THREADS * PUTS {
            let event = inbox.recv_blocking().unwrap().event;
            let (t, n) = ((event.hdr_data >> 32) as usize, event.hdr_data & 0xffff_ffff);
            assert_eq!(n, next[t], "out of order from thread {t}");
            next[t] += 1;
        }
        assert_eq!(next, [PUTS; THREADS as usize]);
    });
    assert!(inbox.try_recv().is_none());
    assert_eq!(left(&a), (0, 0));
}

#[test]
fn operations_end_once_in_bad_weather() {
    let [(a, weather), (b, _)] = nodes();
    let options = AttachOptions { manage_remote: true, ..AttachOptions::PUT };
    let inbox = b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(64), options).unwrap();
    weather.refuse_one_in.store(5, Relaxed);
    weather.fail_one_in.store(7, Relaxed);
    let puts: Vec<_> =
        (0..200).map(|n| a.put(nid(2), PORTAL, 7, vec![n as u8; 8]).ack().into_future()).collect();
    let (mut acked, mut failed) = (0, 0);
    for (n, put) in puts.into_iter().enumerate() {
        let buffer = match block_on(put) {
            Ok(moved) => {
                acked += 1;
                moved.buffer
            }
            Err(e) => {
                failed += 1;
                e.buffer.expect("the buffer comes back from a failure too")
            }
        };
        assert_eq!(buffer[..], [n as u8; 8]);
    }
    assert_eq!(acked + failed, 200);
    assert!(acked > 0, "nothing got through");
    assert!(std::iter::from_fn(|| inbox.try_recv()).count() >= acked);
    assert_eq!(left(&a), (0, 0));
}

#[test]
fn dropped_futures_leave_nothing_behind() {
    let seed = 0xd20b;
    let mut prng = Prng::new(seed);
    let [(a, weather), (b, _)] = nodes();
    let options = AttachOptions { manage_remote: true, ..AttachOptions::PUT };
    let inbox = b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(64), options).unwrap();
    // Or a lost discovery ping holds up everything behind it.
    a.discover(nid(2)).blocking().unwrap();
    let mut waiting = Vec::new();
    for n in 0..2000 {
        // Some match, some get no answer, some are lost on the way.
        weather.lost.store(prng.one_in(10), Relaxed);
        let bits = if prng.one_in(3) { 8 } else { 7 };
        waiting.push(a.put(nid(2), PORTAL, bits, vec![n as u8; 16]).ack().into_future());
        while inbox.try_recv().is_some() {}
        if prng.one_in(2) {
            let at = prng.below(waiting.len() as u64) as usize;
            drop(waiting.swap_remove(at));
        }
        if prng.one_in(20) {
            thread::yield_now();
        }
    }
    weather.lost.store(false, Relaxed);
    eprintln!("seed {seed:#x}: {} futures dropped at the end", waiting.len());
    drop(waiting);
    settles(&a);
    let moved = a.put(nid(2), PORTAL, 7, "still alive").ack().blocking().unwrap();
    assert_eq!(moved.mlength, 11);
}

#[test]
fn a_node_sends_to_itself() {
    let [(a, _), (_b, _)] = nodes();
    let inbox =
        a.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8), AttachOptions::PUT).unwrap();
    a.put(lnet_types::Nid::LOOPBACK, PORTAL, 7, "me").ack().blocking().unwrap();
    assert_eq!(inbox.recv_blocking().unwrap()[..], *b"me");
}
