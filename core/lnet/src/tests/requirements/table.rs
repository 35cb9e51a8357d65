//! The whole table of behaviour.md 5.3 in every profile: ten failures × who pays × whether the
//! message goes again × what is counted (H-10, H-14, H-20; DEC-6, DEC-7, DEC-19).

use lnet_types::HealthStatus as H;

use super::*;

/// A row of H-10 and H-14.
struct Row {
    status: H,
    /// Whether it costs our interface, and the peer's.
    pays: (bool, bool),
    /// Whether the message is sent again, by the kernel's rules.
    again: bool,
    /// The node's counter.
    counter: &'static str,
}

const fn row(status: H, pays: (bool, bool), again: bool, counter: &'static str) -> Row {
    Row { status, pays, again, counter }
}

const TABLE: [Row; 10] = [
    row(H::LocalInterrupt, (true, false), true, "local_interrupt_count"),
    row(H::LocalDropped, (true, false), true, "local_dropped_count"),
    row(H::LocalAborted, (true, false), true, "local_aborted_count"),
    row(H::LocalNoRoute, (true, false), true, "local_no_route_count"),
    row(H::LocalTimeout, (true, false), true, "local_timeout_count"),
    row(H::LocalError, (true, false), false, "local_error_count"),
    row(H::RemoteDropped, (false, true), true, "remote_dropped_count"),
    row(H::RemoteError, (false, true), false, "remote_error_count"),
    row(H::RemoteTimeout, (false, true), false, "remote_timeout_count"),
    row(H::NetworkTimeout, (true, true), false, "network_timeout_count"),
];

/// What a failure costs in a profile, and how often a message that keeps failing is sent again.
const fn column(profile: Profile) -> (u32, u32) {
    match profile {
        Profile::Default | Profile::Documents | Profile::Kernel => (100, 2),
        Profile::Pre213 => (1, 2),
        Profile::Off => (0, 0),
    }
}

/// HL-lnt-040 to the letter, in the profile of the documents; in our own because the peer tells copies
/// apart; nowhere else (DEC-6, DEC-7).
fn goes_again(profile: Profile, row: &Row) -> bool {
    let timeouts = matches!(row.status, H::RemoteTimeout | H::NetworkTimeout);
    row.again || (timeouts && matches!(profile, Profile::Documents | Profile::Default))
}

fn counter(w: &World, name: &str) -> u64 {
    let rows = w.hosts[0].node.stats().rows();
    rows.into_iter().find(|(n, _)| *n == name).unwrap().1
}

/// Health lost by our interfaces together, and by the peer's.
fn lost(w: &World) -> (u32, u32) {
    let ours = A.map(|n| 1000 - w.ni_health(0, n)).iter().sum();
    (ours, B.map(|n| 1000 - w.peer_health(0, n)).iter().sum())
}

/// Each request that this one host sends fails so; what else is sent is kept back, so that nothing
/// heals.
fn failing(profile: Profile, status: H, times: usize) -> World {
    let mut w = pair(profile);
    fail(&mut w, status, times);
    w
}

fn fail(w: &mut World, status: H, times: usize) {
    let mut left = times;
    w.decide = Box::new(move |t| {
        if !is_request(&t.hdr) {
            return Fate::Hold;
        }
        if left == 0 {
            return Fate::Hold;
        }
        left -= 1;
        Fate::Fail(fault(status))
    });
}

#[test]
fn the_first_failure_of_each_kind_charges_the_sides_in_the_table_in_every_profile() {
    for profile in Profile::ALL {
        let (cost, retries) = column(profile);
        for row in &TABLE {
            let mut w = failing(profile, row.status, 1);
            w.put(0, B[0], 7, false);
            let expected = (cost * u32::from(row.pays.0), cost * u32::from(row.pays.1));
            let at = format!("{} in {}", row.status, profile.name());
            assert_eq!(lost(&w), expected, "{at}");
            let again = goes_again(profile, row) && retries > 0;
            assert_eq!(w.pairs(0).len(), 1 + usize::from(again), "{at}");
            assert_eq!(counter(&w, "resend_count"), u64::from(again), "{at}");
            // It goes over another pair, where the side to blame has one.
            if again {
                let (first, second) = (&w.pairs(0)[0], &w.pairs(0)[1]);
                assert_ne!(first, second, "{at}");
                assert!(!row.pays.0 || first.0 != second.0, "{at}");
            }
            assert_eq!(w.events(0, 7).len(), usize::from(!again), "{at}");
        }
    }
}

#[test]
fn a_message_that_keeps_failing_is_sent_as_often_as_its_profile_says_and_each_time_counts() {
    for profile in Profile::ALL {
        let (_, retries) = column(profile);
        for row in &TABLE {
            // As many interfaces as attempts: none has to wait for news in any profile.
            let a = [A[0], A[1], "10.77.2.2@tcp"];
            let b = [B[0], B[1], "10.77.2.3@tcp"];
            let mut w = nodes(profile, &a, &b);
            fail(&mut w, row.status, usize::MAX);
            w.put(0, B[0], 7, false);
            let at = format!("{} in {}", row.status, profile.name());
            let attempts = if goes_again(profile, row) { 1 + retries } else { 1 };
            assert_eq!(w.pairs(0).len(), attempts as usize, "{at}");
            // H-14, H-15, H-22
            let rows = w.hosts[0].node.stats().rows();
            for (name, value) in rows {
                let expected = match name {
                    name if name == row.counter => attempts,
                    "resend_count" => attempts - 1,
                    "failed_resends" => u32::from(attempts > 1),
                    "msgs_max" => 1,
                    _ => 0,
                };
                assert_eq!(value, u64::from(expected), "{at}: {name}");
            }
            assert_eq!(w.events(0, 7), [(EventKind::Send, false, true)], "{at}");
        }
    }
}

#[test]
fn a_network_timeout_is_counted_by_both_interfaces() {
    // HL-stt-015
    let mut w = failing(Profile::Default, H::NetworkTimeout, 1);
    w.put(0, B[0], 7, false);
    let (from, to) = w.pairs(0).remove(0);
    for n in w.hosts[0].node.net_views()[1].nis.iter() {
        assert_eq!(n.failures.network_timeout, u32::from(n.nid == nid(&from)));
    }
    for n in w.hosts[0].node.peer_view_of(nid(B[0])).unwrap().nis {
        assert_eq!(n.failures.network_timeout, u32::from(n.nid == nid(&to)));
    }
}

/// UG-005.
#[test]
fn every_interface_begins_at_full_health_in_every_profile() {
    for profile in Profile::ALL {
        let w = pair(profile);
        for host in [0, 1] {
            let (own, other) = if host == 0 { (A, B) } else { (B, A) };
            assert_eq!(own.map(|n| w.ni_health(host, n)), [1000, 1000], "{}", profile.name());
            assert_eq!(other.map(|n| w.peer_health(host, n)), [1000, 1000], "{}", profile.name());
        }
    }
}
