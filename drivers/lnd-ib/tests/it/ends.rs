//! How connections and messages end: deadlines, failures of the adapter, peers that break the
//! protocol, device events; and that memory comes back when no peer can write it any more
//! (B-20 to B-41, RS-073 to RS-076, RS-096, HL-lnd-010 to HL-lnd-035).

use core::time::Duration;

use lnd_ib::{Adapter, CmEvent, ConnId, DeviceEvent, Event, IbConfig, KEPT_MAX, Output, WorkId};
use lnet::{Doubt, Link};
use lnet_types::{Errno, HealthStatus as H, RxId};
use lnet_wire::ib::{Body, ConnParams, Done, Frag, Msg, MsgHead, RdmaDesc, Type, Version};
use lnet_wire::{ByteOrder, Hdr};

use crate::flows::{A, B, SECOND, pair};
use crate::support::fabric::World;
use crate::support::host::{Host, Taste};

/// A world with a connection, on which A has sent one message.
fn connected(config: IbConfig) -> (World, ConnId) {
    let mut world = pair(config);
    world.put(0, 1, 0, 8);
    world.run(SECOND);
    assert_eq!(world.hosts[0].end(0), Some(Ok(())));
    let conn = world.conns(0)[0];
    (world, conn)
}

fn fate(world: &World, number: u64) -> (H, Errno) {
    let end = world.hosts[0].end(number).expect("it has ended");
    let fault = end.expect_err("it has failed");
    (fault.status, fault.errno)
}

fn closed(world: &World, host: usize, reason: &str) -> Option<u64> {
    world.hosts[host].port.ib.stats().closed.get(reason).copied()
}

#[test]
fn a_request_without_answer_is_a_remote_timeout_and_an_immediate_needs_none() {
    for kind in [Type::PutAck, Type::GetDone] {
        let (mut world, _) = connected(IbConfig::default());
        world.faults.swallowed = Some(kind);
        if kind == Type::PutAck {
            world.put(0, 1, 1, 65536);
        } else {
            world.get(0, 1, 1, 65536);
        }
        world.put(0, 1, 2, 8);
        world.run(Duration::from_secs(49));
        assert_eq!(world.hosts[0].end(1), None, "{kind}");
        assert_eq!(world.hosts[0].end(2), Some(Ok(())), "{kind}");
        world.run(Duration::from_secs(2));
        assert_eq!(fate(&world, 1), (H::RemoteTimeout, Errno::ETIMEDOUT), "{kind}");
        assert_eq!(closed(&world, 0, "timeout"), Some(1), "closed once");
        world.run(Duration::from_secs(60));
        assert_eq!(world.hosts[0].ended.len(), 3, "and nothing expires later");
        world.assert_clean();
    }
}

#[test]
fn a_posting_without_completion_is_a_network_timeout_and_what_was_behind_it_a_local_one() {
    let config = IbConfig { concurrent_sends: 1, ..IbConfig::default() };
    let (mut world, _) = connected(config);
    world.faults.no_completions = true;
    world.put(0, 1, 1, 8);
    world.put(0, 1, 2, 8);
    world.run(Duration::from_secs(49));
    assert_eq!((world.hosts[0].end(1), world.hosts[0].end(2)), (None, None));
    world.run(Duration::from_secs(10));
    assert_eq!(fate(&world, 1), (H::NetworkTimeout, Errno::ETIMEDOUT));
    assert_eq!(fate(&world, 2), (H::LocalTimeout, Errno::ETIMEDOUT));
    assert_eq!(world.hosts[0].port.ib.stats().undrained, 1, "the lost completion never comes");
    world.assert_clean();
}

#[test]
fn a_message_with_a_short_limit_leaves_the_queue_without_harm_to_others() {
    let (mut world, _) = connected(IbConfig::default());
    world.hosts[1].taste = vec![Taste::Defer];
    world.faults.defer_long = true;
    for number in 1..=8 {
        world.put(0, 1, number, 8);
    }
    let to = world.hosts[1].nid;
    let now = world.now;
    world.hosts[0].put_within(now, to, 20, 8, SECOND).expect("it is taken");
    world.drain(0);
    world.run(Duration::from_millis(1500));
    assert_eq!(fate(&world, 20), (H::LocalTimeout, Errno::ETIMEDOUT));
    assert_eq!(world.hosts[0].port.ib.connections(None), 1);
    world.run(Duration::from_secs(100));
    assert_eq!(closed(&world, 0, "timeout"), None);
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_request_that_ends_unposted_gives_its_reserved_credit_to_the_next_one() {
    for recalled in [false, true] {
        let (mut world, conn) = connected(IbConfig::default());
        world.hosts[1].taste = vec![Taste::Defer];
        world.faults.defer_long = true;
        let (to, now) = (world.hosts[1].nid, world.now);
        for number in 1..=8 {
            world.put(0, 1, number, 8);
        }
        // No credit is left; eight requests have their reserved one, the ninth waits for one.
        let msgs: Vec<_> = (20..=28)
            .map(|n| world.hosts[0].put_within(now, to, n, 65536, SECOND).expect("it is taken"))
            .collect();
        world.drain(0);
        let credits = |world: &World| {
            let all = world.hosts[0].port.ib.credits(to);
            let (_, credits) = all.iter().find(|(id, _)| *id == conn).expect("it is in use");
            (credits.held(), credits.reserved())
        };
        assert_eq!(credits(&world), (0, 0));
        if recalled {
            for (number, msg) in (20..).zip(msgs) {
                assert!(world.hosts[0].port.ib.recall(msg), "{number}");
                world.hosts[0].out.remove(&msg);
            }
        } else {
            world.run(Duration::from_millis(1500));
            assert_eq!(fate(&world, 28), (H::LocalTimeout, Errno::ETIMEDOUT));
        }
        assert_eq!(credits(&world), (0, 8), "recalled: {recalled}");
        world.run(Duration::from_secs(100));
        world.hosts[1].taste = vec![Taste::Keep];
        world.put(0, 1, 30, 65536);
        world.run(SECOND);
        assert_eq!(world.hosts[0].end(30), Some(Ok(())));
        world.assert_clean();
        world.assert_balance();
    }
}

#[test]
fn a_message_can_be_taken_back_until_it_is_posted() {
    let (mut world, _) = connected(IbConfig::default());
    world.hosts[1].taste = vec![Taste::Defer];
    world.faults.defer_long = true;
    let (to, now) = (world.hosts[1].nid, world.now);
    let msgs: Vec<_> =
        (1..=9).map(|n| world.hosts[0].put(now, to, n, 8).expect("it is taken")).collect();
    assert!(!world.hosts[0].port.ib.recall(msgs[0]), "it is posted");
    assert!(world.hosts[0].port.ib.recall(msgs[8]), "the credits are spent: it is not posted");
    assert!(!world.hosts[0].port.ib.recall(msgs[8]), "it is not there any more");
    world.hosts[0].out.remove(&msgs[8]);
    world.drain(0);
    world.run(Duration::from_secs(100));
    assert_eq!(world.hosts[0].end(9), None, "it is not reported");
    assert_eq!(world.hosts[1].received.len(), 9);
    world.assert_clean();
}

#[test]
fn a_failed_work_request_closes_the_connection_and_what_follows_makes_a_new_one() {
    for (legacy, status) in [(false, H::NetworkTimeout), (true, H::RemoteDropped)] {
        let (mut world, conn) =
            connected(IbConfig { legacy_status: legacy, ..IbConfig::default() });
        world.put(0, 1, 1, 8);
        world.get(0, 1, 2, 65536);
        world.break_qp((0, conn));
        world.run(SECOND);
        assert_eq!(fate(&world, 1), (status, Errno::EIO));
        assert_eq!(fate(&world, 2), (status, Errno::EIO));
        let reasons = ["work", "receive"].map(|reason| closed(&world, 0, reason).unwrap_or(0));
        assert_eq!(reasons.iter().sum::<u64>(), 1);
        world.put(0, 1, 3, 8);
        world.run(SECOND);
        assert_eq!(world.hosts[0].end(3), Some(Ok(())));
        world.assert_clean();
    }
}

#[test]
fn a_connection_with_64_posted_requests_drains_in_bounded_time() {
    let config = IbConfig { queue_depth: 128, ..IbConfig::default() };
    for lost in [false, true] {
        let (mut world, _) = connected(config.clone());
        world.faults.no_completions = lost;
        world.hosts[1].silent_gets = true;
        for number in 1..=64 {
            world.get(0, 1, number, 8192);
        }
        world.run(Duration::from_millis(1));
        assert!(world.hosts[0].ended.len() == 1, "64 are posted and wait");
        let now = world.now;
        world.hosts[0].port.ib.stop(now);
        world.drain(0);
        assert_eq!(world.hosts[0].ended.len(), 1, "the peer may be writing still");
        world.run(if lost { Duration::from_secs(5) } else { Duration::from_millis(1) });
        assert_eq!(world.hosts[0].ended.len(), 65, "lost completions: {lost}");
        assert!(world.hosts[0].port.ib.is_stopped());
        assert_eq!(world.hosts[0].port.ib.stats().undrained, u64::from(lost));
        world.assert_clean();
    }
}

/// B's connection with A.
fn other_side(world: &World) -> ConnId {
    let conns = world.conns(1);
    assert_eq!(conns.len(), 1);
    conns[0]
}

/// Ends a connection for the driver of a host before it reads what its adapter has.
fn end_unread(world: &mut World, host: usize, conn: ConnId) {
    let now = world.now;
    world.hosts[host].port.ib.cm_event(now, conn, CmEvent::Disconnected);
}

#[test]
fn a_message_that_is_read_behind_the_end_of_its_connection_is_delivered() {
    let (mut world, _) = connected(IbConfig::default());
    let received = world.hosts[1].received.len();
    world.put(0, 1, 1, 8);
    let far = other_side(&world);
    end_unread(&mut world, 1, far);
    world.run(SECOND);
    assert_eq!(world.hosts[0].end(1), Some(Ok(())), "B's adapter has acknowledged it");
    let new = &world.hosts[1].received[received..];
    assert_eq!(new.iter().map(|r| r.outcome).collect::<Vec<_>>(), [Some(Ok(()))]);
    assert_eq!(world.hosts[1].port.ib.stats().last_words, 1);
    world.assert_clean();
}

/// B defers a message of A's, whose connection then ends for B's driver, before or after B reads it.
fn deferred_at_an_end(len: u32, unread: bool) -> (World, RxId, Hdr) {
    let (mut world, _) = connected(IbConfig::default());
    world.hosts[1].taste = vec![Taste::Defer];
    world.hosts[1].keep_deferred = true;
    let far = other_side(&world);
    world.put(0, 1, 1, len);
    if unread {
        end_unread(&mut world, 1, far);
    }
    world.run(Duration::from_millis(1));
    if !unread {
        end_unread(&mut world, 1, far);
    }
    world.run(Duration::from_secs(60));
    let (rx, hdr) = *world.hosts[1].undecided.last().expect("it is deferred");
    (world, rx, hdr)
}

#[test]
fn a_deferred_immediate_is_delivered_long_after_the_end_of_its_connection() {
    for (unread, bytes) in [(false, false), (false, true), (true, false)] {
        let (mut world, rx, hdr) = deferred_at_an_end(3000, unread);
        assert_eq!(world.hosts[0].end(1), Some(Ok(())), "B's adapter has acknowledged it");
        assert!(world.hosts[1].gone.is_empty() && world.conns(1).is_empty(), "unread: {unread}");
        let received = world.hosts[1].received.len();
        world.hosts[1].taste = vec![if bytes { Taste::Bytes } else { Taste::Keep }];
        let now = world.now;
        world.hosts[1].decide(now, rx, hdr);
        world.drain(1);
        let new = &world.hosts[1].received[received..];
        assert_eq!(new.iter().map(|r| r.outcome).collect::<Vec<_>>(), [Some(Ok(()))]);
        assert_eq!(new[0].bytes.as_ref().map(Vec::len), Some(3000), "they are compared");
        assert_eq!(world.hosts[1].port.ib.kept(), 0);
        world.assert_clean();
    }
}

#[test]
fn a_kept_message_can_be_dropped_and_ends_with_its_interface() {
    let (mut world, rx, hdr) = deferred_at_an_end(8, false);
    world.hosts[1].taste = vec![Taste::Drop];
    let now = world.now;
    world.hosts[1].decide(now, rx, hdr);
    world.drain(1);
    assert_eq!(world.hosts[1].port.ib.kept(), 0);
    world.assert_clean();
    let (mut world, rx, _) = deferred_at_an_end(8, false);
    assert_eq!(world.hosts[1].port.ib.kept(), 1);
    let now = world.now;
    world.hosts[1].port.ib.stop(now);
    world.drain(1);
    assert_eq!(world.hosts[1].port.ib.kept(), 0);
    assert!(world.hosts[1].gone.contains(&rx));
    world.assert_clean();
}

#[test]
fn a_deferred_request_for_an_exchange_ends_with_its_connection() {
    let (world, rx, _) = deferred_at_an_end(65536, false);
    assert!(world.hosts[1].gone.contains(&rx));
    assert!(matches!(world.hosts[0].end(1), Some(Err(_))), "its sender knows");
    world.assert_clean();
}

#[test]
fn a_verdict_that_crosses_the_end_of_its_connection_ends_the_delivery() {
    let (mut world, _) = connected(IbConfig::default());
    world.hosts[1].taste = vec![Taste::Defer];
    world.hosts[1].keep_deferred = true;
    world.put(0, 1, 1, 65536);
    world.run(Duration::from_millis(1));
    let (rx, hdr) = *world.hosts[1].undecided.last().expect("it is deferred");
    let far = other_side(&world);
    end_unread(&mut world, 1, far);
    // B has not heard of the end yet.
    world.hosts[1].taste = vec![Taste::Keep];
    let (received, now) = (world.hosts[1].received.len(), world.now);
    world.hosts[1].decide(now, rx, hdr);
    world.drain(1);
    let new = &world.hosts[1].received[received..];
    assert!(matches!(new[0].outcome, Some(Err(_))), "{:?}", new[0].outcome);
    world.assert_clean();
}

#[test]
fn messages_beyond_the_limit_of_kept_ones_end_with_their_connection() {
    let (mut world, _) = connected(IbConfig::default());
    world.hosts[1].taste = vec![Taste::Defer];
    world.hosts[1].keep_deferred = true;
    let mut number = 1;
    while world.hosts[1].gone.len() < 8 {
        assert!(number < 8 * KEPT_MAX as u64, "kept {}", world.hosts[1].port.ib.kept());
        for _ in 0..8 {
            world.put(0, 1, number, 8);
            number += 1;
        }
        world.run(SECOND);
        for far in world.conns(1) {
            end_unread(&mut world, 1, far);
        }
        world.run(SECOND);
    }
    assert_eq!(world.hosts[1].port.ib.kept(), KEPT_MAX);
    world.assert_clean();
}

#[test]
fn a_put_whose_last_message_is_read_behind_the_end_of_its_connection_is_delivered() {
    let (mut world, conn) = connected(IbConfig::default());
    let received = world.hosts[0].received.len();
    // The data and PUT_DONE are with A's adapter, which has acknowledged them, and A has not read it.
    world.faults.swallowed = Some(Type::PutDone);
    world.put(1, 0, 1, 65536);
    world.run(Duration::from_millis(1));
    assert_eq!(world.hosts[1].end(1), Some(Ok(())));
    let cookie = world.trace.iter().find_map(|arrived| match arrived.msg.body {
        Body::PutAck { dst_cookie, .. } => Some(dst_cookie),
        _ => None,
    });
    let done = Done { cookie: cookie.expect("A has answered"), status: 65536 };
    end_unread(&mut world, 0, conn);
    say(&mut world, conn, 0, |_| {}, Body::PutDone(done));
    world.drain(0);
    world.run(SECOND);
    let new = &world.hosts[0].received[received..];
    assert_eq!(new.iter().map(|r| r.outcome).collect::<Vec<_>>(), [Some(Ok(()))]);
    world.assert_clean();
}

#[test]
fn a_completion_that_is_read_behind_the_end_of_its_connection_counts() {
    let (mut world, conn) = connected(IbConfig::default());
    world.put(0, 1, 1, 8);
    end_unread(&mut world, 0, conn);
    world.run(SECOND);
    assert_eq!(world.hosts[0].end(1), Some(Ok(())), "it has arrived");
    world.assert_clean();
}

#[test]
fn an_exchange_whose_answer_is_here_is_whole_though_the_completion_of_its_request_fails() {
    // B's adapter has not seen its PUT_ACK acknowledged, and A's data are there all the same.
    let (mut world, _) = connected(IbConfig::default());
    let received = world.hosts[1].received.len();
    world.faults.no_completions = true;
    world.put(0, 1, 1, 65536);
    while !world.trace.iter().any(|arrived| arrived.kind == Type::PutDone) {
        world.run(Duration::from_micros(1));
    }
    let far = other_side(&world);
    end_unread(&mut world, 1, far);
    world.run(Duration::from_secs(10));
    let new = &world.hosts[1].received[received..];
    assert_eq!(new.iter().map(|r| r.outcome).collect::<Vec<_>>(), [Some(Ok(()))]);
    world.assert_clean();
    // The same where the completion says so itself.
    for get in [false, true] {
        let (mut world, conn, cookie, work) = posted(get, false);
        let answer = if get {
            Body::GetDone(Done { cookie, status: 65536 })
        } else {
            Body::PutNak(Done { cookie, status: 0 })
        };
        say(&mut world, conn, 1, |_| {}, answer);
        let now = world.now;
        world.hosts[0].port.ib.work_done(now, work, Err(()));
        world.drain(0);
        world.run(SECOND);
        assert_eq!(world.hosts[0].end(1), Some(Ok(())), "get: {get}");
    }
}

#[test]
fn nothing_is_taken_behind_the_end_of_a_connection_whose_peer_breaks_the_protocol() {
    let (mut world, conn) = connected(IbConfig::default());
    say(&mut world, conn, 8, |_| {}, Body::Noop);
    assert_eq!(closed(&world, 0, "credits"), Some(1));
    world.put(1, 0, 1, 8);
    world.run(Duration::from_millis(1));
    assert_eq!(world.hosts[0].port.ib.stats().last_words, 0);
}

/// A message of B on its connection with A, as a peer that is not one of ours might send it.
fn say(world: &mut World, conn: ConnId, credits: u8, edit: impl Fn(&mut MsgHead), body: Body) {
    let (from, to) = (world.hosts[1].nid, world.hosts[0].nid);
    let mut head = MsgHead {
        order: ByteOrder::Little,
        version: Version::V12,
        credits,
        src: from,
        src_stamp: 0xb,
        dst: to,
        dst_stamp: 0xa,
    };
    edit(&mut head);
    let msg = Msg { head, body };
    let mut bytes = vec![0; msg.len()];
    msg.emit(0, &mut bytes).expect("it fits");
    let now = world.now;
    world.hosts[0].port.ib.received(now, conn, 0, Ok(&bytes));
}

#[test]
fn whatever_breaks_the_protocol_closes_the_connection_by_name() {
    let done = |cookie, status| Done { cookie, status };
    let rd = |nob| RdmaDesc { key: 1, frags: [Frag { addr: 0, nob }].into_iter().collect() };
    let params = ConnParams { queue_depth: 8, max_frags: 257, max_msg_size: 4096 };
    let same: fn(&mut MsgHead) = |_| {};
    type Edit = fn(&mut MsgHead);
    let table: [(u8, Edit, Body, &str); 13] = [
        (8, same, Body::Noop, "credits"),
        (0, |h| h.version = Version::V11, Body::Noop, "unexpected"),
        (0, |h| h.src_stamp = 7, Body::Noop, "stale"),
        (0, |h| h.dst_stamp = 7, Body::Noop, "stale"),
        (0, |h| h.src = "10.77.0.9@o2ib".parse().expect("a NID"), Body::Noop, "stale"),
        (0, |h| h.dst = "10.77.0.9@o2ib".parse().expect("a NID"), Body::Noop, "stale"),
        (0, same, Body::ConnReq(params), "unexpected"),
        (0, same, Body::ConnAck(params), "unexpected"),
        (0, same, Body::PutDone(done(77, 8)), "cookie"),
        (0, same, Body::GetDone(done(77, 8)), "cookie"),
        (0, same, Body::PutNak(done(77, 0)), "cookie"),
        (0, same, Body::PutAck { src_cookie: 77, dst_cookie: 1, rd: rd(8) }, "cookie"),
        (0, same, Body::GetDone(done(u64::MAX, -5)), "cookie"),
    ];
    for (credits, edit, body, reason) in table {
        let (mut world, conn) = connected(IbConfig::default());
        say(&mut world, conn, credits, edit, body.clone());
        world.drain(0);
        assert_eq!(closed(&world, 0, reason), Some(1), "{body:?}");
        world.run(SECOND);
        assert_eq!(world.conns(0), [], "{body:?}");
        assert_eq!(world.hosts[0].port.ib.check(), Ok(()));
    }
    let (mut world, conn) = connected(IbConfig::default());
    let now = world.now;
    world.hosts[0].port.ib.received(now, conn, 0, Ok(b"no message"));
    assert_eq!(closed(&world, 0, "wire"), Some(1));
}

/// A with a request under way on its connection; its cookie.
fn waiting(get: bool) -> (World, ConnId, u64) {
    let (world, conn, cookie, _) = posted(get, true);
    (world, conn, cookie)
}

/// The same, whose work request has completed or not.
fn posted(get: bool, completed: bool) -> (World, ConnId, u64, WorkId) {
    let (mut world, conn) = connected(IbConfig::default());
    let (to, now) = (world.hosts[1].nid, world.now);
    let order = if get {
        world.hosts[0].get(now, to, 1, 65536)
    } else {
        world.hosts[0].put(now, to, 1, 65536)
    };
    order.expect("it is taken");
    loop {
        match world.hosts[0].port.ib.poll_output().expect("a request") {
            Output::Map { map, memory, access } => {
                let Host { port, mem, .. } = &mut world.hosts[0];
                let outcome = port.adapter.map(map, memory, access, mem);
                port.ib.mapped(now, map, outcome);
            }
            Output::Post(post) => {
                let (msg, _) = Msg::parse(&post.head).expect("ours");
                let (Body::PutReq { cookie, .. } | Body::GetReq { cookie, .. }) = msg.body else {
                    panic!("{msg}")
                };
                if completed {
                    world.hosts[0].port.ib.work_done(now, post.work, Ok(()));
                }
                return (world, conn, cookie, post.work);
            }
            _ => {}
        }
    }
}

#[test]
fn an_answer_counts_once_and_for_its_own_request() {
    let same = |_: &mut MsgHead| {};
    let (mut world, conn, cookie) = waiting(true);
    say(&mut world, conn, 1, same, Body::GetDone(Done { cookie, status: 65536 }));
    assert_eq!(closed(&world, 0, "cookie"), None);
    say(&mut world, conn, 0, same, Body::GetDone(Done { cookie, status: 65536 }));
    assert_eq!(closed(&world, 0, "cookie"), Some(1), "the second one");

    let (mut world, conn, cookie, _) = posted(true, false);
    say(&mut world, conn, 1, same, Body::GetDone(Done { cookie, status: 65536 }));
    assert_eq!(closed(&world, 0, "cookie"), None, "it may come ahead of the completion");
    say(&mut world, conn, 0, same, Body::GetDone(Done { cookie, status: 4096 }));
    assert_eq!(closed(&world, 0, "cookie"), Some(1), "but once");

    let (mut world, conn, cookie) = waiting(false);
    say(&mut world, conn, 0, same, Body::GetDone(Done { cookie, status: 65536 }));
    assert_eq!(closed(&world, 0, "cookie"), Some(1), "the cookie of a PUT");

    let (mut world, conn, cookie) = waiting(true);
    say(&mut world, conn, 0, same, Body::GetDone(Done { cookie, status: 65537 }));
    assert_eq!(closed(&world, 0, "overrun"), Some(1));

    let rd = |frags: &[(u64, u32)]| RdmaDesc {
        key: 1,
        frags: frags.iter().map(|&(addr, nob)| Frag { addr, nob }).collect(),
    };
    // More than was announced, or beyond the address space: the answer is an error, not a write.
    for bad in [rd(&[(0, 65537)]), rd(&[(u64::MAX, 100)]), rd(&[(5, 0)])] {
        let (mut world, conn, cookie) = waiting(false);
        let body = Body::PutAck { src_cookie: cookie, dst_cookie: 5, rd: bad.clone() };
        say(&mut world, conn, 0, same, body);
        let post = core::iter::from_fn(|| world.hosts[0].port.ib.poll_output())
            .find_map(|o| if let Output::Post(post) = o { Some(post) } else { None })
            .expect("an answer");
        assert!(post.writes.is_empty(), "{bad}");
        let (msg, _) = Msg::parse(&post.head).expect("ours");
        assert_eq!(msg.body, Body::PutDone(Done { cookie: 5, status: -71 }), "{bad}");
    }
    let (mut world, conn, cookie) = waiting(false);
    say(&mut world, conn, 0, same, Body::PutNak(Done { cookie, status: -12 }));
    world.drain(0);
    assert_eq!(fate(&world, 1), (H::RemoteError, Errno::ENOMEM));
}

#[test]
fn memory_that_cannot_be_mapped_fails_its_message_alone() {
    for at_target in [false, true] {
        let (mut world, _) = connected(IbConfig::default());
        world.faults.map_failure = 1;
        if at_target {
            let (to, now) = (world.hosts[1].nid, world.now);
            world.faults.map_failure = 0;
            world.hosts[0].put(now, to, 1, 65536).expect("it is taken");
            world.drain(0);
            world.faults.map_failure = 1;
        } else {
            world.put(0, 1, 1, 65536);
            world.get(0, 1, 2, 65536);
        }
        world.run(SECOND);
        let side = if at_target { H::RemoteError } else { H::LocalError };
        assert_eq!(fate(&world, 1), (side, Errno::ENOMEM));
        world.faults.map_failure = 0;
        world.put(0, 1, 3, 65536);
        world.run(SECOND);
        assert_eq!(world.hosts[0].end(3), Some(Ok(())));
        world.assert_clean();
        world.assert_balance();
    }
}

#[test]
fn each_device_event_is_reported_once_and_has_its_effect() {
    use DeviceEvent as E;
    let down = [E::Fatal, E::PortError, E::AddressGone, E::LinkDown];
    let up = [E::PortActive, E::AddressThere, E::LinkUp];
    for event in down {
        for back in up {
            let (mut world, _) = connected(IbConfig::default());
            let now = world.now;
            for event in [event, event, back, back, E::PortChanged] {
                world.hosts[0].port.ib.device_event(now, event);
            }
            world.drain(0);
            let links = world.hosts[0].events.iter().filter_map(|e| match e {
                Event::Link(link) => Some(*link),
                _ => None,
            });
            assert_eq!(links.collect::<Vec<_>>(), [Link::Down, Link::Up], "{event:?} {back:?}");
            assert_eq!(world.hosts[0].port.ib.connections(None), 1, "a link is not a connection");
        }
    }
    for (event, reason, link) in
        [(E::Removed, "device_gone", true), (E::CompletionQueue, "completions_lost", false)]
    {
        let (mut world, _) = connected(IbConfig::default());
        world.hosts[1].silent_gets = true;
        world.get(0, 1, 1, 65536);
        world.run(Duration::from_millis(1));
        let now = world.now;
        world.hosts[0].port.ib.device_event(now, event);
        world.drain(0);
        assert_eq!(closed(&world, 0, reason), Some(1));
        let down = world.hosts[0].events.iter().any(|e| matches!(e, Event::Link(Link::Down)));
        assert_eq!(down, link);
        world.run(SECOND);
        assert_eq!(world.hosts[0].ended.len(), 2, "{event:?}");
        world.put(0, 1, 2, 8);
        world.run(SECOND);
        let refused = world.hosts[0].end(2).expect("ended").is_err();
        assert_eq!(refused, link, "{event:?}");
        world.hosts[0].port.ib.device_event(now, E::PortActive);
        world.drain(0);
        let up = world.hosts[0].events.iter().any(|e| matches!(e, Event::Link(Link::Up)));
        assert!(!up, "a device that is gone has no link");
        world.assert_clean();
    }
}

#[test]
fn a_slower_link_is_degraded_until_it_is_as_fast_again() {
    let (mut world, _) = connected(IbConfig::default());
    let now = world.now;
    for (rate, degraded) in [
        (100_000, false),
        (100_000, false),
        (25_000, true),
        (50_000, true),
        (100_000, false),
        (200_000, false),
        (100_000, true),
    ] {
        world.hosts[0].port.ib.device_event(now, DeviceEvent::Rate(rate));
        world.drain(0);
        assert_eq!(world.hosts[0].port.ib.is_degraded(), degraded, "{rate}");
    }
    // The rail to the peer is reported with each change, and once.
    let reports = world.hosts[0].events.iter().filter_map(|e| match e {
        Event::Rail { doubt, .. } => Some(*doubt),
        _ => None,
    });
    assert_eq!(reports.collect::<Vec<_>>(), [Doubt::Shaky, Doubt::None, Doubt::Shaky]);
}

#[test]
fn each_event_of_a_connection_in_use_has_its_effect() {
    let table = [
        (CmEvent::Disconnected, Some("left")),
        (CmEvent::DeviceRemoval, Some("device_gone")),
        (CmEvent::AddrChange, None),
        (CmEvent::TimewaitExit, None),
        (CmEvent::AddrError, None),
        (CmEvent::Established { private: b"" }, None),
    ];
    for (event, reason) in table {
        let (mut world, conn) = connected(IbConfig::default());
        world.inject(0, conn, event);
        world.run(SECOND);
        assert_eq!(
            world.hosts[0].port.ib.connections(None),
            usize::from(reason.is_none()),
            "{event:?}"
        );
        if let Some(reason) = reason {
            assert_eq!(closed(&world, 0, reason), Some(1), "{event:?}");
        }
        let down = world.hosts[0].events.iter().filter(|e| matches!(e, Event::PeerDown { .. }));
        assert_eq!(down.count(), usize::from(event == CmEvent::DeviceRemoval), "{event:?}");
        world.assert_clean();
    }
}

#[test]
fn a_get_that_the_node_never_answers_is_refused_in_the_end() {
    let config = IbConfig { timeout: Duration::from_secs(10), ..IbConfig::default() };
    let mut world = pair(IbConfig::default());
    world.hosts[1] = Host::new(B, 0xb, config);
    world.hosts[1].silent_gets = true;
    world.get(0, 1, 1, 65536);
    world.run(Duration::from_secs(9));
    assert_eq!(world.hosts[0].end(1), None);
    world.run(Duration::from_secs(2));
    assert_eq!(fate(&world, 1), (H::RemoteError, Errno::ENODATA));
    world.assert_clean();
    world.assert_balance();
}

#[test]
fn a_stopped_interface_ends_everything_with_its_own_errno() {
    let (mut world, _) = connected(IbConfig::default());
    world.hosts[1].silent_gets = true;
    world.get(0, 1, 1, 65536);
    world.run(Duration::from_millis(1));
    for number in 2..20 {
        world.put(0, 1, number, 8);
    }
    let now = world.now;
    world.hosts[0].port.ib.stop(now);
    world.drain(0);
    world.run(SECOND);
    // What was posted may have arrived, as the request of the GET has.
    assert_eq!(fate(&world, 1), (H::NetworkTimeout, Errno::ENETDOWN));
    for number in 2..20 {
        if let Some(Err(fault)) = world.hosts[0].end(number) {
            assert!(matches!(fault.status, H::RemoteDropped | H::NetworkTimeout), "{fault:?}");
            assert_eq!(fault.errno, Errno::ENETDOWN);
        }
    }
    assert!(world.hosts[0].out.is_empty() && world.hosts[0].port.ib.is_stopped());
    assert_eq!(world.hosts[0].port.ib.poll_timeout(), None);
    let (to, now) = (world.hosts[1].nid, world.now);
    assert!(world.hosts[0].put(now, to, 99, 8).is_err());
    assert_eq!(world.hosts[0].nid.to_string(), A);
    world.assert_clean();
}
