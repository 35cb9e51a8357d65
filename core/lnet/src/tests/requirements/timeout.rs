//! Time limits of operations and of transmissions.

use super::*;
use crate::{Get, Put, Timeouts, Tunables};
use lnet_types::ProcessId;

/// UG-024, UG-039, HL-lnt-070, UG-020, UG-065: `global show` prints these numbers. DEC-46: `default`
/// abandons as late as kernel nodes.
#[test]
fn defaults_are_those_of_the_documents_and_off_is_off() {
    for (profile, transaction) in [(Profile::Default, 150), (Profile::Documents, 5)] {
        let t = Tunables::new(profile);
        let seen = (t.health_sensitivity, t.retry_count, t.transaction_timeout);
        assert_eq!(seen, (100, 2, transaction));
    }
    let off = Tunables::new(Profile::Off);
    assert_eq!((off.health_sensitivity, off.retry_count), (0, 0));
    assert_eq!(Tunables::default(), Tunables::new(Profile::Default));
}

/// UG-028, UG-036, UG-040.
#[test]
fn tunables_take_values_at_their_bounds_and_refuse_those_beyond() {
    let mut t = Tunables::new(Profile::Documents);
    t.set("retry_count", 0).unwrap();
    for good in [0, 1, 1000] {
        t.set("health_sensitivity", good).unwrap();
    }
    for bad in [-1, 1001] {
        let text = t.set("health_sensitivity", bad).unwrap_err().to_string();
        assert_eq!(text, format!("health_sensitivity {bad}: expected 0 to 1000"));
    }
    for good in [0, 3] {
        t.set("retry_count", good).unwrap();
        assert_eq!(t.retry_count, good);
    }
    assert!(t.set("retry_count", -1).is_err());
    assert!(t.set("transaction_timeout", 0).is_err());
    t.set("transaction_timeout", 10).unwrap();
    assert_eq!(t.transaction_timeout, 10);
}

/// UG-045.
#[test]
fn more_retries_than_seconds_are_refused_and_nothing_changes() {
    for profile in [Profile::Default, Profile::Documents, Profile::Pre213] {
        let mut t = Tunables::new(profile);
        let before = t.clone();
        assert!(t.set("retry_count", t.transaction_timeout + 1).is_err());
        assert!(t.set("transaction_timeout", 1).is_err());
        assert_eq!(t, before);
    }
}

/// UG-044, DEC-9.
#[test]
fn the_time_of_one_transmission_is_the_transaction_timeout_over_the_retries() {
    for (transaction, retries, millis) in [(5, 2, 2500), (10, 2, 5000), (10, 0, 10_000)] {
        let mut w = pair(Profile::Documents);
        set(&mut w, 0, &[("transaction_timeout", transaction), ("retry_count", retries)]);
        let mut stalled = Stalled::new(&mut w, HealthStatus::LocalTimeout);
        w.put(0, B[0], 1, false);
        stalled.run(&mut w, MS);
        assert_eq!(stalled.limits, [MS * millis]);
    }
}

/// HL-lnt-085: the limit goes to the driver, the driver says when it is over, the message goes again.
#[test]
fn the_driver_keeps_the_time_of_a_transmission() {
    let mut w = pair(Profile::Default);
    w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Pass });
    w.put(0, B[0], 1, false);
    let (_, t) = w.held.pop_front().unwrap();
    assert_eq!(t.timeout, w.hosts[0].node.tunables().lnd_timeout());
    // The driver is late; the node has no clock of its own for this.
    w.secs(4);
    assert!(w.held.is_empty() && w.hosts[0].events.is_empty());
    w.decide = Box::new(|_| Fate::Pass);
    let now = w.now;
    w.hosts[0].node.tx_done(now, t.msg, Err(fault(HealthStatus::LocalTimeout)));
    w.run(MS * 10);
    assert_eq!(w.hosts[0].node.stats().resend_count, 1);
    assert_eq!(w.events(0, 1), [(EventKind::Send, true, true)]);
}

/// UG-037: of a hundred allowed retries only those are made that fit into the operation's time.
#[test]
fn the_time_of_the_operation_ends_it_before_its_retries_are_spent() {
    let mut w = pair(Profile::Documents);
    // UG-045 allows no more retries than seconds, so the operation brings its own five.
    set(&mut w, 0, &[("transaction_timeout", 150), ("retry_count", 100)]);
    // A driver with a limit of its own, of which not many fit into five seconds.
    for n in A {
        let ni = ni(&w, 0, n);
        w.hosts[0].node.set_lnd_timeout(ni, Some(MS * 1500));
    }
    let mut stalled = Stalled::new(&mut w, HealthStatus::LocalTimeout);
    let buf = w.hosts[0].mem.add(vec![0; 8]);
    let md = w.hosts[0].node.bind(crate::MdSpec::new(buf, 1)).unwrap();
    let put = Put {
        md,
        ack: false,
        src: None,
        target: ProcessId::lustre(nid(B[0])),
        portal: PT,
        match_bits: 0,
        offset: 0,
        hdr_data: 0,
        timeout: Some(Duration::from_secs(5).into()),
    };
    let now = w.now;
    w.hosts[0].node.put(now, put).unwrap();
    stalled.run(&mut w, MS * 4990);
    assert!(w.hosts[0].events.is_empty());
    stalled.run(&mut w, MS * 20);
    assert_eq!(w.events(0, 1), [(EventKind::Send, false, false)]);
    let attempts = w.pairs(0).len();
    assert!(attempts < 10, "{attempts}");
}

/// UG-068.
#[test]
fn in_the_base_configuration_a_dead_peer_costs_three_transmissions_and_five_seconds() {
    for stalls in [false, true] {
        let mut w = pair(Profile::Pre213);
        let t = w.hosts[0].node.tunables();
        assert_eq!((t.retry_count, t.transaction_timeout, t.health_sensitivity), (2, 5, 1));
        let mut stalled = Stalled::new(&mut w, HealthStatus::LocalTimeout);
        if !stalls {
            fail_to(&mut w, &B, fault(HealthStatus::LocalTimeout));
        }
        w.put(0, B[0], 1, false);
        stalled.run(&mut w, MS * 5000);
        assert_eq!(w.events(0, 1), [(EventKind::Send, false, true)]);
        assert!(w.pairs(0).len() <= 3, "{}", w.pairs(0).len());
    }
}

/// UG-038, HL-lnt-095, HLD-006, RS-039, RS-042, RS-092.
#[test]
fn missing_acks_and_replies_are_noticed_at_five_seconds_and_nothing_is_sent_again() {
    let mut w = pair(Profile::Documents);
    w.decide = Box::new(|t| match t.hdr.kind {
        Kind::Ack { .. } | Kind::Reply { .. } => Fate::Lose,
        Kind::Put { .. } | Kind::Get { .. } => Fate::Pass,
    });
    w.put(0, B[0], 1, true);
    w.get(0, B[0], 2);
    w.run(MS * 4999);
    for user in [1, 2] {
        assert_eq!(w.events(0, user), [(EventKind::Send, true, false)]);
    }
    assert_eq!(w.hosts[0].node.stats().response_timeout_count, 0);
    w.run(MS);
    for user in [1, 2] {
        let ended = [(EventKind::Send, true, false), (EventKind::Unlink, true, true)];
        assert_eq!(w.events(0, user), ended);
    }
    let s = w.hosts[0].node.stats();
    assert_eq!((s.response_timeout_count, s.resend_count), (2, 0));
    let lnd: u64 = s.rows().iter().filter(|(n, _)| is_failure(n)).map(|(_, v)| *v).sum();
    assert_eq!(lnd, 0, "no failure of a driver");
}

/// The names of the failure counters.
fn is_failure(name: &str) -> bool {
    ["local_", "remote_", "network_"].iter().any(|p| name.starts_with(p))
}

/// HLD-012.
#[test]
fn one_message_has_a_time_for_its_transmission_and_another_for_its_response() {
    let mut w = pair(Profile::Documents);
    let mut limits = Stalled::new(&mut w, HealthStatus::LocalTimeout);
    w.put(0, B[0], 1, true);
    let (begin, t) = (w.now, w.held[0].1.timeout);
    assert_eq!(t, MS * 2500);
    w.release();
    lose(&mut w, MsgType::Ack);
    while w.events(0, 1).len() < 2 {
        limits.run(&mut w, MS);
    }
    assert_eq!(w.now.saturating_since(begin), MS * 5000);
}

/// HL-lnd-045, HL-stt-005, HLD-001, UG-062, UG-063: each kind of failure counts where it belongs.
#[test]
fn each_kind_of_failure_raises_its_own_counter_alone() {
    use HealthStatus as H;
    let names = [
        (H::LocalInterrupt, "local_interrupt_count"),
        (H::LocalDropped, "local_dropped_count"),
        (H::LocalAborted, "local_aborted_count"),
        (H::LocalNoRoute, "local_no_route_count"),
        (H::LocalTimeout, "local_timeout_count"),
        (H::LocalError, "local_error_count"),
        (H::RemoteDropped, "remote_dropped_count"),
        (H::RemoteError, "remote_error_count"),
        (H::RemoteTimeout, "remote_timeout_count"),
        (H::NetworkTimeout, "network_timeout_count"),
    ];
    for (status, name) in names {
        let mut w = pair(Profile::Documents);
        fail_first(&mut w, 1, fault(status));
        w.put(0, B[0], 1, false);
        w.run(MS * 10);
        let rows = w.hosts[0].node.stats().rows();
        let raised: Vec<_> = rows.into_iter().filter(|(n, v)| is_failure(n) && *v > 0).collect();
        assert_eq!(raised, [(name, 1)]);
    }
}

/// Two discovered nodes with one interface each and room for one message at a time.
fn narrow(profile: Profile) -> World {
    let mut w = World::new();
    let one = NetTunables { credits: 1, peer_credits: 1, ..NetTunables::SOCK };
    w.host_with(profile, &A[..1], one);
    w.host_with(profile, &B[..1], one);
    w.discovered(0, B[0]);
    w
}

fn get_within(w: &mut World, user: u64, timeout: Timeouts) {
    let h = &mut w.hosts[0];
    let buf = h.mem.add(vec![0; 8]);
    let spec = crate::MdSpec { threshold: Some(2), ..crate::MdSpec::new(buf, user) };
    let md = h.node.bind(crate::MdSpec { unlink: crate::Unlink::Auto, ..spec }).unwrap();
    let target = ProcessId::lustre(nid(B[0]));
    let get = Get {
        md,
        src: None,
        target,
        portal: PT,
        match_bits: super::super::world::BITS,
        offset: 0,
        timeout: Some(timeout),
    };
    h.node.get(w.now, get).unwrap();
    w.drain();
}

/// HL-lnt-105, DEC-10: a GET that waited three seconds for a credit has its five seconds for the
/// REPLY from then on.
#[test]
fn the_time_of_the_response_begins_when_the_driver_has_the_request() {
    for (profile, overdue_after) in [(Profile::Documents, 8000), (Profile::Default, 8000)] {
        let mut w = narrow(profile);
        w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Lose });
        w.put(0, B[0], 1, false);
        w.get(0, B[0], 2);
        assert_eq!(w.hosts[0].node.stats().rst_alloc, 1, "the PUT without ACK has no timer");
        w.run(MS * 3000);
        assert_eq!(w.held.len(), 1, "the GET waits for the credit of the PUT");
        w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Pass } else { Fate::Lose });
        w.release();
        w.run(MS * (overdue_after - 3000));
        assert_eq!(w.events(0, 2), [(EventKind::Send, true, false)]);
        w.run(MS * 2);
        let ended = [(EventKind::Send, true, false), (EventKind::Unlink, true, true)];
        assert_eq!(w.events(0, 2), ended);
        assert_eq!(w.hosts[0].node.stats().response_timeout_count, 1);
    }
}

/// HL-lnt-100, DEC-10.
#[test]
fn a_call_may_bring_its_own_time_for_sending_and_another_for_the_response() {
    for (send, response, overdue) in
        [(None, Some(300), 300), (Some(700), None, 700), (Some(100), Some(9000), 9000)]
    {
        let mut w = narrow(Profile::Default);
        lose(&mut w, MsgType::Reply);
        let of = |ms: Option<u32>| ms.map(|ms| MS * ms);
        get_within(&mut w, 1, Timeouts { send: of(send), response: of(response) });
        w.run(MS * (overdue - 1));
        assert_eq!(w.events(0, 1), [(EventKind::Send, true, false)], "{send:?} {response:?}");
        w.run(MS);
        assert_eq!(w.events(0, 1).len(), 2, "{send:?} {response:?}");
        // Waiting ends by the one, whatever the other says.
        let mut w = narrow(Profile::Default);
        w.decide = Box::new(|_| Fate::Hold);
        w.put(0, B[0], 1, false);
        get_within(&mut w, 2, Timeouts { send: of(send), response: of(response) });
        let late = send.unwrap_or(5000);
        w.run(MS * (late - 1));
        assert_eq!(w.events(0, 2), []);
        w.run(MS);
        assert_eq!(w.events(0, 2), [(EventKind::Send, false, false)], "{send:?} {response:?}");
    }
}

/// DEC-10: a message that no driver ever had awaits no response, and no interface is charged.
#[test]
fn a_request_that_never_left_is_taken_back_without_blame() {
    let mut w = narrow(Profile::Default);
    w.decide = Box::new(|_| Fate::Hold);
    w.put(0, B[0], 1, false);
    w.get(0, B[0], 2);
    w.secs(5);
    assert_eq!(w.events(0, 2), [(EventKind::Send, false, false)]);
    let before = w.peer_health(0, B[0]);
    w.secs(6);
    assert_eq!(w.events(0, 2), [(EventKind::Send, false, false), (EventKind::Unlink, true, true)]);
    assert_eq!(w.peer_health(0, B[0]), before);
}

/// HL-lnd-030, HL-lnt-080, HLD-021: a caller may bring the time that is divided.
#[test]
fn one_attempt_has_its_share_of_the_callers_own_time() {
    for (profile, retries, limit, share) in [
        (Profile::Documents, 4, Some(8000), 2000),
        (Profile::Documents, 3, Some(9000), 3000),
        (Profile::Documents, 2, None, 2500),
        (Profile::Default, 3, Some(8000), 2000),
        (Profile::Default, 4, None, 1000),
    ] {
        let mut w = pair(profile);
        set(&mut w, 0, &[("retry_count", retries)]);
        let mut stalled = Stalled::new(&mut w, HealthStatus::LocalTimeout);
        let limits = limit.map(|ms| Timeouts::from(MS * ms)).unwrap_or_default();
        get_within(&mut w, 1, limits);
        stalled.run(&mut w, MS * share);
        assert_eq!(stalled.limits, [MS * share, MS * share], "{profile:?} {retries} {limit:?}");
        assert_eq!(w.hosts[0].node.stats().resend_count, 1);
    }
}

/// DEC-46: a ping of the node's own ends by its own limit, an operation of a caller goes on.
#[test]
fn own_pings_are_abandoned_in_seconds_while_operations_have_minutes() {
    let mut w = pair(Profile::Default);
    set(&mut w, 0, &[("transaction_timeout", 150)]);
    assert_eq!(w.hosts[0].node.tunables().lnd_timeout(), Duration::from_secs(49));
    w.decide = Box::new(|_| Fate::Lose);
    w.get(0, B[0], 1);
    let now = w.now;
    w.hosts[0].node.discover(now, nid(B[0]), true);
    w.secs(6);
    assert_eq!(w.hosts[0].node.stats().response_timeout_count, 1, "the ping of the discovery");
    assert!(w.events(0, 1).iter().all(|(_, ok, _)| *ok), "{:?}", w.events(0, 1));
    w.secs(150);
    let last = w.events(0, 1).last().copied();
    assert!(last.is_some_and(|(_, _, unlinked)| unlinked), "{:?}", w.events(0, 1));
}

/// DEC-46: what follows 0 in the table is what the originals have.
#[test]
fn limits_of_their_own_follow_the_transaction_where_the_profile_has_none() {
    for (profile, ping) in [
        (Profile::Default, 5),
        (Profile::Documents, 5),
        (Profile::Kernel, 150),
        (Profile::Pre213, 5),
    ] {
        let t = Tunables::new(profile);
        assert_eq!(t.ping_limit(), Duration::from_secs(ping), "{profile:?}");
    }
    let mut t = Tunables::new(Profile::Documents);
    t.set("transaction_timeout", 20).unwrap();
    assert_eq!(t.ping_limit(), Duration::from_secs(20));
    let share = Duration::from_secs(50);
    assert_eq!(t.overdue_after(share), share);
    assert_eq!(Tunables::default().overdue_after(share), Duration::from_millis(1500));
    assert_eq!(Tunables::default().overdue_after(Duration::from_secs(1)), Duration::from_secs(1));
}
